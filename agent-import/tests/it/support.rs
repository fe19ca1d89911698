//! Properties that hold for each format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use agent_admin::verify::verify;
use agent_core::store::{SessionQuery, own_events, pages};
use agent_core::{MemoryStore, Result, SessionStoreExt, Storage};
use agent_import::{Format, Import, ImportReport};
use futures::TryStreamExt;

/// Returns the folder of a sample.
pub(crate) fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name)
}

/// Imports to a store.
pub(crate) async fn import(storage: &Storage, format: Format, path: &Path) -> Result<ImportReport> {
    Import::new(format, path).run(storage).await
}

/// Imports a file of this name and content, also what is unknown, and checks the store. Returns the report and all sessions.
pub(crate) async fn import_text(format: Format, name: &str, bytes: &[u8]) -> Result<(ImportReport, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("a file");
    let storage = Storage::from(MemoryStore::new());
    let report = Import::new(format, &path).with_unknown().run(&storage).await?;
    let checked = verify(&storage, |_| {}).await?;
    assert!(checked.is_sound(), "{checked:?}");
    let again = Import::new(format, &path).with_unknown().run(&storage).await?;
    assert_eq!((again.created, again.grown, again.events), (0, 0, 0), "{again:?}");
    Ok((report, dump(&storage).await?))
}

/// Returns all sessions of a store with their own events, each on a line.
pub(crate) async fn dump(storage: &Storage) -> Result<String> {
    let mut sessions = Vec::new();
    let mut listed = pages(SessionQuery::new().with_hidden(), |query| storage.sessions.list(query));
    while let Some(page) = listed.try_next().await? {
        for summary in page.items {
            let mut log = String::new();
            let mut events = own_events(&*storage.sessions, summary.id, agent_core::Seq::ZERO, None);
            while let Some(event) = events.try_next().await? {
                let _ = writeln!(log, "{}", event.to_json());
            }
            sessions.push((summary.created_at, summary.id, log));
        }
    }
    sessions.sort_by_key(|(at, id, _)| (*at, *id));
    let mut all = String::new();
    for (_, id, log) in sessions {
        let _ = write!(all, "# session {id}\n{log}");
    }
    Ok(all)
}

