//! What a person or a host says of a session: title, labels, metadata, references, resources, handles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::text::{check_text, quoted, words};
use crate::base::{Error, RawFields, RawJson, Result, is_default, present};
use crate::model::access::Access;
use crate::model::mounts::{MountSet, Mounts, MountsPatch};

/// The most labels that a session may have.
pub const LABELS_MAX: usize = 64;

/// The most references that a session may have.
pub const REFERENCES_MAX: usize = 64;

/// The most resources that a session may have attached.
pub const RESOURCES_MAX: usize = 64;

/// The most handles on things outside that a session may have.
pub const HANDLES_MAX: usize = 64;

/// The most levels of objects and lists of a field of metadata: within the event that creates a session, and so a fork of this
/// one, it has three around it.
const METADATA_MAX_DEPTH: usize = RawJson::MAX_DEPTH - 3;

/// The most bytes of a title.
pub const TITLE_MAX_BYTES: usize = 512;

/// A session's title and who set it; one that a person set is not replaced by one that an agent makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Title {
    /// 1 to 512 bytes without control characters.
    pub text: String,
    /// Whether a person chose it.
    #[serde(default)]
    pub by_user: bool,
}

impl Title {
    /// A title that a person chose.
    pub fn by_user(text: impl Into<String>) -> Self {
        Self { text: text.into(), by_user: true }
    }

    /// A title that was made up.
    pub fn generated(text: impl Into<String>) -> Self {
        Self { text: text.into(), by_user: false }
    }
}

/// Words by which sessions are found: user, project, objective, module, directory …
///
/// At most 64; keys of 1 to 64 bytes, values of 1 to 512 bytes, neither with control characters.
pub type Labels = BTreeMap<String, String>;

/// Names of things outside: `agent`, `environment`, `provider`, `model`, `policy`, `model_profile`, `thread.<agent>` …
///
/// They are kept and not interpreted, but for [`provider`](Attributes::PROVIDER), by which a session chooses whom its
/// runs ask. Where it chooses nobody, a run records there whom it asked, in `model` which model that was, and in
/// [`provider.from`](Attributes::PROVIDER_FROM) who chose it.
///
/// At most 64; names of 1 to 64 bytes, values of 1 to 512 bytes, neither with control characters.
pub type References = BTreeMap<String, String>;

/// Something outside that the session works on.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Resource {
    /// What it is: `directory`, `repository`, `bucket` …
    pub kind: String,
    /// Where it comes from.
    pub source: String,
    /// Where the session sees it.
    pub mount: String,
    /// What the session may do with it.
    #[serde(default)]
    pub access: Access,
}

impl Resource {
    /// A resource to look at.
    pub fn new(kind: impl Into<String>, source: impl Into<String>, mount: impl Into<String>) -> Self {
        Self { kind: kind.into(), source: source.into(), mount: mount.into(), access: Access::Read }
    }

    /// Sets what the session may do with it.
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }
}

/// A handle on something that lives outside: a container, a volume, an interpreter. Kept and never interpreted.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExternalHandle {
    /// What it is: `container`, `volume`, `interpreter` …
    pub kind: String,
    /// Its name out there: 1 to 1,024 bytes without control characters.
    pub target: String,
    /// How it is to be treated, in words: when it may be removed, who made it. At most 512 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The process (`AgentRuntime::process`) in which it is of use, where it is of use in one only. `None` for what
    /// outlives processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

/// Whether an [`ExternalHandle`] can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Liveness {
    /// It outlives processes; whether the thing is still there, the host finds out.
    Durable,
    /// It is of use in this process.
    Live,
    /// It was of use in another process, and is not to be used.
    Stale,
}

impl ExternalHandle {
    /// A handle on something that outlives processes.
    pub fn new(kind: impl Into<String>, target: impl Into<String>) -> Self {
        Self { kind: kind.into(), target: target.into(), note: String::new(), process: None }
    }

    /// Says how it is to be treated.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Makes it of use in one process only.
    pub fn of_process(mut self, process: impl Into<String>) -> Self {
        self.process = Some(process.into());
        self
    }

    /// Whether it can be used in `process`. Nothing has to be written for a handle to become stale: it is so in every
    /// process but its own, also after a crash.
    pub fn liveness(&self, process: &str) -> Liveness {
        match &self.process {
            None => Liveness::Durable,
            Some(own) if own == process => Liveness::Live,
            Some(_) => Liveness::Stale,
        }
    }
}

