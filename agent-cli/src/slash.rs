//! Commands of a conversation, which begin with a slash.

use std::path::Path;

use agent_core::event::{Decision, EventType};
use agent_core::model::{Patch, Title};
use agent_core::search::Search;
use agent_core::session::{NewSession, SessionSummary};
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{Error, Seq};
use agent_runtime::context::{ContextLimits, ModelContext, ModelMessage};

use crate::chat::Chat;
use crate::edits::fork;
use crate::failure::Failure;
use crate::files::{SessionFiles, StoredFile};
use crate::help::SLASH_COMMANDS;
use crate::history::newest_shown;
use crate::layout::{self, terminal_width};
use crate::listing::{self, ShortIds, age, last_message, title_cell};
use crate::pick::SessionRef;
use crate::screen::{counted, cut, spoken};
use crate::zone::{Zone, second};

/// Default number of messages of `/history`.
const HISTORY: usize = 50;
/// Number of sessions that are listed.
const SESSIONS: usize = 100;

/// Maximum bytes of a summary of `/compact`, as of one that a run writes.
const SUMMARY_MAX_BYTES: usize = 128 << 10;

impl Chat {
    /// Executes a command line, given without its slash.
    pub(crate) async fn command(&mut self, line: &str) {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let done = match (name, rest.trim()) {
            ("workspace", "") => self.workspace().await,
            ("context", "") => self.context().await,
            ("history", count) => self.history(count).await,
            ("sessions", "") => self.sessions().await,
            ("new", title) => self.new_session(title).await,
            ("switch", which) if !which.is_empty() => self.switch(which).await,
            ("search", "") => return self.refuse("name the words: /search WORDS"),
            ("search", words) => self.search(words).await,
            ("open", number) => self.open_hit(number).await,
            ("fork", "") => self.fork().await,
            ("edit", "") => return self.refuse("write the message: /edit TEXT, or /edit #N TEXT"),
            ("edit", what) => self.edit(what).await,
            ("retry", "") => self.retry().await,
            ("undo", "") => self.undo().await,
            ("rewind", number) => self.rewind(number).await,
            ("branches", "") => self.branches().await,
            ("restore", number) => self.restore(number).await,
            ("title", title) => self.title(title).await,
            ("copy", "") => self.copy().await,
            ("model", name) => return self.model(name).await,
            ("attach", "") => return self.refuse("name the file: /attach FILE"),
            ("attach", path) => return self.attach(Path::new(path)).await,
            ("detach", "") => {
                let count = counted(self.attachments.clear() as u64, "file");
                return self.screen.note(&format!("{count} detached"));
            }
            ("files", "") => self.files().await,
            ("save", which) => return self.save(which).await,
            ("clear", "") => self.clear().await,
            ("compact", "") => self.compact().await,
            ("allow", choice) => self.decide(Decision::Allow, choice).await,
            ("deny", "") => self.decide(Decision::Deny, "").await,
            ("always", "") => self.always().await,
            ("ask", tool) if !tool.is_empty() => {
                self.place.servers.ask_again(&self.handle, tool).await.map(|()| {
                    self.screen.note(&format!("each call of {} is asked about in this session", cut(tool)));
                })
            }
            ("mcp", "") => self.servers().await,
            ("run", "") => self.run_pending().await,
            ("help", "") => return self.screen.line(SLASH_COMMANDS),
            ("quit" | "exit", "") => return self.quit(),
            _ => {
                let meant = nearest(name).map_or_else(String::new, |name| format!("did you mean /{name}? "));
                return self.refuse(&format!(
                    "unknown command /{0}; {meant}type /help for a list, or //{0} to send it as a message",
                    cut(line)
                ));
            }
        };
        if let Err(error) = done {
            self.fail(&error);
        }
    }

