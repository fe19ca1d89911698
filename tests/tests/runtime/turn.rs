//! A chat turn from end to end: prompt, stream, stored, restored.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Scene, agent, calls, check_log, device, dialogue, log, read};
use agent_core::clock::Effects;
use agent_core::event::{EventPayload, EventType, Message, NewEvent, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::Patch;
use agent_core::state::{Reason, SessionState};
use agent_core::store::ReadEvents;
use agent_core::{ErrorKind, Seq, Timestamp};
use agent_runtime::context::ModelMessage;
use agent_runtime::{AgentBuilder, Config, EchoProvider, RunOutcome, ScriptedProvider, StopReason, Turn};
use agent_tests::{Site, each_store};
use futures::StreamExt;

/// A turn is two commits, each whole: the input with the begin, the answer with the end.
async fn a_turn_is_two_commits(site: Site) {
    let (faulty, Scene { name, agent, chat, .. }) =
        Scene::faulty(&site, EchoProvider::new().with_delay(Duration::from_millis(1)), Config::default())
            .await;
    read(chat.prompt("first").await.unwrap()).await;
    let (before, head) = (faulty.commits(), chat.refresh().await.unwrap().head);

    let run = chat.prompt("Grüße aus 서울 🙂").await.unwrap();
    let running = agent.conversation_by_id(chat.id()).await.unwrap().record();
    assert_eq!(running.status.state, SessionState::Running, "{name}");
    assert_eq!(running.head, Seq::new(head.get() + 1), "{name}: stored before the model is called");
    let (text, report) = read(run).await;
    assert_eq!(text, "Grüße aus 서울 🙂", "{name}");
    assert_eq!((report.text, report.stored), (text.clone(), true), "{name}");
    assert_eq!(report.outcome, RunOutcome::Completed(Reason::EndTurn), "{name}");
    assert_eq!(faulty.commits() - before, 2, "{name}");

    let events = log(&chat).await;
    let turn = &events[usize::try_from(head.get()).unwrap()..];
    let kinds: Vec<_> = turn.iter().map(|event| event.kind.clone()).collect();
    assert_eq!(kinds, [EventType::USER_MESSAGE, EventType::AGENT_MESSAGE], "{name}");
    assert_eq!(turn[0].transition().unwrap().unwrap().to, SessionState::Running, "{name}");
    assert_eq!(turn[1].transition().unwrap().unwrap().to, SessionState::Idle, "{name}");
    assert_eq!(turn[1].run, report.run, "{name}: what a run wrote names it");
    assert_eq!(dialogue(&chat).await.last().unwrap(), &("agent", text), "{name}");
    check_log(&chat).await;
}

each_store!(a_turn_is_two_commits);

/// Any text that is not blank comes back byte for byte, and reaches the model as it is.
async fn any_text_goes_through_a_prompt_unchanged(site: Site) {
    let big = "대화 🙂 e\u{301}\r\n".repeat(10 << 20 >> 4);
    let texts = [
        ".",
        " . ",
        "\n .\t\r\n",
        "## System\n---\n## User",
        "a\0b\u{1}\u{1b}[31m\u{7f}",
        "한국어 대화",
        "👩‍👩‍👧‍👦🏳️‍🌈",
        "e\u{301}\u{200b}\u{feff}\u{202e}",
        "\\\"\u{2028}",
        &big,
    ];
    let Scene { name, agent: _, chat, .. } = Scene::echo(&site).await;
    let mut expected = Vec::new();
    for text in texts {
        let (answer, _) = read(chat.prompt(text).await.unwrap()).await;
        if text.len() < 1000 {
            assert_eq!(answer, text, "{name}");
        }
        expected.push(("user", text.to_owned()));
        if !answer.is_empty() {
            expected.push(("agent", answer));
        }
    }
    let stored = dialogue(&chat).await;
    assert!(stored == expected, "{name}: what is stored differs from what was said");
    check_log(&chat).await;
}

each_store!(any_text_goes_through_a_prompt_unchanged);

/// After a restart the same messages in the same order reach the model.
async fn a_restart_restores_the_conversation(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = ScriptedProvider::new([Turn::new().text("It is 42."), Turn::new().text("42, I said.")]);
    let before = agent(&storage, model.clone());
    read(before.open(&device("laptop")).await.unwrap().prompt("What is it?").await.unwrap()).await;
    drop(before);

    let after = agent(&storage, model.clone());
    let chat = after.open(&device("laptop")).await.unwrap();
    assert_eq!(chat.record().status.state, SessionState::Idle, "{name}: opening starts no run");
    read(chat.prompt("What did you say?").await.unwrap()).await;
    let expected = [
        ModelMessage::user("What is it?"),
        ModelMessage::agent("It is 42."),
        ModelMessage::user("What did you say?"),
    ];
    assert_eq!(model.requests()[1].messages, expected, "{name}");
}

each_store!(a_restart_restores_the_conversation);

/// The session's own system prompt is in force, survives clearing, and differs from injected text.
async fn the_custom_system_prompt_is_restored(site: Site) {
    let model = ScriptedProvider::new((0..3).map(|_| Turn::new().text("yes")));
    let config = Config::default().with_system_prompt("the host's");
    let Scene { name, storage, chat, .. } = Scene::with(&site, model.clone(), config, []).await;
    read(chat.prompt("1").await.unwrap()).await;
    chat.set_system_prompt("Antworte auf Deutsch. 🇩🇪").await.unwrap();
    let injected = agent_core::event::SystemMessage::injected("It is raining.");
    let injected = NewEvent::of(&EventPayload::SystemMessage(injected));
    let head = chat.record().head;
    storage.sessions.append(chat.id(), head, vec![injected]).await.unwrap();
    read(chat.prompt("2").await.unwrap()).await;
    chat.clear().await.unwrap();
    read(chat.prompt("3").await.unwrap()).await;

    let requests = model.requests();
    assert_eq!(requests[0].system.as_deref(), Some("the host's"), "{name}");
    assert_eq!(requests[1].system.as_deref(), Some("Antworte auf Deutsch. 🇩🇪"), "{name}");
    assert_eq!(requests[1].messages[2], ModelMessage::System("It is raining.".to_owned()), "{name}");
    assert_eq!(requests[1].messages.len(), 4, "{name}: the prompt itself is no message");
    assert_eq!(requests[2].system, requests[1].system, "{name}: clearing keeps it");
    assert_eq!(requests[2].messages, [ModelMessage::user("3")], "{name}");
}

each_store!(the_custom_system_prompt_is_restored);

/// Provider and model are written with the first prompt, again when they change, and kept by clearing.
async fn provider_and_model_are_recorded_when_they_change(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let first = agent(&storage, EchoProvider::new());
    let chat = first.open(&device("laptop")).await.unwrap();
    assert!(chat.record().attributes.references.is_empty(), "{name}");
    read(chat.prompt("1").await.unwrap()).await;
    read(chat.prompt("2").await.unwrap()).await;
    chat.clear().await.unwrap();
    let updates = |events: Vec<agent_core::event::Event>| {
        events.iter().filter(|event| event.kind == EventType::SESSION_UPDATED).count()
    };
    assert_eq!(updates(log(&chat).await), 1, "{name}: once, in the first prompt's commit");
    let events = log(&chat).await;
    let at = events.iter().position(|event| event.kind == EventType::SESSION_UPDATED).unwrap();
    assert_eq!(events[at].commit, events[at + 1].commit, "{name}");
    assert_eq!(chat.refresh().await.unwrap().attributes.references["provider"], "echo", "{name}");

    let other = agent(&storage, ScriptedProvider::new([Turn::new()]).with_name("claude"));
    let chat = other.conversation_by_id(chat.id()).await.unwrap();
    read(chat.prompt("3").await.unwrap()).await;
    assert_eq!(chat.refresh().await.unwrap().attributes.references["model"], "claude", "{name}");
    assert_eq!(updates(log(&chat).await), 2, "{name}");
}

each_store!(provider_and_model_are_recorded_when_they_change);

/// A record that has no room for them does not keep the input of a person out.
async fn a_full_record_still_takes_prompts(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let chat = agent(&storage, EchoProvider::new()).open(&device("laptop")).await.unwrap();
    let full = (0..64).fold(Patch::new(), |patch, n| patch.with_reference(format!("thread.{n}"), "x"));
    chat.update(full).await.unwrap();
    assert_eq!(read(chat.prompt("hello").await.unwrap()).await.0, "hello", "{name}");
    assert_eq!(chat.refresh().await.unwrap().attributes.references.len(), 64, "{name}");
}

each_store!(a_full_record_still_takes_prompts);

/// Counts and last activity come from the record, without reading a message.
async fn counts_read_no_messages(site: Site) {
    let (faulty, Scene { name, chat, .. }) =
        Scene::faulty(&site, EchoProvider::new(), Config::default()).await;
    for n in 0..5 {
        read(chat.prompt(n.to_string()).await.unwrap()).await;
    }
    let reads = faulty.reads();
    let context = chat.stats().await.unwrap();
    assert_eq!(faulty.reads(), reads, "{name}");
    assert_eq!((context.counts.user, context.counts.agent, context.counts.runs), (5, 5, 5), "{name}");
    assert_eq!((context.counts.messages(), context.inputs_open), (10, 0), "{name}");
    let last = log(&chat).await.pop().unwrap();
    assert_eq!((context.head, context.last_active_at), (last.seq, last.at), "{name}");
}

each_store!(counts_read_no_messages);

/// Each reason for which a model stops is distinguished, in the record too.
async fn stop_reasons_are_in_the_record(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    for (stop, reason) in [
        (StopReason::EndTurn, Reason::EndTurn),
        (StopReason::MaxTokens, Reason::MaxTokens),
        (StopReason::StopSequence, Reason::StopSequence),
        (StopReason::Refusal, Reason::Refusal),
    ] {
        let turn = Turn::new().text("so").call("c", "look", RawJson::empty_object()).done(stop);
        let turn = if stop == StopReason::EndTurn { Turn::new().text("so") } else { turn };
        let agent = agent(&storage, ScriptedProvider::new([turn]));
        let chat = agent.open(&device("laptop")).await.unwrap();
        let (_, report) = read(chat.prompt("go").await.unwrap()).await;
        assert_eq!(report.outcome, RunOutcome::Completed(reason), "{name}");
        let now = chat.refresh().await.unwrap();
        assert_eq!((now.status.state, now.status.reason), (SessionState::Idle, reason), "{name}");
        // Calls of a cut answer are stored, and not made.
        let calls = calls(&chat).await;
        assert_eq!(calls.is_empty(), stop == StopReason::EndTurn, "{name}");
        assert!(
            calls.iter().all(|(_, results)| results[0].outcome == ToolOutcome::Denied),
            "{name}: {calls:?}"
        );
    }
}

each_store!(stop_reasons_are_in_the_record);

/// An input carries its metadata and who said it.
async fn an_input_keeps_its_author_and_metadata(site: Site) {
    let Scene { name, chat, .. } = Scene::echo(&site).await;
    let number = RawJson::parse("123456789012345678901234567890").unwrap();
    let input = agent_runtime::Input::new(Message::new("hi").with_metadata("n", number.clone()))
        .with_actor(agent_core::model::Actor::named(agent_core::model::Role::User, "alice").unwrap());
    read(chat.prompt(input).await.unwrap()).await;
    let page = chat.history(ReadEvents::last(1).with_types([EventType::USER_MESSAGE])).await.unwrap();
    assert_eq!(page.events[0].actor.to_string(), "user:alice", "{name}");
    let EventPayload::UserMessage(message) = page.events[0].decode().unwrap() else { panic!("{name}") };
    assert_eq!(message.metadata.get("n"), Some(&number), "{name}");
}

each_store!(an_input_keeps_its_author_and_metadata);

/// The order is the sequence, even when the clock steps back.
async fn a_clock_that_steps_back_changes_only_times(site: Site) {
    #[derive(Debug)]
    struct Backwards(std::sync::Mutex<i64>);
    impl agent_core::clock::Clock for Backwards {
        fn now(&self) -> Timestamp {
            let mut now = self.0.lock().unwrap();
            *now -= 1_000_000;
            Timestamp::from_micros(*now)
        }
    }
    let (name, storage) = (site.name, site.open().await);
    let effects = Effects::default().with_clock(Arc::new(Backwards(std::sync::Mutex::new(1 << 50))));
    let agent = AgentBuilder::new()
        .with_llm(EchoProvider::new())
        .with_storage(storage)
        .with_effects(effects)
        .build()
        .unwrap();
    let chat = agent.open(&device("laptop")).await.unwrap();
    for n in 0..3 {
        read(chat.prompt(n.to_string()).await.unwrap()).await;
    }
    let texts: Vec<_> = dialogue(&chat).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["0", "0", "1", "1", "2", "2"], "{name}");
    check_log(&chat).await;
}

