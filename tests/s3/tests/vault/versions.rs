//! Buckets that keep former versions of what is removed.

use std::sync::Arc;

use agent_core::{Backend, ErrorKind, WorkspaceId};
use agent_vault::Vault;
use agent_vault::WorkspaceSecrets;
use agent_workspace::erasure::{LeftoverKind, Look, verify_erased};
use agent_workspace::secrets::Secret;
use s3_simulator::{Op, Versioning};

use crate::erasure::{Scene, acme, eraser, opened, ring};
use crate::support::{STORES, Site};

/// Nothing is erased, and no key is dropped, in a bucket that keeps the former versions; the error names the bucket and what to do.
#[tokio::test]
async fn nothing_is_erased_in_a_bucket_that_keeps_former_versions() {
    for is_sealed in [false, true] {
        let site = Site::with(STORES[0], Some(Versioning::Enabled)).await;
        let backend = opened(site.backends[0].clone(), is_sealed).await;
        let scene = Scene::new(&*backend).await;
        let before = (site.simulator.keys(), site.simulator.requests());
        for _ in 0..2 {
            let refused = eraser(&backend).run().await.unwrap_err();
            assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused}");
            let text = refused.to_string();
            assert!(text.contains("s3://bucket") && text.contains("lifecycle"), "{text}");
        }
        assert_eq!(site.simulator.keys(), before.0, "the object that asked is gone");
        let counts = site.simulator.counts_since(before.1);
        assert_eq!((counts.put, counts.delete), (1, 1), "it asks once");
        for id in scene.ids() {
            assert!(scene.alice.sessions.load(id).await.unwrap().owner.is_some());
        }
    }
}

/// A key of a session and a secret of a workspace stay, too.
#[tokio::test]
async fn no_key_and_no_secret_is_dropped_in_a_bucket_that_keeps_former_versions() {
    let site = Site::with(STORES[0], Some(Versioning::Enabled)).await;
    let vault = Arc::new(Vault::open(site.backends[0].clone(), ring()).await.unwrap());
    let backend: Arc<dyn Backend> = vault.clone();
    let scene = Scene::new(&*backend).await;
    let keys = vault.keys(&acme());
    let secrets = WorkspaceSecrets::new(keys.clone(), &backend.tenant(&acme()), "user:host".parse().unwrap());
    let (name, value) = ("github".parse().unwrap(), Secret::new("ghp_0123456789").unwrap());
    secrets.set(WorkspaceId::DEFAULT, &name, &value, None).await.unwrap();
    for refused in [
        keys.drop_session(scene.first.id).await,
        secrets.remove(WorkspaceId::DEFAULT, &name).await,
        secrets.remove_version(WorkspaceId::DEFAULT, &name, 1).await,
    ] {
        assert_eq!(*refused.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert_eq!(secrets.value(WorkspaceId::DEFAULT, &name).await.unwrap().expose(), "ghp_0123456789");
    let other = opened(site.backends[1].clone(), true).await.tenant(&acme());
    assert!(other.sessions.load(scene.first.id).await.unwrap().attributes.title.is_some());
}

/// What the server does not tell is in the receipt and in the verification; a bucket that gets versions later is found.
#[tokio::test]
async fn a_receipt_says_which_former_versions_nobody_looked_at() {
    for (store, versioning, says) in [
        (STORES[0], None, None),
        (STORES[0], Some(Versioning::Suspended), Some("suspended")),
        (STORES[2], None, Some("does not tell")),
    ] {
        for is_sealed in [false, true] {
            let site = Site::with(store, versioning).await;
            let backend = opened(site.backends[0].clone(), is_sealed).await;
            Scene::new(&*backend).await;
            let receipt = eraser(&backend).run().await.unwrap();
            assert_eq!(receipt.unseen.len(), usize::from(says.is_some()), "{store} {versioning:?}");
            let verified = verify_erased(&*backend, &receipt, Look::new()).await.unwrap();
            assert_eq!(verified.left, [], "{store} {versioning:?}");
            let said = |texts: &[String], says: &str| texts.iter().any(|text| text.contains(says));
            if let Some(says) = says {
                assert!(said(&receipt.unseen, says) && said(&verified.unseen, says), "{receipt:?}");
            }
            assert_eq!(receipt.to_text().unwrap().contains("unseen"), says.is_some());
        }
    }
}

/// A bucket whose versions were kept again after an erasure is named by the verification.
#[tokio::test]
async fn a_verification_names_a_bucket_that_keeps_former_versions() {
    let site = Site::new(STORES[0]).await;
    let backend = site.backends[0].clone();
    Scene::new(&*backend).await;
    let receipt = eraser(&backend).run().await.unwrap();
    let quirks = s3_simulator::Quirks { versioning: Some(Versioning::Enabled), ..Default::default() };
    let _same = site.simulator.clone().with_quirks(quirks);
    // Another process, which has not asked yet.
    let found = verify_erased(&*site.backends[1], &receipt, Look::new()).await.unwrap();
    let kinds: Vec<_> = found.left.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [LeftoverKind::Version]);
    assert!(found.left[0].to_string().contains("s3://bucket"), "{:?}", found.left);
}

/// A server that lets nothing be written for the question is not taken for one without versions.
#[tokio::test]
async fn a_server_that_cannot_be_asked_is_not_taken_for_one_without_versions() {
    let site = Site::new(STORES[0]).await;
    site.simulator.deny(Op::Put, true);
    let unknown = site.backends[0].check_removal().await.unwrap().unwrap();
    assert!(unknown.contains("could not be asked") && unknown.contains("s3://bucket"), "{unknown}");
    site.simulator.deny(Op::Put, false);
    assert_eq!(site.backends[0].check_removal().await.unwrap(), None, "it asks again");
}
