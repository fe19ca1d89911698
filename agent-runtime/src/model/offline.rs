//! Providers that need no network, for a first run without an API key and for tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::context::ModelMessage;
use crate::model::event::{ModelCall, ModelEvent, ModelPart, PartKind, StopReason};
use crate::model::fault::{FaultKind, ProviderFault};
use crate::model::options::ModelCapabilities;
use crate::model::provider::{LlmProvider, ModelRequest, ModelStream};
use crate::model::signed::{self, Unsigned};
use agent_core::event::ModelOrigin;
use agent_core::json::RawJson;
use agent_core::model::Usage;
use agent_core::setters;
use agent_core::{Error, ErrorKind, Result};

/// Provider that repeats the last message of the user, word by word. Its name and its model are `echo`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::time::Duration;
/// use agent_core::MemoryStore;
/// use agent_runtime::{AgentBuilder, EchoProvider};
///
/// let model = EchoProvider::new().with_delay(Duration::from_millis(1));
/// let agent = AgentBuilder::new().with_llm(model).with_storage(MemoryStore::new()).build()?;
/// let chat = agent.conversation("test").await?;
/// assert_eq!(chat.prompt("Hello, world").await?.finish().await?.text, "Hello, world");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct EchoProvider {
    delay: Duration,
}

impl EchoProvider {
    /// Maximum number of pieces in one answer.
    const PIECES_MAX: usize = 1000;

    /// Creates a provider that answers without delay.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the delay before each piece of the answer and before its end; the default is none.
    ///
    /// A piece is one word with the white space after it; an answer has at most about 1,000 pieces.
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
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
            ModelMessage::User(content) => Some(content.text()),
            _ => None,
        });
        let events = words(&said.unwrap_or_default(), Self::PIECES_MAX)
            .into_iter()
            .map(ModelEvent::text)
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

/// Splits the text into pieces of one word with the white space after it; of several words if the text is long.
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

/// Provider that returns scripted turns, one per request, and records the requests. Clones share both.
///
/// A request after the last turn fails with an error of the kind `Provider`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::MemoryStore;
/// use agent_runtime::{AgentBuilder, ScriptedProvider, Turn};
///
/// let model = ScriptedProvider::new([Turn::new().text("Hello")]).with_name("test-model");
/// let agent = AgentBuilder::new().with_llm(model.clone()).with_storage(MemoryStore::new()).build()?;
/// let chat = agent.conversation("test").await?;
/// assert_eq!(chat.prompt("Hi").await?.finish().await?.text, "Hello");
///
/// model.push(Turn::new().text("Good bye"));
/// assert_eq!(chat.prompt("Bye").await?.finish().await?.text, "Good bye");
/// let sizes: Vec<_> = model.requests().iter().map(|request| request.messages.len()).collect();
/// assert_eq!(sizes, [1, 3]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ScriptedProvider {
    name: String,
    capabilities: ModelCapabilities,
    account: Option<String>,
    turns: Arc<Mutex<VecDeque<Turn>>>,
    requests: Arc<Mutex<Vec<ModelRequest>>>,
}

