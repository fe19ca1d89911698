//! The clauses, in rooms by contract. Each is an `async fn` whose name says what it proves.

mod atomic;
mod attributes;
mod bindings;
mod bounded;
mod content;
mod due;
mod durable;
mod fenced;
mod lineage;
mod lineage_races;
mod lines;
mod lists;
mod machine;
mod moved;
mod no_double;
mod nothing_hides;
mod one_winner;
mod outcomes;
mod power;
mod purging;
mod repair;
mod sequences;
mod tenants;
mod workspaces;

use crate::registry::Clause;

/// Every clause, room by room.
pub(crate) fn all() -> Vec<Clause> {
    [
        durable::clauses(),
        moved::clauses(),
        power::clauses(),
        atomic::clauses(),
        one_winner::clauses(),
        no_double::clauses(),
        fenced::clauses(),
        nothing_hides::clauses(),
        repair::clauses(),
        outcomes::clauses(),
        bounded::clauses(),
        machine::clauses(),
        content::clauses(),
        attributes::clauses(),
        lines::clauses(),
        lists::clauses(),
        due::clauses(),
        lineage::clauses(),
        lineage_races::clauses(),
        purging::clauses(),
        sequences::clauses(),
        tenants::clauses(),
        workspaces::clauses(),
        bindings::clauses(),
    ]
    .concat()
}
