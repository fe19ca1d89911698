//! Checkpoints of LangGraph in SQLite, as `langgraph-checkpoint-sqlite` writes them.
//!
//! A checkpoint is the whole state of a thread, in MessagePack, and names the one before it. Its channel `messages` holds objects of
//! `langchain_core.messages`, each an extension with the names of its module and class and its members: these are read as values, and
//! objects of any other class are left out. The last checkpoint of each branch has all its messages. The shapes are those of versions 1.0
//! to 3.1; older ones have JSON.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use agent_core::json::{RawFields, RawJson};
use agent_core::{Result, Timestamp};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::database::{self, bounded};
use crate::formats::langchain;
use crate::formats::msgpack::{Head, Reader};
use crate::formats::tree::Tree;
use crate::formats::values::{self, get, object, text};
use crate::formats::walk::Walk;
use crate::ids::EntryId;
use crate::source::{Entry, Notes, Relation, Source, Transcript};
use crate::text::{clip, time};

/// Maximum number of messages of a checkpoint.
const MESSAGES_MAX: usize = 200_000;

/// Database of checkpoints.
#[derive(Debug)]
pub(crate) struct LangGraph {
    conn: Connection,
    place: String,
    /// Threads with their namespaces, each after the thread that it belongs to.
    threads: VecDeque<[String; 2]>,
    opened: Option<Opened>,
}

/// Thread whose tree is known.
#[derive(Debug)]
struct Opened {
    thread: [String; 2],
    /// For each entry the row of the checkpoint that has it, and its number there.
    places: Vec<(i64, u32)>,
    at: Option<Timestamp>,
    walk: Walk,
    /// Checkpoint that was read last.
    state: (i64, State),
}

/// What a checkpoint holds.
#[derive(Debug, Default)]
struct State {
    at: Option<Timestamp>,
    messages: Vec<Message>,
}

/// Message of a checkpoint: its class and its members.
#[derive(Debug)]
struct Message {
    class: String,
    fields: RawFields,
}

impl LangGraph {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let path = database::file(path, "checkpoints.sqlite");
        let (conn, place) = (database::open(&path)?, path.display().to_string());
        let needed =
            ["thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type", "checkpoint"];
        database::columns(&conn, &place, "checkpoints", &needed)?;
        let sql = "SELECT thread_id, checkpoint_ns, min(checkpoint_id) FROM checkpoints \
                   GROUP BY thread_id, checkpoint_ns ORDER BY checkpoint_ns != '', 3, 1, 2";
        let threads = database::all(&conn, &place, sql, &[], |row| {
            Some([database::text(row, 0)?, database::text(row, 1).unwrap_or_default()])
        })?;
        Ok(Self { conn, place, threads: threads.into(), opened: None })
    }

    /// Reads a checkpoint.
    fn state(&self, rowid: i64, notes: &mut Notes) -> Result<State> {
        let sql = format!("SELECT type, {} FROM checkpoints WHERE rowid = ?1", bounded("checkpoint"));
        let read = |row: &rusqlite::Row<'_>| {
            let kind = database::text(row, 0).unwrap_or_default();
            let bytes = match row.get_ref(1) {
                Ok(ValueRef::Blob(bytes) | ValueRef::Text(bytes)) => bytes,
                _ => &[],
            };
            let mut notes = Notes::default();
            let state = match &*kind {
                "msgpack" => unpack(bytes, &mut notes),
                "json" => {
                    std::str::from_utf8(bytes).ok().and_then(values::parse).map(|it| parse(&it, &mut notes))
                }
                _ => None,
            };
            (state, notes)
        };
        let (state, more) = database::one(&self.conn, &self.place, &sql, rowid, read)?.unwrap_or_default();
        for (kind, count) in more.counts {
            notes.add(kind, count);
        }
        if state.is_none() {
            notes.count("checkpoints that cannot be read, or of more than 16 MiB");
        }
        Ok(state.unwrap_or_default())
    }

    /// Returns the last checkpoint of each branch of a thread, in the order in which the branches began, and the first one of all.
    fn leaves(&self, thread: &[String; 2]) -> Result<(Vec<i64>, Option<i64>)> {
        let sql = "SELECT rowid, checkpoint_id, parent_checkpoint_id FROM checkpoints \
                   WHERE thread_id = ?1 AND checkpoint_ns = ?2 ORDER BY checkpoint_id, rowid";
        let params = [&*thread[0], &*thread[1]];
        let all = database::all(&self.conn, &self.place, sql, &params, |row| {
            Some((row.get::<_, i64>(0).ok()?, database::text(row, 1)?, database::text(row, 2)))
        })?;
        let mut tree = Tree::default();
        let mut rows = Vec::new();
        for (rowid, id, parent) in all {
            let parent = parent.and_then(|parent| tree.find(EntryId::of(&parent)));
            if tree.add(EntryId::of(&id), parent, true).is_some() {
                rows.push(rowid);
            }
        }
        let branches = tree.branches();
        let count = branches.branches.len();
        let last = |branch| branches.path(branch).last().and_then(|at| rows.get(*at as usize)).copied();
        Ok(((0..count).filter_map(last).collect(), rows.first().copied()))
    }

    fn read(&self, thread: [String; 2], notes: &mut Notes) -> Result<Opened> {
        let (leaves, first) = self.leaves(&thread)?;
        let (mut tree, mut places) = (Tree::default(), Vec::new());
        let mut parents: HashMap<EntryId, Option<u32>> = HashMap::new();
        for rowid in leaves {
            let state = self.state(rowid, notes)?;
            let mut last = None;
            for (number, message) in (0..).zip(&state.messages) {
                let id = text(&message.fields, &["id"]).filter(|id| !id.is_empty());
                let id = id.unwrap_or_else(|| format!("#{number}"));
                // The same message may be behind another one, in another branch.
                let keys = [EntryId::of(&id), EntryId::of(&format!("{id} behind {last:?}"))];
                let found = keys.iter().find(|key| parents.get(key).is_some_and(|parent| *parent == last));
                last = match found.and_then(|key| tree.find(*key)) {
                    Some(known) => Some(known),
                    None => {
                        let added = keys.iter().find_map(|key| Some((*key, tree.add(*key, last, true)?)));
                        let Some((key, added)) = added else {
                            notes.count("messages with the id of another");
                            continue;
                        };
                        parents.insert(key, last);
                        places.push((rowid, number));
                        Some(added)
                    }
                };
            }
        }
        let at = match first {
            Some(rowid) => self.state(rowid, &mut Notes::default())?.at,
            None => None,
        };
        let walk = Walk::new(name(&thread[0], &thread[1]), tree);
        Ok(Opened { thread, places, at, walk, state: (-1, State::default()) })
    }
}

