//! Sessions: a thin layer over a read on a reader thread, or a request to the writer.

use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::{Commit, Committed, OptimisticCommit};
use agent_core::event::Event;
use agent_core::model::BlobInfo;
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::{
    BLOB_MAX_BYTES, BlobChunks, BlobContent, BlobQuery, BlobStore, Capabilities, Damaged, Durability,
    EventPage, LeaseStatus, LeaseStore, Maintenance, Page, Pending, Purge, Purged, PutBlob, ReadBlob,
    ReadEvents, Rebuilt, Scope, SessionQuery, SweepBlobs, SweptBlobs, observed,
};
use agent_core::{
    Epoch, ErrorKind, Result, Seq, SessionId, SessionStore, Timestamp, WriteOutcome, async_trait,
};
use rusqlite::Connection;
use tracing::field::Empty;
use tracing::info_span;

use crate::blobs::{chunks, removal};
use crate::care::check;
use crate::config::Sync;
use crate::connections::blob_steps::{BlobAnswer, BlobStep};
use crate::connections::request::{Answer, Request, commit_size_bytes};
use crate::error::gone;
use crate::log::read::{self, Found};
use crate::medium::session_rows::Rows;
use crate::store::SqliteStore;

/// Interval at which a session is checked for changes by other processes while a caller waits for one.
const POLL: Duration = Duration::from_millis(25);
const POLL_MAX: Duration = Duration::from_millis(250);
/// Most bytes of a commit that is planned on the thread of its caller, which runs other tasks, too: about a tenth of a
/// millisecond.
const PLANNED_BYTES: usize = 64 << 10;

#[async_trait]
impl SessionStore for SqliteStore {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let id = commit.session;
        let span = info_span!("store.commit", store = "sqlite", session = %id, events = Empty, bytes = Empty, outcome = Empty);
        let recorded = span.clone();
        let work = async {
            let bytes = commit_size_bytes(&commit);
            recorded.record("bytes", bytes);
            let request = Request::Commit(Box::new(self.planned(commit, bytes)));
            let Answer::Committed(done) = self.ask(request).await? else { return Err(gone()) };
            self.shared.readers.warm(self.session(id));
            recorded.record("events", (done.last.get() + 1).saturating_sub(done.first.get()));
            Ok(*done)
        };
        observed(span, work).await
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let span = info_span!("store.load", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            let load = move |conn: &Connection, tenant: &str| read::load(conn, tenant, id);
            match self.read_row("read a session", self.session(id), load).await? {
                Found::Whole(session) => Ok(session),
                Found::Broken => self.mend(id).await,
            }
        };
        observed(span, work).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let span = info_span!("store.read", store = "sqlite", session = %id, events = Empty, bytes = Empty, outcome = Empty);
        let recorded = span.clone();
        let work = async {
            let mut mended = false;
            let page = loop {
                match self.page(id, &read).await? {
                    Found::Whole(page) => break page,
                    Found::Broken if mended => return Err(gone()),
                    Found::Broken => {
                        self.mend(id).await?;
                        mended = true;
                    }
                }
            };
            recorded.record("events", page.events.len());
            recorded.record("bytes", page.events.iter().map(Event::size_bytes).sum::<usize>());
            Ok(page)
        };
        observed(span, work).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        let span = info_span!("store.list_sessions", store = "sqlite", outcome = Empty);
        let work = async {
            // Only once for all pages.
            let is_first = query.with_total && query.cursor.is_none();
            let lost = if is_first { self.find_rows().await? } else { Vec::new() };
            let mut listed = self.listed(&query).await?;
            listed.page.damaged.extend(lost);
            for id in std::mem::take(&mut listed.broken) {
                match self.mend(id).await {
                    Ok(session) => {
                        let summary = SessionSummary::from(&*session);
                        listed.page.items.extend(query.matches(&summary).then_some(summary));
                    }
                    Err(error) if *error.kind() == ErrorKind::Corrupt => {
                        listed.page.damaged.push(Damaged::of(format!("session {id}"), &error));
                    }
                    Err(error) => return Err(error),
                }
            }
            query.sort(&mut listed.page.items);
            Ok(listed.page)
        };
        observed(span, work).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        let span = info_span!("store.purge", store = "sqlite", session = %purge.session, outcome = Empty);
        let work = async {
            // A fork without its row would not be found, and would lose the events that it reads.
            self.read_rows("look for missing rows", check::rows_are_whole).await?;
            let purge = purge.sparing_forks(self).await?;
            let rewrites = purge.rewrite;
            let Answer::Purged(purged) = self.ask(Request::Purge(purge)).await? else { return Err(gone()) };
            let rest = async {
                self.delete_removed_blobs().await?;
                // After the last deletion, so that nothing is left of the blobs either.
                if rewrites {
                    self.ask(Request::Rewrite).await?;
                }
                self.is_rewrite_pending().await
            };
            // The purge itself is stored. A repeated one does the rest.
            let pending = rest.await.map_err(|error| error.with_outcome(WriteOutcome::Unknown))?;
            Ok(purged.with_rewrite_pending(pending))
        };
        observed(span, work).await
    }

    fn capabilities(&self) -> Capabilities {
        let durability = match self.shared.config.sync {
            Sync::Full => Durability::PowerLoss,
            Sync::Normal | Sync::Off => Durability::ProcessCrash,
        };
        Capabilities::new(Scope::Host, durability).with_blobs(BLOB_MAX_BYTES)
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        let span = info_span!("store.changed", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            // Writes of this store are notified at once; those of other processes are found by checking.
            let mut changed = self.shared.heads.watch(&self.tenant, id);
            let mut pause = POLL;
            // Of a session that this store has written to last, what is new by now is found by the first check.
            let key = (self.tenant.clone(), id);
            let remembered = self.shared.known.remembered(&key);
            let mut is_seen = remembered.is_some_and(|stored| stored.session.head <= seen);
            loop {
                if !std::mem::take(&mut is_seen) {
                    let head = self.head(id).await?;
                    if head > seen {
                        return Ok(head);
                    }
                }
                let _ = tokio::time::timeout(pause, changed.wait_for(|head| *head > seen)).await;
                pause = (pause * 3 / 2).min(POLL_MAX);
            }
        };
        observed(span, work).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }

    fn leases(&self) -> &dyn LeaseStore {
        self
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }
}

