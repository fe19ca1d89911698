//! Common code of the tests: a folder with a store, sessions in it, another connection to the file, another process.

#![allow(dead_code, reason = "each test program uses its own part of it")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::{Media, Message, NewEvent, Part};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::store::{BlobInfo, PutBlob, ReadBlob};
use agent_core::{BlobName, Result, SessionId, SessionStore, SessionStoreExt, Timestamp, WorkspaceId};
use agent_storage_sqlite::{SqliteConfig, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

pub(crate) struct Site {
    pub(crate) folder: TempDir,
    pub(crate) effects: Effects,
}

impl Site {
    pub(crate) fn new() -> Self {
        let start = Timestamp::from_micros(1_771_151_400_000_000);
        Self { folder: tempfile::tempdir().unwrap(), effects: Effects::seeded(7, start) }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("agent.db")
    }

    pub(crate) fn config(&self) -> SqliteConfig {
        SqliteConfig::new(self.path())
    }

    pub(crate) async fn open(&self) -> SqliteStore {
        SqliteStore::open(self.path()).await.unwrap()
    }

    /// A connection of another program.
    pub(crate) fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// SQLite finds nothing wrong with the file.
    pub(crate) fn assert_is_whole(&self) {
        let verdict: String = self.raw().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
    }

    pub(crate) async fn session(&self, store: &SqliteStore) -> Arc<SessionRecord> {
        let new = NewSession::new(self.effects.new_session_id(), WorkspaceId::DEFAULT);
        store.sessions(&self.effects).create(new).await.unwrap()
    }

    pub(crate) fn text_commit(&self, session: &SessionRecord, text: impl Into<String>) -> Commit {
        Commit::seal(&self.effects, session.id, session.head).with_event(NewEvent::user_message(text.into()))
    }

    pub(crate) async fn append_text(
        &self,
        store: &SqliteStore,
        session: &SessionRecord,
        text: impl Into<String>,
    ) -> Arc<SessionRecord> {
        store.commit(self.text_commit(session, text)).await.unwrap().session
    }

    /// Puts a blob and names it in an event.
    pub(crate) async fn show(
        &self,
        store: &SqliteStore,
        session: &SessionRecord,
        bytes: Vec<u8>,
    ) -> (Arc<SessionRecord>, BlobInfo) {
        let blob = put(store, session.id, bytes).await;
        let commit = Commit::seal(&self.effects, session.id, session.head).with_event(showing(blob));
        (store.commit(commit).await.unwrap().session, blob)
    }

    /// The number that a query of another program finds.
    pub(crate) fn count(&self, sql: &str) -> i64 {
        self.raw().query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

/// Bytes that differ by `seed`, and from chunk to chunk.
pub(crate) fn content(seed: u64, size: usize) -> Vec<u8> {
    let byte = |n: u64| ((n + (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    (0..size as u64).map(byte).collect()
}

pub(crate) async fn put(store: &SqliteStore, id: SessionId, bytes: Vec<u8>) -> BlobInfo {
    let blob = BlobInfo::of(&bytes);
    store.blobs().put(PutBlob::of_bytes(id, bytes)).await.unwrap();
    blob
}

/// A message that shows a blob.
pub(crate) fn showing(blob: BlobInfo) -> NewEvent {
    let image = Media::blob("image/png", blob.name, blob.bytes);
    NewEvent::from(Message::new("Look").with_part(Part::Image(image)))
}

/// Reads a whole blob, which checks its name.
pub(crate) async fn read_blob(store: &SqliteStore, id: SessionId, name: BlobName) -> Result<Vec<u8>> {
    let read = store.blobs().read(ReadBlob::new(id, name)).await?;
    Ok(read.into_bytes(usize::MAX).await?.to_vec())
}

/// Another process that runs one test of this program, told what to do by the environment. Killed when dropped.
pub(crate) struct Worker {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

/// What a worker prints before each answer, so that the harness's own lines are told apart.
pub(crate) const MARK: &str = "worker> ";

impl Worker {
    pub(crate) fn start(test: &str, orders: &[(&str, String)]) -> Self {
        Self::run(Command::new(std::env::current_exe().unwrap()), test, orders)
    }

    /// The same, where the system refuses files of more than about a megabyte: writes beyond fail.
    #[cfg(unix)]
    pub(crate) fn start_with_small_files(test: &str, orders: &[(&str, String)]) -> Self {
        Self::start_with_file_limit(2000, test, orders)
    }

    /// The same, where the system refuses files of more than so many blocks of 512 bytes.
    #[cfg(unix)]
    pub(crate) fn start_with_file_limit(blocks: u32, test: &str, orders: &[(&str, String)]) -> Self {
        let mut shell = Command::new("sh");
        // The signal that comes with such a failure would kill the process.
        let limited = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        shell.args(["-c", &limited]).arg(std::env::current_exe().unwrap());
        Self::run(shell, test, orders)
    }

    /// The same, with a small file system in memory at `place`, which only this process and its own see. `None` if the
    /// system does not let this user mount one.
    #[cfg(unix)]
    pub(crate) fn start_on_a_small_disk(
        place: &Path,
        mib: u32,
        test: &str,
        orders: &[(&str, String)],
    ) -> Option<Self> {
        let mount = format!("mount -t tmpfs -o size={mib}m none \"$1\"");
        let of = |flags: &str, then: &str| {
            let mut command = Command::new("unshare");
            command.args([flags, "sh", "-c", &format!("{mount} && {then}"), "sh"]).arg(place);
            command
        };
        // As root, and as a user who may be one in a namespace of his own.
        let can = |flags: &&str| {
            let tried = of(flags, "true").stdout(Stdio::null()).stderr(Stdio::null()).status();
            tried.is_ok_and(|status| status.success())
        };
        let flags = ["-m", "-rm"].into_iter().find(can)?;
        let mut command = of(flags, "shift && exec \"$@\"");
        command.arg(std::env::current_exe().unwrap());
        Some(Self::run(command, test, orders))
    }

    /// The same as another user, for which this one must be root. The program is copied to where that user may read.
    #[cfg(unix)]
    pub(crate) fn start_as(user: u32, place: &Path, test: &str, orders: &[(&str, String)]) -> Self {
        let program = place.join("worker");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new(program);
        std::os::unix::process::CommandExt::gid(&mut command, user);
        std::os::unix::process::CommandExt::uid(&mut command, user);
        command.current_dir(place);
        Self::run(command, test, orders)
    }

    fn run(mut program: Command, test: &str, orders: &[(&str, String)]) -> Self {
        let mut child = program
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .envs(orders.iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Its next answer; `None` where it has ended.
    pub(crate) fn answer(&mut self) -> Option<String> {
        self.lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split_once(MARK).map(|(_, answer)| answer.to_owned()))
    }

    /// `kill -9`; what it had still answered is read on.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        std::iter::from_fn(|| self.answer()).collect()
    }

    pub(crate) fn succeeded(mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
