//! One file with all rules of retention.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use crate::retention::{GcPolicy, GcReport, InactivityPolicy, SweepPolicy, SweepReport};
use agent_core::model::AGE_MAX;
use agent_core::text::quoted;
use agent_core::{Error, Result};

/// All rules by which data is removed by age: those for sessions, those for unused workspaces with what crashes have left, and
/// whether the store is maintained afterwards.
///
/// [`from_toml`](Self::from_toml) reads it from a file, which `chat sweep --policy` reads in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionPolicy {
    /// Rules for sessions.
    pub sessions: SweepPolicy,
    /// Rule for unused workspaces; default `None`, no gc.
    pub workspaces: Option<GcPolicy>,
    /// If true, the host calls [`Backend::maintain`](agent_core::Backend::maintain) when all tenants are done; default false.
    /// It is the one rule that is not for a tenant, and [`apply`](crate::WorkspaceManager::apply) leaves it out.
    pub maintain: bool,
}

/// Result of a policy; in a dry run, what it would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionReport {
    /// Result of gc; `None` if the policy has no rule for workspaces.
    pub workspaces: Option<GcReport>,
    /// Result of the rules for sessions.
    pub sessions: SweepReport,
}

impl RetentionPolicy {
    /// Maximum length of the text of a policy.
    pub const MAX_BYTES: usize = 64 * 1024;

    /// Reads a policy from TOML. Each rule may be left out, and then removes nothing.
    ///
    /// | Key | Value | Effect |
    /// |---|---|---|
    /// | `sessions.inactive` | age | sessions without an event for that long are suspended or terminated |
    /// | `sessions.then` | `"suspend"` (default), `"terminate"` | which of both |
    /// | `sessions.delete_terminated` | age | deletes sessions that were terminated before |
    /// | `sessions.delete_archived` | age | deletes sessions that were archived before |
    /// | `sessions.purge_deleted` | age | purges sessions that were deleted before |
    /// | `workspaces.unused` | age | deletes workspaces that were not used for that long, and what crashes have left |
    /// | `store.maintain` | `true`, `false` (default) | maintains the store in the end |
    ///
    /// An age is a text of a whole number and a unit: `"30min"`, `"12h"`, `"90d"`, `"4w"`; at most [`AGE_MAX`]. `source`
    /// names the text in errors.
    ///
    /// ```
    /// use agent_runtime::retention::{InactivityPolicy, RetentionPolicy};
    /// use std::time::Duration;
    ///
    /// const DAY: Duration = Duration::from_secs(24 * 3600);
    /// let policy = RetentionPolicy::from_toml("retention.toml", r#"
    ///     [sessions]
    ///     inactive = "90d"
    ///     then = "terminate"
    ///     purge_deleted = "4w"
    /// "#)?;
    /// assert_eq!(policy.sessions.inactive, Some((90 * DAY, InactivityPolicy::Terminate)));
    /// assert_eq!((policy.sessions.purge_deleted, policy.workspaces), (Some(28 * DAY), None));
    ///
    /// let wrong = RetentionPolicy::from_toml("retention.toml", "[sessions]\npurge = '4w'").unwrap_err();
    /// assert!(wrong.to_string().starts_with("retention.toml, line 2: unknown field `purge`"), "{wrong}");
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput`, with the source and the line: for text that is not TOML or too long, an unknown key, a value that is
    /// no age, `then` without `inactive`, and a policy without any rule.
    pub fn from_toml(source: &str, text: &str) -> Result<Self> {
        if text.len() > Self::MAX_BYTES {
            let most = Self::MAX_BYTES;
            return Err(Error::invalid(format!("{source} is too long; a policy has at most {most} bytes")));
        }
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            Error::invalid(format!("{source}, line {line}: {}", error.message()))
        })?;
        let policy = file.policy().map_err(|why| Error::invalid(format!("{source}: {why}")))?;
        Ok(policy)
    }

    /// Makes the policy report what it would do, without changes.
    #[must_use]
    pub fn with_dry_run(mut self) -> Self {
        self.sessions.dry_run = true;
        self.workspaces = self.workspaces.map(GcPolicy::with_dry_run);
        self
    }

    /// Returns whether the policy removes anything, or terminates sessions; sessions that are suspended can be resumed.
    pub fn removes(&self) -> bool {
        let sessions = &self.sessions;
        self.workspaces.is_some()
            || sessions.delete_terminated.or(sessions.delete_archived).or(sessions.purge_deleted).is_some()
            || sessions.inactive.is_some_and(|(_, then)| then == InactivityPolicy::Terminate)
    }
}

/// Policy as it stands in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    sessions: Sessions,
    #[serde(default)]
    workspaces: Workspaces,
    #[serde(default)]
    store: Store,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sessions {
    inactive: Option<Age>,
    then: Option<InactivityPolicy>,
    delete_terminated: Option<Age>,
    delete_archived: Option<Age>,
    purge_deleted: Option<Age>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Workspaces {
    unused: Option<Age>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Store {
    #[serde(default)]
    maintain: bool,
}

impl File {
    fn policy(self) -> Result<RetentionPolicy, &'static str> {
        let Sessions { inactive, then, delete_terminated, delete_archived, purge_deleted } = self.sessions;
        if then.is_some() && inactive.is_none() {
            return Err("`sessions.then` says what is done with inactive sessions; add `sessions.inactive`");
        }
        let age = |age: Option<Age>| age.map(|Age(age)| age);
        let mut sessions = SweepPolicy::new();
        sessions.inactive = age(inactive).map(|age| (age, then.unwrap_or(InactivityPolicy::Suspend)));
        sessions.delete_terminated = age(delete_terminated);
        sessions.delete_archived = age(delete_archived);
        sessions.purge_deleted = age(purge_deleted);
        let workspaces = age(self.workspaces.unused).map(GcPolicy::older_than);
        let policy = RetentionPolicy { sessions, workspaces, maintain: self.store.maintain };
        if policy == RetentionPolicy::default() {
            return Err(
                "the policy has no rule; add one, for example `purge_deleted = \"30d\"` below [sessions]",
            );
        }
        Ok(policy)
    }
}

/// Age as people write it.
struct Age(Duration);

impl<'de> Deserialize<'de> for Age {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wrong = |what: &str| {
            de::Error::custom(format!(
                "{what} is no age; write a whole number with its unit, at most {} days: \"30min\", \"12h\", \"90d\", \"4w\"",
                AGE_MAX.as_secs() / (24 * 3600)
            ))
        };
        let text = match toml::Value::deserialize(from)? {
            toml::Value::String(text) => text,
            other => return Err(wrong(&other.to_string())),
        };
        let units = [("min", 60), ("h", 3600), ("d", 24 * 3600), ("w", 7 * 24 * 3600)];
        let seconds = units.iter().find_map(|(unit, seconds)| {
            let count: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            count.checked_mul(*seconds)
        });
        let age = seconds.map(Duration::from_secs).filter(|age| *age <= AGE_MAX);
        age.map(Self).ok_or_else(|| wrong(&quoted(&text)))
    }
}
