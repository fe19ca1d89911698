//! Answer that is being written, for every reader of the process.
//!
//! The run keeps what it has streamed and not stored, and each reader takes from there what it does not have. Nothing is
//! kept for a reader, so a slow one costs no memory, delays nobody and loses no text.

use std::cmp::max;
use std::future::pending;

use tokio::sync::watch;

use crate::model::event::PartKind;
use agent_core::event::Event;
use agent_core::{CommitId, Epoch, RunId, Seq};
use serde::{Deserialize, Serialize};

/// Maximum bytes of a text that a reader copies at once, during which the run cannot add to it.
const PIECE_MAX_BYTES: usize = 64 << 10;

/// Item of the stream [`Conversation::live`](crate::Conversation::live): a stored event, or a piece of the answer that is
/// being written.
///
/// The id of the commit and the number of the part name the part, as
/// [`Update::PartStarted`](crate::Update::PartStarted) says: the log has the same names.
///
/// As JSON it is `{"type":"piece","data":{"commit":…,"index":0,"kind":"text","text":"Hel"}}`: the name of the variant in snake case, and
/// its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Live {
    /// Stored event. It replaces all parts of its commit: a reader drops them with the first event of that commit.
    Event(Box<Event>),
    /// Part of the answer, with the beginning of what the model has written of it; pieces follow.
    #[non_exhaustive]
    Part {
        /// Run that writes the answer.
        run: RunId,
        /// Id of the commit that will hold the answer.
        commit: CommitId,
        /// Number of the part.
        index: u32,
        /// Kind of the part. A tool call, a medium and what the provider ran itself have no text here; the log has them.
        kind: PartKind,
        /// Text, refusal or reasoning so far, at most 64 KiB.
        text: String,
    },
    /// What follows in the text of a part, at most 64 KiB.
    #[non_exhaustive]
    Piece {
        /// Id of the commit that will hold the answer.
        commit: CommitId,
        /// Number of the part.
        index: u32,
        /// Kind of the part.
        kind: PartKind,
        /// Piece.
        text: String,
    },
    /// The run went on or ended without the answer in the store, because it lost its lease, or the store failed: a reader
    /// drops all parts of the commit. Its events may still come, for example with
    /// [`OnStoreError::Continue`](crate::OnStoreError::Continue), when the store works again.
    #[non_exhaustive]
    Withdrawn {
        /// Id of the commit that would have held the answer.
        commit: CommitId,
    },
}

/// What a run has streamed of its answer and not stored; its size has the limits of an answer.
#[derive(Debug, Default)]
pub(crate) struct Answering {
    /// Last event that readers have before the answer.
    after: Seq,
    /// Id of the commit that will hold the answer; `None` if none is being written.
    commit: Option<CommitId>,
    /// Parts, in the order in which they began.
    parts: Vec<PartSoFar>,
    /// Place of the part to which the next piece belongs.
    current: usize,
}

#[derive(Debug)]
struct PartSoFar {
    index: u32,
    kind: PartKind,
    text: String,
}

impl Answering {
    /// Begins an answer that follows the event `after`, in place of the one before.
    pub(crate) fn begin(&mut self, commit: CommitId, after: Seq) {
        *self = Self { after, commit: Some(commit), ..Self::default() };
    }

    /// Notes the part to which the next pieces belong.
    pub(crate) fn turn_to(&mut self, index: u32, kind: PartKind) {
        let known = self.parts.iter().position(|part| part.index == index);
        self.current = known.unwrap_or(self.parts.len());
        if known.is_none() {
            self.parts.push(PartSoFar { index, kind, text: String::new() });
        }
    }

    pub(crate) fn push(&mut self, piece: &str) {
        if let Some(part) = self.parts.get_mut(self.current) {
            part.text.push_str(piece);
        }
    }

    /// Notes that a commit is stored, and frees the answer if it holds it. `head` is the last event: a reader that has it
    /// and no event of the answer drops its parts.
    pub(crate) fn stored(&mut self, commit: CommitId, head: Seq) {
        if self.commit == Some(commit) {
            *self = Self { after: head, ..Self::default() };
        }
    }

    /// Returns the bytes of the texts.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.text.len()).sum()
    }
}

/// Run whose answers a reader takes.
#[derive(Debug)]
struct Followed {
    run: RunId,
    epoch: Epoch,
    answer: watch::Receiver<Answering>,
    /// True if the run has ended.
    is_over: bool,
}

/// Parts of one answer that a reader has.
#[derive(Debug)]
struct Taken {
    commit: CommitId,
    /// Bytes of each part, in the order in which the parts began.
    bytes: Vec<usize>,
}

/// What one reader has of the session, and what it takes next of the answer that is being written.
#[derive(Debug)]
pub(crate) struct Pieces {
    followed: Option<Followed>,
    taken: Option<Taken>,
    /// Answer of the followed run that the reader has as events.
    stored: Option<CommitId>,
    /// Last event that the reader has.
    seen: Seq,
    /// Events that the reader had before.
    from: Seq,
}

impl Pieces {
    /// Creates the state of a reader that has the events until `from`.
    pub(crate) const fn new(from: Seq) -> Self {
        Self { followed: None, taken: None, stored: None, seen: Seq::ZERO, from }
    }

