//! Imports that were interrupted, and sessions that are restored from a backup.

use agent_admin::manifest::Manifest;
use agent_core::commit::{Commit, Committed};
use agent_core::event::NewEvent;
use agent_core::model::{Patch, Title};
use agent_core::store::SessionStoreWrapper;
use agent_core::{Error, ErrorKind, Result, SessionStore, async_trait};
use agent_runtime::{AgentBuilder, EchoProvider, NewWorkspace};
use serde_json::json;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::site::{KINDS, Site};

/// A store that fails after a number of commits, as if the process had been killed.
#[derive(Debug)]
struct Interrupted {
    store: Arc<dyn SessionStore>,
    left: AtomicU32,
}

#[async_trait]
impl SessionStoreWrapper for Interrupted {
    fn inner(&self) -> &dyn SessionStore {
        &*self.store
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Err(Error::new(ErrorKind::Denied, "interrupted"));
        }
        self.store.commit(commit).await
    }
}

/// A session whose import was interrupted says so, takes no messages and is not exported; the same import completes it, or the
/// session is deleted.
#[tokio::test]
async fn interrupted_import_takes_no_messages() {
    for kind in KINDS {
        let (here, there) = (Site::new("files"), Site::new(kind));
        let (main, _) = here.send("first\nsecond\nthird");
        let file = here.path().join("session.json").to_str().unwrap().to_owned();
        here.ok(&["session", "export", &main, "--output", &file]);
        let interrupt = async |after: u32| {
            let storage = there.open().await;
            let store = Interrupted { store: storage.sessions.store().clone(), left: AtomicU32::new(after) };
            let document = Manifest::parse(&fs::read_to_string(&file).unwrap()).unwrap();
            document.import(&store).await.unwrap_err();
            drop(store);
            storage.close().await.unwrap();
        };
        interrupt(2).await;

        let again = "run the import again, or delete the session";
        let verified = there.run(&["verify"]);
        assert_eq!((verified.code, verified.err.matches(again).count()), (5, 1), "{kind}: {verified:?}");
        assert!(verified.err.contains("chat session import FILE"), "{kind}: {verified:?}");
        assert!(!verified.err.contains("its workspace"), "the import creates it at its end: {verified:?}");
        let shown = there.ok(&["session", "show", &main]);
        assert!(shown.contains("import unfinished"), "{kind}: {shown}");
        there.fails(&["session", "export", &main], 4, "run the import again");
        let output = there.typed(&["--session", &main], "mine\n");
        assert!(output.code != 0, "{kind}: {output:?}");
        let storage = there.open().await;
        let id = main.parse().unwrap();
        let half = storage.sessions.load(id).await.unwrap();
        let mine = vec![NewEvent::user_message("mine")];
        let refused = storage.sessions.append(id, half.head, mine).await.unwrap_err();
        assert!(refused.to_string().contains(again), "{kind}: {refused}");
        storage.close().await.unwrap();

        interrupt(1).await;
        let ran = there.run(&["session", "import", &file]);
        assert!(ran.code == 0 && ran.err.contains("an incomplete session was completed"), "{kind}: {ran:?}");
        there.ok(&["verify"]);
        assert_eq!(there.ok(&["session", "export", &main]), fs::read_to_string(&file).unwrap(), "{kind}");
        let output = there.typed(&["--session", &main], "mine\n");
        assert!(output.code == 0, "{kind}: {output:?}");
    }
    for kind in KINDS {
        let (here, there) = (Site::new("files"), Site::new(kind));
        let (main, _) = here.send("first\nsecond");
        let document = Manifest::parse(&here.ok(&["session", "export", &main])).unwrap();
        let storage = there.open().await;
        let store = Interrupted { store: storage.sessions.store().clone(), left: AtomicU32::new(3) };
        document.import(&store).await.unwrap_err();
        drop(store);
        storage.close().await.unwrap();
        there.ok(&["session", "delete", &main]);
        there.ok(&["verify"]);
    }
}

