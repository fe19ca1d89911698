//! `chat session files`, `chat session save` and `chat session restore-file`.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;

use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::BLOB_MAX_BYTES;
use agent_core::{Error, SessionId, SessionStore};
use serde_json::json;

use super::site::Site;
use crate::content::Content;
use crate::failure::{Failure, Result};
use crate::files::{SessionFiles, StoredFile};
use crate::output::{damage, put_content};
use crate::screen::counted;

/// Lists the newest files of a session.
pub(super) async fn list(site: &Site<'_>, id: SessionId, limit: usize) -> Result<()> {
    let sessions = &*site.storage.sessions;
    let session = existing(sessions, id).await?;
    let (found, page, more) = SessionFiles { sessions, session: &session }.newest(limit).await?;
    let rows: Vec<_> = found.iter().map(StoredFile::row).collect();
    let items: Vec<_> = found.iter().map(StoredFile::to_value).collect();
    let whole = json!({"items": items, "more": more, "damaged": damage(&page.damaged)});
    site.out.table(&whole, &["FILE", "MEDIA", "BYTES", "STATE", "NAME"], &rows);
    if more {
        site.out.note("(there may be older files: --limit N)");
    }
    site.named(&page.damaged)?;
    match found.iter().filter(|file| file.is_broken()).count() {
        0 => Ok(()),
        count => Err(Failure::incomplete(format!(
            "the bytes of {} are lost or damaged (listed above); if you have a copy, run `chat session restore-file {id} PATH`, \
             otherwise restore the store from a backup",
            counted(count as u64, "file")
        ))),
    }
}

/// Loads a session that is not deleted. What is left of a deleted one is read by its forks only.
async fn existing(sessions: &dyn SessionStore, id: SessionId) -> Result<Arc<SessionRecord>> {
    let session = sessions.load(id).await?;
    if session.status.state == SessionState::Deleted {
        return Err(Error::deleted(format!("session {id} was deleted")).into());
    }
    Ok(session)
}

/// Restores the bytes of a lost or damaged blob from a copy.
pub(super) async fn restore(site: &Site<'_>, id: SessionId, path: &Path) -> Result<()> {
    let sessions = &*site.storage.sessions;
    let session = sessions.load(id).await?;
    let copy = Content::of(path, BLOB_MAX_BYTES).await?;
    let (sha256, bytes) = (copy.info.name, copy.info.bytes);
    let owners = SessionFiles { sessions, session: &session }.restore(&copy).await?;
    if owners.is_empty() {
        return Err(Failure::absent(format!(
            "nothing was stored: {} has {bytes} bytes and the SHA-256 {sha256}, and no event of session {id} or of a session \
             from which it was forked names such a blob; `chat session files {id} --json` lists the SHA-256 of each file",
            path.display()
        )));
    }
    let text = format!(
        "restored blob {sha256} ({bytes} bytes) of session {}",
        owners.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and session ")
    );
    site.out.result(&json!({"session": id, "sha256": sha256, "bytes": bytes, "owners": owners}), &text);
    Ok(())
}

/// Saves a file of a session, or writes it to standard output.
pub(super) async fn save(
    site: &Site<'_>,
    id: SessionId,
    number: &str,
    output: Option<&Path>,
    replace: bool,
) -> Result<()> {
    let sessions = &*site.storage.sessions;
    let session = existing(sessions, id).await?;
    let files = SessionFiles { sessions, session: &session };
    let file = files.find(number).await?;
    let Some(path) = output else {
        if io::stdout().is_terminal() {
            let text = format!(
                "file {number} is not shown on a terminal; give --output FILE, or redirect the output"
            );
            return Err(Failure::new(1, "invalid_input", text));
        }
        let (content, _) = files.open(&file).await?;
        return put_content(content).await;
    };
    let saved = files.save(&file, path, replace).await;
    let bytes = saved.map_err(|failure| match failure.kind {
        "exists" if !replace && path.symlink_metadata().is_ok_and(|meta| meta.is_file()) => {
            Failure { text: format!("{}; --replace replaces it", failure.text), ..failure }
        }
        _ => failure,
    })?;
    let text = format!("saved file {number} of session {id} as {} ({bytes} bytes)", path.display());
    site.out.result(&json!({"session": id, "file": number, "output": path, "bytes": bytes}), &text);
    Ok(())
}
