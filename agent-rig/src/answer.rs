//! Answers of rig's models as streams of events.
//!
//! rig decides about a part's native item when the provider has ended the whole answer, so parts end then. Their pieces
//! are forwarded as they arrive.

use std::collections::VecDeque;

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
use crate::number::are_kept;

/// Part of an answer while it streams. Its place in the list is its number.
#[derive(Debug)]
struct Growing {
    /// rig's number of the part; numbers of parts that are left out are missing.
    part: streaming::Part,
    /// JSON of a call's arguments, as the provider wrote it.
    arguments: String,
    /// Content, when the part has ended.
    content: Option<AssistantContent>,
}

/// Answer while it streams.
struct Answer {
    provider: String,
    api: String,
    stream: Option<CompletionStream>,
    parts: Vec<Growing>,
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
        parts: Vec::new(),
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
            match self.stream.as_mut()?.next().await {
                Some(Ok(Item::Event(event))) => self.take(event),
                // Something that rig does not know is a sign of life.
                Some(Ok(Item::Unknown(_))) => self.events.push_back(Ok(ModelEvent::Ping)),
                Some(Err(error)) => self.fail(fault(&self.provider, &error)),
                None => {
                    let finished = self.stream.take()?.finish().await;
                    match finished {
                        Ok(response) => self.end(&response),
                        Err(error) => self.fail(fault(&self.provider, &error)),
                    }
                }
            }
        }
    }

    fn take(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Start { part, kind, .. } => {
                let kind = match kind {
                    streaming::PartKind::Text => PartKind::Text,
                    streaming::PartKind::Reasoning => PartKind::Reasoning,
                    streaming::PartKind::ToolCall => PartKind::Call,
                    _ => PartKind::Other,
                };
                let index = self.parts.len();
                self.parts.push(Growing { part, arguments: String::new(), content: None });
                self.events.push_back(Ok(ModelEvent::part_started(number(index), kind)));
            }
            StreamEvent::Text { part, text } | StreamEvent::Reasoning { part, text } => {
                if let Some(index) = self.index(part) {
                    self.events.push_back(Ok(ModelEvent::delta(number(index), text)));
                }
            }
            StreamEvent::Arguments { part, json } => {
                if let Some(index) = self.index(part) {
                    self.parts[index].arguments.push_str(&json);
                    self.events.push_back(Ok(ModelEvent::delta(number(index), json)));
                }
            }
            StreamEvent::End { part, content } => {
                if let Some(index) = self.index(part) {
                    self.parts[index].content = Some(content);
                }
            }
        }
    }

    fn index(&self, part: streaming::Part) -> Option<usize> {
        self.parts.iter().rposition(|growing| growing.part == part)
    }

    /// Ends the answer with a fault. Parts that the provider has ended are whole, but have no native item.
    fn fail(&mut self, error: Error) {
        self.stream = None;
        for (index, growing) in self.parts.iter().enumerate() {
            if let Some(content) = &growing.content
                && let Ok(part) = model_part(&self.api, &content.canonical(), &growing.arguments)
            {
                self.events.push_back(Ok(ModelEvent::part_done(number(index), part)));
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
        let mut decided: Vec<_> = response.choice.iter().map(Some).collect();
        let mut order: Vec<_> = (0..self.parts.len()).collect();
        order.sort_by_key(|index| self.parts[*index].part);
        let mut done = Vec::with_capacity(order.len());
        for index in order {
            let growing = &self.parts[index];
            let Some(ended) = &growing.content else { continue };
            // rig gives the parts without numbers, and may have moved one.
            let is_same = |other: &AssistantContent| is_same(other, ended);
            let found =
                decided.iter_mut().find(|content| content.is_some_and(is_same)).and_then(Option::take);
            match model_part(&self.api, found.unwrap_or(&ended.canonical()), &growing.arguments) {
                Ok(part) => done.push((index, part)),
                Err(error) => return self.fail(error),
            }
        }
        done.sort_by_key(|(index, _)| *index);
        self.events
            .extend(done.into_iter().map(|(index, part)| Ok(ModelEvent::part_done(number(index), part))));
        self.events.push_back(Ok(ModelEvent::done(stop, usage(&response.usage))));
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

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
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
            let is_code =
                reason.len() <= 64 && reason.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            let reason = if is_code { reason } else { "an unknown one".to_owned() };
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

/// Converts a part that has ended.
fn model_part(api: &str, content: &AssistantContent, arguments: &str) -> Result<ModelPart> {
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
            let (call, is_kept) = model_call(call, arguments)?;
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
        debug!(api, "a call has a number of more than 64 bits; its item cannot be sent back as it came");
    }
    Ok(match item.filter(|_| is_kept) {
        Some(item) => part.with_native(Native::new(api, RawJson::of(item)?)),
        None => part,
    })
}

/// Returns the call, with its arguments as the provider wrote them, and whether rig has kept the values of their numbers.
fn model_call(call: &ToolCall, arguments: &str) -> Result<(ModelCall, bool)> {
    let parsed = call.function.arguments_value();
    // Arguments that came as a text in JSON, twice, or not as JSON are those that rig has made of them.
    let raw = RawJson::parse(arguments).ok().filter(|raw| raw.to::<Value>().is_ok_and(|read| read == parsed));
    let is_kept = raw.as_ref().is_none_or(|raw| are_kept(raw.get()));
    let input = raw.map_or_else(|| RawJson::of(&parsed), Ok)?;
    Ok((ModelCall::new(call.id.wire(), call.function.name.as_str(), input), is_kept))
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
