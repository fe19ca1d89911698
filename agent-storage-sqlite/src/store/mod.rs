//! The store: the three traits, each method thin over a read on one of the threads that read, or a request to the writer.

mod places;
mod sessions;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::session::Session;
use agent_core::store::{Damaged, EventPage, Page, ReadEvents, Rebuilt, SessionQuery, StoreAddress};
use agent_core::{
    ErrorKind, OpenState, Result, Seq, SessionId, Storage, TenantId, Tenants, WorkspaceId, async_trait,
};
use rusqlite::Connection;
use tokio::sync::oneshot;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use crate::config::SqliteConfig;
use crate::error::{Step, gone, is_refused_statement};
use crate::files::Files;
use crate::heads::Heads;
use crate::listing::Listed;
use crate::readers::{Readers, Warm};
use crate::reading::Found;
use crate::request::{Answer, Request};
use crate::threads::Threads;
use crate::writer::Sender;
use crate::{backup, check, listing, place, reading};

/// The most rows, and about the most bytes, that are read on the caller's thread: what takes a tenth of a millisecond.
const AT_ONCE: usize = 64;
const AT_ONCE_BYTES: usize = 256 << 10;

/// Keeps workspaces, sessions and bindings in one SQLite file, for one tenant. Clones share their connections; other
/// handles on the same file, in this process or another, behave like this one.
///
/// Writes go through one thread, which finishes what it was given also where the caller is dropped. [`close`](Self::close)
/// ends it; a lease that it took counts then as that of a dead holder. If it was not called, dropping the last clone does
/// the same, and blocks the thread that drops for as long as that takes. Needs no particular runtime, but for [`changed`](agent_core::SessionStore::changed), which needs tokio's time.
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
    /// record whose log is damaged is left as it is, and named. [`SessionStore::rebuild`](agent_core::SessionStore::rebuild) does it for one tenant.
    ///
    /// # Errors
    ///
    /// As for [`SessionStore`](agent_core::SessionStore).
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
    async fn mend(&self, id: SessionId) -> Result<Arc<Session>> {
        match self.ask(Request::Mend(id)).await? {
            Answer::Session(session) => Ok(session),
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
