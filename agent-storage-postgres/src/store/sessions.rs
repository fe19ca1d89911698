//! Sessions, their leases and blobs, and the care for them.

use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::{Commit, Committed};
use agent_core::event::Event;
use agent_core::model::BlobInfo;
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::{
    BLOB_MAX_BYTES, BlobChunks, BlobContent, BlobQuery, BlobStore, Capabilities, Damaged, EventPage,
    LeaseStatus, LeaseStore, Maintenance, Page, Purge, Purged, PutBlob, ReadBlob, ReadEvents, Rebuilt, Scope,
    SessionQuery, SweepBlobs, SweptBlobs, observed,
};
use agent_core::{
    Epoch, ErrorKind, OwnerId, Result, Seq, SessionId, SessionStore, Timestamp, WriteOutcome, async_trait,
};
use tracing::field::Empty;
use tracing::info_span;

use crate::blobs::{chunks, put, removal};
use crate::care::check;
use crate::lists::pages;
use crate::log::{commit, purge, read, rebuild};
use crate::medium::attempts::{Mode, Site, run};
use crate::medium::rows::int;
use crate::medium::stored::no_session;
use crate::store::PostgresStore;

/// Interval at which a session is read while a caller waits for a change, and the store does not listen.
const POLL: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_millis(500);
/// Delay of the order of lists: the times in their indexes are cut to the minute.
const RECENCY: Duration = Duration::from_secs(60);
/// Most attempts at a page whose damaged rows are rebuilt.
const MENDED: usize = 3;

