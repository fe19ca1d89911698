//! Mounts: external resources that a session may use, and the scope that each comes from.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::base::text::{check_text, words};
use crate::base::{Error, Result, present};
use crate::model::access::Access;

/// Maximum number of mounts of a session that are pinned, removed and frozen, each.
pub const MOUNTS_MAX: usize = 128;

/// Maximum number of bytes of a resource's name.
pub const MOUNT_NAME_MAX_BYTES: usize = 256;

words! {
    /// Scope from which a session has a mount.
    MountOrigin {
        /// All sessions of the tenant.
        Tenant = "tenant",
        /// All sessions of the project.
        Project = "project",
        /// All sessions of the objective.
        Objective = "objective",
        /// The session itself, which pinned the mount.
        Session = "session",
        /// Scope of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

/// Mounted resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Mount {
    /// Access that the session has.
    pub access: Access,
    /// Scope from which the session has the mount.
    pub origin: MountOrigin,
}

impl Mount {
    /// Creates a mount with this access from this scope.
    pub const fn new(access: Access, origin: MountOrigin) -> Self {
        Self { access, origin }
    }
}

/// Set of mounts, by the names of the resources: `pointer:…`, `kb:…`, `artifact:sha256:…`. Names are never
/// interpreted.
///
/// ```
/// use agent_core::model::{Access, MountOrigin, MountSet, Mounts};
///
/// let mut project = Mounts::default();
/// project.pinned.insert("kb:norway".to_owned(), Access::Read);
/// let mounts = project.over(MountSet::default(), MountOrigin::Project);
/// assert!(mounts.is_mounted("kb:norway", Access::Read));
/// assert!(!mounts.is_mounted("kb:norway", Access::Write));
/// assert_eq!(mounts.get("kb:norway").unwrap().origin, MountOrigin::Project);
/// assert_eq!((mounts.len(), mounts.iter().count(), mounts.is_empty()), (1, 1, false));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MountSet(BTreeMap<String, Mount>);

impl MountSet {
    /// Returns whether `resource` is mounted with at least this access; `false` for a name that is not in the set.
    pub fn is_mounted(&self, resource: &str, access: Access) -> bool {
        self.0.get(resource).is_some_and(|mount| mount.access == Access::Write || access == Access::Read)
    }

    /// Returns the mount of `resource`.
    pub fn get(&self, resource: &str) -> Option<Mount> {
        self.0.get(resource).copied()
    }

    /// Returns all mounts, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Mount)> {
        self.0.iter().map(|(resource, mount)| (resource.as_str(), *mount))
    }

    /// Returns the mounts by the names of their resources.
    pub(crate) const fn names_mut(&mut self) -> &mut BTreeMap<String, Mount> {
        &mut self.0
    }

    /// Returns the number of mounts.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no mounts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Mounts that a scope (a tenant, a project, an objective, a session) adds to and removes from what it inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Mounts {
    /// Mounts added by this scope, with their access.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pinned: BTreeMap<String, Access>,
    /// Mounts removed by this scope, also if they are inherited.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub removed: BTreeSet<String>,
    /// Inherited mounts, if they were frozen; `None` if they follow the scopes above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<MountSet>,
}

/// Partial change of [`Mounts`]. Mounts that are not named stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MountsPatch {
    /// Resources to pin, which also reverts their removal; with `None`, pins to remove.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pinned: BTreeMap<String, Option<Access>>,
    /// Resources to remove, which also removes their pin; with `false`, removals to revert.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub removed: BTreeMap<String, bool>,
    /// Inherited mounts to freeze; `Some(None)` makes them follow the scopes again.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub frozen: Option<Option<MountSet>>,
}

impl Mounts {
    /// Returns the mounts of this scope: the inherited ones, without those removed, with those pinned.
    #[must_use]
    pub fn over(&self, mut inherited: MountSet, here: MountOrigin) -> MountSet {
        inherited.0.retain(|resource, _| !self.removed.contains(resource));
        let pinned = self.pinned.iter().map(|(name, access)| (name.clone(), Mount::new(*access, here)));
        inherited.0.extend(pinned);
        inherited
    }

    /// Applies a change. Never fails, so that an accepted change always folds.
    pub(crate) fn apply(&mut self, patch: &MountsPatch) {
        for (resource, access) in &patch.pinned {
            match access {
                Some(access) => {
                    self.removed.remove(resource);
                    self.pinned.insert(resource.clone(), *access);
                }
                None => drop(self.pinned.remove(resource)),
            }
        }
        for (resource, removed) in &patch.removed {
            if *removed {
                self.pinned.remove(resource);
                self.removed.insert(resource.clone());
            } else {
                self.removed.remove(resource);
            }
        }
        if let Some(frozen) = &patch.frozen {
            self.frozen.clone_from(frozen);
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let frozen = self.frozen.iter().flat_map(MountSet::iter).map(|(name, _)| name);
        let names = self.pinned.keys().chain(&self.removed).map(String::as_str).chain(frozen);
        check_names(names)
    }

    pub(crate) fn check_counts(&self) -> Result<()> {
        let frozen = self.frozen.as_ref().map_or(0, MountSet::len);
        let most = self.pinned.len().max(self.removed.len()).max(frozen);
        if most > MOUNTS_MAX {
            return Err(Error::limit(format!(
                "{most} mounts; a session may have at most {MOUNTS_MAX}, remove some first"
            )));
        }
        Ok(())
    }
}

impl MountsPatch {
    pub(crate) fn check(&self) -> Result<()> {
        let frozen = self.frozen.iter().flatten().flat_map(MountSet::iter).map(|(name, _)| name);
        check_names(self.pinned.keys().chain(self.removed.keys()).map(String::as_str).chain(frozen))
    }
}

fn check_names<'a>(mut names: impl Iterator<Item = &'a str>) -> Result<()> {
    names.try_for_each(|name| Ok(check_text("mounted resource", name, MOUNT_NAME_MAX_BYTES)?))
}
