//! Branches in the place of a conversation: edited messages, other answers, returns to earlier points.

use agent_core::event::{Media, Message, NewEvent, Part};
use agent_core::model::{Attributes, Patch, Timer, Title};
use agent_core::session::{Fork, NewSession};
use agent_core::state::SessionState;
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{ErrorKind, Seq, SessionId, Storage, WorkspaceId};
use agent_runtime::views::compare;
use agent_runtime::{AgentRuntime, Conversation, Gate, NewWorkspace, ScriptedProvider, Turn};
use agent_tests::{Site, each_store};
use futures::future::join_all;

use crate::common::{Scene, agent, ask, check_log, dialogue, read, until_text};

fn answers(texts: &[&str]) -> ScriptedProvider {
    ScriptedProvider::new(texts.iter().map(|text| Turn::new().text(*text)))
}

async fn listed(storage: &Storage) -> Vec<SessionId> {
    storage.sessions.list(SessionQuery::new()).await.unwrap().items.iter().map(|session| session.id).collect()
}

async fn said(chat: &Conversation) -> Vec<String> {
    dialogue(chat).await.into_iter().map(|(_, text)| text).collect()
}

/// Event numbers of the messages of people.
async fn messages(chat: &Conversation) -> Vec<Seq> {
    let page = chat.history(ReadEvents::first(1000).with_types(["user.message".parse().unwrap()])).await;
    page.unwrap().events.iter().map(|event| event.seq).collect()
}

async fn keyed(agent: &AgentRuntime) -> Conversation {
    agent.conversation("support/4711").await.unwrap()
}

/// An edited conversation has the key, the title, the labels and the timers of the one that it continues; that one is archived, says who continues it, and is one
/// of the branches.
async fn an_edit_takes_the_place(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = answers(&["one", "two", "three", "two again", "four"]);
    let agent = agent(&storage, model.clone());
    let chat = keyed(&agent).await;
    let patch = Patch::new().with_title(Title::by_user("A trip")).with_label("project", "oslo");
    chat.update(patch).await.unwrap();
    let tomorrow = agent.effects().now().plus_micros(86_400_000_000);
    chat.schedule(Timer::new("early", tomorrow)).await.unwrap();
    for text in ["1", "2", "3"] {
        ask(&chat, text).await;
    }
    chat.schedule(Timer::new("late", tomorrow)).await.unwrap();
    let second = messages(&chat).await[1];

    let edited = chat.edit(second, "2, please").await.unwrap();
    assert!(edited.created, "{name}");
    assert_eq!(read(edited.run).await.0, "two again", "{name}");
    let branch = keyed(&agent).await;
    assert_eq!(branch.id(), edited.conversation.id(), "{name}");
    assert_eq!(said(&branch).await, ["1", "one", "2, please", "two again"], "{name}");
    let prefix = |n: usize| model.requests()[n].messages.iter().take(2).cloned().collect::<Vec<_>>();
    assert_eq!(prefix(3), prefix(1), "{name}: what was said before");
    let now = branch.refresh().await.unwrap();
    assert_eq!(now.attributes.title.as_ref().unwrap().text, "A trip", "{name}");
    assert_eq!(now.attributes.labels["project"], "oslo", "{name}");
    assert_eq!(now.conversation_key().unwrap().as_str(), "support/4711", "{name}");
    let timers =
        |chat: &Conversation| chat.record().timers.iter().map(|it| it.key.clone()).collect::<Vec<_>>();
    assert_eq!((timers(&branch), timers(&chat)), (vec!["early".into()], vec!["late".into()]), "{name}");
    assert_eq!(listed(&storage).await, [branch.id()], "{name}");

    // The former one is read as before, and says where it goes on.
    assert_eq!(said(&chat).await, ["1", "one", "2", "two", "3", "three"], "{name}");
    assert_eq!(chat.refresh().await.unwrap().status.state, SessionState::Archived, "{name}");
    let refused = chat.prompt("4").await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::InvalidTransition { .. }), "{name}: {refused}");
    assert!(refused.to_string().contains(&branch.id().to_string()), "{name}: {refused}");
    let refused = chat.edit(second, "too late").await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Conflict { .. }), "{name}: {refused}");
    assert!(refused.to_string().contains(&branch.id().to_string()), "{name}: {refused}");
    let ids = |found: Vec<std::sync::Arc<agent_core::session::SessionRecord>>| {
        found.iter().map(|session| session.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(branch.branches(10).await.unwrap()), [chat.id()], "{name}");

    // A fork of it is a conversation of its own.
    let apart = chat.fork(None).await.unwrap();
    let links = (apart.record().attributes.superseded_by(), apart.record().attributes.supersedes());
    assert_eq!((links, apart.record().conversation_key()), ((None, None), None), "{name}");
    apart.delete().await.unwrap();
    assert_eq!(keyed(&agent).await.id(), branch.id(), "{name}");

    // Once more; the key leads to the last one, whose answer goes on.
    let point = branch.record().lineage.base();
    let third = branch.rewind(point).await.unwrap();
    assert_eq!(said(&third).await, ["1", "one"], "{name}");
    let third = keyed(&agent).await;
    assert_eq!(ids(third.branches(10).await.unwrap()), [branch.id(), chat.id()], "{name}");
    assert_eq!(ids(third.branches(1).await.unwrap()), [branch.id()], "{name}");
    assert_eq!(ask(&third, "4").await.0, "four", "{name}");
    assert_eq!(listed(&storage).await, [third.id()], "{name}");
    check_log(&chat).await;
}

