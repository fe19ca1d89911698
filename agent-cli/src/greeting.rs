//! Words with which a conversation begins: its title, who answers, its last messages, and what waits.

use agent_core::text::marked;

use crate::chat::Chat;
use crate::history::newest_shown;
use crate::model::ModelName;
use crate::screen::{counted, cut, spoken};

/// Number of earlier messages that are shown at the start.
const LAST_LINES: usize = 4;

impl Chat {
    /// Prints for a person who answers, where help is, and the last messages.
    pub(crate) async fn greet(&mut self) {
        if !self.screen.is_terminal {
            return;
        }
        let hint = match (&self.args.model, cfg!(feature = "models")) {
            (ModelName::Offline, true) => {
                "The offline model repeats what you type; /model ollama:NAME, anthropic:NAME and others answer. /help lists the commands."
                    .to_owned()
            }
            (ModelName::Offline, false) => {
                "The offline model repeats what you type; build with `--features models` for others. /help lists the commands."
                    .to_owned()
            }
            (model, _) => format!("{model} answers. /help lists the commands."),
        };
        self.screen.note(&hint);
        let now = self.handle.record();
        match newest_shown(&*self.place.agent.storage().sessions, &now, LAST_LINES).await {
            Ok(page) => {
                for line in page.events.iter().filter_map(spoken) {
                    self.screen.note(&cut(&line));
                }
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Prints the session and the store.
    pub(crate) fn announce(&mut self) {
        let now = self.handle.record();
        let title = match &now.attributes.title {
            Some(title) => format!(" ({})", title.text),
            None if now.id == self.workspace.main_session => " (main)".to_owned(),
            None => String::new(),
        };
        let count = counted(now.counts.messages(), "message");
        self.screen.note(&match self.screen.is_terminal {
            true => {
                let name = match (&now.attributes.title, &now.first_words) {
                    (Some(title), _) => title.text.as_str(),
                    (None, Some(words)) => words,
                    (None, None) => "a new conversation",
                };
                format!("{} ({count}, data in {})", cut(&marked(name)), self.place.data)
            }
            false => format!(
                "workspace {}, session {}{title}, {count}, data in {}",
                self.workspace.id, now.id, self.place.data,
            ),
        });
    }

    /// Prints what waits in the session.
    pub(crate) async fn waiting(&mut self) {
        let now = self.handle.record();
        if let Some(place) = now.attributes.superseded_by() {
            return self.screen.note(&format!(
                "(this was edited away, and takes no messages; the conversation goes on in session {place}: type /switch {place})"
            ));
        }
        if let Some(action) = &now.action {
            self.ask(action).await;
        }
        let waiting = match (&now.lease, now.inputs_open) {
            (Some(lease), _) => {
                let lease_status =
                    self.place.agent.storage().sessions.leases().status(now.id, lease.epoch).await;
                if lease_status.is_ok_and(|lease_status| lease_status.holder_proven_dead) {
                    "The last answer was interrupted when its program ended. It is repeated with your next message, or now with /run."
                        .to_owned()
                } else {
                    format!("{} is answering in this session now.", lease.holder)
                }
            }
            (None, 0) => return,
            // The question is in the way.
            (None, _) if now.action.is_some() => return,
            (None, pending) => format!(
                "{} without an answer; answered with your next message, or now with /run.",
                counted(pending, "message")
            ),
        };
        self.screen.note(&waiting);
    }
}
