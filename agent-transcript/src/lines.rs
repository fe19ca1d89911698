//! Structure lines of a transcript, and the escaping of text that resembles them.

use std::borrow::Cow;

use crate::Speaker;

/// Start of the JSON form of a line that cannot be written literally, after a backslash.
const JSON: &str = "json \"";
/// Start of a mark.
pub(super) const MARK: &str = "<!-- rendered ";

/// Returns the speaker of a heading; ignores trailing spaces.
pub(super) fn heading(line: &str) -> Option<Speaker> {
    let word = line.trim_end_matches([' ', '\t']).strip_prefix("## ")?;
    Speaker::ALL.into_iter().find(|speaker| speaker.as_str() == word)
}

/// Returns whether a line is a mark, or looks like one.
pub(super) fn is_mark(line: &str) -> bool {
    line.starts_with(MARK)
}

/// Returns whether editors or terminals change or interpret a character.
fn is_awkward(c: char) -> bool {
    (c.is_control() && c != '\t') || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Returns the number of leading backslashes, and the rest of the line.
fn without_backslashes(line: &str) -> (usize, &str) {
    let rest = line.trim_start_matches('\\');
    (line.len() - rest.len(), rest)
}

/// Returns a line of a message's text as it is written to the file.
pub(super) fn escape(line: &str) -> Cow<'_, str> {
    if line.contains(is_awkward) {
        return Cow::Owned(format!("\\json {}", quote(line)));
    }
    let (backslashes, rest) = without_backslashes(line);
    let needs = heading(rest).is_some() || is_mark(rest) || (backslashes > 0 && rest.starts_with(JSON));
    if needs { Cow::Owned(format!("\\{line}")) } else { Cow::Borrowed(line) }
}

/// Returns the line of text that a line of the file represents; `None` if its JSON cannot be decoded.
pub(super) fn unescape(line: &str) -> Option<Cow<'_, str>> {
    let (backslashes, rest) = without_backslashes(line);
    if backslashes == 0 {
        return Some(Cow::Borrowed(line));
    }
    if rest.starts_with(JSON) {
        if backslashes > 1 {
            return Some(Cow::Borrowed(&line[1..]));
        }
        return unquote(&rest["json ".len()..]).map(Cow::Owned);
    }
    let escaped = heading(rest).is_some() || is_mark(rest);
    Some(Cow::Borrowed(if escaped { &line[1..] } else { line }))
}

/// Returns a JSON string in which every character that is unsafe in a file is escaped.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\r' => out.push_str("\\r"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // All awkward characters have at most four digits.
            c if is_awkward(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Returns the text of a JSON string; ignores trailing spaces.
pub(super) fn unquote(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}
