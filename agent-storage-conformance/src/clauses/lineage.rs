//! Forks and children: a history that spans several sessions reads as one, at any length and depth.

use std::sync::Arc;

use agent_core::commit::{Commit, Trigger};
use agent_core::event::{ChildCreated, Event, EventPayload, NewEvent};
use agent_core::json::RawJson;
use agent_core::model::{Origin, Patch};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{Purge, ReadEvents, SessionQuery};
use agent_core::{ErrorKind, Seq, SessionId, SessionStoreExt, Storage};
use futures::TryStreamExt;

use crate::failure::{Checked, Failure, holds_for, refused, same, shown};
use crate::registry::{Clause, Needs, table};
use crate::stage::{Stage, goes_on, own_events, race};

pub(super) fn clauses() -> Vec<Clause> {
    table![Lineage:
        fork_has_the_history_and_stays_independent,
        fork_never_sees_later_events_of_its_parent,
        a_fork_at_a_point_has_the_history_up_to_there,
        no_fork_cuts_a_tool_call_from_its_result,
        a_fork_of_a_long_session_copies_nothing,
        a_chain_of_forks_reads_as_one_history,
        forks_are_complete_while_the_parent_grows,
        forks_and_children_are_listed_by_their_parent (Needs::ImmediateLists),
        lineage_is_known_after_the_parent_is_deleted,
        deleted_session_cannot_become_a_parent,
        child_is_linked_at_creation_and_reports_its_end,
        sessions_do_not_affect_each_other,
    ]
}

/// Returns the whole history of a session, read by pages of the given size, forward or backward.
pub(super) async fn history(
    storage: &Storage,
    id: SessionId,
    page: usize,
    newest: bool,
) -> Checked<Vec<Event>> {
    let read = if newest { ReadEvents::last(page) } else { ReadEvents::first(page) };
    let (mut pages, mut next) = (Vec::new(), Some(read));
    while let Some(read) = next {
        let got = storage.sessions.history(id, read).await?;
        let fits = got.events.len() <= page && (!got.events.is_empty() || got.next.is_none());
        holds_for(format_args!("a page of 1 to {page}"), &got.events.len(), fits)?;
        goes_on(&pages, &got.events, newest)?;
        pages.push(got.events);
        next = got.next;
    }
    if newest {
        pages.reverse();
    }
    Ok(pages.concat())
}

fn seqs(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.seq.get()).collect()
}

fn to(last: u64) -> Vec<u64> {
    (1..=last).collect()
}

