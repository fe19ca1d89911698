//! Files in the areas of a workspace, shared by its sessions and by other programs.

use std::collections::BTreeMap;
use std::fmt;

use agent_core::commit::Precondition;
use agent_core::event::{Media, MediaSource, Part};
use agent_core::json::RawJson;
use agent_core::model::Actor;
use agent_core::store::{BlobInfo, BlobStream, HiddenSession, PutBlob, ReadBlob, WorkspaceArea};
use agent_core::text::{check_text, quoted};
use agent_core::{Error, ErrorKind, Result, Revision, SessionId, Storage, WorkspaceId};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};

use crate::areas::check_path;
use crate::contested::Attempts;
use crate::documents::{DocumentWrite, Documents};
use crate::manager::load_lasting;

/// Document that lists the files of an area, and the version of its form.
const MANIFEST: &str = "files";
const FORMAT: u32 = 1;
/// Maximum number of bytes of a file that is stored in the list itself.
const INLINE_MAX: u64 = 1 << 10;
/// Maximum number of bytes of a file in a store without blobs: in base64, it fits in the list.
const LISTED_MAX: u64 = 768 << 10;
/// Maximum number of bytes of a name.
const NAME_MAX_BYTES: usize = 128;
/// Media type of every file; the name says more.
const MEDIA_TYPE: &str = "application/octet-stream";
/// Maximum number of attempts while other writers are faster, or sweep the blob.
const ATTEMPTS: usize = 64;

/// Files in one [`WorkspaceArea`] of a workspace.
///
/// Files are stored in a [hidden session](HiddenSession::area) of the workspace: a document lists them, and each file of
/// more than 1 KiB is a [blob](agent_core::store::BlobStore::put) of that session. They are durable when acknowledged,
/// and included in every copy. Deleting the workspace deletes its files. Earlier contents of a file, and files that were
/// deleted, take their space until then.
///
/// An area holds as many files as fit in a list of 1 MiB: some 6,000 with names of 50 bytes. A file has up to
/// [`BLOB_MAX_BYTES`](agent_core::store::BLOB_MAX_BYTES). In a store without blobs, all files are part of the list.
///
/// The folders `mcp`, `skills` and `memory` that the file store creates beside a workspace's log belong to the host, and
/// are unrelated.
///
/// Cloning is cheap. Every method may be dropped at any point; a dropped write was applied completely or not at all.
///
/// ```
/// use agent_core::{MemoryStore, Storage};
/// use agent_core::model::Actor;
/// use agent_core::store::WorkspaceArea;
/// use agent_runtime::files::WorkspaceFiles;
/// use agent_runtime::{NewWorkspace, WorkspaceManager};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let storage = Storage::from(MemoryStore::new());
/// let manager = WorkspaceManager::new(storage.clone());
/// let workspace = manager.create(NewWorkspace::new("home")).await?;
/// let skills = WorkspaceFiles::new(&storage, workspace.id, WorkspaceArea::Skills);
/// skills.put("review/SKILL.md", "# How to review", Actor::USER).await?;
/// assert_eq!(skills.list().await?[0].name, "review/SKILL.md");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct WorkspaceFiles {
    storage: Storage,
    hidden: HiddenSession,
    area: WorkspaceArea,
}

/// File in an area: its name, its size and the hash of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AreaFile {
    /// Name: parts separated by `/`.
    pub name: String,
    /// Number of bytes, and their SHA-256.
    pub content: BlobInfo,
}

/// Content of a file that is being read.
#[must_use]
#[non_exhaustive]
pub struct FileContent {
    /// Number of bytes of the file, and their SHA-256.
    pub info: BlobInfo,
    /// Bytes, checked before they are handed out.
    pub content: BlobStream,
}

impl fmt::Debug for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileContent").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Files of an area, by name, with the version of the list.
struct Manifest {
    files: BTreeMap<String, Media>,
    /// Version of the list; zero if there is none.
    revision: Revision,
}

