//! Sealed sessions, as the store around which an encrypted one is sees them, and as somebody changes them there.

use std::sync::{Arc, Mutex};

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::{Event, EventType, NewEvent};
use agent_core::json::RawJson;
use agent_core::model::{Actor, Title};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{
    BlobContent, BlobQuery, BlobStore, BlobStoreWrapper, DeletedTenant, EventPage, Page, Purge, PutBlob,
    ReadBlob, ReadEvents, SessionQuery, SessionStoreWrapper, WorkspaceQuery,
};
use agent_core::{
    Backend, ErrorKind, MemoryStore, Result, Seq, SessionId, SessionStore, SessionStoreExt, Storage,
    TenantId, WorkspaceId, async_trait,
};
use agent_vault::{KeyPlace, KeyQuery, KeyRing, StorePlace, Vault};

use crate::support::{STORES, Site};
use crate::wordy::{WORD, failed, secret, wordy};

pub(crate) fn ring() -> KeyRing {
    KeyRing::from_bytes([7; 32])
}

pub(crate) fn acme() -> TenantId {
    "acme".parse().unwrap()
}

#[tokio::test]
async fn no_word_reaches_the_store() {
    for store in STORES {
        let site = Site::new(store).await;
        let vault = Vault::open(site.backends[0].clone(), ring()).await.unwrap();
        let storage = vault.tenant(&acme());
        let session = wordy(&storage).await;
        let session = failed(&storage, &session).await;
        let fork = storage.sessions.fork(session.id, None).await.unwrap();
        // All of it is there for who has the keys, in another process, too.
        let other = Vault::open(site.backends[1].clone(), ring()).await.unwrap().tenant(&acme());
        assert_eq!(other.sessions.load(session.id).await.unwrap(), session, "{store}");
        let history = other.sessions.history(fork.id, ReadEvents::first(100)).await.unwrap();
        let text: String = history.events.iter().map(Event::to_json).collect();
        for part in ["message", "own payload", "field value", "answer", "input", "output", "failure"] {
            assert!(text.contains(&secret(part)), "{store}: {part}");
        }
        let query = SessionQuery::new().with_label(secret("label"), secret("label value"));
        let listed = other.sessions.list(query.with_states(SessionState::ALL.iter().copied())).await.unwrap();
        assert_eq!(listed.items.len(), 2, "{store}");
        let workspace = other.workspaces.load(session.workspace).await.unwrap();
        assert_eq!(workspace.name, secret("name"));
        // None of it is in the store.
        let plain = site.backends[0].tenant(&acme());
        let records =
            [&*plain.sessions.load(session.id).await.unwrap(), &*plain.sessions.load(fork.id).await.unwrap()]
                .map(SessionRecord::to_json);
        let events = plain.sessions.read(session.id, ReadEvents::first(100)).await.unwrap().events;
        let lists = format!(
            "{:?} {:?} {:?}",
            plain
                .sessions
                .list(SessionQuery::new().with_states(SessionState::ALL.iter().copied()))
                .await
                .unwrap(),
            plain.workspaces.list(WorkspaceQuery::new()).await.unwrap(),
            plain.workspaces.load_config(session.workspace).await.unwrap(),
        );
        let seen = format!("{records:?} {events:?} {lists}");
        assert!(!seen.contains(WORD), "{store}: {seen}");
        vault.close().await.unwrap();
        site.backends[1].close().await.unwrap();
        for word in [WORD.to_owned(), WORD.replace('-', "\\u002d")] {
            assert_eq!(site.places_with(word.as_bytes()).await, Vec::<std::path::PathBuf>::new(), "{store}");
        }
    }
}

#[tokio::test]
async fn a_wrong_key_is_denied_and_writes_nothing() {
    for store in STORES {
        let site = Site::new(store).await;
        Vault::open(site.backends[0].clone(), ring()).await.unwrap();
        let storage = Vault::open(site.backends[0].clone(), ring()).await.unwrap().tenant(&acme());
        let session = wordy(&storage).await;
        let wrong = KeyRing::from_bytes([8; 32]);
        let error = Vault::open(site.backends[1].clone(), wrong.clone()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Denied, "{store}: {error}");
        for id in [ring().current_id(), wrong.current_id()] {
            assert!(error.to_string().contains(id.as_str()), "{store}: {error}");
        }
        assert_eq!(storage.sessions.load(session.id).await.unwrap(), session, "{store}");
    }
}

