//! Runs clauses: as named tests on the command line, or one at a time from code.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_core::{Error, ErrorKind, Storage, TenantId};
use libtest_mimic::{Arguments, Failed, FormatSetting, Trial};

use crate::clauses::all;
use crate::factory::{AnyFactory, Factory};
use crate::failure::Checked;
use crate::journal::Journal;
use crate::registry::{Clause, Contract, Offers};
use crate::runtime::{on_runtime, while_it_moves};
use crate::stage::{Settings, Stage};
use crate::worker;

/// Time per round after which a clause counts as stuck in which no step begins. One whose steps go on, which a busy
/// machine makes slow, has three times as long. No clause measures time.
const STUCK: Duration = Duration::from_millis(1500);
/// Smallest such time, for few rounds: a list that asks a server for each session may be slow on a busy machine.
const STUCK_AT_LEAST: Duration = Duration::from_secs(60);
/// Time after which the report names a clause as slow, at the default number of rounds. The clause does not fail.
const SLOW: Duration = Duration::from_secs(1);

/// Returns every clause of the suite, by contract.
pub fn clauses() -> Vec<Clause> {
    all()
}

/// Runs the whole suite on a backend, as a test program: call it from the `main` of a test with `harness = false`.
///
/// Each clause is a separate test, named `contract::clause`; the usual arguments of a test program select among them.
/// Clauses that the backend's [capabilities](agent_core::store::Capabilities) or its factory do not support are shown
/// as ignored, and listed at the end with the reason. Failures are reported at the end, those with the same cause
/// together. Before the counts, the report lists the store's claims that nothing has tested, as `NOT SHOWN`.
pub fn main<F: Factory>(factory: F) -> ExitCode {
    let factory: Arc<dyn AnyFactory> = Arc::new(factory);
    if let Some(code) = worker::obey(&factory) {
        return code;
    }
    let arguments = Arguments::from_args();
    let settings = Settings::from_env();
    let offers = match offers(&factory) {
        Ok(offers) => offers,
        Err(failure) => {
            print(&format!("the factory opens no store\n{failure}\n"));
            return ExitCode::FAILURE;
        }
    };
    let as_json = arguments.format == Some(FormatSetting::Json);
    let tally = Tally::default();
    let mut left_out = Vec::new();
    let mut trials = Vec::new();
    for clause in clauses() {
        let missing = clause.needs.missing(&offers);
        let (factory, tally) = (factory.clone(), tally.clone());
        let trial = Trial::test(clause.path(), move || {
            #[allow(clippy::disallowed_methods, reason = "what a person waited is real time")]
            let start = Instant::now();
            let result = run_one(factory, clause, settings);
            // Machines read the reason in its place; people read it once for all clauses that it made fail.
            let text = result.as_ref().map_err(|broken| as_json.then(|| broken.report.clone()));
            let verdict = text.map(drop).map_err(|text| text.map_or(Failed::without_message(), Failed::from));
            tally.count(clause, result.err(), start.elapsed());
            verdict
        });
        trials.push(trial.with_ignored_flag(missing.is_some()));
        left_out.extend(missing.map(|reason| (clause, reason)));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        print(&report(&tally, &offers.not_shown(), &left_out, settings));
    }
    conclusion.exit_code()
}

/// Executes the order of a suite in another process, if this process was started for that; `None` if it was not.
///
/// [`main`] calls this by itself. A test program that calls [`check`] from its own `main`, on a factory with an
/// [`address`](Factory::address), must call this first, because clauses with several processes start the program
/// again.
pub fn obey<F: Factory>(factory: F) -> Option<ExitCode> {
    let factory: Arc<dyn AnyFactory> = Arc::new(factory);
    worker::obey(&factory)
}

/// Runs one clause on a backend.
///
/// # Errors
///
/// The report of the failure: the contract, the steps, what was expected and what was observed. Also fails if the
/// backend lacks what the clause needs.
pub fn check<F: Factory>(factory: F, clause: &Clause, settings: Settings) -> Result<(), String> {
    let factory: Arc<dyn AnyFactory> = Arc::new(factory);
    if let Some(reason) = clause.needs.missing(&offers(&factory).map_err(|failure| failure.to_string())?) {
        return Err(format!("{} is left out: {reason}", clause.path()));
    }
    run_one(factory, *clause, settings).map_err(|broken| broken.report)
}

/// Clause that failed.
#[derive(Debug)]
struct Broken {
    /// Cause, in words that are the same for clauses that fail for the same reason.
    cause: String,
    /// Full report of the failure, for people.
    report: String,
}

