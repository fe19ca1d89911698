//! Tests of what a commit reads of a session, and of the plan that was made before its turn.

use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Committed, OptimisticCommit};
use agent_core::event::NewEvent;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::{ErrorKind, SessionId, WorkspaceId};
use rusqlite::Connection;

use crate::error::Fault;
use crate::log::commit::{commit, current};
use crate::medium::known::{Known, StoredSession};
use crate::medium::session_rows::Rows;
use crate::{SqliteConfig, schema};

struct Scene {
    _folder: tempfile::TempDir,
    conn: Connection,
    known: Known,
    tenant: Arc<str>,
    effects: Effects,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let conn = schema::open(&mut SqliteConfig::new(folder.path().join("a.db"))).unwrap().0;
        let (known, tenant, effects) = (Known::default(), "default".into(), Effects::default());
        Self { _folder: folder, conn, known, tenant, effects }
    }

    fn rows(&self, events: &[agent_core::event::Event], after: &SessionRecord) -> Rows {
        Rows::of(&self.tenant, events, after)
    }

    fn planned(&self, commit: Commit, on: Option<&StoredSession>) -> OptimisticCommit<Rows> {
        let on = on.map(|stored| (stored.version, &*stored.session));
        OptimisticCommit::new(commit, on, |events, after| self.rows(events, after))
    }

    fn commit(&self, planned: &OptimisticCommit<Rows>) -> Committed {
        commit(&self.conn, &self.known, None, &self.tenant, planned).unwrap()
    }

    fn create(&self) -> SessionId {
        let new = NewSession::new(self.effects.new_session_id(), WorkspaceId::DEFAULT);
        self.commit(&self.planned(Commit::create(&self.effects, new), None)).session.id
    }

    fn message(&self, id: SessionId, text: &str) -> Commit {
        let head = self.current(id).session.head;
        Commit::seal(&self.effects, id, head).with_event(NewEvent::user_message(text))
    }

    fn current(&self, id: SessionId) -> StoredSession {
        current(&self.conn, &self.known, &self.tenant, id).unwrap().unwrap()
    }

    fn texts(&self) -> Vec<String> {
        let mut texts = self.conn.prepare("SELECT json FROM events ORDER BY log, seq").unwrap();
        texts.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }
}

#[test]
fn a_record_is_not_read_again_while_its_version_is_the_same() {
    let scene = Scene::new();
    let id = scene.create();
    let before = scene.current(id).session;
    scene.known.others_wrote();
    assert!(Arc::ptr_eq(&before, &scene.current(id).session), "another session was written");

    scene.conn.execute("UPDATE sessions SET version = version + 1", []).unwrap();
    assert!(Arc::ptr_eq(&before, &scene.current(id).session), "nobody was found to have written");
    scene.known.others_wrote();
    let read = scene.current(id);
    assert_eq!(read.session, before);
    assert!(!Arc::ptr_eq(&before, &read.session), "the session was written");
}

#[test]
fn nothing_is_appended_after_events_that_others_deleted() {
    let scene = Scene::new();
    let id = scene.create();
    scene.commit(&scene.planned(scene.message(id, "lost"), Some(&scene.current(id))));
    scene.conn.execute("DELETE FROM events WHERE seq = 2", []).unwrap();
    scene.known.others_wrote();
    let Err(Fault::Refused(error)) = current(&scene.conn, &scene.known, &scene.tenant, id) else { panic!() };
    assert_eq!(*error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_plan_on_an_older_record_is_made_again() {
    let scene = Scene::new();
    let id = scene.create();
    let old = scene.current(id);
    let planned = scene.planned(scene.message(id, "second"), Some(&old));
    scene.commit(&scene.planned(scene.message(id, "first"), Some(&old)));
    let done = scene.commit(&planned);
    assert_eq!((done.first.get(), done.session.head.get()), (3, 3));
    let texts = scene.texts();
    assert_eq!(texts.len(), 3);
    assert!(texts[1].contains("first") && texts[2].contains("second"), "{texts:?}");
    // What is remembered is what is stored.
    let remembered = scene.current(id);
    scene.known.clear();
    let read = scene.current(id);
    assert_eq!((remembered.session, remembered.version), (read.session, read.version));
}

#[test]
fn what_is_read_of_a_session_is_remembered_and_bounded() {
    let scene = Scene::new();
    let ids: Vec<_> = (0..1200).map(|_| scene.create()).collect();
    let key = |id: &SessionId| (scene.tenant.clone(), *id);
    let count = || ids.iter().filter(|id| scene.known.remembered(&key(id)).is_some()).count();
    assert!((512..=1024).contains(&count()), "{}", count());
    scene.known.remove_tenant(&scene.tenant);
    assert_eq!(count(), 0);
}
