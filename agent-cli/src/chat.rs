//! The conversation: what is typed goes to the session, what happens in the session goes to the screen.

use std::collections::{HashSet, VecDeque};
use std::error::Error;
use std::time::Duration;

use agent_core::event::{Body, Event};
use agent_core::model::{Actor, Role, Workspace};
use agent_core::state::{Reason, SessionState};
use agent_core::{DeviceId, RunId, Seq};
use agent_runtime::{AgentRuntime, Input as Said, Run, RunOutcome, SessionHandle, Stored, Update};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::told;
use crate::input::{Input, Reader};
use crate::screen::{Screen, called, gave, spoken};
use crate::stdout;

/// How long it waits for events that are known to be there.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is said to the first Ctrl-C at the prompt.
const AGAIN: &str = "(Ctrl-C again, or Ctrl-D, ends the program)";

/// What the program works on.
pub(crate) struct Place {
    pub(crate) agent: AgentRuntime,
    pub(crate) workspace: Workspace,
    pub(crate) device: DeviceId,
    /// Where the data is, for a person.
    pub(crate) data: String,
}

/// The program while it runs.
pub(crate) struct Chat {
    pub(crate) place: Place,
    pub(crate) handle: SessionHandle,
    pub(crate) screen: Screen,
    reader: Reader,
    events: BoxStream<'static, agent_core::Result<Event>>,
    /// The last event that was shown, or that needed no showing.
    seen: Seq,
    /// What this program did itself, and so need not show again.
    own: Own,
    /// The input that was only stored, and whose answer is awaited.
    awaited: Option<Seq>,
    interrupts: Signal,
    terminations: Signal,
    /// Whether something failed.
    failed: bool,
    /// The exit code with which to end.
    end: Option<u8>,
}

/// What this program did itself.
#[derive(Default)]
pub(crate) struct Own {
    runs: HashSet<RunId>,
    pub(crate) events: HashSet<Seq>,
    /// What was said here, until it comes back as an event.
    said: VecDeque<String>,
}

impl Own {
    fn has(&mut self, event: &Event) -> bool {
        // In a take-over the input is stored before the run begins, and does not name it.
        if let (Some(said), Ok(Body::UserMessage(message))) = (self.said.front(), event.body())
            && *said == message.text
        {
            self.said.pop_front();
            return true;
        }
        let began = |event: &Event| event.transition().ok()??.lease?.map(|lease| lease.run);
        self.events.contains(&event.seq)
            || event.run.or_else(|| began(event)).is_some_and(|run| self.runs.contains(&run))
    }
}

impl Chat {
    pub(crate) fn new(
        place: Place,
        handle: SessionHandle,
        reader: Reader,
        screen: Screen,
    ) -> std::io::Result<Self> {
        let seen = handle.snapshot().head;
        Ok(Self {
            events: handle.follow(seen),
            place,
            handle,
            screen,
            reader,
            seen,
            own: Own::default(),
            awaited: None,
            interrupts: signal(SignalKind::interrupt())?,
            terminations: signal(SignalKind::terminate())?,
            failed: false,
            end: None,
        })
    }

