//! Providers that need no network: for the first run without a key, and for tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use tokio::sync::watch;

use crate::context::ModelMessage;
use crate::runtime::provider::{LlmProvider, ModelCall, ModelEvent, ModelRequest, ModelStream, StopReason};
use agent_core::json::RawJson;
use agent_core::model::Usage;
use agent_core::{Error, ErrorKind, Result};

/// Repeats what the person said last, word by word.
#[derive(Clone, Debug, Default)]
pub struct EchoProvider {
    delay: Duration,
}

impl EchoProvider {
    /// The most pieces that one answer comes in.
    const PIECES_MAX: usize = 1000;

    /// Answers at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits so long before each word.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

#[async_trait]
impl LlmProvider for EchoProvider {
    fn name(&self) -> &str {
        "echo"
    }

    fn model(&self) -> &str {
        "echo"
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        let said = request.messages.iter().rev().find_map(|message| match message {
            ModelMessage::User(text) => Some(text.as_str()),
            _ => None,
        });
        let events = words(said.unwrap_or_default(), Self::PIECES_MAX)
            .into_iter()
            .map(ModelEvent::Text)
            .chain([ModelEvent::done(StopReason::EndTurn, Usage::default())]);
        let delay = self.delay;
        let events: Vec<_> = events.collect();
        Ok(stream::iter(events)
            .then(move |event| async move {
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
                Ok(event)
            })
            .boxed())
    }
}

/// The text in pieces, each a word with the white space behind it, or several in a long text.
fn words(text: &str, most: usize) -> Vec<String> {
    let least = text.len() / most;
    let mut pieces = Vec::new();
    let mut piece = String::new();
    for word in text.split_inclusive(char::is_whitespace) {
        piece.push_str(word);
        if piece.len() > least {
            pieces.push(std::mem::take(&mut piece));
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// Says what it was told to say, turn by turn, and remembers what it was asked.
///
/// ```
/// use agent_runtime::{ScriptedProvider, Turn};
///
/// let model = ScriptedProvider::new([Turn::new().text("Hello"), Turn::new().text("Good bye")]);
/// assert_eq!(model.requests().len(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct ScriptedProvider {
    name: String,
    turns: Arc<Mutex<VecDeque<Turn>>>,
    requests: Arc<Mutex<Vec<ModelRequest>>>,
}

impl ScriptedProvider {
    /// Says these turns, one for each request.
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self {
            name: "scripted".to_owned(),
            turns: Arc::new(Mutex::new(turns.into_iter().collect())),
            requests: Arc::default(),
        }
    }

    /// Sets the name of the provider and the model.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a turn at the end.
    pub fn push(&self, turn: Turn) {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).push_back(turn);
    }

    /// What it was asked so far.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl LlmProvider for ScriptedProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn model(&self) -> &str {
        &self.name
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        let turn = self.turns.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let turn = turn.ok_or_else(|| {
            Error::new(ErrorKind::Provider, format!("the script of provider {} is at its end", self.name))
        })?;
        Ok(stream::iter(turn.acts).filter_map(Act::play).boxed())
    }
}

/// What a [`ScriptedProvider`] does when it is asked once.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    acts: Vec<Act>,
}

#[derive(Clone, Debug)]
enum Act {
    Say(ModelEvent),
    Wait(Duration),
    Gate(Gate),
    Fail(String),
    Panic,
}

impl Act {
    async fn play(self) -> Option<Result<ModelEvent>> {
        match self {
            Self::Say(event) => Some(Ok(event)),
            Self::Wait(time) => {
                tokio::time::sleep(time).await;
                None
            }
            Self::Gate(gate) => {
                gate.passed().await;
                None
            }
            Self::Fail(text) => Some(Err(Error::new(ErrorKind::Provider, text))),
            #[allow(clippy::panic, reason = "asked for, to show that a panicking provider is survived")]
            Self::Panic => panic!("the script asks for a panic"),
        }
    }
}

impl Turn {
    /// Says nothing, and does not even end; see [`Turn::done`].
    pub fn silent() -> Self {
        Self::default()
    }

    /// Says nothing, and ends.
    pub fn new() -> Self {
        Self::silent().done(StopReason::EndTurn)
    }

    /// Says this before it ends.
    #[must_use]
    pub fn event(mut self, event: ModelEvent) -> Self {
        self.add(Act::Say(event));
        self
    }

    /// Says this text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.event(ModelEvent::Text(text.into()))
    }

    /// Calls a tool.
    #[must_use]
    pub fn call(self, id: &str, name: &str, input: RawJson) -> Self {
        self.event(ModelEvent::ToolUse(ModelCall::new(id, name, input)))
    }

    /// Ends for this reason.
    #[must_use]
    pub fn done(mut self, stop: StopReason) -> Self {
        self.acts.retain(|act| !matches!(act, Act::Say(ModelEvent::Done { .. })));
        self.acts.push(Act::Say(ModelEvent::done(stop, Usage::new(1, 1))));
        self
    }

    /// Waits.
    #[must_use]
    pub fn wait(mut self, time: Duration) -> Self {
        self.add(Act::Wait(time));
        self
    }

    /// Waits until the gate is opened.
    #[must_use]
    pub fn gate(mut self, gate: &Gate) -> Self {
        self.add(Act::Gate(gate.clone()));
        self
    }

    /// Fails with this text.
    #[must_use]
    pub fn fail(mut self, text: impl Into<String>) -> Self {
        self.add(Act::Fail(text.into()));
        self
    }

    /// Panics.
    #[must_use]
    pub fn panic(mut self) -> Self {
        self.add(Act::Panic);
        self
    }

    /// Adds an act before the end, where there is an end.
    fn add(&mut self, act: Act) {
        let end = self.acts.iter().position(|act| matches!(act, Act::Say(ModelEvent::Done { .. })));
        self.acts.insert(end.unwrap_or(self.acts.len()), act);
    }
}

/// Holds up a [`Turn`] until it is opened. Clones are one gate.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<bool>);

impl Default for Gate {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens it, for good.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    async fn passed(&self) {
        // The sender lives as long as this, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}
