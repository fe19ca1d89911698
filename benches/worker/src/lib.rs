//! Processes that the harness measures, ours and those of other libraries: orders on the input, answers on the output, one line each.
//!
//! The harness starts a process for each task, with a folder, the name of the task and its size as arguments. The process prepares
//! the task and answers `ready`, or `none` if its library has nothing for the task. For each line that is a number, it does the task
//! that many times and answers `done` with a [`Round`]. When the input ends, it checks that its store has the messages of all turns,
//! and ends. `failed` and the reason end everything.

#![allow(clippy::disallowed_methods, reason = "this measures real time")]

use std::error::Error;
use std::fmt;
use std::io::{BufRead, Write};
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// A failure of any kind. It ends the process.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Number of turns that each of several writers does for one unit of [`Task::Writers`].
pub const TURNS: u32 = 16;

/// Number of turns of one unit of [`Task::Agents`], of those at the same time, of messages in each conversation before, and of bytes
/// in each message.
pub const AGENT_TURNS: usize = 40;
/// See [`AGENT_TURNS`].
pub const AGENTS_AT_ONCE: usize = 8;
/// See [`AGENT_TURNS`].
pub const AGENT_MESSAGES: usize = 500;
/// See [`AGENT_TURNS`].
pub const AGENT_TEXT_BYTES: usize = 600;

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
    /// Has turns in this many long conversations, in [random order](Order) and at the same time, through the library's own agent,
    /// from the prompt to its answer. The model is one in the process that answers at once.
    Agents(u32),
}

impl Task {
    /// Finds a task by its name.
    pub fn named(name: &str, size: u32) -> Option<Self> {
        let all = [Self::Turn, Self::Writers, Self::Last, Self::Load, Self::List, Self::Fork, Self::Agents];
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
            Self::Agents(_) => "agents",
        }
    }

    /// Returns the number of messages, sessions or writers.
    pub fn size(self) -> u32 {
        match self {
            Self::Turn(size) | Self::Writers(size) | Self::Last(size) => size,
            Self::Load(size) | Self::List(size) | Self::Fork(size) | Self::Agents(size) => size,
        }
    }

    /// Returns the number of operations of one unit.
    pub fn operations(self) -> u32 {
        match self {
            Self::Writers(writers) => writers * TURNS,
            Self::Agents(_) => AGENT_TURNS as u32,
            _ => 1,
        }
    }

    /// Returns the number of messages that one unit appends.
    pub fn messages(self) -> u64 {
        match self {
            Self::Turn(_) | Self::Writers(_) | Self::Agents(_) => 2 * u64::from(self.operations()),
            _ => 0,
        }
    }
}

/// Numbers in random order, the same in each process: all of them once, then all again in another order.
#[derive(Clone, Debug)]
pub struct Order {
    count: usize,
    random: u64,
    left: Vec<usize>,
}

impl Order {
    /// Creates the order of the numbers below `count`.
    pub fn new(count: usize) -> Self {
        Self { count, random: 0, left: Vec::new() }
    }

    /// Returns the next numbers, at most `count`, of which none is there twice.
    pub fn next(&mut self, numbers: usize) -> Vec<usize> {
        if self.left.len() < numbers {
            self.left = (0..self.count).collect();
            self.left.sort_by_cached_key(|_| random(&mut self.random));
        }
        self.left.split_off(self.left.len().saturating_sub(numbers))
    }
}

/// Returns the next random number, by SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
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

    /// Counts the messages in the store, for tasks that append some.
    ///
    /// # Errors
    ///
    /// Any failure ends the measurement.
    fn stored(&mut self) -> Outcome<u64>;
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
    let mut answers = std::io::stdout();
    let served = answer::<C>(arguments, std::io::stdin().lock(), &mut answers);
    if let Err(error) = &served {
        writeln!(answers, "failed {}", error.to_string().replace('\n', " "))?;
    }
    served
}

fn answer<C: Contender>(arguments: &[String], orders: impl BufRead, answers: &mut impl Write) -> Outcome {
    let [folder, name, size] = arguments else {
        return Err("usage: FOLDER TASK SIZE; the harness starts this program".into());
    };
    let task = Task::named(name, size.parse()?).ok_or_else(|| format!("there is no task {name:?}"))?;
    let Some(mut contender) = C::prepare(folder.as_ref(), task)? else {
        return Ok(writeln!(answers, "none")?);
    };
    let appends = task.messages() > 0;
    let before = if appends { contender.stored()? } else { 0 };
    writeln!(answers, "ready")?;
    let (mut appended, mut refused) = (0, 0);
    for line in orders.lines() {
        let times: u32 = line?.trim().parse()?;
        let (written_before, start) = (written(), Instant::now());
        let at_once = contender.run(times)?;
        let time = start.elapsed();
        appended += u64::from(times) * task.messages();
        refused += u64::from(at_once.refused);
        writeln!(answers, "{}", Round { time, bytes: written() - written_before, at_once })?;
    }
    if !appends {
        return Ok(());
    }
    // A refused turn is had again, and may have left its prompt.
    let more = contender.stored()?.saturating_sub(before);
    if (appended..=appended + refused).contains(&more) {
        return Ok(());
    }
    Err(format!("the store has {more} messages more, but the turns have {appended}").into())
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

    /// Stores so many of every ten messages.
    struct Lossy<const OF_TEN: u64>(u64);

    impl<const OF_TEN: u64> Contender for Lossy<OF_TEN> {
        fn prepare(_: &Path, _: Task) -> Outcome<Option<Self>> {
            Ok(Some(Self(500)))
        }

        fn run(&mut self, times: u32) -> Outcome<AtOnce> {
            self.0 += u64::from(times) * 2 * OF_TEN / 10;
            Ok(AtOnce::default())
        }

        fn stored(&mut self) -> Outcome<u64> {
            Ok(self.0)
        }
    }

    #[test]
    fn turns_that_are_not_stored_fail() {
        fn ended<C: Contender>(task: &str) -> (Outcome, String) {
            let arguments = ["folder", task, "100"].map(str::to_owned);
            let mut answers = Vec::new();
            let ended = answer::<C>(&arguments, &b"10\n5\n"[..], &mut answers);
            (ended, String::from_utf8(answers).unwrap())
        }
        let (ended_well, answers) = ended::<Lossy<10>>("turn");
        ended_well.unwrap();
        let words: Vec<_> = answers.lines().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(words, ["ready", "done", "done"]);
        for (short, more) in [(ended::<Lossy<9>>("turn"), 27), (ended::<Lossy<11>>("turn"), 33)] {
            let error = short.0.unwrap_err().to_string();
            assert_eq!(error, format!("the store has {more} messages more, but the turns have 30"));
        }
        ended::<Lossy<9>>("load").0.unwrap();
    }

    #[test]
    fn order_has_each_number_once() {
        // A process in another language has these as well.
        assert_eq!(Order::new(10).next(10), [2, 4, 6, 8, 5, 1, 7, 0, 9, 3]);
        let mut order = Order::new(100);
        let mut numbers: Vec<_> = (0..10).flat_map(|_| order.next(10)).collect();
        assert!(!numbers.is_sorted());
        assert_eq!(numbers[..10], Order::new(100).next(10));
        let again = order.next(100);
        assert_ne!(again, numbers);
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..100));
    }

    #[test]
    fn tasks_are_found_by_their_names() {
        for name in ["turn", "writers", "last", "load", "list", "fork", "agents"] {
            let task = Task::named(name, 7).unwrap();
            assert_eq!((task.name(), task.size()), (name, 7));
        }
        assert_eq!(Task::named("nap", 7), None);
    }
}
