//! Keys of a tenant: made once, opened everywhere, rotated and dropped, also if a call is cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_core::clock::Effects;
use agent_core::store::Page;
use agent_core::{
    Backend, Error, ErrorKind, MemoryStore, Result, SessionId, TenantId, Timestamp, async_trait,
};
use futures::future::{join_all, join3};

use crate::cipher::Purpose;
use crate::keys::Keys;
use crate::place::{KeyEntry, KeyPlace, KeyQuery, KeyRow};
use crate::ring::KeyRing;
use crate::store_place::StorePlace;

/// What happens at the n-th call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// It fails, and all others work.
    Fails,
    /// The process dies before it.
    DiesBefore,
    /// The process dies after it: its reply is lost.
    DiesAfter,
}

/// A place that counts calls and writes, and is cut at a call, counted from 1.
#[derive(Debug)]
struct Watched {
    under: Arc<dyn KeyPlace>,
    calls: AtomicUsize,
    writes: AtomicUsize,
    cut: Option<(usize, Cut)>,
}

impl Watched {
    fn new(under: &Arc<dyn KeyPlace>, cut: Option<(usize, Cut)>) -> Arc<Self> {
        let (calls, writes) = Default::default();
        Arc::new(Self { under: under.clone(), calls, writes, cut })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    async fn call<T>(&self, writes: usize, work: impl Future<Output = Result<T>>) -> Result<T> {
        let n = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        self.writes.fetch_add(writes, Ordering::SeqCst);
        let dead = || Error::new(ErrorKind::Poisoned, "the process is dead, says the test");
        match self.cut {
            Some((at, Cut::Fails)) if n == at => Err(Error::new(ErrorKind::Full, "no space, says the test")),
            Some((at, Cut::DiesBefore)) if n >= at => Err(dead()),
            Some((at, Cut::DiesAfter)) if n == at => {
                let _ = work.await;
                Err(dead())
            }
            Some((at, Cut::DiesAfter)) if n > at => Err(dead()),
            _ => work.await,
        }
    }
}

#[async_trait]
impl KeyPlace for Watched {
    async fn get(&self, name: &str) -> Result<Option<KeyRow>> {
        self.call(0, self.under.get(name)).await
    }

    async fn put_if_absent(&self, name: &str, text: &str) -> Result<KeyRow> {
        self.call(1, self.under.put_if_absent(name, text)).await
    }

    async fn swap(&self, name: &str, old: &str, new: &str) -> Result<()> {
        self.call(1, self.under.swap(name, old, new)).await
    }

    async fn drop_key(&self, name: &str) -> Result<bool> {
        self.call(1, self.under.drop_key(name)).await
    }

