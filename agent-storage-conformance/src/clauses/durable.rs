//! Contract 1: acknowledged writes are still there after reopening, and after the process ends at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::{Decision, Event, EventPayload, NewEvent, ToolConfirmation, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::model::{ActionId, ActionKind, Patch, PendingAction, Timer};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{ReadEvents, Scope, SessionQuery, WorkspaceQuery};
use agent_core::{DeviceId, ErrorKind, Seq, SessionId, Storage};

use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{START, Stage, ends, own_events};
use crate::worker::{CONFIG, Order, Worker, seq};

pub(super) fn clauses() -> Vec<Clause> {
    table![Durable:
        every_conversation_step_survives_reopening,
        all_kinds_of_objects_survive_reopening,
        suspended_session_resumes_where_it_stopped,
        acknowledged_commits_outlive_a_kill (Needs::Crash),
        created_sessions_outlive_a_kill (Needs::Crash),
        workspaces_outlive_a_kill (Needs::Crash),
        bindings_outlive_a_kill (Needs::Crash),
        processes_on_one_store_behave_like_one (Needs::Processes),
        first_contacts_from_processes_agree (Needs::Processes),
    ]
}

/// Reads a session in every way: its record, its events, and its list entry.
async fn read_all(
    storage: &Storage,
    session: &SessionRecord,
) -> Checked<(Arc<SessionRecord>, Vec<Event>, Option<String>)> {
    let record = storage.sessions.load(session.id).await?;
    let events = own_events(storage, session.id, 6).await?;
    let list = storage.sessions.list(SessionQuery::new().with_hidden()).await?;
    let summary = list.items.iter().find(|item| item.id == session.id).map(|item| format!("{item:?}"));
    Ok((record, events, summary))
}

/// After each commit of a conversation that uses most features, a reopened store returns the same as the old handle:
/// the record, the log, the list.
async fn every_conversation_step_survives_reopening(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    let call: agent_core::model::CallId = "call 1".parse()?;
    let action: ActionId = "question 1".parse()?;
    let run = stage.effects.new_run_id();
    let begin = move || Trigger::BeginRun(LeaseRequest::new("holder", run));
    let end = |end| Trigger::EndRun(end);
    let failure = agent_core::model::Failure::new(Reason::RunError, "the model is away");
    let question = PendingAction::new(action.clone(), ActionKind::Approval, "Really?");
    let answer = EventPayload::UserToolConfirmation(ToolConfirmation::new(action, Decision::Allow));
    type Write = Box<dyn FnOnce(Commit) -> Commit + Send>;
    // The second part says whether it is a write of the run.
    let writes: Vec<(Write, bool)> = vec![
        (Box::new(|c| c.with_event(NewEvent::system_prompt("Be brief."))), false),
        (
            Box::new(move |c| c.with_event(NewEvent::user_message("list the files")).with_trigger(begin())),
            false,
        ),
        (
            Box::new({
                let call = call.clone();
                move |c| c.with_event(NewEvent::tool_use(call, "ls", RawJson::empty_object()))
            }),
            true,
        ),
        (Box::new(|c| c.with_event(NewEvent::user_message("and quickly"))), false),
        (
            Box::new(move |c| {
                c.with_event(NewEvent::tool_result(call, ToolOutcome::Ok, RawJson::empty_object()))
            }),
            true,
        ),
        (Box::new(|c| c.with_trigger(Trigger::ClaimInputs)), true),
        (
            Box::new(move |c| {
                c.with_event(NewEvent::agent_message("Here.")).with_trigger(end(RunEnd::Await(question)))
            }),
            true,
        ),
        (Box::new(move |c| c.with_event(NewEvent::of(&answer)).with_trigger(begin())), false),
        (Box::new(move |c| c.with_trigger(end(RunEnd::retry(failure, START, 9)))), true),
        (Box::new(|c| c.with_event(NewEvent::timer_scheduled(Timer::new("daily", START)))), false),
        (Box::new(move |c| c.with_trigger(begin())), false),
        (Box::new(|c| c.with_trigger(Trigger::Suspend(Reason::UserPaused))), false),
        (Box::new(move |c| c.with_trigger(end(RunEnd::Completed(Reason::EndTurn)))), true),
        (Box::new(|c| c.with_event(NewEvent::updated(Patch::new().with_label("k", "v")))), false),
        (Box::new(|c| c.with_trigger(Trigger::Resume)), false),
        (Box::new(|c| c.with_event(NewEvent::history_cleared())), false),
        (Box::new(|c| c.with_trigger(Trigger::Archive)), false),
        (Box::new(|c| c.with_trigger(Trigger::Unarchive)), false),
        (Box::new(|c| c.with_trigger(Trigger::Terminate(Reason::UserEnded))), false),
        (Box::new(|c| c.with_trigger(Trigger::Delete(Reason::UserDeleted))), false),
    ];
    for (write, of_run) in writes {
        let commit = if of_run { stage.seal_run(&session, run) } else { stage.seal(&session) };
        let done = storage.sessions.commit(write(commit)).await?;
        let before = read_all(&storage, &session).await?;
        same("the record that was acknowledged", &before.0, &done.session)?;
        storage = stage.reopen(storage).await?;
        let after = read_all(&storage, &session).await?;
        same("the record after reopening", &after.0, &before.0)?;
        same("the log after reopening", &after.1, &before.1)?;
        same("the list after reopening", &after.2, &before.2)?;
        let page = storage.sessions.read(session.id, ReadEvents::last(2)).await?;
        same("the last event", &page.events.last(), &before.1.last())?;
        session = done.session;
    }
    same("the state at the end", &session.status.state, &SessionState::Deleted)
}

