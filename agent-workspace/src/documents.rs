//! Documents of a session: notes, memory blocks, a checkpoint, the state of a user interface.

use std::fmt;

use tracing::debug;

use crate::contested::Attempts;
use agent_core::commit::Precondition;
use agent_core::event::{DocumentWritten, Event, EventPayload, NewEvent};
use agent_core::model::{Actor, DocumentHead};
use agent_core::session::SessionRecord;
use agent_core::setters;
use agent_core::store::ReadEvents;
use agent_core::{
    BlobName, Error, ErrorKind, Result, Revision, Seq, SessionId, SessionStore, SessionStoreExt, Sessions,
    Timestamp,
};

/// Maximum number of attempts of a write, if other writers interfere.
const ATTEMPTS: usize = 64;

/// Documents of one session: named texts in versions, each version an event of the session's log.
///
/// A write replaces the whole text and keeps the previous version. The [precondition](DocumentWrite::expect) of a write
/// decides what happens if another writer was faster. [The system](Actor::SYSTEM) never overwrites a text of an agent or
/// a person. A fork has the documents of its parent at the point of the fork; clearing the history keeps documents.
/// Documents start no run, and a model receives them only if the host provides them.
///
/// A memory block is a document with a [limit](DocumentWrite::with_limit).
///
/// Cloning is cheap. Every method may be dropped at any point; a dropped write was applied wholly or not at all.
///
/// ```
/// use agent_core::{MemoryStore, Storage, WorkspaceId};
/// use agent_core::clock::Effects;
/// use agent_core::model::Actor;
/// use agent_core::session::NewSession;
/// use agent_runtime::documents::{DocumentWrite, Documents};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
/// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
/// let session = storage.sessions.create(new).await?;
///
/// let documents = Documents::new(storage.sessions.clone(), session.id);
/// documents.put(DocumentWrite::new("persona", "Brief and kind.", Actor::AGENT).with_limit(2000)).await?;
/// assert_eq!(documents.get("persona").await?.map(|document| document.text).as_deref(), Some("Brief and kind."));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Documents {
    sessions: Sessions,
    session: SessionId,
}

/// One version of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Document {
    /// Name of the document.
    pub name: String,
    /// Number of the version: 1, 2, 3 …
    pub revision: Revision,
    /// Whole text.
    pub text: String,
    /// Version of the text's own format; zero if its writer does not count formats.
    pub format: u32,
    /// Author of the version.
    pub by: Actor,
    /// Time at which the version was written, by its writer's clock.
    pub at: Timestamp,
    /// Sequence number of the event that holds the version.
    pub seq: Seq,
    /// Sequence number of the event with the previous version; zero for the first.
    pub previous: Seq,
}

/// Version that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DocumentWrite {
    /// Name of the document: 1 to 128 bytes without control characters.
    pub name: String,
    /// Whole text, at most 1 MiB; `None` removes the document.
    pub text: Option<String>,
    /// Author of the version.
    pub actor: Actor,
    /// Precondition of the write; default `None`, which always writes.
    ///
    /// `MustExist` requires any version of the document, `Matches` the version that the writer has read, and
    /// `MustNotExist` the absence of the document.
    pub expect: Precondition<Revision>,
    /// Version of the text's own format; default 0.
    pub format: u32,
    /// Maximum bytes of the text from now on; `None` (the default) keeps the present limit, initially 1 MiB.
    pub limit: Option<u64>,
    /// Blobs of the session to which the text refers and no earlier version did; none by default.
    pub blobs: Vec<BlobName>,
}

impl DocumentWrite {
    /// Creates an unconditional write of `text`.
    pub fn new(name: impl Into<String>, text: impl Into<String>, actor: Actor) -> Self {
        Self {
            name: name.into(),
            text: Some(text.into()),
            actor,
            expect: Precondition::None,
            format: 0,
            limit: None,
            blobs: Vec::new(),
        }
    }

