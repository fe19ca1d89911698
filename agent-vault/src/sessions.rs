//! Sessions of an encrypted store.

use std::fmt;
use std::sync::Arc;

use agent_core::commit::{Commit, Committed, Step, Trigger};
use agent_core::event::{Event, EventType};
use agent_core::model::Attributes;
use agent_core::sealing::{SealedBlob, open_event, open_record, open_summary};
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{
    BlobStore, Capabilities, Damaged, EventPage, Isolation, Maintenance, MaintenanceWrapper, PAGE_MAX, Page,
    Purge, Purged, ReadEvents, SessionQuery, SessionStoreWrapper,
};
use agent_core::{Error, ErrorKind, Result, SessionId, SessionStore, Timestamp, WriteOutcome, async_trait};
use futures::{StreamExt, stream};

use crate::blobs;
use crate::keys::Keys;
use crate::sealing::{SessionSealing, label};

/// Number of keys that a list reads at once.
const AT_ONCE: usize = 16;

/// Sessions of one tenant, sealed on their way to another store.
#[derive(Clone)]
pub(crate) struct SealedSessions {
    pub(crate) inner: Arc<dyn SessionStore>,
    pub(crate) keys: Keys,
}

impl fmt::Debug for SealedSessions {
    /// Shows nothing of the other store.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedSessions").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl SealedSessions {
    /// Returns the keys of a session; `None` if it has none.
    pub(crate) async fn sealing(&self, id: SessionId) -> Result<Option<SessionSealing>> {
        match self.keys.session(id).await? {
            Some(cipher) => Ok(Some(self.with(cipher).await?)),
            None => Ok(None),
        }
    }

