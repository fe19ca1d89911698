//! Events of a stream, one by one. The size of each is checked before memory is allocated for it.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use memchr::memchr2;
use serde::Deserialize;
use serde_json::value::RawValue;

use agent_core::json::RawJson;
use agent_core::text::with_whole_characters;

use crate::strict::{fault_of, hides_json};

/// Maximum number of a part of an answer: rig makes room for so many.
const INDEX_MAX: f64 = 4096.0;

/// Maximum count of tokens that is believed: more than any model reads in a year.
const TOKENS_MAX: f64 = 1e15;

/// Maximum number of values in the JSON of one event: in memory each takes many times its length.
const VALUES_MAX: usize = 1 << 16;

/// The same for all events of an answer that add more than a piece.
const ALL_VALUES_MAX: usize = 1 << 18;

/// Maximum number of values in an event that adds no more than a piece.
const PIECE_VALUES_MAX: usize = 256;

/// Maximum number of events that add something else than a piece of text, of reasoning or of arguments, as far as they say so;
/// how many calls and media an answer has is for the run to bound.
const ITEMS_MAX: usize = 1 << 14;

/// Splits an answer into events, or into lines, and checks each.
#[derive(Debug)]
pub(crate) struct Frames {
    /// True for server-sent events, which end with an empty line; false for lines of JSON.
    has_events: bool,
    /// Beginning of an event.
    open: Vec<u8>,
    /// Where the last line in it begins.
    line: usize,
    /// True if the last byte was a carriage return: a line feed behind it ends no further line.
    is_behind_return: bool,
    ready: VecDeque<Result<Bytes, String>>,
    /// Number of bytes of the answer.
    bytes: usize,
    /// Number of events that add more than a piece, and of the values in them.
    items: usize,
    values: usize,
    /// Arguments that stream in pieces, by the number of their call.
    arguments: BTreeMap<u32, Nesting>,
    is_over: bool,
}

impl Frames {
    /// Splits server-sent events ([grammar](https://html.spec.whatwg.org/multipage/server-sent-events.html)).
    pub(crate) fn of_events() -> Self {
        Self {
            has_events: true,
            open: Vec::new(),
            line: 0,
            is_behind_return: false,
            ready: VecDeque::new(),
            bytes: 0,
            items: 0,
            values: 0,
            arguments: BTreeMap::new(),
            is_over: false,
        }
    }

    /// Splits lines of JSON.
    pub(crate) fn of_lines() -> Self {
        Self { has_events: false, ..Self::of_events() }
    }

    /// Returns the next event, as it is for rig; an error ends the answer.
    pub(crate) fn next(&mut self) -> Option<Result<Bytes, String>> {
        self.ready.pop_front()
    }

    /// Takes a piece of the answer, which may have at most `most` bytes.
    pub(crate) fn push(&mut self, mut chunk: &[u8], most: usize) {
        self.bytes = self.bytes.saturating_add(chunk.len());
        if self.bytes > most {
            return self.refuse(format!("the answer has more than {most} bytes"));
        }
        if self.is_behind_return
            && let Some(rest) = chunk.strip_prefix(b"\n")
        {
            (self.is_behind_return, chunk) = (false, rest);
        }
        while !self.is_over
            && let Some(at) = memchr2(b'\n', b'\r', chunk)
        {
            self.open.extend_from_slice(&chunk[..at]);
            let is_return = chunk[at] == b'\r';
            chunk = &chunk[at + 1..];
            self.is_behind_return = is_return && chunk.is_empty();
            if is_return && let Some(rest) = chunk.strip_prefix(b"\n") {
                chunk = rest;
            }
            self.end_line();
        }
        if !self.is_over && !chunk.is_empty() {
            self.open.extend_from_slice(chunk);
            self.is_behind_return = false;
        }
    }

