//! Summaries of the older part of a conversation, by the host or by rule.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::context::{ContextLimits, Messages, shortened};
use agent_core::model::{Cost, Usage};
use agent_core::setters;
use agent_core::{Result, SessionId, WorkspaceId};

/// Maximum duration of a summary.
pub(crate) const SUMMARY_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum bytes of the first message in such a text.
const FIRST_MAX_BYTES: usize = 4 << 10;

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
    pub messages: Messages,
    /// Maximum bytes of the summary; the middle of a longer one is left out.
    pub max_bytes: usize,
}

/// Summary that a [`Summarizer`] wrote, and what its model took for it.
///
/// ```
/// use agent_runtime::{Usage, WrittenSummary};
///
/// let summary = WrittenSummary::new("They said hello.").with_usage(Usage::new(900, 8));
/// assert_eq!((summary.text.as_str(), summary.cost), ("They said hello.", None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrittenSummary {
    /// Text of the summary.
    pub text: String,
    /// Usage of the model that wrote it; default none.
    pub usage: Usage,
    /// Cost of that usage, if it is known; default `None`.
    pub cost: Option<Cost>,
}

impl WrittenSummary {
    /// Creates a summary that no model wrote.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), usage: Usage::default(), cost: None }
    }

    setters! {
        /// Sets the usage of the model that wrote the summary; the default is none. It counts as usage of the run.
        pub const fn with_usage(usage: Usage) => usage = usage;

        /// Sets the cost of that usage; the default is `None`.
        pub fn with_cost(cost: Option<Cost>) => cost = cost;
    }
}

impl From<String> for WrittenSummary {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// Summarizer of the older part of a conversation, if the history exceeds the [limits](ContextLimits).
///
/// A run calls it before it calls the model, and commits the summary as `session.compacted`. If the model has refused a
/// request as too long, the summary is committed only if the model accepts the shorter request. A summarizer that fails,
/// panics, gives no text, or takes longer than a minute is replaced by a text with the first message of the conversation, shortened, and the number of events that are left out. The same
/// happens for a history that is too long to be read at once. The log keeps all events in any case.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::{MemoryStore, Result, async_trait};
/// use agent_runtime::context::{ContextLimits, ModelContext};
/// use agent_runtime::{AgentBuilder, Config, EchoProvider, Summarizer, SummaryRequest, WrittenSummary};
///
/// /// Summarizer that counts; a real one asks a model.
/// #[derive(Debug)]
/// struct Counting;
///
/// #[async_trait]
/// impl Summarizer for Counting {
///     async fn summarize(&self, request: SummaryRequest) -> Result<WrittenSummary> {
///         Ok(format!("They exchanged {} messages.", request.messages.len()).into())
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
    /// Returns the summary of the previous one and the messages. Its usage is a part of the run's, and
    /// [stored](crate::Config::with_record_usage) with it, also if the summary has no text or is not needed in the end.
    ///
    /// # Errors
    ///
    /// Any error; it is logged, and the run continues with the text described above.
    ///
    /// # Cancel safety
    ///
    /// A run that is cancelled drops the future.
    async fn summarize(&self, request: SummaryRequest) -> Result<WrittenSummary>;
}

#[async_trait]
impl<S: Summarizer + ?Sized> Summarizer for Arc<S> {
    async fn summarize(&self, request: SummaryRequest) -> Result<WrittenSummary> {
        (**self).summarize(request).await
    }
}

/// Returns the text that stands for this number of events. It begins with the previous summary, shortened to an eighth of
/// the room, or with the first message of the conversation, shortened to a sixteenth and at most 4 KiB.
pub(crate) fn mechanical(
    previous: Option<&str>,
    first: Option<String>,
    events: u64,
    limits: &ContextLimits,
) -> String {
    let previous = shortened(told(previous).to_owned(), limits.bytes / 8);
    let text = match first.filter(|_| previous.is_empty()) {
        Some(first) => {
            let first = shortened(first, (limits.bytes / 16).min(FIRST_MAX_BYTES));
            format!("The conversation began with this message:\n{first}")
        }
        None => previous,
    };
    let gap = if text.is_empty() { "" } else { "\n\n" };
    format!("{text}{gap}{events}{LEFT_OUT}")
}

/// Returns a previous summary without its number of events, which the next one includes.
pub(crate) fn told(previous: Option<&str>) -> &str {
    let previous = previous.unwrap_or_default();
    let told = match previous.rsplit_once('\n') {
        Some((text, last)) if is_count(last) => text,
        None if is_count(previous) => "",
        _ => previous,
    };
    told.trim_end()
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
        let mechanical = |previous: Option<&str>, events| mechanical(previous, None, events, &limits);
        let first = mechanical(None, 12);
        assert_eq!(first, "12 earlier events are left out.");
        assert_eq!(mechanical(Some(&first), 40), "40 earlier events are left out.");
        let told = mechanical(Some("They met."), 40);
        assert_eq!(told, "They met.\n\n40 earlier events are left out.");
        assert_eq!(mechanical(Some(&told), 50), "They met.\n\n50 earlier events are left out.");
        let long = mechanical(Some(&"x".repeat(500)), 9);
        assert!(long.len() < 200 && long.ends_with("9 earlier events are left out."), "{long}");
    }
}
