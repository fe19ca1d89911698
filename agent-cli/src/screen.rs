//! Output of a conversation: answers go to standard output, everything else to standard error, or on a terminal to
//! standard output, too.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use agent_core::event::{Event, EventPayload, ToolOutcome};
use agent_core::model::Role;
use agent_core::text::{marked, marked_name};
use anstyle::{AnsiColor, Style};

use crate::input::Printer;
use crate::markdown::{Markdown, styled};
use crate::stdout;
use crate::visible::visible;

/// Style of notices.
const NOTE: Style = Style::new().dimmed();
/// Style of errors.
const ERROR: Style = AnsiColor::Red.on_default();

/// Standard output and standard error.
pub(crate) struct Screen {
    /// Whether input and output are a terminal.
    pub(crate) is_terminal: bool,
    /// Whether the output is a terminal, which text must not steer.
    is_shown: bool,
    printer: Option<Printer>,
    /// Whether the last line of the answer has no line end yet.
    open: bool,
    /// Renderer of answers, if the output is a terminal with styles.
    markdown: Option<Markdown>,
}

impl Screen {
    pub(crate) fn new(is_terminal: bool, printer: Option<Printer>) -> Self {
        let is_shown = io::stdout().is_terminal();
        let markdown = (is_shown && has_styles()).then(Markdown::default);
        Self { is_terminal, is_shown, printer, open: false, markdown }
    }

    /// Prints a piece of an answer.
    pub(crate) fn answer(&mut self, piece: &str) {
        let Some(last) = piece.chars().last() else { return };
        let piece = if self.is_shown { visible(piece) } else { piece.into() };
        match &mut self.markdown {
            Some(markdown) => stdout::put(&markdown.push(&piece)),
            None => stdout::put(&*piece),
        }
        self.open = last != '\n';
    }

    /// Ends the last line of an answer, if it has no line end yet.
    pub(crate) fn end_answer(&mut self) {
        if let Some(markdown) = &mut self.markdown {
            stdout::put(&markdown.end());
        }
        if std::mem::take(&mut self.open) {
            stdout::put("\n");
        }
    }

    /// Prints an answer of the conversation as it was shown when it came.
    pub(crate) fn echo_answer(&mut self, text: &str) {
        self.end_answer();
        self.answer(text);
        self.end_answer();
    }

    /// Prints a message of the conversation; unchanged, if the output is not a terminal.
    pub(crate) fn echo(&mut self, text: &str) {
        self.end_answer();
        let text = if self.is_shown { visible(text) } else { text.into() };
        stdout::put(&format!("{text}\n"));
    }

    /// Prints a line of the output of a command.
    pub(crate) fn line(&mut self, text: &str) {
        self.end_answer();
        stdout::put(&format!("{}\n", visible(text)));
    }

    /// Prints a notice.
    pub(crate) fn note(&mut self, text: &str) {
        self.noted(NOTE, text);
    }

    /// Prints why something failed.
    pub(crate) fn error(&mut self, why: &str) {
        self.noted(ERROR, &format!("error: {why}"));
    }

    fn noted(&mut self, style: Style, text: &str) {
        self.end_answer();
        if self.is_terminal {
            stdout::put(&format!("{}\n", self.in_style(style, text)));
        } else {
            // A failure to write to standard error is ignored.
            let _ = writeln!(io::stderr(), "{}", visible(text));
        }
    }

    /// Prints a notice above the prompt, if a line may be being edited.
    pub(crate) fn note_above(&mut self, text: &str) {
        let shown = format!("{}\n", self.in_style(NOTE, text));
        match &mut self.printer {
            Some(printer) => printer(shown),
            None => self.note(text),
        }
    }

    fn in_style(&self, style: Style, text: &str) -> String {
        let mut out = String::new();
        styled(if self.markdown.is_some() { style } else { Style::new() }, &visible(text), &mut out);
        out
    }
}

/// Returns whether styles are wanted: <https://no-color.org> is kept to, and terminals that are known to have none.
fn has_styles() -> bool {
    let is_off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !is_off && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Prints an error or a warning to standard error. A failure to write there is ignored.
pub(crate) fn print_error(why: &str) {
    let _ = writeln!(io::stderr(), "chat: {}", visible(why));
}

/// Returns an event as a line of the conversation; `None` if it is not a part of it.
pub(crate) fn spoken(event: &Event) -> Option<String> {
    // For a payload that cannot be read, the error is shown.
    let body = match event.decode() {
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
        EventPayload::UserMessage(message)
        | EventPayload::UserDefineOutcome(message)
        | EventPayload::AgentMessage(message) => {
            format!("{who}: {}", message.text_view())
        }
        EventPayload::AgentPart(part) => format!("{who}: {}", marked(&part.text_view()?)),
        EventPayload::SystemMessage(message) => format!("system: {}", message.text),
        EventPayload::UserInterrupt(_) => format!("{who} interrupts"),
        EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => {
            called(&call.name, call.input.get())
        }
        EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result) => {
            let line = gave(result.outcome, result.output.get());
            // Media of the output, a line each.
            result
                .text_view()
                .map_or(line.clone(), |parts| format!("{line}\n  {}", parts.replace('\n', "\n  ")))
        }
        EventPayload::SessionHistoryCleared(_) => "(history cleared)".to_owned(),
        EventPayload::SessionCompacted(_) => {
            "(the model is given a summary of the older messages; the log keeps them)".to_owned()
        }
        _ => return None,
    })
}

/// Returns a tool call as a line, with marks in place of characters that nobody sees.
pub(crate) fn called(name: &str, input: &str) -> String {
    let input = if input == "{}" { String::new() } else { format!(" {}", cut(&marked(input))) };
    format!("  [{}{input}]", cut(&marked_name(name)))
}

/// Returns the result of a tool as a line, with such marks.
pub(crate) fn gave(outcome: ToolOutcome, output: &str) -> String {
    let output = marked(output);
    match outcome {
        ToolOutcome::Ok => format!("  [-> {}]", cut(&output)),
        _ => format!("  [-> {outcome}: {}]", cut(&output)),
    }
}

/// Returns the text, shortened to fit on a line.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    const MOST: usize = 100;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}

/// Returns a count with its noun, in the plural unless the count is 1.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}
