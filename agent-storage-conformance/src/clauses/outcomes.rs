//! Contract 7: every failed write reports whether it may have been applied and whether to send it again. Its text
//! names the object, and contains nothing of the conversation.

use std::sync::Arc;

use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::{Patch, Timer};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState, TriggerKind};
use agent_core::store::Purge;
use agent_core::{Error, ErrorKind, Seq, Storage, WriteOutcome};

use crate::failure::{Checked, Failure, holds_for, refused, same, shown};
use crate::registry::{Clause, table};
use crate::stage::{START, Stage, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![Outcomes:
        refused_write_reports_not_applied,
        errors_name_the_object_but_no_content,
        a_refused_transition_names_state_and_trigger,
        invalid_commit_is_refused_before_any_write,
        record_contents_are_limited,
        commit_contents_are_limited,
        checks_come_in_the_stated_order,
    ]
}

/// Text that must never appear in an error.
const SECRET: &str = "correct-horse-battery-staple";

/// Returns commits of every kind that are refused, with their errors.
async fn refusals(stage: &Stage, storage: &Storage) -> Checked<Vec<(Commit, Error)>> {
    let session = stage.new_session(storage).await?;
    let (running, run) = stage.begin_run(storage, &session, "work").await?;
    let secret = || NewEvent::user_message(SECRET);
    let deleted = stage.new_session(storage).await?;
    let delete = stage.seal(&deleted).with_trigger(Trigger::Delete(Reason::UserDeleted));
    storage.sessions.commit(delete).await?;
    let bad = NewEvent::new("user.message".parse()?, RawJson::of(&SECRET)?);
    let reserved = NewEvent::new("session.invented".parse()?, RawJson::of(&SECRET)?);
    let long_label = Patch::new().with_label(SECRET, "x".repeat(600));
    let commits = [
        stage.seal(&running).with_precondition(Precondition::Matches(session.head)).with_event(secret()),
        Commit::create(&stage.effects, NewSession::new(session.id, session.workspace)).with_event(secret()),
        stage.seal(&running).with_fence(run, running.epoch.next()).with_event(secret()),
        stage.seal(&running).with_event(secret()).with_trigger(Trigger::Resume),
        stage.seal(&running).with_event(NewEvent::agent_message(SECRET)),
        stage.seal(&running).with_event(bad),
        stage.seal(&running).with_event(reserved),
        stage.seal(&running).with_event(secret().with_extra("seq", RawJson::of(&1)?)),
        stage.seal(&running).with_event(NewEvent::updated(long_label)),
        stage
            .seal(&running)
            .with_event(secret())
            .with_trigger(Trigger::BeginRun(LeaseRequest::new("x", run))),
        stage.seal(&running),
        stage.seal(&deleted).with_event(secret()),
        stage.seal_at(stage.effects.new_session_id(), Seq::ZERO).with_event(secret()),
    ];
    let mut refused = Vec::new();
    for commit in commits {
        match storage.sessions.commit(commit.clone()).await {
            Ok(done) => return Err(Failure::new("a commit at fault", "an error", shown(&done))),
            Err(error) => refused.push((commit, error)),
        }
    }
    same("the session after all refusals", &storage.sessions.load(session.id).await?, &running)?;
    Ok(refused)
}

/// A refused write is not applied, now or later, and sending it again unchanged is useless.
async fn refused_write_reports_not_applied(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    for (_, error) in refusals(stage, &storage).await? {
        holds_for("NotApplied", &error, error.write_outcome() == WriteOutcome::NotApplied)?;
        holds_for("not to be sent again as it is", &error, !error.is_retryable())?;
    }
    let workspace = stage.new_workspace(&storage).await?;
    let results = [
        storage.workspaces.put(workspace.clone(), Precondition::MustNotExist).await.map(drop),
        storage.workspaces.put(workspace.clone().with_name(""), Precondition::MustExist).await.map(drop),
        storage.workspaces.delete(stage.effects.new_workspace_id()).await,
        storage
            .bindings
            .bind(&stage.device("x")?, workspace.id, Precondition::Matches(workspace.id))
            .await
            .map(drop),
        storage.sessions.purge(Purge::new(stage.effects.new_session_id(), Seq::ZERO)).await.map(drop),
    ];
    for result in results {
        let error = refused!("a write at fault", result, _)?;
        holds_for("NotApplied", &error, error.write_outcome() == WriteOutcome::NotApplied)?;
        holds_for("not to be sent again as it is", &error, !error.is_retryable())?;
    }
    Ok(())
}

