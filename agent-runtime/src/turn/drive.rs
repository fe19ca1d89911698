//! Main loop of a run: call the model, store its answer, call its tools, store their results, repeat.

use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::time::timeout;
use tracing::{debug, warn};

use crate::agent::active::Registration;
use crate::agent::runtime::{AgentRuntime, RunPermit};
use crate::context::ModelContext;
use crate::model::event::StopReason;
use crate::model::fault::{FaultKind, ProviderFault};
use crate::model::kept::Kept;
use crate::run::heartbeat::HeartbeatTask;
use crate::run::limit::{LimitKind, ReachedLimit};
use crate::run::report::{RunOutcome, RunReport, Update};
use crate::run::spans;
use crate::run::stop::{Stopped, asks_to_stop};
use crate::run::telemetry;
use crate::tool::session_context::SessionContext;
use crate::turn::answer_limits::Full;
use crate::turn::ask::{Answer, AnswerEnd};
use crate::turn::calls::After;
use crate::turn::children::deliver_now;
use crate::turn::settings::{Settings, asks_workspace, theirs};
use crate::turn::state::Driver;
use agent_core::commit::{RunEnd, Trigger};
use agent_core::event::{EventPayload, NewEvent, SystemMessage, ToolOutcome};
use agent_core::isolated::{called, isolated};
use agent_core::model::{Actor, Cost, Failure, RunUsage};
use agent_core::session::SessionRecord;
use agent_core::state::Reason;
use agent_core::{Error, ErrorKind, Result, SessionStoreExt};
use agent_workspace::mounts::effective_mounts;
use agent_workspace::secrets::SecretName;

/// End of a run.
struct Ending {
    text: String,
    /// Events of the last answer that are not stored yet.
    said: Vec<NewEvent>,
    /// Updates on calls of that answer that are not made, sent when they are stored.
    not_made: Vec<Update>,
    outcome: RunOutcome,
}

impl Ending {
    /// Creates an end for a run whose events are all stored.
    fn of(text: String, outcome: RunOutcome) -> Self {
        Self { text, said: Vec::new(), not_made: Vec::new(), outcome }
    }
}

impl Driver {
    /// Runs to the end. A panic that no call into host code has caught ends the run as failed.
    pub(crate) async fn run(mut self, slot: RunPermit, registration: Registration) {
        let agent = self.handle.runtime().config().agent_name.as_deref();
        let span = telemetry::run_span(agent, self.session.id, self.run, self.epoch);
        let sessions = self.handle.runtime().storage.sessions.store().clone();
        let ttl = self.handle.runtime().lease_ttl();
        let heart = HeartbeatTask::beat(sessions, self.session.id, self.epoch, ttl);
        let end = isolated(|| Box::pin(telemetry::invoke_agent(span, self.drive()))).await;
        let last = match end {
            Some(Ok(report)) => Ok(Update::Ended(Box::new(report))),
            Some(Err(error)) => Err(error),
            None => Err(self.end_panicked().await),
        };
        drop(heart);
        drop(slot);
        self.updates.finish(&last);
        drop(registration);
    }

    /// Ends a run that panicked: stores the pending commit, then the end of the run.
    async fn end_panicked(&mut self) -> Error {
        self.given = None;
        let error = Error::new(
            ErrorKind::Provider,
            format!("session {}: the run panicked; its output until then is stored", self.session.id),
        );
        let ended = isolated(|| {
            Box::pin(async {
                // The commit may be stored already; sending it again then has no effect.
                if let Some(commit) = self.backlog.pop_front()
                    && let Ok(committed) =
                        self.handle.runtime().storage.sessions.commit_with_retry(commit).await
                {
                    self.handle.cache_record(&committed.session);
                    self.session = committed.session;
                }
                if asks_to_stop(&self.session, self.epoch).is_none() {
                    self.give_up(&error).await;
                }
            })
        });
        if ended.await.is_none() {
            warn!(session = %self.session.id, "the end of a run that panicked could not be stored; its lease expires");
        }
        error
    }

