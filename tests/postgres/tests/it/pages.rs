//! The queries and commands of the pages, on a server.

use std::path::Path;
use std::process::Command;

use crate::support::programs;
use crate::{Database, SERVER, chat};

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)).unwrap()
}

/// Returns the snippets of a language in a text.
fn snippets<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let parts = text.split("```").skip(1).step_by(2);
    parts.filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// Runs statements, and returns their rows.
#[track_caller]
fn psql(address: &str, variables: &[(&str, &str)], sql: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), sql).unwrap();
    let mut command = Command::new(programs().join("psql"));
    command.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-d", address, "-f"]).arg(file.path());
    for (name, value) in variables {
        command.args(["-v", &format!("{name}={value}")]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{sql}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Each query for an operator runs, and those that ask for what is there find it.
#[tokio::test]
async fn queries_of_the_operations_page_run() {
    let database = Database::new().await;
    database.say("hello\n");
    let storage: agent_core::Storage = database.open().await.into();
    let session = storage.sessions.list(agent_core::store::SessionQuery::new()).await.unwrap().items[0].id;
    let text = page("operations.md");
    let section = text.split("\n## PostgreSQL\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let queries = snippets(section, "sql");
    assert!(queries.len() >= 8, "{queries:?}");
    let id = session.to_string();
    let rows = |about: &str| {
        let found: Vec<_> = queries.iter().filter(|query| query.contains(about)).collect();
        assert_eq!(found.len(), 1, "{about}");
        psql(&database.address_of_admin(), &[("tenant", "default"), ("session", &id)], found[0])
    };
    for query in &queries {
        psql(&database.address_of_admin(), &[("tenant", "default"), ("session", &id)], query);
    }
    assert!(rows("that were used last").contains(&id));
    assert!(rows("The last events").contains("agent.message|"));
    assert!(
        rows("Sizes of the tables").contains("\nevents|")
            || rows("Sizes of the tables").starts_with("events|")
    );
    assert!(rows("The largest sessions").contains(&id));
    assert!(rows("Connections by program").contains("|idle|"));
    assert!(rows("What an acknowledged write survives").contains("fsync|"));
    storage.close().await.unwrap();
}

/// The users that the page creates can do what they are for, and no more.
#[tokio::test]
async fn users_of_the_cookbook_page_can_use_the_store() {
    let text = page("cookbook/postgres.md");
    let section = text.split("\n## Users of the database\n").nth(1).unwrap();
    let statements = snippets(section, "text")[0];
    let (before, after) = statements.split_once("-- then: chat upgrade").unwrap();
    psql(SERVER.address(), &[], before);
    let at = SERVER.address().split_once('@').unwrap().1.split_once('/').unwrap().0;
    let address = |user: &str| format!("postgres://{user}@{at}/agents");
    let upgraded = chat(&["upgrade", "--store", &address("agent_owner")], "");
    assert_eq!(upgraded.code, 0, "{upgraded:?}");
    // An administrator gives the rights.
    let admin = format!("postgres://postgres@{at}/agents");
    psql(&admin, &[], after.split_once('\n').unwrap().1);
    let said =
        chat(&["--store", &address("agent"), "--device", "laptop"], "hello\n/attach Cargo.toml\nlook\n");
    assert_eq!((said.code, said.err.contains("error")), (0, false), "{said:?}");
    for args in [&["verify", "--all-tenants"][..], &["rebuild"], &["tenant", "delete", "default", "--yes"]] {
        let ran = chat(&[args, &["--store", &address("agent")]].concat(), "");
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let other = format!("{}?schema=other", address("agent"));
    let refused = chat(&["upgrade", "--store", &other], "");
    assert!(refused.code == 1 && refused.err.contains("the user lacks the right"), "{refused:?}");
}
