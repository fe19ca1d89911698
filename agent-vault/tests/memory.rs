//! The public suite on an encrypted store around the store in memory.

mod support;
#[allow(dead_code, reason = "its own main is another program's")]
#[path = "../../agent-storage-conformance/tests/memory.rs"]
mod plain;

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_storage_conformance::main(support::Sealed(plain::Memory))
}