#[tokio::test]
async fn a_store_with_open_data_is_not_taken() {
    let plain = Arc::new(MemoryStore::new());
    let storage = Backend::tenant(&*plain, &acme());
    storage
        .sessions
        .create(NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT))
        .await
        .unwrap();
    let error = Vault::open(plain.clone(), ring()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(Backend::tenants(&*plain, None).await.unwrap().items, [acme()], "nothing was written");
}

/// Without its keys a session is neither written nor cleared, compacted or deleted; its numbers can be read.
#[tokio::test]
async fn a_sealed_session_is_not_written_without_keys() {
    let plain = Arc::new(MemoryStore::new());
    let vault = Vault::open(plain.clone(), ring()).await.unwrap();
    let session = wordy(&vault.tenant(&acme())).await;
    let raw = Backend::tenant(&*plain, &acme());
    let now = raw.sessions.load(session.id).await.unwrap();
    for trigger in [Trigger::Delete(Reason::UserDeleted), Trigger::Archive, Trigger::Replace(Vec::new())] {
        let commit = Commit::seal(raw.effects(), session.id, session.head).with_trigger(trigger);
        let error = raw.sessions.commit(commit).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Denied, "{error}");
    }
    for event in
        [NewEvent::user_message("x"), NewEvent::history_cleared(), NewEvent::compacted(Seq::new(3), "x")]
    {
        let error = raw.sessions.append(session.id, session.head, vec![event]).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Denied, "{error}");
    }
    assert_eq!(raw.sessions.load(session.id).await.unwrap(), now);
}

/// A store in which somebody changes what is read.
#[derive(Clone, Debug)]
struct Forged {
    inner: Arc<MemoryStore>,
    forgery: Arc<Mutex<Forgery>>,
}

#[derive(Clone, Debug, Default)]
struct Forgery {
    events: Option<Vec<Event>>,
    record: Option<SessionRecord>,
    /// Places of a blob's bytes that are exchanged, and a length.
    bytes: Option<(usize, usize, usize)>,
    /// Place of a blob's byte that is changed.
    byte: Option<usize>,
}

#[derive(Debug)]
struct ForgedSessions(Arc<dyn SessionStore>, Arc<Mutex<Forgery>>);

#[async_trait]
impl SessionStoreWrapper for ForgedSessions {
    fn inner(&self) -> &dyn SessionStore {
        &*self.0
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let forged = self.1.lock().unwrap().events.clone();
        match forged {
            Some(events) => Ok(EventPage::new(events)),
            None => self.0.read(id, read).await,
        }
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let forged = self.1.lock().unwrap().record.clone();
        match forged {
            Some(record) => Ok(Arc::new(record)),
            None => self.0.load(id).await,
        }
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }
}

#[async_trait]
impl BlobStoreWrapper for ForgedSessions {
    fn inner(&self) -> &dyn BlobStore {
        self.0.blobs()
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        let Forgery { bytes: exchanged, byte, .. } = self.1.lock().unwrap().clone();
        let whole = ReadBlob::new(read.session, read.name);
        let mut bytes = self.0.blobs().read(whole).await?.into_bytes(1 << 24).await?.to_vec();
        if let Some((one, other, count)) = exchanged {
            for n in 0..count {
                bytes.swap(one + n, other + n);
            }
        }
        if let Some(at) = byte {
            bytes[at] ^= 1;
        }
        let mut content = self.0.blobs().read(read).await?;
        let (from, to) = (content.range.start as usize, content.range.end as usize);
        let part = agent_core::store::BlobInfo::of(&bytes[from..to]);
        let read = ReadBlob::new(SessionId::from_uuid(uuid::Uuid::nil()), part.name);
        content.content = BlobContent::from_bytes(&read, bytes[from..to].to_vec().into()).content;
        Ok(content)
    }
}

#[async_trait]
impl Backend for Forged {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        let storage = Backend::tenant(&*self.inner, tenant);
        let sessions = ForgedSessions(storage.sessions.store().clone(), self.forgery.clone());
        storage.with_session_store(Arc::new(sessions))
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        self.inner.tenants(after).await
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        self.inner.delete_tenant(tenant).await
    }
}

