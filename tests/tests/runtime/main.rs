//! The runtime: runs, tools, people, children, schedulers, and what fails in the middle of them. On stores in memory, on
//! files and, where no time is simulated, on SQLite.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was counted is printed")]

mod answers;
mod build;
mod chaos;
mod children;
mod common;
mod consent;
mod context;
mod crowd;
mod fairness;
mod faults;
mod forks;
mod freeze;
mod greedy;
mod hidden;
mod keep;
mod manager;
mod models;
mod panics;
mod people;
mod refusals;
mod scheduler;
mod schedulers;
mod secrets;
mod session_tools;
mod states;
mod stop;
mod takeover;
mod tools;
mod turn;
