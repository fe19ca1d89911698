//! Shelves: what sessions share, kept in a session of its own that has no conversation.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::base::{
    Effects, Error, ErrorKind, Result, SessionId, SessionState, WorkspaceId, check_text, quoted, uuid_of,
};
use crate::commit::{Commit, Expect, Trigger};
use crate::model::Patch;
use crate::session::{NewSession, Session};
use crate::store::ext::SessionStoreExt;
use crate::store::session::SessionStore;

/// One of the areas of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WorkspaceArea {
    /// What servers of tools need to be started.
    Mcp,
    /// What the agent can look up when it needs it.
    Skills,
    /// What it wants to know in every session.
    Memory,
}

impl WorkspaceArea {
    /// Every area.
    pub const ALL: [Self; 3] = [Self::Mcp, Self::Skills, Self::Memory];

    /// Its name: `mcp`, `skills` or `memory`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Skills => "skills",
            Self::Memory => "memory",
        }
    }
}

impl fmt::Display for WorkspaceArea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for WorkspaceArea {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|area| area.as_str() == text);
        found.ok_or_else(|| {
            Error::invalid(format!(
                "{} is no area of a workspace; there are mcp, skills, memory",
                quoted(text)
            ))
        })
    }
}

/// What a shelf belongs to.
///
/// A shelf is a session whose id follows from this, so that whoever needs it finds it without a list: what its log holds
/// (documents, mounts, learnings) has all that a session's log promises, on every store. It is archived from its first
/// event on, so that lists do not show it and no input starts a run of it, and carries the label
/// [`shelf`](Self::LABEL).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shelf {
    /// All sessions of the store's tenant. It lies in the workspace `default`.
    Tenant,
    /// The audit of the store's tenant. It lies in the workspace `default`.
    Audit,
    /// The sessions of a workspace whose label `project` is this.
    #[non_exhaustive]
    Project {
        /// The workspace.
        workspace: WorkspaceId,
        /// The project.
        project: String,
    },
    /// The sessions of a project whose label `objective` is this.
    #[non_exhaustive]
    Objective {
        /// The workspace.
        workspace: WorkspaceId,
        /// The project.
        project: String,
        /// The objective.
        objective: String,
    },
    /// All sessions of an agent in a workspace.
    #[non_exhaustive]
    Agent {
        /// The workspace.
        workspace: WorkspaceId,
        /// The agent.
        agent: String,
    },
    /// An area of a workspace.
    #[non_exhaustive]
    Area {
        /// The workspace.
        workspace: WorkspaceId,
        /// The area.
        area: WorkspaceArea,
    },
}

impl Shelf {
    /// The label by which a shelf is known; its value says what it belongs to.
    pub const LABEL: &'static str = "shelf";

    /// The shelf of a project.
    pub fn project(workspace: WorkspaceId, project: impl Into<String>) -> Self {
        Self::Project { workspace, project: project.into() }
    }

    /// The shelf of an objective of a project.
    pub fn objective(
        workspace: WorkspaceId,
        project: impl Into<String>,
        objective: impl Into<String>,
    ) -> Self {
        Self::Objective { workspace, project: project.into(), objective: objective.into() }
    }

    /// The shelf of an agent.
    pub fn agent(workspace: WorkspaceId, agent: impl Into<String>) -> Self {
        Self::Agent { workspace, agent: agent.into() }
    }

    /// The shelf of an area of a workspace.
    pub const fn area(workspace: WorkspaceId, area: WorkspaceArea) -> Self {
        Self::Area { workspace, area }
    }

    /// The workspace in which it lies, and with which it is deleted.
    pub const fn workspace(&self) -> WorkspaceId {
        match self {
            Self::Tenant | Self::Audit => WorkspaceId::DEFAULT,
            Self::Project { workspace, .. }
            | Self::Objective { workspace, .. }
            | Self::Agent { workspace, .. }
            | Self::Area { workspace, .. } => *workspace,
        }
    }

    fn parts(&self) -> (&'static str, [&str; 2]) {
        match self {
            Self::Tenant => ("tenant", ["", ""]),
            Self::Audit => ("audit", ["", ""]),
            Self::Project { project, .. } => ("project", [project, ""]),
            Self::Objective { project, objective, .. } => ("objective", [project, objective]),
            Self::Agent { agent, .. } => ("agent", [agent, ""]),
            Self::Area { area, .. } => ("area", [area.as_str(), ""]),
        }
    }

