//! Agents and builds of a workspace, on each kind of store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use agent_admin::audit::{Audit, audited};
use agent_core::commit::{Commit, Committed, Step};
use agent_core::event::EventType;
use agent_core::model::{Actor, Patch};
use agent_core::session::{Fork, NewSession};
use agent_core::store::{EventPage, HiddenSession, ReadEvents, SessionStoreWrapper};
use agent_core::{Epoch, ErrorKind, MemoryStore, SessionId, SessionStore, Storage, WorkspaceId, async_trait};
use agent_runtime::agents::{
    Agents, BUILDS_MAX, Build, BuildClaim, BuildPrunePolicy, BuildRetainReason, BuildStatus,
};
use agent_runtime::documents::{DocumentWrite, Documents};
use agent_runtime::retention::SweepPolicy;
use agent_runtime::{NewWorkspace, WorkspaceManager};
use agent_tests::{Site, each_store};
use futures::future::join_all;

use crate::endings::site::{DAY, Hands, effects};
use crate::stores::shared::{check_record, log};

const TTL: Duration = Duration::from_secs(60);

fn agents(storage: &Storage) -> Agents {
    Agents::new(storage, WorkspaceId::DEFAULT)
}

fn builder(n: usize) -> Actor {
    format!("user:builder-{n}").parse().unwrap()
}

/// A registered agent.
async fn support(storage: &Storage) -> Agents {
    let agents = agents(storage);
    agents.register("support", "git:1", Actor::USER).await.unwrap();
    agents
}

async fn claim(agents: &Agents, by: usize) -> Option<BuildClaim> {
    agents.claim("support", builder(by), TTL).await.unwrap()
}

/// Requests, claims and completes a build.
async fn completed(agents: &Agents, image: &str) -> Build {
    agents.request("support", Actor::USER).await.unwrap();
    let claim = claim(agents, 0).await.unwrap();
    agents.complete(&claim, image).await.unwrap()
}

async fn failed(agents: &Agents) -> Build {
    agents.request("support", Actor::USER).await.unwrap();
    let claim = claim(agents, 0).await.unwrap();
    agents.fail(&claim, "no space left").await.unwrap()
}

/// A session made from a build.
async fn made_from(storage: &Storage, build: &Build) -> agent_core::SessionId {
    let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
    storage.sessions.create(new.with_patch(&build.pin())).await.unwrap().id
}

