//! Calls and results as a log holds them: each call is open once, and has one result, after it.

use std::collections::VecDeque;

use agent_core::event::{EventPayload, Message, Part, ToolOutcome, ToolResult, ToolUse};
use agent_core::json::RawJson;
use agent_core::model::CallId;

use crate::source::{Entry, Item, Notes};

/// Maximum number of calls that are open at once; a session keeps no more.
const OPEN_MAX: usize = 64;
/// Maximum number of results that wait for their call.
const EARLY_MAX: usize = 64;
/// Maximum number of items of an entry that are written together.
pub(crate) const ITEMS_MAX: usize = 200;
/// Maximum number of media of one event.
const MEDIA_MAX: usize = 48;

/// Call without a result.
#[derive(Debug)]
struct Open {
    /// Id in the source.
    source: CallId,
    /// Id in the log: another one, if a call with the same was open.
    call: CallId,
}

/// Calls of a transcript up to an entry.
#[derive(Debug, Default)]
pub(crate) struct Pairing {
    open: Vec<Open>,
    early: VecDeque<ToolResult>,
}

impl Pairing {
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns the items of an entry as a log takes them.
    pub(crate) fn fix(&mut self, entry: &mut Entry, notes: &mut Notes) {
        let mut items = Vec::with_capacity(entry.items.len());
        let is_compaction = entry.items.iter().any(|item| matches!(item, Item::Compaction(_)));
        if entry.begins_turn || is_compaction {
            self.close(&mut items, notes);
        }
        for item in std::mem::take(&mut entry.items) {
            match item {
                Item::Event(EventPayload::AgentToolUse(call)) => self.call(call, &mut items, notes),
                Item::Event(EventPayload::AgentToolResult(result)) => self.result(result, &mut items, notes),
                Item::Event(payload) => items.push(Item::Event(bounded(payload, notes))),
                other => items.push(other),
            }
        }
        entry.items = items;
    }

    /// Gives each open call the result that it was interrupted.
    pub(crate) fn close(&mut self, items: &mut Vec<Item>, notes: &mut Notes) {
        for open in self.open.drain(..) {
            notes.count("calls without a result, which were interrupted");
            items.push(Item::Event(EventPayload::AgentToolResult(ToolResult::interrupted(open.call))));
        }
    }

    /// Counts the results that no call has asked for.
    pub(crate) fn end(&mut self, notes: &mut Notes) {
        notes_early(notes, self.early.len());
        self.early.clear();
    }

    fn call(&mut self, mut call: ToolUse, items: &mut Vec<Item>, notes: &mut Notes) {
        let source = call.call.clone();
        let mut number = 1;
        while self.open.iter().any(|open| open.call == call.call) {
            number += 1;
            call.call = crate::call::numbered(&source, number);
            // The item of the provider has the other id.
            call.native = None;
        }
        if number > 1 {
            notes.count("calls with the id of an open call, which got another");
        }
        let id = call.call.clone();
        items.push(Item::Event(EventPayload::AgentToolUse(call)));
        if let Some(at) = self.early.iter().position(|result| result.call == source)
            && let Some(mut result) = self.early.remove(at)
        {
            notes.count("results before their call, which were moved behind it");
            result.call = id;
            items.push(Item::Event(bounded(EventPayload::AgentToolResult(result), notes)));
        } else if self.open.len() == OPEN_MAX {
            notes.count("calls beyond 64 open ones, which were interrupted");
            items.push(Item::Event(EventPayload::AgentToolResult(ToolResult::interrupted(id))));
        } else {
            self.open.push(Open { source, call: id });
        }
    }

    fn result(&mut self, mut result: ToolResult, items: &mut Vec<Item>, notes: &mut Notes) {
        if let Some(at) = self.open.iter().position(|open| open.source == result.call) {
            result.call = self.open.remove(at).call;
            items.push(Item::Event(bounded(EventPayload::AgentToolResult(result), notes)));
            return;
        }
        if self.early.len() == EARLY_MAX {
            notes_early(notes, 1);
            self.early.pop_front();
        }
        self.early.push_back(result);
    }
}

fn notes_early(notes: &mut Notes, count: usize) {
    if count > 0 {
        notes.add("results without a call", count as u64);
    }
}

/// Returns an event with no more media than one commit stores.
fn bounded(mut payload: EventPayload, notes: &mut Notes) -> EventPayload {
    let parts = match &mut payload {
        EventPayload::UserMessage(Message { parts, .. })
        | EventPayload::AgentMessage(Message { parts, .. }) => parts,
        EventPayload::AgentToolResult(ToolResult { content, .. }) => content,
        _ => return payload,
    };
    for part in parts.iter_mut().filter(|part| part.media().is_some()).skip(MEDIA_MAX) {
        notes.count("media beyond 48 in one message");
        *part = Part::text("[left out by the import]");
    }
    payload
}

/// Returns the result of a call in a source, from its text.
pub(crate) fn result(call: CallId, is_error: bool, output: &str) -> ToolResult {
    let outcome = if is_error { ToolOutcome::Error } else { ToolOutcome::Ok };
    ToolResult::new(call, outcome, RawJson::sure(&output))
}
