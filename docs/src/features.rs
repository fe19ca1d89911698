//! Makes `docs/features.md` from `docs/features.toml` (kept by hand) and from the tests that name rows.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// How many tests the page names for a row; the rest is counted.
const SHOWN: usize = 3;

/// The hand-kept list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// Rows that belong together.
    pub group: Vec<Group>,
}

/// Rows that belong together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// What the ids of its rows begin with.
    pub letter: char,
    /// What they are about.
    pub title: String,
    /// The system in which they were found, if they come from one.
    pub from: String,
    /// The rows.
    pub row: Vec<Row>,
}

/// One feature.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// A letter and two digits.
    pub id: String,
    /// Its name.
    pub title: String,
    /// What "it works" means to a user.
    pub works: String,
    /// What is missing, in words; empty where nothing is.
    #[serde(default)]
    pub gap: String,
}

/// A test that names a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    /// The file, from the root of the project.
    pub file: PathBuf,
    /// The function or clause.
    pub name: String,
}

/// The tests of each row.
pub type Tests = BTreeMap<String, BTreeSet<Test>>;

/// The root of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Reads the hand-kept list.
///
/// # Errors
///
/// Where the file cannot be read or is not of its shape.
pub fn rows() -> Result<Features, Box<dyn Error>> {
    Ok(toml::from_str(&fs::read_to_string(root().join("docs/features.toml"))?)?)
}

/// Finds the tests that name rows, in every Rust file of the project.
///
/// # Errors
///
/// Where a file cannot be read.
pub fn tests() -> Result<Tests, Box<dyn Error>> {
    let root = root();
    let (mut found, mut folders) = (Tests::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            if entry.file_type()?.is_dir() {
                // This crate's own sources are about rows, and hold none.
                let own = [root.join("docs/src"), root.join("docs/tests")].contains(&path);
                if name != "target" && !own && !name.to_string_lossy().starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = path.strip_prefix(&root)?.to_owned();
                for (row, name) in named(&fs::read_to_string(&path)?) {
                    found.entry(row).or_default().insert(Test { file: file.clone(), name });
                }
            }
        }
    }
    Ok(found)
}

/// The rows that a file's tests and clauses name, each with the test.
///
/// A test names its rows in its name (`fn a18_r06_...`) or in its doc comment; a clause of the conformance suite in
/// its name.
pub fn named(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let (mut documented, mut is_test) = (BTreeSet::new(), false);
    for line in source.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            documented.extend(ids(doc));
        } else if line.starts_with("#[") {
            is_test |= line.contains("test]") || line.contains("test(");
        } else if let Some(name) = function(line) {
            documented.extend(ids_of_name(name));
            let is_clause = line.contains("stage: &Stage") && ids_of_name(name).next().is_some();
            if is_test || is_clause {
                found.extend(documented.iter().map(|row| (row.clone(), name.to_owned())));
            }
            (documented, is_test) = (BTreeSet::new(), false);
        } else {
            (documented, is_test) = (BTreeSet::new(), false);
        }
    }
    found
}

fn function(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ").unwrap_or(line);
    let rest = rest.strip_prefix("async ").unwrap_or(rest).strip_prefix("fn ")?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// The row ids in prose.
fn ids(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| is_id(word)).map(str::to_owned)
}

/// The row ids that a function's name begins with.
fn ids_of_name(name: &str) -> impl Iterator<Item = String> + '_ {
    name.split('_').map(str::to_ascii_uppercase).take_while(|word| is_id(word))
}

fn is_id(word: &str) -> bool {
    let [letter, digits @ ..] = word.as_bytes() else { return false };
    b"ARFONX".contains(letter) && digits.len() == 2 && digits.iter().all(u8::is_ascii_digit)
}

/// The page.
pub fn page(features: &Features, tests: &Tests) -> String {
    let rows: Vec<_> = features.group.iter().flat_map(|group| &group.row).collect();
    let tested = rows.iter().filter(|row| tests.contains_key(&row.id)).count();
    let open = rows.iter().filter(|row| !row.gap.is_empty()).count();
    let mut out = format!(
        "# Features\n\n\
         <!-- Made by `cargo run -p docs --bin features` from features.toml and the tests; not edited by hand. -->\n\n\
         What the library is to do, row by row, and the tests that show it. {} rows: {tested} are named by a test, \
         {open} have a gap.\n\
         A row is done when a test with its id shows what its second column says, on every backend that it \
         concerns, and its gap is empty.\n",
        rows.len(),
    );
    for group in &features.group {
        let from = match group.from.as_str() {
            "" => String::new(),
            system => format!(" (found in {system})"),
        };
        let _ = write!(
            out,
            "\n## {}: {}{from}\n\n| Row | It works when | Tests | Gap |\n|---|---|---|---|\n",
            group.letter, group.title
        );
        for row in &group.row {
            let shown = tests.get(&row.id).map_or_else(String::new, cell);
            let _ = writeln!(out, "| **{}** {} | {} | {shown} | {} |", row.id, row.title, row.works, row.gap);
        }
    }
    out
}

fn cell(tests: &BTreeSet<Test>) -> String {
    let mut names: Vec<_> = tests
        .iter()
        .take(SHOWN)
        .map(|test| {
            let file = test.file.to_string_lossy().replace('\\', "/");
            format!("[`{}`](../{file})", test.name)
        })
        .collect();
    if tests.len() > SHOWN {
        names.push(format!("+{}", tests.len() - SHOWN));
    }
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_names_rows_in_its_name_and_its_doc_comment() {
        let source = "
            /// R16, R17: names its ancestors.
            #[test]
            fn x01_a18_forked_names_r05_in_the_middle() {}

            /// A02 is no test.
            fn helper() {}

            #[tokio::test(flavor = \"multi_thread\")]
            async fn o02_is_async() {}

            /// A15: a clause.
            async fn a16_is_a_clause(stage: &Stage) -> Checked {}
        ";
        let found: Vec<_> = named(source).into_iter().map(|(row, _)| row).collect();
        assert_eq!(found, ["A18", "R16", "R17", "X01", "O02", "A15", "A16"]);
    }

    #[test]
    fn every_row_has_a_test_or_says_what_is_missing() {
        let (features, tests) = (rows().unwrap(), tests().unwrap());
        for row in features.group.iter().flat_map(|group| &group.row) {
            assert!(
                tests.contains_key(&row.id) || !row.gap.is_empty(),
                "row {} has no test; add one, or a gap to docs/features.toml",
                row.id
            );
        }
    }

    #[test]
    fn rows_are_unique_and_known() {
        let (features, tests) = (rows().unwrap(), tests().unwrap());
        let mut ids = BTreeSet::new();
        for group in &features.group {
            for row in &group.row {
                assert!(is_id(&row.id) && row.id.starts_with(group.letter), "{}", row.id);
                assert!(ids.insert(row.id.clone()), "{} is there twice", row.id);
            }
        }
        for (id, tests) in &tests {
            assert!(ids.contains(id), "{id} is no row, but {tests:?} name it");
        }
    }

    #[test]
    fn features_page_is_current() {
        let page = page(&rows().unwrap(), &tests().unwrap());
        let file = fs::read_to_string(root().join("docs/features.md")).unwrap();
        assert!(page == file, "docs/features.md is out of date; run `cargo run -p docs --bin features`");
    }
}