    async fn list(&self, query: KeyQuery) -> Result<Page<KeyEntry>> {
        self.call(0, self.under.list(query)).await
    }
}

fn place() -> Arc<dyn KeyPlace> {
    Arc::new(StorePlace::new(Arc::new(MemoryStore::new())))
}

fn ring(n: u8) -> KeyRing {
    KeyRing::from_bytes([n; 32])
}

fn keys(ring: KeyRing, place: &Arc<dyn KeyPlace>) -> Keys {
    Keys::new(ring, place.clone(), "acme".parse().unwrap())
}

fn id(n: usize) -> SessionId {
    format!("019c60d9-9c41-715c-8289-{n:012x}").parse().unwrap()
}

fn row_of(n: usize) -> String {
    format!("session/acme/{}", id(n))
}

/// The texts of all rows.
async fn rows(place: &Arc<dyn KeyPlace>) -> BTreeMap<String, String> {
    let page = place.list(KeyQuery::new().with_limit(1000)).await.unwrap();
    page.items.into_iter().map(|entry| (entry.name, entry.text)).collect()
}

/// The ids of the keys that wrap the rows of sessions.
async fn wrapping(place: &Arc<dyn KeyPlace>) -> Vec<String> {
    let by = |text: &str| text.split('.').nth(1).unwrap().to_owned();
    let sessions = rows(place).await.into_iter().filter(|(name, _)| name.starts_with("session/"));
    let mut found: Vec<_> = sessions.map(|(_, text)| by(&text)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// What shows that keys are the same as before: the ids of those of sessions, and a value under the tenant's secret.
async fn shown(ring: KeyRing, place: &Arc<dyn KeyPlace>, sessions: usize) -> (Vec<String>, [u8; 32]) {
    let keys = keys(ring, place);
    let mut ids = Vec::new();
    for n in 0..sessions {
        ids.push(keys.session(id(n)).await.unwrap().unwrap().key_id().to_owned());
    }
    (ids, keys.tenant().await.unwrap().mac(&[b"label"]))
}

async fn stocked(sessions: usize) -> Arc<dyn KeyPlace> {
    let place = place();
    let keys = keys(ring(1), &place);
    for n in 0..sessions {
        keys.session_or_new(id(n)).await.unwrap();
    }
    place
}

#[tokio::test]
async fn what_one_process_seals_another_opens() {
    let place = place();
    let (one, other) = (keys(ring(1), &place), keys(ring(1), &place));
    let (first, second) =
        (one.session_or_new(id(1)).await.unwrap(), one.session_or_new(id(2)).await.unwrap());
    let sealed = first.seal(Purpose::Content, &[b"aad"], b"Hello");
    let read = other.session(id(1)).await.unwrap().unwrap();
    assert_eq!(read.open(Purpose::Content, &[b"aad"], &sealed).unwrap(), b"Hello");
    assert_eq!(read.key_id(), first.key_id());
    assert_ne!(second.key_id(), first.key_id());
    assert_eq!(second.open(Purpose::Content, &[b"aad"], &sealed), None);
    assert_eq!(one.tenant().await.unwrap().key_id(), other.tenant().await.unwrap().key_id());

    let umbra = Keys::new(ring(1), place.clone(), "umbra".parse().unwrap());
    assert_ne!(umbra.tenant().await.unwrap().key_id(), one.tenant().await.unwrap().key_id());
    assert!(umbra.session(id(1)).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_create_one_session_get_one_key() {
    for _ in 0..20 {
        let place = place();
        let create = |_| {
            let keys = keys(ring(1), &place);
            tokio::spawn(async move {
                let tenant = keys.tenant().await.unwrap().key_id().to_owned();
                (tenant, keys.session_or_new(id(1)).await.unwrap().key_id().to_owned())
            })
        };
        let mut found: Vec<_> =
            join_all((0..16).map(create)).await.into_iter().map(|it| it.unwrap()).collect();
        found.dedup();
        assert_eq!(found.len(), 1, "{found:?}");
    }
}

#[tokio::test]
async fn a_read_of_an_absent_key_writes_nothing() {
    let watched = Watched::new(&place(), None);
    let keys = keys(ring(1), &(watched.clone() as Arc<dyn KeyPlace>));
    assert!(keys.session(id(1)).await.unwrap().is_none());
    assert_eq!((keys.rotate().await.unwrap(), keys.rotate_tenant_key().await.unwrap()), (0, 0));
    assert_eq!(watched.writes(), 0);
}

/// A row that was only read may not be durable yet: whoever put it may have ended before.
#[tokio::test]
async fn keys_are_kept_in_memory_and_made_sure_of_before_they_seal() {
    let place = stocked(1).await;
    let watched = Watched::new(&place, None);
    let keys = keys(ring(1), &(watched.clone() as Arc<dyn KeyPlace>));
    keys.session(id(0)).await.unwrap().unwrap();
    let read = watched.calls();
    keys.session(id(0)).await.unwrap().unwrap();
    assert_eq!((watched.calls(), watched.writes()), (read, 0));
    keys.session_or_new(id(0)).await.unwrap();
    assert_eq!(watched.writes(), 2, "the row of the tenant and that of the session");
    let sealing = watched.calls();
    keys.session_or_new(id(0)).await.unwrap();
    keys.session(id(0)).await.unwrap().unwrap();
    assert_eq!(watched.calls(), sealing);
    keys.session_or_new(id(1)).await.unwrap();
    assert_eq!(watched.writes(), 3, "that of the tenant is known to be durable");
}

#[tokio::test]
async fn a_dropped_key_is_gone_for_every_process_that_has_not_read_it() {
    let place = stocked(2).await;
    let one = keys(ring(1), &place);
    one.session(id(0)).await.unwrap().unwrap();
    assert!(one.drop_session(id(0)).await.unwrap());
    assert!(!one.drop_session(id(0)).await.unwrap());
    assert!(!one.drop_session(id(7)).await.unwrap(), "there was none, and there will be none");
    for keys in [one, keys(ring(1), &place)] {
        for n in [0, 7] {
            assert_eq!(*keys.session(id(n)).await.unwrap_err().kind(), ErrorKind::Deleted);
            assert_eq!(*keys.session_or_new(id(n)).await.unwrap_err().kind(), ErrorKind::Deleted);
        }
        assert!(keys.session(id(1)).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_wrong_root_key_is_denied_by_name_and_writes_nothing() {
    let place = stocked(2).await;
    let before = rows(&place).await;
    let (wrong, older) = (ring(2), ring(3));
    let given = [&ring(1), &wrong, &older].map(|ring| ring.current_id().to_string());
    let watched = Watched::new(&place, None);
    let place: Arc<dyn KeyPlace> = watched.clone();
    for call in 0..6 {
        let keys = keys(wrong.clone().with_older(older.clone()), &place);
        let error = match call {
            0 => keys.tenant().await.map(drop),
            1 => keys.session(id(0)).await.map(drop),
            2 => keys.session_or_new(id(5)).await.map(drop),
            3 => keys.drop_session(id(0)).await.map(drop),
            4 => keys.rotate().await.map(drop),
            _ => keys.rotate_tenant_key().await.map(drop),
        };
        let error = error.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Denied, "{call}: {error}");
        assert!(given.iter().all(|id| error.to_string().contains(id)), "{call}: {error}");
    }
    assert_eq!(watched.writes(), 0);
    assert_eq!(rows(&place).await, before);
}

#[tokio::test]
async fn a_rotation_of_the_root_key_wraps_one_row_and_changes_no_key() {
    let place = stocked(3).await;
    let (before, sessions) = (shown(ring(1), &place, 3).await, wrapping(&place).await);
    let rotated = || ring(2).with_older(ring(1));
    assert_eq!(shown(rotated(), &place, 3).await, before, "before the rotation");
    let texts = rows(&place).await;
    assert_eq!(keys(rotated(), &place).rotate().await.unwrap(), 1);
    assert_eq!(keys(rotated(), &place).rotate().await.unwrap(), 0);
    assert_eq!(shown(ring(2), &place, 3).await, before, "the former key is not needed");
    assert_eq!(wrapping(&place).await, sessions);
    let changed: Vec<_> =
        rows(&place).await.into_iter().filter(|(name, text)| &texts[name] != text).collect();
    assert_eq!(changed.len(), 1);
    let denied = keys(ring(1), &place).tenant().await.unwrap_err();
    assert_eq!(*denied.kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_rotation_of_the_tenants_key_wraps_each_session_again_and_changes_no_key() {
    let place = stocked(5).await;
    let stale = keys(ring(1), &place);
    let reader = keys(ring(1), &place);
    for keys in [&stale, &reader] {
        keys.tenant().await.unwrap();
    }
    keys(ring(1), &place).drop_session(id(4)).await.unwrap();
    let (before, former) = (shown(ring(1), &place, 4).await, wrapping(&place).await);
    assert_eq!(keys(ring(1), &place).rotate_tenant_key().await.unwrap(), 4);
    let newest = wrapping(&place).await;
    assert!(newest.len() == 1 && newest != former, "{newest:?}, before {former:?}");
    assert_eq!(shown(ring(1), &place, 4).await, before);

    // A process that has read the former row opens keys, and makes one.
    assert_eq!(reader.session(id(2)).await.unwrap().unwrap().key_id(), before.0[2]);
    stale.session_or_new(id(9)).await.unwrap();
    assert_eq!(wrapping(&place).await, newest);

    // A rotation of the root key goes between two of them.
    keys(ring(2).with_older(ring(1)), &place).rotate().await.unwrap();
    for n in 0..20 {
        assert_eq!(keys(ring(2), &place).rotate_tenant_key().await.unwrap(), 5, "{n}");
    }
    assert_eq!(shown(ring(2), &place, 4).await, before);
    let row = rows(&place).await["tenant/acme"].len();
    assert!(row < 1000, "former keys are not kept without end: {row} bytes");
}

/// The root key that wraps a tenant's row wraps it after a rotation of the tenant's key, too: a process with a former ring as the
/// current one does not take a rotation of the root key back.
#[tokio::test]
async fn a_rotation_of_the_tenants_key_keeps_the_root_key() {
    let place = stocked(1).await;
    keys(ring(2).with_older(ring(1)), &place).rotate().await.unwrap();
    keys(ring(1).with_older(ring(2)), &place).rotate_tenant_key().await.unwrap();
    shown(ring(2), &place, 1).await;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    New,
    Root,
    Tenant,
    Drop,
}

impl Act {
    async fn run(self, place: Arc<dyn KeyPlace>) -> Result<()> {
        let keys = keys(ring(2).with_older(ring(1)), &place);
        match self {
            Self::New => keys.session_or_new(id(3)).await.map(drop),
            Self::Root => keys.rotate().await.map(drop),
            Self::Tenant => keys.rotate_tenant_key().await.map(drop),
            Self::Drop => keys.drop_session(id(3)).await.map(drop),
        }
    }
}

#[tokio::test]
async fn a_call_that_is_cut_anywhere_loses_no_key_and_the_same_call_finishes() {
    for act in [Act::New, Act::Root, Act::Tenant, Act::Drop] {
        for cut in [Cut::Fails, Cut::DiesBefore, Cut::DiesAfter] {
            for at in 1.. {
                let place = stocked(3).await;
                let both = || ring(2).with_older(ring(1));
                let (before, former) = (shown(both(), &place, 3).await, wrapping(&place).await);
                let watched = Watched::new(&place, Some((at, cut)));
                let result = act.run(watched.clone()).await;
                let which = format!("{act:?}, {cut:?} at {at}");
                if watched.calls() < at {
                    assert!(at > 1 && result.is_ok(), "{which}: {result:?}");
                    break;
                }
                assert_eq!(shown(both(), &place, 3).await, before, "{which}");
                act.run(place.clone()).await.unwrap_or_else(|error| panic!("{which}: {error}"));
                assert_eq!(shown(both(), &place, 3).await, before, "{which}, again");
                match act {
                    Act::New => {
                        assert!(keys(both(), &place).session(id(3)).await.unwrap().is_some(), "{which}");
                    }
                    Act::Root => assert_eq!(shown(ring(2), &place, 3).await, before, "{which}"),
                    Act::Tenant => {
                        let newest = wrapping(&place).await;
                        assert!(newest.len() == 1 && newest != former, "{which}: {newest:?}");
                    }
                    Act::Drop => {
                        let error = keys(both(), &place).session(id(3)).await.unwrap_err();
                        assert_eq!(*error.kind(), ErrorKind::Deleted, "{which}");
                    }
                }
            }
        }
    }
}

/// A rotation that was cut is finished with the key that was made, and not begun again with another one.
#[tokio::test]
async fn a_cut_rotation_goes_on_with_the_same_key() {
    let place = stocked(3).await;
    let watched = Watched::new(&place, Some((4, Cut::DiesAfter)));
    keys(ring(1), &(watched as Arc<dyn KeyPlace>)).rotate_tenant_key().await.unwrap_err();
    let half = wrapping(&place).await;
    assert_eq!(half.len(), 2, "one of three is wrapped again");
    let watched = Watched::new(&place, None);
    let finishing = keys(ring(1), &(watched.clone() as Arc<dyn KeyPlace>));
    assert_eq!(finishing.rotate_tenant_key().await.unwrap(), 2);
    assert_eq!(
        watched.writes(),
        4,
        "the row of the tenant is made durable first, and its end is written last"
    );
    let newest = wrapping(&place).await;
    assert!(newest.len() == 1 && half.contains(&newest[0]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_that_are_made_during_rotations_are_not_lost() {
    for round in 0..10 {
        let place = stocked(5).await;
        let make = |n: usize| {
            let keys = keys(ring(1), &place);
            tokio::spawn(async move { keys.session_or_new(id(n)).await.unwrap().key_id().to_owned() })
        };
        let rotate = |_| {
            let keys = keys(ring(1), &place);
            tokio::spawn(async move { keys.rotate_tenant_key().await.unwrap() })
        };
        let root = {
            let keys = keys(ring(2).with_older(ring(1)), &place);
            tokio::spawn(async move { keys.tenant().await.unwrap().key_id().to_owned() })
        };
        let before = shown(ring(1), &place, 5).await.0;
        let (made, rotated, _) = join3(join_all((5..25).map(make)), join_all((0..3).map(rotate)), root).await;
        assert!(rotated.iter().all(Result::is_ok), "{rotated:?}");
        let made = made.into_iter().map(|made| made.unwrap());
        let expected: Vec<_> = before.into_iter().chain(made).collect();
        assert_eq!(shown(ring(1), &place, 25).await.0, expected, "{round}");
        keys(ring(1), &place).rotate_tenant_key().await.unwrap();
        assert_eq!(wrapping(&place).await.len(), 1, "{round}");
        assert_eq!(shown(ring(1), &place, 25).await.0, expected, "{round}");
    }
}

#[tokio::test]
async fn a_row_of_another_session_or_tenant_is_corrupt_and_stays() {
    let place = stocked(2).await;
    let texts = rows(&place).await;
    let (first, second) = (&texts[&row_of(0)], &texts[&row_of(1)]);
    place.swap(&row_of(0), first, second).await.unwrap();
    place.put_if_absent("tenant/umbra", &texts["tenant/acme"]).await.unwrap();
    place.put_if_absent(&format!("session/umbra/{}", id(0)), first).await.unwrap();
    let before = rows(&place).await;

    let (acme, umbra) = (keys(ring(1), &place), Keys::new(ring(1), place.clone(), "umbra".parse().unwrap()));
    for error in [
        acme.session(id(0)).await.unwrap_err(),
        acme.session_or_new(id(0)).await.unwrap_err(),
        umbra.tenant().await.unwrap_err(),
        umbra.session(id(0)).await.unwrap_err(),
        umbra.rotate().await.unwrap_err(),
        umbra.rotate_tenant_key().await.unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    }
    assert_eq!(rows(&place).await, before);
}

#[tokio::test]
async fn a_damaged_row_is_named_by_a_rotation_that_wraps_the_others() {
    let place = stocked(3).await;
    let text = rows(&place).await[&row_of(1)].clone();
    for (damage, kind) in [
        (text.replace(".", "-"), ErrorKind::Corrupt),
        (text[..text.len() - 4].to_owned(), ErrorKind::Corrupt),
        (format!("1.0123456789abcdef.{}", text.rsplit('.').next().unwrap()), ErrorKind::Corrupt),
        (text.replacen('1', "2", 1), ErrorKind::Unsupported),
    ] {
        let now = rows(&place).await[&row_of(1)].clone();
        place.swap(&row_of(1), &now, &damage).await.unwrap();
        let keys = keys(ring(1), &place);
        for error in
            [keys.rotate_tenant_key().await.unwrap_err(), keys.session_or_new(id(1)).await.unwrap_err()]
        {
            assert_eq!(*error.kind(), kind, "{damage}: {error}");
            assert!(error.to_string().contains(&row_of(1)), "{error}");
        }
        let found = rows(&place).await;
        assert_eq!(found[&row_of(1)], damage);
        let by = |n: usize| found[&row_of(n)].split('.').nth(1).unwrap().to_owned();
        assert_eq!(by(0), by(2));
        assert_ne!(by(0), text.split('.').nth(1).unwrap());
    }
    assert!(keys(ring(1), &place).drop_session(id(1)).await.unwrap());
    keys(ring(1), &place).rotate_tenant_key().await.unwrap();
}

/// A tenant whose own row is lost: no new key takes its place for sessions that have one.
#[tokio::test]
async fn a_lost_row_of_a_tenant_is_corrupt_for_its_sessions() {
    let (full, lost) = (stocked(1).await, place());
    lost.put_if_absent(&row_of(0), &rows(&full).await[&row_of(0)]).await.unwrap();
    let error = keys(ring(1), &lost).session(id(0)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("tenant/acme"), "{error}");
    assert_eq!(rows(&lost).await.len(), 1);
}

/// A process that has only read the row of a tenant does not put it back when the tenant is deleted meanwhile.
#[tokio::test]
async fn a_deleted_row_of_a_tenant_does_not_come_back() {
    let store = MemoryStore::new();
    let place: Arc<dyn KeyPlace> = Arc::new(StorePlace::new(Arc::new(store.clone())));
    let former = keys(ring(1), &place).session_or_new(id(0)).await.unwrap().key_id().to_owned();
    let reader = keys(ring(1), &place);
    reader.session(id(0)).await.unwrap().unwrap();
    let row = rows(&place).await["tenant/acme"].clone();
    store.delete_tenant(&TenantId::default()).await.unwrap();
    assert_ne!(reader.session_or_new(id(0)).await.unwrap().key_id(), former);
    assert_ne!(rows(&place).await["tenant/acme"], row);
}

/// Written once; what is stored must be opened for ever.
#[tokio::test]
async fn the_rows_have_the_form_that_they_always_had() {
    let place = place();
    let effects = Effects::seeded(7, Timestamp::UNIX_EPOCH);
    let keys = Keys::new(ring(1), place.clone(), "acme".parse().unwrap()).with_effects(effects);
    let session = keys.session_or_new(id(1)).await.unwrap();
    let golden = [
        (
            "session/acme/019c60d9-9c41-715c-8289-000000000001",
            "1.68da73d938e07212.b0j3EspF0-fY969OVLttLnAGdpi8dfZqHJ4OrJzdMj-iOtUgsZQmYSF91J3r5joIrHi1CMuGF4yYfrwyW_J06Vcl8PE8xwOG",
        ),
        (
            "tenant/acme",
            "1.42b2e84cd2944237.97tC23_jhWv6N60YmVck99roKCbXI9SM79ZbQwt49CROpCl0gGk_fGHqPFMSWe71i4dc7Z9J9vL5v_n2UwNJCZYf9BEgqbnKQdH7pHMcNP1IAhIRnEe35yJKeFWgh-jksvsgRPFpXh7Q",
        ),
    ];
    let found = rows(&place).await;
    assert_eq!(found.iter().map(|(name, text)| (&**name, &**text)).collect::<Vec<_>>(), golden);
    let tenant = keys.tenant().await.unwrap();
    assert_eq!((session.key_id(), tenant.key_id()), ("2157ae99f3de7356", "032cdf602c1aa4d5"));
}

#[tokio::test]
async fn nothing_that_is_shown_holds_a_key() {
    let place = stocked(1).await;
    let keys = keys(ring(1), &place);
    keys.session(id(0)).await.unwrap();
    let shown = format!("{keys:?} {:?} {:?}", place.get("tenant/acme").await.unwrap(), ring(1));
    for (_, text) in rows(&place).await {
        assert!(!shown.contains(text.rsplit('.').next().unwrap()), "{shown}");
    }
    for bytes in ["[1, 1, 1", "0101010101"] {
        assert!(!shown.contains(bytes), "{shown}");
    }
}
