//! One model call of a run: sends the request and forwards the streamed answer.

use std::time::Duration;

use futures::StreamExt;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout};
use tracing::{Instrument, warn};

use crate::context::ModelContext;
use crate::runtime::agent::Shared;
use crate::runtime::driver::Driver;
use crate::runtime::provider::{ModelCall, ModelEvent, ModelRequest, ModelStream, StopReason};
use crate::runtime::report::Update;
use crate::runtime::room::{Full, Room};
use crate::runtime::stop::Stopped;
use crate::runtime::telemetry::{ChatEnd, Target, chat_span, record_chat};
use crate::secrets::Pieces;
use crate::secrets::Secrets;
use agent_core::isolated::{Isolated, isolated};
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
            AnswerEnd::Stopped(Stopped::Fenced(error)) | AnswerEnd::Failed(error) => {
                ("error", Some(error.kind().name()))
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
        messages: context.messages(),
        tools: shared.tools.offered(&driver.settings.tool_policies),
        max_tokens: driver.settings.limits.max_tokens,
    };
    let settings = &driver.settings;
    let span = chat_span(&Target {
        session: driver.session.id,
        provider: &settings.provider,
        model: shared.model(&settings.provider).unwrap_or_default(),
        max_tokens: request.max_tokens,
    });
    let mut heard = Listening::new();
    let ended = listen(driver, &shared, request, &mut heard).instrument(span.clone()).await;
    heard.answer.end = ended.map_or_else(|end| end, AnswerEnd::Done);
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

async fn listen(
    driver: &mut Driver,
    shared: &Shared,
    request: ModelRequest,
    heard: &mut Listening,
) -> Result<StopReason, AnswerEnd> {
    let provider = driver.settings.provider(shared, &driver.session)?.clone();
    let generate = isolated(|| provider.generate(request));
    let mut stream = Isolated::new(wait_for(driver, generate).await??);
    let end = take(driver, &mut stream, heard).await;
    // Dropped here, so that the provider ends its request before anything else happens.
    match end {
        Ok(_) | Err(AnswerEnd::Full(_)) if !stream.end() => {
            Err(driver.failed_provider("panicked when its answer was dropped").into())
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
        let event = match wait_for(driver, next).await? {
            None => return Err(driver.failed_provider("ended its answer without a stop reason").into()),
            Some(event) => event?,
        };
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
                return Err(driver.failed_provider(&what).into());
            }
            ModelEvent::ToolUse(mut call) => {
                let waits = driver.waits(&call.name);
                let fits = room.call(&mut call, waits);
                if fits.is_ok() {
                    heard.answer.calls.push(call);
                }
                fits
            }
            ModelEvent::Done { stop, usage } => {
                driver.usage = driver.usage.plus(usage);
                heard.usage = heard.usage.plus(usage);
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
async fn wait_for<T>(driver: &mut Driver, work: impl Future<Output = Option<T>>) -> Result<T, AnswerEnd> {
    let silence = driver.settings.limits.model_silence;
    tokio::select! {
        biased;
        stopped = &mut driver.stop => Err(AnswerEnd::Stopped(stopped)),
        heard = timeout(silence, work) => match heard {
            Ok(Some(heard)) => Ok(heard),
            Ok(None) => Err(driver.failed_provider("panicked").into()),
            Err(_) => Err(driver.failed_provider(&format!("was silent for {silence:?}")).into()),
        },
    }
}

impl From<Error> for AnswerEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
