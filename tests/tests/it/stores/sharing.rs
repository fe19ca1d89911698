//! Resources that sessions mount or share, on each kind of store: mounts, handles, learnings.

use agent_tests::{Site, each_store};
use std::sync::{Arc, Mutex};

use crate::stores::shared::{agent, agent_with, check_record, new_session};
use agent_core::clock::Effects;
use agent_core::commit::Trigger;
use agent_core::event::{Learning, LearningKind};
use agent_core::json::RawJson;
use agent_core::model::{Access, Actor, ExternalHandle, Liveness, MOUNTS_MAX, MountOrigin, Patch, Title};
use agent_core::session::{NewSession, SessionRecord};
use agent_core::state::{Reason, SessionState};
use agent_core::store::{HiddenSession, SessionQuery};
use agent_core::{ErrorKind, Result, Seq, SessionId, Storage, WorkspaceId, async_trait};
use agent_runtime::learnings::Learnings;
use agent_runtime::mounts::{effective_mounts, freeze_mounts, update_scope};
use agent_runtime::{
    Config, Conversation, EchoProvider, Plugin, ScriptedProvider, ToolContext, ToolSpec, Turn,
};

use agent_core::model::Access::{Read, Write};
use agent_core::model::MountOrigin::{Objective, Project, Tenant};

/// A session of a project and an objective.
async fn session_of(
    storage: &Storage,
    effects: &Effects,
    labels: &[(&str, &str)],
    patch: Patch,
) -> Arc<SessionRecord> {
    let patch = labels.iter().fold(patch, |patch, (key, value)| patch.with_label(*key, *value));
    let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT).with_patch(&patch);
    storage.sessions.create(new).await.unwrap()
}

async fn scope(storage: &Storage, effects: &Effects, scope: &HiddenSession, patch: Patch) {
    update_scope(&storage.clone().with_effects(effects.clone()).sessions, scope, patch).await.unwrap();
}

async fn change(storage: &Storage, id: SessionId, patch: Patch) -> Arc<SessionRecord> {
    let now = storage.sessions.load(id).await.unwrap();
    storage.sessions.update(id, now.head, patch).await.unwrap().session
}

/// What is mounted in a session: name, access, origin.
async fn mounted(storage: &Storage, id: SessionId) -> Vec<(String, Access, MountOrigin)> {
    let session = storage.sessions.load(id).await.unwrap();
    let set = effective_mounts(&*storage.sessions, &session).await.unwrap();
    set.iter().map(|(name, mount)| (name.to_owned(), mount.access, mount.origin)).collect()
}

fn expect(mounts: &[(&str, Access, MountOrigin)]) -> Vec<(String, Access, MountOrigin)> {
    mounts.iter().map(|(name, access, origin)| ((*name).to_owned(), *access, *origin)).collect()
}

fn of_project() -> HiddenSession {
    HiddenSession::project(WorkspaceId::DEFAULT, "apollo")
}

fn of_objective() -> HiddenSession {
    HiddenSession::objective(WorkspaceId::DEFAULT, "apollo", "landing")
}

const LABELS: [(&str, &str); 2] = [("project", "apollo"), ("objective", "landing")];

/// Mounts are added and removed during a session's life, each with where it comes from; a change touches what it
/// names, an expectation that does not hold is refused, and all of it is there after a restart.
async fn mounts_are_added_and_removed_with_their_origin(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let session = session_of(&storage, &effects, &[], Patch::new().mount("kb:one", Read)).await;
    assert_eq!(mounted(&storage, session.id).await, expect(&[("kb:one", Read, MountOrigin::Session)]));
    let patch = Patch::new().mount("artifact:sha256:00", Write).mount("kb:one", Write);
    let now = change(&storage, session.id, patch).await;
    let stale = storage.sessions.update(session.id, session.head, Patch::new().unmount("kb:one"));
    assert!(matches!(stale.await.unwrap_err().kind(), ErrorKind::Conflict { .. }), "{}", site.name);
    let both = [("artifact:sha256:00", Write, MountOrigin::Session), ("kb:one", Write, MountOrigin::Session)];
    assert_eq!(mounted(&storage, session.id).await, expect(&both), "{}", site.name);
    let resources = now.attributes.resources.clone();
    let now = change(&storage, session.id, Patch::new().unmount("kb:one").unmount("unknown")).await;
    assert_eq!(now.attributes.resources, resources);
    drop(storage);
    let storage = site.open().await;
    assert_eq!(mounted(&storage, session.id).await, expect(&both[..1]), "{}", site.name);
    let many = (0..MOUNTS_MAX).fold(Patch::new(), |patch, n| patch.mount(format!("kb:{n}"), Read));
    for (patch, kind) in [
        (many, ErrorKind::LimitExceeded),
        (Patch::new().mount("", Read), ErrorKind::InvalidInput),
        (Patch::new().remove_mount("a\nb"), ErrorKind::InvalidInput),
        (Patch::new().mount("x".repeat(257), Read), ErrorKind::InvalidInput),
    ] {
        let now = storage.sessions.load(session.id).await.unwrap();
        let error = storage.sessions.update(session.id, now.head, patch).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{}", site.name);
    }
    check_record(&storage, session.id).await;
}

