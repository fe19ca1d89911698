//! Sessions with blobs as archives: what comes back, and what is refused whole; what a verification, a salvage and a
//! garbage collection make of blobs.

use agent_admin::archive::{Archive, is_archive};
use agent_admin::export::SessionExport;
use agent_admin::manifest::Manifest;
use agent_admin::salvage::salvage;
use agent_admin::verify::{FindingKind, verify};
use agent_core::clock::Effects;
use agent_core::session::SessionRecord;
use agent_core::store::{BLOB_CHUNK_BYTES, BlobStream, PutBlob, ReadEvents, SweepBlobs};
use agent_core::{BlobName, ErrorKind, MemoryStore, SessionStore, SessionStoreExt, Storage};
use agent_runtime::WorkspaceManager;
use agent_runtime::retention::GcPolicy;
use agent_tests::{Site, each_store};
use futures::{StreamExt, TryStreamExt, stream};

use super::blobs::{Fault, Faulty, blobs, bytes_of, content, message_with, picture, showing, two};

/// The archive of a session, in the pieces in which it is written.
async fn archive(store: &dyn SessionStore, session: &SessionRecord) -> Vec<u8> {
    let manifest = Manifest::export(store, session.id).await.unwrap();
    let export = SessionExport::read(store, session.id, |_| {}).await.unwrap();
    assert_eq!(export.blobs(), manifest.blobs().len());
    let pieces: Vec<_> = export.to_archive().unwrap().try_collect().await.unwrap();
    pieces.concat()
}

/// Bytes in pieces of a size that fits no block.
fn pieces(bytes: &[u8]) -> BlobStream {
    let pieces: Vec<_> = bytes.chunks(777).map(|piece| Ok(piece.to_vec().into())).collect();
    stream::iter(pieces).boxed()
}

/// A session, and a fork of it with an own blob, come back from an archive byte for byte; from each store the archive is
/// the same. A document cannot hold them, and says so.
async fn archives_bring_sessions_with_blobs(site: Site) {
    let Some((here, there)) = two(&site).await else { return };
    let effects = Effects::default();
    let contents = [content(1, 10), content(2, 2 * BLOB_CHUNK_BYTES + 1), content(3, 512)];
    let session = showing(&here.sessions, &effects, &contents).await;
    let fork = here.sessions.fork(session.id, None).await.unwrap();
    let put = PutBlob::of_bytes(fork.id, contents[0].clone());
    let again = message_with("And this?", picture("same.png", put.blob));
    here.sessions.blobs().put(put).await.unwrap();
    let fork = here.sessions.append(fork.id, fork.head, vec![again]).await.unwrap().session;

    let error = Manifest::export(&*here.sessions, fork.id).await.unwrap().to_json().unwrap_err();
    assert!(error.to_string().contains("3 blobs") && error.to_string().contains("archive"), "{error}");
    let bytes = archive(&*here.sessions, &fork).await;
    assert!(is_archive(&bytes));
    // Its input waits for an answer, so that the fork is not imported without it.
    let parent = archive(&*here.sessions, &session).await;
    Archive::open(pieces(&parent)).await.unwrap().import(&*there.sessions).await.unwrap();
    for outcome in ["new", "present"] {
        let imported = Archive::open(pieces(&bytes)).await.unwrap().import(&*there.sessions).await.unwrap();
        assert_eq!((imported.session.id, imported.outcome.name()), (fork.id, outcome));
    }
    for loaded in [&session, &fork] {
        assert_eq!(there.sessions.load(loaded.id).await.unwrap(), *loaded);
    }
    assert_eq!(archive(&*there.sessions, &fork).await, bytes);
    for (owner, content) in [(session.id, &contents[1]), (session.id, &contents[2]), (fork.id, &contents[0])]
    {
        assert_eq!(bytes_of(&*there.sessions, owner, BlobName::of(content)).await.unwrap(), *content);
    }
    assert_eq!(verify(&there, |_| {}).await.unwrap().blobs, 4);
}
each_store!(archives_bring_sessions_with_blobs and files);

/// One entry of a tar file.
fn entry(path: &str, kind: u8, size: u64, bytes: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..path.len()].copy_from_slice(path.as_bytes());
    block[100..108].copy_from_slice(b"0000600\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000000\0");
    block[148..156].copy_from_slice(b"        ");
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend_from_slice(bytes);
    block.resize(block.len().div_ceil(512) * 512, 0);
    block
}

