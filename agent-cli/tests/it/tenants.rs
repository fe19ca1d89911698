//! `chat tenant`: list, export, delete.

use agent_core::clock::Effects;
use agent_core::commit::{Commit, LeaseRequest, Trigger};
use agent_core::event::NewEvent;
use agent_core::store::SessionQuery;
use agent_core::{Storage, TenantId};
use agent_storage_fs::FsStore;
use agent_storage_sqlite::SqliteStore;
use serde_json::json;

use crate::site::{KINDS, Site};

/// Says something as a tenant; returns its session.
fn send(site: &Site, tenant: &str, text: &str) -> String {
    let ran = site.typed(&["--tenant", tenant], &format!("{text}\n"));
    assert_eq!(ran.code, 0, "{ran:?}");
    let list = site.json(&["session", "list", "--tenant", tenant]);
    list["items"][0]["id"].as_str().unwrap().to_owned()
}

/// A tenant is exported to a folder, from which a conversation goes on and which another store takes in; to what is no
/// new place, it is copied too. Nothing of another tenant comes along.
#[test]
fn a_tenant_is_exported_and_imported_elsewhere() {
    for kind in KINDS {
        let (here, there) = (Site::new(kind), Site::new("sqlite"));
        let id = send(&here, "acme", "hello");
        send(&here, "other", "secret");
        let ran = here.run(&["tenant", "export", "acme", "exported"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.out.starts_with("copied 1 workspace, 1 session, 1 device binding, 4 events"), "{ran:?}");
        assert!(ran.err.contains("exported tenant acme to "), "{ran:?}");
        let again = here.json(&["tenant", "export", "acme", "files:exported"]);
        assert_eq!(again["present"], json!({"workspaces": 1, "sessions": 1, "bindings": 1}));

        let folder = here.path().join("exported");
        let from = format!("files:{}", folder.display());
        there.ok(&["copy", &from, &there.address(), "--tenant", "acme"]);
        assert_eq!(there.json(&["tenant", "list"])["items"], json!(["acme"]));
        let export = ["session", "export", &id, "--tenant", "acme"];
        assert_eq!(there.ok(&export), here.ok(&export), "{kind}");
    }
}

/// A tenant is deleted only if somebody said so, and counted before; another one stays.
#[test]
fn a_tenant_is_deleted_after_confirmation() {
    for kind in KINDS {
        let site = Site::new(kind);
        send(&site, "acme", "hello");
        let kept = send(&site, "other", "kept");
        assert_eq!(site.json(&["tenant", "list"])["items"], json!(["acme", "other"]), "{kind}");
        let dry = site.json(&["tenant", "delete", "acme", "--dry-run"]);
        let counts = |report: &serde_json::Value| {
            ["sessions", "workspaces", "devices"].map(|name| report[name].as_u64().unwrap())
        };
        assert_eq!((counts(&dry), &dry["dry_run"]), ([1, 1, 1], &json!(true)), "{kind}");
        site.fails(&["tenant", "delete", "acme"], 2, "the deletion of tenant acme removes data permanently");
        assert_eq!(site.json(&["session", "list", "--tenant", "acme"])["total"], json!(1), "{kind}");

        let done = site.ok(&["tenant", "delete", "acme", "--yes"]);
        assert_eq!(done, "deleted tenant acme: 1 session, 1 workspace, 1 device\n", "{kind}");
        assert_eq!(site.ok(&["tenant", "list"]), "TENANT\nother\n", "{kind}");
        for args in [&["tenant", "delete", "acme", "--yes"][..], &["tenant", "delete", "acme", "--dry-run"]] {
            site.fails(args, 3, "tenant acme has no data in this store; tenants with data: other");
        }
        site.fails(&["tenant", "export", "acme", "exported"], 3, "tenant acme has no data in this store");
        assert!(!site.path().join("exported").exists());
        assert!(site.ok(&["session", "export", &kept, "--tenant", "other"]).contains("kept"), "{kind}");
        send(&site, "acme", "again");
        assert_eq!(site.json(&["session", "list", "--tenant", "acme"])["total"], json!(1), "{kind}");
        site.fails(&["tenant", "delete", "../x"], 2, "tenant id");
        site.fails(&["tenant", "list", "--tenant", "acme"], 2, "pass the tenant as an argument");
    }
}

/// A tenant of which a session is run is not deleted; the holder is named.
#[tokio::test]
async fn a_tenant_at_work_is_not_deleted() {
    for kind in KINDS {
        let site = Site::new(kind);
        send(&site, "acme", "hello");
        let tenant: TenantId = "acme".parse().unwrap();
        let storage: Storage = match kind {
            "files" => FsStore::open(site.path().join("data")).await.unwrap().for_tenant(&tenant).into(),
            _ => SqliteStore::open(site.path().join("data.db")).await.unwrap().for_tenant(&tenant).into(),
        };
        let session = storage.sessions.list(SessionQuery::new()).await.unwrap().items.remove(0);
        let effects = Effects::default();
        let begin = Commit::seal(&effects, session.id, session.head)
            .with_event(NewEvent::user_message("go"))
            .with_trigger(Trigger::BeginRun(LeaseRequest::new("the-holder", effects.new_run_id())));
        let running = storage.sessions.commit(begin).await.unwrap().session;
        let beats = async {
            loop {
                storage.sessions.leases().heartbeat(running.id, running.epoch).await.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        let mut command = site.command(&["tenant", "delete", "acme", "--yes"]);
        let deletion = tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = tokio::select! {
            () = beats => unreachable!("it does not end"),
            output = deletion => output.unwrap(),
        };
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{kind}: {printed}");
        assert!(
            printed.contains(&format!("session {} is run by the-holder", session.id)),
            "{kind}: {printed}"
        );
        assert_eq!(storage.sessions.load(session.id).await.unwrap(), running, "{kind}");
        storage.close().await.unwrap();
        // Its holder is gone by now, which needs no wait.
        site.ok(&["tenant", "delete", "acme", "--yes"]);
    }
}

/// With `--owner`, a conversation and all commands are those of one user of the tenant: lists show the user's own, and another's
/// session is not found. Work on the whole tenant is refused.
#[test]
fn owners_of_a_tenant_see_their_own() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (alice, bob) = (["--owner", "alice"], ["--owner", "bob"]);
        let say = |owner: [&str; 2], device: &str, text: &str| {
            let ran = site.typed_on(device, &owner, &format!("{text}\n"));
            assert_eq!(ran.code, 0, "{kind}: {ran:?}");
        };
        say(alice, "of-alice", "a trip to Oslo");
        say(bob, "of-bob", "the garden");
        say(alice, "of-alice", "by train?");
        let list = |owner: &[&str]| site.json(&[&["session", "list"], owner].concat());
        let (hers, his, all) = (list(&alice), list(&bob), list(&[]));
        assert_eq!([&hers, &his, &all].map(|list| list["total"].as_u64().unwrap()), [1, 1, 2], "{kind}");
        let session = &hers["items"][0];
        assert_eq!((&session["owner"], &session["counts"]["user"]), (&json!("alice"), &json!(2)), "{kind}");
        assert_eq!(
            (&session["first_words"], &session["preview"]),
            (&json!("a trip to Oslo"), &json!("by train?"))
        );
        assert!(site.ok(&["session", "list", "--owner", "alice"]).contains("a trip to Oslo"), "{kind}");
        let id = session["id"].as_str().unwrap();
        assert!(site.ok(&["session", "show", id]).contains("alice"), "{kind}");
        site.fails(&["session", "show", id, "--owner", "bob"], 3, "does not exist");
        site.fails(&["session", "delete", id, "--owner", "bob"], 3, "does not exist");
        site.fails(&["rebuild", "--owner", "bob"], 1, "use the storage of the tenant");
        let ran = site.typed_on("of-alice", &bob, "mine\n");
        assert!(ran.code != 0 && ran.err.contains("bound already, by another owner"), "{kind}: {ran:?}");
    }
}

/// What works on whole tenants is not done for one owner.
#[test]
fn commands_for_tenants_refuse_an_owner() {
    let site = Site::new("sqlite");
    site.send("hello");
    let (here, there) = (site.address(), format!("sqlite:{}/there.db", site.path().display()));
    for args in [
        &["copy", &here, &there][..],
        &["backup", "there.db"],
        &["tenant", "list"],
        &["tenant", "export", "default", &there],
        &["tenant", "delete", "default", "--yes"],
        &["upgrade"],
        &["maintain"],
    ] {
        site.fails(&[args, &["--owner", "ann"]].concat(), 2, "leave --owner out");
    }
    assert_eq!(site.json(&["session", "list"])["total"], 1, "nothing was deleted");
    assert!(!site.path().join("there.db").exists(), "nothing was copied");
}
