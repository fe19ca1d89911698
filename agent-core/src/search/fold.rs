//! Folding: texts that people take for the same become the same.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{compose, is_combining_mark};

/// Most places of a text that are looked up in the original.
const PLACES: usize = 16;

/// Text in its folded form.
///
/// The form is NFKD in lower case by character, where ß is `ss`, ς is σ, İ and ı are i, without marks after letters of Latin, Greek,
/// Cyrillic, Hebrew and Arabic, without characters that are not seen, and then composed (NFC).
#[derive(Debug)]
pub(crate) struct Folded(String);

impl Folded {
    pub(crate) fn new(original: &str) -> Self {
        if original.is_ascii() {
            return Self(original.to_ascii_lowercase());
        }
        let mut text = String::with_capacity(original.len());
        pieces(original, |piece, _| text.extend(piece.nfc()));
        Self(text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Returns the bytes of the original that the first of some ranges come from. Folds the original once more: few texts are found, and a
    /// way back for each character would take several times the memory of the text.
    pub(crate) fn places(original: &str, mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
        ranges.sort_by_key(|range| (range.start, range.end));
        ranges.truncate(PLACES);
        if original.is_ascii() {
            return ranges;
        }
        let (mut places, mut at) = (vec![0..0; ranges.len()], 0);
        pieces(original, |piece, from| {
            let end = at + piece.nfc().map(char::len_utf8).sum::<usize>();
            for (place, range) in places.iter_mut().zip(&ranges) {
                if (at..end).contains(&range.start) {
                    place.start = from.start;
                }
                if at < range.end && range.end <= end {
                    place.end = from.end;
                }
            }
            at = end;
        });
        places
    }
}

/// Calls `each` with the pieces of a text, which are not composed yet, and where each comes from. No two pieces become one character.
fn pieces(original: &str, mut each: impl FnMut(&str, Range<usize>)) {
    let (mut piece, mut begins, mut base) = (String::new(), 0, '\0');
    for (at, c) in original.char_indices() {
        let decomposed = parts_of(c);
        let joins = decomposed.first().is_none_or(|first| {
            is_combining_mark(*first) || piece.chars().last().is_some_and(|last| joins(last, *first))
        });
        if !joins {
            if !piece.is_empty() {
                each(&piece, begins..at);
                piece.clear();
            }
            begins = at;
        }
        for part in decomposed {
            if is_combining_mark(part) {
                if drops_marks(base) {
                    continue;
                }
            } else {
                base = part;
            }
            piece.push(part);
        }
    }
    if !piece.is_empty() {
        each(&piece, begins..original.len());
    }
}

/// Returns whether two characters of NFKD that follow each other may become one: by composition, or as parts of a syllable of Hangul.
fn joins(last: char, first: char) -> bool {
    let is_jamo = |c: char| matches!(c, '\u{1100}'..='\u{11ff}');
    (is_jamo(last) && matches!(first, '\u{1160}'..='\u{11ff}')) || compose(last, first).is_some()
}

/// Returns the characters of the folded form of one character, before marks are dropped and the rest is composed.
fn parts_of(c: char) -> Vec<char> {
    let mut parts = Vec::with_capacity(2);
    for part in std::iter::once(c).nfkd().flat_map(char::to_lowercase).nfkd() {
        match part {
            'ß' => parts.extend(['s', 's']),
            'ς' => parts.push('σ'),
            'ı' => parts.push('i'),
            unseen if is_unseen(unseen) => {}
            part => parts.push(part),
        }
    }
    parts
}

/// Returns whether a character only changes how others are shown: joiners, directions, variations, soft hyphens.
const fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether marks after a letter are left out in searches: é is found as e, but か is not が.
const fn drops_marks(base: char) -> bool {
    matches!(base, 'a'..='z' | '\u{df}'..='\u{24f}' | '\u{250}'..='\u{2af}' | '\u{1e00}'..='\u{1eff}' | '\u{2c60}'..='\u{2c7f}' | '\u{a720}'..='\u{a7ff}'
        | '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}'
        | '\u{400}'..='\u{52f}' | '\u{1c80}'..='\u{1c8f}' | '\u{2de0}'..='\u{2dff}' | '\u{a640}'..='\u{a69f}'
        | '\u{5d0}'..='\u{5f2}'
        | '\u{620}'..='\u{64a}' | '\u{66e}'..='\u{6ff}' | '\u{750}'..='\u{77f}' | '\u{8a0}'..='\u{8ff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> String {
        Folded::new(text).text().to_owned()
    }

    #[test]
    fn texts_that_people_take_for_the_same_are_the_same() {
        for (one, other) in [
            ("Straße", "STRASSE"),
            ("Café", "cafe\u{301}"),
            ("Ὀδυσσεύς", "οδυσσευσ"),
            ("İstanbul", "istanbul"),
            ("ısı", "isi"),
            ("Ёлка", "елка"),
            ("مُحَمَّد", "محمد"),
            ("שָׁלוֹם", "שלום"),
            ("ＡＢＣ１２", "abc12"),
            ("ｶﾞ", "ガ"),
            ("한국", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{116e}\u{11a8}"),
            ("ﬁne", "fine"),
            ("co\u{ad}operate", "cooperate"),
            ("می\u{200c}خواهم", "میخواهم"),
        ] {
            assert_eq!(folded(one), folded(other), "{one} {other}");
        }
        for (one, other) in [("か", "が"), ("ハ", "バ"), ("कि", "क"), ("ก็", "ก")] {
            assert_ne!(folded(one), folded(other), "{one} {other}");
        }
    }

    #[test]
    fn ranges_lead_back_to_the_original() {
        for text in [
            "Die STRASSE und die Straße",
            "cafe\u{301}!",
            "Ａ한국\u{1112}\u{1161}\u{11ab}x",
            "\u{301}a",
            "",
            "ﬁn\u{200d}e",
        ] {
            let folded = Folded::new(text);
            let whole = 0..folded.text().len();
            assert!(whole.is_empty() || Folded::places(text, vec![whole])[0].end == text.len(), "{text:?}");
            for (at, c) in folded.text().char_indices() {
                let one = at..at + c.len_utf8();
                let range = Folded::places(text, vec![one])[0].clone();
                assert!(text.is_char_boundary(range.start) && text.is_char_boundary(range.end));
                // What stands there folds to what contains the character.
                assert!(Folded::new(&text[range.clone()]).text().contains(c), "{text:?} {at} {range:?}");
            }
        }
    }
}
