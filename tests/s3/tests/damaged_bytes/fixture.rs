//! A small store with everything in it, as files and in SQLite, and what each of its files may be taken for.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Patch, Title, Workspace};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::Purge;
use agent_core::{DeviceId, Result, Seq, SessionId, Storage, WorkspaceId};
use agent_storage_fs::FsConfig;
use agent_storage_sqlite::SqliteConfig;

use crate::Damage;
use crate::answers::Answers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Files,
    /// Files, with a transcript beside the log of each main session.
    Transcripts,
    Sqlite,
}

impl Kind {
    pub(crate) async fn open(self, folder: &Path) -> Result<Storage> {
        Ok(match self {
            Self::Files | Self::Transcripts => {
                let config = FsConfig::new(folder).with_transcripts(self == Self::Transcripts);
                config.with_sync(agent_storage_fs::Sync::Off).open().await?.into()
            }
            Self::Sqlite => {
                let config = SqliteConfig::new(folder.join("store.db"));
                config.with_sync(agent_storage_sqlite::Sync::Off).open().await?.into()
            }
        })
    }
}

/// What is asked for by name.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) workspaces: Vec<WorkspaceId>,
    pub(crate) sessions: Vec<SessionId>,
    pub(crate) devices: Vec<DeviceId>,
}

pub(crate) struct Fixture {
    pub(crate) folder: PathBuf,
    pub(crate) names: Names,
    kind: Kind,
    /// Of each log: the name of its file, and the answers where it ends after each of its commits.
    logs: Vec<(PathBuf, Vec<(usize, Answers)>)>,
}

/// What the file of this name may be taken for, once it is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// It has checksums, or is derived: for nothing else.
    Checked,
    /// People edit it: its present text counts, if it is whole.
    Edited,
    /// It is not read.
    Unread,
}

impl Fixture {
    pub(crate) async fn make(kind: Kind, folder: &Path) -> Self {
        let effects = Effects::default();
        let storage = kind.open(folder).await.unwrap();
        let names = fill(&storage, &effects).await;
        storage.close().await.unwrap();
        let mut fixture = Self { folder: folder.to_owned(), names, kind, logs: Vec::new() };
        for path in crate::files(folder) {
            if path.file_name().is_some_and(|name| name == "events.jsonl") {
                let earlier = fixture.earlier_logs(&path).await;
                fixture.logs.push((path.strip_prefix(folder).unwrap().to_owned(), earlier));
            }
        }
        fixture
    }

    pub(crate) fn guard(&self, name: &Path) -> Guard {
        match name.file_name().unwrap().to_str().unwrap() {
            "lock" | "bindings.lock" | "accessed" | "deleted" | "lease" => Guard::Unread,
            "config.toml" | "workspace.toml" | "bindings.toml" => Guard::Edited,
            name if name.ends_with(".db.holder") => Guard::Unread,
            _ => Guard::Checked,
        }
    }

    /// What a damaged log may be taken for: a log of which the last commits did not happen, where the damage reaches into
    /// the last of them. That looks like a write that never ended.
    pub(crate) fn earlier(&self, name: &Path, damage: Damage, len: usize) -> Option<&Answers> {
        let (_, commits) = self.logs.iter().find(|(log, _)| log == name)?;
        let before = commits.iter().rfind(|(end, _)| *end <= damage.first())?;
        let last = commits.iter().rfind(|(end, _)| *end < len)?;
        (damage.end(len) > last.0).then_some(&before.1)
    }

    async fn earlier_logs(&self, log: &Path) -> Vec<(usize, Answers)> {
        let text = fs::read_to_string(log).unwrap();
        let (mut at, mut found) = (0, Vec::new());
        for line in text.split_inclusive('\n') {
            at += line.len();
            let event = agent_core::event::Event::from_json(&line[..line.len() - 1]).unwrap();
            if event.n < event.of {
                continue;
            }
            let copy = self.folder.with_file_name("earlier");
            crate::copy(&self.folder, &copy);
            let there = copy.join(log.strip_prefix(&self.folder).unwrap());
            fs::write(&there, &text[..at]).unwrap();
            fs::remove_file(there.with_file_name("session.json")).ok();
            let storage = self.kind.open(&copy).await.unwrap();
            found.push((at, Answers::of(&storage, &self.names).await));
            drop(storage);
            fs::remove_dir_all(copy).unwrap();
        }
        found
    }
}

/// Workspaces, devices, and sessions in most states.
pub(crate) async fn fill(storage: &Storage, effects: &Effects) -> Names {
    let mut names = Names::default();
    for name in ["home", "work", "gone"] {
        let (id, main) = (effects.new_workspace_id(), effects.new_session_id());
        let record = Workspace::new(id, name, main, effects.now());
        storage.workspaces.put(record, Precondition::MustNotExist).await.unwrap();
        names.workspaces.push(id);
    }
    let [home, work, gone] = names.workspaces[..] else { unreachable!() };
    storage.workspaces.save_config(home, Some("a = 1\n".into()), Precondition::MustNotExist).await.unwrap();
    storage.workspaces.delete(gone).await.unwrap();
    for (device, workspace) in [("laptop", home), ("phone", work)] {
        names.devices.push(device.parse().unwrap());
        storage
            .bindings
            .bind(names.devices.last().unwrap(), workspace, Precondition::MustNotExist)
            .await
            .unwrap();
    }
    names.devices.push("none".parse().unwrap());

    let long = new(storage, effects, home).await;
    let mut now = long;
    for n in 0..6 {
        let event = vec![
            NewEvent::user_message(format!("question {n}")),
            NewEvent::agent_message("안녕 ".repeat(40)),
        ];
        now = storage.sessions.append(now.id, now.head, event).await.unwrap().session;
    }
    let patch = Patch::new().with_title(Title::by_user("Küche")).with_label("project", "x");
    now = storage.sessions.update(now.id, now.head, patch).await.unwrap().session;
    let fork = storage.sessions.fork(now.id, None).await.unwrap();
    let run = effects.new_run_id();
    let begin = Commit::seal(effects, fork.id, fork.head)
        .with_event(NewEvent::user_message("on"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("test", run)));
    storage.sessions.commit(begin).await.unwrap();
    let short = new(storage, effects, work).await;
    let dead = new(storage, effects, work).await;
    let delete = Commit::seal(effects, dead.id, dead.head).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let dead = storage.sessions.commit(delete).await.unwrap().session;
    storage.sessions.purge(Purge::new(dead.id, dead.head).with_keep_through(Seq::ZERO)).await.unwrap();
    names.sessions = vec![now.id, fork.id, short.id, dead.id, effects.new_session_id()];
    names
}

async fn new(storage: &Storage, effects: &Effects, workspace: WorkspaceId) -> Arc<SessionRecord> {
    let new = NewSession::new(effects.new_session_id(), workspace);
    storage.sessions.create(new).await.unwrap()
}
