//! Export and import of a session as one document that is identical in every store, to the byte.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! use agent_admin::manifest::Manifest;
//! use agent_core::{MemoryStore, SessionStore, SessionStoreExt, WorkspaceId};
//! use agent_core::clock::Effects;
//! use agent_core::event::NewEvent;
//! use agent_core::session::NewSession;
//!
//! let (here, there, effects) = (MemoryStore::new(), MemoryStore::new(), Effects::default());
//! let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
//! let session = here.sessions(&effects).create(new).await?;
//! here.sessions(&effects).append(session.id, session.head, vec![NewEvent::user_message("hello")]).await?;
//!
//! let document = Manifest::export(&here, session.id).await?.to_json()?;
//! let imported = Manifest::parse(&document)?.import(&there).await?;
//! assert_eq!(imported.session, SessionStore::load(&here, session.id).await?);
//! assert_eq!(Manifest::export(&there, session.id).await?.to_json()?, document);
//! # Ok(()) }
//! ```
//!
//! # The document
//!
//! One JSON object with these fields, in this order:
//!
//! - `format`: 5; 4 is read, too;
//! - `kind`: `session`;
//! - `session`: the record;
//! - `events`: all of the session's own events, one on each line;
//! - `ancestors`, if the session was made from others: for each, parents first, its `session` and its shared `events`;
//! - `crc32c`: eight lower-case hexadecimal digits, computed over the bytes before `,"crc32c":`.
//!
//! A session whose events name blobs is exported as an [archive](crate::archive), which contains this document.
//!
//! The events are authoritative: the imported record is computed from them. `docs/schemas/session.json` is the JSON
//! Schema of the document.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::TryStreamExt;
use serde::Deserialize;

use crate::blobs::{self, WantedBlob};
use crate::source::{exported_events, read_logs};
use agent_core::commit::{Commit, apply_untrusted};
use agent_core::event::Event;
use agent_core::json::{JsonFault, RawJson, check_document};
use agent_core::model::{Lineage, Origin};
use agent_core::search::before_restore;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::HiddenSession;
use agent_core::{
    BlobName, Error, ErrorKind, EventId, Plan, Result, Seq, SessionId, SessionStore, SessionStoreExt, plan,
};

/// Version of the document format that is written. Documents of format 4, the former one, are read, too: their sessions have no
/// owner. Formats 1 to 3 were never released, and are refused.
pub const MANIFEST_FORMAT: u64 = 5;

/// Versions that are read. The events of both have the same fields, but for those that format 5 adds, which may be missing.
const READ_FORMATS: [u64; 2] = [4, MANIFEST_FORMAT];

const KIND: &str = "session";
/// Text before the checksum, and after it.
const CRC_OPEN: &str = ",\"crc32c\":\"";
const CRC_CLOSE: &str = "\"}\n";
const CRC_LEN: usize = CRC_OPEN.len() + 8 + CRC_CLOSE.len();

/// Session with its whole log, independent of any store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Manifest {
    /// Record of the session.
    pub session: Arc<SessionRecord>,
    /// Own events of the session, from the first to the record's head.
    pub events: Vec<Event>,
    /// Sessions from which the session was made, parents first.
    pub ancestors: Vec<Ancestor>,
}

/// Session from which another was made, by a fork or as a child, with the events that the other one needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ancestor {
    /// Id of the ancestor.
    pub session: SessionId,
    /// Own events of the ancestor, as many as its descendants in the document need.
    ///
    /// The last one is the end of the commit with the last event that the session, or another of its ancestors, shares;
    /// the end of the first commit if none is shared.
    pub events: Vec<Event>,
}

/// Result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Record of the session in the store.
    pub session: Arc<SessionRecord>,
    /// Effect of the import.
    pub outcome: ImportOutcome,
    /// Number of events that were written, including those of ancestors.
    pub events: u64,
    /// Number of blobs that were stored, also of those that existed and were stored again.
    pub blobs: u64,
    /// Number of events that the store has of the session beyond those of the document.
    pub ahead: u64,
}

