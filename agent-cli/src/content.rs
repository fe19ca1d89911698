//! Content of files of any size, read piece by piece.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use agent_core::store::{BLOB_CHUNK_BYTES, BlobInfo, BlobStream};
use agent_core::{Error, ErrorKind};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use tempfile::NamedTempFile;
use tokio::task::spawn_blocking;

use crate::command::watched;
use crate::failure::Failure;

/// Content of a file: its size and hash, and a way to read it again.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) info: BlobInfo,
    path: PathBuf,
    /// Copy of what can be read once only, such as standard input.
    _copy: Option<NamedTempFile>,
}

impl Content {
    /// Reads a file or a pipe of at most `most` bytes once, for its size and hash; `-` is standard input.
    pub(crate) async fn of(path: &Path, most: u64) -> Result<Self, Failure> {
        let path = path.to_owned();
        let opened = spawn_blocking(move || reread(&path, most)).await;
        let (path, copy) = opened.map_err(|error| Failure::new(1, "failed", error.to_string()))??;
        let len = std::fs::metadata(&path).ok().map(|meta| meta.len());
        let info = BlobInfo::of_stream(watched("reading", pieces(path.clone()), len)).await?;
        Ok(Self { info, path, _copy: copy })
    }

    /// Returns the bytes from their beginning.
    pub(crate) fn open(&self) -> BlobStream {
        watched("storing", pieces(self.path.clone()), Some(self.info.bytes))
    }
}

/// Writes content to a file that only its owner may read, with the file's name only when all of it is there. Returns the
/// number of bytes. An existing file is replaced only if that is wanted, and nothing but a file ever.
pub(crate) async fn write_file(
    path: &Path,
    replace: bool,
    content: BoxStream<'_, agent_core::Result<Bytes>>,
    len: Option<u64>,
) -> Result<u64, Failure> {
    let failed = |error: io::Error| Failure::of_file("write", path, &error);
    match std::fs::symlink_metadata(path) {
        Ok(meta) if replace && !meta.is_file() => {
            let text =
                format!("cannot write {}: it exists, and is not a file; name another file", path.display());
            return Err(Failure::new(4, "exists", text));
        }
        Ok(_) if !replace => return Err(failed(io::ErrorKind::AlreadyExists.into())),
        _ => {}
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".chat-").tempfile_in(folder).map_err(failed)?;
    let (mut content, mut bytes) = (watched("saving", content, len), 0);
    while let Some(piece) = content.try_next().await? {
        file.write_all(&piece).map_err(failed)?;
        bytes += piece.len() as u64;
    }
    file.as_file().sync_all().map_err(failed)?;
    // Another program may have made the file meanwhile.
    let named = if replace { file.persist(path) } else { file.persist_noclobber(path) };
    named.map_err(|error| failed(error.error))?;
    Ok(bytes)
}

/// Returns the bytes of a file or a pipe, which is read once, and the length of a file; `-` is standard input.
pub(crate) fn read_once(path: &Path) -> Result<(BlobStream, Option<u64>), Failure> {
    let len = check_kind(path)?;
    Ok((watched("reading", pieces(path.to_owned()), len), len))
}

/// Returns the name of a file for messages.
fn shown(path: &Path) -> PathBuf {
    if is_input(path) { PathBuf::from("standard input") } else { path.to_owned() }
}

fn is_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// Refuses what is neither a file nor a pipe; returns the length of a file. The type is checked before the file is
/// opened, because opening a device may have an effect.
fn check_kind(path: &Path) -> Result<Option<u64>, Failure> {
    if is_input(path) {
        return Ok(None);
    }
    let meta = std::fs::metadata(path).map_err(|error| Failure::of_file("read", path, &error))?;
    if !crate::bounded::is_read(&meta) {
        let text = format!("{} is not a regular file or pipe; name a file", path.display());
        return Err(Failure::new(1, "invalid_input", text));
    }
    Ok(meta.is_file().then_some(meta.len()))
}

/// Returns the path of a file that can be read more than once: the file itself, or a copy of what is read once only.
fn reread(path: &Path, most: u64) -> Result<(PathBuf, Option<NamedTempFile>), Failure> {
    let name = shown(path);
    let too_large = || {
        let text = format!("{} is too large: the maximum is {most} bytes", name.display());
        Failure::new(1, "limit_exceeded", text)
    };
    match check_kind(path)? {
        Some(bytes) if bytes > most => return Err(too_large()),
        Some(_) => return Ok((path.to_owned(), None)),
        None => {}
    }
    let copied = NamedTempFile::new().and_then(|mut copy| {
        let bytes = io::copy(&mut source(path)?.take(most + 1), &mut copy)?;
        Ok((copy, bytes))
    });
    let (copy, bytes) = copied.map_err(|error| Failure::of_file("read", &name, &error))?;
    if bytes > most {
        return Err(too_large());
    }
    Ok((copy.path().to_owned(), Some(copy)))
}

fn source(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    Ok(if is_input(path) { Box::new(io::stdin()) } else { Box::new(File::open(path)?) })
}

/// Reads a file piece by piece, on threads that may block.
fn pieces(path: PathBuf) -> BlobStream {
    let failed = |path: &Path, error: io::Error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, format!("cannot read {}: {error}", shown(path).display())).with_source(error)
    };
    stream::try_unfold((None::<Box<dyn Read + Send>>, path), move |(opened, path)| async move {
        let read = spawn_blocking(move || {
            let read = || {
                let mut file = match opened {
                    Some(file) => file,
                    None => source(&path)?,
                };
                let mut piece = Vec::with_capacity(BLOB_CHUNK_BYTES);
                file.by_ref().take(BLOB_CHUNK_BYTES as u64).read_to_end(&mut piece)?;
                Ok((file, piece))
            };
            let done = read();
            (done, path)
        });
        let (done, path) =
            read.await.map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
        let (file, piece) = done.map_err(|error| failed(&path, error))?;
        Ok(if piece.is_empty() { None } else { Some((piece.into(), (Some(file), path))) })
    })
    .boxed()
}
