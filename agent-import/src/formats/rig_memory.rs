//! Sessions that rig-memory keeps in a folder: `logs/<agent>.jsonl`, in the format `rig-session/4`.
//!
//! The first line of a log is its header, and each further one is a value (`state`) or a change of the conversation: `push` adds messages,
//! `splice` replaces some, and `reset` all. A splice of the end is a way back, one of the beginning a summary. Each message has a number.
//! Images are in `files/blobs`. The shapes are those of versions 0.44 to 0.46.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use agent_core::json::{RawFields, RawJson};
use agent_core::{Error, Result, Timestamp};

use crate::files;
use crate::formats::rig_message;
use crate::formats::tree::Tree;
use crate::formats::values::{self, get, object, text};
use crate::formats::walk::Walk;
use crate::ids::EntryId;
use crate::lines::Lines;
use crate::source::{Entry, Item, Notes, Relation, Source, Transcript};
use crate::text::time;

/// Maximum number of bytes of the file about a session.
const META_MAX_BYTES: u64 = 1 << 20;

/// Logs of rig-memory.
#[derive(Debug)]
pub(crate) struct RigMemory {
    logs: VecDeque<Log>,
    opened: Option<Opened>,
}

/// Log with its name and that of the one whose agent called this one.
#[derive(Clone, Debug)]
struct Log {
    path: PathBuf,
    name: String,
    parent: Option<String>,
}

