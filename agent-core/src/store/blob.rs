//! Blobs: large content of a session. A blob is put first; then a commit names it.

use std::future::Future;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::base::{BlobName, Error, Result, Seq, SessionId};
use crate::model::{BLOB_CHUNK_BYTES, BlobInfo};
use crate::setters;
use crate::store::page::{Cursor, Fingerprint, PAGE_MAX, Page, PageQuery};

/// Maximum number of bytes of one blob.
pub const BLOB_MAX_BYTES: u64 = 1 << 30;
/// Bytes of a blob, in order, in pieces of any size. An error ends the stream.
pub type BlobStream = BoxStream<'static, Result<Bytes>>;

impl BlobInfo {
    /// Reads a stream to its end, and returns its name and size. Holds one piece in memory.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::store::BlobInfo;
    /// use bytes::Bytes;
    /// use futures::{StreamExt, stream};
    ///
    /// let pieces = stream::iter([Ok(Bytes::from("hel")), Ok(Bytes::from("lo"))]);
    /// assert_eq!(BlobInfo::of_stream(pieces.boxed()).await?, BlobInfo::of(b"hello"));
    /// # Ok(()) }
    /// ```
    pub async fn of_stream(mut content: BlobStream) -> Result<Self> {
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        while let Some(piece) = content.try_next().await? {
            hash.update(&piece);
            bytes += piece.len() as u64;
        }
        Ok(Self::new(BlobName::from_sha256(hash.finalize().into()), bytes))
    }
}

/// Request to put a blob.
///
/// ```
/// use agent_core::clock::Effects;
/// use agent_core::store::{BlobInfo, PutBlob};
///
/// let session = Effects::default().new_session_id();
/// let put = PutBlob::of_bytes(session, "hello");
/// assert_eq!(put.blob, BlobInfo::of(b"hello"));
/// ```
#[must_use]
#[non_exhaustive]
pub struct PutBlob {
    /// Session to whose log the blob belongs. It may be created later.
    pub session: SessionId,
    /// Name and size of the blob.
    pub blob: BlobInfo,
    /// Bytes of the blob. The store checks that they have this name and size.
    pub content: BlobStream,
}

impl std::fmt::Debug for PutBlob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PutBlob")
            .field("session", &self.session)
            .field("blob", &self.blob)
            .finish_non_exhaustive()
    }
}

impl PutBlob {
    /// Creates a request for a blob whose name and size are known, for example from
    /// [`BlobInfo::of_stream`] over a first reading of a file.
    pub fn new(session: SessionId, blob: BlobInfo, content: BlobStream) -> Self {
        Self { session, blob, content }
    }

    /// Creates a request for a blob that is in memory.
    pub fn of_bytes(session: SessionId, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::new(session, BlobInfo::of(&bytes), stream::iter([Ok(bytes)]).boxed())
    }

    /// For backends: checks the size, and divides the content into chunks.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` if the blob is larger than the store keeps, which is `most` bytes.
    pub fn into_chunks(self, most: u64) -> Result<BlobChunks> {
        let most = most.min(BLOB_MAX_BYTES);
        if self.blob.bytes > most {
            return Err(Error::limit(format!(
                "blob {} of session {} has {} bytes, and this store keeps at most {most}; store it elsewhere, and give \
                 its address",
                self.blob.name, self.session, self.blob.bytes
            )));
        }
        Ok(BlobChunks {
            session: self.session,
            blob: self.blob,
            content: self.content,
            piece: Bytes::new(),
            seen: 0,
            hash: Sha256::new(),
        })
    }
}

