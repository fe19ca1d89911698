//! Contract 5: a run's writes succeed only while a lease of its epoch is live, however late they arrive. Inputs need
//! no lease, and readers are never blocked.

use std::sync::Arc;

use agent_core::commit::{EPOCHS_PER_FENCE, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{EventPayload, NewEvent};
use agent_core::model::Status;
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::store::ReadEvents;
use agent_core::{Epoch, ErrorKind, Seq, Storage, WriteOutcome};

use crate::failure::{Checked, holds_for, refused, same};
use crate::registry::{Clause, table};
use crate::stage::{Stage, own_events, race, walk};

pub(super) fn clauses() -> Vec<Clause> {
    table![Fenced:
        run_writes_while_its_lease_is_live,
        an_ended_run_writes_nothing_more,
        replaced_run_writes_nothing_more,
        epoch_without_a_lease_writes_nothing,
        late_write_precedes_the_takeover_or_is_fenced,
        second_run_is_refused_with_the_holders_name,
        only_the_run_writes_as_the_agent,
        inputs_and_readers_need_no_lease,
        a_forced_end_fences_the_run,
        a_fence_leaves_the_epochs_of_before_behind,
        heartbeats_are_visible_and_are_not_events,
        only_one_holder_prepares_at_a_time,
    ]
}

/// Checks that a fenced write is refused with the newest epoch, and changes nothing.
async fn is_fenced(
    storage: &Storage,
    what: &str,
    commit: agent_core::commit::Commit,
    newest: Epoch,
) -> Checked {
    let before = storage.sessions.load(commit.session).await?;
    let result = storage.sessions.commit(commit).await;
    let error = refused!(what, result, ErrorKind::Fenced { epoch } if *epoch == newest)?;
    same("whether it may have happened", &error.write_outcome(), &WriteOutcome::NotApplied)?;
    same("the session after it", &storage.sessions.load(before.id).await?, &before)
}

fn ends() -> [(&'static str, RunEnd); 4] {
    let failure = agent_core::model::Failure::new(Reason::RunError, "the model gave up");
    [
        ("completed", RunEnd::Completed(Reason::EndTurn)),
        ("interrupted", RunEnd::Interrupted),
        ("failed", RunEnd::Failed(failure.clone())),
        ("to be tried again", RunEnd::retry(failure, crate::stage::START, 100)),
    ]
}

/// A run writes as the agent, any number of times, while its lease is live.
async fn run_writes_while_its_lease_is_live(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let session = stage.new_session(&handles[0]).await?;
    let (mut session, run) = stage.begin_run(&handles[0], &session, "work").await?;
    let epoch = session.epoch;
    for n in 0..20 {
        let commit = stage.seal_run(&session, run).with_event(NewEvent::agent_message(format!("part {n}")));
        session = handles[n % 2].sessions.commit(commit).await?.session;
        same("the epoch", &session.epoch, &epoch)?;
    }
    let last = own_events(&handles[0], session.id, 100).await?.pop();
    same("the run of the last event", &last.and_then(|event| event.run), &Some(run))
}

/// After a run has ended in any way, its writes are `Fenced`, even before another run begins, and the error names the
/// newest epoch.
async fn an_ended_run_writes_nothing_more(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    for (how, end) in ends() {
        stage.note(format_args!("a run that ends {how}"));
        let (running, run) = stage.begin_run(&storage, &session, "work").await?;
        let end = stage.seal_run(&running, run).with_trigger(Trigger::EndRun(end));
        session = storage.sessions.commit(end).await?.session;
        let late =
            stage.seal(&session).with_fence(run, running.epoch).with_event(NewEvent::agent_message("late"));
        is_fenced(&storage, "a write after the end", late, running.epoch).await?;
        let input =
            stage.seal(&session).with_fence(run, running.epoch).with_event(NewEvent::user_message("late"));
        is_fenced(&storage, "an input under an ended lease", input, running.epoch).await?;
        let end_again = stage
            .seal(&session)
            .with_fence(run, running.epoch)
            .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
        is_fenced(&storage, "a second end", end_again, running.epoch).await?;
    }
    Ok(())
}

/// Takes the session over from its current run.
async fn take_over(stage: &Stage, storage: &Storage, session: &SessionRecord) -> Checked<Arc<SessionRecord>> {
    let request = LeaseRequest::new("successor", stage.effects.new_run_id());
    let commit = stage
        .seal(session)
        .with_trigger(Trigger::LeaseExpired(session.epoch))
        .with_trigger(Trigger::BeginRun(request));
    Ok(storage.sessions.commit(commit).await?.session)
}

/// After a take-over the old run's writes are permanently `Fenced`, on every handle; the new run writes.
async fn replaced_run_writes_nothing_more(stage: &Stage) -> Checked {
    let mut handles = stage.handles(2).await?;
    let session = stage.new_session(&handles[0]).await?;
    let (first, run) = stage.begin_run(&handles[0], &session, "work").await?;
    let taken = take_over(stage, &handles[1], &first).await?;
    same("the successor's epoch", &taken.epoch, &first.epoch.next())?;
    for round in 0..3 {
        let late = stage.seal_run(&first, run).with_event(NewEvent::agent_message("from the grave"));
        is_fenced(&handles[round % 2], "a write of the former run", late, taken.epoch).await?;
        let reopened = stage.reopen(handles.remove(0)).await?;
        handles.push(reopened);
    }
    let holder = taken.lease.as_ref().map(|lease| lease.run);
    let run = holder.ok_or_else(|| crate::Failure::new("the lease", "the successor's", "none"))?;
    let commit = stage.seal_run(&taken, run).with_event(NewEvent::agent_message("alive"));
    let end = stage.seal(&handles[0].sessions.commit(commit).await?.session).with_fence(run, taken.epoch);
    let end = end.with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    let ended = handles[0].sessions.commit(end).await?.session;
    same("the state", &ended.status.state, &SessionState::Idle)
}

/// A write with a future epoch, or with an epoch that had no lease, is refused.
async fn epoch_without_a_lease_writes_nothing(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let run = stage.effects.new_run_id();
    for epoch in [0, 1, 7, u64::MAX] {
        let commit =
            stage.seal(&session).with_fence(run, Epoch::new(epoch)).with_event(NewEvent::agent_message("?"));
        is_fenced(&storage, "a write without any lease", commit, Epoch::ZERO).await?;
    }
    let (running, run) = stage.begin_run(&storage, &session, "work").await?;
    for epoch in [running.epoch.get() + 1, u64::MAX, 0] {
        let commit =
            stage.seal(&running).with_fence(run, Epoch::new(epoch)).with_event(NewEvent::agent_message("?"));
        is_fenced(&storage, "a write of another epoch", commit, running.epoch).await?;
    }
    Ok(())
}

/// If a run's write and a take-over happen at the same time, either the write comes before the take-over in the log,
/// or it is `Fenced` and not in the log.
async fn late_write_precedes_the_takeover_or_is_fenced(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let mut session = stage.new_session(&handles[0]).await?;
    for round in 0..stage.settings.rounds {
        let (running, run) = stage.begin_run(&handles[0], &session, "work").await?;
        let late = stage.seal_run(&running, run).with_event(NewEvent::agent_message("at the last moment"));
        let successor = stage.effects.new_run_id();
        let request = LeaseRequest::new("successor", successor);
        let take_over = stage
            .seal(&running)
            .with_trigger(Trigger::LeaseExpired(running.epoch))
            .with_trigger(Trigger::BeginRun(request));
        let id = late.id;
        // Where one core is busy the first to be started is always the first to arrive: they take turns in that.
        let late_first = round % 2 == 0;
        let mut commits = [(handles[0].sessions.clone(), late), (handles[1].sessions.clone(), take_over)];
        if !late_first {
            commits.reverse();
        }
        let mut results =
            race(commits.map(|(store, commit)| async move { store.commit(commit).await })).await?;
        if !late_first {
            results.reverse();
        }
        let taken = results.pop().transpose()?;
        let late = results.pop();
        let from = taken.as_ref().map_or(Seq::ZERO, |taken| taken.first);
        // All that the race wrote; what came before is the earlier rounds'.
        let read = ReadEvents::first(100).with_after(running.head);
        let events = walk(&handles[round % 2], session.id, read).await?;
        let written = events.iter().find(|event| event.commit == id).map(|event| event.seq);
        match late {
            Some(Ok(done)) => {
                same("where the late write stands", &written, &Some(done.last))?;
                holds_for("before the take-over", &(done.last, from), done.last < from)?;
            }
            Some(Err(error)) => {
                let fenced = ErrorKind::Fenced { epoch: running.epoch.next() };
                holds_for("a refused late write is Fenced", &error, *error.kind() == fenced)?;
                same("where the refused write stands", &written, &None)?;
            }
            None => {}
        }
        if let Some(taken) = taken {
            let end = stage.seal_run(&taken.session, successor);
            let end = end.with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
            session = handles[0].sessions.commit(end).await?.session;
        }
    }
    Ok(())
}

/// While a run holds the session, another cannot begin, and the answer names the holder. With `if_ready` the rest of
/// the second run's commit is stored, and the answer names the holder.
async fn second_run_is_refused_with_the_holders_name(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let session = stage.new_session(&handles[0]).await?;
    let (running, _) = stage.begin_run(&handles[0], &session, "first").await?;
    let request = LeaseRequest::new("second device", stage.effects.new_run_id());
    let refused = stage
        .seal(&running)
        .with_event(NewEvent::user_message("second"))
        .with_trigger(Trigger::BeginRun(request.clone()));
    let result = handles[1].sessions.commit(refused).await;
    refused!("a second run", result, ErrorKind::Busy { holder } if holder == "holder")?;
    same("the session", &handles[1].sessions.load(session.id).await?, &running)?;
    let kept = stage
        .seal(&running)
        .with_event(NewEvent::user_message("second"))
        .with_trigger(Trigger::BeginRun(request.if_ready()));
    let kept = handles[1].sessions.commit(kept).await?;
    same("the lease that it took", &kept.epoch, &None)?;
    let holder = kept.session.lease.as_ref().map(|lease| lease.holder.clone());
    same("the holder in the answer", &holder.as_deref(), &Some("holder"))?;
    same("inputs that wait", &kept.session.inputs_new, &1)
}

/// While a run holds the session, only that run writes as the agent, so that nothing is interleaved.
async fn only_the_run_writes_as_the_agent(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let (running, _) = stage.begin_run(&storage, &session, "work").await?;
    for event in [
        NewEvent::agent_message("not from the run"),
        NewEvent::tool_use("call".parse()?, "rm", agent_core::json::RawJson::empty_object()),
        NewEvent::of(&EventPayload::AgentThinking(agent_core::event::Message::new("hm"))),
    ] {
        let result = storage.sessions.commit(stage.seal(&running).with_event(event)).await;
        refused!("an agent's event without the lease", result, ErrorKind::Busy { .. })?;
    }
    same("the session", &storage.sessions.load(session.id).await?, &running)
}

/// Inputs from any device are stored while a run holds the session, and reads and lists still work.
async fn inputs_and_readers_need_no_lease(stage: &Stage) -> Checked {
    let handles = stage.handles(3).await?;
    let session = stage.new_session(&handles[0]).await?;
    let (mut session, run) = stage.begin_run(&handles[0], &session, "first").await?;
    for n in 0..5 {
        let done = stage.append(&handles[1], &session, &format!("meanwhile {n}")).await?;
        same("the state", &done.session.status.state, &SessionState::Running)?;
        same("the record, on a third handle", &handles[2].sessions.load(session.id).await?, &done.session)?;
        let page = handles[2].sessions.read(session.id, agent_core::store::ReadEvents::last(1)).await?;
        same("the last event", &page.events.first().map(|event| event.seq), &Some(done.last))?;
        session = done.session;
    }
    let end = stage.seal_run(&session, run).with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    let ended = handles[0].sessions.commit(end).await?.session;
    same("what waits after the run", &(ended.inputs_open, ended.status.state), &(5, SessionState::Queued))
}

/// A forced end of a session (suspend, fail, terminate, delete) fences its run in the same commit.
async fn a_forced_end_fences_the_run(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let failure = agent_core::model::Failure::new(Reason::SystemError, "the disk is gone");
    for trigger in [
        Trigger::ForceSuspend(Reason::UserPaused),
        Trigger::Fail(failure),
        Trigger::Terminate(Reason::UserEnded),
    ] {
        let session = stage.new_session(&storage).await?;
        let (running, run) = stage.begin_run(&storage, &session, "work").await?;
        let ended = storage.sessions.commit(stage.seal(&running).with_trigger(trigger)).await?.session;
        same("the lease", &ended.lease, &None)?;
        same("the epoch", &ended.epoch, &running.epoch.next())?;
        let late = stage.seal_run(&running, run).with_event(NewEvent::agent_message("late"));
        is_fenced(&storage, "a write of the run", late, ended.epoch).await?;
    }
    let session = stage.new_session(&storage).await?;
    let (running, run) = stage.begin_run(&storage, &session, "work").await?;
    let delete = stage.seal(&running).with_trigger(Trigger::Delete(Reason::UserDeleted));
    storage.sessions.commit(delete).await?;
    let late = stage.seal_run(&running, run).with_event(NewEvent::agent_message("late"));
    refused!("a write to a deleted session", storage.sessions.commit(late).await, ErrorKind::Deleted)?;
    Ok(())
}

/// After a fence, no run of before writes, and none whose epoch the log does not know: as if the session were restored from a backup that
/// is older than the run. The next run has an epoch that no such run had.
async fn a_fence_leaves_the_epochs_of_before_behind(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let (storage, other) = (&handles[0], &handles[1]);
    let session = stage.new_session(storage).await?;
    let (running, run) = stage.begin_run(storage, &session, "work").await?;
    let fenced = storage.sessions.commit(stage.seal(&running).with_trigger(Trigger::Fence)).await?.session;
    same("the lease", &fenced.lease, &None)?;
    same("the state", &fenced.status, &Status::new(SessionState::Queued, Reason::LeaseLost))?;
    let raised = |from: Epoch, to: Epoch| to.get() >= from.get() + EPOCHS_PER_FENCE;
    holds_for("the epoch after a fence", &fenced.epoch, raised(running.epoch, fenced.epoch))?;
    let late = stage.seal_run(&running, run).with_event(NewEvent::agent_message("late"));
    is_fenced(storage, "a write of the run", late, fenced.epoch).await?;

    let (next, _) = stage.begin_run(storage, &fenced, "more").await?;
    same("the epoch of the next run", &next.epoch, &fenced.epoch.next())?;
    let mut lost = running.epoch;
    for _ in 0..3 {
        lost = lost.next();
        let late = stage.seal(&next).with_fence(run, lost).with_event(NewEvent::agent_message("late"));
        is_fenced(storage, "a write of a run that the log does not have", late, next.epoch).await?;
    }
    let again = storage.sessions.commit(stage.seal(&next).with_trigger(Trigger::Fence)).await?.session;
    holds_for("the epoch after another fence", &again.epoch, raised(next.epoch, again.epoch))?;
    same("the session on another handle", &other.sessions.load(session.id).await?, &again)?;
    Ok(())
}

/// Each heartbeat of the holder changes the result of `LeaseStore::status` on every handle, and reading it changes nothing. A
/// heartbeat is not an event, and one of an old epoch has no effect.
async fn heartbeats_are_visible_and_are_not_events(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let session = stage.new_session(&handles[0]).await?;
    let (running, _) = stage.begin_run(&handles[0], &session, "work").await?;
    let (id, epoch) = (session.id, running.epoch);
    let mut last = handles[1].sessions.leases().status(id, epoch).await?;
    for _ in 0..5 {
        let inspected = handles[1].sessions.leases().status(id, epoch).await?;
        same("the lease status between two heartbeats", &inspected.heartbeat, &last.heartbeat)?;
        handles[0].sessions.leases().heartbeat(id, epoch).await?;
        let next = handles[1].sessions.leases().status(id, epoch).await?;
        holds_for("a heartbeat changes the lease status", &(last, next), next.heartbeat != last.heartbeat)?;
        last = next;
    }
    same("the session", &handles[1].sessions.load(id).await?, &running)?;
    let taken = take_over(stage, &handles[1], &running).await?;
    let before = handles[1].sessions.leases().status(id, taken.epoch).await?;
    handles[0].sessions.leases().heartbeat(id, epoch).await?;
    let after = handles[1].sessions.leases().status(id, taken.epoch).await?;
    same(
        "the successor's lease status after a heartbeat of the former run",
        &after.heartbeat,
        &before.heartbeat,
    )?;
    let unknown = stage.effects.new_session_id();
    refused!(
        "a heartbeat for no session",
        handles[0].sessions.leases().heartbeat(unknown, epoch).await,
        ErrorKind::NotFound
    )?;
    refused!(
        "the lease status of no session",
        handles[0].sessions.leases().status(unknown, epoch).await,
        ErrorKind::NotFound
    )?;
    Ok(())
}

/// Only one holder prepares a session at a time; a dead one is replaced.
async fn only_one_holder_prepares_at_a_time(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let new = stage.session(&storage).await?;
    let (first, second) = (stage.effects.new_run_id(), stage.effects.new_run_id());
    let create = agent_core::commit::Commit::seal(&stage.effects, new.id, Seq::ZERO)
        .with_precondition(agent_core::commit::Precondition::MustNotExist)
        .with_trigger(Trigger::Create(Box::new(new)))
        .with_trigger(Trigger::Prepare(LeaseRequest::new("first", first)));
    let preparing = storage.sessions.commit(create).await?.session;
    same("the state", &preparing.status.state, &SessionState::Initializing)?;
    let other = stage.seal(&preparing).with_trigger(Trigger::Prepare(LeaseRequest::new("second", second)));
    refused!("a second preparer", storage.sessions.commit(other).await, ErrorKind::Busy { holder } if holder == "first")?;
    let replace = stage
        .seal(&preparing)
        .with_trigger(Trigger::LeaseExpired(preparing.epoch))
        .with_trigger(Trigger::Prepare(LeaseRequest::new("second", second)));
    let replaced = storage.sessions.commit(replace).await?.session;
    let late = stage.seal_run(&preparing, first).with_trigger(Trigger::Ready);
    is_fenced(&storage, "the former preparer's end", late, replaced.epoch).await?;
    let ready = stage.seal_run(&replaced, second).with_trigger(Trigger::Ready);
    let ready = storage.sessions.commit(ready).await?.session;
    same("the state", &(ready.status.state, ready.lease.clone()), &(SessionState::Idle, None))
}
