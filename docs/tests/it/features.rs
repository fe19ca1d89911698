//! Table of features: each row is there once, and each test that a page names exists in that file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use docs::root;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows of the table, as cells.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let is_id = |cell: &str| cell.len() == 3 && cell[1..].bytes().all(|b| b.is_ascii_digit());
    page.lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .filter(|cells: &Vec<_>| is_id(cells[0]))
        .collect()
}

/// The functions of a source file.
fn functions(source: &str) -> BTreeSet<&str> {
    let name = |rest: &'_ str| rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    source.split("fn ").skip(1).map(|rest| &rest[..name(rest)]).collect()
}

/// Every row is there once and in order, with a test or a gap; every test is in the file that is linked.
#[test]
fn feature_rows_are_complete_and_their_tests_exist() {
    let page = read("docs/features.md");
    let rows = rows(&page);
    let mut wrong = Vec::new();
    for (letter, count) in [('A', 42), ('R', 28), ('F', 26), ('O', 27), ('N', 20), ('X', 8)] {
        let ids: Vec<_> = rows.iter().map(|row| row[0]).filter(|id| id.starts_with(letter)).collect();
        let expected: Vec<_> = (1..=count).map(|number| format!("{letter}{number:02}")).collect();
        if ids != expected {
            wrong.push(format!("{letter}: {ids:?}"));
        }
    }
    for row in &rows {
        let [id, _, _, stores, tests, gap] = row[..] else { panic!("{row:?} has not six cells") };
        if (tests.is_empty() || stores.is_empty()) && gap.is_empty() {
            wrong.push(format!("{id} has no test and no gap"));
        }
        for test in tests.split(", ").filter(|test| !test.is_empty()) {
            let (name, file) =
                test.trim_start_matches("[`").trim_end_matches(')').split_once("`](../").unwrap();
            let source = fs::read_to_string(root().join(file)).unwrap_or_default();
            if !functions(&source).contains(name) {
                wrong.push(format!("{id}: {file} has no test {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Every test that the pages of guarantees, of stability and of threats name is a function of a source file.
#[test]
fn tests_named_in_the_guarantees_exist() {
    let (mut sources, mut folders) = (Vec::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            if entry.file_type().unwrap().is_dir() {
                if name != "target" && !name.to_string_lossy().starts_with('.') {
                    folders.push(entry.path());
                }
            } else if Path::new(&name).extension().is_some_and(|it| it == "rs") {
                sources.push(fs::read_to_string(entry.path()).unwrap());
            }
        }
    }
    let known: BTreeSet<_> = sources.iter().flat_map(|source| functions(source)).collect();
    let page = read("docs/guarantees.md") + &read("docs/stability.md") + &read("docs/threats.md");
    let is_test = |name: &&str| {
        name.matches('_').count() > 1
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let named: Vec<_> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .map(|name| name.rsplit("::").next().unwrap())
        .filter(is_test)
        .collect();
    assert!(named.len() > 100, "the page is read: {}", named.len());
    let missing: Vec<_> = named.iter().filter(|name| !known.contains(**name)).collect();
    assert!(missing.is_empty(), "the pages name {missing:?}, which are no functions");
    // On files the others wait for `.ci/full`.
    let name = |rest: &'_ str| rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let after =
        |marker| sources.iter().flat_map(move |source| source.split(marker).skip(1).map(str::trim_start));
    let not_on_files: BTreeSet<_> = after("each_store!(")
        .map(|rest| rest.split_at(name(rest)))
        .filter(|(_, rest)| rest.starts_with([',', ')']) || rest.starts_with(" and mixed"))
        .map(|(test, _)| test)
        .collect();
    let ignored: Vec<_> = named.iter().filter(|name| not_on_files.contains(**name)).collect();
    assert!(ignored.is_empty(), "on files {ignored:?} are ignored: `each_store!(name and files)`");
    let ignored: BTreeSet<_> = after("#[ignore")
        .filter_map(|rest| rest.split_once("fn "))
        .map(|(_, rest)| &rest[..name(rest)])
        .collect();
    let later: BTreeSet<_> = named.iter().copied().filter(|name| ignored.contains(name)).collect();
    assert_eq!(later, BTreeSet::from(LATER), "tests of the pages that only `.ci/full` runs");
}

/// Tests of the pages that take minutes, or a server that is large to install.
const LATER: [&str; 10] = [
    "acknowledged_commits_outlive_gateway_kills",
    "every_interleaving_is_listed_rightly",
    "every_interleaving_keeps_the_invariants",
    "instructions_grow_like_the_input",
    "large_blobs_are_kept_by_azurite",
    "large_blobs_are_kept_by_ceph",
    "two_chats_share_one_conversation_on_ceph",
    "two_failed_calls_in_other_writes_lose_nothing",
    "two_failed_calls_lose_nothing",
    "two_schedulers_on_ceph_do_work_once",
];
