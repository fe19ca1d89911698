//! Single properties of messages and exit codes.

use std::fs;
use std::path::Path;

use agent_core::model::{Patch, Title};
use agent_runtime::{NewWorkspace, WorkspaceManager};
use serde_json::{Value, json};

use crate::site::{KINDS, NOBODY, Ran, Site};

/// The hidden session of an area cannot become a main session, and cannot be deleted by itself; both errors contain a
/// remedy.
#[test]
fn hidden_session_cannot_be_main_or_be_deleted() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("hello");
        let file = site.path().join("note");
        fs::write(&file, "a note").unwrap();
        let put = ["area", "put", &workspace, "memory", "a", file.to_str().unwrap()];
        site.ok(&put);
        let list = site.json(&["session", "list", "--all"]);
        let items = list["items"].as_array().unwrap();
        let hidden = items.iter().find(|item| item["attributes"]["labels"]["hidden"] == "area/memory");
        let hidden = hidden.unwrap()["id"].as_str().unwrap();
        site.fails(&["workspace", "set-main", &workspace, hidden], 1, "area/memory");
        site.fails(&["session", "delete", hidden], 1, "area/memory");
        site.fails(&["session", "delete", hidden, "--purge"], 1, "by its name");
        site.fails(&["session", "erase", hidden, "--yes"], 1, "by its name");
        assert_eq!(site.json(&["workspace", "show", &workspace])["main_session"], json!(main), "{kind}");
        assert_eq!(site.ok(&["area", "get", &workspace, "memory", "a"]), "a note", "{kind}");
        site.ok(&put);
        site.ok(&["workspace", "delete", &workspace, "--yes"]);
    }
}

/// Says something, and exports the session; returns its id, its workspace and the file.
fn exported(site: &Site) -> (String, String, String) {
    let (main, workspace) = site.send("hello");
    let file = site.path().join("session.json").to_str().unwrap().to_owned();
    site.ok(&["session", "export", &main, "--output", &file]);
    (main, workspace, file)
}

/// The import of a session whose workspace is not in the store succeeds with a warning and a remedy.
#[test]
fn import_without_its_workspace_is_reported() {
    for kind in KINDS {
        let (here, there) = (Site::new("files"), Site::new(kind));
        let (main, workspace, file) = exported(&here);
        let name = &*file;
        let ran = there.run(&["session", "import", name, "--no-workspace"]);
        assert_eq!((ran.code, ran.out.trim()), (0, main.as_str()), "{ran:?}");
        assert!(ran.err.contains(&workspace) && ran.err.contains("is not in this store"), "{ran:?}");
        assert!(ran.err.contains(&format!("--workspace {workspace}")), "{ran:?}");
        let again = there.json(&["session", "import", name, "--no-workspace"]);
        assert_eq!(again["workspace_exists"], json!(false), "{again}");
        there.ok(&["copy", &here.address(), &there.address(), "--workspace", &workspace]);
        let ran = there.run(&["session", "import", name]);
        let present = "(the session was already in the store; nothing was written)\n";
        assert_eq!((ran.code, ran.err.as_str()), (0, present), "{ran:?}");
        there.ok(&["verify"]);
        there.ok(&["workspace", "delete", &workspace, "--yes"]);
    }
}

/// With its workspace created, an imported session is continued, and `verify` finds nothing wrong.
#[test]
fn import_creates_the_workspace_on_request() {
    for kind in KINDS {
        let (here, there) = (Site::new("files"), Site::new(kind));
        let (main, workspace, file) = exported(&here);
        let name = &*file;
        let ran = there.run(&["session", "import", name]);
        assert_eq!((ran.code, ran.out.trim()), (0, main.as_str()), "{ran:?}");
        assert!(ran.err.contains(&format!("(workspace {workspace} was created)")), "{ran:?}");
        assert!(!ran.err.contains("warning"), "{ran:?}");
        let again = there.run(&["session", "import", name]);
        assert!(again.code == 0 && !again.err.contains("created"), "{again:?}");
        there.ok(&["verify"]);
        let ran = there.typed(&["--session", &main], "again\n/quit\n");
        assert!(ran.code == 0 && ran.out.contains("again"), "{kind}: {ran:?}");
    }
}

/// An archive that was compressed is named as such, and errors of an archive name the file.
#[test]
fn a_compressed_archive_is_named() {
    let site = Site::new("files");
    let file = site.path().join("session.tar.gz");
    fs::write(&file, b"\x1f\x8b\x08\0\0\0\0\0\0\x03").unwrap();
    let ran = site.run(&["session", "import", file.to_str().unwrap()]);
    assert!(ran.code == 1 && ran.err.contains("session.tar.gz") && ran.err.contains("gzip -d"), "{ran:?}");
}

