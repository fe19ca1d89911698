//! Looking at sessions: what was done, by which run, what is open. Views are made from records and logs when they are
//! asked for; nothing is stored for them.

mod active;
mod artifacts;
mod branches;
mod runs;
mod search;
mod session_view;
mod topic;

pub use active::{ActiveSession, Stage, active_sessions};
pub use artifacts::{ArtifactPage, RegisteredArtifact};
pub use branches::{Branch, Branches};
pub use runs::{Claim, RunEntry, RunPage, RunStatus, RunsBefore};
pub use search::find_sessions;
pub use session_view::{Around, SessionView, Snapshot};
pub use topic::{Outcome, Topic};
