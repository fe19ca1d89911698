//! Converts events in log order to messages that every provider accepts. Each tool call has exactly one result directly
//! after its message, and an input is placed where a run claimed it.

use std::collections::{HashMap, HashSet, VecDeque};

use agent_core::event::{EventPayload, Message, ToolOutcome, ToolUse};
use agent_core::model::CallId;
use agent_core::{CommitId, Seq};

/// One message of a conversation, in the form that a model receives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelMessage {
    /// Summary that replaces the older part of the conversation; always the first message, if there is one. Providers
    /// receive it as a message of the user.
    Summary(String),
    /// Message of a person.
    User(String),
    /// Text that the system inserted at this point.
    System(String),
    /// Text of the agent, and the tools that it called; the results of the calls come next.
    #[non_exhaustive]
    Agent {
        /// Text; may be empty if the agent called tools.
        text: String,
        /// Tool calls.
        calls: Vec<ToolUse>,
    },
    /// Results of the calls in the previous message, one for each, in the same order.
    ToolResults(Vec<ModelToolResult>),
}

impl ModelMessage {
    /// Creates a message of the agent without tool calls.
    ///
    /// ```
    /// use agent_runtime::context::ModelMessage;
    ///
    /// let message = ModelMessage::agent("Hello");
    /// assert!(matches!(&message, ModelMessage::Agent { text, calls, .. } if text == "Hello" && calls.is_empty()));
    /// ```
    pub fn agent(text: impl Into<String>) -> Self {
        Self::Agent { text: text.into(), calls: Vec::new() }
    }

    /// Returns the approximate number of bytes of the message.
    ///
    /// ```
    /// use agent_runtime::context::ModelMessage;
    ///
    /// assert_eq!(ModelMessage::User("Hello".to_owned()).size_bytes(), 5);
    /// ```
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Summary(text) | Self::User(text) | Self::System(text) => text.len(),
            Self::Agent { text, calls } => text.len() + calls.iter().map(call_bytes).sum::<usize>(),
            Self::ToolResults(results) => results.iter().map(|result| result.output.len() + 32).sum(),
        }
    }
}

fn call_bytes(call: &ToolUse) -> usize {
    call.name.len() + call.input.get().len() + 32
}

/// Result of a tool call, in the form that a model receives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelToolResult {
    /// Id of the call.
    pub call: CallId,
    /// Outcome of the call.
    pub outcome: ToolOutcome,
    /// Output as text: the characters of a JSON string, any other value as JSON.
    pub output: String,
}

/// Maximum bytes of a text, and of the output of a tool, that are shown whole if the event does not say how much is
/// shown. Constants, because what a model was once given must not change with a configuration.
pub(crate) const TEXT_MAX_BYTES: usize = 256 << 10;
const OUTPUT_MAX_BYTES: usize = 64 << 10;

/// Bytes that are shown of a longer text: half from its beginning, half from its end.
const SHORTENED_BYTES: usize = 64 << 10;

/// Part of an event that the assembly needs.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Input {
        seq: Seq,
        text: String,
    },
    System(String),
    Agent {
        commit: CommitId,
        text: String,
    },
    Call {
        commit: CommitId,
        call: ToolUse,
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

impl Part {
    pub(super) fn size_bytes(&self) -> usize {
        match self {
            Self::Input { text, .. } | Self::System(text) | Self::Agent { text, .. } => text.len(),
            Self::Call { call, .. } => call_bytes(call),
            Self::Result(result) => result.output.len() + 32,
            Self::Taken(_) | Self::Omitted(_) => 0,
        }
    }

    /// Returns whether the part counts as a message.
    pub(super) fn is_message(&self) -> bool {
        !matches!(self, Self::Taken(_) | Self::Result(_) | Self::Omitted(_))
    }

    /// Returns the part for a payload, if there is one. What is shown of a long text depends on the event alone.
    pub(super) fn of(body: EventPayload, seq: Seq, commit: CommitId) -> Option<Self> {
        Some(match body {
            EventPayload::UserMessage(message) | EventPayload::UserDefineOutcome(message) => {
                Self::Input { seq, text: shown_text(message) }
            }
            EventPayload::SystemMessage(message) if !message.custom => {
                Self::System(whole_or_ends(message.text, TEXT_MAX_BYTES))
            }
            EventPayload::AgentMessage(message) => Self::Agent { commit, text: shown_text(message) },
            EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => {
                Self::Call { commit, call }
            }
            EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result) => {
                let text = result.output.to::<String>();
                let output = text.unwrap_or_else(|_| result.output.get().to_owned());
                // A preview is what every model is given.
                let max = if result.full.is_some() { usize::MAX } else { OUTPUT_MAX_BYTES };
                let output = whole_or_ends(output, max);
                let shown = ModelToolResult { call: result.call, outcome: result.outcome, output };
                if result.omitted { Self::Omitted(shown.call) } else { Self::Result(shown) }
            }
            _ => return None,
        })
    }
}

/// Returns as much of a message's text as its event says.
fn shown_text(message: Message) -> String {
    match message.shown {
        Some(bytes) => shortened(message.text, usize::try_from(bytes).unwrap_or(usize::MAX)),
        None => whole_or_ends(message.text, TEXT_MAX_BYTES),
    }
}

/// Returns the text, or the beginning and the end of one that is longer than `max`.
fn whole_or_ends(text: String, max: usize) -> String {
    if text.len() <= max { text } else { shortened(text, SHORTENED_BYTES) }
}

