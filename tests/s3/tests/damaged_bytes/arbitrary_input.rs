//! Anything in any file, and anything as an address: it is read or refused, and nothing panics.

use agent_admin::verify::verify;
use std::fs;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::store::Registry;
use agent_storage_fs::FsConfig;
use agent_storage_s3::S3Config;
use agent_storage_sqlite::SqliteConfig;

use crate::fixture::{Fixture, Kind};
use crate::{Ordering, PANICS, answers::Answers, copy, count_panics, files, seeded};

/// How many contents are tried for each file, or a fiftieth of `AGENT_STORAGE_DAMAGES`, at least how many in all, and how
/// many addresses.
const CONTENTS: usize = 4;
const IN_ALL: usize = 60;
const ADDRESSES: usize = 5000;
/// No store looks at a small file for so long.
const LONG: Duration = Duration::from_secs(60);

/// What readers look for, and what they may count with.
const PIECES: [&str; 20] = [
    "{",
    "}",
    "\"",
    ",",
    ":",
    "[",
    "]",
    "=",
    "\n",
    "null",
    "-1",
    "18446744073709551615",
    "1e999",
    "\0",
    "\u{feff}",
    "---\n",
    "## User\n",
    "[bindings]\n",
    "default",
    "\\u0000",
];

/// Bytes that are pieces of these in any order, with any bytes between.
pub(crate) fn made_up(effects: &Effects, from: &[Vec<u8>]) -> Vec<u8> {
    let below = |end: usize| (effects.random_u64() % end.max(1) as u64) as usize;
    let mut bytes = from[below(from.len())].clone();
    for _ in 0..1 + below(5) {
        let at = below(bytes.len() + 1);
        let end = bytes.len().min(at + below(200));
        let other = &from[below(from.len())];
        let start = below(other.len());
        let piece = match below(5) {
            0 => Vec::new(),
            1 => PIECES[below(PIECES.len())].as_bytes().to_vec(),
            2 => (0..below(40)).map(|_| below(256) as u8).collect(),
            3 => bytes[at..end].repeat(2),
            _ => other[start..other.len().min(start + below(400))].to_vec(),
        };
        bytes.splice(at..end, piece);
    }
    bytes
}

/// Whatever stands in any file of a store, also those that people edit and those of locks and leases, all
/// questions are answered, looking through all of it ends, and nothing panics; on files, with transcripts, and in SQLite.
#[tokio::test]
async fn arbitrary_file_contents_never_panic() {
    count_panics();
    let (seed, effects) = seeded();
    let outcome =
        std::env::var("AGENT_STORAGE_DAMAGES").ok().and_then(|outcome| outcome.parse::<usize>().ok());
    // Each is looked at more closely than a damaged byte, in every file.
    let contents = outcome.map_or(CONTENTS, |outcome| CONTENTS.max(outcome / 50));
    for kind in [Kind::Transcripts, Kind::Sqlite] {
        let site = crate::site();
        let fixture = Fixture::make(kind, &site.path().join("sound")).await;
        let (mut refused, mut read) = (0, 0);
        let paths: Vec<_> = files(&fixture.folder).into_iter().filter(|path| path.exists()).collect();
        let sound: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        let contents = contents.max(IN_ALL / paths.len());
        for (path, own) in paths.iter().zip(&sound) {
            let name = path.strip_prefix(&fixture.folder).unwrap();
            for n in 0..contents {
                let bytes = match n % 2 {
                    0 => made_up(&effects, std::slice::from_ref(own)),
                    _ => made_up(&effects, &sound),
                };
                let folder = site.path().join("any");
                copy(&fixture.folder, &folder);
                fs::write(folder.join(name), &bytes).unwrap();
                let inspect = async {
                    let Ok(storage) = kind.open(&folder).await else { return false };
                    drop(Answers::of(&storage, &fixture.names).await);
                    verify(&storage, |_| ()).await.is_ok_and(|seen| seen.is_sound())
                };
                let ended = tokio::time::timeout(LONG, inspect).await;
                let what = format!(
                    "AGENT_STORAGE_SEED={seed}, {}: {:?}",
                    name.display(),
                    String::from_utf8_lossy(&bytes)
                );
                match ended.unwrap_or_else(|_| panic!("it reads on and on: {what}")) {
                    true => read += 1,
                    false => refused += 1,
                }
                assert_eq!(PANICS.load(Ordering::SeqCst), 0, "{what}");
                fs::remove_dir_all(&folder).unwrap();
            }
        }
        eprintln!("{kind:?}: {refused} refused or found, {read} taken for sound");
        assert!(
            refused > 0 && (read > 0 || kind == Kind::Sqlite),
            "nearly any change of a database is found"
        );
    }
}

/// Any text is an address or is refused, in words that hold nothing of what may be a secret.
#[test]
fn any_address_is_read_or_refused() {
    count_panics();
    let (seed, effects) = seeded();
    let mut registry = Registry::new();
    FsConfig::register(&mut registry);
    SqliteConfig::register(&mut registry);
    S3Config::register(&mut registry);
    let good = [
        "files:/srv/notes?sync=off&lock_wait_ms=10&open_sessions=3&transcripts=true&app=notes",
        "sqlite:///srv/a%20b.db?sync=normal&busy_timeout_ms=10&readers=1&cache_kib=64",
        "s3://bucket/some/prefix?region=eu-central-1&endpoint=http://127.0.0.1:9000&allow_http=true",
        "memory:",
    ];
    let good: Vec<_> = good.iter().map(|text| text.as_bytes().to_vec()).collect();
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..ADDRESSES {
        let text = String::from_utf8_lossy(&made_up(&effects, &good)).into_owned();
        match registry.parse(&text) {
            Ok(address) => taken += usize::from(!address.to_string().is_empty()),
            Err(error) => refused += usize::from(!error.to_string().is_empty()),
        }
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "AGENT_STORAGE_SEED={seed}, {text:?}");
    }
    assert!(taken > 0 && refused > 0 && taken + refused == ADDRESSES, "{taken} taken, {refused} refused");
}