    /// Ends the answer. A last line of JSON needs no end.
    pub(crate) fn end(&mut self) {
        if !self.has_events && !self.open.is_empty() {
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        let is_empty = self.open.len() == self.line;
        if self.has_events && !is_empty {
            self.open.push(b'\n');
            self.line = self.open.len();
            return;
        }
        let frame = std::mem::take(&mut self.open);
        self.line = 0;
        if frame.is_empty() {
            return;
        }
        match self.checked(frame) {
            Ok(frame) => self.ready.push_back(Ok(frame)),
            Err(what) => self.refuse(what),
        }
    }

    fn refuse(&mut self, what: String) {
        (self.is_over, self.open) = (true, Vec::new());
        self.ready.push_back(Err(what));
    }

    /// Returns an event as it is for rig.
    fn checked(&mut self, frame: Vec<u8>) -> Result<Bytes, String> {
        let (frame, is_changed) = with_whole_characters(frame);
        // A mark of the byte order is no part of the first line.
        let frame = frame.strip_prefix('\u{feff}').unwrap_or(&frame);
        let (head, data) = match self.has_events {
            true => fields(frame),
            false => (String::new(), Cow::Borrowed(frame)),
        };
        let values = check_shape(&data)?;
        if hides_json(&data) {
            return Err("an event of the answer hides JSON in a text".to_owned());
        }
        // What is no object is rig's to report.
        let Some(event) = Event::read(&data) else { return Ok(self.frame(&head, &data)) };
        let holds_call = event.holds_call();
        if holds_call && is_changed {
            return Err("a call has a part of a character; it is not what the model said".to_owned());
        }
        event.check_indexes()?;
        // Arguments that stream as an object: rig would take the last of two.
        if holds_call && let Some(what) = fault_of(&data) {
            return Err(format!("an event with a call is no plain JSON: {what}"));
        }
        if values > PIECE_VALUES_MAX || !event.is_piece() {
            self.items += 1;
            self.values += values;
            if self.items > ITEMS_MAX || self.values > ALL_VALUES_MAX {
                return Err("the answer has more items than anybody reads".to_owned());
            }
        }
        for (call, piece) in event.arguments() {
            let mut whole = Nesting::default();
            let nesting = match call {
                Some(number) => self.arguments.entry(number).or_default(),
                None => &mut whole,
            };
            if !nesting.takes(&piece) {
                return Err(format!("the arguments of a call have more than {} levels", RawJson::MAX_DEPTH));
            }
        }
        let without = event.without_counts(&data);
        Ok(self.frame(&head, without.as_deref().unwrap_or(&data)))
    }

    fn frame(&self, head: &str, data: &str) -> Bytes {
        match self.has_events {
            true => format!("{head}data: {}\n\n", data.replace('\n', "\ndata: ")).into(),
            false => format!("{data}\n").into(),
        }
    }
}

/// Returns the fields of an event besides its data, as lines, and its data.
fn fields(event: &str) -> (String, Cow<'_, str>) {
    let (mut head, mut data) = (String::new(), None::<Cow<'_, str>>);
    for line in event.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        match name {
            "data" => {
                let value = value.strip_prefix(' ').unwrap_or(value);
                data = Some(match data {
                    None => Cow::Borrowed(value),
                    Some(before) => Cow::Owned(format!("{before}\n{value}")),
                });
            }
            "event" | "id" | "retry" => {
                head.push_str(line);
                head.push('\n');
            }
            // A comment, which only keeps the connection, or what the grammar does not know.
            _ => {}
        }
    }
    (head, data.unwrap_or_default())
}

/// Returns the number of values of JSON, if it has neither too many nor too many levels.
fn check_shape(json: &str) -> Result<usize, String> {
    let (bytes, mut at) = (json.as_bytes(), 0);
    let (mut depth, mut values) = (0_usize, 1_usize);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = behind_string(bytes, at),
            b'{' | b'[' => (depth, values) = (depth + 1, values + 1),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if depth > RawJson::MAX_DEPTH {
            return Err(format!("an event of the answer has more than {} levels", RawJson::MAX_DEPTH));
        }
        if values > VALUES_MAX {
            return Err(format!("an event of the answer has more than {VALUES_MAX} values"));
        }
    }
    Ok(values)
}

/// Returns the position behind the end of a string, of which the first character is at a position.
fn behind_string(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr2(b'"', b'\\', json.get(at..).unwrap_or_default()) {
        at += found + 1;
        if json[at - 1] == b'"' {
            return at;
        }
        // The character behind a backslash ends nothing.
        at += 1;
    }
    json.len()
}

/// Members of an object; a member that is named twice is the last one, as for rig.
type Members<'a> = BTreeMap<String, &'a RawValue>;