/// Returns the text, or its beginning and its end if it has more than `max` bytes; never cut inside a character.
pub(crate) fn shortened(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let head = text.floor_char_boundary(max / 2);
    let tail = text.ceil_char_boundary(text.len() - max / 2);
    format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

/// Returns whether a text is blank. A provider refuses a message of white space only, and with it the whole request.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Messages that are kept or dropped together.
pub(super) type Block = Vec<ModelMessage>;

/// Message of the agent whose calls wait for their results.
struct OpenMessage {
    commit: CommitId,
    text: String,
    calls: Vec<ToolUse>,
    /// Results so far; `None` for one that the log does not keep.
    results: HashMap<CallId, Option<ModelToolResult>>,
}

/// Assembler of parts, oldest first, into blocks.
#[derive(Default)]
struct Assembler {
    blocks: Vec<Block>,
    /// Inputs that no run has claimed yet.
    waiting: VecDeque<(Seq, String)>,
    open: Option<OpenMessage>,
    /// Messages that arrived while calls were open; they follow when the calls are closed.
    deferred: Vec<Block>,
    /// Call ids that are in use.
    used: HashSet<CallId>,
}

/// Assembles parts, oldest first, into blocks; inputs after `taken` are left out.
pub(super) fn assemble<'a>(parts: impl IntoIterator<Item = &'a Part>, taken: Seq) -> Vec<Block> {
    let mut assembler = Assembler::default();
    for part in parts {
        assembler.add(part);
    }
    assembler.take(taken);
    assembler.close();
    assembler.blocks
}

impl Assembler {
    fn add(&mut self, part: &Part) {
        match part {
            Part::Input { seq, text } => self.waiting.push_back((*seq, text.clone())),
            Part::Taken(taken) => self.take(taken.last()),
            Part::System(text) if is_blank(text) => {}
            Part::System(text) => self.emit(vec![ModelMessage::System(text.clone())]),
            Part::Agent { commit, text } => self.say(*commit, text),
            Part::Call { commit, call } => self.call(*commit, call),
            Part::Result(result) => self.result(&result.call, Some(result)),
            Part::Omitted(call) => self.result(call, None),
        }
    }

    fn emit(&mut self, block: Block) {
        let is_open = self.open.as_ref().is_some_and(|open| !open.calls.is_empty());
        if is_open {
            self.deferred.push(block);
            return;
        }
        self.close();
        self.blocks.push(block);
    }

    fn take(&mut self, seq: Seq) {
        while let Some((_, text)) = self.waiting.pop_front_if(|(at, _)| *at <= seq) {
            // Blank inputs occur in older stores and in restored logs; a provider needs a text to answer.
            let text = if is_blank(&text) { "(no text)".to_owned() } else { text };
            self.emit(vec![ModelMessage::User(text)]);
        }
    }

    fn say(&mut self, commit: CommitId, text: &str) {
        if is_blank(text) {
            return;
        }
        if self.open.as_ref().is_some_and(|open| !open.calls.is_empty()) {
            self.deferred.push(vec![ModelMessage::agent(text)]);
            return;
        }
        self.close();
        self.open =
            Some(OpenMessage { commit, text: text.to_owned(), calls: Vec::new(), results: HashMap::new() });
    }

    fn call(&mut self, commit: CommitId, call: &ToolUse) {
        // A text of another commit is another message; calls that are open at the same time are one.
        let fits = self.open.as_ref().is_some_and(|open| !open.calls.is_empty() || open.commit == commit);
        if !fits {
            self.close();
        }
        let open = self.open.get_or_insert_with(|| OpenMessage {
            commit,
            text: String::new(),
            calls: Vec::new(),
            results: HashMap::new(),
        });
        if !open.calls.iter().any(|other| other.call == call.call) {
            open.calls.push(call.clone());
        }
    }

    fn result(&mut self, id: &CallId, result: Option<&ModelToolResult>) {
        // A result without its call is left out: the call was cut off, or is missing in the log.
        let Some(open) = &mut self.open else { return };
        if !open.calls.iter().any(|call| call.call == *id) {
            return;
        }
        open.results.entry(id.clone()).or_insert_with(|| result.cloned());
        if open.results.len() == open.calls.len() {
            self.close();
        }
    }

    /// Ends the agent's message: calls without a result get one that says they were interrupted.
    fn close(&mut self) {
        if let Some(mut open) = self.open.take() {
            let (mut calls, mut results) = (Vec::new(), Vec::new());
            for mut call in open.calls {
                let result = open.results.remove(&call.call).unwrap_or_else(|| {
                    let output = "interrupted, outcome unknown".to_owned();
                    Some(ModelToolResult {
                        call: call.call.clone(),
                        outcome: ToolOutcome::Interrupted,
                        output,
                    })
                });
                let Some(mut result) = result.filter(|_| !call.omitted) else { continue };
                call.call = unique(&mut self.used, &call.call);
                result.call = call.call.clone();
                calls.push(call);
                results.push(result);
            }
            if !open.text.is_empty() || !calls.is_empty() {
                let mut block = vec![ModelMessage::Agent { text: open.text, calls }];
                if !results.is_empty() {
                    block.push(ModelMessage::ToolResults(results));
                }
                self.blocks.push(block);
            }
        }
        self.blocks.append(&mut self.deferred);
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
