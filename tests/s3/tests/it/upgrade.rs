//! `chat upgrade` on a bucket: its format number, and objects of other versions.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::proxy::Proxy;
use agent_core::clock::Effects;
use agent_core::session::NewSession;
use agent_core::{SessionId, Storage, WorkspaceId};
use agent_storage_s3::S3Config;
use s3_servers::{Kind, Server};

/// Runs `chat upgrade` on a prefix; returns the exit code and everything that it prints.
fn upgrade(endpoint: &str, prefix: &str) -> (i32, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_chat-with-s3"))
        .args(["upgrade", "--store", &format!("s3://{}/{prefix}", Server::BUCKET)])
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ALLOW_HTTP", "1")
        .env("AWS_ACCESS_KEY_ID", Server::ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", Server::SECRET_KEY)
        .output()
        .unwrap();
    let text = String::from_utf8([ran.stdout, ran.stderr].concat()).unwrap();
    (ran.status.code().unwrap(), text)
}

/// Replaces an object behind the back of every store.
fn put(server: &Server, key: &str, body: &str) {
    let address = server.endpoint().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let bucket = Server::BUCKET;
    let length = body.len();
    write!(
        stream,
        "PUT /{bucket}/{key} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{key}: {answer}");
}

/// A header of an object of another format, with a right checksum.
fn header(kind: &str, format: u32) -> String {
    let text = format!("H {{\"format\":{format},\"kind\":\"{kind}\"}}");
    format!("{:08x} {text}\n", crc32c::crc32c(text.as_bytes()))
}

async fn with_sessions(server: &Server, prefix: &str) -> [SessionId; 2] {
    let storage: Storage = S3Config::from_url(&server.address(prefix)).unwrap().open().await.unwrap().into();
    let effects = Effects::default();
    let ids = [(); 2].map(|()| effects.new_session_id());
    for id in ids {
        storage.sessions.create(NewSession::new(id, WorkspaceId::DEFAULT)).await.unwrap();
    }
    storage.close().await.unwrap();
    ids
}

fn newest(prefix: &str, id: SessionId) -> String {
    let last = id.as_uuid().as_bytes()[15];
    format!("{prefix}/v7/default/s/{last:02x}/{id}/c/99999999999999999999")
}

#[tokio::test]
async fn upgrade_of_a_bucket_names_objects_of_other_formats() {
    let server = match Kind::Ministack.check().and_then(|()| Server::start(Kind::Ministack)) {
        Ok(server) => server,
        Err(missing) if missing.may_be_passed_over() => return,
        Err(missing) => panic!("{missing}"),
    };
    let proxy = Proxy::to(server.endpoint());
    let [kept, forged] = with_sessions(&server, "one").await;
    // The first look at this address probes the server.
    upgrade(proxy.endpoint(), "one");
    proxy.forget();
    let (code, texts) = upgrade(proxy.endpoint(), "one");
    assert_eq!(code, 0, "{texts}");
    assert!(texts.contains("objects  7\n") && texts.contains("2 sessions"), "{texts}");
    let requests = proxy.requests();
    proxy.forget();
    let is_read = |request: &String| request.starts_with("GET ") || request.starts_with("LIST ");
    assert!(!requests.is_empty() && requests.iter().all(is_read), "it changes nothing: {requests:#?}");
    for (format, expected) in [(6, "has format 6, which was never released"), (8, "use a newer chat")] {
        put(&server, &newest("one", forged), &header("commit", format));
        let (code, texts) = upgrade(proxy.endpoint(), "one");
        assert_eq!(code, 1, "{texts}");
        assert!(texts.contains(expected) && texts.contains(&forged.to_string()), "{texts}");
        assert!(
            texts.contains("1 object of another format") && !texts.contains(&kept.to_string()),
            "{texts}"
        );
        assert!(proxy.forget().iter().all(is_read), "it changes nothing");
    }
    with_sessions(&server, "two").await;
    for (format, expected) in [(6, "has format 6, which was never released"), (8, "use a newer chat")] {
        put(&server, "two/settings", &header("settings", format));
        let (code, texts) = upgrade(proxy.endpoint(), "two");
        assert_eq!(code, 1, "{texts}");
        assert!(texts.contains(expected) && texts.contains("Nothing was changed"), "{texts}");
    }
    let (code, texts) = upgrade(proxy.endpoint(), "missing");
    assert_eq!(code, 3, "{texts}");
}
