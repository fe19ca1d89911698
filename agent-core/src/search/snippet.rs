//! Snippets: the part of a text in which something was found.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Bytes of a text before the first place that was found, and behind it.
const AROUND: usize = 96;

/// Part of a text, in one line, with the places that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snippet {
    /// Text without control characters and line breaks. `…` stands where the text goes on.
    pub text: String,
    /// Places that were found: beginning and end of each in bytes of `text`, in order, without overlaps.
    pub places: Vec<(usize, usize)>,
}

impl Snippet {
    /// Cuts a text around the first of some places.
    pub(crate) fn around(text: &str, mut places: Vec<Range<usize>>) -> Self {
        places.sort_by_key(|place| (place.start, place.end));
        let first = places.first().cloned().unwrap_or(0..0);
        let begin = text.ceil_char_boundary(first.start.saturating_sub(AROUND));
        let end = text.floor_char_boundary(first.end.saturating_add(AROUND).min(text.len()));
        let mut snippet = Self::default();
        if begin > 0 {
            snippet.text.push('…');
        }
        let mut at = begin;
        for place in places {
            let place = place.start.max(at)..place.end.min(end);
            if place.start >= place.end {
                continue;
            }
            snippet.push(&text[at..place.start]);
            let from = snippet.text.len();
            snippet.push(&text[place.clone()]);
            snippet.places.push((from, snippet.text.len()));
            at = place.end;
        }
        snippet.push(&text[at.min(end)..end]);
        if end < text.len() {
            snippet.text.push('…');
        }
        snippet
    }

    fn push(&mut self, text: &str) {
        self.text.extend(text.chars().map(|c| if c.is_control() || is_direction(c) { ' ' } else { c }));
    }

    /// Returns the text with a mark before and behind each place.
    ///
    /// ```
    /// use agent_core::search::Snippet;
    ///
    /// let snippet: Snippet = serde_json::from_str(r#"{"text":"it failed","places":[[3,9]]}"#)?;
    /// assert_eq!(snippet.marked("**"), "it **failed**");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn marked(&self, mark: &str) -> String {
        let (mut marked, mut at) = (String::with_capacity(self.text.len() + 4 * mark.len()), 0);
        for (start, end) in &self.places {
            let parts = (self.text.get(at..*start), self.text.get(*start..*end));
            let (Some(before), Some(found)) = parts else { continue };
            marked.extend([before, mark, found, mark]);
            at = *end;
        }
        marked.push_str(self.text.get(at..).unwrap_or_default());
        marked
    }
}

/// Returns whether a character changes the direction of what follows it, also behind the snippet.
const fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snippet_is_cut_around_the_first_place() {
        let text = format!("{}é here\nis it {}", "x".repeat(200), "y".repeat(200));
        let place = text.find("here").unwrap();
        let snippet = Snippet::around(&text, vec![place + 5..place + 7, place..place + 4]);
        assert!(snippet.text.starts_with("…x") && snippet.text.ends_with("y…"), "{snippet:?}");
        assert!(snippet.marked("*").contains("é *here* *is* it"), "{snippet:?}");
        let overlap = Snippet::around("abcdef", vec![1..4, 2..3, 3..6]);
        assert_eq!(overlap.marked("|"), "a|bcd||ef|");
        let first = 0..1;
        assert_eq!(Snippet::around("a\u{202e}b\u{1b}[2J", vec![first]).text, "a b [2J");
        assert_eq!(Snippet::around("", vec![]), Snippet::default());
    }

    #[test]
    fn places_of_others_are_not_believed() {
        let forged = Snippet { text: "é".to_owned(), places: vec![(1, 9), (5, 2), (0, 1)] };
        assert_eq!(forged.marked("*"), "é");
    }
}
