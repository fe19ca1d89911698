//! What the runs of a session made.

use agent_core::model::Artifact;
use agent_core::store::Damaged;
use agent_core::{Seq, Timestamp};

/// Something that was made, and when it was said so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredArtifact {
    /// What it is, and which run made it.
    pub artifact: Artifact,
    /// The event that says so.
    pub seq: Seq,
    /// When that was written, by its writer's clock.
    pub at: Timestamp,
}

/// Artifacts, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArtifactPage {
    /// The artifacts.
    pub artifacts: Vec<RegisteredArtifact>,
    /// What could not be read.
    pub damaged: Vec<Damaged>,
    /// Where the next page starts: before this event; `None` on the last.
    pub next: Option<Seq>,
}
