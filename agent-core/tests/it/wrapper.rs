//! A wrapper passes on every method of the trait.

use std::collections::BTreeSet;

/// The methods of `SessionStore`, the provided ones too, are those that a wrapper passes on: one that was forgotten would do what is
/// provided in place of what the wrapped store does.
#[test]
fn wrapper_forwards_every_method() {
    let names = |text: &str, before: &str, after: &str| -> BTreeSet<String> {
        let line =
            |line: &str| line.trim().strip_prefix(before)?.split_once(after).map(|(name, _)| name.to_owned());
        text.lines().filter_map(line).collect()
    };
    let source = include_str!("../../src/store/session.rs");
    let of_trait = source.split_once("pub trait SessionStore:").unwrap().1.split_once("\n}\n").unwrap().0;
    let wrapped = include_str!("../../src/store/wrapper.rs");
    let table = wrapped.split_once("\nforwarded! {\n").unwrap().1.split_once("\n}\n").unwrap().0;
    let of_trait = names(of_trait, "async fn ", "(");
    assert!(of_trait.len() >= 12, "{of_trait:?}");
    assert_eq!(names(table, "", "("), of_trait);
}
