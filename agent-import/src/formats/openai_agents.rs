//! Databases of the Python package `openai-agents`: `SQLiteSession`, and `AdvancedSQLiteSession`, which has branches.
//!
//! `agent_messages` has an item of the Responses API in each row, in the order of its ids, which are never used again. With branches,
//! `message_structure` lists the messages of each: a branch begins with those of another one, up to a turn. `turn_usage` has the tokens of
//! each turn of a branch. The tables are those of versions 0.2 to 0.24, under the names that these give them.

use std::collections::{HashSet, VecDeque};
use std::path::Path;

use agent_core::event::EventPayload;
use agent_core::json::{RawFields, RawJson};
use agent_core::model::{RunUsage, Usage};
use agent_core::{Error, Result, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::database::{self, VALUE_MAX_BYTES};
use crate::formats::responses::{self, By};
use crate::ids::{self, EntryId};
use crate::source::{Entry, Item, Notes, Relation, Source, Transcript};
use crate::text;

/// Branch that each session begins with.
const MAIN: &str = "main";
/// Maximum number of branches of a session.
const BRANCHES_MAX: u32 = 1000;
/// Maximum number of messages of a branch.
const MESSAGES_MAX: u32 = 1_000_000;
/// Maximum number of bytes of the id of a session or a branch.
const NAME_MAX_BYTES: i64 = 4096;

/// Database of `openai-agents`.
#[derive(Debug)]
pub(crate) struct OpenAiAgents {
    database: Database,
    is_finished: bool,
    /// Row of the session that was read last.
    row: i64,
    session: Session,
    /// Messages of the branch that is read.
    branch: Branch,
}

#[derive(Debug)]
struct Database {
    connection: Connection,
    place: String,
    has_branches: bool,
    has_usage: bool,
}

/// Session that is read.
#[derive(Debug, Default)]
struct Session {
    id: String,
    at: Option<Timestamp>,
    /// Branches that are read already, and those that are left.
    read: Vec<String>,
    left: VecDeque<String>,
}

/// Branch that is read.
#[derive(Debug, Default)]
struct Branch {
    id: String,
    /// Name of its transcript.
    name: String,
    messages: Vec<Message>,
    /// Number of messages that it shares.
    shared: usize,
    at: usize,
    /// Turn whose tokens were not counted yet.
    turn: Option<i64>,
}

/// Message, and the number of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    id: i64,
    turn: Option<i64>,
}

impl OpenAiAgents {
    pub(crate) fn open(path: &Path, is_finished: bool) -> Result<Self> {
        let connection = database::open(path)?;
        let place = path.display().to_string();
        let has = |name| database::has_table(&connection, &place, name);
        if !has("agent_sessions")? || !has("agent_messages")? {
            return Err(Error::invalid(format!(
                "{place} has no tables agent_sessions and agent_messages, so that it is no database of openai-agents"
            )));
        }
        let (has_branches, has_usage) = (has("message_structure")?, has("turn_usage")?);
        let database = Database { connection, place, has_branches, has_usage };
        let (session, branch) = (Session::default(), Branch::default());
        Ok(Self { database, is_finished, row: i64::MIN, session, branch })
    }

    /// Goes to the next session; returns whether there is one.
    fn next_session(&mut self, notes: &mut Notes) -> Result<bool> {
        loop {
            let found = self.database.one(
                "SELECT rowid, CASE WHEN octet_length(session_id) <= ?2 THEN session_id END,
                        CASE WHEN octet_length(created_at) < 64 THEN created_at END FROM agent_sessions
                 WHERE rowid > ?1 ORDER BY rowid LIMIT 1",
                params![self.row, NAME_MAX_BYTES],
                |row| Ok((row.get::<_, i64>(0)?, text_of(row, 1)?, time_of(row, 2)?)),
            )?;
            let Some((row, id, at)) = found else { return Ok(false) };
            self.row = row;
            let Some(id) = id else {
                notes.count("sessions whose id is no text, or longer than 4 KiB");
                continue;
            };
            let left = self.database.branches(&id, notes)?;
            self.session = Session { id, at, read: Vec::new(), left };
            return Ok(true);
        }
    }
}

impl Source for OpenAiAgents {
    fn next_transcript(&mut self, notes: &mut Notes) -> Result<Option<Transcript>> {
        while self.session.left.is_empty() {
            if !self.next_session(notes)? {
                return Ok(None);
            }
        }
        let Some(id) = self.session.left.pop_front() else { return Ok(None) };
        let messages = self.database.messages(&self.session.id, &id, notes)?;
        let (of, shared) = self.database.origin(&self.session, &messages)?;
        let relation = match of {
            Some(of) => Relation::Branch { of: self.session.name(&of) },
            None => Relation::None,
        };
        let name = self.session.name(&id);
        self.session.read.push(id.clone());
        self.branch = Branch { id, name: name.clone(), messages, shared, at: shared, turn: None };
        let place = format!("{}, session {}", self.database.place, text::clip(&name, 256));
        let at = self.session.at;
        Ok(Some(Transcript { name, place, relation, at, ..Transcript::default() }))
    }

