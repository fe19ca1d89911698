//! State machine and record: every trigger in every state, and what a session keeps of its inputs, runs, questions and
//! timers.

use std::sync::Arc;

use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{
    Comment, Decision, Event, EventPayload, NewEvent, SpanStarted, ToolConfirmation, ToolOutcome,
};
use agent_core::json::RawJson;
use agent_core::model::{ActionId, ActionKind, Failure as RunFailure, PendingAction, Timer};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState, Target, TriggerKind, target};
use agent_core::{ErrorKind, RunId, Seq, Storage, WorkspaceId};

use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, table};
use crate::stage::{START, Stage, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![Machine:
        every_trigger_follows_the_transition_table,
        a_record_is_the_fold_of_its_log,
        inputs_during_preparation_are_kept_and_served,
        completed_inputs_are_never_claimed_again,
        failed_run_leaves_its_input_open,
        failure_is_kept_until_recovery,
        only_the_matching_answer_resumes_and_only_once,
        question_survives_suspension_until_its_timeout,
        answer_after_expiry_is_refused,
        interrupt_clears_pending_work,
        an_interrupt_asks_a_run_to_end,
        open_calls_and_spans_are_closed_once,
        ended_session_accepts_nothing_more,
    ]
}

/// Adds the steps that bring a new session to a state.
fn brought_to(state: SessionState, commit: Commit, run: RunId) -> Checked<Commit> {
    use SessionState as S;

    let failure = || RunFailure::new(Reason::SystemError, "the disk is gone");
    let begin = || Trigger::BeginRun(LeaseRequest::new("holder", run));
    let message = || NewEvent::user_message("hi");
    let question = PendingAction::new("question".parse()?, ActionKind::Approval, "Really?");
    Ok(match state {
        S::Initializing => commit,
        S::Idle => commit.with_trigger(Trigger::Ready),
        S::Queued => commit.with_trigger(Trigger::Ready).with_event(message()),
        S::Running => commit.with_trigger(Trigger::Ready).with_event(message()).with_trigger(begin()),
        S::RequiresAction => commit
            .with_trigger(Trigger::Ready)
            .with_event(message())
            .with_trigger(begin())
            .with_trigger(Trigger::EndRun(RunEnd::Await(question))),
        S::Suspended => {
            commit.with_trigger(Trigger::Ready).with_trigger(Trigger::Suspend(Reason::UserPaused))
        }
        S::Failed => commit.with_trigger(Trigger::Ready).with_trigger(Trigger::Fail(failure())),
        S::Archived => commit.with_trigger(Trigger::Ready).with_trigger(Trigger::Archive),
        S::Terminated => {
            commit.with_trigger(Trigger::Ready).with_trigger(Trigger::Terminate(Reason::UserEnded))
        }
        S::Deleted => commit.with_trigger(Trigger::Ready).with_trigger(Trigger::Delete(Reason::UserDeleted)),
        other => return Err(Failure::new("a state of the table", "one that is known", other)),
    })
}

async fn in_state(
    stage: &Stage,
    storage: &Storage,
    at: WorkspaceId,
    state: SessionState,
) -> Checked<(Arc<SessionRecord>, RunId)> {
    let (new, run) = (NewSession::new(stage.effects.new_session_id(), at), stage.effects.new_run_id());
    let commit = Commit::seal(&stage.effects, new.id, Seq::ZERO)
        .with_precondition(agent_core::commit::Precondition::MustNotExist)
        .with_trigger(Trigger::Create(Box::new(new)));
    let session = storage.sessions.commit(brought_to(state, commit, run)?).await?.session;
    same("the state that it was brought to", &session.status.state, &state)?;
    Ok((session, run))
}

