//! Forks and children over a store: a session's history, over any number of logs.

use agent_core::SessionStoreExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Committed, LeaseRequest, Trigger};
use agent_core::event::{Event, EventPayload, NewEvent, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::{
    Access, Actor, Lineage, Mount, MountOrigin, MountSet, Patch, Resource, Role, Workspace,
};
use agent_core::session::{Fork, NewSession, RECORD_MAX_BYTES, SessionRecord, SessionSummary};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{
    Capabilities, EventPage, LeaseStore, Page, Purge, Purged, ReadEvents, SessionQuery, SessionStoreWrapper,
    WorkspaceQuery,
};
use agent_core::{
    Error, ErrorKind, MemoryStore, Result, Seq, SessionId, SessionStore, Sessions, WorkspaceId, async_trait,
};
use futures::TryStreamExt;
use proptest::prelude::*;

/// Returns the sessions of a new store, and the source of their ids and times.
fn store() -> (Sessions, Effects) {
    let effects = effects();
    (MemoryStore::new().sessions(&effects), effects)
}

fn effects() -> Effects {
    Effects::seeded(3, "2026-02-15T10:30:00Z".parse().unwrap())
}

async fn new_session(store: &Sessions) -> Arc<SessionRecord> {
    let new = NewSession::new(store.effects().new_session_id(), WorkspaceId::DEFAULT);
    store.create(new).await.unwrap()
}

async fn append_text(store: &Sessions, id: SessionId, text: &str) -> Arc<SessionRecord> {
    let seen = store.load(id).await.unwrap().head;
    store.append(id, seen, vec![NewEvent::user_message(text)]).await.unwrap().session
}

async fn whole(store: &dyn SessionStore, id: SessionId) -> Vec<Event> {
    store.events(id, Seq::ZERO).try_collect().await.unwrap()
}

/// A fork has the history up to its point and goes its own way; the parent is unchanged; both stay apart.
#[tokio::test]
async fn a_fork_is_independent() {
    let (store, _) = store();
    let mut parent = new_session(&store).await;
    let set =
        Patch::new().with_label("project", "p").with_resources(vec![Resource::new("directory", "/a", "/b")]);
    parent = store.update(parent.id, parent.head, set).await.unwrap().session;
    parent = append_text(&store, parent.id, "shared").await;

    let child = store.fork(parent.id, None).await.unwrap();
    assert_eq!(child.origin.parent(), Some(parent.id));
    assert_eq!((child.depth, child.head), (1, parent.head.next()));
    assert_eq!(child.attributes, parent.attributes);
    assert_eq!((child.status.state, child.inputs_open), (SessionState::Idle, 0), "the input is the parent's");
    let asked = store.fork(parent.id, Fork::new().with_open_inputs()).await.unwrap();
    assert_eq!((asked.status.state, asked.inputs_open), (SessionState::Queued, 1), "unless it is asked for");
    let gone = Trigger::Delete(Reason::UserDeleted);
    store.trigger(asked.id, gone).await.unwrap();
    assert_eq!(store.load(parent.id).await.unwrap(), parent, "the parent is as it was");

    append_text(&store, parent.id, "parent only").await;
    append_text(&store, child.id, "child only").await;
    let texts = |events: Vec<Event>| -> Vec<String> {
        let text = |event: &Event| match event.decode().unwrap() {
            EventPayload::UserMessage(message) => Some(message.text),
            _ => None,
        };
        events.iter().filter_map(text).collect()
    };
    assert_eq!(texts(whole(&*store, parent.id).await), ["shared", "parent only"]);
    assert_eq!(texts(whole(&*store, child.id).await), ["shared", "child only"]);
    let own = store.read(child.id, ReadEvents::first(100)).await.unwrap().events;
    assert_eq!(own.len(), 2, "nothing was copied");
    let children = store.list(SessionQuery::new().with_parent(parent.id)).await.unwrap();
    assert_eq!(children.items.iter().map(|s| s.id).collect::<Vec<_>>(), [child.id]);
}

/// At an earlier point the fork is what the session was then: cursors, counts, prompt; also where that point
/// lies in an ancestor. Inside a tool call it is refused, and by default moved before it.
#[tokio::test]
async fn fork_at_an_earlier_point_has_that_state() {
    let (store, _) = store();
    let parent = new_session(&store).await.id;
    for event in [
        NewEvent::system_prompt("be brief"),
        NewEvent::user_message("one"),
        NewEvent::tool_use("c".parse().unwrap(), "t", RawJson::parse("{}").unwrap()),
        NewEvent::tool_result("c".parse().unwrap(), ToolOutcome::Ok, RawJson::parse("1").unwrap()),
        NewEvent::agent_message("done"),
        NewEvent::history_cleared(),
        NewEvent::user_message("two"),
    ] {
        let seen = store.load(parent).await.unwrap().head;
        store.append(parent, seen, vec![event]).await.unwrap();
    }
    let child = store.fork(parent, Some(Seq::new(6))).await.unwrap();
    assert_eq!((child.visible_from, child.counts.user, child.counts.agent), (Seq::ZERO, 1, 1));
    assert_eq!((child.system_prompt, child.inputs_open), (Seq::new(2), 0));
    let asked = store.fork(parent, Fork::at(Seq::new(6)).with_open_inputs()).await.unwrap();
    assert_eq!(
        (asked.inputs_open, asked.last_input, asked.inputs_done_through),
        (1, child.last_input, Seq::ZERO)
    );
    let error = store.fork(parent, Some(Seq::new(4))).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("fork at 3"), "{error}");
    for nowhere in [0, 9, u64::MAX] {
        let error = store.fork(parent, Some(Seq::new(nowhere))).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{nowhere}");
    }

    let grandchild = store.fork(child.id, Some(Seq::new(3))).await.unwrap();
    assert_eq!(grandchild.lineage.segments.len(), 1, "the child contributes nothing");
    assert_eq!((grandchild.counts.user, grandchild.counts.agent), (1, 0));
    assert_eq!(whole(&*store, grandchild.id).await.len(), 4);

    let open = vec![NewEvent::tool_use("d".parse().unwrap(), "t", RawJson::parse("{}").unwrap())];
    let seen = store.load(parent).await.unwrap().head;
    store.append(parent, seen, open).await.unwrap();
    let error = store.fork(parent, Some(seen.next())).await.unwrap_err();
    assert!(error.to_string().contains(&format!("fork at {seen}")), "{error}");
    let safe = store.fork(parent, None).await.unwrap();
    assert_eq!(safe.lineage.base(), seen, "the open call stays with its session");
    assert!(safe.open_calls.is_empty());
}

