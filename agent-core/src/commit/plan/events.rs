//! Events of the caller's: whether each may come now, and what it changes.

use crate::base::{Error, ErrorKind, Reason, Result, SessionState, Target, Timestamp, TriggerKind};
use crate::commit::plan::planner::Planner;
use crate::event::{
    Body, Compaction, Decision, EventType, FIELDS, NewEvent, ToolConfirmation, ToolResult, ToolUse,
    check_body,
};
use crate::model::{ActionId, ActionKind, CallId, Request, SpanId, Status, Transition};

impl Planner<'_> {
    /// Adds an event of the caller's, after checking that it may come now.
    pub(super) fn event(&mut self, event: &NewEvent) -> Result<()> {
        let kind = &event.kind;
        let body = Self::check_payload(event)?;
        let reserved = matches!(body, Body::SessionCreated(_) | Body::SessionStatusChanged(_))
            || (matches!(body, Body::Other(..)) && kind.is_of("session"));
        if reserved {
            return Err(Error::invalid(format!("events of type {kind} are written by the library only")));
        }
        self.check_may_write(kind)?;
        match &body {
            Body::UserMessage(_) | Body::UserDefineOutcome(_) => self.input(event),
            Body::UserInterrupt(_) => self.interrupt(event),
            Body::UserToolConfirmation(answer) => {
                self.check_answer(&answer.action, &[ActionKind::ToolConfirmation, ActionKind::Approval])?;
                self.check_choice(answer)?;
                self.resolve(event)
            }
            Body::UserCustomToolResult(result) => {
                let action: ActionId = result.call.as_str().parse()?;
                self.check_answer(&action, &[ActionKind::ToolResult])?;
                self.resolve(event)
            }
            Body::SessionWakeScheduled(_) => self.schedule_wake(event),
            Body::SessionDocumentWritten(written) => {
                let actor = self.actor_of(event);
                self.session.check_document(written, actor.role())?;
                self.push(event.clone())
            }
            Body::SessionWakeCancelled(wake) => self.cancel_wake(event, &wake.key),
            Body::SessionRunUsage(used) => {
                self.session.check_usage(used)?;
                self.push(event.clone())
            }
            Body::SessionHistoryCleared(_) => self.clear(event),
            Body::SessionCompacted(compaction) => self.compact(event, compaction),
            _ => {
                self.check_pairing(&body)?;
                self.push(event.clone())
            }
        }
    }

    /// Each call has an id of its own and one result after it, each span one end.
    fn check_pairing(&self, body: &Body) -> Result<()> {
        let is_open = |id: &CallId| self.session.open_calls.iter().any(|open| open.call == *id);
        let is_begun = |id: &SpanId| self.session.open_spans.iter().any(|open| open.span == *id);
        let wrong = match body {
            Body::AgentToolUse(ToolUse { call, .. }) | Body::AgentCustomToolUse(ToolUse { call, .. })
                if is_open(call) =>
            {
                format!("tool call {call} is open already; give each call its own id")
            }
            Body::AgentToolResult(ToolResult { call, .. }) if !is_open(call) => {
                format!("tool call {call} is not open; each call has exactly one result, after it")
            }
            Body::SpanStarted(begun) if is_begun(&begun.span) => {
                format!("span {} is open already", begun.span)
            }
            Body::SpanCompleted(ended) if !is_begun(&ended.span) => {
                format!("span {} is not open", ended.span)
            }
            _ => return Ok(()),
        };
        Err(Error::invalid(wrong))
    }

    pub(super) fn check_payload(event: &NewEvent) -> Result<Body> {
        if let Some((name, _)) = event.extra.iter().find(|(name, _)| FIELDS.contains(name)) {
            return Err(Error::invalid(format!("the field {name} of an event belongs to its header")));
        }
        let kind = &event.kind;
        let body = Body::parse(kind, &event.data)
            .map_err(|source| Error::invalid(format!("the payload is no {kind}")).with_source(source))?;
        check_body(&body)?;
        Ok(body)
    }

    /// What belongs to the conversation needs a session that takes part in it, and what the agent says needs the
    /// lease while someone holds it.
    pub(super) fn check_may_write(&self, kind: &EventType) -> Result<()> {
        use SessionState::{Archived, Deleted, Failed, Terminated};
        // The others are triggers by themselves, and judged as such.
        let judged = [
            EventType::USER_MESSAGE,
            EventType::USER_DEFINE_OUTCOME,
            EventType::USER_INTERRUPT,
            EventType::USER_TOOL_CONFIRMATION,
            EventType::USER_CUSTOM_TOOL_RESULT,
        ];
        let conversation = ["user", "agent", "system", "span"].iter().any(|family| kind.is_of(family));
        let state = self.session.status.state;
        if conversation && !judged.contains(kind) && matches!(state, Failed | Archived | Terminated | Deleted)
        {
            return Err(self.refused(TriggerKind::Input));
        }
        if kind.is_of("agent") && state == SessionState::Running && !self.holds_lease {
            let holder = self.session.lease.as_ref().map_or_else(String::new, |lease| lease.holder.clone());
            return Err(Error::new(
                ErrorKind::Busy { holder: holder.clone() },
                format!(
                    "session {} is run by {holder}; only that run may write as the agent",
                    self.session.id
                ),
            ));
        }
        Ok(())
    }

    pub(super) fn input(&mut self, event: &NewEvent) -> Result<()> {
        debug_assert!(event.is_input());
        let to = self.enter(TriggerKind::Input)?;
        self.push(event.clone())?;
        if to != SessionState::Queued {
            return Ok(());
        }
        let mut change = self.change(TriggerKind::Input, to, Reason::Input);
        if self.session.ready_at.is_some() {
            // Back-off holds up what failed, not what is new.
            change.ready_at = Some(None);
        }
        if self.session.status != Status::new(to, Reason::Input) || change.ready_at.is_some() {
            self.record(change)?;
        }
        Ok(())
    }

    pub(super) fn interrupt(&mut self, event: &NewEvent) -> Result<()> {
        let to = self.enter(TriggerKind::Interrupt)?;
        self.push(event.clone())?;
        if to == SessionState::Running {
            if self.session.requested.is_none() {
                let mut change = self.change(TriggerKind::Interrupt, to, self.session.status.reason);
                change.requested = Some(Some(Request::Cancel));
                self.record(change)?;
            }
            return Ok(());
        }
        self.close_calls()?;
        let mut change = self.change(TriggerKind::Interrupt, to, Reason::Interrupted);
        self.inputs_done(&mut change, self.session.last_input, 0);
        change.wakes_done = Some(Timestamp::MAX);
        change.action = Some(None);
        change.ready_at = Some(None);
        change.attempts = Some(0);
        self.record(change)
    }

    pub(super) fn check_answer(&self, answered: &ActionId, kinds: &[ActionKind]) -> Result<()> {
        self.enter(TriggerKind::ResolveAction)?;
        match &self.session.action {
            Some(action) if action.id == *answered && kinds.contains(&action.kind) => {
                match action.expires_at {
                    Some(at) if at <= self.commit.at => Err(Error::new(
                        ErrorKind::Expired { at },
                        format!(
                            "session {}: the time for an answer to {} {} ended at {at}, and this one is of {}; wake the session, which goes on without it",
                            self.session.id, action.kind, action.id, self.commit.at
                        ),
                    )),
                    _ => Ok(()),
                }
            }
            Some(action) => Err(Error::invalid(format!(
                "session {} waits for {} {}, not for an answer to {answered}",
                self.session.id, action.kind, action.id
            ))),
            None => Err(Error::invalid(format!("session {} waits for nothing", self.session.id))),
        }
    }

    /// An answer that allows names a choice where there are any, and none that is not among them.
    fn check_choice(&self, answer: &ToolConfirmation) -> Result<()> {
        let Some(action) = &self.session.action else { return Ok(()) };
        let fits = match &answer.choice {
            Some(choice) => action.choices.contains(choice),
            None => action.choices.is_empty() || answer.decision == Decision::Deny,
        };
        if fits {
            return Ok(());
        }
        let choices = action.choices.join(", ");
        Err(Error::invalid(match choices.as_str() {
            "" => format!("{} is no matter of choice; answer it without one", action.id),
            _ => format!("{} is answered with one of: {choices}", action.id),
        }))
    }

    pub(super) fn resolve(&mut self, event: &NewEvent) -> Result<()> {
        let to = self.enter(TriggerKind::ResolveAction)?;
        self.push(event.clone())?;
        let mut change = self.change(TriggerKind::ResolveAction, to, Reason::ActionResolved);
        change.action = Some(None);
        self.record(change)
    }

    fn schedule_wake(&mut self, event: &NewEvent) -> Result<()> {
        let to = self.enter(TriggerKind::EnqueueWake)?;
        self.push(event.clone())?;
        let status = self.session.status;
        let reason = if to == status.state { status.reason } else { Reason::QueuedWake };
        self.record(self.change(TriggerKind::EnqueueWake, to, reason))
    }

    /// A wake that is not there is cancelled already. A session that waited for nothing else is idle.
    pub(super) fn cancel_wake(&mut self, event: &NewEvent, key: &str) -> Result<()> {
        let target = self.target(TriggerKind::CancelWake)?;
        if !self.session.wakes.iter().any(|wake| wake.key == key) {
            return Ok(());
        }
        self.push(event.clone())?;
        let waits = self.session.has_open_work() || self.session.is_answered();
        if self.session.status.state == SessionState::Queued && !waits {
            let began = self.session.started_at.is_some();
            let status = self.resolve_target(target, if began { Reason::EndTurn } else { Reason::Fresh });
            let mut change = self.change(TriggerKind::CancelWake, status.state, status.reason);
            change.attempts = Some(0);
            change.ready_at = Some(None);
            self.record(change)?;
        }
        Ok(())
    }

    /// A summary stands for more than the one before, and for no call that is open.
    pub(super) fn compact(&mut self, event: &NewEvent, compaction: &Compaction) -> Result<()> {
        let session = &self.session;
        let from = session.visible_from.max(session.context_from);
        let to = session.pair_safe_head();
        if compaction.until <= from || compaction.until > to {
            return Err(Error::invalid(format!(
                "a summary of session {} up to event {}; it can stand for the events after {from} up to one between there and {to}",
                session.id, compaction.until
            )));
        }
        self.push(event.clone())
    }

    pub(super) fn clear(&mut self, event: &NewEvent) -> Result<()> {
        self.enter(TriggerKind::Clear)?;
        if let Some(action) = &self.session.action {
            return Err(Error::invalid(format!(
                "session {} waits for {} {}; interrupt it first, in the same commit if you like",
                self.session.id, action.kind, action.id
            )));
        }
        self.push(event.clone())?;
        let mut done = Transition::new(
            TriggerKind::Clear,
            self.session.status.state,
            self.session.status.state,
            self.session.status.reason,
        );
        self.inputs_done(&mut done, self.session.last_input, 0);
        done.attempts = Some(0);
        done.ready_at = Some(None);
        self.record(done)?;
        let status = self.resolve_target(Target::OpenIfQueued, Reason::Fresh);
        self.record(self.change(TriggerKind::Clear, status.state, status.reason))
    }

    /// Starts the visible history anew, with these messages; none of them waits for a run.
    pub(super) fn replace(&mut self, messages: &[NewEvent]) -> Result<()> {
        self.clear(&NewEvent::history_cleared())?;
        for message in messages {
            let said = [EventType::USER_MESSAGE, EventType::AGENT_MESSAGE, EventType::SYSTEM_MESSAGE];
            if !said.contains(&message.kind) {
                return Err(Error::invalid(format!(
                    "a history is replaced by messages, and {} is none",
                    message.kind
                )));
            }
            Self::check_payload(message)?;
            self.push(message.clone())?;
            self.done_if_input(message)?;
        }
        Ok(())
    }

    /// Adds what was said elsewhere; none of it waits for a run.
    pub(super) fn adopt(&mut self, events: &[NewEvent]) -> Result<()> {
        self.enter(TriggerKind::Clear)?;
        if self.session.has_open_work() || self.session.action.is_some() {
            return Err(Error::invalid(format!(
                "session {} has work that waits; what was said elsewhere is added only while nothing waits",
                self.session.id
            )));
        }
        for event in events {
            if event.is_input() {
                Self::check_payload(event)?;
                self.push(event.clone())?;
                self.done_if_input(event)?;
            } else {
                self.event(event)?;
            }
        }
        Ok(())
    }

    /// Says of an input that was added last that it waits for no run.
    fn done_if_input(&mut self, event: &NewEvent) -> Result<()> {
        if !event.is_input() {
            return Ok(());
        }
        let status = self.session.status;
        let mut done = self.change(TriggerKind::Clear, status.state, status.reason);
        self.inputs_done(&mut done, self.session.last_input, 0);
        self.record(done)
    }
}
