//! Requests per operation: the table in the docs, counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::{Patch, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{
    BindingQuery, BlobInfo, BlobQuery, Purge, PutBlob, ReadBlob, ReadEvents, SessionQuery, SweepBlobs,
    WorkspaceQuery,
};
use agent_core::{
    Backend, BindingStore, BlobName, DeviceId, Seq, SessionStore, SessionStoreExt, TenantId, Timestamp,
    WorkspaceId, WorkspaceStore,
};
use agent_storage_s3::S3Store;
use s3_simulator::{Counts, Simulator};

use crate::backend::config;

struct Shop {
    simulator: Simulator,
    effects: Effects,
}

impl Shop {
    fn new() -> Self {
        let effects = Effects::seeded(1, Timestamp::from_micros(1_771_151_400_000_000));
        Self { simulator: Simulator::new(1), effects }
    }

    /// A handle that knows no head yet.
    async fn open(&self) -> S3Store {
        config(&self.simulator, "handle").with_effects(self.effects.clone()).open().await.unwrap()
    }

    async fn cost<T>(&self, work: impl Future<Output = agent_core::Result<T>>) -> (T, Counts) {
        let before = self.simulator.requests();
        let done = work.await.unwrap();
        (done, self.simulator.counts_since(before))
    }

    fn text_commit(&self, session: &SessionRecord, texts: usize) -> Commit {
        let events = (0..texts).map(|n| NewEvent::user_message(format!("message {n}")));
        Commit::seal(&self.effects, session.id, session.head).with_events(events)
    }

    /// Number of the folders into which the sessions are spread.
    fn folders(&self) -> usize {
        let keys = self.simulator.keys();
        let folders = keys.iter().filter_map(|key| key.split("/default/s/").nth(1)?.split('/').next());
        folders.collect::<BTreeSet<_>>().len()
    }

    async fn session(&self, store: &S3Store) -> Arc<SessionRecord> {
        let new = NewSession::new(self.effects.new_session_id(), WorkspaceId::DEFAULT);
        store.commit(Commit::create(&self.effects, new)).await.unwrap().session
    }
}

/// What was counted, by the table's names of operations: how many there were of what grows, and the requests.
#[derive(Default)]
struct Counted(BTreeMap<&'static str, Vec<(Amounts, Counts)>>);

/// How much of what an operation was asked for.
type Amounts = BTreeMap<&'static str, usize>;

impl Counted {
    fn note(&mut self, operation: &'static str, of: &[(&'static str, usize)], counts: Counts) {
        self.0.entry(operation).or_default().push((of.iter().copied().collect(), counts));
    }
}

/// One part of an entry, such as `2 to 3 GET` or `1 LIST for each 1,000 sessions`.
struct Term {
    least: usize,
    most: usize,
    kind: String,
    /// What it is for each of, and how many of that together.
    each: Option<(usize, String)>,
}

impl Term {
    fn parse(text: &str) -> Option<Self> {
        let (count, each) = match text.split_once(" for each ") {
            Some((count, each)) => (count, Some(each)),
            None => (text, None),
        };
        let words: Vec<_> = count.split(' ').collect();
        let (least, most, kind) = match *words.as_slice() {
            [count, kind] => (count.parse().ok()?, count.parse().ok()?, kind),
            [least, "to", most, kind] => (least.parse().ok()?, most.parse().ok()?, kind),
            _ => return None,
        };
        let each = each.map(|each| match each.strip_prefix("1,000 ") {
            Some(many) => (1000, many.to_owned()),
            None => (1, each.to_owned()),
        });
        Some(Self { least, most, kind: kind.to_owned(), each })
    }

    fn times(&self, of: &BTreeMap<&str, usize>, operation: &str) -> usize {
        let Some((together, what)) = &self.each else { return 1 };
        let counted = of.get(what.as_str());
        counted.unwrap_or_else(|| panic!("{operation}: nobody counted {what:?}")).div_ceil(*together).max(1)
    }
}

/// The table in FORMAT.md: each operation with its requests.
fn table() -> BTreeMap<&'static str, Vec<Term>> {
    let page = include_str!("../../../FORMAT.md");
    let rows = page.split("| Operation | Requests |").nth(1).unwrap().lines().skip(2);
    rows.take_while(|row| row.starts_with("| "))
        .map(|row| {
            let (operation, requests) = row[2..].trim_end_matches(" |").split_once(" | ").unwrap();
            let terms = requests.split(" + ").map(Term::parse).collect::<Option<Vec<_>>>();
            (operation, terms.unwrap_or_else(|| panic!("nobody can count {requests:?}")))
        })
        .collect()
}

