//! Servers that die, stall, send wrong answers and change their list.

use std::time::Duration;

use agent_core::event::ToolOutcome;
use agent_mcp::{McpServer, McpServers};
use agent_runtime::{RunOutcome, Turn};
use tokio::time::{Instant, sleep};

use crate::common::{STUCK, Site, limited, only, output, results, runs, server, until, within};

const UNKNOWN: &str = "it is not known whether the tool took effect";

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_started_again() {
    let site = Site::new(only(server("good"))).await;
    let first = site.one("srv__pid", "").await;
    let results = site.run(&[("srv__die", ""), ("srv__pid", "")]).await;
    assert_eq!(results[0].outcome, ToolOutcome::Error);
    assert!(output(&results[0]).contains(UNKNOWN), "{results:?}");
    // It is there again for the next call, as another process.
    assert_eq!(results[1].outcome, ToolOutcome::Ok, "{results:?}");
    assert_ne!(output(&results[1]), first);
    assert!(!runs(&first));
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn the_last_words_of_a_server_count() {
    let site = Site::new(only(server("good"))).await;
    assert_eq!(site.one("srv__last_words", "").await, "the last words");
    assert_eq!(site.one("srv__echo", "hello").await, "hello");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn restarts_are_delayed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let site = Site::new(only(server("exit").with_args([file.path().to_string_lossy()]))).await;
    for _ in 0..6 {
        assert!(site.run(&[]).await.is_empty());
    }
    // At once, at the next use, and then not before a second has passed.
    let starts = || std::fs::read_to_string(file.path()).unwrap().lines().count();
    assert_eq!(starts(), 2);
    let error = site.mcp.status(&site.agent, site.chat.id())[0].error.clone().unwrap();
    assert_eq!(error, "it ended, or sent a message that is too large; it is not tried again for 1 seconds");
    sleep(Duration::from_millis(1100)).await;
    site.run(&[]).await;
    assert_eq!(starts(), 3);
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_server_that_dies_in_every_call_is_delayed_too() {
    let site = Site::new(only(server("good"))).await;
    let results = site.run(&[("srv__die", ""), ("srv__die", ""), ("srv__die", "")]).await;
    let texts: Vec<_> = results.iter().map(output).collect();
    assert!(texts[0].contains(UNKNOWN) && texts[1].contains(UNKNOWN), "{texts:?}");
    assert!(texts[2].contains("no such tool") || texts[2].contains("not called"), "{texts:?}");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_silent_call_ends_at_its_deadline() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let site = Site::new(only(server("good").with_args([file.path().to_string_lossy()]))).await;
    let first = site.one("srv__pid", "").await;
    let start = Instant::now();
    let text = site.one("srv__stall", "").await;
    assert!(text.contains("it gave no answer in 2s") && text.contains(UNKNOWN), "{text}");
    assert!(start.elapsed() < Duration::from_secs(10));
    // It answers a ping, so it is the same process, and knows that nobody waits any more.
    assert_eq!(site.one("srv__pid", "").await, first);
    assert!(std::fs::read_to_string(file.path()).unwrap().contains("cancelled"));
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_stuck_is_replaced() {
    for mode in ["stuck", "good"] {
        let site = Site::new(only(server(mode))).await;
        let first = site.one("srv__pid", "").await;
        // One answers no ping; the other reads nothing any more.
        let tool = if mode == "stuck" { "srv__stall" } else { "srv__stop" };
        assert!(site.one(tool, "").await.contains(UNKNOWN));
        assert_ne!(site.one("srv__pid", "").await, first);
        until("the stuck server is ended", || !runs(&first)).await;
        site.agent.close().await.unwrap();
    }
}

#[tokio::test]
async fn servers_that_do_not_start_are_left_out() {
    let gone = limited(McpServer::command("no-such-program-of-this-name"));
    let mut servers = McpServers::new().with_server("gone", gone).unwrap();
    for mode in ["exit", "hang", "mute", "wrong_id", "refuses", "lists_nothing", "no_list"] {
        servers = servers.with_server(mode, server(mode)).unwrap();
    }
    let site = Site::new(servers.with_server("srv", server("good")).unwrap()).await;
    let start = Instant::now();
    assert_eq!(site.one("srv__echo", "hello").await, "hello");
    // They are waited for at the same time, each until its deadline.
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    let status = site.mcp.status(&site.agent, site.chat.id());
    for (name, why) in [
        ("gone", "its program was not found"),
        ("exit", "it ended"),
        ("hang", "it gave no answer in 3s"),
        ("mute", "it gave no answer in 3s"),
        ("wrong_id", "does not follow the protocol"),
        ("refuses", "does not follow the protocol"),
        ("lists_nothing", "it gave no answer in 2s"),
        ("no_list", "does not follow the protocol"),
    ] {
        let error =
            status.iter().find(|server| server.name == name).unwrap().error.clone().unwrap_or_default();
        assert!(error.contains(why) && !error.contains("PAYLOAD"), "{name}: {error}");
    }
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn noise_before_the_protocol_is_ignored() {
    for mode in ["noise", "stderr"] {
        let site = Site::new(only(server(mode))).await;
        assert_eq!(site.one("srv__echo", "hello").await, "hello", "{mode}");
        site.agent.close().await.unwrap();
    }
}

#[tokio::test]
async fn garbage_between_messages_is_ignored() {
    let site = Site::new(only(server("good"))).await;
    assert_eq!(site.one("srv__garbage", "").await, "after the garbage");
    assert_eq!(site.one("srv__echo", "hello").await, "hello");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn answers_that_are_nearly_json_are_read() {
    let site = Site::new(only(server("good").with_call_timeout(STUCK))).await;
    assert_eq!(site.one("srv__half", "").await, "half \u{fffd}.");
    assert_eq!(site.one("srv__bytes", "").await, "byte \u{fffd}.");
    // Nobody waits for another answer.
    let text = site.one("srv__nan", "").await;
    assert!(text.contains("its answer is no valid JSON") && text.contains(UNKNOWN), "{text}");
    assert_eq!(site.one("srv__echo", "hello").await, "hello");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn the_last_words_of_a_server_that_ends_at_its_start_are_shown() {
    let failing = server("complains").with_env("KEY", "hunter22-hunter22");
    let site = Site::new(only(failing)).await;
    for _ in 0..3 {
        assert!(site.run(&[]).await.is_empty());
        let status = site.mcp.status(&site.agent, site.chat.id()).remove(0);
        let last_words = status.last_words.unwrap();
        assert!(last_words.contains("exit status: 7"), "{last_words}");
        assert!(
            last_words.ends_with("\nError: PAYLOAD-STDERR, no entry for key (value of KEY)"),
            "{last_words}"
        );
        // This is what is logged, and what a call of its tools would say.
        assert!(!status.error.unwrap().contains("PAYLOAD"));
    }
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_the_server() {
    let site = Site::new(only(server("good"))).await;
    let first = site.one("srv__pid", "").await;
    let start = Instant::now();
    let text = site.one("srv__flood", "").await;
    assert!(text.contains("too large") && text.contains(UNKNOWN), "{text}");
    // Before the deadline of the call.
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_ne!(site.one("srv__pid", "").await, first);
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_server_that_asks_without_end_is_ended() {
    let site = Site::new(only(server("good").with_call_timeout(STUCK))).await;
    let first = site.one("srv__pid", "").await;
    // Its answers would be kept until it reads them.
    assert!(site.one("srv__nag", "").await.contains(UNKNOWN));
    assert_ne!(site.one("srv__pid", "").await, first);
    until("the server is ended", || !runs(&first)).await;
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn an_answer_with_too_many_values_is_not_read() {
    let site = Site::new(only(server("good").with_call_timeout(STUCK).with_message_max_bytes(2 << 20))).await;
    let text = site.one("srv__values", "").await;
    assert!(text.contains("or is too large") && text.contains(UNKNOWN), "{text}");
    assert_eq!(site.one("srv__echo", "hello").await, "hello");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn lists_without_end_are_cut() {
    for (mode, tools, left_out) in [("endless", 100, 0), ("circle", 1, 1), ("huge", 128, 2872)] {
        let site = Site::new(only(server(mode))).await;
        site.run(&[]).await;
        let status = &site.mcp.status(&site.agent, site.chat.id())[0];
        assert_eq!((status.tools, status.left_out, &status.error), (tools, left_out, &None), "{mode}");
        site.agent.close().await.unwrap();
    }
}

#[tokio::test]
async fn requests_of_a_server_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let site = Site::new(only(server("good").with_args([file.path().to_string_lossy()]))).await;
    assert_eq!(site.one("srv__ask", "").await, "asked");
    let read = || std::fs::read_to_string(file.path()).unwrap();
    until("three answers", || read().matches("answer ").count() == 3).await;
    let answers = read();
    assert!(answers.contains("-32601") && answers.contains("decline"), "{answers}");
    assert!(answers.contains(r#""roots":[]"#), "{answers}");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_changed_list_is_offered_at_the_next_step() {
    let site = Site::new(only(server("good"))).await;
    assert_eq!(site.run(&[("srv__change", ""), ("srv__echo", "hello")]).await.len(), 2);
    let described = |at: usize| {
        let tools = site.model.requests()[at].tools.clone();
        tools.into_iter().find(|tool| tool.name == "srv__echo").unwrap().description
    };
    assert_eq!(described(0), "Does echo, version 0.");
    assert_eq!(described(1), "Does echo, version 1.");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_tool_that_changes_within_an_answer_is_not_called() {
    let site = Site::new(only(server("good"))).await;
    let echo = agent_core::json::RawJson::parse(r#"{"text":"hello"}"#).unwrap();
    site.model.push(Turn::new().call("a", "srv__change", echo.clone()).call("b", "srv__echo", echo));
    site.model.push(Turn::new().text("Done."));
    within(async { site.chat.prompt("Go.").await.unwrap().finish().await.unwrap() }).await;
    let results = results(&site.chat).await;
    assert_eq!(output(&results[0]), "changed");
    assert!(output(&results[1]).contains("has changed tool srv__echo since it was offered"), "{results:?}");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_list_that_is_not_given_again_ends_the_server() {
    let site = Site::new(only(server("lists_nothing_later"))).await;
    assert_eq!(site.one("srv__echo", "one").await, "one");
    // The second run reads the list again, and gets none in time.
    assert!(site.run(&[]).await.is_empty());
    assert_eq!(site.offered().last().unwrap().len(), 0);
    assert!(
        site.mcp.status(&site.agent, site.chat.id())[0].error.as_ref().unwrap().contains("no answer in 2s")
    );
    // It has cost two seconds, so that it is not tried again at once.
    site.run(&[]).await;
    assert!(
        site.mcp.status(&site.agent, site.chat.id())[0]
            .error
            .as_ref()
            .unwrap()
            .contains("not tried again for")
    );
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_run_cancels_its_call() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let slow =
        server("good").with_args([file.path().to_string_lossy()]).with_call_timeout(Duration::from_secs(100));
    let site = Site::new(only(slow)).await;
    site.script(&[("srv__stall", "")]);
    let run = site.chat.prompt("Go.").await.unwrap();
    let read = || std::fs::read_to_string(file.path()).unwrap();
    until("the call is made", || read().contains("call stall")).await;
    run.cancel();
    let report = within(async { run.finish().await.unwrap() }).await;
    assert_eq!(report.outcome, RunOutcome::Interrupted);
    assert_eq!(results(&site.chat).await[0].outcome, ToolOutcome::Interrupted);
    until("the server hears of it", || read().contains("cancelled")).await;
    site.agent.close().await.unwrap();
}
