//! `chat search`, and `/search` in a conversation.

use crate::site::{KINDS, Site};

#[test]
fn search_finds_what_was_written_in_pages() {
    for kind in KINDS {
        let site = Site::new(kind);
        let (main, _) = site.send("Deploy to 서울 failed");
        site.send("another message");
        let found = site.ok(&["search", "서울", "DEPLOY -success"]);
        assert!(found.contains("**Deploy** to **서울** failed") && found.contains(&main), "{found}");
        assert_eq!(found.lines().count(), 3, "the message and its echo: {found}");
        let page = site.json(&["search", "deploy", "--limit", "1"]);
        let next = page["next"].as_str().unwrap();
        let rest = site.json(&["search", "deploy", "--limit", "1", "--after", next]);
        assert_eq!((page["hits"].as_array().unwrap().len(), rest["hits"].as_array().unwrap().len()), (1, 1));
        assert_ne!(page["hits"][0]["seq"], rest["hits"][0]["seq"]);
        assert!(site.ok(&["search", "deployed"]).lines().count() == 1, "no part of a word");
        site.fails(&["search", "+"], 1, "no word to look for");
        site.fails(&["search", "message", "--after", next], 1, "another query");
    }
}
