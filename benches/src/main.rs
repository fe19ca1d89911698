//! Measures the stores against the least that any implementation has to do, in turns in one run.
//!
//! `cargo run --release -p benches -- [--json] [--quick] [--store=files|sqlite] [WORKLOAD …]`; `TMPDIR` says on which
//! disk.

#![allow(clippy::print_stdout, reason = "a program that prints what it measured")]
#![allow(clippy::disallowed_methods, reason = "this measures real time")]

mod counts;
mod floor;
mod ours;
mod peers;
mod report;
mod rounds;
mod workloads;

use ours::Backend;
use report::Figure;
use workloads::{NAMES, Place, memory, processes};

/// What a step came to: any failure ends the program.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("--worker", orders)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return worker(orders).await;
    }
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let stores = arguments.iter().find_map(|argument| argument.strip_prefix("--store="));
    let stores = match stores {
        Some(name) => vec![Backend::named(name).ok_or("--store is files or sqlite")?],
        None => Backend::ALL.to_vec(),
    };
    let mut wanted: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with("--")).collect();
    if wanted.is_empty() {
        wanted = NAMES.to_vec();
    }
    if !has("--json") {
        println!("{}", Figure::head());
    }
    for store in stores {
        for name in &wanted {
            let folder = tempfile::tempdir()?;
            let place = Place::new(store, folder.path().join(name), has("--quick"))?;
            for figure in workloads::run(name, &place).await? {
                println!("{}", if has("--json") { figure.json() } else { figure.row() });
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
