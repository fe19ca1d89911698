//! Copy of all data of a store to another store, between any kinds of backend.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! use agent_admin::copy::StoreCopy;
//! use agent_core::{DeviceId, MemoryStore, Storage};
//! use agent_runtime::WorkspaceManager;
//!
//! let (here, there): (Storage, Storage) = (MemoryStore::new().into(), MemoryStore::new().into());
//! let manager = WorkspaceManager::new(here.clone());
//! let device: DeviceId = "laptop".parse()?;
//! manager.resolve(&device).await?;
//!
//! let report = StoreCopy::new(here.clone(), there.clone())
//!     .with_progress(|progress| assert!(progress.done >= 1))
//!     .run()
//!     .await?;
//! assert!(report.is_whole());
//! assert_eq!((report.copied.workspaces, report.copied.bindings), (1, 1));
//! assert_eq!(there.bindings.resolve(&device).await?, here.bindings.resolve(&device).await?);
//!
//! // A second copy finds everything in the target, and writes nothing.
//! let again = StoreCopy::new(here, there).run().await?;
//! assert_eq!((again.copied.workspaces, again.present.workspaces), (0, 1));
//! # Ok(()) }
//! ```
//!
//! # What is copied
//!
//! - Workspaces with their configuration, including those whose deletion has begun. Their revisions restart.
//! - Sessions in every state, including archived and hidden ones, with their documents, mounts and learnings: commit by
//!   commit, unchanged ([`Commit::restore`](agent_core::commit::Commit::restore)), parents before the sessions made
//!   from them. Of a deleted session, its log and its end; of a purged session, its remaining events and a tombstone.
//! - Blobs that these events name, each before its commit. A blob that the target has for the session is not sent
//!   again. A session whose blobs the target cannot keep is refused before anything of it is written.
//! - Tombstones of workspaces, if a session refers to them: lists do not contain them.
//! - Device bindings, last, so that no device is bound to a workspace that does not exist yet.
//!
//! Leases are not copied: a session that was running is running in the target, too, but its holder sends no heartbeat
//! there, so the next process that opens it takes it over. The target computes its derived data itself. The areas of workspaces (`WorkspaceFiles`) are stored in hidden sessions; the folders `mcp/`, `skills/` and
//! `memory/` that the file store creates belong to the host and are not copied.
//!
//! # Guarantees
//!
//! - **Verified**: written data is read back and compared by SHA-256, and each session's record is compared with the
//!   record in the source. Existing data is compared event by event.
//! - **Repeatable**: a copy that was killed is completed by the next one; if everything exists, nothing is written.
//! - **Nothing is overwritten**: objects that differ in the target are listed in [`CopyReport::refused`], and are not
//!   changed; the rest is copied.
//! - **Nothing is hidden**: objects that are damaged in the source are listed in [`CopyReport::damaged`], and are not
//!   copied in part. A session with a lost or damaged blob is listed, too; it is copied up to the commit that names the
//!   blob.
//! - **Bounded memory**: the copy holds a page of a list and, for each of [`StoreCopy::with_sessions_at_once`] sessions,
//!   a page and a commit of its log, the names of its blobs and at most 4 MiB of one, however large the store is. The
//!   caches of both stores are additional. The program `chat`, which
//!   copies with few threads and small SQLite caches, takes about 40 MiB for 10,000 sessions from files to SQLite.
//!
//! The source may be in use: each session is copied in the state in which the copy finds it. The target should not be.
//!
//! # Restoring a backup
//!
//! [`StoreCopy::with_fences`] restores a backup to a place that was in use: to an empty one, or over what is left. A run from before the loss
//! may still be alive, and know a lease that the backup does not have. So each restored session is fenced: its epoch is raised beyond all
//! that such a run can know, and its lease has ended. Its work is queued again.
//!
//! - A session that has more events than the backup, and the same ones before, keeps them, counts as present, and is fenced unless a restore
//!   of this backup did so before: its run, if one lives, ends, and its work is queued again.
//! - One that differs, or was deleted since, is listed in [`CopyReport::refused`], and is not changed.
//! - A restore that was cut off is completed by the next one, which fences what the first one had copied and not fenced, also if a run from
//!   before wrote to it meanwhile.
//! - Until a session is fenced, a run from before may write to it if the backup holds its lease. What it writes stays, or the session is
//!   listed as refused; run the restore again then. Restore to a place that no program has opened to exclude that.

mod compared;
mod places;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::source::is_read_error;
use agent_core::setters;
use agent_core::store::{Damaged, Page};
use agent_core::{Error, ErrorKind, Result, SessionId, Storage, WorkspaceId};

/// Copy from one store to another. See the [module](self) for its guarantees.
#[derive(Clone)]
pub struct StoreCopy {
    from: Storage,
    to: Storage,
    workspace: Option<WorkspaceId>,
    at_once: usize,
    changed_only: bool,
    fences: bool,
    watch: Option<Watch>,
}

type Watch = Arc<dyn Fn(&CopyProgress) + Send + Sync>;

impl StoreCopy {
    /// Default number of sessions that are copied at once.
    pub const DEFAULT_AT_ONCE: usize = 8;

