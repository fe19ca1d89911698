//! Script of a store's life: its operations, their results, and the contents that are allowed afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::{EventPayload, NewEvent};
use agent_core::model::Workspace;
use agent_core::session::NewSession;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, ReadEvents, SessionQuery, SweepBlobs};
use agent_core::{
    BindingStore, DeviceId, Error, ErrorKind, Result, Seq, SessionId, SessionStore, Timestamp, WorkspaceId,
    WorkspaceStore, WriteOutcome,
};
use agent_storage_fs::{FsConfig, FsStore, Sync};

use crate::blobs;
use crate::model::Disk;

/// A step of a script; workspaces, devices and sessions by number.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Put {
        workspace: usize,
        name: String,
    },
    Config {
        workspace: usize,
        text: String,
    },
    Leave {
        workspace: usize,
    },
    Bind {
        device: usize,
        workspace: usize,
    },
    Unbind {
        device: usize,
    },
    Create {
        session: usize,
    },
    Append {
        session: usize,
        texts: Vec<String>,
    },
    Delete {
        session: usize,
    },
    Purge {
        session: usize,
    },
    PutBlob {
        session: usize,
        blob: usize,
    },
    /// Says a text, and names blobs; the session's first commit does if it is to be created.
    Name {
        session: usize,
        text: String,
        blobs: Vec<usize>,
        create: bool,
    },
    /// Removes the blobs that no event names: of a session, or of all ids without one.
    Sweep {
        session: Option<usize>,
    },
    /// The other of two processes goes on; both keep the store open.
    Switch,
}

/// A thing that changes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thing {
    Workspace(usize),
    Config(usize),
    Device(usize),
    Session(usize),
    /// A blob of a session.
    Blob(usize, usize),
}

/// What a thing can be seen to be.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Nothing,
    Deleted,
    Text(String),
    Bound(usize),
    Session {
        deleted: bool,
        texts: Vec<String>,
    },
    /// All bytes of a blob.
    Whole,
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Deleted => f.write_str("deleted"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Whole => f.write_str("whole"),
            Self::Bound(workspace) => write!(f, "bound to {workspace}"),
            Self::Session { deleted, texts } => {
                // The names of the texts tell enough.
                let names: Vec<_> = texts.iter().filter_map(|text| text.split(' ').next()).collect();
                write!(f, "{}{names:?}", if *deleted { "deleted " } else { "" })
            }
        }
    }
}

/// What may be there, thing by thing.
pub(crate) type Possible = BTreeMap<Thing, BTreeSet<Value>>;

/// How a step ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    Failed(Error),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Failed(error) => write!(f, "{:?}: {error}", error.write_outcome()),
        }
    }
}

/// What is wrong with what was found.
#[derive(Debug)]
pub(crate) struct Wrong(pub(crate) String);

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Self(format!("{error:?}"))
    }
}

pub(crate) fn require(holds: bool, wrong: &str) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(Wrong(wrong.to_owned())) }
}

pub(crate) const SESSIONS: usize = 2;
const WORKSPACES: usize = 2;
const DEVICES: usize = 2;

/// Steps with the ids of what they speak of.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
    seed: u64,
    pub(crate) workspaces: Vec<WorkspaceId>,
    pub(crate) sessions: Vec<SessionId>,
}

impl Script {
    pub(crate) fn of(seed: u64, steps: Vec<Step>) -> Self {
        let effects = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
        let workspaces = (0..WORKSPACES).map(|_| effects.new_workspace_id()).collect();
        let sessions = (0..SESSIONS).map(|_| effects.new_session_id()).collect();
        Self { steps, seed, workspaces, sessions }
    }

