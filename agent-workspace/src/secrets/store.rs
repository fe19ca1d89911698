//! Session store wrapper that redacts values of secrets before they are written.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;

use crate::blobs::change_media;
use crate::secrets::tenant::Secrets;
use agent_core::commit::{Commit, Committed, RunEnd, Step, Trigger};
use agent_core::event::{EventPayload, NewEvent};
use agent_core::json::{RawFields, RawJson};
use agent_core::model::{Actor, Attributes, Failure, PendingAction};
use agent_core::store::{BlobStore, BlobStoreWrapper, PutBlob, SessionStoreWrapper};
use agent_core::{Error, Result, SessionStore, Storage};

/// Maximum number of bytes of a holder's name.
const HOLDER_MAX_BYTES: usize = 256;

/// Session store, and the secrets that are redacted from its writes.
#[derive(Debug)]
struct Hiding {
    secrets: Secrets,
    store: Arc<dyn SessionStore>,
}

impl Secrets {
    /// Returns the same stores, whose writes to sessions have every value that was given out redacted.
    ///
    /// This includes media of any type. A [blob](agent_core::store::BlobStore::put) that holds a value is refused as
    /// `InvalidInput`, because its name is the hash of its bytes.
    /// `Conversation::put_media` redacts content before it computes the hash.
    ///
    /// Existing handles to the stores are not affected. An agent with secrets does this itself.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (name, secrets) = github()?;
    /// let storage = secrets.hidden_from(MemoryStore::new().into());
    /// let effects = Effects::default();
    /// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    /// let session = storage.sessions.create(new).await?;
    ///
    /// let token = secrets.reveal(WorkspaceId::DEFAULT, &name).await?;
    /// let said = NewEvent::agent_message(format!("The token is {}.", token.expose()));
    /// storage.sessions.append(session.id, session.head, vec![said]).await?;
    /// let page = storage.sessions.read(session.id, ReadEvents::last(1)).await?;
    /// assert_eq!(page.events[0].text().as_deref(), Some("The token is (secret github)."));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn hidden_from(&self, storage: Storage) -> Storage {
        hiding(self.clone(), storage)
    }
}

fn hiding(secrets: Secrets, storage: Storage) -> Storage {
    let store = Hiding { secrets, store: storage.sessions.store().clone() };
    storage.with_session_store(Arc::new(store))
}

/// Returns a redacted payload of the conversation without what the redaction made wrong.
///
/// A provider refuses a signed item that was changed, and offsets in a text that was changed point elsewhere. Then the
/// store would refuse the event.
fn consistent(original: &RawJson, hidden: RawJson) -> RawJson {
    let (Ok(before), Ok(mut after)) = (original.to::<RawFields>(), hidden.to::<RawFields>()) else {
        return hidden;
    };
    after.remove("native");
    if before.get("text") != after.get("text") {
        after.remove("citations");
        let text = after.get("text").and_then(|text| text.to::<String>().ok());
        if let (Some(text), Some(Ok(shown))) = (text, after.get("shown").map(RawJson::to::<usize>)) {
            after.insert("shown", RawJson::sure(&text.floor_char_boundary(shown)));
        }
    }
    if let Some(Ok(mut full)) = after.get("full").map(RawJson::to::<RawFields>)
        && let Some(Ok(text)) = full.get("text").map(RawJson::to::<String>)
    {
        full.insert("bytes", RawJson::sure(&text.len()));
        after.insert("full", RawJson::sure(&full));
    }
    RawJson::sure(&after)
}

impl Hiding {
    fn event(&self, mut event: NewEvent) -> NewEvent {
        if let Some(hidden) = change_media(&event, |media| self.secrets.redact_media(media)) {
            event.payload = consistent(&event.payload, hidden);
        }
        if let Some(hidden) = self.secrets.hidden_in(&event.payload, 0) {
            // The outer keys of a known type belong to its format; those of any other type are text of an author.
            event.payload = match EventPayload::parse(&event.kind, &event.payload) {
                Ok(EventPayload::Other(..)) => hidden,
                Ok(_) | Err(_) => match self.secrets.hidden_in(&event.payload, 1) {
                    Some(hidden) if event.kind.is_of("user") || event.kind.is_of("agent") => {
                        consistent(&event.payload, hidden)
                    }
                    hidden => hidden.unwrap_or(event.payload),
                },
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
            (self.secrets.redact(key).into_owned(), self.secrets.redact_json(value.clone()))
        };
        fields.iter().map(hidden).collect()
    }

    /// Returns the attributes of a session with values replaced by names; an error if the result is not valid any more.
    fn attributes(&self, attributes: &Attributes) -> Result<Attributes> {
        match self.secrets.hidden_in(&RawJson::of(attributes)?, 1) {
            Some(hidden) => hidden.to(),
            None => Ok(attributes.clone()),
        }
    }

    /// Redacts a text and cuts it to a limit, because a name may be longer than the value.
    fn within(&self, text: &str, most: usize) -> String {
        let mut hidden = self.secrets.redact(text).into_owned();
        hidden.truncate(hidden.floor_char_boundary(most.max(text.len())));
        hidden
    }

    fn actor(&self, actor: Actor) -> Actor {
        match actor.name().map(|name| self.secrets.redact(name)) {
            Some(Cow::Owned(hidden)) => {
                let hidden = &hidden[..hidden.floor_char_boundary(Actor::MAX_NAME_BYTES)];
                Actor::named(actor.role(), hidden).unwrap_or_else(|_| actor.without_name())
            }
            Some(Cow::Borrowed(_)) | None => actor,
        }
    }

    fn failure(&self, failure: &Failure) -> Failure {
        Failure::new(failure.class, self.secrets.redact(&failure.text)).with_fault(failure.fault.clone())
    }

    fn step(&self, step: Step) -> Result<Step> {
        let trigger = match step {
            Step::Event(event) => return Ok(Step::Event(self.event(event))),
            Step::Trigger(trigger) => trigger,
            _ => {
                let text = "a commit has a step of a newer version, in which secrets cannot be redacted; update agent-runtime";
                return Err(Error::unsupported(text));
            }
        };
        Ok(Step::Trigger(match trigger {
            Trigger::ImportEvents(events) => {
                Trigger::ImportEvents(events.into_iter().map(|event| self.event(event)).collect())
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
                    PendingAction::shortened(self.secrets.redact(&action.question).into_owned(), most);
                for choice in &mut action.choices {
                    *choice = self.within(choice, PendingAction::CHOICE_MAX_BYTES);
                }
                Trigger::EndRun(RunEnd::Await(action))
            }
            Trigger::Create(mut new) => {
                new.created.attributes = self.attributes(&new.created.attributes)?;
                Trigger::Create(new)
            }
            Trigger::BeginRun(mut lease) => {
                lease.holder = self.within(&lease.holder, HOLDER_MAX_BYTES);
                Trigger::BeginRun(lease)
            }
            // The others contain ids, times, and the names of reasons. Restored events are not changed.
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

    fn blobs(&self) -> &dyn BlobStore {
        self
    }
}

#[async_trait]
impl BlobStoreWrapper for Hiding {
    fn inner(&self) -> &dyn BlobStore {
        self.store.blobs()
    }

    /// Refuses content with a value: its name is the hash of the bytes, so that they cannot be changed here.
    async fn put(&self, mut put: PutBlob) -> Result<()> {
        if !self.secrets.given().is_empty() {
            put.content = self.secrets.guarded(put.session, put.blob.name, put.content);
        }
        self.store.blobs().put(put).await
    }
}
