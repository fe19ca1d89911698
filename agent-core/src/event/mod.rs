//! Events: types, payloads and JSON form.
//!
//! A message is a text, or a text with [parts](Part) like images. The tags of parts are those of `ContentBlock` in MCP
//! and ACP, with a few added. What a provider demands back unchanged is stored as [`Native`], beside the text.

pub(crate) mod body;
pub(crate) mod header;
pub(crate) mod payload;
pub(crate) mod type_name;
pub(crate) mod types;

pub use body::EventPayload;
pub use header::{EVENT_MAX_BYTES, Event, NewEvent};
pub use payload::answer::{AgentPart, AgentResponse, CITATIONS_MAX, Citation, ModelOrigin, Native};
pub use payload::child::{ChildCreated, ChildIdle};
pub use payload::content::{HostedCall, HostedResult, PARTS_MAX, Part};
pub use payload::created::{Created, Inherited};
pub use payload::document::DocumentWritten;
pub use payload::learning::{LEARNING_MAX_BYTES, Learning, LearningKind, LearningPromoted};
pub use payload::media::{Media, MediaSource};
pub use payload::message::{Comment, Compaction, Interrupt, Message, SystemMessage};
pub use payload::operation::{AuditedOperation, Operation, OperationOutcome, RemovedObjects, SecretVersion};
pub use payload::span::{SpanCompleted, SpanStarted};
pub use payload::tool::{Decision, FullOutput, ToolConfirmation, ToolOutcome, ToolResult, ToolUse};
pub use type_name::EventType;

pub(crate) use body::check_body;
pub(crate) use header::{FIELDS, IMPORT_END};
