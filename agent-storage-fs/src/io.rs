//! I/O interface: every file operation of this crate goes through [`Io`], so that a test can count, fail or interrupt
//! each.

use std::ffi::OsString;
use std::fmt::{self, Debug};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

#[cfg(unix)]
use rustix::fs::OFlags;
#[cfg(unix)]
use rustix::process::{Resource, getrlimit};

/// Name of the file that stands for the lock of a folder on systems that cannot lock folders.
pub(crate) const LOCK: &str = "lock";

/// Mode in which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Opens an existing file for reading.
    Read,
    /// Opens an existing file for reading and writing.
    Write,
    /// Opens a file for reading and writing. If it does not exist, it is created, empty and accessible to its owner
    /// only.
    Create,
    /// Creates a file and opens it for reading and writing. Fails if it exists.
    CreateNew,
    /// Opens a file for [`append`](IoFile::append) only. If it does not exist, it is created, empty and accessible to its
    /// owner only.
    Append,
}

/// Kind of the object that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Folder.
    Folder,
    /// Anything else, such as a link.
    Other,
}

/// Metadata of a file or folder, read without opening its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Kind of the object.
    pub kind: Kind,
    /// Length in bytes.
    pub len: u64,
    /// Time of the last write, in nanoseconds since 1970; zero if the system does not report it.
    pub modified: i128,
    /// Time of the last change of the contents or of the metadata, in nanoseconds since 1970, which no program can set; zero if
    /// the system does not report it.
    pub changed: i128,
    /// Id that distinguishes this file from another one with the same name.
    pub id: FileId,
}

/// Id of a file or folder. No two that exist at the same time have the same id; names do not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    /// Id of the file system; zero if the system does not report it.
    pub device: u64,
    /// Number of the file within its file system; zero if the system does not report it.
    pub inode: u64,
    /// Time at which the file was created, in nanoseconds since 1970; zero if the system does not report it. A later
    /// file may get the number of a removed one.
    pub born: i128,
}

/// Operations on names. Paths are absolute.
pub trait Io: Debug + Send + Sync + 'static {
    /// Opens a regular file, and nothing else: links are not followed; pipes, sockets and devices are neither waited
    /// for nor read. A file that is created is readable and writable by its owner only.
    ///
    /// # Errors
    ///
    /// The errors of the system; `IsADirectory` for a folder; [`NotAFile`] for what is neither file nor folder.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn IoFile>>;

    /// Opens the object that stands for a folder in locks. This is the folder itself, which nobody can remove while it
    /// is not empty. If the system cannot lock folders, it is the file `lock` in the folder, which is created if
    /// missing.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn open_lock(&self, folder: &Path) -> io::Result<Box<dyn IoFile>>;

    /// Returns the metadata of the object at `path`. A link to a folder counts as that folder; any other link is
    /// [`Kind::Other`].
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// Returns the names in a folder with their kinds, in any order. Links are not followed.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>>;

    /// Creates a folder that only its owner can access.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Renames a file or folder, and replaces a file or an empty folder that has the new name.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, which must not be in use.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// Operations on an open file.
pub trait IoFile: Debug + Send + Sync {
    /// Returns the metadata of the file.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn stat(&self) -> io::Result<Stat>;

    /// Returns the metadata that the file had when it was opened, or at a later time. Costs nothing where opening has looked
    /// at it anyway.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn stat_at_open(&self) -> io::Result<Stat> {
        self.stat()
    }

    /// Reads at an offset, and returns the number of bytes read. This may be fewer than the buffer holds; zero means
    /// the end of the file.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at an offset, and returns the number of bytes written.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Writes at the end of a file that was opened with [`OpenMode::Append`], wherever the end is at that moment, and returns
    /// the number of bytes written. Bytes that several processes append are not mixed.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Sets the length in bytes.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Makes written data durable. After an error it is not called again on the same open file: the system may have
    /// discarded the data that it could not write.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn sync(&self) -> io::Result<()>;

    /// Takes the exclusive lock if it is free, and returns whether it did. Never waits. The lock ends with
    /// [`unlock`](IoFile::unlock), when the open file is closed, or with the process.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn try_lock(&self) -> io::Result<bool>;

    /// Releases the lock.
    ///
    /// # Errors
    ///
    /// The errors of the system.
    fn unlock(&self) -> io::Result<()>;
}

