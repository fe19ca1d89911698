//! Files of a source, found without leaving its folder.

use std::path::{Path, PathBuf};

use agent_core::{Error, Result};

use crate::lines::failed;

/// Maximum depth of folders.
const DEPTH_MAX: usize = 12;
/// Maximum number of files of one import.
const FILES_MAX: usize = 1_000_000;

/// Returns the regular files with this extension in a folder and below, by their names, or the file itself. Symbolic links are not
/// followed, but the one that is named itself.
pub(crate) fn find(root: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let shown = root.display().to_string();
    let meta = std::fs::metadata(root).map_err(|source| failed(&shown, source))?;
    if meta.is_file() {
        return Ok(vec![root.to_owned()]);
    }
    if !meta.is_dir() {
        return Err(Error::invalid(format!("{shown} is no file and no folder; name what is to be imported")));
    }
    let mut files = Vec::new();
    let mut folders = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let shown = folder.display().to_string();
        for entry in std::fs::read_dir(&folder).map_err(|source| failed(&shown, source))? {
            let entry = entry.map_err(|source| failed(&shown, source))?;
            let kind = entry.file_type().map_err(|source| failed(&shown, source))?;
            let path = entry.path();
            if kind.is_dir() && depth < DEPTH_MAX {
                folders.push((path, depth + 1));
            } else if kind.is_file() && path.extension().is_some_and(|it| it == extension) {
                files.push(path);
            }
            if files.len() > FILES_MAX {
                return Err(Error::limit(format!(
                    "{} holds more than {FILES_MAX} files; import its folders one by one",
                    root.display()
                )));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a whole regular file of at most this number of bytes; `None` if there is none, or it is larger.
pub(crate) fn read_small(path: &Path, max: u64) -> Option<Vec<u8>> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    if !meta.is_file() || meta.len() > max {
        return None;
    }
    std::fs::read(path).ok()
}
