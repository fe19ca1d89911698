//! Pages of a list, the cursor of the next page, and damaged objects found on the way.

use std::fmt;
use std::future::Future;
use std::str::FromStr;

use futures::stream::{self, BoxStream, StreamExt};

use serde::{Deserialize, Serialize};

use crate::base::percent::{percent_decode, percent_encode};
use crate::base::text::text_serde;
use crate::base::{Error, ErrorKind, ParseError, Result, Timestamp, WorkspaceId, quoted};
use crate::setters;

/// Maximum number of items on a page; a larger limit is reduced to it.
pub const PAGE_MAX: usize = 1000;

/// One page of a list.
///
/// ```
/// use agent_core::store::{Damaged, Page};
///
/// let damaged = vec![Damaged::new("session 019c…", "line 412 has a bad checksum")];
/// let page = Page::new(vec!["laptop", "phone"]).with_damaged(damaged).with_total(Some(3)).with_next(None);
/// assert_eq!((page.items.len(), page.total, page.next), (2, Some(3), None));
/// assert_eq!(page.damaged[0].to_string(), "session 019c…: line 412 has a bad checksum");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Page<T> {
    /// Items, in the list's order.
    pub items: Vec<T>,
    /// Objects that could not be read. Damaged objects are always listed here, never silently left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<Damaged>,
    /// Start of the next page; `None` on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
    /// Number of items on all pages, if the query asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

impl<T> Page<T> {
    /// Creates a page of these items, without a next one.
    pub fn new(items: Vec<T>) -> Self {
        Self { items, damaged: Vec::new(), next: None, total: None }
    }

