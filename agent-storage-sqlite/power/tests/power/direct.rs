//! Writes of the library itself beside SQLite, recorded on the model of a disk as SQLite's calls are. A function of
//! such a name in this program is what the standard library calls, in the place of the C library's.

#![allow(unsafe_code, reason = "the functions of the C library, whose place these take, are C functions")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::path::PathBuf;

use agent_storage_fs::io::IoFile;

use crate::model::Disk;
use crate::vfs;

thread_local! {
    static IN_SQLITE: Cell<bool> = const { Cell::new(false) };
}

/// Makes a call of SQLite's own file system, which was noted.
pub(crate) fn in_sqlite<T>(call: impl FnOnce() -> T) -> T {
    let before = IN_SQLITE.replace(true);
    let done = call();
    IN_SQLITE.set(before);
    done
}

/// The file that is open under this number, where it is noted.
fn recorded(fd: c_int) -> Option<(Disk, Box<dyn IoFile>)> {
    if IN_SQLITE.get() {
        return None;
    }
    let path: PathBuf = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    // Shared memory, which is SQLite's, and outlives no loss of power.
    if path.to_str()?.ends_with("-shm") {
        return None;
    }
    let (disk, path) = vfs::place(&path)?;
    let file = disk.opened(&path)?;
    Some((disk, file))
}

/// Ends a call as C functions do.
fn fail(error: &io::Error) {
    // SAFETY: The address of this thread's error number.
    unsafe { *libc::__errno_location() = error.raw_os_error().unwrap_or(libc::EIO) };
}

/// # Safety
///
/// `bytes` are `count` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, count: usize) -> isize {
    // SAFETY: The arguments are handed on as they came.
    let real = || unsafe { libc::syscall(libc::SYS_write, fd, bytes, count) as isize };
    let Some((disk, file)) = recorded(fd) else { return real() };
    // SAFETY: The file is open; nothing is moved.
    let at = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    // SAFETY: The caller hands over `count` bytes.
    let taken = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), count) };
    match file.write_at(taken, u64::try_from(at).unwrap()) {
        Ok(_) => real(),
        Err(error) => {
            if vfs::is_done(&disk) {
                real();
            }
            fail(&error);
            -1
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    let Some((_, file)) = recorded(fd) else {
        // SAFETY: The argument is handed on as it came.
        return unsafe { libc::syscall(libc::SYS_fsync, fd) as c_int };
    };
    match file.sync() {
        Ok(()) => 0,
        Err(error) => {
            fail(&error);
            -1
        }
    }
}
