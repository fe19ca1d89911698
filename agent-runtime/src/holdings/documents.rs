//! The documents of a session: notes, memory blocks, a checkpoint, the state of a user interface.

use std::fmt;
use std::sync::Arc;

use tracing::debug;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Expect};
use agent_core::event::{Body, DocumentWritten, Event, NewEvent};
use agent_core::model::{Actor, DocumentHead};
use agent_core::session::Session;
use agent_core::store::ReadEvents;
use agent_core::{
    Error, ErrorKind, Result, Revision, Seq, SessionId, SessionStore, SessionStoreExt, Timestamp,
};

/// How often a write that somebody else was quicker with is tried again.
const ATTEMPTS: usize = 64;

/// The documents of one session: named texts in versions, each version an event of the session's log.
///
/// A write replaces the text as a whole and keeps its predecessor. It takes effect only where its writer knew the
/// version before, so of many writers none takes away unseen what another wrote; [`DocumentWrite`] says who gives
/// way. What an agent or a person wrote is never overwritten by [the system](Actor::SYSTEM). A fork takes over the
/// documents as they were at its point, and clearing leaves them. Documents start no run, and no model is shown them
/// unless the host does so.
///
/// A memory block is a document with a [limit](DocumentWrite::with_limit).
///
/// Cheap to clone. Every method may be dropped at any point; a dropped write was applied wholly or not at all.
///
/// ```
/// use agent_core::{MemoryStore, SessionStoreExt, Storage, WorkspaceId};
/// use agent_core::clock::Effects;
/// use agent_core::model::Actor;
/// use agent_core::session::NewSession;
/// use agent_runtime::holdings::{DocumentWrite, Documents};
///
/// # async fn example() -> agent_core::Result<()> {
/// let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
/// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
/// let session = storage.sessions.create(&effects, new).await?;
///
/// let documents = Documents::new(storage.sessions.clone(), effects, session.id);
/// documents.put(DocumentWrite::new("persona", "Brief and kind.", Actor::AGENT).with_limit(2000)).await?;
/// assert_eq!(documents.get("persona").await?.map(|document| document.text).as_deref(), Some("Brief and kind."));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Documents {
    sessions: Arc<dyn SessionStore>,
    effects: Effects,
    session: SessionId,
}

/// One version of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Document {
    /// Its name.
    pub name: String,
    /// The number of the version: 1, 2, 3 …
    pub revision: Revision,
    /// The whole text.
    pub text: String,
    /// The version of the text's own format; zero where its writer keeps no count.
    pub format: u32,
    /// Who wrote it.
    pub by: Actor,
    /// When it was written, by its writer's clock.
    pub at: Timestamp,
    /// The event that holds it.
    pub seq: Seq,
    /// The event with the version before; zero for the first.
    pub previous: Seq,
}

/// A version that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DocumentWrite {
    /// The document's name: 1 to 128 bytes without control characters.
    pub name: String,
    /// The whole text, at most 1 MiB; `None` removes the document.
    pub text: Option<String>,
    /// Who writes it.
    pub actor: Actor,
    /// What must be so: `Any` is the last write wins, `Is` the version that the writer has read, `Absent` none.
    pub expect: Expect<Revision>,
    /// The version of the text's own format.
    pub format: u32,
    /// The most bytes that the text may have, from now on; as before where it is `None`.
    pub limit: Option<u64>,
}

impl DocumentWrite {
    /// Writes `text`, whatever was there.
    pub fn new(name: impl Into<String>, text: impl Into<String>, actor: Actor) -> Self {
        Self {
            name: name.into(),
            text: Some(text.into()),
            actor,
            expect: Expect::Any,
            format: 0,
            limit: None,
        }
    }

    /// Removes the document. Its versions stay in the log; one that is written later under its name starts anew.
    pub fn remove(name: impl Into<String>, actor: Actor) -> Self {
        Self { text: None, ..Self::new(name, "", actor) }
    }

    /// Sets what must be so.
    #[must_use]
    pub const fn expect(mut self, expect: Expect<Revision>) -> Self {
        self.expect = expect;
        self
    }

    /// Sets the version of the text's own format.
    #[must_use]
    pub const fn with_format(mut self, format: u32) -> Self {
        self.format = format;
        self
    }

