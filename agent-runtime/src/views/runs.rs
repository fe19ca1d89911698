//! The ledger of runs: read from the log, so that no run is missing, whatever became of it.

use std::collections::HashMap;

use crate::views::session_view::SessionView;
use agent_core::event::{Body, Event};
use agent_core::model::{Failure, Lease, Transition, UsageTotals};
use agent_core::session::Session;
use agent_core::state::{Reason, SessionState, TriggerKind};
use agent_core::store::ReadEvents;
use agent_core::{Error, ErrorKind, Result, RunId, Seq, Timestamp};

/// How many events are read at a time, at most, and how many bytes of them.
const PAGE: usize = 500;
const PAGE_BYTES: usize = 1 << 20;

/// One run of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunEntry {
    /// Its number among the runs of the session, and of those that it was forked from: 1, 2, 3 … without gaps.
    pub index: u64,
    /// Its id.
    pub run: RunId,
    /// Who ran it.
    pub holder: String,
    /// The event by which it began: the input, most often.
    pub first: Seq,
    /// When it began, by the clock of who ran it.
    pub began_at: Timestamp,
    /// The event by which it ended.
    pub last: Option<Seq>,
    /// When it ended, by the clock of who ended it.
    pub ended_at: Option<Timestamp>,
    /// How it ended.
    pub status: RunStatus,
    /// What became of the work that it had claimed.
    pub claim: Claim,
    /// The reason of the session's state after it.
    pub reason: Option<Reason>,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// What it used, where that is kept.
    pub usage: Option<UsageTotals>,
    /// Whether something that it did could not be stored, where that is kept.
    pub degraded: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunStatus {
    /// It goes on, or its end is not yet noticed.
    Running,
    /// It did what it was to do, or met a limit.
    Completed,
    /// It needed an answer before it could go on.
    Awaiting,
    /// It was cancelled, or asked to end so that the session could be set aside.
    Cancelled,
    /// It failed.
    Failed,
    /// Who ran it was gone, and somebody noticed.
    Lost,
    /// It was fenced off: the session was set aside by force, terminated or deleted.
    Stopped,
}

/// What became of the work that a run had claimed: inputs, an answer, wakes. With the runs of a session this is the
/// journal of its activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Claim {
    /// It is claimed: the run goes on, or its end is not yet noticed.
    Leased,
    /// It waits for an answer, and is claimed again with that.
    Blocked,
    /// It is done with: it was done, or somebody asked that it stops.
    Acked,
    /// It is offered again: the run failed and is to be tried again, its process was gone, or it was set aside by force.
    Requeued,
    /// It was given up: the run failed for good, or too often, or the session was ended under it.
    Abandoned,
}

/// Runs, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<RunEntry>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<RunsBefore>,
}

/// A place among the runs of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunsBefore {
    /// Runs that began before this event.
    pub seq: Seq,
    /// The number of the run that began there.
    pub index: u64,
}

impl RunEntry {
    /// How long it took, by the clocks of who began and who ended it; `None` while it goes on, or where these disagree.
    pub fn latency(&self) -> Option<std::time::Duration> {
        let micros = self.ended_at?.as_micros().checked_sub(self.began_at.as_micros())?;
        u64::try_from(micros).ok().map(std::time::Duration::from_micros)
    }
}

impl SessionView {
    /// The session's own runs, the newest first, `limit` a page: those that ended, those that were cut short, the one
    /// that goes on. Runs of a session that it was forked from belong to that one.
    ///
    /// Reads the log back from its end, until the page is full; no other session is read. What a host added to a run's
    /// usage after a later run began is told where that lies on the page, and always by [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Those of the store; `Corrupt` where a change of status cannot be read.
    pub async fn runs(&self, limit: usize, before: Option<RunsBefore>) -> Result<RunPage> {
        let session = self.sessions.load(self.id).await?;
        self.runs_of(&session, limit, before, None).await
    }

