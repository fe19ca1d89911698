//! Failures of a command, with their exit codes.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io;
use std::path::Path;

use agent_core::{Error, ErrorKind, SessionId};

/// Failure of a command: message and exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Kind in one word, for programs.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

/// Result of what a command does.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn new(code: u8, kind: &'static str, text: impl Into<String>) -> Self {
        Self { code, kind, text: text.into() }
    }

    /// Returns the failure for an error without a kind.
    pub(crate) fn other(error: impl StdError + 'static) -> Self {
        Self::new(1, "failed", full_text(&error))
    }

    /// Returns the failure for a named object that does not exist.
    pub(crate) fn absent(text: impl Into<String>) -> Self {
        Self::new(3, "not_found", text)
    }

    /// Returns the failure for an I/O error on a file that the user named, with a remedy.
    pub(crate) fn of_file(doing: &str, file: &Path, error: &io::Error) -> Self {
        use io::ErrorKind as Is;
        let (code, kind, remedy) = match error.kind() {
            Is::AlreadyExists => (4, "exists", "it exists already; name another file, or move it away"),
            Is::NotFound if doing == "read" => (3, "failed", "file not found; check the path"),
            Is::NotFound => (1, "failed", "folder not found; check the path, or create the folder"),
            Is::NotADirectory => (1, "failed", "a part of the path is a file, not a folder; check the path"),
            Is::IsADirectory => (1, "failed", "it is a folder; name a file"),
            Is::PermissionDenied => (1, "failed", "permission denied; check its owner and mode"),
            Is::StorageFull | Is::QuotaExceeded | Is::FileTooLarge => {
                (1, "failed", "no space left; free space, or name another file")
            }
            Is::InvalidData => (1, "failed", "it is not UTF-8 text; name another file"),
            _ => (1, "failed", "I/O error; check the file and its disk"),
        };
        Self::new(code, kind, format!("cannot {doing} {}: {remedy} ({error})", file.display()))
    }

    /// Returns the failure for stored data that is damaged, or was not copied or erased; the report has named it.
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
        Self::new(code, error.kind().name(), full_text(&error) + next_command(&error))
    }
}

/// Returns the command that lists the objects, for an error that one of them does not exist.
fn next_command(error: &Error) -> &'static str {
    let text = error.to_string();
    match text.split_once(' ') {
        Some(_) if !text.ends_with("does not exist") => "",
        Some(("session", _)) => "; `chat session list --all` lists the sessions",
        Some(("workspace", _)) => "; `chat workspace list` lists the workspaces",
        _ => "",
    }
}

/// Remedies in texts of the library, which are for programmers, and those of this program. SESSION becomes the session that
/// the text names.
const REMEDIES: [(&str, &str); 12] = [
    ("put the same bytes for that session again, or restore the store from a backup", RESTORE_FILE),
    ("put the same bytes again, or restore the store from a backup", RESTORE_FILE),
    ("put the blob again, or restore it from a backup", RESTORE_FILE),
    ("put the blob again, or restore the file from a backup", RESTORE_FILE),
    ("put the blob again, or salvage the session", RESTORE_OR_SALVAGE),
    ("; if it is a fork, read it from the session whose events name it, otherwise put it", ""),
    ("are gone; put it again", "are gone; put it again with `chat area put`"),
    ("put it, then send the commit again", "send the message again"),
    ("or with its tenant; put it again", "or with its tenant; try again"),
    ("run `verify`", "run `chat verify`"),
    ("update the library", "use a newer chat"),
    ("open it once with `migrate=true` to create them", "run `chat upgrade --store ADDRESS` to create them"),
];
const RESTORE_FILE: &str = "run `chat session restore-file SESSION PATH` with a copy of the file, or restore the store from a backup";
const RESTORE_OR_SALVAGE: &str =
    "run `chat session restore-file SESSION PATH` with a copy of the file, or `chat session salvage SESSION`";

/// Returns a text of the library with the remedies that a user of this program can follow, and one for a lost or damaged
/// file: an error and its cause may each give their own.
pub(crate) fn for_users(text: &str) -> Cow<'_, str> {
    if !REMEDIES.iter().any(|(library, _)| text.contains(library)) {
        return text.into();
    }
    let session = session_of(text).map_or_else(|| "SESSION".to_owned(), |id| id.to_string());
    let mut full_text = REMEDIES.iter().fold(text.to_owned(), |full_text, (library, here)| {
        full_text.replace(library, &here.replace("SESSION", &session))
    });
    if let Some(at) = full_text.find("; run `chat session restore-file") {
        let mut rest = full_text.split_off(at + 1);
        for remedy in [RESTORE_FILE, RESTORE_OR_SALVAGE] {
            rest = rest.replace(&format!("; {}", remedy.replace("SESSION", &session)), "");
        }
        full_text += &rest;
    }
    full_text.into()
}

/// Returns the first session that a text names, as `session ID` or in the path of one of its files.
pub(crate) fn session_of(text: &str) -> Option<SessionId> {
    let words = text.split([' ', '/', ':', ',']);
    let mut before = words.clone();
    let after = words.skip(1);
    after.zip(&mut before).find_map(|(id, noun)| match noun {
        "session" | "sessions" => id.parse().ok(),
        _ => None,
    })
}

/// Returns an error and its causes, in one line. A cause that the text before it ends with is not repeated.
pub(crate) fn full_text(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&error| error.source()).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    for_users(&text).into_owned()
}
