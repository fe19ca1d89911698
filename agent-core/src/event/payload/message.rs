//! Payloads of messages of people, agents and the host.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::base::{Error, RawFields, RawJson, Result, Seq, is_default, sealed};
use crate::event::payload::answer::{Citation, Native, check_citations};
use crate::event::payload::content::{Part, check_parts, compose, spelled_out};
use crate::setters;

/// Text of a message, its other parts, and JSON metadata of the host's own.
///
/// `text` is always there and is the text of the message for people, searches and older versions of this library. A
/// message that is one plain text has no parts.
///
/// ```
/// use agent_core::event::{Media, Message, NewEvent, Part};
/// use agent_core::json::RawJson;
///
/// let message = Message::new("Hello").with_metadata("channel", RawJson::of(&"telegram")?);
/// let event = NewEvent::from(message);
/// assert_eq!(event.payload.get(), r#"{"text":"Hello","metadata":{"channel":"telegram"}}"#);
///
/// let cat = Media::inline("image/png", *b"\x89PNG").with_name("cat.png");
/// let event = NewEvent::from(Message::new("What is this?").with_part(Part::Image(cat)));
/// assert_eq!(
///     event.payload.get(),
///     concat!(
///         r#"{"text":"What is this?","parts":[{"type":"text"},"#,
///         r#"{"type":"image","media":"image/png","data":"iVBORw==","name":"cat.png"}]}"#
///     )
/// );
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Message {
    /// Any Unicode text, also an empty one; returned byte for byte. The texts and refusals among the parts, joined by
    /// line breaks.
    pub text: String,
    /// Parts in their order; empty if the message is one plain text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// Sources that the text cites.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub citations: Vec<Citation>,
    /// Item as the provider gave it, if it must go back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
    /// Provider's index of the item, if it differs from the item's place in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// Number of bytes of the text that a model is shown; `None` for the whole text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<u64>,
    /// True if the model is told how to read the rest of a text of which it is shown a part.
    #[serde(default, skip_serializing_if = "is_default")]
    pub readable: bool,
    /// Metadata of the host, never interpreted.
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    pub metadata: RawFields,
}

/// Part of a message that [`first_words`] needs.
#[derive(Deserialize)]
struct Words<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

