//! Archive of a session with its blobs: a tar file that is identical in every store, to the byte.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! use agent_admin::{archive::Archive, export::SessionExport};
//! use agent_core::clock::Effects;
//! use agent_core::event::{EventPayload, Media, Message, NewEvent, Part};
//! use agent_core::session::NewSession;
//! use agent_core::store::PutBlob;
//! use agent_core::{MemoryStore, SessionStore, SessionStoreExt, WorkspaceId};
//! use futures::{StreamExt, TryStreamExt, stream};
//!
//! let (here, there, effects) = (MemoryStore::new(), MemoryStore::new(), Effects::default());
//! let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
//! let session = here.sessions(&effects).create(new).await?;
//! let put = PutBlob::of_bytes(session.id, vec![0x89; 300_000]);
//! let cat = Part::Image(Media::blob("image/png", put.blob.name, put.blob.bytes));
//! here.blobs().put(put).await?;
//! let message = EventPayload::UserMessage(Message::new("What is this?").with_part(cat));
//! here.sessions(&effects).append(session.id, session.head, vec![NewEvent::of(&message)]).await?;
//!
//! // A program writes the pieces to a file, and reads the file in pieces.
//! let export = SessionExport::read(&here, session.id, |_| {}).await?;
//! let pieces: Vec<_> = export.to_archive()?.try_collect().await?;
//! let archive = Archive::open(stream::iter(pieces).map(Ok).boxed()).await?;
//! let imported = archive.import(&there).await?;
//! assert_eq!((imported.session.id, imported.blobs), (session.id, 1));
//! # Ok(()) }
//! ```
//!
//! # The archive
//!
//! A tar file in the format `ustar`, with regular files only, in this order:
//!
//! - `session.json`: the [document](crate::manifest#the-document), at most [`DOCUMENT_MAX_BYTES`];
//! - `blobs/` and the SHA-256 in 64 lower-case hexadecimal digits, for each blob that the events of the document name:
//!   its bytes. They are written in the order of their names, and read in any order.
//!
//! An archive that another program packed is read, too: `tar --format=ustar -cf FILE session.json blobs/*`. Owners, modes
//! and times are ignored. Anything else in the archive is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::lock::Mutex;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use tar::{EntryType, Header};
use tracing::debug;

use crate::blobs::WantedBlob;
use crate::manifest::{Imported, Manifest};
use agent_core::store::{
    BLOB_CHUNK_BYTES, BLOB_MAX_BYTES, BlobInfo, BlobStream, PutBlob, ReadBlob, SweepBlobs,
};
use agent_core::text::quoted;
use agent_core::{BlobName, Error, ErrorKind, Result, SessionId, SessionStore};

/// Maximum number of bytes of `session.json` in an archive.
pub const DOCUMENT_MAX_BYTES: u64 = 1 << 30;

const DOCUMENT: &str = "session.json";
const FOLDER: &str = "blobs/";
const BLOCK: usize = 512;
/// Maximum number of zeros behind the end mark. Programs fill up the last record, usually to 10 KiB.
const FILLING_MAX: usize = 1 << 20;

/// Returns whether a file that begins with these bytes may be an archive. 512 bytes are enough.
///
/// ```
/// assert!(!agent_admin::archive::is_archive(b"{\"format\":5,"));
/// ```
pub fn is_archive(start: &[u8]) -> bool {
    start.get(257..262) == Some(b"ustar")
}

/// Writes an archive of a document with this number of bytes, and of blobs that belong to these sessions of a store.
pub(crate) fn write<'a>(
    store: &'a dyn SessionStore,
    (document, bytes): (BoxStream<'a, Result<Bytes>>, u64),
    blobs: BTreeMap<BlobName, SessionId>,
) -> Result<BoxStream<'a, Result<Bytes>>> {
    if bytes > DOCUMENT_MAX_BYTES {
        return Err(Error::limit(format!(
            "{DOCUMENT} of the archive has {bytes} bytes, and at most {DOCUMENT_MAX_BYTES} are read; copy the store instead"
        )));
    }
    let first = stream::iter([header(DOCUMENT, bytes).map(|header| framed(header, document, bytes))]);
    let blobs = stream::iter(blobs).then(move |(name, owner)| blob_entry(store, owner, name));
    let end = stream::iter([Ok(Bytes::from_static(&[0; 2 * BLOCK]))]);
    let all = first.chain(blobs).try_flatten().chain(end);
    // Nothing follows an error, so that a cut archive is not taken for a whole one.
    let whole = all.scan(false, |has_failed, item| {
        let next = (!*has_failed).then_some(item);
        *has_failed |= matches!(next, Some(Err(_)));
        futures::future::ready(next)
    });
    Ok(whole.boxed())
}