/// The same registration is one, another source another revision, all are there after a restart, listed by name.
async fn agents_are_registered_by_name_and_source(site: Site) {
    let clock = Hands::new();
    let storage = site.open().await.with_effects(effects(&clock));
    let known = agents(&storage);
    let first = known.register("support", "git:1", builder(1)).await.unwrap();
    assert_eq!((first.revision.get(), &first.by, &*first.source), (1, &builder(1), "git:1"));
    assert_eq!(known.register("support", "git:1", builder(2)).await.unwrap(), first, "{}", site.name);
    let second = known.register("support", "git:2", builder(2)).await.unwrap();
    assert!(second.revision.get() == 2 && second.at > first.at);
    let names: Vec<_> = (0..9).map(|n| format!("agent-{n}")).collect();
    let registered = names.iter().map(|name| known.register(name, "git:1", Actor::USER));
    join_all(registered).await.into_iter().for_each(|done| drop(done.unwrap()));
    let long = "x".repeat(201);
    for (name, source, actor, part) in [
        ("", "git:1", Actor::USER, "is empty"),
        (&*long, "git:1", Actor::USER, "has 201 bytes"),
        ("a\nb", "git:1", Actor::USER, "control character"),
        ("support", "", Actor::USER, "is empty"),
        ("support", "git:1", Actor::SYSTEM, "name the program"),
    ] {
        let error = known.register(name, source, actor).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let nowhere = Agents::new(&storage, storage.effects().new_workspace_id());
    assert!(nowhere.register("support", "git:1", Actor::USER).await.unwrap_err().is_absent());
    for error in [
        known.request("sales", Actor::USER).await.unwrap_err(),
        known.resolve("sales").await.unwrap_err(),
        known.builds("sales", 10, None).await.unwrap_err(),
        known.claim("sales", builder(1), TTL).await.unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(r#"has no agent "sales"; register it"#), "{error}");
    }
    drop((known, storage));

    let storage = site.open().await;
    let (known, mut found, mut after) = (agents(&storage), Vec::new(), None::<String>);
    loop {
        let page = known.list(4, after.as_deref()).await.unwrap();
        assert!(page.agents.len() <= 4);
        found.extend(page.agents.into_iter().map(|agent| agent.name));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, [names, vec!["support".to_owned()]].concat(), "{}", site.name);
    assert_eq!(known.get("support").await.unwrap(), Some(second));
    assert_eq!(known.get("sales").await.unwrap(), None);
    check_record(&storage, HiddenSession::agents(WorkspaceId::DEFAULT).id()).await;
}

each_store!(agents_are_registered_by_name_and_source and files);

/// A build goes pending, building, completed or failed, each with its time; every other way is refused by name, and
/// writes nothing.
async fn build_goes_only_its_way(site: Site) {
    let clock = Hands::new();
    let storage = site.open().await.with_effects(effects(&clock));
    let agents = support(&storage).await;
    let requested = agents.request("support", builder(7)).await.unwrap();
    assert_eq!((requested.number, requested.status), (1, BuildStatus::Pending));
    assert_eq!((&*requested.source, &requested.requested_by), ("git:1", &builder(7)));
    agents.register("support", "git:2", Actor::USER).await.unwrap();
    let claimed = claim(&agents, 1).await.unwrap();
    assert_eq!((claimed.build.status, &*claimed.build.source), (BuildStatus::Building, "git:1"));
    agents.heartbeat(&claimed).await.unwrap();
    let done = agents.complete(&claimed, "support:1").await.unwrap();
    assert_eq!(
        (done.status, done.image.as_deref(), &done.error),
        (BuildStatus::Completed, Some("support:1"), &None)
    );
    let times = [Some(done.requested_at), done.began_at, done.ended_at].map(Option::unwrap);
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    assert!(times[0].to_string().starts_with("2026-02"), "by the clock of the storage: {}", times[0]);
    assert_eq!(done.builder, Some(builder(1)));

    agents.request("support", Actor::USER).await.unwrap();
    let other = claim(&agents, 2).await.unwrap();
    let lost = agents.fail(&other, "step 4:\nno space").await.unwrap();
    assert_eq!(
        (lost.status, lost.error.as_deref(), &*lost.source),
        (BuildStatus::Failed, Some("step 4:\nno space"), "git:2")
    );
    let head = async || {
        let id = HiddenSession::builds(WorkspaceId::DEFAULT, "support").id();
        check_record(&storage, id).await.head
    };
    let before = head().await;
    assert_eq!(agents.complete(&claimed, "support:1").await.unwrap(), done, "again, with the same result");
    assert_eq!(agents.fail(&other, "step 4:\nno space").await.unwrap(), lost);
    for (error, is) in [
        (
            agents.complete(&claimed, "support:2").await.unwrap_err(),
            "is completed, and cannot become completed",
        ),
        (agents.fail(&claimed, "x").await.unwrap_err(), "is completed, and cannot become failed"),
        (agents.heartbeat(&claimed).await.unwrap_err(), "is completed, and cannot become building"),
        (agents.complete(&other, "support:2").await.unwrap_err(), "is failed, and cannot become completed"),
        (agents.fail(&other, "x").await.unwrap_err(), "is failed, and cannot become failed"),
        (agents.heartbeat(&other).await.unwrap_err(), "is failed, and cannot become building"),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
        assert!(error.to_string().contains(is), "{error}");
    }
    for (error, kind) in [
        (agents.complete(&other, "").await.unwrap_err(), ErrorKind::InvalidInput),
        (agents.complete(&other, &"x".repeat(513)).await.unwrap_err(), ErrorKind::InvalidInput),
        (agents.fail(&other, "").await.unwrap_err(), ErrorKind::InvalidInput),
        (agents.fail(&other, &"x".repeat(2049)).await.unwrap_err(), ErrorKind::LimitExceeded),
        (agents.claim("support", builder(1), Duration::ZERO).await.unwrap_err(), ErrorKind::InvalidInput),
        (agents.claim("support", Actor::SYSTEM, TTL).await.unwrap_err(), ErrorKind::InvalidInput),
    ] {
        assert_eq!(*error.kind(), kind, "{error}");
    }
    assert_eq!(claim(&agents, 3).await, None, "nothing is pending");
    assert_eq!(head().await, before, "nothing of this was written");
    let reopened = self::agents(&site.open().await);
    assert_eq!(reopened.builds("support", 10, None).await.unwrap().builds, [lost, done], "{}", site.name);
}

each_store!(build_goes_only_its_way and files);

#[test]
fn only_three_transitions_of_a_build_exist() {
    use BuildStatus::{Building, Completed, Failed, Pending};
    let all = BuildStatus::ALL.iter().flat_map(|from| BuildStatus::ALL.map(|to| (*from, to)));
    let possible: Vec<_> = all.filter(|(from, to)| from.may_become(*to)).collect();
    assert_eq!(possible, [(Pending, Building), (Building, Completed), (Building, Failed)]);
}

/// Of the builders that claim at once, each with its own handles, one gets the build.
async fn one_of_many_builders_gets_a_build(site: Site) {
    const BUILDERS: usize = 6;
    let site = site.unsynced();
    let mut builders = Vec::new();
    for _ in 0..BUILDERS {
        builders.push(agents(&site.open().await));
    }
    support(&site.open().await).await;
    for round in 1..=50 {
        let requested = builders[0].request("support", Actor::USER).await.unwrap();
        let claims = builders.iter().cloned().enumerate().map(|(n, agents)| {
            tokio::spawn(async move { agents.claim("support", builder(n), TTL).await.unwrap() })
        });
        let claims = join_all(claims).await.into_iter().filter_map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(claims.len(), 1, "{}: round {round}", site.name);
        assert_eq!((claims[0].build.number, claims[0].build.epoch), (requested.number, Epoch::new(1)));
        // All end it at once; only who has the claim may.
        let ends = builders.iter().cloned().map(|agents| {
            let claim = claims[0].clone();
            tokio::spawn(async move { agents.complete(&claim, "support:1").await })
        });
        join_all(ends).await.into_iter().for_each(|end| drop(end.unwrap().unwrap()));
    }
    assert_eq!(builders[0].resolve("support").await.unwrap().number, 50, "{}", site.name);
}

each_store!(one_of_many_builders_gets_a_build and files, flavor = "multi_thread");

/// A builder that sends no heartbeat for its ttl is replaced by one of those that wait; its heartbeat and its result are
/// refused, before and after the other one's result. One that sends heartbeats is not replaced, whatever the clocks show.
async fn dead_builder_is_replaced_and_its_late_result_refused(site: Site) {
    const SHORT: Duration = Duration::from_millis(200);
    let dead = support(&site.open().await).await;
    dead.request("support", Actor::USER).await.unwrap();
    let first = dead.claim("support", builder(1), SHORT).await.unwrap().unwrap();
    let mut waiting = Vec::new();
    for years in [0, 10, 20] {
        let clock = Hands::new();
        clock.forward(years * 365 * DAY);
        waiting.push(agents(&site.open().await.with_effects(effects(&clock))));
    }
    let claims = async || {
        let claims = waiting.iter().map(|agents| agents.claim("support", builder(2), TTL));
        let claims = join_all(claims).await.into_iter().filter_map(Result::unwrap).collect::<Vec<_>>();
        assert!(claims.len() <= 1, "{}: {claims:?}", site.name);
        claims.into_iter().next()
    };
    for _ in 0..3 {
        assert_eq!(claims().await, None, "{}: the builder lives", site.name);
        tokio::time::sleep(SHORT * 2).await;
        dead.heartbeat(&first).await.unwrap();
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let second = loop {
        assert!(tokio::time::Instant::now() < deadline, "{}: the builder was not replaced", site.name);
        if let Some(claim) = claims().await {
            break claim;
        }
        tokio::time::sleep(SHORT / 10).await;
    };
    assert_eq!((second.build.number, second.build.epoch), (1, Epoch::new(2)), "{}", site.name);
    let refused = async || {
        for error in [
            dead.heartbeat(&first).await.unwrap_err(),
            dead.complete(&first, "support:late").await.unwrap_err(),
            dead.fail(&first, "late").await.unwrap_err(),
        ] {
            assert_eq!(*error.kind(), ErrorKind::Fenced { epoch: Epoch::new(2) }, "{error}");
            assert!(error.to_string().contains("taken over by user:builder-2"), "{error}");
        }
    };
    refused().await;
    waiting[0].complete(&second, "support:1").await.unwrap();
    refused().await;
    let build = dead.resolve("support").await.unwrap();
    assert_eq!((build.image.as_deref(), build.builder), (Some("support:1"), Some(builder(2))));
}

each_store!(dead_builder_is_replaced_and_its_late_result_refused and files);

/// The newest completed build is resolved, not the one that was completed last; sessions keep the build that they were
/// made from, and so do their forks.
async fn newest_completed_build_is_resolved_and_pinned(site: Site) {
    let storage = site.open().await;
    let agents = support(&storage).await;
    let error = agents.resolve("support").await.unwrap_err();
    assert!(error.is_absent() && error.to_string().contains("has no completed build"), "{error}");
    let first = completed(&agents, "support:1").await;
    let early = made_from(&storage, &first).await;
    for _ in 0..3 {
        agents.request("support", Actor::USER).await.unwrap();
    }
    let (older, newer) = (claim(&agents, 1).await.unwrap(), claim(&agents, 2).await.unwrap());
    assert_eq!(agents.resolve("support").await.unwrap(), first, "others are only building");
    let newer = agents.complete(&newer, "support:3").await.unwrap();
    agents.complete(&older, "support:2").await.unwrap();
    let last = claim(&agents, 3).await.unwrap();
    agents.fail(&last, "no space left").await.unwrap();
    assert_eq!(agents.resolve("support").await.unwrap(), newer, "{}", site.name);

    let late = made_from(&storage, &agents.resolve("support").await.unwrap()).await;
    let fork = storage.sessions.fork(early, Fork::new()).await.unwrap().id;
    drop((agents, storage));
    let storage = site.open().await;
    for (session, number) in [(early, 1), (late, 3), (fork, 1)] {
        let session = storage.sessions.load(session).await.unwrap();
        assert_eq!(Build::pinned(&session.attributes), Some(("support", number)), "{}", site.name);
        assert_eq!(session.attributes.references["agent.image"], format!("support:{number}"));
    }
    assert_eq!(self::agents(&storage).resolve("support").await.unwrap(), newer, "{}", site.name);
}

each_store!(newest_completed_build_is_resolved_and_pinned and files);

/// All builds that an agent may have are listed by page, newest first; one more is refused until some are pruned.
async fn thousands_of_builds_are_listed_and_bounded(site: Site) {
    let site = site.unsynced();
    let storage = site.open().await;
    let agents = support(&storage).await;
    for _ in 0..BUILDS_MAX {
        agents.request("support", Actor::USER).await.unwrap();
    }
    let error = agents.request("support", Actor::USER).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LimitExceeded, "{}", site.name);
    assert!(error.to_string().contains("at most 1920; prune them"), "{error}");
    let listed = async |agents: &Agents| {
        let (mut numbers, mut before) = (Vec::new(), None);
        loop {
            let page = agents.builds("support", 100, before).await.unwrap();
            assert!(page.builds.len() <= 100);
            numbers.extend(page.builds.iter().map(|build| build.number));
            before = page.next;
            if before.is_none() {
                return numbers;
            }
        }
    };
    let reopened = self::agents(&site.open().await);
    assert!(listed(&reopened).await.into_iter().eq((1..=BUILDS_MAX).rev()), "{}", site.name);
    for number in 1..=40 {
        let claim = claim(&agents, 1).await.unwrap();
        assert_eq!(claim.build.number, number, "the oldest one first");
        agents.fail(&claim, "no space left").await.unwrap();
    }
    let policy = BuildPrunePolicy::new(Duration::ZERO);
    let report = agents.prune("support", &policy, Actor::USER).await.unwrap();
    assert_eq!((report.removed.len(), report.retained.len()), (40, 1880), "{}", site.name);
    assert_eq!(agents.request("support", Actor::USER).await.unwrap().number, 1921);
    assert!(listed(&reopened).await.into_iter().eq((41..=1921).rev()), "{}", site.name);
}

each_store!(thousands_of_builds_are_listed_and_bounded);

/// Counts the reads of events, and the bytes of what is written.
#[derive(Debug, Default)]
struct Counting {
    under: MemoryStore,
    reads: AtomicU64,
    written: AtomicU64,
}

#[async_trait]
impl SessionStoreWrapper for Counting {
    fn inner(&self) -> &dyn SessionStore {
        &self.under
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> agent_core::Result<EventPage> {
        self.reads.fetch_add(1, SeqCst);
        SessionStore::read(&self.under, id, read).await
    }

    async fn commit(&self, commit: Commit) -> agent_core::Result<Committed> {
        let events = commit.steps.iter().filter_map(|step| match step {
            Step::Event(event) => Some(event.payload.get().len() as u64),
            Step::Trigger(_) => None,
            _ => None,
        });
        self.written.fetch_add(events.sum(), SeqCst);
        SessionStore::commit(&self.under, commit).await
    }
}

/// A page of builds reads the documents of its builds, wherever it begins. A heartbeat writes little, however many builds wait.
#[tokio::test]
async fn pages_and_heartbeats_cost_the_same_among_many_builds() {
    let store = Arc::new(Counting::default());
    let under = Arc::new(store.under.clone());
    let agents = support(&Storage::new(under.clone(), store.clone(), under)).await;
    for _ in 0..320 {
        agents.request("support", Actor::USER).await.unwrap();
    }
    let (mut before, mut pages) = (None, 0);
    loop {
        store.reads.store(0, SeqCst);
        let page = agents.builds("support", 32, before).await.unwrap();
        // The one after them says whether there is another page.
        assert!(store.reads.load(SeqCst) <= 2, "{} reads for page {pages}", store.reads.load(SeqCst));
        (before, pages) = (page.next, pages + 1);
        if before.is_none() {
            break;
        }
    }
    assert_eq!(pages, 10);
    let claim = claim(&agents, 1).await.unwrap();
    store.written.store(0, SeqCst);
    agents.heartbeat(&claim).await.unwrap();
    let written = store.written.load(SeqCst);
    assert!((1..300).contains(&written), "{written} bytes");
}

/// An agent of any name keeps what it learns apart from the agents and the builds.
#[tokio::test]
async fn no_agent_has_the_name_of_the_registry() {
    let place = WorkspaceId::DEFAULT;
    let own = [HiddenSession::agents(place), HiddenSession::builds(place, "support")];
    for name in ["agents", "builds", "builds/support", "registry", "registry/support", "/support"] {
        let learned = HiddenSession::agent(place, name);
        assert!(own.iter().all(|own| own.id() != learned.id()), "{name}");
    }
    let storage = Storage::from(MemoryStore::new());
    for hidden in own {
        let session = hidden.open(&storage.sessions).await.unwrap();
        assert_eq!(HiddenSession::of(session.id, session.workspace, &session.attributes), Some(hidden));
    }
}

/// Old builds are removed, except the newest completed one, those in progress, and those that sessions pin that are not
/// deleted; their age counts from the build that replaced them.
async fn prune_keeps_what_is_pinned_or_in_progress(site: Site) {
    let clock = Hands::new();
    let storage = site.open().await.with_effects(effects(&clock));
    let (agents, manager) = (support(&storage).await, WorkspaceManager::new(storage.clone()));
    manager.default_workspace().await.unwrap();
    let day = BuildPrunePolicy::new(DAY);
    let prune = async |policy: &BuildPrunePolicy| {
        let report = agents.prune("support", policy, Actor::USER).await.unwrap();
        let removed: Vec<_> = report.removed.iter().map(|build| build.number).collect();
        let retained: Vec<_> = report.retained.into_iter().map(|kept| (kept.number, kept.reason)).collect();
        (removed, retained)
    };
    let first = completed(&agents, "support:1").await;
    clock.forward(30 * DAY);
    let second = completed(&agents, "support:2").await;
    let (removed, retained) = prune(&day).await;
    assert_eq!(removed, [0; 0], "{}: it was the newest until now", site.name);
    assert_eq!(retained[0], (2, BuildRetainReason::Newest));
    assert!(
        matches!(retained[1], (1, BuildRetainReason::Recent { since, .. }) if Some(since) == second.ended_at)
    );

    let third = completed(&agents, "support:3").await;
    let fourth = completed(&agents, "support:4").await;
    let parent = made_from(&storage, &first).await;
    let fork = storage.sessions.fork(parent, Fork::new()).await.unwrap().id;
    manager.delete_session(parent).await.unwrap();
    let archived = made_from(&storage, &second).await;
    storage.sessions.trigger(archived, agent_core::commit::Trigger::Archive).await.unwrap();
    let deleted = made_from(&storage, &third).await;
    manager.delete_session(deleted).await.unwrap();
    // Another agent's build of the same number pins nothing here.
    let other = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
    let stranger = Patch::new().with_reference("agent", "sales").with_reference("agent.build", "4");
    storage.sessions.create(other.with_patch(&stranger)).await.unwrap();
    failed(&agents).await;
    let newest = completed(&agents, "support:6").await;
    failed(&agents).await;
    for _ in 0..2 {
        agents.request("support", Actor::USER).await.unwrap();
    }
    let building = claim(&agents, 1).await.unwrap();
    assert_eq!(prune(&day).await.0, [0; 0], "{}: all are recent", site.name);

    clock.forward(2 * DAY);
    let kept = [
        (9, BuildRetainReason::InProgress),
        (8, BuildRetainReason::InProgress),
        (6, BuildRetainReason::Newest),
    ];
    let before = agents.builds("support", 100, None).await.unwrap();
    let dry = prune(&day.clone().with_dry_run()).await;
    assert_eq!(agents.builds("support", 100, None).await.unwrap(), before, "{}: dry", site.name);
    assert_eq!(prune(&day).await, dry, "{}", site.name);
    assert_eq!((&*dry.0, &dry.1[..3]), (&[7, 5, 4, 3][..], &kept[..]), "{}", site.name);
    for (at, number, by) in [(3, 2, archived), (4, 1, fork)] {
        assert!(
            matches!(dry.1[at], (n, BuildRetainReason::Pinned { session, .. }) if (n, session) == (number, by))
        );
    }
    assert_eq!(agents.resolve("support").await.unwrap(), newest);
    assert_eq!(agents.build("support", 4).await.unwrap(), None);
    assert_eq!(agents.build("support", 1).await.unwrap(), Some(first));
    assert_eq!(prune(&day).await, (vec![], dry.1), "{}: again", site.name);
    // The session of a build that was removed keeps what it was made from.
    let late = made_from(&storage, &fourth).await;
    assert_eq!(Build::pinned(&storage.sessions.load(late).await.unwrap().attributes), Some(("support", 4)));
    let eighth = agents.complete(&building, "support:8").await.unwrap();
    // Sweeps leave the records alone, however old they are.
    clock.forward(1000 * DAY);
    manager.sweep(&SweepPolicy::new().with_delete_archived(DAY).with_purge_deleted(DAY)).await.unwrap();
    assert_eq!(agents.resolve("support").await.unwrap(), eighth, "{}", site.name);
    check_record(&storage, HiddenSession::builds(WorkspaceId::DEFAULT, "support").id()).await;
}

each_store!(prune_keeps_what_is_pinned_or_in_progress and files);

/// What is in an owner's workspace only that owner and the tenant see; what is in a workspace without an owner, all do.
async fn owners_see_the_agents_of_their_workspaces(site: Site) {
    let tenant = site.open().await;
    let owner = |name: &str| tenant.for_owner(&name.parse().unwrap());
    let (alice, bob) = (owner("alice"), owner("bob"));
    let new = NewWorkspace::new("alice's");
    let own = WorkspaceManager::new(alice.clone()).create(new).await.unwrap().id;
    let shared = WorkspaceManager::new(tenant.clone()).create(NewWorkspace::new("all")).await.unwrap().id;

    let hers = Agents::new(&alice, own);
    hers.register("support", "git:1", Actor::USER).await.unwrap();
    let build = completed(&hers, "support:1").await;
    let his = Agents::new(&bob, own);
    assert_eq!(his.list(10, None).await.unwrap().agents, [], "{}", site.name);
    assert_eq!(his.get("support").await.unwrap(), None);
    for error in [
        his.register("support", "git:2", Actor::USER).await.unwrap_err(),
        his.request("support", Actor::USER).await.unwrap_err(),
        his.claim("support", builder(1), TTL).await.unwrap_err(),
        his.builds("support", 10, None).await.unwrap_err(),
        his.build("support", 1).await.unwrap_err(),
        his.resolve("support").await.unwrap_err(),
        his.prune("support", &BuildPrunePolicy::new(Duration::ZERO), Actor::USER).await.unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::NotFound, "{}: {error}", site.name);
    }
    assert_eq!(Agents::new(&tenant, own).resolve("support").await.unwrap(), build);
    let session = WorkspaceManager::new(alice.clone()).new_session(own, &build.pin()).await.unwrap();
    let newer = completed(&hers, "support:2").await;
    let report = hers.prune("support", &BuildPrunePolicy::new(Duration::ZERO), Actor::USER).await.unwrap();
    assert_eq!(report.removed, []);
    assert!(
        matches!(report.retained[1].reason, BuildRetainReason::Pinned { session: by, .. } if by == session.id)
    );
    assert_eq!(hers.resolve("support").await.unwrap(), newer);

    for place in [shared, WorkspaceId::DEFAULT] {
        let (hers, his) = (Agents::new(&alice, place), Agents::new(&bob, place));
        hers.register("sales", "git:1", Actor::USER).await.unwrap();
        assert_eq!(his.list(10, None).await.unwrap().agents[0].name, "sales", "{}", site.name);
        his.request("sales", Actor::USER).await.unwrap();
        let claim = hers.claim("sales", builder(1), TTL).await.unwrap().unwrap();
        let build = hers.complete(&claim, "sales:1").await.unwrap();
        assert_eq!(his.resolve("sales").await.unwrap(), build);
        let policy = BuildPrunePolicy::new(Duration::ZERO);
        let error = his.prune("sales", &policy, Actor::USER).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Denied, "{error}");
        Agents::new(&tenant, place).prune("sales", &policy, Actor::USER).await.unwrap();
    }
    assert!(hers.list(10, None).await.unwrap().agents.iter().all(|agent| agent.name == "support"));
}

each_store!(owners_see_the_agents_of_their_workspaces and files);

/// Each change is an event with its actor and its time, which no later change removes; the deletion of the workspace, which
/// does, is in the audit.
async fn changes_of_agents_and_builds_are_recorded(site: Site) {
    let clock = Hands::new();
    let plain = site.open().await.with_effects(effects(&clock));
    let storage = audited(&plain, builder(9));
    let manager = WorkspaceManager::new(storage.clone());
    let place = manager.create(NewWorkspace::new("Notes")).await.unwrap().id;
    let agents = Agents::new(&storage, place);
    agents.register("support", "git:1", builder(1)).await.unwrap();
    agents.register("support", "git:2", builder(2)).await.unwrap();
    agents.request("support", builder(3)).await.unwrap();
    let claim = agents.claim("support", builder(4), TTL).await.unwrap().unwrap();
    agents.fail(&claim, "no space left").await.unwrap();
    agents.prune("support", &BuildPrunePolicy::new(Duration::ZERO), builder(5)).await.unwrap();
    let of_builds = HiddenSession::builds(place, "support");
    for (hidden, by) in [(HiddenSession::agents(place), vec![1, 2]), (of_builds, vec![3, 4, 4, 5])] {
        let log = log(&plain, hidden.id()).await;
        let written = log.iter().filter(|event| event.kind == EventType::SESSION_DOCUMENT_WRITTEN);
        let mut changes: Vec<_> = written.map(|event| (event.commit, event.actor.clone())).collect();
        changes.dedup();
        let actors: Vec<_> = changes.into_iter().map(|(_, actor)| actor).collect();
        assert_eq!(actors, by.into_iter().map(builder).collect::<Vec<_>>(), "{}", site.name);
        assert!(log.iter().all(|event| event.at.to_string().starts_with("2026-02")), "{}", site.name);
    }
    manager.delete(place).await.unwrap();
    let entries = Audit::of(&plain).list(100, None).await.unwrap().entries;
    assert_eq!(entries[0].audited.operation.as_str(), "workspace.delete", "{}", site.name);
    assert_eq!((entries[0].audited.workspace, &entries[0].by), (Some(place), &builder(9)));
    let error = agents.get("support").await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Deleted, "{}: {error}", site.name);
}

