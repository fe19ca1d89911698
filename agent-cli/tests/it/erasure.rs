//! `chat erase` and `chat verify --erased`.

use std::fs;

use crate::site::{KINDS, Site};

const WORD: &str = "treasure-4711";

#[test]
fn an_owner_is_erased_with_a_receipt_that_verifies() {
    for kind in KINDS {
        let site = Site::new(kind);
        assert_eq!(site.typed(&["--owner", "alice"], &format!("{WORD}\n")).code, 0);
        assert_eq!(site.typed_on("phone", &["--owner", "bob"], "breakfast\n").code, 0);
        let erase = ["erase", "owner", "alice", "--receipt", "alice.json"];
        let preview = site.json(&[&erase[..], &["--dry-run"]].concat());
        assert_eq!((&preview["dry_run"], preview["sessions"].as_u64().unwrap() > 0), (&true.into(), true));
        // Nothing is removed without a confirmation, nor into a file that exists.
        let ran = site.run(&erase);
        assert!(ran.code == 2 && ran.err.contains("--yes"), "{kind}: {ran:?}");
        fs::write(site.path().join("other.json"), "mine").unwrap();
        let ran = site.run(&["erase", "owner", "alice", "--receipt", "other.json", "--yes"]);
        assert!(ran.code == 4 && ran.err.contains("other.json exists already"), "{kind}: {ran:?}");
        assert!(!site.json(&["session", "list", "--owner", "alice"])["items"].as_array().unwrap().is_empty());

        let said = site.ok(&[&erase[..], &["--yes"]].concat());
        assert!(
            said.contains("erased owner alice in tenant default: ") && said.contains("alice.json"),
            "{said}"
        );
        fs::write(site.path().join("words"), format!("{WORD}\n\n")).unwrap();
        let verify = ["verify", "--erased", "alice.json", "--words", "words"];
        let said = site.ok(&verify);
        assert!(said.contains("the receipt is authentic") && said.contains("not seen: backups"), "{said}");
        let found = site.json(&verify);
        assert!(
            found["left"].as_array().unwrap().is_empty() && found["files"].as_u64().unwrap() > 0,
            "{found}"
        );
        assert!(!site.json(&["session", "list", "--owner", "bob"])["items"].as_array().unwrap().is_empty());
        assert_eq!(site.ok(&["tenant", "list"]).lines().last(), Some("default"), "the plan is gone");
        let ran = site.run(&["erase", "owner", "alice", "--receipt", "again.json", "--yes"]);
        assert!(ran.code == 3 && ran.err.contains("owner alice has nothing"), "{kind}: {ran:?}");

        // What another owner wrote is found, and named without the word.
        assert_eq!(site.typed_on("phone", &["--owner", "bob"], &format!("{WORD}\n")).code, 0);
        let ran = site.run(&verify);
        assert!(ran.code == 5 && ran.err.contains("left: ") && ran.err.contains("word 1"), "{kind}: {ran:?}");
        assert!(!ran.err.contains(WORD) && !ran.out.contains(WORD), "{kind}: {ran:?}");
        let receipt = fs::read_to_string(site.path().join("alice.json")).unwrap();
        fs::write(site.path().join("alice.json"), receipt.replace("\"default\"", "\"other\"")).unwrap();
        let ran = site.run(&["verify", "--erased", "alice.json"]);
        assert!(ran.code == 5 && ran.err.contains("the receipt was changed"), "{kind}: {ran:?}");
    }
}

#[test]
fn a_tenant_and_a_creator_are_erased_with_a_receipt() {
    let site = Site::new("files");
    assert_eq!(site.typed(&["--tenant", "acme"], &format!("{WORD}\n")).code, 0);
    site.send("breakfast");
    site.ok(&["erase", "tenant", "acme", "--receipt", "acme.json", "--yes"]);
    assert_eq!(site.ok(&["tenant", "list"]).lines().last(), Some("default"));
    assert!(site.ok(&["tenant", "audit"]).contains("acme"));
    site.ok(&["erase", "creator", "user:laptop", "--receipt", "laptop.json", "--yes"]);
    assert!(site.json(&["session", "list"])["items"].as_array().unwrap().is_empty());
    fs::write(site.path().join("words"), format!("{WORD}\nbreakfast\n")).unwrap();
    for receipt in ["acme.json", "laptop.json"] {
        site.ok(&["verify", "--erased", receipt, "--words", "words"]);
    }
}
