//! Encryption at rest for the stores of [`agent_core`]: root keys of the host, the place for keys, and the keys of a tenant.
//!
//! ```text
//! KeyRing ──wraps──▶ key of a tenant ──wraps──▶ key of each session     both rows of a KeyPlace
//! ```
//!
//! - A [`KeyRing`] holds the root keys of the host. It is read from a file or a variable, and never stored.
//! - A [`KeyPlace`] holds wrapped keys. [`StorePlace`] is one on any [`WorkspaceStore`](agent_core::WorkspaceStore).
//! - [`Keys`] are those of one tenant: it makes, wraps, opens, rotates and drops them.
//! - [`WorkspaceSecrets`] are the secrets of a tenant's workspaces, sealed by its key, for those who run agents.
//!
//! What is sealed by a key that was [dropped](Keys::drop_session) cannot be read again, wherever a copy of it lies.
//!
//! # Features
//!
//! `passphrase`: a root key from a passphrase, by Argon2id.

mod blobs;
mod cipher;
mod keys;
#[cfg(test)]
mod keys_tests;
mod place;
mod ring;
mod sealing;
mod secret_row;
mod secrets;
mod sessions;
mod store_place;
mod tenant_row;
mod vault;
mod workspaces;
mod wrapped;

pub use keys::Keys;
pub use place::{KeyEntry, KeyPlace, KeyQuery, KeyRow};
pub use ring::{KeyId, KeyRing};
pub use secrets::{SecretInfo, WorkspaceSecrets};
pub use store_place::StorePlace;
pub use vault::Vault;
