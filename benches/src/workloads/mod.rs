//! Workloads: a module for each kind of work, the same for every store.

use crate::ours::Backend;
use crate::outcome::Outcome;
use crate::peers;
use crate::report::Figure;

pub(crate) mod at_once;
mod bindings;
mod blobs;
mod create;
mod deletion;
mod due;
mod end_to_end;
mod fork;
pub(crate) mod idle;
pub(crate) mod list;
pub(crate) mod many;
pub(crate) mod memory;
mod place;
pub(crate) mod processes;
mod read;
mod search;
mod size;
mod write;

pub(crate) use place::Place;

/// A workload, as the command line names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// Description of what is measured, in one line.
    pub(crate) about: &'static str,
}

/// Every workload, in the order in which all are measured.
pub(crate) const WORKLOADS: [Workload; 25] = {
    const fn new(name: &'static str, about: &'static str) -> Workload {
        Workload { name, about }
    }
    [
        new("append", "One message in one commit"),
        new("hand-over", "The floor of an append on a thread that may block, against one on the caller's"),
        new("turn", "One turn: a message of a person and one of an agent in one commit"),
        new("unsynced", "One turn without syncs"),
        new("run", "One run: two commits with a lease, as the runtime makes them"),
        new("end-to-end", "Turns of an open conversation, from prompt to finish, after 10 to 1,500 turns"),
        new("growth", "One message in a long session, against one in a session of 100 events"),
        new("at-once", "Turns of 32 sessions at once in one process: rate and latency"),
        new("processes", "Turns of 4 processes with 8 sessions each on one store"),
        new("last", "The last 50 events of a session of 1,000 and of one of 100,000"),
        new("load", "All events of a session of 10,000 and of one of 100,000, parsed"),
        new("list", "The first page of 50 among 10,000 and 100,000 sessions, and of an owner among these"),
        new(
            "due",
            "A page of what is due behind 100,000 dropped timers, beside a snapshot, against one without",
        ),
        new("create", "Create a session among 5,000 workspaces, against one among 40"),
        new("fork", "A fork of a session of 10,000 events"),
        new("bindings", "Find the workspace of a device among 100,000, and bind one more"),
        new("search", "Find words in 1,000,000 messages by an index, and make it"),
        new("size", "Bytes on the disk for one message"),
        new("memory", "Peak memory of a process that loads 10,000 events, whole and streamed"),
        new("idle", "Memory of 1,000 conversations that are open and idle, for each"),
        new(
            "many",
            "A turn each of 1,000 conversations of 500 messages, and of 1,000 among 10,000; also in memory",
        ),
        new("put-blob", "Put a blob, for each MiB"),
        new("read-blob", "Read and check a blob, for each MiB"),
        new("beside-blob", "Turns of 32 sessions while blobs are put, against the same without"),
        new(
            "beside-deletion",
            "The longest commit while tenants of two messages are deleted in a store of 500 MiB",
        ),
    ]
};

/// Returns whether a workload is measured on a store. What writes to a disk is not in memory; what has a file or a thread of this
/// process for its floor is not in a server, and what has a snapshot is only there.
pub(crate) fn is_measured(name: &str, backend: Backend) -> bool {
    const LOCAL: [&str; 5] = ["hand-over", "size", "put-blob", "read-blob", "beside-deletion"];
    match backend {
        Backend::Memory => name == "many",
        Backend::Files | Backend::Sqlite => name != "due",
        Backend::Postgres => !LOCAL.contains(&name),
    }
}

/// Measures one workload.
pub(crate) async fn run(name: &str, place: &Place) -> Outcome<Vec<Figure>> {
    let figures = match name {
        "append" => vec![write::append(place).await?],
        "hand-over" => vec![write::hand_over(place).await?],
        "turn" => vec![write::turn(place).await?],
        "unsynced" => vec![write::unsynced(place).await?],
        "run" => vec![write::run(place).await?],
        "end-to-end" => end_to_end::turns(place).await?,
        "growth" => vec![write::growth(place).await?],
        "at-once" => at_once::at_once(place).await?,
        "processes" => vec![processes::processes(place).await?],
        "last" => read::last(place).await?,
        "load" => read::load(place).await?,
        "list" => list::list(place).await?,
        "due" => vec![due::due(place).await?],
        "create" => vec![create::create(place).await?],
        "fork" => vec![fork::fork(place).await?],
        "bindings" => bindings::bindings(place).await?,
        "search" => search::search(place).await?,
        "size" => vec![size::size(place).await?],
        "memory" => memory::memory(place).await?,
        "idle" => vec![idle::idle(place)?],
        "many" => many::many(place).await?,
        "put-blob" => vec![blobs::put(place).await?],
        "read-blob" => vec![blobs::read(place).await?],
        "beside-blob" => vec![blobs::beside(place).await?],
        "beside-deletion" => vec![deletion::beside(place).await?],
        other => return Err(format!("there is no workload {other:?}; `--help` lists them").into()),
    };
    Ok(figures.into_iter().map(|figure| peers::beside(name, figure)).collect())
}
