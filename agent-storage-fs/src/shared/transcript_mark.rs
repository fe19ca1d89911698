//! Session that a file was rendered from, as named in the file.

use agent_core::session::SessionRecord;
use agent_core::{Result, SessionId, WorkspaceId};

use crate::error::failed;
use crate::io::{Kind, OpenMode, read_full};
use crate::medium::layout;
use crate::shared::tenant::Tenant;

/// Returns the session that a workspace's file was rendered from, if its beginning names one.
pub(crate) fn session_of(tenant: &Tenant, workspace: WorkspaceId) -> Option<SessionId> {
    let path = tenant.layout.workspace(workspace).join(layout::TRANSCRIPT);
    let file = tenant.env.io.open(&path, OpenMode::Read).ok()?;
    let mut top = vec![0; 1024];
    let count = read_full(&*file, &mut top, 0).ok()?;
    let top = String::from_utf8_lossy(&top[..count]);
    let (frontmatter, _) = top.strip_prefix("---\n")?.split_once("\n---\n")?;
    let field = |name: &str| frontmatter.lines().find_map(|line| line.strip_prefix(name));
    // A file of another program belongs to no session of this store.
    field("format: ")?;
    field("session: ")?.parse().ok()
}

/// Removes the files that were rendered from a session, and the kept versions of them, if they name this session.
pub(crate) fn remove(tenant: &Tenant, session: &SessionRecord) -> Result<()> {
    let env = &tenant.env;
    let folder = tenant.layout.workspace(session.workspace);
    let line = format!("\nsession: {}\n", session.id);
    for (name, kind) in env.list(&folder)? {
        let of_ours = name.to_str().is_some_and(|name| {
            name == layout::TRANSCRIPT || layout::KEPT.iter().any(|kept| name.starts_with(kept))
        });
        if !of_ours || kind != Kind::File {
            continue;
        }
        let path = folder.join(name);
        let file = env.io.open(&path, OpenMode::Read).map_err(|e| failed("open", &path, e))?;
        let mut top = vec![0; 4096];
        let count = read_full(&*file, &mut top, 0).map_err(|e| failed("read", &path, e))?;
        if top[..count].windows(line.len()).any(|window| window == line.as_bytes()) {
            env.remove(&path)?;
        }
    }
    Ok(())
}
