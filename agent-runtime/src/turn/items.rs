//! Items of an answer, as a run stores them: in the provider's order, without the values of secrets.

use std::collections::BTreeMap;

use crate::context::ModelContext;
use crate::model::event::{ModelCall, PartContent};
use crate::model::provider::ToolSpec;
use crate::model::replay::CANONICAL;
use crate::turn::ask::Asked;
use crate::turn::parts::ReceivedPart;
use crate::turn::state::Driver;
use agent_core::event::{AgentPart, AgentResponse, Citation, EventPayload, Message, Native, Part, ToolUse};
use agent_core::json::RawJson;
use agent_core::model::CallId;
use agent_core::text::check_text;
use agent_workspace::blobs::media_mut;

/// Item of an answer.
#[derive(Debug)]
pub(super) enum Item {
    /// Text, reasoning or another part, as it is stored.
    Said(EventPayload),
    /// Tool call, with an id and a name that can be stored.
    Call(ToolUse),
}

/// Items of an answer, and its end.
#[derive(Debug, Default)]
pub(super) struct Items {
    pub(super) items: Vec<Item>,
    /// What is wrong with the input of each call that cannot be made.
    pub(super) faults: BTreeMap<CallId, String>,
    /// Text that the agent said.
    pub(super) text: String,
    /// End of the answer, if the log records one.
    pub(super) response: Option<AgentResponse>,
}

impl Items {
    pub(super) fn calls(&self) -> impl Iterator<Item = &ToolUse> {
        self.items.iter().filter_map(|item| if let Item::Call(call) = item { Some(call) } else { None })
    }
}

impl Driver {
    /// Returns the items of an answer as they are stored.
    pub(super) fn items_of(
        &self,
        parts: Vec<ReceivedPart>,
        asked: &Asked,
        stop: Option<&'static str>,
        is_cut: bool,
        context: &ModelContext,
    ) -> Items {
        let mut said = Items::default();
        let (mut has_native, mut place) = (false, 0);
        // An answer that lost one of its native items is not given back as it came: a provider refuses a gap.
        let mut is_whole = !is_cut;
        for part in parts {
            let index = Some(part.index).filter(|index| *index != place);
            let had_native = part.native.is_some();
            // Such a call goes back in another form, which is a gap, too.
            is_whole &= !matches!(&part.content, PartContent::Call(call)
                if call.malformed.is_some() || !ToolSpec::is_name(&call.name));
            let item = self.item_of(part, index, &mut said, context);
            is_whole &= !had_native || item.as_ref().is_some_and(|item| native_of(item).is_some());
            let Some(item) = item else { continue };
            place += u32::from(!matches!(&item, Item::Said(body) if !self.is_stored(body)));
            has_native |= native_of(&item).is_some();
            said.items.push(item);
        }
        let is_changed = asked.is_canonical || !asked.media.left_out.is_empty();
        if !said.items.is_empty() && (asked.origin.is_some() || has_native || is_changed) {
            let mut response = AgentResponse::new(asked.after);
            response.origin.clone_from(&asked.origin);
            response.stop = stop.map(str::to_owned);
            // What was made without reasoning may be refused behind a request with it.
            response.given = asked.given.clone().filter(|_| is_whole && !asked.is_canonical);
            response.replay = asked.is_canonical.then(|| CANONICAL.to_owned());
            // Each answer has all of them: a summary may replace the answers before it, and not the media.
            response.left_out = asked.media.left_out.iter().copied().collect();
            said.response = Some(response);
        }
        said
    }

