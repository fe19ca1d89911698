//! Clauses, and the contracts that they check.

use std::fmt;

use agent_core::store::{Capabilities, Consistency, Durability, Scope};
use futures::future::BoxFuture;

use crate::factory::DamageKind;
use crate::failure::Checked;
use crate::stage::Stage;

/// Contracts that the clauses check: the eight numbered ones, and the other promises in the traits' documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Contract {
    /// Contract 1: acknowledged writes are never lost.
    Durable,
    /// Contract 2: a commit is seen whole or not at all.
    Atomic,
    /// Contract 3: of several writes with the same precondition, exactly one succeeds.
    OneWinner,
    /// Contract 4: a commit that is sent twice is applied once.
    NoDouble,
    /// Contract 5: a run writes only while it holds the lease.
    Fenced,
    /// Contract 6: absent, deleted, damaged and refused are different answers.
    NothingHides,
    /// Contract 7: a failed write reports whether it may have been applied.
    Outcomes,
    /// Contract 8: a read returns what was requested; limits hold.
    Bounded,
    /// State machine and session record.
    Machine,
    /// Stored data is returned byte for byte.
    Content,
    /// Random sequences of operations give the same results as the in-memory reference.
    Sequences,
    /// Lists: order, filters, pages.
    Lists,
    /// Searches find what was said.
    Search,
    /// Forks, children, and the history across them.
    Lineage,
    /// Blobs: put before the commit that names them, kept as long as an event names them.
    Blobs,
    /// Tenants do not see each other.
    Backend,
    /// Owners within a tenant do not see each other.
    Owners,
    /// Workspaces and their configuration.
    Workspaces,
    /// Devices and their bindings.
    Bindings,
}

impl Contract {
    /// Returns the number of the contract, if it has one.
    pub const fn number(self) -> Option<u8> {
        match self {
            Self::Durable => Some(1),
            Self::Atomic => Some(2),
            Self::OneWinner => Some(3),
            Self::NoDouble => Some(4),
            Self::Fenced => Some(5),
            Self::NothingHides => Some(6),
            Self::Outcomes => Some(7),
            Self::Bounded => Some(8),
            _ => None,
        }
    }

    /// Returns the promise of the contract in one line.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Durable => "acknowledged means durable",
            Self::Atomic => "all or nothing",
            Self::OneWinner => "one winner",
            Self::NoDouble => "no double",
            Self::Fenced => "fenced",
            Self::NothingHides => "nothing hides",
            Self::Outcomes => "every write error tells whether it may have happened",
            Self::Bounded => "bounded",
            Self::Machine => "the state machine",
            Self::Content => "what is stored comes back byte for byte",
            Self::Sequences => "random sequences",
            Self::Lists => "lists",
            Self::Search => "search",
            Self::Lineage => "lineage",
            Self::Blobs => "blobs",
            Self::Backend => "tenants",
            Self::Owners => "owners",
            Self::Workspaces => "workspaces",
            Self::Bindings => "bindings",
        }
    }

    /// Returns the first part of the names of the contract's clauses.
    pub const fn room(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Atomic => "atomic",
            Self::OneWinner => "one_winner",
            Self::NoDouble => "no_double",
            Self::Fenced => "fenced",
            Self::NothingHides => "nothing_hides",
            Self::Outcomes => "outcomes",
            Self::Bounded => "bounded",
            Self::Machine => "machine",
            Self::Content => "content",
            Self::Sequences => "sequences",
            Self::Lists => "lists",
            Self::Search => "search",
            Self::Lineage => "lineage",
            Self::Blobs => "blobs",
            Self::Backend => "tenants",
            Self::Owners => "owners",
            Self::Workspaces => "workspaces",
            Self::Bindings => "bindings",
        }
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => write!(f, "contract {number}, {}", self.title()),
            None => f.write_str(self.title()),
        }
    }
}

/// Feature that a backend must offer for a clause to apply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs {
    /// No requirement: every backend must pass the clause.
    Nothing,
    /// Lists that show a write as soon as it is acknowledged.
    ImmediateLists,
    /// Lists in the exact order of recency.
    ExactRecency,
    /// Factory with an [`address`](crate::Factory::address), and a scope beyond the process.
    Processes,
    /// Factory with an [`address`](crate::Factory::address), and writes that survive the end of the process.
    Crash,
    /// [`Factory`](crate::Factory) that can cut the power, and writes that survive it.
    PowerLoss,
    /// [`Factory`](crate::Factory) that can make calls to the medium fail.
    Faults,
    /// [`Factory`](crate::Factory) that lists its tenants.
    TenantList,
    /// [`Factory`](crate::Factory) that lists its tenants, and can make calls to the medium fail.
    TenantFaults,
    /// [`Factory`](crate::Factory) that lists its tenants and can cut the power, and writes that survive it.
    TenantPowerLoss,
    /// [`Factory`](crate::Factory) that can do this damage.
    Damage(DamageKind),
    /// Blobs.
    Blobs,
    /// Capabilities without blobs.
    NoBlobs,
    /// Blobs, and what [`Crash`](Self::Crash) requires.
    BlobCrash,
    /// Blobs, and what [`PowerLoss`](Self::PowerLoss) requires.
    BlobPowerLoss,
    /// Blobs, and what [`Faults`](Self::Faults) requires.
    BlobFaults,
}

