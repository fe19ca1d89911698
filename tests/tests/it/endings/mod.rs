//! Ends of workspaces, sessions and histories: in memory, in files, in one SQLite file, and on three stores at once.

#![allow(clippy::print_stdout, reason = "what was counted is printed")]

mod audit;
mod by_key;
mod context_validity;
mod cut;
mod delete;
mod erase;
mod gc;
mod history;
mod provider_rules;
mod races;
pub(crate) mod site;
mod sweep;
mod tenants;
