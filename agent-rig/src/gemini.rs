//! Gemini's API as rig writes and reads it, with three changes. The key is sent in a header, calls without ids get
//! none, and a text with a signature is not joined with the texts behind it.

use std::borrow::Cow;
use std::collections::HashSet;

use rig_core::completion::CompletionRequest;
use rig_core::driver::Model;
use rig_core::error::{EncodeError, ProviderError};
use rig_core::message::{AssistantContent, Message};
use rig_core::operation::Completion;
use rig_core::providers::gemini::completion::GenerateContent;
use rig_core::providers::gemini::streaming::{GenerateContentChunk, GenerateContentDecoder};
use rig_core::wire::{
    Body, Decoder, Descriptor, Encoded, Flow, Mode, Out, Secret, Wire, WireEvent, WireFrame,
};
use serde_json::Value;

/// Name of the API in rig's origins.
pub(crate) const API: &str = "gemini.generate_content";

/// Header of the key, as in Google's [reference](https://ai.google.dev/api#authentication).
const KEY_HEADER: &str = "x-goog-api-key";

/// What stands for the signature of a text without one, so that rig begins a part with it. It is no base64: no signature of
/// the provider is like it, and rig never sends it.
const UNSIGNED: &str = "not signed";

/// Field of a part with its signature.
const SIGNATURE: &str = "thoughtSignature";

/// Returns the model of rig with this wire.
pub(crate) fn model<T>(of_rig: Model<GenerateContent, T>) -> Model<Gemini, T> {
    let Model { mut wire, transport } = of_rig;
    let key = std::mem::take(&mut wire.provider.api_key);
    Model { wire: Gemini { of_rig: wire, key }, transport }
}

/// Wire of `generateContent`.
#[derive(Clone, Debug)]
pub(crate) struct Gemini {
    /// Wire of rig, without a key.
    of_rig: GenerateContent,
    key: Secret,
}

impl Wire for Gemini {
    type Op = Completion;
    type Payload = Encoded;
    type Frame = WireFrame;
    type Decoder<'id> = Parts;
    type Reassembler = <GenerateContent as Wire>::Reassembler;

    fn describe(&self) -> Descriptor<'_> {
        self.of_rig.describe()
    }

    fn encode(&self, request: CompletionRequest, mode: Mode) -> Result<Encoded, EncodeError> {
        let unnamed = unnamed(&request);
        let mut encoded = self.of_rig.encode(request, mode)?;
        let address = encoded.request.uri().to_string();
        let without_key = address.strip_suffix("key=").map_or(&*address, |rest| &rest[..rest.len() - 1]);
        *encoded.request.uri_mut() = without_key.parse().map_err(EncodeError::request)?;
        let key = self
            .key
            .expose()
            .parse()
            .map_err(|_| EncodeError::request("the key has a character that no header has"))?;
        encoded.request.headers_mut().entry(KEY_HEADER).or_insert(key).set_sensitive(true);
        if !unnamed.is_empty()
            && let Body::Bytes(body) = encoded.request.body_mut()
        {
            let mut content = serde_json::from_slice(body).map_err(EncodeError::request)?;
            remove_ids(&mut content, &unnamed);
            *body = content.to_string().into_bytes();
        }
        Ok(encoded)
    }

    fn decoder<'id>(&self) -> Self::Decoder<'id> {
        Parts::default()
    }
}

/// Returns the ids of the calls that came without one: their items have none.
fn unnamed(request: &CompletionRequest) -> HashSet<String> {
    let turns = request.chat_history.iter().filter_map(|message| match message {
        Message::Assistant(turn) => Some(&turn.content),
        _ => None,
    });
    let calls = turns.flatten().filter_map(|block| match (block, block.native_item()) {
        (AssistantContent::ToolCall(call), Some(item)) => Some((call, item)),
        _ => None,
    });
    let unnamed = calls.filter(|(_, item)| item["functionCall"]["id"].is_null());
    unnamed.map(|(call, _)| call.id.wire().into_owned()).collect()
}

/// Removes the ids of these calls, and of their results, which Gemini finds by their name and order then.
fn remove_ids(body: &mut Value, unnamed: &HashSet<String>) {
    let contents = body.get_mut("contents").and_then(Value::as_array_mut);
    let parts = contents.into_iter().flatten().filter_map(|content| content.get_mut("parts")?.as_array_mut());
    for part in parts.flatten().filter_map(Value::as_object_mut) {
        for kind in ["functionCall", "functionResponse"] {
            if let Some(named) = part.get_mut(kind).and_then(Value::as_object_mut)
                && named.get("id").and_then(Value::as_str).is_some_and(|id| unnamed.contains(id))
            {
                named.shift_remove("id");
            }
        }
    }
}

