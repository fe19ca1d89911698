//! Forms in which the value of a secret is recognized.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

use crate::secrets::escapes::{ESCAPE, Unescaped};
use crate::secrets::patterns::{self, Mark};
use crate::secrets::secret::{Secret, SecretName};

/// Maximum depth of documents within documents that are searched.
const NESTED: usize = 4;

/// Number of times that the escapes of a text are replaced: as in a text of JSON, and of JSON within JSON.
const LEVELS: u32 = 2;

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
    /// True if what has the form of a secret is found too.
    patterns: bool,
}

/// What was found in a text, and where.
pub(super) type Found<'a> = Vec<(Range<usize>, Mark<'a>)>;

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
        self.values.is_empty() && !self.patterns
    }

    /// From now on finds what has the form of a secret, too.
    pub(super) const fn add_patterns(&mut self) {
        self.patterns = true;
    }

    /// Returns the number of values.
    pub(super) fn values(&self) -> usize {
        self.values.len()
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
        for form in found {
            self.longest = self.longest.max(form.len());
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

    /// Returns the positions of known forms and documents in a text, in order and without overlaps. Any character may be
    /// escaped as in JSON, once or twice.
    pub(super) fn find(&self, text: &str) -> Found<'_> {
        self.find_behind(0, text)
    }

    /// Returns what begins behind this number of bytes, like [`find`](Self::find). What is before them is the
    /// [context](Self::context).
    pub(super) fn find_behind(&self, context: usize, text: &str) -> Found<'_> {
        self.all(context, text.as_bytes(), |view, found| {
            if let Ok(view) = str::from_utf8(view) {
                self.documents_in(view, found);
            }
            self.forms_in(view, found);
        })
    }

    /// Returns the positions of known forms in bytes of text like [`find_behind`](Self::find_behind).
    pub(super) fn find_bytes(&self, context: usize, text: &[u8]) -> Found<'_> {
        self.all(context, text, |view, found| self.forms_in(view, found))
    }

    /// Searches a text, and the text without its escapes. Of positions that overlap, returns one for all.
    fn all<'a>(&'a self, context: usize, text: &[u8], search: impl Fn(&[u8], &mut Found<'a>)) -> Found<'a> {
        let mut found = Vec::new();
        if self.is_empty() {
            return found;
        }
        search(text, &mut found);
        let levels = levels(text);
        for (count, level) in levels.iter().enumerate() {
            let mut within = Vec::new();
            search(&level.text, &mut within);
            found.extend(within.into_iter().map(|(at, mark)| (in_source(&levels[..=count], at), mark)));
        }
        found.retain(|(at, _)| at.start >= context);
        found.sort_by_key(|(at, _)| (at.start, Reverse(at.end)));
        found.dedup_by(|(later, _), (at, _)| {
            let overlaps = later.start < at.end;
            at.end = if overlaps { at.end.max(later.end) } else { at.end };
            overlaps
        });
        found
    }

    fn forms_in<'a>(&'a self, text: &[u8], found: &mut Found<'a>) {
        if let Some((finder, names)) = &self.finder {
            found.extend(finder.find_iter(text).filter_map(|found| {
                Some((found.range(), Mark::Named(names.get(found.pattern().as_usize())?)))
            }));
        }
        if self.patterns {
            patterns::find(text, found);
        }
    }

    /// Finds the values that are objects or lists, with any key order and any white space.
    fn documents_in<'a>(&'a self, text: &str, found: &mut Found<'a>) {
        if !self.may_hold_documents(text) {
            return;
        }
        let mut at = 0;
        while let Some(next) = text[at..].find(['{', '[']) {
            at += next;
            match self.document(&text[at..]) {
                Some((length, name)) => {
                    found.push((at..at + length, Mark::Named(name)));
                    at += length;
                }
                None => at += 1,
            }
        }
    }

    /// Returns the maximum number of bytes of what is found in a text, with every character escaped.
    pub(super) fn longest(&self) -> usize {
        // The character behind a pattern decides, too.
        let patterns = if self.patterns { patterns::LONGEST + 1 } else { 0 };
        self.longest.max(patterns) * ESCAPE.pow(LEVELS)
    }

    /// Returns the number of bytes before a place on which depends what is found behind it: those of one character.
    pub(super) const fn context(&self) -> usize {
        // Outside the basic plane, a character has two escapes.
        if self.patterns { 2 * ESCAPE.pow(LEVELS) } else { 0 }
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
    pub(super) fn complete_prefix(&self, context: usize, text: &str) -> usize {
        let until = self.unfinished(context, text);
        // What more text may change and overlaps with a value is held back with it.
        let across =
            self.find_behind(context, text).into_iter().find(|(at, _)| at.start < until && at.end > until);
        across.map_or(until, |(at, _)| at.start)
    }

    fn unfinished(&self, context: usize, text: &str) -> usize {
        let from = text.floor_char_boundary(text.len().saturating_sub(self.longest()));
        let tail = &text[from..];
        let levels = levels(tail.as_bytes());
        let views = levels.iter().filter_map(|level| Some((str::from_utf8(&level.text).ok()?, level.is_cut)));
        let begins =
            [(tail, false)].into_iter().chain(views).enumerate().filter_map(|(count, (view, is_cut))| {
                let first = view.floor_char_boundary(view.len().saturating_sub(self.longest));
                let mut places = view[first..].char_indices().map(|(at, _)| first + at);
                let at = places.find(|at| self.begins_a_form(&view[*at..]));
                let is_behind = |at| from + in_source(&levels[..count], at..at).start >= context;
                let pattern =
                    self.patterns.then(|| patterns::unfinished(view.as_bytes(), is_behind)).flatten();
                let at = at.into_iter().chain(pattern).min();
                // An escape that is cut may be that of any character.
                let at = at.or((is_cut && !self.is_empty()).then_some(view.len()))?;
                Some(from + in_source(&levels[..count], at..at).start)
            });
        begins.min().unwrap_or(text.len())
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

/// Returns a text without its escapes, and that without its escapes, as long as there are some.
fn levels(text: &[u8]) -> Vec<Unescaped> {
    let mut levels: Vec<Unescaped> = Vec::new();
    for _ in 0..LEVELS {
        let Some(level) = Unescaped::of(levels.last().map_or(text, |level| &level.text)) else { break };
        levels.push(level);
    }
    levels
}

/// Returns the part of the first level's source that a part of the last level's text stands for.
fn in_source(levels: &[Unescaped], part: Range<usize>) -> Range<usize> {
    levels.iter().rev().fold(part, |part, level| level.in_source(part))
}
