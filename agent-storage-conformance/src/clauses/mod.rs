//! Clauses, in modules by contract. Each is an `async fn` whose name states what it proves.

mod atomic;
mod attributes;
mod bindings;
mod blob_durable;
mod blob_retention;
pub(crate) mod blobs;
mod bounded;
mod content;
mod deletion;
mod due;
mod durable;
mod fenced;
mod lineage;
mod lineage_races;
mod lists;
mod machine;
mod moved;
mod multi_line_json;
mod no_double;
mod nothing_hides;
mod one_winner;
mod outcomes;
mod owner_guards;
mod owners;
mod power;
mod purging;
mod repair;
mod search;
mod sequences;
mod tenants;
mod workspaces;

use crate::registry::Clause;

/// Returns every clause, module by module.
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
        multi_line_json::clauses(),
        lists::clauses(),
        search::clauses(),
        due::clauses(),
        lineage::clauses(),
        lineage_races::clauses(),
        purging::clauses(),
        blobs::clauses(),
        blob_retention::clauses(),
        blob_durable::clauses(),
        sequences::clauses(),
        tenants::clauses(),
        owners::clauses(),
        owner_guards::clauses(),
        deletion::clauses(),
        workspaces::clauses(),
        bindings::clauses(),
    ]
    .concat()
}