impl Forged {
    fn new() -> Self {
        Self { inner: Arc::new(MemoryStore::new()), forgery: Arc::default() }
    }

    /// Reads a session whose events are these.
    async fn read(&self, storage: &Storage, id: SessionId, events: Vec<Event>) -> Result<EventPage> {
        self.forgery.lock().unwrap().events = Some(events);
        let read = storage.sessions.read(id, ReadEvents::first(100)).await;
        self.forgery.lock().unwrap().events = None;
        read
    }
}

/// Each bit of a message and of a change with words, and a bit of each byte of the other events, the copies beside the sealed content
/// included.
#[tokio::test]
async fn every_flipped_bit_of_an_event_is_corrupt() {
    let forged = Forged::new();
    let vault = Vault::open(Arc::new(forged.clone()), ring()).await.unwrap();
    let storage = vault.tenant(&acme());
    let session = wordy(&storage).await;
    let plain = storage.sessions.read(session.id, ReadEvents::first(100)).await.unwrap().events;
    let sealed = Backend::tenant(&*forged.inner, &acme());
    let sealed = sealed.sessions.read(session.id, ReadEvents::first(100)).await.unwrap().events;
    let (mut tried, mut opened) = (0, 0);
    for (sealed, plain) in sealed.iter().zip(&plain) {
        let json = sealed.to_json();
        let is_whole = [EventType::USER_MESSAGE, EventType::SESSION_TIMER_SCHEDULED].contains(&sealed.kind);
        for bit in (0..8 * json.len()).filter(|bit| is_whole || bit % 8 == bit / 8 % 8) {
            let mut bytes = json.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Some(event) = String::from_utf8(bytes).ok().and_then(|text| Event::from_json(&text).ok())
            else {
                continue;
            };
            if event == *sealed && event.to_json() == json {
                continue;
            }
            tried += 1;
            match forged.read(&storage, session.id, vec![event.clone()]).await {
                Ok(page) => {
                    // Only the last bits of base64 that stand for nothing could be another text for the same bytes.
                    assert_eq!(page.events, std::slice::from_ref(plain), "{event:?}");
                    opened += 1;
                }
                Err(error) => assert!(
                    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Denied),
                    "bit {bit} of {json}: {error}"
                ),
            }
        }
    }
    assert_eq!((tried > 3_000, opened), (true, 0), "{tried}");
}

#[tokio::test]
async fn a_moved_event_is_corrupt() {
    let forged = Forged::new();
    let vault = Vault::open(Arc::new(forged.clone()), ring()).await.unwrap();
    let [storage, other] = ["acme", "umbra"].map(|tenant| vault.tenant(&tenant.parse().unwrap()));
    let session = wordy(&storage).await;
    // The same session in another tenant, and another session of the same one.
    let new = |id| NewSession::new(id, WorkspaceId::DEFAULT);
    let foreign = other.sessions.create(new(session.id)).await.unwrap();
    let beside = storage.sessions.create(new(storage.effects().new_session_id())).await.unwrap();
    let raw = |tenant: &str| Backend::tenant(&*forged.inner, &tenant.parse().unwrap()).sessions;
    let events = raw("acme").read(session.id, ReadEvents::first(100)).await.unwrap().events;
    let of_foreign = raw("umbra").read(foreign.id, ReadEvents::first(1)).await.unwrap().events;
    let mut moved = vec![(session.id, of_foreign[0].clone()), (beside.id, events[0].clone())];
    for (n, event) in events.iter().enumerate() {
        let mut later = event.clone();
        later.seq = event.seq.next();
        let mut typed = event.clone();
        typed.kind = EventType::AGENT_THINKING;
        let mut commit = event.clone();
        commit.commit = storage.effects().new_commit_id();
        let mut timed = event.clone();
        timed.at = storage.effects().now();
        let mut by = event.clone();
        by.actor = Actor::SYSTEM;
        let mut run = event.clone();
        run.run = Some(storage.effects().new_run_id());
        let mut payload = event.clone();
        payload.payload = events[(n + 1) % events.len()].payload.clone();
        let mut open = event.clone();
        open.payload = RawJson::constant(r#"{"text":"Pay me"}"#);
        let all = [later, typed, commit, timed, by, run, payload, open];
        moved.extend(all.into_iter().filter(|it| it != event).map(|event| (session.id, event)));
    }
    for (id, event) in moved {
        let error = forged.read(&storage, id, vec![event.clone()]).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Denied), "{event:?}: {error}");
    }
    // Damage ends a page before it.
    let mut damaged = events.clone();
    damaged[2].seq = Seq::new(9);
    let page = forged.read(&storage, session.id, damaged).await.unwrap();
    assert_eq!((page.events.len(), page.damaged.len()), (2, 1));
}

