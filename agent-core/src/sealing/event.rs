//! Events: what is sealed of them, and the copies that the fold reads.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::base::sealed::{payload_of, sealed_payload};
use crate::base::{BlobName, Error, RawFields, RawJson, Result, SessionId, to_text};
use crate::event::payload::blobs::NamedBlobs;
use crate::event::payload::message::first_words;
use crate::event::{Event, EventPayload, IMPORT_END};
use crate::model::{Transition, WORDS_MAX_BYTES};
use crate::sealing::record::check_key;
use crate::sealing::word::Words;
use crate::sealing::{Sealed, Sealing};

/// What is sealed of an event.
#[derive(Serialize, Deserialize)]
struct Content<'a> {
    data: Cow<'a, RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transition: Option<Cow<'a, RawJson>>,
    #[serde(default, skip_serializing_if = "<[BlobName]>::is_empty")]
    blobs: Cow<'a, [BlobName]>,
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    extra: RawFields,
}

/// Returns the event with other contents. Copies no payload, which may be large.
fn with_contents(
    event: &Event,
    payload: RawJson,
    transition: Option<RawJson>,
    blobs: Vec<BlobName>,
    extra: RawFields,
) -> Event {
    let Event { seq, commit, n, of, at, kind, actor, run, .. } = event;
    let (kind, actor) = (kind.clone(), actor.clone());
    Event {
        seq: *seq,
        commit: *commit,
        n: *n,
        of: *of,
        at: *at,
        kind,
        actor,
        run: *run,
        transition,
        blobs,
        payload,
        extra,
    }
}

/// Seals an event that was planned.
///
/// # Errors
///
/// `BlobMissing` if the event names a blob that the sealing does not know.
pub(crate) fn seal_event(session: SessionId, event: &Event, sealing: &dyn Sealing) -> Result<Event> {
    let words = Words::to_seal(sealing, session);
    let copies = words.copies(event)?;
    let mut content = Content {
        data: Cow::Borrowed(&event.payload),
        transition: event.transition.as_ref().map(Cow::Borrowed),
        blobs: Cow::Borrowed(&event.blobs),
        extra: event.extra.clone(),
    };
    let mut extra = RawFields::new();
    if let Some(end) = content.extra.remove(IMPORT_END) {
        extra.insert(IMPORT_END, end);
    }
    let mut blobs: Vec<_> =
        event.blobs.iter().filter_map(|name| sealing.blob(*name)).map(|blob| blob.inner.name).collect();
    blobs.sort_unstable();
    let transition = event.transition()?.map(|transition| words.transition(transition)).transpose()?;
    let transition = transition.as_ref().map(RawJson::of).transpose()?;
    let payload = payload_of("", &copies)?;
    let outer = with_contents(event, payload, transition, blobs, extra);
    let sealed = sealing.seal(
        Sealed::Event,
        &[session.as_uuid().as_bytes(), outer.to_json().as_bytes()],
        to_text(&content).as_bytes(),
    );
    let payload = payload_of(&format!("1.{}.{sealed}", sealing.key()), &copies)?;
    Ok(Event { payload, ..outer })
}

/// Opens an event as an encrypted store keeps it: returns the event that was sealed, byte for byte.
///
/// # Errors
///
/// `Corrupt` if the event is not sealed, if it was sealed by another key, or if anything of it is not as it was sealed.
pub fn open_event(session: SessionId, event: &Event, sealing: &dyn Sealing) -> Result<Event> {
    let wrong = |what: &str| {
        Error::corrupt(format!(
            "event {} of session {session} {what}; restore the store from a backup",
            event.seq
        ))
    };
    let Some((sealed, empty)) = sealed_payload(&event.payload) else {
        return Err(wrong("is not sealed, and this store is encrypted"));
    };
    let mut parts = sealed.splitn(3, '.');
    let (Some("1"), Some(key), Some(sealed)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(wrong("is sealed in a way that this version does not know"));
    };
    check_key(session, key, sealing)?;
    let (transition, blobs, extra) = (event.transition.clone(), event.blobs.clone(), event.extra.clone());
    let bound = with_contents(event, empty, transition, blobs, extra).to_json();
    let plain = sealing.open(Sealed::Event, &[session.as_uuid().as_bytes(), bound.as_bytes()], sealed);
    let plain = plain.map_err(|source| wrong("was changed after it was sealed").with_source(source))?;
    let content: Content<'_> =
        serde_json::from_slice(&plain).map_err(|source| wrong("holds no event").with_source(source))?;
    let mut extra = content.extra;
    if let Some(end) = event.extra.get(IMPORT_END) {
        extra.insert(IMPORT_END, end.clone());
    }
    let transition = content.transition.map(Cow::into_owned);
    Ok(with_contents(event, content.data.into_owned(), transition, content.blobs.into_owned(), extra))
}