/// Returns the beginning of a message's text in one line: words with one space between them, without control characters,
/// at most `most` bytes. `None` if the text has no words, or the payload is no message.
///
/// Reads no more of a long message than it needs, if the text comes first, as it does in what this library writes.
pub(crate) fn first_words(payload: &RawJson, most: usize) -> Option<String> {
    let json = payload.get();
    let text = json.strip_prefix(r#"{"text":""#);
    let line = match text.and_then(|text| plain_line(text, most)) {
        Some(line) => line.to_owned(),
        None => text
            .and_then(|text| line_of_start(text, most))
            .or_else(|| Some(one_line(&serde_json::from_str::<Words<'_>>(json).ok()?.text, most).0))?,
    };
    // A word of an encrypted store begins like this.
    let line = if line.starts_with(sealed::WORD) { line[1..].to_owned() } else { line };
    (!line.is_empty()).then_some(line)
}

/// Whether a byte is a character of a word that a JSON string has as it is. A table, since every message is looked at.
const IS_PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        plain[byte as usize] = byte != b'"' && byte != b'\\';
        byte += 1;
    }
    plain
};

/// Returns the line of a JSON string whose opening quote was read, if it begins with words of ASCII as they are in the line:
/// without escapes, and with one space between them.
fn plain_line(json: &str, most: usize) -> Option<&str> {
    let bytes = &json.as_bytes()[..most.min(json.len())];
    let mut end = 0;
    loop {
        let word = bytes[end..].iter().position(|byte| !IS_PLAIN[usize::from(*byte)]);
        let word = word.unwrap_or(bytes.len() - end);
        end += word;
        match bytes.get(end) {
            None | Some(b'"') => return Some(json[..end].trim_end_matches(' ')),
            Some(b' ') if word > 0 => end += 1,
            Some(_) => return None,
        }
    }
}

/// Returns the line of a JSON string whose opening quote was read, from as much of the string as the line needs; `None` if more
/// would be needed than is read here.
fn line_of_start(json: &str, most: usize) -> Option<String> {
    let (text, is_whole) = string_start(json, 2 * most)?;
    let (line, is_full) = one_line(&text, most);
    // The rest of a text that was cut counts only if the line is not full yet.
    (is_whole || is_full).then_some(line)
}

/// Returns the words of a text with one space between them, at most `most` bytes, and whether what follows the text changes nothing.
fn one_line(text: &str, most: usize) -> (String, bool) {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        let gap = usize::from(!line.is_empty());
        let left = most.saturating_sub(line.len() + gap);
        let cut = &word[..word.floor_char_boundary(left)];
        if cut.is_empty() {
            return (line, true);
        }
        line.push_str(if gap == 1 { " " } else { "" });
        line.push_str(cut);
        if cut.len() < word.len() {
            return (line, true);
        }
    }
    // The last word may go on behind the text.
    let is_full = line.len() >= most;
    (line, is_full)
}

/// Returns the text of a JSON string whose opening quote was read, and whether it is all of it, not only that up to a place
/// behind `enough` bytes. `None` if the end is far.
fn string_start(json: &str, enough: usize) -> Option<(Cow<'_, str>, bool)> {
    /// Bytes of the longest escape: two halves of a character, `\ud83d\ude00`.
    const ESCAPE: usize = 12;
    let (mut end, mut escaped, mut last_escape) = (None, false, None::<usize>);
    for (at, byte) in json.bytes().enumerate().take(4 * enough) {
        let is_behind = last_escape.is_none_or(|last| at >= last + ESCAPE);
        if !escaped && (byte == b'"' || (at >= enough && is_behind && json.is_char_boundary(at))) {
            end = Some(at);
            break;
        }
        escaped = byte == b'\\' && !escaped;
        if escaped {
            last_escape = Some(at);
        }
    }
    let end = end?;
    let text = match last_escape {
        None => Cow::Borrowed(&json[..end]),
        Some(_) => serde_json::from_str(&format!("\"{}\"", &json[..end])).ok()?,
    };
    Some((text, json.as_bytes()[end] == b'"'))
}

impl Message {
    /// Creates a message with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates a message of these parts. Its text consists of their texts and refusals, joined by line breaks.
    ///
    /// ```
    /// use agent_core::event::{Media, Message, Part};
    ///
    /// let dog = Part::Image(Media::uri("image/png", "https://example.com/dog.png"));
    /// let message = Message::of_parts([Part::text("Look:"), dog, Part::text("A dog?")]);
    /// assert_eq!(message.text, "Look:\nA dog?");
    /// assert_eq!(Message::of_parts([Part::text("Hello")]), Message::new("Hello"));
    /// ```
    pub fn of_parts(parts: impl IntoIterator<Item = Part>) -> Self {
        let (text, parts) = compose(parts.into_iter().collect());
        Self { text, parts, ..Self::default() }
    }

    /// Adds a part. The text of a text or refusal is also added to `text`, on a line of its own.
    pub fn with_part(mut self, part: Part) -> Self {
        let mut parts = spelled_out(&self.text, self.parts);
        parts.push(part);
        (self.text, self.parts) = compose(parts);
        self
    }

    /// Adds a citation.
    pub fn with_citation(mut self, citation: Citation) -> Self {
        self.citations.push(citation);
        self
    }

    setters! {
        /// Sets the item as the provider gave it.
        pub fn with_native(native: Native) => native = Some(native);

        /// Sets the provider's index of the item.
        pub const fn with_index(index: u32) => part = Some(index);

        /// Sets the number of bytes of the text that a model is shown.
        pub const fn with_shown(bytes: u64) => shown = Some(bytes);

        /// Sets whether the model is told how to read the rest of a text of which it is shown a part.
        pub const fn with_readable(readable: bool) => readable = readable;
    }

    /// Adds a field of metadata.
    pub fn with_metadata(mut self, name: impl Into<Box<str>>, value: RawJson) -> Self {
        self.metadata.insert(name, value);
        self
    }

    /// Returns the message as people read it: each part on a line of its own, then the sources that it cites.
    ///
    /// Texts and refusals are shown as they are, other parts as [`Part::text_view`] says. Sources are numbered from 1,
    /// each on a line. Equal to `text` for a plain text, without a copy.
    ///
    /// ```
    /// use agent_core::event::{Media, Message, Part};
    ///
    /// let report = Media::inline("application/pdf", vec![0; 2_000_000]).with_name("report.pdf");
    /// let message = Message::new("Please read this.").with_part(Part::Resource(report));
    /// assert_eq!(message.text_view(), "Please read this.\n[resource report.pdf, application/pdf, 1.9 MiB]");
    /// ```
    pub fn text_view(&self) -> Cow<'_, str> {
        if self.parts.is_empty() && self.citations.is_empty() {
            return Cow::Borrowed(&self.text);
        }
        let has_text = self.parts.iter().any(|part| part.own_text().is_some() || part.is_whole_text());
        let first = (!has_text && !self.text.is_empty()).then(|| Cow::Borrowed(&*self.text));
        let parts = self.parts.iter().filter_map(|part| part.text_view(&self.text));
        let mut lines: Vec<_> = first.into_iter().chain(parts).collect();
        lines.extend(self.citations.iter().enumerate().map(|(at, cited)| Cow::Owned(cited.line(at + 1))));
        Cow::Owned(lines.join("\n"))
    }

    /// Returns the [text view](Self::text_view), without a copy of a plain text.
    pub(crate) fn into_text_view(self) -> String {
        match self.text_view() {
            Cow::Owned(view) => view,
            Cow::Borrowed(_) => self.text,
        }
    }

    /// Checks what the types do not check, for a commit.
    pub(crate) fn check(&self) -> Result<()> {
        check_parts(&self.parts)?;
        check_citations(&self.citations, &self.text)?;
        let shown = self.shown.map(|shown| (shown, usize::try_from(shown).ok()));
        if let Some((shown, at)) = shown
            && !at.is_some_and(|at| self.text.is_char_boundary(at))
        {
            return Err(Error::invalid(format!(
                "a message shows {shown} bytes of a text of {}; give a number at the end of one of its characters",
                self.text.len()
            )));
        }
        self.native.as_ref().map_or(Ok(()), Native::check)
    }
}