each_store!(an_edit_takes_the_place and files);

/// The first message of a conversation that began with it: nothing is left of it in the branch.
async fn the_first_message_is_edited(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, answers(&["wrong", "right"]));
    let begun = agent.conversation_with("support/4711", "wrong?").await.unwrap();
    read(begun.run).await;
    begun.conversation.update(Patch::new().with_label("project", "oslo")).await.unwrap();
    let chat = begun.conversation;
    let edited = chat.edit(chat.record().last_input, "right?").await.unwrap();
    assert_eq!(read(edited.run).await.0, "right", "{name}");
    let branch = keyed(&agent).await;
    assert_eq!(said(&branch).await, ["right?", "right"], "{name}");
    assert_eq!(branch.record().attributes.labels["project"], "oslo", "{name}");
    let record = branch.refresh().await.unwrap();
    assert_eq!((record.first_words.as_deref(), record.counts.messages()), (Some("right?"), 2), "{name}");
    assert_eq!(branch.branches(10).await.unwrap()[0].id, chat.id(), "{name}");

    // Back to nothing, and to what was there.
    let empty = branch.undo().await.unwrap();
    assert_eq!(said(&empty).await, [""; 0], "{name}");
    let refused = empty.undo().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{name}: {refused}");
    let refused = empty.retry().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{name}: {refused}");
    let restored = empty.restore(branch.id()).await.unwrap();
    assert_eq!(said(&restored).await, ["right?", "right"], "{name}");
    let refused = restored.restore(restored.id()).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{name}: {refused}");
    assert_eq!(keyed(&agent).await.id(), restored.id(), "{name}");
    assert_eq!(restored.branches(10).await.unwrap().len(), 3, "{name}");
}

each_store!(the_first_message_is_edited and files);

/// A model is asked the same once more, with the picture; without a new message, and without a copy.
async fn a_retry_asks_the_same(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let model = answers(&["hello", "a dog", "a cat", "a lynx"]);
    let agent = agent(&storage, model.clone());
    let chat = keyed(&agent).await;
    ask(&chat, "hi").await;
    let picture = Part::Image(Media::inline("image/png", *b"\x89PNG a small picture"));
    read(chat.prompt(Message::new("What is it?").with_part(picture)).await.unwrap()).await;
    let again = chat.retry().await.unwrap();
    assert_eq!(read(again.run).await.0, "a cat", "{name}");
    let third = again.conversation.retry().await.unwrap();
    assert_eq!(read(third.run).await.0, "a lynx", "{name}");
    let requests = model.requests();
    assert!(
        requests[1].messages == requests[2].messages && requests[2].messages == requests[3].messages,
        "{name}"
    );
    assert_eq!(said(&third.conversation).await, ["hi", "hello", "What is it?", "a lynx"], "{name}");
    assert_eq!(listed(&storage).await, [third.conversation.id()], "{name}");

    // A message without an answer is answered where it is.
    let waits = third.conversation;
    waits.send("and?").await.unwrap();
    model.push(Turn::new().text("that is all"));
    let run = waits.retry().await.unwrap();
    assert!(!run.created && run.conversation.id() == waits.id(), "{name}");
    assert_eq!(read(run.run).await.0, "that is all", "{name}");
}

