//! Reading all that a tenant has, and saying what is wrong with it.

use std::collections::HashMap;
use std::fmt;

use futures::TryStreamExt;
use tracing::instrument;

use crate::walk::{Step, Walk};
use agent_core::event::Event;
use agent_core::session::{Session, SessionSummary};
use agent_core::state::SessionState;
use agent_core::store::{
    BindingQuery, Damaged, PAGE_MAX, ReadEvents, SessionQuery, Shelf, WorkspaceQuery, pages,
};
use agent_core::{Error, ErrorKind, Result, Seq, SessionId, Storage, WorkspaceId};

/// The result of a verification: counts of what was read, and the findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// How many workspaces there are.
    pub workspaces: u64,
    /// How many sessions there are, the deleted ones too.
    pub sessions: u64,
    /// How many of their events could be read.
    pub events: u64,
    /// How many devices are bound.
    pub bindings: u64,
    /// What is wrong, in the order in which it was found.
    pub findings: Vec<Finding>,
}

impl Verification {
    /// Returns whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    fn found(&mut self, kind: FindingKind, object: impl fmt::Display, detail: impl fmt::Display) {
        self.findings.push(Finding { kind, object: object.to_string(), detail: detail.to_string() });
    }

    fn damaged(&mut self, damaged: &[Damaged]) {
        for damage in damaged {
            self.found(FindingKind::Damaged, &damage.object, &damage.reason);
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// In which way.
    pub kind: FindingKind,
    /// What it is wrong with, by its name.
    pub object: String,
    /// What is wrong, in words.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind.name())?;
        if !self.detail.starts_with(&self.object) {
            write!(f, "{}: ", self.object)?;
        }
        f.write_str(&self.detail)
    }
}

/// In which way something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FindingKind {
    /// It cannot be read: its bytes are not what was written. [`salvage`](crate::salvage::salvage()) saves what can be read of a session.
    Damaged,
    /// What is derived from a log is not what the log says.
    /// [`SessionStore::rebuild`](agent_core::SessionStore::rebuild) makes it anew.
    Differs,
    /// It names something that is not there: a session whose workspace is gone, a device that is bound to none.
    /// `WorkspaceManager::gc` removes what a deleted workspace left.
    Dangling,
}

impl FindingKind {
    /// The stable name of the kind: `damaged`, `differs`, `dangling`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Differs => "differs",
            Self::Dangling => "dangling",
        }
    }
}

/// Reads all that the tenant has, and says what is wrong with it. Writes nothing.
///
/// Every record, configuration and event is read, so that each of the store's own checksums is checked; every
/// session's record and its place in the list are compared with what its log folds into; what is named must be there;
/// and the store [checks](agent_core::SessionStore::check) its own structures. Others may write meanwhile: what they change is no finding. `progress` is called after each object.
///
/// A page of events is in memory at a time, and one finding for each thing that is wrong.
///
/// # Errors
///
/// What keeps it from reading on: `Unavailable`, `Denied`. Damage is a finding.
#[instrument(name = "verify", skip_all)]
pub async fn verify(storage: &Storage, progress: impl FnMut(&Verification) + Send) -> Result<Verification> {
    let mut verifier =
        Verifier { storage, workspaces: HashMap::new(), so_far: Verification::default(), progress };
    let own = storage.sessions.check().await;
    if let Some(own) = verifier.readable_list("the store's own structures", own.map(Some))? {
        verifier.so_far.damaged(&own);
    }
    verifier.all_workspaces().await?;
    verifier.all_bindings().await?;
    verifier.all_sessions().await?;
    Ok(verifier.so_far)
}

/// What is known of a workspace that something belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    There,
    Deleted,
    Absent,
}

struct Verifier<'a, P> {
    storage: &'a Storage,
    workspaces: HashMap<WorkspaceId, Home>,
    so_far: Verification,
    progress: P,
}

