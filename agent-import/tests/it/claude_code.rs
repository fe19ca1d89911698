//! Transcripts of Claude Code.

use std::path::Path;

use agent_core::Result;
use agent_import::Format;

use crate::support::{cut_anywhere, golden, sample, twice};

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_is_imported_as_declared() -> Result<()> {
    golden(Format::ClaudeCode, &sample("claude-code")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_import_adds_nothing() -> Result<()> {
    twice(Format::ClaudeCode, &sample("claude-code")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_file_is_a_prefix_and_grows() -> Result<()> {
    let file = Path::new("-home-ann-trips/11111111-1111-4111-8111-111111111111.jsonl");
    cut_anywhere(Format::ClaudeCode, &sample("claude-code"), file, 97).await
}
