//! Conversations by the host's own keys: one for each key of a workspace, also if several callers open it first.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_admin::manifest::Manifest;
use agent_core::commit::Commit;
use agent_core::event::{EventType, NewEvent};
use agent_core::model::{Attributes, Patch, Title, Workspace, WorkspaceStatus};
use agent_core::session::{ConversationKey, SessionRecord};
use agent_core::state::SessionState;
use agent_core::store::{SessionQuery, SessionStoreWrapper};
use agent_core::{
    Error, ErrorKind, MemoryStore, Result, SessionId, SessionStore, SessionStoreExt, Storage, WorkspaceId,
    WorkspaceStoreExt, async_trait,
};
use agent_runtime::{
    AgentBuilder, AgentRuntime, Config, Conversation, ConversationRun, EchoProvider, Gate, NewWorkspace,
    RunError, RunReport, ScriptedProvider, Turn,
};
use agent_storage_fs::FsStore;
use agent_storage_sqlite::SqliteStore;
use agent_tests::{Site, each_store};
use futures::future::join_all;
use tokio::time::timeout;

use crate::common::dying::Dying;
use crate::common::{Faulty, agent, check_log, dialogue, log, read};

/// Time that none of this takes, but for a fault.
const LONG: Duration = Duration::from_secs(120);

async fn new_workspace(agent: &AgentRuntime, name: &str) -> WorkspaceId {
    agent.workspaces().create(NewWorkspace::new(name)).await.unwrap().id
}

/// All sessions of the store, in all states.
async fn all(storage: &Storage) -> Vec<SessionId> {
    let query = SessionQuery::new().with_hidden().with_limit(1000);
    storage.sessions.list(query).await.unwrap().items.iter().map(|session| session.id).collect()
}

fn is_deleted(error: &Error) -> bool {
    *error.kind() == ErrorKind::Deleted
}

/// Many tasks ask for one key at once, each with a handle of its own on the store: one session is created, and all of
/// them have it.
async fn one_winner_by_key(site: Site) {
    let mut agents = Vec::new();
    for _ in 0..8 {
        agents.push(agent(&site.open().await, EchoProvider::new()));
    }
    for key in ["support/4711", "support/4712", "🙂"] {
        let opened = (0..48).map(|n| {
            let agent = agents[n % agents.len()].clone();
            tokio::spawn(async move { agent.conversation(key).await.unwrap().id() })
        });
        let opened = timeout(LONG, join_all(opened)).await.unwrap();
        let ids: BTreeSet<_> = opened.into_iter().map(|id| id.unwrap()).collect();
        assert_eq!(ids.len(), 1, "{}: {key}", site.name);
        let id = *ids.first().unwrap();
        let chat = agents[0].conversation_by_id(id).await.unwrap();
        let events = log(&chat).await;
        assert_eq!(events.len(), 1, "{}: {key} was created once", site.name);
        let query = SessionQuery::new().with_label(Attributes::CONVERSATION_KEY, key);
        let listed = agents[0].storage().sessions.list(query).await.unwrap().items;
        assert_eq!(listed.iter().map(|session| session.id).collect::<Vec<_>>(), [id], "{}", site.name);
    }
    assert_eq!(all(agents[0].storage()).await.len(), 3, "{}", site.name);
}

each_store!(one_winner_by_key, flavor = "multi_thread");