    /// Eight commits, and all else that a store is asked for in its life.
    pub(crate) fn usual() -> Self {
        let append = |session, sizes: &[usize]| Step::Append { session, texts: texts(session, sizes) };
        let put = |workspace, name: &str| Step::Put { workspace, name: name.to_owned() };
        let config = |text: &str| Step::Config { workspace: 0, text: text.to_owned() };
        let steps = vec![
            put(0, "first"),
            Step::Bind { device: 0, workspace: 0 },
            Step::Create { session: 0 },
            append(0, &[20]),
            append(0, &[700, 30]),
            config("model = 1"),
            Step::Create { session: 1 },
            append(1, &[1200]),
            Step::Bind { device: 0, workspace: 1 },
            append(0, &[2, 2, 2]),
            put(0, "renamed"),
            config("model = 2"),
            Step::Delete { session: 1 },
            Step::Purge { session: 1 },
            Step::Unbind { device: 0 },
            put(1, "second"),
            Step::Leave { workspace: 1 },
            append(0, &[300]),
        ];
        Self::of(1, steps)
    }

    /// Any steps, in which a second process may take part.
    pub(crate) fn random(seed: u64, length: usize) -> Self {
        let dice = Effects::seeded(seed ^ 0x5eed, Timestamp::UNIX_EPOCH);
        let roll = |sides: usize| usize::try_from(dice.random_u64() % sides as u64).unwrap_or(0);
        let mut steps = vec![Step::Create { session: 0 }];
        for n in 0..length {
            let step = match roll(18) {
                0 => Step::Put { workspace: roll(WORKSPACES), name: format!("name {n}") },
                1 => Step::Config { workspace: roll(WORKSPACES), text: format!("value = {n}") },
                2 => Step::Bind { device: roll(DEVICES), workspace: roll(WORKSPACES) },
                3 => Step::Unbind { device: roll(DEVICES) },
                4 => Step::Create { session: roll(SESSIONS) },
                5 => Step::Delete { session: 1 },
                6 => Step::Purge { session: 1 },
                7 | 8 => Step::Switch,
                9 => Step::Append { session: 0, texts: texts(n, &[6000 + roll(12000)]) },
                10 => Step::Leave { workspace: 1 },
                // The other process does the same once more.
                11 | 12 => {
                    let last = steps.last().filter(|step| step.repeats()).cloned();
                    steps.push(Step::Switch);
                    last.unwrap_or(Step::Switch)
                }
                _ => {
                    let sizes: Vec<_> = (0..=roll(3)).map(|_| 1 + roll(900)).collect();
                    Step::Append { session: roll(SESSIONS), texts: texts(n, &sizes) }
                }
            };
            steps.push(step);
        }
        Self::of(seed, steps)
    }

