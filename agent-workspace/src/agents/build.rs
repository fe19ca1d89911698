//! One build of an agent: its states, and what a session keeps of it.

use std::fmt;
use std::time::Duration;

use agent_core::model::{Actor, Attributes, Patch};
use agent_core::text::quoted;
use agent_core::{Epoch, Error, ErrorKind, Result, Revision, Timestamp};
use serde::{Deserialize, Serialize};

/// Reference of a session that names the agent.
const AGENT: &str = "agent";
/// Reference of a session that has the number of the build.
const BUILD: &str = "agent.build";
/// Reference of a session that has the tag of the image.
const IMAGE: &str = "agent.image";

/// State of a [`Build`].
///
/// ```
/// use agent_runtime::agents::BuildStatus;
///
/// assert!(BuildStatus::Pending.may_become(BuildStatus::Building));
/// assert!(!BuildStatus::Pending.may_become(BuildStatus::Completed), "no builder has claimed it");
/// assert_eq!(BuildStatus::Failed.to_string(), "failed");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BuildStatus {
    /// The build was requested, and waits for a builder.
    Pending,
    /// A builder has claimed the build.
    Building,
    /// The build has an image. Final.
    Completed,
    /// The build has an error instead of an image. Final; request another build.
    Failed,
}

impl BuildStatus {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Building, Self::Completed, Self::Failed];

    /// Returns the name of the state: `pending`, `building`, `completed` or `failed`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Building => "building",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    /// Returns whether a build in this state may become `next`. A build only goes from pending to building, and from
    /// building to completed or failed.
    pub const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Pending, Self::Building) | (Self::Building, Self::Completed | Self::Failed)
        )
    }
}

impl fmt::Display for BuildStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Build of an agent: which source, who asked for it, how far it is, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Build {
    /// Name of the agent.
    pub agent: String,
    /// Number of the build among those of the agent: 1, 2, 3 … Never used again.
    pub number: u64,
    /// Reference to the source, as it was registered when the build was requested.
    pub source: String,
    /// Revision of the agent that has this source.
    pub revision: Revision,
    /// State of the build.
    pub status: BuildStatus,
    /// Actor that requested the build.
    pub requested_by: Actor,
    /// Time of the request. All times are by the clock of the storage through which they were written.
    pub requested_at: Timestamp,
    /// Builder that claimed the build last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builder: Option<Actor>,
    /// Number of the last claim: it increases if a builder replaces another one. Zero while the build is pending.
    #[serde(default)]
    pub epoch: Epoch,
    /// Time of the last claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_at: Option<Timestamp>,
    /// Time at which the build was completed or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Tag of the image of a completed build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Error of a failed build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Build {
    /// Returns the patch for a new session that is made from the build. It sets three references: `agent` to the agent's
    /// name, `agent.build` to the number, and `agent.image` to the tag of the image, if there is one.
    ///
    /// The session keeps them, and a fork has those of its parent, whatever is built later. As long as the session is not
    /// deleted, [`prune`](crate::agents::Agents::prune) keeps the build.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use std::time::Duration;
    /// use agent_runtime::WorkspaceManager;
    /// use agent_runtime::agents::{Agents, Build};
    ///
    /// # let storage = Storage::from(MemoryStore::new());
    /// # let agents = Agents::new(&storage, WorkspaceId::DEFAULT);
    /// # agents.register("support", "git:9f3c1e", Actor::USER).await?;
    /// # agents.request("support", Actor::USER).await?;
    /// # let claim = agents.claim("support", Actor::AGENT, Duration::from_secs(60)).await?.unwrap();
    /// # agents.complete(&claim, "support:1").await?;
    /// # let manager = WorkspaceManager::new(storage.clone());
    /// # let workspace = manager.default_workspace().await?.id;
    /// let build = agents.resolve("support").await?;
    /// let session = manager.new_session(workspace, &build.pin()).await?;
    /// assert_eq!(session.attributes.references["agent.image"], "support:1");
    /// assert_eq!(Build::pinned(&session.attributes), Some(("support", 1)));
    /// # Ok(()) }
    /// ```
    pub fn pin(&self) -> Patch {
        let patch =
            Patch::new().with_reference(AGENT, &*self.agent).with_reference(BUILD, self.number.to_string());
        match &self.image {
            Some(image) => patch.with_reference(IMAGE, image),
            None => patch,
        }
    }

    /// Returns the agent and the number of the build that a session [pins](Self::pin); `None` if it pins none.
    pub fn pinned(attributes: &Attributes) -> Option<(&str, u64)> {
        let references = &attributes.references;
        Some((references.get(AGENT)?, references.get(BUILD)?.parse().ok()?))
    }

    /// Changes the state.
    ///
    /// # Errors
    ///
    /// `Conflict` if there is no such transition.
    pub(super) fn become_(&mut self, next: BuildStatus) -> Result<()> {
        if !self.status.may_become(next) {
            return Err(Error::new(
                ErrorKind::Conflict { head: None },
                format!(
                    "{self} is {}, and cannot become {next}; {}",
                    self.status,
                    match self.status {
                        BuildStatus::Pending => "claim it first",
                        BuildStatus::Building => "complete or fail it",
                        _ => "request another build",
                    }
                ),
            ));
        }
        self.status = next;
        Ok(())
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "build {} of agent {}", self.number, quoted(&self.agent))
    }
}

/// Right of one builder to end a build, until another one replaces it.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildClaim {
    /// Build, as it was when it was claimed.
    pub build: Build,
    /// Builder, as which the result is written.
    pub builder: Actor,
    /// Time without a heartbeat after which another builder may replace this one.
    pub ttl: Duration,
}

/// Page of builds, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildPage {
    /// Builds.
    pub builds: Vec<Build>,
    /// Start of the next page: before this number; `None` on the last page.
    pub next: Option<u64>,
}
