//! New beginnings of a history: reset, replace, archive, switch.

use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::model::{Patch, Timer};
use agent_core::session::SessionRecord;
use agent_core::state::{Reason, SessionState};
use agent_core::store::SessionQuery;
use agent_core::{ErrorKind, Seq, SessionId, SessionStoreExt, Storage, Timestamp};
use agent_runtime::context::{ContextLimits, Messages, ModelContext, ModelMessage};
use agent_runtime::documents::DocumentWrite;
use agent_runtime::retention::OldSessionAction;
use agent_runtime::{AgentBuilder, AgentRuntime, Conversation, EchoProvider};
use agent_tests::each_store;

use crate::endings::cut::{Cut, Cutting};
use crate::endings::site::{Hands, SECRET, Site, append_text, device, history, manager, small_world};

fn agent(storage: &Storage) -> AgentRuntime {
    let builder = AgentBuilder::new().with_llm(EchoProvider::new());
    builder.with_storage(storage.clone()).build().unwrap()
}

async fn prompt(chat: &Conversation, text: &str) -> String {
    chat.prompt(text).await.unwrap().finish().await.unwrap().text
}

/// What a person and a model see of a session.
async fn visible(storage: &Storage, id: SessionId) -> (Arc<SessionRecord>, Vec<String>, Messages) {
    let now = storage.sessions.load(id).await.unwrap();
    let read = agent_core::store::ReadEvents::first(1000).with_after(now.visible_from);
    let page = storage.sessions.history(id, read).await.unwrap();
    let shown = page.events.iter().map(|event| format!("{} {}", event.kind, event.payload.get())).collect();
    let context = ModelContext::read(&*storage.sessions, &now, ContextLimits::default()).await.unwrap();
    (now, shown, context.messages())
}

/// A reset leaves no message, input or document; the old session is archived with all of it, and can
/// be restored, or it is gone. Whatever it was doing.
async fn reset_starts_empty_and_archives_on_request(site: Site) {
    let mut round = 0;
    for former in [OldSessionAction::Archive, OldSessionAction::Delete] {
        for running in [false, true] {
            round += 1;
            let storage = site.fresh(round);
            let agent = agent(&storage);
            let chat = agent.open(&device("laptop")).await.unwrap();
            prompt(&chat, SECRET).await;
            chat.update(Patch::new().with_label("memory", "important")).await.unwrap();
            let note = DocumentWrite::new("memory", "blue", agent_core::model::Actor::USER);
            chat.documents().put(note).await.unwrap();
            let at = Timestamp::from_micros(4_000_000_000_000_000);
            let timer = NewEvent::timer_scheduled(Timer::new("later", at));
            agent.storage().sessions.append(chat.id(), Seq::ZERO, vec![timer]).await.unwrap();
            chat.send("not answered yet").await.unwrap();
            if running {
                let seen = chat.refresh().await.unwrap().head;
                let lease = agent_core::commit::LeaseRequest::new("phone", agent.effects().new_run_id());
                let begin = agent_core::commit::Commit::seal(agent.effects(), chat.id(), seen)
                    .with_trigger(agent_core::commit::Trigger::BeginRun(lease));
                storage.sessions.commit(begin).await.unwrap();
            }
            let before = chat.refresh().await.unwrap();
            let new = chat.reset(former).await.unwrap();
            assert_ne!(new.id(), chat.id(), "{}", site.name);
            let (now, shown, context) = visible(&storage, new.id()).await;
            assert_eq!((shown.len(), context.len()), (1, 0), "{}: {shown:?}", site.name);
            assert_eq!(
                (now.inputs_open, now.timers.len(), now.counts.messages()),
                (0, 0, 0),
                "{}",
                site.name
            );
            assert_eq!(new.documents().list().await.unwrap(), [], "{}", site.name);
            assert_eq!((now.attributes.clone(), now.status.state), (Default::default(), SessionState::Idle));
            assert_eq!(agent.open(&device("laptop")).await.unwrap().id(), new.id(), "{}", site.name);
            assert_eq!(prompt(&new, "hello").await, "hello", "{}", site.name);
            let old = chat.refresh().await.unwrap();
            match former {
                OldSessionAction::Archive => {
                    assert_eq!(old.status.state, SessionState::Archived, "{}", site.name);
                    chat.unarchive().await.unwrap();
                    let back = chat.refresh().await.unwrap();
                    assert_eq!((back.inputs_open, &back.timers), (1, &before.timers), "{}", site.name);
                    assert_eq!(back.attributes, before.attributes, "{}", site.name);
                    let note = chat.documents().get("memory").await.unwrap();
                    assert_eq!(note.unwrap().text, "blue", "{}", site.name);
                    if running {
                        chat.resume().await.unwrap();
                    }
                    let run = chat.run_pending().await.unwrap().expect("its input waits still");
                    assert_eq!(run.finish().await.unwrap().text, "not answered yet", "{}", site.name);
                }
                _ => assert_eq!(old.status.state, SessionState::Deleted, "{}", site.name),
            }
        }
    }
}

