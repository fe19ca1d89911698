//! Tool calls of a run: stores the calls, makes them, and stores each result as it arrives.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::context::{ModelContext, shortened};
use crate::runtime::driver::Driver;
use crate::runtime::plugin::ToolContext;
use crate::runtime::provider::{ModelCall, ToolMode};
use crate::runtime::report::Update;
use crate::runtime::spans;
use crate::runtime::stop::Stopped;
use crate::runtime::telemetry;
use crate::runtime::tools::text_json;
use agent_core::event::{
    Decision, Event, EventPayload, EventType, FullOutput, NewEvent, ToolConfirmation, ToolOutcome,
    ToolResult, ToolUse,
};
use agent_core::json::RawJson;
use agent_core::model::{ActionId, ActionKind, CallId, OpenCall, PendingAction, ToolPayloads};
use agent_core::session::{OPEN_CALLS_MAX, Session};
use agent_core::store::ReadEvents;
use agent_core::text::check_text;
use agent_core::{Error, Result, Seq, SessionStore, SessionStoreExt};

/// Bytes of an output that are shown in any case.
const PREVIEW_MIN_BYTES: usize = 256;

/// Continuation of a run after its tool calls.
pub(super) enum After {
    /// The run calls the model again.
    Ask,
    /// The run ends, because a stop was requested.
    Stop,
    /// The run ends, and the session waits for an answer.
    Await(PendingAction),
}

impl Driver {
    /// Returns the calls with ids that are valid and unique in the conversation, and with names that can be stored.
    pub(super) fn named(&self, calls: Vec<ModelCall>, context: &ModelContext) -> Vec<ToolUse> {
        let effects = self.handle.runtime().effects();
        let mut named: Vec<ToolUse> = Vec::with_capacity(calls.len());
        for call in calls {
            let is_used = |id: &CallId| {
                context.has_call(id)
                    || named.iter().any(|other| other.call == *id)
                    || self.session.open_calls.iter().any(|open| open.call == *id)
            };
            let given = call.id.parse::<CallId>().ok().filter(|id| !is_used(id));
            let id = given.or_else(|| format!("call-{}", effects.new_uuid().simple()).parse().ok());
            // A prefix and a UUID are a valid id of at most 40 bytes, which is the maximum of some providers.
            let Some(id) = id else { continue };
            let name = match check_text("tool name", &call.name, 128) {
                Ok(()) => call.name,
                Err(_) => "unnamed".to_owned(),
            };
            named.push(ToolUse::new(id, name, call.input));
        }
        named
    }

    /// Stores the messages and the calls in one commit, makes the calls that need no answer first, and stores each
    /// result as it arrives.
    pub(super) async fn call_tools(
        &mut self,
        calls: Vec<ToolUse>,
        mut said: Vec<EventPayload>,
        context: &mut ModelContext,
    ) -> Result<After> {
        let shared = self.handle.runtime().shared.clone();
        let (mut waiting, mut spans) = (None, Vec::new());
        self.answer_calls = calls.len();
        // A record holds so many open calls; the others get their results at once.
        let room = OPEN_CALLS_MAX.saturating_sub(self.session.open_calls.len()).min(calls.len());
        let (made, refused) = calls.split_at(room);
        for call in made {
            said.push(match self.mode(&call.name) {
                ToolMode::Outside => EventPayload::AgentCustomToolUse(self.shown(call)),
                _ => EventPayload::AgentToolUse(self.shown(call)),
            });
            if shared.config.spans && self.mode(&call.name) == ToolMode::Direct {
                spans.extend(spans::started(call.call.as_str(), &call.name));
            }
        }
        let why = format!(
            "not called: at most {OPEN_CALLS_MAX} calls of an answer are open at a time; call it again"
        );
        said.extend(self.refusals(refused, &why));
        self.save_answer(said, spans, context).await?;
        for call in &calls {
            self.send(Update::ToolCalled(self.shown(call)));
        }
        for call in refused {
            self.send(Update::ToolDone(refusal(call, &why)));
        }
        for call in made {
            let mode = self.mode(&call.name);
            // Nobody is asked about a call that cannot be made; its result says why.
            let refused = (mode == ToolMode::Confirm).then(|| shared.tools.refused(call)).flatten();
            if let Some(result) = refused {
                self.save_result(result, false, context).await?;
            } else if let Some(action) = self.action_for(call, mode) {
                waiting.get_or_insert(action);
            } else if !self.make_call(call, context).await? {
                return Ok(After::Stop);
            }
        }
        Ok(waiting.map_or(After::Ask, After::Await))
    }

