//! Transcripts of Claude Code.

use std::path::Path;

use agent_core::{MemoryStore, Result, Storage};
use agent_import::Format;

use crate::support::{copy_folder, cut_anywhere, dump, golden, import, sample, twice};

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

/// Outputs beside a transcript are read from its own folder, and from no other to which a link leads.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn outputs_behind_a_link_are_not_read() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let elsewhere = tempfile::tempdir().expect("a folder");
    copy_folder(&sample("claude-code"), folder.path());
    let session = folder.path().join("-home-ann-trips/11111111-1111-4111-8111-111111111111");
    let storage = Storage::from(MemoryStore::new());
    import(&storage, Format::ClaudeCode, folder.path()).await?;
    assert!(dump(&storage).await?.contains(r#""full":"#), "without a link");

    std::fs::rename(session.join("tool-results"), elsewhere.path().join("a")).expect("moved");
    std::os::unix::fs::symlink(elsewhere.path().join("a"), session.join("tool-results")).expect("a link");
    let storage = Storage::from(MemoryStore::new());
    import(&storage, Format::ClaudeCode, folder.path()).await?;
    assert!(!dump(&storage).await?.contains(r#""full":"#));
    Ok(())
}
