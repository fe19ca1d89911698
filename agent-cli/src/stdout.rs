//! Standard output: each write is checked and flushed. After the first that fails nothing more is written, so that what came
//! through is a whole beginning, and the program ends with an error; see [`exit_code`].

use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// Why it takes no more.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes what a command or the conversation came to.
pub(crate) fn put(bytes: &[u8]) {
    if !is_closed() {
        let mut out = io::stdout().lock();
        note(out.write_all(bytes).and_then(|()| out.flush()));
    }
}

/// Notes how a write to it went.
pub(crate) fn note(written: io::Result<()>) {
    if let Err(error) = written {
        // The first is the one that counts.
        let _ = FAILED.set(error);
    }
}

/// Whether it takes no more.
pub(crate) fn is_closed() -> bool {
    FAILED.get().is_some()
}

/// The exit code for what came to `code`: 1 if output is missing, and then `tell` says why. Who does not read any longer, as
/// `head`, has seen enough, so that a closed pipe is no failure.
pub(crate) fn exit_code(code: u8, tell: impl FnOnce(&str)) -> u8 {
    match FAILED.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            tell(&format!("standard output took only a part of the result: {error}; make room there"));
            1
        }
        _ => code,
    }
}
