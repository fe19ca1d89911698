//! The public suite on the S3 store, with the simulator in good health as its server.

#[path = "support/suite.rs"]
mod suite;

fn main() -> std::process::ExitCode {
    suite::main(s3_simulator::Dialect::S3, "")
}
