//! Model context of a session: the newest part of the visible history that fits the limits, with calls and results kept
//! together.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::context::assemble::{Block, ModelMessage, Part, assemble, shortened};
use agent_core::event::{Event, EventPayload, EventType};
use agent_core::model::{CallId, ToolPayloads};
use agent_core::session::{OPEN_CALLS_MAX, Session};
use agent_core::store::{Damaged, ReadEvents};
use agent_core::{CommitId, ErrorKind, Result, Seq, SessionStore, SessionStoreExt};

/// Limits on the history that a model receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ContextLimits {
    /// Maximum number of messages; default 200. A call and its result stay together, so the last exchange may have more.
    pub messages: usize,
    /// Maximum bytes of text; default 512 KiB. The last exchange is always included; if it alone is longer, the middle
    /// of its texts is left out.
    pub bytes: usize,
    /// Maximum bytes of one tool's output; default 64 KiB. The middle of a longer output is left out.
    pub tool_output_bytes: usize,
}

impl Default for ContextLimits {
    fn default() -> Self {
        Self { messages: 200, bytes: 512 << 10, tool_output_bytes: 64 << 10 }
    }
}

impl ContextLimits {
    /// Creates limits with these numbers of messages and bytes, and 64 KiB for one tool's output.
    ///
    /// ```
    /// use agent_runtime::context::ContextLimits;
    ///
    /// let limits = ContextLimits::default();
    /// assert_eq!((limits.messages, limits.bytes, limits.tool_output_bytes), (200, 512 << 10, 64 << 10));
    ///
    /// let limits = ContextLimits::new(50, 100_000).with_tool_output_bytes(8_000);
    /// assert_eq!((limits.messages, limits.bytes, limits.tool_output_bytes), (50, 100_000, 8_000));
    /// ```
    pub fn new(messages: usize, bytes: usize) -> Self {
        Self { messages, bytes, ..Self::default() }
    }

    /// Sets the maximum bytes of one tool's output; default 64 KiB.
    #[must_use]
    pub fn with_tool_output_bytes(mut self, bytes: usize) -> Self {
        self.tool_output_bytes = bytes;
        self
    }
}

/// Context that a model receives from a session: the newest part of its visible history, within limits.
///
/// A run reads it once at its start and adds its own events. Memory is bounded by the limits, however long the history
/// is.
#[derive(Clone, Debug)]
pub struct ModelContext {
    limits: ContextLimits,
    system: Option<String>,
    summary: Option<String>,
    parts: VecDeque<Part>,
    /// Input that is to be answered, if it is older than the events that were read.
    asked: Option<Part>,
    taken: Seq,
    /// Sequence number of the oldest event that was read.
    oldest: Seq,
    cut: bool,
    damaged: Vec<Damaged>,
    /// Still open calls, which the log keeps; `Some` if the log omits other inputs and outputs of tools.
    only_calls: Option<Vec<Seq>>,
}

impl ModelContext {
    /// Reads the newest part of a session's visible history, a page at a time, until the limits are reached.
    ///
    /// If older history is damaged, the newer part is returned and the damage is [listed](Self::damaged).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_runtime::context::{ContextLimits, ModelContext};
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// # chat.set_system_prompt("Answer briefly.").await?;
    /// # for text in ["one", "two", "three"] { chat.prompt(text).await?.finish().await?; }
    /// # let record = chat.refresh().await?;
    /// # let sessions = &*agent.storage().sessions;
    /// let context = ModelContext::read(sessions, &record, ContextLimits::default()).await?;
    /// assert_eq!(context.messages().len(), 6);
    /// assert_eq!(context.system(), Some("Answer briefly."));
    /// assert!(!context.is_cut() && context.summary().is_none() && context.damaged().is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of [`SessionStore::read`]; `Corrupt` if no event, or the system prompt or the summary, can be read.
    pub async fn read<S>(store: &S, session: &Session, limits: ContextLimits) -> Result<Self>
    where
        S: SessionStore + ?Sized,
    {
        let mut context = Self {
            limits,
            system: None,
            summary: None,
            parts: VecDeque::new(),
            asked: None,
            taken: session.inputs_claimed_through.max(session.inputs_done_through),
            oldest: session.head.next(),
            cut: false,
            damaged: Vec::new(),
            only_calls: session
                .attributes
                .tool_payloads
                .filter(|keep| *keep != ToolPayloads::Store)
                .map(|_| session.open_calls.iter().map(|open| open.seq).collect()),
        };
        context.read_back(store, session).await?;
        if session.system_prompt > Seq::ZERO
            && let Some(event) = one_event(store, session, session.system_prompt).await?
            && let EventPayload::SystemMessage(prompt) = event.decode()?
        {
            context.system = Some(prompt.text);
        }
        if session.summary > Seq::ZERO
            && let Some(event) = one_event(store, session, session.summary).await?
            && let EventPayload::SessionCompacted(compaction) = event.decode()?
        {
            context.summary = Some(shortened(compaction.summary, limits.bytes / 2));
        }
        context.find_questions(store, session).await?;
        context.find_older_question(store, session).await?;
        context.place_questions();
        Ok(context)
    }

