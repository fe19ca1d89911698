//! What a model is given from a session: the newest part of the visible history that fits, pair-safe.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::context::assemble::{Block, ModelMessage, Part, assemble, shortened};
use agent_core::event::{Body, Event, EventType};
use agent_core::model::{CallId, Keep};
use agent_core::session::{OPEN_CALLS_MAX, Session};
use agent_core::store::{Damaged, ReadEvents};
use agent_core::{CommitId, ErrorKind, Result, Seq, SessionStore, SessionStoreExt};

/// What of the history a model is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ContextLimits {
    /// The most messages. A call and its result stay together, so the last exchange may have more.
    pub messages: usize,
    /// The most bytes of text. The last exchange is there in any case.
    pub bytes: usize,
    /// The most bytes of one tool's output; the middle of a longer one is left out.
    pub tool_output_bytes: usize,
}

impl Default for ContextLimits {
    fn default() -> Self {
        Self { messages: 200, bytes: 512 << 10, tool_output_bytes: 64 << 10 }
    }
}

impl ContextLimits {
    /// At most so many messages and bytes.
    pub fn new(messages: usize, bytes: usize) -> Self {
        Self { messages, bytes, ..Self::default() }
    }

    /// Sets the most bytes of one tool's output.
    #[must_use]
    pub fn tool_output_bytes(mut self, bytes: usize) -> Self {
        self.tool_output_bytes = bytes;
        self
    }
}

/// What a model is given from a session.
///
/// Read once at the start of a run, and kept up to date with what the run itself adds. It holds what the limits allow,
/// however long the history is.
#[derive(Clone, Debug)]
pub struct ModelContext {
    limits: ContextLimits,
    system: Option<String>,
    summary: Option<String>,
    parts: VecDeque<Part>,
    /// The input that is to be answered, where it lies before what was read.
    asked: Option<Part>,
    taken: Seq,
    /// The oldest event that was read.
    oldest: Seq,
    cut: bool,
    damaged: Vec<Damaged>,
    /// Where the log does not keep what tools are given and give: the calls that are still open, which it keeps.
    only_calls: Option<Vec<Seq>>,
}

