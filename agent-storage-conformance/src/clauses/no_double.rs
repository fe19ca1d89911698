//! Contract 4: a commit that is sent twice is applied once, however late and in all circumstances.

use agent_core::commit::{Commit, Committed, LeaseRequest, Precondition, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::SessionRecord;
use agent_core::state::Reason;
use agent_core::{ErrorKind, EventId, Seq, SessionStoreExt, Storage};

use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, table};
use crate::stage::{Stage, own_events, race, split};

pub(super) fn clauses() -> Vec<Clause> {
    table![NoDouble:
        commit_resent_at_once_is_applied_once,
        commit_sent_by_eight_tasks_is_applied_once,
        commit_resent_after_1_commit_is_applied_once,
        commit_resent_after_15_commits_is_applied_once,
        commit_resent_after_16_commits_is_applied_once,
        commit_resent_after_17_commits_is_applied_once,
        commit_resent_after_300_commits_is_applied_once,
        commit_resent_after_takeover_is_answered,
        commit_resent_after_deletion_is_answered,
        creation_resent_is_applied_once,
        commit_resent_after_reopening_is_applied_once,
        refused_commit_is_not_remembered_as_applied,
        retry_produces_the_same_events,
    ]
}

/// Checks that the log contains the events of one commit, once.
async fn stands_once(
    storage: &Storage,
    session: &SessionRecord,
    commit: &Commit,
    done: &Committed,
) -> Checked {
    let events = own_events(storage, session.id, 1000).await?;
    let seqs: Vec<_> =
        events.iter().filter(|event| event.commit == commit.id).map(|event| event.seq.get()).collect();
    let expected: Vec<_> = (done.first.get()..=done.last.get()).collect();
    same("the events of the commit in the log", &seqs, &expected)
}

fn same_answer(again: &Committed, first: &Committed) -> Checked {
    let answer = |done: &Committed| (done.first, done.last, done.epoch);
    same("the answer to the commit sent again", &answer(again), &answer(first))?;
    holds_for("it is marked as a replay", &again.replayed, again.replayed)
}

fn two_messages(stage: &Stage, session: &SessionRecord) -> Commit {
    stage.seal(session).with_event(NewEvent::user_message("one")).with_event(NewEvent::user_message("two"))
}

/// A commit that is sent again immediately is answered as before and changes nothing.
async fn commit_resent_at_once_is_applied_once(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    for expect in [Precondition::MustExist, Precondition::Matches(Seq::new(3))] {
        let now = storage.sessions.load(session.id).await?;
        let expect = if expect == Precondition::MustExist { expect } else { Precondition::Matches(now.head) };
        let commit = two_messages(stage, &now).with_precondition(expect);
        let first = storage.sessions.commit(commit.clone()).await?;
        same("it is no replay the first time", &first.replayed, &false)?;
        for _ in 0..3 {
            let again = storage.sessions.commit(commit.clone()).await?;
            same_answer(&again, &first)?;
            same("the session in the answer", &again.session, &first.session)?;
        }
        same("the session", &storage.sessions.load(session.id).await?, &first.session)?;
        stands_once(&storage, &session, &commit, &first).await?;
    }
    Ok(())
}

/// One commit sent by eight tasks on four handles at the same time is applied once; all get its result.
async fn commit_sent_by_eight_tasks_is_applied_once(stage: &Stage) -> Checked {
    let handles = stage.handles(4).await?;
    let mut session = stage.new_session(&handles[0]).await?;
    for round in 0..stage.settings.rounds {
        let commit = two_messages(stage, &session);
        let results = race((0..8).map(|n| {
            let (store, commit) = (handles[n % 4].sessions.clone(), commit.clone());
            async move { store.commit(commit).await }
        }))
        .await?;
        let (done, failed) = split(results);
        holds_for(format_args!("round {round}: none fails"), &failed, failed.is_empty())?;
        for one in &done {
            let expected = (session.head.next(), session.head.next().next());
            same("where the commit stands", &(one.first, one.last), &expected)?;
        }
        let applied = done.iter().filter(|one| !one.replayed).count();
        same("how often it was applied", &applied, &1)?;
        session = handles[1].sessions.load(session.id).await?;
        same("the head", &session.head, &done[0].last)?;
    }
    Ok(())
}

