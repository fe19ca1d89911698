//! Processes that are killed with SIGKILL at chosen and random moments, or stopped and continued. Acknowledged data is
//! stored, nothing is stored twice, and a holder whose run was taken over cannot write.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, RunEnd, Trigger};
use agent_core::event::{Event, NewEvent, ToolOutcome};
use agent_core::session::{NewSession, SessionSummary};
use agent_core::state::{Reason, SessionState, TriggerKind};
use agent_core::store::SessionQuery;
use agent_core::{ErrorKind, RunId, Seq, SessionId, SessionStoreExt, Storage, WorkspaceId, WriteOutcome};
use agent_storage_fs::FsConfig;
use agent_storage_sqlite::SqliteConfig;
use common::{Chat, Dice, check, database, found, homes, storage};
use futures::TryStreamExt;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// A chat is killed while its answer streams. The message is stored; the run is closed when the next one begins;
/// nothing is stored twice.
#[tokio::test]
async fn kill_during_streaming_keeps_the_message() {
    for folder in homes() {
        let long = (0..200).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
        let mut chat = Chat::start(folder.path(), &["--echo-delay-ms", "20"]);
        chat.send(&long);
        chat.out.wait_for("word5 ");
        chat.kill();
        assert!(!chat.out.text().contains("word199"), "it was killed while it streamed");

        let left = found(folder.path()).await;
        assert_eq!(left.prompts(), [long.as_str()]);
        assert_eq!(left.answered(), [""; 0]);
        assert_eq!(left.session.status.state, SessionState::Running, "nobody has cleaned up yet");

        let mut chat = Chat::start(folder.path(), &[]);
        chat.err.wait_for("The last answer was interrupted");
        assert_eq!(found(folder.path()).await.events, left.events, "opening it starts and writes nothing");
        chat.send("and now?");
        assert_eq!(chat.finish(), 0);
        assert_eq!(String::from_utf8(chat.out.all()).unwrap(), "and now?\n");

        let after = found(folder.path()).await;
        assert_eq!(after.events[..left.events.len()], left.events, "what was there is there");
        assert_eq!(after.prompts(), [long.as_str(), "and now?"]);
        assert_eq!(after.answered(), ["and now?"]);
        assert_eq!(after.take_overs().len(), 1, "the broken run is closed once");
        assert_eq!(after.triggers(TriggerKind::BeginRun).len(), 2);
        assert_eq!(after.session.epoch.get(), 2);
        assert_eq!((after.session.status.state, after.session.inputs_open), (SessionState::Idle, 0));
    }
}

/// A chat is killed while a tool runs. The call gets one result, `interrupted`.
#[tokio::test]
async fn kill_during_a_tool_leaves_one_unknown_result() {
    for folder in homes() {
        let mut chat = Chat::start(folder.path(), &[]);
        chat.send("!sleep 600");
        chat.err.wait_for("[sleep");
        chat.kill();
        assert_eq!(found(folder.path()).await.outcomes(), []);

        let mut chat = Chat::start(folder.path(), &[]);
        chat.send("!time");
        assert_eq!(chat.finish(), 0);

        let after = found(folder.path()).await;
        assert_eq!(after.outcomes(), [ToolOutcome::Interrupted, ToolOutcome::Ok]);
        assert_eq!(after.prompts(), ["!sleep 600", "!time"]);
        assert_eq!(after.session.status.reason, Reason::EndTurn);
    }
}

/// The README's record of a conversation killed by `kill -9` is what the program prints.
#[tokio::test]
async fn the_readme_shows_what_a_kill_leaves() {
    // Read here, because the package of this crate does not hold it.
    let Ok(readme) = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")) else {
        println!("left out: there is no README beside this package");
        return;
    };
    let (_, record) = readme.split_once("```text\n$ chat --store sqlite:notes.db\n").expect("it is there");
    let (record, _) = record.split_once("```").expect("it ends");
    let (before, after) = record.split_once("Killed\n$ chat --store sqlite:notes.db\n").expect("a kill");
    let typed = |lines: &str| {
        lines.lines().filter_map(|line| line.strip_prefix("> ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let printed = |lines: &str| {
        lines.lines().filter(|line| !line.starts_with("> ")).map(str::to_owned).collect::<Vec<_>>()
    };

    let folder = TempDir::new().expect("a folder is made");
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chat"));
        command.args(["--store", "sqlite:notes.db", "--device", "laptop"]).current_dir(folder.path());
        Chat::spawn_on_terminal(command)
    };
    // A line may follow the prompt.
    let missing = |lines: &str, chat: &Chat| {
        let shown = chat.out.text();
        printed(lines).into_iter().filter(|line| !shown.contains(line)).collect::<Vec<_>>()
    };

    let mut chat = start();
    chat.out.wait_for("/help lists the commands.");
    let [first, slow] = &typed(before)[..] else { panic!("two lines are typed: {before}") };
    chat.send(first);
    until_answered(folder.path(), first).await;
    chat.send(slow);
    chat.out.wait_for("}]");
    chat.kill();
    chat.out.all();
    assert_eq!(missing(before, &chat), Vec::<String>::new(), "{}", chat.out.text());

    let mut chat = start();
    chat.out.wait_for("/run.");
    for line in typed(after) {
        chat.send(&line);
    }
    chat.out.wait_for("  [-> ");
    chat.send("/quit");
    assert_eq!(chat.wait(), 0);
    assert_eq!(missing(after, &chat), Vec::<String>::new(), "{}", chat.out.text());
}

