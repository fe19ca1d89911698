//! Common code for the two TOML files: people edit them, and a last line shows that they are whole.

use std::path::Path;

use agent_core::{Error, Result};
use toml_edit::{DocumentMut, Item};

use crate::error::corrupt;

/// Parses a text, keeping all its comments.
pub(crate) fn parse(path: &Path, text: &str) -> Result<DocumentMut> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        // Not the error itself, which quotes the text.
        corrupt(path, &format!("is not TOML ({}); it may have been cut short", error.message()))
    })
}

/// Fails if the value of `key` names another owner. A file without that value is accepted: older files, and those that
/// people wrote, do not have it.
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

/// Returns whether a text has the line that is written last. A text that was cut at the end of a line may still be
/// valid TOML; without this check it would count as whole.
pub(crate) fn is_whole(text: &str, last_line: &str) -> bool {
    text.lines().any(|line| line.trim_end() == last_line)
}

/// Error for a text without its last line.
pub(crate) fn cut_short(path: &Path, last_line: &str) -> Error {
    corrupt(path, &format!("was cut short: its last line, `{last_line}`, is missing"))
}

/// Returns a document as text, with its last line.
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
