//! The chat on a bucket of a real server: as on files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../agent-cli/tests/common/mod.rs"]
mod common;

use std::process::Command;

use agent_core::store::SessionQuery;
use agent_core::{Seq, SessionStoreExt, Storage};
use agent_storage_s3::S3Config;
use common::{Chat, Found, check};
use futures::TryStreamExt;
use s3_servers::{Kind, Server};

/// What the command line and the environment of a chat say of the server, as on any user's machine.
fn start(server: &Server) -> Chat {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chat-with-s3"));
    command
        .args(["--store", &format!("s3://{}/chats?allow_http=true", Server::BUCKET)])
        .args(["--device", "laptop"])
        .env("AWS_ENDPOINT_URL", server.endpoint())
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", Server::ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", Server::SECRET_KEY);
    Chat::spawn(command)
}

/// The one session in the bucket, its record checked against its log.
async fn found(server: &Server) -> Found {
    let options = [
        ("endpoint", server.endpoint()),
        ("allow_http", "true"),
        ("region", "us-east-1"),
        ("access_key_id", Server::ACCESS_KEY),
        ("secret_access_key", Server::SECRET_KEY),
    ];
    let config = S3Config::new(Server::BUCKET).with_prefix("chats").unwrap();
    let config =
        options.iter().fold(config, |config, (name, value)| config.with_option(name, value).unwrap());
    let storage: Storage = config.open().await.unwrap().into();
    let page = storage.sessions.list(SessionQuery::new()).await.unwrap();
    assert_eq!((page.items.len(), page.damaged.len()), (1, 0));
    let session = storage.sessions.load(page.items[0].id).await.unwrap();
    let events: Vec<_> = storage.sessions.events(session.id, Seq::ZERO).try_collect().await.unwrap();
    check(&session, &events);
    Found { session, events }
}

async fn share_one_conversation(kind: Kind) {
    let server = match kind.look().and_then(|()| Server::start(kind)) {
        Ok(server) => server,
        Err(missing) if missing.may_be_passed_over() => return,
        Err(missing) => panic!("{missing}"),
    };
    let (mut one, mut two) = (start(&server), start(&server));
    one.err.wait_for("data in s3://");
    two.err.wait_for("data in s3://");
    one.say("from one");
    one.out.wait_for("from one\n");
    two.err.wait_for("laptop: from one\n");
    two.err.wait_for("agent: from one\n");
    two.say("from two");
    two.out.wait_for("from two\n");
    one.err.wait_for("laptop: from two\n");
    one.err.wait_for("agent: from two\n");
    two.say("/history");
    two.out.wait_for("laptop: from one\nagent: from one\nlaptop: from two\nagent: from two\n");
    assert_eq!((one.finish(), two.finish()), (0, 0), "{}{}", one.err.text(), two.err.text());
    let after = found(&server).await;
    assert_eq!(after.said(), ["from one", "from two"]);
    assert_eq!(after.answered(), ["from one", "from two"]);
    // A third, later, finds it all.
    let mut three = start(&server);
    three.say("/history");
    three.out.wait_for("laptop: from two\nagent: from two\n");
    assert_eq!(three.finish(), 0, "{}", three.err.text());
}

/// Two programs on one bucket of Ceph's gateway share one conversation, and it is there again for a third.
#[tokio::test]
async fn two_chats_share_one_conversation_on_ceph() {
    share_one_conversation(Kind::Ceph).await;
}

/// The same on ministack.
#[tokio::test]
async fn two_chats_share_one_conversation_on_ministack() {
    share_one_conversation(Kind::Ministack).await;
}
