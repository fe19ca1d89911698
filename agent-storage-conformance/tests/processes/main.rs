//! The proof of the clauses that take several processes, and kill them: stores in a file that are broken in one way
//! each, and the clauses that catch them.

#![allow(clippy::panic, clippy::expect_used, reason = "a test's helpers")]

mod store;

use std::path::PathBuf;
use std::process::ExitCode;

use agent_core::{Error, ErrorKind, Result, Storage, TenantId, async_trait};
use agent_storage_conformance::{Factory, Needs, Settings, check, clauses, obey};
use libtest_mimic::{Arguments, Trial};
use tempfile::TempDir;

use store::{Fault, OneFile};

/// Stores with one fault. Another process learns it from the address.
struct Broken(Fault);

struct Site {
    folder: PathBuf,
    fault: Fault,
    _made: Option<TempDir>,
}

#[async_trait]
impl Factory for Broken {
    type Site = Site;

    async fn fresh(&self) -> Result<Site> {
        let made = tempfile::tempdir()
            .map_err(|error| Error::new(ErrorKind::Unavailable, "no temporary folder").with_source(error))?;
        Ok(Site { folder: made.path().to_owned(), fault: self.0, _made: Some(made) })
    }

    async fn open(&self, site: &Site, _: &TenantId) -> Result<Storage> {
        Ok(OneFile::new(&site.folder, site.fault).into())
    }

    fn address(&self, site: &Site) -> Option<String> {
        Some(format!("{:?} {}", site.fault, site.folder.display()))
    }

    async fn attach(&self, address: &str) -> Result<Site> {
        let (name, folder) = address.split_once(' ').expect("an address of this factory");
        let fault = Fault::ALL.into_iter().find(|fault| format!("{fault:?}") == name);
        Ok(Site { folder: folder.into(), fault: fault.expect("a fault of this version"), _made: None })
    }
}

/// Which fault is caught by which clauses.
const CAUGHT: &[(Fault, &[&str])] = &[
    (
        Fault::NoLock,
        &[
            "durable::x03_processes_on_one_store_behave_like_one",
            "durable::a18_x03_first_contacts_from_processes_agree",
        ],
    ),
    (
        Fault::AcknowledgedBeforeWritten,
        &[
            "durable::o02_x02_what_was_acknowledged_outlives_a_kill",
            "durable::a03_x02_created_sessions_outlive_a_kill",
            "durable::a02_a10_x02_workspaces_outlive_a_kill",
            "durable::a15_x02_bindings_outlive_a_kill",
        ],
    ),
    (Fault::WrittenInTwo, &["durable::a03_x02_created_sessions_outlive_a_kill"]),
];

/// How often a kill is tried until it comes at a moment at which the fault shows.
const TRIES: u64 = 10;

fn run(fault: Fault, path: &str, seed: u64) -> std::result::Result<(), String> {
    let clause = clauses().into_iter().find(|clause| clause.path() == path);
    check(
        Broken(fault),
        &clause.unwrap_or_else(|| panic!("there is no clause {path}")),
        Settings::new(200, seed),
    )
}

/// Nobody adds a clause of processes or kills without a fault that it catches.
fn every_clause_of_processes_was_seen_to_fail() -> std::result::Result<(), String> {
    for clause in clauses() {
        let here = matches!(clause.needs, Needs::Processes | Needs::Crash);
        let path = clause.path();
        let seen = CAUGHT.iter().any(|(_, paths)| paths.contains(&&*path));
        if here != seen {
            return Err(format!("{path}: seen to fail: {seen}"));
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    if let Some(code) = obey(Broken(Fault::None)) {
        return code;
    }
    let mut trials = vec![Trial::test("every_clause_of_processes_was_seen_to_fail", || {
        every_clause_of_processes_was_seen_to_fail().map_err(Into::into)
    })];
    for (fault, paths) in CAUGHT {
        for path in *paths {
            trials.push(Trial::test(format!("{fault:?} is caught by {path}"), || {
                run(Fault::None, path, 7).map_err(|report| format!("without the fault:\n{report}"))?;
                match (7..7 + TRIES).find_map(|seed| run(*fault, path, seed).err()) {
                    None => Err("the fault is not caught".into()),
                    Some(report) if report.contains("is left out") => Err(report.into()),
                    Some(_) => Ok(()),
                }
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