    /// Runs to the end of the input. Returns the exit code.
    pub(crate) async fn run(mut self) -> u8 {
        self.announce().await;
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
                // Pressed while something was done that cannot be cancelled, or a moment after an answer has ended.
                _ = self.interrupts.recv() => if self.screen.is_terminal() {
                    interrupted = true;
                    self.screen.note_above(AGAIN);
                } else {
                    self.end = Some(130);
                },
                _ = self.terminations.recv() => self.end = Some(143),
            }
        }
        let ended = self.place.agent.shutdown(Duration::ZERO).await;
        if let Err(error) = ended.and(self.place.agent.storage().close().await) {
            self.fail(&error);
        }
        self.end.unwrap_or(u8::from(self.failed))
    }

    /// Says where all of it is.
    pub(crate) async fn announce(&mut self) {
        let now = self.handle.snapshot();
        let title = match &now.attributes.title {
            Some(title) => format!(" ({})", title.text),
            None if now.id == self.place.workspace.main_session => " (main)".to_owned(),
            None => String::new(),
        };
        self.screen.note(&format!(
            "workspace {}, session {}{title}, {}, data in {}",
            self.place.workspace.id,
            now.id,
            counted(now.counts.messages(), "message"),
            self.place.data,
        ));
        let waiting = match (&now.lease, now.pending) {
            (Some(lease), _) => {
                let pulse = self.place.agent.storage().sessions.pulse(now.id, lease.epoch).await;
                if pulse.is_ok_and(|pulse| pulse.dead) {
                    "An answer was cut short when its program ended. It is given with your next message, or now with /wake."
                        .to_owned()
                } else {
                    format!("{} answers here at the moment.", lease.holder)
                }
            }
            (None, 0) => return,
            (None, pending) => format!(
                "{} without an answer: given with your next message, or now with /wake.",
                counted(pending, "message")
            ),
        };
        self.screen.note(&waiting);
    }

    /// Goes on with another session.
    pub(crate) async fn go_to(&mut self, handle: SessionHandle) {
        self.seen = handle.snapshot().head;
        self.events = handle.follow(self.seen);
        self.own = Own::default();
        self.handle = handle;
        self.announce().await;
    }

    /// Says what failed.
    pub(crate) fn fail(&mut self, error: &(dyn Error + 'static)) {
        self.refuse(&told(error));
    }

    /// Says why something was not done.
    pub(crate) fn refuse(&mut self, why: &str) {
        self.failed = true;
        self.screen.note(&format!("error: {why}"));
    }

    /// Ends the program.
    pub(crate) fn quit(&mut self) {
        self.end = Some(u8::from(self.failed));
    }

    /// Notes that the last event is this program's own, and shown.
    pub(crate) fn own_head(&mut self) {
        self.own.events.insert(self.handle.snapshot().head);
    }

    async fn line(&mut self, line: String) {
        if line.trim().is_empty() {
            return;
        }
        match line.strip_prefix('/') {
            Some(text) if text.starts_with('/') => self.say(text.to_owned()).await,
            Some(command) => self.command(command).await,
            None => self.say(line).await,
        }
    }

    /// Says something, and shows the answer.
    async fn say(&mut self, text: String) {
        let actor = Actor::named(Role::User, self.place.device.as_str()).unwrap_or(Actor::USER);
        match self.handle.prompt(Said::from(text.as_str()).by(actor)).await {
            Ok(run) => match run.stored().cloned() {
                Some(stored) => self.wait(stored).await,
                None => {
                    self.own.said.push_back(text);
                    self.show(run).await;
                }
            },
            Err(error) => self.fail(&error),
        }
    }

    /// Answers what waits, where nobody else does.
    pub(crate) async fn wake(&mut self) -> agent_core::Result<()> {
        let handle = self.handle.clone();
        let woken = tokio::select! {
            woken = handle.wake() => woken?,
            _ = self.interrupts.recv() => {
                self.screen.note("(not waiting any longer)");
                return Ok(());
            }
            _ = self.terminations.recv() => {
                self.end = Some(143);
                return Ok(());
            }
        };
        match woken {
            Some(run) => self.show(run).await,
            None => self.screen.note("(nothing waits, or another is at it)"),
        }
        Ok(())
    }

    /// Shows a run of this program's own as it goes on.
    pub(crate) async fn show(&mut self, mut run: Run) {
        self.own.runs.extend(run.id());
        loop {
            tokio::select! {
                update = run.next() => match update {
                    Some(Ok(update)) => self.update(update),
                    Some(Err(error)) => self.fail(&error),
                    None => break,
                },
                // What was said so far is stored, then the run ends; the stream says when.
                _ = self.interrupts.recv() => run.cancel(),
                _ = self.terminations.recv() => {
                    self.end = Some(143);
                    run.cancel();
                }
            }
        }
        self.screen.end_answer();
    }

    fn update(&mut self, update: Update) {
        match update {
            Update::Text(piece) => self.screen.answer(&piece),
            Update::ToolCalled(call) => self.screen.note(&called(&call.name, call.input.get())),
            Update::ToolDone(result) => self.screen.note(&gave(result.outcome, result.output.get())),
            Update::NotStored(error) => self.fail(&error),
            Update::Failed(failure) => {
                self.refuse(&format!("the model failed: {}", failure.text));
            }
            Update::Skipped { updates, .. } => {
                self.screen.note(&format!(
                    "({updates} updates are not shown; `chat session show` has what is stored)"
                ));
            }
            Update::Ended(report) if report.outcome == RunOutcome::Interrupted => {
                self.screen.note("(interrupted)");
            }
            Update::Ended(report) if report.outcome == RunOutcome::Completed(Reason::MaxOutput) => {
                self.screen.note("(the answer met a limit of bytes, and was cut there)");
            }
            _ => {}
        }
    }

    /// Waits until an input that was only stored is answered, by whoever it may be.
    async fn wait(&mut self, stored: Stored) {
        self.own.events.insert(stored.seq);
        let Some(holder) = stored.holder.filter(|_| stored.state == SessionState::Running) else {
            self.screen.note(&format!(
                "stored as event {}; the session is {} and answers nothing at the moment",
                stored.seq, stored.state
            ));
            return;
        };
        self.screen.note(&format!(
            "stored as event {}; {holder} is answering at the moment, this is answered next",
            stored.seq
        ));
        self.awaited = Some(stored.seq);
        let handle = self.handle.clone();
        let mut turn = std::pin::pin!(async move { handle.wait_turn().await });
        let answered = loop {
            tokio::select! {
                answered = &mut turn => break Some(answered),
                event = self.events.next() => self.follow(event, false),
                _ = self.interrupts.recv() => {
                    self.screen.note("(not waiting any longer; the message stays, and the next run answers it)");
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
            Some(Ok(None)) => self.catch_up().await,
            Some(Err(error)) => self.fail(&error),
            None => {}
        }
        self.awaited = None;
    }

    /// Shows the events that are known to be there.
    async fn catch_up(&mut self) {
        let head = self.handle.snapshot().head;
        while self.seen < head {
            match tokio::time::timeout(PATIENCE, self.events.next()).await {
                Ok(event) => self.follow(event, false),
                Err(_) => break,
            }
        }
    }

    /// Shows what another did to the session.
    fn follow(&mut self, event: Option<agent_core::Result<Event>>, at_prompt: bool) {
        let event = match event {
            Some(Ok(event)) => event,
            Some(Err(error)) => {
                self.fail(&error);
                self.events = futures::stream::pending().boxed();
                self.seen = Seq::new(u64::MAX);
                return;
            }
            None => {
                self.events = futures::stream::pending().boxed();
                return;
            }
        };
        self.seen = event.seq;
        if self.own.has(&event) {
            return;
        }
        let answers = self.awaited.is_some_and(|awaited| awaited < event.seq);
        match (event.body(), spoken(&event)) {
            (Ok(Body::AgentMessage(message)), _) if answers => {
                self.screen.answer(&message.text);
                self.screen.end_answer();
            }
            (_, Some(line)) if at_prompt => self.screen.note_above(&line),
            (_, Some(line)) => self.screen.note(&line),
            (_, None) => {}
        }
    }
}

/// So many of them, in words.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}
