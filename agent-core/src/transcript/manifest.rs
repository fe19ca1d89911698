//! One session as one document: exported from any store, imported into any other, the same to the byte.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! use agent_core::{Effects, MemoryStore, NewEvent, NewSession, SessionStore, SessionStoreExt, WorkspaceId};
//! use agent_core::transcript::Manifest;
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
//! own events, one a line), and last `crc32c`: eight lower-case hexadecimal digits, of the bytes before `,"crc32c":`. The
//! events are the truth: what is imported is their fold.

use futures::TryStreamExt;
use serde::Deserialize;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{Seq, SessionId};
use crate::json::{Fault, RawJson};
use crate::session::ext::own_events;
use crate::session::{Commit, Event, Session, SessionState, SessionStore, SessionStoreExt};

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
    pub session: Session,
    /// Its own events, from the first to the record's head.
    pub events: Vec<Event>,
}

/// What every version of the document says of itself.
#[derive(Deserialize)]
struct Head {
    format: u64,
    kind: String,
}

#[derive(Deserialize)]
struct Document {
    session: Named,
    events: Vec<RawJson>,
}

/// Of the record, what the events do not tell.
#[derive(Deserialize)]
struct Named {
    id: SessionId,
    head: Seq,
}

impl Manifest {
    /// Reads a session from a store: its record, and all of its own events up to the record's head. Holds them all in
    /// memory.
    ///
    /// # Errors
    ///
    /// `Deleted`, `NotFound`; `Corrupt` where a part of the log cannot be read: then there is no whole session to export.
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
        Ok(Self { session, events })
    }

    /// Stores the session as it is, commit by commit, where there is none of its id yet. Where an earlier import was cut
    /// off, it is finished; where all is there, nothing is written. Nothing is ever merged.
    ///
    /// A fork or a child needs its parent in the same store: import that first.
    ///
    /// # Errors
    ///
    /// `Conflict` where the store has another history under this id, or somebody wrote to it meanwhile; `Deleted` where it
    /// was deleted there; those of [`SessionStoreExt::settle`].
    pub async fn import<S: SessionStore + ?Sized>(&self, store: &S) -> Result<Session> {
        let id = self.session.id;
        let there = match store.load(id).await {
            Ok(session) if session.status.state == SessionState::Deleted => {
                return Err(Error::new(
                    ErrorKind::Deleted,
                    format!("session {id} was deleted in this store; its id is not used again"),
                ));
            }
            Ok(session) => Some(session),
            Err(error) if *error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut rest = self.events.as_slice();
        if let Some(there) = &there {
            let mut own = own_events(store, id, self.session.lineage.base(), Some(there.head));
            while let Some(event) = own.try_next().await? {
                match rest.split_first() {
                    Some((first, behind)) if *first == event => rest = behind,
                    _ => {
                        return Err(Error::new(
                            ErrorKind::Conflict { head: Some(there.head) },
                            format!(
                                "session {id} is in this store already, with another event {}; nothing was written",
                                event.seq
                            ),
                        ));
                    }
                }
            }
        }
        for commit in rest.chunk_by(|a, b| a.commit == b.commit) {
            store.settle(Commit::restore(id, commit.to_vec())?).await?;
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

    /// The document.
    pub fn to_json(&self) -> String {
        let mut out = format!(
            "{{\"format\":{MANIFEST_FORMAT},\"kind\":\"{KIND}\",\"session\":{},\n\"events\":[",
            self.session.to_json()
        );
        for (n, event) in self.events.iter().enumerate() {
            out.push_str(if n == 0 { "\n" } else { ",\n" });
            out.push_str(&event.to_json());
        }
        out.push_str("\n]");
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
        let head: Head = serde_json::from_str(text).map_err(|source| {
            Error::corrupt("the document is no manifest").with_source(Fault::from(source))
        })?;
        if head.format > MANIFEST_FORMAT || head.kind != KIND {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the document is a {:?} of format {}; this version reads a {KIND:?} of format {MANIFEST_FORMAT}",
                    head.kind.chars().take(32).collect::<String>(),
                    head.format
                ),
            ));
        }
        if !whole || head.format != MANIFEST_FORMAT {
            return Err(Error::corrupt(
                "the manifest's checksum does not fit; export it again, or take another copy",
            ));
        }
        let Document { session: named, events } = serde_json::from_str(text).map_err(|source| {
            Error::corrupt("the manifest lacks its parts").with_source(Fault::from(source))
        })?;
        let events: Vec<_> =
            events.iter().map(|event| Event::from_json(event.get())).collect::<Result<_>>()?;
        let [first, rest @ ..] = events.as_slice() else {
            return Err(Error::corrupt(format!("the manifest of session {} has no events", named.id)));
        };
        let mut session = Session::begin(named.id, first)?;
        for event in rest {
            session.apply(event)?;
        }
        if session.head != named.head {
            return Err(Error::corrupt(format!(
                "the manifest of session {} has events up to {}, its record says {}",
                named.id, session.head, named.head
            )));
        }
        Ok(Self { session, events })
    }
}

/// Whether a document ends with the checksum of what comes before.
fn checked(text: &str) -> bool {
    let Some(at) = text.len().checked_sub(CRC_LEN).filter(|at| text.is_char_boundary(*at)) else {
        return false;
    };
    let (body, tail) = text.split_at(at);
    tail == format!("{CRC_OPEN}{:08x}{CRC_CLOSE}", crc32c::crc32c(body.as_bytes()))
}
