//! All that a store holds, in another store: of any kind, to any kind.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! use agent_admin::copy::StoreCopy;
//! use agent_core::{DeviceId, MemoryStore, Storage};
//! use agent_core::clock::Effects;
//! use agent_runtime::{NewWorkspace, WorkspaceManager};
//!
//! let (here, there): (Storage, Storage) = (MemoryStore::new().into(), MemoryStore::new().into());
//! let manager = WorkspaceManager::new(here.clone(), Effects::default());
//! let device: DeviceId = "laptop".parse()?;
//! manager.resolve(&device).await?;
//!
//! let report = StoreCopy::new(here.clone(), there.clone())
//!     .watch(|progress| assert!(progress.done >= 1))
//!     .run()
//!     .await?;
//! assert!(report.is_whole());
//! assert_eq!((report.copied.workspaces, report.copied.bindings), (1, 1));
//! assert_eq!(there.bindings.resolve(&device).await?, here.bindings.resolve(&device).await?);
//!
//! // Again: all is there, and nothing is written.
//! let again = StoreCopy::new(here, there).run().await?;
//! assert_eq!((again.copied.workspaces, again.present.workspaces), (0, 1));
//! # Ok(()) }
//! ```
//!
//! # What is copied
//!
//! - Workspaces with their configuration; those whose deletion has begun, too. Their revisions begin anew.
//! - Sessions in every state, archived ones and shelves with their documents, mounts and learnings: commit by commit, as
//!   they are ([`Commit::restore`](agent_core::commit::Commit::restore)), a session that others were made from before these. Of a
//!   deleted session its log and its end; of one that was purged what is left, and a tombstone.
//! - Tombstones of workspaces, as far as a session names them: lists do not show them.
//! - Bindings, last: so that no device comes to a workspace that is not there yet.
//!
//! Leases are not: the record of a session that was running says so, as its log does, and there is no sign of life of its
//! holder in the target, so that the next who asks takes over. What a store derives it makes anew. The areas of workspaces
//! (`WorkspaceBlobs`) lie on shelves; the folders `mcp/`, `skills/` and `memory/` that the
//! file store makes belong to the host and are not copied.
//!
//! # What is promised
//!
//! - **Verified**: what was written is read back and compared by SHA-256, and each session's record with that in the
//!   source. What is there already is compared event by event.
//! - **Repeatable**: a copy that was killed is finished by the next; where all is there nothing is written.
//! - **Nothing is overwritten**: what the target has otherwise is named in [`CopyReport::refused`], and stays as it is;
//!   the rest is copied.
//! - **Nothing hides**: what is damaged in the source is named in [`CopyReport::damaged`], and not copied by half.
//! - **Bounded**: a page of a list and, for each of [`StoreCopy::at_once`] sessions, a page and a commit of its log are
//!   held by the copy, however much there is. The caches of both stores come on top. The program `chat`, which copies on
//!   few threads, with small caches of SQLite, takes about 40 MiB for 10,000 sessions from files to SQLite.
//!
//! The source may be in use: each session is copied as it was when the copy came to it. The target should not be.

mod places;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::store::{Damaged, Page};
use agent_core::{Error, ErrorKind, Result, SessionId, Storage, WorkspaceId};

/// A copy from one store to another. See the [module](self) for what it promises.
#[derive(Clone)]
pub struct StoreCopy {
    from: Storage,
    to: Storage,
    workspace: Option<WorkspaceId>,
    at_once: usize,
    watch: Option<Watch>,
}

type Watch = Arc<dyn Fn(&CopyProgress) + Send + Sync>;

impl StoreCopy {
    /// How many sessions are copied at once, unless set.
    pub const DEFAULT_AT_ONCE: usize = 8;

    /// A copy of all that `from` holds to `to`.
    pub fn new(from: Storage, to: Storage) -> Self {
        Self { from, to, workspace: None, at_once: Self::DEFAULT_AT_ONCE, watch: None }
    }

    /// Copies this workspace only, with its sessions and bindings.
    #[must_use]
    pub fn workspace(mut self, id: WorkspaceId) -> Self {
        self.workspace = Some(id);
        self
    }

    /// Sets how many sessions are copied at once; at least one.
    #[must_use]
    pub fn at_once(mut self, sessions: usize) -> Self {
        self.at_once = sessions.max(1);
        self
    }

    /// Calls `watch` after each item. It should be quick.
    #[must_use]
    pub fn watch(mut self, watch: impl Fn(&CopyProgress) + Send + Sync + 'static) -> Self {
        self.watch = Some(Arc::new(watch));
        self
    }

    /// Copies what is not there yet. May be dropped at any point, and called again.
    ///
    /// # Errors
    ///
    /// What concerns a whole store: it cannot be reached, is full, refuses access. What concerns one item is named in
    /// the report.
    pub async fn run(&self) -> Result<CopyReport> {
        let work = Work { copy: self, tally: Mutex::default() };
        work.workspaces().await?;
        work.sessions().await?;
        work.deletions().await?;
        work.bindings().await?;
        let mut report = std::mem::take(&mut work.tally().report);
        report.damaged.sort();
        report.refused.sort();
        Ok(report)
    }
}

impl fmt::Debug for StoreCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreCopy")
            .field("from", &self.from)
            .field("to", &self.to)
            .field("workspace", &self.workspace)
            .finish_non_exhaustive()
    }
}

/// What a copy is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyStage {
    /// Workspaces and their configuration.
    Workspaces,
    /// Sessions.
    Sessions,
    /// The ends of those that were deleted.
    Deletions,
    /// Bindings.
    Bindings,
}