    /// The id of its session: a UUID of version 8, the first bits of the SHA-256 of what it belongs to.
    pub fn id(&self) -> SessionId {
        let (kind, [first, second]) = self.parts();
        SessionId::from_uuid(uuid_of(self.workspace().as_uuid(), &[kind, first, second]))
    }

    /// Returns whether an id is of the kind that shelves have. What belongs to whoever has it follows from no id.
    pub fn may_have(id: SessionId) -> bool {
        id.as_uuid().get_version_num() == 8
    }

    fn label(&self) -> Result<String> {
        let (kind, names) = self.parts();
        for name in names.iter().filter(|name| !name.is_empty()) {
            check_text(kind, name, 200)?;
        }
        if !matches!(self, Self::Tenant | Self::Audit) && names[0].is_empty() {
            return Err(Error::invalid(format!("the name of the {kind} is empty")));
        }
        Ok([kind, names[0], names[1]].join("/").trim_end_matches('/').to_owned())
    }

    /// Its session; `None` where nothing was ever kept there.
    ///
    /// # Errors
    ///
    /// Those of the store; `InvalidInput` for a name that is empty, longer than 200 bytes or holds a control character;
    /// `Conflict` where a session that is no such shelf has its id.
    pub async fn find(&self, sessions: &dyn SessionStore) -> Result<Option<Arc<Session>>> {
        let label = self.label()?;
        match sessions.load(self.id()).await {
            Ok(session) => self.checked(session, &label).map(Some),
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Its session, created where it is not there yet. Of many that open it at once, one creates it.
    ///
    /// # Errors
    ///
    /// As for [`find`](Self::find); `Deleted` where it was deleted, for good.
    pub async fn open(&self, sessions: &Arc<dyn SessionStore>, effects: &Effects) -> Result<Arc<Session>> {
        let label = self.label()?;
        if let Some(session) = self.find(&**sessions).await? {
            return Ok(session);
        }
        let new = NewSession::new(self.id(), self.workspace())
            .with(&Patch::new().label(Self::LABEL, label.as_str()));
        let commit = Commit::create(effects, new).expect(Expect::Absent).trigger(Trigger::Archive);
        match sessions.settle(commit).await {
            Ok(committed) => Ok(committed.session),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
                self.checked(sessions.load(self.id()).await?, &label)
            }
            Err(error) => Err(error),
        }
    }

    /// Refuses what would make a shelf somebody's session, or end it, for which there is no way back: its id follows from what it
    /// belongs to.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `session` is a shelf, `Denied` if it is the audit; `doing` says why not.
    pub fn refuse(session: &Session, doing: &str) -> Result<()> {
        let label = session.attributes.labels.get(Self::LABEL);
        // Others may carry the label, too; no id of theirs is made of what they belong to.
        let Some(label) = label.filter(|_| Self::may_have(session.id)) else {
            return Ok(());
        };
        Self::refuse_audit(session.id)?;
        Err(Error::invalid(format!(
            "session {} is the shelf {label} of workspace {}, where others keep what they share, and {doing}; delete what lies \
             on it by its name, or the workspace",
            session.id, session.workspace
        )))
    }

    /// Refuses to change the audit, which is written by what is noted alone.
    ///
    /// # Errors
    ///
    /// `Denied` if `session` is the audit.
    pub fn refuse_audit(session: SessionId) -> Result<()> {
        if session == Self::Audit.id() {
            return Err(Error::new(
                ErrorKind::Denied,
                format!("session {session} is the audit, which is only ever added to"),
            ));
        }
        Ok(())
    }

    fn checked(&self, session: Arc<Session>, label: &str) -> Result<Arc<Session>> {
        use SessionState::Deleted;
        if session.status.state == Deleted {
            return Err(Error::new(ErrorKind::Deleted, format!("the shelf {label} was deleted")));
        }
        if session.attributes.labels.get(Self::LABEL).is_none_or(|it| it != label) {
            return Err(Error::new(
                ErrorKind::Conflict { head: Some(session.head) },
                format!("session {} is not the shelf {label}", session.id),
            ));
        }
        Ok(session)
    }
}
