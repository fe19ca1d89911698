#![doc = include_str!("../README.md")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use agent_core::commit::{Commit, Committed, Precondition};
use agent_core::model::{NeededBlob, Workspace};
use agent_core::{event::Event, session::*, state::SessionState, store::*, *};
use redb::{Database, ReadableTable, TableDefinition, WriteTransaction};

/// Table of texts by tenant and name.
type Texts = TableDefinition<'static, (&'static str, &'static str), &'static str>;

const SESSIONS: Texts = TableDefinition::new("sessions");
const HEARTBEATS: Texts = TableDefinition::new("heartbeats");
const WORKSPACES: Texts = TableDefinition::new("workspaces");
const CONFIGS: Texts = TableDefinition::new("configs");
const BINDINGS: Texts = TableDefinition::new("bindings");
const EVENTS: TableDefinition<'static, (&str, &str, u64), &str> = TableDefinition::new("events");

const BLOBS: TableDefinition<'static, (&str, &str, &str), &[u8]> = TableDefinition::new("blobs");

/// Size of the largest blob: a put holds the blob in memory, and writes it in one transaction.
const BLOB_MOST: u64 = 4 << 20;
/// Text after every name of a blob.
const END: &str = "g";
/// Text in place of the record of a deleted workspace.
const TOMBSTONE: &str = "";

/// The three stores of one tenant, in one file of the embedded database redb.
#[derive(Clone, Debug)]
pub struct ToyStore {
    database: Arc<Database>,
    tenant: TenantId,
}

impl ToyStore {
    /// Opens the file for the tenant `default`, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// `Unavailable` if another process has the file open; `Denied`, `Full`, `Corrupt`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::on(Database::create(path).map_err(failed)?))
    }

    /// Returns a store in an open database, for the tenant `default`.
    pub fn on(database: Database) -> Self {
        Self { database: Arc::new(database), tenant: TenantId::default() }
    }

    /// Returns a store on the same file for another tenant.
    #[must_use]
    pub fn for_tenant(&self, tenant: &TenantId) -> Self {
        Self { database: self.database.clone(), tenant: tenant.clone() }
    }

    /// Runs `work` in one transaction, on a thread that may block and that continues if the caller's future is dropped.
    /// An error of `work` undoes everything.
    async fn transaction<T, W>(&self, work: W) -> Result<T>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction) -> Result<T> + Send + 'static,
    {
        let this = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let raw = this.database.begin_write().map_err(failed)?;
            let transaction = Transaction { raw, tenant: this.tenant.as_str().to_owned() };
            let done = work(&transaction)?;
            // Nothing has happened before this line. A commit that fails may have happened.
            transaction.raw.commit().map_err(|error| failed(error).with_outcome(WriteOutcome::Unknown))?;
            Ok(done)
        });
        task.await.unwrap_or_else(|stopped| {
            let error = Error::new(ErrorKind::Unavailable, "the work was stopped; send it again");
            Err(error.with_source(stopped).with_outcome(WriteOutcome::Unknown))
        })
    }
}

fn failed(error: impl Into<redb::Error>) -> Error {
    use std::io::ErrorKind::{PermissionDenied, StorageFull};
    let error = error.into();
    let (kind, remedy) = match &error {
        redb::Error::Corrupted(_) => (ErrorKind::Corrupt, "restore it from a backup"),
        redb::Error::PreviousIo => (ErrorKind::Poisoned, "open it again"),
        redb::Error::Io(io) if io.kind() == StorageFull => (ErrorKind::Full, "make room"),
        redb::Error::Io(io) if io.kind() == PermissionDenied => (ErrorKind::Denied, "grant access"),
        _ => (ErrorKind::Unavailable, "try again"),
    };
    Error::new(kind, format!("the database file failed; {remedy}")).with_source(error)
}

/// One transaction of one tenant.
struct Transaction {
    raw: WriteTransaction,
    tenant: String,
}

impl Transaction {
    fn get(&self, table: Texts, name: &str) -> Result<Option<String>> {
        let table = self.raw.open_table(table).map_err(failed)?;
        Ok(table.get((&*self.tenant, name)).map_err(failed)?.map(|text| text.value().to_owned()))
    }

    fn set(&self, table: Texts, name: &str, text: &str) -> Result<()> {
        let mut table = self.raw.open_table(table).map_err(failed)?;
        table.insert((&*self.tenant, name), text).map(drop).map_err(failed)
    }

    /// Removes an entry, and returns `true` if it existed.
    fn remove(&self, table: Texts, name: &str) -> Result<bool> {
        let mut table = self.raw.open_table(table).map_err(failed)?;
        Ok(table.remove((&*self.tenant, name)).map_err(failed)?.is_some())
    }

