//! Restores of backups that were taken during random courses: each session is as it was at some moment, and no run of before writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use agent_admin::copy::StoreCopy;
use agent_admin::fence::fence_sessions;
use agent_admin::verify::verify;
use agent_core::commit::{Commit, EPOCHS_PER_FENCE, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{Event, NewEvent};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::ReadEvents;
use agent_core::{Epoch, ErrorKind, MemoryStore, RunId, Seq, SessionId, Storage, WorkspaceId};
use agent_runtime::WorkspaceManager;
use agent_tests::{Site, each_store};

/// Random numbers that are the same for one seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
}

/// Sessions of a store in use, each with its record at each moment, and all runs that ever held a lease.
struct Course {
    storage: Storage,
    sessions: Vec<SessionId>,
    records: HashMap<(SessionId, Seq), Arc<SessionRecord>>,
    runs: Vec<(SessionId, RunId, Epoch)>,
    dice: Dice,
}

impl Course {
    async fn new(storage: &Storage, seed: u64) -> Self {
        WorkspaceManager::new(storage.clone()).default_workspace().await.unwrap();
        let (sessions, records, runs) = (Vec::new(), HashMap::new(), Vec::new());
        let mut course = Self { storage: storage.clone(), sessions, records, runs, dice: Dice(seed) };
        for _ in 0..4 {
            let new = NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT);
            let session = storage.sessions.create(new).await.unwrap();
            course.sessions.push(session.id);
            course.records.insert((session.id, session.head), session);
        }
        course
    }

    /// Takes a step in one session. What its state does not allow is refused, and changes nothing.
    async fn step(&mut self) {
        let id = self.sessions[self.dice.below(4) as usize];
        let now = self.storage.sessions.load(id).await.unwrap();
        let commit = Commit::seal(self.storage.effects(), id, now.head);
        let run = self.storage.effects().new_run_id();
        let holder = self.runs.iter().rev().find(|held| held.0 == id && Some(held.2) == lease(&now)).copied();
        let commit = match (self.dice.below(12), holder) {
            (0..3, _) => commit.with_event(NewEvent::user_message("a question")),
            (3..6, None) => commit.with_trigger(Trigger::BeginRun(LeaseRequest::new("laptop", run))),
            (3..6, Some((_, run, epoch))) => {
                commit.with_fence(run, epoch).with_event(NewEvent::agent_message("an answer"))
            }
            (6..8, Some((_, run, epoch))) => commit
                .with_fence(run, epoch)
                .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn))),
            (8, Some((_, _, epoch))) => commit.with_trigger(Trigger::LeaseExpired(epoch)),
            (9, _) => commit.with_trigger(Trigger::ForceSuspend(Reason::UserPaused)),
            (10, _) => commit.with_trigger(Trigger::Resume),
            (11, _) if self.dice.below(20) == 0 => commit.with_trigger(Trigger::Delete(Reason::UserDeleted)),
            _ => return,
        };
        let Ok(done) = self.storage.sessions.commit(commit).await else { return };
        if let Some(epoch) = lease(&done.session).filter(|epoch| Some(*epoch) != lease(&now)) {
            self.runs.push((id, run, epoch));
        }
        self.records.insert((id, done.session.head), done.session);
    }
}

fn lease(record: &SessionRecord) -> Option<Epoch> {
    record.lease.as_ref().map(|lease| lease.epoch)
}

async fn log(storage: &Storage, id: SessionId) -> Vec<Event> {
    storage.sessions.read(id, ReadEvents::first(1000)).await.unwrap().events
}

/// Lets no run write that began before the restore, while others begin and end.
async fn no_zombie_writes(course: &Course, restored: &Storage) {
    for round in 0..3 {
        for (id, run, epoch) in &course.runs {
            let Ok(now) = restored.sessions.load(*id).await else { continue };
            let late = Commit::seal(restored.effects(), *id, now.head)
                .with_fence(*run, *epoch)
                .with_event(NewEvent::agent_message("from before"));
            let error = restored.sessions.commit(late).await.expect_err("a run of before writes nothing");
            let is_over = matches!(error.kind(), ErrorKind::Fenced { .. } | ErrorKind::Deleted);
            assert!(is_over, "round {round}: {error:?}");
        }
        for id in &course.sessions {
            let Ok(now) = restored.sessions.load(*id).await else { continue };
            if now.status.state.is_hidden() {
                continue;
            }
            let begin = Commit::seal(restored.effects(), *id, now.head)
                .with_event(NewEvent::user_message("go on"))
                .with_trigger(Trigger::BeginRun(LeaseRequest::new(
                    "laptop",
                    restored.effects().new_run_id(),
                )));
            // A suspended session begins none.
            let _ = restored.sessions.commit(begin).await;
        }
    }
}