each_store!(mounts_are_added_and_removed_with_their_origin);

/// What is mounted is inherited + pinned - removed, from the tenant over the project and the objective to the session,
/// the nearest wins; the same records give the same set; other projects have no part in it.
async fn mounts_are_inherited_pinned_and_removed(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let session = session_of(&storage, &effects, &LABELS, Patch::new()).await;
    let stranger = session_of(&storage, &effects, &[("project", "gemini"), LABELS[1]], Patch::new()).await;
    let lone = session_of(&storage, &effects, &LABELS[1..], Patch::new()).await;
    assert_eq!(mounted(&storage, session.id).await, [], "nothing is mounted by itself");
    let tenant = Patch::new().mount("handbook", Read).mount("archive", Read).mount("notes", Read);
    scope(&storage, &effects, &HiddenSession::Tenant, tenant).await;
    let project = Patch::new().mount("handbook", Write).remove_mount("archive").mount("plans", Read);
    scope(&storage, &effects, &of_project(), project).await;
    scope(&storage, &effects, &of_objective(), Patch::new().mount("archive", Read).mount("moon", Write))
        .await;
    let all = [
        ("archive", Read, Objective),
        ("handbook", Write, Project),
        ("moon", Write, Objective),
        ("notes", Read, Tenant),
        ("plans", Read, Project),
    ];
    for _ in 0..3 {
        assert_eq!(mounted(&storage, session.id).await, expect(&all), "{}", site.name);
    }
    let of_tenant = [("archive", Read, Tenant), ("handbook", Read, Tenant), ("notes", Read, Tenant)];
    assert_eq!(mounted(&storage, stranger.id).await, expect(&of_tenant), "{}", site.name);
    assert_eq!(mounted(&storage, lone.id).await, expect(&of_tenant), "an objective is one of a project");

    let own =
        Patch::new().remove_mount("notes").remove_mount("moon").mount("plans", Write).mount("own", Read);
    change(&storage, session.id, own).await;
    let with_own = [
        ("archive", Read, Objective),
        ("handbook", Write, Project),
        ("own", Read, MountOrigin::Session),
        ("plans", Write, MountOrigin::Session),
    ];
    assert_eq!(mounted(&storage, session.id).await, expect(&with_own), "{}", site.name);
    // What was removed can be had again, from above or pinned; what is pinned no longer falls back.
    change(&storage, session.id, Patch::new().restore_mount("notes").unmount("plans").mount("moon", Read))
        .await;
    let back = [
        ("archive", Read, Objective),
        ("handbook", Write, Project),
        ("moon", Read, MountOrigin::Session),
        ("notes", Read, Tenant),
        ("own", Read, MountOrigin::Session),
        ("plans", Read, Project),
    ];
    assert_eq!(mounted(&storage, session.id).await, expect(&back), "{}", site.name);
    assert!(
        storage.sessions.list(SessionQuery::new()).await.unwrap().items.len() == 3,
        "scopes are not listed"
    );
}

each_store!(mounts_are_inherited_pinned_and_removed);

