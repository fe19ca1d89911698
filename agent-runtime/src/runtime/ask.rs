//! One model call of a run: sends the request and forwards the streamed answer.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep, timeout};
use tracing::{Instrument, info, warn};

use crate::context::ModelContext;
use crate::runtime::agent::Shared;
use crate::runtime::driver::Driver;
use crate::runtime::fault::{FaultKind, ProviderFault};
use crate::runtime::provider::{LlmProvider, ModelCall, ModelEvent, ModelRequest, ModelStream, StopReason};
use crate::runtime::report::Update;
use crate::runtime::request::fit;
use crate::runtime::room::{Full, Room};
use crate::runtime::stop::Stopped;
use crate::runtime::telemetry::{ChatEnd, Target, chat_span, record_chat};
use crate::secrets::Pieces;
use crate::secrets::Secrets;
use agent_core::isolated::{Isolated, called, isolated};
use agent_core::json::RawJson;
use agent_core::model::Usage;
use agent_core::{Error, Result};

/// Result of one model call.
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) thinking: String,
    pub(super) calls: Vec<ModelCall>,
    pub(super) end: AnswerEnd,
}

/// State of a model call while its answer streams.
struct Listening {
    answer: Answer,
    text: Pieces,
    thinking: Pieces,
    usage: Usage,
    /// Time of the request.
    asked: Instant,
    /// Time between the request and the first event of the answer.
    first: Option<Duration>,
    /// True until the answer begins, or the provider was silent for too long.
    may_retry: bool,
}

impl Listening {
    fn new() -> Self {
        Self {
            answer: Answer {
                text: String::new(),
                thinking: String::new(),
                calls: Vec::new(),
                end: AnswerEnd::Done(StopReason::EndTurn),
            },
            text: Pieces::default(),
            thinking: Pieces::default(),
            usage: Usage::default(),
            asked: Instant::now(),
            first: None,
            may_retry: true,
        }
    }

    /// Returns the text that was held back, once the answer is complete.
    fn rest(&mut self, secrets: &Secrets) -> impl Iterator<Item = (String, fn(String) -> Update)> {
        let thinking = (self.thinking.rest(secrets), Update::Thinking as fn(String) -> Update);
        let text = (self.text.rest(secrets), Update::Text as fn(String) -> Update);
        [thinking, text].into_iter().filter(|(rest, _)| !rest.is_empty())
    }

    /// Returns the end as the span of the call records it.
    fn end(&self) -> ChatEnd<'_> {
        let (finish, error) = match &self.answer.end {
            AnswerEnd::Done(StopReason::EndTurn) if !self.answer.calls.is_empty() => ("tool_call", None),
            AnswerEnd::Done(StopReason::EndTurn | StopReason::StopSequence) => ("stop", None),
            AnswerEnd::Done(StopReason::MaxTokens) | AnswerEnd::Full(_) => ("length", None),
            AnswerEnd::Done(StopReason::Refusal) => ("content_filter", None),
            AnswerEnd::Stopped(Stopped::Asked) => ("error", Some("cancelled")),
            AnswerEnd::Stopped(Stopped::Fenced(error)) => ("error", Some(error.kind().name())),
            AnswerEnd::Failed(error) => {
                let fault = ProviderFault::of(error).map(|fault| fault.kind.name());
                ("error", Some(fault.unwrap_or(error.kind().name())))
            }
        };
        ChatEnd { finish, usage: self.usage, first: self.first, error }
    }
}

pub(super) enum AnswerEnd {
    Done(StopReason),
    /// The answer reached a limit and was dropped there.
    Full(Full),
    Stopped(Stopped),
    Failed(Error),
}