/// Workspaces, configurations, bindings, tombstones and marks of deletion are there after reopening.
async fn all_kinds_of_objects_survive_reopening(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?;
    let gone = stage.new_workspace(&storage).await?;
    storage
        .workspaces
        .save_config(workspace.id, Some("a = 1".to_owned()), Precondition::MustNotExist)
        .await?;
    storage.workspaces.delete(gone.id).await?;
    let device: DeviceId = stage.device("laptop")?;
    storage.bindings.bind(&device, workspace.id, Precondition::MustNotExist).await?;
    for _ in 0..3 {
        storage = stage.reopen(storage).await?;
        same("the workspace", &storage.workspaces.load(workspace.id).await?, &workspace)?;
        let config = storage.workspaces.load_config(workspace.id).await?;
        same("the configuration", &config.as_deref(), &Some("a = 1"))?;
        refused!("the deleted one", storage.workspaces.load(gone.id).await, ErrorKind::Deleted)?;
        same("the binding", &storage.bindings.resolve(&device).await?, &Some(workspace.id))?;
    }
    Ok(())
}

/// Closing a session keeps everything. After it is restored, it continues: handled inputs are not handed out again,
/// unhandled ones are.
async fn suspended_session_resumes_where_it_stopped(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let (running, run) = stage.begin_run(&storage, &session, "handled").await?;
    let done =
        stage.seal_run(&running, run).with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    let idle = storage.sessions.commit(done).await?.session;
    let close = stage.seal(&idle).with_trigger(Trigger::Suspend(Reason::ResourcesReleased));
    let closed = storage.sessions.commit(close).await?.session;
    let appended = stage.append(&storage, &closed, "while closed").await?.session;
    same("the state", &appended.status.state, &SessionState::Suspended)?;
    storage = stage.reopen(storage).await?;
    let restored =
        storage.sessions.commit(stage.seal(&appended).with_trigger(Trigger::Resume)).await?.session;
    same("the state after restoring", &restored.status.state, &SessionState::Queued)?;
    same("what is handled", &restored.inputs_done_through, &running.last_input)?;
    same("what waits", &(restored.inputs_open, restored.last_input), &(1, appended.last_input))?;
    same("what is said of it", &restored.attributes, &session.attributes)?;
    let begin = Trigger::BeginRun(LeaseRequest::new("holder", stage.effects.new_run_id()));
    let taken = storage.sessions.commit(stage.seal(&restored).with_trigger(begin)).await?.session;
    same(
        "what the next run takes up",
        &(taken.inputs_done_through, taken.inputs_claimed_through),
        &(running.last_input, appended.last_input),
    )
}

