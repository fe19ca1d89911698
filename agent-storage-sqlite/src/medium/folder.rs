//! Check of a folder in place of checks of each of the files in it.
//!
//! Whatever makes a name in a folder lead to another file also changes the time of the folder's last change, which the
//! system keeps. So as long as a path leads to the same folder, with the same time, each name in it leads to the file to
//! which it led when it was last looked at.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::medium::path::{above, file_system};

/// Id that distinguishes a file or a folder from every other one while it is open.
pub(crate) type FileId = (u64, u64);

#[cfg(unix)]
pub(crate) fn id_of(meta: &Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;

    (meta.dev(), meta.ino())
}

/// On other systems a file that is open cannot normally be moved or removed.
#[cfg(not(unix))]
pub(crate) fn id_of(_: &Metadata) -> FileId {
    (0, 0)
}

/// Time for which a folder must have been in one state before it is noted. Changes within the resolution of a file system
/// leave the same time; the coarsest of those in [`RELIABLE`] is a second.
const SETTLED: Duration = Duration::from_secs(3);

/// File systems of which it is known that a change of a name sets the folder's time: ext2 to ext4, XFS, Btrfs, F2FS, tmpfs,
/// and overlayfs, which returns the time of the layer that is written to. Others, as those of networks and of FUSE, may return
/// a former time for a while, or have none.
const RELIABLE: [u32; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994, 0x794c_7630];

/// Returns the time of the last change, in seconds since 1970 and nanoseconds.
#[cfg(unix)]
fn changed(meta: &Metadata) -> (i64, i64) {
    use std::os::unix::fs::MetadataExt;

    (meta.ctime(), meta.ctime_nsec())
}

#[cfg(not(unix))]
fn changed(_: &Metadata) -> (i64, i64) {
    (0, 0)
}

/// Folder at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) id: FileId,
    changed: (i64, i64),
}

#[derive(Clone, Copy, Debug)]
enum Known {
    Nothing,
    /// The folder was in this state at that moment.
    Seen(State, Instant),
    /// The folder was in this state for some time, and each file had its name when it was looked at after that.
    Settled(State),
}

/// Folder of an open store's files.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    known: Mutex<Known>,
}

impl Folder {
    /// Returns the folder that the path of a file names; `None` if its file system may not tell when a name changes.
    pub(crate) fn of(file: &Path) -> Option<Self> {
        let path = above(file);
        let is_reliable = file_system(path).is_some_and(|kind| RELIABLE.contains(&kind));
        is_reliable.then(|| Self { path: path.to_owned(), known: Mutex::new(Known::Nothing) })
    }

    /// Returns whether the folder is in the state that was [noted](Self::note). Costs one system call, and none if there
    /// is no such state.
    pub(crate) fn is_unchanged(&self) -> bool {
        let Known::Settled(known) = self.known() else { return false };
        let found = self.stat();
        if found != Some(known) {
            self.set(found.map_or(Known::Nothing, |state| Known::Seen(state, now())));
        }
        found == Some(known)
    }

    /// Returns the state of the folder if it may be noted: if it was the same for some seconds. Looks at the folder once in
    /// that time.
    pub(crate) fn settled(&self) -> Option<State> {
        let known = self.known();
        if matches!(known, Known::Seen(_, since) if since.elapsed() < SETTLED) {
            return None;
        }
        let found = self.stat()?;
        if matches!(known, Known::Seen(state, _) if state == found) {
            return Some(found);
        }
        self.set(Known::Seen(found, now()));
        None
    }

    /// Notes a [settled](Self::settled) state if each file was looked at after that and is in the folder. If one is not,
    /// that is looked at again some seconds later.
    pub(crate) fn note(&self, state: State, has_all: bool) {
        self.set(if has_all { Known::Settled(state) } else { Known::Seen(state, now()) });
    }

    fn known(&self) -> Known {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, known: Known) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    fn stat(&self) -> Option<State> {
        let meta = fs::metadata(&self.path).ok()?;
        Some(State { id: id_of(&meta), changed: changed(&meta) })
    }
}

#[allow(clippy::disallowed_methods, reason = "the system's time counts, also in tests that pause theirs")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[allow(clippy::disallowed_methods, reason = "the clock of the file system goes on")]
    fn sleep(time: Duration) {
        std::thread::sleep(time);
    }

    #[test]
    fn a_folder_that_changed_in_the_last_seconds_has_not_settled() {
        let folder = tempfile::tempdir().unwrap();
        let found = Folder::of(&folder.path().join("file")).expect("temporary files on a common file system");
        assert_eq!((found.settled(), found.settled()), (None, None), "seen for the first time");
        sleep(SETTLED);
        fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!((found.settled(), found.settled()), (None, None), "in another state");
        sleep(SETTLED);
        let state = found.settled();
        assert_eq!(state, found.stat());
        found.note(state.unwrap(), true);
        assert!(found.is_unchanged());
        found.note(state.unwrap(), false);
        assert!(!found.is_unchanged() && found.settled().is_none());
    }

    #[test]
    fn every_change_of_a_name_is_seen() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("folder");
        let (one, other) = (folder.join("one"), folder.join("other"));
        fs::create_dir(&folder).unwrap();
        fs::write(&one, "1").unwrap();
        fs::write(&other, "2").unwrap();
        let found = Folder::of(&one).expect("temporary files on a common file system");
        let exchange = || {
            let (from, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
            rustix::fs::renameat_with(from, &one, from, &other, flags).unwrap();
        };
        let replace = || {
            fs::rename(&folder, above.path().join("away")).unwrap();
            fs::create_dir(&folder).unwrap();
        };
        let changes: [(&str, &dyn Fn()); 6] = [
            ("made", &|| fs::write(folder.join("third"), "3").unwrap()),
            ("linked", &|| fs::hard_link(&one, folder.join("fourth")).unwrap()),
            ("removed", &|| fs::remove_file(folder.join("third")).unwrap()),
            ("exchanged", &exchange),
            ("renamed over another", &|| fs::rename(&one, &other).unwrap()),
            ("in another folder", &replace),
        ];
        for (what, change) in changes {
            // Longer than the unit in which the system keeps times, 10 ms at most.
            sleep(Duration::from_millis(30));
            found.note(found.stat().unwrap(), true);
            assert!(found.is_unchanged(), "before a file is {what}");
            fs::write(&other, what).unwrap();
            assert!(found.is_unchanged(), "no name changed before a file is {what}");
            change();
            assert!(!found.is_unchanged(), "a file was {what}");
            assert!(!found.is_unchanged(), "nothing is noted after a file was {what}");
        }
    }
}