/// Sends a commit again after `between` others. It is answered, or refused as too old to tell, and never applied
/// again. `commit_with_retry` finds it in either case.
async fn again_after(stage: &Stage, between: usize) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let commit = two_messages(stage, &session);
    let guarded = two_messages(stage, &session)
        .with_precondition(Precondition::Matches(Seq::new(session.head.get() + 2)));
    let first = storage.sessions.commit(commit.clone()).await?;
    let first_guarded = storage.sessions.commit(guarded.clone()).await?;
    let mut now = first_guarded.session.clone();
    for n in 0..between {
        now = stage.append(&storage, &now, &format!("between {n}")).await?.session;
    }
    for (commit, first, younger) in [(&commit, &first, 1), (&guarded, &first_guarded, 0)] {
        // The record remembers the last 16 commits.
        if between + younger < 16 {
            same_answer(&storage.sessions.commit(commit.clone()).await?, first)?;
        } else {
            let result = storage.sessions.commit(commit.clone()).await;
            let head = Some(now.head);
            refused!("a commit sent again too late", result, ErrorKind::Conflict { head: h } if *h == head)?;
        }
        same("the session", &storage.sessions.load(session.id).await?, &now)?;
        stands_once(&storage, &session, commit, first).await?;
    }
    let settled = storage.sessions.commit_with_retry(commit.clone()).await?;
    let place = |done: &Committed| (done.first, done.last);
    same("where `commit_with_retry` finds it", &place(&settled), &place(&first))?;
    same("the session after `commit_with_retry`", &storage.sessions.load(session.id).await?, &now)?;
    // What is sealed as late, and did not land, lands when it is settled: the search tells the two apart.
    let late = two_messages(stage, &session);
    let landed = storage.sessions.commit_with_retry(late.clone()).await?;
    same("where a late commit lands", &landed.first, &now.head.next())?;
    stands_once(&storage, &session, &late, &landed).await
}

/// A commit is sent again after one other commit.
async fn commit_resent_after_1_commit_is_applied_once(stage: &Stage) -> Checked {
    again_after(stage, 1).await
}

/// A commit is sent again after 15 commits, the most that a record remembers.
async fn commit_resent_after_15_commits_is_applied_once(stage: &Stage) -> Checked {
    again_after(stage, 15).await
}

/// A commit is sent again after 16 commits, one more than a record remembers.
async fn commit_resent_after_16_commits_is_applied_once(stage: &Stage) -> Checked {
    again_after(stage, 16).await
}

/// A commit is sent again after 17 commits.
async fn commit_resent_after_17_commits_is_applied_once(stage: &Stage) -> Checked {
    again_after(stage, 17).await
}

/// A commit is sent again after 300 commits.
async fn commit_resent_after_300_commits_is_applied_once(stage: &Stage) -> Checked {
    again_after(stage, 300).await
}

/// A run's applied commit is answered even after another run took over: the replay is checked before the fence.
async fn commit_resent_after_takeover_is_answered(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let (running, run) = stage.begin_run(&storage, &session, "work").await?;
    let commit =
        stage.seal_run(&running, run).with_event(NewEvent::agent_message("said before the take-over"));
    let first = storage.sessions.commit(commit.clone()).await?;
    let other = stage.effects.new_run_id();
    let take_over = stage
        .seal(&first.session)
        .with_trigger(Trigger::LeaseExpired(running.epoch))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("successor", other)));
    let taken = storage.sessions.commit(take_over.clone()).await?;
    same("the successor's epoch", &taken.epoch, &Some(running.epoch.next()))?;
    same_answer(&storage.sessions.commit(commit.clone()).await?, &first)?;
    same_answer(&storage.sessions.commit(take_over).await?, &taken)?;
    stands_once(&storage, &session, &commit, &first).await?;
    let late = stage.seal_run(&running, run).with_event(NewEvent::agent_message("new, and too late"));
    refused!(
        "a new commit of the former run",
        storage.sessions.commit(late).await,
        ErrorKind::Fenced { .. }
    )?;
    same("the session", &storage.sessions.load(session.id).await?, &taken.session)
}