/// Effect of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportOutcome {
    /// The session did not exist, and was created.
    New,
    /// The session or an ancestor existed in part, and was completed.
    Completed,
    /// The session existed with all events of the document; no event was written.
    Present,
    /// Like `Present`, and the session has gone on since the document was exported: the store has more events of it. There is
    /// nothing to restore.
    Ahead,
}

impl ImportOutcome {
    /// Returns the stable name of the outcome: `new`, `completed`, `present`, `ahead`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Completed => "completed",
            Self::Present => "present",
            Self::Ahead => "ahead",
        }
    }
}

#[derive(Deserialize)]
struct Document {
    session: Named,
    events: Vec<RawJson>,
    #[serde(default)]
    ancestors: Vec<Shared>,
}

#[derive(Deserialize)]
struct Shared {
    session: SessionId,
    events: Vec<RawJson>,
}

/// Fields of the record that the events do not contain.
#[derive(Deserialize)]
struct Named {
    id: SessionId,
    head: Seq,
}

impl Manifest {
    /// Exports a session from a store: its record, its own events up to the record's head, and its ancestors.
    ///
    /// Ancestors are the sessions from which it was made, each up to the last event that a descendant shares, so that
    /// each is usable after an import. Holds all events in memory; [`SessionExport`](crate::export::SessionExport) writes
    /// the same bytes in pieces.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// # chat.prompt("Hello").await?.finish().await?;
    /// use agent_admin::manifest::Manifest;
    ///
    /// let manifest = Manifest::export(&*agent.storage().sessions, chat.id()).await?;
    /// assert_eq!(manifest.session.counts.messages(), 2);
    /// assert_eq!(manifest.events.last().map(|event| event.seq), Some(manifest.session.head));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Deleted`, also if an ancestor was deleted and purged in the middle of a commit that the session shares;
    /// `NotFound`; `Conflict` if the import of the session is incomplete; `Corrupt` if a part of a log cannot be read,
    /// because then there is no complete session to export.
    pub async fn export(store: &dyn SessionStore, id: SessionId) -> Result<Self> {
        let begin = |_: &SessionRecord| Vec::<Ancestor>::new();
        let (session, _, mut members) =
            read_logs(store, id, begin, |members, (n, session), event| match members.get_mut(n) {
                Some(member) => member.events.push(event),
                None => members.push(Ancestor { session, events: vec![event] }),
            })
            .await?;
        let ancestors = members.split_off(1);
        let events = members.pop().map(|own| own.events).unwrap_or_default();
        Ok(Self { session, events, ancestors })
    }

    /// Imports the session unchanged, commit by commit, if none with its id exists. Sessions are never merged.
    ///
    /// An interrupted import is completed; if everything exists, nothing is written. The
    /// [outcome](Imported::outcome) distinguishes these cases. Until an import is complete, the session's
    /// [`import_end`](field@SessionRecord::import_end) is set: it accepts no messages (`Busy`), no run starts, it is not exported,
    /// and [`verify`](crate::verify::verify()) reports it.
    ///
    /// Missing ancestors are stored first, as far as the document contains them. An import of an ancestor's own document
    /// completes it later. If the session has gone on in the store since the document was exported, nothing is written, and the
    /// outcome is [`Ahead`](ImportOutcome::Ahead). An ancestor with unfinished work at that point, or with an unreported result, is not stored,
    /// because a scheduler would do that work again.
    ///
    /// The document is treated as untrusted. It writes to its own session and to no other existing session; its numbers
    /// and its statements on ancestors are checked. A [hidden session](agent_core::store::HiddenSession) and a
    /// [conversation by a key](agent_core::session::ConversationKey) are refused, because others would open the session
    /// by its name.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = website().await?;
    /// # chat.prompt("Hello").await?.finish().await?;
    /// use agent_admin::manifest::{ImportOutcome, Manifest};
    ///
    /// let manifest = Manifest::export(&*agent.storage().sessions, chat.id()).await?;
    /// let there = MemoryStore::new();
    /// let imported = manifest.import(&there).await?;
    /// assert_eq!((imported.outcome, imported.events), (ImportOutcome::New, imported.session.head.get()));
    /// assert_eq!(manifest.import(&there).await?.outcome, ImportOutcome::Present);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a part may be imported; call it again, or delete the session.
    ///
    /// # Errors
    ///
    /// Before anything is written: `Conflict` if the store has another history under this id or an ancestor's, or only
    /// a part of the events of an ancestor that the session shares; `Deleted` if the session was deleted in the store;
    /// `NotFound` if an ancestor is missing and had work left, or is not in the document either: import its own
    /// document first; `Corrupt` if its ancestors cannot be as the document says; `Denied` for an id of version 8,
    /// which is derived from a name; `InvalidInput` for an event that cannot occur in a log; `LimitExceeded` for a
    /// commit that is larger than a store accepts; `Unsupported` for data that only a newer version of this library
    /// understands; `BlobMissing` if the events name blobs, whose bytes are only in the [archive](crate::archive), and the
    /// store does not have them for this session.
    ///
    /// During the writes: `Conflict` if another process wrote to the session meanwhile; `Deleted` if its parent was deleted in the
    /// store; errors of [`SessionStoreExt::commit_with_retry`].
    pub async fn import(&self, store: &dyn SessionStore) -> Result<Imported> {
        self.import_to(store, false).await
    }

