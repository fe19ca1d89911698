//! Messages that are nearly JSON: texts with half a character are read. An answer that cannot be read fails its
//! request, which otherwise would get none.

use std::fmt;
use std::mem;

use agent_core::text::with_whole_characters;
use rmcp::model::ServerJsonRpcMessage;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

/// Code of the error in place of an answer that cannot be read.
const UNREADABLE_CODE: i32 = -32_700;
/// Data of that error, by which it differs from one that a server sends.
const UNREADABLE: &str = "agent-mcp: the answer cannot be read";
/// Maximum number of values in a message: read, each takes up to a few hundred bytes of memory.
const VALUES_MAX: usize = 500_000;
/// Beginning of names that mean something to serde_json itself.
const PRIVATE: &str = "$serde_json::private::";
/// Mark at the beginning of a text, which readers of JSON may skip.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Reader of bytes that should be UTF-8 and come in pieces. Each byte that is none becomes U+FFFD.
#[derive(Debug, Default)]
pub(crate) struct Utf8 {
    /// Beginning of a character, at the end of the last piece.
    tail: Vec<u8>,
}

impl Utf8 {
    /// Takes a piece, and returns the whole characters so far.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        self.tail.extend_from_slice(piece);
        // The last character may go on in the next piece.
        let last = self.tail.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
        let is_cut = str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
        let whole = self.tail.len() - if is_cut { last.len() } else { 0 };
        let tail = self.tail.split_off(whole);
        let whole = mem::replace(&mut self.tail, tail);
        String::from_utf8_lossy(&whole).into_owned().into_bytes()
    }
}

/// Message that can be read, or is ignored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mended {
    pub(crate) text: Vec<u8>,
    /// True if it is a request, which is answered.
    pub(crate) is_request: bool,
}

/// Mends a message: bytes that are no UTF-8, and halves of surrogate pairs, become U+FFFD. An answer that is no JSON even
/// so, has too many values, hides JSON in a text, or is an error of a wrong form, becomes an error for its request. Anything
/// else that cannot be read stays as it is if it is no JSON, and else becomes nothing.
pub(crate) fn mended(message: &[u8]) -> Mended {
    let text = with_whole_characters(message).0.into_bytes();
    let mut seen = Seen::default();
    let whole = text.strip_prefix(BOM).unwrap_or(&text);
    let mut json = serde_json::Deserializer::from_slice(whole);
    let read = seen.deserialize(&mut json).and_then(|()| json.end());
    // Of an error, the protocol crate reads nothing if its form is wrong; everything is a result.
    let is_wrong =
        seen.has_error && !seen.has_method && serde_json::from_slice::<ServerJsonRpcMessage>(whole).is_err();
    if read.is_ok() && !is_wrong {
        return Mended { text, is_request: seen.has_id && seen.has_method };
    }
    let text = match answered(&text) {
        Some(id) => unreadable(&id),
        None if seen.values > VALUES_MAX || seen.hides_json => Vec::new(),
        None => text,
    };
    Mended { text, is_request: false }
}

/// What was seen of a message while it was read, and not kept.
#[derive(Default)]
struct Seen {
    values: usize,
    depth: usize,
    /// Whether the message itself has these members.
    has_id: bool,
    has_method: bool,
    has_error: bool,
    hides_json: bool,
}

impl<'de> DeserializeSeed<'de> for &mut Seen {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(D::Error::custom("too many values"));
        }
        // Unlike values that are ignored, these are checked for numbers that no reader takes.
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Seen {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.depth += 1;
        while items.next_element_seed(&mut *self)?.is_some() {}
        self.depth -= 1;
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        self.depth += 1;
        while let Some(name) = members.next_key::<std::borrow::Cow<'de, str>>()? {
            // Below it serde_json reads a text as JSON, whose values nobody has counted.
            if name.starts_with(PRIVATE) {
                self.hides_json = true;
                return Err(A::Error::custom("a member hides JSON in a text"));
            }
            self.has_id |= self.depth == 1 && name == "id";
            self.has_method |= self.depth == 1 && name == "method";
            self.has_error |= self.depth == 1 && name == "error";
            members.next_value_seed(&mut *self)?;
        }
        self.depth -= 1;
        Ok(())
    }
}

/// Returns the message that fails a request whose answer cannot be read.
pub(crate) fn unreadable(id: &Value) -> Vec<u8> {
    let error =
        json!({"code": UNREADABLE_CODE, "message": "the answer is no valid JSON", "data": UNREADABLE});
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string().into_bytes()
}

/// Returns whether an error stands for an answer that cannot be read.
pub(crate) fn is_unreadable(code: i32, data: Option<&Value>) -> bool {
    code == UNREADABLE_CODE && data.and_then(Value::as_str) == Some(UNREADABLE)
}

