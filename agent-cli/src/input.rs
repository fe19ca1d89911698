//! Input lines, from a terminal with line editing or from a pipe.

use std::io::{BufRead, Read};
use std::sync::mpsc as threads;
use std::thread;

use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor, ExternalPrinter};
use tokio::sync::mpsc;

/// One input.
#[derive(Debug)]
pub(crate) enum Input {
    /// Line, without its end.
    Line(String),
    /// Ctrl-C at the prompt.
    Interrupt,
    /// End of the input.
    End,
    /// Line that cannot be used, and the reason. More lines may follow.
    Bad(String),
    /// Reason for which the input cannot be read any more.
    Broken(String),
}

/// Reader of lines, in its own thread; it reads a line only when one is requested.
pub(crate) struct Reader {
    asks: threads::Sender<()>,
    lines: mpsc::Receiver<Input>,
    waiting: bool,
}

/// Function that prints above the prompt while a line is being edited.
pub(crate) type Printer = Box<dyn FnMut(String) + Send>;

const PROMPT: &str = "> ";
/// Maximum number of bytes of a line; an event holds no more.
const LINE_MAX: usize = 16 << 20;

impl Reader {
    /// Creates a reader of the terminal. `history` contains the lines that the arrow keys recall, oldest first.
    pub(crate) fn terminal(history: Vec<String>) -> Result<(Self, Option<Printer>), ReadlineError> {
        let config = Config::builder().auto_add_history(true).build();
        let mut editor = DefaultEditor::with_config(config)?;
        for line in history {
            editor.add_history_entry(line)?;
        }
        // If the terminal does not support it, plain output is used.
        let printer = editor.create_external_printer().ok().map(|mut printer| -> Printer {
            Box::new(move |text| {
                let _ = printer.print(text);
            })
        });
        let reader = Self::spawn(move || match editor.readline(PROMPT) {
            Ok(line) => Input::Line(line),
            Err(ReadlineError::Interrupted) => Input::Interrupt,
            Err(ReadlineError::Eof) => Input::End,
            Err(error) => Input::Broken(format!("cannot read the terminal: {error}")),
        });
        Ok((reader, printer))
    }

    /// Creates a reader of standard input, if that is a pipe or a file.
    pub(crate) fn pipe() -> Self {
        let mut number = 0u64;
        Self::spawn(move || {
            number += 1;
            let mut line = match read_line(&mut std::io::stdin().lock()) {
                Ok(Some(line)) => line,
                Ok(None) => return Input::End,
                Err(error) => return Input::Broken(format!("cannot read standard input: {error}")),
            };
            if line.pop_if(|byte| *byte == b'\n').is_some() {
                line.pop_if(|byte| *byte == b'\r');
            }
            if line.len() > LINE_MAX {
                return Input::Bad(format!(
                    "line {number} is too long and was skipped: the maximum is {LINE_MAX} bytes"
                ));
            }
            match String::from_utf8(line) {
                Ok(line) => Input::Line(line),
                Err(_) => Input::Bad(format!("line {number} is not UTF-8 text and was skipped")),
            }
        })
    }

    fn spawn(mut read: impl FnMut() -> Input + Send + 'static) -> Self {
        let (asks, asked) = threads::channel();
        let (sender, lines) = mpsc::channel(1);
        // The thread is not joined: it may be waiting for the keyboard, and ends with the process.
        thread::spawn(move || {
            while asked.recv().is_ok() {
                if sender.blocking_send(read()).is_err() {
                    break;
                }
            }
        });
        Self { asks, lines, waiting: false }
    }

    /// Returns the next input. If the future is dropped, no line is lost: the next call returns it.
    pub(crate) async fn next(&mut self) -> Input {
        if !self.waiting && self.asks.send(()).is_ok() {
            self.waiting = true;
        }
        let input = self.lines.recv().await.unwrap_or(Input::End);
        self.waiting = false;
        input
    }
}

/// Reads a line with its end. Of a line that is too long only the beginning is returned and held in memory.
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
