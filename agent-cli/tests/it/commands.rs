//! Commands of a conversation, and the state after the next start.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agent_core::session::SessionSummary;
use agent_core::state::SessionState;
use agent_core::store::SessionQuery;

use crate::common::{Chat, found, homes, storage};

/// Returns the output of a chat for these lines.
#[track_caller]
fn printed(folder: &Path, lines: &[&str]) -> (String, String) {
    let mut chat = Chat::start(folder, &[]);
    for line in lines {
        chat.send(line);
    }
    assert_eq!(chat.finish(), 0, "{}", chat.err.text());
    (chat.out.text(), chat.err.text())
}

/// Several sessions in a workspace; the next start opens the most recently used one.
#[test]
fn sessions_are_started_listed_and_switched() {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = printed(folder.path(), &["in main", "/new second one", "in second", "/sessions"]);
    let rows: Vec<_> = out.lines().skip_while(|line| !line.starts_with("   #  ID ")).skip(1).collect();
    let cells = |row: &str| {
        row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row)).collect();
    let told = |row: usize| cells[row][cells[row].len() - 4..].iter().map(String::as_str).collect::<Vec<_>>();
    assert!(rows.len() == 2 && rows[0].starts_with("*  1  ") && rows[1].starts_with("   2  "), "{out}");
    assert_eq!(told(0), ["idle", "2", "second one", "in second"], "{out}");
    assert_eq!(told(1), ["idle", "2", "main", "in main"], "{out}");

    let (out, err) = printed(folder.path(), &["/history", "/switch 2", "/history", "again in main"]);
    assert_eq!(out, "laptop: in second\nagent: in second\nlaptop: in main\nagent: in main\nagain in main\n");
    assert!(err.contains("(second one), 2 messages") && err.contains("(main), 2 messages"), "{err}");

    let (_, err) = printed(folder.path(), &[]);
    assert!(err.contains("(main), 4 messages"), "{err}");
}

/// As many messages are shown as asked for, also if they are more than a page holds.
#[test]
fn history_shows_as_much_as_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(1 << 20);
    let lines: Vec<_> = std::iter::repeat_n(&*long, 6).chain(["/history 11"]).collect();
    let (out, err) = printed(folder.path(), &lines);
    let starts = ["laptop: x", "agent: x", "(the model is given a summary"];
    let shown = |out: &str, start: &str| out.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(starts.iter().map(|start| shown(&out, start)).sum::<usize>(), 11);
    assert!((out + &err).contains("(older messages: type /history"));
    let (out, err) = printed(folder.path(), &["/history 100"]);
    assert_eq!((shown(&out, starts[0]), shown(&out, starts[1])), (6, 6));
    assert!(!(out + &err).contains("(older messages"));
}

/// A fork continues on its own, and does not change its parent.
#[test]
fn fork_leaves_the_original_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let lines = ["shared", "/fork", "in the fork", "/history", "/switch 2", "/history"];
    let (out, _) = printed(folder.path(), &lines);
    let shared = "laptop: shared\nagent: shared\n";
    let fork = format!("shared\nin the fork\n{shared}laptop: in the fork\nagent: in the fork\n");
    assert_eq!(out, format!("{fork}{shared}"));
}

/// `/clear` empties the history; the log still contains it.
#[tokio::test]
async fn clear_starts_a_new_history_and_keeps_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let (out, _) = printed(folder.path(), &["before", "/clear", "/history", "after", "/history"]);
    assert_eq!(out, "before\n(no messages yet)\nafter\nlaptop: after\nagent: after\n");
    let (_, err) = printed(folder.path(), &[]);
    assert!(err.contains("2 messages"), "{err}");
    assert_eq!(found(folder.path()).await.prompts(), ["before", "after"], "nothing is removed from the log");
}

