//! Session that is open for writing: its files, its record, and the write itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::event::Event;
use agent_core::session::SessionRecord;
use agent_core::{Error, ErrorKind, Result, SessionId, WriteOutcome};

use crate::error::{corrupt, cut_off, failed, in_doubt, poisoned};
use crate::io::{FileId, IoFile, Kind, OpenMode, Stat, read_full, still_ours, write_full};
use crate::medium::cached::{Cached, LogPosition};
use crate::medium::env::{Env, parent};
use crate::medium::lease;
use crate::medium::lock::{Attempt, Locked};
use crate::medium::log;
use crate::medium::record::{Bad, Loaded, fold, load_open, write_snapshot};
use crate::medium::{layout, lock};
use crate::owner::Owner;
use crate::shared::list_index::Place;

/// Bytes of new log after which the snapshot is written again. Limits what opening a session has to fold.
const SNAPSHOT_EVERY: u64 = 32 << 10;
/// Bytes of log that may be left for the next opening to fold when a session is closed.
const SNAPSHOT_SLACK: u64 = 4 << 10;

/// State of one session, shared by the writers of this process.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    pub(crate) open: Option<OpenFiles>,
    /// True if a failure left in doubt what is durable.
    pub(crate) poisoned: bool,
}

impl WriterState {
    /// Runs `work` on the session's open files, under its lock between processes, if that is free.
    pub(crate) fn under_lock<T>(&mut self, work: impl FnOnce(&mut OpenFiles) -> T) -> Result<Attempt<T>> {
        let Some(open) = &mut self.open else { return Ok(Attempt::Busy) };
        if !lock::try_lock(&*open.lock, &open.folder)? {
            return Ok(Attempt::Busy);
        }
        let done = work(open);
        if open.lock.unlock().is_err() {
            // Closing the file releases the lock as well, and the write is complete.
            self.open = None;
        }
        Ok(Attempt::Done(done))
    }

    /// Fails if an earlier failure left in doubt what is durable. Call it before writing anything.
    pub(crate) fn check_poison(&self, id: SessionId) -> Result<()> {
        if self.poisoned { Err(poisoned(&format!("session {id}"))) } else { Ok(()) }
    }
}

/// Open files of a session.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    env: Arc<Env>,
    pub(crate) folder: PathBuf,
    /// Workspace and id of the session, as lists know it; `None` if the names of the folders are no ids.
    pub(crate) place: Option<Place>,
    owner: Owner,
    log: Box<dyn IoFile>,
    log_id: FileId,
    /// Folder, on which processes lock the session.
    lock: Box<dyn IoFile>,
    lock_id: FileId,
    state: Option<State>,
    lease: Option<lease::Mine>,
}

/// Known state of the log.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) record: Arc<SessionRecord>,
    /// Length of the log, at which the next commit is written.
    end: u64,
    /// Length of the log that this process knows to be durable.
    synced: u64,
    /// Length of the log that the snapshot covers.
    snapshot: u64,
    id: FileId,
    pub(crate) purged: bool,
}

impl State {
    /// Returns the end of the log, where the next commit begins.
    pub(crate) fn end(&self) -> LogPosition {
        LogPosition { log: self.id, after: self.record.head.get(), offset: self.end }
    }

    pub(crate) fn cached(&self) -> Cached {
        Cached {
            record: self.record.clone(),
            end: self.end,
            len: self.end,
            sure: self.end,
            id: self.id,
            purged: self.purged,
        }
    }
}

impl OpenFiles {
    /// Opens the files of an existing session.
    pub(crate) fn existing(env: &Arc<Env>, folder: PathBuf, owner: Owner) -> Result<Self> {
        let log_path = folder.join(layout::LOG);
        let lock = env.io.open_lock(&folder).map_err(|e| failed("open", &folder, e))?;
        let log = env.io.open(&log_path, OpenMode::Write).map_err(|e| open_failed(&log_path, e))?;
        let lock_id = lock.stat().map_err(|e| failed("look at", &folder, e))?.id;
        let log_id = log.stat_at_open().map_err(|e| failed("look at", &log_path, e))?.id;
        let place = layout::place_of(&folder);
        Ok(Self {
            env: env.clone(),
            folder,
            place,
            owner,
            log,
            log_id,
            lock,
            lock_id,
            state: None,
            lease: None,
        })
    }