impl ScriptedProvider {
    /// Creates a provider that returns these turns, one for each request.
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self {
            name: "scripted".to_owned(),
            capabilities: ModelCapabilities::all(),
            account: None,
            turns: Arc::new(Mutex::new(turns.into_iter().collect())),
            requests: Arc::default(),
        }
    }

    setters! {
        /// Sets the name of the provider and of its model; the default is `scripted`.
        #[doc(alias = "named")]
        pub fn with_name(name: impl Into<String>) => name = name.into();

        /// Sets what the model takes; the default is [everything](ModelCapabilities::all).
        pub fn with_capabilities(capabilities: ModelCapabilities) => capabilities = capabilities;

        /// Sets the account, so that the provider names its origin and checks the signatures in its requests; the default is
        /// none.
        ///
        /// A request in which a [signed](Turn::signed_thinking) item is changed, or stands behind something else than it was
        /// made behind, or in which an earlier one is missing, fails with a fault of the kind
        /// [`ReplayRejected`](crate::FaultKind::ReplayRejected), and takes no turn of the script.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
        /// # use agent_core::MemoryStore;
        /// use agent_runtime::context::ModelMessage;
        /// use agent_runtime::{AgentBuilder, ScriptedProvider, Turn};
        ///
        /// let turns = [Turn::new().signed_thinking("They greet me.").text("Hello"), Turn::new().text("Good bye")];
        /// let model = ScriptedProvider::new(turns).with_account("team-a");
        /// # let agent = AgentBuilder::new().with_llm(model.clone()).with_storage(MemoryStore::new()).build()?;
        /// # let chat = agent.conversation("test").await?;
        /// chat.prompt("Hi").await?.finish().await?;
        /// chat.prompt("Bye").await?.finish().await?;
        /// // The second request gives the reasoning back as it came.
        /// let ModelMessage::Agent(said) = &model.requests()[1].messages[1] else { panic!("the agent answered") };
        /// assert!(said.items[0].native.is_some());
        /// # Ok(()) }
        /// ```
        pub fn with_account(account: impl Into<String>) => account = Some(account.into());
    }

    /// Adds a turn at the end.
    pub fn push(&self, turn: Turn) {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).push_back(turn);
    }

    /// Returns copies of the requests that the provider and its clones received so far.
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

    fn capabilities(&self) -> ModelCapabilities {
        self.capabilities.clone()
    }

    fn origin(&self) -> Option<ModelOrigin> {
        let account = self.account.as_ref()?;
        Some(ModelOrigin::new(signed::API, "scripted", &self.name).with_account(account))
    }

    async fn generate(&self, request: ModelRequest) -> Result<ModelStream> {
        let sent = self.origin().map_or(Ok(Sha256::new()), |origin| signed::verify(&origin, &request));
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        let sent = sent.map_err(|what| ProviderFault::new(FaultKind::ReplayRejected, what))?;
        let turn = self.turns.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let turn = turn.ok_or_else(|| {
            Error::new(
                ErrorKind::Provider,
                format!("the script of provider {} has no more turns; add one with `push`", self.name),
            )
        })?;
        if let Some(error) = turn.refusal {
            return Err(error);
        }
        Ok(stream::iter(turn.signed(&sent)).filter_map(TurnStep::play).boxed())
    }
}

/// Script of a [`ScriptedProvider`] for one request: text, tool calls, pauses and failures, in order.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # use std::time::Duration;
/// # use agent_core::MemoryStore;
/// use agent_core::json::RawJson;
/// use agent_runtime::{AgentBuilder, ModelEvent, RunError, ScriptedProvider, StopReason, Turn};
///
/// let model = ScriptedProvider::new([
///     Turn::new().text("I look it up.").call("1", "search", RawJson::parse("{}")?),
///     Turn::new().event(ModelEvent::thinking("Found.")).text("It is ").wait(Duration::ZERO).text("42."),
///     Turn::new().text("It is 4").done(StopReason::MaxTokens),
///     Turn::new().text("It is ").fail("overloaded"),
/// ]);
/// let agent = AgentBuilder::new().with_llm(model).with_storage(MemoryStore::new()).build()?;
/// let chat = agent.conversation("test").await?;
///
/// assert_eq!(chat.prompt("What is it?").await?.finish().await?.text, "It is 42.");
/// assert_eq!(chat.prompt("Again?").await?.finish().await?.text, "It is 4");
/// let Err(RunError::Failed(report)) = chat.prompt("Again?").await?.finish().await else {
///     panic!("the model failed")
/// };
/// assert_eq!(report.text, "It is ");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Error in place of an answer.
    refusal: Option<Error>,
    steps: Vec<TurnStep>,
}

#[derive(Clone, Debug)]
enum TurnStep {
    Say(ModelEvent),
    /// Whole part, with the next number.
    Part(ModelPart),
    /// Part that the provider signs when it is asked.
    Sign(Unsigned),
    Wait(Duration),
    Gate(Gate),
    Fail(Error),
    Panic,
}

