//! Writes the file of summaries: a while after a change, and when a store is closed. A process that only reads writes
//! nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_core::Result;
use agent_core::store::SessionQuery;

use crate::lists::sessions;
use crate::log::place;
use crate::medium::env::held;
use crate::medium::shell::blocking;
use crate::shared::list_index::Place;
use crate::shared::list_state::{Change, Lists};
use crate::shared::summaries;
use crate::shared::tenant::Tenant;

/// Number of sessions below which no file is written: they are read as quickly as the file.
const SESSIONS_MIN: usize = 64;
/// Delay after which the file is written, so that changes in quick succession are written once.
const QUIET: Duration = Duration::from_secs(2);

/// Notes that this process has changed a session, and has the file written a while later if that is due.
pub(crate) fn changed(tenant: &Arc<Tenant>) {
    let keeping = &tenant.keeping;
    if !keeping.has_written.load(Ordering::Relaxed) {
        keeping.has_written.store(true, Ordering::Relaxed);
    }
    if !keeping.is_due.load(Ordering::Relaxed) || !keeping.is_due.swap(false, Ordering::Relaxed) {
        return;
    }
    // Held weakly while it waits, so that dropping the store closes it.
    let tenant = Arc::downgrade(tenant);
    tokio::spawn(async move {
        tokio::time::sleep(QUIET).await;
        let work = move || {
            let Some(tenant) = tenant.upgrade() else { return };
            // Closing writes what is left.
            let Ok(_working) = tenant.env.open.begin() else { return };
            keep(&tenant);
        };
        // The file is derived; a runtime that shuts down need not write it.
        let _ = blocking(work).await;
    });
}

/// Notes that a purge or a deletion of a damaged session has removed the file.
pub(crate) fn removed(tenant: &Arc<Tenant>) {
    held(&tenant.lists).unkept += 1;
    changed(tenant);
}

/// Writes the file when a store is closed, if this process has changed a session, and has listed some that are not in the file.
pub(crate) fn close(tenant: &Tenant) {
    if tenant.keeping.has_written.load(Ordering::Relaxed) {
        keep(tenant);
    }
}

/// Reads all sessions from their logs, and writes the file.
pub(crate) fn rebuild(tenant: &Tenant) -> Result<()> {
    *held(&tenant.lists) = Lists { kept: Some([].into()), ..Lists::default() };
    sessions(tenant, &SessionQuery::new().with_hidden())?;
    keep(tenant);
    Ok(())
}

fn keep(tenant: &Tenant) {
    let mut lists = held(&tenant.lists);
    if lists.unkept == 0 || lists.index.len() < SESSIONS_MIN {
        return;
    }
    let kept = lists.try_keep(tenant).unwrap_or_else(|error| {
        let path = tenant.layout.summaries();
        tracing::debug!(path = %path.display(), error = &error as &dyn std::error::Error, "the summaries of sessions could not be written");
        // It is not tried again until as many sessions were read again.
        true
    });
    if kept {
        lists.unkept = 0;
    }
}

impl Lists {
    /// Has the file written with the next change, if much of what this process has read is not in it.
    pub(super) fn look_if_due(&self, tenant: &Tenant) {
        if self.unkept >= SESSIONS_MIN.max(self.index.len() / 8) {
            tenant.keeping.is_due.store(true, Ordering::Relaxed);
        }
    }

    /// Writes the file. Returns `false` if that is not possible now: another process writes or removes it, or nothing is known of
    /// what happened since the sessions were listed.
    ///
    /// What may be replaced now is left out. A purge that announces itself after the look at the changes removes the file that
    /// is written here, since it takes the same lock for that.
    fn try_keep(&mut self, tenant: &Tenant) -> Result<bool> {
        let Some(_lock) = summaries::lock(&tenant.env, &tenant.layout)? else { return Ok(false) };
        let read = |lists: &Self| lists.folders.values().filter(|folder| folder.is_read).count();
        let before = read(self);
        self.learn(tenant);
        if self.reading.is_none() || read(self) < before {
            return Ok(false);
        }
        self.settle(tenant);
        self.read_unsettled(tenant);
        let bytes = self.lines(tenant)?;
        tenant.env.replace_cache(&tenant.layout.summaries(), &bytes)?;
        Ok(true)
    }

    /// Reads again what was read so soon after its last change that a later one could have the same times.
    fn read_unsettled(&mut self, tenant: &Tenant) {
        let unsettled = self.index.entries().filter(|(_, entry)| !entry.source.is_settled);
        for place in unsettled.map(|(place, _)| place).collect::<Vec<_>>() {
            self.index.doubt(place);
            self.check(tenant, place, &tenant.layout.session(place.0, place.1), false);
        }
    }

    fn lines(&mut self, tenant: &Tenant) -> Result<Vec<u8>> {
        let is_replaced = |place: &Place| self.pending.get(place) == Some(&Change::Renews);
        let mut bytes = Vec::new();
        for (place, entry) in self.index.entries() {
            if entry.source.is_settled && self.is_read(place.0) && !is_replaced(&place) {
                summaries::push(&tenant.layout, place, entry, &mut bytes)?;
            }
        }
        // What the file has of workspaces that this process has not listed stays in it.
        if place::workspaces(tenant)?.all(|workspace| self.folders.contains_key(&workspace)) {
            return Ok(bytes);
        }
        let kept = self.kept.get_or_insert_with(|| summaries::read(&tenant.env, &tenant.layout));
        for (place, kept) in kept.iter() {
            if !self.folders.contains_key(&place.0) && !is_replaced(place) {
                summaries::push_again(&tenant.layout, *place, kept, &mut bytes)?;
            }
        }
        Ok(bytes)
    }
}
