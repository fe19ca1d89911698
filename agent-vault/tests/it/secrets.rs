//! Secrets of workspaces. The suites of PostgreSQL and of S3 run these tests, too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_core::clock::Effects;
use agent_core::commit::{Commit, Committed};
use agent_core::event::{EventPayload, OperationOutcome};
use agent_core::store::{HiddenSession, ReadEvents, SessionStoreWrapper};
use agent_core::{
    Backend, Error, ErrorKind, Result, SessionStore, Storage, TenantId, Timestamp, WorkspaceId, async_trait,
};
use agent_vault::{KeyPlace, KeyQuery, KeyRing, KeyRow, Keys, StorePlace, Vault, WorkspaceSecrets};
use agent_workspace::secrets::{Secret, SecretName, Secrets};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use futures::future::join_all;

use crate::cut::{Cut, Cutting};
use crate::support::{SEEN, STORES, Site};

const START: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);
const VALUE: &str = "xyzzy-0123456789-first";
const SECOND: &str = "xyzzy-0123456789-second";
const NAME: &str = "plugh-github";

fn name() -> SecretName {
    NAME.parse().unwrap()
}

fn secret(value: &str) -> Secret {
    Secret::new(value).unwrap()
}

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// A workspace other than the default one.
fn other() -> WorkspaceId {
    Effects::seeded(3, START).new_workspace_id()
}

/// The storage with the audit of a tenant, at a time.
fn storage(site: &Site, of: &str, at: Timestamp) -> Storage {
    // Two processes never have the same ids.
    static SEED: AtomicU64 = AtomicU64::new(10);
    let seed = SEED.fetch_add(1, Ordering::Relaxed);
    site.backends[0].tenant(&tenant(of)).with_effects(Effects::seeded(seed, at))
}

fn keys(place: StorePlace, of: &str) -> Keys {
    Keys::new(KeyRing::from_bytes([7; 32]), Arc::new(place), tenant(of))
}

fn over(place: StorePlace, storage: &Storage) -> WorkspaceSecrets {
    WorkspaceSecrets::new(keys(place, "acme"), storage, "user:alice".parse().unwrap())
}

/// The secrets of the tenant `acme` in the `n`-th process.
fn secrets(site: &Site, n: usize) -> WorkspaceSecrets {
    over(site.place(n), &storage(site, "acme", START))
}

fn kind(result: Result<Secret>) -> ErrorKind {
    let error = result.unwrap_err();
    assert!(error.to_string().contains(NAME) || *error.kind() == ErrorKind::Denied, "{error}");
    error.kind().clone()
}

/// What the audit of `acme` has: actor, operation, workspace, name, version.
async fn audit(storage: &Storage) -> Vec<(String, String, WorkspaceId, String, u64)> {
    let Some(log) = HiddenSession::Audit.find(&**storage.sessions.store()).await.unwrap() else {
        return Vec::new();
    };
    let page = storage.sessions.read(log.id, ReadEvents::default()).await.unwrap();
    let entries = page.events.iter().filter_map(|event| match event.decode().unwrap() {
        EventPayload::SessionOperationAudited(audited) => {
            assert_eq!(audited.outcome, Some(OperationOutcome::Done));
            let (workspace, secret) = (audited.workspace.unwrap(), audited.secret.unwrap());
            let operation = audited.operation.as_str().to_owned();
            Some((event.actor.to_string(), operation, workspace, secret.name, secret.version))
        }
        _ => None,
    });
    entries.collect()
}

async fn rows(place: &StorePlace) -> Vec<(String, String)> {
    let listed = place.list(KeyQuery::new().with_prefix("secret/")).await.unwrap().items;
    listed.into_iter().map(|entry| (entry.name, entry.text)).collect()
}

