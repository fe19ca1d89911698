//! Hidden sessions: data that sessions share, each in a session without a conversation.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::base::{
    Error, ErrorKind, Result, SessionId, SessionState, WorkspaceId, check_text, quoted, uuid_of,
};
use crate::commit::{Commit, Precondition, Trigger};
use crate::model::{Attributes, Patch};
use crate::session::{NewSession, SessionRecord};
use crate::store::ext::SessionStoreExt;
use crate::store::session::SessionStore;
use crate::store::sessions::Sessions;

/// Area of a workspace.
///
/// ```
/// use agent_core::store::WorkspaceArea;
///
/// assert_eq!("skills".parse::<WorkspaceArea>()?, WorkspaceArea::Skills);
/// assert_eq!(WorkspaceArea::ALL.map(WorkspaceArea::as_str), ["mcp", "skills", "memory"]);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WorkspaceArea {
    /// Data that tool servers need to start.
    Mcp,
    /// Data that the agent can look up when it needs it.
    Skills,
    /// Data that the agent needs in every session.
    Memory,
}

impl WorkspaceArea {
    /// All areas.
    pub const ALL: [Self; 3] = [Self::Mcp, Self::Skills, Self::Memory];

    /// Returns the area's name: `mcp`, `skills` or `memory`.
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
            Error::invalid(format!("unknown area {}; the areas are mcp, skills, memory", quoted(text)))
        })
    }
}

/// Owner of a hidden session, which holds shared data.
///
/// The id of the session is derived from its owner, so it is found without a list. Its log (documents, mounts,
/// learnings) has all guarantees of a session's log, on every store. The session is archived from its first event on,
/// so lists do not show it and no input starts a run of it, and it has the label [`hidden`](Self::LABEL).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::state::SessionState;
/// use agent_core::store::{HiddenSession, WorkspaceArea};
/// use agent_core::{MemoryStore, Storage, WorkspaceId};
///
/// let storage = Storage::from(MemoryStore::new());
/// let memory = HiddenSession::area(WorkspaceId::DEFAULT, WorkspaceArea::Memory);
/// assert!(memory.find(&*storage.sessions).await?.is_none());
///
/// let session = memory.open(&storage.sessions).await?;
/// assert_eq!((session.id, session.status.state), (memory.id(), SessionState::Archived));
/// assert!(HiddenSession::may_have(session.id));
/// assert!(HiddenSession::refuse(&session, "is not deleted alone").is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "Shelf")]
pub enum HiddenSession {
    /// All sessions of the store's tenant. Stored in the workspace `default`.
    Tenant,
    /// Audit of the store's tenant. Stored in the workspace `default`.
    Audit,
    /// Sessions of a workspace whose label `project` has this value.
    #[non_exhaustive]
    Project {
        /// Id of the workspace.
        workspace: WorkspaceId,
        /// Value of the label `project`.
        project: String,
    },
    /// Sessions of a project whose label `objective` has this value.
    #[non_exhaustive]
    Objective {
        /// Id of the workspace.
        workspace: WorkspaceId,
        /// Value of the label `project`.
        project: String,
        /// Value of the label `objective`.
        objective: String,
    },
    /// All sessions of an agent in a workspace.
    #[non_exhaustive]
    Agent {
        /// Id of the workspace.
        workspace: WorkspaceId,
        /// Name of the agent.
        agent: String,
    },
    /// Agents that are registered in a workspace.
    #[non_exhaustive]
    Agents {
        /// Id of the workspace.
        workspace: WorkspaceId,
    },
    /// Builds of an agent that is registered in a workspace.
    #[non_exhaustive]
    Builds {
        /// Id of the workspace.
        workspace: WorkspaceId,
        /// Name of the agent.
        agent: String,
    },
    /// Area of a workspace.
    #[non_exhaustive]
    Area {
        /// Id of the workspace.
        workspace: WorkspaceId,
        /// Area.
        area: WorkspaceArea,
    },
}

impl HiddenSession {
    /// Label that marks a hidden session; its value names the owner.
    pub const LABEL: &'static str = "hidden";

    /// Returns the hidden session of a project.
    ///
    /// ```
    /// use agent_core::WorkspaceId;
    /// use agent_core::store::HiddenSession;
    ///
    /// let project = HiddenSession::project(WorkspaceId::DEFAULT, "travel");
    /// let objective = HiddenSession::objective(WorkspaceId::DEFAULT, "travel", "oslo");
    /// let agent = HiddenSession::agent(WorkspaceId::DEFAULT, "planner");
    /// assert_ne!(project.id(), objective.id());
    /// assert_eq!(agent.workspace(), WorkspaceId::DEFAULT);
    /// ```
    pub fn project(workspace: WorkspaceId, project: impl Into<String>) -> Self {
        Self::Project { workspace, project: project.into() }
    }

