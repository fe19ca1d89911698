//! Damage of `index/`, which `rebuild` writes again: errors name that remedy.

use std::fs;
use std::path::{Path, PathBuf};

use agent_admin::audit::audited;
use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::session::NewSession;
use agent_core::{Error, Seq, SessionId, SessionStore, SessionStoreExt, Storage, WorkspaceId};
use agent_runtime::WorkspaceManager;
use agent_runtime::retention::GcPolicy;

use crate::support::{hasty, session};

/// Puts a file where a folder is, and a folder where a file is.
fn damage(path: &Path) {
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap();
        fs::write(path, "no folder").unwrap();
    } else {
        let _ = fs::remove_file(path);
        fs::create_dir_all(path.join("no file")).unwrap();
    }
}

/// The text of an error with its causes, as the program prints it.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn index_file(root: &Path, below: &str, id: SessionId) -> PathBuf {
    let text = id.to_string();
    root.join("index").join(below).join(&text[text.len() - 2..])
}

/// Whatever in `index/` is something else: an operation that cannot be carried out for it says what to do, which is to move it
/// away and to rebuild, and not to repair something else.
#[tokio::test]
async fn damaged_index_is_named_with_its_remedy() {
    let names: [fn(&Path, SessionId) -> PathBuf; 8] = [
        |root, _| root.join("index"),
        |root, _| root.join("index/sessions"),
        |root, _| root.join("index/locks"),
        |root, _| root.join("index/workspaces"),
        |root, _| root.join("index/changes"),
        |root, id| index_file(root, "sessions", id),
        |root, id| index_file(root, "sessions", id).join(id.to_string()),
        |root, id| index_file(root, "locks", id),
    ];
    let mut refused = 0;
    for name in names {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let (store, effects) = (hasty(root).await, Effects::default());
        let id = session(&store, &effects).await.id;
        store.close().await.unwrap();
        let path = name(root, id);
        damage(&path);
        let store = hasty(root).await;
        let storage = audited(&Storage::from(store.clone()), "user:alice".parse().unwrap());
        let manager = WorkspaceManager::new(storage.clone().with_effects(effects.clone()));
        let mut errors = Vec::new();
        errors.extend(manager.gc(GcPolicy::older_than(std::time::Duration::ZERO)).await.err());
        errors.extend(manager.delete_session(id).await.err());
        errors.extend(manager.purge(id).await.err());
        let more = vec![NewEvent::user_message("more")];
        errors.extend(store.sessions(&effects).append(id, Seq::new(1), more).await.err());
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        errors.extend(store.sessions(&effects).create(new).await.err());
        let again = NewSession::new(id, WorkspaceId::DEFAULT);
        errors.extend(store.sessions(&effects).create(again).await.err());
        let done = store.maintenance().rebuild().await.unwrap();
        let is_read = path.starts_with(root.join("index/sessions"))
            && path != index_file(root, "sessions", id).join(id.to_string());
        assert_eq!(
            done.damaged.iter().filter(|it| it.to_string().contains("/index")).count(),
            usize::from(is_read || path.ends_with("index")),
            "{}: {done:?}",
            path.display()
        );
        for text in errors.iter().map(chain) {
            let context = format!("{}: {text}", path.display());
            assert!(!text.contains("is missing") && !text.contains("repair the audit log"), "{context}");
            assert_eq!(
                text.contains("/index"),
                text.contains("move it away, nothing was changed; then run `chat rebuild`"),
                "{context}"
            );
            refused += usize::from(text.contains("/index"));
        }

        // What the errors say is enough.
        let away = folder.path().join("away");
        fs::rename(&path, away).unwrap();
        let done = store.maintenance().rebuild().await.unwrap();
        assert!(done.damaged.is_empty(), "{}: {done:?}", path.display());
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let new = storage.sessions.create(new).await.unwrap();
        let policy = GcPolicy::older_than(std::time::Duration::ZERO);
        manager.gc(policy).await.unwrap();
        manager.delete_session(new.id).await.unwrap();
        manager.purge(new.id).await.unwrap();
    }
    assert!(refused >= 6, "{refused} operations were refused");
}
