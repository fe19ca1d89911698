//! The public suite on the S3 store, with an index of labels and creators.

#[path = "support/suite.rs"]
mod suite;

fn main() -> std::process::ExitCode {
    suite::main(s3_simulator::Dialect::S3, "label.user,creator,label.project")
}
