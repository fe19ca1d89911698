//! Servers for tests of clients of language models: the APIs of four providers on the loopback. They sign their
//! reasoning, and refuse a request that the provider refuses.
//!
//! A scripted server takes whatever it is sent, so a client that loses a signature, or leaves a tool call without its
//! result, passes all its tests and fails with its first real conversation. These servers answer such a request with the
//! status and the words of the provider.
//!
//! - [`Provider`] is one account at a provider: it [checks](Provider::check) a request and [answers](Provider::answer) it.
//!   It does no I/O.
//! - [`Server`] serves answers over HTTP, those of a script, of a function, or of a [`Provider`].
//! - [`anthropic`], [`chat`], [`gemini`] and [`responses`] write streams from items as the providers give them.
//!
//! ```
//! use model_servers::{Item, Provider, Request, Rule, Wire};
//! use serde_json::json;
//!
//! let mut claude = Provider::new(Wire::Anthropic);
//! let ask = Request::new("/v1/messages", &json!({
//!     "model": "claude-opus-5-5", "max_tokens": 100,
//!     "messages": [{"role": "user", "content": "Hello"}],
//! }));
//! assert!(claude.check(&ask).is_ok());
//! let answer = claude.answer(&ask, &[Item::Reasoning("They greet.".into()), Item::Text("Hello!".into())]);
//! assert!(answer.body().contains("signature_delta"));
//!
//! let forged = Request::new("/v1/messages", &json!({
//!     "model": "claude-opus-5-5", "max_tokens": 100,
//!     "messages": [
//!         {"role": "user", "content": "Hello"},
//!         {"role": "assistant", "content": [{"type": "thinking", "thinking": "They greet.", "signature": "mine"}]},
//!         {"role": "user", "content": "Again"},
//!     ],
//! }));
//! assert_eq!(claude.check(&forged).unwrap_err().rule, Rule::Signature);
//! ```
//!
//! # Where the rules come from
//!
//! From the pages and the client libraries of the providers in autumn 2026, and from recorded refusals. No server of a provider
//! was asked: what only a real key can confirm is what such a server does beyond these rules. [`Rule`] says of each rule which
//! API has it, and in which words it is refused.
//!
//! What a signature covers is no provider's secret to tell; here it covers all that stands before it in the request: the model,
//! the account, the system prompt, the tools, and every message and item, in order. Members that are `null`, their order and
//! marks for caches are not covered: the providers' own clients change them.

pub mod anthropic;
pub mod chat;
pub mod gemini;
pub mod responses;

mod account;
mod history;
mod message;
mod provider;
mod rule;
mod schema;
mod server;

pub use message::{Answer, Request};
pub use provider::Provider;
pub use rule::{Checked, Item, Refusal, Rule, Wire};
pub use server::Server;
