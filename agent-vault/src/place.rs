//! Trait of a place for wrapped keys, and the rows in it.

use std::fmt;
use std::fmt::Debug;

use agent_core::Result;
use agent_core::store::{Cursor, Page, PageQuery};
use async_trait::async_trait;

/// Place for wrapped keys: rows of text, each under a name, of which none comes back after it was dropped.
///
/// A name is 1 to 256 bytes of text without control characters, and a text is not empty.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::sync::Arc;
/// use agent_core::MemoryStore;
/// use agent_vault::{KeyPlace, KeyRow, StorePlace};
///
/// let place = StorePlace::new(Arc::new(MemoryStore::new()));
/// assert_eq!(place.get("session/acme/7").await?, None);
/// let first = place.put_if_absent("session/acme/7", "one").await?;
/// let second = place.put_if_absent("session/acme/7", "two").await?;
/// assert_eq!((first, second), (KeyRow::Present("one".into()), KeyRow::Present("one".into())));
///
/// assert!(place.drop_key("session/acme/7").await?);
/// assert_eq!(place.put_if_absent("session/acme/7", "three").await?, KeyRow::Dropped);
/// # Ok(()) }
/// ```
///
/// # Contract
///
/// A row is absent, present or dropped, at every moment and after any crash. It becomes present once, changes by a swap, and is
/// dropped once and for good. What a write returns is durable. `Corrupt` data is never reported as absent.
///
/// # Cancel safety
///
/// Every method may be dropped at any point; a dropped write was applied completely or not at all, or is still running. The
/// same call again finishes.
///
/// # Errors
///
/// `InvalidInput` for a malformed name or text; otherwise as for
/// [`WorkspaceStore`](agent_core::WorkspaceStore#errors).
#[async_trait]
pub trait KeyPlace: Debug + Send + Sync + 'static {
    /// Returns a row; `None` if it is absent.
    async fn get(&self, name: &str) -> Result<Option<KeyRow>>;

    /// Puts a row if it is absent, and returns what is there afterwards, whoever put it; that is durable then.
    async fn put_if_absent(&self, name: &str, text: &str) -> Result<KeyRow>;

    /// Replaces the text `old` of a row by `new`. Succeeds as well if the row has the text `new` already.
    ///
    /// # Errors
    ///
    /// `Conflict` if the row has another text, is absent or was dropped.
    async fn swap(&self, name: &str, old: &str, new: &str) -> Result<()>;

    /// Removes the text of a row, and leaves a marker without it, so that nobody puts the row again; also if the row was absent.
    /// Returns whether the row had a text when the call looked at it.
    ///
    /// The bytes of the text are gone from the medium as the place documents it.
    async fn drop_key(&self, name: &str) -> Result<bool>;

    /// Returns a page of the rows that are present, in no particular order. A row that is put while the pages are read
    /// may be missing; each other one is shown exactly once.
    ///
    /// A page may have fewer rows than its limit, or none, although there is a next one.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another place.
    async fn list(&self, query: KeyQuery) -> Result<Page<KeyEntry>>;
}

/// Row of a [`KeyPlace`] that was put.
#[derive(Clone, PartialEq, Eq)]
pub enum KeyRow {
    /// The row has this text.
    Present(String),
    /// The row was dropped. It has no text, and never has one again.
    Dropped,
}

impl Debug for KeyRow {
    /// Shows no text: it is a wrapped key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Present(_) => "Present(..)",
            Self::Dropped => "Dropped",
        })
    }
}

/// Row of a list: one that is present.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyEntry {
    /// Name of the row.
    pub name: String,
    /// Text of the row.
    pub text: String,
}

impl KeyEntry {
    /// Creates an entry of a list.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }
}

impl Debug for KeyEntry {
    /// Shows no text: it is a wrapped key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyEntry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Query for a list of the rows of a [`KeyPlace`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::sync::Arc;
/// use agent_core::MemoryStore;
/// use agent_core::store::pages;
/// use agent_vault::{KeyPlace, KeyQuery, StorePlace};
/// use futures::TryStreamExt;
///
/// let place = StorePlace::new(Arc::new(MemoryStore::new()));
/// place.put_if_absent("session/acme/7", "one").await?;
/// place.put_if_absent("session/umbra/8", "two").await?;
/// let query = KeyQuery::new().with_prefix("session/acme/").with_limit(200);
/// let mut pages = pages(query, |query| place.list(query));
/// assert_eq!(pages.try_next().await?.unwrap().items[0].name, "session/acme/7");
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyQuery {
    /// Start of the names; empty for all.
    pub prefix: String,
    /// Maximum number of rows on a page; 50 by default.
    pub limit: usize,
    /// Start of the page.
    pub cursor: Option<Cursor>,
}

impl Default for KeyQuery {
    fn default() -> Self {
        Self { prefix: String::new(), limit: 50, cursor: None }
    }
}

impl KeyQuery {
    /// Creates a query for all rows, 50 a page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects the rows whose names begin like this.
    pub fn with_prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets the maximum number of rows on a page.
    pub fn with_limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Sets the start of the page.
    pub fn with_cursor(self, cursor: Option<Cursor>) -> Self {
        Self { cursor, ..self }
    }
}

impl PageQuery for KeyQuery {
    fn starting_at(self, cursor: Cursor) -> Self {
        self.with_cursor(Some(cursor))
    }
}
