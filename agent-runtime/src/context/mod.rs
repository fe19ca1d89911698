//! Model context of a session: the visible conversation as messages, within limits.

mod assemble;
mod model_context;

pub use assemble::{ModelMessage, ModelToolResult};
pub use model_context::{ContextLimits, ModelContext};