/// An import that was interrupted among the ancestors is completed with the option that the error names.
#[test]
fn interrupted_import_can_be_finished() {
    for kind in KINDS {
        let (here, there) = (Site::new("files"), Site::new(kind));
        let (main, _) = here.send("first");
        let export = |id: &str, name: &str| {
            let file = here.path().join(name);
            here.ok(&["session", "export", id, "--output", file.to_str().unwrap()]);
            file.to_str().unwrap().to_owned()
        };
        let beginning = export(&main, "beginning.json");
        here.send("second");
        let fork = here.ok(&["session", "fork", &main]).trim().to_owned();
        let whole = export(&fork, "fork.json");
        // The state after an import of the fork was interrupted while it stored the fork's parent.
        there.ok(&["session", "import", &beginning]);
        there.fails(&["session", "import", &whole], 4, "--with-ancestors");
        let output = there.run(&["session", "import", &whole]).err;
        assert!(!output.contains("import_with_ancestors"), "{output}");
        let ran = there.run(&["session", "import", &whole, "--with-ancestors"]);
        assert_eq!((ran.code, ran.out.trim()), (0, fork.as_str()), "{kind}: {ran:?}");
        assert_eq!(there.ok(&["session", "export", &fork]), fs::read_to_string(&whole).unwrap(), "{kind}");
        assert_eq!(there.ok(&["session", "export", &main]), here.ok(&["session", "export", &main]), "{kind}");
    }
}

/// A store is not copied to itself, nor between a folder and one of its subfolders, also through links.
#[test]
fn a_store_is_not_copied_into_itself() {
    let site = Site::new("files");
    site.send("hello");
    let data = site.path().join("data");
    std::os::unix::fs::symlink(&data, site.path().join("link")).unwrap();
    let at = |kind: &str, path: &str| format!("{kind}:{}/{path}", site.path().display());
    site.ok(&["copy", &at("files", "data"), &at("sqlite", "one.db")]);
    let before = fs::read_dir(&data).unwrap().count();
    for (from, to) in [
        (at("files", "data"), at("files", "data/sub")),
        (at("files", "data"), at("files", "data/a/b/../c")),
        (at("files", "data"), at("files", "link/sub")),
        (at("files", "link"), at("files", "data")),
        (at("files", "data"), at("files", "data")),
        (at("files", "data"), at("files", ".")),
        (at("files", "data"), at("sqlite", "data/in.db")),
        (at("sqlite", "one.db"), at("sqlite", "one.db?sync=off")),
    ] {
        let ran = site.run(&["copy", &from, &to]);
        assert_eq!(ran.code, 2, "{from} {to}: {ran:?}");
        assert!(ran.err.contains("itself"), "{from} {to}: {ran:?}");
    }
    assert_eq!(fs::read_dir(&data).unwrap().count(), before, "nothing was made");
    site.ok(&["copy", &at("files", "data"), &at("files", "data-2")]);
}

/// Control characters, and characters that change the direction of text, are shown as escapes wherever a name is
/// printed.
#[tokio::test]
async fn control_characters_in_names_are_escaped() {
    let odd = "a\u{202e}b\u{2066}c\u{200f}d\u{61c}";
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("hello");
        let store = site.open().await;
        let effects = agent_core::clock::Effects::default();
        let manager = WorkspaceManager::new(store.clone().with_effects(effects.clone()));
        let other = manager.create(NewWorkspace::new(odd)).await.unwrap();
        let id = main.parse().unwrap();
        let patch = Patch::new().with_title(Title::by_user(odd)).with_label("project", odd);
        let head = store.sessions.load(id).await.unwrap().head;
        store.sessions.update(id, head, patch).await.unwrap();
        store.close().await.unwrap();
        let file = site.path().join("note");
        fs::write(&file, "a note").unwrap();
        let (file, other) = (file.to_str().unwrap(), other.id.to_string());
        let esc = "x\u{1b}[31m\u{9b}\u{202e}";
        let missing = format!("files:/nonexistent/{odd}");
        for args in [
            vec!["workspace", "list"],
            vec!["workspace", "show", &other],
            vec!["workspace", "create", "--name", esc],
            vec!["workspace", "create", "--name", "x", "--provider", esc],
            vec!["workspace", "show", esc],
            vec!["session", "list"],
            vec!["session", "show", &main],
            vec!["session", "pin", &main, "--why", odd],
            vec!["session", "import", esc],
            vec!["session", "list", "--label", esc],
            vec!["area", "put", &workspace, "memory", odd, file],
            vec!["area", "list", &workspace, "memory"],
            vec!["area", "get", &workspace, "memory", esc],
            vec!["area", "delete", &workspace, "memory", odd],
            vec!["device", "bind", odd, &workspace],
            vec!["device", "list"],
            vec!["device", "unbind", odd],
            vec!["device", "unbind", "other\u{202e}"],
            vec!["copy", &missing, "memory:"],
            vec!["backup", esc],
            vec!["config", "show", "--config", esc],
            vec!["audit"],
            vec!["verify"],
            vec![esc],
        ] {
            for json in [false, true] {
                let ran = site.run(&[args.clone(), if json { vec!["--json"] } else { vec![] }].concat());
                clean(&format!("{kind}: {args:?}"), &ran, json);
            }
        }
        let outcome = "/sessions\n/workspace\n/history\n/switch x\u{202e}\u{1b}[31m\n/\u{202e}\u{1b}[31m\n/new \u{202e}title\n/sessions\n";
        clean(&format!("{kind}: the conversation"), &site.typed(&[], outcome), false);
    }
}

