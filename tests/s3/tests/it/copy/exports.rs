//! Exports of the former version, as it made them: `tests/golden/exports-beb508f`. Each comes into every kind of store.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use agent_admin::archive::{Archive, is_archive};
use agent_admin::copy::StoreCopy;
use agent_admin::export::SessionExport;
use agent_admin::manifest::{ImportOutcome, Imported, Manifest};
use agent_admin::verify::verify;
use agent_core::commit::Precondition;
use agent_core::event::{Event, EventPayload, Media, Message, NewEvent, Part};
use agent_core::json::RawJson;
use agent_core::model::{Origin, Patch, Workspace};
use agent_core::session::NewSession;
use agent_core::state::SessionState;
use agent_core::store::{PutBlob, ReadBlob, ReadEvents, SessionQuery, WorkspaceArea};
use agent_core::{
    Backend, BlobName, Error, ErrorKind, MemoryStore, OwnerId, Seq, SessionId, SessionStoreExt, Storage,
    TenantId, WorkspaceId,
};
use agent_runtime::documents::Documents;
use agent_runtime::files::WorkspaceFiles;
use agent_runtime::learnings::Learnings;
use agent_storage_fs::FsStore;
use agent_storage_sqlite::SqliteStore;
use futures::{StreamExt, TryStreamExt, stream};
use rusqlite::Connection;

use crate::copy::world::{KINDS, Place, files, read_all};

const MAIN: &str = "01a21895-cc01-770d-b259-e4e1cb631c66";
const FORK: &str = "01a21895-cc15-788a-848c-ca5a9cf8acf8";
const CHILD: &str = "01a21895-cc1f-72d3-a7b9-86f2450af640";
const CLEARED: &str = "01a21895-cc2b-76fd-80c1-918aee5ada36";
const COMPACTED: &str = "01a21895-cc3e-7618-b561-f661b0032f25";
const PICTURE: &str = "01a21895-cc51-705b-b557-a083aefa66fd";
const BY_KEY: &str = "b9ce3eee-5778-89b0-8cf1-5817a17120ca";
const ARCHIVED: &str = "01a21895-cc5f-77ca-95d5-766d1c646730";
const DELETED: &str = "01a21895-cc6b-7704-bb64-b4e047139787";
const PURGED: &str = "01a21895-cc77-7bad-85fd-b9069a4d525c";
const OTHER: &str = "01a21895-cc02-722a-b1ba-804098e6cb29";

/// Exports of sessions, parents first, and the sessions in them.
const SESSIONS: [(&str, &str); 10] = [
    ("main.json", MAIN),
    ("fork.json", FORK),
    ("child.json", CHILD),
    ("cleared.json", CLEARED),
    ("compacted.json", COMPACTED),
    ("picture.tar", PICTURE),
    ("by-key.json", BY_KEY),
    ("archived.json", ARCHIVED),
    ("learnings.json", "07675d0d-5992-8f10-b3a4-7f9bbe3a7951"),
    ("area.tar", "ef2fbd9b-a8d1-8a68-a92a-97b9a8c4c92d"),
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("golden/exports-beb508f").join(name)
}

fn id(text: &str) -> SessionId {
    text.parse().unwrap()
}

/// The events in an export, of the session itself.
fn events_of(export: &[u8]) -> Vec<Event> {
    let document = match is_archive(export) {
        true => {
            let size = std::str::from_utf8(&export[124..135]).unwrap();
            &export[512..512 + usize::from_str_radix(size, 8).unwrap()]
        }
        false => export,
    };
    Manifest::parse(std::str::from_utf8(document).unwrap()).unwrap().events
}

/// Imports an export, a document or an archive, whose author is trusted.
async fn import(storage: &Storage, export: &[u8]) -> agent_core::Result<Imported> {
    if is_archive(export) {
        let archive = Archive::open(stream::iter([Ok(export.to_vec().into())]).boxed()).await?;
        return archive.import_with_ancestors(&*storage.sessions).await;
    }
    let text = std::str::from_utf8(export).unwrap();
    Manifest::parse(text)?.import_with_ancestors(&*storage.sessions).await
}

