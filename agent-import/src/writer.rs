//! Writes a transcript to its session: creates it, or goes on behind what an earlier import wrote.

use std::collections::HashMap;
use std::sync::Arc;

use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::{EventPayload, NewEvent, SystemMessage};
use agent_core::json::RawJson;
use agent_core::model::{Origin, Patch, Title};
use agent_core::session::{Fork, NewSession, SessionRecord};
use agent_core::state::SessionState;
use agent_core::{
    CommitId, Error, ErrorKind, Result, Seq, SessionId, SessionStoreExt, Storage, Timestamp, WorkspaceId,
};
use futures::TryStreamExt;

use crate::feed::{Content, Piece};
use crate::ids::{self, EntryId};
use crate::source::{Relation, Transcript};
use crate::text::clip;

/// Number of events, bytes and blobs from which on a commit ends where no call is open.
const ENOUGH: (usize, usize, usize) = (200, 1 << 20, 32);
/// Number of events, bytes and blobs that no commit exceeds.
const MOST: (usize, usize, usize) = (700, 24 << 20, 60);

/// Maximum number of bytes of a text about a session.
const ABOUT_MAX_BYTES: usize = 2048;

/// Target of an import.
pub(crate) struct Target {
    pub(crate) storage: Storage,
    pub(crate) format: &'static str,
    pub(crate) workspace: WorkspaceId,
    pub(crate) is_dry: bool,
}

/// Result for one transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Created,
    Grown,
    Unchanged,
    /// It has nothing that is imported.
    Empty,
}

impl Target {
    pub(crate) fn session_id(&self, transcript: &str) -> SessionId {
        let owner = self.storage.owner().map(ToString::to_string).unwrap_or_default();
        ids::session(self.format, &format!("{}/{owner}", self.workspace), transcript)
    }

