//! Writer of transcripts, one message at a time.

use std::fmt::Write;

use crate::lines::{MARK, escape, quote};
use crate::{Frontmatter, Mark, TRANSCRIPT_FORMAT, TranscriptMessage};

/// Renders a transcript message by message, and can continue an earlier one.
///
/// ```
/// use agent_core::Seq;
/// use agent_transcript::{Frontmatter, Mark, Speaker, Transcript, TranscriptForm, TranscriptMessage, TranscriptWriter};
///
/// let mut writer = TranscriptWriter::start(&Frontmatter::default());
/// writer.message(&TranscriptMessage::new(Speaker::User, "Hello"));
/// let mut file = writer.take();
/// let mark = Mark::new(Seq::new(2), "018f4e9a-7a2b-7c3d-8e4f-0123456789ab".parse()?);
/// let seal = writer.seal(mark);
/// assert_eq!(Transcript::parse(&format!("{file}{seal}"))?.form, TranscriptForm::Sealed(mark));
///
/// // Later, also in another process: the next message replaces the seal.
/// let mut writer = TranscriptWriter::resume(writer.len(), writer.checksum());
/// writer.message(&TranscriptMessage::new(Speaker::Assistant, "Good morning"));
/// file.push_str(&writer.take());
/// assert_eq!(Transcript::parse(&file)?.transcript.messages.len(), 2);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TranscriptWriter {
    /// Rendered text since the last call of `take`.
    text: String,
    len: u64,
    checksum: u32,
}

impl TranscriptWriter {
    /// Creates a writer of a new transcript, and renders its header.
    ///
    /// ```
    /// use agent_transcript::{Frontmatter, TranscriptWriter};
    ///
    /// let mut writer = TranscriptWriter::start(&Frontmatter::default());
    /// assert_eq!(writer.take(), "---\nformat: 2\n---\n\n");
    /// ```
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

    /// Creates a writer that continues after `len` bytes, without the seal, whose CRC-32C is `checksum`.
    ///
    /// ```
    /// use agent_transcript::{Speaker, TranscriptMessage, TranscriptWriter};
    ///
    /// // Length and checksum of an empty file.
    /// let mut writer = TranscriptWriter::resume(0, 0);
    /// assert!(writer.is_empty());
    /// writer.message(&TranscriptMessage::new(Speaker::User, "Hello"));
    /// assert_eq!(writer.len(), 16);
    /// ```
    pub const fn resume(len: u64, checksum: u32) -> Self {
        Self { text: String::new(), len, checksum }
    }

    fn add(&mut self, text: &str) {
        self.checksum = crc32c::crc32c_append(self.checksum, text.as_bytes());
        self.len += text.len() as u64;
        self.text.push_str(text);
    }

    /// Renders a message.
    ///
    /// ```
    /// use agent_transcript::{Speaker, TranscriptMessage, TranscriptWriter};
    ///
    /// let mut writer = TranscriptWriter::resume(0, 0);
    /// writer.message(&TranscriptMessage::new(Speaker::User, "Hello"));
    /// writer.message(&TranscriptMessage::new(Speaker::Assistant, "## User"));
    /// assert_eq!(writer.take(), "## User\n\nHello\n\n## Assistant\n\n\\## User\n\n");
    /// ```
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

    /// Returns the text that was rendered since the last call, and removes it from the writer.
    ///
    /// ```
    /// use agent_transcript::{Frontmatter, TranscriptWriter};
    ///
    /// let mut writer = TranscriptWriter::start(&Frontmatter::default());
    /// assert_eq!(writer.take().len() as u64, writer.len());
    /// assert_eq!(writer.take(), "");
    /// ```
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Returns the total number of rendered bytes, without a seal.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether no byte was rendered.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the CRC-32C of all rendered bytes, without a seal.
    pub const fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Returns the line that ends the file in its current state: the mark, a checksum and a line break.
    ///
    /// ```
    /// use agent_core::Seq;
    /// use agent_transcript::{Frontmatter, Mark, TranscriptWriter};
    ///
    /// let writer = TranscriptWriter::start(&Frontmatter::default());
    /// let mark = Mark::new(Seq::new(1), "018f4e9a-7a2b-7c3d-8e4f-0123456789ab".parse()?);
    /// let seal = writer.seal(mark);
    /// assert!(seal.starts_with("<!-- rendered head=1 commit=018f4e9a-7a2b-7c3d-8e4f-0123456789ab crc32c="));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn seal(&self, mark: Mark) -> String {
        let mut line = Seal { mark, crc: 0 }.stem();
        let crc = crc32c::crc32c_append(self.checksum, line.as_bytes());
        // Writing to a string cannot fail.
        let _ = writeln!(line, "{crc:08x} -->");
        line
    }
}

/// Returns whether a value needs no quotes, in YAML either.
fn is_plain(value: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._/+@:-".contains(&b);
    let leads = value.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    leads && value.bytes().all(plain) && !value.ends_with(':')
}

/// Last line of a transcript: the mark, and a checksum of all bytes before the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    mark: Mark,
    crc: u32,
}

impl Seal {
    /// Maximum number of bytes of a seal, including its line break.
    pub const MAX_BYTES: usize = 128;

    fn stem(self) -> String {
        format!("{MARK}head={} commit={} crc32c=", self.mark.head, self.mark.commit)
    }

    /// Parses a line, with its line break, as [`TranscriptWriter::seal`] writes it; `None` for any other line.
    ///
    /// ```
    /// use agent_core::Seq;
    /// use agent_transcript::{Frontmatter, Mark, Seal, TranscriptWriter};
    ///
    /// let writer = TranscriptWriter::start(&Frontmatter::default());
    /// let mark = Mark::new(Seq::new(1), "018f4e9a-7a2b-7c3d-8e4f-0123456789ab".parse()?);
    /// let seal = Seal::parse(&writer.seal(mark)).expect("the line is a seal");
    /// assert_eq!(seal.opened(writer.checksum()), Some(mark));
    /// assert_eq!(seal.opened(0), None);
    /// assert_eq!(Seal::parse("## User\n"), None);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn parse(line: &str) -> Option<Self> {
        let fields = line.strip_prefix(MARK)?.strip_suffix(" -->\n")?;
        let (head, rest) = fields.strip_prefix("head=")?.split_once(" commit=")?;
        let (commit, crc) = rest.split_once(" crc32c=")?;
        let mark = Mark::new(agent_core::Seq::new(head.parse().ok()?), commit.parse().ok()?);
        let seal = Self { mark, crc: u32::from_str_radix(crc, 16).ok()? };
        // Only the exact spelling of the writer is accepted.
        let written = format!("{}{:08x} -->\n", seal.stem(), seal.crc);
        (written == line).then_some(seal)
    }

    /// Returns the mark if the bytes before the line have the CRC-32C `checksum`; `None` otherwise.
    pub fn opened(self, checksum: u32) -> Option<Mark> {
        let crc = crc32c::crc32c_append(checksum, self.stem().as_bytes());
        (crc == self.crc).then_some(self.mark)
    }
}
