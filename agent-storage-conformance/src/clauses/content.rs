//! Stored data is returned byte for byte: any text, any number, any type, any field; in the order of the sequence,
//! regardless of the clock.

use agent_core::commit::{Commit, LeaseRequest, Trigger};
use agent_core::event::{
    AgentPart, AgentResponse, AuditedOperation, Decision, DocumentWritten, Event, EventPayload, EventType,
    Interrupt, Learning, LearningKind, LearningPromoted, Media, Message, Native, NewEvent, Operation, Part,
    SpanCompleted, SpanStarted, SystemMessage, ToolConfirmation, ToolOutcome, ToolResult, ToolUse,
};
use agent_core::json::RawJson;
use agent_core::model::{ActionId, Actor, Artifact, Cost, Patch, Role, RunUsage, Timer, Title, Usage};
use agent_core::store::ReadEvents;
use agent_core::{SessionId, Storage, Timestamp};

use crate::failure::{Checked, Failure, holds_for, same};
use crate::registry::{Clause, table};
use crate::stage::{START, Stage, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![Content:
        any_text_comes_back_byte_for_byte,
        ten_mebibytes_come_back_byte_for_byte,
        numbers_of_any_size_are_not_rewritten,
        unknown_types_and_fields_are_kept,
        every_known_type_round_trips,
        only_committed_data_is_stored,
        event_authors_are_kept,
        order_follows_sequence_if_the_clock_steps_back,
        earliest_and_latest_times_are_kept,
    ]
}

/// Commits one event per text, in several commits, and reads all of them after reopening.
async fn round_trip(stage: &Stage, events: Vec<NewEvent>) -> Checked {
    let mut storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    let first = session.head;
    for part in events.chunks(7) {
        let commit = stage.seal(&session).with_events(part.iter().cloned());
        session = storage.sessions.commit(commit).await?.session;
    }
    for _ in 0..2 {
        let stored = own_events(&storage, session.id, 5).await?;
        let stored: Vec<&Event> = stored.iter().filter(|event| event.seq > first).collect();
        same("the number of events", &stored.len(), &events.len())?;
        for (event, texts) in stored.iter().zip(&events) {
            same("the type", &event.kind, &texts.kind)?;
            same(
                format_args!("the payload of event {}", event.seq),
                event.payload.get(),
                texts.payload.get(),
            )?;
            same("the further fields", &event.extra, &texts.extra)?;
        }
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// Returns texts that a careless store changes, truncates or takes for structure.
fn hostile_texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        " ",
        "\n",
        "\r",
        "\r\n",
        "\n\n\n",
        "\t",
        "\0",
        "a\0b",
        "\u{1}\u{2}\u{1b}[31m\u{7f}",
        "line\r\nline\rline\n",
        "## User",
        "## System\n\nobey",
        "---",
        "---\nformat: 2\n---\n",
        "\\## User",
        "\\\\",
        "{\"seq\":1}",
        "}\n{",
        "\"",
        "'",
        "'; drop table events; --",
        "%s%n",
        "$1",
        "${HOME}",
        "\u{feff}bom",
        "\u{fffe}\u{ffff}",
        "\u{202e}right to left",
        "e\u{301} and \u{e9}",
        "한국어 안녕하세요",
        "\u{1112}\u{1161}\u{11ab}\u{1100}",
        "👩‍👩‍👧‍👦 🇰🇷 👍🏽",
        "\u{10ffff}",
        "\u{d7ff}\u{e000}",
        "a\u{300}\u{301}\u{302}\u{303}\u{304}\u{305}",
        "\u{2028}\u{2029}\u{85}",
        "﷽",
        "null",
        "NaN",
        "-0",
        "1e999",
        "ends with a backslash \\",
        "  leading and trailing  ",
        "\u{0}",
        "é".repeat(300).as_str(),
    ]
    .map(str::to_owned)
    .to_vec();
    // A character across every boundary of a block.
    for size in [511, 4095, 8191, 65_535] {
        texts.push(format!("{}한", "x".repeat(size)));
    }
    texts.push((0..0x300u32).filter_map(char::from_u32).collect());
    texts
}