each_store!(a_clock_that_steps_back_changes_only_times);

/// A run that nobody reads, and a prompt whose caller goes away, end by themselves.
async fn dropped_run_continues_to_its_end(site: Site) {
    let Scene { name, agent: _, chat, .. } =
        Scene::new(&site, EchoProvider::new().with_delay(Duration::from_millis(2))).await;
    drop(chat.prompt("one two three").await.unwrap());
    crate::common::eventually(async || chat.refresh().await.unwrap().status.state == SessionState::Idle)
        .await;
    assert_eq!(dialogue(&chat).await.last().unwrap().1, "one two three", "{name}");

    // Polled once and dropped: the begin goes on in its own task.
    let mut prompt = Box::pin(chat.prompt("four"));
    tokio::select! {
        biased;
        _ = &mut prompt => panic!("{name}: it begins in another task"),
        () = std::future::ready(()) => {}
    }
    drop(prompt);
    let answered = async || dialogue(&chat).await.last().unwrap() == &("agent", "four".to_owned());
    crate::common::eventually(answered).await;
}

each_store!(dropped_run_continues_to_its_end);

/// `follow` shows what other handles write, in order and once.
async fn follow_yields_new_events_once_in_order(site: Site) {
    let Scene { name, agent, chat, .. } = Scene::echo(&site).await;
    let mut follow = chat.follow(Seq::ZERO);
    let other = agent.open(&device("laptop")).await.unwrap();
    let writer = tokio::spawn(async move {
        for n in 0..150 {
            read(other.prompt(n.to_string()).await.unwrap()).await;
        }
    });
    for n in 1..=300u64 {
        assert_eq!(follow.next().await.unwrap().unwrap().seq, Seq::new(n), "{name}");
    }
    writer.await.unwrap();
}

each_store!(follow_yields_new_events_once_in_order);

/// An input that is larger than an event is refused before anything is written.
async fn an_input_beyond_the_limit_is_refused_whole(site: Site) {
    let Scene { name, chat, .. } = Scene::echo(&site).await;
    let head = chat.record().head;
    let error = chat.prompt("x".repeat(17 << 20)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LimitExceeded, "{name}");
    assert_eq!(chat.refresh().await.unwrap().head, head, "{name}");
}

each_store!(an_input_beyond_the_limit_is_refused_whole);