    /// Creates a copy of all data in `from` to `to`. No I/O; call [`run`](Self::run).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (here, there, manager) = two_storages();
    /// use agent_admin::copy::StoreCopy;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use std::sync::Arc;
    ///
    /// let sales = manager.create(NewWorkspace::new("Sales")).await?;
    /// manager.create(NewWorkspace::new("Support")).await?;
    /// let items = Arc::new(AtomicU64::new(0));
    /// let counter = items.clone();
    /// let report = StoreCopy::new(here, there)
    ///     .with_workspace(sales.id)
    ///     .with_sessions_at_once(2)
    ///     .with_progress(move |_| drop(counter.fetch_add(1, Ordering::Relaxed)))
    ///     .run()
    ///     .await?;
    /// assert_eq!((report.copied.workspaces, items.load(Ordering::Relaxed)), (1, 1));
    /// # Ok(()) }
    /// ```
    pub fn new(from: Storage, to: Storage) -> Self {
        let at_once = Self::DEFAULT_AT_ONCE;
        Self { from, to, workspace: None, at_once, changed_only: false, fences: false, watch: None }
    }

    setters! {
        /// Limits the copy to this workspace, with its sessions and device bindings; by default everything is copied.
        pub fn with_workspace(id: WorkspaceId) => workspace = Some(id);

        /// Makes the copy the restore of a backup: fences each session after its copy
        /// ([`Trigger::Fence`](agent_core::commit::Trigger::Fence)), so that no run from before writes to it. A session that has more
        /// than the backup keeps it. See [restoring](self#restoring-a-backup).
        pub const fn with_fences() => fences = true;

        /// Sets the number of sessions that are copied at once; default 8, at least one.
        pub fn with_sessions_at_once(sessions: usize) => at_once = sessions.max(1);

        /// Leaves out the sessions that both lists show alike, for a backup that is brought up to date: reads both lists, the sessions that
        /// have changed, and those that are deleted. Without it each session is read in both stores and compared. Damage of what is left
        /// out is not noticed; verify both stores from time to time. Memory holds some 50 bytes for each session of the target.
        pub const fn with_changed_only() => changed_only = true;

        /// Sets a callback that is called after each item; default none. It should return quickly.
        #[doc(alias = "watch")]
        pub fn with_progress(watch: impl Fn(&CopyProgress) + Send + Sync + 'static) => watch = Some(Arc::new(watch));
    }

    /// Copies everything that the target lacks. Returns a report of copied, present and refused objects.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (here, there, manager) = two_storages();
    /// use agent_admin::copy::StoreCopy;
    ///
    /// let workspace = manager.create(NewWorkspace::new("Sales")).await?;
    /// manager.main_session(&workspace).await?;
    /// let copy = StoreCopy::new(here, there);
    /// let (first, second) = (copy.run().await?, copy.run().await?);
    /// assert_eq!((first.copied.sessions, second.copied.sessions, second.present.sessions), (1, 0, 1));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any point; another call completes the copy.
    ///
    /// # Errors
    ///
    /// Errors that concern a whole store: it cannot be reached, is full, or denies access. Errors that concern one item
    /// are listed in the report.
    pub async fn run(&self) -> Result<CopyReport> {
        if self.from.owner().or(self.to.owner()).is_some() {
            return Err(Error::new(
                ErrorKind::Denied,
                "a copy is not for the storage of an owner, which does not show all; use those of the tenants",
            ));
        }
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

/// Stage of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyStage {
    /// Workspaces and their configuration.
    Workspaces,
    /// Sessions.
    Sessions,
    /// Deletions of deleted sessions, and their purges.
    Deletions,
    /// Device bindings.
    Bindings,
}

/// Progress of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// Present stage.
    pub stage: CopyStage,
    /// Number of items of this stage that are complete.
    pub done: u64,
    /// Total number of items of this stage; `None` if unknown.
    pub total: Option<u64>,
    /// Number of events that were written so far, in all stages.
    pub events: u64,
    /// Number of blobs that were written so far.
    pub blobs: u64,
    /// Number of bytes of these blobs.
    pub blob_bytes: u64,
}

/// Number of objects of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CopyCounts {
    /// Workspaces.
    pub workspaces: u64,
    /// Sessions.
    pub sessions: u64,
    /// Device bindings.
    pub bindings: u64,
}

/// Result of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CopyReport {
    /// Objects of which at least a part was written.
    pub copied: CopyCounts,
    /// Objects that existed already and are equal.
    pub present: CopyCounts,
    /// Sessions that were fenced, in the restore of a backup.
    pub fenced: u64,
    /// Number of events that were written.
    pub events: u64,
    /// Number of bytes of these events as JSON.
    pub bytes: u64,
    /// Number of blobs that were written.
    pub blobs: u64,
    /// Number of bytes of these blobs.
    pub blob_bytes: u64,
    /// Objects that cannot be read in the source.
    pub damaged: Vec<Damaged>,
    /// Objects that differ in the target, or that the target does not accept.
    pub refused: Vec<Refused>,
}

