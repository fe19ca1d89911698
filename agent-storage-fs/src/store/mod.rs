//! Store: implements the three traits, each method an async layer over the synchronous core.

mod places;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::commit::{Commit, Committed};
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::{
    BLOB_MAX_BYTES, BackendConfig, BlobContent, BlobInfo, BlobQuery, BlobStore, Capabilities, Damaged,
    DeletedTenant, Durability, EventPage, LeaseStatus, LeaseStore, Maintenance, Page, Pending, Purge, Purged,
    PutBlob, ReadBlob, ReadEvents, Rebuilt, Scope, SessionQuery, SweepBlobs, SweptBlobs, check_no_live_run,
    observed,
};
use agent_core::{
    Backend, Epoch, Error, Result, Seq, SessionId, SessionStore, SessionStoreExt, Storage, TenantId,
    Timestamp, WorkspaceId, WorkspaceStore, async_trait,
};
use agent_transcript::TranscriptMessage;
use tracing::field::Empty;
use tracing::info_span;

use crate::blobs::{put, staged, sweep};
use crate::care::{check, delete_damaged, purge};
use crate::config::{FsConfig, Sync};
use crate::error::{failed, is_own};
use crate::io::Kind;
use crate::lists::{self, folders};
use crate::log::{commit, place, read};
use crate::medium::env::{Env, held};
use crate::medium::shell::{blocking, drop_aside, working};
use crate::places::{delete_tenant, tenants, workspaces};
use crate::shared::open_tenants::OpenTenants;
use crate::shared::tenant::{Closing, SharedSession, Tenant};
use crate::shared::writer::{SessionWriter, Target, Writer};
use crate::transcript::{self, TranscriptEdit};

/// Interval at which a session is checked for changes by other processes while a caller waits for one.
const POLL: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_millis(250);

/// Store of workspaces, sessions and bindings as files, for one tenant. Clones share their caches. Other handles on
/// the same directory, in this process or another, work on the same data.
///
/// Needs a tokio runtime with time enabled. [`close`](Self::close) brings derived files up to date and releases locks;
/// a lease that was taken through the store then counts as held by a dead holder. If `close` was not called, dropping
/// the last clone does the same, and blocks the dropping thread until it is done.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// use agent_core::clock::Effects;
/// use agent_core::session::NewSession;
/// use agent_core::{SessionStore, SessionStoreExt, WorkspaceId};
/// use agent_storage_fs::FsStore;
///
/// let (store, effects) = (FsStore::open(folder.path()).await?, Effects::default());
/// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
/// let session = store.sessions(&effects).create(new).await?;
///
/// // Another handle on the same directory.
/// let other = FsStore::open(folder.path()).await?;
/// assert_eq!(other.load(session.id).await?, session);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FsStore {
    shared: Arc<Shared>,
    tenant: Arc<Tenant>,
}

#[derive(Debug)]
struct Shared {
    env: Arc<Env>,
    tenants: Mutex<OpenTenants>,
}

impl FsStore {
    /// Opens the store in the directory `root`, for the tenant `default`. Writes nothing; the directory need not exist
    /// yet.
    ///
    /// # Errors
    ///
    /// The errors of [`FsConfig::open`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// use agent_storage_fs::FsStore;
    ///
    /// let store = FsStore::open(folder.path()).await?;
    /// assert_eq!(store.root(), folder.path());
    /// assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "opening writes nothing");
    /// # Ok(()) }
    /// ```
    pub async fn open(root: impl Into<PathBuf>) -> Result<Self> {
        Self::with_config(FsConfig::new(root)).await
    }

    /// Opens the store in the platform's data directory, under [`FsConfig::DEFAULT_APP`].
    ///
    /// # Errors
    ///
    /// The errors of [`FsConfig::platform`] and [`FsConfig::open`].
    ///
    /// ```no_run
    /// # async fn example() -> agent_core::Result<()> {
    /// let store = agent_storage_fs::FsStore::open_default().await?;
    /// println!("{}", store.root().display());
    /// # Ok(()) }
    /// ```
    pub async fn open_default() -> Result<Self> {
        Self::with_config(FsConfig::platform(FsConfig::DEFAULT_APP)?).await
    }

