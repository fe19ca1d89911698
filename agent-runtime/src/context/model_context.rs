//! Model context of a session: the visible history since its last summary, with calls and results kept together.
//!
//! What a model is given is a function of the log that only grows: for a longer log, the messages of the shorter one are
//! its first messages, byte for byte, until an event opens a new window (a compaction, or a cleared history).
//!
//! The answer of a run that failed is not among them: what its model said until then is for people.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::context::assemble::{Piece, Taken, assemble};
use crate::context::limits::ContextLimits;
use crate::context::message::ModelMessage;
use crate::context::messages::Messages;
use crate::context::window::{Assembled, Point, Window};
use agent_core::event::{Compaction, Event, EventPayload, EventType};
use agent_core::json::RawJson;
use agent_core::model::CallId;
use agent_core::session::SessionRecord;
use agent_core::store::{Damaged, ReadEvents};
use agent_core::{CommitId, ErrorKind, Result, Seq, SessionStore, SessionStoreExt};

/// Types of the events that are inputs.
const INPUTS: [EventType; 2] = [EventType::USER_MESSAGE, EventType::USER_DEFINE_OUTCOME];

/// Context that a model receives from a session: the visible history since the last summary.
///
/// A run reads it once at its start and adds the events of the session as they are stored. If the history exceeds the
/// limits, only its newest part is read, and [`needs_compaction`](Self::needs_compaction) says so; memory is bounded by
/// the limits, however long the history is.
#[derive(Clone, Debug)]
pub struct ModelContext {
    limits: ContextLimits,
    system: Option<String>,
    window: Window,
    /// Input that the oldest events of a window answer that was not read to its beginning.
    asked: Option<Piece>,
    taken: Seq,
    /// True if the window was not read to its beginning, because of the limits or of damage.
    cut: bool,
    damaged: Vec<Damaged>,
}

impl ModelContext {
    /// Reads a session's visible history since its last summary, a page at a time from its end.
    ///
    /// Beyond the limits no more is read. If older history is damaged, the newer part is returned and the damage is
    /// [listed](Self::damaged).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// # chat.set_system_prompt("Answer briefly.").await?;
    /// # for text in ["one", "two", "three"] { chat.prompt(text).await?.finish().await?; }
    /// let record = chat.refresh().await?;
    /// let context = ModelContext::read(&*agent.storage().sessions, &record, ContextLimits::default()).await?;
    /// assert_eq!(context.messages().len(), 6);
    /// assert_eq!(context.system(), Some("Answer briefly."));
    /// assert!(!context.needs_compaction() && context.summary().is_none() && context.damaged().is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of [`SessionStore::read`]; `Corrupt` if no event, or the system prompt or the summary, can be read.
    pub async fn read(
        store: &dyn SessionStore,
        session: &SessionRecord,
        limits: ContextLimits,
    ) -> Result<Self> {
        let mut context = Self {
            limits,
            system: None,
            window: Window::after(session.visible_from),
            asked: None,
            taken: session.inputs_claimed_through.max(session.inputs_done_through),
            cut: false,
            damaged: Vec::new(),
        };
        let (mut head, mut damaged) = (Vec::new(), Vec::new());
        if session.summary > Seq::ZERO
            && let Some(event) = one_event(store, session, session.summary).await?
            && let EventPayload::SessionCompacted(compaction) = event.decode()?
        {
            let inputs = read_inputs(store, session, &compaction, &mut damaged).await?;
            (context.window, head) = Window::behind(&compaction, inputs);
        }
        if session.system_prompt > Seq::ZERO
            && let Some(event) = one_event(store, session, session.system_prompt).await?
            && let EventPayload::SystemMessage(prompt) = event.decode()?
        {
            context.system = Some(prompt.text);
        }
        let open = session.open_calls.iter().map(|open| open.call.clone());
        context.window = context.window.with_open(open);
        let oldest = context.read_back(store, session).await?;
        if context.cut {
            context.find_question(store, session, oldest).await?;
        } else {
            context.window.complete(head);
        }
        context.damaged.append(&mut damaged);
        Ok(context)
    }

