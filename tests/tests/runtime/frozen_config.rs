//! Sessions that keep the configuration with which they were made.

use std::time::Duration;

use crate::common::{Tools, check_log, device, ended, read, try_read};
use agent_core::Storage;
use agent_core::event::{DocumentWritten, NewEvent};
use agent_core::json::RawJson;
use agent_core::state::{Reason, SessionState};
use agent_runtime::context::ContextLimits;
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, RunOutcome, ScriptedProvider, ToolMode, ToolPolicy,
    Turn,
};
use agent_tests::{Site, each_store};

fn agent(storage: &Storage, models: &[ScriptedProvider], config: Config) -> AgentRuntime {
    let tools = Tools::new([("look", ToolMode::Direct), ("leave", ToolMode::Direct)]);
    let mut builder =
        AgentBuilder::new().with_config(config).with_storage(storage.clone()).with_plugin(tools);
    for model in models {
        builder = builder.with_llm(model.clone());
    }
    builder.build().unwrap()
}

fn first() -> Config {
    Config::default()
        .with_provider("one")
        .with_system_prompt("Be brief.")
        .with_max_turns(2)
        .with_max_tokens(100)
        .with_tool_policy("leave", ToolPolicy::Deny)
        .with_freeze_config(true)
}

fn second() -> Config {
    Config::default()
        .with_provider("two")
        .with_system_prompt("Be long.")
        .with_max_turns(9)
        .with_max_tokens(7)
        .with_context_limits(ContextLimits::new(1, 100))
        .with_answer_timeout(Duration::from_secs(1))
        .with_tool_policy("look", ToolPolicy::Ask)
}

fn models() -> [ScriptedProvider; 2] {
    ["one", "two"].map(|name| {
        ScriptedProvider::new((0..40).map(|_| Turn::new().call("c", "look", RawJson::empty_object())))
            .with_name(name)
    })
}

/// Runs the session, and checks that it behaves as the first configuration says.
async fn check_first(chat: &Conversation, models: &[ScriptedProvider; 2], when: &str) {
    let asked = models.each_ref().map(|model| model.requests().len());
    let (_, report) = read(chat.prompt("go").await.unwrap()).await;
    assert_eq!(report.outcome, RunOutcome::Completed(Reason::MaxTurns), "{when}");
    let [one, two] = models.each_ref().map(ScriptedProvider::requests);
    assert_eq!((one.len(), two.len()), (asked[0] + 2, asked[1]), "{when}: two turns, by the first provider");
    let request = one.last().unwrap();
    assert_eq!((request.system.as_deref(), request.max_tokens), (Some("Be brief."), Some(100)), "{when}");
    let offered: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(offered, ["look", "read_output"], "{when}");
    assert!(request.messages.len() > 2, "{when}: all of the conversation");
    assert_eq!(chat.refresh().await.unwrap().attributes.references["provider"], "one", "{when}");
}

/// A session keeps the configuration under which it was made, under each later host: the provider, the prompt, the
/// limits, the policies; so do its forks. Later sessions have the new one, and an old one has it on demand. If its
/// provider is missing, the run fails with that reason, and no other provider is used.
async fn frozen_config_ignores_later_host_config(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let models = models();
    let old = agent(&storage, &models, first());
    // One that has run, and one that has not, before the configuration changed.
    let chat = old.open(&device("laptop")).await.unwrap();
    check_first(&chat, &models, name).await;
    let (id, workspace) = (chat.id(), chat.record().workspace);
    let fresh = old.new_session(workspace, &Default::default()).await.unwrap().id();
    let child = chat.start_child("help", &Default::default()).await.unwrap().id();
    drop((old, chat));

    let new = agent(&storage, &models, second());
    let chat = new.conversation_by_id(id).await.unwrap();
    check_first(&chat, &models, name).await;
    let fork = chat.fork(None).await.unwrap();
    for made in
        [new.conversation_by_id(fresh).await.unwrap(), new.conversation_by_id(child).await.unwrap(), fork]
    {
        check_first(&made, &models, name).await;
        check_log(&new.conversation_by_id(fresh).await.unwrap()).await;
    }

    let asked = models[1].requests().len();
    let later = new.new_session(workspace, &Default::default()).await.unwrap();
    let (_, report) = read(later.prompt("go").await.unwrap()).await;
    assert!(matches!(report.outcome, RunOutcome::Awaiting(_)), "{name}: {report:?}");
    let request = &models[1].requests()[asked];
    assert_eq!((request.system.as_deref(), request.max_tokens), (Some("Be long."), Some(7)), "{name}");

    let alone = agent(&storage, &models[1..], second());
    let chat = alone.conversation_by_id(id).await.unwrap();
    let (_, report) = read(chat.prompt("anybody?").await.unwrap()).await;
    let RunOutcome::Failed(failure) = report.outcome else { panic!("{name}: {report:?}") };
    assert!(failure.text.contains("provider one"), "{name}: {}", failure.text);
    chat.use_host_config().await.unwrap();
    let (_, report) = read(chat.prompt("go").await.unwrap()).await;
    assert!(matches!(report.outcome, RunOutcome::Awaiting(_)), "{name}: {report:?}");
    let now = chat.refresh().await.unwrap();
    assert_eq!(now.attributes.references["provider"], "two", "{name}");
    let fresh = alone.conversation_by_id(fresh).await.unwrap();
    let (_, report) = read(fresh.prompt("go").await.unwrap()).await;
    assert!(matches!(report.outcome, RunOutcome::Failed(_)), "{name}: others keep to theirs");
    check_log(&chat).await;
}

