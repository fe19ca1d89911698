//! Settings that decide how a session behaves, and how a session keeps the configuration with which it was created.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::runtime::{AgentRuntime, Shared};
use crate::config::{Config, Limits, ToolPolicy};
use crate::model::options::{Effort, ToolChoice};
use crate::model::provider::LlmProvider;
use crate::turn::session_ref::SessionRef;
use agent_core::event::{DocumentWritten, NewEvent};
use agent_core::isolated::called;
use agent_core::json::RawJson;
use agent_core::model::{Actor, Attributes, Patch};
use agent_core::session::SessionRecord;
use agent_core::{Error, ErrorKind, Result};
use agent_workspace::documents::{Documents, Migrations};

/// Name of the document in which a session keeps the configuration with which it was created.
pub(crate) const DOCUMENT: &str = "session.config";

/// Bytes of history for each token that a model takes.
const TOKEN_BYTES: usize = 3;

/// Part of a configuration that decides how a session behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(super) provider: String,
    #[serde(skip)]
    chosen_by: ChosenBy,
    pub(super) system_prompt: Option<String>,
    pub(super) limits: Limits,
    pub(super) tool_policies: BTreeMap<String, ToolPolicy>,
    pub(super) store_thinking: bool,
    #[serde(default, skip_serializing_if = "ToolChoice::is_auto")]
    pub(super) tool_choice: ToolChoice,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output_schema: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) effort: Option<Effort>,
}

/// Level that chose the provider of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChosenBy {
    /// The configuration that the session keeps.
    #[default]
    Kept,
    Session,
    Workspace,
    Configuration,
}

/// What a run needs of its session's workspace. Empty if the workspace does not exist.
#[derive(Clone, Debug, Default)]
pub(super) struct Theirs {
    /// Provider that it chooses.
    pub(super) provider: Option<String>,
    /// Its configuration, if a plugin needs it.
    pub(super) config: Option<Option<Arc<str>>>,
}

/// Returns whether the workspace must be read for the provider of a session.
pub(super) fn asks_workspace(now: &SessionRecord) -> bool {
    now.attributes.chosen_provider().is_none() && now.document(DOCUMENT).is_none()
}

/// Returns what a run needs of the session's workspace.
pub(super) async fn theirs(runtime: &AgentRuntime, now: &SessionRecord) -> Result<Theirs> {
    let workspaces = &runtime.storage.workspaces;
    let with_config = runtime.shared.reads_workspace_config;
    let read = if with_config {
        workspaces.load_with_config(now.workspace).await
    } else {
        workspaces.load(now.workspace).await.map(|workspace| (workspace, None))
    };
    match read {
        Ok((workspace, config)) => {
            let config = with_config.then(|| config.map(Arc::from));
            Ok(Theirs { provider: workspace.provider, config })
        }
        // A host may keep sessions of workspaces that it never stored.
        Err(error) if error.is_absent() => {
            Ok(Theirs { config: with_config.then_some(None), ..Theirs::default() })
        }
        Err(error) => Err(error),
    }
}

/// Returns the provider of a session that keeps no configuration of its own.
fn choice<'a>(shared: &'a Shared, now: &'a SessionRecord, theirs: Option<&'a str>) -> (&'a str, ChosenBy) {
    match (now.attributes.chosen_provider(), theirs) {
        (Some(own), _) => (own, ChosenBy::Session),
        (None, Some(theirs)) => (theirs, ChosenBy::Workspace),
        (None, None) => (shared.provider_name(), ChosenBy::Configuration),
    }
}

impl Settings {
    /// Returns the settings of a runtime.
    pub(super) fn of(shared: &Shared) -> Self {
        let config = &shared.config;
        Self {
            provider: shared.provider_name().to_owned(),
            chosen_by: ChosenBy::Configuration,
            system_prompt: config.system_prompt.clone(),
            limits: config.limits.clone(),
            tool_policies: config.tool_policies.clone(),
            store_thinking: config.store_thinking,
            tool_choice: config.tool_choice.clone(),
            output_schema: config.output_schema.clone(),
            effort: config.effort,
        }
    }

