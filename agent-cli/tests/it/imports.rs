//! Imports that were interrupted.

use agent_admin::manifest::Manifest;
use agent_core::commit::{Commit, Committed};
use agent_core::event::NewEvent;
use agent_core::store::SessionStoreWrapper;
use agent_core::{Error, ErrorKind, Result, SessionStore, async_trait};
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
        let ran = there.run(&["session", "import", &file, "--create-workspace"]);
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
