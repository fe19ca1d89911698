//! The model. Requests are steps of their own; what a server does with one is atomic, and when it happens is anybody's.

use std::collections::BTreeMap;

use stateright::{Model, Property};

/// A slot's number: the number of the first event of its commit, and zero for the first commit.
type Slot = u8;

/// A small window closes at so many events; 8 in the real thing.
const SMALL: u8 = 2;
/// A big window closes with the small one that brings it to so many events; 64 in the real thing.
const BIG: u8 = 4;
/// Requests or answers that may get lost.
const LOST: u8 = 2;
/// Requests that are given up and land whenever they like, or never.
const DELAYED: u8 = 1;

/// The ways to get the protocol wrong that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// "It exists" is reported as a conflict, without looking whose it is.
    ExistsIsConflict,
    /// A failure that stored nothing (409) is taken for "it exists, and is another's".
    FailureIsConflict,
    /// Each attempt gets a commit id of its own.
    NewIdOnRetry,
    /// The epoch is not compared.
    ForgottenFence,
    /// A purge deletes slots instead of emptying them.
    PurgedSlotsDeleted,
    /// Inner slots of closed windows are deleted once all heads at rest are younger: what clocks can promise.
    OldSlotsDeleted,
    /// A commit whose outcome is unknown is taken for landed by the next one.
    UnknownIsLanded,
    /// A commit is refused for what a cached head says.
    RefusedByCache,
    /// A slot that closes a window is emptied like any other.
    ClosersEmptied,
    /// A slot that closes a small window is emptied like any other, also while the big one is open.
    SmallClosersEmptied,
    /// A commit that closes a small window carries that alone, and names what lies before the big one.
    CloserCarriesSmall,
}

impl Fault {
    /// Each fault, and the property that it breaks.
    pub(crate) const ALL: &[(Self, &'static str)] = &[
        (Self::ExistsIsConflict, NO_GHOST),
        (Self::FailureIsConflict, REFUSED_RIGHTLY),
        (Self::NewIdOnRetry, NO_DOUBLE),
        (Self::ForgottenFence, FENCED),
        (Self::PurgedSlotsDeleted, WON_ONCE),
        (Self::OldSlotsDeleted, WON_ONCE),
        (Self::OldSlotsDeleted, NOT_LOST),
        (Self::UnknownIsLanded, ONE_CHAIN),
        (Self::RefusedByCache, REFUSED_RIGHTLY),
        (Self::ClosersEmptied, READABLE),
        (Self::SmallClosersEmptied, READABLE),
        (Self::CloserCarriesSmall, READABLE),
    ];
}

const NOT_LOST: &str = "what was acknowledged is in the log";
const NO_DOUBLE: &str = "no commit is applied twice";
const NO_GHOST: &str = "what was refused never lands";
const REFUSED_RIGHTLY: &str = "what is refused had to be";
const FENCED: &str = "a fenced writer writes nothing";
const WON_ONCE: &str = "a slot is won once";
const ONE_CHAIN: &str = "each commit follows the one it was planned on";
const READABLE: &str = "all of a living log can be read";
const FINISHED: &str = "everything settles";

/// What a caller wants: sealed once, and the same in every attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Op {
    Create,
    /// The first run's answer, on the head that it began at.
    Answer,
    /// The first run's end; it has read its answer back, by whatever way.
    End,
    /// An input from another device: needs no lease.
    Input,
    /// The second writer takes the lease.
    TakeOver,
    /// The second run's first event.
    Note,
    Delete,
}

impl Op {
    fn size(self) -> u8 {
        if self == Self::Answer { 2 } else { 1 }
    }

    fn fence(self) -> Option<u8> {
        matches!(self, Self::Answer | Self::End).then_some(1)
    }

    fn expect(self) -> Option<u8> {
        match self {
            Self::Answer => Some(1),
            Self::End => Some(3),
            _ => None,
        }
    }
}

/// What each writer wants, in order.
const WANTED: [&[Op]; 2] = [&[Op::Answer, Op::End], &[Op::Input, Op::TakeOver, Op::Note, Op::Delete]];

