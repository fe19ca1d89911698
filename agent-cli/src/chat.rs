//! Loop of a conversation: sends input lines to the session, and prints the events of the session.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::error::Error;
use std::time::Duration;

use agent_core::event::{Event, EventPayload, EventType};
use agent_core::model::{Actor, Attributes, Workspace};
use agent_core::search::Hit;
use agent_core::state::{Reason, SessionState};
use agent_core::text::marked;
use agent_core::{DeviceId, RunId, Seq, SessionId, WriteOutcome};
use agent_runtime::{
    AgentRuntime, Conversation, Input as UserInput, Queued, ReachedLimit, Run, RunOutcome, Update,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{Args, user};
use crate::attach::Attachments;
use crate::failure::full_text;
use crate::input::{Input, Reader};
use crate::question::Question;
use crate::screen::{Screen, called, gave, spoken};
use crate::servers::Servers;
use crate::stdout;
use crate::summaries::ModelSummaries;

/// Maximum time to wait for events that are known to exist.
const PATIENCE: Duration = Duration::from_secs(5);

/// Notice after the first Ctrl-C at the prompt.
const AGAIN: &str = "(press Ctrl-C again, or Ctrl-D, to end the program)";

/// Agent of the conversation, on its store.
pub(crate) struct ChatContext {
    pub(crate) agent: AgentRuntime,
    pub(crate) servers: Servers,
    /// Writer of summaries, if there is a model that can write them.
    pub(crate) summaries: Option<ModelSummaries>,
    /// Address of the store, for messages.
    pub(crate) data: String,
}

/// State of the conversation.
pub(crate) struct Chat {
    pub(crate) place: ChatContext,
    /// Options of the command line, with the model that was chosen last.
    pub(crate) args: Args,
    pub(crate) workspace: Workspace,
    pub(crate) device: DeviceId,
    pub(crate) handle: Conversation,
    pub(crate) screen: Screen,
    reader: Reader,
    events: BoxStream<'static, agent_core::Result<Event>>,
    /// Last event that was shown, or did not have to be.
    seen: Seq,
    /// Runs and events of this program, which are not shown again.
    own: Own,
    /// Input that was only queued, and whose answer is awaited.
    awaited: Option<Seq>,
    /// Whether the run has shown a part of its last answer.
    answered: bool,
    /// Question that was shown last.
    pub(crate) asked: Question,
    /// Hits of the last search.
    pub(crate) found: Vec<Hit>,
    /// Files for the next message.
    pub(crate) attachments: Attachments,
    /// Text of the last message, if a file with it could not be stored and nothing was sent.
    pub(crate) unsent: Option<String>,
    interrupts: Signal,
    terminations: Signal,
    /// Whether anything failed that no person has read.
    failed: bool,
    /// Exit code, if the program is to end.
    end: Option<u8>,
    /// Session that another program has put in the place of this one.
    superseded_by: Option<SessionId>,
}

/// Runs and events of this program.
#[derive(Default)]
pub(crate) struct Own {
    runs: HashSet<RunId>,
    pub(crate) events: HashSet<Seq>,
    /// Messages that were sent, until they arrive as events.
    unseen: VecDeque<String>,
}

impl Own {
    fn has(&mut self, event: &Event) -> bool {
        // In a takeover the input is stored before the run begins, and does not name the run.
        if let (Some(unseen), Ok(EventPayload::UserMessage(message))) = (self.unseen.front(), event.decode())
            && *unseen == message.text
        {
            self.unseen.pop_front();
            return true;
        }
        let began = |event: &Event| event.transition().ok()??.lease?.map(|lease| lease.run);
        self.events.contains(&event.seq)
            || event.run.or_else(|| began(event)).is_some_and(|run| self.runs.contains(&run))
    }
}

/// Returns why an answer is not all that the user may expect; `None` if it is. `limit` is the limit that it reached, if that is
/// known.
fn incomplete(reason: Reason, limit: Option<ReachedLimit>, is_answered: bool) -> Option<Cow<'static, str>> {
    if let Some(limit) = limit.filter(|limit| limit.max.is_some()) {
        match reason {
            Reason::MaxTokens | Reason::MaxOutput => {
                return Some(format!("(the answer reached the limit of {limit} and was cut)").into());
            }
            Reason::MaxTurns => {
                return Some(
                    format!("(the run reached the limit of {limit}; your next message goes on)").into(),
                );
            }
            _ => {}
        }
    }
    let why = match reason {
        Reason::MaxTokens => "(the answer reached the model's limit of tokens and was cut)",
        Reason::MaxOutput => "(the answer reached the size limit and was cut)",
        Reason::MaxTurns => {
            "(the run reached its limit of model calls or of tool calls; your next message goes on)"
        }
        Reason::Refusal => "(the model, or a filter of its provider, refused to answer)",
        Reason::EndTurn if !is_answered => "(the model gave an empty answer)",
        _ => return None,
    };
    Some(why.into())
}

