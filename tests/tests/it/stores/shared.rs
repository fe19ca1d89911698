//! Common code of the tests of every kind of store.

use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::event::Event;
use agent_core::session::SessionRecord;
use agent_core::{Seq, SessionId, SessionStoreExt, Storage, WorkspaceId};
use agent_runtime::{AgentBuilder, AgentRuntime, Config, LlmProvider, Plugin};
use futures::TryStreamExt;

/// A session of the default workspace.
pub(crate) async fn new_session(storage: &Storage, effects: &Effects) -> Arc<SessionRecord> {
    let new = agent_core::session::NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    storage.sessions.create(new).await.unwrap()
}

/// An agent that asks `provider`.
pub(crate) fn agent(storage: &Storage, provider: impl LlmProvider, config: Config) -> AgentRuntime {
    agent_with(storage, provider, config, [])
}

pub(crate) fn agent_with<const N: usize>(
    storage: &Storage,
    provider: impl LlmProvider,
    config: Config,
    plugins: [Arc<dyn Plugin>; N],
) -> AgentRuntime {
    let mut builder =
        AgentBuilder::new().with_config(config).with_llm(provider).with_storage(storage.clone());
    for plugin in plugins {
        builder = builder.with_plugin(plugin);
    }
    builder.build().unwrap()
}

/// The whole history.
pub(crate) async fn log(storage: &Storage, id: SessionId) -> Vec<Event> {
    storage.sessions.events(id, Seq::ZERO).try_collect().await.unwrap()
}

/// Checks that the record is what the log of a session that was not forked folds into.
pub(crate) async fn check_record(storage: &Storage, id: SessionId) -> Arc<SessionRecord> {
    let (now, events) = (storage.sessions.load(id).await.unwrap(), log(storage, id).await);
    let mut folded = SessionRecord::begin(id, &events[0]).unwrap();
    for event in &events[1..] {
        folded.apply(event).unwrap();
    }
    assert_eq!(folded, *now);
    now
}
