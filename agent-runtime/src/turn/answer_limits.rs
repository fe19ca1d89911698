//! Limits on an answer while it streams.

use std::fmt;

use agent_core::commit::COMMIT_MAX_BLOBS;

use crate::config::Limits;
use crate::model::event::ModelCall;
use crate::run::limit::{LimitKind, ReachedLimit};
use agent_core::state::Reason;
use agent_workspace::blobs::INLINE_MAX_BYTES;

/// Maximum number of calls of one answer that wait for an answer or a result; with the other calls a record holds 64.
const WAITING_MAX: usize = 32;

/// Maximum number of parts of one answer.
const PARTS_MAX: usize = 1000;

/// Maximum number of media of one answer that become blobs: an answer is one commit.
const MEDIA_MAX: usize = COMMIT_MAX_BLOBS;

/// Maximum number of bytes of the media of one answer that become blobs; a request holds as many.
const MEDIA_MAX_BYTES: usize = 64 << 20;

/// Maximum bytes of an id or a name from a provider; a longer one is replaced.
const NAME_MAX_BYTES: usize = 128;

/// Limit that an answer reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Limit of calls; the calls before it are made.
    Calls(LimitKind, usize),
    /// Limit of bytes; no call is made.
    Bytes(LimitKind, usize),
    /// Limit of parts; no call is made.
    Parts(usize),
    /// Limit of large media; no call is made.
    Media(usize),
}

impl Full {
    /// Returns the reason with which the session becomes idle.
    pub(super) const fn reason(self) -> Reason {
        match self {
            Self::Calls(..) => Reason::MaxTurns,
            Self::Bytes(..) | Self::Parts(_) | Self::Media(_) => Reason::MaxOutput,
        }
    }
}

impl From<Full> for ReachedLimit {
    fn from(full: Full) -> Self {
        let (kind, most) = match full {
            Full::Calls(kind, most) | Full::Bytes(kind, most) => (kind, most),
            Full::Parts(most) => (LimitKind::Parts, most),
            Full::Media(most) => (LimitKind::Media, most),
        };
        Self::new(kind).with_max(most as u64)
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ReachedLimit::from(*self).fmt(f)
    }
}

/// Remaining capacity for one answer.
#[derive(Debug)]
pub(super) struct Room {
    /// Initial limits.
    limits: Limits,
    text: Left,
    thinking: Left,
    all: usize,
    calls: u32,
    waiting: usize,
    parts: usize,
    /// Number and bytes of the media that become blobs; `None` in a store without blobs.
    media: Option<(usize, usize)>,
}

impl Room {
    /// Creates the capacity for one answer of a run that has already made `made` calls. `has_blobs` says whether large
    /// media become blobs.
    pub(super) fn of(limits: &Limits, made: u32, has_blobs: bool) -> Self {
        let mut limits = limits.clone();
        // This process has not checked the configuration that a session keeps.
        limits.text_bytes = limits.text_bytes.min(Limits::TEXT_MAX_BYTES);
        limits.thinking_bytes = limits.thinking_bytes.min(Limits::TEXT_MAX_BYTES);
        limits.call_bytes = limits.call_bytes.min(Limits::CALL_MAX_BYTES);
        limits.answer_bytes = limits.answer_bytes.min(Limits::ANSWER_MAX_BYTES);
        Self {
            text: Left { text: limits.text_bytes, json: Limits::TEXT_MAX_BYTES },
            thinking: Left { text: limits.thinking_bytes, json: Limits::TEXT_MAX_BYTES },
            all: limits.answer_bytes,
            calls: limits.tool_calls.saturating_sub(made),
            waiting: WAITING_MAX,
            parts: PARTS_MAX,
            media: has_blobs.then_some((MEDIA_MAX, MEDIA_MAX_BYTES)),
            limits,
        }
    }

    /// Cuts a piece of text to the remaining capacity.
    pub(super) fn text(&mut self, piece: &mut String) -> Result<(), Full> {
        cut(
            piece,
            &mut self.text,
            &mut self.all,
            (LimitKind::TextBytes, self.limits.text_bytes),
            self.limits.answer_bytes,
        )
    }

    /// Cuts a piece of reasoning to the remaining capacity.
    pub(super) fn thinking(&mut self, piece: &mut String) -> Result<(), Full> {
        cut(
            piece,
            &mut self.thinking,
            &mut self.all,
            (LimitKind::ThinkingBytes, self.limits.thinking_bytes),
            self.limits.answer_bytes,
        )
    }

    /// Accepts one more part if there is capacity for it.
    pub(super) const fn part(&mut self) -> Result<(), Full> {
        match self.parts.checked_sub(1) {
            Some(left) => self.parts = left,
            None => return Err(Full::Parts(PARTS_MAX)),
        }
        Ok(())
    }