/// Calls the model once, and forwards its answer while it streams.
pub(super) async fn ask(driver: &mut Driver, context: &ModelContext) -> Answer {
    let shared = driver.handle.runtime().shared.clone();
    let request = ModelRequest {
        system: context.system_or(driver.settings.system_prompt.as_deref()),
        messages: context.request(),
        tools: shared.tools.offered(&driver.settings.tool_policies),
        tool_choice: driver.settings.tool_choice.clone(),
        output_schema: driver.settings.output_schema.clone(),
        effort: driver.settings.effort,
        max_tokens: driver.settings.limits.max_tokens,
    };
    let settings = &driver.settings;
    let span = chat_span(&Target {
        session: driver.session.id,
        provider: &settings.provider,
        model: shared.model(&settings.provider).unwrap_or_default(),
        max_tokens: request.max_tokens,
        json: request.output_schema.is_some(),
    });
    let mut heard = Listening::new();
    let ended = listen(driver, &shared, request, &mut heard).instrument(span.clone()).await;
    heard.answer.end = ended.map_or_else(|end| end, AnswerEnd::Done);
    driver.usage = driver.usage.plus(heard.usage);
    record_chat(&span, &heard.end());
    show_rest(driver, &mut heard);
    heard.answer
}

/// Forwards the text that was held back; cuts from an incomplete answer what may be the beginning of a secret value.
fn show_rest(driver: &Driver, heard: &mut Listening) {
    let Some(secrets) = secrets(driver) else { return };
    if matches!(heard.answer.end, AnswerEnd::Done(stop) if stop != StopReason::MaxTokens) {
        for (rest, update) in heard.rest(&secrets) {
            driver.send(update(rest));
        }
        return;
    }
    // The output may end within a secret value, whose beginning alone is not recognized and not redacted.
    for said in [&mut heard.answer.text, &mut heard.answer.thinking] {
        said.truncate(secrets.told(said));
    }
}

/// Asks until the answer begins, or until a retry does not help.
async fn listen(
    driver: &mut Driver,
    shared: &Shared,
    request: ModelRequest,
    heard: &mut Listening,
) -> Result<StopReason, AnswerEnd> {
    let provider = driver.settings.provider(shared, &driver.session)?.clone();
    let capabilities = called(|| provider.capabilities())
        .ok_or_else(|| fault(driver, FaultKind::Other, "panicked in `capabilities`"))?;
    let request =
        fit(request, &capabilities).map_err(|what| fault(driver, FaultKind::InvalidRequest, what))?;
    let limit = driver.settings.limits.model_retries;
    let mut retries = 0;
    loop {
        let error = match ask_once(driver, &provider, request.clone(), heard).await {
            Err(AnswerEnd::Failed(error)) => error,
            ended => return ended,
        };
        let fault = match ProviderFault::of(&error) {
            Some(fault) if heard.may_retry && retries < limit && fault.kind.is_retryable() => fault.clone(),
            // A shorter context after `ContextTooLong`, or canonical messages after `ReplayRejected`, would be asked
            // with here; both are final for now.
            _ => return Err(AnswerEnd::Failed(error)),
        };
        pause(driver, fault, retries).await?;
        retries += 1;
    }
}

/// Waits before the next request, and tells the readers so.
async fn pause(driver: &mut Driver, fault: ProviderFault, retries: u32) -> Result<(), AnswerEnd> {
    let runtime = driver.handle.runtime();
    let after = fault.pause(runtime.effects(), retries);
    let (session, provider, kind) = (driver.session.id, &driver.settings.provider, fault.kind);
    info!(%session, provider, fault = %kind, ?after, "the model call failed; it is repeated");
    let text = runtime.redact(&fault.text).into_owned();
    driver.send(Update::Retrying { after, fault: ProviderFault { text, ..fault } });
    tokio::select! {
        biased;
        stopped = &mut driver.stop => Err(AnswerEnd::Stopped(stopped)),
        () = sleep(after) => Ok(()),
    }
}

/// Sends the request once, and reads the answer.
async fn ask_once(
    driver: &mut Driver,
    provider: &Arc<dyn LlmProvider>,
    request: ModelRequest,
    heard: &mut Listening,
) -> Result<StopReason, AnswerEnd> {
    let generate = isolated(|| provider.generate(request));
    let mut stream = Isolated::new(wait_for(driver, heard, generate).await??);
    let end = take(driver, &mut stream, heard).await;
    // Dropped here, so that the provider ends its request before anything else happens.
    match end {
        Ok(_) | Err(AnswerEnd::Full(_)) if !stream.end() => {
            Err(fault(driver, FaultKind::Other, "panicked when its answer was dropped"))
        }
        end => end,
    }
}

