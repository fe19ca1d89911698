//! Sessions of Gemini CLI.

use std::path::Path;

use agent_core::Result;
use agent_import::Format;

use crate::hostile::lines;
use crate::support::{cut_anywhere, golden, sample, twice};

const FILE: &str = "trips/chats/session-2026-02-03T04-00-22222222.jsonl";

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_is_imported_as_declared() -> Result<()> {
    golden(Format::GeminiCli, &sample("gemini-cli")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_import_adds_nothing() -> Result<()> {
    twice(Format::GeminiCli, &sample("gemini-cli")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_file_is_a_prefix_and_grows() -> Result<()> {
    cut_anywhere(Format::GeminiCli, &sample("gemini-cli"), Path::new(FILE), 61).await
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_lines_fail_no_session() -> Result<()> {
    lines(Format::GeminiCli, &sample("gemini-cli").join(FILE)).await
}
