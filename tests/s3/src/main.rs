//! The program `chat` with S3, for the tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_cli::main()
}
