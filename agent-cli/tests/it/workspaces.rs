//! `chat workspace`.

use serde_json::json;

use crate::site::{KINDS, NOBODY, Site};

/// A workspace is created, listed, shown and deleted, as text and as JSON.
#[test]
fn workspaces_are_created_listed_and_deleted() {
    for kind in KINDS {
        let site = Site::new(kind);
        site.fails(&["workspace", "list"], 3, "holds no store");
        let create = ["workspace", "create", "--name", "Küche\u{1b}", "--provider", "offline"];
        site.fails(&create, 1, "control character");
        let empty = site.json(&["workspace", "list"]);
        assert_eq!((&empty["items"], &empty["total"], &empty["next"]), (&json!([]), &json!(0), &json!(null)));
        let id = site.ok(&["workspace", "create", "--name", "Küche", "--description", "to cook"]);
        let id = id.trim();
        site.ok(&["workspace", "create", "--name", "second", "--provider", "offline"]);

        let table = site.ok(&["workspace", "list"]);
        let lines: Vec<_> = table.lines().collect();
        assert!(lines.len() == 3 && lines[0].starts_with("ID  ") && lines[0].ends_with("NAME"), "{table}");
        assert!(lines[1].ends_with("offline   second") && lines[2].starts_with(id), "{table}");
        let list = site.json(&["workspace", "list", "--limit", "1"]);
        assert_eq!((&list["total"], &list["items"][0]["name"]), (&json!(2), &json!("second")));
        let next = list["next"].as_str().unwrap();
        let rest = site.json(&["workspace", "list", "--limit", "1", "--after", next]);
        assert_eq!((&rest["items"][0]["id"], &rest["next"]), (&json!(id), &json!(null)));

        site.ok(&["device", "bind", "phone", id]);
        let shown = site.json(&["workspace", "show", id]);
        assert_eq!((&shown["name"], &shown["devices"]), (&json!("Küche"), &json!(["phone"])));
        let text = site.ok(&["workspace", "show", id]);
        assert!(text.contains("description  to cook\n") && text.contains("devices      phone\n"), "{text}");

        let deleted = site.json(&["workspace", "delete", id, "--yes"]);
        assert_eq!((&deleted["workspace"], &deleted["devices"]), (&json!(id), &json!(1)));
        assert!(
            site.ok(&["workspace", "delete", id, "--yes"]).starts_with("deleted workspace"),
            "twice is fine"
        );
        site.fails(&["workspace", "show", id], 3, "was deleted");
        site.fails(&["workspace", "show", NOBODY], 3, "does not exist");
        site.fails(&["workspace", "delete", NOBODY], 3, "does not exist");
        site.fails(&["workspace", "delete", "default"], 1, "default cannot be deleted");
        site.fails(&["workspace", "show", "../../etc"], 2, "--help");
        site.fails(&["workspace", "list", "--after", "c2.x.y"], 1, "another query");
        assert_eq!(site.json(&["workspace", "list"])["total"], 1);
    }
}

/// A workspace with an unknown provider is refused; the error lists the available ones.
#[test]
fn workspace_create_refuses_unknown_providers() {
    for kind in KINDS {
        let site = Site::new(kind);
        let create = |provider| ["workspace", "create", "--name", "x", "--provider", provider];
        site.ok(&["workspace", "create", "--name", "first"]);
        for unknown in ["claude", "", "Offline"] {
            site.fails(&create(unknown), 1, &format!("unknown provider {unknown:?}; available: offline"));
        }
        assert_eq!(site.json(&["workspace", "list"])["total"], 1, "nothing was created");
        let id = site.ok(&create("offline"));
        assert_eq!(site.json(&["workspace", "show", id.trim()])["provider"], "offline");
    }
}

/// Unused workspaces are deleted, after a dry run that lists them; recently used ones are listed as kept.
#[test]
fn gc_collects_only_unused_workspaces() {
    for kind in KINDS {
        let site = Site::new(kind);
        site.send("hello");
        let id = site.ok(&["workspace", "create", "--name", "old"]);
        let id = id.trim();
        let none = site.run(&["workspace", "gc", "--yes"]);
        assert_eq!(none.code, 0, "{none:?}");
        assert!(none.out.lines().skip(1).all(|row| row.contains("  kept  used recently, at ")), "{none:?}");
        assert_eq!(none.err, "2 workspaces examined: 0 deleted, 2 kept\n", "the default is 90 days");
        let dry = site.json(&["workspace", "gc", "--max-age", "0", "--dry-run"]);
        assert_eq!((&dry["dry_run"], dry["collected"].as_array().unwrap().len()), (&json!(true), 2));
        assert_eq!((&dry["examined"], &dry["retained"]), (&json!(2), &json!([])));
        assert_eq!(site.json(&["workspace", "list"])["total"], 2, "nothing was done");
        let table = site.ok(&["workspace", "gc", "--max-age", "0", "--yes"]);
        assert!(table.contains(id) && table.contains("not used for more than 0 days"), "{table}");
        assert_eq!(site.json(&["workspace", "list"])["total"], 0);
        site.fails(&["workspace", "gc", "--max-age", "soon"], 2, "--help");
    }
}

