//! Verification: reads all data of a tenant, and reports what is wrong.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use futures::TryStreamExt;
use serde::Serialize;
use tracing::instrument;

use crate::blobs;
use crate::source::is_read_error;
use crate::walk::{Step, Walk};
use agent_core::event::Event;
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::state::SessionState;
use agent_core::store::{
    BindingQuery, Damaged, HiddenSession, PAGE_MAX, Pending, ReadBlob, ReadEvents, SessionQuery,
    WorkspaceQuery, pages,
};
use agent_core::{
    Backend, BlobName, Error, ErrorKind, Result, Seq, SessionId, Storage, TenantId, WorkspaceId,
};

/// Number of events of a session after which progress is reported.
const PROGRESS_EVENTS: u64 = 1_000;

/// Result of a verification: counts of what was read, and the findings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Verification {
    /// Number of workspaces.
    pub workspaces: u64,
    /// Number of sessions, including deleted ones.
    pub sessions: u64,
    /// Number of their events that could be read.
    pub events: u64,
    /// Number of blobs that events name and that could be read.
    pub blobs: u64,
    /// Number of devices that are bound.
    pub bindings: u64,
    /// Findings, in the order in which they were found.
    pub findings: Vec<Finding>,
    /// Work that the store has put off, until [`Maintenance::maintain`](agent_core::store::Maintenance::maintain): no finding,
    /// since nothing is damaged.
    pub pending: Vec<Pending>,
    /// Objects of other programs among those of the store, as hidden files of a file manager in a bucket: no finding, since
    /// the store ignores them.
    pub foreign: Vec<Damaged>,
}

impl Verification {
    /// Returns true if the verification found no problem.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    fn found(&mut self, kind: FindingKind, object: impl fmt::Display, detail: impl fmt::Display) {
        self.findings.push(Finding { kind, object: object.to_string(), detail: detail.to_string() });
    }

    fn damaged(&mut self, damaged: &[Damaged]) {
        for damage in damaged {
            if damage.is_foreign {
                self.foreign.push(damage.clone());
                continue;
            }
            let kind = if damage.is_unsupported { FindingKind::Unsupported } else { FindingKind::Damaged };
            self.found(kind, &damage.object, &damage.reason);
        }
    }
}

/// One finding of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// Name of the affected object.
    pub object: String,
    /// Description of the problem.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind.name())?;
        if !self.detail.starts_with(&self.object) {
            write!(f, "{}: ", self.object)?;
        }
        f.write_str(&self.detail)
    }
}

/// Kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// The object cannot be read, because its bytes differ from those that were written, or the system refuses it.
    ///
    /// [`salvage`](crate::salvage::salvage()) recovers the readable part of a session.
    Damaged,
    /// Nothing is damaged: the object has a format that this version does not read. Use the version that wrote it.
    Unsupported,
    /// Derived data differs from the log. [`Maintenance::rebuild`](agent_core::store::Maintenance::rebuild) recomputes it.
    Differs,
    /// The object refers to an object that does not exist: a session to its workspace, a device to a workspace. A session
    /// of the workspace `default` may be there before it, since that is made when it is first asked for.
    ///
    /// `WorkspaceManager::gc` removes the remains of a deleted workspace.
    Dangling,
    /// The [import](crate::manifest::Manifest::import) of the session is incomplete. Run it again, or delete the session.
    Unfinished,
}

impl FindingKind {
    /// Returns the stable name of the kind: `damaged`, `unsupported`, `differs`, `dangling`, `unfinished`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Unsupported => "unsupported",
            Self::Differs => "differs",
            Self::Dangling => "dangling",
            Self::Unfinished => "unfinished",
        }
    }
}

