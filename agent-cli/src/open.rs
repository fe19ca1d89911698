//! From the command line to an open session.

use std::sync::Arc;

use agent_core::DeviceId;
use agent_core::clock::Effects;
use agent_core::event::{Body, EventType};
use agent_core::store::{ReadEvents, SessionQuery};
use agent_runtime::{AgentBuilder, AgentRuntime, Config, SessionHandle};

use crate::args::{Args, short};
use crate::chat::{Chat, Place};
use crate::failure::Failure;
use crate::input::Reader;
use crate::offline::{OfflineModel, Tools};
use crate::screen::Screen;

/// How many of one's own lines the arrow keys bring back.
const LINES: usize = 200;

/// Opens the stores, the agent and the session, and says where it all is.
pub(crate) async fn open(args: &Args, terminal: bool) -> Result<Chat, Failure> {
    let device = args.device()?;
    let address = args.address()?;
    let (storage, data) = (address.open(args.tenant.as_ref()).await?, address.shown());
    let effects = Effects::default();
    let name = short(&device);
    let mut config = Config::default().holder(format!("chat on {name}, process {}", std::process::id()));
    if let Some(ttl) = args.lease_ttl_ms {
        config = config.lease_ttl(ttl);
    }
    let agent = AgentBuilder::new(config)
        .with_llm(Arc::new(OfflineModel::new(args.echo_delay_ms)))
        .with_plugin(Arc::new(Tools(effects.clone())))
        .with_storage(storage)
        .with_effects(effects)
        .build()?;
    let handle = session(&agent, &device, args).await?;
    let (reader, printer) = if terminal {
        Reader::terminal(own_lines(&handle).await?).map_err(Failure::other)?
    } else {
        (Reader::pipe(), None)
    };
    let workspace = agent.workspaces().load(handle.snapshot().workspace).await?;
    let place = Place { agent, workspace, device, data };
    Chat::new(place, handle, reader, Screen::new(terminal, printer)).map_err(Failure::other)
}

/// The session that was asked for; else the one of the device's workspace that was used last.
async fn session(agent: &AgentRuntime, device: &DeviceId, args: &Args) -> agent_core::Result<SessionHandle> {
    if let Some(id) = args.session {
        return agent.session(id).await;
    }
    let main = agent.open(device).await?;
    let query = SessionQuery::new().workspace(main.snapshot().workspace).limit(1);
    match agent.storage().sessions.list(query).await?.items.first() {
        Some(last) if last.id != main.id() => agent.session(last.id).await,
        _ => Ok(main),
    }
}

/// What people said in the session, for the arrow keys.
async fn own_lines(handle: &SessionHandle) -> agent_core::Result<Vec<String>> {
    let after = handle.snapshot().visible_from;
    let read = ReadEvents::last(LINES).after(after).kinds([EventType::USER_MESSAGE]);
    let page = handle.history(read).await?;
    let text = |body| match body {
        Body::UserMessage(message) => Some(message.text),
        _ => None,
    };
    Ok(page.events.iter().filter_map(|event| event.body().ok().and_then(text)).collect())
}