/// Inheritance is live or frozen, by choice: a frozen set stays as it was, also in a fork and after a restart, until
/// it is let go; what the session pins and removes works in both.
async fn inheritance_is_live_or_frozen_by_choice(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let runtime = agent(&storage, EchoProvider::new(), Config::default());
    let live = session_of(&storage, &effects, &LABELS, Patch::new()).await;
    let frozen = session_of(&storage, &effects, &LABELS, Patch::new()).await;
    scope(&storage, &effects, &of_project(), Patch::new().mount("plans", Read).mount("old", Read)).await;
    let chat = runtime.conversation_by_id(frozen.id).await.unwrap();
    freeze_mounts(&storage.sessions, frozen.id).await.unwrap();
    scope(
        &storage,
        &effects,
        &of_project(),
        Patch::new().mount("plans", Write).unmount("old").mount("new", Read),
    )
    .await;
    scope(&storage, &effects, &HiddenSession::Tenant, Patch::new().mount("handbook", Read)).await;
    let followed = [("handbook", Read, Tenant), ("new", Read, Project), ("plans", Write, Project)];
    assert_eq!(mounted(&storage, live.id).await, expect(&followed), "{}", site.name);
    let as_it_was = [("old", Read, Project), ("plans", Read, Project)];
    assert_eq!(mounted(&storage, frozen.id).await, expect(&as_it_was), "{}", site.name);
    let fork = chat.fork(None).await.unwrap();
    chat.update(Patch::new().remove_mount("old").mount("own", Write)).await.unwrap();
    drop((runtime, storage));

    let storage = site.open().await;
    let with_own = [("own", Write, MountOrigin::Session), ("plans", Read, Project)];
    assert_eq!(mounted(&storage, frozen.id).await, expect(&with_own), "{}", site.name);
    assert_eq!(mounted(&storage, fork.id()).await, expect(&as_it_was), "{}", site.name);
    change(&storage, frozen.id, Patch::new().freeze_mounts(None)).await;
    let let_go = [
        ("handbook", Read, Tenant),
        ("new", Read, Project),
        ("own", Write, MountOrigin::Session),
        ("plans", Write, Project),
    ];
    assert_eq!(mounted(&storage, frozen.id).await, expect(&let_go), "{}", site.name);
    check_record(&storage, frozen.id).await;
    // A scope that was deleted mounts nothing, and what cannot be read is no empty scope.
    storage.sessions.trigger(of_project().id(), Trigger::Delete(Reason::UserDeleted)).await.unwrap();
    assert_eq!(mounted(&storage, live.id).await, expect(&[("handbook", Read, Tenant)]), "{}", site.name);
}

each_store!(inheritance_is_live_or_frozen_by_choice);

/// A tool that asks what is mounted before it touches anything.
#[derive(Debug, Default)]
struct Careful(Mutex<Vec<(String, bool, bool)>>);

#[async_trait]
impl Plugin for Careful {
    fn name(&self) -> &'static str {
        "careful"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("open", "opens a resource")]
    }

    async fn call(&self, _: &str, input: RawJson, context: ToolContext) -> Result<RawJson> {
        let resource: String = input.to()?;
        let (read, write) =
            (context.is_mounted(&resource, Read).await, context.is_mounted(&resource, Write).await);
        self.0.lock().unwrap().push((resource, read, write));
        RawJson::of(&read)
    }
}

/// A tool learns whether a resource is mounted, for reading or for writing; what is not is denied, and so is
/// everything where nobody can tell.
async fn tools_are_denied_unmounted_resources(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let tool = Arc::new(Careful::default());
    let names = ["handbook", "own", "removed", "unknown", "", "hand", "handbook "];
    let turns = names.map(|name| Turn::new().call("call", "open", RawJson::of(&name).unwrap()));
    let provider = ScriptedProvider::new(turns.into_iter().chain([Turn::new().text("done")]));
    let runtime = agent_with(&storage, provider, Config::default(), [tool.clone()]);
    scope(
        &storage,
        &effects,
        &HiddenSession::Tenant,
        Patch::new().mount("handbook", Read).mount("removed", Read),
    )
    .await;
    let chat = runtime.open(&"laptop".parse().unwrap()).await.unwrap();
    chat.update(Patch::new().mount("own", Write).remove_mount("removed")).await.unwrap();
    chat.prompt("open all").await.unwrap().finish().await.unwrap();
    let asked = tool.0.lock().unwrap().clone();
    let allowed: Vec<_> = asked.iter().map(|(name, read, write)| (name.as_str(), *read, *write)).collect();
    let expected = [
        ("handbook", true, false),
        ("own", true, true),
        ("removed", false, false),
        ("unknown", false, false),
        ("", false, false),
        ("hand", false, false),
        ("handbook ", false, false),
    ];
    assert_eq!(allowed, expected, "{}", site.name);
    let (run, call) = (effects.new_run_id(), "call".parse().unwrap());
    let mut unknown = ToolContext::new(&chat.record(), run, call, storage);
    assert!(unknown.is_mounted("own", Read).await);
    unknown.session = effects.new_session_id();
    assert!(!unknown.is_mounted("own", Read).await, "no session, no mounts");
}

