//! What a host says of a session: title, labels, metadata, references, resources; and how they change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::check_text;
use crate::json::{RawFields, RawJson};

/// The most labels that a session may have.
pub const LABELS_MAX: usize = 64;
/// The most references that a session may have.
pub const REFERENCES_MAX: usize = 64;
/// The most resources that a session may have attached.
pub const RESOURCES_MAX: usize = 64;
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

/// Names of things outside, kept and never interpreted: `agent`, `environment`, `provider`, `model`, `policy`,
/// `model_profile`, `thread.<agent>` …
///
/// At most 64; names of 1 to 64 bytes, values of 1 to 512 bytes, neither with control characters.
pub type References = BTreeMap<String, String>;

/// Something outside that the session works on.
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

/// What a session may do with a [`Resource`]. The library stores it; the host enforces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Access {
    /// Look only.
    #[default]
    Read,
    /// Look and change.
    Write,
}

impl Resource {
    /// A resource to look at.
    pub fn new(kind: impl Into<String>, source: impl Into<String>, mount: impl Into<String>) -> Self {
        Self { kind: kind.into(), source: source.into(), mount: mount.into(), access: Access::Read }
    }

    /// Sets what the session may do with it.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }
}

/// A partial change of what is said of a session: what is not named stays.
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
}

/// Tells a field that is there and `null` from one that is not there.
pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

impl Patch {
    /// Changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the title.
    #[must_use]
    pub fn title(mut self, title: Title) -> Self {
        self.title = Some(Some(title));
        self
    }

    /// Sets a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), Some(value.into()));
        self
    }

    /// Removes a label.
    #[must_use]
    pub fn without_label(mut self, key: impl Into<String>) -> Self {
        self.labels.insert(key.into(), None);
        self
    }

    /// Sets a field of metadata.
    #[must_use]
    pub fn metadata(mut self, name: impl Into<Box<str>>, value: RawJson) -> Self {
        self.metadata.insert(name, value);
        self
    }

    /// Sets a reference.
    #[must_use]
    pub fn reference(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.references.insert(name.into(), Some(value.into()));
        self
    }

    /// Replaces the attached resources.
    #[must_use]
    pub fn resources(mut self, resources: Vec<Resource>) -> Self {
        self.resources = Some(resources);
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
        for (name, _) in self.metadata.iter() {
            check_text("metadata name", name, 128)?;
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
        Ok(())
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
}

impl Attributes {
    /// Applies a change. Never refuses: what was accepted once folds for ever.
    pub(crate) fn apply(&mut self, patch: &Patch) {
        if let Some(title) = &patch.title {
            let kept = self.title.as_ref().is_some_and(|now| now.by_user);
            match title {
                Some(new) if kept && !new.by_user => {}
                _ => self.title.clone_from(title),
            }
        }
        merge(&mut self.labels, &patch.labels);
        merge(&mut self.references, &patch.references);
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
    }

    /// Checks every entry, as a patch that sets them all would be.
    pub(crate) fn check(&self) -> Result<()> {
        let set =
            |map: &BTreeMap<String, String>| map.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect();
        let patch = Patch {
            title: self.title.clone().map(Some),
            labels: set(&self.labels),
            metadata: self.metadata.clone(),
            references: set(&self.references),
            resources: Some(self.resources.clone()),
        };
        patch.check()
    }

    pub(crate) fn check_counts(&self) -> Result<()> {
        for (noun, count, most) in [
            ("labels", self.labels.len(), LABELS_MAX),
            ("references", self.references.len(), REFERENCES_MAX),
            ("resources", self.resources.len(), RESOURCES_MAX),
        ] {
            if count > most {
                return Err(Error::limit(format!("{count} {noun}; a session may have at most {most}")));
            }
        }
        Ok(())
    }

    /// The size as JSON, about; for the record's limit.
    pub(crate) fn size_bytes(&self) -> usize {
        let pairs =
            |map: &BTreeMap<String, String>| map.iter().map(|(k, v)| k.len() + v.len() + 8).sum::<usize>();
        self.title.as_ref().map_or(0, |title| title.text.len() + 40)
            + pairs(&self.labels)
            + pairs(&self.references)
            + self.metadata.size_bytes()
            + self.resources.iter().map(|r| r.kind.len() + r.source.len() + r.mount.len() + 60).sum::<usize>()
    }
}

fn merge(into: &mut BTreeMap<String, String>, changes: &BTreeMap<String, Option<String>>) {
    for (key, value) in changes {
        match value {
            Some(value) => into.insert(key.clone(), value.clone()),
            None => into.remove(key),
        };
    }
}
