//! Triggers: changes that no event expresses.

use crate::base::{
    Epoch, Error, ErrorKind, RawJson, Reason, Result, SessionState, Target, Timestamp, TriggerKind,
};
use crate::commit::plan::planner::{Planner, busy};
use crate::commit::{EPOCHS_PER_FENCE, LeaseRequest, RunEnd, Trigger};
use crate::event::{Comment, EventPayload, NewEvent, ToolOutcome, ToolResult};
use crate::model::{
    ActionId, ActionKind, Actor, Failure, OpenCall, PendingAction, Request, Status, Transition,
};

impl Planner<'_> {
    pub(super) fn trigger(&mut self, trigger: &Trigger) -> Result<()> {
        match trigger {
            Trigger::Create(_) => Err(Error::invalid(format!(
                "session {} exists already; a commit creates it as its first step or not at all",
                self.session.id
            ))),
            Trigger::Restore(_) => Err(Error::invalid(format!(
                "a commit of session {} is restored alone or not at all",
                self.session.id
            ))),
            Trigger::Replace(messages) => self.replace(messages),
            Trigger::ImportEvents(events) => self.import_events(events),
            Trigger::Prepare(request) => self.prepare(request),
            Trigger::Ready => {
                let leased = self.session.lease.is_some();
                self.simple(TriggerKind::Ready, Reason::Fresh, |change| change.lease = leased.then_some(None))
            }
            Trigger::BeginRun(request) => self.begin_run(request),
            Trigger::ClaimInputs => self.claim_inputs(),
            Trigger::EndRun(end) => self.end_run(end),
            Trigger::LeaseExpired(epoch) => self.lease_expired(*epoch),
            Trigger::RunLost { epoch, ready_at, limit } => self.run_lost(*epoch, *ready_at, *limit),
            Trigger::Fence => self.fence(),
            Trigger::ActionTimeout(id) => self.action_timeout(id),
            Trigger::Suspend(reason) => self.suspend(*reason),
            Trigger::ForceSuspend(reason) => self.force_suspend(*reason),
            Trigger::Resume => self.simple(TriggerKind::Resume, Reason::Fresh, |_| {}),
            Trigger::Fail(failure) => {
                let failure = failure.clone();
                self.stop(TriggerKind::Fail, failure.class, |change| change.failure = Some(Some(failure)))
            }
            Trigger::ClearFailure => self.simple(TriggerKind::ClearFailure, Reason::Fresh, |change| {
                change.failure = Some(None);
                change.attempts = Some(0);
                change.ready_at = Some(None);
            }),
            Trigger::Archive => {
                let before = self.session.status;
                self.simple(TriggerKind::Archive, Reason::UserArchived, |change| {
                    change.state_before_archive = Some(Some(before));
                })
            }
            Trigger::Unarchive => {
                let reason = self.session.state_before_archive.map_or(Reason::Fresh, |before| before.reason);
                self.simple(TriggerKind::Unarchive, reason, |change| change.state_before_archive = Some(None))
            }
            Trigger::Terminate(reason) => self.end(TriggerKind::Terminate, *reason),
            Trigger::Delete(reason) => self.end(TriggerKind::Delete, *reason),
        }
    }

    /// Returns the status to which a trigger leads; `None` if the session has reached it already.
    fn next_status(&self, kind: TriggerKind, reason: Reason) -> Result<Option<Status>> {
        Ok(match self.target(kind)? {
            Target::Already => None,
            target => Some(self.resolve_target(target, reason)),
        })
    }

    /// Applies a trigger that changes the state and a few fields.
    pub(super) fn simple(
        &mut self,
        kind: TriggerKind,
        reason: Reason,
        set: impl FnOnce(&mut Transition),
    ) -> Result<()> {
        let Some(status) = self.next_status(kind, reason)? else { return Ok(()) };
        let mut change = self.change(kind, status.state, status.reason);
        set(&mut change);
        self.carry()?;
        self.record(change)
    }

    pub(super) fn prepare(&mut self, request: &LeaseRequest) -> Result<()> {
        let to = self.enter(TriggerKind::Prepare)?;
        if let Some(lease) = &self.session.lease {
            return Err(busy(&self.session, lease));
        }
        self.carry()?;
        let mut change = self.change(TriggerKind::Prepare, to, self.session.status.reason);
        change.lease = Some(Some(self.lease(request)));
        self.record(change)?;
        self.holds_lease = true;
        Ok(())
    }

    pub(super) fn begin_run(&mut self, request: &LeaseRequest) -> Result<()> {
        let may_start = self.enter(TriggerKind::BeginRun).is_ok() && self.is_ready();
        if !may_start {
            if request.if_ready {
                return Ok(());
            }
            if let Some(lease) = &self.session.lease {
                return Err(busy(&self.session, lease));
            }
            return Err(self.refused(TriggerKind::BeginRun));
        }
        self.carry()?;
        let mut change =
            self.change(TriggerKind::BeginRun, SessionState::Running, self.session.status.reason);
        change.lease = Some(Some(self.lease(request)));
        change.inputs_claimed_through = Some(self.session.last_input);
        change.inputs_new = Some(0);
        if self.session.ready_at.is_some() {
            change.ready_at = Some(None);
        }
        self.record(change)?;
        self.holds_lease = true;
        Ok(())
    }

    /// Returns whether a queued session may run at the commit's time.
    pub(super) fn is_ready(&self) -> bool {
        // Work that may start at once may also start by a clock that is before 1970.
        let at = self.commit.at.max(Timestamp::UNIX_EPOCH);
        self.session.runs_from().is_some_and(|from| from <= at)
    }

    pub(super) fn claim_inputs(&mut self) -> Result<()> {
        let to = self.enter(TriggerKind::ClaimInputs)?;
        self.need_lease()?;
        if self.session.inputs_claimed_through == self.session.last_input {
            return Ok(());
        }
        self.carry()?;
        let mut change = self.change(TriggerKind::ClaimInputs, to, self.session.status.reason);
        change.inputs_claimed_through = Some(self.session.last_input);
        change.inputs_new = Some(0);
        self.record(change)
    }

    pub(super) fn end_run(&mut self, end: &RunEnd) -> Result<()> {
        match end {
            RunEnd::Completed(reason) => self.leave_run(TriggerKind::EndRun, *reason, None),
            RunEnd::Interrupted => self.leave_run(TriggerKind::EndInterrupted, Reason::Interrupted, None),
            RunEnd::Failed(failure) => {
                self.leave_run(TriggerKind::EndFailed, Reason::RunError, Some(failure.clone()))
            }
            RunEnd::Retry { failure, ready_at, limit } => {
                self.target(TriggerKind::EndRetry)?;
                self.need_lease()?;
                let asked = self.session.stop_request;
                self.close_calls()?;
                self.carry()?;
                let attempts = self.session.attempts.saturating_add(1);
                let (to, reason) = if attempts >= *limit {
                    (SessionState::Failed, Reason::RunError)
                } else {
                    (SessionState::Queued, Reason::RetryBackoff)
                };
                let mut change = self.released(TriggerKind::EndRetry, to, reason);
                change.attempts = Some(attempts);
                change.ready_at = Some(Some(*ready_at));
                change.failure = Some(Some(failure.clone()));
                self.record_end(change, asked.filter(|_| to != SessionState::Failed))
            }
            RunEnd::Await(action) => self.await_answer(action),
        }
    }

    pub(super) fn await_answer(&mut self, action: &PendingAction) -> Result<()> {
        let to = self.enter(TriggerKind::AwaitAnswer)?;
        self.need_lease()?;
        let is_call = |open: &OpenCall| open.call.as_str() == action.id.as_str() && open.custom;
        if action.kind == ActionKind::ToolResult && !self.session.open_calls.iter().any(is_call) {
            return Err(Error::invalid(format!(
                "{} is not an open call of a tool that runs outside; commit the call before the run waits for it",
                action.id
            )));
        }
        let asked = self.session.stop_request;
        self.close_spans()?;
        self.carry()?;
        let mut change = self.released(TriggerKind::AwaitAnswer, to, action.kind.reason());
        change.action = Some(Some(action.clone()));
        self.record_end(change, asked)
    }

    /// Ends the run and marks the work that it claimed as done.
    pub(super) fn leave_run(
        &mut self,
        kind: TriggerKind,
        reason: Reason,
        failure: Option<Failure>,
    ) -> Result<()> {
        let target = self.target(kind)?;
        self.need_lease()?;
        let asked = self.session.stop_request;
        self.close_calls()?;
        self.carry()?;
        let mut change = self.released(kind, self.session.status.state, self.session.status.reason);
        self.claimed_done(&mut change);
        if self.session.attempts > 0 {
            change.attempts = Some(0);
        }
        // The end of a failed run records its failure, also if the last failure was the same.
        if failure.is_some() || self.session.failure.is_some() {
            change.failure = Some(failure);
        }
        self.record(change)?;
        let status = match self.resolve_target(target, reason) {
            Status { state: SessionState::Queued, reason: Reason::Input } => {
                Status::new(SessionState::Queued, Reason::FollowUp)
            }
            other => other,
        };
        self.record_end(self.change(kind, status.state, status.reason), asked)
    }

    pub(super) fn lease_expired(&mut self, epoch: Epoch) -> Result<()> {
        let target = self.target(TriggerKind::LeaseExpired)?;
        if self.session.lease.as_ref().is_none_or(|lease| lease.epoch != epoch) {
            return Err(Error::new(
                ErrorKind::Conflict { head: Some(self.session.head) },
                format!(
                    "session {}: the lease of epoch {epoch} is not the current one; load the session again",
                    self.session.id
                ),
            ));
        }
        let asked = self.session.stop_request;
        self.close_calls()?;
        // On an event of its own, so that a take-over can be found in the log.
        self.push(NewEvent::of(&EventPayload::SessionStatusChanged(Comment::default())))?;
        let mut change =
            self.released(TriggerKind::LeaseExpired, self.session.status.state, self.session.status.reason);
        let cancelled = asked == Some(Request::Cancel);
        if cancelled {
            self.claimed_done(&mut change);
        }
        self.record(change)?;
        let reason = if cancelled { Reason::Interrupted } else { Reason::LeaseLost };
        let status = match self.resolve_target(target, reason) {
            open if cancelled => open,
            open => Status::new(open.state, Reason::LeaseLost),
        };
        self.record_end(self.change(TriggerKind::LeaseExpired, status.state, status.reason), asked)
    }

    /// Ends a lease like [`lease_expired`](Self::lease_expired); retries the run's work later, a limited number of
    /// times.
    fn run_lost(&mut self, epoch: Epoch, ready_at: Timestamp, limit: u32) -> Result<()> {
        self.lease_expired(epoch)?;
        let waits = Status::new(SessionState::Queued, Reason::LeaseLost);
        if self.session.status != waits {
            return Ok(());
        }
        let attempts = self.session.attempts.saturating_add(1);
        let text = format!("the run's process was lost, {attempts} failures in a row");
        let failure = Failure::new(Reason::RunError, text);
        let mut change = self.change(TriggerKind::LeaseExpired, waits.state, waits.reason);
        change.attempts = Some(attempts);
        change.ready_at = Some(Some(ready_at));
        change.failure = Some(Some(failure.clone()));
        self.record(change)?;
        if attempts >= limit {
            return self.trigger(&Trigger::Fail(failure));
        }
        Ok(())
    }

    /// Ends the lease, and leaves every epoch behind that a run from before may have had.
    fn fence(&mut self) -> Result<()> {
        self.target(TriggerKind::Fence)?;
        if let Some(epoch) = self.session.lease.as_ref().map(|lease| lease.epoch) {
            self.lease_expired(epoch)?;
        }
        // On an event of its own: that before it tells how the run ended.
        self.push(NewEvent::of(&EventPayload::SessionStatusChanged(Comment::new("restored from a backup"))))?;
        let [.., low, lower, lowest] = *self.commit.id.as_uuid().as_bytes();
        let more = u64::from(u32::from_be_bytes([0, low, lower, lowest])) % (8 * EPOCHS_PER_FENCE);
        let Status { state, reason } = self.session.status;
        let mut change = self.change(TriggerKind::Fence, state, reason);
        change.epoch = Some(Epoch::new(self.session.epoch.get().saturating_add(EPOCHS_PER_FENCE + more)));
        self.record(change)?;
        self.holds_lease = false;
        Ok(())
    }

    pub(super) fn action_timeout(&mut self, id: &ActionId) -> Result<()> {
        let to = self.enter(TriggerKind::ActionTimeout)?;
        if self.session.action.as_ref().is_none_or(|action| action.id != *id) {
            return Err(Error::invalid(format!(
                "session {} does not wait for an answer to {id}; load it again",
                self.session.id
            )));
        }
        self.refuse_call(id)?;
        self.close_calls()?;
        self.carry()?;
        let mut change = self.change(TriggerKind::ActionTimeout, to, Reason::ActionTimedOut);
        change.action = Some(None);
        self.record(change)
    }

    /// Closes a call that was not allowed in time as denied, so that the model sees it.
    fn refuse_call(&mut self, id: &ActionId) -> Result<()> {
        let asked = |action: &PendingAction| {
            matches!(action.kind, ActionKind::ToolConfirmation | ActionKind::Approval)
        };
        let is_asked = self.session.action.as_ref().is_some_and(asked);
        let open = self.session.open_calls.iter().find(|open| open.call.as_str() == id.as_str() && is_asked);
        let Some(call) = open.map(|open| open.call.clone()) else { return Ok(()) };
        let output = RawJson::of(&"not done: nobody answered in time")?;
        let result = EventPayload::AgentToolResult(ToolResult::new(call, ToolOutcome::Denied, output));
        self.push(NewEvent::of(&result).with_actor(Actor::SYSTEM))
    }

    pub(super) fn suspend(&mut self, reason: Reason) -> Result<()> {
        let to = self.enter(TriggerKind::Suspend)?;
        if to == SessionState::Running {
            if self.session.stop_request == Some(Request::Suspend(reason)) {
                return Ok(());
            }
            self.carry()?;
            let mut change = self.change(TriggerKind::Suspend, to, self.session.status.reason);
            change.stop_request = Some(Some(Request::Suspend(reason)));
            self.record(change)?;
            return Ok(());
        }
        self.suspend_now(TriggerKind::Suspend, reason)
    }

    pub(super) fn force_suspend(&mut self, reason: Reason) -> Result<()> {
        self.enter(TriggerKind::ForceSuspend)?;
        if let Some(epoch) = self.session.lease.as_ref().map(|lease| lease.epoch) {
            self.lease_expired(epoch)?;
            let mut change =
                self.change(TriggerKind::ForceSuspend, self.session.status.state, self.session.status.reason);
            change.epoch = Some(epoch.next());
            self.record(change)?;
        }
        self.suspend_now(TriggerKind::ForceSuspend, reason)
    }

    pub(super) fn suspend_now(&mut self, kind: TriggerKind, reason: Reason) -> Result<()> {
        let status = Status::new(SessionState::Suspended, reason);
        if self.session.status == status {
            return Ok(());
        }
        self.carry()?;
        self.record(self.change(kind, status.state, status.reason))
    }

    /// Stops the session, permanently or until it is recovered; a run is fenced.
    pub(super) fn stop(
        &mut self,
        kind: TriggerKind,
        reason: Reason,
        set: impl FnOnce(&mut Transition),
    ) -> Result<()> {
        let Some(status) = self.next_status(kind, reason)? else { return Ok(()) };
        self.close_calls()?;
        self.carry()?;
        let mut change = match self.session.lease.as_ref().map(|lease| lease.epoch) {
            Some(epoch) => {
                let mut change = self.released(kind, status.state, status.reason);
                change.epoch = Some(epoch.next());
                change
            }
            None => self.change(kind, status.state, status.reason),
        };
        if self.session.action.is_some() {
            change.action = Some(None);
        }
        set(&mut change);
        self.record(change)?;
        self.holds_lease = false;
        Ok(())
    }

    pub(super) fn end(&mut self, kind: TriggerKind, reason: Reason) -> Result<()> {
        let at = self.commit.at;
        self.stop(kind, reason, |change| change.ended_at = Some(Some(at)))
    }
}
