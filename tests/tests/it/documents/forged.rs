//! Forged documents with checksums that fit: nothing of them is stored, and no other session is touched.

use std::sync::Arc;

use agent_admin::copy::StoreCopy;
use agent_admin::manifest::{ImportOutcome, Manifest};
use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::Patch;
use agent_core::session::{NewSession, SessionRecord, SessionSummary};
use agent_core::state::Reason;
use agent_core::store::{Page, SessionQuery, SessionStoreWrapper};
use agent_core::{
    ErrorKind, MemoryStore, Result, SessionId, SessionStore, SessionStoreExt, Storage, WorkspaceId,
    async_trait,
};
use serde_json::Value;

/// A session with two runs, a document of its own, and a fork.
async fn family(store: &MemoryStore, effects: &Effects) -> (Arc<SessionRecord>, Arc<SessionRecord>) {
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    let mut session = store.sessions(effects).create(new).await.unwrap();
    for n in 0..2 {
        let run = effects.new_run_id();
        let prompt = Commit::seal(effects, session.id, session.head)
            .with_event(NewEvent::user_message(format!("question {n}")))
            .with_trigger(Trigger::BeginRun(LeaseRequest::new("test", run)));
        session = store.commit(prompt).await.unwrap().session;
        let answer = Commit::seal(effects, session.id, session.head)
            .with_fence(run, session.epoch)
            .with_event(NewEvent::agent_message("answer"))
            .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
        session = store.commit(answer).await.unwrap().session;
    }
    let fork = store.sessions(effects).fork(session.id, None).await.unwrap();
    let events = vec![NewEvent::agent_message("in the fork")];
    let fork = store.sessions(effects).append(fork.id, fork.head, events).await.unwrap().session;
    (session, fork)
}

/// The document, changed by a forger, with a checksum that fits.
fn forged(document: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut value: Value = serde_json::from_str(document).unwrap();
    change(&mut value);
    value.as_object_mut().unwrap().remove("crc32c");
    // The order of the keys is for readers; that the checksum comes last is the form.
    let mut body = value.to_string();
    body.pop();
    let crc = crc32c::crc32c(body.as_bytes());
    body.push_str(&format!(",\"crc32c\":\"{crc:08x}\"}}\n"));
    body
}

/// The first event whose transition has this field, and the transition.
fn transition<'a>(document: &'a mut Value, field: &str) -> &'a mut Value {
    let events = document["events"].as_array_mut().unwrap();
    let found = events.iter_mut().find(|event| !event["transition"][field].is_null());
    &mut found.unwrap_or_else(|| panic!("no event with {field}"))["transition"]
}

fn last(document: &mut Value) -> &mut Value {
    document["events"].as_array_mut().unwrap().last_mut().unwrap()
}

fn created(document: &mut Value) -> &mut Value {
    &mut document["events"][0]["data"]
}