    /// The steps and how they ended, for a person.
    pub(crate) fn story(&self, outcomes: &[Outcome]) -> String {
        let line = |(n, step): (usize, &Step)| {
            let what = step.thing().map_or(format!("{step:?}"), |thing| {
                format!(
                    "{thing:?} to {:?}",
                    step.after(&Value::Session { deleted: false, texts: Vec::new() })
                )
            });
            format!("{n:3} {what}: {}", outcomes.get(n).map_or(String::new(), Outcome::to_string))
        };
        self.steps.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Runs all steps on a disk, and says how each ended. The disk is told how many are behind.
    pub(crate) async fn run(&self, disk: &Disk, sync: Sync) -> Vec<Outcome> {
        let effects = Effects::seeded(self.seed ^ 0xeffec7, Timestamp::UNIX_EPOCH);
        let mut stores = [None, None];
        let (mut outcomes, mut current) = (Vec::new(), 0);
        for (n, step) in self.steps.iter().enumerate() {
            if matches!(step, Step::Switch) {
                current = 1 - current;
            }
            let done = match opened(disk, &effects, sync, &mut stores[current]).await {
                Ok(store) => self.step(store, &effects, step).await,
                Err(error) => Err(error.with_outcome(WriteOutcome::NotApplied)),
            };
            outcomes.push(done.map_or_else(Outcome::Failed, |()| Outcome::Done));
            disk.mark(n + 1);
        }
        outcomes
    }

    pub(crate) async fn step(&self, store: &FsStore, effects: &Effects, step: &Step) -> Result<()> {
        let commit = |session: usize, seen: Seq| Commit::seal(effects, self.sessions[session], seen);
        match step {
            Step::Put { workspace, name } => {
                let id = self.workspaces[*workspace];
                match WorkspaceStore::load(store, id).await {
                    Ok(there) => store.put(there.with_name(name), Precondition::MustExist).await.map(drop),
                    Err(error) if *error.kind() == ErrorKind::NotFound => {
                        let new = Workspace::new(id, name, self.sessions[0], effects.now());
                        store.put(new, Precondition::MustNotExist).await.map(drop)
                    }
                    // What cannot be read is not written: nothing has happened.
                    Err(error) => Err(error.with_outcome(WriteOutcome::NotApplied)),
                }
            }
            Step::Config { workspace, text } => {
                let id = self.workspaces[*workspace];
                // What cannot be read is not written: nothing has happened.
                let there = store.load_config(id).await;
                let expect = match there.map_err(|error| error.with_outcome(WriteOutcome::NotApplied))? {
                    Some(_) => Precondition::MustExist,
                    None => Precondition::MustNotExist,
                };
                store.save_config(id, Some(text.clone()), expect).await
            }
            Step::Leave { workspace } => WorkspaceStore::delete(store, self.workspaces[*workspace]).await,
            Step::Bind { device, workspace } => store
                .bind(&device_id(*device), self.workspaces[*workspace], Precondition::None)
                .await
                .map(drop),
            Step::Unbind { device } => store.unbind(&device_id(*device)).await.map(drop),
            Step::Create { session } => {
                let new = NewSession::new(self.sessions[*session], self.workspaces[0]);
                store.commit(Commit::create(effects, new)).await.map(drop)
            }
            Step::Append { session, texts } => {
                let event = texts.iter().map(NewEvent::user_message);
                store.commit(commit(*session, Seq::new(1)).with_events(event)).await.map(drop)
            }
            Step::Delete { session } => {
                let delete = Trigger::Delete(Reason::UserDeleted);
                store.commit(commit(*session, Seq::new(1)).with_trigger(delete)).await.map(drop)
            }
            Step::Purge { session } => {
                let id = self.sessions[*session];
                let there = SessionStore::load(store, id).await;
                let head = there.map_err(|error| error.with_outcome(WriteOutcome::NotApplied))?.head;
                store.purge(Purge::new(id, head)).await.map(drop)
            }
            Step::PutBlob { session, blob } => blobs::put(store, self.sessions[*session], *blob).await,
            Step::Name { session, text, blobs, create } => {
                let commit = match create {
                    true => {
                        let new = NewSession::new(self.sessions[*session], self.workspaces[0]);
                        Commit::create(effects, new)
                    }
                    false => commit(*session, Seq::new(1)),
                };
                let events = [NewEvent::user_message(text), blobs::naming(blobs)];
                store.commit(commit.with_events(events)).await.map(drop)
            }
            Step::Sweep { session } => {
                let of = session.map(|session| self.sessions[session]);
                store.blobs().sweep(of.map_or(SweepBlobs::without_session(), SweepBlobs::of)).await.map(drop)
            }
            Step::Switch => Ok(()),
        }
    }

    /// Whether it is about blobs, too.
    pub(crate) fn has_blobs(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::PutBlob { .. }))
    }

    /// What may be there when `done` steps are behind and the next one was perhaps begun.
    pub(crate) fn possible(&self, outcomes: &[Outcome], done: usize) -> Possible {
        let things = (0..WORKSPACES)
            .flat_map(|n| [Thing::Workspace(n), Thing::Config(n)])
            .chain((0..DEVICES).map(Thing::Device))
            .chain((0..SESSIONS).map(Thing::Session))
            .chain(self.has_blobs().then(blobs::things).into_iter().flatten());
        let mut possible: Possible = things.map(|thing| (thing, BTreeSet::from([Value::Nothing]))).collect();
        for (n, step) in self.steps.iter().enumerate().take(done + 1) {
            let certain = match outcomes.get(n) {
                _ if n == done => false,
                Some(Outcome::Done) => true,
                Some(Outcome::Failed(error)) if error.write_outcome() == WriteOutcome::NotApplied => continue,
                _ => false,
            };
            let failed_before =
                outcomes[..n.min(outcomes.len())].iter().any(|outcome| matches!(outcome, Outcome::Failed(_)));
            blobs::change(&mut possible, step, certain, failed_before);
            let Some(thing) = step.thing() else { continue };
            let values = possible.entry(thing).or_default();
            let after: BTreeSet<_> = values.iter().map(|value| step.after(value)).collect();
            if certain {
                *values = after;
            } else {
                values.extend(after);
            }
        }
        possible
    }

    /// What is there, thing by thing; and that it can be written on.
    pub(crate) async fn read_back(&self, disk: &Disk) -> Result<BTreeMap<Thing, Value>, Wrong> {
        // Hours later, so that what was left half made is cleared away.
        let effects = Effects::seeded(self.seed ^ 0x1a7e4, Timestamp::from_micros(10_000_000_000));
        let store = open(disk, &effects, Sync::Full).await?;
        let mut seen = BTreeMap::new();
        for (n, id) in self.workspaces.iter().enumerate() {
            let name = WorkspaceStore::load(&store, *id).await.map(|workspace| Value::Text(workspace.name));
            seen.insert(Thing::Workspace(n), or_nothing(name)?);
            let config = store.load_config(*id).await.map(|text| text.map_or(Value::Nothing, Value::Text));
            seen.insert(Thing::Config(n), or_nothing(config)?);
        }
        for n in 0..DEVICES {
            let bound = store.resolve(&device_id(n)).await?;
            let workspace = bound.and_then(|bound| self.workspaces.iter().position(|id| *id == bound));
            require(bound.is_some() == workspace.is_some(), "a device is bound to what nobody bound it to")?;
            seen.insert(Thing::Device(n), workspace.map_or(Value::Nothing, Value::Bound));
        }
        let mut live = 0;
        for n in 0..SESSIONS {
            let value = self.session(&store, n).await?;
            live += usize::from(matches!(value, Value::Session { deleted: false, .. }));
            seen.insert(Thing::Session(n), value);
        }
        let list = SessionStore::list(&store, SessionQuery::new()).await?;
        require((list.items.len(), list.damaged.len()) == (live, 0), "the list does not show what is there")?;
        if self.has_blobs() {
            blobs::read_back(self, &store, &mut seen).await?;
        }
        self.go_on(&store, &effects, &seen).await?;
        if self.has_blobs() {
            blobs::go_on(self, &store, &effects, disk, &seen).await?;
        }
        Ok(seen)
    }

    pub(crate) async fn session(&self, store: &FsStore, n: usize) -> Result<Value, Wrong> {
        let id = self.sessions[n];
        let record = match SessionStore::load(store, id).await {
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(Value::Nothing),
            other => other?,
        };
        let (mut texts, mut last) = (Vec::new(), Seq::ZERO);
        let mut read = Some(ReadEvents::first(100));
        while let Some(next) = read {
            let page = store.read(id, next).await?;
            require(page.damaged.is_empty(), "an event is damaged")?;
            for event in page.events {
                last = event.seq;
                if let EventPayload::UserMessage(message) = event.decode()? {
                    texts.push(message.text.clone());
                }
            }
            read = page.next;
        }
        let deleted = record.status.state == SessionState::Deleted;
        require(deleted || last == record.head, "a record tells of another head than its log")?;
        Ok(Value::Session { deleted, texts })
    }

    /// Writes on with all that is there.
    async fn go_on(
        &self,
        store: &FsStore,
        effects: &Effects,
        seen: &BTreeMap<Thing, Value>,
    ) -> Result<(), Wrong> {
        for n in 0..SESSIONS {
            if let Some(Value::Session { deleted: false, texts }) = seen.get(&Thing::Session(n)) {
                let append = Step::Append { session: n, texts: vec!["on".to_owned()] };
                self.step(store, effects, &append).await?;
                let mut texts = texts.clone();
                texts.push("on".to_owned());
                let now = self.session(store, n).await?;
                require(now == Value::Session { deleted: false, texts }, "a session does not go on")?;
            }
        }
        store.bind(&device_id(DEVICES), self.workspaces[0], Precondition::MustNotExist).await?;
        let bound = store.resolve(&device_id(0)).await?;
        let position = bound.and_then(|bound| self.workspaces.iter().position(|id| *id == bound));
        let before = seen.get(&Thing::Device(0)).cloned();
        let now = position.map_or(Value::Nothing, Value::Bound);
        require(Some(now) == before, "a new binding changed another")
    }
}

