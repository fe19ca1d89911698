//! Reading of a session: its history, and the events to come.

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::conversation::handle::Conversation;
use crate::run::stop::is_set;
use agent_core::event::Event;
use agent_core::model::Counts;
use agent_core::search::{Search, SearchPage};
use agent_core::store::{EventPage, ReadEvents, check_position, coming_events, next_events};
use agent_core::{Error, Result, Seq, SessionStoreExt, Timestamp};
use agent_workspace::documents::Documents;
use agent_workspace::views::SessionView;

/// Sizes of a session, read from its record alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ContextCounts")]
pub struct SessionStats {
    /// Number of visible events of each kind.
    pub counts: Counts,
    /// Number of inputs that wait.
    pub inputs_open: u64,
    /// Sequence number of the last event.
    pub head: Seq,
    /// Latest time of any event.
    pub last_active_at: Timestamp,
}

impl Conversation {
    /// Reads one page of the whole history, including the events of the session's ancestors.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::event::EventType;
    /// use agent_core::store::ReadEvents;
    ///
    /// # let (agent, chat) = echo().await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// let messages = [EventType::USER_MESSAGE, EventType::AGENT_MESSAGE];
    /// let page = chat.history(ReadEvents::last(10).with_types(messages)).await?;
    /// let said: Vec<_> = page.events.iter().filter_map(|event| event.text()).collect();
    /// assert_eq!(said, ["Hello", "Hello"]);
    /// assert!(page.next.is_none()); // the query for the page before it
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store; `Corrupt` if the page would start with damage.
    pub async fn history(&self, read: ReadEvents) -> Result<EventPage> {
        self.runtime().storage.sessions.history(self.id(), read).await
    }

    /// Searches this session, newest first. What a fork has of its parent is found in the parent only.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::search::Search;
    ///
    /// # let (agent, chat) = echo().await?;
    /// chat.prompt("The deploy failed").await?.finish().await?;
    /// assert_eq!(chat.search(&Search::new("deploy")).await?.hits.len(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the search is in another session or workspace; errors of
    /// [`AgentRuntime::search`](crate::AgentRuntime::search).
    pub async fn search(&self, search: &Search) -> Result<SearchPage> {
        let (id, workspace) = (self.id(), self.record().workspace);
        let elsewhere = match (search.session, search.workspace) {
            (Some(other), _) if other != id => format!("session {other}"),
            (_, Some(other)) if other != workspace => format!("workspace {other}"),
            _ => return self.runtime().search(&search.clone().with_session(id)).await,
        };
        Err(Error::invalid(format!(
            "the search is in {elsewhere}, and not in session {id} of workspace {workspace}, whose handle this is; leave \
             session and workspace out"
        )))
    }

    /// Streams all events after `after`, then each new event as it is stored. Holds one page at a time in memory.
    /// [`live`](Self::live) adds the pieces of the answer that is being written.
    ///
    /// Events of other processes arrive as soon as the store sees them. When the runtime [shuts
    /// down](crate::AgentRuntime::shutdown), the stream returns the events that its last runs have stored, and ends (`None`).
    /// It also ends after an error, which is `Deleted` if the next events were purged, and `Unavailable` if the stores
    /// were [closed](crate::AgentRuntime::close) before it had returned the last ones: shut down, let it end, then close.
    /// Its first item is `InvalidInput`, with both numbers, if `after` is [beyond](agent_core::store::check_position) the
    /// session's last event.
    ///
    /// A run that ends is an event, too, with a [transition](Event::transition): to `Idle` with the reason `RunError` and the
    /// failure if it failed and is not tried again, to `Failed` if the session waits for
    /// [`clear_failure`](Self::clear_failure), to `Queued` if it is tried again.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use futures::TryStreamExt;
    ///
    /// # let (agent, chat) = echo().await?;
    /// let mut events = chat.follow(chat.record().head);
    /// chat.prompt("Hello").await?.finish().await?;
    /// let mut said = Vec::new();
    /// while said.len() < 2 {
    ///     let event = events.try_next().await?.expect("the stream ends in a shutdown only");
    ///     said.extend(event.text().map(|text| format!("{}: {text}", event.actor.role())));
    /// }
    /// assert_eq!(said, ["user: Hello", "agent: Hello"]);
    /// # Ok(()) }
    /// ```
    pub fn follow(&self, after: Seq) -> BoxStream<'static, Result<Event>> {
        let (sessions, id) = (self.runtime().storage.sessions.clone(), self.id());
        let over = self.runtime().shared.runs.over();
        // The second part is whether the session was read up to there.
        let pages = stream::try_unfold((after, false), move |(seen, mut is_read)| {
            let (sessions, mut over) = (sessions.clone(), over.clone());
            async move {
                loop {
                    // Read once more at the end, so that events which were stored before it are still returned.
                    let is_over = *over.borrow();
                    let found = if is_over || !is_read {
                        next_events(&*sessions, id, seen).await?
                    } else {
                        tokio::select! {
                            () = is_set(&mut over) => continue,
                            coming = coming_events(&*sessions, id, seen) => Some(coming?),
                        }
                    };
                    if let Some((events, seen)) = found {
                        return Ok::<_, Error>(Some((
                            stream::iter(events.into_iter().map(Ok)),
                            (seen, true),
                        )));
                    }
                    if is_over {
                        return Ok(None);
                    }
                    if !is_read {
                        check_position(&*sessions.load(id).await?, seen)?;
                    }
                    is_read = true;
                }
            }
        });
        pages.try_flatten().boxed()
    }

    /// Returns the session's documents: its notes, memory blocks, checkpoint. No I/O.
    pub fn documents(&self) -> Documents {
        let sessions = self.runtime().storage.sessions.clone();
        Documents::new(sessions, self.id())
    }

    /// Returns a read-only view of the session: its runs, their artifacts, its topic. No I/O.
    pub fn view(&self) -> SessionView {
        SessionView::new(self.runtime().storage.sessions.store().clone(), self.id())
    }

    /// Returns the current sizes of the session; reads no message.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// chat.prompt("Hello").await?.finish().await?;
    /// chat.send("Water the plants.").await?;
    ///
    /// let stats = chat.stats().await?;
    /// assert_eq!((stats.counts.user, stats.counts.agent), (2, 1));
    /// assert_eq!(stats.inputs_open, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the store.
    #[doc(alias = "context")]
    pub async fn stats(&self) -> Result<SessionStats> {
        let now = self.refresh().await?;
        Ok(SessionStats {
            counts: now.counts,
            inputs_open: now.inputs_open,
            head: now.head,
            last_active_at: now.last_active_at,
        })
    }
}