    /// Returns the hidden session of an objective of a project.
    pub fn objective(
        workspace: WorkspaceId,
        project: impl Into<String>,
        objective: impl Into<String>,
    ) -> Self {
        Self::Objective { workspace, project: project.into(), objective: objective.into() }
    }

    /// Returns the hidden session of an agent.
    pub fn agent(workspace: WorkspaceId, agent: impl Into<String>) -> Self {
        Self::Agent { workspace, agent: agent.into() }
    }

    /// Returns the hidden session with the agents that are registered in a workspace.
    pub const fn agents(workspace: WorkspaceId) -> Self {
        Self::Agents { workspace }
    }

    /// Returns the hidden session with the builds of a registered agent.
    pub fn builds(workspace: WorkspaceId, agent: impl Into<String>) -> Self {
        Self::Builds { workspace, agent: agent.into() }
    }

    /// Returns the hidden session of an area of a workspace.
    pub const fn area(workspace: WorkspaceId, area: WorkspaceArea) -> Self {
        Self::Area { workspace, area }
    }

    /// Returns the workspace that the hidden session is stored in, and with which it is deleted.
    pub const fn workspace(&self) -> WorkspaceId {
        match self {
            Self::Tenant | Self::Audit => WorkspaceId::DEFAULT,
            Self::Project { workspace, .. }
            | Self::Objective { workspace, .. }
            | Self::Agent { workspace, .. }
            | Self::Agents { workspace }
            | Self::Builds { workspace, .. }
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
            Self::Agents { .. } => ("agents", ["", ""]),
            Self::Builds { agent, .. } => ("builds", [agent, ""]),
            Self::Area { area, .. } => ("area", [area.as_str(), ""]),
        }
    }

    /// Returns the id of the hidden session: a UUID of version 8, the first bits of the SHA-256 of its owner.
    pub fn id(&self) -> SessionId {
        let (kind, [first, second]) = self.parts();
        SessionId::from_uuid(uuid_of(self.workspace().as_uuid(), &[kind, first, second]))
    }

    /// Returns the hidden session that has this id and these attributes; `None` for any other session. Its id proves it:
    /// the label [`hidden`](Self::LABEL) alone does not.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// use agent_core::store::HiddenSession;
    ///
    /// # let storage = Storage::from(MemoryStore::new());
    /// let objective = HiddenSession::objective(WorkspaceId::DEFAULT, "travel", "oslo");
    /// let session = objective.open(&storage.sessions).await?;
    /// assert_eq!(HiddenSession::of(session.id, session.workspace, &session.attributes), Some(objective));
    /// # Ok(()) }
    /// ```
    pub fn of(id: SessionId, workspace: WorkspaceId, attributes: &Attributes) -> Option<Self> {
        let label = attributes.labels.get(Self::LABEL).filter(|_| Self::may_have(id))?;
        let (kind, names) = label.split_once('/').unwrap_or((label, ""));
        let named =
            |session: Self| (session.id() == id && session.workspace() == workspace).then_some(session);
        match kind {
            "tenant" => named(Self::Tenant),
            "audit" => named(Self::Audit),
            "project" => named(Self::project(workspace, names)),
            "agent" => named(Self::agent(workspace, names)),
            "agents" => named(Self::agents(workspace)),
            "builds" => named(Self::builds(workspace, names)),
            "area" => named(Self::area(workspace, names.parse().ok()?)),
            // Both names may contain a slash.
            "objective" => names
                .match_indices('/')
                .find_map(|(at, _)| named(Self::objective(workspace, &names[..at], &names[at + 1..]))),
            _ => None,
        }
    }

    /// Returns whether an id may be that of a hidden session.
    ///
    /// Ids of conversations with a key have the same form. The owner of a hidden session cannot be derived from its id.
    pub fn may_have(id: SessionId) -> bool {
        id.as_uuid().get_version_num() == 8
    }

    fn label(&self) -> Result<String> {
        let (kind, names) = self.parts();
        for name in names.iter().filter(|name| !name.is_empty()) {
            check_text(kind, name, 200)?;
        }
        let named = match self {
            Self::Tenant | Self::Audit | Self::Agents { .. } => 0,
            Self::Objective { .. } => 2,
            _ => 1,
        };
        if named > 0 && names[0].is_empty() {
            return Err(Error::invalid(format!("the name of the {kind} is empty")));
        }
        Ok([&[kind], &names[..named]].concat().join("/"))
    }

