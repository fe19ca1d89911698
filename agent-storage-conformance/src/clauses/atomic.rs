//! Contract 2: every reader sees a write of many parts whole or not at all, even if its caller was dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_core::commit::{Commit, LeaseRequest, Precondition, RunEnd, Trigger};
use agent_core::event::{EventPayload, NewEvent};
use agent_core::session::NewSession;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{ContentHash, Purge, ReadEvents, SessionQuery, WorkspaceQuery};
use agent_core::{ErrorKind, Seq, Storage};

use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::stage::{Stage, dropped_after, own_events};

pub(super) fn clauses() -> Vec<Clause> {
    table![Atomic:
        a_commit_of_many_events_is_seen_whole,
        a_creation_is_seen_whole,
        a_clearing_is_seen_whole,
        full_write_replaces_the_history_or_is_refused,
        commit_refused_at_its_last_step_writes_nothing,
        message_and_run_start_are_one_commit,
        answer_and_run_end_are_one_commit,
        the_list_is_as_new_as_the_log (Needs::ImmediateLists),
        a_dropped_commit_is_whole_or_absent,
        a_dropped_creation_is_whole_or_absent,
        a_dropped_write_of_a_workspace_is_whole_or_absent,
        a_dropped_bind_is_whole_or_absent,
        dropped_reads_leave_the_store_usable,
    ]
}

/// Reads until the writer is done, and checks each time that no commit is seen in part.
async fn watch(storage: Storage, id: agent_core::SessionId, done: Arc<AtomicBool>) -> Checked<usize> {
    let mut reads = 0;
    loop {
        let is_last = done.load(Ordering::Acquire);
        let page = storage.sessions.read(id, ReadEvents::last(40)).await?;
        let record = storage.sessions.load(id).await?;
        let Some(last) = page.events.last() else {
            return Err(Failure::new("a page", "at least the first event", "none"));
        };
        same("the last event seen is the last of its commit", &last.n, &last.of)?;
        for pair in page.events.windows(2) {
            same("events follow each other", &pair[1].seq, &pair[0].seq.next())?;
            let follows = if pair[0].n == pair[0].of {
                pair[1].n == 1
            } else {
                pair[1].commit == pair[0].commit && pair[1].n == pair[0].n + 1
            };
            holds_for("commits follow each other whole", &(pair[0].seq, pair[1].seq), follows)?;
        }
        let recent = record.recent.last().map(|commit| commit.last);
        same("the record is at the end of a commit", &recent, &Some(record.head))?;
        holds_for("the record is not older than the log", &(record.head, last.seq), record.head >= last.seq)?;
        reads += 1;
        if is_last {
            return Ok(reads);
        }
        tokio::task::yield_now().await;
    }
}

/// While one handle commits many events at a time, no reader on another sees a commit in part, and the record is never
/// older than the log.
async fn a_commit_of_many_events_is_seen_whole(stage: &Stage) -> Checked {
    let handles = stage.handles(3).await?;
    let mut session = stage.new_session(&handles[0]).await?;
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = handles[1..]
        .iter()
        .map(|storage| tokio::spawn(watch(storage.clone(), session.id, done.clone())))
        .collect();
    for round in 0..stage.settings.rounds {
        let events = (0..16).map(|n| NewEvent::user_message(format!("round {round} part {n}")));
        session = handles[0].sessions.commit(stage.seal(&session).with_events(events)).await?.session;
        tokio::task::yield_now().await;
    }
    done.store(true, Ordering::Release);
    for reader in readers {
        reader.await.map_err(|error| Failure::new("a reader", "an end", error))??;
    }
    Ok(())
}

/// A session that is created together with its first messages is seen with all of them or not at all.
async fn a_creation_is_seen_whole(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let workspace = stage.new_workspace(&handles[0]).await?.id;
    for _ in 0..stage.settings.rounds {
        let new = NewSession::new(stage.effects.new_session_id(), workspace);
        let id = new.id;
        let events = (0..8).map(|n| NewEvent::user_message(format!("message {n}")));
        let commit = Commit::create(&stage.effects, new).with_events(events);
        let store = handles[0].sessions.clone();
        let writer = tokio::spawn(async move { store.commit(commit).await });
        loop {
            match handles[1].sessions.load(id).await {
                Ok(record) => {
                    same("the messages in the record", &record.counts.user, &8)?;
                    let events = own_events(&handles[1], id, 100).await?;
                    same("the events", &(events.len() as u64), &record.head.get())?;
                    break;
                }
                Err(error) => {
                    holds_for(
                        "before it is there, it is NotFound",
                        &error,
                        *error.kind() == ErrorKind::NotFound,
                    )?;
                }
            }
            tokio::task::yield_now().await;
        }
        writer.await.map_err(|error| Failure::new("the writer", "an end", error))??;
    }
    Ok(())
}