    /// Returns one item as it is stored; `None` if there is nothing in it. Adds its text to that of the answer.
    fn item_of(
        &self,
        part: ReceivedPart,
        index: Option<u32>,
        said: &mut Items,
        context: &ModelContext,
    ) -> Option<Item> {
        let native = self.unchanged(part.native);
        let body = match part.content {
            PartContent::Text { text, citations } => {
                let shown = self.redacted(&text);
                // Offsets and the native form belong to the text as it came.
                let is_same = shown == text && part.is_done && self.is_open(&citations);
                said.text.push_str(&shown);
                let mut message = Message::new(shown);
                if is_same {
                    (message.citations, message.native) = (citations, native);
                }
                if message.text.trim().is_empty() && message.native.is_none() {
                    return None;
                }
                message.part = index;
                EventPayload::AgentMessage(self.handle.runtime().fitted(message))
            }
            PartContent::Reasoning(text) => {
                let shown = self.redacted(&text);
                let native = native.filter(|_| shown == text);
                if shown.is_empty() && native.is_none() {
                    return None;
                }
                let mut message = Message::new(shown);
                (message.native, message.part) = (native, index);
                EventPayload::AgentThinking(message)
            }
            PartContent::Part(content) => {
                let shown = self.redacted_part(&content);
                if let Part::Refusal { text, .. } = &shown {
                    if text.trim().is_empty() {
                        return None;
                    }
                    said.text.push_str(text);
                }
                let native = native.filter(|_| shown == content);
                let mut item = AgentPart::new(shown);
                (item.native, item.part) = (native, index);
                EventPayload::AgentPart(item)
            }
            PartContent::Call(call) => {
                let fault = call.malformed.as_ref().map(|input| self.redacted(&input.fault));
                let mut call = self.named(call, native, said, context)?;
                call.part = index;
                if let Some(fault) = fault {
                    said.faults.insert(call.call.clone(), fault);
                }
                return Some(Item::Call(call));
            }
        };
        Some(Item::Said(body))
    }

    /// Returns the call with an id that is valid and unique in the conversation, and with a name that can be stored; both
    /// without the values of secrets. The native form of another id or name is dropped.
    fn named(
        &self,
        call: ModelCall,
        native: Option<Native>,
        said: &Items,
        context: &ModelContext,
    ) -> Option<ToolUse> {
        let is_used = |id: &CallId| {
            context.has_call(id)
                || said.calls().any(|other| other.call == *id)
                || self.session.open_calls.iter().any(|open| open.call == *id)
        };
        let is_open = |text: &str| self.redacted(text) == text;
        let given = call.id.parse::<CallId>().ok().filter(|id| !is_used(id) && is_open(id.as_str()));
        let name = check_text("tool name", &call.name, 128).ok().map(|()| call.name);
        let name = name.filter(|name| is_open(name));
        let is_same = given.is_some() && name.is_some();
        // A prefix and a UUID are a valid id of at most 40 bytes, which is the maximum of some providers.
        let new = || format!("call-{}", self.handle.runtime().effects().new_uuid().simple()).parse().ok();
        let mut named =
            ToolUse::new(given.or_else(new)?, name.unwrap_or_else(|| "unnamed".to_owned()), call.input);
        named.native = native.filter(|_| is_same && call.malformed.is_none());
        named.malformed = call.malformed.map(|input| input.text);
        Some(named)
    }

    /// Returns the text with the values of secrets redacted: a model is shown what was committed.
    pub(super) fn redacted(&self, text: &str) -> String {
        self.handle.runtime().redact(text).into_owned()
    }

    pub(super) fn redacted_part(&self, part: &Part) -> Part {
        let Some(secrets) = &self.handle.runtime().secrets else { return part.clone() };
        let mut part = part.clone();
        if let Some(media) = media_mut(&mut part) {
            secrets.redact_media(media);
        }
        let Ok(json) = RawJson::of(&part) else { return part };
        let shown = secrets.redact_json(json.clone());
        if shown == json { part } else { shown.to().unwrap_or(Part::Other(shown)) }
    }

    /// Returns whether no citation holds the value of a secret.
    fn is_open(&self, citations: &[Citation]) -> bool {
        citations.is_empty()
            || RawJson::of(&citations)
                .is_ok_and(|json| self.handle.runtime().redact_json(json.clone()) == json)
    }

    /// Returns the native form, unless it holds the value of a secret.
    pub(super) fn unchanged(&self, native: Option<Native>) -> Option<Native> {
        native.filter(|native| self.handle.runtime().redact_json(native.item.clone()) == native.item)
    }
}

fn native_of(item: &Item) -> Option<&Native> {
    match item {
        Item::Call(call) => call.native.as_ref(),
        Item::Said(EventPayload::AgentMessage(message) | EventPayload::AgentThinking(message)) => {
            message.native.as_ref()
        }
        Item::Said(EventPayload::AgentPart(part)) => part.native.as_ref(),
        Item::Said(_) => None,
    }
}
