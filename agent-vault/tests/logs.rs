//! Logs, errors and the forms of public types for people hold no word, no value and no key of an encrypted store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "it/support.rs"]
mod support;
#[path = "it/wordy.rs"]
mod wordy;

use std::error::Error as _;
use std::fmt::{Debug, Write as _};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::commit::{Commit, Committed, Precondition};
use agent_core::event::{Media, Message, NewEvent, Part};
use agent_core::json::RawJson;
use agent_core::model::{Patch, Timer, Title, Workspace};
use agent_core::search::Search;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::SessionState;
use agent_core::store::{
    BlobContent, BlobInfo, BlobQuery, BlobStore, BlobStoreWrapper, ContentHash, DeletedTenant, EventPage,
    Page, PutBlob, ReadBlob, ReadEvents, SessionQuery, SessionStoreWrapper, WorkspaceQuery,
};
use agent_core::{
    Backend, Error, Result, Seq, SessionId, SessionStore, SessionStoreExt, Storage, TenantId, Timestamp,
    async_trait,
};
use agent_vault::{KeyPlace, KeyQuery, KeyRing, StorePlace, Vault, WorkspaceSecrets};
use agent_workspace::WorkspaceManager;
use agent_workspace::erasure::{Eraser, Look, Subject, verify_erased};
use agent_workspace::secrets::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use support::{STORES, Site};
use wordy::{WORD, failed, secret, wordy};

/// Root keys, of bytes that do not occur otherwise.
const ROOT: [u8; 32] = *b"\x81root-key-of-this-test-4711-\xfe\xdc\xba\x98";
const NEXT: [u8; 32] = *b"\x82next-key-of-this-test-4711-\xfe\xdc\xba\x98";

/// Everything that is logged in this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is shown: errors with their causes, and values of public types.
#[derive(Clone, Debug, Default)]
struct Shown(Arc<Mutex<String>>);

impl Shown {
    fn value(&self, value: &dyn Debug) {
        writeln!(self.0.lock().unwrap(), "{value:?} {value:#?}").unwrap();
    }

    /// Notes the error of a call that must fail.
    fn failed<T>(&self, what: &str, result: Result<T>) {
        let Err(error) = result else { panic!("{what} must fail") };
        self.error(what, &error);
    }

    fn error(&self, what: &str, error: &Error) {
        writeln!(self.0.lock().unwrap(), "{what}: {error}").unwrap();
        self.value(error);
        let mut cause = error.source();
        while let Some(source) = cause {
            writeln!(self.0.lock().unwrap(), "caused by {source} {source:?}").unwrap();
            cause = source.source();
        }
    }
}

/// The store around which the encrypted one is: notes how a commit looks there, and can be damaged.
#[derive(Clone, Debug)]
struct Seen {
    under: Arc<dyn Backend>,
    shown: Shown,
    is_damaged: Arc<AtomicBool>,
}

#[derive(Debug)]
struct SeenSessions(Arc<dyn SessionStore>, Seen);

#[async_trait]
impl SessionStoreWrapper for SeenSessions {
    fn inner(&self) -> &dyn SessionStore {
        &*self.0
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        self.1.shown.value(&commit);
        self.0.commit(commit).await
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let mut record = SessionRecord::clone(&*self.0.load(id).await?);
        if self.1.is_damaged.load(Ordering::SeqCst) {
            record.preview = Some("~1.AAAA".to_owned());
        }
        Ok(Arc::new(record))
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let mut page = self.0.read(id, read).await?;
        if self.1.is_damaged.load(Ordering::SeqCst) {
            page.events.iter_mut().for_each(|event| event.at = Timestamp::UNIX_EPOCH);
        }
        Ok(page)
    }
}

#[async_trait]
impl BlobStoreWrapper for SeenSessions {
    fn inner(&self) -> &dyn BlobStore {
        self.0.blobs()
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        let mut content = self.0.blobs().read(read).await?;
        if self.1.is_damaged.load(Ordering::SeqCst) {
            let bytes = vec![0; (content.range.end - content.range.start) as usize];
            let read = ReadBlob::new(SessionId::from_uuid(uuid::Uuid::nil()), BlobInfo::of(&bytes).name);
            content.content = BlobContent::from_bytes(&read, bytes.into()).content;
        }
        Ok(content)
    }
}

#[async_trait]
impl Backend for Seen {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        let plain = self.under.tenant(tenant);
        let sessions = SeenSessions(plain.sessions.store().clone(), self.clone());
        plain.with_session_store(Arc::new(sessions))
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        self.under.tenants(after).await
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        self.under.delete_tenant(tenant).await
    }

    async fn maintain(&self) -> Result<Vec<agent_core::store::Pending>> {
        self.under.maintain().await
    }
}

