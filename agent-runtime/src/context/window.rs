//! Window of a history: the summary at its start, and the parts of the events after it. It only grows, until a
//! compaction opens the next one.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use agent_core::Seq;
use agent_core::event::Compaction;
use agent_core::model::CallId;

use crate::context::assemble::{Assembler, Piece, Taken, assemble, in_order};
use crate::context::limits::ContextLimits;
use crate::context::message::{ModelMessage, ModelToolResult};

/// Maximum bytes of the inputs that are repeated behind a summary; the newest is repeated in any case.
const REPEATED_MAX_BYTES: usize = 256 << 10;

/// Memory of a part and of its message, without their texts: as counted for messages of one text.
const PART_BYTES: usize = 480;

/// Piece of an event, and the last event of its commit.
#[derive(Clone, Debug)]
struct Placed {
    end: Seq,
    part: Piece,
}

/// How far the messages of a window are assembled; at first, not at all.
#[derive(Debug, Default)]
pub(crate) struct Assembled {
    /// Window; `None` before its first message, and one that nobody has if its messages may change.
    window: Option<Arc<()>>,
    /// Number of its parts.
    parts: usize,
    /// Last event of the parts.
    end: Seq,
    assembler: Assembler,
}

impl Assembled {
    /// Returns whether no message is assembled, and marks that those to come do not stay as they are.
    pub(super) fn begin_unsettled(&mut self) -> bool {
        self.window.replace(Arc::default()).is_none()
    }
}

/// Window of a history.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    summary: Option<String>,
    /// Last event before the window.
    start: Seq,
    /// Parts, oldest first: the inputs that the summary does not replace, then those of the events after `start`.
    parts: VecDeque<Placed>,
    bytes: usize,
    /// Bytes of memory that count for no limit: forms of the provider's own, media.
    hidden_bytes: usize,
    messages: usize,
    /// Calls that were open when the window was read.
    open: Vec<CallId>,
    /// True if the parts begin with the first event of the window.
    is_whole: bool,
    /// Identity of the window, which no other one has.
    id: Arc<()>,
}

/// Position up to which a summary can replace the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Last event that is replaced; the last of its commit, with no call open after it.
    pub(crate) until: Seq,
    /// Progress of the inputs there; `None` if the events that were read do not show it.
    pub(super) taken: Option<Taken>,
    /// Number of parts up to there.
    parts: usize,
}

impl Window {
    /// Creates a window that begins after `start`, and whose parts are added from its end backwards.
    pub(super) fn after(start: Seq) -> Self {
        Self { start, ..Self::default() }
    }

    /// Creates a window behind a summary. `inputs` are its [inputs](Compaction::inputs), oldest first.
    pub(super) fn behind(
        compaction: &Compaction,
        inputs: impl IntoIterator<Item = Piece>,
    ) -> (Self, Vec<Piece>) {
        let mut window = Self::after(compaction.until);
        window.bytes = compaction.summary.len();
        window.messages = 1;
        window.summary = Some(compaction.summary.clone());
        let mut head = newest(inputs.into_iter().collect());
        let claimed = compaction.claimed.unwrap_or(compaction.until);
        let done = compaction.inputs.iter().flatten().next();
        let done = done.map_or(compaction.until, |first| Seq::new(first.get().saturating_sub(1)));
        head.push(Piece::Taken(Taken { claimed, done }));
        (window, head)
    }

    /// Sets the calls that are open at the end of the window.
    pub(super) fn with_open(self, calls: impl IntoIterator<Item = CallId>) -> Self {
        Self { open: calls.into_iter().collect(), ..self }
    }

    /// Returns whether more inputs can be repeated behind a summary than these.
    pub(super) fn has_room_for(inputs: &[Piece]) -> bool {
        inputs.iter().map(Piece::size_bytes).sum::<usize>() <= REPEATED_MAX_BYTES
    }

    pub(super) fn summary(&self) -> Option<&str> {
        self.summary.as_deref()
    }

