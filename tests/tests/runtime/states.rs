//! A session's way through its states, as a host sees it.

use crate::common::{Scene, SetClock, agent, agent_at, check_log, device, dialogue, queued, read};
use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Failure, Patch, Timer, Title};
use agent_core::session::NewSession;
use agent_core::state::{Reason, SessionState};
use agent_core::{ErrorKind, Seq, SessionStoreExt, Timestamp, WorkspaceId};
use agent_runtime::context::ModelMessage;
use agent_runtime::{Config, EchoProvider, ScriptedProvider, Turn};
use agent_tests::{Site, each_store};

/// Inputs sent while a session is prepared are kept, and served once it is ready.
async fn inputs_before_ready_are_kept_and_served(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, EchoProvider::new());
    let effects = agent.effects().clone();
    let id = effects.new_session_id();
    let new = NewSession::new(id, WorkspaceId::DEFAULT);
    let commit = Commit::seal(&effects, id, Seq::ZERO)
        .with_precondition(Precondition::MustNotExist)
        .with_trigger(Trigger::Create(Box::new(new)))
        .with_trigger(Trigger::Prepare(LeaseRequest::new("preparer", effects.new_run_id())));
    storage.sessions.commit_with_retry(commit).await.unwrap();
    let chat = agent.conversation_by_id(id).await.unwrap();
    let stored = queued(chat.prompt("early").await.unwrap()).await;
    assert_eq!(stored.state, SessionState::Initializing, "{name}");
    assert_eq!(stored.holder.as_deref(), Some("preparer"), "{name}");
    assert!(chat.run_pending().await.unwrap().is_none(), "{name}");
    storage.sessions.trigger(id, Trigger::Ready).await.unwrap();
    assert_eq!(read(chat.run_pending().await.unwrap().unwrap()).await.0, "early", "{name}");
    check_log(&chat).await;
}

each_store!(inputs_before_ready_are_kept_and_served);

/// What waits survives a restart; what a run has answered is never handed out again.
async fn pending_inputs_survive_and_are_answered_once(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let before = agent(&storage, EchoProvider::new());
    let chat = before.open(&device("laptop")).await.unwrap();
    let first = chat.send("one").await.unwrap();
    chat.send("two").await.unwrap();
    assert_eq!((chat.record().inputs_open, chat.record().inputs_done_through), (2, Seq::ZERO), "{name}");
    drop((before, chat));

    let model = ScriptedProvider::new([Turn::new().text("both"), Turn::new().text("third")]);
    let after = agent(&storage, model.clone());
    let chat = after.open(&device("laptop")).await.unwrap();
    assert_eq!(chat.record().status.state, SessionState::Queued, "{name}: opening starts no run");
    read(chat.run_pending().await.unwrap().unwrap()).await;
    let expected = [ModelMessage::user("one"), ModelMessage::user("two")];
    assert_eq!(model.requests()[0].messages, expected, "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!(now.inputs_open, 0, "{name}");
    assert!(now.inputs_done_through > first, "{name}");
    for _ in 0..3 {
        assert!(chat.run_pending().await.unwrap().is_none(), "{name}");
    }
    chat.suspend().await.unwrap();
    chat.resume().await.unwrap();
    assert!(chat.run_pending().await.unwrap().is_none(), "{name}: restoring hands nothing out again");
    read(chat.prompt("three").await.unwrap()).await;
    assert_eq!(model.requests().len(), 2, "{name}");
    check_log(&chat).await;
}

each_store!(pending_inputs_survive_and_are_answered_once);

/// A timer performs no run where nothing waits or is due, and exactly one where something is.
async fn run_pending_starts_at_most_one_run(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let clock = SetClock::at(Timestamp::from_micros(1_000_000));
    let model = ScriptedProvider::new([Turn::new().text("due"), Turn::new().text("never")]);
    let agent = agent_at(&clock, &storage, model.clone(), Config::default(), []);
    let chat = agent.open(&device("laptop")).await.unwrap();
    assert!(chat.run_pending().await.unwrap().is_none(), "{name}: nothing waits");
    let at = Timestamp::from_micros(60_000_000);
    let mut timer = Timer::new("daily", at);
    timer.note = "Water the plants.".to_owned();
    let timer = NewEvent::timer_scheduled(timer);
    agent.storage().sessions.append(chat.id(), chat.record().head, vec![timer]).await.unwrap();
    assert!(chat.run_pending().await.unwrap().is_none(), "{name}: not due yet");
    assert!(chat.run_when_free().await.unwrap().is_none(), "{name}: nor does it wait for that");
    clock.set(at);
    let (text, report) = read(chat.run_pending().await.unwrap().unwrap()).await;
    assert_eq!((text.as_str(), report.status.state), ("due", SessionState::Idle), "{name}");
    let notice = "The scheduled timer \"daily\" is due. Water the plants.";
    assert_eq!(model.requests()[0].messages, [ModelMessage::System(notice.to_owned())], "{name}");
    assert!(chat.run_pending().await.unwrap().is_none(), "{name}: done once");
    assert_eq!(chat.refresh().await.unwrap().counts.runs, 1, "{name}");
    check_log(&chat).await;
}

each_store!(run_pending_starts_at_most_one_run);

/// A failed session keeps what failed, refuses inputs, and goes on only when it is recovered.
async fn a_failed_session_is_recovered_explicitly(site: Site) {
    let Scene { name, storage, chat, .. } = Scene::echo(&site).await;
    chat.send("kept").await.unwrap();
    let failure = Failure::new(Reason::SystemError, "the disk is gone");
    storage.sessions.trigger(chat.id(), Trigger::Fail(failure.clone())).await.unwrap();
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.failure.clone()), (SessionState::Failed, Some(failure)), "{name}");
    let error = chat.prompt("more").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidTransition { .. }), "{name}: {error}");
    assert!(chat.run_pending().await.unwrap().is_none(), "{name}");
    chat.clear_failure().await.unwrap();
    assert_eq!(read(chat.run_pending().await.unwrap().unwrap()).await.0, "kept", "{name}");
    assert_eq!(dialogue(&chat).await.len(), 2, "{name}");
}

