//! The events by which a run and its tools are recorded as spans, where the configuration wants that.

use agent_core::event::{Body, NewEvent, SpanCompleted, SpanStarted, ToolOutcome};
use agent_core::model::{Actor, SpanId};

/// A span begins. Its name is an id that was checked before.
pub(crate) fn started(span: &str, name: &str) -> Option<NewEvent> {
    let span: SpanId = span.parse().ok()?;
    Some(NewEvent::of(&Body::SpanStarted(SpanStarted::new(span, name))).with_actor(Actor::SYSTEM))
}

/// A span ends.
pub(crate) fn completed(span: &str, outcome: ToolOutcome) -> Option<NewEvent> {
    let span: SpanId = span.parse().ok()?;
    Some(NewEvent::of(&Body::SpanCompleted(SpanCompleted::new(span, outcome))).with_actor(Actor::SYSTEM))
}
