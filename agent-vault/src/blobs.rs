//! Blobs of an encrypted store: sealed in chunks, under the names that their sealed bytes have.
//!
//! A sealed blob begins with its plain name and size, sealed; then come the chunks of [`BLOB_CHUNK_BYTES`] plain bytes, each sealed with
//! name, size and index. A row of the key place leads from the plain name to the inner one. The same content of one session always has the same sealed
//! bytes, so that row never changes; without it the blob is missing, and whoever puts the blob makes it again.

use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use agent_core::sealing::SealedBlob;
use agent_core::store::{
    BLOB_CHUNK_BYTES, BlobChunk, BlobContent, BlobInfo, BlobQuery, BlobStore, BlobStoreWrapper, BlobStream,
    Page, PutBlob, ReadBlob,
};
use agent_core::{BlobName, Error, ErrorKind, Result, SessionId, SessionStore, async_trait};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};

use crate::cipher::{Cipher, Purpose, SEALED_BYTES};
use crate::keys::Keys;
use crate::place::KeyRow;
use crate::sealing::{decoded, encoded};
use crate::sessions::SealedSessions;

/// Number of sealed bytes that are kept in memory before they go to a file.
const MEMORY_BYTES: usize = 4 << 20;
/// Number of plain bytes of the header: SHA-256 and size.
const HEADER_BYTES: usize = 32 + 8;
/// Number of bytes of the sealed header.
const SEALED_HEADER_BYTES: u64 = (HEADER_BYTES + SEALED_BYTES) as u64;
/// Number of headers that a list reads at once.
const AT_ONCE: usize = 16;

/// Returns the number of bytes of a blob's sealed form.
const fn sealed_bytes(plain: u64) -> u64 {
    SEALED_HEADER_BYTES + plain + plain.div_ceil(BLOB_CHUNK_BYTES as u64) * SEALED_BYTES as u64
}

/// Returns the largest blob whose sealed form has at most `most` bytes.
pub(crate) const fn most(most: u64) -> u64 {
    let chunk = (BLOB_CHUNK_BYTES + SEALED_BYTES) as u64;
    let left = most.saturating_sub(SEALED_HEADER_BYTES);
    let rest = (left % chunk).saturating_sub(SEALED_BYTES as u64);
    left / chunk * BLOB_CHUNK_BYTES as u64 + rest
}

/// Returns the parts to which the row of a blob is bound.
fn row_parts<'p>(session: &'p SessionId, name: &'p BlobName) -> [&'p [u8]; 3] {
    [b"blob row", session.as_uuid().as_bytes(), name.as_sha256()]
}

/// Returns the name of the row that leads to a blob. Nobody without the session's key learns from it which content it is.
fn row_name(cipher: &Cipher, session: SessionId, name: BlobName) -> String {
    let mac = cipher.mac(&row_parts(&session, &name));
    let mac: String = mac.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("blob/{session}/{mac}")
}

/// Finds a blob that was put for a session.
pub(crate) async fn find(
    keys: &Keys,
    cipher: &Cipher,
    session: SessionId,
    name: BlobName,
) -> Result<Option<SealedBlob>> {
    let row = row_name(cipher, session, name);
    let Some(KeyRow::Present(text)) = keys.place().get(&row).await? else { return Ok(None) };
    read_row(cipher, session, name, &text).map(Some)
}

fn read_row(cipher: &Cipher, session: SessionId, name: BlobName, text: &str) -> Result<SealedBlob> {
    let wrong = || {
        Error::corrupt(format!(
            "the row that leads to blob {name} of session {session} was changed; put the blob again"
        ))
    };
    let sealed = decoded(text).ok_or_else(wrong)?;
    let plain = cipher.open(Purpose::Blob, &row_parts(&session, &name), &sealed).ok_or_else(wrong)?;
    let (bytes, inner) = plain.split_first_chunk::<8>().ok_or_else(wrong)?;
    let inner: [u8; 32] = inner.try_into().map_err(|_| wrong())?;
    let plain = BlobInfo::new(name, u64::from_be_bytes(*bytes));
    Ok(SealedBlob::new(plain, BlobInfo::new(BlobName::from_sha256(inner), sealed_bytes(plain.bytes))))
}

