//! Converts events in log order to messages that every provider accepts. Each tool call has exactly one result directly
//! after its message, and an input is placed where a run claimed it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Display;
use std::ops::Range;

use crate::context::message::{
    AgentItem, AgentMessage, Content, ItemContent, ModelMessage, ModelToolResult, Shown, inline_bytes,
};
use agent_core::event::{AgentResponse, EventPayload, Message, ToolOutcome};
use agent_core::model::CallId;
use agent_core::{CommitId, Seq};

/// Maximum bytes of a text, and of the output of a tool, that are shown whole if the event does not say how much is
/// shown. Constants, because what a model was once given must not change with a configuration.
pub(crate) const TEXT_MAX_BYTES: usize = 256 << 10;
const OUTPUT_MAX_BYTES: usize = 64 << 10;

/// Bytes that are shown of a longer text: half from its beginning, half from its end.
const SHORTENED_BYTES: usize = 64 << 10;

/// Name of the tool by which a model reads the rest of a text.
pub(crate) const READ_OUTPUT: &str = "read_output";

/// Beginning of the name by which the tool is told a message; its sequence number follows.
pub(crate) const MESSAGE: &str = "message-";

/// Piece of a history that the assembly needs.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Input {
        seq: Seq,
        content: Content,
    },
    System(String),
    /// Items of an answer, of one event.
    Items {
        commit: CommitId,
        items: Vec<AgentItem>,
    },
    /// End of the items of an answer.
    Response {
        commit: CommitId,
        response: Box<AgentResponse>,
    },
    Result(ModelToolResult),
    /// Result that the log does not keep; a model is given neither it nor its call.
    Omitted(CallId),
    /// Marks how far the inputs are claimed and done.
    Taken(Taken),
}

/// Progress of the inputs at a point of the log; `ZERO` if that point says nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Last input that a run has claimed.
    pub(super) claimed: Seq,
    /// Last input that is answered.
    pub(super) done: Seq,
}

impl Taken {
    /// Returns the progress after a further mark.
    pub(super) fn then(self, next: Self) -> Self {
        Self { claimed: self.claimed.max(next.claimed), done: self.done.max(next.done) }
    }

    /// Returns the last input that is not open any more.
    pub(super) fn last(self) -> Seq {
        self.claimed.max(self.done)
    }
}

impl Piece {
    pub(super) fn size_bytes(&self) -> usize {
        match self {
            Self::Input { content, .. } => content.size_bytes(),
            Self::System(text) => text.len(),
            Self::Items { items, .. } => items.iter().map(AgentItem::size_bytes).sum(),
            Self::Result(result) => result.size_bytes(),
            Self::Response { .. } | Self::Taken(_) | Self::Omitted(_) => 0,
        }
    }

    /// Returns about how many bytes of memory it takes beyond those that count for the limits.
    pub(super) fn hidden_bytes(&self) -> usize {
        match self {
            Self::Input { content, .. } => content.parts.iter().map(inline_bytes).sum(),
            Self::Items { items, .. } => items.iter().map(AgentItem::hidden_bytes).sum(),
            Self::Result(result) => result.content.iter().map(inline_bytes).sum(),
            Self::System(_) | Self::Response { .. } | Self::Taken(_) | Self::Omitted(_) => 0,
        }
    }

    /// Returns the number of messages as which the piece counts.
    pub(super) fn messages(&self) -> usize {
        match self {
            Self::Input { .. } | Self::System(_) => 1,
            Self::Items { items, .. } => items.iter().filter(|item| item.is_message()).count(),
            Self::Response { .. } | Self::Taken(_) | Self::Result(_) | Self::Omitted(_) => 0,
        }
    }

    /// Returns the calls in the piece.
    pub(super) fn calls(&self) -> impl Iterator<Item = &CallId> {
        let items = if let Self::Items { items, .. } = self { &items[..] } else { &[] };
        items.iter().filter_map(AgentItem::as_call).map(|call| &call.call)
    }