/// Checks that what was counted is what the table says, no operation more or less.
fn compare(counted: &Counted) {
    let table = table();
    let (ours, its): (Vec<_>, Vec<_>) = (counted.0.keys().collect(), table.keys().collect());
    assert_eq!(ours, its, "the operations that are counted, and those of the table");
    for (operation, terms) in &table {
        for kind in ["GET", "HEAD", "PUT", "LIST", "DELETE"] {
            let of = |of: &BTreeMap<&str, usize>, count: fn(&Term) -> usize| -> usize {
                let terms = terms.iter().filter(|term| term.kind == kind);
                terms.map(|term| count(term) * term.times(of, operation)).sum()
            };
            // Each measure lies in the range, and each end of it was met.
            let measures = &counted.0[operation];
            let messages = measures.iter().map(|(n, counts)| {
                let count = match kind {
                    "GET" => counts.get,
                    "HEAD" => counts.head,
                    "PUT" => counts.put,
                    "LIST" => counts.list,
                    _ => counts.delete,
                };
                (of(n, |term| term.least), count, of(n, |term| term.most))
            });
            let messages: BTreeSet<_> = messages.collect();
            assert!(
                messages.iter().all(|(least, count, most)| (least..=most).contains(&count))
                    && messages.iter().any(|(least, count, _)| least == count)
                    && messages.iter().any(|(_, count, most)| most == count),
                "{operation}: the table's least, what was counted, and the table's most {kind}: {messages:?}"
            );
        }
    }
}

/// Each operation costs as many requests as the table in FORMAT.md says.
#[tokio::test(start_paused = true)]
async fn requests_per_operation_match_the_table() {
    let mut counted = Counted::default();
    sessions(&mut counted).await;
    events(&mut counted).await;
    families(&mut counted).await;
    blobs(&mut counted).await;
    indexed_fields(&mut counted).await;
    workspaces_and_devices(&mut counted).await;
    deletion(&mut counted).await;
    maintenance(&mut counted).await;
    compare(&counted);
}

/// Opening, commits, loads and signs of life.
async fn sessions(counted: &mut Counted) {
    let shop = Shop::new();
    let (store, counts) = shop.cost(config(&shop.simulator, "handle").open()).await;
    counted.note("open the first store of a prefix", &[], counts);
    let other = Simulator::new(1);
    let indexed = config(&other, "handle").with_option("index", "creator").unwrap();
    let before = other.requests();
    indexed.open().await.unwrap();
    counted.note("open the first store of a prefix, with an index", &[], other.counts_since(before));
    shop.simulator.remove_object("agents/probe/passed");
    let (_, counts) = shop.cost(config(&shop.simulator, "handle").open()).await;
    counted.note("open a store whose server was not probed in the last week", &[], counts);
    let (_, counts) = shop.cost(config(&shop.simulator, "handle").open()).await;
    counted.note("open the store", &[], counts);
    let new = NewSession::new(shop.effects.new_session_id(), WorkspaceId::DEFAULT);
    let (made, counts) = shop.cost(store.commit(Commit::create(&shop.effects, new))).await;
    counted.note("create a session", &[], counts);
    let id = made.session.id;
    let (done, counts) = shop.cost(store.commit(shop.text_commit(&made.session, 1))).await;
    counted.note("commit after which the session is due or runs, and was at rest before", &[], counts);
    let (done, counts) = shop.cost(store.commit(shop.text_commit(&done.session, 1))).await;
    counted.note("commit, head known", &[], counts);
    let cold = shop.open().await;
    let (done, counts) = shop.cost(cold.commit(shop.text_commit(&done.session, 1))).await;
    counted.note("commit, cold", &[], counts);
    // The first handle does not know of that yet.
    let (done, counts) = shop.cost(store.commit(shop.text_commit(&done.session, 1))).await;
    counted.note("commit, race lost once", &[], counts);
    let mut ahead = done.session;
    for _ in 0..2 {
        ahead = store.commit(shop.text_commit(&ahead, 1)).await.unwrap().session;
    }
    // The other handle is two commits behind by now, and one more.
    let (done, counts) = shop.cost(cold.commit(shop.text_commit(&ahead, 1))).await;
    counted.note("commit, race lost twice", &[], counts);
    let late = shop.text_commit(&made.session, 1).with_precondition(Precondition::Matches(made.session.head));
    let before = shop.simulator.requests();
    cold.commit(late).await.unwrap_err();
    counted.note("refuse a commit, head known", &[], shop.simulator.counts_since(before));
    let (_, counts) = shop.cost(SessionStore::load(&cold, id)).await;
    counted.note("load, head known", &[], counts);
    let other = shop.open().await;
    let (_, counts) = shop.cost(SessionStore::load(&other, id)).await;
    counted.note("load, cold", &[], counts);
    let lease = LeaseRequest::new("holder", shop.effects.new_run_id());
    let begin = shop.text_commit(&done.session, 1).with_trigger(Trigger::BeginRun(lease));
    let running = other.commit(begin).await.unwrap().session;
    let (_, counts) = shop.cost(other.leases().heartbeat(id, running.epoch)).await;
    counted.note("first heartbeat that a store sends for a lease, head known", &[], counts);
    for _ in 0..3 {
        let (_, counts) = shop.cost(other.leases().heartbeat(id, running.epoch)).await;
        counted.note("heartbeat, head known", &[], counts);
    }
    let (_, counts) = shop.cost(other.leases().status(id, running.epoch)).await;
    counted.note("lease status, head known", &[], counts);
    let held = running.lease.as_ref().unwrap();
    let end = shop.text_commit(&running, 0).with_fence(held.run, held.epoch);
    let end = end.with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    let (ended, counts) = shop.cost(other.commit(end)).await;
    counted.note("commit, head known", &[], counts);
    let mut later = shop.text_commit(&ended.session, 1);
    later.at = later.at.plus_micros(15 * 60_000_000);
    let (later, counts) = shop.cost(other.commit(later)).await;
    counted.note("commit of an input, the first after 15 minutes at rest", &[], counts);
    let fail = shop.text_commit(&later.session, 0).with_trigger(Trigger::Suspend(Reason::UserPaused));
    let (suspended, counts) = shop.cost(other.commit(fail)).await;
    counted.note("suspend or terminate a session", &[], counts);
    let archive = shop.text_commit(&suspended.session, 0).with_trigger(Trigger::Archive);
    let (_, counts) = shop.cost(other.commit(archive)).await;
    counted.note("archive, restore or delete a session", &[], counts);
    let mut ahead = shop.session(&store).await;
    while ahead.head.get() < 19 {
        ahead = store.commit(shop.text_commit(&ahead, 1)).await.unwrap().session;
    }
    SessionStore::load(&other, ahead.id).await.unwrap();
    let (_, counts) = shop.cost(other.commit(shop.text_commit(&ahead, 1))).await;
    counted.note("commit that closes a small window which others have begun, head known", &[], counts);
}

