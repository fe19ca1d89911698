//! Store in one file, which several processes share: all entries are read, changed and rewritten under a lock. Broken
//! in one way, and otherwise correct.

#![allow(clippy::unwrap_used, reason = "a test's helper")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::commit::{Commit, Committed, Precondition};
use agent_core::event::Event;
use agent_core::model::{NeededBlob, Workspace};
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::store::{
    BLOB_CHUNK_BYTES, BLOB_MAX_BYTES, Binding, BindingQuery, BlobChunk, BlobContent, BlobInfo, BlobQuery,
    BlobStore, Capabilities, ContentHash, DeletedTenant, Durability, EventPage, LeaseStatus, LeaseStore,
    Page, Purge, Purged, PutBlob, ReadBlob, ReadEvents, Scope, SessionQuery, SweepBlobs, SweptBlobs,
    WorkspaceQuery, check_no_live_run, decide_bind,
};
use agent_core::{
    Backend, BindingStore, BlobName, DeviceId, Epoch, Error, ErrorKind, Plan, Result, Revision, Seq,
    SessionId, SessionStore, Storage, TenantId, Timestamp, WorkspaceId, WorkspaceStore, WriteOutcome,
    async_trait, plan,
};
use agent_storage_conformance::FailingCall;

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing: the control.
    None,
    /// Nothing keeps two processes from changing the file at once.
    NoLock,
    /// The last write is acknowledged, and made when the next one comes.
    AcknowledgedBeforeWritten,
    /// An object of many parts is written in two steps.
    WrittenInTwo,
    /// Nothing is ever synced.
    NeverSyncs,
    /// All is synced but the bindings.
    BindingsUnsynced,
    /// A write that fails is said not to be applied, whatever became of it.
    FailuresDenied,
    /// Refused commits are kept, and applied when the store is opened again.
    RefusedAppliedLater,
    /// Every commit fails.
    NothingCommitted,
    /// A tenant is deleted in two steps, of which the first removes events only.
    TenantDeletedInTwo,
    /// All is synced but the deletion of a tenant.
    DeletionUnsynced,
    /// All is synced but the blobs.
    BlobsUnsynced,
    /// A blob is synced with the next change of something else.
    BlobsSyncedWhenNamed,
    /// A put that fails leaves the first half of its blob.
    FailedPutLeavesAHalf,
}

impl Fault {
    pub(crate) const ALL: [Self; 14] = [
        Self::None,
        Self::NoLock,
        Self::AcknowledgedBeforeWritten,
        Self::WrittenInTwo,
        Self::NeverSyncs,
        Self::BindingsUnsynced,
        Self::FailuresDenied,
        Self::RefusedAppliedLater,
        Self::NothingCommitted,
        Self::TenantDeletedInTwo,
        Self::DeletionUnsynced,
        Self::BlobsUnsynced,
        Self::BlobsSyncedWhenNamed,
        Self::FailedPutLeavesAHalf,
    ];
}

/// The call to the disk that is to fail, and how many were made since that was asked for: a change of the file is one.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    pub(crate) call: Option<FailingCall>,
    pub(crate) made: usize,
}

/// What the handles of one process on a store share.
pub(crate) type Shared = Arc<Mutex<Failing>>;

/// What stands for a deleted workspace.
const TOMBSTONE: &str = "";

type Entries = BTreeMap<String, String>;

/// The store in the folder `folder`.
#[derive(Clone, Debug)]
pub(crate) struct OneFile {
    folder: Arc<PathBuf>,
    fault: Fault,
    failing: Shared,
    /// Held as long as a store is open that only one process may use.
    alone: Option<Arc<File>>,
    /// What is acknowledged and not yet written.
    late: Arc<Mutex<Option<Entries>>>,
}

fn key(kind: &str, id: impl std::fmt::Display) -> String {
    format!("{kind} {id}")
}

fn event_key(id: SessionId, seq: u64) -> String {
    format!("event {id} {seq:012}")
}

fn key_of_events(id: SessionId) -> String {
    format!("event {id} ")
}

fn blob_key(id: SessionId, name: BlobName) -> String {
    format!("blob {id} {name}")
}

