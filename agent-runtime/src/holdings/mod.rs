//! What a session holds beside its conversation, and how it is read and written.

mod areas;
mod blobs;
mod documents;
mod learnings;
mod mounts;

pub use areas::{Area, DurableArea};
pub use blobs::WorkspaceBlobs;
pub use documents::{Document, DocumentWrite, Documents, Migrations};
pub use learnings::{Added, KnownLearning, LearningPage, Learnings};
pub use mounts::{effective_mounts, freeze_mounts, inherited_mounts, update_scope};
