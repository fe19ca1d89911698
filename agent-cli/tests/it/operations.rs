//! Operation of a store: tenants, wrong paths, backups, retention, and confirmation of deletions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use agent_core::Backend;
use agent_core::store::Registry;
use agent_runtime::{NewWorkspace, WorkspaceManager};
use agent_storage_fs::FsConfig;
use agent_storage_sqlite::SqliteConfig;
use serde_json::{Value, json};

use crate::damage::damage;
use crate::site::{KINDS, NOBODY, Ran, Site};

/// Creates a workspace with a main session for each of these tenants.
async fn tenants(site: &Site, names: &[&str]) {
    let mut registry = Registry::new();
    FsConfig::register(&mut registry);
    SqliteConfig::register(&mut registry);
    let store = registry.parse(&site.address()).unwrap().open().await.unwrap();
    for name in names {
        let storage = Backend::tenant(&*store, &name.parse().unwrap());
        let manager = WorkspaceManager::new(storage);
        let workspace = manager.create(NewWorkspace::new(*name)).await.unwrap();
        manager.main_session(&workspace).await.unwrap();
    }
}

/// A command reports how many tenants it did not process; `--tenant` selects one, `--all-tenants` all.
#[tokio::test]
async fn commands_report_the_tenants_they_skipped() {
    for kind in KINDS {
        let site = Site::new(kind);
        tenants(&site, &["alice", "bob"]).await;
        for args in [
            &["verify"][..],
            &["rebuild"],
            &["session", "list"],
            &["workspace", "list"],
            &["device", "list"],
            &["workspace", "gc", "--dry-run"],
            &["sweep", "--purge-deleted", "0", "--dry-run"],
            &["search", "word"],
            &["index", "--remove"],
        ] {
            let ran = site.run(args);
            assert_eq!(ran.code, 0, "{kind} {args:?}: {ran:?}");
            let message = "2 other tenants were not processed; add --all-tenants";
            assert!(ran.err.contains(message), "{kind} {args:?}: {ran:?}");
            assert_eq!(site.json(args)["other_tenants"], json!(2), "{kind} {args:?}");
            let of_bob = site.json(&[args, &["--tenant", "bob"]].concat());
            assert_eq!((&of_bob["tenant"], &of_bob["other_tenants"]), (&json!("bob"), &json!(1)), "{args:?}");
            let all = site.run(&[args, &["--all-tenants", "--json"]].concat());
            assert_eq!(all.code, 0, "{kind} {args:?}: {all:?}");
            let mut of: Vec<Value> =
                all.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            if args == ["verify"] && kind == "sqlite" {
                let file = of.remove(0);
                assert_eq!((&file["tenant"], &file["findings"]), (&Value::Null, &json!([])), "{file}");
            }
            assert_eq!(of.iter().map(|of| &of["tenant"]).collect::<Vec<_>>(), ["alice", "bob"], "{args:?}");
            let text = site.run(&[args, &["--all-tenants"]].concat());
            assert!(!text.err.contains("not processed"), "{kind} {args:?}: {text:?}");
            site.fails(&[args, &["--all-tenants", "--tenant", "bob"]].concat(), 2, "cannot be used with");
        }
        assert_eq!(site.json(&["verify", "--tenant", "bob"])["sessions"], json!(1), "{kind}");
        assert_eq!(site.json(&["workspace", "list", "--tenant", "bob"])["total"], json!(1), "{kind}");
        site.fails(&["verify", "--tenant", "bbo"], 3, "alice, bob");
        site.fails(&["verify", "--tenant", "../x"], 2, "tenant id");
        let output = site.typed(&["--tenant", "carol"], "second\n");
        assert_eq!(output.code, 0, "{output:?}");
        let list = site.json(&["session", "list", "--tenant", "carol"]);
        assert_eq!((&list["total"], &list["other_tenants"]), (&json!(1), &json!(2)), "{kind}");

        // Damage of one tenant does not hide that of another.
        let item = &list["items"][0];
        damage_of(&site, kind, "carol", item["workspace"].as_str().unwrap(), item["id"].as_str().unwrap());
        let ran = site.run(&["verify", "--all-tenants"]);
        assert_eq!(ran.code, 5, "{kind}: {ran:?}");
        assert!(ran.out.contains("tenant alice") && ran.out.contains("tenant carol"), "{kind}: {ran:?}");
        assert!(ran.err.contains("tenant carol"), "{kind}: {ran:?}");
        assert_eq!(site.run(&["verify", "--tenant", "bob"]).code, 0, "{kind}");
    }
}