    async fn drive(&mut self) -> Result<RunReport> {
        self.send(Update::Started { run: self.run, epoch: self.epoch });
        self.before_run().await;
        let ended = match self.steps().await {
            Ok((ending, kept)) => {
                let ended = self.end(ending).await;
                // Before the caller has the report, and prompts again.
                if let Some(kept) = kept.filter(|_| ended.is_ok()) {
                    self.handle.runtime().contexts.put(self.session.id, kept);
                    // One that was seen deleted meanwhile is forgotten again.
                    self.handle.cache_record(&self.handle.record());
                }
                ended
            }
            Err(error) => Err(error),
        };
        // Freed before the caller has the report.
        self.given = None;
        match ended {
            Ok(report) => {
                self.after_run(&report).await;
                deliver_now(self.handle.runtime(), &self.session).await;
                Ok(report)
            }
            Err(error) => {
                self.give_up(&error).await;
                Err(error)
            }
        }
    }

    /// Releases the lease after an error of the store, if possible.
    async fn give_up(&mut self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Fenced { .. }) {
            return;
        }
        self.backlog.clear();
        let end = self.failed(self.failure(error));
        let commit = self.sealed().with_trigger(Trigger::EndRun(end));
        match self.handle.runtime().storage.sessions.commit_with_retry(commit).await {
            Ok(committed) => self.handle.cache_record(&committed.session),
            Err(error) => warn!(%error, "the end of a failed run could not be stored; its lease expires"),
        }
    }

    /// Returns the failure with which the run ends. The text is redacted before it is cut, because a cut value would
    /// not be recognized.
    fn failure(&self, error: &Error) -> Failure {
        let fault = ProviderFault::of(error).map(|fault| fault.kind.name());
        Failure::new(Reason::RunError, self.handle.runtime().redact(&error.to_string())).with_fault(fault)
    }

    /// Loads the values of all secrets that the session mounts, so that they are redacted from every source.
    async fn know_secrets(&mut self) -> Result<()> {
        let runtime = self.handle.runtime();
        let Some(secrets) = &runtime.secrets else { return Ok(()) };
        let mounts = effective_mounts(&*runtime.storage.sessions, &self.session).await?;
        for name in mounts.iter().filter_map(|(resource, _)| SecretName::of_resource(resource)) {
            if let Err(error) = secrets.reveal(self.session.workspace, &name).await {
                debug!(session = %self.session.id, secret = %name, %error, "a mounted secret has no value");
            }
        }
        Ok(())
    }

    /// Makes the steps of the run. Returns its end, and what the next run of the session goes on with.
    async fn steps(&mut self) -> Result<(Ending, Option<Kept>)> {
        let runtime = self.handle.runtime().clone();
        if self.theirs.is_none() && asks_workspace(&self.session) {
            self.theirs = Some(theirs(&runtime, &self.session).await?);
        }
        let chosen = self.theirs.as_ref().and_then(|theirs| theirs.provider.as_deref());
        self.settings = Settings::for_session(&runtime, &self.session, chosen).await?;
        if let Err(error) = self.settings.provider(&runtime.shared, &self.session) {
            // Checked before tools run, because no model would receive their results.
            return Ok((Ending::of(String::new(), RunOutcome::Failed(self.failure(&error))), None));
        }
        self.settings.limit_to_model(&runtime.shared);
        telemetry::record_model(&self.settings.provider, runtime.shared.model(&self.settings.provider));
        let mut context = self.context().await?;
        let ending = self.turns(&mut context).await?;
        Ok((ending, self.context_to_keep(context)))
    }

    /// Makes the calls that were answered, then calls the model until the run ends.
    async fn turns(&mut self, context: &mut ModelContext) -> Result<Ending> {
        if !self.session.open_calls.is_empty() {
            self.look_up_tools().await;
            let after = self.answered_calls(context).await?;
            if let Some(outcome) = outcome_of(after) {
                return Ok(Ending::of(String::new(), outcome));
            }
        }
        let mut text = String::new();
        for _ in 0..self.settings.limits.turns {
            self.look_up_tools().await;
            if self.asked_to_end()? {
                return Ok(Ending::of(text, RunOutcome::Interrupted));
            }
            if !self.make_room(context).await? {
                return Ok(Ending::of(text, RunOutcome::Interrupted));
            }
            match self.turn(context).await? {
                ControlFlow::Continue(said) => text = said,
                ControlFlow::Break(ending) => return Ok(ending),
            }
        }
        self.limit = Some(ReachedLimit::new(LimitKind::Turns).with_max(self.settings.limits.turns.into()));
        Ok(Ending::of(text, RunOutcome::Completed(Reason::MaxTurns)))
    }

    /// Looks up the tools that plugins offer in the session. A plugin that fails offers none until the next time.
    async fn look_up_tools(&mut self) {
        let runtime = self.handle.runtime().clone();
        let limit = self.settings.limits.tool_timeout;
        let mut found = Vec::new();
        for (name, plugin) in &runtime.shared.plugins {
            let (session, run) = (self.session.clone(), self.run);
            let config = self.theirs.as_ref().and_then(|theirs| theirs.config.clone());
            let context = SessionContext::new(session, run, runtime.storage.clone())
                .with_config(config)
                .with_secrets(runtime.secrets.clone());
            let work = timeout(limit, isolated(|| plugin.session_tools(context)));
            tokio::select! {
                biased;
                stopped = &mut self.stop, if self.noticed.is_none() => {
                    // The run ends at its next step.
                    self.noticed = Some(stopped);
                    return;
                }
                specs = work => match specs {
                    Ok(Some(Ok(specs))) if specs.is_empty() => {}
                    Ok(Some(Ok(mut specs))) => {
                        // A server may say what it was given, and all of it goes to the model.
                        for spec in &mut specs {
                            spec.description = runtime.redact(&spec.description).into_owned();
                            spec.input = runtime.redact_json(spec.input.clone());
                        }
                        found.push((name.clone(), plugin.clone(), specs));
                    }
                    Ok(Some(Err(error))) => {
                        let error = error.to_string();
                        warn!(plugin = name, error = %runtime.redact(&error), "a plugin's tools are not known");
                    }
                    Ok(None) => warn!(plugin = name, "a plugin panicked when it was asked for its tools"),
                    Err(_) => warn!(plugin = name, "a plugin took too long to say its tools"),
                },
            }
        }
        let tools = &runtime.shared.tools;
        self.tools = match found.is_empty() {
            true => tools.clone(),
            false => Arc::new(tools.with_session_tools(found, runtime.config().read_outputs)),
        };
    }

    /// Returns the context for the first model call.
    async fn context(&mut self) -> Result<ModelContext> {
        self.know_secrets().await?;
        self.secrets = self.handle.runtime().known_secrets();
        let mut context = match self.kept_context().await {
            Some(context) => context,
            None => self.read_context().await?,
        };
        if self.handle.runtime().config().spans {
            self.prelude.extend(spans::started(&self.run.to_string(), "run"));
        }
        self.tell_wakes(&mut context).await?;
        Ok(context)
    }

    /// Calls the model once and makes the tool calls of its answer. Returns the end of the run, or the text with which
    /// it continues.
    async fn turn(&mut self, context: &mut ModelContext) -> Result<ControlFlow<Ending, String>> {
        let Answer { parts, end, asked, .. } = self.answer(context).await?;
        self.retry_after = end.retry_after();
        let stop = if let AnswerEnd::Done(stop) = &end { Some(stop.name()) } else { None };
        let said = self.items_of(parts, &asked, stop, end.is_cut(), context);
        let (text, has_calls) = (said.text.clone(), said.calls().next().is_some());
        let full = if let AnswerEnd::Full(full) = end { Some(full) } else { None };
        self.limit = self.limit_of(&end);
        if let Some(outcome) = self.outcome_of_answer(end, !has_calls)? {
            let bodies = self.uncalled(said, "not called: the answer was cut");
            let (said, not_made) = (self.kept_events(&bodies), updates_on_calls(bodies));
            return Ok(ControlFlow::Break(Ending { text, said, not_made, outcome }));
        }
        if let Some(full @ (Full::Bytes(..) | Full::Parts(_) | Full::Media(_))) = full {
            let why = format!("not called: the answer reached its limit of {full}");
            self.refuse_calls(said, &why, context).await?;
            return Ok(ControlFlow::Break(Ending::of(text, RunOutcome::Completed(full.reason()))));
        }
        let after = self.call_tools(said, context).await?;
        if let Some(outcome) = outcome_of(after) {
            return Ok(ControlFlow::Break(Ending::of(text, outcome)));
        }
        let most = self.settings.limits.tool_calls;
        if full.is_some() || self.tool_calls > most {
            self.limit =
                self.limit.or_else(|| Some(ReachedLimit::new(LimitKind::ToolCalls).with_max(most.into())));
            return Ok(ControlFlow::Break(Ending::of(text, RunOutcome::Completed(Reason::MaxTurns))));
        }
        Ok(ControlFlow::Continue(text))
    }

    /// Returns the limit at which an answer ended, if it reached one.
    fn limit_of(&self, end: &AnswerEnd) -> Option<ReachedLimit> {
        match end {
            AnswerEnd::Done(StopReason::MaxTokens) => {
                let limit = ReachedLimit::new(LimitKind::MaxTokens);
                Some(self.settings.limits.max_tokens.map_or(limit, |most| limit.with_max(most.into())))
            }
            AnswerEnd::Full(full) => Some((*full).into()),
            AnswerEnd::Failed(_) if end.fault() == Some(FaultKind::ContextTooLong) => {
                Some(ReachedLimit::new(LimitKind::ContextTokens))
            }
            // Of the silence, which the run itself measures.
            AnswerEnd::Failed(_) => self.limit,
            AnswerEnd::Done(_) | AnswerEnd::Stopped(_) => None,
        }
    }

    /// Returns how the run ends with an answer, if it does: an answer without calls, or one that broke off.
    fn outcome_of_answer(&self, end: AnswerEnd, is_last: bool) -> Result<Option<RunOutcome>> {
        Ok(match end {
            AnswerEnd::Stopped(Stopped::Fenced(error)) => return Err(error),
            AnswerEnd::Stopped(Stopped::Asked) => Some(RunOutcome::Interrupted),
            AnswerEnd::Failed(error) => {
                if let Some(words) = ProviderFault::of(&error).and_then(ProviderFault::said)
                    && let Some(line) = ProviderFault::line(&self.redacted(words))
                {
                    self.send(Update::ProviderMessage(line));
                }
                Some(RunOutcome::Failed(self.failure(&error)))
            }
            AnswerEnd::Done(stop) if is_last || stop != StopReason::EndTurn => {
                Some(RunOutcome::Completed(stop.reason()))
            }
            AnswerEnd::Full(full) if is_last => Some(RunOutcome::Completed(full.reason())),
            AnswerEnd::Full(_) | AnswerEnd::Done(_) => None,
        })
    }

    /// Stores the timers for which the run was started, as texts for the model; otherwise the model would receive no
    /// new message.
    async fn tell_wakes(&mut self, context: &mut ModelContext) -> Result<()> {
        let mut due: Vec<_> = self.session.due_timers().collect();
        due.sort_by_key(|timer| (Reverse(timer.priority), timer.at));
        let texts = due.into_iter().map(|timer| {
            let text = format!("The scheduled timer {:?} is due. {}", timer.key, timer.note);
            EventPayload::SystemMessage(SystemMessage::injected(self.redacted(text.trim_end())))
        });
        let texts: Vec<_> = texts.collect();
        if texts.is_empty() {
            return Ok(());
        }
        let events = texts.iter().map(|body| NewEvent::of(body).with_actor(Actor::SYSTEM)).collect();
        let saved = self.save(events, context).await?;
        for body in texts {
            context.push(body, saved.commit, saved.end);
        }
        Ok(())
    }

    /// Stores the end of the run together with the last events.
    async fn end(&mut self, ending: Ending) -> Result<RunReport> {
        let Ending { text, said, not_made, mut outcome } = ending;
        let cost = self.cost();
        let mut for_good = false;
        if let Err(error) = &cost {
            warn!(session = %self.session.id, %error, "the cost of a run is not stored");
            if matches!(outcome, RunOutcome::Completed(_)) {
                (outcome, for_good) = (RunOutcome::Failed(self.failure(error)), true);
            }
        }
        let (end, span) = match &outcome {
            RunOutcome::Completed(reason) => (RunEnd::Completed(*reason), ToolOutcome::Ok),
            RunOutcome::Failed(failure) => {
                self.send(Update::Failed(failure.clone()));
                let failure = failure.clone();
                // A complete answer is not requested again.
                (if for_good { RunEnd::Failed(failure) } else { self.failed(failure) }, ToolOutcome::Error)
            }
            RunOutcome::Awaiting(action) => (RunEnd::Await(action.clone()), ToolOutcome::Ok),
            RunOutcome::Interrupted => (RunEnd::Interrupted, ToolOutcome::Interrupted),
        };
        let cost = cost.unwrap_or_default();
        self.prelude.extend(said);
        if for_good && !self.prelude.is_empty() {
            // The answer is whole. In the commit of a failed end it would be given to no model again.
            let commit = self.sealed();
            self.store(commit).await?;
        }
        self.prelude.extend(self.used(cost.clone()));
        let mut commit = self.sealed();
        if self.handle.runtime().config().spans && outcome != RunOutcome::Interrupted {
            commit = commit.with_events(spans::completed(&self.run.to_string(), span));
        }
        self.store(commit.with_trigger(Trigger::EndRun(end.clone()))).await?;
        if self.backlog.is_empty() && asks_to_stop(&self.session, self.epoch).is_none() {
            // The last output cannot be stored; the run ends nevertheless.
            let commit = self.sealed().with_events(self.used(cost)).with_trigger(Trigger::EndRun(end));
            self.store(commit).await?;
        }
        let stored = self.backlog.is_empty() && !self.lost;
        for update in not_made.into_iter().filter(|_| stored) {
            self.send(update);
        }
        let (session, status) = (self.session.id, self.session.status);
        let usage = self.summaries.iter().fold(self.usage, |sum, summary| sum.plus(summary.usage));
        Ok(RunReport {
            session,
            run: Some(self.run),
            text,
            outcome,
            limit: self.limit,
            usage,
            status,
            stored,
        })
    }

    /// Returns the end of a run that failed.
    fn failed(&self, failure: Failure) -> RunEnd {
        if !self.unattended {
            return RunEnd::Failed(failure);
        }
        let runtime = self.handle.runtime();
        let retry = runtime.config().retry;
        let ready_at = retry.ready_at(runtime.effects().now(), self.session.attempts, self.retry_after);
        RunEnd::retry(failure, ready_at, retry.limit)
    }

    /// Returns the cost of the run, if it is recorded and the provider knows it.
    ///
    /// # Errors
    ///
    /// `Provider` if the provider panicked.
    fn cost(&self) -> Result<Option<Cost>> {
        let runtime = self.handle.runtime();
        if !runtime.config().record_usage {
            return Ok(None);
        }
        let Some(provider) = runtime.shared.named(&self.settings.provider) else { return Ok(None) };
        let cost = called(|| provider.cost(self.usage))
            .ok_or_else(|| self.failed_provider("panicked when it was asked for the cost"))?;
        Ok(cost)
    }

    /// Returns the usage events of the run, if usage is recorded: of its answers with this cost, and of its summaries.
    fn used(&self, cost: Option<Cost>) -> Vec<NewEvent> {
        if !self.handle.runtime().config().record_usage {
            return Vec::new();
        }
        let degraded = self.lost || !self.backlog.is_empty();
        let own = RunUsage::new(self.run, self.usage).with_cost(cost).with_degraded(degraded);
        let mut session = SessionRecord::clone(&self.session);
        let mut event = |mut used: RunUsage| {
            // A cost that cannot be stored must not prevent the answer from being stored.
            if let Err(error) = used.check().and_then(|()| session.check_usage(&used)) {
                warn!(session = %session.id, %error, "the cost of a run is not stored");
                used.cost = None;
            }
            session.usage.add(&used);
            NewEvent::run_usage(used).with_actor(Actor::SYSTEM)
        };
        [own].into_iter().chain(self.summaries.iter().cloned()).map(&mut event).collect()
    }

    async fn before_run(&mut self) {
        let runtime = self.handle.runtime().clone();
        for (name, plugin) in &runtime.shared.plugins {
            let work = isolated(|| plugin.before_run(&self.session));
            tokio::select! {
                biased;
                stopped = &mut self.stop, if self.noticed.is_none() => self.noticed = Some(stopped),
                () = hook(name, "before_run", &runtime, work) => {}
            }
        }
    }

    async fn after_run(&mut self, report: &RunReport) {
        let runtime = self.handle.runtime();
        for (name, plugin) in &runtime.shared.plugins {
            let work = isolated(|| plugin.after_run(&self.session, report));
            hook(name, "after_run", runtime, work).await;
        }
    }
}

