//! The public suite on an encrypted store around PostgreSQL. It takes minutes, and is run by name.

#[allow(dead_code, clippy::panic, reason = "its own main is another program's")]
#[path = "../../../agent-storage-postgres/tests/conformance.rs"]
mod plain;
#[path = "../../../agent-vault/tests/support/mod.rs"]
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    plain::main_of(support::Sealed)
}