impl Manifest {
    fn parse(text: &str, format: u32, revision: Revision, object: &dyn fmt::Display) -> Result<Self> {
        if format != FORMAT {
            return Err(Error::unsupported(format!(
                "the list of files of {object} has format {format}; update this program"
            )));
        }
        let corrupt = || Error::corrupt(format!("the list of files of {object} is damaged; restore a copy"));
        let parts: Vec<Part> =
            RawJson::parse(text).and_then(|json| json.to()).map_err(|error| corrupt().with_source(error))?;
        let mut files = BTreeMap::new();
        for part in parts {
            let Part::Resource(media) = part else { return Err(corrupt()) };
            let Some(name) = media.name.clone() else { return Err(corrupt()) };
            if matches!(media.source, MediaSource::Uri(_)) || files.insert(name, media).is_some() {
                return Err(corrupt());
            }
        }
        Ok(Self { files, revision })
    }

    fn to_text(&self) -> Result<String> {
        let parts: Vec<_> = self.files.values().cloned().map(Part::Resource).collect();
        Ok(RawJson::of(&parts)?.get().to_owned())
    }

    fn precondition(&self) -> Precondition<Revision> {
        match self.revision {
            Revision::ZERO => Precondition::MustNotExist,
            revision => Precondition::Matches(revision),
        }
    }
}

fn info(media: &Media) -> BlobInfo {
    match &media.source {
        MediaSource::Blob { sha256, bytes } => BlobInfo::new(*sha256, *bytes),
        MediaSource::Inline(bytes) => BlobInfo::of(bytes),
        _ => BlobInfo::of(b""),
    }
}

impl WorkspaceFiles {
    /// Creates a handle to an area of a workspace. No I/O.
    pub fn new(storage: &Storage, workspace: WorkspaceId, area: WorkspaceArea) -> Self {
        let hidden = HiddenSession::area(workspace, area);
        Self { storage: storage.clone(), hidden, area }
    }

    /// Writes a file whose bytes are in memory, unconditionally. Returns the number of the new version of the area,
    /// which is durable; the current one if the file has these bytes already.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (storage, workspace) = home().await?;
    /// let skills = WorkspaceFiles::new(&storage, workspace.id, WorkspaceArea::Skills);
    /// let first = skills.put("logo.png", vec![0x89, b'P', b'N', b'G'], Actor::USER).await?;
    /// let second = skills.put("logo.png", vec![0xff, 0xd8], Actor::USER).await?;
    /// assert_eq!((first.get(), second.get()), (1, 2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`put_content`](Self::put_content).
    pub async fn put(&self, name: &str, bytes: impl Into<Bytes>, actor: Actor) -> Result<Revision> {
        let bytes = bytes.into();
        let content = || stream::iter([Ok(bytes.clone())]).boxed();
        self.put_content(name, BlobInfo::of(&bytes), content, actor).await
    }

    /// Writes a file of any size, like [`put`](Self::put), and holds at most 4 MiB of it in memory.
    ///
    /// `content` returns the bytes from their beginning. It is called again if the write must be repeated.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (storage, workspace) = home().await?;
    /// use agent_core::store::BlobInfo;
    /// use futures::{StreamExt, stream};
    ///
    /// let memory = WorkspaceFiles::new(&storage, workspace.id, WorkspaceArea::Memory);
    /// let content = || stream::iter((0..8).map(|_| Ok(vec![7; 1 << 20].into()))).boxed();
    /// let info = BlobInfo::of_stream(content()).await?;
    /// memory.put_content("film.mp4", info, content, Actor::USER).await?;
    /// assert_eq!(memory.list().await?[0].content.bytes, 8 << 20);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name that is empty, is longer than 128 bytes, or has a component that is empty, `.` or `..`,
    /// and if the content does not have the hash and the size that `info` gives; `LimitExceeded` for too many bytes or
    /// too many files; `NotFound`, and `Deleted` also while it is being deleted, for the workspace; errors of the content
    /// and of [`Documents::put`].
    pub async fn put_content(
        &self,
        name: &str,
        info: BlobInfo,
        content: impl Fn() -> BlobStream + Send + Sync,
        actor: Actor,
    ) -> Result<Revision> {
        check_path(name)?;
        check_text("name of a file", name, NAME_MAX_BYTES)?;
        let what = "store the file in another workspace";
        load_lasting(&*self.storage.workspaces, self.hidden.workspace(), what).await?;
        let session = self.hidden.open(&self.storage.sessions).await?.id;
        let media = self.store(session, info, &content).await?.with_name(name);
        let mut attempt = 1;
        loop {
            let mut manifest = self.manifest(session).await?;
            if manifest.files.get(name) == Some(&media) {
                return Ok(manifest.revision);
            }
            manifest.files.insert(name.to_owned(), media.clone());
            let error = match self.write(session, &manifest, Some(&media), actor.clone()).await {
                Ok(revision) => return Ok(revision),
                Err(error) => error,
            };
            match error.kind() {
                // Another writer was faster.
                ErrorKind::Conflict { .. } if attempt < ATTEMPTS => {}
                // The blob was swept before the list named it.
                ErrorKind::BlobMissing { .. } if attempt < ATTEMPTS => {
                    drop(self.store(session, info, &content).await?);
                }
                _ => return Err(error),
            }
            attempt += 1;
        }
    }

