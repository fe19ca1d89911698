//! `chat session`.

use std::fs;
use std::process::Stdio;

use agent_core::SessionStoreExt;
use agent_core::clock::Effects;
use agent_core::event::NewEvent;
use agent_core::json::RawJson;
use agent_core::model::Patch;
use serde_json::json;

use crate::site::{KINDS, NOBODY, Ran, Site};

/// Sessions are listed with filters, totals that respect them, and pages; shown with what was said; deleted.
#[test]
fn sessions_from_the_command_line() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.say("안녕 \u{1b}[31m");
        let fork = site.ok(&["session", "fork", &main]);
        let fork = fork.trim();
        let list = site.json(&["session", "list", "--workspace", &workspace, "--limit", "1"]);
        assert_eq!((&list["total"], list["items"].as_array().unwrap().len()), (&json!(2), 1));
        let next = list["next"].as_str().unwrap();
        let rest =
            site.json(&["session", "list", "--workspace", &workspace, "--limit", "1", "--after", next]);
        assert_eq!(rest["next"], json!(null));
        assert_ne!(rest["items"][0]["id"], list["items"][0]["id"]);
        let table = site.ok(&["session", "list"]);
        assert!(table.starts_with("ID  ") && table.contains(&main) && table.contains("idle"), "{table}");

        let shown = site.json(&["session", "show", &main, "--turns", "1"]);
        assert_eq!((&shown["id"], shown["turns"].as_array().unwrap().len()), (&json!(main), 1));
        assert_eq!(shown["turns"][0]["type"], "agent.message");
        let text = site.ok(&["session", "show", &main]);
        assert!(text.contains("laptop: 안녕 \\u{1b}[31m\nagent: 안녕"), "{text}");
        assert!(text.contains("messages     2\n") && !text.contains('\u{1b}'), "{text}");

        assert!(site.ok(&["session", "delete", fork]).contains("its events stay until it is purged"));
        let deleted = site.json(&["session", "list", "--state", "deleted"]);
        assert_eq!((&deleted["total"], &deleted["items"][0]["id"]), (&json!(1), &json!(fork)));
        assert_eq!(site.json(&["session", "list"])["total"], 1);
        assert_eq!(site.json(&["session", "list", "--all"])["total"], 3, "the audit too");
        assert_eq!(site.json(&["session", "delete", &main, "--purge"])["session"], json!(main));
        site.fails(&["session", "fork", &main], 3, "cannot be forked");
        site.fails(&["session", "delete", NOBODY], 3, "does not exist");
        site.fails(&["session", "show", NOBODY], 3, "does not exist");
        site.fails(&["session", "list", "--state", "asleep"], 2, "the states are");
        site.fails(&["session", "list", "--label", "x"], 2, "KEY=VALUE");
        site.fails(&["session", "show", "x"], 2, "--help");
    }
}

/// A session is exported, imported elsewhere, and the same to the byte; what was there is not overwritten.
#[test]
fn export_and_import_from_the_command_line() {
    let (here, there) = (Site::new("files"), Site::new("sqlite"));
    let (main, _) = here.say("hello");
    let file = here.path().join("session.json");
    let name = file.to_str().unwrap();
    assert!(here.ok(&["session", "export", &main, "--output", name]).contains(name));
    let document = fs::read_to_string(&file).unwrap();
    assert_eq!(here.ok(&["session", "export", &main]), document, "standard output gets the same");
    here.fails(&["session", "export", &main, "--output", name], 4, name);
    assert_eq!(fs::read_to_string(&file).unwrap(), document);

    assert_eq!(there.ok(&["session", "import", name]).trim(), main);
    assert_eq!(there.ok(&["session", "import", name]).trim(), main, "again");
    assert_eq!(there.ok(&["session", "export", &main]), document);
    let mut import = there.command(&["session", "import", "-"]);
    import.stdin(Stdio::from(fs::File::open(&file).unwrap()));
    assert_eq!(Ran::from(import.output().unwrap()).out.trim(), main);

    let fork = here.ok(&["session", "fork", &main, "--at", "2"]);
    let fork = here.ok(&["session", "export", fork.trim()]);
    let other = here.path().join("fork.json");
    fs::write(&other, fork).unwrap();
    let empty = Site::new("files");
    empty.fails(&["session", "import", other.to_str().unwrap()], 3, "import its own document first");
    fs::write(&file, document.replace("hello", "hullo")).unwrap();
    empty.fails(&["session", "import", name], 5, "checksum does not fit");
    fs::write(&file, document.replace("\"format\":1", "\"format\":9")).unwrap();
    empty.fails(&["session", "import", name], 1, "format 9");
    empty.fails(&["session", "import", "nowhere.json"], 3, "nowhere.json");
    empty.fails(&["session", "list", "--all"], 3, "holds no store");
    let fork = here.ok(&["session", "fork", &main]);
    let fork = fork.trim();
    fs::write(&other, here.ok(&["session", "export", fork])).unwrap();
    assert_eq!(empty.ok(&["session", "import", other.to_str().unwrap()]).trim(), fork);
    assert_eq!(empty.ok(&["session", "export", fork]), fs::read_to_string(&other).unwrap());
    here.fails(&["session", "fork", &main, "--at", "99"], 1, "cannot be forked at 99");
    here.fails(&["session", "export", NOBODY], 3, "does not exist");
}

/// JSON that a common reader does not take, in a sound session, is shown as it is stored.
#[tokio::test]
async fn odd_json_is_shown_as_it_is() {
    let deep = "[".repeat(90) + &"]".repeat(90);
    let odd = [("half", "\"\\ud800\"".to_owned()), ("large", "1e999999999".to_owned()), ("deep", deep)];
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.say("hello");
        let store = site.open().await;
        let (id, effects) = (main.parse().unwrap(), Effects::default());
        let mut now = store.sessions.load(id).await.unwrap();
        for (name, json) in &odd {
            let json = RawJson::parse(json).unwrap();
            let event = NewEvent::agent_message("odd").with_extra(*name, json.clone());
            now = store.sessions.append(&effects, id, now.head, vec![event]).await.unwrap().session;
            let patch = Patch::new().metadata(*name, json);
            now = store.sessions.update(&effects, id, now.head, patch).await.unwrap().session;
        }
        store.close().await.unwrap();
        for args in [
            vec!["session", "show", &main, "--turns", "5", "--json"],
            vec!["session", "list", "--json"],
            vec!["session", "fork", &main, "--json"],
            vec!["workspace", "show", &workspace, "--json"],
        ] {
            let shown = site.ok(&args);
            if args[0] == "session" {
                for (name, json) in &odd {
                    assert!(
                        shown.contains(&format!("\"{name}\":{json}")),
                        "{kind}: {args:?}: {name}: {shown}"
                    );
                }
            }
        }
        let exported = site.ok(&["session", "export", &main]);
        assert!(odd.iter().all(|(_, json)| exported.contains(json.as_str())), "{kind}: {exported}");
    }
}
