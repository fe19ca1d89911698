//! Every call to the system failed once, in what comes later in a store's life: recovery, purge, changes, deletion.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::support::{EIO, ENOSPC, Spy, append_text, files, fill, folder_of, hasty, session, texts};
use agent_core::clock::Effects;
use agent_core::commit::{Precondition, Trigger};
use agent_core::model::Workspace;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, ReadEvents};
use agent_core::{
    BindingStore, DeviceId, ErrorKind, Result, Seq, SessionId, SessionStore, SessionStoreExt, Timestamp,
    WorkspaceId, WorkspaceStore, WriteOutcome,
};
use agent_storage_fs::{FsConfig, FsStore};

/// A store that has lived a while.
struct Life {
    effects: Effects,
    /// Its log ends with rubbish.
    torn: SessionId,
    /// It was deleted, and can be purged.
    deleted: SessionId,
    head: Seq,
    leaving: WorkspaceId,
    device: DeviceId,
}

const RUBBISH: &[u8] = b"{\"seq\":4,\"id\":\"half";
const STEPS: usize = 7;

impl Life {
    async fn new(root: &Path) -> Self {
        let effects = Effects::default();
        let store = hasty(root).await;
        let (torn, deleted) = (session(&store, &effects).await.id, session(&store, &effects).await.id);
        fill(&store, &effects, torn, 3).await;
        fill(&store, &effects, deleted, 5).await;
        let head = store
            .sessions(&effects)
            .trigger(deleted, Trigger::Delete(Reason::UserDeleted))
            .await
            .unwrap()
            .last;
        let (leaving, device) = (effects.new_workspace_id(), "laptop".parse().unwrap());
        for id in [WorkspaceId::DEFAULT, leaving] {
            let record = Workspace::new(id, "old", torn, Timestamp::UNIX_EPOCH);
            store.put(record, Precondition::MustNotExist).await.unwrap();
        }
        store
            .save_config(WorkspaceId::DEFAULT, Some("old".into()), Precondition::MustNotExist)
            .await
            .unwrap();
        store.bind(&device, leaving, Precondition::None).await.unwrap();
        drop(store);
        let log = folder_of(root, torn).join("events.jsonl");
        std::fs::OpenOptions::new().append(true).open(log).unwrap().write_all(RUBBISH).unwrap();
        Self { effects, torn, deleted, head, leaving, device }
    }

    async fn step(&self, store: &FsStore, step: usize) -> Result<()> {
        let default = WorkspaceId::DEFAULT;
        match step {
            0 => {
                let events = vec![agent_core::event::NewEvent::user_message("on")];
                let commit = agent_core::commit::Commit::seal(&self.effects, self.torn, Seq::new(3));
                store.commit(commit.with_events(events)).await.map(drop)
            }
            1 => store
                .purge(Purge::new(self.deleted, self.head).with_keep_through(Seq::new(1)))
                .await
                .map(drop),
            2 => store.save_config(default, Some("new".into()), Precondition::MustExist).await,
            3 => store.touch(default, Timestamp::from_micros(1)).await,
            4 => {
                let record = WorkspaceStore::load(store, default).await?;
                store.put(record.with_name("new"), Precondition::MustExist).await.map(drop)
            }
            5 => store.unbind(&self.device).await.map(drop),
            _ => store.delete(self.leaving).await,
        }
    }

    /// Whether a step has happened, as the files show it; anything between is a failure.
    async fn happened(&self, root: &Path, store: &FsStore, step: usize, context: &str) -> bool {
        let default = WorkspaceId::DEFAULT;
        let there = match step {
            0 => {
                let texts = texts(store, self.torn).await;
                let on = texts.last().is_some_and(|text| text == "on");
                assert_eq!(texts.len(), 2 + usize::from(on), "{context}: {texts:?}");
                let kept =
                    files(&folder_of(root, self.torn)).into_iter().any(|(_, bytes)| bytes.ends_with(RUBBISH));
                assert!(kept, "{context}: the torn end is neither in the log nor beside it");
                return on;
            }
            1 => {
                let record = SessionStore::load(store, self.deleted).await.unwrap();
                assert_eq!(
                    (record.status.state, record.head),
                    (SessionState::Deleted, self.head),
                    "{context}"
                );
                let page = store.read(self.deleted, ReadEvents::default()).await.unwrap();
                (page.events.len() as u64, self.head.get(), 1)
            }
            2 => {
                let text = store.load_config(default).await.unwrap().unwrap();
                (u64::from(text == "new") + 2 * u64::from(text == "old"), 2, 1)
            }
            3 => {
                let last = WorkspaceStore::load(store, default).await.unwrap().last_accessed;
                (last.as_micros() as u64, 0, 1)
            }
            4 => {
                let name = WorkspaceStore::load(store, default).await.unwrap().name;
                (u64::from(name == "new") + 2 * u64::from(name == "old"), 2, 1)
            }
            5 => (u64::from(store.resolve(&self.device).await.unwrap().is_none()), 0, 1),
            _ => match WorkspaceStore::load(store, self.leaving).await {
                Ok(record) => {
                    assert_eq!(record.name, "old", "{context}");
                    (0, 0, 1)
                }
                Err(error) => {
                    assert_eq!(*error.kind(), ErrorKind::Deleted, "{context}: {error:?}");
                    (1, 0, 1)
                }
            },
        };
        let (seen, before, after) = there;
        assert!(seen == before || seen == after, "{context}: neither before nor after, {seen}");
        seen == after
    }
}

async fn run(persistent: bool, errno: i32) {
    let mut fired = 0;
    for n in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let life = Life::new(root).await;
        let spy = Spy::new();
        let store = FsConfig::new(root).with_io(Arc::new(spy.clone())).open().await.unwrap();
        spy.take();
        spy.fail(move |index, _| (index == n || (persistent && index > n)).then_some(errno));
        let mut outcome = Vec::new();
        for step in 0..STEPS {
            outcome.push(life.step(&store, step).await);
        }
        let calls = spy.take();
        drop(store);
        if spy.heal() == 0 {
            break;
        }
        fired += 1;
        let store = hasty(root).await;
        for (step, outcome) in outcome.iter().enumerate() {
            let context =
                format!("step {step}, {outcome:?}; call {n}, {:?}, failed with {errno}", calls.get(n));
            let happened = life.happened(root, &store, step, &context).await;
            match outcome {
                Ok(()) => assert!(happened, "{context}: acknowledged"),
                Err(error) if error.write_outcome() == WriteOutcome::NotApplied => {
                    assert!(!happened, "{context}: said not to have happened");
                }
                Err(_) => {}
            }
            // It can be done, or done again.
            if step > 0 || !happened {
                life.step(&store, step).await.unwrap_or_else(|error| panic!("{context}: then {error:?}"));
            }
            assert!(life.happened(root, &store, step, &context).await, "{context}: then");
        }
        append_text(&store, &life.effects, life.torn, Seq::new(4), "on and on").await;
    }
    assert!(fired > 60, "only {fired} calls were failed");
}

/// Each call fails once.
#[tokio::test]
async fn call_failure_during_maintenance_loses_nothing() {
    run(false, EIO).await;
}

/// The disk fills up at any call.
#[tokio::test]
async fn disk_full_during_maintenance_loses_nothing() {
    run(true, ENOSPC).await;
}
