//! Lists of sessions. A process remembers the sessions that it has listed, and looks again only at those of which it has
//! learned that they may have changed, and at those on the page.

pub(crate) mod folders;
pub(crate) mod keep;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;

use agent_core::session::SessionSummary;
use agent_core::state::SessionState;
use agent_core::store::{Damaged, Page, SessionQuery};
use agent_core::{Result, SessionId, WorkspaceId};

pub(crate) use crate::shared::list_index::Place;

use crate::error::{corrupt, failed, is_own};
use crate::io::Stat;
use crate::lists::folders::{missing, origin};
use crate::log::commit::load_folder;
use crate::log::place;
use crate::medium::env::held;
use crate::medium::layout::{self, id_of};
use crate::shared::changes::{self, News};
use crate::shared::list_index::Source;
use crate::shared::list_state::{Change, Folder, Lists};
use crate::shared::summaries::{self, Kept};
use crate::shared::tenant::Tenant;

/// Further sessions and folders that each list checks, so that what another program does to them is seen in the end.
const FURTHER: usize = 8;
/// Creations after which the names in a folder are read again: so many, and as many again for each 64 sessions in it.
const UNREAD_MAX: usize = 64;
/// Attempts at a page that did not change while it was read.
const ATTEMPTS: usize = 4;

/// Result of the check of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Its log has this many bytes.
    There(u64),
    Damaged,
    /// It has no folder.
    Gone,
}

/// Sessions that a process reads before it looks into the file of summaries: fewer are read as quickly as the file.
const READ_BEFORE: usize = 32;
/// Time that the last change of a file must be past for each later one to show in the file's times. No file system that is
/// supported counts time in larger steps.
const SETTLED_NANOS: i128 = 2_500_000_000;

/// Returns one page of sessions.
pub(crate) fn sessions(tenant: &Tenant, query: &SessionQuery) -> Result<Page<SessionSummary>> {
    let mut lists = held(&tenant.lists);
    // Lists of everything are those by which sessions are purged, swept and counted.
    let hidden = query.states.contains(&SessionState::Archived);
    let exact = query.cursor.is_none() && (query.with_total || hidden);
    let mut closed = lists.bring_up_to_date(tenant, query, exact)?;
    let mut places = lists.index.places(query)?;
    for _ in 0..ATTEMPTS {
        if !lists.check_all(tenant, &places) {
            break;
        }
        places = lists.index.places(query)?;
    }
    let mut page = lists.index.page(query, &places)?;
    while lists.read_unreadable(tenant) {
        places = lists.index.places(query)?;
        page = lists.index.page(query, &places)?;
    }
    // Each is listed once, on the first page.
    if query.cursor.is_some() {
        return Ok(page);
    }
    let mut damaged = lists.damaged_of(tenant, query);
    drop(lists);
    if query.with_total || (query.workspace.is_none() && hidden) {
        // A missing session may be a child, and in any state.
        let is_elsewhere =
            |it: &Damaged| query.workspace.is_some_and(|id| it.workspace.is_some_and(|of| of != id));
        damaged.extend(missing(tenant)?.into_iter().filter(|it| !is_elsewhere(it)));
    }
    damaged.append(&mut closed);
    damaged.sort();
    Ok(page.with_damaged(damaged))
}