    /// Returns the settings of a runtime, with the provider that the session or its workspace chooses.
    fn chosen(shared: &Shared, session: &SessionRecord, theirs: Option<&str>) -> Self {
        let (provider, chosen_by) = choice(shared, session, theirs);
        Self { provider: provider.to_owned(), chosen_by, ..Self::of(shared) }
    }

    /// Returns the settings of a session: its own if it keeps them, else those of the runtime. `theirs` is the provider
    /// that the workspace chooses.
    pub(super) async fn for_session(
        runtime: &AgentRuntime,
        session: &SessionRecord,
        theirs: Option<&str>,
    ) -> Result<Self> {
        if let Some(mut kept) = Self::kept(runtime, session).await? {
            if let Some(own) = session.attributes.chosen_provider() {
                (kept.provider, kept.chosen_by) = (own.to_owned(), ChosenBy::Session);
            }
            return Ok(kept);
        }
        Ok(Self::chosen(&runtime.shared, session, theirs))
    }

    /// Returns the settings that a session keeps, if it keeps any.
    async fn kept(runtime: &AgentRuntime, session: &SessionRecord) -> Result<Option<Self>> {
        if session.document(DOCUMENT).is_none() {
            return Ok(None);
        }
        let documents = Documents::new(runtime.storage.sessions.clone(), session.id);
        let Some(kept) = documents.get(DOCUMENT).await? else { return Ok(None) };
        let text = Migrations::new().read(DOCUMENT, kept.format, &kept.text)?;
        let wrong = |what: String| {
            let id = session.id;
            Error::corrupt(format!(
                "the configuration that session {id} keeps cannot be used: {what}; call `use_host_config` on the session"
            ))
        };
        let kept: Self = serde_json::from_str(&text).map_err(|fault| wrong(fault.to_string()))?;
        match kept.limits.faults().into_iter().next() {
            Some(fault) => Err(wrong(fault)),
            None => Ok(Some(kept)),
        }
    }

    /// Limits the history to what the provider's model takes, if that is known.
    pub(super) fn limit_to_model(&mut self, shared: &Shared) {
        // A provider that panics here does so when it is called, too, and fails the run.
        let capabilities =
            shared.named(&self.provider).and_then(|provider| called(|| provider.capabilities()));
        let tokens = capabilities.and_then(|capabilities| capabilities.context_tokens);
        if let Some(tokens) = tokens.filter(|tokens| *tokens > 0) {
            let bytes = &mut self.limits.context.bytes;
            *bytes = (tokens as usize).saturating_mul(TOKEN_BYTES).min(*bytes);
        }
    }

    /// Returns the provider, which the host must have.
    pub(super) fn provider<'a>(
        &self,
        shared: &'a Shared,
        session: &SessionRecord,
    ) -> Result<&'a Arc<dyn LlmProvider>> {
        shared.named(&self.provider).ok_or_else(|| {
            let names: Vec<_> = shared.names.iter().map(|(name, _)| &**name).collect();
            let (name, there, id) = (&self.provider, names.join(", "), session.id);
            let text = match self.chosen_by {
                ChosenBy::Kept => format!(
                    "session {id} keeps provider {name}, and the host has {there}; add it, or call `use_host_config` on the session"
                ),
                ChosenBy::Session => format!(
                    "session {id} chooses provider {name:?}, and the host has {there}; set its reference `provider` to one of these, or remove it"
                ),
                ChosenBy::Workspace => format!(
                    "workspace {} chooses provider {name:?} for session {id}, and the host has {there}; set the workspace's provider to one of these, or remove it",
                    session.workspace
                ),
                ChosenBy::Configuration => format!("provider {name:?} is unknown; the host has {there}"),
            };
            Error::new(ErrorKind::Provider, text)
        })
    }
}