/// Copies of the members of a payload that the fold reads.
#[derive(Default, Serialize)]
struct Copies {
    /// First words of a message, sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<String>,
    /// Number of bytes of the payload, where the record counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Number of bytes of the blobs to which the payload refers.
    #[serde(skip_serializing_if = "Option::is_none")]
    blob_bytes: Option<u64>,
}

impl Words<'_> {
    /// Returns the copies beside a sealed payload.
    fn copies(&self, event: &Event) -> Result<RawFields> {
        let mut copies: RawFields = self.body_copies(event)?;
        let mut common = Copies::default();
        let kind = event.kind.as_str();
        if matches!(kind, "user.message" | "agent.message") {
            common.words = first_words(&event.payload, WORDS_MAX_BYTES);
            self.optional("preview", &mut common.words)?;
        }
        let is_counted = matches!(
            kind,
            "user.message"
                | "user.define_outcome"
                | "agent.message"
                | "agent.part"
                | "system.message"
                | "agent.thinking"
                | "agent.tool_result"
                | "user.custom_tool_result"
        );
        common.bytes = is_counted.then_some(event.payload.get().len() as u64);
        if !event.blobs.is_empty() {
            common.blob_bytes = Some(NamedBlobs::of(&event.decode()?).bytes());
        }
        for (name, value) in RawJson::of(&common)?.to::<RawFields>()?.iter() {
            copies.push(name, value.clone());
        }
        Ok(copies)
    }

    /// Returns the copies that only one type has. They have the names and the shapes of the payload's own members.
    fn body_copies(&self, event: &Event) -> Result<RawFields> {
        let kept: &[&str] = match event.kind.as_str() {
            "agent.tool_use" | "agent.custom_tool_use" | "agent.tool_result" | "user.custom_tool_result" => {
                &["call"]
            }
            "span.started" | "span.completed" => &["span"],
            "system.message" => &["custom"],
            "session.compacted" => &["until"],
            "session.reported"
            | "session.run_usage"
            | "session.created"
            | "session.updated"
            | "session.document_written"
            | "session.timer_scheduled"
            | "session.timer_cancelled" => return self.typed_copies(event.decode()?),
            _ => return Ok(RawFields::new()),
        };
        let members: RawFields = event.payload.to()?;
        Ok(members
            .iter()
            .filter(|(name, _)| kept.contains(name))
            .map(|(name, value)| (name, value.clone()))
            .collect())
    }

    fn typed_copies(&self, body: EventPayload) -> Result<RawFields> {
        match body {
            EventPayload::SessionCreated(mut created) => {
                self.attributes(&mut created.attributes)?;
                self.documents(&mut created.inherited.documents)?;
                self.optional("preview", &mut created.inherited.first_words)?;
                self.optional("preview", &mut created.inherited.preview)?;
                RawJson::of(&created)?.to()
            }
            EventPayload::SessionUpdated(mut patch) => {
                self.patch(&mut patch)?;
                RawJson::of(&patch)?.to()
            }
            EventPayload::SessionTimerScheduled(mut timer) => {
                self.timer(&mut timer)?;
                RawJson::of(&timer)?.to()
            }
            EventPayload::SessionTimerCancelled(mut timer) => {
                self.word("timer key", &mut timer.key)?;
                RawJson::of(&timer)?.to()
            }
            EventPayload::SessionDocumentWritten(mut written) => {
                self.word("document name", &mut written.name)?;
                let bytes = written.text.take().map(|text| text.len() as u64);
                let mut copies: RawFields = RawJson::of(&written)?.to()?;
                if let Some(bytes) = bytes {
                    copies.insert("bytes", RawJson::sure(&bytes));
                }
                Ok(copies)
            }
            EventPayload::SessionReported(reported) => RawJson::of(&reported)?.to(),
            EventPayload::SessionRunUsage(used) => RawJson::of(&used)?.to(),
            _ => Ok(RawFields::new()),
        }
    }

    /// Seals the words of a transition. What a newer version added to it is sealed with the event.
    fn transition(&self, mut transition: Transition) -> Result<Transition> {
        if let Some(Some(action)) = &mut transition.action {
            self.action(action)?;
        }
        if let Some(Some(failure)) = &mut transition.failure {
            self.failure(failure)?;
        }
        Ok(transition)
    }
}
