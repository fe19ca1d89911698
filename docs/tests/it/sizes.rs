//! A file is read in one sitting: none of a crate's sources has more than 500 lines of code.

use std::fs;

use docs::root;

#[test]
fn no_file_has_more_than_500_lines_of_code() {
    let (mut seen, mut found, mut folders) = (0, Vec::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                // Tests are lists, and may be long.
                if !["target", "tests"].contains(&&*name) && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                let text = fs::read_to_string(&path).unwrap();
                let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
                let lines = product.lines().map(str::trim).filter(is_code).count();
                seen += 1;
                if lines > 500 {
                    found.push(format!("{}: {lines}", path.display()));
                }
            }
        }
    }
    assert!(seen > 200, "the sources are read: {seen}");
    assert!(found.is_empty(), "split these: {found:#?}");
}
