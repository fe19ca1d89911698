//! Agents of owners within a tenant: conversations, runs, the scheduler, and work that is for the tenant.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_admin::audit::audited;
use agent_admin::copy::StoreCopy;
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::Actor;
use agent_core::state::SessionState;
use agent_core::store::SessionQuery;
use agent_core::{ErrorKind, MemoryStore, OwnerId, Result, Storage, WorkspaceId, async_trait};
use agent_runtime::retention::{GcPolicy, OldSessionAction, RetentionPolicy, SweepPolicy};
use agent_runtime::{
    EchoProvider, Plugin, Scheduler, ScriptedProvider, ToolContext, ToolMode, ToolSpec, Turn,
};
use agent_tests::{Site, each_store};

use crate::common::{agent, agent_with, device};

fn owner(name: &str) -> OwnerId {
    name.parse().unwrap()
}

/// An agent that is built on the storage of an owner, or made for one, has its conversations and its main session apart.
async fn agents_of_owners_have_conversations_of_their_own(site: Site) {
    let tenant = site.open().await;
    let built = agent(&tenant.for_owner(&owner("alice")), EchoProvider::new());
    let of_tenant = agent(&tenant, EchoProvider::new());
    let made = of_tenant.for_owner(&owner("bob"));
    let mut ids = Vec::new();
    for agent in [&built, &made, &of_tenant] {
        let chat = agent.conversation("notes").await.unwrap();
        chat.prompt("hello").await.unwrap().finish().await.unwrap();
        let default = agent.workspaces().default_workspace().await.unwrap();
        let main = agent.workspaces().main_session(&default).await.unwrap();
        assert_eq!(main.owner.as_ref(), agent.storage().owner(), "{}", site.name);
        assert_eq!(agent.workspaces().main_session(&default).await.unwrap().id, main.id, "{}", site.name);
        ids.extend([chat.id(), main.id]);
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "{}", site.name);
    assert_eq!(built.storage().owner(), Some(&owner("alice")));
    // A main session of an owner goes on after its deletion, and cannot be put away otherwise.
    let default = built.workspaces().default_workspace().await.unwrap();
    let main = built.workspaces().main_session(&default).await.unwrap();
    let error = built.workspaces().reset(main.id, OldSessionAction::Archive).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
    built.workspaces().reset(main.id, OldSessionAction::Delete).await.unwrap();
    assert_ne!(built.workspaces().main_session(&default).await.unwrap().id, main.id);
    // First contacts of one device of an owner make one workspace, which is the owner's.
    let phone = device("phone");
    let (one, other) = tokio::join!(built.open(&phone), built.open(&phone));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one.id(), other.id(), "{}", site.name);
    assert_eq!(one.record().owner, Some(owner("alice")));
    assert_eq!(*made.open(&phone).await.unwrap_err().kind(), ErrorKind::Conflict { head: None });
}
each_store!(agents_of_owners_have_conversations_of_their_own and files);

/// Tool that lists the sessions which its context reaches.
#[derive(Debug, Default)]
struct Lists(Mutex<Vec<(Option<OwnerId>, usize)>>);

#[async_trait]
impl Plugin for Lists {
    fn name(&self) -> &str {
        "lists"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("list", "Lists sessions").with_mode(ToolMode::Direct)]
    }

    async fn call(&self, _: &str, _: RawJson, context: ToolContext) -> Result<RawJson> {
        let storage = context.storage();
        let found = storage.sessions.list(SessionQuery::new()).await?.items.len();
        self.0.lock().unwrap().push((storage.owner().cloned(), found));
        Ok(RawJson::empty_object())
    }
}

/// The scheduler of a tenant runs an owner's session with what is the owner's: a tool reaches no other's sessions.
async fn scheduler_runs_sessions_of_owners_as_theirs(site: Site) {
    let tenant = site.open().await;
    let lists = Arc::new(Lists::default());
    let turns = [Turn::new().call("call-1", "list", RawJson::empty_object()), Turn::new().text("done")];
    let of_tenant = agent_with(
        &tenant,
        ScriptedProvider::new(turns),
        Default::default(),
        [lists.clone() as Arc<dyn Plugin>],
    );
    let alice = of_tenant.for_owner(&owner("alice")).conversation("notes").await.unwrap();
    for other in ["bob", "carol"] {
        of_tenant.for_owner(&owner(other)).conversation("notes").await.unwrap();
    }
    let sessions = &tenant.sessions;
    sessions.append(alice.id(), alice.record().head, vec![NewEvent::user_message("go")]).await.unwrap();
    Scheduler::new(of_tenant.clone()).round().await.unwrap();
    let done = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let now = sessions.load(alice.id()).await.unwrap();
            if now.status.state == SessionState::Idle && now.counts.agent > 0 {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(done.await.unwrap().owner, Some(owner("alice")), "{}", site.name);
    assert_eq!(*lists.0.lock().unwrap(), [(Some(owner("alice")), 1)], "{}", site.name);
}
each_store!(scheduler_runs_sessions_of_owners_as_theirs and files);

/// Retention, copies and the audit are for the tenant: with the storage of an owner they are refused, and change nothing. An
/// audit of the tenant records what its owners do.
#[tokio::test]
async fn work_of_the_tenant_is_refused_for_owners() {
    let tenant: Storage = MemoryStore::new().into();
    let alice = tenant.for_owner(&owner("alice"));
    let agent = agent(&alice, EchoProvider::new());
    let chat = agent.conversation("notes").await.unwrap();
    for error in [
        agent.workspaces().gc(GcPolicy::days(1)).await.map(drop).unwrap_err(),
        agent.workspaces().sweep(&SweepPolicy::default()).await.map(drop).unwrap_err(),
        agent.workspaces().apply(&RetentionPolicy::default()).await.map(drop).unwrap_err(),
        StoreCopy::new(alice.clone(), MemoryStore::new().into()).run().await.map(drop).unwrap_err(),
        StoreCopy::new(MemoryStore::new().into(), alice.clone()).run().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("tenant"), "{error}");
    }
    assert!(tenant.sessions.load(chat.id()).await.is_ok());
    let audited = audited(&tenant, Actor::USER).for_owner(&owner("alice"));
    let workspace = agent_runtime::WorkspaceManager::new(audited).create(Default::default()).await.unwrap();
    assert_eq!(workspace.owner, Some(owner("alice")));
    assert_ne!(workspace.id, WorkspaceId::DEFAULT);
}
