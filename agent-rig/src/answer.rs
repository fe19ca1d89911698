//! Answers of rig's models as streams of events.
//!
//! rig decides about a part's native item when the provider has ended the whole answer, so parts end then. Their pieces
//! are forwarded as they arrive.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use agent_core::event::{Citation, HostedCall, HostedResult, Media, Native, Part};
use agent_core::json::RawJson;
use agent_core::{Error, Result};
use agent_runtime::{
    FaultKind, ModelCall, ModelEvent, ModelPart, ModelStream, PartContent, PartKind, ProviderFault,
    StopReason, Usage,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, stream};
use rig_core::completion::{CompletionResponse, FinishReason};
use rig_core::message::{AssistantContent, DocumentSourceKind, MimeType, Opaque, SourceLocation, ToolCall};
use rig_core::streaming::{self, CompletionStream, Item, StreamEvent};
use serde_json::Value;
use tracing::debug;

use crate::fault::fault;
use crate::gemini;
use crate::names::on_wire;
use crate::quiet::quiet;
use crate::request::RESPONSES;
use crate::strict;

/// Reasons of ends that are no end of a turn, of the APIs. Another text may quote what it likes.
const REASONS: [&str; 12] = [
    "BLOCKLIST",
    "IMAGE_SAFETY",
    "LANGUAGE",
    "MALFORMED_FUNCTION_CALL",
    "OTHER",
    "PROHIBITED_CONTENT",
    "RECITATION",
    "SPII",
    "UNEXPECTED_TOOL_CALL",
    "insufficient_system_resource",
    "pause_turn",
    "repetition_truncation",
];

/// Part of an answer while it streams.
#[derive(Debug)]
struct Growing {
    kind: PartKind,
    /// Number under which the run knows the part; `None` before the part begins for it.
    number: Option<u32>,
    /// JSON of a call's arguments, as the provider wrote it.
    arguments: String,
    /// Content, when the part has ended.
    content: Option<AssistantContent>,
}

impl Growing {
    const fn new(kind: PartKind) -> Self {
        Self { kind, number: None, arguments: String::new(), content: None }
    }
}

/// Answer while it streams.
struct Answer {
    provider: String,
    api: String,
    stream: Option<CompletionStream>,
    /// Parts by rig's positions, which are in the provider's order. Positions of parts that rig drops are missing.
    parts: BTreeMap<usize, Growing>,
    /// First position that has no number yet; the positions before it are decided.
    next: usize,
    /// Number of the parts that have a number.
    numbers: u32,
    events: VecDeque<Result<ModelEvent>>,
}

/// Sends the request, and returns the answer when it begins.
///
/// # Errors
///
/// A fault, if the provider refuses the request or cannot be reached.
pub(crate) async fn begin(provider: &str, api: &str, stream: CompletionStream) -> Result<ModelStream> {
    let mut answer = Answer {
        provider: provider.to_owned(),
        api: api.to_owned(),
        stream: Some(stream),
        parts: BTreeMap::new(),
        next: 0,
        numbers: 0,
        events: VecDeque::new(),
    };
    // Nothing is sent before the first event is asked for.
    let first = match answer.next().await {
        Some(event) => Some(event?),
        None => None,
    };
    let rest = stream::unfold(answer, async |mut answer| Some((answer.next().await?, answer)));
    Ok(stream::iter(first.map(Ok)).chain(rest).boxed())
}