/// Verifies all data of the tenant, and returns counts and findings. Writes nothing.
///
/// The function reads every record, configuration, event and blob that an event names, so that each checksum of the store
/// is checked. Blobs that no event names are no finding: `WorkspaceManager::gc` removes them. It compares
/// every session's record and its entry in the list with the fold of its log, and checks that every referenced object
/// exists. The store also [checks](agent_core::store::Maintenance::check) its own structures, and names the work that it has put
/// off. Other processes may write
/// meanwhile: their changes are not findings. `progress` is called with the result so far: after each object, and within
/// a session after every 1,000 events and after each blob.
///
/// The cost is one read of all data. One page of events at a time, the names of one session's blobs, and all findings are
/// in memory. The future may be
/// dropped at any point.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let agent = echo_agent()?;
/// use agent_admin::verify::{FindingKind, verify};
/// use agent_core::DeviceId;
/// use agent_core::commit::Precondition;
///
/// let chat = agent.conversation("support/4711").await?;
/// chat.prompt("Hello").await?.finish().await?;
/// let mut objects = 0;
/// let found = verify(agent.storage(), |_| objects += 1).await?;
/// assert!(found.is_sound());
/// assert_eq!((found.workspaces, found.sessions, objects), (1, 1, 2));
///
/// // A device that is bound to a workspace that does not exist.
/// let (device, missing): (DeviceId, _) = ("laptop".parse()?, agent.effects().new_workspace_id());
/// agent.storage().bindings.bind(&device, missing, Precondition::None).await?;
/// let found = verify(agent.storage(), |_| {}).await?;
/// assert_eq!(found.findings[0].kind, FindingKind::Dangling);
/// assert!(found.findings[0].to_string().starts_with("dangling: device laptop: its workspace"));
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Errors that prevent further reading: `Unavailable`; `Denied` for a list. Damage is a finding, and so is an object that the
/// system refuses.
#[instrument(name = "verify", skip_all)]
pub async fn verify(storage: &Storage, progress: impl FnMut(&Verification) + Send) -> Result<Verification> {
    let mut verifier = Verifier::new(storage, progress);
    let own = storage.sessions.maintenance().check().await;
    verifier.structures(own.map(Some)).await?;
    verifier.data().await?;
    Ok(verifier.so_far)
}

/// Verifies all data of the tenant, like [`verify`], without the store's own structures: [`verify_shared`] has verified
/// those, once for all tenants. Writes nothing.
///
/// # Errors
///
/// Those of [`verify`].
#[instrument(name = "verify", skip_all)]
pub async fn verify_tenant(
    storage: &Storage,
    progress: impl FnMut(&Verification) + Send,
) -> Result<Verification> {
    let mut verifier = Verifier::new(storage, progress);
    verifier.data().await?;
    Ok(verifier.so_far)
}

/// Verifies the structures that all tenants of a backend share, and names the work that the backend has put off. Returns
/// `None` if each tenant has structures of its own, as in files and in a bucket. Writes nothing.
///
/// To verify several tenants, call this once. Then call [`verify_tenant`] for each of them, or [`verify`] if this returned
/// `None`. All tenants of SQLite share a file, of which `verify` reads all for each tenant.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_admin::verify::{verify, verify_shared, verify_tenant};
/// use agent_core::{Backend, MemoryStore};
///
/// let backend = MemoryStore::new();
/// let shared = verify_shared(&backend).await?;
/// for tenant in backend.tenants(None).await?.items {
///     let storage = Backend::tenant(&backend, &tenant);
///     let found = match shared {
///         Some(_) => verify_tenant(&storage, |_| {}).await?,
///         None => verify(&storage, |_| {}).await?,
///     };
///     assert!(found.is_sound());
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Those of [`verify`].
#[instrument(name = "verify", skip_all)]
pub async fn verify_shared(backend: &dyn Backend) -> Result<Option<Verification>> {
    let shared = backend.check_shared().await;
    if let Ok(None) = shared {
        return Ok(None);
    }
    let storage = backend.tenant(&TenantId::default());
    let mut verifier = Verifier::new(&storage, |_: &Verification| {});
    verifier.structures(shared).await?;
    Ok(Some(verifier.so_far))
}

/// Returns the finding that an error of a read is, if it is one.
fn finding(error: &Error) -> Option<FindingKind> {
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::Denied => Some(FindingKind::Damaged),
        ErrorKind::Unavailable if is_read_error(error) => Some(FindingKind::Damaged),
        ErrorKind::Unsupported => Some(FindingKind::Unsupported),
        _ => None,
    }
}

/// State of a workspace to which an object belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    There,
    Deleted,
    Absent,
}

struct Verifier<'a, P> {
    storage: &'a Storage,
    workspaces: HashMap<WorkspaceId, Home>,
    so_far: Verification,
    progress: P,
}

impl<'a, P: FnMut(&Verification) + Send> Verifier<'a, P> {
    fn new(storage: &'a Storage, progress: P) -> Self {
        Self { storage, workspaces: HashMap::new(), so_far: Verification::default(), progress }
    }

