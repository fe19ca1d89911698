//! Sessions of OpenCode: the database `opencode.db`.
//!
//! A session has messages, and a message has parts, each with its members in the JSON of `data`. A part of type `tool` is a call and its
//! result. `revert` of a session names the message, and maybe the part, from which on the person has gone back: what is behind it is deleted
//! with the next prompt. Sessions that name a parent are its helpers. The shapes are those of versions 1.2 to 1.14; older ones keep them
//! in files.

use std::collections::VecDeque;
use std::path::Path;

use agent_core::event::{EventPayload, Media, Native, Part, ToolResult};
use agent_core::json::{RawFields, RawJson};
use agent_core::model::Usage;
use agent_core::{Result, Timestamp};
use rusqlite::Connection;

use crate::call;
use crate::database::{self, Listed, bounded, optional};
use crate::formats::values::{self, get, is_true, number, object, text};
use crate::ids::EntryId;
use crate::pairing;
use crate::source::{Entry, Item, Notes, Relation, Source, Transcript};
use crate::text::{clip, time};

/// Maximum number of bytes of a message of a person, which is one event.
const MESSAGE_MAX_BYTES: usize = 32 << 20;

/// Database of OpenCode.
#[derive(Debug)]
pub(crate) struct OpenCode {
    conn: Connection,
    place: String,
    is_finished: bool,
    about: String,
    sessions: VecDeque<Listed>,
    session: String,
    messages: VecDeque<i64>,
    revert: Revert,
    answer: Option<Answer>,
}

/// Place from which on a session is not visible.
#[derive(Debug, Default)]
struct Revert {
    message: Option<String>,
    part: Option<String>,
}

/// Message of the agent that is read part by part.
#[derive(Debug)]
struct Answer {
    id: String,
    at: Option<Timestamp>,
    data: RawFields,
    parts: VecDeque<i64>,
    /// True if a part has counted the tokens of its request.
    is_counted: bool,
}

impl OpenCode {
    pub(crate) fn open(path: &Path, is_finished: bool) -> Result<Self> {
        let path = database::file(path, "opencode.db");
        let (conn, place) = (database::open(&path)?, path.display().to_string());
        let columns = database::columns(&conn, &place, "session", &["id"])?;
        let of = |name| optional(&columns, name);
        let about = format!(
            "SELECT {}, {}, {}, {}, {} FROM session WHERE rowid = ?1",
            of("title"),
            of("directory"),
            of("version"),
            of("time_created"),
            of("revert")
        );
        let (parent, created) = (of("parent_id"), of("time_created"));
        let sql = format!("SELECT rowid, id, {parent} FROM session ORDER BY {created}, id");
        let sessions = database::sessions(&conn, &place, &sql)?.into();
        database::columns(&conn, &place, "message", &["id", "session_id", "time_created", "data"])?;
        database::columns(&conn, &place, "part", &["id", "message_id", "data"])?;
        let (session, messages, revert) = (String::new(), VecDeque::new(), Revert::default());
        Ok(Self { conn, place, is_finished, about, sessions, session, messages, revert, answer: None })
    }

    fn parts(&self, message: &str) -> Result<VecDeque<i64>> {
        let sql = "SELECT rowid FROM part WHERE message_id = ?1 ORDER BY id";
        Ok(database::all(&self.conn, &self.place, sql, &[message], |row| row.get(0).ok())?.into())
    }

    /// Reads the id and the members of a row.
    fn row(&self, table: &str, rowid: i64, notes: &mut Notes) -> Result<Option<(String, RawFields)>> {
        let sql = format!("SELECT id, {} FROM {table} WHERE rowid = ?1", bounded("data"));
        let read = |row: &rusqlite::Row<'_>| [0, 1].map(|at| database::text(row, at));
        let Some([id, data]) = database::one(&self.conn, &self.place, &sql, rowid, read)? else {
            return Ok(None);
        };
        let data = data.as_deref().and_then(values::parse);
        if data.is_none() {
            notes.count(format!("rows of {table} that are no JSON objects, or have more than 16 MiB"));
        }
        Ok(Some((id.unwrap_or_else(|| format!("#{rowid}")), data.unwrap_or_default())))
    }
}