/// Text of the system: the session's own prompt, or injected text.
///
/// ```
/// use agent_core::event::SystemMessage;
///
/// assert!(SystemMessage::custom("You plan trips.").custom);
/// assert!(!SystemMessage::injected("It is Monday.").custom);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SystemMessage {
    /// Text.
    pub text: String,
    /// True if the text is the session's custom system prompt, which stays in force until the next one. Otherwise it
    /// is text that was injected at this point.
    #[serde(default)]
    pub custom: bool,
}

impl SystemMessage {
    /// Creates a custom system prompt, in force from this event on.
    pub fn custom(text: impl Into<String>) -> Self {
        Self { text: text.into(), custom: true }
    }

    /// Creates text that is injected at this point.
    pub fn injected(text: impl Into<String>) -> Self {
        Self { text: text.into(), custom: false }
    }
}

/// Optional reason, as text.
///
/// ```
/// use agent_core::event::{Comment, EventPayload, NewEvent};
///
/// let event = NewEvent::of(&EventPayload::UserInterrupt(Comment::new("wrong city")));
/// assert_eq!(event.payload.get(), r#"{"note":"wrong city"}"#);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[doc(alias = "Note")]
pub struct Comment {
    /// Text of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Comment {
    /// Creates a comment with this text.
    pub fn new(note: impl Into<String>) -> Self {
        Self { note: Some(note.into()) }
    }
}

