//! Text that cannot steer a terminal.

use std::borrow::Cow;
use std::io::{self, Write};

/// Returns whether a character controls a terminal, or changes the direction of text.
fn steers(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n' && c != '\t')
}

/// Returns the text with escapes in place of characters that control a terminal or change the direction of text.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    shown(text, |c| c.escape_unicode().collect())
}

/// Returns JSON with such characters as JSON escapes; its value does not change.
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

/// Writer that escapes text with [`visible`].
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
