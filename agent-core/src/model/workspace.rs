//! A workspace's record.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::base::{
    Error, ErrorKind, JsonFault, ParseError, RawFields, RawJson, Result, Revision, SessionId, Timestamp,
    WorkspaceId, check_text, to_text,
};
use crate::commit::Expect;
use crate::model::actor::Actor;

/// Everything that belongs to one user or project: its sessions, its configuration, the devices bound to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Workspace {
    /// Its id.
    pub id: WorkspaceId,
    /// What people call it: 1 to 256 bytes without control characters.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last used; never steps back.
    pub last_accessed: Timestamp,
    /// How often it was put. Set by the store.
    pub revision: Revision,
    /// Whether it is being deleted.
    pub status: WorkspaceStatus,
    /// The id of its main session, minted with it; the session comes to be when it is first opened.
    pub main_session: SessionId,
    /// The provider that its sessions ask, by its name, unless a session
    /// [chooses](crate::model::attributes::Attributes::chosen_provider) another; without it the one that the configuration names.
    pub provider: Option<String>,
    /// What it is for, in words: at most 4,096 bytes.
    pub description: Option<String>,
    /// Who created it.
    pub creator: Option<Actor>,
    /// The host's own, never interpreted.
    pub settings: RawFields,
    /// Fields that this version does not know, kept as they are.
    pub extra: RawFields,
}

/// Whether a workspace is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkspaceStatus {
    /// It is in use.
    #[default]
    Active,
    /// Its deletion has begun and will be finished; nothing new is made in it.
    Deleting,
}

impl Workspace {
    /// The most bytes that a record may have as JSON.
    pub const MAX_BYTES: usize = 64 << 10;

    /// A workspace with nothing in it.
    pub fn new(id: WorkspaceId, name: impl Into<String>, main_session: SessionId, at: Timestamp) -> Self {
        Self {
            id,
            name: name.into(),
            created_at: at,
            last_accessed: at,
            revision: Revision::ZERO,
            status: WorkspaceStatus::Active,
            main_session,
            provider: None,
            description: None,
            creator: None,
            settings: RawFields::new(),
            extra: RawFields::new(),
        }
    }

    /// Sets what people call it.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the provider that its sessions ask, by its name.
    #[must_use]
    pub fn with_provider(mut self, provider: impl Into<String>) -> Self {
        self.provider = Some(provider.into());
        self
    }

    /// Sets what it is for.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets who created it.
    #[must_use]
    pub fn with_creator(mut self, creator: Actor) -> Self {
        self.creator = Some(creator);
        self
    }

    /// Sets a field of the host's own.
    #[must_use]
    pub fn with_setting(mut self, name: impl Into<Box<str>>, value: RawJson) -> Self {
        self.settings.insert(name, value);
        self
    }

    /// For backends: checks what is about to be stored.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a bad name, `LimitExceeded` for a record that is too large.
    pub fn check(&self) -> Result<()> {
        let named = |error: ParseError| Error::from(error).about(format_args!("workspace {}", self.id));
        check_text("workspace name", &self.name, 256).map_err(named)?;
        if let Some(provider) = &self.provider {
            check_text("provider", provider, 256).map_err(named)?;
        }
        let fields = self.settings.iter().chain(self.extra.iter());
        let deepest = fields.map(|(_, value)| value.depth()).max().unwrap_or(0);
        if deepest > RawJson::MAX_DEPTH {
            return Err(Error::limit(format!(
                "workspace {} has a setting that nests {deepest} levels deep; at most {} are kept",
                self.id,
                RawJson::MAX_DEPTH
            )));
        }
        let description = self.description.as_ref().map_or(0, String::len);
        let bytes = self.settings.size_bytes() + self.extra.size_bytes() + description;
        if description > 4096 || bytes > Self::MAX_BYTES {
            return Err(Error::limit(format!(
                "workspace {} has {bytes} bytes of settings and a description of {description}; at most {} and 4096 are kept",
                self.id,
                Self::MAX_BYTES
            )));
        }
        Ok(())
    }

    /// For backends: checks `expect` against what is stored now, and gives this record its new revision.
    ///
    /// # Errors
    ///
    /// `Conflict` where the expectation does not hold, `NotFound` where there is none to replace.
    pub fn prepare_put(&mut self, now: Option<&Self>, expect: Expect<Revision>) -> Result<()> {
        let conflict = |text| Err(Error::new(ErrorKind::Conflict { head: None }, text));
        match (expect, now) {
            (Expect::Absent, Some(_)) => return conflict(format!("workspace {} exists already", self.id)),
            (Expect::Is(revision), Some(now)) if revision != now.revision => {
                return conflict(format!(
                    "workspace {} is at revision {}, not at {revision}; load it again",
                    self.id, now.revision
                ));
            }
            (Expect::Is(_) | Expect::Any, None) => {
                return Err(Error::new(ErrorKind::NotFound, format!("workspace {} does not exist", self.id)));
            }
            _ => {}
        }
        self.revision = now.map_or(Revision::ZERO, |now| now.revision).next();
        self.last_accessed = now.map_or(self.last_accessed, |now| now.last_accessed.max(self.last_accessed));
        Ok(())
    }

    /// The record as JSON.
    pub fn to_json(&self) -> String {
        to_text(self)
    }

    /// Reads a record from its JSON form; fields that this version does not know are kept.
    ///
    /// # Errors
    ///
    /// `Corrupt` where it is not a record.
    pub fn from_json(text: &str) -> Result<Self> {
        let mut f: RawFields = serde_json::from_str(text).map_err(|source| {
            let fault = JsonFault::from(source);
            Error::corrupt(format!("the text is not a workspace record: {fault}")).with_source(fault)
        })?;
        Ok(Self {
            id: f.need("id")?,
            name: f.need("name")?,
            created_at: f.need("created_at")?,
            last_accessed: f.need("last_accessed")?,
            revision: f.or_default("revision")?,
            status: f.or_default("status")?,
            main_session: f.need("main_session")?,
            provider: f.take("provider")?,
            description: f.take("description")?,
            creator: f.take("creator")?,
            settings: f.or_default("settings")?,
            extra: f,
        })
    }
}

impl Serialize for Workspace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("created_at", &self.created_at)?;
        map.serialize_entry("last_accessed", &self.last_accessed)?;
        map.serialize_entry("revision", &self.revision)?;
        map.serialize_entry("status", &self.status)?;
        map.serialize_entry("main_session", &self.main_session)?;
        if let Some(provider) = &self.provider {
            map.serialize_entry("provider", provider)?;
        }
        if let Some(description) = &self.description {
            map.serialize_entry("description", description)?;
        }
        if let Some(creator) = &self.creator {
            map.serialize_entry("creator", creator)?;
        }
        if !self.settings.is_empty() {
            map.serialize_entry("settings", &self.settings)?;
        }
        for (name, value) in self.extra.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