    /// Returns the hidden session; `None` if nothing was ever stored there.
    ///
    /// # Errors
    ///
    /// Those of the store; `InvalidInput` for a name that is empty, longer than 200 bytes or contains a control
    /// character; `Conflict` if a session that is not this hidden session has its id; `Deleted` if the hidden session
    /// was deleted.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// use agent_core::store::HiddenSession;
    ///
    /// # let storage = Storage::from(MemoryStore::new());
    /// let project = HiddenSession::project(WorkspaceId::DEFAULT, "travel");
    /// assert_eq!(project.find(&*storage.sessions).await?, None);
    /// project.open(&storage.sessions).await?;
    /// assert_eq!(project.find(&*storage.sessions).await?.unwrap().id, project.id());
    /// # Ok(()) }
    /// ```
    pub async fn find(&self, sessions: &dyn SessionStore) -> Result<Option<Arc<SessionRecord>>> {
        let label = self.label()?;
        match sessions.load(self.id()).await {
            Ok(session) => self.checked(session, &label).map(Some),
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the hidden session, and creates it if it does not exist. Of several concurrent callers, one creates
    /// it.
    ///
    /// If the future is dropped, the session was created or not; call it again.
    ///
    /// # Errors
    ///
    /// As for [`find`](Self::find). A hidden session that was deleted cannot be created again.
    pub async fn open(&self, sessions: &Sessions) -> Result<Arc<SessionRecord>> {
        let label = self.label()?;
        if let Some(session) = self.find(&**sessions).await? {
            return Ok(session);
        }
        let new = NewSession::new(self.id(), self.workspace())
            .with_patch(&Patch::new().with_label(Self::LABEL, label.as_str()));
        let commit = Commit::create(sessions.effects(), new)
            .with_precondition(Precondition::MustNotExist)
            .with_trigger(Trigger::Archive);
        match sessions.commit_with_retry(commit).await {
            Ok(committed) => Ok(committed.session),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
                self.checked(sessions.load(self.id()).await?, &label)
            }
            Err(error) => Err(error),
        }
    }

    /// Refuses operations that would make a hidden session an ordinary session, or end it.
    ///
    /// Such operations cannot be undone, since the hidden session's id is derived from its owner.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `session` is a hidden session, `Denied` if it is the audit. `doing` becomes part of the text:
    /// the reason for the refusal.
    pub fn refuse(session: &SessionRecord, doing: &str) -> Result<()> {
        let label = session.attributes.labels.get(Self::LABEL);
        // Other sessions may have the label, too. Their ids are not derived from an owner, except those of
        // conversations, which are derived from a key.
        let may_be = Self::may_have(session.id) && session.conversation_key().is_none();
        let Some(label) = label.filter(|_| may_be) else {
            return Ok(());
        };
        Self::refuse_audit(session.id)?;
        Err(Error::invalid(format!(
            "session {} is the hidden session {label} of workspace {}, which stores shared data, and {doing}; delete \
             the data by its name, or delete the workspace",
            session.id, session.workspace
        )))
    }

    /// Refuses changes of the audit, which only audited operations may write to.
    ///
    /// # Errors
    ///
    /// `Denied` if `session` is the audit.
    ///
    /// ```
    /// use agent_core::ErrorKind;
    /// use agent_core::store::HiddenSession;
    ///
    /// let error = HiddenSession::refuse_audit(HiddenSession::Audit.id()).unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Denied);
    /// ```
    pub fn refuse_audit(session: SessionId) -> Result<()> {
        if session == Self::Audit.id() {
            return Err(Error::new(
                ErrorKind::Denied,
                format!("session {session} is the audit log, which can only be appended to"),
            ));
        }
        Ok(())
    }

    fn checked(&self, session: Arc<SessionRecord>, label: &str) -> Result<Arc<SessionRecord>> {
        use SessionState::Deleted;
        if session.status.state == Deleted {
            return Err(Error::deleted(format!("the hidden session {label} was deleted")));
        }
        if session.attributes.labels.get(Self::LABEL).is_none_or(|it| it != label) {
            return Err(Error::new(
                ErrorKind::Conflict { head: Some(session.head) },
                format!("session {} is not the hidden session {label}", session.id),
            ));
        }
        Ok(session)
    }
}
