//! What people wrote into `session.md`, and what another program left there: offered to be imported.

use std::path::{Path, PathBuf};

use agent_core::{Result, SessionId, WorkspaceId};
use agent_transcript::{Transcript, TranscriptForm};

use super::keep::EDIT_MAX;
use crate::env::held;
use crate::io::Kind;
use crate::layout;
use crate::tenant::{Cell, Tenant};

/// A conversation that was found as a file and is not in the log: what a person made of `session.md`, or what the Aptove
/// agent wrote. To be put in place of the session's visible history, or left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TranscriptEdit {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Its main session.
    pub session: SessionId,
    /// The file.
    pub path: PathBuf,
    /// Whether it is of the older form, and was never imported; otherwise it was edited.
    pub legacy: bool,
    /// What it says.
    pub transcript: Transcript,
}

/// The conversations that wait beside a workspace's log, in the order of their names.
pub(crate) fn pending(
    tenant: &Tenant,
    cell: &Cell,
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
        // The file itself is ours, or will be moved aside where it is not; only the older form stays in its place.
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

/// Notes, by its name, that a file was imported.
pub(crate) fn imported(tenant: &Tenant, path: &Path) -> Result<()> {
    let crc = crc32c::crc32c(&tenant.env.read_file(path)?.unwrap_or_default());
    let done = path.with_file_name(format!("{}{crc:08x}.md", layout::IMPORTED));
    tenant.env.io.rename(path, &done).map_err(|e| crate::error::failed("rename", path, e))?;
    tenant.env.sync_name(&done)
}
