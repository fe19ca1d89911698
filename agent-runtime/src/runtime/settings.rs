//! What of a configuration decides how a session behaves, and how a session keeps the one with which it was made.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::holdings::{Documents, Migrations};
use crate::runtime::agent::{AgentRuntime, Shared};
use crate::runtime::config::{Config, Limits, ToolPolicy};
use crate::runtime::provider::LlmProvider;
use crate::runtime::session_ref::SessionRef;
use agent_core::commit::Commit;
use agent_core::event::{DocumentWritten, NewEvent};
use agent_core::model::{Actor, Attributes, Patch};
use agent_core::session::Session;
use agent_core::{Error, ErrorKind, Result, SessionStoreExt};

/// The name of the document in which a session keeps the configuration with which it was made.
pub(crate) const DOCUMENT: &str = "session.config";

/// What of a configuration decides how a session behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(super) provider: String,
    #[serde(skip)]
    chosen_by: ChosenBy,
    pub(super) system_prompt: Option<String>,
    pub(super) limits: Limits,
    pub(super) tool_policies: BTreeMap<String, ToolPolicy>,
    pub(super) keep_thinking: bool,
}

/// Who chose the provider of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChosenBy {
    /// The configuration that the session keeps.
    #[default]
    Kept,
    Session,
    Workspace,
    Configuration,
}

/// The provider that a session's workspace chooses; `None` if it chooses none, or is not there.
pub(super) type Theirs = Option<String>;

/// Whether the workspace is to be asked for the provider of a session.
pub(super) fn asks_workspace(now: &Session) -> bool {
    now.attributes.chosen_provider().is_none() && now.document(DOCUMENT).is_none()
}

/// The provider that a session's workspace chooses.
pub(super) async fn workspace_provider(runtime: &AgentRuntime, now: &Session) -> Result<Theirs> {
    match runtime.storage.workspaces.load(now.workspace).await {
        Ok(workspace) => Ok(workspace.provider),
        // A host may keep sessions of workspaces that it never stored.
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The provider that a session asks which keeps no configuration of its own.
fn choice<'a>(shared: &'a Shared, now: &'a Session, theirs: Option<&'a str>) -> (&'a str, ChosenBy) {
    match (now.attributes.chosen_provider(), theirs) {
        (Some(own), _) => (own, ChosenBy::Session),
        (None, Some(theirs)) => (theirs, ChosenBy::Workspace),
        (None, None) => (shared.provider_name(), ChosenBy::Configuration),
    }
}

impl Settings {
    /// Those of a runtime.
    pub(super) fn of(shared: &Shared) -> Self {
        let config = &shared.config;
        Self {
            provider: shared.provider_name().to_owned(),
            chosen_by: ChosenBy::Configuration,
            system_prompt: config.system_prompt.clone(),
            limits: config.limits.clone(),
            tool_policies: config.tool_policies.clone(),
            keep_thinking: config.keep_thinking,
        }
    }

    /// Those of a runtime, with the provider that the session or its workspace chooses.
    fn chosen(shared: &Shared, session: &Session, theirs: Option<&str>) -> Self {
        let (provider, chosen_by) = choice(shared, session, theirs);
        Self { provider: provider.to_owned(), chosen_by, ..Self::of(shared) }
    }

    /// Those of a session: its own where it keeps them, else the runtime's. `theirs` is what the workspace chooses, where
    /// that was looked up already.
    pub(super) async fn for_session(
        runtime: &AgentRuntime,
        session: &Session,
        theirs: Option<Theirs>,
    ) -> Result<Self> {
        if let Some(mut kept) = Self::kept(runtime, session).await? {
            if let Some(own) = session.attributes.chosen_provider() {
                (kept.provider, kept.chosen_by) = (own.to_owned(), ChosenBy::Session);
            }
            return Ok(kept);
        }
        let theirs = match theirs {
            Some(theirs) => theirs,
            None if asks_workspace(session) => workspace_provider(runtime, session).await?,
            None => None,
        };
        Ok(Self::chosen(&runtime.shared, session, theirs.as_deref()))
    }

    /// Those that a session keeps.
    async fn kept(runtime: &AgentRuntime, session: &Session) -> Result<Option<Self>> {
        if session.document(DOCUMENT).is_none() {
            return Ok(None);
        }
        let documents =
            Documents::new(runtime.storage.sessions.clone(), runtime.effects().clone(), session.id);
        let Some(kept) = documents.get(DOCUMENT).await? else { return Ok(None) };
        let text = Migrations::new().read(DOCUMENT, kept.format, &kept.text)?;
        serde_json::from_str(&text).map(Some).map_err(|fault| {
            Error::corrupt(format!(
                "the configuration that session {} keeps cannot be read: {fault}",
                session.id
            ))
        })
    }

    /// The provider, which the host must have.
    pub(super) fn provider<'a>(
        &self,
        shared: &'a Shared,
        session: &Session,
    ) -> Result<&'a Arc<dyn LlmProvider>> {
        shared.named(&self.provider).ok_or_else(|| {
            let names: Vec<_> = shared.names.iter().map(|(name, _)| &**name).collect();
            let (name, there, id) = (&self.provider, names.join(", "), session.id);
            let text = match self.chosen_by {
                ChosenBy::Kept => format!(
                    "session {id} keeps to provider {name}, and there are {there}; add it, or let the session adopt the present configuration"
                ),
                ChosenBy::Session => format!(
                    "session {id} chooses provider {name:?}, and there are {there}; set its reference `provider` to one of these, or remove it"
                ),
                ChosenBy::Workspace => format!(
                    "workspace {} chooses provider {name:?} for session {id}, and there are {there}; set the workspace's provider to one of these, or remove it",
                    session.workspace
                ),
                ChosenBy::Configuration => format!("provider {name:?} is not here; there are {there}"),
            };
            Error::new(ErrorKind::Provider, text)
        })
    }
}

