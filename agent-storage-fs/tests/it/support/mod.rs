//! Common code of the tests: a file system that counts and fails, and the start of a session.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test program uses a part")]

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::store::{BLOB_CHUNK_BYTES, PutBlob, ReadBlob, ReadEvents};
use agent_core::{BlobName, Result, Seq, SessionId, SessionStore, SessionStoreExt, WorkspaceId};
use agent_storage_fs::io::{Io, IoFile, Kind, OpenMode, RealIo, Stat};
use agent_storage_fs::{FsConfig, FsStore, Sync};

pub const EPERM: i32 = 1;
pub const EIO: i32 = 5;
pub const EACCES: i32 = 13;
pub const EMFILE: i32 = 24;
pub const ENOSPC: i32 = 28;
pub const EROFS: i32 = 30;

/// One call through the seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: &'static str,
    pub path: PathBuf,
    pub bytes: usize,
    pub thread: ThreadId,
}

impl Call {
    pub fn file(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Whether it changes anything.
    pub fn writes(&self) -> bool {
        !matches!(self.name, "open" | "stat" | "list" | "fstat" | "read" | "lock" | "unlock")
    }
}

type Rule = Arc<dyn Fn(usize, &Call) -> Option<i32> + Send + std::marker::Sync>;

/// The real file system, watched: every call is noted, and fails where a rule says so. The disk is not waited for:
/// nobody here cuts the power.
#[derive(Clone)]
pub struct Spy {
    state: Arc<Mutex<State>>,
}

struct State {
    calls: Vec<Call>,
    rule: Option<Rule>,
    /// How many calls there were since the rule was set.
    count: usize,
    failed: usize,
}

impl fmt::Debug for Spy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spy")
    }
}