impl Step {
    /// Whether doing it twice is doing it once.
    fn repeats(&self) -> bool {
        !matches!(self, Self::Append { .. } | Self::Create { .. } | Self::Name { .. })
    }

    fn thing(&self) -> Option<Thing> {
        Some(match self {
            Self::Put { workspace, .. } | Self::Leave { workspace } => Thing::Workspace(*workspace),
            Self::Config { workspace, .. } => Thing::Config(*workspace),
            Self::Bind { device, .. } | Self::Unbind { device } => Thing::Device(*device),
            Self::Create { session }
            | Self::Append { session, .. }
            | Self::Delete { session }
            | Self::Purge { session }
            | Self::Name { session, .. } => Thing::Session(*session),
            // What a sweep does to which blob is said elsewhere.
            Self::PutBlob { .. } | Self::Sweep { .. } | Self::Switch => return None,
        })
    }

    /// What the step makes of its thing.
    fn after(&self, before: &Value) -> Value {
        match (self, before) {
            (_, Value::Deleted) | (Self::Leave { .. }, Value::Nothing) => before.clone(),
            (Self::Leave { .. }, _) => Value::Deleted,
            (Self::Put { name: text, .. } | Self::Config { text, .. }, _) => Value::Text(text.clone()),
            (Self::Bind { workspace, .. }, _) => Value::Bound(*workspace),
            (Self::Unbind { .. }, _) => Value::Nothing,
            (Self::Create { .. }, Value::Nothing) => Value::Session { deleted: false, texts: Vec::new() },
            (Self::Append { texts: new, .. }, Value::Session { deleted: false, texts }) => {
                Value::Session { deleted: false, texts: [texts.as_slice(), new].concat() }
            }
            (Self::Name { text, create: true, .. }, Value::Nothing) => {
                Value::Session { deleted: false, texts: vec![text.clone()] }
            }
            (Self::Name { text, create: false, .. }, Value::Session { deleted: false, texts }) => {
                Value::Session {
                    deleted: false,
                    texts: [texts.as_slice(), std::slice::from_ref(text)].concat(),
                }
            }
            (Self::Delete { .. }, Value::Session { texts, .. }) => {
                Value::Session { deleted: true, texts: texts.clone() }
            }
            (Self::Purge { .. }, Value::Session { deleted: true, .. }) => {
                Value::Session { deleted: true, texts: Vec::new() }
            }
            _ => before.clone(),
        }
    }
}