#[track_caller]
fn clean(what: &str, ran: &Ran, json: bool) {
    let steers = |c: &char| (c.is_control() && *c != '\n') || "\u{202e}\u{2066}\u{200f}\u{61c}".contains(*c);
    // JSON escapes only what it must.
    let out = if json { "" } else { &ran.out };
    let found: Vec<_> = out.chars().chain(ran.err.chars()).filter(steers).collect();
    assert!(found.is_empty(), "{what}: {found:?}: {ran:?}");
}

/// Every command returns the exit codes that the help lists.
#[test]
fn exit_codes_match_the_help() {
    let site = Site::new("sqlite");
    let nothing = Site::new("sqlite");
    let (main, workspace) = site.send("hello");
    let file = site.path().join("there");
    fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    let help = site.ok(&["--help"]);
    for code in ["  0  ", "  1  ", "  2  ", "  3  ", "  4  ", "  5  "] {
        assert!(help.contains(&format!("\n{code}")), "{code}: {help}");
    }
    let of = |args: &[&str]| site.run(args).code;
    // Wrong command line.
    for args in [
        vec!["nonsense"],
        vec!["session", "show", "x"],
        vec!["workspace", "delete", &workspace],
        vec!["sweep", "--delete-archived", "1"],
        vec!["session", "list", "--label", "x"],
        vec!["area", "list", &workspace, "cellar"],
        vec!["copy", "tape:x", "memory:"],
    ] {
        assert_eq!(of(&args), 2, "{args:?}");
    }
    // A named object does not exist.
    let (no_file, no_store) = ("/nonexistent/file", "sqlite:/nonexistent/store.db");
    for args in [
        vec!["workspace", "show", NOBODY],
        vec!["workspace", "delete", NOBODY, "--yes"],
        vec!["workspace", "set-main", &workspace, NOBODY],
        vec!["session", "show", NOBODY],
        vec!["session", "export", NOBODY],
        vec!["session", "fork", NOBODY],
        vec!["session", "salvage", NOBODY],
        vec!["session", "pin", NOBODY, "--why", "x"],
        vec!["session", "delete", NOBODY],
        vec!["session", "import", no_file],
        vec!["area", "put", &workspace, "memory", "a", no_file],
        vec!["area", "get", &workspace, "memory", "a"],
        vec!["area", "delete", &workspace, "memory", "a"],
        vec!["area", "import", &workspace, "/nonexistent"],
        vec!["device", "unbind", "nobody"],
        vec!["device", "bind", "phone", NOBODY],
        vec!["config", "show", "--config", no_file],
        vec!["config", "show", "--workspace", NOBODY],
        vec!["copy", no_store, "memory:"],
        vec!["verify", "--tenant", "nobody"],
    ] {
        assert_eq!(of(&args), 3, "{args:?}");
    }
    for args in [vec!["verify"], vec!["session", "list"], vec!["backup", "x"], vec!["audit"]] {
        assert_eq!(nothing.run(&args).code, 3, "{args:?}");
    }
    // Not possible in the present state.
    for args in [vec!["session", "export", &main, "--output", file], vec!["backup", file]] {
        assert_eq!(of(&args), 4, "{args:?}");
    }
    // Other failures.
    for args in [
        vec!["session", "export", &main, "--output", "/nonexistent/file"],
        vec!["area", "put", &workspace, "memory", "../a", file],
        vec!["session", "fork", &main, "--at", "99"],
        vec!["session", "import", "/"],
    ] {
        assert_eq!(of(&args), 1, "{args:?}");
    }
    // Damaged data.
    assert_eq!(of(&["session", "import", file]), 5);
}

