//! Consent to a model's tool calls: the whole of a call is shown before it can be allowed.

use agent_core::event::{Decision, ToolConfirmation};
use agent_core::model::{ActionKind, PendingAction};
use agent_core::text::marked_name;

use crate::chat::Chat;
use crate::question::{Question, pages, question};
use crate::screen::counted;

impl Chat {
    /// Shows the question that the session waits with, and how to answer it: the call as it stands in the log, because the
    /// question is shortened.
    pub(crate) async fn ask(&mut self, action: &PendingAction) {
        let call = match self.handle.pending_call().await {
            // Another call, if somebody else has answered meanwhile.
            Ok(call) => call.filter(|call| call.call.as_str() == action.id.as_str()),
            Err(error) => return self.fail(&error),
        };
        let text = question(action, call.as_ref());
        let rest = if self.screen.is_terminal { pages(&text) } else { [text].into() };
        self.asked = Question {
            about: Some((action.id.clone(), action.seq)),
            pages: rest.len(),
            rest,
            how: self.how(action),
        };
        self.next_page();
    }

    /// Returns the commands that answer a question.
    fn how(&self, action: &PendingAction) -> String {
        match action.kind {
            ActionKind::ToolConfirmation | ActionKind::Approval if !action.choices.is_empty() => {
                let choices = action.choices.iter().map(|choice| format!("/allow {}", marked_name(choice)));
                format!("{}, or /deny", choices.collect::<Vec<_>>().join(", "))
            }
            ActionKind::ToolConfirmation | ActionKind::Approval => {
                // All later calls may be allowed of a tool of an MCP server.
                let is_of_server = action.tool.as_ref().is_some_and(|tool| tool.contains("__"));
                let always = cfg!(feature = "mcp") && is_of_server;
                if always { "/allow, /always or /deny" } else { "/allow or /deny" }.to_owned()
            }
            _ => "a result that another program gives".to_owned(),
        }
    }

    /// Shows the next page of the question; after the last one, how to answer it. Returns false if there is none.
    pub(crate) fn next_page(&mut self) -> bool {
        let Some(page) = self.asked.rest.pop_front() else { return false };
        let (left, pages) = (self.asked.rest.len(), self.asked.pages);
        let below = match left {
            0 => format!("(the session waits for {})", self.asked.how),
            _ => format!("(page {} of {pages}; press Enter for the next one, or /deny)", pages - left),
        };
        self.screen.note(&format!("{page}\n{below}"));
        true
    }

    /// Returns the question that the session waits with, if it is the one that was shown: another program may have
    /// answered that one, and another call may wait.
    async fn shown_question(&mut self) -> agent_core::Result<Option<PendingAction>> {
        let Some(action) = self.handle.refresh().await?.action.clone() else {
            self.refuse("no question waits for an answer");
            return Ok(None);
        };
        if self.asked.is_about(&action) {
            return Ok(Some(action));
        }
        self.refuse("the question was answered by another program; there is a new one:");
        self.ask(&action).await;
        Ok(None)
    }

    /// Returns the question that the session waits with, if all of it was shown.
    async fn question_to_allow(&mut self) -> agent_core::Result<Option<PendingAction>> {
        let Some(action) = self.shown_question().await? else { return Ok(None) };
        let left = self.asked.rest.len();
        if left > 0 {
            let pages = counted(left as u64, "page");
            self.refuse(&format!(
                "the call was not shown to its end: {pages} more; press Enter for the next one, or /deny"
            ));
            return Ok(None);
        }
        Ok(Some(action))
    }

    /// Answers the question that the session waits with, and shows the run that goes on.
    pub(crate) async fn decide(&mut self, decision: Decision, choice: &str) -> agent_core::Result<()> {
        let asked = match decision {
            Decision::Allow => self.question_to_allow().await?,
            _ => self.shown_question().await?,
        };
        let Some(action) = asked else { return Ok(()) };
        let mut answer = ToolConfirmation::new(action.id, decision);
        if !choice.is_empty() {
            answer = answer.with_choice(choice);
        }
        let run = self.handle.answer_and_run(answer).await?;
        self.asked = Question::default();
        self.show(run).await;
        Ok(())
    }

    /// Allows the call that waits, and all later ones of its tool in this session.
    pub(crate) async fn always(&mut self) -> agent_core::Result<()> {
        let Some(action) = self.question_to_allow().await? else { return Ok(()) };
        let tool = action.tool.unwrap_or_default();
        if !self.place.servers.always_allow(&self.place.agent, &self.handle).await? {
            self.refuse(&format!(
                "no MCP server offers {} as it was when the question was asked; /mcp shows the servers, /allow \
                 allows this call only if the tool is the same",
                marked_name(&tool)
            ));
            return Ok(());
        }
        self.decide(Decision::Allow, "").await
    }
}