    /// Imports like [`import`](Self::import), but also accepts hidden sessions and conversations by a key, and
    /// completes ancestors that exist in part.
    ///
    /// Ancestors exist in part after an interrupted import. Call this only if that is the cause, or if the author of the
    /// document is trusted.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// # chat.prompt("Hello").await?.finish().await?;
    /// use agent_admin::manifest::Manifest;
    ///
    /// // Others open a conversation by its key, so an untrusted document must not create one.
    /// let manifest = Manifest::export(&*agent.storage().sessions, chat.id()).await?;
    /// let there = MemoryStore::new();
    /// assert_eq!(*manifest.import(&there).await.unwrap_err().kind(), ErrorKind::Denied);
    /// assert_eq!(manifest.import_with_ancestors(&there).await?.session.id, chat.id());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a part may be imported; call it again.
    ///
    /// # Errors
    ///
    /// Errors of [`import`](Self::import), except for the `Conflict` that this call resolves.
    pub async fn import_with_ancestors(&self, store: &dyn SessionStore) -> Result<Imported> {
        self.import_to(store, true).await
    }

    async fn import_to(&self, store: &dyn SessionStore, completes: bool) -> Result<Imported> {
        let import = self.prepare(store, completes).await?;
        blobs::check_there(store, import.session.id, &import.blobs).await?;
        import.write(store).await
    }

