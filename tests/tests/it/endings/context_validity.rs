//! Model contexts are accepted by every provider, after any event in the session and any cut.

use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{
    Compaction, EventPayload, EventType, NewEvent, SystemMessage, ToolOutcome, ToolResult, ToolUse,
};
use agent_core::json::RawJson;
use agent_core::model::{ActionKind, CallId, Failure, Patch, PendingAction, ToolPayloads};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::{Epoch, ErrorKind, RunId, Seq, Storage, Timestamp, WorkspaceId};
use agent_runtime::context::{ContextLimits, Messages, ModelContext, ModelMessage};
use agent_tests::each_store;
use futures::FutureExt;

use crate::endings::provider_rules;
use crate::endings::site::{Site, history};

/// A session in the hands of chance.
struct Life<'a> {
    storage: &'a Storage,
    effects: Effects,
    now: Arc<SessionRecord>,
    run: Option<(RunId, Epoch)>,
    count: u32,
    /// What a model was given last, and the window that it was given it in.
    given: Option<((Seq, Seq), Messages)>,
    /// How often what was given was longer than what was given before.
    grown: usize,
}

impl Life<'_> {
    fn pick(&self, of: u64) -> u64 {
        self.effects.random_u64() % of
    }

    fn text(&mut self) -> String {
        self.count += 1;
        format!("text {} {}", self.count, "한🙂".repeat(usize::try_from(self.pick(12)).unwrap()))
    }

    fn seal(&self) -> Commit {
        let commit = Commit::seal(&self.effects, self.now.id, self.now.head);
        match self.run {
            Some((run, epoch)) => commit.with_fence(run, epoch),
            None => commit,
        }
    }

    /// As somebody who does not hold the lease.
    fn outside(&self) -> Commit {
        Commit::seal(&self.effects, self.now.id, self.now.head)
    }

    async fn commit(&mut self, commit: Commit) {
        let done = self.storage.sessions.commit(commit).await.unwrap();
        self.run = self.run.filter(|_| done.session.status.state == SessionState::Running);
        self.now = done.session;
    }

    async fn begin(&mut self, input: bool) {
        let run = self.effects.new_run_id();
        let mut commit = self.outside();
        if input {
            commit = commit.with_event(NewEvent::user_message(self.text()));
        }
        let commit = commit.with_trigger(Trigger::BeginRun(LeaseRequest::new("laptop", run)));
        self.commit(commit).await;
        self.run = Some((run, self.now.epoch));
    }

    /// Whatever is possible now, by chance.
    async fn step(&mut self) {
        match self.now.status.state {
            SessionState::Running => self.step_of_run().await,
            SessionState::RequiresAction => {
                let open = self.now.open_calls.iter().find(|open| open.custom).map(|open| open.call.clone());
                let commit = match open {
                    Some(call) if self.pick(3) > 0 => {
                        let result = ToolResult::new(call, ToolOutcome::Ok, RawJson::parse("[1]").unwrap());
                        self.outside().with_event(NewEvent::of(&EventPayload::UserCustomToolResult(result)))
                    }
                    _ => self.outside().with_event(NewEvent::interrupt()),
                };
                self.commit(commit).await;
            }
            SessionState::Suspended => self.commit(self.outside().with_trigger(Trigger::Resume)).await,
            SessionState::Failed => self.commit(self.outside().with_trigger(Trigger::ClearFailure)).await,
            state => match self.pick(15) {
                14 => self.inject().await,
                0 => self.commit(self.outside().with_event(NewEvent::history_cleared())).await,
                1 => self.commit(self.outside().with_trigger(Trigger::Suspend(Reason::Inactivity))).await,
                2 => {
                    let event = NewEvent::user_message(self.text());
                    self.commit(self.outside().with_event(event)).await;
                }
                3..6 if state == SessionState::Queued => self.begin(false).await,
                _ => self.begin(true).await,
            },
        }
        if self.pick(6) == 0 {
            self.compact().await;
        }
        if self.pick(8) == 0 && self.now.status.state != SessionState::Deleted {
            self.fork().await;
        }
    }

    async fn step_of_run(&mut self) {
        let open = self.now.open_calls.first().map(|open| (open.call.clone(), open.custom));
        match self.pick(19) {
            16 => self.inject().await,
            17 | 18 => self.compact_in_run().await,
            0..5 => {
                let mut commit = self.seal();
                if self.pick(2) == 0 {
                    commit = commit.with_event(NewEvent::agent_message(self.text()));
                }
                for _ in 0..=self.pick(3) {
                    let call: CallId = format!("call_{}", self.pick(9)).parse().unwrap();
                    let is_open = self.now.open_calls.iter().any(|open| open.call == call);
                    let is_new = !commit.steps.iter().any(|step| format!("{step:?}").contains(call.as_str()));
                    if !is_open && is_new {
                        let call = ToolUse::new(call, "look", RawJson::empty_object());
                        let custom = self.pick(5) == 0;
                        let body = if custom {
                            EventPayload::AgentCustomToolUse(call)
                        } else {
                            EventPayload::AgentToolUse(call)
                        };
                        commit = commit.with_event(NewEvent::of(&body));
                    }
                }
                if !commit.steps.is_empty() {
                    self.commit(commit).await;
                }
            }
            5..10 if open.is_some() => {
                let (call, _) = open.unwrap();
                let output = RawJson::of(&self.text()).unwrap();
                self.commit(self.seal().with_event(NewEvent::tool_result(call, ToolOutcome::Ok, output)))
                    .await;
            }
            5..8 => {
                let event = NewEvent::agent_message(self.text());
                self.commit(self.seal().with_event(event)).await;
            }
            8 => self.commit(self.seal().with_trigger(Trigger::ClaimInputs)).await,
            9 | 10 => {
                let event = NewEvent::user_message(self.text());
                self.commit(self.outside().with_event(event)).await;
            }
            // The process dies, and somebody finds out.
            11 => {
                let gone = self.now.epoch;
                self.commit(self.outside().with_trigger(Trigger::LeaseExpired(gone))).await;
            }
            12 => self.commit(self.outside().with_trigger(Trigger::ForceSuspend(Reason::UserPaused))).await,
            13 => {
                let custom = self.now.open_calls.iter().find(|open| open.custom);
                if let Some(id) = custom.map(|open| open.call.as_str().parse().unwrap()) {
                    let action = PendingAction::new(id, ActionKind::ToolResult, "Please");
                    self.commit(self.seal().with_trigger(Trigger::EndRun(RunEnd::Await(action)))).await;
                }
            }
            14 => {
                let failure = Failure::new(Reason::RunError, "no");
                let retry = RunEnd::retry(failure, Timestamp::UNIX_EPOCH, 3);
                self.commit(self.seal().with_trigger(Trigger::EndRun(retry))).await;
            }
            _ => {
                let end =
                    [RunEnd::Completed(Reason::EndTurn), RunEnd::Interrupted][self.pick(2) as usize].clone();
                let event = NewEvent::agent_message(self.text());
                self.commit(self.seal().with_event(event).with_trigger(Trigger::EndRun(end))).await;
            }
        }
    }

    /// Somebody else adds a text of the system.
    async fn inject(&mut self) {
        let text = EventPayload::SystemMessage(SystemMessage::injected(self.text()));
        self.commit(self.outside().with_event(NewEvent::of(&text))).await;
    }

    /// The run compacts the session before its question is answered; the question is repeated.
    async fn compact_in_run(&mut self) {
        let (done, claimed) = (self.now.inputs_done_through, self.now.inputs_claimed_through);
        if !self.now.open_calls.is_empty() || self.now.head <= self.now.context_from {
            return;
        }
        let inputs: Vec<_> = history(self.storage, self.now.id)
            .await
            .into_iter()
            .filter(|event| event.kind == EventType::USER_MESSAGE && event.seq > done)
            .filter(|event| event.seq > self.now.visible_from)
            .collect();
        let open = inputs.iter().map(|event| event.seq);
        let asked = inputs.iter().filter(|event| event.seq <= claimed);
        let asked: Vec<_> =
            asked.map(|event| ModelMessage::user(event.text().unwrap().into_owned())).collect();
        let compaction = Compaction::new(self.now.head, "what was before");
        // Without saying which inputs are open they would be lost.
        if self.now.inputs_open > 0 {
            let event = NewEvent::of(&EventPayload::SessionCompacted(compaction.clone()));
            let error = self.storage.sessions.commit(self.seal().with_event(event)).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        let compaction = compaction.with_inputs(open, claimed.max(done));
        let event = NewEvent::of(&EventPayload::SessionCompacted(compaction));
        self.commit(self.seal().with_event(event)).await;
        let limits = ContextLimits::default();
        let context = ModelContext::read(&*self.storage.sessions, &self.now, limits).await.unwrap();
        assert_eq!(Vec::from(context.messages())[1..], asked, "{}", self.now.to_json());
    }

    /// A compaction adds one event, and changes none.
    async fn compact(&mut self) {
        let until = (self.pick(2) == 0).then(|| Seq::new(1 + self.pick(self.now.head.get())));
        let before = history(self.storage, self.now.id).await;
        match self.storage.sessions.compact(self.now.id, until, "what was before").await {
            Ok(done) => {
                let after = history(self.storage, self.now.id).await;
                assert_eq!(after[..before.len()], before, "the log is as it was");
                assert_eq!(after.len(), before.len() + 1);
                self.now = done.session;
            }
            Err(error) => assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}"),
        }
    }

    /// Goes on in a fork, made at some event.
    async fn fork(&mut self) {
        let at = (self.pick(2) == 0).then(|| Seq::new(1 + self.pick(self.now.head.get())));
        match self.storage.sessions.fork(self.now.id, at).await {
            Ok(fork) => {
                // Of an earlier point, it has less.
                self.given = self.given.take().filter(|_| fork.lineage.base() == self.now.head);
                (self.now, self.run) = (fork, None);
            }
            Err(error) => assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}"),
        }
    }

    /// What a model would be given now, cut in several ways.
    async fn check(&self) {
        let limits = [
            ContextLimits::default(),
            ContextLimits::new(1 + self.pick(9) as usize, 60 + self.pick(2000) as usize),
            ContextLimits::new(1 + self.pick(3) as usize, 1 + self.pick(80) as usize)
                .with_tool_output_bytes(20),
        ];
        for limits in limits {
            let context = ModelContext::read(&*self.storage.sessions, &self.now, limits).await.unwrap();
            let messages = context.messages();
            if let Err(broken) = provider_rules::check(&messages) {
                panic!("{broken}\n{limits:?}\n{}\n{messages:#?}", self.now.to_json());
            }
            let summary = matches!(messages.first(), Some(ModelMessage::Summary(_)));
            assert_eq!(summary, self.now.summary > Seq::ZERO, "the summary stands first");
        }
    }

    /// The prefix law: what a model is given grows at its end only, until an event opens a new window.
    async fn check_prefix(&mut self) {
        if !self.now.open_calls.is_empty() {
            return;
        }
        let limits = ContextLimits::new(usize::MAX, usize::MAX);
        let context = ModelContext::read(&*self.storage.sessions, &self.now, limits).await.unwrap();
        assert!(!context.needs_compaction(), "everything is read");
        let (window, messages) = ((self.now.visible_from, self.now.summary), context.messages());
        if let Some((before, given)) = &self.given
            && *before == window
        {
            assert!(
                messages.starts_with(given),
                "{}\nwas given: {given:#?}\nis given: {messages:#?}",
                self.now.to_json()
            );
            self.grown += usize::from(messages.len() > given.len());
        }
        self.given = Some((window, messages));
    }
}

