//! The model. All blobs have the same bytes, which are the worst case: their keys differ in the head and in the random
//! part alone. A request is one step, which happens at any time after it was decided on.

use std::collections::BTreeSet;

use stateright::{Model, Property};

/// How many events behind the head that its key names a commit may begin that names a blob.
const REACH: u8 = 2;
/// How often a caller puts a blob that turned out to be missing.
const ROUNDS: u8 = 2;

/// The ways to get the protocol wrong that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A blob is deleted though a commit may still come that names it.
    DeletedWithinReach,
    /// A commit names a blob that was put for a head too long ago.
    NamedBeyondReach,
    /// A commit does not look whether its blob is there.
    Unchecked,
    /// The collector reads what the log names, and after that the head by which it decides.
    NamesBeforeHead,
    /// A missing blob is reported without a look at whether the commit was applied.
    MissingBeforeHead,
    /// A fork names a blob of its parent in an event of its own.
    ParentsNamed,
    /// A purge keeps nothing for forks.
    ForksForgotten,
    /// A purge does not settle forks that were noted and have not come.
    ForksUnsettled,
    /// Blobs of a session that never came are deleted while it may still come.
    CollectedWithoutVoid,
    /// Blobs of a session that never came are not collected.
    NoVoid,
    /// Blobs within reach are kept also if no commit can come any more.
    AwaitedForNobody,
}

impl Fault {
    /// Each fault, where it is looked for, and the property that it breaks.
    pub(crate) const ALL: &[(Self, Course, &'static str)] = &[
        (Self::DeletedWithinReach, Course::Writers, THERE),
        (Self::NamedBeyondReach, Course::Writers, THERE),
        (Self::Unchecked, Course::Writers, THERE),
        (Self::NamesBeforeHead, Course::Writers, THERE),
        (Self::MissingBeforeHead, Course::Purge, OUTCOME),
        (Self::ParentsNamed, Course::Purge, FORKS_OWN),
        (Self::ForksForgotten, Course::Purge, FORKS_READ),
        (Self::ForksUnsettled, Course::Purge, FORKS_READ),
        (Self::CollectedWithoutVoid, Course::Creation, THERE),
        (Self::NoVoid, Course::Creation, COLLECTED),
        (Self::AwaitedForNobody, Course::Creation, COLLECTED),
    ];
}

const THERE: &str = "the blob of a commit is there for as long as its event is";
const FORKS_READ: &str = "a living fork can read the blobs of the events that it shares";
const FORKS_OWN: &str = "a living fork can read the blobs of its own events";
const COLLECTED: &str = "what no event names can be collected, but for what lies within reach";
const OUTCOME: &str = "what is acknowledged is in the log, and what is refused is not";
const FINISHED: &str = "everything settles";

/// What happens to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// Two writers put the same bytes, and write other commits beside.
    Writers,
    /// A commit with a blob, beside a fork, a deletion and a purge.
    Purge,
    /// A creation with a blob, beside another, and somebody that cleans up after creations that never came.
    Creation,
}

impl Course {
    /// Each course, and how many states it has at least.
    pub(crate) const ALL: &[(Self, usize)] =
        &[(Self::Writers, 90_000), (Self::Purge, 300_000), (Self::Creation, 20_000)];

    /// What each writer does, in order.
    fn wanted(self, w: usize) -> &'static [Op] {
        match (self, w) {
            (Self::Writers, 0) => &[Op::Attach],
            (Self::Writers, _) => &[Op::Note, Op::Attach, Op::Long],
            (Self::Purge, 0) => &[Op::Attach],
            (Self::Purge, _) => &[Op::Note, Op::Delete],
            (Self::Creation, 0) => &[Op::CreateAttached, Op::Long],
            (Self::Creation, _) => &[Op::Create],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Op {
    Create,
    /// A creation whose first event names the blob.
    CreateAttached,
    /// An event that names the blob.
    Attach,
    Note,
    /// Two events.
    Long,
    Delete,
    /// Takes the first slot, so that no session comes to be.
    Void,
}

impl Op {
    fn names(self) -> bool {
        matches!(self, Self::Attach | Self::CreateAttached)
    }
}

/// The object in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Commit {
    op: Op,
    writer: usize,
    first: u8,
    last: u8,
}

impl Commit {
    fn dead(&self) -> bool {
        matches!(self.op, Op::Delete | Op::Void)
    }
}

/// `b/<sha256>/<head>.<random>`: the last event of a head that was read before the PUT, zero before there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    head: u8,
    random: (usize, usize, u8),
}

