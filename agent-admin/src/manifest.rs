//! One session as one document: exported from any store, imported into any other, the same to the byte.
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
//! let session = SessionStoreExt::create(&here, &effects, new).await?;
//! here.append(&effects, session.id, session.head, vec![NewEvent::user_message("hello")]).await?;
//!
//! let document = Manifest::export(&here, session.id).await?.to_json();
//! let imported = Manifest::parse(&document)?.import(&there).await?;
//! assert_eq!(imported, SessionStore::load(&here, session.id).await?);
//! assert_eq!(Manifest::export(&there, session.id).await?.to_json(), document);
//! # Ok(()) }
//! ```
//!
//! # The document
//!
//! One JSON object with the fields `format` (1), `kind` (`session`), `session` (the record), `events` (all of the session's
//! own events, one a line), `ancestors` where the session was made from others (of each its `session` and as many of its
//! `events` as those made from it share, parents first), and last `crc32c`: eight lower-case hexadecimal digits, of the
//! bytes before `,"crc32c":`. The events are the truth: what is imported is their fold. `docs/schemas/session.json` is its
//! JSON Schema.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use futures::TryStreamExt;
use serde::Deserialize;

use agent_core::commit::{Commit, apply_untrusted};
use agent_core::event::Event;
use agent_core::json::{JsonFault, RawJson, check_document};
use agent_core::model::{Lineage, Origin};
use agent_core::session::Session;
use agent_core::state::SessionState;
use agent_core::store::{Shelf, own_events};
use agent_core::{
    Error, ErrorKind, EventId, Plan, Result, Seq, SessionId, SessionStore, SessionStoreExt, plan,
};

/// The version of the document that is written.
pub const MANIFEST_FORMAT: u64 = 1;

const KIND: &str = "session";
/// Before the checksum, and behind it.
const CRC_OPEN: &str = ",\"crc32c\":\"";
const CRC_CLOSE: &str = "\"}\n";
const CRC_LEN: usize = CRC_OPEN.len() + 8 + CRC_CLOSE.len();

/// A session with its whole log, apart from any store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Manifest {
    /// The record.
    pub session: Arc<Session>,
    /// Its own events, from the first to the record's head.
    pub events: Vec<Event>,
    /// The sessions that it was made from, parents first.
    pub ancestors: Vec<Ancestor>,
}

/// A session from which another was made, by a fork or as a child, as far as that one needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ancestor {
    /// The ancestor.
    pub session: SessionId,
    /// Its own events, from the first to the end of the commit that holds the last one that the session, or another of its
    /// ancestors, shares; its first commit where none does.
    pub events: Vec<Event>,
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

/// Of the record, what the events do not tell.
#[derive(Deserialize)]
struct Named {
    id: SessionId,
    head: Seq,
}

impl Manifest {
    /// Reads a session from a store: its record, all of its own events up to the record's head, and the sessions that it was
    /// made from, as far as it and they need them: of a fork's parent also what the parent shares with its own, so that each
    /// of them is whole where it is imported. Holds them all in memory.
    ///
    /// # Errors
    ///
    /// `Deleted`, also where an ancestor was deleted and purged in the middle of a commit that the session shares;
    /// `NotFound`; `Corrupt` where a part of a log cannot be read: then there is no whole session to export.
    pub async fn export<S: SessionStore + ?Sized>(store: &S, id: SessionId) -> Result<Self> {
        let session = store.load(id).await?;
        if session.status.state == SessionState::Deleted {
            return Err(Error::new(
                ErrorKind::Deleted,
                format!("session {id} was deleted; there is nothing to export"),
            ));
        }
        let after = session.lineage.base();
        let events: Vec<_> = own_events(store, id, after, Some(session.head)).try_collect().await?;
        if events.last().map(|event| event.seq) != Some(session.head) {
            return Err(Error::corrupt(format!(
                "session {id} has events up to {}, its record says {}",
                events.last().map_or(after, |event| event.seq),
                session.head
            )));
        }
        let ancestors = ancestors_of(store, &session).await?;
        Ok(Self { session, events, ancestors })
    }