impl Source for OpenCode {
    fn next_transcript(&mut self, _notes: &mut Notes) -> Result<Option<Transcript>> {
        let Some(session) = self.sessions.pop_front() else { return Ok(None) };
        let sql = "SELECT rowid FROM message WHERE session_id = ?1 ORDER BY time_created, id";
        self.messages =
            database::all(&self.conn, &self.place, sql, &[&session.id], |row| row.get(0).ok())?.into();
        self.answer = None;
        let read = |row: &rusqlite::Row<'_>| [0, 1, 2, 3, 4].map(|at| database::text(row, at));
        let about = database::one(&self.conn, &self.place, &self.about, session.rowid, read)?;
        let [title, folder, version, at, revert] = about.unwrap_or_default();
        let revert = revert.and_then(|it| values::parse(&it)).unwrap_or_default();
        self.revert = Revert { message: text(&revert, &["messageID"]), part: text(&revert, &["partID"]) };
        self.session.clone_from(&session.id);
        let about = [("cwd", folder), ("version", version)];
        Ok(Some(Transcript {
            place: format!("{}: session {}", self.place, clip(&session.id, 200)),
            relation: session.parent.map_or(Relation::None, |of| Relation::Child { of }),
            title,
            about: about.into_iter().filter_map(|(name, text)| Some((name, text?))).collect(),
            at: at.and_then(|at| RawJson::parse(&at).ok()).and_then(|at| time(&at)),
            name: session.id,
        }))
    }

    fn next_entry(&mut self, notes: &mut Notes) -> Result<Option<Entry>> {
        loop {
            if let Some(answer) = &mut self.answer {
                let Some(rowid) = answer.parts.pop_front() else {
                    return Ok(self.answer.take().map(|answer| self.end(&answer)));
                };
                if let Some(entry) = self.part(rowid, notes)? {
                    return Ok(Some(entry));
                }
                continue;
            }
            let Some(rowid) = self.messages.pop_front() else { return Ok(None) };
            let Some((id, data)) = self.row("message", rowid, notes)? else { continue };
            if self.revert.message.as_ref() == Some(&id) && self.revert.part.is_none() {
                notes.add("messages behind a revert", 1 + self.messages.len() as u64);
                self.messages.clear();
                return Ok(None);
            }
            let times = object(get(&data, &["time"]));
            let at = get(&times, &["created"]).and_then(time);
            let parts = self.parts(&id)?;
            if text(&data, &["role"]).as_deref() != Some("assistant") {
                return self.question(&id, at, parts, notes).map(Some);
            }
            let is_whole = get(&times, &["completed"]).is_some() || get(&data, &["error"]).is_some();
            if !is_whole && self.messages.is_empty() && !self.is_finished {
                notes.count("answers that are not complete yet");
                return Ok(None);
            }
            self.answer = Some(Answer { id, at, data, parts, is_counted: false });
        }
    }
}

impl OpenCode {
    /// Reads a message of a person, with what the program added to it.
    fn question(
        &self,
        id: &str,
        at: Option<Timestamp>,
        parts: VecDeque<i64>,
        notes: &mut Notes,
    ) -> Result<Entry> {
        let mut entry = Entry::new(EntryId::of(id), at);
        let (mut said, mut injected, mut bytes) = (Vec::new(), Vec::new(), 0);
        for rowid in parts {
            let Some((_, data)) = self.row("part", rowid, notes)? else { continue };
            bytes += data.size_bytes();
            if bytes > MESSAGE_MAX_BYTES {
                notes.count("parts beyond 32 MiB of one message");
                continue;
            }
            let kind = text(&data, &["type"]).unwrap_or_default();
            match &*kind {
                "text" if is_true(&data, &["ignored"]) => notes.count("texts that the agent is not given"),
                "text" if is_true(&data, &["synthetic"]) => {
                    injected.extend(values::injected(text(&data, &["text"]).unwrap_or_default()));
                }
                "text" => said.extend(text(&data, &["text"]).map(Part::text)),
                "subtask" => said.extend(text(&data, &["prompt"]).map(Part::text)),
                "file" => match file(&data) {
                    Some(part) => said.push(part),
                    None => notes.count("parts of type file without their data"),
                },
                // The summary is the answer.
                "compaction" => {}
                _ => other(&kind, &data, &mut entry, notes),
            }
        }
        if let Some(message) = values::user(said) {
            entry.begins_turn = true;
            entry.items.push(message);
        }
        entry.items.extend(injected);
        Ok(entry)
    }