/// Summary that a model is given in place of the older part of the visible history.
///
/// ```
/// use agent_core::Seq;
/// use agent_core::event::Compaction;
///
/// let compaction = Compaction::new(Seq::new(40), "They planned a trip to Oslo.");
/// assert_eq!(compaction.until, Seq::new(40));
///
/// // In the middle of a run, whose question a model is given again, behind the summary.
/// let question = Seq::new(12);
/// let compaction = compaction.with_inputs([question], question);
/// assert_eq!((compaction.inputs, compaction.claimed), (Some(vec![question]), Some(question)));
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Compaction {
    /// Last event that the summary replaces.
    pub until: Seq,
    /// Text of the summary.
    pub summary: String,
    /// Inputs up to `until` that were not answered there, oldest first. A model is given them again, behind the summary.
    /// `None` if all inputs up to `until` are answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Vec<Seq>>,
    /// Last input that a run had claimed at `until`; a later one of `inputs` follows where a run claims it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Seq>,
}

impl Compaction {
    /// Maximum number of inputs that are given again. If more are open, the newest are.
    pub const INPUTS_MAX: usize = 256;

    /// Creates a compaction: `summary` replaces the visible events up to and including `until`.
    pub fn new(until: Seq, summary: impl Into<String>) -> Self {
        Self { until, summary: summary.into(), inputs: None, claimed: None }
    }

    /// Sets the inputs that were not answered at `until`, oldest first, and the last that a run had claimed there.
    pub fn with_inputs(mut self, inputs: impl IntoIterator<Item = Seq>, claimed: Seq) -> Self {
        (self.inputs, self.claimed) = (Some(inputs.into_iter().collect()), Some(claimed));
        self
    }
}

/// Payload of a person's request to stop the session's run or its waiting.
pub type Interrupt = Comment;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Effects, Timestamp};

    /// The beginning of a text that is written first is the same as that of one that is parsed whole.
    #[test]
    fn first_words_do_not_depend_on_how_the_payload_is_read() -> Result<()> {
        let long = "word ".repeat(400);
        for text in [
            "Hello",
            "",
            " \n\t ",
            "two\nlines\r\nand  \u{0} more",
            "\"quoted\" \\ and \u{1F600} \u{e9}",
            &long,
            &"é".repeat(100),
            &format!("{}end", " ".repeat(1000)),
            &"x".repeat(5000),
            &format!("{}{}abc", "x".repeat(77), " ".repeat(100)),
            &format!("{}{}é", "x".repeat(78), " ".repeat(100)),
            &"\u{1F600}".repeat(300),
            &"\\ ".repeat(300),
            "ends with a space ",
            "two  spaces",
            " begins with one",
            &format!("{} b", "a".repeat(79)),
            &format!("{} b", "a".repeat(78)),
            &format!("{}\"b", "a".repeat(79)),
            &"\u{1F600}\"".repeat(300),
            &format!("{}\u{7f}", "a".repeat(40)),
            &format!("line\n{}", "x".repeat(500)),
            "~1.AAAA",
        ] {
            check_words(text)?;
        }
        // Texts of what is read in different ways, with runs long enough to be cut in them.
        let effects = Effects::seeded(1, Timestamp::UNIX_EPOCH);
        let pick = |of: usize| usize::try_from(effects.random_u64()).map_or(0, |it| it % of);
        let pieces = ["a", "~1.", " ", "\n", "\"", "\\", "é", "\u{1F600}", "\u{7f}", "word "];
        for _ in 0..3_000 {
            let runs = pick(12);
            let text: String = (0..runs).map(|_| pieces[pick(pieces.len())].repeat(1 + pick(90))).collect();
            check_words(&text)?;
        }
        Ok(())
    }

    fn check_words(text: &str) -> Result<()> {
        let first = RawJson::of(&serde_json::json!({ "text": text }))?;
        let other = RawJson::parse(&format!(" {{ \"shown\": 1, \"text\": {} }}", RawJson::of(&text)?.get()))?;
        let words = first_words(&first, 80);
        assert_eq!(words, first_words(&other, 80), "{text:?}");
        if let Some(words) = &words {
            assert!(words.len() <= 80 && !words.contains(char::is_control), "{words:?}");
        }
        let is_blank = text.chars().all(|c| c.is_whitespace() || c.is_control());
        assert_eq!(words.is_none(), is_blank, "{text:?}");
        Ok(())
    }
}