    /// Returns the last event before the window.
    pub(super) const fn start(&self) -> Seq {
        self.start
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn parts(&self) -> impl DoubleEndedIterator<Item = &Piece> {
        self.parts.iter().map(|placed| &placed.part)
    }

    /// Adds a part at the end. `end` is the last event of its commit.
    pub(super) fn push_back(&mut self, end: Seq, part: Piece) {
        self.count(&part);
        self.parts.push_back(Placed { end, part });
    }

    /// Adds a part at the beginning. `end` is the last event of its commit.
    pub(super) fn push_front(&mut self, end: Seq, part: Piece) {
        self.count(&part);
        self.parts.push_front(Placed { end, part });
    }

    fn count(&mut self, part: &Piece) {
        self.bytes += part.size_bytes();
        self.hidden_bytes += part.hidden_bytes();
        self.messages += part.messages();
    }

    /// Marks that the first event of the window was read, and puts the inputs before it that are not replaced.
    pub(super) fn complete(&mut self, head: Vec<Piece>) {
        self.is_whole = true;
        for part in head.into_iter().rev() {
            self.push_front(self.start, part);
        }
    }

    /// Removes the parts of the first commit, of which a part was not read.
    pub(super) fn drop_commit(&mut self, end: Seq) {
        while let Some(placed) = self.parts.pop_front_if(|placed| placed.end == end) {
            self.bytes -= placed.part.size_bytes();
            self.hidden_bytes -= placed.part.hidden_bytes();
            self.messages -= placed.part.messages();
        }
    }

    /// Removes the answer in the commit with this end, and the results of its calls, none of which was made. Results of
    /// earlier calls stay, and so does the end of the answer, which says what the provider refuses.
    pub(super) fn withdraw(&mut self, end: Seq) {
        let is_answer = |placed: &Placed| placed.end == end && matches!(placed.part, Piece::Items { .. });
        let answer = self.parts.iter().filter(|placed| is_answer(placed));
        let calls: HashSet<_> = answer.flat_map(|placed| placed.part.calls().cloned()).collect();
        let (bytes, hidden, messages) = (&mut self.bytes, &mut self.hidden_bytes, &mut self.messages);
        self.parts.retain(|placed| {
            let is_result = match &placed.part {
                Piece::Result(ModelToolResult { call, .. }) | Piece::Omitted(call) => calls.contains(call),
                _ => false,
            };
            let is_kept = placed.end != end || !(is_answer(placed) || is_result);
            if !is_kept {
                *bytes -= placed.part.size_bytes();
                *hidden -= placed.part.hidden_bytes();
                *messages -= placed.part.messages();
            }
            is_kept
        });
    }

    /// Returns about how much memory the parts and the messages made of them take, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        // Each has its texts.
        let texts = self.bytes.saturating_add(self.hidden_bytes);
        texts.saturating_mul(2).saturating_add(self.parts.len().saturating_mul(PART_BYTES))
    }

    /// Returns whether the window has more than the limits allow.
    pub(super) fn is_over(&self, limits: &ContextLimits) -> bool {
        self.bytes > limits.bytes || self.messages > limits.messages
    }

    /// Returns whether the window has so much more than the limits allow that no more of it is read.
    pub(super) fn is_far_over(&self, limits: &ContextLimits) -> bool {
        self.bytes > limits.bytes.saturating_mul(8).saturating_add(1 << 20)
            || self.parts.len() > limits.messages.saturating_mul(8).saturating_add(1024)
    }

    /// Returns the first position after which at most half of the limits is left; the last one, if even that leaves
    /// more. `None` if the window cannot be divided.
    pub(super) fn point(&self, limits: &ContextLimits) -> Option<Point> {
        let summary = self.summary.as_ref().map_or((0, 0), |summary| (summary.len(), 1));
        let (mut bytes, mut messages) = (self.bytes - summary.0, self.messages - summary.1);
        // Calls that were open before the first part that was read.
        let mut open = if self.is_whole { HashSet::new() } else { self.unopened() };
        // Behind a summary, the first part says how far the inputs were taken.
        let start = if self.summary.is_some() { Seq::ZERO } else { self.start };
        let mut taken = self.is_whole.then_some(Taken { claimed: start, done: start });
        let (mut last, mut before) = (None, self.start);
        for (at, placed) in self.parts.iter().enumerate() {
            // A model is given at least the last exchange, so what follows must be more than marks.
            if open.is_empty() && before < placed.end && before > self.start && messages > 0 {
                last = Some(Point { until: before, taken, parts: at });
                if bytes <= limits.bytes / 2 && messages <= limits.messages / 2 {
                    return last;
                }
            }
            before = placed.end;
            bytes -= placed.part.size_bytes();
            messages -= placed.part.messages();
            open.extend(placed.part.calls());
            match &placed.part {
                Piece::Result(ModelToolResult { call, .. }) | Piece::Omitted(call) => drop(open.remove(call)),
                Piece::Taken(mark) => taken = Some(taken.unwrap_or_default().then(*mark)),
                Piece::Input { .. } | Piece::System(_) | Piece::Items { .. } | Piece::Response { .. } => {}
            }
        }
        last
    }

