//! Random sequences of operations, with reopening in between: the store answers each operation like the in-memory
//! reference. A sequence with a difference is shrunk to the shortest one that shows it.

use std::fmt::Debug;
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Committed, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::{NewEvent, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::{CallId, Patch, Timer, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{BindingQuery, ContentHash, Purge, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{MemoryStore, Result, RunId, Seq, SessionId, SessionStore, Storage, WorkspaceId};
use futures::future::BoxFuture;
use proptest::collection::vec;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::failure::{Checked, Failure, answer, holds_for, same};
use crate::history::History;
use crate::registry::{Clause, Needs, table};
use crate::stage::{START, Stage, own_events, race};

pub(super) fn clauses() -> Vec<Clause> {
    table![Sequences:
        sessions_match_the_reference (Needs::ImmediateLists),
        workspaces_and_bindings_match_the_reference (Needs::ExactRecency),
        concurrent_commits_have_a_serial_order,
    ]
}

/// Operation as numbers, which shrink well: what to do, to which session, and two details.
type Op = (u8, u8, u8, u8);

/// Returns the numbers of sequences to try, in parts. The sequences of a part may share a store, if existing data does
/// not affect them. Opening a store takes longer than a sequence.
fn parts(stage: &Stage) -> impl Iterator<Item = u32> {
    const PART: usize = 50;
    let count = (stage.settings.rounds / 4).max(2);
    (0..count).step_by(PART).map(move |start| PART.min(count - start) as u32)
}

/// Tries `count` random sequences, until one fails; then reports the shortest one that fails.
async fn try_all<'a>(stage: &Stage, count: u32, play: impl Fn(Vec<Op>) -> BoxFuture<'a, Checked>) -> Checked {
    let mut config = Config::with_cases(count);
    config.failure_persistence = None;
    let mut seed = [0; 32];
    stage.effects.fill(&mut seed);
    let found = tokio::task::block_in_place(|| {
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
        let here = tokio::runtime::Handle::current();
        runner.run(&vec((0u8..48, 0u8..3, 0u8..=255, 0u8..=255), 1..30), |ops| {
            here.block_on(play(ops)).map_err(|failure| TestCaseError::fail(failure.to_string()))
        })
    });
    match found {
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, ops)) => {
            // Once more, for the steps.
            play(ops).await?;
            Err(Failure::new("the shortest failing sequence, again", "the same failure", reason))
        }
        Err(TestError::Abort(reason)) => Err(Failure::new("random sequences", "to be made", reason)),
    }
}

/// Checks that two answers are equal: the same value, or an error of the same kind with the same outcome.
fn alike<T: PartialEq + Debug>(what: &str, store: &Result<T>, reference: &Result<T>) -> Checked {
    match (store, reference) {
        (Ok(store), Ok(reference)) => same(what, store, reference),
        (Err(store), Err(reference)) => {
            same(what, store.kind(), reference.kind())?;
            same(what, &store.write_outcome(), &reference.write_outcome())
        }
        (Err(error), Ok(_)) => Err(Failure::of(what, answer(reference), error)),
        (Ok(_), Err(_)) => Err(Failure::new(what, answer(reference), answer(store))),
    }
}

/// Workspace of a store, a reference that contains only this workspace, and the operations on both.
struct Play<'a> {
    stage: &'a Stage,
    storage: Storage,
    reference: Storage,
    workspace: WorkspaceId,
    sessions: Vec<SessionId>,
    runs: Vec<RunId>,
    sent: Vec<Commit>,
}

impl<'a> Play<'a> {
    async fn new(stage: &'a Stage, storage: Storage) -> Checked<Self> {
        let reference = MemoryStore::new().into();
        let workspace = stage.new_workspace(&storage).await?.id;
        let sessions: Vec<_> = (0..3).map(|_| stage.effects.new_session_id()).collect();
        let runs = (0..3).map(|_| stage.effects.new_run_id()).collect();
        let mut play = Self { stage, storage, reference, workspace, sessions, runs, sent: Vec::new() };
        for slot in 0..2 {
            play.send(Commit::create(&play.stage.effects, NewSession::new(play.sessions[slot], workspace)))
                .await?;
        }
        Ok(play)
    }