/// Returns the name of a thread, or of a part of its graph that has messages of its own.
fn name(thread: &str, namespace: &str) -> String {
    let thread = thread.replace('%', "%25").replace('/', "%2F");
    if namespace.is_empty() { thread } else { format!("{thread}/{namespace}") }
}

impl Source for LangGraph {
    fn next_transcript(&mut self, notes: &mut Notes) -> Result<Option<Transcript>> {
        loop {
            if let Some(opened) = &mut self.opened
                && let Some((own, relation)) = opened.walk.next_branch()
            {
                let [thread, namespace] = &opened.thread;
                let relation = match relation {
                    Relation::None if !namespace.is_empty() => Relation::Child { of: name(thread, "") },
                    relation => relation,
                };
                let namespace = Some(("namespace", namespace.clone())).filter(|(_, it)| !it.is_empty());
                return Ok(Some(Transcript {
                    name: own,
                    place: format!("{}: thread {}", self.place, clip(thread, 200)),
                    relation,
                    title: None,
                    about: namespace.into_iter().collect(),
                    at: opened.at,
                }));
            }
            let Some(thread) = self.threads.pop_front() else {
                self.opened = None;
                return Ok(None);
            };
            self.opened = Some(self.read(thread, notes)?);
        }
    }

    fn next_entry(&mut self, notes: &mut Notes) -> Result<Option<Entry>> {
        let Some(opened) = &mut self.opened else { return Ok(None) };
        let Some((number, id)) = opened.walk.step() else { return Ok(None) };
        let (rowid, at) = opened.places[number as usize];
        if opened.state.0 != rowid {
            let state = self.state(rowid, &mut Notes::default())?;
            if let Some(opened) = &mut self.opened {
                opened.state = (rowid, state);
            }
        }
        let Some(opened) = &self.opened else { return Ok(None) };
        let mut entry = Entry::new(id, None);
        if let Some(Message { class, fields }) = opened.state.1.messages.get(at as usize) {
            langchain::items(class, fields, &opened.thread[0], &mut entry, notes);
        }
        Ok(Some(entry))
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

/// Reads a checkpoint in MessagePack: only its time and the channel of messages.
fn unpack(bytes: &[u8], notes: &mut Notes) -> Option<State> {
    let mut reader = Reader(bytes);
    let Head::Map(count) = reader.head()? else { return None };
    let mut state = State::default();
    for _ in 0..count {
        match reader.text()? {
            "ts" => {
                let mut value = reader;
                state.at = value.json().and_then(|at| time(&at));
                reader.skip()?;
            }
            "channel_values" => {
                let mut values = reader;
                if let Some(Head::Map(channels)) = values.head() {
                    for _ in 0..channels {
                        let channel = values.text()?;
                        if channel == "messages" {
                            let mut list = values;
                            state.messages = messages(&mut list, notes).unwrap_or_default();
                        } else {
                            notes.count(format!("channels of name {}", clip(channel, 40)));
                        }
                        values.skip()?;
                    }
                }
                reader.skip()?;
            }
            _ => reader.skip()?,
        }
    }
    Some(state)
}

fn messages(reader: &mut Reader<'_>, notes: &mut Notes) -> Option<Vec<Message>> {
    let Head::List(count) = reader.head()? else {
        notes.count("channels of messages that are no list");
        return None;
    };
    let mut found = Vec::new();
    for _ in 0..count {
        if found.len() == MESSAGES_MAX {
            notes.count("checkpoints of more than 200000 messages");
            break;
        }
        let mut value = *reader;
        reader.skip()?;
        match value.head().and_then(|head| message(head, notes)) {
            Some(message) => found.push(message),
            None => notes.count("messages that are no objects of langchain_core.messages"),
        }
    }
    Some(found)
}

/// Reads an object: the names of its module and its class, its members, and how it is made, which does not matter here.
fn message(head: Head<'_>, notes: &mut Notes) -> Option<Message> {
    let Head::Extension(_, bytes) = head else { return None };
    let mut reader = Reader(bytes);
    let Head::List(3..) = reader.head()? else { return None };
    let (module, class) = (reader.text()?, reader.text()?);
    if module != "langchain_core.messages" && !module.starts_with("langchain_core.messages.") {
        notes.count(format!("objects of module {}", clip(module, 60)));
        return None;
    }
    Some(Message { class: clip(class, 60), fields: reader.json()?.to().ok()? })
}

/// Reads a checkpoint in JSON, in which objects are `{"lc": 1, "type": "constructor", "id": [..., class], "kwargs": {...}}`.
fn parse(fields: &RawFields, notes: &mut Notes) -> State {
    let channels = object(get(fields, &["channel_values"]));
    for (name, _) in channels.iter().filter(|(name, _)| *name != "messages") {
        notes.count(format!("channels of name {}", clip(name, 40)));
    }
    let mut found = Vec::new();
    for message in values::list(channels.get("messages"), notes) {
        let message = object(Some(&message));
        let path = values::list(get(&message, &["id"]), notes);
        let class = path.last().and_then(|class: &RawJson| class.to::<String>().ok());
        match class.filter(|_| path.iter().any(|part| part.get() == "\"messages\"")) {
            Some(class) => {
                found.push(Message { class: clip(&class, 60), fields: object(get(&message, &["kwargs"])) });
            }
            None => notes.count("messages that are no objects of langchain_core.messages"),
        }
    }
    State { at: get(fields, &["ts"]).and_then(time), messages: found }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an object of a class, as an extension of MessagePack has it.
    fn object_of(module: &str, class: &str) -> Vec<u8> {
        let mut bytes = vec![0x94];
        for text in [module, class] {
            bytes.extend([0xd9, u8::try_from(text.len()).unwrap_or_default()]);
            bytes.extend(text.as_bytes());
        }
        bytes.extend([0x81, 0xa7]);
        bytes.extend(b"content\xa2rm\xa1m");
        bytes
    }

    #[test]
    fn only_objects_of_messages_are_read() {
        let mut notes = Notes::default();
        let read = |module, notes: &mut Notes| {
            let bytes = object_of(module, "HumanMessage");
            message(Head::Extension(5, &bytes), notes).map(|it| text(&it.fields, &["content"]))
        };
        assert_eq!(read("langchain_core.messages.human", &mut notes), Some(Some("rm".to_owned())));
        assert!(notes.counts.is_empty());
        for module in ["os", "langchain_core.messagesx", "langchain_core.prompts"] {
            assert_eq!(read(module, &mut notes), None);
            assert_eq!(notes.counts[&format!("objects of module {module}")], 1);
        }
    }
}