impl RigMemory {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let found = files::find(path, "jsonl")?;
        let is_log =
            |it: &PathBuf| stem(it) != "session" && it.parent().is_some_and(|it| it.ends_with("logs"));
        let found: Vec<_> = found.into_iter().filter(|it| path.is_file() || is_log(it)).collect();
        if found.is_empty() {
            return Err(Error::invalid(format!(
                "{} holds no files logs/*.jsonl of rig-memory",
                path.display()
            )));
        }
        let headers: Vec<_> = found.into_iter().map(header).collect::<Result<_>>()?;
        let key = |path: &Path, log: &str| (path.parent().map(Path::to_owned), log.to_owned());
        let names: HashMap<_, _> =
            headers.iter().map(|(path, name, _)| (key(path, &stem(path)), name.clone())).collect();
        let parents: HashMap<_, _> = headers
            .iter()
            .filter_map(|(path, name, parent)| {
                Some((name.clone(), names.get(&key(path, parent.as_ref()?))?.clone()))
            })
            .collect();
        let logs = headers.into_iter().map(|(path, name, _)| {
            let parent = parents.get(&name).cloned();
            Log { path, name, parent }
        });
        let mut logs: Vec<_> = logs.collect();
        logs.sort_by_cached_key(|log| {
            let (mut depth, mut at) = (0, log.parent.as_ref());
            while let Some(parent) = at.filter(|_| depth < 64) {
                (depth, at) = (depth + 1, parents.get(parent));
            }
            (depth, log.path.clone())
        });
        Ok(Self { logs: logs.into(), opened: None })
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns a log with its name, which is of its lineage, and its parent.
fn header(path: PathBuf) -> Result<(PathBuf, String, Option<String>)> {
    let mut lines = Lines::open(&path)?;
    let fields = match lines.next()? {
        Some(_) => fields(lines.bytes()).unwrap_or_default(),
        None => RawFields::new(),
    };
    let lineage = get(&fields, &["lineage"]).map(|it| it.get().to_owned()).filter(|it| it.len() < 32);
    let name = format!("{}/{}", stem(&path), lineage.unwrap_or_default());
    Ok((path, name, text(&fields, &["parent"])))
}

fn fields(line: &[u8]) -> Option<RawFields> {
    values::parse(std::str::from_utf8(line).ok()?)
}

impl Source for RigMemory {
    fn next_transcript(&mut self, notes: &mut Notes) -> Result<Option<Transcript>> {
        loop {
            if let Some(opened) = &mut self.opened
                && let Some((name, relation)) = opened.walk.next_branch()
            {
                let relation = match (relation, &opened.log.parent) {
                    (Relation::None, Some(of)) => Relation::Child { of: of.clone() },
                    (relation, _) => relation,
                };
                return Ok(Some(Transcript {
                    name,
                    place: opened.log.path.display().to_string(),
                    relation,
                    title: opened.title.clone(),
                    at: opened.at,
                    ..Transcript::default()
                }));
            }
            let Some(log) = self.logs.pop_front() else {
                self.opened = None;
                return Ok(None);
            };
            self.opened = Some(Reading::read(log, notes)?);
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

/// Place of an entry: a line, and the message in it. A summary is all messages of the line that were new.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    bytes: u32,
    message: u32,
    is_summary: bool,
}

/// Log whose tree is known.
#[derive(Debug)]
struct Opened {
    log: Log,
    lines: Lines,
    places: Vec<Place>,
    walk: Walk,
    title: Option<String>,
    at: Option<Timestamp>,
    /// Line that was read last.
    line: (u64, RawFields, Vec<RawJson>),
}

impl Opened {
    fn entry(&mut self, number: u32, id: EntryId, notes: &mut Notes) -> Result<Entry> {
        let place = self.places[number as usize];
        if self.line.0 != place.offset {
            let line = fields(self.lines.read_at(place.offset, place.bytes as usize)?).ok_or_else(|| {
                let path = self.log.path.display();
                Error::invalid(format!("{path} was changed while it was read; import it again"))
            })?;
            let several = entries(&line, &mut Notes::default());
            self.line = (place.offset, line, several);
        }
        let (_, line, several) = &self.line;
        let found = object(several.get(place.message as usize));
        let at = get(&found, &["made"]).and_then(time).or_else(|| get(line, &["t"]).and_then(time));
        let mut entry = Entry::new(id, at);
        if place.is_summary {
            let kept = usize::try_from(place.message).unwrap_or(usize::MAX);
            let texts = several.iter().take(kept).map(|it| rig_message::words(&object(Some(it))));
            entry.items.push(Item::Compaction(texts.collect::<Vec<_>>().join("\n")));
        } else {
            let blobs = self.log.path.parent().and_then(Path::parent).map(|it| it.join("files/blobs"));
            rig_message::items(&found, line, blobs.as_deref(), &mut entry, notes);
        }
        Ok(entry)
    }
}

/// Returns the messages of a change, each with its number. Those of a reset are beside their numbers.
fn entries(line: &RawFields, notes: &mut Notes) -> Vec<RawJson> {
    if let Some(state) = get(line, &["state"]).filter(|_| text(line, &["type"]).as_deref() == Some("reset")) {
        let state = object(Some(state));
        let about = values::list(get(&state, &["meta"]), notes);
        let messages = values::list(get(&state, &["messages"]), notes);
        let mut about = about.iter().map(|about| object(Some(about)));
        let with = |message| {
            let mut entry = about.next().unwrap_or_default();
            entry.insert("message", message);
            RawJson::sure(&entry)
        };
        return messages.into_iter().map(with).collect();
    }
    values::list(get(line, &["entries", "with"]), notes)
}

/// Log that is read for its tree.
#[derive(Debug, Default)]
struct Reading {
    tree: Tree,
    places: Vec<Place>,
    title: Option<String>,
    at: Option<Timestamp>,
    last: Option<u32>,
    /// Messages that the conversation has, with their entries.
    line: Vec<(EntryId, u32)>,
}

impl Reading {
    fn read(log: Log, notes: &mut Notes) -> Result<Opened> {
        let mut lines = Lines::open(&log.path)?;
        let mut reading = Self::default();
        while let Some(line) = lines.next()? {
            if line.is_too_long {
                notes.count("lines of more than 16 MiB");
            } else if let Some(fields) = fields(lines.bytes()) {
                let bytes = u32::try_from(line.bytes).unwrap_or(u32::MAX);
                let place = Place { offset: line.offset, bytes, message: 0, is_summary: false };
                reading.record(&fields, place, notes);
            } else if !line.is_whole {
                notes.cut_off = true;
            } else if line.bytes > 0 {
                notes.count("lines that are no JSON objects");
            }
        }
        let meta = log.path.parent().and_then(Path::parent).map(|it| it.join("files/meta.json"));
        let meta =
            meta.filter(|_| log.parent.is_none()).and_then(|it| files::read_small(&it, META_MAX_BYTES));
        let title = reading.title.or_else(|| text(&fields(&meta?)?, &["title"]));
        let walk = Walk::new(log.name.clone(), reading.tree);
        let (places, at, line) = (reading.places, reading.at, (u64::MAX, RawFields::new(), Vec::new()));
        Ok(Opened { log, lines, places, walk, title, at, line })
    }

    fn record(&mut self, fields: &RawFields, place: Place, notes: &mut Notes) {
        let kind = text(fields, &["type"]).unwrap_or_default();
        self.at = self.at.or_else(|| get(fields, &["t"]).and_then(time));
        let number = |name| get(fields, &[name]).and_then(|it| it.to::<usize>().ok());
        match &*kind {
            "header" => {}
            "state" if text(fields, &["key"]).as_deref() == Some("rig::title") => {
                self.title = text(fields, &["value"]).or_else(|| self.title.take());
            }
            "push" => {
                for (at, entry) in (0..).zip(&entries(fields, notes)) {
                    self.add(&object(Some(entry)), Place { message: at, ..place });
                }
            }
            "splice" => {
                let all = self.line.len();
                let from = number("from").unwrap_or(all).min(all);
                let to = number("to").unwrap_or(all).clamp(from, all);
                self.splice(from, to, &entries(fields, notes), place, notes);
            }
            "reset" => self.splice(0, self.line.len(), &entries(fields, notes), place, notes),
            _ => notes.count(format!("lines of type {}", crate::text::clip(&kind, 40))),
        }
    }

    /// Returns what a message is found by.
    fn key(entry: &RawFields, place: Place) -> EntryId {
        match get(entry, &["id"]).filter(|id| id.get().len() < 32) {
            Some(id) => EntryId::of(id.get()),
            None => EntryId::of(&format!("#{}.{}", place.offset, place.message)),
        }
    }

    /// Adds a message behind the last one.
    fn add(&mut self, entry: &RawFields, place: Place) {
        let key = Self::key(entry, place);
        if let Some(number) = self.put(key, place) {
            self.line.push((key, number));
        }
    }

    fn put(&mut self, key: EntryId, place: Place) -> Option<u32> {
        // A number that was there already is that of another message, of before a way back.
        let other = EntryId::of(&format!("{key}@{}.{}", place.offset, self.places.len()));
        let number = [key, other].into_iter().find_map(|key| self.tree.add(key, self.last, true))?;
        self.places.push(place);
        self.last = Some(number);
        Some(number)
    }

    /// Replaces messages by others. Those that keep their number stay as they were.
    fn splice(&mut self, from: usize, to: usize, with: &[RawJson], place: Place, notes: &mut Notes) {
        let with: Vec<_> = (0..)
            .zip(with)
            .map(|(at, entry)| {
                let place = Place { message: at, ..place };
                let entry = object(Some(entry));
                let key = Self::key(&entry, place);
                let old = self.line[from..to].iter().find(|(old, _)| *old == key).copied();
                (entry, place, old)
            })
            .collect();
        let changed = with.iter().filter(|(_, _, old)| old.is_some()).count();
        if changed > 0 {
            notes.add("messages that were changed later, which are kept as they were", changed as u64);
        }
        if changed == with.len() && (changed > 0 || to < self.line.len()) {
            // Some were taken out, or none.
            self.line.splice(from..to, with.into_iter().filter_map(|(_, _, old)| old));
            return;
        }
        if to == self.line.len() && from > 0 || self.line.is_empty() || with.is_empty() {
            self.line.truncate(from);
            self.last = self.line.last().map(|(_, number)| *number);
            for (entry, place, old) in with {
                match old {
                    // Again behind others.
                    Some((key, number)) => self.again(key, number, place.offset),
                    None => self.add(&entry, place),
                }
            }
            return;
        }
        let first_old = with.iter().take_while(|(_, _, old)| old.is_none()).count();
        let message = u32::try_from(first_old).unwrap_or(u32::MAX);
        let tail = self.line.split_off(to);
        let head: Vec<_> = self.line.drain(..).take(from).collect();
        let key = EntryId::of(&format!("summary@{}", place.offset));
        if let Some(number) = self.put(key, Place { message, is_summary: true, ..place }) {
            self.line.push((key, number));
        }
        for (key, number) in head {
            self.again(key, number, place.offset);
        }
        for (entry, place, old) in with.into_iter().skip(first_old) {
            match old {
                Some((key, number)) => self.again(key, number, place.offset),
                None => self.add(&entry, place),
            }
        }
        for (key, number) in tail {
            self.again(key, number, place.offset);
        }
    }

    /// Adds a message again behind the last one, as it was.
    fn again(&mut self, key: EntryId, number: u32, offset: u64) {
        let place = self.places[number as usize];
        let other = EntryId::of(&format!("{key} again @{offset}"));
        if let Some(number) = self.put(other, place) {
            self.line.push((key, number));
        }
    }
}
