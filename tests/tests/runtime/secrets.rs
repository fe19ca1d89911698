//! References to secrets: a session holds names; what a tool was given is not found in files, exports and logs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use agent_admin::manifest::Manifest;
use agent_core::event::{NewEvent, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::{Access, Patch, Resource};
use agent_core::session::SessionRecord;
use agent_core::{
    Backend, Error, ErrorKind, MemoryStore, Result, Storage, TenantId, WorkspaceId, async_trait,
};
use agent_runtime::secrets::{Secret, SecretName, SecretSource, Secrets};
use agent_runtime::{
    AgentBuilder, Config, Conversation, Plugin, RunOutcome, RunReport, Scheduler, SchedulerConfig,
    ScriptedProvider, SessionContext, ToolContext, ToolMode, ToolSpec, Turn,
};
use agent_tests::{Site, each_store};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use crate::common::listening::listen;
use crate::common::{calls, check_log, device, dialogue, read, try_read};

/// With a quote and a line break, so that it stands in JSON in another form than in memory.
pub(crate) const VALUE: &str = "ghp_\"0123\n456789";
/// As JSON has it.
const ESCAPED: &str = "ghp_\\\"0123\\n456789";

fn name() -> SecretName {
    "github".parse().unwrap()
}

fn known() -> Secrets {
    Secrets::new(BTreeMap::from([(name(), Secret::new(VALUE).unwrap())]))
}

/// Tools that are careless with what they were given.
#[derive(Debug, Default)]
pub(crate) struct Careless {
    last: Mutex<String>,
}

#[async_trait]
impl Plugin for Careless {
    fn name(&self) -> &str {
        "careless"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        let may = ToolSpec::new("may", "").with_mode(ToolMode::Confirm);
        ["say", "fail", "write", "ask"].map(|name| ToolSpec::new(name, "")).into_iter().chain([may]).collect()
    }

    async fn call(&self, tool: &str, _: RawJson, context: ToolContext) -> Result<RawJson> {
        let secret = context.secret(&name()).await?;
        let text = format!("token {}, sent", secret.expose());
        self.last.lock().unwrap().clone_from(&text);
        match tool {
            "say" => RawJson::of(&serde_json::json!({ "said": text, secret.expose(): [secret.expose()] })),
            "fail" => Err(Error::new(ErrorKind::Provider, text)),
            "write" => {
                let sessions = &context.storage().sessions;
                let now = sessions.load(context.session).await?;
                let titled = Patch::new().with_title(agent_core::model::Title::generated(&text));
                let events = vec![NewEvent::user_message(&text), NewEvent::updated(titled)];
                sessions.append(now.id, now.head, events).await?;
                RawJson::of(&secret.expose().len())
            }
            _ => RawJson::of(&format!("{secret:?}")),
        }
    }

    async fn after_run(&self, _: &SessionRecord, _: &RunReport) -> Result<()> {
        Err(Error::new(ErrorKind::Provider, self.last.lock().unwrap().clone()))
    }
}

/// Every span and event of the library with all fields, as text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(pub(crate) Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        writeln!(self.0.lock().unwrap(), "{field}={value:?}").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        span.record(&mut self.clone());
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// All bytes of all files below a folder, of one look at which none of them vanished: a store that was dropped puts its files
/// in order behind its last handle.
pub(crate) fn bytes(folder: &Path) -> Vec<u8> {
    fn all(folder: &Path, out: &mut Vec<u8>) -> std::io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                all(&path, out)?;
            } else {
                out.extend(std::fs::read(path)?);
            }
        }
        Ok(())
    }
    for _ in 0..10_000 {
        let mut out = Vec::new();
        match all(folder, &mut out) {
            Ok(()) => return out,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
        }
    }
    panic!("files in {} vanish for ever", folder.display());
}

pub(crate) fn assert_hidden(what: &str, text: &[u8]) {
    for form in [VALUE, ESCAPED, "0123\n4567", "0123\\n4567", "0123\\\\n4567"] {
        let found = text.windows(form.len()).any(|window| window == form.as_bytes());
        assert!(!found, "{what} holds the value");
    }
}

async fn mounted(storage: &Storage, model: &ScriptedProvider, config: Config) -> Conversation {
    let agent = AgentBuilder::new()
        .with_config(config)
        .with_llm(model.clone())
        .with_storage(storage.clone())
        .with_plugin(Careless::default())
        .with_secrets(known())
        .build()
        .unwrap();
    let chat = agent.open(&device("laptop")).await.unwrap();
    chat.update(Patch::new().mount(name().resource(), Access::Read)).await.unwrap();
    chat
}

