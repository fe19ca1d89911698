//! Why the program could not do what was asked.

use std::error::Error as StdError;
use std::io;
use std::path::Path;

use agent_core::{Error, ErrorKind};

/// Why a command did not do all that was asked, and the exit code for that.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// In one word, for programs.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: u8, kind: &'static str, text: impl Into<String>) -> Self {
        Self { code, kind, text: text.into() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whatever else went wrong, and why.
    pub(crate) fn other(error: impl StdError + 'static) -> Self {
        Self::new(1, "failed", told(&error))
    }

    /// What was named is not there.
    pub(crate) fn absent(text: impl Into<String>) -> Self {
        Self::new(3, "not_found", text)
    }

    /// What the system says of a file that the user named, and what to do.
    pub(crate) fn of_file(doing: &str, file: &Path, error: &io::Error) -> Self {
        use io::ErrorKind as Is;
        let (code, kind, remedy) = match error.kind() {
            Is::AlreadyExists => {
                (4, "exists", "something has that name already; name another file, or move that away")
            }
            Is::NotFound if doing == "read" => (3, "failed", "there is no such file; check the path"),
            Is::NotFound => (1, "failed", "there is no such folder; check the path, or make the folder"),
            Is::NotADirectory => (1, "failed", "a file stands where a folder should be; check the path"),
            Is::IsADirectory => (1, "failed", "it is a folder; name a file"),
            Is::PermissionDenied => (1, "failed", "permission denied; give this user the right to it"),
            Is::StorageFull | Is::QuotaExceeded | Is::FileTooLarge => {
                (1, "failed", "no space is left; make room")
            }
            Is::InvalidData => (1, "failed", "it is no UTF-8 text; name another file"),
            _ => (1, "failed", "the system reported an error; look at the file and its disk"),
        };
        Self::new(code, kind, format!("cannot {doing} {}: {remedy} ({error})", file.display()))
    }

    /// What is stored is damaged, or was not copied; the report has said what.
    pub(crate) fn incomplete(text: impl Into<String>) -> Self {
        Self::new(5, "incomplete", text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        use ErrorKind::{Busy, Conflict, Corrupt, Deleted, Fenced, InvalidTransition, NotFound};
        let code = match error.kind() {
            NotFound | Deleted => 3,
            Conflict { .. } | Fenced { .. } | Busy { .. } | InvalidTransition { .. } => 4,
            Corrupt => 5,
            _ => 1,
        };
        Self::new(code, error.kind().name(), told(&error))
    }
}

impl From<Box<dyn StdError>> for Failure {
    fn from(error: Box<dyn StdError>) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => (*error).into(),
            Err(error) => Self::new(1, "failed", told(&*error)),
        }
    }
}

/// An error and what caused it, in one line.
pub(crate) fn told(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
