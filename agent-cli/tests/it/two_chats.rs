//! Two chats in one folder, as one device: one answers at a time, both show everything, and a dead or stopped one is
//! replaced.

use crate::common::{Chat, found, homes, storage};
use agent_core::ErrorKind;
use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::state::{SessionState, TriggerKind};
use agent_core::store::SessionQuery;
use rustix::process::Signal;

/// Each shows the messages of the other, and their answers.
#[tokio::test]
async fn both_chats_see_each_others_messages() {
    for folder in homes() {
        let (mut one, mut two) = (Chat::start(folder.path(), &[]), Chat::start(folder.path(), &[]));
        one.talk_with(&mut two);
        assert!(!one.err.text().contains("laptop: from one"), "one's own is not shown twice");
        assert_eq!(found(folder.path()).await.prompts(), ["from one", "from two"]);
    }
}

/// Eight chats that start at the same moment on an empty folder use one workspace and one session.
#[tokio::test]
async fn concurrent_first_starts_share_one_session() {
    for folder in homes() {
        let mut chats: Vec<_> = (0..8).map(|_| Chat::start(folder.path(), &[])).collect();
        for (n, chat) in chats.iter_mut().enumerate() {
            chat.send(&format!("hello {n}"));
        }
        let codes: Vec<_> = chats.iter_mut().map(Chat::finish).collect();
        assert_eq!(codes, [0; 8], "{}", chats.iter().map(|chat| chat.err.text()).collect::<String>());
        let mut messages = found(folder.path()).await.prompts();
        messages.sort();
        assert_eq!(messages, (0..8).map(|n| format!("hello {n}")).collect::<Vec<_>>());
        let workspaces = storage(folder.path())
            .await
            .workspaces
            .list(agent_core::store::WorkspaceQuery::new())
            .await
            .unwrap();
        assert_eq!(workspaces.items.len(), 1);
    }
}

/// While one answers, the message of the other is stored and waits, the holder is named, and no second run starts. A
/// killed holder is replaced at once, long before its lease has expired.
#[tokio::test]
async fn queued_prompt_takes_over_from_a_killed_holder() {
    for folder in homes() {
        let ten_minutes = ["--lease-ttl-ms", "600000"];
        let mut one = Chat::start(folder.path(), &ten_minutes);
        one.send("!sleep 600");
        one.err.wait_for("[sleep");
        let mut two = Chat::start(folder.path(), &ten_minutes);
        two.send("from two");
        two.err.wait_for("this message is answered next");
        assert!(two.err.text().contains(&format!("process {} is answering", one.id())), "{}", two.err.text());

        let meanwhile = found(folder.path()).await;
        assert_eq!(meanwhile.prompts(), ["!sleep 600", "from two"]);
        assert_eq!(
            (meanwhile.session.status.state, meanwhile.session.inputs_open),
            (SessionState::Running, 2)
        );
        assert_eq!(meanwhile.triggers(TriggerKind::BeginRun).len(), 1, "no second run");

        one.kill();
        two.out.wait_for("from two\n");
        assert_eq!(two.finish(), 0);
        let after = found(folder.path()).await;
        assert_eq!(after.take_overs().len(), 1);
        assert_eq!(after.outcomes(), [agent_core::event::ToolOutcome::Interrupted]);
        assert_eq!((after.session.status.state, after.session.inputs_open), (SessionState::Idle, 0));
    }
}

/// A waiting message is answered when the holder has ended its run.
#[tokio::test]
async fn queued_prompt_is_answered_after_the_first() {
    for folder in homes() {
        let (mut one, mut two) = (Chat::start(folder.path(), &[]), Chat::start(folder.path(), &[]));
        one.send("!sleep 1");
        one.err.wait_for("[sleep");
        two.send("from two");
        two.err.wait_for("this message is answered next");
        assert_eq!(two.finish(), 0);
        assert_eq!(one.finish(), 0);
        assert!(two.out.text().contains("from two\n"), "{}", two.out.text());
        let after = found(folder.path()).await;
        assert!(after.take_overs().is_empty());
        assert_eq!((after.session.status.state, after.session.inputs_open), (SessionState::Idle, 0));
    }
}

