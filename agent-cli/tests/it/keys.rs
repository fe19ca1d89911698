//! Encrypted stores: their addresses, and root keys.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::site::{Ran, Site};

/// Runs the program on the store at an address, with what a person types.
fn chat(address: &str, words: &[&str], typed: &str) -> Ran {
    use std::io::Write;
    let mut command = Command::new(env!("CARGO_BIN_EXE_chat"));
    command.args(["--store", address, "--device", "laptop"]).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

fn said(ran: Ran) -> String {
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.out
}

fn files_with(folder: &Path, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut files_with(&path, word));
        } else if fs::read(&path).unwrap().windows(word.len()).any(|part| part == word.as_bytes()) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[test]
fn an_encrypted_store_is_used_by_its_address() {
    for kind in ["files", "sqlite"] {
        let site = Site::new(kind);
        let key = site.path().join("root key");
        let made = site.ok(&["key", "new", key.to_str().unwrap()]);
        let id = site.ok(&["key", "show", key.to_str().unwrap()]).trim().to_owned();
        assert!(made.contains(&id), "{made}");
        let option = |file: &str| {
            format!("key_file={}", site.path().join(file).display().to_string().replace(' ', "%20"))
        };
        let address = format!("{}&{}", site.address(), option("root key"));
        let answer = said(chat(&address, &[], "Where is the treasure-4711?\n"));
        assert!(answer.contains("treasure-4711"), "{answer}");
        let found = said(chat(&address, &["search", "treasure"], ""));
        assert!(found.contains("-4711"), "{found}");
        said(chat(&address, &["verify"], ""));
        assert_eq!(files_with(site.path(), "treasure-4711"), Vec::<String>::new(), "{kind}");
        // The same store without the key, and with another one.
        let ran = chat(&site.address(), &[], "hello\n");
        assert!(ran.code != 0 && ran.err.contains("is encrypted; name the file"), "{kind}: {ran:?}");
        for words in [
            &["session", "list"][..],
            &["workspace", "create", "--name", "x"],
            &["tenant", "delete", "default", "--yes"],
        ] {
            let ran = chat(&site.address(), words, "");
            assert!(ran.code != 0 && ran.err.contains("is encrypted"), "{kind}: {ran:?}");
        }
        let ran =
            chat(&address, &["tenant", "delete", "vault_keys-e3b0c44298fc1c149afbf4c8996fb924", "--yes"], "");
        assert!(ran.code != 0 && ran.err.contains("keys of another tenant"), "{kind}: {ran:?}");
        said(chat(&address, &["session", "list"], ""));
        site.ok(&["key", "new", site.path().join("other").to_str().unwrap()]);
        let ran = chat(&format!("{}&{}", site.address(), option("other")), &["session", "list"], "");
        assert!(ran.code != 0 && ran.err.contains(&id), "{kind}: {ran:?}");
        // A key that others may read, one that is none, one that is not there.
        fs::write(site.path().join("none"), "hello").unwrap();
        for (file, expected) in [("none", "none"), ("missing", "missing")] {
            let ran = chat(&format!("{}&{}", site.address(), option(file)), &["session", "list"], "");
            assert!(ran.code != 0 && ran.err.contains(expected) && !ran.err.contains("hello"), "{ran:?}");
        }
    }
}

#[test]
fn a_store_is_copied_into_an_encrypted_one_and_its_root_key_replaced() {
    let site = Site::new("sqlite");
    let (id, _) = site.send("Where is the treasure-4711?");
    let folder = site.path().to_owned();
    let path = |file: &str| folder.join(file).display().to_string();
    for key in ["old", "new"] {
        site.ok(&["key", "new", &path(key)]);
    }
    let sealed = format!("sqlite:{}", path("sealed.db"));
    let old = format!("{sealed}?key_file={}", path("old"));
    site.ok(&["copy", &site.address(), &old]);
    let both = format!("{sealed}?key_file={}&older_key_file={}", path("new"), path("old"));
    let rotated = said(chat(&both, &["key", "rotate", "--sessions"], ""));
    assert!(rotated.contains("wrapped again"), "{rotated}");
    let ran = chat(&old, &["session", "show", &id], "");
    assert!(ran.code != 0 && ran.err.contains("root key"), "the former key opens nothing: {ran:?}");
    let new = format!("{sealed}?key_file={}", path("new"));
    let shown = said(chat(&new, &["session", "export", &id], ""));
    assert!(shown.contains("treasure-4711"), "{shown}");
    assert!(fs::read(folder.join("sealed.db")).unwrap().windows(13).all(|part| part != b"treasure-4711"));
    // What is not encrypted is not taken for a store that is.
    let wrong = format!("{}&key_file={}", site.address(), path("new"));
    let ran = chat(&wrong, &["session", "list"], "");
    assert!(ran.code != 0 && ran.err.contains("not encrypted"), "{ran:?}");
    site.fails(&["key", "rotate"], 2, "names no key");
    site.fails(&["key", "new", &path("old")], 4, "never overwritten");
}

