//! Transcripts of Codex: `sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl`.
//!
//! Each line is an object with a `timestamp`, a `type` and a `payload`. Lines of type `response_item` are what the model was given and gave,
//! as items of the Responses API; those of type `event_msg` tell the same to a screen, and are read for the tokens only. `session_meta` and
//! `turn_context` describe the session and each turn. `compacted` replaces the history before it. Older versions wrote the items without
//! the object around them, after a first line with `id`, `timestamp` and `instructions`.
//!
//! Files are only appended to, so that the number of a line names it. The format has no specification; this is what versions 0.2 to 0.80
//! write.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use agent_core::event::EventPayload;
use agent_core::json::{RawFields, RawJson};
use agent_core::model::{RunUsage, Usage};
use agent_core::{Error, Result, Timestamp};

use crate::formats::anthropic::text;
use crate::formats::responses::{self, By};
use crate::ids::{self, EntryId};
use crate::lines::{Line, Lines};
use crate::source::{Entry, Item, Notes, Relation, Source, Transcript};
use crate::{files, text as texts};

/// Number of lines at the beginning that describe the session.
const HEAD_LINES: usize = 64;

/// Events for the screen whose content is in other lines.
const REPEATED: [&str; 16] = [
    "agent_message",
    "agent_reasoning",
    "agent_reasoning_raw_content",
    "agent_reasoning_section_break",
    "context_compacted",
    "exec_command_begin",
    "exec_command_end",
    "item_completed",
    "mcp_tool_call_end",
    "patch_apply_end",
    "session_configured",
    "task_started",
    "turn_started",
    "user_message",
    "view_image_tool_call",
    "web_search_end",
];

/// Files of Codex.
#[derive(Debug)]
pub(crate) struct Codex {
    files: VecDeque<PathBuf>,
    is_finished: bool,
    opened: Option<Opened>,
}

impl Codex {
    pub(crate) fn open(path: &Path, is_finished: bool) -> Result<Self> {
        let found = files::find(path, "jsonl")?;
        let is_rollout = |file: &PathBuf| {
            file == path
                || file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rollout-"))
        };
        // By name, which begins with the time: a session comes after the one that it was forked from.
        let mut files: Vec<_> = found.into_iter().filter(is_rollout).collect();
        if files.is_empty() {
            return Err(Error::invalid(format!("{} holds no files rollout-*.jsonl", path.display())));
        }
        files.sort_by(|one, other| (one.file_name(), one).cmp(&(other.file_name(), other)));
        Ok(Self { files: files.into(), is_finished, opened: None })
    }
}

impl Source for Codex {
    fn next_transcript(&mut self, _notes: &mut Notes) -> Result<Option<Transcript>> {
        let Some(path) = self.files.pop_front() else { return Ok(None) };
        let (opened, transcript) = Opened::read(&path, self.is_finished)?;
        self.opened = Some(opened);
        Ok(Some(transcript))
    }

    fn next_entry(&mut self, notes: &mut Notes) -> Result<Option<Entry>> {
        self.opened.as_mut().map_or(Ok(None), |opened| opened.next_entry(notes))
    }
}

/// File that is read.
#[derive(Debug)]
struct Opened {
    lines: Lines,
    name: String,
    /// Number of the line that was read last, from 1.
    number: u64,
    is_finished: bool,
    provider: String,
    model: Option<String>,
    /// True behind a part of an answer whose end was not noted.
    is_answering: bool,
    tokens: Tokens,
}

/// Tokens that the session has used, as its lines count them.
#[derive(Debug, Default)]
struct Tokens {
    /// At the end of the last turn, and now.
    before: Usage,
    now: Option<Usage>,
    /// Those of the last request.
    last: Option<Usage>,
}

/// Line as newer versions write it.
struct Envelope {
    kind: String,
    payload: RawJson,
    at: Option<Timestamp>,
}