    /// Returns whether the window can be divided, also without the first commit if a part of it was not read: `end` is its
    /// last event.
    pub(super) fn is_divisible_without(&self, end: Option<Seq>) -> bool {
        let all = ContextLimits::new(usize::MAX, usize::MAX);
        let Some(end) = end else { return self.point(&all).is_some() };
        let mut rest = self.clone();
        rest.drop_commit(end);
        rest.point(&all).is_some()
    }

    /// Returns the calls that are open, or whose results are among the parts, and which themselves are not.
    fn unopened(&self) -> HashSet<&CallId> {
        let mut made: HashSet<_> = self.parts().flat_map(Piece::calls).collect();
        let mut unopened: HashSet<_> = self.open.iter().filter(|call| !made.contains(call)).collect();
        made.clear();
        for part in self.parts() {
            made.extend(part.calls());
            if let Piece::Result(ModelToolResult { call, .. }) | Piece::Omitted(call) = part
                && !made.contains(call)
            {
                unopened.insert(call);
            }
        }
        unopened
    }

    /// Returns the first position after which at most half of the window is left, and the bytes of that half; `None` if it
    /// cannot be divided. The inputs that are repeated at its start are no part of the halves.
    pub(super) fn middle(&self) -> Option<(Point, usize)> {
        let events = self.parts.iter().filter(|placed| placed.end > self.start).map(|placed| &placed.part);
        let (messages, bytes) = events
            .fold((0, 0), |(messages, bytes), part| (messages + part.messages(), bytes + part.size_bytes()));
        let point = self.point(&ContextLimits::new(messages, bytes))?;
        Some((point, bytes / 2))
    }

    /// Returns the last input that was claimed at a position, by the end of the run that was active there; `None` if
    /// no run has ended since.
    pub(super) fn claimed_at(&self, point: &Point) -> Option<Seq> {
        self.parts().skip(point.parts).find_map(|part| match part {
            Piece::Taken(taken) => Some(taken.done).filter(|done| *done > Seq::ZERO),
            _ => None,
        })
    }

    /// Returns the numbers of the inputs up to a position that come after `done`, oldest first.
    pub(super) fn inputs_after(&self, done: Seq, point: &Point) -> Vec<Seq> {
        let inputs = self.parts().take(point.parts).filter_map(|part| match part {
            Piece::Input { seq, .. } => Some(*seq).filter(|seq| *seq > done),
            _ => None,
        });
        inputs.collect()
    }

    /// Returns the messages up to a position, oldest first.
    pub(super) fn until(&self, point: &Point) -> Vec<ModelMessage> {
        assemble(self.ordered(0..point.parts), Seq::new(u64::MAX))
    }

    /// Returns the pieces of these parts in the order in which a model is given them.
    fn ordered(&self, parts: Range<usize>) -> impl Iterator<Item = &Piece> {
        let mut pieces: Vec<_> = self.parts.range(parts).map(|placed| (placed.end, &placed.part)).collect();
        in_order(&mut pieces, self.start);
        pieces.into_iter().map(|(_, piece)| piece)
    }

    /// Returns the messages that follow those that are assembled, the summary first; inputs after `taken` are left out. `None`
    /// if the messages of this window do not begin with those.
    pub(super) fn further(&self, assembled: &mut Assembled, taken: Seq) -> Option<Vec<ModelMessage>> {
        let (from, end) = (assembled.parts, assembled.end);
        // An answer to an older request stands in front of what is assembled.
        let is_older =
            |part: &Piece| matches!(part, Piece::Response { response, .. } if response.after < end);
        let is_other = assembled.window.as_ref().is_some_and(|window| !Arc::ptr_eq(window, &self.id));
        if is_other || self.parts.range(from..).any(|placed| is_older(&placed.part)) {
            return None;
        }
        let summary = self.summary.clone().filter(|_| assembled.window.is_none());
        let mut messages: Vec<_> = summary.map(ModelMessage::Summary).into_iter().collect();
        let (further, is_settled) = assembled.assembler.assemble(self.ordered(from..self.parts.len()), taken);
        messages.extend(further);
        assembled.window = Some(if is_settled { self.id.clone() } else { Arc::default() });
        assembled.parts = self.parts.len();
        assembled.end = self.parts.back().map_or(self.start, |last| last.end);
        Some(messages)
    }

