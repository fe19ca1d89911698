//! `chat sweep --policy`, and the audit of tenants.

use std::fs;

use serde_json::{Value, json};

use crate::site::{KINDS, Ran, Site};

/// One file has all rules, and one run applies them: unused workspaces, sessions by age, and in the end the maintenance of the
/// store. A dry run changes nothing; without `--yes` nothing is removed.
#[test]
fn one_file_has_all_rules_of_a_sweep() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, _) = site.send("hello");
        let gone = site.ok(&["session", "fork", &main]).trim().to_owned();
        site.ok(&["session", "delete", &gone]);
        let unused = site.ok(&["workspace", "create", "--name", "unused"]).trim().to_owned();
        let rules = "# Ages have a unit.\n[sessions]\ninactive = '0d'\nthen = 'suspend'\npurge_deleted = '0min'\n\
            [workspaces]\nunused = '12h'\n[store]\nmaintain = true\n";
        fs::write(site.path().join("rules.toml"), rules).unwrap();
        let sweep = ["sweep", "--policy", "rules.toml"];
        site.fails(&sweep, 2, "add --dry-run to see what it would do, or --yes to confirm");
        let report = |more: &[&str]| -> Vec<Value> {
            let out = site.ok(&[&sweep[..], more, &["--json"]].concat());
            out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let actions = |report: &Value| {
            let swept = report["swept"].as_array().unwrap().iter();
            let mut swept: Vec<_> = swept.map(|it| it["action"].as_str().unwrap().to_owned()).collect();
            swept.sort();
            swept
        };
        let dry = report(&["--dry-run"]);
        assert_eq!((dry.len(), &dry[0]["dry_run"]), (1, &json!(true)), "{kind}: {dry:?}");
        assert_eq!(actions(&dry[0]), ["purged", "suspended"], "{kind}: {dry:?}");
        assert_eq!(
            site.json(&["session", "show", &main])["status"]["state"],
            "idle",
            "{kind}: nothing was done"
        );

        let done = report(&["--yes", "--recent"]);
        assert_eq!((done.len(), actions(&done[0])), (2, actions(&dry[0])), "{kind}: {done:?}");
        let kept = done[0]["workspaces"]["retained"].as_array().unwrap();
        assert!(kept.iter().any(|it| it["id"] == unused.as_str()), "{kind}: {done:?}");
        assert!(done[1]["maintained"].is_array(), "{kind}: {done:?}");
        let show = site.json(&["session", "show", &main]);
        assert_eq!(show["status"]["state"], "suspended", "{kind}");

        fs::write(site.path().join("rules.toml"), "[workspaces]\nunused = '0h'").unwrap();
        let table = site.ok(&[&sweep[..], &["--yes", "--all-tenants"]].concat());
        let row = table.lines().find(|line| line.contains(&unused)).unwrap_or_else(|| panic!("{table}"));
        assert!(row.contains("deleted") && row.contains("not used for more than 0 days"), "{kind}: {table}");
        site.fails(&["workspace", "show", &unused], 3, "was deleted");
    }
}

/// What a policy has that is no rule is refused by its name, with the line, before anything is done.
#[test]
fn a_policy_with_an_unknown_key_or_unit_is_refused() {
    let site = Site::new("sqlite");
    site.send("hello");
    for (text, expected) in [
        (
            "[sessions]\ninactve = '90d'",
            "rules.toml, line 2: unknown field `inactve`, expected one of `inactive`",
        ),
        ("[workspace]\nunused = '90d'", "rules.toml, line 1: unknown field `workspace`"),
        ("[store]\nmaintain = true\ndryrun = true", "unknown field `dryrun`, expected `maintain`"),
        ("[sessions]\ninactive = 90", "line 2: 90 is no age; write a whole number with its unit"),
        ("[sessions]\npurge_deleted = '90'", "\"90\" is no age"),
        ("[sessions]\npurge_deleted = '-1d'", "\"-1d\" is no age"),
        ("[sessions]\npurge_deleted = '99999d'", "at most 36500 days"),
        ("[sessions]\ninactive = '1d'\nthen = 'archive'", "line 3: unknown variant `archive`"),
        ("[sessions]\nthen = 'suspend'", "add `sessions.inactive`"),
        ("", "the policy has no rule"),
        ("[store]\nmaintain = false", "the policy has no rule"),
        ("inactive", "rules.toml, line 1"),
    ] {
        fs::write(site.path().join("rules.toml"), text).unwrap();
        site.fails(&["sweep", "--policy", "rules.toml", "--yes"], 1, expected);
    }
    site.fails(&["sweep", "--policy", "nowhere.toml", "--yes"], 3, "nowhere.toml");
    site.fails(&["sweep", "--policy", "rules.toml", "--inactive", "9"], 2, "cannot be used with");
    assert_eq!(site.json(&["session", "list"])["total"], 1);
}

