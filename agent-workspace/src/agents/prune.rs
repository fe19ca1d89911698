//! Removal of old builds that no session pins.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent_core::model::Actor;
use agent_core::session::SessionRecord;
use agent_core::setters;
use agent_core::state::SessionState;
use agent_core::store::{PAGE_MAX, SessionQuery, pages};
use agent_core::text::quoted;
use agent_core::{Error, ErrorKind, Result, SessionId, Timestamp};
use futures::TryStreamExt;

use crate::agents::build::{Build, BuildStatus};
use crate::agents::registry::{ATTEMPTS, Agents, check_actor};
use crate::agents::stored::{LEDGER, Ledger, Stored, pieces};
use crate::contested::Attempts;

/// Rules by which old builds are removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildPrunePolicy {
    /// Age at which a build is removed: the time since it failed, or since a newer build was completed.
    pub age: Duration,
    /// Dry run: if true, the report has what would be removed, and nothing is changed; default false.
    pub dry_run: bool,
}

impl BuildPrunePolicy {
    /// Creates a policy that removes builds at an age. Choose a longer one than passes between
    /// [`resolve`](Agents::resolve) and the creation of the session that pins the build.
    ///
    /// ```
    /// use std::time::Duration;
    /// use agent_runtime::agents::BuildPrunePolicy;
    ///
    /// let week = Duration::from_secs(7 * 24 * 3600);
    /// let policy = BuildPrunePolicy::new(week).with_dry_run();
    /// assert_eq!((policy.age, policy.dry_run), (week, true));
    /// ```
    pub const fn new(age: Duration) -> Self {
        Self { age, dry_run: false }
    }

    setters! {
        /// Reports what would be removed, without changes.
        pub const fn with_dry_run() => dry_run = true;
    }
}

/// Result of [`Agents::prune`]; in a dry run, what it would be. The newest builds are first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildPruneReport {
    /// Builds that were removed. Their images are the host's to remove.
    pub removed: Vec<Build>,
    /// Builds that were kept, each with the reason.
    pub retained: Vec<RetainedBuild>,
}

/// Build that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetainedBuild {
    /// Number of the build.
    pub number: u64,
    /// Reason for which it is kept.
    pub reason: BuildRetainReason,
}

/// Reason for which a build is not removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildRetainReason {
    /// The build is pending or building.
    InProgress,
    /// The build is the newest completed one.
    Newest,
    /// A session that is not deleted was made from the build.
    #[non_exhaustive]
    Pinned {
        /// Id of the session, one of possibly several.
        session: SessionId,
    },
    /// The build failed, or was replaced by a newer one, more recently than the policy's age.
    #[non_exhaustive]
    Recent {
        /// Time from which the age counts.
        since: Timestamp,
    },
}

impl fmt::Display for BuildRetainReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProgress => f.write_str("in progress"),
            Self::Newest => f.write_str("newest completed build"),
            Self::Pinned { session } => write!(f, "session {session} was made from it"),
            Self::Recent { since } => write!(f, "in use until {since}"),
        }
    }
}

impl Agents {
    /// Removes old builds of an agent. Returns what was removed and what was kept.
    ///
    /// Builds in progress, the newest completed one, and those that a session of the workspace [pins](Build::pin) are kept;
    /// a session pins until it is deleted. Reads the summaries of all sessions of the workspace. The log of the hidden
    /// session keeps the removed records until the workspace is deleted; images are not touched.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::{MemoryStore, Storage, WorkspaceId};
    /// # use agent_core::model::Actor;
    /// # use agent_runtime::agents::Agents;
    /// # let agents = Agents::new(&Storage::from(MemoryStore::new()), WorkspaceId::DEFAULT);
    /// use std::time::Duration;
    /// use agent_runtime::agents::BuildPrunePolicy;
    ///
    /// agents.register("support", "git:9f3c1e", Actor::USER).await?;
    /// for image in ["support:1", "support:2"] {
    ///     agents.request("support", Actor::USER).await?;
    ///     let ttl = Duration::from_secs(60);
    ///     let claim = agents.claim("support", Actor::AGENT, ttl).await?.expect("a build is pending");
    ///     agents.complete(&claim, image).await?;
    /// }
    /// let report = agents.prune("support", &BuildPrunePolicy::new(Duration::ZERO), Actor::USER).await?;
    /// assert_eq!((report.removed[0].number, report.retained[0].number), (1, 2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the builds are removed; call it again.
    ///
    /// # Errors
    ///
    /// `NotFound` if the agent is not registered; `InvalidInput` if `actor` is the system; `Denied` for the storage of an
    /// owner in a workspace of all owners, whose sessions it does not see; `Corrupt` if a session of the workspace cannot
    /// be read, since it may pin a build; errors of the store.
    pub async fn prune(
        &self,
        agent: &str,
        policy: &BuildPrunePolicy,
        actor: Actor,
    ) -> Result<BuildPruneReport> {
        check_actor(&actor)?;
        let stored = self.stored(agent);
        let Some(mut now) = stored.find().await? else {
            return self.registered(agent).await.map(|_| BuildPruneReport::default());
        };
        self.check_sight().await?;
        let mut rules = Rules {
            pins: self.pins(agent).await?,
            newest: stored.read::<Ledger>(&now, LEDGER).await?.completed,
            cutoff: before(self.storage.effects().now(), policy.age),
            replaced_at: None,
        };
        let mut report = BuildPruneReport::default();
        for highest in pieces(&now) {
            let mut attempts = Attempts::at_most(ATTEMPTS);
            loop {
                let mut piece = stored.piece(&now, highest).await?;
                let (removed, retained, replaced_at) = rules.judge(piece.builds.values().rev());
                piece.builds.retain(|number, _| retained.iter().any(|kept| kept.number == *number));
                let written = match removed.is_empty() || policy.dry_run {
                    true => Ok(()),
                    false => stored.write(&now, vec![piece.version()?], &actor).await,
                };
                if let Some(written) = attempts.outcome(written) {
                    written?;
                    rules.replaced_at = replaced_at;
                    report.removed.extend(removed);
                    report.retained.extend(retained);
                    break;
                }
                now = reread(&stored).await?;
            }
            // The next document is written at the head that this one left.
            now = reread(&stored).await?;
        }
        Ok(report)
    }