/// Adds the step for a trigger; `None` if the trigger needs more than a commit to this session.
fn asked(
    kind: TriggerKind,
    commit: Commit,
    session: &SessionRecord,
    other: RunId,
) -> Checked<Option<Commit>> {
    use TriggerKind as T;

    let failure = || RunFailure::new(Reason::RunError, "the model is away");
    let lease = || LeaseRequest::new("other", other);
    let end = |end| Trigger::EndRun(end);
    let question = PendingAction::new("next".parse()?, ActionKind::Approval, "And now?");
    let answer =
        EventPayload::UserToolConfirmation(ToolConfirmation::new("question".parse()?, Decision::Allow));
    Ok(Some(match kind {
        T::Prepare => commit.with_trigger(Trigger::Prepare(lease())),
        T::Ready => commit.with_trigger(Trigger::Ready),
        T::Input => commit.with_event(NewEvent::user_message("more")),
        T::ScheduleTimer => commit.with_event(NewEvent::timer_scheduled(Timer::new("key", START))),
        T::CancelTimer => commit.with_event(NewEvent::timer_cancelled("key")),
        T::BeginRun => commit.with_trigger(Trigger::BeginRun(lease())),
        T::ClaimInputs => commit.with_trigger(Trigger::ClaimInputs),
        T::EndRun => commit.with_trigger(end(RunEnd::Completed(Reason::EndTurn))),
        T::AwaitAnswer => commit.with_trigger(end(RunEnd::Await(question))),
        T::EndInterrupted => commit.with_trigger(end(RunEnd::Interrupted)),
        T::EndRetry => commit.with_trigger(end(RunEnd::retry(failure(), START, 9))),
        T::EndFailed => commit.with_trigger(end(RunEnd::Failed(failure()))),
        T::LeaseExpired if session.lease.is_none() && session.status.state == SessionState::Initializing => {
            return Ok(None);
        }
        T::LeaseExpired => commit.with_trigger(Trigger::LeaseExpired(session.epoch)),
        T::ResolveAction => commit.with_event(NewEvent::of(&answer)),
        T::ActionTimeout => commit.with_trigger(Trigger::ActionTimeout("question".parse()?)),
        T::Interrupt => commit.with_event(NewEvent::interrupt()),
        T::Suspend => commit.with_trigger(Trigger::Suspend(Reason::Inactivity)),
        T::Fence => commit.with_trigger(Trigger::Fence),
        T::ForceSuspend => commit.with_trigger(Trigger::ForceSuspend(Reason::Inactivity)),
        T::Resume => commit.with_trigger(Trigger::Resume),
        T::Fail => commit.with_trigger(Trigger::Fail(failure())),
        T::ClearFailure => commit.with_trigger(Trigger::ClearFailure),
        T::Archive => commit.with_trigger(Trigger::Archive),
        T::Unarchive => commit.with_trigger(Trigger::Unarchive),
        T::Terminate => commit.with_trigger(Trigger::Terminate(Reason::Expired)),
        T::Delete => commit.with_trigger(Trigger::Delete(Reason::Collected)),
        T::Clear => commit.with_event(NewEvent::history_cleared()),
        _ => return Ok(None),
    }))
}

