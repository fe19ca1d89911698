//! Views of sessions: their runs, artifacts, branches, comparisons and active stages. Views are computed from records and logs on
//! request; nothing is stored for them.

mod active;
mod artifacts;
mod branches;
mod compare;
mod runs;
mod search;
mod session_view;
mod topic;

pub use active::{ActiveSession, Stage, active_sessions};
pub use artifacts::{ArtifactPage, RegisteredArtifact};
pub use branches::{Branch, Branches};
pub use compare::{Comparison, compare};
pub use runs::{Claim, RunEntry, RunPage, RunStatus, RunsBefore};
pub use search::find_sessions;
pub use session_view::{Around, SessionView, Snapshot};
pub use topic::{Outcome, Topic};
