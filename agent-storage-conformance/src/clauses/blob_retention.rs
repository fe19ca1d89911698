//! Retention of blobs: each is kept as long as an event names it. Sweeps, creations, forks, purges.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_core::commit::{Commit, Trigger};
use agent_core::event::NewEvent;
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::Reason;
use agent_core::store::{BlobInfo, Purge, PutBlob, ReadBlob, SweepBlobs, SweptBlobs};
use agent_core::{ErrorKind, Seq, SessionId, SessionStoreExt, Storage};

use super::blobs::{has_exactly, is_absent, is_there, listed, naming, put};
use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, Needs, table};
use crate::samples::{content, showing};
use crate::stage::{Stage, own_events, race};

pub(super) fn clauses() -> Vec<Clause> {
    table![Blobs:
        sweep_removes_only_what_no_event_names (Needs::Blobs),
        sweep_without_session_spares_sessions (Needs::Blobs),
        concurrent_sweeps_remove_no_named_blob (Needs::Blobs),
        session_is_created_with_its_blobs (Needs::Blobs),
        restored_commits_find_their_blobs (Needs::Blobs),
        replayed_commit_needs_no_blob (Needs::Blobs),
        fork_reads_the_blobs_of_its_parent (Needs::Blobs),
        purge_keeps_the_blobs_that_forks_read (Needs::Blobs),
        deleted_session_takes_no_blob (Needs::Blobs),
    ]
}

/// Number of commits, and of the events of each, after which each store knows that no commit that began before is still
/// under way.
const LATER: usize = 20;
const LATER_EVENTS: usize = 13;

/// Commits messages, so that blobs put before are old.
pub(super) async fn go_on(
    stage: &Stage,
    storage: &Storage,
    session: &SessionRecord,
) -> Checked<Arc<SessionRecord>> {
    let mut session = Arc::new(session.clone());
    for n in 0..LATER {
        let events = (0..LATER_EVENTS).map(|m| NewEvent::user_message(format!("message {n} {m}")));
        session = storage.sessions.commit(stage.seal(&session).with_events(events)).await?.session;
    }
    Ok(session)
}

async fn delete(stage: &Stage, storage: &Storage, id: SessionId) -> Checked<Arc<SessionRecord>> {
    let now = storage.sessions.load(id).await?;
    let delete = stage.seal(&now).with_trigger(Trigger::Delete(Reason::UserDeleted));
    Ok(storage.sessions.commit(delete).await?.session)
}

/// Sweeps, and returns the number of removed blobs and of their bytes.
async fn sweep(storage: &Storage, sweep: SweepBlobs) -> Checked<(u64, u64)> {
    let swept = storage.sessions.blobs().sweep(sweep).await?;
    Ok((swept.blobs, swept.bytes))
}

/// A sweep removes and counts the blobs of its session that no event names, and no others. A dry run counts the same and
/// removes nothing.
async fn sweep_removes_only_what_no_event_names(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let (session, other) = (stage.new_session(&storage).await?, stage.new_session(&storage).await?);
    let shown = put(&storage, session.id, &content(1, 300_000)).await?;
    let drawn = put(&storage, session.id, &content(2, 10)).await?;
    let commit = stage.seal(&session).with_event(showing(shown)).with_event(naming([drawn.name])?);
    let named = storage.sessions.commit(commit).await?.session;
    let mut unnamed = Vec::new();
    for (seed, size) in [(3, 300_001), (4, 1)] {
        unnamed.push(put(&storage, session.id, &content(seed, size)).await?);
    }
    // The same bytes, which no event of the other session names.
    let foreign = put(&storage, other.id, &content(1, 300_000)).await?;
    let session = go_on(stage, &storage, &named).await?;
    let (request, bytes) = (SweepBlobs::of(session.id), stage.stored_bytes(&[300_001, 1]));
    let all = [shown, drawn, unnamed[0], unnamed[1]];
    for _ in 0..2 {
        same("what a dry run counts", &sweep(&storage, request.with_dry_run()).await?, &(2, bytes))?;
        has_exactly("the blobs after a dry run", &storage, session.id, &all).await?;
    }
    same("what the sweep removes", &sweep(&storage, request).await?, &(2, bytes))?;
    for _ in 0..2 {
        has_exactly("the blobs after the sweep", &storage, session.id, &[shown, drawn]).await?;
        has_exactly("those of another session", &storage, other.id, &[foreign]).await?;
        storage = stage.reopen(storage).await?;
    }
    same("what another sweep removes", &sweep(&storage, request).await?, &(0, 0))?;
    let commit = stage.seal(&session).with_event(naming([unnamed[0].name])?);
    refused!(
        "a commit that names a removed blob",
        storage.sessions.commit(commit.clone()).await,
        ErrorKind::BlobMissing { blobs } if *blobs == [unnamed[0].name]
    )?;
    put(&storage, session.id, &content(3, 300_001)).await?;
    storage.sessions.commit(commit).await?;
    has_exactly("the blobs after that", &storage, session.id, &[shown, drawn, unnamed[0]]).await
}

