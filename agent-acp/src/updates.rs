//! Events of a session and updates of a run as notifications `session/update`, with the same ids in both.

use std::collections::{HashMap, HashSet};

use agent_client_protocol::v1::{ConnectionTo, schema};
use agent_client_protocol::{Client, Error, Result};
use agent_core::event::{Event, EventPayload, EventType, Message, Part, ToolOutcome, ToolResult, ToolUse};
use agent_core::json::RawJson;
use agent_core::model::CallId;
use agent_core::store::ReadEvents;
use agent_core::text::marked_name;
use agent_core::{CommitId, Seq};
use agent_runtime::{Conversation, Live, PartKind, Update};
use futures::stream::BoxStream;
use schema::{ContentBlock, ContentChunk, SessionUpdate, ToolCall, ToolCallStatus, ToolCallUpdate};
use serde_json::{Value, json};

use crate::meta::meta;
use crate::open::OpenSessions;
use crate::{content, fault};

/// Maximum number of events of a log in memory, and of their bytes.
const PAGE: usize = 100;
const PAGE_BYTES: usize = 1 << 20;

/// Update for a piece of a message, by the role of its author.
type Speaker = fn(ContentChunk) -> SessionUpdate;

/// Sends the updates of one session, each once: those of a run as they come, and what it left out from the log.
pub(crate) struct Updates<'a> {
    client: &'a ConnectionTo<Client>,
    open: &'a OpenSessions,
    chat: &'a Conversation,
    /// Last event of the log that was sent, or that is older than what is sent.
    seen: Seq,
    /// Bytes of the text of each message that were sent; the maximum for content that is no text.
    streamed: HashMap<String, usize>,
    called: HashSet<CallId>,
    done: HashSet<CallId>,
    /// Id of the message to which the next pieces belong.
    current: Option<String>,
    /// Whether the run has left out updates; the rest comes from the log.
    has_gap: bool,
    /// Whether a part of the run's last answer was sent, or left out.
    pub(crate) is_answered: bool,
    /// Number of notices that were sent as messages.
    notices: usize,
    names: Names,
}

/// Ids of the items of an answer in the log: the commit, and the number of the item.
#[derive(Default)]
struct Names {
    commit: Option<CommitId>,
    place: u32,
}

impl Names {
    /// Returns the id of the next item. `number` is its own, if it differs from its place.
    fn next(&mut self, event: &Event, number: Option<u32>) -> String {
        if self.commit != Some(event.commit) {
            *self = Self { commit: Some(event.commit), place: 0 };
        }
        let place = self.place;
        self.place += 1;
        name(event.commit, number.unwrap_or(place))
    }
}

fn name(commit: CommitId, number: u32) -> String {
    format!("{commit}/{number}")
}

impl<'a> Updates<'a> {
    /// Creates the sender for what the session gets after `seen`.
    pub(crate) fn new(
        client: &'a ConnectionTo<Client>,
        open: &'a OpenSessions,
        chat: &'a Conversation,
        seen: Seq,
    ) -> Self {
        Self {
            client,
            open,
            chat,
            seen,
            streamed: HashMap::new(),
            called: HashSet::new(),
            done: HashSet::new(),
            current: None,
            has_gap: false,
            is_answered: false,
            notices: 0,
            names: Names::default(),
        }
    }

    /// Sends the visible history of the session, with the messages of people.
    pub(crate) async fn replay(&mut self) -> Result<()> {
        self.seen = self.read(self.unread(), true).await?;
        Ok(())
    }

    /// Sends what the log has and what was not sent.
    pub(crate) async fn catch_up(&mut self) -> Result<()> {
        self.seen = self.read(self.unread(), false).await?;
        Ok(())
    }

    /// Sends the results of calls that the log has and that were not sent; nothing else, and what follows stays to be sent.
    pub(crate) async fn results(&mut self) -> Result<()> {
        let types = [EventType::AGENT_TOOL_RESULT, EventType::USER_CUSTOM_TOOL_RESULT];
        self.read(self.unread().with_types(types), false).await.map(drop)
    }

    /// Notes that the beginning of the run was not streamed here.
    pub(crate) const fn joined_late(&mut self) {
        (self.has_gap, self.is_answered) = (true, true);
    }

    /// Sends what the log has of a run that left out updates.
    pub(crate) async fn fill_gap(&mut self) -> Result<()> {
        if std::mem::take(&mut self.has_gap) { self.catch_up().await } else { Ok(()) }
    }

    fn unread(&self) -> ReadEvents {
        ReadEvents::first(PAGE).with_after(self.seen).with_max_bytes(PAGE_BYTES)
    }

