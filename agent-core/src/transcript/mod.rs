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

pub use manifest::{Ancestor, Manifest};
pub use markdown::{
    Frontmatter, Mark, ParsedTranscript, Seal, Speaker, Transcript, TranscriptForm, TranscriptMessage,
    TranscriptWriter,
};
pub use state::{RuntimeState, StatePayload, StateText};

use serde::Deserialize;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::json::Fault;

/// What every version of a document says of itself.
#[derive(Deserialize)]
struct Head {
    format: u64,
    kind: String,
}

/// The format of a document of this kind; a newer one, and another kind, are refused by name.
fn check_head(text: &str, kind: &str, newest: u64) -> Result<u64> {
    let head: Head = serde_json::from_str(text).map_err(|source| {
        Error::corrupt(format!("the document is no {kind} that was exported"))
            .with_source(Fault::from(source))
    })?;
    if head.format > newest || head.kind != kind {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the document is a {:?} of format {}; this version reads a {kind:?} of format {newest}",
                head.kind.chars().take(32).collect::<String>(),
                head.format
            ),
        ));
    }
    Ok(head.format)
}
