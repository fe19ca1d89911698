//! Sealed secrets of a workspace in runs: what is recorded, and that no value is shown.

use std::sync::Arc;

use agent_admin::audit::Audit;
use agent_admin::manifest::Manifest;
use agent_core::TenantId;
use agent_core::event::{Operation, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::{Access, Patch};
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{AgentBuilder, ScriptedProvider, Turn};
use agent_tests::{Site, each_store};
use agent_vault::{KeyRing, Keys, StorePlace, WorkspaceSecrets};

use crate::common::listening::listen;
use crate::common::{calls, check_log, device, dialogue, read};
use crate::secrets::{Careless, Log, VALUE, assert_hidden, bytes};

fn name() -> SecretName {
    "github".parse().unwrap()
}

/// A run is given the value of its session's workspace, which is recorded, and the value is in no file of any store, no export,
/// no log of the library and no error.
async fn sealed_secrets_are_given_to_runs_and_shown_nowhere(site: Site) {
    let log = Log::default();
    let _guard = listen(log.clone());
    let (kind, backend, tenant) = (site.name, site.tenants().await, TenantId::default());
    let storage = backend.tenant(&tenant);
    let place = StorePlace::new(backend.tenant(&"keys".parse().unwrap()).workspaces);
    let keys = Keys::new(KeyRing::from_bytes([7; 32]), Arc::new(place), tenant.clone());
    let sealed = WorkspaceSecrets::new(keys, &storage, "user:alice".parse().unwrap());
    let json = RawJson::empty_object;
    let model = ScriptedProvider::new([
        Turn::new().call("a", "say", json()).call("b", "fail", json()),
        Turn::new().text(format!("it is {VALUE}")),
    ]);
    let agent = AgentBuilder::new()
        .with_llm(model)
        .with_storage(storage.clone())
        .with_plugin(Careless::default())
        .with_secrets(Secrets::new(sealed.clone()))
        .build()
        .unwrap();
    let chat = agent.open(&device("laptop")).await.unwrap();
    let workspace = chat.record().workspace;
    let former = Secret::new("a former value").unwrap();
    sealed.set(workspace, &name(), &former, None).await.unwrap();
    sealed.set(workspace, &name(), &Secret::new(VALUE).unwrap(), None).await.unwrap();
    chat.update(Patch::new().mount(name().resource(), Access::Read)).await.unwrap();
    read(chat.prompt("go").await.unwrap()).await;
    check_log(&chat).await;
    assert_eq!(dialogue(&chat).await[1].1, "it is (secret github)", "{kind}");
    let results = calls(&chat).await;
    assert_eq!(results[0].1[0].outcome, ToolOutcome::Ok, "{kind}");
    assert!(results[1].1[0].output.get().contains("token (secret github), sent"), "{kind}");

    let entries = Audit::of(&storage).list(10, None).await.unwrap().entries;
    assert!(entries.len() >= 3, "{kind}: at the start of the run, and for each tool: {entries:?}");
    for entry in entries {
        let secret = entry.audited.secret.unwrap();
        assert_eq!(
            (entry.audited.operation, &*secret.name, secret.version),
            (Operation::ReadSecret, "github", 2),
            "{kind}"
        );
        assert_eq!((entry.by.to_string().as_str(), entry.audited.workspace), ("user:alice", Some(workspace)));
    }
    let error = sealed.value_of_version(workspace, &name(), 7).await.unwrap_err();
    assert_hidden(&format!("{kind}: an error"), format!("{error:?} {error} {sealed:?}").as_bytes());
    let export = Manifest::export(&*storage.sessions, chat.id()).await.unwrap().to_json().unwrap();
    assert_hidden(&format!("{kind}: an export"), export.as_bytes());
    drop((chat, agent, storage, sealed, backend));
    let files = bytes(site.folder.path());
    assert_hidden(&format!("{kind}: a file"), &files);
    assert!(!files.windows(14).any(|part| part == b"a former value"), "{kind}");
    assert_hidden("a log", log.0.lock().unwrap().as_bytes());
    assert!(
        log.0.lock().unwrap().contains("gen_ai.tool.name="),
        "nothing is logged, so that nothing is shown"
    );
}

each_store!(sealed_secrets_are_given_to_runs_and_shown_nowhere and files);
