//! Uses of a store beside runs, on each kind: in memory, files and SQLite.

mod activations;
mod backups;
mod blobs;
mod builds;
mod closing;
mod content;
mod documents;
mod ledger;
mod listing;
mod maintenance;
mod refusals;
mod restores;
mod search_index;
mod shared;
mod sharing;
mod signed;
mod state_payload;
