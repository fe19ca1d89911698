//! Signatures of a scripted model: each covers the model, the account and everything that was sent before it.

use sha2::{Digest, Sha256};

use crate::context::{AgentItem, ItemContent, ModelMessage};
use crate::model::event::{ModelCall, ModelEvent, ModelPart, PartKind};
use crate::model::hex;
use crate::model::provider::ModelRequest;
use agent_core::event::{ModelOrigin, Native, Part};
use agent_core::json::RawJson;
use serde::{Deserialize, Serialize};

/// Name of the API of a scripted model.
pub(crate) const API: &str = "scripted.messages";

/// Signed item, as a scripted model gives it.
#[derive(Debug, Serialize, Deserialize)]
struct SignedItem {
    #[serde(rename = "type")]
    kind: String,
    /// Number of the signed item in its answer, from 0.
    n: usize,
    signature: String,
    /// What the item says: the text of reasoning, or the id, the name and the input of a call.
    said: RawJson,
}

/// Item that a scripted model signs.
#[derive(Clone, Debug)]
pub(crate) enum Unsigned {
    Thinking(String),
    Call(ModelCall),
}

impl Unsigned {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Thinking(_) => "thinking",
            Self::Call(_) => "tool_use",
        }
    }

    fn said(&self) -> RawJson {
        match self {
            Self::Thinking(text) => RawJson::sure(text),
            Self::Call(call) => RawJson::sure(&(&call.id, &call.name, &call.input)),
        }
    }

    /// Returns the events of the item, signed. `index` is the number of the part, `n` that of the signed item.
    pub(crate) fn events(self, before: &Sha256, index: u32, n: usize) -> Vec<ModelEvent> {
        let said = self.said();
        let signature = sign(before, self.kind(), n, &said);
        let item = SignedItem { kind: self.kind().to_owned(), n, signature, said };
        let native = Native::new(API, RawJson::sure(&item));
        let (kind, delta, part) = match self {
            Self::Thinking(text) => (PartKind::Reasoning, text.clone(), ModelPart::reasoning(text)),
            Self::Call(call) => (PartKind::Call, call.input.get().to_owned(), ModelPart::call(call)),
        };
        vec![
            ModelEvent::part_started(index, kind),
            ModelEvent::delta(index, delta),
            ModelEvent::part_done(index, part.with_native(native)),
        ]
    }
}

/// Checks the signatures in a request, as the server of a signing model does. Returns the hash of all that was sent.
///
/// # Errors
///
/// Says which item is wrong: changed, moved, without an earlier one, or behind something else than it was made behind.
pub(crate) fn verify(origin: &ModelOrigin, request: &ModelRequest) -> Result<Sha256, String> {
    let mut sent = Sha256::new();
    add(&mut sent, "origin", RawJson::sure(origin).get());
    add(&mut sent, "system", request.system.as_deref().unwrap_or_default());
    for tool in &request.tools {
        add(&mut sent, &tool.name, &format!("{}\n{}", tool.description, tool.input.get()));
    }
    for (at, message) in request.messages.iter().enumerate() {
        if let ModelMessage::Agent(said) = message {
            let signed = said.items.iter().filter(|item| item.native.is_some());
            for (n, item) in signed.enumerate() {
                check(&sent, n, item).map_err(|what| format!("message {at}: signed item {n} {what}"))?;
            }
        }
        message_to(&mut sent, message);
    }
    Ok(sent)
}

fn check(before: &Sha256, n: usize, item: &AgentItem) -> Result<(), String> {
    let native = item.native.as_ref().filter(|native| native.api == API).ok_or("is of another API")?;
    let signed: SignedItem = native.item.to().map_err(|_| "is no signed item")?;
    if signed.n != n {
        return Err(format!("was item {} when it was made: another one is missing", signed.n));
    }
    if sign(before, &signed.kind, n, &signed.said) != signed.signature {
        return Err("is changed, or stands behind something else".to_owned());
    }
    Ok(())
}

fn sign(before: &Sha256, kind: &str, n: usize, said: &RawJson) -> String {
    let mut hash = before.clone();
    add(&mut hash, kind, &n.to_string());
    add(&mut hash, "said", said.get());
    add(&mut hash, "key", "of the scripted model");
    hex(&hash.finalize())
}

/// Adds a message as it is sent: what has a native form is sent in that form.
fn message_to(sent: &mut Sha256, message: &ModelMessage) {
    match message {
        ModelMessage::Summary(text) => add(sent, "summary", text),
        ModelMessage::System(text) => add(sent, "system", text),
        ModelMessage::User(content) => content.parts.iter().for_each(|part| part_to(sent, part)),
        ModelMessage::Agent(said) => {
            for item in &said.items {
                match (&item.native, &item.content) {
                    (Some(native), _) => add(sent, &native.api, native.item.get()),
                    (None, ItemContent::Text { text, .. }) => add(sent, "text", text),
                    (None, ItemContent::Reasoning(text)) => add(sent, "reasoning", text),
                    (None, ItemContent::Call(call)) => add(sent, call.call.as_str(), call.input.get()),
                    (None, ItemContent::Part(part)) => part_to(sent, part),
                }
            }
        }
        ModelMessage::ToolResults(results) => {
            for result in results {
                add(sent, result.call.as_str(), &result.output);
                result.content.iter().for_each(|part| part_to(sent, part));
            }
        }
    }
    add(sent, "end", "");
}

fn part_to(sent: &mut Sha256, part: &Part) {
    add(sent, "part", RawJson::sure(part).get());
}

fn add(sent: &mut Sha256, tag: &str, text: &str) {
    for field in [tag, text] {
        sent.update((field.len() as u64).to_be_bytes());
        sent.update(field.as_bytes());
    }
}