/// A trigger that the table allows leads to the state in the table. Any other is `InvalidTransition` from that state,
/// and changes nothing. A tombstone returns `Deleted`.
async fn every_trigger_follows_the_transition_table(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?.id;
    for state in SessionState::ALL.iter().copied().filter(|state| *state != SessionState::Newer) {
        // One session takes all that is refused, and must be what it was after each; what is done needs another then.
        let mut unchanged = None;
        for kind in TriggerKind::ALL.iter().copied() {
            let (session, run) = match unchanged.take() {
                Some(there) => there,
                None => in_state(stage, &storage, workspace, state).await?,
            };
            let commit = stage.seal(&session);
            let commit = if session.lease.is_some() { commit.with_fence(run, session.epoch) } else { commit };
            let Some(commit) = asked(kind, commit, &session, stage.effects.new_run_id())? else {
                unchanged = Some((session, run));
                continue;
            };
            let what = format!("{kind} in {state}");
            let result = storage.sessions.commit(commit).await;
            let now = storage.sessions.load(session.id).await?;
            match (target(state, kind), result) {
                (Some(to), Ok(done)) => {
                    same("the record, against the answer", &now, &done.session)?;
                    let expected = match to {
                        Target::To(to) => Some(to),
                        Target::Stay | Target::Already => Some(state),
                        _ => None,
                    };
                    if let Some(expected) = expected {
                        same(&what, &now.status.state, &expected)?;
                    }
                    if to == Target::Already {
                        same(&what, &now, &session)?;
                    }
                }
                (None, Err(error)) => {
                    let right = match error.kind() {
                        ErrorKind::InvalidTransition { from, .. } => *from == state,
                        ErrorKind::Deleted => state == SessionState::Deleted,
                        // The error to another runner or preparer names the holder.
                        ErrorKind::Busy { .. } => kind == TriggerKind::BeginRun && session.lease.is_some(),
                        _ => false,
                    };
                    holds_for(format_args!("{what} is an InvalidTransition from there"), &error, right)?;
                    same(&what, &now, &session)?;
                }
                (Some(to), Err(error)) => {
                    return Err(Failure::of(what, format_args!("it is allowed: {to:?}"), &error));
                }
                (None, Ok(done)) => {
                    return Err(Failure::new(
                        what,
                        "it is refused",
                        format_args!("it leads to {}", done.session.status),
                    ));
                }
            }
            unchanged = (now == session).then_some((session, run));
        }
    }
    Ok(())
}

/// Folds a log into a record.
pub(super) fn fold(id: agent_core::SessionId, events: &[Event]) -> Checked<Arc<SessionRecord>> {
    let Some((first, rest)) = events.split_first() else {
        return Err(Failure::new("a log", "at least one event", "none"));
    };
    let mut session = SessionRecord::begin(id, first)?;
    for event in rest {
        session.apply(event)?;
    }
    Ok(Arc::new(session))
}

/// The record that a store keeps and returns equals the fold of its log, in every state.
async fn a_record_is_the_fold_of_its_log(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?.id;
    for state in SessionState::ALL.iter().copied().filter(|state| *state != SessionState::Newer) {
        let (session, _) = in_state(stage, &storage, workspace, state).await?;
        let events = own_events(&storage, session.id, 3).await?;
        same(format_args!("the fold of a log that is {state}"), &fold(session.id, &events)?, &session)?;
    }
    Ok(())
}

/// Inputs that arrive while a session is prepared are kept, and served once it is ready.
async fn inputs_during_preparation_are_kept_and_served(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?.id;
    let (session, _) = in_state(stage, &storage, workspace, SessionState::Initializing).await?;
    let first = stage.append(&storage, &session, "one").await?.session;
    let second = stage.append(&storage, &first, "two").await?.session;
    same("the state", &second.status.state, &SessionState::Initializing)?;
    storage = stage.reopen(storage).await?;
    let ready = storage.sessions.commit(stage.seal(&second).with_trigger(Trigger::Ready)).await?.session;
    same("the state once ready", &ready.status.to_string().as_str(), &"queued (input)")?;
    same("what waits", &(ready.inputs_open, ready.last_input), &(2, second.head))
}

async fn run_once(
    stage: &Stage,
    storage: &Storage,
    session: &SessionRecord,
    end: RunEnd,
) -> Checked<(Arc<SessionRecord>, Arc<SessionRecord>)> {
    let run = stage.effects.new_run_id();
    let begin = Trigger::BeginRun(LeaseRequest::new("holder", run));
    let running = storage.sessions.commit(stage.seal(session).with_trigger(begin)).await?.session;
    let end = stage.seal_run(&running, run).with_trigger(Trigger::EndRun(end));
    let ended = storage.sessions.commit(end).await?.session;
    Ok((running, ended))
}