    async fn workspace(&mut self) -> agent_core::Result<()> {
        let workspace = self.place.agent.workspaces().load(self.workspace.id).await?;
        let counts = self.handle.stats().await?.counts;
        for (name, value) in [
            ("workspace", workspace.name.as_str()),
            ("id", &workspace.id.to_string()),
            ("model", &self.args.model.to_string()),
            ("session", &self.handle.id().to_string()),
            ("messages", &counts.messages().to_string()),
            ("last used", &second(workspace.last_accessed)),
            ("data", &self.place.data),
        ] {
            self.screen.line(&format!("{name:<10} {value}"));
        }
        self.workspace = workspace;
        Ok(())
    }

    async fn context(&mut self) -> agent_core::Result<()> {
        let now = self.handle.stats().await?;
        let summary =
            if self.handle.record().summary > Seq::ZERO { " and a summary of earlier ones" } else { "" };
        self.screen.line(&format!(
            "{}{summary} in the context window, {} without an answer",
            counted(now.counts.messages(), "message"),
            counted(now.inputs_open, "message"),
        ));
        Ok(())
    }

    async fn history(&mut self, count: &str) -> agent_core::Result<()> {
        let count = match (count, count.parse::<usize>()) {
            ("", _) => HISTORY,
            (_, Ok(count)) if count > 0 => count,
            _ => {
                self.refuse("write how many messages, at least 1: /history N");
                return Ok(());
            }
        };
        let now = self.handle.refresh().await?;
        let page = newest_shown(&*self.place.agent.storage().sessions, &now, count).await?;
        if page.next.is_some() {
            self.screen.line(&format!("(older messages: type /history {})", count.saturating_mul(10)));
        }
        for damage in &page.damaged {
            self.screen.line(&format!("({damage})"));
        }
        for event in &page.events {
            let Some(line) = spoken(event) else { continue };
            // For /edit and /rewind.
            let is_said = [EventType::USER_MESSAGE, EventType::AGENT_MESSAGE].contains(&event.kind);
            let line = match is_said && self.screen.is_terminal {
                true => format!("#{} {line}", event.seq),
                false => line,
            };
            match event.kind == EventType::AGENT_MESSAGE {
                true => self.screen.echo_answer(&line),
                false => self.screen.echo(&line),
            }
        }
        if page.events.is_empty() {
            self.screen.line("(no messages yet)");
        }
        Ok(())
    }

    async fn servers(&mut self) -> agent_core::Result<()> {
        for line in self.place.servers.lines(&self.place.agent, &self.handle).await? {
            self.screen.line(&line);
        }
        Ok(())
    }

    async fn files(&mut self) -> agent_core::Result<()> {
        let now = self.handle.refresh().await?;
        let sessions = self.place.agent.storage().sessions.clone();
        let (found, page, more) =
            SessionFiles { sessions: &*sessions, session: &now }.newest(HISTORY).await?;
        if more {
            self.screen.line("(older files: `chat session files ID --limit N`)");
        }
        for damage in &page.damaged {
            self.screen.line(&format!("({damage})"));
        }
        for file in &found {
            self.screen.line(&file.listed());
        }
        if found.iter().any(StoredFile::is_broken) {
            self.screen.line(&format!(
                "(if you have a copy of a lost or damaged file, run `chat session restore-file {} PATH`)",
                now.id
            ));
        }
        if found.is_empty() {
            self.screen.line("(no files)");
        }
        Ok(())
    }

    async fn attach(&mut self, path: &Path) {
        match self.attachments.add(path).await {
            Ok(line) => {
                let how = "is sent with your next message, or alone with an empty line";
                self.screen.note(&format!("{line} {how}"));
            }
            Err(why) => self.refuse(&why),
        }
    }