/// An error's text, its debug form and its sources name the session and the remedy, and contain nothing of the
/// conversation.
async fn errors_name_the_object_but_no_content(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    for (commit, error) in refusals(stage, &storage).await? {
        let mut text = format!("{error} {error:?} {error:#?}");
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            text += &format!(" {inner} {inner:?}");
            source = inner.source();
        }
        holds_for("nothing of what was said", &text, !text.contains(SECRET))?;
        holds_for("a sentence", &error, error.to_string().len() > 10)?;
        let named = error.to_string().contains(&commit.session.to_string());
        holds_for("the session's id", &error, named)?;
    }
    let none = stage.effects.new_workspace_id();
    let error = refused!("a load", storage.workspaces.load(none).await, ErrorKind::NotFound)?;
    holds_for("the workspace's id", &error, error.to_string().contains(&none.to_string()))
}

/// The error of a refused transition names the state and the trigger, and the transition changes nothing.
async fn a_refused_transition_names_state_and_trigger(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    for (trigger, kind) in [
        (Trigger::Ready, TriggerKind::Ready),
        (Trigger::Resume, TriggerKind::Resume),
        (Trigger::Unarchive, TriggerKind::Unarchive),
        (Trigger::ClearFailure, TriggerKind::ClearFailure),
        (Trigger::BeginRun(LeaseRequest::new("x", stage.effects.new_run_id())), TriggerKind::BeginRun),
    ] {
        let result = storage.sessions.commit(stage.seal(&session).with_trigger(trigger)).await;
        let from = SessionState::Idle;
        refused!(kind, result, ErrorKind::InvalidTransition { from: f, trigger: t } if (*f, *t) == (from, kind))?;
        same("the session", &storage.sessions.load(session.id).await?, &session)?;
    }
    Ok(())
}

/// An empty commit, a payload that does not match its type, a type that only the library writes, and a field of the
/// header are `InvalidInput`, even if the commit would create its session.
async fn invalid_commit_is_refused_before_any_write(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let events = [
        NewEvent::new("user.message".parse()?, RawJson::parse("[]")?),
        NewEvent::new("agent.tool_use".parse()?, RawJson::parse("{\"call\":\"\"}")?),
        NewEvent::new("session.created".parse()?, RawJson::empty_object()),
        NewEvent::new("session.status_changed".parse()?, RawJson::empty_object()),
        NewEvent::new("session.unheard_of".parse()?, RawJson::empty_object()),
        NewEvent::tool_result("none".parse()?, agent_core::event::ToolOutcome::Ok, RawJson::empty_object()),
        NewEvent::user_message("x").with_extra("crc", RawJson::of(&1)?),
        NewEvent::timer_scheduled(Timer::new("", START)),
    ];
    for event in events {
        let result = storage.sessions.commit(stage.seal(&session).with_event(event.clone())).await;
        refused!(format_args!("an event of type {}", event.kind), result, ErrorKind::InvalidInput)?;
        let new = stage.session(&storage).await?;
        let id = new.id;
        let result = storage.sessions.commit(Commit::create(&stage.effects, new).with_event(event)).await;
        refused!("a creation with it", result, ErrorKind::InvalidInput)?;
        refused!("the session", storage.sessions.load(id).await, ErrorKind::NotFound)?;
    }
    refused!(
        "an empty commit",
        storage.sessions.commit(stage.seal(&session)).await,
        ErrorKind::InvalidInput
    )?;
    let other = stage.session(&storage).await?;
    let mut create = Commit::create(&stage.effects, other);
    create.session = stage.effects.new_session_id();
    refused!(
        "a creation of another session",
        storage.sessions.commit(create).await,
        ErrorKind::InvalidInput
    )?;
    let again = stage.seal(&session).with_trigger(Trigger::Create(Box::new(stage.session(&storage).await?)));
    refused!("a second creation", storage.sessions.commit(again).await, ErrorKind::InvalidInput)?;
    same("the session", &storage.sessions.load(session.id).await?, &session)?;
    same("its events", &(own_events(&storage, session.id, 10).await?.len() as u64), &session.head.get())
}

