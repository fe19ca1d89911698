//! A model of a disk behind the seam: what was written, and what of it the loss of power may take.
//!
//! Everything that changes the disk is noted in order. A write, a truncation, a name counts as safe once its file (or, for
//! a name, its folder) was synced after it. What is not safe may be on the disk when the power goes, or not, each part
//! by itself: a write in pieces of 512 bytes, in any order. After a sync of a file that failed nothing that it was to
//! make safe ever becomes so: the system reports the error once, and takes the pages for clean. Names are the file
//! system's own journal's, which forgets nothing: a later sync of the folder makes them safe.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_storage_fs::io::{FileId, Io, IoFile, Kind, OpenMode, Stat};

use super::fault::{Call, Fault, Fired};

const SECTOR: u64 = 512;
const ROOT: u64 = 1;

type Rule = Box<dyn FnMut(usize, &Call) -> Option<Fault> + Send>;

/// Files and folders, by number.
#[derive(Clone, Debug, Default)]
struct Tree(BTreeMap<u64, Node>);

#[derive(Clone, Debug)]
enum Node {
    File(Vec<u8>),
    Folder(BTreeMap<OsString, u64>),
}

/// A change of the disk.
#[derive(Clone, Debug)]
enum Change {
    Make {
        node: u64,
        folder: bool,
    },
    Write {
        file: u64,
        offset: u64,
        bytes: Vec<u8>,
    },
    Truncate {
        file: u64,
        len: u64,
    },
    /// A name is given to `to`, or taken away.
    Name {
        folder: u64,
        name: OsString,
        to: Option<u64>,
    },
    Rename {
        folder: u64,
        from: OsString,
        to: OsString,
        node: u64,
    },
}

impl Change {
    /// The file or folder whose sync makes it safe; making a node is nothing that could be seen without its name.
    fn owner(&self) -> Option<u64> {
        match self {
            Self::Make { .. } => None,
            Self::Write { file, .. } | Self::Truncate { file, .. } => Some(*file),
            Self::Name { folder, .. } | Self::Rename { folder, .. } => Some(*folder),
        }
    }

    /// How many parts of it can be on the disk or not.
    fn parts(&self) -> u64 {
        match self {
            Self::Write { offset, bytes, .. } => {
                (offset + bytes.len() as u64).div_ceil(SECTOR) - offset / SECTOR
            }
            _ => 1,
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Change(Change),
    Synced {
        node: u64,
        worked: bool,
    },
    /// The script has come so far.
    Mark(usize),
}

struct State {
    base: Tree,
    tree: Tree,
    events: Vec<Event>,
    next: u64,
    locks: BTreeMap<u64, u64>,
    handles: u64,
    /// Which node was written last when, in ticks.
    written: BTreeMap<u64, i128>,
    tick: i128,
    calls: usize,
    fired: Vec<Fired>,
    rule: Option<Rule>,
}

/// A disk. Clones share it.
#[derive(Clone)]
pub(crate) struct Disk(Arc<Mutex<State>>);

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

/// A moment at which the power may go: after so many events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) events: usize,
    /// How far the script had come.
    pub(crate) mark: usize,
}

/// What happened on a disk, to cut it anywhere afterwards.
#[derive(Debug)]
pub(crate) struct Trace {
    base: Tree,
    events: Vec<Event>,
}

/// A part of a change that is not safe: which event, and which piece of it.
type Part = (usize, u64);

impl Disk {
    pub(crate) fn new() -> Self {
        Self::of(Tree(BTreeMap::from([(ROOT, Node::Folder(BTreeMap::new()))])))
    }