each_store!(tools_are_denied_unmounted_resources);

/// Handles on things outside are opaque names with a note on their life; nothing of them is interpreted, and what
/// is not named by a change stays.
async fn handles_are_opaque_and_kept(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let session = new_session(&storage, &effects).await;
    let volume =
        ExternalHandle::new("volume", "vol://a b/../%00?x=\"y\"").with_note("remove with the session");
    let container = ExternalHandle::new("container", "c0ffee");
    let patch = Patch::new().with_handle("data", volume.clone()).with_handle("box", container);
    change(&storage, session.id, patch).await;
    change(&storage, session.id, Patch::new().without_handle("box").with_title(Title::generated("x"))).await;
    let refused = async |name: &str, handle: ExternalHandle, kind: ErrorKind| {
        let now = storage.sessions.load(session.id).await.unwrap();
        let patch = Patch::new().with_handle(name, handle);
        let error = storage.sessions.update(session.id, now.head, patch).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{}", site.name);
    };
    refused("", volume.clone(), ErrorKind::InvalidInput).await;
    refused("x", ExternalHandle::new("", "x"), ErrorKind::InvalidInput).await;
    refused("x", ExternalHandle::new("x", "x".repeat(1025)), ErrorKind::InvalidInput).await;
    refused("x", volume.clone().with_note("x".repeat(513)), ErrorKind::LimitExceeded).await;
    for trigger in [Trigger::Suspend(Reason::ResourcesReleased), Trigger::Resume, Trigger::Archive] {
        storage.sessions.trigger(session.id, trigger).await.unwrap();
    }
    let reopened = site.open().await;
    let now = check_record(&reopened, session.id).await;
    assert_eq!(now.attributes.handles.clone().into_iter().collect::<Vec<_>>(), [("data".to_owned(), volume)]);
}

each_store!(handles_are_opaque_and_kept);

async fn attach(chat: &Conversation, target: &str) {
    let handle = ExternalHandle::new("interpreter", target).with_process(chat.runtime().process());
    chat.update(Patch::new().with_handle("repl", handle)).await.unwrap();
}

/// What was live in one process is stale in every other, after a restart too, without anything being written; a fork
/// does not have it at all. What outlives processes is never called live.
async fn live_handles_are_stale_after_a_restart(site: Site) {
    let storage = site.open().await;
    let first = agent(&storage, EchoProvider::new(), Config::default());
    let chat = first.open(&"laptop".parse().unwrap()).await.unwrap();
    attach(&chat, "pid 7").await;
    chat.update(Patch::new().with_handle("disk", ExternalHandle::new("volume", "v1"))).await.unwrap();
    let shown = |chat: &Conversation| {
        let (record, process) = (chat.record(), chat.runtime().process());
        let handles = record.attributes.handles.iter();
        handles.map(|(name, handle)| (name.clone(), handle.liveness(process))).collect::<Vec<_>>()
    };
    let both = |repl| vec![("disk".to_owned(), Liveness::Durable), ("repl".to_owned(), repl)];
    assert_eq!(shown(&chat), both(Liveness::Live), "{}", site.name);
    let fork = chat.fork(None).await.unwrap();
    assert_eq!(shown(&fork), both(Liveness::Live)[..1], "{}", site.name);
    let id = chat.id();
    let head = chat.record().head;
    // The process is gone without a word.
    drop((chat, fork, first, storage));
    let storage = site.open().await;
    let second = agent(&storage, EchoProvider::new(), Config::default());
    let chat = second.conversation_by_id(id).await.unwrap();
    assert_eq!(shown(&chat), both(Liveness::Stale), "{}", site.name);
    assert_eq!(chat.record().head, head, "nothing was written");
    attach(&chat, "pid 8").await;
    assert_eq!(shown(&chat), both(Liveness::Live), "{}", site.name);
    assert_eq!(
        shown(&second.for_storage(storage).conversation_by_id(id).await.unwrap()),
        both(Liveness::Live)
    );
}

each_store!(live_handles_are_stale_after_a_restart);

fn learnings(storage: &Storage, effects: &Effects, agent: &str) -> Learnings {
    Learnings::new(&storage.clone().with_effects(effects.clone()), WorkspaceId::DEFAULT, agent)
}

async fn texts(learnings: &Learnings) -> Vec<String> {
    let (mut texts, mut before) = (Vec::new(), None);
    loop {
        let page = learnings.list(3, before).await.unwrap();
        texts.extend(page.learnings.into_iter().map(|known| known.learning.text));
        before = page.next;
        if before.is_none() {
            texts.reverse();
            return texts;
        }
    }
}