/// What the files of a store hold, but for the marks of SQLite's readers.
fn bytes(site: &Site) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut folders) = (Vec::new(), vec![site.folder.path().to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if !name.ends_with("-shm") {
                found.push((name, std::fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Finding a conversation creates neither it nor its workspace, and changes no byte of the store.
async fn finding_a_conversation_writes_nothing(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    // A configuration that a session keeps is no reason to write either.
    let builder = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage.clone());
    let agent = builder.with_config(Config::default().with_freeze_config(true)).build().unwrap();
    let unknown = "018f4e9a-7a2b-7c3d-8e4f-ffffffffffff".parse().unwrap();
    let fresh = bytes(&site);
    assert!(agent.find_conversation("key").await.unwrap().is_none(), "{name}");
    assert!(agent.workspace(unknown).find_conversation("key").await.unwrap().is_none(), "{name}");
    assert!(all(&storage).await.is_empty(), "{name}");
    let workspaces = storage.workspaces.list(agent_core::store::WorkspaceQuery::new()).await.unwrap();
    assert!(workspaces.items.is_empty(), "{name}");
    assert_eq!(bytes(&site), fresh, "{name}");

    let plain = self::agent(&storage, EchoProvider::new());
    let chat = plain.conversation("key").await.unwrap();
    let gone = plain.conversation("gone").await.unwrap();
    gone.delete().await.unwrap();
    let head = chat.refresh().await.unwrap().head;
    let before = bytes(&site);
    let found = agent.find_conversation("key").await.unwrap().expect("it exists");
    assert_eq!((found.id(), found.record().head), (chat.id(), head), "{name}");
    assert!(is_deleted(&agent.find_conversation("gone").await.unwrap_err()), "{name}");
    let error = agent.find_conversation("").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{name}");
    assert_eq!(bytes(&site), before, "{name}");
    assert_eq!(chat.refresh().await.unwrap().head, head, "{name}");

    plain.recreate_conversation("gone").await.unwrap();
    let again = agent.find_conversation("gone").await.unwrap().expect("it was created again");
    assert_ne!(again.id(), gone.id(), "{name}");
}

each_store!(finding_a_conversation_writes_nothing and files);

/// Environment variable with the store of a process that opens conversations.
const STORE: &str = "AGENT_TEST_CONVERSATIONS";
const KEYS: usize = 25;

/// Waits for the answer, whichever run gives it.
async fn answered(begun: ConversationRun) -> RunReport {
    match begun.run.finish().await {
        Err(RunError::Queued(queued)) => begun.conversation.wait_for_answer(&queued).await.unwrap(),
        finished => finished.unwrap(),
    }
}

/// Not a test by itself: what each of several processes does.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_opens_conversations() {
    let Ok(place) = std::env::var(STORE) else { return };
    let (kind, path) = place.split_once(':').unwrap();
    let storage: Storage = match kind {
        "files" => FsStore::open(path).await.unwrap().into(),
        _ => SqliteStore::open(path).await.unwrap().into(),
    };
    let agent = agent(&storage, EchoProvider::new());
    let opened = (0..KEYS).map(|n| {
        let agent = agent.clone();
        async move {
            let key = format!("key/{n}");
            println!("said {key} {}", agent.conversation(&key).await.unwrap().id());
            let text = format!("from {}", std::process::id());
            answered(agent.conversation_with(&format!("with/{n}"), text).await.unwrap()).await;
        }
    });
    timeout(LONG, join_all(opened)).await.unwrap();
    agent.close().await.unwrap();
}

async fn one_winner_among_processes(place: String) {
    let process = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "conversation::a_process_that_opens_conversations", "--nocapture"])
            .env(STORE, &place)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let processes: Vec<_> = (0..3).map(|_| process()).collect();
    let mut opened = BTreeSet::new();
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let dialogues: BTreeSet<_> =
            text.lines().filter_map(|line| Some(line.split_once("said ")?.1.to_owned())).collect();
        assert_eq!(dialogues.len(), KEYS, "{text}");
        opened.extend(dialogues);
    }
    assert_eq!(opened.len(), KEYS, "all of them have the same sessions: {opened:#?}");
    let (kind, path) = place.split_once(':').unwrap();
    let storage: Storage = match kind {
        "files" => FsStore::open(path).await.unwrap().into(),
        _ => SqliteStore::open(path).await.unwrap().into(),
    };
    assert_eq!(all(&storage).await.len(), 2 * KEYS);
    let agent = agent(&storage, EchoProvider::new());
    for n in 0..KEYS {
        let chat = agent.conversation(&format!("with/{n}")).await.unwrap();
        let users = dialogue(&chat).await.into_iter().filter(|(who, _)| *who == "user");
        let texts: BTreeSet<_> = users.map(|(_, text)| text).collect();
        assert_eq!(texts.len(), 3, "an input of each process, once");
        assert_eq!(chat.record().counts.user, 3);
    }
}

