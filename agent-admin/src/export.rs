//! Export of a session in pieces, in memory that does not grow with the session.
//!
//! The bytes are those of [`Manifest::to_json`](crate::manifest::Manifest::to_json) and
//! [`Manifest::to_archive`](crate::manifest::Manifest::to_archive), which hold the whole session in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::{self, BoxStream, StreamExt};

use crate::archive;
use crate::manifest::{
    ANCESTOR_CLOSE, EVENTS_CLOSE, ancestor_opening, before_event, ending, has_blobs, opening,
};
use crate::source::{
    check_head, each_event, exported, exported_events, purged, shared_logs, unless_deleted, watched,
};
use agent_core::event::Event;
use agent_core::session::SessionRecord;
use agent_core::{BlobName, Result, Seq, SessionId, SessionStore};

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
    parts: Vec<Part>,
    /// Blobs that the events name, each with the session that has it.
    blobs: BTreeMap<BlobName, SessionId>,
    read: Tally,
}

/// Events of one session in the document.
#[derive(Clone, Debug)]
struct Part {
    id: SessionId,
    after: Seq,
    until: Seq,
    /// Text before the events, and behind them.
    opening: String,
    closing: &'static str,
}

/// Length and checksum of the document up to a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    bytes: u64,
    crc: u32,
}

impl Tally {
    fn add(&mut self, text: &str) {
        self.bytes += text.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, text.as_bytes());
    }
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
        progress: impl FnMut(u64) + Send,
    ) -> Result<Self> {
        match Self::read_whole(store, id, progress).await {
            Err(error) => Err(unless_deleted(store, id, error).await),
            read => read,
        }
    }

    async fn read_whole(
        store: &'a dyn SessionStore,
        id: SessionId,
        progress: impl FnMut(u64) + Send,
    ) -> Result<Self> {
        let session = exported(store, id).await?;
        let own = Part {
            id,
            after: session.lineage.base(),
            until: session.head,
            opening: opening(&session),
            closing: EVENTS_CLOSE,
        };
        let (blobs, read) = (BTreeMap::new(), Tally::default());
        let mut reader = Reader { blobs, read, is_first: true, events: 0, progress };
        reader.open(&own.opening);
        let last = each_event(store, id, (own.after, own.until), |event| reader.take(id, &event)).await?;
        check_head(&session, last.map(|last| last.seq))?;
        reader.read.add(own.closing);
        let mut parts = vec![own];
        for log in shared_logs(store, &session).await? {
            let opening = ancestor_opening(parts.len() - 1, log.id);
            let before = reader.read;
            reader.open(&opening);
            let Some(until) = log.read(store, id, |event| reader.take(log.id, &event)).await? else {
                reader.read = before;
                continue;
            };
            reader.read.add(ANCESTOR_CLOSE);
            parts.push(Part { id: log.id, after: log.base, until, opening, closing: ANCESTOR_CLOSE });
        }
        if parts.len() > 1 {
            reader.read.add(EVENTS_CLOSE);
        }
        let Reader { blobs, read, .. } = reader;
        Ok(Self { store, session, parts, blobs, read })
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
        self.read.bytes + ending(self.read.crc).len() as u64
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
    /// An error ends the pieces; what was written until then is no archive.
    ///
    /// # Errors
    ///
    /// Those of [`Manifest::to_archive`](crate::manifest::Manifest::to_archive), and in the pieces those of
    /// [`to_json`](Self::to_json).
    pub fn to_archive(&self) -> Result<BoxStream<'a, Result<Bytes>>> {
        let document = (self.document(), self.document_bytes());
        archive::write(self.store, document, self.blobs.clone())
            .map(|pieces| watched(self.store, self.session.id, pieces))
    }

    fn document(&self) -> BoxStream<'a, Result<Bytes>> {
        let (store, id, expected) = (self.store, self.session.id, self.read);
        let end: Option<Result<String>> = (self.parts.len() > 1).then(|| Ok(EVENTS_CLOSE.to_owned()));
        let text = stream::iter(self.parts.clone()).flat_map(move |part| {
            let Part { id, after, until, opening, closing } = part;
            let events = exported_events(store, id, after, until).enumerate();
            let events = events.map(|(n, event)| Ok(format!("{}{}", before_event(n == 0), event?.to_json())));
            stream::iter([Ok(opening)]).chain(events).chain(stream::iter([Ok(closing.to_owned())]))
        });
        let text = text.chain(stream::iter(end)).boxed();
        let pieces = stream::try_unfold(Some((text, Tally::default())), move |state| async move {
            let Some((mut text, mut written)) = state else { return Ok(None) };
            let mut piece = String::new();
            while piece.len() < PIECE_BYTES {
                if let Some(next) = text.try_next().await? {
                    piece.push_str(&next);
                    continue;
                }
                written.add(&piece);
                if written != expected {
                    return Err(purged(id));
                }
                piece.push_str(&ending(written.crc));
                return Ok(Some((Bytes::from(piece), None)));
            }
            written.add(&piece);
            Ok(Some((Bytes::from(piece), Some((text, written)))))
        });
        pieces.boxed()
    }
}

/// First reading of a session.
struct Reader<P> {
    blobs: BTreeMap<BlobName, SessionId>,
    read: Tally,
    /// True if the next event is the first of its list.
    is_first: bool,
    events: u64,
    progress: P,
}

impl<P: FnMut(u64) + Send> Reader<P> {
    fn open(&mut self, opening: &str) {
        self.read.add(opening);
        self.is_first = true;
    }

    fn take(&mut self, id: SessionId, event: &Event) {
        self.read.add(before_event(std::mem::take(&mut self.is_first)));
        self.read.add(&event.to_json());
        for name in &event.blobs {
            self.blobs.entry(*name).or_insert(id);
        }
        self.events += 1;
        if self.events.is_multiple_of(PROGRESS_EVENTS) {
            (self.progress)(self.events);
        }
    }
}
