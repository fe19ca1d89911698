//! A store of sessions to which values are not written.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::{Epoch, Seq, SessionId};
use crate::json::RawFields;
use crate::page::{Damaged, Page};
use crate::secrets::Secrets;
use crate::session::attributes::TITLE_MAX_BYTES;
use crate::session::{
    Capabilities, Commit, Committed, EventPage, Failure, NewEvent, PendingAction, Pulse, Purge, Purged,
    ReadEvents, RunEnd, Session, SessionQuery, SessionStore, SessionSummary, Step, Trigger,
};
use crate::storage::Storage;

/// A store, and what is hidden from it.
#[derive(Debug)]
struct Hiding {
    secrets: Secrets,
    store: Arc<dyn SessionStore>,
}

pub(super) fn hiding(secrets: Secrets, storage: Storage) -> Storage {
    let Storage { workspaces, sessions, bindings } = storage;
    Storage { workspaces, sessions: Arc::new(Hiding { secrets, store: sessions }), bindings }
}

impl Hiding {
    fn event(&self, mut event: NewEvent) -> NewEvent {
        event.data = self.secrets.hide_in(event.data, 1);
        event.extra = self.fields(&event.extra);
        event
    }

    fn fields(&self, fields: &RawFields) -> RawFields {
        fields.iter().map(|(key, value)| (key, self.secrets.hide_json(value.clone()))).collect()
    }

    /// A name may be longer than the value was.
    fn within(&self, text: &str, most: usize) -> String {
        let mut hidden = self.secrets.hide(text).into_owned();
        hidden.truncate(hidden.floor_char_boundary(most.max(text.len())));
        hidden
    }

    fn failure(&self, failure: &Failure) -> Failure {
        Failure::new(failure.class, self.secrets.hide(&failure.text))
    }

    fn step(&self, step: Step) -> Step {
        let trigger = match step {
            Step::Event(event) => return Step::Event(self.event(event)),
            Step::Trigger(trigger) => trigger,
        };
        Step::Trigger(match trigger {
            Trigger::Replace(events) => {
                Trigger::Replace(events.into_iter().map(|event| self.event(event)).collect())
            }
            Trigger::Fail(failure) => Trigger::Fail(self.failure(&failure)),
            Trigger::EndRun(RunEnd::Failed(failure)) => {
                Trigger::EndRun(RunEnd::Failed(self.failure(&failure)))
            }
            Trigger::EndRun(RunEnd::Retry { failure, ready_at, limit }) => {
                Trigger::EndRun(RunEnd::retry(self.failure(&failure), ready_at, limit))
            }
            Trigger::EndRun(RunEnd::Await(mut action)) => {
                action.question = self.within(&action.question, PendingAction::QUESTION_MAX_BYTES);
                for choice in &mut action.choices {
                    *choice = self.within(choice, PendingAction::CHOICE_MAX_BYTES);
                }
                Trigger::EndRun(RunEnd::Await(action))
            }
            Trigger::Create(mut new) => {
                if let Some(title) = &mut new.created.attributes.title {
                    title.text = self.within(&title.text, TITLE_MAX_BYTES);
                }
                new.created.attributes.metadata = self.fields(&new.created.attributes.metadata);
                Trigger::Create(new)
            }
            // The rest are ids, times and names. What was stored elsewhere is restored as it was there.
            other => other,
        })
    }
}

#[async_trait]
impl SessionStore for Hiding {
    async fn commit(&self, mut commit: Commit) -> Result<Committed> {
        commit.steps = std::mem::take(&mut commit.steps).into_iter().map(|step| self.step(step)).collect();
        self.store.commit(commit).await
    }

    async fn load(&self, id: SessionId) -> Result<Session> {
        self.store.load(id).await
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        self.store.read(id, read).await
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        self.store.list(query).await
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        self.store.purge(purge).await
    }

    async fn beat(&self, id: SessionId, epoch: Epoch) -> Result<()> {
        self.store.beat(id, epoch).await
    }

    async fn pulse(&self, id: SessionId, epoch: Epoch) -> Result<Pulse> {
        self.store.pulse(id, epoch).await
    }

    async fn rebuild(&self) -> Result<u64> {
        self.store.rebuild().await
    }

    async fn check(&self) -> Result<Vec<Damaged>> {
        self.store.check().await
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn changed(&self, id: SessionId, seen: Seq) -> Result<Seq> {
        self.store.changed(id, seen).await
    }
}
