//! The chat on a bucket of a real server: as on files.

use std::net::TcpListener;
use std::process::Command;

use crate::common::{Chat, Found, check};
use agent_core::store::SessionQuery;
use agent_core::{Seq, SessionStoreExt, Storage};
use agent_storage_s3::S3Config;
use futures::TryStreamExt;
use s3_servers::{Kind, Server};

/// What the command line and the environment of a chat say of the server, as on any user's machine.
fn start(kind: Kind, server: &Server) -> Chat {
    let scheme = if kind == Kind::Azurite { "az" } else { "s3" };
    let mut command = Command::new(env!("CARGO_BIN_EXE_chat-with-s3"));
    command
        .args(["--store", &format!("{scheme}://{}/chats?allow_http=true", Server::BUCKET)])
        .args(["--device", "laptop"]);
    let environment = match kind {
        Kind::Ceph | Kind::Ministack => vec![
            ("AWS_ENDPOINT_URL", server.endpoint()),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", Server::ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", Server::SECRET_KEY),
        ],
        Kind::Azurite => vec![
            ("AZURE_STORAGE_ENDPOINT", server.endpoint()),
            ("AZURE_STORAGE_ACCOUNT_NAME", Server::ACCESS_KEY),
            ("AZURE_STORAGE_ACCOUNT_KEY", Server::AZURE_KEY),
        ],
    };
    command.envs(environment);
    Chat::spawn(command)
}

/// The one session in the bucket, its record checked against its log.
async fn found(server: &Server) -> Found {
    let config = S3Config::from_url(&server.address("chats")).unwrap();
    let storage: Storage = config.open().await.unwrap().into();
    let page = storage.sessions.list(SessionQuery::new()).await.unwrap();
    assert_eq!((page.items.len(), page.damaged.len()), (1, 0));
    let session = storage.sessions.load(page.items[0].id).await.unwrap();
    let events: Vec<_> = storage.sessions.events(session.id, Seq::ZERO).try_collect().await.unwrap();
    check(&session, &events);
    Found { session, events }
}

async fn share_one_conversation(kind: Kind) {
    let server = match kind.check().and_then(|()| Server::start(kind)) {
        Ok(server) => server,
        Err(missing) if missing.may_be_passed_over() => return,
        Err(missing) => panic!("{missing}"),
    };
    let (mut one, mut two) = (start(kind, &server), start(kind, &server));
    one.talk_with(&mut two);
    let after = found(&server).await;
    assert_eq!(after.prompts(), ["from one", "from two"]);
    assert_eq!(after.answered(), ["from one", "from two"]);
    // A third, later, finds it all.
    let mut three = start(kind, &server);
    three.send("/history");
    three.out.wait_for("laptop: from two\nagent: from two\n");
    assert_eq!(three.finish(), 0, "{}", three.err.text());
}

/// The program goes on with the conversation that was used last, also if several were used within a minute.
#[test]
fn a_start_continues_the_conversation_that_was_used_last() {
    let server = match Kind::Ministack.check().and_then(|()| Server::start(Kind::Ministack)) {
        Ok(server) => server,
        Err(missing) if missing.may_be_passed_over() => return,
        Err(missing) => panic!("{missing}"),
    };
    let mut first = start(Kind::Ministack, &server);
    first.err.wait_for("data in ");
    for name in ["A", "B", "C"] {
        first.send(&format!("/new {name}"));
        first.send(&format!("from {name}"));
        first.out.wait_for(&format!("from {name}\n"));
    }
    assert_eq!(first.finish(), 0, "{}", first.err.text());
    let mut second = start(Kind::Ministack, &server);
    second.send("/history");
    second.out.wait_for("laptop: from C\nagent: from C\n");
    assert_eq!(second.finish(), 0, "{}", second.err.text());
}

/// A server that cannot be reached, or says nothing, is tried for a minute; a person learns of it at once.
#[test]
fn a_store_that_does_not_answer_is_named_while_it_is_tried() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for server in [silent.local_addr().unwrap(), gone] {
        for arguments in [&[][..], &["session", "list"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_chat-with-s3"));
            command
                .args(["--store", "s3://bucket/chats?allow_http=true"])
                .args(arguments)
                .env("AWS_ENDPOINT_URL", format!("http://{server}"))
                .env("AWS_REGION", "us-east-1")
                .env("AWS_ACCESS_KEY_ID", "key")
                .env("AWS_SECRET_ACCESS_KEY", "secret");
            let chat = Chat::spawn(command);
            chat.err.wait_for("chat: s3://bucket/chats has not answered for 2 s; still trying.");
        }
    }
}

/// Two programs on one bucket of Ceph's gateway share one conversation, and it is there again for a third.
#[tokio::test]
#[ignore = "needs Ceph; `.ci/full` runs it"]
async fn two_chats_share_one_conversation_on_ceph() {
    share_one_conversation(Kind::Ceph).await;
}

/// The same on ministack.
#[tokio::test]
async fn two_chats_share_one_conversation_on_ministack() {
    share_one_conversation(Kind::Ministack).await;
}

/// The same on Azurite.
#[tokio::test]
#[ignore = "needs Azurite; `.ci/full` runs it"]
async fn two_chats_share_one_conversation_on_azurite() {
    share_one_conversation(Kind::Azurite).await;
}
