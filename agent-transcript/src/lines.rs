//! What is structure in a transcript, and how text that looks like it is told apart.

use std::borrow::Cow;

use crate::Speaker;

/// Before the JSON string of a line that cannot stand as it is; behind a backslash.
const JSON: &str = "json \"";
/// What a mark starts with.
pub(super) const MARK: &str = "<!-- rendered ";

/// The speaker of a heading; spaces behind it are passed over.
pub(super) fn heading(line: &str) -> Option<Speaker> {
    let word = line.trim_end_matches([' ', '\t']).strip_prefix("## ")?;
    Speaker::ALL.into_iter().find(|speaker| speaker.as_str() == word)
}

/// Whether a line is a mark, or looks like one.
pub(super) fn is_mark(line: &str) -> bool {
    line.starts_with(MARK)
}

/// Whether editors or terminals change or interpret a character.
fn is_awkward(c: char) -> bool {
    (c.is_control() && c != '\t') || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// The line without its backslashes, and how many these are.
fn without_backslashes(line: &str) -> (usize, &str) {
    let rest = line.trim_start_matches('\\');
    (line.len() - rest.len(), rest)
}

/// A line of a message's text, as it stands in the file.
pub(super) fn escape(line: &str) -> Cow<'_, str> {
    if line.contains(is_awkward) {
        return Cow::Owned(format!("\\json {}", quote(line)));
    }
    let (backslashes, rest) = without_backslashes(line);
    let needs = heading(rest).is_some() || is_mark(rest) || (backslashes > 0 && rest.starts_with(JSON));
    if needs { Cow::Owned(format!("\\{line}")) } else { Cow::Borrowed(line) }
}

/// The line of text that a line of the file stands for; `None` where its JSON cannot be read.
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

/// A JSON string with everything escaped that is awkward in a file.
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
            // All of them have at most four digits.
            c if is_awkward(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The text of a JSON string; spaces behind it are passed over.
pub(super) fn unquote(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}