/// Files are put into the areas of a workspace, listed, returned byte for byte and deleted, each by another process.
#[test]
fn area_files_are_put_listed_read_and_deleted() {
    for kind in KINDS {
        let site = Site::new(kind);
        let home = site.ok(&["workspace", "create", "--name", "home"]);
        let (home, file) = (home.trim(), site.path().join("any.bin"));
        let any: Vec<u8> = (0..=255).collect();
        std::fs::write(&file, &any).unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(site.json(&["area", "list", home, "skills"]), json!({"items": []}));
        assert!(site.ok(&["area", "put", home, "skills", "a/b", file]).contains("version 1"));
        let again = site.json(&["area", "put", home, "skills", "a/b", file]);
        assert_eq!(again, json!({"name": "a/b", "revision": 1}), "it is there already");
        let large: Vec<u8> = any.repeat(9000);
        std::fs::write(site.path().join("large.bin"), &large).unwrap();
        let path = site.path().join("large.bin");
        let put = site.json(&["area", "put", home, "skills", "large", path.to_str().unwrap()]);
        assert_eq!(put, json!({"name": "large", "revision": 2}));
        let listed = site.ok(&["area", "list", home, "skills"]);
        assert_eq!(
            listed.split_whitespace().collect::<Vec<_>>(),
            ["NAME", "BYTES", "a/b", "256", "large", "2304000"]
        );
        let got = site.command(&["area", "get", home, "skills", "large"]).output().unwrap();
        assert!(got.stdout == large, "{kind}");
        let got = site.command(&["area", "get", home, "skills", "a/b"]).output().unwrap();
        assert!(got.stdout == any, "{kind}");
        site.fails(&["area", "get", home, "memory", "a/b"], 3, "has no file \"a/b\"");
        site.fails(&["area", "put", home, "skills", "../b", file], 1, "not a valid name");
        site.fails(&["area", "put", home, "skills", "b", "nowhere"], 3, "nowhere");
        site.fails(&["area", "put", NOBODY, "skills", "b", file], 3, "does not exist");
        site.fails(&["area", "list", NOBODY, "skills"], 3, "does not exist");
        site.fails(&["area", "list", home, "cellar"], 2, "mcp, skills, memory");
        assert!(site.ok(&["area", "delete", home, "skills", "a/b"]).contains("deleted a/b"));
        site.fails(&["area", "delete", home, "skills", "a/b"], 3, "has no");
    }
}

/// The folders beside the sessions of a workspace are imported into its areas, any number of times, and are not
/// changed.
#[test]
fn workspace_folders_are_imported_as_areas() {
    for kind in KINDS {
        let site = Site::new(kind);
        let home = site.ok(&["workspace", "create", "--name", "home"]);
        let (home, folder) = (home.trim(), site.path().join("old"));
        let files =
            [("mcp", "server.json", "{}"), ("skills", "deep/er/a.md", "# Ä\r\n"), ("skills", "b.md", "")];
        for (area, name, text) in files {
            let file = folder.join(area).join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        std::fs::create_dir_all(folder.join("sessions")).unwrap();
        std::fs::write(folder.join("sessions/session.md"), "not an area").unwrap();
        let path = folder.to_str().unwrap();
        let expected = json!({"items": [
            {"area": "mcp", "name": "server.json"},
            {"area": "skills", "name": "b.md"},
            {"area": "skills", "name": "deep/er/a.md"},
        ]});
        for _ in 0..2 {
            assert_eq!(site.json(&["area", "import", home, path]), expected, "{kind}");
        }
        for (area, name, text) in files {
            let got = site.command(&["area", "get", home, area, name]).output().unwrap();
            assert_eq!(String::from_utf8(got.stdout).unwrap(), text, "{kind}");
            assert_eq!(std::fs::read_to_string(folder.join(area).join(name)).unwrap(), text);
        }
        // Only a changed file makes a second version.
        std::fs::write(folder.join("mcp/server.json"), "{ }").unwrap();
        site.json(&["area", "import", home, path]);
        let file = folder.join("mcp/server.json");
        let again = site.json(&["area", "put", home, "mcp", "server.json", file.to_str().unwrap()]);
        assert_eq!(again["revision"], 2, "{kind}");
        site.fails(&["area", "import", home, site.path().to_str().unwrap()], 3, "nothing was imported");
        site.fails(&["area", "import", NOBODY, path], 3, "does not exist");
    }
}