impl Lists {
    /// Looks at whatever may have changed among the sessions that a query may find. Returns the folders that cannot be
    /// read, unless the query is about one of them.
    fn bring_up_to_date(
        &mut self,
        tenant: &Tenant,
        query: &SessionQuery,
        exact: bool,
    ) -> Result<Vec<Damaged>> {
        let created = self.learn(tenant);
        let workspaces = match query.workspace {
            Some(id) => vec![id],
            None => self.workspaces(tenant)?,
        };
        let known = match query.workspace {
            Some(id) => self.index.len_of(id),
            None => self.index.len(),
        };
        let scan = exact || self.reading.is_none() || known <= tenant.env.list_scan_max;
        let mut closed = Vec::new();
        let turn = match query.workspace {
            Some(id) => BTreeSet::from([id]),
            None => self.folders_in_turn(&workspaces),
        };
        for workspace in workspaces {
            let done = if scan || !self.is_read(workspace) {
                self.read_folder(tenant, workspace)
            } else if turn.contains(&workspace) {
                self.check_folder(tenant, workspace, created.contains(&workspace))
            } else {
                Ok(())
            };
            match done {
                // An unreadable workspace hides nothing of the others.
                Err(error) if query.workspace.is_none() && is_own(&error) => {
                    let path = tenant.layout.sessions(workspace);
                    closed.push(Damaged::of(path.display().to_string(), &error));
                }
                done => done?,
            }
        }
        self.settle(tenant);
        if !scan {
            let unread: Vec<Place> = self.damaged.keys().copied().collect();
            self.check_all(tenant, &unread);
            let further = self.index.after(self.turn.0, FURTHER);
            self.turn.0 = further.last().copied();
            self.check_all(tenant, &further);
        }
        if query.workspace.is_none() {
            self.kept.iter_mut().for_each(|kept| *kept = HashMap::new());
        }
        self.look_if_due(tenant);
        Ok(closed)
    }

    /// Reads which sessions have changed. Returns the workspaces in which some were created.
    fn learn(&mut self, tenant: &Tenant) -> BTreeSet<WorkspaceId> {
        let changes = match changes::read(tenant, &mut self.reading) {
            News::Changes(changes) => changes,
            News::Unknown(changes) => {
                self.folders.values_mut().for_each(|folder| folder.is_read = false);
                self.workspaces = None;
                self.kept.iter_mut().for_each(HashMap::clear);
                changes
            }
        };
        for (place, change) in changes {
            self.kept.iter_mut().for_each(|kept| drop(kept.remove(&place)));
            // Another writer may have begun to write before this one said that it has ended.
            let is_later = |known: &Change| change != Change::Ends || !matches!(known, Change::Grows(_));
            let known = self.pending.entry(place).or_insert(change);
            if is_later(known) {
                // Of a change that failed halfway, a tombstone may be there, and the log as it was.
                if [*known, change].contains(&Change::Renews) {
                    self.index.doubt(place);
                }
                *known = change;
            }
        }
        let begun = self.pending.iter().filter(|(_, change)| **change == Change::Begins);
        let created: BTreeSet<_> = begun.map(|((workspace, _), _)| *workspace).collect();
        if let Some((_, known)) = &mut self.workspaces {
            known.extend(&created);
        }
        created
    }

    /// Returns the workspaces that have a folder.
    fn workspaces(&mut self, tenant: &Tenant) -> Result<Vec<WorkspaceId>> {
        let stat = tenant.env.io.stat(&tenant.layout.workspaces()).ok();
        let known = self.workspaces.as_ref().filter(|(seen, _)| Some(*seen) == stat);
        if let Some((_, known)) = known {
            return Ok(known.iter().copied().collect());
        }
        let known: BTreeSet<_> = place::workspaces(tenant)?.collect();
        let gone: Vec<_> = self.folders.keys().filter(|id| !known.contains(id)).copied().collect();
        for id in gone {
            self.keep(id, &BTreeSet::new());
            self.folders.remove(&id);
        }
        let all = known.iter().copied().collect();
        self.workspaces = stat.map(|stat| (stat, known));
        Ok(all)
    }

    fn is_read(&self, workspace: WorkspaceId) -> bool {
        self.folders.get(&workspace).is_some_and(|folder| folder.is_read)
    }

    /// Forgets the sessions in a folder that are not there.
    fn keep(&mut self, workspace: WorkspaceId, there: &BTreeSet<SessionId>) {
        self.damaged.retain(|(of, id), _| *of != workspace || there.contains(id));
        let gone: Vec<_> = self.index.of(workspace).filter(|id| !there.contains(id)).collect();
        for id in gone {
            self.index.remove((workspace, id));
        }
    }

