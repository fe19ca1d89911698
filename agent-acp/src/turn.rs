//! Turn of a session: from a prompt, or from the answer to a permission request, to the end of the work.

use std::borrow::Cow;
use std::pin::pin;

use agent_client_protocol::v1::{ConnectionTo, schema};
use agent_client_protocol::{Client, Error, Result};
use agent_core::ErrorKind;
use agent_core::event::{Decision, ToolConfirmation, ToolUse};
use agent_core::model::{ActionKind, CallId, PendingAction};
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::text::{marked, marked_name};
use agent_runtime::{Conversation, Live, Queued, ReachedLimit, Run, RunError, RunOutcome, RunReport, Update};
use futures::StreamExt;
use schema::{
    ContentBlock, PermissionOption, PermissionOptionKind, PromptResponse, RequestPermissionOutcome,
    StopReason,
};
use serde_json::json;
use tracing::debug;

use crate::meta::meta;
use crate::open::TurnPermit;
use crate::servers::OfferedTool;
use crate::updates::{Updates, value};
use crate::{content, fault};

/// Id of the option that allows a call once; one of several choices has its number behind it.
const ALLOW: &str = "allow";
/// Id of the option that allows all calls of a tool while it is what it is now.
const ALWAYS: &str = "allow-always";
/// Id of the option that refuses a call once.
const REJECT: &str = "reject";

/// Answer to a permission request.
enum Permission {
    /// With the tool, if later calls are allowed, too.
    Given(ToolConfirmation, Option<Box<OfferedTool>>),
    Cancelled,
    /// Somebody else has answered, or the question is gone.
    Elsewhere,
    /// The client is gone; the session goes on waiting.
    Gone,
}

/// Sends a prompt, and streams what follows until the turn ends.
pub(crate) async fn prompt(
    turn: TurnPermit,
    client: &ConnectionTo<Client>,
    blocks: Vec<ContentBlock>,
) -> Result<PromptResponse> {
    let chat = open(&turn).await?;
    let message = content::message(&chat, blocks).await?;
    let mut turn = Open::new(&turn, client, &chat);
    if let Some(action) = chat.record().action.clone().filter(|_| waits_for_permission(&chat.record())) {
        // The question of an earlier turn, which the client has not answered: before that, nothing is stored.
        let answered = turn.finish(Ended::Awaiting(action)).await?;
        if answered.stop_reason == StopReason::Cancelled {
            return Ok(answered);
        }
    }
    let is_cut_off = !chat.record().open_calls.is_empty();
    let run = chat.prompt(message).await.map_err(turn.of_store())?;
    if is_cut_off {
        // The run that takes over stores the results of these calls before it begins.
        turn.updates.results().await?;
    }
    let ended = turn.follow(run).await?;
    turn.finish(ended).await
}

/// Asks again for the permission that the session waits for, and streams what follows.
pub(crate) async fn ask_again(turn: TurnPermit, client: &ConnectionTo<Client>) {
    let asked = async {
        let chat = open(&turn).await?;
        let Some(action) = chat.record().action.clone() else { return Ok(()) };
        let mut turn = Open::new(&turn, client, &chat);
        turn.finish(Ended::Awaiting(action)).await.map(drop)
    };
    if let Err(error) = asked.await {
        debug!(session = %turn.session, ?error, "the session goes on waiting for an answer");
    }
}

async fn open(turn: &TurnPermit) -> Result<Conversation> {
    let agent = &turn.open.options.agent;
    agent.conversation_by_id(turn.session).await.map_err(fault::of_store(Some(turn.session)))
}

/// End of a run, or of the wait for one.
enum Ended {
    Stopped(StopReason),
    Awaiting(PendingAction),
}

/// Turn with what it streams.
struct Open<'a> {
    turn: &'a TurnPermit,
    client: &'a ConnectionTo<Client>,
    chat: &'a Conversation,
    updates: Updates<'a>,
    title: Option<String>,
}

impl<'a> Open<'a> {
    fn new(turn: &'a TurnPermit, client: &'a ConnectionTo<Client>, chat: &'a Conversation) -> Self {
        let seen = chat.record().head;
        let updates = Updates::new(client, &turn.open, chat, seen);
        Self { turn, client, chat, updates, title: title(chat) }
    }

    fn of_store(&self) -> impl Fn(agent_core::Error) -> Error + use<> {
        fault::of_store(Some(self.turn.session))
    }

