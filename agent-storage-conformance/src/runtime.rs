//! Separate runtime for each clause and each worker.

use std::pin::pin;
use std::time::Duration;

use crate::failure::{Checked, Failure};
use crate::journal::Journal;

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
            Ok(Err(_)) => Err(standstill()),
            Err(error) => Err(Failure::new("the clause", "no panic", error)),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(10));
    result
}

/// Returns the result of a future, unless no step begins for a while: `stuck` at least, and less than twice that.
pub(crate) async fn while_it_moves<T>(
    stuck: Duration,
    journal: &Journal,
    future: impl Future<Output = Checked<T>>,
) -> Checked<T> {
    let mut future = pin!(future);
    let mut seen = journal.count();
    loop {
        match tokio::time::timeout(stuck, &mut future).await {
            Ok(result) => return result,
            Err(_) if journal.count() == seen => return Err(standstill()),
            Err(_) => seen = journal.count(),
        }
    }
}

fn standstill() -> Failure {
    Failure::new("the clause", "an end", "a standstill")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUCK: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn slow_steps_are_no_standstill() {
        let journal = Journal::default();
        let slow = async {
            for step in 0..20 {
                journal.note(step);
                tokio::time::sleep(STUCK / 3).await;
            }
            Ok(())
        };
        assert!(while_it_moves(STUCK, &journal, slow).await.is_ok());
        let stuck = std::future::pending::<Checked<()>>();
        let failure = while_it_moves(STUCK, &journal, stuck).await.map_err(|failure| failure.to_string());
        assert!(failure.is_err_and(|text| text.contains("a standstill")));
    }
}
