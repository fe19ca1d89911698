//! `chat device`.

use serde_json::json;

use crate::site::{KINDS, NOBODY, Site};

/// Devices with any name are bound, moved to another workspace, listed and unbound.
#[test]
fn devices_are_bound_moved_listed_and_unbound() {
    for kind in KINDS {
        let site = Site::new(kind);
        let new = |name| site.ok(&["workspace", "create", "--name", name]).trim().to_owned();
        let (one, two) = (new("one"), new("two"));
        site.ok(&["device", "bind", "phone, ../../etc 안녕", &one]);
        assert_eq!(
            site.json(&["device", "bind", "tablet", &one]),
            json!({"device": "tablet", "workspace": one})
        );
        site.ok(&["device", "bind", "tablet", &two]);
        let list = site.json(&["device", "list"]);
        let expected = json!([
            {"device": "phone, ../../etc 안녕", "workspace": one}, {"device": "tablet", "workspace": two},
        ]);
        assert_eq!(list["items"], expected);
        let table = site.ok(&["device", "list", "--workspace", &two]);
        assert_eq!(table.lines().nth(1).unwrap(), format!("{two}  tablet"), "{table}");
        let first = site.json(&["device", "list", "--limit", "1"]);
        let rest = site.json(&["device", "list", "--limit", "1", "--after", first["next"].as_str().unwrap()]);
        assert_eq!(rest["items"][0]["device"], "tablet");

        site.ok(&["device", "unbind", "tablet"]);
        site.fails(&["device", "unbind", "tablet"], 3, "not bound to a workspace");
        site.fails(&["device", "bind", "tablet", NOBODY], 3, "does not exist");
        site.fails(&["device", "bind", "", &one], 2, "--help");
        site.fails(&["device", "bind", "tablet", "one"], 2, "--help");
        assert_eq!(site.json(&["device", "list"])["items"].as_array().unwrap().len(), 1);
    }
}
