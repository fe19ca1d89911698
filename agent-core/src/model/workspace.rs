//! Record of a workspace.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::base::sealed::most_stored;
use crate::base::{
    Error, ErrorKind, JsonFault, OwnerId, ParseError, RawFields, RawJson, Result, Revision, SessionId,
    Timestamp, WorkspaceId, check_text, to_text,
};
use crate::model::actor::Actor;
use crate::model::precondition::Precondition;
use crate::setters;

/// Workspace of one user or project: its sessions, its configuration, and the devices bound to it belong to it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::clock::Effects;
/// use agent_core::json::RawJson;
/// use agent_core::model::{Actor, Workspace};
/// use agent_core::{MemoryStore, Revision, WorkspaceStoreExt};
///
/// let (store, effects) = (MemoryStore::new(), Effects::default());
/// let id = effects.new_workspace_id();
/// let workspace = Workspace::new(id, "Travel", effects.new_session_id(), effects.now())
///     .with_provider("anthropic")
///     .with_description("Plans of trips")
///     .with_creator(Actor::USER)
///     .with_setting("currency", RawJson::of(&"EUR")?);
/// let workspace = store.create(workspace).await?;
/// assert_eq!(workspace.revision, Revision::new(1));
///
/// let renamed = WorkspaceStoreExt::update(&store, workspace.with_name("Trips")).await?;
/// assert_eq!((renamed.name.as_str(), renamed.revision), ("Trips", Revision::new(2)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Workspace {
    /// Id of the workspace.
    pub id: WorkspaceId,
    /// Owner of the workspace, set by the [handle](crate::Storage::for_owner) through which it was created; never changes.
    /// `None` for a workspace that all owners of the tenant may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerId>,
    /// Name for people: 1 to 256 bytes without control characters.
    pub name: String,
    /// Time at which the workspace was created.
    pub created_at: Timestamp,
    /// Time of the last use; never steps back.
    pub last_accessed: Timestamp,
    /// Version number of the record; increases by one with every `put`. Set by the store.
    pub revision: Revision,
    /// Status: in use, or being deleted.
    pub status: WorkspaceStatus,
    /// Id of the main session, generated together with the workspace; the session is created when it is first opened.
    pub main_session: SessionId,
    /// Name of the provider that the workspace's sessions use, unless a session
    /// [chooses](crate::model::attributes::Attributes::chosen_provider) another. `None` for the provider that the
    /// configuration names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Description of the workspace: at most 4,096 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Actor that created the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creator: Option<Actor>,
    /// Settings of the host, never interpreted.
    #[serde(skip_serializing_if = "RawFields::is_empty")]
    pub settings: RawFields,
    /// Fields that this version does not know, stored unchanged.
    #[serde(flatten)]
    pub extra: RawFields,
}

/// Status of a workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkspaceStatus {
    /// The workspace is in use.
    #[default]
    Active,
    /// The deletion has begun and will be finished; nothing new is created in the workspace.
    Deleting,
}

impl Workspace {
    /// Maximum number of bytes of a record as JSON.
    pub const MAX_BYTES: usize = 64 << 10;

    /// Setting that encrypted stores keep in place of all others, and of the texts of a workspace.
    pub const SEALED: &str = "sealed";