/// Three processes open the same conversations in one folder at once, and prompt others.
#[tokio::test]
async fn one_winner_among_processes_on_files() {
    let folder = tempfile::tempdir().unwrap();
    one_winner_among_processes(format!("files:{}", folder.path().display())).await;
}

/// The same in one database file.
#[tokio::test]
async fn one_winner_among_processes_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    one_winner_among_processes(format!("sqlite:{}", folder.path().join("agent.db").display())).await;
}

/// Odd keys are kept byte for byte, and no two of them lead to one session; what is no key is refused before anything
/// is written.
async fn odd_keys_are_kept_byte_for_byte(site: Site) {
    let storage = site.open().await;
    let before = agent(&storage, EchoProvider::new());
    for key in ["", "a\u{0}b", "a\nb", &"x".repeat(513)] {
        let error = before.conversation(key).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{}: {key:?}", site.name);
        assert!(error.to_string().contains("conversation key"), "{error}");
        before.conversation_with(key, "hello").await.unwrap_err();
        before.recreate_conversation(key).await.unwrap_err();
    }
    assert_eq!(all(&storage).await, [], "{}", site.name);
    let longest = "é".repeat(256);
    let keys = [
        "a/b",
        "a",
        "b",
        "a b",
        "a/b/",
        "A/B",
        "../../../etc/passwd",
        "con",
        " ",
        "e\u{301}",
        "\u{e9}",
        &longest,
    ];
    let mut ids = BTreeSet::new();
    for key in keys {
        let chat = before.conversation(key).await.unwrap();
        assert_eq!(chat.record().conversation_key().unwrap().as_str(), key, "{}", site.name);
        assert!(ids.insert(chat.id()), "{}: {key:?}", site.name);
    }
    drop((before, storage));
    let storage = site.open().await;
    let after = agent(&storage, EchoProvider::new());
    for key in keys {
        let chat = after.conversation(key).await.unwrap();
        assert!(ids.remove(&chat.id()), "{}: {key:?}", site.name);
        assert_eq!(chat.record().attributes.labels[Attributes::CONVERSATION_KEY], key, "{}", site.name);
    }
    assert_eq!(all(&storage).await.len(), keys.len(), "{}", site.name);
}

each_store!(odd_keys_are_kept_byte_for_byte);

/// A deleted conversation is said to be deleted, by its key and with what to do; what takes its place is empty, has
/// the same key, and is deleted in its turn; also after the bytes of those before it are gone.
async fn a_deleted_one_is_recreated(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, EchoProvider::new());
    let mut seen = Vec::new();
    for round in 0..6 {
        let chat = agent.recreate_conversation("support/4711").await.unwrap();
        assert_eq!(agent.conversation("support/4711").await.unwrap().id(), chat.id(), "{name}");
        assert_eq!(agent.recreate_conversation("support/4711").await.unwrap().id(), chat.id(), "{name}");
        let now = chat.refresh().await.unwrap();
        assert_eq!(now.counts.messages(), 0, "{name}");
        assert_eq!(now.conversation_key(), "support/4711".parse().ok(), "{name}");
        let generation = now.attributes.references.get(Attributes::CONVERSATION_GENERATION).cloned();
        assert_eq!(generation, (round > 0).then(|| round.to_string()), "{name}");
        assert!(!seen.contains(&chat.id()), "{name}");
        seen.push(chat.id());
        chat.prompt("hello").await.unwrap().finish().await.unwrap();
        match round % 3 {
            0 => chat.delete().await.unwrap(),
            1 => assert!(chat.erase().await.unwrap().events > 0),
            _ => drop(agent.workspaces().delete_session(chat.id()).await.unwrap()),
        }
        for error in [
            agent.conversation("support/4711").await.unwrap_err(),
            agent.conversation_with("support/4711", "more").await.unwrap_err(),
        ] {
            assert!(is_deleted(&error), "{name}: {error}");
            let text = error.to_string();
            assert!(text.contains("\"support/4711\"") && text.contains("recreate_conversation"), "{text}");
        }
    }
    assert_eq!(all(&storage).await.len(), seen.len(), "{name}");
}