    /// Returns the folders that this list checks.
    fn folders_in_turn(&mut self, workspaces: &[WorkspaceId]) -> BTreeSet<WorkspaceId> {
        let after = self.turn.1;
        let later = workspaces.iter().filter(|id| after.is_none_or(|after| **id > after)).take(FURTHER);
        let turn: BTreeSet<_> = later.copied().collect();
        self.turn.1 = turn.last().copied();
        turn
    }

    /// Reads the names in a folder, and looks at each session.
    fn read_folder(&mut self, tenant: &Tenant, workspace: WorkspaceId) -> Result<()> {
        let path = tenant.layout.sessions(workspace);
        // Before the names are read: what comes later changes it.
        let stat = tenant.env.io.stat(&path).ok();
        self.folders.insert(workspace, Folder { stat, unread: 0, is_read: false });
        let names = tenant.env.list(&path);
        let read = names.as_deref().unwrap_or_default();
        let there: BTreeSet<_> = read.iter().filter_map(|(name, _)| id_of::<SessionId>(name)).collect();
        self.keep(workspace, &there);
        names?;
        for id in there {
            self.check(tenant, (workspace, id), &path.join(id.to_string()), false);
        }
        self.folders.insert(workspace, Folder { stat, unread: 0, is_read: true });
        Ok(())
    }

    /// Reads the names in a folder again if something has changed there that no creation explains.
    fn check_folder(&mut self, tenant: &Tenant, workspace: WorkspaceId, is_explained: bool) -> Result<()> {
        let stat = tenant.env.io.stat(&tenant.layout.sessions(workspace)).ok();
        let most = UNREAD_MAX + self.index.len_of(workspace) / 64;
        match self.folders.get_mut(&workspace) {
            Some(folder) if folder.stat == stat => Ok(()),
            Some(folder) if is_explained && folder.unread < most => {
                folder.unread += 1;
                folder.stat = stat;
                Ok(())
            }
            _ => self.read_folder(tenant, workspace),
        }
    }

    /// Looks at the sessions that may have changed, and forgets those whose change is seen.
    fn settle(&mut self, tenant: &Tenant) {
        for (place, change) in std::mem::take(&mut self.pending) {
            if !self.is_read(place.0) {
                // The session is looked at with its folder, and may change after that.
                if change != Change::Ends {
                    self.pending.insert(place, change);
                }
                continue;
            }
            let folder = tenant.layout.session(place.0, place.1);
            let seen = self.check(tenant, place, &folder, true);
            let is_settled = match (change, seen) {
                (Change::Ends, _) | (Change::Begins | Change::Grows(_), Found::Damaged) => true,
                (Change::Begins, seen) => seen != Found::Gone,
                (Change::Grows(before), Found::There(len)) => len > before,
                (Change::Grows(_), Found::Gone) => true,
                (Change::Renews, _) => false,
            };
            if !is_settled {
                self.pending.insert(place, change);
            }
        }
    }

    /// Looks at some sessions. Returns whether any of them had changed.
    fn check_all(&mut self, tenant: &Tenant, places: &[Place]) -> bool {
        let mut changed = false;
        for place in places {
            let before = self.index.stat(*place);
            self.check(tenant, *place, &tenant.layout.session(place.0, place.1), false);
            changed |= self.index.stat(*place) != before;
        }
        changed
    }

