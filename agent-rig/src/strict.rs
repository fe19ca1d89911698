//! JSON as a model or its server wrote it, without leniency.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Beginning of names that mean something to serde_json itself: below one it reads a text as JSON, which nobody has seen.
const PRIVATE: &str = "$serde_json::private::";

const TWICE: &str = "a member is named twice";
const HIDDEN: &str = "a member has a name that hides what it holds";

/// Reads JSON and keeps nothing of it.
#[derive(Clone, Copy)]
struct Strict {
    /// Whether it must be an object.
    is_object: bool,
    /// Whether a member may be named twice.
    may_repeat: bool,
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        if self.is_object { from.deserialize_map(self) } else { from.deserialize_any(self) }
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_object { "an object" } else { "a value" })
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Self { is_object: false, ..self })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if name.starts_with(PRIVATE) {
                return Err(A::Error::custom(HIDDEN));
            }
            if !self.may_repeat && !names.insert(name) {
                return Err(A::Error::custom(TWICE));
            }
            members.next_value_seed(Self { is_object: false, ..self })?;
        }
        Ok(())
    }
}

fn read(text: &str, strict: Strict) -> serde_json::Result<()> {
    let mut from = serde_json::Deserializer::from_str(text);
    strict.deserialize(&mut from)?;
    from.end()
}

/// Returns what is wrong with a text that should be a JSON object, and where; `None` if nothing is. Quotes nothing of it.
pub(crate) fn fault_of(text: &str) -> Option<String> {
    let error = read(text, Strict { is_object: true, may_repeat: false }).err()?;
    let text = error.to_string();
    // An error about the data quotes them.
    let is_quoted = error.is_data() && !text.starts_with(TWICE) && !text.starts_with(HIDDEN);
    Some(if is_quoted {
        format!("it is no object at line {} column {}", error.line(), error.column())
    } else {
        text
    })
}

/// Whether serde_json would read a text in the JSON as JSON.
pub(crate) fn hides_json(text: &str) -> bool {
    let strict = Strict { is_object: false, may_repeat: true };
    read(text, strict).is_err_and(|error| error.to_string().starts_with(HIDDEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_objects_are_taken() {
        for sound in
            ["{}", " { \"a\" : [1, -2.5, true, null, {\"a\": \"x\"}] } ", "{\"a\":\"\\ud83d\\ude00\"}"]
        {
            assert_eq!(fault_of(sound), None, "{sound}");
        }
        for (wrong, what) in [
            (r#"{"command":"rm -rf /home/me/proj"#, "EOF while parsing a string at line 1 column 32"),
            (r#"{"path":"/data","filter":"a\ud83d"}"#, "unexpected end of hex escape at line 1 column 34"),
            (r#"{"a":1}{"b":2}"#, "trailing characters at line 1 column 8"),
            ("null", "it is no object at line 1 column 4"),
            ("[1]", "it is no object at line 1 column 0"),
            ("not json", "expected ident at line 1 column 2"),
            (r#"{"a":1,"a":2}"#, "a member is named twice at line 1 column 10"),
            (r#"{"a":{"b":1,"b":2}}"#, "a member is named twice at line 1 column 15"),
            (r#"{"a":1,}"#, "trailing comma at line 1 column 8"),
            (
                r#"{"a":{"\u0024serde_json::private::RawValue":"{}"}}"#,
                "a member has a name that hides what it holds at line 1 column 43",
            ),
            (r#"{"a":1e999}"#, "number out of range at line 1 column 10"),
            ("\"{}\"", "it is no object at line 1 column 4"),
        ] {
            assert_eq!(fault_of(wrong).as_deref(), Some(what), "{wrong}");
        }
    }
}
