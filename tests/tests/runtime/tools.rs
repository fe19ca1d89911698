//! Tools: calls are stored before they are made, each has exactly one result, and what fails is isolated.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Scene, agent_with, calls, check_log, device, dialogue, json, log, read};
use agent_core::event::{EventType, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::{Error, ErrorKind, Result, SessionStore, Storage, async_trait};
use agent_runtime::context::{ContextLimits, ModelMessage};
use agent_runtime::{Config, Plugin, RunOutcome, RunReport, ScriptedProvider, ToolContext, ToolSpec, Turn};
use agent_tests::{Site, each_store};

/// Tools that do what their names say.
#[derive(Debug, Default)]
struct Tools {
    /// The store, so that a tool can look whether its call is stored.
    storage: Mutex<Option<Storage>>,
    called: AtomicU32,
    hooks: Mutex<Vec<String>>,
}

#[async_trait]
impl Plugin for Tools {
    fn name(&self) -> &str {
        "tools"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        ["add", "fail", "panic", "sleep", "large", "check", "huge"].map(|name| ToolSpec::new(name, "")).into()
    }

    async fn call(&self, tool: &str, input: RawJson, context: ToolContext) -> Result<RawJson> {
        self.called.fetch_add(1, Ordering::SeqCst);
        match tool {
            "add" => RawJson::of(&input.to::<Vec<i64>>()?.iter().sum::<i64>()),
            "fail" => Err(Error::new(ErrorKind::Provider, "the door is locked")),
            "panic" => panic!("the tool panics"),
            "sleep" => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                RawJson::of(&"late")
            }
            "large" => RawJson::of(&"한글🙂".repeat(50_000)),
            "huge" => RawJson::of(&"x".repeat(17 << 20)),
            "check" => {
                let storage = self.storage.lock().unwrap().clone().unwrap();
                let now = SessionStore::load(&*storage.sessions, context.session).await?;
                RawJson::of(&now.open_calls.iter().any(|open| open.call == context.call))
            }
            _ => unreachable!(),
        }
    }

    async fn before_run(&self, session: &SessionRecord) -> Result<()> {
        self.hooks.lock().unwrap().push(format!("before {}", session.status.state));
        Ok(())
    }

    async fn after_run(&self, session: &SessionRecord, report: &RunReport) -> Result<()> {
        self.hooks.lock().unwrap().push(format!("after {} {}", session.status.state, report.text));
        Ok(())
    }
}

async fn outcomes(
    storage: &Storage,
    config: Config,
    turns: Vec<Turn>,
) -> (agent_runtime::Conversation, RunReport, ScriptedProvider) {
    let model = ScriptedProvider::new(turns);
    let tools = Tools { storage: Mutex::new(Some(storage.clone())), ..Tools::default() };
    let agent = agent_with(storage, model.clone(), config, [Arc::new(tools) as _]);
    let chat = agent.open(&device("laptop")).await.unwrap();
    let (_, report) = read(chat.prompt("go").await.unwrap()).await;
    check_log(&chat).await;
    (chat, report, model)
}

/// A call is stored before its tool runs, its result after; the model gets both as a pair.
async fn a_call_is_stored_before_the_tool_runs(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let turns = vec![
        Turn::new().text("I check.").call("a", "check", json("{}")).call("b", "add", json("[1,2,39]")),
        Turn::new().text("42"),
    ];
    let (chat, report, model) = outcomes(&storage, Config::default(), turns).await;
    assert_eq!((report.text.as_str(), report.usage.output_tokens), ("42", 2), "{name}");
    let calls = calls(&chat).await;
    let results: Vec<_> = calls.iter().map(|(_, results)| results[0].output.get()).collect();
    assert_eq!(results, ["true", "42"], "{name}");
    let messages = &model.requests()[1].messages;
    let ModelMessage::Agent(answer) = &messages[1] else { panic!("{name}") };
    assert_eq!((answer.text().as_ref(), answer.calls().count()), ("I check.", 2), "{name}");
    let ModelMessage::ToolResults(results) = &messages[2] else { panic!("{name}") };
    assert_eq!(results.iter().map(|r| r.output.as_str()).collect::<Vec<_>>(), ["true", "42"], "{name}");
    let texts: Vec<_> = dialogue(&chat).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["go", "I check.", "42"], "{name}");
}

each_store!(a_call_is_stored_before_the_tool_runs);