/// Reads, where a window has just begun and where it is nearly full.
async fn events(counted: &mut Counted) {
    let shop = Shop::new();
    let store = shop.open().await;
    let mut session = shop.session(&store).await;
    while session.head.get() < 500 {
        session = store.commit(shop.text_commit(&session, 1)).await.unwrap().session;
        let (_, counts) = shop.cost(store.read(session.id, ReadEvents::last(50))).await;
        if session.head.get() > 130 {
            counted.note("last 50, head known", &[], counts);
        }
    }
    for after in (1..250).map(Seq::new) {
        let (page, counts) =
            shop.cost(store.read(session.id, ReadEvents::first(100).with_after(after))).await;
        assert_eq!(page.events.len(), 100);
        counted.note("100 events from anywhere, head known", &[], counts);
    }
    for _ in 0..64 {
        let cold = shop.open().await;
        let before = shop.simulator.requests();
        SessionStore::load(&cold, session.id).await.unwrap();
        cold.read(session.id, ReadEvents::last(50)).await.unwrap();
        let counts = shop.simulator.counts_since(before);
        counted.note("load and last 50, cold, at any length", &[], counts);
        session = store.commit(shop.text_commit(&session, 1)).await.unwrap().session;
    }
    let long = Commit::seal(&shop.effects, session.id, session.head)
        .with_event(NewEvent::user_message("long ".repeat(2000)));
    let long = store.commit(long).await.unwrap();
    let after = store.commit(shop.text_commit(&long.session, 1)).await.unwrap();
    let read = ReadEvents::last(1).with_before(after.last);
    let (page, counts) = shop.cost(store.read(session.id, read)).await;
    assert_eq!(page.events[0].seq, long.last);
    counted.note("the newest event of more than 8 KiB of an earlier commit, head known", &[], counts);
}