impl Chat {
    pub(crate) fn new(
        place: ChatContext,
        args: Args,
        workspace: Workspace,
        device: DeviceId,
        handle: Conversation,
        reader: Reader,
        screen: Screen,
    ) -> std::io::Result<Self> {
        let seen = handle.record().head;
        Ok(Self {
            events: handle.follow(seen),
            place,
            args,
            workspace,
            device,
            handle,
            screen,
            reader,
            seen,
            own: Own::default(),
            awaited: None,
            answered: false,
            asked: Question::default(),
            found: Vec::new(),
            attachments: Attachments::default(),
            unsent: None,
            interrupts: signal(SignalKind::interrupt())?,
            terminations: signal(SignalKind::terminate())?,
            failed: false,
            end: None,
            superseded_by: None,
        })
    }

    /// Runs until the end of the input. Returns the exit code.
    pub(crate) async fn run(mut self) -> u8 {
        self.announce();
        self.greet().await;
        self.waiting().await;
        let mut interrupted = false;
        while self.end.is_none() && !stdout::is_closed() {
            tokio::select! {
                input = self.reader.next() => match input {
                    Input::Line(line) => {
                        interrupted = false;
                        self.line(line).await;
                    }
                    Input::Interrupt if interrupted => self.end = Some(0),
                    Input::Interrupt => {
                        interrupted = true;
                        self.screen.note(AGAIN);
                    }
                    Input::End => self.end = Some(u8::from(self.failed)),
                    Input::Bad(text) => self.refuse(&text),
                    Input::Broken(text) => {
                        self.refuse(&text);
                        self.end = Some(1);
                    }
                },
                event = self.events.next() => self.follow(event, true),
                // Pressed during an operation that cannot be cancelled, or just after the end of an answer.
                _ = self.interrupts.recv() => if self.screen.is_terminal {
                    interrupted = true;
                    self.screen.note_above(AGAIN);
                } else {
                    self.end = Some(130);
                },
                _ = self.terminations.recv() => self.end = Some(143),
            }
            if let Some(branch) = self.superseded_by.take() {
                self.follow_branch(branch).await;
            }
        }
        let ended = self.place.agent.shutdown(Duration::ZERO).await;
        if let Err(error) = ended.and(self.place.agent.storage().close().await) {
            self.fail(&error);
            return self.end.filter(|code| *code != 0).unwrap_or(1);
        }
        self.end.unwrap_or(u8::from(self.failed))
    }

    /// Switches to another session.
    pub(crate) async fn go_to(&mut self, handle: Conversation) {
        self.turn_to(handle);
        self.record_session().await;
        self.announce();
        self.waiting().await;
    }

    /// Reads and follows another session from now on.
    pub(crate) fn turn_to(&mut self, handle: Conversation) {
        self.seen = handle.record().head;
        self.events = handle.follow(self.seen);
        self.own = Own::default();
        self.handle = handle;
    }

    /// Returns who writes the messages.
    pub(crate) fn actor(&self) -> Actor {
        user(&self.device)
    }

    /// Records a message that was sent, so that it is not shown again.
    pub(crate) fn said(&mut self, text: Option<String>) {
        self.own.unseen.extend(text);
    }

    /// Records the session as the one that the device used last, with which the next start continues.
    pub(crate) async fn record_session(&mut self) {
        let bindings = &self.place.agent.storage().bindings;
        if let Err(error) = bindings.set_last_session(&self.device, self.handle.id()).await {
            self.screen.note(&format!(
                "The next start may continue another session: this one could not be recorded for the device: {}",
                full_text(&error)
            ));
        }
    }

