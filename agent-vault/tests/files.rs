//! The public suite on an encrypted store around the store on files. It takes minutes, and is run by name.

#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "its own main is another program's, and the model of a disk is a test's helper"
)]
#[path = "../../agent-storage-fs/tests/conformance.rs"]
mod plain;
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_storage_conformance::main(support::Sealed(plain::Files))
}
