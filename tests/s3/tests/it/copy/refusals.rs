//! Refusals of a copy: each object that is not copied is named, and nothing is overwritten.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_admin::copy::{CopyStage, StoreCopy};
use agent_core::clock::Effects;
use agent_core::commit::{Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::{EventPage, ReadEvents, SessionStoreWrapper};
use agent_core::{MemoryStore, Result, SessionId, SessionStore, Storage, WorkspaceStoreExt, async_trait};

use crate::copy::world::{Place, fill, read_all};

/// What the target has otherwise is named and stays; all else is copied.
#[tokio::test]
async fn differing_target_objects_are_named_and_kept() {
    let effects = Effects::default();
    let (here, there) = (Place::new("sqlite"), Place::new("files"));
    let (source, target) = (here.open().await, there.open().await);
    let world = fill(&source, &effects).await;
    assert!(StoreCopy::new(source.clone(), target.clone()).run().await.unwrap().is_whole());

    // Another name and configuration, a message, another history, a deletion, another binding; and something new to copy.
    let mut workspace = target.workspaces.load(world.workspace).await.unwrap();
    workspace.name = "mine".to_owned();
    target.workspaces.update(workspace).await.unwrap();
    let mut other = source.workspaces.list(agent_core::store::WorkspaceQuery::new()).await.unwrap().items;
    other.retain(|workspace| workspace.id != world.workspace);
    let changed = Some("provider = 'mine'".to_owned());
    target.workspaces.save_config(other[0].id, changed, Precondition::MustNotExist).await.unwrap();
    source
        .workspaces
        .save_config(other[0].id, Some("a = 1".to_owned()), Precondition::MustNotExist)
        .await
        .unwrap();
    let head = target.sessions.load(world.main).await.unwrap().head;
    for (storage, text) in [(&target, "mine"), (&source, "theirs")] {
        storage.sessions.append(world.main, head, vec![NewEvent::user_message(text)]).await.unwrap();
    }
    target.sessions.trigger(world.fork, Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    target.bindings.bind(&world.laptop, other[0].id, Precondition::None).await.unwrap();
    let new = NewSession::new(effects.new_session_id(), world.workspace);
    let new = source.sessions.create(new).await.unwrap();
    let before = read_all(&target).await;

    let report = StoreCopy::new(source, target.clone()).run().await.unwrap();
    assert!(!report.is_whole() && report.damaged.is_empty());
    let refused: Vec<_> = report.refused.iter().map(ToString::to_string).collect();
    let expected = [
        ("device laptop", "in the target, which was not changed"),
        (&format!("session {}", world.fork), "deleted in the target"),
        (&format!("session {}", world.main), "different history"),
        (&format!("workspace {}", other[0].id), "different configuration"),
        (&format!("workspace {}", world.workspace), "different record"),
    ];
    for (object, why) in expected {
        let named = |text: &&String| text.starts_with(object) && text.contains(why);
        assert_eq!(refused.iter().filter(named).count(), 1, "{object} {why}: {refused:?}");
    }
    assert_eq!(refused.len(), expected.len(), "{refused:?}");
    assert_eq!(report.copied.sessions, 1);
    let mut after = read_all(&target).await;
    after.sessions.retain(|session| session.id != new.id);
    assert_eq!(after, before, "what was there is as it was");
    assert_eq!(target.sessions.load(new.id).await.unwrap(), new);
}

/// A session that is damaged in the source is named, and nothing of it is in the target; its fork, which needs
/// it, is named, too, and all else is copied.
#[tokio::test]
async fn source_damage_is_named_and_the_rest_is_copied() {
    let effects = Effects::default();
    let (here, there) = (Place::new("files"), Place::new("sqlite"));
    let source = here.open().await;
    let world = fill(&source, &effects).await;
    let all = read_all(&source).await.sessions.len() as u64;
    drop(source);
    let folder = here.path().join(format!("workspaces/{}", world.workspace));
    let log = folder.join(format!("sessions/{}/events.jsonl", world.main));
    let mut bytes = fs::read(&log).unwrap();
    let at = bytes.windows(9).position(|window| window == b"## User 7").unwrap();
    bytes[at + 8] = b'8';
    fs::write(&log, &bytes).unwrap();
    fs::write(here.path().join("bindings.toml"), "[bindings]\nlaptop = ").unwrap();

    let target = there.open().await;
    let report = StoreCopy::new(here.open().await, target.clone()).run().await.unwrap();
    let damaged: Vec<_> = report.damaged.iter().map(ToString::to_string).collect();
    assert_eq!(damaged.len(), 2, "{damaged:?}");
    assert!(damaged.iter().any(|text| text.starts_with(&format!("session {}", world.main))), "{damaged:?}");
    assert!(damaged.iter().any(|text| text.contains("bindings.toml")), "{damaged:?}");
    // Its forks and their child cannot be told without it.
    assert_eq!(report.refused.len(), 3, "{:?}", report.refused);
    assert_eq!(report.copied.sessions, all - 4);
    assert!(target.sessions.load(world.main).await.is_err_and(|error| error.is_absent()));
    assert_eq!(fs::read(&log).unwrap(), bytes, "the damaged bytes are as they were");
}

/// Gives back other events than it was given.
#[derive(Debug)]
struct Forgetful(Storage, AtomicBool);

#[async_trait]
impl SessionStoreWrapper for Forgetful {
    fn inner(&self) -> &dyn SessionStore {
        &*self.0.sessions
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        let mut page = self.0.sessions.read(id, read).await?;
        if let Some(event) = page.events.last_mut()
            && !self.1.swap(true, Ordering::SeqCst)
        {
            event.payload = RawJson::parse("{\"text\":\"something else\"}").unwrap();
        }
        Ok(page)
    }
}

/// What was written is read back; a target that gives back something else is found out.
#[tokio::test]
async fn copied_data_is_read_back_and_compared() {
    let (source, effects): (Storage, _) = (MemoryStore::new().into(), Effects::default());
    let new = NewSession::new(effects.new_session_id(), agent_core::WorkspaceId::DEFAULT);
    let session = source.sessions.create(new).await.unwrap();
    let events = vec![NewEvent::user_message("hello")];
    source.sessions.append(session.id, session.head, events).await.unwrap();
    let under: Storage = MemoryStore::new().into();
    let target = Storage::new(
        under.workspaces.clone(),
        Arc::new(Forgetful(under.clone(), AtomicBool::new(false))),
        under.bindings.clone(),
    );
    let copy = StoreCopy::new(source, target).with_progress(|progress| {
        assert_eq!((progress.stage, progress.done, progress.total), (CopyStage::Sessions, 1, Some(1)));
    });
    let report = copy.run().await.unwrap();
    assert!(report.refused[0].reason.contains("differ from those that were written"), "{report:?}");
    // By now it gives back what it was given.
    assert!(copy.run().await.unwrap().is_whole());
}