    /// Stores the session as it is, commit by commit, if there is none of its id yet. If an earlier import was cut
    /// off, it is finished; if all is there, nothing is written. Nothing is ever merged.
    ///
    /// An ancestor that is not there is stored first, as far as the document has it. Importing the ancestor's own document
    /// later completes it. One that was in the middle of its work at that point, or a child whose parent was not told of it
    /// yet, is not stored: whoever looks after sessions there would do that again.
    ///
    /// The document is taken for a stranger's: it writes to its own session, and to no other that is there already; the
    /// numbers in it are checked as well as what it says of its ancestors; and it holds no [shelf](agent_core::store::Shelf).
    ///
    /// # Errors
    ///
    /// Before anything is written: `Conflict` if the store has another history under this id or an ancestor's, or of an
    /// ancestor only a part of what the session shares; `Deleted` if it was deleted there; `NotFound` if an ancestor is not
    /// there, and had something left to do, or is not in the document either: import its own document first; `Corrupt` if its
    /// ancestors cannot be what the document says; `Denied` for an id of version 8, which only shelves have; `InvalidInput` for
    /// an event that no log has; `LimitExceeded` for a commit that is larger than any that is stored; `Unsupported` for what
    /// only a newer version of this library understands.
    ///
    /// Later: `Conflict` if somebody wrote to it meanwhile; `Deleted` if its parent was deleted there; those of
    /// [`SessionStoreExt::settle`].
    pub async fn import<S: SessionStore + ?Sized>(&self, store: &S) -> Result<Arc<Session>> {
        self.import_to(store, false).await
    }

    /// As [`import`](Self::import), and takes shelves, and completes an ancestor of which only a part is there: what an import
    /// that was cut off leaves. To be called by who knows that it was that, or trusts whoever made the document.
    ///
    /// # Errors
    ///
    /// As for [`import`](Self::import), but for the `Conflict` that this call is for.
    pub async fn import_with_ancestors<S: SessionStore + ?Sized>(&self, store: &S) -> Result<Arc<Session>> {
        self.import_to(store, true).await
    }

    async fn import_to<S: SessionStore + ?Sized>(&self, store: &S, completes: bool) -> Result<Arc<Session>> {
        let id = self.session.id;
        let members = self.check_family(store).await?;
        if let Some(shelf) = members.iter().find(|member| !completes && Shelf::may_have(member.id)) {
            return Err(Error::new(
                ErrorKind::Denied,
                format!(
                    "session {} has an id of a shelf, on which others keep what they share; copy the store instead, or, if \
                     whoever made the document is trusted, import it with import_with_ancestors",
                    shelf.id
                ),
            ));
        }
        let mut missing = self.missing_ancestors(store, &members, completes).await?;
        missing.push(self.missing_events(store).await?);
        // All of it is decided before any of it is stored, so that nothing of a document that is refused stays behind.
        for Missing { id, there, rest } in &mut missing {
            for commit in commits(*id, rest) {
                if let Plan::Write { after, .. } = plan(there.as_deref(), &commit?)? {
                    *there = Some(after);
                }
            }
        }
        for Missing { id, rest, .. } in missing {
            for commit in commits(id, rest) {
                store.settle(commit?).await?;
            }
        }
        let imported = store.load(id).await?;
        if imported.head != self.session.head {
            return Err(Error::new(
                ErrorKind::Conflict { head: Some(imported.head) },
                format!(
                    "session {id} is at event {}, not at {}; somebody writes to it",
                    imported.head, self.session.head
                ),
            ));
        }
        Ok(imported)
    }

