//! Writes `docs/schemas`.

use std::fs;

fn main() -> std::io::Result<()> {
    let folder = docs::root().join("docs/schemas");
    fs::create_dir_all(&folder)?;
    for (name, text) in docs::schemas::files() {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}
