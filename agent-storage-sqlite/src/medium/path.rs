//! Checks of the path before SQLite opens it: the kind of object, the file system, and the permissions.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use agent_core::{Error, ErrorKind, Result};

use crate::error::corrupt;

/// Checks the file at `path`. If there is none, creates an empty file, accessible to its owner only.
///
/// `create` is whether a store may be created. If not, a missing or empty file is `NotFound`.
pub(crate) fn prepare(path: &Path, create: bool) -> Result<()> {
    let folder = above(path);
    if !create && is_absent(path)? {
        return Err(no_store(path));
    }
    // If the file does not exist yet, its folder may be new as well, perhaps created by another process a moment ago.
    if !path.exists() {
        make_folder(&mut System, folder).map_err(|source| failed("make the folder", folder, source))?;
    }
    refuse_network(folder)?;
    match fs::metadata(path) {
        Ok(meta) if !meta.is_file() => {
            Err(corrupt(&path.display().to_string(), "is not a file; the database should be there"))
        }
        Ok(meta) if has_other_names(&meta) => Err(Error::invalid(format!(
            "{} has another name besides (a hard link), by which a program would not see what is written by this \
             one; remove the other name, which may be the .part of a backup that was killed",
            path.display()
        ))),
        Ok(_) => check_start(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match make_file(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed("make the file", path, error))
            }
            _ => Ok(()),
        },
        Err(error) => Err(failed("look at", path, error)),
    }
}

/// Returns what keeps this process from writing to the database at `path`, and the remedy; `None` if nothing is known.
pub(crate) fn read_only(path: &Path) -> Option<String> {
    let folder = above(path);
    let what = match (refused(path), refused(folder)) {
        (Some(true), _) | (_, Some(true)) => {
            "the file system is read-only: mount it so that it can be written to".to_owned()
        }
        (file, _) if file.is_some() || is_marked(path) => {
            "the file is read-only: make it writable for this user".to_owned()
        }
        (_, Some(_)) => format!(
            "the folder {} is read-only, and SQLite writes beside its file: make the folder writable for this user",
            folder.display()
        ),
        _ => return None,
    };
    Some(format!("{what}, or copy the file to where this user may write"))
}

/// Returns whether the file's mode forbids writing for everyone. This also counts for root, who could write, because
/// the mode was set on purpose.
pub(crate) fn is_marked(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.permissions().readonly())
}

/// Returns `None` if the system lets this process write to the path, else whether the reason is a read-only file
/// system.
#[cfg(unix)]
fn refused(path: &Path) -> Option<bool> {
    match rustix::fs::access(path, rustix::fs::Access::WRITE_OK) {
        Ok(()) => None,
        Err(error) => Some(error == rustix::io::Errno::ROFS),
    }
}

#[cfg(not(unix))]
fn refused(_: &Path) -> Option<bool> {
    None
}

/// Error for a path without a store, if none may be created.
pub(crate) fn no_store(path: &Path) -> Error {
    Error::not_found(format!("{} holds no store; check the path", path.display()))
}

/// Returns whether a file has several names. SQLite keeps its log beside the name by which the file was opened.
#[cfg(unix)]
fn has_other_names(meta: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(meta) > 1
}

#[cfg(not(unix))]
fn has_other_names(_: &fs::Metadata) -> bool {
    false
}

/// Returns whether there is no file, or an empty one without a SQLite log or journal beside it.
fn is_absent(path: &Path) -> Result<bool> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() == 0 => {
            let left = |suffix: &str| {
                let mut beside = path.as_os_str().to_owned();
                beside.push(suffix);
                fs::metadata(beside).is_ok_and(|meta| meta.len() > 0)
            };
            Ok(!left("-wal") && !left("-journal"))
        }
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(failed("look at", path, error)),
    }
}

/// Checks that a file which is not empty starts with SQLite's header. The exception is a power loss during the write
/// of the first page: then a journal is beside the file, and SQLite uses it to undo the write.
fn check_start(path: &Path) -> Result<()> {
    const JOURNAL: &[u8] = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
    let start = start_of(path).map_err(|source| failed("read", path, source))?;
    if start.is_empty() || start == b"SQLite format 3\0" {
        return Ok(());
    }
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    if start_of(Path::new(&journal)).is_ok_and(|start| start.starts_with(JOURNAL)) {
        return Ok(());
    }
    Err(corrupt(&path.display().to_string(), "is not a SQLite database, or its beginning is damaged"))
}