/// Returns the first events of a run that begins, or of a session that is created. They record the provider and model,
/// the payloads that are kept, and the kept configuration, unless these are recorded already.
pub(super) fn opening(shared: &Shared, now: &SessionRecord, theirs: Option<&str>) -> Result<Vec<NewEvent>> {
    if now.document(DOCUMENT).is_some() {
        return Ok(Vec::new());
    }
    let mut events: Vec<_> = references(shared, now, theirs).map(NewEvent::updated).into_iter().collect();
    if freezes(&shared.config, now) {
        events.push(written(shared, now, theirs)?);
    }
    Ok(events)
}

/// Returns whether a session must keep the configuration with which it is created, and does not do so yet.
pub(super) fn freezes(config: &Config, now: &SessionRecord) -> bool {
    config.freeze_config && now.started_at.is_none() && now.document(DOCUMENT).is_none()
}

fn written(shared: &Shared, now: &SessionRecord, theirs: Option<&str>) -> Result<NewEvent> {
    let text = serde_json::to_string(&Settings::chosen(shared, now, theirs))
        .map_err(|fault| Error::invalid(format!("the configuration cannot be stored as JSON: {fault}")))?;
    let written = DocumentWritten::after(now.document(DOCUMENT), DOCUMENT, Some(text));
    Ok(NewEvent::document_written(written).with_actor(Actor::SYSTEM))
}

/// Returns the references that differ from the provider and model in use, and the kept payloads, unless they are
/// recorded already.
fn references(shared: &Shared, now: &SessionRecord, theirs: Option<&str>) -> Option<Patch> {
    let (name, by) = choice(shared, now, theirs);
    let is_said =
        |name: &str, value: &str| now.attributes.references.get(name).map(String::as_str) == Some(value);
    let mut patch = Patch::new();
    // A provider that the host does not have is not recorded; the run reports it as missing.
    if let Some(model) = shared.model(name) {
        let from = match by {
            ChosenBy::Session | ChosenBy::Kept => None,
            ChosenBy::Workspace => Some("workspace"),
            ChosenBy::Configuration => Some("configuration"),
        };
        if let Some(from) = from
            && !(is_said(Attributes::PROVIDER, name) && is_said(Attributes::PROVIDER_FROM, from))
        {
            patch = patch
                .with_reference(Attributes::PROVIDER, name)
                .with_reference(Attributes::PROVIDER_FROM, from);
        }
        if !is_said("model", model) {
            patch = patch.with_reference("model", model);
        }
    }
    if now.attributes.tool_payloads.is_none() {
        patch = patch.with_tool_payloads(shared.config.tool_payloads);
    }
    (!patch.is_empty()).then_some(patch)
}

/// Replaces the configuration that a session keeps by that of the present host, if the session keeps one.
pub(crate) async fn adopt(session: &SessionRef) -> Result<()> {
    let now = session.refresh().await?;
    if now.document(DOCUMENT).is_none() {
        return Ok(());
    }
    let shared = &session.runtime().shared;
    let theirs = theirs(session.runtime(), &now).await?.provider;
    let said = references(shared, &now, theirs.as_deref()).map(NewEvent::updated);
    let events = said.into_iter().chain([written(shared, &now, theirs.as_deref())?]);
    say(session, &now, events.collect()).await
}

/// Stores the configuration with which the session was created, if the host requires it and it is not stored yet.
pub(crate) async fn freeze(session: &SessionRef) -> Result<()> {
    let (shared, now) = (session.runtime().shared.clone(), session.record());
    if !freezes(&shared.config, &now) {
        return Ok(());
    }
    let theirs = theirs(session.runtime(), &now).await?.provider;
    match say(session, &now, opening(&shared, &now, theirs.as_deref())?).await {
        // Another host stored its configuration first.
        Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => session.refresh().await.map(drop),
        done => done,
    }
}

async fn say(session: &SessionRef, now: &SessionRecord, events: Vec<NewEvent>) -> Result<()> {
    let commit = session.runtime().storage.sessions.seal(session.id(), now.head);
    session.commit(commit.with_actor(Actor::SYSTEM).with_events(events)).await.map(drop)
}
