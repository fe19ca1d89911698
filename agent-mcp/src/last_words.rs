//! Last words of a server that could not be used: what a person needs to mend it.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use crate::child::ChildProcess;

/// Time in which a process ends that has closed its output, and in which its standard error is read to the end.
const WAIT: Duration = Duration::from_millis(200);
/// Maximum bytes of the last words.
const MAX_BYTES: usize = 2 << 10;
/// Maximum lines of the last words.
const LINES_MAX: usize = 12;

/// Returns how a process ended and the last lines of its standard error; `None` if nothing is known.
pub(crate) async fn last_words(child: &ChildProcess, hidden: &[(String, SecretString)]) -> Option<String> {
    let (ending, stderr) = child.last_words(WAIT).await;
    let last = shown(&stderr, hidden);
    match (ending, last.as_str()) {
        (None, "") => None,
        (None, last) => Some(last.to_owned()),
        (Some(ending), "") => Some(ending.to_string()),
        (Some(ending), last) => Some(format!("{ending}\n{last}")),
    }
}

/// Returns the end of a standard error as it may be shown: without control characters and hidden values.
fn shown(stderr: &[u8], hidden: &[(String, SecretString)]) -> String {
    let mut text = plain(&String::from_utf8_lossy(stderr));
    for (name, value) in hidden {
        text = text.replace(value.expose_secret(), name);
    }
    let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_BYTES));
    let mut lines: Vec<&str> =
        text[start..].lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines.drain(..lines.len().saturating_sub(LINES_MAX));
    lines.join("\n")
}

/// Returns a text without control characters but line breaks, and without the commands that colour it.
fn plain(text: &str) -> String {
    let (mut plain, mut characters) = (String::with_capacity(text.len()), text.chars().peekable());
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' if characters.next_if_eq(&'[').is_some() => {
                while characters.next_if(|c| matches!(c, ' '..='?')).is_some() {}
                characters.next_if(|c| matches!(c, '@'..='~'));
            }
            '\n' => plain.push('\n'),
            '\t' => plain.push(' '),
            control if control.is_control() => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_short_plain_and_without_secrets() {
        let hidden = [("(secret key)".to_owned(), SecretString::from("hunter22-hunter22"))];
        let last = b"\x1b[31mError:\x1b[0m no key hunter22-hunter22\x07\r\n\n\xff\t!\n";
        assert_eq!(shown(last, &hidden), "Error: no key (secret key)\n\u{fffd} !");
        assert_eq!(shown(b"", &hidden), "");
        let long = shown("\u{e9}".repeat(9000).as_bytes(), &hidden);
        assert!(long.len() <= MAX_BYTES && long.starts_with('\u{e9}'));
        let many = shown("line\n".repeat(100).as_bytes(), &hidden);
        assert_eq!(many.lines().count(), LINES_MAX);
        // The beginning of what is kept may be the end of a secret, and is not shown.
        let cut = format!("unter22-hunter22{}", "x".repeat(16 << 10));
        assert!(!shown(cut.as_bytes(), &hidden).contains("unter22"));
    }
}
