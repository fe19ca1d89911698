//! The model. A request is one step, which happens at any time after it was decided on; what a server does with it is
//! atomic, except for a LIST, which is answered piece by piece.

use std::collections::BTreeSet;

use stateright::{Model, Property};

/// The ways to get the protocol wrong that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The keys are put once the commit is acknowledged.
    KeyAfterCommit,
    /// The name of a key does not say for which slot it was put.
    KeyWithoutSlot,
    /// A key is deleted that the newest commit does not name, though its slot is free.
    PendingKeyDeleted,
    /// A key stays in force though the session now belongs into another list.
    KeptOverClass,
    /// The header names the keys that its commit put, and not those that stay.
    KeptForgotten,
    /// A list of several requests does not look at its front again.
    NoLastCheck,
    /// A list of several requests looks only at its first piece again.
    ShortLastCheck,
    /// A session whose head names another key than the one that was listed is skipped.
    MovedSkipped,
    /// A key is deleted without waiting for the lists that are under way.
    DeletedAtOnce,
    /// Each key of a session is looked at by itself.
    ResolvedByKey,
    /// A session is shown for its key, without a look at its head.
    ShownUnread,
    /// An emptied slot is taken for a commit that names no keys.
    StubNamesNone,
    /// Nobody takes the first slot of a session whose creation never came.
    NoVoid,
}

impl Fault {
    /// Each fault, where it is looked for, and the property that it breaks.
    pub(crate) const ALL: &[(Self, Course, &'static str)] = &[
        (Self::KeyAfterCommit, Course::Lists, IN_FORCE),
        (Self::KeyAfterCommit, Course::Lists, NOT_MISSING),
        (Self::KeyAfterCommit, Course::Work, IN_FORCE),
        (Self::KeyAfterCommit, Course::Work, NOT_MISSING),
        (Self::KeyWithoutSlot, Course::Work, IN_FORCE),
        (Self::KeyWithoutSlot, Course::Work, NOT_MISSING),
        (Self::PendingKeyDeleted, Course::Lists, IN_FORCE),
        (Self::PendingKeyDeleted, Course::Work, NOT_MISSING),
        (Self::PendingKeyDeleted, Course::Creation, IN_FORCE),
        (Self::KeptOverClass, Course::Lists, NOT_MISSING),
        (Self::KeptForgotten, Course::Lists, NOT_MISSING),
        (Self::NoLastCheck, Course::Lists, NOT_MISSING),
        (Self::NoLastCheck, Course::Work, NOT_MISSING),
        (Self::ShortLastCheck, Course::Lists, NOT_MISSING),
        (Self::MovedSkipped, Course::Lists, NOT_MISSING),
        (Self::DeletedAtOnce, Course::Lists, NOT_MISSING),
        (Self::DeletedAtOnce, Course::Work, NOT_MISSING),
        (Self::ResolvedByKey, Course::Lists, NOT_TWICE),
        (Self::ShownUnread, Course::Lists, AS_IT_WAS),
        (Self::StubNamesNone, Course::Purge, IN_FORCE),
        (Self::NoVoid, Course::Creation, COLLECTED),
    ];
}

const IN_FORCE: &str = "every key that the newest commit names exists";
pub(crate) const AS_IT_WAS: &str = "a session is shown only as it was at some moment during the list";
pub(crate) const NOT_MISSING: &str = "what belongs into a list for as long as it takes is shown";
pub(crate) const NOT_TWICE: &str = "a session is shown once";
const OWN_KEYS: &str = "a key is for a slot that was tried";
const COLLECTED: &str = "all keys but those in force can be deleted once their slot is taken";
const OUTCOME: &str = "what is acknowledged is in the log, and what is refused is not";
const FINISHED: &str = "everything settles";

/// What happens to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// A run and its end, beside a session that is archived and restored.
    Lists,
    /// A run that waits for a time, beside another that goes on then.
    Work,
    /// Two that create the session, and somebody that cleans up after creations that never came.
    Creation,
    /// A run, beside a session that is archived, deleted, and purged: its slots are emptied.
    Purge,
}