    /// Asks for each permission that the work needs, until it ends.
    async fn finish(&mut self, mut ended: Ended) -> Result<PromptResponse> {
        let response = loop {
            let action = match ended {
                Ended::Stopped(reason) => break PromptResponse::new(reason),
                Ended::Awaiting(action) => action,
            };
            if !is_permission(&action) {
                // The result comes from outside; a run goes on with it, which may be one of another process.
                let awaits = json!({ "awaits": action.id.as_str() });
                break PromptResponse::new(StopReason::EndTurn).meta(meta(&awaits));
            }
            let permission = tokio::select! {
                permission = self.permission(&action) => permission?,
                () = self.answered_elsewhere(&action) => Permission::Elsewhere,
            };
            let run = match permission {
                Permission::Given(answer, always) => {
                    if let Some(tool) = always {
                        let servers = &self.turn.open.options.servers;
                        servers.always_allow(self.chat, &tool).await.map_err(self.of_store())?;
                    }
                    self.answer(&action, answer).await?
                }
                Permission::Elsewhere => {
                    ended = self.follow_others().await?;
                    continue;
                }
                Permission::Gone => break PromptResponse::new(StopReason::Cancelled),
                Permission::Cancelled => {
                    self.chat.interrupt().await.map_err(self.of_store())?;
                    self.updates.catch_up().await?;
                    None
                }
            };
            ended = match run {
                Some(run) => self.follow(run).await?,
                None => Ended::Stopped(StopReason::Cancelled),
            };
        };
        let now = title(self.chat);
        if now != self.title {
            self.updates.title(now.as_deref()).await;
        }
        Ok(response)
    }

    /// Streams a run to its end. A cancelled turn cancels the run, which then stores what it has.
    async fn follow(&mut self, run: Run) -> Result<Ended> {
        if let Some(queued) = run.queued().cloned() {
            return self.wait(&queued).await;
        }
        let canceller = run.canceller();
        let turn = self.turn;
        let cancel = async {
            turn.cancelled().await;
            canceller.cancel();
            std::future::pending::<()>().await;
        };
        let read = self.read(run);
        let ended = tokio::select! {
            ended = read => ended,
            () = cancel => return Err(Error::internal_error()),
        };
        self.updates.fill_gap().await?;
        self.ended(ended, self.updates.is_answered).await
    }

    async fn read(&mut self, mut run: Run) -> Result<RunReport, RunError> {
        self.updates.is_answered = false;
        let mut is_first = true;
        while let Some(update) = run.next().await {
            let update = update?;
            if std::mem::take(&mut is_first) && !matches!(update, Update::Started { .. }) {
                // Another client gave the same answer first, and has the beginning of the run.
                self.updates.joined_late();
            }
            match update {
                Update::Ended(report) => return Ok(*report),
                update => self.updates.of_run(update).await,
            }
        }
        // Says that the run was lost.
        run.finish().await
    }

    /// Waits for the answer to an input that another run gives. Sends what happens meanwhile, as it happens.
    async fn wait(&mut self, queued: &Queued) -> Result<Ended> {
        let (turn, mut live) = (self.turn, self.updates.live());
        let mut waiting = pin!(self.chat.wait_for_answer(queued));
        let answered = loop {
            // Nothing is dropped while it is sent.
            tokio::select! {
                answered = &mut waiting => break answered,
                () = turn.cancelled() => return self.interrupted().await,
                Some(Ok(live)) = live.next() => self.updates.of_live(live).await.map_err(self.of_store())?,
            }
        };
        self.updates.catch_up().await?;
        self.ended(answered, true).await
    }

    /// Discards what a cancelled turn waits for. If the client is gone, the session goes on waiting.
    async fn interrupted(&self) -> Result<Ended> {
        if !self.turn.is_gone() {
            self.chat.interrupt().await.map_err(self.of_store())?;
        }
        Ok(Ended::Stopped(StopReason::Cancelled))
    }

    /// Waits until the session does not wait for this answer any more.
    async fn answered_elsewhere(&self, action: &PendingAction) {
        let waits = |now: &SessionRecord| now.action.as_ref().is_some_and(|waiting| waiting.id == action.id);
        let Ok(now) = self.chat.refresh().await else { return std::future::pending().await };
        let (mut now, mut events) = (now.clone(), self.chat.follow(now.head));
        while waits(&now) {
            let event = events.next().await;
            match self.chat.refresh().await {
                Ok(read) if matches!(event, Some(Ok(_))) => now = read,
                // The client can still answer.
                _ => return std::future::pending().await,
            }
        }
    }