fn start_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    fs::File::open(path)?.take(16).read_to_end(&mut start)?;
    Ok(start)
}

/// Creates an empty file that only its owner may read and write.
pub(crate) fn make_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Returns the folder that contains a path.
pub(crate) fn above(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// System calls that creating folders needs. A test replaces them and simulates power loss.
trait Folders {
    /// Returns whether a folder exists.
    fn is_there(&self, folder: &Path) -> bool;

    /// Creates a folder in an existing one, for its owner only.
    fn make(&mut self, folder: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync(&mut self, folder: &Path) -> io::Result<()>;
}

struct System;

impl Folders for System {
    fn is_there(&self, folder: &Path) -> bool {
        folder.is_dir()
    }

    fn make(&mut self, folder: &Path) -> io::Result<()> {
        #[cfg_attr(not(unix), allow(unused_mut))]
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)
    }

    #[cfg(unix)]
    fn sync(&mut self, folder: &Path) -> io::Result<()> {
        fs::File::open(folder)?.sync_all()
    }

    #[cfg(not(unix))]
    fn sync(&mut self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// Creates a folder and those above it, and makes their names durable. SQLite syncs only the folder that contains the
/// file. Of the existing folders, the name of the last one may not be durable yet, if the process that created it ended
/// before syncing it or has not synced it yet; the names above it are durable.
fn make_folder(system: &mut impl Folders, folder: &Path) -> io::Result<()> {
    let above = above(folder);
    if system.is_there(folder) {
        return match system.sync(above) {
            // No process of this user has created it, so it existed before.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        };
    }
    make_folder(system, above)?;
    match system.make(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && system.is_there(folder) => {}
        made => made?,
    }
    system.sync(above)
}

/// Error for an operation that the system refused.
pub(crate) fn failed(doing: &str, path: &Path, source: io::Error) -> Error {
    let (kind, remedy) = match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "give this user the right to read and write there")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (ErrorKind::Full, "make room, then try again")
        }
        io::ErrorKind::FileTooLarge => {
            (ErrorKind::Full, "raise the limit on the size of files (ulimit -f), then try again")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            (ErrorKind::Corrupt, "something else has that name; move it away, nothing was changed")
        }
        _ => (ErrorKind::Unavailable, "try again, and look at the disk"),
    };
    Error::new(kind, format!("cannot {doing} {}: {remedy}", path.display())).with_source(source)
}

/// Refuses network file systems. SQLite's locks and shared memory do not work across machines, so that two of them
/// would destroy the file.
fn refuse_network(folder: &Path) -> Result<()> {
    let Some(name) = network(folder) else { return Ok(()) };
    Err(Error::unsupported(format!(
        "{} is on a network file system ({name}), where the locks that keep the file whole do not work; use a local disk, or another backend",
        folder.display()
    )))
}

/// Returns the kernel's number of the file system that holds a folder, as `statfs(2)` lists them.
#[cfg(target_os = "linux")]
pub(crate) fn file_system(folder: &Path) -> Option<u32> {
    let stat = rustix::fs::statfs(folder).ok()?;
    // The kernel's numbers are of 32 bits; the field's width and sign differ between machines.
    Some((stat.f_type as u64 & 0xffff_ffff) as u32)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn file_system(_: &Path) -> Option<u32> {
    None
}

#[cfg(target_os = "linux")]
fn network(folder: &Path) -> Option<String> {
    let magic = file_system(folder)?;
    let mounts = if magic == FUSE { fs::read_to_string("/proc/self/mountinfo").ok() } else { None };
    let kind = mounts.and_then(|mounts| mounted(&mounts, &fs::canonicalize(folder).ok()?));
    judge(magic, kind.as_deref())
}

#[cfg(not(target_os = "linux"))]
fn network(_: &Path) -> Option<String> {
    None
}

#[cfg(target_os = "linux")]
const FUSE: u32 = 0x6573_5546;

/// Returns the name of a network file system, by the kernel's number and, for FUSE, by the mount's type.
#[cfg(target_os = "linux")]
fn judge(magic: u32, mounted: Option<&str>) -> Option<String> {
    let name = match magic {
        0x6969 => "nfs",
        0x517b => "smb",
        0xff53_4d42 => "cifs",
        0xfe53_4d42 => "smb2",
        0x5346_414f | 0x6b41_4653 => "afs",
        0x00c3_6400 => "ceph",
        0x0bd0_0bd0 => "lustre",
        0x4750_4653 => "gpfs",
        0x1983_0326 => "beegfs",
        0x7375_7245 => "coda",
        0x564c => "ncp",
        FUSE => {
            const REMOTE: [&str; 9] =
                ["sshfs", "s3fs", "rclone", "goofys", "gcsfuse", "davfs", "glusterfs", "ceph", "juicefs"];
            let mounted = mounted?;
            return REMOTE.iter().any(|name| mounted.contains(name)).then(|| mounted.to_owned());
        }
        _ => return None,
    };
    Some(name.to_owned())
}

/// Returns the type of the mount that contains `path`: the last one with the longest mount point.
#[cfg(target_os = "linux")]
fn mounted(mountinfo: &str, path: &Path) -> Option<String> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        Some((place.split(' ').nth(4)?.replace("\\040", " "), kind.split(' ').next()?))
    });
    mounts
        .filter(|(place, _)| path.starts_with(place))
        .max_by_key(|(place, _)| place.len())
        .map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;

    /// Model of folders, and of which names would survive power loss.
    #[derive(Clone, Default)]
    struct Model {
        folders: BTreeMap<PathBuf, bool>,
        /// Number of calls that still succeed; `None` means all.
        left: Option<usize>,
        /// True if another process creates the same folder just before.
        hurried: bool,
    }

    impl Model {
        fn call(&mut self) -> io::Result<()> {
            match &mut self.left {
                Some(0) => return Err(io::ErrorKind::StorageFull.into()),
                Some(left) => *left -= 1,
                None => {}
            }
            Ok(())
        }

        fn survives(&self, path: &Path) -> bool {
            path.ancestors()
                .filter(|path| !path.as_os_str().is_empty())
                .all(|path| self.folders.get(path) == Some(&true))
        }
    }

    impl Folders for Model {
        fn is_there(&self, folder: &Path) -> bool {
            folder == Path::new(".") || self.folders.contains_key(folder)
        }

        fn make(&mut self, folder: &Path) -> io::Result<()> {
            self.call()?;
            assert!(self.is_there(above(folder)), "{folder:?} has nothing to be made in");
            if self.hurried {
                self.folders.insert(folder.to_owned(), false);
            }
            if self.folders.contains_key(folder) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            self.folders.insert(folder.to_owned(), false);
            Ok(())
        }

        fn sync(&mut self, folder: &Path) -> io::Result<()> {
            self.call()?;
            for (path, durable) in &mut self.folders {
                *durable |= above(path) == folder;
            }
            Ok(())
        }
    }

    /// A folder that any process created for a new file, and all folders above it, survive power loss. A failure is
    /// reported, and the next attempt makes up for it.
    #[test]
    fn folders_of_a_new_file_survive_power_loss() {
        let wanted = Path::new("var/lib/agent");
        for hurried in [false, true] {
            for calls in 0.. {
                let mut disk = Model { left: Some(calls), hurried, ..Model::default() };
                let made = make_folder(&mut disk, wanted);
                assert_eq!(made.is_ok(), disk.survives(wanted), "{calls} calls");
                if made.is_ok() {
                    assert_eq!(calls, 7, "one to make and one to sync each, and that of what was there");
                    break;
                }
                // The process may have ended there, too, and the power may have failed.
                for power in [false, true] {
                    let mut next = Model { left: None, ..disk.clone() };
                    if power {
                        next.folders.retain(|_, durable| *durable);
                    }
                    make_folder(&mut next, wanted).unwrap();
                    assert!(next.survives(wanted), "after {calls} calls, power {power}");
                }
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod network_tests {
    use super::*;

    /// Network file systems are recognized by number, and those in user space by the type of the mount.
    #[test]
    fn network_file_systems_are_refused_by_name() {
        assert_eq!(judge(0x6969, None).as_deref(), Some("nfs"));
        assert_eq!(judge(0xff53_4d42, None).as_deref(), Some("cifs"));
        assert_eq!(judge(0xef53, None), None, "ext4 is local");
        assert_eq!(judge(FUSE, Some("fuse.gocryptfs")), None);
        let mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /home/a rw - fuse.sshfs host: rw\n";
        let kind = mounted(mounts, Path::new("/home/a/agent"));
        assert_eq!(judge(FUSE, kind.as_deref()).as_deref(), Some("fuse.sshfs"));
        assert_eq!(mounted(mounts, Path::new("/home/ab")).as_deref(), Some("ext4"));
    }
}