/// Contract 5 and 6: a number that no log comes to is refused before anything is stored, in every field that counts.
#[tokio::test]
async fn forged_numbers_are_refused_whole() {
    let (here, effects) = (MemoryStore::new(), Effects::default());
    let (session, fork) = family(&here, &effects).await;
    let own = Manifest::export(&here, session.id).await.unwrap().to_json().unwrap();
    let of_fork = Manifest::export(&here, fork.id).await.unwrap().to_json().unwrap();
    assert_eq!(
        Manifest::parse(&forged(&own, |_| {})).unwrap().session,
        session,
        "what is not changed is read"
    );
    type Change = fn(&mut Value);
    let changes: Vec<(&str, &str, Change)> = vec![
        ("epoch", &own, |d| transition(d, "lease")["lease"]["epoch"] = u64::MAX.into()),
        ("a jump of the epoch", &own, |d| transition(d, "lease")["lease"]["epoch"] = (1_u64 << 40).into()),
        ("another epoch than the lease's", &own, |d| {
            let t = transition(d, "lease");
            t["epoch"] = 7.into();
            t["lease"]["epoch"] = 0.into();
        }),
        ("ttl", &own, |d| transition(d, "lease")["lease"]["ttl_ms"] = u64::MAX.into()),
        ("no ttl", &own, |d| transition(d, "lease")["lease"]["ttl_ms"] = 0.into()),
        ("inputs_claimed_through", &own, |d| {
            transition(d, "inputs_claimed_through")["inputs_claimed_through"] = u64::MAX.into();
        }),
        ("inputs_done_through", &own, |d| {
            transition(d, "inputs_done_through")["inputs_done_through"] = 1_000.into();
        }),
        ("inputs_open", &own, |d| transition(d, "inputs_done_through")["inputs_open"] = u64::MAX.into()),
        ("inputs_new", &own, |d| transition(d, "lease")["inputs_new"] = u64::MAX.into()),
        ("attempts", &own, |d| transition(d, "lease")["attempts"] = u32::MAX.into()),
        ("depth", &own, |d| created(d)["depth"] = u32::MAX.into()),
        ("made from itself", &own, |d| {
            let id = d["session"]["id"].clone();
            created(d)["origin"] = serde_json::json!({ "kind": "child", "parent": id });
            created(d)["depth"] = 1.into();
        }),
        ("inherited messages", &of_fork, |d| created(d)["inherited"]["counts"]["user"] = u64::MAX.into()),
        ("inherited input", &of_fork, |d| created(d)["inherited"]["last_input"] = u64::MAX.into()),
        ("inherited place", &of_fork, |d| created(d)["inherited"]["visible_from"] = u64::MAX.into()),
        ("depth of a fork", &of_fork, |d| created(d)["depth"] = 7.into()),
        ("no depth of a fork", &of_fork, |d| created(d)["depth"] = 0.into()),
        // In the last commit, behind others that could be stored.
        ("a text that no event holds", &own, |d| last(d)["data"]["text"] = "x".repeat(17 << 20).into()),
        ("a payload that is too deep", &own, |d| {
            last(d)["data"]["more"] = serde_json::from_str(&("[".repeat(110) + &"]".repeat(110))).unwrap();
        }),
        ("a text of another type", &own, |d| last(d)["data"]["text"] = 7.into()),
        ("no place in its commit", &own, |d| last(d)["n"] = 0.into()),
        ("more events in its commit", &own, |d| last(d)["of"] = (1_u32 << 31).into()),
        ("an unknown trigger", &own, |d| last(d)["transition"]["trigger"] = "ascend".into()),
        ("an unknown state", &own, |d| last(d)["transition"]["to"] = "floating".into()),
        ("an ancestor under another id", &of_fork, |d| {
            d["ancestors"][0]["session"] = "019c60d9-9c41-715c-8289-ec2d0a9167ed".into();
        }),
        ("a run that nobody holds", &own, |d| {
            let begins = transition(d, "lease");
            begins.as_object_mut().unwrap().remove("lease");
            let run = begins.clone();
            // Nobody ends it either.
            let events = d["events"].as_array_mut().unwrap();
            let at = events.iter().position(|event| event["transition"] == run).unwrap();
            events.truncate(at + 1);
            let head = events[at]["seq"].clone();
            d["session"]["head"] = head;
        }),
        ("another id of an event", &own, |d| {
            last(d)["id"] = "019c60d9-9c41-715c-8289-ec2d0a9167ed".into();
        }),
        ("another point of the fork", &of_fork, |d| created(d)["origin"]["at"] = 3.into()),
    ];
    for (what, document, change) in changes {
        let text = forged(document, change);
        assert_ne!(text, forged(document, |_| {}), "{what}: nothing was changed");
        let there = MemoryStore::new();
        let refused = match Manifest::parse(&text) {
            Ok(manifest) => manifest.import(&there).await.expect_err(what),
            Err(error) => error,
        };
        let named =
            [ErrorKind::Corrupt, ErrorKind::InvalidInput, ErrorKind::LimitExceeded, ErrorKind::Unsupported];
        let named = [&named[..], &[ErrorKind::NotFound]].concat();
        assert!(named.contains(refused.kind()), "{what}: {refused}");
        let text = refused.to_string();
        assert!([session.id, fork.id].iter().any(|id| text.contains(&id.to_string())), "{what}: {text}");
        let all = SessionStore::list(&there, SessionQuery::new().with_hidden()).await.unwrap();
        assert_eq!(all.items, [], "{what}: something was stored");
    }
}

/// A stranger's document neither takes the id of a hidden session, which then could not be made, nor fills a hidden session.
#[tokio::test]
async fn document_cannot_become_a_hidden_session() {
    use agent_core::store::HiddenSession;

    let (here, there, effects) = (MemoryStore::new(), MemoryStore::new(), Effects::default());
    let hidden = HiddenSession::agent(WorkspaceId::DEFAULT, "helper");
    let new = NewSession::new(hidden.id(), WorkspaceId::DEFAULT);
    here.sessions(&effects).create(new).await.unwrap();
    let document = Manifest::export(&here, hidden.id()).await.unwrap();
    let refused = document.import(&there).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused}");
    assert!(refused.to_string().contains(&hidden.id().to_string()), "{refused}");
    let hidden = hidden.open(&there.sessions(&effects)).await.unwrap();

    // Whoever trusts the document says so.
    let document = Manifest::export(&there, hidden.id).await.unwrap();
    let elsewhere = MemoryStore::new();
    document.import(&elsewhere).await.unwrap_err();
    assert_eq!(document.import_with_ancestors(&elsewhere).await.unwrap().session, hidden);
}

