//! The place for keys on memory, files and SQLite.

use std::collections::BTreeSet;

use agent_core::ErrorKind;
use agent_core::commit::Precondition;
use agent_core::store::{WorkspaceQuery, pages};
use agent_vault::{KeyEntry, KeyPlace, KeyQuery, KeyRow, StorePlace};
use futures::TryStreamExt;
use futures::future::{join, join_all};

use crate::cut::{Cut, Cutting};
use crate::support::{SEEN, STORES, Site};

const NAME: &str = "session/acme/7";

fn present(text: &str) -> KeyRow {
    KeyRow::Present(text.to_owned())
}

fn is_conflict<T: std::fmt::Debug>(result: agent_core::Result<T>) -> bool {
    matches!(result.unwrap_err().kind(), ErrorKind::Conflict { .. })
}

#[tokio::test]
async fn a_row_is_put_once_swapped_and_dropped_for_good() {
    for store in STORES {
        let site = Site::new(store).await;
        let (place, other) = (site.place(0), site.place(1));
        assert_eq!(place.get(NAME).await.unwrap(), None, "{store}");
        assert!(is_conflict(place.swap(NAME, "one", "two").await), "{store}: an absent row");
        assert_eq!(place.put_if_absent(NAME, "one").await.unwrap(), present("one"));
        assert_eq!(other.put_if_absent(NAME, "two").await.unwrap(), present("one"), "{store}");
        assert_eq!(other.get(NAME).await.unwrap(), Some(present("one")));

        assert!(is_conflict(place.swap(NAME, "two", "three").await), "{store}: another text");
        other.swap(NAME, "one", "two").await.unwrap();
        other.swap(NAME, "one", "two").await.unwrap();
        assert_eq!(place.get(NAME).await.unwrap(), Some(present("two")), "{store}");

        assert!(place.drop_key(NAME).await.unwrap(), "{store}");
        assert!(!other.drop_key(NAME).await.unwrap(), "{store}: it was dropped already");
        for place in [&place, &other] {
            assert_eq!(place.get(NAME).await.unwrap(), Some(KeyRow::Dropped), "{store}");
            assert_eq!(place.put_if_absent(NAME, "four").await.unwrap(), KeyRow::Dropped, "{store}");
            assert!(is_conflict(place.swap(NAME, "two", "four").await), "{store}");
            assert!(is_conflict(place.swap(NAME, "one", "two").await), "{store}");
        }
        assert_eq!(place.get("session/acme/8").await.unwrap(), None, "{store}: another row");
    }
}

