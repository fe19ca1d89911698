//! Reads a source on a thread that may block, and hands its entries on as events.

use agent_core::event::{EventPayload, EventType, Media, MediaSource, NewEvent};
use agent_core::{Error, ErrorKind, Result, Timestamp};

use crate::bounds;
use crate::ids::EntryId;
use crate::pairing::{ITEMS_MAX, Pairing};
use crate::source::{Entry, Item, Notes, Source, Transcript};

/// Bytes of events that are handed on at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of an output above which it is stored as a blob.
const OUTPUT_INLINE_BYTES: usize = 32 << 10;

/// Part of an entry that is written as one.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) id: EntryId,
    pub(crate) at: Timestamp,
    pub(crate) begins_turn: bool,
    pub(crate) content: Content,
    /// Number of bytes of the payloads.
    pub(crate) bytes: usize,
    /// Number of blobs, at most.
    pub(crate) blobs: usize,
    /// True if calls are open behind it.
    pub(crate) is_open: bool,
}

/// What a piece is written as.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Events(Vec<NewEvent>),
    Compaction(String),
}

/// Pieces of a transcript.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) is_end: bool,
    /// Error after the pieces, which ends the transcript.
    pub(crate) error: Option<Error>,
}

/// Source that is being read, and what was seen of its transcript.
pub(crate) struct Feed {
    source: Box<dyn Source>,
    format: &'static str,
    keeps_unknown: bool,
    is_finished: bool,
    pairing: Pairing,
    at: Timestamp,
    pub(crate) notes: Notes,
}

impl Feed {
    pub(crate) fn new(
        source: Box<dyn Source>,
        format: &'static str,
        keeps_unknown: bool,
        is_finished: bool,
    ) -> Self {
        let (pairing, notes) = (Pairing::default(), Notes::default());
        Self { source, format, keeps_unknown, is_finished, pairing, at: Timestamp::UNIX_EPOCH, notes }
    }

    pub(crate) fn next_transcript(&mut self) -> Result<Option<Transcript>> {
        self.pairing = Pairing::default();
        let next = self.source.next_transcript(&mut self.notes)?;
        self.at = next.as_ref().and_then(|next| next.at).unwrap_or(Timestamp::UNIX_EPOCH);
        Ok(next)
    }

    pub(crate) fn shared(&self) -> Vec<EntryId> {
        self.source.shared()
    }

    pub(crate) fn share_from(&mut self, number: usize) {
        self.source.share_from(number);
    }

    /// Reads on.
    pub(crate) fn chunk(&mut self) -> Chunk {
        let (mut chunk, mut bytes) = (Chunk::default(), 0);
        while bytes < CHUNK_BYTES && chunk.pieces.len() < 1024 {
            match self.source.next_entry(&mut self.notes) {
                Ok(Some(entry)) => {
                    let before = chunk.pieces.len();
                    self.entry(entry, &mut chunk.pieces);
                    bytes += chunk.pieces[before..].iter().map(|piece| piece.bytes).sum::<usize>();
                }
                Ok(None) => {
                    self.end(&mut chunk.pieces);
                    chunk.is_end = true;
                    return chunk;
                }
                Err(error) => {
                    chunk.error = Some(error);
                    return chunk;
                }
            }
        }
        chunk
    }

    fn end(&mut self, pieces: &mut Vec<Piece>) {
        self.pairing.end(&mut self.notes);
        if self.is_finished && self.pairing.is_open() {
            let mut entry = Entry::new(EntryId::of("end of a finished source"), None);
            self.pairing.close(&mut entry.items, &mut self.notes);
            self.pieces(entry, pieces);
        }
    }

    fn entry(&mut self, mut entry: Entry, pieces: &mut Vec<Piece>) {
        // Before calls and results are paired: a call without its place in the log has no result there.
        let items = std::mem::take(&mut entry.items);
        entry.items = items.into_iter().filter_map(|item| bounds::item(item, &mut self.notes)).collect();
        self.pairing.fix(&mut entry, &mut self.notes);
        self.pieces(entry, pieces);
    }

