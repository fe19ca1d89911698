//! Proof of the clauses that start and kill several processes: broken stores in a file, and the clauses that catch
//! them.

#![allow(clippy::panic, clippy::expect_used, reason = "a test's helpers")]

mod store;

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, Weak};

use agent_core::{Backend, Error, ErrorKind, Result, Storage, TenantId, async_trait};
use agent_storage_conformance::{Factory, FailingCall, Needs, Settings, check, clauses, obey};
use libtest_mimic::{Arguments, Trial};
use tempfile::TempDir;

use store::{Failing, Fault, OneFile, Shared, TenantFolders};

/// Stores with one fault. Another process learns it from the address.
struct Broken {
    fault: Fault,
    /// Whether only one process at a time may open the store.
    alone: bool,
}

struct Site {
    folder: PathBuf,
    fault: Fault,
    alone: bool,
    failing: Shared,
    /// Held by the handles on a store that one process has for itself.
    held: Mutex<Weak<File>>,
    _made: Option<TempDir>,
}

impl Site {
    fn new(folder: PathBuf, fault: Fault, alone: bool, made: Option<TempDir>) -> Self {
        Self { folder, fault, alone, failing: Shared::default(), held: Mutex::default(), _made: made }
    }

    fn made(fault: Fault, alone: bool) -> Result<Self> {
        let made = tempfile::tempdir()
            .map_err(|error| Error::new(ErrorKind::Unavailable, "no temporary folder").with_source(error))?;
        Ok(Self::new(made.path().to_owned(), fault, alone, Some(made)))
    }

    /// Keeps other processes out, if the store is for one.
    fn hold(&self) -> Result<Option<Arc<File>>> {
        if !self.alone {
            return Ok(None);
        }
        let mut held = self.held.lock().expect("no panic");
        if let Some(file) = held.upgrade() {
            return Ok(Some(file));
        }
        let file = File::create(self.folder.join("alone")).expect("a file");
        file.try_lock().map_err(|_| Error::new(ErrorKind::Unavailable, "another process has it open"))?;
        let file = Arc::new(file);
        *held = Arc::downgrade(&file);
        Ok(Some(file))
    }
}

#[async_trait]
impl Factory for Broken {
    type Site = Site;

    async fn fresh(&self) -> Result<Site> {
        Site::made(self.fault, self.alone)
    }

    async fn open(&self, site: &Site, tenant: &TenantId) -> Result<Storage> {
        Ok(OneFile::new(&site.folder, site.fault, &site.failing, site.hold()?).tenant(tenant).into())
    }

    async fn tenants(&self, site: &Site) -> Result<Option<Arc<dyn Backend>>> {
        let store = OneFile::new(&site.folder, site.fault, &site.failing, site.hold()?);
        Ok(Some(Arc::new(TenantFolders(store))))
    }

    fn address(&self, site: &Site) -> Option<String> {
        Some(format!("{:?} {} {}", site.fault, site.alone, site.folder.display()))
    }

    async fn attach(&self, address: &str) -> Result<Site> {
        let [name, alone, folder] = address.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{address:?} is not an address of this factory");
        };
        Ok(Site::new(folder.into(), fault_of(name), alone == "true", None))
    }

    async fn lose_power(&self, site: &Site) -> Result<Site> {
        let left = Site::made(site.fault, site.alone)?;
        OneFile::lose_power(&site.folder, &left.folder);
        Ok(left)
    }

    async fn fail(&self, site: &Site, call: Option<FailingCall>) -> Result<bool> {
        let mut failing = site.failing.lock().expect("no panic");
        let before = std::mem::replace(&mut *failing, Failing { call, made: 0 });
        Ok(before.call.is_some_and(|call| before.made > call.skip))
    }
}

fn fault_of(name: &str) -> Fault {
    let fault = Fault::ALL.into_iter().find(|fault| format!("{fault:?}") == name);
    fault.expect("a fault of this version")
}

/// Which fault is caught by which clauses.
const CAUGHT: &[(Fault, &[&str])] = &[
    (
        Fault::NoLock,
        &["durable::processes_on_one_store_behave_like_one", "durable::first_contacts_from_processes_agree"],
    ),
    (
        Fault::AcknowledgedBeforeWritten,
        &[
            "durable::acknowledged_commits_outlive_a_kill",
            "durable::created_sessions_outlive_a_kill",
            "durable::workspaces_outlive_a_kill",
            "durable::bindings_outlive_a_kill",
            "blobs::blobs_outlive_a_kill",
        ],
    ),
    (Fault::BlobsUnsynced, &["blobs::blobs_outlive_a_power_loss"]),
    (Fault::BlobsSyncedWhenNamed, &["blobs::blobs_outlive_a_power_loss"]),
    (Fault::FailedPutLeavesAHalf, &["blobs::failed_calls_leave_blobs_whole_or_absent"]),
    (Fault::WrittenInTwo, &["durable::created_sessions_outlive_a_kill"]),
    (Fault::NeverSyncs, &["durable::acknowledged_writes_outlive_a_power_loss"]),
    (Fault::BindingsUnsynced, &["durable::acknowledged_writes_outlive_a_power_loss"]),
    (Fault::FailuresDenied, &["outcomes::failed_write_reports_whether_it_was_applied"]),
    (Fault::TenantDeletedInTwo, &["tenants::a_failed_deletion_is_finished_by_the_next"]),
    (Fault::DeletionUnsynced, &["tenants::a_deletion_of_a_tenant_outlives_a_power_loss"]),
    // No clause looks at this one: the suite itself does, after each clause in which a commit is refused.
    (Fault::RefusedAppliedLater, &["one_winner::stale_precondition_is_a_conflict"]),
];

