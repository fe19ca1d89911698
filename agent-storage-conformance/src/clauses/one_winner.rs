//! Contract 3: of N writes with the same precondition exactly one succeeds, across handles; the others get the current
//! state.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::{Decision, EventPayload, NewEvent, ToolConfirmation};
use agent_core::model::{ActionId, ActionKind, PendingAction};
use agent_core::state::SessionState;
use agent_core::store::ContentHash;
use agent_core::{ErrorKind, Seq, Storage, WriteOutcome};

use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, table};
use crate::stage::{Stage, own_events, race, split};

pub(super) fn clauses() -> Vec<Clause> {
    table![OneWinner:
        one_commit_wins_per_precondition,
        stale_precondition_is_a_conflict,
        one_creation_wins_per_session_id,
        one_creation_wins_per_workspace_id,
        one_put_wins_per_revision,
        one_configuration_wins_per_hash,
        first_contacts_of_one_device_agree,
        one_rebind_wins_per_precondition,
        appends_from_many_handles_all_land,
        one_of_eight_runs_begins,
        one_of_eight_answers_resumes,
        acknowledged_write_is_visible_to_every_handle,
        stores_of_several_backends_work_as_one,
        a_handle_serves_any_task_on_any_runtime,
    ]
}

const TASKS: usize = 8;
const HANDLES: usize = 4;

/// Checks that the losers of a race got the head.
fn all_conflicts(errors: &[agent_core::Error], head: Option<Seq>) -> Checked {
    for error in errors {
        holds_for(
            format_args!("the loser gets Conflict with head {head:?}, not applied"),
            error,
            *error.kind() == ErrorKind::Conflict { head }
                && error.write_outcome() == WriteOutcome::NotApplied,
        )?;
    }
    Ok(())
}

/// Eight commits expect the same head, from four handles: one is applied, seven get `Conflict` with the current head.
async fn one_commit_wins_per_precondition(stage: &Stage) -> Checked {
    let handles = stage.handles(HANDLES).await?;
    let mut session = stage.new_session(&handles[0]).await?;
    for round in 0..stage.settings.rounds {
        let commits: Vec<_> = (0..TASKS)
            .map(|n| {
                stage
                    .seal(&session)
                    .with_precondition(Precondition::Matches(session.head))
                    .with_event(NewEvent::user_message(format!("round {round} task {n}")))
            })
            .collect();
        let ids: Vec<_> = commits.iter().map(|commit| commit.id).collect();
        let results = race(commits.into_iter().enumerate().map(|(n, commit)| {
            let store = handles[n % HANDLES].sessions.clone();
            async move { store.commit(commit).await }
        }))
        .await?;
        let winner = results.iter().position(Result::is_ok);
        let (won, lost) = split(results);
        same(format_args!("round {round}: how many commits won"), &won.len(), &1)?;
        same("the winner's last event", &won[0].last, &session.head.next())?;
        all_conflicts(&lost, Some(session.head.next()))?;
        session = handles[round % HANDLES].sessions.load(session.id).await?;
        same("the head after the race", &session.head, &won[0].last)?;
        let written = session.recent.last().map(|recent| recent.id);
        same("the commit that is stored", &written, &winner.map(|winner| ids[winner]))?;
    }
    let events = own_events(&handles[1], session.id, 1000).await?;
    same("the number of events in the log", &(events.len() as u64), &session.head.get())
}

/// A writer that has not read the newest events is refused until it reads them; an existing session is not created
/// again. Nothing is changed.
async fn stale_precondition_is_a_conflict(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let now = stage.append(&storage, &session, "newer").await?.session;
    for _ in 0..3 {
        let stale = stage
            .seal(&session)
            .with_precondition(Precondition::Matches(session.head))
            .with_event(NewEvent::user_message("stale"));
        let result = storage.sessions.commit(stale).await;
        all_conflicts(&[refused!("a stale commit", result, ErrorKind::Conflict { .. })?], Some(now.head))?;
    }
    let ahead = stage
        .seal(&now)
        .with_precondition(Precondition::Matches(now.head.next()))
        .with_event(NewEvent::user_message("ahead"));
    let result = storage.sessions.commit(ahead).await;
    all_conflicts(
        &[refused!("a commit ahead of the head", result, ErrorKind::Conflict { .. })?],
        Some(now.head),
    )?;
    let again = agent_core::session::NewSession::new(session.id, session.workspace);
    let result = storage.sessions.commit(Commit::create(&stage.effects, again)).await;
    all_conflicts(&[refused!("a second creation", result, ErrorKind::Conflict { .. })?], Some(now.head))?;
    same("the session after the refusals", &storage.sessions.load(session.id).await?, &now)?;
    let fresh = stage
        .seal(&now)
        .with_precondition(Precondition::Matches(now.head))
        .with_event(NewEvent::user_message("fresh"));
    storage.sessions.commit(fresh).await?;
    Ok(())
}