    fn of(base: Tree) -> Self {
        let next = base.0.keys().last().map_or(ROOT, |last| last + 1);
        let state = State {
            tree: base.clone(),
            base,
            events: Vec::new(),
            next,
            locks: BTreeMap::new(),
            handles: 0,
            written: BTreeMap::new(),
            tick: 0,
            calls: 0,
            fired: Vec::new(),
            rule: None,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Notes how far the script has come.
    pub(crate) fn mark(&self, step: usize) {
        self.state().events.push(Event::Mark(step));
    }

    /// What happened so far.
    pub(crate) fn trace(&self) -> Trace {
        let state = self.state();
        Trace { base: state.base.clone(), events: state.events.clone() }
    }

    /// Lets calls fail; the first has the number 0.
    pub(crate) fn fail(&self, rule: impl FnMut(usize, &Call) -> Option<Fault> + Send + 'static) {
        let mut state = self.state();
        state.rule = Some(Box::new(rule));
        state.calls = 0;
        state.fired.clear();
    }

    /// Lets no call fail any more; says which did.
    pub(crate) fn heal(&self) -> Vec<Fired> {
        let mut state = self.state();
        state.rule = None;
        std::mem::take(&mut state.fired)
    }

    /// What became of the last call that failed.
    #[allow(dead_code, reason = "asked by those who do the same to a real file")]
    pub(crate) fn last_fault(&self) -> Option<Fault> {
        self.state().fired.last().map(|fired| fired.fault)
    }

    /// A file that is there, without a call to open it.
    #[allow(
        dead_code,
        reason = "asked by those who see calls on a file that is open, and not how it was opened"
    )]
    pub(crate) fn opened(&self, path: &Path) -> Option<Box<dyn IoFile>> {
        let state = self.state();
        let node = state.tree.find(path).ok()?;
        Some(self.handle(state, path, node))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the state for a call, and what is to become of the call.
    fn call(&self, name: &'static str, path: &Path) -> (MutexGuard<'_, State>, Option<Fault>) {
        let mut state = self.state();
        let number = state.calls;
        state.calls += 1;
        let call = Call { name };
        let fault = state.rule.as_mut().and_then(|rule| rule(number, &call));
        let io = matches!(name, "read" | "write" | "append");
        let fault = fault.filter(|fault| io || !matches!(fault, Fault::Short | Fault::Interrupted));
        if let Some(fault) = fault {
            state.fired.push(Fired { number, name, path: path.to_owned(), fault });
        }
        (state, fault)
    }

    /// A call that changes names: does its work, unless it fails.
    fn name(
        &self,
        name: &'static str,
        path: &Path,
        work: impl FnOnce(&mut State) -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut state, fault) = self.call(name, path);
        match fault {
            Some(Fault::Fails(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(Fault::DoneButFails(errno)) => {
                work(&mut state)?;
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => work(&mut state),
        }
    }
}

impl Trace {
    /// The moments after each change and each mark.
    pub(crate) fn moments(&self) -> Vec<Moment> {
        let mut mark = 0;
        let mut moments = vec![Moment { events: 0, mark }];
        for (index, event) in self.events.iter().enumerate() {
            if let Event::Mark(step) = event {
                mark = *step;
            }
            moments.push(Moment { events: index + 1, mark });
        }
        moments
    }

    /// What is not safe at a moment, in order.
    pub(crate) fn unsafe_parts(&self, moment: Moment) -> Vec<Part> {
        let safe = self.safe(moment);
        let mut parts = Vec::new();
        for (index, event) in self.events[..moment.events].iter().enumerate() {
            if let Event::Change(change) = event
                && !safe.contains(&index)
            {
                parts.extend((0..change.parts()).map(|part| (index, part)));
            }
        }
        parts
    }

    fn safe(&self, moment: Moment) -> BTreeSet<usize> {
        let mut safe = BTreeSet::new();
        let mut waiting: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, event) in self.events[..moment.events].iter().enumerate() {
            match event {
                Event::Change(change) => match change.owner() {
                    Some(owner) => waiting.entry(owner).or_default().push(index),
                    None => drop(safe.insert(index)),
                },
                Event::Synced { node, worked } => {
                    let changes = waiting.remove(node).unwrap_or_default();
                    if *worked {
                        safe.extend(changes);
                    }
                }
                Event::Mark(_) => {}
            }
        }
        safe
    }

    /// The disk as it is found after the power went at a moment, of all that was not safe only `kept` being there.
    pub(crate) fn image(&self, moment: Moment, kept: &BTreeSet<Part>) -> Disk {
        let safe = self.safe(moment);
        let mut tree = self.base.clone();
        for (index, event) in self.events[..moment.events].iter().enumerate() {
            let Event::Change(change) = event else { continue };
            tree.apply(change, |part| safe.contains(&index) || kept.contains(&(index, part)));
        }
        Disk::of(tree)
    }

    /// The disk as the processes saw it at a moment: what is left when they are killed and the power stays.
    pub(crate) fn killed(&self, moment: Moment) -> Disk {
        let mut tree = self.base.clone();
        for event in &self.events[..moment.events] {
            if let Event::Change(change) = event {
                tree.apply(change, |_| true);
            }
        }
        Disk::of(tree)
    }
}

impl Tree {
    fn apply(&mut self, change: &Change, keeps: impl Fn(u64) -> bool) {
        match change {
            Change::Make { node, folder } => {
                let made = if *folder { Node::Folder(BTreeMap::new()) } else { Node::File(Vec::new()) };
                self.0.insert(*node, made);
            }
            Change::Write { file, offset, bytes } => {
                let Some(Node::File(data)) = self.0.get_mut(file) else { return };
                let (first, mut from) = (offset / SECTOR, *offset);
                let end = offset + bytes.len() as u64;
                while from < end {
                    let to = ((from / SECTOR + 1) * SECTOR).min(end);
                    if keeps(from / SECTOR - first) {
                        // What lies between the old end and this piece reads as zeros.
                        let (at, until) = (index(from), index(to));
                        let piece = &bytes[index(from - offset)..index(to - offset)];
                        if data.len() == at {
                            data.extend_from_slice(piece);
                        } else {
                            data.resize(data.len().max(until), 0);
                            data[at..until].copy_from_slice(piece);
                        }
                    }
                    from = to;
                }
            }
            Change::Truncate { file, len } if keeps(0) => {
                if let Some(Node::File(data)) = self.0.get_mut(file) {
                    data.resize(index(*len), 0);
                }
            }
            Change::Name { folder, name, to } if keeps(0) => {
                if let Some(Node::Folder(names)) = self.0.get_mut(folder) {
                    match to {
                        Some(node) => drop(names.insert(name.clone(), *node)),
                        None => drop(names.remove(name)),
                    }
                }
            }
            Change::Rename { folder, from, to, node } if keeps(0) => {
                if let Some(Node::Folder(names)) = self.0.get_mut(folder) {
                    names.remove(from);
                    names.insert(to.clone(), *node);
                }
            }
            _ => {}
        }
    }

    fn folder(&self, node: u64) -> io::Result<&BTreeMap<OsString, u64>> {
        match self.0.get(&node) {
            Some(Node::Folder(names)) => Ok(names),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn find(&self, path: &Path) -> io::Result<u64> {
        let mut node = ROOT;
        for part in path.components() {
            if let Component::Normal(name) = part {
                node = *self.folder(node)?.get(name).ok_or(io::ErrorKind::NotFound)?;
            }
        }
        Ok(node)
    }
}

impl State {
    fn change(&mut self, change: Change) {
        self.tree.apply(&change, |_| true);
        self.tick += 1;
        if let Some(owner) = change.owner() {
            self.written.insert(owner, self.tick);
        }
        self.events.push(Event::Change(change));
    }

    fn make(&mut self, folder: bool) -> u64 {
        let node = self.next;
        self.next += 1;
        self.change(Change::Make { node, folder });
        node
    }

    /// The folder of a path, and the last part of its name.
    fn place<'a>(&self, path: &'a Path) -> io::Result<(u64, &'a OsStr)> {
        let folder = self.tree.find(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
        self.tree.folder(folder)?;
        Ok((folder, path.file_name().ok_or(io::ErrorKind::InvalidInput)?))
    }

    fn stat(&self, node: u64) -> Stat {
        let (kind, len) = match &self.tree.0[&node] {
            Node::File(data) => (Kind::File, data.len() as u64),
            Node::Folder(_) => (Kind::Folder, 0),
        };
        let modified = self.written.get(&node).copied().unwrap_or_default();
        Stat { kind, len, modified, changed: modified, id: FileId { inode: node, ..FileId::default() } }
    }

    fn sync(&mut self, node: u64, fault: Option<Fault>) -> io::Result<()> {
        match fault {
            Some(Fault::Fails(errno)) => {
                if matches!(self.tree.0[&node], Node::File(_)) {
                    self.events.push(Event::Synced { node, worked: false });
                }
                Err(io::Error::from_raw_os_error(errno))
            }
            other => {
                self.events.push(Event::Synced { node, worked: true });
                match other {
                    Some(Fault::DoneButFails(errno)) => Err(io::Error::from_raw_os_error(errno)),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl Disk {
    /// An open file or folder.
    fn handle(&self, mut state: MutexGuard<'_, State>, path: &Path, node: u64) -> Box<dyn IoFile> {
        state.handles += 1;
        let handle = state.handles;
        Box::new(DiskFile { disk: self.clone(), path: path.to_owned(), node, handle })
    }
}

impl Io for Disk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn IoFile>> {
        let name = if matches!(mode, OpenMode::Read | OpenMode::Write) { "open" } else { "create" };
        let (mut state, fault) = self.call(name, path);
        if let Some(Fault::Fails(errno)) = fault {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let node = match (state.tree.find(path), mode) {
            (Ok(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Ok(node), _) => node,
            (Err(error), OpenMode::Create | OpenMode::CreateNew | OpenMode::Append)
                if error.kind() == io::ErrorKind::NotFound =>
            {
                let (folder, name) = state.place(path)?;
                let node = state.make(false);
                state.change(Change::Name { folder, name: name.to_owned(), to: Some(node) });
                node
            }
            (Err(error), _) => return Err(error),
        };
        if matches!(state.tree.0[&node], Node::Folder(_)) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if let Some(Fault::DoneButFails(errno)) = fault {
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(self.handle(state, path, node))
    }

    fn open_lock(&self, folder: &Path) -> io::Result<Box<dyn IoFile>> {
        let (state, fault) = self.call("open", folder);
        if let Some(Fault::Fails(errno) | Fault::DoneButFails(errno)) = fault {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let node = state.tree.find(folder)?;
        state.tree.folder(node)?;
        Ok(self.handle(state, folder, node))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let (state, fault) = self.call("stat", path);
        if let Some(Fault::Fails(errno) | Fault::DoneButFails(errno)) = fault {
            return Err(io::Error::from_raw_os_error(errno));
        }
        state.tree.find(path).map(|node| state.stat(node))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        let (state, fault) = self.call("list", path);
        if let Some(Fault::Fails(errno) | Fault::DoneButFails(errno)) = fault {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let names = state.tree.folder(state.tree.find(path)?)?;
        Ok(names.iter().map(|(name, node)| (name.clone(), state.stat(*node).kind)).collect())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.name("create_dir", path, |state| {
            let (folder, name) = state.place(path)?;
            if state.tree.folder(folder)?.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let node = state.make(true);
            state.change(Change::Name { folder, name: name.to_owned(), to: Some(node) });
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.name("rename", to, |state| {
            let (folder, old) = state.place(from)?;
            let (other, new) = state.place(to)?;
            assert_eq!(folder, other, "a rename from one folder to another is not modelled");
            let names = state.tree.folder(folder)?;
            let node = *names.get(old).ok_or(io::ErrorKind::NotFound)?;
            if let Some(there) = names.get(new)
                && let Ok(inside) = state.tree.folder(*there)
                && !inside.is_empty()
            {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            state.change(Change::Rename { folder, from: old.to_owned(), to: new.to_owned(), node });
            Ok(())
        })
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.name("hard_link", to, |state| {
            let node = state.tree.find(from)?;
            let (folder, name) = state.place(to)?;
            if state.tree.folder(folder)?.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.change(Change::Name { folder, name: name.to_owned(), to: Some(node) });
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.name("remove_file", path, |state| {
            let node = state.tree.find(path)?;
            if matches!(state.tree.0[&node], Node::Folder(_)) {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            let (folder, name) = state.place(path)?;
            state.change(Change::Name { folder, name: name.to_owned(), to: None });
            Ok(())
        })
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.name("remove_dir", path, |state| {
            let node = state.tree.find(path)?;
            if !state.tree.folder(node)?.is_empty() {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            let (folder, name) = state.place(path)?;
            state.change(Change::Name { folder, name: name.to_owned(), to: None });
            Ok(())
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let (mut state, fault) = self.call("sync_dir", path);
        let node = state.tree.find(path)?;
        state.sync(node, fault)
    }
}

#[derive(Debug)]
struct DiskFile {
    disk: Disk,
    path: PathBuf,
    node: u64,
    handle: u64,
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.locks.get(&self.node) == Some(&self.handle) {
            state.locks.remove(&self.node);
        }
    }
}

impl DiskFile {
    fn write(
        &self,
        name: &'static str,
        bytes: &[u8],
        offset: impl FnOnce(&State) -> u64,
    ) -> io::Result<usize> {
        let (mut state, fault) = self.disk.call(name, &self.path);
        let offset = offset(&state);
        let count = match fault {
            Some(Fault::Interrupted) => return Err(io::ErrorKind::Interrupted.into()),
            Some(Fault::Fails(_) | Fault::Short) => bytes.len().div_ceil(2),
            Some(Fault::DoneButFails(_)) | None => bytes.len(),
        };
        state.change(Change::Write { file: self.node, offset, bytes: bytes[..count].to_vec() });
        match fault {
            Some(Fault::Fails(errno) | Fault::DoneButFails(errno)) => {
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => Ok(count),
        }
    }
}

impl IoFile for DiskFile {
    fn stat(&self) -> io::Result<Stat> {
        let (state, fault) = self.disk.call("fstat", &self.path);
        match fault {
            Some(Fault::Fails(errno) | Fault::DoneButFails(errno)) => {
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => Ok(state.stat(self.node)),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (state, fault) = self.disk.call("read", &self.path);
        let Node::File(data) = &state.tree.0[&self.node] else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let rest = data.get(index(offset)..).unwrap_or_default();
        let mut count = rest.len().min(buffer.len());
        match fault {
            Some(Fault::Fails(errno) | Fault::DoneButFails(errno)) => {
                return Err(io::Error::from_raw_os_error(errno));
            }
            Some(Fault::Interrupted) => return Err(io::ErrorKind::Interrupted.into()),
            Some(Fault::Short) => count = count.div_ceil(2),
            None => {}
        }
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.write("write", bytes, |_| offset)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write("append", bytes, |state| state.stat(self.node).len)
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        let file = self.node;
        self.disk.name("truncate", &self.path, |state| {
            state.change(Change::Truncate { file, len });
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, fault) = self.disk.call("sync", &self.path);
        state.sync(self.node, fault)
    }

    fn try_lock(&self) -> io::Result<bool> {
        let (mut state, fault) = self.disk.call("lock", &self.path);
        if let Some(Fault::Fails(errno) | Fault::DoneButFails(errno)) = fault {
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(*state.locks.entry(self.node).or_insert(self.handle) == self.handle)
    }

    fn unlock(&self) -> io::Result<()> {
        let (mut state, fault) = self.disk.call("unlock", &self.path);
        if let Some(Fault::Fails(errno) | Fault::DoneButFails(errno)) = fault {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if state.locks.get(&self.node) == Some(&self.handle) {
            state.locks.remove(&self.node);
        }
        Ok(())
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
