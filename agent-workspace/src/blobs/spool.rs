//! Temporary copy of a stream that can be read once.

use std::fs::File;
use std::io::{Read, Seek, Write};

use agent_core::store::{BLOB_CHUNK_BYTES, BLOB_MAX_BYTES, BlobInfo, BlobStream};
use agent_core::{BlobName, Error, ErrorKind, Result};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};

/// Temporary file without a name, with the content of a stream. The operating system removes it with the handle.
#[derive(Debug)]
pub struct Spool {
    file: File,
    /// Name and size of the content.
    blob: BlobInfo,
}

impl Spool {
    /// Copies a stream of at most [`BLOB_MAX_BYTES`]. Holds one piece in memory.
    ///
    /// # Errors
    ///
    /// Those of the stream; `LimitExceeded`; `Full` or `Unavailable` if the file cannot be written.
    pub async fn copy(mut content: BlobStream) -> Result<Self> {
        let mut file = blocking(tempfile::tempfile).await?;
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        while let Some(piece) = content.try_next().await? {
            hash.update(&piece);
            bytes += piece.len() as u64;
            if bytes > BLOB_MAX_BYTES {
                return Err(Error::limit(format!(
                    "the content has more than {BLOB_MAX_BYTES} bytes, the maximum of a blob; store it elsewhere, and give \
                     its address"
                )));
            }
            file = blocking(move || file.write_all(&piece).map(|()| file)).await?;
        }
        Ok(Self { file, blob: BlobInfo::new(BlobName::from_sha256(hash.finalize().into()), bytes) })
    }

    /// Returns the name and the size of the content.
    pub const fn blob(&self) -> BlobInfo {
        self.blob
    }

    /// Returns the content as a stream, from its beginning.
    pub fn into_content(self) -> BlobStream {
        let state = (self.file, true);
        let pieces = stream::try_unfold(state, |(mut file, is_first)| async move {
            let read = move || {
                if is_first {
                    file.rewind()?;
                }
                let mut piece = vec![0; BLOB_CHUNK_BYTES];
                let count = file.read(&mut piece)?;
                piece.truncate(count);
                Ok((Bytes::from(piece), file))
            };
            let (piece, file) = blocking(read).await?;
            Ok((!piece.is_empty()).then_some((piece, (file, false))))
        });
        pieces.boxed()
    }
}

/// Calls a function that reads or writes a file.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>, kind| {
        let text = "a temporary file for the content of a blob could not be written or read; check the space and the \
                    permissions of the folder for temporary files";
        Error::new(kind, text).with_source(source)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            let is_full = error.kind() == std::io::ErrorKind::StorageFull;
            Err(failed(error.into(), if is_full { ErrorKind::Full } else { ErrorKind::Unavailable }))
        }
        Err(error) => Err(failed(error.into(), ErrorKind::Unavailable)),
    }
}