/// Waits until a session in the file `notes.db` has answered with this text.
async fn until_answered(folder: &Path, text: &str) {
    let storage: Storage = SqliteConfig::new(folder.join("notes.db")).open().await.expect("it opens").into();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let listed = storage.sessions.list(SessionQuery::new()).await.expect("it is listed").items;
        let is_answered =
            |session: &SessionSummary| session.counts.agent > 0 && session.preview.as_deref() == Some(text);
        if listed.iter().any(is_answered) {
            return storage.close().await.expect("it closes");
        }
        assert!(tokio::time::Instant::now() < deadline, "{text}: {listed:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An interrupted answer can be repeated without a new message.
#[tokio::test]
async fn run_command_answers_an_interrupted_prompt() {
    for folder in homes() {
        let mut chat = Chat::start(folder.path(), &["--echo-delay-ms", "1000"]);
        chat.send("one two three");
        chat.out.wait_for("one");
        chat.kill();

        let mut chat = Chat::start(folder.path(), &[]);
        chat.send("/run");
        chat.send("/run");
        assert_eq!(chat.finish(), 0);
        let after = found(folder.path()).await;
        assert_eq!(
            (after.prompts(), after.answered()),
            (vec!["one two three".into()], vec!["one two three".into()])
        );
    }
}

/// A program that receives SIGTERM or SIGINT closes its run first; the exit code shows the signal.
#[tokio::test]
async fn terminating_signal_closes_the_run_first() {
    for folder in homes() {
        let mut chat = Chat::start(folder.path(), &[]);
        chat.send("!sleep 600");
        chat.err.wait_for("[sleep");
        chat.signal(Signal::TERM);
        assert_eq!(chat.wait(), 143);
        let after = found(folder.path()).await;
        assert_eq!(after.outcomes(), [ToolOutcome::Interrupted]);
        assert_eq!(after.triggers(TriggerKind::EndInterrupted).len(), 1);
        assert_eq!((after.session.status.state, after.session.inputs_open), (SessionState::Idle, 0));

        let mut chat = Chat::start(folder.path(), &[]);
        chat.err.wait_for("data in ");
        chat.signal(Signal::INT);
        assert_eq!(chat.wait(), 130, "at the prompt, Ctrl-C ends it");
    }
}

/// Chats are killed at random moments. Every answered message is stored, once and in order.
#[tokio::test]
async fn chats_killed_at_random_lose_no_answer() {
    for folder in homes() {
        let mut dice = Dice::new();
        let (mut sent, mut answered) = (Vec::new(), HashSet::new());
        for round in 0..15 {
            let mut chat = Chat::start(folder.path(), &["--echo-delay-ms", "1"]);
            let lines: Vec<_> =
                (0..4).map(|n| format!("round{round} message{n} and some more words")).collect();
            for line in &lines {
                chat.send(line);
                chat.send("!sleep 0.005");
            }
            sleep(Duration::from_millis(dice.below(250))).await;
            chat.kill();
            let out = String::from_utf8(chat.out.all()).unwrap();
            answered.extend(lines.iter().filter(|line| out.contains(*line)).cloned());
            sent.extend(lines);
        }
        let mut chat = Chat::start(folder.path(), &[]);
        chat.send("the last");
        assert_eq!(chat.finish(), 0);

        let after = found(folder.path()).await;
        let messages: Vec<_> = after.prompts().into_iter().filter(|text| text.starts_with("round")).collect();
        let in_order: Vec<_> = sent.iter().filter(|text| messages.contains(text)).cloned().collect();
        assert_eq!(messages, in_order, "in order, and nothing twice");
        for text in &answered {
            assert!(messages.contains(text), "{text} was answered, and is not there");
        }
        assert_eq!(after.session.inputs_open, 0);
    }
}

const WRITER: &str = "AGENT_TEST_WRITER";

/// Process that is killed: commits as fast as it can, and prints each acknowledged commit.
#[tokio::test]
async fn writer() {
    let Ok(job) = std::env::var(WRITER) else { return };
    let (folder, rest) = job.split_once('|').unwrap();
    let (session, round) = rest.split_once('|').unwrap();
    let session: SessionId = session.parse().unwrap();
    let storage = storage(folder.as_ref()).await;
    let mut seen = storage.sessions.load(session).await.unwrap().head;
    for n in 0u64.. {
        let events = (0..n % 5 + 1).map(|part| NewEvent::agent_message(format!("{round}.{n}.{part}")));
        let done = storage.sessions.append(session, seen, events.collect()).await.unwrap();
        seen = done.last;
        println!("acknowledged {n} {}", done.last);
    }
}

/// Fifty kills at random moments. Every acknowledged commit is stored, whole and once; of the others, at most one.
#[tokio::test]
async fn fifty_kills_lose_nothing_acknowledged() {
    for folder in homes() {
        let (mut dice, effects) = (Dice::new(), Effects::default());
        let sessions = storage(folder.path()).await.sessions;
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let session = sessions.create(new).await.unwrap();
        let (mut head, mut acknowledged) = (session.head, 0);
        for round in 0..50 {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "writer", "--nocapture"]);
            command.env(WRITER, format!("{}|{}|{round}", folder.path().display(), session.id));
            let mut writer = Chat::spawn(command);
            writer.out.wait_for("acknowledged 0 ");
            sleep(Duration::from_millis(dice.below(60))).await;
            writer.kill();

            let out = String::from_utf8(writer.out.all()).unwrap();
            // The last line may be incomplete; its commit does not count as acknowledged.
            let whole = &out[..out.rfind('\n').unwrap()];
            let acks: Vec<_> = whole.lines().filter_map(|line| line.split("acknowledged ").nth(1)).collect();
            let (last, last_seq) = acks.last().unwrap().split_once(' ').unwrap();
            let (last, last_seq): (u64, u64) = (last.parse().unwrap(), last_seq.parse().unwrap());

            // A newly opened store reads as after a restart.
            let sessions = storage(folder.path()).await.sessions;
            let events: Vec<_> = sessions.events(session.id, head).try_collect().await.unwrap();
            let commits: Vec<_> = events.chunk_by(|a, b| a.commit == b.commit).collect();
            for (n, commit) in (0u64..).zip(&commits) {
                let texts: Vec<_> = commit.iter().map(text).collect();
                let expected: Vec<_> = (0..n % 5 + 1).map(|part| format!("{round}.{n}.{part}")).collect();
                assert_eq!(texts, expected, "each commit whole, once, and in order");
            }
            let surplus = commits.len() as u64 - (last + 1);
            assert!(surplus <= 1, "{surplus} commits that were not acknowledged");
            let stored = events.iter().find(|event| event.seq == Seq::new(last_seq));
            assert!(stored.is_some(), "event {last_seq} was acknowledged, and is not there");
            head = events.last().unwrap().seq;
            acknowledged += last + 1;
        }
        println!("{acknowledged} commits were acknowledged");
        let now = sessions.load(session.id).await.unwrap();
        let events: Vec<_> = sessions.events(session.id, Seq::ZERO).try_collect().await.unwrap();
        check(&now, &events);
    }
}