/// A command for all tenants says so if there is none.
#[tokio::test]
async fn a_store_without_tenants_is_reported_as_such() {
    for kind in KINDS {
        let site = Site::new(kind);
        tenants(&site, &["alice"]).await;
        let mut registry = Registry::new();
        FsConfig::register(&mut registry);
        SqliteConfig::register(&mut registry);
        let store = registry.parse(&site.address()).unwrap().open().await.unwrap();
        store.delete_tenant(&"alice".parse().unwrap()).await.unwrap();
        store.close().await.unwrap();
        for args in [
            &["verify"][..],
            &["rebuild"],
            &["session", "list"],
            &["workspace", "list"],
            &["device", "list"],
            &["audit"],
            &["search", "word"],
            &["index"],
            &["workspace", "gc", "--yes"],
            &["sweep", "--purge-deleted", "0", "--yes"],
        ] {
            let ran = site.run(&[args, &["--all-tenants"]].concat());
            assert_eq!(ran.code, 0, "{kind} {args:?}: {ran:?}");
            assert!(ran.out.ends_with("no tenant has data in this store\n"), "{kind} {args:?}: {ran:?}");
            let ran = site.run(&[args, &["--all-tenants", "--json"]].concat());
            assert!(ran.code == 0 && !ran.out.contains("\"tenant\""), "{kind} {args:?}: {ran:?}");
        }
    }
}

/// `verify --all-tenants` checks a SQLite file once, and names what it finds there once, beside the tenants; the damage of a
/// tenant is named with it.
#[tokio::test]
async fn file_of_all_tenants_is_checked_once() {
    let site = Site::new("sqlite");
    tenants(&site, &["alice", "bob", "carol"]).await;
    let raw = rusqlite::Connection::open(site.path().join("data.db")).unwrap();
    raw.execute_batch("CREATE TRIGGER odd AFTER DELETE ON labels BEGIN SELECT 1; END").unwrap();
    raw.close().unwrap();
    let ran = site.run(&["verify", "--all-tenants"]);
    assert_eq!((ran.code, ran.err.matches("the trigger odd").count()), (5, 1), "{ran:?}");
    assert!(ran.out.starts_with("checked the file that all tenants share\n"), "{ran:?}");
    assert_eq!(ran.out.matches("checked 1 workspace").count(), 3, "{ran:?}");
    let ran = site.run(&["verify", "--all-tenants", "--json"]);
    let of: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<_> = of.iter().map(|of| of["findings"].as_array().unwrap().len()).collect();
    assert_eq!((ran.code, found), (5, vec![1, 0, 0, 0]), "{ran:?}");
    assert_eq!(site.run(&["verify", "--tenant", "bob"]).code, 5, "one tenant alone checks the file, too");
}