/// For backends: content of a blob that is put, divided into chunks and checked.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::clock::Effects;
/// use agent_core::store::{BLOB_CHUNK_BYTES, BLOB_MAX_BYTES, PutBlob};
///
/// let session = Effects::default().new_session_id();
/// let mut chunks = PutBlob::of_bytes(session, vec![7; 300_000]).into_chunks(BLOB_MAX_BYTES)?;
/// assert_eq!(chunks.next().await?.unwrap().len(), BLOB_CHUNK_BYTES);
/// assert_eq!(chunks.next().await?.unwrap().len(), 300_000 - BLOB_CHUNK_BYTES);
/// assert_eq!(chunks.next().await?, None, "the bytes have the name");
/// # Ok(()) }
/// ```
pub struct BlobChunks {
    session: SessionId,
    blob: BlobInfo,
    content: BlobStream,
    /// Rest of the last piece.
    piece: Bytes,
    seen: u64,
    hash: Sha256,
}

impl std::fmt::Debug for BlobChunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobChunks")
            .field("blob", &self.blob)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

impl BlobChunks {
    /// Returns the name and size of the blob.
    pub const fn blob(&self) -> BlobInfo {
        self.blob
    }

    /// Returns the next chunk: [`BLOB_CHUNK_BYTES`] bytes, the last one fewer. Returns `None` behind the last one, after
    /// the content was checked; the blob may be published only then.
    ///
    /// # Errors
    ///
    /// Those of the content; `InvalidInput` if the content does not have the name and the size of the blob.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let mut chunk = BytesMut::new();
        loop {
            if self.piece.is_empty() {
                match self.content.try_next().await? {
                    Some(piece) => self.piece = piece,
                    None => break,
                }
                continue;
            }
            let wanted = BLOB_CHUNK_BYTES - chunk.len();
            let part = self.piece.split_to(wanted.min(self.piece.len()));
            if self.seen + (chunk.len() + part.len()) as u64 > self.blob.bytes {
                return Err(self.differs(format_args!("more than {} bytes", self.blob.bytes)));
            }
            if chunk.is_empty() && part.len() == BLOB_CHUNK_BYTES {
                return Ok(Some(self.took(part)));
            }
            chunk.extend_from_slice(&part);
            if chunk.len() == BLOB_CHUNK_BYTES {
                return Ok(Some(self.took(chunk.freeze())));
            }
        }
        if !chunk.is_empty() {
            return Ok(Some(self.took(chunk.freeze())));
        }
        if self.seen != self.blob.bytes {
            return Err(self.differs(format_args!("{} bytes, not {}", self.seen, self.blob.bytes)));
        }
        let name = BlobName::from_sha256(self.hash.clone().finalize().into());
        if name != self.blob.name {
            return Err(self.differs(format_args!("the SHA-256 {name}")));
        }
        Ok(None)
    }

    /// Returns the whole content, in memory.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    pub async fn into_bytes(mut self) -> Result<Bytes> {
        let mut bytes = BytesMut::new();
        while let Some(chunk) = self.next().await? {
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }

    fn took(&mut self, chunk: Bytes) -> Bytes {
        self.seen += chunk.len() as u64;
        self.hash.update(&chunk);
        chunk
    }

    fn differs(&self, what: std::fmt::Arguments<'_>) -> Error {
        Error::invalid(format!(
            "the content of blob {} of session {} has {what}; it was changed while it was read, so compute its name and \
             its size again",
            self.blob.name, self.session
        ))
    }
}

/// Request to read a blob, or a range of its bytes.
///
/// ```
/// use agent_core::BlobName;
/// use agent_core::clock::Effects;
/// use agent_core::store::ReadBlob;
///
/// let session = Effects::default().new_session_id();
/// let read = ReadBlob::new(session, BlobName::of(b"hello")).with_range(1..3);
/// assert_eq!(read.range, 1..3);
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadBlob {
    /// Session to whose own log the blob belongs.
    pub session: SessionId,
    /// Name of the blob.
    pub name: BlobName,
    /// Range of the bytes, from 0; the part of it that lies behind the end of the blob is ignored. The whole blob by
    /// default.
    pub range: Range<u64>,
}

impl ReadBlob {
    /// Creates a request for a whole blob.
    pub const fn new(session: SessionId, name: BlobName) -> Self {
        Self { session, name, range: 0..u64::MAX }
    }