fn members(json: &str) -> Option<Members<'_>> {
    serde_json::from_str(json).ok()
}

fn list<'a>(members: &Members<'a>, name: &str) -> Vec<&'a RawValue> {
    members.get(name).and_then(|list| serde_json::from_str(list.get()).ok()).unwrap_or_default()
}

fn object<'a>(members_of: &Members<'a>, name: &str) -> Members<'a> {
    members_of.get(name).and_then(|object| members(object.get())).unwrap_or_default()
}

fn text<'a>(members: &Members<'a>, name: &str) -> Option<Cow<'a, str>> {
    serde_json::from_str::<Text<'a>>(members.get(name)?.get()).ok().map(|text| text.0)
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn all<'a>(members_of: &Members<'a>, name: &str) -> Vec<Members<'a>> {
    list(members_of, name).into_iter().filter_map(|item| members(item.get())).collect()
}

fn is_of(item: &Members<'_>, is_kind: impl Fn(&str) -> bool) -> bool {
    text(item, "type").is_some_and(|kind| is_kind(&kind))
}

/// Event of one of the APIs, as far as it says how much room it takes.
struct Event<'a> {
    own: Members<'a>,
    /// What is added, on Anthropic's.
    delta: Members<'a>,
    /// Answer at its beginning, on Anthropic's, and piece of it, on Ollama's.
    message: Members<'a>,
    /// Items and the answer, on Responses.
    items: Vec<Members<'a>>,
    response: Members<'a>,
    /// Choices of chat completions, and what each says.
    choices: Vec<Members<'a>>,
    messages: Vec<Members<'a>>,
    /// Calls of chat completions and of Ollama's.
    calls: Vec<Members<'a>>,
    /// Candidates of Gemini's.
    candidates: Vec<Members<'a>>,
}

impl<'a> Event<'a> {
    fn read(data: &'a str) -> Option<Self> {
        let own = members(data)?;
        let (message, response) = (object(&own, "message"), object(&own, "response"));
        let choices = all(&own, "choices");
        let messages: Vec<_> =
            choices.iter().flat_map(|choice| [object(choice, "delta"), object(choice, "message")]).collect();
        let calls =
            messages.iter().chain([&message]).flat_map(|message| all(message, "tool_calls")).collect();
        let items = all(&response, "output").into_iter().chain([object(&own, "item")]).collect();
        let (delta, candidates) = (object(&own, "delta"), all(&own, "candidates"));
        Some(Self { own, delta, message, items, response, choices, messages, calls, candidates })
    }

    fn check_indexes(&self) -> Result<(), String> {
        let inner = self.choices.iter().chain(&self.candidates).chain(&self.calls);
        for place in inner.chain([&self.own]) {
            for name in ["index", "output_index", "content_index", "summary_index", "annotation_index"] {
                let number = place.get(name).and_then(|number| number_of(number));
                if number.is_some_and(|number| number > INDEX_MAX) {
                    return Err(format!("the answer numbers a part above {INDEX_MAX}"));
                }
            }
        }
        Ok(())
    }