#[async_trait]
impl LeaseStore for SqliteStore {
    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        let span = info_span!("store.heartbeat", store = "sqlite", session = %id, outcome = Empty);
        observed(span, async { self.ask(Request::Heartbeat(id, epoch)).await.map(drop) }).await
    }

    async fn status(&self, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
        let span = info_span!("store.lease_status", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            let path = self.path().to_owned();
            let lease_status =
                self.shown(move |conn, tenant| read::lease_status(conn, &path, tenant, id, epoch));
            match self.read_rows("look for signs of life", lease_status).await? {
                Found::Whole(lease_status) => Ok(lease_status),
                Found::Broken => self.mend(id).await.map(|_| LeaseStatus::default()),
            }
        };
        observed(span, work).await
    }
}

#[async_trait]
impl BlobStore for SqliteStore {
    async fn put(&self, put: PutBlob) -> Result<()> {
        let id = put.session;
        let span = info_span!("store.put_blob", store = "sqlite", session = %id, bytes = put.blob.bytes, outcome = Empty);
        let work = async {
            let chunks = put.into_chunks(BLOB_MAX_BYTES)?;
            let info = chunks.blob();
            let begun = self.change_blobs(BlobStep::Begin(id, info, self.now())).await?;
            let BlobAnswer::Begun(blob) = begun else { return Err(gone()) };
            let putting = Putting { store: self, blob: Some(blob) };
            let put = async {
                self.store_chunks(id, chunks, blob).await?;
                self.change_blobs(BlobStep::Publish(id, info, blob)).await
            };
            if let Err(error) = put.await {
                self.discard(blob).await;
                putting.end();
                return Err(error);
            }
            putting.end();
            // Those of a blob that had the name. The blob itself is stored; a later put deletes what is left.
            if let Err(error) = self.delete_removed_blobs().await {
                tracing::debug!(%error, "what a blob replaced stays behind");
            }
            Ok(())
        };
        observed(span, work).await
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        let (id, name) = (read.session, read.name);
        let span = info_span!("store.read_blob", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            let find = self.shown(move |conn, tenant| chunks::find(conn, tenant, id, name));
            let found = self.read_rows("look for a blob", find).await?.ok_or_else(|| read.not_found())?;
            let store = self.clone();
            Ok(BlobContent::from_chunks(&read, found.info, move |index| {
                let store = store.clone();
                async move {
                    // A transaction for each chunk, so that a slow reader does not keep the log from being shortened.
                    let chunk =
                        store.shown(move |conn, tenant| chunks::chunk(conn, tenant, id, found, index));
                    store.read_rows("read a blob", chunk).await
                }
            }))
        };
        observed(span, work).await
    }

    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        let span =
            info_span!("store.list_blobs", store = "sqlite", session = %query.session, outcome = Empty);
        let list = self.shown(move |conn, tenant| chunks::list(conn, tenant, &query));
        observed(span, async { self.read_rows("list blobs", list).await? }).await
    }

    async fn sweep(&self, sweep: SweepBlobs) -> Result<SweptBlobs> {
        let span = info_span!("store.sweep_blobs", store = "sqlite", session = Empty, outcome = Empty);
        if let Some(id) = sweep.session {
            span.record("session", tracing::field::display(id));
        }
        let work = async {
            let now = self.now();
            if sweep.dry_run {
                let count = self.shown(move |conn, tenant| removal::sweep(conn, tenant, sweep, now));
                return self.read_rows("count blobs that no event names", count).await;
            }
            let swept = self.change_blobs(BlobStep::Sweep(sweep, now)).await?;
            let BlobAnswer::Swept(swept) = swept else { return Err(gone()) };
            let deleted = self.delete_removed_blobs().await;
            deleted.map_err(|error| error.with_outcome(WriteOutcome::Unknown))?;
            Ok(swept)
        };
        observed(span, work).await
    }
}