/// An applied commit is answered even after the session was deleted: the replay is checked before the tombstone.
async fn commit_resent_after_deletion_is_answered(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let commit = two_messages(stage, &session);
    let first = storage.sessions.commit(commit.clone()).await?;
    let delete = stage.seal(&first.session).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = storage.sessions.commit(delete.clone()).await?;
    same_answer(&storage.sessions.commit(commit).await?, &first)?;
    same_answer(&storage.sessions.commit(delete).await?, &deleted)?;
    let fresh = two_messages(stage, &session);
    refused!("a new commit", storage.sessions.commit(fresh).await, ErrorKind::Deleted)?;
    same("the tombstone", &storage.sessions.load(session.id).await?, &deleted.session)
}

/// A creation whose answer was lost is sent again and answered; another creation of the same id is refused.
async fn creation_resent_is_applied_once(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let new = stage.session(&storage).await?;
    let commit = Commit::create(&stage.effects, new.clone()).with_event(NewEvent::user_message("hello"));
    let first = storage.sessions.commit(commit.clone()).await?;
    same_answer(&storage.sessions.commit(commit.clone()).await?, &first)?;
    let now = stage.append(&storage, &first.session, "more").await?.session;
    same_answer(&storage.sessions.commit(commit.clone()).await?, &first)?;
    let other = Commit::create(&stage.effects, new);
    let result = storage.sessions.commit(other).await;
    refused!("another creation", result, ErrorKind::Conflict { head } if *head == Some(now.head))?;
    stands_once(&storage, &first.session, &commit, &first).await
}

/// A store still recognizes its last commits after it was reopened.
async fn commit_resent_after_reopening_is_applied_once(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    for _ in 0..5 {
        let commit = two_messages(stage, &session);
        let first = storage.sessions.commit(commit.clone()).await?;
        storage = stage.reopen(storage).await?;
        same_answer(&storage.sessions.commit(commit.clone()).await?, &first)?;
        stands_once(&storage, &session, &commit, &first).await?;
        session = first.session;
    }
    Ok(())
}

/// A refused commit is not remembered: if it is sent again when it is valid, it is applied.
async fn refused_commit_is_not_remembered_as_applied(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let early = stage
        .seal(&session)
        .with_event(NewEvent::user_message("early"))
        .with_precondition(Precondition::Matches(session.head.next()));
    refused!(
        "a commit ahead of the head",
        storage.sessions.commit(early.clone()).await,
        ErrorKind::Conflict { .. }
    )?;
    let now = stage.append(&storage, &session, "now it is in order").await?.session;
    let done = storage.sessions.commit(early.clone()).await?;
    same("it is no replay", &done.replayed, &false)?;
    same("where it stands", &done.first, &now.head.next())?;
    stands_once(&storage, &session, &early, &done).await
}

/// An event's id, time and author follow from its commit, which is sealed before the first attempt.
async fn retry_produces_the_same_events(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let commit = two_messages(stage, &session);
    let done = storage.sessions.commit(commit.clone()).await?;
    let events = own_events(&storage, session.id, 100).await?;
    let own: Vec<_> = events.iter().filter(|event| event.seq >= done.first).collect();
    for (index, event) in own.iter().enumerate() {
        let index = u32::try_from(index).map_err(|error| Failure::new("the index", "small", error))?;
        same("the event's id", &event.id(), &EventId::derive(commit.id, index))?;
        same("its time", &event.at, &commit.at)?;
        same("its author", &event.actor, &agent_core::model::Actor::USER)?;
        same("its place in the commit", &(event.n, event.of), &(index + 1, 2))?;
    }
    same("the number of events", &own.len(), &2)
}
