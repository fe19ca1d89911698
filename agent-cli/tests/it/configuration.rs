//! `chat config`.

use std::fs;

use serde_json::json;

use crate::site::{NOBODY, Site};

/// Layers are merged, each value shows its layer, a set variable overrides both files, and no secret is shown.
#[test]
fn config_merges_layers_and_shows_no_secret() {
    let site = Site::new("files");
    assert_eq!(site.ok(&["config", "show"]), "");
    let (_, workspace) = site.send("hello");
    let data = site.path().join("data");
    let global = "provider = 'claude'\n[providers.claude]\nmodel = 'opus'\napi_key = 'sk-file'\n";
    fs::write(data.join("config.toml"), global).unwrap();
    let own = data.join(format!("workspaces/{workspace}/config.toml"));
    fs::write(&own, "[providers.claude]\nmodel = 'haiku'\nlimits = [1, 2]\n").unwrap();

    let mut explain = site.command(&["config", "show", "--explain"]);
    let explained = explain.env("ANTHROPIC_API_KEY", "sk-variable").output().unwrap();
    let explained = String::from_utf8(explained.stdout).unwrap();
    let expected = "provider = \"claude\"  # global\n\
        providers.claude.api_key = (secret)  # environment\n\
        providers.claude.limits = [1, 2]  # workspace\n\
        providers.claude.model = \"haiku\"  # workspace\n";
    assert_eq!(explained, expected);
    let plain = site.ok(&["config", "show", "--workspace", &workspace]);
    assert_eq!(plain.lines().next(), Some("provider = \"claude\""), "{plain}");
    let shown = site.json(&["config", "show", "--explain"]);
    let model = json!({"value": "haiku", "secret": false, "layer": "workspace"});
    let key = json!({"value": null, "secret": true, "layer": "global"});
    assert_eq!((&shown["providers.claude.model"], &shown["providers.claude.api_key"]), (&model, &key));

    let other = site.path().join("other.toml");
    fs::write(&other, "provider = 'gemini'").unwrap();
    let other = site.ok(&["config", "show", "--config", other.to_str().unwrap()]);
    assert!(other.contains("provider = \"gemini\"") && other.contains("haiku"), "{other}");
    // The option `--device` can be given only once.
    let phone = site.command(&["config", "show"]).args(["--device", "phone"]).output().unwrap();
    assert_eq!(phone.status.code(), Some(2), "a device is named once");

    fs::write(&own, "[providers.claude]\nbase_url = 'https://evil'").unwrap();
    site.fails(
        &["config", "show"],
        1,
        "config.toml: `providers.claude.base_url` may be set only in the host's configuration",
    );
    fs::write(&own, "provider = ").unwrap();
    site.fails(&["config", "show"], 1, &format!("{}, line 1: invalid TOML: ", own.display()));
    site.fails(&["config", "show", "--workspace", NOBODY], 3, "does not exist");
    site.fails(&["config", "show", "--config", "nowhere.toml"], 3, "nowhere.toml");
    site.fails(&["config"], 2, "show");
}

/// For a store that is not a folder, the host's file is in the data folder of the user.
#[test]
fn sqlite_store_uses_the_users_host_config() {
    let site = Site::new("sqlite");
    let folder = site.path().join(".local/share/agent-sessions");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), "provider = 'claude'").unwrap();
    assert_eq!(site.ok(&["config", "show"]), "provider = \"claude\"\n");
}

/// Environment variables and headers of MCP servers are not shown, also by a program that does not use them.
#[test]
fn values_for_mcp_servers_are_not_shown() {
    let site = Site::new("files");
    let file = site.path().join("servers.toml");
    let text = "[mcp.files]\ncommand = 'npx'\nenv = { TOKEN = 'hunter22' }\n[mcp.web]\nurl = 'https://h/mcp'\n\
                headers = { Authorization = 'Bearer hunter22' }\n";
    fs::write(&file, text).unwrap();
    let named = ["config", "show", "--explain", "--config", file.to_str().unwrap()];
    let shown = site.ok(&named);
    assert!(shown.contains("mcp.files.env.TOKEN = (secret)") && !shown.contains("hunter22"), "{shown}");
    assert!(!site.json(&named).to_string().contains("hunter22"));
}

/// The key for servers that editors use is refused, also in a workspace's file, and its values are not shown; another key
/// that means nothing to the program is named.
#[test]
fn keys_that_mean_nothing_are_named() {
    let site = Site::new("files");
    let (_, workspace) = site.send("hello");
    let own = site.path().join(format!("data/workspaces/{workspace}/config.toml"));
    let file = site.path().join("servers.toml");
    let named = ["config", "show", "--config", file.to_str().unwrap()];
    for key in ["mcpServers", "mcp_servers", "MCP"] {
        let text = format!("[{key}.files]\ncommand = 'npx'\nenv = {{ TOKEN = 'hunter22' }}\n");
        let why = format!("write [mcp.NAME] instead of [{key}.NAME]");
        fs::write(&file, &text).unwrap();
        site.fails(&named, 1, &why);
        site.fails(&["workspace", "list", "--config", file.to_str().unwrap()], 1, &why);
        let ran = site.typed(&["--config", file.to_str().unwrap()], "hello\n");
        assert!(ran.code == 1 && ran.err.contains(&why) && !ran.err.contains("hunter22"), "{ran:?}");
        fs::write(&file, "").unwrap();
        fs::write(&own, &text).unwrap();
        site.fails(&named, 1, &why);
        fs::remove_file(&own).unwrap();
    }
    fs::write(&file, "provider = 'claude'\n[servers.x]\na = 1\n").unwrap();
    let ran = site.run(&named);
    assert!(
        ran.code == 0 && ran.err.contains("does not read `servers`; it reads mcp, provider, providers"),
        "{ran:?}"
    );
}

/// A time that no clock counts is refused where it is given.
#[test]
fn times_have_a_maximum() {
    let site = Site::new("files");
    for option in ["--lease-ttl-ms", "--echo-delay-ms"] {
        for value in ["18446744073709551615", "86400001", "-1", "nan"] {
            let ran = site.typed(&[&format!("{option}={value}")], "hello\n");
            assert!(ran.code == 2 && ran.err.contains("at most 86400000"), "{ran:?}");
        }
    }
}