async fn live(storage: &Storage, seed: u64, steps: usize) -> usize {
    let effects = Effects::seeded(seed, Timestamp::from_micros(1_771_151_400_000_000));
    let storage = &storage.clone().with_effects(effects.clone());
    let mut new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    if seed.is_multiple_of(3) {
        new = new.with_patch(&Patch::new().with_tool_payloads(ToolPayloads::Omit));
    }
    let now = storage.sessions.create(new).await.unwrap();
    let mut life = Life { storage, effects, now, run: None, count: 0, given: None, grown: 0 };
    for _ in 0..steps {
        life.step().await;
        life.check().await;
        life.check_prefix().await;
    }
    // The session expires, with whatever is open in it.
    let expired = life.outside().with_trigger(Trigger::Terminate(Reason::Expired));
    life.commit(expired).await;
    life.check().await;
    life.check_prefix().await;
    life.grown
}

/// Interrupted after any commit, cut by limits, forked, cleared, compacted or expired: what a model is
/// given keeps the rules of every provider, and begins with what it was given before. The seed of a life that breaks one is printed; AGENT_ENDINGS_SEED lives it
/// again.
async fn every_context_is_valid_for_every_provider(site: Site) {
    let one: Option<u64> = std::env::var("AGENT_ENDINGS_SEED").ok().map(|seed| seed.parse().unwrap());
    let lives = if site.name == "memory" { 300 } else { 8 };
    let mut grown = 0;
    for seed in one.map_or(0..lives, |seed| seed..seed + 1) {
        let storage = site.fresh(usize::try_from(seed).unwrap());
        let life = std::panic::AssertUnwindSafe(live(&storage, seed, 30)).catch_unwind().await;
        assert!(life.is_ok(), "{}: AGENT_ENDINGS_SEED={seed}", site.name);
        grown += life.unwrap_or_default();
    }
    println!("proof: {grown} contexts that begin with the one before");
    assert!(grown > 5 * usize::try_from(one.map_or(lives, |_| 0)).unwrap(), "{}: {grown}", site.name);
}

