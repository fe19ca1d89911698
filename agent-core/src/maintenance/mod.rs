//! Looking after a store: what is wrong in it, and what can be saved.
//!
//! [`Storage::verify`](crate::Storage::verify) reads everything and writes nothing. What it finds is mended by a person, or
//! session by session: [`Storage::salvage`](crate::Storage::salvage) makes a new session of what can be read of a damaged
//! one, and leaves that as it is. What a store derives from its logs is made anew by
//! [`SessionStore::rebuild`](crate::SessionStore::rebuild).

mod gap;
mod salvage;
mod verify;
mod walk;

pub use gap::Gap;
pub use salvage::{SALVAGED_LABEL, Salvaged};
pub use verify::{Finding, FindingKind, Verification};