/// File system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealIo;

impl Io for RealIo {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn IoFile>> {
        let mut options = OpenOptions::new();
        match mode {
            OpenMode::Read => drop(options.read(true)),
            OpenMode::Write => drop(options.read(true).write(true)),
            OpenMode::Create => drop(options.read(true).write(true).create(true).truncate(false)),
            OpenMode::CreateNew => drop(options.read(true).write(true).create_new(true)),
            OpenMode::Append => drop(options.append(true).create(true)),
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600).custom_flags(flags(OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY));
        }
        let file = options.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists | io::ErrorKind::PermissionDenied => error,
            // The errors for links and sockets differ between systems.
            _ => match fs::symlink_metadata(path).map(|metadata| kind_of(metadata.file_type())) {
                Ok(kind) if kind != Kind::File => not_a_file(kind),
                _ => error,
            },
        })?;
        let opened = stat(&file.metadata()?);
        match opened.kind {
            Kind::File => Ok(Box::new(RealFile { file, opened: Some(opened) })),
            kind => Err(not_a_file(kind)),
        }
    }

    #[cfg(unix)]
    fn open_lock(&self, folder: &Path) -> io::Result<Box<dyn IoFile>> {
        Ok(Box::new(RealFile { file: open_folder(folder)?, opened: None }))
    }

    #[cfg(not(unix))]
    fn open_lock(&self, folder: &Path) -> io::Result<Box<dyn IoFile>> {
        self.open(&folder.join(LOCK), OpenMode::Create)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let metadata = fs::symlink_metadata(path)?;
        if metadata.is_symlink()
            && let Ok(target) = fs::metadata(path)
            && target.is_dir()
        {
            return Ok(stat(&target));
        }
        Ok(stat(&metadata))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                let kind = entry.file_type()?;
                Ok((entry.file_name(), kind_of(kind)))
            })
            .collect()
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        #[cfg_attr(not(unix), allow(unused_mut))]
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    #[cfg(unix)]
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        open_folder(path)?.sync_all()
    }

    /// Other systems have no such call; names are as durable as the file system makes them.
    #[cfg(not(unix))]
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
    /// Metadata when it was opened, if that was looked at.
    opened: Option<Stat>,
}

impl IoFile for RealFile {
    fn stat(&self) -> io::Result<Stat> {
        self.file.metadata().map(|metadata| stat(&metadata))
    }

    fn stat_at_open(&self) -> io::Result<Stat> {
        self.opened.map_or_else(|| self.stat(), Ok)
    }

    #[cfg(unix)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.file, buffer, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(&self.file, buffer, offset)
    }

    #[cfg(unix)]
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        check_limit(bytes, || Ok(offset))?;
        std::os::unix::fs::FileExt::write_at(&self.file, bytes, offset)
    }

    #[cfg(windows)]
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(&self.file, bytes, offset)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(unix)]
        check_limit(bytes, || self.file.metadata().map(|metadata| metadata.len()))?;
        io::Write::write(&mut &self.file, bytes)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn unlock(&self) -> io::Result<()> {
        self.file.unlock()
    }
}

/// Fails if `bytes` at an offset would exceed the limit on the size of a file: the system would end the process by a signal
/// unless that is ignored.
#[cfg(unix)]
fn check_limit(bytes: &[u8], offset: impl FnOnce() -> io::Result<u64>) -> io::Result<()> {
    let Some(limit) = getrlimit(Resource::Fsize).current else { return Ok(()) };
    if offset()?.saturating_add(bytes.len() as u64) > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(())
}

#[cfg(unix)]
fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

#[cfg(unix)]
fn open_folder(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().read(true).custom_flags(flags(OFlags::DIRECTORY | OFlags::NONBLOCK)).open(path)
}

