//! Attributes of a session are returned as they were set, in the record and in lists.

use agent_core::ErrorKind;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::{Event, EventPayload, NewEvent, SystemMessage};
use agent_core::json::RawJson;
use agent_core::model::{Access, Actor, Patch, Resource, Role, Title};
use agent_core::session::NewSession;
use agent_core::store::ReadEvents;

use crate::failure::{Checked, Failure, refused, same};
use crate::registry::{Clause, table};
use crate::stage::{Stage, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![Content:
        session_attributes_are_returned_as_set,
        update_changes_only_the_named_attributes,
        resources_are_replaced_as_a_whole,
        system_prompt_and_metadata_survive_a_clear,
        record_holds_workspace_creator_and_origin,
        generated_title_does_not_replace_a_chosen_one,
    ]
}

/// Labels, references, metadata, title and resources are returned as they were set, at creation and later, in the
/// record and in lists.
async fn session_attributes_are_returned_as_set(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let resource = Resource::new("repository", "https://example.org/a.git?x=1#y", "/work/ä b")
        .with_access(Access::Write);
    let patch = Patch::new()
        .with_title(Title::by_user("Küche \"1\" 한국어"))
        .with_label("user", "alice")
        .with_label("project", "p/1")
        .with_label("objective", "ünïcode = \"x\"")
        .with_label("module", "'; --")
        .with_reference("agent", "coder@3")
        .with_reference("environment", "env-1")
        .with_reference("model", "any/model:latest")
        .with_reference("policy", "strict")
        .with_reference("model_profile", "cheap")
        .with_reference("thread.coder", "th_\\1")
        .with_metadata(
            "external",
            RawJson::parse("{\"n\":123456789012345678901234567890.10,\"b\":[1.0,null]}")?,
        )
        .with_metadata("container", RawJson::parse("{\"id\":\"c1\",\"state\":\"gone\"}")?)
        .with_resources(vec![resource]);
    let new = stage.session(&storage).await?.with_patch(&patch);
    let expected = new.created.attributes.clone();
    let created = stage.create(&storage, new).await?;
    let plain = stage.new_session(&storage).await?;
    let later = stage.seal(&plain).with_event(NewEvent::updated(patch));
    storage.sessions.commit(later).await?;
    storage = stage.reopen(storage).await?;
    for id in [created.id, plain.id] {
        same("what the record says", &storage.sessions.load(id).await?.attributes, &expected)?;
    }
    let query =
        agent_core::store::SessionQuery::new().with_label("user", "alice").with_label("module", "'; --");
    let page = storage.sessions.list(query).await?;
    same("the sessions with two labels", &page.items.len(), &2)?;
    for item in page.items {
        same("what the list says", &item.attributes, &expected)?;
    }
    Ok(())
}

/// A change of attributes affects only those that it names, and is refused if the session has changed.
async fn update_changes_only_the_named_attributes(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let store = &storage.sessions;
    let patch = Patch::new()
        .with_label("a", "1")
        .with_label("b", "2")
        .with_metadata("m", RawJson::parse("1.0")?)
        .with_reference("r", "x");
    let new = stage.session(&storage).await?.with_patch(&patch);
    let session = stage.create(&storage, new).await?;
    let change =
        Patch::new().with_label("a", "9").without_label("b").with_metadata("n", RawJson::parse("[2]")?);
    let done = store.update(session.id, session.head, change).await?.session;
    let stale = store.update(session.id, session.head, Patch::new().with_label("a", "stale")).await;
    refused!("a change from an old record", stale, ErrorKind::Conflict { head } if *head == Some(done.head))?;
    let now = store.load(session.id).await?;
    let mut expected = session.attributes.clone();
    expected.labels = [("a".to_owned(), "9".to_owned())].into();
    expected.metadata.insert("n", RawJson::parse("[2]")?);
    same("what is said", &now.attributes, &expected)?;
    let remove = Patch::new().with_metadata("m", RawJson::parse("null")?);
    let done = store.update(session.id, now.head, remove).await?.session;
    expected.metadata.remove("m");
    same("what is said after removing a field", &done.attributes, &expected)
}

/// Attached resources are listed in their order, and replaced as a whole.
async fn resources_are_replaced_as_a_whole(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    let resource = |n: usize| Resource::new("directory", format!("/src/{n}"), format!("/mnt/{n}"));
    for list in [vec![resource(1), resource(2)], vec![resource(3).with_access(Access::Write)], vec![]] {
        let commit =
            stage.seal(&session).with_event(NewEvent::updated(Patch::new().with_resources(list.clone())));
        session = storage.sessions.commit(commit).await?.session;
        storage = stage.reopen(storage).await?;
        let now = storage.sessions.load(session.id).await?;
        same("the resources", &now.attributes.resources, &list)?;
    }
    Ok(())
}