    /// What the store lacks of the sessions that this one was made from, whose records are the first of `members`.
    async fn missing_ancestors<S: SessionStore + ?Sized>(
        &self,
        store: &S,
        members: &[Arc<Session>],
        completes: bool,
    ) -> Result<Vec<Missing<'_>>> {
        let id = self.session.id;
        let mut missing = Vec::with_capacity(members.len());
        for (Ancestor { session, events }, record) in self.ancestors.iter().zip(members) {
            let there = find(store, *session).await?;
            // What a session that was deleted there still shares is for the store to say.
            if there.as_ref().is_some_and(|there| there.status.state == SessionState::Deleted) {
                continue;
            }
            let rest = not_there(store, *session, there.as_deref(), events, false).await?;
            if let Some(there) = there.as_ref().filter(|_| !rest.is_empty() && !completes) {
                return Err(Error::new(
                    ErrorKind::Conflict { head: Some(there.head) },
                    format!(
                        "session {id} was made from {session} at a later event than {}, at which that session is in \
                         this store; import that session's own document first, or, if an import of this one was \
                         cut off, finish it with import_with_ancestors",
                        there.head
                    ),
                ));
            }
            if !rest.is_empty() && !is_at_rest(record) {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!(
                        "session {id} was made from {session} in the middle of a run, with work before it, or \
                         before its parent was told, and this store does not have that session; import its own \
                         document first"
                    ),
                ));
            }
            missing.push(Missing { id: *session, there, rest });
        }
        Ok(missing)
    }

    /// What the store lacks of the session itself.
    async fn missing_events<S: SessionStore + ?Sized>(&self, store: &S) -> Result<Missing<'_>> {
        let id = self.session.id;
        let there = find(store, id).await?;
        if there.as_ref().is_some_and(|there| there.status.state == SessionState::Deleted) {
            return Err(Error::new(
                ErrorKind::Deleted,
                format!("session {id} was deleted in this store; its id is not used again"),
            ));
        }
        let rest = not_there(store, id, there.as_deref(), &self.events, true).await?;
        Ok(Missing { id, there, rest })
    }

    /// The records that the document's events make, the session's own last. Refuses those that cannot have come to be as it
    /// says: each after the one that it was made from, one level deeper, and with that one's lineage.
    async fn check_family<S: SessionStore + ?Sized>(&self, store: &S) -> Result<Vec<Arc<Session>>> {
        let ancestors = self.ancestors.iter().map(|ancestor| (ancestor.session, &ancestor.events));
        let mut members = Vec::with_capacity(self.ancestors.len() + 1);
        for (id, events) in ancestors.chain([(self.session.id, &self.events)]) {
            members.push(Arc::new(folded(id, events)?));
        }
        for (n, record) in members.iter().enumerate() {
            let (before, behind) = members.split_at(n);
            let no = |what: &str| Err(Error::corrupt(format!("the document's session {} {what}", record.id)));
            if before.iter().any(|other| other.id == record.id) {
                return no("stands in it twice");
            }
            let Some(parent) = record.origin.parent() else { continue };
            if behind.iter().any(|other| other.id == parent) {
                return no("stands before the one that it was made from");
            }
            let fits = match before.iter().find(|other| other.id == parent) {
                Some(parent) => is_made_from(record, parent),
                None => match find(store, parent).await? {
                    Some(parent) => is_made_from(record, &parent),
                    None if find(store, record.id).await?.is_some() => true,
                    None => {
                        return Err(Error::new(
                            ErrorKind::NotFound,
                            format!(
                                "session {} was made from {parent}, which is neither in the document nor in this \
                                 store; import that session first",
                                record.id
                            ),
                        ));
                    }
                },
            };
            if !fits {
                return no(&format!(
                    "says another depth or lineage than one that was made from {parent} has"
                ));
            }
        }
        Ok(members)
    }

    /// The document.
    pub fn to_json(&self) -> String {
        let mut out = format!(
            "{{\"format\":{MANIFEST_FORMAT},\"kind\":\"{KIND}\",\"session\":{},\n\"events\":[",
            self.session.to_json()
        );
        push_events(&mut out, &self.events);
        for (n, ancestor) in self.ancestors.iter().enumerate() {
            out.push_str(if n == 0 { ",\n\"ancestors\":[" } else { "," });
            out.push_str(&format!("\n{{\"session\":\"{}\",\"events\":[", ancestor.session));
            push_events(&mut out, &ancestor.events);
            out.push('}');
        }
        if !self.ancestors.is_empty() {
            out.push_str("\n]");
        }
        let crc = crc32c::crc32c(out.as_bytes());
        out.push_str(&format!("{CRC_OPEN}{crc:08x}{CRC_CLOSE}"));
        out
    }

    /// Reads a document; the record is made of its events.
    ///
    /// # Errors
    ///
    /// `Corrupt` where it is not as it was written; `Unsupported` where it is of a newer version, or of another kind.
    pub fn parse(text: &str) -> Result<Self> {
        let whole = checked(text);
        // What a newer version says of itself comes first: it may be framed otherwise.
        let format = check_document(text, KIND, MANIFEST_FORMAT)?;
        if !whole || format != MANIFEST_FORMAT {
            return Err(Error::corrupt(
                "the manifest's checksum does not fit; export it again, or take another copy",
            ));
        }
        let Document { session: named, events, ancestors } =
            serde_json::from_str(text).map_err(|source| {
                Error::corrupt("the manifest lacks its parts").with_source(JsonFault::from(source))
            })?;
        let (session, events) = read_session(named.id, &events)?;
        if session.head != named.head {
            return Err(Error::corrupt(format!(
                "the manifest of session {} has events up to {}, its record says {}",
                named.id, session.head, named.head
            )));
        }
        let ancestors = ancestors.into_iter().map(|Shared { session, events }| {
            read_session(session, &events).map(|(_, events)| Ancestor { session, events })
        });
        Ok(Self { session: Arc::new(session), events, ancestors: ancestors.collect::<Result<_>>()? })
    }
}

