//! Report of an import.

use std::collections::BTreeMap;

use agent_core::SessionId;
use serde::Serialize;

/// Report of an import: what was written, and what was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ImportReport {
    /// Number of sessions that were created.
    pub created: u64,
    /// Number of sessions that were there, and were continued by what their source had in addition.
    pub grown: u64,
    /// Number of sessions that were there with all that their source has.
    pub unchanged: u64,
    /// Number of events that were written, without the creations of sessions.
    pub events: u64,
    /// Sessions to which nothing more was added, each with the reason.
    pub refused: Vec<RefusedTranscript>,
    /// Number of sessions that end with an open call or in the middle of an answer. That end is left out until the source goes on, or
    /// the import is told that it is [finished](crate::Import::with_finished).
    pub unfinished: u64,
    /// Number of files that end in the middle of a line.
    pub cut_off: u64,
    /// Number of entries that were left out or changed, by kind.
    pub left_out: BTreeMap<String, u64>,
}

/// Transcript that was not imported, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RefusedTranscript {
    /// File or row of the source.
    pub place: String,
    /// Session that has its beginning, or would have had.
    pub session: SessionId,
    /// Reason, and how to go on.
    pub reason: String,
}

/// Progress of an import, after each session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ImportProgress {
    /// Number of sessions that were read.
    pub sessions: u64,
    /// Number of events that were written.
    pub events: u64,
    /// File or row of the session that was read last.
    pub place: String,
}
