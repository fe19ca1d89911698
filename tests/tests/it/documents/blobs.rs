//! Blobs of whole sessions that move: copies of stores, verification and salvage; and a store with damaged blobs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use agent_admin::copy::{CopyReport, StoreCopy};
use agent_core::clock::Effects;
use agent_core::event::{EventPayload, Media, Message, NewEvent, Part};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::store::{
    BLOB_CHUNK_BYTES, BlobContent, BlobInfo, BlobQuery, BlobStore, BlobStoreWrapper, Capabilities, Page,
    PutBlob, ReadBlob, SessionStoreWrapper,
};
use agent_core::{
    BlobName, Error, ErrorKind, MemoryStore, Result, SessionId, SessionStore, Sessions, Storage, WorkspaceId,
    async_trait,
};
use agent_tests::{Site, each_store};
use futures::{StreamExt, stream};

/// Opens a place twice, as source and as target; `None` for a store that has no blobs yet.
pub(crate) async fn two(site: &Site) -> Option<(Storage, Storage)> {
    let backend = site.tenants().await;
    let [here, there] = ["here", "there"].map(|tenant| backend.tenant(&tenant.parse().unwrap()));
    (here.sessions.capabilities().blob_max_bytes > 0).then_some((here, there))
}

/// Content of some bytes that no other has.
pub(crate) fn content(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|n| (n.wrapping_mul(31).wrapping_add(seed * 7) % 251) as u8).collect()
}

pub(crate) fn picture(name: &str, blob: BlobInfo) -> Part {
    Part::Image(Media::blob("image/png", blob.name, blob.bytes).with_name(name))
}

pub(crate) fn message_with(text: &str, part: Part) -> NewEvent {
    NewEvent::of(&EventPayload::UserMessage(Message::new(text).with_part(part)))
}

/// Creates a session that says something, shows each of the contents, and says something again.
pub(crate) async fn showing(store: &Sessions, effects: &Effects, contents: &[Vec<u8>]) -> Arc<SessionRecord> {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut session = store.create(new).await.unwrap();
    let hello = vec![NewEvent::agent_message("Hello")];
    session = store.append(session.id, session.head, hello).await.unwrap().session;
    for (n, content) in contents.iter().enumerate() {
        let put = PutBlob::of_bytes(session.id, content.clone());
        let event = message_with("What is this?", picture(&format!("cat{n}.png"), put.blob));
        store.blobs().put(put).await.unwrap();
        session = store.append(session.id, session.head, vec![event]).await.unwrap().session;
    }
    let bye = vec![NewEvent::agent_message("A cat.")];
    store.append(session.id, session.head, bye).await.unwrap().session
}

pub(crate) async fn blobs(store: &dyn SessionStore, id: SessionId) -> Vec<BlobInfo> {
    store.blobs().list(BlobQuery::new(id).with_limit(1000)).await.unwrap().items
}

pub(crate) async fn bytes_of(store: &dyn SessionStore, id: SessionId, name: BlobName) -> Result<Vec<u8>> {
    let read = store.blobs().read(ReadBlob::new(id, name)).await?;
    Ok(read.into_bytes(64 << 20).await?.to_vec())
}

/// What is wrong with a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is not there.
    Lost,
    /// Its bytes end with an error after the first chunk.
    Damaged,
}

/// A store with faults at its blobs, which counts what is put, and takes only so many.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) faults: Mutex<HashMap<BlobName, Fault>>,
    pub(crate) puts: AtomicU64,
    /// Number of puts after which the store fails.
    pub(crate) most_puts: AtomicU64,
    /// Size of a blob that the store keeps, if it is to differ.
    pub(crate) blob_max_bytes: Option<u64>,
}

impl Faulty {
    pub(crate) fn new(store: Arc<dyn SessionStore>) -> Self {
        Self {
            store,
            faults: Mutex::default(),
            puts: AtomicU64::new(0),
            most_puts: AtomicU64::new(u64::MAX),
            blob_max_bytes: None,
        }
    }

    pub(crate) fn with_fault(self, name: BlobName, fault: Fault) -> Self {
        self.faults.lock().unwrap().insert(name, fault);
        self
    }

    fn fault(&self, name: BlobName) -> Option<Fault> {
        self.faults.lock().unwrap().get(&name).copied()
    }
}