/// The custom system prompt is distinct from injected text. The prompt and the metadata survive a clear.
async fn system_prompt_and_metadata_survive_a_clear(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let new = stage.session(&storage).await?;
    let session = stage
        .create(&storage, new.with_patch(&Patch::new().with_reference("model", "m").with_label("k", "v")))
        .await?;
    let commit = stage
        .seal(&session)
        .with_event(NewEvent::system_prompt("Be brief."))
        .with_event(NewEvent::of(&EventPayload::SystemMessage(SystemMessage::injected("The time is noon."))))
        .with_event(NewEvent::user_message("hi"));
    let done = storage.sessions.commit(commit).await?;
    same("where the prompt stands", &done.session.system_prompt, &done.first)?;
    let cleared =
        storage.sessions.commit(stage.seal(&done.session).with_event(NewEvent::history_cleared())).await?;
    storage = stage.reopen(storage).await?;
    let now = storage.sessions.load(session.id).await?;
    same("where the prompt stands after clearing", &now.system_prompt, &done.first)?;
    same("what is said of the session", &now.attributes, &session.attributes)?;
    same("where the visible history starts", &now.visible_from, &cleared.last)?;
    same("what is visible", &now.counts.messages(), &0)?;
    let read = ReadEvents::first(1).with_after(agent_core::Seq::new(now.system_prompt.get() - 1));
    let prompt = storage.sessions.read(session.id, read).await?.events;
    let body = prompt.first().map(Event::decode).transpose()?;
    same("the prompt", &body, &Some(EventPayload::SystemMessage(SystemMessage::custom("Be brief."))))?;
    let events = own_events(&storage, session.id, 10).await?;
    same("the log keeps all", &(events.len() as u64), &now.head.get())
}

/// A record has its workspace, creator, origin and times, and its state with the reason.
async fn record_holds_workspace_creator_and_origin(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let new: NewSession = stage.session(&storage).await?;
    let creator = Actor::named(Role::User, "alice")?;
    let commit = Commit::create(&stage.effects, new.clone()).with_actor(creator.clone());
    let created = storage.sessions.commit(commit.clone()).await?.session;
    let (running, run) = stage.begin_run(&storage, &created, "hi").await?;
    let end =
        stage.seal_run(&running, run).with_trigger(Trigger::EndRun(agent_core::commit::RunEnd::Interrupted));
    let idle = storage.sessions.commit(end).await?.session;
    let over = stage.seal(&idle).with_trigger(Trigger::Terminate(agent_core::state::Reason::UserEnded));
    let at = over.at;
    storage.sessions.commit(over).await?;
    storage = stage.reopen(storage).await?;
    let now = storage.sessions.load(new.id).await?;
    same("its workspace", &now.workspace, &new.created.workspace)?;
    same("its creator", &now.creator, &creator)?;
    same("its origin", &(now.origin, now.depth), &(agent_core::model::Origin::New, 0))?;
    same("when it was created", &now.created_at, &commit.at)?;
    same("when it first ran", &now.started_at, &running.lease.as_ref().map(|lease| lease.since))?;
    same("when it ended", &now.ended_at, &Some(at))?;
    same("why", &now.status.to_string().as_str(), &"terminated (user_ended)")
}

/// A title that a person chose is not replaced by a generated one; it can be removed.
async fn generated_title_does_not_replace_a_chosen_one(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let mut session = agent_core::session::SessionRecord::clone(&*stage.new_session(&storage).await?);
    let mut title = |patch: Patch| {
        let commit = stage.seal(&session).with_event(NewEvent::updated(patch));
        let store = storage.sessions.clone();
        session.head = session.head.next();
        async move { Ok::<_, Failure>(store.commit(commit).await?.session.attributes.title.clone()) }
    };
    let (made_up, chosen) = (Title::generated("About files"), Title::by_user("Mine"));
    same("a made-up title", &title(Patch::new().with_title(made_up.clone())).await?, &Some(made_up.clone()))?;
    same("a chosen title", &title(Patch::new().with_title(chosen.clone())).await?, &Some(chosen.clone()))?;
    same("a made-up title after it", &title(Patch::new().with_title(made_up)).await?, &Some(chosen))
}
