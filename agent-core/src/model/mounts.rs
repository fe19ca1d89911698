//! Mounts: what a session may use of what lies outside, and from where it has that.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::base::text::{check_text, words};
use crate::base::{Error, Result, present};
use crate::model::access::Access;

/// The most mounts that a session may have pinned, removed and frozen, each.
pub const MOUNTS_MAX: usize = 128;

/// The most bytes of a resource's name.
pub const MOUNT_NAME_MAX_BYTES: usize = 256;

words! {
    /// From where a session has a mount.
    MountOrigin {
        /// All sessions of the tenant have it.
        Tenant = "tenant",
        /// All sessions of the project have it.
        Project = "project",
        /// All sessions of the objective have it.
        Objective = "objective",
        /// It was pinned in the session itself.
        Session = "session",
        /// An origin of a newer version of this library.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

/// A resource that is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Mount {
    /// What may be done with it.
    pub access: Access,
    /// From where the session has it.
    pub origin: MountOrigin,
}

impl Mount {
    /// A mount with this access, from there.
    pub const fn new(access: Access, origin: MountOrigin) -> Self {
        Self { access, origin }
    }
}

/// What is mounted, by the names of the resources: `pointer:…`, `kb:…`, `artifact:sha256:…`, never interpreted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MountSet(BTreeMap<String, Mount>);

impl MountSet {
    /// Whether `resource` is mounted with at least this access. What is not named is not.
    pub fn is_mounted(&self, resource: &str, access: Access) -> bool {
        self.0.get(resource).is_some_and(|mount| mount.access == Access::Write || access == Access::Read)
    }

    /// The mount of `resource`.
    pub fn get(&self, resource: &str) -> Option<Mount> {
        self.0.get(resource).copied()
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Mount)> {
        self.0.iter().map(|(resource, mount)| (resource.as_str(), *mount))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What a scope (a tenant, a project, an objective, a session) adds to what it inherits, and takes away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Mounts {
    /// Added here, with what may be done with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pinned: BTreeMap<String, Access>,
    /// Taken away here, whatever is inherited.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub removed: BTreeSet<String>,
    /// What is inherited, where that was frozen; `None` where it follows the scopes above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<MountSet>,
}

/// A partial change of [`Mounts`]: what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MountsPatch {
    /// Resources to pin, which also ends their removal; or with `None` to pin no longer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pinned: BTreeMap<String, Option<Access>>,
    /// Resources to remove, which also ends their pinning; or with `false` to remove no longer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub removed: BTreeMap<String, bool>,
    /// Freezes what is inherited; `Some(None)` lets it follow the scopes again.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub frozen: Option<Option<MountSet>>,
}

impl Mounts {
    /// What is mounted here where `inherited` is: inherited, without what is removed, with what is pinned.
    #[must_use]
    pub fn over(&self, mut inherited: MountSet, here: MountOrigin) -> MountSet {
        inherited.0.retain(|resource, _| !self.removed.contains(resource));
        let pinned = self.pinned.iter().map(|(name, access)| (name.clone(), Mount::new(*access, here)));
        inherited.0.extend(pinned);
        inherited
    }

    /// Applies a change. Never refuses: what was accepted once folds for ever.
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