    /// Checks the whole document against the store. Writes nothing.
    pub(crate) async fn prepare(&self, store: &dyn SessionStore, completes: bool) -> Result<Import<'_>> {
        let members = self.check_family(store).await?;
        if let Some(hidden) = members.iter().find(|member| !completes && HiddenSession::may_have(member.id)) {
            return Err(Error::new(
                ErrorKind::Denied,
                format!(
                    "session {} has an id that is derived from a name, as that of a hidden session or of a conversation by its key, and others would \
                     open it by that name; copy the store instead, or, if you trust the author of the document, import it with \
                     import_with_ancestors",
                    hidden.id
                ),
            ));
        }
        let mut missing = self.missing_ancestors(store, &members, completes).await?;
        let own = self.missing_events(store).await?;
        let existed = own.there.is_some();
        let ahead = own.there.as_ref().is_some_and(|there| there.head > self.session.head);
        missing.push(own);
        let rest =
            |id| missing.iter().find(|missing| missing.id == id).map_or(0, |missing| missing.rest.len());
        let blobs =
            blobs::wanted(self.session.id, self.members().map(|(id, events)| (id, events, rest(id))))?;
        // Everything is planned before anything is stored, so that a refused document leaves nothing behind.
        for Missing { id, there, rest } in &mut missing {
            for commit in commits(*id, rest) {
                if let Plan::Write { after, .. } = plan(there.as_deref(), &commit?)? {
                    *there = Some(after);
                }
            }
        }
        Ok(Import { session: &self.session, missing, existed, ahead, blobs })
    }

    /// Returns the sessions of the document with their events, parents first.
    pub(crate) fn members(&self) -> impl Iterator<Item = (SessionId, &[Event])> {
        let ancestors = self.ancestors.iter().map(|ancestor| (ancestor.session, &*ancestor.events));
        ancestors.chain([(self.session.id, &*self.events)])
    }

    /// Returns the names of the blobs that the events of the document name, those of ancestors included.
    pub fn blobs(&self) -> BTreeSet<BlobName> {
        self.members().flat_map(|(_, events)| events).flat_map(|event| &event.blobs).copied().collect()
    }

    /// Returns the missing parts of the session's ancestors, whose records are the first of `members`.
    async fn missing_ancestors(
        &self,
        store: &dyn SessionStore,
        members: &[Arc<SessionRecord>],
        completes: bool,
    ) -> Result<Vec<Missing<'_>>> {
        let id = self.session.id;
        let mut missing = Vec::with_capacity(members.len());
        for (Ancestor { session, events }, record) in self.ancestors.iter().zip(members) {
            let there = find(store, *session).await?;
            // The store decides which events a deleted session shares.
            if there.as_ref().is_some_and(|there| there.status.state == SessionState::Deleted) {
                continue;
            }
            let rest = not_there(store, *session, there.as_deref(), events).await?;
            if let Some(there) = there.as_ref().filter(|_| !rest.is_empty() && !completes) {
                return Err(Error::new(
                    ErrorKind::Conflict { head: Some(there.head) },
                    format!(
                        "session {id} was made from session {session} after its event {}, but this store has only the events \
                         up to there; import that session's own document first, or, to finish an interrupted \
                         import of this document, repeat it with import_with_ancestors",
                        there.head
                    ),
                ));
            }
            if !rest.is_empty() && !is_at_rest(record) {
                return Err(Error::not_found(format!(
                    "session {id} was made from session {session}, which had unfinished work at that point and is \
                     not in this store; import that session's own document first"
                )));
            }
            missing.push(Missing { id: *session, there, rest });
        }
        Ok(missing)
    }

    /// Returns the missing part of the session itself.
    async fn missing_events(&self, store: &dyn SessionStore) -> Result<Missing<'_>> {
        let id = self.session.id;
        let there = find(store, id).await?;
        if there.as_ref().is_some_and(|there| there.status.state == SessionState::Deleted) {
            return Err(Error::deleted(format!(
                "session {id} was deleted in this store, and a deleted id cannot be used again"
            )));
        }
        let rest = not_there(store, id, there.as_deref(), &self.events).await?;
        Ok(Missing { id, there, rest })
    }

    /// Returns the records that the document's events produce, the session's own last. Refuses records that contradict
    /// the document: each must follow the one that it was made from, be one level deeper, and have the lineage of that
    /// one.
    async fn check_family(&self, store: &dyn SessionStore) -> Result<Vec<Arc<SessionRecord>>> {
        let ancestors = self.ancestors.iter().map(|ancestor| (ancestor.session, &ancestor.events));
        let mut members = Vec::with_capacity(self.ancestors.len() + 1);
        for (id, events) in ancestors.chain([(self.session.id, &self.events)]) {
            members.push(Arc::new(folded(id, events)?));
        }
        for (n, record) in members.iter().enumerate() {
            let (before, behind) = members.split_at(n);
            let no = |what: &str| Err(Error::corrupt(format!("the document's session {} {what}", record.id)));
            if before.iter().any(|other| other.id == record.id) {
                return no("is listed twice");
            }
            let Some(parent) = record.origin.parent() else { continue };
            if behind.iter().any(|other| other.id == parent) {
                return no("is listed before the session that it was made from");
            }
            let fits = match before.iter().find(|other| other.id == parent) {
                Some(parent) => is_made_from(record, parent),
                None => match find(store, parent).await? {
                    Some(parent) => is_made_from(record, &parent),
                    None if find(store, record.id).await?.is_some() => true,
                    None => {
                        return Err(Error::not_found(format!(
                            "session {} was made from {parent}, which is neither in the document nor in this \
                             store; import that session first",
                            record.id
                        )));
                    }
                },
            };
            if !fits {
                return no(&format!("has a depth or lineage that does not match its parent {parent}"));
            }
        }
        Ok(members)
    }

    /// Returns the session as a JSON document with a checksum, identical for every store.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if events name blobs, which the document cannot contain: use
    /// [`SessionExport::to_archive`](crate::export::SessionExport::to_archive).
    pub fn to_json(&self) -> Result<String> {
        match self.blobs().len() {
            0 => {
                let mut text = DocumentText::begin(&self.session);
                let ancestors = self.ancestors.iter().map(|ancestor| (ancestor.session, &ancestor.events));
                for (n, (id, events)) in
                    [(self.session.id, &self.events)].into_iter().chain(ancestors).enumerate()
                {
                    events.iter().for_each(|event| text.push((n, id), event));
                }
                text.close();
                let document = text.take();
                Ok(document + &text.taken.ending())
            }
            count => Err(has_blobs(self.session.id, count)),
        }
    }

    /// Parses a JSON document, and computes the record from its events.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// # chat.prompt("Hello").await?.finish().await?;
    /// use agent_admin::manifest::Manifest;
    ///
    /// let manifest = Manifest::export(&*agent.storage().sessions, chat.id()).await?;
    /// let document = manifest.to_json()?;
    /// assert_eq!(Manifest::parse(&document)?, manifest);
    /// // The checksum covers every byte.
    /// assert!(Manifest::parse(&document.replace("Hello", "Hallo")).is_err());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Corrupt` if the checksum does not match, or the content is contradictory; `Unsupported` if the document has
    /// another format or kind.
    pub fn parse(text: &str) -> Result<Self> {
        let whole = checked(text);
        // The format is checked first: another format may frame the document differently.
        check_document(text, KIND, &READ_FORMATS)?;
        if !whole {
            return Err(Error::corrupt(
                "the document is damaged: its checksum does not match; export the session again, or use another copy",
            ));
        }
        let Document { session: named, events, ancestors } =
            serde_json::from_str(text).map_err(|source| {
                Error::corrupt(
                    "the document is not a session document: a field is missing or has the wrong type; export the session again",
                )
                .with_source(JsonFault::from(source))
            })?;
        let (session, events) = read_session(named.id, &events)?;
        if session.head != named.head {
            return Err(Error::corrupt(format!(
                "the document of session {} has events up to {}, but its record says {}; export the session again",
                named.id, session.head, named.head
            )));
        }
        let ancestors = ancestors.into_iter().map(|Shared { session, events }| {
            read_session(session, &events).map(|(_, events)| Ancestor { session, events })
        });
        Ok(Self { session: Arc::new(session), events, ancestors: ancestors.collect::<Result<_>>()? })
    }
}

