//! Finding sessions by what people, or other systems, call them.

use agent_core::session::SessionSummary;
use agent_core::store::{Page, SessionQuery};
use agent_core::{Error, Result, SessionStore};

/// The most bytes of what is looked for.
const TEXT_MAX_BYTES: usize = 1024;

/// The sessions of a query whose title holds `text`, in whatever case, or one of whose references is `text`: a page at a
/// time, the last active first. The text is taken as it is: nothing in it is a pattern.
///
/// Whose sessions are looked through is said by the query: those of a workspace, a creator, with a label. A page holds at
/// least one session where there is one, and up to twice the query's limit; the lists behind it are read until then, so
/// it costs as much as what is looked through. `next` goes on behind that. There is no total.
///
/// ```
/// use agent_core::{MemoryStore, SessionStoreExt, WorkspaceId};
/// use agent_core::clock::Effects;
/// use agent_core::model::{Patch, Title};
/// use agent_core::session::NewSession;
/// use agent_core::store::SessionQuery;
/// use agent_runtime::views::find_sessions;
///
/// # async fn example() -> agent_core::Result<()> {
/// let (store, effects) = (MemoryStore::new(), Effects::default());
/// let said = Patch::new().title(Title::by_user("100% of Plan A")).reference("ticket", "T-42");
/// let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT).with(&said);
/// SessionStoreExt::create(&store, &effects, new).await?;
/// for text in ["100%", "plan a", "T-42"] {
///     assert_eq!(find_sessions(&store, SessionQuery::new(), text).await?.items.len(), 1);
/// }
/// assert_eq!(find_sessions(&store, SessionQuery::new(), "1%A").await?.items.len(), 0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// `InvalidInput` for a text that is empty or longer than 1,024 bytes; those of [`SessionStore::list`].
pub async fn find_sessions(
    sessions: &dyn SessionStore,
    mut query: SessionQuery,
    text: &str,
) -> Result<Page<SessionSummary>> {
    if text.is_empty() || text.len() > TEXT_MAX_BYTES {
        return Err(Error::invalid(format!(
            "a text of {} bytes to look for; give 1 to {TEXT_MAX_BYTES}",
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
        query = query.cursor(page.next);
    }
}