#[async_trait]
impl SessionStoreWrapper for Faulty {
    fn inner(&self) -> &dyn SessionStore {
        &*self.store
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.store.capabilities();
        capabilities.blob_max_bytes = self.blob_max_bytes.unwrap_or(capabilities.blob_max_bytes);
        capabilities
    }

    fn blobs(&self) -> &dyn BlobStore {
        self
    }
}

#[async_trait]
impl BlobStoreWrapper for Faulty {
    fn inner(&self) -> &dyn BlobStore {
        self.store.blobs()
    }

    async fn put(&self, put: PutBlob) -> Result<()> {
        if self.puts.fetch_add(1, Ordering::SeqCst) >= self.most_puts.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "as told"));
        }
        self.store.blobs().put(put).await
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        let fault = self.fault(read.name);
        if fault == Some(Fault::Lost) {
            return Err(read.not_found());
        }
        let name = read.name;
        let mut found = self.store.blobs().read(read).await?;
        if fault == Some(Fault::Damaged) {
            let damaged = Error::corrupt(format!("blob {name}: chunk 1 is damaged"));
            found.content = found.content.take(1).chain(stream::iter([Err(damaged)])).boxed();
        }
        Ok(found)
    }

    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        let mut page = self.store.blobs().list(query).await?;
        page.items.retain(|blob| self.fault(blob.name) != Some(Fault::Lost));
        Ok(page)
    }
}

fn with_sessions(storage: &Storage, sessions: impl SessionStore) -> Storage {
    Storage::new(storage.workspaces.clone(), Arc::new(sessions), storage.bindings.clone())
}

async fn copied(from: &Storage, to: &Storage) -> CopyReport {
    StoreCopy::new(from.clone(), to.clone()).run().await.unwrap()
}

/// A copy brings the blobs of each session, of a fork only its own, counts them, and sends none a second time.
async fn copy_brings_blobs(site: Site) {
    let Some((here, there)) = two(&site).await else { return };
    let effects = Effects::default();
    let contents = [content(1, 10), content(2, 3 * BLOB_CHUNK_BYTES + 1), content(3, 100)];
    let session = showing(&here.sessions, &effects, &contents).await;
    let fork = here.sessions.fork(session.id, None).await.unwrap();
    let put = PutBlob::of_bytes(fork.id, contents[0].clone());
    let again = message_with("And this?", picture("same.png", put.blob));
    here.sessions.blobs().put(put).await.unwrap();
    // Nobody names it.
    here.sessions.blobs().put(PutBlob::of_bytes(session.id, "left over")).await.unwrap();
    here.sessions.append(fork.id, fork.head, vec![again]).await.unwrap();

    let seen = Arc::new(Mutex::new((0, 0)));
    let progress = seen.clone();
    let copy = StoreCopy::new(here.clone(), there.clone())
        .with_progress(move |now| *progress.lock().unwrap() = (now.blobs, now.blob_bytes));
    let report = copy.run().await.unwrap();
    assert!(report.is_whole(), "{report:?}");
    let bytes: usize = contents.iter().map(Vec::len).sum::<usize>() + contents[0].len();
    assert_eq!((report.blobs, report.blob_bytes), (4, bytes as u64));
    assert_eq!(*seen.lock().unwrap(), (4, bytes as u64));
    for content in &contents {
        let name = BlobName::of(content);
        assert_eq!(bytes_of(&*there.sessions, session.id, name).await.unwrap(), *content);
    }
    assert_eq!(blobs(&*there.sessions, session.id).await.len(), 3, "without the one that nobody names");
    assert_eq!(blobs(&*there.sessions, fork.id).await, [BlobInfo::of(&contents[0])]);

    let counting = Arc::new(Faulty::new(there.sessions.store().clone()));
    let target = Storage::new(there.workspaces.clone(), counting.clone(), there.bindings.clone());
    let report = copied(&here, &target).await;
    assert!(report.is_whole() && report.blobs == 0 && report.copied.sessions == 0, "{report:?}");
    assert_eq!(counting.puts.load(Ordering::SeqCst), 0);
}
each_store!(copy_brings_blobs and files);