    async fn send(&mut self, commit: Commit) -> Checked {
        let store = self.storage.sessions.commit(commit.clone()).await;
        let reference = self.reference.sessions.commit(commit.clone()).await;
        self.sent.push(commit);
        alike("the answer to a commit", &store, &reference)
    }

    /// Returns the session of a slot in the reference; `None` if it does not exist.
    async fn now(&self, slot: usize) -> Option<Arc<SessionRecord>> {
        SessionStore::load(&*self.reference.sessions, self.sessions[slot]).await.ok()
    }

    async fn compare(&self) -> Checked {
        for id in &self.sessions {
            let reference = self.reference.sessions.load(*id).await;
            alike("a record", &self.storage.sessions.load(*id).await, &reference)?;
            if reference.is_ok() {
                let events = own_events(&self.storage, *id, 7).await?;
                same("a log", &events, &own_events(&self.reference, *id, 1000).await?)?;
            }
        }
        let query = SessionQuery::new().with_workspace(self.workspace).with_hidden().with_total();
        let mut store = self.storage.sessions.list(query.clone()).await?;
        let mut reference = self.reference.sessions.list(query).await?;
        for page in [&mut store, &mut reference] {
            page.items.sort_by_key(|session| session.id);
        }
        same("the list", &store, &reference)
    }

    async fn step(&mut self, (verb, slot, a, b): Op) -> Checked {
        let slot = usize::from(slot);
        let id = self.sessions[slot];
        let now = self.now(slot).await;
        let (head, epoch) = now.as_ref().map_or_else(Default::default, |now| (now.head, now.epoch));
        let stage = self.stage;
        let commit = stage.seal_at(id, head);
        let fenced = commit.clone().with_fence(self.runs[slot], epoch);
        let call: CallId = format!("call {}", a % 3).parse()?;
        let failure = || agent_core::model::Failure::new(Reason::RunError, "the model is away");
        let end = |end| Trigger::EndRun(end);
        let commit = match verb {
            0..8 => commit.with_events((0..=a % 3).map(|n| NewEvent::user_message(format!("{b} {n}")))),
            8..14 => {
                let run = LeaseRequest::new("holder", self.runs[slot]);
                let run = if a % 3 == 0 { run } else { run.if_ready() };
                commit.with_event(NewEvent::user_message("run")).with_trigger(Trigger::BeginRun(run))
            }
            14..17 => fenced.with_event(NewEvent::agent_message(format!("answer {a}"))),
            17 => fenced.with_event(NewEvent::tool_use(call, "ls", RawJson::empty_object())),
            18 => fenced.with_event(NewEvent::tool_result(call, ToolOutcome::Ok, RawJson::empty_object())),
            19..22 => fenced.with_trigger(match a % 5 {
                0 => end(RunEnd::Interrupted),
                1 => end(RunEnd::Failed(failure())),
                2 => end(RunEnd::retry(failure(), START, 3)),
                _ => end(RunEnd::Completed(Reason::EndTurn)),
            }),
            22..26 => commit.with_trigger(match a % 13 {
                0 => Trigger::Suspend(Reason::UserPaused),
                1 | 2 => Trigger::Resume,
                3 => Trigger::Archive,
                4 | 5 => Trigger::Unarchive,
                6 => Trigger::Fail(failure()),
                7 | 8 => Trigger::ClearFailure,
                9 => Trigger::LeaseExpired(epoch),
                10 => Trigger::ForceSuspend(Reason::Inactivity),
                11 => Trigger::Fence,
                _ => Trigger::Terminate(Reason::UserEnded),
            }),
            26 => commit.with_event(NewEvent::interrupt()),
            27 => commit.with_event(NewEvent::history_cleared()),
            28 => commit.with_event(NewEvent::timer_scheduled(Timer::new(format!("timer {}", a % 3), START))),
            29..31 => commit.with_event(NewEvent::updated(
                Patch::new().with_label(format!("label {}", a % 3), b.to_string()),
            )),
            31..34 => commit
                .with_event(NewEvent::user_message("stale"))
                .with_precondition(Precondition::Matches(Seq::new(u64::from(a % 16)))),
            34..37 => match self.sent.get(usize::from(a) % self.sent.len().max(1)) {
                Some(again) => again.clone(),
                None => commit,
            },
            37 => {
                let mut back = commit.with_event(NewEvent::user_message("the clock steps back"));
                back.at = START.plus_micros(-i64::from(a) * 1_000_000);
                back
            }
            38 => Commit::create(&stage.effects, NewSession::new(id, self.workspace)),
            39 => match self.now(usize::from(a) % 3).await {
                Some(parent) => Commit::create(&stage.effects, NewSession::fork(id, &parent)),
                None => commit,
            },
            40 if a % 3 == 0 => commit.with_trigger(Trigger::Delete(Reason::UserDeleted)),
            41 => {
                let purge = Purge::new(id, head).with_keep_through(Seq::new(u64::from(a % 4)));
                // What is left to rewrite is a store's own affair.
                let events = async |storage: &Storage, purge| {
                    storage.sessions.purge(purge).await.map(|purged| purged.events)
                };
                let store = events(&self.storage, purge.clone()).await;
                return alike("a purge", &store, &events(&self.reference, purge).await);
            }
            42 | 43 => {
                self.storage = stage.open().await?;
                return self.compare().await;
            }
            _ => {
                let limit = usize::from(a % 5) + 1;
                let read = if b % 2 == 0 { ReadEvents::first(limit) } else { ReadEvents::last(limit) };
                let read = read.with_after(Seq::new(u64::from(b % 7))).with_max_bytes(usize::from(a) * 20);
                let read = if b % 3 == 0 { read.with_before(Seq::new(u64::from(a % 11))) } else { read };
                let store = self.storage.sessions.read(id, read.clone()).await;
                let reference = self.reference.sessions.read(id, read).await;
                return alike("a page of events", &store, &reference);
            }
        };
        self.send(commit).await
    }
}