/// Forks, lists, deletions and purges.
async fn families(counted: &mut Counted) {
    let shop = Shop::new();
    let store = shop.open().await;
    let mut parent = shop.session(&store).await;
    for _ in 0..4 {
        parent = store.commit(shop.text_commit(&parent, 1)).await.unwrap().session;
    }
    for _ in 0..3 {
        let (_, counts) = shop.cost(store.sessions(&shop.effects).fork(parent.id, None)).await;
        counted.note("fork, its parent known", &[], counts);
    }
    for _ in 0..8 {
        shop.session(&store).await;
    }
    let (page, counts) = shop.cost(SessionStore::list(&store, SessionQuery::new())).await;
    assert_eq!(page.items.len(), 12);
    counted.note("list a page of sessions, their heads known", &[("session", 12)], counts);
    let cold = shop.open().await;
    let (page, counts) = shop.cost(SessionStore::list(&cold, SessionQuery::new().with_limit(7))).await;
    assert_eq!(page.items.len(), 7);
    counted.note("list a page of sessions, cold", &[("session", 7)], counts);
    let due = SessionQuery::new().with_due(shop.effects.now());
    let (page, counts) = shop.cost(SessionStore::list(&store, due)).await;
    assert_eq!(page.items.len(), 1);
    counted.note("list the sessions that are due, their heads known", &[("session", 1)], counts);
    let running = SessionQuery::new().with_states([SessionState::Running]);
    let (page, counts) = shop.cost(SessionStore::list(&store, running)).await;
    assert_eq!(page.items.len(), 0);
    counted.note(
        "list the sessions that run, their heads known",
        &[("session that is due at once", 1)],
        counts,
    );
    let (busy, counts) = shop.cost(store.busy_tenants(shop.effects.now(), None)).await;
    assert_eq!(busy.items, [TenantId::default()]);
    let keys = ("keys of due or running work", 1);
    counted.note("list the tenants with due or running work, of any number", &[keys], counts);
    let children = || SessionStore::list(&store, SessionQuery::new().with_parent(parent.id));
    let (page, counts) = shop.cost(children()).await;
    assert_eq!(page.items.len(), 3);
    let three = [("children", 3), ("child", 3)];
    counted.note("list sessions by a parent that lives, the heads known", &three, counts);
    let delete = shop.text_commit(&parent, 0).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = store.commit(delete).await.unwrap().session;
    let (page, counts) = shop.cost(children()).await;
    assert_eq!(page.items.len(), 3);
    counted.note("list sessions by a deleted parent, the heads known", &three, counts);
    let (purged, _) = shop.cost(store.purge(Purge::new(parent.id, deleted.head))).await;
    assert_eq!(purged.events, 1, "its forks read all but its deletion");

    let mut parent = shop.session(&store).await;
    let helper = NewSession::child(shop.effects.new_session_id(), &parent);
    store.commit(Commit::create(&shop.effects, helper)).await.unwrap();
    for _ in 0..4 {
        parent = store.commit(shop.text_commit(&parent, 1)).await.unwrap().session;
    }
    let delete = shop.text_commit(&parent, 0).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = store.commit(delete).await.unwrap().session;
    let (purged, counts) = shop.cost(store.purge(Purge::new(parent.id, deleted.head))).await;
    assert_eq!(purged.events, 6);
    // The creation, four messages and the deletion.
    let of = [("commits", 6), ("commit before the last", 5), ("children", 1), ("child", 1)];
    counted.note("purge a session, the heads known", &of, counts);
}

