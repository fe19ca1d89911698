//! A directory of the Aptove agent, as its documentation shows it, opens as it is.

use std::fs;
use std::path::Path;

use crate::support::files;
use agent_core::clock::Effects;
use agent_core::commit::Precondition;
use agent_core::session::NewSession;
use agent_core::store::{SessionQuery, WorkspaceQuery};
use agent_core::{BindingStore, ErrorKind, SessionStore, SessionStoreExt, WorkspaceId, WorkspaceStore};
use agent_storage_fs::FsStore;

const BOUND: &str = "550e8400-e29b-41d4-a716-446655440000";
const OTHER: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
const SESSION: &str = "---\nprovider: claude\nmodel: claude-sonnet-4-20250514\ncreated_at: 2026-02-15T10:30:00Z\n---\n\n## User\n\nWhat files are in the current directory?\n\n## Assistant\n\nHere are the files.\n";
const OVERLAY: &str =
    "# workspaces/<uuid>/config.toml — only override what's different\nprovider = \"gemini\"\n";

fn seed(root: &Path) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("config.toml", "provider = \"claude\"\n");
    write(
        "bindings.toml",
        &format!("[bindings]\n\"device-id-abc123\" = \"{BOUND}\"\n\"device-id-def456\" = \"{OTHER}\"\n"),
    );
    for (folder, uuid, name, at) in [
        ("default", "default", "default", "2026-02-15T10:30:00Z"),
        (BOUND, BOUND, "project-x", "2026-02-16T10:30:00.123456789+00:00"),
        (OTHER, OTHER, "Küche", "2026-02-14T10:30:00+09:00"),
    ] {
        write(
            &format!("workspaces/{folder}/workspace.toml"),
            &format!(
                "uuid = \"{uuid}\"\nname = \"{name}\"\ncreated_at = \"{at}\"\nlast_accessed = \"{at}\"\nprovider = \"claude\"\nmood = \"x\" # mine\n"
            ),
        );
        write(&format!("workspaces/{folder}/session.md"), SESSION);
        write(&format!("workspaces/{folder}/mcp/server.log"), "hello");
        fs::create_dir_all(root.join("workspaces").join(folder).join("skills")).unwrap();
    }
    write(&format!("workspaces/{BOUND}/config.toml"), OVERLAY);
    write("workspaces/notes.txt", "not ours");
}

/// It is listed, loaded and resolved; nothing of it is rewritten by looking.
#[tokio::test]
async fn aptove_directory_opens_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    seed(root);
    let before = files(root);
    let store = FsStore::open(root).await.unwrap();
    let [bound, other]: [WorkspaceId; 2] = [BOUND, OTHER].map(|id| id.parse().unwrap());
    let page = WorkspaceStore::list(&store, WorkspaceQuery::new()).await.unwrap();
    assert_eq!(page.damaged, []);
    let ids: Vec<_> = page.items.iter().map(|workspace| workspace.id).collect();
    assert_eq!(ids, [bound, WorkspaceId::DEFAULT, other], "by last access");
    let names: Vec<_> = page.items.iter().map(|workspace| workspace.name.as_str()).collect();
    assert_eq!(names, ["project-x", "default", "Küche"]);
    assert_eq!(page.items[0].provider.as_deref(), Some("claude"));
    assert_eq!(page.items[2].created_at.to_string(), "2026-02-14T01:30:00.000000Z");
    let device = "device-id-abc123".parse().unwrap();
    assert_eq!(store.resolve(&device).await.unwrap(), Some(bound));
    assert_eq!(store.load_config(bound).await.unwrap().as_deref(), Some(OVERLAY));
    assert_eq!(store.load_config(other).await.unwrap(), None);
    assert_eq!(store.load_global_config().await.unwrap().as_deref(), Some("provider = \"claude\"\n"));
    assert_eq!(SessionStore::list(&store, SessionQuery::new()).await.unwrap().items, []);
    assert_eq!(files(root), before);

    // The main session's id is the same for everybody, at every time.
    let again = FsStore::open(root).await.unwrap();
    let [first, second] =
        [&store, &again].map(|store| async { WorkspaceStore::load(store, bound).await.unwrap() });
    let (first, second) = (first.await, second.await);
    assert_eq!(first.main_session, second.main_session);
    assert_eq!(first.main_session.to_string(), "386fed6e-c2e8-84a7-947f-2b08752b6620");
    assert_ne!(first.main_session, WorkspaceStore::load(&store, other).await.unwrap().main_session);
}

/// What is written then goes beside what was there.
#[tokio::test]
async fn writes_keep_the_existing_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    seed(root);
    let effects = Effects::default();
    let store = FsStore::open(root).await.unwrap();
    let bound: WorkspaceId = BOUND.parse().unwrap();
    let workspace = WorkspaceStore::load(&store, bound).await.unwrap();
    let new = NewSession::new(workspace.main_session, bound);
    store.sessions(&effects).create(new).await.unwrap();
    store.touch(bound, effects.now()).await.unwrap();
    let path = root.join("workspaces").join(BOUND);
    let text = fs::read_to_string(path.join("workspace.toml")).unwrap();
    assert!(!text.contains("format"), "a touch rewrites nothing:\n{text}");
    assert!(WorkspaceStore::load(&store, bound).await.unwrap().last_accessed > workspace.last_accessed);

    let workspace = WorkspaceStore::load(&store, bound).await.unwrap().with_name("project-y");
    let put = store.put(workspace.clone(), Precondition::Matches(workspace.revision)).await.unwrap();
    assert_eq!(WorkspaceStore::load(&FsStore::open(root).await.unwrap(), bound).await.unwrap(), put);
    let text = fs::read_to_string(path.join("workspace.toml")).unwrap();
    assert!(text.contains("mood = \"x\" # mine"), "{text}");
    assert!(
        text.contains("created_at = \"2026-02-16T10:30:00.123456789+00:00\""),
        "as it was written:\n{text}"
    );
    assert_eq!(fs::read_to_string(path.join("session.md")).unwrap(), SESSION);

    // The seed's default workspace under whatever UUID it wrote there.
    let default = root.join("workspaces").join("default").join("workspace.toml");
    let text =
        fs::read_to_string(&default).unwrap().replace("\"default\"\nname", &format!("\"{OTHER}\"\nname"));
    fs::write(&default, text).unwrap();
    let workspace = WorkspaceStore::load(&store, WorkspaceId::DEFAULT).await.unwrap();
    store.put(workspace, Precondition::MustExist).await.unwrap();
    assert!(fs::read_to_string(&default).unwrap().contains(&format!("uuid = \"{OTHER}\"")));

    store.delete(bound).await.unwrap();
    assert_eq!(*WorkspaceStore::load(&store, bound).await.unwrap_err().kind(), ErrorKind::Deleted);
    assert!(!path.join("session.md").exists() && !path.join("mcp").exists());
    assert_eq!(fs::read_to_string(root.join("workspaces/notes.txt")).unwrap(), "not ours");
}