/// What one session of an agent found out, all its sessions see, once, in order and after a restart; it is only ever
/// added to, and other agents have no part in it.
async fn learnings_are_shared_per_agent_and_kept_once(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let runtime = agent(&storage, EchoProvider::new(), Config::default());
    let chat = runtime.open(&"laptop".parse().unwrap()).await.unwrap();
    let workspace = chat.record().workspace;
    let coder = Learnings::new(&storage, workspace, "coder");
    assert!(texts(&coder).await.is_empty() && coder.memory().await.unwrap().is_none());
    let lesson = Learning::new(LearningKind::Lesson, "Run the tests first.")
        .with_session(chat.id(), Some(Seq::new(1)));
    let added = coder.add(lesson.clone(), Actor::AGENT).await.unwrap();
    let again =
        coder.add(Learning::new(LearningKind::Lesson, " Run the tests first.\n"), Actor::USER).await.unwrap();
    assert_eq!((added.new, again.new, added.seq), (true, false, again.seq), "{}", site.name);
    // Another kind is another learning; a key tells what texts do not.
    assert!(
        coder
            .add(Learning::new(LearningKind::Error, "Run the tests first."), Actor::AGENT)
            .await
            .unwrap()
            .new
    );
    let keyed = |text: &str| Learning::new(LearningKind::Correction, text).with_key("units");
    assert!(coder.add(keyed("metres"), Actor::AGENT).await.unwrap().new);
    assert!(!coder.add(keyed("metres, not feet"), Actor::AGENT).await.unwrap().new);
    // Eight processes that find out the same eight things at the same moment.
    let other_session = new_session(&storage, &effects).await;
    let mut tasks = Vec::new();
    for task in 0..8 {
        let (handle, id) = (site.open().await, other_session.id);
        let learnings = Learnings::new(&handle, workspace, "coder");
        tasks.push(tokio::spawn(async move {
            let mut new = 0;
            for n in 0..8 {
                let learning = Learning::new(LearningKind::Lesson, format!("thing {}", (n + task) % 8));
                new += u32::from(
                    learnings.add(learning.with_session(id, None), Actor::AGENT).await.unwrap().new,
                );
            }
            new
        }));
    }
    let mut new = 0;
    for task in tasks {
        new += task.await.unwrap();
    }
    assert_eq!(new, 8, "{}", site.name);
    let found = texts(&coder).await;
    assert_eq!(found[..3], ["Run the tests first.", "Run the tests first.", "metres"]);
    let mut things = found[3..].to_vec();
    things.sort();
    assert_eq!(things, (0..8).map(|n| format!("thing {n}")).collect::<Vec<_>>(), "{}", site.name);
    for bad in ["", " \n", &"x".repeat((16 << 10) + 1)] {
        let error = coder.add(Learning::new(LearningKind::Lesson, bad), Actor::AGENT).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::LimitExceeded);
    }
    let of = |agent: &str| Learnings::new(&storage, workspace, agent);
    assert!(texts(&of("tester")).await.is_empty(), "{}", site.name);
    assert!(of("").add(lesson.clone(), Actor::AGENT).await.is_err());

    drop((chat, coder, runtime, storage));
    let storage = site.open().await;
    let coder = Learnings::new(&storage, workspace, "coder");
    assert_eq!(texts(&coder).await, found, "{}", site.name);
    let known = coder.list(100, None).await.unwrap().learnings.pop().unwrap();
    assert_eq!((known.learning, known.by), (lesson, Actor::AGENT));
    check_record(&storage, HiddenSession::agent(workspace, "coder").id()).await;
    let shown = storage.sessions.list(SessionQuery::new().with_workspace(workspace)).await.unwrap();
    assert_eq!(shown.items.len(), 1, "hidden sessions are not listed");
}

each_store!(learnings_are_shared_per_agent_and_kept_once, flavor = "multi_thread", worker_threads = 2);