    /// Takes over the files of a session that was just created.
    pub(crate) fn made(
        env: &Arc<Env>,
        (folder, owner): (PathBuf, Owner),
        (log, stat): (Box<dyn IoFile>, Stat),
        (lock, lock_id): (Box<dyn IoFile>, FileId),
        record: Arc<SessionRecord>,
        lease: Option<lease::Mine>,
    ) -> Self {
        let state =
            State { record, end: stat.len, synced: stat.len, snapshot: 0, id: stat.id, purged: false };
        let (env, log_id) = (env.clone(), stat.id);
        let mut lease = lease;
        if let Some(mine) = &mut lease {
            mine.is_live = true;
        }
        let place = layout::place_of(&folder);
        Self { env, folder, place, owner, log, log_id, lock, lock_id, state: Some(state), lease }
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join(layout::LOG)
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns the folder, on which the session is locked.
    pub(crate) fn locked(&self) -> Locked<'_> {
        Locked { path: &self.folder, id: self.lock_id }
    }

    /// Returns the metadata of the log, if the names still lead to the files that are open here. If they do not,
    /// no reader would find what is written to these files, and other processes lock and write the files that have the
    /// names now.
    fn named(&self) -> Result<Option<Stat>> {
        if !self.locked().still_ours(&self.env)? {
            return Ok(None);
        }
        let path = self.log_path();
        still_ours(&*self.env.io, self.log_id, &path).map_err(|e| failed("look at", &path, e))
    }

    /// Updates the record with the commits of other processes, under the lock. Returns `None` if the files are no
    /// longer the session's.
    pub(crate) fn refresh(&mut self) -> Result<Option<&State>> {
        let Some(stat) = self.named()? else { return Ok(None) };
        if self.state.as_ref().is_none_or(|state| state.end != stat.len) {
            self.honour_suspicion()?;
            self.catch_up(stat)?;
        }
        let live = self.state.as_ref().and_then(|state| state.record.lease.as_ref()).map(|lease| lease.epoch);
        if let Some(mine) = &mut self.lease {
            mine.is_live &= Some(mine.epoch) == live;
        }
        Ok(self.state.as_ref())
    }

    fn catch_up(&mut self, stat: Stat) -> Result<()> {
        let known = self.state.take().filter(|state| !state.purged);
        let read = self.read_on(known.as_ref(), stat);
        let (state, done) = match read {
            Ok(state) => (Some(state), Ok(())),
            // No snapshot is written of a damaged log.
            Err(error) => (known.map(|state| State { snapshot: u64::MAX, ..state }), Err(error)),
        };
        self.state = state;
        done
    }

    fn read_on(&self, known: Option<&State>, stat: Stat) -> Result<State> {
        let log_path = self.log_path();
        let appended = match known.filter(|state| state.end < stat.len) {
            Some(state) => {
                let record = Some(state.record.clone());
                let folded = fold(&*self.log, &log_path, self.owner, record, state.end, stat.len)?;
                // The damage may begin before that; folding the whole log finds it.
                folded.record.filter(|_| folded.bad.is_none()).map(|record| {
                    let (end, snapshot) =
                        (folded.end, if state.snapshot > state.end { 0 } else { state.snapshot });
                    Loaded { record, end, stat, snapshot, bad: None, purged: false }
                })
            }
            None => None,
        };
        let loaded = match appended {
            Some(loaded) => loaded,
            None => load_open(&self.env, &self.folder, self.owner, &*self.log)?,
        };
        // A log that was restored to an earlier state, complete, is the current state of the session.
        if let Some(known) = known.filter(|known| loaded.end < known.end && loaded.bad.is_some()) {
            return Err(cut_off(&log_path, known.end, loaded.end));
        }
        if loaded.record.recent.len() == 1 {
            // The process that created the session may have ended before its name was durable. Every writer that
            // finds only the first commit makes it durable, so it is durable if there are more.
            let sessions = parent(&self.folder);
            self.env.ensure_dir(sessions)?;
            self.env.sync_dir(sessions).map_err(|e| failed("make durable", sessions, e))?;
        }
        match loaded.bad {
            Some(bad) if bad.middle => return Err(bad.error(&log_path)),
            Some(bad) => self.set_aside(bad, loaded.stat.len)?,
            None => {}
        }
        Ok(State {
            record: loaded.record,
            end: loaded.end,
            synced: known.map_or(0, |known| known.synced),
            snapshot: loaded.snapshot,
            id: stat.id,
            purged: loaded.purged,
        })
    }

    /// Folds the whole log again and writes its snapshot, under the lock. Returns `None` if the files are no longer
    /// the session's. If the log is damaged, the known state of the session stays.
    pub(crate) fn renew(&mut self) -> Result<Option<&State>> {
        if self.refresh()?.is_none() {
            return Ok(None);
        }
        let path = self.log_path();
        let Some(state) = self.state.as_mut().filter(|state| !state.purged) else { return Ok(self.state()) };
        let folded = fold(&*self.log, &path, self.owner, None, 0, state.end)?;
        if let Some(bad) = folded.bad {
            return Err(bad.error(&path));
        }
        let record = folded.record.ok_or_else(|| corrupt(&path, "holds no event"))?;
        write_snapshot(&self.env, &self.folder, self.owner, &record, state.end)?;
        state.record = record;
        state.snapshot = state.end;
        Ok(self.state())
    }

