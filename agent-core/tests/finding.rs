//! Lists that count what they show, sessions found by what they are called, and configuration that stays as it was.
#![cfg(feature = "runtime")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod stores;

use agent_core::configuration::{ConfigLayer, ConfigLayers, LayeredConfig};
use agent_core::holdings::{CONFIG_DOCUMENT, DocumentWrite, Documents, frozen_config};
use agent_core::views::find_sessions;
use agent_core::*;
use proptest::prelude::*;
use stores::{new_session, sites};

async fn named(storage: &Storage, effects: &Effects, title: &str, ticket: &str, user: &str) -> SessionId {
    let said = Patch::new().title(Title::by_user(title)).reference("ticket", ticket).label("owner", user);
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT).with(&said);
    storage.sessions.create(effects, new).await.unwrap().id
}

/// F14: a list with its total, one session with its turns page by page, its deletion; the totals respect the filter, before
/// and after.
#[tokio::test]
async fn f14_lists_details_turns_and_deletion_agree() {
    for site in sites() {
        let (storage, effects) = (site.open().await, Effects::default());
        let mut ids = Vec::new();
        for n in 0..7 {
            let user = if n % 2 == 0 { "alice" } else { "bob" };
            ids.push(named(&storage, &effects, &format!("session {n}"), "x", user).await);
        }
        let of = |user: &str| SessionQuery::new().label("owner", user).with_total().limit(3);
        let first = storage.sessions.list(of("alice")).await.unwrap();
        assert_eq!((first.items.len(), first.total), (3, Some(4)), "{}", site.name);
        let rest = storage.sessions.list(of("alice").cursor(first.next)).await.unwrap();
        assert_eq!((rest.items.len(), rest.total, rest.next), (1, Some(4), None), "{}", site.name);

        let mut head = storage.sessions.load(ids[0]).await.unwrap().head;
        for n in 0..5 {
            let said = vec![NewEvent::user_message(format!("turn {n}"))];
            head = storage.sessions.append(&effects, ids[0], head, said).await.unwrap().last;
        }
        let (mut read, mut turns) = (Some(ReadEvents::last(2).kinds([EventType::USER_MESSAGE])), Vec::new());
        while let Some(next) = read {
            let page = storage.sessions.history(ids[0], next).await.unwrap();
            turns.extend(page.events.iter().rev().map(|event| event.data.get().to_owned()));
            read = page.next;
        }
        assert_eq!(turns.len(), 5, "{}", site.name);
        assert!(turns[0].contains("turn 4") && turns[4].contains("turn 0"), "{}: {turns:?}", site.name);

        let delete = Trigger::Delete(Reason::UserDeleted);
        let deleted = storage.sessions.trigger(&effects, ids[0], delete).await.unwrap().session;
        assert_eq!(deleted.status.state, SessionState::Deleted);
        assert_eq!(storage.sessions.list(of("alice")).await.unwrap().total, Some(3), "{}", site.name);
        assert_eq!(storage.sessions.list(of("bob")).await.unwrap().total, Some(3), "{}", site.name);
        let hidden = storage.sessions.list(of("alice").states([SessionState::Deleted])).await.unwrap();
        assert_eq!((hidden.total, hidden.items[0].id), (Some(1), ids[0]), "{}", site.name);
    }
}

/// F25: found by a part of the title or by the whole of a reference, taken as they are; of those that the query names,
/// and of no other's; page by page.
#[tokio::test]
async fn f25_sessions_are_found_by_what_they_are_called() {
    for site in sites() {
        let (storage, effects) = (site.open().await, Effects::default());
        let mut ids = Vec::new();
        for n in 0..30 {
            let user = if n % 3 == 0 { "alice" } else { "bob" };
            ids.push(named(&storage, &effects, &format!("Plan {n}"), &format!("T-{n}"), user).await);
        }
        let odd = ["100% _sure_", "a\\b'c\"; DROP TABLE sessions; --", "ÜBER* [안녕]?"];
        for title in odd {
            ids.push(named(&storage, &effects, title, title, "alice").await);
        }
        let find = async |query: SessionQuery, text: &str| {
            let (mut found, mut next) = (Vec::new(), Some(query));
            while let Some(query) = next {
                let page = find_sessions(&*storage.sessions, query.clone(), text).await.unwrap();
                assert!(page.items.len() <= 2 * query.limit);
                found.extend(page.items.iter().map(|session| session.id));
                next = page.next.map(|cursor| query.cursor(Some(cursor)));
            }
            found.sort();
            found
        };
        let mut all = ids[..30].to_vec();
        all.sort();
        for limit in [1, 7, 1000] {
            let query = SessionQuery::new().limit(limit);
            assert_eq!(find(query.clone(), "pLAN").await, all, "{} {limit}", site.name);
            assert_eq!(find(query.clone().label("owner", "alice"), "plan").await.len(), 10, "{}", site.name);
            assert_eq!(find(query.clone(), "T-7").await, [ids[7]], "{}", site.name);
            assert_eq!(find(query.clone(), "T-").await, [], "a reference is meant as a whole");
        }
        for (n, title) in odd.iter().enumerate() {
            assert_eq!(
                find(SessionQuery::new(), title.trim_start_matches('Ü')).await,
                [ids[30 + n]],
                "{}: {title}",
                site.name
            );
        }
        for pattern in ["%", "_", "*", ".", "Plan %", "Plan _", "^Plan", "Plan\\"] {
            let literally = odd.iter().filter(|title| title.contains(pattern)).count();
            assert_eq!(find(SessionQuery::new(), pattern).await.len(), literally, "{}: {pattern}", site.name);
        }
        for text in ["", &"x".repeat(1025)] {
            let refused = find_sessions(&*storage.sessions, SessionQuery::new(), text).await.unwrap_err();
            assert_eq!(*refused.kind(), ErrorKind::InvalidInput);
        }
        let elsewhere = SessionQuery::new().workspace(effects.new_workspace_id());
        assert_eq!(find(elsewhere, "plan").await, [], "of another workspace");
    }
}