each_store!(changes_of_agents_and_builds_are_recorded and files);

/// Documents of a newer form are refused by name; those that are none of ours are damaged.
async fn newer_and_damaged_records_are_refused(site: Site) {
    let storage = site.open().await;
    let agents = support(&storage).await;
    completed(&agents, "support:1").await;
    let documents = |hidden: &HiddenSession| Documents::new(storage.sessions.clone(), hidden.id());
    let (of_builds, of_agents) =
        (HiddenSession::builds(WorkspaceId::DEFAULT, "support"), HiddenSession::agents(WorkspaceId::DEFAULT));
    for (hidden, name) in [(&of_builds, "builds/0"), (&of_builds, "builds"), (&of_agents, "agents")] {
        let before = documents(hidden).get(name).await.unwrap().unwrap();
        for (text, format, kind) in [
            (&*before.text, 2, ErrorKind::Unsupported),
            ("[1]", 1, ErrorKind::Corrupt),
            ("{\"last\":1", 1, ErrorKind::Corrupt),
        ] {
            let write = DocumentWrite::new(name, text, Actor::USER).with_format(format);
            documents(hidden).put(write).await.unwrap();
            let error = match name {
                "agents" => agents.request("support", Actor::USER).await.unwrap_err(),
                _ => agents.resolve("support").await.unwrap_err(),
            };
            assert_eq!(*error.kind(), kind, "{}: {error}", site.name);
            assert!(error.to_string().starts_with(&format!("document {name} of session")), "{error}");
        }
        documents(hidden).restore(name, before.revision, Actor::USER).await.unwrap();
    }
    assert_eq!(agents.resolve("support").await.unwrap().number, 1, "{}", site.name);
    agents.request("support", Actor::USER).await.unwrap();
}

each_store!(newer_and_damaged_records_are_refused and files);