impl TurnStep {
    async fn play(self) -> Option<Result<ModelEvent>> {
        match self {
            Self::Say(event) => Some(Ok(event)),
            // `Turn::signed` has replaced them.
            Self::Part(_) | Self::Sign(_) => None,
            Self::Wait(time) => {
                tokio::time::sleep(time).await;
                None
            }
            Self::Gate(gate) => {
                gate.passed().await;
                None
            }
            Self::Fail(error) => Some(Err(error)),
            #[allow(
                clippy::panic,
                reason = "a test scripts it, to show that a run survives a panicking provider"
            )]
            Self::Panic => panic!("the script contains a panic"),
        }
    }
}

impl Turn {
    /// Creates a turn that emits nothing and ends without [`ModelEvent::Done`], which a run treats as a lost connection:
    /// a fault of the kind [`Network`](crate::FaultKind::Network).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_runtime::{RunError, ScriptedProvider, Turn};
    ///
    /// let model = ScriptedProvider::new([Turn::silent().text("It is ")]);
    /// # let (agent, chat) = scripted(model).await?;
    /// let error = chat.prompt("What is it?").await?.finish().await.unwrap_err();
    /// assert!(matches!(error, RunError::Failed(report) if report.text == "It is "));
    /// # Ok(()) }
    /// ```
    pub fn silent() -> Self {
        Self::default()
    }

    /// Creates a turn that fails with this fault before it emits anything: [`LlmProvider::generate`] returns the error.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_runtime::{FaultKind, ProviderFault, ScriptedProvider, Turn};
    /// use std::time::Duration;
    ///
    /// let busy = ProviderFault::new(FaultKind::Overloaded, "too many users").with_retry_after(Duration::ZERO);
    /// let model = ScriptedProvider::new([Turn::fault(busy), Turn::new().text("Hello")]);
    /// # let (agent, chat) = scripted(model.clone()).await?;
    /// assert_eq!(chat.prompt("Hi").await?.finish().await?.text, "Hello");
    /// // The run has sent the same request twice.
    /// let requests = model.requests();
    /// assert_eq!(requests[0], requests[1]);
    /// # Ok(()) }
    /// ```
    pub fn fault(fault: ProviderFault) -> Self {
        Self { refusal: Some(fault.into()), steps: Vec::new() }
    }

    /// Creates a turn that emits nothing and ends with [`StopReason::EndTurn`].
    pub fn new() -> Self {
        Self::silent().done(StopReason::EndTurn)
    }

    /// Adds an event before the end.
    #[must_use]
    pub fn event(mut self, event: ModelEvent) -> Self {
        self.add(TurnStep::Say(event));
        self
    }

