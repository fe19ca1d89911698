//! Streams of sessions and of messages: all there is, in order, a page at a time, and no damage hidden.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use agent_core::event::{EventType, NewEvent};
use agent_core::json::RawJson;
use agent_core::model::{Actor, Role};
use agent_core::store::SessionQuery;
use agent_core::{ErrorKind, MemoryStore, Seq};
use agent_runtime::{Conversation, ConversationMessage, EchoProvider, Input, ScriptedProvider, Turn};
use agent_tests::{Site, each_store};
use futures::{StreamExt, TryStreamExt};

use crate::common::{Faulty, agent};

async fn oldest_first(chat: &Conversation) -> Vec<ConversationMessage> {
    chat.messages().try_collect().await.unwrap()
}

/// The texts, oldest first, after a look from the other end shows the same.
async fn texts(chat: &Conversation) -> Vec<String> {
    let messages = oldest_first(chat).await;
    let mut newest: Vec<_> = chat.messages_newest_first().try_collect().await.unwrap();
    newest.reverse();
    assert_eq!(newest, messages);
    messages.into_iter().map(|message| message.text).collect()
}

/// Messages of people and of the agent come in order, from either end, over many pages; nothing else does.
async fn messages_come_in_order(site: Site) {
    let site = site.unsynced();
    let storage = site.open().await;
    let model = ScriptedProvider::new([Turn::new().text("it is noon")]);
    let agent = agent(&storage, model);
    let chat = agent.conversation("key").await.unwrap();
    let ann = Actor::named(Role::User, "ann").unwrap();
    let question = agent_core::event::Message::new("what time is it?")
        .with_metadata("client", RawJson::of(&"web").unwrap());
    let run = chat.prompt(Input::new(question).with_actor(ann.clone())).await.unwrap();
    let run = run.finish().await.unwrap().run;
    chat.set_system_prompt("be short").await.unwrap();
    let mut head = chat.refresh().await.unwrap().head;
    let mut expected = vec!["what time is it?".to_owned(), "it is noon".to_owned()];
    for n in 0..130 {
        // Some of them are long, so that pages end before they are full.
        let text = format!("{n} {}", "x".repeat(if n % 9 == 0 { 90_000 } else { 10 }));
        let events = vec![
            NewEvent::user_message(text.clone()),
            NewEvent::agent_message(format!("answer {n}")),
            NewEvent::new("x.app.seen".parse().unwrap(), RawJson::empty_object()),
        ];
        head = storage.sessions.append(chat.id(), head, events).await.unwrap().last;
        expected.extend([text, format!("answer {n}")]);
    }
    assert_eq!(texts(&chat).await, expected);
    let messages = oldest_first(&chat).await;
    assert!(messages.windows(2).all(|two| two[0].seq < two[1].seq && two[0].at <= two[1].at));
    let first = &messages[0];
    assert_eq!((first.role, &first.author, first.run), (Role::User, &ann, None));
    assert_eq!(first.metadata.get("client").map(RawJson::get), Some("\"web\""));
    assert_eq!((messages[1].role, messages[1].run), (Role::Agent, run));
    let newest: Vec<_> = chat.messages_newest_first().take(3).try_collect().await.unwrap();
    assert_eq!(newest[0].text, "answer 129");
}

each_store!(messages_come_in_order);

/// A cleared history gives what came after, a compacted one all of it, a fork what it shares and its own; a full write
/// gives what was written.
async fn messages_are_the_visible_history(site: Site) {
    let storage = site.open().await;
    let agent = agent(&storage, EchoProvider::new());
    let chat = agent.conversation("key").await.unwrap();
    assert_eq!(texts(&chat).await, [""; 0]);
    for text in ["one", "two"] {
        chat.prompt(text).await.unwrap().finish().await.unwrap();
    }
    chat.compact(None, "they counted").await.unwrap();
    assert_eq!(texts(&chat).await, ["one", "one", "two", "two"]);
    let early =
        chat.messages().take(2).map_ok(|message| message.seq).try_collect::<Vec<_>>().await.unwrap()[1];
    let fork = chat.fork(Some(early)).await.unwrap();
    fork.prompt("elsewhere").await.unwrap().finish().await.unwrap();
    assert_eq!(texts(&fork).await, ["one", "one", "elsewhere", "elsewhere"]);
    chat.clear().await.unwrap();
    assert_eq!(texts(&chat).await, [""; 0]);
    chat.define_outcome("three").await.unwrap();
    chat.run_pending().await.unwrap().unwrap().finish().await.unwrap();
    assert_eq!(texts(&chat).await.first().map(String::as_str), Some("three"));
    assert_eq!(texts(&fork).await.len(), 4, "the fork has its own view");
    let head = chat.refresh().await.unwrap().head;
    let written = vec![NewEvent::user_message("four"), NewEvent::agent_message("five")];
    storage.sessions.replace(chat.id(), head, written).await.unwrap();
    assert_eq!(texts(&chat).await, ["four", "five"]);
}

each_store!(messages_are_the_visible_history);

/// One page is read at a time: who takes one message pays for one page. What is written meanwhile is not in it.
#[tokio::test]
async fn messages_are_read_a_page_at_a_time() {
    let faulty = Faulty::new(MemoryStore::new().into());
    let agent = agent(&faulty.storage(), EchoProvider::new());
    let chat = agent.conversation("key").await.unwrap();
    let events: Vec<_> = (0..1000).map(|n| NewEvent::user_message(format!("{n}"))).collect();
    agent.storage().sessions.append(chat.id(), Seq::ZERO, events).await.unwrap();
    for newest in [false, true] {
        let before = faulty.reads();
        let mut messages = if newest { chat.messages_newest_first() } else { chat.messages() };
        assert_eq!(faulty.reads(), before, "nothing is read before it is asked for");
        messages.try_next().await.unwrap().unwrap();
        assert_eq!(faulty.reads(), before + 1);
        let late = vec![NewEvent::user_message("late")];
        agent.storage().sessions.append(chat.id(), Seq::ZERO, late).await.unwrap();
        let rest = messages.try_fold(0, |count, message| async move {
            assert_ne!(message.text, "late");
            Ok(count + 1)
        });
        let late_before = usize::from(newest);
        assert_eq!(rest.await.unwrap(), 999 + late_before);
        assert!(faulty.reads() <= before + 6, "{} reads", faulty.reads() - before);
    }
}