/// A value is set, listed by name, read, and belongs to its workspace and tenant alone.
#[tokio::test]
async fn a_secret_belongs_to_its_workspace_and_tenant() {
    for store in STORES {
        let site = Site::new(store).await;
        let (here, there) = (secrets(&site, 0), secrets(&site, 1));
        let until = Some(START.plus_micros(60_000_000));
        assert_eq!(here.set(WorkspaceId::DEFAULT, &name(), &secret(VALUE), until).await.unwrap(), 1);
        here.set(WorkspaceId::DEFAULT, &"a".parse().unwrap(), &secret(SECOND), None).await.unwrap();
        assert_eq!(there.value(WorkspaceId::DEFAULT, &name()).await.unwrap().expose(), VALUE, "{store}");
        assert_eq!(kind(there.value(other(), &name()).await), ErrorKind::NotFound, "{store}");
        assert!(there.names(other()).await.unwrap().is_empty());
        let names = there.names(WorkspaceId::DEFAULT).await.unwrap();
        let shown: Vec<_> = names.iter().map(|it| (it.name.as_str(), it.version, it.expires_at)).collect();
        assert_eq!(shown, [("a", 1, None), (NAME, 1, until)], "{store}");
        assert!(names[1].set_at >= START && names[0].set_at > names[1].set_at, "{store}: the injected clock");
        let umbra = keys(site.place(0), "umbra");
        let umbra = WorkspaceSecrets::new(umbra, &storage(&site, "umbra", START), "user".parse().unwrap());
        assert_eq!(kind(umbra.value(WorkspaceId::DEFAULT, &name()).await), ErrorKind::NotFound);
        assert!(umbra.names(WorkspaceId::DEFAULT).await.unwrap().is_empty());
    }
}

/// No value is opened for a list: one that is damaged is listed, and refused by name when it is read.
#[tokio::test]
async fn names_are_listed_without_opening_a_value() {
    let site = Site::new(STORES[0]).await;
    let (secrets, place) = (secrets(&site, 0), site.place(0));
    secrets.set(WorkspaceId::DEFAULT, &name(), &secret(VALUE), None).await.unwrap();
    let (row, text) = rows(&place).await.remove(0);
    let (head, _) = text.rsplit_once('.').unwrap();
    place.swap(&row, &text, &format!("{head}.AAAA")).await.unwrap();
    assert_eq!(secrets.names(WorkspaceId::DEFAULT).await.unwrap()[0].name, name());
    assert_eq!(kind(secrets.value(WorkspaceId::DEFAULT, &name()).await), ErrorKind::Corrupt);
    assert!(audit(&storage(&site, "acme", START)).await.is_empty(), "nothing was read");
}

/// A store that takes no entry.
#[derive(Debug)]
struct Full(Arc<dyn SessionStore>, ErrorKind);

#[async_trait]
impl SessionStoreWrapper for Full {
    fn inner(&self) -> &dyn SessionStore {
        &*self.0
    }

    async fn commit(&self, _: Commit) -> Result<Committed> {
        Err(Error::new(self.1.clone(), "no entry, says the test"))
    }
}

/// Each value that is given has its entry; without one, no value is given, whatever the way.
#[tokio::test]
async fn no_value_is_read_without_an_entry_in_the_audit() {
    for store in STORES {
        let site = Site::new(store).await;
        let (secrets, plain) = (secrets(&site, 0), storage(&site, "acme", START));
        for value in [VALUE, SECOND] {
            secrets.set(other(), &name(), &secret(value), None).await.unwrap();
        }
        secrets.names(other()).await.unwrap();
        assert!(audit(&plain).await.is_empty(), "{store}: no value was read");
        secrets.value(other(), &name()).await.unwrap();
        let bob = secrets.clone().with_actor("user:bob".parse().unwrap());
        bob.value_of_version(other(), &name(), 1).await.unwrap();
        let revealed = Secrets::new(secrets.clone()).reveal(other(), &name()).await.unwrap();
        assert_eq!(revealed.expose(), SECOND);
        secrets.value(WorkspaceId::DEFAULT, &name()).await.unwrap_err();
        let entry = |actor: &str, version| {
            (actor.to_owned(), "secret.read".to_owned(), other(), NAME.to_owned(), version)
        };
        let expected = [entry("user:alice", 2), entry("user:bob", 1), entry("user:alice", 2)];
        assert_eq!(audit(&plain).await, expected, "{store}");

        for (fails, shown) in [
            (ErrorKind::Unavailable, ErrorKind::Unavailable),
            (ErrorKind::Full, ErrorKind::Full),
            (ErrorKind::NotFound, ErrorKind::Denied),
            (ErrorKind::Corrupt, ErrorKind::Denied),
        ] {
            let full =
                plain.clone().with_session_store(Arc::new(Full(plain.sessions.store().clone(), fails)));
            let unheard = over(site.place(0), &full);
            assert_eq!(kind(unheard.value(other(), &name()).await), shown, "{store}");
            assert_eq!(kind(unheard.value_of_version(other(), &name(), 1).await), shown, "{store}");
            assert_eq!(kind(Secrets::new(unheard).reveal(other(), &name()).await), shown, "{store}");
        }
        assert_eq!(audit(&plain).await.len(), 3, "{store}");
    }
}

