//! Of which session a file was rendered, as far as it says.

use agent_core::session::Session;
use agent_core::{Result, SessionId, WorkspaceId};

use crate::error::failed;
use crate::io::{Kind, OpenMode, read_full};
use crate::layout;
use crate::tenant::Tenant;

/// The session that a workspace's file was rendered of, as far as its beginning tells.
pub(crate) fn session_of(tenant: &Tenant, workspace: WorkspaceId) -> Option<SessionId> {
    let path = tenant.layout.workspace(workspace).join(layout::TRANSCRIPT);
    let file = tenant.env.io.open(&path, OpenMode::Read).ok()?;
    let mut top = vec![0; 1024];
    let count = read_full(&*file, &mut top, 0).ok()?;
    let top = String::from_utf8_lossy(&top[..count]);
    let (frontmatter, _) = top.strip_prefix("---\n")?.split_once("\n---\n")?;
    let field = |name: &str| frontmatter.lines().find_map(|line| line.strip_prefix(name));
    // What another program left is of no session of this store.
    field("format: ")?;
    field("session: ")?.parse().ok()
}

/// Removes what was rendered of a session, and what was kept of that: as far as a file says that it is of this session.
pub(crate) fn remove(tenant: &Tenant, session: &Session) -> Result<()> {
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