impl ModelContext {
    /// Reads the newest part of a session's visible history, a page at a time, until the limits are met.
    ///
    /// Where older history is damaged, what is newer is given, and the damage [named](Self::damaged).
    ///
    /// # Errors
    ///
    /// Those of [`SessionStore::read`].
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
            taken: session.taken.max(session.handled),
            oldest: session.head.next(),
            cut: false,
            damaged: Vec::new(),
            only_calls: session
                .attributes
                .keep
                .filter(|keep| *keep != Keep::Everything)
                .map(|_| session.open_calls.iter().map(|open| open.seq).collect()),
        };
        context.read_back(store, session).await?;
        if session.system_prompt > Seq::ZERO
            && let Some(event) = one_event(store, session, session.system_prompt).await?
            && let Body::SystemMessage(prompt) = event.body()?
        {
            context.system = Some(prompt.text);
        }
        if session.summary > Seq::ZERO
            && let Some(event) = one_event(store, session, session.summary).await?
            && let Body::SessionCompacted(compaction) = event.body()?
        {
            context.summary = Some(shortened(compaction.summary, limits.bytes / 2));
        }
        context.find_questions(store, session).await?;
        context.find_older_question(store, session).await?;
        context.place_questions();
        Ok(context)
    }

    /// Finds what is to be answered where it lies before what was read.
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
        // They came while a long run went on: they lie before much that it said, and are taken up behind it.
        let read = ReadEvents::last(self.limits.messages)
            .after(session.handled.max(session.visible_from))
            .before(self.taken.next())
            .kinds([EventType::USER_MESSAGE, EventType::USER_DEFINE_OUTCOME])
            .max_bytes(self.limits.bytes);
        for event in store.history_of(session, read).await?.events.iter().rev() {
            if let Ok(Some(part)) = self.part(event) {
                self.parts.push_front(part);
            }
        }
        Ok(())
    }

    /// Finds what the oldest part answers, where nothing that was asked was read: in the middle of a run from which the
    /// session was forked, nobody but the log knows it.
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
            .after(session.visible_from)
            .before(self.oldest)
            .kinds([EventType::USER_MESSAGE, EventType::USER_DEFINE_OUTCOME]);
        if let Some(event) = store.history_of(session, read).await?.events.pop() {
            self.asked = self.part(&event)?;
        }
        Ok(())
    }

    /// Puts each input where it was taken up, so that it is not dropped before what was said before that.
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
        let first = ReadEvents::last(64).after(from).max_bytes(self.limits.bytes.min(1 << 20));
        let mut next = Some(first.before(session.head.next()));
        // The commit of the oldest part, where that is a call whose message may begin before it.
        let mut inside = None;
        while let Some(read) = next {
            // The newest exchange is read to its beginning, also beyond the limits, but not without end.
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
                // What cannot be read as its type is left out for the model, and stays in the log.
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

    /// Drops the rest of an agent's message whose beginning is cut off. Results without their calls are left out by
    /// the assembly.
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

    /// Whether the call of the newest result is there.
    fn has_newest_exchange(&self) -> bool {
        let newest = self.parts.iter().rev().find_map(|part| match part {
            Part::Result(result) => Some(&result.call),
            _ => None,
        });
        newest.is_none_or(|call| self.has_call(call))
    }

    /// Where the newest message of the agent begins, or the last part.
    fn newest_exchange(&self) -> usize {
        let last = self.parts.len().saturating_sub(1);
        let said = |part: &Part| matches!(part, Part::Agent { .. } | Part::Call { .. });
        let Some(newest) = self.parts.iter().rposition(said) else { return last };
        let Some(Part::Call { commit, .. }) = self.parts.get(newest) else { return newest };
        let same = |part: &Part| matches!(part, Part::Agent { commit: c, .. } | Part::Call { commit: c, .. } if c == commit);
        self.parts.iter().position(same).unwrap_or(newest)
    }

    /// How many messages the parts come to, at most.
    fn count(&self) -> usize {
        self.parts.iter().filter(|part| !matches!(part, Part::Taken(_) | Part::Result(_))).count()
    }

    fn bytes(&self) -> usize {
        self.parts.iter().map(Part::size_bytes).sum()
    }

    fn part(&self, event: &Event) -> Result<Option<Part>> {
        let part = self.part_of(event.body()?, event.seq, event.commit);
        Ok(part.filter(|part| match (part, &self.only_calls) {
            (Part::Call { .. }, Some(only)) => only.contains(&event.seq),
            (Part::Result(_), Some(_)) => false,
            _ => true,
        }))
    }

    fn part_of(&self, body: Body, seq: Seq, commit: CommitId) -> Option<Part> {
        Part::of(body, seq, commit, self.limits.bytes, self.limits.tool_output_bytes.min(self.limits.bytes))
    }

    /// Adds what the run itself has written, as if it had been read.
    pub(crate) fn push(&mut self, body: Body, commit: CommitId) {
        let Some(part) = self.part_of(body, Seq::ZERO, commit) else { return };
        self.parts.push_back(part);
    }

    /// Whether a call of this id is in it.
    pub(crate) fn has_call(&self, id: &CallId) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Call { call, .. } if call.call == *id))
    }

    /// The session's own system prompt, where it has one.
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// What stands for the older part of the history, where it was compacted.
    pub fn summary(&self) -> Option<&str> {
        self.summary.as_deref()
    }

    /// Whether older history is left out.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// What could not be read.
    pub fn damaged(&self) -> &[Damaged] {
        &self.damaged
    }

    /// The conversation, within the limits.
    ///
    /// Every tool call has exactly one result right behind its message, and no result is without its call. It starts
    /// with the summary, where the history was compacted, else with what a person said, wherever a person said
    /// anything.
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

    /// Drops what no longer fits, so that a long run does not grow.
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

    /// The system prompt: the session's own, else the given one.
    pub(crate) fn system_or(&self, default: Option<&str>) -> Option<String> {
        let text = self.system.as_deref().or(default)?;
        Some(shortened(text.to_owned(), self.limits.bytes))
    }
}

/// Shortens the results of an exchange that is larger than all room.
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

/// The last input that is taken up, or done with, by the change that an event made.
fn taken_by(event: &Event) -> Option<Seq> {
    let transition = event.transition().ok()??;
    transition.taken.max(transition.handled)
}

async fn one_event<S>(store: &S, session: &Session, seq: Seq) -> Result<Option<Event>>
where
    S: SessionStore + ?Sized,
{
    let before = Seq::new(seq.get().saturating_sub(1));
    let page = store.history_of(session, ReadEvents::first(1).after(before)).await?;
    Ok(page.events.into_iter().next().filter(|event| event.seq == seq))
}
