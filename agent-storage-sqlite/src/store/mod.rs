//! Store: implements the three traits. Each method is a thin layer over a read on a reader thread, or a request to the
//! writer.

mod places;
mod sessions;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_core::session::SessionRecord;
use agent_core::store::{
    BackendConfig, Damaged, DeletedTenant, EventPage, Heads, Maintenance, Page, Pending, ReadEvents, Rebuilt,
    SessionQuery, check_no_live_run, observed,
};
use agent_core::{
    Backend, ErrorKind, OpenState, Result, Seq, SessionId, Storage, TenantId, Timestamp, WorkspaceId,
    async_trait,
};
use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::info_span;

use crate::care::{backup, check};
use crate::config::SqliteConfig;
use crate::connections::readers::{Readers, Warm};
use crate::connections::request::{Answer, Change, Request};
use crate::connections::writer::Sender;
use crate::error::{Step, gone, is_refused_statement, log_is_used};
use crate::lists::pages::{self, Listed};
use crate::log::read::{self, Found};
use crate::medium::files::Files;
use crate::medium::known::Known;
use crate::medium::rows::in_snapshot;
use crate::medium::threads::Threads;
use crate::medium::{path, rewrites};
use crate::places::tenants;

/// Most rows that are read on the caller's thread, which takes about a tenth of a millisecond. `AT_ONCE_BYTES` limits
/// the bytes, approximately.
const AT_ONCE: usize = 64;
const AT_ONCE_BYTES: usize = 256 << 10;

/// Pause between attempts to empty the write-ahead log.
const LOG_PAUSE: Duration = Duration::from_millis(10);

/// Store of workspaces, sessions and bindings in one SQLite file, for one tenant. Clones share their connections.
/// Other handles on the same file, in this process or another, work on the same data.
///
/// Writes run on one thread, which completes the requests that it was given even if the caller is dropped.
/// [`close`](Self::close) ends it; a lease that it took then counts as held by a dead holder. If `close` was not
/// called, dropping the last clone does the same, and blocks the dropping thread until it is done. Needs no particular
/// runtime, except for [`changed`](agent_core::SessionStore::changed), which needs tokio with time enabled.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("agent.db");
/// use agent_core::clock::Effects;
/// use agent_core::session::NewSession;
/// use agent_core::{SessionStore, SessionStoreExt, WorkspaceId};
/// use agent_storage_sqlite::SqliteStore;
///
/// let (store, effects) = (SqliteStore::open(&path).await?, Effects::default());
/// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
/// let session = store.sessions(&effects).create(new).await?;
///
/// // Another handle on the same file.
/// let other = SqliteStore::open(&path).await?;
/// assert_eq!(other.load(session.id).await?, session);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteStore {
    shared: Arc<Shared>,
    tenant: Arc<str>,
}

#[derive(Debug)]
struct Shared {
    config: SqliteConfig,
    files: Arc<Files>,
    readers: Readers,
    writer: Sender,
    heads: Arc<Heads>,
    known: Known,
    open: OpenState,
    backups: Threads,
    /// Lock that is held while `end` waits for the threads.
    ending: Mutex<()>,
}

impl Shared {
    /// Ends all threads, the writer last, so that the last connection that closes is one that can move the log into
    /// the database. May block for as long as the operations that have begun take.
    fn end(&self) {
        let _ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        self.backups.join();
        self.readers.end();
        self.writer.end();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end();
    }
}

