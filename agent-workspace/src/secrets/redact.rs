//! Redaction: finds values of secrets in texts and in JSON, and replaces them by names.

use std::borrow::Cow;

use crate::secrets::known::Known;
use crate::secrets::patterns::Mark;
use agent_core::json::RawJson;

/// Returns the text with values replaced by names, also those with escapes of JSON.
pub(super) fn text<'a>(known: &Known, text: &'a str) -> Cow<'a, str> {
    let found = known.find(text);
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (at, mark) in found {
        out.push_str(&text[done..at.start]);
        out.push_str(&mark.to_string());
        done = at.end;
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

/// Returns the JSON with values replaced by names, in its texts, numbers and keys; `None` if it contains no value. The
/// keys of the `outer` levels are not redacted: they belong to the format and are not the text of an author.
#[expect(clippy::expect_used, reason = "a value must not be shown or stored if redaction fails")]
pub(super) fn json(known: &Known, json: &RawJson, outer: usize) -> Option<RawJson> {
    let source = json.get();
    // An escape may hide any value; without escapes, each value occurs literally.
    let escaped = source.contains('\\');
    let documents = known.may_hold_documents(source);
    if known.is_empty() || (!escaped && !documents && known.find(source).is_empty()) {
        return None;
    }
    let out = tokens(known, source, outer)?;
    Some(RawJson::parse(&out).expect("JSON with replaced tokens is JSON"))
}

/// Returns JSON with the tokens replaced that contain a value; `None` if none does.
fn tokens(known: &Known, source: &str, outer: usize) -> Option<String> {
    let documents = known.may_hold_documents(source);
    let mut found = false;
    let mut out = String::with_capacity(source.len());
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = source.as_bytes().get(at) {
        let document = match byte {
            b'{' | b'[' if documents && depth >= outer => known.document(&source[at..]),
            _ => None,
        };
        if let Some((length, name)) = document {
            found = true;
            out.push_str(&quoted(Mark::Named(name).to_string()));
            at += length;
            continue;
        }
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
            b'"' => without(known, token),
            b'-' | b'0'..=b'9' => match text(known, token) {
                Cow::Owned(hidden) => Some(quoted(hidden)),
                Cow::Borrowed(_) => None,
            },
            _ => None,
        };
        found |= replaced.is_some();
        out.push_str(replaced.as_deref().unwrap_or(token));
        at = end;
    }
    found.then_some(out)
}

/// Returns a string token without the values in it; `None` if it contains none.
fn without(known: &Known, token: &str) -> Option<String> {
    let inner = token.get(1..token.len().checked_sub(1)?)?;
    let decoded = match inner.contains('\\').then(|| serde_json::from_str::<String>(token)) {
        Some(Ok(decoded)) => Cow::Owned(decoded),
        // Half of a surrogate pair is not valid text; the rest of the token is searched as it is.
        Some(Err(_)) | None => Cow::Borrowed(inner),
    };
    match text(known, &decoded) {
        Cow::Owned(hidden) => Some(quoted(hidden)),
        Cow::Borrowed(_) => None,
    }
}

fn quoted(text: String) -> String {
    serde_json::Value::String(text).to_string()
}

/// Returns the end of the string that begins at `at`.
fn string_end(source: &str, at: usize) -> usize {
    let bytes = source.as_bytes();
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    (end + 1).min(bytes.len())
}

