//! Writes `docs/state-machine.md`.

use std::fs;

fn main() -> std::io::Result<()> {
    fs::write(docs::root().join("docs/state-machine.md"), docs::machine::page())
}