    /// Looks at a session, and reads it if its log is not the one that was read before. If the change `is_ours`, a record that
    /// this process has of such a log is not read again.
    fn check(&mut self, tenant: &Tenant, place: Place, folder: &Path, is_ours: bool) -> Found {
        match self.try_check(tenant, place, folder, is_ours) {
            Ok(Some(len)) => {
                self.damaged.remove(&place);
                Found::There(len)
            }
            Ok(None) => {
                self.damaged.remove(&place);
                self.index.remove(place);
                Found::Gone
            }
            Err(error) => {
                self.index.remove(place);
                self.damaged.insert(place, Damaged::of(folder.display().to_string(), &error));
                Found::Damaged
            }
        }
    }

    /// Returns the length of the log; `None` if the session has no folder.
    fn try_check(
        &mut self,
        tenant: &Tenant,
        place: Place,
        folder: &Path,
        is_ours: bool,
    ) -> Result<Option<u64>> {
        let log = folder.join(layout::LOG);
        let stat = match tenant.env.io.stat(&log) {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match tenant.env.kind(folder)? {
                    Some(_) => Err(corrupt(&log, "is missing")),
                    None => Ok(None),
                };
            }
            Err(error) => return Err(failed("look at", &log, error)),
        };
        if self.index.is_of(place, stat) {
            return Ok(Some(stat.len));
        }
        if let Some((source, kept)) = self.take_kept(tenant, place, folder, stat) {
            self.index.insert_text(place, source, kept.keys, kept.text);
            return Ok(Some(stat.len));
        }
        let known = tenant
            .known(place.1)
            .filter(|known| is_ours && (known.id, known.len, known.end) == (stat.id, stat.len, stat.len));
        let before = i128::from(tenant.env.effects.now().as_micros()) * 1000;
        let cached = match known {
            Some(known) => known,
            None => match load_folder(tenant, folder, place.1)? {
                Some(loaded) => loaded,
                None => return Ok(None),
            },
        };
        let tombstone = match cached.purged {
            true => tenant.env.io.stat(&folder.join(layout::TOMBSTONE)).ok(),
            false => None,
        };
        let is_settled = [Some(stat), tombstone]
            .into_iter()
            .flatten()
            .all(|stat| stat.modified.max(stat.changed) + SETTLED_NANOS < before);
        let summary = SessionSummary::from(&*cached.record);
        // A log that grew between the two looks is looked at again next time.
        self.index.insert(place, Source { log: stat, tombstone, is_settled }, summary);
        self.unkept += 1;
        Ok(Some(stat.len))
    }

    /// Returns the summary that the file has of a session, if it is that of the log with this metadata.
    fn take_kept(
        &mut self,
        tenant: &Tenant,
        place: Place,
        folder: &Path,
        stat: Stat,
    ) -> Option<(Source, Kept)> {
        if self.kept.is_none() && self.unkept < READ_BEFORE {
            return None;
        }
        let kept = self.kept.get_or_insert_with(|| summaries::read(&tenant.env, &tenant.layout));
        let kept = kept.remove(&place)?;
        Some((kept.source(&tenant.env, folder, stat)?, kept))
    }

    /// Reads the sessions of which the file has no summary, though it seemed so. Returns whether there are any.
    fn read_unreadable(&mut self, tenant: &Tenant) -> bool {
        let places: Vec<_> = self.index.take_unreadable().into_iter().collect();
        for place in &places {
            self.index.doubt(*place);
        }
        self.check_all(tenant, &places);
        !places.is_empty()
    }

    /// Returns the sessions that may match a query and cannot be read.
    fn damaged_of(&self, tenant: &Tenant, query: &SessionQuery) -> Vec<Damaged> {
        let own = self.damaged.iter().filter(|((of, _), _)| query.workspace.is_none_or(|id| id == *of));
        let possible = own.filter(|((workspace, id), _)| {
            // A session whose beginning can be read is known not to be a child of the parent.
            query.parent.is_none_or(|parent| {
                let folder = tenant.layout.session(*workspace, *id);
                origin(tenant, &folder, *id).is_none_or(|origin| origin.parent() == Some(parent))
            })
        });
        possible.map(|(_, damaged)| damaged.clone()).collect()
    }
}