each_store!(reset_starts_empty_and_archives_on_request and mixed);

/// Cut at any call, the next one to open the workspace finds the old session whole, or a new one with nothing in it; doing
/// it again ends the old one.
async fn interrupted_reset_shows_the_old_or_new_session(site: Site) {
    let mut round = 0;
    for cut in Cut::ALL {
        for at in 1.. {
            round += 1;
            let (storage, clock) = (site.fresh(round), Hands::new());
            let world = small_world(&storage, &clock, "one").await;
            let before = history(&storage, world.main).await;
            let cutting = Cutting::new(&storage, at, cut);
            let result =
                manager(&cutting.storage(), &clock).reset(world.main, OldSessionAction::Archive).await;
            let was_cut = cutting.calls() >= at;
            let when = format!("{}, {cut:?} at call {at}", site.name);
            assert_eq!(result.is_err(), was_cut, "{when}");
            let manager = manager(&storage, &clock);
            let resolved = manager.resolve(&world.devices[0]).await.unwrap();
            let found = manager.main_session(&resolved.workspace).await.unwrap();
            if found.id == world.main {
                assert_eq!(history(&storage, world.main).await, before, "{when}");
            } else {
                assert_eq!((found.counts.messages(), found.status.state), (0, SessionState::Idle), "{when}");
            }
            manager.reset(world.main, OldSessionAction::Archive).await.unwrap();
            let old = storage.sessions.load(world.main).await.unwrap();
            assert_eq!(old.status.state, SessionState::Archived, "{when}");
            if !was_cut {
                break;
            }
        }
    }
}

each_store!(interrupted_reset_shows_the_old_or_new_session and mixed);

/// A full write replaces all that is visible, in one step, in its order, from the head that its writer has read;
/// from an older one it is refused, and nothing changes. None of it waits for a run; timers stay.
async fn full_write_needs_the_current_head(site: Site) {
    let (storage, clock) = (site.fresh(0), Hands::new());
    let world = small_world(&storage, &clock, "one").await;
    let (effects, sessions) = (crate::endings::site::effects(&clock), &storage.sessions);
    let due = effects.now();
    let timer = NewEvent::timer_scheduled(Timer::new("due", due));
    let old = sessions.append(world.main, Seq::ZERO, vec![timer]).await.unwrap().session;
    let now = append_text(&storage, &clock, world.main, "newer").await.unwrap();
    let messages = || {
        let [a, b] = ["q1", "q2"].map(NewEvent::user_message);
        let [x, y] = ["a1", "a2"].map(NewEvent::agent_message);
        vec![a, x, b, y]
    };
    let error = sessions.replace(world.main, old.head, messages()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{}: {error}", site.name);
    assert_eq!(sessions.load(world.main).await.unwrap(), now, "{}", site.name);
    let wrong = vec![NewEvent::user_message("fine"), NewEvent::interrupt()];
    let error = sessions.replace(world.main, now.head, wrong).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{}: {error}", site.name);
    assert_eq!(sessions.load(world.main).await.unwrap(), now, "{}", site.name);

    let before = history(&storage, world.main).await;
    let done = sessions.replace(world.main, now.head, messages()).await.unwrap();
    assert_eq!(history(&storage, world.main).await[..before.len()], before, "{}: the log stays", site.name);
    let (now, _, context) = visible(&storage, world.main).await;
    assert_eq!(now, done.session, "{}", site.name);
    assert_eq!((now.inputs_open, now.timers.len()), (0, 1), "{}: what is due stays due", site.name);
    let user = |text: &str| ModelMessage::user(text);
    let agent = ModelMessage::agent;
    assert_eq!(context, [user("q1"), agent("a1"), user("q2"), agent("a2")], "{}", site.name);
}

each_store!(full_write_needs_the_current_head and mixed);

/// An archived session is hidden, readable by its id, takes no input, and is restored as it was.
async fn archived_session_is_hidden_and_restorable(site: Site) {
    let storage = site.fresh(0);
    let agent = agent(&storage);
    let chat = agent.open(&device("laptop")).await.unwrap();
    prompt(&chat, "hello").await;
    chat.send("still open").await.unwrap();
    let before = chat.refresh().await.unwrap();
    chat.archive().await.unwrap();
    chat.archive().await.unwrap();
    let listed = async |query| storage.sessions.list(query).await.unwrap().items.len();
    assert_eq!(listed(SessionQuery::new()).await, 0, "{}", site.name);
    assert_eq!(listed(SessionQuery::new().with_states([SessionState::Archived])).await, 1, "{}", site.name);
    let again = agent.conversation_by_id(chat.id()).await.unwrap();
    assert_eq!(again.record().status.reason, Reason::UserArchived, "{}", site.name);
    assert!(history(&storage, chat.id()).await.len() > 3, "{}", site.name);
    let error = again.prompt("no").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidTransition { .. }), "{}: {error}", site.name);
    again.unarchive().await.unwrap();
    let now = again.refresh().await.unwrap();
    assert_eq!((now.status, now.inputs_open), (before.status, 1), "{}", site.name);
    let run = again.run_pending().await.unwrap().expect("what was open is open");
    assert_eq!(run.finish().await.unwrap().text, "still open", "{}", site.name);
    assert_eq!(listed(SessionQuery::new()).await, 1, "{}", site.name);
}