    /// One run of the session.
    ///
    /// # Errors
    ///
    /// `NotFound` where the session has no such run; those of [`runs`](Self::runs).
    pub async fn run(&self, run: RunId) -> Result<RunEntry> {
        let session = self.sessions.load(self.id).await?;
        let page = self.runs_of(&session, usize::MAX, None, Some(run)).await?;
        page.runs.into_iter().find(|entry| entry.run == run).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("session {} has no run {run}", session.id))
        })
    }

    /// What a run did: the event by which it began, all that it wrote, and the event by which it ended, in order. What
    /// others wrote meanwhile is left out. Holds the run's events in memory.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub async fn trace(&self, run: RunId) -> Result<Vec<Event>> {
        let entry = self.run(run).await?;
        let first = ReadEvents::first(PAGE).max_bytes(PAGE_BYTES).after(Seq::new(entry.first.get() - 1));
        let mut next = Some(match entry.last {
            Some(last) => first.before(last.next()),
            None => first,
        });
        let mut events = Vec::new();
        while let Some(read) = next {
            let page = self.sessions.read(self.id, read).await?;
            if let Some(damage) = page.damaged.first() {
                return Err(Error::corrupt(format!("session {}: {damage}", self.id)));
            }
            let is_its = |event: &Event| {
                event.run == Some(run) || event.seq == entry.first || Some(event.seq) == entry.last
            };
            events.extend(page.events.into_iter().filter(is_its));
            next = page.next;
        }
        Ok(events)
    }

    /// Reads back until there are `limit` runs, or the run `wanted`.
    pub(super) async fn runs_of(
        &self,
        session: &Session,
        limit: usize,
        before: Option<RunsBefore>,
        wanted: Option<RunId>,
    ) -> Result<RunPage> {
        if limit == 0 && wanted.is_none() {
            return Ok(RunPage { runs: Vec::new(), next: None });
        }
        let mut ledger = Ledger::new(session.counts.runs, before);
        // The event by which the last run of the page before began may be the end of the next one.
        let end = before.map_or(session.head, |before| before.seq).next();
        let read = ReadEvents::last(PAGE).max_bytes(PAGE_BYTES).after(session.lineage.base());
        let mut next = Some(read.before(end));
        while let Some(read) = next {
            let page = self.sessions.read(self.id, read).await?;
            for event in page.events.iter().rev() {
                let Some(entry) = ledger.walk(event)? else { continue };
                if before.is_some_and(|before| before.seq == entry.first) {
                    continue;
                }
                let found = wanted == Some(entry.run);
                let before = RunsBefore { seq: entry.first, index: entry.index };
                ledger.runs.push(entry);
                if found || ledger.runs.len() >= limit {
                    return Ok(RunPage { runs: ledger.runs, next: Some(before).filter(|it| it.index > 1) });
                }
            }
            if let Some(damage) = page.damaged.first() {
                return Err(Error::corrupt(format!("session {}: {damage}", self.id)));
            }
            next = page.next;
        }
        Ok(RunPage { runs: ledger.runs, next: None })
    }
}

/// Runs, found while walking back through a log.
struct Ledger {
    runs: Vec<RunEntry>,
    /// The number of the run that began last before the place of the walk.
    index: u64,
    /// What the next begin that is met ended with.
    end: Option<End>,
    /// What was used by runs whose begin is not met yet.
    usage: HashMap<RunId, (UsageTotals, bool)>,
}

/// How a run ended.
struct End {
    seq: Seq,
    at: Timestamp,
    status: RunStatus,
    claim: Claim,
    reason: Reason,
    failure: Option<Failure>,
}

impl Ledger {
    fn new(runs: u64, before: Option<RunsBefore>) -> Self {
        let index = before.map_or(runs, |before| before.index);
        Self { runs: Vec::new(), index, end: None, usage: HashMap::new() }
    }

