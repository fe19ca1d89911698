//! Wrappers forward every method of their traits.

use std::collections::BTreeSet;

/// Traits with a wrapper, each with the file that declares it.
const TRAITS: [(&str, &str); 6] = [
    ("SessionStore", include_str!("../../src/store/session.rs")),
    ("LeaseStore", include_str!("../../src/store/lease.rs")),
    ("BlobStore", include_str!("../../src/store/blob_store.rs")),
    ("Maintenance", include_str!("../../src/store/maintenance.rs")),
    ("WorkspaceStore", include_str!("../../src/store/workspace.rs")),
    ("BindingStore", include_str!("../../src/store/binding.rs")),
];

/// A method that a wrapper did not forward would do what its trait provides, in place of what the wrapped store does.
#[test]
fn wrapper_forwards_every_method() {
    let wrappers = include_str!("../../src/store/wrapper.rs");
    for (name, source) in TRAITS {
        let declared = between(source, &format!("pub trait {name}: "), "\n}\n");
        let declared: BTreeSet<_> = declared.lines().filter_map(declared_method).collect();
        let table = between(wrappers, &format!("{name}Wrapper of {name};"), "\n}\n");
        let forwarded: BTreeSet<_> = table.lines().filter_map(forwarded_method).collect();
        assert!(declared.len() >= 2, "{name}: {declared:?}");
        // What it returns would not be wrapped.
        let declared = declared.into_iter().filter(|method| *method != "of_owner").collect();
        assert_eq!(forwarded, declared, "{name}");
    }
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    text.split_once(start).unwrap().1.split_once(end).unwrap().0
}

/// Returns the name of the method that a line of a trait declares.
fn declared_method(line: &str) -> Option<&str> {
    let line = line.strip_prefix("    ")?;
    let line = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
    line.split_once('(').map(|(name, _)| name)
}

/// Returns the name of the method that a line of a table of a wrapper forwards.
fn forwarded_method(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = line.strip_prefix("call ").or_else(|| line.strip_prefix("get "))?;
    line.split(['(', '[', ' ']).next()
}
