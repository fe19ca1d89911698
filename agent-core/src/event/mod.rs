//! Events: types, payloads and JSON form.

pub(crate) mod body;
pub(crate) mod header;
pub(crate) mod kind;
pub(crate) mod payload;
pub(crate) mod table;

pub use body::EventPayload;
pub use header::{EVENT_MAX_BYTES, Event, NewEvent};
pub use kind::EventType;
pub use payload::child::{ChildCreated, ChildIdle};
pub use payload::created::{Created, Inherited};
pub use payload::document::DocumentWritten;
pub use payload::learning::{LEARNING_MAX_BYTES, Learning, LearningKind, LearningPromoted};
pub use payload::message::{Comment, Compaction, Interrupt, Message, SystemMessage};
pub use payload::operation::{AuditedOperation, Operation, OperationOutcome};
pub use payload::span::{SpanCompleted, SpanStarted};
pub use payload::tool::{Decision, ToolConfirmation, ToolOutcome, ToolResult, ToolUse};

pub(crate) use body::check_body;
pub(crate) use header::FIELDS;
