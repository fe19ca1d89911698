//! Bridge to [rig](rig_core): its models answer in our runs, and its agents keep their conversations in our stores.
//!
//! - [`RigProvider`] makes any completion model of rig an [`LlmProvider`](agent_runtime::LlmProvider): Anthropic, OpenAI,
//!   Gemini, Ollama, and every endpoint with an API like OpenAI's.
//! - [`RigMemory`] keeps the conversations of rig's agents in any of our stores.
//!
//! ```no_run
//! use agent_core::MemoryStore;
//! use agent_rig::RigProvider;
//! use agent_runtime::AgentBuilder;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! # let key = String::new();
//! let agent = AgentBuilder::new()
//!     .with_llm(RigProvider::connect("anthropic/claude-opus-5-5", key)?)
//!     .with_storage(MemoryStore::new())
//!     .build()?;
//! let chat = agent.conversation("support/4711").await?;
//! println!("{}", chat.prompt("Hello").await?.finish().await?.text);
//! # Ok(()) }
//! ```
//!
//! # Version of rig
//!
//! The crate needs exactly rig-core 0.44.0, the newest version that builds on Rust 1.95. The version is part of
//! [`RigProvider`]'s rendering, because the bytes of a request depend on it: after an upgrade the reasoning of earlier
//! answers is not sent back, everything else is.
//!
//! # What rig keeps of a provider's items
//!
//! An answer's items are stored as rig decodes them, in the order in which the provider began them, and sent back while
//! nothing before them changed. rig reads JSON into `serde_json::Value`:
//!
//! - The members of an object keep their order, and texts their characters. Escapes and white space are written in one
//!   form.
//! - Numbers are read as 64-bit integers or doubles. One that is spelled otherwise is written in the usual form, like
//!   100000.0 for `1e5`. If a call's arguments show a number whose *value* rig cannot hold, the call has no native item;
//!   it is sent as a plain call then. The [input](agent_runtime::ModelCall::input) that tools receive and the log keeps is always the
//!   provider's own text.
//! - Before a stored item is sent, the bridge checks that rig writes it as it is stored. If not, nothing is sent, and the
//!   request fails with [`ReplayRejected`](agent_runtime::FaultKind::ReplayRejected); the run then asks without such items.
//!
//! The tests send recorded answers through rig from a server on the loopback, and compare the items of the next request
//! with the recorded ones, in their order and with the order of their members.
//!
//! | API | Items go back as they came | Not kept by rig 0.44 |
//! |---|---|---|
//! | Anthropic Messages | text with citations, thinking with its signature, redacted thinking, calls, items that the provider ran, its compactions | the marker `fallback` of a model that stood in for another; blank texts, which Anthropic refuses; an answer that is whole in its `message_start` is not read, and ends in a fault |
//! | OpenAI Responses, with `store: false` | messages, reasoning with `encrypted_content`, function and custom calls, items that the provider ran | `shell_call`, `local_shell_call` and `apply_patch_call`; reasoning without `encrypted_content`, and then the id of the item behind it |
//! | Gemini `generateContent`, by [`RigProvider::gemini`] | thoughts, texts and calls, each with its own signature; images | |
//! | chat completions (OpenAI, DeepSeek, Groq, Mistral and others) | text, reasoning in the field in which it came, calls | the text of a call's arguments is written again, with the same values and other white space |
//! | Ollama's own API | text, thinking, calls | |
//!
//! Each gap that a test can show is a test that fails, marked `ignore` with the reason.
//!
//! # What only a real key can confirm
//!
//! No server of a provider was asked. The tests hold conversations with the servers of `model-servers`, which sign, check and
//! refuse by the providers' pages and recordings, and which the providers' own clients understand. What these cannot show:
//!
//! - that a server takes back what it signed, for each of its models, and what exactly its signatures cover;
//! - that its prompt cache is hit by the requests, and how much of them it counts;
//! - that the levels of effort, and the limits on tokens of rig's catalog, are those of the model;
//! - that images, audio and files are taken in the form in which rig sends them;
//! - what `retry-after` and which codes a server gives under load.
//!
//! A person with a key runs the example `confirm`, which holds one short conversation and says of each thing whether it held:
//!
//! ```sh
//! MODEL_KEY=… cargo run -p agent-rig --example confirm -- anthropic/claude-opus-5-5
//! ```
//!
//! # Logs
//!
//! Errors hold a machine code that is known, the HTTP status and the time for a retry, never a body, a prompt or a key. What
//! rig logs itself, which quotes all of these, is kept away while a model of [`RigProvider`] is asked.

mod answer;
mod fault;
mod frames;
mod gemini;
mod memory;
mod names;
mod provider;
mod quiet;
mod request;
mod strict;
mod transport;

pub use memory::RigMemory;
pub use provider::RigProvider;
pub use rig_core;
pub use transport::ModelTransport;