/// Checks what an import of a sample stores and reports against the files `NAME.log` and `NAME.json` beside the samples. Set
/// `UPDATE_GOLDEN` to write them anew.
pub(crate) async fn golden(format: Format, path: &Path) -> Result<()> {
    let storage = Storage::from(MemoryStore::new());
    let report = Import::new(format, path).with_unknown().run(&storage).await?;
    let report = serde_json::to_string_pretty(&report).unwrap_or_default() + "\n";
    let checked = verify(&storage, |_| {}).await?;
    assert!(checked.is_sound(), "{checked:?}");
    for (extension, text) in [("log", dump(&storage).await?), ("json", report)] {
        let text = text.replace(&*sample("").to_string_lossy(), "");
        let file = sample(&format!("{format}.{extension}"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, &text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
        let golden = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(golden == text, "{} differs:\n{text}", file.display());
    }
    Ok(())
}

/// Checks that a second import adds nothing.
pub(crate) async fn twice(format: Format, path: &Path) -> Result<()> {
    let storage = Storage::from(MemoryStore::new());
    let first = import(&storage, format, path).await?;
    let before = dump(&storage).await?;
    let again = import(&storage, format, path).await?;
    assert_eq!((again.created, again.grown, again.events), (0, 0, 0), "{again:?}");
    assert_eq!(again.unchanged, first.created, "{again:?}");
    assert_eq!(dump(&storage).await?, before);
    let dry = Import::new(format, path).with_dry_run().run(&Storage::from(MemoryStore::new())).await?;
    assert_eq!((dry.created, dry.events), (first.created, first.events));
    Ok(())
}

/// Checks that a file that is cut at a byte is imported as a prefix, and that the whole file then adds the rest. Only bytes of this
/// stride are tried.
pub(crate) async fn cut_anywhere(format: Format, folder: &Path, file: &Path, stride: usize) -> Result<()> {
    let whole_store = Storage::from(MemoryStore::new());
    import(&whole_store, format, folder).await?;
    let expected = texts(&whole_store).await?;
    let bytes = std::fs::read(folder.join(file)).expect("the sample");
    let copy = tempfile::tempdir().expect("a folder");
    copy_folder(folder, copy.path());
    let mut cut_off = 0;
    for end in (0..bytes.len()).step_by(stride) {
        std::fs::write(copy.path().join(file), &bytes[..end]).expect("a copy");
        let storage = Storage::from(MemoryStore::new());
        let report = import(&storage, format, copy.path()).await?;
        let is_whole_line = end == 0 || bytes[end - 1] == b'\n' || bytes[end] == b'\n';
        assert_eq!(report.cut_off == 0, is_whole_line, "cut at {end}: {report:?}");
        cut_off += report.cut_off;
        for (session, events) in texts(&storage).await? {
            let all = &expected[&session];
            assert!(all.starts_with(&events), "cut at {end}: {session}: {events:?} is no prefix of {all:?}");
        }
        std::fs::write(copy.path().join(file), &bytes).expect("a copy");
        let grown = import(&storage, format, copy.path()).await?;
        assert!(grown.refused.is_empty(), "cut at {end}: {grown:?}");
        assert_eq!(texts(&storage).await?, expected, "cut at {end}");
    }
    assert!(cut_off > 0);
    Ok(())
}

/// Checks that an array that is cut at a byte is imported up to the last whole conversation, and that the whole file then adds the rest.
/// Only bytes of this stride are tried.
pub(crate) async fn cut_array(format: Format, file: &Path, stride: usize) -> Result<()> {
    let whole_store = Storage::from(MemoryStore::new());
    import(&whole_store, format, file).await?;
    let expected = texts(&whole_store).await?;
    let bytes = std::fs::read(file).expect("the sample");
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("conversations.json");
    let mut most = 0;
    for end in (0..bytes.len()).step_by(stride) {
        std::fs::write(&copy, &bytes[..end]).expect("a copy");
        let storage = Storage::from(MemoryStore::new());
        let report = import(&storage, format, &copy).await?;
        assert_eq!(report.cut_off, 1, "cut at {end}: {report:?}");
        let found = texts(&storage).await?;
        assert!(found.iter().all(|(session, events)| expected[session] == *events), "cut at {end}");
        most = most.max(found.len());
        std::fs::write(&copy, &bytes).expect("a copy");
        let grown = import(&storage, format, &copy).await?;
        assert!(grown.refused.is_empty() && grown.cut_off == 0, "cut at {end}: {grown:?}");
        assert_eq!(texts(&storage).await?, expected, "cut at {end}");
    }
    assert!(most > 0 && most < expected.len());
    Ok(())
}

/// Returns the payloads of each session's whole history. Commits may be cut in other places by an import in parts.
pub(crate) async fn texts(storage: &Storage) -> Result<BTreeMap<String, Vec<String>>> {
    let mut all = BTreeMap::new();
    let mut listed = pages(SessionQuery::new().with_hidden(), |query| storage.sessions.list(query));
    while let Some(page) = listed.try_next().await? {
        for summary in page.items {
            let mut history = storage.sessions.events(summary.id, agent_core::Seq::ZERO);
            let mut payloads = Vec::new();
            while let Some(event) = history.try_next().await? {
                if event.kind != agent_core::event::EventType::SESSION_CREATED {
                    payloads.push(format!("{} {} {}", event.at, event.kind, event.payload.get()));
                }
            }
            all.insert(summary.id.to_string(), payloads);
        }
    }
    Ok(all)
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).expect("a copy")),
        }
    }
}
