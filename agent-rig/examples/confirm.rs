//! Checks with a real key what the tests check with local servers: holds one short conversation and reports each check.
//! It costs a few thousand tokens.
//!
//! ```sh
//! MODEL_KEY=… cargo run -p agent-rig --example confirm -- anthropic/claude-opus-5-5
//! ```
//!
//! Exit code 1 if something did not hold. Neither the key nor an answer is printed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

#[path = "confirm/checks.rs"]
mod checks;

use std::process::ExitCode;

use agent_rig::RigProvider;

#[tokio::main]
async fn main() -> ExitCode {
    let (Some(reference), Ok(key)) = (std::env::args().nth(1), std::env::var("MODEL_KEY")) else {
        eprintln!("set MODEL_KEY, and name a model as VENDOR/MODEL, like anthropic/claude-opus-5-5");
        return ExitCode::from(2);
    };
    let model = match RigProvider::connect(&reference, key) {
        Ok(model) => model,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut failed = 0;
    for (what, held) in checks::confirm(model).await {
        match held {
            Ok(()) => println!("held    {what}"),
            Err(error) => {
                failed += 1;
                println!("FAILED  {what}: {error}");
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
