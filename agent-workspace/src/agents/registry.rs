//! Agents of a workspace, by name, each with a reference to its source.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use agent_core::model::{Actor, Role};
use agent_core::store::HiddenSession;
use agent_core::text::{check_text, quoted};
use agent_core::{Error, Result, Revision, Storage, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};

use crate::agents::stored::{Stored, text_of};
use crate::agents::watch::Watch;
use crate::contested::Attempts;
use crate::manager::load_lasting;

/// Document that lists the agents.
const AGENTS: &str = "agents";
/// Maximum number of bytes of an agent's name, which names a hidden session.
const NAME_MAX_BYTES: usize = 200;
/// Maximum number of bytes of a reference to a source.
const SOURCE_MAX_BYTES: usize = 1024;
/// Maximum number of attempts of a change while other writers are faster.
pub(super) const ATTEMPTS: usize = 64;

/// Agents of a workspace, and their builds.
///
/// A workspace has as many agents as fit in a document of 1 MiB: some 5,000 with sources of 100 bytes. An agent has up to
/// [`BUILDS_MAX`](crate::agents::BUILDS_MAX) builds; [`prune`](Self::prune) removes old ones. The agents of an owner's
/// workspace are visible to that owner, those of a workspace without an owner to all owners of the tenant, who may also
/// change them.
///
/// Cloning is cheap. Every method may be dropped at any point; a dropped write was applied completely or not at all.
///
/// ```
/// use std::time::Duration;
/// use agent_core::{MemoryStore, Storage, WorkspaceId};
/// use agent_core::model::Actor;
/// use agent_runtime::agents::Agents;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let storage = Storage::from(MemoryStore::new());
/// let agents = Agents::new(&storage, WorkspaceId::DEFAULT);
/// agents.register("support", "https://example.com/support.git#9f3c1e", Actor::USER).await?;
/// agents.request("support", Actor::USER).await?;
///
/// // A builder of the host, in this process or another one.
/// let builder: Actor = "user:builder-1".parse()?;
/// let claim = agents.claim("support", builder, Duration::from_secs(60)).await?.expect("a build is pending");
/// // … builds an image from `claim.build.source`, with a heartbeat every 20 seconds …
/// agents.heartbeat(&claim).await?;
/// agents.complete(&claim, "registry.example.com/support:1").await?;
///
/// let build = agents.resolve("support").await?;
/// assert_eq!(build.image.as_deref(), Some("registry.example.com/support:1"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Agents {
    pub(super) storage: Storage,
    pub(super) workspace: WorkspaceId,
    /// Heartbeats of builders, as this handle and its clones saw them.
    pub(super) watch: Arc<Watch>,
}

/// Agent of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RegisteredAgent {
    /// Name of the agent.
    pub name: String,
    /// Reference to the source, which only the host's builders interpret: a repository with a commit, a digest, a path.
    pub source: String,
    /// Number of the registration: 1 for the first source, one more for each other source.
    pub revision: Revision,
    /// Actor that registered this source.
    pub by: Actor,
    /// Time at which this source was registered, by the clock of the storage.
    pub at: Timestamp,
}

/// Page of agents, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentPage {
    /// Agents.
    pub agents: Vec<RegisteredAgent>,
    /// Start of the next page: after this name; `None` on the last page.
    pub next: Option<String>,
}

