//! Documents that leave a store, or that people write: exports, archives, states, transcripts, configurations.

use agent_admin::archive::{Archive, is_archive};
use agent_admin::export::SessionExport;
use agent_admin::manifest::{ImportOutcome, Manifest};
use agent_core::MemoryStore;
use agent_runtime::configuration::ConfigLayers;
use agent_runtime::state_payload::StatePayload;
use agent_transcript::{Seal, Transcript, TranscriptForm};
use bytes::Bytes;
use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt, stream};

use crate::seal::{reseal_archive, reseal_json};
use crate::{Target, check_error, files_below, golden, newest};

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "manifest", factor: 160, rounds: 400, seeds: manifest_seeds, run: manifest },
    Target { name: "archive", factor: 160, rounds: 400, seeds: archive_seeds, run: archive },
    Target { name: "state", factor: 64, rounds: 1000, seeds: state_seeds, run: state },
    Target { name: "transcript", factor: 64, rounds: 2000, seeds: transcript_seeds, run: transcript },
    Target {
        name: "configuration",
        factor: 400,
        rounds: 1000,
        seeds: configuration_seeds,
        run: configuration,
    },
];

/// Words by which an error of an import names its object.
const IMPORTED: &[&str] = &["document", "session", "archive", "event", "blob", "record"];

