//! The public suite on ministack.

mod support;

fn main() -> std::process::ExitCode {
    support::main(s3_servers::Kind::Ministack)
}
