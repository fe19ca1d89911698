//! Streams of sessions and of a conversation's messages, read page by page.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::agent::runtime::AgentRuntime;
use crate::conversation::handle::Conversation;
use agent_core::event::{Citation, Event, EventPayload, EventType, Message, Part};
use agent_core::json::RawFields;
use agent_core::model::{Actor, Role};
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::store::{Damaged, Page, ReadEvents, SessionQuery, pages};
use agent_core::{Error, Result, RunId, Seq, SessionId, SessionStore, SessionStoreExt, Timestamp};

/// Maximum number of events, and of their bytes, that a stream of messages reads at a time.
const PAGE: usize = 200;
const PAGE_BYTES: usize = 256 << 10;

/// Types of the events that are messages of a conversation.
const MESSAGES: [EventType; 4] = [
    EventType::USER_MESSAGE,
    EventType::USER_DEFINE_OUTCOME,
    EventType::AGENT_MESSAGE,
    EventType::AGENT_PART,
];

/// Message of a person or of the agent in a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConversationMessage {
    /// Sequence number of the message's event.
    pub seq: Seq,
    /// Side of the conversation that the message belongs to: [`Role::User`] or [`Role::Agent`].
    pub role: Role,
    /// Actor that wrote the message.
    pub author: Actor,
    /// Time of the message, by its writer's clock.
    pub at: Timestamp,
    /// Run that wrote the message; `None` for a message of a person.
    pub run: Option<RunId>,
    /// Text of the message, as the event stores it; empty for a medium.
    pub text: String,
    /// Parts of the message, like images or a refusal; empty for a plain text.
    pub parts: Vec<Part>,
    /// Sources that the text cites.
    pub citations: Vec<Citation>,
    /// Metadata of the host.
    pub metadata: RawFields,
}

impl ConversationMessage {
    /// Returns the message that an event stores; `None` if it stores none.
    ///
    /// Messages are those of people, outcomes that people define, and those of the agent: its texts, refusals and
    /// media. What a provider ran itself is none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// # chat.prompt("Hello").await?.finish().await?;
    /// use agent_runtime::ConversationMessage;
    /// use futures::TryStreamExt;
    ///
    /// let mut events = chat.follow(Seq::ZERO);
    /// let message = loop {
    ///     let event = events.try_next().await?.expect("the stream does not end");
    ///     if let Some(message) = ConversationMessage::of(&event)? {
    ///         break message;
    ///     }
    /// };
    /// assert_eq!(message.text, "Hello");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Corrupt` if the event's payload cannot be read.
    pub fn of(event: &Event) -> Result<Option<Self>> {
        let (role, Message { text, parts, citations, metadata, .. }) = match event.decode()? {
            EventPayload::UserMessage(message) | EventPayload::UserDefineOutcome(message) => {
                (Role::User, message)
            }
            EventPayload::AgentMessage(message) => (Role::Agent, message),
            EventPayload::AgentPart(item) => match &item.content {
                Part::Refusal { text, .. } => {
                    let mut message = Message::new(text);
                    message.parts.push(item.content);
                    (Role::Agent, message)
                }
                part if part.media().is_some() => (Role::Agent, Message::new("").with_part(item.content)),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let (author, run) = (event.actor.clone(), event.run);
        Ok(Some(Self { seq: event.seq, role, author, at: event.at, run, text, parts, citations, metadata }))
    }
}

impl AgentRuntime {
    /// Streams the sessions of this tenant that match a query, last active first. Holds one page of the list in memory.
    ///
    /// [`with_limit`](SessionQuery::with_limit) sets the number of sessions on a page, not of all sessions; a
    /// [cursor](SessionQuery::with_cursor) sets the start. Single pages are available from the store:
    /// `agent.storage().sessions.list(query)`.
    ///
    /// An object that cannot be read is an item of its own, an error of kind `Corrupt` that names it, after the readable
    /// sessions of its page. The stream continues after it, so that a caller that handles the error sees all other
    /// sessions. Any error of the store itself ends the stream.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// use futures::TryStreamExt;
    ///
    /// for key in ["support/1", "support/2", "support/3"] {
    ///     agent.conversation(key).await?;
    /// }
    /// let mut sessions = agent.sessions(SessionQuery::new());
    /// let mut keys = Vec::new();
    /// while let Some(session) = sessions.try_next().await? {
    ///     keys.extend(session.conversation_key().map(|key| key.to_string()));
    /// }
    /// keys.sort();
    /// assert_eq!(keys, ["support/1", "support/2", "support/3"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As items: `Corrupt` for each damaged object; `InvalidInput` for a cursor of another query; errors of the store.
    pub fn sessions(&self, query: SessionQuery) -> BoxStream<'static, Result<SessionSummary>> {
        let sessions = self.storage.sessions.clone();
        let list = move |query| {
            let sessions = sessions.clone();
            async move { sessions.list(query).await }
        };
        pages(query, list).flat_map(|page| stream::iter(items(page))).boxed()
    }
}

/// Returns the items of a page in the order of a stream: readable sessions, then damaged objects.
fn items(page: Result<Page<SessionSummary>>) -> Vec<Result<SessionSummary>> {
    match page {
        Ok(page) => {
            let damaged = page.damaged.into_iter().map(|damage| Err(Error::corrupt(damage.to_string())));
            page.items.into_iter().map(Ok).chain(damaged).collect()
        }
        Err(error) => vec![Err(error)],
    }
}

impl Conversation {
    /// Streams the messages of the conversation, oldest first. Holds one page in memory.
    ///
    /// The stream contains the messages of people and of the agent in the visible history, as it is when the stream is
    /// first polled. Each text, refusal and medium of an answer is a message of its own. Messages of the session from which this one was forked are included, and so are
    /// [compacted](Self::compact) ones, because a compaction changes only the context of a model. Messages from before
    /// the history was last [cleared](Self::clear) are not. Tool calls, reasoning and texts of the system are in the
    /// [history](Self::history).
    ///
    /// The first damage is an error of kind `Corrupt`, which ends the stream.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let agent = echo_agent()?;
    /// use futures::TryStreamExt;
    ///
    /// let chat = agent.conversation("support/4711").await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// let mut messages = chat.messages();
    /// let mut lines = Vec::new();
    /// while let Some(message) = messages.try_next().await? {
    ///     lines.push(format!("{}: {}", message.role, message.text));
    /// }
    /// assert_eq!(lines, ["user: Hello", "agent: Hello"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As items: `Corrupt`; errors of the store. The stream ends after an error.
    pub fn messages(&self) -> BoxStream<'static, Result<ConversationMessage>> {
        self.stream_messages(ReadEvents::first(PAGE))
    }

