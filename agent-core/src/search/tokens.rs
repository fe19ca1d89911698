//! Tokens: the words of a folded text, by which an index finds it.

use std::collections::BTreeSet;

use unicode_normalization::char::is_combining_mark;

/// Kind of a character of a folded text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Part of a word, which ends where another kind begins.
    Word,
    /// Character of a script without spaces between words, or a sign: a token by itself, and one with its neighbour.
    Dense,
    /// Space, punctuation.
    Between,
}

pub(crate) fn kind(c: char) -> Kind {
    if c.is_ascii() {
        return if c.is_ascii_alphanumeric() || c == '_' { Kind::Word } else { Kind::Between };
    }
    if is_dense(c) {
        Kind::Dense
    } else if c.is_alphanumeric() || is_combining_mark(c) {
        Kind::Word
    } else {
        Kind::Between
    }
}

/// Thai, Lao, Myanmar, Hangul, Khmer, Kana with ー, Han with 々 and 〇, and pictures (ranges of Unicode 17).
const fn is_dense(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1100}'..='\u{11ff}' | '\u{1780}'..='\u{17ff}'
        | '\u{2600}'..='\u{27bf}' | '\u{2e80}'..='\u{2fdf}' | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{3029}' | '\u{3031}'..='\u{3035}'
        | '\u{3038}'..='\u{303c}' | '\u{3041}'..='\u{309f}' | '\u{30a1}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{3105}'..='\u{312f}'
        | '\u{3131}'..='\u{318e}' | '\u{31a0}'..='\u{31bf}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{a960}'..='\u{a97f}' | '\u{a9e0}'..='\u{a9fe}' | '\u{aa60}'..='\u{aa7f}' | '\u{ac00}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}'
        | '\u{1aff0}'..='\u{1b16f}' | '\u{1f000}'..='\u{1faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Returns the tokens of a folded text.
pub(crate) fn tokens(folded: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let (mut word, mut before) = (None, None);
    for (at, c) in folded.char_indices() {
        let kind = kind(c);
        match (kind, word) {
            (Kind::Word, None) => word = Some(at),
            (Kind::Word, Some(_)) | (_, None) => {}
            (_, Some(begins)) => {
                found.extend(folded.get(begins..at));
                word = None;
            }
        }
        let end = at + c.len_utf8();
        if kind == Kind::Dense {
            found.extend(folded.get(at..end));
            found.extend(before.and_then(|before| folded.get(before..end)));
        }
        before = (kind == Kind::Dense).then_some(at);
    }
    found.extend(word.and_then(|begins| folded.get(begins..)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_and_dense_scripts_give_characters_and_pairs() {
        let of = |text| tokens(text).into_iter().collect::<Vec<_>>();
        assert_eq!(of("snake_case, foo-bar 3.14"), ["14", "3", "bar", "foo", "snake_case"]);
        assert_eq!(of("서울에서"), ["서", "서울", "에", "에서", "울", "울에"]);
        assert_eq!(of("ab서c"), ["ab", "c", "서"]);
        assert_eq!(of("🎉🎉"), ["🎉", "🎉🎉"]);
        assert_eq!(of("हिन्दी में"), ["में", "हिन्दी"]);
        assert_eq!(of(" -+ \0"), Vec::<&str>::new());
    }
}