impl Course {
    /// Each course, and how many states it has at least, without a list and with one.
    pub(crate) const ALL: &[(Self, usize, usize)] = &[
        (Self::Lists, 100_000, 500_000),
        (Self::Work, 20_000, 100_000),
        (Self::Creation, 15_000, 100_000),
        (Self::Purge, 200_000, 600_000),
    ];

    /// What each writer does, in order. The first one's clock shows minute 1, the second one's minute 2.
    fn wanted(self, w: usize) -> &'static [Op] {
        match (self, w) {
            (Self::Lists, 0) => &[Op::Begin, Op::End],
            (Self::Lists, _) => &[Op::Archive, Op::Restore],
            (Self::Work, 0) => &[Op::Begin, Op::Wait],
            (Self::Work, _) => &[Op::GoOn, Op::End],
            (Self::Creation, 0) => &[Op::Create, Op::Begin],
            (Self::Creation, _) => &[Op::Create],
            (Self::Purge, 0) => &[Op::Begin],
            (Self::Purge, _) => &[Op::Archive, Op::Delete],
        }
    }

    /// The list that somebody asks for meanwhile.
    fn list(self) -> List {
        match self {
            Self::Work => List::Work,
            _ => List::Shown,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Op {
    Create,
    Begin,
    /// Ends the run; the session rests.
    End,
    /// Ends the run; the session is due at minute 2.
    Wait,
    /// Begins a run if the session is due.
    GoOn,
    Archive,
    Restore,
    Delete,
    /// Takes the first slot, so that no session comes to be.
    Void,
}

/// A list, as a part of the keys' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum List {
    /// What is shown by default, the newest first: `idx/t/a`.
    Shown,
    /// What is archived or deleted: `idx/t/z`.
    Hidden,
    /// What is due or runs, the earliest first: `work`.
    Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    list: List,
    minute: u8,
    slot: u8,
}

impl Key {
    /// The piece of its list in which it lies: 0, 1, 2 from the front.
    fn piece(self) -> u8 {
        if self.list == List::Work { self.minute } else { 2 - self.minute }
    }
}

/// The object in a slot: the commit, what the session is after it, and the keys in force.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Commit {
    op: Op,
    writer: usize,
    active: u8,
    hidden: bool,
    running: bool,
    due: bool,
    keys: Vec<Key>,
}

impl Commit {
    fn void() -> Self {
        let op = Op::Void;
        Self { op, writer: 2, active: 0, hidden: true, running: false, due: false, keys: Vec::new() }
    }

    /// Whether the session then belongs into a list.
    fn belongs(&self, list: List) -> bool {
        match list {
            List::Shown => !self.hidden,
            List::Hidden => self.hidden && self.op != Op::Void,
            List::Work => self.running || self.due,
        }
    }

    fn dead(&self) -> bool {
        matches!(self.op, Op::Delete | Op::Void)
    }

    /// The commit after this one (`None`: the first), if it is allowed.
    fn next(
        before: Option<&Self>,
        op: Op,
        writer: usize,
        slot: u8,
        course: Course,
        fault: Fault,
    ) -> Option<Self> {
        let clock = u8::try_from(writer).unwrap() + 1;
        let Some(before) = before else {
            let created =
                Self { op, writer, active: clock, hidden: false, running: false, due: false, keys: vec![] };
            return (op == Op::Create).then(|| created.with_keys(&[], slot, course, fault));
        };
        let allowed = match op {
            Op::Begin => !before.hidden && !before.running,
            Op::GoOn => before.due && !before.running,
            Op::End | Op::Wait => before.running,
            Op::Archive => !before.hidden && !before.running,
            Op::Restore => before.hidden,
            Op::Delete => true,
            Op::Create | Op::Void => false,
        };
        if before.dead() || !allowed {
            return None;
        }
        let after = Self {
            op,
            writer,
            active: before.active.max(clock),
            hidden: match op {
                Op::Archive | Op::Delete => true,
                Op::Restore => false,
                _ => before.hidden,
            },
            running: match op {
                Op::Begin | Op::GoOn => true,
                Op::End | Op::Wait | Op::Delete => false,
                _ => before.running,
            },
            due: match op {
                Op::Wait => true,
                Op::GoOn | Op::Delete => false,
                _ => before.due,
            },
            keys: Vec::new(),
        };
        Some(after.with_keys(&before.keys, slot, course, fault))
    }