    pub(crate) async fn with_config(mut config: FsConfig) -> Result<Self> {
        // A process may change its directory later.
        config.root =
            std::path::absolute(&config.root).map_err(|e| failed("use the folder", &config.root, e))?;
        let create = config.create;
        let env = Arc::new(Env::new(config));
        let probed = env.clone();
        let there = working(&env.open, move || match probed.io.stat(&probed.root) {
            Ok(stat) if stat.kind == Kind::Folder => {
                probed.saw(&probed.root);
                let there = tenants::holds_store(&probed)?;
                if !there && create {
                    tenants::check_free(&probed)?;
                }
                Ok(there)
            }
            Ok(_) => Err(failed("use the folder", &probed.root, std::io::ErrorKind::NotADirectory.into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("use the folder", &probed.root, error)),
        })
        .await?;
        if !there && !create {
            return Err(Error::not_found(format!(
                "the folder {} holds no store; check the path",
                env.root.display()
            )));
        }
        let closing = Closing { each_session: transcript::close, tenant: lists::keep::close };
        let shared = Arc::new(Shared { env, tenants: Mutex::new(OpenTenants::new(closing)) });
        Ok(Self::of(shared, &TenantId::default()))
    }

    fn of(shared: Arc<Shared>, id: &TenantId) -> Self {
        let (tenant, gone) = held(&shared.tenants).get(&shared.env, id);
        drop_aside(&shared.env.open, gone);
        Self { shared, tenant }
    }

    /// Returns the same store for another tenant. Does no I/O: a tenant that was never written to is empty.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// use agent_core::commit::Precondition;
    /// use agent_core::{BindingStore, WorkspaceId};
    /// use agent_storage_fs::FsStore;
    ///
    /// let store = FsStore::open(folder.path()).await?;
    /// let acme = store.for_tenant(&"acme".parse()?);
    /// acme.bind(&"laptop".parse()?, WorkspaceId::DEFAULT, Precondition::MustNotExist).await?;
    /// assert_eq!(store.resolve(&"laptop".parse()?).await?, None);
    /// assert!(folder.path().join("tenants/acme/bindings.toml").exists());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn for_tenant(&self, tenant: &TenantId) -> Self {
        Self::of(self.shared.clone(), tenant)
    }

    /// Returns the directory of the store, which holds all tenants.
    pub fn root(&self) -> &Path {
        &self.shared.env.root
    }

    /// Returns the tenant's global configuration, the text of `config.toml`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// `Denied`; `Corrupt` if the file is not text.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// use agent_storage_fs::FsStore;
    ///
    /// let store = FsStore::open(folder.path()).await?;
    /// assert_eq!(store.load_global_config().await?, None);
    /// std::fs::write(folder.path().join("config.toml"), "model = \"sonnet\"\n").unwrap();
    /// assert_eq!(store.load_global_config().await?.as_deref(), Some("model = \"sonnet\"\n"));
    /// # Ok(()) }
    /// ```
    pub async fn load_global_config(&self) -> Result<Option<String>> {
        let span = info_span!("store.load_global_config", store = "fs", outcome = Empty);
        observed(span, self.run(|tenant| tenant.env.read_text(&tenant.layout.config()))).await
    }