fn acme() -> TenantId {
    "acme".parse().unwrap()
}

/// The texts of all rows of keys in a store: wrapped keys, and sealed secrets.
async fn wrapped(raw: &dyn Backend) -> Vec<(TenantId, String, String)> {
    let mut found = Vec::new();
    for tenant in raw.tenants(None).await.unwrap().items.into_iter().filter(Vault::is_of_keys) {
        let place = StorePlace::new(raw.tenant(&tenant).workspaces);
        let page = place.list(KeyQuery::new().with_limit(1000)).await.unwrap();
        found.extend(page.items.into_iter().map(|row| (tenant.clone(), row.name, row.text)));
    }
    found
}

/// Calls that are done.
async fn done(vault: &Vault, shown: &Shown) -> (Arc<SessionRecord>, SessionId) {
    let storage = vault.tenant(&acme());
    let session = wordy(&storage).await;
    let session = failed(&storage, &session).await;
    let sessions = &storage.sessions;
    let fork = sessions.fork(session.id, None).await.unwrap();
    sessions.history(fork.id, ReadEvents::first(100)).await.unwrap();
    sessions.read(session.id, ReadEvents::last(3)).await.unwrap();
    let query = SessionQuery::new().with_states(SessionState::ALL.iter().copied());
    sessions.list(query.with_label(secret("label"), secret("label value"))).await.unwrap();
    assert!(!sessions.search(&Search::new(WORD)).await.unwrap().hits.is_empty());
    sessions.update_search_index().await.unwrap();
    sessions.search(&Search::new(WORD)).await.unwrap();
    for blob in sessions.blobs().list(BlobQuery::new(session.id)).await.unwrap().items {
        let read = ReadBlob::new(session.id, blob.name);
        sessions.blobs().read(read).await.unwrap().into_bytes(1 << 20).await.unwrap();
    }
    storage.workspaces.list(WorkspaceQuery::new()).await.unwrap();
    storage.workspaces.load_with_config(session.workspace).await.unwrap();
    let child =
        sessions.create_child(fork.id, Patch::new().with_title(Title::by_user(secret("child")))).await;
    sessions.maintenance().check().await.unwrap();
    sessions.maintenance().rebuild().await.unwrap();
    vault.maintain().await.unwrap();
    vault.keys(&acme()).rotate_tenant_key().await.unwrap();
    let erased = WorkspaceManager::new(storage.clone()).erase(child.unwrap().id).now().await.unwrap();
    shown.value(&erased);
    shown.value(vault);
    shown.value(&vault.keys(&acme()));
    shown.value(&storage.sessions.store());
    shown.value(&storage.workspaces);
    (session, fork.id)
}

/// Commits that are refused.
async fn refused(storage: &Storage, session: &SessionRecord, fork: SessionId, shown: &Shown) {
    let (sessions, effects) = (&storage.sessions, storage.effects());
    let say = || vec![NewEvent::user_message(secret("refused"))];
    shown.failed("an append at another head", sessions.append(session.id, Seq::new(2), say()).await);
    shown.failed(
        "an append to no session",
        sessions.append(effects.new_session_id(), Seq::new(2), say()).await,
    );
    let now = sessions.load(fork).await.unwrap();
    let missing = BlobInfo::of(secret("missing").as_bytes());
    let media = Media::blob("image/png", missing.name, missing.bytes).with_name(secret("file"));
    let names = NewEvent::from(Message::new(secret("refused")).with_part(Part::Image(media)));
    shown.failed("a missing blob", sessions.append(fork, now.head, vec![names]).await);
    let long = secret("title").repeat(100);
    let titled = NewEvent::updated(Patch::new().with_title(Title::by_user(&long)));
    shown.failed("a long title", sessions.append(fork, now.head, vec![titled]).await);
    let labels = (0..200).map(|n| (format!("{}{n}", secret("label")), secret("value")));
    let labeled = labels.fold(Patch::new(), |patch, (key, value)| patch.with_label(key, value));
    shown.failed("many labels", sessions.append(fork, now.head, vec![NewEvent::updated(labeled)]).await);
    let large = RawJson::of(&secret("metadata").repeat(5000)).unwrap();
    let large = NewEvent::updated(Patch::new().with_metadata("large", large));
    shown.failed("large metadata", sessions.append(fork, now.head, vec![large]).await);
    let timer = NewEvent::timer_scheduled(Timer::new("note", effects.now()).with_note(long.repeat(10)));
    shown.failed("a long note", sessions.append(fork, now.head, vec![timer]).await);
    let own = NewEvent::new("session.created".parse().unwrap(), RawJson::of(&secret("own")).unwrap());
    shown.failed("an event that is not one", sessions.append(fork, now.head, vec![own]).await);
    let sealed = RawJson::of(&serde_json::json!({"sealed": secret("sealed")})).unwrap();
    let sealed = NewEvent::new("x.host.noted".parse().unwrap(), sealed);
    shown.failed("an event that says it is sealed", sessions.append(fork, now.head, vec![sealed]).await);
    let again = NewSession::new(session.id, session.workspace)
        .with_patch(&Patch::new().with_title(Title::by_user(secret("title"))));
    shown.failed("a session twice", sessions.create(again).await);
    let put = PutBlob::new(fork, missing, Box::pin(futures::stream::iter([Ok(secret("other").into())])));
    shown.failed("another content", sessions.blobs().put(put).await);
    shown.failed("a blob that is absent", sessions.blobs().read(ReadBlob::new(fork, missing.name)).await);
    let config = Precondition::Matches(ContentHash::of(&secret("other")));
    let text = Some(secret("config"));
    shown.failed(
        "another configuration",
        storage.workspaces.save_config(session.workspace, text, config).await,
    );
    let workspace = storage.workspaces.load(session.workspace).await.unwrap();
    shown.failed(
        "a workspace twice",
        storage.workspaces.put(workspace.clone(), Precondition::MustNotExist).await,
    );
    let mut unnamed: Workspace = workspace;
    unnamed.name.clear();
    let unnamed = unnamed.with_description(secret("description").repeat(10_000));
    let expect = Precondition::Matches(unnamed.revision);
    shown.failed("a workspace without a name", storage.workspaces.put(unnamed, expect).await);
}

