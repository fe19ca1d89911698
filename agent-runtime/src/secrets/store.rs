//! A store of sessions to which values are not written.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;

use crate::secrets::tenant::Secrets;
use agent_core::commit::{Commit, Committed, RunEnd, Step, Trigger};
use agent_core::event::{Body, NewEvent};
use agent_core::json::{RawFields, RawJson};
use agent_core::model::{Actor, Attributes, Failure, PendingAction};
use agent_core::store::SessionStoreWrapper;
use agent_core::{Error, ErrorKind, Result, SessionStore, Storage};

/// A store, and what is hidden from it.
#[derive(Debug)]
struct Hiding {
    secrets: Secrets,
    store: Arc<dyn SessionStore>,
}

impl Secrets {
    /// The same stores, the sessions written so that each value that was given out is hidden. Handles that were there before
    /// write as before.
    #[must_use]
    pub fn hidden_from(&self, storage: Storage) -> Storage {
        hiding(self.clone(), storage)
    }
}

fn hiding(secrets: Secrets, storage: Storage) -> Storage {
    let sessions = Arc::new(Hiding { secrets, store: storage.sessions });
    Storage::new(storage.workspaces, sessions, storage.bindings)
}

impl Hiding {
    fn event(&self, mut event: NewEvent) -> NewEvent {
        if let Some(hidden) = self.secrets.hidden_in(&event.data, 0) {
            // Of a type that is known here the outer keys are its form; of any other they are what somebody wrote.
            event.data = match Body::parse(&event.kind, &event.data) {
                Ok(Body::Other(..)) => hidden,
                Ok(_) | Err(_) => self.secrets.hidden_in(&event.data, 1).unwrap_or(event.data),
            };
        }
        event.actor = event.actor.map(|actor| self.actor(actor));
        if !event.extra.is_empty() {
            event.extra = self.fields(&event.extra);
        }
        event
    }

    fn fields(&self, fields: &RawFields) -> RawFields {
        let hidden = |(key, value): (&str, &RawJson)| {
            (self.secrets.hide(key).into_owned(), self.secrets.hide_json(value.clone()))
        };
        fields.iter().map(hidden).collect()
    }

    /// What is said of a session, with names in place of values; refused where that is no such thing any more.
    fn attributes(&self, attributes: &Attributes) -> Result<Attributes> {
        match self.secrets.hidden_in(&RawJson::of(attributes)?, 1) {
            Some(hidden) => hidden.to(),
            None => Ok(attributes.clone()),
        }
    }

    /// A name may be longer than the value was.
    fn within(&self, text: &str, most: usize) -> String {
        let mut hidden = self.secrets.hide(text).into_owned();
        hidden.truncate(hidden.floor_char_boundary(most.max(text.len())));
        hidden
    }

    fn actor(&self, actor: Actor) -> Actor {
        match actor.name().map(|name| self.secrets.hide(name)) {
            Some(Cow::Owned(hidden)) => {
                let hidden = &hidden[..hidden.floor_char_boundary(Actor::MAX_NAME_BYTES)];
                Actor::named(actor.role(), hidden).unwrap_or_else(|_| actor.without_name())
            }
            Some(Cow::Borrowed(_)) | None => actor,
        }
    }

    fn failure(&self, failure: &Failure) -> Failure {
        Failure::new(failure.class, self.secrets.hide(&failure.text))
    }

    fn step(&self, step: Step) -> Result<Step> {
        let trigger = match step {
            Step::Event(event) => return Ok(Step::Event(self.event(event))),
            Step::Trigger(trigger) => trigger,
            _ => {
                let text = "a commit has a step in which no secrets can be hidden; update agent-runtime";
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
        };
        Ok(Step::Trigger(match trigger {
            Trigger::Adopt(events) => {
                Trigger::Adopt(events.into_iter().map(|event| self.event(event)).collect())
            }
            Trigger::Replace(events) => {
                Trigger::Replace(events.into_iter().map(|event| self.event(event)).collect())
            }
            Trigger::Fail(failure) => Trigger::Fail(self.failure(&failure)),
            Trigger::EndRun(RunEnd::Failed(failure)) => {
                Trigger::EndRun(RunEnd::Failed(self.failure(&failure)))
            }
            Trigger::EndRun(RunEnd::Retry { failure, ready_at, limit, .. }) => {
                Trigger::EndRun(RunEnd::retry(self.failure(&failure), ready_at, limit))
            }
            Trigger::EndRun(RunEnd::Await(mut action)) => {
                let most = PendingAction::QUESTION_MAX_BYTES.max(action.question.len());
                action.question =
                    PendingAction::shortened(self.secrets.hide(&action.question).into_owned(), most);
                for choice in &mut action.choices {
                    *choice = self.within(choice, PendingAction::CHOICE_MAX_BYTES);
                }
                Trigger::EndRun(RunEnd::Await(action))
            }
            Trigger::Create(mut new) => {
                new.created.attributes = self.attributes(&new.created.attributes)?;
                Trigger::Create(new)
            }
            // The rest are ids, times, and the names of holders and reasons. What was stored elsewhere is restored as it was there.
            other => other,
        }))
    }
}

#[async_trait]
impl SessionStoreWrapper for Hiding {
    fn inner(&self) -> &dyn SessionStore {
        &*self.store
    }

    async fn commit(&self, mut commit: Commit) -> Result<Committed> {
        if self.secrets.given().is_empty() {
            return self.store.commit(commit).await;
        }
        commit.actor = commit.actor.map(|actor| self.actor(actor));
        let steps = Arc::unwrap_or_clone(commit.steps).into_iter().map(|step| self.step(step));
        commit.steps = Arc::new(steps.collect::<Result<_>>()?);
        self.store.commit(commit).await
    }
}