    /// Stores the messages and the calls, each call with a result that says why it is not made.
    pub(super) async fn refuse_calls(
        &mut self,
        calls: &[ToolUse],
        mut said: Vec<EventPayload>,
        why: &str,
        context: &mut ModelContext,
    ) -> Result<()> {
        said.extend(self.refusals(calls, why));
        self.save_answer(said, Vec::new(), context).await?;
        for call in calls {
            self.send(Update::ToolCalled(self.shown(call)));
            self.send(Update::ToolDone(refusal(call, why)));
        }
        Ok(())
    }

    /// Returns the calls, each followed by the result that it is not made.
    fn refusals(&self, calls: &[ToolUse], why: &str) -> Vec<EventPayload> {
        let pair = |call| {
            [EventPayload::AgentToolUse(self.shown(call)), EventPayload::AgentToolResult(refusal(call, why))]
        };
        calls.iter().flat_map(pair).collect()
    }

    /// Stores the items of an answer in one commit, followed by the starts of its spans.
    async fn save_answer(
        &mut self,
        said: Vec<EventPayload>,
        spans: Vec<NewEvent>,
        context: &mut ModelContext,
    ) -> Result<()> {
        let kept: Vec<_> = said.iter().map(|body| NewEvent::of(&self.kept(body))).collect();
        let saved = self.save(kept.into_iter().chain(spans).collect(), context).await?;
        for body in said {
            context.push(body, saved.commit, saved.end);
        }
        Ok(())
    }

    /// Returns the call as it is stored and as a model is shown it: without the values of secrets.
    fn shown(&self, call: &ToolUse) -> ToolUse {
        let input = self.handle.runtime().redact_json(call.input.clone());
        ToolUse::new(call.call.clone(), call.name.clone(), input)
    }

    /// Continues the calls that waited for an answer. Makes those that were allowed; waits again if another answer is
    /// needed.
    pub(super) async fn answered_calls(&mut self, context: &mut ModelContext) -> Result<After> {
        let shared = self.handle.runtime().shared.clone();
        let mut waiting = None;
        self.answer_calls = self.session.open_calls.len();
        for open in self.session.open_calls.clone() {
            let Some(call) = self.call_at(&open).await? else { continue };
            if open.custom {
                waiting = waiting.or_else(|| self.action_for(&call, ToolMode::Outside));
                continue;
            }
            let asks = self.mode(&call.name) == ToolMode::Ask;
            match self.decision(&open).await? {
                None => {
                    let mode = if asks { ToolMode::Ask } else { ToolMode::Confirm };
                    waiting = waiting.or_else(|| self.action_for(&call, mode));
                }
                Some(answer) if asks => {
                    let result =
                        ToolResult::new(call.call.clone(), ToolOutcome::Ok, RawJson::of(&answered(&answer))?);
                    self.save_result(result, false, context).await?;
                }
                Some(answer) if answer.decision == Decision::Allow => {
                    if shared.config.spans {
                        let span = spans::started(call.call.as_str(), &call.name);
                        self.save(span.into_iter().collect(), context).await?;
                    }
                    if !self.make_call(&call, context).await? {
                        return Ok(After::Stop);
                    }
                }
                Some(answer) => {
                    let note = answer.note.as_deref().filter(|note| !note.trim().is_empty());
                    let note = note.unwrap_or("not allowed");
                    let result = ToolResult::new(call.call.clone(), ToolOutcome::Denied, text_json(note));
                    self.save_result(result, false, context).await?;
                }
            }
        }
        Ok(waiting.map_or(After::Ask, After::Await))
    }