    async fn save(&mut self, which: &str) {
        let Some((number, path)) = which.split_once(char::is_whitespace) else {
            return self.refuse("name the file and where to save it: /save N PATH; /files lists the files");
        };
        let path = path.trim();
        let sessions = self.place.agent.storage().sessions.clone();
        let saved = async {
            let now = self.handle.refresh().await?;
            let files = SessionFiles { sessions: &*sessions, session: &now };
            let file = files.find(number).await?;
            let bytes = files.save(&file, Path::new(path), false).await?;
            Ok::<_, Failure>(format!("{} is saved as {path} ({bytes} bytes)", file.line))
        };
        match saved.await {
            Ok(line) => self.screen.note(&line),
            Err(failure) => self.refuse(&failure.text),
        }
    }

    async fn list(&self) -> agent_core::Result<agent_core::store::Page<SessionSummary>> {
        let query = SessionQuery::new().with_workspace(self.workspace.id).with_limit(SESSIONS);
        self.place.agent.storage().sessions.list(query).await
    }

    async fn sessions(&mut self) -> agent_core::Result<()> {
        let page = self.list().await?;
        let (ids, now, width) =
            (ShortIds::of(page.items.iter().map(|session| session.id)), Zone::now().now, terminal_width());
        let rows = (1..).zip(&page.items).map(|(number, session)| {
            let here = if session.id == self.handle.id() { '*' } else { ' ' };
            let is_main = session.id == self.workspace.main_session && session.attributes.title.is_none();
            let title = if is_main { "main".to_owned() } else { listing::title(session) };
            vec![
                format!("{here}{number:>3}"),
                ids.short(session.id),
                age(now, session.last_active_at),
                session.status.state.to_string(),
                session.counts.messages().to_string(),
                title_cell(&title, width),
                last_message(session),
            ]
        });
        let headings = ["   #", "ID", "USED", "STATE", "MESSAGES", "TITLE", "LAST MESSAGE"];
        for line in layout::lines(&headings, &rows.collect::<Vec<_>>(), width) {
            self.screen.line(&line);
        }
        for damage in &page.damaged {
            self.screen.line(&format!("  !  {damage}"));
        }
        if page.next.is_some() {
            self.screen.line(&format!("(only the {SESSIONS} most recently used sessions are listed)"));
        }
        Ok(())
    }

    async fn new_session(&mut self, title: &str) -> agent_core::Result<()> {
        let mut patch = Patch::new();
        if !title.is_empty() {
            patch = patch.with_title(Title::by_user(title));
        }
        let agent = &self.place.agent;
        let new = NewSession::new(agent.effects().new_session_id(), self.workspace.id);
        let session =
            agent.workspaces().create_session(new.with_patch(&patch).with_creator(self.actor())).await?;
        let handle = agent.conversation_by_id(session.id).await?;
        self.go_to(handle).await;
        Ok(())
    }

    async fn switch(&mut self, which: &str) -> agent_core::Result<()> {
        let sessions = self.place.agent.storage().sessions.clone();
        let found = match which.parse::<SessionRef>() {
            Ok(named) => named.find(&*sessions, SessionQuery::new().with_workspace(self.workspace.id)).await,
            Err(why) => Err(Failure::new(1, "invalid_input", why)),
        };
        match found {
            Ok(found) => self.go_to(self.place.agent.conversation_by_id(found.id).await?).await,
            Err(failure) => self.refuse(&failure.text),
        }
        Ok(())
    }

    async fn search(&mut self, words: &str) -> agent_core::Result<()> {
        let search = Search::new(words).with_workspace(self.workspace.id);
        let (page, zone) = (self.place.agent.search(&search).await?, Zone::now());
        for (number, hit) in (1..).zip(&page.hits) {
            let title = hit.title.as_ref().map_or_else(String::new, |title| format!("{title}: "));
            let text = hit.snippet.marked("**");
            self.screen.line(&format!("{number:>4}  {}  {}  {title}{text}", zone.minute(hit.at), hit.actor));
        }
        for damage in &page.damaged {
            self.screen.line(&format!("  !  {damage}"));
        }
        if page.hits.is_empty() {
            self.screen.line("(nothing was found)");
        }
        match page.searched_through {
            Some(until) => self.screen.line(&format!("(searched back to {})", second(until))),
            None if page.next.is_some() => {
                self.screen.line("(there are older hits: `chat search` shows more)");
            }
            None => {}
        }
        self.found = page.hits;
        Ok(())
    }

