//! Marks of sealed content, which encrypted stores write and every other store refuses.
//! So content that was sealed elsewhere is never taken for what somebody wrote.
//!
//! An event's payload is sealed into the member `sealed` of its object, the text `1.<key>.<base64url>`, which comes first. A word of
//! the record is sealed into `~1.<base64url>`.

use memchr::memmem;

use crate::base::{Error, ErrorKind, ParseError, RawFields, RawJson, Result, check_text, quoted, to_text};

/// Member of a payload that is sealed.
const MEMBER: &str = "sealed";
/// Beginning of a word that is sealed.
pub(crate) const WORD: &str = "~1.";

/// Beginning of a sealed payload.
const BEGINNING: &str = r#"{"sealed":""#;

/// Returns whether a stored payload is sealed. No payload that was accepted unsealed has such a member.
pub(crate) fn is_sealed(payload: &RawJson) -> bool {
    payload.get().starts_with(BEGINNING)
}

/// Returns the name of the key that sealed a payload; `None` if it is not sealed.
pub(crate) fn key_of(payload: &RawJson) -> Option<&str> {
    let sealed = payload.get().strip_prefix(BEGINNING)?;
    Some(sealed.split_once('.')?.1.split_once('.')?.0)
}

/// Returns the payload with this sealed content and these copies.
pub(crate) fn payload_of(sealed: &str, copies: &RawFields) -> Result<RawJson> {
    let copies = to_text(copies);
    let rest = copies.strip_prefix('{').unwrap_or_default();
    let comma = if copies == "{}" { "" } else { "," };
    RawJson::parse(&format!("{BEGINNING}{sealed}\"{comma}{rest}"))
}

/// Returns the sealed content of a payload, and the payload without it; `None` if the payload is not sealed.
pub(crate) fn sealed_payload(payload: &RawJson) -> Option<(&str, RawJson)> {
    let (sealed, rest) = payload.get().strip_prefix(BEGINNING)?.split_once('"')?;
    Some((sealed, RawJson::parse(&format!("{BEGINNING}\"{rest}")).ok()?))
}

/// Returns the most bytes that are stored of a text that may have `most`, which is longer if it is sealed.
pub(crate) fn most_stored(text: &str, most: usize) -> usize {
    if text.starts_with(WORD) { (most + 64).div_ceil(3) * 4 + WORD.len() } else { most }
}

/// Refuses a payload that is sealed.
pub(crate) fn refuse_sealed(payload: &RawJson, extra: &RawFields) -> Result<()> {
    // Mostly the name does not occur at all. Where it does, it may be in a text, or deeper.
    let is_sealed = extra.get(MEMBER).is_some()
        || (may_name(payload.get())
            && payload.to::<RawFields>().is_ok_and(|members| members.get(MEMBER).is_some()));
    if is_sealed {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "an event has the member `sealed`, which only encrypted stores write, and this one is not encrypted; open it \
             with its keys, or give a member of your own another name",
        ));
    }
    Ok(())
}

/// Returns whether a JSON text may have the name `sealed`: as it is, or with escapes of its letters, which other text hardly has.
fn may_name(json: &str) -> bool {
    let has = |part: &[u8]| memmem::find(json.as_bytes(), part).is_some();
    has(b"\"sealed\"") || (has(b"\\u") && (has(b"\\u006") || has(b"\\u007")))
}

/// Checks a word of a record, like [`check_text`], and refuses one that is sealed.
pub(crate) fn check_word(noun: &str, text: &str, max: usize) -> Result<(), ParseError> {
    check_text(noun, text, max)?;
    if text.starts_with(WORD) {
        return Err(ParseError::new(format!(
            "{noun} {} begins with {WORD}, as words in encrypted stores do, and this one is not encrypted; begin it otherwise",
            quoted(text)
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_member_of_the_payload_itself_is_sealed() -> Result<()> {
        for (payload, is_sealed) in [
            (r#"{"sealed":"1.k.0.AAAA"}"#, true),
            (r#"{"text":"x","se\u0061led":1}"#, true),
            (r#"{"\u0073\u0065\u0061\u006c\u0065\u0064":1}"#, true),
            (r#"{"\u0073ealed":1}"#, true),
            (r#"{"sea\u006Ced":1}"#, true),
            (r#"{"text":"\"sealed\": of no avail"}"#, false),
            (r#"{"data":{"sealed":"1.k.0.AAAA"}}"#, false),
            (r#"{"text":"sealed"}"#, false),
            (r#"["sealed"]"#, false),
        ] {
            let refused = refuse_sealed(&RawJson::parse(payload)?, &RawFields::new());
            assert_eq!(refused.is_err(), is_sealed, "{payload}");
        }
        let mut extra = RawFields::new();
        extra.insert(MEMBER, RawJson::parse("1")?);
        assert!(refuse_sealed(&RawJson::empty_object(), &extra).is_err());
        assert!(check_word("title", "~1.AAAA", 64).is_err() && check_word("title", "~ 1.", 64).is_ok());
        Ok(())
    }
}