impl Envelope {
    /// Reads a line of any version; `None` for one that is no object.
    fn of(line: &[u8]) -> Option<Self> {
        let raw = RawJson::parse(std::str::from_utf8(line).ok()?).ok()?;
        let fields: RawFields = raw.to().ok()?;
        let at = fields.get("timestamp").and_then(texts::time);
        let kind = text(&fields, "type").unwrap_or_default();
        Some(match fields.get("payload") {
            Some(payload) => Self { kind, payload: payload.clone(), at },
            None if fields.get("record_type").is_some() => {
                Self { kind: "record_type".to_owned(), payload: raw, at }
            }
            None if kind.is_empty() && fields.get("role").is_none() => {
                Self { kind: "session_meta".to_owned(), payload: raw, at }
            }
            None => Self { kind: "response_item".to_owned(), payload: raw, at },
        })
    }
}

impl Opened {
    /// Reads what the first lines say about the session.
    fn read(path: &Path, is_finished: bool) -> Result<(Self, Transcript)> {
        let mut lines = Lines::open(path)?;
        let name = path.file_stem().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let (mut about, mut at, mut provider) = (BTreeMap::new(), None, None);
        for _ in 0..HEAD_LINES {
            let Some(_) = lines.next()? else { break };
            let Some(Envelope { kind, payload, at: time }) = Envelope::of(lines.bytes()) else { continue };
            at = at.or(time);
            if !matches!(&*kind, "session_meta" | "turn_context") {
                continue;
            }
            let fields: RawFields = payload.to().unwrap_or_default();
            let git: RawFields = fields.get("git").and_then(|git| git.to().ok()).unwrap_or_default();
            let found = [
                ("cwd", text(&fields, "cwd")),
                ("version", text(&fields, "cli_version")),
                ("forked_from", text(&fields, "forked_from_id")),
                ("git_branch", text(&git, "branch")),
            ];
            for (name, text) in found {
                if let Some(text) = text {
                    about.entry(name).or_insert(text);
                }
            }
            provider = provider.or_else(|| text(&fields, "model_provider"));
        }
        let transcript = Transcript {
            name: name.clone(),
            place: path.display().to_string(),
            relation: Relation::None,
            title: None,
            about,
            at,
        };
        let opened = Self {
            lines: Lines::open(path)?,
            name,
            number: 0,
            is_finished,
            provider: provider.unwrap_or_default(),
            model: None,
            is_answering: false,
            tokens: Tokens::default(),
        };
        Ok((opened, transcript))
    }

    fn next_entry(&mut self, notes: &mut Notes) -> Result<Option<Entry>> {
        while let Some(line) = self.lines.next()? {
            self.number += 1;
            let Some(envelope) = self.envelope(line, notes) else { continue };
            let mut entry = Entry::new(EntryId::of(&format!("line {}", self.number)), envelope.at);
            self.items(&envelope, &mut entry, notes);
            if !entry.items.is_empty() {
                return Ok(Some(entry));
            }
        }
        Ok(self.last_entry())
    }

    fn envelope(&self, line: Line, notes: &mut Notes) -> Option<Envelope> {
        if line.is_too_long {
            notes.count("lines of more than 16 MiB");
            return None;
        }
        if line.bytes == 0 {
            return None;
        }
        let envelope = Envelope::of(self.lines.bytes());
        match (&envelope, line.is_whole) {
            (None, true) => notes.count("lines that are no JSON objects"),
            (None, false) => notes.cut_off = true,
            _ => {}
        }
        envelope
    }

    fn items(&mut self, envelope: &Envelope, entry: &mut Entry, notes: &mut Notes) {
        let Envelope { kind, payload, .. } = envelope;
        let fields: RawFields = payload.to().unwrap_or_default();
        match &**kind {
            "response_item" => self.item(payload, entry, notes),
            "event_msg" => self.event(&fields, payload, entry, notes),
            "session_meta" => {}
            "turn_context" => {
                self.end_answer(&mut entry.items);
                self.model = text(&fields, "model").or_else(|| self.model.take());
            }
            "compacted" => {
                self.end_answer(&mut entry.items);
                let message = text(&fields, "message").filter(|message| !message.trim().is_empty());
                let history = || {
                    let history: Vec<RawJson> = fields.get("replacement_history")?.to().ok()?;
                    responses::history(&history).filter(|history| !history.is_empty())
                };
                match message.or_else(history) {
                    Some(summary) => entry.items.push(Item::Compaction(summary)),
                    None => notes.count("compactions without a text that can be read"),
                }
            }
            _ => unknown(kind, payload, entry, notes),
        }
    }

