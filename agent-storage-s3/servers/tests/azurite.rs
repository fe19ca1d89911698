//! The public suite on Azurite.

mod support;

fn main() -> std::process::ExitCode {
    support::main(s3_servers::Kind::Azurite)
}
