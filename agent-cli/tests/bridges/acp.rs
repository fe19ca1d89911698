//! `chat acp` with clients that are not ours: the SDKs of the Agent Client Protocol for Python and for TypeScript.
//!
//! `.ci/servers` installs them under `target`. Without one its test says so; if `CI` is set, it fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Found, PROGRAM, found};
use agent_core::event::ToolOutcome;
use agent_core::state::SessionState;
use tempfile::TempDir;

/// Outcomes of the calls that a client lets the program make: of the one that was killed, nothing is known.
const OUTCOMES: [ToolOutcome; 4] =
    [ToolOutcome::Ok, ToolOutcome::Interrupted, ToolOutcome::Ok, ToolOutcome::Denied];

/// Returns a file of an SDK; `None` if it is not installed.
fn sdk(file: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let found = root.join("target").join(file);
    if found.exists() {
        return Some(found);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is missing; run .ci/servers", found.display());
    println!("LEFT OUT: {} is missing; run .ci/servers", found.display());
    None
}

/// Runs a client to its end. Prints what it has shown.
fn run(mut client: Command, script: &str, folder: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acp").join(script);
    let ended = client.arg(script).arg(PROGRAM).arg(folder).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    println!("{out}");
    assert!(ended.status.success(), "{}\n{out}\n{err}", ended.status);
}

/// Checks that the log of the one session is whole, and that nothing of it is left to do.
async fn whole(folder: &Path) -> Found {
    let found = found(folder).await;
    assert_eq!((found.session.status.state, found.session.inputs_open), (SessionState::Idle, 0));
    found
}

/// The SDK for Python: a conversation, loading, a cancellation, kills in the middle of a turn and of a tool, permissions.
#[tokio::test]
async fn the_python_sdk_drives_the_program() {
    let Some(python) = sdk("acp-python/bin/python") else { return };
    let folder = TempDir::new().unwrap();
    run(Command::new(python), "client.py", folder.path());
    let found = whole(folder.path()).await;
    assert_eq!(found.outcomes(), OUTCOMES);
    assert_eq!(found.take_overs().len(), 2, "of the killed programs' turns");
}

/// The same with the SDK for TypeScript.
#[tokio::test]
async fn the_typescript_sdk_drives_the_program() {
    let Some(sdk) = sdk("acp-typescript/node_modules/@agentclientprotocol/sdk") else { return };
    let folder = TempDir::new().unwrap();
    let mut node = Command::new("node");
    node.env("ACP_SDK", sdk);
    run(node, "client.mjs", folder.path());
    let found = whole(folder.path()).await;
    assert_eq!(found.outcomes(), OUTCOMES);
    assert_eq!(found.take_overs().len(), 2, "of the killed programs' turns");
}
