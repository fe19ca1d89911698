//! Builds of an agent: requested, listed, and the newest completed one.

use agent_core::model::Actor;
use agent_core::text::quoted;
use agent_core::{Epoch, Error, Result};

use crate::agents::build::{Build, BuildPage, BuildStatus};
use crate::agents::registry::{ATTEMPTS, Agents, check_actor};
use crate::agents::stored::{BUILDS_MAX, LEDGER, Ledger, is_full, pieces_before, text_of};
use crate::contested::Attempts;

impl Agents {
    /// Requests a build of the source that is registered now. Returns the build, which is pending.
    ///
    /// Each call requests another build. A call that was dropped may have requested one: [list](Self::builds) the builds
    /// before requesting again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use agent_runtime::agents::Agents;
    /// # let agents = Agents::new(&Storage::from(MemoryStore::new()), WorkspaceId::DEFAULT);
    /// use agent_runtime::agents::BuildStatus;
    ///
    /// agents.register("support", "git:9f3c1e", Actor::USER).await?;
    /// let build = agents.request("support", Actor::USER).await?;
    /// assert_eq!((build.number, build.status, build.source.as_str()), (1, BuildStatus::Pending, "git:9f3c1e"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if the agent is not registered; `InvalidInput` if `actor` is the system; `LimitExceeded` if the agent
    /// has [too many builds](crate::agents::BUILDS_MAX); errors of the store.
    pub async fn request(&self, agent: &str, actor: Actor) -> Result<Build> {
        check_actor(&actor)?;
        let registered = self.registered(agent).await?;
        let stored = self.stored(agent);
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let now = stored.open().await?;
            let mut ledger: Ledger = stored.read(&now, LEDGER).await?;
            let number = ledger.last + 1;
            if is_full(&now, number) {
                return Err(Error::limit(format!(
                    "agent {} has as many builds as are kept, at most {BUILDS_MAX}; prune them",
                    quoted(agent)
                )));
            }
            let build = Build {
                agent: agent.to_owned(),
                number,
                source: registered.source.clone(),
                revision: registered.revision,
                status: BuildStatus::Pending,
                requested_by: actor.clone(),
                requested_at: self.storage.effects().now(),
                builder: None,
                epoch: Epoch::ZERO,
                began_at: None,
                ended_at: None,
                image: None,
                error: None,
            };
            ledger.last = number;
            ledger.pending.insert(number);
            let mut piece = stored.piece(&now, number).await?;
            piece.builds.insert(number, build.clone());
            let versions = vec![(LEDGER.to_owned(), Some(text_of(&ledger)?)), piece.version()?];
            if let Some(written) = attempts.outcome(stored.write(&now, versions, &actor).await) {
                return written.map(|()| build);
            }
        }
    }

    /// Returns one build of an agent; `None` if it does not exist, or was pruned.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use agent_runtime::agents::Agents;
    /// # let agents = Agents::new(&Storage::from(MemoryStore::new()), WorkspaceId::DEFAULT);
    /// agents.register("support", "git:9f3c1e", Actor::USER).await?;
    /// let build = agents.request("support", Actor::USER).await?;
    /// assert_eq!(agents.build("support", build.number).await?, Some(build));
    /// assert_eq!(agents.build("support", 2).await?, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if the agent is not registered; errors of the store.
    pub async fn build(&self, agent: &str, number: u64) -> Result<Option<Build>> {
        let stored = self.stored(agent);
        match stored.find().await? {
            Some(now) => stored.build(&now, number).await,
            None => self.registered(agent).await.map(|_| None),
        }
    }

    /// Lists the builds of an agent, newest first, `limit` on a page. `before` is [`BuildPage::next`] of the page before.
    ///
    /// A page reads one document for each 32 builds.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use agent_runtime::agents::Agents;
    /// # let agents = Agents::new(&Storage::from(MemoryStore::new()), WorkspaceId::DEFAULT);
    /// agents.register("support", "git:9f3c1e", Actor::USER).await?;
    /// for _ in 0..3 {
    ///     agents.request("support", Actor::USER).await?;
    /// }
    /// let page = agents.builds("support", 2, None).await?;
    /// assert_eq!((page.builds[0].number, page.builds[1].number), (3, 2));
    /// let rest = agents.builds("support", 2, page.next).await?;
    /// assert_eq!((rest.builds[0].number, rest.next), (1, None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if the agent is not registered; errors of the store.
    pub async fn builds(&self, agent: &str, limit: usize, before: Option<u64>) -> Result<BuildPage> {
        let stored = self.stored(agent);
        let Some(now) = stored.find().await? else {
            return self.registered(agent).await.map(|_| BuildPage::default());
        };
        let (mut page, end) = (BuildPage::default(), before.unwrap_or(u64::MAX));
        for highest in pieces_before(&now, end) {
            let piece = stored.piece(&now, highest).await?;
            for (number, build) in piece.builds.into_iter().rev().filter(|(number, _)| *number < end) {
                if page.builds.len() == limit {
                    page.next = Some(number + 1);
                    return Ok(page);
                }
                page.builds.push(build);
            }
        }
        Ok(page)
    }

    /// Returns the newest completed build of an agent: of those that are completed, the one that was requested last.
    ///
    /// Reads two documents, however many builds there are. A new session [pins](Build::pin) the build.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use agent_runtime::agents::Agents;
    /// # use std::time::Duration;
    /// # let agents = Agents::new(&Storage::from(MemoryStore::new()), WorkspaceId::DEFAULT);
    /// agents.register("support", "git:9f3c1e", Actor::USER).await?;
    /// agents.request("support", Actor::USER).await?;
    /// assert!(agents.resolve("support").await.unwrap_err().is_absent());
    ///
    /// let claim = agents.claim("support", Actor::AGENT, Duration::from_secs(60)).await?.expect("a build is pending");
    /// agents.complete(&claim, "support:1").await?;
    /// assert_eq!(agents.resolve("support").await?.number, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if the agent is not registered or has no completed build; errors of the store.
    pub async fn resolve(&self, agent: &str) -> Result<Build> {
        let stored = self.stored(agent);
        let none = || {
            let agent = quoted(agent);
            Error::not_found(format!("agent {agent} has no completed build; request one, and build it"))
        };
        let Some(now) = stored.find().await? else {
            return self.registered(agent).await.and_then(|_| Err(none()));
        };
        let ledger: Ledger = stored.read(&now, LEDGER).await?;
        if ledger.completed == 0 {
            return Err(none());
        }
        stored.build(&now, ledger.completed).await?.ok_or_else(|| lost(agent, ledger.completed))
    }
}

/// Returns the error of a build that must exist.
pub(super) fn lost(agent: &str, number: u64) -> Error {
    Error::corrupt(format!("build {number} of agent {} is lost; restore a copy", quoted(agent)))
}