    /// Finds the input that is to be answered, if it is older than the events that were read.
    async fn find_questions<S>(&mut self, store: &S, session: &Session) -> Result<()>
    where
        S: SessionStore + ?Sized,
    {
        let is_asked = |part: &Part| matches!(part, Part::Input { seq, .. } if *seq == self.taken);
        if self.taken <= session.visible_from || self.parts.iter().any(is_asked) {
            return Ok(());
        }
        let is_taken_here = |part: &Part| matches!(part, Part::Taken(seq) if *seq >= self.taken);
        if !self.parts.iter().any(is_taken_here) {
            if let Some(event) = one_event(store, session, self.taken).await? {
                self.asked = self.part(&event)?.filter(|part| matches!(part, Part::Input { .. }));
            }
            return Ok(());
        }
        // The inputs arrived during a long run: they precede much of its text, and are claimed after it.
        let read = ReadEvents::last(self.limits.messages)
            .with_after(session.inputs_done_through.max(session.visible_from))
            .with_before(self.taken.next())
            .with_types([EventType::USER_MESSAGE, EventType::USER_DEFINE_OUTCOME])
            .with_max_bytes(self.limits.bytes);
        for event in store.history_of(session, read).await?.events.iter().rev() {
            if let Ok(Some(part)) = self.part(event) {
                self.parts.push_front(part);
            }
        }
        Ok(())
    }

    /// Finds the input that the oldest part answers, if no input was read. In the middle of a run from which the
    /// session was forked, only the log holds it.
    async fn find_older_question<S>(&mut self, store: &S, session: &Session) -> Result<()>
    where
        S: SessionStore + ?Sized,
    {
        let marks = self.parts.iter().filter_map(|part| match part {
            Part::Taken(seq) => Some(*seq),
            _ => None,
        });
        let taken = marks.max().max(Some(self.taken));
        let is_taken = |part: &Part| matches!(part, Part::Input { seq, .. } if Some(*seq) <= taken);
        let asked = self.asked.is_some() || self.parts.iter().any(is_taken);
        if !self.cut || asked || session.last_input <= session.visible_from || !self.damaged.is_empty() {
            return Ok(());
        }
        let read = ReadEvents::last(1)
            .with_after(session.visible_from)
            .with_before(self.oldest)
            .with_types([EventType::USER_MESSAGE, EventType::USER_DEFINE_OUTCOME]);
        if let Some(event) = store.history_of(session, read).await?.events.pop() {
            self.asked = self.part(&event)?;
        }
        Ok(())
    }

    /// Moves each input to the point where it was claimed, so that it is not dropped before messages that precede that
    /// point.
    fn place_questions(&mut self) {
        let mut waiting = VecDeque::new();
        let mut placed = VecDeque::with_capacity(self.parts.len());
        for part in self.parts.drain(..) {
            match part {
                Part::Input { .. } => waiting.push_back(part),
                Part::Taken(taken) => {
                    let is_taken = |part: &mut Part| matches!(part, Part::Input { seq, .. } if *seq <= taken);
                    while let Some(input) = waiting.pop_front_if(is_taken) {
                        placed.push_back(input);
                    }
                    placed.push_back(part);
                }
                _ => placed.push_back(part),
            }
        }
        placed.append(&mut waiting);
        self.parts = placed;
    }