/// What a run that begins, or a session that is made, has to say first: who is asked, what is kept, and with which
/// configuration, where that is not said yet.
pub(super) fn opening(shared: &Shared, now: &Session, theirs: Option<&str>) -> Result<Vec<NewEvent>> {
    if now.document(DOCUMENT).is_some() {
        return Ok(Vec::new());
    }
    let mut events: Vec<_> = references(shared, now, theirs).map(NewEvent::updated).into_iter().collect();
    if freezes(&shared.config, now) {
        events.push(written(shared, now, theirs)?);
    }
    Ok(events)
}

/// Whether a session is to keep the configuration with which it is made, and does not do so yet.
pub(super) fn freezes(config: &Config, now: &Session) -> bool {
    config.freeze && now.started_at.is_none() && now.document(DOCUMENT).is_none()
}

fn written(shared: &Shared, now: &Session, theirs: Option<&str>) -> Result<NewEvent> {
    let text = serde_json::to_string(&Settings::chosen(shared, now, theirs))
        .map_err(|fault| Error::invalid(format!("the configuration cannot be written down: {fault}")))?;
    let written = DocumentWritten::after(now.document(DOCUMENT), DOCUMENT, Some(text));
    Ok(NewEvent::document_written(written).with_actor(Actor::SYSTEM))
}

/// The references that differ from the provider and the model that will be asked, and what is kept, where nobody has said
/// so yet.
fn references(shared: &Shared, now: &Session, theirs: Option<&str>) -> Option<Patch> {
    let (name, by) = choice(shared, now, theirs);
    let is_said =
        |name: &str, value: &str| now.attributes.references.get(name).map(String::as_str) == Some(value);
    let mut patch = Patch::new();
    // Of one that is not here there is nothing to say; its run says so.
    if let Some(model) = shared.model(name) {
        let from = match by {
            ChosenBy::Session | ChosenBy::Kept => None,
            ChosenBy::Workspace => Some("workspace"),
            ChosenBy::Configuration => Some("configuration"),
        };
        if let Some(from) = from
            && !(is_said(Attributes::PROVIDER, name) && is_said(Attributes::PROVIDER_FROM, from))
        {
            patch = patch.reference(Attributes::PROVIDER, name).reference(Attributes::PROVIDER_FROM, from);
        }
        if !is_said("model", model) {
            patch = patch.reference("model", model);
        }
    }
    if now.attributes.keep.is_none() {
        patch = patch.keep(shared.config.keep);
    }
    (!patch.is_empty()).then_some(patch)
}

/// Takes over the configuration of the present host, where the session keeps one.
pub(crate) async fn adopt(session: &SessionRef) -> Result<()> {
    let now = session.refresh().await?;
    if now.document(DOCUMENT).is_none() {
        return Ok(());
    }
    let shared = &session.runtime().shared;
    let theirs = workspace_provider(session.runtime(), &now).await?;
    let said = references(shared, &now, theirs.as_deref()).map(NewEvent::updated);
    let events = said.into_iter().chain([written(shared, &now, theirs.as_deref())?]);
    say(session, &now, events.collect()).await
}

/// Writes down the configuration with which the session was made, where the host wants that and nobody has done so.
pub(crate) async fn freeze(session: &SessionRef) -> Result<()> {
    let (shared, now) = (session.runtime().shared.clone(), session.snapshot());
    if !freezes(&shared.config, &now) {
        return Ok(());
    }
    let theirs = workspace_provider(session.runtime(), &now).await?;
    match say(session, &now, opening(&shared, &now, theirs.as_deref())?).await {
        // Another host was first.
        Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => session.refresh().await.map(drop),
        done => done,
    }
}

async fn say(session: &SessionRef, now: &Session, events: Vec<NewEvent>) -> Result<()> {
    let runtime = session.runtime();
    let commit = Commit::seal(runtime.effects(), session.id(), now.head).actor(Actor::SYSTEM).events(events);
    let committed = runtime.storage.sessions.settle(commit).await?;
    session.note(&committed.session);
    Ok(())
}