/// A root key that is replaced before the replacement of the former one has ended: three keys wrap something, and the address names all.
#[test]
fn a_root_key_is_replaced_twice_with_all_former_keys_in_the_address() {
    let site = Site::new("files");
    let folder = site.path().to_owned();
    let path = |file: &str| folder.join(file).display().to_string();
    for key in ["first", "second", "third"] {
        site.ok(&["key", "new", &path(key)]);
    }
    let store = format!("files:{}", path("sealed"));
    let first = format!("{store}?key_file={}", path("first"));
    for tenant in ["acme", "umbra"] {
        let said = said(chat(&first, &["--tenant", tenant], "Where is the treasure-4711?\n"));
        assert!(said.contains("treasure-4711"), "{said}");
    }
    // The first replacement is cut off when it has wrapped the key of one tenant: the other one's is put back.
    let keys = |tenant: &str| {
        let found = fs::read_dir(folder.join("sealed/tenants")).unwrap().map(|it| it.unwrap().path());
        let mut found: Vec<_> = found
            .filter(|it| !files_with(it, &format!("tenant/{tenant}")).is_empty())
            .filter(|it| it.file_name().unwrap().to_str().unwrap().starts_with("vault_keys-"))
            .collect();
        found.pop().expect("the tenant has keys")
    };
    let (umbra, root) = (keys("umbra"), keys("default"));
    for kept in [&umbra, &root] {
        copied(kept, &folder.join("kept").join(kept.file_name().unwrap()));
    }
    let second = format!("{store}?key_file={}&older_key_file={}", path("second"), path("first"));
    assert!(said(chat(&second, &["key", "rotate"], "")).starts_with("3 keys"));
    for kept in [&umbra, &root] {
        fs::remove_dir_all(kept).unwrap();
        copied(&folder.join("kept").join(kept.file_name().unwrap()), kept);
    }
    let third = |older: &[&str]| {
        let older: String = older.iter().map(|file| format!("&older_key_file={}", path(file))).collect();
        format!("{store}?key_file={}{older}", path("third"))
    };
    // With one of the former keys something is not opened, and says which key it needs.
    for older in ["first", "second"] {
        let ran = chat(&third(&[older]), &["key", "rotate"], "");
        assert!(ran.code != 0 && ran.err.contains("as an older one if it was replaced"), "{older}: {ran:?}");
    }
    said(chat(&third(&["second", "first"]), &["key", "rotate"], ""));
    for tenant in ["acme", "umbra"] {
        let found = said(chat(&third(&[]), &["--tenant", tenant, "search", "treasure"], ""));
        assert!(found.contains("-4711"), "{found}");
    }
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() { copied(&path, &to) } else { assert!(fs::copy(&path, &to).is_ok()) }
    }
}

/// A session whose row of keys is lost: it is named, and removed with the root key alone.
#[test]
fn a_session_without_its_key_is_named_and_removed() {
    for (removal, kept) in
        [(&["session", "delete"][..], &["--purge", "--yes"][..]), (&["session", "erase"], &["--yes"])]
    {
        let site = Site::new("files");
        let path = |file: &str| site.path().join(file).display().to_string();
        site.ok(&["key", "new", &path("key")]);
        let address = format!("files:{}?key_file={}", path("sealed"), path("key"));
        said(chat(&address, &[], "Where is the treasure-4711?\n"));
        let listed: serde_json::Value =
            serde_json::from_str(&said(chat(&address, &["--json", "session", "list"], ""))).unwrap();
        let id = listed["items"][0]["id"].as_str().unwrap().to_owned();
        // The row of its key is a workspace, in a folder of its own.
        let row = files_with(&site.path().join("sealed/tenants"), &format!("session/default/{id}"));
        let [row] = &row[..] else { panic!("{row:?}") };
        fs::remove_dir_all(Path::new(row).parent().unwrap()).unwrap();

        let ran = chat(&address, &["verify"], "");
        assert!(ran.code == 5 && ran.err.contains(&format!("key row session/default/{id}")), "{ran:?}");
        let ran = chat(&address, &["session", "show", &id], "");
        assert!(ran.code == 5 && ran.err.contains(&format!("key row session/default/{id}")), "{ran:?}");
        let removed = [removal, &[&id], kept].concat();
        assert!(said(chat(&address, &removed, "")).contains(&id));
        said(chat(&address, &["verify"], ""));
        let stored = site.path().join("sealed");
        assert_eq!(files_with(&stored, "user.message"), Vec::<String>::new());
    }
}