/// Document that was checked against a store, and can be written to it.
pub(crate) struct Import<'a> {
    session: &'a SessionRecord,
    missing: Vec<Missing<'a>>,
    existed: bool,
    /// Whether the store has more events of the session.
    ahead: bool,
    /// Blobs that the events of the document name.
    pub(crate) blobs: BTreeMap<BlobName, WantedBlob>,
}

impl Import<'_> {
    /// Writes the missing events.
    pub(crate) async fn write(self, store: &dyn SessionStore) -> Result<Imported> {
        let id = self.session.id;
        let events = self.missing.iter().map(|missing| missing.rest.len() as u64).sum();
        before_restore(store).await?;
        for Missing { id, rest, .. } in self.missing {
            for commit in commits(id, rest) {
                store.commit_with_retry(commit?).await?;
            }
        }
        // If the search index was updated meanwhile.
        before_restore(store).await?;
        let imported = store.load(id).await?;
        // A session that has gone on may go on.
        if imported.head != self.session.head && !(self.ahead && imported.head > self.session.head) {
            return Err(Error::new(
                ErrorKind::Conflict { head: Some(imported.head) },
                format!(
                    "session {id} is at event {}, not at {}; another process is writing to it",
                    imported.head, self.session.head
                ),
            ));
        }
        let outcome = match (self.existed, events) {
            (false, _) => ImportOutcome::New,
            (true, 0) if self.ahead => ImportOutcome::Ahead,
            (true, 0) => ImportOutcome::Present,
            (true, _) => ImportOutcome::Completed,
        };
        let ahead = imported.head.get() - self.session.head.get();
        Ok(Imported { session: imported, outcome, events, blobs: 0, ahead })
    }
}

