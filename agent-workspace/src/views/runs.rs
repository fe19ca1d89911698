//! Ledger of runs, read from the log, so that every run is listed, however it ended.

use std::collections::HashMap;

use crate::views::session_view::SessionView;
use agent_core::event::{Event, EventPayload};
use agent_core::model::{Failure, Lease, Transition, UsageTotals};
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState, TriggerKind};
use agent_core::store::ReadEvents;
use agent_core::{Error, Result, RunId, Seq, Timestamp};

/// Maximum number of events that are read at a time, and of their bytes.
const PAGE: usize = 500;
const PAGE_BYTES: usize = 1 << 20;

/// One run of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunEntry {
    /// Number of the run among the runs of the session and of those that it was forked from: 1, 2, 3 … without gaps.
    pub index: u64,
    /// Id of the run.
    pub run: RunId,
    /// Name of the holder that ran it.
    pub holder: String,
    /// Sequence number of the run's first event: the input, in most cases.
    pub first: Seq,
    /// Time at which the run began, by the clock of its holder.
    pub began_at: Timestamp,
    /// Sequence number of the run's last event; `None` while the run is active.
    pub last: Option<Seq>,
    /// Time at which the run ended, by the clock of the process that ended it.
    pub ended_at: Option<Timestamp>,
    /// Status of the run.
    pub status: RunStatus,
    /// State of the work that the run had claimed.
    pub claim: Claim,
    /// Reason of the session's state after the run.
    pub reason: Option<Reason>,
    /// Reason for which the run failed.
    pub failure: Option<Failure>,
    /// Usage of the run, if usage is recorded.
    pub usage: Option<UsageTotals>,
    /// True if an event of the run could not be stored. Known only if usage is recorded.
    pub degraded: bool,
}

/// Status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunStatus {
    /// The run is active, or its end is not yet observed.
    Running,
    /// The run finished its work, or reached a limit.
    Completed,
    /// The run needed an answer before it could continue.
    Awaiting,
    /// The run was cancelled, or asked to end so that the session could be suspended.
    Cancelled,
    /// The run failed.
    Failed,
    /// The holder of the run's lease was lost, and another process observed it.
    Lost,
    /// The run was fenced: the session was suspended by force, terminated or deleted.
    Stopped,
}

/// State of the work that a run had claimed: inputs, an answer, timers. Together with the runs of a session this is the
/// journal of its activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Claim {
    /// The work is claimed: the run is active, or its end is not yet observed.
    Leased,
    /// The work waits for an answer, and is claimed again with it.
    Blocked,
    /// The work is complete: it was done, or a stop was requested.
    Acked,
    /// The work is offered again: the run failed and is to be retried, its process was lost, or it was suspended by
    /// force.
    Requeued,
    /// The work was given up: the run failed permanently, or too often, or the session was ended during it.
    Abandoned,
}

/// Page of runs, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunPage {
    /// Runs.
    pub runs: Vec<RunEntry>,
    /// Start of the next page; `None` on the last page.
    pub next: Option<RunsBefore>,
}

/// Position among the runs of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunsBefore {
    /// Selects runs that began before this event.
    pub seq: Seq,
    /// Number of the run that began at this event.
    pub index: u64,
}

impl RunEntry {
    /// Returns the duration of the run; `None` while the run is active, or if the duration would be negative.
    ///
    /// The clocks are those of the processes that began and ended the run.
    pub fn latency(&self) -> Option<std::time::Duration> {
        let micros = self.ended_at?.as_micros().checked_sub(self.began_at.as_micros())?;
        u64::try_from(micros).ok().map(std::time::Duration::from_micros)
    }
}

impl SessionView {
    /// Lists the session's own runs, newest first, `limit` on a page: ended, interrupted and active ones.
    ///
    /// `before` is [`RunPage::next`] of the page before. Runs of a session from which this one was forked belong to that
    /// session.
    ///
    /// Reads the log backwards from its end until the page is full; no other session is read. Usage that a host added
    /// to a run after a later run began is included if it is within the page, and always by [`run`](Self::run).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_runtime::views::RunStatus;
    ///
    /// let view = chat.view();
    /// for text in ["one", "two", "three"] {
    ///     chat.prompt(text).await?.finish().await?;
    /// }
    /// let page = view.runs(2, None).await?;
    /// assert_eq!((page.runs[0].index, page.runs[0].status), (3, RunStatus::Completed));
    /// let rest = view.runs(2, page.next).await?;
    /// assert_eq!((rest.runs[0].index, rest.next), (1, None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store; `Corrupt` if a change of status cannot be read.
    pub async fn runs(&self, limit: usize, before: Option<RunsBefore>) -> Result<RunPage> {
        let session = self.sessions.load(self.id).await?;
        self.runs_of(&session, limit, before, None).await
    }

