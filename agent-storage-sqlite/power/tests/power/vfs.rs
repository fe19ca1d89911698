//! SQLite's calls to the system, recorded on the model of a disk, which may have them fail. What happens there happens
//! to the real files as well, but for syncs.

#![allow(unsafe_code, reason = "SQLite calls a file system through C functions")]

use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use agent_storage_fs::io::{Io, IoFile, OpenMode};
use rusqlite::ffi::{self, sqlite3_file, sqlite3_io_methods, sqlite3_vfs};

use crate::direct::in_sqlite;
use crate::fault::Fault;
use crate::model::Disk;

/// The folders of which calls are noted, and where.
static FOLDERS: Mutex<Vec<(PathBuf, Disk)>> = Mutex::new(Vec::new());
/// What is open there, by the address of SQLite's own record of the file.
static FILES: Mutex<Option<HashMap<usize, Recorded>>> = Mutex::new(None);
/// The methods that files are given, by the address of those that they had. There are few, and they live for ever.
static METHODS: Mutex<Vec<(usize, &Methods)>> = Mutex::new(Vec::new());

/// The methods of a file. SQLite sees the first part.
#[repr(C)]
struct Methods {
    noting: sqlite3_io_methods,
    real: sqlite3_io_methods,
}

struct Recorded {
    file: Box<dyn IoFile>,
    disk: Disk,
    /// The first sync of a journal or log makes its name durable, too: SQLite syncs the folder then.
    sync_folder: bool,
}

/// Notes from now on what SQLite does to the files in a folder; they lie in the root of the disk.
pub(crate) fn note(folder: &Path, disk: &Disk) {
    static REGISTERED: OnceLock<()> = OnceLock::new();
    REGISTERED.get_or_init(register);
    FOLDERS.lock().unwrap().push((folder.to_owned(), disk.clone()));
}

fn register() {
    // SAFETY: SQLite's own file system is a valid record, copied by value; the copy is leaked, and so lives for ever.
    let done = unsafe {
        let copy = Box::leak(Box::new(*unix()));
        copy.zName = c"noting".as_ptr();
        copy.xOpen = Some(open);
        copy.xDelete = Some(delete);
        ffi::sqlite3_vfs_register(copy, 1)
    };
    assert_eq!(done, ffi::SQLITE_OK);
}

/// SQLite's own file system.
fn unix() -> *mut sqlite3_vfs {
    // SAFETY: The name is a C string; SQLite initialises itself.
    let found = unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) };
    assert!(!found.is_null());
    found
}

/// The disk on which a file is noted, and its path there.
fn place_of(name: *const c_char) -> Option<(Disk, PathBuf)> {
    if name.is_null() {
        return None;
    }
    // SAFETY: SQLite names files by C strings.
    place(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes())))
}

/// The same by its path.
pub(crate) fn place(path: &Path) -> Option<(Disk, PathBuf)> {
    let folders = FOLDERS.lock().unwrap();
    let (_, disk) = folders.iter().find(|(folder, _)| path.starts_with(folder))?;
    Some((disk.clone(), Path::new("/").join(path.file_name()?)))
}