    async fn read_back<S>(&mut self, store: &S, session: &Session) -> Result<()>
    where
        S: SessionStore + ?Sized,
    {
        let from = session.visible_from.max(session.context_from);
        let first = ReadEvents::last(64).with_after(from).with_max_bytes(self.limits.bytes.min(1 << 20));
        let mut next = Some(first.with_before(session.head.next()));
        // The commit of the oldest part, if that part is a call whose message may begin before it.
        let mut inside = None;
        while let Some(read) = next {
            // The newest exchange is read to its beginning, also beyond the limits, up to a multiple of them.
            let whole = inside.is_none() && self.has_newest_exchange();
            if self.is_full() && (whole || self.is_far_beyond()) {
                self.cut = true;
                break;
            }
            let page = match store.history_of(session, read).await {
                Ok(page) => page,
                Err(error) if *error.kind() == ErrorKind::Corrupt && !self.parts.is_empty() => {
                    self.damaged.push(Damaged::new(format!("session {}", session.id), error.to_string()));
                    self.cut = true;
                    break;
                }
                Err(error) => return Err(error),
            };
            for event in page.events.iter().rev() {
                self.oldest = event.seq;
                if let Some(taken) = taken_by(event) {
                    self.parts.push_front(Part::Taken(taken));
                }
                // An event that cannot be decoded is left out for the model, and stays in the log.
                if let Ok(Some(part)) = self.part(event) {
                    let follows = event.n > 1 && matches!(part, Part::Call { .. });
                    inside = follows.then_some(event.commit);
                    self.parts.push_front(part);
                }
            }
            self.damaged.extend(page.damaged);
            next = page.next;
            if !self.damaged.is_empty() {
                self.cut = true;
                break;
            }
        }
        if let Some(commit) = inside.filter(|_| self.cut) {
            self.drop_calls_of(commit);
        }
        Ok(())
    }

    /// Drops the rest of an agent's message whose beginning is cut off. The assembly leaves out results without calls.
    fn drop_calls_of(&mut self, cut: CommitId) {
        while matches!(self.parts.front(), Some(Part::Call { commit, .. }) if *commit == cut) {
            self.parts.pop_front();
        }
    }

    fn is_full(&self) -> bool {
        self.bytes() >= self.limits.bytes || self.count() >= self.limits.messages
    }

    fn is_far_beyond(&self) -> bool {
        let calls = self.limits.tool_output_bytes.saturating_mul(OPEN_CALLS_MAX);
        self.bytes() >= self.limits.bytes.saturating_mul(8).saturating_add(calls)
            || self.parts.len() >= self.limits.messages.saturating_mul(8).saturating_add(1024)
    }

    /// Returns whether the call of the newest result is included.
    fn has_newest_exchange(&self) -> bool {
        let newest = self.parts.iter().rev().find_map(|part| match part {
            Part::Result(result) => Some(&result.call),
            _ => None,
        });
        newest.is_none_or(|call| self.has_call(call))
    }

    /// Returns the index at which the agent's newest message begins, or that of the last part.
    fn newest_exchange(&self) -> usize {
        let last = self.parts.len().saturating_sub(1);
        let said = |part: &Part| matches!(part, Part::Agent { .. } | Part::Call { .. });
        let Some(newest) = self.parts.iter().rposition(said) else { return last };
        let Some(Part::Call { commit, .. }) = self.parts.get(newest) else { return newest };
        let same = |part: &Part| matches!(part, Part::Agent { commit: c, .. } | Part::Call { commit: c, .. } if c == commit);
        self.parts.iter().position(same).unwrap_or(newest)
    }

    /// Returns the maximum number of messages that the parts produce.
    fn count(&self) -> usize {
        self.parts.iter().filter(|part| !matches!(part, Part::Taken(_) | Part::Result(_))).count()
    }

    fn bytes(&self) -> usize {
        self.parts.iter().map(Part::size_bytes).sum()
    }

    fn part(&self, event: &Event) -> Result<Option<Part>> {
        let part = self.part_of(event.decode()?, event.seq, event.commit);
        Ok(part.filter(|part| match (part, &self.only_calls) {
            (Part::Call { .. }, Some(only)) => only.contains(&event.seq),
            (Part::Result(_), Some(_)) => false,
            _ => true,
        }))
    }

    fn part_of(&self, body: EventPayload, seq: Seq, commit: CommitId) -> Option<Part> {
        Part::of(body, seq, commit, self.limits.bytes, self.limits.tool_output_bytes.min(self.limits.bytes))
    }

    /// Adds an event that the run itself has written, as if it had been read.
    pub(crate) fn push(&mut self, body: EventPayload, commit: CommitId) {
        let Some(part) = self.part_of(body, Seq::ZERO, commit) else { return };
        self.parts.push_back(part);
    }

