//! Sessions of Gemini CLI: `chats/session-*.jsonl`, or `session-*.json` of older versions.
//!
//! The first line is about the session, and each further one is a message, `$set` with what has changed, or `$rewindTo` with the first
//! message that is no more. A message that is there again has more: the calls of an answer and its tokens come later. `$set` of `messages`
//! replaces all: after a summary, the messages before it are gone. Thoughts are kept without their signatures. The shapes are those of
//! versions 0.20 to 0.40; an older file is one object with all messages.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use agent_core::json::{RawFields, RawJson};
use agent_core::{Error, Result};

use crate::files;
use crate::formats::gemini_record;
use crate::formats::tree::Tree;
use crate::formats::values::{self, get, object, text};
use crate::formats::walk::Walk;
use crate::ids::EntryId;
use crate::lines::{LINE_MAX_BYTES, Lines};
use crate::source::{Entry, Item, Notes, Relation, Source, Transcript};
use crate::text::time;

/// Files of Gemini CLI.
#[derive(Debug)]
pub(crate) struct GeminiCli {
    files: VecDeque<PathBuf>,
    is_finished: bool,
    opened: Option<Opened>,
}

impl GeminiCli {
    pub(crate) fn open(path: &Path, is_finished: bool) -> Result<Self> {
        let mut found = files::find(path, "jsonl")?;
        if path.is_dir() {
            let is_session = |it: &PathBuf| stem(it).starts_with("session-");
            found.extend(files::find(path, "json")?.into_iter().filter(is_session));
        }
        if found.is_empty() {
            return Err(Error::invalid(format!("{} holds no files session-*.jsonl", path.display())));
        }
        // A file that was continued in the newer form is before it, and helpers are after those that call them.
        found.sort_by_key(|path| (parent(path).is_some(), path.clone()));
        Ok(Self { files: found.into(), is_finished, opened: None })
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the session that called a helper, by the folder of its file.
fn parent(path: &Path) -> Option<String> {
    let folder = path.parent()?;
    let is_helper = folder.parent()?.file_name()? == "chats" && !stem(path).starts_with("session-");
    is_helper.then(|| folder.file_name().map(|it| it.to_string_lossy().into_owned()))?
}

impl Source for GeminiCli {
    fn next_transcript(&mut self, notes: &mut Notes) -> Result<Option<Transcript>> {
        loop {
            if let Some(opened) = &mut self.opened
                && let Some((name, relation)) = opened.walk.next_branch()
            {
                let relation = match (relation, &opened.parent) {
                    (Relation::None, Some(of)) => Relation::Child { of: of.clone() },
                    (relation, _) => relation,
                };
                let about = &opened.about;
                return Ok(Some(Transcript {
                    name,
                    place: opened.place.clone(),
                    relation,
                    title: text(about, &["summary"]),
                    about: text(about, &["projectHash"]).map(|it| ("project", it)).into_iter().collect(),
                    at: get(about, &["startTime"]).and_then(time),
                }));
            }
            let Some(file) = self.files.pop_front() else {
                self.opened = None;
                return Ok(None);
            };
            self.opened = Some(Reading::read(&file, self.is_finished, notes)?);
        }
    }

    fn next_entry(&mut self, notes: &mut Notes) -> Result<Option<Entry>> {
        let Some(opened) = &mut self.opened else { return Ok(None) };
        let Some((number, id)) = opened.walk.step() else { return Ok(None) };
        opened.entry(number, id, notes).map(Some)
    }

    fn shared(&self) -> Vec<EntryId> {
        self.opened.as_ref().map(|opened| opened.walk.shared()).unwrap_or_default()
    }

    fn share_from(&mut self, number: usize) {
        if let Some(opened) = &mut self.opened {
            opened.walk.share_from(number);
        }
    }
}

/// Place of an entry: a line, the message in it, if it has several, and the part of the message.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    bytes: u32,
    message: Option<u32>,
    part: Piece,
}

/// Part of a message, which may come later than the others.
#[derive(Clone, Copy, Debug)]
enum Piece {
    Said,
    Call(u32),
    Tokens,
    /// Messages up to this one are a summary.
    Summary,
}

/// File whose tree is known.
#[derive(Debug)]
struct Opened {
    place: String,
    parent: Option<String>,
    about: RawFields,
    lines: Option<Lines>,
    /// Whole file of an older version.
    whole: Option<RawFields>,
    places: Vec<Place>,
    walk: Walk,
    /// Messages of the line that was read last, by its place.
    several: (u64, Vec<RawJson>),
}

impl Opened {
    fn entry(&mut self, number: u32, id: EntryId, notes: &mut Notes) -> Result<Entry> {
        let place = self.places[number as usize];
        let changed =
            || Error::invalid(format!("{} was changed while it was read; import it again", self.place));
        let message = match (place.message, &mut self.lines) {
            (Some(_), _) if self.several.0 == place.offset => None,
            (_, Some(lines)) => {
                let line = lines.read_at(place.offset, place.bytes as usize)?;
                Some(fields(line).ok_or_else(changed)?)
            }
            (_, None) => self.whole.clone(),
        };
        if let (Some(line), Some(_)) = (&message, place.message) {
            self.several = (place.offset, messages(line, &mut Notes::default()));
        }
        let message = match place.message {
            Some(at) => object(self.several.1.get(at as usize)),
            None => message.unwrap_or_default(),
        };
        let mut entry = Entry::new(id, get(&message, &["timestamp"]).and_then(time));
        match place.part {
            Piece::Said => gemini_record::said(&message, &mut entry, notes),
            Piece::Call(at) => gemini_record::call(&message, at as usize, &mut entry, notes),
            Piece::Tokens => gemini_record::tokens(&message, &self.place_of_session(), &mut entry),
            Piece::Summary => {
                let until = place.message.unwrap_or_default() as usize;
                let several = self.several.1.iter().take(until + 1);
                let texts: Vec<_> = several.map(|it| gemini_record::words(&object(Some(it)))).collect();
                entry.items.push(Item::Compaction(texts.join("\n")));
            }
        }
        Ok(entry)
    }

