//! Calls of rig without its logs.
//!
//! rig logs bodies of requests and answers, and a provider's error, which quotes the prompt and the key, as a warning.

use std::future::poll_fn;
use std::pin::pin;

use tracing::dispatcher::{Dispatch, with_default};

/// Calls rig; nothing that it logs arrives anywhere.
pub(crate) fn quietly<T>(call: impl FnOnce() -> T) -> T {
    with_default(&Dispatch::none(), call)
}

/// Awaits a future of rig; nothing that it logs arrives anywhere.
pub(crate) async fn quiet<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| quietly(|| work.as_mut().poll(context))).await
}
