//! Contract 8, as far as answers show it: a read returns what was requested and no more; a wait ends when there is an
//! event.

use agent_core::event::{Event, EventPayload, EventType, NewEvent};
use agent_core::json::RawJson;
use agent_core::store::ReadEvents;
use agent_core::{ErrorKind, Seq, SessionStoreExt, Storage};
use futures::StreamExt;

use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, table};
use crate::stage::{Stage, ends, goes_on, own_events, walk};

pub(super) fn clauses() -> Vec<Clause> {
    table![Bounded:
        any_page_size_gives_every_event_once,
        read_returns_the_requested_range,
        events_are_filtered_by_type,
        page_ends_before_its_byte_limit,
        long_session_appends_and_reads_its_last_events,
        messages_are_counted_without_reading_them,
        pages_stay_complete_while_the_session_grows,
        waiting_ends_with_the_next_event,
        following_gives_every_event_once,
    ]
}

fn seqs(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.seq.get()).collect()
}

/// Pages of any size, in either direction, return each event once and in order.
async fn any_page_size_gives_every_event_once(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let session = stage.fill(&storage, &session, 41).await?;
    let all = own_events(&storage, session.id, 1000).await?;
    same("the events", &seqs(&all), &(1..=session.head.get()).collect())?;
    for limit in [1, 2, 3, 7, 20, 41, 42, 43, 1000] {
        let oldest = walk(&storage, session.id, ReadEvents::first(limit)).await?;
        same(format_args!("the oldest first, {limit} a page"), &oldest, &all)?;
        let newest = walk(&storage, session.id, ReadEvents::last(limit)).await?;
        same(format_args!("the newest first, {limit} a page"), &newest, &all)?;
    }
    let page = storage.sessions.read(session.id, ReadEvents::first(42)).await?;
    same("no page follows the last event", &page.next, &None)?;
    // However many are asked for, a page has at most a thousand.
    let mut many = ReadEvents::first(5);
    many.limit = usize::MAX;
    same("a page without an end", &storage.sessions.read(session.id, many).await?.events.len(), &42)
}

/// A read returns the requested range: after, before and both, from either end, also beyond both ends.
async fn read_returns_the_requested_range(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let session = stage.fill(&storage, &session, 19).await?;
    let head = session.head.get();
    for (after, before) in
        [(0, 1), (0, 21), (3, 9), (7, 8), (7, 9), (19, 99), (20, 99), (9, 3), (u64::MAX, 5), (0, u64::MAX)]
    {
        let expected: Vec<_> = (1..=head).filter(|seq| *seq > after && *seq < before).collect();
        for limit in [1, 4, 100] {
            for newest in [false, true] {
                let read = if newest { ReadEvents::last(limit) } else { ReadEvents::first(limit) };
                let read = read.with_after(Seq::new(after)).with_before(Seq::new(before));
                let page = storage.sessions.read(session.id, read.clone()).await?;
                let most = expected.len().min(limit);
                let first = if newest { expected.len() - most } else { 0 };
                let what = format!("after {after}, before {before}, {limit} a page, newest: {newest}");
                same(
                    format_args!("a page {what}"),
                    &seqs(&page.events),
                    &expected[first..first + most].to_vec(),
                )?;
                let known = read.clone().with_known_head(session.head);
                let as_known = storage.sessions.read(session.id, known).await?;
                same(format_args!("a page of the known head {what}"), &as_known.events, &page.events)?;
                let all = walk(&storage, session.id, read).await?;
                same(format_args!("all pages {what}"), &seqs(&all), &expected)?;
            }
        }
    }
    Ok(())
}

/// A read returns only events of the requested types, by pages that skip and repeat none.
async fn events_are_filtered_by_type(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let events = (0..30).map(|n| match n % 3 {
        0 => NewEvent::user_message(n.to_string()),
        1 => NewEvent::agent_message(n.to_string()),
        _ => NewEvent::of(&EventPayload::AgentThinking(agent_core::event::Message::new("hm"))),
    });
    storage.sessions.commit(stage.seal(&session).with_events(events)).await?;
    let all = own_events(&storage, session.id, 100).await?;
    let unknown: EventType = "x.app.none".parse()?;
    for kinds in [
        vec![EventType::USER_MESSAGE],
        vec![EventType::AGENT_MESSAGE, EventType::USER_MESSAGE],
        vec![EventType::SESSION_CREATED],
        vec![unknown],
    ] {
        let expected: Vec<_> = all.iter().filter(|event| kinds.contains(&event.kind)).cloned().collect();
        for limit in [1, 3, 100] {
            for read in [ReadEvents::first(limit), ReadEvents::last(limit)] {
                let found = walk(&storage, session.id, read.with_types(kinds.clone())).await?;
                same(format!("{kinds:?}, {limit} a page"), &found, &expected)?;
            }
        }
    }
    Ok(())
}

/// A page ends before the event that would exceed its limit in bytes, but holds at least one event.
async fn page_ends_before_its_byte_limit(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let kind: EventType = "x.app.blob".parse()?;
    let mut events = Vec::new();
    for size in [10, 40_000, 10, 10, 90_000, 30_000, 30_000, 10, 200_000, 10] {
        events.push(NewEvent::new(kind.clone(), RawJson::of(&"x".repeat(size))?));
    }
    storage.sessions.commit(stage.seal(&session).with_events(events)).await?;
    let all = own_events(&storage, session.id, 100).await?;
    for bytes in [0, 1, 50_000, 100_000, 1 << 20] {
        for newest in [false, true] {
            let read = if newest { ReadEvents::last(100) } else { ReadEvents::first(100) };
            let mut next = Some(read.with_max_bytes(bytes));
            let mut pages = Vec::new();
            while let Some(read) = next {
                let page = storage.sessions.read(session.id, read).await?;
                let size: usize = page.events.iter().map(|event| event.payload.get().len()).sum();
                let fits = size <= bytes || page.events.len() == 1;
                holds_for(format_args!("at most {bytes} bytes or one event"), &seqs(&page.events), fits)?;
                holds_for("no empty page", &page.next, !page.events.is_empty())?;
                goes_on(&pages, &page.events, newest)?;
                pages.push(page.events);
                next = page.next;
            }
            if newest {
                pages.reverse();
            }
            same(format_args!("all pages of {bytes} bytes"), &pages.concat(), &all)?;
        }
    }
    Ok(())
}