/// What fails, panics, takes too long, is too large or is not there becomes a result, and the run goes on.
async fn failing_tools_are_isolated(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let turn = ["fail", "panic", "sleep", "nothing", "huge", "", "add", "\n"]
        .iter()
        .enumerate()
        .fold(Turn::new(), |turn, (n, tool)| turn.call(&format!("c{n}"), tool, json("[1]")));
    let turns = vec![turn, Turn::new().text("done")];
    let config = Config::default().with_tool_timeout(Duration::from_secs(60));
    let (chat, report, model) = outcomes(&storage, config, turns).await;
    assert_eq!(report.text, "done", "{name}");
    let calls = calls(&chat).await;
    let expected = [
        (ToolOutcome::Error, "the door is locked"),
        (ToolOutcome::Error, "panicked"),
        (ToolOutcome::Error, "longer than 60s"),
        (ToolOutcome::Error, "no such tool; there are: add, fail"),
        (ToolOutcome::Ok, "left out"),
        (ToolOutcome::Error, "no such tool"),
        (ToolOutcome::Ok, "1"),
        (ToolOutcome::Error, "no such tool"),
    ];
    assert_eq!(calls.len(), expected.len(), "{name}");
    for ((call, results), (outcome, text)) in calls.iter().zip(expected) {
        assert_eq!(results.len(), 1, "{name}: {}", call.name);
        assert_eq!(results[0].outcome, outcome, "{name}: {}", call.name);
        assert!(results[0].output.get().contains(text), "{name}: {}", results[0].output.get());
    }
    assert_eq!(model.requests()[1].messages.len(), 3, "{name}");
}

each_store!(failing_tools_are_isolated, start_paused = true);