fn row_text(cipher: &Cipher, session: SessionId, blob: SealedBlob) -> String {
    let plain = [&blob.plain.bytes.to_be_bytes()[..], blob.inner.name.as_sha256()].concat();
    encoded(&cipher.seal(Purpose::Blob, &row_parts(&session, &blob.plain.name), &plain))
}

/// The bound parts of a chunk.
fn chunk_parts(session: SessionId, blob: BlobInfo, index: u64) -> [Vec<u8>; 5] {
    [
        b"chunk".to_vec(),
        session.as_uuid().as_bytes().to_vec(),
        blob.name.as_sha256().to_vec(),
        blob.bytes.to_be_bytes().to_vec(),
        index.to_be_bytes().to_vec(),
    ]
}

fn seal_chunk(cipher: &Cipher, session: SessionId, blob: BlobInfo, index: u64, plain: &[u8]) -> Vec<u8> {
    let parts = chunk_parts(session, blob, index);
    cipher.seal(Purpose::Blob, &parts.each_ref().map(Vec::as_slice), plain)
}

fn seal_header(cipher: &Cipher, session: SessionId, blob: BlobInfo) -> Vec<u8> {
    let plain = [&blob.name.as_sha256()[..], &blob.bytes.to_be_bytes()].concat();
    cipher.seal(Purpose::Blob, &[b"header", session.as_uuid().as_bytes()], &plain)
}

fn open_header(cipher: &Cipher, session: SessionId, sealed: &[u8]) -> Option<BlobInfo> {
    let plain = cipher.open(Purpose::Blob, &[b"header", session.as_uuid().as_bytes()], sealed)?;
    let (name, bytes) = plain.split_first_chunk::<32>()?;
    Some(BlobInfo::new(BlobName::from_sha256(*name), u64::from_be_bytes(bytes.try_into().ok()?)))
}

/// Sealed bytes, in memory or in a file without a name.
#[derive(Debug)]
struct Spool {
    file: tempfile::SpooledTempFile,
    hash: Sha256,
    bytes: u64,
}

impl Spool {
    fn new() -> Self {
        Self { file: tempfile::spooled_tempfile(MEMORY_BYTES), hash: Sha256::new(), bytes: 0 }
    }

    fn write(&mut self, piece: &[u8]) -> std::io::Result<()> {
        self.hash.update(piece);
        self.bytes += piece.len() as u64;
        self.file.write_all(piece)
    }

    /// Returns the blob, and its content from the start.
    fn finish(mut self) -> std::io::Result<(BlobInfo, BlobStream)> {
        let blob = BlobInfo::new(BlobName::from_sha256(self.hash.finalize().into()), self.bytes);
        self.file.seek(SeekFrom::Start(0))?;
        let content = stream::try_unfold(self.file, |mut file| async move {
            let mut piece = vec![0; BLOB_CHUNK_BYTES];
            let count = file.read(&mut piece).map_err(spool_error)?;
            piece.truncate(count);
            Ok((count > 0).then(|| (Bytes::from(piece), file)))
        });
        Ok((blob, content.boxed()))
    }
}

fn spool_error(source: std::io::Error) -> Error {
    let text = format!("the temporary file of a sealed blob failed: {source}");
    let kind = match source.kind() {
        std::io::ErrorKind::StorageFull => ErrorKind::Full,
        std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, text).with_source(source)
}

/// Chunks of a sealed blob, read from the store in order.
struct Chunks {
    store: Arc<dyn SessionStore>,
    session: SessionId,
    blob: SealedBlob,
    cipher: Arc<Cipher>,
    content: Option<BlobStream>,
    left: BytesMut,
}

impl Chunks {
    /// Returns the plain bytes of a chunk. Those of the first call and all after it follow one another.
    async fn next(&mut self, index: u64) -> Result<BlobChunk> {
        let wanted = self.blob.plain.chunk_len(index) + SEALED_BYTES;
        if self.content.is_none() {
            let from = SEALED_HEADER_BYTES + index * (BLOB_CHUNK_BYTES + SEALED_BYTES) as u64;
            let read =
                ReadBlob::new(self.session, self.blob.inner.name).with_range(from..self.blob.inner.bytes);
            self.content = Some(self.store.blobs().read(read).await?.content);
        }
        while self.left.len() < wanted {
            let piece = match &mut self.content {
                Some(content) => content.try_next().await?,
                None => None,
            };
            let Some(piece) = piece else { return Err(self.damaged(index)) };
            self.left.extend_from_slice(&piece);
        }
        let sealed = self.left.split_to(wanted);
        let parts = chunk_parts(self.session, self.blob.plain, index);
        let plain = self.cipher.open(Purpose::Blob, &parts.each_ref().map(Vec::as_slice), &sealed);
        let plain = plain.ok_or_else(|| self.damaged(index))?;
        let checksum = self.blob.plain.checksum(index, &plain);
        Ok(BlobChunk::new(plain.into(), Some(checksum)))
    }