    /// Creates an unconditional write that removes the document.
    ///
    /// The versions stay in the log. A document that is written later under the same name starts with version 1.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let documents = chat.documents();
    /// documents.put(DocumentWrite::new("draft", "Dear", Actor::AGENT)).await?;
    /// documents.put(DocumentWrite::remove("draft", Actor::AGENT)).await?;
    /// assert_eq!(documents.get("draft").await?, None);
    /// # Ok(()) }
    /// ```
    pub fn remove(name: impl Into<String>, actor: Actor) -> Self {
        Self { text: None, ..Self::new(name, "", actor) }
    }

    setters! {
        /// Sets the precondition of the write; default `None`, which always writes.
        ///
        /// ```
        /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
        /// # let (agent, chat) = echo().await?;
        /// let documents = chat.documents();
        /// // Nothing to replace yet.
        /// let replace = DocumentWrite::new("plan", "1. Sort", Actor::AGENT).with_precondition(Precondition::MustExist);
        /// assert!(documents.put(replace).await.is_err());
        ///
        /// let first = documents.put(DocumentWrite::new("plan", "1. Sort", Actor::AGENT)).await?;
        /// let next = DocumentWrite::new("plan", "1. Sort 2. Ship", Actor::AGENT).with_precondition(Precondition::Matches(first));
        /// documents.put(next.clone()).await?;
        /// // The second write with the same expectation finds version 2.
        /// let error = documents.put(next).await.unwrap_err();
        /// assert!(error.to_string().contains("is at version 2"));
        /// # Ok(()) }
        /// ```
        #[doc(alias = "expect")]
        pub const fn with_precondition(expect: Precondition<Revision>) => expect = expect;

        /// Sets the version of the text's own format; default 0. See [`Migrations`].
        pub const fn with_format(format: u32) => format = format;

        /// Sets the maximum bytes of the text from now on; by default the present limit stays.
        pub const fn with_limit(bytes: u64) => limit = Some(bytes);
    }

    /// Names a blob of the session, which is put before, so that it stays as long as this version does.
    #[must_use]
    pub fn with_blob(mut self, blob: BlobName) -> Self {
        self.blobs.push(blob);
        self
    }

    /// Returns the event for the write, if the precondition holds in `session`.
    fn after(&self, session: &SessionRecord) -> Result<NewEvent> {
        let head = session.document(&self.name);
        let fits = match (self.expect, head) {
            (Precondition::None, _)
            | (Precondition::MustNotExist, None)
            | (Precondition::MustExist, Some(_)) => true,
            (Precondition::Matches(revision), Some(head)) => head.revision == revision,
            _ => false,
        };
        if !fits {
            let is = head.map_or_else(|| "absent".to_owned(), |head| format!("at version {}", head.revision));
            return Err(Error::new(
                ErrorKind::Conflict { head: Some(session.head) },
                format!("document {} of session {} is {is}; read it again", self.name, session.id),
            ));
        }
        let written = DocumentWritten::after(head, self.name.clone(), self.text.clone())
            .with_format(self.format)
            .with_limit(self.limit);
        let event = NewEvent::document_written(written).with_actor(self.actor.clone());
        Ok(self.blobs.iter().fold(event, |event, blob| event.with_blob(*blob)))
    }
}

impl Documents {
    /// Name of an agent's checkpoint: its position in its work.
    pub const CHECKPOINT: &'static str = "checkpoint";
    /// Name of an agent's note on its present state.
    pub const STATE: &'static str = "state";
    /// Name of an agent's working buffer.
    pub const BUFFER: &'static str = "buffer";
    /// Name of the state of a user interface.
    pub const UI: &'static str = "ui";
    /// Maximum bytes of the state of a user interface.
    pub const UI_MAX_BYTES: u64 = 64 << 10;

    /// Creates a handle to the documents of `session`. No I/O.
    pub const fn new(sessions: Sessions, session: SessionId) -> Self {
        Self { sessions, session }
    }

