//! Processes that the harness measures, ours and those of other libraries: orders on the input, answers on the output, one line each.
//!
//! The harness starts a process for each task, with a folder, the name of the task and its size as arguments. The process prepares
//! the task and answers `ready`, or `none` if its library has nothing for the task. For each line that is a number, it does the task
//! that many times and answers `done` with a [`Round`]. `failed` and the reason end everything.

#![allow(clippy::print_stdout, reason = "the answers of a process")]
#![allow(clippy::disallowed_methods, reason = "this measures real time")]

use std::error::Error;
use std::fmt;
use std::io::BufRead;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// A failure of any kind. It ends the process.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Number of turns that each of several writers does for one unit of [`Task::Writers`].
pub const TURNS: u32 = 16;

/// Work that every library is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Appends a turn, two messages, to a session that has this many.
    Turn(u32),
    /// Appends turns in this many sessions at once.
    Writers(u32),
    /// Reads the last 50 of this many messages.
    Last(u32),
    /// Reads a session of this many messages whole.
    Load(u32),
    /// Lists the 50 newest of this many sessions.
    List(u32),
    /// Forks a session of this many messages.
    Fork(u32),
}

impl Task {
    /// Finds a task by its name.
    pub fn named(name: &str, size: u32) -> Option<Self> {
        let all = [Self::Turn, Self::Writers, Self::Last, Self::Load, Self::List, Self::Fork];
        all.map(|task| task(size)).into_iter().find(|task| task.name() == name)
    }

    /// Returns the name of the task, without its size.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turn(_) => "turn",
            Self::Writers(_) => "writers",
            Self::Last(_) => "last",
            Self::Load(_) => "load",
            Self::List(_) => "list",
            Self::Fork(_) => "fork",
        }
    }

    /// Returns the number of messages, sessions or writers.
    pub fn size(self) -> u32 {
        match self {
            Self::Turn(size) | Self::Writers(size) | Self::Last(size) => size,
            Self::Load(size) | Self::List(size) | Self::Fork(size) => size,
        }
    }
}

/// Latencies and refusals of operations that ran at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtOnce {
    /// Time that each operation took, with its repetitions.
    pub latencies: Vec<Duration>,
    /// Number of calls that the library refused, each of which was repeated.
    pub refused: u32,
}

/// One answer to an order: what the operations took together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Time of all operations.
    pub time: Duration,
    /// Bytes that the process handed to the system to write.
    pub bytes: u64,
    /// Latencies and refusals, if operations ran at once.
    pub at_once: AtOnce,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "done {} {} {}", self.time.as_nanos(), self.bytes, self.at_once.refused)?;
        self.at_once.latencies.iter().try_for_each(|latency| write!(f, " {}", latency.as_nanos()))
    }
}

impl FromStr for Round {
    type Err = Box<dyn Error + Send + Sync>;

    fn from_str(line: &str) -> Outcome<Self> {
        let words =
            line.trim().strip_prefix("done ").ok_or_else(|| format!("no answer of a round: {line:?}"))?;
        let mut numbers = words.split(' ').map(str::parse::<u64>);
        let mut next = || Outcome::Ok(numbers.next().ok_or("an answer is too short")??);
        let (time, bytes, refused) = (Duration::from_nanos(next()?), next()?, u32::try_from(next()?)?);
        let latencies = numbers.map(|nanos| Ok(Duration::from_nanos(nanos?))).collect::<Outcome<_>>()?;
        Ok(Self { time, bytes, at_once: AtOnce { latencies, refused } })
    }
}

/// A library with a task in hand.
pub trait Contender: Sized {
    /// Prepares the task in a folder that exists and is empty; `None` if the library has nothing for it.
    ///
    /// # Errors
    ///
    /// Any failure ends the measurement.
    fn prepare(folder: &Path, task: Task) -> Outcome<Option<Self>>;

    /// Does the task this many times.
    ///
    /// # Errors
    ///
    /// Any failure ends the measurement.
    fn run(&mut self, times: u32) -> Outcome<AtOnce>;
}

/// Returns the text of each message, of 1 KiB.
pub fn text() -> String {
    "The quick brown fox jumps over the lazy dog. ".repeat(24).chars().take(1024).collect()
}

/// Serves the harness until it closes the input of this process. The arguments are the folder, the task and its size.
///
/// # Errors
///
/// Any failure, which the harness has been told.
pub fn serve<C: Contender>(arguments: &[String]) -> Outcome {
    let served = answer::<C>(arguments);
    if let Err(error) = &served {
        println!("failed {}", error.to_string().replace('\n', " "));
    }
    served
}

fn answer<C: Contender>(arguments: &[String]) -> Outcome {
    let [folder, name, size] = arguments else {
        return Err("usage: FOLDER TASK SIZE; the harness starts this program".into());
    };
    let task = Task::named(name, size.parse()?).ok_or_else(|| format!("there is no task {name:?}"))?;
    let Some(mut contender) = C::prepare(folder.as_ref(), task)? else {
        println!("none");
        return Ok(());
    };
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let times = line?.trim().parse()?;
        let (before, start) = (written(), Instant::now());
        let at_once = contender.run(times)?;
        let time = start.elapsed();
        println!("{}", Round { time, bytes: written() - before, at_once });
    }
    Ok(())
}

/// Returns the number of bytes that this process has handed to the system to write.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_are_written() {
        let latencies = vec![Duration::from_nanos(3), Duration::from_nanos(70)];
        let round =
            Round { time: Duration::from_nanos(73), bytes: 9, at_once: AtOnce { latencies, refused: 1 } };
        assert_eq!(round.to_string(), "done 73 9 1 3 70");
        assert_eq!(round.to_string().parse::<Round>().unwrap(), round);
        for line in ["", "done", "done 1 2", "done 1 2 x", "failed no disk"] {
            assert!(line.parse::<Round>().is_err(), "{line}");
        }
    }

    #[test]
    fn tasks_are_found_by_their_names() {
        for name in ["turn", "writers", "last", "load", "list", "fork"] {
            let task = Task::named(name, 7).unwrap();
            assert_eq!((task.name(), task.size()), (name, 7));
        }
        assert_eq!(Task::named("nap", 7), None);
    }
}
