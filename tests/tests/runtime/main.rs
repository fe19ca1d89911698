//! The runtime: runs, tools, people, children, schedulers, and what fails in the middle of them. On stores in memory, on
//! files and, where no time is simulated, on SQLite.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "what was counted is printed")]

mod answer_limits;
mod answer_parts;
mod answers;
mod attach;
mod branches;
mod build;
mod chaos;
mod children;
mod common;
mod concurrent_schedulers;
mod consent;
mod context;
mod conversation;
mod failed_attempts;
mod fairness;
mod faults;
mod finish;
mod following;
mod forks;
mod frozen_config;
mod functions;
mod hidden_everywhere;
mod human_in_the_loop;
mod input_queue;
mod kept_contexts;
mod large_content;
mod live;
mod long_runs;
mod long_tasks;
mod manager;
mod media;
mod model_requests;
mod never_stuck;
mod owners;
mod panics;
mod patterns;
mod prefix_law;
mod provider_choice;
mod provider_faults;
#[path = "../it/endings/provider_rules.rs"]
mod provider_rules;
mod questions;
mod recall;
mod redaction;
mod redelivered;
mod refusals;
mod refused_requests;
mod replay;
mod scheduled;
mod scheduler;
mod secrets;
mod session_tools;
mod shared_messages;
mod states;
mod stop;
mod streams;
mod takeover;
mod telemetry;
mod titles;
mod tool_payloads;
mod tools;
mod turn;
mod waiting;
mod wire;
mod workspace_secrets;
