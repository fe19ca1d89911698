//! JSON kept as it was written: compacted once, when accepted, and byte-stable from then on.
//!
//! A `serde_json::Value` would change large numbers, and `#[serde(flatten)]` cannot carry raw values; so records and
//! events are decoded by hand into typed fields, raw payloads and ordered, raw unknown fields.

use std::{fmt, io};

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::text::Text;

/// One JSON value as text: compact (no white space outside strings), otherwise exactly as it was given.
///
/// Numbers of any size, the order and repetition of keys, and escapes are preserved. It is compact whichever way it was
/// made, serde's included, so that it never holds a line break.
///
/// ```
/// use agent_core::json::RawJson;
///
/// let json = RawJson::parse("{ \"n\": 123456789012345678901234567890.10 }")?;
/// assert_eq!(json.get(), "{\"n\":123456789012345678901234567890.10}");
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Accepts one JSON value and compacts it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the text is not one JSON value.
    pub fn parse(text: &str) -> Result<Self> {
        let not_json = |source: serde_json::Error| {
            let fault = JsonFault::from(source);
            Error::invalid(format!("the payload is not one JSON value: {fault}")).with_source(fault)
        };
        let raw: &RawValue = serde_json::from_str(text).map_err(not_json)?;
        Self::compacted(raw.to_owned()).map_err(not_json)
    }

    /// The JSON of any serializable value.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where the value has no JSON form (a map with keys that are not text, say).
    pub fn of(value: &impl Serialize) -> Result<Self> {
        serde_json::value::to_raw_value(value).and_then(Self::compacted).map_err(|source| {
            let what = format!("a {} has no JSON form; give its maps keys that are text", type_of(value));
            Error::invalid(what).with_source(JsonFault::from(source))
        })
    }

    /// The JSON of a value that cannot fail to have one, as [`to_text`] has it.
    ///
    /// # Panics
    ///
    /// If the value has a map with keys that are no text.
    #[expect(clippy::expect_used, reason = "whoever calls this knows the type")]
    pub fn sure(value: &impl Serialize) -> Self {
        Self::of(value).expect("text, numbers and maps with text keys have a JSON form")
    }

    /// JSON that stands in the program.
    ///
    /// # Panics
    ///
    /// If it is no JSON.
    #[expect(clippy::expect_used, reason = "it stands in the program, and a test that calls it has seen it")]
    pub fn constant(text: &'static str) -> Self {
        Self::parse(text).expect("JSON that stands in the program")
    }

    /// An empty object, `{}`.
    #[expect(clippy::expect_used, clippy::missing_panics_doc, reason = "it cannot fail")]
    pub fn empty_object() -> Self {
        // As [`constant`](Self::constant) has it, but it is made for every event without a payload: nothing is parsed twice.
        Self(RawValue::from_string("{}".to_owned()).expect("an empty object is JSON"))
    }

    /// The text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The most levels of objects and lists of a payload that is stored: so few that, with what stands around it, every
    /// common reader of JSON takes it. `serde_json` reads 127 levels, SQLite 1,000.
    pub const MAX_DEPTH: usize = 100;

    /// Returns how many levels of objects and lists lie within each other: 0 for a text or a number, 1 for `[]`. One pass
    /// over the text.
    ///
    /// ```
    /// use agent_core::json::RawJson;
    ///
    /// assert_eq!(RawJson::parse("{\"a\":[[1],2]}")?.depth(), 3);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn depth(&self) -> usize {
        let (mut depth, mut deepest) = (0_usize, 0);
        let (mut in_string, mut escaped) = (false, false);
        for byte in self.get().bytes() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                b'{' | b'[' if !in_string => {
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        deepest
    }

    /// Reads the value as a type.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it is not of that shape.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.get()).map_err(|source| {
            let fault = JsonFault::from(source);
            Error::invalid(format!("the payload is not of the expected shape: {fault}")).with_source(fault)
        })
    }

    /// A value with white space outside strings removed; one that was decoded from a stored line is compact already.
    fn compacted(raw: Box<RawValue>) -> serde_json::Result<Self> {
        if is_compact(raw.get()) {
            return Ok(Self(raw));
        }
        RawValue::from_string(compact(raw.get())).map(Self)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::compacted(raw).map_err(serde::de::Error::custom)
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawJson {}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

/// The JSON text of a value that cannot fail to have one: of text, numbers, JSON that was read, and maps with text keys.
///
/// # Panics
///
/// If the value has a map with keys that are no text.
#[expect(
    clippy::expect_used,
    reason = "whoever calls this knows the type; an empty text would be stored in its place"
)]
pub fn to_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("text, numbers and maps with text keys have a JSON form")
}

