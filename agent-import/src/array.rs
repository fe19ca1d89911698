//! Elements of a JSON array in a file, at most one in memory.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use agent_core::{Error, Result};

use crate::lines::failed;

/// Maximum number of bytes of an element. A larger one is left out.
pub(crate) const ELEMENT_MAX_BYTES: usize = 64 << 20;

/// Element of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// It is in memory. Its brackets match; it may be no JSON nevertheless.
    Whole,
    /// It is too large, and was skipped.
    TooLarge,
    /// The file ends within it, or without an end of the array.
    Cut,
}

/// File that is one JSON array, or one object, which counts as an array of it.
#[derive(Debug)]
pub(crate) struct Elements {
    file: BufReader<File>,
    place: String,
    element: Vec<u8>,
    max_bytes: usize,
    /// True if the file is one object.
    is_single: bool,
    is_done: bool,
}

impl Elements {
    /// Opens a regular file.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is an archive, or begins like no array.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let meta = std::fs::metadata(path).map_err(|source| failed(&place, source))?;
        if !meta.is_file() {
            return Err(Error::invalid(format!("{place} is no regular file; name a file of an export")));
        }
        let file = File::open(path).map_err(|source| failed(&place, source))?;
        let file = BufReader::with_capacity(128 << 10, file);
        let mut elements = Self {
            file,
            place,
            element: Vec::new(),
            max_bytes: ELEMENT_MAX_BYTES,
            is_single: false,
            is_done: false,
        };
        elements.begin()?;
        Ok(elements)
    }

    /// Skips the beginning of the array.
    fn begin(&mut self) -> Result<()> {
        let beginning = self.buffer()?;
        if beginning.starts_with(b"PK\x03\x04") {
            let place = &self.place;
            return Err(Error::invalid(format!(
                "{place} is a zip archive; unpack it, and name its folder or the file conversations.json in it"
            )));
        }
        if beginning.starts_with(b"\xef\xbb\xbf") {
            self.file.consume(3);
        }
        match self.peek()? {
            Some(b'[') => self.file.consume(1),
            Some(b'{') => self.is_single = true,
            None => {}
            Some(_) => {
                return Err(Error::invalid(format!("{} is no JSON array of conversations", self.place)));
            }
        }
        Ok(())
    }

    fn buffer(&mut self) -> Result<&[u8]> {
        self.file.fill_buf().map_err(|source| failed(&self.place, source))
    }

    /// Returns the next byte that is no white space and no comma, without reading it.
    fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            let buffer = self.buffer()?;
            let is_between = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
            let (skipped, found) = match buffer.iter().position(|byte| !is_between(byte)) {
                Some(at) => (at, buffer.get(at).copied()),
                None => (buffer.len(), None),
            };
            let is_end = buffer.is_empty();
            self.file.consume(skipped);
            if found.is_some() || is_end {
                return Ok(found);
            }
        }
    }

    /// Reads the next element into memory; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Element>> {
        self.element.clear();
        if self.is_done {
            return Ok(None);
        }
        match self.peek()? {
            Some(b']') => {
                self.is_done = true;
                Ok(None)
            }
            Some(_) => {
                self.is_done = self.is_single;
                self.element().map(Some)
            }
            None => {
                self.is_done = true;
                Ok(Some(Element::Cut))
            }
        }
    }

    /// Reads an element whose first byte is next.
    fn element(&mut self) -> Result<Element> {
        let (mut scan, mut is_too_large) = (Scan::default(), false);
        loop {
            let buffer = self.file.fill_buf().map_err(|source| failed(&self.place, source))?;
            if buffer.is_empty() {
                self.is_done = true;
                return Ok(Element::Cut);
            }
            let end = buffer.iter().position(|byte| scan.ends_behind(*byte));
            let taken = end.map_or(buffer.len(), |at| at + 1);
            if self.element.len() + taken > self.max_bytes {
                is_too_large = true;
                self.element = Vec::new();
            }
            if !is_too_large {
                self.element.extend_from_slice(&buffer[..taken]);
            }
            self.file.consume(taken);
            if end.is_some() {
                return Ok(if is_too_large { Element::TooLarge } else { Element::Whole });
            }
        }
    }

    /// Returns the bytes of the element that was read last.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.element)
    }
}

/// Place within an element.
#[derive(Debug, Default)]
struct Scan {
    depth: usize,
    is_text: bool,
    is_escaped: bool,
}

impl Scan {
    /// Returns whether the element ends with this byte. One that is no object, list or text ends with its first byte, so that each of
    /// its bytes is an element: there are none in an export.
    const fn ends_behind(&mut self, byte: u8) -> bool {
        if self.is_text {
            let is_end = byte == b'"' && !self.is_escaped;
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            self.is_text = !is_end;
        } else {
            match byte {
                b'"' => self.is_text = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        self.depth == 0 && !self.is_text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], max_bytes: usize) -> Result<Vec<String>> {
        let file = tempfile::NamedTempFile::new().unwrap_or_else(|error| panic!("{error}"));
        std::fs::write(file.path(), text).unwrap_or_else(|error| panic!("{error}"));
        let mut elements = Elements { max_bytes, ..Elements::open(file.path())? };
        let mut seen = Vec::new();
        while let Some(element) = elements.next()? {
            seen.push(match element {
                Element::Whole => String::from_utf8_lossy(&elements.take()).into_owned(),
                other => format!("{other:?}"),
            });
        }
        Ok(seen)
    }

    #[test]
    fn elements_are_read_one_by_one() -> Result<()> {
        let all = br#" [ {"a":"]}\"{\\"},[[1],[]] , "x\"", {} ] rest"#;
        assert_eq!(read(all, 100)?, [r#"{"a":"]}\"{\\"}"#, "[[1],[]]", r#""x\"""#, "{}"]);
        assert_eq!(read(b"\xef\xbb\xbf[{}]", 100)?, ["{}"]);
        assert_eq!(read(b"[{\"a\":1},{\"a\":123456789},{}]", 8)?, ["{\"a\":1}", "TooLarge", "{}"]);
        assert_eq!(read(b"[]", 8)?, [""; 0]);
        assert_eq!(read(b" {\"a\":1}\n", 8)?, ["{\"a\":1}"]);
        Ok(())
    }

    #[test]
    fn a_file_that_ends_early_is_cut() -> Result<()> {
        for cut in ["", "[", "[{", "[{}", "[{},", "[{},{\"a", "{\"a\":"] {
            assert_eq!(read(cut.as_bytes(), 100)?.last().map(String::as_str), Some("Cut"), "{cut}");
        }
        Ok(())
    }

    #[test]
    fn what_is_no_array_is_refused() {
        for (wrong, word) in
            [("PK\u{3}\u{4}rest", "unpack"), ("hello", "no JSON array"), ("\"[]\"", "no JSON array")]
        {
            let refused = read(wrong.as_bytes(), 100).expect_err(wrong).to_string();
            assert!(refused.contains(word), "{refused}");
        }
    }
}