    /// Moves the bytes of an incomplete commit out of the log.
    fn set_aside(&self, bad: Bad, len: u64) -> Result<()> {
        let log_path = self.log_path();
        let kept = self.keep_tail(bad.offset, len)?;
        self.log.truncate(bad.offset).map_err(|e| failed("cut the torn end off", &log_path, e))?;
        self.env.sync_file(&*self.log).map_err(|e| failed("cut the torn end off", &log_path, e))?;
        tracing::warn!(
            session = %self.owner.id,
            event = bad.event,
            bytes = len - bad.offset,
            kept = %kept.display(),
            "the last commit of a session was not complete; its bytes were moved to another file"
        );
        Ok(())
    }

    fn keep_tail(&self, from: u64, len: u64) -> Result<PathBuf> {
        let failed_at = |path: &Path, e| failed("keep a torn end as", path, e);
        let mut copy = 0;
        let (path, file) = loop {
            let suffix = if copy == 0 { String::new() } else { format!("-{copy}") };
            let path = self.folder.join(format!("{}{from}{suffix}", layout::TAIL_PREFIX));
            match self.env.io.open(&path, OpenMode::CreateNew) {
                Ok(file) => break (path, file),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => copy += 1,
                Err(error) => return Err(failed_at(&path, error)),
            }
        };
        let mut buffer = vec![0; 64 << 10];
        let mut at = from;
        while at < len {
            let count =
                read_full(&*self.log, &mut buffer, at).map_err(|e| failed("read", &self.log_path(), e))?;
            if count == 0 {
                break;
            }
            write_full(&*file, &buffer[..count], at - from).map_err(|e| failed_at(&path, e))?;
            at += count as u64;
        }
        self.env.sync_file(&*file).map_err(|e| failed_at(&path, e))?;
        self.env.sync_name(&path)?;
        Ok(path)
    }

    /// Checks for the marker of a failed write. If it exists, reads the log again and syncs it by a new file
    /// descriptor before trusting it.
    fn honour_suspicion(&mut self) -> Result<()> {
        let marker = self.folder.join(layout::SUSPECT);
        // Any object of that name is the marker.
        let Some(kind) = self.env.kind(&marker)? else { return Ok(()) };
        self.state = None;
        let path = self.log_path();
        let log = self.env.io.open(&path, OpenMode::Write).map_err(|e| open_failed(&path, e))?;
        let id = log.stat().map_err(|e| failed("look at", &path, e))?.id;
        if id != self.log_id {
            return Err(failed("make durable", &path, std::io::ErrorKind::NotFound.into()));
        }
        rewrite(&*log).map_err(|e| failed("write again", &path, e))?;
        self.env.sync_file(&*log).map_err(|e| failed("make durable", &path, e))?;
        self.log = log;
        if kind == Kind::Folder {
            // The log was checked; the next process that opens it checks it again.
            tracing::warn!(path = %marker.display(), "a folder is in the place of the mark on a doubtful log; move it away");
            return Ok(());
        }
        self.env.remove(&marker)
    }

    /// Syncs what other processes wrote, under the lock, before an answer relies on it.
    pub(crate) fn sync_pending(&mut self) -> Result<(), Doubt> {
        let path = self.log_path();
        let Some(state) = &mut self.state else { return Ok(()) };
        if state.synced < state.end {
            if let Err(source) = self.env.sync_file(&*self.log) {
                self.suspect();
                return Err(Doubt(in_doubt("make durable", &path, source), true));
            }
            state.synced = state.end;
        }
        Ok(())
    }

    /// Makes the log durable as it is, under the lock.
    pub(crate) fn sync_log(&self) -> Result<()> {
        self.env.sync_file(&*self.log).map_err(|e| failed("make durable", &self.log_path(), e))
    }

    /// Writes a commit at the end of the log, with one write and one sync, under the lock. Returns `false` if the log
    /// lost its name meanwhile; then nothing was written.
    pub(crate) fn append(&mut self, events: &[Event], after: &Arc<SessionRecord>) -> Result<bool, Doubt> {
        let path = self.log_path();
        let Some(state) = &self.state else {
            let what = format!("{} was not read before a write; open the store again", path.display());
            return Err(Doubt(Error::new(ErrorKind::Poisoned, what), false));
        };
        let lines = log::lines(self.owner, events).map_err(|e| Doubt(e, false))?;
        let (before, old) = (state.end, state.record.lease.as_ref().map(|lease| lease.epoch));
        let new = after.lease.as_ref().map(|lease| lease.epoch);
        if let Some(epoch) = new.filter(|_| new != old) {
            lease::take(&self.env, &self.folder, epoch, &mut self.lease).map_err(|e| Doubt(e, false))?;
        }
        let written = write_full(&*self.log, &lines, before).and_then(|()| self.env.sync_file(&*self.log));
        if let Err(source) = written {
            return Err(self.undo(before, failed("write", &path, source)));
        }
        // Checked once more, since a backup may have replaced the log between the first check and the write.
        match still_ours(&*self.env.io, self.log_id, &path) {
            Ok(Some(_)) => {}
            Ok(None) => return self.take_back(before).map(|()| false),
            Err(source) => return Err(self.undo(before, failed("look at", &path, source))),
        }
        tracing::Span::current().record("bytes", lines.len());
        let end = before + lines.len() as u64;
        if let Some(state) = &mut self.state {
            state.record = after.clone();
            (state.end, state.synced) = (end, end);
        }
        if let Some(mine) = &mut self.lease {
            mine.is_live = Some(mine.epoch) == new;
        }
        Ok(true)
    }