each_store!(a_deleted_one_is_recreated);

/// Of many that recreate a conversation at once one creates it, also while others delete it again.
async fn one_winner_recreates(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let owner = agent(&storage, EchoProvider::new());
    owner.conversation("key").await.unwrap().delete().await.unwrap();
    let others = join_all((0..6).map(|_| site.open())).await;
    let agents: Vec<_> = others.iter().map(|storage| agent(storage, EchoProvider::new())).collect();
    let recreated = (0..30).map(|n| {
        let agent = agents[n % agents.len()].clone();
        tokio::spawn(async move { agent.recreate_conversation("key").await.unwrap().id() })
    });
    let recreated = timeout(LONG, join_all(recreated)).await.unwrap();
    let ids: BTreeSet<_> = recreated.into_iter().map(|id| id.unwrap()).collect();
    assert_eq!(ids.len(), 1, "{name}");
    assert_eq!(all(&storage).await.len(), 2, "{name}");

    let changed = (0..24).map(|n| {
        let agent = agents[n % agents.len()].clone();
        tokio::spawn(async move {
            match agent.recreate_conversation("key").await {
                Ok(chat) if n % 2 == 0 => drop(chat.delete().await),
                Ok(_) => {}
                // It was deleted again each time that it was tried.
                Err(error) => assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        })
    });
    timeout(LONG, join_all(changed)).await.unwrap().into_iter().for_each(|done| done.unwrap());
    let last = owner.recreate_conversation("key").await.unwrap();
    let key: ConversationKey = "key".parse().unwrap();
    let count = all(&storage).await.len() as u64;
    assert_eq!(last.id(), key.session_id(None, WorkspaceId::DEFAULT, count - 1), "{name}: without gaps");
    for generation in 0..count - 1 {
        let earlier =
            storage.sessions.load(key.session_id(None, WorkspaceId::DEFAULT, generation)).await.unwrap();
        assert_eq!(earlier.status.state, SessionState::Deleted, "{name}");
    }
}

each_store!(one_winner_recreates, flavor = "multi_thread");

/// Counts the records that are loaded.
#[derive(Debug)]
struct Counting {
    inner: MemoryStore,
    loads: AtomicUsize,
}

#[async_trait]
impl SessionStoreWrapper for Counting {
    fn inner(&self) -> &dyn SessionStore {
        &self.inner
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.inner.load(id).await
    }
}

/// Opening costs one load of a record; after very many deletions the newest is found in few.
#[tokio::test]
async fn the_newest_is_found_in_few_loads() {
    let inner = MemoryStore::new();
    let counting = Arc::new(Counting { inner: inner.clone(), loads: AtomicUsize::new(0) });
    let under: Storage = inner.into();
    let storage = Storage::new(under.workspaces.clone(), counting.clone(), under.bindings.clone());
    let agent = agent(&storage, EchoProvider::new());
    let loads = || counting.loads.swap(0, Ordering::Relaxed);
    let mut chat = agent.conversation("key").await.unwrap();
    loads();
    agent.conversation("key").await.unwrap();
    assert_eq!(loads(), 1);
    for deleted in 1..600_usize {
        chat.delete().await.unwrap();
        loads();
        assert!(is_deleted(&agent.conversation("key").await.unwrap_err()));
        let most = 2 * usize::try_from(deleted.ilog2()).unwrap() + 4;
        let took = loads();
        assert!(took <= most, "{took} loads after {deleted} deletions");
        chat = agent.recreate_conversation("key").await.unwrap();
        assert_eq!(
            chat.record().attributes.references[Attributes::CONVERSATION_GENERATION],
            deleted.to_string()
        );
        loads();
        assert_eq!(agent.conversation("key").await.unwrap().id(), chat.id());
        assert!(loads() <= most);
    }
}

/// The same key is another conversation in another workspace; in one that is not there, is being deleted or was deleted
/// nothing is created.
async fn workspaces_have_their_own(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, EchoProvider::new());
    let one = new_workspace(&agent, "one").await;
    let two = new_workspace(&agent, "two").await;
    let mut ids = BTreeSet::new();
    for workspace in [one, two, WorkspaceId::DEFAULT] {
        let chat = agent.workspace(workspace).conversation("a/b").await.unwrap();
        assert_eq!(chat.record().workspace, workspace, "{name}");
        ids.insert(chat.id());
    }
    assert_eq!(ids.len(), 3, "{name}");
    let default = agent.workspace(WorkspaceId::DEFAULT).conversation("a/b").await.unwrap().id();
    assert_eq!(agent.conversation("a/b").await.unwrap().id(), default, "{name}");

    let nowhere = agent.workspace(agent.effects().new_workspace_id());
    assert_eq!(*nowhere.conversation("a/b").await.unwrap_err().kind(), ErrorKind::NotFound, "{name}");
    let error = nowhere.conversation_with("a/b", "hello").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound, "{name}");

    let mut leaving: Workspace = storage.workspaces.load(two).await.unwrap();
    leaving.status = WorkspaceStatus::Deleting;
    storage.workspaces.update(leaving).await.unwrap();
    let error = agent.workspace(two).conversation("new").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{name}: {error}");
    agent.workspaces().delete(two).await.unwrap();
    for key in ["a/b", "new"] {
        for error in [
            agent.workspace(two).conversation(key).await.unwrap_err(),
            agent.workspace(two).conversation_with(key, "hello").await.unwrap_err(),
            agent.workspace(two).recreate_conversation(key).await.unwrap_err(),
        ] {
            assert!(is_deleted(&error), "{name}: {error}");
        }
    }
    assert_eq!(all(&storage).await.len(), 3, "{name}");
    assert!(agent.workspace(one).conversation("a/b").await.is_ok(), "{name}");
}

