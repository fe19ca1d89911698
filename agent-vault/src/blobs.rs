//! Blobs of an encrypted store: sealed in chunks, under the names that their sealed bytes have.
//!
//! A sealed blob begins with its plain name and size, sealed; then come the chunks of [`BLOB_CHUNK_BYTES`] plain bytes, each sealed with
//! name, size and index. A row of the key place leads from the plain name to the inner one. The same content of one session always has the same sealed
//! bytes, so that row never changes; without it the blob is missing, and whoever puts the blob makes it again.

use agent_core::sealing::SealedBlob;
use agent_core::store::{BLOB_CHUNK_BYTES, BlobInfo};
use agent_core::{BlobName, Error, Result, SessionId};

use crate::cipher::{Cipher, Purpose, SEALED_BYTES};
use crate::keys::Keys;
use crate::place::KeyRow;
use crate::sealing::{decoded, encoded};

/// Number of plain bytes of the header: SHA-256 and size.
pub(crate) const HEADER_BYTES: usize = 32 + 8;
/// Number of bytes of the sealed header.
pub(crate) const SEALED_HEADER_BYTES: u64 = (HEADER_BYTES + SEALED_BYTES) as u64;
/// Number of headers that a list reads at once.
pub(crate) const AT_ONCE: usize = 16;

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
pub(crate) fn row_name(cipher: &Cipher, session: SessionId, name: BlobName) -> String {
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

pub(crate) fn row_text(cipher: &Cipher, session: SessionId, blob: SealedBlob) -> String {
    let plain = [&blob.plain.bytes.to_be_bytes()[..], blob.inner.name.as_sha256()].concat();
    encoded(&cipher.seal(Purpose::Blob, &row_parts(&session, &blob.plain.name), &plain))
}

/// The bound parts of a chunk.
pub(crate) fn chunk_parts(session: SessionId, blob: BlobInfo, index: u64) -> [Vec<u8>; 5] {
    [
        b"chunk".to_vec(),
        session.as_uuid().as_bytes().to_vec(),
        blob.name.as_sha256().to_vec(),
        blob.bytes.to_be_bytes().to_vec(),
        index.to_be_bytes().to_vec(),
    ]
}

pub(crate) fn seal_chunk(
    cipher: &Cipher,
    session: SessionId,
    blob: BlobInfo,
    index: u64,
    plain: &[u8],
) -> Vec<u8> {
    let parts = chunk_parts(session, blob, index);
    cipher.seal(Purpose::Blob, &parts.each_ref().map(Vec::as_slice), plain)
}

pub(crate) fn seal_header(cipher: &Cipher, session: SessionId, blob: BlobInfo) -> Vec<u8> {
    let plain = [&blob.name.as_sha256()[..], &blob.bytes.to_be_bytes()].concat();
    cipher.seal(Purpose::Blob, &[b"header", session.as_uuid().as_bytes()], &plain)
}

pub(crate) fn open_header(cipher: &Cipher, session: SessionId, sealed: &[u8]) -> Option<BlobInfo> {
    let plain = cipher.open(Purpose::Blob, &[b"header", session.as_uuid().as_bytes()], sealed)?;
    let (name, bytes) = plain.split_first_chunk::<32>()?;
    Some(BlobInfo::new(BlobName::from_sha256(*name), u64::from_be_bytes(bytes.try_into().ok()?)))
}
