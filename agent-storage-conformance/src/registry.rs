//! What a clause is, and which contract it checks.

use std::fmt;

use agent_core::store::{Capabilities, Consistency, Durability, Scope};
use futures::future::BoxFuture;

use crate::factory::DamageKind;
use crate::failure::Checked;
use crate::stage::Stage;

/// The promises that the clauses check: the eight contracts, and what the traits' documentation says besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Contract {
    /// 1: what was acknowledged is there again, whatever happened.
    Durable,
    /// 2: a commit is seen whole or not at all.
    Atomic,
    /// 3: of several with one expectation, one succeeds.
    OneWinner,
    /// 4: a commit that is sent twice is applied once.
    NoDouble,
    /// 5: a run writes only while it holds the lease.
    Fenced,
    /// 6: absent, deleted, damaged and refused are told apart.
    NothingHides,
    /// 7: a failed write says whether it may have happened.
    Outcomes,
    /// 8: what is asked for is what is read; limits hold.
    Bounded,
    /// The state machine and the record.
    Machine,
    /// What is stored comes back byte for byte.
    Content,
    /// Random sequences of operations give what the in-memory reference gives.
    Sequences,
    /// Lists: order, filters, pages.
    Lists,
    /// Forks, children, and the history across them.
    Lineage,
    /// Tenants do not see each other.
    Tenants,
    /// Workspaces and their configuration.
    Workspaces,
    /// Devices and their bindings.
    Bindings,
}

impl Contract {
    /// Its number, where it has one.
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

    /// What it promises, in a line.
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
            Self::Lineage => "lineage",
            Self::Tenants => "tenants",
            Self::Workspaces => "workspaces",
            Self::Bindings => "bindings",
        }
    }

    /// The first part of its clauses' names.
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
            Self::Lineage => "lineage",
            Self::Tenants => "tenants",
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

/// What a backend must offer for a clause to say anything about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs {
    /// Nothing: every backend passes it.
    Nothing,
    /// Lists that show a write as soon as it is acknowledged.
    ImmediateLists,
    /// Lists in the exact order of recency.
    ExactRecency,
    /// An [`address`](crate::Factory::address), and a scope beyond the process.
    Processes,
    /// An [`address`](crate::Factory::address), and writes that outlive the process.
    Crash,
    /// A [`Factory`](crate::Factory) that cuts the power, and writes that outlive it.
    PowerLoss,
    /// A [`Factory`](crate::Factory) that makes calls to the medium fail.
    Faults,
    /// A [`Factory`](crate::Factory) that lists its tenants.
    TenantList,
    /// A [`Factory`](crate::Factory) that can do this damage.
    Damage(DamageKind),
}

/// What a factory and its store offer.
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
    /// Why a backend is not asked; `None` where it is.
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
            Self::TenantList => (!offers.tenants).then(|| "its factory lists no tenants".to_owned()),
            Self::Damage(kind) => {
                (!offers.damages.contains(&kind)).then(|| format!("its factory offers no {kind}"))
            }
        }
    }
}

impl Offers {
    /// What the store claims and no clause can show, each with the hook that is missing.
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

/// One clause of the suite: a named promise, and the code that puts a backend to it.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Clause {
    /// The promise that it belongs to.
    pub contract: Contract,
    /// Its name.
    pub name: &'static str,
    /// What it needs of a backend.
    pub needs: Needs,
    pub(crate) run: for<'a> fn(&'a Stage) -> BoxFuture<'a, Checked>,
}

impl Clause {
    /// Its name with its contract's room: how it is selected on the command line.
    pub fn path(&self) -> String {
        format!("{}::{}", self.contract.room(), self.name)
    }
}

impl fmt::Debug for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clause").field("path", &self.path()).field("needs", &self.needs).finish()
    }
}

/// The table of a room's clauses: the name of each, and what it needs where it needs something.
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