    /// Returns the piece for a payload, if there is one. What is shown of a long text depends on the event alone.
    pub(super) fn of(body: EventPayload, seq: Seq, commit: CommitId) -> Option<Self> {
        let one = |item| Self::Items { commit, items: vec![item] };
        Some(match body {
            EventPayload::UserMessage(mut message) | EventPayload::UserDefineOutcome(mut message) => {
                let shown = take_shown(&mut message, seq);
                Self::Input { seq, content: Content::of(message, shown) }
            }
            EventPayload::SystemMessage(message) if !message.custom => {
                Self::System(whole_or_ends(message.text, TEXT_MAX_BYTES))
            }
            EventPayload::AgentMessage(mut message) => {
                let shown = take_shown(&mut message, seq);
                Self::Items { commit, items: AgentItem::of(message, shown) }
            }
            EventPayload::AgentThinking(message) => {
                one(AgentItem { native: message.native, ..AgentItem::reasoning(message.text) })
            }
            EventPayload::AgentPart(part) => {
                one(AgentItem { native: part.native, ..AgentItem::part(part.content) })
            }
            EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => {
                one(AgentItem::call(call))
            }
            EventPayload::AgentResponse(response) => Self::Response { commit, response: Box::new(response) },
            EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result) => {
                let text = result.output.to::<String>();
                let output = text.unwrap_or_else(|_| result.output.get().to_owned());
                // A preview is what every model is given.
                let max = if result.full.is_some() { usize::MAX } else { OUTPUT_MAX_BYTES };
                let output = whole_or_ends(output, max);
                let shown = ModelToolResult {
                    content: result.content,
                    ..ModelToolResult::new(result.call, result.outcome, output)
                };
                if result.omitted { Self::Omitted(shown.call) } else { Self::Result(shown) }
            }
            _ => return None,
        })
    }
}

/// Takes the text of a message. Returns as much of it as the event says.
fn take_shown(message: &mut Message, seq: Seq) -> Shown {
    let text = std::mem::take(&mut message.text);
    let bytes = text.len();
    let text = match message.shown.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)) {
        Some(bytes) if message.readable && bytes < text.len() => {
            ends_with(&text, bytes, |left_out| cut_mark(format_args!("{MESSAGE}{seq}"), left_out, text.len()))
        }
        Some(bytes) => shortened(text, bytes),
        None => whole_or_ends(text, TEXT_MAX_BYTES),
    };
    Shown { is_whole: text.len() == bytes, text }
}

/// Returns the text, or the beginning and the end of one that is longer than `max`.
fn whole_or_ends(text: String, max: usize) -> String {
    if text.len() <= max { text } else { shortened(text, SHORTENED_BYTES) }
}

/// Returns the text, or its beginning and its end if it has more than `max` bytes.
pub(crate) fn shortened(text: String, max: usize) -> String {
    if text.len() <= max { text } else { ends(&text, max) }
}

/// Returns the beginning and the end of a text of more than `max` bytes; never cut inside a character.
pub(crate) fn ends(text: &str, max: usize) -> String {
    ends_with(text, max, |left_out| format!("[… {} bytes left out …]", left_out.len()))
}

/// Returns the same with the line `mark` at the cut, for the bytes that are left out.
pub(crate) fn ends_with(text: &str, max: usize, mark: impl FnOnce(Range<usize>) -> String) -> String {
    let head = text.floor_char_boundary(max / 2);
    let tail = text.ceil_char_boundary(text.len() - max / 2);
    format!("{}\n{}\n{}", &text[..head], mark(head..tail), &text[tail..])
}

/// Returns the line that marks the cut in a shortened text, and tells the model how to read on. What a model was once given
/// must not change, so that neither must this line.
pub(crate) fn cut_mark(name: impl Display, left_out: Range<usize>, total: usize) -> String {
    format!(
        "[… bytes {} to {} of {total} left out; read them with {READ_OUTPUT}: output {name}, offset {} …]",
        left_out.start, left_out.end, left_out.start
    )
}

/// Returns whether a text is blank. A provider refuses a message of white space only, and with it the whole request.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Answer of the agent, to which items and results are added.
#[derive(Debug)]
struct OpenMessage {
    commit: CommitId,
    items: Vec<AgentItem>,
    response: Option<Box<AgentResponse>>,
    /// Results so far; `None` for one that the log does not keep.
    results: HashMap<CallId, Option<ModelToolResult>>,
}

impl OpenMessage {
    fn has_call(&self, id: &CallId) -> bool {
        self.items.iter().filter_map(AgentItem::as_call).any(|call| call.call == *id)
    }

    /// Returns whether a call has no result yet.
    fn waits(&self) -> bool {
        self.results.len() < self.items.iter().filter(|item| item.as_call().is_some()).count()
    }
}

/// Assembler of pieces, oldest first, into messages.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    messages: Vec<ModelMessage>,
    /// Inputs that no run has claimed yet.
    waiting: VecDeque<(Seq, Content)>,
    open: Option<OpenMessage>,
    /// Messages that arrived while calls were open; they follow when the calls are closed.
    deferred: Vec<ModelMessage>,
    /// Call ids that are in use.
    used: HashSet<CallId>,
    /// Commits of answers whose end is recorded. Their items are one message, in the provider's order.
    marked: HashSet<CommitId>,
}

