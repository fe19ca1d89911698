//! Contenders: our stores, and other libraries in Rust.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::ours::UNSYNCED;
use crate::ours::Backend;
use crate::outcome::Outcome;

/// Another library, whose process is a package of its own below `benches/peers`.
struct Peer {
    name: &'static str,
    version: &'static str,
    package: &'static str,
    /// Variable that is set for its process.
    with: Option<&'static str>,
    /// Whether its writes wait for the disk.
    is_durable: bool,
}

const PEERS: [Peer; 4] = [
    Peer { name: "rig-memory", version: "0.46.0", package: "rig", with: None, is_durable: false },
    Peer { name: "adk-session", version: "2.3.0", package: "adk", with: None, is_durable: true },
    Peer {
        name: "adk-session WAL",
        version: "2.3.0",
        package: "adk",
        with: Some("BENCH_WAL"),
        is_durable: true,
    },
    Peer { name: "tea-session", version: "0.1.0", package: "tea", with: None, is_durable: true },
];

/// A program that does the tasks with one library.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    pub(crate) name: String,
    /// Version of the library; empty for ours.
    pub(crate) version: &'static str,
    pub(crate) program: PathBuf,
    /// Arguments before those of the task.
    pub(crate) arguments: Vec<String>,
    /// Variable that is set to 1 for the process.
    pub(crate) with: Option<&'static str>,
    /// Whether its writes wait for the disk.
    pub(crate) is_durable: bool,
}

impl Contender {
    /// Returns the entry of a run that has this contender.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({ "name": self.name, "version": self.version })
    }
}

/// Returns our stores and, unless `ours_only`, the other libraries, which are built first.
pub(crate) fn chosen(ours_only: bool) -> Outcome<Vec<Contender>> {
    let program = std::env::current_exe()?;
    let sides = [(None, true), (Some(UNSYNCED), false)].into_iter();
    let mut contenders: Vec<Contender> = sides
        .flat_map(|(with, is_durable)| Backend::DURABLE.map(|backend| (backend, with, is_durable)))
        .map(|(backend, with, is_durable)| Contender {
            name: format!("{}{}", backend.name(), if is_durable { "" } else { " sync=off" }),
            version: "",
            program: program.clone(),
            arguments: vec!["--worker".to_owned(), "task".to_owned(), backend.name().to_owned()],
            with,
            is_durable,
        })
        .collect();
    if ours_only {
        return Ok(contenders);
    }
    // Beside what cargo makes of the harness: `target/release/benches` leads to `target/peers`.
    let target = program.ancestors().nth(2).ok_or("the program has no target folder")?.join("peers");
    for peer in PEERS {
        let program = target.join("release").join(format!("bench-peer-{}", peer.package));
        build(peer.package, &target)?;
        let (name, arguments) = (peer.name.to_owned(), Vec::new());
        contenders.push(Contender {
            name,
            version: peer.version,
            program,
            arguments,
            with: peer.with,
            is_durable: peer.is_durable,
        });
    }
    Ok(contenders)
}

/// Builds the process of a peer. Some ask for a newer compiler than ours, and build with ours all the same.
fn build(package: &str, target: &Path) -> Outcome {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(package).join("Cargo.toml");
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--locked", "--quiet", "--ignore-rust-version", "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(target)
        .status()?;
    if built.success() {
        return Ok(());
    }
    Err(format!("{} does not build; `--ours-only` measures without other libraries", manifest.display())
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_packages() {
        for peer in PEERS {
            let manifest =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(peer.package).join("Cargo.toml");
            let text = std::fs::read_to_string(manifest).unwrap();
            let library = peer.name.split(' ').next().unwrap();
            let version = format!("\"={}\"", peer.version);
            let lines: Vec<_> = text.lines().filter(|line| line.starts_with(library)).collect();
            assert!(
                !lines.is_empty() && lines.iter().all(|line| line.contains(&version)),
                "{library}: {lines:?}"
            );
        }
    }
}