/// Deletions and erasures of a SQLite store say that a rewrite is pending; `verify` names it, which is no damage, and
/// `maintain` does it. With `--now` nothing is left pending. On files nothing ever is.
#[tokio::test]
async fn pending_rewrites_are_named_and_maintained() {
    for kind in KINDS {
        let site = Site::new(kind);
        tenants(&site, &["alice", "bob", "carol"]).await;
        let is_pending = json!(kind == "sqlite");
        let pending = |value: &Value| json!(value["pending"].as_array().unwrap().len() == 1);
        let done = || json!(site.json(&["maintain"])["done"].as_array().unwrap().len() == 1);
        let deleted = site.json(&["tenant", "delete", "alice", "--yes"]);
        assert_eq!(deleted["rewrite_pending"], is_pending, "{kind}: {deleted}");
        assert_eq!(pending(&site.json(&["verify", "--tenant", "bob"])), is_pending, "{kind}");
        let ran = site.run(&["verify", "--all-tenants"]);
        assert_eq!(
            (ran.code, json!(ran.err.matches("chat maintain").count() == 1)),
            (0, is_pending.clone()),
            "{ran:?}"
        );
        site.fails(&["maintain", "--tenant", "bob"], 2, "whole store");
        assert_eq!(done(), is_pending, "{kind}");
        assert_eq!(done(), json!(false), "{kind}: nothing is pending");
        assert!(site.run(&["maintain"]).out.contains("nothing was pending"), "{kind}");

        let id =
            site.json(&["session", "list", "--tenant", "bob"])["items"][0]["id"].as_str().unwrap().to_owned();
        let erased = site.json(&["session", "erase", &id, "--tenant", "bob", "--yes"]);
        assert_eq!(erased["rewrite_pending"], is_pending, "{kind}: {erased}");
        let erased = site.json(&["session", "erase", &id, "--tenant", "bob", "--yes", "--now"]);
        assert_eq!(erased["rewrite_pending"], json!(false), "{kind}: {erased}");
        assert_eq!(done(), json!(false), "{kind}");
        // Every command that removes data says so.
        tenants(&site, &["dave", "erin"]).await;
        let list = site.json(&["workspace", "list", "--tenant", "dave"]);
        let workspace = list["items"][0]["id"].as_str().unwrap();
        let deleted = site.json(&["workspace", "delete", workspace, "--tenant", "dave", "--yes"]);
        assert_eq!(deleted["rewrite_pending"], is_pending, "{kind}: {deleted}");
        assert_eq!(done(), is_pending, "{kind}");
        let collected = site.json(&["workspace", "gc", "--max-age", "0", "--tenant", "erin", "--yes"]);
        assert_eq!(collected["rewrite_pending"], is_pending, "{kind}: {collected}");
        assert_eq!(done(), is_pending, "{kind}");
        let session = site.json(&["session", "list", "--tenant", "carol"])["items"][0]["id"]
            .as_str()
            .unwrap()
            .to_owned();
        site.ok(&["session", "delete", &session, "--tenant", "carol"]);
        let swept = site.json(&["sweep", "--purge-deleted", "0", "--tenant", "carol", "--yes"]);
        assert_eq!(swept["rewrite_pending"], is_pending, "{kind}: {swept}");
        assert_eq!(done(), is_pending, "{kind}");
        let deleted = site.json(&["tenant", "delete", "carol", "--yes", "--now"]);
        assert_eq!(deleted["rewrite_pending"], json!(false), "{kind}: {deleted}");
        assert_eq!(done(), json!(false), "{kind}");
    }
}

/// A deletion of a tenant that was cut off is named with what ends it, which `maintain` does not, also if nothing else is in
/// the store.
#[tokio::test]
async fn unfinished_deletions_are_named_until_they_are_done_again() {
    for kind in KINDS {
        let site = Site::new(kind);
        tenants(&site, &["acme"]).await;
        // As a process leaves it that was killed.
        if kind == "sqlite" {
            let raw = rusqlite::Connection::open(site.path().join("data.db")).unwrap();
            raw.execute_batch("INSERT INTO deletions VALUES ('acme')").unwrap();
            raw.close().unwrap();
        } else {
            let folder = site.path().join("data/tenants/acme");
            fs::write(folder.join("deletion"), "").unwrap();
            fs::rename(folder.join("workspaces"), folder.join(".workspaces.deleted-0123456789abcdef"))
                .unwrap();
        }
        let ran = site.run(&["verify", "--all-tenants"]);
        assert_eq!(ran.code, 0, "{kind}: {ran:?}");
        assert_eq!(ran.err.matches("delete the tenant again").count(), 1, "{kind}: {ran:?}");
        assert!(!ran.err.contains("chat maintain"), "{kind}: {ran:?}");
        assert!(site.run(&["maintain"]).out.contains("nothing was pending"), "{kind}");
        assert_eq!(site.run(&["tenant", "delete", "acme", "--yes", "--now"]).code, 0, "{kind}");
        let ran = site.run(&["verify", "--all-tenants"]);
        assert!(ran.code == 0 && !ran.err.contains("pending"), "{kind}: {ran:?}");
    }
}

