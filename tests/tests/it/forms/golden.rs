//! Golden files: the bytes of each stored form, in a folder that is named by its format number.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files by their names, with `/` between folders.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Suffix of a file that describes one with many zeros in front.
const ZEROS: &str = ".zeros";

/// Returns the folder of a form's golden files.
fn folder(form: &str, format: u64) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests = here.ancestors().find(|folder| folder.join("golden").is_dir()).unwrap();
    tests.join("golden").join(form).join(format.to_string())
}

/// Checks that what was written is what stands in the golden files, byte for byte. `WRITE_GOLDEN=1` writes them, for a
/// format that was not released.
#[track_caller]
pub(crate) fn compare(form: &str, format: u64, written: &Files) {
    let folder = folder(form, format);
    if std::env::var_os("WRITE_GOLDEN").is_some() {
        let _ = std::fs::remove_dir_all(&folder);
        for (name, bytes) in written {
            let (name, bytes) = packed(name, bytes);
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
    let expected = files(&folder);
    let written: Files = written.iter().map(|(name, bytes)| packed(name, bytes)).collect();
    let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
    let (is, was) = (names(&written), names(&expected));
    let new: Vec<_> = is.iter().filter(|name| !was.contains(name)).collect();
    let gone: Vec<_> = was.iter().filter(|name| !is.contains(name)).collect();
    assert!(new.is_empty() && gone.is_empty(), "{}: new {new:?}, missing {gone:?}", advice(form, format));
    for (name, bytes) in &written {
        let (is, was) = (String::from_utf8_lossy(bytes), String::from_utf8_lossy(&expected[name]));
        let changed = is.lines().zip(was.lines()).find(|(is, was)| is != was);
        let changed = changed.map_or_else(String::new, |(is, was)| format!("\n  was {was}\n  is  {is}\n"));
        assert!(is == was, "{}: {name}{changed}", advice(form, format));
    }
}

fn advice(form: &str, format: u64) -> String {
    format!(
        "the stored form `{form}` of format {format} has changed. If this is not intended, take the change back. If it is, \
         it needs a new format number and new golden files: docs/stability.md, \"How a form is changed\""
    )
}

/// Returns the golden files of a form, as they were written.
#[track_caller]
pub(crate) fn read(form: &str, format: u64) -> Files {
    let files = files(&folder(form, format));
    assert!(!files.is_empty(), "there are no golden files of {form}, format {format}");
    files.into_iter().map(|(name, bytes)| unpacked(&name, bytes)).collect()
}

/// Returns all files below a folder; none if it does not exist.
pub(crate) fn files(root: &Path) -> Files {
    let (mut found, mut folders) = (Files::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Describes a file that begins with many zeros, so that it takes no space here.
fn packed(name: &str, bytes: &[u8]) -> (String, Vec<u8>) {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    if zeros < 1 << 16 {
        return (name.to_owned(), bytes.to_owned());
    }
    let rest: String = bytes[zeros..].iter().map(|byte| format!("{byte:02x}")).collect();
    (format!("{name}{ZEROS}"), format!("{zeros} {rest}\n").into_bytes())
}

fn unpacked(name: &str, bytes: Vec<u8>) -> (String, Vec<u8>) {
    let Some(name) = name.strip_suffix(ZEROS) else { return (name.to_owned(), bytes) };
    let text = String::from_utf8(bytes).unwrap();
    let (zeros, rest) = text.trim_end_matches('\n').split_once(' ').unwrap();
    let rest = (0..rest.len() / 2).map(|n| u8::from_str_radix(&rest[2 * n..2 * n + 2], 16).unwrap());
    (name.to_owned(), vec![0; zeros.parse().unwrap()].into_iter().chain(rest).collect())
}
