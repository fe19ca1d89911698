//! What hosts do with a store beside runs, asked of each kind: in memory, files and SQLite.

mod activations;
mod blobs;
mod closing;
mod content;
mod documents;
mod ledger;
mod listing;
mod maintenance;
mod refusals;
mod shared;
mod sharing;
mod signed;
mod state_payload;