each_store!(workspaces_have_their_own);

/// Tenants have conversations of their own under the same key.
async fn tenants_have_their_own(site: Site) {
    let tenants = site.tenants().await;
    let host = agent(&tenants.tenant(&"one".parse().unwrap()), EchoProvider::new());
    let other = host.for_storage(tenants.tenant(&"two".parse().unwrap()));
    for (agent, text) in [(&host, "from one"), (&other, "from two")] {
        let begun = agent.conversation_with("a/b", text).await.unwrap();
        assert!(begun.created, "{}", site.name);
        begun.run.finish().await.unwrap();
    }
    for (agent, text) in [(&host, "from one"), (&other, "from two")] {
        let chat = agent.conversation("a/b").await.unwrap();
        assert_eq!(
            dialogue(&chat).await,
            [("user", text.to_owned()), ("agent", text.to_owned())],
            "{}",
            site.name
        );
    }
    host.conversation("a/b").await.unwrap().delete().await.unwrap();
    assert!(other.conversation("a/b").await.is_ok(), "{}", site.name);
}

each_store!(tenants_have_their_own);

/// A fork is no conversation of the key: lists by the key show the original only, and the key leads to it.
async fn a_fork_has_no_key(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let agent = agent(&storage, EchoProvider::new());
    let chat = agent.conversation_with("key", "hello").await.unwrap();
    chat.run.finish().await.unwrap();
    let chat = chat.conversation;
    chat.update(Patch::new().with_label("team", "blue")).await.unwrap();
    let fork = chat.fork(None).await.unwrap();
    let of_fork = fork.fork(None).await.unwrap();
    for fork in [&fork, &of_fork] {
        assert_eq!(fork.record().conversation_key(), None, "{name}");
        assert_eq!(fork.record().attributes.labels["team"], "blue", "{name}");
    }
    let by_key = SessionQuery::new().with_label(Attributes::CONVERSATION_KEY, "key");
    let listed = storage.sessions.list(by_key).await.unwrap().items;
    assert_eq!(listed.iter().map(|session| session.id).collect::<Vec<_>>(), [chat.id()], "{name}");
    fork.prompt("in the fork").await.unwrap().finish().await.unwrap();
    assert_eq!(agent.conversation("key").await.unwrap().id(), chat.id(), "{name}");
    chat.delete().await.unwrap();
    let new = agent.recreate_conversation("key").await.unwrap();
    assert!(![chat.id(), fork.id()].contains(&new.id()), "{name}");
}

