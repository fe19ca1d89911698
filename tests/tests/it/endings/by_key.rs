//! Conversations by key while others delete them, or the workspace that they belong to.

use std::time::Duration;

use agent_core::state::SessionState;
use agent_core::store::SessionQuery;
use agent_core::{Error, ErrorKind, Storage};
use agent_runtime::{AgentBuilder, AgentRuntime, EchoProvider, NewWorkspace};
use agent_tests::each_store;
use futures::FutureExt;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::endings::cut::Cutting;
use crate::endings::site::{Hands, Site, effects, manager};

fn agent(storage: &Storage, clock: &Hands) -> AgentRuntime {
    let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    builder.with_storage(storage.clone()).with_effects(effects(clock)).build().unwrap()
}

/// Others recreate a conversation and delete it again at any step of one who recreates it: he gets a living one.
async fn one_that_is_deleted_again_is_recreated(site: Site) {
    let clock = Hands::new();
    for at in 1.. {
        let storage = site.fresh(at);
        let other = agent(&storage, &clock);
        other.conversation("key").await.unwrap().delete().await.unwrap();
        let visitor = other.clone();
        let visit = move || {
            async move { visitor.recreate_conversation("key").await.unwrap().delete().await.unwrap() }.boxed()
        };
        let cutting = Cutting::visited(&storage, at, visit, None);
        let chat = agent(&cutting.storage(), &clock).recreate_conversation("key").await.unwrap();
        // A visitor who comes last of all has deleted it.
        let now = chat.refresh().await.unwrap();
        let last = other.recreate_conversation("key").await.unwrap();
        let is_living = now.status.state != SessionState::Deleted;
        assert!(last.id() == chat.id() || !is_living, "{}, a visitor at call {at}", site.name);
        if cutting.calls() < at {
            assert!(is_living && at > 4, "{}", site.name);
            break;
        }
    }
}

each_store!(one_that_is_deleted_again_is_recreated and mixed);

/// Checks that it is the workspace that was refused.
fn check_refused(error: &Error, when: &str) {
    assert!(matches!(error.kind(), ErrorKind::Deleted | ErrorKind::Busy { .. }), "{when}: {error}");
    assert!(error.to_string().contains("workspace"), "{when}: {error}");
}

/// The workspace is deleted at any step of somebody who opens a conversation in it, with an input or without: no living
/// conversation is left in it.
async fn none_stays_in_a_deleted_workspace(site: Site) {
    let clock = Hands::new();
    let mut round = 0;
    for prompts in [false, true] {
        for at in 1.. {
            round += 1;
            let when = format!("{}, the deletion at call {at}, with an input {prompts}", site.name);
            let storage = site.fresh(round);
            let owner = manager(&storage, &clock);
            let id = owner.create(NewWorkspace::new("gone")).await.unwrap().id;
            let (deleting, done) = (owner.clone(), watch::Sender::new(false));
            let (is_done, mut over) = (done.clone(), done.subscribe());
            let visit = move || {
                // In a task of its own: who is in the middle of the call may not wait for its end.
                let deletion = tokio::spawn(async move {
                    deleting.delete(id).await.unwrap();
                    is_done.send_replace(true);
                });
                deletion.map(|deleted| deleted.unwrap()).boxed()
            };
            let cutting = Cutting::visited(&storage, at, visit, None);
            let workspace = agent(&cutting.storage(), &clock).workspace(id);
            match prompts {
                true => match workspace.conversation_with("key", "hello").await {
                    // The deletion may come in the middle of the run.
                    Ok(begun) => drop(begun.run.finish().await),
                    Err(error) => check_refused(&error, &when),
                },
                false => match workspace.conversation("key").await {
                    Ok(_) => {}
                    Err(error) => check_refused(&error, &when),
                },
            }
            if cutting.calls() < at {
                break;
            }
            timeout(Duration::from_secs(60), over.wait_for(|done| *done)).await.unwrap().unwrap();
            let left = storage.sessions.list(SessionQuery::new().with_workspace(id)).await.unwrap().items;
            assert_eq!(left, [], "{when}");
        }
    }
}

each_store!(none_stays_in_a_deleted_workspace and mixed);
