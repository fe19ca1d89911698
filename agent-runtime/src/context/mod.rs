//! Model context of a session: the visible conversation as messages, within limits.

mod assemble;
mod limits;
mod message;
mod messages;
mod model_context;
mod window;

pub(crate) use assemble::{MESSAGE, READ_OUTPUT, TEXT_MAX_BYTES, cut_mark, ends, ends_with, shortened};
pub use limits::ContextLimits;
pub use message::{AgentItem, AgentMessage, Content, ItemContent, ModelMessage, ModelToolResult};
pub use messages::Messages;
pub use model_context::ModelContext;
pub(crate) use window::{Assembled, Point};