    /// Opens something of a session; `None` if it has no key. If it does not open with the key that is known, looks whether the session has
    /// another one: the tenant may have been deleted, and the id used again.
    async fn opened<T: Send>(
        &self,
        id: SessionId,
        open: impl Fn(&SessionSealing) -> Result<T> + Send + Sync,
    ) -> Result<Option<T>> {
        let Some(sealing) = self.sealing(id).await? else { return Ok(None) };
        let error = match open(&sealing) {
            Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Corrupt) => error,
            done => return done.map(Some),
        };
        self.keys.forget(Some(id));
        match self.sealing(id).await? {
            Some(again) if !again.is_same(&sealing) => open(&again).map(Some),
            _ => Err(error),
        }
    }

    async fn with(&self, cipher: Arc<crate::cipher::Cipher>) -> Result<SessionSealing> {
        let labels = self.keys.tenant().await?;
        let tenant = self.keys.tenant_id().clone();
        Ok(SessionSealing { tenant, cipher, labels, blobs: Vec::new(), is_stand_in: false })
    }

    /// Returns the key of a session; none if the session was deleted and its key does not open, so that the store says what it says of a
    /// tombstone.
    async fn key_to_commit(&self, id: SessionId) -> Result<Option<Arc<crate::cipher::Cipher>>> {
        match self.keys.session(id).await {
            Err(error) if is_unopened(&error) => {
                if self.is_deleted(id).await? {
                    Ok(None)
                } else {
                    Err(error)
                }
            }
            found => found,
        }
    }

    async fn is_deleted(&self, id: SessionId) -> Result<bool> {
        match self.inner.load(id).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(false),
            record => Ok(record?.status.state == SessionState::Deleted),
        }
    }

    /// Returns the keys for a commit, and makes them for one that creates its session.
    async fn to_commit(&self, commit: &Commit) -> Result<SessionSealing> {
        let id = commit.session;
        let found = if creates(commit) {
            self.check_new(id).await?;
            Some(self.keys.session_to_create(id).await?)
        } else {
            self.key_to_commit(id).await?
        };
        let Some(cipher) = found else {
            // The commit creates nothing: it is refused as by any store, or since the session has no key.
            let is_stand_in = self.is_deleted(id).await?;
            return Ok(SessionSealing { is_stand_in, ..self.with(self.keys.of_nobody()).await? });
        };
        let mut sealing = self.with(cipher).await?;
        for name in commit.named_blobs() {
            sealing.blobs.extend(blobs::find(&self.keys, &sealing.cipher, id, name).await?);
        }
        Ok(sealing)
    }

    /// Checks that a session without a key does not exist, before it gets one: another key than the lost one would open nothing, and be in the
    /// place of the row that is restored.
    pub(crate) async fn check_new(&self, id: SessionId) -> Result<()> {
        if self.keys.session(id).await?.is_some() {
            return Ok(());
        }
        match self.inner.load(id).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if *error.kind() != ErrorKind::Corrupt => return Err(error),
            Ok(record) if record.status.state == SessionState::Deleted => {
                return Err(Error::deleted(format!("session {id} was deleted; its id is not used again")));
            }
            _ => {}
        }
        // Another process may have created it meanwhile, and its key before.
        match self.keys.session(id).await? {
            Some(_) => Ok(()),
            None => Err(keyless(id)),
        }
    }

    /// Deletes a session that does not open, as if it had words that nobody needs: its key is lost or damaged, or it was written without the
    /// keys. Its numbers can be read, so that its store takes a commit.
    async fn delete_unopened(&self, id: SessionId, at: Timestamp, reason: Reason) -> Result<()> {
        let record = self.inner.load(id).await?;
        let mut delete =
            Commit::seal(self.keys.effects(), id, record.head).with_trigger(Trigger::Delete(reason));
        delete.at = at;
        if record.sealed_by.is_some() {
            let sealing = SessionSealing { is_stand_in: true, ..self.with(self.keys.of_nobody()).await? };
            delete = delete.with_sealing(Arc::new(sealing));
        }
        self.inner.commit(delete).await.map(drop)
    }

    /// Checks that the tenant still has the keys by which a session was created. If it was deleted meanwhile, the session is deleted, too, since
    /// nobody else could open it.
    async fn check_still_there(&self, sealing: &Arc<SessionSealing>, done: &Committed) -> Result<()> {
        let now = self.keys.stored_tenant().await?;
        if now.key_id() == sealing.labels.key_id() {
            return Ok(());
        }
        let (id, session) = (done.session.id, &done.session);
        let delete = Commit::seal(self.keys.effects(), id, session.head)
            .with_trigger(Trigger::Delete(Reason::UserDeleted));
        let deleted = self.inner.commit(delete.with_sealing(sealing.clone())).await?;
        self.inner.purge(Purge::new(id, deleted.last)).await?;
        Err(Error::deleted(format!("session {id} was deleted with its tenant while it was created")))
    }

    async fn open_listed(&self, summary: SessionSummary) -> Result<SessionSummary, Damaged> {
        let id = summary.id;
        let opened = match self.opened(id, |sealing| open_summary(&summary, sealing)).await {
            Ok(Some(opened)) => Ok(opened),
            Ok(None) if summary.status.state == SessionState::Deleted => Ok(without_words(summary.clone())),
            Ok(None) => Err(keyless(id)),
            // Nobody reads the words of a deleted session again.
            Err(error) if is_unopened(&error) && summary.status.state == SessionState::Deleted => {
                Ok(without_words(summary.clone()))
            }
            Err(error) if *error.kind() == ErrorKind::Deleted => match self.is_deleted(id).await {
                Ok(true) => Ok(without_words(summary.clone())),
                Ok(false) => Err(dropped(id)),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        opened.map_err(|error| Damaged::of(format!("session {id}"), &error).with_workspace(summary.workspace))
    }
}

/// Returns whether a commit may create its session.
fn creates(commit: &Commit) -> bool {
    match commit.steps.first() {
        Some(Step::Trigger(Trigger::Create(_))) => true,
        Some(Step::Trigger(Trigger::Restore(events))) => {
            events.first().is_some_and(|event| event.kind == EventType::SESSION_CREATED)
        }
        _ => false,
    }
}

/// Opens events up to the first that does not open.
fn open_in_order(
    id: SessionId,
    sealed: &[Event],
    sealing: &SessionSealing,
) -> Result<(Vec<Event>, Option<Error>)> {
    let mut events = Vec::with_capacity(sealed.len());
    for event in sealed {
        match open_event(id, event, sealing) {
            Ok(event) => events.push(event),
            Err(error) if events.is_empty() => return Err(error),
            Err(error) => return Ok((events, Some(error))),
        }
    }
    Ok((events, None))
}

fn keyless(id: SessionId) -> Error {
    Error::corrupt(format!(
        "session {id} has no key, and this store is encrypted: its row is lost, or the session was written without the keys; restore the \
         row session/…/{id} from a backup, or delete the session"
    ))
}

fn dropped(id: SessionId) -> Error {
    Error::corrupt(format!(
        "the key of session {id} was dropped, and the session was not deleted; nobody can read it any more, so delete it"
    ))
}

/// Returns whether something does not open since its key is dropped, damaged or another one, or since it is not sealed.
fn is_unopened(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Denied | ErrorKind::Deleted)
}

