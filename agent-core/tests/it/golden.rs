//! The stored form of what a session holds beside its conversation, word for word: what other programs rely on.

use crate::common::{Driver, json};
use agent_core::event::{
    AuditedOperation, ChildCreated, ChildIdle, Comment, Compaction, Decision, DocumentWritten, Event,
    EventPayload, Interrupt, Learning, LearningKind, Message, NewEvent, Operation, OperationOutcome,
    SpanCompleted, SpanStarted, SystemMessage, ToolConfirmation, ToolOutcome, ToolResult, ToolUse,
};
use agent_core::model::{
    Access, Actor, Artifact, Cost, ExternalHandle, MountSet, Patch, RunUsage, Status, Timer, TimerCancelled,
    Usage,
};
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::{Seq, Timestamp};

/// Compares with a golden file, and reads what stands there.
fn check(driver: &Driver, events: &str, record: &str) {
    let lines: Vec<_> = driver.log.iter().map(Event::to_json).collect();
    assert_eq!(lines.join("\n"), events.trim_end());
    assert_eq!(driver.now().to_json(), record.trim_end());
    for line in events.lines() {
        let event = Event::from_json(line).unwrap();
        assert_eq!(event.to_json(), line);
        assert!(!matches!(event.decode().unwrap(), EventPayload::Other(..)), "{line}");
        assert_eq!(event.decode().unwrap().to_json(), event.payload, "the typed form loses nothing");
    }
    assert_eq!(SessionRecord::from_json(record).unwrap(), *driver.now());
    assert_eq!(driver.folded(), *driver.now());
}

/// What a run used, what it made, and what the session is to achieve.
#[test]
fn golden_ledger() {
    let mut driver = Driver::created();
    driver.event(NewEvent::of(&EventPayload::UserDefineOutcome(Message::new("a report")))).unwrap();
    let run = driver.effects.new_run_id();
    let used =
        RunUsage::new(run, Usage::new(10, 2)).with_cost(Some(Cost::new("USD", 24))).with_degraded(true);
    driver.event(NewEvent::run_usage(used)).unwrap();
    driver.event(NewEvent::run_usage(RunUsage::new(run, Usage::new(1, 0)))).unwrap();
    let made = Artifact::new("artifacts/report.md").with_hash("sha256:00").with_media("text/markdown");
    driver.event(NewEvent::artifact_registered(made.with_run(run))).unwrap();
    check(&driver, include_str!("golden/ledger.jsonl"), include_str!("golden/ledger.session.json"));
}

