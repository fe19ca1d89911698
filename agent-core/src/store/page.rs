//! Pages of a list, the cursor that leads to the next, and what was found damaged on the way.

use std::fmt;
use std::future::Future;
use std::str::FromStr;

use futures::stream::{self, BoxStream, StreamExt};

use crate::base::{Error, ParseError, Result, Timestamp, WorkspaceId, quoted};

/// The most items on a page; a larger wish is cut down to it.
pub const PAGE_MAX: usize = 1000;

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page<T> {
    /// The items, in the list's order.
    pub items: Vec<T>,
    /// What could not be read. It is named here and never silently left out.
    pub damaged: Vec<Damaged>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<Cursor>,
    /// How many items there are on all pages, where the query asked.
    pub total: Option<u64>,
}

impl<T> Page<T> {
    /// A page of these items, and no more after it.
    pub fn new(items: Vec<T>) -> Self {
        Self { items, damaged: Vec::new(), next: None, total: None }
    }

    /// The first `limit` of the items that are still to come; `cursor` makes that of the last one on the page.
    pub(crate) fn first(mut items: Vec<T>, limit: usize, cursor: impl FnOnce(&T) -> Cursor) -> Self {
        let limit = limit.min(PAGE_MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(cursor);
        Self::new(items).with_next(next)
    }

    /// Sets where the next page starts.
    #[must_use]
    pub fn with_next(mut self, next: Option<Cursor>) -> Self {
        self.next = next;
        self
    }

    /// Sets what could not be read.
    #[must_use]
    pub fn with_damaged(mut self, damaged: Vec<Damaged>) -> Self {
        self.damaged = damaged;
        self
    }

    /// Sets how many items there are on all pages.
    #[must_use]
    pub fn with_total(mut self, total: Option<u64>) -> Self {
        self.total = total;
        self
    }
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

/// A request for a list, of which [`pages`] asks for one page after another.
pub trait PageQuery: Clone + Send + Sync {
    /// The same request, from `cursor` on.
    #[must_use]
    fn starting_at(self, cursor: Cursor) -> Self;
}

/// The pages of a list, from where `first` starts; each is asked for when it is wanted. Ends with the first error.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::{MemoryStore, Storage};
/// use agent_core::store::{SessionQuery, pages};
/// use futures::TryStreamExt;
///
/// let storage = Storage::from(MemoryStore::new());
/// let mut pages = pages(SessionQuery::new().limit(200), |query| storage.sessions.list(query));
/// let mut count = 0;
/// while let Some(page) = pages.try_next().await? {
///     count += page.items.len();
/// }
/// assert_eq!(count, 0);
/// # Ok(()) }
/// ```
///
/// # Cancel safety
///
/// A stream that is dropped while it waits for a page has asked for that page, and for none after it.
pub fn pages<'a, Q, T, F>(first: Q, list: impl Fn(Q) -> F + Send + 'a) -> BoxStream<'a, Result<Page<T>>>
where
    Q: PageQuery + 'a,
    T: Send + 'a,
    F: Future<Output = Result<Page<T>>> + Send + 'a,
{
    let pages = stream::try_unfold((Some(first), list), |(query, list)| async move {
        let Some(query) = query else { return Ok(None) };
        let page = list(query.clone()).await?;
        let next = page.next.clone().map(|cursor| query.starting_at(cursor));
        Ok(Some((page, (next, list))))
    });
    pages.boxed()
}

/// Something stored that cannot be read. Its bytes are kept.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Damaged {
    /// What it is, by its name in the store.
    pub object: String,
    /// What is wrong with it, in words.
    pub reason: String,
    /// The workspace that it belongs to, where only a list of all workspaces names it; by this a collection keeps the workspace.
    pub workspace: Option<WorkspaceId>,
}

impl Damaged {
    /// Names what is damaged, and how.
    pub fn new(object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { object: object.into(), reason: reason.into(), workspace: None }
    }

    /// Says to which workspace it belongs, so that this is not taken for one that nobody needs.
    pub fn in_workspace(mut self, workspace: WorkspaceId) -> Self {
        self.workspace = Some(workspace);
        self
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Most reasons name the object themselves.
        if !self.reason.starts_with(&self.object) {
            write!(f, "{}: ", self.object)?;
        }
        f.write_str(&self.reason)
    }
}

/// Where the next page of a list starts. Opaque; belongs to one query, and is refused by any other.
///
/// Made of the place of the last item, not of a count: rows that move meanwhile make no other row appear twice or
/// not at all.
#[derive(Clone, PartialEq, Eq)]
pub struct Cursor(Box<str>);

impl Cursor {
    /// For backends: a cursor of the query `fingerprint`, after the item at `key`. Any text may be a key.
    pub fn after(fingerprint: u64, key: &str) -> Self {
        Self(format!("c1.{fingerprint:016x}.{key}").into())
    }

    /// For backends: the key that the cursor was made of.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it was made by another query.
    pub fn key(&self, fingerprint: u64) -> Result<&str> {
        let mut parts = self.0.splitn(3, '.');
        let (version, print, key) = (parts.next(), parts.next(), parts.next());
        if version == Some("c1") && print == Some(&format!("{fingerprint:016x}")) {
            return Ok(key.unwrap_or_default());
        }
        Err(Error::invalid(format!(
            "cursor {} belongs to another query; start the list anew",
            quoted(&self.0)
        )))
    }

    /// For backends whose lists are ordered by a time: after the item of the time `at` with the id `id`.
    pub fn after_recent(fingerprint: u64, at: Timestamp, id: impl fmt::Display) -> Self {
        Self::after(fingerprint, &format!("{} {id}", at.as_micros()))
    }

    /// The time and the id of [`Cursor::after_recent`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it was made by another query.
    pub fn recent_key<T: FromStr<Err = ParseError>>(&self, fingerprint: u64) -> Result<(Timestamp, T)> {
        let (at, id) = self
            .key(fingerprint)?
            .split_once(' ')
            .ok_or_else(|| Error::invalid(format!("cursor {} is malformed", quoted(&self.0))))?;
        let at = at.parse().map_err(|source| Error::invalid("cursor is malformed").with_source(source))?;
        Ok((Timestamp::from_micros(at), id.parse()?))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({self})")
    }
}

impl FromStr for Cursor {
    type Err = Error;

    /// Takes back what `Display` gave; whether it fits is found when it is used.
    fn from_str(text: &str) -> Result<Self> {
        if text.len() > 2048 || !text.starts_with("c1.") {
            return Err(Error::invalid(format!("{} is not a cursor of this library", quoted(text))));
        }
        Ok(Self(text.into()))
    }
}

/// A fingerprint of a query, by which a cursor knows it again: FNV-1a, 64 bits, over the kind of list and the fields that
/// are set, as `<name> <length of the value>:<value>` each. Clients keep cursors, so this never changes; a field that is
/// not set leaves it as it is.
#[derive(Clone, Copy)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    /// That of a query of a kind of list, in which nothing is set.
    pub(crate) fn of(list: &str) -> Self {
        Self(0xcbf2_9ce4_8422_2325).add(list)
    }

    /// The same with a field; none if that is not set.
    pub(crate) fn field(self, name: &str, value: Option<impl AsRef<str>>) -> Self {
        let Some(value) = value else { return self };
        let value = value.as_ref();
        self.add(&format!("\n{name} {}:{value}", value.len()))
    }

    pub(crate) const fn finish(self) -> u64 {
        self.0
    }

    fn add(self, text: &str) -> Self {
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(text.bytes().fold(self.0, step))
    }
}
