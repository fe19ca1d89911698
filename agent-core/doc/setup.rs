// Set-up of the doc examples about sessions, which include this file by a hidden line.

#[allow(unused_imports)]
use setup::*;

#[allow(dead_code, unused_imports)]
mod setup {
    use std::sync::Arc;

    pub use agent_core::clock::Effects;
    pub use agent_core::commit::{Commit, Committed, LeaseRequest, Trigger};
    pub use agent_core::event::{Media, Message, NewEvent, Part};
    pub use agent_core::json::RawJson;
    pub use agent_core::model::{Attributes, Patch};
    pub use agent_core::session::{NewSession, SessionRecord};
    pub use agent_core::state::Reason;
    pub use agent_core::store::{ReadEvents, SessionQuery};
    pub use agent_core::{ErrorKind, MemoryStore, Result, Seq, SessionStore, SessionStoreExt, WorkspaceId};
    pub use agent_core::{Sessions, Storage};

    /// A new session in memory.
    pub async fn session() -> Result<(Sessions, Effects, Arc<SessionRecord>)> {
        let effects = Effects::default();
        let store = MemoryStore::new().sessions(&effects);
        let session = store.create(NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT)).await?;
        Ok((store, effects, session))
    }

    /// A session with one message of its user, "Hello".
    pub async fn greeted() -> Result<(Sessions, Effects, Arc<SessionRecord>)> {
        let (store, effects, session) = session().await?;
        let hello = vec![NewEvent::user_message("Hello")];
        let session = store.append(session.id, session.head, hello).await?.session;
        Ok((store, effects, session))
    }

    /// A session with a question and its answer.
    pub async fn answered() -> Result<(Sessions, Effects, Arc<SessionRecord>)> {
        let (store, effects, session) = session().await?;
        let messages = vec![NewEvent::user_message("Where to?"), NewEvent::agent_message("To Oslo.")];
        let session = store.replace(session.id, session.head, messages).await?.session;
        Ok((store, effects, session))
    }

    /// A session of which a run has the lease, and the commit that gave it.
    pub async fn running() -> Result<(Sessions, Arc<SessionRecord>, Committed)> {
        let (store, effects, session) = greeted().await?;
        let begin = Trigger::BeginRun(LeaseRequest::new("laptop", effects.new_run_id()));
        let begun = store.trigger(session.id, begin).await?;
        Ok((store, session, begun))
    }
}
