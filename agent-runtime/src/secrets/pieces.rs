//! A text that comes in pieces, and the values that lie across them.

use crate::secrets::hide;
use crate::secrets::tenant::Secrets;

/// Hides values in a text that comes in pieces. What may be the beginning of a value is held back until what follows tells.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    held: String,
}

impl Pieces {
    /// What may be shown now that this piece has come.
    pub(crate) fn push(&mut self, secrets: &Secrets, piece: &str) -> String {
        self.held.push_str(piece);
        let known = secrets.given();
        let until = known.told(&self.held);
        let shown = hide::text(&known, &self.held[..until]).into_owned();
        self.held.drain(..until);
        shown
    }

    /// What was held back, when nothing follows.
    pub(crate) fn rest(&mut self, secrets: &Secrets) -> String {
        let rest = std::mem::take(&mut self.held);
        secrets.hide(&rest).into_owned()
    }
}