/// A run claims the inputs that exist when it begins, or when it claims more. The claimed inputs are done when it
/// ends; later ones wait for the next run. This also holds after reopening.
async fn completed_inputs_are_never_claimed_again(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let (running, run) = stage.begin_run(&storage, &session, "one").await?;
    same("what the run took", &running.inputs_claimed_through, &running.last_input)?;
    let two = stage.append(&storage, &running, "two").await?.session;
    same(
        "what it has not taken",
        &(two.inputs_claimed_through, two.inputs_new, two.inputs_open),
        &(running.inputs_claimed_through, 1, 2),
    )?;
    let taken =
        storage.sessions.commit(stage.seal_run(&two, run).with_trigger(Trigger::ClaimInputs)).await?.session;
    same("what it took then", &(taken.inputs_claimed_through, taken.inputs_new), &(two.last_input, 0))?;
    let three = stage.append(&storage, &taken, "three").await?.session;
    storage = stage.reopen(storage).await?;
    let end = stage.seal_run(&three, run).with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    let ended = storage.sessions.commit(end).await?.session;
    same("what is done with", &(ended.inputs_done_through, ended.inputs_open), &(two.last_input, 1))?;
    same("the state", &ended.status.to_string().as_str(), &"queued (follow_up)")?;
    let (running, idle) = run_once(stage, &storage, &ended, RunEnd::Completed(Reason::EndTurn)).await?;
    same(
        "what the next run took",
        &(running.inputs_done_through, running.inputs_claimed_through),
        &(two.last_input, three.last_input),
    )?;
    same("what waits at the end", &(idle.inputs_open, idle.status.state), &(0, SessionState::Idle))?;
    let begin = Trigger::BeginRun(LeaseRequest::new("holder", stage.effects.new_run_id()));
    let result = storage.sessions.commit(stage.seal(&idle).with_trigger(begin)).await;
    refused!("a run with nothing to do", result, ErrorKind::InvalidTransition { .. })?;
    Ok(())
}

/// The input of a run that is to be retried, or whose holder was lost, is offered again; not before its time, and not
/// without limit.
async fn failed_run_leaves_its_input_open(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let failure = RunFailure::new(Reason::RunError, "the model is away");
    let mut now = stage.append(&storage, &session, "work").await?.session;
    for attempt in 1..=3u32 {
        let end = RunEnd::retry(failure.clone(), START, 3);
        let (_, ended) = run_once(stage, &storage, &now, end).await?;
        same("how often it failed", &ended.attempts, &attempt)?;
        same("what waits", &(ended.inputs_open, ended.inputs_done_through), &(1, Seq::ZERO))?;
        same("why", &ended.failure, &Some(failure.clone()))?;
        let state = if attempt < 3 { SessionState::Queued } else { SessionState::Failed };
        same("the state", &ended.status.state, &state)?;
        now = ended;
    }
    let now = storage.sessions.commit(stage.seal(&now).with_trigger(Trigger::ClearFailure)).await?.session;
    same(
        "after recovering",
        &(now.attempts, now.inputs_open, now.status.state),
        &(0, 1, SessionState::Queued),
    )?;
    let later = START.plus_micros(86_400_000_000);
    let (_, backed_off) = run_once(stage, &storage, &now, RunEnd::retry(failure, later, 9)).await?;
    let begin = |at| {
        let mut commit = stage.seal(&backed_off);
        commit.at = at;
        commit.with_trigger(Trigger::BeginRun(LeaseRequest::new("holder", stage.effects.new_run_id())))
    };
    let result = storage.sessions.commit(begin(START)).await;
    refused!("a run before its time", result, ErrorKind::InvalidTransition { .. })?;
    let running = storage.sessions.commit(begin(later)).await?.session;
    let lost = stage.seal(&running).with_trigger(Trigger::LeaseExpired(running.epoch));
    let lost = storage.sessions.commit(lost).await?.session;
    same(
        "after the holder was lost",
        &(lost.inputs_open, lost.status.to_string().as_str()),
        &(1, "queued (lease_lost)"),
    )
}