/// A new version is the value; former ones are read by their number, until each is removed or seven newer ones are there.
#[tokio::test]
async fn former_versions_are_readable_until_they_are_removed() {
    for store in STORES {
        let site = Site::new(store).await;
        let (secrets, at) = (secrets(&site, 0), WorkspaceId::DEFAULT);
        for n in 1..=10 {
            assert_eq!(secrets.set(at, &name(), &secret(&format!("{VALUE} {n}")), None).await.unwrap(), n);
        }
        let read = async |version| secrets.value_of_version(at, &name(), version).await;
        assert_eq!(secrets.value(at, &name()).await.unwrap().expose(), format!("{VALUE} 10"), "{store}");
        assert_eq!(read(3).await.unwrap().expose(), format!("{VALUE} 3"), "{store}");
        for gone in [0, 1, 2, 11] {
            assert_eq!(kind(read(gone).await), ErrorKind::NotFound, "{store}");
        }
        assert!(secrets.remove_version(at, &name(), 10).await.unwrap());
        assert!(!secrets.remove_version(at, &name(), 10).await.unwrap());
        assert_eq!(kind(read(10).await), ErrorKind::NotFound, "{store}");
        assert_eq!(secrets.value(at, &name()).await.unwrap().expose(), format!("{VALUE} 9"), "{store}");
        for version in 3..=9 {
            assert!(secrets.remove_version(at, &name(), version).await.unwrap(), "{store}");
        }
        assert!(secrets.names(at).await.unwrap().is_empty(), "{store}: the last version is the secret");
        assert!(!secrets.remove(at, &name()).await.unwrap());
    }
}

/// From its time on a value is refused, also for a run; the former version is not, if it has no such time.
#[tokio::test]
async fn expired_secrets_are_refused_by_name() {
    for store in STORES {
        let site = Site::new(store).await;
        let (early, at) = (secrets(&site, 0), WorkspaceId::DEFAULT);
        let expires = START.plus_micros(60_000_000);
        early.set(at, &name(), &secret(VALUE), None).await.unwrap();
        early.set(at, &name(), &secret(SECOND), Some(expires)).await.unwrap();
        assert_eq!(early.value(at, &name()).await.unwrap().expose(), SECOND, "{store}");
        let late = over(site.place(1), &storage(&site, "acme", expires));
        for error in [
            late.value(at, &name()).await.unwrap_err(),
            late.value_of_version(at, &name(), 2).await.unwrap_err(),
            Secrets::new(late.clone()).reveal(at, &name()).await.unwrap_err(),
        ] {
            assert_eq!(*error.kind(), ErrorKind::Denied, "{store}");
            let text = error.to_string();
            assert!(text.contains(NAME) && text.contains("expired") && !text.contains("xyzzy"), "{text}");
        }
        assert_eq!(late.value_of_version(at, &name(), 1).await.unwrap().expose(), VALUE, "{store}");
        late.set(at, &name(), &secret(VALUE), None).await.unwrap();
        assert_eq!(late.value(at, &name()).await.unwrap().expose(), VALUE, "{store}");
    }
}

/// Every file of the place has neither a value nor a name, in no usual form; what was removed leaves no sealed bytes either.
#[tokio::test]
async fn files_hold_neither_names_nor_values() {
    for store in SEEN {
        let (site, elsewhere) = (Site::new(store).await, Site::new(store).await);
        // The audit names secrets; it is in another store here.
        let secrets = over(site.place(0), &storage(&elsewhere, "acme", START));
        for value in [VALUE, SECOND] {
            secrets.set(other(), &name(), &secret(value), None).await.unwrap();
            secrets.value(other(), &name()).await.unwrap();
        }
        secrets.names(other()).await.unwrap();
        let (row, text) = rows(&site.place(0)).await.remove(0);
        let sealed: Vec<_> = text.split('.').skip(1).map(str::to_owned).collect();
        assert_eq!(sealed.len(), 3, "the head and two values");
        let hidden = async |what: &str| {
            for form in [
                what.to_owned(),
                STANDARD_NO_PAD.encode(what),
                URL_SAFE_NO_PAD.encode(what),
                what.bytes().map(|byte| format!("{byte:02x}")).collect(),
            ] {
                let found = site.places_with(form.as_bytes()).await;
                assert!(found.is_empty(), "{store}: {form} is in {found:?}");
            }
        };
        for what in [VALUE, SECOND, "xyzzy", NAME, "plugh"] {
            hidden(what).await;
        }
        assert!(!site.places_with(sealed[1].as_bytes()).await.is_empty(), "{store}: sealed, it is there");
        assert!(!row.contains(NAME) && !format!("{secrets:?}").contains(NAME), "{secrets:?}");

        assert!(secrets.remove(other(), &name()).await.unwrap());
        site.backends[0].maintain().await.unwrap();
        for part in &sealed {
            assert!(site.places_with(part.as_bytes()).await.is_empty(), "{store}: {part} is left");
        }
    }
}