    /// Accepts the JSON of an item, or a piece of it, if there is capacity for it.
    pub(super) fn json(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes > Limits::CALL_MAX_BYTES {
            return Err(Full::Bytes(LimitKind::ItemBytes, Limits::CALL_MAX_BYTES));
        }
        let bytes = bytes.max(1);
        if bytes > self.all {
            return Err(Full::Bytes(LimitKind::AnswerBytes, self.limits.answer_bytes));
        }
        self.all -= bytes;
        Ok(())
    }

    /// Accepts a part of this size as JSON, whose medium has `bytes`, if there is capacity for it.
    pub(super) fn medium(&mut self, json: usize, bytes: usize) -> Result<(), Full> {
        let Some((count, left)) = self.media.filter(|_| bytes > INLINE_MAX_BYTES) else {
            return self.json(json);
        };
        let (Some(count), Some(left)) = (count.checked_sub(1), left.checked_sub(bytes)) else {
            return Err(if count == 0 {
                Full::Media(MEDIA_MAX)
            } else {
                Full::Bytes(LimitKind::MediaBytes, MEDIA_MAX_BYTES)
            });
        };
        self.media = Some((count, left));
        // The event holds the rest.
        self.json(json.saturating_sub(bytes.div_ceil(3).saturating_mul(4)))
    }

    /// Gives back the capacity of pieces that the whole replaces.
    pub(super) const fn give_back(&mut self, bytes: usize) {
        self.all = self.all.saturating_add(bytes);
    }

    /// Accepts a call if there is capacity for it; `waits` says whether it needs an answer or a result from outside.
    pub(super) fn call(&mut self, call: &mut ModelCall, waits: bool) -> Result<(), Full> {
        for name in [&mut call.id, &mut call.name] {
            if name.len() > NAME_MAX_BYTES {
                *name = String::new();
            }
        }
        if self.calls == 0 {
            return Err(Full::Calls(LimitKind::ToolCalls, self.limits.tool_calls as usize));
        }
        if waits && self.waiting == 0 {
            return Err(Full::Calls(LimitKind::WaitingCalls, WAITING_MAX));
        }
        let input = call.input.get().len() + call.malformed.as_ref().map_or(0, |input| input.text.len());
        if input > self.limits.call_bytes {
            return Err(Full::Bytes(LimitKind::CallBytes, self.limits.call_bytes));
        }
        let bytes = call.id.len() + call.name.len() + input;
        if bytes > self.all {
            return Err(Full::Bytes(LimitKind::AnswerBytes, self.limits.answer_bytes));
        }
        self.all -= bytes;
        self.calls -= 1;
        self.waiting -= usize::from(waits);
        Ok(())
    }
}

/// Remaining bytes of a text.
#[derive(Clone, Copy, Debug)]
struct Left {
    text: usize,
    /// Remaining bytes of its JSON form, as an event holds it.
    json: usize,
}

/// Cuts a piece to the remaining capacity at a character boundary. An empty piece counts too, so a stream of empty
/// pieces ends.
fn cut(
    piece: &mut String,
    left: &mut Left,
    all: &mut usize,
    (kind, most): (LimitKind, usize),
    most_of_all: usize,
) -> Result<(), Full> {
    let mut json = json_bytes(piece);
    let full = if piece.len() > left.text {
        Err(Full::Bytes(kind, most))
    } else if json > left.json {
        Err(Full::Bytes(kind, Limits::TEXT_MAX_BYTES))
    } else if piece.len().max(1) > *all {
        Err(Full::Bytes(LimitKind::AnswerBytes, most_of_all))
    } else {
        Ok(())
    };
    if full.is_err() {
        let mut at = piece.floor_char_boundary(left.text.min(*all));
        json = json_bytes(&piece[..at]);
        while json > left.json {
            let shorter = piece.floor_char_boundary(at.saturating_sub((json - left.json).div_ceil(6)));
            json -= json_bytes(&piece[shorter..at]);
            at = shorter;
        }
        piece.truncate(at);
        piece.shrink_to_fit();
    }
    left.text -= piece.len();
    left.json -= json;
    *all -= piece.len().max(1).min(*all);
    full
}

/// Returns the number of bytes of a text as JSON, without its quotes.
fn json_bytes(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn text_is_measured_in_its_stored_form() {
        let text: String = (0..0x100_u32).filter_map(char::from_u32).chain(['한', '🙂']).collect();
        assert_eq!(json_bytes(&text) + 2, serde_json::to_string(&text).unwrap().len());
    }

    #[test]
    fn text_is_cut_at_the_event_size_limit() {
        // The configuration that a session keeps may hold any values.
        let limits = Limits { text_bytes: usize::MAX, answer_bytes: usize::MAX, ..Limits::default() };
        assert_eq!(Room::of(&limits, 0, true).limits.text_bytes, Limits::TEXT_MAX_BYTES);
        for unit in ["\u{1}", "\"", "한\u{1}a", "x"] {
            let mut room = Room::of(&limits, 0, true);
            room.text.json = 1000;
            let mut piece = unit.repeat(1001);
            assert!(room.text(&mut piece).is_err());
            assert!((991..=1000).contains(&json_bytes(&piece)), "{unit:?}: {} bytes", piece.len());
        }
    }
}
