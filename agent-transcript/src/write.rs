//! Writing a transcript, a message at a time.

use std::fmt::Write;

use crate::lines::{MARK, escape, quote};
use crate::{Frontmatter, Mark, TRANSCRIPT_FORMAT, TranscriptMessage};

/// Renders a transcript piece by piece, and goes on where an earlier one ended.
#[derive(Clone, Debug)]
pub struct TranscriptWriter {
    /// What was rendered and not taken yet.
    text: String,
    len: u64,
    checksum: u32,
}

impl TranscriptWriter {
    /// Starts a transcript.
    pub fn start(frontmatter: &Frontmatter) -> Self {
        let mut text = format!("---\nformat: {TRANSCRIPT_FORMAT}\n");
        let fields = [
            ("session", frontmatter.session.map(|id| id.to_string())),
            ("provider", frontmatter.provider.clone()),
            ("model", frontmatter.model.clone()),
            ("created_at", frontmatter.created_at.map(|at| at.to_string())),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                let value = if is_plain(&value) { value } else { quote(&value) };
                text.push_str(&format!("{name}: {value}\n"));
            }
        }
        text.push_str("---\n\n");
        let mut writer = Self::resume(0, 0);
        writer.add(&text);
        writer
    }

    /// Goes on behind `len` bytes, mark not counted, whose CRC-32C is `checksum`.
    pub const fn resume(len: u64, checksum: u32) -> Self {
        Self { text: String::new(), len, checksum }
    }

    fn add(&mut self, text: &str) {
        self.checksum = crc32c::crc32c_append(self.checksum, text.as_bytes());
        self.len += text.len() as u64;
        self.text.push_str(text);
    }

    /// Adds a message.
    pub fn message(&mut self, message: &TranscriptMessage) {
        let mut text = format!("## {}\n\n", message.speaker.as_str());
        text.reserve(message.text.len() + 2);
        for line in message.text.split('\n') {
            text.push_str(&escape(line));
            text.push('\n');
        }
        text.push('\n');
        self.add(&text);
    }

    /// What was rendered since it was last taken.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// How many bytes were rendered in all.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was rendered.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The CRC-32C of all that was rendered.
    pub const fn checksum(&self) -> u32 {
        self.checksum
    }

    /// The line that ends the file as it is now: where the log was, and a checksum.
    pub fn seal(&self, mark: Mark) -> String {
        let mut line = Seal { mark, crc: 0 }.stem();
        let crc = crc32c::crc32c_append(self.checksum, line.as_bytes());
        // Writing to a string cannot fail.
        let _ = writeln!(line, "{crc:08x} -->");
        line
    }
}

/// Whether a value may stand as it is, for YAML too.
fn is_plain(value: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._/+@:-".contains(&b);
    let leads = value.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    leads && value.bytes().all(plain) && !value.ends_with(':')
}

/// The last line of a transcript: where the log was, and a checksum of all before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    mark: Mark,
    crc: u32,
}

impl Seal {
    /// No seal is longer than this, its line break counted.
    pub const MAX_BYTES: usize = 128;

    fn stem(self) -> String {
        format!("{MARK}head={} commit={} crc32c=", self.mark.head, self.mark.commit)
    }

    /// Reads a line, with its line break, as [`TranscriptWriter::seal`] writes it; `None` for any other.
    pub fn parse(line: &str) -> Option<Self> {
        let fields = line.strip_prefix(MARK)?.strip_suffix(" -->\n")?;
        let (head, rest) = fields.strip_prefix("head=")?.split_once(" commit=")?;
        let (commit, crc) = rest.split_once(" crc32c=")?;
        let mark = Mark::new(agent_core::Seq::new(head.parse().ok()?), commit.parse().ok()?);
        let seal = Self { mark, crc: u32::from_str_radix(crc, 16).ok()? };
        // Only the one spelling.
        let written = format!("{}{:08x} -->\n", seal.stem(), seal.crc);
        (written == line).then_some(seal)
    }

    /// Where the log was, if all before the line has the CRC-32C `checksum`.
    pub fn opened(self, checksum: u32) -> Option<Mark> {
        let crc = crc32c::crc32c_append(checksum, self.stem().as_bytes());
        (crc == self.crc).then_some(self.mark)
    }
}