    /// Returns all entries of the tenant, by name.
    fn all(&self, table: Texts) -> Result<Vec<(String, String)>> {
        let table = self.raw.open_table(table).map_err(failed)?;
        // No other tenant's name sorts between this name and this name followed by a NUL.
        let end = format!("{}\0", self.tenant);
        let rows = table.range((&*self.tenant, "")..(&*end, "")).map_err(failed)?;
        rows.map(|row| {
            row.map(|(key, text)| (key.value().1.to_owned(), text.value().to_owned())).map_err(failed)
        })
        .collect()
    }

    fn session(&self, id: SessionId) -> Result<Option<SessionRecord>> {
        self.get(SESSIONS, &id.to_string())?.map(|json| SessionRecord::from_json(&json)).transpose()
    }

    fn existing_session(&self, id: SessionId) -> Result<SessionRecord> {
        self.session(id)?
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("session {id} does not exist")))
    }

    fn heartbeats(&self, id: SessionId) -> Result<usize> {
        Ok(self.get(HEARTBEATS, &id.to_string())?.map_or(0, |heartbeats| heartbeats.len()))
    }

    fn blob<T>(&self, id: SessionId, name: BlobName, of: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let table = self.raw.open_table(BLOBS).map_err(failed)?;
        let bytes = table.get((&*self.tenant, &*id.to_string(), &*name.to_string())).map_err(failed)?;
        Ok(bytes.map(|bytes| of(bytes.value())))
    }

    /// Returns the blobs of one session, or of all, each with its session.
    fn blobs(&self, session: Option<SessionId>) -> Result<Vec<(SessionId, BlobInfo)>> {
        let table = self.raw.open_table(BLOBS).map_err(failed)?;
        let (first, last) = session.map_or(("".into(), END.into()), |id| (id.to_string(), id.to_string()));
        let rows = table.range((&*self.tenant, &*first, "")..(&*self.tenant, &*last, END)).map_err(failed)?;
        rows.map(|row| {
            let (key, bytes) = row.map_err(failed)?;
            Ok((key.value().1.parse()?, BlobInfo::new(key.value().2.parse()?, bytes.value().len() as u64)))
        })
        .collect()
    }

    /// Removes the blobs of a session that no event of its log names.
    /// Returns the blobs that the events of a session name.
    fn named(&self, id: SessionId) -> Result<BTreeSet<BlobName>> {
        let (tenant, session, mut named) = (&*self.tenant, &*id.to_string(), BTreeSet::new());
        let log = self.raw.open_table(EVENTS).map_err(failed)?;
        for row in log.range((tenant, session, 0)..(tenant, session, u64::MAX)).map_err(failed)? {
            named.extend(Event::from_json(row.map_err(failed)?.1.value())?.blobs);
        }
        Ok(named)
    }

    fn sweep(&self, id: SessionId, dry_run: bool) -> Result<SweptBlobs> {
        let (tenant, session, named) = (&*self.tenant, &*id.to_string(), self.named(id)?);
        let mut blobs = self.blobs(Some(id))?;
        blobs.retain(|(_, blob)| !named.contains(&blob.name));
        let mut swept = SweptBlobs::default();
        for (_, blob) in blobs {
            swept += SweptBlobs::new(1, blob.bytes);
            if !dry_run {
                let mut table = self.raw.open_table(BLOBS).map_err(failed)?;
                table.remove((tenant, session, &*blob.name.to_string())).map_err(failed)?;
            }
        }
        Ok(swept)
    }

    fn workspace(&self, id: WorkspaceId) -> Result<Workspace> {
        match self.get(WORKSPACES, &id.to_string())?.as_deref() {
            None => Err(Error::new(ErrorKind::NotFound, format!("workspace {id} does not exist"))),
            Some(TOMBSTONE) => Err(Error::new(ErrorKind::Deleted, format!("workspace {id} was deleted"))),
            Some(json) => Workspace::from_json(json),
        }
    }
}