/// Attached files are sent with the next message, and with no other; what cannot be attached is named.
#[test]
fn attached_files_go_with_the_next_message() {
    let folder = tempfile::tempdir().unwrap();
    let cat = folder.path().join("cat.png");
    std::fs::write(&cat, b"\x89PNG").unwrap();
    let attach = format!("/attach {}", cat.display());
    let data = tempfile::tempdir().unwrap();
    let lines = [&attach, "what is it?", "and now?", &attach, "/detach", "nothing", "/history"];
    let (out, err) = printed(data.path(), &lines);
    let (_, history) = out.split_once("nothing\n").unwrap();
    let line = "[image cat.png, image/png, 4 bytes]";
    assert!(history.contains(&format!("laptop: what is it?\n{line}\n")), "{history}");
    let left_out =
        format!("agent: what is it?\n{line} (left out: this model does not take it)\nlaptop: and now?\n");
    assert!(history.contains(&left_out), "{history}");
    assert_eq!(history.matches(line).count(), 2, "{history}");
    assert!(err.contains(&format!("{line} is sent with your next message")), "{err}");
    assert!(err.contains("1 file detached"), "{err}");

    let mut chat = Chat::start(data.path(), &[]);
    chat.send("/attach /nowhere/cat.png");
    assert_eq!(chat.finish(), 1);
    assert!(chat.err.text().contains("cannot attach /nowhere/cat.png: No such file"), "{}", chat.err.text());
}

/// A message whose file cannot be stored is not sent. The file and the reason are named, and its text waits: an empty line sends it
/// again, with the file or without it, and another text takes its place.
#[tokio::test]
async fn a_message_whose_file_fails_keeps_its_text() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut chat = Chat::start(data.path(), &[]);
    let fails = |name: &str, text: &str, chat: &mut Chat| {
        let cat = folder.path().join(name);
        std::fs::write(&cat, b"\x89PNG").unwrap();
        chat.send(&format!("/attach {}", cat.display()));
        chat.err.wait_for(&format!("[image {name}, image/png"));
        std::fs::remove_file(&cat).unwrap();
        chat.send(text);
        chat.err.wait_for(&format!("cannot read {}", cat.display()));
        cat
    };
    let cat = fails("one.png", "what is it?", &mut chat);
    chat.err.wait_for("the message was not sent; its text and files wait: an empty line sends them");
    std::fs::write(&cat, b"\x89PNG").unwrap();
    chat.send("");
    chat.out.wait_for("what is it?\n[image one.png");
    fails("two.png", "only a text", &mut chat);
    chat.send("/detach");
    chat.send("");
    chat.out.wait_for("only a text\n");
    fails("three.png", "this is not sent", &mut chat);
    chat.send("/detach");
    chat.send("but this is");
    chat.out.wait_for("but this is\n");
    // A pipe in the place of a file would wait for its writer.
    let pipe = fails("four.png", "nor this", &mut chat);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    chat.send("nor that");
    chat.err.wait_for_times(&format!("cannot read {}", pipe.display()), 2);
    chat.send("/detach");
    assert_eq!(chat.finish(), 1);
    assert_eq!(found(data.path()).await.prompts(), ["what is it?", "only a text", "but this is"]);
}

/// A file that is changed after it was attached is not sent; the user is told to attach it again, and can. A file that is
/// gone is named with one reason.
#[test]
fn a_changed_file_must_be_attached_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = tempfile::tempdir().unwrap();
    let mut chat = Chat::start(data.path(), &[]);
    // In the event itself, as a blob, and as a blob that becomes shorter.
    for (number, before, after) in [(1, 4, 4), (2, 300_000, 300_000), (3, 300_000, 200_000)] {
        let cat = folder.path().join(format!("cat{number}.png"));
        let picture = |byte: u8, size: usize| [&[0xff, 0xd8, 0xff][..], &vec![byte; size - 3]].concat();
        std::fs::write(&cat, picture(1, before)).unwrap();
        chat.send(&format!("/attach {}", cat.display()));
        chat.err.wait_for(&format!("[image cat{number}.png, image/png"));
        std::fs::write(&cat, picture(2, after)).unwrap();
        chat.send("what is it?");
        let again = format!("attach it again: /attach {}", cat.display());
        chat.err.wait_for(&format!("file {} was changed after it was first read; {again}", cat.display()));
        chat.send(&format!("/attach {}", cat.display()));
        chat.send(&format!("and number {number}?"));
        chat.out.wait_for(&format!("and number {number}?\n[image cat{number}.png"));
    }
    let gone = folder.path().join("gone.png");
    std::fs::write(&gone, [1; 4]).unwrap();
    chat.send(&format!("/attach {}", gone.display()));
    chat.err.wait_for("[image gone.png");
    std::fs::remove_file(&gone).unwrap();
    chat.send("and this?");
    chat.err.wait_for("gone.png; check");
    assert_eq!(chat.finish(), 1);
    let err = chat.err.text();
    assert_eq!(err.matches("os error 2").count(), 1, "{err}");
    assert!(!err.contains("compute"), "{err}");
}