#[async_trait]
impl Maintenance for SqliteStore {
    /// Runs SQLite's own check of the whole file, with all tenants: its structure, and that indexes match their
    /// tables. Also checks that the schema is this library's, and that no row is missing which other rows refer to.
    async fn check(&self) -> Result<Vec<Damaged>> {
        let span = info_span!("store.check", store = "sqlite", outcome = Empty);
        let found = async {
            match self.read_rows("check the file", check::file).await {
                Err(error) if *error.kind() == ErrorKind::Corrupt => Ok(vec![error.to_string()]),
                found => found,
            }
        };
        let file = self.path().display().to_string();
        let found = observed(span, found).await?;
        Ok(found.into_iter().map(|what| Damaged::new(file.clone(), what)).collect())
    }

    async fn pending(&self) -> Result<Vec<Pending>> {
        let span = info_span!("store.pending", store = "sqlite", outcome = Empty);
        let pending = async {
            let mut pending: Vec<_> =
                self.is_rewrite_pending().await?.then(|| self.rewrite()).into_iter().collect();
            pending.extend(self.unfinished_deletions().await?);
            Ok(pending)
        };
        observed(span, pending).await
    }

    async fn maintain(&self) -> Result<Vec<Pending>> {
        self.maintain().await
    }

    async fn rebuild(&self) -> Result<Rebuilt> {
        self.rebuilt(false).await
    }

    async fn delete_damaged(
        &self,
        id: SessionId,
        at: Timestamp,
        reason: Reason,
    ) -> Result<Arc<SessionRecord>> {
        let span = info_span!("store.delete_damaged", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            match self.ask(Request::DeleteDamaged(id, at, reason)).await? {
                Answer::Session(session) => Ok(session),
                _ => Err(gone()),
            }
        };
        observed(span, work).await
    }
}

impl SqliteStore {
    /// Plans a commit on the record that is remembered, so that the writer has less to do in its turn.
    fn planned(&self, commit: Commit, bytes: usize) -> OptimisticCommit<Rows> {
        if bytes > PLANNED_BYTES {
            return OptimisticCommit::unplanned(commit);
        }
        let remembered = self.shared.known.remembered(&(self.tenant.clone(), commit.session));
        let remembered = remembered.as_ref().map(|stored| (stored.version, &*stored.session));
        OptimisticCommit::new(commit, remembered, |events, after| Rows::of(&self.tenant, events, after))
    }

    fn now(&self) -> Timestamp {
        self.shared.config.effects.now()
    }

    async fn change_blobs(&self, step: BlobStep) -> Result<BlobAnswer> {
        match self.ask(Request::Blob(step)).await? {
            Answer::Blob(answer) => Ok(answer),
            _ => Err(gone()),
        }
    }

    /// Stores the chunks of a blob, the next one once the last one is stored, so that other writers have their turns.
    async fn store_chunks(&self, session: SessionId, mut chunks: BlobChunks, blob: i64) -> Result<()> {
        let (info, mut index) = (chunks.blob(), 0);
        while let Some(bytes) = chunks.next().await? {
            let checksum = info.checksum(index, &bytes);
            let chunk =
                BlobStep::Chunk { session, name: info.name, blob, index, checksum, bytes, at: self.now() };
            self.change_blobs(chunk).await?;
            index += 1;
        }
        Ok(())
    }

    /// Deletes the chunks of removed blobs, a few in each transaction.
    async fn delete_removed_blobs(&self) -> Result<()> {
        loop {
            match self.change_blobs(BlobStep::Delete).await? {
                BlobAnswer::Deleted(deleted) if !deleted.is_left => return Ok(()),
                BlobAnswer::Deleted(_) => {}
                _ => return Err(gone()),
            }
        }
    }

    /// Deletes what is stored of a blob that is not put after all, as far as possible.
    async fn discard(&self, blob: i64) {
        let discarded = self.change_blobs(BlobStep::Discard(blob)).await.map(drop);
        let discarded = match discarded {
            Ok(()) => self.delete_removed_blobs().await,
            failed => failed,
        };
        if let Err(error) = discarded {
            tracing::debug!(%error, "a part of a blob stays behind until a later sweep");
        }
    }
}

/// Blob that is being put. If the caller of the put is dropped, the writer is told to delete what is stored of it, a first
/// part at once; a later put or sweep deletes the rest.
struct Putting<'a> {
    store: &'a SqliteStore,
    blob: Option<i64>,
}

impl Putting<'_> {
    /// The blob was published, or is discarded.
    fn end(mut self) {
        self.blob = None;
    }
}

impl Drop for Putting<'_> {
    fn drop(&mut self) {
        let Some(blob) = self.blob.take() else { return };
        for step in [BlobStep::Discard(blob), BlobStep::Delete] {
            self.store.shared.writer.enqueue(self.store.tenant.clone(), Request::Blob(step));
        }
    }
}
