//! Descriptive attributes of a session: title, labels, metadata, references, resources, handles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::sealed::check_word;
use crate::base::text::{check_text, quoted, words};
use crate::base::{Error, RawFields, RawJson, Result, SessionId, is_default, present};
use crate::model::access::Access;
use crate::model::age::check_label;
use crate::model::mounts::{MountSet, Mounts, MountsPatch};
use crate::setters;

/// Maximum number of labels of a session.
pub const LABELS_MAX: usize = 64;

/// Maximum number of references of a session.
pub const REFERENCES_MAX: usize = 64;

/// Maximum number of attached resources of a session.
pub const RESOURCES_MAX: usize = 64;

/// Maximum number of external handles of a session.
pub const HANDLES_MAX: usize = 64;

/// Maximum nesting depth of a metadata field. In the event that creates a session, and so in a fork of this one,
/// three levels surround it.
const METADATA_MAX_DEPTH: usize = RawJson::MAX_DEPTH - 3;

/// Maximum number of bytes of a title.
pub const TITLE_MAX_BYTES: usize = 512;

/// Title of a session, and whether a person chose it. A generated title does not replace one that a person chose.
///
/// ```
/// use agent_core::model::Title;
///
/// assert!(Title::by_user("Trip to Oslo").by_user);
/// assert_eq!(Title::generated("Travel plans").text, "Travel plans");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Title {
    /// Text of the title: 1 to 512 bytes without control characters.
    pub text: String,
    /// True if a person chose the title.
    #[serde(default)]
    pub by_user: bool,
}

impl Title {
    /// Creates a title that a person chose.
    pub fn by_user(text: impl Into<String>) -> Self {
        Self { text: text.into(), by_user: true }
    }

    /// Creates a generated title.
    pub fn generated(text: impl Into<String>) -> Self {
        Self { text: text.into(), by_user: false }
    }
}

/// Labels by which sessions are found: user, project, objective, module, directory …
///
/// At most 64; keys of 1 to 64 bytes, values of 1 to 512 bytes, without control characters.
pub type Labels = BTreeMap<String, String>;

/// Names of external objects: `agent`, `environment`, `provider`, `model`, `policy`, `model_profile`,
/// `thread.<agent>` …
///
/// References are stored and not interpreted, except [`provider`](Attributes::PROVIDER): it selects the provider that
/// the session's runs use. If the session selects none, a run records there the provider that it used, in `model` the
/// model, and in [`provider.from`](Attributes::PROVIDER_FROM) the source of that choice.
///
/// At most 64; names of 1 to 64 bytes, values of 1 to 512 bytes, without control characters.
pub type References = BTreeMap<String, String>;

/// External resource that the session works on.
///
/// ```
/// use agent_core::model::{Access, Resource};
///
/// let repository = Resource::new("repository", "https://example.com/app.git", "/work/app").with_access(Access::Write);
/// assert_eq!((repository.mount.as_str(), repository.access), ("/work/app", Access::Write));
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Resource {
    /// Kind of the resource: `directory`, `repository`, `bucket` …
    pub kind: String,
    /// Source of the resource.
    pub source: String,
    /// Location at which the session sees the resource.
    pub mount: String,
    /// Access that the session has.
    #[serde(default)]
    pub access: Access,
}

impl Resource {
    /// Creates a resource with read access.
    pub fn new(kind: impl Into<String>, source: impl Into<String>, mount: impl Into<String>) -> Self {
        Self { kind: kind.into(), source: source.into(), mount: mount.into(), access: Access::Read }
    }

    /// Sets the access that the session has.
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }
}

/// Handle to an external object: a container, a volume, an interpreter. Stored and never interpreted.
///
/// ```
/// use agent_core::model::{ExternalHandle, Liveness};
///
/// let volume = ExternalHandle::new("volume", "build-cache").with_note("remove after the release");
/// assert_eq!(volume.liveness("process-2"), Liveness::Durable);
///
/// let shell = ExternalHandle::new("interpreter", "pid 4711").with_process("process-1");
/// assert_eq!(shell.liveness("process-1"), Liveness::Live);
/// assert_eq!(shell.liveness("process-2"), Liveness::Stale);
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExternalHandle {
    /// Kind of the object: `container`, `volume`, `interpreter` …
    pub kind: String,
    /// Name of the object outside: 1 to 1,024 bytes without control characters.
    pub target: String,
    /// Note on the use of the handle: when the object may be removed, who made it. At most 512 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Process (`AgentRuntime::process`) in which the handle is valid, if it is valid in one process only. `None` for
    /// an object that outlives processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

/// Usability of an [`ExternalHandle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Liveness {
    /// The object outlives processes; the host finds out whether it still exists.
    Durable,
    /// The handle is valid in this process.
    Live,
    /// The handle was valid in another process, and must not be used.
    Stale,
}

impl ExternalHandle {
    /// Creates a handle to an object that outlives processes.
    pub fn new(kind: impl Into<String>, target: impl Into<String>) -> Self {
        Self { kind: kind.into(), target: target.into(), note: String::new(), process: None }
    }

