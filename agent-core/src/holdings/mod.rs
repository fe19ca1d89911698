//! What a session holds beside its conversation, and how it is read and written.

mod documents;

pub use documents::{Document, DocumentWrite, Documents, Migrations};