/// Contract 8: ten thousand forks deep, each with an event of its own: the record stays bounded, a fork writes
/// one event, and the whole history is there in either direction.
#[tokio::test]
async fn ten_thousand_nested_forks_stay_bounded() {
    let (store, _) = store();
    let mut last = new_session(&store).await;
    for n in 0..10_000 {
        last = append_text(&store, last.id, &n.to_string()).await;
        last = store.fork(last.id, None).await.unwrap();
        assert_eq!(store.read(last.id, ReadEvents::first(10)).await.unwrap().events.len(), 1);
    }
    assert!(last.to_json().len() <= RECORD_MAX_BYTES, "{}", last.to_json().len());
    let numbers: Vec<u64> = whole(&*store, last.id).await.iter().map(|event| event.seq.get()).collect();
    assert_eq!(numbers, (1..=20_001).collect::<Vec<_>>());
    let newest = store.history(last.id, ReadEvents::last(1000)).await.unwrap();
    assert_eq!(
        newest.events.iter().map(|e| e.seq.get()).collect::<Vec<_>>(),
        (19_002..=20_001).collect::<Vec<_>>()
    );
}

/// A fork of a chain that is deeper than a record tells, at any event of it, has the history up to there.
#[tokio::test]
async fn a_deep_chain_is_forked_at_any_event() {
    let (store, _) = store();
    let mut last = new_session(&store).await;
    for n in 0..Lineage::MAX_SEGMENTS + 6 {
        last = append_text(&store, last.id, &n.to_string()).await;
        last = store.fork(last.id, None).await.unwrap();
    }
    assert!(last.lineage.deeper);
    let events = whole(&*store, last.id).await;
    for at in 1..=events.len() {
        let fork = store.fork(last.id, Some(Seq::new(at as u64))).await.unwrap();
        assert_eq!(whole(&*store, fork.id).await[..at], events[..at], "at {at}");
    }
}

