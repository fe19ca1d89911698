//! Ids that are derived from the source, so that a second import finds what the first one wrote.

use agent_core::{CommitId, RunId, SessionId};
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

/// Number of the rules by which ids are derived. Another number would import everything again.
const RULES: &[u8] = b"agent-import/1";

/// Returns a UUID of version 8 of these parts. Each part counts with its length, so that no two lists of parts are alike.
fn derive(parts: &[&[u8]]) -> Uuid {
    let mut hash = Sha256::new_with_prefix(RULES);
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    Builder::from_custom_bytes(bytes).into_uuid()
}

/// Id of an entry of a source, within the session of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EntryId(Uuid);

impl EntryId {
    pub(crate) fn of(key: &str) -> Self {
        Self(derive(&[b"entry", key.as_bytes()]))
    }

    /// Returns the id of a part of an entry that is too large for one commit.
    pub(crate) fn part(self, number: usize) -> Self {
        match number {
            0 => self,
            _ => Self(derive(&[b"part", self.0.as_bytes(), &(number as u64).to_be_bytes()])),
        }
    }
}

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the id of the session to which a transcript is imported. `place` is the workspace and the owner: one transcript may be
/// imported to several.
pub(crate) fn session(format: &str, place: &str, transcript: &str) -> SessionId {
    SessionId::from_uuid(derive(&[b"session", format.as_bytes(), place.as_bytes(), transcript.as_bytes()]))
}

/// Returns the id of the commit to a session whose last entry is this one.
pub(crate) fn commit(session: SessionId, last: EntryId) -> CommitId {
    CommitId::from_uuid(derive(&[b"commit", session.as_uuid().as_bytes(), last.0.as_bytes()]))
}

/// Returns the id of a request to a model, as a run, which has a usage of its own.
pub(crate) fn run(transcript: &str, request: &str) -> RunId {
    RunId::from_uuid(derive(&[b"run", transcript.as_bytes(), request.as_bytes()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_ids_never_change() {
        let id = session("claude-code", "default/", "a");
        assert_eq!(id.to_string(), "7218da3f-da97-8c73-be8a-5a89f38b9ff3");
        assert_ne!(session("codex", "default/", "a"), id);
        assert_ne!(session("claude-code", "default", "/a"), id);
        let entry = EntryId::of("a");
        assert_eq!(commit(id, entry).to_string(), "87cd5e87-4344-8a39-a1b3-cac00bf434ba");
        assert_ne!(commit(id, entry.part(1)), commit(id, entry));
        assert_eq!(entry.part(0), entry);
    }
}