    /// Waits for the end of what somebody else's answer began, and sends it as it happens.
    async fn follow_others(&mut self) -> Result<Ended> {
        let (turn, mut events) = (self.turn, self.updates.live());
        let mut now = self.chat.refresh().await.map_err(self.of_store())?;
        while now.status.state == SessionState::Running {
            let live = tokio::select! {
                live = events.next() => live,
                () = turn.cancelled() => return self.interrupted().await,
            };
            let Some(live) = live else { return Ok(Ended::Stopped(StopReason::Cancelled)) };
            let live = live.map_err(self.of_store())?;
            let is_event = matches!(live, Live::Event(_));
            self.updates.of_live(live).await.map_err(self.of_store())?;
            if is_event {
                now = self.chat.refresh().await.map_err(self.of_store())?;
            }
        }
        self.updates.catch_up().await?;
        Ok(match now.action.clone() {
            Some(action) => Ended::Awaiting(action),
            None => Ended::Stopped(StopReason::EndTurn),
        })
    }

    /// Returns how a run ended; tells the person why an answer is not all that they may expect.
    async fn ended(&mut self, ended: Result<RunReport, RunError>, is_answered: bool) -> Result<Ended> {
        let report = ended.map_err(|error| fault::run(&error, self.turn.session))?;
        Ok(match report.outcome {
            RunOutcome::Completed(reason) => {
                if let Some(why) = incomplete(reason, report.limit, is_answered) {
                    self.updates.notice(&why).await;
                }
                Ended::Stopped(stop_reason(reason))
            }
            RunOutcome::Awaiting(action) => Ended::Awaiting(action),
            RunOutcome::Failed(_) if self.turn.is_cancelled() => Ended::Stopped(StopReason::Cancelled),
            RunOutcome::Failed(_) => return Err(fault::failed(&report)),
            _ => Ended::Stopped(StopReason::Cancelled),
        })
    }

    /// Stores an answer, and starts the run that goes on with it.
    async fn answer(&mut self, action: &PendingAction, answer: ToolConfirmation) -> Result<Option<Run>> {
        let is_allowed = answer.decision == Decision::Allow;
        match self.chat.answer_and_run(answer).await {
            Ok(run) => {
                if let (true, Ok(call)) = (is_allowed, action.id.as_str().parse::<CallId>()) {
                    self.updates.allowed(&call).await;
                }
                Ok(Some(run))
            }
            Err(error) if matches!(error.kind(), ErrorKind::Expired { .. }) => {
                self.chat.run_pending().await.map_err(self.of_store())
            }
            Err(error) => Err(self.of_store()(error)),
        }
    }

    /// Asks the client whether a call may be made, or which choice a question gets.
    async fn permission(&self, action: &PendingAction) -> Result<Permission> {
        let turn = self.turn;
        let call = self.chat.pending_call().await.map_err(self.of_store())?;
        // Another call, if somebody else has answered meanwhile.
        let call = call.filter(|call| call.call.as_str() == action.id.as_str());
        let title = marked_name(action.tool.as_ref().unwrap_or(&action.question)).into_owned();
        let mut fields = schema::ToolCallUpdateFields::new()
            .status(schema::ToolCallStatus::Pending)
            .title(title)
            .content(vec![content::text(&shown(action, call.as_ref())).into()]);
        if let Some(call) = call {
            fields = fields.raw_input(value(&call.input));
        }
        let options = &turn.open.options;
        let offered = options.servers.asked(&options.agent, self.chat).await;
        let about = schema::ToolCallUpdate::new(action.id.as_str().to_owned(), fields);
        let options = choices(action, offered.is_some());
        let request = schema::RequestPermissionRequest::new(turn.session.to_string(), about, options);
        let outcome = tokio::select! {
            biased;
            () = turn.cancelled() => {
                return Ok(if turn.is_gone() { Permission::Gone } else { Permission::Cancelled });
            }
            response = self.client.send_request(request).block_task() => match response {
                Ok(response) => response.outcome,
                Err(_) if turn.is_gone() => return Ok(Permission::Gone),
                Err(error) => {
                    let text = format!(
                        "session {} waits for an answer to {}, and the client could not ask for it ({}); load the \
                         session again to be asked again",
                        turn.session, action.id, error.message
                    );
                    return Err(fault::refused(turn.session, text));
                }
            },
        };
        match outcome {
            RequestPermissionOutcome::Selected(chosen) => self.given(action, &chosen.option_id.0, offered),
            _ => Ok(Permission::Cancelled),
        }
    }

