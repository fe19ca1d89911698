//! Reading of whole files, up to a limit. Device files are refused, because they may have no end.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use crate::failure::Failure;

/// Maximum number of bytes of a configuration.
pub(crate) const CONFIG_MAX: u64 = agent_core::store::ContentHash::CONFIG_MAX_BYTES as u64;
/// Maximum number of bytes of a session document.
pub(crate) const DOCUMENT_MAX: u64 = 1 << 30;

/// Reads a file or a pipe of at most `most` bytes; `-` is standard input.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let is_input = path == Path::new("-");
    let name = if is_input { "standard input".to_owned() } else { path.display().to_string() };
    let failed = |error: &io::Error| Failure::of_file("read", Path::new(&name), error);
    let too_large =
        || Failure::new(1, "limit_exceeded", format!("{name} is too large: the maximum is {most} bytes"));
    let mut bytes = Vec::new();
    let read = if is_input {
        io::stdin().lock().take(most + 1).read_to_end(&mut bytes)
    } else {
        // The type is checked before the file is opened, because opening a device may have an effect.
        let file = fs::metadata(path)
            .and_then(|meta| if is_read(&meta) { File::open(path).map(Some) } else { Ok(None) });
        let Some(file) = file.map_err(|error| failed(&error))? else {
            let text = format!("{name} is not a regular file or pipe; name a file");
            return Err(Failure::new(1, "invalid_input", text));
        };
        if file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > most) {
            return Err(too_large());
        }
        file.take(most + 1).read_to_end(&mut bytes)
    };
    read.map_err(|error| failed(&error))?;
    if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
}

/// Reads a file like [`read`], and checks that it is UTF-8 text.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String, Failure> {
    String::from_utf8(read(path, most)?).map_err(|_| {
        Failure::new(1, "failed", format!("cannot read {}: it is not UTF-8 text", path.display()))
    })
}

/// Returns whether an object is a file or a pipe.
pub(crate) fn is_read(meta: &Metadata) -> bool {
    #[cfg(unix)]
    let is_pipe = std::os::unix::fs::FileTypeExt::is_fifo(&meta.file_type());
    #[cfg(not(unix))]
    let is_pipe = false;
    meta.is_file() || is_pipe
}
