//! Measures the stores against the least that any implementation has to do, in turns in one run.
//!
//! `cargo run --release -p benches -- --help` says what it takes.

#![allow(clippy::print_stdout, reason = "a program that prints what it measured")]
#![allow(clippy::disallowed_methods, reason = "this measures real time")]

mod counts;
mod floor;
mod machine;
mod ours;
mod outcome;
mod peers;
mod report;
mod rounds;
mod workloads;

use clap::Parser;
use clap::builder::PossibleValue;
use machine::Machine;
use ours::Backend;
use outcome::Outcome;
use report::Figure;
use workloads::{Place, WORKLOADS, memory, processes};

/// Measures the stores against a floor: the least that any implementation has to do on the same medium.
///
/// The output begins with the machine and the settings. The stores are made in TMPDIR, so it decides which disk is measured.
#[derive(Debug, Parser)]
#[command(name = "benches", max_term_width = 100)]
struct Args {
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

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("--worker", orders)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return worker(orders).await;
    }
    let args = Args::parse();
    let stores = match args.store.as_deref().and_then(Backend::named) {
        Some(store) => vec![store],
        None => Backend::ALL.to_vec(),
    };
    let mut wanted: Vec<&str> = args.workloads.iter().map(String::as_str).collect();
    if wanted.is_empty() {
        wanted = WORKLOADS.map(|work| work.name).to_vec();
    }
    let machine = Machine::new(&std::env::temp_dir());
    if args.json {
        println!("{}", machine.json());
    } else {
        println!("{}\n\n{}", machine.text(), Figure::head());
    }
    for store in stores {
        for name in &wanted {
            let folder = tempfile::tempdir()?;
            let place = Place::new(store, folder.path().join(name), args.quick)?;
            for figure in workloads::run(name, &place).await? {
                println!("{}", if args.json { figure.json() } else { figure.row() });
            }
        }
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
        way => memory::worker(store, path.as_ref(), session, way == "whole").await,
    }
}