/// A failure and its cause are kept in words until the session recovers; meanwhile it accepts no messages.
async fn failure_is_kept_until_recovery(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    for class in [Reason::RunError, Reason::ResourceError, Reason::SystemError, Reason::StorageCorrupt] {
        let session = stage.new_session(&storage).await?;
        let failure = RunFailure::new(class, "위험: \"disk\"\n\u{1}");
        let fail = stage.seal(&session).with_trigger(Trigger::Fail(failure.clone()));
        let failed = storage.sessions.commit(fail).await?.session;
        storage = stage.reopen(storage).await?;
        same("what is kept", &storage.sessions.load(session.id).await?.failure, &Some(failure))?;
        same("the reason", &failed.status.reason, &class)?;
        let result =
            storage.sessions.commit(stage.seal(&failed).with_event(NewEvent::user_message("hi"))).await;
        refused!("a message", result, ErrorKind::InvalidTransition { from: SessionState::Failed, .. })?;
        let recovered =
            storage.sessions.commit(stage.seal(&failed).with_trigger(Trigger::ClearFailure)).await?.session;
        let expected =
            if class == Reason::ResourceError { SessionState::Initializing } else { SessionState::Idle };
        same("after recovering", &(recovered.status.state, recovered.failure.clone()), &(expected, None))?;
    }
    Ok(())
}

fn answer(action: &str) -> Checked<NewEvent> {
    Ok(NewEvent::of(&EventPayload::UserToolConfirmation(ToolConfirmation::new(
        action.parse()?,
        Decision::Allow,
    ))))
}

/// A question is stored with the state. An answer to another question is refused, the matching one resumes the
/// session, and a second one is refused.
async fn only_the_matching_answer_resumes_and_only_once(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?.id;
    let (waiting, _) = in_state(stage, &storage, workspace, SessionState::RequiresAction).await?;
    storage = stage.reopen(storage).await?;
    let now = storage.sessions.load(waiting.id).await?;
    let question = now.action.as_ref().map(|action| (action.id.to_string(), action.question.clone()));
    same("the question", &question, &Some(("question".to_owned(), "Really?".to_owned())))?;
    let wrong = storage.sessions.commit(stage.seal(&now).with_event(answer("another")?)).await;
    refused!("an answer to another question", wrong, ErrorKind::InvalidInput)?;
    same("the session", &storage.sessions.load(waiting.id).await?, &now)?;
    let appended = stage.append(&storage, &now, "a message is no answer").await?.session;
    same("the state", &appended.status.state, &SessionState::RequiresAction)?;
    let resumed =
        storage.sessions.commit(stage.seal(&appended).with_event(answer("question")?)).await?.session;
    same("the state", &resumed.status.to_string().as_str(), &"queued (action_resolved)")?;
    same("the question", &resumed.action, &None)?;
    let again = storage.sessions.commit(stage.seal(&resumed).with_event(answer("question")?)).await;
    refused!("a second answer", again, ErrorKind::InvalidTransition { .. })?;
    Ok(())
}

/// A session that is suspended while it waits for an answer still waits after it is resumed. A question is given up
/// only by its timeout.
async fn question_survives_suspension_until_its_timeout(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?.id;
    let (waiting, _) = in_state(stage, &storage, workspace, SessionState::RequiresAction).await?;
    let pause = stage.seal(&waiting).with_trigger(Trigger::Suspend(Reason::UserPaused));
    let paused = storage.sessions.commit(pause).await?.session;
    let resumed = storage.sessions.commit(stage.seal(&paused).with_trigger(Trigger::Resume)).await?.session;
    let question = waiting.action.as_ref().map(|action| action.id.to_string());
    same("what it waits for", &question.as_deref(), &Some("question"))?;
    same("what it waits for after the pause", &resumed.action, &waiting.action)?;
    same("the state", &resumed.status, &waiting.status)?;
    let other: ActionId = "another".parse()?;
    let timeout =
        storage.sessions.commit(stage.seal(&resumed).with_trigger(Trigger::ActionTimeout(other))).await;
    refused!("giving up another question", timeout, ErrorKind::InvalidInput)?;
    let timeout = stage.seal(&resumed).with_trigger(Trigger::ActionTimeout("question".parse()?));
    let given_up = storage.sessions.commit(timeout).await?.session;
    same("the state", &given_up.status.to_string().as_str(), &"queued (action_timed_out)")?;
    same("what it waits for", &given_up.action, &None)
}