/// An unknown command is refused, and is not sent as a message.
#[tokio::test]
async fn unknown_slash_command_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Chat::start(folder.path(), &[]);
    for line in ["/nope", "/switch 99", "//etc/passwd", "   ", ""] {
        chat.send(line);
    }
    assert_eq!(chat.finish(), 1);
    let err = chat.err.text();
    assert!(err.contains("unknown command /nope") && err.contains("no session 99"), "{err}");
    assert_eq!(chat.out.text(), "/etc/passwd\n");
    assert_eq!(found(folder.path()).await.prompts(), ["/etc/passwd"]);
}

/// Each device has its own workspace.
#[test]
fn devices_have_workspaces_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    printed(folder.path(), &["from the laptop"]);
    let mut phone = Command::new(env!("CARGO_BIN_EXE_chat"));
    phone.arg("--data-dir").arg(folder.path()).args(["--device", "phone, ../../etc 안녕"]);
    let mut phone = Chat::spawn(phone);
    phone.send("/history");
    assert_eq!(phone.finish(), 0, "{}", phone.err.text());
    assert_eq!(phone.out.text(), "(no messages yet)\n");
}

/// `/workspace` and `/context` print one line for each value; `/help` lists the commands.
#[test]
fn workspace_and_context_commands_show_the_status() {
    let folder = tempfile::tempdir().unwrap();
    let (out, err) =
        printed(folder.path(), &["one", "two", "/workspace", "/context", "/clear", "/context", "/help"]);
    let id = err.split("workspace ").nth(1).unwrap().split(',').next().unwrap();
    assert!(out.contains(&format!("id         {id}\n")) && out.contains("messages   4\n"), "{out}");
    assert!(out.contains("workspace  laptop\n"), "the workspace is named after the device: {out}");
    assert!(out.contains("model      offline\n") && out.contains(folder.path().to_str().unwrap()), "{out}");
    let counts: Vec<_> = out.lines().filter(|line| line.contains("in the context window")).collect();
    assert_eq!(counts[0], "4 messages in the context window, 0 messages without an answer");
    assert_eq!(counts[1], "0 messages in the context window, 0 messages without an answer");
    for command in ["/workspace", "/clear", "/context", "/help", "/quit"] {
        assert!(out.contains(&format!("  {command} ")), "{command}: {out}");
    }
}

/// A message is edited, answered again and taken back; what was there before is restored.
#[test]
fn messages_are_edited_retried_and_taken_back() {
    for folder in homes() {
        let lines =
            ["/title A trip", "one", "wrong", "/edit right", "/history", "/undo", "/history", "/branches"];
        let (out, err) = printed(folder.path(), &lines);
        let first = "laptop: one\nagent: one\n";
        let edited = format!("one\nwrong\nright\n{first}laptop: right\nagent: right\n{first}");
        assert!(out.starts_with(&edited), "{out} {err}");
        let branches: Vec<_> = out[edited.len()..].lines().collect();
        assert!(branches.len() == 2 && branches[0].ends_with("right"), "{out}");
        assert!(branches[1].ends_with("4 messages  wrong"), "{out}");
        assert!(err.contains("(taken back: right)"), "{err}");

        // The next start continues it, and lists show it once.
        let lines = ["/sessions", "/restore 2", "/history 2", "/retry", "/title", "/branches"];
        let (out, err) = printed(folder.path(), &lines);
        assert!(err.contains("(A trip), 2 messages"), "{err}");
        assert_eq!(out.lines().filter(|line| line.contains("A trip")).count(), 2, "{out}");
        assert!(out.contains("\nlaptop: wrong\nagent: wrong\nwrong\nA trip\n"), "{out}");
        assert_eq!(out.lines().filter(|line| line.contains("  idle  ")).count(), 1, "{out}");
        assert_eq!(out.lines().filter(|line| line.contains("messages  ")).count(), 4, "{out}");
    }
}