each_store!(archived_session_is_hidden_and_restorable and mixed);

/// After any sequence of switches between sessions, with anything done in them, what is seen of each is what a
/// program sees that opens it for the first time.
async fn switched_session_equals_a_freshly_loaded_one(site: Site) {
    for seed in 0..4u64 {
        let storage = site.fresh(usize::try_from(seed).unwrap());
        let chance = Effects::seeded(seed, Timestamp::UNIX_EPOCH);
        let pick = |of: usize| usize::try_from(chance.random_u64() % of as u64).unwrap();
        let agent = agent(&storage);
        let first = agent.open(&device("laptop")).await.unwrap();
        let workspace = first.record().workspace;
        let mut chats = vec![first];
        for n in 0..60 {
            let chat = chats[pick(chats.len())].clone();
            let name = chat.id();
            match pick(9) {
                0 => chats.push(agent.new_session(workspace, &Patch::new()).await.unwrap()),
                1 => chats.push(chat.fork(None).await.unwrap()),
                2 => chat.clear().await.unwrap(),
                3 => chat.update(Patch::new().with_label("of", name.to_string())).await.unwrap(),
                4 => drop(agent.workspaces().set_main_session(workspace, name).await.unwrap()),
                5 => drop(chat.compact(None, &format!("summary of {name}")).await),
                _ => drop(prompt(&chat, &format!("{n} in {name}")).await),
            }
            let main = agent.workspaces().load(workspace).await.unwrap().main_session;
            assert_eq!(agent.open(&device("laptop")).await.unwrap().id(), main, "{}, seed {seed}", site.name);
            let fresh = self::agent(&storage).conversation_by_id(name).await.unwrap();
            chat.refresh().await.unwrap();
            assert_eq!(chat.record(), fresh.record(), "{}, seed {seed}", site.name);
            let seen = |chat: Conversation| async move {
                let (session, shown, context) = visible(chat.runtime().storage(), chat.id()).await;
                (session, shown, context)
            };
            assert_eq!(seen(chat.clone()).await, seen(fresh).await, "{}, seed {seed}", site.name);
        }
        // Nothing that was said in one is in another that was not forked from it.
        for chat in &chats {
            let family: Vec<String> = {
                let now = chat.refresh().await.unwrap();
                let ancestors = now.lineage.segments.iter().map(|segment| segment.session);
                ancestors.chain([now.id]).map(|id| id.to_string()).collect()
            };
            let (_, _, context) = visible(&storage, chat.id()).await;
            for message in context {
                if let ModelMessage::User(_) | ModelMessage::Agent(_) = message {
                    let text = message.text();
                    let of = text.split(" in ").nth(1).unwrap();
                    assert!(family.iter().any(|id| id == of), "{}, seed {seed}: {text}", site.name);
                }
            }
        }
    }
}

each_store!(switched_session_equals_a_freshly_loaded_one and mixed);
