//! Blobs of an encrypted store, in the store around which it is.

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

use crate::blobs::{
    AT_ONCE, HEADER_BYTES, MEMORY_BYTES, SEALED_HEADER_BYTES, chunk_parts, find, most, open_header, row_name,
    row_text, seal_chunk, seal_header,
};
use crate::cipher::{Cipher, Purpose, SEALED_BYTES};
use crate::sessions::SealedSessions;

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
        let cipher = match self.keys.session(session).await {
            Ok(Some(cipher)) => cipher,
            Ok(None) => return Err(read.not_found()),
            Err(error) if *error.kind() == ErrorKind::Deleted => return Err(read.not_found()),
            Err(error) => return Err(error),
        };
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
