//! Attachment of new callers to active runs.

use crate::agent::runtime::AgentRuntime;
use crate::run::handle::Run;
use agent_core::SessionId;

impl AgentRuntime {
    /// Returns a new stream of the run that is active in a session, if this process executes one. No I/O.
    ///
    /// Use it after a lost connection, or for a second reader: any number of streams may read one run, each bounded as
    /// [`Run`] says, and none slows the run. Each can [cancel](Run::cancel) it, and [`finish`](Run::finish) returns its
    /// report. The run continues if all of them are dropped.
    ///
    /// The stream has the updates from now on. Earlier updates are missing: [`Started`](crate::Update::Started), the
    /// tool calls and results until now, and the pieces of the answer that is being streamed. What the run has stored
    /// is in the [history](crate::Conversation::history), which has everything but the text of the present answer;
    /// that text is stored as a whole, before the run ends. Attach first and then read the history, so that nothing is
    /// missed in between.
    ///
    /// Returns `None` if no run is active in the session, or if another process executes it, in which case
    /// [`Conversation::follow`](crate::Conversation::follow) shows what is stored. Finds the runs that this runtime and
    /// its clones have started. A runtime that [`for_storage`](Self::for_storage) or
    /// [`with_secrets`](Self::with_secrets) returned is another one; a host with several tenants keeps one runtime for
    /// each.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, Gate, ScriptedProvider, Turn};
    /// # let gate = Gate::new();
    /// # let model = ScriptedProvider::new([Turn::new().gate(&gate).text("Hello")]);
    /// # let builder = AgentBuilder::new().with_llm(model);
    /// # let agent = builder.with_storage(MemoryStore::new()).build()?;
    /// let chat = agent.open(&"laptop".parse()?).await?;
    /// let run = chat.prompt("Hello?").await?;
    /// let id = run.id();
    /// drop(run); // the connection was lost
    ///
    /// let run = agent.attach(chat.id()).expect("the run continues");
    /// assert_eq!(run.id(), id);
    /// # gate.open();
    /// assert_eq!(run.finish().await?.text, "Hello");
    /// assert!(agent.attach(chat.id()).is_none());
    /// # Ok(()) }
    /// ```
    pub fn attach(&self, session: SessionId) -> Option<Run> {
        self.shared.runs.active.attach(&self.lines, session)
    }
}
