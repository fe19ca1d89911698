//! How much of an answer is taken while it streams.

use std::fmt;

use crate::runtime::config::Limits;
use crate::runtime::provider::ModelCall;
use crate::secrets::Secret;
use crate::session::Reason;

/// How many calls of one answer may wait for somebody: with those that are made beside them, a record holds 64.
const WAITING_MAX: usize = 32;

/// The most bytes of an id or a name that a provider gives; a longer one is replaced.
const NAME_MAX_BYTES: usize = 128;

/// The most bytes that are kept for a moment of what was cut off: as many as a secret's value may have, escaped twice.
const REST_MAX_BYTES: usize = 4 * Secret::MAX_BYTES;

/// A text was cut at a limit.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) full: Full,
    /// The beginning of what was cut off.
    pub(super) rest: String,
}

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
    text: usize,
    thinking: usize,
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
            text: limits.text_bytes,
            thinking: limits.thinking_bytes,
            all: limits.answer_bytes,
            calls: limits.tool_calls.saturating_sub(made),
            waiting: WAITING_MAX,
            limits,
        }
    }

    /// Cuts a piece of text to what there is room for.
    pub(super) fn text(&mut self, piece: &mut String) -> Result<(), Cut> {
        cut(piece, &mut self.text, &mut self.all, ("text", self.limits.text_bytes), self.limits.answer_bytes)
    }

    /// Cuts a piece of reasoning to what there is room for.
    pub(super) fn thinking(&mut self, piece: &mut String) -> Result<(), Cut> {
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

/// Cuts a piece to what there is room for, at a character. An empty one counts, too, so that a stream of nothing ends.
fn cut(
    piece: &mut String,
    left: &mut usize,
    all: &mut usize,
    (noun, most): (&'static str, usize),
    most_of_all: usize,
) -> Result<(), Cut> {
    let full = if piece.len() > *left {
        Err(Full::Bytes(noun, most))
    } else if piece.len().max(1) > *all {
        Err(Full::Bytes("an answer", most_of_all))
    } else {
        Ok(())
    };
    let full = full.map_err(|full| {
        let at = piece.floor_char_boundary((*left).min(*all));
        let rest = piece[at..piece.floor_char_boundary(at + REST_MAX_BYTES)].to_owned();
        piece.truncate(at);
        piece.shrink_to_fit();
        Cut { full, rest }
    });
    *left -= piece.len();
    *all -= piece.len().max(1).min(*all);
    full
}