impl Agents {
    /// Creates a handle to the agents of `workspace`. No I/O.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// use agent_runtime::agents::Agents;
    ///
    /// # let storage = Storage::from(MemoryStore::new());
    /// let agents = Agents::new(&storage, WorkspaceId::DEFAULT);
    /// assert!(agents.list(10, None).await?.agents.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn new(storage: &Storage, workspace: WorkspaceId) -> Self {
        Self { storage: storage.clone(), workspace, watch: Arc::default() }
    }

    /// Registers an agent, or another source of it. Returns the agent.
    ///
    /// If the agent has this source already, nothing is written, and it is returned as it is. Builds that were requested
    /// before keep their source.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use agent_runtime::agents::Agents;
    /// # let agents = Agents::new(&Storage::from(MemoryStore::new()), WorkspaceId::DEFAULT);
    /// let first = agents.register("support", "git:9f3c1e", Actor::USER).await?;
    /// assert_eq!(agents.register("support", "git:9f3c1e", Actor::AGENT).await?, first);
    /// let second = agents.register("support", "git:04d2aa", Actor::USER).await?;
    /// assert_eq!((first.revision.get(), second.revision.get()), (1, 2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name of more than 200 bytes or a source of more than 1,024, if one is empty or contains a
    /// control character, and if `actor` is the system; `LimitExceeded` if the workspace has too many agents; `NotFound`,
    /// and `Deleted` also while it is being deleted, for the workspace; errors of the store.
    pub async fn register(&self, name: &str, source: &str, actor: Actor) -> Result<RegisteredAgent> {
        check_text("name of an agent", name, NAME_MAX_BYTES)?;
        check_text("source of an agent", source, SOURCE_MAX_BYTES)?;
        check_actor(&actor)?;
        self.check_workspace().await?;
        let registry = self.registry();
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let now = registry.open().await?;
            let mut agents: BTreeMap<String, RegisteredAgent> = registry.read(&now, AGENTS).await?;
            let known = agents.get(name);
            if let Some(known) = known.filter(|known| known.source == source) {
                return Ok(known.clone());
            }
            let agent = RegisteredAgent {
                name: name.to_owned(),
                source: source.to_owned(),
                revision: known.map_or(Revision::ZERO, |known| known.revision).next(),
                by: actor.clone(),
                at: self.storage.effects().now(),
            };
            agents.insert(name.to_owned(), agent.clone());
            let versions = vec![(AGENTS.to_owned(), Some(text_of(&agents)?))];
            if let Some(written) = attempts.outcome(registry.write(&now, versions, &actor).await) {
                return written.map(|()| agent);
            }
        }
    }

    /// Returns an agent; `None` if no agent with this name is registered. Reads the list of agents.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use agent_runtime::agents::Agents;
    /// # let agents = Agents::new(&Storage::from(MemoryStore::new()), WorkspaceId::DEFAULT);
    /// agents.register("support", "git:9f3c1e", Actor::USER).await?;
    /// assert_eq!(agents.get("support").await?.map(|agent| agent.source).as_deref(), Some("git:9f3c1e"));
    /// assert_eq!(agents.get("sales").await?, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store; `Deleted` if the workspace was deleted.
    pub async fn get(&self, name: &str) -> Result<Option<RegisteredAgent>> {
        Ok(self.all().await?.remove(name))
    }

    /// Lists the agents by name, `limit` on a page. `after` is [`AgentPage::next`] of the page before.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use agent_runtime::agents::Agents;
    /// # let agents = Agents::new(&Storage::from(MemoryStore::new()), WorkspaceId::DEFAULT);
    /// for name in ["support", "sales", "research"] {
    ///     agents.register(name, "git:9f3c1e", Actor::USER).await?;
    /// }
    /// let page = agents.list(2, None).await?;
    /// assert_eq!((page.agents[0].name.as_str(), page.agents[1].name.as_str()), ("research", "sales"));
    /// let rest = agents.list(2, page.next.as_deref()).await?;
    /// assert_eq!((rest.agents[0].name.as_str(), rest.next), ("support", None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of [`get`](Self::get).
    pub async fn list(&self, limit: usize, after: Option<&str>) -> Result<AgentPage> {
        let all = self.all().await?;
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = all.range::<str, _>((start, Bound::Unbounded)).map(|(_, agent)| agent);
        let agents: Vec<_> = rest.by_ref().take(limit).cloned().collect();
        let next = rest.next().and(agents.last()).map(|last| last.name.clone());
        Ok(AgentPage { agents, next })
    }

    /// Returns an agent that must be registered.
    pub(super) async fn registered(&self, name: &str) -> Result<RegisteredAgent> {
        self.get(name).await?.ok_or_else(|| {
            Error::not_found(format!(
                "workspace {} has no agent {}; register it",
                self.workspace,
                quoted(name)
            ))
        })
    }

    /// Returns the documents with the builds of an agent.
    pub(super) fn stored(&self, agent: &str) -> Stored {
        let hidden = HiddenSession::builds(self.workspace, agent);
        Stored { sessions: self.storage.sessions.clone(), hidden }
    }

    fn registry(&self) -> Stored {
        let hidden = HiddenSession::agents(self.workspace);
        Stored { sessions: self.storage.sessions.clone(), hidden }
    }

    async fn all(&self) -> Result<BTreeMap<String, RegisteredAgent>> {
        let registry = self.registry();
        match registry.find().await? {
            Some(now) => registry.read(&now, AGENTS).await,
            None => Ok(BTreeMap::new()),
        }
    }

    async fn check_workspace(&self) -> Result<()> {
        // The default workspace may be used before it is stored.
        if self.workspace == WorkspaceId::DEFAULT {
            return Ok(());
        }
        let what = "register the agent in another workspace";
        load_lasting(&*self.storage.workspaces, self.workspace, what).await.map(drop)
    }
}

/// Refuses the system, which could not write over what a person or an agent wrote.
pub(super) fn check_actor(actor: &Actor) -> Result<()> {
    if actor.role() == Role::System {
        return Err(Error::invalid(
            "agents and builds are changed by a person or an agent, not by the system; name the program that does it, for \
             example user:builder-1",
        ));
    }
    Ok(())
}
