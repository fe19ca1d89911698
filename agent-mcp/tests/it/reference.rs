//! The reference server of the protocol's own project, `@modelcontextprotocol/server-everything` of npm.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use agent_core::event::{MediaSource, ToolOutcome};
use agent_mcp::McpServer;
use tokio::process::{Child, Command};

use crate::common::{Site, only, output, until};

/// Where `.ci/servers` installs it.
const SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../target/mcp-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
);

/// Returns whether the server is installed. If not, says so loudly, and fails in CI.
fn is_there() -> bool {
    if Path::new(SERVER).exists() {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "{SERVER} is missing; run .ci/servers");
    let _ = writeln!(
        std::io::stderr(),
        "\n*** LEFT OUT: the reference server of MCP; .ci/servers installs it ***\n"
    );
    false
}

async fn is_understood(site: &Site) {
    let results = site
        .run(&[
            ("srv__echo", r#"{"message":"hello"}"#),
            ("srv__get-sum", r#"{"a":2,"b":40}"#),
            ("srv__get-tiny-image", "{}"),
            ("srv__get-structured-content", r#"{"location":"Chicago"}"#),
            ("srv__get-resource-reference", r#"{"resourceType":"Text","resourceId":1}"#),
            ("srv__get-resource-reference", r#"{"resourceType":"Blob","resourceId":2}"#),
            ("srv__get-sum", r#"{"a":"two"}"#),
        ])
        .await;
    assert!(output(&results[0]).contains("hello"), "{results:?}");
    assert!(output(&results[1]).contains("42"), "{results:?}");
    let image = results[2].content[0].media().unwrap();
    assert_eq!((results[2].content[0].tag().as_ref(), image.media_type.as_str()), ("image", "image/png"));
    assert!(image.source.size_bytes().unwrap() > 100 && !matches!(image.source, MediaSource::Uri(_)));
    assert!(results[3].structured.as_ref().unwrap().get().contains("temperature"), "{results:?}");
    assert!(output(&results[4]).contains("[resource demo://"), "{results:?}");
    assert_eq!(results[5].content[0].tag(), "resource");
    assert_eq!(results[6].outcome, ToolOutcome::Error, "{results:?}");
    let status = &site.mcp.status(&site.agent, site.chat.id())[0];
    assert!(status.tools >= 10 && status.left_out == 0 && status.error.is_none(), "{status:?}");
    // Without capabilities of the client, the server offers no tool that needs one.
    let offered = site.offered();
    assert!(
        offered[0].iter().all(|name| !name.contains("sampling") && !name.contains("elicitation")),
        "{offered:?}"
    );
}

#[tokio::test]
async fn the_reference_server_is_understood_over_pipes() {
    if !is_there() {
        return;
    }
    let server = McpServer::command("node").with_args([SERVER, "stdio"]);
    let site = Site::new(only(server)).await;
    is_understood(&site).await;
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn the_reference_server_is_understood_over_http() {
    if !is_there() {
        return;
    }
    let (_child, url) = start_http().await;
    let site = Site::new(only(McpServer::url(url))).await;
    is_understood(&site).await;
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_long_call_of_the_reference_server_ends_at_its_deadline() {
    if !is_there() {
        return;
    }
    let server =
        McpServer::command("node").with_args([SERVER, "stdio"]).with_call_timeout(Duration::from_secs(1));
    let site = Site::asking(only(server)).await;
    crate::common::waits(&site, "srv__trigger-long-running-operation", r#"{"duration":30,"steps":3}"#).await;
    let text = crate::common::allow(&site).await;
    assert!(text.contains("it gave no answer in 1s"), "{text}");
    site.agent.close().await.unwrap();
}

/// Starts the server on a free port of the loopback.
async fn start_http() -> (Child, String) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut command = Command::new("node");
    command.args([SERVER, "streamableHttp"]).env("PORT", port.to_string()).kill_on_drop(true);
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let child = command.spawn().unwrap();
    until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
    (child, format!("http://127.0.0.1:{port}/mcp"))
}