each_store!(a_fork_has_no_key);

/// A new conversation is created with its input and its run in one commit, and records what any first run does; an
/// existing one is prompted.
async fn an_input_comes_in_the_creating_commit(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let gate = Gate::new();
    let model = ScriptedProvider::new([Turn::new().gate(&gate).text("one"), Turn::new().text("two")]);
    let config = Config::default().with_freeze_config(true);
    let agent = AgentBuilder::new()
        .with_config(config)
        .with_llm(model.clone())
        .with_storage(storage.clone())
        .build()
        .unwrap();
    let empty = agent.conversation_with("key", "  ").await.unwrap_err();
    assert_eq!(*empty.kind(), ErrorKind::InvalidInput, "{name}");
    assert_eq!(all(&storage).await, [], "{name}");

    let begun = agent.conversation_with("key", "hello").await.unwrap();
    assert!(begun.created && begun.run.id().is_some(), "{name}");
    let chat = begun.conversation;
    let events = log(&chat).await;
    let first = events.iter().filter(|event| event.commit == events[0].commit);
    let kinds: Vec<_> = first.map(|event| event.kind.clone()).collect();
    let expected = [
        EventType::SESSION_CREATED,
        EventType::SESSION_UPDATED,
        EventType::SESSION_DOCUMENT_WRITTEN,
        EventType::USER_MESSAGE,
    ];
    assert_eq!(kinds, expected, "{name}");
    assert_eq!(chat.refresh().await.unwrap().status.state, SessionState::Running, "{name}");
    gate.open();
    assert_eq!(begun.run.finish().await.unwrap().text, "one", "{name}");

    let begun = agent.conversation_with("key", "more").await.unwrap();
    assert!(!begun.created, "{name}");
    assert_eq!((begun.conversation.id(), read(begun.run).await.0), (chat.id(), "two".to_owned()), "{name}");
    assert_eq!(chat.refresh().await.unwrap().counts.messages(), 4, "{name}");
    check_log(&chat).await;
}

each_store!(an_input_comes_in_the_creating_commit);

/// Many that come with an input to one new key at once: one of them creates it, and every input is there once.
async fn every_first_input_is_kept(site: Site) {
    let (name, storage) = (site.name, site.open().await);
    let others = join_all((0..4).map(|_| site.open())).await;
    let agents: Vec<_> = others.iter().map(|storage| agent(storage, EchoProvider::new())).collect();
    let begun = (0..24).map(|n| {
        let agent = agents[n % agents.len()].clone();
        tokio::spawn(async move {
            let begun = agent.conversation_with("key", format!("input {n}")).await.unwrap();
            let created = begun.created;
            answered(begun).await;
            created
        })
    });
    let begun = timeout(LONG, join_all(begun)).await.unwrap();
    let created = begun.into_iter().filter(|created| *created.as_ref().unwrap()).count();
    assert_eq!(created, 1, "{name}");
    let chat = agent(&storage, EchoProvider::new()).conversation("key").await.unwrap();
    let texts: Vec<_> = dialogue(&chat).await.into_iter().filter(|(who, _)| *who == "user").collect();
    assert_eq!(texts.len(), 24, "{name}");
    assert_eq!(texts.iter().map(|(_, text)| text).collect::<BTreeSet<_>>().len(), 24, "{name}");
    check_log(&chat).await;
}

each_store!(every_first_input_is_kept, flavor = "multi_thread");