/// Blobs that are put, named, read, listed and swept.
async fn blobs(counted: &mut Counted) {
    const MIB: usize = 1 << 20;
    let shop = Shop::new();
    let store = shop.open().await;
    let mut session = shop.session(&store).await;
    let id = session.id;
    let named = |name| NewEvent::new("x.app.drawn".parse().unwrap(), RawJson::empty_object()).with_blob(name);
    let mut put = Vec::new();
    for size in [0, 1, 300_000, 4 * MIB, 8 * MIB] {
        let blob = BlobInfo::of(&vec![7; size]);
        let (_, counts) = shop.cost(store.blobs().put(PutBlob::of_bytes(id, vec![7; size]))).await;
        counted.note("put a blob of at most 8 MiB, head known", &[], counts);
        put.push(blob);
    }
    let large = BlobInfo::of(&vec![7; 17 * MIB]);
    let (_, counts) = shop.cost(store.blobs().put(PutBlob::of_bytes(id, vec![7; 17 * MIB]))).await;
    counted.note("put a larger blob, head known", &[("part", 3)], counts);
    for names in [&put[..1], &put[1..4], &[large]] {
        let commit = Commit::seal(&shop.effects, id, session.head);
        let commit = commit.with_events(names.iter().map(|blob| named(blob.name)));
        let before = session.status.state;
        let (done, counts) = shop.cost(store.commit(commit)).await;
        session = done.session;
        assert_eq!(session.status.state, before);
        counted.note("commit that names blobs, head known", &[("blob", names.len())], counts);
    }
    let missing = [b"1", b"2"].map(|bytes| named(BlobName::of(bytes)));
    let commit = Commit::seal(&shop.effects, id, session.head).with_events(missing);
    let before = shop.simulator.requests();
    store.commit(commit).await.unwrap_err();
    let counts = shop.simulator.counts_since(before);
    counted.note("refuse a commit without its blobs, head known", &[("blob", 2)], counts);

    let read = async |request: ReadBlob| store.blobs().read(request).await?.into_bytes(usize::MAX).await;
    for blob in &put[1..4] {
        let (_, counts) = shop.cost(read(ReadBlob::new(id, blob.name))).await;
        counted.note("read a blob of at most 4 MiB", &[], counts);
    }
    let (_, counts) = shop.cost(read(ReadBlob::new(id, large.name))).await;
    counted.note("read a larger blob", &[("piece", 5)], counts);
    for (blob, range) in
        [(put[1], 0..1), (large, 0..1), (large, 5_000_000..8_000_000), (put[2], 299_999..300_000)]
    {
        let (_, counts) = shop.cost(read(ReadBlob::new(id, blob.name).with_range(range))).await;
        counted.note("read a range of at most 3 MiB of a blob", &[], counts);
    }
    let (page, counts) = shop.cost(store.blobs().list(BlobQuery::new(id))).await;
    assert_eq!(page.items.len(), 6);
    counted.note("list the blobs of a session", &[("blobs", 6)], counts);

    let sweep = "sweep the blobs of a session of up to 50 events, head known";
    let of = [("removed blob", 1)];
    let removed = async |id| {
        let now = SessionStore::load(&store, id).await.unwrap();
        let delete = shop.text_commit(&now, 0).with_trigger(Trigger::Delete(Reason::UserDeleted));
        store.commit(delete).await.unwrap();
        let (swept, counts) = shop.cost(store.blobs().sweep(SweepBlobs::of(id))).await;
        assert_eq!(swept.blobs, 1);
        counts
    };
    // All but one were named.
    counted.note(sweep, &of, removed(id).await);
    let mut other = shop.session(&store).await;
    store.blobs().put(PutBlob::of_bytes(other.id, "unnamed")).await.unwrap();
    while other.head.get() < 45 {
        other = store.commit(shop.text_commit(&other, 1)).await.unwrap().session;
    }
    counted.note(sweep, &of, removed(other.id).await);

    let ids = [(); 3].map(|()| shop.effects.new_session_id());
    for id in ids {
        let (_, counts) = shop.cost(store.blobs().put(PutBlob::of_bytes(id, "early"))).await;
        counted.note("put a blob before its session", &[], counts);
    }
    tokio::time::sleep(std::time::Duration::from_secs(9 * 24 * 3600)).await;
    let later = shop.open().await;
    let (swept, counts) = shop.cost(later.blobs().sweep(SweepBlobs::without_session())).await;
    assert_eq!(swept.blobs, 3);
    let of = [("id", 3), ("removed blob", 3)];
    counted.note("sweep the blobs of ids without sessions", &of, counts);
}

/// Sessions with indexed fields.
async fn indexed_fields(counted: &mut Counted) {
    let shop = Shop::new();
    let config = config(&shop.simulator, "handle").with_option("index", "creator,label.project").unwrap();
    let store = config.with_effects(shop.effects.clone()).open().await.unwrap();
    let mut id = shop.effects.new_session_id();
    for (fields, project) in [(1, None), (2, Some("red")), (2, Some("blue"))] {
        id = shop.effects.new_session_id();
        let patch = project.iter().fold(Patch::new(), |patch, project| patch.with_label("project", *project));
        let new = NewSession::new(id, WorkspaceId::DEFAULT).with_patch(&patch);
        let (_, counts) = shop.cost(store.commit(Commit::create(&shop.effects, new))).await;
        counted.note("create a session that has indexed fields", &[("indexed field", fields)], counts);
    }
    let head = SessionStore::load(&store, id).await.unwrap().head;
    let change = NewEvent::updated(Patch::new().with_label("project", "red"));
    let (_, counts) = shop.cost(store.commit(Commit::seal(&shop.effects, id, head).with_event(change))).await;
    counted.note("commit that changes an indexed label", &[], counts);
    let query = SessionQuery::new().with_label("project", "red");
    let (page, counts) = shop.cost(SessionStore::list(&store, query)).await;
    assert_eq!(page.items.len(), 2);
    counted.note("list a page of sessions, their heads known", &[("session", 2)], counts);
}

