//! Separate runtime for each clause and each worker.

use std::time::Duration;

use crate::failure::{Checked, Failure};

/// Runs a future on a runtime of its own. A panic is a failure, and so is a future that has not completed after
/// `stuck`.
pub(crate) fn on_runtime<T: Send + 'static>(
    stuck: Duration,
    future: impl Future<Output = Checked<T>> + Send + 'static,
) -> Checked<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .map_err(|error| Failure::new("starting a runtime", "success", error))?;
    let result = runtime.block_on(async {
        let task = tokio::spawn(tokio::time::timeout(stuck, future));
        match task.await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Failure::new("the clause", "an end", "a standstill")),
            Err(error) => Err(Failure::new("the clause", "no panic", error)),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(10));
    result
}