each_store!(every_context_is_valid_for_every_provider and files and mixed);

/// A summary cannot stand for an open call, for what another stands for already, or for what is not there.
async fn summary_covers_only_closed_calls(site: Site) {
    let storage = site.fresh(0);
    let effects = Effects::seeded(3, Timestamp::from_micros(1_771_151_400_000_000));
    let storage = storage.with_effects(effects.clone());
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let now = storage.sessions.create(new).await.unwrap();
    let mut life =
        Life { storage: &storage, effects: effects.clone(), now, run: None, count: 0, given: None, grown: 0 };
    life.begin(true).await;
    let asked = life.now.head;
    let call: CallId = "call_1".parse().unwrap();
    life.commit(life.seal().with_event(NewEvent::tool_use(call.clone(), "look", RawJson::empty_object())))
        .await;
    let compact = async |life: &Life<'_>, until: Option<Seq>| {
        life.storage.sessions.compact(life.now.id, until, "short").await
    };
    for until in [Some(Seq::ZERO), Some(asked), Some(life.now.head), Some(life.now.head.next())] {
        let error = compact(&life, until).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{}, {until:?}: {error}", site.name);
    }
    // Also where it is written as it is, and nobody looked.
    for until in [Seq::ZERO, life.now.head, Seq::new(1000)] {
        let raw = life
            .outside()
            .with_event(NewEvent::of(&EventPayload::SessionCompacted(Compaction::new(until, "no"))));
        let error = storage.sessions.commit(raw).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{}, {until}: {error}", site.name);
    }
    let before = compact(&life, None).await.unwrap();
    assert_eq!(before.session.context_from, Seq::new(1), "{}: before the question", site.name);
    life.now = before.session;
    let done = life
        .seal()
        .with_event(NewEvent::tool_result(call, ToolOutcome::Ok, RawJson::empty_object()))
        .with_event(NewEvent::agent_message("done"))
        .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    life.commit(done).await;
    let between = Seq::new(asked.get() + 1);
    let error = compact(&life, Some(between)).await.unwrap_err();
    assert!(error.to_string().contains("open at event"), "{}: {error}", site.name);
    let head = life.now.head;
    let all = compact(&life, None).await.unwrap();
    assert_eq!(all.session.context_from, head, "{}", site.name);
    let error = compact(&life, Some(head)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{}: twice: {error}", site.name);
    life.now = all.session;
    let context = ModelContext::read(&*storage.sessions, &life.now, ContextLimits::default()).await.unwrap();
    assert_eq!(context.messages(), [ModelMessage::Summary("short".to_owned())], "{}", site.name);
    life.commit(life.outside().with_event(NewEvent::history_cleared())).await;
    let context = ModelContext::read(&*storage.sessions, &life.now, ContextLimits::default()).await.unwrap();
    assert_eq!(context.messages(), [], "{}: cleared, with its summary", site.name);
}

each_store!(summary_covers_only_closed_calls and mixed);