/// Sessions answer like the reference: commits of every kind, including repeated and stale ones, forks, purges, reads
/// and reopenings, on three sessions.
async fn sessions_match_the_reference(stage: &Stage) -> Checked {
    for count in parts(stage) {
        let on = &stage.another(stage.journal.clone()).await?;
        let storage = &on.open().await?;
        let play = |ops: Vec<Op>| -> BoxFuture<'_, Checked> {
            Box::pin(async move {
                let mut play = Play::new(on, storage.clone()).await?;
                for op in ops {
                    play.step(op).await?;
                }
                play.compare().await
            })
        };
        try_all(stage, count, play).await?;
    }
    Ok(())
}

/// Commits of one task, each with its last answer.
type Sent = Vec<(Commit, Result<Committed>)>;

/// One of several tasks that use the same sessions at the same time, each on its own handle.
struct Task {
    name: String,
    effects: Effects,
    storage: Storage,
    history: History,
    sessions: Vec<SessionId>,
}

async fn work(task: Task, ops: Vec<Op>) -> Checked<Sent> {
    let Task { name, effects, storage, history, sessions } = task;
    let store = &*storage.sessions;
    let mut sent: Sent = Vec::new();
    let run = effects.new_run_id();
    for (verb, slot, a, b) in ops {
        let id = sessions[usize::from(slot) % sessions.len()];
        let now = history.load(&name, store, id).await?;
        if b % 3 == 0 {
            history.read(&name, store, id).await?;
        }
        let commit = Commit::seal(&effects, id, now.head);
        let messages = |count: u8| (0..count).map(|n| NewEvent::user_message(format!("{a} {b} {n}")));
        let commit = match verb {
            0..10 => commit.with_events(messages(1 + a % 3)),
            10..22 => {
                commit.with_events(messages(1 + a % 3)).with_precondition(Precondition::Matches(now.head))
            }
            22..28 => commit
                .with_events(messages(1))
                .with_trigger(Trigger::BeginRun(LeaseRequest::new("holder", run))),
            28..34 => commit.with_fence(run, now.epoch).with_event(NewEvent::agent_message("so far")),
            34..38 => commit
                .with_fence(run, now.epoch)
                .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))),
            38..40 => commit.with_trigger(Trigger::LeaseExpired(now.epoch)),
            40 | 41 => commit.with_event(NewEvent::history_cleared()),
            42 | 43 => commit.with_event(NewEvent::updated(Patch::new().with_label("k", b.to_string()))),
            // The answer was lost, as far as its sender knows.
            _ => match sent.get(usize::from(a) % sent.len().max(1)) {
                Some((again, _)) => again.clone(),
                None => commit.with_events(messages(2)),
            },
        };
        let done = history.commit(&name, store, commit.clone()).await;
        match sent.iter_mut().find(|(known, _)| known.id == commit.id) {
            Some((_, answer)) => match (&*answer, &done) {
                (Ok(first), Ok(again)) => {
                    let place = |done: &Committed| (done.first, done.last);
                    same("the answer to a commit sent again", &place(again), &place(first))?;
                }
                // What was refused may be in order by now.
                (Err(_), _) => *answer = done,
                // A commit that landed long ago is a Conflict, and stands where it stood.
                (Ok(_), Err(error)) => {
                    let old = matches!(error.kind(), agent_core::ErrorKind::Conflict { .. });
                    holds_for("a commit that landed is answered, or a Conflict", error, old)?;
                }
            },
            None => sent.push((commit, done)),
        }
    }
    Ok(sent)
}

