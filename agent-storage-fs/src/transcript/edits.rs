//! Edits of `session.md` by people, and files of another program, that can be imported.

use std::path::{Path, PathBuf};

use agent_core::{Result, SessionId, WorkspaceId};
use agent_transcript::{Transcript, TranscriptForm};

use crate::io::Kind;
use crate::medium::env::held;
use crate::medium::layout;
use crate::shared::tenant::{SharedSession, Tenant};
use crate::transcript::keep::EDIT_MAX;

/// Conversation that was found as a file and is not in the log: an edited `session.md`, or a file that the Aptove
/// agent wrote. It can replace the session's visible history, or be ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TranscriptEdit {
    /// Id of the workspace.
    pub workspace: WorkspaceId,
    /// Id of the workspace's main session.
    pub session: SessionId,
    /// Path of the file.
    pub path: PathBuf,
    /// True if the file has the older format and was never imported. If not, it is an edited `session.md`.
    pub legacy: bool,
    /// Contents of the file.
    pub transcript: Transcript,
}

/// Returns the conversations beside a workspace's log that can be imported, ordered by name.
pub(crate) fn pending(
    tenant: &Tenant,
    cell: &SharedSession,
    workspace: WorkspaceId,
    session: SessionId,
) -> Result<Vec<TranscriptEdit>> {
    let folder = tenant.layout.workspace(workspace);
    let files = tenant.env.list(&folder)?.into_iter().filter(|(_, kind)| *kind == Kind::File);
    let mut names: Vec<_> = files.map(|(name, _)| name).collect();
    names.sort();
    let mut found = Vec::new();
    for name in names {
        let Some(name) = name.to_str() else { continue };
        // Any other file is one that this store rendered, or will be renamed; only the older form keeps its name.
        let current = name == layout::TRANSCRIPT && held(&cell.transcript).file.is_none();
        let edited = name.starts_with(layout::EDITED) && name.ends_with(".md");
        if !(current || edited) {
            continue;
        }
        let path = folder.join(name);
        if tenant.env.io.stat(&path).is_ok_and(|stat| stat.len > EDIT_MAX) {
            continue;
        }
        let Some(text) = tenant.env.read_file(&path)?.and_then(|bytes| String::from_utf8(bytes).ok()) else {
            continue;
        };
        let Ok(parsed) = Transcript::parse(&text) else { continue };
        let legacy = parsed.form == TranscriptForm::Legacy;
        if current && (!legacy || parsed.transcript.messages.is_empty()) {
            continue;
        }
        found.push(TranscriptEdit { workspace, session, path, legacy, transcript: parsed.transcript });
    }
    Ok(found)
}

/// Renames a file to record that it was imported.
pub(crate) fn imported(tenant: &Tenant, path: &Path) -> Result<()> {
    let crc = crc32c::crc32c(&tenant.env.read_file(path)?.unwrap_or_default());
    let done = path.with_file_name(format!("{}{crc:08x}.md", layout::IMPORTED));
    tenant.env.io.rename(path, &done).map_err(|e| crate::error::failed("rename", path, e))?;
    tenant.env.sync_name(&done)
}
