//! The public suite on an encrypted store around the store in memory.

#[allow(dead_code, reason = "its own main is another program's")]
#[path = "../../agent-storage-conformance/tests/memory.rs"]
mod plain;
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_storage_conformance::main(support::Sealed(plain::Memory))
}
