//! Contract 1, while another program moves the store away from its location.

use agent_core::event::NewEvent;
use agent_core::store::ReadEvents;

use crate::factory::{Damage, DamageKind};
use crate::failure::{Checked, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{Stage, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![Durable:
        a_moved_store_acknowledges_nothing (Needs::Damage(DamageKind::Moved)),
    ]
}

/// A handle acknowledges nothing into a store that was moved away, gives no answer from it, and does not report its
/// contents as absent. Everything acknowledged before is there when the store is moved back.
async fn a_moved_store_acknowledges_nothing(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let session = stage.append(&storage, &session, "before").await?.session;
    stage.damage(Damage::MovedAway).await?;
    let late = stage.seal(&session).with_event(NewEvent::user_message("into nowhere"));
    for _ in 0..2 {
        let done = storage.sessions.commit(late.clone()).await;
        same("whether a commit is acknowledged", &done.is_ok(), &false)?;
        let loaded = storage.sessions.load(session.id).await;
        same("whether a session is found", &loaded.is_ok(), &false)?;
        same("whether it is said to be absent", &loaded.is_err_and(|error| error.is_absent()), &false)?;
        let read = storage.sessions.read(session.id, ReadEvents::last(9)).await;
        same("whether events are read", &read.is_ok(), &false)?;
        same("whether they are said to be absent", &read.is_err_and(|error| error.is_absent()), &false)?;
    }
    stage.damage(Damage::MovedBack).await?;
    let storage = stage.reopen(storage).await?;
    same("the session", &storage.sessions.load(session.id).await?, &session)?;
    same("its events", &own_events(&storage, session.id, 9).await?.len(), &2)?;
    same(
        "the same commit, sent again",
        &storage.sessions.commit(late).await?.session.head,
        &session.head.next(),
    )
}