    /// Makes one call and stores its result. Returns `false` if the run must end; the call then stays open for the end
    /// of the run.
    async fn make_call(&mut self, call: &ToolUse, context: &mut ModelContext) -> Result<bool> {
        if self.asked_to_end()? {
            return Ok(false);
        }
        let shared = self.handle.runtime().shared.clone();
        self.tool_calls += 1;
        let result = if self.tool_calls > self.settings.limits.tool_calls {
            let text = text_json("not called: the run has reached its limit of tool calls");
            ToolResult::new(call.call.clone(), ToolOutcome::Error, text)
        } else {
            let session = &self.session;
            let runtime = self.handle.runtime();
            let mut for_whom = ToolContext::new(session.id, session.workspace, self.run, call.call.clone())
                .with_sessions(runtime.storage.sessions.clone())
                .with_effects(shared.effects.clone());
            if let Some(secrets) = &runtime.secrets {
                for_whom = for_whom.with_secrets(secrets.clone());
            }
            let (policies, time) = (&self.settings.tool_policies, self.settings.limits.tool_timeout);
            let work = shared.tools.call(call, for_whom, policies, time);
            let work = telemetry::execute_tool(session.id, call, shared.tools.has(&call.name), work);
            tokio::select! {
                biased;
                stopped = &mut self.stop => return match stopped {
                    Stopped::Asked => Ok(false),
                    Stopped::Fenced(error) => Err(error),
                },
                result = work => result,
            }
        };
        self.save_result(result, shared.config.spans, context).await?;
        Ok(true)
    }

    /// Returns the action that a call needs before it can continue; `None` if it needs none.
    fn action_for(&self, call: &ToolUse, mode: ToolMode) -> Option<PendingAction> {
        let (kind, lead) = match mode {
            ToolMode::Direct | ToolMode::Never => return None,
            ToolMode::Confirm => (ActionKind::ToolConfirmation, "May "),
            ToolMode::Outside => (ActionKind::ToolResult, "Waits for "),
            ToolMode::Ask => (ActionKind::Approval, ""),
        };
        // Redacted before it is shortened, because a part of a secret value is not recognized.
        let input = self.handle.runtime().redact_json(call.input.clone());
        let asked: Question = match mode {
            ToolMode::Ask => input.to().unwrap_or_default(),
            _ => Question::default(),
        };
        let whole = || format!("{lead}{} {}", call.name, input.get());
        let question = asked.question.unwrap_or_else(whole);
        let offered = asked.choices.len();
        let fits = |choice: &String| check_text("choice", choice, PendingAction::CHOICE_MAX_BYTES).is_ok();
        let choices: Vec<_> =
            asked.choices.into_iter().filter(fits).take(PendingAction::CHOICES_MAX).collect();
        let less = match offered - choices.len() {
            0 => String::new(),
            less => format!(" [… {less} of {offered} choices left out …]"),
        };
        let most = PendingAction::QUESTION_MAX_BYTES - less.len();
        let question = PendingAction::shortened(question, most) + &less;
        // Every call id is a valid action id.
        let id: ActionId = call.call.as_str().parse().ok()?;
        let seq = self.session.open_calls.iter().find(|open| open.call == call.call).map(|open| open.seq);
        let mut action =
            PendingAction::new(id, kind, question).with_choices(choices).with_call(call.name.clone(), seq);
        if let Some(time) = self.settings.limits.answer_timeout {
            let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
            action = action.with_expires_at(self.handle.runtime().effects().now().plus_micros(micros));
        }
        Some(action)
    }

    async fn save_result(
        &mut self,
        mut result: ToolResult,
        span: bool,
        context: &mut ModelContext,
    ) -> Result<()> {
        // The stores redact the output too, but the model and the caller receive it from here.
        result.output = self.handle.runtime().redact_json(result.output);
        let result = self.preview(result);
        let body = EventPayload::AgentToolResult(result.clone());
        let mut events = vec![NewEvent::of(&self.kept(&body))];
        if span {
            events.extend(spans::completed(result.call.as_str(), result.outcome));
        }
        let saved = self.save(events, context).await?;
        context.push(body, saved.commit, saved.end);
        self.send(Update::ToolDone(result));
        Ok(())
    }