    /// Returns the bytes of a file in memory; `None` if there is no such file. See [`read`](Self::read) for large files.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (storage, workspace) = home().await?;
    /// let skills = WorkspaceFiles::new(&storage, workspace.id, WorkspaceArea::Skills);
    /// skills.put("review/SKILL.md", "# How to review", Actor::USER).await?;
    /// assert_eq!(skills.get("review/SKILL.md", 1 << 20).await?.unwrap(), "# How to review");
    /// assert_eq!(skills.get("deploy/SKILL.md", 1 << 20).await?, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `LimitExceeded` if the file has more than `most` bytes; those of [`read`](Self::read).
    pub async fn get(&self, name: &str, most: usize) -> Result<Option<Bytes>> {
        let Some(mut file) = self.read(name).await? else { return Ok(None) };
        if file.info.bytes > most as u64 {
            return Err(Error::limit(format!(
                "file {} has {} bytes, and at most {most} were asked for; read it as a stream",
                quoted(name),
                file.info.bytes
            )));
        }
        let mut bytes = BytesMut::new();
        while let Some(piece) = file.content.next().await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(Some(bytes.freeze()))
    }

    /// Opens a file to read its bytes as a stream; `None` if there is no such file.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (storage, workspace) = home().await?;
    /// use futures::TryStreamExt;
    ///
    /// let memory = WorkspaceFiles::new(&storage, workspace.id, WorkspaceArea::Memory);
    /// memory.put("film.mp4", vec![7; 1_000_000], Actor::USER).await?;
    /// let mut file = memory.read("film.mp4").await?.unwrap();
    /// let mut bytes = 0;
    /// while let Some(piece) = file.content.try_next().await? {
    ///     bytes += piece.len() as u64;
    /// }
    /// assert_eq!(bytes, file.info.bytes);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for the name; `Corrupt`, and `Unsupported` if a newer version of this library wrote the list of
    /// files; `Deleted` for the workspace; errors of [`Documents::get`]. The stream ends with `Corrupt` for damaged bytes.
    pub async fn read(&self, name: &str) -> Result<Option<FileContent>> {
        check_path(name)?;
        let Some(session) = self.find().await? else { return Ok(None) };
        let mut manifest = self.manifest(session).await?;
        let Some(media) = manifest.files.remove(name) else { return Ok(None) };
        let info = info(&media);
        let content = match media.source {
            MediaSource::Inline(bytes) => stream::iter([Ok(Bytes::copy_from_slice(&bytes))]).boxed(),
            _ => match self.storage.sessions.blobs().read(ReadBlob::new(session, info.name)).await {
                Ok(read) => read.content,
                Err(error) if *error.kind() == ErrorKind::NotFound => {
                    return Err(Error::corrupt(format!(
                        "the bytes of file {} of {self} are gone; put it again",
                        quoted(name)
                    ))
                    .with_source(error));
                }
                Err(error) => return Err(error),
            },
        };
        Ok(Some(FileContent { info, content }))
    }