words! {
    /// What a session's log keeps of what its agent's tools are given and give.
    Keep {
        /// All of it: after a restart the model knows what it did.
        Everything = "everything",
        /// That a tool was called, when, and how it came out; not what it was given, nor what it gave. After the run the
        /// model is given the texts of the conversation only.
        ///
        /// A call for which somebody has to be waited for is kept whole, as another run makes it; its result is not.
        Text = "text",
        /// A choice of a newer version of this library; kept is what `Text` keeps.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

/// A partial change of what is said of a session: what is not named stays.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Patch {
    /// The new title; `Some(None)` removes it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub title: Option<Option<Title>>,
    /// Labels to set, or with `None` to remove.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Option<String>>,
    /// Fields of metadata to set, or with JSON `null` to remove.
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    pub metadata: RawFields,
    /// References to set, or with `None` to remove.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub references: BTreeMap<String, Option<String>>,
    /// The new list of attached resources, replacing the former.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<Resource>>,
    /// Mounts to pin, to remove, to freeze.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mounts: MountsPatch,
    /// Handles to set, or with `None` to remove.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub handles: BTreeMap<String, Option<ExternalHandle>>,
    /// What the log keeps of tools from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
}

impl Patch {
    /// Changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the title.
    pub fn title(mut self, title: Title) -> Self {
        self.title = Some(Some(title));
        self
    }

    /// Sets a label.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), Some(value.into()));
        self
    }

    /// Removes a label.
    pub fn without_label(mut self, key: impl Into<String>) -> Self {
        self.labels.insert(key.into(), None);
        self
    }

    /// Sets a field of metadata.
    pub fn metadata(mut self, name: impl Into<Box<str>>, value: RawJson) -> Self {
        self.metadata.insert(name, value);
        self
    }

    /// Sets a reference.
    pub fn reference(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.references.insert(name.into(), Some(value.into()));
        self
    }

    /// Replaces the attached resources.
    pub fn resources(mut self, resources: Vec<Resource>) -> Self {
        self.resources = Some(resources);
        self
    }

    /// Mounts a resource here, whatever is inherited.
    pub fn mount(mut self, resource: impl Into<String>, access: Access) -> Self {
        self.mounts.pinned.insert(resource.into(), Some(access));
        self
    }

    /// Mounts a resource no longer by itself; where it is inherited, it stays.
    pub fn unmount(mut self, resource: impl Into<String>) -> Self {
        self.mounts.pinned.insert(resource.into(), None);
        self
    }

    /// Takes a resource away, whatever is inherited.
    pub fn remove_mount(mut self, resource: impl Into<String>) -> Self {
        self.mounts.removed.insert(resource.into(), true);
        self
    }

    /// Takes a resource away no longer.
    pub fn restore_mount(mut self, resource: impl Into<String>) -> Self {
        self.mounts.removed.insert(resource.into(), false);
        self
    }

    /// Freezes what is inherited; `None` lets it follow the scopes again.
    pub fn freeze_mounts(mut self, inherited: Option<MountSet>) -> Self {
        self.mounts.frozen = Some(inherited);
        self
    }

    /// Sets a handle on something outside.
    pub fn handle(mut self, name: impl Into<String>, handle: ExternalHandle) -> Self {
        self.handles.insert(name.into(), Some(handle));
        self
    }

    /// Removes a handle.
    pub fn without_handle(mut self, name: impl Into<String>) -> Self {
        self.handles.insert(name.into(), None);
        self
    }

    /// Sets what the log keeps of tools from now on.
    pub const fn keep(mut self, keep: Keep) -> Self {
        self.keep = Some(keep);
        self
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn check(&self) -> Result<()> {
        if let Some(Some(title)) = &self.title {
            check_text("title", &title.text, TITLE_MAX_BYTES)?;
        }
        for (noun, entries) in [("label", &self.labels), ("reference", &self.references)] {
            for (key, value) in entries {
                check_text(&format!("{noun} key"), key, 64)?;
                if let Some(value) = value {
                    check_text(&format!("{noun} value"), value, 512)?;
                }
            }
        }
        for (name, value) in self.metadata.iter() {
            check_text("metadata name", name, 128)?;
            let levels = value.depth();
            if levels > METADATA_MAX_DEPTH {
                return Err(Error::limit(format!(
                    "metadata {} nests {levels} levels deep; at most {METADATA_MAX_DEPTH} are kept, store deeper JSON as a text",
                    quoted(name)
                )));
            }
        }
        for resource in self.resources.iter().flatten() {
            for (noun, text) in [
                ("resource kind", &resource.kind),
                ("resource source", &resource.source),
                ("resource mount", &resource.mount),
            ] {
                check_text(noun, text, 1024)?;
            }
        }
        for (name, handle) in &self.handles {
            check_text("handle name", name, 64)?;
            let Some(handle) = handle else { continue };
            check_text("handle kind", &handle.kind, 64)?;
            check_text("handle target", &handle.target, 1024)?;
            if let Some(process) = &handle.process {
                check_text("handle process", process, 256)?;
            }
            if handle.note.len() > 512 {
                return Err(Error::limit(format!(
                    "the note of handle {name} has {} bytes; at most 512 are kept",
                    handle.note.len()
                )));
            }
        }
        self.mounts.check()
    }
}

/// What is said of a session, as its record holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attributes {
    /// The title, where one was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Title>,
    /// Words by which it is found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// The host's own, never interpreted.
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    pub metadata: RawFields,
    /// Names of things outside.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub references: References,
    /// Things outside that it works on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// What it mounts and does not mount, beside what it inherits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mounts: Mounts,
    /// Handles on things that live outside.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub handles: BTreeMap<String, ExternalHandle>,
    /// What the log keeps of tools; recorded by the first run, where nobody has chosen before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
}