#[tokio::test]
async fn a_row_that_was_absent_is_dropped_for_good_as_well() {
    for store in STORES {
        let site = Site::new(store).await;
        assert!(!site.place(0).drop_key(NAME).await.unwrap(), "{store}");
        assert_eq!(site.place(1).put_if_absent(NAME, "one").await.unwrap(), KeyRow::Dropped, "{store}");
        assert_eq!(site.place(1).get(NAME).await.unwrap(), Some(KeyRow::Dropped), "{store}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_sixteen_puts_wins_and_all_see_it() {
    for store in STORES {
        let site = Site::new(store).await;
        for round in 0..5 {
            let name = format!("session/acme/{round}");
            let put = |n: usize| {
                let (place, name) = (site.place(n), name.clone());
                tokio::spawn(async move { place.put_if_absent(&name, &format!("text {n}")).await.unwrap() })
            };
            let found = join_all((0..16).map(put)).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
            let KeyRow::Present(text) = &found[0] else { panic!("{store}: {found:?}") };
            assert!(text.starts_with("text "), "{store}: {text}");
            assert!(found.iter().all(|row| row == &found[0]), "{store}: {found:?}");
            assert_eq!(site.place(0).get(&name).await.unwrap().as_ref(), Some(&found[0]), "{store}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_sixteen_swaps_wins() {
    for store in STORES {
        let site = Site::new(store).await;
        site.place(0).put_if_absent(NAME, "one").await.unwrap();
        let swap = |n: usize| {
            let place = site.place(n);
            tokio::spawn(async move { place.swap(NAME, "one", &format!("text {n}")).await.is_ok() })
        };
        let won = join_all((0..16).map(swap)).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "{store}: {won:?}");
        let winner = won.iter().position(|won| *won).unwrap();
        assert_eq!(
            site.place(0).get(NAME).await.unwrap(),
            Some(present(&format!("text {winner}"))),
            "{store}"
        );
    }
}

/// Whatever comes first: afterwards the row is dropped, and what was put before is seen by all that put it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_drop_wins_against_concurrent_puts() {
    for store in STORES {
        let site = Site::new(store).await;
        for round in 0..10 {
            let name = format!("session/acme/{round}");
            let put = |n: usize| {
                let (place, name) = (site.place(n), name.clone());
                tokio::spawn(async move { place.put_if_absent(&name, &format!("text {n}")).await.unwrap() })
            };
            let drop = |n: usize| {
                let (place, name) = (site.place(n), name.clone());
                tokio::spawn(async move { place.drop_key(&name).await.unwrap() })
            };
            let (puts, drops) = join(join_all((0..6).map(put)), join_all((0..3).map(drop))).await;
            let texts: BTreeSet<_> = puts
                .into_iter()
                .filter_map(|row| match row.unwrap() {
                    KeyRow::Present(text) => Some(text),
                    KeyRow::Dropped => None,
                })
                .collect();
            assert!(texts.len() <= 1, "{store}: {texts:?}");
            assert_eq!(drops.len(), 3);
            for n in 0..2 {
                assert_eq!(site.place(n).get(&name).await.unwrap(), Some(KeyRow::Dropped), "{store}");
                let again = site.place(n).put_if_absent(&name, "again").await.unwrap();
                assert_eq!(again, KeyRow::Dropped, "{store}");
            }
        }
    }
}

/// What a test does to a row, and what it must be then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Put,
    Swap,
    Drop,
    DropAbsent,
}

impl Act {
    const ALL: [Self; 4] = [Self::Put, Self::Swap, Self::Drop, Self::DropAbsent];

    async fn run(self, place: &StorePlace) -> agent_core::Result<()> {
        match self {
            Self::Put => assert_eq!(place.put_if_absent(NAME, "two").await?, present("two")),
            Self::Swap => place.swap(NAME, "one", "two").await?,
            Self::Drop | Self::DropAbsent => drop(place.drop_key(NAME).await?),
        }
        Ok(())
    }

    fn before(self) -> Option<KeyRow> {
        matches!(self, Self::Swap | Self::Drop).then(|| present("one"))
    }

    fn after(self) -> Option<KeyRow> {
        Some(if matches!(self, Self::Put | Self::Swap) { present("two") } else { KeyRow::Dropped })
    }
}

#[tokio::test]
async fn a_cut_at_any_call_leaves_a_row_as_before_or_as_after_and_the_same_call_finishes() {
    for store in STORES {
        for (act, cut) in Act::ALL.into_iter().flat_map(|act| Cut::ALL.map(|cut| (act, cut))) {
            for at in 1.. {
                let site = Site::new(store).await;
                let place = site.place(0);
                if act.before().is_some() {
                    place.put_if_absent(NAME, "one").await.unwrap();
                }
                let cutting = Cutting::new(site.workspaces(0), at, cut);
                let result = act.run(&StorePlace::new(cutting.clone())).await;
                let which = format!("{store}, {act:?}, {cut:?} at {at}");
                if !cutting.was_cut() {
                    assert!(at > 1 && result.is_ok(), "{which}: {result:?}");
                    break;
                }
                let row = place.get(NAME).await.unwrap();
                assert!(row == act.before() || row == act.after(), "{which}: {row:?}");
                let listed = place.list(KeyQuery::new()).await.unwrap().items;
                let text = match row {
                    Some(KeyRow::Present(text)) => Some(text),
                    _ => None,
                };
                let expected: Vec<_> = text.map(|text| KeyEntry::new(NAME, text)).into_iter().collect();
                assert_eq!(listed, expected, "{which}");
                act.run(&place).await.unwrap_or_else(|error| panic!("{which}: {error}"));
                assert_eq!(place.get(NAME).await.unwrap(), act.after(), "{which}");
            }
        }
    }
}

#[tokio::test]
async fn a_row_that_was_put_in_part_can_be_dropped() {
    let site = Site::new("memory").await;
    let cutting = Cutting::new(site.workspaces(0), 3, Cut::DiesBefore);
    StorePlace::new(cutting).put_if_absent(NAME, "one").await.unwrap_err();
    let place = site.place(0);
    assert_eq!(site.workspaces(0).list(WorkspaceQuery::new()).await.unwrap().items.len(), 1);
    assert_eq!(place.get(NAME).await.unwrap(), None);
    assert!(!place.drop_key(NAME).await.unwrap());
    assert_eq!(place.put_if_absent(NAME, "one").await.unwrap(), KeyRow::Dropped);
}

#[tokio::test]
async fn pages_show_each_row_once() {
    for store in STORES {
        let site = Site::new(store).await;
        let place = site.place(0);
        for n in 0..23 {
            for tenant in ["acme", "umbra"] {
                place.put_if_absent(&format!("session/{tenant}/{n:02}"), &format!("text {n}")).await.unwrap();
            }
        }
        place.drop_key("session/acme/07").await.unwrap();
        let query = KeyQuery::new().with_prefix("session/acme/").with_limit(5);
        let pages: Vec<_> = pages(query, |query| place.list(query)).try_collect().await.unwrap();
        assert!(pages.len() >= 9 && pages.iter().all(|page| page.damaged.is_empty()), "{store}");
        let mut rows: Vec<_> = pages.into_iter().flat_map(|page| page.items).collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        let entry = |n| KeyEntry::new(format!("session/acme/{n:02}"), format!("text {n}"));
        let expected: Vec<_> = (0..23).filter(|n| *n != 7).map(entry).collect();
        assert_eq!(rows, expected, "{store}");
    }
}

#[tokio::test]
async fn malformed_names_and_texts_are_refused() {
    let place = Site::new("memory").await.place(0);
    for name in ["", "two\nlines", &"x".repeat(257)] {
        for error in [
            place.get(name).await.unwrap_err(),
            place.put_if_absent(name, "one").await.unwrap_err(),
            place.swap(name, "one", "two").await.unwrap_err(),
            place.drop_key(name).await.unwrap_err(),
        ] {
            assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{name:?}: {error}");
        }
    }
    for error in [
        place.put_if_absent(NAME, "").await.unwrap_err(),
        place.swap(NAME, "", "two").await.unwrap_err(),
        place.swap(NAME, "one", "").await.unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    assert_eq!(place.get(NAME).await.unwrap(), None);
}

#[tokio::test]
async fn a_row_in_a_workspace_of_another_name_is_damage_and_stays() {
    for store in STORES {
        let site = Site::new(store).await;
        let (place, workspaces) = (site.place(0), site.workspaces(0));
        place.put_if_absent(NAME, "one").await.unwrap();
        let found = workspaces.list(WorkspaceQuery::new()).await.unwrap().items.remove(0);
        let renamed = found.with_name("session/umbra/7");
        workspaces.put(renamed.clone(), Precondition::MustExist).await.unwrap();
        for error in [
            place.get(NAME).await.unwrap_err(),
            place.put_if_absent(NAME, "two").await.unwrap_err(),
            place.drop_key(NAME).await.unwrap_err(),
        ] {
            assert_eq!(*error.kind(), ErrorKind::Corrupt, "{store}: {error}");
        }
        assert_eq!(workspaces.load_config(renamed.id).await.unwrap().as_deref(), Some("one"), "{store}");
    }
}

/// Of text that was swapped or dropped nothing is left in any file, once the store has done what it put off.
#[tokio::test]
async fn the_bytes_of_a_dropped_text_are_gone() {
    const TEXTS: [&str; 3] = ["xyzzy-first", "xyzzy-second", "xyzzy-third"];
    for store in SEEN {
        let site = Site::new(store).await;
        let place = site.place(0);
        for n in 0..50 {
            place.put_if_absent(&format!("session/acme/other {n}"), &"x".repeat(300)).await.unwrap();
        }
        place.put_if_absent(NAME, &TEXTS[0].repeat(20)).await.unwrap();
        place.swap(NAME, &TEXTS[0].repeat(20), &TEXTS[1].repeat(20)).await.unwrap();
        assert!(
            !site.places_with(TEXTS[1].as_bytes()).await.is_empty(),
            "{store}: it is found while it is there"
        );
        assert!(place.drop_key(NAME).await.unwrap());
        let pending = site.backends[0].maintain().await.unwrap();
        for text in TEXTS {
            let left = site.places_with(text.as_bytes()).await;
            assert!(left.is_empty(), "{store}: {text} is left in {left:?}; {pending:?} was done");
        }
        assert_eq!(place.get(NAME).await.unwrap(), Some(KeyRow::Dropped), "{store}");
    }
}