/// How far a copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// What it is at.
    pub stage: CopyStage,
    /// How many items of that are done with.
    pub done: u64,
    /// How many there are, where that is known.
    pub total: Option<u64>,
    /// How many events were written so far.
    pub events: u64,
}

/// How many of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyCounts {
    /// Workspaces.
    pub workspaces: u64,
    /// Sessions.
    pub sessions: u64,
    /// Bindings.
    pub bindings: u64,
}

/// What a copy did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyReport {
    /// What was written, at least in part.
    pub copied: CopyCounts,
    /// What was there already, and equal.
    pub present: CopyCounts,
    /// How many events were written.
    pub events: u64,
    /// How many bytes these have as JSON.
    pub bytes: u64,
    /// What cannot be read in the source.
    pub damaged: Vec<Damaged>,
    /// What the target has otherwise, or does not take.
    pub refused: Vec<Refused>,
}

impl CopyReport {
    /// Whether the target has all that the source has.
    pub fn is_whole(&self) -> bool {
        self.damaged.is_empty() && self.refused.is_empty()
    }
}

/// Something that was not copied, since the target has it otherwise or does not take it. Nothing of it was changed there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Refused {
    /// What it is.
    pub object: String,
    /// Why, in words.
    pub reason: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.reason)
    }
}

/// A copy while it goes on.
struct Work<'a> {
    copy: &'a StoreCopy,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    report: CopyReport,
    done: u64,
    total: Option<u64>,
    /// Damage that a list names, which may stand on each of its pages.
    named: BTreeSet<Damaged>,
    /// Sessions that were copied before their turn, since another is made from them.
    early: BTreeSet<SessionId>,
    /// Sessions that were named as damaged or refused.
    failed: BTreeSet<SessionId>,
    /// What these were made from, where they may yet be copied; each with one of them.
    needed: BTreeMap<SessionId, SessionId>,
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Copied,
    Present,
}

/// Why an item is not copied.
#[derive(Debug)]
enum Stop {
    /// It cannot be read.
    Damaged(String),
    /// The target has it otherwise, or does not take it.
    Refused(String),
    /// The target does not have it, or what it was made from.
    Absent(Error),
    /// Somebody else wrote to the target.
    Raced(Error),
    /// Nothing can be copied.
    All(Error),
}

impl Stop {
    /// The source said no.
    fn of_source(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Corrupt => Self::Damaged(told(&error)),
            ErrorKind::Unsupported | ErrorKind::NotFound | ErrorKind::Deleted => Self::Refused(told(&error)),
            _ => Self::All(error),
        }
    }

    /// The target said no.
    fn of_target(error: Error) -> Self {
        use ErrorKind::{Denied, Full, Poisoned, Unavailable};
        match error.kind() {
            ErrorKind::Conflict { .. } => Self::Raced(error),
            ErrorKind::NotFound => Self::Absent(error),
            Denied | Full | Poisoned | Unavailable => Self::All(error),
            _ => Self::Refused(format!("the target: {}", told(&error))),
        }
    }
}

/// An error and what caused it, in one line.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl Work<'_> {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        // Counts only: each is right by itself.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with items of another kind.
    fn begin(&self) {
        let mut tally = self.tally();
        (tally.done, tally.total) = (0, None);
    }

    /// The next page of a list of the source; names what of it cannot be read. `None` at the end, and where the list cannot be
    /// read at all.
    fn page<T>(&self, list: &str, page: Result<Option<Page<T>>>) -> Result<Option<Page<T>>> {
        let (damaged, page) = match page {
            Ok(None) => return Ok(None),
            Ok(Some(mut page)) => (std::mem::take(&mut page.damaged), Some(page)),
            Err(error) if *error.kind() == ErrorKind::Corrupt => {
                (vec![Damaged::new(format!("the list of {list}"), told(&error))], None)
            }
            Err(error) => return Err(error),
        };
        let mut tally = self.tally();
        for damage in damaged {
            // A list may name it on each of its pages.
            if tally.named.insert(damage.clone()) {
                tally.report.damaged.push(damage);
            }
        }
        Ok(page)
    }

    /// Notes what became of an item.
    fn note(
        &self,
        stage: CopyStage,
        object: impl Fn() -> String,
        result: Result<Outcome, Stop>,
    ) -> Result<bool> {
        let mut tally = self.tally();
        let report = &mut tally.report;
        let counts = match &result {
            Ok(Outcome::Copied) => Some(&mut report.copied),
            Ok(Outcome::Present) => Some(&mut report.present),
            Err(_) => None,
        };
        if let Some(counts) = counts {
            *match stage {
                CopyStage::Workspaces => &mut counts.workspaces,
                CopyStage::Sessions | CopyStage::Deletions => &mut counts.sessions,
                CopyStage::Bindings => &mut counts.bindings,
            } += 1;
        }
        let whole = result.is_ok();
        match result {
            Ok(_) => {}
            Err(Stop::Damaged(reason)) => report.damaged.push(Damaged::new(object(), reason)),
            Err(Stop::Refused(reason)) => report.refused.push(Refused { object: object(), reason }),
            Err(Stop::Raced(error) | Stop::Absent(error)) => {
                report
                    .refused
                    .push(Refused { object: object(), reason: format!("the target: {}", told(&error)) });
            }
            Err(Stop::All(error)) => return Err(error),
        }
        tally.done += 1;
        let progress =
            CopyProgress { stage, done: tally.done, total: tally.total, events: tally.report.events };
        drop(tally);
        if let Some(watch) = &self.copy.watch {
            watch(&progress);
        }
        Ok(whole)
    }
}
