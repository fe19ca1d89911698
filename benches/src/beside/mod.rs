//! Our stores beside other libraries: the same tasks, each library in a process of its own, round by round in turns.

use std::path::{Path, PathBuf};
use std::process::Command;

use bench_worker::Task;
use tokio::runtime::Runtime;

use crate::counts::Meter;
use crate::outcome::Outcome;
use crate::postgres;

mod contenders;
mod measurement;
mod ours;
mod process;
mod tables;

pub(crate) use contenders::{Contender, chosen};
pub(crate) use measurement::{Measurement, Measurements};
pub(crate) use ours::serve;
pub(crate) use tables::PAGES;

use measurement::Rounds;
use process::{Process, ServerTrace};

/// Number of rounds of a library whose operation takes longer than [`SLOW_MICROS`].
const SLOW_ROUNDS: u32 = 5;
const SLOW_MICROS: f64 = 300_000.0;

/// Time that the operations of one round are to take together.
const ROUND_MICROS: f64 = 50_000.0;

/// Returns the tasks, in the order in which they are measured. `quick` leaves out what takes minutes to fill.
pub(crate) fn tasks(quick: bool) -> Vec<Task> {
    let sizes: &[u32] = if quick { &[100, 1_000, 10_000] } else { &[100, 1_000, 10_000, 100_000] };
    let mut tasks: Vec<Task> = sizes.iter().copied().map(Task::Turn).collect();
    tasks.extend([1, 2, 4, 8, 16, 32].map(Task::Writers));
    tasks.extend([Task::Load(10_000), Task::Fork(10_000)]);
    tasks.extend(sizes.iter().copied().map(Task::Last));
    tasks.extend(sizes.iter().copied().map(Task::List));
    tasks.extend(sizes[..2].iter().copied().map(Task::Agents));
    tasks
}

/// Measures one task with all contenders in turns. One without anything for the task is left out.
pub(crate) fn measure(task: Task, contenders: &[Contender]) -> Outcome<Vec<Measurement>> {
    let folder = tempfile::tempdir()?;
    let meter = Meter::new(folder.path())?;
    let mut sides = Vec::new();
    for contender in contenders {
        let place = folder.path().join(contender.name.replace(' ', "-"));
        if let Some(mut process) = Process::start(contender, &place, task, None)? {
            let times = times(task, &mut process)?;
            sides.push(Side { contender, place, process, times, rounds: Rounds::new(task), is_slow: false });
        }
    }
    // The stores were filled without syncs: nobody's round is to write that to the disk.
    Command::new("sync").arg("-f").arg(folder.path()).status()?;
    if contenders.iter().any(|contender| contender.is_on_server) {
        Runtime::new()?.block_on(postgres::settle())?;
    }
    for round in 0..crate::rounds::ROUNDS {
        for side in &mut sides {
            if round == SLOW_ROUNDS {
                side.is_slow = side.rounds.are_slow(SLOW_MICROS);
            }
            if !side.is_slow {
                side.round(&meter)?;
            }
        }
    }
    let mut measured = Vec::new();
    for side in sides {
        side.process.end()?;
        let mut measurement = side.rounds.measurement(&side.contender.name);
        if let Task::Turn(100) = task {
            measurement.syncs_exact = syncs(side.contender, folder.path(), task)?;
            if measurement.syncs_exact.is_some_and(|syncs| (syncs > 0.0) != side.contender.is_durable) {
                return Err(
                    format!("{}: its syncs are not those that are declared", side.contender.name).into()
                );
            }
        }
        measured.push(measurement);
    }
    Ok(measured)
}

/// A contender at a task.
struct Side<'a> {
    contender: &'a Contender,
    place: PathBuf,
    process: Process,
    times: u32,
    rounds: Rounds,
    /// Whether no more than [`SLOW_ROUNDS`] are measured.
    is_slow: bool,
}

impl Side<'_> {
    fn round(&mut self, meter: &Meter) -> Outcome {
        let before = meter.read();
        let done = self.process.round(self.times)?;
        self.rounds.add(&done, self.times, (meter.read() - before).syncs);
        // The next library that syncs would otherwise wait for what this one has left to the system.
        if done.bytes > 0 && !self.contender.is_durable { sync_all(&self.place) } else { Ok(()) }
    }
}

/// Writes everything in a folder to the disk.
fn sync_all(folder: &Path) -> Outcome {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all(&entry.path())?;
        } else {
            std::fs::File::open(entry.path())?.sync_all()?;
        }
    }
    Ok(())
}

/// Returns the number of times that one round does the task, after a warm-up that is not counted.
fn times(task: Task, process: &mut Process) -> Outcome<u32> {
    process.round(1)?;
    let once = process.round(1)?.time.as_secs_f64() * 1e6;
    let most = match task {
        // More would make the session much longer while it is measured.
        Task::Turn(100) => 2,
        Task::Turn(_) => 10,
        // The same for each writer's session, so that one writer makes it no longer than many do.
        Task::Writers(_) => 2,
        Task::Agents(_) => 1,
        // Each leaves a session behind.
        Task::Fork(_) => 4,
        _ => 50,
    };
    Ok((ROUND_MICROS / once.max(1.0)).clamp(1.0, f64::from(most)) as u32)
}

/// Counts the syncs of one turn exactly, by the system calls; `None` if `strace` is not installed.
fn syncs(contender: &Contender, folder: &Path, task: Task) -> Outcome<Option<f64>> {
    const TIMES: u32 = 10;
    let (place, log) = (folder.join("traced"), folder.join("calls"));
    let _ = std::fs::remove_dir_all(&place);
    let (mut trace, mut own) = (None, Some(&*log));
    if contender.is_on_server {
        // What it waits for is in the processes of the server.
        trace = ServerTrace::start(Runtime::new()?.block_on(postgres::server_process())?, &log)?;
        own = None;
    }
    let Some(mut process) = Process::start(contender, &place, task, own)? else { return Ok(None) };
    process.round(1)?;
    let before = calls(&log);
    process.round(TIMES)?;
    let count = calls(&log) - before;
    process.end()?;
    drop(trace.take());
    Ok(process::has_strace().then_some(f64::from(count) / f64::from(TIMES)))
}

fn calls(log: &Path) -> u32 {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    // A call that another thread interrupts has a second line, without the name before its bracket.
    text.lines().filter(|line| line.contains("sync(")).count() as u32
}
