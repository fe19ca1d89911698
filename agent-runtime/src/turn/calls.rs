//! Tool calls of a run: stores the calls, makes them, and stores each result as it arrives.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::agent::fit::{preview, preview_bytes};
use crate::context::ModelContext;
use crate::model::picture::checked;
use crate::model::provider::ToolMode;
use crate::run::report::Update;
use crate::run::spans;
use crate::run::stop::Stopped;
use crate::run::telemetry;
use crate::tool::plugin::ToolContext;
use crate::tool::toolbox::text_json;
use crate::turn::items::{Item, Items};
use crate::turn::state::Driver;
use agent_core::event::{
    Decision, EVENT_MAX_BYTES, Event, EventPayload, EventType, NewEvent, ToolConfirmation, ToolOutcome,
    ToolResult, ToolUse,
};
use agent_core::json::RawJson;
use agent_core::model::{ActionId, ActionKind, OpenCall, PendingAction, ToolPayloads};
use agent_core::session::{OPEN_CALLS_MAX, SessionRecord};
use agent_core::store::ReadEvents;
use agent_core::text::{check_text, marked_name};
use agent_core::{Error, Result, Seq, SessionStore, SessionStoreExt};

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
    /// Stores the items of an answer in one commit, makes the calls that need no answer first, and stores each result as
    /// it arrives.
    pub(super) async fn call_tools(&mut self, said: Items, context: &mut ModelContext) -> Result<After> {
        let shared = self.handle.runtime().shared.clone();
        let calls: Vec<_> = said.calls().cloned().collect();
        let (mut waiting, mut spans) = (None, Vec::new());
        self.answer_calls = calls.len();
        // A record holds so many open calls; the others get their results at once.
        let room = OPEN_CALLS_MAX.saturating_sub(self.session.open_calls.len());
        let (mut made, mut refused) = (Vec::new(), Vec::new());
        for call in &calls {
            match said.faults.get(&call.call) {
                Some(fault) => refused.push(malformed(call, fault)),
                None if made.len() < room => made.push(call),
                None => refused.push(refusal(call, &format!(
                    "not called: at most {OPEN_CALLS_MAX} calls of an answer are open at a time; call it again"
                ))),
            }
        }
        if shared.config.spans {
            let direct = made.iter().filter(|call| self.mode(&call.name) == ToolMode::Direct);
            spans.extend(direct.filter_map(|call| spans::started(call.call.as_str(), &call.name)));
        }
        let bodies = self.bodies(said, &refused);
        let shown = shown_calls(&bodies);
        self.save_answer(bodies, spans, context).await?;
        for call in shown {
            self.send(Update::ToolCalled(call));
        }
        for result in refused {
            self.send(Update::ToolDone(result));
        }
        for call in made {
            let mode = self.mode(&call.name);
            // Nobody is asked about a call that cannot be made; its result says why.
            let refused = (mode == ToolMode::Confirm).then(|| self.tools.refused(call)).flatten();
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

    /// Returns the events of an answer whose calls are not made: each call is followed by a result that says why.
    pub(super) fn uncalled(&self, said: Items, why: &str) -> Vec<EventPayload> {
        let refused: Vec<_> = said.calls().map(|call| denied(call, why)).collect();
        self.bodies(said, &refused)
    }

    /// Stores the items of an answer whose calls are not made.
    pub(super) async fn refuse_calls(
        &mut self,
        said: Items,
        why: &str,
        context: &mut ModelContext,
    ) -> Result<()> {
        let bodies = self.uncalled(said, why);
        let shown = shown_calls(&bodies);
        self.save_answer(bodies, Vec::new(), context).await?;
        for call in shown {
            let result = denied(&call, why);
            self.send(Update::ToolCalled(call));
            self.send(Update::ToolDone(result));
        }
        Ok(())
    }

    /// Returns the events of an answer: its items, each call that is refused followed by its result, and its end.
    fn bodies(&self, said: Items, refused: &[ToolResult]) -> Vec<EventPayload> {
        let mut bodies = Vec::new();
        for item in said.items {
            match item {
                Item::Said(body) => bodies.push(body),
                Item::Call(call) => match refused.iter().find(|result| result.call == call.call) {
                    Some(result) => {
                        bodies.push(EventPayload::AgentToolUse(self.shown(&call)));
                        bodies.push(EventPayload::AgentToolResult(result.clone()));
                    }
                    None if self.mode(&call.name) == ToolMode::Outside => {
                        bodies.push(EventPayload::AgentCustomToolUse(self.shown(&call)));
                    }
                    None => bodies.push(EventPayload::AgentToolUse(self.shown(&call))),
                },
            }
        }
        bodies.extend(said.response.map(EventPayload::AgentResponse));
        bodies
    }

    /// Stores the items of an answer in one commit, followed by the starts of its spans.
    async fn save_answer(
        &mut self,
        said: Vec<EventPayload>,
        spans: Vec<NewEvent>,
        context: &mut ModelContext,
    ) -> Result<()> {
        let events = self.kept_events(&said);
        let saved = self.save(events.into_iter().chain(spans).collect(), context).await?;
        for body in said {
            context.push(body, saved.commit, saved.end);
        }
        Ok(())
    }

    /// Returns the events of an answer as the log keeps them. If it keeps less than the run, later requests give the
    /// answer as text and calls.
    pub(super) fn kept_events(&self, said: &[EventPayload]) -> Vec<NewEvent> {
        let mut is_whole = true;
        let mut events = Vec::with_capacity(said.len());
        for body in said {
            if !self.is_stored(body) {
                is_whole = false;
                continue;
            }
            let kept = self.kept(body);
            is_whole &= matches!(kept, Cow::Borrowed(_));
            events.push(match body {
                EventPayload::AgentResponse(response) if !is_whole => {
                    let mut response = response.clone();
                    response.given = None;
                    NewEvent::of(&EventPayload::AgentResponse(response))
                }
                _ => NewEvent::of(&kept),
            });
        }
        events
    }

    /// Returns whether the log keeps an item at all; reasoning that it does not keep is kept for the run.
    pub(super) fn is_stored(&self, body: &EventPayload) -> bool {
        self.settings.store_thinking || !matches!(body, EventPayload::AgentThinking(_))
    }

    /// Returns the call as it is stored and as a model is shown it: without the values of secrets.
    fn shown(&self, call: &ToolUse) -> ToolUse {
        let input = self.handle.runtime().redact_json(call.input.clone());
        let native = call.native.clone().filter(|_| input == call.input);
        let mut shown = ToolUse::new(call.call.clone(), call.name.clone(), input);
        let redact = |text: &String| self.handle.runtime().redact(text).into_owned();
        shown.malformed = call.malformed.as_ref().map(redact);
        (shown.native, shown.part) = (native, call.part);
        shown
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
            let storage = runtime.storage.clone();
            let for_whom = ToolContext::new(session, self.run, call.call.clone(), storage)
                .with_secrets(runtime.secrets.clone())
                .with_output_bytes(self.preview_bytes());
            let (policies, time) = (&self.settings.tool_policies, self.settings.limits.tool_timeout);
            let work = self.tools.call(call, for_whom, policies, time);
            let work = telemetry::execute_tool(session.id, call, self.tools.has(&call.name), work);
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
        let kind = match mode {
            ToolMode::Direct | ToolMode::Never => return None,
            ToolMode::Confirm => ActionKind::ToolConfirmation,
            ToolMode::Outside => ActionKind::ToolResult,
            ToolMode::Ask => ActionKind::Approval,
        };
        // Redacted before it is shortened, because a part of a secret value is not recognized.
        let call = &self.shown(call);
        let asked: Question = match mode {
            ToolMode::Ask => call.input.to().unwrap_or_default(),
            _ => Question::default(),
        };
        let sentence =
            self.tools.question(call).map(|sentence| marked_name(&self.redacted(&sentence)).into_owned());
        let whole = || PendingAction::about_call(kind, &call.name, &call.input);
        let question = sentence.or(asked.question).unwrap_or_else(whole);
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
        let runtime = self.handle.runtime();
        result.output = runtime.redact_json(result.output);
        result.structured = result.structured.map(|structured| runtime.redact_json(structured));
        result.content.iter_mut().for_each(checked);
        result.content = result.content.iter().map(|part| self.redacted_part(part)).collect();
        result = self.preview(result);
        let mut event = NewEvent::of(&self.kept(&EventPayload::AgentToolResult(result.clone())));
        // A text takes more bytes as JSON, and the preview is beside it. A blob takes the whole out of the event.
        let most = self.handle.runtime().blob_max_bytes();
        let is_blob = result.full.as_ref().is_some_and(|full| full.bytes <= most);
        if event.payload.get().len() > EVENT_MAX_BYTES && !is_blob {
            result = too_large(&result, event.payload.get().len());
            event = NewEvent::of(&EventPayload::AgentToolResult(result.clone()));
        }
        let mut events = vec![event];
        if span {
            events.extend(spans::completed(result.call.as_str(), result.outcome));
        }
        let saved = self.save(events, context).await?;
        self.send(Update::ToolDone(result.clone()));
        context.push(EventPayload::AgentToolResult(result), saved.commit, saved.end);
        Ok(())
    }

    /// Returns the result with the beginning and the end of a long output, and with the whole beside it.
    fn preview(&self, result: ToolResult) -> ToolResult {
        let runtime = self.handle.runtime();
        // Of an output that the log omits there is no blob.
        let reads_outputs = self.payloads() == ToolPayloads::Store
            && self.tools.reads_outputs(&self.settings.tool_policies)
            && result.output.get().len() as u64 <= runtime.blob_max_bytes();
        preview(result, self.preview_bytes(), reads_outputs)
    }

    fn preview_bytes(&self) -> usize {
        preview_bytes(&self.settings.limits.context, self.answer_calls)
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
        // A newer decision, or the end of the session, is met by the next commit.
        let read = read.with_known_head(self.session.head);
        Ok(self.handle.runtime().storage.sessions.history_of(&self.session, read).await?.events)
    }
}

/// Returns the calls of an answer as they are stored.
fn shown_calls(bodies: &[EventPayload]) -> Vec<ToolUse> {
    let call = |body: &EventPayload| match body {
        EventPayload::AgentToolUse(call) | EventPayload::AgentCustomToolUse(call) => Some(call.clone()),
        _ => None,
    };
    bodies.iter().filter_map(call).collect()
}

/// Returns the result of a call whose output does not fit in an event.
fn too_large(result: &ToolResult, size: usize) -> ToolResult {
    let why = format!(
        "the output takes {size} bytes in the log, more than the {EVENT_MAX_BYTES} that an event holds, and the store has \
         no blob for it; the call was made, and its output is lost"
    );
    ToolResult::new(result.call.clone(), ToolOutcome::Error, text_json(&why))
}

/// Returns the result of a call that is not made.
fn refusal(call: &ToolUse, why: &str) -> ToolResult {
    ToolResult::new(call.call.clone(), ToolOutcome::Error, text_json(why))
}

/// Returns the result of a call whose input is no JSON object.
fn malformed(call: &ToolUse, fault: &str) -> ToolResult {
    let why =
        format!("not called: the arguments are no JSON object ({fault}); call it again with a whole one");
    ToolResult::new(call.call.clone(), ToolOutcome::Error, text_json(&why))
}

/// Returns the result of a call of an answer that was cut.
fn denied(call: &ToolUse, why: &str) -> ToolResult {
    ToolResult::new(call.call.clone(), ToolOutcome::Denied, text_json(why))
}

/// Returns the call that an event of a session's history holds.
pub(crate) async fn call_at(
    sessions: &dyn SessionStore,
    session: &SessionRecord,
    seq: Seq,
) -> Result<Option<ToolUse>> {
    let before = Seq::new(seq.get().saturating_sub(1));
    let read = ReadEvents::first(1).with_after(before).with_known_head(session.head);
    let page = sessions.history_of(session, read).await?;
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
