//! One step of a run with the model: ask it, and hand on what it says as it says it.

use std::panic::AssertUnwindSafe;

use futures::{FutureExt, StreamExt};
use tokio::time::timeout;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Shared;
use crate::runtime::drive::Driver;
use crate::runtime::provider::{ModelCall, ModelEvent, ModelRequest, StopReason};
use crate::runtime::run::Update;
use crate::runtime::stop::Stopped;
use crate::transcript::ModelContext;

/// What one answer of the model came to.
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) thinking: String,
    pub(super) calls: Vec<ModelCall>,
    pub(super) end: AnswerEnd,
}

pub(super) enum AnswerEnd {
    Done(StopReason),
    Stopped(Stopped),
    Failed(Error),
}

impl Driver {
    /// Asks the model once, and hands on what it says as it says it.
    pub(super) async fn ask(&mut self, context: &ModelContext) -> Answer {
        let shared = self.handle.runtime().shared.clone();
        let request = ModelRequest {
            system: context.system_or(shared.config.system_prompt.as_deref()),
            messages: context.messages(),
            tools: shared.tools.offered(),
            max_tokens: shared.config.limits.max_tokens,
        };
        let mut answer = Answer {
            text: String::new(),
            thinking: String::new(),
            calls: Vec::new(),
            end: AnswerEnd::Done(StopReason::EndTurn),
        };
        answer.end = match self.listen(&shared, request, &mut answer).await {
            Ok(stop) => AnswerEnd::Done(stop),
            Err(end) => end,
        };
        answer
    }

    async fn listen(
        &mut self,
        shared: &Shared,
        request: ModelRequest,
        answer: &mut Answer,
    ) -> Result<StopReason, AnswerEnd> {
        let generate = async { shared.provider().generate(request).await };
        let mut stream = self.heard(shared, generate).await??;
        loop {
            match self.heard(shared, stream.next()).await?.transpose()? {
                Some(ModelEvent::Text(text)) => {
                    answer.text.push_str(&text);
                    self.send(Update::Text(text));
                }
                Some(ModelEvent::Thinking(text)) => {
                    answer.thinking.push_str(&text);
                    self.send(Update::Thinking(text));
                }
                Some(ModelEvent::ToolUse(call)) => answer.calls.push(call),
                Some(ModelEvent::Done { stop, usage }) => {
                    self.usage = self.usage.plus(usage);
                    return Ok(stop);
                }
                None => return Err(failed_provider(shared, "ended its answer without saying why").into()),
            }
        }
    }

    /// What the provider gives, unless the run has to end first, or the provider panics or is silent for too long.
    async fn heard<T>(&mut self, shared: &Shared, work: impl Future<Output = T>) -> Result<T, AnswerEnd> {
        let silence = shared.config.limits.model_silence;
        tokio::select! {
            biased;
            stopped = &mut self.stop => Err(AnswerEnd::Stopped(stopped)),
            heard = timeout(silence, AssertUnwindSafe(work).catch_unwind()) => match heard {
                Ok(Ok(heard)) => Ok(heard),
                Ok(Err(_)) => Err(failed_provider(shared, "panicked").into()),
                Err(_) => Err(failed_provider(shared, &format!("was silent for {silence:?}")).into()),
            },
        }
    }
}

impl From<Error> for AnswerEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

fn failed_provider(shared: &Shared, what: &str) -> Error {
    Error::new(ErrorKind::Provider, format!("provider {} {what}", shared.provider().name()))
}
