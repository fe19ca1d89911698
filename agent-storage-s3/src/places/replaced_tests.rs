//! Tests that replaced objects have the specified bytes, and that damage to one is never taken for other contents.

use std::path::Path;

use agent_core::clock::Effects;
use agent_core::model::Workspace;
use agent_core::{ErrorKind, WorkspaceId};

use super::*;
use crate::places::bindings::StoredBinding;
use crate::places::workspaces::StoredWorkspace;

fn header(kind: &str, name: &str, writes: u64) -> Header {
    let recent = (1..writes).map(|n| format!("{n:032x}")).collect();
    Header {
        format: FORMAT,
        kind: kind.to_owned(),
        name: name.to_owned(),
        writes,
        recent,
        keys: Vec::new(),
        lines: 0,
    }
}

fn keyed(header: Header, key: &str) -> Header {
    Header { keys: vec![key.parse().unwrap()], ..header }
}

fn objects() -> [(&'static str, &'static str, Bytes); 6] {
    let effects = Effects::seeded(1, "2026-02-15T10:30:00Z".parse().unwrap());
    let id = WorkspaceId::DEFAULT;
    let record = Workspace::new(id, "Küche", effects.new_session_id(), effects.now()).with_provider("claude");
    let live = StoredWorkspace::live(record, Some("provider = \"gemini\"\n".to_owned()));
    let write = "0123456789abcdef0123456789abcdef";
    let binding =
        |workspace| StoredBinding { device: Some("laptop \"2\"".parse().unwrap()), workspace, session: None };
    let hash = "84a1";
    let used = StoredBinding { session: Some(effects.new_session_id()), ..binding(Some(id)) };
    [
        (
            "workspace",
            "default",
            encode(keyed(header("workspace", "default", 20), "ws/n/9970480819/18"), write, &live),
        ),
        (
            "workspace-deleted",
            "default",
            encode(header("workspace", "default", 2), write, &StoredWorkspace::Deleted),
        ),
        (
            "workspace-never",
            "default",
            encode(header("workspace", "default", 1), write, &StoredWorkspace::Never),
        ),
        (
            "binding",
            hash,
            encode(keyed(header("binding", hash, 1), "bound/default/1"), write, &binding(Some(id))),
        ),
        ("binding-used", hash, encode(keyed(header("binding", hash, 2), "bound/default/1"), write, &used)),
        ("binding-unbound", hash, encode(header("binding", hash, 2), write, &binding(None))),
    ]
}

fn readable(name: &str, key: &str, bytes: Bytes) -> Result<String> {
    let object = Object { bytes, tag: String::new() };
    Ok(if name.starts_with("workspace") {
        format!("{:?}", decode::<StoredWorkspace>(key, &object)?.content)
    } else {
        format!("{:?}", decode::<StoredBinding>(key, &object)?.content)
    })
}

/// Bytes of format 7. These files are never changed, because stored objects must stay readable.
#[test]
fn golden_replaced_objects() {
    for (name, key, bytes) in objects() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("golden").join("7").join(name);
        if std::env::var_os("WRITE_GOLDEN").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        let known = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&known), "{name}");
        readable(name, key, bytes).unwrap();
    }
}

/// An object of another format is refused with its format, and is not called damaged.
#[test]
fn other_formats_of_objects_are_refused() {
    for (name, key, _) in objects() {
        let kind = name.split('-').next().unwrap();
        for (format, expected) in [(1, "never released"), (6, "never released"), (8, "update the library")] {
            let bytes = encode_as(Header { format, ..header(kind, key, 1) });
            let error = readable(name, key, bytes).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Unsupported, "{name}");
            let text = error.to_string();
            assert!(text.contains(&format!("has format {format}, ")) && text.contains(expected), "{text}");
            assert!(text.contains(key) && !text.contains("damage"), "{text}");
        }
    }
}

fn encode_as(header: Header) -> Bytes {
    encode(header, "0123456789abcdef0123456789abcdef", &StoredWorkspace::Deleted)
}

/// No flipped byte and no truncation yields other contents; each is `Corrupt`.
#[test]
fn damage_never_yields_other_contents() {
    for (name, key, bytes) in objects() {
        let damaged = (0..bytes.len()).map(|at| {
            let mut bad = bytes.to_vec();
            bad[at] ^= 1;
            Bytes::from(bad)
        });
        let cut = (0..bytes.len()).map(|at| bytes.slice(..at));
        for (n, bad) in damaged.chain(cut).enumerate() {
            let error = readable(name, key, bad).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "{name}, {n}: {error}");
        }
        let error = readable(name, "elsewhere", bytes).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{name}");
    }
}

/// A header that names a key of another list than that of the contents, or of a later write, is damage: the object would be
/// shown where it does not belong.
#[test]
fn keys_of_other_contents_are_damage() {
    let (name, key, bytes) = objects().into_iter().find(|(name, ..)| *name == "binding").unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let place = text.split("\"keys\":[\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let (folder, _) = place.rsplit_once('/').unwrap();
    for (forged, is_damage) in [
        (place.clone(), false),
        (format!("{folder}/9"), true),
        ("bound/01a211be-ad51-72ab-8cf2-962dbd33b991/1".to_owned(), true),
        ("ws/n/9970479999/1".to_owned(), true),
    ] {
        let (header, rest) = text.split_once('\n').unwrap();
        let header = header[9..].replacen(&place, &forged, 1);
        let bytes = format!("{:08x} {header}\n{rest}", crc32c::crc32c(header.as_bytes()));
        let read = readable(name, key, bytes.into());
        assert_eq!(read.is_err(), is_damage, "{forged}: {read:?}");
    }
}