each_store!(a_retry_asks_the_same and files);

/// A run that is active ends, and what it has said stays with the former session.
async fn a_run_that_is_edited_away_ends(site: Site) {
    let gate = Gate::new();
    let model = ScriptedProvider::new([
        Turn::new().text("first"),
        Turn::new().text("half").gate(&gate).text(" and whole"),
        Turn::new().text("other"),
    ]);
    let Scene { name, agent, chat, .. } = Scene::new(&site, model.clone()).await;
    ask(&chat, "1").await;
    let mut run = chat.prompt("2").await.unwrap();
    until_text(&mut run).await;
    let edited = chat.edit(chat.refresh().await.unwrap().last_input, "3").await.unwrap();
    assert_eq!(read(edited.run).await.0, "other", "{name}");
    drop(run);
    assert_eq!(said(&edited.conversation).await, ["1", "first", "3", "other"], "{name}");
    let now = chat.refresh().await.unwrap();
    assert_eq!((now.status.state, now.lease.is_none()), (SessionState::Archived, true), "{name}");
    assert_eq!(said(&chat).await[..3], ["1", "first", "2"], "{name}");
    // The main session of the workspace is the branch.
    let workspace = agent.workspaces().load(now.workspace).await.unwrap();
    assert_eq!(agent.open_main(&workspace).await.unwrap().id(), edited.conversation.id(), "{name}");
    check_log(&chat).await;
    gate.open();
}

each_store!(a_run_that_is_edited_away_ends and files);

/// Of several who edit, retry or rewind one conversation at once, with a key or without one, one does; the others are told, and find its branch.
async fn of_several_edits_one_wins(site: Site) {
    let (name, mut agents) = (site.name, Vec::new());
    for _ in 0..6 {
        agents.push(agent(&site.open().await, agent_runtime::EchoProvider::new()));
    }
    for has_key in [true, false] {
        let first = match has_key {
            true => keyed(&agents[0]).await,
            false => agents[0].new_session(WorkspaceId::DEFAULT, &Patch::new()).await.unwrap(),
        };
        ask(&first, "1").await;
        ask(&first, "2").await;
        let (id, message) = (first.id(), first.record().last_input);
        let edits = agents.iter().enumerate().map(|(n, agent)| async move {
            let chat = agent.conversation_by_id(id).await.unwrap();
            let branch = match n % 3 {
                0 => chat.edit(message, format!("edit {n}")).await,
                1 => chat.retry().await,
                _ => match chat.undo().await {
                    Ok(undone) => return Some(undone.id()),
                    Err(error) => Err(error),
                },
            };
            match branch {
                Ok(branch) => {
                    read(branch.run).await;
                    Some(branch.conversation.id())
                }
                Err(error) => {
                    let is_told = matches!(
                        error.kind(),
                        ErrorKind::Conflict { .. } | ErrorKind::InvalidTransition { .. }
                    );
                    assert!(is_told, "{error}");
                    None
                }
            }
        });
        let won: Vec<_> = join_all(edits).await.into_iter().flatten().collect();
        let now = agents[1].conversation_by_id(id).await.unwrap().in_place().await.unwrap();
        assert_eq!(won, [now.id()], "{name} {has_key}: one wins, and is in the place");
        assert_eq!(listed(agents[0].storage()).await, [now.id()], "{name} {has_key}");
        assert_eq!(now.branches(100).await.unwrap().len(), 1, "{name} {has_key}");
        if has_key {
            assert_eq!(keyed(&agents[2]).await.id(), now.id(), "{name}");
        }
        now.delete().await.unwrap();
    }
}

each_store!(of_several_edits_one_wins and files);

