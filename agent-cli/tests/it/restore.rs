//! Lost and damaged files: they are named, with one remedy, which restores them.

use std::fs;
use std::path::PathBuf;

use agent_core::BlobName;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::files::{large, stock};
use crate::site::{KINDS, NOBODY, Ran, Site};

/// Damage of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Lost,
    /// Found without reading the bytes.
    Known,
    /// Found only by reading the bytes.
    Hidden,
}

/// Damages the blob of the large file of a session.
fn damage(site: &Site, kind: &str, workspace: &str, session: &str, how: Damage) {
    let name = BlobName::of(&large());
    if kind == "files" {
        let folder = format!("data/workspaces/{workspace}/sessions/{session}/blobs");
        let path: PathBuf = site.path().join(folder).join(name.to_string());
        match how {
            Damage::Lost => fs::remove_file(path).unwrap(),
            Damage::Known => fs::write(path, "").unwrap(),
            Damage::Hidden => {
                let mut bytes = fs::read(&path).unwrap();
                bytes[300_000] ^= 1;
                fs::write(path, bytes).unwrap();
            }
        }
        return;
    }
    let blob = format!("(SELECT blob FROM blobs WHERE name = '{name}')");
    let file = Connection::open(site.path().join("data.db")).unwrap();
    let sql = match how {
        Damage::Lost => {
            format!("DELETE FROM blob_chunks WHERE blob = {blob}; DELETE FROM blobs WHERE name = '{name}'")
        }
        Damage::Known => format!("UPDATE blobs SET crc = crc + 1 WHERE name = '{name}'"),
        Damage::Hidden => format!("UPDATE blob_chunks SET crc = crc + 1 WHERE blob = {blob} AND n = 1"),
    };
    file.execute_batch(&sql).unwrap();
}

/// Checks that a lost or damaged file is named with one remedy, the command, and none for programmers.
#[track_caller]
fn names_the_command(what: &str, session: &str, ran: &Ran, code: i32) {
    assert_eq!(ran.code, code, "{what}: {ran:?}");
    let lines: Vec<_> = ran.err.lines().chain(ran.out.lines()).collect();
    let command = format!("`chat session restore-file {session} PATH`");
    assert!(lines.iter().any(|line| line.contains(&command)), "{what}: {ran:?}");
    for line in lines {
        assert!(line.matches("restore-file").count() <= 1, "{what}: {ran:?}");
        for library in ["put it", "put the", "`verify`", "SESSION"] {
            assert!(!line.contains(library), "{what}: {library}: {ran:?}");
        }
    }
}

/// A lost or damaged file is marked in lists; every command and conversation that needs it names the command that restores
/// it, which takes the right bytes only.
#[tokio::test]
async fn broken_files_are_named_and_restored() {
    for (kind, how) in
        KINDS.iter().flat_map(|kind| [Damage::Lost, Damage::Known, Damage::Hidden].map(|how| (*kind, how)))
    {
        let what = format!("{kind}, {how:?}");
        let site = Site::new(kind);
        let (id, workspace) = site.send("hello");
        let storage = site.open().await;
        stock(&storage, id.parse().unwrap()).await;
        storage.close().await.unwrap();
        drop(storage);
        fs::write(site.path().join("copy"), large()).unwrap();
        fs::write(site.path().join("other"), &large()[1..]).unwrap();
        let list = site.json(&["session", "files", &id]);
        let states = |list: &Value| -> Vec<_> {
            list["items"].as_array().unwrap().iter().map(|item| item["state"].clone()).collect()
        };
        assert_eq!(states(&list), ["stored", "stored", "stored"], "{what}");
        let number = list["items"][1]["file"].as_str().unwrap().to_owned();

        damage(&site, kind, &workspace, &id, how);
        let state = match how {
            Damage::Lost => "lost",
            Damage::Known => "damaged",
            Damage::Hidden => "stored",
        };
        let ran = site.run(&["session", "files", &id, "--json"]);
        let list: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(states(&list), ["stored", state, "stored"], "{what}");
        let output = site.typed(&[], "/files\n");
        if how != Damage::Hidden {
            names_the_command(&what, &id, &site.run(&["session", "files", &id]), 5);
            names_the_command(&what, &id, &output, 0);
            assert!(output.out.contains(&format!("] ({state})\n")), "{what}: {output:?}");
        }
        let save = ["session", "save", &id, &number, "--output", "saved"];
        names_the_command(&what, &id, &site.run(&save), 5);
        let path = site.path().join("saved");
        let typed = site.typed(&[], &format!("/save {number} {}\n", path.display()));
        names_the_command(&what, &id, &typed, 1);
        assert!(!path.exists(), "{what}");
        names_the_command(&what, &id, &site.run(&["verify"]), 5);
        names_the_command(&what, &id, &site.run(&["session", "export", &id, "--output", "export"]), 5);
        assert_eq!(site.typed(&[], "and now?\n").out, "and now?\n", "{what}: a conversation goes on");

        site.fails(
            &["session", "restore-file", &id, "other"],
            3,
            "nothing was stored: other has 699999 bytes",
        );
        site.fails(&["session", "restore-file", &id, "nowhere"], 3, "nowhere");
        site.fails(&["session", "restore-file", NOBODY, "copy"], 3, NOBODY);
        let done = site.json(&["session", "restore-file", &id, "copy"]);
        assert_eq!((&done["bytes"], &done["owners"]), (&json!(700_000), &json!([id])), "{what}");
        site.ok(&save);
        assert_eq!(fs::read(path).unwrap(), large(), "{what}");
        site.ok(&["verify"]);
        assert_eq!(states(&site.json(&["session", "files", &id])), ["stored"; 3], "{what}");
    }
}

