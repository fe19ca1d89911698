//! Erasure of persons and tenants, on stores with and without encryption. The suites of PostgreSQL and of S3 run these tests, too.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::{Media, Message, NewEvent, Part};
use agent_core::model::{Failure, Patch, Title, Workspace};
use agent_core::search::Search;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{BlobQuery, Purge, PutBlob, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{Backend, ErrorKind, OwnerId, SessionId, SessionStoreExt, Storage, TenantId, WorkspaceId};
use agent_vault::{KeyPlace, KeyRing, StorePlace, Vault, WorkspaceSecrets};
use agent_workspace::erasure::{Eraser, LeftoverKind, Look, Receipt, Subject, verify_erased};
use agent_workspace::secrets::Secret;

use crate::support::{SEEN, STORES, Site};

/// A word of the person, and the person's name.
pub(crate) const WORD: &str = "treasure-4711";
pub(crate) const ALICE: &str = "alice-0815@example.com";

pub(crate) fn acme() -> TenantId {
    "acme".parse().unwrap()
}

pub(crate) fn ring() -> KeyRing {
    KeyRing::from_bytes([7; 32])
}

pub(crate) async fn opened(raw: Arc<dyn Backend>, is_sealed: bool) -> Arc<dyn Backend> {
    if is_sealed { Arc::new(Vault::open(raw, ring()).await.unwrap()) } else { raw }
}

pub(crate) fn owner(name: &str) -> OwnerId {
    name.parse().unwrap()
}

pub(crate) fn eraser(backend: &Arc<dyn Backend>) -> Eraser {
    Eraser::new(backend.clone(), acme(), Subject::Owner(owner(ALICE))).with_place("the store of the test")
}

/// What the person and another one have.
pub(crate) struct Scene {
    pub(crate) alice: Storage,
    pub(crate) bob: Storage,
    /// Session of the person with a blob, one that was forked from it, and one in a workspace of the person.
    pub(crate) first: Arc<SessionRecord>,
    pub(crate) fork: SessionId,
    pub(crate) third: SessionId,
    pub(crate) workspace: WorkspaceId,
    /// Session of the other one.
    pub(crate) others: SessionId,
}

impl Scene {
    pub(crate) async fn new(backend: &dyn Backend) -> Self {
        let storage = backend.tenant(&acme());
        let (alice, bob) = (storage.for_owner(&owner(ALICE)), storage.for_owner(&owner("bob")));
        let effects = alice.effects().clone();
        let workspace =
            Workspace::new(effects.new_workspace_id(), WORD, effects.new_session_id(), effects.now());
        let workspace = alice.workspaces.put(workspace, Precondition::MustNotExist).await.unwrap().id;
        let config = format!("prompt = \"{WORD}\"");
        alice.workspaces.save_config(workspace, Some(config), Precondition::MustNotExist).await.unwrap();
        let first = said(&alice, WorkspaceId::DEFAULT, WORD).await;
        let fork = alice.sessions.fork(first.id, None).await.unwrap();
        alice.sessions.append(fork.id, fork.head, vec![NewEvent::user_message(WORD)]).await.unwrap();
        let third = said(&alice, workspace, WORD).await.id;
        // A run with a heartbeat, which some stores keep apart.
        let run = effects.new_run_id();
        let lease = LeaseRequest::new("laptop", run);
        let epoch = alice.sessions.trigger(third, Trigger::BeginRun(lease)).await.unwrap().session.epoch;
        alice.sessions.leases().heartbeat(third, epoch).await.unwrap();
        let failed = RunEnd::Failed(Failure::new(Reason::RunError, WORD));
        let end = Commit::seal(&effects, third, alice.sessions.load(third).await.unwrap().head);
        alice
            .sessions
            .commit(end.with_fence(run, epoch).with_trigger(Trigger::EndRun(failed)))
            .await
            .unwrap();
        let others = said(&bob, WorkspaceId::DEFAULT, "breakfast").await.id;
        Self { alice, bob, first, fork: fork.id, third, workspace, others }
    }

    pub(crate) fn ids(&self) -> BTreeSet<SessionId> {
        [self.first.id, self.fork, self.third].into()
    }
}

/// A session with a message, a blob, a title and a label.
async fn said(storage: &Storage, workspace: WorkspaceId, word: &str) -> Arc<SessionRecord> {
    let patch = Patch::new().with_title(Title::by_user(word)).with_label("topic", word);
    let new = NewSession::new(storage.effects().new_session_id(), workspace).with_patch(&patch);
    let session = storage.sessions.create(new).await.unwrap();
    let picture = PutBlob::of_bytes(session.id, word.repeat(20_000));
    let media = Media::blob("image/png", picture.blob.name, picture.blob.bytes);
    storage.sessions.blobs().put(picture).await.unwrap();
    let message = NewEvent::from(Message::new(word).with_part(Part::Image(media)));
    let answer = NewEvent::agent_message(format!("You said {word}"));
    storage.sessions.append(session.id, session.head, vec![message, answer]).await.unwrap().session
}

/// A fork that another owner has of a session.
async fn fork_of_bob(storage: &Storage, of: &SessionRecord) -> Arc<SessionRecord> {
    let mut new = NewSession::fork(storage.effects().new_session_id(), of);
    new.created.owner = Some(owner("bob"));
    storage.sessions.create(new).await.unwrap()
}

/// The texts of the rows of keys that are stored for a tenant.
async fn key_texts(raw: &dyn Backend) -> Vec<(TenantId, String, String)> {
    let mut found = Vec::new();
    for tenant in raw.tenants(None).await.unwrap().items {
        if tenant.as_str().starts_with("vault_keys-") {
            let workspaces = raw.tenant(&tenant).workspaces;
            for row in workspaces.list(WorkspaceQuery::new().with_limit(1000)).await.unwrap().items {
                let text = workspaces.load_config(row.id).await.unwrap().unwrap();
                found.push((tenant.clone(), row.name, text));
            }
        }
    }
    found
}

fn kinds(left: &[agent_workspace::erasure::Leftover]) -> BTreeSet<LeftoverKind> {
    left.iter().map(|it| it.kind).collect()
}

#[tokio::test]
async fn an_erased_persons_words_name_and_keys_are_in_no_file() {
    for (store, is_sealed) in STORES.into_iter().flat_map(|store| [(store, false), (store, true)]) {
        let site = Site::new(store).await;
        let backend = opened(site.backends[0].clone(), is_sealed).await;
        let scene = Scene::new(&*backend).await;
        // One that retention has purged before, with the owner's name in its tombstone.
        let purged = said(&scene.alice, scene.workspace, WORD).await;
        let delete = Trigger::Delete(Reason::UserDeleted);
        let deleted = scene.alice.sessions.trigger(purged.id, delete).await.unwrap().session;
        scene.alice.sessions.purge(Purge::new(deleted.id, deleted.head)).await.unwrap();
        let before = key_texts(&*site.backends[0]).await;
        let receipt = eraser(&backend).run().await.unwrap();
        let maintenance = site.backends[0].tenant(&acme()).sessions;
        assert_eq!(
            maintenance.maintenance().pending().await.unwrap(),
            [],
            "{store} {is_sealed}: nothing is put off"
        );
        eraser(&backend).settle().await.unwrap();

        assert_eq!(
            receipt.sessions.iter().copied().collect::<BTreeSet<_>>(),
            scene.ids().into_iter().chain([purged.id]).collect(),
            "{store} {is_sealed}"
        );
        assert_eq!(
            (&receipt.workspaces[..], receipt.kept.len(), receipt.named.len()),
            (&[scene.workspace][..], 0, 0)
        );
        assert_eq!(receipt.keys.len(), if is_sealed { 3 } else { 0 }, "{store}");
        for bytes in [WORD, ALICE] {
            assert_eq!(
                site.places_with(bytes.as_bytes()).await,
                Vec::<PathBuf>::new(),
                "{store} {is_sealed} {bytes}"
            );
        }
        for (_, row, text) in before {
            let mut erased = scene.ids().into_iter().chain([purged.id]);
            let is_erased = erased.any(|id| row.contains(&id.to_string()));
            assert_eq!(
                site.places_with(text.as_bytes()).await.is_empty(),
                is_erased || !SEEN.contains(&store),
                "{store}: {row}"
            );
        }
        // What is left is sound, and a rebuild brings nothing back.
        let raw = site.backends[0].tenant(&acme()).sessions;
        assert_eq!(raw.maintenance().check().await.unwrap(), [], "{store} {is_sealed}");
        raw.maintenance().rebuild().await.unwrap();
        for id in scene.ids().into_iter().chain([purged.id]) {
            let tombstone = backend.tenant(&acme()).sessions.load(id).await.unwrap();
            assert_eq!(tombstone.status.state, SessionState::Deleted);
            assert_eq!(tombstone.owner.as_ref().unwrap().as_str(), receipt.pseudonym);
            assert!(scene.bob.sessions.load(id).await.unwrap_err().is_absent());
        }
        let look = Look::new().with_words([WORD, ALICE]).with_files([site.folder.path()]);
        let verified = verify_erased(&*backend, &receipt, look).await.unwrap();
        assert_eq!(verified.left, [], "{store} {is_sealed}");
        let has_files = fs::read_dir(site.folder.path()).unwrap().count() > 0;
        assert_eq!(verified.files > 0, has_files, "{store}");
        assert!(verified.unseen.iter().any(|it| it.contains("backups")));
        // What the other one has is as it was, and nothing of the erasure stays.
        assert!(scene.bob.sessions.read(scene.others, ReadEvents::first(9)).await.unwrap().events.len() > 2);
        assert_eq!(backend.tenants(None).await.unwrap().items, [acme()]);
        assert_eq!(*eraser(&backend).run().await.unwrap_err().kind(), ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn what_anothers_fork_reads_is_kept_and_named_until_the_fork_is_gone() {
    for (store, is_sealed) in STORES.into_iter().flat_map(|store| [(store, false), (store, true)]) {
        let site = Site::new(store).await;
        let backend = opened(site.backends[0].clone(), is_sealed).await;
        let scene = Scene::new(&*backend).await;
        let storage = backend.tenant(&acme());
        let fork = fork_of_bob(&storage, &scene.first).await;

        let receipt = eraser(&backend).run().await.unwrap();
        eraser(&backend).settle().await.unwrap();
        let [kept] = &receipt.kept[..] else { panic!("{store}: {:?}", receipt.kept) };
        assert_eq!((kept.session, kept.fork), (scene.first.id, fork.id), "{store} {is_sealed}");
        assert!(!receipt.sessions.contains(&scene.first.id));
        assert_eq!(receipt.keys.len(), if is_sealed { 2 } else { 0 });
        assert_eq!(receipt.named, [], "{store}: only what is erased is meant");
        // Another process, which has no key in memory.
        let other = opened(site.backends[1].clone(), is_sealed).await.tenant(&acme());
        let read = other.sessions.history(fork.id, ReadEvents::first(20)).await.unwrap();
        assert!(read.events.iter().any(|event| event.to_json().contains(WORD)), "{store} {is_sealed}");
        assert_eq!(verify_erased(&*backend, &receipt, Look::new()).await.unwrap().left, []);

        let other = Eraser::new(backend.clone(), acme(), Subject::Owner(owner("bob")));
        other.run().await.unwrap();
        other.settle().await.unwrap();
        let receipt = eraser(&backend).run().await.unwrap();
        eraser(&backend).settle().await.unwrap();
        assert_eq!(receipt.sessions.len(), 3, "{store} {is_sealed}");
        assert_eq!((receipt.kept.len(), receipt.keys.len()), (0, if is_sealed { 3 } else { 0 }));
        assert_eq!(site.places_with(WORD.as_bytes()).await, Vec::<PathBuf>::new());
        assert_eq!(backend.tenants(None).await.unwrap().items, [acme()], "the plan is over");
    }
}

/// Events, blobs and words that the fork reads stay, and nothing behind them.
#[tokio::test]
async fn exactly_what_a_fork_reads_is_kept() {
    const KEPT: &str = "harbor-1200";
    for (store, is_sealed) in STORES.into_iter().flat_map(|store| [(store, false), (store, true)]) {
        let site = Site::new(store).await;
        let backend = opened(site.backends[0].clone(), is_sealed).await;
        let storage = backend.tenant(&acme());
        let alice = storage.for_owner(&owner(ALICE));
        let read = said(&alice, WorkspaceId::DEFAULT, KEPT).await;
        let (fork, base) = (fork_of_bob(&storage, &read).await, read.head.get());
        // What comes behind: messages, a blob, a title and a document.
        let picture = PutBlob::of_bytes(read.id, WORD.repeat(20_000));
        let media = Media::blob("image/png", picture.blob.name, picture.blob.bytes);
        alice.sessions.blobs().put(picture).await.unwrap();
        let document = agent_core::event::DocumentWritten::after(None, "plan", Some(WORD.to_owned()));
        let rest = vec![
            NewEvent::from(Message::new(WORD).with_part(Part::Image(media))),
            NewEvent::updated(Patch::new().with_title(Title::by_user(WORD)).with_label("topic", WORD)),
            NewEvent::document_written(document),
        ];
        alice.sessions.append(read.id, read.head, rest).await.unwrap();
        let raw = site.backends[0].tenant(&acme()).sessions;
        let sealed = raw.read(read.id, ReadEvents::first(100)).await.unwrap().events;
        let blobs = raw.blobs().list(BlobQuery::new(read.id)).await.unwrap().items.len();
        assert_eq!((sealed.len() as u64 > base, blobs), (true, 2), "{store}");

        let receipt = eraser(&backend).run().await.unwrap();
        let [kept] = &receipt.kept[..] else { panic!("{store}: {receipt:?}") };
        assert_eq!((kept.session, kept.fork), (read.id, fork.id), "{store} {is_sealed}");
        let left = raw.read(read.id, ReadEvents::first(100)).await.unwrap().events;
        assert_eq!(
            left[..],
            sealed[..base as usize],
            "{store} {is_sealed}: all that the fork reads, and no more"
        );
        assert_eq!(raw.blobs().list(BlobQuery::new(read.id)).await.unwrap().items.len(), 1, "{store}");
        let history = storage.sessions.history(fork.id, ReadEvents::first(100)).await.unwrap();
        assert!(history.events.iter().any(|event| event.to_json().contains(KEPT)), "{store} {is_sealed}");
        // Of what nobody reads not a byte is left, neither in the open nor as it was sealed.
        assert_eq!(
            site.places_with(WORD.as_bytes()).await,
            Vec::<std::path::PathBuf>::new(),
            "{store} {is_sealed}"
        );
        for event in sealed[base as usize..].iter().filter(|event| event.payload.get().len() > 100) {
            let bytes = &event.payload.get().as_bytes()[..100];
            assert_eq!(
                site.places_with(bytes).await,
                Vec::<std::path::PathBuf>::new(),
                "{store} {is_sealed}"
            );
        }
        // When the fork is gone, the same erasure removes the rest.
        storage.sessions.trigger(fork.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
        let receipt = eraser(&backend).run().await.unwrap();
        assert_eq!((&receipt.sessions[..], receipt.kept.len()), (&[read.id][..], 0), "{store} {is_sealed}");
        assert!(raw.read(read.id, ReadEvents::first(1)).await.unwrap().events.is_empty(), "{store}");
    }
}

#[tokio::test]
async fn a_late_retry_of_a_commit_after_the_erasure_is_refused() {
    for (store, is_sealed) in STORES.into_iter().flat_map(|store| [(store, false), (store, true)]) {
        let site = Site::new(store).await;
        let backend = opened(site.backends[0].clone(), is_sealed).await;
        let late = opened(site.backends[1].clone(), is_sealed).await.tenant(&acme());
        let scene = Scene::new(&*backend).await;
        // The other process has the key in memory.
        late.sessions.load(scene.first.id).await.unwrap();
        let (first, effects) = (&scene.first, Effects::default());
        let said = Commit::seal(&effects, first.id, first.head).with_event(NewEvent::user_message(WORD));
        let mut again = NewSession::new(first.id, WorkspaceId::DEFAULT);
        again.created.owner = Some(owner(ALICE));
        let created = Commit::create(&effects, again);
        let put = PutBlob::of_bytes(first.id, WORD);
        eraser(&backend).run().await.unwrap();
        for commit in [said, created] {
            let refused = late.sessions.commit(commit).await.unwrap_err();
            assert!(
                matches!(
                    refused.kind(),
                    ErrorKind::Deleted | ErrorKind::Conflict { .. } | ErrorKind::InvalidTransition { .. }
                ),
                "{store} {is_sealed}: {refused:?}"
            );
        }
        assert!(late.sessions.blobs().put(put).await.is_err(), "{store} {is_sealed}");
        assert_eq!(site.places_with(WORD.as_bytes()).await, Vec::<PathBuf>::new(), "{store} {is_sealed}");
    }
}

#[tokio::test]
async fn an_erased_tenant_leaves_no_word_and_no_key() {
    for (store, is_sealed) in STORES.into_iter().flat_map(|store| [(store, false), (store, true)]) {
        let site = Site::new(store).await;
        let backend = opened(site.backends[0].clone(), is_sealed).await;
        let scene = Scene::new(&*backend).await;
        let before = key_texts(&*site.backends[0]).await;
        let eraser = Eraser::new(backend.clone(), acme(), Subject::Tenant);
        assert_eq!(eraser.preview().await.unwrap().sessions, 4);
        let receipt = eraser.run().await.unwrap();
        eraser.settle().await.unwrap();
        assert!(receipt.sessions.contains(&scene.others) && receipt.sessions.len() == 4);
        // Those of four sessions, and of the tenant.
        assert_eq!(receipt.keys.len(), if is_sealed { 5 } else { 0 }, "{store}");
        for (_, row, text) in before.iter().filter(|(_, row, _)| row != "tenant/default") {
            assert!(site.places_with(text.as_bytes()).await.is_empty(), "{store}: {row}");
        }
        assert!(
            site.places_with(WORD.as_bytes()).await.is_empty()
                && site.places_with(ALICE.as_bytes()).await.is_empty()
        );
        let look = Look::new().with_words([WORD, ALICE]).with_files([site.folder.path()]);
        assert_eq!(verify_erased(&*backend, &receipt, look).await.unwrap().left, [], "{store} {is_sealed}");
        assert_eq!(backend.tenants(None).await.unwrap().items, []);
        assert_eq!(*eraser.run().await.unwrap_err().kind(), ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn an_erased_creator_takes_the_helpers_along() {
    for (store, is_sealed) in STORES.into_iter().flat_map(|store| [(store, false), (store, true)]) {
        let site = Site::new(store).await;
        let backend = opened(site.backends[0].clone(), is_sealed).await;
        let storage = backend.tenant(&acme());
        let carol = "user:carol-0815".parse().unwrap();
        let other = said(&storage, WorkspaceId::DEFAULT, "breakfast").await;
        let new =
            NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT).with_creator(carol);
        let parent = storage.sessions.create(new).await.unwrap();
        let patch = Patch::new().with_title(Title::by_user(WORD));
        let child = storage.sessions.create_child(parent.id, patch).await.unwrap();
        let subject = Subject::Creator("user:carol-0815".parse().unwrap());
        let eraser = Eraser::new(backend.clone(), acme(), subject);
        let receipt = eraser.run().await.unwrap();
        eraser.settle().await.unwrap();
        let erased = receipt.sessions.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(erased, [parent.id, child.id].into(), "{store} {is_sealed}");
        for bytes in ["carol-0815", WORD] {
            let left = site.places_with(bytes.as_bytes()).await;
            assert_eq!(left, Vec::<PathBuf>::new(), "{store} {is_sealed} {bytes}");
        }
        assert_ne!(storage.sessions.load(other.id).await.unwrap().status.state, SessionState::Deleted);
    }
}

#[tokio::test]
async fn nothing_is_removed_while_a_session_is_run() {
    let site = Site::new(STORES[0]).await;
    let backend = opened(site.backends[0].clone(), true).await;
    let scene = Scene::new(&*backend).await;
    let head = scene.alice.sessions.load(scene.third).await.unwrap().head;
    scene.alice.sessions.append(scene.third, head, vec![NewEvent::user_message("again")]).await.unwrap();
    let lease =
        LeaseRequest::new("laptop", scene.alice.effects().new_run_id()).with_ttl(Duration::from_secs(3600));
    scene.alice.sessions.trigger(scene.third, Trigger::BeginRun(lease)).await.unwrap();
    // A heartbeat comes while the lease is watched.
    let store = scene.alice.sessions.clone();
    let (third, epoch) = (scene.third, store.load(scene.third).await.unwrap().epoch);
    let beats = tokio::spawn(async move {
        loop {
            store.leases().heartbeat(third, epoch).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let refused =
        tokio::time::timeout(Duration::from_secs(120), eraser(&backend).run()).await.unwrap().unwrap_err();
    beats.abort();
    assert!(matches!(refused.kind(), ErrorKind::Busy { .. }), "{refused:?}");
    for id in scene.ids() {
        assert_ne!(scene.alice.sessions.load(id).await.unwrap().status.state, SessionState::Deleted);
    }
}

#[tokio::test]
async fn a_search_index_of_others_forgets_what_was_erased() {
    for (store, is_sealed) in STORES.into_iter().flat_map(|store| [(store, false), (store, true)]) {
        let site = Site::new(store).await;
        let backend = opened(site.backends[0].clone(), is_sealed).await;
        let scene = Scene::new(&*backend).await;
        let storage = backend.tenant(&acme());
        assert!(storage.sessions.update_search_index().await.unwrap().is_complete);
        let archived = SessionQuery::new().with_states([SessionState::Archived]);
        let listed = storage.sessions.list(archived).await.unwrap().items;
        let segments: Vec<_> = listed
            .iter()
            .filter(|it| it.attributes.labels["hidden"] == "search-segment")
            .map(|it| it.id)
            .collect();
        assert_eq!(segments.len(), 1, "{store}");

        let receipt = eraser(&backend).run().await.unwrap();
        let raw = site.backends[0].tenant(&acme());
        for id in segments {
            assert_eq!(
                raw.sessions.load(id).await.unwrap().status.state,
                SessionState::Deleted,
                "{store} {is_sealed}"
            );
            assert!(raw.sessions.blobs().list(BlobQuery::new(id)).await.unwrap().items.is_empty());
            let keys = key_texts(&*site.backends[0]).await;
            assert!(
                !keys.iter().any(|(_, row, _)| row.contains(&id.to_string())),
                "{store}: its key is dropped"
            );
        }
        assert_eq!(storage.sessions.search(&Search::new(WORD)).await.unwrap().hits.len(), 0);
        assert!(!storage.sessions.search(&Search::new("breakfast")).await.unwrap().hits.is_empty());
        assert!(!receipt.sessions.contains(&scene.others));
    }
}

#[tokio::test]
async fn a_changed_receipt_is_refused() {
    for is_sealed in [false, true] {
        let site = Site::new(STORES[0]).await;
        let backend = opened(site.backends[0].clone(), is_sealed).await;
        Scene::new(&*backend).await;
        let text = eraser(&backend).run().await.unwrap().to_text().unwrap();
        let check = async |text: &str| {
            verify_erased(&*backend, &Receipt::parse(text)?, Look::new()).await.map(|found| found.left)
        };
        assert_eq!(check(&text).await.unwrap(), []);
        let other = Effects::default().new_session_id().to_string();
        let first = Receipt::parse(&text).unwrap().sessions[0].to_string();
        let changed = [
            text.replace("\"acme\"", "\"umbra\""),
            text.replace(&first, &other),
            text.replace("the store of the test", "another store"),
            text.replace(
                "\"kept\":[]",
                &format!("\"kept\":[{{\"session\":\"{other}\",\"fork\":\"{other}\"}}]"),
            ),
        ];
        for changed in changed {
            assert_ne!(changed, text);
            let error = check(&changed).await.unwrap_err();
            assert!(
                *error.kind() == ErrorKind::Corrupt && error.to_string().contains("was changed"),
                "{error}"
            );
        }
        let error = check(&text.replace("\"format\":1", "\"format\":2")).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unsupported, "{error}");
        let added = text.replace("\"subject\"", "\"more\":1,\"subject\"");
        assert_eq!(*check(&added).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        // A receipt without a tag is none of an encrypted store, and a root key that is not at hand is named.
        let receipt = Receipt::parse(&text).unwrap();
        let other_root =
            Vault::open(Site::new(STORES[0]).await.backends[0].clone(), KeyRing::from_bytes([9; 32]));
        let error = verify_erased(&other_root.await.unwrap(), &receipt, Look::new()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Denied, "{error}");
        assert!(!is_sealed || error.to_string().contains(ring().current_id().as_str()), "{error}");
    }
}

#[tokio::test]
async fn a_verification_finds_each_kind_of_left_over() {
    for (store, is_sealed) in SEEN.into_iter().flat_map(|store| [(store, false), (store, true)]) {
        let site = Site::new(store).await;
        let backend = opened(site.backends[0].clone(), is_sealed).await;
        let scene = Scene::new(&*backend).await;
        let copy = site.copied().await;
        let rows = key_texts(&*site.backends[0]).await;
        let receipt = eraser(&backend).run().await.unwrap();
        let path = site.folder.path();
        let look = || Look::new().with_words([WORD, ALICE]).with_files([path]);
        let left = async |look| kinds(&verify_erased(&*backend, &receipt, look).await.unwrap().left);
        assert_eq!(left(look()).await, [].into(), "{store} {is_sealed}");

        // The store as it was before, as a backup would bring it back.
        let before = opened(copy.backends[0].clone(), is_sealed).await;
        let found = verify_erased(&*before, &receipt, Look::new().with_words([WORD])).await.unwrap();
        let mut expected = BTreeSet::from([LeftoverKind::Session, LeftoverKind::Event, LeftoverKind::Blob]);
        expected.extend([LeftoverKind::Word, LeftoverKind::Workspace]);
        if is_sealed {
            expected.extend([LeftoverKind::KeyRow, LeftoverKind::Sealed]);
        }
        assert_eq!(kinds(&found.left), expected, "{store}");
        assert!(found.left.iter().all(|it| !it.to_string().contains(WORD)), "{:?}", found.left);

        // One of each kind, planted alone.
        planted(&site, WORD, LeftoverKind::Word, || left(look())).await;
        let place = |row: &str| {
            let tenant = rows.iter().find(|(_, name, _)| name.starts_with("tenant/acme")).unwrap().0.clone();
            (StorePlace::new(site.backends[0].tenant(&tenant).workspaces), row.to_owned())
        };
        if is_sealed {
            let (_, _, text) =
                rows.iter().find(|(_, row, _)| row.ends_with(&scene.first.id.to_string())).unwrap();
            let key = receipt.keys[0].key.as_ref().unwrap();
            planted(&site, text, LeftoverKind::KeyText, || left(look())).await;
            let sealed = format!("\"sealed\":\"1.{key}.AAAA\"");
            planted(&site, &sealed, LeftoverKind::Sealed, || left(look())).await;
            let (place, row) = place(&format!("session/acme/{}", Effects::default().new_session_id()));
            place.put_if_absent(&row, text).await.unwrap();
            assert_eq!(left(Look::new()).await, [LeftoverKind::KeyRow].into(), "{store}");
            place.drop_key(&row).await.unwrap();
            assert_eq!(left(Look::new()).await, [].into(), "{store}");
        }
        // In what another one has, which no file shows where it is sealed.
        let effects = scene.bob.effects().clone();
        let new = Workspace::new(effects.new_workspace_id(), ALICE, effects.new_session_id(), effects.now());
        let new = scene.bob.workspaces.put(new, Precondition::MustNotExist).await.unwrap();
        assert_eq!(left(Look::new().with_words([ALICE])).await, [LeftoverKind::Word].into(), "{store}");
        scene.bob.workspaces.delete(new.id).await.unwrap();
        assert_eq!(left(Look::new().with_words([ALICE])).await, [].into(), "{store}");
        let others = scene.bob.sessions.load(scene.others).await.unwrap();
        scene.bob.sessions.append(others.id, others.head, vec![NewEvent::user_message(WORD)]).await.unwrap();
        assert_eq!(left(Look::new().with_words([WORD])).await, [LeftoverKind::Word].into(), "{store}");
        if is_sealed {
            let (place, row) = place(&format!("blob/{}/0011", scene.first.id));
            place.put_if_absent(&row, "AAAA").await.unwrap();
            assert_eq!(left(Look::new()).await, [LeftoverKind::KeyRow].into(), "{store}");
        }
    }
}

/// Plants a text in a file of the store, if it has files, across two reads.
async fn planted<F: Future<Output = BTreeSet<LeftoverKind>>>(
    site: &Site,
    text: &str,
    kind: LeftoverKind,
    left: impl Fn() -> F,
) {
    if fs::read_dir(site.folder.path()).unwrap().count() == 0 {
        return;
    }
    let stray = site.folder.path().join("stray");
    let dots = vec![b'.'; (1 << 20) - text.len() / 2];
    fs::write(&stray, [dots, text.as_bytes().to_vec()].concat()).unwrap();
    assert_eq!(left().await, [kind].into(), "{text}");
    fs::remove_file(&stray).unwrap();
}

#[tokio::test]
async fn the_secrets_of_an_erased_workspace_are_dropped_and_no_others() {
    for store in STORES {
        let site = Site::new(store).await;
        let vault = Arc::new(Vault::open(site.backends[0].clone(), ring()).await.unwrap());
        let backend: Arc<dyn Backend> = vault.clone();
        let scene = Scene::new(&*backend).await;
        let secrets = WorkspaceSecrets::new(
            vault.keys(&acme()),
            &backend.tenant(&acme()),
            "user:host".parse().unwrap(),
        );
        let (name, value) = ("github".parse().unwrap(), Secret::new("ghp_0123456789").unwrap());
        for workspace in [scene.workspace, WorkspaceId::DEFAULT] {
            secrets.set(workspace, &name, &value, None).await.unwrap();
        }
        let receipt = eraser(&backend).run().await.unwrap();
        assert_eq!(secrets.names(scene.workspace).await.unwrap().len(), 0, "{store}");
        assert_eq!(secrets.names(WorkspaceId::DEFAULT).await.unwrap().len(), 1, "{store}");
        assert_eq!(verify_erased(&*backend, &receipt, Look::new()).await.unwrap().left, [], "{store}");
        // One that comes back is found.
        secrets.set(scene.workspace, &"gitlab".parse().unwrap(), &value, None).await.unwrap();
        let found = verify_erased(&*backend, &receipt, Look::new()).await.unwrap();
        assert_eq!(kinds(&found.left), [LeftoverKind::KeyRow].into(), "{store}");
    }
}
