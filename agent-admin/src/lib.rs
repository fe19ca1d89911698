//! Looking after the stores of `agent-core`, whatever backend keeps them.
//!
//! - [`verify`](verify::verify()) reads everything and says what is wrong; it writes nothing.
//! - [`salvage`](salvage::salvage()) makes a new session of what can be read of a damaged one, and leaves that as it is.
//! - [`copy`] takes a tenant from one backend to another.
//! - [`audit`] notes who changed what.
//! - [`manifest`] is a session as one document: export and import.
//!
//! What a store derives from its logs is made anew by [`SessionStore::rebuild`](agent_core::SessionStore::rebuild).

pub mod audit;
pub mod copy;
mod gap;
pub mod manifest;
pub mod salvage;
pub mod verify;
mod walk;
