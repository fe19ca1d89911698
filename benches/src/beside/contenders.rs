//! Contenders: our stores, and other libraries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ours::UNSYNCED;
use crate::ours::Backend;
use crate::outcome::Outcome;
use crate::postgres;

/// Another library, whose process is a package of its own below `benches/peers`: of Rust, or of Python if it has [`REQUIREMENTS`].
struct Peer {
    name: &'static str,
    version: &'static str,
    package: &'static str,
    /// Variable that is set for its process: to 1, or to the address of the server.
    with: Option<&'static str>,
    /// Whether its writes wait for the disk.
    is_durable: bool,
    /// Whether a server of PostgreSQL writes for it.
    is_on_server: bool,
}

/// File with the versions that a package of Python needs.
const REQUIREMENTS: &str = "requirements.txt";

const PEERS: [Peer; 6] = {
    const fn new(name: &'static str, version: &'static str, package: &'static str) -> Peer {
        Peer { name, version, package, with: None, is_durable: true, is_on_server: false }
    }
    const ADK: &str = "2.3.0";
    [
        Peer { is_durable: false, ..new("rig-memory", "0.46.0", "rig") },
        new("adk-session", ADK, "adk"),
        Peer { with: Some("BENCH_WAL"), ..new("adk-session WAL", ADK, "adk") },
        Peer {
            with: Some("BENCH_POSTGRES"),
            is_on_server: true,
            ..new("adk-session PostgreSQL", ADK, "adk")
        },
        new("tea-session", "0.1.0", "tea"),
        new("openai-agents", "0.24.0", "openai"),
    ]
};

/// A program that does the tasks with one library.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    pub(crate) name: String,
    /// Version of the library; empty for ours.
    pub(crate) version: &'static str,
    pub(crate) program: PathBuf,
    /// Arguments before those of the task.
    pub(crate) arguments: Vec<String>,
    /// Variable that is set for the process.
    pub(crate) with: Option<(&'static str, String)>,
    /// Whether its writes wait for the disk.
    pub(crate) is_durable: bool,
    /// Whether a server of PostgreSQL writes for it.
    pub(crate) is_on_server: bool,
}

impl Contender {
    /// Returns the entry of a run that has this contender.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({ "name": self.name, "version": self.version })
    }
}

/// Returns our stores and, unless `ours_only`, the other libraries, which are built first: those that write to a server of PostgreSQL, or
/// those that write themselves.
pub(crate) fn chosen(ours_only: bool, on_server: bool) -> Outcome<Vec<Contender>> {
    if on_server {
        postgres::check_installed()?;
    }
    let program = std::env::current_exe()?;
    let mut contenders = ours(&program, on_server);
    if ours_only {
        return Ok(contenders);
    }
    // Beside what cargo makes of the harness: `target/release/benches` leads to `target/peers`.
    let target = program.ancestors().nth(2).ok_or("the program has no target folder")?.join("peers");
    for peer in PEERS.into_iter().filter(|peer| peer.is_on_server == on_server) {
        let (program, arguments) = built(peer.package, &target)?;
        let value = if on_server { postgres::address() } else { "1" };
        contenders.push(Contender {
            name: peer.name.to_owned(),
            version: peer.version,
            program,
            arguments,
            with: peer.with.map(|name| (name, value.to_owned())),
            is_durable: peer.is_durable,
            is_on_server: on_server,
        });
    }
    Ok(contenders)
}

fn ours(program: &Path, on_server: bool) -> Vec<Contender> {
    let store = |backend: Backend| Contender {
        name: backend.name().to_owned(),
        version: "",
        program: program.to_owned(),
        arguments: ["--worker", "task", backend.name()].map(str::to_owned).to_vec(),
        with: None,
        is_durable: true,
        is_on_server: on_server,
    };
    if on_server {
        return vec![Contender { with: Some(postgres::variable()), ..store(Backend::Postgres) }];
    }
    let unsynced = |backend: Backend| Contender {
        name: format!("{} sync=off", backend.name()),
        with: Some((UNSYNCED, "1".to_owned())),
        is_durable: false,
        ..store(backend)
    };
    Backend::DURABLE.map(store).into_iter().chain(Backend::DURABLE.map(unsynced)).collect()
}

/// Returns the folder of a peer.
fn folder(package: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(package)
}

/// Builds the process of a peer. Returns its program, and the arguments before those of the task.
fn built(package: &str, target: &Path) -> Outcome<(PathBuf, Vec<String>)> {
    let folder = folder(package);
    if folder.join(REQUIREMENTS).exists() {
        let environment = target.join(package);
        install(&folder.join(REQUIREMENTS), &environment)?;
        let script = folder.join("worker.py").display().to_string();
        return Ok((environment.join("bin").join("python"), vec![script]));
    }
    // Some ask for a newer compiler than ours, and build with ours all the same.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--quiet", "--ignore-rust-version", "--manifest-path"]);
    cargo.arg(folder.join("Cargo.toml")).arg("--target-dir").arg(target);
    succeed(&mut cargo, &format!("{} does not build", folder.display()))?;
    Ok((target.join("release").join(format!("bench-peer-{package}")), Vec::new()))
}

/// Makes a virtual environment of Python with these requirements, if it is not there.
fn install(requirements: &Path, environment: &Path) -> Outcome {
    let installed = environment.join(REQUIREMENTS);
    if fs::read(requirements)? == fs::read(&installed).unwrap_or_default() {
        return Ok(());
    }
    let mut python = Command::new("python3");
    python.args(["-m", "venv", "--clear"]).arg(environment);
    succeed(&mut python, "Python makes no virtual environment (Debian: `apt install python3-venv`)")?;
    let mut pip = Command::new(environment.join("bin").join("python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    succeed(pip.arg(requirements), &format!("{} cannot be installed", requirements.display()))?;
    fs::copy(requirements, installed)?;
    Ok(())
}

/// Runs a command to its end. If it does not succeed, the error begins with the words.
fn succeed(command: &mut Command, words: &str) -> Outcome {
    let why = match command.status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let program = command.get_program().to_string_lossy();
    Err(format!("{words}, {program}: {why}; `--ours-only` measures without other libraries").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_pinned(line: &str, version: &str) -> bool {
        line.split_once(version).is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with('"'))
    }

    #[test]
    fn versions_are_those_of_the_packages() {
        for peer in PEERS {
            let manifests = [("Cargo.toml", "\"="), (REQUIREMENTS, "==")];
            let manifests = manifests.map(|(name, pin)| (folder(peer.package).join(name), pin));
            let (manifest, pin) = manifests.into_iter().find(|(path, _)| path.exists()).unwrap();
            let text = fs::read_to_string(manifest).unwrap();
            // The library has several packages, of one version.
            let library = peer.name.split_inclusive('-').next().unwrap();
            let version = format!("{pin}{}", peer.version);
            let lines: Vec<_> = text.lines().filter(|line| line.starts_with(library)).collect();
            assert!(
                !lines.is_empty() && lines.iter().all(|line| is_pinned(line, &version)),
                "{library}: {lines:?}"
            );
        }
    }
}
