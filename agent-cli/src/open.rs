//! Opening of the store, the agent and the session for a conversation.

use std::borrow::Cow;
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::event::{EventPayload, EventType};
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{DeviceId, ErrorKind, Storage};
use agent_runtime::context::ContextLimits;
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, LlmProvider, NewWorkspace, Resolution, ToolMode,
};

use crate::args::{Args, short, user};
use crate::chat::{Chat, ChatContext};
use crate::failure::{Failure, Result};
use crate::input::Reader;
#[cfg(not(feature = "models"))]
use crate::model::ModelName;
use crate::offline::{OfflineModel, tools};
use crate::screen::Screen;
use crate::servers::Servers;
use crate::summaries::ModelSummaries;
use crate::visible::visible;

/// Number of earlier inputs that the arrow keys recall.
const LINES: usize = 200;

/// Opens the store, the agent and the session that the options name.
pub(crate) async fn open(args: &Args, terminal: bool) -> Result<Chat> {
    let device = args.device()?;
    let place = agent(args, &device, ToolMode::Direct).await?;
    let (handle, workspace) = session(&place.agent, &device, args).await?;
    let (reader, printer) = if terminal {
        Reader::terminal(own_lines(&handle).await?).map_err(Failure::other)?
    } else {
        (Reader::pipe(), None)
    };
    let screen = Screen::new(terminal, printer);
    let mut chat =
        Chat::new(place, args.clone(), workspace, device, handle, reader, screen).map_err(Failure::other)?;
    chat.record_session().await;
    Ok(chat)
}

/// Opens the store, and the agent on it, whose own tools have this mode.
pub(crate) async fn agent(args: &Args, device: &DeviceId, mode: ToolMode) -> Result<ChatContext> {
    let servers = Servers::new(args).await?;
    let address = args.address()?;
    let tenant = args.tenant.clone().unwrap_or_default();
    let storage = args.of_owner(address.tenants().await?.tenant(&tenant));
    agent_on(storage, servers, address.shown(), args, device, mode)
}

/// Builds the agent on a store that is open already, with the model of the options.
pub(crate) fn agent_on(
    storage: Storage,
    servers: Servers,
    data: String,
    args: &Args,
    device: &DeviceId,
    mode: ToolMode,
) -> Result<ChatContext> {
    let effects = Effects::default();
    let name = short(device);
    let mut config = Config::default()
        .with_resume_on_prompt(true)
        .with_holder(format!("chat on {name}, process {}", std::process::id()));
    if let Some(ttl) = args.lease_ttl_ms {
        config = config.with_lease_ttl(ttl);
    }
    if let Some(limits) = args.context_messages {
        config = config.with_context_limits(ContextLimits::new(limits, ContextLimits::default().bytes));
    }
    let hosted = hosted(args)?;
    let summaries = hosted.clone().map(ModelSummaries);
    let mut builder = match hosted {
        Some(model) => AgentBuilder::new().with_llm(model),
        None => AgentBuilder::new().with_llm(OfflineModel::new(args.echo_delay_ms)),
    };
    if let Some(summaries) = &summaries {
        builder = builder.with_summarizer(summaries.clone());
    }
    let [clock, sleep] = tools(effects.clone(), mode);
    let agent = servers
        .add_to(builder)
        .with_config(config)
        .with_tool(clock)
        .with_tool(sleep)
        .with_storage(storage)
        .with_effects(effects)
        .build()?;
    Ok(ChatContext { agent, servers, summaries, data })
}

/// Returns the hosted model that `--model` names; `None` for the offline one.
#[cfg(feature = "models")]
fn hosted(args: &Args) -> Result<Option<Arc<dyn LlmProvider>>> {
    let hosted = crate::hosted::HostedModel::new(&args.model)?;
    Ok(hosted.map(|model| -> Arc<dyn LlmProvider> { Arc::new(model) }))
}

#[cfg(not(feature = "models"))]
fn hosted(args: &Args) -> Result<Option<Arc<dyn LlmProvider>>> {
    if args.model == ModelName::Offline {
        return Ok(None);
    }
    let text = format!(
        "--model {}: this program was built without hosted models; build it with `cargo build --bin chat --features models`",
        args.model
    );
    Err(Failure::new(1, "unsupported", text))
}

/// Returns the session that `--session` names, or else the one that the device used last; and its
/// workspace. A new workspace gets the device's name.
async fn session(agent: &AgentRuntime, device: &DeviceId, args: &Args) -> Result<(Conversation, Workspace)> {
    if let Some(named) = &args.session {
        let id = named.find(&*agent.storage().sessions, SessionQuery::new()).await?.id;
        let handle = agent.conversation_by_id(id).await?;
        let workspace = agent.workspaces().load(handle.record().workspace).await?;
        return Ok((handle, workspace));
    }
    let new = NewWorkspace::new(short(device));
    let found = agent.workspaces().resolve_or_create(device, &new).await?;
    let mut workspace = found.workspace;
    if found.how == Resolution::Created {
        // With its creator; if another program was first, the session is there.
        let new = NewSession::new(workspace.main_session, workspace.id).with_creator(user(device));
        match agent.workspaces().create_session(new).await {
            Err(error) if !matches!(error.kind(), ErrorKind::Conflict { .. }) => return Err(error.into()),
            _ => {}
        }
    }
    let main = agent.open_main(&workspace).await?;
    // A new session has replaced a main session that was deleted.
    workspace.main_session = main.id();
    let main_id = main.id();
    let handle = match agent.workspaces().last_session(device, workspace.id).await? {
        Some(last) if last != main.id() => agent.conversation_by_id(last).await?,
        _ => main,
    };
    // It was edited elsewhere, or an edit was cut off.
    let handle = handle.in_place().await?;
    if handle.record().attributes.supersedes() == Some(main_id) {
        workspace.main_session = handle.id();
    }
    Ok((handle, workspace))
}

/// Returns the user messages of the session, for the arrow keys. Left out are those that would steer the terminal, which
/// the editor of lines shows as they are.
async fn own_lines(handle: &Conversation) -> agent_core::Result<Vec<String>> {
    let after = handle.record().visible_from;
    let read = ReadEvents::last(LINES).with_after(after).with_types([EventType::USER_MESSAGE]);
    let page = handle.history(read).await?;
    let text = |body| match body {
        EventPayload::UserMessage(message) => {
            matches!(visible(&message.text), Cow::Borrowed(_)).then_some(message.text)
        }
        _ => None,
    };
    Ok(page.events.iter().filter_map(|event| event.decode().ok().and_then(text)).collect())
}
