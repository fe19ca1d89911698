//! Redaction of a text that is streamed in pieces, including values that span several pieces.

use crate::secrets::redact;
use crate::secrets::tenant::Secrets;

/// Redacts values in a text that is streamed in pieces. Text that may be the beginning of a value is held back until
/// more text arrives.
#[derive(Debug, Default)]
pub struct Pieces {
    held: String,
}

impl Pieces {
    /// Adds a piece; returns the text that can be shown now.
    pub fn push(&mut self, secrets: &Secrets, piece: &str) -> String {
        self.held.push_str(piece);
        let known = secrets.given();
        let until = known.complete_prefix(&self.held);
        let shown = redact::text(&known, &self.held[..until]).into_owned();
        self.held.drain(..until);
        shown
    }

    /// Returns the text that was held back, at the end of the stream.
    pub fn rest(&mut self, secrets: &Secrets) -> String {
        let rest = std::mem::take(&mut self.held);
        secrets.redact(&rest).into_owned()
    }
}
