//! Output of a tool call: JSON, and parts beside it.

use agent_core::event::{MediaSource, Part};
use agent_core::json::RawJson;

/// Output of a tool call: JSON, usually a text, with further parts like images, and data beside it.
///
/// ```
/// use agent_core::event::{Media, Part};
/// use agent_core::json::RawJson;
/// use agent_runtime::ToolOutput;
///
/// let output = ToolOutput::new(RawJson::of(&"A screenshot.")?)
///     .with_part(Part::Image(Media::inline("image/png", *b"\x89PNG")))
///     .with_structured(RawJson::parse(r#"{"width":640}"#)?);
/// assert_eq!(output.content.len(), 1);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolOutput {
    /// Output that the model is given, usually a text.
    pub output: RawJson,
    /// Further parts of the output, like images.
    pub content: Vec<Part>,
    /// Output as data that fits the tool's output schema. The log keeps it; a model is not given it.
    pub structured: Option<RawJson>,
}

impl ToolOutput {
    /// Creates an output without further parts.
    pub const fn new(output: RawJson) -> Self {
        Self { output, content: Vec::new(), structured: None }
    }

    /// Adds a part, like an image.
    pub fn with_part(mut self, part: Part) -> Self {
        self.content.push(part);
        self
    }

    /// Sets the output as data that fits the tool's output schema.
    pub fn with_structured(mut self, structured: RawJson) -> Self {
        self.structured = Some(structured);
        self
    }

    /// Returns the number of bytes of the output, without its parts.
    pub(crate) fn json_bytes(&self) -> usize {
        self.output.get().len() + self.structured.as_ref().map_or(0, |structured| structured.get().len())
    }

    /// Returns the number of bytes of the media that the parts hold.
    pub(crate) fn media_bytes(&self) -> usize {
        let inline = |part: &Part| match part.media().map(|media| &media.source) {
            Some(MediaSource::Inline(bytes)) => bytes.len(),
            _ => 0,
        };
        self.content.iter().map(inline).sum()
    }

    /// Returns the number of levels of the JSON.
    pub(crate) fn depth(&self) -> usize {
        self.output.depth().max(self.structured.as_ref().map_or(0, RawJson::depth))
    }
}

impl From<RawJson> for ToolOutput {
    fn from(output: RawJson) -> Self {
        Self::new(output)
    }
}
