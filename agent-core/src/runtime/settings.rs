//! What of a configuration decides how a session behaves, and how a session keeps the one with which it was made.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::handle::SessionHandle;
use crate::holdings::{Documents, Migrations};
use crate::runtime::config::{Config, Limits, ToolPolicy};
use crate::runtime::provider::LlmProvider;
use crate::runtime::{AgentRuntime, Shared};
use crate::session::{Actor, Commit, DocumentWritten, NewEvent, Patch, Session, SessionStoreExt};

/// The name of the document in which a session keeps the configuration with which it was made.
pub(crate) const DOCUMENT: &str = "session.config";

/// What of a configuration decides how a session behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(super) provider: String,
    pub(super) system_prompt: Option<String>,
    pub(super) limits: Limits,
    pub(super) tool_policies: BTreeMap<String, ToolPolicy>,
    pub(super) keep_thinking: bool,
}

impl Settings {
    /// Those of a runtime.
    pub(super) fn of(shared: &Shared) -> Self {
        let config = &shared.config;
        Self {
            provider: shared.provider().name().to_owned(),
            system_prompt: config.system_prompt.clone(),
            limits: config.limits.clone(),
            tool_policies: config.tool_policies.clone(),
            keep_thinking: config.keep_thinking,
        }
    }

    /// Those of a session: its own where it keeps them, else the runtime's.
    pub(super) async fn for_session(runtime: &AgentRuntime, session: &Session) -> Result<Self> {
        if session.document(DOCUMENT).is_none() {
            return Ok(Self::of(&runtime.shared));
        }
        let documents =
            Documents::new(runtime.storage.sessions.clone(), runtime.effects().clone(), session.id);
        let Some(kept) = documents.get(DOCUMENT).await? else { return Ok(Self::of(&runtime.shared)) };
        let text = Migrations::new().read(DOCUMENT, kept.format, &kept.text)?;
        serde_json::from_str(&text).map_err(|fault| {
            Error::corrupt(format!(
                "the configuration that session {} keeps cannot be read: {fault}",
                session.id
            ))
        })
    }

    /// The provider, which the host must have.
    pub(super) fn provider<'a>(&self, shared: &'a Shared) -> Result<&'a Arc<dyn LlmProvider>> {
        shared.providers.iter().find(|provider| provider.name() == self.provider).ok_or_else(|| {
            Error::new(
                ErrorKind::Provider,
                format!(
                    "the session keeps to provider {}, which is not here; add it, or let the session adopt the present configuration",
                    self.provider
                ),
            )
        })
    }
}

/// What a run that begins, or a session that is made, has to say first: who is asked, what is kept, and with which
/// configuration, where that is not said yet.
pub(super) fn opening(shared: &Shared, now: &Session) -> Result<Vec<NewEvent>> {
    if now.document(DOCUMENT).is_some() {
        return Ok(Vec::new());
    }
    let mut events: Vec<_> = references(shared, now).map(NewEvent::updated).into_iter().collect();
    if freezes(&shared.config, now) {
        events.push(written(shared, now)?);
    }
    Ok(events)
}

/// Whether a session is to keep the configuration with which it is made, and does not do so yet.
pub(super) fn freezes(config: &Config, now: &Session) -> bool {
    config.freeze && now.started_at.is_none() && now.document(DOCUMENT).is_none()
}

fn written(shared: &Shared, now: &Session) -> Result<NewEvent> {
    let text = serde_json::to_string(&Settings::of(shared))
        .map_err(|fault| Error::invalid(format!("the configuration cannot be written down: {fault}")))?;
    let written = DocumentWritten::after(now.document(DOCUMENT), DOCUMENT, Some(text));
    Ok(NewEvent::document_written(written).with_actor(Actor::SYSTEM))
}

/// The references that differ from the provider and the model that will be asked, and what is kept, where nobody has said
/// so yet.
fn references(shared: &Shared, now: &Session) -> Option<Patch> {
    let provider = shared.provider();
    let references = &now.attributes.references;
    let mut patch = Patch::new();
    for (name, value) in [("provider", provider.name()), ("model", provider.model())] {
        if references.get(name).map(String::as_str) != Some(value) {
            patch = patch.reference(name, value);
        }
    }
    if now.attributes.keep.is_none() {
        patch = patch.keep(shared.config.keep);
    }
    (!patch.is_empty()).then_some(patch)
}

impl SessionHandle {
    /// Lets a session that [keeps the configuration](crate::Config::freeze) with which it was made take over that of its
    /// present host, from its next run on. Nothing happens where it keeps none.
    ///
    /// # Errors
    ///
    /// `Conflict` where somebody else does the same; those of the store.
    pub async fn adopt_config(&self) -> Result<()> {
        let now = self.refresh().await?;
        if now.document(DOCUMENT).is_none() {
            return Ok(());
        }
        let shared = &self.runtime().shared;
        let events =
            references(shared, &now).map(NewEvent::updated).into_iter().chain([written(shared, &now)?]);
        self.say(&now, events.collect()).await
    }

    /// Writes down the configuration with which the session was made, where the host wants that and nobody has done so.
    pub(super) async fn freeze_config(self) -> Result<Self> {
        let (shared, now) = (self.runtime().shared.clone(), self.snapshot());
        if freezes(&shared.config, &now) {
            match self.say(&now, opening(&shared, &now)?).await {
                // Another host was first.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
                    self.refresh().await?;
                }
                other => other?,
            }
        }
        Ok(self)
    }

    async fn say(&self, now: &Session, events: Vec<NewEvent>) -> Result<()> {
        let runtime = self.runtime();
        let commit = Commit::seal(runtime.effects(), self.id(), now.head).actor(Actor::SYSTEM).events(events);
        let committed = runtime.storage.sessions.settle(commit).await?;
        self.note(&committed.session);
        Ok(())
    }
}
