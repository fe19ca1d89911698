//! Sessions that hang: who holds them, whether that one lives, and how they are freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_core::commit::{LeaseRequest, Trigger};
use agent_core::event::NewEvent;
use agent_core::model::{Failure, Timer};
use agent_core::state::{Reason, SessionState};
use agent_core::{Epoch, Seq, SessionId, Storage};
use agent_runtime::{NewWorkspace, WorkspaceManager};
use serde_json::json;

use crate::common::{Chat, database, found, homes};
use crate::site::{KINDS, Ran, Site};

/// Long enough for a process to start and look on a busy machine, and short enough to wait for.
const TTL: Duration = Duration::from_secs(3);

async fn begin(storage: &Storage, id: SessionId) -> Epoch {
    let head = storage.sessions.load(id).await.unwrap().head;
    storage.sessions.append(id, head, vec![NewEvent::user_message("why?")]).await.unwrap();
    let lease = LeaseRequest::new("the laptop", storage.effects().new_run_id()).with_ttl(TTL);
    storage.sessions.trigger(id, Trigger::BeginRun(lease)).await.unwrap().epoch.unwrap()
}

/// Sends heartbeats until it is dropped.
struct Beating(Arc<AtomicBool>);

impl Beating {
    fn new(storage: &Storage, id: SessionId, epoch: Epoch) -> Self {
        let (on, storage) = (Arc::new(AtomicBool::new(true)), storage.clone());
        let beats = on.clone();
        tokio::spawn(async move {
            while beats.load(Ordering::SeqCst) {
                // Of a lease that was taken away, it is without effect.
                let _ = storage.sessions.leases().heartbeat(id, epoch).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        Self(on)
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// A session that is answered says by whom; one whose holder lives is interrupted, and released only by force.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_session_is_shown_interrupted_and_released() {
    for kind in KINDS {
        let site = Site::new(kind);
        let storage = site.open().await;
        let manager = WorkspaceManager::new(storage.clone());
        let workspace = manager.create(NewWorkspace::new("one")).await.unwrap();
        let session = manager.main_session(&workspace).await.unwrap();
        let (session, id) = (session.id, session.id.to_string());
        let show = |more: &[&str]| site.ok(&[&["session", "show", &id], more].concat());
        assert!(!show(&[]).contains("is answered"), "{kind}");
        assert!(site.ok(&["session", "release", &id]).contains("nobody holds session"), "{kind}");
        assert!(site.ok(&["session", "interrupt", &id]).contains("nothing runs or waits"), "{kind}");

        let epoch = begin(&storage, session).await;
        let beating = Beating::new(&storage, session, epoch);
        let shown = show(&[]);
        assert!(shown.contains("is answered by the laptop since ") && shown.contains("--watch"), "{shown}");
        assert!(show(&["--watch"]).contains("which is alive"), "{kind}");
        assert_eq!(site.json(&["session", "show", &id, "--watch"])["holder"], json!("alive"), "{kind}");
        site.fails(&["session", "delete", &id], 2, "is being answered by the laptop");
        site.fails(&["session", "release", &id], 4, "which is alive");
        let asked = site.ok(&["session", "interrupt", &id]);
        assert!(asked.contains("asked the run") && asked.contains("whether the laptop is alive"), "{asked}");
        assert!(show(&[]).contains("was asked to end"), "{kind}");
        assert!(site.ok(&["session", "release", &id, "--force"]).contains("is free"), "{kind}");
        let now = storage.sessions.load(session).await.unwrap();
        assert_eq!(
            (now.lease.is_none(), now.status.state),
            (true, SessionState::Idle),
            "{kind}: it was to end"
        );
        drop(beating);

        // A holder that is silent; its message waits for the next one.
        begin(&storage, session).await;
        let silent = show(&["--watch"]);
        assert!(
            silent.contains("has sent no heartbeat for 3s") && silent.contains("session release"),
            "{silent}"
        );
        assert!(
            site.ok(&["session", "release", &id]).contains("is free; the laptop can write nothing"),
            "{kind}"
        );
        assert!(show(&[]).contains("1 message without an answer"), "{kind}");
        assert!(site.ok(&["session", "interrupt", &id]).contains("nothing waits"), "{kind}");
    }
}

/// A run whose process is dead cannot be asked to end: the words say that nobody answers, and what frees the session. The deletion of a
/// session that is answered says whose answer it has ended.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_of_answers_that_end_is_true() {
    for home in homes() {
        let run = |words: &[&str]| -> Ran {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_chat"));
            match database(home.path()) {
                Some(path) => command.arg("--store").arg(format!("sqlite:{}", path.display())),
                None => command.arg("--data-dir").arg(home.path()),
            };
            command.args(words).output().unwrap().into()
        };
        let mut one = Chat::start(home.path(), &["--lease-ttl-ms", "600000"]);
        one.send("!sleep 600");
        one.err.wait_for("[sleep");
        let id = found(home.path()).await.session.id.to_string();
        let asked = run(&["session", "interrupt", &id]);
        assert!(asked.code == 0 && asked.out.contains("it does at its next step"), "{asked:?}");
        one.kill();

        let mut one = Chat::start(home.path(), &["--lease-ttl-ms", "600000"]);
        one.send("!sleep 600");
        one.err.wait_for("[sleep");
        one.kill();
        let asked = run(&["session", "interrupt", &id]);
        assert_eq!(asked.code, 0, "{asked:?}");
        assert!(
            asked.out.contains(&format!("nobody answers in session {id}: the process of chat on laptop")),
            "{asked:?}"
        );
        assert!(asked.out.contains(&format!("run `chat session release {id}`")), "{asked:?}");
        assert!(run(&["session", "release", &id]).out.contains("is free"));
        assert!(!run(&["session", "show", &id]).out.contains("is answered by"));

        let mut one = Chat::start(home.path(), &["--lease-ttl-ms", "600000"]);
        one.send("!sleep 600");
        one.err.wait_for("[sleep");
        let process = one.id();
        let deleted = run(&["session", "delete", &id, "--yes"]);
        assert_eq!(deleted.code, 0, "{deleted:?}");
        let ended = format!("this ended an answer that chat on laptop, process {process} was giving");
        assert!(deleted.out.contains(&ended), "{deleted:?}");
        one.kill();
        let again = run(&["session", "delete", &id, "--purge", "--yes", "--json"]);
        assert!(again.out.contains("\"ended_answer_of\":null"), "{again:?}");
    }
}

/// What else a session waits for is named, with what moves it.
#[tokio::test]
async fn a_session_says_what_it_waits_for() {
    for kind in KINDS {
        let site = Site::new(kind);
        let storage = site.open().await;
        let manager = WorkspaceManager::new(storage.clone());
        let workspace = manager.create(NewWorkspace::new("one")).await.unwrap();
        let session = manager.main_session(&workspace).await.unwrap().id;
        let id = session.to_string();
        let tomorrow = storage.effects().now().plus_micros(86_400_000_000);
        let timer = NewEvent::timer_scheduled(Timer::new("daily", tomorrow));
        storage.sessions.append(session, Seq::ZERO, vec![timer]).await.unwrap();
        assert!(site.ok(&["session", "show", &id]).contains("1 timer, the first at "), "{kind}");
        storage.sessions.trigger(session, Trigger::Suspend(Reason::UserPaused)).await.unwrap();
        assert!(site.ok(&["session", "show", &id]).contains("suspended, 0 messages without"), "{kind}");
        storage.sessions.trigger(session, Trigger::Resume).await.unwrap();
        let failure = Failure::new(Reason::ResourceError, "the disk is gone");
        storage.sessions.trigger(session, Trigger::Fail(failure)).await.unwrap();
        let shown = site.ok(&["session", "show", &id]);
        assert!(
            shown.contains("has failed: mend the cause") && shown.contains("the disk is gone"),
            "{shown}"
        );
        assert!(site.ok(&["session", "release", &id]).contains("failure of session"), "{kind}");
        assert!(site.ok(&["session", "release", &id]).contains("nobody holds session"), "{kind}");
    }
}