/// A fork has its parent's history, counts and attributes. Later changes of either do not affect the other; the parent
/// is not changed.
async fn fork_has_the_history_and_stays_independent(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let patch = Patch::new()
        .with_label("k", "v")
        .with_reference("model", "m")
        .with_metadata("n", RawJson::parse("1.0")?);
    let new = stage.session(&storage).await?.with_patch(&patch);
    let parent = stage.create(&storage, new).await?;
    let parent = stage.fill(&storage, &parent, 12).await?;
    let before = own_events(&storage, parent.id, 100).await?;
    let child = storage.sessions.fork(parent.id, None).await?;
    same("its origin", &child.origin.parent(), &Some(parent.id))?;
    same("where it starts", &(child.lineage.base(), child.depth), &(parent.head, 1))?;
    same("what is said of it", &child.attributes, &parent.attributes)?;
    same("its counts", &child.counts, &parent.counts)?;
    same("its workspace", &child.workspace, &parent.workspace)?;
    same("the parent", &storage.sessions.load(parent.id).await?, &parent)?;
    let appended = stage.append(&storage, &child, "in the fork").await?.session;
    let parent_now = stage.append(&storage, &parent, "in the parent").await?.session;
    for _ in 0..2 {
        let all = history(&storage, child.id, 5, false).await?;
        same("the fork's sequence", &seqs(&all), &to(appended.head.get()))?;
        same("what it has in common", &all[..before.len()], &before[..])?;
        let own = own_events(&storage, child.id, 3).await?;
        same("the fork's own events", &seqs(&own), &(parent.head.get() + 1..=appended.head.get()).collect())?;
        let parents = history(&storage, parent.id, 5, false).await?;
        same("the parent's history", &seqs(&parents), &to(parent_now.head.get()))?;
        same("the fork's record", &storage.sessions.load(child.id).await?, &appended)?;
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// A fork's history stays unchanged whatever happens to the parent after the fork, read forward, backward and as a
/// stream.
async fn fork_never_sees_later_events_of_its_parent(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let parent = stage.new_session(&storage).await?;
    let mut parent = stage.fill(&storage, &parent, 7).await?;
    let child = storage.sessions.fork(parent.id, None).await?;
    let child = stage.append(&storage, &child, "mine").await?.session;
    let before = history(&storage, child.id, 100, false).await?;
    same("its history at first", &seqs(&before), &to(child.head.get()))?;
    for round in 0..5 {
        parent = stage.fill(&storage, &parent, 6).await?;
        if round == 3 {
            let clear = stage.seal(&parent).with_event(NewEvent::history_cleared());
            parent = storage.sessions.commit(clear).await?.session;
        }
        for page in [1, 4, 100] {
            same("its history, forward", &history(&storage, child.id, page, false).await?, &before)?;
            same("its history, backward", &history(&storage, child.id, page, true).await?, &before)?;
        }
        let streamed: Vec<Event> = storage.sessions.events(child.id, Seq::ZERO).try_collect().await?;
        same("its history, streamed", &streamed, &before)?;
        same("the child's record", &storage.sessions.load(child.id).await?, &child)?;
    }
    Ok(())
}

/// A fork at a point has the history up to that point, even if the point is in an ancestor; its counts are those of
/// that point. A point inside a commit is refused, and the error names both of its ends.
async fn a_fork_at_a_point_has_the_history_up_to_there(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let root = stage.new_session(&storage).await?;
    let root = in_commits(stage, &storage, &root, &[1, 3, 2, 1, 3]).await?;
    let middle = storage.sessions.fork(root.id, None).await?;
    let middle = in_commits(stage, &storage, &middle, &[2, 1, 3, 2, 1]).await?;
    let all = history(&storage, middle.id, 100, false).await?;
    for event in &all {
        let at = event.seq.get();
        if event.n < event.of {
            let fork = storage.sessions.fork(middle.id, Some(event.seq)).await;
            let ends = format!("{} or {}", at - u64::from(event.n), at + u64::from(event.of - event.n));
            let is_named = fork.as_ref().is_err_and(|error| error.to_string().contains(&ends));
            holds_for("the error names both ends", &fork, is_named)?;
            refused!(format_args!("a fork inside a commit, at {at}"), fork, ErrorKind::InvalidInput)?;
            continue;
        }
        let fork = storage.sessions.fork(middle.id, Some(Seq::new(at))).await?;
        let shared = history(&storage, fork.id, 4, false).await?;
        same(format_args!("the history of a fork at {at}"), &shared[..at as usize], &all[..at as usize])?;
        same("and its own first event", &(shared.len() as u64), &(at + 1))?;
        let messages =
            all[..at as usize].iter().filter(|e| e.kind == agent_core::event::EventType::USER_MESSAGE);
        same("the messages counted", &fork.counts.user, &(messages.count() as u64))?;
        same("its parent", &fork.origin.parent(), &Some(middle.id))?;
    }
    for at in [Seq::ZERO, middle.head.next(), Seq::new(u64::MAX)] {
        let fork = storage.sessions.fork(middle.id, Some(at)).await;
        refused!(format_args!("a fork at {at}"), fork, ErrorKind::InvalidInput)?;
    }
    Ok(())
}

/// Adds messages in commits of these numbers of events.
async fn in_commits(
    stage: &Stage,
    storage: &Storage,
    session: &SessionRecord,
    commits: &[usize],
) -> Checked<Arc<SessionRecord>> {
    let mut now = Arc::new(session.clone());
    for count in commits {
        now = stage.fill(storage, &now, *count).await?;
    }
    Ok(now)
}

/// A fork cannot separate a tool call from its result. Without a point, a fork uses the last point at which no call is
/// open.
async fn no_fork_cuts_a_tool_call_from_its_result(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let call: agent_core::model::CallId = "call 1".parse()?;
    let commit = stage.seal(&session).with_event(NewEvent::user_message("look"));
    let asked = storage.sessions.commit(commit).await?.session;
    let commit =
        stage.seal(&asked).with_event(NewEvent::tool_use(call.clone(), "ls", RawJson::empty_object()));
    let open = storage.sessions.commit(commit).await?.session;
    let at_call = open.head;
    let fork = storage.sessions.fork(session.id, Some(at_call)).await;
    refused!("a fork at an open call", fork, ErrorKind::InvalidInput)?;
    let fork = storage.sessions.fork(session.id, None).await?;
    same("where a fork without a point starts", &fork.lineage.base().next(), &at_call)?;
    same("open calls of the fork", &fork.open_calls, &vec![])?;
    let result = NewEvent::tool_result(call, agent_core::event::ToolOutcome::Ok, RawJson::empty_object());
    let closed = storage.sessions.commit(stage.seal(&open).with_event(result)).await?.session;
    let fork = storage.sessions.fork(session.id, Some(at_call)).await;
    refused!("a fork between call and result", fork, ErrorKind::InvalidInput)?;
    let fork = storage.sessions.fork(session.id, None).await?;
    same("where a fork after the result starts", &fork.lineage.base(), &closed.head)
}

/// A fork at ten thousand events has one event of its own, and reads all of them.
async fn a_fork_of_a_long_session_copies_nothing(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let parent = stage.new_session(&storage).await?;
    let parent = stage.fill(&storage, &parent, 9_999).await?;
    let child = storage.sessions.fork(parent.id, None).await?;
    same("the fork's own events", &own_events(&storage, child.id, 10).await?.len(), &1)?;
    storage = stage.reopen(storage).await?;
    let mut count = 0u64;
    let mut events = storage.sessions.events(child.id, Seq::ZERO);
    while let Some(event) = events.try_next().await? {
        count += 1;
        if event.seq.get() != count {
            return Err(Failure::new("the fork's history", count, event.seq));
        }
    }
    same("how many events it reads", &count, &10_001)?;
    let last = storage.sessions.history(child.id, ReadEvents::last(3)).await?;
    same("its last three", &seqs(&last.events), &vec![9_999, 10_000, 10_001])
}

/// A chain of forks deeper than a record describes reads as one history, in both directions, by pages of any size,
/// across every boundary. Each record contains its depth and stays small.
async fn a_chain_of_forks_reads_as_one_history(stage: &Stage) -> Checked {
    const DEPTH: u32 = 45;

    let mut storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    let mut chain: Vec<Arc<SessionRecord>> = Vec::new();
    for n in 0..DEPTH {
        session = stage.fill(&storage, &session, 1 + n as usize % 4).await?;
        chain.push(session.clone());
        session = storage.sessions.fork(session.id, None).await?;
        same("its depth", &session.depth, &(n + 1))?;
        let segments = session.lineage.segments.len();
        holds_for("at most 32 segments", &segments, segments <= agent_core::model::Lineage::MAX_SEGMENTS)?;
    }
    let last = stage.append(&storage, &session, "the end").await?.session;
    storage = stage.reopen(storage).await?;
    for page in [1, 7, 50, 1000] {
        let forward = history(&storage, last.id, page, false).await?;
        same(format_args!("forward, {page} a page"), &seqs(&forward), &to(last.head.get()))?;
        let backward = history(&storage, last.id, page, true).await?;
        same(format_args!("backward, {page} a page"), &backward, &forward)?;
    }
    let all = history(&storage, last.id, 1000, false).await?;
    for one in chain.iter().step_by(11) {
        let own = history(&storage, one.id, 9, false).await?;
        same("the history of one in the middle", &own[..], &all[..one.head.get() as usize])?;
    }
    for (after, before) in [(0, 2), (3, 17), (20, 90), (90, 91)] {
        let read = ReadEvents::first(1000).with_after(Seq::new(after)).with_before(Seq::new(before));
        let part = storage.sessions.history(last.id, read).await?;
        same(
            format_args!("after {after}, before {before}"),
            &seqs(&part.events),
            &(after + 1..before).collect(),
        )?;
    }
    let early = storage.sessions.fork(last.id, Some(Seq::new(3))).await?;
    same("a fork at its third event", &seqs(&history(&storage, early.id, 10, false).await?), &to(4))
}

/// Forks that are created while the parent receives messages have a complete history, up to the point at which they
/// were created.
async fn forks_are_complete_while_the_parent_grows(stage: &Stage) -> Checked {
    let handles = stage.handles(3).await?;
    let session = stage.new_session(&handles[0]).await?;
    let each = (stage.settings.rounds / 20).max(2);
    let (writer, id) = (handles[0].clone(), session.id);
    let mut seen = session.head;
    let write = async move {
        for n in 0..each * 4 {
            let events = vec![NewEvent::user_message(format!("message {n}"))];
            seen = writer.sessions.append(id, seen, events).await?.last;
        }
        Ok(Vec::new())
    };
    let fork = |storage: &Storage| {
        let storage = storage.clone();
        async move {
            let mut forks = Vec::new();
            for _ in 0..each {
                forks.push(storage.sessions.fork(id, None).await?);
            }
            Ok::<_, agent_core::Error>(forks)
        }
    };
    let tasks: [futures::future::BoxFuture<'static, agent_core::Result<Vec<Arc<SessionRecord>>>>; 3] =
        [Box::pin(write), Box::pin(fork(&handles[1])), Box::pin(fork(&handles[2]))];
    let results = race(tasks).await?;
    let parents = history(&handles[0], id, 1000, false).await?;
    for result in results {
        for fork in result? {
            let base = fork.lineage.base().get() as usize;
            let all = history(&handles[1], fork.id, 1000, false).await?;
            same("what it has in common with its parent", &all[..base], &parents[..base])?;
            same("its sequence", &seqs(&all), &to(fork.head.get()))?;
            let messages =
                all.iter().filter(|e| e.kind == agent_core::event::EventType::USER_MESSAGE).count();
            same("its counted messages", &fork.counts.user, &(messages as u64))?;
        }
    }
    Ok(())
}

/// Forks and children are found by their parent, with their origin and depth.
async fn forks_and_children_are_listed_by_their_parent(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let root = stage.new_session(&storage).await?;
    let fork = storage.sessions.fork(root.id, None).await?;
    let child = storage.sessions.create_child(root.id, Patch::new()).await?;
    let grandchild = storage.sessions.fork(fork.id, None).await?;
    let of = async |parent: SessionId| -> Checked<Vec<(SessionId, u32, bool)>> {
        let page = storage.sessions.list(SessionQuery::new().with_parent(parent)).await?;
        let is_fork = |origin: &Origin| matches!(origin, Origin::Fork { .. });
        let mut found: Vec<_> = page.items.iter().map(|s| (s.id, s.depth, is_fork(&s.origin))).collect();
        found.sort();
        Ok(found)
    };
    let mut expected = vec![(fork.id, 1, true), (child.id, 1, false)];
    expected.sort();
    same("those of the root", &of(root.id).await?, &expected)?;
    same("those of the fork", &of(fork.id).await?, &vec![(grandchild.id, 2, true)])?;
    same("those of the child", &of(child.id).await?, &vec![])
}

/// After the parent was deleted and purged, a fork still has its origin and reads the same history as before.
async fn lineage_is_known_after_the_parent_is_deleted(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let root = stage.new_session(&storage).await?;
    let root = in_commits(stage, &storage, &root, &[4, 4]).await?;
    let fork = storage.sessions.fork(root.id, Some(Seq::new(5))).await?;
    let before = history(&storage, fork.id, 100, false).await?;
    let delete = stage.seal(&root).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = storage.sessions.commit(delete).await?.session;
    storage.sessions.purge(Purge::new(root.id, deleted.head)).await?;
    storage = stage.reopen(storage).await?;
    let now = storage.sessions.load(fork.id).await?;
    same("its origin", &now.origin.parent(), &Some(root.id))?;
    same("its history", &history(&storage, fork.id, 2, true).await?, &before)?;
    let listed = storage.sessions.list(SessionQuery::new().with_parent(root.id)).await?;
    same("those of the deleted parent", &listed.items.len(), &1)?;
    let again = storage.sessions.fork(fork.id, None).await?;
    same("a fork of the fork", &history(&storage, again.id, 100, false).await?[..before.len()], &before[..])
}

/// A deleted session cannot be forked or get a child, not even by a commit that was prepared before the deletion.
async fn deleted_session_cannot_become_a_parent(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let parent = stage.new_session(&storage).await?;
    let prepared = [
        NewSession::fork(stage.effects.new_session_id(), &parent),
        NewSession::child(stage.effects.new_session_id(), &parent),
    ];
    let delete = stage.seal(&parent).with_trigger(Trigger::Delete(Reason::UserDeleted));
    same("the state", &storage.sessions.commit(delete).await?.session.status.state, &SessionState::Deleted)?;
    for new in prepared {
        let id = new.id;
        let result = storage.sessions.commit(Commit::create(&stage.effects, new)).await;
        refused!("a session made from it", result, ErrorKind::Deleted)?;
        refused!("that session", storage.sessions.load(id).await, ErrorKind::NotFound)?;
    }
    let fork = storage.sessions.fork(parent.id, None).await;
    refused!("a fork", fork, ErrorKind::Deleted)?;
    let unknown = NewSession::child(stage.effects.new_session_id(), &{
        let mut unknown = SessionRecord::clone(&parent);
        unknown.id = stage.effects.new_session_id();
        unknown
    });
    let result = storage.sessions.commit(Commit::create(&stage.effects, unknown)).await;
    refused!("a child of a session that never was", result, ErrorKind::NotFound)?;
    Ok(())
}

/// A child names its parent from its first event on, is announced in the parent's log, and reports its end there.
async fn child_is_linked_at_creation_and_reports_its_end(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let parent = stage.new_session(&storage).await?;
    let child = storage.sessions.create_child(parent.id, Patch::new().with_label("task", "search")).await?;
    same("its parent", &child.origin.parent(), &Some(parent.id))?;
    same("its history is its own", &(child.lineage.base(), child.head >= Seq::new(1)), &(Seq::ZERO, true))?;
    let last = own_events(&storage, parent.id, 10).await?.pop();
    let announced = EventPayload::SessionChildCreated(ChildCreated::new(child.id));
    same("the parent's last event", &last.map(|event| event.decode()).transpose()?, &Some(announced))?;
    storage.sessions.report_child(child.id, Some("found".to_owned())).await?;
    let last = own_events(&storage, parent.id, 10).await?.pop();
    match last.map(|event| event.decode()).transpose()? {
        Some(EventPayload::SessionChildIdle(idle)) => {
            same(
                "what the child reports",
                &(idle.child, idle.result.as_deref()),
                &(child.id, Some("found")),
            )?;
        }
        other => {
            return Err(Failure::new("the parent's last event", "the child's report", shown(&other)));
        }
    }
    let result = storage.sessions.report_child(parent.id, None).await;
    refused!("a report of a session without a parent", result, ErrorKind::InvalidInput)?;
    Ok(())
}

/// Events, timers, questions and runs of one session never appear in another of the same workspace.
async fn sessions_do_not_affect_each_other(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspace = stage.new_workspace(&storage).await?;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let new = NewSession::new(stage.effects.new_session_id(), workspace.id);
        sessions.push(stage.create(&storage, new).await?);
    }
    let (running, _) = stage.begin_run(&storage, &sessions[0], "work").await?;
    let timer = agent_core::model::Timer::new("daily", crate::stage::START);
    let busy =
        stage.seal(&running).with_event(NewEvent::timer_scheduled(timer)).with_event(NewEvent::interrupt());
    storage.sessions.commit(busy).await?;
    stage.fill(&storage, &sessions[1], 5).await?;
    same("the third session", &storage.sessions.load(sessions[2].id).await?, &sessions[2])?;
    let events = own_events(&storage, sessions[2].id, 10).await?;
    same("its events", &(events.len() as u64), &sessions[2].head.get())?;
    let now = storage.sessions.load(sessions[1].id).await?;
    same(
        "what the second knows of it",
        &(now.lease.clone(), now.stop_request, now.timers.clone(), now.epoch.get()),
        &(None, None, vec![], 0),
    )
}
