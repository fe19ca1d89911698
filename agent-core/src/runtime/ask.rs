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
use crate::secrets::{Pieces, Secrets};
use crate::transcript::ModelContext;

/// What one answer of the model came to.
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) thinking: String,
    pub(super) calls: Vec<ModelCall>,
    pub(super) end: AnswerEnd,
}

/// What of an answer was handed on so far.
#[derive(Default)]
struct Shown {
    text: Pieces,
    thinking: Pieces,
}

impl Shown {
    /// What was held back, when the answer is over.
    fn rest(&mut self, secrets: &Secrets) -> impl Iterator<Item = (String, fn(String) -> Update)> {
        let thinking = (self.thinking.rest(secrets), Update::Thinking as fn(String) -> Update);
        let text = (self.text.rest(secrets), Update::Text as fn(String) -> Update);
        [thinking, text].into_iter().filter(|(rest, _)| !rest.is_empty())
    }
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
            system: context.system_or(self.settings.system_prompt.as_deref()),
            messages: context.messages(),
            tools: shared.tools.offered(&self.settings.tool_policies),
            max_tokens: self.settings.limits.max_tokens,
        };
        let mut answer = Answer {
            text: String::new(),
            thinking: String::new(),
            calls: Vec::new(),
            end: AnswerEnd::Done(StopReason::EndTurn),
        };
        let mut shown = Shown::default();
        answer.end = match self.listen(&shared, request, &mut answer, &mut shown).await {
            Ok(stop) => AnswerEnd::Done(stop),
            Err(end) => end,
        };
        if let Some(secrets) = self.secrets() {
            for (rest, update) in shown.rest(&secrets) {
                self.send(update(rest));
            }
        }
        answer
    }

    async fn listen(
        &mut self,
        shared: &Shared,
        request: ModelRequest,
        answer: &mut Answer,
        shown: &mut Shown,
    ) -> Result<StopReason, AnswerEnd> {
        let provider = self.settings.provider(shared, &self.session)?.clone();
        let generate = async { provider.generate(request).await };
        let mut stream = self.heard(generate).await??;
        loop {
            match self.heard(stream.next()).await?.transpose()? {
                Some(ModelEvent::Text(text)) => {
                    answer.text.push_str(&text);
                    self.show(&mut shown.text, text, Update::Text);
                }
                Some(ModelEvent::Thinking(text)) => {
                    answer.thinking.push_str(&text);
                    self.show(&mut shown.thinking, text, Update::Thinking);
                }
                Some(ModelEvent::ToolUse(call)) => answer.calls.push(call),
                Some(ModelEvent::Done { stop, usage }) => {
                    self.usage = self.usage.plus(usage);
                    return Ok(stop);
                }
                None => return Err(self.failed_provider("ended its answer without saying why").into()),
            }
        }
    }

    /// Hands on what the model says, but for the values of secrets.
    fn show(&mut self, pieces: &mut Pieces, said: String, update: fn(String) -> Update) {
        let said = match self.secrets() {
            Some(secrets) => pieces.push(&secrets, &said),
            None => said,
        };
        if !said.is_empty() {
            self.send(update(said));
        }
    }

    fn secrets(&self) -> Option<Secrets> {
        self.handle.runtime().secrets.clone()
    }

    /// What the provider gives, unless the run has to end first, or the provider panics or is silent for too long.
    async fn heard<T>(&mut self, work: impl Future<Output = T>) -> Result<T, AnswerEnd> {
        let silence = self.settings.limits.model_silence;
        tokio::select! {
            biased;
            stopped = &mut self.stop => Err(AnswerEnd::Stopped(stopped)),
            heard = timeout(silence, AssertUnwindSafe(work).catch_unwind()) => match heard {
                Ok(Ok(heard)) => Ok(heard),
                Ok(Err(_)) => Err(self.failed_provider("panicked").into()),
                Err(_) => Err(self.failed_provider(&format!("was silent for {silence:?}")).into()),
            },
        }
    }

    fn failed_provider(&self, what: &str) -> Error {
        Error::new(ErrorKind::Provider, format!("provider {} {what}", self.settings.provider))
    }
}

impl From<Error> for AnswerEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
