//! Blobs that are uploaded in parts, on each real server.

use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::{Media, Message, NewEvent, Part};
use agent_core::session::NewSession;
use agent_core::store::{BlobInfo, BlobQuery, PutBlob, ReadBlob};
use agent_core::{ErrorKind, SessionStore, WorkspaceId};
use agent_storage_s3::S3Config;
use s3_servers::{Kind, Server};

const MIB: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Ceph; `.ci/full` runs it"]
async fn large_blobs_are_kept_by_ceph() {
    kept_by(Kind::Ceph).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_blobs_are_kept_by_ministack() {
    kept_by(Kind::Ministack).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Azurite; `.ci/full` runs it"]
async fn large_blobs_are_kept_by_azurite() {
    kept_by(Kind::Azurite).await;
}

/// A blob of several parts comes back byte for byte, whole and in ranges. One with a wrong byte is not stored.
async fn kept_by(kind: Kind) {
    let server = match Server::start(kind) {
        Ok(server) => server,
        Err(missing) if missing.may_be_passed_over() => return,
        Err(missing) => panic!("{missing}"),
    };
    let work = async {
        let effects = Effects::default();
        let store = S3Config::from_url(&server.address("large")).unwrap().open().await.unwrap();
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let session = store.commit(Commit::create(&effects, new)).await.unwrap().session;
        let bytes: Vec<u8> =
            (0..19 * MIB as u64 + 3).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        let blob = BlobInfo::of(&bytes);
        let mut wrong = bytes.clone();
        wrong[19 * MIB] ^= 1;
        let wrong = PutBlob::new(session.id, blob, PutBlob::of_bytes(session.id, wrong).content);
        assert_eq!(*store.blobs().put(wrong).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(store.blobs().list(BlobQuery::new(session.id)).await.unwrap().items, []);
        store.blobs().put(PutBlob::of_bytes(session.id, bytes.clone())).await.unwrap();
        let shown = Media::blob("image/png", blob.name, blob.bytes);
        let shown = NewEvent::from(Message::new("Look").with_part(Part::Image(shown)));
        store.commit(Commit::seal(&effects, session.id, session.head).with_event(shown)).await.unwrap();
        assert_eq!(store.blobs().list(BlobQuery::new(session.id)).await.unwrap().items, [blob]);
        for range in [0..blob.bytes, 8 * MIB as u64 - 1..8 * MIB as u64 + 1, blob.bytes - 1..blob.bytes] {
            let read = ReadBlob::new(session.id, blob.name).with_range(range.clone());
            let back = store.blobs().read(read).await.unwrap().into_bytes(usize::MAX).await.unwrap();
            assert!(back == bytes[range.start as usize..range.end as usize], "{range:?}");
        }
    };
    tokio::time::timeout(Duration::from_secs(300), work).await.expect("the server answers in time");
}
