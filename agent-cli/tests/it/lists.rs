//! Lists for people: short ids and numbers, ages, sizes, local times, and sessions that are named by what a list shows.

use agent_core::clock::Effects;
use agent_core::commit::Commit;
use agent_core::event::NewEvent;
use agent_core::model::{Actor, Patch, Role, Title};
use agent_core::session::NewSession;
use agent_core::{Timestamp, WorkspaceId};
use serde_json::json;

use crate::common::Chat;
use crate::site::{KINDS, NOBODY, Ran, Site};

const HOUR: i64 = 3_600_000_000;

fn now() -> Timestamp {
    Effects::default().now()
}

/// Creates a session whose last activity was then, with a message of each side. Returns its id.
async fn at(site: &Site, then: Timestamp, title: &str, said: &str) -> String {
    let effects = Effects::seeded(then.as_micros().unsigned_abs(), then);
    let storage = site.open().await.with_effects(effects.clone());
    let mut new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
    if !title.is_empty() {
        new = new.with_patch(&Patch::new().with_title(Title::by_user(title)));
    }
    let session = storage.sessions.create(new).await.unwrap();
    let events = vec![NewEvent::user_message(said), NewEvent::agent_message(format!("re: {said}"))];
    storage.sessions.append(session.id, session.head, events).await.unwrap();
    storage.close().await.unwrap();
    session.id.to_string()
}

/// Cells of each line of a table; columns are two spaces apart at least.
fn cells(table: &str) -> Vec<Vec<&str>> {
    table
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect()
}

/// A list has what people look for: a number, the end of the id, the age, the size, the title and the last message, all of it in a
/// pipe. `--ids` shows whole ids. A number is shown only where other commands understand the same by it.
#[tokio::test]
async fn a_list_shows_what_people_look_for() {
    for kind in KINDS {
        let site = Site::new(kind);
        let long = "and so on ".repeat(12);
        let old = at(&site, now().plus_micros(-5 * 24 * HOUR - HOUR), long.trim(), &long).await;
        let new = at(&site, now().plus_micros(-2 * HOUR - HOUR / 2), "Oslo", "by train?").await;
        let table = site.ok(&["session", "list"]);
        let rows = cells(&table);
        assert_eq!(rows[0], ["#", "ID", "USED", "STATE", "MESSAGES", "SIZE", "TITLE", "LAST MESSAGE"]);
        let size = |row: usize| rows[row][5].ends_with(" B");
        assert!(size(1) && size(2), "{table}");
        assert_eq!(
            [&rows[1][..5], &rows[1][6..]].concat(),
            ["1", &new[28..], "2 h", "queued", "2", "Oslo", "re: by train?"]
        );
        assert_eq!(rows[2][..5], ["2", &old[28..], "5 d", "queued", "2"]);
        assert_eq!(rows[2][6], long.trim(), "nothing is cut in a pipe");
        assert!(rows[2][7].starts_with("re: and so on"), "{table}");

        let ids = site.ok(&["session", "list", "--ids"]);
        let ids = cells(&ids);
        assert_eq!(
            (ids[0][..3].to_vec(), ids[1][1], ids[1][2]),
            (vec!["#", "ID", "WORKSPACE"], &*new, "default")
        );
        for filter in
            [&["--state", "queued"][..], &["--since", "9d"], &["--all"], &["--workspace", "default"]]
        {
            let filtered = site.ok(&[&["session", "list"], filter].concat());
            assert_eq!(cells(&filtered)[0][0], "ID", "{filter:?}: {filtered}");
        }
        site.ok(&["index"]);
        assert!(!site.ok(&["session", "list"]).contains("(search index)"));
        let all = site.ok(&["session", "list", "--all"]);
        assert!(
            cells(&all).iter().any(|row| row.contains(&"archived") && row.contains(&"(search index)")),
            "{all}"
        );
        let json = site.json(&["session", "list"]);
        assert_eq!((&json["items"][0]["id"], &json["total"]), (&json!(new), &json!(2)));
        let at: Timestamp = json["items"][1]["last_active_at"].as_str().unwrap().parse().unwrap();
        assert!(at < now().plus_micros(-5 * 24 * HOUR));
    }
}