/// Workspaces and bindings.
async fn workspaces_and_devices(counted: &mut Counted) {
    let shop = Shop::new();
    let store = shop.open().await;
    let (now, change) =
        (shop.effects.now(), "put, configure or delete a workspace, or touch it within 15 minutes");
    let ids = [(); 3].map(|()| shop.effects.new_workspace_id());
    for id in ids {
        let workspace = Workspace::new(id, "name", shop.effects.new_session_id(), now);
        let (_, counts) = shop.cost(store.put(workspace, Precondition::MustNotExist)).await;
        counted.note("create a workspace", &[], counts);
    }
    let (_, counts) = shop.cost(store.touch(ids[0], now.plus_micros(1))).await;
    counted.note(change, &[], counts);
    let (_, counts) = shop.cost(store.touch(ids[0], now.plus_micros(15 * 60_000_000))).await;
    counted.note("touch a workspace after 15 minutes", &[], counts);
    let text = Some("n = 1".to_owned());
    let (_, counts) = shop.cost(store.save_config(ids[0], text, Precondition::MustNotExist)).await;
    counted.note(change, &[], counts);
    let (_, counts) = shop.cost(WorkspaceStore::load(&store, ids[0])).await;
    counted.note("load a workspace", &[], counts);
    let other = store.for_tenant(&"other".parse().unwrap());
    let workspace = Workspace::new(ids[0], "name", shop.effects.new_session_id(), now);
    shop.open()
        .await
        .for_tenant(&"other".parse().unwrap())
        .put(workspace, Precondition::MustNotExist)
        .await
        .unwrap();
    let (_, counts) = shop.cost(WorkspaceStore::load(&other, ids[0])).await;
    let first = "load a workspace, as the first operation on another tenant than `default`";
    counted.note(first, &[], counts);
    let (_, counts) = shop.cost(WorkspaceStore::list(&store, WorkspaceQuery::new())).await;
    counted.note("list a page of workspaces", &[("workspace", 3)], counts);
    let mut owned =
        Workspace::new(shop.effects.new_workspace_id(), "name", shop.effects.new_session_id(), now);
    owned.owner = Some("ann".parse().unwrap());
    let (_, counts) = shop.cost(store.put(owned.clone(), Precondition::MustNotExist)).await;
    counted.note("create a workspace with an owner", &[], counts);
    let (_, counts) = shop.cost(store.touch(owned.id, now.plus_micros(15 * 60_000_000))).await;
    counted.note("touch a workspace with an owner after 15 minutes", &[], counts);
    let (_, counts) = shop.cost(WorkspaceStore::delete(&store, ids[0])).await;
    counted.note(change, &[], counts);
    let devices: Vec<DeviceId> = (0..5).map(|n| format!("device {n}").parse().unwrap()).collect();
    for (n, device) in devices.iter().enumerate() {
        let (_, counts) = shop.cost(store.bind(device, ids[1 + n % 2], Precondition::MustNotExist)).await;
        counted.note("bind a device for the first time", &[], counts);
    }
    let (_, counts) = shop.cost(store.bind(&devices[0], ids[1], Precondition::MustExist)).await;
    assert_eq!(counts.total(), 1, "it is bound there");
    let (_, counts) = shop.cost(store.resolve(&devices[0])).await;
    counted.note("resolve a device", &[], counts);
    let (_, counts) = shop.cost(store.resolve(&"unknown".parse().unwrap())).await;
    counted.note("resolve a device that is not bound", &[], counts);
    let (_, counts) = shop.cost(store.unbind(&devices[1])).await;
    counted.note("unbind a device", &[], counts);
    let (_, counts) = shop.cost(store.bind(&devices[1], ids[1], Precondition::MustNotExist)).await;
    counted.note("bind a device again, or to another workspace", &[], counts);
    let (_, counts) = shop.cost(store.bind(&devices[1], ids[2], Precondition::MustExist)).await;
    counted.note("bind a device again, or to another workspace", &[], counts);
    store.unbind(&devices[1]).await.unwrap();
    // Past the time at which superseded keys are deleted.
    tokio::time::sleep(std::time::Duration::from_secs(200)).await;
    let bindings = "list a page of bindings, of all workspaces or one";
    // One that was unbound has no key.
    let (page, counts) = shop.cost(BindingStore::list(&store, BindingQuery::new())).await;
    assert_eq!(page.items.len(), 4);
    counted.note(bindings, &[("device", 4)], counts);
    let three = [("devices of the workspace", 3), ("device of the workspace", 3)];
    let query = BindingQuery::new().with_workspace(ids[1]);
    let (page, counts) = shop.cost(BindingStore::list(&store, query)).await;
    assert_eq!(page.items.len(), 3);
    counted.note(bindings, &[("device", 3)], counts);
    let (unbound, counts) = shop.cost(store.unbind_workspace(ids[1])).await;
    assert_eq!(unbound, 3);
    counted.note("unbind a workspace", &three, counts);
}

