//! JSON kept as written: compacted once, when it is accepted, and byte-stable from then on.
//!
//! A `serde_json::Value` would change large numbers, and `#[serde(flatten)]` cannot carry raw values. Therefore
//! records and events are decoded by hand into typed fields, raw payloads, and ordered raw unknown fields.

use std::{fmt, io};

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::base::error::{Error, Result};
use crate::base::text::Text;

/// One JSON value as text: compact (no white space outside strings), otherwise exactly as it was given.
///
/// Numbers of any size, the order and repetition of keys, and escapes are preserved. The text is compact however the
/// value was made, also through serde, so it never contains a line break.
///
/// ```
/// use agent_core::json::RawJson;
///
/// let json = RawJson::parse("{ \"n\": 123456789012345678901234567890.10 }")?;
/// assert_eq!(json.get(), "{\"n\":123456789012345678901234567890.10}");
/// # Ok::<(), agent_core::Error>(())
/// ```
///
/// It does not decode inside types that serde buffers: an enum with `#[serde(tag = …)]` or `#[serde(untagged)]`, or a
/// field with `#[serde(flatten)]`. Decode such a value as `serde_json::Value` and convert it with [`RawJson::of`].
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Parses one JSON value and compacts it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the text is not one JSON value.
    pub fn parse(text: &str) -> Result<Self> {
        let not_json = |source: serde_json::Error| {
            let fault = JsonFault::from(source);
            Error::invalid(format!("the payload is not one JSON value: {fault}")).with_source(fault)
        };
        let raw: &RawValue = serde_json::from_str(text).map_err(not_json)?;
        Self::compacted(raw.to_owned()).map_err(not_json)
    }

    /// Returns the JSON of any serializable value.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the value has no JSON form (for example a map whose keys are not text).
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use agent_core::json::RawJson;
    ///
    /// let places = BTreeMap::from([("city", "Oslo"), ("country", "NO")]);
    /// let json = RawJson::of(&places)?;
    /// assert_eq!(json.get(), r#"{"city":"Oslo","country":"NO"}"#);
    /// assert!(RawJson::of(&BTreeMap::from([((1, 2), "a pair is no JSON key")])).is_err());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn of(value: &impl Serialize) -> Result<Self> {
        serde_json::value::to_raw_value(value).and_then(Self::compacted).map_err(|source| {
            let what = format!("a {} has no JSON form; give its maps keys that are text", type_of(value));
            Error::invalid(what).with_source(JsonFault::from(source))
        })
    }

    /// Returns the JSON of a value that always has a JSON form, like [`to_text`].
    ///
    /// # Panics
    ///
    /// Panics if the value contains a map whose keys are not text.
    #[expect(clippy::expect_used, reason = "each caller passes a type that has a JSON form")]
    pub fn sure(value: &impl Serialize) -> Self {
        Self::of(value).expect("text, numbers and maps with text keys have a JSON form")
    }

    /// Returns the JSON of a literal in the program.
    ///
    /// # Panics
    ///
    /// Panics if the text is not JSON.
    ///
    /// ```
    /// use agent_core::json::RawJson;
    ///
    /// let schema = RawJson::constant(r#"{ "type": "object" }"#);
    /// assert_eq!(schema.get(), r#"{"type":"object"}"#);
    /// ```
    #[expect(clippy::expect_used, reason = "the text is a literal, and a test that calls it has parsed it")]
    pub fn constant(text: &'static str) -> Self {
        Self::parse(text).expect("the literal is JSON")
    }

    /// Returns whether every number has the same value after it was read as a 64-bit integer or a double, as
    /// `serde_json::Value` reads it.
    ///
    /// ```
    /// use agent_core::json::RawJson;
    ///
    /// assert!(RawJson::parse(r#"{"a":1e5,"b":0.10}"#)?.has_plain_numbers());
    /// assert!(!RawJson::parse(r#"{"id":12345678901234567890123}"#)?.has_plain_numbers());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn has_plain_numbers(&self) -> bool {
        crate::base::number::are_kept(self.get())
    }

    /// Returns an empty object, `{}`.
    #[expect(clippy::expect_used, clippy::missing_panics_doc, reason = "it cannot fail")]
    pub fn empty_object() -> Self {
        // Parses the text once, unlike [`constant`](Self::constant), since every event without a payload calls this.
        Self(RawValue::from_string("{}".to_owned()).expect("an empty object is JSON"))
    }

    /// Returns the text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Maximum nesting depth of a stored payload, in levels of objects and lists.
    ///
    /// The limit leaves room for the JSON around the payload, so that every common reader accepts it: `serde_json`
    /// reads 127 levels, SQLite 1,000.
    pub const MAX_DEPTH: usize = 100;

    /// Returns the nesting depth of objects and lists: 0 for a text or a number, 1 for `[]`. Takes one pass over the
    /// text.
    pub fn depth(&self) -> usize {
        let (mut depth, mut deepest) = (0_usize, 0);
        for byte in outside_strings(self.get()) {
            match byte {
                b'{' | b'[' => {
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        deepest
    }

    /// Decodes the value as a type.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the value does not have that shape.
    ///
    /// ```
    /// use agent_core::json::RawJson;
    ///
    /// let json = RawJson::parse("[1, 2, 3]")?;
    /// assert_eq!(json.to::<Vec<u8>>()?, [1, 2, 3]);
    /// assert!(json.to::<String>().is_err());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn to<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.get()).map_err(|source| {
            let fault = JsonFault::from(source);
            Error::invalid(format!("the payload is not of the expected shape: {fault}")).with_source(fault)
        })
    }

    /// Wraps a value, with white space outside strings removed. A value decoded from a stored line is compact
    /// already.
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

