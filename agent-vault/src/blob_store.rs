//! Blobs of an encrypted store, in the store around which it is.

use std::sync::Arc;

use agent_core::sealing::SealedBlob;
use agent_core::store::{
    BLOB_CHUNK_BYTES, BlobChunk, BlobChunks, BlobContent, BlobInfo, BlobQuery, BlobStore, BlobStoreWrapper,
    BlobStream, Page, PutBlob, ReadBlob,
};
use agent_core::{Error, ErrorKind, Result, SessionId, async_trait};
use agent_workspace::blobs::Spool;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};

use crate::blobs::{
    AT_ONCE, HEADER_BYTES, SEALED_HEADER_BYTES, chunk_parts, find, most, open_header, row_name, row_text,
    seal_chunk, seal_header,
};
use crate::cipher::{Cipher, Purpose, SEALED_BYTES};
use crate::place::KeyRow;
use crate::sessions::SealedSessions;

/// Returns the sealed bytes of a blob: its header, then each chunk.
fn sealed(chunks: BlobChunks, cipher: Arc<Cipher>, session: SessionId) -> BlobStream {
    let blob = chunks.blob();
    let header = Bytes::from(seal_header(&cipher, session, blob));
    let rest = stream::try_unfold((chunks, 0), move |(mut chunks, index)| {
        let cipher = cipher.clone();
        async move {
            let Some(chunk) = chunks.next().await? else { return Ok(None) };
            let sealed = seal_chunk(&cipher, session, blob, index, &chunk);
            Ok(Some((Bytes::from(sealed), (chunks, index + 1))))
        }
    });
    stream::iter([Ok(header)]).chain(rest).boxed()
}

/// Chunks of a sealed blob, read from the store in order.
struct Chunks {
    session: SessionId,
    blob: SealedBlob,
    cipher: Arc<Cipher>,
    content: BlobStream,
    left: BytesMut,
}

impl Chunks {
    /// Returns the plain bytes of the next chunk, whose index is this.
    async fn next(&mut self, index: u64) -> Result<BlobChunk> {
        let wanted = self.blob.plain.chunk_len(index) + SEALED_BYTES;
        while self.left.len() < wanted {
            let Some(piece) = self.content.try_next().await? else { return Err(self.damaged(index)) };
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
        let chunks = put.into_chunks(most)?;
        self.check_new(session).await?;
        let cipher = self.keys.session_or_new(session).await?;
        // Sealed once: its name is known at the end.
        let spool = Spool::copy(sealed(chunks, cipher.clone(), session)).await?;
        let row = row_name(&cipher, session, plain.name);
        let text = row_text(&cipher, session, SealedBlob::new(plain, spool.blob()));
        if let KeyRow::Present(found) = self.keys.place().put_if_absent(&row, &text).await?
            && found != text
        {
            // The row was damaged: another content has another row.
            self.keys.place().swap(&row, &found, &text).await?;
        }
        let inner = spool.blob();
        self.inner.blobs().put(PutBlob::new(session, inner, spool.into_content())).await
    }

    async fn read(&self, read: ReadBlob) -> Result<BlobContent> {
        let session = read.session;
        let cipher = match self.keys.session(session).await {
            Ok(Some(cipher)) => cipher,
            Ok(None) => return Err(read.not_found()),
            Err(error) if *error.kind() == ErrorKind::Deleted => return Err(read.not_found()),
            Err(error) => return Err(error),
        };
        let Some(blob) = find(&self.keys, &cipher, session, read.name).await? else {
            return Err(read.not_found());
        };
        // The sealed chunks in which the range lies.
        let (plain, sealed) = (BLOB_CHUNK_BYTES as u64, (BLOB_CHUNK_BYTES + SEALED_BYTES) as u64);
        let end = read.range.end.min(blob.plain.bytes);
        let first = read.range.start.min(end) / plain;
        let from = SEALED_HEADER_BYTES + first * sealed;
        let to = (SEALED_HEADER_BYTES + end.div_ceil(plain) * sealed).min(blob.inner.bytes);
        let inner = ReadBlob::new(session, blob.inner.name).with_range(from..to.max(from));
        let content = match self.inner.blobs().read(inner).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => return Err(read.not_found()),
            found => found?.content,
        };
        let chunks = Chunks { session, blob, cipher, content, left: BytesMut::new() };
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
