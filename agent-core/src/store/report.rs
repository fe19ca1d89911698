//! How a child's outcome gets into its parent's log: once, whoever tells it, and however often.

use crate::base::{CommitId, Effects, Error, ErrorKind, RawJson, Result, SessionId, uuid_of};
use crate::commit::{Commit, Committed};
use crate::event::{Body, ChildIdle, Message, NewEvent};
use crate::model::{Actor, Origin, Reported};
use crate::session::Session;
use crate::store::retry::settle;
use crate::store::session::SessionStore;

/// Tells the parent of `child` what the child has come to, and notes in the child's log that it was told; as an input
/// that a run of the parent answers, where `input` says so and the parent takes inputs.
///
/// The id of the commit to the parent follows from the child and how far it has come: whoever tells it again, after a
/// crash at any point or at the same moment, sends the same commit.
///
/// # Errors
///
/// `InvalidInput` if `child` is no child; those of [`SessionStoreExt::settle`](crate::SessionStoreExt::settle).
pub async fn report_to_parent<S: SessionStore + ?Sized>(
    store: &S,
    effects: &Effects,
    child: &Session,
    result: Option<String>,
    input: bool,
) -> Result<Committed> {
    let Origin::Child { parent, at } = child.origin else {
        return Err(Error::invalid(format!("session {} is no child of another", child.id)));
    };
    let told = child
        .to_report()
        .unwrap_or(Reported { at: child.begun.max(child.handled), state: child.status.state });
    let mut said = ChildIdle::new(child.id, child.status);
    said.result = result;
    let plain = Commit::new(id_of_report(child.id, told), parent, effects.now(), at)
        .event(NewEvent::of(&Body::SessionChildIdle(said.clone())));
    let telling = match input {
        true => plain.clone().event(NewEvent::from(in_words(child, &said)).with_actor(Actor::SYSTEM)),
        false => plain.clone(),
    };
    let committed = match settle(store, telling, false).await {
        // It takes no inputs any more; it is told all the same.
        Err(error) if input && matches!(error.kind(), ErrorKind::InvalidTransition { .. }) => {
            settle(store, plain, false).await?
        }
        other => other?,
    };
    note_report(store, effects, child, told).await?;
    Ok(committed)
}

/// Notes in the child's log that its parent was told, or that there is nobody to tell.
///
/// # Errors
///
/// Those of [`SessionStoreExt::settle`](crate::SessionStoreExt::settle).
pub async fn note_report<S: SessionStore + ?Sized>(
    store: &S,
    effects: &Effects,
    child: &Session,
    told: Reported,
) -> Result<()> {
    let noted = NewEvent::of(&Body::SessionReported(told));
    settle(store, Commit::seal(effects, child.id, child.head).event(noted), false).await.map(drop)
}

/// What the parent's model is told.
fn in_words(child: &Session, said: &ChildIdle) -> Message {
    let title = child.attributes.title.as_ref().map(|title| format!(" {:?}", title.text)).unwrap_or_default();
    let mut text = format!("The session{title} that was started here has come to rest: {}.", said.status);
    if let Some(result) = said.result.as_deref().filter(|result| !result.trim().is_empty()) {
        text.push_str("\n\n");
        text.push_str(result);
    }
    let child = RawJson::sure(&said.child);
    Message::new(text).with_metadata("child", child)
}

/// The id of the commit by which a parent is told how far `child` has come.
fn id_of_report(child: SessionId, told: Reported) -> CommitId {
    CommitId::from_uuid(uuid_of(child.as_uuid(), &["report", &told.at.to_string(), told.state.as_str()]))
}