/// A page holds what fits into it, however many logs that lies in; where it is the end there is no next one.
#[tokio::test]
async fn page_spans_several_logs_up_to_its_limit() {
    let (store, _) = store();
    let parent = new_session(&store).await;
    let parent = append_text(&store, parent.id, "in the parent").await;
    let child = store.fork(parent.id, None).await.unwrap();
    let child = append_text(&store, child.id, "in the child").await;
    let all = whole(&*store, child.id).await;
    let bytes: usize = all.iter().map(Event::size_bytes).sum();
    for read in [ReadEvents::first(100), ReadEvents::last(100)] {
        for (read, fits) in [
            (read.clone(), true),
            (read.clone().with_max_bytes(bytes), true),
            (read.clone().with_max_bytes(bytes - 1), false),
        ] {
            let page = store.history(child.id, read.clone()).await.unwrap();
            assert_eq!((page.events.len() == all.len(), page.next.is_none()), (fits, fits), "{read:?}");
        }
    }
    for read in [ReadEvents::first(all.len()), ReadEvents::last(all.len())] {
        let page = store.history(child.id, read).await.unwrap();
        assert_eq!((page.events, page.next), (all.clone(), None));
    }
}

/// A child names its parent from its first event on; the parent's log tells of the child and of its end.
#[tokio::test]
async fn child_and_parent_logs_name_each_other() {
    let (store, _) = store();
    let parent = new_session(&store).await;
    let child = store.create_child(parent.id, Patch::new().with_label("task", "search")).await.unwrap();
    assert_eq!(child.origin.parent(), Some(parent.id));
    assert_eq!(child.lineage, Lineage::default(), "its history is its own");
    store.report_child(child.id, Some("found it".into())).await.unwrap();
    let outcome: Vec<_> =
        whole(&*store, parent.id).await.into_iter().map(|event| event.decode().unwrap()).collect();
    assert!(matches!(&outcome[1], EventPayload::SessionChildCreated(created) if created.child == child.id));
    assert!(
        matches!(&outcome[2], EventPayload::SessionChildIdle(idle) if idle.result.as_deref() == Some("found it"))
    );
    let listed = store.list(SessionQuery::new().with_parent(parent.id)).await.unwrap().items;
    assert_eq!(listed.iter().map(|s| s.id).collect::<Vec<_>>(), [child.id]);

    store.trigger(parent.id, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    for attempt in [
        store.fork(parent.id, None).await.unwrap_err(),
        store.create_child(parent.id, Patch::new()).await.unwrap_err(),
    ] {
        assert_eq!(*attempt.kind(), ErrorKind::Deleted, "{attempt}");
    }
}

/// A commit whose answer was lost is settled by reading on, however long ago it was, and never doubled.
#[tokio::test]
async fn retry_finds_a_commit_applied_long_ago() {
    let (store, effects) = store();
    let session = new_session(&store).await;
    let commit = Commit::seal(&effects, session.id, session.head).with_event(NewEvent::user_message("once"));
    store.commit(commit.clone()).await.unwrap();
    for _ in 0..600 {
        append_text(&store, session.id, "more").await;
    }
    let settled = store.commit_with_retry(commit).await.unwrap();
    assert!(settled.replayed);
    assert_eq!((settled.first, settled.last), (Seq::new(2), Seq::new(2)));
    let stale = store.append(session.id, session.head, vec![NewEvent::user_message("new")]).await.unwrap();
    assert_eq!((stale.replayed, stale.last), (false, Seq::new(603)));
}

/// What is found by reading on is answered as at first: with the lease that it took.
#[tokio::test]
async fn retry_returns_the_lease_taken_long_ago() {
    let (store, effects) = store();
    let session = new_session(&store).await;
    let commit = Commit::seal(&effects, session.id, session.head)
        .with_event(NewEvent::user_message("go"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("laptop", effects.new_run_id()).if_ready()));
    let first = store.commit(commit.clone()).await.unwrap();
    assert!(first.epoch.is_some());
    for _ in 0..20 {
        append_text(&store, session.id, "more").await;
    }
    let settled = store.commit_with_retry(commit).await.unwrap();
    assert!(settled.replayed);
    assert_eq!((settled.first, settled.last, settled.epoch), (first.first, first.last, first.epoch));
}

/// Lets others in before each of the next so many commits: as many commits as make it impossible to tell whether one
/// that was sealed before them landed.
#[derive(Debug)]
struct Crowded {
    under: MemoryStore,
    effects: Effects,
    times: AtomicU32,
}

#[async_trait]
impl SessionStoreWrapper for Crowded {
    fn inner(&self) -> &dyn SessionStore {
        &self.under
    }

    async fn commit(&self, commit: Commit) -> Result<Committed> {
        let left = self.times.fetch_update(SeqCst, SeqCst, |times| times.checked_sub(1));
        if left.is_ok() {
            for _ in 0..20 {
                append_text(&self.under.sessions(&self.effects), commit.session, "in between").await;
            }
        }
        SessionStore::commit(&self.under, commit).await
    }
}

/// An append that is overtaken again and again lands all the same, once. Found by 20,000 rounds of a race on
/// files, in which one task of eight had bad luck five times in a row.
#[tokio::test]
async fn overtaken_append_is_applied_once() {
    let (under, effects) = (MemoryStore::new(), effects());
    let session = new_session(&under.sessions(&effects)).await;
    let crowded = Crowded { under, effects: effects.clone(), times: AtomicU32::new(50) };
    let events = vec![NewEvent::user_message("once")];
    let crowded = Sessions::new(Arc::new(crowded), effects);
    let done = crowded.append(session.id, session.head, events).await.unwrap();
    assert_eq!(done.last.get(), 1 + 50 * 20 + 1);
    let texts = whole(&*crowded, session.id).await.into_iter().filter_map(|event| match event.decode() {
        Ok(EventPayload::UserMessage(message)) => Some(message.text),
        _ => None,
    });
    assert_eq!(texts.filter(|text| text == "once").count(), 1);
}

/// Following yields what is there and then what comes, in order and without a gap.
#[tokio::test]
async fn follow_yields_old_and_new_events_in_order() {
    let (store, _) = store();
    let session = new_session(&store).await;
    append_text(&store, session.id, "before").await;
    let fork = store.fork(session.id, None).await.unwrap();
    let mut events = store.follow(fork.id, Seq::new(1));
    for expected in 2..=3 {
        assert_eq!(events.try_next().await.unwrap().unwrap().seq.get(), expected);
    }
    let waiting = async { events.try_next().await.unwrap().unwrap() };
    let (event, _) = tokio::join!(waiting, append_text(&store, fork.id, "after"));
    assert_eq!(event.seq.get(), 4);
}

#[derive(Clone, Debug)]
struct Shape {
    /// For each further session: which earlier one it is forked from, how far back, and its own events' sizes.
    forks: Vec<(prop::sample::Index, u8, Vec<u16>)>,
    read: (u8, u8, bool, u8, u16),
}

fn shapes() -> impl Strategy<Value = Shape> {
    let forks = prop::collection::vec(
        (any::<prop::sample::Index>(), 0..6u8, prop::collection::vec(0..900u16, 0..5)),
        1..50,
    );
    let read = (any::<u8>(), any::<u8>(), any::<bool>(), 1..9u8, 200..4000u16);
    (forks, read).prop_map(|(forks, read)| Shape { forks, read })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// In any tree of forks every session's history is its parent's up to the point, then its own; and
    /// pages in either direction, of any size, tile exactly what was asked for.
    #[test]
    fn pages_cover_the_history_exactly_once(shape in shapes()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (store, _) = store();
            let root = new_session(&store).await;
            let mut known = vec![(root.id, whole(&*store, root.id).await)];
            for (from, back, sizes) in &shape.forks {
                let (parent, history) = &known[from.index(known.len())];
                let at = (history.len() as u64).saturating_sub(u64::from(*back)).max(1);
                let child = store.fork(*parent, Some(Seq::new(at))).await.unwrap().id;
                for size in sizes {
                    append_text(&store, child, &"x".repeat(usize::from(*size))).await;
                }
                let own = store.read(child, ReadEvents::first(100)).await.unwrap().events;
                let expected: Vec<_> = history[..at as usize].iter().cloned().chain(own).collect();
                prop_assert_eq!(&whole(&*store, child).await, &expected);
                known.push((child, expected));
            }
            let (after, before, newest, limit, bytes) = shape.read;
            let (id, history) = known.last().unwrap();
            let mut read = if newest { ReadEvents::last(limit.into()) } else { ReadEvents::first(limit.into()) };
            read = read.with_after(Seq::new(u64::from(after) % 20)).with_max_bytes(bytes.into());
            if before % 3 == 0 {
                read = read.with_before(Seq::new(u64::from(before)));
            }
            let expected: Vec<_> = history.iter().filter(|event| read.matches(event)).cloned().collect();
            let (mut pages, mut next, mut rounds) = (Vec::new(), Some(read), 0);
            while let Some(read) = next {
                let page = store.history(*id, read).await.unwrap();
                prop_assert!(page.events.len() <= usize::from(limit));
                let size: usize = page.events.iter().map(Event::size_bytes).sum();
                prop_assert!(page.events.len() == 1 || size <= usize::from(bytes), "{} over {}", size, bytes);
                prop_assert!(!page.events.is_empty() || page.next.is_none(), "an empty page is the last");
                pages.push(page.events);
                next = page.next;
                rounds += 1;
                prop_assert!(rounds < 500, "paging ends");
            }
            if newest {
                pages.reverse();
            }
            prop_assert_eq!(pages.concat(), expected);
            Ok(())
        })?;
    }
}