impl Answer {
    async fn next(&mut self) -> Option<Result<ModelEvent>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            match quiet(self.stream.as_mut()?.next()).await {
                Some(Ok(Item::Event(event))) => self.take(event),
                // Something that rig does not know is a sign of life.
                Some(Ok(Item::Unknown(_))) => self.events.push_back(Ok(ModelEvent::Ping)),
                Some(Err(error)) => self.fail(fault(&self.provider, &error)),
                None => {
                    let finished = quiet(self.stream.take()?.finish()).await;
                    match finished {
                        Ok(response) => self.end(&response),
                        Err(error) => self.fail(fault(&self.provider, &error)),
                    }
                }
            }
        }
    }

    fn take(&mut self, event: StreamEvent) {
        let position = event.part().index();
        match event {
            StreamEvent::Start { kind, .. } => self.start(position, kind),
            StreamEvent::Text { text, .. } | StreamEvent::Reasoning { text, .. } => self.grow(position, text),
            StreamEvent::Arguments { json, .. } => {
                if let Some(growing) = self.parts.get_mut(&position) {
                    growing.arguments.push_str(&json);
                }
                self.grow(position, json);
            }
            StreamEvent::End { content, .. } => {
                if let Some(growing) = self.parts.get_mut(&position) {
                    growing.content = Some(content);
                }
            }
        }
    }

    fn grow(&mut self, position: usize, piece: String) {
        if let Some(number) = self.parts.get(&position).and_then(|growing| growing.number) {
            self.events.push_back(Ok(ModelEvent::delta(number, piece)));
        }
    }

    /// Begins a part. The run numbers parts in the order in which they begin, so a part whose pieces are shown at once
    /// decides about all positions before it; another one waits for them.
    fn start(&mut self, position: usize, kind: streaming::PartKind) {
        let kind = match kind {
            streaming::PartKind::Text => PartKind::Text,
            streaming::PartKind::Reasoning => PartKind::Reasoning,
            streaming::PartKind::ToolCall => PartKind::Call,
            _ => PartKind::Other,
        };
        let is_held = self.parts.get(&position).is_some_and(|held| held.kind == kind);
        if !is_held {
            self.parts.insert(position, Growing::new(kind));
        }
        if kind != PartKind::Other {
            self.number_until(position);
        }
        while self.parts.contains_key(&self.next) {
            self.number_until(self.next);
        }
    }

    /// Numbers the parts up to a position.
    fn number_until(&mut self, position: usize) {
        for at in self.next..=position {
            // rig holds the reasoning of this API back until the item behind it has ended.
            if self.api == RESPONSES && !self.parts.contains_key(&at) {
                self.parts.insert(at, Growing::new(PartKind::Reasoning));
            }
            self.number(at);
        }
        // A part that rig begins late comes behind those that have a number.
        self.number(position);
        self.next = self.next.max(position + 1);
    }

    fn number(&mut self, position: usize) {
        if let Some(growing) = self.parts.get_mut(&position).filter(|growing| growing.number.is_none()) {
            growing.number = Some(self.numbers);
            self.events.push_back(Ok(ModelEvent::part_started(self.numbers, growing.kind)));
            self.numbers += 1;
        }
    }

    /// Ends the answer with a fault. Parts that the provider has ended are whole, but have no native item.
    fn fail(&mut self, error: Error) {
        self.stream = None;
        for growing in self.parts.values() {
            if let (Some(number), Some(content)) = (growing.number, &growing.content)
                && let Ok(part) = self.model_part(&canonical(content), &growing.arguments)
            {
                self.events.push_back(Ok(ModelEvent::part_done(number, part)));
            }
        }
        self.events.push_back(Err(error));
    }

    /// Ends the answer with the parts as rig has decided about them.
    fn end(&mut self, response: &CompletionResponse) {
        let stop = match stop(response) {
            Ok(stop) => stop,
            Err((kind, what)) => {
                let text = format!("provider {}: {what}", self.provider);
                return self.fail(ProviderFault::new(kind, text).into());
            }
        };
        let positions: Vec<_> = self.parts.keys().copied().collect();
        positions.into_iter().for_each(|position| self.number(position));
        // rig gives the parts without positions, and may have moved one.
        let mut ended: Vec<_> =
            self.parts.values().filter_map(|growing| Some((growing, growing.content.as_ref()?))).collect();
        let mut done = Vec::with_capacity(ended.len());
        for decided in &response.choice {
            let Some(at) = ended.iter().position(|(_, content)| is_same(content, decided)) else { continue };
            let (growing, _) = ended.remove(at);
            done.push((growing, Cow::Borrowed(decided)));
        }
        let is_in_order = done.windows(2).all(|two| two[0].0.number < two[1].0.number);
        if !is_in_order {
            debug!(
                api = self.api,
                "the items began in another order than they have; they cannot be sent back as they came"
            );
            done.iter_mut().for_each(|(_, content)| *content = Cow::Owned(canonical(content)));
        }
        done.extend(ended.into_iter().map(|(growing, content)| (growing, Cow::Owned(canonical(content)))));
        let parts: Result<Vec<_>> = done
            .into_iter()
            .map(|(growing, content)| {
                let part = self.model_part(&content, &growing.arguments)?;
                Ok(ModelEvent::part_done(growing.number.unwrap_or(u32::MAX), part))
            })
            .collect();
        match parts {
            Ok(parts) => {
                self.events.extend(parts.into_iter().map(Ok));
                self.events.push_back(Ok(ModelEvent::done(stop, usage(&response.usage))));
            }
            Err(error) => self.fail(error),
        }
    }

    /// Returns the arguments of a call as the model wrote them.
    fn arguments_of<'a>(&self, call: &'a AssistantContent, arguments: &'a str) -> &'a str {
        let item = call.native_item().and_then(|item| item.get("arguments")?.as_str());
        // Of Responses rig streams the pieces, and then the whole.
        let halves = arguments.split_at_checked(arguments.len() / 2).filter(|_| self.api == RESPONSES);
        match (item, halves) {
            (Some(item), _) => item,
            (None, Some((one, other))) if one == other => one,
            (None, _) => arguments,
        }
    }

    /// Converts a part that has ended.
    fn model_part(&self, content: &AssistantContent, arguments: &str) -> Result<ModelPart> {
        let (part, is_kept) = match content {
            AssistantContent::Text(text) => {
                let citations = text.citations().iter().flat_map(|citation| {
                    let range = citation.span.map(|span| (span.start() as u64, span.end() as u64));
                    citation.sources.iter().filter_map(move |source| cited(source, range))
                });
                (citations.fold(ModelPart::text(&*text.text), ModelPart::with_citation), true)
            }
            AssistantContent::Reasoning(reasoning) => (ModelPart::reasoning(&*reasoning.text), true),
            AssistantContent::ToolCall(call) => {
                let (call, is_kept) = model_call(call, self.arguments_of(content, arguments))?;
                (ModelPart::call(call), is_kept)
            }
            AssistantContent::Image(image) => (ModelPart::part(medium(image)), true),
            AssistantContent::Opaque(opaque) => (ModelPart::part(hosted(opaque)), true),
            _ => (ModelPart::new(PartContent::Part(Part::HostedCall(HostedCall::new("unknown")))), true),
        };
        let item = match content {
            AssistantContent::Opaque(opaque) => opaque.replay.then_some(&opaque.item),
            content => content.native_item(),
        };
        if !is_kept && item.is_some() {
            debug!(
                api = self.api,
                "a call has a number of more than 64 bits; its item cannot be sent back as it came"
            );
        }
        Ok(match item.filter(|_| is_kept) {
            Some(item) if self.api == gemini::API => {
                part.with_native(Native::new(&*self.api, RawJson::of(&*gemini::without_mark(item))?))
            }
            Some(item) => part.with_native(Native::new(&*self.api, RawJson::of(item)?)),
            None => part,
        })
    }
}