    setters! {
        /// Sets the note on the use of the handle.
        pub fn with_note(note: impl Into<String>) => note = note.into();

        /// Limits the handle to one process.
        #[doc(alias = "of_process")]
        pub fn with_process(process: impl Into<String>) => process = Some(process.into());
    }

    /// Returns whether the handle can be used in `process`.
    ///
    /// No write is needed for a handle to become stale: it is stale in every process but its own, also after a crash.
    pub fn liveness(&self, process: &str) -> Liveness {
        match &self.process {
            None => Liveness::Durable,
            Some(own) if own == process => Liveness::Live,
            Some(_) => Liveness::Stale,
        }
    }
}

words! {
    /// Amount of detail about tools that a session's log stores.
    ToolPayloads {
        /// Stores inputs and outputs of tools completely: after a restart, the model is given its earlier calls.
        Store = "store",
        /// Stores that a tool was called, when, and with which outcome; not its input or its output. After the run,
        /// the model is given the texts of the conversation only.
        ///
        /// A call that has to wait for an answer is stored completely, since another run makes it; its result is not.
        Omit = "omit",
        /// Setting of a newer version of this library; stores what `Text` stores.
        Newer = "newer",
    } newer = Some(Self::Newer)
}

/// Partial change of a session's attributes. Attributes that are not named stay as they are.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// use agent_core::json::RawJson;
/// use agent_core::model::{Access, ExternalHandle, Patch, Resource, Title, ToolPayloads};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (store, effects, session) = session().await?;
/// let patch = Patch::new()
///     .with_title(Title::by_user("Trip to Oslo"))
///     .with_label("project", "travel")
///     .with_metadata("budget", RawJson::of(&1200)?)
///     .with_reference("model", "sonnet")
///     .with_resources(vec![Resource::new("directory", "/home/alice/trip", "/work")])
///     .with_handle("shell", ExternalHandle::new("container", "c-4711"))
///     .with_tool_payloads(ToolPayloads::Omit)
///     .mount("kb:norway", Access::Read);
/// let session = store.update(session.id, session.head, patch).await?.session;
/// assert_eq!(session.attributes.labels["project"], "travel");
///
/// // Attributes that a patch does not name stay as they are.
/// let patch = Patch::new().without_label("project").without_handle("shell").unmount("kb:norway");
/// let session = store.update(session.id, session.head, patch).await?.session;
/// assert!(session.attributes.labels.is_empty() && session.attributes.title.is_some());
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Patch {
    /// New title; `Some(None)` removes it.
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
    /// New list of attached resources, which replaces the previous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<Resource>>,
    /// Mounts to pin, to remove, to freeze.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mounts: MountsPatch,
    /// Handles to set, or with `None` to remove.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub handles: BTreeMap<String, Option<ExternalHandle>>,
    /// Amount of detail about tools that the log stores from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_payloads: Option<ToolPayloads>,
}

impl Patch {
    /// Creates an empty patch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the title.
    pub fn with_title(mut self, title: Title) -> Self {
        self.title = Some(Some(title));
        self
    }

    /// Sets a label.
    pub fn with_label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), Some(value.into()));
        self
    }

    /// Removes a label.
    pub fn without_label(mut self, key: impl Into<String>) -> Self {
        self.labels.insert(key.into(), None);
        self
    }

    /// Sets a field of metadata.
    pub fn with_metadata(mut self, name: impl Into<Box<str>>, value: RawJson) -> Self {
        self.metadata.insert(name, value);
        self
    }

    /// Sets a reference.
    pub fn with_reference(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.references.insert(name.into(), Some(value.into()));
        self
    }

    /// Replaces the attached resources.
    pub fn with_resources(mut self, resources: Vec<Resource>) -> Self {
        self.resources = Some(resources);
        self
    }

    /// Pins a mount in this scope, independent of what is inherited.
    pub fn mount(mut self, resource: impl Into<String>, access: Access) -> Self {
        self.mounts.pinned.insert(resource.into(), Some(access));
        self
    }

    /// Removes a pinned mount; if the resource is inherited, it stays mounted.
    pub fn unmount(mut self, resource: impl Into<String>) -> Self {
        self.mounts.pinned.insert(resource.into(), None);
        self
    }

    /// Removes a mount, also if it is inherited.
    ///
    /// ```
    /// use agent_core::model::Patch;
    ///
    /// let patch = Patch::new().remove_mount("kb:norway");
    /// assert!(patch.mounts.removed["kb:norway"]);
    /// assert!(!patch.restore_mount("kb:norway").mounts.removed["kb:norway"]);
    /// ```
    pub fn remove_mount(mut self, resource: impl Into<String>) -> Self {
        self.mounts.removed.insert(resource.into(), true);
        self
    }

    /// Reverts the removal of a mount.
    pub fn restore_mount(mut self, resource: impl Into<String>) -> Self {
        self.mounts.removed.insert(resource.into(), false);
        self
    }

    /// Freezes the inherited mounts; `None` makes them follow the scopes again.
    pub fn freeze_mounts(mut self, inherited: Option<MountSet>) -> Self {
        self.mounts.frozen = Some(inherited);
        self
    }

    /// Sets an external handle.
    pub fn with_handle(mut self, name: impl Into<String>, handle: ExternalHandle) -> Self {
        self.handles.insert(name.into(), Some(handle));
        self
    }

    /// Removes a handle.
    pub fn without_handle(mut self, name: impl Into<String>) -> Self {
        self.handles.insert(name.into(), None);
        self
    }

    /// Sets the amount of detail about tools that the log stores from now on.
    #[doc(alias = "keep")]
    pub const fn with_tool_payloads(mut self, keep: ToolPayloads) -> Self {
        self.tool_payloads = Some(keep);
        self
    }

    /// Returns whether the patch changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn check(&self) -> Result<()> {
        if let Some(Some(title)) = &self.title {
            check_word("title", &title.text, TITLE_MAX_BYTES)?;
        }
        for (noun, entries) in [("label", &self.labels), ("reference", &self.references)] {
            for (key, value) in entries {
                check_text(&format!("{noun} key"), key, 64)?;
                if let Some(value) = value {
                    check_word(&format!("{noun} value"), value, 512)?;
                }
            }
        }
        for (key, value) in &self.labels {
            value.iter().try_for_each(|value| check_label(key, value))?;
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

/// Descriptive attributes of a session, as its record stores them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attributes {
    /// Title, if one was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Title>,
    /// Labels by which the session is found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Metadata of the host, never interpreted.
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    pub metadata: RawFields,
    /// Names of external objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub references: References,
    /// External resources that the session works on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// Mounts that the session pins and removes, in addition to those that it inherits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mounts: Mounts,
    /// Handles to external objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub handles: BTreeMap<String, ExternalHandle>,
    /// Amount of detail about tools that the log stores; recorded by the first run if it was not set before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_payloads: Option<ToolPayloads>,
}

