//! Reports of a child's outcome to its parent: each is stored once, even if several callers send it several times.

use crate::base::{CommitId, Error, ErrorKind, RawJson, Result, SessionId, uuid_of};
use crate::commit::{Commit, Committed};
use crate::event::{ChildIdle, EventPayload, Message, NewEvent};
use crate::model::{Actor, Origin, Reported};
use crate::session::SessionRecord;
use crate::store::sessions::Sessions;

impl Sessions {
    /// Reports the status of `child` and its result to the child's parent: once for each status, however often it is
    /// called, also after a crash.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the session is not a child; `Deleted` if the parent is deleted.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (store, effects, session) = session().await?;
    /// # let child = store.create_child(session.id, Patch::new()).await?;
    /// let result = Some("3 flights found".to_owned());
    /// let reported = store.report_child(child.id, result.clone()).await?;
    /// assert_eq!(reported.session.id, session.id, "the parent");
    /// assert!(store.report_child(child.id, result).await?.replayed);
    /// # Ok(()) }
    /// ```
    pub async fn report_child(&self, child: SessionId, result: Option<String>) -> Result<Committed> {
        let now = self.load(child).await?;
        self.report_to_parent(&now, result, false).await
    }

    /// Reports the status of `child` to its parent, and records in the child's log that the parent has it.
    ///
    /// If `input` is set and the parent accepts inputs, the report is an input that a run of the parent answers.
    ///
    /// The id of the commit to the parent is derived from the child and its progress: a repeated report, after a crash at
    /// any point or at the same time, sends the same commit.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the parent may have the report although the child's log does not say so. Call it again to
    /// finish.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `child` is not a child; those of
    /// [`SessionStoreExt::commit_with_retry`](crate::SessionStoreExt::commit_with_retry).
    pub async fn report_to_parent(
        &self,
        child: &SessionRecord,
        result: Option<String>,
        input: bool,
    ) -> Result<Committed> {
        let Origin::Child { parent, at } = child.origin else {
            return Err(Error::invalid(format!(
                "session {} is not a child; only children report to a parent",
                child.id
            )));
        };
        let reported = child.to_report().unwrap_or(Reported {
            at: child.begun.max(child.inputs_done_through),
            state: child.status.state,
        });
        let mut idle = ChildIdle::new(child.id, child.status);
        idle.result = result;
        let plain = Commit::new(id_of_report(child.id, reported), parent, self.effects().now(), at)
            .with_event(NewEvent::of(&EventPayload::SessionChildIdle(idle.clone())));
        let full = match input {
            true => {
                plain.clone().with_event(NewEvent::from(in_words(child, &idle)).with_actor(Actor::SYSTEM))
            }
            false => plain.clone(),
        };
        let committed = match self.send(full).await {
            // The parent accepts no inputs any more, but still receives the report.
            Err(error) if input && matches!(error.kind(), ErrorKind::InvalidTransition { .. }) => {
                self.send(plain).await?
            }
            other => other?,
        };
        self.note_report(child, reported).await?;
        Ok(committed)
    }

    /// Records in the child's log that its parent has received the report, or that there is no parent to report to.
    ///
    /// # Errors
    ///
    /// Those of [`SessionStoreExt::commit_with_retry`](crate::SessionStoreExt::commit_with_retry).
    pub async fn note_report(&self, child: &SessionRecord, reported: Reported) -> Result<()> {
        let event = NewEvent::of(&EventPayload::SessionReported(reported));
        let commit = self.seal(child.id, child.head).with_event(event);
        self.send(commit).await.map(drop)
    }
}

/// Returns the report as text for the parent's model.
fn in_words(child: &SessionRecord, idle: &ChildIdle) -> Message {
    let title = child.attributes.title.as_ref().map(|title| format!(" {:?}", title.text)).unwrap_or_default();
    let mut text = format!("The session{title} that was started here has come to rest: {}.", idle.status);
    if let Some(result) = idle.result.as_deref().filter(|result| !result.trim().is_empty()) {
        text.push_str("\n\n");
        text.push_str(result);
    }
    let child = RawJson::sure(&idle.child);
    Message::new(text).with_metadata("child", child)
}

/// Returns the id of the commit that reports this progress of `child` to its parent.
fn id_of_report(child: SessionId, reported: Reported) -> CommitId {
    CommitId::from_uuid(uuid_of(
        child.as_uuid(),
        &["report", &reported.at.to_string(), reported.state.as_str()],
    ))
}
