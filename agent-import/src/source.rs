//! Sources of transcripts: each yields transcripts, those that others name first, and the entries of each in the order of the import.

use std::collections::BTreeMap;

use agent_core::event::EventPayload;
use agent_core::{Result, Timestamp};

use crate::ids::EntryId;

/// Reader of one format. Calls of it block on files.
pub(crate) trait Source: Send {
    /// Returns the next transcript, or `None` at the end. A transcript comes after those that it names.
    ///
    /// # Errors
    ///
    /// Those that end the whole import: of a folder or a database that cannot be read.
    fn next_transcript(&mut self, notes: &mut Notes) -> Result<Option<Transcript>>;

    /// Returns the next entry of the transcript that was returned last, or `None` at its end.
    ///
    /// # Errors
    ///
    /// Those that end this transcript.
    fn next_entry(&mut self, notes: &mut Notes) -> Result<Option<Entry>>;

    /// Returns the ids of the entries that the transcript shares with the one that it branches from, the oldest first.
    fn shared(&self) -> Vec<EntryId> {
        Vec::new()
    }

    /// Makes [`next_entry`](Self::next_entry) begin with the shared entry of this number, from 0.
    fn share_from(&mut self, _number: usize) {}
}

/// Session of a source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transcript {
    /// Name of the transcript, unique within the format: it never changes while the source grows.
    pub(crate) name: String,
    /// File or row of the source, for the report.
    pub(crate) place: String,
    pub(crate) relation: Relation,
    pub(crate) title: Option<String>,
    /// Texts about the session, such as its folder, kept as metadata.
    pub(crate) about: BTreeMap<&'static str, String>,
    /// Time of the first entry, if it has none.
    pub(crate) at: Option<Timestamp>,
}

/// Relation of a transcript to an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Relation {
    #[default]
    None,
    /// Another branch of the same conversation.
    Branch { of: String },
    /// Helper that another session has called.
    Child { of: String },
}

/// Entry of a source, such as a line, with what it becomes.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: EntryId,
    /// Time; the one of the entry before, if the source has none.
    pub(crate) at: Option<Timestamp>,
    /// True if a person begins a turn here: calls that are still open were interrupted.
    pub(crate) begins_turn: bool,
    /// True if another branch leaves before this entry, so that a commit should end there.
    pub(crate) is_behind_branch: bool,
    pub(crate) items: Vec<Item>,
}

impl Entry {
    pub(crate) const fn new(id: EntryId, at: Option<Timestamp>) -> Self {
        Self { id, at, begins_turn: false, is_behind_branch: false, items: Vec::new() }
    }
}

/// Part of an entry.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Event(EventPayload),
    /// Event of a type of the source, kept as it is. Not sent to models.
    Unknown {
        kind: String,
        json: agent_core::json::RawJson,
    },
    /// Summary that replaces everything before this entry.
    Compaction(String),
}

/// Counts of what a transcript held that was left out or changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    pub(crate) counts: BTreeMap<String, u64>,
    /// True if the source ends in the middle of an entry.
    pub(crate) cut_off: bool,
}

/// Maximum number of kinds that are counted by name. A source is not trusted.
const KINDS_MAX: usize = 256;
/// Maximum number of bytes of the name of a kind.
const KIND_MAX_BYTES: usize = 96;

impl Notes {
    pub(crate) fn count(&mut self, kind: impl AsRef<str>) {
        self.add(kind, 1);
    }

    pub(crate) fn add(&mut self, kind: impl AsRef<str>, more: u64) {
        let kind = crate::text::clip(kind.as_ref(), KIND_MAX_BYTES);
        let kind = if self.counts.len() >= KINDS_MAX && !self.counts.contains_key(&kind) {
            "other kinds".to_owned()
        } else {
            kind
        };
        *self.counts.entry(kind).or_default() += more;
    }
}
