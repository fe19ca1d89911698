//! The areas of workspaces, on every kind of store, and in copies.

use agent_admin::copy::StoreCopy;
use agent_core::ErrorKind;
use agent_core::clock::Effects;
use agent_core::model::Actor;
use agent_core::store::HiddenSession;
use agent_core::store::WorkspaceArea::{Mcp, Memory, Skills};
use agent_runtime::documents::{DocumentWrite, Documents};
use agent_runtime::files::WorkspaceFiles;
use agent_runtime::{NewWorkspace, WorkspaceManager};

use crate::copy::world::{KINDS, Place};

/// What was put into an area is there after the store is opened again, and in a copy, byte for byte and only there;
/// it can be replaced and deleted, no name leads out of the area, and it goes with its workspace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn areas_are_kept_in_every_store_and_in_copies() {
    for kind in KINDS {
        let (here, there, effects) = (Place::new(kind), Place::new("sqlite"), Effects::default());
        let storage = here.open().await;
        let manager = WorkspaceManager::new(storage.clone().with_effects(effects.clone()));
        let [home, work] = [
            manager.create(NewWorkspace::new("home")).await,
            manager.create(NewWorkspace::new("work")).await,
        ]
        .map(|made| made.unwrap().id);
        let any: Vec<u8> = (0..=255).rev().collect();
        let large = any.repeat(8);
        let files: [(&str, &[u8]); 5] = [
            ("review/SKILL.md", "# 안\r\n\0".as_bytes()),
            ("empty", b""),
            ("any.bin", &any),
            ("ab", b"6162"),
            ("large.bin", &large),
        ];
        let skills = WorkspaceFiles::new(&storage, home, Skills);
        let names = async |files: &WorkspaceFiles| {
            files.list().await.unwrap().into_iter().map(|file| file.name).collect::<Vec<_>>()
        };
        assert_eq!(
            (skills.list().await.unwrap(), skills.get("ab", 9).await.unwrap()),
            (vec![], None),
            "{kind}"
        );
        assert!(!skills.delete("ab", Actor::USER).await.unwrap(), "{kind}");
        for (name, bytes) in files {
            skills.put(name, "before", Actor::AGENT).await.unwrap();
            let version = skills.put(name, bytes.to_vec(), Actor::USER).await.unwrap();
            assert_eq!(
                skills.put(name, bytes.to_vec(), Actor::USER).await.unwrap(),
                version,
                "{kind}: again"
            );
        }
        WorkspaceFiles::new(&storage, home, Memory).put("ab", "of memory", Actor::USER).await.unwrap();
        for name in ["", ".", "..", "../ab", "a//b", "/ab", "a/", "a\\..\\b", "a\nb", &"x".repeat(200)] {
            let error = skills.put(name, "x", Actor::USER).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{kind}: {name:?}");
        }
        if storage.sessions.capabilities().blob_max_bytes == 0 {
            let error = skills.put("large", vec![0xff; 2 << 20], Actor::USER).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::LimitExceeded, "{kind}");
        } else {
            skills.put("large", vec![0xff; 2 << 20], Actor::USER).await.unwrap();
            assert!(skills.delete("large", Actor::USER).await.unwrap(), "{kind}");
        }

        let copied = there.open().await;
        assert!(StoreCopy::new(storage.clone(), copied.clone()).run().await.unwrap().is_whole(), "{kind}");
        for storage in [here.open().await, copied] {
            let skills = WorkspaceFiles::new(&storage, home, Skills);
            assert_eq!(
                names(&skills).await,
                ["ab", "any.bin", "empty", "large.bin", "review/SKILL.md"],
                "{kind}"
            );
            for (name, bytes) in files {
                assert_eq!(
                    skills.get(name, 1 << 20).await.unwrap().as_deref(),
                    Some(bytes),
                    "{kind}: {name}"
                );
            }
            let memory = WorkspaceFiles::new(&storage, home, Memory).get("ab", 99).await.unwrap();
            assert_eq!(memory.as_deref(), Some(&b"of memory"[..]), "{kind}");
            for (workspace, area) in [(home, Mcp), (work, Skills)] {
                assert_eq!(WorkspaceFiles::new(&storage, workspace, area).list().await.unwrap(), []);
            }
            assert!(skills.delete("ab", Actor::USER).await.unwrap(), "{kind}");
            assert_eq!(skills.get("ab", 99).await.unwrap(), None, "{kind}");
            assert_eq!(skills.list().await.unwrap().len(), 4, "{kind}");
        }

        manager.delete(home).await.unwrap();
        assert_eq!(
            *skills.put("ab", "", Actor::USER).await.unwrap_err().kind(),
            ErrorKind::Deleted,
            "{kind}"
        );
        assert_eq!(*skills.get("empty", 99).await.unwrap_err().kind(), ErrorKind::Deleted, "{kind}");
        assert_eq!(*skills.list().await.unwrap_err().kind(), ErrorKind::Deleted, "{kind}");
    }
}

/// A list of files in a newer form is refused by name; one that is no list is damaged, and so is one whose blob is gone.
#[tokio::test]
async fn lists_of_newer_formats_are_refused() {
    let (here, effects) = (Place::new("memory"), Effects::default());
    let storage = here.open().await;
    let manager = WorkspaceManager::new(storage.clone().with_effects(effects.clone()));
    let home = manager.create(NewWorkspace::new("home")).await.unwrap().id;
    let hidden = HiddenSession::area(home, Skills).open(&storage.sessions).await.unwrap();
    let documents = Documents::new(storage.sessions.clone(), hidden.id);
    let file = |source: &str| format!(r#"{{"type":"resource","media":"a/b",{source},"name":"a"}}"#);
    let (data, uri) = (file(r#""data":"AA==""#), file(r#""uri":"https://example.com""#));
    let lost = file(
        r#""blob":{"sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","bytes":5}"#,
    );
    for (text, format, kind) in [
        ("[]".to_owned(), 2, ErrorKind::Unsupported),
        ("0x".to_owned(), 1, ErrorKind::Corrupt),
        ("{}".to_owned(), 1, ErrorKind::Corrupt),
        (r#"[{"type":"text"}]"#.to_owned(), 1, ErrorKind::Corrupt),
        (r#"[{"type":"resource","media":"a/b","data":"AA=="}]"#.to_owned(), 1, ErrorKind::Corrupt),
        (format!("[{data},{data}]"), 1, ErrorKind::Corrupt),
        (format!("[{uri}]"), 1, ErrorKind::Corrupt),
        (format!("[{lost}]"), 1, ErrorKind::Corrupt),
    ] {
        documents
            .put(DocumentWrite::new("files", text.as_str(), Actor::USER).with_format(format))
            .await
            .unwrap();
        let error = WorkspaceFiles::new(&storage, home, Skills).get("a", 99).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().contains("the area skills")),
            (&kind, true),
            "{text}: {error}"
        );
    }
    documents
        .put(DocumentWrite::new("files", format!("[{data}]"), Actor::USER).with_format(1))
        .await
        .unwrap();
    let file = WorkspaceFiles::new(&storage, home, Skills).get("a", 99).await.unwrap();
    assert_eq!(file.as_deref(), Some(&b"\0"[..]));
}