    /// Reads the next part of an answer; `None` if it is nothing, or behind a revert.
    fn part(&mut self, rowid: i64, notes: &mut Notes) -> Result<Option<Entry>> {
        let Some((id, data)) = self.row("part", rowid, notes)? else { return Ok(None) };
        let Some(answer) = &mut self.answer else { return Ok(None) };
        if self.revert.part.as_ref() == Some(&id) && self.revert.message.as_ref() == Some(&answer.id) {
            notes.add("parts behind a revert", 1 + answer.parts.len() as u64);
            notes.add("messages behind a revert", self.messages.len() as u64);
            answer.parts.clear();
            self.messages.clear();
            return Ok(None);
        }
        let state = object(get(&data, &["state"]));
        let times = object(get(&data, &["time"]).or_else(|| get(&state, &["time"])));
        let at = get(&times, &["start"]).and_then(time).or(answer.at);
        let mut entry = Entry::new(EntryId::of(&id), at);
        let kind = text(&data, &["type"]).unwrap_or_default();
        match &*kind {
            "text" => {
                let text = text(&data, &["text"]).unwrap_or_default();
                if is_true(&answer.data, &["summary"]) {
                    entry.items.extend((!text.trim().is_empty()).then_some(Item::Compaction(text)));
                } else {
                    entry.items.extend(values::agent(text, None, notes));
                }
            }
            "reasoning" => entry.items.push(reasoning(&data)),
            "tool" => entry.items = tool(&data, notes),
            "file" => match file(&data) {
                Some(part) => {
                    let part = agent_core::event::AgentPart::new(part);
                    entry.items.push(Item::Event(EventPayload::AgentPart(part)));
                }
                None => notes.count("parts of type file without their data"),
            },
            "step-start" => {}
            "step-finish" => {
                answer.is_counted = true;
                entry.items.extend(values::usage(&self.session, &id, tokens(&data)));
            }
            _ => other(&kind, &data, &mut entry, notes),
        }
        Ok(Some(entry))
    }

    /// Returns the end of an answer.
    fn end(&self, answer: &Answer) -> Entry {
        let mut entry = Entry::new(EntryId::of(&format!("end {}", answer.id)), answer.at);
        let get_text = |name| text(&answer.data, &[name]);
        let error = object(get(&answer.data, &["error"]));
        if !error.is_empty() {
            let about = text(&object(get(&error, &["data"])), &["message"]).unwrap_or_default();
            let name = text(&error, &["name"]).unwrap_or_default();
            entry.items.extend(values::injected(format!("{name}: {about}")));
        }
        let (provider, model) =
            (get_text("providerID").unwrap_or_default(), get_text("modelID").unwrap_or_default());
        entry
            .items
            .push(values::response(Some([api(&provider), &provider, &model]), get_text("finish").as_deref()));
        if !answer.is_counted {
            entry.items.extend(values::usage(&self.session, &answer.id, tokens(&answer.data)));
        }
        entry
    }
}

/// Returns the API of a provider. OpenCode names providers after those of models.dev.
fn api(provider: &str) -> &'static str {
    match provider {
        "anthropic" => "anthropic.messages",
        "openai" => "openai.responses",
        "google" => "gemini.generate_content",
        _ => "opencode",
    }
}

fn other(kind: &str, data: &RawFields, entry: &mut Entry, notes: &mut Notes) {
    notes.count(format!("parts of type {}", clip(kind, 40)));
    entry.items.push(values::unknown(kind, RawJson::sure(data)));
}