impl SqliteStore {
    /// Opens the store in the file `path`, for the tenant `default`. Creates the file if it does not exist.
    ///
    /// # Errors
    ///
    /// The errors of [`SqliteConfig::open`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("agent.db");
    /// use agent_storage_sqlite::SqliteStore;
    ///
    /// let store = SqliteStore::open(&path).await?;
    /// assert!(path.exists());
    /// # store.close().await?;
    /// # Ok(()) }
    /// ```
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::with_config(SqliteConfig::new(path)).await
    }

    pub(crate) async fn with_config(mut config: SqliteConfig) -> Result<Self> {
        // A process may change its directory later; and SQLite takes a name that starts with `file:` for an address.
        config.path = std::path::absolute(&config.path)
            .map_err(|error| path::failed("use the path", &config.path, error))?;
        let heads = Arc::new(Heads::default());
        let open = OpenState::new(format!("the store {}", config.path.display()));
        let known = Known::default();
        let started = Sender::start(config.clone(), heads.clone(), known.clone(), open.clone());
        let (writer, files, access) = started.await?;
        config.access = access;
        let readers = Readers::new(&config, files.clone(), open.clone());
        let (backups, ending) = (Threads::default(), Mutex::default());
        let shared = Arc::new(Shared { config, files, readers, writer, heads, known, open, backups, ending });
        Ok(Self { shared, tenant: TenantId::default().as_str().into() })
    }

    /// Returns the same store for another tenant. Does no I/O: a tenant that was never written to is empty.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("agent.db");
    /// use agent_core::commit::Precondition;
    /// use agent_core::{BindingStore, WorkspaceId};
    /// use agent_storage_sqlite::SqliteStore;
    ///
    /// let store = SqliteStore::open(&path).await?;
    /// let acme = store.for_tenant(&"acme".parse()?);
    /// acme.bind(&"laptop".parse()?, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    /// assert_eq!(store.resolve(&"laptop".parse()?).await?, None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn for_tenant(&self, tenant: &TenantId) -> Self {
        Self { shared: self.shared.clone(), tenant: tenant.as_str().into() }
    }

    /// Returns the path of the file, which holds all tenants.
    pub fn path(&self) -> &Path {
        &self.shared.config.path
    }

    /// Copies the whole file, with all tenants, to the new file `to`: a snapshot of one moment, while writes continue.
    /// The copy is verified and synced before it gets its name. Until then it is in the same folder, as `TO.<16
    /// hexadecimal digits>.part`, which is all that is left if the process is killed. Of several concurrent copies to
    /// one name, one succeeds. Existing files are never touched.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, the copy continues on its thread.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `to` exists; `Full`, `Denied`, `Corrupt`, `Unavailable`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("agent.db");
    /// use agent_storage_sqlite::SqliteStore;
    ///
    /// let store = SqliteStore::open(&path).await?;
    /// let copy = folder.path().join("agent-2026-02-15.db");
    /// store.backup(&copy).await?;
    /// assert!(store.backup(&copy).await.is_err(), "existing files are never touched");
    /// SqliteStore::open(&copy).await?;
    /// # Ok(()) }
    /// ```
    pub async fn backup(&self, to: impl Into<PathBuf>) -> Result<()> {
        let span = info_span!("store.backup", store = "sqlite", outcome = Empty);
        let work = async {
            self.shared.open.check()?;
            let Shared { config, files, backups, .. } = &*self.shared;
            backup::back_up(config, files.clone(), backups, to.into()).await
        };
        observed(span, work).await
    }

    /// Rebuilds all session records, lists and labels of all tenants from the logs. Returns the number of rebuilt
    /// sessions, and the damaged ones. A record whose log is damaged is left unchanged, and reported.
    /// [`Maintenance::rebuild`](agent_core::store::Maintenance::rebuild) does the same for one tenant.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, the rebuild may still be carried out.
    ///
    /// # Errors
    ///
    /// The errors of [`SessionStore`](agent_core::SessionStore).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("agent.db");
    /// use agent_core::clock::Effects;
    /// use agent_core::session::NewSession;
    /// use agent_core::{SessionStoreExt, WorkspaceId};
    /// use agent_storage_sqlite::SqliteStore;
    ///
    /// let (store, effects) = (SqliteStore::open(&path).await?, Effects::default());
    /// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// store.sessions(&effects).create(new).await?;
    /// let rebuilt = store.rebuild_all().await?;
    /// assert_eq!((rebuilt.sessions, rebuilt.damaged.len()), (1, 0));
    /// # Ok(()) }
    /// ```
    pub async fn rebuild_all(&self) -> Result<Rebuilt> {
        self.rebuilt(true).await
    }

    /// Rewrites the file if [a rewrite is pending](agent_core::store::Maintenance::pending), so that no copy of an erased row is
    /// left in an unused part of it. Returns what was pending; nothing if the file is as it should be.
    ///
    /// A rewrite takes several seconds for each gigabyte of the file. Other writers wait meanwhile, those of other
    /// processes up to their [busy timeout](SqliteConfig::with_busy_timeout). It needs free space of up to twice the file's
    /// size, and the file becomes smaller. The write-ahead log is emptied.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, the rewrite may still be carried out. A rewrite that was cut off at any
    /// step is pending as before.
    ///
    /// # Errors
    ///
    /// `Unavailable` if others read or write for longer than the busy timeout; `Full`, `Denied`, `Corrupt`. The rewrite is
    /// still pending.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("agent.db");
    /// use agent_core::commit::Precondition;
    /// use agent_core::{Backend, BindingStore, TenantId, WorkspaceId};
    /// use agent_storage_sqlite::SqliteStore;
    ///
    /// let (store, acme): (_, TenantId) = (SqliteStore::open(&path).await?, "acme".parse()?);
    /// let bindings = store.for_tenant(&acme);
    /// bindings.bind(&"laptop".parse()?, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    /// assert!(store.delete_tenant(&acme).await?.rewrite_pending);
    ///
    /// assert_eq!(store.maintain().await?.len(), 1);
    /// assert!(store.maintain().await?.is_empty(), "nothing is pending");
    /// # Ok(()) }
    /// ```
    pub async fn maintain(&self) -> Result<Vec<Pending>> {
        let span = info_span!("store.maintain", store = "sqlite", outcome = Empty);
        let work = async {
            match self.ask(Request::Rewrite).await? {
                Answer::Was(true) => Ok(vec![self.rewrite()]),
                Answer::Was(false) => Ok(Vec::new()),
                _ => Err(gone()),
            }
        };
        observed(span, work).await
    }

    /// Empties the write-ahead log. While others use what it holds, tries again between the requests of others.
    async fn empty_log(&self) -> Result<()> {
        let until = Instant::now() + self.shared.config.busy_timeout;
        loop {
            match self.ask(Request::EmptyLog).await? {
                Answer::Was(true) => return Ok(()),
                Answer::Was(false) if Instant::now() < until => tokio::time::sleep(LOG_PAUSE).await,
                Answer::Was(false) => return Err(log_is_used(self.path())),
                _ => return Err(gone()),
            }
        }
    }

    /// Describes the rewrite of the file.
    fn rewrite(&self) -> Pending {
        let work = "rewrite the file: copies of erased data may be in unused parts of it";
        Pending::new(self.path().display().to_string(), work)
    }

    /// Describes the deletions of tenants that have begun and not ended.
    async fn unfinished_deletions(&self) -> Result<Vec<Pending>> {
        let begun = self.read_rows("look for deletions of tenants", tenants::begun).await?;
        let file = self.path().display();
        Ok(begun.iter().map(|tenant| Pending::of_deletion(file.to_string(), tenant)).collect())
    }

    async fn is_rewrite_pending(&self) -> Result<bool> {
        let pending = |conn: &Connection| Ok(rewrites::pending(conn)?.is_some());
        self.read_rows("look for a pending rewrite", pending).await
    }

    async fn rebuilt(&self, all: bool) -> Result<Rebuilt> {
        let span = info_span!("store.rebuild", store = "sqlite", outcome = Empty);
        let work = async {
            match self.ask(Request::Rebuild { all }).await? {
                Answer::Rebuilt(rebuilt) => Ok(rebuilt),
                _ => Err(gone()),
            }
        };
        observed(span, work).await
    }

    /// Closes the store for all of its tenants and clones: finishes the writes that have begun, ends the threads, and
    /// closes the file. On return this process holds neither the file nor a lock beside it. The `-wal` and `-shm`
    /// files have been removed, unless another process has the database open, so that the file can be copied as it is.
    /// Later calls fail with `Unavailable`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("agent.db");
    /// let store = agent_storage_sqlite::SqliteStore::open(&path).await?;
    /// store.close().await?;
    /// std::fs::copy(&path, folder.path().join("copy.db")).unwrap();
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, the store is still closed. Call `close` again to wait for the
    /// end.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the system cannot start a thread to wait on.
    pub async fn close(&self) -> Result<()> {
        let span = info_span!("store.close", store = "sqlite", outcome = Empty);
        let work = async {
            let (done, ended) = oneshot::channel();
            let shared = self.shared.clone();
            Threads::default().spawn("agent-sqlite-close", "close the store with", move || {
                shared.end();
                drop(shared);
                let _ = done.send(());
            })?;
            ended.await.map_err(|_| gone())
        };
        observed(span, self.shared.open.close(work)).await
    }

    /// Returns a read of the tenant's rows. It finds none once the tenant's deletion has begun.
    fn shown<T>(
        &self,
        work: impl Fn(&Connection, &str) -> Step<T> + Send + std::marker::Sync + 'static,
    ) -> impl Fn(&Connection) -> Step<T> + Send + std::marker::Sync + 'static {
        let tenant = self.tenant.clone();
        move |conn| in_snapshot(conn, || work(conn, tenants::shown(conn, &tenant)?))
    }

    async fn ask(&self, request: Request) -> Result<Answer> {
        self.shared.writer.ask(self.tenant.clone(), request).await
    }

    /// Has the writer make a change for the tenant.
    async fn change<T: Send + 'static>(
        &self,
        work: impl Fn(&Connection, &str) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        let change: Change = Box::new(move |conn, tenant| Ok(Box::new(work(conn, tenant)?)));
        match self.ask(Request::Change(change)).await? {
            Answer::Changed(done) => done.downcast().map(|done| *done).map_err(|_| gone()),
            _ => Err(gone()),
        }
    }

    /// Runs a read on a thread. If SQLite refuses the statement, the writer checks whether another program has dropped
    /// an index, and the read is tried once more.
    async fn read_rows<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl Fn(&Connection) -> Step<T> + Send + std::marker::Sync + 'static,
    ) -> Result<T> {
        let work = Arc::new(work);
        let again = work.clone();
        match self.shared.readers.read(doing, move |conn| work(conn)).await {
            Err(error) if is_refused_statement(&error) => {
                self.ask(Request::RebuildIndexes).await?;
                self.shared.readers.read(doing, move |conn| again(conn)).await
            }
            done => done,
        }
    }

    /// Runs a read on a thread, and records that the data it read is now in memory.
    async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        what: Warm,
        work: impl Fn(&Connection) -> Step<T> + Send + std::marker::Sync + 'static,
    ) -> Result<T> {
        let done = self.read_rows(doing, work).await?;
        self.shared.readers.warm(what);
        Ok(done)
    }

    fn read_at_once<T>(
        &self,
        what: &Warm,
        work: impl FnOnce(&Connection, &str) -> Step<Option<T>>,
    ) -> Option<Result<T>> {
        let shown = |conn: &_| in_snapshot(conn, || work(conn, tenants::shown(conn, &self.tenant)?));
        self.shared.readers.read_at_once(what, shown)
    }

    /// Reads a row or two, if possible on the caller's thread.
    async fn read_row<T: Send + 'static>(
        &self,
        doing: &'static str,
        what: Warm,
        work: impl Fn(&Connection, &str) -> Step<T> + Copy + Send + std::marker::Sync + 'static,
    ) -> Result<T> {
        match self.read_at_once(&what, |conn, tenant| work(conn, tenant).map(Some)) {
            Some(found) => found,
            None => self.read(doing, what, self.shown(work)).await,
        }
    }

    fn session(&self, id: SessionId) -> Warm {
        Warm::Session((self.tenant.clone(), id))
    }

    /// Reads a page of a session's events, without repairing anything.
    async fn page(&self, id: SessionId, read: &ReadEvents) -> Result<Found<EventPage>> {
        let what = self.session(id);
        // With selected types, there may be many rows to read between two matches.
        if read.limit <= AT_ONCE
            && read.kinds.is_empty()
            && let Some(page) =
                self.read_at_once(&what, |conn, tenant| read::read(conn, tenant, id, read, AT_ONCE_BYTES))
        {
            return page;
        }
        let wanted = read.clone();
        let page = self.shown(move |conn, tenant| read::read(conn, tenant, id, &wanted, usize::MAX));
        self.read("read events", what, page).await?.ok_or_else(gone)
    }

    /// Reads a page of a list, without repairing anything.
    async fn listed(&self, query: &SessionQuery) -> Result<Listed> {
        let what = Warm::Lists(self.tenant.clone());
        if query.limit <= AT_ONCE
            && pages::is_one_walk(query)
            && let Some(listed) =
                self.read_at_once(&what, |conn, tenant| pages::sessions(conn, tenant, query, AT_ONCE_BYTES))
        {
            return listed;
        }
        let wanted = query.clone();
        let listed = self.shown(move |conn, tenant| pages::sessions(conn, tenant, &wanted, usize::MAX));
        self.read("list sessions", what, listed).await?.ok_or_else(gone)
    }

    /// Asks the writer to rebuild a session's record.
    async fn mend(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        match self.ask(Request::Mend(id)).await? {
            Answer::Session(session) => Ok(session),
            _ => Err(gone()),
        }
    }

    /// Rebuilds the missing rows of sessions, which no list would show without them, and reports those for which that
    /// fails. Checks every session of the tenant.
    async fn find_rows(&self) -> Result<Vec<Damaged>> {
        let mut damaged = Vec::new();
        let lost = self.read_rows("look for missing rows", self.shown(check::without_row));
        for (id, workspace) in lost.await? {
            match self.mend(id).await {
                Ok(_) => {}
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    let damage = Damaged::of(format!("session {id}"), &error);
                    damaged.push(damage.with_workspace(workspace.unwrap_or(WorkspaceId::DEFAULT)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(damaged)
    }

    async fn head(&self, id: SessionId) -> Result<Seq> {
        let head = move |conn: &Connection, tenant: &str| read::head(conn, tenant, id);
        match self.read_row("read a session", self.session(id), head).await? {
            Found::Whole(head) => Ok(head),
            Found::Broken => Ok(self.mend(id).await?.head),
        }
    }
}

impl SqliteConfig {
    /// Opens the store, and creates the file and its tables if they do not exist.
    ///
    /// If the file, its folder or its file system is read-only, the file is opened for reading, and each write fails
    /// with `Denied`. If such a file changes meanwhile and has no log beside it, reads fail with `Unavailable` until
    /// it is opened again.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the file is not a database or is damaged; `InvalidInput` if it belongs to another application;
    /// `Unsupported` if a newer version of this library wrote it, or it is on a network file system; `Denied`, `Full`,
    /// `Unavailable`; `NotFound` if there is no store and [creation is disabled](Self::with_create).
    pub async fn open(self) -> Result<SqliteStore> {
        SqliteStore::with_config(self).await
    }
}

#[async_trait]
impl BackendConfig for SqliteConfig {
    async fn open(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(self.clone().open().await?))
    }
}

#[async_trait]
impl Backend for SqliteStore {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        self.for_tenant(tenant).into()
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let span = info_span!("store.list_tenants", store = "sqlite", outcome = Empty);
        let work = async {
            let after = after.map_or_else(String::new, |after| after.as_str().to_owned());
            self.read_rows("list tenants", move |conn| tenants::list(conn, &after)).await.map(Page::new)
        };
        observed(span, work).await
    }

    async fn busy_tenants(&self, until: Timestamp, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let span = info_span!("store.list_busy_tenants", store = "sqlite", outcome = Empty);
        let work = async {
            let after = after.map_or_else(String::new, |after| after.as_str().to_owned());
            let busy = self.read_rows("list busy tenants", move |conn| tenants::busy(conn, &after, until));
            busy.await.map(Page::new)
        };
        observed(span, work).await
    }

    /// Marks the tenant, then removes its rows a few thousand at a time. From the mark on, every process finds the
    /// tenant empty, and cannot write to it until the last row is removed. SQLite overwrites removed rows. Then the
    /// write-ahead log is emptied; if another process reads what it holds for longer than the
    /// [busy timeout](SqliteConfig::with_busy_timeout), the call fails with `Unavailable`, and the next one finishes it.
    ///
    /// The result says that a rewrite is pending: SQLite may have left copies of rows that it moved earlier in unused
    /// parts of the file.
    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        let span = info_span!("store.delete_tenant", store = "sqlite", outcome = Empty);
        let store = self.for_tenant(tenant);
        let work = async {
            check_no_live_run(&store).await?;
            let removed = async |request| match store.ask(request).await? {
                Answer::Removed(removed) => Ok(removed),
                _ => Err(gone()),
            };
            let mut sum = DeletedTenant::default();
            let mut is_left = removed(Request::BeginDeletion).await?.is_left;
            if !is_left {
                return Ok(sum.with_rewrite_pending(self.is_rewrite_pending().await?));
            }
            while is_left {
                let part = removed(Request::RemoveTenant).await?;
                sum.workspaces += part.count.workspaces;
                sum.sessions += part.count.sessions;
                sum.bindings += part.count.bindings;
                is_left = part.is_left;
            }
            // The mark goes last, so that another call finishes what is cut off before the log is emptied.
            self.empty_log().await?;
            store.ask(Request::EndDeletion).await?;
            Ok(sum.with_rewrite_pending(self.is_rewrite_pending().await?))
        };
        observed(span, work).await
    }

    async fn maintain(&self) -> Result<Vec<Pending>> {
        self.maintain().await
    }

    /// Checks the whole file, as [`Maintenance::check`](agent_core::store::Maintenance::check) does.
    async fn check_shared(&self) -> Result<Option<Vec<Damaged>>> {
        Maintenance::check(self).await.map(Some)
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}
