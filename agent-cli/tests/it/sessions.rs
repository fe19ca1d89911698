//! `chat session`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use agent_core::event::{AgentPart, EventPayload, Media, Message, NewEvent, Part, ToolOutcome, ToolResult};
use agent_core::json::RawJson;
use agent_core::model::{CallId, Patch};
use serde_json::json;

use crate::site::{KINDS, NOBODY, Ran, Site};

/// Sessions are listed with filters, totals and pages, shown with their messages, and deleted.
#[test]
fn sessions_are_listed_filtered_shown_and_deleted() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("안녕 \u{1b}[31m");
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
        assert!(
            table.starts_with("#  ID  ") && table.contains(&main[28..]) && table.contains("idle"),
            "{table}"
        );

        let shown = site.json(&["session", "show", &main, "--turns", "1"]);
        assert_eq!((&shown["id"], shown["turns"].as_array().unwrap().len()), (&json!(main), 1));
        assert_eq!(shown["turns"][0]["type"], "agent.message");
        let text = site.ok(&["session", "show", &main]);
        assert!(text.contains("laptop: 안녕 \\u{1b}[31m\nagent: 안녕"), "{text}");
        assert!(text.contains("messages     2\n") && !text.contains('\u{1b}'), "{text}");

        assert!(site.ok(&["session", "delete", fork]).contains("to remove its events, run"));
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

/// Whether any file below a folder holds the text.
fn holds(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().map(Result::unwrap).any(|entry| match entry.path() {
        path if path.is_dir() => holds(&path, text),
        path => fs::read(&path).unwrap().windows(text.len()).any(|part| part == text.as_bytes()),
    })
}

/// A session is erased with every byte of it, after a question; what its forks read is named, and goes with them.
#[test]
fn sessions_are_erased_after_a_question() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, _) = site.send("my address is xyzzy-4711");
        let fork = site.ok(&["session", "fork", &main]);
        let fork = fork.trim();
        site.fails(&["session", "erase", &main], 2, "add --yes");
        site.fails(&["session", "erase", NOBODY, "--yes"], 3, "does not exist");
        assert!(site.ok(&["session", "show", &main]).contains("xyzzy-4711"), "nothing was done");

        let ran = site.run(&["session", "erase", &main, "--yes"]);
        assert!(ran.code == 5 && ran.out.starts_with(&format!("erased session {main}: ")), "{ran:?}");
        assert!(ran.err.contains(fork) && ran.err.contains("erase"), "{ran:?}");
        assert!(holds(site.path(), "xyzzy-4711"), "the fork reads it");
        assert!(site.ok(&["session", "show", fork]).contains("xyzzy-4711"));
        let erased = site.json(&["session", "erase", fork, "--yes"]);
        assert_eq!((&erased["session"], &erased["needed_by"]), (&json!(fork), &json!(null)));
        let erased = site.ok(&["session", "erase", &main, "--yes"]);
        assert!(erased.starts_with(&format!("erased session {main}: removed ")), "{erased}");
        assert_eq!(site.json(&["session", "erase", &main, "--yes"])["purged_events"], 0, "again");
        assert!(!holds(site.path(), "xyzzy-4711"), "{kind}: no byte of it is left");
        let left = site.json(&["session", "show", &main]);
        assert_eq!((&left["status"]["state"], left.get("attributes")), (&json!("deleted"), None));
        let table = site.ok(&["audit"]);
        assert!(table.contains(&main) && table.contains("purge"), "{table}");
        let next = site.send("hello again").0;
        assert_ne!(next, main, "the workspace has a new main session");
    }
}

