//! Events as a log takes them: what does not fit is cut, emptied or left out, so that no entry refuses its whole session.

use agent_core::event::{EVENT_MAX_BYTES, EventPayload, Message, ToolResult, ToolUse};
use agent_core::json::RawJson;

use crate::source::{Item, Notes};
use crate::text::clip;

/// Bytes of an event that are left for its header.
const HEADER_BYTES: usize = 64 << 10;
/// Maximum number of bytes of a summary.
const SUMMARY_MAX_BYTES: usize = 4 << 20;

/// Returns an item as a log takes it; `None` if nothing of it is.
pub(crate) fn item(item: Item, notes: &mut Notes) -> Option<Item> {
    match item {
        Item::Event(payload) => event(payload, notes).map(Item::Event),
        Item::Unknown { kind, json } => fits_unknown(&json).then_some(Item::Unknown { kind, json }),
        Item::Compaction(text) => Some(Item::Compaction(summary(text, notes))),
    }
}

fn event(payload: EventPayload, notes: &mut Notes) -> Option<EventPayload> {
    if fits(&payload) {
        return Some(payload);
    }
    let kind = payload.kind();
    let found = smaller(payload).into_iter().find(fits);
    let done = if found.is_some() { "cut" } else { "left out" };
    notes.count(format!("{kind} that no log takes as it is, which was {done}"));
    found
}

/// Returns whether an event of a type that a format made up is taken.
fn fits_unknown(json: &RawJson) -> bool {
    json.depth() <= RawJson::MAX_DEPTH
        && json.get().len() <= EVENT_MAX_BYTES - HEADER_BYTES
        && json.to::<agent_core::json::RawFields>().is_ok_and(|fields| fields.get("sealed").is_none())
}

fn summary(mut text: String, notes: &mut Notes) -> String {
    if text.len() > SUMMARY_MAX_BYTES {
        notes.count("summaries of more than 4 MiB, which were cut");
        text.truncate(text.floor_char_boundary(SUMMARY_MAX_BYTES));
    }
    text
}

fn fits(payload: &EventPayload) -> bool {
    let json = payload.to_json();
    json.get().len() <= EVENT_MAX_BYTES - HEADER_BYTES
        && json.depth() <= RawJson::MAX_DEPTH
        && payload.check().is_ok()
}

/// Returns what may be written instead of an event, the fullest first. A call and a result stay, so that they find each other.
fn smaller(payload: EventPayload) -> Vec<EventPayload> {
    let bare = |mut message: Message| {
        message.native = None;
        let text = Message::new(message.text.clone());
        [message, text]
    };
    match payload {
        EventPayload::UserMessage(message) => bare(message).map(EventPayload::UserMessage).into(),
        EventPayload::AgentMessage(message) => bare(message).map(EventPayload::AgentMessage).into(),
        EventPayload::AgentThinking(message) => bare(message).map(EventPayload::AgentThinking).into(),
        EventPayload::AgentPart(mut part) => {
            part.native = None;
            vec![EventPayload::AgentPart(part)]
        }
        EventPayload::AgentToolUse(mut call) => {
            let name = clip(&call.name, 128);
            let name = if name.is_empty() { "unnamed".to_owned() } else { name };
            let empty = ToolUse::new(call.call.clone(), name, RawJson::empty_object()).with_omitted(true);
            call.native = None;
            [call, empty].map(EventPayload::AgentToolUse).into()
        }
        EventPayload::AgentToolResult(mut result) => {
            let empty =
                ToolResult::new(result.call.clone(), result.outcome, RawJson::sure(&"")).with_omitted(true);
            (result.content, result.structured, result.full) = (Vec::new(), None, None);
            [result, empty].map(EventPayload::AgentToolResult).into()
        }
        _ => Vec::new(),
    }
}