/// Missing part of a session of the document.
struct Missing<'a> {
    id: SessionId,
    /// Record after which the events follow; `None` if the whole session is missing.
    there: Option<Arc<SessionRecord>>,
    rest: &'a [Event],
}

/// Returns the error for a document of a session with blobs.
pub(crate) fn has_blobs(id: SessionId, count: usize) -> Error {
    Error::invalid(format!(
        "session {id} has {count} blobs, which a JSON document cannot contain; export it as an archive (to_archive)"
    ))
}

/// Returns the session with this id, if there is one.
async fn find(store: &dyn SessionStore, id: SessionId) -> Result<Option<Arc<SessionRecord>>> {
    match store.load(id).await {
        Ok(session) => Ok(Some(session)),
        Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the events that the store lacks, after comparing the existing ones. The store may contain more of them.
async fn not_there<'a>(
    store: &dyn SessionStore,
    id: SessionId,
    there: Option<&SessionRecord>,
    events: &'a [Event],
) -> Result<&'a [Event]> {
    let mut rest = events;
    if let (Some(there), [first, ..]) = (there, events) {
        let conflict = |seq: Seq| {
            Error::new(
                ErrorKind::Conflict { head: Some(there.head) },
                format!(
                    "session {id} exists in this store with a different event {seq}; nothing was written; use another store"
                ),
            )
        };
        let after = Seq::new(first.seq.get().saturating_sub(1));
        let mut own = exported_events(store, id, after, there.head);
        while let [first, behind @ ..] = rest
            && let Some(event) = own.try_next().await?
        {
            if *first != event {
                return Err(conflict(event.seq));
            }
            rest = behind;
        }
        if rest.len() == events.len() {
            // The existing log begins at another event.
            return Err(conflict(first.seq));
        }
    }
    Ok(rest)
}

/// Returns the events of one session as the commits with which they are stored.
///
/// If there are several, the first event carries the number of the last one, so that an interrupted import is recognized.
fn commits(id: SessionId, events: &[Event]) -> impl Iterator<Item = Result<Commit>> {
    let end = events.last().filter(|last| events.first().is_some_and(|first| first.commit != last.commit));
    let mut end = end.map(|last| last.seq);
    events.chunk_by(|a, b| a.commit == b.commit).map(move |commit| {
        let mut commit = commit.to_vec();
        if let Some(first) = commit.first_mut() {
            *first = first.clone().with_import_end(end.take());
        }
        Commit::restore(id, commit)
    })
}

/// Returns whether a session has the depth and the lineage of one made from `parent`.
fn is_made_from(session: &SessionRecord, parent: &SessionRecord) -> bool {
    let lineage = match session.origin {
        Origin::Fork { at, .. } if at <= parent.head => parent.lineage.forked(parent.id, at),
        Origin::Fork { .. } => return false,
        _ => Lineage::default(),
    };
    session.depth == parent.depth.saturating_add(1) && session.lineage == lineage
}

/// Returns whether a scheduler would find no work in this session.
fn is_at_rest(session: &SessionRecord) -> bool {
    use SessionState::{Archived, Failed, Idle, Suspended, Terminated};

    let rests = matches!(session.status.state, Idle | Suspended | Archived | Failed | Terminated);
    let is_done = session.inputs_open == 0 && session.timers.is_empty() && session.open_calls.is_empty();
    rests && is_done && session.to_report().is_none()
}