const HOLDER: &str = "AGENT_TEST_HOLDER";

/// Process that is stopped and continued: commits within a run as fast as it can, until it is fenced.
#[tokio::test]
async fn holder() {
    let Ok(job) = std::env::var(HOLDER) else { return };
    let (folder, session) = job.split_once('|').unwrap();
    let session: SessionId = session.parse().unwrap();
    let (sessions, effects) = (storage(folder.as_ref()).await.sessions, Effects::default());
    let (before, run) = (sessions.load(session).await.unwrap(), effects.new_run_id());
    let begin = Commit::seal(&effects, session, before.head)
        .with_event(NewEvent::user_message("go"))
        .with_trigger(Trigger::BeginRun(LeaseRequest::new("holder", run)));
    let mut now = sessions.commit(begin).await.unwrap().session;
    println!("runs {run}");
    for n in 0u64.. {
        let event = NewEvent::agent_message(n.to_string());
        let append = Commit::seal(&effects, session, now.head).with_fence(run, now.epoch).with_event(event);
        match sessions.commit(append).await {
            Ok(done) => now = done.session,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Fenced { .. }), "{error}");
                return;
            }
        }
        println!("acknowledged {n}");
    }
}

/// Twenty processes are stopped at random moments in the middle of a run, which another process takes over; then they
/// continue. Their late writes are refused as `Fenced`; their acknowledged events are stored, once, and nothing else. A
/// process that was stopped within a commit may hold the store's lock: others get a timeout, and take over when the
/// process continues.
#[tokio::test]
async fn twenty_paused_writers_are_fenced() {
    for folder in homes() {
        let (mut dice, effects) = (Dice::new(), Effects::default());
        let sessions = impatient(folder.path()).await.sessions;
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let id = sessions.create(new).await.unwrap().id;
        let (mut asleep, mut locked) = (0, 0);
        for _ in 0..20 {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "holder", "--nocapture"]);
            command.env(HOLDER, format!("{}|{id}", folder.path().display()));
            let mut holder = Chat::spawn(command);
            holder.out.wait_for("acknowledged 0\n");
            sleep(Duration::from_millis(dice.below(40))).await;
            holder.signal(Signal::STOP);

            let (mut stopped, second) = (true, effects.new_run_id());
            let deadline = Instant::now() + Duration::from_secs(60);
            let taken = loop {
                let take_over = async {
                    let now = sessions.load(id).await?;
                    let commit = Commit::seal(&effects, id, now.head)
                        .with_trigger(Trigger::LeaseExpired(now.epoch))
                        .with_trigger(Trigger::BeginRun(LeaseRequest::new("second", second)));
                    sessions.commit(commit).await
                };
                match take_over.await {
                    Ok(taken) => break taken,
                    // After it continues, the process may be the first to get the lock again.
                    Err(error) if *error.kind() == ErrorKind::Unavailable && Instant::now() < deadline => {
                        assert_eq!(error.write_outcome(), WriteOutcome::NotApplied, "{error}");
                        if stopped {
                            holder.signal(Signal::CONT);
                        }
                        stopped = false;
                    }
                    Err(error) => assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}"),
                }
            };
            if stopped {
                holder.signal(Signal::CONT);
                asleep += 1;
            } else {
                locked += 1;
            }
            assert_eq!(holder.finish(), 0, "{}", holder.err.text());

            let out = holder.out.text();
            let after =
                |word: &'static str| out.lines().filter_map(move |line| Some(line.split_once(word)?.1));
            let run: RunId = after("runs ").next().unwrap().parse().unwrap();
            let acknowledged: Vec<_> = after("acknowledged ").map(str::to_owned).collect();
            let events: Vec<_> = sessions.events(id, Seq::ZERO).try_collect().await.unwrap();
            let messages: Vec<_> = events
                .iter()
                .filter(|event| event.run == Some(run) && event.kind.as_str() == "agent.message")
                .collect();
            assert_eq!(messages.iter().map(|event| text(event)).collect::<Vec<_>>(), acknowledged);
            assert!(
                messages.iter().all(|event| event.seq < taken.first),
                "nothing comes after the take-over"
            );
            let end = Commit::seal(&effects, id, taken.last)
                .with_fence(second, taken.session.epoch)
                .with_trigger(Trigger::EndRun(RunEnd::Completed(Reason::EndTurn)));
            let end = sessions.commit(end).await.unwrap();
            let events: Vec<_> = sessions.events(id, Seq::ZERO).try_collect().await.unwrap();
            check(&end.session, &events);
        }
        println!("proof: 20 paused writers");
        println!("{asleep} were replaced while they slept, {locked} held the lock");
    }
}

/// Opens the store in `folder` with a short timeout for locks.
async fn impatient(folder: &Path) -> Storage {
    let wait = Duration::from_millis(200);
    if let Some(path) = database(folder) {
        return SqliteConfig::new(path).with_busy_timeout(wait).open().await.unwrap().into();
    }
    FsConfig::new(folder).with_lock_wait(wait).open().await.unwrap().into()
}

fn text(event: &Event) -> String {
    match event.decode().unwrap() {
        agent_core::event::EventPayload::AgentMessage(message) => message.text,
        other => panic!("{other:?}"),
    }
}