/// One of eight creations of one session id succeeds; the session is the winner's.
async fn one_creation_wins_per_session_id(stage: &Stage) -> Checked {
    let handles = stage.handles(HANDLES).await?;
    let workspace = stage.new_workspace(&handles[0]).await?;
    for round in 0..stage.settings.rounds {
        let id = stage.effects.new_session_id();
        let results = race((0..TASKS).map(|n| {
            let store = handles[n % HANDLES].sessions.clone();
            let new = agent_core::session::NewSession::new(id, workspace.id)
                .with_patch(&agent_core::model::Patch::new().with_label("creator", n.to_string()));
            let commit = Commit::create(&stage.effects, new);
            async move { store.commit(commit).await }
        }))
        .await?;
        let winner = results.iter().position(Result::is_ok);
        let (won, lost) = split(results);
        same(format_args!("round {round}: how many creations won"), &won.len(), &1)?;
        let session = handles[round % HANDLES].sessions.load(id).await?;
        all_conflicts(&lost, Some(session.head))?;
        let creator = session.attributes.labels.get("creator").cloned();
        same("the session that is stored", &creator, &winner.map(|n| n.to_string()))?;
    }
    Ok(())
}

/// One of eight creations of one workspace id succeeds; the record is the winner's.
async fn one_creation_wins_per_workspace_id(stage: &Stage) -> Checked {
    let handles = stage.handles(HANDLES).await?;
    for round in 0..stage.settings.rounds {
        let workspace = stage.workspace("contested");
        let results = race((0..TASKS).map(|n| {
            let store = handles[n % HANDLES].workspaces.clone();
            let workspace = workspace.clone().with_name(format!("name {n}"));
            async move { store.put(workspace, Precondition::MustNotExist).await }
        }))
        .await?;
        let winner = results.iter().position(Result::is_ok);
        let (won, lost) = split(results);
        same(format_args!("round {round}: how many creations won"), &won.len(), &1)?;
        all_conflicts(&lost, None)?;
        let stored = handles[round % HANDLES].workspaces.load(workspace.id).await?;
        same("the workspace that is stored", &Some(stored.name), &winner.map(|n| format!("name {n}")))?;
    }
    Ok(())
}

/// One of eight puts of the same revision succeeds, and the revision grows by one.
async fn one_put_wins_per_revision(stage: &Stage) -> Checked {
    let handles = stage.handles(HANDLES).await?;
    let mut workspace = stage.new_workspace(&handles[0]).await?;
    for round in 0..stage.settings.rounds {
        let results = race((0..TASKS).map(|n| {
            let store = handles[n % HANDLES].workspaces.clone();
            let changed = workspace.clone().with_name(format!("round {round} name {n}"));
            let expect = Precondition::Matches(workspace.revision);
            async move { store.put(changed, expect).await }
        }))
        .await?;
        let (won, lost) = split(results);
        same(format_args!("round {round}: how many puts won"), &won.len(), &1)?;
        all_conflicts(&lost, None)?;
        let stored = handles[round % HANDLES].workspaces.load(workspace.id).await?;
        same("the workspace that is stored", &stored, &won[0])?;
        same("its revision", &stored.revision, &workspace.revision.next())?;
        workspace = stored;
    }
    Ok(())
}