/// Returns the JSON text of a value that always has one: text, numbers, parsed JSON, and maps with text keys.
///
/// # Panics
///
/// Panics if the value contains a map whose keys are not text.
///
/// ```
/// use agent_core::json::to_text;
///
/// assert_eq!(to_text(&("laptop", 3)), r#"["laptop",3]"#);
/// ```
#[expect(
    clippy::expect_used,
    reason = "each caller passes a type that has a JSON form; otherwise an empty text would be stored"
)]
pub fn to_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("text, numbers and maps with text keys have a JSON form")
}

/// Fault in a JSON text: its kind and its position, without any of the text.
///
/// serde's own error quotes what it found, and payloads never appear in errors.
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

/// Returns whether a field has its type's default value. Such a field is not written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Deserializes a field so that an explicit `null` differs from an absent field.
pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// Returns the name of a value's type, for an error that may not show the value.
fn type_of<T>(_: &T) -> &'static str {
    std::any::type_name::<T>()
}

/// Returns the length of a value as JSON, in bytes; for limits. Counts the bytes without storing them.
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
    !outside_strings(json).any(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
}

/// Returns the bytes of a JSON text that are in no string, without the quotes. Most of a payload is strings, and every event
/// that is read is checked.
fn outside_strings(json: &str) -> impl Iterator<Item = u8> {
    let mut rest = json.as_bytes();
    std::iter::from_fn(move || {
        while let Some(inside) = rest.strip_prefix(b"\"") {
            rest = after_string(inside);
        }
        let (first, others) = rest.split_first()?;
        rest = others;
        Some(*first)
    })
}

/// Returns what comes after the string that `text` is inside of.
fn after_string(mut text: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', text) {
        // The byte after a backslash is part of the string.
        if text[at] == b'"' {
            return &text[at + 1..];
        }
        text = text.get(at + 2..).unwrap_or_default();
    }
    &[]
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

/// Fields of a JSON object in their order, each value as raw JSON.
///
/// Used for metadata that the library stores and never interprets, and for fields of a record or an event that this
/// version does not know. Such fields are returned and written again unchanged.
///
/// ```
/// use agent_core::json::{RawFields, RawJson};
///
/// let mut fields = RawFields::new();
/// fields.insert("plan", RawJson::parse(r#"{ "id": 7 }"#)?);
/// fields.insert("tags", RawJson::of(&["a", "b"])?);
/// assert_eq!((fields.len(), fields.get("plan").unwrap().get()), (2, r#"{"id":7}"#));
/// assert_eq!(fields.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["plan", "tags"]);
/// assert!(fields.remove("plan").is_some() && !fields.is_empty());
/// assert_eq!(fields.size_bytes(), r#"{"tags":["a","b"]}"#.len());
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RawFields(Vec<(Box<str>, RawJson)>);

impl RawFields {
    /// Creates an object without fields.
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

    /// Returns the value of `name`.
    pub fn get(&self, name: &str) -> Option<&RawJson> {
        self.0.iter().find(|(key, _)| &**key == name).map(|(_, value)| value)
    }

