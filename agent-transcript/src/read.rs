//! Reading a transcript, also one that a person edited or that another program wrote.

use std::borrow::Cow;

use crate::lines::{heading, is_mark, unescape, unquote};
use crate::write::Seal;
use crate::{Frontmatter, Speaker, TRANSCRIPT_FORMAT, Transcript, TranscriptForm, TranscriptMessage};
use agent_core::{Error, ErrorKind, Result};

/// A transcript, and in which form it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParsedTranscript {
    /// What it says.
    pub transcript: Transcript,
    /// In which form.
    pub form: TranscriptForm,
}

impl Transcript {
    /// Reads Markdown of the format that is written here, or of the older form.
    ///
    /// # Errors
    ///
    /// `Corrupt`, with the number of the line, where it is of neither; `Unsupported` where it is of a newer version.
    pub fn parse(text: &str) -> Result<ParsedTranscript> {
        let sealed = opened(text);
        if text.contains('\0') {
            return Err(Error::corrupt("the transcript holds NUL bytes: it was written in part"));
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
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "the transcript is of format {newer}, this version reads {TRANSCRIPT_FORMAT}; update it"
                    ),
                ));
            }
            _ => return Err(out_of_grammar(2, "the format is no number of one")),
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

/// Where the log was, if the text ends with a seal that fits.
fn opened(text: &str) -> Option<crate::Mark> {
    let last = text.strip_suffix('\n')?.rfind('\n').map_or(0, |at| at + 1);
    Seal::parse(&text[last..])?.opened(crc32c::crc32c(&text.as_bytes()[..last]))
}

type Fields<'a> = Vec<(&'a str, String)>;

/// The fields at the top, the rest of the text, and the number of its first line.
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
        // What a person adds is passed over; what cannot be read of ours is not guessed at.
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        let value = if value.starts_with('"') {
            unquote(value).ok_or_else(|| out_of_grammar(number, "the value is no JSON string"))?
        } else {
            value.to_owned()
        };
        fields.push((name.trim(), value));
    }
    Err(out_of_grammar(number, "the frontmatter has no end; close it with ---"))
}

/// The lines of a text, without what ends them.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line))
}

/// A message in the making.
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
            let line = unescape(line)
                .ok_or_else(|| out_of_grammar(number, "what follows \\json is no JSON string"))?;
            open.lines.push(line);
        } else if !line.trim().is_empty() {
            return Err(out_of_grammar(
                number,
                "text that nobody says; put a heading like ## User before it",
            ));
        }
    }
    messages.extend(open.map(Open::close));
    Ok(messages)
}

/// The messages of the older form: nothing is escaped, and text is trimmed.
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
                "text that nobody says; put a heading like ## User before it",
            ));
        }
    }
    close(open);
    Ok(messages)
}