/// While a chat answers in a session, its erasure is refused with the name of the chat; when it is done, it is erased.
#[test]
fn a_session_that_is_run_is_not_erased() {
    let site = Site::new("files");
    let (main, _) = site.send("hello");
    let mut chat = site.command(&["--lease-ttl-ms", "3000"]);
    let mut chat = chat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = chat.stdin.take().unwrap();
    input.write_all(b"!sleep 8\n").unwrap();
    let running = || site.json(&["session", "show", &main])["status"]["state"] == "running";
    assert!((0..100).any(|_| running()), "it answers");
    site.fails(&["session", "erase", &main, "--yes"], 4, "is run by chat on laptop");
    drop(input);
    let ran = Ran::from(chat.wait_with_output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(site.ok(&["session", "show", &main]).contains("hello"), "it was left alone");
    assert!(site.ok(&["session", "erase", &main, "--yes"]).starts_with("erased session"));
}

/// A session is exported and imported elsewhere, identical to the byte; existing files and sessions are not
/// overwritten.
#[test]
fn export_and_import_round_trip_a_session() {
    let (here, there) = (Site::new("files"), Site::new("sqlite"));
    let (main, _) = here.send("hello");
    let file = here.path().join("session.json");
    let name = file.to_str().unwrap();
    assert!(here.ok(&["session", "export", &main, "--output", name]).contains(name));
    let document = fs::read_to_string(&file).unwrap();
    assert_eq!(here.ok(&["session", "export", &main]), document, "standard output gets the same");
    here.fails(&["session", "export", &main, "--output", name], 4, name);
    assert_eq!(fs::read_to_string(&file).unwrap(), document);

    let new = there.run(&["session", "import", name]);
    assert_eq!((new.code, new.out.trim()), (0, main.as_str()), "{new:?}");
    assert!(new.err.starts_with("(new session; 4 events written)\n"), "{new:?}");
    let again = there.run(&["session", "import", name]);
    assert_eq!((again.code, again.out.trim()), (0, main.as_str()), "{again:?}");
    assert!(
        again.err.starts_with("(the session was already in the store; nothing was written)\n"),
        "{again:?}"
    );
    assert_eq!(there.json(&["session", "import", name])["outcome"], "present");
    assert_eq!(there.ok(&["session", "export", &main]), document);
    let mut import = there.command(&["session", "import", "-"]);
    import.stdin(Stdio::from(fs::File::open(&file).unwrap()));
    assert_eq!(Ran::from(import.output().unwrap()).out.trim(), main);

    here.fails(&["session", "fork", &main, "--at", "2"], 1, "inside a commit; fork at 1 or 3");
    let fork = here.ok(&["session", "fork", &main, "--at", "3"]);
    let fork = here.ok(&["session", "export", fork.trim()]);
    let other = here.path().join("fork.json");
    fs::write(&other, fork).unwrap();
    let empty = Site::new("files");
    empty.fails(
        &["session", "import", other.to_str().unwrap()],
        3,
        "import that session's own document first",
    );
    fs::write(&file, document.replace("hello", "hullo")).unwrap();
    empty.fails(&["session", "import", name], 5, "its checksum does not match");
    for format in ["1", "2", "3", "9"] {
        fs::write(&file, document.replace("\"format\":5", &format!("\"format\":{format}"))).unwrap();
        empty.fails(&["session", "import", name], 1, &format!("of format {format}, "));
    }
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

/// JSON that common parsers refuse is shown as it is stored.
#[tokio::test]
async fn unusual_json_is_shown_as_stored() {
    let deep = "[".repeat(90) + &"]".repeat(90);
    let odd = [("half", "\"\\ud800\"".to_owned()), ("large", "1e999999999".to_owned()), ("deep", deep)];
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("hello");
        let store = site.open().await;
        let id = main.parse().unwrap();
        let mut now = store.sessions.load(id).await.unwrap();
        for (name, json) in &odd {
            let json = RawJson::parse(json).unwrap();
            let event = NewEvent::agent_message("odd").with_extra(*name, json.clone());
            now = store.sessions.append(id, now.head, vec![event]).await.unwrap().session;
            let patch = Patch::new().with_metadata(*name, json);
            now = store.sessions.update(id, now.head, patch).await.unwrap().session;
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

/// A message with an image is shown with one line for the image, and so are the items of an answer.
#[tokio::test]
async fn media_are_shown_as_one_line() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, _) = site.send("hello");
        let store = site.open().await;
        let id = main.parse().unwrap();
        let head = store.sessions.load(id).await.unwrap().head;
        let cat = || Part::Image(Media::inline("image/png", vec![7; 48_213]).with_name("cat.png"));
        let call: CallId = "c".parse().unwrap();
        let result =
            ToolResult::new(call.clone(), ToolOutcome::Ok, RawJson::constant("\"ok\"")).with_part(cat());
        let events = vec![
            NewEvent::tool_use(call, "zoom", RawJson::empty_object()),
            NewEvent::of(&EventPayload::AgentToolResult(result)),
            NewEvent::of(&EventPayload::AgentPart(AgentPart::new(Part::refusal("I name no people.")))),
            NewEvent::of(&EventPayload::AgentMessage(Message::new("A tabby.").with_part(cat()))),
        ];
        store.sessions.append(id, head, events).await.unwrap();
        store.close().await.unwrap();
        let shown = site.ok(&["session", "show", &main, "--turns", "9"]);
        let line = "[image cat.png, image/png, 47 KiB]";
        let end =
            format!("  [zoom]\n  [-> \"ok\"]\n  {line}\nagent: I name no people.\nagent: A tabby.\n{line}\n");
        assert!(shown.ends_with(&end), "{kind}: {shown}");
    }
}
