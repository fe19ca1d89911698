//! Events: their types, their payloads, their JSON form.

pub(crate) mod body;
pub(crate) mod header;
pub(crate) mod kind;
pub(crate) mod payload;
pub(crate) mod table;

pub use body::Body;
pub use header::{EVENT_MAX_BYTES, Event, NewEvent};
pub use kind::EventType;
pub use payload::child::{ChildCreated, ChildIdle};
pub use payload::created::{Created, Inherited};
pub use payload::document::DocumentWritten;
pub use payload::learning::{LEARNING_MAX_BYTES, Learning, LearningKind, LearningPromoted};
pub use payload::message::{Compaction, Interrupt, Message, Note, SystemMessage};
pub use payload::operation::{Operation, OperationNoted, OperationOutcome};
pub use payload::span::{SpanCompleted, SpanStarted};
pub use payload::tool::{Decision, ToolConfirmation, ToolOutcome, ToolResult, ToolUse};

pub(crate) use body::check_body;
pub(crate) use header::FIELDS;