    /// Returns one run of the session. Reads the log backwards from its end to the beginning of the run.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let view = chat.view();
    /// let run = chat.prompt("Hello").await?;
    /// let id = run.id().expect("the run has started");
    /// run.finish().await?;
    /// assert_eq!(view.run(id).await?.index, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if the session has no such run; errors of [`runs`](Self::runs).
    pub async fn run(&self, run: RunId) -> Result<RunEntry> {
        let session = self.sessions.load(self.id).await?;
        let page = self.runs_of(&session, usize::MAX, None, Some(run)).await?;
        page.runs.into_iter().find(|entry| entry.run == run).ok_or_else(|| {
            Error::not_found(format!("session {} has no run {run}; list its runs", session.id))
        })
    }

    /// Returns the events of a run in order: its first event, all events that it wrote, and its last event.
    ///
    /// Other events of other writers are left out. Holds the run's events in memory.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_core::event::EventType;
    ///
    /// let view = chat.view();
    /// chat.prompt("Hello").await?.finish().await?;
    /// let run = view.runs(1, None).await?.runs[0].run;
    /// let events = view.trace(run).await?;
    /// assert_eq!(events[0].kind, EventType::USER_MESSAGE);
    /// assert!(events.iter().any(|event| event.kind == EventType::AGENT_MESSAGE));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of [`run`](Self::run).
    pub async fn trace(&self, run: RunId) -> Result<Vec<Event>> {
        let entry = self.run(run).await?;
        let first =
            ReadEvents::first(PAGE).with_max_bytes(PAGE_BYTES).with_after(Seq::new(entry.first.get() - 1));
        let mut next = Some(match entry.last {
            Some(last) => first.with_before(last.next()),
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

    /// Reads backwards until there are `limit` runs, or until the run `wanted` is found.
    pub(super) async fn runs_of(
        &self,
        session: &SessionRecord,
        limit: usize,
        before: Option<RunsBefore>,
        wanted: Option<RunId>,
    ) -> Result<RunPage> {
        if limit == 0 && wanted.is_none() {
            return Ok(RunPage { runs: Vec::new(), next: None });
        }
        let mut ledger = Ledger::new(session.counts.runs, before);
        // The first event of the last run of the page before may be the end of the next run.
        let end = before.map_or(session.head, |before| before.seq).next();
        let read = ReadEvents::last(PAGE).with_max_bytes(PAGE_BYTES).with_after(session.lineage.base());
        let mut next = Some(read.with_before(end));
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

/// Runs that were found while reading a log backwards.
struct Ledger {
    runs: Vec<RunEntry>,
    /// Number of the last run that began before the present position.
    index: u64,
    /// End of the run whose beginning is found next.
    end: Option<End>,
    /// Usage of runs whose beginning is not found yet.
    usage: HashMap<RunId, (UsageTotals, bool)>,
}

/// End of a run.
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

    /// Processes the next older event; returns the run that began there, if one did.
    fn walk(&mut self, event: &Event) -> Result<Option<RunEntry>> {
        if let EventPayload::SessionRunUsage(used) = event.decode()? {
            let (totals, degraded) = self.usage.entry(used.run).or_default();
            totals.add(&used);
            *degraded |= used.degraded;
        }
        let Some(change) = event.transition()? else { return Ok(None) };
        let entry = match &change.lease {
            Some(Some(lease)) if change.to == SessionState::Running => {
                let entry = self.begun(lease, event);
                // A run that was open when this one began was lost; otherwise the next older run has its own end.
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
    /// Returns the end of a run whose lease another holder took, without an event that released it.
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
            // One change contains the run's end and the request; a failure is distinguished from a request.
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
    /// Returns the state of the claimed work after the change with which its run ended.
    fn after(status: RunStatus, change: &Transition) -> Self {
        use SessionState::{Deleted, Failed, Idle, Terminated};
        // A time for the next attempt marks a retry.
        let again = matches!(change.ready_at, Some(Some(_)));
        match status {
            RunStatus::Running => Self::Leased,
            RunStatus::Awaiting => Self::Blocked,
            RunStatus::Completed | RunStatus::Cancelled => Self::Acked,
            _ if matches!(change.to, Failed | Terminated | Deleted) => Self::Abandoned,
            RunStatus::Failed if !again => Self::Abandoned,
            // A run that was lost after a stop was requested counts as stopped.
            RunStatus::Lost if change.inputs_done_through.is_some() || change.to == Idle => Self::Acked,
            RunStatus::Failed | RunStatus::Lost | RunStatus::Stopped => Self::Requeued,
        }
    }
}