/// A process that dies at any call leaves nothing, or a conversation with its input; after a success there is one.
async fn a_crash_leaves_nothing_or_the_input(site: Site) {
    let name = site.name;
    for applied in [false, true] {
        for call in 0.. {
            let (when, key) = (format!("{name}, call {call}, applied {applied}"), format!("{call}{applied}"));
            let storage = site.open().await;
            let dying = Dying::new(&storage);
            dying.die_in(call, applied);
            let begun =
                agent(&dying.storage(&storage), EchoProvider::new()).conversation_with(&key, "hello").await;
            let acknowledged = begun.is_ok();
            if let Ok(begun) = begun {
                let _ = begun.run.finish().await;
            }
            let id = key.parse::<ConversationKey>().unwrap().session_id(None, WorkspaceId::DEFAULT, 0);
            match storage.sessions.load(id).await {
                Ok(session) => assert_eq!(session.counts.user, 1, "{when}"),
                Err(error) => {
                    assert_eq!((error.kind(), acknowledged), (&ErrorKind::NotFound, false), "{when}");
                }
            }
            let again = agent(&storage, EchoProvider::new()).conversation(&key).await.unwrap();
            assert_eq!(again.id(), id, "{when}");
            if !dying.is_dead() {
                assert!(acknowledged && call > 2, "{when}");
                break;
            }
        }
    }
}

each_store!(a_crash_leaves_nothing_or_the_input);

/// The answer to the one commit is lost: it is sent again, and the conversation has its input once.
#[tokio::test]
async fn a_lost_answer_doubles_no_first_input() {
    let faulty = Faulty::new(MemoryStore::new().into());
    let agent = agent(&faulty.storage(), EchoProvider::new());
    faulty.lose_answers(1);
    let begun = agent.conversation_with("key", "hello").await.unwrap();
    assert!(begun.created);
    begun.run.finish().await.unwrap();
    assert_eq!(dialogue(&begun.conversation).await.len(), 2);
    faulty.fail_commits(1);
    let refused = agent.conversation_with("other", "hello").await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Full);
    assert_eq!(all(agent.storage()).await.len(), 1);
}

/// In a shutdown nothing is created for a prompt that could not be answered.
#[tokio::test]
async fn in_a_shutdown_nothing_is_created() {
    let storage: Storage = MemoryStore::new().into();
    let agent = agent(&storage, EchoProvider::new());
    agent.shutdown(Duration::ZERO).await.unwrap();
    let error = agent.conversation_with("key", "hello").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable);
    assert_eq!(all(&storage).await, []);
}

/// A session that another program stored under the id, without the label, is the conversation all the same: the id
/// alone decides.
#[tokio::test]
async fn the_id_alone_decides() {
    let storage: Storage = MemoryStore::new().into();
    let agent = agent(&storage, EchoProvider::new());
    let chat = agent.conversation("key").await.unwrap();
    chat.update(Patch::new().without_label(Attributes::CONVERSATION_KEY)).await.unwrap();
    assert_eq!(agent.conversation("key").await.unwrap().id(), chat.id());
    let commit = Commit::seal(agent.effects(), chat.id(), chat.record().head);
    storage.sessions.commit_with_retry(commit.with_event(NewEvent::user_message("hello"))).await.unwrap();
    assert_eq!(agent.conversation("key").await.unwrap().record().inputs_open, 1);
}

/// A salvaged copy is no conversation of the key, which leads to the original until that is deleted.
async fn a_salvaged_copy_has_no_key(site: Site) {
    let storage = site.open().await;
    let agent = agent(&storage, EchoProvider::new());
    let chat = agent.conversation_with("key", "hello").await.unwrap();
    chat.run.finish().await.unwrap();
    let id = chat.conversation.id();
    let saved = agent_admin::salvage::salvage(&storage, id, None).await.unwrap().session;
    assert_eq!((saved.counts.messages(), saved.conversation_key()), (2, None), "{}", site.name);
    let by_key = SessionQuery::new().with_label(Attributes::CONVERSATION_KEY, "key");
    let listed = storage.sessions.list(by_key).await.unwrap().items;
    assert_eq!(listed.iter().map(|session| session.id).collect::<Vec<_>>(), [id], "{}", site.name);
    assert_eq!(agent.conversation("key").await.unwrap().id(), id, "{}", site.name);
}