/// All blobs, with the session of each.
fn blobs(entries: &Entries) -> impl Iterator<Item = (SessionId, BlobInfo)> {
    all(entries, "blob").map(|(key, hex)| {
        let (session, name) = key.split_once(' ').unwrap();
        (session.parse().unwrap(), BlobInfo::new(name.parse().unwrap(), hex.len() as u64 / 2))
    })
}

fn session(entries: &Entries, id: SessionId) -> Result<Option<SessionRecord>> {
    entries.get(&key("session", id)).map(|json| SessionRecord::from_json(json)).transpose()
}

fn existing(entries: &Entries, id: SessionId) -> Result<SessionRecord> {
    let absent = || Error::new(ErrorKind::NotFound, format!("session {id} does not exist"));
    session(entries, id)?.ok_or_else(absent)
}

fn workspace(entries: &Entries, id: WorkspaceId) -> Result<Workspace> {
    let absent = || Error::new(ErrorKind::NotFound, format!("workspace {id} does not exist"));
    let json = entries.get(&key("workspace", id)).ok_or_else(absent)?;
    if json == TOMBSTONE {
        return Err(Error::new(ErrorKind::Deleted, format!("workspace {id} was deleted")));
    }
    Workspace::from_json(json)
}

fn store(entries: &mut Entries, commit: &Commit, planned: &Plan) {
    if let Plan::Write { events, after, .. } = planned {
        for event in events {
            entries.insert(event_key(commit.session, event.seq.get()), event.to_json());
        }
        entries.insert(key("session", commit.session), after.to_json());
    }
}

/// All entries of a kind, without it in their keys.
fn all<'a>(entries: &'a Entries, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a String)> {
    entries.iter().filter_map(move |(key, value)| Some((key.strip_prefix(kind)?.strip_prefix(' ')?, value)))
}

impl OneFile {
    pub(crate) fn new(folder: &Path, fault: Fault, failing: &Shared, alone: Option<Arc<File>>) -> Self {
        let folder = Arc::new(folder.to_owned());
        let this = Self { folder, fault, failing: failing.clone(), alone, late: Arc::default() };
        if let Ok(text) = fs::read_to_string(this.refused()) {
            fs::remove_file(this.refused()).unwrap();
            let late: Entries = serde_json::from_str(&text).unwrap();
            this.save(&late);
        }
        this
    }

    /// The same for another tenant.
    pub(crate) fn tenant(&self, tenant: &TenantId) -> Self {
        if *tenant == TenantId::default() {
            return self.clone();
        }
        let folder = self.folder.join(tenant.as_str());
        fs::create_dir_all(&folder).unwrap();
        Self { folder: Arc::new(folder), late: Arc::default(), ..self.clone() }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("entries.json")
    }

    /// What is applied later, though it was refused.
    fn refused(&self) -> PathBuf {
        self.folder.join("refused.json")
    }

    /// What would be there if the power went: the model of a disk.
    fn synced(&self) -> PathBuf {
        self.folder.join("synced.json")
    }