/// Returns the entry of a blob: its header, its bytes and the zeros up to the next block.
async fn blob_entry<'a>(
    store: &'a dyn SessionStore,
    owner: SessionId,
    name: BlobName,
) -> Result<BoxStream<'a, Result<Bytes>>> {
    let damaged = move |error: Error| {
        match error.kind() {
        ErrorKind::NotFound | ErrorKind::Corrupt => Error::corrupt(format!(
            "session {owner}: blob {name} is lost or damaged, so there is no complete session to export; put the blob \
             again, or salvage the session"
        ))
        .with_source(error),
        _ => error,
    }
    };
    let read = store.blobs().read(ReadBlob::new(owner, name)).await.map_err(damaged)?;
    let bytes = read.blob.bytes;
    let header = header(&format!("{FOLDER}{name}"), bytes)?;
    Ok(framed(header, read.content.map_err(damaged).boxed(), bytes))
}

fn framed<'a>(
    header: Bytes,
    content: BoxStream<'a, Result<Bytes>>,
    bytes: u64,
) -> BoxStream<'a, Result<Bytes>> {
    let filling = stream::iter([Ok(filling(bytes))]);
    stream::iter([Ok(header)]).chain(content).chain(filling).boxed()
}

/// Returns the header of a regular file that only its owner may read. It has no time, so that an archive depends on
/// the session only.
fn header(path: &str, bytes: u64) -> Result<Bytes> {
    let mut header = Header::new_ustar();
    header.set_path(path).map_err(|source| {
        Error::invalid(format!("{path} cannot be the name of an entry of an archive")).with_source(source)
    })?;
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes);
    header.set_cksum();
    Ok(Bytes::copy_from_slice(header.as_bytes()))
}

/// Returns the number of zeros between an entry of this size and the next block.
const fn filling_len(bytes: u64) -> usize {
    ((BLOCK as u64 - bytes % BLOCK as u64) % BLOCK as u64) as usize
}

fn filling(bytes: u64) -> Bytes {
    Bytes::from_static(&[0; BLOCK]).slice(..filling_len(bytes))
}

/// Archive that is being read.
///
/// The archive is treated as untrusted: see [`Manifest::import`] for the document. Sizes are checked before any byte of an
/// entry is read, and memory holds the document and at most 4 MiB of a blob.
pub struct Archive {
    manifest: Manifest,
    tape: Arc<Mutex<Tape>>,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archive").field("manifest", &self.manifest).finish_non_exhaustive()
    }
}

impl Archive {
    /// Reads the beginning of an archive: its document.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the first entry is not `session.json`, or is larger than [`DOCUMENT_MAX_BYTES`]; those of
    /// [`Manifest::parse`] and of the content.
    pub async fn open(content: BlobStream) -> Result<Self> {
        let mut tape = Tape { input: content, piece: Bytes::new(), left: 0, filling: 0 };
        let first = tape.next().await?;
        let Some((_, bytes)) = first.filter(|(path, _)| path == DOCUMENT.as_bytes()) else {
            return Err(refused(format_args!("its first entry is not {DOCUMENT}")));
        };
        if bytes > DOCUMENT_MAX_BYTES {
            let text =
                format_args!("{DOCUMENT} has {bytes} bytes, and at most {DOCUMENT_MAX_BYTES} are read");
            return Err(refused(text));
        }
        // The buffer grows with what comes, whatever the header says.
        let mut document = BytesMut::new();
        while let Some(piece) = tape.content().await? {
            document.extend_from_slice(&piece);
        }
        let document = std::str::from_utf8(&document)
            .map_err(|source| refused(format_args!("{DOCUMENT} is not UTF-8 text")).with_source(source))?;
        let manifest = Manifest::parse(document)?;
        Ok(Self { manifest, tape: Arc::new(Mutex::new(tape)) })
    }

    /// Returns the document.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Imports the session with its blobs, like [`Manifest::import`].
    ///
    /// The blobs are stored first, then the commits that name them, so that no part of the session is visible before
    /// the whole archive was read and checked. A blob of the session is stored again if it exists, which repairs it.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a part may be imported; import the archive again. Blobs of an import that does not
    /// come again are removed by a [sweep](agent_core::store::BlobStore::sweep) of the store.
    ///
    /// # Errors
    ///
    /// Those of [`Manifest::import`]. `Corrupt` for an archive with another entry than the blobs that the events name,
    /// each once; with bytes that do not have their name or size; without one of the blobs; or with anything behind its
    /// end. `LimitExceeded` for a blob that is larger than the store keeps, and `Unsupported` if it keeps none. The call
    /// then removes the blobs that it stored, as far as it can. `BlobMissing` if another process removed them before they
    /// were committed: import the archive again.
    pub async fn import(self, store: &dyn SessionStore) -> Result<Imported> {
        self.import_to(store, false).await
    }

