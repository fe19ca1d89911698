//! Progress of a long operation: on a terminal one line on standard error, which is updated in place.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use tokio::time::Instant;

/// Minimum time between two updates on a terminal.
const EVERY: Duration = Duration::from_millis(100);

/// Form of the progress output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    /// A progress bar, if standard error is a terminal
    Auto,
    /// One line for each item
    Lines,
    /// No progress output
    None,
}

/// Progress output. A progress bar that was shown is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Bar {
    progress: Progress,
    last_shown: Mutex<Option<Instant>>,
}

impl Bar {
    pub(crate) fn new(progress: Progress) -> Self {
        let nobody = progress == Progress::Auto && !io::stderr().is_terminal();
        Self { progress: if nobody { Progress::None } else { progress }, last_shown: Mutex::new(None) }
    }

    /// Reports that `done` of `total` items are done.
    pub(crate) fn report(&self, what: &str, done: u64, total: Option<u64>) {
        self.show(what, done, total, &|count| count.to_string());
    }

    fn show(&self, what: &str, done: u64, total: Option<u64>, text: &dyn Fn(u64) -> String) {
        let of = total.map(|total| format!(" of {}", text(total))).unwrap_or_default();
        match self.progress {
            Progress::None => {}
            Progress::Lines => {
                let _ = writeln!(io::stderr(), "{what} {}{of}", text(done));
            }
            Progress::Auto => {
                let (Ok(mut last_shown), now) = (self.last_shown.lock(), Instant::now()) else { return };
                let is_end = total == Some(done);
                if is_end || last_shown.is_none_or(|last_shown| now - last_shown >= EVERY) {
                    *last_shown = Some(now);
                    let bar = total.map(|total| drawn(done, total)).unwrap_or_default();
                    let _ = write!(io::stderr(), "\r\x1b[2K{what} {bar}{}{of}", text(done));
                }
            }
        }
    }
}

/// Removes the progress bar.
impl Drop for Bar {
    fn drop(&mut self) {
        let is_shown = self.last_shown.get_mut().is_ok_and(|last_shown| last_shown.is_some());
        if is_shown {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

/// Number of bytes from which progress is shown.
const LARGE: u64 = 16 << 20;

/// Shows on standard error, if it is a terminal, how much of a large content was read: of `len` bytes, if that is known.
pub(crate) fn watched<'a>(
    what: &'static str,
    content: BoxStream<'a, agent_core::Result<Bytes>>,
    len: Option<u64>,
) -> BoxStream<'a, agent_core::Result<Bytes>> {
    let bar = Bar::new(Progress::Auto);
    if bar.progress == Progress::None || len.is_some_and(|len| len < LARGE) {
        return content;
    }
    let mut done = 0;
    let content = content.inspect_ok(move |piece| {
        done += piece.len() as u64;
        if done >= LARGE || len.is_some() {
            bar.show(what, done, len, &|bytes| format!("{} MiB", bytes >> 20));
        }
    });
    content.boxed()
}

/// Returns a bar of twenty characters.
fn drawn(done: u64, total: u64) -> String {
    const MARKS: u64 = 20;
    let full = (done.min(total) * MARKS).checked_div(total).unwrap_or(MARKS);
    let mark = |n| if n < full { '#' } else { '.' };
    format!("[{}] ", (0..MARKS).map(mark).collect::<String>())
}