fn opened_tombstone(record: &SessionRecord) -> Arc<SessionRecord> {
    let mut tombstone = record.tombstone();
    tombstone.sealed_by = None;
    Arc::new(tombstone)
}

fn without_words(summary: SessionSummary) -> SessionSummary {
    let mut summary = summary;
    summary.attributes = Attributes::default();
    (summary.first_words, summary.preview) = (None, None);
    summary
}

/// Names the blobs of an error as their owner does.
fn plain_error(error: Error, blobs: &[SealedBlob]) -> Error {
    let ErrorKind::BlobMissing { blobs: missing } = error.kind() else { return error };
    let plain = blobs.iter().filter(|blob| missing.contains(&blob.inner.name)).map(|blob| blob.plain.name);
    let names: Vec<_> = plain.collect();
    if names.is_empty() {
        return error;
    }
    let first = names.first().map(ToString::to_string).unwrap_or_default();
    let text = format!(
        "blob {first} is missing ({} of those that the commit names); put it, then send the commit again",
        names.len()
    );
    Error::new(ErrorKind::BlobMissing { blobs: names }, text)
}

#[async_trait]
impl SessionStoreWrapper for SealedSessions {
    fn inner(&self) -> &dyn SessionStore {
        &*self.inner
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        let most = blobs::most(inner.blob_max_bytes);
        // A second wall between owners, which the backend has, is not reached through this one.
        inner.with_blobs(most).with_isolation(Isolation::None)
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let is_created = creates(&commit);
        let mut sealing = Arc::new(self.to_commit(&commit).await?);
        let mut done = self.inner.commit(commit.clone().with_sealing(sealing.clone())).await;
        if let Err(error) = &done
            && *error.kind() == ErrorKind::Denied
        {
            let id = commit.session;
            self.keys.forget(Some(id));
            let mut again = self.to_commit(&commit).await?;
            // The key of a tombstone does not matter.
            again.is_stand_in |= again.is_same(&sealing) && self.is_deleted(id).await?;
            if again.is_stand_in || !again.is_same(&sealing) {
                sealing = Arc::new(again);
                done = self.inner.commit(commit.with_sealing(sealing.clone())).await;
            }
        }
        let mut done = done.map_err(|error| plain_error(error, &sealing.blobs))?;
        let unsure = |error: Error| error.with_outcome(WriteOutcome::Unknown);
        done.session = match sealing.is_stand_in {
            true => opened_tombstone(&done.session),
            false => Arc::new(open_record(&done.session, &*sealing).map_err(unsure)?),
        };
        if is_created {
            self.check_still_there(&sealing, &done).await.map_err(unsure)?;
        }
        Ok(done)
    }