    /// Writes what the loss of power leaves of the store in `from` into the folder `to`.
    pub(crate) fn lose_power(from: &Path, to: &Path) {
        // A store without a sync has no file.
        let _ = fs::copy(from.join("synced.json"), to.join("entries.json"));
        let _ = fs::copy(from.join("synced.json"), to.join("synced.json"));
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                let to = to.join(entry.file_name());
                fs::create_dir(&to).unwrap();
                Self::lose_power(&entry.path(), &to);
            }
        }
    }

    /// Removes all entries; returns how many workspaces, sessions and bindings there were.
    fn clear(&self) -> Result<DeletedTenant> {
        if self.fault == Fault::TenantDeletedInTwo {
            self.change(|entries| {
                entries.retain(|key, _| !key.starts_with("event"));
                Ok(())
            })?;
        }
        self.change(|entries| {
            let count = |kind| all(entries, kind).count() as u64;
            let count = DeletedTenant::new(count("workspace"), count("session"), count("binding"));
            entries.clear();
            Ok(count)
        })
    }

    fn entries(&self) -> Entries {
        let Ok(text) = fs::read_to_string(self.path()) else { return Entries::new() };
        serde_json::from_str(&text).unwrap()
    }

    fn save(&self, entries: &Entries) {
        let temp = self.folder.join(format!("{}.new", std::process::id()));
        fs::write(&temp, serde_json::to_string(entries).unwrap()).unwrap();
        fs::rename(&temp, self.path()).unwrap();
        let mut synced = entries.clone();
        match self.fault {
            Fault::NeverSyncs => return,
            Fault::DeletionUnsynced if entries.is_empty() => return,
            Fault::BindingsUnsynced => synced.retain(|key, _| !key.starts_with("binding")),
            Fault::BlobsUnsynced => synced.retain(|key, _| !key.starts_with("blob")),
            Fault::BlobsSyncedWhenNamed => {
                let before = fs::read_to_string(self.synced()).unwrap_or_else(|_| "{}".to_owned());
                let before: Entries = serde_json::from_str(&before).unwrap();
                let others = |entries: &Entries| {
                    entries.iter().filter(|(key, _)| !key.starts_with("blob")).map(drop).count()
                };
                if others(entries) == others(&before) {
                    return;
                }
            }
            _ => {}
        }
        fs::write(&temp, serde_json::to_string(&synced).unwrap()).unwrap();
        fs::rename(temp, self.synced()).unwrap();
    }

    /// Whether this call to the disk fails, and whether it does its work all the same.
    fn fails(&self) -> Option<bool> {
        let mut failing = self.failing.lock().unwrap();
        let FailingCall { skip, done, .. } = failing.call?;
        failing.made += 1;
        (failing.made == skip + 1).then_some(done)
    }

    fn read<T>(&self, work: impl FnOnce(&Entries) -> Result<T>) -> Result<T> {
        match &*self.late.lock().unwrap() {
            Some(late) => work(late),
            None => work(&self.entries()),
        }
    }

    /// One change of the file. An error of `work` changes nothing.
    fn change<T>(&self, work: impl FnOnce(&mut Entries) -> Result<T>) -> Result<T> {
        // Handles of one process take turns even where processes do not.
        let mut late = self.late.lock().unwrap();
        let lock = File::create(self.folder.join("lock")).unwrap();
        if self.fault != Fault::NoLock {
            lock.lock().unwrap();
        }
        if let Some(late) = late.take() {
            pause();
            self.save(&late);
        }
        let before = self.entries();
        let mut entries = before.clone();
        let done = work(&mut entries)?;
        if let Some(applied) = self.fails() {
            let mut outcome = WriteOutcome::NotApplied;
            if applied {
                self.save(&entries);
                outcome = WriteOutcome::Unknown;
            }
            if self.fault == Fault::FailuresDenied {
                outcome = WriteOutcome::NotApplied;
            }
            if self.fault == Fault::FailedPutLeavesAHalf && !applied {
                let mut halves = before.clone();
                for (key, hex) in entries.iter().filter(|(key, _)| key.starts_with("blob")) {
                    halves.entry(key.clone()).or_insert_with(|| hex[..hex.len() / 2].to_owned());
                }
                self.save(&halves);
            }
            let error = Error::new(ErrorKind::Unavailable, "the disk failed; try again");
            return Err(error.with_outcome(outcome));
        }
        match self.fault {
            Fault::AcknowledgedBeforeWritten => *late = Some(entries),
            Fault::WrittenInTwo => {
                // Without the first of what is new, which comes a moment later.
                let mut half = entries.clone();
                let first = entries.keys().find(|key| !before.contains_key(*key));
                first.map(|first| half.remove(first));
                self.save(&half);
                pause();
                self.save(&entries);
            }
            Fault::NoLock => {
                pause();
                self.save(&entries);
            }
            _ => self.save(&entries),
        }
        Ok(done)
    }
}

/// Makes room for others, and for a kill.
#[allow(clippy::disallowed_methods, reason = "other processes do not share a runtime's time")]
fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}

/// The store as a server has it: each tenant but `default` in a folder of its own.
#[derive(Debug)]
pub(crate) struct TenantFolders(pub(crate) OneFile);

