//! Texts of events that a search reads: messages, results of tools, titles, documents.

use std::borrow::Cow;

use crate::event::{Event, EventPayload, EventType, ToolResult};

/// Most bytes of the result of a tool that are searched.
pub(crate) const TOOL_RESULT_BYTES: usize = 8 << 10;

/// Types of the events that have a text.
pub(crate) fn types() -> [EventType; 10] {
    [
        EventType::USER_MESSAGE,
        EventType::USER_DEFINE_OUTCOME,
        EventType::AGENT_MESSAGE,
        EventType::AGENT_PART,
        EventType::SYSTEM_MESSAGE,
        EventType::AGENT_TOOL_RESULT,
        EventType::USER_CUSTOM_TOOL_RESULT,
        EventType::SESSION_CREATED,
        EventType::SESSION_UPDATED,
        EventType::SESSION_DOCUMENT_WRITTEN,
    ]
}

/// Returns the text of an event that searches look at; `None` if it has none. Reasoning and the inputs of tools are none.
pub(crate) fn text(event: &Event) -> Option<Cow<'_, str>> {
    if event.kind == EventType::AGENT_THINKING {
        return None;
    }
    if let Some(text) = event.text() {
        return Some(text);
    }
    match event.decode().ok()? {
        EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result) => {
            Some(of_result(&result).into())
        }
        EventPayload::SessionCreated(created) => Some(created.attributes.title?.text.into()),
        EventPayload::SessionUpdated(patch) => Some(patch.title??.text.into()),
        EventPayload::SessionDocumentWritten(written) => Some(written.text?.into()),
        _ => None,
    }
}

/// Returns the beginning of the result of a tool: its text, or its JSON, and its further parts.
fn of_result(result: &ToolResult) -> String {
    let mut text = result.output.to::<String>().unwrap_or_else(|_| result.output.get().to_owned());
    if let Some(parts) = result.text_view() {
        text.push('\n');
        text.push_str(&parts);
    }
    text.truncate(text.floor_char_boundary(TOOL_RESULT_BYTES));
    text
}