/// Any text is returned byte for byte, as a message of a person, of the agent or of the system.
async fn any_text_comes_back_byte_for_byte(stage: &Stage) -> Checked {
    let texts = hostile_texts();
    let mut events: Vec<NewEvent> = Vec::new();
    for text in &texts {
        events.push(NewEvent::user_message(text.as_str()));
        events.push(NewEvent::agent_message(text.as_str()));
        events.push(NewEvent::of(&EventPayload::SystemMessage(SystemMessage::injected(text.as_str()))));
    }
    round_trip(stage, events.clone()).await?;
    // And the typed view gives the text itself.
    for (event, text) in events.iter().step_by(3).zip(&texts) {
        let message: Message = event.payload.to()?;
        same("the text", &message.text, text)?;
    }
    Ok(())
}

/// A message of 10 MiB, with characters of every width, is returned byte for byte.
async fn ten_mebibytes_come_back_byte_for_byte(stage: &Stage) -> Checked {
    let text = "aé한👍\n\"\\\u{0}".repeat((10 << 20) / 14);
    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let commit = stage.seal(&session).with_event(NewEvent::user_message(text.as_str()));
    let done = storage.sessions.commit(commit).await?;
    let after = stage.append(&storage, &done.session, "short").await?;
    storage = stage.reopen(storage).await?;
    let page = storage.sessions.read(session.id, ReadEvents::first(10).with_after(session.head)).await?;
    let Some(event) = page.events.first() else {
        return Err(Failure::new("a page with one large event", "that event", "an empty page"));
    };
    let message: Message = event.payload.to()?;
    holds_for("the text is the same", &message.text.len(), message.text == text)?;
    let page = storage.sessions.read(session.id, ReadEvents::last(1)).await?;
    same("the event after it", &page.events.first().map(|event| event.seq), &Some(after.last))?;
    Ok(())
}

fn custom(kind: &str, json: &str) -> Checked<NewEvent> {
    Ok(NewEvent::new(kind.parse()?, RawJson::parse(json)?))
}

/// Numbers of any size and any spelling, the order and repetition of keys, and escapes stay unchanged.
async fn numbers_of_any_size_are_not_rewritten(stage: &Stage) -> Checked {
    let mut events = Vec::new();
    for json in [
        "0",
        "-0",
        "-0.0",
        "1.0",
        "1.10",
        "1E5",
        "1e+5",
        "1e-400",
        "1e400",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "123456789012345678901234567890.123456789012345678901234567890",
        "0.1",
        "9007199254740993",
        "{\"b\":1,\"a\":2,\"b\":3}",
        "{\"\":\"\",\" \":\" \"}",
        "[]",
        "{}",
        "null",
        "true",
        "\"\"",
        "\"\\u0000\\ud83d\\ude00\\/\\b\"",
        "\"\\ud800 alone\"",
        "[[[[[[[[[[1e1]]]]]]]]]]",
        "{\"seq\":7,\"crc\":\"x\",\"data\":{}}",
    ] {
        events.push(custom("x.app.value", json)?);
        events.push(custom("x.app.nested", &format!("{{\"value\":{json},\"again\":[{json},{json}]}}"))?);
    }
    let metadata =
        RawJson::parse("{\"cost\":0.1000000000000000055511151231257827,\"id\":123456789012345678901}")?;
    events.push(NewEvent::of(&EventPayload::UserMessage(
        Message::new("priced").with_metadata("bill", metadata),
    )));
    round_trip(stage, events).await
}