/// The object in a slot: a function of the one before it and of the commit alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Object {
    slot: Slot,
    op: Op,
    /// Tells attempts apart where they have ids of their own.
    attempt: u8,
    /// The slot that it was planned on.
    after: Slot,
    first: u8,
    last: u8,
    epoch: u8,
    /// The commits so far, as the record remembers them.
    known: Vec<(Op, u8)>,
    /// The first event that it carries, and the slot that has those before.
    window: u8,
    previous: Option<Slot>,
    /// The first event of its small and of its big window, and the slots that closed those before. The object itself says
    /// that of the one which it carries; of the other its writer knows it from `previous`, which it keeps or fetches.
    small: (u8, Option<Slot>),
    big: (u8, Option<Slot>),
    emptied: bool,
}

impl Object {
    fn create() -> Self {
        Self {
            slot: 0,
            op: Op::Create,
            attempt: 0,
            after: 0,
            first: 1,
            last: 1,
            epoch: 1,
            known: vec![(Op::Create, 0)],
            window: 1,
            previous: None,
            small: (1, None),
            big: (1, None),
            emptied: false,
        }
    }

    fn deleted(&self) -> bool {
        self.op == Op::Delete
    }

    fn closes(&self) -> bool {
        self.last + 1 - self.small.0 >= SMALL
    }

    fn closes_big(&self) -> bool {
        self.closes() && self.last + 1 - self.big.0 >= BIG
    }

    /// Whether all before it is there without the slots that may be emptied: while the newest one is `newest`, it stays.
    fn stays(&self, newest: &Self, fault: Fault) -> bool {
        let open = newest.small.0 <= self.last;
        let closer = match fault {
            Fault::ClosersEmptied => false,
            Fault::SmallClosersEmptied => self.closes_big(),
            _ => self.closes_big() || self.closes() && newest.big.0 <= self.last,
        };
        self.slot == 0 || open || closer
    }

