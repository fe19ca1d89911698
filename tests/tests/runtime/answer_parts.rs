//! Parts of an answer as its readers receive them. Each has the name that it has in the log, and the text of all of
//! them is the text of the answer.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_core::event::{EventPayload, HostedCall, Media, Part};
use agent_core::json::RawJson;
use agent_core::model::Role;
use agent_core::state::Reason;
use agent_core::{CommitId, MemoryStore, Storage, WorkspaceId};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Conversation, Gate, ModelCall, ModelEvent, ModelPart, PartKind, RunOutcome,
    Scheduler, ScriptedProvider, StopReason, Turn, Update, tool,
};
use futures::StreamExt;
use serde_json::Value;
use tokio::time::timeout;

use crate::common::{agent, log, queued, until_text};

/// How long to wait before a test is given up as stuck. Never what a test is about.
const STUCK: Duration = Duration::from_secs(60);

fn cat() -> Part {
    Part::Image(Media::inline("image/png", *b"\x89PNG"))
}

/// Reads a run to its end; returns its updates.
async fn updates(chat: &Conversation, text: &str) -> Vec<Update> {
    let run = chat.prompt(text).await.unwrap();
    let updates = timeout(STUCK, run.map(Result::unwrap).collect()).await;
    updates.expect("the run ends")
}

/// The parts and pieces among the updates, and the commit that the parts name.
fn parts(updates: &[Update]) -> (Vec<String>, Option<CommitId>) {
    let mut named = None;
    let mut seen = Vec::new();
    for update in updates {
        seen.push(match update {
            Update::PartStarted { commit, index, kind, .. } => {
                assert_eq!(*named.get_or_insert(*commit), *commit, "an answer is one commit");
                format!("{index} {kind:?}")
            }
            Update::Text(piece) => format!("text {piece}"),
            Update::Thinking(piece) => format!("thinking {piece}"),
            Update::Part(part) => format!("part {}", part.text_view("").unwrap()),
            Update::ToolCalled(call) => format!("call {}", call.name),
            _ => continue,
        });
    }
    (seen, named)
}

/// Each number that is streamed is that of an item in the log: of its `part`, or of its place.
async fn names_of_items(chat: &Conversation, commit: CommitId) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    for event in log(chat).await.iter().filter(|event| event.commit == commit) {
        let index = match event.decode().unwrap() {
            EventPayload::AgentMessage(message) | EventPayload::AgentThinking(message) => message.part,
            EventPayload::AgentPart(item) => item.part,
            EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => call.part,
            _ => continue,
        };
        let place = u32::try_from(names.len()).unwrap();
        names.insert(index.unwrap_or(place), event.kind.to_string());
    }
    names
}

#[tokio::test]
async fn streamed_parts_have_the_names_of_the_log() {
    let hidden = ModelPart::reasoning("");
    let turn = Turn::silent()
        .event(ModelEvent::part_started(0, PartKind::Reasoning))
        .event(ModelEvent::part_started(1, PartKind::Text))
        .event(ModelEvent::delta(1, "A "))
        .event(ModelEvent::delta(0, "cat?"))
        .event(ModelEvent::delta(1, "tabby."))
        .event(ModelEvent::delta(1, " Yes."))
        .event(ModelEvent::part_done(0, ModelPart::reasoning("cat?")))
        .event(ModelEvent::part_done(1, ModelPart::text("A tabby. Yes.")))
        .event(ModelEvent::part_done(2, hidden))
        .event(ModelEvent::part_done(3, ModelPart::part(Part::HostedCall(HostedCall::new("search")))))
        .event(ModelEvent::part_done(4, ModelPart::text("Look:")))
        .event(ModelEvent::part_done(5, ModelPart::part(cat())))
        .event(ModelEvent::part_done(6, ModelPart::part(Part::refusal("No more."))))
        .done(StopReason::EndTurn);
    let chat = agent(&MemoryStore::new().into(), ScriptedProvider::new([turn]));
    let chat = chat.conversation("key").await.unwrap();
    let (seen, commit) = parts(&updates(&chat, "What is it?").await);
    let expected = [
        "0 Reasoning",
        "1 Text",
        "text A ",
        "0 Reasoning",
        "thinking cat?",
        "1 Text",
        "text tabby.",
        "text  Yes.",
        "2 Reasoning",
        "3 Other",
        "part [search, run by the provider]",
        "4 Text",
        "text Look:",
        "5 Other",
        "part [image, image/png, 4 bytes]",
        "6 Refusal",
        "text No more.",
    ];
    assert_eq!(seen, expected);
    let stored = names_of_items(&chat, commit.unwrap()).await;
    let expected = [
        (0, "agent.thinking"),
        (1, "agent.message"),
        (3, "agent.part"),
        (4, "agent.message"),
        (5, "agent.part"),
        (6, "agent.part"),
    ];
    assert_eq!(stored, expected.map(|(index, kind)| (index, kind.to_owned())).into());
}