/// A file that a fork shares is restored for the session whose events name it.
#[tokio::test]
async fn a_file_is_restored_through_a_fork() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (id, workspace) = site.send("hello");
        let storage = site.open().await;
        stock(&storage, id.parse().unwrap()).await;
        drop(storage);
        fs::write(site.path().join("copy"), large()).unwrap();
        let fork = site.ok(&["session", "fork", &id]).trim().to_owned();
        // Also when only the fork is left.
        for ended in [None, Some(&["session", "delete", &id][..]), Some(&["session", "erase", &id, "--yes"])]
        {
            ended.map(|args| site.run(args));
            damage(&site, kind, &workspace, &id, Damage::Lost);
            let verified = site.run(&["verify"]);
            assert_eq!(verified.code, 5, "{kind} {ended:?}: {}", verified.out);
            assert!(verified.err.contains("lost"), "{}", verified.err);
            let list = site.run(&["session", "files", &fork]);
            names_the_command(kind, &fork, &list, 5);
            let done = site.json(&["session", "restore-file", &fork, "copy"]);
            assert_eq!(done["owners"], json!([id]), "{kind} {ended:?}");
            site.ok(&["session", "files", &fork]);
            site.ok(&["verify"]);
        }
        let own = site.run(&["session", "files", &id]);
        assert!(own.code != 0 && own.err.contains("was deleted"), "{kind}: {}", own.err);
        let saved = site.run(&["session", "save", &id, "1", "--output", "again"]);
        assert!(saved.code != 0 && saved.err.contains("was deleted"), "{kind}: {}", saved.err);
    }
}

/// A purge and an erasure leave a database file as large as it is; a rewrite makes it smaller, by `maintain` or with
/// `--now`. The help says so.
#[tokio::test]
async fn only_a_rewrite_shrinks_a_database() {
    let site = Site::new("sqlite");
    let (id, _) = site.send("hello");
    let storage = site.open().await;
    stock(&storage, id.parse().unwrap()).await;
    storage.close().await.unwrap();
    drop(storage);
    let size = || fs::metadata(site.path().join("data.db")).unwrap().len();
    let before = size();
    assert!(before > 700_000);
    site.ok(&["session", "delete", &id, "--purge"]);
    assert!(size() >= before, "{} of {before}", size());
    site.ok(&["session", "erase", &id, "--yes"]);
    assert!(size() >= before, "{} of {before}", size());
    site.ok(&["session", "erase", &id, "--yes", "--now"]);
    assert!(size() < 700_000, "{} of {before}", size());
    let one_line = |args: &[&str]| site.ok(args).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        one_line(&["session", "delete", "--help"]).contains("does not make a SQLite database file smaller")
    );
    assert!(one_line(&["session", "erase", "--help"]).contains("--now does both"));
    assert!(one_line(&["maintain", "--help"]).contains("the file, which becomes smaller"));
}
