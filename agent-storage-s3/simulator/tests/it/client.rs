//! The simulator in good health, as the plain client sees it.

use std::time::Duration;

use crate::support::{client, create, name, path, update};
use futures::{StreamExt, TryStreamExt};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use s3_simulator::{Quirks, Simulator};

#[tokio::test]
async fn objects_are_stored_read_in_parts_and_deleted() {
    let simulator = Simulator::new(1);
    let store = client(&simulator);
    let key = path("a/ö &<1>+%20 b");
    let put = store.put(&key, "0123456789".into()).await.unwrap();
    assert_eq!(put.e_tag.as_deref(), Some("\"781e5e245d69b566979b86e28d23f2c7\""), "the MD5 of the body");
    let got = store.get(&key).await.unwrap();
    assert_eq!((got.meta.size, &got.meta.e_tag), (10, &put.e_tag));
    assert_eq!(got.bytes().await.unwrap(), "0123456789");
    for (range, part) in [
        (GetRange::Bounded(2..5), "234"),
        (GetRange::Bounded(8..99), "89"),
        (GetRange::Offset(7), "789"),
        (GetRange::Suffix(2), "89"),
    ] {
        let options = GetOptions::new().with_range(Some(range));
        assert_eq!(store.get_opts(&key, options).await.unwrap().bytes().await.unwrap(), part);
    }
    assert_eq!(name(&store.get_range(&key, 10..12).await), "Generic", "416");
    assert_eq!(store.head(&key).await.unwrap().size, 10);
    let unchanged = GetOptions::new().with_if_none_match(put.e_tag.clone());
    assert_eq!(name(&store.get_opts(&key, unchanged).await), "NotModified");
    store.delete(&key).await.unwrap();
    store.delete(&key).await.unwrap();
    assert_eq!(name(&store.get(&key).await), "NotFound");
    assert_eq!(name(&store.head(&key).await), "NotFound");
}

/// An object that is uploaded in parts appears when the upload is completed, whole, and not if it is removed before.
#[tokio::test]
async fn parts_become_an_object_together() {
    let simulator = Simulator::new(1);
    let (store, key) = (client(&simulator), path("k"));
    let [large, small] = [vec![1; 5 << 20], vec![2; 9]];
    let id = store.create_multipart(&key).await.unwrap();
    let first = store.put_part(&key, &id, 0, large.clone().into()).await.unwrap();
    let second = store.put_part(&key, &id, 1, small.clone().into()).await.unwrap();
    assert_eq!((simulator.keys().len(), simulator.uploads()), (0, 1));
    let missing = PartId { content_id: "\"no such part\"".to_owned() };
    assert!(store.complete_multipart(&key, &id, vec![first.clone(), missing]).await.is_err());
    let done = store.complete_multipart(&key, &id, vec![first, second]).await.unwrap();
    let got = store.get(&key).await.unwrap();
    assert_eq!(got.meta.e_tag, done.e_tag);
    assert_eq!(got.bytes().await.unwrap(), [large.clone(), small.clone()].concat());
    assert_eq!(simulator.uploads(), 0);

    let id = store.create_multipart(&path("other")).await.unwrap();
    let first = store.put_part(&path("other"), &id, 0, small.into()).await.unwrap();
    let second = store.put_part(&path("other"), &id, 1, large.into()).await.unwrap();
    let too_small = store.complete_multipart(&path("other"), &id, vec![first, second]).await;
    assert!(too_small.unwrap_err().to_string().contains("EntityTooSmall"));
    store.abort_multipart(&path("other"), &id).await.unwrap();
    assert_eq!((simulator.keys(), simulator.uploads()), (vec!["k".to_owned()], 0));
    assert_eq!(name(&store.put_part(&path("other"), &id, 0, "x".into()).await), "NotFound");
}

#[tokio::test]
async fn conditional_puts_are_enforced() {
    let simulator = Simulator::new(1);
    let store = client(&simulator);
    let key = path("k");
    let first = store.put_opts(&key, "one".into(), create()).await.unwrap();
    assert_eq!(name(&store.put_opts(&key, "two".into(), create()).await), "AlreadyExists");
    let etag = first.e_tag.unwrap();
    for (condition, expected) in
        [("\"no\"", "Precondition"), (etag.trim_matches('"'), "Ok"), (&etag, "Precondition")]
    {
        assert_eq!(name(&store.put_opts(&key, "three".into(), update(condition)).await), expected);
    }
    assert_eq!(name(&store.put_opts(&path("none"), "x".into(), update(&etag)).await), "Precondition");
    assert_eq!(simulator.object("k").unwrap(), "three");
    // Equal bodies have equal ETags: A-B-A goes unseen, as in S3.
    store.put(&key, "one".into()).await.unwrap();
    assert_eq!(name(&store.put_opts(&key, "four".into(), update(&etag)).await), "Ok");
}

/// 32 tasks ask for one key, 50 times: each time one wins, and its body is what is stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_race_has_one_winner() {
    let simulator = Simulator::new(1);
    let store = std::sync::Arc::new(client(&simulator));
    for round in 0..50 {
        let key = path(&format!("race/{round}"));
        let tasks = (0..32).map(|n: usize| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move {
                let put = store.put_opts(&key, n.to_string().into(), create()).await;
                put.is_ok().then_some(n)
            })
        });
        let winners: Vec<_> =
            futures::future::join_all(tasks).await.into_iter().filter_map(Result::unwrap).collect();
        assert_eq!(winners.len(), 1);
        assert_eq!(simulator.object(key.as_ref()).unwrap(), winners[0].to_string());
    }
}