/// One of eight changes of the same configuration succeeds; people and programs do not overwrite each other.
async fn one_configuration_wins_per_hash(stage: &Stage) -> Checked {
    let handles = stage.handles(HANDLES).await?;
    let workspace = stage.new_workspace(&handles[0]).await?;
    let mut expect = Precondition::MustNotExist;
    for round in 0..stage.settings.rounds {
        let texts: Vec<_> = (0..TASKS).map(|n| format!("round = {round}\ntask = {n}\n")).collect();
        let results = race(texts.iter().cloned().enumerate().map(|(n, text)| {
            let (store, id) = (handles[n % HANDLES].workspaces.clone(), workspace.id);
            async move { store.save_config(id, Some(text), expect).await }
        }))
        .await?;
        let winner = results.iter().position(Result::is_ok);
        let (won, lost) = split(results);
        same(format_args!("round {round}: how many changes won"), &won.len(), &1)?;
        all_conflicts(&lost, None)?;
        let stored = handles[round % HANDLES].workspaces.load_config(workspace.id).await?;
        same("the configuration that is stored", &stored, &winner.map(|n| texts[n].clone()))?;
        expect = Precondition::Matches(ContentHash::of(stored.as_deref().unwrap_or_default()));
    }
    Ok(())
}

/// Eight first contacts of one device, each with a different workspace, agree on one.
async fn first_contacts_of_one_device_agree(stage: &Stage) -> Checked {
    stage.in_parts(race_first_contacts).await
}

async fn race_first_contacts(stage: Arc<Stage>, rounds: Range<usize>) -> Checked {
    let handles = stage.handles(HANDLES).await?;
    for round in rounds {
        let device = stage.device(&format!("device {round}"))?;
        let ids: Vec<_> = (0..TASKS).map(|_| stage.effects.new_workspace_id()).collect();
        let results = race(ids.iter().copied().enumerate().map(|(n, id)| {
            let (store, device) = (handles[n % HANDLES].bindings.clone(), device.clone());
            async move { store.bind(&device, id, Precondition::MustNotExist).await }
        }))
        .await?;
        let (bound, failed) = split(results);
        holds_for("no first contact fails", &failed, failed.is_empty())?;
        let winners: BTreeSet<_> = bound.into_iter().collect();
        holds_for(format_args!("round {round}: all are told one workspace"), &winners, winners.len() == 1)?;
        let resolved = handles[round % HANDLES].bindings.resolve(&device).await?;
        same("what the device is bound to", &resolved, &winners.first().copied())?;
        holds_for(
            "it is one of those that were tried",
            &resolved,
            resolved.is_some_and(|id| ids.contains(&id)),
        )?;
    }
    Ok(())
}

/// One of eight rebinds that expect the same workspace succeeds; the others get `Conflict`.
async fn one_rebind_wins_per_precondition(stage: &Stage) -> Checked {
    let handles = stage.handles(HANDLES).await?;
    let device = stage.device("shared")?;
    let mut now = stage.effects.new_workspace_id();
    handles[0].bindings.bind(&device, now, Precondition::MustNotExist).await?;
    for round in 0..stage.settings.rounds {
        let results = race((0..TASKS).map(|n| {
            let (store, device) = (handles[n % HANDLES].bindings.clone(), device.clone());
            let to = stage.effects.new_workspace_id();
            async move { store.bind(&device, to, Precondition::Matches(now)).await }
        }))
        .await?;
        let (won, lost) = split(results);
        same(format_args!("round {round}: how many rebinds won"), &won.len(), &1)?;
        all_conflicts(&lost, None)?;
        now = won[0];
        same("what the device is bound to", &handles[1].bindings.resolve(&device).await?, &Some(now))?;
    }
    Ok(())
}

/// Appends without an expectation, from eight tasks on four handles, are all applied, each once, in an order without
/// gaps.
async fn appends_from_many_handles_all_land(stage: &Stage) -> Checked {
    let handles = stage.handles(HANDLES).await?;
    let session = stage.new_session(&handles[0]).await?;
    let each = (stage.settings.rounds / TASKS).max(2);
    let results = race((0..TASKS).map(|task| {
        let store = handles[task % HANDLES].sessions.clone();
        let (id, mut seen) = (session.id, session.head);
        async move {
            let mut acknowledged = Vec::new();
            for n in 0..each {
                let events = vec![NewEvent::user_message(format!("task {task} message {n}"))];
                let done = store.append(id, seen, events).await?;
                acknowledged.push((done.last, format!("task {task} message {n}")));
                seen = done.last;
            }
            Ok::<_, agent_core::Error>(acknowledged)
        }
    }))
    .await?;
    let mut acknowledged = Vec::new();
    for result in results {
        acknowledged.extend(result?);
    }
    acknowledged.sort();
    let events = own_events(&handles[1], session.id, 1000).await?;
    let sequence: Vec<_> = events.iter().map(|event| event.seq.get()).collect();
    same("the sequence", &sequence, &(1..=events.len() as u64).collect::<Vec<_>>())?;
    let stored: Vec<_> = events
        .iter()
        .filter_map(|event| match event.decode() {
            Ok(EventPayload::UserMessage(message)) => Some((event.seq, message.text)),
            _ => None,
        })
        .collect();
    same("what is stored, against what was acknowledged", &stored, &acknowledged)
}