/// A backend whose keys are those of another one.
#[derive(Debug)]
pub(crate) struct SharedKeys(pub(crate) Arc<dyn Backend>, pub(crate) MemoryStore);

#[async_trait]
impl Backend for SharedKeys {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        if Vault::is_of_keys(tenant) { self.0.tenant(tenant) } else { Backend::tenant(&self.1, tenant) }
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        self.1.tenants(after).await
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        self.1.delete_tenant(tenant).await
    }
}

/// The same commits, in two stores with the same keys.
#[tokio::test]
async fn sealed_twice_has_the_same_bytes() {
    let effects = Effects::default();
    let id = effects.new_session_id();
    let create = Commit::create(&effects, NewSession::new(id, WorkspaceId::DEFAULT));
    let say = Commit::seal(&effects, id, Seq::new(1)).with_event(NewEvent::user_message(secret("message")));
    let (keys, mut seen) = (Arc::new(MemoryStore::new()), Vec::new());
    for _ in 0..2 {
        let plain = Arc::new(SharedKeys(keys.clone(), MemoryStore::new()));
        let storage = Vault::open(plain.clone(), ring()).await.unwrap().tenant(&acme());
        for commit in [&create, &say] {
            assert!(!storage.sessions.commit(commit.clone()).await.unwrap().replayed);
        }
        let sealed = plain.tenant(&acme()).sessions.read(id, ReadEvents::first(9)).await.unwrap().events;
        seen.push(sealed.iter().map(Event::to_json).collect::<Vec<_>>());
    }
    assert_eq!((seen[0].len(), &seen[0]), (2, &seen[1]));
}

/// A blob that is put again is readable again, whatever its row was.
#[tokio::test]
async fn a_damaged_row_of_a_blob_is_mended_by_a_put() {
    let plain = Arc::new(MemoryStore::new());
    let vault = Vault::open(plain.clone(), ring()).await.unwrap();
    let storage = vault.tenant(&acme());
    let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
    let session = storage.sessions.create(new).await.unwrap();
    let put = || PutBlob::of_bytes(session.id, secret("picture"));
    storage.sessions.blobs().put(put()).await.unwrap();
    let read = ReadBlob::new(session.id, put().blob.name);
    let mut changed = 0;
    for tenant in
        Backend::tenants(&*plain, None).await.unwrap().items.iter().filter(|it| Vault::is_of_keys(it))
    {
        let place = StorePlace::new(Backend::tenant(&*plain, tenant).workspaces);
        for row in place.list(KeyQuery::new().with_prefix("blob/")).await.unwrap().items {
            place.swap(&row.name, &row.text, "AAAA").await.unwrap();
            changed += 1;
        }
    }
    assert_eq!(changed, 1);
    let error = storage.sessions.blobs().read(read.clone()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    storage.sessions.blobs().put(put()).await.unwrap();
    let found = storage.sessions.blobs().read(read).await.unwrap().into_bytes(1 << 20).await.unwrap();
    assert_eq!(found, secret("picture"));
}

#[tokio::test]
async fn a_dropped_key_leaves_nothing_to_read_and_the_session_can_be_purged() {
    for store in STORES {
        let site = Site::new(store).await;
        let vault = Vault::open(site.backends[0].clone(), ring()).await.unwrap();
        let storage = vault.tenant(&acme());
        let session = wordy(&storage).await;
        let deleted =
            storage.sessions.trigger(session.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
        assert!(vault.keys(&acme()).drop_session(session.id).await.unwrap());
        let late = Vault::open(site.backends[1].clone(), ring()).await.unwrap().tenant(&acme());
        for storage in [&storage, &late] {
            let error = storage.sessions.read(session.id, ReadEvents::first(9)).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Deleted, "{store}: {error}");
            let record = storage.sessions.load(session.id).await.unwrap();
            assert_eq!(record.attributes.title, None, "{store}");
            let query = SessionQuery::new().with_states([SessionState::Deleted]);
            let listed = storage.sessions.list(query).await.unwrap();
            assert_eq!((listed.items.len(), listed.damaged.len()), (1, 0), "{store}");
        }
        // A retry that comes too late changes nothing.
        let error = late
            .sessions
            .append(session.id, deleted.last, vec![NewEvent::user_message("x")])
            .await
            .unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Deleted, "{store}: {error}");
        let again = NewSession::new(session.id, session.workspace);
        let error = late.sessions.create(again).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Deleted | ErrorKind::Conflict { .. }), "{store}: {error}");
        late.sessions.purge(Purge::new(session.id, deleted.last)).await.unwrap();
        assert!(
            late.sessions.read(session.id, ReadEvents::first(9)).await.unwrap().events.is_empty(),
            "{store}"
        );
    }
}