    /// Takes the answers of a run from now on, unless it is older than the one before.
    pub(crate) fn follow(&mut self, run: RunId, epoch: Epoch, answer: watch::Receiver<Answering>) {
        if self.followed.as_ref().is_none_or(|followed| followed.epoch < epoch) {
            self.followed = Some(Followed { run, epoch, answer, is_over: false });
        }
    }

    /// Returns the event after which a reader must look for the end of the answer that is being written. It can be older
    /// than what the reader has: the answer may be stored already, and the run not know it.
    pub(crate) fn begin(&mut self) -> Seq {
        let after = self.followed.as_ref().map(|followed| followed.answer.borrow().after);
        self.seen = after.map_or(self.from, |after| after.min(self.from));
        self.seen
    }

    /// Notes an event, before anything else is taken.
    pub(crate) fn event(&mut self, event: &Event) {
        self.seen = event.seq;
        let commit = Some(event.commit);
        // Compared with the answer of now, of which a reader may have taken nothing before it was stored.
        if self.followed.as_ref().is_some_and(|followed| followed.answer.borrow().commit == commit) {
            self.stored = commit;
        }
        self.taken.take_if(|taken| taken.commit == event.commit);
    }

    /// Waits for the next piece.
    ///
    /// The future may be dropped at any point: what it has not returned comes again.
    pub(crate) async fn next(&mut self) -> Live {
        loop {
            if let Some(live) = self.take() {
                return live;
            }
            match &mut self.followed {
                Some(followed) if !followed.is_over => {
                    followed.is_over = followed.answer.changed().await.is_err();
                }
                _ => pending().await,
            }
        }
    }

    /// Drops what the reader has of an answer that is not stored, and returns the word for it.
    pub(crate) fn withdraw(&mut self) -> Option<Live> {
        self.taken.take().map(|taken| Live::Withdrawn { commit: taken.commit })
    }

    /// Takes a piece that the reader does not have.
    fn take(&mut self) -> Option<Live> {
        let followed = self.followed.as_ref()?;
        let answer = followed.answer.borrow();
        // The events before the answer come first, and those of the answer before: with them the reader drops its parts.
        if self.seen < max(answer.after, self.from) {
            return None;
        }
        let commit = answer.commit.filter(|_| !followed.is_over);
        if self.taken.as_ref().is_some_and(|taken| Some(taken.commit) != commit) {
            drop(answer);
            return self.withdraw();
        }
        let commit = commit.filter(|_| self.stored != commit)?;
        let taken = self.taken.get_or_insert_with(|| Taken { commit, bytes: Vec::new() });
        for (place, part) in answer.parts.iter().enumerate() {
            let (index, kind) = (part.index, part.kind);
            match taken.bytes.get_mut(place) {
                None => {
                    let text = piece(&part.text, 0);
                    taken.bytes.push(text.len());
                    return Some(Live::Part { run: followed.run, commit, index, kind, text });
                }
                Some(bytes) if *bytes < part.text.len() => {
                    let text = piece(&part.text, *bytes);
                    *bytes += text.len();
                    return Some(Live::Piece { commit, index, kind, text });
                }
                Some(_) => {}
            }
        }
        None
    }
}

/// Returns what follows the first `from` bytes, or as much of it as a reader takes at once.
fn piece(text: &str, from: usize) -> String {
    let end = text.floor_char_boundary(from.saturating_add(PIECE_MAX_BYTES));
    text.get(from..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::clock::Effects;

    /// An answer with one text, which follows the event 3.
    fn answer(commit: CommitId) -> watch::Sender<Answering> {
        let answer = watch::Sender::new(Answering::default());
        answer.send_modify(|answer| {
            answer.begin(commit, Seq::new(3));
            answer.turn_to(0, PartKind::Text);
            answer.push("late");
        });
        answer
    }

    /// Pieces come behind the events before the answer, and behind those that the reader had: one of these may be the
    /// event that holds the answer.
    #[test]
    fn pieces_wait_for_the_events_before() {
        let effects = Effects::default();
        for from in [1, 5] {
            let answer = answer(effects.new_commit_id());
            let mut pieces = Pieces::new(Seq::new(from));
            pieces.follow(effects.new_run_id(), Epoch::new(1), answer.subscribe());
            assert_eq!(pieces.begin(), Seq::new(from.min(3)));
            for seen in from.min(3)..from.max(3) {
                pieces.seen = Seq::new(seen);
                assert_eq!(pieces.take(), None, "after {from}, at {seen}");
            }
            pieces.seen = Seq::new(from.max(3));
            assert!(matches!(pieces.take(), Some(Live::Part { .. })), "after {from}");
        }
    }

    /// Of two runs of a session, of which the earlier has lost its lease and not ended, a reader takes the later one, in
    /// whichever order it reads of them.
    #[test]
    fn the_later_run_is_followed() {
        let effects = Effects::default();
        let (early, late, commit) = (effects.new_run_id(), effects.new_run_id(), effects.new_commit_id());
        let (first, second) = (watch::Sender::new(Answering::default()), answer(commit));
        let mut pieces = Pieces::new(Seq::new(3));
        pieces.follow(late, Epoch::new(2), second.subscribe());
        pieces.follow(early, Epoch::new(1), first.subscribe());
        pieces.begin();
        let part = Live::Part { run: late, commit, index: 0, kind: PartKind::Text, text: "late".to_owned() };
        assert_eq!((pieces.take(), pieces.take()), (Some(part), None));
        drop(second);
        pieces.follow(early, Epoch::new(1), first.subscribe());
        assert_eq!(pieces.take(), None);
    }
}
