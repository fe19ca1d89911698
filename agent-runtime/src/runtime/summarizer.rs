//! Summaries of the older part of a conversation, by the host or by rule.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::context::{ContextLimits, ModelMessage, shortened};
use agent_core::{Result, SessionId, WorkspaceId};

/// Maximum duration of a summary.
pub(crate) const SUMMARY_TIMEOUT: Duration = Duration::from_secs(60);

/// End of the text of a summary that no summarizer wrote.
const LEFT_OUT: &str = " earlier events are left out.";

/// Older part of a conversation that a summary is to replace.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SummaryRequest {
    /// Id of the session.
    pub session: SessionId,
    /// Id of the session's workspace.
    pub workspace: WorkspaceId,
    /// Summary so far, of what precedes the messages; `None` for the first.
    pub previous: Option<String>,
    /// Messages, oldest first.
    pub messages: Vec<ModelMessage>,
    /// Maximum bytes of the summary; the middle of a longer one is left out.
    pub max_bytes: usize,
}

/// Summarizer of the older part of a conversation, if the history exceeds the [limits](ContextLimits).
///
/// A run calls it before it calls the model, and commits the summary as `session.compacted`. A summarizer that fails,
/// panics, gives no text, or takes longer than a minute is replaced by
/// a text that names the number of events that are left out. The same happens for a history that is too long to be read
/// at once. The log keeps all events in any case.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::{MemoryStore, Result, async_trait};
/// use agent_runtime::context::{ContextLimits, ModelContext};
/// use agent_runtime::{AgentBuilder, Config, EchoProvider, Summarizer, SummaryRequest};
///
/// /// Summarizer that counts; a real one asks a model.
/// #[derive(Debug)]
/// struct Counting;
///
/// #[async_trait]
/// impl Summarizer for Counting {
///     async fn summarize(&self, request: SummaryRequest) -> Result<String> {
///         Ok(format!("They exchanged {} messages.", request.messages.len()))
///     }
/// }
///
/// let agent = AgentBuilder::new()
///     .with_config(Config::default().with_context_limits(ContextLimits::new(4, 100_000)))
///     .with_llm(EchoProvider::new())
///     .with_summarizer(Counting)
///     .with_storage(MemoryStore::new())
///     .build()?;
/// let chat = agent.conversation("support/4711").await?;
/// for text in ["one", "two", "three"] {
///     chat.prompt(text).await?.finish().await?;
/// }
///
/// let record = chat.refresh().await?;
/// let limits = ContextLimits::default();
/// let context = ModelContext::read(&*agent.storage().sessions, &record, limits).await?;
/// assert_eq!(context.summary(), Some("They exchanged 3 messages."));
/// # Ok(()) }
/// ```
#[async_trait]
pub trait Summarizer: Debug + Send + Sync + 'static {
    /// Returns the summary of the previous one and the messages.
    ///
    /// # Errors
    ///
    /// Any error; it is logged, and the run continues with the text described above.
    ///
    /// # Cancel safety
    ///
    /// A run that is cancelled drops the future.
    async fn summarize(&self, request: SummaryRequest) -> Result<String>;
}

#[async_trait]
impl<S: Summarizer + ?Sized> Summarizer for Arc<S> {
    async fn summarize(&self, request: SummaryRequest) -> Result<String> {
        (**self).summarize(request).await
    }
}

/// Returns the text that stands for this number of events; it begins with the previous summary, shortened to an eighth
/// of the room.
pub(crate) fn mechanical(previous: Option<&str>, events: u64, limits: &ContextLimits) -> String {
    let previous = previous.unwrap_or_default();
    // The number includes the events that the previous text has counted.
    let previous = match previous.rsplit_once('\n') {
        Some((text, last)) if is_count(last) => text,
        None if is_count(previous) => "",
        _ => previous,
    };
    let previous = shortened(previous.trim_end().to_owned(), limits.bytes / 8);
    let gap = if previous.is_empty() { "" } else { "\n\n" };
    format!("{previous}{gap}{events}{LEFT_OUT}")
}

fn is_count(line: &str) -> bool {
    line.strip_suffix(LEFT_OUT).is_some_and(|number| number.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_not_repeated() {
        let limits = ContextLimits::new(10, 800);
        let first = mechanical(None, 12, &limits);
        assert_eq!(first, "12 earlier events are left out.");
        assert_eq!(mechanical(Some(&first), 40, &limits), "40 earlier events are left out.");
        let told = mechanical(Some("They met."), 40, &limits);
        assert_eq!(told, "They met.\n\n40 earlier events are left out.");
        assert_eq!(mechanical(Some(&told), 50, &limits), "They met.\n\n50 earlier events are left out.");
        let long = mechanical(Some(&"x".repeat(500)), 9, &limits);
        assert!(long.len() < 200 && long.ends_with("9 earlier events are left out."), "{long}");
    }
}