impl<P: FnMut(&Verification) + Send> Verifier<'_, P> {
    async fn all_workspaces(&mut self) -> Result<()> {
        let storage = self.storage;
        let mut pages = pages(WorkspaceQuery::new().with_deleting().limit(PAGE_MAX), |query| {
            storage.workspaces.list(query)
        });
        while let Some(page) = self.readable_list("the list of workspaces", pages.try_next().await)? {
            self.so_far.damaged(&page.damaged);
            for item in &page.items {
                let loaded = self.storage.workspaces.load(item.id).await.map(drop);
                self.note("workspace", item.id, loaded)?;
                let config = self.storage.workspaces.load_config(item.id).await.map(drop);
                self.note("configuration of workspace", item.id, config)?;
                self.so_far.workspaces += 1;
                (self.progress)(&self.so_far);
            }
        }
        Ok(())
    }

    async fn all_bindings(&mut self) -> Result<()> {
        let storage = self.storage;
        let mut pages = pages(BindingQuery::new().limit(PAGE_MAX), |query| storage.bindings.list(query));
        while let Some(page) = self.readable_list("bindings", pages.try_next().await)? {
            self.so_far.damaged(&page.damaged);
            for binding in &page.items {
                let device = format!("device {}", binding.device);
                self.belongs(&device, binding.workspace).await?;
                self.so_far.bindings += 1;
                (self.progress)(&self.so_far);
            }
        }
        Ok(())
    }

    async fn all_sessions(&mut self) -> Result<()> {
        let storage = self.storage;
        let mut pages =
            pages(SessionQuery::new().with_hidden().limit(PAGE_MAX), |query| storage.sessions.list(query));
        while let Some(page) = self.readable_list("the list of sessions", pages.try_next().await)? {
            self.so_far.damaged(&page.damaged);
            for item in &page.items {
                self.session(item).await?;
                self.so_far.sessions += 1;
                (self.progress)(&self.so_far);
            }
        }
        Ok(())
    }

    async fn session(&mut self, item: &SessionSummary) -> Result<()> {
        let (id, name) = (item.id, format!("session {}", item.id));
        let loaded = self.storage.sessions.load(id).await;
        let Some(record) = self.note("session", id, loaded)? else { return Ok(()) };
        if record.status.state == SessionState::Deleted {
            return self.what_is_left(&name, &record).await;
        }
        if item.head == record.head && *item != SessionSummary::from(&*record) {
            self.so_far.found(FindingKind::Differs, &name, "the list shows another state than its record");
        }
        // What belongs to the tenant lies in a workspace that nobody need have made.
        if ![Shelf::Tenant.id(), Shelf::Audit.id()].contains(&record.id) {
            self.belongs(&name, record.workspace).await?;
        }
        if let Some(parent) = record.origin.parent() {
            self.there(&name, "its parent", parent).await?;
        }
        for segment in &record.lineage.segments {
            self.readable(&name, segment.session, segment.until).await?;
        }
        self.log(&name, &record).await
    }

    /// A session's log, read whole and folded.
    async fn log(&mut self, name: &str, record: &Session) -> Result<()> {
        let mut walk = Walk::own(&*self.storage.sessions, record.id, record.lineage.base(), record.head);
        let (mut folded, mut whole) = (None, true);
        loop {
            match walk.next().await {
                Ok(None) => break,
                Ok(Some(Step::Event(event))) => {
                    self.so_far.events += 1;
                    if whole && let Err(error) = fold(&mut folded, record.id, &event) {
                        whole = false;
                        self.so_far.found(FindingKind::Damaged, name, error);
                    }
                }
                Ok(Some(Step::Gap(gap))) => {
                    // What is missing may have been purged meanwhile.
                    if self.is_deleted(record.id).await? {
                        return Ok(());
                    }
                    whole = false;
                    self.so_far.found(FindingKind::Damaged, name, gap);
                }
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    self.so_far.found(FindingKind::Damaged, name, error);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        if whole && folded.as_ref() != Some(record) {
            self.so_far.found(FindingKind::Differs, name, "its record is not what its log folds into");
        }
        Ok(())
    }

    /// What is kept of a deleted session's log is whole.
    async fn what_is_left(&mut self, name: &str, record: &Session) -> Result<()> {
        let mut next = Some(ReadEvents::first(PAGE_MAX).after(record.lineage.base()));
        while let Some(read) = next {
            let page = match self.storage.sessions.read(record.id, read).await {
                Err(error) if *error.kind() == ErrorKind::Corrupt => {
                    self.so_far.found(FindingKind::Damaged, name, error);
                    return Ok(());
                }
                page => page?,
            };
            self.so_far.events += page.events.len() as u64;
            self.so_far.damaged(&page.damaged);
            next = page.next;
        }
        Ok(())
    }

    /// Whether the event `until` of an ancestor, which a history needs, is there.
    async fn readable(&mut self, name: &str, ancestor: SessionId, until: Seq) -> Result<()> {
        let last = ReadEvents::first(1).after(Seq::new(until.get().saturating_sub(1)));
        let found = match self.storage.sessions.read(ancestor, last).await {
            Err(error) if *error.kind() == ErrorKind::Corrupt => return Ok(()),
            Err(error) if is_gone(&error) => None,
            page => page?.events.pop(),
        };
        if found.is_none_or(|event| event.seq != until) {
            let detail =
                format!("its history up to event {until} lies in session {ancestor}, and is not there");
            self.so_far.found(FindingKind::Dangling, name, detail);
        }
        Ok(())
    }

    async fn there(&mut self, name: &str, what: &str, id: SessionId) -> Result<()> {
        match self.storage.sessions.load(id).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                self.so_far.found(FindingKind::Dangling, name, format!("{what}, session {id}, is not there"));
                Ok(())
            }
            // Its own damage is named where it is.
            Err(error) if *error.kind() != ErrorKind::Corrupt => Err(error),
            _ => Ok(()),
        }
    }

    async fn belongs(&mut self, name: &str, workspace: WorkspaceId) -> Result<()> {
        let home = match self.workspaces.get(&workspace) {
            Some(home) => *home,
            None => {
                let home = match self.storage.workspaces.load(workspace).await {
                    Err(error) if *error.kind() == ErrorKind::NotFound => Home::Absent,
                    Err(error) if *error.kind() == ErrorKind::Deleted => Home::Deleted,
                    Err(error) if *error.kind() != ErrorKind::Corrupt => return Err(error),
                    _ => Home::There,
                };
                self.workspaces.insert(workspace, home);
                home
            }
        };
        let detail = match home {
            Home::There => return Ok(()),
            Home::Deleted => format!("its workspace {workspace} was deleted"),
            Home::Absent => format!("its workspace {workspace} is not there"),
        };
        self.so_far.found(FindingKind::Dangling, name, detail);
        Ok(())
    }

    async fn is_deleted(&self, id: SessionId) -> Result<bool> {
        match self.storage.sessions.load(id).await {
            Err(error) if *error.kind() == ErrorKind::Corrupt => Ok(false),
            record => Ok(record?.status.state == SessionState::Deleted),
        }
    }

    /// Notes that a list cannot be read, so that nobody can tell what stands in the rest of it; what else there is can still
    /// be looked at.
    fn readable_list<T>(&mut self, what: &str, found: Result<Option<T>>) -> Result<Option<T>> {
        match found {
            Err(error) if *error.kind() == ErrorKind::Corrupt => {
                self.so_far.found(FindingKind::Damaged, what, error);
                Ok(None)
            }
            found => found,
        }
    }

    /// Notes damage; what was deleted since it was listed is no finding.
    fn note<T>(&mut self, what: &str, id: impl fmt::Display, found: Result<T>) -> Result<Option<T>> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if *error.kind() == ErrorKind::Corrupt => {
                self.so_far.found(FindingKind::Damaged, format!("{what} {id}"), error);
                Ok(None)
            }
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Deleted | ErrorKind::NotFound)
}

fn fold(folded: &mut Option<Session>, id: SessionId, event: &Event) -> Result<()> {
    match folded {
        None => Session::begin(id, event).map(|session| *folded = Some(session)),
        Some(session) => session.apply(event),
    }
}
