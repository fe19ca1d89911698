//! What the program prints, and where: answers to standard output, all else to standard error unless a person reads
//! both.

use std::borrow::Cow;
use std::io::{self, Write};

use agent_core::event::{Body, Event, ToolOutcome};
use agent_core::model::Role;

use crate::input::Printer;
use crate::stdout;

/// The two outputs.
pub(crate) struct Screen {
    /// Whether a person reads it on a terminal.
    terminal: bool,
    printer: Option<Printer>,
    /// Whether the last line of the answer is not ended yet.
    open: bool,
}

impl Screen {
    pub(crate) fn new(terminal: bool, printer: Option<Printer>) -> Self {
        Self { terminal, printer, open: false }
    }

    /// Whether a person reads it on a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// A piece of an answer.
    pub(crate) fn answer(&mut self, piece: &str) {
        let Some(last) = piece.chars().last() else { return };
        let piece = if self.terminal { visible(piece) } else { piece.into() };
        self.put(&piece);
        self.open = last != '\n';
    }

    /// Ends the line that an answer has begun.
    pub(crate) fn end_answer(&mut self) {
        if std::mem::take(&mut self.open) {
            self.put("\n");
        }
    }

    /// A line of the conversation: to a pipe as it is stored, as an answer is.
    pub(crate) fn said(&mut self, text: &str) {
        self.end_answer();
        let text = if self.terminal { visible(text) } else { text.into() };
        self.put(&format!("{text}\n"));
    }

    /// A line that a command was asked for.
    pub(crate) fn line(&mut self, text: &str) {
        self.end_answer();
        self.put(&format!("{}\n", visible(text)));
    }

    /// A line about what goes on.
    pub(crate) fn note(&mut self, text: &str) {
        self.end_answer();
        if self.terminal {
            self.put(&format!("{}\n", visible(text)));
        } else {
            // Where standard error is gone there is nobody to tell.
            let _ = writeln!(io::stderr(), "{}", visible(text));
        }
    }

    /// A line about what goes on, while a line may be being edited.
    pub(crate) fn note_above(&mut self, text: &str) {
        match &mut self.printer {
            Some(printer) => printer(format!("{}\n", visible(text))),
            None => self.note(text),
        }
    }

    fn put(&self, text: &str) {
        stdout::put(text.as_bytes());
    }
}

/// Whether a character steers a terminal, or turns the order in which text is shown.
fn steers(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n' && c != '\t')
}

/// The text, with what would steer the terminal, or turn the order in which text is shown, made visible.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    shown(text, |c| c.escape_unicode().collect())
}

/// The same for JSON, which stays the same JSON.
pub(crate) fn visible_json(text: &str) -> Cow<'_, str> {
    shown(text, |c| format!("\\u{:04x}", u32::from(c)))
}

fn shown(text: &str, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(steers) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if steers(c) {
            out.push_str(&escape(c));
        } else {
            out.push(c);
        }
    }
    out.into()
}

/// Writes text made [visible].
pub(crate) struct Visible<W>(pub(crate) W);

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(visible(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// An event as a line of the conversation; `None` for what is no part of it.
pub(crate) fn spoken(event: &Event) -> Option<String> {
    // A payload that cannot be read is shown as that, not left out.
    let body = match event.body() {
        Ok(body) => body,
        Err(error) => return Some(format!("({error})")),
    };
    let who = match (event.actor.role(), event.actor.name()) {
        (Role::User, Some(name)) => name,
        (Role::User, None) => "user",
        (Role::Agent, _) => "agent",
        _ => "system",
    };
    Some(match body {
        Body::UserMessage(message) | Body::UserDefineOutcome(message) | Body::AgentMessage(message) => {
            format!("{who}: {}", message.text)
        }
        Body::SystemMessage(message) => format!("system: {}", message.text),
        Body::UserInterrupt(_) => format!("{who} interrupts"),
        Body::AgentToolUse(call) | Body::AgentCustomToolUse(call) => called(&call.name, call.input.get()),
        Body::AgentToolResult(result) | Body::UserCustomToolResult(result) => {
            gave(result.outcome, result.output.get())
        }
        Body::SessionHistoryCleared(_) => "(the history was cleared)".to_owned(),
        _ => return None,
    })
}

/// A tool call as a line.
pub(crate) fn called(name: &str, input: &str) -> String {
    let input = if input == "{}" { String::new() } else { format!(" {}", cut(input)) };
    format!("  [{name}{input}]")
}

/// A tool's result as a line.
pub(crate) fn gave(outcome: ToolOutcome, output: &str) -> String {
    match outcome {
        ToolOutcome::Ok => format!("  [-> {}]", cut(output)),
        _ => format!("  [-> {outcome}: {}]", cut(output)),
    }
}

/// The text, shortened to what fits a line.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    const MOST: usize = 100;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}
