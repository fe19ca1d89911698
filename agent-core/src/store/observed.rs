//! For backends: operations in spans.

use tracing::{Instrument, Span};

use crate::base::Result;

/// For backends: runs an operation in its span, and records its outcome in the field `outcome`: `ok`, or the name of the
/// error's kind.
///
/// # Errors
///
/// Those of `work`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::store::observed;
/// use tracing::{field::Empty, info_span};
///
/// let span = info_span!("store.load", store = "mine", outcome = Empty);
/// assert_eq!(observed(span, async { Ok(7) }).await?, 7);
/// # Ok(()) }
/// ```
pub async fn observed<T>(span: Span, work: impl Future<Output = Result<T>>) -> Result<T> {
    let done = work.instrument(span.clone()).await;
    span.record("outcome", done.as_ref().map_or_else(|error| error.kind().name(), |_| "ok"));
    done
}
