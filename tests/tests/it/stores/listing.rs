//! Lists that count what they show, and sessions found by what they are called.

use agent_core::clock::Effects;
use agent_core::commit::Trigger;
use agent_core::event::{EventType, NewEvent};
use agent_core::model::{Patch, Title};
use agent_core::session::NewSession;
use agent_core::state::{Reason, SessionState};
use agent_core::store::{ReadEvents, SessionQuery};
use agent_core::{ErrorKind, SessionId, SessionStoreExt, Storage, WorkspaceId};
use agent_runtime::views::find_sessions;
use agent_tests::{Site, each_store};

async fn named(storage: &Storage, effects: &Effects, title: &str, ticket: &str, user: &str) -> SessionId {
    let patch = Patch::new()
        .with_title(Title::by_user(title))
        .with_reference("ticket", ticket)
        .with_label("owner", user);
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT).with_patch(&patch);
    storage.sessions.create(new).await.unwrap().id
}

/// A list with its total, one session with its turns page by page, its deletion; the totals respect the filter, before
/// and after.
async fn lists_details_turns_and_deletion_agree(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let mut ids = Vec::new();
    for n in 0..7 {
        let user = if n % 2 == 0 { "alice" } else { "bob" };
        ids.push(named(&storage, &effects, &format!("session {n}"), "x", user).await);
    }
    let of = |user: &str| SessionQuery::new().with_label("owner", user).with_total().with_limit(3);
    let first = storage.sessions.list(of("alice")).await.unwrap();
    assert_eq!((first.items.len(), first.total), (3, Some(4)), "{}", site.name);
    let rest = storage.sessions.list(of("alice").with_cursor(first.next)).await.unwrap();
    assert_eq!((rest.items.len(), rest.total, rest.next), (1, Some(4), None), "{}", site.name);

    let mut head = storage.sessions.load(ids[0]).await.unwrap().head;
    for n in 0..5 {
        let messages = vec![NewEvent::user_message(format!("turn {n}"))];
        head = storage.sessions.append(ids[0], head, messages).await.unwrap().last;
    }
    let (mut read, mut turns) = (Some(ReadEvents::last(2).with_types([EventType::USER_MESSAGE])), Vec::new());
    while let Some(next) = read {
        let page = storage.sessions.history(ids[0], next).await.unwrap();
        turns.extend(page.events.iter().rev().map(|event| event.payload.get().to_owned()));
        read = page.next;
    }
    assert_eq!(turns.len(), 5, "{}", site.name);
    assert!(turns[0].contains("turn 4") && turns[4].contains("turn 0"), "{}: {turns:?}", site.name);

    let delete = Trigger::Delete(Reason::UserDeleted);
    let deleted = storage.sessions.trigger(ids[0], delete).await.unwrap().session;
    assert_eq!(deleted.status.state, SessionState::Deleted);
    assert_eq!(storage.sessions.list(of("alice")).await.unwrap().total, Some(3), "{}", site.name);
    assert_eq!(storage.sessions.list(of("bob")).await.unwrap().total, Some(3), "{}", site.name);
    let hidden = storage.sessions.list(of("alice").with_states([SessionState::Deleted])).await.unwrap();
    assert_eq!((hidden.total, hidden.items[0].id), (Some(1), ids[0]), "{}", site.name);
}

each_store!(lists_details_turns_and_deletion_agree);

/// Found by a part of the title or by the whole of a reference, taken as they are; of those that the query names,
/// and of no other's; page by page.
async fn sessions_are_found_by_title_and_reference(site: Site) {
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
            next = page.next.map(|cursor| query.with_cursor(Some(cursor)));
        }
        found.sort();
        found
    };
    let mut all = ids[..30].to_vec();
    all.sort();
    for limit in [1, 7, 1000] {
        let query = SessionQuery::new().with_limit(limit);
        assert_eq!(find(query.clone(), "pLAN").await, all, "{} {limit}", site.name);
        assert_eq!(find(query.clone().with_label("owner", "alice"), "plan").await.len(), 10, "{}", site.name);
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
    let elsewhere = SessionQuery::new().with_workspace(effects.new_workspace_id());
    assert_eq!(find(elsewhere, "plan").await, [], "of another workspace");
}

each_store!(sessions_are_found_by_title_and_reference);