/// A sweep of the ids without session removes the blobs of a creation that never came, and none of existing sessions.
async fn sweep_without_session_spares_sessions(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let named = put(&storage, session.id, &content(1, 1000)).await?;
    storage.sessions.commit(stage.seal(&session).with_event(showing(named))).await?;
    let unnamed = put(&storage, session.id, &content(2, 1000)).await?;
    let never = [stage.effects.new_session_id(), stage.effects.new_session_id()];
    let mut lost = Vec::new();
    for (id, size) in [(never[0], 300_000), (never[0], 5), (never[1], 7)] {
        lost.push(put(&storage, id, &content(3, size)).await?);
    }
    let request = SweepBlobs::without_session();
    let new = NewSession::new(never[1], session.workspace);
    let create = Commit::create(&stage.effects, new).with_event(showing(lost[2]));
    let kept = storage.sessions.blobs().sweep(request.with_dry_run()).await?;
    if kept.unfinished > 0 {
        // A store that cannot exclude the creation waits for it.
        for request in [request.with_dry_run(), request, SweepBlobs::of(never[0])] {
            let sizes: &[u64] = if request.session.is_some() { &[300_000, 5] } else { &[300_000, 5, 7] };
            let bytes = stage.stored_bytes(sizes);
            let swept = storage.sessions.blobs().sweep(request).await?;
            same("what a sweep keeps", &swept, &SweptBlobs::default().with_unfinished(bytes))?;
        }
        has_exactly("the blobs of an id without session", &storage, never[0], &lost[..2]).await?;
        has_exactly("those of a session", &storage, session.id, &[named, unnamed]).await?;
        storage.sessions.commit(create).await?;
        return has_exactly("the blobs of the new session", &storage, never[1], &[lost[2]]).await;
    }
    let bytes = stage.stored_bytes(&[300_000, 5, 7]);
    same("what a dry run counts", &sweep(&storage, request.with_dry_run()).await?, &(3, bytes))?;
    has_exactly("the blobs after a dry run", &storage, never[0], &lost[..2]).await?;
    same("what the sweep removes", &sweep(&storage, request).await?, &(3, bytes))?;
    for id in never {
        same("the blobs of an id without session", &listed(&storage, id).await?, &vec![])?;
    }
    has_exactly("those of a session", &storage, session.id, &[named, unnamed]).await?;
    // The creation comes after all, and its writer is told what to put again.
    let refused = storage.sessions.commit(create.clone()).await;
    refused!("a creation without its blob", refused, ErrorKind::BlobMissing { .. })?;
    put(&storage, never[1], &content(3, 7)).await?;
    storage.sessions.commit(create).await?;
    has_exactly("the blobs of the new session", &storage, never[1], &[lost[2]]).await
}