    /// Sends what the events of the log have and what was not sent. Returns the last event.
    async fn read(&mut self, read: ReadEvents, is_replay: bool) -> Result<Seq> {
        let of_store = fault::of_store(Some(self.chat.id()));
        let (mut next, mut last) = (Some(read), self.seen);
        while let Some(read) = next {
            let page = self.chat.history(read).await.map_err(of_store)?;
            if let Some(damage) = page.damaged.first() {
                let text = format!("session {}: {damage}", self.chat.id());
                return Err(of_store(agent_core::Error::corrupt(text)));
            }
            for event in &page.events {
                if self.open.flow.is_cut() {
                    return Err(Error::internal_error().data("the client is gone"));
                }
                self.event(event, is_replay).await.map_err(of_store)?;
                last = event.seq;
            }
            next = page.next;
        }
        Ok(last)
    }

    /// Sends what of an event was not sent. Events of unknown types are left out.
    async fn event(&mut self, event: &Event, is_replay: bool) -> agent_core::Result<()> {
        match event.decode()? {
            EventPayload::UserMessage(message) | EventPayload::UserDefineOutcome(message) if is_replay => {
                self.message(SessionUpdate::UserMessageChunk, event.id().to_string(), &message).await;
            }
            EventPayload::AgentMessage(message) => {
                let id = self.names.next(event, message.part);
                self.message(SessionUpdate::AgentMessageChunk, id, &message).await;
            }
            EventPayload::AgentThinking(message) => {
                let id = self.names.next(event, message.part);
                self.message(SessionUpdate::AgentThoughtChunk, id, &message).await;
            }
            EventPayload::AgentPart(item) => {
                let id = self.names.next(event, item.part);
                match &item.content {
                    Part::Refusal { text, .. } => {
                        self.message(SessionUpdate::AgentMessageChunk, id, &Message::new(text.as_str()))
                            .await;
                    }
                    part => self.part(id, part).await,
                }
            }
            EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => {
                self.names.next(event, call.part);
                self.call(&call).await;
            }
            EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result) => {
                self.result(&result).await;
            }
            EventPayload::SessionUpdated(patch) => {
                if let Some(title) = &patch.title {
                    self.title(title.as_ref().map(|title| title.text.as_str())).await;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends an update of a run. Its pieces are announced as streamed; what is stored when it is sent is not.
    pub(crate) async fn of_run(&mut self, update: Update) {
        match &update {
            Update::Skipped { .. } | Update::Part(_) => self.is_answered = true,
            Update::Text(piece) => self.is_answered |= !piece.trim().is_empty(),
            // The answer is what comes behind it.
            Update::ToolDone(_) => self.is_answered = false,
            _ => {}
        }
        match update {
            Update::Skipped { .. } => self.has_gap = true,
            Update::ProviderMessage(text) => {
                self.notice(&format!("The provider says: {}", marked_name(&text))).await;
            }
            Update::Compacted { summarized: true, .. } => {
                let text = "The older messages are too long for the model: it is given a summary of them.";
                self.notice(text).await;
            }
            Update::Compacted { .. } => {
                self.notice("The older messages are too long for the model, and are left out for it.").await;
            }
            // The order of what follows a gap is that of the log.
            _ if self.has_gap => {}
            Update::PartStarted { commit, index, .. } => self.current = Some(name(commit, index)),
            Update::Text(piece) => self.piece(SessionUpdate::AgentMessageChunk, &piece).await,
            Update::Thinking(piece) => self.piece(SessionUpdate::AgentThoughtChunk, &piece).await,
            Update::Part(part) => {
                if let Some(id) = self.current.clone() {
                    self.part(id, &part).await;
                }
            }
            Update::ToolCalled(call) => self.call(&call).await,
            Update::ToolDone(result) => self.result(&result).await,
            _ => {}
        }
    }

    /// Follows the session from what was sent, with the answer that another client's run writes.
    pub(crate) fn live(&self) -> BoxStream<'static, agent_core::Result<Live>> {
        self.chat.live(self.seen)
    }

    /// Sends what was not sent of an event, or of a part of an answer.
    pub(crate) async fn of_live(&mut self, live: Live) -> agent_core::Result<()> {
        match live {
            Live::Event(event) => {
                self.event(&event, false).await?;
                self.seen = event.seq;
            }
            Live::Part { commit, index, kind, text, .. } | Live::Piece { commit, index, kind, text, .. } => {
                self.current = Some(name(commit, index));
                let speaker = match kind {
                    PartKind::Reasoning => SessionUpdate::AgentThoughtChunk,
                    _ => SessionUpdate::AgentMessageChunk,
                };
                if !text.is_empty() {
                    self.piece(speaker, &text).await;
                }
            }
            // The protocol takes nothing back.
            _ => {}
        }
        Ok(())
    }

    /// Tells the person something that is not stored: as a notice, or as a message of the agent if the client shows none.
    pub(crate) async fn notice(&mut self, text: &str) {
        let ours = meta(&json!({ "notice": true }));
        if self.open.takes_notices() {
            let notice = schema::Notice::new(schema::NoticeSeverity::Warning, text).meta(ours);
            return self.send(SessionUpdate::Notice(notice)).await;
        }
        // Some clients join messages that follow each other.
        let block = content::text(&format!("\n\n{text}\n\n"));
        let id = format!("{}/notice/{}", self.seen, self.notices);
        self.notices += 1;
        let chunk = ContentChunk::new(block).message_id(schema::MessageId::new(id)).meta(ours);
        self.send(SessionUpdate::AgentMessageChunk(chunk)).await;
    }

    /// Sends a change of the title.
    pub(crate) async fn title(&mut self, title: Option<&str>) {
        let change = schema::SessionInfoUpdate::new().title(title.map(str::to_owned));
        self.send(SessionUpdate::SessionInfoUpdate(change)).await;
    }

    /// Sends that a call that waited for consent may run.
    pub(crate) async fn allowed(&mut self, call: &CallId) {
        let fields = schema::ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
        self.send(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call.as_str().to_owned(), fields))).await;
    }