    /// Creates a page of the first `limit` of the remaining items; `cursor` makes the next cursor from the last item
    /// on the page.
    pub(crate) fn first(mut items: Vec<T>, limit: usize, cursor: impl FnOnce(&T) -> Cursor) -> Self {
        let limit = limit.min(PAGE_MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(cursor);
        Self::new(items).with_next(next)
    }

    setters! {
        /// Sets the start of the next page.
        pub fn with_next(next: Option<Cursor>) => next = next;

        /// Sets the objects that could not be read.
        pub fn with_damaged(damaged: Vec<Damaged>) => damaged = damaged;

        /// Sets the number of items on all pages.
        pub fn with_total(total: Option<u64>) => total = total;
    }
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

/// Query for a list, which [`pages`] sends once for each page.
///
/// ```
/// use agent_core::store::{Cursor, PageQuery, SessionQuery};
///
/// let cursor = Cursor::after(SessionQuery::new().fingerprint(), "");
/// assert_eq!(SessionQuery::new().starting_at(cursor.clone()).cursor, Some(cursor));
/// ```
pub trait PageQuery: Clone + Send + Sync {
    /// Returns the same query, starting at `cursor`.
    #[must_use]
    fn starting_at(self, cursor: Cursor) -> Self;
}

/// Returns the pages of a list, from the start of `first`. Each page is read when it is needed; the stream ends with
/// the first error.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::{MemoryStore, Storage};
/// use agent_core::store::{SessionQuery, pages};
/// use futures::TryStreamExt;
///
/// let storage = Storage::from(MemoryStore::new());
/// let mut pages = pages(SessionQuery::new().with_limit(200), |query| storage.sessions.list(query));
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
/// A stream that is dropped while it waits for a page has requested that page, and none after it.
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

/// Stored object that cannot be read: it is damaged, or of another format. Its bytes are kept.
///
/// ```
/// use agent_core::WorkspaceId;
/// use agent_core::store::Damaged;
///
/// let damaged = Damaged::new("session 019c…", "the snapshot holds no record").with_workspace(WorkspaceId::DEFAULT);
/// assert_eq!(damaged.to_string(), "session 019c…: the snapshot holds no record");
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Damaged {
    /// Name of the object in the store.
    pub object: String,
    /// Description of the damage.
    pub reason: String,
    /// Workspace that the object belongs to, set only in lists of all workspaces; garbage collection keeps that
    /// workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceId>,
    /// True if nothing is damaged: the object has a format that this version does not read. Use the version that wrote
    /// it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unsupported: bool,
    /// True if nothing is damaged: the object is not one of the store, which ignores it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_foreign: bool,
}

impl Damaged {
    /// Creates a report of a damaged object.
    pub fn new(object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            object: object.into(),
            reason: reason.into(),
            workspace: None,
            is_unsupported: false,
            is_foreign: false,
        }
    }

    /// For backends: creates a report of an object that another program put among those of the store. It is ignored.
    ///
    /// ```
    /// use agent_core::store::Damaged;
    ///
    /// let found = Damaged::foreign("object agents/.DS_Store", "is of no kind that this store writes, and is ignored");
    /// assert!(found.is_foreign && !found.is_unsupported);
    /// ```
    pub fn foreign(object: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { is_foreign: true, ..Self::new(object, reason) }
    }

    /// Creates a report of an object that could not be read because of an error, which is `Corrupt` or `Unsupported`.
    ///
    /// ```
    /// use agent_core::store::Damaged;
    /// use agent_core::{Error, ErrorKind};
    ///
    /// let error = Error::unsupported("it has format 9; update the library");
    /// assert!(Damaged::of("session 019c…", &error).is_unsupported);
    /// ```
    pub fn of(object: impl Into<String>, error: &Error) -> Self {
        let is_unsupported = *error.kind() == ErrorKind::Unsupported;
        Self { is_unsupported, ..Self::new(object, error.to_string()) }
    }

    /// Sets the workspace that the object belongs to, so that the workspace is not considered unused.
    #[doc(alias = "in_workspace")]
    pub fn with_workspace(mut self, workspace: WorkspaceId) -> Self {
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

/// Start of the next page of a list. Opaque; belongs to one query, and is refused by any other.
///
/// As text it consists of ASCII letters, digits and `-._~:%` only, so it needs no quoting in a shell or a URL, and it
/// has at most 2,048 bytes. Its JSON form is that text.
///
/// A cursor is made of the position of the last item, not of a count: items that move meanwhile do not make other
/// items appear twice or not at all.
///
/// ```
/// use agent_core::SessionId;
/// use agent_core::Timestamp;
/// use agent_core::store::{Cursor, SessionQuery};
///
/// let print = SessionQuery::new().fingerprint();
/// let id: SessionId = "019c60d9-9c41-715c-8289-ec2d0a9167ec".parse()?;
/// let cursor = Cursor::after_recent(print, Timestamp::UNIX_EPOCH, id);
/// let text = cursor.to_string();
/// assert_eq!(text.parse::<Cursor>()?, cursor);
/// assert_eq!(cursor.recent_key::<SessionId>(print)?, (Timestamp::UNIX_EPOCH, id));
/// // Another query refuses the cursor.
/// assert!(cursor.key(SessionQuery::new().with_hidden().fingerprint()).is_err());
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Cursor(Box<str>);

impl Cursor {
    /// For backends: creates a cursor of the query `fingerprint`, after the item at `key`. Any text may be a key.
    pub fn after(fingerprint: u64, key: &str) -> Self {
        Self(format!("c2.{fingerprint:016x}.{}", percent_encode(key)).into())
    }

    /// For backends: returns the key from which the cursor was made.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the cursor belongs to another query, or is malformed.
    pub fn key(&self, fingerprint: u64) -> Result<String> {
        let mut parts = self.0.splitn(3, '.');
        let (version, print, key) = (parts.next(), parts.next(), parts.next());
        if version == Some("c2") && print == Some(&format!("{fingerprint:016x}")) {
            return percent_decode(key.unwrap_or_default())
                .map_err(|source| self.malformed().with_source(source));
        }
        Err(Error::invalid(format!(
            "cursor {} belongs to another query; list from the start",
            quoted(&self.0)
        )))
    }

    /// For backends whose lists are ordered by time: creates a cursor after the item with the time `at` and the id
    /// `id`.
    pub fn after_recent(fingerprint: u64, at: Timestamp, id: impl fmt::Display) -> Self {
        Self::after(fingerprint, &format!("{} {id}", at.as_micros()))
    }

    /// Returns the time and the id of a cursor made by [`Cursor::after_recent`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the cursor belongs to another query, or is malformed.
    pub fn recent_key<T: FromStr<Err = ParseError>>(&self, fingerprint: u64) -> Result<(Timestamp, T)> {
        let key = self.key(fingerprint)?;
        let (at, id) = key.split_once(' ').ok_or_else(|| self.malformed())?;
        let at = at.parse().map_err(|source| self.malformed().with_source(source))?;
        Ok((Timestamp::from_micros(at), id.parse().map_err(|source| self.malformed().with_source(source))?))
    }

    /// Returns the id from which the cursor was made.
    pub(crate) fn id<T: FromStr<Err = ParseError>>(&self, fingerprint: u64) -> Result<T> {
        self.key(fingerprint)?.parse().map_err(|source| self.malformed().with_source(source))
    }

    fn malformed(&self) -> Error {
        Error::invalid(format!("cursor {} is malformed; list from the start", quoted(&self.0)))
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

text_serde!(Cursor);

impl FromStr for Cursor {
    type Err = Error;

    /// Parses the output of `Display`. Whether the cursor belongs to a query is checked when it is used.
    fn from_str(text: &str) -> Result<Self> {
        if text.len() <= 2048 && text.starts_with("c2.") {
            return Ok(Self(text.into()));
        }
        let format = text.strip_prefix('c').and_then(|rest| rest.split_once('.')).map(|(format, _)| format);
        Err(Error::invalid(match format.and_then(|format| format.parse::<u32>().ok()) {
            Some(format) if format != 2 => format!(
                "{} is a cursor of format {format}, and this version reads format 2; list from the start",
                quoted(text)
            ),
            _ => format!("{} is not a cursor of this library; list from the start", quoted(text)),
        }))
    }
}

/// Fingerprint of a query, by which a cursor recognizes it.
///
/// It is FNV-1a, 64 bits, over the kind of list and the fields that are set, each as `<name> <length of the
/// value>:<value>`. Clients store cursors, so the algorithm never changes; a field that is not set does not change
/// the result.
#[derive(Clone, Copy)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    /// Returns the fingerprint of a query for this kind of list, with no fields set.
    pub(crate) fn of(list: &str) -> Self {
        Self(0xcbf2_9ce4_8422_2325).add(list)
    }

    /// Adds a field, unless its value is not set.
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