/// A damaged tenant does not stop a command for the other tenants.
#[tokio::test]
async fn damaged_tenant_blocks_no_command_for_others() {
    let site = Site::new("files");
    tenants(&site, &["alice", "bob", "carol", "dora"]).await;
    let all = site.path().join("data/tenants");
    fs::create_dir(all.join("alice/bindings.toml")).unwrap();
    fs::remove_dir_all(all.join("carol/workspaces")).unwrap();
    fs::write(all.join("carol/workspaces"), "mine").unwrap();
    for (args, bad) in [
        (&["verify", "--all-tenants"][..], &["alice", "carol"][..]),
        (&["rebuild", "--all-tenants"], &["carol"]),
        (&["session", "list", "--all-tenants"], &["carol"]),
        (&["workspace", "list", "--all-tenants"], &["carol"]),
        (&["device", "list", "--all-tenants"], &["alice"]),
    ] {
        let ran = site.run(args);
        assert_eq!(ran.code, 5, "{args:?}: {ran:?}");
        for tenant in ["bob", "dora"] {
            assert!(ran.out.contains(&format!("tenant {tenant}")), "{args:?}: {ran:?}");
        }
        assert!(bad.iter().all(|bad| ran.err.contains(&format!("tenant {bad}"))), "{args:?}: {ran:?}");
    }
    // What was found in a tenant is printed with it, before the next tenant, and the end names the tenants.
    let ran = site.run(&["verify", "--all-tenants"]);
    let lines: Vec<_> = ran.err.lines().collect();
    let of = |tenant: &str| {
        let its: Vec<_> =
            (0..lines.len()).filter(|n| lines[*n].starts_with(&format!("tenant {tenant}: "))).collect();
        assert!(its.len() >= 2 && its.windows(2).all(|two| two[1] == two[0] + 1), "{tenant}: {lines:#?}");
        assert!(lines[its[its.len() - 1]].contains("found (listed above)"), "{tenant}: {lines:#?}");
    };
    of("alice");
    of("carol");
    assert!(
        lines[lines.len() - 1].starts_with("chat: ") && lines[lines.len() - 1].contains("alice, carol"),
        "{lines:#?}"
    );
    // A file in place of the folder of all tenants is reported, too.
    fs::rename(&all, site.path().join("data/moved")).unwrap();
    fs::write(&all, "mine").unwrap();
    let ran = site.run(&["verify", "--all-tenants"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("the list of tenants is damaged"), "{ran:?}");
}

fn damage_of(site: &Site, kind: &str, tenant: &str, workspace: &str, session: &str) {
    match kind {
        "files" => {
            let log = format!("data/tenants/{tenant}/workspaces/{workspace}/sessions/{session}/events.jsonl");
            let log = site.path().join(log);
            let text = fs::read_to_string(&log).unwrap();
            fs::write(&log, text.replacen("second", "secend", 1)).unwrap();
        }
        _ => damage(site, kind, workspace, session),
    }
}

/// A copy reports how many tenants it did not process, and copies the named one.
#[tokio::test]
async fn copy_names_the_tenants_it_skipped() {
    let (here, there) = (Site::new("files"), Site::new("sqlite"));
    tenants(&here, &["default", "alice"]).await;
    let (from, to) = (here.address(), there.address());
    let ran = here.run(&["copy", &from, &to]);
    assert!(ran.err.contains("1 other tenant was not processed; add --all-tenants"), "{ran:?}");
    let report = here.json(&["copy", &from, &to, "--tenant", "alice"]);
    assert_eq!((&report["copied"]["workspaces"], &report["other_tenants"]), (&json!(1), &json!(1)));
    assert_eq!(here.json(&["copy", &from, &to, "--all-tenants"])["other_tenants"], json!(0));
}

/// A folder that has something else is not made a store: no file of the store is mixed with what is there. The program's own
/// configuration is no hindrance.
#[test]
fn a_folder_with_other_files_becomes_no_store() {
    let site = Site::new("files");
    fs::create_dir(site.path().join("data")).unwrap();
    fs::write(site.path().join("data/config.toml"), "").unwrap();
    fs::write(site.path().join("data/letter.txt"), "mine").unwrap();
    let message =
        "/data holds no store and is not empty: it has \"letter.txt\"; name an empty folder, or a new one";
    site.fails(&["workspace", "create", "--name", "first"], 1, message);
    let ran = site.typed(&[], "hello\n");
    assert!(ran.code == 1 && ran.err.contains(message), "{ran:?}");
    assert_eq!(fs::read_dir(site.path().join("data")).unwrap().count(), 2);
    let other = Site::new("sqlite");
    other.send("hello");
    let to = format!("files:{}/data", site.path().display());
    other.fails(&["copy", &other.address(), &to], 1, message);

    fs::remove_file(site.path().join("data/letter.txt")).unwrap();
    site.send("hello");
    fs::write(site.path().join("data/letter.txt"), "mine").unwrap();
    site.send("again");
}

/// Commands that read a store fail if it does not exist, and create nothing.
#[test]
fn mistyped_path_is_an_error_not_an_empty_store() {
    for kind in KINDS {
        let site = Site::new(kind);
        let there = Site::new("files");
        for args in [
            &["verify"][..],
            &["rebuild"],
            &["audit"],
            &["workspace", "list"],
            &["workspace", "show", NOBODY],
            &["workspace", "delete", NOBODY, "--yes"],
            &["workspace", "gc", "--yes"],
            &["session", "list"],
            &["session", "show", NOBODY],
            &["session", "export", NOBODY],
            &["session", "delete", NOBODY],
            &["session", "erase", NOBODY, "--yes"],
            &["session", "salvage", NOBODY],
            &["session", "pin", NOBODY, "--why", "x"],
            &["area", "list", NOBODY, "skills"],
            &["device", "list"],
            &["device", "bind", "phone", NOBODY],
            &["device", "unbind", "phone"],
            &["sweep", "--purge-deleted", "0", "--yes"],
            &["copy", &site.address(), &there.address()],
            &["tenant", "list"],
            &["tenant", "export", "default", "exported"],
            &["tenant", "delete", "default", "--yes"],
            &["config", "show", "--workspace", NOBODY],
        ] {
            site.fails(args, 3, "holds no store");
            let left: Vec<_> = fs::read_dir(site.path()).unwrap().collect();
            assert!(left.is_empty(), "{kind} {args:?}: {left:?}");
        }
        assert_eq!(fs::read_dir(there.path()).unwrap().count(), 0, "{kind}");
        // An empty folder or file is not a store either.
        let empty = site.path().join(if kind == "files" { "data" } else { "data.db" });
        if kind == "files" {
            fs::create_dir(&empty).unwrap();
        } else {
            fs::write(&empty, "").unwrap();
        }
        site.fails(&["verify"], 3, "holds no store");
        if kind == "files" {
            assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
        } else {
            assert_eq!(fs::metadata(&empty).unwrap().len(), 0);
            assert_eq!(fs::read_dir(site.path()).unwrap().count(), 1);
        }
        site.ok(&["workspace", "create", "--name", "first"]);
        assert_eq!(site.json(&["workspace", "list"])["total"], json!(1), "{kind}");
        site.ok(&["verify"]);
    }
}

/// An exported conversation is readable only for its owner.
#[test]
fn exports_are_readable_by_their_owner_only() {
    let site = Site::new("files");
    let (main, _) = site.send("hello");
    let file = site.path().join("session.json");
    site.ok(&["session", "export", &main, "--output", file.to_str().unwrap()]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Commands that remove data require `--yes` without a terminal.
#[test]
fn bulk_removal_requires_confirmation() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("hello");
        for args in [
            &["workspace", "delete", &workspace][..],
            &["workspace", "gc", "--max-age", "0"],
            &["session", "erase", &main],
            &["sweep", "--purge-deleted", "0"],
            &["sweep", "--delete-archived", "0"],
            &["sweep", "--delete-terminated", "0"],
            &["sweep", "--inactive", "0", "--then", "terminate"],
        ] {
            site.fails(args, 2, "--yes");
        }
        assert_eq!(site.json(&["session", "show", &main])["id"], json!(main), "{kind}");
        // Changes that can be undone need no confirmation.
        site.ok(&["sweep", "--inactive", "9"]);
        site.ok(&["workspace", "delete", &workspace, "--yes"]);
        site.fails(&["workspace", "show", &workspace], 3, "was deleted");
    }
}

/// Sessions are swept by age, first in a dry run; a pinned session is kept until it is unpinned.
#[test]
fn sweep_removes_old_sessions_but_not_pinned_ones() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("hello");
        let fork = site.ok(&["session", "fork", &main]);
        let fork = fork.trim();
        site.fails(&["sweep"], 2, "--purge-deleted");
        let pinned = site.json(&["session", "pin", fork, "--why", "a case is open"]);
        assert_eq!(pinned["attributes"]["labels"]["retention.pin"], "a case is open", "{pinned}");
        site.fails(&["session", "pin", fork, "--why", ""], 1, "");

        let rules = ["--inactive", "0", "--then", "terminate", "--delete-terminated", "0"];
        let all = ["--purge-deleted", "0"];
        let of = ["--workspace", workspace.as_str()];
        let sweep = |last: &str| site.json(&[&["sweep"][..], &rules, &all, &of, &[last]].concat());
        let dry = sweep("--dry-run");
        assert_eq!(dry["dry_run"], json!(true));
        assert_eq!(dry["swept"], json!([{"session": main, "action": "terminated"}]), "{kind}: {dry}");
        let kept = dry["retained"].as_array().unwrap();
        let is_fork = |kept: &Value| {
            kept["id"] == json!(fork)
                && kept["reason"].as_str().is_some_and(|why| why.ends_with("a case is open"))
        };
        assert!(kept.iter().all(is_fork) && !kept.is_empty() && dry["examined"] == json!(2), "{dry}");
        assert_eq!(site.json(&["session", "show", &main])["status"]["state"], "idle", "nothing was done");
        // Those that were used recently are listed on request.
        let young = ["sweep", "--inactive", "9", "--dry-run", "--workspace", &workspace];
        assert_eq!((&site.json(&young)["examined"], &site.json(&young)["retained"]), (&json!(0), &json!([])));
        let recent = site.json(&[&young[..], &["--recent"]].concat());
        assert_eq!(recent["examined"], json!(2), "{recent}");
        assert!(recent["retained"][0]["reason"].as_str().unwrap().starts_with("used recently"), "{recent}");
        // A sweep does not process what it has just changed; the next one does.
        for action in ["terminated", "deleted", "purged"] {
            let done = sweep("--yes");
            assert_eq!(done["swept"], json!([{"session": main, "action": action}]), "{kind}: {done}");
        }
        assert_eq!(site.json(&["session", "show", &main])["status"]["state"], "deleted");
        assert_eq!(site.json(&["session", "show", fork])["status"]["state"], "idle");
        assert!(site.ok(&["session", "unpin", fork]).contains(fork));
        let table = site.ok(&["sweep", "--inactive", "0", "--workspace", &workspace]);
        assert!(table.contains(fork) && table.contains("suspended"), "{kind}: {table}");
    }
}

