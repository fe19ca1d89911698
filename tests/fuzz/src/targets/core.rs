//! Formats of the core: events, records, cursors, addresses, names.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use agent_core::event::{Event, EventPayload, EventType};
use agent_core::json::RawJson;
use agent_core::model::{Actor, MountSet, Workspace};
use agent_core::session::{ConversationKey, SessionRecord};
use agent_core::store::{Cursor, Registry, percent_decode, split_address};
use agent_core::{BlobName, CommitId, DeviceId, Error, SessionId, TenantId, Timestamp, WorkspaceId};
use agent_runtime::secrets::SecretName;
use agent_storage_fs::FsConfig;
use agent_storage_s3::S3Config;
use agent_storage_sqlite::SqliteConfig;

use crate::{Target, check_error, files_below, golden, newest};

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "event", factor: 64, rounds: 2000, seeds: event_seeds, run: event },
    Target { name: "record", factor: 96, rounds: 1000, seeds: record_seeds, run: record },
    Target { name: "cursor", factor: 16, rounds: 2000, seeds: cursor_seeds, run: cursor },
    Target { name: "address", factor: 64, rounds: 1000, seeds: address_seeds, run: address },
    Target { name: "names", factor: 16, rounds: 2000, seeds: name_seeds, run: names },
];

fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}

/// One line of a log.
fn event(input: &[u8]) {
    let Some(text) = text(input) else { return };
    let event = match Event::from_json(text) {
        Ok(event) => event,
        Err(error) => return check_error(&error, &["event"]),
    };
    let written = event.to_json();
    assert!(!written.contains('\n'), "an event is one line: {written}");
    assert_eq!(Event::from_json(&written).expect("what was written is read"), event);
    if let Err(error) = event.transition() {
        check_error(&error, &["transition"]);
    }
    match event.decode() {
        Ok(payload) => {
            let json = payload.to_json();
            assert_eq!(EventPayload::parse(&payload.kind(), &json).expect("a payload is read"), payload);
            if let Err(error) = payload.check() {
                check_error(&error, &[""]);
            }
        }
        Err(error) => check_error(&error, &["event", "payload"]),
    }
}

fn event_seeds() -> Vec<Vec<u8>> {
    let logs = files_below(&golden()).into_iter().filter(|(path, _)| path.ends_with("events.jsonl"));
    let mut lines: Vec<Vec<u8>> = logs
        .flat_map(|(_, log)| log.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>())
        .filter(|line| !line.is_empty() && line.len() < 3000)
        .collect();
    lines.sort_by_key(Vec::len);
    lines
}

/// The record of a session or of a workspace.
fn record(input: &[u8]) {
    let Some(text) = text(input) else { return };
    match SessionRecord::from_json(text) {
        Ok(session) => {
            let again = SessionRecord::from_json(&session.to_json()).expect("what was written is read");
            assert_eq!(again, session);
            session.pair_safe_head();
            session.next_due_at();
            session.conversation_key();
            session.to_report();
            let tombstone = session.tombstone();
            assert_eq!(
                SessionRecord::from_json(&tombstone.to_json()).expect("a tombstone is read"),
                tombstone
            );
        }
        Err(error) => check_error(&error, &["record", "field"]),
    }
    match Workspace::from_json(text) {
        Ok(workspace) => {
            let again = Workspace::from_json(&workspace.to_json()).expect("what was written is read");
            assert_eq!(again, workspace);
        }
        Err(error) => check_error(&error, &["record", "field"]),
    }
}

fn record_seeds() -> Vec<Vec<u8>> {
    let documents = files_below(&newest("document").1);
    let records = documents.into_iter().filter(|(path, _)| path.ends_with(".json")).map(|(_, document)| {
        let text = String::from_utf8(document).unwrap();
        let (_, rest) = text.split_once("\"session\":").unwrap();
        rest.split_once(",\n\"events\"").unwrap().0.as_bytes().to_vec()
    });
    let workspace = br#"{"id":"default","name":"notes","created_at":"2026-02-15T10:30:00.004000Z","last_accessed":"2026-02-15T10:30:00.009000Z","revision":2,"status":"active","main_session":"019c60d9-9c41-715c-8289-ec2d0a9167ec","provider":"claude","description":"two\nlines","creator":"user","settings":{"number":12345678901234567890.10}}"#;
    records.chain([workspace.to_vec()]).collect()
}

