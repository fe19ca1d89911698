//! Events that record a run and its tools as spans, if the configuration enables them.

use agent_core::event::{EventPayload, NewEvent, SpanCompleted, SpanStarted, ToolOutcome};
use agent_core::model::{Actor, SpanId};

/// Returns the event for the start of a span. The span's name is an id that was checked before.
pub(crate) fn started(span: &str, name: &str) -> Option<NewEvent> {
    let span: SpanId = span.parse().ok()?;
    Some(NewEvent::of(&EventPayload::SpanStarted(SpanStarted::new(span, name))).with_actor(Actor::SYSTEM))
}

/// Returns the event for the end of a span.
pub(crate) fn completed(span: &str, outcome: ToolOutcome) -> Option<NewEvent> {
    let span: SpanId = span.parse().ok()?;
    Some(
        NewEvent::of(&EventPayload::SpanCompleted(SpanCompleted::new(span, outcome)))
            .with_actor(Actor::SYSTEM),
    )
}