    /// Sets the most bytes that the text may have, from now on.
    #[must_use]
    pub const fn with_limit(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// The event, where the document is at `head`.
    fn after(&self, session: &Session) -> Result<NewEvent> {
        let head = session.document(&self.name);
        let fits = match (self.expect, head) {
            (Expect::Any, _) | (Expect::Absent, None) => true,
            (Expect::Is(revision), Some(head)) => head.revision == revision,
            _ => false,
        };
        if !fits {
            let is =
                head.map_or_else(|| "not there".to_owned(), |head| format!("at version {}", head.revision));
            return Err(Error::new(
                ErrorKind::Conflict { head: Some(session.head) },
                format!("document {} of session {} is {is}; read it again", self.name, session.id),
            ));
        }
        let written = DocumentWritten::after(head, self.name.clone(), self.text.clone())
            .with_format(self.format)
            .with_limit(self.limit);
        Ok(NewEvent::document_written(written).with_actor(self.actor.clone()))
    }
}

impl Documents {
    /// The name of an agent's checkpoint: where it was in its work.
    pub const CHECKPOINT: &'static str = "checkpoint";
    /// The name of an agent's note on the state of things.
    pub const STATE: &'static str = "state";
    /// The name of an agent's working buffer.
    pub const BUFFER: &'static str = "buffer";
    /// The name of the state of a user interface.
    pub const UI: &'static str = "ui";
    /// The most bytes of the state of a user interface.
    pub const UI_MAX_BYTES: u64 = 64 << 10;

    /// The documents of `session`. No I/O.
    pub const fn new(sessions: Arc<dyn SessionStore>, effects: Effects, session: SessionId) -> Self {
        Self { sessions, effects, session }
    }

    /// The documents that there are, without their texts. Reads the record only.
    ///
    /// # Errors
    ///
    /// Those of [`SessionStore::load`].
    pub async fn list(&self) -> Result<Vec<DocumentHead>> {
        Ok(self.sessions.load(self.session).await?.documents.clone())
    }

    /// The newest version of a document. Reads the record and one event, however long the session is.
    ///
    /// # Errors
    ///
    /// Those of the store; `Corrupt` where the version cannot be read.
    pub async fn get(&self, name: &str) -> Result<Option<Document>> {
        let session = self.sessions.load(self.session).await?;
        match session.document(name) {
            Some(head) => self.at(&session, head.seq).await.map(Some),
            None => Ok(None),
        }
    }

    /// The versions of a document, the newest first, at most `limit`. Reads one event for each.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn versions(&self, name: &str, limit: usize) -> Result<Vec<Document>> {
        let session = self.sessions.load(self.session).await?;
        let mut next = session.document(name).map_or(Seq::ZERO, |head| head.seq);
        let mut versions = Vec::new();
        while next > Seq::ZERO && versions.len() < limit {
            let version = self.at(&session, next).await?;
            next = version.previous;
            versions.push(version);
        }
        Ok(versions)
    }

