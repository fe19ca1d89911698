//! From events in the order of the log to messages that every provider accepts: each tool call has exactly one result
//! right behind its message, and an input stands where a run took it up.

use std::collections::{HashMap, HashSet, VecDeque};

use agent_core::event::{Body, ToolOutcome, ToolUse};
use agent_core::model::CallId;
use agent_core::{CommitId, Seq};

/// One message of a conversation, as a model is given it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelMessage {
    /// What stands for the older part of the conversation; the first message, where there is one. A provider is given
    /// it as what the user says.
    Summary(String),
    /// What a person said.
    User(String),
    /// Text that the system put in at this point.
    System(String),
    /// What the agent said, and the tools that it called; the results of the calls come next.
    #[non_exhaustive]
    Agent {
        /// Its text; may be empty where it called tools.
        text: String,
        /// Its calls.
        calls: Vec<ToolUse>,
    },
    /// The results of the calls of the message before, one for each, in the same order.
    ToolResults(Vec<ModelToolResult>),
}

impl ModelMessage {
    /// What the agent said.
    pub fn agent(text: impl Into<String>) -> Self {
        Self::Agent { text: text.into(), calls: Vec::new() }
    }

    /// About how many bytes it has.
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

/// What a tool call came to, as a model is given it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelToolResult {
    /// The call.
    pub call: CallId,
    /// How it came out.
    pub outcome: ToolOutcome,
    /// The output: a JSON text as its characters, anything else as JSON. Shortened where it is long.
    pub output: String,
}

/// What the assembly needs of an event.
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
    /// The inputs up to this were taken up, or are done with.
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

    /// The part that a payload is; long texts are shortened.
    pub(super) fn of(
        body: Body,
        seq: Seq,
        commit: CommitId,
        text_max: usize,
        output_max: usize,
    ) -> Option<Self> {
        Some(match body {
            Body::UserMessage(message) | Body::UserDefineOutcome(message) => {
                Self::Input { seq, text: shortened(message.text, text_max) }
            }
            Body::SystemMessage(message) if !message.custom => {
                Self::System(shortened(message.text, text_max))
            }
            Body::AgentMessage(message) => Self::Agent { commit, text: shortened(message.text, text_max) },
            Body::AgentToolUse(call) | Body::AgentCustomToolUse(call) => Self::Call { commit, call },
            Body::AgentToolResult(result) | Body::UserCustomToolResult(result) => {
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

/// The text, or its beginning and its end where it has more than `max` bytes; never cut inside a character.
pub(super) fn shortened(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let head = text.floor_char_boundary(max / 2);
    let tail = text.ceil_char_boundary(text.len() - max / 2);
    format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

/// Whether a text is none for a model: a provider refuses a message of white space only, and with it the request.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Messages that stay together or go together.
pub(super) type Block = Vec<ModelMessage>;

/// An agent's message whose calls wait for their results.
struct Open {
    commit: CommitId,
    text: String,
    calls: Vec<ToolUse>,
    results: HashMap<CallId, ModelToolResult>,
}

/// Puts parts, oldest first, together as blocks.
#[derive(Default)]
struct Assembler {
    blocks: Vec<Block>,
    /// Inputs that no run has taken up yet.
    waiting: VecDeque<(Seq, String)>,
    open: Option<Open>,
    /// What came while calls were open; it follows when they are closed.
    deferred: Vec<Block>,
    /// Ids that were used, and how often.
    used: HashSet<CallId>,
}

/// Puts parts, oldest first, together as blocks; inputs after `taken` are left out.
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
            // One of an older store, or that was restored: it was said, and there is something to answer.
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
        self.open = Some(Open { commit, text: text.to_owned(), calls: Vec::new(), results: HashMap::new() });
    }

    fn call(&mut self, commit: CommitId, call: &ToolUse) {
        // A text of another commit is another message; calls that are open at the same time are one.
        let fits = self.open.as_ref().is_some_and(|open| !open.calls.is_empty() || open.commit == commit);
        if !fits {
            self.close();
        }
        let open = self.open.get_or_insert_with(|| Open {
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
        // A result without its call is left out: the call was cut off, or never was.
        let Some(open) = &mut self.open else { return };
        if !open.calls.iter().any(|call| call.call == result.call) {
            return;
        }
        open.results.entry(result.call.clone()).or_insert_with(|| result.clone());
        if open.results.len() == open.calls.len() {
            self.close();
        }
    }

    /// Ends the agent's message: calls that have no result get one for the model.
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

/// The id, or one made of it where it was used before: providers want them unique in a conversation.
fn unique(used: &mut HashSet<CallId>, id: &CallId) -> CallId {
    let mut unique = id.clone();
    let mut n = 2;
    while !used.insert(unique.clone()) {
        // Providers take 40 letters, digits, hyphens and low lines.
        let end = id.as_str().floor_char_boundary(32);
        // A part of an id with a number behind it is an id.
        unique = format!("{}-{n}", &id.as_str()[..end]).parse().unwrap_or(unique);
        n += 1;
    }
    unique
}
