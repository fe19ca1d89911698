//! Session that lists the segments of an index.

use std::fmt::Write;

use bytes::Bytes;
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::base::json::RawJson;
use crate::base::{
    BlobName, CommitId, Effects, ErrorKind, Reason, Result, Seq, SessionId, SessionState, Timestamp,
    WorkspaceId, uuid_of,
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
    /// Time of its last event.
    at: Timestamp,
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
        self.status.state == SessionState::Archived && is_part(self)
    }
}

/// Returns whether a session is a part of an index that is there, or that was deleted and still has its bytes: a purge takes the labels.
fn is_part(session: &SessionSummary) -> bool {
    let label = session.attributes.labels.get(HiddenSession::LABEL);
    label.is_some_and(|label| label == ROOT || label == SEGMENT)
        && session.attributes.title.is_none()
        && session.counts == Counts::default()
}

/// Returns the parts of indexes with this label and one of these states that the handle shows.
async fn labelled<const N: usize>(
    store: &dyn SessionStore,
    label: &str,
    states: [SessionState; N],
) -> Result<Vec<SessionSummary>> {
    let query = SessionQuery::new().with_label(HiddenSession::LABEL, label).with_limit(PAGE_MAX);
    let query = query.with_states(states);
    let pages: Vec<_> = pages(query, |query| store.list(query)).try_collect().await?;
    Ok(pages.into_iter().flat_map(|page| page.items).filter(is_part).collect())
}

impl Root {
    /// Finds the index that a handle made: the oldest, if several processes began one.
    pub(super) async fn find(sessions: &Sessions) -> Result<Option<Self>> {
        let found = labelled(&**sessions, ROOT, [SessionState::Archived]).await?;
        let own = found.iter().filter(|session| session.owner.as_ref() == sessions.owner());
        let Some(root) = own.min_by_key(|session| session.id) else { return Ok(None) };
        Self::read(&**sessions, root).await
    }

    /// Reads the state of an index.
    async fn read(store: &dyn SessionStore, session: &SessionSummary) -> Result<Option<Self>> {
        let (index, outdated) = (event_type("index")?, event_type("outdated")?);
        let read = ReadEvents::last(EVENTS).with_types([index.clone(), outdated]);
        let events = store.read(session.id, read).await?.events;
        let Some(last) = events.last() else { return Ok(None) };
        let state = events.iter().rev().find(|event| event.kind == index);
        let parsed = state.and_then(|event| event.payload.to::<Manifest>().ok());
        let mut manifest = parsed.filter(|state| state.format == FORMAT && state.rules == rules());
        if let Some(manifest) = manifest.as_mut().filter(|_| last.kind != index) {
            manifest.updated_at = None;
        }
        // The list may be older, and others may have changed labels.
        Ok(Some(Self { id: session.id, head: session.head.max(last.seq), at: last.at, manifest }))
    }

    /// Begins an index.
    pub(super) async fn create(sessions: &Sessions) -> Result<Self> {
        let manifest = Manifest::new(sessions.effects());
        let event = manifest.event()?;
        let (id, head) = create(sessions, ROOT, sessions.effects().new_session_id(), event).await?;
        Ok(Self { id, head, at: sessions.effects().now(), manifest: Some(manifest) })
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

/// Deletes a part of an index, also one that is deleted already, with its bytes. Returns false if these are still there: the store cannot purge, or a damaged session may be a
/// fork of this one.
pub(super) async fn remove(sessions: &Sessions, id: SessionId) -> Result<bool> {
    let deleted = match sessions.trigger(id, Trigger::Delete(Reason::Collected)).await {
        Ok(committed) => committed.session,
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    match sessions.purge(Purge::new(id, deleted.head)).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Corrupt) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the parts of indexes of this handle whose bytes are there: those that name segments first.
pub(super) async fn parts(sessions: &Sessions) -> Result<Vec<SessionSummary>> {
    let states = [SessionState::Archived, SessionState::Deleted];
    let mut found = labelled(&**sessions, ROOT, states).await?;
    found.extend(labelled(&**sessions, SEGMENT, states).await?);
    found.retain(|session| session.owner.as_ref() == sessions.owner());
    Ok(found)
}

/// Makes each index look at all sessions again. Of several that note it of one state, one does.
pub(super) async fn outdate(store: &dyn SessionStore) -> Result<()> {
    for session in labelled(store, ROOT, [SessionState::Archived]).await? {
        let Some(root) = Root::read(store, &session).await? else { continue };
        if root.manifest.is_some_and(|manifest| manifest.updated_at.is_some()) {
            let event = NewEvent::new(event_type("outdated")?, RawJson::of(&())?);
            let state = root.head.get().to_string();
            let id = CommitId::from_uuid(uuid_of(root.id.as_uuid(), &["outdated", &state]));
            let commit = Commit::new(id, root.id, root.at, root.head).with_event(event);
            commit_with_retry(store, true, commit).await?;
        }
    }
    Ok(())
}
