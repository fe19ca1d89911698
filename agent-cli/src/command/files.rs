//! `chat session files` and `chat session save`.

use std::io::{self, IsTerminal};
use std::path::Path;

use agent_core::SessionId;
use futures::TryStreamExt;
use serde_json::json;

use super::output::{damage, put_bytes};
use super::site::{Site, named};
use crate::failure::Failure;
use crate::files;

/// Lists the newest files of a session.
pub(super) async fn list(site: &Site<'_>, id: SessionId, limit: usize) -> Result<(), Failure> {
    let sessions = &*site.storage.sessions;
    let session = sessions.load(id).await?;
    let (found, page, more) = files::newest_files(sessions, &session, limit).await?;
    let rows: Vec<_> = found.iter().map(files::StoredFile::row).collect();
    let items: Vec<_> = found.iter().map(files::StoredFile::to_value).collect();
    let whole = json!({"items": items, "more": more, "damaged": damage(&page.damaged)});
    site.out.table(&whole, &["FILE", "MEDIA", "BYTES", "NAME"], &rows);
    if more {
        site.out.note("(there may be older files: --limit N)");
    }
    named(site, &page.damaged)
}

/// Saves a file of a session, or writes it to standard output.
pub(super) async fn save(
    site: &Site<'_>,
    id: SessionId,
    number: &str,
    output: Option<&Path>,
    replace: bool,
) -> Result<(), Failure> {
    let sessions = &*site.storage.sessions;
    let session = sessions.load(id).await?;
    let file = files::find(sessions, &session, number).await?;
    let Some(path) = output else {
        if io::stdout().is_terminal() {
            let text = format!(
                "file {number} is not shown on a terminal; give --output FILE, or redirect the output"
            );
            return Err(Failure::new(1, "invalid_input", text));
        }
        let (mut content, _) = file.open(sessions, &session).await?;
        while let Some(piece) = content.try_next().await? {
            put_bytes(&piece);
        }
        return Ok(());
    };
    let bytes = file.save(sessions, &session, path, replace).await?;
    let text = format!("saved file {number} of session {id} as {} ({bytes} bytes)", path.display());
    site.out.result(&json!({"session": id, "file": number, "output": path, "bytes": bytes}), &text);
    Ok(())
}