/// How often a kill is tried until it comes at a moment at which the fault shows.
const TRIES: u64 = 10;

fn run(fault: Fault, alone: bool, path: &str, seed: u64) -> std::result::Result<(), String> {
    let clause = clauses().into_iter().find(|clause| clause.path() == path);
    check(
        Broken { fault, alone },
        &clause.unwrap_or_else(|| panic!("there is no clause {path}")),
        Settings::new(200, seed),
    )
}

/// Nobody adds a clause of processes or kills without a fault that it catches.
fn every_process_clause_catches_a_fault() -> std::result::Result<(), String> {
    for clause in clauses() {
        let here = matches!(
            clause.needs,
            Needs::Processes
                | Needs::Crash
                | Needs::PowerLoss
                | Needs::Faults
                | Needs::TenantFaults
                | Needs::TenantPowerLoss
                | Needs::BlobCrash
                | Needs::BlobPowerLoss
                | Needs::BlobFaults
        );
        let path = clause.path();
        let seen = CAUGHT.iter().any(|(_, paths)| paths.contains(&&*path));
        if here && !seen {
            return Err(format!("{path}: seen to fail: {seen}"));
        }
    }
    Ok(())
}

fn is_caught(fault: Fault, alone: bool, path: &str) -> std::result::Result<(), libtest_mimic::Failed> {
    run(Fault::None, alone, path, 7).map_err(|report| format!("without the fault:\n{report}"))?;
    match (7..7 + TRIES).find_map(|seed| run(fault, alone, path, seed).err()) {
        None => Err("the fault is not caught".into()),
        Some(report) if report.contains("is left out") => Err(report.into()),
        Some(_) => Ok(()),
    }
}

/// The clauses that kill the process, which a store passes that only one process at a time can open.
const KILLS: [&str; 5] = [
    "durable::acknowledged_commits_outlive_a_kill",
    "durable::created_sessions_outlive_a_kill",
    "durable::workspaces_outlive_a_kill",
    "durable::bindings_outlive_a_kill",
    "blobs::blobs_outlive_a_kill",
];

/// The variable by which this program runs the suite on a store, to see the report; its value is the fault.
const WHOLE_SUITE: &str = "AGENT_TEST_WHOLE_SUITE";

/// A factory without any hook.
struct Unaided(Broken);

#[async_trait]
impl Factory for Unaided {
    type Site = Site;

    async fn fresh(&self) -> Result<Site> {
        self.0.fresh().await
    }

    async fn open(&self, site: &Site, tenant: &TenantId) -> Result<Storage> {
        self.0.open(site, tenant).await
    }
}

/// What the suite prints about a store, of the clauses with this in their name.
fn printed(fault: Fault, filter: &str) -> String {
    let program = std::env::current_exe().expect("this program");
    let output = std::process::Command::new(program)
        .env(WHOLE_SUITE, format!("{fault:?}"))
        .env(Settings::ROUNDS, "2")
        .args([filter, "--color", "never"])
        .output()
        .expect("the suite in a process of its own");
    String::from_utf8(output.stdout).expect("text")
}

/// The report begins with the cause that most clauses share, says how many, and shows one of them; no page is printed
/// as it is, and no pattern of the suite's own code.
fn failures_of_one_cause_are_reported_once() {
    let text = printed(Fault::NothingCommitted, "no_double::");
    let (_, report) = text.split_once("\nFAILED: ").unwrap_or_else(|| panic!("no report:\n{text}"));
    let (first, _) = report.split_once('\n').expect("lines");
    let (count, cause) = first.split_once(" clauses, for one cause: ").expect(first);
    assert!(count.parse::<usize>().expect(first) > 10, "{first}");
    assert_eq!(cause, "Unavailable: table `events` of session … is not there; create it");
    assert_eq!(report.matches("\nchecked ").count(), 1, "one of them is shown:\n{text}");
    for bad in ["an error of kind _", "ErrorKind::", "Error {", "Page {"] {
        assert!(!text.contains(bad), "{bad:?} in\n{text}");
    }
}

/// A store that claims what no hook lets the suite look at does not pass in silence.
fn untested_claims_are_reported() {
    let text = printed(Fault::NeverSyncs, "durable::x08_all");
    for claim in
        ["nothing cut the power", "no process that used it was killed", "no call to the medium failed"]
    {
        let messages = text.lines().any(|line| line.starts_with("  NOT SHOWN: ") && line.contains(claim));
        assert!(messages, "{claim:?} is not in\n{text}");
    }
}

fn main() -> ExitCode {
    if let Some(code) = obey(Broken { fault: Fault::None, alone: false }) {
        return code;
    }
    if let Ok(name) = std::env::var(WHOLE_SUITE) {
        return agent_storage_conformance::main(Unaided(Broken { fault: fault_of(&name), alone: false }));
    }
    let mut trials = vec![Trial::test("every_process_clause_catches_a_fault", || {
        every_process_clause_catches_a_fault().map_err(Into::into)
    })];
    trials.push(Trial::test("failures_of_one_cause_are_reported_once", || {
        failures_of_one_cause_are_reported_once();
        Ok(())
    }));
    trials.push(Trial::test("untested_claims_are_reported", || {
        untested_claims_are_reported();
        Ok(())
    }));
    for (fault, paths) in CAUGHT {
        for path in *paths {
            trials.push(Trial::test(format!("{fault:?} is caught by {path}"), || {
                is_caught(*fault, false, path)
            }));
        }
    }
    for path in KILLS {
        trials.push(Trial::test(format!("a store of one process is killed by {path}"), || {
            is_caught(Fault::AcknowledgedBeforeWritten, true, path)
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