fn config(global: &str, key: &str) -> LayeredConfig {
    let layers = ConfigLayers::new().global(global).unwrap();
    let layers = layers.secret("providers.*.keys").unwrap();
    layers.secret_variable("KEY", "providers.claude.key").unwrap().merge(|_| Some(key.to_owned())).unwrap()
}

/// N17, R25: what a session's configuration was stays, in a new process and in a fork, whatever the layers say; its secrets
/// are those of now, and are not in the log.
#[tokio::test]
async fn n17_r25_a_sessions_configuration_stays_as_it_was() {
    let effects = Effects::default();
    let then =
        config("model = 'opus'\nempty = {}\n[providers.claude]\nn = 1\nkeys = ['SECRET-a']", "SECRET-1");
    let now = config("model = 'haiku'\nnew = true\n[providers.claude]\nn = 2", "SECRET-2");
    for site in sites() {
        let storage = site.open().await;
        let id = new_session(&storage, &effects).await.id;
        let first = frozen_config(&storage.sessions, &effects, id, &then).await.unwrap();
        assert_eq!((first.text("model"), first.layer("model")), (Some("opus"), Some(ConfigLayer::Session)));
        let storage = site.open().await;
        let fork = storage.sessions.fork(&effects, id, None).await.unwrap().id;
        for id in [id, fork] {
            let kept = frozen_config(&storage.sessions, &effects, id, &now).await.unwrap();
            assert_eq!(kept.text("model"), Some("opus"), "{}", site.name);
            assert_eq!(kept.get("providers.claude.n").and_then(|n| n.as_integer()), Some(1), "{}", site.name);
            assert!(kept.get("new").is_none() && kept.get("empty").is_some(), "{}", site.name);
            assert_eq!(kept.text("providers.claude.key"), Some("SECRET-2"), "{}", site.name);
            assert_eq!(kept.layer("providers.claude.key"), Some(ConfigLayer::Environment));
            assert!(!kept.explain().contains("SECRET"), "{}", kept.explain());
        }
        let log = stores::log(&storage, id).await;
        assert!(log.iter().all(|event| !event.to_json().contains("SECRET")), "{}", site.name);
        // What an agent writes under its name later changes nothing.
        let documents = Documents::new(storage.sessions.clone(), effects.clone(), id);
        documents.put(DocumentWrite::new(CONFIG_DOCUMENT, "model = 'mine'", Actor::AGENT)).await.unwrap();
        let kept = frozen_config(&storage.sessions, &effects, id, &now).await.unwrap();
        assert_eq!(kept.text("model"), Some("opus"), "{}", site.name);
        // And what it writes first is not taken.
        let other = new_session(&storage, &effects).await.id;
        let documents = Documents::new(storage.sessions.clone(), effects.clone(), other);
        documents.put(DocumentWrite::new(CONFIG_DOCUMENT, "model = 'mine'", Actor::AGENT)).await.unwrap();
        let refused = frozen_config(&storage.sessions, &effects, other, &now).await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidInput, "{}", site.name);
    }
}

/// N17: of many that open a session first, one decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n17_x03_one_of_many_decides_the_configuration() {
    for site in sites() {
        let (storage, effects) = (site.open().await, Effects::default());
        let id = new_session(&storage, &effects).await.id;
        let opened = futures::future::join_all((0..8).map(|n| {
            let (storage, effects) = (storage.clone(), effects.clone());
            tokio::spawn(async move {
                let own = config(&format!("model = 'm{n}'"), "");
                frozen_config(&storage.sessions, &effects, id, &own)
                    .await
                    .unwrap()
                    .text("model")
                    .map(str::to_owned)
            })
        }));
        let models: std::collections::BTreeSet<_> =
            opened.await.into_iter().map(|model| model.unwrap().unwrap()).collect();
        assert_eq!(models.len(), 1, "{}: {models:?}", site.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// N17, X05: any values come back from a snapshot, and no text is taken for one without being TOML.
    #[test]
    fn n17_x05_any_configuration_comes_back(
        values in proptest::collection::btree_map(".{0,8}", (".{0,8}", any::<i64>(), any::<f64>().prop_filter("a number", |n| !n.is_nan())), 0..6),
        any in ".{0,60}",
    ) {
        let table = |(text, n, x): &(String, i64, f64)| {
            let x = vec![toml::Value::Float(*x)];
            let fields = [(format!("{text}!"), toml::Value::Integer(*n)), ("x".to_owned(), x.into())];
            toml::Value::Table(fields.into_iter().collect())
        };
        let text = values.iter().map(|(name, value)| (name.clone(), table(value))).collect::<toml::Table>().to_string();
        let then = ConfigLayers::new().global(&text).unwrap().merge(|_| None).unwrap();
        let now = ConfigLayers::new().merge(|_| None).unwrap();
        let kept = now.frozen(&then.snapshot()).unwrap();
        prop_assert_eq!(kept.values(), then.values());
        let _ = now.frozen(&any);
    }
}