/// Types and fields that this version does not know are kept byte for byte and in their order. Events of a known type
/// keep unknown fields of their payload too.
async fn unknown_types_and_fields_are_kept(stage: &Stage) -> Checked {
    let mut events = vec![
        custom("x.app.anything", "[1,{\"deep\":[null]}]")?,
        custom("user.gesture", "{\"kind\":\"wave\"}")?,
        custom("agent.dream", "\"of sheep\"")?,
        custom("user.message", "{\"text\":\"hi\",\"colour\":\"red\",\"big\":1e400}")?,
        custom("user.message", "{\"big\":18446744073709551616,\"text\":\"order\"}")?,
        custom(&format!("x.{}", "y".repeat(126)), "{}")?,
    ];
    for (name, value) in [
        ("x_trace", "\"4bf92f3577b34da6\""),
        ("priority", "1.50"),
        ("key with spaces", "{\"z\":1,\"a\":2}"),
        ("", "null"),
        ("한", "[1e400]"),
    ] {
        let with = NewEvent::user_message("with a field").with_extra(name, RawJson::parse(value)?);
        events.push(with.with_extra("second", RawJson::parse("\"after it\"")?));
    }
    round_trip(stage, events).await
}

/// Every known event type is returned unchanged, in a conversation that has all of them.
async fn every_known_type_round_trips(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let (call, span) =
        ("call 1".parse::<agent_core::model::CallId>()?, "span 1".parse::<agent_core::model::SpanId>()?);
    let (custom_call, action) =
        ("call 2".parse::<agent_core::model::CallId>()?, "call 2".parse::<ActionId>()?);
    let run = stage.effects.new_run_id();
    let input = RawJson::parse("{\"path\":\"/tmp\"}")?;
    let picture = Media::inline("image/png", (0..=255).collect::<Vec<u8>>()).with_name("a\u{2028}.png");
    let item = RawJson::parse("{\"signature\":\"Eq\\/QB\",\"n\":1.10,\"a\":[1e400]}")?;
    let mut message = vec![
        EventPayload::UserDefineOutcome(Message::new("a green build")),
        EventPayload::SystemMessage(SystemMessage::custom("You are brief.")),
        EventPayload::UserMessage(Message::new("go").with_part(Part::Image(picture))),
    ];
    let begin = stage
        .seal(&session)
        .with_events(message.iter().map(NewEvent::of))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("holder", run)));
    let running = storage.sessions.commit(begin).await?.session;
    let work = vec![
        EventPayload::SpanStarted(SpanStarted::new(span.clone(), "model")),
        EventPayload::AgentThinking(Message::new("hm").with_native(Native::new("test", item))),
        EventPayload::AgentMessage(Message::new("I look.")),
        EventPayload::AgentPart(AgentPart::new(Part::refusal("Not at all of it.")).with_index(2)),
        EventPayload::AgentResponse(AgentResponse::new(running.head).with_stop("tool_use")),
        EventPayload::AgentToolUse(ToolUse::new(call.clone(), "list", input.clone())),
        EventPayload::AgentToolResult(ToolResult::new(call, ToolOutcome::Ok, RawJson::parse("[\"a\"]")?)),
        EventPayload::SpanCompleted(SpanCompleted::new(span, ToolOutcome::Ok)),
        EventPayload::AgentCustomToolUse(ToolUse::new(custom_call.clone(), "ask", input)),
    ];
    let question =
        agent_core::model::PendingAction::new(action, agent_core::model::ActionKind::ToolResult, "");
    let commit = stage
        .seal_run(&running, run)
        .with_events(work.iter().map(NewEvent::of))
        .with_trigger(Trigger::EndRun(agent_core::commit::RunEnd::Await(question)));
    let waiting = storage.sessions.commit(commit).await?.session;
    message.extend(work);
    let rest = vec![
        EventPayload::UserCustomToolResult(ToolResult::new(
            custom_call,
            ToolOutcome::Ok,
            RawJson::parse("1.0")?,
        )),
        EventPayload::UserInterrupt(Interrupt::new("stop")),
        EventPayload::SessionUpdated(
            Patch::new().with_title(Title::by_user("All types")).with_label("k", "v"),
        ),
        EventPayload::SessionTimerScheduled(Timer::new("daily", START)),
        EventPayload::SessionRunUsage(
            RunUsage::new(run, Usage::new(u64::MAX, 1)).with_cost(Some(Cost::new("USD", 3))),
        ),
        EventPayload::SessionArtifactRegistered(
            Artifact::new("report.md").with_hash("sha256:00").with_run(run),
        ),
        EventPayload::SessionLearningAdded(
            Learning::new(LearningKind::Lesson, "test\r\nfirst").with_key("k"),
        ),
        EventPayload::SessionLearningPromoted(LearningPromoted::new(session.head, "memory")),
        EventPayload::SessionOperationAudited(
            AuditedOperation::new(Operation::PurgeSession).with_session(session.id),
        ),
        EventPayload::SessionDocumentWritten(DocumentWritten::after(
            None,
            "note",
            Some("x\u{0}\r\n".to_owned()),
        )),
        EventPayload::SessionChildCreated(agent_core::event::ChildCreated::new(session.id)),
        EventPayload::SessionChildIdle(
            agent_core::event::ChildIdle::new(session.id, session.status).with_result("ok"),
        ),
        EventPayload::SessionStatusIdle(agent_core::event::Comment::new("rest")),
        EventPayload::SessionHistoryCleared(agent_core::event::Comment::default()),
    ];
    let end = storage
        .sessions
        .commit(stage.seal(&waiting).with_events(rest.iter().map(NewEvent::of)))
        .await?
        .session;
    message.extend(rest);
    storage = stage.reopen(storage).await?;
    let stored = own_events(&storage, session.id, 4).await?;
    let stored: Vec<_> = stored.iter().filter(|event| event.seq > session.head).collect();
    same("the number of events", &stored.len(), &message.len())?;
    for (event, body) in stored.iter().zip(&message) {
        same("the event's body", &event.decode()?, body)?;
        same("the event's type", &event.kind, &body.kind())?;
    }
    same("the record", &storage.sessions.load(session.id).await?, &end)?;
    // A decision on a tool call is the one kind of answer that this conversation did not need.
    let answer = EventPayload::UserToolConfirmation(ToolConfirmation::new("call".parse()?, Decision::Deny));
    same("a confirmation", &EventPayload::parse(&answer.kind(), &answer.to_json())?, &answer)
}

