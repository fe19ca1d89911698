//! Writes `docs/features.md`; with `--check`, only says whether it is current.

use std::error::Error;
use std::fs;

use docs::features::{page, root, rows, tests};

fn main() -> Result<(), Box<dyn Error>> {
    let page = page(&rows()?, &tests()?);
    let file = root().join("docs/features.md");
    if std::env::args().any(|argument| argument == "--check") {
        if fs::read_to_string(&file)? != page {
            return Err("docs/features.md is out of date; run `cargo run -p docs --bin features`".into());
        }
        return Ok(());
    }
    fs::write(file, page)?;
    Ok(())
}
