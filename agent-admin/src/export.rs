//! Export of a session in pieces, in memory that does not grow with the session.
//!
//! The bytes of a document are those of [`Manifest::to_json`](crate::manifest::Manifest::to_json), which holds the whole
//! session in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::{self, BoxStream, StreamExt};

use crate::archive;
use crate::manifest::{DocumentText, Tally, has_blobs};
use crate::source::{Log, exported_events, purged, read_logs, watched};
use agent_core::session::SessionRecord;
use agent_core::{BlobName, Result, SessionId, SessionStore};

/// Size from which a piece is handed out. A piece is larger by at most one event.
const PIECE_BYTES: usize = 64 << 10;
/// Number of events after which progress is reported.
const PROGRESS_EVENTS: u64 = 1_000;

/// Session that was read once and is complete, and can be written in pieces.
///
/// Memory holds one page of events (of some 256 KiB, or one larger event), and the name of each blob, however long the
/// session is.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = echo().await?;
/// # chat.prompt("Hello").await?.finish().await?;
/// use agent_admin::export::SessionExport;
/// use agent_admin::manifest::Manifest;
/// use futures::TryStreamExt;
///
/// let sessions = &*agent.storage().sessions;
/// let export = SessionExport::read(sessions, chat.id(), |_| {}).await?;
/// // A program writes the pieces to a file.
/// let pieces: Vec<_> = export.to_json()?.try_collect().await?;
/// assert_eq!(pieces.concat().len() as u64, export.document_bytes());
/// assert_eq!(pieces.concat(), Manifest::export(sessions, chat.id()).await?.to_json()?.into_bytes());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SessionExport<'a> {
    store: &'a dyn SessionStore,
    session: Arc<SessionRecord>,
    logs: Vec<Log>,
    /// Blobs that the events name, each with the session that has it.
    blobs: BTreeMap<BlobName, SessionId>,
    read: Tally,
}

impl<'a> SessionExport<'a> {
    /// Reads a session and its ancestors once, to check that they are complete, and to measure the document.
    ///
    /// The document is that of [`Manifest::export`](crate::manifest::Manifest::export), up to the present head of the
    /// session. `progress` is called after every 1,000 events with the number of events that were read. Each method that
    /// writes reads the session once more.
    ///
    /// # Errors
    ///
    /// Those of [`Manifest::export`](crate::manifest::Manifest::export).
    pub async fn read(
        store: &'a dyn SessionStore,
        id: SessionId,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<Self> {
        let begin = |session: &SessionRecord| (DocumentText::begin(session), BTreeMap::new());
        let mut events = 0_u64;
        let (session, logs, (mut text, blobs)) = read_logs(store, id, begin, |(text, blobs), log, event| {
            text.push(log, &event);
            text.take();
            for name in &event.blobs {
                blobs.entry(*name).or_insert(log.1);
            }
            events += 1;
            if events.is_multiple_of(PROGRESS_EVENTS) {
                progress(events);
            }
        })
        .await?;
        text.close();
        text.take();
        Ok(Self { store, session, logs, blobs, read: text.taken })
    }

    /// Returns the record of the session.
    pub fn session(&self) -> &SessionRecord {
        &self.session
    }

    /// Returns the number of blobs that the events name, those of ancestors included. If it is not 0, an
    /// [archive](Self::to_archive) is needed.
    pub fn blobs(&self) -> usize {
        self.blobs.len()
    }

    /// Returns the number of bytes of the document.
    pub fn document_bytes(&self) -> u64 {
        self.read.bytes + self.read.ending().len() as u64
    }

    /// Returns the JSON document in pieces of some 64 KiB; one with a larger event has that whole.
    ///
    /// An error ends the pieces; what was written until then is no document.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if events name blobs, which the document cannot contain: use [`to_archive`](Self::to_archive). In
    /// the pieces: `Conflict` if events or blobs were removed since the session was [read](Self::read), as by a purge;
    /// errors of the store. What is appended meanwhile is no error, and not in the document; nor is a deletion without a
    /// purge, before which the session is written as it was.
    pub fn to_json(&self) -> Result<BoxStream<'a, Result<Bytes>>> {
        match self.blobs.len() {
            0 => Ok(watched(self.store, self.session.id, self.document())),
            count => Err(has_blobs(self.session.id, count)),
        }
    }

    /// Returns the session with its blobs as an [archive], in pieces.
    ///
    /// Reads one blob after another while the pieces are read, and holds at most 4 MiB of it.
    ///
    /// An error ends the pieces; what was written until then is no archive.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` if the document is larger than [`DOCUMENT_MAX_BYTES`](archive::DOCUMENT_MAX_BYTES). In the pieces:
    /// `Corrupt` for a lost or damaged blob; those of [`to_json`](Self::to_json).
    pub fn to_archive(&self) -> Result<BoxStream<'a, Result<Bytes>>> {
        let document = (self.document(), self.document_bytes());
        archive::write(self.store, document, self.blobs.clone())
            .map(|pieces| watched(self.store, self.session.id, pieces))
    }

    fn document(&self) -> BoxStream<'a, Result<Bytes>> {
        let (store, id, expected) = (self.store, self.session.id, self.read);
        let events = stream::iter(self.logs.clone().into_iter().enumerate()).flat_map(move |(n, log)| {
            exported_events(store, log.id, log.base, log.until).map_ok(move |event| ((n, log.id), event))
        });
        let begun = (events.boxed(), DocumentText::begin(&self.session));
        let pieces = stream::try_unfold(Some(begun), move |state| async move {
            let Some((mut events, mut text)) = state else { return Ok(None) };
            while text.new.len() < PIECE_BYTES {
                if let Some((log, event)) = events.try_next().await? {
                    text.push(log, &event);
                    continue;
                }
                text.close();
                let piece = text.take();
                if text.taken != expected {
                    return Err(purged(id));
                }
                return Ok(Some((Bytes::from(piece + &text.taken.ending()), None)));
            }
            Ok(Some((Bytes::from(text.take()), Some((events, text)))))
        });
        pieces.boxed()
    }
}