    /// Sets the range of the bytes.
    pub fn with_range(mut self, range: Range<u64>) -> Self {
        self.range = range;
        self
    }

    /// Returns the error for a blob that is not there.
    pub fn not_found(&self) -> Error {
        let Self { session, name, .. } = self;
        let text = format!(
            "session {session} has no blob {name} of its own; if it is a fork, read it from the session whose events name it, \
             otherwise put it"
        );
        Error::not_found(text)
    }

    /// Returns the error for a blob that is not there, although the event `seq` of the session names it.
    pub(crate) fn lost(&self, seq: Seq) -> Error {
        let Self { session, name, .. } = self;
        let text = format!(
            "blob {name}, which event {seq} of session {session} names, is lost; put the same bytes for that session again, or \
             restore the store from a backup"
        );
        Error::corrupt(text)
    }
}

/// Blob that is being read.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # use agent_core::clock::Effects;
/// use agent_core::store::{PutBlob, ReadBlob};
/// use agent_core::{BlobName, MemoryStore, SessionStore};
///
/// let (store, session) = (MemoryStore::new(), Effects::default().new_session_id());
/// store.blobs().put(PutBlob::of_bytes(session, "hello")).await?;
/// let read = store.blobs().read(ReadBlob::new(session, BlobName::of(b"hello")).with_range(1..3)).await?;
/// assert_eq!((read.blob.bytes, read.range.clone()), (5, 1..3));
/// assert_eq!(read.into_bytes(1024).await?, "el");
/// # Ok(()) }
/// ```
#[must_use]
#[non_exhaustive]
pub struct BlobContent {
    /// Name and size of the whole blob.
    pub blob: BlobInfo,
    /// Range of the bytes that are read.
    pub range: Range<u64>,
    /// Bytes. Each chunk is checked before it is handed out. The stream of a whole blob ends with `Corrupt` in place of
    /// its end if the bytes do not have the name.
    pub content: BlobStream,
}

impl std::fmt::Debug for BlobContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobContent")
            .field("blob", &self.blob)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

/// For backends: stored chunk of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlobChunk {
    /// Bytes.
    pub bytes: Bytes,
    /// Stored [checksum](BlobInfo::checksum); `None` if the blob has one chunk, which is checked by its name.
    pub checksum: Option<u32>,
}

impl BlobChunk {
    /// Creates a stored chunk.
    pub const fn new(bytes: Bytes, checksum: Option<u32>) -> Self {
        Self { bytes, checksum }
    }
}