/// Backups during random courses restore to a state that each session had at some moment, and nothing of before writes.
async fn a_restore_is_a_moment_and_fences_what_was_before(site: Site) {
    let courses = std::env::var("AGENT_TEST_RESTORES").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let tenants = site.tenants().await;
    let (mut restored, mut partial, mut between) = (0, 0, 0);
    for seed in 0..courses {
        let storage = tenants.tenant(&format!("course-{seed}").parse().unwrap());
        let mut course = Course::new(&storage, seed).await;
        let before = course.dice.below(60);
        for _ in 0..before {
            course.step().await;
        }
        // The backup is taken while the course goes on.
        let backup = Storage::from(MemoryStore::new());
        let copy = StoreCopy::new(storage.clone(), backup.clone()).with_sessions_at_once(1);
        let (done, ()) = tokio::join!(copy.run(), async {
            for _ in 0..40 {
                course.step().await;
                tokio::task::yield_now().await;
            }
        });
        let done = done.unwrap();
        assert!(done.damaged.is_empty(), "seed {seed}: {done:?}");
        // The place is lost, and its runs are not.
        let place = Storage::from(MemoryStore::new());
        if seed % 2 == 0 {
            // One that was cut off: what it copied is not fenced yet.
            StoreCopy::new(backup.clone(), place.clone()).run().await.unwrap();
            partial += 1;
            // Runs whose lease is in the backup write in between.
            for (id, run, epoch) in &course.runs {
                let Ok(now) = place.sessions.load(*id).await else { continue };
                let late = Commit::seal(place.effects(), *id, now.head)
                    .with_fence(*run, *epoch)
                    .with_event(NewEvent::agent_message("before the fence"));
                between += u64::from(place.sessions.commit(late).await.is_ok());
            }
        }
        let restore = StoreCopy::new(backup.clone(), place.clone()).with_fences();
        let first = restore.run().await.unwrap();
        assert!(first.is_whole(), "seed {seed}: {first:?}");
        let mut now = BTreeMap::new();
        for id in &course.sessions {
            let Ok(there) = backup.sessions.load(*id).await else { continue };
            let here = place.sessions.load(*id).await.unwrap();
            assert_eq!(course.records.get(&(*id, there.head)), Some(&there), "seed {seed}: it was a moment");
            let (old, new) = (log(&backup, *id).await, log(&place, *id).await);
            assert_eq!(old, new[..old.len()], "seed {seed}");
            match there.status.state {
                SessionState::Deleted => assert_eq!(here, there),
                _ => {
                    assert!(here.epoch.get() >= there.epoch.get() + EPOCHS_PER_FENCE && here.lease.is_none());
                    assert!((1..=10).contains(&(new.len() - old.len())), "seed {seed}");
                    restored += 1;
                }
            }
            now.insert(*id, here);
        }
        // What is restored and fenced is left as it is.
        let again = restore.run().await.unwrap();
        assert!(again.is_whole() && again.fenced == 0 && again.events == 0, "seed {seed}: {again:?}");
        for (id, record) in &now {
            assert_eq!(place.sessions.load(*id).await.unwrap(), *record, "seed {seed}");
        }
        no_zombie_writes(&course, &place).await;
        assert!(verify(&place, |_| {}).await.unwrap().is_sound(), "seed {seed}");
    }
    assert!(restored > courses && partial > 0 && between > 0, "{restored} of {courses} courses, {between}");
}

each_store!(a_restore_is_a_moment_and_fences_what_was_before and files);

/// A place that is restored twice from one backup fences the runs of between.
async fn a_second_restore_fences_the_runs_after_the_first(site: Site) {
    let storage = site.open().await;
    let mut course = Course::new(&storage, 7).await;
    for _ in 0..80 {
        course.step().await;
    }
    let backup = Storage::from(MemoryStore::new());
    StoreCopy::new(storage, backup.clone()).run().await.unwrap();
    course.runs.clear();
    for _ in 0..2 {
        let place = Storage::from(MemoryStore::new());
        StoreCopy::new(backup.clone(), place.clone()).with_fences().run().await.unwrap();
        no_zombie_writes(&course, &place).await;
        // Its runs live on when it is lost, too.
        for id in &course.sessions {
            let now = place.sessions.load(*id).await.unwrap();
            let held = now.lease.as_ref().map(|lease| (*id, lease.run, lease.epoch));
            course.runs.extend(held);
        }
    }
    assert!(!course.runs.is_empty());
}

each_store!(a_second_restore_fences_the_runs_after_the_first);

/// A store that was put back byte for byte is fenced as a whole, with hidden sessions; one that cannot be read is named.
async fn a_store_that_was_put_back_is_fenced(site: Site) {
    let storage = site.open().await;
    let mut course = Course::new(&storage, 3).await;
    for _ in 0..60 {
        course.step().await;
    }
    let archived = course.sessions[0];
    storage.sessions.trigger(archived, Trigger::ForceSuspend(Reason::UserPaused)).await.unwrap();
    storage.sessions.trigger(archived, Trigger::Archive).await.unwrap();
    let fenced = fence_sessions(&storage).await.unwrap();
    let mut living = 0;
    for id in &course.sessions {
        let now = storage.sessions.load(*id).await.unwrap();
        living += u64::from(now.status.state != SessionState::Deleted);
        assert!(now.lease.is_none());
    }
    assert_eq!((fenced.sessions, fenced.damaged), (living, vec![]));
    no_zombie_writes(&course, &storage).await;
    let denied = fence_sessions(&storage.for_owner(&"alice".parse().unwrap())).await.unwrap_err();
    assert_eq!(*denied.kind(), ErrorKind::Denied);
}

each_store!(a_store_that_was_put_back_is_fenced);