/// Calls on a store whose events, records and blobs are changed.
async fn damaged(raw: &Seen, ring: KeyRing, session: &SessionRecord, shown: &Shown) {
    let storage = Vault::open(Arc::new(raw.clone()), ring).await.unwrap().tenant(&acme());
    let blob = storage.sessions.blobs().list(BlobQuery::new(session.id)).await.unwrap().items[0].name;
    raw.is_damaged.store(true, Ordering::SeqCst);
    let sessions = &storage.sessions;
    shown.failed("a damaged event", sessions.read(session.id, ReadEvents::first(9)).await);
    shown.failed("a damaged record", sessions.load(session.id).await);
    shown.failed("damaged headers", sessions.blobs().list(BlobQuery::new(session.id)).await);
    let read = sessions.blobs().read(ReadBlob::new(session.id, blob)).await.unwrap();
    shown.failed("a damaged blob", read.into_bytes(1 << 20).await);
    let _ = sessions.search(&Search::new(WORD)).await.map(|found| shown.value(&found.damaged));
    raw.is_damaged.store(false, Ordering::SeqCst);
}

/// Calls with rows of keys that are damaged, and with none.
async fn without_keys(site: &Site, ring: KeyRing, session: &SessionRecord, shown: &Shown) {
    let raw = &site.backends[0];
    let plain = raw.tenant(&acme());
    let say = vec![NewEvent::user_message(secret("open"))];
    shown.failed("a write without the keys", plain.sessions.append(session.id, session.head, say).await);
    for (tenant, name, text) in wrapped(&**raw).await {
        let place = StorePlace::new(raw.tenant(&tenant).workspaces);
        if name.contains("/acme/") || name.starts_with("blob/") {
            place.swap(&name, &text, &text[..text.len() - 4]).await.unwrap();
        }
    }
    let storage = Vault::open(site.backends[1].clone(), ring).await.unwrap().tenant(&acme());
    shown.failed("a damaged row of a session", storage.sessions.load(session.id).await);
    let query = SessionQuery::new().with_states(SessionState::ALL.iter().copied());
    shown.value(&storage.sessions.list(query).await.unwrap());
    let manager = WorkspaceManager::new(storage.clone());
    manager.delete_session(session.id).await.unwrap();
    for (tenant, name, text) in wrapped(&**raw).await {
        let place = StorePlace::new(raw.tenant(&tenant).workspaces);
        if name == "tenant/acme" {
            place.swap(&name, &text, &text[..text.len() - 4]).await.unwrap();
        }
    }
}

