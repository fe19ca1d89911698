//! Forms in which the value of a secret is recognized.

use std::collections::BTreeMap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

use crate::secrets::secret::{Secret, SecretName};

/// Maximum depth of documents within documents that are searched.
const NESTED: usize = 4;

/// Values that were given out, each in all its forms, by name.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Values as they are.
    values: BTreeMap<Box<str>, SecretName>,
    /// Texts that stand for a value, or for a part of one.
    forms: BTreeMap<Box<str>, SecretName>,
    /// Number of bytes of the longest form.
    longest: usize,
    /// Values that are objects or lists.
    documents: Vec<Document>,
    /// Matcher that finds the forms in one pass.
    finder: Option<(AhoCorasick, Box<[SecretName]>)>,
}

/// Value that is an object or a list.
#[derive(Debug)]
struct Document {
    name: SecretName,
    value: Value,
    /// Key that every text with this value contains; texts without it are not parsed.
    key: Option<Box<str>>,
}

impl Known {
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns whether this value is known by this name.
    pub(super) fn has(&self, secret: &Secret, name: &SecretName) -> bool {
        self.values.get(secret.expose()) == Some(name)
    }

    pub(super) fn add(&mut self, secret: &Secret, name: &SecretName) {
        let value = secret.expose();
        self.values.insert(value.into(), name.clone());
        let mut found = Vec::new();
        pieces(value, NESTED, &mut found);
        for form in found.iter().flat_map(|piece| spellings(piece)) {
            {
                self.longest = self.longest.max(form.len());
            }
            self.forms.insert(form.into(), name.clone());
        }
        if let Ok(document @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(value) {
            let plain =
                |key: &&String| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
            let key = document.as_object().and_then(|fields| fields.keys().find(plain));
            let key = key.map(|key| key.as_str().into());
            self.documents.push(Document { name: name.clone(), value: document, key });
        }
        // Of two forms that begin at one place the longer is the value, and the other a part of it. Values of at most
        // 64 KiB always build a finder.
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(self.forms.keys().map(|form| &**form));
        self.finder = finder.ok().map(|finder| (finder, self.forms.values().cloned().collect()));
    }

    /// Returns the positions of known forms in a text, in order and without overlaps.
    pub(super) fn find<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (Range<usize>, &'a SecretName)> {
        self.find_bytes(text.as_bytes())
    }

    /// Returns the positions of known forms in bytes of text, in order and without overlaps.
    pub(super) fn find_bytes<'a>(
        &'a self,
        text: &'a [u8],
    ) -> impl Iterator<Item = (Range<usize>, &'a SecretName)> {
        self.finder.iter().flat_map(move |(finder, names)| {
            finder
                .find_iter(text)
                .filter_map(|found| Some((found.range(), names.get(found.pattern().as_usize())?)))
        })
    }

    /// Returns the number of bytes of the longest form.
    pub(super) const fn longest(&self) -> usize {
        self.longest
    }

    /// Returns whether a text may contain a document, so that each position must be parsed.
    pub(super) fn may_hold_documents(&self, text: &str) -> bool {
        self.documents.iter().any(|document| document.key.as_deref().is_none_or(|key| text.contains(key)))
    }

    /// Returns the known document with which this text begins, in any key order and white space, and its length there.
    pub(super) fn document(&self, text: &str) -> Option<(usize, &SecretName)> {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let value = values.next()?.ok()?;
        let document = self.documents.iter().find(|document| document.value == value)?;
        Some((values.byte_offset(), &document.name))
    }

    /// Returns the number of bytes that can be shown: all except those that may be the beginning of a form.
    pub(super) fn complete_prefix(&self, text: &str) -> usize {
        let until = self.unfinished(text);
        // A complete value that begins before the limit stays complete.
        let across = self.find(text).find(|(at, _)| at.start < until && at.end > until);
        across.map_or(until, |(at, _)| at.end)
    }

    fn unfinished(&self, text: &str) -> usize {
        let from = text.floor_char_boundary(text.len().saturating_sub(self.longest));
        text[from..]
            .char_indices()
            .map(|(at, _)| from + at)
            .find(|at| self.begins_a_form(&text[*at..]))
            .unwrap_or(text.len())
    }

    /// Returns whether a longer form begins with this text.
    fn begins_a_form(&self, text: &str) -> bool {
        // In the order of texts, the forms that begin with this text follow it directly.
        let bounds = (std::ops::Bound::Excluded(text), std::ops::Bound::Unbounded);
        self.forms.range::<str, _>(bounds).next().is_some_and(|(form, _)| form.starts_with(text))
    }
}

/// Collects the pieces of a value by which it is recognized. They are the value without surrounding white space, its
/// lines, and, if it is JSON, the values in it. Only pieces that are long enough to be distinguished from ordinary text
/// are collected.
fn pieces(value: &str, nested: usize, out: &mut Vec<String>) {
    let mut add = |piece: &str| {
        if piece.trim().len() >= Secret::MIN_BYTES {
            out.push(piece.to_owned());
        }
    };
    let trimmed = value.trim();
    add(value);
    add(trimmed);
    if trimmed.contains(['\n', '\r']) {
        // The first and the last line of a PEM file are the same in every such file.
        let lines = || trimmed.split(['\n', '\r']).map(str::trim).filter(|line| !line.starts_with("-----"));
        lines().for_each(&mut add);
        add(&lines().collect::<String>());
    }
    if nested == 0 {
        return;
    }
    let parsed = serde_json::from_str(trimmed);
    if let Ok(document @ (Value::Object(_) | Value::Array(_) | Value::String(_))) = parsed {
        leaves(&document, nested, out);
    }
}

fn leaves(document: &Value, nested: usize, out: &mut Vec<String>) {
    match document {
        Value::Object(fields) => fields.values().for_each(|value| leaves(value, nested, out)),
        Value::Array(values) => values.iter().for_each(|value| leaves(value, nested, out)),
        Value::String(text) => pieces(text, nested - 1, out),
        Value::Number(number) => pieces(&number.to_string(), 0, out),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Returns a piece in all spellings: as it is, and as written in JSON and in JSON within JSON. Writers differ: slashes
/// escaped or not, non-ASCII characters escaped or not.
fn spellings(piece: &str) -> Vec<String> {
    let mut all = vec![piece.to_owned()];
    let mut last = all.clone();
    for _ in 0..2 {
        last = last.iter().flat_map(|form| escaped(form)).filter(|form| !all.contains(form)).collect();
        last.dedup();
        all.extend(last.iter().cloned());
    }
    all
}

fn escaped(text: &str) -> Vec<String> {
    let quoted = Value::from(text).to_string();
    let inner = quoted[1..quoted.len() - 1].to_owned();
    let mut forms = vec![inner.clone()];
    if inner.contains('/') {
        forms.push(inner.replace('/', "\\/"));
    }
    if !inner.is_ascii() {
        forms.push(inner.chars().flat_map(ascii).collect());
    }
    forms
}

/// Returns a character as ASCII-only JSON writes it.
fn ascii(c: char) -> Vec<char> {
    if c.is_ascii() {
        return vec![c];
    }
    let units = &mut [0; 2];
    c.encode_utf16(units)
        .iter()
        .flat_map(|unit| format!("\\u{unit:04x}").chars().collect::<Vec<_>>())
        .collect()
}