/// A database is backed up with all tenants while it is in use; for a folder the error names the alternative.
#[tokio::test]
async fn backup_copies_an_open_database_whole() {
    let site = Site::new("sqlite");
    tenants(&site, &["alice", "default"]).await;
    let (main, _) = site.send("hello");
    let to = site.path().join("backup.db");
    let name = to.to_str().unwrap();
    let report = site.json(&["backup", name]);
    assert_eq!(report["file"], json!(name));
    assert_eq!(report["bytes"], json!(fs::metadata(&to).unwrap().len()));
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
    site.fails(&["backup", name], 4, "exists");
    // Existing files are not changed; of several backups to one name at once, one succeeds.
    let part = site.path().join("second.db.part");
    fs::write(&part, "precious").unwrap();
    let second = site.path().join("second.db");
    let args = ["backup", second.to_str().unwrap()];
    let at_once: Vec<_> = (0..4)
        .map(|_| site.command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    let mut codes: Vec<_> =
        at_once.into_iter().map(|child| Ran::from(child.wait_with_output().unwrap()).code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 4, 4, 4]);
    assert_eq!(fs::read_to_string(&part).unwrap(), "precious");
    // The backup works alone in another place.
    let other = Site::new("sqlite");
    fs::copy(&to, other.path().join("data.db")).unwrap();
    assert_eq!(other.json(&["verify", "--tenant", "alice"])["sessions"], json!(1));
    assert_eq!(other.ok(&["session", "export", &main]), site.ok(&["session", "export", &main]));
    Site::new("sqlite").fails(&["backup", name], 3, "holds no store");

    let files = Site::new("files");
    files.send("hello");
    files.fails(&["backup", files.path().join("copy").to_str().unwrap()], 1, "chat backup sqlite:");
    assert!(!files.path().join("copy").exists());
}

