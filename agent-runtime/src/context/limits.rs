//! Limits on the history that a model receives.

use serde::{Deserialize, Serialize};

/// Limits on the history that a model receives.
///
/// A run over a limit first [compacts](agent_core::event::Compaction) its session, down to half of it, and records
/// that in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ContextLimits {
    /// Maximum number of messages; default 1,000. Results of tools count as a part of the answer that called them. The last
    /// exchange is always included, also if it has more.
    pub messages: usize,
    /// Maximum bytes of text; default 512 KiB, and less for a model that is
    /// [known](field@crate::ModelCapabilities::context_tokens) to take less. The last exchange is always included, also if it
    /// has more.
    pub bytes: usize,
    /// Maximum bytes of one tool's output; default 32 KiB. Of a longer output, a model is given the beginning and the end
    /// ([`ToolResult::output`](agent_core::event::ToolResult)), and the log has the whole beside them
    /// ([`full`](field@agent_core::event::ToolResult::full)). The results of one answer together have at most half of
    /// `bytes`. An output that does not fit in an event of 16 MiB is an error result instead.
    pub tool_output_bytes: usize,
}

impl Default for ContextLimits {
    fn default() -> Self {
        Self { messages: 1000, bytes: 512 << 10, tool_output_bytes: 32 << 10 }
    }
}

impl ContextLimits {
    /// Creates limits with these numbers of messages and bytes, and 32 KiB for one tool's output.
    ///
    /// ```
    /// use agent_runtime::context::ContextLimits;
    ///
    /// let limits = ContextLimits::default();
    /// assert_eq!((limits.messages, limits.bytes, limits.tool_output_bytes), (1000, 512 << 10, 32 << 10));
    ///
    /// let limits = ContextLimits::new(50, 100_000).with_tool_output_bytes(8_000);
    /// assert_eq!((limits.messages, limits.bytes, limits.tool_output_bytes), (50, 100_000, 8_000));
    /// ```
    pub fn new(messages: usize, bytes: usize) -> Self {
        Self { messages, bytes, ..Self::default() }
    }

    /// Sets the maximum bytes of one tool's output; default 32 KiB.
    #[must_use]
    pub fn with_tool_output_bytes(mut self, bytes: usize) -> Self {
        self.tool_output_bytes = bytes;
        self
    }
}