fn address(stage: &Stage) -> Checked<String> {
    stage.address().ok_or_else(|| Failure::new("the factory", "an address", "none"))
}

/// Runs blocking work on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Checked<T> + Send + 'static) -> Checked<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| Failure::new("a task", "an end", error))?
}

/// Kills as many processes as the number of rounds requires, 16 on one store. After each kill, everything written so
/// far is checked.
pub(super) async fn after_each_kill<F>(
    stage: &Stage,
    check: impl Fn(Arc<Stage>, Range<usize>) -> F,
) -> Checked
where
    F: Future<Output = Checked>,
{
    stage.in_parts_of(16, (stage.settings.rounds / 25).max(2), check).await
}

/// Lets another process work until it is killed in the middle of its work. Returns the store, opened after the kill,
/// and what the process reported as done. A store whose scope is one process is closed before.
pub(super) async fn killed(stage: &Stage, storage: Storage, order: Order) -> Checked<(Storage, Vec<String>)> {
    let alone = storage.sessions.capabilities().scope == Scope::Process;
    let here = (!alone).then_some(storage);
    let (at, patience) = (address(stage)?, 1 + stage.effects.random_u64() % 12);
    let delay = Duration::from_micros(stage.effects.random_u64() % 3000);
    stage.note(format_args!("another process: {order:?}; it is killed {delay:?} after {patience} answers"));
    let messages = blocking(move || Worker::start(&order, &at)?.kill_after(patience, delay)).await?;
    drop(here);
    Ok((stage.open().await?, messages))
}

/// A process that is killed at any moment leaves every acknowledged commit, at most one more, and a session that can
/// continue.
async fn acknowledged_commits_outlive_a_kill(stage: &Stage) -> Checked {
    after_each_kill(stage, kill_appends).await
}

async fn kill_appends(stage: Arc<Stage>, kills: Range<usize>) -> Checked {
    let stage = &*stage;
    let mut storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    for round in kills {
        let order = Order::Append(session.id, format!("round {round}"), 100_000);
        let answers;
        (storage, answers) = killed(stage, storage, order).await?;
        let acknowledged = answers.iter().map(|answer| seq(answer)).collect::<Checked<Vec<_>>>()?;
        let now = storage.sessions.load(session.id).await?;
        let last = acknowledged.last().copied().unwrap_or(session.head);
        let expected: Vec<_> = (session.head.get() + 1..=last.get()).map(Seq::new).collect();
        same("what was acknowledged", &acknowledged, &expected)?;
        holds_for(
            format_args!("the head is {last}, or one more"),
            &now.head,
            now.head == last || now.head == last.next(),
        )?;
        let events = own_events(&storage, session.id, 1000).await?;
        same("the events in the log", &(events.len() as u64), &now.head.get())?;
        session = stage.append(&storage, &now, "it goes on").await?.session;
    }
    Ok(())
}

/// A process that is killed while it creates sessions leaves every acknowledged session whole, at most one more, also
/// whole, and nothing damaged.
async fn created_sessions_outlive_a_kill(stage: &Stage) -> Checked {
    after_each_kill(stage, kill_creations).await
}