    /// Imports the session with its blobs, like [`Manifest::import_with_ancestors`].
    ///
    /// # Cancel safety
    ///
    /// As for [`import`](Self::import).
    ///
    /// # Errors
    ///
    /// Those of [`import`](Self::import), except for the `Conflict` that this call resolves.
    pub async fn import_with_ancestors(self, store: &dyn SessionStore) -> Result<Imported> {
        self.import_to(store, true).await
    }

    async fn import_to(self, store: &dyn SessionStore, completes: bool) -> Result<Imported> {
        let mut import = self.manifest.prepare(store, completes).await?;
        let wanted = std::mem::take(&mut import.blobs);
        check_sizes(store, &wanted)?;
        let mut stored = BTreeSet::new();
        let done = async {
            let blobs = self.put_blobs(store, &wanted, &mut stored).await?;
            import.write(store).await.map(|imported| Imported { blobs, ..imported })
        };
        let done = done.await;
        if done.is_err() {
            for id in stored {
                // An error here leaves blobs that no event names, which the next sweep removes.
                if let Err(error) = store.blobs().sweep(SweepBlobs::of(id)).await {
                    debug!(session = %id, %error, "blobs of an import that failed are left to the next gc");
                }
            }
        }
        done
    }

    /// Reads the archive to its end, and stores its blobs. Returns how many blobs were stored.
    async fn put_blobs(
        &self,
        store: &dyn SessionStore,
        wanted: &BTreeMap<BlobName, WantedBlob>,
        stored: &mut BTreeSet<SessionId>,
    ) -> Result<u64> {
        let most = store.capabilities().blob_max_bytes.min(BLOB_MAX_BYTES);
        let (mut seen, mut count) = (BTreeSet::new(), 0);
        loop {
            let entry = self.tape.lock().await.next().await?;
            let Some((path, bytes)) = entry else { break };
            let named = path.strip_prefix(FOLDER.as_bytes()).and_then(|name| std::str::from_utf8(name).ok());
            let Some(name) = named.and_then(|name| name.parse::<BlobName>().ok()) else {
                return Err(refused(format_args!("{} is not the name of a blob", shown(&path))));
            };
            let Some(blob) = wanted.get(&name) else {
                return Err(refused(format_args!("no event names {FOLDER}{name}")));
            };
            if !seen.insert(name) {
                return Err(refused(format_args!("{FOLDER}{name} is in it twice")));
            }
            if let Some(stated) = blob.stated.filter(|stated| *stated != bytes) {
                return Err(refused(format_args!(
                    "{FOLDER}{name} has {bytes} bytes, and an event states {stated}"
                )));
            }
            // A blob that is stored for no session is only checked.
            if bytes > if blob.owners.is_empty() { BLOB_MAX_BYTES } else { most } {
                return Err(too_large(&path, bytes, most));
            }
            self.put_blob(store, BlobInfo::new(name, bytes), blob, stored).await?;
            count += blob.owners.len() as u64;
        }
        match wanted.keys().find(|name| !seen.contains(name)) {
            Some(missing) => {
                Err(refused(format_args!("{FOLDER}{missing}, which an event names, is missing")))
            }
            None => Ok(count),
        }
    }

    /// Stores the blob of an entry for each of its sessions.
    async fn put_blob(
        &self,
        store: &dyn SessionStore,
        blob: BlobInfo,
        wanted: &WantedBlob,
        stored: &mut BTreeSet<SessionId>,
    ) -> Result<()> {
        let differs = |source: Option<Error>| {
            let error = refused(format_args!("the bytes of {FOLDER}{} do not have that SHA-256", blob.name));
            match source {
                Some(source) => error.with_source(source),
                None => error,
            }
        };
        let content = stream::try_unfold(self.tape.clone(), |tape| async move {
            let piece = tape.lock().await.content().await?;
            Ok(piece.map(|piece| (piece, tape)))
        });
        let Some((first, others)) =
            wanted.owners.iter().next().map(|first| (*first, wanted.owners.iter().skip(1)))
        else {
            return match BlobInfo::of_stream(content.boxed()).await? {
                found if found == blob => Ok(()),
                _ => Err(differs(None)),
            };
        };
        stored.insert(first);
        let put = PutBlob::new(first, blob, content.boxed());
        store.blobs().put(put).await.map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => differs(Some(error)),
            _ => error,
        })?;
        for other in others {
            let content = store.blobs().read(ReadBlob::new(first, blob.name)).await?.content;
            stored.insert(*other);
            store.blobs().put(PutBlob::new(*other, blob, content)).await?;
        }
        Ok(())
    }
}

