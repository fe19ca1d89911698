//! Consent: nothing runs that was not shown whole.

use std::path::Path;

use agent_core::async_trait;
use agent_core::event::ToolOutcome;
use agent_core::json::RawJson;
use agent_runtime::{
    AgentBuilder, NewWorkspace, Plugin, RunOutcome, ScriptedProvider, ToolContext, ToolMode, ToolSpec, Turn,
};

use crate::common::{Chat, found, homes, storage};

/// Tool that takes anything, after consent.
#[derive(Debug)]
struct Writes;

#[async_trait]
impl Plugin for Writes {
    fn name(&self) -> &str {
        "writes"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![ToolSpec::new("write", "Writes.").with_mode(ToolMode::Confirm)]
    }

    async fn call(&self, _: &str, _: RawJson, _: ToolContext) -> agent_core::Result<RawJson> {
        RawJson::of(&"written")
    }
}

/// Leaves a session in which a call of `write` with these arguments waits for consent.
async fn asks(folder: &Path, input: &serde_json::Value) {
    let call = Turn::new().call("w1", "write", RawJson::of(input).unwrap());
    let agent = AgentBuilder::new()
        .with_llm(ScriptedProvider::new([call]))
        .with_plugin(Writes)
        .with_storage(storage(folder).await)
        .build()
        .unwrap();
    let device = "laptop".parse().unwrap();
    let workspace =
        agent.workspaces().resolve_or_create(&device, &NewWorkspace::new("laptop")).await.unwrap();
    let chat = agent.open_main(&workspace.workspace).await.unwrap();
    let report = chat.prompt("Write it.").await.unwrap().finish().await.unwrap();
    let RunOutcome::Awaiting(action) = report.outcome else { panic!("it needs consent") };
    assert!(action.question.len() <= 2048, "the log has a part of a long question");
    agent.close().await.unwrap();
}

/// A long call: its middle holds what matters, and characters that nobody sees.
fn long() -> serde_json::Value {
    let lines: Vec<_> = (0..60).map(|at| format!("{at} {}", "z".repeat(100))).collect();
    serde_json::json!({
        "begin": lines,
        "middle": "rm\u{200b} -rf \u{202e}/\u{e0041}\u{fe0f}\u{ad}\u{7f}",
        "end": lines,
    })
}

/// What the editor of lines writes before it reads one.
const READY: &str = "\u{1b}[?2004h";

/// Types lines on a terminal, each when it is read: what is typed before may be dropped.
struct Typist(Chat, usize);

impl Typist {
    fn send(&mut self, line: &str) {
        self.1 += 1;
        self.0.out.wait_for_times(READY, self.1);
        self.0.send(line);
    }
}

/// A pipe gets the whole call at once, from the log, and with marks.
#[tokio::test]
async fn a_pipe_gets_the_whole_call() {
    for folder in homes() {
        asks(folder.path(), &long()).await;
        let mut chat = Chat::start(folder.path(), &[]);
        chat.err.wait_for("(the session waits for /allow or /deny)");
        let shown = chat.err.text();
        let call = serde_json::to_string(&long()).unwrap();
        let marked = "rm<U+200B> -rf <U+202E>/<U+E0041><U+FE0F><U+00AD><U+007F>";
        assert!(shown.contains(marked), "{shown}");
        for piece in call.split(',').filter(|piece| piece.contains("zzz")) {
            assert!(shown.contains(piece), "{piece}: {shown}");
        }
        assert!(!shown.contains("left out"), "{shown}");
        chat.send("/deny");
        chat.err.wait_for("denied");
        assert_eq!(chat.finish(), 0);
        assert_eq!(found(folder.path()).await.outcomes(), [ToolOutcome::Denied]);
    }
}

/// A terminal is shown a long call page by page, and the question comes after the last one. Until then nothing is allowed.
#[tokio::test]
async fn a_terminal_shows_a_call_page_by_page() {
    for folder in homes() {
        asks(folder.path(), &long()).await;
        let mut chat = Typist(Chat::on_terminal(folder.path(), &[]), 0);
        chat.0.out.wait_for("(page 1 of ");
        let text = chat.0.out.text();
        let (_, pages) = text.split_once("(page 1 of ").unwrap();
        let pages: usize = pages.split(';').next().unwrap().parse().unwrap();
        assert!(pages > 5, "{pages}");
        assert!(!text.contains("<U+200B>"), "the middle is on a later page: {text}");
        chat.send("/allow");
        chat.0.out.wait_for("the call was not shown to its end");
        for page in 2..pages {
            chat.send("");
            chat.0.out.wait_for(&format!("(page {page} of {pages};"));
            assert!(!chat.0.out.text().contains("(the session waits"), "{}", chat.0.out.text());
        }
        chat.send("/allow");
        chat.0.out.wait_for_times("the call was not shown to its end", 2);
        chat.send("");
        chat.0.out.wait_for("(the session waits for /allow or /deny)");
        assert!(chat.0.out.text().contains("<U+200B>"), "{}", chat.0.out.text());
        // There are no more pages, and an empty line says nothing.
        chat.send("");
        chat.send("/allow");
        chat.0.out.wait_for("[-> error");
        chat.send("/quit");
        assert_eq!(chat.0.wait(), 0, "a person has read what was refused: {}", chat.0.out.text());
        // The program has no tool with this name; what was allowed was tried.
        assert_eq!(found(folder.path()).await.outcomes(), [ToolOutcome::Error]);
    }
}

/// What is refused need not be read to its end.
#[tokio::test]
async fn a_call_is_denied_after_its_first_page() {
    let [folder, _] = homes();
    asks(folder.path(), &long()).await;
    let mut chat = Typist(Chat::on_terminal(folder.path(), &[]), 0);
    chat.0.out.wait_for("(page 1 of ");
    chat.send("/deny");
    chat.0.out.wait_for("denied");
    chat.send("/quit");
    assert_eq!(chat.0.wait(), 0);
    assert_eq!(found(folder.path()).await.outcomes(), [ToolOutcome::Denied]);
}

/// What a model writes does not steer the terminal on which it is shown, also if the input is a file.
#[tokio::test]
async fn an_answer_does_not_steer_a_terminal() {
    let [folder, _] = homes();
    let mut chat = Chat::with_terminal_output(folder.path(), &[]);
    chat.send("clear \u{1b}[2J\u{9b}31m\u{202e}all");
    chat.out.wait_for("all");
    assert_eq!(chat.finish(), 0);
    let shown = chat.out.text();
    assert!(shown.contains("clear \\u{1b}[2J\\u{9b}31m\\u{202e}all"), "{shown:?}");
    assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{shown:?}");
}

/// Messages that another program has stored do not steer the terminal when the arrow keys recall them.
#[tokio::test]
async fn a_recalled_message_does_not_steer_a_terminal() {
    let [folder, _] = homes();
    let mut other = Chat::start(folder.path(), &[]);
    other.send("plain line");
    other.send("odd \u{1b}[2J\u{202e}line");
    assert_eq!(other.finish(), 0);
    let mut chat = Typist(Chat::on_terminal(folder.path(), &[]), 0);
    chat.0.out.wait_for(READY);
    chat.0.type_in("\u{1b}[A");
    chat.send("");
    chat.0.out.wait_for("plain line");
    chat.send("/quit");
    assert_eq!(chat.0.wait(), 0, "{}", chat.0.out.text());
    let shown = chat.0.out.text();
    assert!(!shown.contains("\u{1b}[2J") && !shown.contains('\u{202e}'), "{shown:?}");
}