/// A store on which a session is deleted and purged between two calls of somebody else.
#[derive(Debug)]
struct Meanwhile {
    inner: MemoryStore,
    purges: std::sync::Mutex<Option<SessionId>>,
    /// Whether its logs cannot be reached.
    cut_off: bool,
}

#[async_trait]
impl SessionStore for Meanwhile {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        SessionStore::commit(&self.inner, commit).await
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let loaded = SessionStore::load(&self.inner, id).await;
        let purges = self.purges.lock().unwrap().take_if(|purged| *purged == id);
        if let Some(id) = purges {
            let delete = Trigger::Delete(Reason::UserDeleted);
            let head = self.inner.sessions(&Effects::default()).trigger(id, delete).await.unwrap().last;
            SessionStore::purge(&self.inner, Purge::new(id, head)).await.unwrap();
        }
        loaded
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        if self.cut_off {
            return Err(Error::new(ErrorKind::Unavailable, "as told"));
        }
        SessionStore::read(&self.inner, id, read).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        SessionStore::list(&self.inner, query).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        SessionStore::purge(&self.inner, purge).await
    }

    fn leases(&self) -> &dyn LeaseStore {
        self.inner.leases()
    }

    fn capabilities(&self) -> Capabilities {
        SessionStore::capabilities(&self.inner)
    }
}