fn run_one(factory: Arc<dyn AnyFactory>, clause: Clause, settings: Settings) -> Result<(), Broken> {
    let journal = Journal::default();
    let recorded = journal.clone();
    let stuck = STUCK.saturating_mul(u32::try_from(settings.rounds).unwrap_or(u32::MAX)).max(STUCK_AT_LEAST);
    let result = on_runtime(stuck.saturating_mul(3), async move {
        let moves = recorded.clone();
        let run = async move {
            let stage = Stage::new(factory, settings, recorded).await?;
            (clause.run)(&stage).await?;
            stage.outcomes_hold().await
        };
        while_it_moves(stuck, &moves, run).await
    });
    result.map_err(|failure| {
        let report = format!(
            "{}\nclause    {}\n{journal}{failure}\nagain     {}={} {}={} … {}",
            clause.contract,
            clause.path(),
            Settings::SEED,
            settings.seed,
            Settings::ROUNDS,
            settings.rounds,
            clause.path(),
        );
        Broken { cause: failure.cause(), report }
    })
}

fn offers(factory: &Arc<dyn AnyFactory>) -> Checked<Offers> {
    let factory = factory.clone();
    on_runtime(STUCK_AT_LEAST, async move {
        let site = factory.fresh().await?;
        let storage: Storage = factory.open(&site, &TenantId::default()).await?;
        let bad = factory.fresh_for_faults().await?;
        let unsupported = |error: Option<Error>| error.is_some_and(|e| *e.kind() == ErrorKind::Unsupported);
        Ok(Offers {
            capabilities: storage.sessions.capabilities(),
            address: factory.address(&site).is_some(),
            faults: !unsupported(factory.fail(&bad, None).await.err()),
            power: !unsupported(factory.lose_power(&bad).await.err()),
            tenants: factory.tenants(&site).await?.is_some(),
            damages: factory.damages().to_vec(),
        })
    })
}

type Tallied = (Clause, Option<Broken>, Duration);

/// Result and duration of each clause.
#[derive(Clone, Default)]
struct Tally(Arc<Mutex<Vec<Tallied>>>);

impl Tally {
    fn all(&self) -> MutexGuard<'_, Vec<Tallied>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, clause: Clause, broken: Option<Broken>, took: Duration) {
        self.all().push((clause, broken, took));
    }

    /// Returns the failures, those of most clauses first. Of clauses that fail for the same cause, returns one report.
    fn failures(&self) -> String {
        let mut tallied = self.all();
        tallied.sort_by_key(|(clause, ..)| (clause.contract, clause.name));
        let mut causes = BTreeMap::<&str, Vec<(Clause, &Broken)>>::new();
        for (clause, broken, _) in &*tallied {
            if let Some(broken) = broken {
                causes.entry(&broken.cause).or_default().push((*clause, broken));
            }
        }
        let mut causes: Vec<_> = causes.into_iter().collect();
        causes.sort_by_key(|(_, clauses)| (std::cmp::Reverse(clauses.len()), clauses[0].0.contract));
        let mut text = String::new();
        for (cause, clauses) in causes {
            if let [(clause, broken)] = &*clauses {
                text += &format!("\nFAILED: {}\n{}\n", clause.path(), broken.report);
                continue;
            }
            text += &format!("\nFAILED: {} clauses, for one cause: {cause}\n", clauses.len());
            for (clause, _) in &clauses {
                text += &format!("  {}\n", clause.path());
            }
            text += &format!("The first of them:\n{}\n", clauses[0].1.report);
        }
        text
    }

    /// Returns the number of passed and failed clauses for each contract.
    fn counts(&self) -> BTreeMap<Contract, (usize, usize)> {
        let mut counts = BTreeMap::<Contract, (usize, usize)>::new();
        for (clause, broken, _) in &*self.all() {
            let count = counts.entry(clause.contract).or_default();
            if broken.is_none() { count.0 += 1 } else { count.1 += 1 }
        }
        counts
    }

    /// Returns the clauses that took longest: all slow ones, and at least five. For information only.
    fn slowest(&self) -> Vec<(Clause, Duration)> {
        let mut slowest: Vec<_> = self.all().iter().map(|(clause, _, took)| (*clause, *took)).collect();
        slowest.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        let slow = slowest.iter().filter(|(_, took)| *took > SLOW).count();
        slowest.truncate(slow.max(5));
        slowest
    }
}

fn report(tally: &Tally, not_shown: &[String], left_out: &[(Clause, String)], settings: Settings) -> String {
    let mut text = tally.failures();
    if !text.is_empty() {
        text.push('\n');
    }
    for claim in not_shown {
        text += &format!("  NOT SHOWN: {claim}\n");
    }
    for (contract, (passed, failed)) in tally.counts() {
        let verdict = if failed == 0 { String::new() } else { format!(", {failed} FAILED") };
        text += &format!("  {contract}: {passed} passed{verdict}\n");
    }
    for (clause, reason) in left_out {
        text += &format!("  left out: {}, since {reason}\n", clause.path());
    }
    for (clause, took) in tally.slowest() {
        let verdict = if took > SLOW { "slow" } else { "slowest" };
        text += &format!("  {verdict}: {}, {:.2} s\n", clause.path(), took.as_secs_f64());
    }
    text += &format!("  {} rounds of each race, seed {}\n", settings.rounds, settings.seed);
    text
}

fn print(text: &str) {
    // Nobody is left to be told where standard output is closed.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
