//! Tool by which a model reads the rest of a shortened output or message.

use std::ops::Range;

use agent_core::event::EventPayload;
use agent_core::json::RawJson;
use agent_core::session::SessionRecord;
use agent_core::store::{ReadBlob, ReadEvents};
use agent_core::{BlobName, Error, ErrorKind, Result, Seq, SessionStore, SessionStoreExt};
use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;

use crate::context::{MESSAGE, READ_OUTPUT};
use crate::model::media::open_blob;
use crate::model::provider::ToolSpec;
use crate::tool::function::decoded;
use crate::tool::plugin::{Plugin, ToolContext};

/// Maximum number of bytes of one answer.
const MAX_BYTES: u64 = 32 << 10;
/// Minimum number, so that a model that asks for little gets on.
const MIN_BYTES: u64 = 64;
/// Bytes of an answer besides those of the output.
const HEAD_BYTES: usize = 160;

const INPUT: &str = r#"{"type":"object","properties":{
"output":{"type":"string","description":"Name of the output: the 64 digits at the place where it was shortened."},
"offset":{"type":"integer","minimum":0,"description":"Number of the first byte, from 0."},
"bytes":{"type":"integer","minimum":1,"description":"Number of bytes, at most 32768, which is the default."}},
"required":["output","offset"]}"#;

/// Plugin that offers the tool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOutput;

#[derive(Debug, Deserialize)]
struct Asked {
    output: String,
    offset: u64,
    bytes: Option<u64>,
}

impl ReadOutput {
    /// Returns the tool as the model is offered it.
    pub(crate) fn spec() -> ToolSpec {
        ToolSpec::new(
            READ_OUTPUT,
            "Reads a part of a tool's output that was too long to be shown whole, at the place that the shortened output names.",
        )
        .with_input(RawJson::constant(INPUT))
    }
}

#[async_trait]
impl Plugin for ReadOutput {
    fn name(&self) -> &str {
        READ_OUTPUT
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![Self::spec()]
    }

    async fn call(&self, _: &str, input: RawJson, context: ToolContext) -> Result<RawJson> {
        let asked: Asked = decoded(READ_OUTPUT, &input)?;
        let sessions = &*context.storage().sessions;
        let session = sessions.load(context.session).await?;
        // A character that begins before the offset may reach over it, and one that begins before the end over that.
        let start = asked.offset.saturating_sub(3);
        let room = context.output_bytes().saturating_sub(HEAD_BYTES) as u64;
        let count = asked.bytes.unwrap_or(MAX_BYTES).min(MAX_BYTES.min(room)).max(MIN_BYTES);
        let range = start..asked.offset.saturating_add(count);
        let name = asked.output.trim();
        let (bytes, total) = match name.strip_prefix(MESSAGE) {
            Some(number) => message(sessions, &session, number, range).await?,
            None => output(sessions, &session, name, range).await?,
        };
        if asked.offset >= total {
            return Err(Error::invalid(format!(
                "output {name} has {total} bytes; give an offset below that, not {}",
                asked.offset
            )));
        }
        let is_inside = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
        let offset = usize::try_from(asked.offset - start).unwrap_or(0);
        let first = (0..=offset).rev().find(|at| !is_inside(at)).unwrap_or(0);
        // The rest of a character at the end is left for the next call.
        let text = match std::str::from_utf8(&bytes[first..]) {
            Ok(text) => text,
            Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
                std::str::from_utf8(&bytes[first..first + error.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => {
                return Err(Error::invalid(format!("output {name} is no text; it cannot be read here")));
            }
        };
        let from = start + first as u64;
        let end = from + text.len() as u64;
        let rest =
            if end < total { format!("read on at offset {end}") } else { "this is the end".to_owned() };
        RawJson::of(&format!("[bytes {from} to {end} of {total}; {rest}]\n{text}"))
    }
}

/// Reads a range of a tool's output. Returns it and the size of the output.
async fn output(
    sessions: &dyn SessionStore,
    session: &SessionRecord,
    name: &str,
    range: Range<u64>,
) -> Result<(Bytes, u64)> {
    let name: BlobName = name.parse().map_err(|_| {
        Error::invalid(
            "`output` is no name of an output; give the 64 digits, or the name of the message, that stand where it was \
             shortened",
        )
    })?;
    let read = ReadBlob::new(session.id, name).with_range(range);
    let content = open_blob(sessions, session, read).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::not_found(format!(
            "this conversation has no output {name}; give the 64 digits that stand where it was shortened"
        )),
        _ => error,
    })?;
    let total = content.blob.bytes;
    if content.range.is_empty() {
        return Ok((Bytes::new(), total));
    }
    Ok((content.into_bytes(MAX_BYTES as usize + 3).await?, total))
}

/// Reads a range of the text of a person's message. Returns it and the size of the text.
async fn message(
    sessions: &dyn SessionStore,
    session: &SessionRecord,
    number: &str,
    range: Range<u64>,
) -> Result<(Bytes, u64)> {
    let missing = || {
        let text = format!(
            "this conversation has no message {number}; give the name that stands where it was shortened"
        );
        Error::not_found(text)
    };
    let seq: u64 = number.parse().map_err(|_| missing())?;
    let before = Seq::new(seq.checked_sub(1).ok_or_else(missing)?);
    let read = ReadEvents::first(1).with_after(before.max(session.visible_from));
    let page = sessions.history_of(session, read.with_known_head(session.head)).await?;
    let event = page.events.first().filter(|event| event.seq == Seq::new(seq)).ok_or_else(missing)?;
    let text = match event.decode()? {
        EventPayload::UserMessage(message) | EventPayload::UserDefineOutcome(message) => message.text,
        _ => return Err(missing()),
    };
    let at = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
    Ok((Bytes::copy_from_slice(&text.as_bytes()[at(range.start)..at(range.end)]), text.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::cut_mark;

    #[test]
    fn a_cut_names_the_output_and_the_place() {
        let mark = cut_mark(BlobName::of(b"x"), 500..9500, 10_000);
        assert_eq!(
            mark,
            "[… bytes 500 to 9500 of 10000 left out; read them with read_output: output \
             2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881, offset 500 …]"
        );
    }
}
