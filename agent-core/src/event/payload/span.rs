//! Spans: what took how long.

use serde::{Deserialize, Serialize};

use crate::event::payload::tool::ToolOutcome;
use crate::model::SpanId;

/// A piece of work begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SpanStarted {
    /// The span's id, unique among the open ones of the session.
    pub span: SpanId,
    /// What is done.
    pub name: String,
}

impl SpanStarted {
    /// A span of this name.
    pub fn new(span: SpanId, name: impl Into<String>) -> Self {
        Self { span, name: name.into() }
    }
}

/// A piece of work ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SpanCompleted {
    /// The span.
    pub span: SpanId,
    /// How it came out.
    pub outcome: ToolOutcome,
}

impl SpanCompleted {
    /// The end of `span`.
    pub fn new(span: SpanId, outcome: ToolOutcome) -> Self {
        Self { span, outcome }
    }
}
