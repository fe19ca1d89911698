//! Import of conversations that other agents have kept: transcripts of Claude Code, Codex and others become sessions.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use agent_core::{MemoryStore, SessionStore, Storage};
//! use agent_core::store::SessionQuery;
//! use agent_import::{Format, Import};
//!
//! # let folder = tempfile::tempdir()?;
//! # std::fs::create_dir(folder.path().join("-home-ann-trips"))?;
//! # let path = folder.path().join("-home-ann-trips/5f0e4a5c-8f3a-4c38-9d3c-0a1b2c3d4e5f.jsonl");
//! # let line = concat!(r#"{"type":"user","uuid":"a","parentUuid":null,"timestamp":"2026-02-03T04:05:06Z","#,
//! #     r#""message":{"role":"user","content":"When do the ferries leave?"}}"#, "\n");
//! # std::fs::write(path, line)?;
//! # let projects = folder.path();
//! let storage = Storage::from(MemoryStore::new()); // or files, SQLite, S3, PostgreSQL
//! // `projects` is `~/.claude/projects`.
//! let report = Import::new(Format::ClaudeCode, projects).run(&storage).await?;
//! assert_eq!((report.created, report.events), (1, 1));
//!
//! // A second import adds what the source has in addition: here, nothing.
//! let again = Import::new(Format::ClaudeCode, projects).run(&storage).await?;
//! assert_eq!((again.created, again.unchanged, again.events), (0, 1, 0));
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - **Once**: the ids of sessions and commits are derived from the source, so that an import that is repeated, also after a crash,
//!   adds only what is missing. A source that has grown is continued. A session that was continued here, or whose source was rewritten,
//!   is left as it is, and the report says so.
//! - **In order**: branches of a conversation become forks at their place, helpers become children, summaries become compactions. Each event
//!   has the time of its source. Each call has one result.
//! - **Nothing is hidden**: what a format has and a log does not is counted by kind in [`ImportReport::left_out`].
//! - **Bounded**: a line of at most 16 MiB is in memory, and some tens of bytes for each line of one file. Large outputs and media become
//!   blobs, if the store has them.
//! - **Nothing is executed**, and no file is opened but the source and those in its folder. Symbolic links in it are not followed.
//!
//! Signed reasoning is kept as the provider wrote it, in [`Native`](agent_core::event::Native) items. It is not sent back to a model: the source
//! does not have the system prompt and the tools that it was signed with, so that a provider would refuse it. The next answers are
//! given back with their own.

mod call;
#[cfg(feature = "sqlite")]
mod database;
mod feed;
mod files;
mod formats;
mod ids;
mod import;
mod lines;
mod pairing;
mod report;
mod source;
mod text;
mod writer;

pub use formats::Format;
pub use import::Import;
pub use report::{ImportProgress, ImportReport, RefusedTranscript};
