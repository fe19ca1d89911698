//! Choice of a session's model among several: its own choice, its workspace's, the configuration's.

use crate::common::{check_log, device, dialogue, read};
use agent_core::Storage;
use agent_core::model::Patch;
use agent_core::state::SessionState;
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, RunOutcome, Scheduler, ScriptedProvider, Turn,
};
use agent_tests::{Site, each_store};

fn models() -> [ScriptedProvider; 3] {
    ["one", "two", "three"]
        .map(|name| ScriptedProvider::new((0..40).map(|_| Turn::new().text(name))).with_name(name))
}

fn agent(storage: &Storage, models: &[ScriptedProvider], config: Config) -> AgentRuntime {
    let mut builder = AgentBuilder::new().with_config(config).with_storage(storage.clone());
    for model in models {
        builder = builder.with_llm(model.clone());
    }
    builder.build().unwrap()
}

async fn asked(chat: &Conversation) -> String {
    read(chat.prompt("who are you?").await.unwrap()).await.0
}

fn by(name: &str) -> Patch {
    Patch::new().with_reference("provider", name)
}

/// The session's choice wins over the workspace's, that over the configuration's; each can be changed and taken
/// back, and what was asked is recorded without becoming a choice.
async fn session_choice_precedes_workspace_and_config(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let models = models();
    let first = agent(&storage, &models, Config::default().with_provider("one"));
    let chat = first.open(&device("laptop")).await.unwrap();
    let workspace = chat.record().workspace;
    assert_eq!(asked(&chat).await, "one", "{name}");
    assert_eq!(chat.refresh().await.unwrap().attributes.references["provider"], "one", "{name}");

    // What was recorded binds nobody.
    let agent = agent(&storage, &models, Config::default().with_provider("three"));
    let chat = agent.conversation_by_id(chat.id()).await.unwrap();
    assert_eq!(asked(&chat).await, "three", "{name}");
    assert_eq!(chat.refresh().await.unwrap().attributes.references["provider"], "three", "{name}");

    let set = |provider: Option<&str>| {
        let provider = provider.map(str::to_owned);
        let workspaces = agent.workspaces().clone();
        async move {
            let change = |it: &mut agent_core::model::Workspace| it.provider.clone_from(&provider);
            workspaces.update(workspace, change).await.unwrap();
        }
    };
    set(Some("two")).await;
    assert_eq!(asked(&chat).await, "two", "{name}: the workspace's");
    let made = agent.new_session(workspace, &by("one")).await.unwrap();
    assert_eq!(asked(&made).await, "one", "{name}: chosen when it was made");
    chat.update(by("one")).await.unwrap();
    assert_eq!(asked(&chat).await, "one", "{name}: the session's own");
    let now = chat.refresh().await.unwrap();
    assert_eq!(
        (now.attributes.references["provider"].as_str(), now.attributes.references["model"].as_str()),
        ("one", "one"),
        "{name}"
    );
    let fork = chat.fork(None).await.unwrap();
    assert_eq!(asked(&fork).await, "one", "{name}: and of its fork");

    // A choice of what was recorded is a choice, too.
    let other = agent.new_session(workspace, &Patch::new()).await.unwrap();
    assert_eq!(asked(&other).await, "two", "{name}");
    other.update(by("two")).await.unwrap();
    set(None).await;
    assert_eq!(asked(&other).await, "two", "{name}: chosen");
    assert_eq!(asked(&chat).await, "one", "{name}");
    let mut none = Patch::new();
    none.references.insert("provider".to_owned(), None);
    chat.update(none).await.unwrap();
    assert_eq!(asked(&chat).await, "three", "{name}: taken back");
    check_log(&chat).await;
}

each_store!(session_choice_precedes_workspace_and_config);

