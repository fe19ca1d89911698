//! Samples of each format with random bytes changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_admin::verify::verify;
use agent_core::{ErrorKind, MemoryStore, Result, Storage};
use agent_import::{Format, Import};

use crate::support::{copy_folder, sample};

/// Returns the number of damaged versions of each sample.
fn versions() -> u64 {
    if std::env::var_os("AGENT_TEST_THOROUGH").is_some() { 2_000 } else { 60 }
}

/// Numbers that follow from a seed, by the generator SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).expect("less than a size")
    }
}

/// Copies the sample of a format to a folder, and returns what an import is given: the folder, or the one file in it.
fn copy(format: Format, folder: &Path) -> PathBuf {
    let from = sample(format.name());
    let sql = sample(&format!("{format}.sql"));
    if from.is_dir() {
        copy_folder(&from, folder);
        return folder.to_owned();
    }
    let file = folder.join("sample.db");
    match std::fs::read_to_string(&sql) {
        Ok(sql) => {
            let database = rusqlite::Connection::open(&file).expect("a database");
            database.execute_batch("PRAGMA foreign_keys = OFF").expect("a pragma");
            database.execute_batch(&sql).expect("its tables");
        }
        Err(_) => {
            let copied = std::fs::copy(&from, &file);
            assert!(copied.is_ok(), "no sample of {format}: {copied:?}");
        }
    }
    file
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            if entry.path().is_dir() { folders.push(entry.path()) } else { files.push(entry.path()) }
        }
    }
    files.sort();
    files
}

/// Changes some bytes: to any other, to one that JSON has, or by one bit.
fn damage(bytes: &mut [u8], random: &mut Random) {
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len());
        let Some(byte) = bytes.get_mut(at) else { return };
        *byte = match random.below(3) {
            0 => random.next().to_le_bytes()[0],
            1 => b"{}[]\",:\\0-n\n\0"[random.below(13)],
            _ => *byte ^ (1 << random.below(8)),
        };
    }
}

async fn damaged(format: Format) -> Result<()> {
    let whole = tempfile::tempdir().expect("a folder");
    copy(format, whole.path());
    let originals: Vec<_> =
        files(whole.path()).into_iter().map(|file| (std::fs::read(&file).expect("a file"), file)).collect();
    let (mut imported, mut changed) = (0, 0);
    for seed in 0..versions() {
        let mut random = Random(seed);
        let folder = tempfile::tempdir().expect("a folder");
        copy_folder(whole.path(), folder.path());
        for (bytes, file) in &originals {
            let mut bytes = bytes.clone();
            damage(&mut bytes, &mut random);
            let file = folder.path().join(file.strip_prefix(whole.path()).expect("a file in it"));
            std::fs::write(file, bytes).expect("a copy");
        }
        let path = match whole.path().join("sample.db").exists() {
            true => folder.path().join("sample.db"),
            false => folder.path().to_owned(),
        };
        let storage = Storage::from(MemoryStore::new());
        let name = format!("{format}, version {seed}");
        match Import::new(format, path).with_unknown().run(&storage).await {
            Ok(report) => {
                imported += report.created;
                changed += u64::from(!report.left_out.is_empty());
                // One entry never refuses its session, but a damaged page of a database may.
                let is_unread = |reason: &str| reason.contains("cannot be read");
                assert!(report.refused.iter().all(|it| is_unread(&it.reason)), "{name}: {report:?}");
            }
            // A damaged database, or an array that does not begin like one.
            Err(error) => assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{name}: {error}"),
        }
        let checked = verify(&storage, |_| {}).await?;
        assert!(checked.is_sound(), "{name}: {checked:?}");
    }
    assert!(imported > versions() / 2 && changed > 0, "{format}: {imported} sessions, {changed} reports");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_damaged_sample_panics_or_makes_an_unsound_store() {
    for format in Format::ALL {
        let done = tokio::time::timeout(Duration::from_secs(600), damaged(*format)).await;
        done.expect("an end within ten minutes").unwrap_or_else(|error| panic!("{format}: {error}"));
    }
}
