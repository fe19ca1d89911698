//! Ids and names of calls, which a source may spell in any way.

use agent_core::event::ToolUse;
use agent_core::json::RawJson;
use agent_core::model::CallId;
use sha2::{Digest, Sha256};

use crate::text::clip;

/// Maximum number of bytes of the name of a tool.
const NAME_MAX_BYTES: usize = 128;

/// Returns the id of a call. A text that is no id becomes one that depends on it alone, so that its result finds it.
pub(crate) fn id(text: &str) -> CallId {
    match text.parse() {
        Ok(id) if !text.starts_with(crate::text::SEALED) => id,
        _ => hashed(text),
    }
}

/// Returns another id for a call whose id another one has.
pub(crate) fn numbered(id: &CallId, number: u32) -> CallId {
    let text = format!("{id}~{number}");
    text.parse().unwrap_or_else(|_| hashed(&text))
}

fn hashed(text: &str) -> CallId {
    let hash = Sha256::digest(text.as_bytes());
    let digits: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    // 37 characters, none of which an id may not have.
    match format!("call-{digits}").parse() {
        Ok(id) => id,
        Err(_) => unreachable!("an id of hexadecimal digits"),
    }
}

/// Returns a call. An input that is no JSON object is kept as the text that it is.
pub(crate) fn call(call: &str, name: &str, input: Result<RawJson, String>) -> ToolUse {
    let name = match clip(name, NAME_MAX_BYTES) {
        name if name.is_empty() => "unnamed".to_owned(),
        name => name,
    };
    match input {
        Ok(input) => ToolUse::new(id(call), name, input),
        Err(text) => ToolUse::new(id(call), name, RawJson::empty_object()).with_malformed(text),
    }
}
