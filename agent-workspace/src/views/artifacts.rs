//! Artifacts that the runs of a session made.

use agent_core::model::Artifact;
use agent_core::store::Damaged;
use agent_core::{Seq, Timestamp};

/// Artifact, and the time at which it was registered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredArtifact {
    /// Description of the artifact, and the run that made it.
    pub artifact: Artifact,
    /// Sequence number of the event that registered it.
    pub seq: Seq,
    /// Time of the event, by its writer's clock.
    pub at: Timestamp,
}

/// Page of artifacts, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArtifactPage {
    /// Artifacts.
    pub artifacts: Vec<RegisteredArtifact>,
    /// Objects that could not be read.
    pub damaged: Vec<Damaged>,
    /// Start of the next page: before this event; `None` on the last page.
    pub next: Option<Seq>,
}