    async fn load(&self, id: SessionId) -> Result<Option<Arc<SessionRecord>>> {
        match self.storage.sessions.load(id).await {
            Ok(session) => Ok(Some(session)),
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns what is written next for a transcript.
    pub(crate) async fn begin(&self, transcript: &Transcript) -> Result<Writer<'_>> {
        let id = self.session_id(&transcript.name);
        let now = self.load(id).await?;
        if now.as_ref().is_some_and(|now| now.status.state == SessionState::Deleted) {
            return Err(Error::new(
                ErrorKind::Deleted,
                format!("session {id}, to which it was imported, is deleted, and is not made again"),
            ));
        }
        // The last commit is found again among those of the source.
        let after = now.as_ref().and_then(|now| now.recent.last()).map(|recent| recent.id);
        let was_new = now.is_none();
        let (seen, new, batch) = (None, None, Batch::default());
        Ok(Writer { target: self, id, now, after, seen, new, was_new, batch, events: 0 })
    }

    /// Returns the session to create for a transcript, and how many of the entries that it shares are not to be written again.
    pub(crate) async fn new_session(
        &self,
        transcript: &Transcript,
        shared: &[EntryId],
    ) -> Result<(NewSession, usize)> {
        let id = self.session_id(&transcript.name);
        if self.is_dry {
            return Ok((NewSession::new(id, self.workspace), shared.len()));
        }
        let patch = patch(self.format, transcript);
        let parent = match &transcript.relation {
            Relation::None => None,
            Relation::Branch { of } | Relation::Child { of } => {
                self.load(self.session_id(of)).await?.filter(|it| it.status.state != SessionState::Deleted)
            }
        };
        let mut begun = None;
        match (&transcript.relation, &parent) {
            (Relation::Branch { .. }, Some(parent)) => begun = self.branch(id, parent, shared).await?,
            (Relation::Child { .. }, Some(parent)) => begun = Some((NewSession::child(id, parent), 0)),
            _ => {}
        }
        let (mut new, number) = begun.unwrap_or_else(|| {
            let mut new = NewSession::new(id, self.workspace);
            new.created.origin = Origin::Import;
            (new, 0)
        });
        new.created.owner = self.storage.owner().cloned();
        Ok((new.with_patch(&patch), number))
    }

    /// Returns a fork at the last commit of the parent's history whose entry is shared and behind which no call is open.
    async fn branch(
        &self,
        id: SessionId,
        parent: &SessionRecord,
        shared: &[EntryId],
    ) -> Result<Option<(NewSession, usize)>> {
        let mut ends: HashMap<CommitId, Seq> = HashMap::new();
        let mut events = self.storage.sessions.events(parent.id, Seq::ZERO);
        while let Some(event) = events.try_next().await? {
            if event.n == event.of {
                ends.insert(event.commit, event.seq);
            }
        }
        let line = parent.lineage.segments.iter().map(|segment| segment.session).chain([parent.id]);
        let line: Vec<_> = line.collect();
        for (number, entry) in shared.iter().enumerate().rev() {
            let Some(at) = line.iter().find_map(|session| ends.get(&ids::commit(*session, *entry))) else {
                continue;
            };
            match self.storage.sessions.plan_fork(parent, id, Fork::at(*at)).await {
                Ok(new) => return Ok(Some((new, number + 1))),
                // A call is open there.
                Err(error) if *error.kind() == ErrorKind::InvalidInput => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Returns the attributes of a new session.
fn patch(format: &str, transcript: &Transcript) -> Patch {
    let mut patch = Patch::new().with_label("imported_from", format);
    let name = clip(&transcript.name, 512);
    if !name.is_empty() {
        patch = patch.with_reference("imported_from", name);
    }
    if let Some(title) = transcript.title.as_deref().map(|title| clip(title, 512)).filter(|it| !it.is_empty())
    {
        patch = patch.with_title(Title::generated(title));
    }
    for (name, text) in &transcript.about {
        let text = clip(text, ABOUT_MAX_BYTES);
        if !text.is_empty() {
            patch = patch.with_metadata(*name, RawJson::sure(&text));
        }
    }
    patch
}

/// Session that is being written.
pub(crate) struct Writer<'t> {
    target: &'t Target,
    id: SessionId,
    now: Option<Arc<SessionRecord>>,
    /// Commit that the source must have, before anything is added.
    after: Option<CommitId>,
    /// Last commit that the whole source would have made.
    seen: Option<CommitId>,
    new: Option<NewSession>,
    was_new: bool,
    batch: Batch,
    pub(crate) events: u64,
}

/// Pieces that are written in one commit.
#[derive(Default)]
struct Batch {
    events: Vec<NewEvent>,
    bytes: usize,
    blobs: usize,
    at: Option<Timestamp>,
    last: Option<EntryId>,
    /// Number of events up to the last point behind which no call is open, and the entry before it.
    safe: Option<(usize, EntryId)>,
}

impl Batch {
    const fn is_open(&self) -> bool {
        match self.safe {
            Some((safe, _)) => safe < self.events.len(),
            None => !self.events.is_empty(),
        }
    }
}

impl Writer<'_> {
    /// Returns whether the session is to be created.
    pub(crate) const fn is_new(&self) -> bool {
        self.was_new
    }

    /// Sets the session to create.
    pub(crate) fn create(&mut self, new: NewSession) {
        self.new = Some(new);
    }

    pub(crate) async fn write(&mut self, piece: Piece) -> Result<()> {
        let commit = ids::commit(self.id, piece.id);
        self.seen = Some(commit);
        if let Some(after) = self.after {
            if commit == after {
                self.after = None;
            }
            return Ok(());
        }
        let (events, bytes, blobs) = ENOUGH;
        let batch = &self.batch;
        let is_enough =
            piece.begins_turn || batch.events.len() >= events || batch.bytes >= bytes || batch.blobs >= blobs;
        let (events, bytes, blobs) = MOST;
        let is_too_much = batch.events.len() + piece.count() > events
            || batch.bytes + piece.bytes > bytes
            || batch.blobs + piece.blobs > blobs;
        if (is_enough && !batch.is_open()) || is_too_much {
            self.flush().await?;
        }
        match piece.content {
            Content::Compaction(summary) => self.compaction(summary, piece.id, piece.at).await,
            Content::Events(events) => {
                let batch = &mut self.batch;
                batch.events.extend(events);
                batch.bytes += piece.bytes;
                batch.blobs += piece.blobs;
                batch.at = batch.at.or(Some(piece.at));
                batch.last = Some(piece.id);
                if !piece.is_open {
                    batch.safe = Some((batch.events.len(), piece.id));
                }
                Ok(())
            }
        }
    }

    /// Writes a summary in place of all that is before it.
    async fn compaction(&mut self, summary: String, id: EntryId, at: Timestamp) -> Result<()> {
        self.flush().await?;
        let until =
            self.now.as_ref().map(|now| (now.visible_from.max(now.context_from), now.pair_safe_head()));
        let event = match until {
            Some((from, until)) if until > from => NewEvent::compacted(until, summary),
            // Nothing is there that it could replace.
            _ => NewEvent::of(&EventPayload::SystemMessage(SystemMessage::injected(summary))),
        };
        self.batch =
            Batch { events: vec![event.with_at(at)], at: Some(at), last: Some(id), ..Batch::default() };
        self.flush().await
    }

    /// Commits the batch.
    async fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let (Some(last), Some(at)) = (batch.last, batch.at) else { return Ok(()) };
        let id = ids::commit(self.id, last);
        self.events += batch.events.len() as u64;
        if self.target.is_dry {
            return Ok(());
        }
        let commit = match (&self.now, self.new.take()) {
            (Some(now), _) => {
                Commit::new(id, self.id, at, now.head).with_precondition(Precondition::Matches(now.head))
            }
            (None, Some(new)) => {
                let seen = new.created.lineage.base();
                Commit::new(id, self.id, at, seen)
                    .with_precondition(Precondition::MustNotExist)
                    .with_trigger(Trigger::Create(Box::new(new)))
                    .with_trigger(Trigger::Ready)
            }
            (None, None) => return Ok(()),
        };
        let commit = commit.with_trigger(Trigger::ImportEvents(batch.events));
        let done = self.target.storage.sessions.commit_new_with_retry(commit).await?;
        self.now = Some(done.session);
        Ok(())
    }

    /// Ends the transcript. What is behind the last point without open calls is left out. Returns what was done, and whether an end
    /// was left out.
    pub(crate) async fn end(mut self) -> Result<(Done, u64, bool)> {
        if self.after.is_some() {
            return self.unmatched().await;
        }
        let is_open = self.batch.is_open();
        let (events, last) = self.batch.safe.map_or((0, None), |(events, last)| (events, Some(last)));
        self.batch.events.truncate(events);
        self.batch.last = last;
        self.flush().await?;
        let done = match (self.was_new, self.events) {
            (true, 0) => Done::Empty,
            (false, 0) => Done::Unchanged,
            (true, _) => Done::Created,
            (false, _) => Done::Grown,
        };
        Ok((done, self.events, is_open))
    }

    /// Ends a transcript of which the session's last commit is none: the session was continued here, or its source was changed.
    async fn unmatched(self) -> Result<(Done, u64, bool)> {
        let (Some(now), Some(seen)) = (&self.now, self.seen) else {
            return Ok((Done::Unchanged, 0, false));
        };
        let mut events = self.target.storage.sessions.events(self.id, now.lineage.base());
        while let Some(event) = events.try_next().await? {
            if event.commit == seen {
                return Ok((Done::Unchanged, 0, false));
            }
        }
        Err(Error::invalid(format!(
            "session {} was continued here, or its source was rewritten, so that nothing is added; delete it to import it anew, or import it \
             to another workspace",
            self.id
        )))
    }
}

impl Piece {
    fn count(&self) -> usize {
        match &self.content {
            Content::Events(events) => events.len(),
            Content::Compaction(_) => 1,
        }
    }
}