/// A session of thousands of events accepts another, and returns its last ones, like a short session.
async fn long_session_appends_and_reads_its_last_events(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let session = stage.fill(&storage, &session, 4000).await?;
    let done = stage.append(&storage, &session, "one more").await?;
    same("its number", &done.last, &session.head.next())?;
    storage = stage.reopen(storage).await?;
    let page = storage.sessions.read(session.id, ReadEvents::last(50)).await?;
    same("the last 50", &seqs(&page.events), &(done.last.get() - 49..=done.last.get()).collect())?;
    let middle = ReadEvents::first(3).with_after(Seq::new(2000));
    let page = storage.sessions.read(session.id, middle).await?;
    same("three in the middle", &seqs(&page.events), &vec![2001, 2002, 2003])?;
    stage.append(&storage, &done.session, "and another").await.map(drop)
}

/// Messages of each kind, tool calls and runs are counted in the record and in the list, and match the log.
async fn messages_are_counted_without_reading_them(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let (running, run) = stage.begin_run(&storage, &session, "one").await?;
    let call: agent_core::model::CallId = "c".parse()?;
    let commit = stage
        .seal_run(&running, run)
        .with_event(NewEvent::tool_use(call.clone(), "ls", RawJson::empty_object()))
        .with_event(NewEvent::tool_result(call, agent_core::event::ToolOutcome::Ok, RawJson::empty_object()))
        .with_event(NewEvent::agent_message("two"))
        .with_event(NewEvent::agent_message("three"))
        .with_event(NewEvent::system_prompt("four"));
    let now = storage.sessions.commit(commit).await?.session;
    storage = stage.reopen(storage).await?;
    let record = storage.sessions.load(session.id).await?;
    let counts = record.counts;
    let seen = (counts.user, counts.agent, counts.system, counts.tool_calls, counts.runs, counts.messages());
    same("the counts", &seen, &(1, 2, 1, 1, 1, 4))?;
    same("when it was last active", &record.last_active_at, &now.last_active_at)?;
    let list = storage.sessions.list(agent_core::store::SessionQuery::new()).await?;
    same("the counts in the list", &list.items.first().map(|item| item.counts), &Some(counts))
}

/// Pages that are read while the session grows hold each event that existed before exactly once.
async fn pages_stay_complete_while_the_session_grows(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let session = stage.new_session(&handles[0]).await?;
    let mut now = stage.fill(&handles[0], &session, 20).await?;
    let there = now.head.get();
    let (mut seen, mut next) = (Vec::new(), Some(ReadEvents::last(4)));
    while let Some(read) = next {
        let mut page = handles[1].sessions.read(session.id, read).await?;
        page.events.reverse();
        seen.extend(seqs(&page.events));
        ends(seen.len())?;
        next = page.next;
        now = stage.append(&handles[0], &now, "meanwhile").await?.session;
    }
    same("the events that were there, newest first", &seen, &(1..=there).rev().collect())?;
    let forward = walk(&handles[1], session.id, ReadEvents::first(3)).await?;
    same("all, forward", &seqs(&forward), &(1..=now.head.get()).collect())
}

/// A wait for a session ends immediately if there are newer events, and otherwise with the next event, on any handle.
async fn waiting_ends_with_the_next_event(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let session = stage.new_session(&handles[0]).await?;
    let head = handles[1].sessions.changed(session.id, Seq::ZERO).await?;
    same("the head, where there is news", &head, &session.head)?;
    let (waiter, id, seen) = (handles[1].clone(), session.id, session.head);
    let waiting = tokio::spawn(async move { waiter.sessions.changed(id, seen).await });
    tokio::task::yield_now().await;
    let done = stage.append(&handles[0], &session, "news").await?;
    let head = waiting.await.map_err(|error| Failure::new("a task", "an end", error))??;
    same("the head, after the news", &head, &done.last)?;
    let none = stage.effects.new_session_id();
    refused!(
        "waiting for no session",
        handles[0].sessions.changed(none, Seq::ZERO).await,
        ErrorKind::NotFound
    )?;
    Ok(())
}

async fn collect(storage: Storage, id: agent_core::SessionId, until: Seq) -> Checked<Vec<u64>> {
    let mut seen = Vec::new();
    let mut events = storage.sessions.follow(id, Seq::ZERO);
    while let Some(event) = events.next().await {
        let event = event?;
        seen.push(event.seq.get());
        if event.seq >= until {
            break;
        }
    }
    Ok(seen)
}

/// A follower of a session gets each event that others write once, in order.
async fn following_gives_every_event_once(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let mut session = stage.new_session(&handles[0]).await?;
    let count = (stage.settings.rounds / 10).clamp(3, 30) as u64;
    let until = Seq::new(session.head.get() + count);
    let follower = tokio::spawn(collect(handles[1].clone(), session.id, until));
    for n in 0..count {
        session = stage.append(&handles[0], &session, &format!("message {n}")).await?.session;
        tokio::task::yield_now().await;
    }
    let seen = follower.await.map_err(|error| Failure::new("a task", "an end", error))??;
    same("what the follower saw", &seen, &(1..=until.get()).collect())
}