async fn kill_creations(stage: Arc<Stage>, kills: Range<usize>) -> Checked {
    let stage = &*stage;
    let mut storage = stage.open().await?;
    let mut there = BTreeSet::new();
    let workspace = stage.new_workspace(&storage).await?.id;
    for round in kills {
        let acknowledged;
        (storage, acknowledged) = killed(stage, storage, Order::CreateSessions(workspace)).await?;
        let before = there.len();
        for id in &acknowledged {
            let record = storage.sessions.load(id.parse()?).await?;
            same("the messages of a session that was acknowledged", &record.counts.user, &3)?;
            same(
                "its events",
                &(own_events(&storage, record.id, 10).await?.len() as u64),
                &record.head.get(),
            )?;
            there.insert(record.id);
        }
        same("how many were acknowledged, each once", &(there.len() - before), &acknowledged.len())?;
        if !stage.lists_at_once(&storage) {
            continue;
        }
        for id in every_session(&storage).await? {
            let record = storage.sessions.load(id).await?;
            same("the messages of a session that is listed", &record.counts.user, &3)?;
            same("its events", &(own_events(&storage, id, 10).await?.len() as u64), &record.head.get())?;
            there.insert(id);
        }
        let more = there.len() - before - acknowledged.len();
        holds_for(format_args!("round {round}: at most one more"), &more, more <= 1)?;
    }
    // It goes on.
    let new = NewSession::new(stage.effects.new_session_id(), workspace);
    stage.create(&storage, new).await.map(drop)
}

/// Returns the ids of all listed sessions, and checks that none is damaged.
async fn every_session(storage: &Storage) -> Checked<Vec<SessionId>> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = storage.sessions.list(SessionQuery::new().with_hidden().with_cursor(cursor)).await?;
        same("damaged sessions", &page.damaged, &vec![])?;
        found.extend(page.items.iter().map(|session| session.id));
        ends(found.len())?;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

/// A process that is killed while it creates and configures workspaces leaves every acknowledged workspace whole, and
/// nothing damaged.
async fn workspaces_outlive_a_kill(stage: &Stage) -> Checked {
    after_each_kill(stage, kill_configurations).await
}