/// An answer that was sealed at or after the question's expiry is refused and changes nothing, until the question is
/// given up. An answer that was sealed before is accepted, however late it arrives.
async fn answer_after_expiry_is_refused(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    for (late, is_taken) in [(1, false), (0, false), (-1, true)] {
        let session = stage.new_session(&storage).await?;
        let (running, run) = stage.begin_run(&storage, &session, "may you?").await?;
        let end = running.updated_at.plus_micros(60_000_000);
        let question = PendingAction::new("question".parse()?, ActionKind::Approval, "Really?");
        let wait = Trigger::EndRun(RunEnd::Await(question.with_expires_at(end)));
        let waiting =
            storage.sessions.commit(stage.seal_run(&running, run).with_trigger(wait)).await?.session;
        let answered = ToolConfirmation::new("question".parse()?, Decision::Allow);
        let mut commit =
            stage.seal(&waiting).with_event(NewEvent::of(&EventPayload::UserToolConfirmation(answered)));
        commit.at = end.plus_micros(late);
        let done = storage.sessions.commit(commit).await;
        if is_taken {
            same("the state", &done?.session.status.to_string().as_str(), &"queued (action_resolved)")?;
            continue;
        }
        refused!(format_args!("an answer {late} microseconds late"), done, ErrorKind::Expired { at } if *at == end)?;
        same("the session", &storage.sessions.load(waiting.id).await?, &waiting)?;
        let timeout = stage.seal(&waiting).with_trigger(Trigger::ActionTimeout("question".parse()?));
        let given_up = storage.sessions.commit(timeout).await?.session;
        same("the state", &given_up.status.to_string().as_str(), &"queued (action_timed_out)")?;
    }
    Ok(())
}

/// An interrupt closes the question, the inputs and the timers that waited, and is recorded.
async fn interrupt_clears_pending_work(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?.id;
    for state in [SessionState::Queued, SessionState::RequiresAction] {
        let (session, _) = in_state(stage, &storage, workspace, state).await?;
        let more = stage
            .seal(&session)
            .with_event(NewEvent::user_message("more"))
            .with_event(NewEvent::timer_scheduled(Timer::new("daily", START)));
        let more = storage.sessions.commit(more).await?.session;
        let note = NewEvent::of(&EventPayload::UserInterrupt(Comment::new("enough")));
        let done = storage.sessions.commit(stage.seal(&more).with_event(note)).await?.session;
        same("the state", &done.status.to_string().as_str(), &"idle (interrupted)")?;
        same("what waits", &(done.inputs_open, done.timers.len(), done.action.clone()), &(0, 0, None))?;
        let last = own_events(&storage, session.id, 100).await?.pop();
        same(
            "the last event",
            &last.map(|event| event.kind),
            &Some(agent_core::event::EventType::USER_INTERRUPT),
        )?;
    }
    Ok(())
}

/// An interrupt of a running session is recorded and asks the run to end; the run continues until it does.
async fn an_interrupt_asks_a_run_to_end(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let session = stage.new_session(&handles[0]).await?;
    let (running, run) = stage.begin_run(&handles[0], &session, "work").await?;
    let asked =
        handles[1].sessions.commit(stage.seal(&running).with_event(NewEvent::interrupt())).await?.session;
    same("the state", &asked.status.state, &SessionState::Running)?;
    same("what is asked", &asked.stop_request, &Some(agent_core::model::Request::Cancel))?;
    let part = stage.seal_run(&asked, run).with_event(NewEvent::agent_message("so far"));
    let part = handles[0].sessions.commit(part).await?.session;
    let end = stage.seal_run(&part, run).with_trigger(Trigger::EndRun(RunEnd::Interrupted));
    let ended = handles[0].sessions.commit(end).await?.session;
    same("the state", &ended.status.to_string().as_str(), &"idle (interrupted)")?;
    same("what is asked", &ended.stop_request, &None)
}