    /// One version of a document; `None` where there is no such version. Reads the versions after it, too.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub async fn version(&self, name: &str, revision: Revision) -> Result<Option<Document>> {
        let session = self.sessions.load(self.session).await?;
        let mut next = session.document(name).map_or(Seq::ZERO, |head| head.seq);
        while next > Seq::ZERO {
            let version = self.at(&session, next).await?;
            if version.revision <= revision {
                return Ok(Some(version).filter(|version| version.revision == revision));
            }
            next = version.previous;
        }
        Ok(None)
    }

    /// Writes a version; returns its number.
    ///
    /// # Errors
    ///
    /// `Conflict` where what must be so is not; `LimitExceeded` for a text over its limit, a document too many or a
    /// record that is full, and nothing is cut; `InvalidInput` for a bad name, and where the system would write over
    /// what an agent or a person wrote; those of the store.
    pub async fn put(&self, write: DocumentWrite) -> Result<Revision> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let now = self.sessions.load(self.session).await?;
            let is_gone = write.text.is_none() && now.document(&write.name).is_none();
            if is_gone && write.expect == Expect::Any {
                return Ok(Revision::ZERO);
            }
            let commit = Commit::seal(&self.effects, self.session, now.head).event(write.after(&now)?);
            match self.sessions.settle(commit).await {
                Ok(_) => {
                    return Ok(now.document(&write.name).map_or(Revision::ZERO, |head| head.revision).next());
                }
                // Somebody wrote in between; what must be so is looked at again.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last
            .unwrap_or_else(|| Error::invalid(format!("document {} was not written; try again", write.name))))
    }

    /// Makes an earlier version the newest again: its text is written as a further version. Returns its number.
    ///
    /// # Errors
    ///
    /// `NotFound` where there is no such version; those of [`put`](Self::put).
    pub async fn restore(&self, name: &str, revision: Revision, actor: Actor) -> Result<Revision> {
        let version = self.version(name, revision).await?.ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("session {} has no version {revision} of document {name}", self.session),
            )
        })?;
        self.put(DocumentWrite::new(name, version.text, actor).with_format(version.format)).await
    }

    /// Keeps the state of a user interface, as well as may be: the last write wins, one over 64 KiB is not kept, and
    /// no failure is more than `false`.
    pub async fn save_ui(&self, text: &str) -> bool {
        let write = DocumentWrite::new(Self::UI, text, Actor::USER).with_limit(Self::UI_MAX_BYTES);
        let saved = self.put(write).await;
        if let Err(error) = &saved {
            debug!(session = %self.session, %error, "the state of a user interface was not kept");
        }
        saved.is_ok()
    }

    async fn at(&self, session: &Session, seq: Seq) -> Result<Document> {
        Document::at(&*self.sessions, session, seq).await
    }
}

impl Document {
    /// The version that an event of a session's history holds.
    pub(crate) async fn at<S: SessionStore + ?Sized>(store: &S, session: &Session, seq: Seq) -> Result<Self> {
        let before = Seq::new(seq.get().saturating_sub(1));
        let page = store.history_of(session, ReadEvents::first(1).after(before)).await?;
        let event = page.events.into_iter().next().filter(|event| event.seq == seq);
        event.and_then(Self::of).ok_or_else(|| {
            Error::corrupt(format!("session {}: event {seq} is no version of a document", session.id))
        })
    }

    fn of(event: Event) -> Option<Self> {
        let Ok(Body::SessionDocumentWritten(written)) = event.body() else { return None };
        Some(Self {
            name: written.name,
            revision: written.revision,
            text: written.text?,
            format: written.format,
            by: event.actor,
            at: event.at,
            seq: event.seq,
            previous: written.previous,
        })
    }
}

/// Reads a document whose text has a format of its own that changed over time.
///
/// A format's number says how many steps lie behind it: a text of format 1 is brought to format 3 by the second and
/// the third step. Reading writes nothing; what is stored changes when the document is next written, with the
/// [current](Self::current) number.
///
/// ```
/// use agent_runtime::holdings::Migrations;
///
/// let checkpoint = Migrations::new().step(|text| Ok(format!("{{\"step\":{text}}}")));
/// assert_eq!(checkpoint.read("checkpoint", 0, "7")?, "{\"step\":7}");
/// assert_eq!(checkpoint.read("checkpoint", 1, "{\"step\":7}")?, "{\"step\":7}");
/// assert!(checkpoint.read("checkpoint", 2, "?").is_err());
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Default)]
pub struct Migrations {
    steps: Vec<Step>,
}

/// Brings a text from one format to the next.
type Step = Box<dyn Fn(&str) -> Result<String> + Send + Sync>;

impl Migrations {
    /// Knows format 0 only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the step from the format that was the current one so far to the next.
    #[must_use]
    pub fn step(mut self, step: impl Fn(&str) -> Result<String> + Send + Sync + 'static) -> Self {
        self.steps.push(Box::new(step));
        self
    }

    /// The number of the format that is written now.
    pub fn current(&self) -> u32 {
        u32::try_from(self.steps.len()).unwrap_or(u32::MAX)
    }

    /// The text in the current format.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a format that is newer; the error of a step that failed.
    pub fn read(&self, name: &str, format: u32, text: &str) -> Result<String> {
        let known = usize::try_from(format).ok().and_then(|format| self.steps.get(format..));
        let Some(steps) = known else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "document {name} has format {format}; this program reads up to {}, update it",
                    self.current()
                ),
            ));
        };
        steps.iter().try_fold(text.to_owned(), |text, step| step(&text))
    }
}

impl fmt::Debug for Migrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migrations").field("current", &self.current()).finish()
    }
}