/// That a tenant was deleted, by whom and with what, is shown when nothing of it is left; the audit is listed as no tenant, is
/// verified and copied with all, and cannot be deleted.
#[test]
fn the_deletion_of_a_tenant_stays_in_the_audit() {
    for kind in KINDS {
        let site = Site::new(kind);
        let ran = site.typed(&["--tenant", "acme"], "hello\n");
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(site.json(&["tenant", "audit"]), json!({"items": [], "next": null}));
        site.ok(&["tenant", "delete", "acme", "--yes"]);

        let audit = site.json(&["tenant", "audit"]);
        let items = audit["items"].as_array().unwrap();
        assert_eq!(items.len(), 2, "{audit}");
        assert!(items.iter().all(|it| it["by"] == "user:laptop" && it["at"].is_string()), "{audit}");
        assert!(items.iter().all(|it| it["noted"]["tenant"] == "acme"), "{audit}");
        assert_eq!(items[0]["noted"]["outcome"], "done", "newest first: {audit}");
        let removed = json!({"workspaces": 1, "sessions": 1, "devices": 1});
        assert!(
            items.iter().all(|it| it["noted"]["removed"] == removed),
            "what was there, and what is gone: {audit}"
        );
        site.fails(&["session", "list", "--tenant", "audit-of-tenants"], 2, "`chat tenant audit` shows it");
        let row = "user:laptop  tenant.delete  done     tenant acme, 1 workspace, 1 session, 1 device";
        let table = site.ok(&["tenant", "audit"]);
        assert!(table.lines().nth(1).unwrap().contains(row), "{table}");
        let page = site.json(&["tenant", "audit", "--limit", "1"]);
        let rest = site.json(&["tenant", "audit", "--after", &page["next"].to_string()]);
        assert_eq!((&page["items"][0], &rest["items"][0]), (&items[0], &items[1]), "{kind}");

        assert_eq!(site.json(&["tenant", "list"])["items"], json!([]), "{kind}");
        let none = "no tenant has data in this store";
        assert!(site.ok(&["session", "list", "--all-tenants"]).contains(none), "{kind}");
        assert!(site.ok(&["verify", "--all-tenants"]).contains("audit-of-tenants"), "{kind}");
        site.fails(&["tenant", "delete", "audit-of-tenants", "--yes"], 1, "can only be appended to");
        let copy = format!("sqlite:{}/copy.db", site.path().display());
        site.ok(&["copy", &site.address(), &copy, "--all-tenants"]);
        let mut there = std::process::Command::new(env!("CARGO_BIN_EXE_chat"));
        let out: Ran = there.args(["tenant", "audit", "--json", "--store", &copy]).output().unwrap().into();
        assert_eq!(
            serde_json::from_str::<Value>(&out.out).unwrap(),
            site.json(&["tenant", "audit"]),
            "{out:?}"
        );
    }
}

/// A dry run of rules for workspaces and sessions says of the sessions what the run then does: those of workspaces that would be
/// deleted are not examined again.
#[test]
fn a_dry_run_of_all_rules_says_what_the_run_does() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, _) = site.send("hello");
        site.ok(&["session", "fork", &main]);
        let rules = "[workspaces]\nunused = '0h'\n[sessions]\ninactive = '0d'\npurge_deleted = '0d'\n";
        fs::write(site.path().join("rules.toml"), rules).unwrap();
        let dry = site.json(&["sweep", "--policy", "rules.toml", "--dry-run"]);
        let done = site.json(&["sweep", "--policy", "rules.toml", "--yes"]);
        assert_eq!(dry["workspaces"]["collected"], done["workspaces"]["collected"], "{kind}: {dry} {done}");
        assert!(!done["workspaces"]["collected"].as_array().unwrap().is_empty(), "{kind}: {done}");
        for what in ["examined", "swept", "retained"] {
            assert_eq!(dry[what], done[what], "{kind}, {what}: {dry} {done}");
        }
    }
}
