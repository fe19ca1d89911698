//! Progress of a long operation: on a terminal one line on standard error, which is updated in place.

use std::io::{self, Write};
use std::sync::Mutex;
use std::time::Duration;

use clap::ValueEnum;
use tokio::time::Instant;

use super::output::is_watched;

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

/// Progress output.
#[derive(Debug)]
pub(crate) struct Bar {
    progress: Progress,
    told: Mutex<Option<Instant>>,
}

impl Bar {
    pub(crate) fn new(progress: Progress) -> Self {
        let nobody = progress == Progress::Auto && !is_watched();
        Self { progress: if nobody { Progress::None } else { progress }, told: Mutex::new(None) }
    }

    /// Reports that `done` of `total` items are done.
    pub(crate) fn tell(&self, what: &str, done: u64, total: Option<u64>) {
        let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
        match self.progress {
            Progress::None => {}
            Progress::Lines => {
                let _ = writeln!(io::stderr(), "{what} {done}{of}");
            }
            Progress::Auto => {
                let (Ok(mut told), now) = (self.told.lock(), Instant::now()) else { return };
                let is_end = total == Some(done);
                if is_end || told.is_none_or(|told| now - told >= EVERY) {
                    *told = Some(now);
                    let bar = total.map(|total| drawn(done, total)).unwrap_or_default();
                    let _ = write!(io::stderr(), "\r\x1b[2K{what} {bar}{done}{of}");
                }
            }
        }
    }

    /// Removes the progress bar.
    pub(crate) fn end(&self) {
        if self.progress == Progress::Auto {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

/// Returns a bar of twenty characters.
fn drawn(done: u64, total: u64) -> String {
    const MARKS: u64 = 20;
    let full = (done.min(total) * MARKS).checked_div(total).unwrap_or(MARKS);
    let mark = |n| if n < full { '#' } else { '.' };
    format!("[{}] ", (0..MARKS).map(mark).collect::<String>())
}
