//! Search for a session that no index file names: its id may be taken in any workspace of its tenant.
//!
//! A look into each workspace costs more the more there are. So a process that has created some sessions reads the names of
//! all, once, and from then on learns from the file of changes which others were created.

use std::collections::HashSet;
use std::time::Duration;

use agent_core::{Result, SessionId};

use crate::medium::env::{held, parent};
use crate::medium::layout::id_of;
use crate::medium::lock::{self, HeldLock};
use crate::shared::changes::{self, News};
use crate::shared::list_state::TakenIds;
use crate::shared::tenant::Tenant;
use crate::shared::transcript_mark::session_of;

/// Workspaces from which on the names are read. A look into fewer costs no more than reading the changes.
const WORKSPACES_MIN: usize = 32;
/// Creations that look into each workspace, until the next one reads the names of all sessions. That costs some times as
/// much.
const SEARCHES: usize = 8;
/// Pause while another session is being created, and how many there are before the names are left unread.
const PAUSE: Duration = Duration::from_micros(100);
const PAUSES: usize = 500;

/// Returns whether no session has this id, and no transcript names it, as this process knows without a look into each
/// workspace. Before a session is created, call it under the lock under which sessions of such ids are created.
pub(crate) fn is_free(tenant: &Tenant, id: SessionId) -> bool {
    let mut taken = held(&tenant.taken);
    if taken.reading.is_none() {
        return false;
    }
    taken.learn(tenant);
    taken.whole.is_some() && !taken.ids.contains(&id)
}

/// Counts a creation that looks into each workspace. After some of them the names of all sessions are read. `creating` is the
/// lock of this creation.
pub(crate) fn searched(tenant: &Tenant, creating: &HeldLock) {
    let mut taken = held(&tenant.taken);
    taken.searches += 1;
    let is_due = taken.whole.is_none() && taken.searches.is_multiple_of(SEARCHES);
    drop(taken);
    if is_due {
        read_all(tenant, creating);
    }
}

impl TakenIds {
    /// Reads which sessions have changed: one that was created is among them. Not all are known any more if another
    /// folder of workspaces has the name now, or none.
    fn learn(&mut self, tenant: &Tenant) {
        let (is_gap, changes) = match changes::read(tenant, &mut self.reading) {
            News::Changes(changes) => (false, changes),
            News::Unknown(changes) => (true, changes),
        };
        let named = || tenant.env.io.stat(&tenant.layout.workspaces()).ok().map(|stat| stat.id);
        if is_gap || (self.whole.is_some() && self.whole != named()) {
            self.gaps += 1;
            self.whole = None;
            self.ids = HashSet::new();
        }
        self.ids.extend(changes.into_iter().map(|((_, id), _)| id));
    }
}

/// Reads the names of all sessions. If that is not possible now, nothing is known as before.
fn read_all(tenant: &Tenant, creating: &HeldLock) {
    if !tenant.list_workspaces().is_ok_and(|all| all.len() >= WORKSPACES_MIN) {
        return;
    }
    let gaps = {
        let mut taken = held(&tenant.taken);
        // What is created from here on will be read there.
        taken.learn(tenant);
        if taken.reading.is_none() {
            return;
        }
        taken.gaps
    };
    let Ok(folder) = tenant.env.io.stat(&tenant.layout.workspaces()) else { return };
    let Ok(Some(ids)) = names(tenant, creating) else { return };
    let mut taken = held(&tenant.taken);
    if taken.gaps == gaps {
        taken.ids.extend(ids);
        taken.whole = Some(folder.id);
    }
}

/// Returns the ids in the folders of all workspaces; `None` if others create sessions all the time.
fn names(tenant: &Tenant, creating: &HeldLock) -> Result<Option<HashSet<SessionId>>> {
    let env = &tenant.env;
    if !none_begins(tenant, creating)? {
        return Ok(None);
    }
    let mut ids = HashSet::new();
    for workspace in tenant.list_workspaces()?.iter().filter_map(|(name, _)| id_of(name)) {
        // It may name a main session that a person has moved away.
        ids.extend(session_of(tenant, workspace));
        let names = env.list(&tenant.layout.sessions(workspace))?;
        ids.extend(names.iter().filter_map(|(name, _)| id_of::<SessionId>(name)));
    }
    Ok(Some(ids))
}

/// Waits until no session is being created whose line was written before the changes were read. Each is created under one of
/// a few locks, from before its line until it has its name. Returns whether there is none.
fn none_begins(tenant: &Tenant, creating: &HeldLock) -> Result<bool> {
    let own = creating.locked().path;
    let locks = parent(own);
    let mut pauses = PAUSES;
    for (name, _) in tenant.env.list(locks)? {
        let path = locks.join(name);
        while path != own && lock::take(&tenant.env, &path)?.is_none() {
            if pauses == 0 {
                return Ok(false);
            }
            pauses -= 1;
            #[allow(
                clippy::disallowed_methods,
                reason = "this thread has no runtime's time, and nothing is decided by it"
            )]
            std::thread::sleep(PAUSE);
        }
    }
    Ok(true)
}
