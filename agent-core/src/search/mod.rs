//! Search in the texts of sessions, in any language, the same on every store.
//!
//! - [`Query`]: what a text must contain.
//! - [`Search`], [`Sessions::search`](crate::Sessions::search): hits in sessions, newest first, in pages.
//!
//! One function decides what is found, on the text in the log; an index only says where to look.

mod fold;
mod hit;
mod index;
mod query;
mod scan;
mod snippet;
mod text;
mod tokens;

pub use hit::{Hit, Search, SearchPage};
pub use index::{IndexUpdate, before_restore};
pub use query::Query;
pub use snippet::Snippet;

use crate::Sessions;
use crate::base::Result;

impl Sessions {
    /// Searches sessions of this store for what was said and written, newest first.
    ///
    /// It shows what the handle shows: a tenant, or what an owner may use. It reads the logs, up to [`Search::max_bytes`] for a page. The order
    /// is that of the times of the events, but within a session that of the session, whatever the clocks of its writers say: an event comes before
    /// those after it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::event::NewEvent;
    /// use agent_core::search::Search;
    ///
    /// # let (store, effects, session) = session().await?;
    /// store.append(session.id, session.head, vec![NewEvent::user_message("Der Zug fährt um 9")]).await?;
    /// let page = store.search(&Search::new("ZUG -morgen")).await?;
    /// assert_eq!(page.hits[0].snippet.marked("**"), "Der **Zug** fährt um 9");
    /// assert!(page.is_complete);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the query has no word to look for, or the cursor belongs to another search; `NotFound` if the session that is to be
    /// searched does not exist; any error of the store. Sessions that are damaged are in [`SearchPage::damaged`].
    pub async fn search(&self, search: &Search) -> Result<SearchPage> {
        scan::scan(self, search).await
    }
}