/// Parts that the provider does not number are counted, and one that is not stored counts too.
#[tokio::test]
async fn parts_without_numbers_have_the_names_of_the_log() {
    let turn = Turn::new()
        .event(ModelEvent::thinking("cat?"))
        .text("A ")
        .text("tabby.")
        .event(ModelEvent::thinking("sure"))
        .text("Yes.");
    let chat = agent(&MemoryStore::new().into(), ScriptedProvider::new([turn]));
    let chat = chat.conversation("key").await.unwrap();
    let (seen, commit) = parts(&updates(&chat, "What is it?").await);
    let expected = [
        "0 Reasoning",
        "thinking cat?",
        "1 Text",
        "text A ",
        "text tabby.",
        "2 Reasoning",
        "thinking sure",
        "3 Text",
        "text Yes.",
    ];
    assert_eq!(seen, expected);
    let stored = names_of_items(&chat, commit.unwrap()).await;
    for (index, kind) in &stored {
        assert_eq!(*kind, if index % 2 == 0 { "agent.thinking" } else { "agent.message" });
    }
    assert!(stored.contains_key(&1) && stored.contains_key(&3), "{stored:?}");
}

/// The names hold for calls that are refused and for an answer that is cut.
#[tokio::test]
async fn a_cut_answer_has_the_names_it_was_streamed_with() {
    let turn = Turn::silent()
        .event(ModelEvent::part_done(0, ModelPart::text("One.")))
        .event(ModelEvent::part_done(
            1,
            ModelPart::call(ModelCall::new("c", "look", RawJson::empty_object())),
        ))
        .event(ModelEvent::part_done(2, ModelPart::text("Two.")))
        .done(StopReason::MaxTokens);
    let chat = agent(&MemoryStore::new().into(), ScriptedProvider::new([turn]));
    let chat = chat.conversation("key").await.unwrap();
    let (seen, commit) = parts(&updates(&chat, "Count.").await);
    let expected = ["0 Text", "text One.", "1 Call", "2 Text", "text Two.", "call look"];
    assert_eq!(seen, expected, "a call that is not made is shown, too");
    let stored = names_of_items(&chat, commit.unwrap()).await;
    let expected = [(0, "agent.message"), (1, "agent.tool_use"), (2, "agent.message")];
    assert_eq!(stored, expected.map(|(index, kind)| (index, kind.to_owned())).into());
}

/// A conversation whose agent knows the secret `hunter2-hunter2`, with a model that gives this answer.
async fn with_secret(turn: Turn) -> Conversation {
    let name: SecretName = "key".parse().unwrap();
    let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new("hunter2-hunter2").unwrap())]));
    secrets.reveal(WorkspaceId::DEFAULT, &name).await.unwrap();
    let builder = AgentBuilder::new().with_llm(ScriptedProvider::new([turn])).with_secrets(secrets);
    open(&builder.with_storage(MemoryStore::new()).build().unwrap()).await
}

#[tokio::test]
async fn a_secret_split_over_mixed_parts_is_redacted() {
    let turn = Turn::silent()
        .event(ModelEvent::part_started(0, PartKind::Text))
        .event(ModelEvent::part_started(1, PartKind::Text))
        .event(ModelEvent::delta(0, "It is hunter2"))
        .event(ModelEvent::delta(1, "aside"))
        .event(ModelEvent::delta(0, "-hunter2."))
        .event(ModelEvent::part_done(0, ModelPart::text("It is hunter2-hunter2.")))
        .event(ModelEvent::part_done(1, ModelPart::text("aside")))
        .event(ModelEvent::part_done(
            2,
            ModelPart::part(Part::Image(Media::inline("image/png", *b"x").with_name("hunter2-hunter2"))),
        ))
        .done(StopReason::EndTurn);
    let (seen, _) = parts(&updates(&with_secret(turn).await, "What is it?").await);
    let seen = seen.join("\n");
    assert!(!seen.contains("hunter2"), "{seen}");
    assert!(seen.contains("It is") && seen.contains("aside") && seen.contains("[image"), "{seen}");
}