#[async_trait]
impl SessionStore for PostgresStore {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let id = commit.session;
        let span =
            info_span!("store.commit", store = "postgres", session = %id, events = Empty, outcome = Empty);
        let recorded = span.clone();
        let store = self.clone();
        let task = self.task(async move {
            let done = commit::commit(&store.site, &store.shared.known, commit).await?;
            store.notify(store.key(id), done.session.head);
            Ok(done)
        });
        let work = async {
            let done = task.await?;
            recorded.record("events", (done.last.get() + 1).saturating_sub(done.first.get()));
            Ok(done)
        };
        observed(span, work).await
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let span = info_span!("store.load", store = "postgres", session = %id, outcome = Empty);
        let (site, shared, key) = (self.site.clone(), self.shared.clone(), self.key(id));
        let load = async move {
            match commit::current(&site, id).await? {
                Some(found) => {
                    shared.known.insert(key, found.clone());
                    Ok(found.session)
                }
                None => Err(no_session(id)),
            }
        };
        observed(span, self.task(load)).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let span = info_span!("store.read", store = "postgres", session = %id, events = Empty, bytes = Empty, outcome = Empty);
        let (site, recorded) = (self.site.clone(), span.clone());
        let task = self.task(async move {
            loop {
                let page = run!(site, Mode::Read, "read events", db => read::read(db, id, &read).await)?;
                match page {
                    Some(page) => return Ok(page),
                    None => mended(&site, id).await?,
                };
            }
        });
        let work = async {
            let page = task.await?;
            recorded.record("events", page.events.len());
            recorded.record("bytes", page.events.iter().map(Event::size_bytes).sum::<usize>());
            Ok(page)
        };
        observed(span, work).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        let span = info_span!("store.list_sessions", store = "postgres", outcome = Empty);
        let site = self.site.clone();
        observed(span, self.task(async move { list(&site, &query).await })).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        let span = info_span!("store.purge", store = "postgres", session = %purge.session, outcome = Empty);
        let work = async {
            // A fork without its row would not be found, and would lose the events that it reads.
            // The forks of all owners count.
            let whole = self.whole();
            let site = whole.site.clone();
            self.task(async move { find_rows(&site).await }).await?;
            let purge = purge.sparing_forks(&whole).await?;
            let (site, shared, key) = (self.site.clone(), self.shared.clone(), self.key(purge.session));
            let task = self.task(async move {
                // No row may have another owner than the scope's; what it sees it may purge.
                let site = match (&purge.pseudonym, &site.scope.owner) {
                    (Some(_), Some(_)) if commit::current(&site, key.1).await?.is_some() => site.whole(),
                    _ => site,
                };
                let attempts = site.attempts(Mode::Shared, "purge a session").long();
                let purged = run!(@ attempts, db => purge::purge(db, &purge).await);
                shared.known.remove(&key);
                purged?;
                // The purge itself is stored. A repeated one does the rest.
                let rest = async {
                    delete_removed(&site).await?;
                    remove_events(&site, key.1).await
                };
                rest.await.map_err(|error| error.with_outcome(WriteOutcome::Unknown))
            });
            task.await
        };
        observed(span, work).await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Scope::Network, self.shared.opened.durability)
            .with_blobs(BLOB_MAX_BYTES)
            .with_recency(RECENCY)
            .with_isolation(self.shared.opened.isolation)
    }

    fn of_owner(&self, owner: &OwnerId) -> Option<Arc<dyn SessionStore>> {
        Some(Arc::new(self.narrowed(owner)))
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        let span = info_span!("store.changed", store = "postgres", session = %id, outcome = Empty);
        let work = async {
            self.listen();
            let live = &self.shared.live;
            let mut changed = live.heads.watch(&self.site.scope.tenant, id);
            let mut pause = POLL;
            loop {
                // What changes after that is heard, but for what a process did that ended before it told others.
                let wait = if live.listens() { self.shared.config.poll_interval } else { pause };
                let head = self.head(id).await?;
                if head > seen {
                    return Ok(head);
                }
                let _ = tokio::time::timeout(wait, changed.changed()).await;
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
impl LeaseStore for PostgresStore {
    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        let span = info_span!("store.heartbeat", store = "postgres", session = %id, outcome = Empty);
        let (site, epoch) = (self.site.clone(), int(epoch.get()));
        let beat = async move {
            run!(site, Mode::Write, "send a heartbeat", db => commit::heartbeat(db, id, epoch).await)
        };
        observed(span, self.task(beat)).await
    }

    async fn status(&self, id: SessionId, _: Epoch) -> Result<LeaseStatus> {
        let span = info_span!("store.lease_status", store = "postgres", session = %id, outcome = Empty);
        let site = self.site.clone();
        let status = async move {
            match run!(site, Mode::Read, "look for signs of life", db => read::lease_status(db, id).await)? {
                Some(status) => Ok(status),
                None => mended(&site, id).await.map(|_| LeaseStatus::default()),
            }
        };
        observed(span, self.task(status)).await
    }
}

#[async_trait]
impl BlobStore for PostgresStore {
    async fn put(&self, put: PutBlob) -> Result<()> {
        let (id, now) = (put.session, self.now());
        let span = info_span!("store.put_blob", store = "postgres", session = %id, bytes = put.blob.bytes, outcome = Empty);
        let work = async {
            let chunks = put.into_chunks(BLOB_MAX_BYTES)?;
            let store = &self.for_blobs(id).await?;
            let (info, site) = (chunks.blob(), store.site.clone());
            let begin = async move {
                run!(site, Mode::Shared, "put a blob", db => put::begin(db, id, info, now).await)
            };
            let blob = self.task(begin).await?;
            let mut putting = Putting { store, blob: Some(blob) };
            store.store_chunks(chunks, blob).await?;
            let site = store.site.clone();
            let publish = async move {
                run!(site, Mode::Shared, "put a blob", db => put::publish(db, id, info, blob).await)
            };
            self.task(publish).await?;
            putting.blob = None;
            // Those of a blob that had the name. The blob itself is stored; a later put deletes what is left.
            let site = store.site.clone();
            if let Err(error) = self.task(async move { delete_removed(&site).await }).await {
                tracing::debug!(%error, "what a blob replaced stays behind");
            }
            Ok(())
        };
        observed(span, work).await
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        let (id, name) = (read.session, read.name);
        let span = info_span!("store.read_blob", store = "postgres", session = %id, outcome = Empty);
        let work = async {
            let site = self.site.clone();
            let find = async move {
                run!(site, Mode::Read, "look for a blob", db => chunks::find(db, id, name).await)
            };
            let found = self.task(find).await?.ok_or_else(|| read.not_found())?;
            let store = self.clone();
            Ok(BlobContent::from_chunks(&read, found.info, move |index| {
                let store = store.clone();
                async move {
                    let site = store.site.clone();
                    let chunk = async move {
                        run!(site, Mode::Read, "read a blob", db => chunks::chunk(db, id, found, index).await)
                    };
                    store.task(chunk).await
                }
            }))
        };
        observed(span, work).await
    }

    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        let span =
            info_span!("store.list_blobs", store = "postgres", session = %query.session, outcome = Empty);
        let site = self.site.clone();
        let list = async move { run!(site, Mode::Read, "list blobs", db => chunks::list(db, &query).await) };
        observed(span, self.task(list)).await
    }

    async fn sweep(&self, sweep: SweepBlobs) -> Result<SweptBlobs> {
        let span = info_span!("store.sweep_blobs", store = "postgres", session = Empty, outcome = Empty);
        if let Some(id) = sweep.session {
            span.record("session", tracing::field::display(id));
        }
        let (site, now) = (self.site.clone(), self.now());
        let work = async move {
            if sweep.dry_run {
                return run!(site, Mode::Snapshot, "count blobs that no event names", db => removal::sweep(db, sweep, now).await);
            }
            if let Some(id) = sweep.session {
                // Rebuilds a damaged record, and fails if the log does not end where it did.
                commit::current(&site, id).await?;
            }
            let swept = run!(site, Mode::Shared, "sweep blobs", db => removal::sweep(db, sweep, now).await)?;
            delete_removed(&site).await.map_err(|error| error.with_outcome(WriteOutcome::Unknown))?;
            Ok(swept)
        };
        observed(span, self.task(work)).await
    }
}

#[async_trait]
impl Maintenance for PostgresStore {
    /// Checks the tenant's rows: that none is missing which others need, and that those which repeat parts of a record say the
    /// same. Reads no event and no chunk. PostgreSQL's own `pg_amcheck` checks the files of the server.
    async fn check(&self) -> Result<Vec<Damaged>> {
        let span = info_span!("store.check", store = "postgres", outcome = Empty);
        let site = self.site.clone();
        let check = async move {
            run!(@ site.attempts(Mode::Snapshot, "check the tables").long(), db => check::tenant(db).await)
        };
        let (found, place) = (observed(span, self.task(check)).await?, self.shared.config.place());
        Ok(found.into_iter().map(|what| Damaged::new(place.clone(), what)).collect())
    }

    async fn rebuild(&self) -> Result<Rebuilt> {
        let span = info_span!("store.rebuild", store = "postgres", outcome = Empty);
        let (site, shared) = (self.site.clone(), self.shared.clone());
        let rebuild = async move {
            shared.known.remove_tenant(&site.scope.tenant);
            rebuild::all(&site).await
        };
        observed(span, self.task(rebuild)).await
    }

    async fn delete_damaged(
        &self,
        id: SessionId,
        at: Timestamp,
        reason: Reason,
    ) -> Result<Arc<SessionRecord>> {
        let span = info_span!("store.delete_damaged", store = "postgres", session = %id, outcome = Empty);
        let (site, shared, key) = (self.site.clone(), self.shared.clone(), self.key(id));
        let delete = async move {
            shared.known.remove(&key);
            let attempts = site.attempts(Mode::Alone, "delete a damaged session").long();
            run!(@ attempts, db => rebuild::delete_damaged(db, id, (at, reason)).await)
        };
        observed(span, self.task(delete)).await
    }
}

/// Rebuilds a record that is damaged or missing.
async fn mended(site: &Site, id: SessionId) -> Result<Arc<SessionRecord>> {
    let found = rebuild::mend(site, id).await?.ok_or_else(|| no_session(id))?;
    Ok(found.session)
}

/// Rebuilds the missing rows of sessions, which no list would show without them, and reports those for which that fails.
async fn find_rows(site: &Site) -> Result<Vec<Damaged>> {
    let lost = run!(site, Mode::Read, "look for missing rows", db => check::without_row(db).await)?;
    let mut damaged = Vec::new();
    for id in lost {
        match rebuild::mend(site, id).await {
            Ok(_) => {}
            Err(error) if *error.kind() == ErrorKind::Corrupt => {
                let workspace =
                    run!(site, Mode::Read, "read an event", db => check::workspace(db, id).await)?;
                damaged.push(Damaged::of(format!("session {id}"), &error).with_workspace(workspace));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(damaged)
}

/// Returns a page of sessions. Rows that are damaged are rebuilt, and the page is read again.
async fn list(site: &Site, query: &SessionQuery) -> Result<Page<SessionSummary>> {
    // Only once for all pages.
    let is_first = query.with_total && query.cursor.is_none();
    let mut damaged = if is_first { find_rows(site).await? } else { Vec::new() };
    let mode = if query.with_total { Mode::Snapshot } else { Mode::Read };
    for n in 1.. {
        let listed = run!(site, mode, "list sessions", db => pages::sessions(db, query).await)?;
        let (mut page, mut is_mended) = (listed.page, false);
        let before = damaged.len();
        for id in listed.broken {
            match mended_row(site, id).await {
                Ok(()) => is_mended = true,
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    damaged.push(Damaged::of(format!("session {id}"), &error));
                }
                Err(error) => return Err(error),
            }
        }
        if !is_mended || n >= MENDED {
            page.damaged.extend(damaged);
            return Ok(page);
        }
        damaged.truncate(before);
    }
    Ok(Page::default())
}

/// Writes a session's row again, whose summary is damaged.
async fn mended_row(site: &Site, id: SessionId) -> Result<()> {
    let site = site.whole();
    run!(@ site.attempts(Mode::Alone, "rebuild a session").long(), db => rebuild::again(db, id).await)
}

/// Deletes removed blobs, a few in each transaction.
async fn delete_removed(site: &Site) -> Result<()> {
    while run!(site, Mode::Shared, "delete blobs", db => removal::delete(db).await)? {}
    Ok(())
}

/// Removes the events of a session that a purge has taken out of sight, some in each transaction.
async fn remove_events(site: &Site, id: SessionId) -> Result<Purged> {
    let mut count = 0;
    loop {
        let attempts = site.attempts(Mode::Shared, "remove events").long();
        let removed = run!(@ attempts, db => purge::remove(db, id).await)?;
        if removed == 0 {
            return Ok(Purged::new(count));
        }
        count += removed;
    }
}

impl PostgresStore {
    async fn head(&self, id: SessionId) -> Result<Seq> {
        let site = self.site.clone();
        let head = async move {
            match run!(site, Mode::Read, "read a session", db => read::head(db, id).await)? {
                Some(head) => Ok(head),
                None => Ok(mended(&site, id).await?.head),
            }
        };
        self.task(head).await
    }

    /// Returns the store through which a session's blobs are put: that of the whole tenant for a session that does not exist
    /// yet. Rebuilds a damaged record.
    async fn for_blobs(&self, id: SessionId) -> Result<Self> {
        let (site, whole) = (self.site.clone(), self.site.whole());
        let find = async move {
            if commit::current(&site, id).await?.is_some() || site.scope.owner.is_none() {
                return Ok(site);
            }
            match commit::current(&whole, id).await? {
                // It may have been created since.
                Some(found) if found.session.owner != site.scope.owner => Err(no_session(id)),
                Some(_) => Ok(site),
                None => Ok(whole),
            }
        };
        Ok(Self { site: self.task(find).await?, shared: self.shared.clone() })
    }

    /// Stores the chunks of a blob, the next one once the last one is stored.
    async fn store_chunks(&self, mut chunks: BlobChunks, blob: i64) -> Result<()> {
        let (info, mut index) = (chunks.blob(), 0);
        while let Some(bytes) = chunks.next().await? {
            let (site, now, place) = (self.site.clone(), self.now(), (index, info.checksum(index, &bytes)));
            let chunk = async move {
                run!(site, Mode::Write, "store a part of a blob", db => put::chunk(db, blob, place, &bytes, now).await)
            };
            self.task(chunk).await?;
            index += 1;
        }
        Ok(())
    }
}

/// Blob that is being put. If the put fails, or its caller is dropped, what is stored of it is deleted.
struct Putting<'a> {
    store: &'a PostgresStore,
    blob: Option<i64>,
}

impl Drop for Putting<'_> {
    fn drop(&mut self) {
        let Some(blob) = self.blob.take() else { return };
        let Ok(operating) = self.store.shared.open.begin() else { return };
        let site = self.store.site.clone();
        self.store.shared.runtime.spawn(async move {
            let discarded = async {
                run!(site, Mode::Shared, "give up a blob", db => put::discard(db, blob).await)?;
                delete_removed(&site).await
            };
            if let Err(error) = discarded.await {
                tracing::debug!(%error, "a part of a blob stays behind until a later sweep");
            }
            drop(operating);
        });
    }
}