impl BlobContent {
    /// For backends: creates the content from a function that returns the stored chunk of an index.
    ///
    /// Checks all that a reader is promised: the length and the checksum of each chunk before it is handed out, and the
    /// name of a blob that is read as a whole. Reads no chunk outside of the range, and each when it is asked for.
    pub fn from_chunks<F, R>(read: &ReadBlob, blob: BlobInfo, chunk: F) -> Self
    where
        F: FnMut(u64) -> R + Send + 'static,
        R: Future<Output = Result<BlobChunk>> + Send,
    {
        let end = read.range.end.min(blob.bytes);
        let range = read.range.start.min(end)..end;
        let size = BLOB_CHUNK_BYTES as u64;
        let indexes =
            range.start / size..if range.is_empty() { range.start / size } else { range.end.div_ceil(size) };
        let is_whole = range == (0..blob.bytes);
        let (session, wanted) = (read.session, range.clone());
        let state = (chunk, indexes, is_whole.then(Sha256::new));
        let content = stream::try_unfold(Some(state), move |state| {
            let wanted = wanted.clone();
            async move {
                let Some((mut chunk, mut indexes, mut hash)) = state else { return Ok(None) };
                let corrupt = |what: String| {
                    Error::corrupt(format!(
                        "blob {} of session {session}: {what}; put the blob again, or restore it from a backup",
                        blob.name
                    ))
                };
                let Some(index) = indexes.next() else {
                    let name = hash.map(|hash| BlobName::from_sha256(hash.finalize().into()));
                    return match name {
                        Some(name) if name != blob.name => {
                            Err(corrupt(format!("its bytes have the SHA-256 {name}")))
                        }
                        _ => Ok(None),
                    };
                };
                let BlobChunk { bytes, checksum } = chunk(index).await?;
                let is_right = bytes.len() == blob.chunk_len(index)
                    && match checksum {
                        Some(checksum) => checksum == blob.checksum(index, &bytes),
                        None => blob.chunks() == 1 && BlobName::of(&bytes) == blob.name,
                    };
                if !is_right {
                    return Err(corrupt(format!("chunk {index} of {} is damaged", blob.chunks())));
                }
                if let Some(hash) = &mut hash {
                    hash.update(&bytes);
                }
                let start = index * size;
                let within = |at: u64| {
                    usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX).min(bytes.len())
                };
                let part = bytes.slice(within(wanted.start)..within(wanted.end));
                Ok(Some((part, Some((chunk, indexes, hash)))))
            }
        });
        Self { blob, range, content: content.boxed() }
    }

    /// For backends that hold the bytes of a blob in memory: creates the content from them.
    ///
    /// The stream of a whole blob ends with `Corrupt` if the bytes do not have the name. A range is not checked: a
    /// backend whose bytes may be damaged compares their name first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::BlobName;
    /// use agent_core::clock::Effects;
    /// use agent_core::store::{BlobContent, ReadBlob};
    ///
    /// let read = ReadBlob::new(Effects::default().new_session_id(), BlobName::of(b"hello"));
    /// assert_eq!(BlobContent::from_bytes(&read, "hello".into()).into_bytes(1024).await?, "hello");
    /// assert!(BlobContent::from_bytes(&read, "hullo".into()).into_bytes(1024).await.is_err());
    /// # Ok(()) }
    /// ```
    pub fn from_bytes(read: &ReadBlob, bytes: Bytes) -> Self {
        let blob = BlobInfo::new(read.name, bytes.len() as u64);
        Self::from_chunks(read, blob, move |index| {
            let start = usize::try_from(index).unwrap_or(usize::MAX).saturating_mul(BLOB_CHUNK_BYTES);
            let bytes = bytes.slice(start..start + blob.chunk_len(index));
            let checksum = Some(blob.checksum(index, &bytes));
            async move { Ok(BlobChunk::new(bytes, checksum)) }
        })
    }

    /// Reads the bytes into memory.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` if there are more than `most`; those of the content.
    pub async fn into_bytes(mut self, most: usize) -> Result<Bytes> {
        let count = self.range.end - self.range.start;
        if count > most as u64 {
            return Err(Error::limit(format!(
                "{count} bytes of blob {} were asked for, and at most {most} may be read at once; read a smaller range",
                self.blob.name
            )));
        }
        let mut bytes = BytesMut::new();
        while let Some(piece) = self.content.try_next().await? {
            if bytes.is_empty() && piece.len() as u64 == count {
                // One chunk: the end of the stream still checks the whole.
                let rest = self.content.try_next().await?;
                debug_assert!(rest.is_none_or(|rest| rest.is_empty()), "the range is complete");
                return Ok(piece);
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }
}

/// Query for a list of the blobs of one session, ordered by name.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # use agent_core::clock::Effects;
/// use agent_core::store::{BlobQuery, PutBlob};
/// use agent_core::{MemoryStore, SessionStore};
///
/// let (store, session) = (MemoryStore::new(), Effects::default().new_session_id());
/// store.blobs().put(PutBlob::of_bytes(session, "one")).await?;
/// store.blobs().put(PutBlob::of_bytes(session, "two")).await?;
/// let query = BlobQuery::new(session).with_limit(1);
/// let first = store.blobs().list(query.clone()).await?;
/// let second = store.blobs().list(query.with_cursor(first.next)).await?;
/// assert!(first.items[0].name < second.items[0].name && second.next.is_none());
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BlobQuery {
    /// Session to whose own log the blobs belong.
    pub session: SessionId,
    /// Maximum number of blobs on the page; 100 by default, at most 1,000. 0 returns an empty page without a next one.
    pub limit: usize,
    /// Start of the page.
    pub cursor: Option<Cursor>,
}

impl BlobQuery {
    /// Creates a query for all blobs of a session, 100 a page.
    pub const fn new(session: SessionId) -> Self {
        Self { session, limit: 100, cursor: None }
    }

    setters! {
        /// Sets the maximum number of blobs on the page.
        pub fn with_limit(limit: usize) => limit = limit.min(PAGE_MAX);

        /// Sets the start of the page.
        pub fn with_cursor(cursor: Option<Cursor>) => cursor = cursor;
    }

    /// Returns the fingerprint by which a cursor recognizes its query.
    pub fn fingerprint(&self) -> u64 {
        Fingerprint::of("blobs").field("session", Some(self.session.to_string())).finish()
    }

    /// Returns the blob after which the page starts.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub fn after(&self) -> Result<Option<BlobName>> {
        self.cursor.as_ref().map(|cursor| cursor.id::<BlobName>(self.fingerprint())).transpose()
    }

    /// For backends: returns the page of these blobs, which are given in any order.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub fn page(&self, blobs: impl IntoIterator<Item = BlobInfo>) -> Result<Page<BlobInfo>> {
        let after = self.after()?;
        let mut found: Vec<_> =
            blobs.into_iter().filter(|blob| after.is_none_or(|after| blob.name > after)).collect();
        found.sort_unstable();
        Ok(Page::first(found, self.limit, |last| Cursor::after(self.fingerprint(), &last.name.to_string())))
    }
}