/// The deletion of a tenant.
async fn deletion(counted: &mut Counted) {
    for (sessions, commits) in [(2, 3), (5, 4)] {
        let shop = Shop::new();
        let store = shop.open().await;
        let now = shop.effects.now();
        for n in 0..2 {
            let id = shop.effects.new_workspace_id();
            let workspace = Workspace::new(id, "name", shop.effects.new_session_id(), now);
            store.put(workspace, Precondition::MustNotExist).await.unwrap();
            store
                .bind(&format!("device {n}").parse().unwrap(), id, Precondition::MustNotExist)
                .await
                .unwrap();
        }
        let mut session = shop.session(&store).await;
        for n in 1..sessions {
            let new = NewSession::child(shop.effects.new_session_id(), &session);
            let child = store.commit(Commit::create(&shop.effects, new)).await.unwrap().session;
            session = if n % 2 == 0 { child } else { session };
        }
        for id in SessionStore::list(&store, SessionQuery::new()).await.unwrap().items.iter().map(|it| it.id)
        {
            for _ in 1..commits {
                let session = SessionStore::load(&store, id).await.unwrap();
                store.commit(shop.text_commit(&session, 1)).await.unwrap();
            }
        }
        let (done, counts) = shop.cost(store.delete_tenant(&TenantId::default())).await;
        assert_eq!((done.sessions, done.workspaces, done.bindings), (sessions as u64, 2, 2));
        let of = [
            ("session", sessions),
            ("folder of sessions", shop.folders()),
            ("key of a session", 3 * sessions),
            ("commit", sessions * commits),
            ("workspace", 2),
            ("device", 2),
            ("child", sessions - 1),
        ];
        counted.note("delete a tenant", &of, counts);
    }
}

/// Checks and rebuilds of a tenant without faults, by processes that know nothing of it.
async fn maintenance(counted: &mut Counted) {
    for (sessions, commits, devices) in [(2, 3, 1), (5, 14, 4)] {
        let shop = Shop::new();
        let store = shop.open().await;
        let id = shop.effects.new_workspace_id();
        let workspace = Workspace::new(id, "name", shop.effects.new_session_id(), shop.effects.now());
        store.put(workspace, Precondition::MustNotExist).await.unwrap();
        for n in 0..devices {
            let device = format!("device {n}").parse().unwrap();
            store.bind(&device, id, Precondition::MustNotExist).await.unwrap();
        }
        for _ in 0..sessions {
            let mut session = shop.session(&store).await;
            for _ in 1..commits {
                session = store.commit(shop.text_commit(&session, 1)).await.unwrap().session;
            }
        }
        tokio::time::sleep(std::time::Duration::from_secs(600)).await;
        let of = [
            ("session", sessions),
            ("folder of sessions", shop.folders()),
            ("commit", sessions * commits),
            ("workspace", 1),
            ("device", devices),
        ];
        let cold = shop.open().await;
        let (faults, counts) = shop.cost(cold.maintenance().check()).await;
        assert_eq!(faults, []);
        counted.note("check the store", &of, counts);
        let cold = shop.open().await;
        let (rebuilt, counts) = shop.cost(cold.maintenance().rebuild()).await;
        assert!(rebuilt.damaged.is_empty());
        counted.note("rebuild the index, of which nothing is missing", &of, counts);
    }
}

/// Opening a session cold and reading its last 50 events costs at most four requests at any length, and a
/// commit one.
#[tokio::test(start_paused = true)]
async fn costs_do_not_grow_with_the_session() {
    for (length, batch) in [(100, 1), (10_000, 16), (1_000_000, 1000)] {
        let shop = Shop::new();
        let store = shop.open().await;
        let mut session = shop.session(&store).await;
        while session.head.get() < length {
            session = store.commit(shop.text_commit(&session, batch)).await.unwrap().session;
        }
        // The last ones as in a chat.
        for _ in 0..70 {
            session = store.commit(shop.text_commit(&session, 1)).await.unwrap().session;
        }
        let (_, cost) = shop.cost(store.commit(shop.text_commit(&session, 1))).await;
        assert_eq!((cost.put, cost.total()), (1, 1), "{cost} at {length}");
        let cold = shop.open().await;
        let before = shop.simulator.requests();
        let found = SessionStore::load(&cold, session.id).await.unwrap();
        let page = cold.read(session.id, ReadEvents::last(50)).await.unwrap();
        assert_eq!((page.events.len(), page.events.last().unwrap().seq), (50, found.head));
        let counts = shop.simulator.counts_since(before);
        println!("open + last 50 at {length}: {counts}");
        assert!(counts.total() <= 4, "{counts} at {length}");
    }
}

/// A long chat of messages of 1 KiB, two commits a turn, writes at most 15 KB for each commit.
#[tokio::test(start_paused = true)]
async fn a_commit_of_a_long_chat_writes_15_kb() {
    const TURNS: usize = 10_000;
    let shop = Shop::new();
    let store = shop.open().await;
    let mut session = shop.session(&store).await;
    let (mut written, mut seen) = (0, BTreeSet::new());
    for _ in 0..2 * TURNS {
        let event = NewEvent::user_message("x".repeat(1024));
        let commit = Commit::seal(&shop.effects, session.id, session.head).with_event(event);
        session = store.commit(commit).await.unwrap().session;
        if session.head.get() % 1000 == 0 {
            written += forget(&shop.simulator, &mut seen);
        }
    }
    written += forget(&shop.simulator, &mut seen);
    let each = written / (2 * TURNS);
    println!("{each} bytes for each commit");
    assert!((2048..15_000).contains(&each), "{each} bytes for each commit");
}