    /// Whether the event adds no more than a piece to a text, to reasoning or to arguments.
    fn is_piece(&self) -> bool {
        if let Some(kind) = text(&self.own, "type") {
            let is_piece = |kind: &str| matches!(kind, "text_delta" | "thinking_delta" | "input_json_delta");
            return match &*kind {
                "content_block_delta" => is_of(&self.delta, is_piece),
                kind => kind.ends_with(".delta") || kind == "ping",
            };
        }
        let is_empty = |value: &RawValue| matches!(value.get(), "[]" | "{}" | "null");
        let cites = |place: &Members<'_>| {
            let names = ["annotations", "citations", "groundingMetadata", "citationMetadata"];
            names.iter().any(|name| place.get(*name).is_some_and(|value| !is_empty(value)))
        };
        !self.messages.iter().chain(&self.candidates).any(cites)
    }

    /// Whether the event holds a call, or a piece of one.
    fn holds_call(&self) -> bool {
        let calls = |candidate: &Members<'_>| {
            all(&object(candidate, "content"), "parts").iter().any(|part| part.contains_key("functionCall"))
        };
        is_of(&self.own, |kind| kind.contains("_call"))
            || is_of(&object(&self.own, "content_block"), |kind| kind == "tool_use")
            || self.delta.contains_key("partial_json")
            || self.items.iter().any(|item| is_of(item, |kind| kind.ends_with("_call")))
            || self.candidates.iter().any(calls)
            || !self.calls.is_empty()
    }

    /// Pieces of the arguments of calls, each with the number of its call; without one, the piece is the whole.
    fn arguments(&self) -> Vec<(Option<u32>, Cow<'a, str>)> {
        let number = |place: &Members<'a>, name: &str| {
            let number = place.get(name).and_then(|number| number_of(number)).unwrap_or_default();
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it was checked, or saturates"
            )]
            Some(number as u32)
        };
        let mut found = Vec::new();
        if let Some(piece) = text(&self.delta, "partial_json") {
            found.push((number(&self.own, "index"), piece));
        }
        if is_of(&self.own, |kind| kind.ends_with("arguments.delta") || kind.ends_with("input.delta"))
            && let Some(piece) = text(&self.own, "delta")
        {
            found.push((number(&self.own, "output_index"), piece));
        }
        for call in &self.calls {
            if let Some(piece) = text(&object(call, "function"), "arguments") {
                found.push((number(call, "index"), piece));
            }
        }
        let whole = self.items.iter().chain([&self.own]);
        found.extend(whole.filter_map(|item| Some((None, text(item, "arguments")?))));
        found
    }

    /// Returns the data without counts that no answer has; `None` if they are as they can be.
    fn without_counts(&self, data: &str) -> Option<String> {
        let usages = self.choices.iter().chain([&self.own, &self.message, &self.response]);
        let usages = usages.filter_map(|place| place.get("usage")).chain(self.own.get("usageMetadata"));
        let counts = ["eval_count", "prompt_eval_count"].into_iter().filter_map(|name| self.own.get(name));
        let is_wrong = |(raw, _): &(&&RawValue, &str)| {
            serde_json::from_str(raw.get()).is_ok_and(|value: serde_json::Value| !is_counted(&value))
        };
        let all = usages.map(|usage| (usage, "null")).chain(counts.map(|count| (count, "0")));
        let mut wrong: Vec<_> = all.filter(is_wrong).collect();
        if wrong.is_empty() {
            return None;
        }
        let place = |raw: &RawValue| raw.get().as_ptr() as usize - data.as_ptr() as usize;
        wrong.sort_by_key(|(raw, _)| place(raw));
        let (mut without, mut from) = (String::new(), 0);
        for (raw, instead) in wrong {
            without.push_str(&data[from..place(raw)]);
            without.push_str(instead);
            from = place(raw) + raw.get().len();
        }
        without.push_str(&data[from..]);
        Some(without)
    }
}

/// Returns a number, also one that is written as a text, which rig reads.
fn number_of(number: &RawValue) -> Option<f64> {
    match serde_json::from_str(number.get()).ok()? {
        serde_json::Value::Number(number) => number.as_f64(),
        serde_json::Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Whether all numbers are counts that an answer can have.
fn is_counted(usage: &serde_json::Value) -> bool {
    match usage {
        serde_json::Value::Number(number) => {
            number.as_f64().is_some_and(|number| (0.0..=TOKENS_MAX).contains(&number))
        }
        // Some servers write numbers as texts, and rig reads them.
        serde_json::Value::String(text) => {
            text.trim().parse::<f64>().map_or(true, |number| (0.0..=TOKENS_MAX).contains(&number))
        }
        serde_json::Value::Array(list) => list.iter().all(is_counted),
        serde_json::Value::Object(members) => members.values().all(is_counted),
        _ => true,
    }
}

/// How deep the arguments of a call are nested so far.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
}

impl Nesting {
    /// Takes a piece; returns whether the levels are not too many.
    fn takes(&mut self, piece: &str) -> bool {
        for byte in piece.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.is_in_string => self.is_escaped = true,
                b'"' => self.is_in_string = !self.is_in_string,
                b'{' | b'[' if !self.is_in_string => self.depth += 1,
                b'}' | b']' if !self.is_in_string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if self.depth > RawJson::MAX_DEPTH {
                return false;
            }
        }
        true
    }
}
