//! Content of files of any size, read piece by piece.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use agent_core::store::{BLOB_CHUNK_BYTES, BlobInfo, BlobStream};
use agent_core::{Error, ErrorKind};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use tempfile::NamedTempFile;
use tokio::task::spawn_blocking;

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
    /// Reads a file or a pipe once for its size and hash; `-` is standard input.
    pub(crate) async fn of(path: &Path) -> Result<Self, Failure> {
        let path = path.to_owned();
        let opened = spawn_blocking(move || open(&path)).await;
        let (path, copy) = opened.map_err(|error| Failure::new(1, "failed", error.to_string()))??;
        let info = BlobInfo::of_stream(pieces(path.clone())).await?;
        Ok(Self { info, path, _copy: copy })
    }

    /// Returns the first piece of the bytes; an empty one if there are none.
    pub(crate) async fn start(&self) -> Result<Bytes, Failure> {
        Ok(self.open().try_next().await?.unwrap_or_default())
    }

    /// Returns all bytes in memory.
    pub(crate) async fn bytes(&self) -> Result<Vec<u8>, Failure> {
        let (mut pieces, mut bytes) = (self.open(), Vec::new());
        while let Some(piece) = pieces.try_next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Returns the bytes from their beginning.
    pub(crate) fn open(&self) -> BlobStream {
        pieces(self.path.clone())
    }
}

/// Returns the path of a file that can be read more than once: the file itself, or a copy of what is read once only.
fn open(path: &Path) -> Result<(PathBuf, Option<NamedTempFile>), Failure> {
    let is_input = path == Path::new("-");
    let name = if is_input { PathBuf::from("standard input") } else { path.to_owned() };
    let failed = |error: &io::Error| Failure::of_file("read", &name, error);
    if !is_input {
        // The type is checked before the file is opened, because opening a device may have an effect.
        let meta = std::fs::metadata(path).map_err(|error| failed(&error))?;
        if meta.is_file() {
            return Ok((path.to_owned(), None));
        }
        if !crate::bounded::is_read(&meta) {
            let text = format!("{} is not a regular file or pipe; name a file", name.display());
            return Err(Failure::new(1, "invalid_input", text));
        }
    }
    let copied = NamedTempFile::new().and_then(|mut copy| {
        match is_input {
            true => io::copy(&mut io::stdin().lock(), &mut copy),
            false => io::copy(&mut File::open(path)?, &mut copy),
        }
        .map(|_| copy)
    });
    let copy = copied.map_err(|error| failed(&error))?;
    Ok((copy.path().to_owned(), Some(copy)))
}

/// Reads a file piece by piece, on threads that may block.
fn pieces(path: PathBuf) -> BlobStream {
    let failed = |path: &Path, error: io::Error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, format!("cannot read {}: {error}", path.display())).with_source(error)
    };
    stream::try_unfold((None::<File>, path), move |(file, path)| async move {
        let read = spawn_blocking(move || {
            let read = || {
                let mut file = match file {
                    Some(file) => file,
                    None => File::open(&path)?,
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
