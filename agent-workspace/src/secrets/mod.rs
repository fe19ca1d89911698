//! References to secrets: a session holds only their names, and values are redacted from everything that the agent
//! writes.
//!
//! A session refers to a secret by the mount `secret:NAME` ([`SecretName::resource`]), its own or inherited: its
//! record, its log and its export contain only this name. A tool that needs the value calls
//! `ToolContext::secret`, which returns it if the session mounts it; the host's
//! [`SecretSource`] provides the values.
//!
//! Each value that was given out is [redacted](Secrets::redact) from then on: if it occurs in the result of a tool, in an
//! error, or in any event that is sent to the session store, `(secret NAME)` is written in its place. The model and the
//! stream of a run also receive redacted tool results. A run first loads the values that its session mounts, so values
//! are redacted after a restart, too.
//!
//! A value is recognized
//!
//! - as it is and without surrounding white space, also with any of its characters escaped as in JSON and in JSON within
//!   JSON (`\u0067hp_`), in texts that are JSON and in texts that are not, like the arguments of a call that breaks off;
//! - in each of its lines of 8 bytes and more, and in all of them joined (not in the first and last line of a PEM
//!   file);
//! - if it is JSON (a service account's key, for example): in each text and number of 8 bytes and more in it, and as a
//!   whole with its keys in any order and any white space. Keys alone and shorter texts alone are not redacted;
//!   everything else in such a document is, including the address of a server. If the rest is to stay readable, provide
//!   only the secret field;
//! - split over the pieces that a model streams, in the stream of a run. Text that may be the beginning of a value is
//!   held back until more text arrives;
//! - in the bytes of media and blobs, whatever their media type.
//!
//! A value is not recognized if it was encoded (Base64, a hash) or if only a part of a line occurs. Of a value of several
//! lines that begins with a backslash and stands behind another one, lines of less than 8 bytes can stay. Text that was
//! written earlier, by others, or to the records of workspaces and devices is not redacted.
//!
//! # Secrets that nobody named
//!
//! [`Secrets::with_patterns`] also redacts what has a well-known form; `(secret: KIND)` is written in its place. The default is not
//! to. It is found wherever a value is: escaped as in JSON, and split over pieces.
//!
//! | Kind | Form |
//! |---|---|
//! | `API key` | `sk-` (OpenAI, Anthropic, OpenRouter, DeepSeek), `gsk_`, `xai-`, `pplx-`, `r8_` |
//! | `Google API key`, `Google token` | `AIza`, `ya29.` |
//! | `AWS access key` | `AKIA`, `ASIA`, and 16 characters |
//! | `GitHub token`, `GitLab token` | `ghp_`, `gho_`, `ghu_`, `ghs_`, `ghr_`, `github_pat_`; `glpat-` |
//! | `Hugging Face token`, `npm token` | `hf_`, `npm_` |
//! | `Slack token` | `xoxa-`, `xoxb-`, `xoxe-`, `xoxp-`, `xoxr-`, `xoxs-`, `xapp-` |
//! | `Stripe key` | `sk_live_`, `sk_test_`, `rk_live_`, `rk_test_` |
//! | `JWT` | two or three parts of Base64, or five, of which the first begins with `eyJ` |
//! | `private key` | the PEM text between `BEGIN` and `END`; without an end, what looks like the rest of it |
//!
//! The beginning must stand at the start of a word, and what follows must have the length and the characters of its kind. A form
//! says nothing of a secret without one: a password, the secret half of an AWS key, and the keys of Azure, Mistral and Cohere stay. Of a
//! private key of more than 16 KiB the rest stays, and a longer JWT stays whole. What looks like a key and is none is redacted,
//! too.
//!
//! ```
//! use std::collections::BTreeMap;
//! use agent_core::WorkspaceId;
//! use agent_runtime::secrets::{Secret, SecretName, Secrets};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! let name: SecretName = "github".parse()?;
//! let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new("ghp_0123456789")?)]));
//! let token = secrets.reveal(WorkspaceId::DEFAULT, &name).await?;
//! let said = format!("401: token {} was refused", token.expose());
//! assert_eq!(secrets.redact(&said), "401: token (secret github) was refused");
//! assert_eq!(format!("{token:?}"), "(secret)");
//! # Ok(()) }
//! ```

mod content;
mod escapes;
mod known;
mod patterns;
mod pieces;
mod redact;
mod secret;
mod store;
mod tenant;

pub use pieces::Pieces;
pub use secret::{Secret, SecretName};
pub use tenant::{SecretSource, Secrets, TenantSecrets};
