//! Commands that administer a store in PostgreSQL.

use std::process::Command;

use crate::{Database, chat};

/// Opening creates no tables; the error names the command that does, which can be repeated.
#[tokio::test]
async fn upgrade_creates_the_tables_and_nothing_else_does() {
    let database = Database::empty().await;
    for (args, code) in [
        (&[][..], 1),
        (&["session", "list"], 3),
        (&["workspace", "create", "--name", "a"], 3),
        (&["verify"], 3),
    ] {
        let ran = database.run(args);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(
            ran.err.contains(&format!("schema agent of database {} on 127.0.0.1:", database.name)),
            "{ran:?}"
        );
        assert!(
            ran.err.contains("has no tables of a store; run `chat upgrade --store ADDRESS` to create them"),
            "{ran:?}"
        );
    }
    let first = database.run(&["upgrade"]);
    assert_eq!(first.code, 0, "{first:?}");
    assert!(first.err.contains("created the tables of postgres://127.0.0.1:"), "{first:?}");
    let again = database.run(&["upgrade"]);
    assert_eq!((again.code, again.err.as_str()), (0, ""), "{again:?}");
    assert!(
        again.out.contains("meta.format  1\n") && again.out.contains("nothing has to be done"),
        "{again:?}"
    );
    assert!(database.say("hello\n").out.contains("hello\n"));
    assert!(database.ok(&["upgrade", "--json"]).contains("\"formats\":{\"meta.format\":1}"));
    // With the option, opening creates them, too.
    let database = Database::empty().await;
    let store = format!("{}?migrate=true&schema=other", database.address());
    let ran = chat(&["session", "list", "--store", &store], "");
    assert_eq!(ran.code, 0, "{ran:?}");
}

/// Of several processes that create the tables at once, one says that it did.
#[tokio::test]
async fn of_six_upgrades_at_once_one_has_created_the_tables() {
    let database = Database::empty().await;
    let address = database.address();
    let upgrades: Vec<_> = (0..6)
        .map(|_| {
            let address = address.clone();
            std::thread::spawn(move || chat(&["upgrade", "--store", &address], ""))
        })
        .collect();
    let ran: Vec<_> = upgrades.into_iter().map(|upgrade| upgrade.join().unwrap()).collect();
    assert!(ran.iter().all(|ran| ran.code == 0), "{ran:?}");
    assert_eq!(ran.iter().filter(|ran| ran.err.contains("created the tables")).count(), 1, "{ran:?}");
}

/// Lists, verification, rebuilding, documents and deletion, as on other stores.
#[tokio::test]
async fn commands_work_on_postgres() {
    let database = Database::new().await;
    assert_eq!(database.say("hello\n/new second\nagain\n").code, 0);
    let list = database.ok(&["session", "list", "--json"]);
    assert!(list.contains("\"total\":2") || list.matches("\"id\":").count() >= 2, "{list}");
    database.ok(&["verify", "--all-tenants"]);
    assert!(database.ok(&["rebuild"]).contains("of 2 sessions from their logs"));
    assert!(database.ok(&["maintain"]).len() < 200);
    let lists: serde_json::Value = serde_json::from_str(&list).unwrap();
    let id = lists["items"][0]["id"].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let document = folder.path().join("session.json");
    let document = document.to_str().unwrap();
    database.ok(&["session", "export", id, "--output", document]);
    let other = Database::new().await;
    other.ok(&["session", "import", document]);
    let again = folder.path().join("again.json");
    other.ok(&["session", "export", id, "--output", again.to_str().unwrap()]);
    assert_eq!(std::fs::read(document).unwrap(), std::fs::read(again).unwrap());
    database.ok(&["tenant", "delete", "default", "--yes"]);
    assert!(database.ok(&["tenant", "list", "--json"]).contains("\"items\":[]"));
}

/// From files to PostgreSQL, to another schema, to SQLite: all of it, and none of it twice.
#[tokio::test]
async fn copy_to_postgres_and_back_is_equal() {
    let (database, folder) = (Database::new().await, tempfile::tempdir().unwrap());
    let files = format!("files:{}/files", folder.path().display());
    let sqlite = format!("sqlite:{}/back.db", folder.path().display());
    let there = format!("{}?schema=there", database.address());
    assert_eq!(chat(&["--store", &files, "--device", "laptop"], "hello\n/fork\nin the fork\n").code, 0);
    assert_eq!(chat(&["upgrade", "--store", &there], "").code, 0);
    let stores = [&files, &database.address(), &there, &sqlite];
    for pair in stores.windows(2) {
        let copied = chat(&["copy", pair[0], pair[1], "--all-tenants"], "");
        assert_eq!(copied.code, 0, "{copied:?}");
        assert!(copied.out.starts_with("copied 1 workspace, 2 sessions, 1 device binding"), "{copied:?}");
        let again = chat(&["copy", pair[0], pair[1]], "");
        assert!(
            again.out.starts_with("copied 0 workspaces, 0 sessions, 0 device bindings, 0 events"),
            "{again:?}"
        );
    }
    let back = chat(&["copy", &sqlite, &files], "");
    assert!(back.out.starts_with("copied 0 workspaces, 0 sessions, 0 device bindings, 0 events"), "{back:?}");
    // The same store under another address.
    let same = format!("{}?connections=2", database.address().replacen("postgres:", "postgresql:", 1));
    let refused = chat(&["copy", &database.address(), &same], "");
    assert_eq!(refused.code, 2, "{refused:?}");
    let exported = format!("{}?schema=exported", database.address());
    let ran = database.run(&["tenant", "export", "default", &exported]);
    assert!(ran.code == 3 && ran.err.contains("`chat upgrade --store ADDRESS`"), "{ran:?}");
}

/// `chat backup` prints a command of the server. What it dumps is restored into another database, and is whole.
#[tokio::test]
async fn backup_names_a_dump_that_restores_elsewhere() {
    let database = Database::new().await;
    database.say("hello\n/new second\n\u{1f980} again\n");
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("picture.png");
    std::fs::write(&picture, vec![7; 600_000]).unwrap();
    database.say(&format!("/attach {}\nlook\n", picture.display()));
    let ran = database.run(&["backup", "backup.db"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let command = ran.err.split('`').nth(1).unwrap_or_else(|| panic!("no command: {ran:?}"));
    assert!(command.starts_with("pg_dump --format=custom --schema=agent"), "{command}");
    let file = folder.path().join("agents.dump");
    let file = file.to_str().unwrap();
    let shell = |text: &str| {
        let output = Command::new("sh").args(["-c", text]).output().unwrap();
        assert!(output.status.success(), "{text}: {output:?}");
    };
    let in_path = |text: &str| format!("PATH=\"$PATH:{}\" {text}", crate::support::programs().display());
    shell(&in_path(&command.replace("FILE", file).replace("USER", "postgres")));
    let other = Database::empty().await;
    shell(&in_path(&format!("pg_restore --exit-on-error --dbname={} {file}", other.address_of_admin())));
    let verified = other.ok(&["verify", "--all-tenants", "--json"]);
    assert!(verified.contains("\"sessions\":2"), "{verified}");
    assert_eq!(other.ok(&["session", "list", "--json"]), database.ok(&["session", "list", "--json"]));
    let fenced = other.ok(&["restore", "--in-place"]);
    assert!(fenced.contains("fenced 2 sessions"), "{fenced}");
    assert!(other.say("more\n").out.contains("more\n"));
}
