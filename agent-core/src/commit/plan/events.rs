//! Events of the caller: the check whether each is legal now, and its effect.

use std::borrow::Cow;

use crate::base::{Error, ErrorKind, Reason, Result, SessionState, Target, Timestamp, TriggerKind};
use crate::commit::plan::planner::{Planner, refuse_time};
use crate::event::payload::blobs::NamedBlobs;
use crate::event::{
    Compaction, Decision, EventPayload, EventType, FIELDS, NewEvent, ToolConfirmation, ToolResult, ToolUse,
    check_body,
};
use crate::model::{ActionId, ActionKind, CallId, Request, SpanId, Status, Transition};

impl Planner<'_> {
    /// Adds an event of the caller, after checking that it is legal now.
    pub(super) fn event(&mut self, event: &NewEvent) -> Result<()> {
        let (body, event) = self.check_payload(event)?;
        let event = &*event;
        let kind = &event.kind;
        let reserved =
            matches!(body, EventPayload::SessionCreated(_) | EventPayload::SessionStatusChanged(_))
                || (matches!(body, EventPayload::Other(..)) && kind.is_of("session"));
        if reserved {
            return Err(Error::invalid(format!("events of type {kind} are written by the library only")));
        }
        self.check_may_write(kind)?;
        match &body {
            EventPayload::UserMessage(_) | EventPayload::UserDefineOutcome(_) => self.input(event),
            EventPayload::UserInterrupt(_) => self.interrupt(event),
            EventPayload::UserToolConfirmation(answer) => {
                self.check_answer(&answer.action, &[ActionKind::ToolConfirmation, ActionKind::Approval])?;
                self.check_choice(answer)?;
                self.resolve(event)
            }
            EventPayload::UserCustomToolResult(result) => {
                let action: ActionId = result.call.as_str().parse()?;
                self.check_answer(&action, &[ActionKind::ToolResult])?;
                self.resolve(event)
            }
            EventPayload::SessionTimerScheduled(_) => self.schedule_timer(event),
            EventPayload::SessionDocumentWritten(written) => {
                let actor = self.actor_of(event);
                self.session.check_document(written, actor.role())?;
                self.push(event.clone())
            }
            EventPayload::SessionTimerCancelled(timer) => self.cancel_timer(event, &timer.key),
            EventPayload::SessionRunUsage(used) => {
                self.session.check_usage(used)?;
                self.push(event.clone())
            }
            EventPayload::SessionHistoryCleared(_) => self.clear(event),
            EventPayload::SessionCompacted(compaction) => self.compact(event, compaction),
            _ => {
                self.check_pairing(&body)?;
                self.push(event.clone())
            }
        }
    }

    /// Checks that each call has its own id and one result after it, and each span one end.
    fn check_pairing(&self, body: &EventPayload) -> Result<()> {
        let is_open = |id: &CallId| self.session.open_calls.iter().any(|open| open.call == *id);
        let is_begun = |id: &SpanId| self.session.open_spans.iter().any(|open| open.span == *id);
        let wrong = match body {
            EventPayload::AgentToolUse(ToolUse { call, .. })
            | EventPayload::AgentCustomToolUse(ToolUse { call, .. })
                if is_open(call) =>
            {
                format!("tool call {call} is open already; give each call its own id")
            }
            EventPayload::AgentToolResult(ToolResult { call, .. }) if !is_open(call) => {
                format!("tool call {call} is not open; each call has exactly one result, after it")
            }
            EventPayload::SpanStarted(begun) if is_begun(&begun.span) => {
                format!("span {} is open already; give each span its own id", begun.span)
            }
            EventPayload::SpanCompleted(ended) if !is_begun(&ended.span) => {
                format!("span {} is not open; start it before it is completed", ended.span)
            }
            _ => return Ok(()),
        };
        Err(Error::invalid(wrong))
    }

    /// Decodes and checks a payload. Also returns the event with all blobs that it names.
    pub(super) fn check_payload<'e>(
        &mut self,
        event: &'e NewEvent,
    ) -> Result<(EventPayload, Cow<'e, NewEvent>)> {
        if let Some((name, _)) = event.extra.iter().find(|(name, _)| FIELDS.contains(name)) {
            return Err(Error::invalid(format!(
                "the field {name} belongs to the header of an event; give the additional field another name"
            )));
        }
        let kind = &event.kind;
        let body = EventPayload::parse(kind, &event.payload)
            .map_err(|source| Error::invalid(format!("the payload is no {kind}")).with_source(source))?;
        check_body(&body)?;
        let needed = NamedBlobs::of(&body).with_given(&event.blobs)?;
        let named: Vec<_> = needed.iter().map(|blob| blob.name).collect();
        self.blobs.extend(needed);
        let event = if named == event.blobs {
            Cow::Borrowed(event)
        } else {
            Cow::Owned(NewEvent { blobs: named, ..event.clone() })
        };
        Ok((body, event))
    }

    /// Checks that the session accepts events of this type.
    ///
    /// Events of the conversation need a session that takes part in it. While a run holds the lease, only that run
    /// may write as the agent.
    pub(super) fn check_may_write(&self, kind: &EventType) -> Result<()> {
        use SessionState::{Archived, Deleted, Failed, Terminated};
        // These types are triggers by themselves, and are checked as such.
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
            // The pause after a failure delays the failed work, not a new input.
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
            if self.session.stop_request.is_none() {
                let mut change = self.change(TriggerKind::Interrupt, to, self.session.status.reason);
                change.stop_request = Some(Some(Request::Cancel));
                self.record(change)?;
            }
            return Ok(());
        }
        self.close_calls()?;
        let mut change = self.change(TriggerKind::Interrupt, to, Reason::Interrupted);
        self.inputs_done(&mut change, self.session.last_input, 0);
        change.timers_done = Some(Timestamp::MAX);
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
                            "session {}: the time for an answer to {} {} ended at {at}, and this one is of {}; run the session, which continues without it",
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
            None => {
                Err(Error::invalid(format!("session {} waits for no answer; send an input", self.session.id)))
            }
        }
    }

    /// Checks that an allowing answer names one of the choices if there are any, and that no answer names another.
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
            "" => format!("the question {} has no choices; answer it without one", action.id),
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

    fn schedule_timer(&mut self, event: &NewEvent) -> Result<()> {
        let to = self.enter(TriggerKind::ScheduleTimer)?;
        self.push(event.clone())?;
        let status = self.session.status;
        let reason = if to == status.state { status.reason } else { Reason::TimerDue };
        self.record(self.change(TriggerKind::ScheduleTimer, to, reason))
    }

    /// Cancels a timer; does nothing if there is no such timer. A session that waited for nothing else becomes idle.
    pub(super) fn cancel_timer(&mut self, event: &NewEvent, key: &str) -> Result<()> {
        let target = self.target(TriggerKind::CancelTimer)?;
        if !self.session.timers.iter().any(|timer| timer.key == key) {
            return Ok(());
        }
        self.push(event.clone())?;
        let waits = self.session.has_open_work() || self.session.is_answered();
        if self.session.status.state == SessionState::Queued && !waits {
            let began = self.session.started_at.is_some();
            let status = self.resolve_target(target, if began { Reason::EndTurn } else { Reason::Fresh });
            let mut change = self.change(TriggerKind::CancelTimer, status.state, status.reason);
            change.attempts = Some(0);
            change.ready_at = Some(None);
            self.record(change)?;
        }
        Ok(())
    }

    /// Checks that a summary replaces more than the previous one, and no open call.
    pub(super) fn compact(&mut self, event: &NewEvent, compaction: &Compaction) -> Result<()> {
        let session = &self.session;
        let from = session.visible_from.max(session.context_from);
        let to = session.pair_safe_head();
        if compaction.until <= from || compaction.until > to {
            return Err(Error::invalid(format!(
                "session {}: a summary cannot replace the events up to {}; give an event after {from} and at most {to}",
                session.id, compaction.until
            )));
        }
        self.check_open_inputs(compaction)?;
        self.push(event.clone())
    }

    /// Checks that the inputs that a model is given again can be the open ones.
    fn check_open_inputs(&self, compaction: &Compaction) -> Result<()> {
        let (session, until) = (&self.session, compaction.until);
        let (done, last) = (session.inputs_done_through, session.last_input);
        let claimed = session.inputs_claimed_through.max(done);
        let (inputs, taken) = match (&compaction.inputs, compaction.claimed) {
            (Some(inputs), Some(taken)) => (inputs, taken),
            (None, None) if session.inputs_open == 0 || until <= done => return Ok(()),
            (None, None) => {
                return Err(Error::invalid(format!(
                    "session {}: the inputs after event {done} are not answered yet; give them with \
                     `Compaction::with_inputs`, or compact up to {done} at most",
                    session.id
                )));
            }
            _ => {
                return Err(Error::invalid(format!(
                    "session {}: a summary has only one of `inputs` and `claimed`; give both or none",
                    session.id
                )));
            }
        };
        let refuse = |why: String| {
            Err(Error::invalid(format!(
                "session {}: the inputs of a summary up to {until} {why}",
                session.id
            )))
        };
        if inputs.len() > Compaction::INPUTS_MAX {
            return refuse(format!(
                "are {}; give the newest {} at most",
                inputs.len(),
                Compaction::INPUTS_MAX
            ));
        }
        if !inputs.is_sorted_by(|one, next| one < next) {
            return refuse("are not in the order of the log; give each once, the oldest first".to_owned());
        }
        let most = until.min(last);
        if let Some(wrong) = inputs.iter().find(|seq| **seq <= session.visible_from || **seq > most) {
            let from = session.visible_from;
            return refuse(format!("have event {wrong}; give inputs after {from}, up to {most} at most"));
        }
        let open = inputs.iter().filter(|seq| **seq > done).count() as u64;
        if open > session.inputs_open
            || (session.inputs_open > 0 && until >= last && inputs.last() != Some(&last))
        {
            return refuse(format!(
                "have {open} after event {done}; {} are open, the last of them event {last}",
                session.inputs_open
            ));
        }
        if taken > claimed.min(until) {
            let most = claimed.min(until);
            return refuse(format!("cannot have been claimed up to {taken}; at most {most} are"));
        }
        Ok(())
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

    /// Clears the visible history and adds these messages; none of them waits for a run.
    pub(super) fn replace(&mut self, messages: &[NewEvent]) -> Result<()> {
        self.clear(&NewEvent::history_cleared())?;
        for message in messages {
            let kinds = [EventType::USER_MESSAGE, EventType::AGENT_MESSAGE, EventType::SYSTEM_MESSAGE];
            if !kinds.contains(&message.kind) {
                return Err(Error::invalid(format!(
                    "a history is replaced by messages, not by events of type {}; leave that event out",
                    message.kind
                )));
            }
            refuse_time(message)?;
            let message = self.check_payload(message)?.1;
            self.push(message.clone().into_owned())?;
            self.done_if_input(&message)?;
        }
        Ok(())
    }

    /// Adds events of a conversation that took place elsewhere; none of them waits for a run.
    pub(super) fn import_events(&mut self, events: &[NewEvent]) -> Result<()> {
        self.enter(TriggerKind::Clear)?;
        if self.session.has_open_work() || self.session.action.is_some() {
            return Err(Error::invalid(format!(
                "session {} has an open input, timer or question; import events when nothing is open",
                self.session.id
            )));
        }
        for event in events {
            if event.is_input() {
                let event = self.check_payload(event)?.1;
                self.push(event.clone().into_owned())?;
                self.done_if_input(&event)?;
            } else {
                self.event(event)?;
            }
        }
        Ok(())
    }

    /// Marks an input that was added last as done, so that it waits for no run.
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
