//! Blobs that outlive a kill and a loss of power, and calls about them during which the medium fails.

use std::ops::Range;
use std::sync::Arc;

use agent_core::commit::Commit;
use agent_core::session::SessionRecord;
use agent_core::store::{BlobInfo, PutBlob, SweepBlobs};
use agent_core::{ErrorKind, SessionId, Storage};

use super::blob_retention::go_on;
use super::blobs::{has_exactly, is_there, listed, naming, put, read};
use super::durable::{after_each_kill, killed};
use super::power::MOST_CALLS;
use crate::factory::FailingCall;
use crate::failure::{Checked, Failure, holds_for, same};
use crate::registry::{Clause, Needs, table};
use crate::samples::{content, showing};
use crate::stage::{Stage, own_events};
use crate::worker::{BlobStep, Order, numbered_blob};

pub(super) fn clauses() -> Vec<Clause> {
    table![Blobs:
        blobs_outlive_a_kill (Needs::BlobCrash),
        blobs_outlive_a_power_loss (Needs::BlobPowerLoss),
        failed_calls_leave_blobs_whole_or_absent (Needs::BlobFaults),
    ]
}

/// A process that is killed at any moment, while it puts blobs and names them, leaves every acknowledged blob, and no
/// event that names a missing one. A sweep then removes what no event names.
async fn blobs_outlive_a_kill(stage: &Stage) -> Checked {
    after_each_kill(stage, kill_puts).await
}

/// Distance between the numbers of the first blobs of two processes.
const PER_PROCESS: u64 = 1_000_000;

async fn kill_puts(stage: Arc<Stage>, kills: Range<usize>) -> Checked {
    let stage = &*stage;
    let mut storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    let (mut named, mut early) = (Vec::new(), Vec::new());
    for round in kills {
        let first = round as u64 * PER_PROCESS;
        let order = Order::PutBlobs(session.id, session.workspace, first);
        let answers;
        (storage, answers) = killed(stage, storage, order).await?;
        let steps = answers.iter().map(|answer| BlobStep::from_text(answer)).collect::<Checked<Vec<_>>>()?;
        let events = own_events(&storage, session.id, 1000).await?;
        let in_log: Vec<_> = events.iter().flat_map(|event| event.blobs.iter().copied()).collect();
        let (known, acknowledged) = (named.len(), count(&steps, |step| matches!(step, BlobStep::Named(_))));
        holds_for(
            format_args!("{acknowledged} more events that name blobs, or one more than that"),
            &in_log.len(),
            (known + acknowledged..=known + acknowledged + 1).contains(&in_log.len()),
        )?;
        let count = in_log.len().saturating_sub(known) as u64;
        named.extend((first..first + count).map(|n| BlobInfo::of(&numbered_blob(n))));
        same("the blobs that events name", &in_log, &named.iter().map(|blob| blob.name).collect())?;
        for blob in &named[known..] {
            is_there("a blob that an event names", &storage, session.id, *blob).await?;
        }
        for step in steps {
            let (what, id, n) = match step {
                BlobStep::Put(n) => ("a blob whose put was acknowledged", session.id, n),
                BlobStep::Early(n, id) => ("a blob that was put before its session", id, n),
                BlobStep::Created(n, id) => {
                    same("the head of a new session", &storage.sessions.load(id).await?.head.get(), &2)?;
                    ("a blob of a new session", id, n)
                }
                BlobStep::Named(_) => continue,
            };
            let blob = BlobInfo::of(&numbered_blob(n));
            is_there(what, &storage, id, blob).await?;
            if id != session.id && !early.contains(&(id, blob)) {
                early.push((id, blob));
            }
        }
        // The blob whose put, or whose commit, may have been under way.
        let next = put(&storage, session.id, &numbered_blob(first + count)).await?;
        let now = storage.sessions.load(session.id).await?;
        session = storage.sessions.commit(stage.seal(&now).with_event(showing(next))).await?.session;
        named.push(next);
    }
    go_on(stage, &storage, &session).await?;
    storage.sessions.blobs().sweep(SweepBlobs::of(session.id)).await?;
    has_exactly("the blobs after a sweep", &storage, session.id, &named).await?;
    let swept = storage.sessions.blobs().sweep(SweepBlobs::without_session()).await?;
    for (id, blob) in early {
        let blobs: &[BlobInfo] = match storage.sessions.load(id).await {
            Ok(_) => &[blob],
            // A store that cannot exclude the creation keeps it for a while, and says so.
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                let is_kept = swept.unfinished >= blob.bytes && !listed(&storage, id).await?.is_empty();
                if is_kept { &[blob] } else { &[] }
            }
            Err(error) => return Err(error.into()),
        };
        has_exactly("those of the other sessions", &storage, id, blobs).await?;
    }
    Ok(())
}

fn count(steps: &[BlobStep], wanted: impl Fn(&BlobStep) -> bool) -> usize {
    steps.iter().filter(|step| wanted(step)).count()
}