#[async_trait]
impl SessionStore for ToyStore {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let work = move |transaction: &Transaction| {
            let now = transaction.session(commit.session)?;
            let planned = plan(now.as_ref(), &commit)?;
            if let Plan::Write { events, after, blobs, .. } = &planned {
                NeededBlob::check(commit.session, blobs, |name| {
                    transaction.blob(commit.session, name, |bytes| bytes.len() as u64)
                })?;
                if let (None, Some(parent)) = (now, after.origin.parent())
                    && transaction.existing_session(parent)?.status.state == SessionState::Deleted
                {
                    return Err(Error::new(ErrorKind::Deleted, format!("session {parent} was deleted")));
                }
                let id = commit.session.to_string();
                let mut log = transaction.raw.open_table(EVENTS).map_err(failed)?;
                for event in events {
                    let place = (&*transaction.tenant, &*id, event.seq.get());
                    log.insert(place, &*event.to_json()).map_err(failed)?;
                }
                transaction.set(SESSIONS, &id, &after.to_json())?;
            }
            Ok(planned.committed())
        };
        self.transaction(work).await
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        self.transaction(move |transaction| transaction.existing_session(id).map(Arc::new)).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let work = move |transaction: &Transaction| {
            transaction.existing_session(id)?;
            let (start, end) = (read.after.next().get(), read.before.map_or(u64::MAX, Seq::get));
            if start >= end {
                return Ok(EventPage::default());
            }
            let (tenant, id) = (&*transaction.tenant, &*id.to_string());
            let log = transaction.raw.open_table(EVENTS).map_err(failed)?;
            let mut rows = log.range((tenant, id, start)..(tenant, id, end)).map_err(failed)?;
            let rows = std::iter::from_fn(|| if read.newest { rows.next_back() } else { rows.next() });
            EventPage::collect(&read, rows.map(|row| Event::from_json(row.map_err(failed)?.1.value())))
        };
        self.transaction(work).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        let work = move |transaction: &Transaction| {
            let summary =
                |(_, json): (_, String)| Ok(SessionSummary::from(&SessionRecord::from_json(&json)?));
            query.page(transaction.all(SESSIONS)?.into_iter().map(summary).collect::<Result<Vec<_>>>()?)
        };
        self.transaction(work).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        let purge = purge.sparing_forks(self).await?;
        let work = move |transaction: &Transaction| {
            let session = transaction.existing_session(purge.session)?;
            purge.check(&session)?;
            let (tenant, id) = (&*transaction.tenant, &*purge.session.to_string());
            let mut log = transaction.raw.open_table(EVENTS).map_err(failed)?;
            let range = (tenant, id, purge.keep_through.next().get())..(tenant, id, u64::MAX);
            let removed = log.extract_from_if(range, |_, _| true).map_err(failed)?;
            let removed = removed.map(|row| row.map(|_| 1).map_err(failed)).sum::<Result<u64>>()?;
            drop(log);
            transaction.sweep(purge.session, false)?;
            transaction.set(SESSIONS, id, &purge.tombstone_of(&session).to_json())?;
            Ok(Purged::new(removed))
        };
        self.transaction(work).await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Scope::Process, Durability::PowerLoss).with_blobs(BLOB_MOST)
    }

    fn leases(&self) -> &dyn LeaseStore {
        self
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }
}

#[async_trait]
impl LeaseStore for ToyStore {
    async fn heartbeat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        let work = move |transaction: &Transaction| {
            if transaction.existing_session(id)?.lease.is_some_and(|lease| lease.epoch == epoch) {
                let heartbeats = ".".repeat((transaction.heartbeats(id)? + 1) % 1000);
                transaction.set(HEARTBEATS, &id.to_string(), &heartbeats)?;
            }
            Ok(())
        };
        self.transaction(work).await
    }

    async fn status(&self, id: SessionId, _: Epoch) -> Result<LeaseStatus> {
        let work = move |transaction: &Transaction| {
            transaction.existing_session(id)?;
            Ok(LeaseStatus::new(transaction.heartbeats(id)? as u64, false))
        };
        self.transaction(work).await
    }
}

#[async_trait]
impl BlobStore for ToyStore {
    async fn put(&self, put: PutBlob) -> Result<()> {
        let (id, mut content) = (put.session, put.into_chunks(BLOB_MOST)?);
        let (blob, mut bytes) = (content.blob(), Vec::new());
        while let Some(chunk) = content.next().await? {
            bytes.extend_from_slice(&chunk);
        }
        let work = move |transaction: &Transaction| {
            let session = transaction.session(id)?;
            if session.is_some_and(|session| session.status.state == SessionState::Deleted)
                && !transaction.named(id)?.contains(&blob.name)
            {
                return Err(Error::new(ErrorKind::Deleted, format!("session {id} was deleted")));
            }
            let (tenant, session, name) = (&*transaction.tenant, &*id.to_string(), &*blob.name.to_string());
            let mut table = transaction.raw.open_table(BLOBS).map_err(failed)?;
            table.insert((tenant, session, name), &*bytes).map(drop).map_err(failed)
        };
        self.transaction(work).await
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        let (id, name) = (read.session, read.name);
        let bytes = self.transaction(move |transaction| transaction.blob(id, name, <[u8]>::to_vec)).await?;
        let bytes = bytes.ok_or_else(|| read.not_found())?;
        // A range of the bytes has no name by which it could be checked later.
        if BlobName::of(&bytes) != name {
            return Err(Error::new(ErrorKind::Corrupt, format!("blob {name} of session {id} is damaged")));
        }
        Ok(BlobContent::from_bytes(&read, bytes.into()))
    }

    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        let work = move |transaction: &Transaction| {
            query.page(transaction.blobs(Some(query.session))?.into_iter().map(|(_, blob)| blob))
        };
        self.transaction(work).await
    }

    async fn sweep(&self, sweep: SweepBlobs) -> Result<SweptBlobs> {
        let work = move |transaction: &Transaction| {
            let mut sessions = BTreeSet::from_iter(sweep.session);
            if sweep.session.is_none() {
                sessions.extend(transaction.blobs(None)?.into_iter().map(|(id, _)| id));
            }
            let mut swept = SweptBlobs::default();
            for id in sessions {
                if sweep.session.is_some() || transaction.session(id)?.is_none() {
                    swept += transaction.sweep(id, sweep.dry_run)?;
                }
            }
            Ok(swept)
        };
        self.transaction(work).await
    }
}

