//! The session as it happens: its events, and the pieces of the answer that a run of this process is writing.

use std::sync::Arc;

use futures::stream::{self, BoxStream, Fuse, StreamExt, TryStreamExt};

use crate::agent::active::ActiveRuns;
use crate::conversation::handle::Conversation;
use crate::run::live::{Live, Pieces};
use agent_core::event::Event;
use agent_core::model::Lease;
use agent_core::store::check_position;
use agent_core::{Result, Seq, SessionId};

/// Reader of one session.
struct Reader {
    id: SessionId,
    runs: Arc<ActiveRuns>,
    /// Last event that the caller had before.
    after: Seq,
    events: Fuse<BoxStream<'static, Result<Event>>>,
    pieces: Pieces,
}

impl Conversation {
    /// Streams all events after `after`, then each new event as it is stored, like [`follow`](Self::follow), and between
    /// them the pieces of the answer that a run of this process is writing.
    ///
    /// A client of a server that lost its connection gives the last event that it has, and sees what every other reader
    /// sees. A reader that joins in the middle of an answer gets what was written of it so far, as one [`Live::Part`] for
    /// each part with the [`Live::Piece`]s that follow, and from then on each further piece; no piece twice, and none after
    /// the event that holds it. The first event of a commit replaces all parts of that commit: it has also what was not
    /// given as a piece before it was stored.
    ///
    /// Pieces are never stored, and are those that [`Update`](crate::Update)s have: without the values of secrets. The
    /// runtime keeps the answer once, for all readers. A reader that is slow gets several pieces as one, at most 64 KiB
    /// long; it delays nothing and loses nothing. A run is found whichever handle of the stores has started it. Of a run of
    /// another process the stream has the events only.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_runtime::Live;
    /// use futures::TryStreamExt;
    ///
    /// # use agent_runtime::Update;
    /// # let gate = Gate::new();
    /// # let model = ScriptedProvider::new([Turn::new().text("Once upon").gate(&gate).text(" a time")]);
    /// # let (agent, chat) = scripted(model).await?;
    /// let mut run = chat.prompt("Tell me a story.").await?;
    /// # while !matches!(run.next().await, Some(Ok(Update::Text(_)))) {}
    /// // In the middle of the answer, the client connects again. It has the events until here.
    /// let mut live = chat.live(chat.record().head);
    /// let mut shown = String::new();
    /// while let Some(live) = live.try_next().await? {
    ///     match live {
    ///         Live::Part { text, .. } | Live::Piece { text, .. } => shown.push_str(&text),
    ///         Live::Withdrawn { .. } => shown.clear(),
    ///         // The answer is stored: the event has all of it.
    ///         Live::Event(event) => {
    ///             shown = event.text().unwrap_or_default().into_owned();
    ///             break;
    ///         }
    ///         _ => {}
    ///     }
    /// #   gate.open();
    /// }
    /// assert_eq!(shown, "Once upon a time");
    /// # Ok(()) }
    /// ```
    ///
    /// The stream ends as [`follow`](Self::follow) does. Its first item may be an error of the store, or
    /// `InvalidInput` for a position beyond the last event, with which it ends.
    pub fn live(&self, after: Seq) -> BoxStream<'static, Result<Live>> {
        let chat = self.clone();
        let reader = stream::once(async move { Reader::join(&chat, after).await });
        let items = reader.map_ok(|reader| {
            stream::try_unfold(reader, |mut reader| async move {
                Ok(reader.next().await?.map(|live| (live, reader)))
            })
        });
        items.try_flatten().boxed()
    }
}

impl Reader {
    async fn join(chat: &Conversation, after: Seq) -> Result<Self> {
        let (runtime, id) = (chat.runtime(), chat.id());
        let mut pieces = Pieces::new(after);
        let runs = runtime.shared.runs.active.clone();
        let session = runtime.storage.sessions.load(id).await?;
        check_position(&session, after)?;
        if let Some(lease) = &session.lease {
            follow(&mut pieces, &runs, id, lease).await;
        }
        let events = chat.follow(pieces.begin()).fuse();
        Ok(Self { id, runs, after, events, pieces })
    }

    /// Returns the next item. Stored events go before pieces.
    async fn next(&mut self) -> Result<Option<Live>> {
        loop {
            let event = tokio::select! {
                biased;
                event = self.events.try_next() => event?,
                live = self.pieces.next() => return Ok(Some(live)),
            };
            let Some(event) = event else { return Ok(self.pieces.withdraw()) };
            if let Ok(Some(transition)) = event.transition()
                && let Some(Some(lease)) = &transition.lease
            {
                follow(&mut self.pieces, &self.runs, self.id, lease).await;
            }
            self.pieces.event(&event);
            if event.seq > self.after {
                return Ok(Some(Live::Event(Box::new(event))));
            }
        }
    }
}

/// Takes the answers of the run with this lease of the session, if it is active here.
async fn follow(pieces: &mut Pieces, runs: &ActiveRuns, id: SessionId, lease: &Lease) {
    runs.begun(lease.run).await;
    if let Some((epoch, answer)) = runs.answer(lease.run, id) {
        pieces.follow(lease.run, epoch, answer);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use agent_core::MemoryStore;
    use agent_core::json::RawJson;
    use tokio::sync::Semaphore;

    use crate::{AgentBuilder, ScriptedProvider, Turn, Update, tool};

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}

    /// What is stored is not kept for readers: a tool may take hours.
    #[tokio::test]
    async fn stored_answers_are_freed() {
        let gate = Arc::new(Semaphore::new(0));
        let passed = gate.clone();
        let wait = tool("wait", "Waits.", move |_: Nothing, _| {
            let gate = passed.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                Ok::<_, String>("")
            }
        });
        let call = Turn::new().text("I wait.").call("c", "wait", RawJson::empty_object());
        let model = ScriptedProvider::new([call, Turn::new().text("Done.")]);
        let builder = AgentBuilder::new().with_llm(model).with_tool(wait);
        let agent = builder.with_storage(MemoryStore::new()).build().unwrap();
        let chat = agent.conversation("key").await.unwrap();
        let mut run = chat.prompt("Go.").await.unwrap();
        let runs = &agent.shared.runs.active;
        let bytes = |run: &crate::Run| runs.answer(run.id().unwrap(), chat.id()).unwrap().1.borrow().bytes();
        loop {
            match run.next().await.unwrap().unwrap() {
                Update::Text(_) => assert!(bytes(&run) == 7 || bytes(&run) == 0),
                Update::ToolCalled(_) => break,
                _ => {}
            }
        }
        assert_eq!(bytes(&run), 0);
        gate.add_permits(1);
        run.finish().await.unwrap();
    }
}