/// Reads the stream until it ends or a limit is reached.
async fn take(
    driver: &mut Driver,
    stream: &mut Isolated<ModelStream>,
    heard: &mut Listening,
) -> Result<StopReason, AnswerEnd> {
    let mut room = Room::of(&driver.settings.limits, driver.tool_calls);
    loop {
        let next = async { stream.next().await.map_or(Some(None), |it| it.map(Some)) };
        let event = match wait_for(driver, heard, next).await? {
            None => return Err(fault(driver, FaultKind::Network, "ended its answer without a stop reason")),
            Some(event) => event?,
        };
        heard.may_retry = false;
        heard.first.get_or_insert_with(|| heard.asked.elapsed());
        // A stream that is always ready must not starve other tasks.
        consume_budget().await;
        let fits = match event {
            ModelEvent::Text(mut piece) => {
                let fits = room.text(&mut piece);
                heard.answer.text.push_str(&piece);
                show(driver, &mut heard.text, piece, Update::Text);
                fits
            }
            ModelEvent::Thinking(mut piece) => {
                let fits = room.thinking(&mut piece);
                heard.answer.thinking.push_str(&piece);
                show(driver, &mut heard.thinking, piece, Update::Thinking);
                fits
            }
            // The event that holds the input adds one level.
            ModelEvent::ToolUse(call) if call.input.depth() >= RawJson::MAX_DEPTH => {
                let most = RawJson::MAX_DEPTH - 1;
                let what =
                    format!("called a tool with JSON of {} levels, more than {most}", call.input.depth());
                return Err(fault(driver, FaultKind::Other, &what));
            }
            ModelEvent::ToolUse(mut call) => {
                let waits = driver.waits(&call.name);
                let fits = room.call(&mut call, waits);
                if fits.is_ok() {
                    heard.answer.calls.push(call);
                }
                fits
            }
            ModelEvent::Usage(usage) => {
                heard.usage = usage;
                // Counts as a piece, so that a stream of nothing else ends.
                room.text(&mut String::new())
            }
            ModelEvent::Done { stop, usage } => {
                heard.usage = usage;
                return Ok(stop);
            }
        };
        if let Err(full) = fits {
            let (session, provider) = (driver.session.id, &driver.settings.provider);
            warn!(%session, provider, limit = %full, "the model's answer reached a limit and was cut there");
            return Err(AnswerEnd::Full(full));
        }
    }
}

/// Forwards a piece of the model's output, with the values of secrets redacted.
fn show(driver: &mut Driver, pieces: &mut Pieces, said: String, update: fn(String) -> Update) {
    let said = match secrets(driver) {
        Some(secrets) => pieces.push(&secrets, &said),
        None => said,
    };
    if !said.is_empty() {
        driver.send(update(said));
    }
}

fn secrets(driver: &Driver) -> Option<Secrets> {
    driver.handle.runtime().secrets.clone()
}

/// Waits for the provider, unless the run must end first. Returns an error if the provider panics or stays silent
/// longer than the configured limit.
async fn wait_for<T>(
    driver: &mut Driver,
    heard: &mut Listening,
    work: impl Future<Output = Option<T>>,
) -> Result<T, AnswerEnd> {
    let silence = driver.settings.limits.model_silence;
    tokio::select! {
        biased;
        stopped = &mut driver.stop => Err(AnswerEnd::Stopped(stopped)),
        done = timeout(silence, work) => match done {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(fault(driver, FaultKind::Other, "panicked")),
            Err(_) => {
                // The model may still be at work on the answer, and the limit is the host's own.
                heard.may_retry = false;
                Err(fault(driver, FaultKind::Timeout, &format!("was silent for {silence:?}")))
            }
        },
    }
}

/// Returns a fault that the run itself has found.
fn fault(driver: &Driver, kind: FaultKind, what: &str) -> AnswerEnd {
    let text = format!("provider {} {what}", driver.settings.provider);
    AnswerEnd::Failed(ProviderFault::new(kind, text).into())
}

impl From<Error> for AnswerEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