/// Returns the updates on the calls of an answer and on their results.
fn updates_on_calls(bodies: Vec<EventPayload>) -> Vec<Update> {
    let update = |body| match body {
        EventPayload::AgentToolUse(call) => Some(Update::ToolCalled(call)),
        EventPayload::AgentToolResult(result) => Some(Update::ToolDone(result)),
        _ => None,
    };
    bodies.into_iter().filter_map(update).collect()
}

/// Returns how the run ends after its tool calls, if it does.
fn outcome_of(after: After) -> Option<RunOutcome> {
    match after {
        After::Ask => None,
        After::Stop => Some(RunOutcome::Interrupted),
        After::Await(action) => Some(RunOutcome::Awaiting(action)),
    }
}

/// Calls a hook of a plugin; errors are logged.
async fn hook(
    plugin: &str,
    name: &str,
    runtime: &AgentRuntime,
    work: impl Future<Output = Option<Result<()>>>,
) {
    match timeout(runtime.shared.config.limits.tool_timeout, work).await {
        Ok(Some(Ok(()))) => {}
        Ok(Some(Err(error))) => {
            let error = error.to_string();
            warn!(plugin, hook = name, error = %runtime.redact(&error), "a plugin's hook failed");
        }
        Ok(None) => warn!(plugin, hook = name, "a plugin's hook panicked"),
        Err(_) => warn!(plugin, hook = name, "a plugin's hook took too long"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use agent_core::event::{EventPayload, Media, Part, ToolOutcome, ToolResult};
    use agent_core::json::RawJson;
    use agent_core::state::SessionState;
    use agent_core::store::ReadEvents;
    use agent_core::{Error, MemoryStore, Result, async_trait};

    use crate::{
        AgentBuilder, Config, Conversation, Plugin, ScriptedProvider, SessionContext, ToolContext,
        ToolOutput, ToolSpec, Turn,
    };

    /// Plugin whose tools change with each step, and that can fail.
    #[derive(Debug, Default)]
    struct Changing {
        fault: &'static str,
        asked: AtomicUsize,
        closed: AtomicUsize,
    }

    #[async_trait]
    impl Plugin for Changing {
        fn name(&self) -> &str {
            "changing"
        }

        fn tools(&self) -> Vec<ToolSpec> {
            vec![ToolSpec::new("fixed", "Is always there.")]
        }

        async fn session_tools(&self, context: SessionContext) -> Result<Vec<ToolSpec>> {
            let at = self.asked.fetch_add(1, Ordering::SeqCst);
            match self.fault {
                "" => {}
                "panic" => panic!("on purpose"),
                "hang" => std::future::pending().await,
                text => return Err(Error::invalid(text)),
            }
            assert_eq!(context.session.status.state, SessionState::Running);
            let array = RawJson::constant(r#"{"type":"array"}"#);
            Ok(vec![
                ToolSpec::new(format!("step{at}"), "Is there for one step."),
                ToolSpec::new("fixed", "Has the name of another."),
                ToolSpec::new("no.name", "Has a name that providers refuse."),
                ToolSpec::new("no_schema", "Has a schema that providers refuse.").with_input(array),
            ])
        }

        async fn call_for_output(&self, tool: &str, _: RawJson, _: ToolContext) -> Result<ToolOutput> {
            let output = ToolOutput::new(RawJson::of(&tool)?);
            Ok(match tool {
                "fixed" => output.with_part(Part::Image(Media::inline("no media type", *b"png"))),
                _ => output.with_part(Part::Image(Media::inline("image/png", *b"png"))),
            })
        }

        async fn close(&self) {
            self.closed.fetch_add(1, Ordering::SeqCst);
            if self.fault == "panic" {
                panic!("on purpose");
            }
        }
    }

    async fn results(chat: &Conversation) -> Vec<ToolResult> {
        let events = chat.history(ReadEvents::first(100)).await.unwrap().events;
        let results = events.iter().filter_map(|event| match event.decode().unwrap() {
            EventPayload::AgentToolResult(result) => Some(result),
            _ => None,
        });
        results.collect()
    }

    #[tokio::test]
    async fn tools_of_a_session_hold_for_one_step() {
        let call = |id: &str, tool: &str| Turn::new().call(id, tool, RawJson::empty_object());
        let turns = [call("a", "step0"), call("b", "step0"), call("c", "fixed"), Turn::new().text("Done.")];
        let (model, plugin) = (ScriptedProvider::new(turns), Arc::new(Changing::default()));
        let builder = AgentBuilder::new().with_llm(model.clone()).with_plugin(plugin.clone());
        let agent = builder.with_storage(MemoryStore::new()).build().unwrap();
        let chat = agent.conversation("test").await.unwrap();
        chat.prompt("Go.").await.unwrap().finish().await.unwrap();
        let offered = |request: crate::ModelRequest| {
            let names = request.tools.into_iter().map(|tool| tool.name);
            names.filter(|name| name != "read_output").collect::<Vec<_>>().join(" ")
        };
        let offered: Vec<_> = model.requests().into_iter().map(offered).collect();
        assert_eq!(offered, ["fixed step0", "fixed step1", "fixed step2", "fixed step3"]);
        let results = results(&chat).await;
        assert_eq!((results[0].outcome, results[0].content.len()), (ToolOutcome::Ok, 1));
        // Of the step before.
        assert_eq!(results[1].outcome, ToolOutcome::Error);
        // A part that a store refuses fails the call, not the run.
        assert_eq!(results[2].outcome, ToolOutcome::Error);
        assert!(results[2].output.get().contains("the call was made, and its output is lost"), "{results:?}");
        agent.close().await.unwrap();
        assert_eq!(plugin.closed.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn plugins_that_do_not_list_their_tools_are_isolated() {
        for fault in ["panic", "hang", "no tools today"] {
            let model = ScriptedProvider::new([Turn::new().text("Done.")]);
            let plugin = Arc::new(Changing { fault, ..Changing::default() });
            let limits = Config::new().with_tool_timeout(std::time::Duration::from_millis(50));
            let builder = AgentBuilder::new().with_llm(model.clone()).with_plugin(plugin.clone());
            let agent = builder.with_config(limits).with_storage(MemoryStore::new()).build().unwrap();
            let chat = agent.conversation("test").await.unwrap();
            let report = chat.prompt("Go.").await.unwrap().finish().await.unwrap();
            assert_eq!(report.text, "Done.", "{fault}");
            assert_eq!(model.requests()[0].tools[0].name, "fixed", "{fault}");
            agent.close().await.unwrap();
            assert_eq!(plugin.closed.load(Ordering::SeqCst), 1, "{fault}");
        }
    }

    #[tokio::test]
    async fn a_run_is_cancelled_while_tools_are_looked_up() {
        let plugin = Changing { fault: "hang", ..Changing::default() };
        let builder = AgentBuilder::new().with_llm(ScriptedProvider::new([])).with_plugin(plugin);
        let agent = builder.with_storage(MemoryStore::new()).build().unwrap();
        let chat = agent.conversation("test").await.unwrap();
        let run = chat.prompt("Go.").await.unwrap();
        run.cancel();
        let report = run.finish().await.unwrap();
        assert_eq!(report.outcome, crate::RunOutcome::Interrupted);
        agent.close().await.unwrap();
    }
}