/// Refuses blobs that the store cannot keep, before anything is written.
fn check_sizes(store: &dyn SessionStore, wanted: &BTreeMap<BlobName, WantedBlob>) -> Result<()> {
    let most = store.capabilities().blob_max_bytes;
    for (name, blob) in wanted.iter().filter(|(_, blob)| !blob.owners.is_empty()) {
        if most == 0 {
            return Err(Error::unsupported(
                "this store keeps no blobs, and the archive has some; import it into a store that keeps blobs",
            ));
        }
        if let Some(stated) = blob.stated.filter(|stated| *stated > most) {
            return Err(too_large(format!("{FOLDER}{name}").as_bytes(), stated, most));
        }
    }
    Ok(())
}

/// Returns the error for an archive that cannot be imported.
fn refused(why: std::fmt::Arguments<'_>) -> Error {
    Error::corrupt(format!(
        "the archive is not imported: {why}; export the session again, or use another copy"
    ))
}

fn too_large(path: &[u8], bytes: u64, most: u64) -> Error {
    Error::limit(format!(
        "the archive is not imported: {} has {bytes} bytes, and at most {most} are kept here; import it into a store \
         that keeps larger blobs",
        shown(path)
    ))
}

/// Returns the name of an entry as it may be printed.
fn shown(path: &[u8]) -> String {
    quoted(&String::from_utf8_lossy(path)).to_string()
}

/// Entries of an archive, one after the other.
struct Tape {
    input: BlobStream,
    /// Rest of the last piece of the input.
    piece: Bytes,
    /// Number of bytes of the present entry that were not read yet.
    left: u64,
    /// Number of zeros behind the present entry.
    filling: usize,
}

impl Tape {
    /// Returns the next bytes of the input, at least one and at most `most`; `None` at its end.
    async fn take(&mut self, most: u64) -> Result<Option<Bytes>> {
        while self.piece.is_empty() {
            match self.input.try_next().await? {
                Some(piece) => self.piece = piece,
                None => return Ok(None),
            }
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(BLOB_CHUNK_BYTES);
        Ok(Some(self.piece.split_to(most.min(self.piece.len()))))
    }

    /// Returns the next bytes of the present entry; `None` at its end.
    async fn content(&mut self) -> Result<Option<Bytes>> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(piece) = self.take(self.left).await? else { return Err(cut()) };
        self.left -= piece.len() as u64;
        Ok(Some(piece))
    }

    async fn block(&mut self) -> Result<[u8; BLOCK]> {
        let (mut block, mut read) = ([0; BLOCK], 0);
        while read < BLOCK {
            let Some(piece) = self.take((BLOCK - read) as u64).await? else { return Err(cut()) };
            block[read..read + piece.len()].copy_from_slice(&piece);
            read += piece.len();
        }
        Ok(block)
    }

    /// Returns name and size of the next entry; `None` behind the last one, after the end of the input was checked.
    async fn next(&mut self) -> Result<Option<(Vec<u8>, u64)>> {
        while self.content().await?.is_some() {}
        while self.filling > 0 {
            let Some(piece) = self.take(self.filling as u64).await? else { return Err(cut()) };
            only_zeros(&piece)?;
            self.filling -= piece.len();
        }
        let block = self.block().await?;
        if block == [0; BLOCK] {
            only_zeros(&self.block().await?)?;
            let mut rest = 0;
            while let Some(piece) = self.take(u64::MAX).await? {
                only_zeros(&piece)?;
                rest += piece.len();
                if rest > FILLING_MAX {
                    return Err(refused(format_args!("more than {FILLING_MAX} zeros follow its end")));
                }
            }
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block);
        let is_right = |sum: &u32| {
            let mut again = header.clone();
            again.set_cksum();
            again.cksum().is_ok_and(|right| right == *sum)
        };
        if !is_archive(&block) || !header.cksum().is_ok_and(|sum| is_right(&sum)) {
            return Err(refused(format_args!("an entry has a damaged header, or is no tar entry")));
        }
        let path = header.path_bytes().into_owned();
        if header.entry_type() != EntryType::Regular {
            return Err(refused(format_args!(
                "{} is not a regular file (tar type {:?}); pack only files, with --format=ustar",
                shown(&path),
                char::from(header.entry_type().as_byte())
            )));
        }
        let bytes = header.entry_size().map_err(|source| {
            refused(format_args!("{} has no readable size", shown(&path))).with_source(source)
        })?;
        (self.left, self.filling) = (bytes, filling_len(bytes));
        Ok(Some((path, bytes)))
    }
}

fn cut() -> Error {
    refused(format_args!("it is cut off"))
}

fn only_zeros(bytes: &[u8]) -> Result<()> {
    match bytes.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(refused(format_args!("other bytes than zeros follow an entry or its end"))),
    }
}
