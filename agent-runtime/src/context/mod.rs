//! Model context of a session: the visible conversation as messages, within limits.

mod assemble;
mod limits;
mod model_context;
mod window;

pub use assemble::{ModelMessage, ModelToolResult};
pub(crate) use assemble::{TEXT_MAX_BYTES, shortened};
pub use limits::ContextLimits;
pub use model_context::ModelContext;
pub(crate) use window::Point;
