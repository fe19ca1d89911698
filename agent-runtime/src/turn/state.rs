//! State of one run, and how the run stores its steps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::config::OnStoreError;
use crate::context::ModelContext;
use crate::model::provider::ToolMode;
use crate::model::replay::{Given, Without};
use crate::run::limit::ReachedLimit;
use crate::run::report::Update;
use crate::run::stop::{OwnHead, Stopped, asks_to_stop, stopped};
use crate::run::updates::UpdateSender;
use crate::tool::toolbox::Toolbox;
use crate::turn::session_ref::SessionRef;
use crate::turn::settings::{Settings, Theirs};
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::model::{Actor, Request, RunUsage, Usage};
use agent_core::session::SessionRecord;
use agent_core::{CommitId, Epoch, Error, ErrorKind, Result, RunId, Seq, SessionStoreExt};

/// State of one run.
pub(crate) struct Driver {
    pub(super) handle: SessionRef,
    pub(super) run: RunId,
    pub(super) epoch: Epoch,
    pub(super) session: Arc<SessionRecord>,
    pub(super) updates: Arc<UpdateSender>,
    pub(super) own: OwnHead,
    pub(super) stop: BoxFuture<'static, Stopped>,
    /// Result of `stop`, if it was noticed at a point that does not end the run by itself.
    pub(super) noticed: Option<Stopped>,
    /// Events that the next commit starts with.
    pub(super) prelude: Vec<NewEvent>,
    /// Id of the commit that will hold the answer of the model.
    pub(super) answer: Option<CommitId>,
    /// Pause that the provider asked for with the fault that ends the run.
    pub(super) retry_after: Option<Duration>,
    /// Commits that could not be stored yet, if the configuration continues after store errors.
    pub(super) backlog: VecDeque<Commit>,
    /// Last event of the history that the context includes.
    pub(super) known: Seq,
    /// Events of other writers that the context does not include: those between two events of the log.
    pub(super) missed: Vec<(Seq, Seq)>,
    /// True if the context differs from the log, and is read again when the log is complete.
    pub(super) stale: bool,
    /// True if an event could not be stored and never will be.
    pub(super) lost: bool,
    /// Limit that the run has reached, or its last answer.
    pub(super) limit: Option<ReachedLimit>,
    pub(super) usage: Usage,
    /// What summaries took, by currency.
    pub(super) summaries: Vec<RunUsage>,
    pub(super) tool_calls: u32,
    /// Number of calls of the answer whose results are being stored.
    pub(super) answer_calls: usize,
    /// What requests have not after the provider refused it: its own items in the rest of the run, media in the rest of a
    /// turn.
    pub(super) without: Without,
    /// Messages of the last request, with which the next one begins.
    pub(super) given: Option<Given>,
    /// Number of values of secrets that were redacted when the context was read.
    pub(super) secrets: usize,
    pub(super) settings: Settings,
    /// Tools of all plugins, with those that they offer in the session.
    pub(super) tools: Arc<Toolbox>,
    /// True if no caller waits for the outcome; a failed run is then retried.
    pub(super) unattended: bool,
    /// What the workspace says, if it was already read.
    pub(super) theirs: Option<Theirs>,
}

impl Driver {
    pub(crate) fn new(
        handle: SessionRef,
        run: RunId,
        epoch: Epoch,
        session: Arc<SessionRecord>,
        updates: Arc<UpdateSender>,
        cancel: watch::Receiver<bool>,
    ) -> Self {
        let own = OwnHead::default();
        let known = session.head;
        own.set(known);
        let runtime = handle.runtime();
        let settings = Settings::of(&runtime.shared);
        let (sessions, stopping) = (runtime.storage.sessions.store().clone(), runtime.shared.runs.stopping());
        let stop = stopped(sessions, session.id, epoch, own.clone(), cancel, stopping).boxed();
        let tools = runtime.shared.tools.clone();
        Self {
            handle,
            run,
            epoch,
            session,
            updates,
            own,
            stop,
            noticed: None,
            prelude: Vec::new(),
            answer: None,
            retry_after: None,
            backlog: VecDeque::new(),
            known,
            missed: Vec::new(),
            stale: false,
            lost: false,
            limit: None,
            usage: Usage::default(),
            summaries: Vec::new(),
            tool_calls: 0,
            answer_calls: 0,
            without: Without::default(),
            given: None,
            secrets: 0,
            settings,
            tools,
            unattended: false,
            theirs: None,
        }
    }

