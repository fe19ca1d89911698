//! The program `chat` with PostgreSQL, for the tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_cli::main()
}