/// The methods in place of `real`.
fn methods(real: &'static sqlite3_io_methods) -> &'static Methods {
    let mut known = METHODS.lock().unwrap();
    let address = std::ptr::from_ref(real) as usize;
    if let Some((_, methods)) = known.iter().find(|(of, _)| *of == address) {
        return methods;
    }
    let noting = sqlite3_io_methods {
        xClose: Some(close),
        xRead: Some(read),
        xFileSize: Some(file_size),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        ..*real
    };
    let methods = Box::leak(Box::new(Methods { noting, real: *real }));
    known.push((address, methods));
    methods
}

/// How SQLite does it by itself.
///
/// # Safety
///
/// The file was opened by [`open`], and not closed since.
unsafe fn real(file: *mut sqlite3_file) -> &'static sqlite3_io_methods {
    // SAFETY: Such a file has methods of ours, which live for ever.
    unsafe { &(*(*file).pMethods.cast::<Methods>()).real }
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    let unix = unix();
    // SAFETY: The arguments are handed on as they came. A file that was opened has methods, which are static.
    let real = unsafe {
        let done = (*unix).xOpen.unwrap()(unix, name, file, flags, flags_out);
        if done != ffi::SQLITE_OK {
            return done;
        }
        &*(*file).pMethods
    };
    if let Some((disk, path)) = place_of(name) {
        let Ok(recorded) = disk.open(&path, OpenMode::Create) else {
            // SAFETY: The file is open. SQLite takes one without methods for one that is not.
            unsafe {
                real.xClose.unwrap()(file);
                (*file).pMethods = std::ptr::null();
            }
            return ffi::SQLITE_CANTOPEN;
        };
        let journals = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL;
        let sync_folder = flags & ffi::SQLITE_OPEN_CREATE != 0 && flags & journals != 0;
        let recorded = Recorded { file: recorded, disk, sync_folder };
        FILES.lock().unwrap().get_or_insert_default().insert(file as usize, recorded);
    }
    // SAFETY: SQLite hands over a file; its methods start with those that it looks for.
    unsafe { (*file).pMethods = std::ptr::from_ref(methods(real)).cast() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(_: *mut sqlite3_vfs, name: *const c_char, sync_folder: c_int) -> c_int {
    let place = place_of(name);
    let failed = place.as_ref().is_some_and(|(disk, path)| {
        disk.remove_file(path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
    });
    if failed && !place.as_ref().is_some_and(|(disk, _)| is_done(disk)) {
        return ffi::SQLITE_IOERR_DELETE;
    }
    let unix = unix();
    // SAFETY: The arguments are handed on as they came.
    let done = in_sqlite(|| unsafe { (*unix).xDelete.unwrap()(unix, name, sync_folder) });
    match place {
        _ if failed => ffi::SQLITE_IOERR_DELETE,
        Some((disk, _))
            if done == ffi::SQLITE_OK && sync_folder != 0 && disk.sync_dir(Path::new("/")).is_err() =>
        {
            ffi::SQLITE_IOERR_DIR_FSYNC
        }
        _ => done,
    }
}

/// A call that the disk has fail.
struct Failed {
    /// What SQLite's own file system makes of that.
    code: c_int,
    /// It did its work all the same.
    done: bool,
}

pub(crate) fn is_done(disk: &Disk) -> bool {
    matches!(disk.last_fault(), Some(Fault::DoneButFails(_)))
}

/// Notes a call on an open file, where the folder is one of those, and says whether the disk has it fail. Only of a write
/// SQLite's own file system says that there is no space.
fn recorded(
    file: *mut sqlite3_file,
    failed: c_int,
    call: impl FnOnce(&mut Recorded) -> io::Result<()>,
) -> Option<Failed> {
    let mut files = FILES.lock().unwrap();
    let recorded = files.get_or_insert_default().get_mut(&(file as usize))?;
    let error = call(recorded).err()?;
    let full = failed == ffi::SQLITE_IOERR_WRITE && error.kind() == io::ErrorKind::StorageFull;
    Some(Failed { code: if full { ffi::SQLITE_FULL } else { failed }, done: is_done(&recorded.disk) })
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    FILES.lock().unwrap().get_or_insert_default().remove(&(file as usize));
    // SAFETY: The file is open.
    unsafe { real(file).xClose.unwrap()(file) }
}

unsafe extern "C" fn read(file: *mut sqlite3_file, bytes: *mut c_void, count: c_int, offset: i64) -> c_int {
    if let Some(failed) =
        recorded(file, ffi::SQLITE_IOERR_READ, |recorded| recorded.file.read_at(&mut [], 0).map(drop))
    {
        return failed.code;
    }
    // SAFETY: The file is open; the arguments are handed on as they came.
    unsafe { real(file).xRead.unwrap()(file, bytes, count, offset) }
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, len: *mut i64) -> c_int {
    if let Some(failed) = recorded(file, ffi::SQLITE_IOERR_FSTAT, |recorded| recorded.file.stat().map(drop)) {
        return failed.code;
    }
    // SAFETY: The file is open; the arguments are handed on as they came.
    unsafe { real(file).xFileSize.unwrap()(file, len) }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite hands over `count` bytes.
    let taken = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), usize::try_from(count).unwrap()) };
    let failed = recorded(file, ffi::SQLITE_IOERR_WRITE, |recorded| {
        let count = recorded.file.write_at(taken, u64::try_from(offset).unwrap())?;
        assert_eq!(count, taken.len());
        Ok(())
    });
    // Of a write that fails a part is there.
    let part = if failed.as_ref().is_some_and(|failed| !failed.done) { count - count / 2 } else { count };
    // SAFETY: The file is open; the arguments are handed on as they came, or fewer bytes of them.
    let done = in_sqlite(|| unsafe { real(file).xWrite.unwrap()(file, bytes, part, offset) });
    failed.map_or(done, |failed| failed.code)
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, len: i64) -> c_int {
    let failed = recorded(file, ffi::SQLITE_IOERR_TRUNCATE, |recorded| {
        recorded.file.truncate(u64::try_from(len).unwrap())
    });
    if let Some(Failed { code, done: false }) = failed {
        return code;
    }
    // SAFETY: The file is open; the arguments are handed on as they came.
    let done = unsafe { real(file).xTruncate.unwrap()(file, len) };
    failed.map_or(done, |failed| failed.code)
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _: c_int) -> c_int {
    let failed = recorded(file, ffi::SQLITE_IOERR_FSYNC, |recorded| {
        recorded.file.sync()?;
        if std::mem::take(&mut recorded.sync_folder) {
            recorded.disk.sync_dir(Path::new("/"))?;
        }
        Ok(())
    });
    failed.map_or(ffi::SQLITE_OK, |failed| failed.code)
}