    /// Truncates a write to a log whose name another file has taken, under the lock.
    fn take_back(&mut self, before: u64) -> Result<(), Doubt> {
        self.log.truncate(before).and_then(|()| self.env.sync_file(&*self.log)).map_err(|source| {
            self.suspect();
            Doubt(in_doubt("take a write back from", &self.log_path(), source), true)
        })
    }

    /// Undoes a failed write, under the lock. The descriptor that failed is not used again, because the system reports
    /// a failed sync only once, and discards what it could not write.
    fn undo(&mut self, before: u64, error: Error) -> Doubt {
        let path = self.log_path();
        let undone = self.env.io.open(&path, OpenMode::Write).and_then(|log| {
            if log.stat()?.id != self.log_id {
                // Another file has its name, and is not touched; the next writer opens that file.
                return self.log.truncate(before).map(|()| None);
            }
            log.truncate(before)?;
            self.env.sync_file(&*log)?;
            Ok(Some(log))
        });
        match undone {
            Ok(log) => {
                if let Some(log) = log {
                    self.log = log;
                }
                Doubt(error, false)
            }
            Err(second) => {
                tracing::warn!(session = %self.owner.id, error = %second, "a failed write could not be undone");
                self.suspect();
                Doubt(error.with_outcome(WriteOutcome::Unknown), true)
            }
        }
    }

    /// Creates the marker, which makes every process that opens the session verify its log.
    fn suspect(&self) {
        let path = self.folder.join(layout::SUSPECT);
        if let Err(error) = self.env.io.open(&path, OpenMode::Create) {
            tracing::warn!(path = %path.display(), %error, "the mark on a doubtful log could not be created");
        }
    }

    /// Writes the snapshot if it has fallen behind.
    pub(crate) fn refresh_snapshot(&mut self) {
        self.snapshot_after(SNAPSHOT_EVERY);
    }

    fn snapshot_after(&mut self, slack: u64) {
        let Some(state) = &mut self.state else { return };
        if state.purged || state.end < state.snapshot.saturating_add(slack) {
            return;
        }
        match write_snapshot(&self.env, &self.folder, self.owner, &state.record, state.end) {
            Ok(()) => state.snapshot = state.end,
            Err(error) => {
                // Not tried again at once; until then, opening folds a longer part of the log.
                state.snapshot = state.end;
                tracing::debug!(session = %self.owner.id, %error, "a snapshot could not be written");
            }
        }
    }

    pub(crate) fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Returns whether this process must keep the session open although it is not in use.
    pub(crate) fn holds_lease(&self) -> bool {
        self.lease.as_ref().is_some_and(|mine| mine.is_live)
    }

    /// Discards the known state, because the log has been replaced by another file. Nothing derived from the old log
    /// is written any more.
    pub(crate) fn leave(&mut self) {
        self.state = None;
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        if self.state.is_some() && self.named().is_ok_and(|log| log.is_some()) {
            self.snapshot_after(SNAPSHOT_SLACK);
        }
    }
}

/// Failure, and whether it leaves in doubt what is durable.
#[derive(Debug)]
pub(crate) struct Doubt(pub(crate) Error, pub(crate) bool);

fn open_failed(path: &Path, source: std::io::Error) -> Error {
    if source.kind() == std::io::ErrorKind::NotFound {
        return crate::error::corrupt(path, "is missing").with_source(source);
    }
    failed("open", path, source)
}

/// Writes the bytes of a file once more, in their places. After a sync that failed the system may take what it has not
/// written for written, and a later sync would leave it out.
fn rewrite(file: &dyn IoFile) -> std::io::Result<()> {
    let (len, mut at, mut buffer) = (file.stat()?.len, 0, vec![0; 64 << 10]);
    while at < len {
        let count = read_full(file, &mut buffer, at)?;
        if count == 0 {
            break;
        }
        write_full(file, &buffer[..count], at)?;
        at += count as u64;
    }
    Ok(())
}