/// One of eight runs that try to begin succeeds; the others get the holder's name.
async fn one_of_eight_runs_begins(stage: &Stage) -> Checked {
    let handles = stage.handles(HANDLES).await?;
    let mut session = stage.new_session(&handles[0]).await?;
    for round in 0..stage.settings.rounds {
        session = stage.append(&handles[0], &session, "work").await?.session;
        let runs: Vec<_> = (0..TASKS).map(|_| stage.effects.new_run_id()).collect();
        let results = race(runs.iter().copied().enumerate().map(|(n, run)| {
            let store = handles[n % HANDLES].sessions.clone();
            let request = LeaseRequest::new(format!("holder {n}"), run);
            let commit = stage.seal(&session).with_trigger(Trigger::BeginRun(request));
            async move { store.commit(commit).await }
        }))
        .await?;
        let winner = results.iter().position(Result::is_ok);
        let (won, lost) = split(results);
        same(format_args!("round {round}: how many runs began"), &won.len(), &1)?;
        let holder = winner.map(|n| format!("holder {n}")).unwrap_or_default();
        for error in &lost {
            let busy = ErrorKind::Busy { holder: holder.clone() };
            holds_for("the others are Busy, with the holder's name", error, *error.kind() == busy)?;
        }
        session = handles[round % HANDLES].sessions.load(session.id).await?;
        same("the state", &session.status.state, &SessionState::Running)?;
        same("the epoch grew by one per run", &session.epoch.get(), &(round as u64 + 1))?;
        let run = winner.map(|n| runs[n]).ok_or_else(|| Failure::new("the runs", "a winner", "none"))?;
        let end = RunEnd::Completed(agent_core::state::Reason::EndTurn);
        let end = stage.seal_run(&session, run).with_trigger(Trigger::EndRun(end));
        session = handles[0].sessions.commit(end).await?.session;
    }
    Ok(())
}

/// One of eight answers to one question, from any device, resumes the session.
async fn one_of_eight_answers_resumes(stage: &Stage) -> Checked {
    let handles = stage.handles(HANDLES).await?;
    let mut session = stage.new_session(&handles[0]).await?;
    for round in 0..stage.settings.rounds {
        let (running, run) = stage.begin_run(&handles[0], &session, "delete it?").await?;
        let action: ActionId = format!("question {round}").parse()?;
        let question = PendingAction::new(action.clone(), ActionKind::Approval, "Really?");
        let wait = stage.seal_run(&running, run).with_trigger(Trigger::EndRun(RunEnd::Await(question)));
        let waiting = handles[0].sessions.commit(wait).await?.session;
        same("the state", &waiting.status.state, &SessionState::RequiresAction)?;
        let results = race((0..TASKS).map(|n| {
            let store = handles[n % HANDLES].sessions.clone();
            let decision = if n % 2 == 0 { Decision::Allow } else { Decision::Deny };
            let answer = EventPayload::UserToolConfirmation(ToolConfirmation::new(action.clone(), decision));
            let commit = stage.seal(&waiting).with_event(NewEvent::of(&answer));
            async move { store.commit(commit).await }
        }))
        .await?;
        let (won, lost) = split(results);
        same(format_args!("round {round}: how many answers were taken"), &won.len(), &1)?;
        for error in &lost {
            holds_for(
                "the others are InvalidTransition",
                error,
                matches!(error.kind(), ErrorKind::InvalidTransition { from: SessionState::Queued, .. }),
            )?;
        }
        let stop = stage.seal(&won[0].session).with_event(NewEvent::interrupt());
        session = handles[0].sessions.commit(stop).await?.session;
    }
    Ok(())
}