    /// Returns whether the context contains a call with this id.
    pub(crate) fn has_call(&self, id: &CallId) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Call { call, .. } if call.call == *id))
    }

    /// Returns the session's own system prompt; `None` if it has none.
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Returns the summary of the older part of the history; `None` if the history was not compacted.
    pub fn summary(&self) -> Option<&str> {
        self.summary.as_deref()
    }

    /// Returns true if older history was not read, because of the limits or of damage.
    ///
    /// [`messages`](Self::messages) may leave out further messages to fit the limits.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_runtime::context::{ContextLimits, ModelContext};
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// # chat.set_system_prompt("Answer briefly.").await?;
    /// # for _ in 0..40 { chat.prompt("Hello").await?.finish().await?; }
    /// # let record = chat.refresh().await?;
    /// # let sessions = &*agent.storage().sessions;
    /// let context = ModelContext::read(sessions, &record, ContextLimits::new(2, 100_000)).await?;
    /// assert!(context.is_cut());
    /// # Ok(()) }
    /// ```
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the damage that was found while the history was read.
    pub fn damaged(&self) -> &[Damaged] {
        &self.damaged
    }

    /// Returns the conversation, within the limits.
    ///
    /// Every tool call has exactly one result directly after its message, and no result is without its call. The
    /// conversation starts with the summary if the history was compacted, otherwise with a message of a person, if
    /// there is one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_runtime::context::{ContextLimits, ModelContext, ModelMessage};
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// # chat.set_system_prompt("Answer briefly.").await?;
    /// # for text in ["one", "two", "three"] { chat.prompt(text).await?.finish().await?; }
    /// # let record = chat.refresh().await?;
    /// # let sessions = &*agent.storage().sessions;
    /// let context = ModelContext::read(sessions, &record, ContextLimits::new(2, 100_000)).await?;
    /// assert_eq!(context.messages(), [ModelMessage::User("three".to_owned()), ModelMessage::agent("three")]);
    /// # Ok(()) }
    /// ```
    pub fn messages(&self) -> Vec<ModelMessage> {
        let mut blocks = assemble(&self.parts, self.taken);
        if let Some(newest) = blocks.last_mut() {
            shrink(newest, self.limits.bytes);
        }
        let summary = self.summary.clone().map(ModelMessage::Summary);
        let (mut count, mut bytes) = summary.as_ref().map_or((0, 0), |summary| (1, summary.size_bytes()));
        let mut from = blocks.len();
        for (at, block) in blocks.iter().enumerate().rev() {
            count += block.len();
            bytes += size(block);
            let fits = count <= self.limits.messages && bytes <= self.limits.bytes;
            if !fits && at + 1 < blocks.len() {
                break;
            }
            from = at;
        }
        let cut = self.cut || from > 0;
        let asked = blocks[..from].iter().rev().find(|block| is_input(block)).cloned();
        let asked =
            asked.or_else(|| self.asked.as_ref().and_then(|part| assemble([part], Seq::new(u64::MAX)).pop()));
        blocks.drain(..from);
        if cut {
            match blocks.iter().position(is_input) {
                Some(first) => drop(blocks.drain(..first)),
                None => blocks.splice(..0, asked).for_each(drop),
            }
        }
        summary.into_iter().chain(blocks.into_iter().flatten()).collect()
    }

    /// Drops the oldest parts that exceed the limits, so that the context of a long run does not grow.
    #[doc(hidden)]
    pub fn trim(&mut self) {
        let kept = self.parts.len() - self.newest_exchange().min(self.parts.len());
        let (most, bytes) = (self.limits.messages.saturating_mul(2), self.limits.bytes.saturating_mul(2));
        while self.parts.len() > kept && (self.count() > most || self.bytes() > bytes) {
            self.cut = true;
            match self.parts.pop_front() {
                Some(input @ Part::Input { .. }) => self.asked = Some(input),
                Some(Part::Agent { commit, .. } | Part::Call { commit, .. }) => self.drop_calls_of(commit),
                _ => {}
            }
        }
    }

    /// Returns the system prompt: the session's own, else the given one.
    pub(crate) fn system_or(&self, default: Option<&str>) -> Option<String> {
        let text = self.system.as_deref().or(default)?;
        Some(shortened(text.to_owned(), self.limits.bytes))
    }
}

/// Shortens the results of an exchange that is larger than the limit.
fn shrink(block: &mut Block, most: usize) {
    if size(block) <= most {
        return;
    }
    for message in block {
        if let ModelMessage::ToolResults(results) = message {
            let each = (most / results.len().max(1)).max(256);
            for result in results {
                result.output = shortened(std::mem::take(&mut result.output), each);
            }
        }
    }
}

fn size(block: &Block) -> usize {
    block.iter().map(ModelMessage::size_bytes).sum()
}

fn is_input(block: &Block) -> bool {
    matches!(block.first(), Some(ModelMessage::User(_)))
}

/// Returns the last input that the transition of an event claims or completes.
fn taken_by(event: &Event) -> Option<Seq> {
    let transition = event.transition().ok()??;
    transition.inputs_claimed_through.max(transition.inputs_done_through)
}

async fn one_event<S>(store: &S, session: &Session, seq: Seq) -> Result<Option<Event>>
where
    S: SessionStore + ?Sized,
{
    let before = Seq::new(seq.get().saturating_sub(1));
    let page = store.history_of(session, ReadEvents::first(1).with_after(before)).await?;
    Ok(page.events.into_iter().next().filter(|event| event.seq == seq))
}
