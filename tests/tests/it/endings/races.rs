//! Sessions that are deleted and purged while another caller forks or imports one.

use std::sync::{Arc, Mutex};

use agent_admin::manifest::Manifest;
use agent_core::event::EventPayload;
use agent_core::session::{Fork, SessionRecord};
use agent_core::{MemoryStore, Result, SessionId, SessionStoreExt, Storage};
use agent_tests::each_store;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::endings::cut::Cutting;
use crate::endings::site::{Hands, Site, World, append_text, effects, history, manager, small_world};

/// Makes a session that reads the events of the main one.
#[derive(Clone)]
enum Maker {
    Fork(SessionId),
    Import(Arc<Manifest>),
}

impl Maker {
    async fn make(&self, storage: &Storage) -> Result<Arc<SessionRecord>> {
        match self {
            Self::Fork(of) => storage.sessions.fork(*of, Fork::new()).await,
            Self::Import(document) => Ok(document.import(&*storage.sessions).await?.session),
        }
    }
}

/// Both ways to get a fork: made here, and made elsewhere.
async fn makers(storage: &Storage, clock: &Hands, world: &World) -> [Maker; 2] {
    let elsewhere = MemoryStore::new();
    let main = Manifest::export(&*storage.sessions, world.main).await.unwrap();
    main.import(&elsewhere).await.unwrap();
    let fork = elsewhere.sessions(&effects(clock)).fork(world.main, Fork::new()).await.unwrap().id;
    let document = Manifest::export(&elsewhere, fork).await.unwrap();
    [Maker::Fork(world.main), Maker::Import(Arc::new(document))]
}

async fn end(storage: &Storage, clock: &Hands, id: SessionId) {
    let manager = manager(storage, clock);
    // It may have become another's by now, or be gone already.
    drop(manager.delete_session(id).await);
    drop(manager.purge(id).await);
}

async fn check(storage: &Storage, made: &Result<Arc<SessionRecord>>, when: &str) {
    let Ok(made) = made else { return };
    let texts: Vec<_> = history(storage, made.id).await;
    let message =
        texts.iter().filter(|event| matches!(event.decode(), Ok(EventPayload::UserMessage(_)))).count();
    assert_eq!(message, 2, "{when}: the fork lacks what it shares");
}

/// If at any step of a deletion and a purge a fork is made or imported, it has its whole history or is
/// refused; the same if the deletion comes at any step of the making.
async fn a_fork_that_races_with_a_purge_is_whole_or_refused(site: Site) {
    let (mut round, mut outcomes) = (0, (0, 0));
    for deletes_first in [true, false] {
        for kind in 0..2 {
            for at in 1.. {
                round += 1;
                let (storage, clock) = (site.fresh(round), Hands::new());
                let world = small_world(&storage, &clock, "old").await;
                append_text(&storage, &clock, world.main, "once more").await.unwrap();
                let maker = makers(&storage, &clock, &world).await[kind].clone();
                let when = format!("{}, deletes first: {deletes_first}, {kind}, call {at}", site.name);
                let made = Arc::new(Mutex::new(None));
                let visit = {
                    let (storage, clock, made, maker) =
                        (storage.clone(), clock.clone(), made.clone(), maker.clone());
                    move || -> BoxFuture<'static, ()> {
                        async move {
                            if deletes_first {
                                let fork = maker.make(&storage).await;
                                *made.lock().unwrap() = Some(fork);
                            } else {
                                end(&storage, &clock, world.main).await;
                            }
                        }
                        .boxed()
                    }
                };
                let cutting = Cutting::visited(&storage, at, visit, None);
                if deletes_first {
                    end(&cutting.storage(), &clock, world.main).await;
                } else {
                    let fork = maker.make(&cutting.storage()).await;
                    *made.lock().unwrap() = Some(fork);
                }
                if cutting.calls() < at {
                    break;
                }
                let fork = made.lock().unwrap().take().expect("nobody made a fork");
                outcomes.0 += usize::from(fork.is_ok());
                outcomes.1 += usize::from(fork.is_err());
                check(&storage, &fork, &when).await;
                // Whoever purges again, later, takes nothing of it either.
                end(&storage, &clock, world.main).await;
                check(&storage, &fork, &when).await;
            }
        }
    }
    let (made, refused) = outcomes;
    assert!(made > 3 && refused > 3, "{}: {made} made, {refused} refused", site.name);
}

each_store!(a_fork_that_races_with_a_purge_is_whole_or_refused and files and mixed);