    fn damaged(&self, index: u64) -> Error {
        Error::corrupt(format!(
            "blob {} of session {}: chunk {index} is not what was sealed; put the blob again, or restore it from a backup",
            self.blob.plain.name, self.session
        ))
    }
}

#[async_trait]
impl BlobStoreWrapper for SealedSessions {
    fn inner(&self) -> &dyn BlobStore {
        self.inner.blobs()
    }

    async fn put(&self, put: PutBlob) -> Result<()> {
        let most = most(self.inner.capabilities().blob_max_bytes);
        let (session, plain) = (put.session, put.blob);
        let mut chunks = put.into_chunks(most)?;
        let cipher = self.keys.session_or_new(session).await?;
        let mut spool = Spool::new();
        spool.write(&seal_header(&cipher, session, plain)).map_err(spool_error)?;
        let mut index = 0;
        while let Some(chunk) = chunks.next().await? {
            spool.write(&seal_chunk(&cipher, session, plain, index, &chunk)).map_err(spool_error)?;
            index += 1;
        }
        let (inner, content) = spool.finish().map_err(spool_error)?;
        let row = row_name(&cipher, session, plain.name);
        let text = row_text(&cipher, session, SealedBlob::new(plain, inner));
        self.keys.place().put_if_absent(&row, &text).await?;
        self.inner.blobs().put(PutBlob::new(session, inner, content)).await
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        let session = read.session;
        let Some(cipher) = self.keys.session(session).await? else { return Err(read.not_found()) };
        let Some(blob) = find(&self.keys, &cipher, session, read.name).await? else {
            return Err(read.not_found());
        };
        // Says at once whether the blob is there.
        let header = ReadBlob::new(session, blob.inner.name).with_range(0..SEALED_HEADER_BYTES);
        match self.inner.blobs().read(header).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => return Err(read.not_found()),
            found => drop(found?),
        }
        let chunks =
            Chunks { store: self.inner.clone(), session, blob, cipher, content: None, left: BytesMut::new() };
        let chunks = Arc::new(tokio::sync::Mutex::new(chunks));
        Ok(BlobContent::from_chunks(&read, blob.plain, move |index| {
            let chunks = chunks.clone();
            async move { chunks.lock().await.next(index).await }
        }))
    }

    /// Reads the header of each blob of the session, and sorts them by their plain names.
    async fn list(&self, query: BlobQuery) -> Result<Page<BlobInfo>> {
        let session = query.session;
        let mut inner = Vec::new();
        let mut pages = agent_core::store::pages(BlobQuery::new(session).with_limit(1000), |query| {
            self.inner.blobs().list(query)
        });
        while let Some(page) = pages.try_next().await? {
            inner.extend(page.items);
        }
        drop(pages);
        if inner.is_empty() {
            return query.page([]);
        }
        let Some(cipher) = self.keys.session(session).await? else {
            return Err(Error::corrupt(format!(
                "session {session} has blobs and no key; restore the rows of its keys from a backup"
            )));
        };
        let opened: Vec<BlobInfo> = stream::iter(inner)
            .map(|blob| {
                let (store, cipher) = (self.inner.clone(), cipher.clone());
                async move {
                    let read = ReadBlob::new(session, blob.name).with_range(0..SEALED_HEADER_BYTES);
                    let header =
                        store.blobs().read(read).await?.into_bytes(HEADER_BYTES + SEALED_BYTES).await?;
                    open_header(&cipher, session, &header).ok_or_else(|| {
                        Error::corrupt(format!(
                            "blob {} of session {session} was not sealed by its key",
                            blob.name
                        ))
                    })
                }
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        query.page(opened)
    }
}