/// A session as a JSON document, with its checksum computed again. What is read is imported, and exported as it was.
fn manifest(input: &[u8]) {
    let mut sealed = input.to_vec();
    if let [body @ .., b'\n'] = &mut sealed[..] {
        reseal_json(body, 0);
    }
    let Ok(text) = std::str::from_utf8(&sealed) else { return };
    let manifest = match Manifest::parse(text) {
        Ok(manifest) => manifest,
        Err(error) => return check_error(&error, IMPORTED),
    };
    match manifest.to_json() {
        Ok(json) => assert_eq!(Manifest::parse(&json).expect("what was written is read"), manifest),
        Err(error) => check_error(&error, IMPORTED),
    }
    let store = MemoryStore::new();
    match block_on(manifest.import_with_ancestors(&store)) {
        Ok(imported) => {
            assert_eq!(imported.outcome, ImportOutcome::New);
            let again = block_on(Manifest::export(&store, manifest.session.id)).expect("it is exported");
            assert_eq!(again, manifest);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn manifest_seeds() -> Vec<Vec<u8>> {
    let documents = files_below(&newest("document").1);
    documents.into_iter().filter(|(path, _)| path.ends_with(".json")).map(|(_, document)| document).collect()
}

/// An archive in pieces, with its checksums computed again. The first byte is the length of the pieces.
fn archive(input: &[u8]) {
    let Some((first, tar)) = input.split_first() else { return };
    let mut tar = tar.to_vec();
    reseal_archive(&mut tar);
    is_archive(&tar);
    let tar = Bytes::from(tar);
    let step = 1 + 13 * usize::from(*first);
    let pieces = |tar: &Bytes| {
        let pieces: Vec<_> =
            (0..tar.len()).step_by(step).map(|at| Ok(tar.slice(at..tar.len().min(at + step)))).collect();
        stream::iter(pieces).boxed()
    };
    let archive = match block_on(Archive::open(pieces(&tar))) {
        Ok(archive) => archive,
        Err(error) => return check_error(&error, IMPORTED),
    };
    let (store, manifest) = (MemoryStore::new(), archive.manifest().clone());
    match block_on(archive.import_with_ancestors(&store)) {
        Ok(_) => {
            let again = block_on(Manifest::export(&store, manifest.session.id)).expect("it is exported");
            assert_eq!(again, manifest);
            let export =
                block_on(SessionExport::read(&store, manifest.session.id, |_| {})).expect("it is read");
            let pieces: Vec<Bytes> = block_on(export.to_archive().unwrap().try_collect()).unwrap();
            let again = stream::iter(pieces).map(Ok).boxed();
            assert_eq!(
                block_on(Archive::open(again)).expect("what was written is read").manifest(),
                &manifest
            );
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn archive_seeds() -> Vec<Vec<u8>> {
    let documents = files_below(&newest("document").1);
    let archives = documents.into_iter().filter(|(path, _)| path.ends_with(".tar"));
    archives.flat_map(|(_, tar)| [[&[3][..], &tar].concat(), [&[200][..], &tar].concat()]).collect()
}

/// The state of a session.
fn state(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match StatePayload::parse(text) {
        Ok(state) => {
            assert_eq!(StatePayload::parse(&state.to_json()).expect("what was written is read"), state);
        }
        Err(error) => check_error(&error, &["state", "document"]),
    }
}

fn state_seeds() -> Vec<Vec<u8>> {
    files_below(&golden().join("state")).into_iter().map(|(_, state)| state).collect()
}

/// A transcript. What is read is written in the current form, which is then read as the same messages.
fn transcript(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    for line in text.lines().take(20) {
        let _ = Seal::parse(line);
    }
    let parsed = match Transcript::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return check_error(&error, &["transcript"]),
    };
    let written = parsed.transcript.to_markdown();
    let again = Transcript::parse(&written).expect("what was written is read");
    assert_eq!(again.transcript, parsed.transcript, "{written}");
    assert_eq!(again.form, TranscriptForm::Edited, "it has no mark");
    assert_eq!(again.transcript.to_markdown(), written);
}

fn transcript_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "---\nformat: 2\n---\n## User\nHello\n## Assistant\nHi\n",
        "---\nformat: 2\nsession: 019c60d9-9c41-715c-8289-ec2d0a9167ec\nmodel: \"o \\\"1\\\"\"\n---\n\n## User\n\n\\## User\n\\json \"a\\u0007b\"\n\n## Tool\n\n\\\\json\n\n",
        "---\nsession: x\nprovider: claude\n---\n\n## User\n\nHello\n\n## Assistant\n\n  Hi  \n",
        "## System\nBe brief.\r\n## User\r\nHello\r\n",
    ];
    let golden = files_below(&golden().join("files")).into_iter();
    let golden = golden.filter(|(path, _)| path.ends_with("session.md")).map(|(_, text)| text);
    golden.chain(texts.iter().map(|text| text.as_bytes().to_vec())).collect()
}

/// Layers of a configuration, divided by a line of dashes; and the servers for MCP in it.
fn configuration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    #[cfg(feature = "mcp")]
    match agent_mcp::McpServers::from_json(text) {
        Ok(servers) => assert!(servers.names().all(|name| !name.is_empty())),
        Err(error) => check_error(&error, &["mcp", "MCP"]),
    }
    let (global, workspace) = text.split_once("\n----\n").unwrap_or((text, ""));
    let layers = ConfigLayers::new().with_global_from("host.toml", global);
    let layers = layers.and_then(|layers| layers.with_workspace_from("workspace.toml", workspace));
    let layers = match layers {
        Ok(layers) => layers.with_protected("providers.*.url").unwrap().with_secret("db.password").unwrap(),
        Err(error) => return check_error(&error, &["host.toml", "workspace.toml"]),
    };
    let layers = layers.with_variable("CHAT_MODEL", "providers.claude.model").unwrap();
    let merged = match layers.merge(|_| Some("haiku".to_owned())) {
        Ok(merged) => merged,
        Err(error) => return check_error(&error, &["host.toml", "workspace.toml", "CHAT_MODEL"]),
    };
    assert_eq!(merged.explain().is_empty(), merged.entries().next().is_none());
    #[cfg(feature = "mcp")]
    if let Err(error) = agent_mcp::McpServers::from_config(&merged) {
        check_error(&error, &["mcp", "MCP"]);
    }
    // The merged values, written as the host's file, merge into the same.
    let written = toml::to_string(merged.values()).expect("values have a TOML form");
    let again = ConfigLayers::new().with_global(&written).expect("what was written is read");
    let again = again.merge(|_| None).expect("one layer has no conflict");
    assert_eq!(toml::to_string(again.values()).unwrap(), written);
}

fn configuration_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "provider = 'claude'\n[providers.claude]\nmodel = 'opus'\nurl = 'https://a'\n----\n[providers.claude]\nmodel = 'haiku'\n",
        "model = 'opus'\n[ui]\ncolor = true\nwidth = 0x50\nat = 2026-02-15T10:30:00Z\nlist = [1.5, \"a\\u00e9\", {a = 1}]\n----\n[ui]\nwidth = 100\n",
        "[db]\npassword = 'x'\n[[servers]]\nname = \"a\"\n[[servers]]\n\"a.b\".c = '''x\ny'''\n",
        "[mcp.files]\ncommand = 'npx'\nargs = ['-y']\n[mcp.web]\nurl = 'https://a'\nheaders = { A = 'b' }\n",
        r#"{"mcpServers":{"files":{"command":"npx","args":["-y"],"env":{"A":"b"}},"web":{"url":"https://a","headers":{"A":"b"},"timeout":30}}}"#,
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