    /// Returns the files, in the byte order of their names.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (storage, workspace) = home().await?;
    /// let skills = WorkspaceFiles::new(&storage, workspace.id, WorkspaceArea::Skills);
    /// for name in ["review/SKILL.md", "deploy/SKILL.md"] {
    ///     skills.put(name, "# How to do it", Actor::USER).await?;
    /// }
    /// let names: Vec<_> = skills.list().await?.into_iter().map(|file| file.name).collect();
    /// assert_eq!(names, ["deploy/SKILL.md", "review/SKILL.md"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read).
    pub async fn list(&self) -> Result<Vec<AreaFile>> {
        let Some(session) = self.find().await? else { return Ok(Vec::new()) };
        let files = self.manifest(session).await?.files.into_iter();
        Ok(files.map(|(name, media)| AreaFile { name, content: info(&media) }).collect())
    }

    /// Deletes a file. Returns whether it existed. Its bytes are removed with the workspace.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/workspaces.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (storage, workspace) = home().await?;
    /// let skills = WorkspaceFiles::new(&storage, workspace.id, WorkspaceArea::Skills);
    /// skills.put("review/SKILL.md", "# How to review", Actor::USER).await?;
    /// assert!(skills.delete("review/SKILL.md", Actor::USER).await?);
    /// assert!(!skills.delete("review/SKILL.md", Actor::USER).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read), and of [`Documents::put`].
    pub async fn delete(&self, name: &str, actor: Actor) -> Result<bool> {
        check_path(name)?;
        let Some(session) = self.find().await? else { return Ok(false) };
        let mut attempts = Attempts::at_most(ATTEMPTS);
        loop {
            let mut manifest = self.manifest(session).await?;
            if manifest.files.remove(name).is_none() {
                return Ok(false);
            }
            let written = self.write(session, &manifest, None, actor.clone()).await;
            if let Some(deleted) = attempts.outcome(written) {
                return deleted.map(|_| true);
            }
        }
    }

    /// Stores the bytes of a file, unless they are few or the store has no blobs; returns how the list names them.
    async fn store(
        &self,
        session: SessionId,
        info: BlobInfo,
        content: &(impl Fn() -> BlobStream + Send + Sync),
    ) -> Result<Media> {
        let sessions = &self.storage.sessions;
        let put = PutBlob::new(session, info, content());
        if info.bytes > INLINE_MAX && sessions.capabilities().blob_max_bytes > 0 {
            sessions.blobs().put(put).await?;
            return Ok(Media::blob(MEDIA_TYPE, info.name, info.bytes));
        }
        if info.bytes > LISTED_MAX {
            return Err(Error::limit(format!(
                "a file of {} bytes for {self}, and this store has no blobs, so that a file has at most {LISTED_MAX}; use \
                 another store",
                info.bytes
            )));
        }
        let bytes = put.into_chunks(LISTED_MAX)?.into_bytes().await?;
        Ok(Media::inline(MEDIA_TYPE, &*bytes))
    }

    /// Writes a version of the list, which adds `added`.
    async fn write(
        &self,
        session: SessionId,
        manifest: &Manifest,
        added: Option<&Media>,
        actor: Actor,
    ) -> Result<Revision> {
        let mut write = DocumentWrite::new(MANIFEST, manifest.to_text()?, actor)
            .with_format(FORMAT)
            .with_precondition(manifest.precondition());
        if let Some(MediaSource::Blob { sha256, .. }) = added.map(|media| &media.source) {
            write = write.with_blob(*sha256);
        }
        self.documents(session).put(write).await.map_err(|error| match error.kind() {
            ErrorKind::LimitExceeded => {
                let text =
                    format!("{self} has {} files, too many for its list; delete some", manifest.files.len());
                Error::limit(text).with_source(error)
            }
            _ => error,
        })
    }

    async fn manifest(&self, session: SessionId) -> Result<Manifest> {
        match self.documents(session).get(MANIFEST).await? {
            Some(document) => Manifest::parse(&document.text, document.format, document.revision, self),
            None => Ok(Manifest { files: BTreeMap::new(), revision: Revision::ZERO }),
        }
    }

    fn documents(&self, session: SessionId) -> Documents {
        Documents::new(self.storage.sessions.clone(), session)
    }

    async fn find(&self) -> Result<Option<SessionId>> {
        Ok(self.hidden.find(&*self.storage.sessions).await?.map(|session| session.id))
    }
}

impl fmt::Display for WorkspaceFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the area {} of workspace {}", self.area, self.hidden.workspace())
    }
}
