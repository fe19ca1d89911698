//! A session that lives in a test: commits are planned and folded, nothing is stored.

#![allow(dead_code, reason = "each test binary uses its part")]

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Committed, LeaseRequest, Precondition, Trigger};
use agent_core::event::{Event, NewEvent};
use agent_core::json::RawJson;
use agent_core::model::{CallId, Status};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::{Plan, Result, Seq, SessionId, WorkspaceId, plan};

/// Drives one session by plan alone, and keeps its log.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) effects: Effects,
    pub(crate) id: SessionId,
    pub(crate) session: Option<SessionRecord>,
    pub(crate) log: Vec<Event>,
}

impl Driver {
    /// No session yet.
    pub(crate) fn nothing() -> Self {
        let effects = Effects::seeded(1, "2026-02-15T10:30:00Z".parse().unwrap());
        let id = effects.new_session_id();
        Self { effects, id, session: None, log: Vec::new() }
    }

    /// A session that needs no preparation.
    pub(crate) fn created() -> Self {
        let mut driver = Self::nothing();
        driver.commit(Commit::create(&driver.effects, driver.new_session())).unwrap();
        driver
    }

    /// A session that is being prepared.
    pub(crate) fn initializing() -> Self {
        let mut driver = Self::nothing();
        let create = driver
            .seal()
            .with_precondition(Precondition::MustNotExist)
            .with_trigger(Trigger::Create(Box::new(driver.new_session())));
        driver.commit(create).unwrap();
        driver
    }

    pub(crate) fn new_session(&self) -> NewSession {
        NewSession::new(self.id, WorkspaceId::DEFAULT)
    }

    /// A commit without steps, by a writer that has seen everything.
    pub(crate) fn seal(&self) -> Commit {
        Commit::seal(&self.effects, self.id, self.session.as_ref().map_or(Seq::ZERO, |session| session.head))
    }

    /// A commit of the present run.
    pub(crate) fn seal_fenced(&self) -> Commit {
        let lease = self.now().lease.clone().expect("a run");
        self.seal().with_fence(lease.run, lease.epoch)
    }

    #[allow(clippy::needless_pass_by_value, reason = "called as a store is")]
    pub(crate) fn commit(&mut self, commit: Commit) -> Result<Committed> {
        let before = self.session.clone();
        let planned = match plan(self.session.as_ref(), &commit) {
            Ok(planned) => planned,
            Err(error) => {
                assert_eq!(self.session, before, "an error changes nothing");
                return Err(error);
            }
        };
        if let Plan::Write { events, after, .. } = &planned {
            self.log.extend(events.iter().cloned());
            self.session = Some((**after).clone());
        }
        Ok(planned.committed())
    }

    pub(crate) fn event(&mut self, event: NewEvent) -> Result<Committed> {
        let commit = self.seal().with_event(event);
        self.commit(commit)
    }

    pub(crate) fn trigger(&mut self, trigger: Trigger) -> Result<Committed> {
        let commit = self.seal().with_trigger(trigger);
        self.commit(commit)
    }

    /// A trigger of the present run.
    pub(crate) fn run_trigger(&mut self, trigger: Trigger) -> Result<Committed> {
        let commit = self.seal_fenced().with_trigger(trigger);
        self.commit(commit)
    }

    pub(crate) fn lease_request(&self) -> LeaseRequest {
        LeaseRequest::new("the test", self.effects.new_run_id())
    }

    /// An input, and the run that answers it.
    pub(crate) fn prompt(&mut self) -> Committed {
        let request = self.lease_request();
        let commit =
            self.seal().with_event(NewEvent::user_message("hello")).with_trigger(Trigger::BeginRun(request));
        self.commit(commit).unwrap()
    }

    pub(crate) fn now(&self) -> &SessionRecord {
        self.session.as_ref().expect("a session")
    }

    pub(crate) fn status(&self) -> Status {
        self.now().status
    }

    /// The record, rebuilt from the log alone.
    pub(crate) fn folded(&self) -> SessionRecord {
        fold(self.id, &self.log)
    }
}

/// What a log comes to.
pub(crate) fn fold(id: SessionId, log: &[Event]) -> SessionRecord {
    let mut session = SessionRecord::begin(id, &log[0]).unwrap();
    for event in &log[1..] {
        session.apply(event).unwrap();
    }
    session
}

pub(crate) fn json(text: &str) -> RawJson {
    RawJson::parse(text).unwrap()
}

pub(crate) fn call(id: &str) -> CallId {
    id.parse().unwrap()
}