    /// Adds a piece of text. A run joins the pieces of one turn.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.event(ModelEvent::text(text))
    }

    /// Adds a call of the tool `name`.
    #[must_use]
    pub fn call(self, id: &str, name: &str, input: RawJson) -> Self {
        self.event(ModelEvent::call(id, name, input))
    }

    /// Adds a whole part with the next number: a text with citations, a refusal, an image, a search of the provider's own.
    #[must_use]
    pub fn part(mut self, part: ModelPart) -> Self {
        self.add(TurnStep::Part(part));
        self
    }

    /// Adds reasoning with a signature over the model, the account, the system prompt, the tools and the messages before
    /// it; see [`ScriptedProvider::with_account`].
    #[must_use]
    pub fn signed_thinking(mut self, text: impl Into<String>) -> Self {
        self.add(TurnStep::Sign(Unsigned::Thinking(text.into())));
        self
    }

    /// Adds a call with a signature, like [`signed_thinking`](Self::signed_thinking).
    #[must_use]
    pub fn signed_call(mut self, id: &str, name: &str, input: RawJson) -> Self {
        self.add(TurnStep::Sign(Unsigned::Call(ModelCall::new(id, name, input))));
        self
    }

    /// Sets the reason for which the turn ends; the default is [`StopReason::EndTurn`]. The usage of a turn is one
    /// token in and one token out.
    #[must_use]
    pub fn done(mut self, stop: StopReason) -> Self {
        self.steps.retain(|act| !matches!(act, TurnStep::Say(ModelEvent::Done { .. })));
        self.steps.push(TurnStep::Say(ModelEvent::done(stop, Usage::new(1, 1))));
        self
    }

    /// Adds a pause in the time of tokio, which a test can pause and advance.
    #[must_use]
    pub fn wait(mut self, time: Duration) -> Self {
        self.add(TurnStep::Wait(time));
        self
    }

    /// Adds a wait until the [gate](Gate) is opened.
    #[must_use]
    pub fn gate(mut self, gate: &Gate) -> Self {
        self.add(TurnStep::Gate(gate.clone()));
        self
    }

    /// Adds an error of the kind `Provider` with this text and no fault, which ends the turn.
    #[must_use]
    pub fn fail(mut self, text: impl Into<String>) -> Self {
        self.add(TurnStep::Fail(Error::new(ErrorKind::Provider, text)));
        self
    }

    /// Adds a fault of the provider, which ends the turn and its stream.
    #[must_use]
    pub fn cut(mut self, fault: ProviderFault) -> Self {
        self.add(TurnStep::Fail(fault.into()));
        self
    }

    /// Adds a panic of the provider. The run then fails; the process continues.
    #[must_use]
    pub fn panic(mut self) -> Self {
        self.add(TurnStep::Panic);
        self
    }

    /// Returns the steps, with numbers and signatures behind what was sent.
    fn signed(self, sent: &Sha256) -> Vec<TurnStep> {
        let (mut index, mut n, mut grows) = (0, 0, None);
        let mut steps = Vec::with_capacity(self.steps.len());
        for step in self.steps {
            let short = match &step {
                TurnStep::Say(ModelEvent::Text(_)) => Some(PartKind::Text),
                TurnStep::Say(ModelEvent::Thinking(_)) => Some(PartKind::Reasoning),
                TurnStep::Part(_) | TurnStep::Sign(_) | TurnStep::Say(ModelEvent::ToolUse(_)) => None,
                TurnStep::Say(ModelEvent::PartStarted { index: given, .. }) => {
                    (index, grows) = (given + 1, None);
                    steps.push(step);
                    continue;
                }
                _ => {
                    steps.push(step);
                    continue;
                }
            };
            let at = index;
            index += u32::from(short.is_none() || short != grows);
            grows = short;
            match step {
                TurnStep::Part(part) => steps.push(TurnStep::Say(ModelEvent::part_done(at, part))),
                TurnStep::Sign(item) => {
                    steps.extend(item.events(sent, at, n).into_iter().map(TurnStep::Say));
                    n += 1;
                }
                step => steps.push(step),
            }
        }
        steps
    }

    /// Adds an act before the end, if there is an end.
    fn add(&mut self, act: TurnStep) {
        let end = self.steps.iter().position(|act| matches!(act, TurnStep::Say(ModelEvent::Done { .. })));
        self.steps.insert(end.unwrap_or(self.steps.len()), act);
    }
}

/// Gate that blocks a [`Turn`] until it is opened. All clones share one gate.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # use agent_core::MemoryStore;
/// use agent_runtime::{AgentBuilder, Gate, ScriptedProvider, Turn};
///
/// let gate = Gate::new();
/// let model = ScriptedProvider::new([Turn::new().text("One ").gate(&gate).text("two")]);
/// let agent = AgentBuilder::new().with_llm(model).with_storage(MemoryStore::new()).build()?;
/// let chat = agent.conversation("test").await?;
///
/// // While the gate is closed, the run is active.
/// let run = chat.prompt("Count").await?;
/// assert!(agent.attach(chat.id()).is_some());
/// gate.open();
/// assert_eq!(run.finish().await?.text, "One two");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<bool>);

impl Default for Gate {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the gate permanently.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    async fn passed(&self) {
        // The sender lives as long as this, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}