/// A removed secret is gone for every process, and can be set again.
#[tokio::test]
async fn a_removed_secret_can_be_set_again() {
    for store in STORES {
        let site = Site::new(store).await;
        let (one, two, at) = (secrets(&site, 0), secrets(&site, 1), WorkspaceId::DEFAULT);
        for value in [VALUE, SECOND, VALUE] {
            assert_eq!(one.set(at, &name(), &secret(value), None).await.unwrap(), 1, "{store}");
            assert_eq!(two.value(at, &name()).await.unwrap().expose(), value, "{store}");
            assert!(two.remove(at, &name()).await.unwrap());
            assert!(!one.remove(at, &name()).await.unwrap());
            assert_eq!(kind(one.value(at, &name()).await), ErrorKind::NotFound, "{store}");
            assert!(one.names(at).await.unwrap().is_empty(), "{store}");
        }
    }
}

/// A rotation or a removal that is cut at any call leaves the secret as before or as after, and the same call finishes it.
#[tokio::test]
async fn a_cut_rotation_leaves_one_of_both_versions_readable() {
    for store in STORES {
        for (removes, cut) in [false, true].into_iter().flat_map(|removes| Cut::ALL.map(|cut| (removes, cut)))
        {
            for call in 1.. {
                let (site, at) = (Site::new(store).await, WorkspaceId::DEFAULT);
                let whole = secrets(&site, 1);
                whole.set(at, &name(), &secret(VALUE), None).await.unwrap();
                let cutting = Cutting::new(site.workspaces(0), call, cut);
                let dying = over(StorePlace::new(cutting.clone()), &storage(&site, "acme", START));
                let result = match removes {
                    true => dying.remove(at, &name()).await.map(|_| ()),
                    false => dying.set(at, &name(), &secret(SECOND), None).await.map(|_| ()),
                };
                let which = format!("{store}, {removes}, {cut:?} at {call}");
                if !cutting.was_cut() {
                    assert!(call > 2 && result.is_ok(), "{which}: {result:?}");
                    break;
                }
                let after = secrets(&site, 1);
                match (after.value(at, &name()).await, removes) {
                    (Ok(value), _) if value.expose() == VALUE => {}
                    (Ok(value), false) if value.expose() == SECOND => {
                        assert_eq!(
                            after.value_of_version(at, &name(), 1).await.unwrap().expose(),
                            VALUE,
                            "{which}"
                        );
                    }
                    (Err(error), true) if *error.kind() == ErrorKind::NotFound => {}
                    (other, _) => panic!("{which}: {other:?}"),
                }
                match removes {
                    true => drop(after.remove(at, &name()).await.unwrap()),
                    false => drop(after.set(at, &name(), &secret(SECOND), None).await.unwrap()),
                }
                let value = after.value(at, &name()).await.ok();
                assert_eq!(
                    value.map(|value| value.expose() == SECOND),
                    (!removes).then_some(true),
                    "{which}"
                );
            }
        }
    }
}

/// Of changes and reads at once none is lost: each version has its number, and each reading its entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_and_reads_at_once_are_all_counted() {
    for store in STORES {
        let (site, at) = (Site::new(store).await, WorkspaceId::DEFAULT);
        let set = |n: usize| {
            let secrets = secrets(&site, n);
            tokio::spawn(async move {
                secrets.set(at, &name(), &secret(&format!("{VALUE} {n}")), None).await.unwrap()
            })
        };
        let versions: Vec<u64> = join_all((0..6).map(set)).await.into_iter().map(|it| it.unwrap()).collect();
        assert_eq!(versions.iter().copied().collect::<BTreeSet<_>>(), (1..=6).collect(), "{store}");
        let read = |n: usize| {
            let (secrets, version) = (secrets(&site, n), versions[n]);
            tokio::spawn(async move { secrets.value_of_version(at, &name(), version).await.unwrap() })
        };
        let values = join_all((0..6).map(read)).await;
        for (n, value) in values.into_iter().enumerate() {
            assert_eq!(value.unwrap().expose(), format!("{VALUE} {n}"), "{store}");
        }
        assert_eq!(audit(&storage(&site, "acme", START)).await.len(), 6, "{store}");
    }
}