    /// Lists the documents without their texts. Reads the record only.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let documents = chat.documents();
    /// documents.put(DocumentWrite::new("persona", "Brief and kind.", Actor::AGENT).with_limit(2000)).await?;
    /// let heads = documents.list().await?;
    /// assert_eq!((heads[0].name.as_str(), heads[0].limit), ("persona", Some(2000)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of [`SessionStore::load`].
    pub async fn list(&self) -> Result<Vec<DocumentHead>> {
        Ok(self.sessions.load(self.session).await?.documents.clone())
    }

    /// Returns the newest version of a document; `None` if there is none. Reads the record and one event.
    ///
    /// # Errors
    ///
    /// Errors of the store; `Corrupt` if the version cannot be read.
    pub async fn get(&self, name: &str) -> Result<Option<Document>> {
        let session = self.sessions.load(self.session).await?;
        match session.document(name) {
            Some(head) => self.at(&session, head.seq).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns at most `limit` versions of a document, newest first. Reads one event for each version.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let documents = chat.documents();
    /// for text in ["one", "two", "three"] {
    ///     documents.put(DocumentWrite::new("plan", text, Actor::AGENT)).await?;
    /// }
    /// let newest = documents.versions("plan", 2).await?;
    /// assert_eq!(newest.iter().map(|version| &*version.text).collect::<Vec<_>>(), ["three", "two"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of [`get`](Self::get).
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

    /// Returns one version of a document; `None` if it does not exist. Also reads all newer versions.
    ///
    /// # Errors
    ///
    /// Errors of [`get`](Self::get).
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

    /// Writes a version. Returns its number: 1 for the first; 0 if a document that does not exist was to be removed.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let documents = chat.documents();
    /// let first = documents.put(DocumentWrite::new("plan", "1. Sort", Actor::AGENT)).await?;
    /// assert_eq!(first.get(), 1);
    /// // The system does not overwrite a text of an agent or a person.
    /// let error = documents.put(DocumentWrite::new("plan", "", Actor::SYSTEM)).await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::InvalidInput);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Conflict` if the precondition does not hold; `LimitExceeded` for a text over its limit, one document too many
    /// or a full record (a text is never cut); `InvalidInput` for an invalid name, and if the system would overwrite a
    /// text of an agent or a person; errors of the store.
    pub async fn put(&self, write: DocumentWrite) -> Result<Revision> {
        // If another writer was faster, the precondition is checked again.
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let now = self.sessions.load(self.session).await?;
            let is_gone = write.text.is_none() && now.document(&write.name).is_none();
            if is_gone && write.expect == Precondition::None {
                return Ok(Revision::ZERO);
            }
            let commit = self.sessions.seal(self.session, now.head).with_event(write.after(&now)?);
            let before = now.document(&write.name).map_or(Revision::ZERO, |head| head.revision);
            if let Some(put) = attempts.outcome(self.sessions.commit_with_retry(commit).await) {
                return put.map(|_| before.next());
            }
        }
    }

    /// Restores an earlier version by writing its text as a new version. Returns the new number.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let documents = chat.documents();
    /// let first = documents.put(DocumentWrite::new("plan", "one", Actor::AGENT)).await?;
    /// documents.put(DocumentWrite::new("plan", "two", Actor::AGENT)).await?;
    /// let restored = documents.restore("plan", first, Actor::USER).await?;
    /// assert_eq!(restored.get(), 3);
    /// assert_eq!(documents.get("plan").await?.map(|plan| plan.text).as_deref(), Some("one"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such version; errors of [`put`](Self::put).
    pub async fn restore(&self, name: &str, revision: Revision, actor: Actor) -> Result<Revision> {
        let version = self.version(name, revision).await?.ok_or_else(|| {
            Error::not_found(format!(
                "session {} has no version {revision} of document {name}; list its versions",
                self.session
            ))
        })?;
        self.put(DocumentWrite::new(name, version.text, actor).with_format(version.format)).await
    }

    /// Saves the state of a user interface on a best-effort basis. Returns whether it was saved.
    ///
    /// The last write wins. A text over 64 KiB is not saved. Every failure is logged at level `debug` and returns `false`.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// assert!(chat.documents().save_ui(r#"{"scroll":120}"#).await);
    /// assert!(!chat.documents().save_ui(&"x".repeat(100_000)).await);
    /// # Ok(()) }
    /// ```
    pub async fn save_ui(&self, text: &str) -> bool {
        let write = DocumentWrite::new(Self::UI, text, Actor::USER).with_limit(Self::UI_MAX_BYTES);
        let saved = self.put(write).await;
        if let Err(error) = &saved {
            debug!(session = %self.session, %error, "the state of a user interface was not saved");
        }
        saved.is_ok()
    }

    async fn at(&self, session: &SessionRecord, seq: Seq) -> Result<Document> {
        Document::at(&*self.sessions, session, seq).await
    }
}

impl Document {
    /// Returns the version that an event of a session's history holds.
    pub(crate) async fn at(store: &dyn SessionStore, session: &SessionRecord, seq: Seq) -> Result<Self> {
        let before = Seq::new(seq.get().saturating_sub(1));
        let page = store.history_of(session, ReadEvents::first(1).with_after(before)).await?;
        let event = page.events.into_iter().next().filter(|event| event.seq == seq);
        event.and_then(Self::of).ok_or_else(|| {
            Error::corrupt(format!(
                "session {}: event {seq} does not hold a version of a document; run `verify`, then `salvage`",
                session.id
            ))
        })
    }