/// Error source for an object that is neither file nor folder and stands in place of a file.
#[derive(Clone, Copy, Debug)]
pub struct NotAFile;

impl fmt::Display for NotAFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a link, a pipe, a socket or a device stands where a file should be")
    }
}

impl std::error::Error for NotAFile {}

/// Error for an object that is not a file.
pub(crate) fn not_a_file(kind: Kind) -> io::Error {
    match kind {
        Kind::Folder => io::ErrorKind::IsADirectory.into(),
        Kind::File | Kind::Other => io::Error::other(NotAFile),
    }
}

/// Returns whether the error means that an object is not a file.
pub(crate) fn is_no_file(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::IsADirectory
        || error.get_ref().and_then(|inner| inner.downcast_ref::<NotAFile>()).is_some()
}

fn kind_of(kind: fs::FileType) -> Kind {
    if kind.is_dir() {
        Kind::Folder
    } else if kind.is_file() {
        Kind::File
    } else {
        Kind::Other
    }
}

#[cfg(unix)]
fn stat(metadata: &fs::Metadata) -> Stat {
    use std::os::unix::fs::MetadataExt;
    Stat {
        kind: kind_of(metadata.file_type()),
        len: metadata.len(),
        modified: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
        changed: i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec()),
        id: FileId { device: metadata.dev(), inode: metadata.ino(), born: born(metadata) },
    }
}

fn born(metadata: &fs::Metadata) -> i128 {
    nanos(metadata.created())
}

fn nanos(at: io::Result<std::time::SystemTime>) -> i128 {
    let at = at.ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    at.map_or(0, |at| i128::try_from(at.as_nanos()).unwrap_or(0))
}

#[cfg(not(unix))]
fn stat(metadata: &fs::Metadata) -> Stat {
    Stat {
        kind: kind_of(metadata.file_type()),
        len: metadata.len(),
        modified: nanos(metadata.modified()),
        changed: 0,
        id: FileId { born: born(metadata), ..FileId::default() },
    }
}

/// Returns the metadata of the object at `path`, if it is still the one that was opened as `id`.
///
/// Returns `None` if the name is unused or stands for another object.
pub(crate) fn still_ours(io: &dyn Io, id: FileId, path: &Path) -> io::Result<Option<Stat>> {
    match io.stat(path) {
        Ok(stat) => Ok((stat.id == id).then_some(stat)),
        // A file may have replaced a folder above it.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Reads at `offset` until the buffer is full or the file ends, and returns the number of bytes read.
pub(crate) fn read_full(file: &dyn IoFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of `bytes` at `offset`.
pub(crate) fn write_full(file: &dyn IoFile, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Appends all of `bytes` with one call. What was written of them stays if that fails.
pub(crate) fn append_full(file: &dyn IoFile, bytes: &[u8]) -> io::Result<()> {
    loop {
        match file.append(bytes) {
            Ok(count) if count == bytes.len() => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Copies the first `len` bytes of a file to another.
pub(crate) fn copy(from: &dyn IoFile, to: &dyn IoFile, len: u64) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut at = 0;
    while at < len {
        let wanted = usize::try_from(len - at).unwrap_or(buffer.len()).min(buffer.len());
        let count = read_full(from, &mut buffer[..wanted], at)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        write_full(to, &buffer[..count], at)?;
        at += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    /// The time of the last write has nanosecond precision, by name and by open file.
    #[test]
    fn modification_time_has_nanosecond_precision() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "text").unwrap();
        let at = Duration::new(1_000_000, 123_456_700);
        File::options().write(true).open(&path).unwrap().set_modified(UNIX_EPOCH + at).unwrap();
        let named = RealIo.stat(&path).unwrap();
        assert_eq!((named.kind, named.len, named.modified), (Kind::File, 4, 1_000_000_123_456_700));
        assert_eq!(RealIo.open(&path, OpenMode::Read).unwrap().stat().unwrap(), named);
    }
}