/// Returns the content without its native item.
fn canonical(content: &AssistantContent) -> AssistantContent {
    match content {
        AssistantContent::Opaque(Opaque { item, .. }) => {
            AssistantContent::Opaque(Opaque { item: item.clone(), replay: false })
        }
        content => content.canonical(),
    }
}

/// Returns whether two contents are one part: before and after rig has decided about its item.
fn is_same(one: &AssistantContent, other: &AssistantContent) -> bool {
    match (one, other) {
        (AssistantContent::Opaque(one), AssistantContent::Opaque(other)) => {
            one.kind() == other.kind() && one.item.get("id") == other.item.get("id")
        }
        (AssistantContent::Text(one), AssistantContent::Text(other)) => one.text == other.text,
        _ => one.canonical() == other.canonical(),
    }
}

/// Returns the reason of the end.
///
/// # Errors
///
/// The kind of the failure, and what is said of it: rig knows answers that end without one of the known reasons. Their
/// explanations may quote the conversation and are left out.
fn stop(response: &CompletionResponse) -> Result<StopReason, (FaultKind, String)> {
    match response.finish_reason() {
        Some(FinishReason::ContentFilter) => Ok(StopReason::Refusal),
        Some(FinishReason::Length) => Ok(StopReason::MaxTokens),
        Some(FinishReason::Other(reason)) => {
            let reason = REASONS.iter().find(|known| **known == reason).copied().unwrap_or("an unknown one");
            Err((FaultKind::Other, format!("the answer ended for another reason: {reason}")))
        }
        _ if response.error.is_some() => Err((FaultKind::Other, "the answer ended incomplete".to_owned())),
        Some(FinishReason::Stop | FinishReason::ToolCalls) | None => Ok(StopReason::EndTurn),
        Some(_) => Err((FaultKind::Other, "the answer ended for an unknown reason".to_owned())),
    }
}