/// A session that a sweep has suspended goes on with the next message, which is answered.
#[test]
fn message_resumes_a_suspended_session() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (session, _) = site.send("before");
        site.ok(&["sweep", "--inactive", "0"]);
        assert_eq!(site.json(&["session", "show", &session])["status"]["state"], "suspended", "{kind}");
        let ran = site.typed(&["--session", &session], "after\n");
        assert!(ran.code == 0 && ran.out.contains("after"), "{kind}: {ran:?}");
        let shown = site.json(&["session", "show", &session]);
        assert_eq!((&shown["status"]["state"], shown.get("inputs_open")), (&json!("idle"), None), "{kind}");
    }
}

/// A backup in a store is brought up to date by the next run. That of an encrypted store is encrypted, too, or refused.
#[test]
fn a_backup_in_a_store_is_brought_up_to_date() {
    let (site, backup) = (Site::new("sqlite"), Site::new("files"));
    site.send("hello");
    let first = site.json(&["backup", &backup.address()]);
    assert_eq!(first["copied"]["sessions"], 1, "{first}");
    site.send("again");
    let second = site.json(&["backup", &backup.address()]);
    assert!(
        second["copied"]["sessions"] == 1 && second["events"].as_u64() < first["events"].as_u64(),
        "{second}"
    );
    let third = site.ok(&["backup", &backup.address()]);
    assert!(third.contains("copied 0 workspaces, 0 sessions"), "{third}");
    backup.ok(&["verify"]);

    site.ok(&["key", "new", "root.key"]);
    let sealed = format!("files:sealed?key_file={}", site.path().join("root.key").display());
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_chat"));
        command.current_dir(site.path()).args(args).args(["--store", &sealed]).output().unwrap()
    };
    assert!(run(&["workspace", "create", "--name", "secret"]).status.success());
    let refused = run(&["backup", "files:open"]);
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("is encrypted"),
        "{refused:?}"
    );
    assert!(!site.path().join("open").exists());
    let done = run(&["backup", &format!("files:closed?key_file={}", site.path().join("root.key").display())]);
    assert!(done.status.success(), "{done:?}");
}