/// A document of a fork brings its parent along if that is not there, and adds nothing to one that is.
#[tokio::test]
async fn a_document_writes_to_its_own_session_only() {
    let (here, there, effects) = (MemoryStore::new(), MemoryStore::new(), Effects::default());
    let (session, fork) = family(&here, &effects).await;
    // The parent as it was before its last commit is in the other store, and is somebody's there.
    let whole = Manifest::export(&here, session.id).await.unwrap();
    let mut commits: Vec<_> = whole.events.chunk_by(|a, b| a.commit == b.commit).collect();
    let last = commits.pop().unwrap();
    for events in commits {
        there.commit(Commit::restore(session.id, events.to_vec()).unwrap()).await.unwrap();
    }
    let before = SessionStore::load(&there, session.id).await.unwrap();
    let document = Manifest::export(&here, fork.id).await.unwrap();
    let refused = document.import(&there).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Conflict { head: Some(before.head) }, "{refused}");
    let text = refused.to_string();
    assert!(text.contains(&session.id.to_string()) && text.contains("import_with_ancestors"), "{text}");
    assert_eq!(SessionStore::load(&there, session.id).await.unwrap(), before, "nothing was written");
    assert_eq!(*SessionStore::load(&there, fork.id).await.unwrap_err().kind(), ErrorKind::NotFound);

    // Whoever knows that an earlier import was cut off says so.
    let imported = document.import_with_ancestors(&there).await.unwrap();
    assert_eq!(imported.outcome, ImportOutcome::New, "the session itself; its parent was completed");
    let after = SessionStore::load(&there, session.id).await.unwrap();
    assert_eq!(after.head.get(), before.head.get() + last.len() as u64);
    assert_eq!(SessionStore::load(&there, fork.id).await.unwrap(), fork);
}

/// A family in which each is the other's parent is refused, and so is a parent that is not there.
#[tokio::test]
async fn cyclic_parents_are_refused() {
    let (here, effects) = (MemoryStore::new(), Effects::default());
    let (session, _) = family(&here, &effects).await;
    let child = here.sessions(&effects).create_child(session.id, Patch::new()).await.unwrap();
    let document = Manifest::export(&here, child.id).await.unwrap().to_json().unwrap();
    let of_child = serde_json::json!({ "kind": "child", "parent": child.id });
    let circle = forged(&document, |d| {
        let parent = &mut d["ancestors"][0]["events"][0]["data"];
        parent["origin"] = of_child;
        parent["depth"] = 2.into();
    });
    let nobody = forged(&document, |d| d["ancestors"] = Value::Array(Vec::new()));
    for (what, text) in [("a circle", circle), ("no parent", nobody)] {
        let there = MemoryStore::new();
        let refused = match Manifest::parse(&text) {
            Ok(manifest) => manifest.import(&there).await.expect_err(what),
            Err(error) => error,
        };
        let text = refused.to_string();
        assert!([session.id, child.id].iter().any(|id| text.contains(&id.to_string())), "{what}: {text}");
        let all = SessionStore::list(&there, SessionQuery::new().with_hidden()).await.unwrap();
        assert_eq!(all.items, [], "{what}: something was stored");
    }
}

/// A store in which two sessions are each other's parent, as no store writes it.
#[derive(Debug)]
struct Circle {
    inner: MemoryStore,
    of: [SessionId; 2],
}

#[async_trait]
impl SessionStoreWrapper for Circle {
    fn inner(&self) -> &dyn SessionStore {
        &self.inner
    }

    async fn load(&self, id: SessionId) -> Result<Arc<SessionRecord>> {
        let mut session = SessionStore::load(&self.inner, id).await?;
        if let Some(at) = self.of.iter().position(|of| *of == id) {
            let other = SessionStore::load(&self.inner, self.of[1 - at]).await?;
            let session = Arc::make_mut(&mut session);
            session.origin = NewSession::child(id, &other).created.origin;
            session.depth = 1;
        }
        Ok(session)
    }

    async fn list(&self, query: SessionQuery) -> Result<Page<SessionSummary>> {
        let mut page = SessionStore::list(&self.inner, query).await?;
        for item in &mut page.items {
            item.origin = SessionStore::load(self, item.id).await?.origin;
        }
        Ok(page)
    }
}

/// A copy of a store in which parents go round in a circle ends, and names them.
#[tokio::test]
async fn copy_of_cyclic_parents_terminates() {
    let (inner, effects) = (MemoryStore::new(), Effects::default());
    let mut of = Vec::new();
    for _ in 0..2 {
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        of.push(inner.sessions(&effects).create(new).await.unwrap().id);
    }
    let mut from: Storage = inner.clone().into();
    from = from.with_session_store(std::sync::Arc::new(Circle { inner, of: [of[0], of[1]] }));
    let to: Storage = MemoryStore::new().into();
    let copy = StoreCopy::new(from, to);
    let report = tokio::time::timeout(std::time::Duration::from_secs(60), copy.run()).await;
    let report = report.expect("the copy goes round and round").unwrap();
    let named: Vec<_> = report.refused.iter().map(|refused| refused.object.clone()).collect();
    for id in of {
        assert!(named.iter().any(|object| object.contains(&id.to_string())), "{report:?}");
    }
}