    /// Prints an error.
    pub(crate) fn fail(&mut self, error: &(dyn Error + 'static)) {
        self.refuse(&full_text(error));
    }

    /// Prints the reason for a failure.
    pub(crate) fn refuse(&mut self, why: &str) {
        // Who sits at a terminal has read it, and a mistyped command is no failure of the program.
        self.failed |= !self.screen.is_terminal;
        self.screen.error(why);
    }

    /// Ends the program.
    pub(crate) fn quit(&mut self) {
        self.end = Some(u8::from(self.failed));
    }

    /// Records that the last event is of this program, so that it is not shown again.
    pub(crate) fn own_head(&mut self) {
        self.own.events.insert(self.handle.record().head);
    }

    async fn line(&mut self, line: String) {
        if line.trim().is_empty() {
            // Pages of a question come first; then what waits is sent: a text, or attached files without one.
            if !self.next_page() && (self.unsent.is_some() || !self.attachments.is_empty()) {
                let text = self.unsent.take().unwrap_or_default();
                self.send(text).await;
            }
            return;
        }
        match line.strip_prefix('/') {
            Some(text) if text.starts_with('/') => self.send(text.to_owned()).await,
            Some(command) => self.command(command).await,
            None => self.send(line).await,
        }
    }

    /// Sends a message, and shows the answer.
    async fn send(&mut self, text: String) {
        let actor = self.actor();
        let sent = async {
            let message = self.attachments.message(&self.handle, &text).await?;
            self.handle.prompt(UserInput::from(message).with_actor(actor)).await
        };
        let run = match sent.await {
            Ok(run) => run,
            Err(error) => {
                self.fail(&error);
                // One that may be stored is not offered again.
                let is_unknown = error.write_outcome() == WriteOutcome::Unknown;
                if is_unknown {
                    self.attachments.clear();
                    self.unsent = None;
                    self.screen
                        .note("whether the message is stored is not known: /history shows it if it is");
                } else if !self.attachments.is_empty() {
                    let what =
                        if text.is_empty() { "the attached files wait" } else { "its text and files wait" };
                    self.unsent = Some(text).filter(|text| !text.is_empty());
                    self.screen.note(&format!(
                        "the message was not sent; {what}: an empty line sends them, /detach removes the files, and \
                         another text takes the place of this one"
                    ));
                }
                return;
            }
        };
        self.attachments.clear();
        self.unsent = None;
        match run.queued().cloned() {
            Some(queued) => self.wait(queued).await,
            None => {
                self.said(Some(text));
                self.show(run).await;
            }
        }
    }

    /// Answers the pending messages, unless another process is answering.
    pub(crate) async fn run_pending(&mut self) -> agent_core::Result<()> {
        let handle = self.handle.clone();
        if handle.refresh().await?.status.state == SessionState::Suspended {
            handle.resume().await?;
        }
        let run = self.unless_interrupted(async move { handle.run_pending().await }).await;
        let Some(run) = run.transpose()? else { return Ok(()) };
        match run {
            Some(run) => self.show(run).await,
            None => match &self.handle.record().action {
                Some(action) => self.ask(&action.clone()).await,
                None => self.screen.note("(no message waits for an answer, or another process is answering)"),
            },
        }
        Ok(())
    }

    /// Waits for work; returns `None` if the user stops waiting for it, or the program ends.
    pub(crate) async fn unless_interrupted<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            _ = self.interrupts.recv() => {
                self.screen.note("(stopped waiting)");
                None
            }
            _ = self.terminations.recv() => {
                self.end = Some(143);
                None
            }
        }
    }

    /// Shows a run of this program while it runs.
    pub(crate) async fn show(&mut self, mut run: Run) {
        self.own.runs.extend(run.id());
        self.answered = false;
        loop {
            tokio::select! {
                update = run.next() => match update {
                    Some(Ok(update)) => self.update(update).await,
                    Some(Err(error)) => self.fail(&error),
                    None => break,
                },
                // The answer so far is stored, then the run ends, and its stream with it.
                _ = self.interrupts.recv() => run.cancel(),
                _ = self.terminations.recv() => {
                    self.end = Some(143);
                    run.cancel();
                }
            }
        }
        self.screen.end_answer();
        for text in self.place.servers.last_words(&self.place.agent, &self.handle) {
            self.screen.note(&text);
        }
    }

    async fn update(&mut self, update: Update) {
        match update {
            Update::Text(piece) => {
                self.answered |= !piece.trim().is_empty();
                self.screen.answer(&piece);
            }
            Update::Part(part) => {
                self.answered = true;
                if let Some(line) = part.text_view("") {
                    self.screen.note(&marked(&line));
                }
            }
            Update::ToolCalled(call) => self.screen.note(&called(&call.name, call.input.get())),
            Update::ToolDone(result) => {
                // The answer is what comes behind it.
                self.answered = false;
                self.screen.note(&gave(result.outcome, result.output.get()));
            }
            Update::ProviderMessage(text) => self.screen.note(&format!("the provider says: {text}")),
            Update::Compacted { summarized, .. } => self.screen.note(match summarized {
                true => "(the older messages are too long for the model; it is given a summary of them, and the log keeps them)",
                false => "(the older messages are too long for the model and are left out; the log keeps them)",
            }),
            Update::NotStored(error) => self.fail(&error),
            Update::Failed(failure) => {
                self.refuse(&format!("model error: {}", failure.text));
            }
            Update::Retrying { after, fault, .. } => {
                self.screen.note(&format!("(model error: {}; asking again in {:.0?})", fault.text, after));
            }
            Update::Skipped { updates, .. } => {
                self.answered = true;
                self.screen.note(&format!(
                    "({updates} updates were not shown; `chat session show ID` shows the stored messages)"
                ));
            }
            Update::Ended(report) => match &report.outcome {
                RunOutcome::Awaiting(action) => self.ask(action).await,
                RunOutcome::Interrupted => self.screen.note("(interrupted)"),
                RunOutcome::Completed(reason) => {
                    if let Some(why) = incomplete(*reason, report.limit, self.answered) {
                        self.screen.note(&why);
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Waits until an input that was only queued is answered, by any process.
    async fn wait(&mut self, queued: Queued) {
        self.own.events.insert(queued.seq);
        let Some(holder) = queued.holder.filter(|_| queued.state == SessionState::Running) else {
            self.screen.note(&format!(
                "stored as event {}; the session is {} and cannot answer now",
                queued.seq, queued.state
            ));
            self.failed = true;
            let action = self.handle.refresh().await.ok().and_then(|now| now.action.clone());
            if let Some(action) = &action {
                self.ask(action).await;
            }
            return;
        };
        self.screen.note(&format!(
            "stored as event {}; {holder} is answering, and this message is answered next",
            queued.seq
        ));
        self.awaited = Some(queued.seq);
        let handle = self.handle.clone();
        let mut turn = std::pin::pin!(async move { handle.run_when_free().await });
        let answered = loop {
            tokio::select! {
                answered = &mut turn => break Some(answered),
                event = self.events.next() => self.follow(event, false),
                _ = self.interrupts.recv() => {
                    self.screen.note("(stopped waiting; the message is stored, and the next run answers it)");
                    break None;
                }
                _ = self.terminations.recv() => {
                    self.end = Some(143);
                    break None;
                }
            }
        };
        match answered {
            Some(Ok(Some(run))) => {
                self.own.runs.extend(run.id());
                self.catch_up().await;
                self.show(run).await;
            }
            Some(Ok(None)) => {
                self.catch_up().await;
                let status = self.handle.record().status;
                if let Some(why) =
                    incomplete(status.reason, None, true).filter(|_| status.state == SessionState::Idle)
                {
                    self.screen.note(&why);
                }
            }
            Some(Err(error)) => self.fail(&error),
            None => {}
        }
        self.awaited = None;
    }

    /// Shows the events up to the known end of the log.
    async fn catch_up(&mut self) {
        let head = self.handle.record().head;
        while self.seen < head {
            match tokio::time::timeout(PATIENCE, self.events.next()).await {
                Ok(event) => self.follow(event, false),
                Err(_) => break,
            }
        }
    }

    /// Shows an event of another process.
    fn follow(&mut self, event: Option<agent_core::Result<Event>>, at_prompt: bool) {
        let event = match event {
            Some(Ok(event)) => event,
            end => {
                if let Some(Err(error)) = end {
                    self.fail(&error);
                    self.seen = Seq::new(u64::MAX);
                }
                self.events = futures::stream::pending().boxed();
                return;
            }
        };
        self.seen = event.seq;
        if event.kind == EventType::SESSION_UPDATED
            && let Ok(EventPayload::SessionUpdated(patch)) = event.decode()
            && let Some(Some(branch)) = patch.references.get(Attributes::SUPERSEDED_BY)
        {
            self.superseded_by = branch.parse().ok();
        }
        if self.own.has(&event) {
            return;
        }
        let answers = self.awaited.is_some_and(|awaited| awaited < event.seq);
        match (event.decode(), spoken(&event)) {
            (Ok(EventPayload::AgentMessage(message)), _) if answers => {
                self.screen.answer(&message.text_view());
                self.screen.end_answer();
            }
            (_, Some(line)) if at_prompt => self.screen.note_above(&line),
            (_, Some(line)) => self.screen.note(&line),
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_runtime::LimitKind;

    use super::*;

    #[test]
    fn the_line_on_a_cut_answer_names_the_limit() {
        let of = |kind, max| Some(ReachedLimit::new(kind).with_max(max));
        for (reason, limit, line) in [
            (
                Reason::MaxOutput,
                of(LimitKind::TextBytes, 9),
                "(the answer reached the limit of 9 bytes of text in an answer (text_bytes) and was cut)",
            ),
            (
                Reason::MaxTurns,
                of(LimitKind::ToolCalls, 2),
                "(the run reached the limit of 2 tool calls in a run (tool_calls); your next message goes on)",
            ),
            (
                Reason::MaxTokens,
                Some(ReachedLimit::new(LimitKind::MaxTokens)),
                "(the answer reached the model's limit of tokens and was cut)",
            ),
            (Reason::MaxOutput, None, "(the answer reached the size limit and was cut)"),
        ] {
            assert_eq!(incomplete(reason, limit, true).as_deref(), Some(line));
        }
        assert_eq!(incomplete(Reason::EndTurn, None, true), None);
    }
}
