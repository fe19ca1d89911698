//! Tools of MCP servers in the program: of its configuration, and of an editor that names them.
//!
//! The server is the reference server of the protocol's own project, the editor one on the Python SDK of the Agent Client
//! Protocol. `.ci/servers` installs both under `target`. Without one its test says so; if `CI` is set, it fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Chat, PROGRAM, found, homes};
use agent_core::event::ToolOutcome;
use tempfile::TempDir;

const SERVER: &str = "mcp-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js";

/// Returns a file that is installed below `target`; `None` if it is not.
fn installed(file: &str) -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("target").join(file);
    if found.exists() {
        return Some(found);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is missing; run .ci/servers", found.display());
    println!("LEFT OUT: {} is missing; run .ci/servers", found.display());
    None
}

/// Writes a configuration with the server, under the name `every`. Returns its path.
fn configuration(folder: &TempDir, server: &Path) -> String {
    let file = folder.path().join("config.toml");
    let text = format!(
        "[mcp.every]\ncommand = 'node'\nargs = ['{}']\nenv = {{ TOKEN = 'hunter22' }}\n",
        server.display()
    );
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// The person is asked with the whole call, allows one, allows all later ones, and refuses one. What is allowed for good
/// holds for the next process, too.
#[tokio::test]
async fn tools_of_servers_are_used_after_consent() {
    let Some(server) = installed(SERVER) else { return };
    for home in homes() {
        let settings = TempDir::new().unwrap();
        let file = configuration(&settings, &server);
        let mut chat = Chat::start(home.path(), &["--config", &file]);
        chat.send("/mcp");
        chat.out.wait_for("every: ");
        chat.out.wait_for("every__echo");
        chat.send("/allow");
        chat.err.wait_for("no question waits");
        chat.send(r#"!every__echo {"message":"first"}"#);
        chat.err.wait_for("(the session waits for /allow, /always or /deny)");
        assert!(!chat.out.text().contains("Echo: first"), "{}", chat.out.text());
        chat.send("/allow");
        chat.out.wait_for("Echo: first");
        chat.send(r#"!every__echo {"message":"second"}"#);
        chat.err.wait_for_times("the session waits", 2);
        // A question outlives the program, and a message meanwhile does not answer it.
        chat.kill();

        let mut chat = Chat::start(home.path(), &["--config", &file]);
        chat.err.wait_for("the session waits for /allow, /always or /deny)");
        // What is typed meanwhile is stored, and says what to do first.
        chat.send("/run");
        chat.err.wait_for_times("the session waits for /allow", 2);
        chat.send("/allow");
        chat.out.wait_for("Echo: second");
        chat.send(r#"!every__echo {"message":"third"}"#);
        chat.err.wait_for_times("/always or /deny", 3);
        chat.kill();
        // A new process knows what the person is asked about.
        let mut chat = Chat::start(home.path(), &["--config", &file]);
        chat.send("/always");
        chat.out.wait_for("Echo: third");
        chat.send(r#"!every__get-sum {"a":2,"b":40}"#);
        chat.err.wait_for_times("/always or /deny", 2);
        chat.send("/deny");
        chat.err.wait_for("denied");
        chat.kill();

        // The command is another one: what waits is not called.
        let mut chat = Chat::start(home.path(), &["--config", &file]);
        chat.send(r#"!every__get-sum {"a":3,"b":4}"#);
        chat.err.wait_for("/always or /deny");
        chat.kill();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("index.js'", "index.js', 'stdio'")).unwrap();
        let mut chat = Chat::start(home.path(), &["--config", &file]);
        chat.send("/always");
        chat.err.wait_for("no MCP server offers every__get-sum as it was");
        chat.send("/allow");
        chat.err.wait_for("changed");
        chat.kill();
        std::fs::write(&file, text).unwrap();

        let mut chat = Chat::start(home.path(), &["--config", &file]);
        chat.send(r#"!every__echo {"message":"fourth"}"#);
        chat.out.wait_for("Echo: fourth");
        assert_eq!(chat.finish(), 0);
        use ToolOutcome::{Denied, Error, Ok};
        assert_eq!(found(home.path()).await.outcomes(), [Ok, Ok, Ok, Denied, Error, Ok]);
    }
}

/// Two programs are shown a question. One of them answers it, and the model asks for another call: what the other one
/// allows is not that call, which nobody has seen there.
#[test]
fn nobody_allows_what_was_not_shown() {
    let Some(server) = installed(SERVER) else { return };
    let home = TempDir::new().unwrap();
    let file = configuration(&home, &server);
    let mut first = Chat::start(home.path(), &["--config", &file]);
    first.send(r#"!every__echo {"message":"harmless"}"#);
    first.err.wait_for("or /deny");
    let mut second = Chat::start(home.path(), &["--config", &file]);
    second.err.wait_for("or /deny");
    first.send("/deny");
    first.err.wait_for("denied");
    first.send(r#"!every__echo {"message":"dangerous"}"#);
    first.err.wait_for_times("or /deny", 2);
    second.send("/allow");
    second.err.wait_for("there is a new one");
    second.err.wait_for_times("or /deny", 2);
    assert!(!second.out.text().contains("Echo"), "{}", second.out.text());
    second.send("/allow");
    second.out.wait_for("Echo: dangerous");
}

/// A server that cannot be started is named, and the conversation goes on. A configuration that is wrong is named at once.
#[test]
fn what_is_wrong_with_a_server_is_named() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("config.toml");
    let start = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Chat::start(home.path(), &["--config", file.to_str().unwrap()])
    };
    let mut chat = start("[mcp.gone]\ncommand = 'no-such-program'\nenv = { TOKEN = 'hunter22' }");
    chat.send("Hello");
    chat.out.wait_for("Hello");
    chat.send("/mcp");
    chat.out.wait_for("gone: ");
    chat.out.wait_for("its program was not found");
    assert_eq!(chat.finish(), 0);

    // One that ends at once says why, after the first message and when it is asked; nothing of it is stored.
    let script = "echo no entry for key $KEY >&2; exit 7";
    let text = format!(
        "[mcp.ends]\ncommand = 'sh'\nargs = ['-c', '{script}']\nenv = {{ KEY = 'hunter22-hunter22' }}"
    );
    let mut chat = start(&text);
    chat.send("Hello");
    chat.err.wait_for("MCP server ends cannot be used");
    chat.err.wait_for("no entry for key (value of KEY)");
    chat.send("/mcp");
    chat.out.wait_for("exit status: 7");
    chat.out.wait_for("no entry for key (value of KEY)");
    chat.send("/history");
    assert_eq!(chat.finish(), 0);
    let output = chat.out.text() + &chat.err.text();
    assert!(!output.contains("hunter22"), "{output}");
    for (text, why) in [
        ("[mcpServers.a]\ncommand = 'x'", "write [mcp.NAME] instead of [mcpServers.NAME]"),
        (
            "[mcp.a]\ncommand = 'x'\nlist_timeout = 1e19",
            "mcp.a.list_timeout: the value must be a number of seconds",
        ),
        (
            "[mcp.a]\ncommand = 'x'\nlist_timeout = nan",
            "mcp.a.list_timeout: the value must be a finite number",
        ),
        ("[mcp.a]\ncomand = 'x'", "unknown field `comand`"),
        ("[mcp.a]\nargs = ['x']", "mcp.a: it has neither command nor url"),
        ("[mcp.a]\ncommand = 'x'\nenv = { K = ['hunter22'] }", "mcp.a.env.K: the value must be a text"),
        ("[mcp", "config.toml"),
    ] {
        let mut chat = start(text);
        assert_eq!(chat.wait(), 1);
        let output = chat.err.text();
        assert!(output.contains(why) && !output.contains("hunter22"), "{output}");
    }
}

/// MCP server that is a shell script, whose one tool has an argument with a name that providers refuse.
const ODD: &str = r#"
while read -r line; do
    id="${line##*\"id\":}"; id="${id%%[!0-9]*}"
    case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"find","inputSchema":{"type":"object","properties":{"$.xgafv":{}}}},{"name":"bad","inputSchema":{"type":"string"}}]}' ;;
    *'"tools/call"'*'"$.xgafv":"1"'*) result='{"content":[{"type":"text","text":"found it"}]}' ;;
    *'"method":"notifications/'*) continue ;;
    *) result='{}' ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