/// Exports a session as a document, or as an archive if it has blobs.
async fn export(storage: &Storage, id: SessionId) -> Vec<u8> {
    let export = SessionExport::read(&*storage.sessions, id, |_| {}).await.unwrap();
    let pieces = if export.blobs() == 0 { export.to_json() } else { export.to_archive() };
    pieces.unwrap().try_collect::<Vec<_>>().await.unwrap().concat()
}

/// What was said in a session, its history included: the texts of people and of the agent.
async fn said(storage: &Storage, id: SessionId) -> Vec<String> {
    let events = storage.sessions.history(id, ReadEvents::first(1000)).await.unwrap().events;
    let messages = events.iter().filter(|event| event.kind.as_str().ends_with(".message"));
    messages.map(|event| event.text().unwrap().into_owned()).collect()
}

/// Checks that the sessions are what they were, by what was in them when they were exported.
async fn check_sessions(storage: &Storage, kind: &str) {
    let rain = ["Does it rain in Oslo?\n안녕", "It rains in Oslo."];
    assert_eq!(said(storage, id(MAIN)).await, rain, "{kind}");
    assert_eq!(said(storage, id(FORK)).await[..2], rain, "{kind}");
    assert_eq!(said(storage, id(FORK)).await[2..], ["And in Bergen?", "It rains there, too."], "{kind}");
    assert_eq!(said(storage, id(CHILD)).await, ["What to pack?", "A coat."], "{kind}");
    assert_eq!(said(storage, id(BY_KEY)).await, ["My order is late", "I am sorry."], "{kind}");
    assert_eq!(said(storage, id(ARCHIVED)).await, ["Done with this", "Good."], "{kind}");
    assert_eq!(said(storage, id(PICTURE)).await, ["Look"], "{kind}");
    let load = async |text: &str| storage.sessions.load(id(text)).await.unwrap();
    for session in [MAIN, FORK] {
        let session = load(session).await;
        assert_eq!(session.attributes.title.as_ref().unwrap().text, "Trip to Oslo", "{kind}");
        assert_eq!(session.attributes.labels["project"], "apollo", "{kind}");
        assert_eq!(session.owner, None, "{kind}");
    }
    assert_eq!(load(CHILD).await.attributes.labels["role"], "packer", "{kind}");
    let is_fork = matches!(load(FORK).await.origin, Origin::Fork { parent, .. } if parent == id(MAIN));
    assert!(is_fork, "{kind}");
    assert_eq!(load(CHILD).await.origin.parent(), Some(id(MAIN)), "{kind}");
    assert_eq!(load(ARCHIVED).await.status.state, SessionState::Archived, "{kind}");
    // The call with its result, the host's own event, and fields that nobody knows.
    let events = storage.sessions.read(id(MAIN), ReadEvents::first(100)).await.unwrap().events;
    assert_eq!(events[1].extra.get("x").map(RawJson::get), Some("1e400"), "{kind}");
    assert_eq!(events[1].actor.to_string(), "user:alice", "{kind}");
    let EventPayload::AgentToolUse(call) = events[2].decode().unwrap() else { panic!("{kind}") };
    let EventPayload::AgentToolResult(result) = events[3].decode().unwrap() else { panic!("{kind}") };
    assert_eq!((call.name.as_str(), call.input.get()), ("weather", r#"{"city":"Oslo","n":1.10}"#), "{kind}");
    assert_eq!((result.call == call.call, result.output.get()), (true, r#"{"rain":true}"#), "{kind}");
    assert!(events.iter().any(|event| event.payload.get() == "[0.10]"), "{kind}");
    // What a model is given is what it was given.
    assert_eq!(said(storage, id(CLEARED)).await[2..], ["Begin again", "Begun again."], "{kind}");
    assert_eq!(load(CLEARED).await.visible_from, Seq::new(6), "{kind}");
    let summary = load(COMPACTED).await.summary;
    let events = storage.sessions.read(id(COMPACTED), ReadEvents::first(100)).await.unwrap().events;
    let summary = events.iter().find(|event| event.seq == summary).unwrap();
    assert!(summary.payload.get().contains("They told a long story."), "{kind}");
    let documents = Documents::new(storage.sessions.clone(), id(MAIN));
    for (name, text) in [("state", "Begun."), ("persona", "Brief and kind."), ("plan", "Pack an umbrella.")] {
        assert_eq!(documents.get(name).await.unwrap().unwrap().text, text, "{kind}");
    }
    let read = ReadBlob::new(id(PICTURE), BlobName::of(b"small picture"));
    let picture = storage.sessions.blobs().read(read).await.unwrap().into_bytes(100).await.unwrap();
    assert_eq!(picture, "small picture", "{kind}");
    let note = Learnings::new(storage, WorkspaceId::DEFAULT, "support").memory().await.unwrap().unwrap();
    assert!(note.text.contains("Ask for the order number first."), "{kind}: {}", note.text);
    let area = WorkspaceFiles::new(storage, WorkspaceId::DEFAULT, WorkspaceArea::Skills);
    assert_eq!(area.get("review/SKILL.md", 100).await.unwrap().unwrap(), "# How to review", "{kind}");
    assert_eq!(area.get("large", 9999).await.unwrap().unwrap(), vec![b'x'; 1500], "{kind}");
    assert_eq!(area.list().await.unwrap().len(), 2, "{kind}");
    let found = verify(storage, |_| {}).await.unwrap();
    assert!(found.is_sound(), "{kind}: {:?}", found.findings);
}

/// Each document and archive of the former version comes into every kind of store, with its events as they were; sessions
/// go on, and an export that is made of it now comes in, too.
#[tokio::test]
async fn former_documents_and_archives_are_imported() {
    for kind in KINDS {
        let (place, there) = (Place::new(kind), Place::new("memory"));
        let (storage, again) = (place.open().await, there.open().await);
        // An import makes no workspaces.
        for workspace in [WorkspaceId::DEFAULT, OTHER.parse().unwrap()] {
            let record = Workspace::new(workspace, "home", id(MAIN), storage.effects().now());
            for to in [&storage, &again] {
                to.workspaces.put(record.clone(), Precondition::MustNotExist).await.unwrap();
            }
        }
        for (name, session) in SESSIONS {
            let former = fs::read(golden("sessions").join(name)).unwrap();
            let imported = import(&storage, &former).await.unwrap();
            assert_eq!((imported.session.id, imported.outcome), (id(session), ImportOutcome::New), "{name}");
            let repeated = import(&storage, &former).await.unwrap();
            assert_eq!((repeated.outcome, repeated.events), (ImportOutcome::Present, 0), "{kind}: {name}");
            let new = export(&storage, id(session)).await;
            assert_eq!(events_of(&new), events_of(&former), "{kind}: {name}");
            assert!(String::from_utf8_lossy(&new).contains("{\"format\":5,"), "{kind}: {name}");
            assert_eq!(import(&again, &new).await.unwrap().outcome, ImportOutcome::New, "{kind}: {name}");
        }
        let storage = place.open().await;
        check_sessions(&storage, kind).await;
        check_sessions(&again, kind).await;
        for session in [MAIN, FORK, COMPACTED] {
            let session = storage.sessions.load(id(session)).await.unwrap();
            let next = vec![NewEvent::user_message("And tomorrow?")];
            let after = storage.sessions.append(session.id, session.head, next).await.unwrap().session;
            assert_eq!(*storage.sessions.load(session.id).await.unwrap(), *after, "{kind}");
        }
    }
}

/// Checks a tenant that was copied: workspaces with their settings, devices, sessions, deleted ones too.
async fn check_tenant(storage: &Storage, kind: &str) {
    check_sessions(storage, kind).await;
    let home = storage.workspaces.load(WorkspaceId::DEFAULT).await.unwrap();
    assert_eq!((home.name.as_str(), home.description.as_deref()), ("Küche", Some("two\nlines")), "{kind}");
    assert_eq!((home.main_session, home.owner.as_ref()), (id(MAIN), None), "{kind}");
    assert_eq!(home.settings.get("number").map(RawJson::get), Some("12345678901234567890.10"), "{kind}");
    let config = storage.workspaces.load_config(WorkspaceId::DEFAULT).await.unwrap();
    assert_eq!(config.as_deref(), Some("provider = \"offline\"\n"), "{kind}");
    let other: WorkspaceId = OTHER.parse().unwrap();
    assert_eq!(storage.workspaces.load(other).await.unwrap().name, "other", "{kind}");
    for (device, workspace) in [("laptop \"2\"", WorkspaceId::DEFAULT), ("전화", other)] {
        let bound = storage.bindings.resolve(&device.parse().unwrap()).await.unwrap();
        assert_eq!(bound, Some(workspace), "{kind}");
    }
    let all = storage.sessions.list(SessionQuery::new().with_hidden()).await.unwrap();
    assert_eq!((all.items.len(), all.damaged.len()), (12, 0), "{kind}");
    for deleted in [DELETED, PURGED] {
        let session = storage.sessions.load(id(deleted)).await.unwrap();
        assert_eq!(session.status.state, SessionState::Deleted, "{kind}");
    }
    for (name, session) in SESSIONS {
        let former = events_of(&fs::read(golden("sessions").join(name)).unwrap());
        assert_eq!(events_of(&export(storage, id(session)).await), former, "{kind}: {name}");
    }
}

/// An archive of all tenants, a SQLite file of the former schema, is converted without a change of it, and copied from there
/// to every kind of store.
#[tokio::test]
async fn former_sqlite_archives_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let (former, new) = (folder.path().join("former.db"), folder.path().join("new.db"));
    let dump = fs::read_to_string(golden("archive.sql")).unwrap();
    Connection::open(&former).unwrap().execute_batch(&dump).unwrap();
    let bytes = fs::read(&former).unwrap();
    SqliteStore::convert_export(&former, &new).await.unwrap();
    assert_eq!(fs::read(&former).unwrap(), bytes, "the export is as it was");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing lies beside it");
    let converted = SqliteStore::open(&new).await.unwrap();
    let acme = converted.tenant(&"acme".parse().unwrap());
    let hello = acme.sessions.list(SessionQuery::new()).await.unwrap().items.remove(0);
    assert_eq!(said(&acme, hello.id).await, ["Hello from acme", "Hello."]);
    assert_eq!(acme.bindings.resolve(&"laptop".parse().unwrap()).await.unwrap(), Some(hello.workspace));
    let source = converted.tenant(&TenantId::default());
    for kind in KINDS {
        let place = Place::new(kind);
        let target = place.open().await;
        let report = StoreCopy::new(source.clone(), target.clone()).run().await.unwrap();
        assert!(report.is_whole(), "{kind}: {report:?}");
        assert_eq!((report.copied.sessions, report.copied.workspaces, report.copied.bindings), (12, 2, 2));
        assert_eq!(read_all(&target).await, read_all(&source).await, "{kind}");
        check_tenant(&place.open().await, kind).await;
    }
}

/// A tenant that was exported to a folder is copied to every kind of store.
#[tokio::test]
async fn former_folders_of_tenants_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let (former, new) = (folder.path().join("former"), folder.path().join("new"));
    copy_folder(&golden("tenant"), &former);
    FsStore::convert_export(&former, &new).await.unwrap();
    let source = files(&new).await;
    let again = FsStore::convert_export(&new, folder.path().join("again")).await.unwrap_err();
    assert_eq!(*again.kind(), ErrorKind::Unsupported, "{again}");
    for kind in KINDS {
        let place = Place::new(kind);
        let report = StoreCopy::new(source.clone(), place.open().await).run().await.unwrap();
        assert!(report.is_whole(), "{kind}: {report:?}");
        check_tenant(&place.open().await, kind).await;
    }
}

/// All that is in a folder, by its path.
fn all_files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(all_files(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    found
}

#[cfg(unix)]
fn check_private(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder), 0o700, "{}", folder.display());
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => check_private(&path),
            false => assert_eq!(mode(&path), 0o600, "{}", path.display()),
        }
    }
}