    /// Sets `name`: replaces the value in place if the field exists, else appends the field.
    pub fn insert(&mut self, name: impl Into<Box<str>>, value: RawJson) {
        let name = name.into();
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some((_, slot)) => *slot = value,
            None => self.0.push((name, value)),
        }
    }

    /// Removes `name`, and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<RawJson> {
        let at = self.0.iter().position(|(key, _)| &**key == name)?;
        Some(self.0.remove(at).1)
    }

    /// Returns the fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawJson)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    /// Appends a field as it was read, without looking for an earlier one of that name.
    pub(crate) fn push(&mut self, name: &str, value: RawJson) {
        self.0.push((name.into(), value));
    }

    /// Returns the size of the fields as JSON text, in bytes; for limits.
    pub fn size_bytes(&self) -> usize {
        if self.is_empty() { "{}".len() } else { size_bytes(self) }
    }

    /// Removes the field `name` and decodes it as a `T`; `None` if the field is missing or `null`.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the value has another type.
    ///
    /// ```
    /// use agent_core::json::{RawFields, RawJson};
    ///
    /// let mut fields = RawFields::from_iter([("port", RawJson::constant("8080"))]);
    /// assert_eq!(fields.take::<u16>("port")?, Some(8080));
    /// assert_eq!(fields.take::<u16>("port")?, None);
    /// assert!(fields.need::<u16>("port").is_err());
    /// assert_eq!(fields.or_default::<u16>("port")?, 0);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<Option<T>> {
        let Some(raw) = self.remove(name) else { return Ok(None) };
        serde_json::from_str(raw.get()).map_err(|source| {
            let fault = JsonFault::from(source);
            Error::corrupt(format!("the field {name} is not of its type: {fault}")).with_source(fault)
        })
    }

    /// Checks that none of the fields that are left has a known name: a field that is there twice would be written again in
    /// place of the one that was taken.
    ///
    /// # Errors
    ///
    /// `Corrupt` for such a field.
    pub(crate) fn check_unknown(&self, known: &[&str]) -> Result<()> {
        match self.iter().find(|(name, _)| known.contains(name)) {
            Some((name, _)) => Err(Error::corrupt(format!("the field {name} is there twice"))),
            None => Ok(()),
        }
    }

    /// Removes and decodes a required field, like [`take`](Self::take).
    ///
    /// # Errors
    ///
    /// `Corrupt` if the value has another type or is missing.
    pub fn need<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<T> {
        self.take(name)?.ok_or_else(|| Error::corrupt(format!("the field {name} is missing")))
    }

    /// Removes and decodes a field, like [`take`](Self::take); returns the type's default if it is missing.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the value has another type.
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

/// Fields that every version of a document has.
#[derive(Deserialize)]
struct Head {
    format: u64,
    kind: String,
}

/// Checks that an exported document is of this kind and of one of these formats, as its fields `format` and `kind` give them.
/// The formats are in ascending order.
///
/// # Errors
///
/// `Corrupt` if the text is not such a document; `Unsupported` for another format or another kind.
///
/// ```
/// use agent_core::ErrorKind;
/// use agent_core::json::check_document;
///
/// let text = r#"{"format": 1, "kind": "session", "session": {}}"#;
/// check_document(text, "session", &[1, 2])?;
/// let error = check_document(text, "session", &[2]).unwrap_err();
/// assert_eq!(*error.kind(), ErrorKind::Unsupported);
/// # Ok::<(), agent_core::Error>(())
/// ```
pub fn check_document(text: &str, kind: &str, formats: &[u64]) -> Result<()> {
    let head: Head = serde_json::from_str(text).map_err(|source| {
        Error::corrupt(format!("the document is not an exported {kind}")).with_source(JsonFault::from(source))
    })?;
    let remedy = match formats {
        _ if head.kind != kind => "name another document",
        formats if formats.contains(&head.format) => return Ok(()),
        [.., newest] if head.format > *newest => "update the library",
        _ => "use the version that wrote it",
    };
    let read: Vec<_> = formats.iter().map(ToString::to_string).collect();
    Err(Error::unsupported(format!(
        "the document is a {:?} of format {}, and a {kind:?} of format {} is read here; {remedy}",
        head.kind.chars().take(32).collect::<String>(),
        head.format,
        read.join(" or ")
    )))
}

/// JSON form of a duration: whole milliseconds. For `#[serde(with = "millis")]`.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Compaction keeps every byte outside white space.
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
    fn deep_nesting_never_crashes() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        let _ = RawJson::parse(&deep).map(|json| json.to::<serde_json::Value>());
    }

    /// Texts of all lengths, with escapes at all places, are passed over to their ends.
    #[test]
    fn long_texts_hide_no_space_after_them() {
        for (before, after) in (0..40).flat_map(|before| (0..40).map(move |after| (before, after))) {
            for (escape, rest) in
                [("", ""), ("\\\"", ""), ("\\\\", ""), (" ", ""), ("\\\"", ",  1"), ("\\\\", ", \" \"")]
            {
                let (before, after) = ("x".repeat(before), " ".repeat(after));
                let text = format!("[\"{before}{escape}{after}\"{rest}]");
                assert_eq!(is_compact(&text), compact(&text) == text, "{text}");
                assert_eq!(is_compact(&text), rest.is_empty(), "{text}");
            }
        }
    }

    /// JSON that was stored with white space is compacted when it is read; compact JSON stays as it is.
    #[test]
    fn only_whitespace_outside_strings_is_removed() {
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

    /// A fault in JSON names a position and quotes nothing; the size of fields is that of their stored text.
    #[test]
    fn json_error_gives_the_position_but_no_content() {
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