/// Whatever a tool does with a value it was given, whatever the model and a provider say, the value is in no file of
/// a store, no export, no log and no request to the model.
async fn no_secret_reaches_files_exports_or_logs(site: Site) {
    let log = Log::default();
    let _guard = listen(log.clone());
    let (kind, storage) = (site.name, site.open().await);
    let json = || RawJson::empty_object();
    let echo = format!("I saw {VALUE}!");
    let model = ScriptedProvider::new([
        Turn::new().call("a", "say", json()).call("b", "fail", json()).call("c", "write", json()),
        Turn::new().text(echo.clone()).call("d", "ask", RawJson::of(&[VALUE]).unwrap()),
        Turn::new().text("done"),
        // So long that the value is cut in the middle, were it cut first.
        Turn::new().fail(format!("{}401 for {VALUE}", " ".repeat(1024 - 9 - 10))),
        Turn::new().call("e", "may", RawJson::of(&["x".repeat(2048 - 20), VALUE.to_owned()]).unwrap()),
    ]);
    let chat = mounted(&storage, &model, Config::default()).await;
    read(chat.prompt("go").await.unwrap()).await;
    let (_, failed) = try_read(chat.prompt(format!("is it {VALUE}?")).await.unwrap()).await;
    let failure = failed.unwrap();
    assert!(matches!(failure.outcome, RunOutcome::Failed(_)), "{kind}: {failure:?}");
    read(chat.prompt("more").await.unwrap()).await;
    check_log(&chat).await;

    let mut calls = calls(&chat).await;
    assert!(calls.pop().unwrap().1.is_empty(), "the last waits for an answer");
    let results: Vec<_> =
        calls.iter().map(|(_, results)| (results[0].outcome, results[0].output.get())).collect();
    let hidden = r#"{"(secret github)":["(secret github)"],"said":"token (secret github), sent"}"#;
    assert_eq!(results[0], (ToolOutcome::Ok, hidden), "{kind}");
    assert_eq!(results[1].0, ToolOutcome::Error, "{kind}");
    assert!(results[1].1.contains("token (secret github), sent"), "{kind}: {}", results[1].1);
    assert_eq!(results[2], (ToolOutcome::Ok, "16"), "{kind}");
    assert_eq!(results[3], (ToolOutcome::Ok, r#""(secret)""#), "{kind}");

    let mut requests = model.requests();
    // Within a run the model is given what it wrote itself, as it wrote it.
    requests.remove(2);
    assert_hidden(&format!("{kind}: a request to the model"), format!("{requests:?}").as_bytes());
    let export = Manifest::export(&*storage.sessions, chat.id()).await.unwrap().to_json().unwrap();
    assert_hidden(&format!("{kind}: an export"), export.as_bytes());
    drop((chat, storage));
    assert_hidden(&format!("{kind}: a file"), &bytes(site.folder.path()));
    assert_hidden("a log", log.0.lock().unwrap().as_bytes());
    for line in ["gen_ai.tool.name=", "error=token (secret github), sent"] {
        assert!(log.0.lock().unwrap().contains(line), "{line} is not logged, so that nothing is shown");
    }
}

each_store!(no_secret_reaches_files_exports_or_logs and files);

/// Knows a secret for one workspace only.
#[derive(Debug)]
struct OfOne(WorkspaceId);

#[async_trait]
impl SecretSource for OfOne {
    async fn secret(&self, workspace: WorkspaceId, _: &SecretName) -> Result<Option<Secret>> {
        Ok((workspace == self.0).then(|| Secret::new(VALUE).unwrap()))
    }
}

/// A session refers to a secret by its name alone, which its forks and exports take along; a tool gets what its
/// session mounts, from its own tenant's secrets, and nothing else.
#[tokio::test]
async fn session_gets_only_the_secrets_it_mounts() {
    let storage: Storage = MemoryStore::new().into();
    let model = ScriptedProvider::new([]);
    let chat = mounted(&storage, &model, Config::default()).await;
    let fork = chat.fork(None).await.unwrap();
    let export = Manifest::export(&*storage.sessions, fork.id()).await.unwrap();
    let text = export.to_json().unwrap();
    assert!(text.contains("secret:github") && !text.contains("ghp_"), "{text}");
    let context = |session: &Conversation| {
        let now = session.record();
        let effects = chat.runtime().effects().clone();
        ToolContext::new(&now, effects.new_run_id(), "a".parse().unwrap(), storage.clone())
    };
    let given = context(&fork).with_secrets(known()).secret(&name()).await.unwrap();
    assert_eq!(given.expose(), VALUE);

    let denied = |error: Error| (error.kind().clone(), error.to_string());
    let other = "gitlab".parse().unwrap();
    let (kind, text) = denied(context(&fork).with_secrets(known()).secret(&other).await.unwrap_err());
    assert_eq!(kind, ErrorKind::Denied);
    assert!(text.contains("secret:gitlab"), "{text}");
    let (kind, text) = denied(context(&fork).secret(&name()).await.unwrap_err());
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(text.contains("with_secrets"), "{text}");
    let elsewhere = Secrets::new(OfOne(chat.runtime().effects().new_workspace_id()));
    let (kind, text) = denied(context(&fork).with_secrets(elsewhere).secret(&name()).await.unwrap_err());
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(text.contains("github") && text.contains("workspace"), "{text}");
    fork.update(Patch::new().unmount(name().resource())).await.unwrap();
    let (kind, _) = denied(context(&fork).with_secrets(known()).secret(&name()).await.unwrap_err());
    assert_eq!(kind, ErrorKind::Denied);
}

/// Another tenant's sessions are not given this one's secrets, and take what they have from their own.
#[tokio::test]
async fn each_tenant_has_its_own_secrets() {
    let (here, there): (Storage, Storage) = (MemoryStore::new().into(), MemoryStore::new().into());
    let model = ScriptedProvider::new((0..2).flat_map(|n| {
        [Turn::new().call(&format!("c{n}"), "say", RawJson::empty_object()), Turn::new().text("done")]
    }));
    let chat = mounted(&here, &model, Config::default()).await;
    let bare = chat.runtime().for_storage(there);
    let (_, result) = one_call(&bare).await;
    assert_eq!(result.0, ToolOutcome::Error);
    let own =
        bare.with_secrets(Secrets::new(BTreeMap::from([(name(), Secret::new("another value").unwrap())])));
    let (_, result) = one_call(&own).await;
    assert!(result.1.contains("(secret github)"), "{}", result.1);
}

/// What the last call of the tenant's conversation came to.
async fn one_call(agent: &agent_runtime::AgentRuntime) -> (Conversation, (ToolOutcome, String)) {
    let chat = agent.open(&device("laptop")).await.unwrap();
    chat.update(Patch::new().mount(name().resource(), Access::Read)).await.unwrap();
    read(chat.prompt("go").await.unwrap()).await;
    let calls = calls(&chat).await;
    let result = &calls.last().unwrap().1[0];
    let result = (result.outcome, result.output.get().to_owned());
    (chat, result)
}

/// A value has no text form, and one that could be ordinary text is refused, without being quoted.
#[test]
fn secret_is_not_printable_and_not_too_short() {
    let secret = Secret::new(VALUE).unwrap();
    assert_eq!(format!("{secret:?} {:?}", known()).matches("0123").count(), 0);
    for wrong in ["hunter2".to_owned(), "x".repeat(Secret::MAX_BYTES + 1)] {
        let error = Secret::new(wrong.as_str()).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput);
        assert!(!format!("{error:?} {error}").contains(&wrong));
    }
    for wrong in ["", "a b", "é", ".a", &"x".repeat(65)] {
        assert_eq!(*wrong.parse::<SecretName>().unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong:?}");
    }
}

/// After a restart, too, what a session mounts is hidden, whoever comes by it; also in what a session is made with, in
/// events of a host's own, and in JSON within a text.
#[tokio::test]
async fn mounted_secrets_are_redacted_from_run_start() {
    let storage: Storage = MemoryStore::new().into();
    let model = ScriptedProvider::new([Turn::new().text(format!("it is {VALUE}"))]);
    let chat = mounted(&storage, &model, Config::default()).await;
    read(chat.prompt("go").await.unwrap()).await;
    assert_eq!(dialogue(&chat).await[1].1, "it is (secret github)");

    let sessions = &chat.runtime().storage().sessions;
    let resource = Resource::new("repository", format!("https://x:{VALUE}@host"), "/r");
    let patch = Patch::new()
        .with_resources(vec![resource])
        .with_label("of", "token")
        .with_metadata(VALUE, RawJson::of(&1).unwrap());
    let child = sessions.create_child(chat.id(), patch).await.unwrap();
    let own = RawJson::of(&BTreeMap::from([(VALUE, VALUE)])).unwrap();
    let nested = serde_json::json!({ "stdout": serde_json::json!({ "key": VALUE }).to_string() }).to_string();
    let events = vec![
        NewEvent::new("x.app.note".parse().unwrap(), own),
        NewEvent::user_message(nested).with_extra(VALUE, RawJson::of(&VALUE).unwrap()),
    ];
    sessions.append(child.id, child.head, events).await.unwrap();
    let export = Manifest::export(&**sessions, child.id).await.unwrap().to_json().unwrap();
    assert_hidden("an export", export.as_bytes());
    // Also in the words that lists show.
    assert_eq!(export.matches("(secret github)").count(), 11, "{export}");
}

/// A scheduler over tenants gives each tenant's runs that tenant's secrets, and none without.
#[tokio::test]
async fn a_scheduler_gives_each_tenant_its_own_secrets() {
    let store = MemoryStore::new();
    let tenants: Vec<TenantId> = ["one", "two", "three"].map(|name| name.parse().unwrap()).into();
    let turns = (0..3).flat_map(|n| {
        [Turn::new().call(&format!("c{n}"), "say", RawJson::empty_object()), Turn::new().text("done")]
    });
    let model = ScriptedProvider::new(turns);
    let agent = mounted(&MemoryStore::new().into(), &model, Config::default()).await.runtime().clone();
    let mut chats = Vec::new();
    for tenant in &tenants {
        let chat = agent.for_storage(store.tenant(tenant)).open(&device("laptop")).await.unwrap();
        chat.update(Patch::new().mount(name().resource(), Access::Read)).await.unwrap();
        chat.send("go").await.unwrap();
        chats.push(chat);
    }
    let secrets: BTreeMap<_, _> = tenants[..2].iter().map(|tenant| (tenant.clone(), known())).collect();
    let scheduler = Scheduler::over(agent, Arc::new(store)).with_secrets(Arc::new(secrets));
    let round = scheduler.with_config(SchedulerConfig::new().with_max_runs(1)).round().await.unwrap();
    assert_eq!(round.ran, 3);
    let mut outcomes = Vec::new();
    for chat in &chats {
        let calls = calls(chat).await;
        outcomes.push((calls[0].1[0].outcome, calls[0].1[0].output.get().contains("(secret github)")));
    }
    let given = (ToolOutcome::Ok, true);
    assert_eq!(outcomes, [given, given, (ToolOutcome::Error, false)]);
}

/// Plugin that says in the description and the schema of its tool what it was given.
#[derive(Debug)]
struct Telling(Secrets);

#[async_trait]
impl Plugin for Telling {
    fn name(&self) -> &str {
        "telling"
    }

    async fn session_tools(&self, _: SessionContext) -> Result<Vec<ToolSpec>> {
        let secret = self.0.reveal(WorkspaceId::DEFAULT, &name()).await?;
        let value = secret.expose();
        let schema = serde_json::json!({"type": "object", "properties": {"key": {"type": "string", "description": value}}});
        Ok(vec![ToolSpec::new("tell", format!("Uses {value}.")).with_input(RawJson::of(&schema)?)])
    }

    async fn call(&self, _: &str, _: RawJson, _: ToolContext) -> Result<RawJson> {
        RawJson::of(&"told")
    }
}

/// What a plugin's server says of its tools goes to the model without the values of secrets.
#[tokio::test]
async fn descriptions_of_tools_are_redacted() {
    let (secrets, model) = (known(), ScriptedProvider::new([Turn::new().text("hello")]));
    let builder = AgentBuilder::new().with_llm(model.clone()).with_storage(MemoryStore::new());
    let agent = builder.with_secrets(secrets.clone()).with_plugin(Telling(secrets)).build().unwrap();
    let chat = agent.conversation("key").await.unwrap();
    read(chat.prompt("hello").await.unwrap()).await;
    let request = &model.requests()[0];
    let tool = request.tools.iter().find(|tool| tool.name == "tell").expect("it is offered");
    assert_eq!(tool.description, "Uses (secret github).");
    assert!(tool.input.get().contains("(secret github)") && !tool.input.get().contains("ghp_"), "{tool:?}");
}