/// Labels, references, metadata, open calls and timers beyond their limits are `LimitExceeded`. A session at its limit
/// still accepts messages, and removing something frees room.
async fn record_contents_are_limited(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let full =
        async |events: Vec<NewEvent>, one_more: NewEvent, less: NewEvent| -> Checked<Arc<SessionRecord>> {
            let session = stage.new_session(&storage).await?;
            let now = storage.sessions.commit(stage.seal(&session).with_events(events)).await?.session;
            let result = storage.sessions.commit(stage.seal(&now).with_event(one_more.clone())).await;
            refused!("one more", result, ErrorKind::LimitExceeded)?;
            same("the session", &storage.sessions.load(session.id).await?, &now)?;
            let appended = stage.append(&storage, &now, "still here").await?.session;
            let made_room = storage.sessions.commit(stage.seal(&appended).with_event(less)).await?.session;
            Ok(storage.sessions.commit(stage.seal(&made_room).with_event(one_more)).await?.session)
        };
    let many = (0..64).fold(Patch::new(), |patch, n| patch.with_label(format!("label {n}"), "x"));
    let (more, less) = (Patch::new().with_label("more", "x"), Patch::new().without_label("label 0"));
    full(vec![NewEvent::updated(many)], NewEvent::updated(more), NewEvent::updated(less)).await?;
    let large = |name: &str| -> Checked<NewEvent> {
        Ok(NewEvent::updated(Patch::new().with_metadata(name, RawJson::of(&"x".repeat(8 << 10))?)))
    };
    let less = NewEvent::updated(Patch::new().with_metadata("a", RawJson::parse("null")?));
    full(vec![large("a")?, large("b")?], large("c")?, less).await?;
    let call = |n: usize| -> Checked<NewEvent> {
        Ok(NewEvent::tool_use(format!("call {n}").parse()?, "ls", RawJson::empty_object()))
    };
    let calls = (0..64).map(call).collect::<Checked<Vec<_>>>()?;
    let result =
        NewEvent::tool_result("call 5".parse()?, agent_core::event::ToolOutcome::Ok, RawJson::empty_object());
    full(calls, call(64)?, result).await?;
    let timer = |n: usize| NewEvent::timer_scheduled(Timer::new(format!("timer {n}"), START));
    full((0..128).map(timer).collect(), timer(128), NewEvent::interrupt()).await.map(drop)
}

/// An event over 16 MiB, a commit of more than 1,024 events or over 64 MiB is `LimitExceeded`; at the limit it is
/// stored.
async fn commit_contents_are_limited(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let many = |count: usize| (0..count).map(|n| NewEvent::user_message(n.to_string()));
    let result = storage.sessions.commit(stage.seal(&session).with_events(many(1025))).await;
    refused!("1,025 events", result, ErrorKind::LimitExceeded)?;
    let payload = |bytes: usize| RawJson::of(&"x".repeat(bytes - 2));
    let kind: agent_core::event::EventType = "x.app.blob".parse()?;
    let large = NewEvent::new(kind.clone(), payload((16 << 20) + 1)?);
    let result = storage.sessions.commit(stage.seal(&session).with_event(large)).await;
    refused!("an event of 16 MiB and a byte", result, ErrorKind::LimitExceeded)?;
    let part = NewEvent::new(kind, payload(13 << 20)?);
    let result = storage.sessions.commit(stage.seal(&session).with_events(vec![part; 5])).await;
    refused!("five events of 13 MiB", result, ErrorKind::LimitExceeded)?;
    same("the session", &storage.sessions.load(session.id).await?, &session)?;
    let done = storage.sessions.commit(stage.seal(&session).with_events(many(1024))).await?;
    same("1,024 events", &(done.last.get() - session.head.get()), &1024)
}

/// If a commit has several faults, the answer is that of the first check: replay, tombstone, fence, expectation,
/// transition, limits.
async fn checks_come_in_the_stated_order(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let run = stage.effects.new_run_id();
    let wrong_head = Precondition::Matches(Seq::new(77));
    let patch = (0..70).fold(Patch::new(), |patch, n| patch.with_label(format!("label {n}"), "x"));
    let faulty = |session: &SessionRecord| {
        stage
            .seal(session)
            .with_event(NewEvent::updated(patch.clone()))
            .with_trigger(Trigger::Resume)
            .with_precondition(wrong_head)
    };
    let fenced = faulty(&session).with_fence(run, agent_core::Epoch::new(9));
    refused!("all faults", storage.sessions.commit(fenced).await, ErrorKind::Fenced { .. })?;
    let stale = faulty(&session);
    refused!("without the fence", storage.sessions.commit(stale).await, ErrorKind::Conflict { .. })?;
    let illegal = faulty(&session).with_precondition(Precondition::MustExist);
    refused!(
        "with the right head",
        storage.sessions.commit(illegal).await,
        ErrorKind::InvalidTransition { .. }
    )?;
    let large = stage.seal(&session).with_event(NewEvent::updated(patch.clone()));
    refused!("with a legal step", storage.sessions.commit(large).await, ErrorKind::LimitExceeded)?;
    let delete = stage.seal(&session).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = storage.sessions.commit(delete).await?.session;
    let late = faulty(&deleted).with_fence(run, agent_core::Epoch::new(9));
    refused!("to a tombstone", storage.sessions.commit(late).await, ErrorKind::Deleted)?;
    Ok(())
}