async fn secrets(vault: &Vault, shown: &Shown) {
    let storage = vault.tenant(&acme());
    let secrets = WorkspaceSecrets::new(vault.keys(&acme()), &storage, "user:host".parse().unwrap());
    let (name, value) = ("github".parse().unwrap(), Secret::new(secret("value of a secret")).unwrap());
    let workspace = agent_core::WorkspaceId::DEFAULT;
    secrets.set(workspace, &name, &value, None).await.unwrap();
    assert_eq!(secrets.value(workspace, &name).await.unwrap().expose(), value.expose());
    secrets.names(workspace).await.unwrap();
    secrets.set(workspace, &name, &value, Some(Timestamp::UNIX_EPOCH)).await.unwrap();
    shown.failed("an expired secret", secrets.value(workspace, &name).await);
    shown.value(&secrets);
    shown.value(&value);
    let place = vault.keys(&acme());
    shown.value(&place);
}

/// Everything with one store. Returns the texts of the rows of its keys.
async fn use_store(store: &str, shown: &Shown) -> Vec<String> {
    let site = Site::new(store).await;
    let raw = Seen { under: site.backends[0].clone(), shown: shown.clone(), is_damaged: Arc::default() };
    let ring = KeyRing::from_bytes(ROOT);
    let vault = Vault::open(Arc::new(raw.clone()), ring.clone()).await.unwrap();
    let (session, fork) = done(&vault, shown).await;
    let mut rows = wrapped(&raw).await;
    secrets(&vault, shown).await;
    refused(&vault.tenant(&acme()), &session, fork, shown).await;
    damaged(&raw, ring.clone(), &session, shown).await;
    shown.failed(
        "another root key",
        Vault::open(site.backends[1].clone(), KeyRing::from_bytes([9; 32])).await,
    );
    let next = KeyRing::from_bytes(NEXT).with_older(ring.clone());
    shown.value(&next);
    let vault = Vault::open(Arc::new(raw.clone()), next.clone()).await.unwrap();
    vault.rotate().await.unwrap();
    shown.failed("the former root key", Vault::open(site.backends[1].clone(), ring).await);
    rows.extend(wrapped(&raw).await);
    without_keys(&site, next.clone(), &session, shown).await;
    let late = Vault::open(site.backends[1].clone(), next).await.unwrap();
    let found = late.tenant(&acme()).workspaces.load(session.workspace).await;
    shown.failed("a damaged row of a tenant", found);
    // An erasure of all, and its verification.
    let backend: Arc<dyn Backend> = Arc::new(late);
    let eraser = Eraser::new(backend.clone(), acme(), Subject::Tenant);
    let receipt = eraser.run().await.unwrap();
    shown.value(&receipt);
    let found = verify_erased(&*backend, &receipt, Look::new().with_words([WORD])).await.unwrap();
    shown.value(&found);
    rows.into_iter().map(|(_, _, text)| text).collect()
}

/// The forms in which bytes could be written.
fn forms(bytes: &[u8]) -> Vec<String> {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let list = format!("{bytes:?}");
    let list = list.trim_matches(['[', ']']).to_owned();
    let mut forms = vec![hex.to_uppercase(), hex, list.replace(", ", ",\n"), list];
    // Within a longer text, base64 begins at one of three places; the ends depend on what is beside.
    for skip in 0..3 {
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let padded = [&vec![0; skip][..], bytes].concat();
            let text = engine.encode(padded);
            forms.push(text[4..text.len() - 4].to_owned());
        }
    }
    forms
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_an_encrypted_store_is_logged_or_shown() {
    let (log, shown) = (Log::default(), Shown::default());
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let mut rows = Vec::new();
    for store in STORES {
        let used = tokio::time::timeout(Duration::from_secs(300), use_store(store, &shown));
        rows.extend(used.await.expect("the test is stuck"));
    }
    let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    let shown = shown.0.lock().unwrap().clone();
    for part in ["store.commit", "store.purge", "verify_erased", "erase_subject", "TRACE", "DEBUG", "WARN"] {
        assert!(
            log.contains(part) || ["TRACE", "DEBUG"].contains(&part),
            "the log is one of all that was done: {part}"
        );
    }
    assert!(rows.len() > 20 && shown.len() > 10_000, "{} rows", rows.len());
    let mut planted = vec![WORD.to_owned(), WORD.replace('-', "\\u002d")];
    planted.extend([&ROOT[..], &NEXT, WORD.as_bytes()].into_iter().flat_map(forms));
    planted.extend([&ROOT, &NEXT].map(|root| String::from_utf8_lossy(&root[1..28]).into_owned()));
    // What is wrapped, without the format and the id of the key that wraps it.
    planted.extend(
        rows.iter().map(|text| text.rsplit('.').next().unwrap().chars().take(40).collect::<String>()),
    );
    for planted in planted {
        for (place, text) in [("the log", &log), ("what is shown", &shown)] {
            let line = text.lines().find(|line| line.contains(&planted));
            assert_eq!(line, None, "{planted} is in {place}");
        }
    }
}
