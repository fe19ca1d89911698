//! The store: the three traits, each method thin over a read on one of the threads that read, or a request to the writer.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_core::commit::{Commit, Committed, Expect};
use agent_core::event::Event;
use agent_core::model::Workspace;
use agent_core::session::{Session, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::{
    Binding, BindingQuery, Capabilities, ContentHash, Damaged, Durability, EventPage, Page, Pulse, Purge,
    Purged, ReadEvents, Rebuilt, Scope, SessionQuery, StoreAddress, WorkspaceQuery,
};
use agent_core::{
    BindingStore, DeviceId, Epoch, ErrorKind, OpenState, Result, Revision, Seq, SessionId, SessionStore,
    Storage, TenantId, Tenants, Timestamp, WorkspaceId, WorkspaceStore, async_trait,
};
use rusqlite::Connection;
use tokio::sync::oneshot;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use crate::config::{SqliteConfig, Sync};
use crate::error::{Step, gone, is_refused_statement};
use crate::files::Files;
use crate::heads::Heads;
use crate::listing::Listed;
use crate::readers::{Readers, Warm};
use crate::reading::Found;
use crate::request::{Answer, Request};
use crate::threads::Threads;
use crate::writer::Sender;
use crate::{backup, bindings, check, listing, place, reading, workspaces};

/// How often a session is looked at by those who wait for a change that another process makes.
const LOOK: Duration = Duration::from_millis(25);
const LOOK_MAX: Duration = Duration::from_millis(250);

/// The most rows, and about the most bytes, that are read on the caller's thread: what takes a tenth of a millisecond.
const AT_ONCE: usize = 64;
const AT_ONCE_BYTES: usize = 256 << 10;

/// Keeps workspaces, sessions and bindings in one SQLite file, for one tenant. Clones share their connections; other
/// handles on the same file, in this process or another, behave like this one.
///
/// Writes go through one thread, which finishes what it was given also where the caller is dropped. [`close`](Self::close)
/// ends it; a lease that it took counts then as that of a dead holder. If it was not called, dropping the last clone does
/// the same, and blocks the thread that drops for as long as that takes. Needs no particular runtime, but for [`changed`](SessionStore::changed), which needs tokio's time.
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
    open: OpenState,
    backups: Threads,
    /// Locked while the threads are waited for.
    ending: Mutex<()>,
}

