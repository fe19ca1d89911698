//! Measures the stores against the least that any implementation has to do, in turns in one run.
//!
//! `cargo run --release -p benches -- --help` says what it takes.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints what it measured")]
#![allow(clippy::disallowed_methods, reason = "this measures real time")]

mod beside;
mod counts;
mod floor;
mod machine;
mod ours;
mod outcome;
mod peers;
mod plots;
mod postgres;
mod report;
mod rounds;
mod workloads;

use std::path::{Path, PathBuf};

use bench_worker::Task;
use beside::{Contender, Measurement, Measurements};
use clap::builder::PossibleValue;
use clap::{Parser, Subcommand};
use machine::Machine;
use ours::Backend;
use outcome::Outcome;
use report::Figure;
use tokio::runtime::Runtime;
use workloads::{Place, WORKLOADS, idle, many, memory, processes};

/// Measures the stores against a floor: the least that any implementation has to do on the same medium.
///
/// The output begins with the machine and the settings. The stores are made in TMPDIR, so it decides which disk is measured.
#[derive(Debug, Parser)]
#[command(
    name = "benches",
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print lines of JSON: the machine and the settings first, then one for each figure
    #[arg(long)]
    json: bool,
    /// Leave out what takes minutes to fill
    #[arg(long)]
    quick: bool,
    /// Measure this store only
    #[arg(long, value_name = "STORE", value_parser = Backend::ALL.map(Backend::name))]
    store: Option<String>,
    /// Measure these only [default: all]
    #[arg(value_name = "WORKLOAD", value_parser = WORKLOADS.map(|work| PossibleValue::new(work.name).help(work.about)))]
    workloads: Vec<String>,
}

/// Names of the tasks, each with what it measures.
const TASKS: [(&str, &str); 7] = [
    ("turn", "Append a turn to sessions of 100 to 100,000 messages"),
    ("writers", "Append turns in 1 to 32 sessions at once"),
    ("load", "Load a session of 10,000 messages"),
    ("fork", "Fork a session of 10,000 messages"),
    ("last", "Read the last 50 of 100 to 100,000 messages"),
    ("list", "List the 50 newest of 100 to 100,000 sessions"),
    ("agents", "Turns in 100 and 1,000 conversations of 500 messages, through each library's own agent"),
];

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure our stores beside other libraries, in turns
    Beside {
        #[command(flatten)]
        choice: Choice,
        /// Measure our store in PostgreSQL and adk-session's, on one server, instead of all others
        #[arg(long)]
        postgres: bool,
        /// Print lines of JSON: the machine and the settings first, then one for each measurement
        #[arg(long)]
        json: bool,
        /// Measure these only [default: all]
        #[arg(value_name = "TASK", value_parser = TASKS.map(|(name, about)| PossibleValue::new(name).help(about)))]
        tasks: Vec<String>,
    },
    /// Draw the plots and tables of the docs from FOLDER/measurements.jsonl
    Plots {
        /// Folder of the docs
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
        /// Measure everything first, a quarter of an hour and more, and replace the stored measurements
        #[arg(long)]
        measure: bool,
        #[command(flatten)]
        choice: Choice,
    },
}

/// Choice of what is measured.
#[derive(Debug, clap::Args)]
struct Choice {
    /// Leave out what takes minutes to fill
    #[arg(long)]
    quick: bool,
    /// Measure our stores without the other libraries
    #[arg(long)]
    ours_only: bool,
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--worker", "task", store, ..] => {
            return beside::serve(Backend::named(store).ok_or("no such store")?, &arguments[3..]);
        }
        ["--worker", ..] => return Runtime::new()?.block_on(worker(&arguments[1..])),
        _ => {}
    }
    let args = Args::parse();
    match &args.command {
        Some(Command::Beside { choice, postgres, json, tasks }) => {
            let contenders = beside::chosen(choice.ours_only, *postgres)?;
            measure_beside(&contenders, choice.quick, *json, tasks).map(drop)
        }
        Some(Command::Plots { folder, measure, choice }) => draw(folder, *measure, choice),
        None => Runtime::new()?.block_on(against_floor(&args)),
    }
}

