//! Sessions of Google's Agent Development Kit: the database of its `DatabaseSessionService`, or of its service for SQLite alone.
//!
//! An event is JSON in `event_data`, with the content of Gemini's API in the spelling of Python or of the API. Older versions have a column
//! for each member, and `actions` as a pickle, which is not read. Events are in the order of their times, and those of one time in that in
//! which they were written. An event may go back to before an invocation. The shapes are those of versions 1.0 to 2.13.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use agent_core::Result;
use agent_core::event::{AgentPart, EventPayload, Native, Part, ToolOutcome, ToolResult};
use agent_core::json::{RawFields, RawJson};
use agent_core::model::Usage;
use rusqlite::Connection;

use crate::call;
use crate::database::{self, optional};
use crate::formats::gemini_record::{API, hosted, media, output};
use crate::formats::tree::Tree;
use crate::formats::values::{self, get, is_true, number, object, text};
use crate::formats::walk::Walk;
use crate::ids::EntryId;
use crate::source::{Entry, Item, Notes, Source, Transcript};
use crate::text::{clip, time};

/// Columns of older versions, and the members that they are.
const COLUMNS: [&str; 6] = ["author", "content", "usage_metadata", "partial", "error_code", "error_message"];

/// Database of the Agent Development Kit.
#[derive(Debug)]
pub(crate) struct Adk {
    conn: Connection,
    place: String,
    event: String,
    sessions: VecDeque<(i64, [String; 3])>,
    opened: Option<Opened>,
}

/// Session whose tree is known.
#[derive(Debug)]
struct Opened {
    key: [String; 3],
    rows: Vec<i64>,
    walk: Walk,
    /// Ids that calls without one got, with their names, until they have a result.
    unnamed: VecDeque<(String, String)>,
}

impl Adk {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let path = database::file(path, "sessions.db");
        let (conn, place) = (database::open(&path)?, path.display().to_string());
        let key = ["app_name", "user_id", "id"];
        let columns = database::columns(&conn, &place, "sessions", &key)?;
        let created = optional(&columns, "create_time");
        let sql = format!("SELECT rowid, app_name, user_id, id FROM sessions ORDER BY {created}, rowid");
        let sessions = database::all(&conn, &place, &sql, &[], |row| {
            let [app, user, id] = [1, 2, 3].map(|at| database::text(row, at));
            Some((row.get(0).ok()?, [app?, user?, id?]))
        })?;
        let needed = ["id", "app_name", "user_id", "session_id", "invocation_id", "timestamp"];
        let columns = database::columns(&conn, &place, "events", &needed)?;
        let members: Vec<_> = COLUMNS.iter().map(|name| optional(&columns, name)).collect();
        let (data, members) = (optional(&columns, "event_data"), members.join(", "));
        let event =
            format!("SELECT id, invocation_id, timestamp, {data}, {members} FROM events WHERE rowid = ?1");
        Ok(Self { conn, place, event, sessions: sessions.into(), opened: None })
    }

    /// Reads an event: its id, its invocation, its time and its members.
    fn event(&self, rowid: i64, notes: &mut Notes) -> Result<Option<([Option<String>; 3], RawFields)>> {
        let read = |row: &rusqlite::Row<'_>| {
            let columns: Vec<_> = (3..10).map(|at| database::text(row, at)).collect();
            ([0, 1, 2].map(|at| database::text(row, at)), columns)
        };
        let Some((key, columns)) = database::one(&self.conn, &self.place, &self.event, rowid, read)? else {
            return Ok(None);
        };
        let mut columns = columns.into_iter();
        let mut fields = columns.next().flatten().and_then(|it| values::parse(&it)).unwrap_or_default();
        for (name, value) in COLUMNS.iter().zip(columns) {
            let Some(value) = value.filter(|_| fields.get(name).is_none()) else { continue };
            // These are JSON, the others are texts.
            let is_json = matches!(*name, "content" | "usage_metadata" | "partial");
            let json = if is_json { RawJson::parse(&value).ok() } else { Some(RawJson::sure(&value)) };
            if let Some(json) = json {
                fields.insert(*name, json);
            }
        }
        if fields.is_empty() {
            notes.count("events without members that can be read, or of more than 16 MiB");
        }
        Ok(Some((key, fields)))
    }

    /// Reads a session once: which events there are, and the tree that they are.
    fn read(&self, key: [String; 3]) -> Result<Opened> {
        let sql = "SELECT rowid FROM events WHERE app_name = ?1 AND user_id = ?2 AND session_id = ?3 \
                   ORDER BY timestamp, rowid";
        let params = [&*key[0], &*key[1], &*key[2]];
        let all: Vec<i64> = database::all(&self.conn, &self.place, sql, &params, |row| row.get(0).ok())?;
        let (mut tree, mut rows, mut last) = (Tree::default(), Vec::new(), None);
        // The entry before the first one of each invocation.
        let mut before: HashMap<EntryId, Option<u32>> = HashMap::new();
        for rowid in all {
            let Some(([id, invocation, _], fields)) = self.event(rowid, &mut Notes::default())? else {
                continue;
            };
            let actions = object(get(&fields, &["actions"]));
            let back = text(&actions, &["rewind_before_invocation_id", "rewindBeforeInvocationId"]);
            if let Some(back) = back.and_then(|back| before.get(&EntryId::of(&back))) {
                last = *back;
                continue;
            }
            before.entry(EntryId::of(&invocation.unwrap_or_default())).or_insert(last);
            let id = id.unwrap_or_else(|| format!("#{rowid}"));
            if let Some(number) = tree.add(EntryId::of(&id), last, true) {
                rows.push(rowid);
                last = Some(number);
            }
        }
        let name = key.each_ref().map(|part| part.replace('%', "%25").replace('/', "%2F")).join("/");
        Ok(Opened { key, rows, walk: Walk::new(name, tree), unnamed: VecDeque::new() })
    }
}