/// Checks that the answers to several tasks are those of the reference to the same commits in the order of the log,
/// and that this order agrees with real time.
async fn have_one_order(storage: &Storage, created: &Commit, sent: &Sent, history: &History) -> Checked {
    let id = created.session;
    let events = own_events(storage, id, 1000).await?;
    let seqs: Vec<_> = events.iter().map(|event| event.seq.get()).collect();
    same("the sequence", &seqs, &(1..=events.len() as u64).collect())?;
    let record = storage.sessions.load(id).await?;
    same("the fold of the log", &super::machine::fold(id, &events)?, &record)?;
    let reference = MemoryStore::new();
    SessionStore::commit(&reference, created.clone()).await?;
    let written =
        |commit: &Commit| events.iter().find(|event| event.commit == commit.id).map(|event| event.seq);
    for (commit, answer) in sent {
        if let Err(error) = answer {
            same(format_args!("where a commit stands that was refused ({error})"), &written(commit), &None)?;
        }
    }
    let mut landed: Vec<_> = sent
        .iter()
        .filter_map(|(commit, answer)| Some((commit, answer.as_ref().ok()?)))
        .filter(|(_, done)| done.first <= done.last)
        .collect();
    landed.sort_by_key(|(_, done)| done.first);
    for (commit, done) in landed {
        same("where a commit stands that was acknowledged", &written(commit), &Some(done.first))?;
        let expected = SessionStore::commit(&reference, commit.clone()).await?;
        same("its last event, as in the order of the log", &done.last, &expected.last)?;
    }
    same("the record, as in the order of the log", &record, &SessionStore::load(&reference, id).await?)?;
    let judged = history.judge(id, &events);
    judged.map_err(|what| Failure::new("all that was answered", "one order that agrees with real time", what))
}

/// Random commits of three concurrent tasks, including stale and repeated ones, have the same result as one after the
/// other. No acknowledged commit is missing, no refused one is there, the events have no gaps, and the record is their
/// fold. All answers in the meantime, including loads and reads, are ones that the log gave at some point between call
/// and answer.
async fn concurrent_commits_have_a_serial_order(stage: &Stage) -> Checked {
    for count in parts(stage) {
        let on = &stage.another(stage.journal.clone()).await?;
        let handles = &on.handles(3).await?;
        let workspace = on.new_workspace(&handles[0]).await?.id;
        try_all(stage, count, |ops| Box::pin(several(on, handles, workspace, ops))).await?;
    }
    Ok(())
}

/// Runs one sequence, distributed over three tasks.
async fn several(stage: &Stage, handles: &[Storage], workspace: WorkspaceId, ops: Vec<Op>) -> Checked {
    let history = History::default();
    let created: Vec<_> = (0..2)
        .map(|_| Commit::create(&stage.effects, NewSession::new(stage.effects.new_session_id(), workspace)))
        .collect();
    for commit in &created {
        history.commit("the first", &*handles[0].sessions, commit.clone()).await?;
    }
    let ids: Vec<_> = created.iter().map(|commit| commit.session).collect();
    let tasks = handles.iter().enumerate().map(|(n, storage)| {
        let mine = ops.iter().skip(n).step_by(3).copied().collect();
        let task = Task {
            name: format!("task {}", n + 1),
            effects: stage.effects.clone(),
            storage: storage.clone(),
            history: history.clone(),
            sessions: ids.clone(),
        };
        work(task, mine)
    });
    let mut sent = Sent::new();
    for task in race(tasks).await? {
        sent.extend(task?);
    }
    for created in &created {
        let (its, others) = sent.into_iter().partition(|(commit, _)| commit.session == created.session);
        have_one_order(&handles[0], created, &its, &history).await?;
        sent = others;
    }
    Ok(())
}

