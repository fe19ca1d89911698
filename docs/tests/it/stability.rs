//! The numbers of stored forms on the page about stability are those of the code.

use std::collections::BTreeMap;
use std::fs;

use agent::{FsStore, PostgresStore, S3Store, SqliteStore};
use docs::root;

/// Forms that are no part of a store, with the names that the page gives them.
const DOCUMENTS: [(&str, u64); 2] = [
    ("document of a session", agent_admin::manifest::MANIFEST_FORMAT),
    ("state of a session", agent_runtime::state_payload::STATE_FORMAT),
];

#[test]
fn format_numbers_of_the_page_are_those_of_the_code() {
    let page = fs::read_to_string(root().join("docs/stability.md")).unwrap();
    let table = page.split("## Declared forms").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let numbers: BTreeMap<_, u64> = rows
        .map(|row| {
            let mut cells = row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`'));
            (cells.next().unwrap(), cells.next().unwrap().parse().unwrap())
        })
        .collect();
    let stores = FsStore::FORMATS.into_iter().chain(SqliteStore::FORMATS).chain(S3Store::FORMATS);
    let stores = stores.chain(PostgresStore::FORMATS);
    let known: BTreeMap<_, _> = stores.chain(DOCUMENTS).collect();
    for (form, number) in &known {
        assert_eq!(numbers.get(form), Some(number), "{form}");
    }
    // Those have no public constant: the golden files are in folders of these names.
    let others: Vec<_> = numbers.iter().filter(|(form, _)| !known.contains_key(*form)).collect();
    assert_eq!(
        others,
        [
            (&"agents and builds", &1),
            (&"cursor of a list", &2),
            (&"list of files of an area", &1),
            (&"sealed events", &1),
        ]
    );
    // Each form has its golden files.
    let golden = |form: &str, number: u64| root().join("tests/golden").join(form).join(number.to_string());
    for (folder, form) in [
        ("files", "events.jsonl"),
        ("sqlite", "user_version"),
        ("s3", "objects"),
        ("postgres", "meta.format"),
        ("document", "document of a session"),
        ("state", "state of a session"),
        ("area", "list of files of an area"),
        ("agents", "agents and builds"),
        ("sealed", "sealed events"),
    ] {
        let path = golden(folder, numbers[form]);
        assert!(path.is_dir(), "{} has no golden files", path.display());
    }
}