/// Where a page of a list goes on.
fn cursor(input: &[u8]) {
    let Some(text) = text(input) else { return };
    let cursor = match text.parse::<Cursor>() {
        Ok(cursor) => cursor,
        Err(error) => return check_error(&error, &["cursor"]),
    };
    assert_eq!(cursor.to_string().parse::<Cursor>().expect("what was written is read"), cursor);
    let print = text.split('.').nth(1).and_then(|print| u64::from_str_radix(print, 16).ok());
    let print = print.unwrap_or_default();
    match cursor.key(print) {
        Ok(key) => assert_eq!(Cursor::after(print, &key).key(print).expect("its own key"), key),
        Err(error) => check_error(&error, &["cursor"]),
    }
    match cursor.recent_key::<SessionId>(print) {
        Ok((at, id)) => {
            let again = Cursor::after_recent(print, at, id);
            assert_eq!(again.recent_key::<SessionId>(print).expect("its own key"), (at, id));
        }
        Err(error) => check_error(&error, &["cursor"]),
    }
}

fn cursor_seeds() -> Vec<Vec<u8>> {
    let files = files_below(&golden()).into_iter().filter(|(path, _)| path.ends_with("/cursors"));
    let lines = files.flat_map(|(_, text)| {
        let lines = String::from_utf8(text).unwrap();
        lines.lines().map(|line| line.rsplit('\t').next().unwrap().into()).collect::<Vec<Vec<u8>>>()
    });
    lines.chain([b"c1.0000000000000000.key".to_vec()]).collect()
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    FsConfig::register(&mut registry);
    SqliteConfig::register(&mut registry);
    S3Config::register(&mut registry);
    registry
}

/// The address of a store.
fn address(input: &[u8]) {
    let Some(text) = text(input) else { return };
    match split_address(text) {
        Ok((place, options)) => {
            let escaped =
                |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02x}")).collect() };
            let written = options.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
            let address = format!("{place}?{}", written.collect::<Vec<_>>().join("&"));
            assert_eq!(split_address(&address).expect("what was written is read"), (place, options));
        }
        Err(error) => check_error(&error, &["address", "option", "percent-encoded"]),
    }
    if let Ok(decoded) = percent_decode(text) {
        let encoded: String = decoded.bytes().map(|byte| format!("%{byte:02X}")).collect();
        assert_eq!(percent_decode(&encoded).expect("what was encoded is decoded"), decoded);
    }
    match registry().parse(text) {
        Ok(config) => assert!(!config.to_string().is_empty() && !format!("{config:?}").is_empty()),
        Err(error) => check_error(
            &error,
            &[
                "address",
                "store",
                "option",
                "bucket",
                "file",
                "folder",
                "percent-encoded",
                "path",
                "prefix",
                "application",
                "program",
            ],
        ),
    }
}

fn address_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "files:/srv/notes?sync=off&lock_wait_ms=10&open_sessions=3&transcripts=true",
        "files:?app=notes",
        "sqlite:///srv/a%20b.db?sync=normal&busy_timeout_ms=10&readers=1&cache_kib=64",
        "sqlite:notes.db",
        "s3://bucket/some/prefix?region=eu-central-1&endpoint=http://127.0.0.1:9000&allow_http=true",
        "s3://bucket?secret_access_key=x%2Fy&access_key_id=z",
        "memory:",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn name<T: FromStr + Display + PartialEq + Debug>(text: &str, word: &str)
where
    Error: From<T::Err>,
{
    match text.parse::<T>() {
        Ok(name) => {
            let written = name.to_string();
            match written.parse::<T>() {
                Ok(again) => assert_eq!(again, name),
                Err(_) => panic!("{word} {text:?} is written as {written:?}, which is refused"),
            }
        }
        Err(error) => check_error(&Error::from(error), &[word]),
    }
}

/// Ids and names, as people type them.
fn names(input: &[u8]) {
    let Some(text) = text(input) else { return };
    name::<SessionId>(text, "session");
    name::<CommitId>(text, "commit");
    name::<WorkspaceId>(text, "workspace");
    name::<DeviceId>(text, "device");
    name::<TenantId>(text, "tenant");
    name::<BlobName>(text, "blob");
    name::<Timestamp>(text, "time");
    name::<Actor>(text, "actor");
    name::<EventType>(text, "event type");
    name::<ConversationKey>(text, "conversation key");
    name::<SecretName>(text, "secret");
    if let Ok(json) = RawJson::parse(text) {
        assert_eq!(RawJson::parse(json.get()).expect("what was written is read"), json);
        json.has_plain_numbers();
        drop(json.to::<MountSet>());
    }
}

fn name_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "019c60d9-9c41-715c-8289-ec2d0a9167ec",
        "default",
        "laptop \"2\"",
        "acme-2",
        "81db8ebbbbc69c6c6ad4a6aa92b76e0c08af547da236b9e2c9dbe1d8285a8130",
        "2026-02-15T10:30:00.004000Z",
        "user:ada",
        "agent",
        "x.shop.rated",
        "support/4711",
        "ANTHROPIC_API_KEY",
        "{\"number\":12345678901234567890.10,\"list\":[1e5,null,\"\\ud83d\\ude00\"]}",
        "[{\"name\":\"notes\",\"access\":\"read\"}]",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
