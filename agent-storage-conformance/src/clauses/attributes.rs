//! What is said of a session comes back as it was said, in the record and in lists.

use agent_core::ErrorKind;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::{Body, Event, NewEvent, SystemMessage};
use agent_core::json::RawJson;
use agent_core::model::{Access, Actor, Patch, Resource, Role, Title};
use agent_core::session::NewSession;
use agent_core::store::ReadEvents;

use crate::failure::{Checked, Failure, refused, same};
use crate::registry::{Clause, table};
use crate::stage::{Stage, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![Content:
        what_is_said_of_a_session_is_kept,
        a_change_touches_only_what_it_names,
        resources_are_replaced_as_a_whole,
        the_system_prompt_and_the_metadata_outlive_clearing,
        a_record_says_where_a_session_came_from,
        a_title_of_a_person_is_not_replaced_by_a_made_up_one,
    ]
}

/// Labels, references, metadata, title and resources come back as they were said, at creation
/// and later, in the record and in lists.
async fn what_is_said_of_a_session_is_kept(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let resource = Resource::new("repository", "https://example.org/a.git?x=1#y", "/work/ä b")
        .with_access(Access::Write);
    let patch = Patch::new()
        .title(Title::by_user("Küche \"1\" 한국어"))
        .label("user", "alice")
        .label("project", "p/1")
        .label("objective", "ünïcode = \"x\"")
        .label("module", "'; --")
        .reference("agent", "coder@3")
        .reference("environment", "env-1")
        .reference("model", "any/model:latest")
        .reference("policy", "strict")
        .reference("model_profile", "cheap")
        .reference("thread.coder", "th_\\1")
        .metadata("external", RawJson::parse("{\"n\":123456789012345678901234567890.10,\"b\":[1.0,null]}")?)
        .metadata("container", RawJson::parse("{\"id\":\"c1\",\"state\":\"gone\"}")?)
        .resources(vec![resource]);
    let new = stage.session(&storage).await?.with(&patch);
    let expected = new.created.attributes.clone();
    let created = stage.create(&storage, new).await?;
    let plain = stage.new_session(&storage).await?;
    let later = stage.seal(&plain).event(NewEvent::updated(patch));
    storage.sessions.commit(later).await?;
    storage = stage.reopen(storage).await?;
    for id in [created.id, plain.id] {
        same("what the record says", &storage.sessions.load(id).await?.attributes, &expected)?;
    }
    let query = agent_core::store::SessionQuery::new().label("user", "alice").label("module", "'; --");
    let page = storage.sessions.list(query).await?;
    same("the sessions with two labels", &page.items.len(), &2)?;
    for item in page.items {
        same("what the list says", &item.attributes, &expected)?;
    }
    Ok(())
}

/// A change of what is said touches only what it names, and is refused where the session has moved on.
async fn a_change_touches_only_what_it_names(stage: &Stage) -> Checked {
    use agent_core::SessionStoreExt;

    let storage = stage.open().await?;
    let (store, effects) = (&storage.sessions, &stage.effects);
    let patch = Patch::new()
        .label("a", "1")
        .label("b", "2")
        .metadata("m", RawJson::parse("1.0")?)
        .reference("r", "x");
    let new = stage.session(&storage).await?.with(&patch);
    let session = stage.create(&storage, new).await?;
    let change = Patch::new().label("a", "9").without_label("b").metadata("n", RawJson::parse("[2]")?);
    let done = store.update(effects, session.id, session.head, change).await?.session;
    let stale = store.update(effects, session.id, session.head, Patch::new().label("a", "stale")).await;
    refused!("a change from an old record", stale, ErrorKind::Conflict { head } if *head == Some(done.head))?;
    let now = store.load(session.id).await?;
    let mut expected = session.attributes.clone();
    expected.labels = [("a".to_owned(), "9".to_owned())].into();
    expected.metadata.insert("n", RawJson::parse("[2]")?);
    same("what is said", &now.attributes, &expected)?;
    let remove = Patch::new().metadata("m", RawJson::parse("null")?);
    let done = store.update(effects, session.id, now.head, remove).await?.session;
    expected.metadata.remove("m");
    same("what is said after removing a field", &done.attributes, &expected)
}