    fn place_of_session(&self) -> String {
        text(&self.about, &["sessionId"]).unwrap_or_else(|| self.place.clone())
    }
}

/// Returns the messages that a line replaces all others by.
fn messages(line: &RawFields, notes: &mut Notes) -> Vec<RawJson> {
    match get(line, &["$set"]) {
        Some(set) => values::list(get(&object(Some(set)), &["messages"]), notes),
        None => values::list(get(line, &["messages"]), notes),
    }
}

fn fields(line: &[u8]) -> Option<RawFields> {
    values::parse(std::str::from_utf8(line).ok()?)
}

/// File that is read for its tree.
#[derive(Debug, Default)]
struct Reading {
    tree: Tree,
    places: Vec<Place>,
    about: RawFields,
    /// Last entry.
    last: Option<u32>,
    /// Messages that are visible, in their order.
    line: Vec<EntryId>,
    seen: HashMap<EntryId, Seen>,
}

/// Message that was seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Entry before it.
    before: Option<u32>,
    /// Its line that was read last.
    place: Place,
    /// Number of its calls that have an entry, and of all.
    calls: (u32, u32),
    has_tokens: bool,
}

impl Reading {
    fn read(path: &Path, is_finished: bool, notes: &mut Notes) -> Result<Opened> {
        let (mut reading, place) = (Self::default(), path.display().to_string());
        let (mut lines, mut whole) = (None, None);
        if path.extension().is_some_and(|it| it == "json") {
            match files::read_small(path, LINE_MAX_BYTES as u64) {
                None => notes.count("files of more than 16 MiB"),
                Some(bytes) => match fields(&bytes) {
                    Some(fields) => {
                        reading.record(&fields, 0, 0, notes);
                        whole = Some(fields);
                    }
                    // It is written whole.
                    None => notes.cut_off = true,
                },
            }
        } else {
            lines = Some(reading.lines(path, notes)?);
        }
        if is_finished {
            reading.flush();
        }
        let name = text(&reading.about, &["sessionId"]).filter(|it| !it.is_empty());
        let parent = parent(path);
        let name = match (&parent, name) {
            (Some(parent), _) => format!("{parent}/{}", stem(path)),
            (None, Some(name)) => name,
            (None, None) => stem(path),
        };
        let walk = Walk::new(name, reading.tree);
        let (places, about) = (reading.places, reading.about);
        Ok(Opened { place, parent, about, lines, whole, places, walk, several: (u64::MAX, Vec::new()) })
    }

    fn lines(&mut self, path: &Path, notes: &mut Notes) -> Result<Lines> {
        let mut lines = Lines::open(path)?;
        while let Some(line) = lines.next()? {
            if line.is_too_long {
                notes.count("lines of more than 16 MiB");
            } else if let Some(fields) = fields(lines.bytes()) {
                self.record(&fields, line.offset, u32::try_from(line.bytes).unwrap_or(u32::MAX), notes);
            } else if !line.is_whole {
                notes.cut_off = true;
            } else if line.bytes > 0 {
                notes.count("lines that are no JSON objects");
            }
        }
        Ok(lines)
    }

    fn record(&mut self, fields: &RawFields, offset: u64, bytes: u32, notes: &mut Notes) {
        let place = Place { offset, bytes, message: None, part: Piece::Said };
        if let Some(to) = text(fields, &["$rewindTo"]) {
            self.rewind(EntryId::of(&to));
        } else if let Some(id) = text(fields, &["id"]) {
            self.message(&id, fields, place, notes);
        } else if let Some(set) = get(fields, &["$set"]) {
            self.about(&object(Some(set)));
            if get(&object(Some(set)), &["messages"]).is_some() {
                self.checkpoint(&messages(fields, notes), place, notes);
            }
        } else if get(fields, &["sessionId"]).is_some() {
            self.about(fields);
            let several = messages(fields, notes);
            for (at, message) in (0..).zip(&several) {
                let message = object(Some(message));
                match text(&message, &["id"]) {
                    Some(id) => self.message(&id, &message, Place { message: Some(at), ..place }, notes),
                    None => notes.count("messages without an id"),
                }
            }
        } else {
            notes.count("lines of no known kind");
        }
    }