/// On a terminal each line fits, and the last message has a place beside the longest title.
#[tokio::test]
async fn a_list_fits_the_terminal() {
    let site = Site::new("files");
    at(&site, now(), &"title ".repeat(15), "안녕하세요 ".repeat(20).trim()).await;
    let folder = site.path().join("data");
    for (columns, width) in [("80", 80), ("100", 100)] {
        let mut chat = Chat::on_columns(&folder, &["session", "list"], columns);
        assert_eq!(chat.finish(), 0, "{}", chat.err.text());
        let shown = chat.out.text();
        let line = shown.lines().nth(1).unwrap();
        // A syllable takes two columns.
        let columns: usize = line.chars().map(|c| if ('가'..='힣').contains(&c) { 2 } else { 1 }).sum();
        assert!(columns == width || columns + 1 == width, "{columns} of {width}: {shown}");
        assert!(line.ends_with('…') && line.contains("tit") && line.contains("…  re: "), "{shown}");
    }
}

/// All commands take a session by its number in the list, by the beginning and by the end of its id. What is not there, or there twice, is
/// named, and nothing is done.
#[tokio::test]
async fn sessions_are_named_by_number_and_by_parts_of_ids() {
    for kind in KINDS {
        let site = Site::new(kind);
        let start = now().plus_micros(-40 * 24 * HOUR);
        let old = at(&site, start, "the older", "garden").await;
        let new = at(&site, start.plus_micros(30 * 24 * HOUR), "the newer", "trip").await;
        for name in ["1", "#1", &new[28..], &new[32..], &new[..13], &new.to_uppercase()[26..], &new] {
            assert_eq!(site.json(&["session", "show", name])["id"], json!(new), "{kind}: {name}");
        }
        assert_eq!(site.json(&["session", "show", "2"])["id"], json!(old));
        for words in [
            &["session", "export", "2"][..],
            &["session", "files", "2"],
            &["session", "pin", "2", "--why", "kept"],
            &["search", "garden", "--in", "2", "--workspace", "default"],
            &["session", "fork", &old[28..]],
        ] {
            site.ok(words);
        }
        let fork = site.json(&["session", "list"])["items"][0]["id"].as_str().unwrap().to_owned();
        assert!(site.ok(&["session", "show", "1"]).contains(&format!("parent       {old}\n")), "{kind}");
        site.ok(&["session", "delete", &fork, "--purge"]);

        site.fails(&["session", "show", "3"], 3, "there is no session 3 in the list, which has 2");
        site.fails(
            &["session", "show", "fffffff"],
            3,
            "no session has an id that begins or ends with fffffff",
        );
        for unclear in ["0", "#", "abc", "#4711", "no-hex", &NOBODY.replace('-', "0")] {
            site.fails(&["session", "show", unclear], 2, "at least 4 characters");
        }
        site.fails(&["session", "show", NOBODY], 3, "does not exist");
        let of_nobody = "there is no session 1 in the list, which has 0";
        site.fails(&["session", "show", "1", "--owner", "nobody"], 3, of_nobody);
    }
}

/// An id of several sessions is refused with those that are meant, at most five of them; a deletion too.
#[tokio::test]
async fn parts_of_several_ids_are_refused() {
    let site = Site::new("sqlite");
    let mut ids = Vec::new();
    for minute in 0..7 {
        // The first eight characters of an id are a time of 65 seconds.
        let then = Timestamp::from_micros(1_771_151_400_000_000 + minute * 1000);
        ids.push(at(&site, then, &format!("title {minute}"), "hello").await);
    }
    let beginning = &ids[0][..8];
    assert!(ids.iter().all(|id| id.starts_with(beginning)), "{ids:?}");
    for words in [&["session", "show", beginning][..], &["session", "delete", beginning, "--yes"]] {
        let ran = site.run(words);
        assert_eq!(ran.code, 1, "{ran:?}");
        let named =
            ids.iter().zip(0..).filter(|(id, at)| ran.err.contains(&format!("{id}  title {at}"))).count();
        assert!(named == 5 && ran.err.trim_end().ends_with('…'), "{ran:?}");
    }
    assert_eq!(site.json(&["session", "list"])["total"], 7);
    site.fails(&["session", "show", beginning], 1, "the ids of several sessions begin or end with");
}