/// Features of a factory and its store.
#[derive(Clone, Debug)]
pub(crate) struct Offers {
    pub(crate) capabilities: Capabilities,
    pub(crate) address: bool,
    pub(crate) power: bool,
    pub(crate) faults: bool,
    pub(crate) tenants: bool,
    pub(crate) damages: Vec<DamageKind>,
}

impl Needs {
    /// Returns the reason for which a clause is skipped for a backend; `None` if it runs.
    pub(crate) fn missing(self, offers: &Offers) -> Option<String> {
        let capabilities = &offers.capabilities;
        match self {
            Self::Nothing => None,
            Self::ImmediateLists => (capabilities.listing != Consistency::Immediate)
                .then(|| "its lists show a write later".to_owned()),
            Self::ExactRecency => (capabilities.listing != Consistency::Immediate
                || !capabilities.recency.is_zero())
            .then(|| format!("the order of its lists may lag by {:?}", capabilities.recency)),
            Self::Processes if capabilities.scope == Scope::Process => {
                Some("its scope is one process".to_owned())
            }
            Self::Crash if capabilities.durability < Durability::ProcessCrash => {
                Some("its writes do not outlive the process".to_owned())
            }
            Self::Processes | Self::Crash => {
                (!offers.address).then(|| "its factory gives no address".to_owned())
            }
            Self::PowerLoss if capabilities.durability < Durability::PowerLoss => {
                Some("it does not claim that its writes outlive the loss of power".to_owned())
            }
            Self::PowerLoss => (!offers.power).then(|| "its factory cuts no power".to_owned()),
            Self::Faults => (!offers.faults).then(|| "its factory makes no call fail".to_owned()),
            Self::TenantFaults => Self::TenantList.missing(offers).or_else(|| Self::Faults.missing(offers)),
            Self::TenantPowerLoss => {
                Self::TenantList.missing(offers).or_else(|| Self::PowerLoss.missing(offers))
            }
            Self::TenantList => (!offers.tenants).then(|| "its factory lists no tenants".to_owned()),
            Self::Blobs => (capabilities.blob_max_bytes == 0).then(|| "it keeps no blobs".to_owned()),
            Self::NoBlobs => (capabilities.blob_max_bytes > 0).then(|| "it keeps blobs".to_owned()),
            Self::BlobCrash => Self::Blobs.missing(offers).or_else(|| Self::Crash.missing(offers)),
            Self::BlobPowerLoss => Self::Blobs.missing(offers).or_else(|| Self::PowerLoss.missing(offers)),
            Self::BlobFaults => Self::Blobs.missing(offers).or_else(|| Self::Faults.missing(offers)),
            Self::Damage(kind) => {
                (!offers.damages.contains(&kind)).then(|| format!("its factory offers no {kind}"))
            }
        }
    }
}

impl Offers {
    /// Returns the claims of the store that no clause can test, each with the missing hook.
    pub(crate) fn not_shown(&self) -> Vec<String> {
        let Capabilities { durability, scope, .. } = self.capabilities;
        let missing = [
            (
                durability >= Durability::PowerLoss && !self.power,
                format!("the store claims Durability::{durability:?}, and nothing cut the power: a store that never syncs passes this, too; implement Factory::lose_power"),
            ),
            (
                durability >= Durability::ProcessCrash && !self.address,
                format!("the store claims Durability::{durability:?}, and no process that used it was killed; implement Factory::address"),
            ),
            (
                scope >= Scope::Host && !self.address,
                format!("the store claims Scope::{scope:?}, and only one process used it; implement Factory::address"),
            ),
            (
                durability > Durability::None && !self.faults,
                "no call to the medium failed: errors that say NotApplied of a write that was applied were not looked for there; implement Factory::fail".to_owned(),
            ),
        ];
        missing.into_iter().filter(|(missing, _)| *missing).map(|(_, what)| what).collect()
    }
}

/// Clause of the suite: a named promise, and the code that tests a backend for it.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Clause {
    /// Contract that the clause belongs to.
    pub contract: Contract,
    /// Name of the clause, without its contract.
    pub name: &'static str,
    /// Requirement of the clause on a backend.
    pub needs: Needs,
    pub(crate) run: for<'a> fn(&'a Stage) -> BoxFuture<'a, Checked>,
}

impl Clause {
    /// Returns the name with the prefix of its contract, by which the clause is selected on the command line.
    pub fn path(&self) -> String {
        format!("{}::{}", self.contract.room(), self.name)
    }
}

impl fmt::Debug for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clause").field("path", &self.path()).field("needs", &self.needs).finish()
    }
}

/// Table of a contract's clauses: the name of each, and its requirement if it has one.
macro_rules! table {
    ($contract:ident: $($name:ident $(($needs:expr))?,)*) => {
        vec![$($crate::registry::Clause {
            contract: $crate::registry::Contract::$contract,
            name: stringify!($name),
            needs: $crate::registry::table!(@needs $($needs)?),
            run: |stage| Box::pin($name(stage)),
        },)*]
    };
    (@needs) => { $crate::registry::Needs::Nothing };
    (@needs $needs:expr) => { $needs };
}
pub(crate) use table;