/// Puts blobs and names each in a commit, until each commit is applied. Returns them.
async fn write(
    stage: Arc<Stage>,
    storage: Storage,
    id: SessionId,
    seed: u64,
    refusals: Arc<AtomicU64>,
) -> Checked<Vec<BlobInfo>> {
    let count = 10;
    const ATTEMPTS: usize = 1000;
    let mut named = Vec::new();
    'blobs: for n in 0..count {
        let bytes = content(seed * count + n, 500 + n as usize);
        for _ in 0..ATTEMPTS {
            let blob = put(&storage, id, &bytes).await?;
            let seen = storage.sessions.load(id).await?.head;
            match storage.sessions.commit(stage.seal_at(id, seen).with_event(showing(blob))).await {
                Ok(_) => {
                    refusals.store(0, Ordering::Relaxed);
                    named.push(blob);
                    continue 'blobs;
                }
                // Too many others came between, or the blob was swept before it was named.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => {}
                Err(error) => {
                    refused!("a refused commit", Err::<(), _>(error), ErrorKind::BlobMissing { .. })?;
                    refusals.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        return Err(Failure::new("a commit during sweeps", "success", format_args!("{ATTEMPTS} refusals")));
    }
    Ok(named)
}

/// While sweeps run, each commit is refused as `BlobMissing`, or finds its blobs and keeps them.
async fn concurrent_sweeps_remove_no_named_blob(stage: &Stage) -> Checked {
    stage.in_parts_of(1, (stage.settings.rounds / 50).max(2), |stage, _| swept_while_written(stage)).await
}

async fn swept_while_written(stage: Arc<Stage>) -> Checked {
    let storage = stage.open().await?;
    let id = stage.new_session(&storage).await?.id;
    let sweeper = stage.open().await?;
    let refusals = Arc::new(AtomicU64::new(0));
    let refused = refusals.clone();
    let sweeping = tokio::spawn(async move {
        loop {
            sweeper.sessions.blobs().sweep(SweepBlobs::of(id)).await?;
            // A store that serves callers in turn would sweep between every put and its commit.
            match refused.load(Ordering::Relaxed) {
                0..10 => tokio::task::yield_now().await,
                refused => tokio::time::sleep(Duration::from_millis(refused.min(100))).await,
            }
        }
        #[allow(unreachable_code, reason = "it gives the task its type")]
        Checked::Ok(())
    });
    let mut writers = Vec::new();
    for seed in 0..3 {
        writers.push(write(stage.clone(), stage.open().await?, id, seed, refusals.clone()));
    }
    let mut named = Vec::new();
    for done in race(writers).await? {
        named.extend(done?);
    }
    sweeping.abort();
    match sweeping.await {
        Ok(ended) => ended?,
        Err(error) if error.is_cancelled() => {}
        Err(error) => return Err(Failure::new("a task that sweeps", "no panic", error)),
    }
    for blob in &named {
        is_there("the blob of an acknowledged commit", &storage, id, *blob).await?;
    }
    go_on(&stage, &storage, &*storage.sessions.load(id).await?).await?;
    storage.sessions.blobs().sweep(SweepBlobs::of(id)).await?;
    has_exactly("the blobs after the last sweep", &storage, id, &named).await
}

/// A commit that creates a session finds the blobs that were put for its id before, and fails without them.
async fn session_is_created_with_its_blobs(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let new = stage.session(&storage).await?;
    let id = new.id;
    let bytes = [content(1, 300_000), content(2, 10)];
    let blobs = bytes.each_ref().map(|bytes| BlobInfo::of(bytes));
    let create = Commit::create(&stage.effects, new)
        .with_event(showing(blobs[0]))
        .with_event(naming([blobs[1].name])?);
    for bytes in &bytes {
        let refused = storage.sessions.commit(create.clone()).await;
        refused!("a creation without its blobs", refused, ErrorKind::BlobMissing { .. })?;
        refused!("the session", storage.sessions.load(id).await, ErrorKind::NotFound)?;
        put(&storage, id, bytes).await?;
    }
    let created = storage.sessions.commit(create.clone()).await?;
    same("whether it is a replay", &storage.sessions.commit(create).await?.replayed, &true)?;
    same(
        "what a sweep of ids without session removes",
        &sweep(&storage, SweepBlobs::without_session()).await?,
        &(0, 0),
    )?;
    go_on(stage, &storage, &created.session).await?;
    same("what a sweep of the session removes", &sweep(&storage, SweepBlobs::of(id)).await?, &(0, 0))?;
    for _ in 0..2 {
        has_exactly("the blobs of the session", &storage, id, &blobs).await?;
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// Commits that are restored in another store find the blobs that were put there before, and fail without them.
async fn restored_commits_find_their_blobs(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let new = stage.session(&storage).await?;
    let bytes = [content(1, 300_000), content(2, 10)];
    let mut blobs = Vec::new();
    for bytes in &bytes {
        blobs.push(put(&storage, new.id, bytes).await?);
    }
    let create = Commit::create(&stage.effects, new).with_event(showing(blobs[0]));
    let created = storage.sessions.commit(create).await?.session;
    let commit = stage.seal(&created).with_event(naming([blobs[1].name])?);
    let session = storage.sessions.commit(commit).await?.session;
    let events = own_events(&storage, session.id, 100).await?;
    let (first, second) = events.split_at(created.head.get() as usize);

    // Lives as long as its data is used.
    let other = stage.another(stage.journal.clone()).await?;
    let copy = other.open().await?;
    for (part, bytes) in [(first, &bytes[0]), (second, &bytes[1])] {
        let restore = Commit::restore(session.id, part.to_vec())?;
        let refused = copy.sessions.commit(restore.clone()).await;
        refused!("a restored commit without its blob", refused, ErrorKind::BlobMissing { .. })?;
        put(&copy, session.id, bytes).await?;
        copy.sessions.commit(restore).await?;
    }
    same("the restored session", &copy.sessions.load(session.id).await?, &session)?;
    has_exactly("its blobs", &copy, session.id, &blobs).await
}

/// A commit that was applied is answered when it is sent again, although its blobs were removed with their session.
async fn replayed_commit_needs_no_blob(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let blob = put(&storage, session.id, &content(1, 1000)).await?;
    let commit = stage.seal(&session).with_event(showing(blob));
    let first = storage.sessions.commit(commit.clone()).await?;
    let deleted = delete(stage, &storage, session.id).await?;
    storage.sessions.purge(Purge::new(session.id, deleted.head)).await?;
    is_absent("the purged blob", &storage, session.id, blob.name).await?;
    let again = storage.sessions.commit(commit).await?;
    let answer = (again.replayed, again.first, again.last);
    same("the answer to the commit sent again", &answer, &(true, first.first, first.last))
}

/// A fork, and a fork of it, read the blobs of the events that they share, in the log to which the event belongs.
async fn fork_reads_the_blobs_of_its_parent(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let parent = stage.new_session(&storage).await?;
    let blob = put(&storage, parent.id, &content(1, 300_000)).await?;
    let shown = storage.sessions.commit(stage.seal(&parent).with_event(showing(blob))).await?;
    let fork = storage.sessions.fork(parent.id, None).await?;
    let own = put(&storage, fork.id, &content(2, 10)).await?;
    let append = storage.sessions.commit(stage.seal(&fork).with_event(showing(own))).await?;
    let nested = storage.sessions.fork(fork.id, None).await?;
    for _ in 0..2 {
        for (of, seq, blob) in
            [(fork.id, shown.last, blob), (nested.id, shown.last, blob), (nested.id, append.last, own)]
        {
            let read = storage.sessions.event_blob(seq, ReadBlob::new(of, blob.name)).await?;
            let back = read.into_bytes(usize::MAX).await?;
            same("the blob of a shared event", &BlobInfo::of(&back), &blob)?;
        }
        storage = stage.reopen(storage).await?;
    }
    Ok(())
}

/// Checks that a fork reads a blob of an event that it shares.
async fn reads(storage: &Storage, fork: SessionId, seq: Seq, blob: BlobInfo) -> Checked {
    let read = storage.sessions.event_blob(seq, ReadBlob::new(fork, blob.name)).await?;
    same("the blob that a fork reads", &BlobInfo::of(&read.into_bytes(usize::MAX).await?), &blob)
}

/// A purge keeps the blobs of the events that living forks read, and removes all others. The last purge leaves none.
async fn purge_keeps_the_blobs_that_forks_read(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let parent = stage.new_session(&storage).await?;
    let before = put(&storage, parent.id, &content(1, 300_000)).await?;
    let shown = storage.sessions.commit(stage.seal(&parent).with_event(showing(before))).await?;
    let fork = storage.sessions.fork(parent.id, None).await?;
    let after = put(&storage, parent.id, &content(2, 300_000)).await?;
    let now = storage.sessions.load(parent.id).await?;
    storage.sessions.commit(stage.seal(&now).with_event(naming([after.name, before.name])?)).await?;
    put(&storage, parent.id, &content(3, 10)).await?;
    let own = put(&storage, fork.id, &content(4, 10)).await?;
    storage.sessions.commit(stage.seal(&fork).with_event(showing(own))).await?;

    let deleted = delete(stage, &storage, parent.id).await?;
    let purge = Purge::new(parent.id, deleted.head);
    for _ in 0..2 {
        storage.sessions.purge(purge.clone()).await?;
        has_exactly("the blobs of the purged parent", &storage, parent.id, &[before]).await?;
        reads(&storage, fork.id, shown.last, before).await?;
        // A caller that lost its bytes can put them again, and nothing else.
        put(&storage, parent.id, &content(1, 300_000)).await?;
        for (seed, size) in [(2, 300_000), (5, 10)] {
            let other = storage.sessions.blobs().put(PutBlob::of_bytes(parent.id, content(seed, size))).await;
            refused!("a put to a purged session", other, ErrorKind::Deleted)?;
        }
        has_exactly("its blobs after that", &storage, parent.id, &[before]).await?;
        storage = stage.reopen(storage).await?;
    }
    is_absent("a blob after the fork", &storage, parent.id, after.name).await?;
    same("what a sweep removes", &sweep(&storage, SweepBlobs::of(parent.id)).await?, &(0, 0))?;
    has_exactly("the blobs of the fork", &storage, fork.id, &[own]).await?;

    let ended = delete(stage, &storage, fork.id).await?;
    storage.sessions.purge(Purge::new(fork.id, ended.head)).await?;
    storage.sessions.purge(purge.with_rewrite()).await?;
    for id in [parent.id, fork.id] {
        same("the blobs that are left", &listed(&storage, id).await?, &vec![])?;
    }
    is_absent("the blob of the parent", &storage, parent.id, before.name).await
}

/// A deleted session takes no blob but those that its remaining events name, before it is purged and after.
async fn deleted_session_takes_no_blob(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let session = stage.new_session(&storage).await?;
    let blob = put(&storage, session.id, &content(1, 1000)).await?;
    let commit = stage.seal(&session).with_event(showing(blob)).with_event(NewEvent::user_message("last"));
    storage.sessions.commit(commit).await?;
    let deleted = delete(stage, &storage, session.id).await?;
    let again = || storage.sessions.blobs().put(PutBlob::of_bytes(session.id, content(2, 1000)));
    refused!("a put to a deleted session", again().await, ErrorKind::Deleted)?;
    put(&storage, session.id, &content(1, 1000)).await?;
    storage.sessions.blobs().sweep(SweepBlobs::of(session.id)).await?;
    has_exactly("its blobs", &storage, session.id, &[blob]).await?;
    storage.sessions.purge(Purge::new(session.id, deleted.head)).await?;
    refused!("a put to a purged session", again().await, ErrorKind::Deleted)?;
    let left = listed(&storage, session.id).await?;
    holds_for("no blob", &left, left.is_empty())
}
