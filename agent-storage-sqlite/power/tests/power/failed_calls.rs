//! Any call of SQLite to the system fails, once or from then on; then the process is killed, or the power goes.

use std::path::Path;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Trigger};
use agent_core::event::{EventPayload, NewEvent};
use agent_core::session::NewSession;
use agent_core::state::Reason;
use agent_core::store::{Purge, ReadEvents};
use agent_core::{Seq, SessionId, SessionStore, WorkspaceId, WriteOutcome};
use agent_storage_sqlite::{SqliteStore, Sync};

use crate::cut::{is_thorough, subsets};
use crate::fault::{Call, EIO, ENOSPC, Fault, Fired, Tally};
use crate::model::Disk;
use crate::script::{START, open};
use crate::{most, vfs, write};

/// What was asked for, and how it ended: done, or with this outcome.
type Outcomes = Vec<(String, Result<(), WriteOutcome>)>;

pub(crate) async fn texts(store: &SqliteStore, id: SessionId) -> agent_core::Result<Vec<String>> {
    let page = store.read(id, ReadEvents::first(100)).await?;
    assert!(page.damaged.is_empty(), "{:?}", page.damaged);
    let mut texts = Vec::new();
    for event in page.events {
        if let EventPayload::UserMessage(message) = event.decode()? {
            texts.push(message.text.clone());
        }
    }
    Ok(texts)
}

/// Whether what is there fits what was told when `done` steps were behind.
fn fits(outcomes: &Outcomes, done: usize, texts: &[String]) -> Result<(), String> {
    let mut rest = texts.iter().peekable();
    for (n, (text, outcome)) in outcomes.iter().enumerate() {
        let there = rest.next_if(|next| *next == text).is_some();
        let wrong = match outcome {
            _ if n > done => there,
            _ if n == done => false,
            Ok(()) => !there,
            Err(WriteOutcome::NotApplied) => there,
            Err(_) => false,
        };
        if wrong {
            return Err(format!("{} ended with {outcome:?}, and is there: {there}", &text[..6]));
        }
    }
    rest.next().map_or(Ok(()), |text| Err(format!("nobody wrote {text}")))
}

/// A store at work while calls fail. Says what it was told, and which calls failed.
async fn work(
    path: &Path,
    disk: &Disk,
    mut fails: impl FnMut(usize) -> Option<Fault> + Send + 'static,
) -> (SessionId, Outcomes, Vec<Fired>) {
    let effects = Effects::seeded(1, START);
    let store = open(path, Sync::Full).await.unwrap();
    let [id, gone] = [(); 2].map(|()| effects.new_session_id());
    for id in [id, gone] {
        store.commit(Commit::create(&effects, NewSession::new(id, WorkspaceId::DEFAULT))).await.unwrap();
    }
    let delete = Commit::seal(&effects, gone, Seq::new(1)).with_trigger(Trigger::Delete(Reason::UserDeleted));
    let deleted = store.commit(delete).await.unwrap().session;

    let mut number = 0;
    disk.fail(move |_, call: &Call| {
        let counts = matches!(call.name, "write" | "truncate" | "sync");
        number += usize::from(counts);
        if counts { fails(number - 1) } else { None }
    });
    let send = async |text: &String| {
        let commit = Commit::seal(&effects, id, Seq::new(1)).with_event(NewEvent::user_message(text));
        store.commit(commit).await.map(drop).map_err(|error| error.write_outcome())
    };
    let mut outcomes = Outcomes::new();
    for n in 0..6 {
        if n == 3 {
            // The log is moved into the database, and emptied.
            let _ = store.purge(Purge::new(gone, deleted.head)).await;
        }
        let text = format!("text {n} {}", "x".repeat(n * 700));
        outcomes.push((text.clone(), send(&text).await));
        disk.mark(outcomes.len());
    }
    let fired = disk.heal();
    // It goes on as soon as calls fail no more.
    let text = "text 6".to_owned();
    outcomes.push((text.clone(), send(&text).await));
    assert_eq!(outcomes[6].1, Ok(()), "{fired:?}");
    disk.mark(outcomes.len());
    let there = texts(&store, id).await.unwrap();
    fits(&outcomes, outcomes.len(), &there).unwrap_or_else(|wrong| panic!("{}: {wrong}", fired[0]));
    (id, outcomes, fired)
}

/// Opens what is left of a disk, and holds it against what was told.
async fn judge(disk: &Disk, id: SessionId, outcomes: &Outcomes, done: usize, context: &str) {
    let folder = tempfile::tempdir().unwrap();
    write(disk, folder.path());
    let store = open(&folder.path().join("agent.db"), Sync::Off).await.unwrap();
    let there = texts(&store, id).await.unwrap();
    fits(outcomes, done, &there).unwrap_or_else(|wrong| panic!("{context}, {done} steps behind: {wrong}"));
    assert_eq!(store.maintenance().check().await.unwrap(), [], "{context}");
}

/// Any write, truncation or sync of SQLite fails, once or from then on, does half of its work or all of it,
/// and a sync loses what it was to sync. Errors tell the truth, the store goes on, and a kill or the loss of power at any
/// time takes nothing that was acknowledged. Every seventh call, or every one with `AGENT_TEST_THOROUGH=1`.
#[tokio::test]
async fn failed_sqlite_call_loses_nothing() {
    let (mut tally, mut disks) = (Tally::default(), 0);
    let step = if is_thorough() { 1 } else { 7 };
    for (fault, persistent) in [
        (Fault::Fails(EIO), false),
        (Fault::Fails(EIO), true),
        (Fault::Fails(ENOSPC), true),
        (Fault::DoneButFails(EIO), false),
    ] {
        for n in (0..).step_by(step) {
            let (folder, disk) = (tempfile::tempdir().unwrap(), Disk::new());
            vfs::note(folder.path(), &disk);
            let fails = move |number| (number == n || (persistent && number > n)).then_some(fault);
            let (id, outcomes, fired) = work(&folder.path().join("agent.db"), &disk, fails).await;
            let Some(first) = fired.first() else { break };
            tally.add(&fired);
            let trace = disk.trace();
            let created = trace.moments().iter().rposition(|moment| moment.mark == 0).unwrap();
            let later = trace.moments().split_off(created + 1);
            let last = *later.last().unwrap();
            judge(&trace.killed(last), id, &outcomes, last.mark, &format!("{first}; killed")).await;
            disks += 1;
            for moment in later.iter().rev().step_by(100) {
                for kept in subsets(&trace, *moment, most() / 2) {
                    let context = format!("{first}; power lost after call {}, kept {kept:?}", moment.events);
                    judge(&trace.image(*moment, &kept), id, &outcomes, moment.mark, &context).await;
                    disks += 1;
                }
            }
        }
    }
    tally.print_counts("SQLite");
    println!("proof: {disks} SQLite files after a call that failed");
    assert!(disks > 80, "only {disks} disks");
}
