//! The providers' own clients, in Python, read what the servers stream, send it back, and are refused when they do not.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use model_servers::{Item, Provider, Rule, Server, Wire};
use serde_json::json;
use tokio::process::Command;

/// Where `.ci/servers` installs the clients.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/model-sdks/bin/python");

async fn serve(wire: Wire) -> Server {
    let call = |at: u32| Item::Call { name: "look".to_owned(), arguments: json!({ "at": at }) };
    let reads = vec![
        Item::Reasoning("They ask.".to_owned()),
        Item::Text("I look. 한🙂".to_owned()),
        Item::Reasoning("So.".to_owned()),
        call(1),
        call(2),
    ];
    let mut answers = [reads, vec![Item::Text("Done.".to_owned())]].into_iter();
    Server::checking(Provider::new(wire), move |provider, request, _| {
        provider.answer(request, &answers.next().unwrap_or_default())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_providers_own_clients_are_understood_and_refused() {
    if !Path::new(PYTHON).exists() {
        assert!(std::env::var_os("CI").is_none(), "{PYTHON} is missing; run .ci/servers");
        let _ = writeln!(
            std::io::stderr(),
            "\n*** LEFT OUT: the providers' clients; .ci/servers installs them ***\n"
        );
        return;
    }
    let wires = [
        (Wire::Anthropic, Rule::Signature),
        (Wire::Responses, Rule::FollowingItem),
        (Wire::Gemini, Rule::SignatureMissing),
        (Wire::Chat, Rule::ResultMissing),
    ];
    let mut servers = Vec::new();
    for (wire, _) in wires {
        servers.push(serve(wire).await);
    }
    let mut python = Command::new(PYTHON);
    python
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdks.py"))
        .args(servers.iter().map(|server| &server.url));
    python.stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(Duration::from_secs(120), python.output()).await;
    let output = ended.expect("the clients end before their deadline").unwrap();
    let (texts, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{texts}\n{wrong}");
    assert_eq!(texts.lines().count(), wires.len(), "{texts}");
    for (server, (wire, rule)) in servers.iter().zip(wires) {
        let refused: Vec<_> = server.refusals().iter().map(|refusal| refusal.rule).collect();
        assert_eq!(refused, [rule], "{wire:?}");
    }
}