    fn about(&mut self, fields: &RawFields) {
        for name in ["sessionId", "projectHash", "startTime", "summary"] {
            if let Some(value) = fields.get(name).filter(|value| value.get().len() < 4096) {
                // The id and the time of the beginning stay.
                if name == "summary" || self.about.get(name).is_none() {
                    self.about.insert(name, value.clone());
                }
            }
        }
    }

    /// Adds an entry behind the last one.
    fn add(&mut self, key: &str, place: Place, is_turn: bool) {
        let number = self.tree.add(EntryId::of(key), self.last, is_turn).or_else(|| {
            // The message was there before the person went back.
            let key = format!("{key}@{}.{}", place.offset, place.message.unwrap_or_default());
            self.tree.add(EntryId::of(&key), self.last, is_turn)
        });
        if let Some(number) = number {
            self.places.push(place);
            self.last = Some(number);
        }
    }

    fn message(&mut self, id: &str, fields: &RawFields, place: Place, notes: &mut Notes) {
        let key = EntryId::of(id);
        let kind = text(fields, &["type"]).unwrap_or_default();
        let is_known = self.seen.contains_key(&key);
        if !is_known {
            self.flush();
            self.seen.insert(key, Seen { before: self.last, place, calls: (0, 0), has_tokens: false });
            self.line.push(key);
            self.add(id, place, kind == "user" || kind == "gemini");
        }
        let Some(mut seen) = self.seen.get(&key).copied() else { return };
        seen.place = place;
        if !seen.has_tokens && get(fields, &["tokens"]).is_some() {
            seen.has_tokens = true;
            self.add(&format!("{key}#tokens"), Place { part: Piece::Tokens, ..place }, false);
        }
        let calls = values::list(get(fields, &["toolCalls"]), notes);
        let mut done = seen.calls.0;
        for call in calls.iter().skip(done as usize) {
            if !gemini_record::has_ended(&object(Some(call))) {
                break;
            }
            self.add(&format!("{key}#{done}"), Place { part: Piece::Call(done), ..place }, false);
            done += 1;
        }
        seen.calls = (done, u32::try_from(calls.len()).unwrap_or(u32::MAX).max(done));
        self.seen.insert(key, seen);
    }

    /// Adds the calls of the last message that have not ended: nothing of it will follow.
    fn flush(&mut self) {
        let Some(key) = self.line.last().copied() else { return };
        let Some(Seen { place, calls: (done, all), .. }) = self.seen.get(&key).copied() else { return };
        for at in done..all {
            self.add(&format!("{key}#{at}"), Place { part: Piece::Call(at), ..place }, false);
        }
        if let Some(seen) = self.seen.get_mut(&key) {
            seen.calls.0 = all;
        }
    }

    /// Goes back to before a message. If there is none, everything is gone.
    fn rewind(&mut self, to: EntryId) {
        self.flush();
        let at = self.line.iter().rposition(|id| *id == to).unwrap_or_default();
        self.last = self.line.get(at).and_then(|id| self.seen.get(id)).and_then(|seen| seen.before);
        for gone in self.line.drain(at..) {
            self.seen.remove(&gone);
        }
    }

    /// Takes the messages that replace all others.
    fn checkpoint(&mut self, several: &[RawJson], place: Place, notes: &mut Notes) {
        self.flush();
        let ids: Vec<Option<String>> = several.iter().map(|it| text(&object(Some(it)), &["id"])).collect();
        let now: Vec<EntryId> = ids.iter().flatten().map(|id| EntryId::of(id)).collect();
        let is_more = {
            let mut left = now.iter();
            self.line.iter().all(|old| left.any(|id| id == old))
        };
        if !is_more {
            notes.count("times that messages were replaced by a summary");
            let known = ids
                .iter()
                .position(|id| id.as_ref().is_some_and(|id| self.seen.contains_key(&EntryId::of(id))));
            let summary = known.unwrap_or(several.len());
            self.line.clear();
            self.seen.clear();
            if let Some(last) = summary.checked_sub(1).and_then(|it| u32::try_from(it).ok()) {
                let place = Place { message: Some(last), part: Piece::Summary, ..place };
                self.add(&format!("summary@{}", place.offset), place, true);
                for id in ids.iter().take(summary).flatten() {
                    let seen = Seen { before: self.last, place, calls: (0, 0), has_tokens: true };
                    self.seen.insert(EntryId::of(id), seen);
                    self.line.push(EntryId::of(id));
                }
            }
        }
        for ((at, message), id) in (0..).zip(several).zip(&ids) {
            match id {
                // What is there again is there as it was, which is more: large outputs are cut in it.
                Some(id) if self.seen.contains_key(&EntryId::of(id)) => {}
                Some(id) => {
                    self.message(id, &object(Some(message)), Place { message: Some(at), ..place }, notes);
                }
                None => notes.count("messages without an id"),
            }
        }
    }
}