/// A process dies while it puts a branch in the place of a session: before the branch was created, nothing has happened; after that, the next who
/// opens the conversation finds it in its place. If somebody went on in the former session meanwhile, both stay.
async fn an_edit_that_was_cut_off_is_done_or_not(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, agent_runtime::EchoProvider::new());
    let manager = agent.workspaces();
    for has_key in [true, false] {
        let chat = match has_key {
            true => keyed(&agent).await,
            false => agent.new_session(WorkspaceId::DEFAULT, &Patch::new()).await.unwrap(),
        };
        ask(&chat, "1").await;
        ask(&chat, "2").await;
        let cut = async |chat: &Conversation, creates: bool| {
            let now = chat.refresh().await.unwrap();
            let next = manager.successor(&now, &now, Fork::before(now.last_input)).await.unwrap();
            let id = next.session.id;
            if creates {
                storage.sessions.create(next.session).await.unwrap();
            }
            id
        };
        // Before it was created: the conversation goes on, and can be edited.
        let id = cut(&chat, false).await;
        assert_eq!(chat.in_place().await.unwrap().id(), chat.id(), "{name}");
        assert_eq!(ask(&chat, "3").await.0, "3", "{name}");
        // After it was created.
        assert_eq!(cut(&chat, true).await, id, "{name}: the same, whoever makes it");
        assert_eq!(listed(&storage).await.len(), 2, "{name}");
        let found = chat.in_place().await.unwrap();
        assert_eq!((found.id(), listed(&storage).await), (id, vec![id]), "{name}");
        assert_eq!(said(&found).await, ["1", "1", "2", "2"], "{name}");
        // After it was created, and somebody has gone on in the former one: nothing is hidden.
        let other = cut(&found, true).await;
        storage.sessions.append(found.id(), Seq::ZERO, vec![NewEvent::user_message("4")]).await.unwrap();
        assert_eq!(found.in_place().await.unwrap().id(), found.id(), "{name}");
        let undone = found.undo().await.unwrap();
        assert_ne!(undone.id(), other, "{name}");
        assert_eq!(listed(&storage).await.len(), 2, "{name}: the one that was cut off, and the present one");
        for chat in [undone, agent.conversation_by_id(other).await.unwrap()] {
            chat.delete().await.unwrap();
        }
    }
}

each_store!(an_edit_that_was_cut_off_is_done_or_not and files);

/// What was edited away goes with the conversation, and nothing else does.
async fn erasing_a_conversation_erases_its_branches(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, agent_runtime::EchoProvider::new());
    for (key, erases) in [("by handle", true), ("by key", true), ("deleted", false)] {
        let first = agent.conversation(key).await.unwrap();
        for text in ["1", "2", "3"] {
            ask(&first, text).await;
        }
        let second = first.edit(first.record().last_input, "4").await.unwrap();
        read(second.run).await;
        let third = second.conversation.undo().await.unwrap();
        let all = [first.id(), second.conversation.id(), third.id()];
        match (key, erases) {
            ("by handle", _) => assert_eq!(third.erase().now().await.unwrap().needed_by, None, "{name}"),
            ("by key", _) => {
                assert_eq!(agent.erase_conversation(key).now().await.unwrap().needed_by, None, "{name}");
            }
            _ => third.delete().await.unwrap(),
        }
        for id in all {
            let now = storage.sessions.load(id).await.unwrap();
            assert_eq!(now.status.state, SessionState::Deleted, "{name} {key}");
            let page = storage.sessions.read(id, ReadEvents::first(10)).await.unwrap();
            assert_eq!(page.events.is_empty(), erases, "{name} {key}");
        }
        // The purge of a deletion takes all.
        agent.workspaces().purge(all[2]).await.unwrap();
        for id in all {
            let page = storage.sessions.read(id, ReadEvents::first(10)).await.unwrap();
            assert_eq!(page.events.len(), 0, "{name} {key}");
        }
        assert!(agent.recreate_conversation(key).await.unwrap().record().counts.messages() == 0, "{name}");
    }

    // A reference that only one side has leads nowhere.
    let stranger = keyed(&agent).await;
    ask(&stranger, "mine").await;
    let forged = Patch::new().with_reference(Attributes::SUPERSEDES, stranger.id().to_string());
    let new = NewSession::new(agent.effects().new_session_id(), WorkspaceId::DEFAULT).with_patch(&forged);
    let liar = storage.sessions.create(new).await.unwrap();
    let liar = agent.conversation_by_id(liar.id).await.unwrap();
    assert_eq!(liar.branches(10).await.unwrap().len(), 0, "{name}");
    assert!(liar.erase().await.unwrap().events > 0, "{name}");
    assert_eq!(said(&keyed(&agent).await).await, ["mine", "mine"], "{name}");
}

each_store!(erasing_a_conversation_erases_its_branches and files);