/// A copy that ended in the middle is completed by the next one, which sends only the rest.
async fn copy_with_blobs_is_resumed(site: Site) {
    let Some((here, there)) = two(&site).await else { return };
    let effects = Effects::default();
    let contents: Vec<_> = (0..5).map(|n| content(n, 1000)).collect();
    let session = showing(&here.sessions, &effects, &contents).await;
    for before in 1..=5 {
        let target = Arc::new(Faulty::new(there.sessions.store().clone()));
        target.most_puts.store(1, Ordering::SeqCst);
        let cut = Storage::new(there.workspaces.clone(), target.clone(), there.bindings.clone());
        let done = StoreCopy::new(here.clone(), cut).run().await;
        assert_eq!(blobs(&*there.sessions, session.id).await.len(), before);
        assert_eq!(done.is_ok(), before == 5, "the last one had one blob to send");
    }
    assert_eq!(there.sessions.load(session.id).await.unwrap(), session);
    // A blob that was put, and whose commit did not follow, is not sent again.
    let more = PutBlob::of_bytes(session.id, "more");
    let event = message_with("More", picture("more.png", more.blob));
    here.sessions.blobs().put(more).await.unwrap();
    here.sessions.append(session.id, session.head, vec![event]).await.unwrap();
    there.sessions.blobs().put(PutBlob::of_bytes(session.id, "more")).await.unwrap();
    let report = copied(&here, &there).await;
    assert_eq!((report.is_whole(), report.blobs, report.copied.sessions), (true, 0, 1), "{report:?}");
}
each_store!(copy_with_blobs_is_resumed and files);

/// A session with a lost or damaged blob is named as damaged; what came before it is in the target, and the rest of the
/// store is copied.
async fn copy_names_damaged_blobs(site: Site) {
    let Some((here, there)) = two(&site).await else { return };
    let effects = Effects::default();
    let contents = [content(1, 10), content(2, 3 * BLOB_CHUNK_BYTES)];
    let session = showing(&here.sessions, &effects, &contents).await;
    let other = showing(&here.sessions, &effects, &contents[..1]).await;
    let name = BlobName::of(&contents[1]);
    for fault in [Fault::Lost, Fault::Damaged] {
        let source = with_sessions(&here, Faulty::new(here.sessions.store().clone()).with_fault(name, fault));
        let report = copied(&source, &there).await;
        let [damage] = &report.damaged[..] else { panic!("{fault:?}: {report:?}") };
        assert_eq!(damage.object, format!("session {}", session.id));
        for part in [name.to_string(), "event 4:".to_owned(), "events up to 3 are".to_owned()] {
            assert!(damage.reason.contains(&part), "{part}: {damage}");
        }
        assert_eq!(there.sessions.load(session.id).await.unwrap().head.get(), 3);
        assert_eq!(blobs(&*there.sessions, session.id).await, [BlobInfo::of(&contents[0])], "{fault:?}");
        assert_eq!(there.sessions.load(other.id).await.unwrap(), other);
    }
    // Once it is repaired the copy goes on.
    assert!(copied(&here, &there).await.is_whole());
    assert_eq!(there.sessions.load(session.id).await.unwrap(), session);
}
each_store!(copy_names_damaged_blobs and files);

/// A target without blobs, or with smaller ones, gets nothing of a session with blobs, and everything else.
#[tokio::test]
async fn target_without_blobs_gets_no_part_of_a_session() {
    let (here, effects) = (Storage::from(MemoryStore::new()), Effects::default());
    let session = showing(&here.sessions, &effects, &[content(1, 10), content(2, 5000)]).await;
    let plain = showing(&here.sessions, &effects, &[]).await;
    for (most, expected) in [
        (0, "its events name 2 blobs, and the target keeps none; copy it to a store that keeps blobs"),
        (
            4999,
            "has 5000 bytes, and the target keeps at most 4999; copy it to a store that keeps larger blobs",
        ),
    ] {
        let there = Storage::from(MemoryStore::new());
        let mut target = Faulty::new(there.sessions.store().clone());
        target.blob_max_bytes = Some(most);
        let report = copied(&here, &with_sessions(&there, target)).await;
        let [refused] = &report.refused[..] else { panic!("{report:?}") };
        assert_eq!(refused.object, format!("session {}", session.id));
        assert!(refused.reason.contains(expected), "{refused}");
        assert_eq!(*there.sessions.load(session.id).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(blobs(&*there.sessions, session.id).await, []);
        assert_eq!(there.sessions.load(plain.id).await.unwrap(), plain);
    }
}
