//! Standard output. Each write is checked and flushed. After the first failed write nothing more is written, so that the
//! output so far is an unbroken beginning, and the program ends with an error; see [`exit_code`].

use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// Error of the first failed write.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes a text or bytes to standard output, unchanged.
pub(crate) fn put(content: &(impl AsRef<[u8]> + ?Sized)) {
    if !is_closed() {
        let mut out = io::stdout().lock();
        note(out.write_all(content.as_ref()).and_then(|()| out.flush()));
    }
}

/// Records the result of a write to standard output.
pub(crate) fn note(written: io::Result<()>) {
    if let Err(error) = written {
        // Only the first error is kept.
        let _ = FAILED.set(error);
    }
}

/// Returns whether a write has failed, so that nothing more is written.
pub(crate) fn is_closed() -> bool {
    FAILED.get().is_some()
}

/// Returns the exit code: 1 if output is missing, and `report` is then called with the reason; otherwise `code`. A reader
/// that closes the pipe, as `head` does, is not an error.
pub(crate) fn exit_code(code: u8, report: impl FnOnce(&str)) -> u8 {
    match FAILED.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            report(&format!(
                "the output is incomplete: writing to standard output failed: {error}; redirect it to a file with enough space"
            ));
            1
        }
        _ => code,
    }
}