    /// Returns the result with the beginning and the end of a long output, and with the whole beside it.
    fn preview(&self, mut result: ToolResult) -> ToolResult {
        let limits = self.settings.limits.context;
        // The results of an answer share half of the room.
        let most =
            limits.tool_output_bytes.min(limits.bytes / 2 / self.answer_calls.max(1)).max(PREVIEW_MIN_BYTES);
        if result.output.get().len() <= most {
            return result;
        }
        let text = result.output.to::<String>();
        let media = if text.is_ok() { "text/plain" } else { "application/json" };
        let text = text.unwrap_or_else(|_| result.output.get().to_owned());
        if text.len() > most {
            result.output = text_json(&shortened(text.clone(), most));
            result.full = Some(FullOutput::text(text).with_media_type(media));
        }
        result
    }

    /// Returns the part of a payload that the log stores. Within the run the model receives the whole payload.
    fn kept<'a>(&self, body: &'a EventPayload) -> Cow<'a, EventPayload> {
        let keep = self.payloads();
        match body {
            EventPayload::AgentToolUse(call)
                if keep != ToolPayloads::Store
                    && matches!(self.mode(&call.name), ToolMode::Direct | ToolMode::Never) =>
            {
                let call = ToolUse::new(call.call.clone(), call.name.clone(), RawJson::empty_object());
                Cow::Owned(EventPayload::AgentToolUse(call.with_omitted(true)))
            }
            EventPayload::AgentToolResult(result) if keep != ToolPayloads::Store => {
                let result = ToolResult::new(result.call.clone(), result.outcome, text_json(""));
                Cow::Owned(EventPayload::AgentToolResult(result.with_omitted(true)))
            }
            _ => Cow::Borrowed(body),
        }
    }

    /// Returns the call that the event of an open call holds.
    async fn call_at(&mut self, open: &OpenCall) -> Result<Option<ToolUse>> {
        call_at(&*self.handle.runtime().storage.sessions, &self.session, open.seq).await
    }

    /// Returns the decision on an open call, if there is one.
    async fn decision(&mut self, open: &OpenCall) -> Result<Option<ToolConfirmation>> {
        let read = ReadEvents::last(64).with_after(open.seq).with_types([EventType::USER_TOOL_CONFIRMATION]);
        for event in self.events(read).await? {
            if let EventPayload::UserToolConfirmation(answer) = event.decode()?
                && answer.action.as_str() == open.call.as_str()
            {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    async fn events(&mut self, read: ReadEvents) -> Result<Vec<Event>> {
        Ok(self.handle.runtime().storage.sessions.history_of(&self.session, read).await?.events)
    }
}

/// Returns the result of a call that is not made.
fn refusal(call: &ToolUse, why: &str) -> ToolResult {
    ToolResult::new(call.call.clone(), ToolOutcome::Error, text_json(why))
}

/// Returns the call that an event of a session's history holds.
pub(crate) async fn call_at(
    sessions: &dyn SessionStore,
    session: &Session,
    seq: Seq,
) -> Result<Option<ToolUse>> {
    let before = Seq::new(seq.get().saturating_sub(1));
    let page = sessions.history_of(session, ReadEvents::first(1).with_after(before)).await?;
    let event = page
        .events
        .first()
        .ok_or_else(|| Error::corrupt(format!("session {}: event {seq} cannot be read", session.id)))?;
    Ok(match event.decode()? {
        EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => Some(call),
        _ => None,
    })
}

/// Part of the input of an `Ask` tool that is shown to a person.
#[derive(Debug, Default, Deserialize)]
struct Question {
    question: Option<String>,
    #[serde(default)]
    choices: Vec<String>,
}

/// Answer of a person in the form that the model receives.
#[derive(Debug, Serialize)]
struct Answered<'a> {
    decision: Decision,
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

fn answered(answer: &ToolConfirmation) -> Answered<'_> {
    Answered { decision: answer.decision, choice: answer.choice.as_deref(), note: answer.note.as_deref() }
}