/// What cannot be edited is named, and what was meant.
#[test]
fn edits_of_nothing_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Chat::start(folder.path(), &[]);
    for line in [
        "/edit",
        "/edit x",
        "/retry",
        "/undo",
        "/rewind x",
        "/rewind 99",
        "/edit #7 x",
        "/restore 1",
        "/copy",
        "/udno",
        "/model claude",
        "/model",
        "/title",
    ] {
        chat.send(line);
    }
    assert_eq!(chat.finish(), 1);
    let (out, err) = (chat.out.text(), chat.err.text());
    for told in [
        "write the message: /edit TEXT",
        "there is no message to edit",
        "has no message of a person",
        "/rewind N",
        "there is no message to go back to",
        "/restore N; there is none yet",
        "there is no answer to copy",
        "did you mean /undo?",
        "a model is anthropic:NAME",
    ] {
        assert!(err.contains(told), "{told}: {err}");
    }
    assert_eq!(out, "offline\n(no title; /title TEXT sets one)\n");
    assert!(!err.contains("panicked"), "{err}");
}

/// A number that is that of no message is refused, with the numbers that there are.
#[test]
fn numbers_that_are_not_there_are_refused_with_those_that_are() {
    let folder = tempfile::tempdir().unwrap();
    let lines = [
        "one",
        "two",
        "/rewind 0",
        "/rewind #99",
        "/rewind 1",
        "/edit #0 x",
        "/rewind 18446744073709551615",
        "/retry",
        "/restore 7",
    ];
    let mut chat = Chat::start(folder.path(), &[]);
    lines.iter().for_each(|line| chat.send(line));
    assert_eq!(chat.finish(), 1, "a part was refused");
    let (out, err) = (chat.out.text(), chat.err.text());
    let numbers = "the messages of this conversation are among #3 to #";
    for number in ["/rewind 0", "1", "#99", "#18446744073709551615"] {
        let number = number.trim_start_matches("/rewind ").trim_start_matches('#');
        assert!(err.contains(&format!("there is no message #{number}; {numbers}")), "{number}: {err}");
    }
    assert_eq!(err.matches("there is no message #0").count(), 2, "{err}");
    assert!(err.contains("/restore N; those of 1 to 1 are there"), "{err}");
    assert!(!err.contains("forked") && out.contains("two"), "{out} {err}");
}

/// Waits until the session in the list has this last message.
async fn until_last(folder: &Path, text: &str) {
    let storage = storage(folder).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let listed = storage.sessions.list(SessionQuery::new()).await.unwrap().items;
        let is_answered = |session: &&SessionSummary| {
            session.preview.as_deref() == Some(text) && session.status.state == SessionState::Idle
        };
        if listed.iter().any(|session| is_answered(&session)) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{text}: {listed:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A search finds what was edited away, too, and says where the conversation goes on.
#[test]
fn what_was_edited_away_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let lines = ["about a giraffe", "/edit about a zebra", "/search giraffe", "/open 1"];
    let (out, err) = printed(folder.path(), &lines);
    assert!(out.contains("laptop: about a giraffe"), "{out}");
    let (_, place) = err.split_once("the conversation goes on in session ").expect("it is said");
    let id = place.split(':').next().unwrap();
    let (out, err) = printed(folder.path(), &[&format!("/switch {id}"), "/history"]);
    assert!(out.contains("laptop: about a zebra") && !err.contains("edited away"), "{out}{err}");
}

/// On a terminal the history has numbers, by which a message is edited, and the last answer goes to the clipboard.
#[tokio::test]
async fn messages_have_numbers_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Chat::on_terminal(folder.path(), &[]);
    chat.out.wait_for("a new conversation (0 messages, data in ");
    chat.out.wait_for("The offline model repeats what you type");
    for text in ["first", "second"] {
        chat.send(text);
        until_last(folder.path(), text).await;
    }
    chat.send("/history");
    chat.out.wait_for("agent: second");
    let text = chat.out.text();
    let line = text.lines().find(|line| line.contains("laptop: first")).expect("it is shown");
    let number = line.split('#').nth(1).and_then(|rest| rest.split(' ').next()).expect("it has a number");
    chat.send(&format!("/edit #{number} other"));
    until_last(folder.path(), "other").await;
    chat.send("/history");
    chat.out.wait_for("agent: other");
    chat.send("/copy");
    chat.out.wait_for("\x1b]52;c;b3RoZXI=\x07");
    chat.send("/quit");
    assert_eq!(chat.wait(), 0, "{}", chat.out.text());

    // The next start shows the end of the conversation.
    let mut chat = Chat::on_terminal(folder.path(), &[]);
    chat.out.wait_for("other (2 messages, data in ");
    chat.out.wait_for("laptop: other");
    chat.out.wait_for("agent: other");
    chat.send("/quit");
    assert_eq!(chat.wait(), 0, "{}", chat.out.text());
}

