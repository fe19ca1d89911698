//! The loop of a run: ask the model, store what it says, call its tools, store their results, ask again.

use std::collections::HashSet;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tracing::{Instrument, info_span, warn};

use crate::error::{Error, ErrorKind, Result};
use crate::handle::SessionHandle;
use crate::id::{Epoch, RunId};
use crate::runtime::config::Persistence;
use crate::runtime::provider::{ModelCall, ModelEvent, ModelRequest, StopReason, Usage};
use crate::runtime::run::{RunOutcome, RunReport, Update};
use crate::runtime::start::span_started;
use crate::runtime::stop::{Heart, OwnHead, Stopped, asks_to_stop, stopped};
use crate::runtime::tools::isolated;
use crate::runtime::{Slot, ToolContext};
use crate::session::body::SpanCompleted;
use crate::session::{
    Actor, Body, CallId, Commit, Failure, Message, NewEvent, Reason, Request, RunEnd, Session,
    SessionStoreExt, SpanId, ToolOutcome, ToolResult, ToolUse, Trigger,
};
use crate::transcript::{ModelContext, ModelMessage};

/// How many calls are open at once, at most; a record holds no more than 64.
const CALLS_AT_ONCE: usize = 32;

/// One run.
pub(crate) struct Driver {
    handle: SessionHandle,
    run: RunId,
    epoch: Epoch,
    session: Session,
    updates: mpsc::UnboundedSender<Result<Update>>,
    own: OwnHead,
    stop: BoxFuture<'static, Stopped>,
    /// What `stop` came to, where it was noticed at a place that does not end the run by itself.
    noticed: Option<Stopped>,
    /// What the next commit starts with.
    prelude: Vec<NewEvent>,
    /// Commits that could not be stored yet, where the configuration goes on without.
    backlog: VecDeque<Commit>,
    /// Whether something could not be stored, and never will be.
    lost: bool,
    usage: Usage,
    tool_calls: u32,
}

/// What one answer of the model came to.
struct Answer {
    text: String,
    thinking: String,
    calls: Vec<ModelCall>,
    end: AnswerEnd,
}

enum AnswerEnd {
    Done(StopReason),
    Stopped(Stopped),
    Failed(Error),
}

/// How a run is to end.
struct Ending {
    text: String,
    /// What was said and is not stored yet.
    said: Vec<NewEvent>,
    outcome: RunOutcome,
}

impl Driver {
    pub(crate) fn new(
        handle: SessionHandle,
        run: RunId,
        epoch: Epoch,
        session: Session,
        updates: mpsc::UnboundedSender<Result<Update>>,
        cancel: watch::Receiver<bool>,
    ) -> Self {
        let own = OwnHead::default();
        own.set(session.head);
        let runtime = handle.runtime();
        let (sessions, stopping) = (runtime.storage.sessions.clone(), runtime.shared.runs.stopping());
        let stop = stopped(sessions, session.id, epoch, own.clone(), cancel, stopping).boxed();
        Self {
            handle,
            run,
            epoch,
            session,
            updates,
            own,
            stop,
            noticed: None,
            prelude: Vec::new(),
            backlog: VecDeque::new(),
            lost: false,
            usage: Usage::default(),
            tool_calls: 0,
        }
    }

