//! JSON objects as a model wrote them, without leniency.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A JSON object, no member of which is named twice, at any level. What it holds is not kept.
#[derive(Debug)]
pub(crate) struct StrictObject;

impl<'de> Deserialize<'de> for StrictObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Strict { is_object: true }).map(|()| Self)
    }
}

struct StrictValue;

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Strict { is_object: false }).map(|()| Self)
    }
}

struct Strict {
    is_object: bool,
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
        while let Some(StrictValue) = list.next_element()? {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if !names.insert(name) {
                return Err(A::Error::custom("a member is named twice"));
            }
            members.next_value::<StrictValue>()?;
        }
        Ok(())
    }
}

/// Returns what is wrong with a text that should be a JSON object, and where; `None` if nothing is.
pub(crate) fn fault_of(text: &str) -> Option<String> {
    serde_json::from_str::<StrictObject>(text).err().map(|error| error.to_string())
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
            ("null", "invalid type: null, expected an object at line 1 column 4"),
            ("[1]", "invalid type: sequence, expected an object at line 1 column 0"),
            ("not json", "expected ident at line 1 column 2"),
            (r#"{"a":1,"a":2}"#, "a member is named twice at line 1 column 10"),
            (r#"{"a":{"b":1,"b":2}}"#, "a member is named twice at line 1 column 15"),
            (r#"{"a":1,}"#, "trailing comma at line 1 column 8"),
            (r#"{"a":1e999}"#, "number out of range at line 1 column 10"),
            ("\"{}\"", "invalid type: string \"{}\", expected an object at line 1 column 4"),
        ] {
            assert_eq!(fault_of(wrong).as_deref(), Some(what), "{wrong}");
        }
    }
}
