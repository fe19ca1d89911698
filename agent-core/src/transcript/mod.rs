//! What a model, a person or another system reads from a session.

#[cfg(feature = "runtime")]
mod assemble;
pub mod manifest;
pub mod markdown;
#[cfg(feature = "runtime")]
mod model_context;
pub mod state;

#[cfg(feature = "runtime")]
pub use assemble::{ModelMessage, ModelToolResult};
#[cfg(feature = "runtime")]
pub use model_context::{ContextLimits, ModelContext};

pub use manifest::Manifest;
pub use markdown::{
    Frontmatter, Mark, ParsedTranscript, Seal, Speaker, Transcript, TranscriptForm, TranscriptMessage,
    TranscriptWriter,
};
pub use state::{RuntimeState, StatePayload, StateText};