    /// Takes the event before those that were taken; the run that began there, where one did.
    fn walk(&mut self, event: &Event) -> Result<Option<RunEntry>> {
        if let Body::SessionRunUsage(used) = event.body()? {
            let (totals, degraded) = self.usage.entry(used.run).or_default();
            totals.add(&used);
            *degraded |= used.degraded;
        }
        let Some(change) = event.transition()? else { return Ok(None) };
        let entry = match &change.lease {
            Some(Some(lease)) if change.to == SessionState::Running => {
                let entry = self.begun(lease, event);
                // A run that was open when this one began was lost; where none was, the next one met has its own end.
                self.end = Some(End::lost(event));
                Some(entry)
            }
            Some(Some(_)) => {
                self.end = None;
                None
            }
            Some(None) => {
                self.end = Some(End::of(&change, event));
                None
            }
            None => None,
        };
        Ok(entry)
    }

    fn begun(&mut self, lease: &Lease, event: &Event) -> RunEntry {
        let (end, index) = (self.end.take(), self.index);
        self.index = index.saturating_sub(1);
        let (usage, degraded) = self.usage.remove(&lease.run).unzip();
        RunEntry {
            index,
            run: lease.run,
            holder: lease.holder.clone(),
            first: event.seq,
            began_at: lease.since,
            last: end.as_ref().map(|end| end.seq),
            ended_at: end.as_ref().map(|end| end.at),
            status: end.as_ref().map_or(RunStatus::Running, |end| end.status),
            claim: end.as_ref().map_or(Claim::Leased, |end| end.claim),
            reason: end.as_ref().map(|end| end.reason),
            failure: end.and_then(|end| end.failure),
            usage,
            degraded: degraded.unwrap_or_default(),
        }
    }
}

impl End {
    /// The lease was taken by another, and nothing else says that it was free.
    fn lost(event: &Event) -> Self {
        let (status, reason) = (RunStatus::Lost, Reason::LeaseLost);
        Self { seq: event.seq, at: event.at, status, claim: Claim::Requeued, reason, failure: None }
    }

    fn of(change: &Transition, event: &Event) -> Self {
        let status = match change.trigger {
            TriggerKind::EndRun => RunStatus::Completed,
            TriggerKind::AwaitAnswer => RunStatus::Awaiting,
            TriggerKind::EndRetry | TriggerKind::EndFailed | TriggerKind::Fail => RunStatus::Failed,
            TriggerKind::LeaseExpired => RunStatus::Lost,
            // The run's end and what was asked of it are one change; a failure is still told from a request.
            TriggerKind::Suspend if matches!(change.failure, Some(Some(_))) => RunStatus::Failed,
            TriggerKind::EndInterrupted | TriggerKind::Suspend => RunStatus::Cancelled,
            _ => RunStatus::Stopped,
        };
        let failure = change.failure.clone().flatten();
        let claim = Claim::after(status, change);
        Self { seq: event.seq, at: event.at, status, claim, reason: change.reason, failure }
    }
}

impl Claim {
    /// What became of it by the change with which its run ended.
    fn after(status: RunStatus, change: &Transition) -> Self {
        use SessionState::{Deleted, Failed, Idle, Terminated};
        // A time from when on it may run again says that it is to be tried again.
        let again = matches!(change.ready_at, Some(Some(_)));
        match status {
            RunStatus::Running => Self::Leased,
            RunStatus::Awaiting => Self::Blocked,
            RunStatus::Completed | RunStatus::Cancelled => Self::Acked,
            _ if matches!(change.to, Failed | Terminated | Deleted) => Self::Abandoned,
            RunStatus::Failed if !again => Self::Abandoned,
            // A run that was asked to stop, and was lost before it could, is done with all the same.
            RunStatus::Lost if change.handled.is_some() || change.to == Idle => Self::Acked,
            RunStatus::Failed | RunStatus::Lost | RunStatus::Stopped => Self::Requeued,
        }
    }
}
