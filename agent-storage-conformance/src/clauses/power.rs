//! Contract 1 after power loss, and contract 7 if calls to the medium fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_core::commit::{Commit, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Workspace;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::{DeviceId, ErrorKind, SessionId, Storage, WorkspaceId, WriteOutcome};

use crate::factory::FailingCall;
use crate::failure::{Checked, Failure, brief, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{Stage, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    let mut clauses = table![Durable:
        acknowledged_writes_outlive_a_power_loss (Needs::PowerLoss),
    ];
    clauses.extend(table![Outcomes:
        failed_write_reports_whether_it_was_applied (Needs::Faults),
    ]);
    clauses
}

/// Everything that was acknowledged.
#[derive(Default)]
struct Acknowledged {
    workspaces: BTreeMap<WorkspaceId, Option<Workspace>>,
    configs: BTreeMap<WorkspaceId, Option<String>>,
    bindings: BTreeMap<DeviceId, Option<WorkspaceId>>,
    sessions: BTreeMap<SessionId, Arc<SessionRecord>>,
}

impl Acknowledged {
    /// Cuts the power, opens what is left, and checks that everything is there.
    async fn outlives(&self, stage: Stage, storage: Storage) -> Checked<(Stage, Storage)> {
        let stage = stage.lose_power(storage).await?;
        let storage = stage.open().await?;
        for (id, workspace) in &self.workspaces {
            let there = storage.workspaces.load(*id).await;
            match workspace {
                Some(workspace) => same("the workspace after the loss of power", &there?, workspace)?,
                None => drop(refused!("a workspace that was deleted", there, ErrorKind::Deleted)?),
            }
        }
        for (id, config) in &self.configs {
            let there = storage.workspaces.load_config(*id).await?;
            same("the configuration after the loss of power", &there, config)?;
        }
        for (device, bound) in &self.bindings {
            let there = storage.bindings.resolve(device).await?;
            same(format_args!("what {device} is bound to after the loss of power"), &there, bound)?;
        }
        for (id, session) in &self.sessions {
            let there = storage.sessions.load(*id).await?;
            same("the head of a session after the loss of power", &there.head, &session.head)?;
            same("its record", &there, session)?;
            if session.status.state != SessionState::Deleted {
                let events = own_events(&storage, *id, 1000).await?;
                same("its events", &(events.len() as u64), &session.head.get())?;
            }
        }
        Ok((stage, storage))
    }
}

/// Power is lost after each write: everything acknowledged is there, whole, and the store can continue.
async fn acknowledged_writes_outlive_a_power_loss(stage: &Stage) -> Checked {
    let mut known = Acknowledged::default();
    let mut stage = stage.for_faults().await?;
    let mut storage = stage.open().await?;
    let [first, second] = [stage.workspace("first"), stage.workspace("second")];
    for new in [&first, &second] {
        let put = storage.workspaces.put(new.clone(), Precondition::MustNotExist).await?;
        known.workspaces.insert(put.id, Some(put));
        (stage, storage) = known.outlives(stage, storage).await?;
    }
    for (text, expect) in [
        (Some("a = 1"), Precondition::MustNotExist),
        (Some("a = 2"), Precondition::MustExist),
        (None, Precondition::MustExist),
    ] {
        let text = text.map(str::to_owned);
        storage.workspaces.save_config(first.id, text.clone(), expect).await?;
        known.configs.insert(first.id, text);
        (stage, storage) = known.outlives(stage, storage).await?;
    }
    let [laptop, phone] = [stage.device("laptop")?, stage.device("phone")?];
    for (device, to) in [(&laptop, first.id), (&phone, first.id), (&laptop, second.id)] {
        storage.bindings.bind(device, to, Precondition::None).await?;
        known.bindings.insert(device.clone(), Some(to));
        (stage, storage) = known.outlives(stage, storage).await?;
    }
    storage.bindings.unbind(&phone).await?;
    known.bindings.insert(phone, None);
    (stage, storage) = known.outlives(stage, storage).await?;

    let [kept, gone] = [(); 2].map(|()| stage.effects.new_session_id());
    for id in [kept, gone] {
        let session = stage.create(&storage, NewSession::new(id, first.id)).await?;
        known.sessions.insert(id, session);
        (stage, storage) = known.outlives(stage, storage).await?;
    }
    for sizes in [vec![20], vec![500, 1, 5000], vec![100_000], vec![3; 50]] {
        let messages = sizes.into_iter().map(|size| NewEvent::user_message("x".repeat(size)));
        let commit = stage.seal(&known.sessions[&kept]).with_events(messages);
        let session = storage.sessions.commit(commit).await?.session;
        known.sessions.insert(kept, session);
        (stage, storage) = known.outlives(stage, storage).await?;
    }
    // Several writes between two losses, of which the last ones are of other objects than the first.
    let appended = stage.append(&storage, &known.sessions[&kept], "one").await?.session;
    known.sessions.insert(kept, stage.append(&storage, &appended, "two").await?.session);
    let renamed = storage.workspaces.put(first.clone().with_name("renamed"), Precondition::MustExist).await?;
    known.workspaces.insert(first.id, Some(renamed));
    (stage, storage) = known.outlives(stage, storage).await?;

    let delete = stage.seal(&known.sessions[&gone]).with_trigger(Trigger::Delete(Reason::UserDeleted));
    known.sessions.insert(gone, storage.sessions.commit(delete).await?.session);
    (stage, storage) = known.outlives(stage, storage).await?;
    storage.workspaces.delete(second.id).await?;
    known.workspaces.insert(second.id, None);
    known.outlives(stage, storage).await.map(drop)
}

/// Write that is tried while a call to the medium fails.
#[derive(Clone, Copy, Debug)]
enum Write {
    Commit,
    Create,
    Put,
    Configure,
    Bind,
    Unbind,
}

const WRITES: [Write; 6] =
    [Write::Commit, Write::Create, Write::Put, Write::Configure, Write::Bind, Write::Unbind];

/// Limit on calls to the medium, more than a store makes for one write.
pub(super) const MOST_CALLS: usize = 2000;

/// Each call of each write fails, with and without its effect. An error that claims `NotApplied` is right, now and
/// after reopening, and the same write sent again takes effect, once.
async fn failed_write_reports_whether_it_was_applied(stage: &Stage) -> Checked {
    for done in [false, true] {
        for write in WRITES {
            fail_each_call(&stage.for_faults().await?, write, done).await?;
        }
    }
    Ok(())
}

async fn fail_each_call(stage: &Stage, write: Write, done: bool) -> Checked {
    let mut storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?;
    let config = Some("a = 1".to_owned());
    storage.workspaces.save_config(workspace.id, config, Precondition::MustNotExist).await?;
    let new = NewSession::new(stage.effects.new_session_id(), workspace.id);
    let mut session = stage.create(&storage, new).await?;
    for skip in 0..MOST_CALLS {
        let name = format!("try {skip}");
        // To be unbound, it must be bound.
        if matches!(write, Write::Unbind) {
            storage.bindings.bind(&stage.device(&name)?, workspace.id, Precondition::MustNotExist).await?;
        }
        let commit = match write {
            Write::Create => {
                let new = NewSession::new(stage.effects.new_session_id(), workspace.id);
                Commit::create(&stage.effects, new)
            }
            _ => stage.seal(&session),
        };
        let tried = Tried {
            write,
            workspace: workspace.clone().with_name(&*name),
            device: stage.device(&name)?,
            commit: commit.with_event(NewEvent::user_message(&*name)),
        };
        stage.fail(Some(FailingCall::new(skip, done))).await?;
        let answer = tried.send(&storage).await;
        let struck = stage.fail(None).await?;
        if skip == 0 && !struck {
            let what = format!("the first call to the medium of {write:?}");
            return Err(Failure::new(what, "it fails, as Factory::fail was asked for", "it was not made"));
        }
        if let Err(error) = answer {
            if !struck {
                return Err(Failure::of(format_args!("{write:?} while no call failed"), "success", &error));
            }
            // An error may leave a handle of no use.
            storage = stage.reopen(storage).await?;
            if error.write_outcome() == WriteOutcome::NotApplied && tried.is_applied(&storage).await? {
                return Err(Failure::new(
                    format_args!("{write:?}, after a call to the medium failed"),
                    format_args!(
                        "not applied: the error claimed WriteOutcome::NotApplied ({})",
                        brief(&error)
                    ),
                    "it was applied",
                ));
            }
            tried.send(&storage).await?;
        }
        storage = stage.reopen(storage).await?;
        let applied = tried.is_applied(&storage).await?;
        same(format_args!("whether {write:?} is applied, once"), &applied, &true)?;
        session = storage.sessions.load(session.id).await?;
        if !struck {
            return Ok(());
        }
    }
    Err(Failure::new(format_args!("the calls to the medium of {write:?}"), "an end", MOST_CALLS))
}

/// One write, which can be sent again.
struct Tried {
    write: Write,
    workspace: Workspace,
    device: DeviceId,
    commit: Commit,
}

impl Tried {
    fn config(&self) -> String {
        format!("name = {:?}", self.workspace.name)
    }

    async fn send(&self, storage: &Storage) -> agent_core::Result<()> {
        let id = self.workspace.id;
        match self.write {
            Write::Commit | Write::Create => storage.sessions.commit(self.commit.clone()).await.map(drop),
            Write::Put => {
                storage.workspaces.put(self.workspace.clone(), Precondition::MustExist).await.map(drop)
            }
            Write::Configure => {
                storage.workspaces.save_config(id, Some(self.config()), Precondition::MustExist).await
            }
            Write::Bind => storage.bindings.bind(&self.device, id, Precondition::None).await.map(drop),
            Write::Unbind => storage.bindings.unbind(&self.device).await.map(drop),
        }
    }

    async fn is_applied(&self, storage: &Storage) -> Checked<bool> {
        let id = self.workspace.id;
        Ok(match self.write {
            Write::Commit | Write::Create => {
                let (written, whole) = (written(storage, &self.commit).await?, self.events());
                if written != 0 && written != whole {
                    return Err(Failure::new(
                        "the events of a commit",
                        format_args!("{whole} or none"),
                        written,
                    ));
                }
                written == whole
            }
            Write::Put => storage.workspaces.load(id).await?.name == self.workspace.name,
            Write::Configure => storage.workspaces.load_config(id).await? == Some(self.config()),
            Write::Bind => storage.bindings.resolve(&self.device).await?.is_some(),
            Write::Unbind => storage.bindings.resolve(&self.device).await?.is_none(),
        })
    }

    /// Returns the number of events that the commit makes: a creation has one of its own.
    fn events(&self) -> usize {
        if matches!(self.write, Write::Create) { 2 } else { 1 }
    }
}

/// Returns the number of events of a commit that are in its session.
async fn written(storage: &Storage, commit: &Commit) -> Checked<usize> {
    match storage.sessions.load(commit.session).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(0),
        other => drop(other?),
    }
    let events = own_events(storage, commit.session, 1000).await?;
    Ok(events.iter().filter(|event| event.commit == commit.id).count())
}