impl Source for Adk {
    fn next_transcript(&mut self, _notes: &mut Notes) -> Result<Option<Transcript>> {
        loop {
            if let Some(opened) = &mut self.opened
                && let Some((name, relation)) = opened.walk.next_branch()
            {
                opened.unnamed.clear();
                let [app, user, id] = &opened.key;
                return Ok(Some(Transcript {
                    name,
                    place: format!("{}: session {}", self.place, clip(id, 200)),
                    relation,
                    title: None,
                    about: [("app", app.clone()), ("user", user.clone())].into_iter().collect(),
                    at: None,
                }));
            }
            let Some((_, key)) = self.sessions.pop_front() else {
                self.opened = None;
                return Ok(None);
            };
            self.opened = Some(self.read(key)?);
        }
    }

    fn next_entry(&mut self, notes: &mut Notes) -> Result<Option<Entry>> {
        loop {
            let Some(opened) = &mut self.opened else { return Ok(None) };
            let Some((number, id)) = opened.walk.step() else { return Ok(None) };
            let rowid = opened.rows[number as usize];
            let Some(([key, _, at], fields)) = self.event(rowid, notes)? else { continue };
            let Some(opened) = &mut self.opened else { return Ok(None) };
            let at = get(&fields, &["timestamp"]).and_then(time).or_else(|| {
                let at = at?;
                RawJson::parse(&at).ok().and_then(|at| time(&at)).or_else(|| time(&RawJson::sure(&at)))
            });
            let mut entry = Entry::new(id, at);
            opened.items(&key.unwrap_or_default(), &fields, &mut entry, notes);
            return Ok(Some(entry));
        }
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

impl Opened {
    fn items(&mut self, event: &str, fields: &RawFields, entry: &mut Entry, notes: &mut Notes) {
        if is_true(fields, &["partial"]) {
            notes.count("parts of answers, of which the whole follows");
            return;
        }
        let is_user = text(fields, &["author"]).as_deref() == Some("user");
        let content = object(get(fields, &["content"]));
        let (mut said, mut is_answer) = (Vec::new(), false);
        for (at, part) in values::list(get(&content, &["parts"]), notes).iter().enumerate() {
            let part = object(Some(part));
            if let Some(given) = get(&part, &["function_response", "functionResponse"]) {
                entry.items.push(self.result(&object(Some(given))));
            } else if is_user {
                if let Some(words) = text(&part, &["text"]) {
                    said.push(Part::text(words));
                } else if let Some(media) = media(&part) {
                    said.push(media);
                } else {
                    notes.count("parts of a message of no known kind");
                }
            } else if let Some(item) = self.answered(&part, &format!("{event}-{at}"), notes) {
                is_answer = true;
                entry.items.push(item);
            }
        }
        if let Some(message) = values::user(said) {
            entry.begins_turn = entry.items.is_empty();
            entry.items.push(message);
        }
        let [code, about] = [&["error_code", "errorCode"], &["error_message", "errorMessage"]]
            .map(|names| text(fields, names).unwrap_or_default());
        if !code.is_empty() || !about.is_empty() {
            entry.items.extend(values::injected(format!("{code}: {about}")));
        }
        if is_answer {
            let model = text(fields, &["model_version", "modelVersion"]).unwrap_or_default();
            let stop = text(fields, &["finish_reason", "finishReason"]);
            entry.items.push(values::response(Some([API, "gemini", &model]), stop.as_deref()));
        }
        let session = self.key.join("/");
        entry.items.extend(values::usage(&session, event, tokens(fields)));
        actions(fields, entry, notes);
    }

    /// Returns a part of an answer.
    fn answered(&mut self, part: &RawFields, place: &str, notes: &mut Notes) -> Option<Item> {
        let json = |text: &str| RawJson::sure(&text);
        if let Some(called) = get(part, &["function_call", "functionCall"]) {
            let called = object(Some(called));
            let name = text(&called, &["name"]).unwrap_or_default();
            let own = text(&called, &["id"]).filter(|id| !id.is_empty());
            let id = own.clone().unwrap_or_else(|| {
                if self.unnamed.len() < 256 {
                    self.unnamed.push_back((name.clone(), place.to_owned()));
                }
                place.to_owned()
            });
            let args = get(&called, &["args"]);
            let mut function = RawFields::new();
            // The kit gives ids of its own to calls that have none, and does not send them.
            if let Some(own) = own.filter(|id| !id.starts_with("adk-")) {
                function.insert("id", json(&own));
            }
            function.insert("name", json(&name));
            function.insert("args", args.cloned().unwrap_or_else(RawJson::empty_object));
            let mut call = call::call(&id, &name, values::input(args));
            call.native = signed(part, &[("functionCall", RawJson::sure(&function))]);
            return Some(Item::Event(EventPayload::AgentToolUse(call)));
        }
        if let Some(words) = text(part, &["text"]) {
            if is_true(part, &["thought"]) {
                let native = signed(part, &[("text", json(&words)), ("thought", RawJson::sure(&true))]);
                return Some(values::thinking(words, native));
            }
            let native = signed(part, &[("text", json(&words))]);
            return values::agent(words, native, notes);
        }
        match media(part).or_else(|| hosted(part)) {
            Some(part) => Some(Item::Event(EventPayload::AgentPart(AgentPart::new(part)))),
            None => {
                notes.count("parts of an answer of no known kind");
                None
            }
        }
    }

    /// Returns a result. One without an id is that of the first open call of its name.
    fn result(&mut self, given: &RawFields) -> Item {
        let name = text(given, &["name"]).unwrap_or_default();
        let id = text(given, &["id"]).filter(|id| !id.is_empty()).or_else(|| {
            let at = self.unnamed.iter().position(|(called, _)| *called == name)?;
            self.unnamed.remove(at).map(|(_, id)| id)
        });
        let response = get(given, &["response"]);
        let is_error = get(&object(response), &["error"]).is_some();
        let outcome = if is_error { ToolOutcome::Error } else { ToolOutcome::Ok };
        let result = ToolResult::new(call::id(&id.unwrap_or_default()), outcome, output(response));
        Item::Event(EventPayload::AgentToolResult(result))
    }
}

/// Keeps what an event does besides what it says.
fn actions(fields: &RawFields, entry: &mut Entry, notes: &mut Notes) {
    let actions = object(get(fields, &["actions"]));
    for (kind, names) in [
        ("state", ["state_delta", "stateDelta"]),
        ("artifact", ["artifact_delta", "artifactDelta"]),
        ("compaction", ["compaction", "compaction"]),
    ] {
        if let Some(json) =
            get(&actions, &names).filter(|json| json.get().starts_with('{') && json.get() != "{}")
        {
            notes.count(format!("actions of kind {kind}"));
            entry.items.push(values::unknown(kind, json.clone()));
        }
    }
}

fn tokens(fields: &RawFields) -> Usage {
    let usage = object(get(fields, &["usage_metadata", "usageMetadata"]));
    let thoughts = number(&usage, &["thoughts_token_count", "thoughtsTokenCount"]);
    let answer = number(&usage, &["candidates_token_count", "candidatesTokenCount"]);
    Usage::new(number(&usage, &["prompt_token_count", "promptTokenCount"]), answer.saturating_add(thoughts))
        .with_cache(number(&usage, &["cached_content_token_count", "cachedContentTokenCount"]), 0)
        .with_reasoning(thoughts)
}

/// Returns a part as the API writes it, if the provider has signed it. The signature may be in the other alphabet of base64.
fn signed(part: &RawFields, members: &[(&str, RawJson)]) -> Option<Native> {
    let signature = text(part, &["thoughtSignature", "thought_signature"])?;
    let signature = signature.replace('-', "+").replace('_', "/");
    let mut item = RawFields::from_iter(members.iter().cloned());
    item.insert("thoughtSignature", RawJson::sure(&signature));
    Some(Native::new(API, RawJson::sure(&item)))
}
