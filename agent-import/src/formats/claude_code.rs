//! Transcripts of Claude Code: `projects/<folder>/<session>.jsonl`.
//!
//! Each line is an object with a `type`. Lines with a `uuid` and a `parentUuid` are a tree: going back to an earlier message leaves a
//! branch. An answer is several lines with one `message.id`, each with one block, and the tokens so far. `isSidechain` marks the lines of
//! helpers, which newer versions write to files of their own. `compact_boundary` begins a new root, whose `logicalParentUuid` names the entry
//! before it; the summary follows as a message with `isCompactSummary`. Large outputs are in `<session>/tool-results/<call>.txt`.
//!
//! The format has no specification; this is what versions 1.0 to 2.1 write.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use agent_core::event::{EventPayload, FullOutput};
use agent_core::json::{RawFields, RawJson};
use agent_core::model::{RunUsage, Usage};
use agent_core::{Error, Result, Timestamp};

use crate::files;
use crate::formats::anthropic::{self, text};
use crate::formats::tree::{Branches, Tree};
use crate::ids::{self, EntryId};
use crate::lines::Lines;
use crate::source::{Entry, Item, Notes, Relation, Source, Transcript};

/// Maximum number of bytes of an output that is in a file of its own.
const OUTPUT_MAX_BYTES: u64 = 12 << 20;

/// Files of Claude Code.
#[derive(Debug)]
pub(crate) struct ClaudeCode {
    files: VecDeque<File>,
    is_finished: bool,
    opened: Option<Opened>,
}

/// File with the name of its transcript.
#[derive(Debug)]
struct File {
    path: PathBuf,
    name: String,
    /// Transcript that called this helper, if the path names it.
    parent: Option<String>,
}

impl ClaudeCode {
    pub(crate) fn open(path: &Path, is_finished: bool) -> Result<Self> {
        let found = files::find(path, "jsonl")?;
        if found.is_empty() {
            return Err(Error::invalid(format!("{} holds no files *.jsonl", path.display())));
        }
        let mut files: Vec<_> = found.into_iter().map(File::new).collect();
        // Helpers after those that call them.
        files.sort_by_key(|file| file.parent.is_some() || file.name.starts_with("agent-"));
        Ok(Self { files: files.into(), is_finished, opened: None })
    }
}

impl File {
    fn new(path: PathBuf) -> Self {
        let stem =
            |path: &Path| path.file_stem().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let name = stem(&path);
        let folder = path.parent();
        let parent = folder
            .filter(|folder| folder.file_name().is_some_and(|it| it == "subagents"))
            .and_then(Path::parent)
            .map(|session| {
                session.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default()
            });
        let name = match &parent {
            Some(parent) => format!("{parent}/{name}"),
            None => name,
        };
        Self { path, name, parent }
    }
}

impl Source for ClaudeCode {
    fn next_transcript(&mut self, notes: &mut Notes) -> Result<Option<Transcript>> {
        loop {
            if let Some(opened) = &mut self.opened
                && let Some(transcript) = opened.next_branch()
            {
                return Ok(Some(transcript));
            }
            let Some(file) = self.files.pop_front() else {
                self.opened = None;
                return Ok(None);
            };
            self.opened = Some(Opened::read(file, self.is_finished, notes)?);
        }
    }

    fn next_entry(&mut self, notes: &mut Notes) -> Result<Option<Entry>> {
        self.opened.as_mut().map_or(Ok(None), |opened| opened.next_entry(notes))
    }

    fn shared(&self) -> Vec<EntryId> {
        self.opened.as_ref().map(Opened::shared).unwrap_or_default()
    }

    fn share_from(&mut self, number: usize) {
        if let Some(opened) = &mut self.opened {
            opened.at = number.min(opened.path.len());
        }
    }
}

/// Line of a file.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    bytes: u32,
}

/// File whose tree is known.
#[derive(Debug)]
struct Opened {
    file: File,
    lines: Lines,
    places: Vec<Place>,
    branches: Branches,
    about: About,
    is_finished: bool,
    next: usize,
    /// Entries of the branch that is read, and the number of those that it shares.
    path: Vec<u32>,
    shared: usize,
    at: usize,
    request: Option<Request>,
}

