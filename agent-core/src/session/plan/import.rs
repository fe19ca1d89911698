//! History that was written elsewhere: put in place of what is visible, or restored commit by commit as it was.

use super::{Plan, Planner, check_limits};
use crate::error::{Error, ErrorKind, Result};
use crate::session::commit::Commit;
use crate::session::event::{Event, EventType, NewEvent};
use crate::session::record::Session;
use crate::session::state::TriggerKind;

impl Planner<'_> {
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
            self.done_if_input(message);
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
                self.done_if_input(event);
            } else {
                self.event(event)?;
            }
        }
        Ok(())
    }

    /// Says of an input that was added last that it waits for no run.
    fn done_if_input(&mut self, event: &NewEvent) {
        if event.is_input() {
            let status = self.session.status;
            let mut done = self.change(TriggerKind::Clear, status.state, status.reason);
            self.inputs_done(&mut done, self.session.last_input, 0);
            self.record(done);
        }
    }
}

/// Stores the events of a commit as they were stored elsewhere.
pub(super) fn restore(now: Option<&Session>, commit: &Commit, events: &[Event]) -> Result<Plan> {
    let of = events.len();
    let mut after = now.cloned();
    for (n, event) in (1..).zip(events) {
        let in_place = event.commit == commit.id && event.n == n && event.of as usize == of;
        if !in_place {
            return Err(Error::invalid(format!(
                "event {} is not number {n} of the {of} of commit {}; restore whole commits",
                event.seq, commit.id
            )));
        }
        let applied = match &mut after {
            None => Session::begin(commit.session, event).map(|session| after = Some(session)),
            Some(session) => session.apply(event),
        };
        applied.and_then(|()| event.body().map(drop)).map_err(|source| {
            Error::invalid(format!("event {} cannot be restored to session {}", event.seq, commit.session))
                .with_source(source)
        })?;
    }
    let after = after.filter(|_| of > 0);
    let after = after.ok_or_else(|| Error::invalid("a commit to be restored has no events"))?;
    if let Some(what) = &after.newer {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "session {} holds {what} of a newer version of this library; update it to restore it",
                after.id
            ),
        ));
    }
    check_limits(now, &after)?;
    Ok(Plan::Write { events: events.to_vec(), after: Box::new(after) })
}