    pub(super) fn send(&self, update: Update) {
        self.updates.send(update);
    }

    /// Returns whether the run must end before its next step, because of a request here or in the record.
    pub(super) fn asked_to_end(&mut self) -> Result<bool> {
        if matches!(self.session.stop_request, Some(Request::Suspend(_))) {
            return Ok(true);
        }
        let noticed = self.noticed.take().or_else(|| asks_to_stop(&self.session, self.epoch));
        match noticed.or_else(|| (&mut self.stop).now_or_never()) {
            Some(Stopped::Asked) => Ok(true),
            Some(Stopped::Fenced(error)) => Err(error),
            None => Ok(false),
        }
    }

    pub(super) fn sealed(&mut self) -> Commit {
        let effects = self.handle.runtime().effects();
        let id = self.answer.take().unwrap_or_else(|| effects.new_commit_id());
        Commit::new(id, self.session.id, effects.now(), self.session.head)
            .with_actor(Actor::AGENT)
            .with_fence(self.run, self.epoch)
            .with_events(std::mem::take(&mut self.prelude))
    }

    /// Stores events, and adds to the context what other writers have stored before them.
    pub(super) async fn save(&mut self, events: Vec<NewEvent>, context: &mut ModelContext) -> Result<Saved> {
        let commit = self.sealed().with_events(events);
        let commit_id = commit.id;
        self.store(commit).await?;
        self.catch_up(context).await?;
        Ok(Saved { commit: commit_id, end: self.known })
    }

    /// Stores a commit, after the commits that could not be stored before.
    pub(super) async fn store(&mut self, commit: Commit) -> Result<()> {
        self.backlog.push_back(commit);
        let runtime = self.handle.runtime().clone();
        while let Some(next) = self.backlog.front() {
            let id = next.id;
            match runtime.storage.sessions.commit_with_retry(next.clone()).await {
                Ok(committed) => {
                    if committed.first > self.known.next() && committed.first <= committed.last {
                        self.missed.push((self.known, committed.first));
                    }
                    self.known = self.known.max(committed.last);
                    self.own.set(committed.session.head);
                    self.handle.cache_record(&committed.session);
                    self.session = committed.session;
                    self.backlog.pop_front();
                    self.updates.answer().send_modify(|answer| answer.stored(id, self.session.head));
                }
                Err(error) if goes_on(runtime.config().on_store_error, &error) => {
                    // A commit that is itself invalid is not sent again; other commits are sent with the next step.
                    self.stale = true;
                    let at_fault = matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::LimitExceeded);
                    self.send(Update::NotStored(error));
                    if !at_fault {
                        break;
                    }
                    self.lost = true;
                    self.backlog.pop_front();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether a call of the tool waits for an answer.
    pub(super) fn waits(&self, tool: &str) -> bool {
        matches!(self.mode(tool), ToolMode::Confirm | ToolMode::Outside | ToolMode::Ask)
    }

    /// Returns how the calls of a tool are made.
    pub(super) fn mode(&self, tool: &str) -> ToolMode {
        self.tools.mode(tool, &self.settings.tool_policies)
    }

    pub(super) fn failed_provider(&self, what: &str) -> Error {
        Error::new(ErrorKind::Provider, format!("provider {} {what}", self.settings.provider))
    }
}

/// Place of events that were stored.
pub(super) struct Saved {
    /// Id of their commit.
    pub(super) commit: CommitId,
    /// Last event of the commit.
    pub(super) end: Seq,
}

/// Returns whether a run continues after an event could not be stored.
fn goes_on(persistence: OnStoreError, error: &Error) -> bool {
    persistence == OnStoreError::Continue && !matches!(error.kind(), ErrorKind::Fenced { .. })
}