/// A deletion reports whether events were removed.
#[test]
fn deletion_reports_what_it_did() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, _) = site.send("hello");
        let output = site.ok(&["session", "delete", &main]);
        let keeps = format!(
            "deleted session {main}; to remove its events, run `chat session delete {main} --purge`\n"
        );
        assert_eq!(output, keeps, "{kind}");
        assert_eq!(site.ok(&["session", "delete", &main]), keeps, "{kind}");
        let output = site.ok(&["session", "delete", &main, "--purge"]);
        assert!(output.starts_with(&format!("deleted session {main} and removed ")), "{kind}: {output}");
        let output = site.ok(&["session", "delete", &main, "--purge"]);
        assert_eq!(output, format!("deleted session {main}; no events were left to remove\n"), "{kind}");
        let (main, _) = site.send("again");
        let whole: Value = site.json(&["session", "delete", &main]);
        assert_eq!(whole, json!({"session": main, "purged_events": 0, "ended_answer_of": null}), "{kind}");
    }
}

/// A removal says how many bytes of content are gone: those that `chat sizes` had counted, and that files had on disk.
#[test]
fn a_removal_says_what_it_gave_back() {
    for kind in KINDS {
        for removal in [["delete", "--purge"], ["erase", "--now"]] {
            let site = Site::new(kind);
            let (main, _) = site.send(&"large ".repeat(10_000));
            let counted = |site: &Site| site.json(&["sizes"])["bytes"]["total"].as_u64().unwrap();
            let (bytes, disk) = (counted(&site), disk(site.path()));
            assert!(bytes > 120_000, "question and answer: {bytes}");
            let whole = site.json(&["session", removal[0], &main, removal[1], "--yes"]);
            assert_eq!((whole["purged_bytes"].as_u64(), counted(&site)), (Some(bytes), 0), "{kind}: {whole}");
            if kind == "files" {
                let given_back = disk - self::disk(site.path());
                assert!(given_back >= bytes, "{given_back} of {bytes}");
            }
            let (main, _) = site.send(&"large ".repeat(10_000));
            let output = site.ok(&["session", removal[0], &main, removal[1], "--yes"]);
            assert!(output.contains(" events with 117 KiB of content"), "{kind}: {output}");
        }
    }
}

/// Returns the bytes of all files in a folder.
fn disk(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    files
        .map(|file| if file.path().is_dir() { disk(&file.path()) } else { file.metadata().unwrap().len() })
        .sum()
}

/// An error of a SQLite file contains its path and a remedy, and no SQL.
#[test]
fn user_version_zero_is_explained_in_words() {
    let site = Site::new("sqlite");
    site.send("hello");
    let raw = rusqlite::Connection::open(site.path().join("data.db")).unwrap();
    raw.execute_batch("PRAGMA user_version = 0").unwrap();
    raw.close().unwrap();
    for args in [vec!["session", "list"], vec!["workspace", "create", "--name", "a"]] {
        site.fails(&args, 1, "user_version = 8");
        site.fails(&args, 1, "data.db");
        let ran = site.run(&args);
        assert!(!ran.err.contains("CREATE TABLE"), "{ran:?}");
    }
}

/// A trigger of another program on the tables is reported.
#[test]
fn foreign_sql_trigger_is_reported() {
    let site = Site::new("sqlite");
    let (main, _) = site.send("hello");
    let raw = rusqlite::Connection::open(site.path().join("data.db")).unwrap();
    raw.execute_batch("CREATE TRIGGER nosy BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END").unwrap();
    raw.close().unwrap();
    site.send("kept");
    let shown = site.ok(&["session", "show", &main]);
    assert!(shown.contains("laptop: kept"), "{shown}");
    site.fails(&["verify"], 5, "DROP TRIGGER nosy");
}

/// A row that was deleted by hand is reported with its session, and a rebuild restores it.
#[test]
fn deleted_row_is_reported_and_rebuilt() {
    let site = Site::new("sqlite");
    let (main, _) = site.send("hello");
    let raw = rusqlite::Connection::open(site.path().join("data.db")).unwrap();
    raw.execute("DELETE FROM logs WHERE session = ?", [&main]).unwrap();
    raw.close().unwrap();
    site.fails(&["rebuild", "--tenant", "nobody"], 3, "nobody");
    let ran = site.run(&["verify"]);
    assert!(ran.code == 5 && ran.err.contains(&main), "{ran:?}");
    site.ok(&["rebuild"]);
    site.ok(&["verify"]);
    site.ok(&["session", "fork", &main]);
}
