//! How much of an answer is taken while it streams.

use std::fmt;

use crate::runtime::config::Limits;
use crate::runtime::provider::ModelCall;
use agent_core::state::Reason;

/// How many calls of one answer may wait for somebody: with those that are made beside them, a record holds 64.
const WAITING_MAX: usize = 32;

/// The most bytes of an id or a name that a provider gives; a longer one is replaced.
const NAME_MAX_BYTES: usize = 128;

/// A limit that an answer met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Of calls; those before it are made.
    Calls(usize),
    /// Of bytes; no call is made.
    Bytes(&'static str, usize),
}

impl Full {
    /// The reason for which a session is idle after it.
    pub(super) const fn reason(self) -> Reason {
        match self {
            Self::Calls(_) => Reason::MaxTurns,
            Self::Bytes(..) => Reason::MaxOutput,
        }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calls(most) => write!(f, "{most} tool calls"),
            Self::Bytes(noun, most) => write!(f, "{most} bytes of {noun}"),
        }
    }
}

/// What of an answer there is still room for.
#[derive(Debug)]
pub(super) struct Room {
    /// What there is room for at first.
    limits: Limits,
    text: Left,
    thinking: Left,
    all: usize,
    calls: u32,
    waiting: usize,
}

impl Room {
    /// The room for one answer of a run that has made so many calls.
    pub(super) fn of(limits: &Limits, made: u32) -> Self {
        let mut limits = limits.clone();
        // A configuration that a session keeps was checked by nobody here.
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
            limits,
        }
    }

    /// Cuts a piece of text to what there is room for.
    pub(super) fn text(&mut self, piece: &mut String) -> Result<(), Full> {
        cut(piece, &mut self.text, &mut self.all, ("text", self.limits.text_bytes), self.limits.answer_bytes)
    }

    /// Cuts a piece of reasoning to what there is room for.
    pub(super) fn thinking(&mut self, piece: &mut String) -> Result<(), Full> {
        cut(
            piece,
            &mut self.thinking,
            &mut self.all,
            ("reasoning", self.limits.thinking_bytes),
            self.limits.answer_bytes,
        )
    }

    /// Takes a call, if there is room for it; `waits` if somebody has to answer it.
    pub(super) fn call(&mut self, call: &mut ModelCall, waits: bool) -> Result<(), Full> {
        for name in [&mut call.id, &mut call.name] {
            if name.len() > NAME_MAX_BYTES {
                *name = String::new();
            }
        }
        if self.calls == 0 {
            return Err(Full::Calls(self.limits.tool_calls as usize));
        }
        if waits && self.waiting == 0 {
            return Err(Full::Calls(WAITING_MAX));
        }
        let input = call.input.get().len();
        if input > self.limits.call_bytes {
            return Err(Full::Bytes("input of a tool call", self.limits.call_bytes));
        }
        let bytes = call.id.len() + call.name.len() + input;
        if bytes > self.all {
            return Err(Full::Bytes("an answer", self.limits.answer_bytes));
        }
        self.all -= bytes;
        self.calls -= 1;
        self.waiting -= usize::from(waits);
        Ok(())
    }
}

/// How many bytes of a text there is room for.
#[derive(Clone, Copy, Debug)]
struct Left {
    text: usize,
    /// As JSON, as it is in an event.
    json: usize,
}

/// Cuts a piece to what there is room for, at a character. An empty one counts, too, so that a stream of nothing ends.
fn cut(
    piece: &mut String,
    left: &mut Left,
    all: &mut usize,
    (noun, most): (&'static str, usize),
    most_of_all: usize,
) -> Result<(), Full> {
    let mut json = json_bytes(piece);
    let full = if piece.len() > left.text {
        Err(Full::Bytes(noun, most))
    } else if json > left.json {
        Err(Full::Bytes(noun, Limits::TEXT_MAX_BYTES))
    } else if piece.len().max(1) > *all {
        Err(Full::Bytes("an answer", most_of_all))
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

/// How many bytes a text takes as JSON, without its quotes.
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
    fn a_text_is_measured_as_it_is_stored() {
        let text: String = (0..0x100_u32).filter_map(char::from_u32).chain(['한', '🙂']).collect();
        assert_eq!(json_bytes(&text) + 2, serde_json::to_string(&text).unwrap().len());
    }

    #[test]
    fn a_text_is_cut_where_an_event_is_full() {
        // A configuration that a session keeps may say anything.
        let limits = Limits { text_bytes: usize::MAX, answer_bytes: usize::MAX, ..Limits::default() };
        assert_eq!(Room::of(&limits, 0).limits.text_bytes, Limits::TEXT_MAX_BYTES);
        for unit in ["\u{1}", "\"", "한\u{1}a", "x"] {
            let mut room = Room::of(&limits, 0);
            room.text.json = 1000;
            let mut piece = unit.repeat(1001);
            assert!(room.text(&mut piece).is_err());
            assert!((991..=1000).contains(&json_bytes(&piece)), "{unit:?}: {} bytes", piece.len());
        }
    }
}