/// Every tenant of a former folder is converted, one with workspaces alone, too; the folder is as it was, and the new one
/// private.
#[tokio::test]
async fn former_folders_are_converted_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (former, new) = (folder.path().join("former"), folder.path().join("new"));
    for with_sessions in [false, true] {
        let _ = (fs::remove_dir_all(&former), fs::remove_dir_all(&new));
        fs::create_dir(&former).unwrap();
        if with_sessions {
            copy_folder(&golden("tenant"), &former);
        }
        let place = Path::new("workspaces").join(OTHER);
        let record = fs::read_to_string(golden("tenant").join(&place).join("workspace.toml")).unwrap();
        let record = record.replace("\"default/", "\"acme/");
        let of_acme = former.join("tenants/acme").join(&place);
        fs::create_dir_all(&of_acme).unwrap();
        fs::write(of_acme.join("workspace.toml"), record).unwrap();
        let before = all_files(&former);
        FsStore::convert_export(&former, &new).await.unwrap();
        assert!(all_files(&former) == before, "the export is as it was");
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        #[cfg(unix)]
        check_private(&new);
        let store = FsStore::open(&new).await.unwrap();
        let acme = store.tenant(&"acme".parse().unwrap());
        assert_eq!(acme.workspaces.load(OTHER.parse().unwrap()).await.unwrap().name, "other");
        let sessions =
            store.tenant(&TenantId::default()).sessions.list(SessionQuery::new().with_hidden()).await;
        assert_eq!(sessions.unwrap().items.len(), if with_sessions { 12 } else { 0 });
        store.close().await.unwrap();

        let taken = FsStore::convert_export(&former, &new).await.unwrap_err();
        assert!(
            *taken.kind() == ErrorKind::InvalidInput && taken.to_string().contains("exists already"),
            "{taken}"
        );
    }
}

