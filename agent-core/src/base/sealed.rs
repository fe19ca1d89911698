//! Marks of sealed content, which encrypted stores write and every other store refuses.
//! So content that was sealed elsewhere is never taken for what somebody wrote.
//!
//! An event's payload is sealed into the member `sealed` of its object, the text `1.<key>.<step>.<base64url>`. A word of
//! the record is sealed into `~1.<base64url>`. No store of this version is encrypted.

use memchr::memmem;

use crate::base::{Error, ErrorKind, ParseError, RawFields, RawJson, Result, check_text, quoted};

/// Member of a payload that is sealed.
const MEMBER: &str = "sealed";
/// Beginning of a word that is sealed.
pub(crate) const WORD: &str = "~1.";

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