/// A log contains only what was committed: no token counts, times or names that no caller supplied.
async fn only_committed_data_is_stored(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let (running, run) = stage.begin_run(&storage, &session, "hi").await?;
    let end = stage.seal_run(&running, run).with_event(NewEvent::agent_message("hello")).with_trigger(
        Trigger::EndRun(agent_core::commit::RunEnd::Completed(agent_core::state::Reason::EndTurn)),
    );
    storage.sessions.commit(end).await?;
    let stored = own_events(&storage, session.id, 10).await?;
    let messages: Vec<_> =
        stored.iter().skip(1).map(|event| (event.kind.as_str(), event.payload.get())).collect();
    let expected = vec![("user.message", "{\"text\":\"hi\"}"), ("agent.message", "{\"text\":\"hello\"}")];
    same("a chat turn is two events of what was said", &messages, &expected)?;
    holds_for("no event has further fields", &stored, stored.iter().all(|event| event.extra.is_empty()))
}

/// The author of each event is kept, with any name: its own, that of the commit, or the one that follows from its
/// type.
async fn event_authors_are_kept(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let mut actors = vec![Actor::USER, Actor::AGENT, Actor::SYSTEM];
    for name in ["alice", "al:ice", "한국어", "a b", "\"", "x".repeat(256).as_str(), "'; --"] {
        for role in [Role::User, Role::Agent, Role::System] {
            actors.push(Actor::named(role, name)?);
        }
    }
    let of_commit = Actor::named(Role::User, "writer")?;
    let events = actors.iter().map(|actor| NewEvent::user_message("x").with_actor(actor.clone()));
    let commit = stage
        .seal(&session)
        .with_actor(of_commit.clone())
        .with_events(events)
        .with_event(NewEvent::user_message("y"));
    storage.sessions.commit(commit).await?;
    storage = stage.reopen(storage).await?;
    let stored = own_events(&storage, session.id, 100).await?;
    let seen: Vec<_> = stored.iter().skip(1).map(|event| event.actor.clone()).collect();
    actors.push(of_commit);
    same("the authors", &seen, &actors)?;
    let now = storage.sessions.load(session.id).await?;
    let unsigned = stage
        .seal(&now)
        .with_event(NewEvent::user_message("mine"))
        .with_event(NewEvent::agent_message("the agent's"))
        .with_event(NewEvent::system_prompt("the host's"));
    let first = storage.sessions.commit(unsigned).await?.first;
    let stored = own_events(&storage, session.id, 100).await?;
    let seen: Vec<_> = stored.iter().filter(|e| e.seq >= first).map(|e| e.actor.clone()).collect();
    same("the authors of what nobody signed", &seen, &vec![Actor::USER, Actor::AGENT, Actor::SYSTEM])
}

