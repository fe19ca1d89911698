//! The public suite on the S3 store, without keys by which schedulers find sessions, and with an index of labels and
//! creators.

#[path = "support/suite.rs"]
mod suite;

fn main() -> std::process::ExitCode {
    suite::main(s3_simulator::Dialect::S3, agent_storage_s3::Watch::Off, "label.user,creator,label.project")
}