/// A fault in a JSON text: its kind and its place, without a word of it: serde's own error quotes what it found, and
/// payloads never appear in errors.
#[derive(Debug)]
pub struct JsonFault {
    what: serde_json::error::Category,
    line: usize,
    column: usize,
}

impl From<serde_json::Error> for JsonFault {
    fn from(error: serde_json::Error) -> Self {
        Self { what: error.classify(), line: error.line(), column: error.column() }
    }
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use serde_json::error::Category;

        let what = match self.what {
            Category::Io => "JSON that cannot be read,",
            Category::Syntax => "invalid JSON",
            Category::Data => "a value is missing or of another type,",
            Category::Eof => "the JSON ends too early,",
        };
        write!(f, "{what} at byte {} of line {}", self.column, self.line)
    }
}

impl std::error::Error for JsonFault {}

/// Whether a field has its type's default, and is left out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Tells a field that is there and `null` from one that is not there.
pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// The name of a value's type, for an error that may not show the value.
fn type_of<T>(_: &T) -> &'static str {
    std::any::type_name::<T>()
}

/// How long a value is as JSON; for limits. It is counted, not kept.
pub(crate) fn size_bytes(value: &impl Serialize) -> usize {
    struct Counted(usize);
    impl io::Write for Counted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counted = Counted(0);
    serde_json::to_writer(&mut counted, value).map_or(usize::MAX, |()| counted.0)
}

fn is_compact(json: &str) -> bool {
    let mut in_string = false;
    let mut escaped = false;
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b' ' | b'\t' | b'\n' | b'\r' if !in_string => return false,
            _ => {}
        }
    }
    true
}

fn compact(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in json.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            ' ' | '\t' | '\n' | '\r' if !in_string => continue,
            _ => {}
        }
        out.push(c);
    }
    out
}

/// The fields of a JSON object in their order, each value as raw JSON.
///
/// Used for metadata that the library stores and never interprets, and for the fields of a record or an event that
/// this version does not know: they are handed back and written again as they were.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RawFields(Vec<(Box<str>, RawJson)>);

impl RawFields {
    /// No fields.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&RawJson> {
        self.0.iter().find(|(key, _)| &**key == name).map(|(_, value)| value)
    }

    /// Sets `name`, in its place where it exists, else at the end.
    pub fn insert(&mut self, name: impl Into<Box<str>>, value: RawJson) {
        let name = name.into();
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some((_, slot)) => *slot = value,
            None => self.0.push((name, value)),
        }
    }

    /// Removes `name`, and returns what it was.
    pub fn remove(&mut self, name: &str) -> Option<RawJson> {
        let at = self.0.iter().position(|(key, _)| &**key == name)?;
        Some(self.0.remove(at).1)
    }

    /// The fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawJson)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    /// Appends a field as it was read, without looking for an earlier one of that name.
    pub(crate) fn push(&mut self, name: &str, value: RawJson) {
        self.0.push((name.into(), value));
    }

    /// The size of the fields as JSON text; for limits.
    pub fn size_bytes(&self) -> usize {
        if self.is_empty() { "{}".len() } else { size_bytes(self) }
    }

    /// Takes the field `name` as a `T`; a field that is missing or `null` gives `None`.
    ///
    /// # Errors
    ///
    /// `Corrupt` for a value of another type.
    pub fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<Option<T>> {
        let Some(raw) = self.remove(name) else { return Ok(None) };
        serde_json::from_str(raw.get()).map_err(|source| {
            let fault = JsonFault::from(source);
            Error::corrupt(format!("the field {name} is not of its type: {fault}")).with_source(fault)
        })
    }

    /// As [`take`](Self::take), for a field that must be there.
    ///
    /// # Errors
    ///
    /// `Corrupt` for a value of another type, and where it is missing.
    pub fn need<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<T> {
        self.take(name)?.ok_or_else(|| Error::corrupt(format!("the field {name} is missing")))
    }

    /// As [`take`](Self::take), with the type's default where it is missing.
    ///
    /// # Errors
    ///
    /// `Corrupt` for a value of another type.
    pub fn or_default<T: DeserializeOwned + Default>(&mut self, name: &'static str) -> Result<T> {
        Ok(self.take(name)?.unwrap_or_default())
    }
}

impl fmt::Debug for RawFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Into<Box<str>>> FromIterator<(K, RawJson)> for RawFields {
    fn from_iter<I: IntoIterator<Item = (K, RawJson)>>(fields: I) -> Self {
        let mut out = Self::new();
        for (key, value) in fields {
            out.insert(key, value);
        }
        out
    }
}