/// An archive from a stranger is imported whole or not at all, and what is refused leaves nothing behind.
async fn hostile_archives_are_refused_whole(site: Site) {
    let Some((here, there)) = two(&site).await else { return };
    let effects = Effects::default();
    let contents = [content(1, 10), content(2, BLOB_CHUNK_BYTES + 1)];
    let session = showing(&here.sessions, &effects, &contents).await;
    let whole = archive(&*here.sessions, &session).await;
    let size = usize::from_str_radix(std::str::from_utf8(&whole[124..135]).unwrap(), 8).unwrap();
    let document = &whole[512..512 + size];
    let first = || entry("session.json", b'0', document.len() as u64, document);
    let name = |content: &[u8]| format!("blobs/{}", BlobName::of(content));
    let blob = |content: &[u8]| entry(&name(content), b'0', content.len() as u64, content);
    let [one, two] = [blob(&contents[0]), blob(&contents[1])];
    let end = vec![0; 1024];
    let build = |entries: &[Vec<u8>]| entries.concat();
    let flipped = |content: &[u8]| {
        let mut bytes = content.to_vec();
        bytes[5] ^= 1;
        entry(&name(content), b'0', content.len() as u64, &bytes)
    };
    let mut damaged_header = one.clone();
    damaged_header[130] ^= 1;
    let good = [first(), two.clone(), one.clone(), end.clone()];
    let link = |kind: u8| entry(&name(&contents[0]), kind, 0, b"");
    let hostile: Vec<(&str, Vec<u8>)> = vec![
        (
            "a name with ..",
            build(&[first(), entry("../evil", b'0', 1, b"x"), one.clone(), two.clone(), end.clone()]),
        ),
        ("a blob with ..", build(&[first(), entry("blobs/../../evil", b'0', 1, b"x"), end.clone()])),
        ("an absolute name", build(&[first(), entry("/etc/passwd", b'0', 1, b"x"), end.clone()])),
        ("a link", build(&[first(), link(b'2'), two.clone(), end.clone()])),
        ("a hard link", build(&[first(), link(b'1'), two.clone(), end.clone()])),
        ("a folder", build(&[first(), entry("blobs/", b'5', 0, b""), one.clone(), two.clone(), end.clone()])),
        ("a device", build(&[first(), link(b'3'), two.clone(), end.clone()])),
        (
            "a long name of another format",
            build(&[first(), entry("././@LongLink", b'L', 3, b"abc"), end.clone()]),
        ),
        ("a blob first", build(&[one.clone(), first(), two.clone(), end.clone()])),
        ("no document", build(&[one.clone(), two.clone(), end.clone()])),
        ("a second document", build(&[first(), first(), one.clone(), two.clone(), end.clone()])),
        (
            "a blob that nobody names",
            build(&[first(), one.clone(), two.clone(), blob(b"left over"), end.clone()]),
        ),
        ("a blob twice", build(&[first(), one.clone(), one.clone(), two.clone(), end.clone()])),
        ("a missing blob", build(&[first(), one.clone(), end.clone()])),
        ("other bytes", build(&[first(), flipped(&contents[0]), two.clone(), end.clone()])),
        ("other bytes in a later chunk", build(&[first(), one.clone(), flipped(&contents[1]), end.clone()])),
        (
            "a size that lies",
            build(&[
                first(),
                entry(&name(&contents[0]), b'0', 9, &contents[0][..9]),
                two.clone(),
                end.clone(),
            ]),
        ),
        ("a bomb", build(&[first(), entry(&name(&contents[0]), b'0', 0o77_777_777_777, b""), end.clone()])),
        (
            "a document that is a bomb",
            build(&[entry("session.json", b'0', 0o77_777_777_777, b"{}"), end.clone()]),
        ),
        ("a damaged header", build(&[first(), damaged_header, two.clone(), end.clone()])),
        ("junk behind the end", [build(&good), b"junk".to_vec()].concat()),
        ("no end", build(&[first(), one.clone(), two.clone()])),
        ("a cut", build(&good)[..4000].to_vec()),
        ("nothing", Vec::new()),
    ];
    for (what, bytes) in hostile {
        let done = async { Archive::open(pieces(&bytes)).await?.import(&*there.sessions).await };
        let error = done.await.expect_err(what);
        assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::LimitExceeded), "{what}: {error:?}");
        let absent = there.sessions.load(session.id).await.unwrap_err();
        assert_eq!(*absent.kind(), ErrorKind::NotFound, "{what}");
        let sweep = SweepBlobs::without_session().with_dry_run();
        assert_eq!(blobs(&*there.sessions, session.id).await, [], "{what}");
        assert_eq!(there.sessions.blobs().sweep(sweep).await.unwrap().blobs, 0, "{what}");
    }
    // The order of the blobs does not matter.
    Archive::open(pieces(&build(&good))).await.unwrap().import(&*there.sessions).await.unwrap();
    assert_eq!(there.sessions.load(session.id).await.unwrap(), session);
}
each_store!(hostile_archives_are_refused_whole and files);

