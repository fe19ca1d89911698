//! Sessions of goose: the database `sessions.db`.
//!
//! A row of `messages` is a message with blocks in `content_json`, and its order is that of its number: the times are seconds of an older
//! version or milliseconds of a newer one, and those of one turn may be equal. A conversation that was summarized keeps the old messages
//! with `agentVisible` false, and the summary is one with `userVisible` false. The shapes are those of versions 1.9 to 1.20.

use std::collections::{HashSet, VecDeque};
use std::path::Path;

use agent_core::Result;
use agent_core::event::{EventPayload, Native, Part, ToolResult};
use agent_core::json::{RawFields, RawJson};
use rusqlite::Connection;

use crate::call;
use crate::database::{self, Listed, bounded, optional};
use crate::formats::values::{self, get, is_true, object, text};
use crate::ids::EntryId;
use crate::pairing;
use crate::source::{Entry, Item, Notes, Relation, Source, Transcript};
use crate::text::{clip, time};

/// Database of goose.
#[derive(Debug)]
pub(crate) struct Goose {
    conn: Connection,
    place: String,
    /// Query of what a session says about itself, and of a message.
    about: String,
    message: String,
    sessions: VecDeque<Listed>,
    messages: VecDeque<i64>,
    seen: HashSet<EntryId>,
    /// True if messages were seen that a summary has replaced for the agent.
    is_summarized: bool,
    /// Provider of the session, by its name.
    provider: String,
}

impl Goose {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let path = database::file(path, "sessions.db");
        let (conn, place) = (database::open(&path)?, path.display().to_string());
        let columns = database::columns(&conn, &place, "sessions", &["id"])?;
        let of = |name| optional(&columns, name);
        let about = format!(
            "SELECT coalesce(nullif({}, ''), {}), {}, {}, {} FROM sessions WHERE rowid = ?1",
            of("name"),
            of("description"),
            of("working_dir"),
            of("created_at"),
            of("provider_name")
        );
        let sql = format!(
            "SELECT rowid, id, {} FROM sessions ORDER BY {}, id",
            of("parent_session_id"),
            of("created_at")
        );
        let sessions = database::sessions(&conn, &place, &sql)?.into();
        let needed = ["id", "session_id", "role", "content_json"];
        let columns = database::columns(&conn, &place, "messages", &needed)?;
        let of = |name| optional(&columns, name);
        let message = format!(
            "SELECT {}, role, {}, {}, {}, typeof(content_json) FROM messages WHERE rowid = ?1",
            of("message_id"),
            bounded("content_json"),
            of("created_timestamp"),
            of("metadata_json")
        );
        let (messages, seen, provider) = (VecDeque::new(), HashSet::new(), String::new());
        Ok(Self { conn, place, about, message, sessions, messages, seen, is_summarized: false, provider })
    }
}

/// Row of `messages`.
struct Row {
    id: String,
    role: String,
    content: Option<String>,
    at: Option<String>,
    metadata: RawFields,
}

impl Source for Goose {
    fn next_transcript(&mut self, _notes: &mut Notes) -> Result<Option<Transcript>> {
        let Some(session) = self.sessions.pop_front() else { return Ok(None) };
        let sql = "SELECT rowid FROM messages WHERE session_id = ?1 ORDER BY id";
        self.messages =
            database::all(&self.conn, &self.place, sql, &[&session.id], |row| row.get(0).ok())?.into();
        self.seen.clear();
        self.is_summarized = false;
        let read = |row: &rusqlite::Row<'_>| [0, 1, 2, 3].map(|at| database::text(row, at));
        let about = database::one(&self.conn, &self.place, &self.about, session.rowid, read)?;
        let [title, folder, at, provider] = about.unwrap_or_default();
        self.provider = provider.unwrap_or_default();
        Ok(Some(Transcript {
            place: format!("{}: session {}", self.place, clip(&session.id, 200)),
            relation: session.parent.map_or(Relation::None, |of| Relation::Child { of }),
            title,
            about: folder.map(|folder| ("cwd", folder)).into_iter().collect(),
            at: at.and_then(|at| time(&RawJson::sure(&at))),
            name: session.id,
        }))
    }