/// Power is lost after each put, commit, creation and sweep: each blob that was acknowledged and not removed is there.
async fn blobs_outlive_a_power_loss(stage: &Stage) -> Checked {
    let mut stage = stage.for_faults().await?;
    let mut storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    let mut blobs = Vec::new();
    for (seed, size) in [(1, 10), (2, 300_000)] {
        let bytes = content(seed, size);
        // A blob that is there is put again, too.
        for _ in 0..2 {
            let blob = put(&storage, session.id, &bytes).await?;
            stage = stage.lose_power(storage).await?;
            storage = stage.open().await?;
            is_there("a blob after the loss of power", &storage, session.id, blob).await?;
        }
        let commit = stage.seal(&session).with_event(showing(BlobInfo::of(&bytes)));
        session = storage.sessions.commit(commit).await?.session;
        blobs.push(BlobInfo::of(&bytes));
        stage = stage.lose_power(storage).await?;
        storage = stage.open().await?;
        same("the session", &storage.sessions.load(session.id).await?, &session)?;
        has_exactly("its blobs after the loss of power", &storage, session.id, &blobs).await?;

        let new = stage.session(&storage).await?;
        let (id, blob) = (new.id, put(&storage, new.id, &bytes).await?);
        stage = stage.lose_power(storage).await?;
        storage = stage.open().await?;
        has_exactly("a blob before its session", &storage, id, &[blob]).await?;
        storage.sessions.commit(Commit::create(&stage.effects, new).with_event(showing(blob))).await?;
        stage = stage.lose_power(storage).await?;
        storage = stage.open().await?;
        has_exactly("the blob of a new session", &storage, id, &[blob]).await?;
    }
    put(&storage, session.id, &content(3, 300_000)).await?;
    session = go_on(&stage, &storage, &session).await?;
    storage.sessions.blobs().sweep(SweepBlobs::of(session.id)).await?;
    stage = stage.lose_power(storage).await?;
    storage = stage.open().await?;
    for blob in blobs {
        is_there("a blob that an event names, after a sweep", &storage, session.id, blob).await?;
    }
    Ok(())
}

/// Call about blobs that is made while a call to the medium fails.
#[derive(Clone, Copy, Debug)]
enum Call {
    Put,
    Name,
    Sweep,
}

/// Each call to the medium fails, with and without its effect, during a put, a commit that names a blob, and a sweep; of
/// the many similar ones for a large blob only some do. A blob is whole or absent then, and is there if an event names
/// it. The call repeated succeeds.
async fn failed_calls_leave_blobs_whole_or_absent(stage: &Stage) -> Checked {
    for done in [false, true] {
        for call in [Call::Put, Call::Name, Call::Sweep] {
            // A commit does not write the bytes.
            let sizes: &[usize] = if matches!(call, Call::Name) { &[10] } else { &[10, 300_000] };
            for size in sizes {
                fail_each_call(&stage.for_faults().await?, call, *size, done).await?;
            }
        }
    }
    Ok(())
}

/// Number of the first calls to the medium that fail each, and the distance between those after them.
const FIRST_CALLS: usize = 32;
const CALLS_STEP: usize = 13;

async fn fail_each_call(stage: &Stage, call: Call, size: usize, done: bool) -> Checked {
    let mut storage = stage.open().await?;
    let mut session = stage.new_session(&storage).await?;
    let kept = put(&storage, session.id, b"kept").await?;
    session = storage.sessions.commit(stage.seal(&session).with_event(showing(kept))).await?.session;
    for skip in (0..FIRST_CALLS).chain((FIRST_CALLS..MOST_CALLS).step_by(CALLS_STEP)) {
        let tried = Tried { call, session: session.clone(), bytes: content(skip as u64, size) };
        let blob = BlobInfo::of(&tried.bytes);
        let commit = stage.seal(&session).with_event(naming([blob.name])?);
        if !matches!(call, Call::Put) {
            put(&storage, session.id, &tried.bytes).await?;
        }
        stage.fail(Some(FailingCall::new(skip, done))).await?;
        let answer = tried.send(&storage, &commit).await;
        let struck = stage.fail(None).await?;
        if skip == 0 && !struck {
            let what = format!("the first call to the medium of {call:?}");
            return Err(Failure::new(what, "it fails, as Factory::fail was asked for", "it was not made"));
        }
        if let Err(error) = answer {
            if !struck {
                return Err(Failure::of(format_args!("{call:?} while no call failed"), "success", &error));
            }
            // An error may leave a handle of no use.
            storage = stage.reopen(storage).await?;
            match read(&storage, session.id, blob.name).await {
                Ok(back) => holds_for("the bytes that were put", &back.len(), back == tried.bytes)?,
                Err(error) if *error.kind() == ErrorKind::NotFound && !matches!(call, Call::Name) => {}
                Err(error) => {
                    let what = format!("a blob after {call:?} failed");
                    return Err(Failure::of(what, "it whole, or NotFound", &error));
                }
            }
            tried.send(&storage, &commit).await?;
        }
        storage = stage.reopen(storage).await?;
        is_there("a blob that an event names", &storage, session.id, kept).await?;
        match call {
            Call::Put => is_there("the blob that was put", &storage, session.id, blob).await?,
            Call::Name => {
                is_there("the blob that was named", &storage, session.id, blob).await?;
                let events = own_events(&storage, session.id, 1000).await?;
                let named = events.iter().filter(|event| event.blobs.contains(&blob.name)).count();
                same("the events that name it", &named, &1)?;
            }
            Call::Sweep => {
                same("the blobs after a sweep", &listed(&storage, session.id).await?, &vec![kept])?;
            }
        }
        session = storage.sessions.load(session.id).await?;
        if !struck {
            return Ok(());
        }
    }
    Err(Failure::new(format_args!("the calls to the medium of {call:?}"), "an end", MOST_CALLS))
}

/// One call, which can be repeated.
struct Tried {
    call: Call,
    session: Arc<SessionRecord>,
    bytes: Vec<u8>,
}

impl Tried {
    async fn send(&self, storage: &Storage, commit: &Commit) -> agent_core::Result<()> {
        let id: SessionId = self.session.id;
        match self.call {
            Call::Put => storage.sessions.blobs().put(PutBlob::of_bytes(id, self.bytes.clone())).await,
            Call::Name => storage.sessions.commit(commit.clone()).await.map(drop),
            Call::Sweep => storage.sessions.blobs().sweep(SweepBlobs::of(id)).await.map(drop),
        }
    }
}
