//! Due sessions: found across sessions by the time at which a scheduler must next check each.

use std::sync::Arc;

use agent_core::commit::{Commit, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{ActionKind, Failure as RunFailure, Patch, PendingAction, Timer};
use agent_core::session::{NewSession, SessionRecord, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::SessionQuery;
use agent_core::{SessionId, Storage, Timestamp};

use super::lists::all_sessions;
use crate::failure::{Checked, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{START, Stage};

pub(super) fn clauses() -> Vec<Clause> {
    table![Lists:
        due_sessions_are_listed_in_due_order (Needs::ImmediateLists),
        due_sessions_are_found_after_reopening (Needs::ImmediateLists),
        completed_work_is_no_longer_due (Needs::ImmediateLists),
        finished_child_is_due_until_reported (Needs::ImmediateLists),
        pages_of_due_sessions_neither_skip_nor_repeat (Needs::ImmediateLists),
        due_sessions_can_be_filtered (Needs::ImmediateLists),
    ]
}

fn minutes(minutes: i64) -> Timestamp {
    START.plus_micros(minutes * 60_000_000)
}

async fn due_ids(storage: &Storage, until: Timestamp) -> Checked<Vec<SessionId>> {
    Ok(all_sessions(storage, SessionQuery::new().with_due(until))
        .await?
        .iter()
        .map(|session| session.id)
        .collect())
}

async fn wake_at(
    stage: &Stage,
    storage: &Storage,
    session: &SessionRecord,
    at: Timestamp,
) -> Checked<Arc<SessionRecord>> {
    let timer = NewEvent::timer_scheduled(Timer::new("daily", at));
    Ok(storage.sessions.commit(stage.seal(session).with_event(timer)).await?.session)
}

/// Creates one session for each reason to be due, and several that are not due. Returns the due ones in their order.
async fn one_of_each(stage: &Stage, storage: &Storage) -> Checked<Vec<(i64, SessionId)>> {
    let mut expected = Vec::new();
    // Its writer's clock is a day ahead: what waits now waits now.
    let waits = stage.new_session(storage).await?;
    let ahead = Commit::new(stage.effects.new_commit_id(), waits.id, minutes(24 * 60), waits.head)
        .with_event(NewEvent::user_message("an input"));
    storage.sessions.commit(ahead).await?;
    expected.push((0, waits.id));
    for at in [30, 10, 20] {
        let session = stage.new_session(storage).await?;
        wake_at(stage, storage, &session, minutes(at + 60)).await?;
        let session = storage.sessions.load(session.id).await?;
        // The timer of the same key takes the place of the first.
        expected.push((at, wake_at(stage, storage, &session, minutes(at)).await?.id));
    }
    let fails = stage.new_session(storage).await?;
    let (running, run) = stage.begin_run(storage, &fails, "go").await?;
    let failure = RunFailure::new(Reason::RunError, "the model is away");
    let retry = Trigger::EndRun(RunEnd::retry(failure, minutes(25), 9));
    storage.sessions.commit(stage.seal_run(&running, run).with_trigger(retry)).await?;
    expected.push((25, fails.id));
    for expires in [Some(35), None] {
        let asks = stage.new_session(storage).await?;
        let (running, run) = stage.begin_run(storage, &asks, "may you?").await?;
        let mut action = PendingAction::new("question".parse()?, ActionKind::Approval, "Really?");
        if let Some(at) = expires {
            action = action.with_expires_at(minutes(at));
            expected.push((at, asks.id));
        }
        let end = Trigger::EndRun(RunEnd::Await(action));
        storage.sessions.commit(stage.seal_run(&running, run).with_trigger(end)).await?;
    }
    // Idle; running; suspended with an input; hidden.
    stage.new_session(storage).await?;
    let runs = stage.new_session(storage).await?;
    stage.begin_run(storage, &runs, "go").await?;
    let suspended = stage.new_session(storage).await?;
    let suspended = stage.append(storage, &suspended, "later").await?.session;
    let suspend = stage.seal(&suspended).with_trigger(Trigger::Suspend(Reason::UserPaused));
    storage.sessions.commit(suspend).await?;
    let archived = stage.new_session(storage).await?;
    let archived = wake_at(stage, storage, &archived, minutes(1)).await?;
    storage.sessions.commit(stage.seal(&archived).with_trigger(Trigger::Archive)).await?;
    expected.sort_unstable();
    Ok(expected)
}

fn by(expected: &[(i64, SessionId)], until: i64) -> Vec<SessionId> {
    expected.iter().filter(|(at, _)| *at <= until).map(|(_, id)| *id).collect()
}

/// Waiting inputs, timers, retries and expired questions are found across sessions, in the order in which they are due,
/// and no others. The filter is a time; a session that is due exactly then is included.
async fn due_sessions_are_listed_in_due_order(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let expected = one_of_each(stage, &storage).await?;
    for until in [0, 9, 10, 24, 25, 35, 10_000] {
        let found = due_ids(&storage, minutes(until)).await?;
        same(format_args!("what is due after {until} minutes"), &found, &by(&expected, until))?;
    }
    let listed = all_sessions(&storage, SessionQuery::new().with_due(minutes(20))).await?;
    let times: Vec<_> = listed.iter().map(|session| session.next_due_at).collect();
    let at = |at| Some(minutes(at));
    same("the times that they are due", &times, &vec![Some(Timestamp::UNIX_EPOCH), at(10), at(20)])
}

/// The same sessions are due after a restart.
async fn due_sessions_are_found_after_reopening(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let expected = one_of_each(stage, &storage).await?;
    let storage = stage.reopen(storage).await?;
    same("what is due", &due_ids(&storage, minutes(10_000)).await?, &by(&expected, 10_000))
}

/// A session whose input was answered, that is running, or that is finished is no longer due. A suspended session is
/// due again when it is resumed.
async fn completed_work_is_no_longer_due(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let until = minutes(10_000);
    let found = async |storage: &Storage| due_ids(storage, until).await;
    let session = stage.new_session(&storage).await?;
    same("a new session", &found(&storage).await?, &vec![])?;
    let session = stage.append(&storage, &session, "hello").await?.session;
    same("with an input", &found(&storage).await?, &vec![session.id])?;
    let (running, run) = stage.begin_run(&storage, &session, "and this").await?;
    same("running", &found(&storage).await?, &vec![])?;
    let end = Trigger::EndRun(RunEnd::Completed(Reason::EndTurn));
    let idle = storage.sessions.commit(stage.seal_run(&running, run).with_trigger(end)).await?.session;
    same("answered", &found(&storage).await?, &vec![])?;
    let woken = wake_at(stage, &storage, &idle, minutes(5)).await?;
    same("with a timer", &found(&storage).await?, &vec![woken.id])?;
    let suspend = stage.seal(&woken).with_trigger(Trigger::Suspend(Reason::UserPaused));
    let suspended = storage.sessions.commit(suspend).await?.session;
    same("set aside", &found(&storage).await?, &vec![])?;
    let resumed =
        storage.sessions.commit(stage.seal(&suspended).with_trigger(Trigger::Resume)).await?.session;
    same("resumed", &found(&storage).await?, &vec![woken.id])?;
    let delete = stage.seal(&resumed).with_trigger(Trigger::Delete(Reason::UserDeleted));
    storage.sessions.commit(delete).await?;
    same("deleted", &found(&storage).await?, &vec![])
}

/// Pages of any size return each due session once, in order, even if many are due at the same time.
async fn pages_of_due_sessions_neither_skip_nor_repeat(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?;
    let mut expected = Vec::new();
    for n in 0..24 {
        let new = NewSession::new(stage.effects.new_session_id(), workspace.id);
        let session = stage.create(&storage, new).await?;
        let at = [7, 3, 3, 3][n % 4];
        expected.push((at, session.id));
        wake_at(stage, &storage, &session, minutes(at)).await?;
    }
    expected.sort_unstable();
    for limit in [1, 5, 23, 24, 25] {
        let found =
            all_sessions(&storage, SessionQuery::new().with_due(minutes(7)).with_limit(limit)).await?;
        let found: Vec<_> = found.iter().map(|session| session.id).collect();
        same(format_args!("what is due, {limit} a page"), &found, &by(&expected, 7))?;
    }
    let query = SessionQuery::new().with_due(minutes(3)).with_limit(2);
    let page = storage.sessions.list(query.clone().with_total()).await?;
    same("the total", &page.total, &Some(18))?;
    let other = query.with_due(minutes(4)).with_cursor(page.next);
    let refused = storage.sessions.list(other).await;
    same("a cursor of another query is refused", &refused.is_err(), &true)
}

/// Workspace, labels and state filter the due sessions.
async fn due_sessions_can_be_filtered(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspaces = [stage.new_workspace(&storage).await?.id, stage.new_workspace(&storage).await?.id];
    let mut made = Vec::new();
    for n in 0..12 {
        let label = Patch::new().with_label("project", ["red", "blue"][n / 2 % 2]);
        let new = NewSession::new(stage.effects.new_session_id(), workspaces[n % 2]).with_patch(&label);
        let session = stage.create(&storage, new).await?;
        let session = wake_at(stage, &storage, &session, minutes(100 - n as i64)).await?;
        made.push(SessionSummary::from(&*session));
    }
    made.reverse();
    let new = SessionQuery::new;
    for query in [
        new().with_workspace(workspaces[0]),
        new().with_label("project", "red"),
        new().with_label("project", "blue").with_workspace(workspaces[1]),
        new().with_states([agent_core::state::SessionState::RequiresAction]),
    ] {
        let query = query.with_due(minutes(98));
        let expected: Vec<_> = made.iter().filter(|session| query.matches(session)).cloned().collect();
        let found = all_sessions(&storage, query.clone().with_limit(2)).await?;
        same(format_args!("those of {query:?}"), &found, &expected)?;
    }
    Ok(())
}

/// A finished child is due until its result has been reported to its parent; a second report changes nothing.
async fn finished_child_is_due_until_reported(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let parent = stage.new_session(&storage).await?;
    let child = storage.sessions.create_child(parent.id, Patch::new()).await?;
    let until = minutes(10_000);
    same("a child that has nothing to do", &due_ids(&storage, until).await?, &vec![])?;
    let (running, run) = stage.begin_run(&storage, &child, "find it").await?;
    let end = Trigger::EndRun(RunEnd::Completed(Reason::EndTurn));
    storage.sessions.commit(stage.seal_run(&running, run).with_trigger(end)).await?;
    same("a child at rest", &due_ids(&storage, until).await?, &vec![child.id])?;
    storage.sessions.report_child(child.id, Some("found".to_owned())).await?;
    same("a child whose parent was told", &due_ids(&storage, until).await?, &vec![])?;
    let outcome = storage.sessions.load(parent.id).await?.head;
    storage.sessions.report_child(child.id, Some("found".to_owned())).await?;
    same("the parent, told again", &storage.sessions.load(parent.id).await?.head, &outcome)
}