    fn next_entry(&mut self, notes: &mut Notes) -> Result<Option<Entry>> {
        while let Some(rowid) = self.messages.pop_front() {
            let read = |row: &rusqlite::Row<'_>| Row {
                id: database::text(row, 0).unwrap_or_else(|| format!("#{rowid}")),
                role: database::text(row, 1).unwrap_or_default(),
                content: database::text(row, 2),
                at: database::text(row, 3),
                metadata: database::text(row, 4).and_then(|it| values::parse(&it)).unwrap_or_default(),
            };
            let row = database::one(&self.conn, &self.place, &self.message, rowid, read)?;
            if let Some(row) = row {
                return Ok(Some(self.entry(&row, notes)));
            }
        }
        Ok(None)
    }
}

impl Goose {
    fn entry(&mut self, row: &Row, notes: &mut Notes) -> Entry {
        let mut id = EntryId::of(&row.id);
        let mut number = 1;
        while !self.seen.insert(id) {
            number += 1;
            id = EntryId::of(&format!("{}#{number}", row.id));
        }
        if number > 1 {
            notes.count("messages with the id of another, which are kept");
        }
        let at = row.at.as_deref().and_then(|at| RawJson::parse(at).ok()).and_then(|at| time(&at));
        let mut entry = Entry::new(id, at);
        let Some(content) = row.content.as_deref().and_then(|it| RawJson::parse(it).ok()) else {
            notes.count("messages whose content is no JSON, or has more than 16 MiB");
            return entry;
        };
        let sees = |name| get(&row.metadata, &[name]).is_none_or(|it| it.get() != "false");
        match (sees("userVisible"), sees("agentVisible")) {
            (true, for_agent) => {
                self.blocks(&content, &row.role, &mut entry, notes);
                let has_text = entry.items.iter().any(|item| matches!(item, Item::Event(_)));
                self.is_summarized |= !for_agent && has_text;
            }
            (false, true) => self.for_agent_only(&content, &row.role, &mut entry, notes),
            (false, false) => {
                notes.count("messages that neither the person nor the agent sees");
                entry.items.push(values::unknown("archived", content));
            }
        }
        entry
    }

    /// Reads a message that was written for the agent: a summary, or what was put in beside it.
    fn for_agent_only(&mut self, content: &RawJson, role: &str, entry: &mut Entry, notes: &mut Notes) {
        self.blocks(content, role, entry, notes);
        let mut texts = Vec::new();
        entry.items.retain(|item| match item {
            Item::Event(EventPayload::UserMessage(message) | EventPayload::AgentMessage(message)) => {
                texts.push(message.text_view().into_owned());
                false
            }
            Item::Event(EventPayload::AgentResponse(_)) => false,
            _ => true,
        });
        entry.begins_turn = false;
        let text = texts.join("\n");
        if text.trim().is_empty() {
            return;
        }
        if std::mem::take(&mut self.is_summarized) {
            entry.items.push(Item::Compaction(text));
        } else {
            entry.items.extend(values::injected(text));
        }
    }

    fn blocks(&self, content: &RawJson, role: &str, entry: &mut Entry, notes: &mut Notes) {
        let (mut items, mut parts) = (Vec::new(), Vec::new());
        let is_agent = role == "assistant";
        if !is_agent && role != "user" {
            notes.count(
                "messages of other roles than user and assistant, which are taken as those of a person",
            );
        }
        for block in values::list(Some(content), notes) {
            let fields = object(Some(&block));
            let kind = text(&fields, &["type"]).unwrap_or_default();
            match &*kind {
                "text" if is_agent => {
                    items.extend(values::agent(text(&fields, &["text"]).unwrap_or_default(), None, notes));
                }
                "text" => parts.extend(text(&fields, &["text"]).map(Part::text)),
                "image" => match image(&fields) {
                    Some(part) if is_agent => {
                        items.push(Item::Event(EventPayload::AgentPart(agent_core::event::AgentPart::new(
                            part,
                        ))));
                    }
                    Some(part) => parts.push(part),
                    None => notes.count("blocks of type image without their data"),
                },
                "toolRequest" | "frontendToolRequest" => items.push(request(&fields, notes)),
                "toolResponse" => items.push(response(&fields, notes)),
                "thinking" | "redactedThinking" | "reasoning" => items.push(self.thinking(&kind, &fields)),
                _ => {
                    notes.count(format!("blocks of type {}", clip(&kind, 40)));
                    items.push(values::unknown(&kind, block));
                }
            }
        }
        if is_agent && items.iter().any(|item| matches!(item, Item::Event(_))) {
            items.push(values::response(None, None));
        }
        let has_results =
            items.iter().any(|item| matches!(item, Item::Event(EventPayload::AgentToolResult(_))));
        entry.items = items;
        if let Some(message) = values::user(parts) {
            entry.begins_turn = !has_results;
            entry.items.push(message);
        }
    }