    /// Returns the conversations in files beside a workspace's log that have not been imported. Such a file is a
    /// `session.md` that a person edited, kept when the store rendered it again, or a file that the Aptove agent left.
    ///
    /// # Errors
    ///
    /// The errors of [`WorkspaceStore::load`]; `Denied`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// use agent_core::clock::Effects;
    /// use agent_core::event::NewEvent;
    /// use agent_core::model::Workspace;
    /// use agent_core::session::NewSession;
    /// use agent_core::{SessionStoreExt, WorkspaceId, WorkspaceStoreExt};
    /// use agent_storage_fs::FsStore;
    ///
    /// let (store, effects) = (FsStore::open(folder.path()).await?, Effects::default());
    /// let (id, sessions) = (effects.new_session_id(), store.sessions(&effects));
    /// store.create(Workspace::new(WorkspaceId::DEFAULT, "home", id, effects.now())).await?;
    /// let session = sessions.create(NewSession::new(id, WorkspaceId::DEFAULT)).await?;
    /// let messages = vec![NewEvent::user_message("Where to?"), NewEvent::agent_message("To Olso.")];
    /// let session = sessions.replace(id, session.head, messages).await?.session;
    /// assert!(store.transcript_edits(WorkspaceId::DEFAULT).await?.is_empty());
    ///
    /// // A person corrects a word in the transcript.
    /// let path = folder.path().join("workspaces/default/session.md");
    /// let text = std::fs::read_to_string(&path).unwrap();
    /// std::fs::write(&path, text.replace("Olso", "Oslo")).unwrap();
    ///
    /// let edits = store.transcript_edits(WorkspaceId::DEFAULT).await?;
    /// assert_eq!(edits[0].transcript.messages[1].text, "To Oslo.");
    /// store.import_transcript(&edits[0], session.head).await?;
    /// assert!(store.transcript_edits(WorkspaceId::DEFAULT).await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn transcript_edits(&self, workspace: WorkspaceId) -> Result<Vec<TranscriptEdit>> {
        let span =
            info_span!("store.transcript_edits", store = "fs", workspace = %workspace, outcome = Empty);
        let work = async {
            let main = WorkspaceStore::load(self, workspace).await?.main_session;
            let deadline = tokio::time::Instant::now() + self.shared.env.lock_wait;
            // Includes an edit that a person saved a moment ago.
            let again = move |tenant: &Tenant, cell: &SharedSession| match commit::load(tenant, cell, main) {
                Ok(_) => Ok(transcript::bring_up_to_date(tenant, cell, main)),
                Err(error) if error.is_absent() => Ok(false),
                Err(error) => Err(error),
            };
            while self.run_on(main, again).await? && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            self.run_on(main, move |tenant, cell| transcript::pending(tenant, cell, workspace, main)).await
        };
        observed(span, work).await
    }

    /// Replaces the visible history of a session by a conversation from a file. The session's head must be at
    /// `expect`. The log keeps the earlier events. The file is renamed, and not returned again by
    /// [`transcript_edits`](Self::transcript_edits). If the session already has exactly these messages, only the file
    /// is renamed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, the history may have been replaced although the file was not
    /// renamed. Call it again with the new head to finish.
    ///
    /// # Errors
    ///
    /// The errors of [`Sessions::replace`](agent_core::Sessions::replace).
    pub async fn import_transcript(&self, edit: &TranscriptEdit, expect: Seq) -> Result<Arc<SessionRecord>> {
        let id = edit.session;
        let span = info_span!("store.import_transcript", store = "fs", session = %id, outcome = Empty);
        let work = async {
            let messages = edit.transcript.messages.clone();
            let (now, same) = self
                .run_on(id, move |tenant, cell| {
                    let now = commit::load(tenant, cell, id)?;
                    let same = now.head == expect && transcript::visible(tenant, &now)? == messages;
                    Ok((now, same))
                })
                .await?;
            let session = if same {
                now
            } else {
                let events = edit.transcript.messages.iter().map(TranscriptMessage::to_event).collect();
                self.sessions(&self.shared.env.effects).replace(id, expect, events).await?.session
            };
            let path = edit.path.clone();
            self.run(move |tenant| transcript::imported(tenant, &path)).await?;
            transcript::schedule(&self.tenant, &self.cell(id), &session);
            Ok(session)
        };
        observed(span, work).await
    }

    /// Closes the store for all of its tenants and clones: finishes the writes that have begun, brings `session.md`
    /// and `session.json` up to date, and releases locks and open files. Later calls fail with `Unavailable`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// use agent_core::ErrorKind;
    ///
    /// let store = agent_storage_fs::FsStore::open(folder.path()).await?;
    /// store.close().await?;
    /// let error = store.load_global_config().await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Unavailable);
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
    /// `Unavailable` if the runtime is shutting down.
    pub async fn close(&self) -> Result<()> {
        let span = info_span!("store.close", store = "fs", outcome = Empty);
        let work = async {
            let tenants = held(&self.shared.tenants).all();
            blocking(move || tenants.iter().for_each(|tenant| tenant.close())).await
        };
        observed(span, self.shared.env.open.close(work)).await
    }

    /// Runs a read of the core.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tenant) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let tenant = self.tenant.clone();
        working(&self.shared.env.open, move || work(&tenant)).await
    }

    fn cell(&self, id: SessionId) -> Arc<SharedSession> {
        let (cell, gone) = self.tenant.cell(id);
        drop_aside(&self.shared.env.open, gone);
        cell
    }

    /// Runs a read of the core that concerns one session.
    async fn run_on<T: Send + 'static>(
        &self,
        id: SessionId,
        work: impl FnOnce(&Tenant, &SharedSession) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (tenant, cell) = (self.tenant.clone(), self.cell(id));
        working(&self.shared.env.open, move || work(&tenant, &cell)).await
    }

    /// Returns the writer of the session that `cell` belongs to.
    fn writer(&self, id: SessionId, cell: &SharedSession) -> SessionWriter {
        Writer { tenant: self.tenant.clone(), target: Target::Session(id), gate: cell.slot.clone() }
    }

    fn workspace_writer(&self, id: WorkspaceId) -> Writer<()> {
        let gate = self.tenant.workspace_gate(id);
        Writer { tenant: self.tenant.clone(), target: Target::Workspace(id), gate }
    }

    fn binding_writer(&self) -> Writer<()> {
        let gate = self.tenant.binding_gate.clone();
        Writer { tenant: self.tenant.clone(), target: Target::Bindings, gate }
    }
}