    /// Streams the messages of the conversation, newest first; otherwise like [`messages`](Self::messages).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// # for text in ["one", "two", "three"] { chat.prompt(text).await?.finish().await?; }
    /// use futures::{StreamExt, TryStreamExt};
    ///
    /// let newest: Vec<_> = chat.messages_newest_first().take(2).try_collect().await?;
    /// assert_eq!(newest[0].text, "three");
    /// assert!(newest[0].seq > newest[1].seq);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`messages`](Self::messages).
    pub fn messages_newest_first(&self) -> BoxStream<'static, Result<ConversationMessage>> {
        self.stream_messages(ReadEvents::last(PAGE))
    }

    fn stream_messages(&self, read: ReadEvents) -> BoxStream<'static, Result<ConversationMessage>> {
        let (sessions, id) = (self.runtime().storage.sessions.clone(), self.id());
        let pages = stream::try_unfold((None, Some(read)), move |(session, read)| {
            let sessions = sessions.clone();
            async move {
                let Some(read) = read else { return Ok(None) };
                let (session, read) = match session {
                    Some(session) => (session, read),
                    None => begin(&*sessions, id, read).await?,
                };
                let (found, next) = messages_of(&*sessions, &session, read).await?;
                Ok::<_, Error>(Some((stream::iter(found.into_iter().map(Ok)), (Some(session), next))))
            }
        });
        pages.try_flatten().boxed()
    }
}

/// Returns the record of a session, and the first read of its present visible history.
async fn begin(
    sessions: &dyn SessionStore,
    id: SessionId,
    read: ReadEvents,
) -> Result<(Arc<SessionRecord>, ReadEvents)> {
    let session = sessions.load(id).await?;
    let mut read = read.with_after(session.visible_from).with_types(MESSAGES).with_max_bytes(PAGE_BYTES);
    if !read.newest {
        // Later events are not part of the stream. A read of the newest events starts at the present end in any case.
        read.before = Some(session.head.next());
    }
    Ok((session, read))
}

/// Returns the messages of one page, in the direction of the read, and the read of the next page.
async fn messages_of(
    sessions: &dyn SessionStore,
    session: &SessionRecord,
    read: ReadEvents,
) -> Result<(Vec<ConversationMessage>, Option<ReadEvents>)> {
    let newest = read.newest;
    let mut page = sessions.history_of(session, read.clone()).await?;
    if let (None, Some(damage)) = (&page.next, page.damaged.first()) {
        // Readable events come first; the next page would start with the damage, which is an error.
        let last = if newest { page.events.first() } else { page.events.last() };
        let last = last.ok_or_else(|| damaged(session.id, damage))?;
        page.next = Some(read.continued(last.seq));
    }
    let found: Result<Vec<_>> = page.events.iter().map(ConversationMessage::of).collect();
    let mut found: Vec<_> = found?.into_iter().flatten().collect();
    if newest {
        found.reverse();
    }
    Ok((found, page.next))
}

fn damaged(id: SessionId, damage: &Damaged) -> Error {
    Error::corrupt(format!("session {id}: {damage}"))
}
