//! Session that lists the segments of an index.

use std::fmt::Write;

use bytes::Bytes;
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::base::json::RawJson;
use crate::base::{
    BlobName, Effects, ErrorKind, Reason, Result, Seq, SessionId, SessionState, Timestamp, WorkspaceId,
};
use crate::commit::{Commit, Trigger};
use crate::event::{EventType, NewEvent};
use crate::model::{Counts, Patch};
use crate::session::{NewSession, SessionSummary};
use crate::store::blob::PutBlob;
use crate::store::hidden::HiddenSession;
use crate::store::page::{PAGE_MAX, pages};
use crate::store::read::ReadEvents;
use crate::store::retry::commit_with_retry;
use crate::store::session::{Purge, SessionQuery, SessionStore};
use crate::store::sessions::Sessions;

/// Values of the label `hidden` of the sessions of an index.
const ROOT: &str = "search-index";
const SEGMENT: &str = "search-segment";

/// Version of the form of an index.
const FORMAT: u32 = 1;

/// Version of the rules by which texts become tokens, besides those of Unicode.
const RULES: u32 = 1;

/// Most events that are read for the newest state of an index.
const EVENTS: usize = 20;

/// State of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    /// Rules by which texts became tokens.
    rules: String,
    /// Key of the hashes of tokens, in hexadecimal digits.
    key: String,
    /// Time at which the last update began that has looked at all sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) updated_at: Option<Timestamp>,
    /// Segments, in the order in which they were made.
    pub(super) segments: Vec<SegmentRef>,
}

/// Where a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentRef {
    pub(super) session: SessionId,
    pub(super) blob: BlobName,
    pub(super) bytes: u64,
}

/// Index as it was found.
#[derive(Clone, Debug)]
pub(super) struct Root {
    pub(super) id: SessionId,
    pub(super) head: Seq,
    /// Its state; `None` if this version does not read it.
    pub(super) manifest: Option<Manifest>,
}

fn event_type(name: &'static str) -> Result<EventType> {
    format!("x.search.{name}").parse()
}

fn rules() -> String {
    let (a, b, c) = char::UNICODE_VERSION;
    let (d, e, f) = unicode_normalization::UNICODE_VERSION;
    format!("{RULES} {a}.{b}.{c} {d}.{e}.{f}")
}

impl Manifest {
    pub(super) fn new(effects: &Effects) -> Self {
        let mut bytes = [0; 16];
        effects.fill(&mut bytes);
        let key = bytes.iter().fold(String::new(), |mut key, byte| {
            let _ = write!(key, "{byte:02x}");
            key
        });
        Self { format: FORMAT, rules: rules(), key, updated_at: None, segments: Vec::new() }
    }

    /// Returns the hash of a token.
    pub(super) fn hash(&self, token: &str) -> u64 {
        let hash = Sha256::new().chain_update(&self.key).chain_update(token).finalize();
        hash.first_chunk().copied().map_or(0, u64::from_le_bytes)
    }

    pub(super) fn event(&self) -> Result<NewEvent> {
        Ok(NewEvent::new(event_type("index")?, RawJson::of(self)?))
    }
}

impl SegmentRef {
    fn event(&self) -> Result<NewEvent> {
        Ok(NewEvent::new(event_type("segment")?, RawJson::of(self)?).with_blob(self.blob))
    }
}

impl SessionSummary {
    /// Returns whether the session belongs to a [search index](Sessions::update_search_index): its data are derived from other sessions, and
    /// nobody has said anything in it.
    pub fn is_of_search_index(&self) -> bool {
        let label = self.attributes.labels.get(HiddenSession::LABEL);
        self.status.state == SessionState::Archived
            && label.is_some_and(|label| label == ROOT || label == SEGMENT)
            && self.attributes.title.is_none()
            && self.counts == Counts::default()
    }
}

/// Returns all sessions that the handle shows of indexes, in any order: those with the state of one, or those with segments.
async fn labelled(store: &dyn SessionStore, label: &str) -> Result<Vec<SessionSummary>> {
    let query = SessionQuery::new().with_label(HiddenSession::LABEL, label).with_limit(PAGE_MAX);
    let query = query.with_states([SessionState::Archived]);
    let pages: Vec<_> = pages(query, |query| store.list(query)).try_collect().await?;
    Ok(pages.into_iter().flat_map(|page| page.items).filter(SessionSummary::is_of_search_index).collect())
}

