//! Keys of all objects in the bucket. A tenant's objects are all under one folder. Ids are validated text, and device
//! ids are hashed.

use std::fmt::Write;

use agent_core::{BlobName, SessionId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::layout::line::FORMAT;

/// Number of minutes by which a key may lag behind the time that its list is ordered by.
pub(crate) const LAG_MINUTES: u64 = 15;
/// Latest minute that a key can have.
pub(crate) const MINUTE_MAX: u64 = 9_999_999_999;

/// Number of a slot: that of its commit's first event; zero for a session's first commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Slot(pub(crate) u64);

impl Slot {
    /// Slot of a session's first commit.
    pub(crate) const FIRST: Self = Self(0);

    /// Returns the last part of the slot's key. The newest slot sorts first.
    pub(crate) fn name(self) -> String {
        format!("{:020}", 99_999_999_999_999_999_999_u128 - u128::from(self.0))
    }

    /// Parses a slot from the last part of a key.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let digits = name.len() == 20 && name.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| name.parse::<u128>().ok()).flatten()?;
        u64::try_from(99_999_999_999_999_999_999 - number).ok().map(Self)
    }
}

/// Minute since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Minute(pub(crate) u64);

impl Minute {
    /// Minute of what is due at once, or runs.
    pub(crate) const AT_ONCE: Self = Self(0);

    pub(crate) fn of(at: Timestamp) -> Self {
        Self(u64::try_from(at.as_micros() / 60_000_000).unwrap_or(0).min(MINUTE_MAX))
    }

    /// Returns the name of the minute in keys that list the earliest first.
    pub(crate) fn name(self) -> String {
        format!("{:010}", self.0)
    }

    /// Parses a minute from its name in keys that list the latest first.
    pub(crate) fn parse_inverted(name: &str) -> Option<Self> {
        let digits = name.len() == 10 && name.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| name.parse::<u64>().ok()).flatten().map(|number| Self(MINUTE_MAX - number))
    }

    /// Returns whether a key with this minute stays in force in a list that is ordered by a time in `wanted`.
    pub(crate) fn stays_for(self, wanted: Self) -> bool {
        self <= wanted && wanted.0 - self.0 < LAG_MINUTES
    }

    /// Returns the name of the minute in keys that list the latest first.
    pub(crate) fn inverted(self) -> String {
        format!("{:010}", MINUTE_MAX - self.0)
    }
}

/// Keys of one generation of a tenant.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// Folder of the generation; ends with a slash.
    root: String,
    /// Folder of the work of all tenants; ends with a slash.
    work: String,
    /// Folder of the generation below that of a minute; ends with a slash.
    own_work: String,
}

/// Returns the folder of all tenants; ends with a slash.
pub(crate) fn tenants(prefix: &str) -> String {
    if prefix.is_empty() { format!("v{FORMAT}/") } else { format!("{prefix}/v{FORMAT}/") }
}

/// Returns the folder of the tenants' generations; ends with a slash.
pub(crate) fn generations(prefix: &str) -> String {
    if prefix.is_empty() { "generations/".to_owned() } else { format!("{prefix}/generations/") }
}

/// Returns the key of a tenant's generation.
pub(crate) fn generation(prefix: &str, tenant: &TenantId) -> String {
    format!("{}{tenant}", generations(prefix))
}

/// Returns the folder of the work of all tenants; ends with a slash.
pub(crate) fn work(prefix: &str) -> String {
    if prefix.is_empty() { format!("work/v{FORMAT}/") } else { format!("{prefix}/work/v{FORMAT}/") }
}

/// Returns the minute, and the text of the tenant, of a key of work.
pub(crate) fn work_of<'k>(prefix: &str, key: &'k str) -> Option<(Minute, &'k str)> {
    let mut parts = key.strip_prefix(&work(prefix))?.split('/');
    let minute = parts.next()?.parse().ok()?;
    Some((Minute(minute), parts.next()?))
}

/// Returns a key behind the work of a tenant that is due in a minute, and before that of the next tenant.
pub(crate) fn work_after(prefix: &str, minute: Minute, tenant: &str) -> String {
    // A digit sorts behind a slash.
    format!("{}{}/{tenant}0", work(prefix), minute.name())
}

/// Returns the folder of all probes; ends with a slash.
pub(crate) fn probes(prefix: &str) -> String {
    if prefix.is_empty() { "probe/".to_owned() } else { format!("{prefix}/probe/") }
}

/// Returns the folder of one probe, which contains no tenant's objects; ends with a slash.
pub(crate) fn probe(prefix: &str, name: &str) -> String {
    format!("{}{name}/", probes(prefix))
}

/// Returns the key of the object that says that the server passed a probe.
pub(crate) fn probed(prefix: &str) -> String {
    format!("{}passed", probes(prefix))
}

/// Returns the key of the settings.
pub(crate) fn settings(prefix: &str) -> String {
    if prefix.is_empty() { "settings".to_owned() } else { format!("{prefix}/settings") }
}

/// Returns the hash of a text that a key must not contain.
pub(crate) fn hash(text: &str) -> String {
    let mut hash = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing to a string does not fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}

