//! References to secrets: a session holds their names, and what the agent writes never holds their values.
//!
//! A session refers to a secret by the mount `secret:NAME` ([`SecretName::resource`]), its own or inherited: a name in its
//! record, its log and its export, and nothing more. A tool that needs the value asks for it by
//! `ToolContext::secret`, and gets what the session mounts; the host's [`SecretSource`] knows the values.
//!
//! Each value that was given out is [hidden](Secrets::hide) from then on: where it appears in the result of a tool, in an
//! error, or in any event that goes to the store of sessions, `(secret NAME)` stands in its place. The model and the stream
//! of a run see the results of tools so, too. A run begins with giving out to itself what its session mounts, so that this
//! holds after a restart, too.
//!
//! A value is recognised
//!
//! - as it is and without the white space around it, also escaped in JSON and in JSON within JSON;
//! - in each of its lines of 8 bytes and more, and in all of them joined (not in the first and last line of a PEM file);
//! - if it is JSON (a service account's key, say): in each text and number of 8 bytes and more in it, and as a whole
//!   with its keys in any order and any white space. Its keys alone, and shorter texts alone, are not hidden. Everything else in such a
//!   document is, the address of a server included: give the one field as the secret if the rest is to stay readable;
//! - split over the pieces in which a model says it, by whoever reads the stream of a run. What may be the beginning of a
//!   value is held back until it is told.
//!
//! It is not recognised if somebody has encoded it (Base64, a hash) or shows a part of a line, and not in what was
//! written before, by others, or to the records of workspaces and devices.
//!
//! ```
//! use std::collections::BTreeMap;
//! use agent_core::WorkspaceId;
//! use agent_runtime::secrets::{Secret, SecretName, Secrets};
//!
//! # futures::executor::block_on(async {
//! let name: SecretName = "github".parse()?;
//! let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new("ghp_0123456789")?)]));
//! let token = secrets.reveal(WorkspaceId::DEFAULT, &name).await?;
//! let said = format!("401: token {} was refused", token.expose());
//! assert_eq!(secrets.hide(&said), "401: token (secret github) was refused");
//! assert_eq!(format!("{token:?}"), "(secret)");
//! # Ok::<(), agent_core::Error>(())
//! # }).unwrap();
//! ```

mod hide;
mod known;
mod pieces;
mod secret;
mod store;
mod tenant;

pub(crate) use pieces::Pieces;
pub use secret::{Secret, SecretName};
pub use tenant::{SecretSource, Secrets, TenantSecrets};
