//! Converts events in log order to messages that every provider accepts. Each tool call has exactly one result directly
//! after its message, and an input is placed where a run claimed it.

use std::collections::{HashMap, HashSet, VecDeque};

use agent_core::event::{EventPayload, ToolOutcome, ToolUse};
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
    /// Output as text: the characters of a JSON string, any other value as JSON. Long outputs are shortened.
    pub output: String,
}

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
    /// Marks that the inputs up to this number were claimed, or are done.
    Taken(Seq),
}

impl Part {
    pub(super) fn size_bytes(&self) -> usize {
        match self {
            Self::Input { text, .. } | Self::System(text) | Self::Agent { text, .. } => text.len(),
            Self::Call { call, .. } => call_bytes(call),
            Self::Result(result) => result.output.len() + 32,
            Self::Taken(_) => 0,
        }
    }

    /// Returns the part for a payload, if there is one; long texts are shortened.
    pub(super) fn of(
        body: EventPayload,
        seq: Seq,
        commit: CommitId,
        text_max: usize,
        output_max: usize,
    ) -> Option<Self> {
        Some(match body {
            EventPayload::UserMessage(message) | EventPayload::UserDefineOutcome(message) => {
                Self::Input { seq, text: shortened(message.text, text_max) }
            }
            EventPayload::SystemMessage(message) if !message.custom => {
                Self::System(shortened(message.text, text_max))
            }
            EventPayload::AgentMessage(message) => {
                Self::Agent { commit, text: shortened(message.text, text_max) }
            }
            EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => {
                Self::Call { commit, call }
            }
            EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result) => {
                let text = result.output.to::<String>();
                let output = text.unwrap_or_else(|_| result.output.get().to_owned());
                Self::Result(ModelToolResult {
                    call: result.call,
                    outcome: result.outcome,
                    output: shortened(output, output_max),
                })
            }
            _ => return None,
        })
    }
}

/// Returns the text, or its beginning and its end if it has more than `max` bytes; never cut inside a character.
pub(super) fn shortened(text: String, max: usize) -> String {
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
    results: HashMap<CallId, ModelToolResult>,
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
            Part::Taken(seq) => self.take(*seq),
            Part::System(text) if is_blank(text) => {}
            Part::System(text) => self.emit(vec![ModelMessage::System(text.clone())]),
            Part::Agent { commit, text } => self.say(*commit, text),
            Part::Call { commit, call } => self.call(*commit, call),
            Part::Result(result) => self.result(result),
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

    fn result(&mut self, result: &ModelToolResult) {
        // A result without its call is left out: the call was cut off, or is missing in the log.
        let Some(open) = &mut self.open else { return };
        if !open.calls.iter().any(|call| call.call == result.call) {
            return;
        }
        open.results.entry(result.call.clone()).or_insert_with(|| result.clone());
        if open.results.len() == open.calls.len() {
            self.close();
        }
    }

    /// Ends the agent's message: calls without a result get one that says they were interrupted.
    fn close(&mut self) {
        if let Some(mut open) = self.open.take() {
            let mut results = Vec::with_capacity(open.calls.len());
            for call in &mut open.calls {
                let mut result = open.results.remove(&call.call).unwrap_or_else(|| ModelToolResult {
                    call: call.call.clone(),
                    outcome: ToolOutcome::Interrupted,
                    output: "interrupted, outcome unknown".to_owned(),
                });
                call.call = unique(&mut self.used, &call.call);
                result.call = call.call.clone();
                results.push(result);
            }
            let mut block = vec![ModelMessage::Agent { text: open.text, calls: open.calls }];
            if !results.is_empty() {
                block.push(ModelMessage::ToolResults(results));
            }
            self.blocks.push(block);
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