    /// Notes what a check of the store's own structures found, and the work that the store has put off.
    async fn structures(&mut self, checked: Result<Option<Vec<Damaged>>>) -> Result<()> {
        if let Some(found) = self.readable_list("the internal structures of the store", checked)? {
            self.so_far.damaged(&found);
        }
        let pending = self.storage.sessions.maintenance().pending().await;
        let pending = self.readable_list("the pending work of the store", pending.map(Some))?;
        self.so_far.pending = pending.unwrap_or_default();
        Ok(())
    }

    async fn data(&mut self) -> Result<()> {
        self.all_workspaces().await?;
        self.all_bindings().await?;
        self.all_sessions().await
    }

    async fn all_workspaces(&mut self) -> Result<()> {
        let storage = self.storage;
        let mut pages = pages(WorkspaceQuery::new().with_deleting().with_limit(PAGE_MAX), |query| {
            storage.workspaces.list(query)
        });
        while let Some(page) = self.readable_list("the list of workspaces", pages.try_next().await)? {
            self.so_far.damaged(&page.damaged);
            for item in &page.items {
                let loaded = self.storage.workspaces.load(item.id).await.map(drop);
                self.note("workspace", item.id, loaded)?;
                let config = self.storage.workspaces.load_config(item.id).await.map(drop);
                self.note("configuration of workspace", item.id, config)?;
                self.so_far.workspaces += 1;
                (self.progress)(&self.so_far);
            }
        }
        Ok(())
    }

    async fn all_bindings(&mut self) -> Result<()> {
        let storage = self.storage;
        let mut pages = pages(BindingQuery::new().with_limit(PAGE_MAX), |query| storage.bindings.list(query));
        while let Some(page) = self.readable_list("bindings", pages.try_next().await)? {
            self.so_far.damaged(&page.damaged);
            for binding in &page.items {
                let device = format!("device {}", binding.device);
                self.belongs(&device, binding.workspace).await?;
                self.so_far.bindings += 1;
                (self.progress)(&self.so_far);
            }
        }
        Ok(())
    }

    async fn all_sessions(&mut self) -> Result<()> {
        let storage = self.storage;
        let mut pages = pages(SessionQuery::new().with_hidden().with_limit(PAGE_MAX), |query| {
            storage.sessions.list(query)
        });
        while let Some(page) = self.readable_list("the list of sessions", pages.try_next().await)? {
            self.so_far.damaged(&page.damaged);
            for item in &page.items {
                self.session(item).await?;
                self.so_far.sessions += 1;
                (self.progress)(&self.so_far);
            }
        }
        Ok(())
    }

    async fn session(&mut self, item: &SessionSummary) -> Result<()> {
        let (id, name) = (item.id, format!("session {}", item.id));
        let loaded = self.storage.sessions.load(id).await;
        let Some(record) = self.note("session", id, loaded)? else { return Ok(()) };
        if record.status.state == SessionState::Deleted {
            return self.what_is_left(&name, &record).await;
        }
        if item.head == record.head && *item != SessionSummary::from(&*record) {
            self.so_far.found(
                FindingKind::Differs,
                &name,
                "its entry in the list of sessions differs from its record",
            );
        }
        // The workspace `default` is made when it is first asked for, and its sessions may be there before. Those of the
        // tenant stay if it is deleted.
        let is_of_tenant = [HiddenSession::Tenant.id(), HiddenSession::Audit.id()].contains(&record.id);
        let is_of_default = record.workspace == WorkspaceId::DEFAULT
            && matches!(self.home(&name, record.workspace).await?, Home::Absent);
        if let Some(end) = record.import_end {
            // The workspace may be created when the import is complete.
            let detail = format!(
                "it has the events up to {} of an import that ends with event {end}; run the import again, or delete the session",
                record.head
            );
            self.so_far.found(FindingKind::Unfinished, &name, detail);
        } else if !is_of_tenant && !is_of_default {
            self.belongs(&name, record.workspace).await?;
        }
        if let Some(parent) = record.origin.parent() {
            self.there(&name, "its parent", parent).await?;
        }
        for segment in &record.lineage.segments {
            self.readable(&name, segment.session, segment.until).await?;
        }
        self.log(&name, &record).await
    }

