//! Blobs: put, read, listed, and checked by a commit; see `docs/decisions/0037`. An object holds the bytes, then the
//! checksums of the chunks if there are several.

use std::sync::Arc;

use agent_core::store::{
    BLOB_CHUNK_BYTES, BlobChunk, BlobChunks, BlobContent, BlobInfo, BlobQuery, Damaged, Page, ReadBlob,
};
use agent_core::{BlobName, Error, Result, SessionId};
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use tokio::sync::Mutex;

use crate::layout::keys::Slot;
use crate::log::blob_names::{Copy, SUM, named, object_bytes};
use crate::log::newest::newest;
use crate::log::slot::Kind;
use crate::log::slots::{Slots, is_deleted};
use crate::medium::object::{Condition, KEYS};
use crate::medium::upload::Upload;
use crate::places::tenant::Tenant;

/// Number of bytes of a part of an upload. A blob of at most as many is put by one request.
const PART: usize = 8 << 20;
/// Number of chunks that are read by one request.
const CHUNKS_AT_ONCE: u64 = 16;

/// Place for which a blob is put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Last event of the session.
    head: Slot,
    /// True if there is no session yet.
    pub(crate) is_early: bool,
}

/// Reads for which head a blob is put.
///
/// # Errors
///
/// `Deleted` if the session is deleted, and no event that is left of it names the blob; also if no session can be created
/// under this id.
pub(crate) async fn place(slots: &Slots, id: SessionId, name: BlobName) -> Result<Place> {
    let Some(head) = newest(slots, id).await? else { return Ok(Place { head: Slot::FIRST, is_early: true }) };
    let deleted = |what| Error::deleted(format!("session {id} {what}"));
    if head.head.kind == Kind::Void {
        return Err(deleted("cannot be created, since its id was given up; use another id"));
    }
    if is_deleted(&head) && !named(slots, id).await?.contains(&name) {
        return Err(deleted("was deleted; it takes no blobs but those that its remaining events name"));
    }
    Ok(Place { head: Slot(head.head.last.get()), is_early: false })
}

/// Stores a blob. It is visible once all of its bytes are stored and checked.
pub(crate) async fn put(slots: &Slots, place: Place, id: SessionId, mut chunks: BlobChunks) -> Result<()> {
    let Slots { bucket, keys, .. } = slots;
    let blob = chunks.blob();
    let key = keys.copy(id, blob.name, place.head, bucket.effects.random_u64());
    // By this note a sweep finds the blob if no session is ever created.
    let note = place.is_early.then(|| keys.early(id));
    let mut upload = None::<Upload>;
    let room = |sent: u64| PART.min(to_usize(object_bytes(blob.bytes).saturating_sub(sent)));
    let (mut body, mut sums, mut index) = (BytesMut::with_capacity(room(0)), BytesMut::new(), 0);
    while let Some(chunk) = chunks.next().await? {
        sums.extend_from_slice(&blob.checksum(index, &chunk).to_le_bytes());
        body.extend_from_slice(&chunk);
        index += 1;
        if blob.bytes > PART as u64 && body.len() >= PART {
            let upload = match &mut upload {
                Some(upload) => upload,
                None => {
                    put_note(slots, note.as_deref()).await?;
                    upload.insert(Upload::begin(bucket, key.clone()).await?)
                }
            };
            upload.put(body.split_to(PART).freeze()).await?;
            body.reserve(room(index * BLOB_CHUNK_BYTES as u64));
        }
    }
    // The content is checked now.
    if index > 1 {
        body.extend_from_slice(&sums);
    }
    let Some(mut upload) = upload else {
        put_note(slots, note.as_deref()).await?;
        return bucket.put(&key, &body.freeze(), &Condition::Any, bucket.deadline()).await.map(drop);
    };
    while !body.is_empty() {
        upload.put(body.split_to(PART.min(body.len())).freeze()).await?;
    }
    upload.complete().await
}

async fn put_note(slots: &Slots, note: Option<&str>) -> Result<()> {
    let Some(note) = note else { return Ok(()) };
    slots.bucket.put(note, &Bytes::new(), &Condition::Any, slots.bucket.deadline()).await.map(drop)
}

/// Returns the bytes of a blob, which are read as they are asked for.
pub(crate) async fn read(tenant: Arc<Tenant>, read: &ReadBlob) -> Result<BlobContent> {
    let Slots { bucket, keys, .. } = &tenant.slots;
    let folder = keys.copies(read.session, read.name);
    let page = bucket.list(&folder, None, None, KEYS, false, bucket.deadline()).await?;
    let copies = Copy::of(page);
    let Some(first) = copies.first() else { return Err(read.not_found()) };
    let bytes = copies.iter().find_map(|copy| copy.bytes);
    let bytes = bytes.ok_or_else(|| Error::corrupt(damaged_size(read.session, first)))?;
    let blob = BlobInfo::new(read.name, bytes);
    let keys = copies.into_iter().filter(|copy| copy.bytes == Some(bytes)).map(|copy| copy.key);
    let end = read.range.end.min(bytes);
    let copies = keys.map(|key| CopyReader { key, sums: None, piece: None }).collect();
    let reader = BlobReader { tenant, session: read.session, blob, end, copies, at: 0 };
    let reader = Arc::new(Mutex::new(reader));
    Ok(BlobContent::from_chunks(read, blob, move |index| {
        let reader = reader.clone();
        async move { reader.lock().await.chunk(index).await }
    }))
}

fn damaged_size(id: SessionId, copy: &Copy) -> String {
    format!(
        "blob {} of session {id}: object {} has a size that no blob has; put the blob again, or restore it from a backup",
        copy.name, copy.key
    )
}