    /// Cuts an entry into pieces that fit in a commit.
    fn pieces(&mut self, entry: Entry, pieces: &mut Vec<Piece>) {
        self.at = entry.at.unwrap_or(self.at);
        let (mut number, mut begins_turn) = (0, entry.begins_turn || entry.is_behind_branch);
        let mut piece = |content, bytes, blobs, pieces: &mut Vec<Piece>| {
            let id = entry.id.part(number);
            let is_open = self.pairing.is_open();
            pieces.push(Piece { id, at: self.at, begins_turn, content, bytes, blobs, is_open });
            (number, begins_turn) = (number + 1, false);
        };
        let (mut events, mut bytes, mut blobs) = (Vec::new(), 0, 0);
        for item in entry.items {
            let (event, names) = match item {
                Item::Event(payload) => (NewEvent::of(&payload), large(&payload)),
                Item::Unknown { kind, json } if self.keeps_unknown => {
                    match format!("x.{}.{kind}", self.format.replace('-', "_")).parse::<EventType>() {
                        Ok(kind) => (NewEvent::new(kind, json), 0),
                        Err(_) => continue,
                    }
                }
                Item::Unknown { .. } => continue,
                Item::Compaction(summary) => {
                    if !events.is_empty() {
                        piece(Content::Events(std::mem::take(&mut events)), bytes, blobs, pieces);
                        (bytes, blobs) = (0, 0);
                    }
                    let bytes = summary.len();
                    piece(Content::Compaction(summary), bytes, 0, pieces);
                    continue;
                }
            };
            if events.len() == ITEMS_MAX || blobs + names > 60 {
                piece(Content::Events(std::mem::take(&mut events)), bytes, blobs, pieces);
                (bytes, blobs) = (0, 0);
            }
            bytes += event.payload.get().len();
            blobs += names;
            events.push(event.with_at(self.at));
        }
        if !events.is_empty() {
            piece(Content::Events(events), bytes, blobs, pieces);
        }
    }
}

/// Returns the number of blobs that an event may need.
fn large(payload: &EventPayload) -> usize {
    let parts = match payload {
        EventPayload::UserMessage(message) | EventPayload::AgentMessage(message) => &message.parts,
        EventPayload::AgentToolResult(result) => {
            let media = result.content.iter().filter(|part| part.media().is_some()).count();
            return media
                + usize::from(result.output.get().len() > OUTPUT_INLINE_BYTES || result.full.is_some());
        }
        EventPayload::AgentPart(part) => return usize::from(part.content.media().is_some_and(is_inline)),
        _ => return 0,
    };
    parts.iter().filter(|part| part.media().is_some_and(is_inline)).count()
}

fn is_inline(media: &Media) -> bool {
    matches!(media.source, MediaSource::Inline(_))
}

/// Feed whose calls run on a thread that may block.
pub(crate) struct Reader(Option<Box<Feed>>);

impl Reader {
    pub(crate) fn new(feed: Feed) -> Self {
        Self(Some(Box::new(feed)))
    }

    /// Calls a function of the feed.
    ///
    /// # Errors
    ///
    /// `Unavailable` if it panicked, or an earlier call was dropped before its end.
    pub(crate) async fn on<T: Send + 'static>(
        &mut self,
        call: impl FnOnce(&mut Feed) -> T + Send + 'static,
    ) -> Result<T> {
        let ended = || {
            Error::new(
                ErrorKind::Unavailable,
                "the source is read no more, since an earlier call did not end; import it again",
            )
        };
        let mut feed = self.0.take().ok_or_else(ended)?;
        let joined = tokio::task::spawn_blocking(move || {
            let value = call(&mut feed);
            (feed, value)
        });
        let (feed, value) = joined.await.map_err(|source| ended().with_source(source))?;
        self.0 = Some(feed);
        Ok(value)
    }
}