each_store!(frozen_config_ignores_later_host_config and files);

/// Of many hosts that begin the first run of a session at the same moment, each with a configuration of its own, one
/// writes it down; no prompt is lost over it.
async fn one_of_many_hosts_freezes_the_config(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model =
        |n: usize| ScriptedProvider::new((0..9).map(|_| Turn::new().text("ok"))).with_name(format!("m{n}"));
    let plain = agent(&storage, &[model(9)], Config::default());
    let id = plain.open(&device("laptop")).await.unwrap().id();
    let mut hosts = tokio::task::JoinSet::new();
    for n in 0..8 {
        let models: Vec<_> = (0..8).map(model).collect();
        let host = agent(
            &storage,
            &models,
            Config::default().with_provider(format!("m{n}")).with_freeze_config(true),
        );
        hosts.spawn(async move {
            let chat = host.conversation_by_id(id).await.unwrap();
            let run = chat.prompt(format!("hello {n}")).await.unwrap();
            ended(run).await;
        });
    }
    while let Some(host) = hosts.join_next().await {
        host.unwrap();
    }
    let chat = plain.conversation_by_id(id).await.unwrap();
    let now = chat.record();
    assert_eq!(now.counts.user, 8, "{name}");
    assert!(matches!(now.status.state, SessionState::Idle | SessionState::Queued), "{name}");
    let kept = chat.documents().versions("session.config", 10).await.unwrap();
    assert_eq!(kept.len(), 1, "{name}");
    check_log(&chat).await;
}

each_store!(one_of_many_hosts_freezes_the_config, flavor = "multi_thread", worker_threads = 2);

/// A duration that no run can have is named, whoever wrote it, and the host's own takes its place.
async fn kept_times_have_a_maximum(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = ScriptedProvider::new([Turn::new().text("one"), Turn::new().text("two")]).with_name("one");
    let host = agent(&storage, &[model], first());
    let chat = host.open(&device("laptop")).await.unwrap();
    read(chat.prompt("hello").await.unwrap()).await;
    let kept = chat.documents().get("session.config").await.unwrap().unwrap();
    for time in ["tool_timeout", "model_silence", "answer_timeout"] {
        let mut changed: serde_json::Value = serde_json::from_str(&kept.text).unwrap();
        changed["limits"][time] = serde_json::json!({ "secs": u64::MAX, "nanos": 0 });
        let now = chat.refresh().await.unwrap();
        let written = DocumentWritten::after(
            now.document("session.config"),
            "session.config",
            Some(changed.to_string()),
        );
        let events = vec![NewEvent::document_written(written)];
        storage.sessions.append(chat.id(), now.head, events).await.unwrap();
        let error = try_read(chat.prompt("again").await.unwrap()).await.1.unwrap_err().to_string();
        for part in ["give at most 3650 days", "use_host_config", &chat.id().to_string()] {
            assert!(error.contains(part), "{name} {time}: {error}");
        }
    }
    chat.use_host_config().await.unwrap();
    let (text, _) = read(chat.prompt("again").await.unwrap()).await;
    assert_eq!(text, "two", "{name}");
    check_log(&chat).await;
}

each_store!(kept_times_have_a_maximum and files);