impl Spy {
    pub fn new() -> Self {
        let state = State { calls: Vec::new(), rule: None, count: 0, failed: 0 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Takes the calls since the last time.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    /// Waits until there is a call, for at most a minute.
    pub async fn checked(&self) {
        for _ in 0..12_000 {
            if !self.state.lock().unwrap().calls.is_empty() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("there was no call");
    }

    /// Fails the calls for which the rule gives an error number; the first has the number 0.
    pub fn fail(&self, rule: impl Fn(usize, &Call) -> Option<i32> + Send + std::marker::Sync + 'static) {
        let mut state = self.state.lock().unwrap();
        state.rule = Some(Arc::new(rule));
        (state.count, state.failed) = (0, 0);
    }

    /// Fails nothing any more; says how many calls failed.
    pub fn heal(&self) -> usize {
        let mut state = self.state.lock().unwrap();
        state.rule = None;
        state.failed
    }

    fn step(&self, name: &'static str, path: &Path, bytes: usize) -> io::Result<()> {
        let call = Call { name, path: path.to_owned(), bytes, thread: thread::current().id() };
        let mut state = self.state.lock().unwrap();
        let index = state.count;
        state.count += 1;
        state.calls.push(call.clone());
        let rule = state.rule.clone();
        // A rule may wait for what another thread does.
        drop(state);
        match rule.and_then(|rule| rule(index, &call)) {
            Some(errno) => {
                self.state.lock().unwrap().failed += 1;
                Err(io::Error::from_raw_os_error(errno))
            }
            None => Ok(()),
        }
    }
}

impl Io for Spy {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn IoFile>> {
        let name = if matches!(mode, OpenMode::Read | OpenMode::Write) { "open" } else { "create" };
        self.step(name, path, 0)?;
        Ok(Box::new(SpyFile { spy: self.clone(), path: path.to_owned(), file: RealIo.open(path, mode)? }))
    }

    fn open_lock(&self, folder: &Path) -> io::Result<Box<dyn IoFile>> {
        self.step("open", folder, 0)?;
        Ok(Box::new(SpyFile { spy: self.clone(), path: folder.to_owned(), file: RealIo.open_lock(folder)? }))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.step("stat", path, 0)?;
        RealIo.stat(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        self.step("list", path, 0)?;
        RealIo.list(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.step("create_dir", path, 0)?;
        RealIo.create_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename", to, 0)?;
        RealIo.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("hard_link", to, 0)?;
        RealIo.hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step("remove_file", path, 0)?;
        RealIo.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.step("remove_dir", path, 0)?;
        RealIo.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step("sync_dir", path, 0)
    }
}

#[derive(Debug)]
struct SpyFile {
    spy: Spy,
    path: PathBuf,
    file: Box<dyn IoFile>,
}

impl IoFile for SpyFile {
    fn stat(&self) -> io::Result<Stat> {
        self.spy.step("fstat", &self.path, 0)?;
        self.file.stat()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.spy.step("read", &self.path, 0)?;
        let count = self.file.read_at(buffer, offset)?;
        if let Some(call) = self.spy.state.lock().unwrap().calls.last_mut() {
            call.bytes = count;
        }
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if let Err(error) = self.spy.step("write", &self.path, bytes.len()) {
            // A disk that is full takes a part.
            self.file.write_at(&bytes[..bytes.len() / 2], offset)?;
            return Err(error);
        }
        self.file.write_at(bytes, offset)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.spy.step("append", &self.path, bytes.len()) {
            self.file.append(&bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.file.append(bytes)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.spy.step("truncate", &self.path, 0)?;
        self.file.truncate(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.spy.step("sync", &self.path, 0)
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.spy.step("lock", &self.path, 0)?;
        self.file.try_lock()
    }

    fn unlock(&self) -> io::Result<()> {
        self.spy.step("unlock", &self.path, 0)?;
        self.file.unlock()
    }
}

/// A store whose files are watched.
pub async fn watched(root: &Path) -> (FsStore, Spy) {
    let spy = Spy::new();
    let store = FsConfig::new(root).with_io(Arc::new(spy.clone())).open().await.unwrap();
    (store, spy)
}

/// A store that does not wait for the disk, for tests that write much.
pub async fn hasty(root: &Path) -> FsStore {
    FsConfig::new(root).with_sync(Sync::Off).open().await.unwrap()
}

/// A new session of the default workspace.
pub async fn session(store: &FsStore, effects: &Effects) -> Arc<SessionRecord> {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    store.sessions(effects).create(new).await.unwrap()
}

/// Appends one message, and returns the head after it.
pub async fn append_text(store: &FsStore, effects: &Effects, id: SessionId, seen: Seq, text: &str) -> Seq {
    store.sessions(effects).append(id, seen, vec![NewEvent::user_message(text)]).await.unwrap().last
}

/// Appends messages until the head is `until`, many at a time.
pub async fn fill(store: &FsStore, effects: &Effects, id: SessionId, until: u64) {
    let mut seen = SessionStore::load(store, id).await.unwrap().head;
    while seen.get() < until {
        let count = (until - seen.get()).min(1000);
        let events = (0..count).map(|n| NewEvent::user_message(format!("message {n:06}"))).collect();
        seen = store.sessions(effects).append(id, seen, events).await.unwrap().last;
    }
}

/// The texts of all messages of a session, in order.
pub async fn texts(store: &FsStore, id: SessionId) -> Vec<String> {
    let mut texts = Vec::new();
    let mut read = Some(ReadEvents::first(1000));
    while let Some(next) = read {
        let page = store.read(id, next).await.unwrap();
        assert_eq!(page.damaged, []);
        for event in page.events {
            if let agent_core::event::EventPayload::UserMessage(message) = event.decode().unwrap() {
                texts.push(message.text.clone());
            }
        }
        read = page.next;
    }
    texts
}

/// The folder of a session of the default workspace.
pub fn folder_of(root: &Path, id: SessionId) -> PathBuf {
    root.join("workspaces").join("default").join("sessions").join(id.to_string())
}

/// A blob of two chunks, so that it has a file with checksums.
pub const LARGE: usize = BLOB_CHUNK_BYTES + 1000;

/// Bytes that differ by `seed`, and from chunk to chunk.
pub fn content(seed: u64, size: usize) -> Vec<u8> {
    let byte = |n: u64| ((n + (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..size as u64).map(byte).collect()
}

pub async fn put(store: &FsStore, id: SessionId, bytes: &[u8]) -> Result<BlobName> {
    store.blobs().put(PutBlob::of_bytes(id, bytes.to_vec())).await?;
    Ok(BlobName::of(bytes))
}

/// An event that names blobs.
pub fn naming(blobs: &[BlobName]) -> NewEvent {
    let event = NewEvent::new("x.app.drawn".parse().unwrap(), RawJson::empty_object());
    blobs.iter().fold(event, |event, name| event.with_blob(*name))
}

/// The bytes of a whole blob, which are those of its name.
pub async fn read_whole(store: &FsStore, id: SessionId, name: BlobName) -> Result<Vec<u8>> {
    let bytes = store.blobs().read(ReadBlob::new(id, name)).await?.into_bytes(usize::MAX).await?.to_vec();
    assert_eq!(BlobName::of(&bytes), name, "other bytes than those of the name");
    Ok(bytes)
}

/// The names in a folder; none if it is not there.
pub fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A line of a session of the tenant `default`.
pub fn framed(session: SessionId, json: &str) -> String {
    framed_for(&format!("default/{session}/6"), json)
}

/// A line whose checksum begins with that of `owner`.
pub fn framed_for(owner: &str, json: &str) -> String {
    let body = json.strip_suffix('}').unwrap();
    let crc = crc32c::crc32c(format!("{owner}{body}").as_bytes());
    format!("{body},\"crc\":\"{crc:08x}\"}}\n")
}

/// All files below a folder with their bytes, but the locks.
pub fn files(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut out = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                out.push((path.strip_prefix(root).unwrap().to_owned(), std::fs::read(&path).unwrap()));
            }
        }
    }
    out.sort();
    out
}
