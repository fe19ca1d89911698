//! `chat audit`.

use serde_json::json;

use crate::site::{KINDS, NOBODY, Site};

/// Commands record the actor, time, operation and object, newest first and in pages. Failed operations are recorded
/// with the error; reads are not recorded.
#[test]
fn audit_lists_writes_and_failures_but_no_reads() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, _) = site.send("hello, xyzzy");
        let none = json!({"items": [], "next": null, "tenant": "default", "other_tenants": 0});
        assert_eq!(site.json(&["audit"]), none);
        site.ok(&["session", "delete", &main, "--purge"]);
        let new = site.ok(&["workspace", "create", "--name", "Secret plans"]).trim().to_owned();
        site.ok(&["device", "bind", "phone", &new]);
        site.fails(&["workspace", "delete", NOBODY], 3, "does not exist");
        site.ok(&["workspace", "delete", &new, "--yes"]);
        site.ok(&["workspace", "list"]);
        site.ok(&["workspace", "gc", "--dry-run"]);

        let whole = site.json(&["audit", "--limit", "100"]);
        let items = whole["items"].as_array().unwrap();
        assert!(items.iter().all(|item| item["by"] == "user:laptop" && item["at"].is_string()), "{whole}");
        let is = |item: &serde_json::Value, what: &str, id: &str| {
            item["noted"]["operation"] == what && item["noted"]["workspace"] == id
        };
        assert!(is(&items[0], "workspace.delete", &new) && items[0]["noted"]["outcome"] == "done", "{whole}");
        let bound =
            |item: &&serde_json::Value| is(item, "device.bind", &new) && item["noted"]["device"] == "phone";
        assert_eq!(items.iter().filter(bound).count(), 2, "{whole}");
        for what in ["session.delete", "session.purge"] {
            let removed = |item: &&serde_json::Value| {
                item["noted"]["operation"] == what && item["noted"]["session"] == main.as_str()
            };
            assert_eq!(items.iter().filter(removed).count(), 2, "{what}: {whole}");
        }
        let text = whole.to_string();
        assert!(!text.contains("xyzzy") && !text.contains("Secret plans"), "{text}");

        let page = site.json(&["audit", "--limit", "3"]);
        let rest = site.json(&["audit", "--after", &page["next"].to_string(), "--limit", "100"]);
        assert_eq!(
            [page["items"].as_array().unwrap().as_slice(), rest["items"].as_array().unwrap()].concat(),
            *items
        );
        let table = site.ok(&["audit", "--limit", "1"]);
        let line = table.lines().nth(1).unwrap();
        assert!(
            line.contains(&format!("user:laptop  workspace.delete  done     workspace {new}")),
            "{table}"
        );
        site.fails(&["audit", "--limit", "0"], 2, "--help");
        site.fails(&["session", "delete", &hidden(&site)], 1, "can only be appended to");
        site.fails(&["session", "erase", &hidden(&site), "--yes"], 1, "can only be appended to");
    }
}

/// Returns the id of the session that stores the audit log.
fn hidden(site: &Site) -> String {
    let list = site.json(&["session", "list", "--all"]);
    let items = list["items"].as_array().unwrap();
    let audit = items.iter().find(|item| item["attributes"]["labels"]["hidden"] == "audit");
    audit.unwrap_or_else(|| panic!("{list}"))["id"].as_str().unwrap().to_owned()
}
