//! Values are found in texts and in JSON, and names put in their place.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::json::RawJson;
use crate::secrets::SecretName;

/// Names, by values.
type Given = HashMap<Box<str>, SecretName>;

/// The text with names in place of values.
pub(super) fn text<'a>(given: &Given, text: &'a str) -> Cow<'a, str> {
    let mut found: Vec<_> = given
        .iter()
        .map(|(value, name)| (&**value, name))
        .filter(|(value, _)| text.contains(value))
        .collect();
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    // A value may be a part of another: the longest goes first.
    found.sort_by_key(|(value, _)| (usize::MAX - value.len(), *value));
    // Of each the next place; of several at one place the longest is taken.
    let mut next: Vec<_> = found.iter().map(|(value, _)| text.find(value)).collect();
    let mut done = 0;
    let mut out = String::with_capacity(text.len());
    while let Some((at, n)) = next.iter().enumerate().filter_map(|(n, at)| at.map(|at| (at, n))).min() {
        let (value, name) = found[n];
        out.push_str(&text[done..at]);
        out.push_str(&shown(name));
        done = at + value.len();
        for ((value, _), place) in found.iter().zip(&mut next) {
            if place.is_some_and(|at| at < done) {
                *place = text[done..].find(value).map(|at| done + at);
            }
        }
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

fn shown(name: &SecretName) -> String {
    format!("(secret {name})")
}

/// The JSON with names in place of values, in its texts, its numbers, and its keys, but for those of the `outer` levels:
/// these are not what somebody wrote but the form of it. `None` where no value is in it.
pub(super) fn json(given: &Given, json: &RawJson, outer: usize) -> Option<RawJson> {
    let source = json.get();
    // An escape may hide any value; without one, each stands there as it is.
    let escaped = source.contains('\\');
    if given.is_empty() || (!escaped && !given.keys().any(|value| source.contains(&**value))) {
        return None;
    }
    let mut found = false;
    let mut out = String::with_capacity(source.len());
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = source.as_bytes().get(at) {
        let end = match byte {
            b'"' => string_end(source, at),
            b'-' | b'0'..=b'9' => number_end(source, at),
            _ => at + 1,
        };
        let token = &source[at..end];
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_key = *byte == b'"' && source.as_bytes().get(end) == Some(&b':');
        let replaced = match byte {
            b'"' if is_key && depth <= outer => None,
            b'"' => without(given, token),
            b'-' | b'0'..=b'9' => match text(given, token) {
                Cow::Owned(hidden) => Some(quoted(hidden)),
                Cow::Borrowed(_) => None,
            },
            _ => None,
        };
        found |= replaced.is_some();
        out.push_str(replaced.as_deref().unwrap_or(token));
        at = end;
    }
    // Tokens in place of tokens are JSON again. If ever they were not, nothing of it may be shown.
    found.then(|| RawJson::parse(&out).unwrap_or_else(|_| RawJson::empty_object()))
}

/// A string token without the values in it; `None` where it has none.
fn without(given: &Given, token: &str) -> Option<String> {
    let inner = token.get(1..token.len().checked_sub(1)?)?;
    let decoded = match inner.contains('\\').then(|| serde_json::from_str::<String>(token)) {
        Some(Ok(decoded)) => Cow::Owned(decoded),
        // Half of a surrogate pair is no text; the rest of it may be.
        Some(Err(_)) | None => Cow::Borrowed(inner),
    };
    match text(given, &decoded) {
        Cow::Owned(hidden) => Some(quoted(hidden)),
        Cow::Borrowed(_) => None,
    }
}

fn quoted(text: String) -> String {
    serde_json::Value::String(text).to_string()
}

/// Where the string ends that begins at `at`.
fn string_end(source: &str, at: usize) -> usize {
    let bytes = source.as_bytes();
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

/// Where the number ends that begins at `at`.
fn number_end(source: &str, at: usize) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    at + source.as_bytes()[at..].iter().take_while(|byte| is_part(byte)).count()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn given(values: &[(&str, &str)]) -> Given {
        values.iter().map(|(value, name)| ((*value).into(), name.parse().unwrap())).collect()
    }

    fn hidden(given: &Given, source: &str) -> String {
        let source = RawJson::parse(source).unwrap();
        json(given, &source, 0).unwrap_or(source).get().to_owned()
    }

    #[test]
    fn r25_a_value_is_hidden_wherever_it_stands() {
        let given = given(&[("correct horse", "a"), ("correct horse battery", "b"), ("12345678", "pin")]);
        assert_eq!(text(&given, "correct horse battery, correct horse"), "(secret b), (secret a)");
        assert_eq!(text(&given, "nothing"), "nothing");
        let source =
            r#"{"correct horse":["correct horse battery","x 12345678",12345678,-1.5e3,null,{"k":"v"}]}"#;
        let expected =
            r#"{"(secret a)":["(secret b)","x (secret pin)","(secret pin)",-1.5e3,null,{"k":"v"}]}"#;
        assert_eq!(hidden(&given, source), expected);
        assert_eq!(hidden(&given, r#"["\u0063orrect\u0020horse"]"#), r#"["(secret a)"]"#);
        let kept = json(&given, &RawJson::parse(source).unwrap(), 1).unwrap();
        assert!(kept.get().starts_with(r#"{"correct horse":["(secret b)""#), "{kept:?}");
    }

    #[test]
    fn r25_n16_what_holds_no_value_is_left_as_it_is() {
        let given = given(&[("correct horse", "a")]);
        let source = r#"{"n":123456789012345678901234567890.10,"s":"\u0041\ud800","t":"\\\"correct"}"#;
        assert_eq!(json(&given, &RawJson::parse(source).unwrap(), 0), None);
        let half = r#"["\ud800 correct horse"]"#;
        assert!(!hidden(&given, half).contains("correct horse"));
    }

    proptest! {
        /// R25: whatever surrounds a value, in JSON of any shape, it is not there any more, and the rest is.
        #[test]
        fn r25_no_text_around_a_value_shows_it(
            before in any::<String>(),
            after in any::<String>(),
            value in "[a-z\"\\\\\n/é]{8,20}",
            key in any::<String>(),
        ) {
            prop_assume!(!before.contains(&value) && !after.contains(&value) && !key.contains(&value));
            let whole = format!("{before}{value}{after}");
            prop_assume!(whole.matches(value.as_str()).count() == 1 && whole.find(&value) == Some(before.len()));
            let given = given(&[(value.as_str(), "a")]);
            let source = RawJson::of(&serde_json::json!([{ key.clone(): whole }, key, 7])).unwrap();
            let expected = serde_json::json!([{ key.clone(): format!("{before}(secret a){after}") }, key, 7]);
            let out: serde_json::Value = serde_json::from_str(json(&given, &source, 0).unwrap().get()).unwrap();
            prop_assert_eq!(out, expected);
        }
    }
}