    fn next(&self, op: Op, attempt: u8, fault: Fault) -> Self {
        let first = self.last + 1;
        let mut known = self.known.clone();
        known.push((op, attempt));
        let last = self.last + op.size();
        let small = if self.closes() { (first, Some(self.slot)) } else { self.small };
        let big = if self.closes_big() { (first, Some(self.slot)) } else { self.big };
        let closes = last + 1 - small.0 >= SMALL;
        let (window, previous) = match fault {
            Fault::CloserCarriesSmall if closes => (small.0, big.1),
            _ if closes => big,
            _ => small,
        };
        Self {
            slot: first,
            op,
            attempt,
            after: self.slot,
            first,
            last,
            epoch: if op == Op::TakeOver { 2 } else { self.epoch },
            known,
            window,
            previous,
            small,
            big,
            emptied: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Planned {
    Write(Object),
    Replay,
    Refused,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Flight {
    writer: usize,
    put: Object,
    /// Whether the writer still waits for the answer.
    awaited: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Waiting,
    /// Nobody knows whether this landed, or will.
    InDoubt(Object),
    /// The slot is taken: look whose it is.
    Taken(Object),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writer {
    /// The head that it knows, however old; `None`: it has to list.
    head: Option<Object>,
    /// Whether that was read during the present operation.
    confirmed: bool,
    /// Which of its operations is next.
    at: usize,
    attempt: u8,
    phase: Phase,
    /// Whether there was a moment since the operation began at which it had to be refused.
    refusable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Reply {
    Done,
    Refused,
    /// The caller was told that nobody knows.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    store: BTreeMap<Slot, Object>,
    flights: Vec<Flight>,
    writers: [Writer; 2],
    replies: BTreeMap<Op, Reply>,
    lost: u8,
    delayed: u8,
    /// What landed, in order. No part of the system: what the properties speak of.
    won: Vec<Object>,
    /// Whether something was refused that need not have been.
    wronged: bool,
}

impl State {
    fn newest(&self) -> &Object {
        self.store.values().next_back().unwrap()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Lists, and reads the newest slot.
    List(usize),
    /// Plans on the head that it knows, and sends the PUT or gives its caller an answer.
    Send(usize),
    /// The PUT reaches the store, and the answer the writer, if it still waits.
    Land(usize),
    /// The PUT reaches the store; the answer gets lost.
    LoseAnswer(usize),
    /// The PUT is refused or lost: 409, 500, 503, a connection that breaks.
    Fail(usize),
    /// The writer no longer waits; the PUT is still under way.
    GiveUp(usize),
    /// A PUT that nobody waits for never lands.
    Vanish(usize),
    /// Sends the same PUT again.
    Again(usize),
    /// Tells the caller that the outcome is unknown; the caller sends the same commit again.
    Unknown(usize),
    /// Tells the caller that the outcome is unknown; the caller goes on with something else.
    Abandon(usize),
    /// Looks whose a taken slot is.
    Read(usize),
    /// Empties a slot that is no longer needed: of a closed window, or of a deleted session.
    Empty(Slot),
}

#[derive(Clone, Debug)]
pub(crate) struct Protocol {
    pub(crate) fault: Fault,
}

impl Protocol {
    fn plan(&self, head: &Object, op: Op, attempt: u8) -> Planned {
        if head.known.contains(&(op, attempt)) {
            return Planned::Replay;
        }
        let fenced =
            op.fence().is_some_and(|epoch| epoch != head.epoch) && self.fault != Fault::ForgottenFence;
        let conflict =
            op.expect().is_some_and(|last| last != head.last) && self.fault != Fault::ForgottenFence;
        if head.deleted() || fenced || conflict {
            return Planned::Refused;
        }
        Planned::Write(head.next(op, attempt, self.fault))
    }

    /// Whether the collector or the purger may empty a slot.
    fn may_empty(&self, state: &State, slot: Slot) -> bool {
        let (object, newest) = (&state.store[&slot], state.newest());
        if object.emptied || slot == newest.slot {
            return false;
        }
        if newest.deleted() {
            return self.fault != Fault::OldSlotsDeleted;
        }
        let stays = object.stays(newest, self.fault);
        if self.fault == Fault::OldSlotsDeleted {
            // What "older than a day, by the server's clock" and "a head older than an hour is listed again" come to:
            // whoever rests knows better by now. Whoever had looked already and was about to send does not rest.
            let stale = |writer: &Writer| {
                writer.phase == Phase::Idle
                    && writer.head.as_ref().is_some_and(|head| head.last < object.first)
            };
            return !stays && !state.writers.iter().any(stale);
        }
        !stays
    }

    /// Whether the events up to an object's last are found from it.
    fn readable<'a>(&self, state: &'a State, mut object: &'a Object) -> bool {
        loop {
            match object.previous {
                _ if object.emptied => return false,
                None => return object.window == 1,
                Some(slot) => match state.store.get(&slot) {
                    Some(before) if before.last + 1 == object.window => object = before,
                    _ => return false,
                },
            }
        }
    }

    fn finish(&self, state: &mut State, w: usize, replies: Reply) {
        let writer = &mut state.writers[w];
        state.replies.insert(WANTED[w][writer.at], replies);
        writer.at += 1;
        writer.attempt = 0;
        writer.confirmed = false;
        writer.refusable = false;
        writer.phase = Phase::Idle;
    }

    fn refuse(&self, state: &mut State, w: usize) {
        state.wronged |= !state.writers[w].refusable;
        self.finish(state, w, Reply::Refused);
    }

    fn send(&self, state: &mut State, w: usize) {
        let writer = &mut state.writers[w];
        let op = WANTED[w][writer.at];
        let Some(head) = &writer.head else { return };
        match self.plan(head, op, writer.attempt) {
            Planned::Write(put) => self.fly(state, w, put),
            Planned::Replay => self.finish(state, w, Reply::Done),
            Planned::Refused => self.refuse(state, w),
        }
    }

    fn fly(&self, state: &mut State, w: usize, put: Object) {
        state.writers[w].phase = Phase::Waiting;
        state.flights.push(Flight { writer: w, put, awaited: true });
        state.flights.sort();
    }

    /// What the store does with a PUT that has If-None-Match; whether it stored it.
    fn store(state: &mut State, put: &Object) -> bool {
        if state.store.contains_key(&put.slot) {
            return false;
        }
        state.store.insert(put.slot, put.clone());
        state.won.push(put.clone());
        true
    }

    fn read(&self, state: &mut State, w: usize, put: Object) {
        if self.fault == Fault::ExistsIsConflict {
            return self.refuse(state, w);
        }
        let writer = &mut state.writers[w];
        match state.store.get(&put.slot) {
            // Deleted since: nothing is known. (Happens in faulty variants only.)
            None => writer.phase = Phase::InDoubt(put),
            Some(object) if object.emptied => {
                let mine = (object.op, object.attempt) == (put.op, put.attempt);
                writer.head = None;
                writer.phase = Phase::Idle;
                if mine {
                    self.finish(state, w, Reply::Done);
                }
            }
            Some(object) => {
                let mine = (object.op, object.attempt) == (put.op, put.attempt);
                writer.head = Some(object.clone());
                writer.confirmed = true;
                writer.phase = Phase::Idle;
                if mine {
                    self.finish(state, w, Reply::Done);
                }
            }
        }
    }

    fn doubt(&self, state: &mut State, w: usize, put: Object) {
        state.writers[w].phase = Phase::InDoubt(put);
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let create = Object::create();
        let writer = Writer {
            head: Some(create.clone()),
            confirmed: false,
            at: 0,
            attempt: 0,
            phase: Phase::Idle,
            refusable: false,
        };
        vec![State {
            store: BTreeMap::from([(0, create.clone())]),
            flights: Vec::new(),
            writers: [writer.clone(), writer],
            replies: BTreeMap::new(),
            lost: LOST,
            delayed: DELAYED,
            won: vec![create],
            wronged: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (w, writer) in state.writers.iter().enumerate() {
            if writer.at == WANTED[w].len() {
                continue;
            }
            match &writer.phase {
                Phase::Idle => {
                    if writer.head.as_ref() != Some(state.newest()) || !writer.confirmed {
                        actions.push(Action::List(w));
                    }
                    if let Some(head) = &writer.head {
                        let planned = self.plan(head, WANTED[w][writer.at], writer.attempt);
                        let trusted = writer.confirmed || self.fault == Fault::RefusedByCache;
                        if planned != Planned::Refused || trusted {
                            actions.push(Action::Send(w));
                        }
                    }
                }
                Phase::Waiting => {}
                Phase::InDoubt(_) => {
                    actions.extend([Action::Again(w), Action::Unknown(w), Action::Abandon(w)]);
                }
                Phase::Taken(_) => actions.push(Action::Read(w)),
            }
        }
        for (n, flight) in state.flights.iter().enumerate() {
            actions.push(Action::Land(n));
            if !flight.awaited {
                actions.push(Action::Vanish(n));
                continue;
            }
            if state.lost > 0 {
                actions.extend([Action::LoseAnswer(n), Action::Fail(n)]);
            }
            if state.delayed > 0 {
                actions.push(Action::GiveUp(n));
            }
        }
        for slot in state.store.keys() {
            if self.may_empty(state, *slot) {
                actions.push(Action::Empty(*slot));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::List(w) => {
                state.writers[w].head = Some(last.newest().clone());
                state.writers[w].confirmed = true;
            }
            Action::Send(w) => self.send(&mut state, w),
            Action::Land(n) => {
                let flight = state.flights.remove(n);
                let stored = Self::store(&mut state, &flight.put);
                if flight.awaited && stored {
                    state.writers[flight.writer].head = Some(flight.put);
                    self.finish(&mut state, flight.writer, Reply::Done);
                } else if flight.awaited {
                    state.writers[flight.writer].phase = Phase::Taken(flight.put);
                }
            }
            Action::LoseAnswer(n) => {
                let flight = state.flights.remove(n);
                state.lost -= 1;
                Self::store(&mut state, &flight.put);
                self.doubt(&mut state, flight.writer, flight.put);
            }
            Action::Fail(n) => {
                let flight = state.flights.remove(n);
                state.lost -= 1;
                if self.fault == Fault::FailureIsConflict {
                    self.refuse(&mut state, flight.writer);
                } else {
                    self.doubt(&mut state, flight.writer, flight.put);
                }
            }
            Action::GiveUp(n) => {
                state.delayed -= 1;
                state.flights[n].awaited = false;
                let Flight { writer, put, .. } = state.flights[n].clone();
                state.flights.sort();
                self.doubt(&mut state, writer, put);
            }
            Action::Vanish(n) => {
                state.flights.remove(n);
            }
            Action::Again(w) => {
                let Phase::InDoubt(mut put) = state.writers[w].phase.clone() else { return None };
                if self.fault == Fault::NewIdOnRetry {
                    // What a retry does that plans anew, on what it finds, under a new id.
                    state.writers[w].attempt += 1;
                    put = match self.plan(last.newest(), put.op, state.writers[w].attempt) {
                        Planned::Write(put) => put,
                        _ => return None,
                    };
                }
                self.fly(&mut state, w, put);
            }
            Action::Unknown(w) => {
                state.replies.insert(WANTED[w][last.writers[w].at], Reply::Unknown);
                state.writers[w].phase = Phase::Idle;
                state.writers[w].confirmed = false;
            }
            Action::Abandon(w) => {
                let Phase::InDoubt(put) = state.writers[w].phase.clone() else { return None };
                if self.fault == Fault::UnknownIsLanded {
                    state.writers[w].head = Some(put);
                }
                self.finish(&mut state, w, Reply::Unknown);
            }
            Action::Read(w) => {
                let Phase::Taken(put) = state.writers[w].phase.clone() else { return None };
                self.read(&mut state, w, put);
            }
            Action::Empty(slot) => {
                let deletes = match self.fault {
                    Fault::PurgedSlotsDeleted => last.newest().deleted(),
                    Fault::OldSlotsDeleted => true,
                    _ => false,
                };
                if deletes {
                    state.store.remove(&slot);
                } else {
                    state.store.get_mut(&slot)?.emptied = true;
                }
            }
        }
        let newest = state.newest().clone();
        for (writer, wanted) in state.writers.iter_mut().zip(WANTED) {
            let op = wanted.get(writer.at);
            writer.refusable |=
                op.is_some_and(|op| self.plan(&newest, *op, writer.attempt) == Planned::Refused);
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NOT_LOST, |_, state: &State| {
                // The newest slot's record stands for the log: it is the fold of what it was planned on, and so on.
                let known = |op: &Op| state.newest().known.iter().any(|(known, _)| known == op);
                state.replies.iter().all(|(op, replies)| *replies != Reply::Done || known(op))
            }),
            Property::always(NO_DOUBLE, |_, state: &State| {
                state.won.iter().enumerate().all(|(n, a)| state.won[..n].iter().all(|b| a.op != b.op))
            }),
            Property::always(NO_GHOST, |_, state: &State| {
                state.won.iter().all(|object| state.replies.get(&object.op) != Some(&Reply::Refused))
            }),
            Property::always(REFUSED_RIGHTLY, |_, state: &State| !state.wronged),
            Property::always(FENCED, |_, state: &State| {
                state.won.windows(2).all(|pair| pair[1].op.fence().is_none_or(|epoch| pair[0].epoch == epoch))
            }),
            Property::always(WON_ONCE, |_, state: &State| {
                state.won.iter().enumerate().all(|(n, a)| state.won[..n].iter().all(|b| a.slot != b.slot))
            }),
            Property::always(ONE_CHAIN, |_, state: &State| {
                state
                    .won
                    .windows(2)
                    .all(|pair| pair[1].after == pair[0].slot && pair[1].first == pair[0].last + 1)
            }),
            Property::always(READABLE, |model, state: &State| {
                let newest = state.newest();
                let whole = state.store.values().all(|object| !object.emptied);
                // From the newest, from all that stay, and from any if none was emptied.
                let reads = |object: &&Object| whole || object.stays(newest, Fault::None);
                newest.deleted()
                    || model.readable(state, newest)
                        && state.store.values().filter(reads).all(|object| model.readable(state, object))
            }),
            Property::always(FINISHED, |model, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty()
                    || state.writers.iter().zip(WANTED).all(|(w, wanted)| w.at == wanted.len())
            }),
            // That these happen shows that the model explores what it is there for.
            Property::sometimes(
                "a PUT that was given up lands after another's commit",
                |_, state: &State| {
                    state.won.len() > 3 && state.delayed == 0 && state.won.last().unwrap().op == Op::Answer
                        || state.flights.iter().any(|f| !f.awaited && state.store.contains_key(&f.put.slot))
                },
            ),
            Property::sometimes("a commit in doubt had landed, and is found", |_, state: &State| {
                state.replies.get(&Op::Answer) == Some(&Reply::Done) && state.lost == 0 && state.delayed == 0
            }),
            Property::sometimes("a late writer is fenced", |_, state: &State| {
                state.replies.get(&Op::End) == Some(&Reply::Refused) && state.newest().epoch == 2
            }),
            Property::sometimes("all slots but the last are emptied", |_, state: &State| {
                state.store.len() > 4 && state.store.values().filter(|object| !object.emptied).count() == 1
            }),
        ]
    }
}