/// Attached resources are listed in their order, and replaced as a whole.
async fn resources_are_replaced_as_a_whole(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    let resource = |n: usize| Resource::new("directory", format!("/src/{n}"), format!("/mnt/{n}"));
    for list in [vec![resource(1), resource(2)], vec![resource(3).with_access(Access::Write)], vec![]] {
        let commit = stage.seal(&session).event(NewEvent::updated(Patch::new().resources(list.clone())));
        session = storage.sessions.commit(commit).await?.session;
        storage = stage.reopen(storage).await?;
        let now = storage.sessions.load(session.id).await?;
        same("the resources", &now.attributes.resources, &list)?;
    }
    Ok(())
}

/// The custom system prompt is told from injected text, and it and the metadata outlive a clearing.
async fn the_system_prompt_and_the_metadata_outlive_clearing(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let new = stage.session(&storage).await?;
    let session =
        stage.create(&storage, new.with(&Patch::new().reference("model", "m").label("k", "v"))).await?;
    let commit = stage
        .seal(&session)
        .event(NewEvent::system_prompt("Be brief."))
        .event(NewEvent::of(&Body::SystemMessage(SystemMessage::injected("The time is noon."))))
        .event(NewEvent::user_message("hi"));
    let done = storage.sessions.commit(commit).await?;
    same("where the prompt stands", &done.session.system_prompt, &done.first)?;
    let cleared =
        storage.sessions.commit(stage.seal(&done.session).event(NewEvent::history_cleared())).await?;
    storage = stage.reopen(storage).await?;
    let now = storage.sessions.load(session.id).await?;
    same("where the prompt stands after clearing", &now.system_prompt, &done.first)?;
    same("what is said of the session", &now.attributes, &session.attributes)?;
    same("where the visible history starts", &now.visible_from, &cleared.last)?;
    same("what is visible", &now.counts.messages(), &0)?;
    let read = ReadEvents::first(1).after(agent_core::Seq::new(now.system_prompt.get() - 1));
    let prompt = storage.sessions.read(session.id, read).await?.events;
    let body = prompt.first().map(Event::body).transpose()?;
    same("the prompt", &body, &Some(Body::SystemMessage(SystemMessage::custom("Be brief."))))?;
    let events = own_events(&storage, session.id, 10).await?;
    same("the log keeps all", &(events.len() as u64), &now.head.get())
}

/// A record says its workspace, creator, origin and times, and what it is doing and why.
async fn a_record_says_where_a_session_came_from(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let new: NewSession = stage.session(&storage).await?;
    let creator = Actor::named(Role::User, "alice")?;
    let commit = Commit::create(&stage.effects, new.clone()).actor(creator.clone());
    let created = storage.sessions.commit(commit.clone()).await?.session;
    let (running, run) = stage.begin_run(&storage, &created, "hi").await?;
    let end = stage.seal_run(&running, run).trigger(Trigger::EndRun(agent_core::commit::RunEnd::Interrupted));
    let idle = storage.sessions.commit(end).await?.session;
    let over = stage.seal(&idle).trigger(Trigger::Terminate(agent_core::state::Reason::UserEnded));
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

/// A title that a person chose is not replaced by one that was made up; it can be removed.
async fn a_title_of_a_person_is_not_replaced_by_a_made_up_one(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let mut session = agent_core::session::Session::clone(&*stage.new_session(&storage).await?);
    let mut title = |patch: Patch| {
        let commit = stage.seal(&session).event(NewEvent::updated(patch));
        let store = storage.sessions.clone();
        session.head = session.head.next();
        async move { Ok::<_, Failure>(store.commit(commit).await?.session.attributes.title.clone()) }
    };
    let (made_up, chosen) = (Title::generated("About files"), Title::by_user("Mine"));
    same("a made-up title", &title(Patch::new().title(made_up.clone())).await?, &Some(made_up.clone()))?;
    same("a chosen title", &title(Patch::new().title(chosen.clone())).await?, &Some(chosen.clone()))?;
    same("a made-up title after it", &title(Patch::new().title(made_up)).await?, &Some(chosen))
}
