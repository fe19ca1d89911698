//! Chats in several processes on one database: as on files.

use std::process::Command;

use crate::common::{Chat, Found, check};
use crate::{Database, SERVER};
use agent_core::store::SessionQuery;
use agent_core::{Seq, SessionStoreExt, Storage};
use futures::TryStreamExt;

fn start(database: &Database, options: &[&str]) -> Chat {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chat-with-postgres"));
    command.args(["--store", &database.address(), "--device", "laptop"]).args(options);
    Chat::spawn(command)
}

/// The one session in the database, its record checked against its log.
async fn found(database: &Database) -> Found {
    let storage: Storage = database.open().await.into();
    let page = storage.sessions.list(SessionQuery::new()).await.unwrap();
    assert_eq!((page.items.len(), page.damaged.len()), (1, 0));
    let session = storage.sessions.load(page.items[0].id).await.unwrap();
    let events: Vec<_> = storage.sessions.events(session.id, Seq::ZERO).try_collect().await.unwrap();
    check(&session, &events);
    storage.close().await.unwrap();
    Found { session, events }
}

/// Each shows the messages of the other and their answers, and a third, later, finds it all.
#[tokio::test]
async fn two_chats_share_one_conversation_in_postgres() {
    let database = Database::new().await;
    let (mut one, mut two) = (start(&database, &[]), start(&database, &[]));
    one.err.wait_for("data in postgres://");
    one.talk_with(&mut two);
    let after = found(&database).await;
    assert_eq!(
        (after.prompts(), after.answered()),
        (vec!["from one".into(), "from two".into()], vec!["from one".into(), "from two".into()])
    );
    let mut three = start(&database, &[]);
    three.send("/history");
    three.out.wait_for("laptop: from one\nagent: from one\nlaptop: from two\nagent: from two\n");
    assert_eq!(three.finish(), 0, "{}", three.err.text());
}

/// Eight chats that start at the same moment on an empty store use one workspace and one session.
#[tokio::test]
async fn concurrent_first_starts_share_one_session_in_postgres() {
    let database = Database::new().await;
    let mut chats: Vec<_> = (0..8).map(|_| start(&database, &[])).collect();
    for (n, chat) in chats.iter_mut().enumerate() {
        chat.send(&format!("hello {n}"));
    }
    let codes: Vec<_> = chats.iter_mut().map(Chat::finish).collect();
    assert_eq!(codes, [0; 8], "{}", chats.iter().map(|chat| chat.err.text()).collect::<String>());
    let mut messages = found(&database).await.prompts();
    messages.sort();
    assert_eq!(messages, (0..8).map(|n| format!("hello {n}")).collect::<Vec<_>>());
}

/// While one answers, the message of the other waits; when the first is killed and its lease has expired, the other answers.
#[tokio::test]
async fn killed_chat_is_replaced_in_postgres() {
    let database = Database::new().await;
    let mut one = start(&database, &["--lease-ttl-ms", "1000"]);
    one.send("!sleep 600");
    one.err.wait_for("[sleep");
    let mut two = start(&database, &[]);
    two.send("from two");
    two.err.wait_for("this message is answered next");
    one.kill();
    two.out.wait_for("from two\n");
    assert_eq!(two.finish(), 0, "{}", two.err.text());
    let after = found(&database).await;
    assert_eq!((after.take_overs().len(), after.session.inputs_open), (1, 0));
}

/// The connections of a chat are ended by the server while it answers: it connects again and answers.
#[tokio::test]
async fn ended_connections_interrupt_no_chat() {
    let database = Database::new().await;
    let mut chat = start(&database, &["--echo-delay-ms", "50"]);
    chat.send("a b c d e f g h i j k l m n o p q r s t u v w x y z");
    chat.out.wait_for("a b c");
    for _ in 0..5 {
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname =";
        crate::sql(SERVER.address(), &format!("{end} '{}'", database.name)).await;
    }
    chat.out.wait_for("x y z\n");
    chat.send("next");
    chat.out.wait_for("next\n");
    assert_eq!(chat.finish(), 0, "{}", chat.err.text());
    assert_eq!(found(&database).await.answered().len(), 2);
}
