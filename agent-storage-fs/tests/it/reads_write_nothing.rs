//! Read-only operations create no files, not even lock files.

use agent_admin::verify::verify;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::support::{append_text, fill, folder_of, hasty, session, watched};
use agent_core::clock::Effects;
use agent_core::commit::{Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents};
use agent_core::{
    BindingStore, SessionId, SessionStore, SessionStoreExt, Storage, WorkspaceId, WorkspaceStore,
};
use agent_storage_fs::FsStore;

/// Every name below a folder, with its bytes and when it was last changed.
fn tree(root: &Path) -> Vec<(PathBuf, Option<Vec<u8>>, SystemTime)> {
    let mut out = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            let bytes = metadata.is_file().then(|| fs::read(&path).unwrap());
            out.push((path, bytes, metadata.modified().unwrap()));
        }
    }
    out.sort();
    out
}

/// A store with some of everything.
async fn furnished(root: &Path, effects: &Effects) -> [Arc<SessionRecord>; 4] {
    let store = hasty(root).await;
    let id = effects.new_session_id();
    let record = Workspace::new(WorkspaceId::DEFAULT, "home", id, effects.now());
    store.put(record, Precondition::MustNotExist).await.unwrap();
    store.bind(&"laptop".parse().unwrap(), WorkspaceId::DEFAULT, Precondition::MustNotExist).await.unwrap();
    let new = NewSession::new(id, WorkspaceId::DEFAULT);
    let main = store.sessions(effects).create(new).await.unwrap();
    append_text(&store, effects, id, main.head, "hello").await;
    let long = session(&store, effects).await;
    fill(&store, effects, long.id, 300).await;
    let fork = store.sessions(effects).fork(long.id, None).await.unwrap();
    let purged = session(&store, effects).await;
    let deleted =
        store.sessions(effects).trigger(purged.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    store.purge(Purge::new(purged.id, deleted.last)).await.unwrap();
    store.transcript_edits(WorkspaceId::DEFAULT).await.unwrap();
    store.close().await.unwrap();
    [main, long, fork, purged]
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// All that can be looked at, by `verify` and by itself.
async fn read_all(store: &FsStore, ids: &[SessionId]) -> bool {
    let sound = verify(&Storage::from(store.clone()), |_| {}).await.unwrap().is_sound();
    let _ = WorkspaceStore::load(store, WorkspaceId::DEFAULT).await;
    let _ = store.resolve(&"laptop".parse().unwrap()).await;
    for id in ids {
        let _ = SessionStore::load(store, *id).await;
        let _ = store.read(*id, ReadEvents::last(10)).await;
        let _ = store.history(*id, ReadEvents::last(10)).await;
    }
    // What was put off until later would come now.
    tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    sound
}

type Damage = fn(&Path, &[PathBuf; 4]);

/// Verifying, and reading, change no byte, name or time of any file, whatever is damaged; not one call of the file
/// system is made that could, so that nothing is left by a process that is killed meanwhile.
#[tokio::test]
async fn reading_and_verifying_write_nothing() {
    let effects = Effects::default();
    let damages: [(&str, bool, Damage); 19] = [
        ("none", true, |_, _| {}),
        ("transcript removed", true, |root, _| {
            fs::remove_file(root.join("workspaces/default/session.md")).unwrap();
        }),
        ("transcript locked by nobody", true, |root, _| {
            fs::remove_file(root.join("workspaces/default/session.md.lock")).unwrap();
        }),
        ("transcript edited", true, |root, _| {
            change(&root.join("workspaces/default/session.md"), |text| text.extend(b"\n## User\n\nmore\n"));
        }),
        ("transcript cut", true, |root, _| {
            change(&root.join("workspaces/default/session.md"), |text| text.truncate(100));
        }),
        ("index removed", true, |root, _| fs::remove_dir_all(root.join("index")).unwrap()),
        ("snapshot removed", true, |_, [_, long, ..]| fs::remove_file(long.join("session.json")).unwrap()),
        ("snapshot damaged", true, |_, [_, long, ..]| change(&long.join("session.json"), |it| it[50] ^= 1)),
        ("end cut off", false, |_, [_, long, ..]| {
            change(&long.join("events.jsonl"), |log| log.truncate(log.len() - 10));
        }),
        ("half a line", true, |_, [main, ..]| {
            change(&main.join("events.jsonl"), |log| log.extend(b"{\"seq\":3,"));
        }),
        ("suspect", true, |_, [main, ..]| fs::write(main.join("suspect"), "").unwrap()),
        ("middle", false, |_, [main, ..]| change(&main.join("events.jsonl"), |log| log[50] ^= 1)),
        ("log removed", false, |_, [main, ..]| fs::remove_file(main.join("events.jsonl")).unwrap()),
        ("session removed", false, |_, [main, ..]| fs::remove_dir_all(main).unwrap()),
        ("sessions removed", false, |_, [main, ..]| fs::remove_dir_all(main.parent().unwrap()).unwrap()),
        ("tombstone", false, |_, [.., purged]| change(&purged.join("tombstone.json"), |it| it[50] ^= 1)),
        ("bindings", false, |root, _| change(&root.join("bindings.toml"), |it| it.truncate(30))),
        ("record", false, |root, _| {
            change(&root.join("workspaces/default/workspace.toml"), |it| it.truncate(60));
        }),
        ("logs swapped", false, |_, [main, long, ..]| {
            fs::rename(main.join("events.jsonl"), main.join("x")).unwrap();
            fs::rename(long.join("events.jsonl"), main.join("events.jsonl")).unwrap();
            fs::rename(main.join("x"), long.join("events.jsonl")).unwrap();
        }),
    ];
    for (what, sound, damage) in damages {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let sessions = furnished(root, &effects).await;
        let folders = sessions.each_ref().map(|session| folder_of(root, session.id));
        damage(root, &folders);
        let before = tree(root);
        let (store, spy) = watched(root).await;
        let ids = sessions.each_ref().map(|session| session.id);
        assert_eq!(read_all(&store, &ids).await, sound, "{what}");
        store.close().await.unwrap();
        drop(store);
        let written: Vec<_> = spy.take().into_iter().filter(crate::support::Call::writes).collect();
        assert!(written.is_empty(), "{what}: {written:?}");
        assert!(tree(root) == before, "{what}");
    }
}

/// What looking does not mend a rebuild makes anew, and a commit its own part.
#[tokio::test]
async fn rebuild_recreates_transcripts_and_index() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let effects = Effects::default();
    let [main, ..] = furnished(root, &effects).await;
    let index = || crate::support::files(&root.join("index/sessions"));
    let transcript = root.join("workspaces/default/session.md");
    let whole = (index(), fs::read(&transcript).unwrap());
    fs::remove_dir_all(root.join("index")).unwrap();
    fs::remove_file(&transcript).unwrap();
    let store = hasty(root).await;
    store.maintenance().rebuild().await.unwrap();
    assert_eq!((index(), fs::read(&transcript).unwrap()), whole);
    drop(store);

    fs::remove_dir_all(root.join("index")).unwrap();
    let store = hasty(root).await;
    let more = vec![NewEvent::user_message("more")];
    SessionStore::load(&store, main.id).await.unwrap();
    store.sessions(&effects).append(main.id, main.head, more).await.unwrap();
    assert_eq!(index().len(), 1);
}