/// A write that one handle has acknowledged is read immediately by every other handle.
async fn acknowledged_write_is_visible_to_every_handle(stage: &Stage) -> Checked {
    let handles = stage.handles(HANDLES).await?;
    let mut session = stage.new_session(&handles[0]).await?;
    for n in 0..stage.settings.rounds {
        let (writer, reader) = (&handles[n % HANDLES], &handles[(n + 1) % HANDLES]);
        let done = stage.append(writer, &session, &format!("message {n}")).await?;
        same("the number of the message", &done.last, &session.head.next())?;
        same("the record, on another handle", &reader.sessions.load(session.id).await?, &done.session)?;
        let page = reader.sessions.read(session.id, agent_core::store::ReadEvents::last(1)).await?;
        same("its last event, on another handle", &page.events.first().map(|e| e.seq), &Some(done.last))?;
        // Few devices: some stores rewrite all bindings for one.
        let (device, to) = (stage.device(&format!("device {}", n % 50))?, stage.effects.new_workspace_id());
        writer.bindings.bind(&device, to, Precondition::None).await?;
        let bound = reader.bindings.resolve(&device).await?;
        same("the binding, on another handle", &bound, &Some(to))?;
        session = done.session;
    }
    Ok(())
}

/// A storage whose three stores come from three handles, or one of them from another backend, answers like one store.
async fn stores_of_several_backends_work_as_one(stage: &Stage) -> Checked {
    let handles = stage.handles(3).await?;
    let other: Storage = agent_core::MemoryStore::new().into();
    let (workspaces, sessions, bindings) =
        (handles[0].workspaces.clone(), handles[1].sessions.clone(), handles[2].bindings.clone());
    for storage in [
        Storage::new(workspaces.clone(), sessions.store().clone(), bindings.clone()),
        Storage::new(other.workspaces.clone(), sessions.store().clone(), bindings.clone()),
        Storage::new(workspaces.clone(), other.sessions.store().clone(), bindings),
        Storage::new(workspaces, sessions.store().clone(), other.bindings.clone()),
    ] {
        let device = stage.device(&format!("device {}", stage.effects.new_uuid()))?;
        let session = stage.new_session(&storage).await?;
        let bound = storage.bindings.bind(&device, session.workspace, Precondition::MustNotExist).await?;
        same("what the device is bound to", &bound, &session.workspace)?;
        same("its workspace", &storage.workspaces.load(bound).await?.id, &session.workspace)?;
        let appended = stage.append(&storage, &session, "hello").await?;
        let query = agent_core::store::SessionQuery::new().with_workspace(bound);
        let listed = storage.sessions.list(query).await?;
        same("its session", &listed.items.first().map(|item| item.head), &Some(appended.last))?;
        storage.workspaces.delete(bound).await?;
        same("unbinding it", &storage.bindings.unbind_workspace(bound).await?, &1)?;
    }
    Ok(())
}

/// A handle that was opened here serves tasks of other threads and other runtimes, several at a time.
async fn a_handle_serves_any_task_on_any_runtime(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let threads: Vec<_> = (0..3)
        .map(|n| {
            let (storage, id, seen) = (storage.clone(), session.id, session.head);
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime =
                    runtime.map_err(|error| Failure::new("starting a runtime", "success", error))?;
                runtime.block_on(async move {
                    let events = vec![NewEvent::user_message(format!("thread {n}"))];
                    let done = storage.sessions.append(id, seen, events).await?;
                    storage.workspaces.load(done.session.workspace).await?;
                    Ok::<_, Failure>(done.last)
                })
            })
        })
        .collect();
    let ended =
        tokio::task::spawn_blocking(move || threads.into_iter().map(std::thread::JoinHandle::join).collect());
    let ended: Vec<_> = ended.await.map_err(|error| Failure::new("the threads", "an end", error))?;
    let mut last = Vec::new();
    for thread in ended {
        last.push(thread.map_err(|_| Failure::new("a thread", "no panic", "a panic"))??.get());
    }
    last.sort_unstable();
    let head = session.head.get();
    same("where their messages stand", &last, &vec![head + 1, head + 2, head + 3])
}
