//! Content of files of any size, read piece by piece.

use std::fs::File;
use std::future::ready;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::store::{BLOB_CHUNK_BYTES, BlobInfo, BlobStream};
use agent_core::{Error, ErrorKind};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use tempfile::NamedTempFile;
use tokio::task::spawn_blocking;

use crate::failure::{Failure, Result};
use crate::progress::watched;

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
    pub(crate) async fn of(path: &Path, most: u64) -> Result<Self> {
        let path = path.to_owned();
        let opened = spawn_blocking(move || reread(&path, most)).await;
        let (path, copy) = opened.map_err(|error| Failure::new(1, "failed", error.to_string()))??;
        let len = std::fs::metadata(&path).ok().map(|meta| meta.len());
        let info = BlobInfo::of_stream(watched("reading", pieces(path.clone()), len)).await?;
        Ok(Self { info, path, _copy: copy })
    }

    /// Returns the bytes from their beginning.
    pub(crate) fn open(&self) -> BlobStream {
        // What was no file was copied to one. A pipe in its place would wait for its writer.
        if std::fs::metadata(&self.path).is_ok_and(|meta| !meta.is_file()) {
            let text = format!("cannot read {}; it is not a file any more", shown(&self.path).display());
            return stream::once(ready(Err(Error::new(ErrorKind::Unavailable, text)))).boxed();
        }
        watched("storing", pieces(self.path.clone()), Some(self.info.bytes))
    }

    /// Returns the error of an operation that stores the content. The store refuses other bytes than those of the first
    /// reading; the user is told that the file has changed, and what to do `again`.
    pub(crate) fn not_stored(&self, error: Error, again: &str) -> Error {
        if error.to_string().contains("was changed while it was read") {
            let name = self.path.display();
            return Error::invalid(format!("file {name} was changed after it was first read; {again}"));
        }
        error
    }
}

/// Writes content to a file that only its owner may read, with the file's name only when all of it is there. Returns the
/// number of bytes. An existing file is replaced only if that is wanted, and nothing but a file ever.
pub(crate) async fn write_file(
    path: &Path,
    replace: bool,
    content: BoxStream<'_, agent_core::Result<Bytes>>,
    len: Option<u64>,
) -> Result<u64> {
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
    remove_leftovers(folder);
    let mut file = part().tempfile_in(folder).map_err(failed)?;
    // Tells other processes that this file is in use. Where files cannot be locked, none is removed either.
    let _ = file.as_file().try_lock();
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

const PART_START: &str = ".chat-";
const PART_END: &str = ".part";
/// Number of random characters between the two.
const PART_RANDOM: usize = 16;
/// Age from which a part that no process has locked is a leftover. A younger one may not have been locked yet.
const LEFTOVER: Duration = Duration::from_secs(3600);

/// Returns the names of files that are being written, for example `.chat-Gx0v2mNq8rTz1aBc.part`.
fn part() -> tempfile::Builder<'static, 'static> {
    let mut names = tempfile::Builder::new();
    names.prefix(PART_START).suffix(PART_END).rand_bytes(PART_RANDOM);
    names
}

/// Removes the files that killed processes left in a folder. A failure to do so is no failure of the command.
fn remove_leftovers(folder: &Path) {
    let is_part = |name: &str| {
        let random = name.strip_prefix(PART_START).and_then(|rest| rest.strip_suffix(PART_END));
        random.is_some_and(|random| {
            random.len() == PART_RANDOM && random.bytes().all(|b| b.is_ascii_alphanumeric())
        })
    };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_old = |meta: std::fs::Metadata| {
            meta.is_file() && meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= LEFTOVER))
        };
        if !entry.file_name().to_str().is_some_and(is_part) || !entry.metadata().is_ok_and(is_old) {
            continue;
        }
        // The process that writes a file holds its lock.
        if File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Returns the bytes of a file or a pipe, which is read once, and the length of a file; `-` is standard input.
pub(crate) fn read_once(path: &Path) -> Result<(BlobStream, Option<u64>)> {
    let len = check_kind(path)?;
    Ok((watched("reading", pieces(path.to_owned()), len), len))
}