    /// With the keys in force: those that stay, and new ones that carry the number of the commit's slot.
    fn with_keys(mut self, before: &[Key], slot: u8, course: Course, fault: Fault) -> Self {
        let slot = if fault == Fault::KeyWithoutSlot { 0 } else { slot };
        let class = if self.hidden { List::Hidden } else { List::Shown };
        let work = (self.running || self.due).then_some((List::Work, if self.running { 0 } else { 2 }));
        // Where one of the two is enough to tell, the other would only multiply the states.
        let recent = (course != Course::Work).then_some((class, self.active));
        let work = work.filter(|_| matches!(course, Course::Work | Course::Purge));
        for (list, minute) in [recent, work].into_iter().flatten() {
            let stays = before.iter().find(|key| {
                let other = fault == Fault::KeptOverClass && key.list != List::Work && list != List::Work;
                (key.list == list || other) && key.minute == minute
            });
            match stays {
                Some(_) if fault == Fault::KeptForgotten => {}
                Some(key) => self.keys.push(*key),
                None => self.keys.push(Key { list, minute, slot }),
            }
        }
        self
    }
}

/// A commit on its way into a slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Attempt {
    slot: u8,
    commit: Commit,
    /// Keys that have to be put.
    keys: BTreeSet<Key>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// Puts the keys, and then the commit.
    Putting(Attempt),
    /// Nobody knows whether the commit landed, or will.
    InDoubt(Attempt),
    /// The slot is taken: look whose it is.
    Taken(Attempt),
    /// The commit is there, and the keys are not yet. (Happens in a faulty variant only.)
    Trailing(Attempt),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writer {
    /// How many commits it knows of; `None`: it has to list.
    head: Option<u8>,
    /// Whether that was read during the present operation.
    confirmed: bool,
    /// Which of its operations is next.
    at: usize,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Reply {
    Done,
    /// Refused, or not applied since its keys could not be put.
    Refused,
    /// Nobody was left to be told.
    Killed,
}

/// A PUT that its sender gave up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Late {
    Key(Key),
    Slot(u8, Commit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    NotBegun,
    /// The next piece of the list is this one. `true`: it all comes by one request.
    Pieces(u8, bool),
    /// The last look: as above.
    Again(u8),
    /// Nothing is left to list.
    Listed,
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lister {
    stage: Stage,
    /// How many commits there were when the list began.
    began: u8,
    /// The keys that may be deleted while the present request is answered.
    ripe: BTreeSet<Key>,
    /// Keys that were listed; one of them stands for all, unless a fault is to tell them apart.
    seen: BTreeSet<Key>,
    /// Those whose session was looked at.
    resolved: BTreeSet<Key>,
    /// As of which commit it was shown, each time that it was.
    shown: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    slots: Vec<Commit>,
    /// Those of them that were emptied.
    emptied: BTreeSet<u8>,
    keys: BTreeSet<Key>,
    writers: [Writer; 2],
    lister: Lister,
    late: Vec<Late>,
    late_delete: Option<Key>,
    lost: u8,
    delayed: u8,
    delayed_deletes: u8,
    kills: u8,
    replies: Vec<(usize, Op, Reply)>,
    /// What the list that is over did wrong: missed the session, showed it as it was not, showed it twice.
    missed: bool,
    stale: bool,
    twice: bool,
}

impl State {
    fn count(&self) -> u8 {
        u8::try_from(self.slots.len()).unwrap()
    }

    fn in_force(&self, key: Key) -> bool {
        self.slots.last().is_some_and(|commit| commit.keys.contains(&key))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Reads the newest slot.
    List(usize),
    /// Plans on the head that it knows, and gives its caller an answer or begins to put.
    Plan(usize),
    /// A key is put and acknowledged.
    PutKey(usize, Key),
    /// A key cannot be put for as long as there is time: the commit is not sent.
    FailKey(usize),
    /// The writer sends the key's PUT again, and the first one is still under way, or landed without an answer.
    GiveUpKey(usize, Key),
    /// The commit reaches its slot, and the answer the writer.
    PutSlot(usize),
    /// The commit reaches its slot; the answer gets lost.
    LoseAnswer(usize),
    /// The commit is refused or lost: 409, 500, 503, a connection that breaks.
    Fail(usize),
    /// The writer no longer waits; the PUT is still under way.
    GiveUp(usize),
    /// Sends the same commit again.
    Again(usize),
    /// Looks whose a taken slot is.
    Read(usize),
    /// The writer dies, and another begins with its next operation.
    Kill(usize),
    /// A PUT that was given up lands.
    Late(usize),
    /// A key is deleted, by a writer, a lister or a rebuild that has read any head.
    Delete(Key),
    /// A key's deletion is given up, and is still under way.
    GiveUpDelete(Key),
    /// That deletion lands.
    LateDelete,
    /// Takes the first slot, so that no session comes to be.
    Void,
    /// Empties a slot of a deleted session.
    Empty(u8),
    /// A list begins; `true`: one request answers it.
    BeginList(bool),
    /// The next piece of a list is looked up.
    Piece,
    /// The head of a session that was listed is read.
    Resolve(Key),
    /// The list is answered.
    EndList,
}

/// How much may go wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Requests or answers that may get lost.
    pub(crate) lost: u8,
    /// PUTs that are given up and land whenever they like, or never.
    pub(crate) delayed: u8,
    /// DELETEs that do.
    pub(crate) deletes: u8,
    /// Writers that may be killed.
    pub(crate) kills: u8,
    /// Whether somebody lists meanwhile.
    pub(crate) lists: bool,
}

impl Budget {
    /// Everything but a list.
    pub(crate) const WRITERS: Self = Self { lost: 1, delayed: 1, deletes: 1, kills: 1, lists: false };
    /// A list, beside writers that nothing happens to but a PUT that is late.
    pub(crate) const LISTS: Self = Self { lost: 0, delayed: 1, deletes: 0, kills: 0, lists: true };
}

#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) course: Course,
    pub(crate) fault: Fault,
    pub(crate) budget: Budget,
}

impl Index {
    /// Rule D: whether somebody may delete a key, who has read any head there ever was.
    fn deletable(&self, state: &State, key: Key) -> bool {
        let read = |(slot, commit): (usize, &Commit)| {
            let slot = u8::try_from(slot).unwrap();
            let taken = slot >= key.slot || self.fault == Fault::PendingKeyDeleted;
            let emptied = self.fault == Fault::StubNamesNone && state.emptied.contains(&slot);
            taken && (emptied || !commit.keys.contains(&key))
        };
        let nobody = self.fault == Fault::PendingKeyDeleted && state.slots.is_empty();
        nobody || state.slots.iter().enumerate().any(read)
    }

    fn may_delete(&self, state: &State, key: Key) -> bool {
        // Whoever deletes has waited, since it read that head, for longer than a request can take: a LIST that is being
        // answered began after that.
        let waited = state.lister.ripe.contains(&key) || !self.listing(state);
        state.keys.contains(&key)
            && self.deletable(state, key)
            && (waited || self.fault == Fault::DeletedAtOnce)
    }

    /// Whether a LIST is being answered.
    fn listing(&self, state: &State) -> bool {
        match state.lister.stage {
            Stage::Pieces(piece, one) => piece == 1 || piece == 2 && one,
            Stage::Again(piece) => piece == 1,
            Stage::NotBegun | Stage::Listed | Stage::Over => false,
        }
    }

    fn finish(&self, state: &mut State, w: usize, replies: Reply) {
        let writer = &mut state.writers[w];
        state.replies.push((w, self.course.wanted(w)[writer.at], replies));
        state.replies.sort();
        writer.at += 1;
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
        let Some(commit) = Commit::next(known.last(), op, w, slot, self.course, self.fault) else {
            return Some(Err(Reply::Refused));
        };
        let before = known.last().map_or(&[][..], |commit| &commit.keys);
        let keys = commit.keys.iter().filter(|key| !before.contains(key)).copied().collect();
        Some(Ok(Attempt { slot, commit, keys }))
    }

    /// What the store does with a PUT that has If-None-Match; whether it stored it.
    fn store(state: &mut State, slot: u8, commit: Commit) -> bool {
        let free = slot == state.count();
        if free {
            state.slots.push(commit);
        }
        free
    }

    fn stored(&self, state: &mut State, w: usize, attempt: Attempt) {
        state.writers[w].head = Some(attempt.slot + 1);
        if self.fault == Fault::KeyAfterCommit && !attempt.keys.is_empty() {
            state.writers[w].phase = Phase::Trailing(attempt);
        } else {
            self.finish(state, w, Reply::Done);
        }
    }

    fn begin_request(&self, state: &mut State) {
        let ripe = state.keys.iter().copied().filter(|key| self.deletable(state, *key)).collect();
        state.lister.ripe = ripe;
    }

    /// Looks up one piece of the list.
    fn piece(&self, state: &mut State, piece: u8) {
        let list = self.course.list();
        let found = state.keys.iter().copied().filter(|key| key.list == list && key.piece() == piece);
        let found: Vec<Key> = found.collect();
        let each = matches!(self.fault, Fault::ResolvedByKey | Fault::MovedSkipped | Fault::ShownUnread);
        for key in found {
            if each || state.lister.seen.is_empty() {
                state.lister.seen.insert(key);
            }
        }
    }

    fn resolve(&self, state: &mut State, key: Key) {
        state.lister.resolved.insert(key);
        let list = self.course.list();
        let Some(head) = state.slots.last() else { return };
        let named = match self.fault {
            Fault::MovedSkipped => head.keys.iter().any(|key| state.lister.seen.contains(key)),
            Fault::ResolvedByKey => head.keys.contains(&key),
            // What says that a session is archived is its key.
            Fault::KeptOverClass => head.keys.iter().any(|key| key.list == list),
            Fault::KeptForgotten => head.keys.iter().any(|key| key.list == list),
            _ => true,
        };
        if named && head.belongs(list) {
            state.lister.shown.push(state.count());
        }
    }

    fn judge(&self, state: &mut State) {
        let (list, began) = (self.course.list(), state.lister.began);
        let shown = &state.lister.shown;
        let during = &state.slots[usize::from(began.saturating_sub(1))..];
        let belonged = began > 0 && during.iter().all(|commit| commit.belongs(list));
        state.missed = belonged && shown.is_empty();
        state.twice = shown.len() > 1;
        state.stale = shown.iter().any(|count| {
            let commit = count.checked_sub(1).and_then(|slot| state.slots.get(usize::from(slot)));
            *count < began || commit.is_none_or(|commit| !commit.belongs(list))
        });
        let lister = &mut state.lister;
        (lister.stage, lister.began) = (Stage::Over, 0);
        lister.seen.clear();
        lister.resolved.clear();
        lister.shown.clear();
    }

    fn writer_actions(&self, state: &State, w: usize, actions: &mut Vec<Action>) {
        let writer = &state.writers[w];
        if writer.at == self.course.wanted(w).len() {
            return;
        }
        if state.kills > 0 && writer.phase != Phase::Idle {
            actions.push(Action::Kill(w));
        }
        match &writer.phase {
            Phase::Idle => {
                // A refusal needs a head that was read for it.
                let planned = self.plan(state, w);
                let unsure = planned == Some(Err(Reply::Refused)) && !writer.confirmed;
                if writer.head != Some(state.count()) || unsure {
                    actions.push(Action::List(w));
                }
                if planned.is_some() && !unsure {
                    actions.push(Action::Plan(w));
                }
            }
            Phase::Putting(attempt) if !attempt.keys.is_empty() && self.fault != Fault::KeyAfterCommit => {
                for key in &attempt.keys {
                    actions.push(Action::PutKey(w, *key));
                    if state.delayed > 0 {
                        actions.push(Action::GiveUpKey(w, *key));
                    }
                }
                if state.lost > 0 {
                    actions.push(Action::FailKey(w));
                }
            }
            Phase::Putting(_) => {
                actions.push(Action::PutSlot(w));
                if state.lost > 0 {
                    actions.extend([Action::LoseAnswer(w), Action::Fail(w)]);
                }
                if state.delayed > 0 {
                    actions.push(Action::GiveUp(w));
                }
            }
            Phase::InDoubt(_) => actions.push(Action::Again(w)),
            Phase::Taken(_) => actions.push(Action::Read(w)),
            Phase::Trailing(attempt) => {
                actions.extend(attempt.keys.iter().map(|key| Action::PutKey(w, *key)));
            }
        }
    }

    fn lister_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let lister = &state.lister;
        match lister.stage {
            Stage::NotBegun => actions.extend([Action::BeginList(true), Action::BeginList(false)]),
            Stage::Pieces(..) | Stage::Again(_) => actions.push(Action::Piece),
            Stage::Listed => {
                if lister.seen == lister.resolved {
                    actions.push(Action::EndList);
                }
            }
            Stage::Over => {}
        }
        actions.extend(lister.seen.difference(&lister.resolved).map(|key| Action::Resolve(*key)));
    }

    /// All that may happen, except for requests that land late: those may as well never do.
    fn prompt_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for w in 0..state.writers.len() {
            self.writer_actions(state, w, actions);
        }
        for key in &state.keys {
            if self.may_delete(state, *key) {
                actions.push(Action::Delete(*key));
                if state.delayed_deletes > 0 {
                    actions.push(Action::GiveUpDelete(*key));
                }
            }
        }
        if self.course == Course::Creation && state.slots.is_empty() && self.fault != Fault::NoVoid {
            actions.push(Action::Void);
        }
        if self.course == Course::Purge && state.slots.last().is_some_and(Commit::dead) {
            let inner = (0..state.count() - 1).filter(|slot| !state.emptied.contains(slot));
            actions.extend(inner.map(Action::Empty));
        }
        self.lister_actions(state, actions);
    }
}