/// The record that a store keeps is a cache. A word that is changed or moved in it is noticed, and none in the open is taken for one.
#[tokio::test]
async fn a_forged_record_is_corrupt() {
    let forged = Forged::new();
    let vault = Vault::open(Arc::new(forged.clone()), ring()).await.unwrap();
    let storage = vault.tenant(&acme());
    let (session, other) = (wordy(&storage).await, wordy(&storage).await);
    let raw = Backend::tenant(&*forged.inner, &acme()).sessions;
    let (now, foreign) = (raw.load(session.id).await.unwrap(), raw.load(other.id).await.unwrap());
    let title = |record: &SessionRecord| record.attributes.title.clone();
    type Change<'a> = Box<dyn Fn(&mut SessionRecord) + 'a>;
    let changes: Vec<(&str, Change<'_>)> = vec![
        ("a title in the open", Box::new(|it| it.attributes.title = Some(Title::by_user("Pay me")))),
        ("the title of another session", Box::new(|it| it.attributes.title = title(&foreign))),
        (
            "a preview as title",
            Box::new(|it| {
                it.attributes.title = Some(Title::by_user(it.preview.clone().unwrap()));
            }),
        ),
        (
            "a choice as question",
            Box::new(|it| {
                let action = it.action.as_mut().unwrap();
                action.question = action.choices[0].clone();
            }),
        ),
        (
            "labels of another session",
            Box::new(|it| it.attributes.labels = foreign.attributes.labels.clone()),
        ),
        (
            "a label without text",
            Box::new(|it| {
                it.attributes
                    .labels
                    .insert("~AAAAAAAAAAAAAAAAAAAAAA".into(), "~AAAAAAAAAAAAAAAAAAAAAA".into());
            }),
        ),
        (
            "the mark of another label's value",
            Box::new(|it| {
                let mut marks: Vec<_> = it.attributes.labels.values().cloned().collect();
                marks.rotate_left(1);
                it.attributes.labels.values_mut().zip(marks).for_each(|(value, mark)| *value = mark);
            }),
        ),
        (
            "a text without label",
            Box::new(|it| {
                it.attributes.labels.pop_first();
            }),
        ),
        (
            "metadata in the open",
            Box::new(|it| {
                it.attributes.metadata.insert("paid", RawJson::constant("true"));
            }),
        ),
        ("a document in the open", Box::new(|it| it.documents[0].name = "plan".into())),
        ("no key", Box::new(|it| it.sealed_by = None)),
        ("the key of another session", Box::new(|it| it.sealed_by.clone_from(&foreign.sealed_by))),
    ];
    for (what, change) in changes {
        let mut record = SessionRecord::clone(&now);
        change(&mut record);
        if what == "labels of another session" {
            // Equal labels have equal marks, which is what lists compare.
            assert_eq!(record, *now);
            continue;
        }
        assert_ne!(record, *now, "{what}");
        forged.forgery.lock().unwrap().record = Some(record);
        let error = storage.sessions.load(session.id).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Denied), "{what}: {error}");
        forged.forgery.lock().unwrap().record = None;
        assert_eq!(storage.sessions.load(session.id).await.unwrap(), session, "{what}");
    }
}