/// Measures the workloads, each store against its floor.
async fn against_floor(args: &Args) -> Outcome {
    let stores = stores(args)?;
    let mut wanted: Vec<&str> = args.workloads.iter().map(String::as_str).collect();
    if wanted.is_empty() {
        wanted = WORKLOADS.map(|work| work.name).to_vec();
    }
    let is_measured = |store: &Backend| wanted.iter().any(|name| workloads::is_measured(name, *store));
    if !stores.iter().any(is_measured) {
        return Err("none of these workloads is measured on this store; `many` is on each".into());
    }
    let machine = Machine::new(&std::env::temp_dir());
    if args.json {
        println!("{}", machine.json());
    } else {
        println!("{}\n\n{}", machine.text(), Figure::head());
    }
    for store in stores {
        for name in wanted.iter().filter(|name| workloads::is_measured(name, store)) {
            let folder = tempfile::tempdir()?;
            let place = Place::new(store, folder.path().join(name), args.quick)?;
            for figure in workloads::run(name, &place).await? {
                println!("{}", if args.json { figure.json() } else { figure.row() });
            }
        }
    }
    Ok(())
}

/// The stores that are measured: without a server and a word about it, all others.
fn stores(args: &Args) -> Outcome<Vec<Backend>> {
    let server = postgres::check_installed();
    match (args.store.as_deref().and_then(Backend::named), server) {
        (Some(Backend::Postgres), Err(missing)) => Err(missing),
        (Some(store), _) => Ok(vec![store]),
        (None, Ok(())) => Ok(Backend::ALL.to_vec()),
        (None, Err(missing)) => {
            eprintln!("postgres is left out: {missing}");
            Ok(Backend::ALL.into_iter().filter(|store| *store != Backend::Postgres).collect())
        }
    }
}

/// Measures tasks with our stores and other libraries, and prints each measurement.
fn measure_beside(
    contenders: &[Contender],
    quick: bool,
    json: bool,
    tasks: &[String],
) -> Outcome<Measurements> {
    let machine = Machine::new(&std::env::temp_dir());
    let mut run = machine.json();
    run["stores"] = contenders.iter().map(Contender::json).collect();
    if json {
        println!("{run}");
    } else {
        println!("{}\n\n{}", machine.text(), Measurement::head());
    }
    let mut all = Vec::new();
    let is_wanted = |task: &Task| tasks.is_empty() || tasks.iter().any(|name| name == task.name());
    for task in beside::tasks(quick).into_iter().filter(is_wanted) {
        for measurement in beside::measure(task, contenders)? {
            println!("{}", if json { measurement.json()? } else { measurement.row() });
            all.push(measurement);
        }
    }
    Ok(Measurements { run, all })
}

/// Draws the plots and the tables, of new measurements or of those that are stored.
fn draw(folder: &Path, measure: bool, choice: &Choice) -> Outcome {
    let stored = folder.join("measurements.jsonl");
    if measure {
        let contenders = beside::chosen(choice.ours_only, false)?;
        measure_beside(&contenders, choice.quick, false, &[])?.write(&stored)?;
    }
    let all = Measurements::read(&stored)?;
    for (file, svg) in plots::draw(&all) {
        std::fs::write(folder.join(file), svg)?;
    }
    for page in beside::PAGES {
        let path = folder.join(page.file);
        std::fs::write(&path, page.with_table(&std::fs::read_to_string(&path)?, &all)?)?;
    }
    Ok(())
}

/// The part of a workload that another process does.
async fn worker(orders: &[String]) -> Outcome {
    let [work, store, path, more @ ..] = orders else { return Err("orders are missing".into()) };
    let store = Backend::named(store).ok_or("no such store")?;
    let session = more.first().map_or("", String::as_str);
    match work.as_str() {
        "turns" => processes::worker(store, path.as_ref()).await,
        "idle" => idle::worker(store, path.as_ref()).await,
        "many" => many::worker(store, path.as_ref(), more).await,
        way => memory::worker(store, path.as_ref(), session, way == "whole").await,
    }
}