impl Attributes {
    /// Reference that selects, by name, the provider that the session's runs use.
    pub const PROVIDER: &'static str = "provider";
    /// Reference that marks a provider as recorded by a run, not chosen by the session.
    ///
    /// Its value is the source of the provider's name: `workspace` or `configuration`. Only runs write it; a patch
    /// that sets [`PROVIDER`](Self::PROVIDER) alone removes it.
    pub const PROVIDER_FROM: &'static str = "provider.from";
    /// Label with the [key](crate::session::ConversationKey) of a conversation, by which lists find it.
    ///
    /// The library sets it when it creates the conversation of a key. Neither a fork nor a salvaged copy has it, since
    /// the key leads to the original. A host that changes the label changes only what lists show.
    pub const CONVERSATION_KEY: &'static str = "conversation.key";
    /// Reference with the number of the session among those of the same key, if earlier ones were deleted or superseded: `1` for
    /// the second one.
    pub const CONVERSATION_GENERATION: &'static str = "conversation.generation";
    /// Reference with the id of the session that this one continues in its place, from an earlier point.
    pub const SUPERSEDES: &'static str = "supersedes";
    /// Reference with the number of the last event of that session when this one was created.
    pub const SUPERSEDES_HEAD: &'static str = "supersedes.head";
    /// Reference with the id of the session that continues this one in its place, or is about to. When it does, this one is archived.
    pub const SUPERSEDED_BY: &'static str = "superseded.by";

    /// Returns the provider that the session itself chose.
    ///
    /// Returns `None` if the session leaves the choice to its workspace and the configuration, also if a run has
    /// recorded the provider that it used.
    pub fn chosen_provider(&self) -> Option<&str> {
        match self.references.contains_key(Self::PROVIDER_FROM) {
            true => None,
            false => self.references.get(Self::PROVIDER).map(String::as_str),
        }
    }

    /// Returns the id of the session that continues this one in its place, or is about to; `None` if there is none.
    pub fn superseded_by(&self) -> Option<SessionId> {
        self.references.get(Self::SUPERSEDED_BY)?.parse().ok()
    }

    /// Returns the id of the session that this one continues in its place; `None` if there is none.
    pub fn supersedes(&self) -> Option<SessionId> {
        self.references.get(Self::SUPERSEDES)?.parse().ok()
    }

    /// Returns the attributes for another session that continues this one: all but the key of the conversation, the sessions
    /// in whose place it is, and the handles that are valid in one process.
    #[must_use]
    pub fn inherited(&self) -> Self {
        let mut inherited = self.clone();
        inherited.labels.remove(Self::CONVERSATION_KEY);
        let own =
            [Self::CONVERSATION_GENERATION, Self::SUPERSEDES, Self::SUPERSEDES_HEAD, Self::SUPERSEDED_BY];
        for name in own {
            inherited.references.remove(name);
        }
        inherited.handles.retain(|_, handle| handle.process.is_none());
        inherited
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
            // A run does not replace a choice that was made while it ran.
            changes.retain(|name, _| name != Self::PROVIDER && name != Self::PROVIDER_FROM);
        }
        merge(&mut self.references, &changes);
    }

    /// Applies a change. Never fails, so that an accepted change always folds.
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
        self.tool_payloads = patch.tool_payloads.or(self.tool_payloads);
    }

    /// Checks every entry like a patch that sets them all.
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
            tool_payloads: self.tool_payloads,
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