impl Serialize for RawFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.iter() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for RawFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = RawFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawFields, A::Error> {
                let mut fields = RawFields::new();
                while let Some((key, value)) = map.next_entry::<Text<'de>, RawJson>()? {
                    fields.push(&key.0, value);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// What every version of a document says of itself.
#[derive(Deserialize)]
struct Head {
    format: u64,
    kind: String,
}

/// The format of an exported document of this kind, which says both in its fields `format` and `kind`.
///
/// # Errors
///
/// `Corrupt` if the text is no such document; `Unsupported` for a format newer than `newest`, and for another kind.
pub fn check_document(text: &str, kind: &str, newest: u64) -> Result<u64> {
    let head: Head = serde_json::from_str(text).map_err(|source| {
        Error::corrupt(format!("the document is no {kind} that was exported"))
            .with_source(JsonFault::from(source))
    })?;
    if head.format > newest || head.kind != kind {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the document is a {:?} of format {}; this version reads a {kind:?} of format {newest}",
                head.kind.chars().take(32).collect::<String>(),
                head.format
            ),
        ));
    }
    Ok(head.format)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is compacted keeps every byte that means something.
    #[test]
    fn numbers_escapes_and_order_survive() {
        let text = "{ \"b\" : 1e400,\n\"a\": [ 12345678901234567890123 , -0.0, \"x \\\" \\\\ \\u0000 \\ud83d\\ude00\" ] , \"b\":2 }";
        let json = RawJson::parse(text).unwrap();
        assert_eq!(
            json.get(),
            "{\"b\":1e400,\"a\":[12345678901234567890123,-0.0,\"x \\\" \\\\ \\u0000 \\ud83d\\ude00\"],\"b\":2}"
        );
        assert_eq!(RawJson::parse(json.get()).unwrap(), json, "compacting twice changes nothing");
        for bad in ["", "{", "1 2", "{\"a\":\n", "nan"] {
            assert!(RawJson::parse(bad).is_err(), "{bad:?}");
        }
    }

    /// Depth is no way to bring the process down.
    #[test]
    fn deep_nesting_is_accepted_or_refused_but_never_a_crash() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        let _ = RawJson::parse(&deep).map(|json| json.to::<serde_json::Value>());
    }

    /// What was stored with white space is compacted when it is read, and what is compact stays as it is.
    #[test]
    fn white_space_outside_strings_goes_and_nothing_else() {
        for (text, compact) in [
            ("1", "1"),
            (" 1", "1"),
            ("[1,\t2]", "[1,2]"),
            ("[1,\r\n2]", "[1,2]"),
            ("\"a b\"", "\"a b\""),
            ("\"\\\" a\"", "\"\\\" a\""),
            ("[\"\\\" a\", 1]", "[\"\\\" a\",1]"),
            ("[\"\\\"\", 1]", "[\"\\\"\",1]"),
            ("[\"\\\\\", \" \"]", "[\"\\\\\",\" \"]"),
            ("{\"a\":\"b c\", \"d\" :1}", "{\"a\":\"b c\",\"d\":1}"),
        ] {
            let stored: RawJson = serde_json::from_str(text).unwrap();
            assert_eq!(stored.get(), compact, "{text}");
            let held = RawJson::of(&[&RawValue::from_string(text.to_owned()).unwrap()]).unwrap();
            assert_eq!(held.get(), format!("[{compact}]"), "{text}");
            let fields: RawFields = serde_json::from_str(&format!("{{\n\"a\" :\t{text}}}")).unwrap();
            assert_eq!(fields.get("a").unwrap().get(), compact, "{text}");
            assert_eq!(RawJson::parse(text).unwrap().get(), compact, "{text}");
        }
    }

    /// What is wrong with a text is told by its place, without a word of it; how large fields are, as they are stored.
    #[test]
    fn a_fault_tells_where_and_not_what() {
        let error = RawJson::parse("{\"secret\":\n sesame}").unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, "invalid JSON at byte 2 of line 2");
        let fields: RawFields = [("a", "1"), ("b\n", "[2,3]"), ("a", "4")]
            .map(|(name, value)| (name, RawJson::parse(value).unwrap()))
            .into_iter()
            .collect();
        let json = serde_json::to_string(&fields).unwrap();
        assert_eq!(json, "{\"a\":4,\"b\\n\":[2,3]}");
        assert_eq!((fields.size_bytes(), fields.len(), fields.is_empty()), (json.len(), 2, false));
        assert!(RawJson::parse("1").unwrap() != RawJson::parse("2").unwrap());
    }

    proptest! {
        /// Any JSON text of ours reads back as the same text.
        #[test]
        fn any_text_round_trips(text in any::<String>(), number in any::<f64>()) {
            let json = RawJson::of(&(&text, number)).unwrap();
            prop_assert!(!json.get().contains('\n'));
            prop_assert_eq!(&RawJson::parse(json.get()).unwrap(), &json);
            let (back, _): (String, Option<f64>) = json.to().unwrap();
            prop_assert_eq!(back, text);
        }
    }
}
