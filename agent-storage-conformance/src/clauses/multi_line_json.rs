//! JSON that was written over several lines: it is compacted when it is accepted, and nothing of it is lost.

use agent_core::commit::Commit;
use agent_core::event::{Event, EventPayload, NewEvent};
use agent_core::json::RawJson;
use agent_core::model::Patch;
use agent_core::session::NewSession;

use crate::failure::{Checked, Failure, holds_for, same};
use crate::registry::{Clause, table};
use crate::stage::{Stage, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![Content: multi_line_json_is_stored_compact,]
}

/// Parses JSON by serde alone, without a function of the library.
fn spread(json: &str) -> Checked<RawJson> {
    serde_json::from_str(json).map_err(|error| Failure::new("JSON over several lines", "a value", error))
}

/// JSON with line breaks between its values is acknowledged, and there after reopening in compact form. This holds for
/// a payload, a field that this version does not know, metadata, and an event that was stored elsewhere. Later writes
/// are there too.
async fn multi_line_json_is_stored_compact(stage: &Stage) -> Checked {
    let (payload, field) =
        (spread("{\n \"text\": \"a\\nb c\",\r\n\t\"n\": 1.10\n}")?, spread("[\n1,\n\"\\n\" ]")?);
    let metadata = Patch::new().with_metadata("cart", spread("{\n\"items\": []\n}")?);
    let message = NewEvent::new("user.message".parse()?, payload).with_extra("x_trace", field);
    let mut storage = stage.open().await?;
    let created = stage.new_session(&storage).await?;
    let commit = stage.seal(&created).with_event(message).with_event(NewEvent::updated(metadata));
    let session = storage.sessions.commit(commit).await?.session;

    // The same session elsewhere, from events that were laid out for people.
    let copy = NewSession::new(stage.effects.new_session_id(), session.workspace).id;
    for events in own_events(&storage, session.id, 100).await?.chunk_by(|a, b| a.commit == b.commit) {
        let laid_out =
            |event: &Event| event.to_json().replace("\"data\":", "\n\"data\":\n").replace(",\"n", ",\n\"n");
        let events: Vec<Event> =
            events.iter().map(|event| Event::from_json(&laid_out(event))).collect::<Result<_, _>>()?;
        storage.sessions.commit(Commit::restore(copy, events)?).await?;
    }

    for id in [session.id, copy] {
        storage = stage.reopen(storage).await?;
        let seen = storage.sessions.load(id).await?.head;
        same("the head after reopening", &seen, &session.head)?;
        storage.sessions.append(id, seen, vec![NewEvent::user_message("after it")]).await?;
        storage = stage.reopen(storage).await?;
        let events = own_events(&storage, id, 2).await?;
        same("the number of events", &(events.len() as u64), &seen.next().get())?;
        for event in &events {
            holds_for("each event is one line", &event.seq, !event.to_json().contains(['\n', '\r']))?;
        }
        let message = events.iter().find(|event| matches!(event.decode(), Ok(EventPayload::UserMessage(_))));
        let messages = message.ok_or_else(|| Failure::new("the message", "that event", "none"))?;
        same("the payload", messages.payload.get(), "{\"text\":\"a\\nb c\",\"n\":1.10}")?;
        same("the field", &messages.extra.get("x_trace").map(RawJson::get), &Some("[1,\"\\n\"]"))?;
        let record = storage.sessions.load(id).await?;
        let metadata = record.attributes.metadata.get("cart").map(RawJson::get);
        same("the metadata", &metadata, &Some("{\"items\":[]}"))?;
    }
    Ok(())
}
