//! Refusals of every store name the object.

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::{Event, NewEvent, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::{Patch, Timer, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents, SessionQuery};
use agent_core::{DeviceId, Epoch, Error, MemoryStore, Result, Seq, SessionId, Storage, WorkspaceId};

/// Refusals, each with what its text must name.
type Refusals = Vec<(String, &'static str, Error)>;

fn note<T>(refusals: &mut Refusals, object: &dyn ToString, what: &'static str, result: Result<T>) {
    match result {
        Ok(_) => panic!("{what} is not refused"),
        Err(error) => refusals.push((object.to_string(), what, error)),
    }
}

fn call(id: &str) -> NewEvent {
    NewEvent::tool_use(id.parse().unwrap(), "ls", RawJson::empty_object())
}

fn result(id: &str) -> NewEvent {
    NewEvent::tool_result(id.parse().unwrap(), ToolOutcome::Ok, RawJson::empty_object())
}

fn raw(kind: &str, json: &str) -> NewEvent {
    NewEvent::new(kind.parse().unwrap(), RawJson::parse(json).unwrap())
}

/// What may be at fault with a commit to a session.
async fn commits(storage: &Storage, effects: &Effects, refusals: &mut Refusals) -> Result<()> {
    let new = || NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let create =
        async |new| Ok::<_, Error>(storage.sessions.commit(Commit::create(effects, new)).await?.session);
    let idle = create(new()).await?;
    let (run, before) = (effects.new_run_id(), create(new()).await?);
    let begin = || Trigger::BeginRun(LeaseRequest::new("holder", run));
    let seal = |session: &SessionRecord| Commit::seal(effects, session.id, session.head);
    let event = || NewEvent::user_message("x");
    let running = seal(&before).with_event(event()).with_event(call("open")).with_trigger(begin());
    let running = storage.sessions.commit(running).await?.session;
    let deleted = create(new()).await?;
    let delete = Trigger::Delete(Reason::UserDeleted);
    let deleted = storage.sessions.commit(seal(&deleted).with_trigger(delete)).await?.session;
    let absent = effects.new_session_id();
    let labels = (0..70).fold(Patch::new(), |patch, n| patch.with_label(format!("label {n}"), "x"));
    let timer = |key: &str, note: usize| {
        let mut timer = Timer::new(key, effects.now());
        timer.note = "n".repeat(note);
        NewEvent::timer_scheduled(timer)
    };
    let mut other = Commit::create(effects, new());
    other.session = idle.id;
    let faults: Vec<(&'static str, Commit)> = vec![
        ("an empty commit", seal(&idle)),
        ("a commit to nothing", Commit::seal(effects, absent, Seq::ZERO).with_event(event())),
        ("a commit to a tombstone", seal(&deleted).with_event(event())),
        (
            "a stale commit",
            seal(&running).with_precondition(Precondition::Matches(Seq::new(1))).with_event(event()),
        ),
        ("a second creation", Commit::create(effects, NewSession::new(idle.id, WorkspaceId::DEFAULT))),
        ("a creation of another", other),
        ("a creation inside", seal(&idle).with_trigger(Trigger::Create(Box::new(new())))),
        ("a late run", seal(&running).with_fence(run, Epoch::new(9)).with_event(event())),
        ("another agent", seal(&running).with_event(NewEvent::agent_message("x"))),
        ("a run of a busy session", seal(&running).with_event(event()).with_trigger(begin())),
        ("a run of nothing", seal(&idle).with_trigger(begin())),
        ("no such transition", seal(&idle).with_trigger(Trigger::Resume)),
        ("a payload that is none", seal(&idle).with_event(raw("user.message", "[]"))),
        ("a reserved type", seal(&idle).with_event(raw("session.created", "{}"))),
        ("an unheard-of type", seal(&idle).with_event(raw("session.unheard_of", "{}"))),
        ("a field of the header", seal(&idle).with_event(event().with_extra("seq", RawJson::of(&1)?))),
        ("a result without a call", seal(&idle).with_event(result("none"))),
        ("a second call", seal(&idle).with_event(call("same")).with_event(call("same"))),
        ("too many calls", seal(&idle).with_events((0..65).map(|n| call(&format!("call {n}"))))),
        ("too many labels", seal(&idle).with_event(NewEvent::updated(labels))),
        (
            "a long label",
            seal(&idle).with_event(NewEvent::updated(Patch::new().with_label("a", "x".repeat(600)))),
        ),
        (
            "a long reference",
            seal(&idle).with_event(NewEvent::updated(Patch::new().with_reference("r", "x".repeat(5000)))),
        ),
        ("a timer without a key", seal(&idle).with_event(timer("", 0))),
        ("a timer with a long note", seal(&idle).with_event(timer("key", 600))),
        ("too many events", seal(&idle).with_events((0..1025).map(|_| event()))),
        ("a large event", seal(&idle).with_event(NewEvent::user_message("x".repeat(17 << 20)))),
        (
            "an unfenced end",
            seal(&idle).with_trigger(Trigger::EndRun(agent_core::commit::RunEnd::Completed(Reason::EndTurn))),
        ),
        ("an answer to nothing", seal(&idle).with_trigger(Trigger::ActionTimeout("question".parse()?))),
        ("a compaction of nothing", seal(&idle).with_event(NewEvent::compacted(Seq::new(99), "all"))),
        ("a history of no messages", seal(&idle).with_trigger(Trigger::Replace(vec![call("x")]))),
    ];
    for (what, commit) in faults {
        let id = commit.session;
        note(refusals, &id, what, storage.sessions.commit(commit).await);
    }
    note(refusals, &absent, "a load", storage.sessions.load(absent).await);
    note(refusals, &absent, "a read", storage.sessions.read(absent, ReadEvents::first(1)).await);
    note(refusals, &absent, "a purge", storage.sessions.purge(Purge::new(absent, Seq::ZERO)).await);
    note(
        refusals,
        &idle.id,
        "a purge of the living",
        storage.sessions.purge(Purge::new(idle.id, idle.head)).await,
    );
    let early = Purge::new(deleted.id, Seq::new(1));
    note(refusals, &deleted.id, "a purge at another head", storage.sessions.purge(early).await);
    note(refusals, &idle.id, "a report", storage.sessions.report_child(idle.id, None).await);
    note(refusals, &absent, "a restore of nothing", Commit::restore(absent, Vec::new()));
    Ok(())
}

/// What may be at fault with a workspace or a device.
async fn others(storage: &Storage, effects: &Effects, refusals: &mut Refusals) -> Result<()> {
    let new = || Workspace::new(effects.new_workspace_id(), "w", effects.new_session_id(), effects.now());
    let there = storage.workspaces.put(new(), Precondition::MustNotExist).await?;
    let gone = storage.workspaces.put(new(), Precondition::MustNotExist).await?.id;
    storage.workspaces.delete(gone).await?;
    let absent = effects.new_workspace_id();
    let workspaces = &storage.workspaces;
    for id in [absent, gone] {
        note(refusals, &id, "a load", workspaces.load(id).await);
        note(refusals, &id, "a touch", workspaces.touch(id, effects.now()).await);
        note(refusals, &id, "a configuration", workspaces.load_config(id).await);
        note(
            refusals,
            &id,
            "a configuration",
            workspaces.save_config(id, None, Precondition::MustExist).await,
        );
    }
    note(refusals, &absent, "a deletion", workspaces.delete(absent).await);
    let stale = Precondition::Matches(there.revision.next());
    note(
        refusals,
        &there.id,
        "a second creation",
        workspaces.put(there.clone(), Precondition::MustNotExist).await,
    );
    note(refusals, &there.id, "a stale put", workspaces.put(there.clone(), stale).await);
    for bad in [there.clone().with_name(""), there.clone().with_name("a\nb"), there.clone().with_provider("")]
    {
        note(refusals, &there.id, "a bad text", workspaces.put(bad, Precondition::MustExist).await);
    }
    let large = there.clone().with_description("x".repeat(5000));
    note(refusals, &there.id, "a long description", workspaces.put(large, Precondition::MustExist).await);
    let config = Some("x".repeat(2 << 20));
    note(
        refusals,
        &there.id,
        "a long text",
        workspaces.save_config(there.id, config, Precondition::MustExist).await,
    );
    let expect = Precondition::Matches(agent_core::store::ContentHash::of("old"));
    note(refusals, &there.id, "a stale text", workspaces.save_config(there.id, None, expect).await);
    let device: DeviceId = "laptop".parse()?;
    note(
        refusals,
        &"laptop",
        "a rebind",
        storage.bindings.bind(&device, absent, Precondition::Matches(gone)).await,
    );
    storage.bindings.bind(&device, there.id, Precondition::MustNotExist).await?;
    note(
        refusals,
        &"laptop",
        "a rebind",
        storage.bindings.bind(&device, absent, Precondition::Matches(gone)).await,
    );
    let cursor = storage.sessions.list(SessionQuery::new().with_limit(1)).await?.next;
    let of_workspaces = agent_core::store::WorkspaceQuery::new().with_cursor(cursor.clone());
    note(refusals, &"cursor", "another's cursor", workspaces.list(of_workspaces).await);
    Ok(())
}

/// Whatever a store in memory refuses, the text names the session, workspace or device, and is a sentence.
#[tokio::test]
async fn every_refusal_names_its_object() {
    let (storage, effects) = (Storage::from(MemoryStore::new()), Effects::default());
    let mut refusals = Refusals::new();
    commits(&storage, &effects, &mut refusals).await.unwrap();
    others(&storage, &effects, &mut refusals).await.unwrap();
    assert!(refusals.len() > 50, "only {}", refusals.len());
    let unnamed: Vec<_> = refusals
        .iter()
        .filter(|(object, _, error)| !error.to_string().contains(&**object) || error.to_string().len() < 20)
        .map(|(_, what, error)| format!("{what}: {error}"))
        .collect();
    assert!(unnamed.is_empty(), "{} texts name no object:\n{}", unnamed.len(), unnamed.join("\n"));
}

/// A text that is no JSON is refused with the place, in the text of the error itself.
#[test]
fn bad_json_is_refused_with_its_position() {
    let text = "{\n\n  \"secret\": nothing\n}";
    let whole = [
        RawJson::parse(text).map(drop),
        Event::from_json(text).map(drop),
        SessionRecord::from_json(text).map(drop),
        Workspace::from_json(text).map(drop),
    ];
    for result in whole {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("invalid JSON at byte 14 of line 3"), "{error}");
        assert!(!error.contains("secret") && !error.contains("nothing"), "{error}");
    }
    let ended = RawJson::parse("{\"a\":").unwrap_err().to_string();
    assert!(ended.contains("ends too early, at byte 5 of line 1"), "{ended}");
    let shape = RawJson::parse("{\"a\":1}").unwrap().to::<Vec<u8>>().unwrap_err().to_string();
    assert!(shape.contains("at byte 0 of line 1") || shape.contains("at byte 1 of line 1"), "{shape}");
    let id: SessionId = Effects::default().new_session_id();
    let lacking = SessionRecord::from_json(&format!("{{\"id\":\"{id}\"}}")).unwrap_err().to_string();
    assert!(lacking.contains("workspace is missing"), "{lacking}");
}