impl Root {
    /// Finds the index that a handle made: the oldest, if several processes began one.
    pub(super) async fn find(sessions: &Sessions) -> Result<Option<Self>> {
        let found = labelled(&**sessions, ROOT).await?;
        let own = found.iter().filter(|session| session.owner.as_ref() == sessions.owner());
        let Some(root) = own.min_by_key(|session| session.id) else { return Ok(None) };
        Self::read(&**sessions, root.id).await
    }

    /// Reads the state of an index.
    async fn read(store: &dyn SessionStore, id: SessionId) -> Result<Option<Self>> {
        let head = store.load(id).await?.head;
        let (index, outdated) = (event_type("index")?, event_type("outdated")?);
        let read = ReadEvents::last(EVENTS).with_types([index.clone(), outdated]);
        let events = store.read(id, read).await?.events;
        let Some(last) = events.last() else { return Ok(None) };
        let state = events.iter().rev().find(|event| event.kind == index);
        let parsed = state.and_then(|event| event.payload.to::<Manifest>().ok());
        let mut manifest = parsed.filter(|state| state.format == FORMAT && state.rules == rules());
        if let Some(manifest) = manifest.as_mut().filter(|_| last.kind != index) {
            manifest.updated_at = None;
        }
        Ok(Some(Self { id, head: head.max(last.seq), manifest }))
    }

    /// Begins an index.
    pub(super) async fn create(sessions: &Sessions) -> Result<Self> {
        let manifest = Manifest::new(sessions.effects());
        let event = manifest.event()?;
        let (id, head) = create(sessions, ROOT, sessions.effects().new_session_id(), event).await?;
        Ok(Self { id, head, manifest: Some(manifest) })
    }

    /// Stores a new state, if nobody else has changed the index since. Returns false if somebody has.
    pub(super) async fn store(&mut self, sessions: &Sessions, manifest: Manifest) -> Result<bool> {
        let commit = sessions.seal_unchanged(self.id, self.head).with_event(manifest.event()?);
        match sessions.send(commit).await {
            Ok(committed) => {
                self.head = committed.last;
                self.manifest = Some(manifest);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Creates a session of an index.
async fn create(
    sessions: &Sessions,
    label: &str,
    id: SessionId,
    event: NewEvent,
) -> Result<(SessionId, Seq)> {
    let new = NewSession::new(id, WorkspaceId::DEFAULT)
        .with_patch(&Patch::new().with_label(HiddenSession::LABEL, label));
    let commit = Commit::create(sessions.effects(), new).with_trigger(Trigger::Archive).with_event(event);
    let committed = sessions.send(commit).await?;
    Ok((id, committed.last))
}

/// Stores a segment.
pub(super) async fn put(sessions: &Sessions, bytes: Bytes) -> Result<SegmentRef> {
    let session = sessions.effects().new_session_id();
    let put = PutBlob::of_bytes(session, bytes);
    let blob = put.blob;
    sessions.blobs().put(put).await?;
    let segment = SegmentRef { session, blob: blob.name, bytes: blob.bytes };
    create(sessions, SEGMENT, session, segment.event()?).await?;
    Ok(segment)
}

/// Deletes sessions of an index, with their bytes if the store can.
pub(super) async fn remove(sessions: &Sessions, id: SessionId) -> Result<()> {
    let deleted = match sessions.trigger(id, Trigger::Delete(Reason::Collected)).await {
        Ok(committed) => committed.session,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Deleted) => return Ok(()),
        Err(error) => return Err(error),
    };
    match sessions.purge(Purge::new(id, deleted.head)).await {
        Err(error) if *error.kind() == ErrorKind::Unsupported => Ok(()),
        purged => purged.map(drop),
    }
}

/// Returns the sessions of indexes of this handle, with the time of each: those that name segments first.
pub(super) async fn all(sessions: &Sessions) -> Result<Vec<(SessionId, Timestamp)>> {
    let mut found = labelled(&**sessions, ROOT).await?;
    found.extend(labelled(&**sessions, SEGMENT).await?);
    found.retain(|session| session.owner.as_ref() == sessions.owner());
    Ok(found.iter().map(|session| (session.id, session.created_at)).collect())
}

/// Makes each index look at all sessions again.
pub(super) async fn outdate(store: &dyn SessionStore, effects: &Effects) -> Result<()> {
    for session in labelled(store, ROOT).await? {
        let root = Root::read(store, session.id).await?;
        let is_trusted = |root: Root| root.manifest.is_some_and(|manifest| manifest.updated_at.is_some());
        if root.is_some_and(is_trusted) {
            let event = NewEvent::new(event_type("outdated")?, RawJson::of(&())?);
            let commit = Commit::seal(effects, session.id, session.head).with_event(event);
            commit_with_retry(store, true, commit).await?;
        }
    }
    Ok(())
}