async fn kill_configurations(stage: Arc<Stage>, kills: Range<usize>) -> Checked {
    let stage = &*stage;
    let mut storage = stage.open().await?;
    let mut there = 0;
    for round in kills {
        let name = format!("round {round}");
        let acknowledged;
        (storage, acknowledged) = killed(stage, storage, Order::CreateWorkspaces(name.clone())).await?;
        for id in &acknowledged {
            let id = id.parse()?;
            same("the name of a workspace", &storage.workspaces.load(id).await?.name, &name)?;
            let config = storage.workspaces.load_config(id).await?;
            same("its configuration", &config.as_deref(), &Some(CONFIG))?;
        }
        let (mut listed, mut cursor) = (Vec::new(), None);
        loop {
            let page = storage.workspaces.list(WorkspaceQuery::new().with_cursor(cursor)).await?;
            same("damaged workspaces", &page.damaged, &vec![])?;
            listed.extend(page.items);
            ends(listed.len())?;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        for workspace in &listed {
            let config = storage.workspaces.load_config(workspace.id).await?;
            let whole = config.as_deref().is_none_or(|config| config == CONFIG);
            holds_for("a configuration is whole or none", &config, whole)?;
        }
        if stage.lists_at_once(&storage) {
            let more = listed.len().checked_sub(there + acknowledged.len());
            holds_for(
                format_args!("round {round}: at most one more"),
                &more,
                more.is_some_and(|more| more <= 1),
            )?;
            there = listed.len();
        }
        stage.new_workspace(&storage).await?;
        there += 1;
    }
    Ok(())
}

/// A process that is killed while it binds devices leaves every acknowledged bind, at most one more, and the earlier
/// binds.
async fn bindings_outlive_a_kill(stage: &Stage) -> Checked {
    after_each_kill(stage, kill_binds).await
}

async fn kill_binds(stage: Arc<Stage>, kills: Range<usize>) -> Checked {
    let stage = &*stage;
    let mut storage = stage.open().await?;
    let mut expected = BTreeMap::new();
    for round in kills {
        let (name, workspace) = (format!("round {round}"), stage.effects.new_workspace_id());
        let acknowledged;
        (storage, acknowledged) = killed(stage, storage, Order::BindDevices(name.clone(), workspace)).await?;
        let messages: Vec<_> = (0..acknowledged.len()).map(|n| format!("{name} {n}")).collect();
        same("what was acknowledged", &acknowledged, &messages)?;
        for device in acknowledged {
            expected.insert(stage.device(&device)?, workspace);
        }
        let one_more = stage.device(&format!("{name} {}", messages.len()))?;
        if storage.bindings.resolve(&one_more).await?.is_some() {
            expected.insert(one_more, workspace);
        }
        let beyond = stage.device(&format!("{name} {}", messages.len() + 1))?;
        same("the device after that", &storage.bindings.resolve(&beyond).await?, &None)?;
        // It goes on, too.
        let here = stage.device(&format!("here {round}"))?;
        storage.bindings.bind(&here, workspace, Precondition::MustNotExist).await?;
        expected.insert(here, workspace);
        for (device, workspace) in &expected {
            let bound = storage.bindings.resolve(device).await?;
            same(format_args!("what {device} is bound to"), &bound, &Some(*workspace))?;
        }
    }
    Ok(())
}

/// Four processes and this one append to one session: nothing is lost, doubled or out of order.
async fn processes_on_one_store_behave_like_one(stage: &Stage) -> Checked {
    let at = address(stage)?;
    let storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    let each = (stage.settings.rounds / 10).max(3) as u64;
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let (order, at) = (Order::Append(session.id, format!("process {n}"), each), at.clone());
            tokio::spawn(blocking(move || {
                let mut worker = Worker::start(&order, &at)?;
                let mut seqs = Vec::new();
                while let Some(seq) = worker.next_seq()? {
                    seqs.push(seq);
                }
                Ok(seqs)
            }))
        })
        .collect();
    let mut acknowledged = vec![session.head];
    for n in 0..each {
        let new_events = vec![NewEvent::user_message(format!("here {n}"))];
        let done = storage.sessions.append(session.id, session.head, new_events).await?;
        acknowledged.push(done.last);
        session = done.session;
    }
    for task in tasks {
        acknowledged.extend(task.await.map_err(|error| Failure::new("a task", "an end", error))??);
    }
    acknowledged.sort();
    let expected: Vec<_> = (acknowledged[0].get()..=acknowledged[0].get() + 5 * each).map(Seq::new).collect();
    same("all that was acknowledged", &acknowledged, &expected)?;
    let events = own_events(&storage, session.id, 1000).await?;
    same("the events in the log", &(events.len() as u64), &acknowledged[acknowledged.len() - 1].get())?;
    let mut texts = std::collections::BTreeSet::new();
    for event in &events {
        texts.extend(match event.decode()? {
            EventPayload::UserMessage(message) => Some(message.text),
            _ => None,
        });
    }
    same("how many different messages", &(texts.len() as u64), &(5 * each))
}

/// First contacts of one device from four processes agree on one workspace.
async fn first_contacts_from_processes_agree(stage: &Stage) -> Checked {
    let at = address(stage)?;
    let storage = stage.open().await?;
    for round in 0..3 {
        let device = stage.device(&format!("device {round}"))?;
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let order = Order::Contact(device.clone(), stage.effects.new_workspace_id());
                let at = at.clone();
                tokio::spawn(blocking(move || Worker::start(&order, &at)?.next()))
            })
            .collect();
        let mut outcome = std::collections::BTreeSet::new();
        for task in tasks {
            outcome.extend(task.await.map_err(|error| Failure::new("a task", "an end", error))??);
        }
        let bound = storage.bindings.resolve(&device).await?.map(|id| id.to_string());
        same("what all are told", &outcome.into_iter().collect(), &bound.into_iter().collect::<Vec<_>>())?;
    }
    Ok(())
}