    /// Reads the events of the window from the newest on. Returns the oldest event whose commit was read whole.
    async fn read_back(&mut self, store: &dyn SessionStore, session: &SessionRecord) -> Result<Seq> {
        let first = ReadEvents::last(64)
            .with_after(self.window.start())
            .with_max_bytes(self.limits.bytes.clamp(1, 1 << 20))
            .with_known_head(session.head);
        let mut next = Some(first.with_before(session.head.next()));
        let (mut oldest, mut inside, mut failed) = (session.head.next(), None, None);
        while let Some(read) = next {
            let is_enough = self.window.is_over(&self.limits)
                && (self.window.is_divisible_without(inside) || self.window.is_far_over(&self.limits));
            if is_enough {
                self.cut = true;
                break;
            }
            // Beyond the limits only a call is looked for, which may be far away.
            let is_search = self.window.is_over(&self.limits);
            let read = if is_search { read.with_max_bytes(1 << 20) } else { read };
            let page = match store.history_of(session, read).await {
                Ok(page) => page,
                Err(error) if *error.kind() == ErrorKind::Corrupt && !self.window.is_empty() => {
                    self.damaged.push(Damaged::of(format!("session {}", session.id), &error));
                    self.cut = true;
                    break;
                }
                Err(error) => return Err(error),
            };
            for event in page.events.iter().rev() {
                oldest = event.seq;
                inside = (event.n > 1).then(|| end_of(event));
                let (end, mark) = (end_of(event), Mark::of(event));
                if let Some(taken) = mark.taken {
                    self.window.push_front(end, Piece::Taken(taken));
                }
                // An event that cannot be decoded is left out for the model, and stays in the log.
                if let Ok(Some(part)) = part_of(event) {
                    self.window.push_front(end, part);
                }
                failed = failed.filter(|of| *of == end).or(mark.fails.then_some(end));
                if failed.is_some() {
                    self.window.withdraw(end);
                }
            }
            self.damaged.extend(page.damaged);
            next = page.next;
            if !self.damaged.is_empty() {
                self.cut = true;
                break;
            }
        }
        if let Some(end) = inside.filter(|_| self.cut) {
            self.window.drop_commit(end);
            oldest = end.next();
        }
        Ok(oldest)
    }

    /// Finds the input that the oldest part answers, if no input was read.
    async fn find_question(
        &mut self,
        store: &dyn SessionStore,
        session: &SessionRecord,
        oldest: Seq,
    ) -> Result<()> {
        let marks = self.window.parts().filter_map(|part| match part {
            Piece::Taken(taken) => Some(taken.last()),
            _ => None,
        });
        let taken = marks.max().max(Some(self.taken));
        let is_taken = |part: &Piece| matches!(part, Piece::Input { seq, .. } if Some(*seq) <= taken);
        let is_read = self.window.parts().any(is_taken);
        if is_read || session.last_input <= session.visible_from || !self.damaged.is_empty() {
            return Ok(());
        }
        self.asked = self.newest_input(store, session, oldest).await?;
        Ok(())
    }

    /// Returns the newest input before an event.
    async fn newest_input(
        &self,
        store: &dyn SessionStore,
        session: &SessionRecord,
        before: Seq,
    ) -> Result<Option<Piece>> {
        // Behind the last input nothing is searched.
        let before = before.min(session.last_input.next());
        let read =
            ReadEvents::last(1).with_after(session.visible_from).with_before(before).with_types(INPUTS);
        let read = read.with_known_head(session.head);
        let event = store.history_of(session, read).await?.events.pop();
        event.map_or(Ok(None), |event| part_of(&event))
    }

    /// Adds an event that the run itself has stored. `end` is the last event of its commit.
    pub(crate) fn push(&mut self, body: EventPayload, commit: CommitId, end: Seq) {
        if let Some(part) = Piece::of(body, end, commit) {
            self.window.push_back(end, part);
        }
    }

