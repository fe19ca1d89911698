//! The public suite on an encrypted store around the store on SQLite.

#[allow(dead_code, reason = "its own main is another program's")]
#[path = "../../agent-storage-sqlite/tests/conformance.rs"]
mod plain;
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_storage_conformance::main(support::Sealed(plain::Sqlite))
}