/// A name that no provider has is named before any model is asked, for the session and for the workspace; the
/// input is stored, and answered once the name is mended.
async fn an_unknown_provider_is_named(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let models = models();
    let agent = agent(&storage, &models, Config::default().with_provider("one"));
    let main = agent.open(&device("laptop")).await.unwrap();
    let workspace = main.record().workspace;
    let wrong = agent.new_session(workspace, &by("claud")).await.unwrap();
    let change = |it: &mut agent_core::model::Workspace| it.provider = Some("gemmini".to_owned());
    agent.workspaces().update(workspace, change).await.unwrap();
    for (chat, unknown) in [(&wrong, "claud"), (&main, "gemmini")] {
        let (_, report) = read(chat.prompt("hello").await.unwrap()).await;
        let RunOutcome::Failed(failure) = report.outcome else { panic!("{name}: {report:?}") };
        let text = &failure.text;
        assert!(
            text.contains(&format!("\"{unknown}\"")) && text.contains("one, two, three"),
            "{name}: {text}"
        );
        let of = if unknown == "claud" { chat.id().to_string() } else { workspace.to_string() };
        assert!(text.contains(&of), "{name}: {text}");
        assert_eq!(dialogue(chat).await, [("user", "hello".to_owned())], "{name}: it is stored");
    }
    // Where nobody waits for the outcome, the input waits to be tried again.
    main.send("anybody?").await.unwrap();
    assert_eq!(Scheduler::new(agent.clone()).round().await.unwrap().ran, 1, "{name}");
    let now = main.refresh().await.unwrap();
    assert_eq!((now.status.state, now.inputs_open), (SessionState::Queued, 1), "{name}");
    assert!(now.failure.as_ref().unwrap().text.contains("gemmini"), "{name}");
    assert!(models.iter().all(|model| model.requests().is_empty()), "{name}: nobody was asked");
    main.update(by("two")).await.unwrap();
    assert_eq!(asked(&main).await, "two", "{name}");
    wrong.update(by("three")).await.unwrap();
    assert_eq!(asked(&wrong).await, "three", "{name}");
    check_log(&main).await;
}

each_store!(an_unknown_provider_is_named);

/// A session that keeps the configuration with which it was made keeps the provider that its workspace chose then; a
/// choice of its own, made later, wins over that.
async fn explicit_choice_overrides_a_frozen_config(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let models = models();
    let agent = agent(&storage, &models, Config::default().with_provider("one").with_freeze_config(true));
    let workspace = agent.open(&device("laptop")).await.unwrap().record().workspace;
    let set = |to: &'static str| {
        let change = move |it: &mut agent_core::model::Workspace| it.provider = Some(to.to_owned());
        agent.workspaces().update(workspace, change)
    };
    set("two").await.unwrap();
    let chat = agent.new_session(workspace, &Patch::new()).await.unwrap();
    set("three").await.unwrap();
    assert_eq!(asked(&chat).await, "two", "{name}: as it was made");
    chat.update(by("one")).await.unwrap();
    assert_eq!(asked(&chat).await, "one", "{name}: its own choice");
    let fork = chat.fork(None).await.unwrap();
    assert_eq!(asked(&fork).await, "one", "{name}");
    chat.update(by("nobody")).await.unwrap();
    let (_, report) = read(chat.prompt("who?").await.unwrap()).await;
    let RunOutcome::Failed(failure) = report.outcome else { panic!("{name}: {report:?}") };
    assert!(failure.text.contains("\"nobody\""), "{name}: {}", failure.text);
}

each_store!(explicit_choice_overrides_a_frozen_config);

/// What a run records of the provider that it asked replaces no choice that was made at the same time, and a choice
/// replaces what was recorded.
async fn recorded_provider_replaces_no_choice(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let models = models();
    let agent = agent(&storage, &models, Config::default().with_provider("one"));
    let chat = agent.open(&device("laptop")).await.unwrap();
    let stale = agent.conversation_by_id(chat.id()).await.unwrap();
    chat.update(by("two")).await.unwrap();
    // Begins its run with what it has seen before, and records the provider of the configuration.
    assert_eq!(stale.record().attributes.chosen_provider(), None, "{name}");
    assert_eq!(asked(&stale).await, "two", "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!(now.attributes.chosen_provider(), Some("two"), "{name}");
    assert_eq!(asked(&chat).await, "two", "{name}");
    assert_eq!(chat.refresh().await.unwrap().attributes.references["model"], "two", "{name}");
    check_log(&chat).await;
}

each_store!(recorded_provider_replaces_no_choice);