#[async_trait]
impl Backend for TenantFolders {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        self.0.tenant(tenant).into()
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let folders = fs::read_dir(&*self.0.folder).unwrap().map(|entry| entry.unwrap().file_name());
        let named = folders.filter_map(|name| name.to_str().and_then(|name| name.parse::<TenantId>().ok()));
        let mut found: Vec<_> = named.chain([TenantId::default()]).collect();
        found.retain(|tenant| {
            !self.0.tenant(tenant).entries().is_empty() && after.as_ref().is_none_or(|after| tenant > after)
        });
        found.sort();
        Ok(Page::new(found))
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        let store = self.0.tenant(tenant);
        check_no_live_run(&store).await?;
        store.clear()
    }
}

#[async_trait]
impl SessionStore for OneFile {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        if self.fault == Fault::NothingCommitted {
            let why = format!("table `events` of session {} is not there; create it", commit.session);
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        if self.fault == Fault::RefusedAppliedLater {
            let (entries, mut later) = (self.entries(), commit.clone());
            later.precondition = Precondition::MustExist;
            let now = session(&entries, commit.session)?;
            if let (Err(_), Ok(planned)) = (plan(now.as_ref(), &commit), plan(now.as_ref(), &later)) {
                let mut entries = entries;
                store(&mut entries, &commit, &planned);
                fs::write(self.refused(), serde_json::to_string(&entries).unwrap()).unwrap();
            }
        }
        self.change(|entries| {
            let planned = plan(session(entries, commit.session)?.as_ref(), &commit)?;
            if let Plan::Write { blobs, .. } = &planned {
                let size =
                    |name| entries.get(&blob_key(commit.session, name)).map(|hex| hex.len() as u64 / 2);
                NeededBlob::check::<Error>(commit.session, blobs, |name| Ok(size(name)))?;
            }
            store(entries, &commit, &planned);
            Ok(planned.committed())
        })
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        self.read(|entries| existing(entries, id).map(Arc::new))
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        OneFile::read(self, |entries| {
            existing(entries, id)?;
            let until = event_key(id, read.before.map_or(999_999_999_999, Seq::get));
            let rows = entries.range(event_key(id, read.after.next().get())..until);
            let events = rows.map(|(_, json)| Event::from_json(json));
            if read.newest {
                return EventPage::collect(&read, events.rev());
            }
            EventPage::collect(&read, events)
        })
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        OneFile::read(self, |entries| {
            let summary =
                |(_, json): (_, &String)| Ok(SessionSummary::from(&SessionRecord::from_json(json)?));
            query.page(all(entries, "session").map(summary).collect::<Result<Vec<_>>>()?)
        })
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        self.change(|entries| {
            let now = existing(entries, purge.session)?;
            purge.check(&now)?;
            let before = entries.len();
            entries.retain(|key, _| !key.starts_with(&key_of_events(purge.session)));
            entries.insert(key("session", purge.session), now.tombstone().to_json());
            Ok(Purged::new((before - entries.len()) as u64))
        })
    }

    fn capabilities(&self) -> Capabilities {
        let scope = if self.alone.is_some() { Scope::Process } else { Scope::Host };
        Capabilities::new(scope, Durability::PowerLoss).with_blobs(BLOB_MAX_BYTES)
    }

    fn leases(&self) -> &dyn LeaseStore {
        self
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }
}

#[async_trait]
impl LeaseStore for OneFile {
    async fn heartbeat(&self, _: SessionId, _: Epoch) -> Result<()> {
        Ok(())
    }

    async fn status(&self, _: SessionId, _: Epoch) -> Result<LeaseStatus> {
        Ok(LeaseStatus::new(0, false))
    }
}