/// What is changed of a server's tools for the providers is shown, and the tool is called with its own names.
#[test]
fn changed_names_of_arguments_are_shown() {
    let (home, settings) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (script, file) = (settings.path().join("odd.sh"), settings.path().join("config.toml"));
    std::fs::write(&script, ODD).unwrap();
    std::fs::write(&file, format!("[mcp.odd]\ncommand = 'sh'\nargs = ['{}']\n", script.display())).unwrap();
    let mut chat = Chat::start(home.path(), &["--config", file.to_str().unwrap()]);
    chat.send("/mcp");
    chat.out.wait_for("(tool \"bad\" is left out: its input is no object)");
    let start = "(tool \"find\": the model is given argument \"$.xgafv\" as ";
    let shown = chat.out.text();
    let name = shown.split_once(start).unwrap_or_else(|| panic!("{shown}")).1.split_once(')').unwrap().0;
    chat.send(&format!(r#"!odd__find {{"{name}":"1"}}"#));
    chat.err.wait_for("/always or /deny");
    chat.send("/allow");
    chat.out.wait_for("found it");
    assert_eq!(chat.finish(), 0);
}

/// An editor names servers, answers the questions about their tools, and is not asked again after it has said always.
#[tokio::test]
async fn an_editor_brings_its_own_servers() {
    let (Some(server), Some(python)) = (installed(SERVER), installed("acp-python/bin/python")) else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/acp/servers.py");
    let mut editor = Command::new(python);
    editor.arg(script).arg(PROGRAM).arg(folder.path()).arg(server);
    let mut editor = Chat::spawn(editor);
    let code = editor.wait();
    assert_eq!(code, 0, "{}\n{}", editor.out.text(), editor.err.text());
    println!("{}", editor.out.text());
    use ToolOutcome::{Denied, Ok};
    assert_eq!(found(folder.path()).await.outcomes(), [Ok, Ok, Ok, Denied, Ok]);
}

/// MCP server that is a shell script, whose tool `env` returns what the server was given.
const SHOWS: &str = r#"
while read -r line; do
    id="${line##*\"id\":}"; id="${id%%[!0-9]*}"
    case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"shows","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":[{"name":"env","description":"Uses '"$TOKEN"'.","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) result='{"content":[{"type":"text","text":"token <'"$TOKEN"'>, others <'"$AGENT_SECRET_GIT_HUB$OTHER"'>, arguments <'"$*"'>"}]}' ;;
    *'"method":"notifications/'*) continue ;;
    *) result='{}' ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

/// A server gets a secret by its name, from the environment of the program, and nothing else of that. The value is in no file of the
/// store, no output and no argument; a secret without a value is refused by its name at once, unless its server is disabled.
#[test]
fn servers_get_secrets_by_name() {
    const VALUE: &str = "ghp_hunter22hunter22";
    for home in homes() {
        let settings = TempDir::new().unwrap();
        let (script, file) = (settings.path().join("shows.sh"), settings.path().join("config.toml"));
        std::fs::write(&script, SHOWS).unwrap();
        let configure = |more: &str| {
            let env = "env = { TOKEN = 'Bearer ${secret:git.hub}' }";
            let text = format!("[mcp.shows]\ncommand = 'sh'\nargs = ['{}']\n{env}\n{more}", script.display());
            std::fs::write(&file, text).unwrap();
        };
        configure("");
        let start = |values: &[(&str, &str)]| {
            let mut command = Command::new(PROGRAM);
            match crate::common::database(home.path()) {
                Some(path) => command.arg("--store").arg(format!("sqlite:{}", path.display())),
                None => command.arg("--data-dir").arg(home.path()),
            };
            command.args(["--device", "laptop", "--config", file.to_str().unwrap()]);
            command.env_remove("AGENT_SECRET_GIT_HUB").envs(values.iter().copied());
            Chat::spawn(command)
        };
        let mut chat = start(&[]);
        assert_eq!(chat.wait(), 1, "{}", chat.err.text());
        let why = "mcp.shows.env.TOKEN: secret git.hub has no value; set the environment variable AGENT_SECRET_GIT_HUB";
        assert!(chat.err.text().contains(why), "{}", chat.err.text());
        let mut chat = start(&[("AGENT_SECRET_GIT_HUB", "short")]);
        assert_eq!(chat.wait(), 1);
        let output = chat.err.text();
        let why = "the environment variable AGENT_SECRET_GIT_HUB must have 8 to 65536 bytes";
        assert!(output.contains(why) && !output.contains("short"), "{output}");

        let mut chat = start(&[("AGENT_SECRET_GIT_HUB", VALUE), ("OTHER", "of the host")]);
        chat.send(&format!("My token is {VALUE}."));
        chat.out.wait_for("My token is (secret git.hub).");
        chat.send("!shows__env {}");
        chat.err.wait_for("/always or /deny");
        chat.send("/allow");
        chat.out.wait_for("token <Bearer (secret git.hub)>, others <>, arguments <>");
        chat.send("/mcp");
        chat.out.wait_for("shows__env");
        chat.out.wait_for("Uses Bearer (secret git.hub).");
        chat.send("/history");
        assert_eq!(chat.finish(), 0);
        let output = chat.out.text() + &chat.err.text();
        assert!(!output.contains("hunter22"), "{output}");
        assert_no_file_has(home.path(), "hunter22");

        configure("disabled = true");
        let mut chat = start(&[]);
        chat.send("Hello");
        chat.out.wait_for("Hello");
        assert_eq!(chat.finish(), 0);
    }
}

/// Checks that no file below a folder has a text.
fn assert_no_file_has(folder: &Path, text: &str) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_no_file_has(&path, text);
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let has = bytes.windows(text.len()).any(|part| part == text.as_bytes());
            assert!(!has, "{}", path.display());
        }
    }
}