/// A part of an id is looked for among the newest thousand sessions, and what is not looked at is said.
#[tokio::test]
async fn parts_of_ids_are_looked_for_in_bounds() {
    let site = Site::new("sqlite");
    let start = Timestamp::from_micros(1_771_151_400_000_000);
    let oldest = at(&site, start, "the oldest", "hello").await;
    let effects = Effects::seeded(7, start.plus_micros(24 * HOUR));
    let storage = site.open().await.with_effects(effects.clone());
    for _ in 0..1000 {
        storage
            .sessions
            .create(NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT))
            .await
            .unwrap();
    }
    storage.close().await.unwrap();
    let text = format!(
        "of the 1000 most recently used sessions none has an id that begins or ends with {}",
        &oldest[28..]
    );
    site.fails(&["session", "show", &oldest[28..]], 3, &text);
    site.ok(&["session", "show", &oldest]);
}

/// What removes data says which session it took, and asks; a whole id is taken without a question about which one.
#[tokio::test]
async fn deletions_by_number_ask() {
    for kind in KINDS {
        let site = Site::new(kind);
        let old = at(&site, now().plus_micros(-9 * 24 * HOUR), "the garden", "hello").await;
        let new = at(&site, now().plus_micros(-HOUR), "", "a trip to Oslo").await;
        site.fails(
            &["session", "delete", "1"],
            2,
            &format!("the deletion of session {new} (a trip to Oslo) cannot be undone"),
        );
        site.fails(
            &["session", "erase", "2"],
            2,
            &format!("the erasure of session {old} (the garden) removes data"),
        );
        assert_eq!(site.json(&["session", "list"])["total"], 2, "nothing was done");
        for command in ["delete", "erase"] {
            site.fails(&["session", command, "1", "--yes"], 2, "with --yes give the id");
        }
        assert_eq!(site.json(&["session", "list"])["total"], 2, "nothing was done");
        let ran = site.run(&["session", "delete", &new[28..], "--yes"]);
        assert!(ran.code == 0 && ran.err.contains(&format!("(session {new} (a trip to Oslo))")), "{ran:?}");
        let ran = site.run(&["session", "erase", &new[28..], "--yes"]);
        assert!(ran.code == 0 && ran.out.contains(&new), "a deleted session is found: {ran:?}");
        assert_eq!(site.json(&["session", "erase", &old, "--yes"])["session"], json!(old));
    }
}

/// A conversation opens the session with this number, and switches by number and by parts of ids.
#[test]
fn conversations_are_opened_by_number() {
    for kind in KINDS {
        let site = Site::new(kind);
        site.send("in main");
        let (second, _) = site.send("/new second\nin second");
        let ran = site.typed(&["--session", "2"], "/history\n/switch 9\n/switch zz\n");
        assert!(ran.code == 1 && ran.out.contains("laptop: in main\n"), "{ran:?}");
        assert!(
            ran.err.contains("no session 9 in the list, which has 2") && ran.err.contains("at least 4"),
            "{ran:?}"
        );
        let ran: Ran = site.typed(&["--session", "1"], &format!("/switch {}\n/history\n", &second[28..]));
        assert!(ran.code == 0 && ran.out.contains("laptop: in second\n"), "{ran:?}");
        let ran = site.typed(&["--session", "abcdef0123"], "hello\n");
        assert!(ran.code != 0 && ran.err.contains("no session has an id"), "{ran:?}");
    }
}

