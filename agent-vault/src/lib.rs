//! Encryption at rest for the stores of [`agent_core`]: a backend around any other one.
//!
//! A [`Vault`] seals events, records, blobs, workspaces and configurations before they reach the backend around which it is. It opens with the
//! root keys of a [`KeyRing`]; an address with `key_file=PATH` opens one, too ([`VaultConfig`]).
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
//! The sealed form is that of [`agent_core::sealing`]. The cipher is XChaCha20-Poly1305 with a nonce that follows from what is sealed, so that the same
//! sealed twice has the same bytes; keys are derived by HKDF-SHA-256.
//!
//! # Features
//!
//! `passphrase`: a root key from a passphrase, by Argon2id.

mod address;
mod blob_store;
mod blobs;
mod cipher;
mod erasure;
mod keys;
#[cfg(test)]
mod keys_tests;
mod lost;
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

pub use address::VaultConfig;
pub use keys::Keys;
pub use place::{KeyEntry, KeyPlace, KeyQuery, KeyRow};
pub use ring::{KeyId, KeyRing};
pub use secrets::{SecretInfo, WorkspaceSecrets};
pub use store_place::StorePlace;
pub use vault::Vault;