/// Mounts, handles, learnings.
#[test]
fn golden_sharing() {
    let mut driver = Driver::created();
    let frozen: MountSet = json(r#"{"handbook":{"access":"write","origin":"project"}}"#).to().unwrap();
    let handle = ExternalHandle::new("volume", "v1").with_note("keep").with_process("p1");
    let patch = Patch::new().mount("kb:one", Access::Read).remove_mount("kb:two").freeze_mounts(Some(frozen));
    driver.event(NewEvent::updated(patch.with_handle("data", handle))).unwrap();
    let learning = Learning::new(LearningKind::Lesson, "Test first.").with_key("k");
    let learning = learning.with_session(driver.id, Some(Seq::new(1)));
    driver.event(NewEvent::of(&EventPayload::SessionLearningAdded(learning))).unwrap();
    let promoted = agent_core::event::LearningPromoted::new(Seq::new(3), "memory");
    driver.event(NewEvent::of(&EventPayload::SessionLearningPromoted(promoted))).unwrap();
    check(&driver, include_str!("golden/sharing.jsonl"), include_str!("golden/sharing.session.json"));
}

/// What was to be done to a workspace, a device and a session, and what became of it.
#[test]
fn golden_operations() {
    let mut driver = Driver::created();
    let workspace = "019c60d9-9c41-715c-8289-ec2d0a9167ec".parse().unwrap();
    let created = AuditedOperation::new(Operation::CreateWorkspace).with_workspace(workspace);
    let bound = AuditedOperation::new(Operation::BindDevice).with_device(&"phone, 안녕".parse().unwrap());
    let bound = bound.with_workspace(workspace);
    let purged = AuditedOperation::new(Operation::PurgeSession).with_session(driver.id);
    for (recorded, outcome, error) in [
        (created, OperationOutcome::Done, None),
        (bound, OperationOutcome::Failed, Some("deleted")),
        (purged, OperationOutcome::Unknown, Some("unavailable")),
    ] {
        let note =
            |recorded| NewEvent::of(&EventPayload::SessionOperationAudited(recorded)).with_actor(Actor::USER);
        driver.event(note(recorded.clone())).unwrap();
        let begun = driver.now().head;
        driver.event(note(recorded.with_end(begun, outcome, error))).unwrap();
    }
    check(&driver, include_str!("golden/operations.jsonl"), include_str!("golden/operations.session.json"));
}

/// Versions of documents, and what the record keeps of them.
#[test]
fn golden_documents() {
    let mut driver = Driver::created();
    let first = DocumentWritten::after(None, "state", Some("Begun.".to_owned()));
    driver.event(NewEvent::document_written(first).with_actor(Actor::AGENT)).unwrap();
    let head = driver.now().document("state").cloned();
    let second = DocumentWritten::after(head.as_ref(), "state", Some("Done.".to_owned()));
    let second = second.with_format(2).with_limit(Some(2000));
    driver.event(NewEvent::document_written(second).with_actor(Actor::USER)).unwrap();
    let buffer = DocumentWritten::after(None, "buffer", Some(String::new()));
    driver.event(NewEvent::document_written(buffer)).unwrap();
    let head = driver.now().document("buffer").cloned();
    driver.event(NewEvent::document_written(DocumentWritten::after(head.as_ref(), "buffer", None))).unwrap();
    check(&driver, include_str!("golden/documents.jsonl"), include_str!("golden/documents.session.json"));
}

/// Payloads of the types that the other golden files do not have.
#[test]
fn golden_payloads() {
    let child = "019c60d9-9c41-715c-8289-ec2d0a9167ec".parse().unwrap();
    let confirmed = ToolConfirmation::new("call 1".parse().unwrap(), Decision::Deny);
    let idle = Status::new(SessionState::Idle, Reason::EndTurn);
    let payloads = [
        EventPayload::UserInterrupt(Interrupt::new("stop")),
        EventPayload::UserToolConfirmation(confirmed.with_choice("no").with_note("안녕")),
        EventPayload::UserCustomToolResult(ToolResult::new(
            "call 2".parse().unwrap(),
            ToolOutcome::Error,
            json("[1.0]"),
        )),
        EventPayload::AgentCustomToolUse(ToolUse::new(
            "call 2".parse().unwrap(),
            "ask",
            json("{\"n\":1.10}"),
        )),
        EventPayload::SystemMessage(SystemMessage::custom("You are brief.")),
        EventPayload::SystemMessage(SystemMessage::injected("It is late.")),
        EventPayload::SpanStarted(SpanStarted::new("span 1".parse().unwrap(), "model")),
        EventPayload::SpanCompleted(SpanCompleted::new("span 1".parse().unwrap(), ToolOutcome::Ok)),
        EventPayload::SessionStatusIdle(Comment::new("rest")),
        EventPayload::SessionHistoryCleared(Comment::default()),
        EventPayload::SessionCompacted(Compaction::new(Seq::new(7), "They said hello.")),
        EventPayload::SessionCompacted(
            Compaction::new(Seq::new(7), "They said hello.")
                .with_inputs([Seq::new(3), Seq::new(6)], Seq::new(3)),
        ),
        EventPayload::SessionStatusChanged(Comment::new("set by hand")),
        EventPayload::SessionTimerScheduled(Timer::new(
            "daily",
            Timestamp::from_micros(1_771_155_000_000_000),
        )),
        EventPayload::SessionTimerCancelled(TimerCancelled::new("daily")),
        EventPayload::SessionChildCreated(ChildCreated::new(child)),
        EventPayload::SessionChildIdle(ChildIdle::new(child, idle).with_result("ok")),
        EventPayload::SessionReported(json("{\"at\":7,\"state\":\"idle\"}").to().unwrap()),
    ];
    let lines: Vec<_> =
        payloads.iter().map(|body| format!("{} {}", body.kind(), body.to_json().get())).collect();
    assert_eq!(lines.join("\n"), include_str!("golden/payloads.txt").trim_end());
    for body in payloads {
        assert_eq!(EventPayload::parse(&body.kind(), &body.to_json()).unwrap(), body);
    }
}

/// Each event type of this version is in a golden file, so that no change of its payload goes unnoticed.
#[test]
fn golden_files_have_every_event_type() {
    let logs = [
        include_str!("golden/events.jsonl"),
        include_str!("golden/ledger.jsonl"),
        include_str!("golden/sharing.jsonl"),
        include_str!("golden/operations.jsonl"),
        include_str!("golden/documents.jsonl"),
    ]
    .concat();
    let payloads = [include_str!("golden/content.txt"), include_str!("golden/payloads.txt")].concat();
    let table = include_str!("../../src/event/types.rs");
    let rows = table.lines().filter(|line| line.contains(") \"") && line.ends_with("\","));
    let names: Vec<_> = rows.map(|line| line.split('"').nth(1).unwrap()).collect();
    assert!(names.len() > 30, "the table is read: {names:?}");
    let is_there = |name: &str| {
        logs.contains(&format!("\"type\":\"{name}\""))
            || payloads.lines().any(|line| line.split(' ').next() == Some(name))
    };
    let missing: Vec<_> = names.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "golden/payloads.txt has no {missing:?}");
}