/// Text that may begin a secret is held back no longer than until its part ends.
#[tokio::test]
async fn a_part_is_shown_whole_before_the_next() {
    let turn = Turn::silent()
        .event(ModelEvent::part_started(0, PartKind::Text))
        .event(ModelEvent::delta(0, "Ah"))
        .event(ModelEvent::part_done(0, ModelPart::text("Ah")))
        .event(ModelEvent::part_started(1, PartKind::Text))
        .event(ModelEvent::delta(1, "so."))
        .event(ModelEvent::part_done(1, ModelPart::text("so.")))
        .done(StopReason::EndTurn);
    let (seen, _) = parts(&updates(&with_secret(turn).await, "Well?").await);
    assert_eq!(seen, ["0 Text", "text A", "text h", "1 Text", "text so."]);
}

/// An answer of two texts, with reasoning between them.
fn two_texts(gate: &Gate) -> Turn {
    Turn::new()
        .text("I think. ")
        .gate(gate)
        .event(ModelEvent::thinking("hm"))
        .text("It is so.")
        .done(StopReason::EndTurn)
}

async fn open(agent: &AgentRuntime) -> Conversation {
    agent.conversation("key").await.unwrap()
}

#[tokio::test]
async fn a_queued_input_is_given_all_texts_of_its_answer() {
    let storage: Storage = MemoryStore::new().into();
    let (first, open_gate) = (Gate::new(), Gate::new());
    open_gate.open();
    let look = tool("look", "looks", |_: BTreeMap<String, Value>, _| async { Ok::<_, String>("seen") });
    let model = ScriptedProvider::new([
        Turn::new().text("so").gate(&first),
        Turn::new().text("Let me look.").call("c", "look", RawJson::empty_object()),
        two_texts(&open_gate),
    ]);
    let builder = AgentBuilder::new().with_llm(model).with_tool(look).with_storage(storage);
    let agent = builder.build().unwrap();
    let chat = open(&agent).await;
    let mut run = chat.prompt("One").await.unwrap();
    until_text(&mut run).await;
    let waits = queued(chat.prompt("Two").await.unwrap()).await;
    first.open();
    let report = timeout(STUCK, chat.wait_for_answer(&waits)).await.expect("it is answered").unwrap();
    assert_eq!(report.text, "I think. It is so.");
    // Another process reads it from the log alone.
    let report = chat.wait_for_answer(&waits).await.unwrap();
    assert_eq!(report.text, "I think. It is so.", "the last answer, and not the one before the call");
    let ended = run.finish().await.unwrap();
    assert_eq!((ended.text.as_str(), ended.outcome), ("so", RunOutcome::Completed(Reason::EndTurn)));
}

#[tokio::test]
async fn a_child_reports_all_texts_of_its_answer() {
    let gate = Gate::new();
    gate.open();
    let agent = agent(&MemoryStore::new().into(), ScriptedProvider::new([two_texts(&gate)]));
    let parent = open(&agent).await;
    parent.start_child("find it", &Default::default()).await.unwrap();
    Scheduler::new(agent.clone()).round().await.unwrap();
    let results: Vec<_> = log(&parent).await.iter().filter_map(|event| event.decode().ok()).collect();
    let result = results.into_iter().find_map(|payload| match payload {
        EventPayload::SessionChildIdle(end) => end.result,
        _ => None,
    });
    assert_eq!(result.as_deref(), Some("I think. It is so."));
}

#[tokio::test]
async fn messages_include_refusals_and_media() {
    let turn = Turn::new()
        .event(ModelEvent::part_done(0, ModelPart::part(Part::HostedCall(HostedCall::new("search")))))
        .event(ModelEvent::part_done(1, ModelPart::part(cat())))
        .event(ModelEvent::part_done(2, ModelPart::part(Part::refusal("No more."))));
    let chat = open(&agent(&MemoryStore::new().into(), ScriptedProvider::new([turn]))).await;
    updates(&chat, "Draw a cat.").await;
    let messages: Vec<_> = chat.messages().map(Result::unwrap).collect().await;
    let seen: Vec<_> =
        messages.iter().map(|message| (message.role, &*message.text, &*message.parts)).collect();
    let expected = [
        (Role::User, "Draw a cat.", &[][..]),
        (Role::Agent, "", &[cat()][..]),
        (Role::Agent, "No more.", &[Part::refusal("No more.")][..]),
    ];
    assert_eq!(seen, expected);
}