/// Ctrl-R finds an earlier line; the lines of the conversation are there after a new start.
#[tokio::test]
async fn earlier_lines_are_searched_on_a_terminal() {
    const CTRL_R: &str = "\x12";
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Chat::on_terminal(folder.path(), &[]);
    chat.out.wait_for("/help lists the commands.");
    for text in ["the first of them", "the second"] {
        chat.send(text);
        until_last(folder.path(), text).await;
    }
    chat.send("/quit");
    assert_eq!(chat.wait(), 0, "{}", chat.out.text());

    let mut chat = Chat::on_terminal(folder.path(), &[]);
    chat.out.wait_for("/help lists the commands.");
    chat.out.wait_for("> ");
    chat.send(&format!("{CTRL_R}first of"));
    until_last(folder.path(), "the first of them").await;
    chat.send("/quit");
    assert_eq!(chat.wait(), 0, "{}", chat.out.text());
}

/// Markdown of an answer becomes styles on a terminal, unless `NO_COLOR` is set; in a pipe it is as the model wrote it.
#[tokio::test]
async fn answers_have_styles_on_a_terminal() {
    const TEXT: &str = "say **bold** and `code`";
    const STYLED: &str = "say \x1b[1mbold\x1b[0m and \x1b[36mcode\x1b[0m";
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Chat::on_terminal(folder.path(), &[]);
    chat.out.wait_for("\x1b[2mThe offline model repeats what you type");
    chat.send(TEXT);
    until_last(folder.path(), TEXT).await;
    chat.out.wait_for(STYLED);
    chat.send("/history");
    chat.out.wait_for(&format!("agent: {STYLED}"));
    chat.send("/nonsense");
    chat.out.wait_for("\x1b[31merror: unknown command");
    chat.send("/quit");
    assert_eq!(chat.wait(), 0, "a person has read it: {}", chat.out.text());

    let mut plain = Chat::without_styles(folder.path());
    plain.out.wait_for("The offline model repeats what you type");
    plain.send("/history");
    plain.out.wait_for(&format!("agent: {TEXT}"));
    plain.send("/quit");
    assert_eq!(plain.wait(), 0, "{}", plain.out.text());
    assert!(!plain.out.text().contains("\x1b[2m"), "{}", plain.out.text());

    let mut pipe = Chat::start(folder.path(), &[]);
    pipe.send(TEXT);
    assert_eq!(pipe.finish(), 0);
    assert_eq!(pipe.out.text(), format!("{TEXT}\n"));
}

/// Lines that are typed while others are answered are answered, too, in order.
#[tokio::test]
async fn lines_that_are_typed_ahead_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut chat = Chat::on_terminal(folder.path(), &["--echo-delay-ms", "20"]);
    chat.out.wait_for("/help lists the commands.");
    chat.send("one of many\ntwo\nthree\nfour\n/quit");
    assert_eq!(chat.wait(), 0, "{}", chat.out.text());
    assert_eq!(found(folder.path()).await.answered(), ["one of many", "two", "three", "four"]);
}