    async fn message(&mut self, speaker: Speaker, id: String, message: &Message) {
        let sent = self.streamed.get(&id).copied().unwrap_or(0);
        if message.parts.is_empty() {
            // What was streamed is the beginning of what is stored.
            if let Some(rest) = message.text.get(sent..).filter(|rest| !rest.is_empty()) {
                self.chunk(speaker, &id, content::text(rest), false).await;
                self.streamed.insert(id, message.text.len());
            }
        } else if sent == 0 {
            for block in content::blocks(self.chat, message).await {
                self.chunk(speaker, &id, block, false).await;
            }
            self.streamed.insert(id, usize::MAX);
        }
    }

    async fn piece(&mut self, speaker: Speaker, piece: &str) {
        let id = self.current.clone().unwrap_or_default();
        *self.streamed.entry(id.clone()).or_default() += piece.len();
        self.chunk(speaker, &id, content::text(piece), true).await;
    }

    async fn part(&mut self, id: String, part: &Part) {
        if self.streamed.insert(id.clone(), usize::MAX).is_none()
            && let Some(block) = content::block(self.chat, part, "").await
        {
            self.chunk(SessionUpdate::AgentMessageChunk, &id, block, false).await;
        }
    }

    async fn chunk(&mut self, speaker: Speaker, id: &str, block: ContentBlock, is_streamed: bool) {
        let mut chunk = ContentChunk::new(block);
        if !id.is_empty() {
            chunk = chunk.message_id(schema::MessageId::new(id));
        }
        if is_streamed {
            chunk = chunk.meta(meta(&json!({ "streamed": true })));
        }
        self.send(speaker(chunk)).await;
    }

    async fn call(&mut self, call: &ToolUse) {
        if !self.called.insert(call.call.clone()) {
            return;
        }
        let title = marked_name(&call.name);
        let mut sent = ToolCall::new(call.call.as_str().to_owned(), title).name(call.name.clone());
        if !call.omitted {
            sent = sent.raw_input(value(&call.input));
        }
        self.send(SessionUpdate::ToolCall(sent)).await;
    }

    async fn result(&mut self, result: &ToolResult) {
        if !self.done.insert(result.call.clone()) {
            return;
        }
        let status = match result.outcome {
            ToolOutcome::Ok => ToolCallStatus::Completed,
            _ => ToolCallStatus::Failed,
        };
        let mut blocks = Vec::new();
        let mut fields = schema::ToolCallUpdateFields::new().status(status);
        if !result.omitted {
            match value(&result.output) {
                Value::String(output) => blocks.push(content::text(&output)),
                output => {
                    blocks.push(content::text(result.output.get()));
                    fields = fields.raw_output(output);
                }
            }
        }
        for part in &result.content {
            blocks.extend(content::block(self.chat, part, "").await);
        }
        let blocks: Vec<_> = blocks.into_iter().map(schema::ToolCallContent::from).collect();
        let call = result.call.as_str().to_owned();
        self.send(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call, fields.content(blocks)))).await;
    }

    /// Sends an update as soon as few others wait. If the client is gone, nothing is sent; what is stored is in the log.
    async fn send(&self, update: SessionUpdate) {
        self.open.flow.send().await;
        let id = self.chat.id().to_string();
        let _ = self.client.send_notification(schema::SessionNotification::new(id, update));
    }
}

/// Returns stored JSON as a value. JSON that the value type does not hold is sent as its text.
pub(crate) fn value(json: &RawJson) -> Value {
    json.to().unwrap_or_else(|_| Value::String(json.get().to_owned()))
}