fn usage(usage: &rig_core::completion::Usage) -> Usage {
    let or_zero = Option::unwrap_or_default;
    Usage::new(or_zero(usage.input_tokens), or_zero(usage.output_tokens))
        .with_cache(or_zero(usage.cached_input_tokens), or_zero(usage.cache_creation_input_tokens))
        .with_reasoning(or_zero(usage.reasoning_tokens))
}

/// Returns the call, with its arguments as the provider wrote them, and whether it can be sent back as it came.
fn model_call(call: &ToolCall, arguments: &str) -> Result<(ModelCall, bool)> {
    let (id, name) = (call.id.wire(), call.function.name.as_str());
    let parsed = call.function.arguments_value();
    // rig reads what is no object, or is cut, as an object that the model did not say.
    let raw = call.function.invalid_arguments.as_deref().unwrap_or(arguments);
    if !raw.trim().is_empty()
        && let Some(what) = strict::fault_of(raw)
    {
        return Ok((ModelCall::malformed(id, name, raw, what), false));
    }
    // The values of numbers that rig cannot hold are those that it has made of them.
    let raw = RawJson::parse(raw).ok().filter(|raw| raw.to::<Value>().is_ok_and(|read| read == parsed));
    let is_kept = raw.as_ref().is_none_or(RawJson::has_plain_numbers);
    let input = raw.map_or_else(|| RawJson::of(&parsed), Ok)?;
    // An item with a name that no API takes would be refused in each later request.
    let is_named = matches!(on_wire(name), Cow::Borrowed(_));
    Ok((ModelCall::new(id, name, input), is_kept && is_named))
}

fn cited(source: &rig_core::message::Source, range: Option<(u64, u64)>) -> Option<Citation> {
    let mut citation = match &source.location {
        SourceLocation::Url { url } => Citation::new(url),
        SourceLocation::SearchResult { source, .. } => Citation::new(source),
        SourceLocation::File { file_id, .. } => Citation::default().with_title(file_id),
        SourceLocation::Document { id: Some(id), .. } => Citation::default().with_title(id),
        _ if source.title.is_some() => Citation::default(),
        _ => return None,
    };
    if let Some(title) = &source.title {
        citation = citation.with_title(title);
    }
    Some(match range {
        Some((start, end)) => citation.with_range(start, end),
        None => citation,
    })
}

/// Converts an image that the model made.
fn medium(image: &rig_core::message::Image) -> Part {
    let media_type = image.media_type.as_ref().map_or("application/octet-stream", MimeType::to_mime_type);
    match &image.data {
        DocumentSourceKind::Url(url) => Part::Image(Media::uri(media_type, url)),
        DocumentSourceKind::Base64(data) if let Ok(bytes) = STANDARD.decode(data) => {
            Part::Image(Media::inline(media_type, bytes))
        }
        DocumentSourceKind::Raw(bytes) => Part::Image(Media::inline(media_type, &**bytes)),
        _ => Part::HostedCall(HostedCall::new("image")),
    }
}

/// Converts what the provider ran itself. Its input and its output are in the native item only.
fn hosted(opaque: &Opaque) -> Part {
    let text = |name: &str| opaque.item.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let kind = opaque.kind().unwrap_or("unknown");
    if kind.ends_with("_result") || kind.ends_with("_output") {
        let mut result = HostedResult::new(RawJson::empty_object()).with_name(kind);
        result.output = None;
        result.call = text("tool_use_id").or(text("call_id")).map(str::to_owned);
        return Part::HostedResult(result);
    }
    let mut call = HostedCall::new(text("name").unwrap_or(kind));
    call.call = text("id").or(text("call_id")).map(str::to_owned);
    Part::HostedCall(call)
}