/// A learning that is promoted appears once in the agent's shared note, with where it comes from, however often and
/// by however many it is promoted; the note's earlier versions stay.
async fn promoted_learning_appears_once_in_shared_note(site: Site) {
    let (storage, effects) = (site.open().await, Effects::default());
    let session = new_session(&storage, &effects).await;
    let coder = learnings(&storage, &effects, "coder");
    assert_eq!(*coder.promote(Seq::new(2), Actor::USER).await.unwrap_err().kind(), ErrorKind::NotFound);
    let mut added = Vec::new();
    for n in 0..4 {
        let learning = Learning::new(LearningKind::Lesson, format!("lesson {n}\nin two lines"));
        let learning = learning.with_session(session.id, Some(Seq::new(n + 1)));
        added.push(coder.add(learning, Actor::AGENT).await.unwrap().seq);
    }
    let mut tasks = Vec::new();
    for task in 0..6 {
        let handle = site.open().await;
        let coder = learnings(&handle, &effects, "coder");
        let added = added.clone();
        tasks.push(tokio::spawn(async move {
            let mut new = 0;
            for n in 0..3 {
                let seq = added[(n + task) % 3];
                new += u32::from(coder.promote(seq, Actor::USER).await.unwrap());
            }
            new
        }));
    }
    let mut new = 0;
    for task in tasks {
        new += task.await.unwrap();
    }
    assert_eq!(new, 3, "{}", site.name);
    let reopened = site.open().await;
    let coder = learnings(&reopened, &effects, "coder");
    let note = coder.memory().await.unwrap().unwrap();
    assert_eq!(note.text.matches("- lesson").count(), 3, "{}: {}", site.name, note.text);
    for (n, seq) in added[..3].iter().enumerate() {
        let line = format!(
            "- lesson {n}\n  in two lines (lesson {seq}, from session {}, event {})\n",
            session.id,
            n + 1
        );
        assert_eq!(note.text.matches(&line).count(), 1, "{}: {}", site.name, note.text);
    }
    assert!(!note.text.contains("- lesson 3"), "only what was selected");
    assert_eq!(coder.documents().versions(Learnings::MEMORY, 10).await.unwrap().len(), 3);
    for nothing in [Seq::ZERO, Seq::new(1), note.seq, Seq::new(10_000)] {
        let error = coder.promote(nothing, Actor::USER).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound, "{}", site.name);
    }
    let by_hand = agent_runtime::documents::DocumentWrite::new(Learnings::MEMORY, "tidied up\n", Actor::USER);
    coder.documents().put(by_hand).await.unwrap();
    assert!(coder.promote(added[3], Actor::USER).await.unwrap());
    assert!(!coder.promote(added[0], Actor::USER).await.unwrap(), "what was tidied away does not come back");
    let note = coder.memory().await.unwrap().unwrap().text;
    assert!(note.starts_with("tidied up\n- lesson 3") && !note.contains("- lesson 0"), "{note}");
}

each_store!(promoted_learning_appears_once_in_shared_note, flavor = "multi_thread", worker_threads = 2);

/// A hidden session is found by what it belongs to, no two share one, and a name that is none is refused.
async fn no_two_names_share_a_hidden_session(site: Site) {
    let workspace = Effects::default().new_workspace_id();
    let mut hidden = vec![HiddenSession::Tenant];
    for workspace in [WorkspaceId::DEFAULT, workspace] {
        for name in ["a", "b", "a/b", "ab", "tenant"] {
            hidden.push(HiddenSession::project(workspace, name));
            hidden.push(HiddenSession::agent(workspace, name));
            for objective in ["a", "b", "b/a"] {
                hidden.push(HiddenSession::objective(workspace, name, objective));
            }
        }
    }
    let ids: std::collections::BTreeSet<_> = hidden.iter().map(HiddenSession::id).collect();
    assert_eq!(ids.len(), hidden.len());
    assert_eq!(
        HiddenSession::Tenant.id().to_string(),
        "ba80b867-7af0-84a0-bc4b-bd21be2f61d3",
        "the id is part of the format"
    );
    let storage = site.open().await;
    for hidden in &hidden {
        let opened = hidden.open(&storage.sessions).await.unwrap();
        assert_eq!((opened.id, opened.status.state), (hidden.id(), SessionState::Archived), "{}", site.name);
        assert_eq!(hidden.open(&storage.sessions).await.unwrap().head, opened.head);
    }
    for bad in ["", "a\nb", &"x".repeat(201)] {
        let error = HiddenSession::agent(workspace, bad).open(&storage.sessions).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{}", site.name);
    }
    // A session that took the id first is not taken for the hidden session.
    let squatted = HiddenSession::agent(workspace, "squatted");
    storage.sessions.create(NewSession::new(squatted.id(), workspace)).await.unwrap();
    let error = squatted.open(&storage.sessions).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{}: {error}", site.name);
}

each_store!(no_two_names_share_a_hidden_session);