/// A folder with a line that is not of its format is refused by the line's file, and nothing of it is left.
#[tokio::test]
async fn damaged_former_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (former, new) = (folder.path().join("former"), folder.path().join("new"));
    copy_folder(&golden("tenant"), &former);
    let log = all_files(&former).into_keys().rfind(|path| path.ends_with("events.jsonl")).unwrap();
    let whole = fs::read_to_string(&log).unwrap();
    for damaged in [whole.replacen("\"seq\":2", "\"seq\":3", 1), format!("{whole}no line\n")] {
        fs::write(&log, damaged).unwrap();
        let error = FsStore::convert_export(&former, &new).await.unwrap_err();
        assert!(*error.kind() == ErrorKind::Corrupt && error.to_string().contains("events.jsonl"), "{error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left");
    }
    // What was never acknowledged has no end of a line.
    fs::write(&log, format!("{whole}no line")).unwrap();
    FsStore::convert_export(&former, &new).await.unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        match path.is_dir() {
            true => copy_folder(&path, &to),
            false => drop(fs::copy(&path, &to).unwrap()),
        }
    }
}

/// What is no export of the former version is not converted, and named; nothing is made.
#[tokio::test]
async fn only_former_sqlite_archives_are_converted() {
    let folder = tempfile::tempdir().unwrap();
    let (file, new) = (folder.path().join("file.db"), folder.path().join("new.db"));
    let convert = async || SqliteStore::convert_export(&file, &new).await.unwrap_err();
    let is = |error: &Error, kind: &ErrorKind, text: &str| {
        assert!(error.kind() == kind && error.to_string().contains(text), "{error}");
        assert!(!new.exists());
    };
    is(&convert().await, &ErrorKind::NotFound, "file.db is not there");
    SqliteStore::open(&file).await.unwrap().close().await.unwrap();
    is(&convert().await, &ErrorKind::Unsupported, "open it as it is");
    for (version, remedy) in [(4, "use the version that wrote it"), (99, "update the library")] {
        Connection::open(&file).unwrap().pragma_update(None, "user_version", version).unwrap();
        let text = format!("has schema {version}, and an export of schema 5 is converted here; {remedy}");
        is(&convert().await, &ErrorKind::Unsupported, &text);
    }
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 5).unwrap();
    fs::write(folder.path().join("file.db-wal"), "not empty").unwrap();
    is(&convert().await, &ErrorKind::InvalidInput, "is not the whole export");
    fs::remove_file(folder.path().join("file.db-wal")).unwrap();
    Connection::open(&file).unwrap().pragma_update(None, "application_id", 1).unwrap();
    is(&convert().await, &ErrorKind::InvalidInput, "is no database of this library");
    fs::write(&new, "taken").unwrap();
    let error = convert().await;
    assert!(error.to_string().contains("exists already"), "{error}");
    assert_eq!(fs::read_to_string(&new).unwrap(), "taken");
}

