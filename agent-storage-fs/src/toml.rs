//! What the two files in TOML have in common: people edit them, and a last line shows that they are whole.

use std::path::Path;

use agent_core::{Error, Result};
use toml_edit::{DocumentMut, Item};

use crate::error::corrupt;

/// Parses a text, with all its comments.
pub(crate) fn parse(path: &Path, text: &str) -> Result<DocumentMut> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        // Not the error itself, which quotes the text.
        corrupt(path, &format!("is not TOML ({}); it may have been cut short", error.message()))
    })
}

/// Fails for a file that says in `key` that it is another's. One that says nothing is believed: older ones, and those that
/// people wrote, do not.
pub(crate) fn check_owner(path: &Path, text: &DocumentMut, key: &str, noun: &str, owner: &str) -> Result<()> {
    match text.get(key).map(Item::as_str) {
        None => Ok(()),
        Some(Some(named)) if named == owner => Ok(()),
        Some(Some(named)) => {
            let named = named.escape_debug();
            let what = format!(
                "belongs to {noun} {named} and stands in the place of {owner}'s; move it back, or change its line `{key}` if it is to be so"
            );
            Err(corrupt(path, &what))
        }
        Some(None) => Err(corrupt(path, &format!("has a `{key}` that is no text"))),
    }
}

/// Whether a text has the line that is written last. A text that is cut at the end of a line may be TOML all the
/// same; without that line it would be taken for a whole one.
pub(crate) fn is_whole(text: &str, last_line: &str) -> bool {
    text.lines().any(|line| line.trim_end() == last_line)
}

/// The error for a text without its last line.
pub(crate) fn cut_short(path: &Path, last_line: &str) -> Error {
    corrupt(path, &format!("was cut short: its last line, `{last_line}`, is missing"))
}

/// A document as text, with its last line.
pub(crate) fn finish(document: &DocumentMut, last_line: &str) -> String {
    let mut text = document.to_string();
    if !is_whole(&text, last_line) {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push('\n');
        text.push_str(last_line);
        text.push('\n');
    }
    text
}