    /// Runs to the end. A panic ends the stream with an error; the lease then expires by itself.
    pub(crate) async fn run(mut self, slot: Slot) {
        let span = info_span!("run", session = %self.session.id, run = %self.run, epoch = %self.epoch);
        let sessions = self.handle.runtime().storage.sessions.clone();
        let ttl = self.handle.runtime().config().lease_ttl;
        let heart = Heart::beat(sessions, self.session.id, self.epoch, ttl);
        let updates = self.updates.clone();
        let id = self.session.id;
        let end = AssertUnwindSafe(self.drive()).catch_unwind().instrument(span).await;
        drop(heart);
        let last = match end {
            Ok(Ok(report)) => Ok(Update::Ended(Box::new(report))),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::new(
                ErrorKind::Provider,
                format!("the run of session {id} panicked; the session goes on when its lease has expired"),
            )),
        };
        drop(slot);
        // A stream that nobody reads is no failure.
        let _ = updates.send(last);
    }

    fn send(&self, update: Update) {
        let _ = self.updates.send(Ok(update));
    }

    async fn drive(&mut self) -> Result<RunReport> {
        self.send(Update::Started { run: self.run, epoch: self.epoch });
        self.before_run().await;
        let ended = match self.steps().await {
            Ok(ending) => self.end(ending).await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(report) => {
                self.after_run(&report).await;
                Ok(report)
            }
            Err(error) => {
                self.give_up(&error).await;
                Err(error)
            }
        }
    }

    /// Gives the lease back after an error of the store, where that is possible.
    async fn give_up(&mut self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Fenced { .. }) {
            return;
        }
        self.backlog.clear();
        let commit = self.sealed().trigger(Trigger::EndRun(RunEnd::Failed(Failure::from(error))));
        match self.handle.runtime().storage.sessions.settle(commit).await {
            Ok(committed) => self.handle.note(&committed.session),
            Err(error) => warn!(%error, "the end of a failed run could not be stored; its lease expires"),
        }
    }

    async fn steps(&mut self) -> Result<Ending> {
        let runtime = self.handle.runtime().clone();
        let config = runtime.config();
        let mut context =
            ModelContext::read(&*runtime.storage.sessions, &self.session, config.limits.context).await?;
        for damage in context.damaged() {
            warn!(session = %self.session.id, %damage, "a part of the history cannot be read");
        }
        if config.spans {
            self.prelude.extend(span_started(&self.run.to_string(), "run"));
        }
        let mut text = String::new();
        for _ in 0..config.limits.turns {
            if self.asked_to_end()? {
                return Ok(Ending { text, said: Vec::new(), outcome: RunOutcome::Interrupted });
            }
            context.trim();
            let answer = self.ask(&context).await;
            text = answer.text;
            let mut said = Vec::new();
            if config.keep_thinking && !answer.thinking.is_empty() {
                said.push(Body::AgentThinking(Message::new(answer.thinking)));
            }
            if !text.is_empty() {
                said.push(Body::AgentMessage(Message::new(text.clone())));
            }
            let outcome = match answer.end {
                AnswerEnd::Stopped(Stopped::Fenced(error)) => return Err(error),
                AnswerEnd::Stopped(Stopped::Asked) => Some(RunOutcome::Interrupted),
                AnswerEnd::Failed(error) => Some(RunOutcome::Failed(Failure::from(&error))),
                AnswerEnd::Done(stop) if answer.calls.is_empty() || stop != StopReason::EndTurn => {
                    Some(RunOutcome::Completed(stop.reason()))
                }
                AnswerEnd::Done(_) => None,
            };
            if let Some(outcome) = outcome {
                let said = said.iter().map(NewEvent::of).collect();
                return Ok(Ending { text, said, outcome });
            }
            let calls = self.named(answer.calls, &context.messages());
            if !self.call_tools(calls, said, &mut context).await? {
                return Ok(Ending { text, said: Vec::new(), outcome: RunOutcome::Interrupted });
            }
            if self.tool_calls >= config.limits.tool_calls {
                break;
            }
        }
        Ok(Ending { text, said: Vec::new(), outcome: RunOutcome::Completed(Reason::MaxTurns) })
    }

    /// Whether the run is to end before its next step: asked here, or by the record.
    fn asked_to_end(&mut self) -> Result<bool> {
        if matches!(self.session.requested, Some(Request::Suspend(_))) {
            return Ok(true);
        }
        let noticed = self.noticed.take().or_else(|| asks_to_stop(&self.session, self.epoch));
        match noticed.or_else(|| (&mut self.stop).now_or_never()) {
            Some(Stopped::Asked) => Ok(true),
            Some(Stopped::Fenced(error)) => Err(error),
            None => Ok(false),
        }
    }

    /// Asks the model once, and hands on what it says as it says it.
    async fn ask(&mut self, context: &ModelContext) -> Answer {
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

    /// The calls under ids that are valid and unique in the conversation, and names that can be stored.
    fn named(&self, calls: Vec<ModelCall>, messages: &[ModelMessage]) -> Vec<ToolUse> {
        let mut used: HashSet<CallId> = messages
            .iter()
            .flat_map(|message| match message {
                ModelMessage::Agent { calls, .. } => calls.as_slice(),
                _ => &[],
            })
            .map(|call| call.call.clone())
            .chain(self.session.open_calls.iter().map(|open| open.call.clone()))
            .collect();
        let effects = self.handle.runtime().effects();
        let mut named = Vec::with_capacity(calls.len());
        for call in calls {
            let given = call.id.parse::<CallId>().ok().filter(|id| !used.contains(id));
            let id = given.or_else(|| format!("call-{}", effects.new_uuid()).parse().ok());
            // A UUID with a word before it is an id.
            let Some(id) = id else { continue };
            used.insert(id.clone());
            let name = match crate::id::check_text("tool name", &call.name, 128) {
                Ok(()) => call.name,
                Err(_) => "unnamed".to_owned(),
            };
            named.push(ToolUse::new(id, name, call.input.compacted()));
        }
        named
    }

    /// Stores the calls, makes them, and stores each result as it comes. `false` where the run is to end.
    async fn call_tools(
        &mut self,
        calls: Vec<ToolUse>,
        mut said: Vec<Body>,
        context: &mut ModelContext,
    ) -> Result<bool> {
        let shared = self.handle.runtime().shared.clone();
        let spans = shared.config.spans;
        for calls in calls.chunks(CALLS_AT_ONCE) {
            said.extend(calls.iter().cloned().map(Body::AgentToolUse));
            let mut events: Vec<_> = said.iter().map(NewEvent::of).collect();
            if spans {
                events.extend(calls.iter().filter_map(|call| span_started(call.call.as_str(), &call.name)));
            }
            let commit = self.save(events).await?;
            for body in said.drain(..) {
                context.push(body, commit);
            }
            for call in calls {
                if self.asked_to_end()? {
                    return Ok(false);
                }
                self.send(Update::ToolCalled(call.clone()));
                self.tool_calls += 1;
                let result = if self.tool_calls > shared.config.limits.tool_calls {
                    let text = crate::runtime::tools::text_json(
                        "not called: the run has reached its limit of tool calls",
                    );
                    ToolResult::new(call.call.clone(), ToolOutcome::Error, text)
                } else {
                    let session = &self.session;
                    let for_whom =
                        ToolContext::new(session.id, session.workspace, self.run, call.call.clone());
                    let span = info_span!("tool", tool = %call.name, call = %call.call);
                    let work = shared.tools.call(call, for_whom, shared.config.limits.tool_timeout);
                    tokio::select! {
                        biased;
                        stopped = &mut self.stop => return match stopped {
                            Stopped::Asked => Ok(false),
                            Stopped::Fenced(error) => Err(error),
                        },
                        result = work.instrument(span) => result,
                    }
                };
                let outcome = result.outcome;
                let body = Body::AgentToolResult(result.clone());
                let mut events = vec![NewEvent::of(&body)];
                if spans {
                    events.extend(span_completed(call.call.as_str(), outcome));
                }
                let commit = self.save(events).await?;
                context.push(body, commit);
                self.send(Update::ToolDone(result));
            }
        }
        Ok(true)
    }

    /// Stores the end of the run together with what was said last.
    async fn end(&mut self, ending: Ending) -> Result<RunReport> {
        let Ending { text, said, outcome } = ending;
        let (end, span) = match &outcome {
            RunOutcome::Completed(reason) => (RunEnd::Completed(*reason), ToolOutcome::Ok),
            RunOutcome::Failed(failure) => {
                self.send(Update::Failed(failure.clone()));
                (RunEnd::Failed(failure.clone()), ToolOutcome::Error)
            }
            _ => (RunEnd::Interrupted, ToolOutcome::Interrupted),
        };
        self.prelude.extend(said);
        let mut commit = self.sealed();
        if self.handle.runtime().config().spans && outcome != RunOutcome::Interrupted {
            commit = commit.events(span_completed(&self.run.to_string(), span));
        }
        self.store(commit.trigger(Trigger::EndRun(end.clone()))).await?;
        if self.backlog.is_empty() && asks_to_stop(&self.session, self.epoch).is_none() {
            // What was said last cannot be stored; the run ends all the same.
            let commit = self.sealed().trigger(Trigger::EndRun(end));
            self.store(commit).await?;
        }
        let stored = self.backlog.is_empty() && !self.lost;
        let status = self.session.status;
        Ok(RunReport { run: Some(self.run), text, outcome, usage: self.usage, status, stored })
    }

    fn sealed(&mut self) -> Commit {
        Commit::seal(self.handle.runtime().effects(), self.session.id, self.session.head)
            .actor(Actor::AGENT)
            .fence(self.run, self.epoch)
            .events(std::mem::take(&mut self.prelude))
    }

    /// Stores events; returns the commit's id.
    async fn save(&mut self, events: Vec<NewEvent>) -> Result<crate::CommitId> {
        let commit = self.sealed().events(events);
        let id = commit.id;
        self.store(commit).await?;
        Ok(id)
    }

    /// Stores a commit, after those that could not be stored before.
    async fn store(&mut self, commit: Commit) -> Result<()> {
        self.backlog.push_back(commit);
        let runtime = self.handle.runtime().clone();
        while let Some(next) = self.backlog.front() {
            match runtime.storage.sessions.settle(next.clone()).await {
                Ok(committed) => {
                    self.own.set(committed.session.head);
                    self.handle.note(&committed.session);
                    self.session = committed.session;
                    self.backlog.pop_front();
                }
                Err(error) if goes_on(runtime.config().persistence, &error) => {
                    // A commit that is itself at fault is not sent again, the others are, with the next step.
                    let at_fault = matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::LimitExceeded);
                    self.send(Update::NotStored(error));
                    if !at_fault {
                        break;
                    }
                    self.lost = true;
                    self.backlog.pop_front();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn before_run(&mut self) {
        let shared = self.handle.runtime().shared.clone();
        for plugin in &shared.plugins {
            let work = plugin.before_run(&self.session);
            tokio::select! {
                biased;
                stopped = &mut self.stop, if self.noticed.is_none() => self.noticed = Some(stopped),
                () = hook(plugin.name(), "before_run", shared.config.limits.tool_timeout, work) => {}
            }
        }
    }

    async fn after_run(&mut self, report: &RunReport) {
        let shared = self.handle.runtime().shared.clone();
        for plugin in &shared.plugins {
            let work = plugin.after_run(&self.session, report);
            hook(plugin.name(), "after_run", shared.config.limits.tool_timeout, work).await;
        }
    }
}

/// Whether a run goes on although something could not be stored.
fn goes_on(persistence: Persistence, error: &Error) -> bool {
    persistence == Persistence::BestEffort && !matches!(error.kind(), ErrorKind::Fenced { .. })
}

fn failed_provider(shared: &crate::runtime::Shared, what: &str) -> Error {
    Error::new(ErrorKind::Provider, format!("provider {} {what}", shared.provider().name()))
}

/// A plugin's hook: what goes wrong in it is logged.
async fn hook(plugin: &str, name: &str, time: Duration, work: impl Future<Output = Result<()>>) {
    match timeout(time, isolated(work)).await {
        Ok(Some(Ok(()))) => {}
        Ok(Some(Err(error))) => warn!(plugin, hook = name, %error, "a plugin's hook failed"),
        Ok(None) => warn!(plugin, hook = name, "a plugin's hook panicked"),
        Err(_) => warn!(plugin, hook = name, "a plugin's hook took too long"),
    }
}

fn span_completed(span: &str, outcome: ToolOutcome) -> Option<NewEvent> {
    let span: SpanId = span.parse().ok()?;
    Some(NewEvent::of(&Body::SpanCompleted(SpanCompleted::new(span, outcome))).with_actor(Actor::SYSTEM))
}