    fn next_entry(&mut self, notes: &mut Notes) -> Result<Option<Entry>> {
        while let Some(message) = self.branch.messages.get(self.branch.at).copied() {
            self.branch.at += 1;
            let Some((key, data, at)) = self.database.message(&self.session.id, message, notes)? else {
                continue;
            };
            let mut entry = Entry::new(key, at);
            let (by, items) = responses::item(&data, notes);
            entry.begins_turn = by == By::User;
            if self.branch.turn != message.turn {
                self.end_turn(&mut entry.items, notes);
                // What was shared is counted where it was said.
                self.branch.turn = message.turn.filter(|_| self.branch.at > self.branch.shared);
            }
            entry.items.extend(items);
            return Ok(Some(entry));
        }
        let mut entry = Entry::new(EntryId::of("end of the last turn"), None);
        if self.is_finished {
            self.end_turn(&mut entry.items, notes);
        }
        Ok((!entry.items.is_empty()).then_some(entry))
    }

    fn shared(&self) -> Vec<EntryId> {
        let shared = &self.branch.messages[..self.branch.shared];
        shared.iter().map(|message| self.database.key(&self.session.id, *message)).collect()
    }

    fn share_from(&mut self, number: usize) {
        self.branch.at = number.min(self.branch.messages.len());
    }
}

impl OpenAiAgents {
    /// Adds the tokens of the turn that ends.
    fn end_turn(&mut self, items: &mut Vec<Item>, notes: &mut Notes) {
        let Some(turn) = self.branch.turn.take() else { return };
        match self.database.usage(&self.session.id, &self.branch.id, turn) {
            Ok(None) => {}
            Ok(Some(usage)) => {
                let run = ids::run(&self.branch.name, &format!("turn {turn}"));
                items.push(Item::Event(EventPayload::SessionRunUsage(RunUsage::new(run, usage))));
            }
            // The conversation is there all the same.
            Err(_) => notes.count("tokens of turns that cannot be read"),
        }
    }
}

impl Session {
    /// Returns the name of a branch's transcript.
    fn name(&self, branch: &str) -> String {
        match branch {
            MAIN => self.id.clone(),
            _ => format!("{}#{branch}", self.id),
        }
    }
}

impl Database {
    fn failed(&self, source: rusqlite::Error) -> Error {
        database::failed(&self.place, source)
    }

    /// Returns the row of a query that has at most one.
    fn one<T>(
        &self,
        query: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        let found =
            self.connection.prepare_cached(query).and_then(|mut it| it.query_row(params, read).optional());
        found.map_err(|source| self.failed(source))
    }

    /// Returns the branches of a session, the oldest first.
    fn branches(&self, session: &str, notes: &mut Notes) -> Result<VecDeque<String>> {
        let mut branches = VecDeque::new();
        if self.has_branches {
            let query = "SELECT CASE WHEN octet_length(branch_id) <= ?2 THEN branch_id END, min(id) FROM message_structure
                 WHERE session_id = ?1 GROUP BY branch_id ORDER BY 2 LIMIT ?3";
            let mut query = self.connection.prepare_cached(query).map_err(|source| self.failed(source))?;
            let found =
                query.query_map(params![session, NAME_MAX_BYTES, BRANCHES_MAX + 1], |row| text_of(row, 0));
            for branch in found.map_err(|source| self.failed(source))? {
                match branch.map_err(|source| self.failed(source))? {
                    _ if branches.len() == BRANCHES_MAX as usize => {
                        notes.count("sessions with more than 1000 branches");
                    }
                    Some(branch) => branches.push_back(branch),
                    None => notes.count("branches whose id is no text, or longer than 4 KiB"),
                }
            }
        }
        if branches.is_empty() {
            branches.push_back(MAIN.to_owned());
        }
        Ok(branches)
    }

    /// Returns the messages of a branch. A session whose messages are in no list has them all.
    fn messages(&self, session: &str, branch: &str, notes: &mut Notes) -> Result<Vec<Message>> {
        let mut messages = Vec::new();
        if self.has_branches {
            messages = self.list(
                "SELECT iif(typeof(message_id) = 'integer', message_id, NULL),
                        iif(typeof(user_turn_number) = 'integer', user_turn_number, NULL) FROM message_structure WHERE session_id = ?1 AND branch_id = ?2
                 ORDER BY sequence_number, id LIMIT ?3",
                params![session, branch, MESSAGES_MAX + 1],
            )?;
        }
        if messages.is_empty() && branch == MAIN {
            messages = self.list(
                "SELECT id, NULL FROM agent_messages WHERE session_id = ?1 ORDER BY id LIMIT ?2",
                params![session, MESSAGES_MAX + 1],
            )?;
        }
        if messages.len() > MESSAGES_MAX as usize {
            notes.count("branches of more than 1000000 messages, which were cut");
            messages.truncate(MESSAGES_MAX as usize);
        }
        let (mut seen, all) = (HashSet::new(), messages.len());
        messages.retain(|message| seen.insert(message.id));
        if messages.len() < all {
            notes.add("messages that a branch lists twice", (all - messages.len()) as u64);
        }
        Ok(messages)
    }