/// A fork whose parent is purged while it looks is told that it was deleted, not that it is damaged; where
/// nobody can look it is told that.
#[tokio::test]
async fn fork_during_purge_reports_a_deleted_parent() {
    for (cut_off, kind) in [(false, ErrorKind::Deleted), (true, ErrorKind::Unavailable)] {
        let effects = effects();
        let store = Meanwhile { inner: MemoryStore::new(), purges: std::sync::Mutex::new(None), cut_off };
        let parent = new_session(&store.inner.sessions(&Effects::default())).await.id;
        append_text(&store.inner.sessions(&effects), parent, "one").await;
        let head = append_text(&store.inner.sessions(&effects), parent, "two").await.head;
        *store.purges.lock().unwrap() = Some(parent);
        let before = Seq::new(head.get() - 1);
        let store = Sessions::new(Arc::new(store), effects);
        let error = store.fork(parent, Some(before)).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{error:?}");
    }
}

/// A store that is not told of changes looks for them, and says nothing before there is one.
#[tokio::test(start_paused = true)]
async fn store_without_notifications_is_polled() {
    let effects = effects();
    let store = Meanwhile { inner: MemoryStore::new(), purges: std::sync::Mutex::new(None), cut_off: false };
    let session = new_session(&store.inner.sessions(&Effects::default())).await;
    assert_eq!(store.changed(session.id, Seq::ZERO).await.unwrap(), session.head, "there is one already");
    let (changed, texts) = tokio::join!(store.changed(session.id, session.head), async {
        tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        append_text(&store.inner.sessions(&effects), session.id, "one").await.head
    });
    assert_eq!(changed.unwrap(), texts);
}