    /// Adds an event that another writer has stored.
    pub(crate) fn observe(&mut self, event: &Event) -> Result<()> {
        let (end, part) = (end_of(event), part_of(event));
        let undecoded = match part {
            Ok(part) => {
                part.into_iter().for_each(|part| self.window.push_back(end, part));
                None
            }
            Err(error) => Some(error),
        };
        // Also of an event that cannot be decoded.
        let mark = Mark::of(event);
        if let Some(taken) = mark.taken {
            self.window.push_back(end, Piece::Taken(taken));
        }
        if mark.fails {
            self.window.withdraw(end);
        }
        if let Some(error) = undecoded {
            return Err(error);
        }
        match &event.kind {
            kind if *kind == EventType::SESSION_COMPACTED => {
                if let EventPayload::SessionCompacted(compaction) = event.decode()? {
                    self.compact(&compaction);
                }
            }
            kind if *kind == EventType::SESSION_HISTORY_CLEARED => {
                self.window = Window::after(event.seq);
                self.window.complete(Vec::new());
                self.cut = false;
            }
            kind if *kind == EventType::SYSTEM_MESSAGE => {
                if let EventPayload::SystemMessage(prompt) = event.decode()?
                    && prompt.custom
                {
                    self.system = Some(prompt.text);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Replaces the older part of the window by a summary that is stored.
    pub(crate) fn compact(&mut self, compaction: &Compaction) {
        self.window.compact(compaction, None);
        (self.cut, self.asked) = (false, None);
    }

    /// Returns the position up to which a summary has to replace the window; `None` if it fits the limits, or cannot
    /// be divided.
    pub(crate) fn point(&self) -> Option<Point> {
        let over = self.window.is_over(&self.limits);
        let all = ContextLimits::new(usize::MAX, usize::MAX);
        self.needs_compaction().then(|| self.window.point(if over { &self.limits } else { &all })).flatten()
    }

    /// Returns the context as it is read behind a compaction that is not stored yet.
    pub(crate) async fn compacted(
        &self,
        store: &dyn SessionStore,
        session: &SessionRecord,
        compaction: &Compaction,
    ) -> Result<Self> {
        let mut context = self.clone();
        let inputs = match self.is_whole() {
            true => None,
            false => Some(read_inputs(store, session, compaction, &mut context.damaged).await?),
        };
        context.window.compact(compaction, inputs);
        (context.cut, context.asked) = (false, None);
        Ok(context)
    }

    /// Returns the position after which at most half of the window is left, and the bytes of that half; `None` if it
    /// cannot be divided.
    pub(crate) fn middle(&self) -> Option<(Point, usize)> {
        self.window.middle()
    }

    /// Returns the compaction for a position. Reads the inputs before it if the window was not read to its beginning, and
    /// so does not show which are open there.
    pub(crate) async fn compaction(
        &self,
        store: &dyn SessionStore,
        session: &SessionRecord,
        point: Point,
        summary: String,
    ) -> Result<Compaction> {
        let until = point.until;
        let taken = match point.taken {
            Some(taken) if self.is_whole() || taken.done > Seq::ZERO => taken,
            _ => self.taken_at(store, session, &point).await?,
        };
        let inputs = match self.is_whole() {
            true => self.window.inputs_after(taken.done, &point),
            false => match find_inputs(store, session, taken.done, until).await {
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    self.window.inputs_after(taken.done, &point)
                }
                found => found?,
            },
        };
        let newest = inputs.len().saturating_sub(Compaction::INPUTS_MAX);
        let inputs = inputs.into_iter().skip(newest);
        Ok(Compaction::new(until, summary).with_inputs(inputs, taken.last().min(until)))
    }

    /// Returns the progress of the inputs at a position before which no run is seen to end.
    async fn taken_at(
        &self,
        store: &dyn SessionStore,
        session: &SessionRecord,
        point: &Point,
    ) -> Result<Taken> {
        // The run that is active there is seen to begin before it, or to end after it, or is not over yet.
        let begun = point.taken.map(Taken::last).filter(|claimed| *claimed > Seq::ZERO);
        let seen = begun.or_else(|| self.window.claimed_at(point));
        let (done, now) = (session.inputs_done_through, session.inputs_claimed_through);
        let claimed = seen.unwrap_or(now.max(done)).min(point.until);
        if seen.is_none() && done >= now {
            return Ok(Taken { claimed, done: claimed });
        }
        // The newest question is repeated, also if more were claimed with it: they precede what was read.
        let asked = match self.newest_input(store, session, claimed.next()).await {
            Err(error) if *error.kind() == ErrorKind::Corrupt => None,
            found => found?,
        };
        let asked = match asked {
            Some(Piece::Input { seq, .. }) => Seq::new(seq.get().saturating_sub(1)),
            _ => claimed,
        };
        // No more is answered there than is answered now.
        Ok(Taken { claimed, done: asked.min(done) })
    }

    /// Returns the messages that a summary up to a position replaces.
    pub(crate) fn replaced(&self, point: &Point) -> Messages {
        without_empty(self.window.until(point))
    }

    /// Returns whether the context contains a call with this id.
    pub(crate) fn has_call(&self, id: &CallId) -> bool {
        self.window.parts().any(|part| part.calls().any(|call| call == id))
    }

    /// Returns the session's own system prompt; `None` if it has none.
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Returns the summary of the older part of the history; `None` if the history was not compacted.
    pub fn summary(&self) -> Option<&str> {
        self.window.summary()
    }

    /// Returns the damage that was found while the history was read.
    pub fn damaged(&self) -> &[Damaged] {
        &self.damaged
    }

    /// Returns true if the history since the last summary exceeds the limits, or a part of it is damaged.
    ///
    /// [`messages`](Self::messages) then returns its newest part. The next run of the session compacts it first.
    pub fn needs_compaction(&self) -> bool {
        self.cut || self.window.is_over(&self.limits)
    }

    /// Returns the conversation; its newest part, if it [needs a compaction](Self::needs_compaction).
    ///
    /// Every tool call has exactly one result directly after its message, and no result is without its call. The
    /// conversation starts with the summary if the history was compacted, otherwise with a message of a person, if
    /// there is one.
    pub fn messages(&self) -> Messages {
        without_empty(self.given())
    }

    /// Returns the same, with answers without items that say what the provider refuses.
    pub(crate) fn given(&self) -> Vec<ModelMessage> {
        if self.needs_compaction() { self.newest() } else { self.all() }
    }

    pub(crate) const fn limits(&self) -> ContextLimits {
        self.limits
    }

    /// Returns about how much memory the parts and the messages made of them take, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.window.size_bytes().saturating_add(self.system.as_ref().map_or(0, String::len))
    }

    /// Sets how far the inputs are claimed, as a session says.
    pub(crate) fn take(&mut self, session: &SessionRecord) {
        self.taken = session.inputs_claimed_through.max(session.inputs_done_through);
    }

    /// Returns whether the window was read to its beginning.
    pub(crate) const fn is_whole(&self) -> bool {
        !self.cut
    }

    /// Returns what the conversation has gained for a request of a run, which has made room in it if that was possible. `None` if
    /// the conversation does not begin with what is assembled.
    pub(crate) fn further(&self, assembled: &mut Assembled) -> Option<Vec<ModelMessage>> {
        match self.cut {
            true => assembled.begin_unsettled().then(|| self.newest()),
            false => self.window.further(assembled, self.taken),
        }
    }

    fn all(&self) -> Vec<ModelMessage> {
        self.window.further(&mut Assembled::default(), self.taken).unwrap_or_default()
    }

    /// Returns the newest messages that fit the limits, from a message of a person on.
    fn newest(&self) -> Vec<ModelMessage> {
        let mut messages = self.all();
        let summary = self.summary().map(|_| messages.remove(0));
        let (mut count, mut bytes) = summary.as_ref().map_or((0, 0), |summary| (1, summary.size_bytes()));
        let mut from = messages.len();
        while from > 0 {
            // Results stay with the answer that made their calls.
            let at = from - 1 - usize::from(matches!(messages[from - 1], ModelMessage::ToolResults(_)));
            count += from - at;
            bytes += messages[at..from].iter().map(ModelMessage::size_bytes).sum::<usize>();
            let fits = count <= self.limits.messages && bytes <= self.limits.bytes;
            if !fits && from < messages.len() {
                break;
            }
            from = at;
        }
        let mut newest = messages.split_off(from);
        match newest.iter().position(is_input) {
            Some(first) => drop(newest.drain(..first)),
            None => {
                let asked = || assemble(self.asked.as_ref(), Seq::new(u64::MAX)).pop();
                newest.splice(..0, messages.into_iter().rfind(is_input).or_else(asked));
            }
        }
        summary.into_iter().chain(newest).collect()
    }

    /// Returns the system prompt: the session's own, else the given one.
    pub(crate) fn system_or(&self, default: Option<&str>) -> Option<String> {
        self.system.as_deref().or(default).map(str::to_owned)
    }
}

fn without_empty(mut messages: Vec<ModelMessage>) -> Messages {
    messages.retain(|message| !matches!(message, ModelMessage::Agent(said) if said.items.is_empty()));
    messages.into()
}

fn is_input(message: &ModelMessage) -> bool {
    matches!(message, ModelMessage::User(_))
}

fn part_of(event: &Event) -> Result<Option<Piece>> {
    Ok(Piece::of(event.decode()?, event.seq, event.commit))
}

/// Returns the last event of an event's commit.
fn end_of(event: &Event) -> Seq {
    Seq::new(event.seq.get().saturating_add(u64::from(event.of.saturating_sub(event.n))))
}

/// What the change of status says that an event carries.
#[derive(Default)]
struct Mark {
    /// Progress of the inputs.
    taken: Option<Taken>,
    /// True if a run ends there because it failed. The answer in the same commit is not whole, and nobody asks for the rest.
    fails: bool,
}

impl Mark {
    fn of(event: &Event) -> Self {
        if event.kind == EventType::SESSION_CREATED {
            // A fork does not answer the inputs that are open in its parent.
            let Ok(EventPayload::SessionCreated(created)) = event.decode() else { return Self::default() };
            let done = created.inherited.inputs_done_through;
            return Self { taken: Some(Taken { claimed: done, done }), fails: false };
        }
        let Some(Ok(progress)) = event.transition.as_ref().map(RawJson::to::<Progress>) else {
            return Self::default();
        };
        let (claimed, done) = (progress.inputs_claimed_through, progress.inputs_done_through);
        let taken = claimed.or(done);
        let taken =
            taken.map(|_| Taken { claimed: claimed.unwrap_or_default(), done: done.unwrap_or_default() });
        Self { taken, fails: progress.failure.is_some() && event.run.is_some() }
    }
}

/// Part of a [`Transition`](agent_core::model::Transition). Every other event of a window has one; parsing the whole of each
/// takes as long as parsing the messages.
#[derive(Deserialize)]
struct Progress {
    inputs_claimed_through: Option<Seq>,
    inputs_done_through: Option<Seq>,
    failure: Option<IgnoredAny>,
}

/// Reads the inputs that are repeated behind a summary, oldest first; the newest of them, if they are many. One that is
/// damaged is left out, and listed.
async fn read_inputs(
    store: &dyn SessionStore,
    session: &SessionRecord,
    compaction: &Compaction,
    damaged: &mut Vec<Damaged>,
) -> Result<Vec<Piece>> {
    let again = compaction.inputs.iter().flatten().copied();
    let mut again: Vec<_> =
        again.filter(|seq| *seq > session.visible_from && *seq <= compaction.until).collect();
    let mut inputs = Vec::new();
    // Collected from the newest on. Those that lie close together are read together.
    while let Some(newest) = again.pop().filter(|_| Window::has_room_for(&inputs)) {
        let mut wanted = vec![newest];
        while let Some(seq) = again.pop_if(|seq| newest.get().saturating_sub(seq.get()) < 64) {
            wanted.push(seq);
        }
        let before = wanted.last().map_or(0, |oldest| oldest.get().saturating_sub(1));
        let first = ReadEvents::last(64).with_after(Seq::new(before)).with_before(newest.next());
        let mut next = Some(first.with_types(INPUTS).with_max_bytes(1 << 20).with_known_head(session.head));
        while let Some(read) = next.take().filter(|_| Window::has_room_for(&inputs)) {
            let page = match store.history_of(session, read).await {
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    damaged.push(Damaged::of(format!("session {}", session.id), &error));
                    break;
                }
                page => page?,
            };
            let read = page.events.iter().rev().filter(|event| wanted.contains(&event.seq));
            inputs.extend(read.filter_map(|event| part_of(event).ok().flatten()));
            damaged.extend(page.damaged);
            next = page.next;
        }
    }
    inputs.reverse();
    Ok(inputs)
}

/// Searches for the inputs after `after`, up to and including `until`. Returns their numbers, oldest first; the newest, if
/// they are many.
async fn find_inputs(
    store: &dyn SessionStore,
    session: &SessionRecord,
    after: Seq,
    until: Seq,
) -> Result<Vec<Seq>> {
    let (after, until) = (after.max(session.visible_from), until.min(session.last_input));
    let mut inputs = Vec::new();
    let first = ReadEvents::last(Compaction::INPUTS_MAX).with_after(after).with_before(until.next());
    let mut next = Some(first.with_types(INPUTS).with_max_bytes(1 << 20).with_known_head(session.head));
    while let Some(read) = next.filter(|_| after < until && inputs.len() < Compaction::INPUTS_MAX) {
        let page = store.history_of(session, read).await?;
        // Collected from the newest on.
        inputs.extend(page.events.iter().rev().map(|event| event.seq));
        next = page.next;
    }
    inputs.reverse();
    Ok(inputs)
}

async fn one_event(store: &dyn SessionStore, session: &SessionRecord, seq: Seq) -> Result<Option<Event>> {
    let before = Seq::new(seq.get().saturating_sub(1));
    let read = ReadEvents::first(1).with_after(before).with_known_head(session.head);
    let page = store.history_of(session, read).await?;
    Ok(page.events.into_iter().next().filter(|event| event.seq == seq))
}
