//! Golden files of the sealed form: a folder that an encrypted store wrote once, and what is in it.
//!
//! With `AGENT_GOLDEN=write` the test writes them, for a new number of the form.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::commit::Commit;
use agent_core::event::Event;
use agent_core::store::{ReadBlob, ReadEvents, WorkspaceQuery};
use agent_core::{Backend, BlobName, SessionId, SessionStoreExt, Storage};
use agent_storage_fs::FsConfig;
use agent_vault::Vault;

use crate::sealed::{acme, ring};
use crate::wordy::{secret, wordy};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/sealed/1")
}

async fn opened(path: &Path) -> (Arc<dyn Backend>, Vault) {
    let inner: Arc<dyn Backend> = Arc::new(FsConfig::new(path).open().await.unwrap());
    (inner.clone(), Vault::open(inner, ring()).await.unwrap())
}

/// All that the session and its workspace are, as text.
async fn told(storage: &Storage, id: SessionId) -> String {
    let events = storage.sessions.read(id, ReadEvents::first(100)).await.unwrap().events;
    let record = storage.sessions.load(id).await.unwrap();
    let workspaces = storage.workspaces.list(WorkspaceQuery::new()).await.unwrap().items;
    let config = storage.workspaces.load_config(record.workspace).await.unwrap();
    let lines = events.iter().map(Event::to_json).chain([record.to_json()]);
    let lines = lines.chain(workspaces.iter().map(agent_core::model::Workspace::to_json));
    lines.chain(config).map(|line| line + "\n").collect()
}

fn copy(from: &Path, to: &Path, wanted: &dyn Fn(&Path) -> bool) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target, wanted);
        } else if wanted(&path) {
            fs::create_dir_all(to).unwrap();
            fs::copy(&path, target).unwrap();
        }
    }
}

#[tokio::test]
async fn sealed_files_are_read_and_written_as_declared() {
    let golden = folder();
    if std::env::var("AGENT_GOLDEN").is_ok_and(|wanted| wanted == "write") {
        let (inner, vault) = opened(&golden.join("store")).await;
        let storage = vault.tenant(&acme());
        let session = wordy(&storage).await;
        fs::write(golden.join("session"), session.id.to_string()).unwrap();
        fs::write(golden.join("told.jsonl"), told(&storage, session.id).await).unwrap();
        inner.close().await.unwrap();
    }
    let id: SessionId = fs::read_to_string(golden.join("session")).unwrap().parse().unwrap();
    let expected = fs::read_to_string(golden.join("told.jsonl")).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let whole = scratch.path().join("whole");
    copy(&golden.join("store"), &whole, &|_| true);
    let (inner, vault) = opened(&whole).await;
    let storage = vault.tenant(&acme());
    assert_eq!(told(&storage, id).await, expected);
    let picture = BlobName::of(secret("picture").repeat(1000).as_bytes());
    let read = storage.sessions.blobs().read(ReadBlob::new(id, picture)).await.unwrap();
    assert_eq!(read.into_bytes(1 << 20).await.unwrap(), secret("picture").repeat(1000));
    let sealed = inner.tenant(&acme()).sessions.read(id, ReadEvents::first(100)).await.unwrap().events;
    // The same events, sealed again by the same keys.
    let keys = scratch.path().join("keys");
    copy(&golden.join("store"), &keys, &|path| path.to_string_lossy().contains("vault_keys-"));
    let (inner, vault) = opened(&keys).await;
    let again = vault.tenant(&acme());
    let put = agent_core::store::PutBlob::of_bytes(id, secret("picture").repeat(1000));
    again.sessions.blobs().put(put).await.unwrap();
    let events = storage.sessions.read(id, ReadEvents::first(100)).await.unwrap().events;
    for commit in events.chunk_by(|one, next| one.commit == next.commit) {
        again.sessions.commit_with_retry(Commit::restore(id, commit.to_vec()).unwrap()).await.unwrap();
    }
    let written = inner.tenant(&acme()).sessions.read(id, ReadEvents::first(100)).await.unwrap().events;
    let lines = |events: &[Event]| events.iter().map(Event::to_json).collect::<Vec<_>>();
    assert_eq!(lines(&written), lines(&sealed));
}