    /// Switches to the session of a hit, and shows the messages around it.
    async fn open_hit(&mut self, number: &str) -> agent_core::Result<()> {
        const AROUND: u64 = 10;
        let hit = number.parse::<usize>().ok().and_then(|number| self.found.get(number.checked_sub(1)?));
        let Some((session, seq)) = hit.map(|hit| (hit.session, hit.seq)) else {
            self.refuse(&format!("no hit {}; /search WORDS lists hits", cut(number)));
            return Ok(());
        };
        let handle = self.place.agent.conversation_by_id(session).await?;
        self.go_to(handle).await;
        let after = Seq::new(seq.get().saturating_sub(AROUND));
        let read = ReadEvents::first(100).with_after(after).with_before(Seq::new(seq.get() + AROUND));
        let page = self.place.agent.storage().sessions.read(session, read).await?;
        for line in page.events.iter().filter_map(spoken) {
            self.screen.echo(&line);
        }
        Ok(())
    }

    async fn fork(&mut self) -> agent_core::Result<()> {
        let agent = &self.place.agent;
        let made = fork(&agent.storage().sessions, self.handle.id(), None, self.actor()).await?;
        let handle = agent.conversation_by_id(made.id).await?;
        self.go_to(handle).await;
        Ok(())
    }

    async fn clear(&mut self) -> agent_core::Result<()> {
        self.handle.clear().await?;
        self.own_head();
        self.screen.note("(history cleared; the log still contains it)");
        Ok(())
    }

    /// Replaces the messages so far by a summary of the model, or by their number if no model can summarise.
    async fn compact(&mut self) -> agent_core::Result<()> {
        let now = self.handle.refresh().await?;
        let summary = match self.place.summaries.clone() {
            Some(summaries) => {
                let (sessions, now) = (self.place.agent.storage().sessions.clone(), now.clone());
                let work = async move {
                    let context = ModelContext::read(&*sessions, &now, ContextLimits::default()).await?;
                    let messages = context.messages();
                    if messages.iter().all(|message| matches!(message, ModelMessage::Summary(_))) {
                        return Err(Error::invalid("there are no messages to summarise"));
                    }
                    Ok(summaries.write(None, &messages, SUMMARY_MAX_BYTES).await?.text)
                };
                match self.unless_interrupted(work).await {
                    Some(summary) => summary?,
                    None => return Ok(()),
                }
            }
            None => format!("{} are left out.", counted(now.counts.messages(), "earlier message")),
        };
        // Up to what was summarised, and not up to what came meanwhile.
        self.handle.compact(Some(now.head), &summary).await?;
        self.own_head();
        self.screen.note(&format!("{summary}\n(this stands for the messages so far; the log keeps them)"));
        Ok(())
    }
}

/// Returns the command whose name is most like this one, if any is.
fn nearest(name: &str) -> Option<&'static str> {
    let names = SLASH_COMMANDS.split('/').skip(1);
    let names = names.map(|text| text.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default());
    let like = names.map(|known| (strsim::damerau_levenshtein(known, name), known));
    let (distance, known) = like.filter(|(_, known)| !known.is_empty()).min()?;
    (distance > 0 && distance <= known.len().min(4) / 2).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_command_is_named() {
        for (typed, meant) in [("serch", "search"), ("udno", "undo"), ("switc", "switch"), ("quti", "quit")] {
            assert_eq!(nearest(typed), Some(meant), "{typed}");
        }
        for typed in ["", "x", "frobnicate", "usr"] {
            assert_eq!(nearest(typed).filter(|name| *name != "run"), None, "{typed}");
        }
    }
}
