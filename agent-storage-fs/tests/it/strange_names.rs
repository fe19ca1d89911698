//! Folders with names that are no ids, among those named by ids: no call reads them, so a check names them.

use std::fs;
use std::path::Path;

use agent_admin::verify::verify;
use agent_core::clock::Effects;
use agent_core::store::{SessionQuery, WorkspaceQuery};
use agent_core::{Backend, Seq, SessionStore, TenantId, WorkspaceStore};

use crate::support::{append_text, folder_of, hasty, session};

fn folder(path: &Path) {
    fs::create_dir_all(path).unwrap();
    fs::write(path.join("mine"), "mine").unwrap();
}

async fn found(store: &impl Backend, tenant: &TenantId) -> Vec<String> {
    let found = verify(&store.tenant(tenant), |_| {}).await.unwrap();
    found.findings.iter().map(ToString::to_string).collect()
}

/// A folder that has no id for its name is a finding of a check, with its path and what to do; it is left alone, and
/// everything else works.
#[tokio::test]
async fn folder_without_an_id_is_a_finding() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    let (store, effects) = (hasty(root).await, Effects::default());
    let id = session(&store, &effects).await.id;
    let sessions = folder_of(root, id).parent().unwrap().to_owned();
    let upper = id.to_string().to_uppercase();
    let strange = [
        root.join("tenants/Acme"),
        root.join("tenants/acme.old"),
        root.join("workspaces/My workspace"),
        root.join("workspaces/default (copy)"),
        sessions.join(&upper),
        sessions.join(format!("{id} (copy)")),
    ];
    for path in &strange {
        folder(path);
    }
    // Files of a person, and what the store makes itself.
    for path in [root.join("tenants"), root.join("workspaces"), sessions.clone()] {
        fs::write(path.join("notes.txt"), "mine").unwrap();
        folder(&path.join(".something.new-0123456789abcdef"));
    }
    folder(&sessions.join(format!("{id}.damaged-0123456789abcdef")));

    let store = hasty(root).await;
    let messages = found(&store, &TenantId::default()).await;
    assert_eq!(messages.len(), strange.len(), "{messages:?}");
    for path in &strange {
        let is_named = |text: &&String| text.contains(&path.display().to_string());
        let text =
            messages.iter().find(is_named).unwrap_or_else(|| panic!("{}: {messages:?}", path.display()));
        assert!(text.contains("no call reads it") && text.contains("move it out of the store"), "{text}");
    }
    append_text(&store, &effects, id, Seq::new(1), "more").await;
    assert_eq!(SessionStore::list(&store, SessionQuery::new()).await.unwrap().items.len(), 1);
    assert!(SessionStore::list(&store, SessionQuery::new()).await.unwrap().damaged.is_empty());
    assert!(WorkspaceStore::list(&store, WorkspaceQuery::new()).await.unwrap().damaged.is_empty());
    store.maintenance().rebuild().await.unwrap();
    for path in &strange {
        assert_eq!(fs::read(path.join("mine")).unwrap(), b"mine", "{}", path.display());
    }
}

/// A check of all tenants names such a folder also if the tenant `default`, whose check it is, has no data.
#[tokio::test]
async fn folder_without_an_id_is_found_by_a_check_of_all_tenants() {
    let place = tempfile::tempdir().unwrap();
    let store = hasty(place.path()).await;
    let acme: TenantId = "acme".parse().unwrap();
    session(&store.for_tenant(&acme), &Effects::default()).await;
    let tenants = || async { Backend::tenants(&store, None).await.unwrap() };
    assert_eq!(tenants().await.items, std::slice::from_ref(&acme));
    folder(&place.path().join("tenants/Acme"));
    let page = tenants().await;
    assert_eq!(page.items, [acme.clone(), TenantId::default()]);
    assert!(page.damaged.is_empty(), "{:?}", page.damaged);
    assert_eq!(found(&store, &TenantId::default()).await.len(), 1);
    assert_eq!(found(&store, &acme).await, Vec::<String>::new(), "it is named once");
}
