//! A page of LIST.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::object::{Object, Quirks};
use crate::request::List;

const PAGE: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Page<'a> {
    pub(crate) contents: Vec<(&'a str, &'a Object)>,
    pub(crate) prefixes: Vec<String>,
    /// Where the next page goes on.
    pub(crate) next: Option<String>,
}

/// The keys that start with the prefix, in order, from where the token or `start-after` says; those that have the
/// delimiter beyond the prefix are rolled up, and count as one.
pub(crate) fn page<'a>(objects: &'a BTreeMap<String, Object>, list: &List, quirks: &Quirks) -> Page<'a> {
    let limit = list.max_keys.unwrap_or(PAGE).min(quirks.page_limit.unwrap_or(PAGE));
    // A token says what came last: a key, or a rolled-up prefix that is over.
    let (after, over) = match &list.token {
        Some(token) => match token.split_once(':') {
            Some(("prefix", prefix)) => (Some(prefix), Some(prefix)),
            Some((_, key)) => (Some(key), None),
            None => (None, None),
        },
        None => (list.start_after.as_deref(), None),
    };
    let from = match after {
        Some(after) if after >= list.prefix.as_str() => Bound::Excluded(after),
        _ => Bound::Included(list.prefix.as_str()),
    };
    let mut page = Page::default();
    let mut last = None;
    let mut found: Vec<_> = objects
        .range::<str, _>((from, Bound::Unbounded))
        .take_while(|(key, _)| key.starts_with(&list.prefix))
        .collect();
    if quirks.unordered_list {
        found.reverse();
    }
    for (key, object) in found {
        let rest = &key[list.prefix.len()..];
        if over.is_some_and(|over| key.starts_with(over)) {
            continue;
        }
        let rolled = list
            .delimiter
            .as_ref()
            .and_then(|by| rest.find(by.as_str()).map(|at| &key[..list.prefix.len() + at + by.len()]));
        if rolled.is_some() && rolled == page.prefixes.last().map(String::as_str) {
            continue;
        }
        if page.contents.len() + page.prefixes.len() == limit {
            page.next = last;
            break;
        }
        if let Some(prefix) = rolled {
            page.prefixes.push(prefix.to_owned());
            last = Some(format!("prefix:{prefix}"));
        } else {
            page.contents.push((key, object));
            last = Some(format!("key:{key}"));
        }
    }
    page
}
