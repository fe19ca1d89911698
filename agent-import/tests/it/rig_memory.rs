//! Sessions of rig-memory.

use std::path::Path;

use agent_core::Result;
use agent_import::Format;

use crate::hostile::lines;
use crate::support::{cut_anywhere, golden, sample, twice};

const FILE: &str = "trip/logs/cd9a3280-91f0-4fb4-aa5c-c1c3629a0f32.jsonl";

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_is_imported_as_declared() -> Result<()> {
    golden(Format::RigMemory, &sample("rig-memory")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_import_adds_nothing() -> Result<()> {
    twice(Format::RigMemory, &sample("rig-memory")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_file_is_a_prefix_and_grows() -> Result<()> {
    cut_anywhere(Format::RigMemory, &sample("rig-memory"), Path::new(FILE), 61).await
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_lines_fail_no_session() -> Result<()> {
    lines(Format::RigMemory, &sample("rig-memory").join(FILE)).await
}