/// Counts the bytes of new slots, and forgets those that are not needed any more.
fn forget(simulator: &Simulator, seen: &mut BTreeSet<String>) -> usize {
    let slots: Vec<_> = simulator.keys().into_iter().filter(|key| key.contains("/c/")).collect();
    let mut bytes = 0;
    for (n, key) in slots.iter().enumerate() {
        if seen.insert(key.clone()) {
            bytes += simulator.object(key).unwrap().len();
        }
        // The newest are listed first.
        if n > 100 {
            simulator.remove_object(key);
        }
    }
    bytes
}

/// Long events of one commit that lie in an earlier object are read each alone, one request and its own bytes.
#[tokio::test(start_paused = true)]
async fn a_long_event_is_read_alone() {
    const LONG: usize = 20_000;
    let shop = Shop::new();
    let store = shop.open().await;
    let session = shop.session(&store).await;
    let long = (0..6).map(|_| NewEvent::user_message("x".repeat(LONG)));
    let append = Commit::seal(&shop.effects, session.id, session.head).with_events(long);
    let session = store.commit(append).await.unwrap().session;
    let head = store.commit(shop.text_commit(&session, 1)).await.unwrap().session.head;
    let cold = shop.open().await;
    SessionStore::load(&cold, session.id).await.unwrap();
    let before = shop.simulator.requests();
    let page = cold.read(session.id, ReadEvents::last(7)).await.unwrap();
    assert_eq!((page.events.len(), page.events.last().unwrap().seq), (7, head));
    let answered: usize = shop.simulator.entries()[before..].iter().map(|entry| entry.answered).sum();
    let least = 6 * LONG;
    assert!((least..least + least / 4).contains(&answered), "{answered} bytes for {least}");
    // And one whether there is a newer object.
    assert_eq!(shop.simulator.counts_since(before).get, 6 + 1, "one request each");
}

/// The requests of a scheduler's round by a process that looks once and ends.
async fn round_of_a_short_process(shop: &Shop) -> (Vec<TenantId>, Counts) {
    let store = shop.open().await;
    let before = shop.simulator.requests();
    let busy = store.busy_tenants(shop.effects.now(), None).await.unwrap().items;
    for tenant in &busy {
        let tenant = store.for_tenant(tenant);
        let running = SessionQuery::new().with_states([SessionState::Running]);
        assert_eq!(SessionStore::list(&tenant, running).await.unwrap().items.len(), 0);
        let due = SessionQuery::new().with_due(shop.effects.now());
        assert_eq!(SessionStore::list(&tenant, due).await.unwrap().items.len(), 0);
    }
    store.close().await.unwrap();
    (busy, shop.simulator.counts_since(before))
}

/// The key of a turn that has ended keeps its tenant busy for two minutes, and until the next look after that, also if all
/// processes end before they have deleted anything by their own clock.
#[tokio::test(start_paused = true)]
async fn short_checks_delete_the_keys_of_ended_turns() {
    let shop = Shop::new();
    let store = shop.open().await;
    let (busy, counts) = round_of_a_short_process(&shop).await;
    assert_eq!((busy.len(), counts.list, counts.total()), (0, 1, 1), "{counts}");
    let session = shop.session(&store).await;
    let lease = LeaseRequest::new("holder", shop.effects.new_run_id());
    let begin = shop.text_commit(&session, 1).with_trigger(Trigger::BeginRun(lease));
    let running = store.commit(begin).await.unwrap().session;
    let held = running.lease.as_ref().unwrap();
    let end = shop.text_commit(&running, 0).with_fence(held.run, held.epoch);
    store.commit(end.with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)))).await.unwrap();
    store.close().await.unwrap();
    // What FORMAT.md says of a round over a tenant whose turn has ended.
    for seconds in [0, 60, 50] {
        tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
        let (busy, counts) = round_of_a_short_process(&shop).await;
        assert_eq!((busy.len(), counts.list, counts.get, counts.delete), (1, 6, 4, 0), "{counts}");
    }
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    let (busy, counts) = round_of_a_short_process(&shop).await;
    assert_eq!((busy.len(), counts.list, counts.get, counts.delete), (1, 6, 3, 1), "{counts}");
    let (busy, counts) = round_of_a_short_process(&shop).await;
    assert_eq!((busy.len(), counts.list, counts.total()), (0, 1, 1), "{counts}");
    assert_eq!(shop.open().await.maintenance().check().await.unwrap(), []);
}
