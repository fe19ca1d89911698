//! Name and size of a blob, and the check that the blobs of a commit are there.

use serde::{Deserialize, Serialize};

use crate::base::{BlobName, Error, ErrorKind, Result, SessionId};

/// Number of bytes of a chunk of a blob: stores check and hand out the bytes chunk by chunk.
pub const BLOB_CHUNK_BYTES: usize = 256 << 10;

/// Name and size of a blob.
///
/// ```
/// use agent_core::model::BlobInfo;
///
/// let info = BlobInfo::of(b"hello");
/// assert_eq!((info.bytes, info.name), (5, agent_core::BlobName::of(b"hello")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BlobInfo {
    /// Name: the SHA-256 of the bytes; stored as `sha256`.
    #[serde(rename = "sha256")]
    pub name: BlobName,
    /// Number of bytes.
    pub bytes: u64,
}

impl BlobInfo {
    /// Creates the name and size of a blob.
    pub const fn new(name: BlobName, bytes: u64) -> Self {
        Self { name, bytes }
    }

    /// Returns the name and size of a blob with these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::new(BlobName::of(bytes), bytes.len() as u64)
    }

    /// For backends: returns the number of chunks.
    pub const fn chunks(&self) -> u64 {
        self.bytes.div_ceil(BLOB_CHUNK_BYTES as u64)
    }

    /// For backends: returns the number of bytes of the chunk `index`, counted from 0; zero behind the last one.
    pub fn chunk_len(&self, index: u64) -> usize {
        let start = index.saturating_mul(BLOB_CHUNK_BYTES as u64);
        usize::try_from(self.bytes.saturating_sub(start))
            .map_or(BLOB_CHUNK_BYTES, |rest| rest.min(BLOB_CHUNK_BYTES))
    }

    /// For backends: returns the checksum of the chunk `index`: CRC-32C over the name of the blob, the index in 8 bytes
    /// with the lowest first, and the bytes. So a chunk that lies in another place is found.
    pub fn checksum(&self, index: u64, bytes: &[u8]) -> u32 {
        let place = crc32c::crc32c_append(crc32c::crc32c(self.name.as_sha256()), &index.to_le_bytes());
        crc32c::crc32c_append(place, bytes)
    }
}

/// Blob that must be in the session's log before a commit is applied.
///
/// ```
/// use agent_core::BlobName;
/// use agent_core::model::NeededBlob;
///
/// let needed = NeededBlob::new(BlobName::of(b"hello"), Some(5));
/// assert_eq!(needed.bytes, Some(5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct NeededBlob {
    /// Name of the blob.
    pub name: BlobName,
    /// Number of its bytes, if the commit says it.
    pub bytes: Option<u64>,
}

impl NeededBlob {
    /// Creates the requirement of a blob.
    pub const fn new(name: BlobName, bytes: Option<u64>) -> Self {
        Self { name, bytes }
    }

    /// For backends, in the atomic step of a commit: checks that the store has all of these blobs for the session.
    ///
    /// `size` returns the number of bytes of a blob of the session's own log, or `None` if it is not there.
    ///
    /// # Errors
    ///
    /// `BlobMissing` if blobs are not there; `InvalidInput` if one has another number of bytes than the commit says.
    ///
    /// ```
    /// use agent_core::clock::Effects;
    /// use agent_core::model::NeededBlob;
    /// use agent_core::{BlobName, Error, ErrorKind};
    ///
    /// let session = Effects::default().new_session_id();
    /// let needed = [NeededBlob::new(BlobName::of(b"hello"), Some(5))];
    /// NeededBlob::check::<Error>(session, &needed, |_| Ok(Some(5)))?;
    /// let error = NeededBlob::check::<Error>(session, &needed, |_| Ok(None)).unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::BlobMissing { blobs: vec![needed[0].name] });
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn check<E: From<Error>>(
        session: SessionId,
        needed: &[Self],
        mut size: impl FnMut(BlobName) -> Result<Option<u64>, E>,
    ) -> Result<(), E> {
        let mut missing = Vec::new();
        for blob in needed {
            match (size(blob.name)?, blob.bytes) {
                (None, _) => missing.push(blob.name),
                (Some(there), Some(named)) if there != named => {
                    return Err(lies(&format!("session {session}: "), blob.name, named, there).into());
                }
                _ => {}
            }
        }
        let Some(first) = missing.first() else { return Ok(()) };
        let text = format!(
            "session {session} does not have blob {first} ({} of {} are missing); put it, then send the commit again",
            missing.len(),
            needed.len()
        );
        Err(Error::new(ErrorKind::BlobMissing { blobs: missing }, text).into())
    }

    /// Returns the requirements sorted by name, each once.
    pub(crate) fn merged(needed: impl IntoIterator<Item = Self>) -> Result<Vec<Self>> {
        let mut all: Vec<_> = needed.into_iter().collect();
        all.sort_unstable();
        let mut merged: Vec<Self> = Vec::with_capacity(all.len());
        for next in all {
            match merged.last_mut() {
                // An unknown number of bytes comes first.
                Some(last) if last.name == next.name => match (last.bytes, next.bytes) {
                    (Some(named), Some(also)) if named != also => {
                        return Err(lies("", last.name, named, also));
                    }
                    _ => last.bytes = next.bytes,
                },
                _ => merged.push(next),
            }
        }
        Ok(merged)
    }
}

fn lies(of: &str, name: BlobName, named: u64, there: u64) -> Error {
    Error::invalid(format!(
        "{of}blob {name} has {there} bytes, and the event says {named}; give the number of bytes of the blob"
    ))
}