/// What was sealed for one place is refused in every other: another secret, workspace or version.
#[tokio::test]
async fn a_value_in_another_place_is_damage() {
    let site = Site::new(STORES[0]).await;
    let (secrets, place, at) = (secrets(&site, 0), site.place(0), WorkspaceId::DEFAULT);
    for value in [VALUE, SECOND] {
        secrets.set(at, &name(), &secret(value), None).await.unwrap();
    }
    let (row, text) = rows(&place).await.remove(0);
    let parts: Vec<_> = text.split('.').collect();
    let turned = [parts[0], parts[1], parts[3], parts[2]].join(".");
    place.swap(&row, &text, &turned).await.unwrap();
    assert_eq!(kind(secrets.value(at, &name()).await), ErrorKind::Corrupt, "another version");
    place.swap(&row, &turned, &text).await.unwrap();
    assert_eq!(secrets.value(at, &name()).await.unwrap().expose(), SECOND);

    for (workspace, which) in [(at, "other"), (other(), NAME)] {
        let which: SecretName = which.parse().unwrap();
        secrets.set(workspace, &which, &secret("another value"), None).await.unwrap();
        let (found, old) = rows(&place).await.into_iter().find(|(name, _)| *name != row).unwrap();
        place.swap(&found, &old, &text).await.unwrap();
        for error in [
            secrets.value(workspace, &which).await.unwrap_err(),
            secrets.set(workspace, &which, &secret(VALUE), None).await.unwrap_err(),
            secrets.names(workspace).await.unwrap_err(),
        ] {
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "{which}");
        }
        assert_eq!(
            place.get(&found).await.unwrap(),
            Some(KeyRow::Present(text.clone())),
            "it is not overwritten"
        );
        place.swap(&found, &text, &old).await.unwrap();
        secrets.remove(workspace, &which).await.unwrap();
    }
}

/// A wrong root key opens nothing and writes nothing.
#[tokio::test]
async fn a_wrong_root_key_reads_and_writes_nothing() {
    for store in STORES {
        let (site, at) = (Site::new(store).await, WorkspaceId::DEFAULT);
        secrets(&site, 0).set(at, &name(), &secret(VALUE), None).await.unwrap();
        let before = rows(&site.place(0)).await;
        let keys = Keys::new(KeyRing::from_bytes([8; 32]), Arc::new(site.place(1)), tenant("acme"));
        let wrong = WorkspaceSecrets::new(keys, &storage(&site, "acme", START), "user".parse().unwrap());
        for result in [
            wrong.value(at, &name()).await.map(|_| ()),
            wrong.set(at, &name(), &secret(SECOND), None).await.map(|_| ()),
            wrong.names(at).await.map(|_| ()),
            wrong.remove(at, &name()).await.map(|_| ()),
        ] {
            assert_eq!(*result.unwrap_err().kind(), ErrorKind::Denied, "{store}");
        }
        assert_eq!(rows(&site.place(0)).await, before, "{store}");
    }
}

/// With the keys and the audit of an encrypted backend no file has a value or a name, that of the audit included.
#[tokio::test]
async fn files_of_a_vault_hold_no_names_in_the_audit_either() {
    for store in SEEN {
        let site = Site::new(store).await;
        let vault = Vault::open(site.backends[0].clone(), KeyRing::from_bytes([7; 32])).await.unwrap();
        let (acme, storage) = (tenant("acme"), vault.tenant(&tenant("acme")));
        let secrets = WorkspaceSecrets::new(vault.keys(&acme), &storage, "user:alice".parse().unwrap());
        secrets.set(other(), &name(), &secret(VALUE), None).await.unwrap();
        assert_eq!(secrets.value(other(), &name()).await.unwrap().expose(), VALUE, "{store}");
        let entries = audit(&storage).await;
        assert_eq!(
            entries,
            [("user:alice".to_owned(), "secret.read".to_owned(), other(), NAME.to_owned(), 1)]
        );
        for what in ["xyzzy", "plugh"] {
            let found = site.places_with(what.as_bytes()).await;
            assert!(found.is_empty(), "{store}: {what} is in {found:?}");
        }
    }
}