    /// Creates an empty workspace.
    pub fn new(id: WorkspaceId, name: impl Into<String>, main_session: SessionId, at: Timestamp) -> Self {
        Self {
            id,
            owner: None,
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

    setters! {
        /// Sets the name for people.
        pub fn with_name(name: impl Into<String>) => name = name.into();

        /// Sets the name of the provider that the workspace's sessions use.
        pub fn with_provider(provider: impl Into<String>) => provider = Some(provider.into());

        /// Sets the description.
        pub fn with_description(description: impl Into<String>) => description = Some(description.into());

        /// Sets the actor that created the workspace.
        pub fn with_creator(creator: Actor) => creator = Some(creator);
    }

    /// Sets one of the host's settings.
    #[must_use]
    pub fn with_setting(mut self, name: impl Into<Box<str>>, value: RawJson) -> Self {
        self.settings.insert(name, value);
        self
    }

    /// For backends: checks a record before it is stored.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid name, or an unknown field with the name of one of the record's own; `LimitExceeded`
    /// for a record that is too large.
    pub fn check(&self) -> Result<()> {
        let named = |error: ParseError| Error::from(error).about(format_args!("workspace {}", self.id));
        check_text("workspace name", &self.name, 256).map_err(named)?;
        if let Some(provider) = &self.provider {
            check_text("provider", provider, 256).map_err(named)?;
        }
        if let Some((name, _)) = self.extra.iter().find(|(name, _)| FIELDS.contains(name)) {
            return Err(Error::invalid(format!(
                "the field {name} is one of the own fields of workspace {}; set it there",
                self.id
            )));
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
        // What an encrypted store seals of a workspace is its one setting. It has checked the workspace itself.
        let sealed = self.settings.get(Self::SEALED).and_then(|value| value.to::<String>().ok());
        let most = sealed.map_or(Self::MAX_BYTES, |text| most_stored(&text, Self::MAX_BYTES + 8192));
        if description > 4096 || bytes > most {
            return Err(Error::limit(format!(
                "workspace {} has {bytes} bytes of settings and a description of {description}; at most {} and 4096 are kept",
                self.id,
                Self::MAX_BYTES
            )));
        }
        Ok(())
    }

    /// For backends: checks `expect` against the stored record `now`, and sets the new revision of this record.
    ///
    /// # Errors
    ///
    /// `Conflict` if the precondition does not hold, `NotFound` if there is no record to replace,
    /// `InvalidInput` for [`Precondition::None`], and for another owner than that of the stored record.
    ///
    /// ```
    /// use agent_core::clock::Effects;
    /// use agent_core::commit::Precondition;
    /// use agent_core::model::Workspace;
    /// use agent_core::{Revision, WorkspaceId};
    ///
    /// # let effects = Effects::default();
    /// let mut workspace = Workspace::new(WorkspaceId::DEFAULT, "Travel", effects.new_session_id(), effects.now());
    /// workspace.check()?;
    /// workspace.prepare_put(None, Precondition::MustNotExist)?;
    /// assert_eq!(workspace.revision, Revision::new(1));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn prepare_put(&mut self, now: Option<&Self>, expect: Precondition<Revision>) -> Result<()> {
        let conflict = |text| Err(Error::new(ErrorKind::Conflict { head: None }, text));
        match (expect, now) {
            (Precondition::None, _) => return Err(expect.refused(&format_args!("workspace {}", self.id))),
            (Precondition::MustNotExist, Some(_)) => {
                return conflict(format!("workspace {} exists already", self.id));
            }
            (Precondition::Matches(revision), Some(now)) if revision != now.revision => {
                return conflict(format!(
                    "workspace {} is at revision {}, not at {revision}; load it again",
                    self.id, now.revision
                ));
            }
            (Precondition::Matches(_) | Precondition::MustExist, None) => {
                return Err(Error::not_found(format!("workspace {} does not exist", self.id)));
            }
            (_, Some(now)) if now.owner != self.owner => {
                return Err(Error::invalid(format!(
                    "workspace {} keeps the owner with which it was created; change the record that was loaded",
                    self.id
                )));
            }
            _ => {}
        }
        self.revision = now.map_or(Revision::ZERO, |now| now.revision).next();
        self.last_accessed = now.map_or(self.last_accessed, |now| now.last_accessed.max(self.last_accessed));
        Ok(())
    }

    /// Returns the record as JSON.
    ///
    /// ```
    /// use agent_core::WorkspaceId;
    /// use agent_core::clock::Effects;
    /// use agent_core::model::Workspace;
    ///
    /// # let effects = Effects::default();
    /// let workspace = Workspace::new(WorkspaceId::DEFAULT, "Travel", effects.new_session_id(), effects.now());
    /// assert_eq!(Workspace::from_json(&workspace.to_json())?, workspace);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn to_json(&self) -> String {
        to_text(self)
    }

    /// Decodes a record from its JSON form; keeps fields that this version does not know.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the text is not a record, or has a field twice.
    pub fn from_json(text: &str) -> Result<Self> {
        let mut f: RawFields = serde_json::from_str(text).map_err(|source| {
            let fault = JsonFault::from(source);
            Error::corrupt(format!("the text is not a workspace record: {fault}")).with_source(fault)
        })?;
        let workspace = Self {
            id: f.need("id")?,
            owner: f.take("owner")?,
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
        };
        workspace.extra.check_unknown(FIELDS)?;
        Ok(workspace)
    }
}

/// Names of the record's own fields. No unknown field may have such a name.
const FIELDS: &[&str] = &[
    "id",
    "owner",
    "name",
    "created_at",
    "last_accessed",
    "revision",
    "status",
    "main_session",
    "provider",
    "description",
    "creator",
    "settings",
];

impl<'de> Deserialize<'de> for Workspace {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Each field's value is compacted by itself.
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}
