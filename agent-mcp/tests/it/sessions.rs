//! Servers of a session: its own, those of its workspace's configuration, and the secrets that it mounts.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_core::commit::Precondition;
use agent_core::model::{Access, Patch};
use agent_core::{Backend, MemoryStore, Storage};
use agent_mcp::{Mcp, McpServers};
use agent_runtime::configuration::ConfigLayers;
use agent_runtime::secrets::{Secret, SecretName, Secrets};
use agent_runtime::{AgentBuilder, NewWorkspace, Plugin, ScriptedProvider, SessionContext};

use crate::common::{Site, allowing, only, output, program, results, runs, server, until, within};

#[tokio::test]
async fn sessions_have_servers_of_their_own() {
    let site = Site::new(only(server("good"))).await;
    let first = site.one("srv__pid", "").await;
    let other = Site { chat: site.agent.conversation("other").await.unwrap(), ..site };
    let second = other.one("srv__pid", "").await;
    assert_ne!(first, second);
    // The same as long as the session uses it.
    assert_eq!(other.one("srv__pid", "").await, second);
    other.agent.close().await.unwrap();
}

/// Two tenants have a conversation of one key, so that their sessions have the same id.
#[tokio::test]
async fn tenants_share_no_server() {
    let store = MemoryStore::new();
    let storage = |tenant: &str| store.tenant(&tenant.parse().unwrap());
    let mcp = Mcp::new(only(server("good"))).with_idle_timeout(Duration::from_secs(60));
    let site = Site::of(mcp, storage("acme"), allowing()).await;
    let first = site.one("srv__pid", "").await;
    let agent = site.agent.for_storage(storage("globex"));
    let other = Site { chat: agent.conversation("test").await.unwrap(), agent, ..site.clone() };
    assert_eq!(other.chat.id(), site.chat.id());
    // Nothing is known of it before its first run.
    assert!(other.mcp.status(&other.agent, other.chat.id()).is_empty());
    assert!(other.mcp.offered(&other.agent, other.chat.id()).is_empty());
    let second = other.one("srv__pid", "").await;
    assert_ne!(first, second);
    // Neither takes the other's away.
    assert_eq!(site.one("srv__pid", "").await, first);
    assert_eq!(other.one("srv__pid", "").await, second);
    // A tenant of which no agent is left loses its servers.
    drop(other);
    until("its server is ended", || !runs(&second)).await;
    assert_eq!(site.one("srv__pid", "").await, first);
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn a_workspace_has_its_own_configuration() {
    let storage = Storage::from(MemoryStore::new());
    let program = program().to_string_lossy().into_owned();
    let host = format!(
        "[mcp.srv]\ncommand = '{program}'\nargs = ['good']\n[mcp.extra]\ncommand = '{program}'\nargs = ['huge']"
    );
    let layers = McpServers::protect(ConfigLayers::new().with_global(&host).unwrap()).unwrap();
    let mcp = Mcp::layered(layers, |_| None);
    // A run reads it with the workspace, at no further request.
    assert!(mcp.reads_workspace_config());
    let site = Site::of(mcp, storage.clone(), allowing()).await;
    let workspace = site.agent.workspaces().create(NewWorkspace::new("small")).await.unwrap();
    let save = async |text: &str| {
        let expect = match storage.workspaces.load_config(workspace.id).await.unwrap() {
            Some(_) => Precondition::MustExist,
            None => Precondition::MustNotExist,
        };
        storage.workspaces.save_config(workspace.id, Some(text.to_owned()), expect).await.unwrap();
    };
    save("[mcp.extra]\ntools_max = 3").await;
    assert_eq!(site.one("srv__echo", "hello").await, "hello");
    let extra = |at: usize| site.offered()[at].iter().filter(|name| name.starts_with("extra__")).count();
    assert_eq!(extra(0), 128);

    // In the other workspace, with the next run after a change.
    let chat = site.agent.workspace(workspace.id).conversation("there").await.unwrap();
    let there = Site { chat, ..site };
    let first = there.one("srv__pid", "").await;
    let extra = |at: usize| there.offered()[at].iter().filter(|name| name.starts_with("extra__")).count();
    assert_eq!(extra(2), 3);
    save("[mcp.extra]\ndisabled = true").await;
    // The server whose settings are the same goes on.
    assert_eq!(there.one("srv__pid", "").await, first);
    assert_eq!(extra(4), 0);

    // What is wrong gives no servers, and does not hold up the conversation.
    for wrong in [
        "[mcp.srv]\ncommand = 'sh'",
        "[mcp.srv]\nargs = ['-c', 'true']",
        "[mcp",
        "[mcp.srv]\ncal_timeout = 3",
    ] {
        save(wrong).await;
        there.run(&[]).await;
        assert!(there.offered().last().unwrap().is_empty(), "{wrong}");
    }
    save("").await;
    assert_eq!(there.one("srv__echo", "again").await, "again");
    there.agent.close().await.unwrap();
}

#[tokio::test]
async fn secrets_are_given_by_name_and_redacted() {
    let name: SecretName = "github".parse().unwrap();
    let secrets = Secrets::new(BTreeMap::from([(name.clone(), Secret::new("ghp_0123456789").unwrap())]));
    let mcp = Mcp::new(only(server("good").with_env("TOKEN", "Bearer ${secret:github}!")));
    let model = ScriptedProvider::new([]);
    let builder =
        AgentBuilder::new().with_llm(model.clone()).with_plugin(mcp.clone()).with_config(allowing());
    let agent = builder.with_storage(MemoryStore::new()).with_secrets(secrets).build().unwrap();
    let chat = agent.conversation("test").await.unwrap();
    let site = Site { agent, mcp, model, chat };

    // A session that does not mount the secret does not get the server.
    site.run(&[]).await;
    let error = site.mcp.status(&site.agent, site.chat.id())[0].error.clone().unwrap();
    assert!(error.contains("mount secret:github"), "{error}");

    site.chat.update(Patch::new().mount(name.resource(), Access::Read)).await.unwrap();
    let given = site.one("srv__env", "").await;
    assert!(given.contains("TOKEN=Bearer (secret github)!"), "{given}");
    assert!(!format!("{:?}", site.model.requests()).contains("ghp_0123456789"));
    // Nothing of the host's environment but what programs need.
    let names: Vec<_> = given.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    assert!(names.contains(&"PATH"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("CARGO") || name.starts_with("RUST")), "{names:?}");

    // Also in media that are text, and in errors.
    let results = results(&site.chat).await;
    assert!(results.iter().all(|result| !output(result).contains("ghp_")));
    site.agent.close().await.unwrap();
}

/// Configured servers get the secrets that the host gives them without a mount; a server that a session names itself can name none.
#[tokio::test]
async fn secrets_of_the_host_are_given_to_configured_servers_only() {
    let name: SecretName = "github".parse().unwrap();
    let secrets = Secrets::new(BTreeMap::from([(name, Secret::new("ghp_0123456789").unwrap())]));
    let token = |mode: &str| server(mode).with_env("TOKEN", "${secret:github}");
    let mcp = Mcp::new(only(token("good"))).with_secrets(secrets.clone());
    let model = ScriptedProvider::new([]);
    let builder =
        AgentBuilder::new().with_llm(model.clone()).with_plugin(mcp.clone()).with_config(allowing());
    let agent = builder.with_storage(MemoryStore::new()).with_secrets(secrets).build().unwrap();
    let chat = agent.conversation("test").await.unwrap();
    let site = Site { agent, mcp, model, chat };
    assert!(site.one("srv__env", "").await.contains("TOKEN=(secret github)"));
    assert!(!format!("{:?}", site.model.requests()).contains("ghp_0123456789"));
    let own = McpServers::new().with_server("own", token("good")).unwrap();
    let error = site.mcp.session_servers(&site.agent, site.chat.id(), own).unwrap_err().to_string();
    assert!(error.contains("secrets are given only to servers of the host's configuration"), "{error}");
    site.agent.close().await.unwrap();
}

#[tokio::test]
async fn tools_can_be_shown_before_a_run() {
    let site = Site::asking(only(server("good"))).await;
    let (effects, storage) = (site.agent.effects().clone(), site.agent.storage().clone());
    let context = SessionContext::new(site.chat.record(), effects.new_run_id(), storage);
    let tools = within(site.mcp.tools(context)).await.unwrap();
    let echo = tools.iter().find(|tool| tool.name == "srv__echo").unwrap();
    assert_eq!((echo.digest.len(), echo.always), (64, false));
    // What is allowed beforehand is not asked about.
    site.mcp.always_allow(&site.chat, echo, &agent_core::model::Actor::USER).await.unwrap();
    assert_eq!(site.one("srv__echo", "hello").await, "hello");
    site.agent.close().await.unwrap();
}

/// Servers that an editor names for one session: there beside those of the host, which go before, as long as the guard
/// lives; in no other session, and also after the session was not used for some time.
#[tokio::test]
async fn a_session_has_servers_of_its_own_as_long_as_they_are_held() {
    let configured = McpServers::new()
        .with_server("srv", server("good"))
        .and_then(|servers| servers.with_server("off", server("good").with_disabled(true)))
        .unwrap();
    let mcp = Mcp::new(configured).with_idle_timeout(Duration::from_millis(300));
    let mut config = allowing();
    for tool in ["own__pid", "own__echo"] {
        config = config.with_tool_policy(tool, agent_runtime::ToolPolicy::Allow);
    }
    let site = Site::of(mcp, MemoryStore::new().into(), config).await;
    let host = site.one("srv__pid", "").await;
    let named = |mode: &str| {
        let servers = McpServers::new().with_server("own", server(mode)).unwrap();
        servers.with_server("srv", server("refuses")).unwrap().with_server("off", server("good")).unwrap()
    };
    let given = site.mcp.session_servers(&site.agent, site.chat.id(), named("good")).unwrap();
    let own = site.one("own__pid", "").await;
    // The host's server of the same name stays, and one that it has disabled is not started.
    assert_eq!(site.one("srv__pid", "").await, host);
    let names: Vec<_> =
        site.mcp.status(&site.agent, site.chat.id()).into_iter().map(|status| status.name).collect();
    assert_eq!(names, ["own", "srv"]);
    let other = Site { chat: site.agent.conversation("other").await.unwrap(), ..site.clone() };
    other.run(&[]).await;
    assert!(other.offered().last().unwrap().iter().all(|name| !name.starts_with("own__")));

    // An unused session loses its processes, and not what was given to it.
    until("it is unused", || !runs(&own) && !runs(&host)).await;
    assert_eq!(site.one("own__echo", "again").await, "again");

    // Others take the place of the first; whoever held those takes nothing away then.
    let pid = site.one("own__pid", "").await;
    let second = site.mcp.session_servers(&site.agent, site.chat.id(), named("good")).unwrap();
    drop(given);
    assert_eq!(site.one("own__echo", "still").await, "still");
    drop(second);
    until("its server is ended", || !runs(&pid)).await;
    site.run(&[]).await;
    assert!(site.offered().last().unwrap().iter().all(|name| !name.starts_with("own__")));

    let secret =
        McpServers::new().with_server("own", server("good").with_env("K", "${secret:token}")).unwrap();
    let error = site.mcp.session_servers(&site.agent, site.chat.id(), secret).unwrap_err().to_string();
    assert!(error.contains("mcp.own.env") && error.contains("secrets are given only"), "{error}");
    site.agent.close().await.unwrap();
}