/// Decoder of one answer.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    of_rig: GenerateContentDecoder,
    /// Whether the last part was a text, or a thought, with a signature; and which of the two.
    signed: Option<bool>,
}

impl<'id> Decoder<'id, Completion> for Parts {
    type Event = GenerateContentChunk;

    fn classify(&self, frame: WireFrame) -> WireEvent<GenerateContentChunk> {
        self.of_rig.classify(frame)
    }

    fn decode(
        &mut self,
        GenerateContentChunk(mut chunk): GenerateContentChunk,
        out: Out<'id, Completion>,
    ) -> Result<Flow, ProviderError> {
        let candidate = chunk.get_mut("candidates").and_then(|candidates| candidates.get_mut(0));
        let parts =
            candidate.and_then(|candidate| candidate.get_mut("content")?.get_mut("parts")?.as_array_mut());
        parts.into_iter().flatten().for_each(|part| self.separate(part));
        self.of_rig.decode(GenerateContentChunk(chunk), out)
    }

    fn eof(&mut self, out: Out<'id, Completion>) -> Result<Flow, ProviderError> {
        self.of_rig.eof(out)
    }
}

impl Parts {
    /// Marks a text without a signature behind one of the same kind that has one: rig joins no two texts with signatures.
    fn separate(&mut self, part: &mut Value) {
        let is_thought = part["thought"] == true;
        let text = part["text"].as_str().map(str::len);
        let is_signed = part[SIGNATURE].as_str().is_some_and(|signature| !signature.is_empty());
        match (text, is_signed) {
            // rig leaves out a part with nothing in it.
            (Some(0), false) => {}
            (Some(_), true) => self.signed = Some(is_thought),
            (Some(_), false) => {
                if self.signed.take() == Some(is_thought) {
                    part[SIGNATURE] = Value::from(UNSIGNED);
                }
            }
            // A signature alone belongs to the part before it.
            (None, true)
                if part.as_object().is_some_and(|part| part.len() <= 1 + usize::from(is_thought)) => {}
            (None, _) => self.signed = None,
        }
    }
}

/// Removes the mark of a text without a signature from its item.
pub(crate) fn without_mark(item: &Value) -> Cow<'_, Value> {
    if item[SIGNATURE] != UNSIGNED {
        return Cow::Borrowed(item);
    }
    let mut item = item.clone();
    if let Some(part) = item.as_object_mut() {
        part.shift_remove(SIGNATURE);
    }
    Cow::Owned(item)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
    use serde_json::json;

    use super::*;

    /// A mark is like no signature, stands at the first unsigned text behind a signed one of its kind, and leaves no trace.
    #[test]
    fn unsigned_texts_behind_signed_ones_are_marked() {
        assert!(
            [STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD]
                .iter()
                .all(|base64| base64.decode(UNSIGNED).is_err())
        );
        let text = |text: &str| json!({ "text": text });
        let thought = |text: &str| json!({ "text": text, "thought": true });
        let signed = |mut part: Value| {
            part[SIGNATURE] = json!("EpEi");
            part
        };
        let alone = json!({ SIGNATURE: "EpEi" });
        let call = json!({ "functionCall": { "name": "look", "args": {} } });
        for (parts, marked) in [
            (vec![signed(text("a")), text("b"), text("c")], vec![1]),
            (vec![text("a"), signed(text("b")), text(""), text("c")], vec![3]),
            (vec![signed(thought("a")), text("b")], vec![]),
            (vec![signed(thought("a")), thought("b"), signed(text("c")), text("d")], vec![1, 3]),
            (vec![signed(text("a")), call, text("b")], vec![]),
            (vec![signed(text("a")), alone, text("b")], vec![2]),
        ] {
            let (mut decoder, mut sent) = (Parts::default(), parts.clone());
            sent.iter_mut().for_each(|part| decoder.separate(part));
            let found = (0..sent.len()).filter(|at| sent[*at][SIGNATURE] == UNSIGNED);
            assert_eq!(found.collect::<Vec<_>>(), marked, "{parts:?}");
            assert!(sent.iter().map(without_mark).eq(parts.iter().map(Cow::Borrowed)), "{sent:?}");
        }
    }
}