/// Number of bytes and checksum of the beginning of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) bytes: u64,
    crc: u32,
}

impl Tally {
    /// Returns the end of a document that has this before it.
    pub(crate) fn ending(self) -> String {
        format!("{CRC_OPEN}{:08x}{CRC_CLOSE}", self.crc)
    }
}

/// Text of a document, to which one event after the other is added.
pub(crate) struct DocumentText {
    /// Text that was not taken yet.
    pub(crate) new: String,
    /// Text that was taken.
    pub(crate) taken: Tally,
    /// Number of the log to which the last event belongs: 0 for the session's own one.
    log: usize,
    /// True before the first event of a log.
    is_first: bool,
}

impl DocumentText {
    /// Begins the document of a session.
    pub(crate) fn begin(session: &SessionRecord) -> Self {
        let new = format!(
            "{{\"format\":{MANIFEST_FORMAT},\"kind\":\"{KIND}\",\"session\":{},\n\"events\":[",
            session.to_json()
        );
        Self { new, taken: Tally::default(), log: 0, is_first: true }
    }

    /// Adds the next event of the log with this number, which is that of the session `id`.
    pub(crate) fn push(&mut self, (log, id): (usize, SessionId), event: &Event) {
        if log != self.log {
            self.new.push_str(if self.log == 0 { "\n],\n\"ancestors\":[" } else { "\n]}," });
            self.new.push_str(&format!("\n{{\"session\":\"{id}\",\"events\":["));
            (self.log, self.is_first) = (log, true);
        }
        self.new.push_str(if std::mem::take(&mut self.is_first) { "\n" } else { ",\n" });
        self.new.push_str(&event.to_json());
    }

    /// Closes the list of events, and that of ancestors. Only the [ending](Tally::ending) follows.
    pub(crate) fn close(&mut self) {
        self.new.push_str(if self.log == 0 { "\n]" } else { "\n]}\n]" });
    }

    /// Takes the text that was added since the last call.
    pub(crate) fn take(&mut self) -> String {
        let new = std::mem::take(&mut self.new);
        self.taken.bytes += new.len() as u64;
        self.taken.crc = crc32c::crc32c_append(self.taken.crc, new.as_bytes());
        new
    }
}

/// Returns the events as they are written, and the record that they produce.
fn read_session(id: SessionId, events: &[RawJson]) -> Result<(SessionRecord, Vec<Event>)> {
    let events: Vec<_> = events.iter().map(|event| read_event(id, event)).collect::<Result<_>>()?;
    Ok((folded(id, &events)?, events))
}

/// Parses an event as it is written, and checks that its id matches its position.
fn read_event(session: SessionId, json: &RawJson) -> Result<Event> {
    #[derive(Deserialize)]
    struct Identified {
        id: EventId,
    }
    // Only an import itself says where it ends.
    let event = Event::from_json(json.get())?.with_import_end(None);
    match json.to::<Identified>() {
        Ok(Identified { id }) if id == event.id() => Ok(event),
        _ => Err(Error::corrupt(format!(
            "event {} of session {session} has an id that does not match its commit",
            event.seq
        ))),
    }
}

/// Returns the record that the events produce.
fn folded(id: SessionId, events: &[Event]) -> Result<SessionRecord> {
    let mut session = None;
    for event in events {
        apply_untrusted(&mut session, id, event)?;
    }
    session.ok_or_else(|| {
        Error::corrupt(format!("the document of session {id} has no events; export the session again"))
    })
}

/// Returns whether a document ends with the checksum of the preceding bytes.
fn checked(text: &str) -> bool {
    let Some(at) = text.len().checked_sub(CRC_LEN).filter(|at| text.is_char_boundary(*at)) else {
        return false;
    };
    let (body, tail) = text.split_at(at);
    let taken = Tally { bytes: at as u64, crc: crc32c::crc32c(body.as_bytes()) };
    tail == taken.ending()
}
