//! Figures of the best peers for the same work. These were measured elsewhere, on another day, each in its own
//! language: they show the class of a figure, and nothing finer.

use crate::ours::Backend::{Files, Sqlite};
use crate::report::Figure;

/// The figure, with the best peer's beside it.
pub(crate) fn beside(workload: &str, figure: Figure) -> Figure {
    let peer = match (workload, figure.backend) {
        ("append" | "turn", Files) => "rig-memory 27 us, without a sync",
        ("turn", Sqlite) => "openai-agents 343 us, adk-session 571 us",
        ("growth", _) => "flat at best, 48 at worst (LangGraph)",
        ("at-once", Sqlite) => "openai-agents 2,070/s, adk-session 1,250/s and refusals",
        ("processes", Sqlite) => "openai-agents 2,390/s",
        ("load", Files) => "rig-memory 14,000 us",
        ("load", Sqlite) => "openai-agents 47,000 us",
        ("last", _) if figure.name.contains("100,000") => "openai-agents 4,100 us",
        ("list", _) if figure.name.ends_with(" 10,000") => "adk-session 2,900 us",
        ("fork", _) => "rig-memory 60,000 us",
        ("size", Files) => "rig-memory 1,135",
        ("size", Sqlite) => "openai-agents 1,398",
        ("memory", _) if figure.name.contains("whole") => "23 to 28 MiB",
        _ => "",
    };
    figure.peer(peer)
}