/// Workspaces are taken by the beginning and the end of their ids.
#[test]
fn workspaces_are_named_by_parts_of_ids() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, workspace) = site.send("hello");
        let end = &workspace[28..];
        assert_eq!(site.json(&["workspace", "show", end])["id"], json!(workspace));
        assert_eq!(site.json(&["session", "list", "--workspace", end])["items"][0]["id"], json!(main));
        assert_eq!(site.json(&["search", "hello", "--workspace", end])["hits"][0]["session"], json!(main));
        site.ok(&["workspace", "set-main", end, "1"]);
        site.fails(
            &["workspace", "show", "fffffff"],
            3,
            "no workspace has an id that begins or ends with fffffff",
        );
        site.fails(&["workspace", "show", "1"], 2, "at least 4 characters");
        site.fails(&["workspace", "delete", end], 2, &format!("deleting workspace {workspace} removes data"));
        assert!(site.ok(&["workspace", "delete", end, "--yes"]).contains(&workspace));
    }
}

/// Who begins a conversation with the program is its creator, also after an edit, which puts another session in its place.
#[test]
fn who_begins_a_conversation_is_its_creator() {
    for kind in KINDS {
        let site = Site::new(kind);
        site.send("hello\n/edit hello again\n/new second\nin second");
        let listed = site.json(&["session", "list", "--creator", "user:laptop"]);
        assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
        let fork = site.ok(&["session", "fork", listed["items"][0]["id"].as_str().unwrap()]);
        assert_eq!(site.typed(&["--session", fork.trim()], "/fork\n").code, 0);
        let all = site.json(&["session", "list", "--all"]);
        assert_eq!(all["items"].as_array().unwrap().len(), 5, "with what was edited away: {all}");
        assert!(all["items"].as_array().unwrap().iter().all(|it| it["creator"] == "user:laptop"), "{all}");
    }
}

/// A list is narrowed by the time of the last use: ages, days and local times, on all pages, and by the creator.
#[tokio::test]
async fn lists_are_filtered_by_time_and_creator() {
    for kind in KINDS {
        let site = Site::new(kind);
        let noon: Timestamp = "2026-02-15T12:00:00Z".parse().unwrap();
        let mut ids = Vec::new();
        for day in 0..6 {
            ids.push(at(&site, noon.plus_micros(day * 24 * HOUR), "", "hello").await);
        }
        let recent = at(&site, now().plus_micros(-3 * HOUR), "", "hello").await;
        let listed = |filter: &[&str]| -> Vec<String> {
            let (mut found, mut after) = (Vec::new(), None::<String>);
            loop {
                let next: Vec<_> = after.iter().flat_map(|after| ["--after", after]).collect();
                let page = site.json(&[&["session", "list", "--limit", "2"], filter, &next].concat());
                found.extend(
                    page["items"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()),
                );
                match page["next"].as_str() {
                    Some(next) => after = Some(next.to_owned()),
                    None => return found,
                }
            }
        };
        let of = |days: std::ops::RangeInclusive<usize>| ids[days].iter().rev().cloned().collect::<Vec<_>>();
        assert_eq!(listed(&["--since", "2026-02-17", "--until", "2026-02-19"]), of(2..=4), "{kind}");
        assert_eq!(listed(&["--until", "2026-02-16T12:00"]), of(0..=0), "before it");
        assert_eq!(listed(&["--until", "2026-02-16T12:01"]), of(0..=1));
        assert_eq!(listed(&["--until", "2026-02-16T14:00:00+02:00"]), of(0..=0));
        assert_eq!(listed(&["--since", "2h"]), [""; 0]);
        assert_eq!(listed(&["--since", "240min"]), [recent.as_str()]);
        assert_eq!(listed(&["--since", "2026-02-19", "--until", "2026-03-01"]), of(4..=5));
        let page = site.json(&["session", "list", "--since", "2026-02-19", "--limit", "4"]);
        assert_eq!(
            (&page["next"], &page["total"]),
            (&json!(null), &json!(null)),
            "older pages are not offered"
        );

        // The page after one of an age has the same end.
        let ran = site.run(&["session", "list", "--until", "1h", "--limit", "3"]);
        let (_, again) = ran.err.split_once("--until ").unwrap();
        let (until, after) = again.split_once(" --after '").unwrap();
        let after = after.split_once('\'').unwrap().0;
        let next = site.json(&["session", "list", "--until", until, "--after", after]);
        assert_eq!(next["items"].as_array().unwrap().len(), 4, "{ran:?}");

        // One with an age of its own is of any time for a sweep, but not for a list.
        let storage = site.open().await;
        let id = recent.parse().unwrap();
        let head = storage.sessions.load(id).await.unwrap().head;
        let patch = Patch::new().with_label("retention.inactive_after_s", "60");
        storage.sessions.update(id, head, patch).await.unwrap();
        let mia = Actor::named(Role::User, "mia").unwrap();
        let effects = Effects::default();
        let new = NewSession::new(effects.new_session_id(), WorkspaceId::DEFAULT);
        let hers = storage.sessions.commit(Commit::create(&effects, new).with_actor(mia)).await.unwrap();
        let hers = hers.session.id;
        storage.close().await.unwrap();
        assert_eq!(listed(&["--until", "2026-02-16"]), of(0..=1), "{kind}");
        assert_eq!(listed(&["--creator", "user:mia"]), [hers.to_string()]);
        for wrong in ["yesterday", "2026-13-01", "-2h", "3"] {
            site.fails(&["session", "list", &format!("--since={wrong}")], 2, "use a day (2026-11-28)");
        }
        site.fails(&["session", "list", "--since", "2h", "--total"], 2, "--total");
        site.fails(&["session", "list", "--creator", "mia"], 2, "none of user, agent, system");
    }
}