/// The row of its key goes once no fork reads the session.
#[tokio::test]
async fn a_purge_drops_the_key() {
    let plain = Arc::new(MemoryStore::new());
    let vault = Vault::open(plain.clone(), ring()).await.unwrap();
    let storage = vault.tenant(&acme());
    let session = wordy(&storage).await;
    let session = failed(&storage, &session).await;
    let fork = storage.sessions.fork(session.id, None).await.unwrap();
    let deleted = storage.sessions.trigger(session.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    let purge = Purge::new(session.id, deleted.last);
    storage.sessions.purge(purge.clone()).await.unwrap();
    let read = storage.sessions.history(fork.id, ReadEvents::first(100)).await.unwrap();
    assert!(read.events.len() > 9, "the fork reads on");
    let ended = storage.sessions.trigger(fork.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    storage.sessions.purge(Purge::new(fork.id, ended.last)).await.unwrap();
    storage.sessions.purge(purge).await.unwrap();
    assert!(!vault.keys(&acme()).drop_session(session.id).await.unwrap(), "it was dropped");
    assert_eq!(storage.sessions.load(session.id).await.unwrap().status.state, SessionState::Deleted);
}

/// A store that is only read is not written to.
#[tokio::test]
async fn a_store_that_lost_its_root_row_is_not_made_anew() {
    let plain = Arc::new(MemoryStore::new());
    let vault = Vault::open(plain.clone(), ring()).await.unwrap();
    wordy(&vault.tenant(&acme())).await;
    assert!(Vault::is_around(&*plain).await.unwrap());
    let keys: Vec<_> =
        Backend::tenants(&*plain, None).await.unwrap().items.into_iter().filter(Vault::is_of_keys).collect();
    assert_eq!(keys.len(), 2);
    for tenant in &keys {
        assert_eq!(*vault.delete_tenant(tenant).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let root = keys.iter().find(|tenant| tenant.as_str().ends_with("e3b0c44298fc1c149afbf4c8996fb924"));
    plain.delete_tenant(root.unwrap()).await.unwrap();
    let error = Vault::open(plain.clone(), ring()).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(!Vault::is_around(&MemoryStore::new()).await.unwrap());
}

#[tokio::test]
async fn a_changed_blob_is_corrupt() {
    let forged = Forged::new();
    let vault = Vault::open(Arc::new(forged.clone()), ring()).await.unwrap();
    let storage = vault.tenant(&acme());
    let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
    let session = storage.sessions.create(new).await.unwrap();
    let bytes: Vec<u8> = (0..600_000_u32).map(|n| (n % 251) as u8).collect();
    let put = PutBlob::of_bytes(session.id, bytes.clone());
    let (blob, name) = (put.blob, put.blob.name);
    storage.sessions.blobs().put(put).await.unwrap();
    let read = async |range: std::ops::Range<u64>| {
        let read = ReadBlob::new(session.id, name).with_range(range);
        storage.sessions.blobs().read(read).await?.into_bytes(1 << 20).await
    };
    for range in [0..600_000_u64, 5..6, 262_143..262_145, 262_144..524_288, 599_999..700_000, 3..3] {
        let (from, to) = (range.start as usize, (range.end as usize).min(bytes.len()));
        assert_eq!(read(range.clone()).await.unwrap(), bytes[from..to], "{range:?}");
    }
    // The nonce, the content and the tag of each of three chunks, after a header of 80 bytes.
    let chunk = (256 << 10) + 40;
    for at in [80, 80 + 24, 80 + chunk - 1, 80 + chunk, 80 + chunk + 5000, 80 + 2 * chunk + 30] {
        forged.forgery.lock().unwrap().byte = Some(at);
        let error = read(0..600_000).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{at}: {error}");
    }
    forged.forgery.lock().unwrap().byte = Some(70);
    let error = storage.sessions.blobs().list(BlobQuery::new(session.id)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    // Two chunks in the place of each other.
    *forged.forgery.lock().unwrap() = Forgery { bytes: Some((80, 80 + chunk, chunk)), ..Forgery::default() };
    assert_eq!(*read(0..10).await.unwrap_err().kind(), ErrorKind::Corrupt);
    *forged.forgery.lock().unwrap() = Forgery::default();
    assert_eq!(storage.sessions.blobs().list(BlobQuery::new(session.id)).await.unwrap().items, [blob]);
    assert_eq!(read(0..600_000).await.unwrap(), bytes);
}