impl FsConfig {
    /// Opens the store. Writes nothing; the directory need not exist yet.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the path is not a directory; `Denied`; `NotFound` if there is no store and [creation is
    /// disabled](Self::with_create).
    pub async fn open(self) -> Result<FsStore> {
        FsStore::with_config(self).await
    }
}

#[async_trait]
impl BackendConfig for FsConfig {
    async fn open(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(self.clone().open().await?))
    }
}

#[async_trait]
impl SessionStore for FsStore {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let id = commit.session;
        let span = info_span!(
            "store.commit",
            store = "fs",
            session = %id,
            events = Empty,
            bytes = Empty,
            outcome = Empty
        );
        let recorded = span.clone();
        let work = async {
            let cell = self.cell(id);
            let known = cell.clone();
            let committed = self
                .writer(id, &cell)
                .with_lock(move |tenant, slot| commit::commit(tenant, &known, slot, &commit))
                .await?;
            transcript::schedule(&self.tenant, &cell, &committed.session);
            lists::keep::changed(&self.tenant);
            recorded.record("events", committed.last.next().get().saturating_sub(committed.first.get()));
            Ok(committed)
        };
        observed(span, work).await
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let span = info_span!("store.load", store = "fs", session = %id, outcome = Empty);
        let session = self.run_on(id, move |tenant, cell| commit::load(tenant, cell, id));
        observed(span, session).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let span = info_span!("store.read", store = "fs", session = %id, events = Empty, bytes = Empty, outcome = Empty);
        let recorded = span.clone();
        let work = async {
            let page = self.run_on(id, move |tenant, cell| read::read(tenant, cell, id, &read)).await?;
            recorded.record("events", page.events.len());
            recorded
                .record("bytes", page.events.iter().map(agent_core::event::Event::size_bytes).sum::<usize>());
            Ok(page)
        };
        observed(span, work).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        let span = info_span!("store.list_sessions", store = "fs", outcome = Empty);
        observed(span, self.run(move |tenant| lists::sessions(tenant, &query))).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        let id = purge.session;
        let span = info_span!("store.purge", store = "fs", session = %id, outcome = Empty);
        let work = async {
            let purge = purge.sparing_forks(self).await?;
            let cell = self.cell(id);
            let purged = self
                .writer(id, &cell)
                .with_lock(move |tenant, slot| purge::purge(tenant, &cell, slot, &purge))
                .await?;
            lists::keep::removed(&self.tenant);
            Ok(purged)
        };
        observed(span, work).await
    }

    fn capabilities(&self) -> Capabilities {
        let durability = match self.shared.env.sync {
            Sync::Full => Durability::PowerLoss,
            Sync::Off => Durability::ProcessCrash,
        };
        Capabilities::new(Scope::Host, durability).with_blobs(BLOB_MAX_BYTES)
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        let span = info_span!("store.changed", store = "fs", session = %id, outcome = Empty);
        let work = async {
            // Writes of this store are notified at once; those of other processes are found by checking.
            let mut changed = self.cell(id).head.subscribe();
            let mut pause = POLL;
            loop {
                let newest = self.run_on(id, move |tenant, cell| commit::head_after(tenant, cell, id, seen));
                if let Some(head) = newest.await? {
                    return Ok(head);
                }
                let news = changed.wait_for(|head| *head > seen.get());
                let _ = tokio::time::timeout(pause, news).await;
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
impl LeaseStore for FsStore {
    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        let span = info_span!("store.heartbeat", store = "fs", session = %id, outcome = Empty);
        observed(span, self.run_on(id, move |tenant, cell| commit::heartbeat(tenant, cell, id, epoch))).await
    }

    async fn status(&self, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
        let span = info_span!("store.lease_status", store = "fs", session = %id, outcome = Empty);
        observed(span, self.run_on(id, move |tenant, cell| commit::lease_status(tenant, cell, id, epoch)))
            .await
    }
}

#[async_trait]
impl BlobStore for FsStore {
    async fn put(&self, put: PutBlob) -> Result<()> {
        let id = put.session;
        let span = info_span!("store.put_blob", store = "fs", session = %id, bytes = put.blob.bytes, outcome = Empty);
        let cell = self.cell(id);
        observed(span, put::put(self.writer(id, &cell), cell, put)).await
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        let span = info_span!("store.read_blob", store = "fs", session = %read.session, outcome = Empty);
        let work = async {
            let asked = read.clone();
            let opened =
                self.run_on(read.session, move |tenant, cell| staged::open(tenant, cell, &asked)).await?;
            Ok(put::content(&read, opened, &self.shared.env.open))
        };
        observed(span, work).await
    }

    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        let span = info_span!("store.list_blobs", store = "fs", session = %query.session, outcome = Empty);
        observed(span, self.run_on(query.session, move |tenant, cell| staged::list(tenant, cell, &query)))
            .await
    }

    async fn sweep(&self, sweep: SweepBlobs) -> Result<SweptBlobs> {
        let of = sweep.session.map(tracing::field::display);
        let span = info_span!("store.sweep_blobs", store = "fs", session = of, outcome = Empty);
        let work = async {
            let ids = match sweep.session {
                Some(id) => vec![id],
                None => self.run(sweep::early_ids).await?,
            };
            let sessions = ids.into_iter().map(|id| {
                let cell = self.cell(id);
                (self.writer(id, &cell), cell, id)
            });
            put::sweep(sessions, sweep).await
        };
        observed(span, work).await
    }
}

#[async_trait]
impl Maintenance for FsStore {
    async fn rebuild(&self) -> Result<Rebuilt> {
        let span = info_span!("store.rebuild", store = "fs", outcome = Empty);
        let work = async {
            let mut done = Rebuilt::default();
            let all;
            (all, done.damaged) = self
                .run(|tenant| {
                    let mut damaged = Vec::new();
                    Ok((folders::all(tenant, &mut damaged)?, damaged))
                })
                .await?;
            for (workspace, id) in all {
                let cell = self.cell(id);
                let rebuilt = self
                    .writer(id, &cell)
                    .with_lock(move |tenant, slot| commit::rebuild(tenant, &cell, slot, workspace, id));
                match rebuilt.await {
                    Ok(there) => done.sessions += u64::from(there),
                    Err(error) if is_own(&error) => {
                        done.damaged.push(Damaged::of(format!("session {id}"), &error));
                    }
                    Err(error) => return Err(error),
                }
            }
            // Sessions in unreadable folders are covered by the reports on these folders, above.
            let missing = self.run(folders::missing).await?.into_iter();
            let index = self.run(|tenant| Ok(tenant.layout.index())).await?;
            let is_of_index = |damage: &Damaged| Path::new(&damage.object).starts_with(&index);
            done.damaged.extend(missing.filter(|damage| damage.workspace.is_some() || is_of_index(damage)));
            for workspace in self.run(|tenant| Ok(place::workspaces(tenant)?.collect::<Vec<_>>())).await? {
                // Damage of a workspace, or of its main session, is reported elsewhere.
                let load = move |tenant: &Tenant| {
                    workspaces::load(tenant, workspace).inspect(|_| place::point_workspace(tenant, workspace))
                };
                let main = self.run(load).await;
                let Ok(main) = main.map(|workspace| workspace.main_session) else { continue };
                let render = move |tenant: &Tenant, cell: &SharedSession| {
                    Ok(commit::load(tenant, cell, main).is_ok()
                        && transcript::bring_up_to_date(tenant, cell, main))
                };
                self.run_on(main, render).await?;
            }
            self.run(lists::keep::rebuild).await?;
            Ok(done)
        };
        observed(span, work).await
    }

    async fn check(&self) -> Result<Vec<Damaged>> {
        let span = info_span!("store.check", store = "fs", outcome = Empty);
        observed(span, self.run(check::check)).await
    }

    async fn pending(&self) -> Result<Vec<Pending>> {
        let span = info_span!("store.pending", store = "fs", outcome = Empty);
        let work = |tenant: &Tenant| {
            let root = tenant.layout.root();
            let unfinished = delete_tenant::is_unfinished(&tenant.env, root)?;
            let pending = || Pending::of_deletion(root.display().to_string(), tenant.layout.tenant());
            Ok(unfinished.then(pending).into_iter().collect())
        };
        observed(span, self.run(work)).await
    }

    async fn delete_damaged(
        &self,
        id: SessionId,
        at: Timestamp,
        reason: Reason,
    ) -> Result<Arc<SessionRecord>> {
        let span = info_span!("store.delete_damaged", store = "fs", session = %id, outcome = Empty);
        let cell = self.cell(id);
        let work = async {
            let deleted = self
                .writer(id, &cell)
                .with_lock(move |tenant, slot| {
                    delete_damaged::delete_damaged(tenant, &cell, slot, id, (at, reason))
                })
                .await?;
            lists::keep::removed(&self.tenant);
            Ok(deleted)
        };
        observed(span, work).await
    }
}

#[async_trait]
impl Backend for FsStore {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        self.for_tenant(tenant).into()
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let env = self.shared.env.clone();
        let span = info_span!("store.list_tenants", store = "fs", outcome = Empty);
        let open = env.open.clone();
        let work = working(&open, move || tenants::list(&env, after.as_ref()));
        observed(span, work).await
    }

    /// Renames the folder of workspaces to `.workspaces.deleted-…` in one step, then removes the bindings and what was
    /// renamed. Handles of all processes see the workspaces and sessions disappear at that step. Links are removed, and
    /// what they lead to is left alone. The folders of the tenant stay, empty, as does the file `config.toml` of the
    /// tenant `default`, which belongs to the host, and every file that is not of this store. A handle that had a session
    /// open is told by its next write: `NotFound`, which names the tenant. A new session makes the tenant again.
    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        let span = info_span!("store.delete_tenant", store = "fs", outcome = Empty);
        let store = self.for_tenant(tenant);
        let work = async {
            check_no_live_run(&store).await?;
            let bindings = store.binding_writer().with_lock(|tenant, ()| delete_tenant::hide(tenant)).await?;
            let removed = store.run(delete_tenant::remove_hidden).await?;
            Ok(DeletedTenant::new(removed.workspaces, removed.sessions, bindings))
        };
        observed(span, work).await
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}