/// A run that ends in any way leaves no call and no span open: each gets exactly one end, which states that it was
/// interrupted.
async fn open_calls_and_spans_are_closed_once(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    for how in 0..4 {
        let session = stage.new_session(&storage).await?;
        let (running, run) = stage.begin_run(&storage, &session, "work").await?;
        let mut commit = stage.seal_run(&running, run);
        for n in 0..3 {
            let span = SpanStarted::new(format!("span {n}").parse()?, "tool");
            commit = commit
                .with_event(NewEvent::of(&EventPayload::SpanStarted(span)))
                .with_event(NewEvent::tool_use(format!("call {n}").parse()?, "ls", RawJson::empty_object()));
        }
        let done = NewEvent::tool_result("call 1".parse()?, ToolOutcome::Ok, RawJson::empty_object());
        let open = storage.sessions.commit(commit.with_event(done)).await?.session;
        same("open", &(open.open_calls.len(), open.open_spans.len()), &(2, 3))?;
        let failure = RunFailure::new(Reason::RunError, "the model is away");
        let end = match how {
            0 => stage.seal_run(&open, run).with_trigger(Trigger::EndRun(RunEnd::Failed(failure))),
            1 => stage.seal_run(&open, run).with_trigger(Trigger::EndRun(RunEnd::Interrupted)),
            2 => stage.seal(&open).with_trigger(Trigger::LeaseExpired(open.epoch)),
            _ => stage.seal(&open).with_trigger(Trigger::Terminate(Reason::AdminEnded)),
        };
        let ended = storage.sessions.commit(end).await?.session;
        same("open at the end", &(ended.open_calls.clone(), ended.open_spans.clone()), &(vec![], vec![]))?;
        let mut outcomes = Vec::new();
        for event in own_events(&storage, session.id, 100).await? {
            match event.decode()? {
                EventPayload::AgentToolResult(result) => {
                    outcomes.push((result.call.to_string(), result.outcome));
                }
                EventPayload::SpanCompleted(span) => outcomes.push((span.span.to_string(), span.outcome)),
                _ => {}
            }
        }
        outcomes.sort();
        let cut = ToolOutcome::Interrupted;
        let expected = [
            ("call 0", cut),
            ("call 1", ToolOutcome::Ok),
            ("call 2", cut),
            ("span 0", cut),
            ("span 1", cut),
            ("span 2", cut),
        ];
        same("the ends", &outcomes, &expected.map(|(name, outcome)| (name.to_owned(), outcome)).to_vec())?;
    }
    Ok(())
}

/// A session that was ended can be read, listed and forked, and accepts no message, run or resumption.
async fn ended_session_accepts_nothing_more(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?.id;
    let (over, _) = in_state(stage, &storage, workspace, SessionState::Terminated).await?;
    let run = LeaseRequest::new("holder", stage.effects.new_run_id());
    for commit in [
        stage.seal(&over).with_event(NewEvent::user_message("one more thing")),
        stage.seal(&over).with_event(NewEvent::agent_message("and")),
        stage.seal(&over).with_event(NewEvent::system_prompt("be")),
        stage.seal(&over).with_trigger(Trigger::BeginRun(run)),
        stage.seal(&over).with_trigger(Trigger::Resume),
        stage.seal(&over).with_trigger(Trigger::ClearFailure),
    ] {
        let result = storage.sessions.commit(commit).await;
        refused!("a step", result, ErrorKind::InvalidTransition { from: SessionState::Terminated, .. })?;
    }
    same("the session", &storage.sessions.load(over.id).await?, &over)?;
    let titled = agent_core::model::Patch::new().with_title(agent_core::model::Title::by_user("Done"));
    let titled =
        storage.sessions.commit(stage.seal(&over).with_event(NewEvent::updated(titled))).await?.session;
    same("what is said of it can still change", &titled.status, &over.status)?;
    let fork = storage.sessions.fork(over.id, None).await?;
    stage.append(&storage, &fork, "in a fork it goes on").await.map(drop)
}
