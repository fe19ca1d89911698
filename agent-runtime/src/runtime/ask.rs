//! One model call of a run: sends the request and forwards the streamed answer.

use futures::StreamExt;
use tokio::task::coop::consume_budget;
use tokio::time::timeout;
use tracing::warn;

use crate::context::ModelContext;
use crate::runtime::agent::Shared;
use crate::runtime::driver::Driver;
use crate::runtime::provider::{ModelCall, ModelEvent, ModelRequest, ModelStream, StopReason};
use crate::runtime::report::Update;
use crate::runtime::room::{Full, Room};
use crate::runtime::stop::Stopped;
use crate::secrets::Pieces;
use crate::secrets::Secrets;
use agent_core::isolated::{Isolated, isolated};
use agent_core::json::RawJson;
use agent_core::{Error, Result};

/// Result of one model call.
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) thinking: String,
    pub(super) calls: Vec<ModelCall>,
    pub(super) end: AnswerEnd,
}

/// Streamed parts of an answer that were forwarded so far.
#[derive(Default)]
struct Shown {
    text: Pieces,
    thinking: Pieces,
}

impl Shown {
    /// Returns the text that was held back, once the answer is complete.
    fn rest(&mut self, secrets: &Secrets) -> impl Iterator<Item = (String, fn(String) -> Update)> {
        let thinking = (self.thinking.rest(secrets), Update::Thinking as fn(String) -> Update);
        let text = (self.text.rest(secrets), Update::Text as fn(String) -> Update);
        [thinking, text].into_iter().filter(|(rest, _)| !rest.is_empty())
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
    let mut answer = Answer {
        text: String::new(),
        thinking: String::new(),
        calls: Vec::new(),
        end: AnswerEnd::Done(StopReason::EndTurn),
    };
    let mut shown = Shown::default();
    answer.end = match listen(driver, &shared, request, &mut answer, &mut shown).await {
        Ok(stop) => AnswerEnd::Done(stop),
        Err(end) => end,
    };
    let is_whole = matches!(answer.end, AnswerEnd::Done(stop) if stop != StopReason::MaxTokens);
    match secrets(driver) {
        Some(secrets) if is_whole => {
            for (rest, update) in shown.rest(&secrets) {
                driver.send(update(rest));
            }
        }
        // The output may end within a secret value, whose beginning alone is not recognized and not redacted.
        Some(secrets) => {
            for said in [&mut answer.text, &mut answer.thinking] {
                said.truncate(secrets.told(said));
            }
        }
        None => {}
    }
    answer
}

async fn listen(
    driver: &mut Driver,
    shared: &Shared,
    request: ModelRequest,
    answer: &mut Answer,
    shown: &mut Shown,
) -> Result<StopReason, AnswerEnd> {
    let provider = driver.settings.provider(shared, &driver.session)?.clone();
    let generate = isolated(|| provider.generate(request));
    let mut stream = Isolated::new(heard(driver, generate).await??);
    let end = take(driver, &mut stream, answer, shown).await;
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
    answer: &mut Answer,
    shown: &mut Shown,
) -> Result<StopReason, AnswerEnd> {
    let mut room = Room::of(&driver.settings.limits, driver.tool_calls);
    loop {
        let heard =
            match heard(driver, async { stream.next().await.map_or(Some(None), |it| it.map(Some)) }).await? {
                None => return Err(driver.failed_provider("ended its answer without a stop reason").into()),
                Some(heard) => heard?,
            };
        // A stream that is always ready must not starve other tasks.
        consume_budget().await;
        let fits = match heard {
            ModelEvent::Text(mut piece) => {
                let fits = room.text(&mut piece);
                answer.text.push_str(&piece);
                show(driver, &mut shown.text, piece, Update::Text);
                fits
            }
            ModelEvent::Thinking(mut piece) => {
                let fits = room.thinking(&mut piece);
                answer.thinking.push_str(&piece);
                show(driver, &mut shown.thinking, piece, Update::Thinking);
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
                    answer.calls.push(call);
                }
                fits
            }
            ModelEvent::Done { stop, usage } => {
                driver.usage = driver.usage.plus(usage);
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
async fn heard<T>(driver: &mut Driver, work: impl Future<Output = Option<T>>) -> Result<T, AnswerEnd> {
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