impl PageQuery for BlobQuery {
    fn starting_at(self, cursor: Cursor) -> Self {
        self.with_cursor(Some(cursor))
    }
}

/// Request to remove blobs that no event names.
///
/// ```
/// use agent_core::store::SweepBlobs;
///
/// assert!(SweepBlobs::without_session().with_dry_run().dry_run);
/// ```
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepBlobs {
    /// Session whose blobs are swept; `None` for those of all ids of which no session was created.
    pub session: Option<SessionId>,
    /// True if nothing is removed, and what would be is counted. False by default.
    pub dry_run: bool,
}

impl SweepBlobs {
    /// Creates a request for the blobs of one session.
    pub const fn of(session: SessionId) -> Self {
        Self { session: Some(session), dry_run: false }
    }

    /// Creates a request for the blobs of all ids of which no session was created.
    pub const fn without_session() -> Self {
        Self { session: None, dry_run: false }
    }

    /// Counts what would be removed, and removes nothing.
    pub const fn with_dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }
}

/// Result of a [sweep](SweepBlobs).
///
/// ```
/// use agent_core::store::SweptBlobs;
///
/// assert_eq!(SweptBlobs::new(2, 4096).with_unfinished(100).bytes, 4096);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SweptBlobs {
    /// Number of removed blobs, with leftovers of puts that did not end.
    pub blobs: u64,
    /// Number of their bytes.
    pub bytes: u64,
    /// Number of bytes of puts that have not ended and may still do, and of blobs that a commit under way may still name; a
    /// later sweep removes them if they do not.
    pub unfinished: u64,
}

impl SweptBlobs {
    /// Creates the result for this number of removed blobs and of their bytes.
    pub const fn new(blobs: u64, bytes: u64) -> Self {
        Self { blobs, bytes, unfinished: 0 }
    }

    /// Sets the number of bytes of puts that have not ended, and of blobs that may still be named.
    #[must_use]
    pub const fn with_unfinished(mut self, bytes: u64) -> Self {
        self.unfinished = bytes;
        self
    }
}

impl std::ops::AddAssign for SweptBlobs {
    fn add_assign(&mut self, other: Self) {
        self.blobs += other.blobs;
        self.bytes += other.bytes;
        self.unfinished += other.unfinished;
    }
}