/// Returns whether a name may be the [hash](hash) of a text.
pub(crate) fn is_hash(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the last part of a key.
pub(crate) fn last(key: &str) -> &str {
    key.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

impl Keys {
    /// Returns the keys of a generation. The first one has the folder of the tenant itself, the others one below it.
    pub(crate) fn new(prefix: &str, tenant: &TenantId, generation: u64) -> Self {
        let root = format!("{}{tenant}/", tenants(prefix));
        Self {
            root: if generation == 0 { root } else { format!("{root}g{generation}/") },
            work: work(prefix),
            own_work: format!("{tenant}/{generation}/"),
        }
    }

    /// Returns the folder of the generation; ends with a slash.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Returns the folders that contain all objects; each ends with a slash.
    pub(crate) fn folders(&self) -> [String; 4] {
        [self.sessions(), self.workspaces(), self.bindings(), self.families()]
    }

    /// Returns the folder of the ids of all sessions that were created, or announced, from others; ends with a slash.
    pub(crate) fn families(&self) -> String {
        format!("{}idx/", self.root)
    }

    /// Returns the folder of all sessions; ends with a slash. The sessions are in up to 256 folders below it.
    pub(crate) fn sessions(&self) -> String {
        format!("{}s/", self.root)
    }

    /// Returns the folder of a session; ends with a slash. Ids of about the same time have different last bytes, so the
    /// server can spread the load.
    fn session(&self, session: SessionId) -> String {
        let last = session.as_uuid().as_bytes()[15];
        format!("{}{last:02x}/{session}/", self.sessions())
    }

    /// Returns the folder of a session's slots; ends with a slash.
    pub(crate) fn slots(&self, session: SessionId) -> String {
        format!("{}c/", self.session(session))
    }

    /// Returns the slot of a key; `None` for a key in the folder of the slots that is none's, which other programs put there:
    /// the mark of a folder, a hidden file of a file manager.
    pub(crate) fn slot_of(&self, session: SessionId, key: &str) -> Option<Slot> {
        Slot::parse(key.strip_prefix(&self.slots(session))?)
    }

    /// Returns a key before those of all slots, and behind most that are none's.
    pub(crate) fn before_slots(&self, session: SessionId) -> String {
        // The first digit of every slot that a number of 64 bits names.
        format!("{}8", self.slots(session))
    }

    pub(crate) fn slot(&self, session: SessionId, slot: Slot) -> String {
        format!("{}{}", self.slots(session), slot.name())
    }

    /// Returns the folder of a session's blobs; ends with a slash.
    pub(crate) fn blobs(&self, session: SessionId) -> String {
        format!("{}b/", self.session(session))
    }

    /// Returns the folder of the objects that hold one blob of a session; ends with a slash.
    pub(crate) fn copies(&self, session: SessionId, blob: BlobName) -> String {
        format!("{}{blob}/", self.blobs(session))
    }

    /// Returns the key of an object that holds a blob, put when `head` was the session's last event. Those that were put
    /// last sort first.
    pub(crate) fn copy(&self, session: SessionId, blob: BlobName, head: Slot, random: u64) -> String {
        format!("{}{}.{random:016x}", self.copies(session, blob), head.name())
    }

    /// Returns the folder of the ids for which blobs were put before there was a session; ends with a slash.
    pub(crate) fn early_all(&self) -> String {
        format!("{}blob/", self.families())
    }

    pub(crate) fn early(&self, session: SessionId) -> String {
        format!("{}{session}", self.early_all())
    }

    /// Returns the folder of the folders of [`children`](Self::children); ends with a slash.
    pub(crate) fn all_children(&self) -> String {
        format!("{}child/", self.families())
    }

    /// Returns the folder with the ids of the sessions that were created, or announced, from a session; ends with a
    /// slash.
    pub(crate) fn children(&self, parent: SessionId) -> String {
        format!("{}{parent}/", self.all_children())
    }

    pub(crate) fn child(&self, parent: SessionId, session: SessionId) -> String {
        format!("{}{session}", self.children(parent))
    }

    /// Returns the folder of a list of the index; ends with a slash.
    pub(crate) fn index(&self, scope: &str) -> String {
        format!("{}{scope}/", self.families())
    }

    /// Returns the folder of the generation's own work of a minute; ends with a slash.
    pub(crate) fn work(&self, minute: Minute) -> String {
        format!("{}{}/{}", self.work, minute.name(), self.own_work)
    }

    /// Returns the folder of the work of all tenants; ends with a slash.
    pub(crate) fn all_work(&self) -> String {
        self.work.clone()
    }

    /// Returns a key behind all work that is due at once, and before all other.
    pub(crate) fn work_after_at_once(&self) -> String {
        // A digit sorts behind a slash.
        format!("{}{}0", self.work, Minute::AT_ONCE.name())
    }

    /// Returns whether a key of work belongs to the generation.
    pub(crate) fn is_own_work(&self, key: &str) -> bool {
        let own = key.strip_prefix(&self.work).and_then(|rest| rest.split_once('/'));
        own.is_some_and(|(_, rest)| rest.starts_with(&self.own_work))
    }

    /// Returns whether a key of work is due after a minute.
    pub(crate) fn is_work_after(&self, key: &str, minute: Minute) -> bool {
        let own = key.strip_prefix(&self.work).and_then(|rest| rest.split('/').next());
        own.is_some_and(|of| *of > *minute.name())
    }

    pub(crate) fn workspaces(&self) -> String {
        format!("{}workspaces/", self.root)
    }

    /// Returns the folder of the devices; ends with a slash. The last part of a key is the hash of the device's id.
    pub(crate) fn bindings(&self) -> String {
        format!("{}bindings/", self.root)
    }
}