/// People read local times with their offset, and give them; one of the other half of the year has its own offset. JSON has UTC.
#[tokio::test]
async fn people_read_local_times_and_programs_utc() {
    let site = Site::new("sqlite");
    let at_utc = |text: &str| text.parse::<Timestamp>().unwrap();
    let winter = at(&site, at_utc("2026-01-15T23:30:00Z"), "", "in winter").await;
    let summer = at(&site, at_utc("2026-07-15T22:30:00Z"), "", "in summer").await;
    let zone = |zone: &str, args: &[&str]| -> Ran {
        let ran = Ran::from(site.command(args).env("TZ", zone).output().unwrap());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    };
    let central = "CET-1CEST,M3.5.0,M10.5.0/3";
    let table = zone(central, &["search", "in"]).out;
    assert!(table.starts_with("TIME (+01:00)") || table.starts_with("TIME (+02:00)"), "{table}");
    assert!(table.contains("\n2026-07-16 00:30") && table.contains("\n2026-01-16 00:30"), "{table}");
    let own = [" 00:30 +01:00  ", " 00:30 +02:00  "].map(|own| table.matches(own).count());
    assert_eq!(own.iter().sum::<usize>(), 2, "those of the other half of the year: {table}");
    let shown = zone(central, &["session", "show", &winter]).out;
    assert!(shown.contains("last used    2026-01-16 00:30:00 +01:00\n"), "{shown}");
    let shown = zone("IST-5:30", &["session", "show", &summer]).out;
    assert!(shown.contains("last used    2026-07-16 04:00:00 +05:30\n"), "{shown}");
    assert!(site.ok(&["session", "show", &summer]).contains("last used    2026-07-15 22:30:00 UTC\n"));
    assert!(zone("IST-5:30", &["workspace", "list"]).out.contains("LAST USED (+05:30)  CREATED"));

    let list = |filter: &[&str]| {
        let ran = zone(central, &[&["session", "list", "--json"], filter].concat());
        let list: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(list(&["--since", "2026-01-16", "--until", "2026-01-16"]), [winter.as_str()], "a local day");
    assert_eq!(list(&["--since", "2026-01-16T00:31", "--until", "2026-07-16T00:30"]), [""; 0]);
    let json = zone(central, &["session", "show", &summer, "--json"]).out;
    assert!(json.contains("\"last_active_at\":\"2026-07-15T22:30:00."), "{json}");
}
