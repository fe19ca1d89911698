//! Commands that put a branch in the place of the conversation: another message, another answer, an earlier point. And its title, its model,
//! its last answer.

use std::sync::Arc;
use std::time::Duration;

use agent_core::event::{EventPayload, EventType};
use agent_core::model::Actor;
use agent_core::session::SessionRecord;
use agent_core::store::ReadEvents;
use agent_core::text::marked;
use agent_core::{Seq, SessionId, SessionStoreExt, Sessions};
use agent_runtime::{Conversation, ConversationRun, ToolMode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::chat::Chat;
use crate::failure::{Failure, Result};
use crate::open::agent_on;
use crate::screen::{counted, cut};
use crate::servers::Servers;
use crate::stdout;
use crate::zone::Zone;

/// Number of branches that are listed.
const BRANCHES: usize = 50;

/// Maximum bytes of an answer that is copied; terminals ignore longer ones.
const COPIED_MAX_BYTES: usize = 100_000;

/// Returns whether an event is in the history that is shown.
fn is_visible(now: &SessionRecord, event: Seq) -> bool {
    now.visible_from < event && event <= now.head
}

/// Forks a session at an event, or at its last one, in the name of whoever asked for it.
pub(crate) async fn fork(
    sessions: &Sessions,
    id: SessionId,
    at: Option<Seq>,
    creator: Actor,
) -> agent_core::Result<Arc<SessionRecord>> {
    let now = sessions.load(id).await?;
    let new = sessions.plan_fork(&now, sessions.effects().new_session_id(), at).await?;
    sessions.create(new.with_creator(creator)).await
}

impl Chat {
    /// Sends another message in the place of message `#N`, or of the last one.
    pub(crate) async fn edit(&mut self, what: &str) -> agent_core::Result<()> {
        let numbered = what.strip_prefix('#').and_then(|rest| {
            let (number, text) = rest.split_once(char::is_whitespace)?;
            Some((number.parse().ok().map(Seq::new)?, text.trim()))
        });
        let now = self.handle.refresh().await?;
        let (message, text) = numbered.unwrap_or((now.last_input, what));
        if numbered.is_some() && !is_visible(&now, message) {
            return self.refuse_number(message, "edit").await;
        }
        if message <= now.visible_from {
            self.refuse("there is no message to edit");
            return Ok(());
        }
        let input = agent_runtime::Input::from(text).with_actor(self.actor());
        let edited = self.handle.edit(message, input).await?;
        self.show_branch(edited, Some(text.to_owned())).await;
        Ok(())
    }

    /// Asks for another answer to the last message.
    pub(crate) async fn retry(&mut self) -> agent_core::Result<()> {
        let again = self.handle.retry().await?;
        self.show_branch(again, None).await;
        Ok(())
    }

    /// Goes back to before the last message.
    pub(crate) async fn undo(&mut self) -> agent_core::Result<()> {
        let said = self.last_text(EventType::USER_MESSAGE).await?;
        let branch = self.handle.undo().await?;
        self.move_to(branch).await;
        if let Some(said) = said {
            self.screen.note(&format!("(taken back: {})", cut(&marked(&said))));
        }
        Ok(())
    }

    /// Goes back to after the message or the answer of an event.
    pub(crate) async fn rewind(&mut self, number: &str) -> agent_core::Result<()> {
        let Ok(to) = number.trim_start_matches('#').parse().map(Seq::new) else {
            self.refuse("name the number of a message, as /history shows it: /rewind N");
            return Ok(());
        };
        let now = self.handle.refresh().await?;
        if !is_visible(&now, to) {
            return self.refuse_number(to, "go back to").await;
        }
        let read = ReadEvents::last(1).with_before(to.next());
        let page = self.handle.history(read).await?;
        let said = [EventType::USER_MESSAGE, EventType::AGENT_MESSAGE];
        if !page.events.iter().any(|event| event.seq == to && said.contains(&event.kind)) {
            return self.refuse_number(to, "go back to").await;
        }
        let branch = self.handle.rewind(to).await?;
        self.move_to(branch).await;
        self.screen.note(&format!("(the conversation goes on after #{to}; /branches lists what was there)"));
        Ok(())
    }

    /// Refuses the number of a message, and says which there are.
    async fn refuse_number(&mut self, number: Seq, doing: &str) -> agent_core::Result<()> {
        let (now, sessions) = (self.handle.refresh().await?, self.place.agent.storage().sessions.clone());
        let said = [EventType::USER_MESSAGE, EventType::AGENT_MESSAGE];
        let mut ends = Vec::new();
        for read in [ReadEvents::first(1), ReadEvents::last(1)] {
            let page =
                sessions.history_of(&now, read.with_after(now.visible_from).with_types(said.clone())).await?;
            ends.extend(page.events.first().map(|event| event.seq));
        }
        match ends.as_slice() {
            [first, last] => self.refuse(&format!(
                "there is no message #{number}; the messages of this conversation are among #{first} to #{last}, as /history shows them"
            )),
            _ => self.refuse(&format!("there is no message to {doing}")),
        }
        Ok(())
    }

    /// Lists the branches that this conversation has superseded.
    pub(crate) async fn branches(&mut self) -> agent_core::Result<()> {
        let (branches, zone) = (self.handle.branches(BRANCHES).await?, Zone::now());
        for (number, branch) in (1..).zip(&branches) {
            self.screen.line(&format!(
                "{number:>4}  {}  {:>12}  {}",
                zone.minute(branch.last_active_at),
                counted(branch.counts.messages(), "message"),
                branch.preview.as_deref().unwrap_or_default(),
            ));
        }
        if branches.is_empty() {
            self.screen.line("(no branches: nothing was edited, retried or taken back)");
        }
        Ok(())
    }

    /// Continues a branch in the place of the conversation.
    pub(crate) async fn restore(&mut self, number: &str) -> agent_core::Result<()> {
        let branches = self.handle.branches(BRANCHES).await?;
        let number = number.trim_start_matches('#').parse::<usize>().ok();
        let Some(branch) = number.and_then(|number| branches.get(number.checked_sub(1)?)) else {
            let there = match branches.len() {
                0 => "there is none yet".to_owned(),
                count => format!("those of 1 to {count} are there, as /branches lists them"),
            };
            self.refuse(&format!("name the number of a branch: /restore N; {there}"));
            return Ok(());
        };
        let restored = self.handle.restore(branch.id).await?;
        self.move_to(restored).await;
        Ok(())
    }

    /// Shows the title, or sets another one.
    pub(crate) async fn title(&mut self, title: &str) -> agent_core::Result<()> {
        if title.is_empty() {
            let now = self.handle.refresh().await?;
            let shown = match (&now.attributes.title, &now.first_words) {
                (Some(title), _) => title.text.clone(),
                (None, Some(words)) => format!(
                    "{words} (its first words; /title TEXT sets a title, /title auto lets the model write one)"
                ),
                (None, None) => "(no title; /title TEXT sets one)".to_owned(),
            };
            self.screen.line(&shown);
            return Ok(());
        }
        if title == "auto" {
            return self.generated_title().await;
        }
        self.handle.set_title(title).await?;
        self.own_head();
        self.screen.note(&format!("(the title is {})", cut(&marked(title))));
        Ok(())
    }

    /// Lets the model write the title.
    async fn generated_title(&mut self) -> agent_core::Result<()> {
        let Some(model) = self.place.summaries.as_ref().map(|summaries| summaries.0.clone()) else {
            self.refuse("the offline model writes no titles: type /title TEXT");
            return Ok(());
        };
        let handle = self.handle.clone();
        let Some(title) = self.unless_interrupted(async move { handle.generate_title(&*model).await }).await
        else {
            return Ok(());
        };
        match title? {
            Some(title) => {
                self.own_head();
                self.screen.note(&format!("(the title is {})", cut(&marked(&title.text))));
            }
            None => {
                self.screen.note("(the title that was chosen before stays; /title TEXT sets another one)");
            }
        }
        Ok(())
    }

    /// Shows the model that answers, or chooses another one until the program ends.
    pub(crate) async fn model(&mut self, name: &str) {
        if name.is_empty() {
            return self.screen.line(&self.args.model.to_string());
        }
        match self.other_model(name).await {
            Ok(()) => self.screen.note(&format!("({} answers from now on)", self.args.model)),
            Err(failure) => self.refuse(&failure.text),
        }
    }

    async fn other_model(&mut self, name: &str) -> Result<()> {
        let mut args = self.args.clone();
        args.model = name.parse().map_err(|why: String| Failure::new(2, "invalid_input", why))?;
        let (storage, data) = (self.place.agent.storage().clone(), self.place.data.clone());
        let servers = Servers::new(&args).await?;
        let place = agent_on(storage, servers, data, &args, &self.device, ToolMode::Direct)?;
        let handle = place.agent.conversation_by_id(self.handle.id()).await?;
        let former = std::mem::replace(&mut self.place, place);
        self.turn_to(handle);
        self.args = args;
        Ok(former.agent.shutdown(Duration::ZERO).await?)
    }

    /// Puts the last answer into the clipboard of the terminal.
    pub(crate) async fn copy(&mut self) -> agent_core::Result<()> {
        let Some(answer) = self.last_text(EventType::AGENT_MESSAGE).await? else {
            self.refuse("there is no answer to copy");
            return Ok(());
        };
        if !self.screen.is_terminal {
            self.refuse("/copy works on a terminal only; /history 1 prints the last message");
        } else if answer.len() > COPIED_MAX_BYTES {
            self.refuse(&format!(
                "the answer has {} bytes; terminals take at most {COPIED_MAX_BYTES}",
                answer.len()
            ));
        } else {
            // The control sequence OSC 52, which reaches the terminal from other machines, too.
            stdout::put(&format!("\x1b]52;c;{}\x07", STANDARD.encode(&answer)));
            let count = counted(answer.chars().count() as u64, "character");
            self.screen.note(&format!("({count} given to the terminal's clipboard)"));
        }
        Ok(())
    }

    /// Goes to the branch that another program has put in the place of this session.
    pub(crate) async fn follow_branch(&mut self, id: SessionId) {
        match self.place.agent.conversation_by_id(id).await {
            Ok(branch) => {
                self.screen.note("(this conversation was edited elsewhere; here is how it goes on)");
                self.move_to(branch).await;
            }
            Err(error) => self.fail(&error),
        }
    }

    async fn show_branch(&mut self, branch: ConversationRun, said: Option<String>) {
        if branch.created {
            self.move_to(branch.conversation).await;
        }
        self.said(said);
        self.show(branch.run).await;
    }

    async fn last_text(&self, kind: EventType) -> agent_core::Result<Option<String>> {
        let after = self.handle.refresh().await?.visible_from;
        let read = ReadEvents::last(1).with_after(after).with_types([kind]);
        let page = self.handle.history(read).await?;
        let text = page.events.first().and_then(|event| match event.decode().ok()? {
            EventPayload::UserMessage(message) | EventPayload::AgentMessage(message) => Some(message.text),
            _ => None,
        });
        Ok(text)
    }

    /// Switches to a branch, without words about it.
    async fn move_to(&mut self, branch: Conversation) {
        let main = self.workspace.main_session == self.handle.id();
        self.turn_to(branch);
        if main {
            self.workspace.main_session = self.handle.id();
        }
        self.record_session().await;
    }
}
