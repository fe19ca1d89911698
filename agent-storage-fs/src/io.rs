//! The seam: every file operation of this crate goes through [`Io`], so that a test can count, fail or cut each.

use std::ffi::OsString;
use std::fmt::{self, Debug};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

#[cfg(unix)]
use rustix::fs::OFlags;
#[cfg(unix)]
use rustix::process::{Resource, getrlimit};

/// The lock of a folder on systems that lock no folders.
pub(crate) const LOCK: &str = "lock";

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// To read and write; made, empty and private, where there is none.
    Create,
    /// To read and write; must not exist yet.
    CreateNew,
}

/// What kind of thing a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// Anything else, links among them.
    Other,
}

/// What the system says of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Its length in bytes.
    pub len: u64,
    /// When it was last written, in nanoseconds since 1970; zero where the system does not say.
    pub modified: i128,
    /// Tells it from another file of the same name.
    pub id: FileId,
}

/// What tells a file, or a folder, from every other that there is at the same time, whatever their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    /// The file system; zero if the system does not say.
    pub device: u64,
    /// Its number there; zero if the system does not say.
    pub inode: u64,
}

/// Operations on names. Paths are absolute.
pub trait Io: Debug + Send + Sync + 'static {
    /// Opens a file, and only that: of a link, a pipe, a socket or a device nothing is followed, waited for or read. A file
    /// that is made is readable and writable for its owner only.
    ///
    /// # Errors
    ///
    /// Those of the system; `IsADirectory`, and [`NotAFile`] for what is neither file nor folder.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn IoFile>>;

    /// Opens what stands for a folder in locks: the folder itself, which nobody can remove while there is something in it.
    /// If the system locks no folders it is the file `lock` in it, which is made.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn open_lock(&self, folder: &Path) -> io::Result<Box<dyn IoFile>>;

    /// What stands under a name. A link to a folder is that folder; any other link is [`Kind::Other`].
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// The names in a folder with their kinds, in any order; links are not followed.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>>;

    /// Makes a folder that only its owner can enter.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Renames; replaces a file, or an empty folder, that has the new name.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, which must be free.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// Operations on an open file.
pub trait IoFile: Debug + Send + Sync {
    /// What the system says of it.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn stat(&self) -> io::Result<Stat>;

    /// Reads at an offset; fewer bytes than asked for are no error, zero is the end.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at an offset, and says how many bytes were taken.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Sets the length.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Makes what was written durable. After an error it is not called again on the same open file: the system may
    /// have forgotten what it could not write.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn sync(&self) -> io::Result<()>;

    /// Takes the exclusive lock if nobody else has it, and says whether it did. Never waits. The lock ends with
    /// [`unlock`](IoFile::unlock), with the open file, or with the process.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn try_lock(&self) -> io::Result<bool>;

    /// Gives the lock back.
    ///
    /// # Errors
    ///
    /// Those of the system.
    fn unlock(&self) -> io::Result<()>;
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealIo;

impl Io for RealIo {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn IoFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::Write => drop(options.write(true)),
            OpenMode::Create => drop(options.write(true).create(true).truncate(false)),
            OpenMode::CreateNew => drop(options.write(true).create_new(true)),
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            options.mode(0o600).custom_flags(flags(OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY));
        }
        let file = options.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists | io::ErrorKind::PermissionDenied => error,
            // What the system says of links and sockets differs.
            _ => match fs::symlink_metadata(path).map(|metadata| kind_of(metadata.file_type())) {
                Ok(kind) if kind != Kind::File => not_a_file(kind),
                _ => error,
            },
        })?;
        match kind_of(file.metadata()?.file_type()) {
            Kind::File => Ok(Box::new(RealFile(file))),
            kind => Err(not_a_file(kind)),
        }
    }

    #[cfg(unix)]
    fn open_lock(&self, folder: &Path) -> io::Result<Box<dyn IoFile>> {
        Ok(Box::new(RealFile(open_folder(folder)?)))
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

    /// Other systems have no such call; names are as durable as their file system makes them.
    #[cfg(not(unix))]
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct RealFile(File);

impl IoFile for RealFile {
    fn stat(&self) -> io::Result<Stat> {
        self.0.metadata().map(|metadata| stat(&metadata))
    }

    #[cfg(unix)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.0, buffer, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(&self.0, buffer, offset)
    }

    #[cfg(unix)]
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        // Not left to the system, which ends the process by a signal unless that is ignored.
        let limit = getrlimit(Resource::Fsize).current;
        if limit.is_some_and(|limit| offset.saturating_add(bytes.len() as u64) > limit) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        std::os::unix::fs::FileExt::write_at(&self.0, bytes, offset)
    }

    #[cfg(windows)]
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(&self.0, bytes, offset)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.0.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn unlock(&self) -> io::Result<()> {
        self.0.unlock()
    }
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

/// Something that is neither file nor folder stands where a file should be.
#[derive(Clone, Copy, Debug)]
pub struct NotAFile;

impl fmt::Display for NotAFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a link, a pipe, a socket or a device stands where a file should be")
    }
}

impl std::error::Error for NotAFile {}

/// The error for something that is no file.
pub(crate) fn not_a_file(kind: Kind) -> io::Error {
    match kind {
        Kind::Folder => io::ErrorKind::IsADirectory.into(),
        Kind::File | Kind::Other => io::Error::other(NotAFile),
    }
}

/// Whether the error says that something is no file.
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
        id: FileId { device: metadata.dev(), inode: metadata.ino() },
    }
}

#[cfg(not(unix))]
fn stat(metadata: &fs::Metadata) -> Stat {
    let modified = metadata.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    Stat {
        kind: kind_of(metadata.file_type()),
        len: metadata.len(),
        modified: modified.map_or(0, |at| i128::try_from(at.as_nanos()).unwrap_or(0)),
        id: FileId::default(),
    }
}

/// What stands under a name, if it is still the file or folder that was opened as `id`; `None` if nothing, or another,
/// has the name now.
pub(crate) fn still_ours(io: &dyn Io, id: FileId, path: &Path) -> io::Result<Option<Stat>> {
    match io.stat(path) {
        Ok(stat) => Ok((stat.id == id).then_some(stat)),
        // A file may stand where a folder above it was.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Reads at `offset` until the buffer is full or the file ends, and says how many bytes there were.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    /// When a file was last written is told in nanoseconds, by its name and by the open file.
    #[test]
    fn a_moment_is_told_in_nanoseconds() {
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