    /// Replaces everything up to `compaction.until` by its summary. `read` are the inputs that are repeated behind it, if
    /// the parts may not have all of them.
    pub(super) fn compact(&mut self, compaction: &Compaction, read: Option<Vec<Piece>>) {
        let again: HashSet<_> = compaction.inputs.iter().flatten().copied().collect();
        let (mut inputs, mut rest) = (Vec::new(), Vec::new());
        for Placed { end, part } in self.parts.drain(..) {
            match &part {
                Piece::Input { seq, .. } if *seq <= compaction.until => {
                    inputs.extend(again.contains(seq).then_some(part));
                }
                _ if end > compaction.until => rest.push((end, part)),
                _ => {}
            }
        }
        let (window, head) = Self::behind(compaction, read.unwrap_or(inputs));
        *self = window;
        for (end, part) in rest {
            self.push_back(end, part);
        }
        self.complete(head);
    }
}

/// Returns the newest of these inputs that are repeated together.
fn newest(mut inputs: Vec<Piece>) -> Vec<Piece> {
    let mut bytes = 0;
    let count = inputs
        .iter()
        .rev()
        .take_while(|part| {
            bytes += part.size_bytes();
            bytes <= REPEATED_MAX_BYTES
        })
        .count();
    inputs.drain(..inputs.len() - count.max(1).min(inputs.len()));
    inputs
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::context::message::AgentItem;
    use agent_core::Timestamp;
    use agent_core::clock::Effects;
    use agent_core::event::{AgentResponse, ToolOutcome, ToolUse};
    use agent_core::json::RawJson;

    /// Returns the pieces of a random commit. Some answer an older request than the last, and some calls wait.
    fn pieces(effects: &Effects, end: Seq, asked: Seq) -> Vec<Piece> {
        let pick = |of| effects.random_u64() % of;
        let call = || format!("c{}", pick(6)).parse::<CallId>().unwrap();
        let before = |seq: Seq| Seq::new(pick(seq.get() + 1));
        let commit = effects.new_commit_id();
        match pick(8) {
            0 => vec![Piece::Input { seq: end, content: format!("input {end}").into() }],
            1 => vec![Piece::Taken(Taken { claimed: before(end), done: Seq::ZERO })],
            2 => vec![Piece::System(format!("note {end}"))],
            3 => vec![Piece::Omitted(call())],
            4 | 5 => vec![Piece::Result(ModelToolResult::new(call(), ToolOutcome::Ok, format!("at {end}")))],
            kind => {
                let mut items = vec![AgentItem::text(format!("answer {end}"))];
                items.extend(
                    (0..pick(3))
                        .map(|_| AgentItem::call(ToolUse::new(call(), "look", RawJson::empty_object()))),
                );
                let after = if pick(9) == 0 { before(asked) } else { asked };
                let response = Box::new(AgentResponse::new(after));
                let mut pieces = vec![Piece::Items { commit, items }];
                pieces.extend((kind == 7).then_some(Piece::Response { commit, response }));
                pieces
            }
        }
    }

    #[test]
    fn messages_in_steps_are_those_of_the_whole_window() {
        let (mut continued, mut restarted) = (0, 0);
        for seed in 0..300 {
            let effects = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
            let mut window = Window::after(Seq::ZERO);
            let taken = Seq::new(effects.random_u64() % 20);
            let (mut assembled, mut messages, mut asked) = (Assembled::default(), Vec::new(), Seq::ZERO);
            for end in (1..60).map(Seq::new) {
                for piece in pieces(&effects, end, asked) {
                    window.push_back(end, piece);
                }
                if !effects.random_u64().is_multiple_of(3) {
                    continue;
                }
                if let Some(further) = window.further(&mut assembled, taken) {
                    continued += 1;
                    messages.extend(further);
                } else {
                    restarted += 1;
                    assembled = Assembled::default();
                    messages = window.further(&mut assembled, taken).unwrap();
                }
                assert_eq!(
                    messages,
                    window.further(&mut Assembled::default(), taken).unwrap(),
                    "seed {seed}"
                );
                asked = end;
            }
        }
        assert!(continued > 1000 && restarted > 100, "{continued} and {restarted}");
    }
}