impl Attributes {
    /// The reference by which a session chooses the provider that its runs ask, by its name.
    pub const PROVIDER: &'static str = "provider";
    /// The reference that tells a provider which a run has recorded from one that the session chose: `workspace` or
    /// `configuration`, where its name comes from. Written by runs only; a patch that sets [`PROVIDER`](Self::PROVIDER)
    /// alone removes it.
    pub const PROVIDER_FROM: &'static str = "provider.from";

    /// Returns the provider that the session chose itself; `None` if it leaves that to its workspace and the
    /// configuration, also where a run has recorded whom it asked.
    pub fn chosen_provider(&self) -> Option<&str> {
        match self.references.contains_key(Self::PROVIDER_FROM) {
            true => None,
            false => self.references.get(Self::PROVIDER).map(String::as_str),
        }
    }

    fn apply_references(&mut self, changes: &BTreeMap<String, Option<String>>) {
        if !changes.contains_key(Self::PROVIDER_FROM) {
            if changes.contains_key(Self::PROVIDER) {
                self.references.remove(Self::PROVIDER_FROM);
            }
            return merge(&mut self.references, changes);
        }
        let mut changes = changes.clone();
        if self.chosen_provider().is_some() {
            // What a run records takes the place of no choice that was made meanwhile.
            changes.retain(|name, _| name != Self::PROVIDER && name != Self::PROVIDER_FROM);
        }
        merge(&mut self.references, &changes);
    }

    /// Applies a change. Never refuses: what was accepted once folds for ever.
    pub(crate) fn apply(&mut self, patch: &Patch) {
        if let Some(title) = &patch.title {
            let kept = self.title.as_ref().is_some_and(|now| now.by_user);
            match title {
                Some(new) if kept && !new.by_user => {}
                _ => self.title.clone_from(title),
            }
        }
        self.mounts.apply(&patch.mounts);
        merge(&mut self.handles, &patch.handles);
        merge(&mut self.labels, &patch.labels);
        self.apply_references(&patch.references);
        for (name, value) in patch.metadata.iter() {
            if value.get() == "null" {
                self.metadata.remove(name);
            } else {
                self.metadata.insert(name, value.clone());
            }
        }
        if let Some(resources) = &patch.resources {
            self.resources.clone_from(resources);
        }
        self.keep = patch.keep.or(self.keep);
    }

    /// Checks every entry, as a patch that sets them all would be.
    pub(crate) fn check(&self) -> Result<()> {
        fn set<T: Clone>(map: &BTreeMap<String, T>) -> BTreeMap<String, Option<T>> {
            map.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect()
        }
        let patch = Patch {
            title: self.title.clone().map(Some),
            labels: set(&self.labels),
            metadata: self.metadata.clone(),
            references: set(&self.references),
            resources: Some(self.resources.clone()),
            mounts: MountsPatch::default(),
            handles: set(&self.handles),
            keep: self.keep,
        };
        patch.check()?;
        self.mounts.check()
    }

    pub(crate) fn check_counts(&self) -> Result<()> {
        for (noun, count, most) in [
            ("labels", self.labels.len(), LABELS_MAX),
            ("references", self.references.len(), REFERENCES_MAX),
            ("resources", self.resources.len(), RESOURCES_MAX),
            ("handles", self.handles.len(), HANDLES_MAX),
        ] {
            if count > most {
                return Err(Error::limit(format!(
                    "{count} {noun}; a session may have at most {most}, remove some first"
                )));
            }
        }
        self.mounts.check_counts()
    }
}

fn merge<T: Clone>(into: &mut BTreeMap<String, T>, changes: &BTreeMap<String, Option<T>>) {
    for (key, value) in changes {
        match value {
            Some(value) => into.insert(key.clone(), value.clone()),
            None => into.remove(key),
        };
    }
}
