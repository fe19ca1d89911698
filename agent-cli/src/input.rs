//! Where the lines come from: a terminal with line editing, or a pipe.

use std::io::{BufRead, Read};
use std::sync::mpsc as threads;
use std::thread;

use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor, ExternalPrinter};
use tokio::sync::mpsc;

/// What came in.
#[derive(Debug)]
pub(crate) enum Input {
    /// A line, without its end.
    Line(String),
    /// Ctrl-C at the prompt.
    Interrupt,
    /// The end of the input.
    End,
    /// Input that cannot be used, and why. More may follow.
    Bad(String),
    /// The input cannot be read any more, and why.
    Broken(String),
}

/// Reads lines in a thread of its own, one at a time, each when it is asked for.
pub(crate) struct Reader {
    asks: threads::Sender<()>,
    lines: mpsc::Receiver<Input>,
    waiting: bool,
}

/// Prints above the prompt while a line is edited.
pub(crate) type Printer = Box<dyn FnMut(String) + Send>;

const PROMPT: &str = "> ";
/// The most bytes of a line: no event holds more.
const LINE_MAX: usize = 16 << 20;

impl Reader {
    /// Reads from the terminal. `history` is what the arrow keys bring back, oldest first.
    pub(crate) fn terminal(history: Vec<String>) -> Result<(Self, Option<Printer>), ReadlineError> {
        let config = Config::builder().auto_add_history(true).build();
        let mut editor = DefaultEditor::with_config(config)?;
        for line in history {
            editor.add_history_entry(line)?;
        }
        // A terminal that cannot do it gets plain output.
        let printer = editor.create_external_printer().ok().map(|mut printer| -> Printer {
            Box::new(move |text| {
                let _ = printer.print(text);
            })
        });
        let reader = Self::spawn(move || match editor.readline(PROMPT) {
            Ok(line) => Input::Line(line),
            Err(ReadlineError::Interrupted) => Input::Interrupt,
            Err(ReadlineError::Eof) => Input::End,
            Err(error) => Input::Broken(format!("the terminal cannot be read: {error}")),
        });
        Ok((reader, printer))
    }

    /// Reads from a pipe or a file.
    pub(crate) fn pipe() -> Self {
        let mut number = 0u64;
        Self::spawn(move || {
            number += 1;
            let mut line = match read_line(&mut std::io::stdin().lock()) {
                Ok(Some(line)) => line,
                Ok(None) => return Input::End,
                Err(error) => return Input::Broken(format!("standard input cannot be read: {error}")),
            };
            if line.last() == Some(&b'\n') {
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
            }
            if line.len() > LINE_MAX {
                return Input::Bad(format!(
                    "line {number} is too long: at most {LINE_MAX} fit; it was left out"
                ));
            }
            match String::from_utf8(line) {
                Ok(line) => Input::Line(line),
                Err(_) => Input::Bad(format!("line {number} is not UTF-8 text; it was left out")),
            }
        })
    }

    fn spawn(mut read: impl FnMut() -> Input + Send + 'static) -> Self {
        let (asks, asked) = threads::channel();
        let (sender, lines) = mpsc::channel(1);
        // Not joined: a thread that waits for the keyboard ends with the process.
        thread::spawn(move || {
            while asked.recv().is_ok() {
                if sender.blocking_send(read()).is_err() {
                    break;
                }
            }
        });
        Self { asks, lines, waiting: false }
    }

    /// The next line. May be dropped and called again; no line is lost.
    pub(crate) async fn next(&mut self) -> Input {
        if !self.waiting && self.asks.send(()).is_ok() {
            self.waiting = true;
        }
        let input = self.lines.recv().await.unwrap_or(Input::End);
        self.waiting = false;
        input
    }
}

/// A line with its end; of one that is too long the beginning, and no more than that is ever held.
fn read_line(input: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let most = LINE_MAX as u64 + 2;
    if input.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.len() > LINE_MAX && line.last() != Some(&b'\n') {
        input.skip_until(b'\n')?;
    }
    Ok(Some(line))
}