each_store!(a_failed_session_is_recovered_explicitly);

/// The status and its reason are read from the record, at every station.
async fn status_and_reason_are_in_the_record(site: Site) {
    let Scene { name, chat, .. } = Scene::echo(&site).await;
    let status = async || {
        let now = chat.refresh().await.unwrap();
        (now.status.state, now.status.reason)
    };
    assert_eq!(status().await, (SessionState::Idle, Reason::Fresh), "{name}");
    chat.send("1").await.unwrap();
    assert_eq!(status().await, (SessionState::Queued, Reason::Input), "{name}");
    read(chat.run_pending().await.unwrap().unwrap()).await;
    assert_eq!(status().await, (SessionState::Idle, Reason::EndTurn), "{name}");
    chat.archive().await.unwrap();
    assert_eq!(status().await, (SessionState::Archived, Reason::UserArchived), "{name}");
    chat.unarchive().await.unwrap();
    assert_eq!(status().await, (SessionState::Idle, Reason::EndTurn), "{name}");
    check_log(&chat).await;
}

each_store!(status_and_reason_are_in_the_record);

/// A title that a person set stays; a change that depends on what was read is refused after another's.
async fn attributes_are_changed_separately(site: Site) {
    let Scene { name, agent, chat, .. } = Scene::echo(&site).await;
    chat.set_title("Küche 🍳").await.unwrap();
    chat.update(Patch::new().with_title(Title::generated("made up")).with_label("project", "x"))
        .await
        .unwrap();
    let other = agent.conversation_by_id(chat.id()).await.unwrap();
    other.update_unchanged(Patch::new().with_label("by", "other")).await.unwrap();
    let error = chat.update_unchanged(Patch::new().with_label("by", "me")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { head: Some(_) }), "{name}: {error}");
    let attributes = chat.refresh().await.unwrap().attributes.clone();
    assert_eq!(attributes.title.unwrap().text, "Küche 🍳", "{name}");
    assert_eq!((attributes.labels["project"].as_str(), attributes.labels["by"].as_str()), ("x", "other"));
    assert_eq!(*chat.set_title("").await.unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
}

each_store!(attributes_are_changed_separately);

/// Further sessions live in the same workspace, each on its own.
async fn sessions_of_a_workspace_are_independent(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, EchoProvider::new());
    let main = agent.open(&device("laptop")).await.unwrap();
    let workspace = main.record().workspace;
    let second = agent.new_session(workspace, &Patch::new().with_label("kind", "side")).await.unwrap();
    read(main.prompt("to the main one").await.unwrap()).await;
    read(second.prompt("to the second").await.unwrap()).await;
    assert_eq!(dialogue(&second).await[0].1, "to the second", "{name}");
    assert_eq!(dialogue(&main).await.len(), 2, "{name}");
    assert_eq!(agent.open(&device("laptop")).await.unwrap().id(), main.id(), "{name}");
    let absent = WorkspaceId::from_uuid(agent.effects().new_uuid());
    let error = agent.new_session(absent, &Patch::new()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound, "{name}");
}

each_store!(sessions_of_a_workspace_are_independent);