/// Hooks are called in order; one that fails or panics stops nothing.
async fn hooks_are_called_and_isolated(site: Site) {
    #[derive(Debug)]
    struct Bad;
    #[async_trait]
    impl Plugin for Bad {
        fn name(&self) -> &str {
            "bad"
        }
        async fn before_run(&self, _: &SessionRecord) -> Result<()> {
            panic!("bad hook")
        }
        async fn after_run(&self, _: &SessionRecord, _: &RunReport) -> Result<()> {
            Err(Error::new(ErrorKind::Provider, "bad hook"))
        }
    }
    /// Says when it is called.
    #[derive(Debug)]
    struct Loud(&'static str, Arc<Mutex<Vec<String>>>);
    #[async_trait]
    impl Plugin for Loud {
        fn name(&self) -> &str {
            self.0
        }
        async fn before_run(&self, _: &SessionRecord) -> Result<()> {
            self.1.lock().unwrap().push(format!("{} before", self.0));
            Ok(())
        }
        async fn after_run(&self, _: &SessionRecord, _: &RunReport) -> Result<()> {
            self.1.lock().unwrap().push(format!("{} after", self.0));
            Ok(())
        }
    }
    let (name, storage) = (site.name, site.open().await);
    let (tools, recorded) = (Arc::new(Tools::default()), Arc::new(Mutex::default()));
    let loud = |name| Arc::new(Loud(name, Arc::clone(&recorded))) as _;
    let model = ScriptedProvider::new([Turn::new().text("hi")]);
    // Not in the order of their names, and with one that fails between them.
    let plugins = [loud("z"), Arc::new(Bad) as _, loud("a"), tools.clone() as _, loud("m")];
    let agent = agent_with(&storage, model, Config::default(), plugins);
    let chat = agent.open(&device("laptop")).await.unwrap();
    read(chat.prompt("go").await.unwrap()).await;
    assert_eq!(*tools.hooks.lock().unwrap(), ["before running", "after idle hi"], "{name}");
    let order = ["z before", "a before", "m before", "z after", "a after", "m after"];
    assert_eq!(*recorded.lock().unwrap(), order, "{name}: in the order of registration");
}

each_store!(hooks_are_called_and_isolated);

/// Peers 14: ids that a model repeats, leaves out or overdoes are made unique; each call keeps exactly one result.
async fn bad_call_ids_are_made_unique(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let long = "x".repeat(500);
    let turns = vec![
        Turn::new().call("same", "add", json("[1]")).call("same", "add", json("[2]")),
        Turn::new().call("", "add", json("[3]")).call(&long, "add", json("[4]")),
        Turn::new().call("same", "add", json("[5]")).call("a\nb", "add", json("[6]")),
        Turn::new().text("done"),
    ];
    let (chat, _, model) = outcomes(&storage, Config::default(), turns).await;
    let calls = calls(&chat).await;
    let results: Vec<_> = calls.iter().map(|(_, results)| results[0].output.get()).collect();
    assert_eq!(results, ["1", "2", "3", "4", "5", "6"], "{name}");
    let mut ids: Vec<_> = calls.iter().map(|(call, _)| call.call.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6, "{name}");
    // What every provider takes: at most 40 letters, digits, hyphens and low lines.
    for id in ids.iter().map(agent_core::model::CallId::as_str) {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        assert!(id.len() <= 40 && id.chars().all(fits), "{name}: {id}");
    }
    assert_eq!(model.requests()[3].messages.len(), 7, "{name}");
}

each_store!(bad_call_ids_are_made_unique);

/// A run makes at most so many model calls and tool calls, and says so.
async fn limits_end_a_run_with_max_turns(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let forever =
        || (0..10).map(|n| Turn::new().text(format!("{n}")).call("c", "add", json("[1]"))).collect();
    let (chat, report, model) = outcomes(&storage, Config::default().with_max_turns(3), forever()).await;
    assert_eq!(report.outcome, RunOutcome::Completed(Reason::MaxTurns), "{name}");
    assert_eq!(model.requests().len(), 3, "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.status.reason), (SessionState::Idle, Reason::MaxTurns), "{name}");
    chat.delete().await.unwrap();
    storage.workspaces.delete(now.workspace).await.unwrap();

    let many = (0..100).fold(Turn::new(), |turn, n| turn.call(&format!("c{n}"), "add", json("[1]")));
    let config = Config::default().with_max_tool_calls(70);
    let (chat, report, model) = outcomes(&storage, config, vec![many, Turn::new()]).await;
    assert_eq!(report.outcome, RunOutcome::Completed(Reason::MaxTurns), "{name}");
    assert_eq!(model.requests().len(), 1, "{name}");
    let calls = calls(&chat).await;
    let done = calls.iter().filter(|(_, results)| results[0].outcome == ToolOutcome::Ok).count();
    assert_eq!((calls.len(), done), (70, 64), "{name}: as many as a record holds open at once");
    let refused: String = calls[69].1[0].output.to().unwrap();
    assert!(refused.contains("call it again"), "{name}: {refused}");
    let commits: BTreeSet<_> = log(&chat)
        .await
        .iter()
        .filter(|event| event.kind == EventType::AGENT_TOOL_USE)
        .map(|event| event.commit)
        .collect();
    assert_eq!(commits.len(), 1, "{name}: an answer is one commit");
}

each_store!(limits_end_a_run_with_max_turns);

/// Peers 5: a large output is stored whole, and the model is given its two ends, cut at characters.
async fn large_outputs_are_stored_whole_and_shown_short(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let turns = vec![Turn::new().call("c", "large", json("{}")), Turn::new().text("done")];
    let context = ContextLimits::new(100, 1 << 20).with_tool_output_bytes(1001);
    let (chat, _, model) = outcomes(&storage, Config::default().with_context_limits(context), turns).await;
    let result = calls(&chat).await[0].1[0].clone();
    let full = result.full.as_ref().expect("the whole is kept");
    let whole = chat.output_content(&result).await.unwrap().into_bytes(1 << 20).await.unwrap();
    assert!(whole == "한글🙂".repeat(50_000), "{name}");
    assert_eq!((full.media_type.as_str(), full.bytes), ("text/plain", 500_000), "{name}");
    let ModelMessage::ToolResults(results) = &model.requests()[1].messages[2] else { panic!("{name}") };
    let shown = &results[0].output;
    assert_eq!(*shown, result.output.to::<String>().unwrap(), "{name}: what stands inline");
    assert!(shown.len() < 1300 && shown.contains(" left out"), "{name}: {}", shown.len());
    assert!(shown.starts_with("한글🙂") && shown.ends_with('🙂'), "{name}");
}

each_store!(large_outputs_are_stored_whole_and_shown_short);

/// The results of one answer share half of the room, however many they are.
async fn results_of_an_answer_share_half_the_room(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let many = (0..8).fold(Turn::new(), |turn, n| turn.call(&format!("c{n}"), "large", json("{}")));
    let context = ContextLimits::new(100, 64_000);
    let config = Config::default().with_context_limits(context);
    let (_, _, model) = outcomes(&storage, config, vec![many, Turn::new().text("done")]).await;
    let ModelMessage::ToolResults(results) = &model.requests()[1].messages[2] else { panic!("{name}") };
    let shown: usize = results.iter().map(|result| result.output.len()).sum();
    assert!((30_000..35_000).contains(&shown), "{name}: {shown} of 64,000");
}

each_store!(results_of_an_answer_share_half_the_room);

/// A run that is cancelled while a tool works gives the open call its one result, and starts no other tool.
async fn cancel_during_a_tool_closes_the_call(site: Site) {
    let model = ScriptedProvider::new([Turn::new()
        .call("a", "add", json("[1]"))
        .call("b", "sleep", json("{}"))
        .call("c", "add", json("[1]"))]);
    let tools = Arc::new(Tools::default());
    let config = Config::default().with_tool_timeout(Duration::from_secs(3600 * 2));
    let Scene { name, chat, .. } = Scene::with(&site, model, config, [tools.clone() as _]).await;
    let run = chat.prompt("go").await.unwrap();
    crate::common::eventually(async || tools.called.load(Ordering::SeqCst) == 2).await;
    run.cancel();
    assert_eq!(read(run).await.1.outcome, RunOutcome::Interrupted, "{name}");
    let outcomes: Vec<_> = calls(&chat).await.iter().map(|(_, results)| results[0].outcome).collect();
    let expected = [ToolOutcome::Ok, ToolOutcome::Interrupted, ToolOutcome::Interrupted];
    assert_eq!(outcomes, expected, "{name}");
    assert_eq!(tools.called.load(Ordering::SeqCst), 2, "{name}");
    assert!(chat.refresh().await.unwrap().open_calls.is_empty(), "{name}");
    check_log(&chat).await;
}

each_store!(cancel_during_a_tool_closes_the_call, start_paused = true);
