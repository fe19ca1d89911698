//! Search for sessions by title or by reference.

use agent_core::session::SessionSummary;
use agent_core::store::{Page, SessionQuery};
use agent_core::{Error, Result, SessionStore};

/// Maximum bytes of the search text.
const TEXT_MAX_BYTES: usize = 1024;

/// Lists the sessions of a query whose title contains `text`, in any case, or that have `text` as a reference.
///
/// Results are returned a page at a time, last active first. The text is taken literally: no character in it is a
/// pattern.
///
/// The query selects the sessions that are searched: those of a workspace, of a creator, with a label. Messages are not
/// searched. The lists of the store are read until a page has the query's limit, or up to twice that; the cost is
/// proportional to the number of sessions that are searched. `next` continues after them. There is no total.
///
/// ```
/// use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
/// use agent_core::clock::Effects;
/// use agent_core::model::{Patch, Title};
/// use agent_core::session::NewSession;
/// use agent_core::store::SessionQuery;
/// use agent_runtime::views::find_sessions;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// let (store, effects) = (MemoryStore::new(), Effects::default());
/// let said = Patch::new().with_title(Title::by_user("100% of Plan A")).with_reference("ticket", "T-42");
/// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT).with_patch(&said);
/// store.sessions(&effects).create(new).await?;
/// for text in ["100%", "plan a", "T-42"] {
///     assert_eq!(find_sessions(&store, SessionQuery::new(), text).await?.items.len(), 1);
/// }
/// assert_eq!(find_sessions(&store, SessionQuery::new(), "1%A").await?.items.len(), 0);
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// `InvalidInput` for a text that is empty or longer than 1,024 bytes; errors of [`SessionStore::list`].
pub async fn find_sessions(
    sessions: &dyn SessionStore,
    mut query: SessionQuery,
    text: &str,
) -> Result<Page<SessionSummary>> {
    if text.is_empty() || text.len() > TEXT_MAX_BYTES {
        return Err(Error::invalid(format!(
            "the search text has {} bytes; use 1 to {TEXT_MAX_BYTES}",
            text.len()
        )));
    }
    query.with_total = false;
    let lower = text.to_lowercase();
    let is_called = |session: &SessionSummary| {
        let title = session.attributes.title.as_ref();
        title.is_some_and(|title| title.text.to_lowercase().contains(&lower))
            || session.attributes.references.values().any(|reference| reference == text)
    };
    let mut found = Page::default();
    loop {
        let page = sessions.list(query.clone()).await?;
        found.items.extend(page.items.into_iter().filter(is_called));
        found.damaged.extend(page.damaged);
        found.next.clone_from(&page.next);
        if page.next.is_none() || found.items.len() >= query.limit {
            found.damaged.sort();
            found.damaged.dedup();
            return Ok(found);
        }
        query = query.with_cursor(page.next);
    }
}
