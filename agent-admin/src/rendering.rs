//! A session as text for other programs and for people: events as JSON lines, or a Markdown document.
//!
//! Both are for reading. A session that is to be imported again is [exported](crate::export).

use std::fmt::Write;

use agent_core::event::{Event, EventPayload, ToolOutcome};
use agent_core::session::SessionRecord;
use agent_core::text::marked_name;
use agent_core::{Result, Seq, SessionId, SessionStore, SessionStoreExt};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

/// Returns the events of a session and of its ancestors as JSON lines: each event in its [JSON form](Event::to_json), on a line.
///
/// Holds a page of events in memory. An error ends the lines.
///
/// # Errors
///
/// In the pieces: those of the store.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = echo().await?;
/// # chat.prompt("Hello").await?.finish().await?;
/// use agent_admin::rendering;
/// use agent_core::SessionStore;
/// use futures::TryStreamExt;
///
/// let sessions = &*agent.storage().sessions;
/// let lines: Vec<_> = rendering::to_jsonl(sessions, chat.id()).try_collect().await?;
/// assert!(lines.concat().starts_with(br#"{"seq":1,"#));
///
/// let session = sessions.load(chat.id()).await?;
/// let pages: Vec<_> = rendering::to_markdown(sessions, &session).try_collect().await?;
/// let document = String::from_utf8(pages.concat()).unwrap();
/// assert!(document.contains("\nHello\n"));
/// # Ok(()) }
/// ```
pub fn to_jsonl(store: &dyn SessionStore, id: SessionId) -> BoxStream<'_, Result<Bytes>> {
    store.events(id, Seq::ZERO).map_ok(|event| Bytes::from(event.to_json() + "\n")).boxed()
}

/// Returns the conversation of a session and its ancestors as Markdown: a heading for each speaker, calls and their results as code
/// blocks. Reasoning and what is no part of the conversation is left out. Texts of people and agents are not escaped, since they are
/// Markdown themselves; control characters are replaced.
///
/// Holds a page of events in memory. An error ends the document.
///
/// # Errors
///
/// In the pieces: those of the store.
pub fn to_markdown<'a>(store: &'a dyn SessionStore, session: &SessionRecord) -> BoxStream<'a, Result<Bytes>> {
    let title = session
        .attributes
        .title
        .as_ref()
        .map_or_else(|| session.id.to_string(), |title| marked_name(&title.text).into_owned());
    let head = format!("# {title}\n\nSession {}, begun {}\n", session.id, session.created_at);
    let events = store.events(session.id, Seq::ZERO).try_filter_map(|event| async move { section(&event) });
    stream::iter([Ok(Bytes::from(head))]).chain(events.map_ok(Bytes::from)).boxed()
}

/// Returns the section of an event, if it is part of the conversation.
fn section(event: &Event) -> Result<Option<String>> {
    let (speaker, body) = match event.decode()? {
        EventPayload::UserMessage(message) | EventPayload::UserDefineOutcome(message) => {
            ("User", message.text_view().into_owned())
        }
        EventPayload::AgentMessage(message) => ("Agent", message.text_view().into_owned()),
        EventPayload::AgentPart(part) => match part.text_view() {
            Some(text) => ("Agent", text),
            None => return Ok(None),
        },
        EventPayload::SystemMessage(message) => ("System", message.text),
        EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => {
            let input = call.malformed.as_deref().unwrap_or_else(|| call.input.get());
            return Ok(Some(format!("\n**Call {}**\n\n{}", marked_name(&call.name), code("json", input))));
        }
        EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result) => {
            let outcome = match result.outcome {
                ToolOutcome::Ok => String::new(),
                outcome => format!(", {outcome}"),
            };
            let text = result.output.to::<String>().unwrap_or_else(|_| result.output.get().to_owned());
            let text = result.text_view().unwrap_or(text);
            return Ok(Some(format!("\n**Result{outcome}**\n\n{}", code("", &text))));
        }
        EventPayload::SessionCompacted(compaction) => ("Summary of what is above", compaction.summary),
        EventPayload::SessionHistoryCleared(_) => {
            return Ok(Some("\n---\n\nThe history was cleared here.\n".to_owned()));
        }
        _ => return Ok(None),
    };
    Ok(Some(format!("\n## {speaker}, {}\n\n{}\n", event.at, plain(body.trim_end()))))
}

/// Returns a text as a code block, whose fence is longer than any in the text.
fn code(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let mut block = String::new();
    let _ = writeln!(block, "{fence}{language}\n{}\n{fence}", plain(text.trim_end()));
    block
}

/// Returns a text without the control characters that a terminal obeys.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}
