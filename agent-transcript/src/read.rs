//! Reader of transcripts, including those that a person edited or another program wrote.

use std::borrow::Cow;

use crate::lines::{heading, is_mark, unescape, unquote};
use crate::write::Seal;
use crate::{Frontmatter, Speaker, TRANSCRIPT_FORMAT, Transcript, TranscriptForm, TranscriptMessage};
use agent_core::{Error, Result};

/// Transcript, and the form in which it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParsedTranscript {
    /// Transcript that was read.
    pub transcript: Transcript,
    /// Form of the text.
    pub form: TranscriptForm,
}

impl Transcript {
    /// Parses Markdown of the current format or of the older form. Returns the transcript and the form of the text.
    ///
    /// The reader is lenient; the [crate documentation](crate) lists the differences that it accepts.
    ///
    /// ```
    /// use agent_transcript::{Speaker, Transcript, TranscriptForm};
    ///
    /// let parsed = Transcript::parse("---\nformat: 2\n---\n## User\nHello\n## Assistant\nHi\n")?;
    /// assert_eq!(parsed.form, TranscriptForm::Edited);
    /// assert_eq!(parsed.transcript.messages[1].speaker, Speaker::Assistant);
    ///
    /// let error = Transcript::parse("---\nformat: 2\n---\nHello\n").unwrap_err();
    /// assert!(error.to_string().starts_with("line 4 of the transcript: "));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Corrupt`, with the number of the line, if the text has neither form; `Unsupported` if it has a newer format.
    pub fn parse(text: &str) -> Result<ParsedTranscript> {
        let sealed = opened(text);
        if text.contains('\0') {
            return Err(Error::corrupt(
                "the transcript holds NUL bytes, because its last write is incomplete; render it again from its session",
            ));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (fields, body, first_line) = frontmatter(text)?;
        let field = |name: &str| fields.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
        let header = Frontmatter {
            session: field("session").and_then(|value| value.parse().ok()),
            provider: field("provider").cloned(),
            model: field("model").cloned(),
            created_at: field("created_at").and_then(|value| value.parse().ok()),
        };
        let Some(format) = field("format") else {
            let messages = legacy_messages(body, first_line)?;
            let transcript = Transcript { frontmatter: header, messages };
            return Ok(ParsedTranscript { transcript, form: TranscriptForm::Legacy });
        };
        match format.parse::<u64>() {
            Ok(TRANSCRIPT_FORMAT) => {}
            Ok(newer) if newer > TRANSCRIPT_FORMAT => {
                return Err(Error::unsupported(format!(
                    "the transcript has format {newer}, but this program reads up to {TRANSCRIPT_FORMAT}; update the program"
                )));
            }
            _ => return Err(out_of_grammar(2, "the format is not a known number; write `format: 2`")),
        }
        let messages = messages(body, first_line)?;
        let transcript = Transcript { frontmatter: header, messages };
        let form = sealed.map_or(TranscriptForm::Edited, TranscriptForm::Sealed);
        Ok(ParsedTranscript { transcript, form })
    }
}

fn out_of_grammar(line: usize, what: &str) -> Error {
    Error::corrupt(format!("line {line} of the transcript: {what}"))
}

/// Returns the mark, if the text ends with a seal whose checksum matches.
fn opened(text: &str) -> Option<crate::Mark> {
    let last = text.strip_suffix('\n')?.rfind('\n').map_or(0, |at| at + 1);
    Seal::parse(&text[last..])?.opened(crc32c::crc32c(&text.as_bytes()[..last]))
}

type Fields<'a> = Vec<(&'a str, String)>;

/// Returns the fields at the top, the rest of the text, and the number of its first line.
fn frontmatter(text: &str) -> Result<(Fields<'_>, &str, usize)> {
    let Some((first, mut rest)) = text.split_once('\n') else { return Ok((Vec::new(), text, 1)) };
    if first.trim_end() != "---" {
        return Ok((Vec::new(), text, 1));
    }
    let mut fields = Vec::new();
    let mut number = 1;
    while !rest.is_empty() {
        let (line, below) = rest.split_once('\n').unwrap_or((rest, ""));
        (rest, number) = (below, number + 1);
        let line = line.trim_end();
        if line == "---" {
            return Ok((fields, rest, number + 1));
        }
        // Lines without a colon, added by a person, are ignored; an unreadable value is an error.
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        let value = if value.starts_with('"') {
            unquote(value).ok_or_else(|| {
                out_of_grammar(number, "the value is not a valid JSON string; close its quotes")
            })?
        } else {
            value.to_owned()
        };
        fields.push((name.trim(), value));
    }
    Err(out_of_grammar(number, "the frontmatter has no end; close it with ---"))
}

/// Returns the lines of a text, without line endings.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line))
}

/// Message under construction.
struct Open<'a> {
    speaker: Speaker,
    lines: Vec<Cow<'a, str>>,
}

impl Open<'_> {
    fn close(self) -> TranscriptMessage {
        let mut lines = self.lines.as_slice();
        // The blank lines behind the heading and before the next one.
        if let [first, rest @ ..] = lines
            && first.is_empty()
        {
            lines = rest;
        }
        if let [rest @ .., last] = lines
            && last.is_empty()
        {
            lines = rest;
        }
        TranscriptMessage::new(self.speaker, lines.join("\n"))
    }
}

fn messages(text: &str, first_line: usize) -> Result<Vec<TranscriptMessage>> {
    let (mut messages, mut open) = (Vec::new(), None::<Open<'_>>);
    for (number, line) in (first_line..).zip(lines(text)) {
        if let Some(speaker) = heading(line) {
            messages.extend(open.take().map(Open::close));
            open = Some(Open { speaker, lines: Vec::new() });
        } else if is_mark(line) {
            messages.extend(open.take().map(Open::close));
        } else if let Some(open) = &mut open {
            let line = unescape(line).ok_or_else(|| {
                out_of_grammar(number, "the text after \\json is not a valid JSON string; close its quotes")
            })?;
            open.lines.push(line);
        } else if !line.trim().is_empty() {
            return Err(out_of_grammar(
                number,
                "this text has no speaker; put a heading like ## User before it",
            ));
        }
    }
    messages.extend(open.map(Open::close));
    Ok(messages)
}

/// Returns the messages of the older form, which escapes nothing and trims texts.
fn legacy_messages(text: &str, first_line: usize) -> Result<Vec<TranscriptMessage>> {
    let (mut messages, mut open) = (Vec::new(), None::<(Speaker, String)>);
    let mut close = |open: Option<(Speaker, String)>| {
        messages.extend(open.map(|(speaker, text)| TranscriptMessage::new(speaker, text.trim())));
    };
    for (number, line) in (first_line..).zip(lines(text)) {
        if let Some(speaker) = heading(line) {
            close(open.replace((speaker, String::new())));
        } else if let Some((_, text)) = &mut open {
            text.push_str(line);
            text.push('\n');
        } else if !line.trim().is_empty() {
            return Err(out_of_grammar(
                number,
                "this text has no speaker; put a heading like ## User before it",
            ));
        }
    }
    close(open);
    Ok(messages)
}
