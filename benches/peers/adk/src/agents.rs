//! Turns of agents in long conversations.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use adk_agent::LlmAgentBuilder;
use adk_core::{AdkError, Content, FinishReason, Llm, LlmRequest, LlmResponse, LlmResponseStream};
use adk_runner::Runner;
use adk_session::SessionService;
use async_trait::async_trait;
use bench_worker::{AGENT_MESSAGES, AGENT_TEXT_BYTES, AGENTS_AT_ONCE, AtOnce, Order, Outcome};
use futures::StreamExt;

use crate::{APP, MODEL, MOST_REFUSALS, USER, session};

/// Returns the text of each message.
pub(crate) fn text() -> String {
    "x".repeat(AGENT_TEXT_BYTES)
}

/// A model that answers at once.
struct Quick;

#[async_trait]
impl Llm for Quick {
    fn name(&self) -> &str {
        "quick"
    }

    async fn generate_content(&self, request: LlmRequest, _: bool) -> adk_core::Result<LlmResponseStream> {
        // The prompt and all that was before it.
        if request.contents.len() <= AGENT_MESSAGES {
            return Err(AdkError::model(format!("{} messages are not all", request.contents.len())));
        }
        let answer = LlmResponse {
            content: Some(Content::new("model").with_text(text())),
            finish_reason: Some(FinishReason::Stop),
            turn_complete: true,
            ..LlmResponse::default()
        };
        Ok(futures::stream::iter([Ok(answer)]).boxed())
    }
}

/// A runner, and the order of the conversations in its service.
pub(crate) struct Agents {
    runner: Arc<Runner>,
    order: Order,
}

impl Agents {
    pub(crate) fn new(service: &Arc<dyn SessionService>, count: u32) -> Outcome<Self> {
        let agent = LlmAgentBuilder::new(MODEL).model(Arc::new(Quick)).build()?;
        let runner = Runner::builder().app_name(APP).agent(Arc::new(agent)).session_service(service.clone());
        Ok(Self { runner: Arc::new(runner.build()?), order: Order::new(count as usize) })
    }

    /// Has turns in the next conversations.
    pub(crate) async fn turns(&mut self, turns: usize) -> Outcome<AtOnce> {
        let next = Arc::new(Mutex::new(self.order.next(turns)));
        let tasks = (0..AGENTS_AT_ONCE).map(|_| {
            let (runner, next) = (Arc::clone(&self.runner), Arc::clone(&next));
            let pop = move || next.lock().ok()?.pop();
            tokio::spawn(async move {
                let mut done = AtOnce::default();
                while let Some(n) = pop() {
                    let start = Instant::now();
                    let mut refused = 0;
                    while let Err(error) = turn(&runner, &session(n as u32)).await {
                        refused += 1;
                        if refused > MOST_REFUSALS {
                            return Err(error);
                        }
                    }
                    done.refused += refused;
                    done.latencies.push(start.elapsed());
                }
                Outcome::Ok(done)
            })
        });
        let mut all = AtOnce::default();
        for task in tasks.collect::<Vec<_>>() {
            let done = task.await??;
            all.latencies.extend(done.latencies);
            all.refused += done.refused;
        }
        Ok(all)
    }
}

/// Has a turn from the prompt to its answer.
async fn turn(runner: &Runner, session: &str) -> Outcome {
    let prompt = Content::new("user").with_text(text());
    let mut events = runner.run_str(USER, session, prompt).await?;
    let mut answer = 0;
    while let Some(event) = events.next().await {
        let parts = event?.llm_response.content.into_iter().flat_map(|content| content.parts);
        answer += parts.filter_map(|part| part.text().map(str::len)).sum::<usize>();
    }
    if answer == AGENT_TEXT_BYTES { Ok(()) } else { Err(format!("the answer has {answer} bytes").into()) }
}
