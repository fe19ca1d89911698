//! Blobs on a disk that fails or loses its power: what was put, what events name, and what a sweep leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agent_core::Timestamp;
use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::session::NewSession;
use agent_core::store::{BLOB_CHUNK_BYTES, BlobQuery, PutBlob, ReadBlob, SweepBlobs};
use agent_core::{BlobName, ErrorKind, Result, SessionId, SessionStore};
use agent_storage_fs::io::{Io, Kind};
use agent_storage_fs::{FsStore, Sync};

use crate::fault::{EIO, EMFILE, ENOSPC, Fault, Tally};
use crate::model::Disk;
use crate::script::{Outcome, Possible, SESSIONS, Script, Step, Thing, Value, Wrong, require, texts};
use crate::{cut, each_call_fails, fail_by_chance, judge, seeds};

/// Blobs by number; the last one has two chunks, and so a file with checksums.
const SIZES: [usize; 3] = [20, 700, BLOB_CHUNK_BYTES + 100];
const LARGE: usize = 2;

fn bytes(blob: usize) -> &'static [u8] {
    static BLOBS: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    let byte = |blob: u64, n: u64| ((n + (blob << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    let all = || (0..).zip(SIZES).map(|(blob, size)| (0..size as u64).map(|n| byte(blob, n)).collect());
    &BLOBS.get_or_init(|| all().collect())[blob]
}

fn name(blob: usize) -> BlobName {
    static NAMES: std::sync::OnceLock<Vec<BlobName>> = std::sync::OnceLock::new();
    NAMES.get_or_init(|| (0..SIZES.len()).map(|blob| BlobName::of(bytes(blob))).collect())[blob]
}

pub(crate) async fn put(store: &FsStore, session: SessionId, blob: usize) -> Result<()> {
    store.blobs().put(PutBlob::of_bytes(session, bytes(blob))).await
}

/// An event that names blobs.
pub(crate) fn naming(blobs: &[usize]) -> NewEvent {
    let event = NewEvent::new("x.app.drawn".parse().unwrap(), RawJson::empty_object());
    blobs.iter().fold(event, |event, blob| event.with_blob(name(*blob)))
}

pub(crate) fn things() -> impl Iterator<Item = Thing> {
    (0..SESSIONS).flat_map(|session| (0..SIZES.len()).map(move |blob| Thing::Blob(session, blob)))
}

/// The blobs that a session names, as its texts tell.
fn named(value: &Value) -> BTreeSet<usize> {
    let Value::Session { texts, .. } = value else { return BTreeSet::new() };
    let content = texts.iter().filter_map(|text| text.split_once(" names "));
    content.flat_map(|(_, blobs)| blobs.split(' ').map(|blob| blob.parse().unwrap())).collect()
}

fn name_blobs(n: usize, session: usize, blobs: &[usize], create: bool) -> Step {
    let names: Vec<_> = blobs.iter().map(ToString::to_string).collect();
    Step::Name { session, text: format!("{n} names {}", names.join(" ")), blobs: blobs.to_vec(), create }
}

/// What a step, which was done for certain or perhaps, makes of the blobs.
///
/// What a sweep that failed has removed may be there again when the power was lost, also if another sweep found nothing
/// more to remove; so after a failure a sweep removes nothing for certain.
pub(crate) fn change(possible: &mut Possible, step: &Step, certain: bool, failed_before: bool) {
    let (of, sweeps) = match step {
        Step::PutBlob { session, blob } => {
            let values = possible.entry(Thing::Blob(*session, *blob)).or_default();
            if certain {
                values.clear();
            }
            values.insert(Value::Whole);
            return;
        }
        Step::Sweep { session } => (*session, true),
        Step::Purge { session } => (Some(*session), false),
        _ => return,
    };
    for session in (0..SESSIONS).filter(|session| of.is_none_or(|of| of == *session)) {
        let values = possible[&Thing::Session(session)].clone();
        for blob in 0..SIZES.len() {
            let Some(there) = possible.get_mut(&Thing::Blob(session, blob)) else { continue };
            if sweeps && values.iter().all(|value| named(value).contains(&blob)) {
                continue;
            }
            let is_unnamed = values.iter().all(|value| !named(value).contains(&blob));
            // A sweep of ids without a session leaves alone what is in the folders of sessions.
            if certain && (!sweeps || (is_unnamed && of.is_some() && !failed_before)) {
                there.clear();
            }
            there.insert(Value::Nothing);
        }
    }
}

async fn value(store: &FsStore, session: SessionId, blob: usize) -> Result<Value, Wrong> {
    match store.blobs().read(ReadBlob::new(session, name(blob))).await {
        Ok(content) => {
            let whole = content.into_bytes(usize::MAX).await? == bytes(blob);
            require(whole, "a blob has other bytes than were put")?;
            Ok(Value::Whole)
        }
        Err(error) if *error.kind() == ErrorKind::NotFound => Ok(Value::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// Which blobs are there; those that events name are.
pub(crate) async fn read_back(
    script: &Script,
    store: &FsStore,
    seen: &mut BTreeMap<Thing, Value>,
) -> Result<(), Wrong> {
    for (session, id) in script.sessions.iter().enumerate() {
        let listed = store.blobs().list(BlobQuery::new(*id)).await?;
        require(listed.damaged.is_empty(), "a blob is damaged")?;
        let named = named(&seen[&Thing::Session(session)]);
        for blob in 0..SIZES.len() {
            let value = value(store, *id, blob).await?;
            require(
                value == Value::Whole || !named.contains(&blob),
                "an event names a blob that is not there",
            )?;
            seen.insert(Thing::Blob(session, blob), value);
        }
    }
    Ok(())
}

/// Puts blobs and names them in all that is there, then sweeps: what no event names is gone, and all leftovers are.
pub(crate) async fn go_on(
    script: &Script,
    store: &FsStore,
    effects: &Effects,
    disk: &Disk,
    seen: &BTreeMap<Thing, Value>,
) -> Result<(), Wrong> {
    // A session that was half made, with blobs in it, is cleared away when the next one is made.
    let new = NewSession::new(effects.new_session_id(), script.workspaces[0]);
    store.commit(Commit::create(effects, new)).await?;
    let mut keep = Vec::new();
    for (session, id) in script.sessions.iter().enumerate() {
        let value = &seen[&Thing::Session(session)];
        let mut named = named(value);
        if matches!(value, Value::Session { deleted: false, .. }) {
            script.step(store, effects, &Step::PutBlob { session, blob: 0 }).await?;
            script.step(store, effects, &name_blobs(99, session, &[0], false)).await?;
            named.insert(0);
        }
        let swept = store.blobs().sweep(SweepBlobs::of(*id)).await?;
        require(swept.unfinished == 0, "a sweep hours later finds a put that has not ended")?;
        keep.push(named);
    }
    store.blobs().sweep(SweepBlobs::without_session()).await?;
    let left: Vec<_> = files(disk, Path::new("/store"), false)
        .into_iter()
        .filter_map(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()))
        .collect();
    let mut expected = Vec::new();
    for (session, named) in keep.iter().enumerate() {
        for blob in named {
            let value = value(store, script.sessions[session], *blob).await?;
            require(value == Value::Whole, "a sweep has removed what an event names")?;
            expected.push(name(*blob).to_string());
            if *blob == LARGE {
                expected.push(format!("{}.sums", name(*blob)));
            }
        }
    }
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let (left, expected) = (sorted(left), sorted(expected));
    require(left == expected, &format!("a sweep leaves {left:?}, and events name {expected:?}"))
}

/// The files below all folders of blobs, and empty folders of ids.
fn files(disk: &Disk, folder: &Path, is_of_blobs: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (name, kind) in disk.list(folder).unwrap() {
        let path = folder.join(&name);
        if kind == Kind::Folder {
            found.extend(files(disk, &path, is_of_blobs || name == "blobs"));
            if is_of_blobs {
                found.push(path);
            }
        } else if is_of_blobs {
            found.push(path);
        }
    }
    found
}

fn small() -> Script {
    let put = |session, blob| Step::PutBlob { session, blob };
    let steps = vec![
        put(0, 0),
        put(0, 1),
        put(1, 0),
        // One of two that were put before is named at once, the other one later.
        name_blobs(1, 0, &[0], true),
        name_blobs(2, 0, &[1, 0], false),
        Step::Create { session: 1 },
        put(1, 1),
        name_blobs(3, 1, &[1], false),
        put(1, 0),
        Step::Sweep { session: Some(1) },
        put(1, 0),
        // It is there already.
        put(0, 0),
        Step::Sweep { session: None },
        Step::Delete { session: 1 },
        Step::Purge { session: 1 },
        Step::Sweep { session: Some(0) },
        Step::Append { session: 0, texts: texts(4, &[300]) },
    ];
    Script::of(2, steps)
}

fn large() -> Script {
    let put = |session| Step::PutBlob { session, blob: LARGE };
    let steps = vec![
        put(0),
        name_blobs(1, 0, &[LARGE], true),
        put(0),
        put(1),
        Step::Create { session: 1 },
        name_blobs(2, 1, &[LARGE], false),
        Step::Sweep { session: Some(1) },
        Step::Delete { session: 1 },
        Step::Purge { session: 1 },
    ];
    Script::of(3, steps)
}

/// Any steps about blobs, in which a second process may take part.
fn random(seed: u64, length: usize) -> Script {
    let dice = Effects::seeded(seed ^ 0xb10b, Timestamp::UNIX_EPOCH);
    let roll = |sides: usize| usize::try_from(dice.random_u64() % sides as u64).unwrap_or(0);
    let mut steps = vec![Step::PutBlob { session: 0, blob: 0 }];
    for n in 0..length {
        let (session, blob) = (roll(SESSIONS), roll(10) % SIZES.len());
        let step = match roll(16) {
            0..=3 => Step::PutBlob { session, blob },
            4..=7 => {
                steps.push(Step::PutBlob { session, blob });
                name_blobs(n, session, &[blob], roll(2) == 0)
            }
            8 => name_blobs(n, session, &[0, 1], false),
            9 => Step::Sweep { session: Some(session) },
            10 => Step::Sweep { session: None },
            11 => Step::Create { session },
            12 => Step::Delete { session: 1 },
            13 => Step::Purge { session: 1 },
            14 => Step::Append { session, texts: texts(n, &[1 + roll(900)]) },
            _ => Step::Switch,
        };
        steps.push(step);
    }
    Script::of(seed, steps)
}

/// The power goes after any call. What was put is there whole, and so is what an event names.
#[tokio::test]
async fn blobs_survive_power_loss_at_any_moment() {
    for (script, most) in [(small(), 10), (large(), 6)] {
        let disk = Disk::new();
        let outcomes = script.run(&disk, Sync::Full).await;
        assert!(
            outcomes.iter().all(|outcomes| matches!(outcomes, Outcome::Done)),
            "{}",
            script.story(&outcomes)
        );
        let trace = disk.trace();
        let images = cut(&script, &outcomes, &trace, &trace.moments(), most, &[]).await;
        println!("proof: {images} disks with blobs after the loss of power");
        assert!(images > 500, "only {images} disks");
    }
}

/// Killed at any moment, the power stays: no blob is lost, and a later sweep leaves nothing half made.
#[tokio::test]
async fn blobs_survive_a_kill_at_any_moment() {
    for script in [small(), large()] {
        let disk = Disk::new();
        let outcomes = script.run(&disk, Sync::Full).await;
        let trace = disk.trace();
        for moment in trace.moments() {
            let context = format!("killed after event {}", moment.events);
            judge(&script, &outcomes, moment.mark, &trace.killed(moment), &context).await;
        }
    }
}

/// Any one call fails with an I/O error, or does its work and reports one; then the power goes.
#[tokio::test]
async fn single_failed_call_loses_no_blob() {
    each_call_fails(&small(), 1, Fault::Fails(EIO), false).await;
    each_call_fails(&large(), 1, Fault::DoneButFails(EIO), false).await;
}

/// The same, with more kinds of failures and more of what the power may take.
#[tokio::test]
#[ignore = "takes minutes: .ci/full"]
async fn any_kind_of_failed_call_loses_no_blob() {
    for fault in [Fault::Fails(EIO), Fault::DoneButFails(EIO), Fault::Fails(EMFILE)] {
        each_call_fails(&small(), 6, fault, false).await;
        each_call_fails(&large(), 6, fault, false).await;
    }
}

/// From any call on, every call fails, or the disk is full.
#[tokio::test]
async fn permanent_failure_loses_no_blob() {
    each_call_fails(&small(), 1, Fault::Fails(EIO), true).await;
    each_call_fails(&large(), 1, Fault::Fails(ENOSPC), true).await;
}

/// Takes any steps about blobs, by two processes in turn, some calls failing; then the power goes. Returns how many disks were looked at.
async fn course(seed: u64, tally: &mut Tally) -> usize {
    let script = random(seed, 14);
    let disk = Disk::new();
    fail_by_chance(&disk, seed, seed / 3);
    let outcomes = script.run(&disk, Sync::Full).await;
    let fired = disk.heal();
    tally.add(&fired);
    let mut faults: Vec<_> = fired.iter().map(ToString::to_string).collect();
    faults.push(format!("seed {seed}"));
    let trace = disk.trace();
    let some: Vec<_> = trace.moments().iter().rev().step_by(7).copied().collect();
    cut(&script, &outcomes, &trace, &some, 6, &faults).await
}

/// A sweep of two ids cannot look at the blob of one, and removes those of the other, which is not durable: it is in doubt.
#[tokio::test]
async fn a_sweep_that_fails_twice_is_in_doubt() {
    assert!(course(366, &mut Tally::default()).await > 0);
}

#[tokio::test]
async fn random_steps_and_faults_lose_no_blob() {
    let (mut images, mut tally) = (0, Tally::default());
    for seed in seeds().step_by(3) {
        images += course(seed, &mut tally).await;
    }
    tally.print_counts("files with blobs");
    println!("proof: {images} disks with blobs after the loss of power, with faults before it");
    assert!(images > 0);
}