/// Reads a file or a pipe of at most `most` bytes as UTF-8 text; `-` is standard input.
pub(crate) fn read_text(path: &Path, most: u64) -> Result<String> {
    if check_kind(path)?.is_some_and(|len| len > most) {
        return Err(too_large(path, most));
    }
    let mut bytes = Vec::new();
    let read = source(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(|error| Failure::of_file("read", &shown(path), &error))?;
    if bytes.len() as u64 > most {
        return Err(too_large(path, most));
    }
    String::from_utf8(bytes).map_err(|_| not_text(path))
}

/// Returns the failure for a file of more than `most` bytes.
pub(crate) fn too_large(path: &Path, most: u64) -> Failure {
    let text = format!("{} is too large: the maximum is {most} bytes", shown(path).display());
    Failure::new(1, "limit_exceeded", text)
}

/// Returns the failure for a file that is not UTF-8 text.
pub(crate) fn not_text(path: &Path) -> Failure {
    Failure::new(1, "failed", format!("cannot read {}: it is not UTF-8 text", shown(path).display()))
}

/// Returns the name of a file for messages.
pub(crate) fn shown(path: &Path) -> PathBuf {
    if is_input(path) { PathBuf::from("standard input") } else { path.to_owned() }
}

fn is_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// Refuses what is neither a file nor a pipe; returns the length of a file. The type is checked before the file is
/// opened, because opening a device may have an effect.
fn check_kind(path: &Path) -> Result<Option<u64>> {
    if is_input(path) {
        return Ok(None);
    }
    let meta = std::fs::metadata(path).map_err(|error| Failure::of_file("read", path, &error))?;
    #[cfg(unix)]
    let is_pipe = std::os::unix::fs::FileTypeExt::is_fifo(&meta.file_type());
    #[cfg(not(unix))]
    let is_pipe = false;
    if !meta.is_file() && !is_pipe {
        let text = format!("{} is not a regular file or pipe; name a file", path.display());
        return Err(Failure::new(1, "invalid_input", text));
    }
    Ok(meta.is_file().then_some(meta.len()))
}

/// Returns the path of a file that can be read more than once: the file itself, or a copy of what is read once only.
fn reread(path: &Path, most: u64) -> Result<(PathBuf, Option<NamedTempFile>)> {
    match check_kind(path)? {
        Some(bytes) if bytes > most => return Err(too_large(path, most)),
        Some(_) => return Ok((path.to_owned(), None)),
        None => {}
    }
    let copied = NamedTempFile::new().and_then(|mut copy| {
        let bytes = io::copy(&mut source(path)?.take(most + 1), &mut copy)?;
        Ok((copy, bytes))
    });
    let (copy, bytes) = copied.map_err(|error| Failure::of_file("read", &shown(path), &error))?;
    if bytes > most {
        return Err(too_large(path, most));
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
        let text = format!("cannot read {}; check the file and its disk", shown(path).display());
        Error::new(kind, text).with_source(error)
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
        let (done, path) = read.await.map_err(|error| Error::unavailable(error.to_string()))?;
        let (file, piece) = done.map_err(|error| failed(&path, error))?;
        Ok(if piece.is_empty() { None } else { Some((piece.into(), (Some(file), path))) })
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// A file that is being written has a name by which it is found if the process dies, and is locked until then.
    #[tokio::test]
    async fn part_of_a_save_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("film.mp4");
        let endless = stream::iter([Ok(Bytes::from("begin"))]).chain(stream::pending()).boxed();
        let mut written = Box::pin(write_file(&path, false, endless, None));
        assert!((&mut written).now_or_never().is_none());
        let parts = || std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let [part] = parts().collect::<Vec<_>>().try_into().unwrap();
        assert!(File::open(&part).unwrap().try_lock().is_err());
        let file = File::options().write(true).open(&part).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        remove_leftovers(folder.path());
        assert_eq!(parts().count(), 1);
        // Like after a kill, nothing holds the lock.
        let left = folder.path().join(".chat-0123456789abcDEF.part");
        std::fs::rename(&part, &left).unwrap();
        drop(written);
        remove_leftovers(folder.path());
        assert_eq!(parts().count(), 0);
    }
}