    fn thinking(&self, kind: &str, fields: &RawFields) -> Item {
        let get = |name| text(fields, &[name]);
        let words = get("thinking").or_else(|| get("text")).unwrap_or_default();
        let signature = get("signature").filter(|it| !it.is_empty());
        let item = match (kind, signature, get("data")) {
            ("thinking", Some(signature), _) => Some(RawFields::from_iter(
                [("type", "thinking"), ("thinking", &*words), ("signature", &*signature)]
                    .map(|(name, text)| (name, RawJson::sure(&text))),
            )),
            ("redactedThinking", _, Some(data)) => Some(RawFields::from_iter(
                [("type", "redacted_thinking"), ("data", &*data)]
                    .map(|(name, text)| (name, RawJson::sure(&text))),
            )),
            _ => None,
        };
        // These blocks are Anthropic's; other providers that goose asks give their reasoning without a signature.
        let native = item.map(|item| Native::new("anthropic.messages", RawJson::sure(&item)));
        values::thinking(words, native)
    }
}

fn image(fields: &RawFields) -> Option<Part> {
    let kind = text(fields, &["mimeType"]).unwrap_or_default();
    values::inline(&kind, &text(fields, &["data"])?).map(values::media)
}

/// Returns a call. One that the model has spelled wrong has an error in place of the call.
fn request(fields: &RawFields, notes: &mut Notes) -> Item {
    let id = text(fields, &["id"]).unwrap_or_default();
    let called = object(get(fields, &["toolCall"]));
    let value = object(get(&called, &["value"]));
    let name = text(&value, &["name"]).unwrap_or_default();
    let input = match text(&called, &["error"]) {
        Some(error) => {
            notes.count("calls that the model has spelled wrong");
            Err(error)
        }
        None => values::input(get(&value, &["arguments"])),
    };
    let signature = text(fields, &["thoughtSignature"])
        .or_else(|| text(&object(get(fields, &["metadata"])), &["thoughtSignature", "thought_signature"]));
    let mut call = call::call(&id, &name, input);
    if let Some(signature) = signature {
        let mut function = RawFields::new();
        function.insert("name", RawJson::sure(&name));
        function.insert("args", call.input.clone());
        let mut item = RawFields::new();
        item.insert("functionCall", RawJson::sure(&function));
        item.insert("thoughtSignature", RawJson::sure(&signature));
        call = call.with_native(Native::new("gemini.generate_content", RawJson::sure(&item)));
    }
    Item::Event(EventPayload::AgentToolUse(call))
}

/// Returns a result: the value is a result of the Model Context Protocol, or the list of its contents in an older version.
fn response(fields: &RawFields, notes: &mut Notes) -> Item {
    let id = call::id(&text(fields, &["id"]).unwrap_or_default());
    let given = object(get(fields, &["toolResult"]));
    if let Some(error) = text(&given, &["error"]) {
        return Item::Event(EventPayload::AgentToolResult(pairing::result(id, true, &error)));
    }
    let value = object(get(&given, &["value"]));
    let content = get(&value, &["content"]).or_else(|| get(&given, &["value"]));
    let (mut texts, mut parts, mut is_plain) = (Vec::new(), Vec::new(), true);
    for block in values::list(content, notes) {
        let fields = object(Some(&block));
        let kind = text(&fields, &["type"]).unwrap_or_default();
        let resource = object(get(&fields, &["resource"]));
        match &*kind {
            "text" => texts.extend(text(&fields, &["text"])),
            "resource" => texts.extend(text(&resource, &["text"])),
            "image" => match image(&fields) {
                Some(part) => {
                    parts.push(part);
                    is_plain = false;
                }
                None => notes.count("blocks of type image without their data"),
            },
            _ => notes.count(format!("blocks of type {} in a result", clip(&kind, 40))),
        }
    }
    let output = texts.join("\n");
    let mut result: ToolResult = pairing::result(id, is_true(&value, &["isError"]), &output);
    if let Some(structured) = get(&value, &["structuredContent"]) {
        result = result.with_structured(structured.clone());
    }
    if !is_plain {
        result = texts.into_iter().map(Part::text).chain(parts).fold(result, ToolResult::with_part);
    }
    Item::Event(EventPayload::AgentToolResult(result))
}
