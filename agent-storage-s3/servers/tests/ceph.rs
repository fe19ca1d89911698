//! The public suite on Ceph's gateway.

mod support;

fn main() -> std::process::ExitCode {
    support::main(s3_servers::Kind::Ceph)
}