/// What lines say about the whole session.
#[derive(Debug, Default)]
struct About {
    titles: [Option<String>; 3],
    texts: BTreeMap<&'static str, String>,
    session: Option<String>,
    at: Option<Timestamp>,
}

/// Request of which the lines of the answer are read.
#[derive(Clone, Debug)]
struct Request {
    id: String,
    /// Tokens so far, until they are counted.
    usage: Option<Usage>,
}

/// Kinds of lines with a place in the tree that hold nothing of a conversation.
fn is_turn(
    fields: &RawFields,
    kind: &str,
    answers: &mut BTreeMap<u32, u64>,
    parent: Option<u32>,
    number: u32,
) -> bool {
    let message: RawFields = fields.get("message").and_then(|it| it.to().ok()).unwrap_or_default();
    match kind {
        "user" => {
            let has_text = message.get("content").is_some_and(|content| {
                content.get().starts_with('"') || content.get().contains(r#""type":"text""#)
            });
            has_text && !is_true(fields, "isMeta")
        }
        "assistant" => {
            // Another line of the same answer begins nothing.
            let id = message.get("id").map_or(0, |id| fingerprint(id.get()));
            let before = parent.and_then(|parent| answers.get(&parent)).copied();
            answers.insert(number, id);
            id == 0 || before != Some(id)
        }
        _ => false,
    }
}

fn fingerprint(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish().max(1)
}

fn is_true(fields: &RawFields, name: &str) -> bool {
    fields.get(name).is_some_and(|value| value.get() == "true")
}

impl Opened {
    /// Reads a file once: which lines there are, and the tree that they are.
    fn read(file: File, is_finished: bool, notes: &mut Notes) -> Result<Self> {
        let mut lines = Lines::open(&file.path)?;
        let (mut tree, mut places, mut about) = (Tree::default(), Vec::new(), About::default());
        let (mut last, mut last_of_helper, mut answers) = (None, None, BTreeMap::new());
        while let Some(line) = lines.next()? {
            if line.is_too_long {
                notes.count("lines of more than 16 MiB");
                continue;
            }
            if line.bytes == 0 {
                continue;
            }
            let Some(fields) = fields(lines.bytes()) else {
                if line.is_whole {
                    notes.count("lines that are no JSON objects");
                } else {
                    notes.cut_off = true;
                }
                continue;
            };
            let kind = text(&fields, "type").unwrap_or_default();
            about.add(&fields, &kind);
            let Some(id) = text(&fields, "uuid") else {
                if !About::KINDS.contains(&&*kind) {
                    notes.count(format!("lines of type {kind}"));
                }
                continue;
            };
            let is_helper = is_true(&fields, "isSidechain");
            let before = if is_helper { last_of_helper } else { last };
            let parent = parent(&fields, &tree, before, is_helper);
            let Ok(number) = u32::try_from(places.len()) else {
                return Err(Error::limit(format!("{} has more than 2^32 lines", file.path.display())));
            };
            let is_turn = is_turn(&fields, &kind, &mut answers, parent, number);
            if tree.add(EntryId::of(&id), parent, is_turn).is_none() {
                notes.count("lines with the uuid of another");
                continue;
            }
            let bytes = u32::try_from(line.bytes).unwrap_or(u32::MAX);
            places.push(Place { offset: line.offset, bytes });
            if is_helper { last_of_helper = Some(number) } else { last = Some(number) }
        }
        let branches = tree.branches();
        let (path, request) = (Vec::new(), None);
        Ok(Self {
            file,
            lines,
            places,
            branches,
            about,
            is_finished,
            next: 0,
            path,
            shared: 0,
            at: 0,
            request,
        })
    }

    fn next_branch(&mut self) -> Option<Transcript> {
        let branch = *self.branches.branches.get(self.next)?;
        (self.path, self.shared) = self.branches.shared_path(self.next);
        (self.at, self.request) = (self.shared, None);
        let number = self.next;
        self.next += 1;
        let of = branch.of.map(|of| self.name(of));
        // Roots after the first are helpers that an older version wrote into the same file.
        let relation = match (of, &self.file.parent) {
            (Some(of), _) => Relation::Branch { of },
            (None, _) if number > 0 => Relation::Child { of: self.name(0) },
            (None, Some(parent)) => Relation::Child { of: parent.clone() },
            (None, None) if self.file.name.starts_with("agent-") => match &self.about.session {
                Some(parent) => Relation::Child { of: parent.clone() },
                None => Relation::None,
            },
            (None, None) => Relation::None,
        };
        let [own, generated, summary] = &self.about.titles;
        Some(Transcript {
            name: self.name(number),
            place: self.file.path.display().to_string(),
            relation,
            title: own.as_ref().or(generated.as_ref()).or(summary.as_ref()).cloned(),
            about: self.about.texts.clone(),
            at: self.about.at,
        })
    }

    /// Returns the name of a branch: that of the file for the first, else with the first entry of its own.
    fn name(&self, branch: usize) -> String {
        match branch {
            0 => self.file.name.clone(),
            _ => format!("{}/{}", self.file.name, self.branches.id(self.branches.branches[branch].head)),
        }
    }

    fn shared(&self) -> Vec<EntryId> {
        self.path[..self.shared].iter().map(|number| self.branches.id(*number)).collect()
    }

    fn next_entry(&mut self, notes: &mut Notes) -> Result<Option<Entry>> {
        let Some(number) = self.path.get(self.at).copied() else {
            return Ok(self.last_usage());
        };
        self.at += 1;
        let place = self.places[number as usize];
        let line = self.lines.read_at(place.offset, place.bytes as usize)?;
        let id = self.branches.id(number);
        let Some(fields) = fields(line) else {
            return Err(Error::invalid(format!(
                "{} was changed while it was read; import it again",
                self.file.path.display()
            )));
        };
        let at = fields.get("timestamp").and_then(|at| at.to::<String>().ok()).and_then(|at| at.parse().ok());
        let mut entry = Entry::new(id, at);
        self.items(&fields, &mut entry, notes);
        Ok(Some(entry))
    }

    fn items(&mut self, fields: &RawFields, entry: &mut Entry, notes: &mut Notes) {
        let kind = text(fields, "type").unwrap_or_default();
        let message: RawFields = fields.get("message").and_then(|it| it.to().ok()).unwrap_or_default();
        let content = message.get("content").cloned();
        match (&*kind, content) {
            ("user", Some(content)) => {
                let (results, message) = anthropic::user(&content, notes);
                let Some(message) = message else {
                    entry.items = results;
                    self.outputs(entry, notes);
                    return;
                };
                if is_true(fields, "isCompactSummary") {
                    entry.items = results;
                    entry.items.push(Item::Compaction(message.text_view().into_owned()));
                } else if is_true(fields, "isMeta") {
                    entry.items = results;
                    entry.items.push(anthropic::injected(&message));
                } else {
                    self.end_request(&mut entry.items);
                    entry.begins_turn = results.is_empty();
                    entry.items.extend(results);
                    entry.items.push(Item::Event(EventPayload::UserMessage(message)));
                }
                self.outputs(entry, notes);
            }
            ("assistant", Some(content)) if text(&message, "model").as_deref() == Some("<synthetic>") => {
                // Written by the program itself, such as the text of an error.
                let (_, message) = anthropic::user(&content, notes);
                entry.items.extend(message.map(|message| anthropic::injected(&message)));
            }
            ("assistant", Some(content)) => {
                self.request(&message, &mut entry.items);
                entry.items.extend(anthropic::assistant(&content, notes));
                entry.items.extend(anthropic::response(&message));
                if text(&message, "stop_reason").is_some() {
                    self.end_request(&mut entry.items);
                }
            }
            _ => {
                let subtype = text(fields, "subtype").map(|it| format!(".{it}")).unwrap_or_default();
                if subtype != ".compact_boundary" {
                    notes.count(format!("lines of type {kind}{subtype}"));
                    let json = RawJson::of(fields).unwrap_or_else(|_| RawJson::empty_object());
                    entry.items.push(Item::Unknown { kind: kind.replace('-', "_"), json });
                }
            }
        }
    }

    /// Notes the usage of a line of an answer, after that of the answer before it. A line that has a reason for its end is the last one.
    fn request(&mut self, message: &RawFields, items: &mut Vec<Item>) {
        let Some(id) = text(message, "id") else { return };
        match &mut self.request {
            Some(request) if request.id == id => {
                request.usage = request.usage.and(anthropic::usage(message).or(request.usage));
            }
            _ => {
                self.end_request(items);
                self.request = Some(Request { id, usage: anthropic::usage(message) });
            }
        }
    }

    /// Adds the usage of the request, unless it was counted.
    fn end_request(&mut self, items: &mut Vec<Item>) {
        let Some(Request { id, usage }) = &mut self.request else { return };
        if let Some(usage) = usage.take() {
            let used = RunUsage::new(ids::run(&self.file.name, id), usage);
            items.push(Item::Event(EventPayload::SessionRunUsage(used)));
        }
    }

    /// Returns the usage of the last request of a source that grows no more.
    fn last_usage(&mut self) -> Option<Entry> {
        let id = &self.request.as_ref().filter(|_| self.is_finished)?.id;
        let mut entry = Entry::new(EntryId::of(&format!("usage {id}")), None);
        self.end_request(&mut entry.items);
        (!entry.items.is_empty()).then_some(entry)
    }

    /// Gives results the whole outputs that are in files beside the transcript.
    fn outputs(&self, entry: &mut Entry, notes: &mut Notes) {
        let session = self.file.path.with_extension("");
        let folder = session.join("tool-results");
        // Neither may be a link that leads elsewhere.
        let is_folder = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
        if !is_folder(&session) || !is_folder(&folder) {
            return;
        }
        for item in &mut entry.items {
            let Item::Event(EventPayload::AgentToolResult(result)) = item else { continue };
            let call = result.call.as_str();
            let is_name =
                !call.is_empty() && call.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
            if !is_name {
                continue;
            }
            let path = folder.join(format!("{call}.txt"));
            if std::fs::symlink_metadata(&path).is_err() {
                continue;
            }
            match files::read_small(&path, OUTPUT_MAX_BYTES).map(String::from_utf8) {
                Some(Ok(text)) => result.full = Some(FullOutput::text(text)),
                _ => notes.count("outputs in files that are no text, or larger than 12 MiB"),
            }
        }
    }
}

impl About {
    /// Types of lines that are read here and have no place in the tree.
    const KINDS: [&'static str; 3] = ["summary", "custom-title", "ai-title"];

    fn add(&mut self, fields: &RawFields, kind: &str) {
        let [own, generated, summary] = &mut self.titles;
        let (title, member) = match kind {
            "custom-title" => (own, "customTitle"),
            "ai-title" => (generated, "aiTitle"),
            "summary" => (summary, "summary"),
            _ => {
                for (name, member) in [("cwd", "cwd"), ("git_branch", "gitBranch"), ("version", "version")] {
                    if !self.texts.contains_key(name)
                        && let Some(text) = text(fields, member)
                    {
                        self.texts.insert(name, text);
                    }
                }
                self.session = self.session.take().or_else(|| text(fields, "sessionId"));
                self.at = self.at.or_else(|| text(fields, "timestamp")?.parse().ok());
                return;
            }
        };
        *title = text(fields, member).or_else(|| title.take());
    }
}

/// Returns the entry before a line; `before` is the one that stands before it.
fn parent(fields: &RawFields, tree: &Tree, before: Option<u32>, is_helper: bool) -> Option<u32> {
    let named = text(fields, "parentUuid").or_else(|| text(fields, "logicalParentUuid"));
    match named.map(|parent| tree.find(EntryId::of(&parent))) {
        Some(Some(parent)) => Some(parent),
        // It names an entry that is not there.
        Some(None) => before,
        // Each helper of an older version begins a tree of its own.
        None => before.filter(|_| !is_helper),
    }
}

/// Returns the members of a line that is a JSON object.
fn fields(line: &[u8]) -> Option<RawFields> {
    RawJson::parse(std::str::from_utf8(line).ok()?).ok()?.to().ok()
}