/// Reader of a blob.
#[derive(Debug)]
struct BlobReader {
    tenant: Arc<Tenant>,
    session: SessionId,
    blob: BlobInfo,
    /// End of the range that is read.
    end: u64,
    copies: Vec<CopyReader>,
    /// Copy that is read. If a chunk of it is damaged or gone, the next one is.
    at: usize,
}

#[derive(Debug)]
struct CopyReader {
    key: String,
    sums: Option<Bytes>,
    /// Bytes that were read last, from an offset on.
    piece: Option<(u64, Bytes)>,
}

impl BlobReader {
    async fn chunk(&mut self, index: u64) -> Result<BlobChunk> {
        let mut damaged = None;
        for _ in 0..self.copies.len() {
            let Some(copy) = self.copies.get_mut(self.at) else { break };
            let chunk = copy.chunk(&self.tenant.slots, self.blob, self.end, index).await?;
            if chunk.as_ref().is_some_and(|chunk| is_sound(self.blob, index, chunk)) {
                return chunk.ok_or_else(|| removed(self.session, self.blob));
            }
            damaged = chunk.or(damaged);
            copy.piece = None;
            self.at = (self.at + 1) % self.copies.len();
        }
        damaged.ok_or_else(|| removed(self.session, self.blob))
    }
}

fn removed(id: SessionId, blob: BlobInfo) -> Error {
    let name = blob.name;
    Error::not_found(format!(
        "blob {name} of session {id} was removed while it was read; put it again to read it"
    ))
}

fn is_sound(blob: BlobInfo, index: u64, chunk: &BlobChunk) -> bool {
    chunk.bytes.len() == blob.chunk_len(index)
        && match chunk.checksum {
            Some(sum) => sum == blob.checksum(index, &chunk.bytes),
            None => BlobName::of(&chunk.bytes) == blob.name,
        }
}

impl CopyReader {
    /// Returns a chunk as it is stored; `None` if the object is gone.
    async fn chunk(
        &mut self,
        slots: &Slots,
        blob: BlobInfo,
        end: u64,
        index: u64,
    ) -> Result<Option<BlobChunk>> {
        let start = index * BLOB_CHUNK_BYTES as u64;
        let holds = |(from, bytes): &(u64, Bytes)| {
            *from <= start && start + blob.chunk_len(index) as u64 <= from + bytes.len() as u64
        };
        if !self.piece.as_ref().is_some_and(holds) {
            let size = CHUNKS_AT_ONCE * BLOB_CHUNK_BYTES as u64;
            // Whole chunks, since a checksum is of a whole one.
            let end = end.next_multiple_of(BLOB_CHUNK_BYTES as u64).min(start + size).min(blob.bytes);
            let with_sums = end == blob.bytes;
            let Some(bytes) =
                self.part(slots, start..if with_sums { object_bytes(end) } else { end }).await?
            else {
                return Ok(None);
            };
            if with_sums {
                self.sums = Some(bytes.slice(bytes.len().min(to_usize(end - start))..));
            }
            self.piece = Some((start, bytes));
        }
        if self.sums.is_none() {
            self.sums = self.part(slots, blob.bytes..object_bytes(blob.bytes)).await?;
        }
        let (Some((from, bytes)), Some(sums)) = (&self.piece, &self.sums) else { return Ok(None) };
        let part = |bytes: &Bytes, from: u64, count: usize| {
            let from = to_usize(from).min(bytes.len());
            bytes.slice(from..from.saturating_add(count).min(bytes.len()))
        };
        let chunk = part(bytes, start - from, blob.chunk_len(index));
        let sum = part(sums, index * SUM, to_usize(SUM));
        // Without its checksum, which was cut off, a chunk is damaged.
        let sum = <[u8; 4]>::try_from(&*sum).map(u32::from_le_bytes).ok();
        let sum = sum.or_else(|| (blob.chunks() > 1).then(|| !blob.checksum(index, &chunk)));
        Ok(Some(BlobChunk::new(chunk, sum)))
    }

    async fn part(&self, slots: &Slots, range: std::ops::Range<u64>) -> Result<Option<Bytes>> {
        let found = slots.bucket.get_range(&self.key, range, slots.bucket.deadline()).await?;
        Ok(found.map(|found| found.bytes))
    }
}

fn to_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Returns a page of the blobs of a session.
pub(crate) async fn list(slots: &Slots, query: &BlobQuery) -> Result<Page<BlobInfo>> {
    let (folder, id) = (slots.keys.blobs(query.session), query.session);
    // A digit sorts behind a slash.
    let after = query.after()?.map(|name| format!("{folder}{name}0"));
    let mut pages = slots.bucket.pages(&folder, after.as_deref(), false, None);
    let (mut found, mut damaged) = (Vec::<BlobInfo>::new(), Vec::new());
    while found.len() <= query.limit
        && let Some(page) = pages.try_next().await?
    {
        for copy in Copy::of(page) {
            match copy.bytes {
                _ if found.last().is_some_and(|last| last.name == copy.name) => {}
                Some(bytes) => found.push(BlobInfo::new(copy.name, bytes)),
                None => damaged.push((found.len(), copy)),
            }
        }
    }
    let is_last = found.len() <= query.limit;
    let mut page = query.page(found)?;
    let damaged = damaged.into_iter().filter(|(before, _)| is_last || *before < query.limit);
    page.damaged.extend(damaged.map(|(_, copy)| {
        Damaged::new(format!("blob {} of session {id}", copy.name), damaged_size(id, &copy))
    }));
    Ok(page)
}