impl Shared {
    /// Ends all threads, the one that writes last, so that the last connection that closes is one that can end the log.
    /// May block for as long as what was begun takes.
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
    /// Opens the store in the file `path`, for the tenant `default`, making the file where there is none.
    ///
    /// # Errors
    ///
    /// As for [`SqliteConfig::open`].
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::with_config(SqliteConfig::new(path)).await
    }

    pub(crate) async fn with_config(mut config: SqliteConfig) -> Result<Self> {
        // A process may change its directory later; and SQLite takes a name that starts with `file:` for an address.
        config.path = std::path::absolute(&config.path)
            .map_err(|error| place::failed("use the path", &config.path, error))?;
        let heads = Arc::new(Heads::default());
        let open = OpenState::new(format!("the store {}", config.path.display()));
        let (writer, files, access) = Sender::start(config.clone(), heads.clone(), open.clone()).await?;
        config.access = access;
        let readers = Readers::new(&config, files.clone(), open.clone());
        let (backups, ending) = (Threads::default(), Mutex::default());
        let shared = Arc::new(Shared { config, files, readers, writer, heads, open, backups, ending });
        Ok(Self { shared, tenant: TenantId::default().as_str().into() })
    }

    /// The same store for another tenant. No I/O: a tenant that was never written to is empty.
    #[must_use]
    pub fn tenant(&self, tenant: &TenantId) -> Self {
        Self { shared: self.shared.clone(), tenant: tenant.as_str().into() }
    }

    /// The file, with all tenants.
    pub fn path(&self) -> &Path {
        &self.shared.config.path
    }

    /// Copies the whole file, with all tenants, to the new file `to`: a snapshot of one moment, while writes go on. It
    /// is checked and on the disk before it gets its name; until then it is beside that, as `TO.<16 hexadecimal
    /// digits>.part`, which is all that is left if the process is killed. Of several copies to one name at once one is made.
    /// No file that is there is touched.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `to` exists; `Full`, `Denied`, `Corrupt`, `Unavailable`.
    pub async fn backup(&self, to: impl Into<PathBuf>) -> Result<()> {
        let span = info_span!("store.backup", store = "sqlite", outcome = Empty);
        let work = async {
            self.shared.open.check()?;
            let Shared { config, files, backups, .. } = &*self.shared;
            backup::back_up(config, files.clone(), backups, to.into()).await
        };
        observed(span, work).await
    }

    /// Makes all session records, lists and labels of all tenants anew from the logs, and returns of how many sessions. A
    /// record whose log is damaged is left as it is, and named. [`SessionStore::rebuild`] does it for one tenant.
    ///
    /// # Errors
    ///
    /// As for [`SessionStore`].
    pub async fn rebuild(&self) -> Result<Rebuilt> {
        self.rebuilt(true).await
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
    /// closes the file. On return this process holds neither the file nor a lock beside it, and `-wal` and `-shm` are gone
    /// unless somebody else has the file open: it can be copied as it is. Calls after it fail with `Unavailable`.
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
    /// Dropped before it returns, the store is closed all the same; call it again to wait for the end.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the system gives no thread to wait on.
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

    async fn ask(&self, request: Request) -> Result<Answer> {
        self.shared.writer.ask(self.tenant.clone(), request).await
    }

    /// Has a thread read. If SQLite refuses the statement, the writer looks whether another program has dropped an index,
    /// and it is read once more.
    async fn read_rows<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl Fn(&Connection) -> Step<T> + Send + std::marker::Sync + 'static,
    ) -> Result<T> {
        let work = Arc::new(work);
        let again = work.clone();
        match self.shared.readers.read(doing, move |conn| work(conn)).await {
            Err(error) if is_refused_statement(&error) => {
                self.ask(Request::Look).await?;
                self.shared.readers.read(doing, move |conn| again(conn)).await
            }
            done => done,
        }
    }

    /// Has a thread read, and notes that what it read is in memory now.
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
        work: impl FnOnce(&Connection) -> Step<Option<T>>,
    ) -> Option<Result<T>> {
        self.shared.readers.read_at_once(what, work)
    }

    fn session(&self, id: SessionId) -> Warm {
        Warm::Session((self.tenant.clone(), id))
    }

    /// A page of a session's events, as it is found.
    async fn page(&self, id: SessionId, read: &ReadEvents) -> Result<Found<EventPage>> {
        let what = self.session(id);
        // With types to look for, there may be much to read between two of them.
        if read.limit <= AT_ONCE
            && read.kinds.is_empty()
            && let Some(page) =
                self.read_at_once(&what, |conn| reading::read(conn, &self.tenant, id, read, AT_ONCE_BYTES))
        {
            return page;
        }
        let (tenant, wanted) = (self.tenant.clone(), read.clone());
        let page =
            self.read("read events", what, move |conn| reading::read(conn, &tenant, id, &wanted, usize::MAX));
        page.await?.ok_or_else(gone)
    }

    /// A page of a list, as it is found.
    async fn listed(&self, query: &SessionQuery) -> Result<Listed> {
        let what = Warm::Lists(self.tenant.clone());
        if query.limit <= AT_ONCE
            && listing::is_one_walk(query)
            && let Some(listed) =
                self.read_at_once(&what, |conn| listing::sessions(conn, &self.tenant, query, AT_ONCE_BYTES))
        {
            return listed;
        }
        let (tenant, wanted) = (self.tenant.clone(), query.clone());
        let listed = self
            .read("list sessions", what, move |conn| listing::sessions(conn, &tenant, &wanted, usize::MAX));
        listed.await?.ok_or_else(gone)
    }

    /// Has the writer make a session's record anew.
    async fn mend(&self, id: SessionId) -> Result<Session> {
        match self.ask(Request::Mend(id)).await? {
            Answer::Session(session) => Ok(*session),
            _ => Err(gone()),
        }
    }

    /// Makes the rows of sessions anew that no list would show, and names those of which that fails. Looks at every session of
    /// the tenant.
    async fn find_rows(&self) -> Result<Vec<Damaged>> {
        let tenant = self.tenant.clone();
        let mut damaged = Vec::new();
        let lost = self.read_rows("look for missing rows", move |conn| check::without_row(conn, &tenant));
        for (id, workspace) in lost.await? {
            match self.mend(id).await {
                Ok(_) => {}
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    let damage = Damaged::new(format!("session {id}"), error.to_string());
                    damaged.push(damage.in_workspace(workspace.unwrap_or(WorkspaceId::DEFAULT)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(damaged)
    }

    async fn head(&self, id: SessionId) -> Result<Seq> {
        let what = self.session(id);
        let found = match self.read_at_once(&what, |conn| reading::head(conn, &self.tenant, id).map(Some)) {
            Some(found) => found?,
            None => {
                let tenant = self.tenant.clone();
                self.read("read a session", what, move |conn| reading::head(conn, &tenant, id)).await?
            }
        };
        match found {
            Found::Whole(head) => Ok(head),
            Found::Broken => Ok(self.mend(id).await?.head),
        }
    }
}

/// Runs an operation in its span, and notes there how it ended.
async fn observed<T>(span: Span, work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = work.instrument(span.clone()).await;
    span.record("outcome", done.as_ref().map_or_else(|error| error.kind().name(), |_| "ok"));
    done
}

fn count(answer: &Answer) -> Result<u64> {
    match answer {
        Answer::Count(count) => Ok(*count),
        _ => Err(gone()),
    }
}

impl SqliteConfig {
    /// Opens the store, making the file and its tables where there are none.
    ///
    /// A file that may not be written to, since it, its folder or its file system is read-only, is opened to be read: each
    /// write fails with `Denied`. If it changes meanwhile and has no log beside it, reads fail with `Unavailable` until it is
    /// opened again.
    ///
    /// # Errors
    ///
    /// `Corrupt` where the file is no database or damaged; `InvalidInput` where it belongs to another application;
    /// `Unsupported` where it is of a newer version of this library, or on a network file system; `Denied`, `Full`,
    /// `Unavailable`; `NotFound` if there is no store and [none is to be made](Self::with_create).
    pub async fn open(self) -> Result<SqliteStore> {
        SqliteStore::with_config(self).await
    }
}

#[async_trait]
impl StoreAddress for SqliteConfig {
    async fn open(&self) -> Result<Arc<dyn Tenants>> {
        Ok(Arc::new(self.clone().open().await?))
    }
}

#[async_trait]
impl SessionStore for SqliteStore {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let id = commit.session;
        let span = info_span!("store.commit", store = "sqlite", session = %id, events = Empty, bytes = Empty, outcome = Empty);
        let noted = span.clone();
        let work = async {
            let request = Request::Commit(Box::new(commit));
            noted.record("bytes", request.size_bytes());
            let Answer::Committed(done) = self.ask(request).await? else { return Err(gone()) };
            self.shared.readers.warm(self.session(id));
            noted.record("events", (done.last.get() + 1).saturating_sub(done.first.get()));
            Ok(*done)
        };
        observed(span, work).await
    }

    async fn load(&self, id: SessionId) -> Result<Session> {
        let span = info_span!("store.load", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            let what = self.session(id);
            let found = match self.read_at_once(&what, |conn| reading::load(conn, &self.tenant, id).map(Some))
            {
                Some(found) => found?,
                None => {
                    let tenant = self.tenant.clone();
                    self.read("read a session", what, move |conn| reading::load(conn, &tenant, id)).await?
                }
            };
            match found {
                Found::Whole(session) => Ok(session),
                Found::Broken => self.mend(id).await,
            }
        };
        observed(span, work).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let span = info_span!("store.read", store = "sqlite", session = %id, events = Empty, bytes = Empty, outcome = Empty);
        let noted = span.clone();
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
            noted.record("events", page.events.len());
            noted.record("bytes", page.events.iter().map(Event::size_bytes).sum::<usize>());
            Ok(page)
        };
        observed(span, work).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        let span = info_span!("store.list_sessions", store = "sqlite", outcome = Empty);
        let work = async {
            // Once for all pages.
            let is_first = query.with_total && query.cursor.is_none();
            let lost = if is_first { self.find_rows().await? } else { Vec::new() };
            let mut listed = self.listed(&query).await?;
            listed.page.damaged.extend(lost);
            for id in std::mem::take(&mut listed.broken) {
                match self.mend(id).await {
                    Ok(session) => {
                        let summary = SessionSummary::from(&session);
                        listed.page.items.extend(query.wants(&summary).then_some(summary));
                    }
                    Err(error) if *error.kind() == ErrorKind::Corrupt => {
                        listed.page.damaged.push(Damaged::new(format!("session {id}"), error.to_string()));
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
            // A fork without its row would not be found, and lose what it reads.
            self.read_rows("look for missing rows", check::rows_are_whole).await?;
            let purge = purge.sparing_forks(self).await?;
            match self.ask(Request::Purge(purge)).await? {
                Answer::Purged(purged) => Ok(purged),
                _ => Err(gone()),
            }
        };
        observed(span, work).await
    }

    async fn beat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        let span = info_span!("store.beat", store = "sqlite", session = %id, outcome = Empty);
        observed(span, async { self.ask(Request::Beat(id, epoch)).await.map(drop) }).await
    }

    async fn pulse(&self, id: SessionId, epoch: Epoch) -> Result<Pulse> {
        let span = info_span!("store.pulse", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            let (tenant, path) = (self.tenant.clone(), self.path().to_owned());
            let found = self.read_rows("look for signs of life", move |conn| {
                reading::pulse(conn, &path, &tenant, id, epoch)
            });
            match found.await? {
                Found::Whole(pulse) => Ok(pulse),
                Found::Broken => self.mend(id).await.map(|_| Pulse::default()),
            }
        };
        observed(span, work).await
    }

    /// SQLite's own check of the whole file, with all tenants: its structure, and that indexes fit their tables. Also that the
    /// schema is this library's, and that no row is gone which other rows name.
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

    async fn rebuild(&self) -> Result<Rebuilt> {
        self.rebuilt(false).await
    }

    async fn delete_damaged(&self, id: SessionId, at: Timestamp, reason: Reason) -> Result<Session> {
        let span = info_span!("store.delete_damaged", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            match self.ask(Request::DeleteDamaged(id, at, reason)).await? {
                Answer::Session(session) => Ok(*session),
                _ => Err(gone()),
            }
        };
        observed(span, work).await
    }

    fn capabilities(&self) -> Capabilities {
        let durability = match self.shared.config.sync {
            Sync::Full => Durability::PowerLoss,
            Sync::Normal | Sync::Off => Durability::ProcessCrash,
        };
        Capabilities::new(Scope::Host, durability)
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        let span = info_span!("store.changed", store = "sqlite", session = %id, outcome = Empty);
        let work = async {
            // What this store writes is told at once; what others write is looked for.
            let mut told = self.shared.heads.watch(&self.tenant, id);
            let mut pause = LOOK;
            loop {
                let head = self.head(id).await?;
                if head > seen {
                    return Ok(head);
                }
                let _ = tokio::time::timeout(pause, told.wait_for(|head| *head > seen)).await;
                pause = (pause * 3 / 2).min(LOOK_MAX);
            }
        };
        observed(span, work).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl WorkspaceStore for SqliteStore {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        let span = info_span!("store.load_workspace", store = "sqlite", workspace = %id, outcome = Empty);
        let work = async {
            let tenant = self.tenant.clone();
            self.read_rows("read a workspace", move |conn| workspaces::load(conn, &tenant, id)).await
        };
        observed(span, work).await
    }

    async fn put(&self, workspace: Workspace, expect: Expect<Revision>) -> Result<Workspace> {
        let span =
            info_span!("store.put_workspace", store = "sqlite", workspace = %workspace.id, outcome = Empty);
        let work = async {
            match self.ask(Request::Put(Box::new(workspace), expect)).await? {
                Answer::Workspace(workspace) => Ok(*workspace),
                _ => Err(gone()),
            }
        };
        observed(span, work).await
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        let span = info_span!("store.touch", store = "sqlite", workspace = %id, outcome = Empty);
        observed(span, async { self.ask(Request::Touch(id, at)).await.map(drop) }).await
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        let span = info_span!("store.list_workspaces", store = "sqlite", outcome = Empty);
        let work = async {
            let tenant = self.tenant.clone();
            self.read_rows("list workspaces", move |conn| workspaces::list(conn, &tenant, &query)).await
        };
        observed(span, work).await
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        let span = info_span!("store.delete_workspace", store = "sqlite", workspace = %id, outcome = Empty);
        observed(span, async { self.ask(Request::Delete(id)).await.map(drop) }).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        let span = info_span!("store.load_config", store = "sqlite", workspace = %id, outcome = Empty);
        let work = async {
            let tenant = self.tenant.clone();
            self.read_rows("read a configuration", move |conn| workspaces::load_config(conn, &tenant, id))
                .await
        };
        observed(span, work).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Expect<ContentHash>,
    ) -> Result<()> {
        let span = info_span!("store.save_config", store = "sqlite", workspace = %id, outcome = Empty);
        observed(span, async { self.ask(Request::SaveConfig(id, text, expect)).await.map(drop) }).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl BindingStore for SqliteStore {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let span = info_span!("store.resolve", store = "sqlite", outcome = Empty);
        let work = async {
            let (tenant, device) = (self.tenant.clone(), device.clone());
            self.read_rows("read a binding", move |conn| bindings::resolve(conn, &tenant, &device)).await
        };
        observed(span, work).await
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Expect<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        let span = info_span!("store.bind", store = "sqlite", workspace = %to, outcome = Empty);
        let work = async {
            match self.ask(Request::Bind(device.clone(), to, expect)).await? {
                Answer::Bound(workspace) => Ok(workspace),
                _ => Err(gone()),
            }
        };
        observed(span, work).await
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        let span = info_span!("store.unbind", store = "sqlite", outcome = Empty);
        let work = async {
            match self.ask(Request::Unbind(device.clone())).await? {
                Answer::Was(bound) => Ok(bound),
                _ => Err(gone()),
            }
        };
        observed(span, work).await
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let span = info_span!("store.unbind_workspace", store = "sqlite", workspace = %id, outcome = Empty);
        observed(span, async { count(&self.ask(Request::UnbindWorkspace(id)).await?) }).await
    }

    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        let span = info_span!("store.list_bindings", store = "sqlite", outcome = Empty);
        let work = async {
            let tenant = self.tenant.clone();
            self.read_rows("list bindings", move |conn| bindings::list(conn, &tenant, &query)).await
        };
        observed(span, work).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}

#[async_trait]
impl Tenants for SqliteStore {
    fn storage(&self, tenant: &TenantId) -> Storage {
        self.tenant(tenant).into()
    }

    async fn list(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let span = info_span!("store.list_tenants", store = "sqlite", outcome = Empty);
        let work = async {
            let after = after.map_or_else(String::new, |after| after.as_str().to_owned());
            self.read_rows("list tenants", move |conn| listing::tenants(conn, &after)).await.map(Page::new)
        };
        observed(span, work).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}