/// Assembles pieces, oldest first, into messages; inputs after `taken` are left out.
pub(super) fn assemble<'a>(pieces: impl IntoIterator<Item = &'a Piece>, taken: Seq) -> Vec<ModelMessage> {
    Assembler::default().assemble(pieces, taken).0
}

/// Puts each answer in front of what others wrote while it was made, as its request was built before that. The pieces
/// come with the ends of their commits; those up to `start` precede every answer.
pub(super) fn in_order(pieces: &mut [(Seq, &Piece)], start: Seq) {
    for at in 0..pieces.len() {
        let (end, Piece::Response { response, .. }) = pieces[at] else { continue };
        let is_answer = |(of, piece): &(Seq, &Piece)| {
            *of == end && matches!(piece, Piece::Items { .. } | Piece::Result(_) | Piece::Omitted(_))
        };
        let first = pieces[..at].iter().rposition(|piece| !is_answer(piece)).map_or(0, |last| last + 1);
        let is_before = |(of, _): &(Seq, &Piece)| *of <= response.after.max(start);
        let place = pieces[..first].iter().rposition(is_before).map_or(0, |last| last + 1);
        pieces[place..=at].rotate_left(first - place);
    }
}

impl Assembler {
    /// Assembles the next pieces, of whole commits; inputs after `taken` are left out for now. Also returns whether the
    /// messages stay as they are, whatever pieces follow: no call waits for its result, and each input is where it was claimed.
    pub(super) fn assemble<'a>(
        &mut self,
        pieces: impl IntoIterator<Item = &'a Piece>,
        taken: Seq,
    ) -> (Vec<ModelMessage>, bool) {
        let pieces: Vec<_> = pieces.into_iter().collect();
        let ends = pieces.iter().filter_map(|piece| match piece {
            Piece::Response { commit, .. } => Some(*commit),
            _ => None,
        });
        self.marked = ends.collect();
        for piece in pieces {
            self.add(piece);
        }
        let is_settled = !self.waits() && self.waiting.front().is_none_or(|(seq, _)| *seq > taken);
        self.take(taken);
        self.close();
        (std::mem::take(&mut self.messages), is_settled)
    }

    fn add(&mut self, piece: &Piece) {
        match piece {
            Piece::Input { seq, content } => self.waiting.push_back((*seq, content.clone())),
            Piece::Taken(taken) => self.take(taken.last()),
            Piece::System(text) if is_blank(text) => {}
            Piece::System(text) => self.emit(ModelMessage::System(text.clone())),
            Piece::Items { commit, items } => items.iter().for_each(|item| self.item(*commit, item)),
            Piece::Response { commit, response } => {
                match self.open.as_mut().filter(|open| open.commit == *commit) {
                    Some(open) => open.response = Some(response.clone()),
                    // Of an answer that is not given. What its request has taught about the provider is still so.
                    None if response.replay.is_some() || !response.left_out.is_empty() => {
                        let response = Some(response.clone());
                        self.emit(ModelMessage::Agent(AgentMessage { items: Vec::new(), response }));
                    }
                    None => {}
                }
            }
            Piece::Result(result) => self.result(&result.call, Some(result)),
            Piece::Omitted(call) => self.result(call, None),
        }
    }

    fn waits(&self) -> bool {
        self.open.as_ref().is_some_and(OpenMessage::waits)
    }

    fn emit(&mut self, message: ModelMessage) {
        if self.waits() {
            self.deferred.push(message);
            return;
        }
        self.close();
        self.messages.push(message);
    }

    fn take(&mut self, seq: Seq) {
        while let Some((_, content)) = self.waiting.pop_front_if(|(at, _)| *at <= seq) {
            // Blank inputs occur in older stores and in restored logs; a provider needs a text to answer.
            let content = if content.is_blank() { "(no text)".into() } else { content };
            self.emit(ModelMessage::User(content));
        }
    }

    /// Adds an item of an answer.
    fn item(&mut self, commit: CommitId, item: &AgentItem) {
        if let ItemContent::Text { text, .. } = &item.content
            && is_blank(text)
            && item.native.is_none()
        {
            return;
        }
        let is_marked = self.marked.contains(&commit);
        let is_same = self.open.as_ref().is_some_and(|open| open.commit == commit);
        if is_marked && (is_same || !self.waits()) {
            if !is_same {
                self.close();
            }
            self.push(commit, item.clone());
            return;
        }
        // Without the end of its answer nobody knows to whom an item's own form could be given. An answer beside open
        // calls of another one is of another program.
        let message = AgentMessage::from(vec![item.clone()]).canonical();
        let Some(item) = message.items.into_iter().next() else { return };
        if item.as_call().is_some() {
            // A text of another commit is another message; calls that are open at the same time are one.
            if !(self.waits() || is_same) {
                self.close();
            }
            self.push(commit, item);
        } else if self.waits() {
            self.deferred.push(ModelMessage::Agent(vec![item].into()));
        } else {
            self.close();
            self.push(commit, item);
        }
    }

    fn push(&mut self, commit: CommitId, item: AgentItem) {
        let open = self.open.get_or_insert_with(|| OpenMessage {
            commit,
            // Most answers are one item.
            items: Vec::with_capacity(1),
            response: None,
            results: HashMap::new(),
        });
        if item.as_call().is_none_or(|call| !open.has_call(&call.call)) {
            open.items.push(item);
        }
    }

    fn result(&mut self, id: &CallId, result: Option<&ModelToolResult>) {
        // A result without its call is left out: the call was cut off, or is missing in the log.
        let Some(open) = self.open.as_mut().filter(|open| open.has_call(id)) else { return };
        open.results.entry(id.clone()).or_insert_with(|| result.cloned());
        // More items of a marked answer may follow the result of a call that was refused.
        if !open.waits() && !self.marked.contains(&open.commit) {
            self.close();
        }
    }

    /// Ends the agent's message: calls without a result get one that says they were interrupted.
    fn close(&mut self) {
        if let Some(mut open) = self.open.take() {
            let mut results = Vec::new();
            open.items.retain_mut(|item| {
                let ItemContent::Call(call) = &mut item.content else { return true };
                let result = open.results.remove(&call.call).unwrap_or_else(|| {
                    let output = "interrupted, outcome unknown";
                    Some(ModelToolResult::new(call.call.clone(), ToolOutcome::Interrupted, output))
                });
                let Some(mut result) = result.filter(|_| !call.omitted) else { return false };
                let id = unique(&mut self.used, &call.call);
                if id != call.call {
                    (call.call, item.native) = (id, None);
                }
                result.call = call.call.clone();
                results.push(result);
                true
            });
            let message = AgentMessage { items: open.items, response: open.response };
            if !message.items.is_empty() {
                self.messages.push(ModelMessage::Agent(message));
            }
            if !results.is_empty() {
                self.messages.push(ModelMessage::ToolResults(results));
            }
        }
        self.messages.append(&mut self.deferred);
    }
}

