//! Spans: pieces of work with a start and an end.

use serde::{Deserialize, Serialize};

use crate::event::payload::tool::ToolOutcome;
use crate::model::SpanId;

/// Payload of `span.started`: the start of a span of work.
///
/// ```
/// use agent_core::event::{SpanCompleted, SpanStarted, ToolOutcome};
/// use agent_core::model::SpanId;
///
/// let span: SpanId = "index-1".parse()?;
/// let (started, completed) = (SpanStarted::new(span.clone(), "indexing"), SpanCompleted::new(span, ToolOutcome::Ok));
/// assert_eq!(started.span, completed.span);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SpanStarted {
    /// Id of the span, unique among the open spans of the session.
    pub span: SpanId,
    /// Name of the work.
    pub name: String,
}

impl SpanStarted {
    /// Creates the start of a span with this name.
    pub fn new(span: SpanId, name: impl Into<String>) -> Self {
        Self { span, name: name.into() }
    }
}

/// Payload of `span.completed`: the end of a span of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SpanCompleted {
    /// Id of the span.
    pub span: SpanId,
    /// Outcome of the work.
    pub outcome: ToolOutcome,
}

impl SpanCompleted {
    /// Creates the end of `span`.
    pub fn new(span: SpanId, outcome: ToolOutcome) -> Self {
        Self { span, outcome }
    }
}
