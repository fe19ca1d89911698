//! Four processes with eight sessions each, on one store.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::at_once;
use super::place::Place;
use crate::ours::{Backend, Ours};
use crate::outcome::Outcome;
use crate::report::{Figure, Measured};
use crate::rounds::alone;

const PROCESSES: u32 = 4;
const SESSIONS: u32 = 8;
const TURNS: u32 = 16;

pub(super) async fn processes(place: &Place) -> Outcome<Figure> {
    let path = place.path("ours");
    drop(Ours::new(place.backend, path.clone()).await?);
    let workers = (0..PROCESSES).map(|_| Worker::start(place.backend, &path));
    let mut workers = workers.collect::<Outcome<Vec<_>>>()?;
    let ours = alone(&place.meter, PROCESSES * SESSIONS * TURNS, async |_| {
        for worker in &mut workers {
            worker.go()?;
        }
        for worker in &mut workers {
            worker.done()?;
        }
        Ok(Vec::new())
    })
    .await?;
    for worker in workers {
        worker.end()?;
    }
    let rate = 1e6 / ours.quartiles()[1];
    let measured = Measured::Time { ours, floor: None };
    Ok(Figure::new(place.backend, "a turn of 4 processes x 8", measured)
        .aim("2,390 turns/s, no refusal")
        .note(format!(
            "{rate:.0} turns/s, 0 refusals (one would end the run); bytes are those of the parent"
        )))
}

/// Another process, which does a round each time that it is told to.
struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(backend: Backend, path: &Path) -> Outcome<Self> {
        let mut child =
            backend.process("turns")?.arg(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().ok_or("no input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut worker = Self { child, orders, answers };
        worker.done()?;
        Ok(worker)
    }

    fn go(&mut self) -> Outcome {
        Ok(self.orders.write_all(b"go\n")?)
    }

    fn done(&mut self) -> Outcome {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        if line.trim() == "done" { Ok(()) } else { Err("a process failed".into()) }
    }

    /// Without orders it ends.
    fn end(self) -> Outcome {
        let Self { mut child, orders, .. } = self;
        drop(orders);
        if child.wait()?.success() { Ok(()) } else { Err("a process failed".into()) }
    }
}

/// What the other process does.
pub(crate) async fn worker(backend: Backend, path: &Path) -> Outcome {
    let store = Ours::new(backend, path.to_owned()).await?;
    let mut sessions = at_once::sessions(&store, SESSIONS).await?;
    println!("done");
    for _ in std::io::stdin().lock().lines() {
        at_once::turns(&store, &mut sessions, TURNS).await?;
        println!("done");
    }
    Ok(())
}