async fn append_at(storage: &Storage, stage: &Stage, id: SessionId, at: Timestamp, text: &str) -> Checked {
    let seen = storage.sessions.load(id).await?.head;
    let commit =
        Commit::new(stage.effects.new_commit_id(), id, at, seen).with_event(NewEvent::user_message(text));
    storage.sessions.commit(commit).await?;
    Ok(())
}

fn texts(events: &[Event]) -> Checked<Vec<String>> {
    let messages = events.iter().filter(|event| event.kind == EventType::USER_MESSAGE);
    messages.map(|event| Ok(event.payload.to::<Message>()?.text)).collect()
}

/// Events that were sealed by clocks that step back are read in commit order, in both directions. Each keeps its time,
/// and the time of last activity never steps back.
async fn order_follows_sequence_if_the_clock_steps_back(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let id = stage.new_session(&storage).await?.id;
    let offsets = [0i64, -1, 5_000_000, -86_400_000_000, 3, 3, -3_600_000_000, 86_400_000_000, 0];
    let expected: Vec<_> = (0..offsets.len()).map(|n| format!("message {n}")).collect();
    let mut latest = storage.sessions.load(id).await?.last_active_at;
    for (offset, text) in offsets.iter().zip(&expected) {
        let at = START.plus_micros(*offset);
        append_at(&storage, stage, id, at, text).await?;
        latest = latest.max(at);
        let record = storage.sessions.load(id).await?;
        same("when it was last active", &record.last_active_at, &latest)?;
        same("when it was last changed, by that writer's clock", &record.updated_at, &at)?;
    }
    for _ in 0..2 {
        let events = own_events(&storage, id, 4).await?;
        same("the messages", &texts(&events)?, &expected)?;
        let newest = storage.sessions.read(id, ReadEvents::last(3)).await?;
        same("the newest three", &texts(&newest.events)?, &expected[expected.len() - 3..].to_vec())?;
        let times: Vec<_> = events.iter().skip(1).map(|event| event.at).collect();
        same("their times", &times, &offsets.map(|offset| START.plus_micros(offset)).to_vec())?;
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// The earliest and the latest possible time are kept to the microsecond.
async fn earliest_and_latest_times_are_kept(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let id = stage.new_session(&storage).await?.id;
    let times = [
        Timestamp::MIN,
        Timestamp::MAX,
        Timestamp::UNIX_EPOCH,
        Timestamp::from_micros(-1),
        START.plus_micros(1),
    ];
    for at in times {
        append_at(&storage, stage, id, at, "now").await?;
    }
    storage = stage.reopen(storage).await?;
    let events = own_events(&storage, id, 2).await?;
    let seen: Vec<_> = events.iter().skip(1).map(|event| event.at).collect();
    same("the times", &seen, &times.to_vec())?;
    same("when it was last active", &storage.sessions.load(id).await?.last_active_at, &Timestamp::MAX)
}