    fn list(&self, query: &str, params: impl Params) -> Result<Vec<Message>> {
        let read = |row: &Row<'_>| {
            Ok(match row.get(0)? {
                Value::Integer(id) => {
                    Some(Message { id, turn: row.get::<_, Value>(1).map(|turn| integer(&turn))? })
                }
                _ => None,
            })
        };
        let list = || {
            let mut query = self.connection.prepare_cached(query)?;
            let found = query.query_map(params, read)?;
            found.filter_map(Result::transpose).collect::<rusqlite::Result<Vec<_>>>()
        };
        list().map_err(|source| self.failed(source))
    }

    /// Returns the branch that this one left, and the number of messages that they share: of several, the oldest of those that share most.
    fn origin(&self, session: &Session, messages: &[Message]) -> Result<(Option<String>, usize)> {
        let mut found = (None, 0);
        let mut ignored = Notes::default();
        for other in &session.read {
            let of = self.messages(&session.id, other, &mut ignored)?;
            let shared = messages.iter().zip(&of).take_while(|(one, other)| one.id == other.id).count();
            if shared > found.1 {
                found = (Some(other.clone()), shared);
            }
        }
        Ok(found)
    }

    /// Returns the id of the entry of a message. Ids of rows begin anew in each database.
    fn key(&self, session: &str, message: Message) -> EntryId {
        let mut ignored = Notes::default();
        let found = self.message(session, message, &mut ignored);
        found.ok().flatten().map_or_else(|| EntryId::of("none"), |(key, ..)| key)
    }

    fn message(
        &self,
        session: &str,
        message: Message,
        notes: &mut Notes,
    ) -> Result<Option<(EntryId, RawJson, Option<Timestamp>)>> {
        let found = self.one(
            "SELECT CASE WHEN octet_length(message_data) <= ?3 THEN message_data END,
                    CASE WHEN octet_length(created_at) < 64 THEN created_at END FROM agent_messages
             WHERE id = ?1 AND session_id = ?2",
            params![message.id, session, VALUE_MAX_BYTES],
            |row| Ok((text_of(row, 0)?, time_of(row, 1)?)),
        )?;
        let Some((data, at)) = found else {
            notes.count("messages that a branch lists, and that are not there");
            return Ok(None);
        };
        let Some(data) = data else {
            notes.count("messages that are no text, or larger than 16 MiB");
            return Ok(None);
        };
        let Some(item) = RawJson::parse(&data).ok().filter(|item| item.get().starts_with('{')) else {
            notes.count("messages that are no JSON objects");
            return Ok(None);
        };
        Ok(Some((EntryId::of(&format!("message {} {data}", message.id)), item, at)))
    }

    /// Returns the tokens of a turn.
    fn usage(&self, session: &str, branch: &str, turn: i64) -> Result<Option<Usage>> {
        if !self.has_usage {
            return Ok(None);
        }
        let found = self.one(
            "SELECT iif(typeof(input_tokens) = 'integer', input_tokens, 0), iif(typeof(output_tokens) = 'integer', output_tokens, 0),
                    CASE WHEN octet_length(input_tokens_details) < 65536 THEN input_tokens_details END,
                    CASE WHEN octet_length(output_tokens_details) < 65536 THEN output_tokens_details END
             FROM turn_usage WHERE session_id = ?1 AND branch_id = ?2 AND user_turn_number = ?3 LIMIT 1",
            params![session, branch, turn],
            |row| {
                let number = |at| row.get(at).map(|it: Value| integer(&it).and_then(|it| it.try_into().ok()).unwrap_or_default());
                let usage = Usage::new(number(0)?, number(1)?);
                let read = detail(text_of(row, 2)?, "cached_tokens");
                let written = detail(text_of(row, 2)?, "cache_write_tokens");
                let reasoning = detail(text_of(row, 3)?, "reasoning_tokens");
                Ok(usage.with_cache(read, written).with_reasoning(reasoning))
            },
        )?;
        Ok(found.filter(|usage| *usage != Usage::default()))
    }
}

/// Returns a number in an object.
fn detail(json: Option<String>, name: &str) -> u64 {
    let fields: Option<RawFields> = json.and_then(|json| RawJson::parse(&json).ok()?.to().ok());
    fields.and_then(|fields| fields.get(name)?.to().ok()).unwrap_or_default()
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        _ => None,
    }
}

/// Returns a text of a row; `None` for another type, or one that is no UTF-8.
fn text_of(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<String>> {
    Ok(row.get_ref(at)?.as_str().ok().map(str::to_owned))
}

/// Returns a time of a row, which Python writes as a text in UTC.
fn time_of(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Timestamp>> {
    use rusqlite::types::ValueRef;
    Ok(match row.get_ref(at)? {
        ValueRef::Text(bytes) if bytes.len() < 64 => {
            std::str::from_utf8(bytes).ok().and_then(|text| text::time(&RawJson::sure(&text)))
        }
        #[expect(clippy::cast_precision_loss, reason = "far from the times of any session")]
        ValueRef::Integer(number) => text::time_of_number(number as f64),
        ValueRef::Real(number) => text::time_of_number(number),
        _ => None,
    })
}
