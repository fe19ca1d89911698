//! A store in one file, which several processes share: all entries are read, changed and written anew under a lock.
//! Sound in that, and broken in one way.

#![allow(clippy::unwrap_used, reason = "a test's helper")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::binding::decide_bind;
use agent_core::*;

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing: the control.
    None,
    /// Nothing keeps two processes from changing the file at once.
    NoLock,
    /// The last write is acknowledged, and made when the next one comes.
    AcknowledgedBeforeWritten,
    /// An object of many parts is written in two steps.
    WrittenInTwo,
}

impl Fault {
    pub(crate) const ALL: [Self; 4] =
        [Self::None, Self::NoLock, Self::AcknowledgedBeforeWritten, Self::WrittenInTwo];
}

type Entries = BTreeMap<String, String>;

/// The store in the folder `folder`.
#[derive(Clone, Debug)]
pub(crate) struct OneFile {
    folder: Arc<PathBuf>,
    fault: Fault,
    /// What is acknowledged and not yet written.
    late: Arc<Mutex<Option<Entries>>>,
}

fn key(kind: &str, id: impl std::fmt::Display) -> String {
    format!("{kind} {id}")
}

fn event_key(id: SessionId, seq: u64) -> String {
    format!("event {id} {seq:012}")
}

fn session(entries: &Entries, id: SessionId) -> Result<Option<Session>> {
    entries.get(&key("session", id)).map(|json| Session::from_json(json)).transpose()
}

fn existing(entries: &Entries, id: SessionId) -> Result<Session> {
    let absent = || Error::new(ErrorKind::NotFound, format!("session {id} does not exist"));
    session(entries, id)?.ok_or_else(absent)
}

fn workspace(entries: &Entries, id: WorkspaceId) -> Result<Workspace> {
    let absent = || Error::new(ErrorKind::NotFound, format!("workspace {id} does not exist"));
    Workspace::from_json(entries.get(&key("workspace", id)).ok_or_else(absent)?)
}

/// All entries of a kind, without it in their keys.
fn all<'a>(entries: &'a Entries, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a String)> {
    entries.iter().filter_map(move |(key, value)| Some((key.strip_prefix(kind)?.strip_prefix(' ')?, value)))
}

impl OneFile {
    pub(crate) fn new(folder: &Path, fault: Fault) -> Self {
        Self { folder: Arc::new(folder.to_owned()), fault, late: Arc::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("entries.json")
    }

    fn entries(&self) -> Entries {
        let Ok(text) = fs::read_to_string(self.path()) else { return Entries::new() };
        serde_json::from_str(&text).unwrap()
    }

    fn save(&self, entries: &Entries) {
        let temp = self.folder.join(format!("{}.new", std::process::id()));
        fs::write(&temp, serde_json::to_string(entries).unwrap()).unwrap();
        fs::rename(temp, self.path()).unwrap();
    }

    fn read<T>(&self, work: impl FnOnce(&Entries) -> Result<T>) -> Result<T> {
        match &*self.late.lock().unwrap() {
            Some(late) => work(late),
            None => work(&self.entries()),
        }
    }

    /// One change of the file. An error of `work` changes nothing.
    fn change<T>(&self, work: impl FnOnce(&mut Entries) -> Result<T>) -> Result<T> {
        // Handles of one process take turns even where processes do not.
        let mut late = self.late.lock().unwrap();
        let lock = File::create(self.folder.join("lock")).unwrap();
        if self.fault != Fault::NoLock {
            lock.lock().unwrap();
        }
        if let Some(late) = late.take() {
            pause();
            self.save(&late);
        }
        let before = self.entries();
        let mut entries = before.clone();
        let done = work(&mut entries)?;
        match self.fault {
            Fault::AcknowledgedBeforeWritten => *late = Some(entries),
            Fault::WrittenInTwo => {
                // Without the first of what is new, which comes a moment later.
                let mut half = entries.clone();
                let first = entries.keys().find(|key| !before.contains_key(*key));
                first.map(|first| half.remove(first));
                self.save(&half);
                pause();
                self.save(&entries);
            }
            Fault::NoLock => {
                pause();
                self.save(&entries);
            }
            Fault::None => self.save(&entries),
        }
        Ok(done)
    }
}

/// Makes room for others, and for a kill.
#[allow(clippy::disallowed_methods, reason = "other processes do not share a runtime's time")]
fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}