each_store!(a_salvaged_copy_has_no_key);

/// A document does not bring a conversation that others would open by its key, unless it is trusted; then they do.
#[tokio::test]
async fn a_strangers_document_brings_no_key() {
    let (here, there) = (Storage::from(MemoryStore::new()), Storage::from(MemoryStore::new()));
    let begun = agent(&here, EchoProvider::new()).conversation_with("key", "hello").await.unwrap();
    begun.run.finish().await.unwrap();
    let document = Manifest::export(&*here.sessions, begun.conversation.id()).await.unwrap();
    let error = document.import(&*there.sessions).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Denied, "{error}");
    let text = error.to_string();
    assert!(text.contains("conversation by its key") && text.contains("import_with_ancestors"), "{text}");
    document.import_with_ancestors(&*there.sessions).await.unwrap();
    let found = agent(&there, EchoProvider::new()).conversation("key").await.unwrap();
    assert_eq!((found.id(), dialogue(&found).await.len()), (begun.conversation.id(), 2));
}

/// The commit that creates a conversation has its title and labels; one that exists keeps its own.
async fn a_title_and_labels_are_created_with_the_conversation(site: Site) {
    let name = site.name;
    let faulty = Faulty::new(site.open().await);
    let agent = agent(&faulty.storage(), EchoProvider::new());
    agent.workspaces().default_workspace().await.unwrap();
    let titled = |title: &str| {
        let new = Patch::new().with_title(Title::by_user(title)).with_label("team", title);
        agent.workspace(WorkspaceId::DEFAULT).with_attributes(new)
    };
    let shown = |chat: &Conversation| {
        let attributes = &chat.record().attributes;
        (attributes.title.clone().unwrap().text, attributes.labels["team"].clone())
    };
    let both = |title: &str| (title.to_owned(), title.to_owned());
    let before = faulty.commits();
    let chat = titled("one").conversation("a/b").await.unwrap();
    assert_eq!((faulty.commits() - before, shown(&chat)), (1, both("one")), "{name}");
    assert_eq!((chat.record().head.get(), chat.record().conversation_key().is_some()), (1, true), "{name}");
    // Of what exists nothing changes, whoever opens it.
    let head = chat.record().head;
    for again in [titled("two").conversation("a/b").await, titled("two").recreate_conversation("a/b").await] {
        let again = again.unwrap();
        assert_eq!(
            (again.id(), again.record().head, shown(&again)),
            (chat.id(), head, both("one")),
            "{name}"
        );
    }
    assert_eq!(faulty.commits() - before, 1, "{name}");
    chat.delete().await.unwrap();
    let new = titled("three").recreate_conversation("a/b").await.unwrap();
    assert_eq!(shown(&new), both("three"), "{name}");
    // With the first input, and its run.
    let begun = titled("four").conversation_with("c/d", "hello").await.unwrap();
    assert!(begun.created, "{name}");
    let first = log(&begun.conversation).await;
    assert_eq!((shown(&begun.conversation), first[0].commit), (both("four"), first[1].commit), "{name}");
    begun.run.finish().await.unwrap();
    let begun = titled("five").conversation_with("c/d", "more").await.unwrap();
    begun.run.finish().await.unwrap();
    assert_eq!((begun.created, shown(&begun.conversation)), (false, both("four")), "{name}");
    // The key is not one of them.
    let other = Patch::new().with_label(Attributes::CONVERSATION_KEY, "x/y");
    let handle = agent.workspace(WorkspaceId::DEFAULT).with_attributes(other);
    let refused = handle.conversation("e/f").await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{name}");
    assert!(agent.find_conversation("e/f").await.unwrap().is_none(), "{name}");
}

each_store!(a_title_and_labels_are_created_with_the_conversation and files);
