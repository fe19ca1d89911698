//! `chat sizes`.

use agent_admin::usage::usage;
use agent_core::clock::Effects;
use agent_core::event::{EventPayload, NewEvent, ToolOutcome, ToolResult};
use agent_core::json::RawJson;
use agent_core::model::{CallId, Patch, Title};
use agent_core::session::NewSession;
use agent_core::state::SessionState;
use agent_core::{MemoryStore, SessionId, Storage, WorkspaceId};
use serde_json::json;

use crate::common::Chat;
use crate::site::{KINDS, Site};

async fn session(storage: &Storage, workspace: WorkspaceId, title: &str, events: Vec<NewEvent>) -> SessionId {
    let id = Effects::default().new_session_id();
    let new = NewSession::new(id, workspace).with_patch(&Patch::new().with_title(Title::by_user(title)));
    let head = storage.sessions.create(new).await.unwrap().head;
    if !events.is_empty() {
        storage.sessions.append(id, head, events).await.unwrap();
    }
    id
}

fn said(bytes: usize) -> Vec<NewEvent> {
    vec![NewEvent::user_message("x".repeat(bytes))]
}

/// The bytes of each kind are summed up by session, by workspace and in total, over more sessions than a page has; the largest come first.
#[tokio::test]
async fn usage_is_summed_up_by_kind_workspace_and_session() {
    let storage = Storage::from(MemoryStore::new());
    let other = Effects::default().new_workspace_id();
    let call: CallId = "c".parse().unwrap();
    let result = ToolResult::new(call.clone(), ToolOutcome::Ok, RawJson::of(&"y".repeat(3000)).unwrap());
    let events = vec![
        NewEvent::user_message("x".repeat(1000)),
        NewEvent::tool_use(call, "read", RawJson::empty_object()),
        NewEvent::of(&EventPayload::AgentToolResult(result)),
    ];
    let large = session(&storage, other, "large", events).await;
    for n in 0..1100 {
        session(&storage, WorkspaceId::DEFAULT, "small", said(1 + n % 7)).await;
    }
    let middle = session(&storage, WorkspaceId::DEFAULT, "middle", said(500)).await;
    session(&storage, other, "empty", vec![]).await;
    let all = usage(&storage, None, 2).await.unwrap();
    assert_eq!((all.sessions, all.damaged.len()), (1102, 0), "one of them stores nothing");
    let sum = |bytes: agent_admin::usage::UsageBytes| {
        bytes.texts + bytes.tool_results + bytes.reasoning + bytes.blobs + bytes.search_index
    };
    assert_eq!(sum(all.bytes), all.bytes.total);
    assert_eq!(all.workspaces.iter().map(|it| it.bytes.total).sum::<u64>(), all.bytes.total);
    assert_eq!(
        all.workspaces.iter().map(|it| it.sessions).collect::<Vec<_>>(),
        [1101, 1],
        "the larger first"
    );
    let largest: Vec<_> = all.largest.iter().map(|it| (it.session, it.title.as_deref())).collect();
    assert_eq!(largest, [(large, Some("large")), (middle, Some("middle"))]);
    let kinds = all.largest[0].bytes;
    let content = storage.sessions.load(large).await.unwrap().content_bytes;
    assert_eq!((kinds.texts, kinds.tool_results, kinds.blobs), (content.texts, content.tool_results, 0));
    assert!((1000..1200).contains(&kinds.texts) && (3000..3200).contains(&kinds.tool_results), "{kinds:?}");

    let one = usage(&storage, Some(other), 10).await.unwrap();
    assert_eq!((one.sessions, one.bytes, one.workspaces.len()), (1, kinds, 1));
    assert_eq!(usage(&storage, None, 0).await.unwrap().largest, []);
}

/// What a tree of forks shares is counted once, in the session whose events it is; what was deleted until it is purged.
#[tokio::test]
async fn shared_history_is_counted_once() {
    let storage = Storage::from(MemoryStore::new());
    let root = session(&storage, WorkspaceId::DEFAULT, "root", said(5000)).await;
    let own = usage(&storage, None, 9).await.unwrap().bytes.total;
    let child = storage.sessions.fork(root, None).await.unwrap();
    let grandchild = storage.sessions.fork(child.id, None).await.unwrap();
    assert_eq!(usage(&storage, None, 9).await.unwrap().bytes.total, own, "forks share all of it");
    let length = storage.sessions.append(grandchild.id, grandchild.head, said(100)).await.unwrap();
    let length = length.session.content_bytes.total();
    let all = usage(&storage, None, 9).await.unwrap();
    assert_eq!((all.bytes.total, all.sessions), (own + length, 2));
    let manager = agent_runtime::WorkspaceManager::new(storage.clone());
    manager.delete_session(grandchild.id).await.unwrap();
    let deleted = usage(&storage, None, 9).await.unwrap();
    assert_eq!((deleted.bytes, deleted.largest[1].state), (all.bytes, SessionState::Deleted));
    manager.purge(grandchild.id).await.unwrap();
    assert_eq!(usage(&storage, None, 9).await.unwrap().bytes.total, own);
}

/// The sizes are shown in three tables, the largest first, and as one object; the search index is named as that.
#[test]
fn sizes_are_shown_by_kind_workspace_and_session() {
    for kind in KINDS {
        let site = Site::new(kind);
        std::fs::write(site.path().join("cat.png"), vec![7; 200_000]).unwrap();
        let (main, workspace) = site.send("/attach cat.png\na cat");
        site.ok(&["index"]);

        let whole = site.json(&["sizes"]);
        let index = whole["bytes"]["search_index"].as_u64().unwrap();
        assert!(index > 0 && whole["bytes"]["blobs"] == 200_000, "{whole}");
        assert_eq!((&whole["largest"][0]["session"], &whole["damaged"]), (&json!(main), &json!([])));
        let text = site.ok(&["sizes"]);
        assert!(text.starts_with("CONTENT              SIZE\n") && !text.contains(['█', '▏']), "{text}");
        for line in [
            "files                195 KiB\n",
            "search index  ",
            &workspace[28..],
            &main[28..],
            "(search index)",
        ] {
            assert!(text.contains(line), "{kind}: {line}: {text}");
        }
        let one = site.json(&["sizes", "--workspace", &workspace[28..]]);
        assert_eq!((&one["sessions"], &one["bytes"]["search_index"]), (&json!(1), &json!(0)), "{kind}");
        let least = site.ok(&["sizes", "--limit", "1"]);
        assert!(least.contains(&main[28..]) && !least.contains("(search index)"), "{least}");
        let err = site.run(&["sizes", "--limit", "1"]).err;
        assert_eq!(err, "(1 smaller workspace not listed: --limit N)\n");
        let tenants = site.json(&["sizes", "--all-tenants"]);
        assert_eq!((&tenants["tenant"], &tenants["bytes"]), (&json!("default"), &whole["bytes"]));
        site.fails(&["sizes", "--limit", "0"], 2, "--limit");
    }
}

/// On a terminal each row has a bar.
#[test]
fn sizes_have_bars_on_a_terminal() {
    let site = Site::new("files");
    site.send(&"hello ".repeat(100));
    let mut chat = Chat::on_columns(&site.path().join("data"), &["sizes"], "80");
    assert_eq!(chat.finish(), 0, "{}", chat.err.text());
    let shown = chat.out.text();
    assert_eq!(shown.matches(&"█".repeat(20)).count(), 3, "{shown}");
}
