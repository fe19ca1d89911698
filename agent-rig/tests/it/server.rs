//! Servers on the loopback, and deadlines.

use std::time::Duration;

pub(crate) use model_servers::{Answer, Request, Server};

/// Deadline of every wait in these tests.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Waits for the future, at most until the deadline.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("the test ends before its deadline")
}
