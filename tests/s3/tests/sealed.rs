//! The public suite on an encrypted store around a bucket, with the simulator as its server. It takes minutes, and is run by name.

#[allow(dead_code, reason = "its own main is another program's")]
#[path = "../../../agent-storage-s3/simulator/tests/support/suite.rs"]
mod plain;
#[path = "../../../agent-vault/tests/support/mod.rs"]
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    agent_storage_conformance::main(support::Sealed(plain::Simulated {
        dialect: s3_simulator::Dialect::S3,
        index: "",
    }))
}