    /// Purges, and drops the key once no event of the session is left that a living fork reads.
    async fn purge(&self, purge: Purge) -> Result<Purged> {
        let (id, unsure) = (purge.session, |error: Error| error.with_outcome(WriteOutcome::Unknown));
        // Whoever has another root key removes nothing.
        self.keys.is_made().await?;
        let done = self.inner.purge(purge).await?;
        if self.inner.read(id, ReadEvents::first(1)).await.map_err(unsure)?.events.is_empty() {
            self.keys.drop_purged(id).await.map_err(unsure)?;
        }
        Ok(done)
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let record = self.inner.load(id).await?;
        match self.opened(id, |sealing| open_record(&record, sealing)).await {
            Ok(Some(opened)) => Ok(Arc::new(opened)),
            Ok(None) if record.status.state == SessionState::Deleted => Ok(opened_tombstone(&record)),
            Ok(None) => Err(keyless(id)),
            // Its key was dropped, or is damaged, or another one. The keys of the tenant are not.
            Err(error) if is_unopened(&error) && record.status.state == SessionState::Deleted => {
                self.keys.tenant().await?;
                Ok(opened_tombstone(&record))
            }
            Err(error) => Err(error),
        }
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        // The sizes of a page are those of what was sealed, so it may take several pages of the store.
        let (is_newest, limit) = (read.newest, read.limit.min(PAGE_MAX));
        let mut page = EventPage::default();
        let (mut bytes, mut next) = (0, Some(read.clone()));
        let mut is_full = false;
        while let Some(ask) = next.take().filter(|_| !is_full) {
            let mut part = self.inner.read(id, ask).await?;
            next = part.next.take();
            page.damaged.append(&mut part.damaged);
            if part.events.is_empty() {
                break;
            }
            if is_newest {
                part.events.reverse();
            }
            let opened = self.opened(id, |sealing| open_in_order(id, &part.events, sealing));
            let (events, fault) = match opened.await {
                Ok(opened) => opened.ok_or_else(|| keyless(id))?,
                Err(error) if *error.kind() == ErrorKind::Corrupt && !page.events.is_empty() => {
                    (Vec::new(), Some(error))
                }
                Err(error) => return Err(error),
            };
            for event in events {
                bytes += event.size_bytes();
                is_full = page.events.len() >= limit || (!page.events.is_empty() && bytes > read.max_bytes);
                if is_full {
                    break;
                }
                page.events.push(event);
            }
            match fault {
                Some(fault) if !is_full && page.events.is_empty() => return Err(fault),
                Some(fault) if !is_full => {
                    page.damaged.push(Damaged::new(format!("session {id}"), fault.to_string()));
                    break;
                }
                _ => {}
            }
            is_full |= page.events.len() >= limit && next.is_some();
        }
        if is_full {
            page.next = page.events.last().map(|last| read.continued(last.seq));
        }
        if is_newest {
            page.events.reverse();
        }
        Ok(page)
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        let query = if query.labels.is_empty() {
            query
        } else {
            let labels = self.keys.stored_tenant().await?;
            query.with_marked_labels(|key, value| label(&labels, key, value))
        };
        let mut page = self.inner.list(query).await?;
        if !page.items.is_empty() {
            // A key that is wrapped by another root key is no damage of each session.
            self.keys.tenant().await?;
        }
        let summaries = std::mem::take(&mut page.items);
        let opened: Vec<_> = stream::iter(summaries)
            .map(|summary| self.open_listed(summary))
            .buffered(AT_ONCE)
            .collect()
            .await;
        for summary in opened {
            match summary {
                Ok(summary) => page.items.push(summary),
                Err(damaged) => page.damaged.push(damaged),
            }
        }
        Ok(page)
    }
}

#[async_trait]
impl MaintenanceWrapper for SealedSessions {
    fn inner(&self) -> &dyn Maintenance {
        self.inner.maintenance()
    }

    /// Deletes a session that its store cannot read, or that does not open: its key is lost or damaged, or it was written without the keys.
    async fn delete_damaged(
        &self,
        id: SessionId,
        at: Timestamp,
        reason: Reason,
    ) -> Result<Arc<SessionRecord>> {
        // Whoever has another root key removes nothing.
        self.keys.tenant().await?;
        let is_stored = match SessionStoreWrapper::load(self, id).await {
            Ok(record) if record.status.state == SessionState::Deleted => return Ok(record),
            Err(error) if is_unopened(&error) => self.inner.load(id).await.is_ok(),
            Err(error) => return Err(error),
            Ok(_) => false,
        };
        if is_stored {
            self.delete_unopened(id, at, reason).await?;
        } else {
            self.inner.maintenance().delete_damaged(id, at, reason).await?;
        }
        SessionStoreWrapper::load(self, id).await
    }
}
