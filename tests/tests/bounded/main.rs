//! What must not grow, counted in this process: the memory of idle conversations, of a verification and of an export, and what is
//! read from a session however long it is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was counted is printed")]

mod idle;

use std::time::Duration;

use peak_alloc::PeakAlloc;
use tokio::sync::{Mutex, MutexGuard};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// How long to wait before a test is given up as stuck. Never what a test is about.
const STUCK: Duration = Duration::from_secs(600);

static ALONE: Mutex<()> = Mutex::const_new(());

/// Waits for the other tests of this program, whose memory and calls would be counted too.
async fn alone() -> MutexGuard<'static, ()> {
    tokio::time::timeout(STUCK, ALONE.lock()).await.expect("another test hangs")
}