/// Returns the id, or a variant of it if it was used before: providers require ids to be unique in a conversation.
fn unique(used: &mut HashSet<CallId>, id: &CallId) -> CallId {
    let mut unique = id.clone();
    let mut n = 2;
    while !used.insert(unique.clone()) {
        // Providers accept 40 letters, digits, hyphens and underscores.
        let end = id.as_str().floor_char_boundary(32);
        // A part of an id, followed by a number, is a valid id.
        unique = format!("{}-{n}", &id.as_str()[..end]).parse().unwrap_or(unique);
        n += 1;
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::clock::Effects;
    use agent_core::event::Part;

    /// Long conversations consist of these.
    #[test]
    fn plain_messages_are_not_copied_and_take_no_room_for_more() {
        let commit = Effects::default().new_commit_id();
        let text = "x".repeat(600);
        let at = text.as_ptr();
        let input = EventPayload::UserMessage(Message::new(text));
        let Some(Piece::Input { content, .. }) = Piece::of(input, Seq::new(1), commit) else {
            panic!("an input")
        };
        let [Part::Text { text: Some(text), .. }] = &content.parts[..] else { panic!("{content:?}") };
        assert_eq!(text.as_ptr(), at);
        let text = "y".repeat(600);
        let at = text.as_ptr();
        let answer = Piece::of(EventPayload::AgentMessage(Message::new(text)), Seq::new(2), commit);
        let Some(Piece::Items { items, .. }) = &answer else { panic!("{answer:?}") };
        let ItemContent::Text { text, .. } = &items[0].content else { panic!("{items:?}") };
        assert_eq!((text.as_ptr(), items.capacity()), (at, 1));
        let messages = assemble(&answer, Seq::new(2));
        let [ModelMessage::Agent(said)] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!((said.items.len(), said.items.capacity()), (1, 1));
    }
}