/// A store on the disk.
async fn open(disk: &Disk, effects: &Effects, sync: Sync) -> Result<FsStore> {
    // Transcripts are written in the background: which call comes when would differ from run to run.
    let config = FsConfig::new("/store").with_io(Arc::new(disk.clone())).with_transcripts(false);
    // With so few devices, no change of a binding would be appended otherwise, and a list would look at each session.
    let config = config.with_bindings_rewrite_max_bytes(0).with_list_scan_max(0);
    config.with_effects(effects.clone()).with_sync(sync).open().await
}

/// The store that is open, or one that is opened now.
async fn opened<'a>(
    disk: &Disk,
    effects: &Effects,
    sync: Sync,
    place: &'a mut Option<FsStore>,
) -> Result<&'a FsStore> {
    Ok(match place {
        Some(store) => store,
        None => place.insert(open(disk, effects, sync).await?),
    })
}

fn or_nothing(value: Result<Value>) -> Result<Value> {
    match value {
        Err(error) if *error.kind() == ErrorKind::NotFound => Ok(Value::Nothing),
        Err(error) if *error.kind() == ErrorKind::Deleted => Ok(Value::Deleted),
        other => other,
    }
}

fn device_id(n: usize) -> DeviceId {
    format!("device {n}").parse().unwrap()
}

pub(crate) fn texts(name: usize, sizes: &[usize]) -> Vec<String> {
    let text = |(n, size): (usize, &usize)| format!("{name}.{n} {}", "x".repeat(*size));
    sizes.iter().enumerate().map(text).collect()
}