/// A list of the sessions that somebody created names those and no others.
#[tokio::test]
async fn sessions_are_listed_by_creator() {
    let effects = Effects::default();
    let store = MemoryStore::new();
    let [mine, other] = ["mine", "other"].map(|name| Actor::named(Role::User, name).unwrap());
    for actor in [&mine, &other, &mine] {
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        SessionStore::commit(&store, Commit::create(&effects, new).with_actor(actor.clone())).await.unwrap();
    }
    let count = async |query: SessionQuery| SessionStore::list(&store, query).await.unwrap().items.len();
    assert_eq!(count(SessionQuery::new()).await, 3);
    assert_eq!(count(SessionQuery::new().with_creator(mine)).await, 2);
    assert_eq!(count(SessionQuery::new().with_creator(other)).await, 1);
}

/// A list of workspaces that ends with a page says so on that page.
#[test]
fn last_workspace_page_has_no_next_page() {
    let effects = effects();
    let all: Vec<_> = (0..4)
        .map(|_| Workspace::new(effects.new_workspace_id(), "w", effects.new_session_id(), effects.now()))
        .collect();
    for (limit, more) in [(3, true), (4, false), (5, false)] {
        let page = WorkspaceQuery::new().with_limit(limit).page(all.clone()).unwrap();
        assert_eq!((page.items.len(), page.next.is_some()), (limit.min(4), more), "{limit}");
    }
}

/// What is mounted is found by its name.
#[test]
fn mounts_are_found_by_their_names() {
    let mut mounts = agent_core::model::Mounts::default();
    let none = MountSet::default();
    assert!(none.is_empty() && none.get("a").is_none());
    mounts.pinned.extend([("a".to_owned(), Access::Read), ("b".to_owned(), Access::Write)]);
    let set = mounts.over(none, MountOrigin::Project);
    assert_eq!((set.len(), set.is_empty()), (2, false));
    assert_eq!(set.get("b"), Some(Mount::new(Access::Write, MountOrigin::Project)));
    assert_eq!(set.get("c"), None);
    assert_eq!(set.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
}

/// A call that was open from the first commit on leaves no point before it; that is said, and is no damage.
#[tokio::test]
async fn a_call_of_the_first_commit_allows_no_earlier_fork() {
    let (store, effects) = (MemoryStore::new(), Effects::default());
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let calling = NewEvent::tool_use("c".parse().unwrap(), "look", RawJson::empty_object());
    let now = store.commit(Commit::create(&effects, new).with_event(calling)).await.unwrap().session;
    for at in [None, Some(now.head)] {
        let refused = store.sessions(&effects).fork(now.id, at).await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{refused}");
        assert!(refused.to_string().contains("after its result"), "{refused}");
    }
}
