//! No function of the product has more than 60 lines of code, so that each fits on a screen.

use std::fs;
use std::path::Path;

use docs::root;

const LINES_MAX: usize = 60;

/// Returns the functions of a text that `rustfmt` has formatted, each with its lines of code: neither blank nor a comment.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines: Vec<&str> = product.lines().collect();
    let functions = lines.iter().enumerate().filter_map(|(at, line)| {
        let indent = &line[..line.len() - line.trim_start().len()];
        let name = name(line)?;
        // The body ends with the brace below the first letter, a declaration with a semicolon.
        let ends = |line: &&str| line.strip_prefix(indent).is_some_and(|rest| rest == "}");
        let signature = lines[at..].iter().position(|line| line.ends_with(['{', ';', '}']))?;
        let is_one_line = lines[at + signature].ends_with([';', '}']);
        let length = if is_one_line { signature } else { lines[at..].iter().position(ends)? };
        let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        Some((name, lines[at..=at + length].iter().filter(is_code).count()))
    });
    functions.collect()
}

/// Returns the name of the function that begins on a line.
fn name(line: &str) -> Option<&str> {
    let (before, rest) = line.trim_start().split_once("fn ")?;
    let is_word = |word: &str| ["pub", "async", "const"].contains(&word) || word.starts_with("pub(");
    let end = rest.find(['(', '<'])?;
    before.split_whitespace().all(is_word).then(|| &rest[..end])
}

fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // Clauses of the conformance suite are tests.
            if !path.ends_with("clauses") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|it| it == "rs")
            && !path.to_string_lossy().ends_with("tests.rs")
        {
            found.push(path);
        }
    }
}

#[test]
fn no_function_has_more_than_60_lines_of_code() {
    let root = root().canonicalize().unwrap();
    let mut paths = Vec::new();
    for entry in fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("agent") {
            sources(&path.join("src"), &mut paths);
        }
    }
    let (mut seen, mut found) = (0, Vec::new());
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        for (name, lines) in functions(&text) {
            seen += 1;
            if lines > LINES_MAX {
                let file = path.strip_prefix(&root).unwrap().display();
                found.push((format!("{file}: {name}"), lines));
            }
        }
    }
    assert!(seen > 3000, "the functions are read: {seen}");
    assert!(found.is_empty(), "cut these at a natural place: {found:#?}");
}

#[test]
fn lines_of_functions_are_counted() {
    let text = "impl A {\n    pub async fn one(&self)\n    where\n        T: Copy,\n    {\n        // No code.\n\n        \
                if a {\n        }\n    }\n    fn two() {}\n    fn three(&self);\n}\n";
    assert_eq!(functions(text), [("one", 7), ("two", 1), ("three", 1)]);
}