impl CopyReport {
    /// Returns whether the target contains everything that the source contains.
    pub fn is_whole(&self) -> bool {
        self.damaged.is_empty() && self.refused.is_empty()
    }
}

/// Object that was not copied, because it differs in the target or the target does not accept it. The target was not
/// changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct Refused {
    /// Description of the object.
    pub object: String,
    /// Reason, as text.
    pub reason: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.reason)
    }
}

/// State of a copy in progress.
struct Work<'a> {
    copy: &'a StoreCopy,
    tally: Mutex<Tally>,
}

#[derive(Default)]
struct Tally {
    report: CopyReport,
    done: u64,
    total: Option<u64>,
    /// Damage that a list reports, which may be repeated on each of its pages.
    named: BTreeSet<Damaged>,
    /// Sessions that were copied early, because another session is made from them.
    early: BTreeSet<SessionId>,
    /// Sessions that were reported as damaged or refused.
    failed: BTreeSet<SessionId>,
    /// Parents of sessions that were refused and may still be copied later, each with one of these sessions.
    needed: BTreeMap<SessionId, SessionId>,
}

/// Outcome for one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemOutcome {
    Copied,
    Present,
}

/// Reason for which an item is not copied.
#[derive(Debug)]
enum Stop {
    /// The item cannot be read.
    Damaged(String),
    /// The item differs in the target, or the target does not accept it.
    Refused(String),
    /// The target lacks the item, or the session that it was made from.
    Absent(Error),
    /// Another process wrote to the target.
    Raced(Error),
    /// Nothing can be copied.
    All(Error),
}

impl Stop {
    /// Returns the reason for an error of the source.
    fn of_source(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Denied => Self::Damaged(full_text(&error)),
            ErrorKind::NotFound | ErrorKind::Deleted => {
                Self::Refused(format!("the source: {}", full_text(&error)))
            }
            ErrorKind::Unsupported => Self::Refused(full_text(&error)),
            // The disk fails for this object; others may be readable.
            ErrorKind::Unavailable if is_read_error(&error) => Self::Damaged(full_text(&error)),
            _ => Self::All(error),
        }
    }

    /// Returns the reason for an error of the target.
    fn of_target(error: Error) -> Self {
        use ErrorKind::{Denied, Full, Poisoned, Unavailable};
        match error.kind() {
            // A blob was removed between its put and its commit, or somebody else committed.
            ErrorKind::Conflict { .. } | ErrorKind::BlobMissing { .. } => Self::Raced(error),
            ErrorKind::NotFound => Self::Absent(error),
            Denied | Full | Poisoned | Unavailable => Self::All(error),
            _ => Self::Refused(format!("the target: {}", full_text(&error))),
        }
    }
}

/// Returns an error and its causes, in one line.
fn full_text(error: &(dyn std::error::Error + 'static)) -> String {
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
        // After a panic, each count is still correct by itself.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the counts for a stage.
    fn begin(&self) {
        let mut tally = self.tally();
        (tally.done, tally.total) = (0, None);
    }

    /// Returns the next page of a list of the source, and reports its damage. `None` at the end, and if the list cannot
    /// be read at all.
    fn page<T>(&self, list: &str, page: Result<Option<Page<T>>>) -> Result<Option<Page<T>>> {
        let (damaged, page) = match page {
            Ok(None) => return Ok(None),
            Ok(Some(mut page)) => (std::mem::take(&mut page.damaged), Some(page)),
            Err(error) if *error.kind() == ErrorKind::Corrupt || is_read_error(&error) => {
                (vec![Damaged::new(format!("the list of {list}"), full_text(&error))], None)
            }
            Err(error) => return Err(error),
        };
        let mut tally = self.tally();
        for damage in damaged {
            // A list may report the same damage on each of its pages.
            if tally.named.insert(damage.clone()) {
                tally.report.damaged.push(damage);
            }
        }
        Ok(page)
    }

    /// Records the outcome for an item.
    fn note(
        &self,
        stage: CopyStage,
        object: impl Fn() -> String,
        result: Result<ItemOutcome, Stop>,
    ) -> Result<bool> {
        let mut tally = self.tally();
        let report = &mut tally.report;
        let counts = match &result {
            Ok(ItemOutcome::Copied) => Some(&mut report.copied),
            Ok(ItemOutcome::Present) => Some(&mut report.present),
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
            Err(Stop::Raced(error)) => {
                let reason = format!("another process is writing to the target: {}", full_text(&error));
                report.refused.push(Refused { object: object(), reason });
            }
            Err(Stop::Absent(error)) => {
                let reason = format!("the target lacks an object that it needs: {}", full_text(&error));
                report.refused.push(Refused { object: object(), reason });
            }
            Err(Stop::All(error)) => return Err(error),
        }
        tally.done += 1;
        let progress = CopyProgress {
            stage,
            done: tally.done,
            total: tally.total,
            events: tally.report.events,
            blobs: tally.report.blobs,
            blob_bytes: tally.report.blob_bytes,
        };
        drop(tally);
        if let Some(watch) = &self.copy.watch {
            watch(&progress);
        }
        Ok(whole)
    }
}