#[async_trait]
impl BlobStore for OneFile {
    async fn put(&self, put: PutBlob) -> Result<()> {
        let (session, mut chunks) = (put.session, put.into_chunks(BLOB_MAX_BYTES)?);
        let mut hex = String::new();
        while let Some(chunk) = chunks.next().await? {
            chunk.iter().for_each(|byte| hex.push_str(&format!("{byte:02x}")));
        }
        self.change(|entries| {
            entries.insert(blob_key(session, chunks.blob().name), hex);
            Ok(())
        })
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        let hex =
            OneFile::read(self, |entries| Ok(entries.get(&blob_key(read.session, read.name)).cloned()))?;
        let hex = hex.ok_or_else(|| read.not_found())?;
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len() - hex.len() % 2).step_by(2).map(byte).collect();
        let blob = BlobInfo::new(read.name, bytes.len() as u64);
        Ok(BlobContent::from_chunks(&read, blob, move |index| {
            let start = index as usize * BLOB_CHUNK_BYTES;
            let chunk = bytes[start..start + blob.chunk_len(index)].to_vec();
            let checksum = blob.checksum(index, &chunk);
            async move { Ok(BlobChunk::new(chunk.into(), Some(checksum))) }
        }))
    }

    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        OneFile::read(self, |entries| {
            let blobs = blobs(entries).filter(|(session, _)| *session == query.session);
            query.page(blobs.map(|(_, blob)| blob).collect::<Vec<_>>())
        })
    }

    async fn sweep(&self, sweep: SweepBlobs) -> Result<SweptBlobs> {
        self.change(|entries| {
            let mut swept = SweptBlobs::default();
            let all: Vec<_> = blobs(entries).collect();
            for (id, blob) in all {
                let exists = session(entries, id)?.is_some();
                let named = entries.iter().any(|(key, json)| {
                    key.starts_with(&key_of_events(id))
                        && Event::from_json(json).unwrap().blobs.contains(&blob.name)
                });
                if sweep.session.map_or(!exists, |session| session == id) && !named {
                    swept += SweptBlobs::new(1, blob.bytes);
                    if !sweep.dry_run {
                        entries.remove(&blob_key(id, blob.name));
                    }
                }
            }
            Ok(swept)
        })
    }
}

#[async_trait]
impl WorkspaceStore for OneFile {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        OneFile::read(self, |entries| workspace(entries, id))
    }

    async fn put(&self, mut new: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        self.change(|entries| {
            new.prepare_put(workspace(entries, new.id).ok().as_ref(), expect)?;
            entries.insert(key("workspace", new.id), new.to_json());
            Ok(new)
        })
    }

    async fn touch(&self, _: WorkspaceId, _: Timestamp) -> Result<()> {
        Ok(())
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        OneFile::read(self, |entries| {
            let alive = all(entries, "workspace").filter(|(_, json)| *json != TOMBSTONE);
            let records = alive.map(|(_, json)| Workspace::from_json(json));
            query.page(records.collect::<Result<Vec<_>>>()?)
        })
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        self.change(|entries| {
            workspace(entries, id)?;
            entries.insert(key("workspace", id), TOMBSTONE.to_owned());
            Ok(())
        })
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        OneFile::read(self, |entries| {
            workspace(entries, id)?;
            Ok(entries.get(&key("config", id)).cloned())
        })
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        self.change(|entries| {
            let now = entries.get(&key("config", id)).map(String::as_str);
            ContentHash::check(expect, now, &format_args!("the configuration of workspace {id}"))?;
            match text {
                Some(text) => entries.insert(key("config", id), text),
                None => entries.remove(&key("config", id)),
            };
            Ok(())
        })
    }
}

#[async_trait]
impl BindingStore for OneFile {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let bound = OneFile::read(self, |entries| Ok(entries.get(&key("binding", device)).cloned()))?;
        bound.map(|id| Ok(id.parse()?)).transpose()
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        self.change(|entries| {
            let now = entries.get(&key("binding", device)).map(|id| id.parse()).transpose()?;
            let bound = decide_bind(device, now, to, expect)?;
            entries.insert(key("binding", device), bound.to_string());
            Ok(bound)
        })
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        self.change(|entries| Ok(entries.remove(&key("binding", device)).is_some()))
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        Err(Error::new(ErrorKind::Unsupported, format!("workspace {id} stays bound")))
    }

    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        OneFile::read(self, |entries| {
            let binding = |(device, to): (&str, &String)| Ok(Binding::new(device.parse()?, to.parse()?));
            query.page(all(entries, "binding").map(binding).collect::<Result<Vec<_>>>()?)
        })
    }
}