/// What a store lacks of a session of the document.
struct Missing<'a> {
    id: SessionId,
    /// The record that it goes behind; nothing where all of the session is missing.
    there: Option<Arc<Session>>,
    rest: &'a [Event],
}

/// The sessions that another was made from, parents first: each whole as far as one that was made from it shares it.
async fn ancestors_of<S: SessionStore + ?Sized>(store: &S, session: &Session) -> Result<Vec<Ancestor>> {
    let mut found: HashMap<SessionId, (Arc<Session>, Seq)> = HashMap::new();
    let mut wanted = shared_by(session);
    while let Some((id, until)) = wanted.pop() {
        match found.entry(id) {
            Entry::Occupied(mut there) => {
                let (_, so_far) = there.get_mut();
                *so_far = until.max(*so_far);
            }
            Entry::Vacant(place) => {
                let record = store.load(id).await?;
                wanted.extend(shared_by(&record));
                place.insert((record, until));
            }
        }
    }
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by_key(|(record, _)| (record.depth, record.id));
    let mut ancestors = Vec::with_capacity(found.len());
    for (record, until) in found {
        let (id, base) = (record.id, record.lineage.base());
        let mut events: Vec<_> =
            own_events(store, id, base, Some(until.max(base.next()))).try_collect().await?;
        // Of one that was deleted, and shares nothing, nothing may be left.
        let Some(last) = events.last() else { continue };
        if last.n < last.of {
            let end = Seq::new(last.seq.get() + u64::from(last.of - last.n));
            let rest: Vec<_> = own_events(store, id, last.seq, Some(end)).try_collect().await?;
            events.extend(rest);
        }
        if events.last().is_none_or(|last| last.seq < until || last.n < last.of) {
            return Err(Error::new(
                ErrorKind::Deleted,
                format!(
                    "session {}: what it shares with {id}, which was deleted, ends within a commit; \
                     copy the store instead",
                    session.id
                ),
            ));
        }
        ancestors.push(Ancestor { session: id, events });
    }
    Ok(ancestors)
}

/// The sessions that another was made from, and up to where it shares their events.
fn shared_by(session: &Session) -> Vec<(SessionId, Seq)> {
    let segments = session.lineage.segments.iter().map(|segment| (segment.session, segment.until));
    segments.chain(session.origin.parent().map(|parent| (parent, Seq::ZERO))).collect()
}