/// Owners stay with their sessions through an export and an import by the tenant. An owner imports own sessions, and neither
/// those of others nor those of nobody.
#[tokio::test]
async fn owners_are_exported_and_imported() {
    let (alice, bob): (OwnerId, OwnerId) = ("alice".parse().unwrap(), "bob".parse().unwrap());
    let here = Storage::from(MemoryStore::new());
    let own = here.for_owner(&alice);
    let new = NewSession::new(here.effects().new_session_id(), WorkspaceId::DEFAULT);
    let session = own.sessions.create(new).await.unwrap();
    let put = PutBlob::of_bytes(session.id, "of Alice");
    let media = Media::blob("image/png", put.blob.name, put.blob.bytes);
    own.sessions.blobs().put(put).await.unwrap();
    let message = NewEvent::from(Message::new("Look").with_part(Part::Image(media)));
    let session = own.sessions.append(session.id, session.head, vec![message]).await.unwrap().session;
    let child = own.sessions.create_child(session.id, Patch::new()).await.unwrap();
    let exports = [export(&own, session.id).await, export(&here, child.id).await];
    for kind in KINDS {
        let place = Place::new(kind);
        let tenant = place.open().await;
        for export in &exports {
            let denied = import(&tenant.for_owner(&bob), export).await.unwrap_err();
            assert_eq!(*denied.kind(), ErrorKind::Denied, "{kind}: {denied}");
        }
        assert_eq!(tenant.sessions.list(SessionQuery::new()).await.unwrap().items, [], "{kind}");
        let former = fs::read(golden("sessions/archived.json")).unwrap();
        let denied = import(&tenant.for_owner(&alice), &former).await.unwrap_err();
        assert_eq!(*denied.kind(), ErrorKind::Denied, "{kind}: {denied}");
        for (export, id) in exports.iter().zip([session.id, child.id]) {
            let imported = import(&tenant.for_owner(&alice), export).await.unwrap();
            assert_eq!((imported.session.id, imported.outcome), (id, ImportOutcome::New), "{kind}");
        }
        for imported in [&session, &child] {
            assert_eq!(tenant.sessions.load(imported.id).await.unwrap().owner, Some(alice.clone()), "{kind}");
        }
        let other = Place::new(kind);
        let tenant = other.open().await;
        for export in &exports {
            let imported = import(&tenant, export).await.unwrap();
            assert_eq!(imported.session.owner.as_ref(), Some(&alice), "{kind}");
            let hidden = tenant.for_owner(&bob).sessions.load(imported.session.id).await.unwrap_err();
            assert!(matches!(hidden.kind(), ErrorKind::Denied | ErrorKind::NotFound), "{kind}: {hidden}");
        }
        assert!(verify(&tenant, |_| {}).await.unwrap().is_sound(), "{kind}");
    }
}