/// Workspaces and bindings answer like the reference: records, configurations, bindings, deletions and reopenings, on
/// three workspaces and three devices.
async fn workspaces_and_bindings_match_the_reference(stage: &Stage) -> Checked {
    let count = parts(stage).sum();
    try_all(stage, count, |ops| {
        Box::pin(async move {
            let stage = stage.another(stage.journal.clone()).await?;
            let mut storage = stage.open().await?;
            let reference: Storage = MemoryStore::new().into();
            let pool: Vec<Workspace> = (0..3).map(|n| stage.workspace(&format!("workspace {n}"))).collect();
            for op in ops {
                if op.0 % 12 == 11 {
                    storage = stage.open().await?;
                }
                tend(&stage, &storage, &reference, &pool, op).await?;
            }
            let query = WorkspaceQuery::new().with_total();
            let mut pages =
                (storage.workspaces.list(query.clone()).await?, reference.workspaces.list(query).await?);
            pages.0.items.sort_by_key(|workspace| workspace.id);
            pages.1.items.sort_by_key(|workspace| workspace.id);
            same("the workspaces", &pages.0, &pages.1)?;
            let query = BindingQuery::new();
            let mut bound =
                (storage.bindings.list(query.clone()).await?, reference.bindings.list(query).await?);
            // Each store has an order of its own.
            bound.0.items.sort();
            bound.1.items.sort();
            same("the bindings", &bound.0, &bound.1)
        })
    })
    .await
}

/// Runs one operation on workspaces and bindings, on both stores.
async fn tend(stage: &Stage, storage: &Storage, reference: &Storage, pool: &[Workspace], op: Op) -> Checked {
    let (verb, slot, a, b) = op;
    let (one, other) = (pool[usize::from(slot)].clone(), pool[usize::from(b) % 3].id);
    let (id, device) = (one.id, stage.device(&format!("device {}", a % 3))?);
    // The same call on both, and that the answers are alike.
    macro_rules! both {
        ($store:ident.$call:ident($($argument:expr),*)) => {
            alike(
                stringify!($store.$call),
                &storage.$store.$call($($argument),*).await,
                &reference.$store.$call($($argument),*).await,
            )
        };
    }
    let text = |n: u8| format!("n = {}\n", n % 3);
    match verb % 12 {
        0 => both!(workspaces.put(one.clone(), Precondition::MustNotExist)),
        1 => {
            let now = reference.workspaces.load(id).await;
            let revision = now.map_or(agent_core::Revision::ZERO, |now| now.revision);
            let revision = if a % 3 == 0 { revision.next() } else { revision };
            both!(workspaces.put(one.clone().with_description(text(b)), Precondition::Matches(revision)))
        }
        2 => both!(workspaces.put(one.clone().with_name(format!("name {b}")), Precondition::MustExist)),
        3 => both!(workspaces.touch(id, START.plus_micros(i64::from(a) * 1_000_000))),
        4 if a % 4 == 0 => both!(workspaces.delete(id)),
        5 => {
            let expect = match a % 3 {
                0 => Precondition::MustNotExist,
                1 => Precondition::MustExist,
                _ => Precondition::Matches(ContentHash::of(&text(a))),
            };
            both!(workspaces.save_config(id, (b % 4 != 0).then(|| text(b)), expect))
        }
        6 => both!(workspaces.load_config(id)),
        7 => {
            let expect = match b % 4 {
                0 | 1 => Precondition::MustNotExist,
                2 => Precondition::Matches(other),
                _ => Precondition::MustExist,
            };
            both!(bindings.bind(&device, id, expect))
        }
        8 => both!(bindings.unbind(&device)),
        9 => both!(bindings.unbind_workspace(id)),
        10 => both!(bindings.resolve(&device)),
        _ => both!(workspaces.load(id)),
    }
}