/// A session whose workspace is not in the store, as after an import without it, is edited like any other.
async fn a_session_without_its_workspace_is_edited(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, agent_runtime::EchoProvider::new());
    let nowhere = "018f4e9a-7a2b-7c3d-8e4f-ffffffffffff".parse().unwrap();
    let new = NewSession::new(agent.effects().new_session_id(), nowhere);
    let id = storage.sessions.create(new).await.unwrap().id;
    let chat = agent.conversation_by_id(id).await.unwrap();
    for text in ["1", "2"] {
        ask(&chat, text).await;
    }
    let edited = chat.edit(chat.record().last_input, "3").await.unwrap();
    assert_eq!(read(edited.run).await.0, "3", "{name}");
    let undone = edited.conversation.undo().await.unwrap();
    assert_eq!(
        (said(&undone).await, listed(&storage).await),
        (vec!["1".into(), "1".into()], vec![undone.id()]),
        "{name}"
    );
    assert_eq!(chat.in_place().await.unwrap().id(), undone.id(), "{name}");
}

each_store!(a_session_without_its_workspace_is_edited);

/// What is no message, or is not there any more, is not edited; sessions that have ended have no branches.
async fn edits_of_nothing_are_refused(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, agent_runtime::EchoProvider::new());
    let chat = keyed(&agent).await;
    ask(&chat, "1").await;
    let head = chat.refresh().await.unwrap().head;
    let first = messages(&chat).await[0];
    for seq in [Seq::ZERO, Seq::new(1), head, head.next(), Seq::new(u64::MAX)] {
        let refused = chat.edit(seq, "x").await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{name} {seq}: {refused}");
    }
    let refused = chat.edit(first, " ").await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{name}: {refused}");
    assert_eq!(listed(&storage).await, [chat.id()], "{name}: nothing was made");
    chat.clear().await.unwrap();
    for refused in [chat.edit(first, "x").await.unwrap_err(), chat.retry().await.unwrap_err()] {
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{name}: {refused}");
    }
    chat.archive().await.unwrap();
    let refused = chat.rewind(first).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::InvalidTransition { .. }), "{name}: {refused}");
    let workspace = agent.workspaces().create(NewWorkspace::new("other")).await.unwrap();
    let main = agent.open_main(&workspace).await.unwrap();
    storage.sessions.append(main.id(), Seq::ZERO, vec![NewEvent::user_message("x")]).await.unwrap();
    main.terminate().await.unwrap();
    let refused = main.undo().await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::InvalidTransition { .. }), "{name}: {refused}");
}

each_store!(edits_of_nothing_are_refused);

/// Of two histories the shared beginning is found, however many forks lie between, and what each has of its own.
async fn two_histories_are_compared(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, agent_runtime::EchoProvider::new());
    let mut chats = vec![keyed(&agent).await];
    let mut points = Vec::new();
    // More forks than a record names.
    for n in 0..36 {
        let last = chats.last().unwrap().clone();
        ask(&last, &format!("{n}")).await;
        points.push(last.record().head);
        chats.push(last.fork(None).await.unwrap());
        ask(&last, &format!("{n}, aside")).await;
    }
    ask(chats.last().unwrap(), "the end").await;
    let texts = |page: &agent_core::store::EventPage| {
        page.events.iter().filter_map(|event| event.text().map(String::from)).collect::<Vec<_>>()
    };
    for (left, right) in [(0, 36), (0, 1), (1, 2), (5, 30), (30, 5), (34, 35)] {
        let (one, other) = (chats[left].id(), chats[right].id());
        let found = compare(&*storage.sessions, one, other, 1000).await.unwrap();
        assert_eq!(found.shared_until, points[left.min(right)], "{name} {left} {right}");
        let aside = format!("{}, aside", left.min(right));
        let of_earlier = if left < right { &found.left } else { &found.right };
        assert_eq!(texts(of_earlier), [aside.clone(), aside], "{name} {left} {right}");
        let of_later = if left < right { &found.right } else { &found.left };
        assert!(!texts(of_later).iter().any(|text| *text == format!("{}", left.min(right))), "{name}");
    }
    let same = compare(&*storage.sessions, chats[3].id(), chats[3].id(), 10).await.unwrap();
    assert_eq!((same.shared_until, same.left.events.len()), (chats[3].record().head, 0), "{name}");
    let stranger = agent.conversation("another").await.unwrap();
    ask(&stranger, "0").await;
    let apart = compare(&*storage.sessions, chats[0].id(), stranger.id(), 10).await.unwrap();
    assert_eq!(
        (apart.shared_until, texts(&apart.right)),
        (Seq::ZERO, vec!["0".into(), "0".into()]),
        "{name}"
    );
}

each_store!(two_histories_are_compared);
