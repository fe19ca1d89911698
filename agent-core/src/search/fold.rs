//! Folding: texts that people take for the same become the same.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{compose, is_combining_mark};

/// Text in its folded form, with the way back to the original.
///
/// The form is NFKD in lower case by character, where ß is `ss`, ς is σ, İ and ı are i, without marks after letters of Latin, Greek,
/// Cyrillic, Hebrew and Arabic, without characters that are not seen, and then composed (NFC).
#[derive(Debug)]
pub(crate) struct Folded {
    text: String,
    /// Beginnings of the pieces in the folded text and in the original, in order; `None` if both are the same.
    pieces: Option<Vec<(usize, usize)>>,
    /// Length of the original.
    len: usize,
}

impl Folded {
    pub(crate) fn new(original: &str) -> Self {
        let len = original.len();
        if original.is_ascii() {
            return Self { text: original.to_ascii_lowercase(), pieces: None, len };
        }
        let (mut text, mut pieces) = (String::with_capacity(len), Vec::new());
        let (mut piece, mut begins) = (String::new(), 0);
        let mut base = '\0';
        for (at, c) in original.char_indices() {
            let decomposed = parts_of(c);
            // A piece ends where what follows cannot become one character with it.
            let joins = decomposed.first().is_none_or(|first| {
                is_combining_mark(*first) || piece.chars().last().is_some_and(|last| joins(last, *first))
            });
            if !joins {
                close(&mut piece, &mut text, &mut pieces, begins);
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
        close(&mut piece, &mut text, &mut pieces, begins);
        Self { text, pieces: Some(pieces), len }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the bytes of the original that a range of the folded text comes from.
    pub(crate) fn original(&self, range: Range<usize>) -> Range<usize> {
        let Some(pieces) = &self.pieces else { return range };
        let first = pieces.partition_point(|(folded, _)| *folded <= range.start).saturating_sub(1);
        let next = pieces.partition_point(|(folded, _)| *folded < range.end);
        let start = pieces.get(first).map_or(0, |(_, original)| *original);
        start..pieces.get(next).map_or(self.len, |(_, original)| *original)
    }
}

/// Adds a piece to the text.
fn close(piece: &mut String, text: &mut String, pieces: &mut Vec<(usize, usize)>, begins: usize) {
    if !piece.is_empty() {
        pieces.push((text.len(), begins));
        text.extend(piece.nfc());
        piece.clear();
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
            assert_eq!(folded.original(0..folded.text().len()).end, text.len(), "{text:?}");
            for (at, c) in folded.text().char_indices() {
                let range = folded.original(at..at + c.len_utf8());
                assert!(text.is_char_boundary(range.start) && text.is_char_boundary(range.end));
                // What stands there folds to what contains the character.
                assert!(Folded::new(&text[range.clone()]).text().contains(c), "{text:?} {at} {range:?}");
            }
        }
    }
}