impl Model for Index {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut slots = Vec::new();
        if self.course != Course::Creation {
            // Made long ago, so that the keys say minute 0.
            let (op, writer) = (Op::Create, 2);
            let rests =
                Commit { op, writer, active: 0, hidden: false, running: false, due: false, keys: vec![] };
            slots.push(rests.with_keys(&[], 0, self.course, Fault::None));
        }
        let keys = slots.iter().flat_map(|commit| commit.keys.iter().copied()).collect();
        let head = u8::try_from(slots.len()).ok();
        let writer = Writer { head, confirmed: false, at: 0, phase: Phase::Idle };
        vec![State {
            slots,
            emptied: BTreeSet::new(),
            keys,
            writers: [writer.clone(), writer],
            lister: Lister {
                stage: if self.budget.lists { Stage::NotBegun } else { Stage::Over },
                began: 0,
                ripe: BTreeSet::new(),
                seen: BTreeSet::new(),
                resolved: BTreeSet::new(),
                shown: Vec::new(),
            },
            late: Vec::new(),
            late_delete: None,
            lost: self.budget.lost,
            delayed: self.budget.delayed,
            delayed_deletes: self.budget.deletes,
            kills: self.budget.kills,
            replies: Vec::new(),
            missed: false,
            stale: false,
            twice: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.prompt_actions(state, actions);
        actions.extend((0..state.late.len()).map(Action::Late));
        if state.late_delete.is_some() {
            actions.push(Action::LateDelete);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let attempt = |w: usize| match &last.writers[w].phase {
            Phase::Idle => None,
            Phase::Putting(attempt)
            | Phase::InDoubt(attempt)
            | Phase::Taken(attempt)
            | Phase::Trailing(attempt) => Some(attempt.clone()),
        };
        match action {
            Action::List(w) => {
                state.writers[w].head = Some(last.count());
                state.writers[w].confirmed = true;
            }
            Action::Plan(w) => match self.plan(last, w)? {
                Ok(attempt) => {
                    state.writers[w].confirmed = false;
                    state.writers[w].phase = Phase::Putting(attempt);
                }
                Err(replies) => self.finish(&mut state, w, replies),
            },
            Action::PutKey(w, key) => {
                let mut attempt = attempt(w)?;
                attempt.keys.remove(&key);
                state.keys.insert(key);
                let trailing = matches!(last.writers[w].phase, Phase::Trailing(_));
                if trailing && attempt.keys.is_empty() {
                    self.finish(&mut state, w, Reply::Done);
                } else if trailing {
                    state.writers[w].phase = Phase::Trailing(attempt);
                } else {
                    state.writers[w].phase = Phase::Putting(attempt);
                }
            }
            Action::FailKey(w) => {
                state.lost -= 1;
                self.finish(&mut state, w, Reply::Refused);
            }
            Action::GiveUpKey(_, key) => {
                state.delayed -= 1;
                state.late.push(Late::Key(key));
            }
            Action::PutSlot(w) => {
                let attempt = attempt(w)?;
                if Self::store(&mut state, attempt.slot, attempt.commit.clone()) {
                    self.stored(&mut state, w, attempt);
                } else {
                    state.writers[w].phase = Phase::Taken(attempt);
                }
            }
            Action::LoseAnswer(w) => {
                state.lost -= 1;
                let attempt = attempt(w)?;
                Self::store(&mut state, attempt.slot, attempt.commit.clone());
                state.writers[w].phase = Phase::InDoubt(attempt);
            }
            Action::Fail(w) => {
                state.lost -= 1;
                state.writers[w].phase = Phase::InDoubt(attempt(w)?);
            }
            Action::GiveUp(w) => {
                state.delayed -= 1;
                let attempt = attempt(w)?;
                state.late.push(Late::Slot(attempt.slot, attempt.commit.clone()));
                state.writers[w].phase = Phase::InDoubt(attempt);
            }
            Action::Again(w) => {
                // Its keys were put before, and are pending or in force.
                state.writers[w].phase = Phase::Putting(attempt(w)?);
            }
            Action::Read(w) => {
                let attempt = attempt(w)?;
                let taken = &last.slots[usize::from(attempt.slot)];
                state.writers[w].head = Some(attempt.slot + 1);
                state.writers[w].confirmed = true;
                state.writers[w].phase = Phase::Idle;
                if (taken.writer, taken.op) == (w, attempt.commit.op) {
                    self.stored(&mut state, w, attempt);
                }
            }
            Action::Kill(w) => {
                state.kills -= 1;
                state.writers[w].head = None;
                self.finish(&mut state, w, Reply::Killed);
            }
            Action::Late(n) => match state.late.remove(n) {
                Late::Key(key) => {
                    state.keys.insert(key);
                }
                Late::Slot(slot, commit) => {
                    Self::store(&mut state, slot, commit);
                }
            },
            Action::Delete(key) => {
                state.keys.remove(&key);
            }
            Action::GiveUpDelete(key) => {
                state.delayed_deletes -= 1;
                state.late_delete = Some(key);
            }
            Action::LateDelete => {
                let key = state.late_delete.take()?;
                state.keys.remove(&key);
            }
            Action::Void => {
                Self::store(&mut state, 0, Commit::void());
            }
            Action::Empty(slot) => {
                state.emptied.insert(slot);
            }
            Action::BeginList(one) => {
                state.lister.began = last.count();
                self.begin_request(&mut state);
                self.piece(&mut state, 0);
                state.lister.stage = Stage::Pieces(1, one);
            }
            Action::Piece => match last.lister.stage {
                Stage::Pieces(1, one) => {
                    self.piece(&mut state, 1);
                    state.lister.stage = Stage::Pieces(2, one);
                }
                Stage::Pieces(_, one) => {
                    self.piece(&mut state, 2);
                    let done = one || self.fault == Fault::NoLastCheck;
                    state.lister.stage = if done { Stage::Listed } else { Stage::Again(0) };
                }
                Stage::Again(0) => {
                    self.begin_request(&mut state);
                    self.piece(&mut state, 0);
                    let done = self.fault == Fault::ShortLastCheck;
                    state.lister.stage = if done { Stage::Listed } else { Stage::Again(1) };
                }
                Stage::Again(_) => {
                    self.piece(&mut state, 1);
                    state.lister.stage = Stage::Listed;
                }
                Stage::NotBegun | Stage::Listed | Stage::Over => return None,
            },
            Action::Resolve(key) if self.fault == Fault::ShownUnread => {
                state.lister.resolved.insert(key);
                state.lister.shown.push(key.slot + 1);
            }
            Action::Resolve(key) => self.resolve(&mut state, key),
            Action::EndList => self.judge(&mut state),
        }
        if !self.listing(&state) {
            state.lister.ripe.clear();
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(IN_FORCE, |_, state: &State| {
                state.slots.last().is_none_or(|commit| commit.keys.iter().all(|key| state.keys.contains(key)))
            }),
            Property::always(AS_IT_WAS, |_, state: &State| !state.stale),
            Property::always(NOT_MISSING, |_, state: &State| !state.missed),
            Property::always(NOT_TWICE, |_, state: &State| !state.twice),
            Property::always(OWN_KEYS, |_, state: &State| {
                state.keys.iter().all(|key| key.slot <= state.count())
            }),
            Property::always(COLLECTED, |model, state: &State| {
                let mut actions = Vec::new();
                model.prompt_actions(state, &mut actions);
                let pending = |key: &Key| key.slot >= state.count().max(1);
                !actions.is_empty() || state.keys.iter().all(|key| state.in_force(*key) || pending(key))
            }),
            Property::always(OUTCOME, |_, state: &State| {
                let landed = |w, op| state.slots.iter().any(|commit| (commit.writer, commit.op) == (w, op));
                state.replies.iter().all(|(w, op, replies)| match replies {
                    Reply::Done => landed(*w, *op),
                    Reply::Refused => !landed(*w, *op),
                    Reply::Killed => true,
                })
            }),
            Property::always(FINISHED, |model, state: &State| {
                let mut actions = Vec::new();
                model.prompt_actions(state, &mut actions);
                let over = |(w, writer): (usize, &Writer)| writer.at == model.course.wanted(w).len();
                !actions.is_empty() || state.writers.iter().enumerate().all(over)
            }),
            // That these happen shows that the model explores what it is there for.
            Property::sometimes("a key is left by a writer that was killed", |model, state: &State| {
                model.budget.kills == 0
                    || state.kills == 0 && state.keys.iter().any(|key| key.slot == state.count())
            }),
            Property::sometimes("a late key lies beside the one in force", |_, state: &State| {
                state.delayed == 0 && state.late.is_empty() && state.keys.len() > 1
            }),
            Property::sometimes("a late deletion meets a key", |model, state: &State| {
                model.budget.deletes == 0 || state.late_delete.is_some_and(|key| state.keys.contains(&key))
            }),
            Property::sometimes("a session moves while it is listed", |model, state: &State| {
                let list = model.course.list();
                let moved = |commit: &Commit| commit.keys.iter().any(|key| key.list == list && key.slot > 0);
                !model.budget.lists
                    || !matches!(model.course, Course::Lists | Course::Work)
                    || state.lister.stage == Stage::Listed
                        && state.count() > state.lister.began
                        && state.slots.last().is_some_and(moved)
            }),
        ]
    }
}