    fn of(event: Event) -> Option<Self> {
        let Ok(EventPayload::SessionDocumentWritten(written)) = event.decode() else { return None };
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

/// Reader for a document whose text has its own format that changed over time.
///
/// The number of a format is the number of steps that lead to it: a text of format 1 is converted to format 3 by the
/// second and the third step. Reading writes nothing; the stored text changes when the document is next written, with
/// the [current](Self::current) number.
///
/// ```
/// use agent_runtime::documents::Migrations;
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

/// Conversion of a text from one format to the next.
type Step = Box<dyn Fn(&str) -> Result<String> + Send + Sync>;

impl Migrations {
    /// Creates a reader that knows format 0 only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the step from the current format to the next.
    ///
    /// ```
    /// use agent_runtime::documents::Migrations;
    ///
    /// let migrations = Migrations::new().step(|text| Ok(format!("[{text}]"))).step(|text| Ok(text.replace('7', "8")));
    /// assert_eq!(migrations.current(), 2);
    /// assert_eq!(migrations.read("steps", 0, "7")?, "[8]");
    /// assert_eq!(migrations.read("steps", 1, "[7]")?, "[8]");
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    #[must_use]
    pub fn step(mut self, step: impl Fn(&str) -> Result<String> + Send + Sync + 'static) -> Self {
        self.steps.push(Box::new(step));
        self
    }

    /// Returns the number of the current format, in which texts are written.
    pub fn current(&self) -> u32 {
        u32::try_from(self.steps.len()).unwrap_or(u32::MAX)
    }

    /// Returns the text in the current format.
    ///
    /// ```
    /// use agent_core::ErrorKind;
    /// use agent_runtime::documents::Migrations;
    ///
    /// let migrations = Migrations::new();
    /// assert_eq!(migrations.read("plan", 0, "1. Sort")?, "1. Sort");
    /// assert_eq!(*migrations.read("plan", 1, "1. Sort").unwrap_err().kind(), ErrorKind::Unsupported);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` for a newer format; the error of a step that failed.
    pub fn read(&self, name: &str, format: u32, text: &str) -> Result<String> {
        let known = usize::try_from(format).ok().and_then(|format| self.steps.get(format..));
        let Some(steps) = known else {
            return Err(Error::unsupported(format!(
                "document {name} has format {format}; this program reads up to {}, update it",
                self.current()
            )));
        };
        steps.iter().try_fold(text.to_owned(), |text, step| step(&text))
    }
}

impl fmt::Debug for Migrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migrations").field("current", &self.current()).finish()
    }
}