/// A verification reads the blobs that events name; a salvage brings the good ones, and a text takes the place of a lost
/// one.
#[tokio::test]
async fn lost_blobs_are_named_and_salvaged_around() {
    let (here, effects) = (Storage::from(MemoryStore::new()), Effects::default());
    let manager = WorkspaceManager::new(here.clone().with_effects(effects.clone()));
    let default = agent_runtime::NewWorkspace::default().with_id(agent_core::WorkspaceId::DEFAULT);
    manager.create(default).await.unwrap();
    let contents = [content(1, 10), content(2, 3 * BLOB_CHUNK_BYTES)];
    let session = showing(&here.sessions, &effects, &contents).await;
    let found = verify(&here, |_| {}).await.unwrap();
    assert!(found.is_sound() && found.blobs == 2, "{found:?}");
    let name = BlobName::of(&contents[1]);
    for (salvaged, fault) in (0..).zip([Fault::Lost, Fault::Damaged]) {
        let faulty = std::sync::Arc::new(Faulty::new(here.sessions.store().clone()).with_fault(name, fault));
        let storage = Storage::new(here.workspaces.clone(), faulty, here.bindings.clone());
        let found = verify(&storage, |_| {}).await.unwrap();
        let [finding] = &found.findings[..] else { panic!("{found:?}") };
        assert_eq!((finding.kind, found.blobs), (FindingKind::Damaged, 1 + salvaged), "{fault:?}");
        assert!(
            finding.detail.contains(&name.to_string()) && finding.detail.contains("event 4"),
            "{finding}"
        );
        let saved = salvage(&storage, session.id, None).await.unwrap();
        let [lost] = &saved.lost[..] else { panic!("{saved:?}") };
        assert!(lost.first.get() == 4 && lost.reason.contains(&name.to_string()), "{lost}");
        assert_eq!(blobs(&*here.sessions, saved.session.id).await.len(), 1, "{fault:?}");
        let page = here.sessions.history(saved.session.id, ReadEvents::first(100)).await.unwrap();
        let messages: Vec<_> = page.events.iter().filter_map(agent_core::event::Event::text_view).collect();
        assert!(
            messages.iter().any(|messages| messages.contains("[image cat0.png, image/png, 10 bytes]")),
            "{messages:?}"
        );
        assert!(
            messages.iter().any(|messages| messages.contains("What is this?\n[Lost: image cat1.png")),
            "{messages:?}"
        );
        here.sessions
            .trigger(
                saved.session.id,
                agent_core::commit::Trigger::Delete(agent_core::state::Reason::UserDeleted),
            )
            .await
            .unwrap();
    }
}

/// A garbage collection removes the blobs that no event names, of sessions and of ids without one, and says how many.
async fn gc_removes_blobs_that_nobody_names(site: Site) {
    let Some((here, _)) = two(&site).await else { return };
    let effects = Effects::default();
    let session = showing(&here.sessions, &effects, &[content(1, 10)]).await;
    here.sessions.blobs().put(PutBlob::of_bytes(session.id, "left over")).await.unwrap();
    here.sessions.blobs().put(PutBlob::of_bytes(effects.new_session_id(), "never came")).await.unwrap();
    let manager = WorkspaceManager::new(here.clone().with_effects(effects));
    for (policy, removed) in
        [(GcPolicy::days(90).with_dry_run(), 2), (GcPolicy::days(90), 2), (GcPolicy::days(90), 0)]
    {
        let report = manager.gc(policy).await.unwrap();
        assert_eq!((report.blobs.blobs, report.blobs.unfinished), (removed, 0));
        assert_eq!(report.blobs.bytes, if removed > 0 { 19 } else { 0 });
    }
    assert_eq!(blobs(&*here.sessions, session.id).await.len(), 1);
}
each_store!(gc_removes_blobs_that_nobody_names and files);
