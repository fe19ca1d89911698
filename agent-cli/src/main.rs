//! The program `chat`.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_cli::main()
}