    /// Reads a session's whole log and folds it.
    async fn log(&mut self, name: &str, record: &SessionRecord) -> Result<()> {
        let mut walk = Walk::own(&*self.storage.sessions, record.id, record.lineage.base(), record.head);
        let (mut folded, mut whole, mut blobs) = (None, true, BTreeMap::new());
        let mut own = 0_u64;
        loop {
            match walk.next().await {
                Ok(None) => break,
                Ok(Some(Step::Event(event))) => {
                    self.so_far.events += 1;
                    own += 1;
                    if own.is_multiple_of(PROGRESS_EVENTS) {
                        (self.progress)(&self.so_far);
                    }
                    note_blobs(&mut blobs, &event);
                    if whole && let Err(error) = fold(&mut folded, record.id, &event) {
                        whole = false;
                        self.so_far.found(FindingKind::Damaged, name, error);
                    }
                }
                Ok(Some(Step::LostRange(gap))) => {
                    // The missing events may have been purged meanwhile.
                    if self.is_deleted(record.id).await? {
                        return Ok(());
                    }
                    whole = false;
                    self.so_far.found(FindingKind::Damaged, name, gap);
                }
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) if let Some(kind) = finding(&error) => {
                    self.so_far.found(kind, name, error);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        if whole && folded.as_ref() != Some(record) {
            self.so_far.found(FindingKind::Differs, name, "its record differs from its log");
        }
        self.blobs(name, record.id, blobs).await
    }

    /// Reads the blobs that events of a log name.
    async fn blobs(&mut self, name: &str, id: SessionId, named: NamedBlobs) -> Result<()> {
        for (blob, (seq, stated)) in named {
            let detail = match read_whole(self.storage, id, blob).await {
                Ok(bytes) if stated.is_none_or(|stated| stated == bytes) => {
                    self.so_far.blobs += 1;
                    (self.progress)(&self.so_far);
                    continue;
                }
                Ok(bytes) => format!(
                    "blob {blob}, which event {seq} names: it has {bytes} bytes, and the event states another number; \
                     salvage the session"
                ),
                Err(error) if *error.kind() == ErrorKind::NotFound => {
                    // Its event may have been purged meanwhile.
                    if !self.is_named(id, seq, blob).await? {
                        continue;
                    }
                    format!(
                        "blob {blob}, which event {seq} names: it is lost; put the blob again, or salvage the session"
                    )
                }
                // The error says what to do.
                Err(error) if finding(&error) == Some(FindingKind::Damaged) => {
                    format!("blob {blob}, which event {seq} names: {error}")
                }
                Err(error) => return Err(error),
            };
            self.so_far.found(FindingKind::Damaged, name, detail);
        }
        Ok(())
    }

    /// Checks that the remaining log of a deleted session is intact.
    async fn what_is_left(&mut self, name: &str, record: &SessionRecord) -> Result<()> {
        let mut next = Some(ReadEvents::first(PAGE_MAX).with_after(record.lineage.base()));
        let mut blobs = BTreeMap::new();
        while let Some(read) = next {
            let page = match self.storage.sessions.read(record.id, read).await {
                Err(error) if is_damage(&error) => {
                    self.so_far.found(FindingKind::Damaged, name, error);
                    return Ok(());
                }
                page => page?,
            };
            self.so_far.events += page.events.len() as u64;
            self.so_far.damaged(&page.damaged);
            page.events.iter().for_each(|event| note_blobs(&mut blobs, event));
            next = page.next;
            if next.is_some() {
                (self.progress)(&self.so_far);
            }
        }
        self.blobs(name, record.id, blobs).await
    }

    /// Returns whether an event names a blob and is still there.
    async fn is_named(&self, id: SessionId, seq: Seq, blob: BlobName) -> Result<bool> {
        let one = ReadEvents::first(1).with_after(Seq::new(seq.get().saturating_sub(1)));
        match self.storage.sessions.read(id, one).await {
            Err(error) if is_gone(&error) || is_damage(&error) => Ok(false),
            page => Ok(page?.events.iter().any(|event| event.seq == seq && event.blobs.contains(&blob))),
        }
    }

    /// Checks that the event `until` of an ancestor, which a history needs, exists.
    async fn readable(&mut self, name: &str, ancestor: SessionId, until: Seq) -> Result<()> {
        let last = ReadEvents::first(1).with_after(Seq::new(until.get().saturating_sub(1)));
        let found = match self.storage.sessions.read(ancestor, last).await {
            // Damage of the other session is a finding of its own.
            Err(error) if finding(&error).is_some() => return Ok(()),
            Err(error) if is_gone(&error) => None,
            Err(error) => {
                self.unknown(name, &format!("its history up to event {until} in session {ancestor}"), &error);
                return Ok(());
            }
            Ok(mut page) => page.events.pop(),
        };
        if found.is_none_or(|event| event.seq != until) {
            let detail = format!(
                "its history up to event {until} is missing in session {ancestor}, from which it was forked"
            );
            self.so_far.found(FindingKind::Dangling, name, detail);
        }
        Ok(())
    }

    async fn there(&mut self, name: &str, what: &str, id: SessionId) -> Result<()> {
        match self.storage.sessions.load(id).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                self.so_far.found(
                    FindingKind::Dangling,
                    name,
                    format!("{what}, session {id}, does not exist"),
                );
                Ok(())
            }
            // Damage of the other session is a finding of its own.
            Err(error) if finding(&error).is_none() && !is_gone(&error) => {
                self.unknown(name, &format!("{what}, session {id},"), &error);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn home(&mut self, name: &str, workspace: WorkspaceId) -> Result<Home> {
        if let Some(home) = self.workspaces.get(&workspace) {
            return Ok(*home);
        }
        let home = match self.storage.workspaces.load(workspace).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => Home::Absent,
            Err(error) if *error.kind() == ErrorKind::Deleted => Home::Deleted,
            Err(error) if finding(&error).is_none() => {
                self.unknown(name, &format!("its workspace {workspace}"), &error);
                Home::There
            }
            // Damage of the workspace is a finding of its own.
            _ => Home::There,
        };
        self.workspaces.insert(workspace, home);
        Ok(home)
    }

    async fn belongs(&mut self, name: &str, workspace: WorkspaceId) -> Result<()> {
        let detail = match self.home(name, workspace).await? {
            Home::There => return Ok(()),
            Home::Deleted => format!("its workspace {workspace} was deleted"),
            Home::Absent => format!("its workspace {workspace} does not exist"),
        };
        self.so_far.found(FindingKind::Dangling, name, detail);
        Ok(())
    }

    /// Reports another object that could not be looked at. It keeps the rest from being verified only if nothing can be read.
    fn unknown(&mut self, name: &str, what: &str, error: &Error) {
        self.so_far.found(FindingKind::Damaged, name, format_args!("{what} could not be looked at: {error}"));
    }

    async fn is_deleted(&self, id: SessionId) -> Result<bool> {
        match self.storage.sessions.load(id).await {
            Err(error) if is_damage(&error) => Ok(false),
            record => Ok(record?.status.state == SessionState::Deleted),
        }
    }

    /// Reports a list that cannot be read, because the rest of its content is unknown; other objects can still be
    /// verified.
    fn readable_list<T>(&mut self, what: &str, found: Result<Option<T>>) -> Result<Option<T>> {
        match found {
            Err(error) if is_damage(&error) => {
                self.so_far.found(FindingKind::Damaged, what, error);
                Ok(None)
            }
            found => found,
        }
    }

    /// Reports damage; an object that was deleted since it was listed is not a finding.
    fn note<T>(&mut self, what: &str, id: impl fmt::Display, found: Result<T>) -> Result<Option<T>> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if let Some(kind) = finding(&error) => {
                self.so_far.found(kind, format!("{what} {id}"), error);
                Ok(None)
            }
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_damage(error: &Error) -> bool {
    *error.kind() == ErrorKind::Corrupt || is_read_error(error)
}

fn is_gone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Deleted | ErrorKind::NotFound)
}

fn fold(folded: &mut Option<SessionRecord>, id: SessionId, event: &Event) -> Result<()> {
    match folded {
        None => SessionRecord::begin(id, event).map(|session| *folded = Some(session)),
        Some(session) => session.apply(event),
    }
}

/// Blobs that the events of a log name: the first such event, and the number of bytes that an event states.
type NamedBlobs = BTreeMap<BlobName, (Seq, Option<u64>)>;

fn note_blobs(named: &mut NamedBlobs, event: &Event) {
    for name in &event.blobs {
        named.entry(*name).or_insert((event.seq, None));
    }
    if !event.blobs.is_empty() {
        for (name, bytes) in blobs::stated_sizes(event) {
            if let Some((_, stated)) = named.get_mut(&name) {
                *stated = Some(bytes);
            }
        }
    }
}

/// Reads a blob to its end, which checks its hash; returns the number of its bytes.
async fn read_whole(storage: &Storage, id: SessionId, name: BlobName) -> Result<u64> {
    let mut read = storage.sessions.blobs().read(ReadBlob::new(id, name)).await?;
    while read.content.try_next().await?.is_some() {}
    Ok(read.blob.bytes)
}