#[async_trait]
impl SessionStore for OneFile {
    async fn commit(&self, commit: Commit) -> Result<Committed> {
        self.change(|entries| {
            let planned = plan(session(entries, commit.session)?.as_ref(), &commit)?;
            if let Plan::Write { events, after, .. } = &planned {
                for event in events {
                    entries.insert(event_key(commit.session, event.seq.get()), event.to_json());
                }
                entries.insert(key("session", commit.session), after.to_json());
            }
            Ok(planned.committed())
        })
    }

    async fn load(&self, id: SessionId) -> Result<Session> {
        self.read(|entries| existing(entries, id))
    }

    async fn read(&self, id: SessionId, read: ReadEvents) -> Result<EventPage> {
        OneFile::read(self, |entries| {
            existing(entries, id)?;
            let until = event_key(id, read.before.map_or(999_999_999_999, Seq::get));
            let rows = entries.range(event_key(id, read.after.next().get())..until);
            let events = rows.map(|(_, json)| Event::from_json(json));
            if read.newest {
                return EventPage::collect(&read, events.rev());
            }
            EventPage::collect(&read, events)
        })
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        OneFile::read(self, |entries| {
            let summary = |(_, json): (_, &String)| Ok(SessionSummary::from(&Session::from_json(json)?));
            query.page(all(entries, "session").map(summary).collect::<Result<Vec<_>>>()?)
        })
    }

    async fn purge(&self, purge: Purge) -> Result<Purged> {
        Err(Error::new(ErrorKind::Unsupported, format!("session {} stays", purge.session)))
    }

    async fn beat(&self, _: SessionId, _: Epoch) -> Result<()> {
        Ok(())
    }

    async fn pulse(&self, _: SessionId, _: Epoch) -> Result<Pulse> {
        Ok(Pulse::new(0, false))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Scope::Host, Durability::ProcessCrash)
    }
}

#[async_trait]
impl WorkspaceStore for OneFile {
    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        OneFile::read(self, |entries| workspace(entries, id))
    }

    async fn put(&self, mut new: Workspace, expect: Expect<Revision>) -> Result<Workspace> {
        self.change(|entries| {
            new.prepare_put(workspace(entries, new.id).ok().as_ref(), expect)?;
            entries.insert(key("workspace", new.id), new.to_json());
            Ok(new)
        })
    }

    async fn touch(&self, _: WorkspaceId, _: Timestamp) -> Result<()> {
        Ok(())
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        OneFile::read(self, |entries| {
            let records = all(entries, "workspace").map(|(_, json)| Workspace::from_json(json));
            query.page(records.collect::<Result<Vec<_>>>()?)
        })
    }

    async fn delete(&self, id: WorkspaceId) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("workspace {id} stays")))
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        OneFile::read(self, |entries| Ok(entries.get(&key("config", id)).cloned()))
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Expect<ContentHash>,
    ) -> Result<()> {
        self.change(|entries| {
            ContentHash::check(expect, entries.get(&key("config", id)).map(String::as_str), &id)?;
            entries.insert(key("config", id), text.unwrap_or_default());
            Ok(())
        })
    }
}

#[async_trait]
impl BindingStore for OneFile {
    async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let bound = OneFile::read(self, |entries| Ok(entries.get(&key("binding", device)).cloned()))?;
        bound.map(|id| id.parse()).transpose()
    }

    async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Expect<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        self.change(|entries| {
            let now = entries.get(&key("binding", device)).map(|id| id.parse()).transpose()?;
            let bound = decide_bind(device, now, to, expect)?;
            entries.insert(key("binding", device), bound.to_string());
            Ok(bound)
        })
    }

    async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        self.change(|entries| Ok(entries.remove(&key("binding", device)).is_some()))
    }

    async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        Err(Error::new(ErrorKind::Unsupported, format!("workspace {id} stays bound")))
    }

    async fn list(&self, query: BindingQuery) -> Result<Page<Binding>> {
        OneFile::read(self, |entries| {
            let binding = |(device, to): (&str, &String)| Ok(Binding::new(device.parse()?, to.parse()?));
            query.page(all(entries, "binding").map(binding).collect::<Result<Vec<_>>>()?)
        })
    }
}
