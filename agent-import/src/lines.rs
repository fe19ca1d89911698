//! Lines of a file, at most one in memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use agent_core::{Error, ErrorKind, Result};

/// Maximum number of bytes of a line. A longer one is left out.
pub(crate) const LINE_MAX_BYTES: usize = 16 << 20;

/// Line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Number of bytes before it.
    pub(crate) offset: u64,
    /// Number of its bytes, without the line break.
    pub(crate) bytes: usize,
    /// True if it is too long, so that it was not kept.
    pub(crate) is_too_long: bool,
    /// True if a line break follows. The last line of a file that was cut off has none.
    pub(crate) is_whole: bool,
}

/// File that is read line by line.
#[derive(Debug)]
pub(crate) struct Lines {
    file: BufReader<File>,
    place: String,
    offset: u64,
    line: Vec<u8>,
}

impl Lines {
    /// Opens a regular file. What is no regular file, such as a pipe, is refused without being opened.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let failed = |source: io::Error| failed(&place, source);
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(Error::invalid(format!(
                "{place} is no regular file; name a file or a folder of files"
            )));
        }
        let file = File::open(path).map_err(failed)?;
        Ok(Self { file: BufReader::with_capacity(128 << 10, file), place, offset: 0, line: Vec::new() })
    }

    /// Reads the next line into memory; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<Line>> {
        self.line.clear();
        let limit = LINE_MAX_BYTES as u64 + 1;
        let read = self.file.by_ref().take(limit).read_until(b'\n', &mut self.line);
        let read = read.map_err(|source| failed(&self.place, source))?;
        if read == 0 {
            return Ok(None);
        }
        let offset = self.offset;
        self.offset += read as u64;
        let mut is_whole = self.line.ends_with(b"\n");
        let is_too_long = !is_whole && self.line.len() > LINE_MAX_BYTES;
        if is_too_long {
            self.line = Vec::new();
            is_whole = self.skip_line()?;
        }
        while self.line.ends_with(b"\n") || self.line.ends_with(b"\r") {
            self.line.pop();
        }
        Ok(Some(Line { offset, bytes: self.line.len(), is_too_long, is_whole }))
    }

    /// Skips the rest of a line; returns whether it ends with a line break.
    fn skip_line(&mut self) -> Result<bool> {
        loop {
            let buffer = self.file.fill_buf().map_err(|source| failed(&self.place, source))?;
            let (skipped, is_end) = match buffer.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (buffer.len(), false),
            };
            if skipped == 0 {
                return Ok(false);
            }
            self.file.consume(skipped);
            self.offset += skipped as u64;
            if is_end {
                return Ok(true);
            }
        }
    }

    /// Returns the bytes of the line that was read last.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.line
    }

    /// Reads a line again, from its place. The next line is the one after it.
    pub(crate) fn read_at(&mut self, offset: u64, bytes: usize) -> Result<&[u8]> {
        let distance = i128::from(offset) - i128::from(self.offset);
        let moved = match i64::try_from(distance) {
            Ok(distance) => self.file.seek_relative(distance),
            Err(_) => self.file.seek(SeekFrom::Start(offset)).map(drop),
        };
        moved.map_err(|source| failed(&self.place, source))?;
        self.line.clear();
        self.line.resize(bytes.min(LINE_MAX_BYTES), 0);
        let read = self.file.read_exact(&mut self.line);
        self.offset = offset + self.line.len() as u64;
        read.map_err(|source| failed(&self.place, source))?;
        Ok(&self.line)
    }
}

/// Returns the error of a file that cannot be read.
pub(crate) fn failed(place: &str, source: io::Error) -> Error {
    let kind = match source.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("{place} cannot be read: {source}")).with_source(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_one_by_one_and_again() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a");
        let long = "x".repeat(LINE_MAX_BYTES + 1);
        std::fs::write(&path, format!("one\r\n\n{long}\ntwo\ncut"))?;
        let mut lines = Lines::open(&path)?;
        let mut seen = Vec::new();
        while let Some(line) = lines.next()? {
            seen.push((line, String::from_utf8(lines.bytes().to_vec())?));
        }
        let texts: Vec<_> =
            seen.iter().map(|(line, text)| (&**text, line.is_too_long, line.is_whole)).collect();
        let expected = [
            ("one", false, true),
            ("", false, true),
            ("", true, true),
            ("two", false, true),
            ("cut", false, false),
        ];
        assert_eq!(texts, expected);
        for at in [3, 0, 4] {
            let (line, text) = &seen[at];
            assert_eq!(lines.read_at(line.offset, line.bytes)?, text.as_bytes());
        }
        Ok(())
    }
}