/// Returns the end of the number that begins at `at`.
fn number_end(source: &str, at: usize) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    at + source.as_bytes()[at..].iter().take_while(|byte| is_part(byte)).count()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::secrets::secret::Secret;

    fn given(values: &[(&str, &str)]) -> Known {
        let mut known = Known::default();
        for (value, name) in values {
            known.add(&Secret::new(*value).unwrap(), &name.parse().unwrap());
        }
        known
    }

    fn hidden(given: &Known, source: &str) -> String {
        let source = RawJson::parse(source).unwrap();
        json(given, &source, 0).unwrap_or(source).get().to_owned()
    }

    #[test]
    fn secret_value_is_redacted_at_any_position() {
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
    fn text_without_secrets_is_unchanged() {
        let given = given(&[("correct horse", "a")]);
        let source = r#"{"n":123456789012345678901234567890.10,"s":"\u0041\ud800","t":"\\\"correct"}"#;
        assert_eq!(json(&given, &RawJson::parse(source).unwrap(), 0), None);
        let half = r#"["\ud800 correct horse"]"#;
        assert!(!hidden(&given, half).contains("correct horse"));
    }

    #[test]
    fn secret_value_is_redacted_in_what_is_no_json() {
        let given = given(&[("correct horse", "a")]);
        for (source, left) in [
            (r#"{"t":"correct horse","#, r#"{"t":"(secret a)""#),
            (r#"{"t":"\u0063orrect horse","#, r#"{"t":"(secret a)""#),
            (r#"{"t":"\u0063orrect horse and"#, r#"{"t":"(secret a) and"#),
            (r#"{"t":"\u0063orrect horse \u00"#, r#"{"t":"(secret a) "#),
            (r#"{"t":"\u0063orrect horse\"#, r#"{"t":"(secret a)"#),
            ("no JSON, correct horse, é\\", "no JSON, (secret a), é"),
        ] {
            let shown = text(&given, source);
            assert!(shown.starts_with(left) && !shown.contains("horse"), "{source}: {shown}");
        }
        for source in ["", "\"", "\\", r#"{"t":"é\"#, r#"{"a":1}{"b":2}"#, "[1"] {
            assert_eq!(text(&given, source), source);
        }
    }

    #[test]
    fn secret_value_is_redacted_however_it_is_escaped() {
        let given = given(&[("correct horse", "a"), ("two\nlines/and \"quotes\" \u{1f511}", "b")]);
        let escaped = r"\u0063orrect\u0020horse";
        for (source, left) in [
            // Outside of strings, as a quote that is not escaped leaves it, and in strings that no reader takes.
            (format!(r#"{{"t":"5" tall {escaped}""#), r#"{"t":"5" tall (secret a)""#.to_owned()),
            (format!(r#"{{"t":"\q {escaped}"}}"#), r#"{"t":"\q (secret a)"}"#.to_owned()),
            (format!("{{\"t\":\"first\n{escaped}\"}}"), "{\"t\":\"first\n(secret a)\"}".to_owned()),
            (format!(r#"{{"t":"\ud800{escaped}"}}"#), r#"{"t":"\ud800(secret a)"}"#.to_owned()),
            // In JSON within JSON, and as one of its strings.
            (r#"{"t":"\\u0063orrect\\u0020horse"}"#.to_owned(), r#"{"t":"(secret a)"}"#.to_owned()),
            (
                r#""\u0074wo\u000Alines\/and \u0022quotes\" \uD83D\udd11""#.to_owned(),
                r#""(secret b)""#.to_owned(),
            ),
            (escaped.to_owned(), "(secret a)".to_owned()),
        ] {
            assert_eq!(text(&given, &source), left, "{source}");
            let whole = serde_json::json!([source.clone(), 1]);
            let shown = hidden(&given, &whole.to_string());
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap()[0], left, "{source}");
        }
        let half = format!(r#"["\ud800 {escaped}"]"#);
        assert!(hidden(&given, &half).contains("(secret a)"), "{}", hidden(&given, &half));
    }

    #[test]
    fn beginning_of_an_escaped_value_is_cut() {
        let given = given(&[("correct horse", "a")]);
        for (source, kept) in [
            (r"x \u0063orrect hor", 2),
            (r"x \u0063orrect\u00", 2),
            (r"x \\u0063orrect\\u0", 2),
            (r"x \u00", 2),
            (r"x \u0063orrect hose", 19),
            (r"x \u0063orrect horse", 20),
            ("x corr", 2),
        ] {
            assert_eq!(given.complete_prefix(0, source), kept, "{source}");
        }
    }

    proptest! {
        /// Of what is no JSON, any text can be searched, and a value in it is not left.
        #[test]
        fn secret_value_is_redacted_in_any_text(before in any::<String>(), after in any::<String>()) {
            let given = given(&[("correct horse", "a")]);
            let source = format!("{before}correct horse{after}");
            prop_assert!(!text(&given, &source).contains("correct horse"));
        }

        /// Each character may be escaped or not, once or twice.
        #[test]
        fn secret_value_is_redacted_with_any_escapes(how in proptest::collection::vec(0..5_u8, 13)) {
            let given = given(&[("correct horse", "a")]);
            let spell = |(c, how): (char, u8)| match how {
                0 => c.to_string(),
                1 => format!("\\u{:04x}", u32::from(c)),
                2 => format!("\\u{:04X}", u32::from(c)),
                3 => format!("\\\\u{:04x}", u32::from(c)),
                _ => format!("\\u005cu{:04x}", u32::from(c)),
            };
            let source: String = "correct horse".chars().zip(how).map(spell).collect();
            let marked = format!("<{source}>");
            prop_assert_eq!(text(&given, &marked), "<(secret a)>");
            prop_assert_eq!(given.complete_prefix(0, &source[..source.len() - 1]), 0);
        }

        /// A value is redacted in JSON of any shape, and the text around it is unchanged.
        #[test]
        fn secret_value_is_redacted_in_any_json(
            before in any::<String>(),
            after in any::<String>(),
            value in "[a-z\"\\\\\n/é]{8,20}",
            key in any::<String>(),
        ) {
            prop_assume!(value.trim().len() >= Secret::MIN_BYTES);
            prop_assume!(!before.contains(&value) && !after.contains(&value) && !key.contains(&value));
            let whole = format!("{before}{value}{after}");
            prop_assume!(whole.matches(value.as_str()).count() == 1 && whole.find(&value) == Some(before.len()));
            // It would make the first line of a value look like that line in JSON, and what is behind it would be left.
            prop_assume!(!before.ends_with('\\'));
            // It would be redacted as the second half of an escape at the end of the value.
            prop_assume!(!after.starts_with('\\'));
            let given = given(&[(value.as_str(), "a")]);
            let source = RawJson::of(&serde_json::json!([{ key.clone(): whole }, key, 7])).unwrap();
            let expected = serde_json::json!([{ key.clone(): format!("{before}(secret a){after}") }, key, 7]);
            let out: serde_json::Value = serde_json::from_str(json(&given, &source, 0).unwrap().get()).unwrap();
            prop_assert_eq!(out, expected);
        }
    }
}