    /// Returns the answer that the client chose by the id of an option.
    fn given(
        &self,
        action: &PendingAction,
        chosen: &str,
        offered: Option<OfferedTool>,
    ) -> Result<Permission> {
        let answer = |decision| ToolConfirmation::new(action.id.clone(), decision);
        let choice =
            chosen.strip_prefix("allow/").and_then(|at| action.choices.get(at.parse::<usize>().ok()?));
        Ok(match (chosen, choice) {
            (REJECT, _) => Permission::Given(answer(Decision::Deny), None),
            (ALLOW, _) if action.choices.is_empty() => Permission::Given(answer(Decision::Allow), None),
            (ALWAYS, _) if action.choices.is_empty() && offered.is_some() => {
                Permission::Given(answer(Decision::Allow), offered.map(Box::new))
            }
            (_, Some(choice)) => Permission::Given(answer(Decision::Allow).with_choice(choice), None),
            _ => {
                let session = self.turn.session;
                let text = format!(
                    "session {session}: {chosen:?} is none of the options of the permission request for {}; load the \
                     session again to be asked again",
                    action.id
                );
                return Err(fault::refused(session, text));
            }
        })
    }
}

/// Returns what a person consents to: the whole call, as it stands in the log, with marks in place of characters that
/// nobody sees. The question of the action is shortened; if it is more than the call, it stands before it.
fn shown(action: &PendingAction, call: Option<&ToolUse>) -> String {
    let is_call = call.is_some_and(|call| {
        action.question == PendingAction::about_call(action.kind, &call.name, &call.input)
    });
    let call = call.map(|call| format!("{} {}", marked_name(&call.name), marked(call.input.get())));
    match call {
        Some(call) if is_call => call,
        Some(call) => format!("{}\n\n{call}", marked(&action.question)),
        None => marked(&action.question).into_owned(),
    }
}

/// Returns the options for an action. Only for a tool of a server there is one that holds for later calls, because the
/// runtime keeps no such rule for others.
fn choices(action: &PendingAction, is_of_server: bool) -> Vec<PermissionOption> {
    let mut options = Vec::with_capacity(action.choices.len() + 3);
    if action.choices.is_empty() {
        options.push(PermissionOption::new(ALLOW, "Allow", PermissionOptionKind::AllowOnce));
        if is_of_server {
            options.push(PermissionOption::new(ALWAYS, "Always allow", PermissionOptionKind::AllowAlways));
        }
    }
    for (at, choice) in action.choices.iter().enumerate() {
        let id = format!("{ALLOW}/{at}");
        options.push(PermissionOption::new(id, marked_name(choice), PermissionOptionKind::AllowOnce));
    }
    options.push(PermissionOption::new(REJECT, "Reject", PermissionOptionKind::RejectOnce));
    options
}

/// Returns whether a session waits for the answer to a permission request.
pub(crate) fn waits_for_permission(session: &SessionRecord) -> bool {
    session.status.state == SessionState::RequiresAction && session.action.as_ref().is_some_and(is_permission)
}

const fn is_permission(action: &PendingAction) -> bool {
    matches!(action.kind, ActionKind::ToolConfirmation | ActionKind::Approval)
}

fn title(chat: &Conversation) -> Option<String> {
    chat.record().attributes.title.as_ref().map(|title| title.text.clone())
}

/// Returns why an answer is not all that a person may expect; `None` if it is. Clients do not show every stop reason.
fn incomplete(reason: Reason, limit: Option<ReachedLimit>, is_answered: bool) -> Option<Cow<'static, str>> {
    if let Some(limit) = limit.filter(|limit| limit.max.is_some()) {
        match reason {
            Reason::MaxTokens | Reason::MaxOutput => {
                return Some(format!("The answer reached the limit of {limit} and was cut.").into());
            }
            Reason::MaxTurns => {
                return Some(
                    format!("The run reached the limit of {limit}; the next message goes on.").into(),
                );
            }
            _ => {}
        }
    }
    let why = match reason {
        Reason::MaxTokens => "The answer reached the model's limit of tokens and was cut.",
        Reason::MaxOutput => "The answer reached the size limit and was cut.",
        Reason::MaxTurns => {
            "The run reached its limit of model calls or of tool calls; the next message goes on."
        }
        Reason::Refusal => "The model, or a filter of its provider, refused to answer.",
        Reason::EndTurn if !is_answered => "The model gave an empty answer.",
        _ => return None,
    };
    Some(why.into())
}

const fn stop_reason(reason: Reason) -> StopReason {
    match reason {
        Reason::MaxTokens | Reason::MaxOutput => StopReason::MaxTokens,
        Reason::MaxTurns => StopReason::MaxTurnRequests,
        Reason::Refusal => StopReason::Refusal,
        _ => StopReason::EndTurn,
    }
}