/// A commit on its way into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Attempt {
    slot: u8,
    commit: Commit,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// Puts the blob.
    Putting(Key),
    /// The blob was put, or none is needed: plan.
    Ready,
    /// Looks whether the blob is there.
    Checking(Attempt),
    Sending(Attempt),
    /// Nobody knows whether the commit landed, or will.
    InDoubt(Attempt),
    /// The slot is taken: look whose it is.
    Taken(Attempt),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writer {
    /// How many commits it knows of; `None`: it has to list.
    head: Option<u8>,
    /// Whether that was read since the operation was begun, or begun again.
    confirmed: bool,
    /// Which of its operations is next, and how often its blob was missing.
    at: usize,
    round: u8,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Reply {
    Done,
    /// Refused, as by a conflict or since its blob is missing.
    Refused,
    /// Nobody was left to be told.
    Killed,
}

/// A PUT that its sender gave up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Late {
    Blob(Key),
    Commit(Attempt),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Fork {
    None,
    /// `idx/child` has it.
    Recorded,
    /// The parent lived; the fork is to share the events up to this one.
    HasRead(u8),
    Created(u8),
    /// Its first slot was taken, or it was given up.
    Void,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    slots: Vec<Commit>,
    blobs: BTreeSet<Key>,
    writers: [Writer; 2],
    fork: Fork,
    /// Whether the fork's own folder has the blob that its own first event names.
    fork_blob: bool,
    /// What a purge has found that forks read; and whether the log says so.
    kept: Option<u8>,
    purged: bool,
    late: Option<Late>,
    late_delete: Option<Key>,
    lost: u8,
    delayed: u8,
    delayed_deletes: u8,
    kills: u8,
    replies: Vec<(usize, usize, Reply)>,
}

impl State {
    fn count(&self) -> u8 {
        u8::try_from(self.slots.len()).unwrap()
    }

    fn newest(&self) -> Option<&Commit> {
        self.slots.last()
    }

    /// The last event that is there.
    fn end(&self) -> u8 {
        let last = self.newest().map_or(0, |commit| commit.last);
        if self.purged { self.kept.unwrap_or(0) } else { last }
    }

    /// Whether an event up to this one names the blob.
    fn named(&self, end: u8) -> bool {
        self.slots.iter().any(|commit| commit.op.names() && commit.last <= end)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Reads the newest slot.
    List(usize),
    /// Chooses the blob's key by the head that it knows.
    Choose(usize),
    /// The blob is put and acknowledged.
    PutBlob(usize),
    /// The writer sends the PUT again, and the first one is still under way, or landed without an answer.
    GiveUpBlob(usize),
    /// Plans on the head that it knows, and gives its caller an answer or goes on.
    Plan(usize),
    /// Lists the keys of its blob.
    Check(usize),
    /// The commit reaches its slot, and the answer the writer.
    Send(usize),
    LoseAnswer(usize),
    /// The commit is refused or lost: 409, 500, 503, a connection that breaks.
    Fail(usize),
    /// The writer no longer waits; the PUT is still under way.
    GiveUp(usize),
    /// Sends the same PUT again.
    Again(usize),
    /// Tells the caller that the outcome is unknown; the caller sends the same commit again.
    Unknown(usize),
    /// Looks whose a taken slot is.
    Read(usize),
    /// The writer dies, and another begins with its next operation.
    Kill(usize),
    /// The PUT that was given up lands.
    Late,
    /// A blob is deleted, by somebody that has read any head and the log up to it.
    Delete(Key),
    GiveUpDelete(Key),
    LateDelete,
    /// Takes the first slot, so that no session comes to be.
    Void,
    NoteFork,
    /// The fork's creator sees that the parent lives, and shares its first commits, so many.
    ReadParent(u8),
    CreateFork,
    /// The purge lists the forks, and settles those that have not come.
    ListForks,
    /// The log says what was kept.
    MarkPurged,
}

#[derive(Clone, Debug)]
pub(crate) struct Blobs {
    pub(crate) course: Course,
    pub(crate) fault: Fault,
    /// How many requests or answers may get lost.
    pub(crate) lost: u8,
}

impl Blobs {
    /// Whether a commit that begins with event `first` may name a blob.
    fn within_reach(&self, key: Key, first: u8) -> bool {
        first <= key.head + REACH || self.fault == Fault::NamedBeyondReach
    }

    /// Whether any commit after this one would begin out of a key's reach.
    fn beyond_reach(&self, key: Key, head: &Commit) -> bool {
        let reach = if self.fault == Fault::DeletedWithinReach { 0 } else { REACH };
        head.dead() && self.fault != Fault::AwaitedForNobody || head.last >= key.head + reach
    }

    /// Whether somebody may delete a blob, who has read any head there ever was, and the log up to it.
    fn deletable(&self, state: &State, key: Key) -> bool {
        if self.fault == Fault::CollectedWithoutVoid && state.slots.is_empty() {
            return true;
        }
        let names = |commit: &Commit| commit.op.names();
        let read = |n: usize| {
            let log =
                if self.fault == Fault::NamesBeforeHead { &state.slots[..1] } else { &state.slots[..=n] };
            self.beyond_reach(key, &state.slots[n]) && !log.iter().any(names)
        };
        let purged = state.purged && !state.named(state.end());
        purged || (0..state.slots.len()).any(read)
    }

    fn finish(&self, state: &mut State, w: usize, replies: Reply) {
        let writer = &mut state.writers[w];
        state.replies.push((w, writer.at, replies));
        state.replies.sort();
        writer.at += 1;
        writer.round = 0;
        writer.confirmed = false;
        writer.phase = Phase::Idle;
    }

    /// What the writer would do on the head that it knows: `Err` is what its caller is told.
    fn plan(&self, state: &State, w: usize) -> Option<Result<Attempt, Reply>> {
        let writer = &state.writers[w];
        let (op, slot) = (self.course.wanted(w)[writer.at], writer.head?);
        let known = &state.slots[..usize::from(slot)];
        if known.iter().any(|commit| (commit.writer, commit.op) == (w, op)) {
            return Some(Err(Reply::Done));
        }
        let creates = matches!(op, Op::Create | Op::CreateAttached);
        if creates != known.is_empty() || known.last().is_some_and(Commit::dead) {
            return Some(Err(Reply::Refused));
        }
        let first = known.last().map_or(0, |commit| commit.last) + 1;
        let last = if op == Op::Long { first + 1 } else { first };
        Some(Ok(Attempt { slot, commit: Commit { op, writer: w, first, last } }))
    }

    /// What the store does with a PUT that has If-None-Match; whether it stored it.
    fn store(state: &mut State, put: Attempt) -> bool {
        let free = put.slot == state.count();
        if free {
            state.slots.push(put.commit);
        }
        free
    }

    /// What a writer does that misses its blob, and knows that the commit was not applied: it tells its caller, which
    /// puts the blob again and sends the same commit again, a few times.
    fn missing(&self, state: &mut State, w: usize) {
        let writer = &mut state.writers[w];
        if writer.round + 1 == ROUNDS || self.fault == Fault::MissingBeforeHead {
            return self.finish(state, w, Reply::Refused);
        }
        writer.round += 1;
        writer.confirmed = false;
        writer.phase = Phase::Idle;
    }

    fn there(&self, state: &State, first: u8) -> bool {
        state.blobs.iter().any(|key| self.within_reach(*key, first))
    }

    fn writer_actions(&self, state: &State, w: usize, actions: &mut Vec<Action>) {
        let writer = &state.writers[w];
        let Some(op) = self.course.wanted(w).get(writer.at) else { return };
        if state.kills > 0 && writer.phase != Phase::Idle {
            actions.push(Action::Kill(w));
        }
        match &writer.phase {
            Phase::Idle => {
                if writer.head != Some(state.count()) {
                    actions.push(Action::List(w));
                }
                if writer.head.is_some() {
                    actions.push(Action::Choose(w));
                }
            }
            Phase::Putting(_) => {
                actions.push(Action::PutBlob(w));
                if state.delayed > 0 {
                    actions.push(Action::GiveUpBlob(w));
                }
            }
            Phase::Ready => {
                // A refusal needs a head that was read for it; a missing blob is one.
                let planned = self.plan(state, w);
                let unsure = match planned {
                    Some(Err(Reply::Refused)) => !writer.confirmed,
                    Some(Ok(put)) if op.names() => !writer.confirmed && !self.there(state, put.commit.first),
                    _ => false,
                };
                let skips = self.fault == Fault::MissingBeforeHead && op.names();
                if writer.head != Some(state.count()) || unsure {
                    actions.push(Action::List(w));
                }
                if planned.is_some() && (!unsure || skips) {
                    actions.push(Action::Plan(w));
                }
            }
            Phase::Checking(_) => actions.push(Action::Check(w)),
            Phase::Sending(_) => {
                actions.push(Action::Send(w));
                if state.lost > 0 {
                    actions.extend([Action::LoseAnswer(w), Action::Fail(w)]);
                }
                if state.delayed > 0 {
                    actions.push(Action::GiveUp(w));
                }
            }
            Phase::InDoubt(_) => actions.extend([Action::Again(w), Action::Unknown(w)]),
            Phase::Taken(_) => actions.push(Action::Read(w)),
        }
    }

    fn fork_actions(&self, state: &State, actions: &mut Vec<Action>) {
        if self.course != Course::Purge {
            return;
        }
        let dead = state.newest().is_some_and(Commit::dead);
        match state.fork {
            Fork::None => actions.push(Action::NoteFork),
            Fork::Recorded if dead => {}
            Fork::Recorded => actions.extend((1..=state.count()).map(Action::ReadParent)),
            Fork::HasRead(_) => actions.push(Action::CreateFork),
            Fork::Created(_) | Fork::Void => {}
        }
        if dead && state.kept.is_none() {
            actions.push(Action::ListForks);
        }
        if state.kept.is_some() && !state.purged {
            actions.push(Action::MarkPurged);
        }
    }

    /// All that may happen, except for requests that land late: those may as well never do.
    fn prompt_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for w in 0..state.writers.len() {
            self.writer_actions(state, w, actions);
        }
        for key in &state.blobs {
            if self.deletable(state, *key) {
                actions.push(Action::Delete(*key));
                if state.delayed_deletes > 0 {
                    actions.push(Action::GiveUpDelete(*key));
                }
            }
        }
        if self.course == Course::Creation && state.slots.is_empty() && self.fault != Fault::NoVoid {
            actions.push(Action::Void);
        }
        self.fork_actions(state, actions);
    }
}

impl Model for Blobs {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let created = Commit { op: Op::Create, writer: 2, first: 1, last: 1 };
        let slots = if self.course == Course::Creation { vec![] } else { vec![created] };
        let head = u8::try_from(slots.len()).ok();
        let writer = Writer { head, confirmed: false, at: 0, round: 0, phase: Phase::Idle };
        vec![State {
            slots,
            blobs: BTreeSet::new(),
            writers: [writer.clone(), writer],
            fork: Fork::None,
            fork_blob: false,
            kept: None,
            purged: false,
            late: None,
            late_delete: None,
            lost: self.lost,
            delayed: 1,
            delayed_deletes: 1,
            // Else one of two creations always comes.
            kills: if self.course == Course::Creation { 2 } else { 1 },
            replies: Vec::new(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.prompt_actions(state, actions);
        if state.late.is_some() {
            actions.push(Action::Late);
        }
        if state.late_delete.is_some() {
            actions.push(Action::LateDelete);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let attempt = |w: usize| match &last.writers[w].phase {
            Phase::Checking(put) | Phase::Sending(put) | Phase::InDoubt(put) | Phase::Taken(put) => {
                Some(*put)
            }
            Phase::Idle | Phase::Putting(_) | Phase::Ready => None,
        };
        match action {
            Action::List(w) => {
                state.writers[w].head = Some(last.count());
                state.writers[w].confirmed = last.writers[w].phase == Phase::Ready;
            }
            Action::Choose(w) => {
                let writer = &mut state.writers[w];
                let known = &last.slots[..usize::from(writer.head?)];
                let head = known.last().map_or(0, |commit| commit.last);
                let key = Key { head, random: (w, writer.at, writer.round) };
                let names = self.course.wanted(w)[writer.at].names();
                writer.phase = if names { Phase::Putting(key) } else { Phase::Ready };
            }
            Action::PutBlob(w) => {
                let Phase::Putting(key) = last.writers[w].phase else { return None };
                state.blobs.insert(key);
                state.writers[w].phase = Phase::Ready;
            }
            Action::GiveUpBlob(w) => {
                let Phase::Putting(key) = last.writers[w].phase else { return None };
                state.delayed -= 1;
                state.late = Some(Late::Blob(key));
            }
            Action::Plan(w) => match self.plan(last, w)? {
                Ok(put) if put.commit.op.names() && self.fault != Fault::Unchecked => {
                    state.writers[w].phase = Phase::Checking(put);
                }
                Ok(put) => state.writers[w].phase = Phase::Sending(put),
                Err(replies) => self.finish(&mut state, w, replies),
            },
            Action::Check(w) => {
                let put = attempt(w)?;
                let unsure = !last.writers[w].confirmed && self.fault != Fault::MissingBeforeHead;
                if self.there(last, put.commit.first) {
                    state.writers[w].phase = Phase::Sending(put);
                } else if unsure {
                    state.writers[w].phase = Phase::Ready;
                } else {
                    self.missing(&mut state, w);
                }
            }
            Action::Send(w) => {
                let put = attempt(w)?;
                if Self::store(&mut state, put) {
                    state.writers[w].head = Some(put.slot + 1);
                    self.finish(&mut state, w, Reply::Done);
                } else {
                    state.writers[w].phase = Phase::Taken(put);
                }
            }
            Action::LoseAnswer(w) => {
                state.lost -= 1;
                let put = attempt(w)?;
                Self::store(&mut state, put);
                state.writers[w].phase = Phase::InDoubt(put);
            }
            Action::Fail(w) => {
                state.lost -= 1;
                state.writers[w].phase = Phase::InDoubt(attempt(w)?);
            }
            Action::GiveUp(w) => {
                state.delayed -= 1;
                let put = attempt(w)?;
                state.late = Some(Late::Commit(put));
                state.writers[w].phase = Phase::InDoubt(put);
            }
            Action::Again(w) => {
                // No look at its blob is needed: while the slot is free, nobody may delete it.
                state.writers[w].phase = Phase::Sending(attempt(w)?);
            }
            Action::Unknown(w) => {
                state.writers[w].confirmed = false;
                state.writers[w].phase = Phase::Ready;
            }
            Action::Read(w) => {
                let put = attempt(w)?;
                let taken = &last.slots[usize::from(put.slot)];
                state.writers[w].head = Some(put.slot + 1);
                state.writers[w].confirmed = true;
                state.writers[w].phase = Phase::Ready;
                if (taken.writer, taken.op) == (w, put.commit.op) {
                    self.finish(&mut state, w, Reply::Done);
                }
            }
            Action::Kill(w) => {
                state.kills -= 1;
                state.writers[w].head = None;
                self.finish(&mut state, w, Reply::Killed);
            }
            Action::Late => match state.late.take()? {
                Late::Blob(key) => {
                    state.blobs.insert(key);
                }
                Late::Commit(put) => {
                    Self::store(&mut state, put);
                }
            },
            Action::Delete(key) => {
                state.blobs.remove(&key);
            }
            Action::GiveUpDelete(key) => {
                state.delayed_deletes -= 1;
                state.late_delete = Some(key);
            }
            Action::LateDelete => {
                let key = state.late_delete.take()?;
                state.blobs.remove(&key);
            }
            Action::Void => {
                let commit = Commit { op: Op::Void, writer: 2, first: 1, last: 1 };
                Self::store(&mut state, Attempt { slot: 0, commit });
            }
            Action::NoteFork => state.fork = Fork::Recorded,
            Action::ReadParent(commits) => {
                let end = last.slots[usize::from(commits) - 1].last;
                state.fork = Fork::HasRead(end);
            }
            Action::CreateFork => {
                let Fork::HasRead(end) = last.fork else { return None };
                // It has put the bytes into its own folder; what protects them there is the course `Creation`.
                state.fork_blob = self.fault != Fault::ParentsNamed;
                state.fork = Fork::Created(end);
            }
            Action::ListForks => {
                let mut kept = 0;
                match last.fork {
                    Fork::Created(end) => kept = end,
                    _ if self.fault == Fault::ForksUnsettled => {}
                    Fork::Recorded | Fork::HasRead(_) => state.fork = Fork::Void,
                    // Whoever notes it from now on sees that the parent is deleted.
                    Fork::None | Fork::Void => {}
                }
                state.kept = Some(if self.fault == Fault::ForksForgotten { 0 } else { kept });
            }
            Action::MarkPurged => state.purged = true,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(THERE, |_, state: &State| !state.named(state.end()) || !state.blobs.is_empty()),
            Property::always(FORKS_READ, |_, state: &State| match state.fork {
                Fork::Created(end) => !state.named(end) || !state.blobs.is_empty(),
                _ => true,
            }),
            Property::always(FORKS_OWN, |_, state: &State| {
                // The fork's first event names the bytes if it had them at hand: from its parent's log.
                let Fork::Created(_) = state.fork else { return true };
                state.fork_blob || !state.purged || !state.blobs.is_empty()
            }),
            Property::always(COLLECTED, |model, state: &State| {
                let mut actions = Vec::new();
                model.prompt_actions(state, &mut actions);
                let awaited = |key: &Key| {
                    state.newest().is_some_and(|commit| !commit.dead() && commit.last < key.head + REACH)
                };
                !actions.is_empty() || state.named(state.end()) || state.blobs.iter().all(awaited)
            }),
            Property::always(OUTCOME, |model, state: &State| {
                state.replies.iter().all(|(w, at, replies)| {
                    let op = model.course.wanted(*w)[*at];
                    let landed = state.slots.iter().any(|commit| (commit.writer, commit.op) == (*w, op));
                    match replies {
                        Reply::Done => landed,
                        Reply::Refused => !landed,
                        Reply::Killed => true,
                    }
                })
            }),
            Property::always(FINISHED, |model, state: &State| {
                let mut actions = Vec::new();
                model.prompt_actions(state, &mut actions);
                let over = |(w, writer): (usize, &Writer)| writer.at == model.course.wanted(w).len();
                !actions.is_empty() || state.writers.iter().enumerate().all(over)
            }),
            // That these happen shows that the model explores what it is there for.
            Property::sometimes(
                "a blob is collected before its commit, and put again",
                |model, state: &State| {
                    model.course != Course::Writers
                        || state.writers[0].round > 0
                            && state.slots.iter().any(|commit| commit.op == Op::Long)
                },
            ),
            Property::sometimes("a late blob comes after all is over", |model, state: &State| {
                let over = |(w, writer): (usize, &Writer)| writer.at == model.course.wanted(w).len();
                matches!(state.late, Some(Late::Blob(_))) && state.writers.iter().enumerate().all(over)
            }),
            Property::sometimes("a purge keeps a blob that a fork reads", |model, state: &State| {
                model.course != Course::Purge || state.purged && state.named(state.end())
            }),
            Property::sometimes("a purge removes a blob", |model, state: &State| {
                model.course != Course::Purge
                    || state.purged && state.named(u8::MAX) && state.blobs.is_empty()
            }),
            Property::sometimes("a creation with a blob never comes", |model, state: &State| {
                model.course != Course::Creation
                    || state.newest().is_some_and(|commit| commit.op == Op::Void) && !state.blobs.is_empty()
            }),
        ]
    }
}