#[async_trait]
impl WorkspaceStore for ToyStore {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        self.transaction(move |transaction| transaction.workspace(id)).await
    }

    async fn put(&self, mut new: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        new.check()?;
        let work = move |transaction: &Transaction| {
            let now = match transaction.workspace(new.id) {
                Err(error) if *error.kind() == ErrorKind::NotFound => None,
                other => Some(other?),
            };
            new.prepare_put(now.as_ref(), expect)?;
            transaction.set(WORKSPACES, &new.id.to_string(), &new.to_json()).map(|()| new)
        };
        self.transaction(work).await
    }

    async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        let work = move |transaction: &Transaction| {
            let mut now = transaction.workspace(id)?;
            now.last_accessed = now.last_accessed.max(at);
            transaction.set(WORKSPACES, &id.to_string(), &now.to_json())
        };
        self.transaction(work).await
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        let work = move |transaction: &Transaction| {
            let alive = transaction.all(WORKSPACES)?.into_iter().filter(|(_, json)| json != TOMBSTONE);
            query.page(alive.map(|(_, json)| Workspace::from_json(&json)).collect::<Result<Vec<_>>>()?)
        };
        self.transaction(work).await
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        let work = move |transaction: &Transaction| match transaction.workspace(id) {
            Err(error) if *error.kind() == ErrorKind::Deleted => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                transaction.remove(CONFIGS, &id.to_string())?;
                transaction.set(WORKSPACES, &id.to_string(), TOMBSTONE)
            }
        };
        self.transaction(work).await
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        let work = move |transaction: &Transaction| {
            transaction.workspace(id)?;
            transaction.get(CONFIGS, &id.to_string())
        };
        self.transaction(work).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        ContentHash::check_size(text.as_deref()).map_err(|error| error.about(id))?;
        let work = move |transaction: &Transaction| {
            transaction.workspace(id)?;
            let now = transaction.get(CONFIGS, &id.to_string())?;
            ContentHash::check(expect, now.as_deref(), &format_args!("the configuration of workspace {id}"))?;
            match text {
                Some(text) => transaction.set(CONFIGS, &id.to_string(), &text),
                None => transaction.remove(CONFIGS, &id.to_string()).map(drop),
            }
        };
        self.transaction(work).await
    }
}

#[async_trait]
impl BindingStore for ToyStore {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let device = device.clone();
        let work = move |transaction: &Transaction| transaction.get(BINDINGS, device.as_str());
        self.transaction(work).await?.map(|id| Ok(id.parse()?)).transpose()
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        let device = device.clone();
        let work = move |transaction: &Transaction| {
            let now = transaction.get(BINDINGS, device.as_str())?.map(|id| id.parse()).transpose()?;
            let bound = decide_bind(&device, now, to, expect)?;
            transaction.set(BINDINGS, device.as_str(), &bound.to_string()).map(|()| bound)
        };
        self.transaction(work).await
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        let device = device.clone();
        self.transaction(move |transaction| transaction.remove(BINDINGS, device.as_str())).await
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let work = move |transaction: &Transaction| {
            let bound = transaction.all(BINDINGS)?.into_iter().filter(|(_, to)| *to == id.to_string());
            bound.map(|(device, _)| transaction.remove(BINDINGS, &device).map(u64::from)).sum()
        };
        self.transaction(work).await
    }

    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        let work = move |transaction: &Transaction| {
            let binding = |(device, to): (String, String)| Ok(Binding::new(device.parse()?, to.parse()?));
            query.page(transaction.all(BINDINGS)?.into_iter().map(binding).collect::<Result<Vec<_>>>()?)
        };
        self.transaction(work).await
    }
}