#[tokio::test]
async fn lists_are_ordered_grouped_and_paged() {
    let simulator = Simulator::new(1).with_quirks(Quirks { page_limit: Some(100), ..Quirks::default() });
    let store = client(&simulator);
    let mut keys: Vec<_> = (0..1105).map(|n| format!("l/{}/{n}", n % 7)).collect();
    keys.push("l&<'\"".to_owned());
    keys.push("l/top".to_owned());
    for key in &keys {
        simulator.put_object(key, key.clone());
    }
    keys.sort();
    let listed: Vec<_> =
        store.list(None).map_ok(|meta| meta.location.to_string()).try_collect().await.unwrap();
    assert_eq!(listed, keys);
    assert_eq!(simulator.counts().list, 12);
    let after: Vec<_> = store
        .list_with_offset(Some(&path("l")), &path("l/3/1"))
        .map_ok(|meta| meta.location.to_string())
        .try_collect()
        .await
        .unwrap();
    let expected: Vec<_> =
        keys.iter().filter(|key| key.starts_with("l/") && key.as_str() > "l/3/1").cloned().collect();
    assert_eq!(after, expected);
    let rolled = store.list_with_delimiter(Some(&path("l"))).await.unwrap();
    assert_eq!(rolled.common_prefixes.len(), 7);
    assert_eq!(rolled.objects[0].location.as_ref(), "l/top");
    // One at a time, rolled up: each prefix once, then the key.
    let mut token = None;
    let mut seen = Vec::new();
    loop {
        let options = PaginatedListOptions {
            delimiter: Some("/".into()),
            max_keys: Some(1),
            page_token: token,
            ..Default::default()
        };
        let page = store.list_paginated(Some("l/"), options).await.unwrap();
        seen.extend(page.result.common_prefixes.iter().map(ToString::to_string));
        seen.extend(page.result.objects.iter().map(|meta| meta.location.to_string()));
        token = page.page_token;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["l/0", "l/1", "l/2", "l/3", "l/4", "l/5", "l/6", "l/top"]);
    // Many at once.
    let locations: Vec<_> = keys.iter().map(|key| Ok(path(key))).collect();
    let locations = futures::stream::iter(locations).boxed();
    let deleted: Vec<_> = store.delete_stream(locations).try_collect().await.unwrap();
    assert_eq!((deleted.len(), simulator.keys().len()), (keys.len(), 0));
}

#[tokio::test]
async fn unsupported_requests_are_refused() {
    let simulator = Simulator::new(1);
    let store = client(&simulator);
    store.put(&path("a"), "a".into()).await.unwrap();
    assert_eq!(name(&store.copy(&path("a"), &path("b")).await), "Generic");
    assert_eq!(name(&store.rename(&path("a"), &path("b")).await), "Generic");
    assert_eq!(simulator.keys(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn configured_quirks_take_effect() {
    let store = |quirks| {
        let simulator = Simulator::new(1).with_quirks(quirks);
        (client(&simulator), simulator)
    };
    let (key, mut quirks) = (path("k"), Quirks::default());

    quirks.ignores_if_none_match = true;
    let (bad, simulator) = store(quirks);
    bad.put_opts(&key, "one".into(), create()).await.unwrap();
    bad.put_opts(&key, "two".into(), create()).await.unwrap();
    assert_eq!(simulator.object("k").unwrap(), "two");

    quirks = Quirks { ignores_if_match: true, ..Quirks::default() };
    let (bad, simulator) = store(quirks);
    bad.put(&key, "one".into()).await.unwrap();
    bad.put_opts(&key, "two".into(), update("\"stale\"")).await.unwrap();
    assert_eq!(simulator.object("k").unwrap(), "two");

    quirks = Quirks { stale_reads: Some(Duration::from_secs(1)), ..Quirks::default() };
    let (bad, _) = store(quirks);
    bad.put(&key, "one".into()).await.unwrap();
    assert_eq!(name(&bad.get(&key).await), "NotFound");
    tokio::time::sleep(Duration::from_secs(2)).await;
    bad.put(&key, "two".into()).await.unwrap();
    assert_eq!(bad.get(&key).await.unwrap().bytes().await.unwrap(), "one");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bad.get(&key).await.unwrap().bytes().await.unwrap(), "two");

    quirks = Quirks { unordered_list: true, ..Quirks::default() };
    let (bad, simulator) = store(quirks);
    ["a", "b"].iter().for_each(|key| simulator.put_object(key, *key));
    let listed: Vec<_> = bad.list(None).map_ok(|meta| meta.location.to_string()).try_collect().await.unwrap();
    assert_eq!(listed, ["b", "a"]);

    quirks = Quirks { wants_bare_etags: true, missing_is_precondition: true, ..Quirks::default() };
    let (bad, _) = store(quirks);
    let etag = bad.put(&key, "one".into()).await.unwrap().e_tag.unwrap();
    assert_eq!(name(&bad.put_opts(&key, "two".into(), update(&etag)).await), "Precondition");
    assert_eq!(name(&bad.put_opts(&key, "two".into(), update(etag.trim_matches('"'))).await), "Ok");
}