/// A reader sees the history before a clear or after it: the counts and the start of the visible history match.
async fn a_clearing_is_seen_whole(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let mut session = stage.new_session(&handles[0]).await?;
    // Before anybody looks: from here on there are five messages or none.
    let first = stage.seal(&session).with_event(NewEvent::history_cleared());
    session = handles[0].sessions.commit(first).await?.session;
    let done = Arc::new(AtomicBool::new(false));
    let (reader, id, stop) = (handles[1].clone(), session.id, done.clone());
    let task = tokio::spawn(async move {
        loop {
            let is_last = stop.load(Ordering::Acquire);
            let seen = reader.sessions.load(id).await?;
            // Five messages at a time: the clearing is one event, and nothing else is in the log.
            let expected = if seen.visible_from == seen.head { 0 } else { 5 };
            same("the messages counted", &seen.counts.user, &expected)?;
            if is_last {
                return Ok::<_, Failure>(());
            }
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..stage.settings.rounds {
        let events = (0..5).map(|n| NewEvent::user_message(format!("message {n}")));
        session = handles[0].sessions.commit(stage.seal(&session).with_events(events)).await?.session;
        let clear = stage.seal(&session).with_event(NewEvent::history_cleared());
        session = handles[0].sessions.commit(clear).await?.session;
        same("what is visible", &(session.counts.messages(), session.inputs_open), &(0, 0))?;
    }
    done.store(true, Ordering::Release);
    task.await.map_err(|error| Failure::new("the reader", "an end", error))?
}

/// One commit replaces the visible history, if it is based on the current head. If it is based on an older head, it is
/// refused, and the visible history stays.
async fn full_write_replaces_the_history_or_is_refused(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let before = stage.fill(&storage, &session, 5).await?;
    let now = stage.append(&storage, &before, "newer").await?.session;
    let replace = |from: &agent_core::session::SessionRecord| {
        let new = (0..3).map(|n| NewEvent::agent_message(format!("new {n}")));
        stage
            .seal(from)
            .with_precondition(Precondition::Matches(from.head))
            .with_event(NewEvent::history_cleared())
            .with_events(new)
    };
    let result = storage.sessions.commit(replace(&before)).await;
    refused!("a replacement from an old head", result, ErrorKind::Conflict { head } if *head == Some(now.head))?;
    same("the session", &storage.sessions.load(session.id).await?, &now)?;
    let done = storage.sessions.commit(replace(&now)).await?;
    same("what is visible", &(done.session.visible_from, done.session.counts.messages()), &(done.first, 3))?;
    let read = ReadEvents::first(100).with_after(done.session.visible_from);
    same("the visible events", &storage.sessions.read(session.id, read).await?.events.len(), &3)
}

/// If the last of many steps is refused, none takes effect.
async fn commit_refused_at_its_last_step_writes_nothing(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let session = stage.append(&storage, &session, "before").await?.session;
    let events = own_events(&storage, session.id, 100).await?;
    let many = || (0..20).map(|n| NewEvent::user_message(format!("message {n}")));
    let call = NewEvent::tool_use("c".parse()?, "ls", agent_core::json::RawJson::empty_object());
    let bad = NewEvent::new("user.message".parse()?, agent_core::json::RawJson::parse("{\"no\":\"text\"}")?);
    let commits = [
        stage.seal(&session).with_events(many()).with_trigger(Trigger::Resume),
        stage.seal(&session).with_events(many()).with_event(bad),
        stage.seal(&session).with_events(many()).with_event(call.clone()).with_event(call),
        stage
            .seal(&session)
            .with_events(many())
            .with_trigger(Trigger::Delete(Reason::UserDeleted))
            .with_event(NewEvent::user_message("?")),
        stage.seal(&session).with_events(many()).with_trigger(Trigger::EndRun(RunEnd::Interrupted)),
    ];
    for commit in commits {
        let result = storage.sessions.commit(commit).await;
        refused!(
            "a commit with a bad last step",
            result,
            ErrorKind::InvalidTransition { .. } | ErrorKind::InvalidInput
        )?;
        same("the record", &storage.sessions.load(session.id).await?, &session)?;
        same("the log", &own_events(&storage, session.id, 100).await?, &events)?;
        storage = stage.reopen(storage).await?;
    }
    let new = stage.session(&storage).await?;
    let id = new.id;
    let create = Commit::create(&stage.effects, new).with_events(many()).with_trigger(Trigger::Resume);
    refused!(
        "a creation with a bad last step",
        storage.sessions.commit(create).await,
        ErrorKind::InvalidTransition { .. }
    )?;
    refused!("the session", storage.sessions.load(id).await, ErrorKind::NotFound)?;
    Ok(())
}

/// A message and the start of its run are one commit of one event.
async fn message_and_run_start_are_one_commit(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let run = stage.effects.new_run_id();
    let bad = LeaseRequest::new("", run);
    let commit =
        stage.seal(&session).with_event(NewEvent::user_message("hi")).with_trigger(Trigger::BeginRun(bad));
    refused!("a run without a holder", storage.sessions.commit(commit).await, ErrorKind::InvalidInput)?;
    same("the session", &storage.sessions.load(session.id).await?, &session)?;
    let (running, _) = stage.begin_run(&storage, &session, "hi").await?;
    same("the state", &running.status.state, &SessionState::Running)?;
    same("the events", &running.head, &session.head.next())
}

/// An answer and the end of its run are one commit of one event, and the input that it answered is done.
async fn answer_and_run_end_are_one_commit(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let (running, run) = stage.begin_run(&storage, &session, "hi").await?;
    let commit = stage
        .seal_run(&running, run)
        .with_event(NewEvent::agent_message("hello"))
        .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
    let idle = storage.sessions.commit(commit).await?.session;
    same("the events", &idle.head, &running.head.next())?;
    same("the state", &idle.status.to_string().as_str(), &"idle (end_turn)")?;
    same("what waits", &(idle.inputs_open, idle.inputs_done_through), &(0, running.last_input))?;
    let last = own_events(&storage, session.id, 10).await?.pop();
    let body = last.map(|event| event.decode()).transpose()?;
    same("the last event", &body, &Some(EventPayload::AgentMessage(agent_core::event::Message::new("hello"))))
}

/// Once a commit is acknowledged, the list shows its effects, like the log.
async fn the_list_is_as_new_as_the_log(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let mut session = stage.new_session(&handles[0]).await?;
    for n in 0..stage.settings.rounds {
        session = stage.append(&handles[0], &session, &format!("message {n}")).await?.session;
        let page = handles[1].sessions.list(SessionQuery::new()).await?;
        let expected = agent_core::session::SessionSummary::from(&*session);
        same("the session in the list", &page.items, &vec![expected])?;
    }
    Ok(())
}

/// Most polls that a sweep of dropped futures tries before it gives up.
const SWEEP: usize = 200;

/// A commit whose future is dropped after any number of polls is applied whole or not at all, or is still being
/// applied. Sending the same commit again settles it, and the store stays usable.
async fn a_dropped_commit_is_whole_or_absent(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    for polls in 0..SWEEP {
        let commit =
            stage.seal(&session).with_events((0..5).map(|n| NewEvent::user_message(format!("part {n}"))));
        stage.note(format_args!("the next commit is dropped after {polls} polls"));
        let ended = dropped_after(storage.sessions.commit(commit.clone()), polls).await;
        if polls % 2 == 0 {
            storage = stage.reopen(storage).await?;
        }
        let now = storage.sessions.load(session.id).await?;
        let whole = now.head.get() == session.head.get() + 5;
        holds_for("all five events or none", &now.head, whole || now.head == session.head)?;
        let done = storage.sessions.commit(commit.clone()).await?;
        let place = (Seq::new(session.head.get() + 1), Seq::new(session.head.get() + 5));
        same("where the commit stands when sent again", &(done.first, done.last), &place)?;
        let events = own_events(&storage, session.id, 1000).await?;
        let own = events.iter().filter(|event| event.commit == commit.id).count();
        same("how often its events stand in the log", &own, &5)?;
        session = storage.sessions.load(session.id).await?;
        if let Some(ended) = ended {
            same("a commit that was answered was applied", &done.last, &ended?.last)?;
            return stage.append(&storage, &session, "usable").await.map(drop);
        }
    }
    Err(Failure::new("a commit", format_args!("an answer within {SWEEP} polls"), "none"))
}

/// Like [`a_dropped_commit_is_whole_or_absent`], for a commit that creates a session.
async fn a_dropped_creation_is_whole_or_absent(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    for polls in 0..SWEEP {
        let new = stage.session(&storage).await?;
        let commit = Commit::create(&stage.effects, new).with_event(NewEvent::user_message("hello"));
        stage.note(format_args!("the next creation is dropped after {polls} polls"));
        let ended = dropped_after(storage.sessions.commit(commit.clone()), polls).await;
        match storage.sessions.load(commit.session).await {
            Ok(record) => same("the messages of what is there", &record.counts.user, &1)?,
            Err(error) => {
                holds_for("what is not there is NotFound", &error, *error.kind() == ErrorKind::NotFound)?;
            }
        }
        let done = storage.sessions.commit(commit.clone()).await?;
        let events = own_events(&storage, commit.session, 10).await?;
        same("its events", &(events.len() as u64), &done.last.get())?;
        if let Some(ended) = ended {
            return ended.map(drop).map_err(Failure::from);
        }
    }
    Err(Failure::new("a creation", format_args!("an answer within {SWEEP} polls"), "none"))
}

/// A creation, a change, a configuration and a deletion of a workspace whose futures are dropped are applied whole or
/// not at all.
async fn a_dropped_write_of_a_workspace_is_whole_or_absent(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let store = &storage.workspaces;
    let mut all_ended = false;
    for polls in 0..SWEEP {
        stage.note(format_args!("the next writes are dropped after {polls} polls"));
        let new = stage.workspace("dropped");
        let created =
            dropped_after(store.put(new.clone(), Precondition::MustNotExist), polls).await.is_some();
        let mut now = match store.load(new.id).await {
            Ok(now) => now,
            Err(error) => {
                holds_for("what is not there is NotFound", &error, *error.kind() == ErrorKind::NotFound)?;
                match store.put(new.clone(), Precondition::MustNotExist).await {
                    Ok(now) => now,
                    // It happened after all, a moment later.
                    Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {
                        store.load(new.id).await?
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        same("the name", &now.name, &new.name)?;
        let changed = now.clone().with_name("changed");
        let put =
            dropped_after(store.put(changed, Precondition::Matches(now.revision)), polls).await.is_some();
        // A put behind it tells when the dropped one has come to its end.
        let end =
            store.put(store.load(new.id).await?.with_description("end"), Precondition::MustExist).await?;
        let steps = end.revision.get() - now.revision.get();
        holds_for("the change happened once or not at all", &end, steps == 1 || steps == 2)?;
        now = store.load(new.id).await?;
        holds_for(
            "the name is the old or the new",
            &now.name,
            now.name == "dropped" || now.name == "changed",
        )?;
        let text = "a = 1\n".to_owned();
        let saved =
            dropped_after(store.save_config(new.id, Some(text.clone()), Precondition::MustNotExist), polls)
                .await;
        let seen = store.load_config(new.id).await?;
        holds_for(
            "the configuration is whole or none",
            &seen,
            seen.as_ref().is_none_or(|seen| *seen == text),
        )?;
        let text = Some("b = 2\n".to_owned());
        let expect = match &seen {
            Some(_) => Precondition::MustExist,
            None => Precondition::MustNotExist,
        };
        match store.save_config(new.id, text.clone(), expect).await {
            Ok(()) => {}
            // The dropped write came in between.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) && saved.is_none() => {
                store.save_config(new.id, text, Precondition::MustExist).await?;
            }
            Err(error) => return Err(error.into()),
        }
        let hash = ContentHash::of("b = 2\n");
        let last = store.save_config(new.id, None, Precondition::Matches(hash)).await;
        if let Err(error) = &last {
            let late = matches!(error.kind(), ErrorKind::Conflict { .. }) && saved.is_none();
            holds_for("only a dropped write may come in between", error, late)?;
        }
        let deleted = dropped_after(store.delete(new.id), polls).await.is_some();
        store.delete(new.id).await?;
        refused!("what was deleted", store.load(new.id).await, ErrorKind::Deleted)?;
        all_ended = created && put && saved.is_some() && deleted;
        if all_ended {
            break;
        }
    }
    holds_for(format_args!("all end within {SWEEP} polls"), &all_ended, all_ended)?;
    same("those that are left", &store.list(WorkspaceQuery::new()).await?.items.len(), &0)
}

/// A bind and an unbind whose futures are dropped are applied whole or not at all.
async fn a_dropped_bind_is_whole_or_absent(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let (device, kept) = (stage.device("laptop")?, stage.device("kept")?);
    let other = stage.effects.new_workspace_id();
    storage.bindings.bind(&kept, other, Precondition::MustNotExist).await?;
    for polls in 0..SWEEP {
        stage.note(format_args!("the next binds are dropped after {polls} polls"));
        let workspace = stage.effects.new_workspace_id();
        let bound =
            dropped_after(storage.bindings.bind(&device, workspace, Precondition::MustNotExist), polls).await;
        let seen = storage.bindings.resolve(&device).await?;
        holds_for("bound to it or to none", &seen, seen.is_none_or(|seen| seen == workspace))?;
        let winner = storage.bindings.bind(&device, workspace, Precondition::MustNotExist).await?;
        same("bound again", &winner, &workspace)?;
        let unbound = dropped_after(storage.bindings.unbind(&device), polls).await;
        while storage.bindings.unbind(&device).await? {}
        same("another device", &storage.bindings.resolve(&kept).await?, &Some(other))?;
        if bound.is_some() && unbound.is_some() {
            return Ok(());
        }
        // What still happens behind a dropped unbinding or bind must not disturb the next round.
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        storage.bindings.unbind(&device).await?;
    }
    Err(Failure::new("a bind", format_args!("an answer within {SWEEP} polls"), "none"))
}

/// Reads, lists, waits and purges that are dropped at any point leave the store unchanged and usable.
async fn dropped_reads_leave_the_store_usable(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let session = stage.fill(&storage, &session, 20).await?;
    let delete = stage.seal(&session).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let other = stage.new_session(&storage).await?;
    for polls in 0..20 {
        let store = &storage.sessions;
        drop(dropped_after(store.load(session.id), polls).await);
        drop(dropped_after(store.read(session.id, ReadEvents::last(5)), polls).await);
        drop(dropped_after(store.list(SessionQuery::new()), polls).await);
        drop(dropped_after(store.leases().heartbeat(session.id, session.epoch), polls).await);
        drop(dropped_after(store.leases().status(session.id, session.epoch), polls).await);
        drop(dropped_after(store.purge(Purge::new(session.id, session.head)), polls).await);
        // This one never ends by itself: nobody writes.
        let waiting = tokio::time::timeout(
            std::time::Duration::from_millis(5),
            dropped_after(store.changed(session.id, session.head), polls.min(2)),
        );
        drop(waiting.await);
        same("the record", &store.load(session.id).await?, &session)?;
    }
    stage.append(&storage, &other, "usable").await?;
    let events = own_events(&storage, session.id, 100).await?;
    same("its events", &(events.len() as u64), &session.head.get())?;
    let deleted = storage.sessions.commit(delete).await?.session;
    let (tombstone, mut is_purged) = (deleted.tombstone(), false);
    for polls in 0..20 {
        drop(dropped_after(storage.sessions.purge(Purge::new(session.id, deleted.head)), polls).await);
        let now = storage.sessions.load(session.id).await?;
        is_purged |= *now == tombstone;
        same("the record", &*now, if is_purged { &tombstone } else { &*deleted })?;
    }
    storage.sessions.purge(Purge::new(session.id, deleted.head)).await?;
    same("the tombstone", &*storage.sessions.load(session.id).await?, &tombstone)?;
    same("its events after the purge", &own_events(&storage, session.id, 100).await?.len(), &0)
}
