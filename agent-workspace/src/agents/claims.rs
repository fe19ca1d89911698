//! Claims of builders: one builder a build, replaced if it dies, and the results.

use std::time::Duration;

use agent_core::model::Actor;
use agent_core::text::{check_text, quoted};
use agent_core::{Error, ErrorKind, Result};

use crate::agents::build::{Build, BuildClaim, BuildStatus};
use crate::agents::builds::lost;
use crate::agents::registry::{ATTEMPTS, Agents, check_actor};
use crate::agents::stored::{LEASES, LEDGER, Lease, Leases, Ledger, text_of};
use crate::contested::Attempts;

/// Maximum number of bytes of the tag of an image: it is a reference of sessions.
const IMAGE_MAX_BYTES: usize = 512;
/// Maximum number of bytes of the error of a build.
const ERROR_MAX_BYTES: usize = 2048;

/// Result of a build.
enum Outcome<'a> {
    Image(&'a str),
    Error(&'a str),
}

impl Agents {
    /// Claims the oldest build of an agent that is pending, or whose builder is dead. Returns the claim; `None` if there is
    /// no such build.
    ///
    /// Of several concurrent callers, one gets the build. It sends a [heartbeat](Self::heartbeat) every third of `ttl`, at
    /// least. A builder is considered dead if this handle or its clones saw, in calls of this method that are a `ttl` apart
    /// on their own clock, no heartbeat of it: a process that waits for builds keeps one handle, and calls this method
    /// again and again. Clocks of different machines are not compared.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use agent_runtime::agents::Agents;
    /// # let agents = Agents::new(&Storage::from(MemoryStore::new()), WorkspaceId::DEFAULT);
    /// use std::time::Duration;
    ///
    /// agents.register("support", "git:9f3c1e", Actor::USER).await?;
    /// agents.request("support", Actor::USER).await?;
    /// let ttl = Duration::from_millis(50);
    /// let first = agents.claim("support", "user:builder-1".parse()?, ttl).await?.expect("a build is pending");
    /// assert_eq!(agents.claim("support", "user:builder-2".parse()?, ttl).await?, None);
    ///
    /// // The first builder dies.
    /// tokio::time::sleep(ttl).await;
    /// let second = agents.claim("support", "user:builder-2".parse()?, ttl).await?.expect("its builder is dead");
    /// assert_eq!(second.build.number, first.build.number);
    /// assert!(agents.complete(&first, "support:1").await.is_err(), "it was replaced");
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a build may be claimed that nobody builds; it is claimed again after its ttl.
    ///
    /// # Errors
    ///
    /// `NotFound` if the agent is not registered; `InvalidInput` for a ttl under a millisecond, and if `builder` is the
    /// system; errors of the store.
    pub async fn claim(&self, agent: &str, builder: Actor, ttl: Duration) -> Result<Option<BuildClaim>> {
        check_actor(&builder)?;
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        if ttl_ms == 0 {
            return Err(Error::invalid(
                "the ttl of a claim is under a millisecond; give some times the heartbeat's",
            ));
        }
        let stored = self.stored(agent);
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let Some(now) = stored.find().await? else {
                return self.registered(agent).await.map(|_| None);
            };
            let mut ledger: Ledger = stored.read(&now, LEDGER).await?;
            let mut leases: Leases = stored.read(&now, LEASES).await?;
            let pending = ledger.pending.first().copied();
            let oldest = [self.watch.expired(agent, &leases), pending].into_iter().flatten().min();
            let Some(number) = oldest else { return Ok(None) };
            let mut piece = stored.piece(&now, number).await?;
            let build = piece.builds.get_mut(&number).ok_or_else(|| lost(agent, number))?;
            // A builder that is replaced leaves the build as it is: building.
            let mut versions = Vec::new();
            if ledger.pending.remove(&number) {
                build.become_(BuildStatus::Building)?;
                versions.push((LEDGER.to_owned(), Some(text_of(&ledger)?)));
            }
            build.builder = Some(builder.clone());
            build.epoch = build.epoch.next();
            build.began_at = Some(self.storage.effects().now());
            let claim = BuildClaim { build: build.clone(), builder: builder.clone(), ttl };
            leases.insert(number, Lease { epoch: claim.build.epoch, ttl_ms, heartbeat: 0 });
            versions.extend([(LEASES.to_owned(), Some(text_of(&leases)?)), piece.version()?]);
            if let Some(written) = attempts.outcome(stored.write(&now, versions, &builder).await) {
                return written.map(|()| Some(claim));
            }
        }
    }

    /// Shows other builders that the holder of a claim lives. Writes the document with the leases, some 50 bytes for each
    /// builder at work.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use agent_runtime::agents::Agents;
    /// # let agents = Agents::new(&Storage::from(MemoryStore::new()), WorkspaceId::DEFAULT);
    /// use std::time::Duration;
    ///
    /// agents.register("support", "git:9f3c1e", Actor::USER).await?;
    /// agents.request("support", Actor::USER).await?;
    /// let ttl = Duration::from_secs(60);
    /// let claim = agents.claim("support", Actor::AGENT, ttl).await?.expect("a build is pending");
    /// agents.heartbeat(&claim).await?;
    /// agents.complete(&claim, "support:1").await?;
    /// assert!(agents.heartbeat(&claim).await.is_err(), "the build has ended");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Fenced` if another builder replaced this one: stop building. `Conflict` if the build has ended; `NotFound` if it
    /// was pruned since; errors of the store.
    pub async fn heartbeat(&self, claim: &BuildClaim) -> Result<()> {
        let (agent, number) = (&claim.build.agent, claim.build.number);
        let stored = self.stored(agent);
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let now = stored.find().await?.ok_or_else(|| pruned(claim))?;
            let mut leases: Leases = stored.read(&now, LEASES).await?;
            match leases.get_mut(&number).filter(|lease| lease.epoch == claim.build.epoch) {
                Some(lease) => lease.heartbeat = lease.heartbeat.wrapping_add(1),
                None => {
                    let mut build = stored.build(&now, number).await?.ok_or_else(|| pruned(claim))?;
                    check_holder(claim, &build)?;
                    return build.become_(BuildStatus::Building);
                }
            }
            let versions = vec![(LEASES.to_owned(), Some(text_of(&leases)?))];
            let written = stored.write(&now, versions, &claim.builder).await;
            if let Some(written) = attempts.outcome(written) {
                return written;
            }
        }
    }

    /// Completes a claimed build with the tag of its image, for example `registry.example.com/support:7`. Returns the build.
    ///
    /// Completing it again with the same tag changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use agent_runtime::agents::Agents;
    /// # use std::time::Duration;
    /// # let agents = Agents::new(&Storage::from(MemoryStore::new()), WorkspaceId::DEFAULT);
    /// use agent_runtime::agents::BuildStatus;
    ///
    /// agents.register("support", "git:9f3c1e", Actor::USER).await?;
    /// agents.request("support", Actor::USER).await?;
    /// let claim = agents.claim("support", Actor::AGENT, Duration::from_secs(60)).await?.expect("a build is pending");
    /// let build = agents.complete(&claim, "support:1").await?;
    /// assert_eq!((build.status, build.image.as_deref()), (BuildStatus::Completed, Some("support:1")));
    /// let error = agents.fail(&claim, "no space left").await.unwrap_err();
    /// assert_eq!(error.to_string(), r#"build 1 of agent "support" is completed, and cannot become failed; request another build"#);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Fenced` if another builder replaced this one; `Conflict` if the build has ended otherwise; `InvalidInput` for a
    /// tag that is empty, longer than 512 bytes or contains a control character; `NotFound` if the build was pruned since;
    /// errors of the store.
    pub async fn complete(&self, claim: &BuildClaim, image: &str) -> Result<Build> {
        check_text("tag of an image", image, IMAGE_MAX_BYTES)?;
        self.end(claim, &Outcome::Image(image)).await
    }

    /// Ends a claimed build with an error. Returns the build.
    ///
    /// Failing it again with the same error changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use agent_runtime::agents::Agents;
    /// # use std::time::Duration;
    /// # let agents = Agents::new(&Storage::from(MemoryStore::new()), WorkspaceId::DEFAULT);
    /// use agent_runtime::agents::BuildStatus;
    ///
    /// agents.register("support", "git:9f3c1e", Actor::USER).await?;
    /// agents.request("support", Actor::USER).await?;
    /// let claim = agents.claim("support", Actor::AGENT, Duration::from_secs(60)).await?.expect("a build is pending");
    /// let build = agents.fail(&claim, "step 4: no space left").await?;
    /// assert_eq!((build.status, build.error.as_deref()), (BuildStatus::Failed, Some("step 4: no space left")));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `Fenced` if another builder replaced this one; `Conflict` if the build has ended otherwise; `InvalidInput` for an
    /// error that is empty; `LimitExceeded` for one of more than 2,048 bytes; `NotFound` if the build was pruned since;
    /// errors of the store.
    pub async fn fail(&self, claim: &BuildClaim, error: &str) -> Result<Build> {
        if error.is_empty() {
            return Err(Error::invalid(format!("the error of {} is empty; give its reason", claim.build)));
        }
        if error.len() > ERROR_MAX_BYTES {
            return Err(Error::limit(format!(
                "the error of {} has {} bytes; at most {ERROR_MAX_BYTES} are kept, give its end and keep the log elsewhere",
                claim.build,
                error.len()
            )));
        }
        self.end(claim, &Outcome::Error(error)).await
    }

    async fn end(&self, claim: &BuildClaim, outcome: &Outcome<'_>) -> Result<Build> {
        let (agent, number) = (&claim.build.agent, claim.build.number);
        let stored = self.stored(agent);
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let now = stored.find().await?.ok_or_else(|| pruned(claim))?;
            let mut piece = stored.piece(&now, number).await?;
            let build = piece.builds.get_mut(&number).ok_or_else(|| pruned(claim))?;
            check_holder(claim, build)?;
            let (next, image, error) = match *outcome {
                Outcome::Image(image) => (BuildStatus::Completed, Some(image), None),
                Outcome::Error(error) => (BuildStatus::Failed, None, Some(error)),
            };
            if build.status == next && (build.image.as_deref(), build.error.as_deref()) == (image, error) {
                return Ok(build.clone());
            }
            build.become_(next)?;
            (build.image, build.error) = (image.map(str::to_owned), error.map(str::to_owned));
            build.ended_at = Some(self.storage.effects().now());
            let ended = build.clone();
            let mut leases: Leases = stored.read(&now, LEASES).await?;
            leases.remove(&number);
            let mut versions = vec![(LEASES.to_owned(), Some(text_of(&leases)?)), piece.version()?];
            if next == BuildStatus::Completed {
                let mut ledger: Ledger = stored.read(&now, LEDGER).await?;
                ledger.completed = ledger.completed.max(number);
                versions.push((LEDGER.to_owned(), Some(text_of(&ledger)?)));
            }
            let written = stored.write(&now, versions, &claim.builder).await;
            if let Some(written) = attempts.outcome(written) {
                return written.map(|()| ended);
            }
        }
    }
}

/// Checks that no builder replaced the holder of the claim.
fn check_holder(claim: &BuildClaim, build: &Build) -> Result<()> {
    if build.epoch == claim.build.epoch {
        return Ok(());
    }
    let by = build.builder.as_ref().map_or_else(|| "another builder".to_owned(), ToString::to_string);
    Err(Error::new(
        ErrorKind::Fenced { epoch: build.epoch },
        format!(
            "{build} was taken over by {by}, since {} sent no heartbeat for its ttl; discard the result",
            claim.builder
        ),
    ))
}

fn pruned(claim: &BuildClaim) -> Error {
    let agent = quoted(&claim.build.agent);
    Error::not_found(format!(
        "build {} of agent {agent} was removed; request another one",
        claim.build.number
    ))
}