/// A stopped holder is replaced when its lease has expired without a heartbeat. After it continues, it cannot write for
/// its run, reports that, and stays usable.
#[tokio::test]
async fn hung_holder_is_replaced_and_fenced() {
    for folder in homes() {
        let mut one = Chat::start(folder.path(), &["--lease-ttl-ms", "1000"]);
        one.send("!sleep 0.5");
        one.err.wait_for("[sleep");
        one.signal(Signal::STOP);
        let before = found(folder.path()).await;
        let lease = before.session.lease.clone().expect("it holds the lease");

        let mut two = Chat::start(folder.path(), &[]);
        two.send("from two");
        two.err.wait_for("this message is answered next");
        two.out.wait_for("from two\n");

        one.signal(Signal::CONT);
        one.err.wait_for("lease of epoch 1 has ended");
        let sessions = storage(folder.path()).await.sessions;
        let late = Commit::seal(&Effects::default(), before.session.id, before.session.head)
            .with_fence(lease.run, lease.epoch)
            .with_event(NewEvent::agent_message("late"));
        let refused = sessions.commit(late).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Fenced { .. }), "{refused:?}");

        one.send("again");
        one.out.wait_for("again\n");
        assert_eq!(two.finish(), 0);
        assert_eq!(one.finish(), 1, "it says that something failed");
        let after = found(folder.path()).await;
        let taken_over = after.take_overs();
        assert_eq!(taken_over.len(), 1);
        let late = after.events.iter().filter(|e| e.seq > taken_over[0].seq && e.run == Some(lease.run));
        assert_eq!(late.count(), 0, "the sleeper wrote nothing more");
        assert_eq!(after.answered(), ["from two", "again"]);
    }
}

/// Ctrl-C interrupts the answer, not the program; the answer so far is stored.
#[tokio::test]
async fn ctrl_c_ends_the_answer_and_not_the_program() {
    for folder in homes() {
        let mut chat = Chat::start(folder.path(), &["--echo-delay-ms", "100"]);
        chat.send(&"word ".repeat(600));
        chat.out.wait_for("word word");
        chat.signal(Signal::INT);
        chat.err.wait_for("(interrupted)");
        chat.send("next");
        chat.out.wait_for("next");
        assert_eq!(chat.finish(), 0);
        let after = found(folder.path()).await;
        assert_eq!(after.triggers(TriggerKind::EndInterrupted).len(), 1);
        assert!(after.answered()[0].starts_with("word word"), "what was said is kept");
        assert_eq!(after.answered()[1], "next");
    }
}

/// A message that was sent in a takeover is not shown again as another's.
#[tokio::test]
async fn own_prompt_is_not_shown_again_after_takeover() {
    for folder in homes() {
        let mut one = Chat::start(folder.path(), &[]);
        one.send("first");
        one.out.wait_for("first\n");
        let mut two = Chat::start(folder.path(), &[]);
        two.err.wait_for("data in ");
        one.send("!sleep 600");
        two.err.wait_for("laptop: !sleep 600\n");
        one.kill();
        two.send("mine");
        two.out.wait_for("mine\n");
        let mut three = Chat::start(folder.path(), &[]);
        three.send("from three");
        assert_eq!(three.finish(), 0);
        two.err.wait_for("laptop: from three\n");
        assert!(!two.err.text().contains("laptop: mine"), "{}", two.err.text());
        assert_eq!(two.finish(), 0);
    }
}

/// If one edits a message, the other goes on in the branch.
#[tokio::test]
async fn an_edit_of_one_is_followed_by_the_other() {
    for folder in homes() {
        let (mut one, mut two) = (Chat::start(folder.path(), &[]), Chat::start(folder.path(), &[]));
        two.err.wait_for("data in ");
        one.send("from one");
        two.err.wait_for("agent: from one");
        one.send("/edit from one, edited");
        one.out.wait_for("from one, edited");
        two.err.wait_for("edited elsewhere");
        two.send("after the edit");
        two.out.wait_for("after the edit");
        assert_eq!((one.finish(), two.finish()), (0, 0), "{} {}", one.err.text(), two.err.text());
        let sessions = storage(folder.path()).await.sessions.list(SessionQuery::new()).await.unwrap();
        let previews: Vec<_> = sessions.items.iter().map(|session| session.preview.as_deref()).collect();
        assert_eq!(previews, [Some("after the edit")], "one session is in the list");
    }
}