/// Returns the id of the request that a broken message answers; `None` if it seems to be no answer.
fn answered(message: &[u8]) -> Option<Value> {
    let (mut id, mut is_answer) = (None, false);
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(byte) = message.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let start = at + 1;
                at = end_of_text(message, start);
                let after = message.get(at + 1..).unwrap_or_default().trim_ascii_start();
                if let (1, Some(value)) = (depth, after.strip_prefix(b":")) {
                    match &message[start..at.min(message.len())] {
                        b"id" => id = serde_json::Deserializer::from_slice(value).into_iter().next(),
                        b"result" | b"error" => is_answer = true,
                        b"method" => return None,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        at += 1;
    }
    id.and_then(Result::ok).filter(|id: &Value| is_answer && (id.is_number() || id.is_string()))
}

/// Returns the position of the quotation mark at which a text ends.
fn end_of_text(message: &[u8], start: usize) -> usize {
    let mut at = start;
    loop {
        match message.get(at) {
            Some(b'\\') => at += 2,
            Some(b'"') | None => return at,
            Some(_) => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(message: &[u8]) -> String {
        String::from_utf8(mended(message).text).unwrap()
    }

    #[test]
    fn answers_that_are_no_json_fail_their_request() {
        for broken in [
            r#"{"jsonrpc":"2.0","id":7,"result":{"n":NaN}}"#.to_owned(),
            r#"{"result":{"n":1e400,"id":9,"method":"x"},"jsonrpc":"2.0","id":7}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":7,"error":"no such city"}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":"none"}}"#.to_owned(),
            format!(r#"{{"id" : 7,"result":{}1{}}}"#, "[".repeat(200), "]".repeat(200)),
        ] {
            let answer: Value = serde_json::from_slice(&mended(broken.as_bytes()).text).unwrap();
            assert_eq!(answer["id"], 7, "{broken}");
            assert!(is_unreadable(
                answer["error"]["code"].as_i64().unwrap() as i32,
                answer["error"].get("data")
            ));
        }
        for other in [
            r#"{"id":7,"method":"ping","params":{"result":NaN}}"#,
            r#"{"id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no such city"}}"#,
            r#"{"id":{},"result":NaN}"#,
            r#"{"id":"#,
            "no message",
            r#"["id",7,"result",NaN]"#,
        ] {
            assert_eq!(text(other.as_bytes()), other);
        }
    }

    #[test]
    fn a_message_with_too_many_values_is_not_read() {
        let many = |before: &str| format!("{before}[{}1]}}", "1,".repeat(VALUES_MAX));
        let answer: Value = serde_json::from_str(&text(many(r#"{"id":7,"result":"#).as_bytes())).unwrap();
        assert_eq!((&answer["id"], answer["error"].is_object()), (&json!(7), true));
        assert_eq!(text(many(r#"{"method":"notifications/x","params":"#).as_bytes()), "");
    }

    #[test]
    fn values_that_are_hidden_in_a_text_are_not_read() {
        for name in ["$serde_json::private::RawValue", "\\u0024serde_json::private::RawValue"] {
            let hides = |before: &str| format!(r#"{before}{{"{name}":"[1,2]"}}}}"#);
            let answer: Value =
                serde_json::from_str(&text(hides(r#"{"id":7,"result":"#).as_bytes())).unwrap();
            assert_eq!((&answer["id"], answer["error"].is_object()), (&json!(7), true));
            assert_eq!(text(hides(r#"{"method":"notifications/x","params":"#).as_bytes()), "");
        }
    }

    #[test]
    fn requests_are_recognized() {
        for (message, want) in [
            (r#"{"method":"ping","id":1}"#, true),
            ("\u{feff}{\"id\":null,\"method\":7}", true),
            (r#"{"method":"notifications/x","params":{"id":1}}"#, false),
            (r#"{"id":1,"result":{"method":"x"}}"#, false),
            (r#"[{"id":1,"method":"x"}]"#, false),
        ] {
            assert_eq!(mended(message.as_bytes()), Mended { text: message.into(), is_request: want });
        }
    }

    #[test]
    fn characters_may_be_cut_anywhere() {
        let whole = "a\u{e9}\u{1f600}b".as_bytes();
        for at in 0..whole.len() {
            let mut reader = Utf8::default();
            let mut read = reader.push(&whole[..at]);
            read.extend(reader.push(&whole[at..]));
            assert_eq!(read, whole, "{at}");
        }
        let mut reader = Utf8::default();
        let read = [reader.push(b"a\xff"), reader.push(b"\xe2\x82"), reader.push(b"b")].concat();
        assert_eq!(String::from_utf8(read).unwrap(), "a\u{fffd}\u{fffd}b");
    }
}