/// A backup is restored over an emptied place, whose runs from before are ended; what was put back by other means is fenced in place.
#[test]
fn a_backup_is_restored_and_fenced() {
    let (site, backup) = (Site::new("sqlite"), Site::new("files"));
    let (main, _) = site.send("hello");
    site.ok(&["backup", &backup.address()]);
    let epoch = |site: &Site| site.json(&["session", "show", &main])["epoch"].as_u64().unwrap_or_default();
    let before = epoch(&site);
    let place = Site::new("sqlite");
    let said = place.ok(&["restore", &backup.address()]);
    assert!(said.contains("no run from before writes to 1 restored session"), "{said}");
    assert!(epoch(&place) >= before + 65_536, "{}", epoch(&place));
    let again = place.json(&["restore", &backup.address()]);
    assert_eq!((&again["fenced"], &again["copied"]["sessions"]), (&json!(0), &json!(0)), "{again}");
    place.send("again");
    place.ok(&["verify"]);

    let first = epoch(&site);
    let said = site.ok(&["restore", "--in-place"]);
    assert!(said.contains("fenced 1 session"), "{said}");
    assert!(epoch(&site) >= first + 65_536);
    // Neither both nor none, not one tenant, and nothing open of what is encrypted.
    site.fails(&["restore"], 2, "BACKUP");
    site.fails(&["restore", &backup.address(), "--in-place"], 2, "cannot be used");
    site.fails(&["restore", "--in-place", "--tenant", "acme"], 2, "all tenants");
    site.fails(&["restore", &site.address()], 2, "into itself");
}