/// The session of this id, if there is one.
async fn find<S: SessionStore + ?Sized>(store: &S, id: SessionId) -> Result<Option<Arc<Session>>> {
    match store.load(id).await {
        Ok(session) => Ok(Some(session)),
        Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The events that are not there yet, after comparing those that are. There may be more of them where these are not the
/// whole log.
async fn not_there<'a, S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    there: Option<&Session>,
    events: &'a [Event],
    whole: bool,
) -> Result<&'a [Event]> {
    let mut rest = events;
    if let (Some(there), [first, ..]) = (there, events) {
        let conflict = |seq: Seq| {
            Error::new(
                ErrorKind::Conflict { head: Some(there.head) },
                format!(
                    "session {id} is in this store already, with another event {seq}; nothing was written"
                ),
            )
        };
        let after = Seq::new(first.seq.get().saturating_sub(1));
        let mut own = own_events(store, id, after, Some(there.head));
        while (whole || !rest.is_empty())
            && let Some(event) = own.try_next().await?
        {
            match rest.split_first() {
                Some((first, behind)) if *first == event => rest = behind,
                _ => return Err(conflict(event.seq)),
            }
        }
        if rest.len() == events.len() {
            // It begins elsewhere.
            return Err(conflict(first.seq));
        }
    }
    Ok(rest)
}

/// Events of one session as the commits by which they are stored.
fn commits(id: SessionId, events: &[Event]) -> impl Iterator<Item = Result<Commit>> {
    events.chunk_by(|a, b| a.commit == b.commit).map(move |commit| Commit::restore(id, commit.to_vec()))
}

/// Whether a session has the depth and the lineage that one made from `parent` has.
fn is_made_from(session: &Session, parent: &Session) -> bool {
    let lineage = match session.origin {
        Origin::Fork { at, .. } if at <= parent.head => parent.lineage.forked(parent.id, at),
        Origin::Fork { .. } => return false,
        _ => Lineage::default(),
    };
    session.depth == parent.depth.saturating_add(1) && session.lineage == lineage
}

/// Whether nobody who looks after sessions would find anything to do in this one.
fn is_at_rest(session: &Session) -> bool {
    use SessionState::{Archived, Failed, Idle, Suspended, Terminated};

    let rests = matches!(session.status.state, Idle | Suspended | Archived | Failed | Terminated);
    let is_done = session.pending == 0 && session.wakes.is_empty() && session.open_calls.is_empty();
    rests && is_done && session.to_report().is_none()
}

fn push_events(out: &mut String, events: &[Event]) {
    for (n, event) in events.iter().enumerate() {
        out.push_str(if n == 0 { "\n" } else { ",\n" });
        out.push_str(&event.to_json());
    }
    out.push_str("\n]");
}

/// The events as they are written, and the record that they make.
fn read_session(id: SessionId, events: &[RawJson]) -> Result<(Session, Vec<Event>)> {
    let events: Vec<_> = events.iter().map(|event| read_event(id, event)).collect::<Result<_>>()?;
    Ok((folded(id, &events)?, events))
}

/// An event as it is written, whose id is that of its place.
fn read_event(session: SessionId, json: &RawJson) -> Result<Event> {
    #[derive(Deserialize)]
    struct Identified {
        id: EventId,
    }
    let event = Event::from_json(json.get())?;
    match json.to::<Identified>() {
        Ok(Identified { id }) if id == event.id() => Ok(event),
        _ => Err(Error::corrupt(format!(
            "event {} of session {session} has another id than follows from its commit",
            event.seq
        ))),
    }
}

/// The record that the events make.
fn folded(id: SessionId, events: &[Event]) -> Result<Session> {
    let mut session = None;
    for event in events {
        apply_untrusted(&mut session, id, event)?;
    }
    session.ok_or_else(|| Error::corrupt(format!("the manifest of session {id} has no events")))
}

/// Whether a document ends with the checksum of what comes before.
fn checked(text: &str) -> bool {
    let Some(at) = text.len().checked_sub(CRC_LEN).filter(|at| text.is_char_boundary(*at)) else {
        return false;
    };
    let (body, tail) = text.split_at(at);
    tail == format!("{CRC_OPEN}{:08x}{CRC_CLOSE}", crc32c::crc32c(body.as_bytes()))
}
