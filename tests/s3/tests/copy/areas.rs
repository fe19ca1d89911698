//! The areas of workspaces, on every kind of store, and in copies.

use agent_admin::copy::StoreCopy;
use agent_core::ErrorKind;
use agent_core::clock::Effects;
use agent_core::model::Actor;
use agent_core::store::HiddenSession;
use agent_core::store::WorkspaceArea::{Mcp, Memory, Skills};
use agent_runtime::blobs::WorkspaceBlobs;
use agent_runtime::documents::{DocumentWrite, Documents};
use agent_runtime::{NewWorkspace, WorkspaceManager};

use crate::world::{KINDS, Place};

/// What was put into an area is there after the store is opened anew, and in a copy, byte for byte and only there;
/// it can be replaced and deleted, no name leads out of the area, and it goes with its workspace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn areas_are_kept_in_every_store_and_in_copies() {
    for kind in KINDS {
        let (here, there, effects) = (Place::new(kind), Place::new("sqlite"), Effects::default());
        let storage = here.open().await;
        let manager = WorkspaceManager::new(storage.clone(), effects.clone());
        let [home, work] = [
            manager.create(NewWorkspace::new("home")).await,
            manager.create(NewWorkspace::new("work")).await,
        ]
        .map(|made| made.unwrap().id);
        let any: Vec<u8> = (0..=255).rev().collect();
        let blobs: [(&str, &[u8]); 4] = [
            ("review/SKILL.md", "# 안\r\n\0".as_bytes()),
            ("empty", b""),
            ("any.bin", &any),
            ("ab", b"6162"),
        ];
        let skills = WorkspaceBlobs::new(&storage, &effects, home, Skills);
        assert_eq!((skills.list().await.unwrap(), skills.get("ab").await.unwrap()), (vec![], None), "{kind}");
        assert!(!skills.delete("ab", Actor::USER).await.unwrap(), "{kind}");
        for (name, bytes) in blobs {
            skills.put(name, b"before", Actor::AGENT).await.unwrap();
            skills.put(name, bytes, Actor::USER).await.unwrap();
        }
        WorkspaceBlobs::new(&storage, &effects, home, Memory)
            .put("ab", b"of memory", Actor::USER)
            .await
            .unwrap();
        for name in ["", ".", "..", "../ab", "a//b", "/ab", "a/", "a\\..\\b", "a\nb", &"x".repeat(200)] {
            let error = skills.put(name, b"x", Actor::USER).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{kind}: {name:?}");
        }
        let error = skills.put("large", &vec![0xff; 600 << 10], Actor::USER).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::LimitExceeded, "{kind}");

        let copied = there.open().await;
        assert!(StoreCopy::new(storage.clone(), copied.clone()).run().await.unwrap().is_whole(), "{kind}");
        for storage in [here.open().await, copied] {
            let skills = WorkspaceBlobs::new(&storage, &effects, home, Skills);
            assert_eq!(skills.list().await.unwrap(), ["ab", "any.bin", "empty", "review/SKILL.md"], "{kind}");
            for (name, bytes) in blobs {
                assert_eq!(skills.get(name).await.unwrap().as_deref(), Some(bytes), "{kind}: {name}");
            }
            let memory = WorkspaceBlobs::new(&storage, &effects, home, Memory).get("ab").await.unwrap();
            assert_eq!(memory.as_deref(), Some(&b"of memory"[..]), "{kind}");
            for (workspace, area) in [(home, Mcp), (work, Skills)] {
                assert_eq!(
                    WorkspaceBlobs::new(&storage, &effects, workspace, area).list().await.unwrap(),
                    Vec::<String>::new()
                );
            }
            assert!(skills.delete("ab", Actor::USER).await.unwrap(), "{kind}");
            assert_eq!(skills.get("ab").await.unwrap(), None, "{kind}");
            assert_eq!(skills.list().await.unwrap().len(), 3, "{kind}");
        }

        manager.delete(home).await.unwrap();
        assert_eq!(
            *skills.put("ab", b"", Actor::USER).await.unwrap_err().kind(),
            ErrorKind::Deleted,
            "{kind}"
        );
        assert_eq!(*skills.get("empty").await.unwrap_err().kind(), ErrorKind::Deleted, "{kind}");
        assert_eq!(*skills.list().await.unwrap_err().kind(), ErrorKind::Deleted, "{kind}");
    }
}

/// A blob in a newer form is refused by name; one that is not written as bytes is damaged.
#[tokio::test]
async fn blobs_of_newer_formats_are_refused() {
    let (here, effects) = (Place::new("memory"), Effects::default());
    let storage = here.open().await;
    let manager = WorkspaceManager::new(storage.clone(), effects.clone());
    let home = manager.create(NewWorkspace::new("home")).await.unwrap().id;
    let hidden = HiddenSession::area(home, Skills).open(&storage.sessions, &effects).await.unwrap();
    let documents = Documents::new(storage.sessions.clone(), effects.clone(), hidden.id);
    for (text, format, kind) in [
        ("x", 2, ErrorKind::Unsupported),
        ("0x", 1, ErrorKind::Corrupt),
        ("abc", 1, ErrorKind::Corrupt),
        ("+f", 1, ErrorKind::Corrupt),
    ] {
        documents.put(DocumentWrite::new("a", text, Actor::USER).with_format(format)).await.unwrap();
        let error = WorkspaceBlobs::new(&storage, &effects, home, Skills).get("a").await.unwrap_err();
        assert_eq!((error.kind(), error.to_string().contains("blob \"a\"")), (&kind, true), "{error}");
    }
}