    /// Returns a session for each build of an agent that sessions of the workspace pin.
    async fn pins(&self, agent: &str) -> Result<HashMap<u64, SessionId>> {
        let living = SessionState::ALL.iter().copied().filter(|state| *state != SessionState::Deleted);
        let query =
            SessionQuery::new().with_workspace(self.workspace).with_states(living).with_limit(PAGE_MAX);
        let (sessions, mut pins) = (&self.storage.sessions, HashMap::new());
        let mut pages = pages(query, |query| sessions.list(query));
        while let Some(page) = pages.try_next().await? {
            if let Some(damaged) = page.damaged.iter().find(|damaged| !damaged.is_foreign) {
                return Err(Error::corrupt(format!(
                    "no build of agent {} is removed, since a session that cannot be read may pin it: {damaged}; salvage or \
                     delete that session",
                    quoted(agent)
                )));
            }
            for session in &page.items {
                if let Some((_, number)) = Build::pinned(&session.attributes).filter(|(of, _)| *of == agent) {
                    pins.insert(number, session.id);
                }
            }
        }
        Ok(pins)
    }

    /// Checks that the storage shows all sessions of the workspace.
    async fn check_sight(&self) -> Result<()> {
        let Some(owner) = self.storage.owner() else { return Ok(()) };
        let owned = match self.storage.workspaces.load(self.workspace).await {
            Err(error) if error.is_absent() => None,
            workspace => workspace?.owner,
        };
        if owned.as_ref() == Some(owner) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Denied,
            format!(
                "workspace {} has sessions of several owners, which may pin builds; prune with the storage of the tenant",
                self.workspace
            ),
        ))
    }
}

async fn reread(stored: &Stored) -> Result<Arc<SessionRecord>> {
    stored.find().await?.ok_or_else(|| Error::deleted("the builds were deleted meanwhile"))
}

/// What decides whether a build is kept.
struct Rules {
    pins: HashMap<u64, SessionId>,
    newest: u64,
    cutoff: Timestamp,
    /// Earliest end of the completed builds that are newer than those to judge.
    replaced_at: Option<Timestamp>,
}

impl Rules {
    /// Judges builds, newest first. Returns those to remove, those to keep, and the next value of `replaced_at`.
    fn judge<'a>(
        &self,
        builds: impl Iterator<Item = &'a Build>,
    ) -> (Vec<Build>, Vec<RetainedBuild>, Option<Timestamp>) {
        let (mut removed, mut retained, mut replaced_at) = (Vec::new(), Vec::new(), self.replaced_at);
        for build in builds {
            match self.reason(build, replaced_at) {
                Some(reason) => retained.push(RetainedBuild { number: build.number, reason }),
                None => removed.push(build.clone()),
            }
            if build.status == BuildStatus::Completed {
                replaced_at = replaced_at.into_iter().chain(build.ended_at).min();
            }
        }
        (removed, retained, replaced_at)
    }

    fn reason(&self, build: &Build, replaced_at: Option<Timestamp>) -> Option<BuildRetainReason> {
        let ended = match (build.status, build.ended_at) {
            (BuildStatus::Completed | BuildStatus::Failed, Some(ended)) => ended,
            _ => return Some(BuildRetainReason::InProgress),
        };
        // A build that was completed meanwhile is newer than the newest one that was read.
        let is_completed = build.status == BuildStatus::Completed;
        if is_completed && build.number >= self.newest {
            return Some(BuildRetainReason::Newest);
        }
        if let Some(session) = self.pins.get(&build.number) {
            return Some(BuildRetainReason::Pinned { session: *session });
        }
        let since = replaced_at.filter(|_| is_completed).map_or(ended, |replaced| replaced.max(ended));
        (since > self.cutoff).then_some(BuildRetainReason::Recent { since })
    }
}

/// Returns the time `age` before `now`; the earliest time if the age reaches beyond it.
fn before(now: Timestamp, age: Duration) -> Timestamp {
    now.plus_micros(i64::try_from(age.as_micros()).map_or(i64::MIN, |micros| -micros))
}