/// A deleted and a damaged session are restored from a backup and from an export: under a new id, which the key leads to, in a workspace that
/// is made.
#[tokio::test]
async fn a_session_is_restored_from_a_backup() {
    for kind in KINDS {
        let (here, backup) = (Site::new(kind), Site::new("sqlite"));
        let storage = here.open().await;
        let agent =
            AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage.clone()).build().unwrap();
        let workspace = agent.workspaces().create(NewWorkspace::new("support")).await.unwrap().id;
        let chat = agent.workspace(workspace).conversation("support/4711").await.unwrap();
        chat.update(Patch::new().with_title(Title::by_user("A trip")).with_label("team", "sales"))
            .await
            .unwrap();
        for text in ["first", "second"] {
            chat.prompt(text).await.unwrap().finish().await.unwrap();
        }
        let (id, file) =
            (chat.id().to_string(), here.path().join("session.json").to_str().unwrap().to_owned());
        here.ok(&["copy", &here.address(), &backup.address()]);
        here.ok(&["session", "export", &id, "--output", &file]);
        let ran = here.run(&["session", "restore", &id, "--from", &file]);
        assert!(ran.code == 0 && ran.err.contains("nothing was written"), "{kind}: {ran:?}");
        let _ = chat.erase().await.unwrap();
        here.fails(&["session", "restore", &id, "--from", &here.address()], 3, "was deleted");
        here.fails(&["session", "restore", &id, "--from", "nowhere:x"], 2, "nowhere");
        here.fails(&["session", "restore", &id, "--from", "sqlite:/nowhere/x.db"], 3, "no store");

        let restored = here.ok(&["session", "restore", &id, "--from", &backup.address()]);
        let again = agent.workspace(workspace).conversation("support/4711").await.unwrap();
        assert_eq!(restored.trim(), again.id().to_string(), "{kind}: it has the key");
        let now = again.refresh().await.unwrap();
        assert_eq!((now.counts.messages(), now.attributes.labels["team"].as_str()), (4, "sales"), "{kind}");
        assert_eq!(now.attributes.title.as_ref().unwrap().text, "A trip", "{kind}");
        assert_eq!(now.attributes.labels["salvage.of"], id, "{kind}");
        assert_eq!(again.prompt("third").await.unwrap().finish().await.unwrap().text, "third", "{kind}");
        // From an export, beside the one that has the key now.
        let ran = here.run(&["session", "restore", &id, "--from", &file]);
        assert!(ran.code == 0 && ran.err.contains("has its key"), "{kind}: {ran:?}");
        let second = here.json(&["session", "show", ran.out.trim()]);
        assert_eq!(second["attributes"]["labels"].get("conversation.key"), None, "{second}");

        // Into a store that has not even the workspace.
        let there = Site::new("files");
        there.ok(&["workspace", "create", "--name", "other"]);
        let moved = there.ok(&["session", "restore", &id, "--from", &backup.address(), "--main"]);
        there.ok(&["verify"]);
        let shown = there.json(&["workspace", "show", &workspace.to_string()]);
        assert_eq!(shown["main_session"], json!(moved.trim()), "{shown}");
        here.ok(&["verify"]);
        agent.close().await.unwrap();
    }
}

/// A restored session has no branches, and the command says where the original's are.
#[tokio::test]
async fn a_restore_names_the_branches_that_stay_behind() {
    let (here, backup) = (Site::new("sqlite"), Site::new("files"));
    let builder = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(here.open().await);
    let agent = builder.build().unwrap();
    let chat = agent.conversation("support/4711").await.unwrap();
    for text in ["first", "second"] {
        chat.prompt(text).await.unwrap().finish().await.unwrap();
    }
    let branch = chat.undo().await.unwrap();
    here.ok(&["copy", &here.address(), &backup.address()]);
    let _ = branch.erase().await.unwrap();
    let ran = here.run(&["session", "restore", &branch.id().to_string(), "--from", &backup.address()]);
    let why = format!(
        "has no branches; what was there before an edit, a retry or an undo is session {}",
        chat.id()
    );
    assert!(ran.code == 0 && ran.err.contains(&why), "{ran:?}");
    let restored = agent.conversation_by_id(ran.out.trim().parse().unwrap()).await.unwrap();
    assert_eq!(restored.branches(9).await.unwrap(), [], "{ran:?}");
    assert_eq!(restored.record().counts.messages(), 2, "{ran:?}");
    agent.close().await.unwrap();
}