fn log_of(folder: &Path, session: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            let log = path.join("events.jsonl");
            let found =
                if path.ends_with(session) && log.exists() { Some(log) } else { log_of(&path, session) };
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

/// Changes a byte of the event that holds a text.
fn damage(site: &Site, chat: &Conversation, text: &str) {
    let log = log_of(site.folder.path(), &chat.id().to_string()).unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    let at = bytes.windows(text.len()).position(|part| part == text.as_bytes()).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&log, bytes).unwrap();
}

/// From either end the messages before the damage are given, then the damage as an error, and then nothing.
#[tokio::test]
async fn damage_ends_a_stream_of_messages() {
    let site = Site::new("files").await.unsynced();
    let storage = site.open().await;
    let before = agent(&storage, EchoProvider::new());
    let chat = before.conversation("key").await.unwrap();
    for n in 0..10 {
        let events = vec![NewEvent::user_message(format!("text {n}"))];
        storage.sessions.append(chat.id(), Seq::ZERO, events).await.unwrap();
    }
    damage(&site, &chat, "text 4");
    for (mut messages, expected) in [
        (chat.messages(), ["text 0", "text 1", "text 2", "text 3"].as_slice()),
        (chat.messages_newest_first(), &["text 9", "text 8", "text 7", "text 6", "text 5"]),
    ] {
        for text in expected {
            assert_eq!(messages.try_next().await.unwrap().unwrap().text, *text);
        }
        let error = messages.next().await.unwrap().unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&chat.id().to_string()), "{error}");
        assert!(messages.next().await.is_none());
    }
}

/// Every session that a query matches comes once, with pages of any size, the latest first.
async fn sessions_come_once(site: Site) {
    let site = site.unsynced();
    let storage = site.open().await;
    let agent = agent(&storage, EchoProvider::new());
    let mut ids = BTreeSet::new();
    for n in 0..45 {
        ids.insert(agent.conversation(&format!("{n}")).await.unwrap().id());
    }
    let archived = agent.conversation("archived").await.unwrap();
    archived.archive().await.unwrap();
    for limit in [1, 10, 45, 1000] {
        let query = SessionQuery::new().with_limit(limit);
        let listed: Vec<_> = agent.sessions(query).try_collect().await.unwrap();
        assert_eq!(listed.len(), 45, "{limit} a page");
        assert_eq!(listed.iter().map(|session| session.id).collect::<BTreeSet<_>>(), ids, "{limit} a page");
        assert!(listed.windows(2).all(|two| two[0].last_active_at >= two[1].last_active_at));
    }
    let all: Vec<_> = agent.sessions(SessionQuery::new().with_hidden()).try_collect().await.unwrap();
    assert_eq!(all.len(), 46);
    assert_eq!(agent.sessions(SessionQuery::new().with_limit(0)).count().await, 0);
    let other = SessionQuery::new()
        .with_label("a", "b")
        .with_cursor(storage.sessions.list(SessionQuery::new().with_limit(1)).await.unwrap().next);
    let refused: Vec<_> = agent.sessions(other).collect().await;
    assert!(matches!(&refused[..], [Err(error)] if *error.kind() == ErrorKind::InvalidInput), "{refused:?}");
}

each_store!(sessions_come_once);

/// A session that cannot be read is an error among the sessions, by its name; all others come, before and after it.
#[tokio::test]
async fn a_damaged_session_is_not_hidden() {
    let site = Site::new("files").await.unsynced();
    let storage = site.open().await;
    let before = agent(&storage, EchoProvider::new());
    let mut chats = Vec::new();
    for n in 0..9 {
        chats.push(before.conversation(&format!("{n}")).await.unwrap());
    }
    storage.close().await.unwrap();
    damage(&site, &chats[4], EventType::SESSION_CREATED.as_str());
    let after = agent(&site.open().await, EchoProvider::new());
    for limit in [2, 100] {
        let (mut readable, mut damaged) = (BTreeSet::new(), Vec::new());
        let mut sessions = after.sessions(SessionQuery::new().with_limit(limit));
        while let Some(session) = sessions.next().await {
            match session {
                Ok(session) => assert!(readable.insert(session.id)),
                Err(error) => damaged.push(error),
            }
        }
        assert_eq!(readable.len(), 8, "{limit} a page");
        assert!(!readable.contains(&chats[4].id()));
        let [error] = &damaged[..] else { panic!("{damaged:?}") };
        assert_eq!(*error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(&chats[4].id().to_string()), "{error}");
        let careless: agent_core::Result<Vec<_>> =
            after.sessions(SessionQuery::new().with_limit(limit)).try_collect().await;
        assert_eq!(*careless.unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let opened = after.conversation("4").await.unwrap_err();
    assert_eq!(*opened.kind(), ErrorKind::Corrupt);
    let text = opened.to_string();
    assert!(
        text.contains("\"4\"") && text.contains("salvage") && text.contains("recreate_conversation"),
        "{text}"
    );
    after.workspaces().delete_session(chats[4].id()).await.unwrap();
    assert_ne!(after.recreate_conversation("4").await.unwrap().id(), chats[4].id());
}