    fn item(&mut self, payload: &RawJson, entry: &mut Entry, notes: &mut Notes) {
        let (by, items) = responses::item(payload, notes);
        match by {
            By::Model => self.is_answering = true,
            By::User => {
                self.end_turn(&mut entry.items);
                entry.begins_turn = true;
            }
            By::Program => self.end_answer(&mut entry.items),
            By::Nobody => {}
        }
        entry.items.extend(items);
    }

    fn event(&mut self, fields: &RawFields, payload: &RawJson, entry: &mut Entry, notes: &mut Notes) {
        let kind = text(fields, "type").unwrap_or_default();
        match &*kind {
            "token_count" => {
                self.end_answer(&mut entry.items);
                let info: RawFields = fields.get("info").and_then(|info| info.to().ok()).unwrap_or_default();
                self.tokens.now = usage(&info, "total_token_usage").or(self.tokens.now);
                self.tokens.last = usage(&info, "last_token_usage").or(self.tokens.last);
            }
            "task_complete" | "turn_complete" | "turn_aborted" => self.end_turn(&mut entry.items),
            "thread_rolled_back" => notes.count("turns that were taken back, which stay in the session"),
            kind if REPEATED.contains(&kind) => {}
            kind => unknown(&format!("event_msg.{kind}"), payload, entry, notes),
        }
    }

    /// Notes the end of an answer, if there was one.
    fn end_answer(&mut self, items: &mut Vec<Item>) {
        if std::mem::take(&mut self.is_answering)
            && let Some(model) = &self.model
        {
            items.extend(responses::response(&self.provider, model));
        }
    }

    /// Notes the end of a turn, with the tokens that it used.
    fn end_turn(&mut self, items: &mut Vec<Item>) {
        self.end_answer(items);
        if let Some(usage) = self.tokens.take() {
            let run = ids::run(&self.name, &format!("line {}", self.number));
            items.push(Item::Event(EventPayload::SessionRunUsage(RunUsage::new(run, usage))));
        }
    }

    /// Returns the end of a source that grows no more.
    fn last_entry(&mut self) -> Option<Entry> {
        if !self.is_finished {
            return None;
        }
        self.number += 1;
        let mut entry = Entry::new(EntryId::of("end of the last turn"), None);
        self.end_turn(&mut entry.items);
        (!entry.items.is_empty()).then_some(entry)
    }
}

fn unknown(kind: &str, payload: &RawJson, entry: &mut Entry, notes: &mut Notes) {
    notes.count(format!("lines of type {kind}"));
    entry.items.push(Item::Unknown { kind: kind.replace('-', "_"), json: payload.clone() });
}

impl Tokens {
    /// Returns those of the turn that ends. Sums of the whole session are compared, since a line may be repeated.
    fn take(&mut self) -> Option<Usage> {
        let last = self.last.take();
        let Some(now) = self.now.take() else { return last };
        let before = std::mem::replace(&mut self.before, now);
        let less = |now: u64, before: u64| now.checked_sub(before);
        let turn = || {
            let input = less(now.input_tokens, before.input_tokens)?;
            let usage = Usage::new(input, less(now.output_tokens, before.output_tokens)?);
            let read = less(now.cache_read_tokens, before.cache_read_tokens)?;
            let reasoning = less(now.reasoning_tokens, before.reasoning_tokens)?;
            Some(usage.with_cache(read, 0).with_reasoning(reasoning))
        };
        // Sums that shrank began anew.
        turn().or(last).filter(|usage| *usage != Usage::default())
    }
}

/// Returns the tokens that a member counts.
fn usage(info: &RawFields, name: &str) -> Option<Usage> {
    let fields: RawFields = info.get(name)?.to().ok()?;
    let number = |name: &str| fields.get(name).and_then(|it| it.to::<u64>().ok()).unwrap_or_default();
    let usage = Usage::new(number("input_tokens"), number("output_tokens"));
    let usage = usage.with_cache(number("cached_input_tokens"), 0);
    Some(usage.with_reasoning(number("reasoning_output_tokens")))
}