/// Returns a file: its bytes if the address holds them, else where it was.
fn file(data: &RawFields) -> Option<Part> {
    let (kind, url) = (text(data, &["mime"]), text(data, &["url"])?);
    let medium: Media = values::named(values::address(kind.as_deref(), &url)?, text(data, &["filename"]));
    Some(if url.starts_with("data:") { values::media(medium) } else { Part::ResourceLink(medium) })
}

fn tokens(data: &RawFields) -> Usage {
    let tokens = object(get(data, &["tokens"]));
    let cache = object(get(&tokens, &["cache"]));
    let (read, written) = (number(&cache, &["read"]), number(&cache, &["write"]));
    let input = number(&tokens, &["input"]).saturating_add(read).saturating_add(written);
    let reasoning = number(&tokens, &["reasoning"]);
    let output = number(&tokens, &["output"]).saturating_add(reasoning);
    Usage::new(input, output).with_cache(read, written).with_reasoning(reasoning)
}

/// Returns reasoning with what its provider signed, in the provider's form.
fn reasoning(data: &RawFields) -> Item {
    let words = text(data, &["text"]).unwrap_or_default();
    let metadata = object(get(data, &["metadata"]));
    let of = |provider| object(get(&metadata, &[provider]));
    let (anthropic, openai, google) = (of("anthropic"), of("openai"), of("google"));
    let item = |members: &[(&str, RawJson)]| RawJson::sure(&RawFields::from_iter(members.iter().cloned()));
    let json = |text: &str| RawJson::sure(&text);
    let native = if let Some(signature) = text(&anthropic, &["signature"]) {
        let members =
            [("type", json("thinking")), ("thinking", json(&words)), ("signature", json(&signature))];
        Some(Native::new("anthropic.messages", item(&members)))
    } else if let Some(redacted) = text(&anthropic, &["redactedData"]) {
        let members = [("type", json("redacted_thinking")), ("data", json(&redacted))];
        Some(Native::new("anthropic.messages", item(&members)))
    } else if let (Some(id), Some(encrypted)) =
        (text(&openai, &["itemId"]), text(&openai, &["reasoningEncryptedContent"]))
    {
        let summary = item(&[("type", json("summary_text")), ("text", json(&words))]);
        let summary = if words.is_empty() { Vec::new() } else { vec![summary] };
        let members = [
            ("type", json("reasoning")),
            ("id", json(&id)),
            ("summary", RawJson::sure(&summary)),
            ("encrypted_content", json(&encrypted)),
        ];
        Some(Native::new("openai.responses", item(&members)))
    } else if let Some(signature) = text(&google, &["thoughtSignature"]) {
        let members = [
            ("text", json(&words)),
            ("thought", RawJson::sure(&true)),
            ("thoughtSignature", json(&signature)),
        ];
        Some(Native::new("gemini.generate_content", item(&members)))
    } else {
        None
    };
    values::thinking(words, native)
}

/// Returns a call, and its result if it has ended.
fn tool(data: &RawFields, notes: &mut Notes) -> Vec<Item> {
    let id = text(data, &["callID"]).unwrap_or_default();
    let name = text(data, &["tool"]).unwrap_or_default();
    let state = object(get(data, &["state"]));
    let call = call::call(&id, &name, values::input(get(&state, &["input"])));
    let mut items = vec![Item::Event(EventPayload::AgentToolUse(call))];
    let status = text(&state, &["status"]).unwrap_or_default();
    let result = match &*status {
        "completed" => {
            let output = text(&state, &["output"]).unwrap_or_default();
            let result = pairing::result(call::id(&id), false, &output);
            let files = values::list(get(&state, &["attachments"]), notes);
            let parts: Vec<_> = files.iter().filter_map(|it| file(&object(Some(it)))).collect();
            if parts.is_empty() {
                result
            } else {
                [Part::text(output)].into_iter().chain(parts).fold(result, ToolResult::with_part)
            }
        }
        "error" => {
            let error = text(&state, &["error"]).unwrap_or_default();
            pairing::result(call::id(&id), true, &error)
        }
        // Still open.
        _ => return items,
    };
    items.push(Item::Event(EventPayload::AgentToolResult(result)));
    items
}
