//! One step of a run with the model: ask it, and hand on what it says as it says it.

use std::panic::AssertUnwindSafe;

use futures::{FutureExt, StreamExt};

use crate::error::{Error, ErrorKind};
use crate::runtime::Shared;
use crate::runtime::drive::Driver;
use crate::runtime::provider::{ModelCall, ModelEvent, ModelRequest, StopReason};
use crate::runtime::run::Update;
use crate::runtime::stop::Stopped;
use crate::runtime::tools::isolated;
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
            tools: shared.tools.specs().to_vec(),
            max_tokens: shared.config.limits.max_tokens,
        };
        let mut answer = Answer {
            text: String::new(),
            thinking: String::new(),
            calls: Vec::new(),
            end: AnswerEnd::Failed(failed_provider(&shared, "ended its answer without saying why")),
        };
        let generate = isolated(async { shared.provider().generate(request).await });
        let stream = tokio::select! {
            biased;
            stopped = &mut self.stop => {
                answer.end = AnswerEnd::Stopped(stopped);
                return answer;
            }
            stream = generate => stream,
        };
        let mut stream = match stream {
            Some(Ok(stream)) => stream,
            Some(Err(error)) => {
                answer.end = AnswerEnd::Failed(error);
                return answer;
            }
            None => {
                answer.end = AnswerEnd::Failed(failed_provider(&shared, "panicked"));
                return answer;
            }
        };
        loop {
            let next = AssertUnwindSafe(stream.next()).catch_unwind();
            let event = tokio::select! {
                biased;
                stopped = &mut self.stop => {
                    answer.end = AnswerEnd::Stopped(stopped);
                    return answer;
                }
                event = next => event,
            };
            match event {
                Ok(Some(Ok(ModelEvent::Text(text)))) => {
                    answer.text.push_str(&text);
                    self.send(Update::Text(text));
                }
                Ok(Some(Ok(ModelEvent::Thinking(text)))) => {
                    answer.thinking.push_str(&text);
                    self.send(Update::Thinking(text));
                }
                Ok(Some(Ok(ModelEvent::ToolUse(call)))) => answer.calls.push(call),
                Ok(Some(Ok(ModelEvent::Done { stop, usage }))) => {
                    self.usage = self.usage.plus(usage);
                    answer.end = AnswerEnd::Done(stop);
                    return answer;
                }
                Ok(Some(Err(error))) => {
                    answer.end = AnswerEnd::Failed(error);
                    return answer;
                }
                Ok(None) => return answer,
                Err(_) => {
                    answer.end = AnswerEnd::Failed(failed_provider(&shared, "panicked"));
                    return answer;
                }
            }
        }
    }
}

fn failed_provider(shared: &Shared, what: &str) -> Error {
    Error::new(ErrorKind::Provider, format!("provider {} {what}", shared.provider().name()))
}
