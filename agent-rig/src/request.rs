//! Requests of a run as requests of rig.
//!
//! Each message is written from itself alone, so that a longer conversation begins with the bytes of a shorter one. Text
//! that the system inserts between messages is written as text of the user: most APIs take system text only in front of
//! the conversation, and rig would move it there, which changes the beginning of every later request.

use agent_core::event::{Media, MediaSource, Native, Part, ToolOutcome};
use agent_core::json::RawJson;
use agent_core::{Error, Result};
use agent_runtime::context::{AgentItem, AgentMessage, ItemContent, ModelMessage, ModelToolResult};
use agent_runtime::{Effort, FaultKind, ModelRequest, ProviderFault, ToolChoice};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rig_core::catalog::ModelSpec;
use rig_core::completion::{
    CacheRetention, CompletionRequest, GenerationOptions, OnUnsupported, Reasoning, ToolDefinition,
};
use rig_core::message::{
    AssistantContent, AssistantMessage, AudioMediaType, CallId, DocumentMediaType, DocumentSourceKind, Image,
    ImageMediaType, Message, MimeType, Opaque, Origin, ToolFunction, ToolName, ToolResult, ToolResultContent,
    UserContent, VideoMediaType,
};
use rig_core::{completion, message, schemars};
use serde_json::{Value, json};

use crate::names::on_wire;

/// Name of the API that keeps conversations unless a request says otherwise.
pub(crate) const RESPONSES: &str = "openai.responses";

/// Name of the API whose requests must say how long an answer may be.
const MESSAGES: &str = "anthropic.messages";

/// Length of an answer of that API, in tokens, if neither the request names one nor rig's catalog has the model.
const MAX_TOKENS: u64 = 8192;

/// Target of the requests of one provider.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// Name of the provider, for errors.
    pub(crate) provider: &'a str,
    /// Origin that rig compares with that of earlier answers.
    pub(crate) origin: &'a Origin,
    /// What rig's catalog knows of the model.
    pub(crate) spec: Option<&'a ModelSpec>,
    /// Whether the provider is asked to keep the prompt in its cache.
    pub(crate) caches: bool,
}

impl Target<'_> {
    /// Returns whether the provider keeps prompts only if it is asked to. The others do without, and other servers with
    /// the same API may not know the member.
    fn asks_for_caching(&self) -> bool {
        self.caches && self.origin.api.as_str() == MESSAGES && self.origin.provider == "anthropic"
    }
}

/// Returns a request with the system prompt and the tools of another one, and nothing else, from which rig computes to
/// what the items of an answer are bound.
pub(crate) fn probe(request: Option<&ModelRequest>) -> Result<CompletionRequest> {
    let mut probe = CompletionRequest::new("-").max_tokens(1);
    if let Some(request) = request {
        if let Some(system) = &request.system {
            probe = probe.preamble(system);
        }
        probe = probe.tools(tools(request)?);
    }
    Ok(probe)
}

/// Converts a request.
///
/// # Errors
///
/// A [`ProviderFault`]: `ReplayRejected` if rig would write an item of an earlier answer otherwise than it is stored, and
/// `InvalidRequest` for a tool without a name.
pub(crate) fn convert(target: &Target<'_>, request: &ModelRequest) -> Result<CompletionRequest> {
    let mut converted = CompletionRequest::new("");
    converted.chat_history.clear();
    converted.chat_history.extend(request.system.as_ref().map(Message::system));
    let mut calls = Vec::new();
    for message in &request.messages {
        converted.chat_history.push(match message {
            ModelMessage::Summary(text) => Message::user(text),
            ModelMessage::System(text) => Message::user(format!("<system>\n{text}\n</system>")),
            ModelMessage::User(content) => {
                let parts = content.parts.iter().map(user_part);
                Message::User { content: parts.filter(|part| !is_blank(part)).collect() }
            }
            ModelMessage::Agent(answer) => {
                calls = answer.calls().map(|call| (call.call.clone(), call.name.clone())).collect();
                match agent(target, answer)? {
                    Some(message) => message,
                    None => continue,
                }
            }
            ModelMessage::ToolResults(results) => {
                let named = |result: &ModelToolResult| {
                    let name = calls.iter().find(|(call, _)| *call == result.call).map(|(_, name)| &**name);
                    tool_result(result, name.unwrap_or("unknown"))
                };
                Message::tool_results(results.iter().map(named).collect::<Result<_>>()?)
            }
            _ => Message::user(message.text()),
        });
    }
    let is_unlimited = target.spec.is_some() || target.origin.api.as_str() != MESSAGES;
    let most = request.max_tokens.map(u64::from).or((!is_unlimited).then_some(MAX_TOKENS));
    converted = converted.tools(tools(request)?).max_tokens(most);
    if let Some(choice) = tool_choice(&request.tool_choice)?.filter(|_| !request.tools.is_empty()) {
        converted = converted.tool_choice(choice);
    }
    if let Some(schema) = &request.output_schema {
        let schema = schemars::Schema::try_from(value(schema)?);
        converted = converted.output_schema(schema.map_err(|_| invalid("the output schema is no object"))?);
    }
    if target.origin.api.as_str() == RESPONSES {
        // The log is the truth: the provider keeps nothing, and gives its reasoning encrypted.
        converted = converted.additional_params(json!({ "store": false }));
    }
    // What the model does not take is left out.
    let mut options = GenerationOptions::new().on_unsupported(OnUnsupported::Ignore);
    options.reasoning = request.effort.and_then(|effort| reasoning(effort, target.spec, request.max_tokens));
    options.cache = target.asks_for_caching().then_some(CacheRetention::Short);
    Ok(converted.options(options))
}

fn invalid(what: impl std::fmt::Display) -> Error {
    ProviderFault::new(FaultKind::InvalidRequest, what.to_string()).into()
}

/// Returns the name in a form that each API takes.
fn name(name: &str) -> Result<ToolName> {
    ToolName::new(on_wire(name)).map_err(|_| invalid("a tool has no name; give it one"))
}

/// Reads JSON as rig holds it.
fn value(json: &RawJson) -> Result<Value> {
    json.to()
}

fn tools(request: &ModelRequest) -> Result<Vec<ToolDefinition>> {
    let tool = |tool: &agent_runtime::ToolSpec| {
        Ok(ToolDefinition::new(name(&tool.name)?, &tool.description, value(&tool.input)?))
    };
    request.tools.iter().map(tool).collect()
}

fn tool_choice(choice: &ToolChoice) -> Result<Option<message::ToolChoice>> {
    Ok(match choice {
        ToolChoice::None => Some(message::ToolChoice::None),
        ToolChoice::Required => Some(message::ToolChoice::Required),
        ToolChoice::Tool(tool) => Some(message::ToolChoice::Specific { function_names: vec![name(tool)?] }),
        _ => None,
    })
}

/// Returns the reasoning of the model that is nearest to the effort; the lower one of two levels. A model that takes a number
/// of tokens in place of a level is given at most half of `max_tokens`, and none if that is less than its minimum.
fn reasoning(effort: Effort, spec: Option<&ModelSpec>, max_tokens: Option<u32>) -> Option<Reasoning> {
    use completion::Effort as Level;
    let (wanted, tokens) = match effort {
        Effort::Off => return Some(Reasoning::Off),
        Effort::Minimal => (Level::Minimal, 0),
        Effort::Low => (Level::Low, 4 << 10),
        Effort::High => (Level::High, 16 << 10),
        Effort::Max => (Level::Max, 32 << 10),
        _ => (Level::Medium, 8 << 10),
    };
    let place = |level: &Level| match level {
        Level::Minimal => 0_i32,
        Level::Low => 1,
        Level::Medium => 2,
        Level::High => 3,
        Level::XHigh => 4,
        _ => 5,
    };
    let levels = spec.map_or(&[][..], |spec| &spec.reasoning.levels);
    let nearest = levels.iter().min_by_key(|level| ((place(level) - place(&wanted)).abs(), place(level)));
    let budget = spec.and_then(|spec| spec.reasoning.budget.as_ref());
    match (nearest, budget) {
        (None, Some(budget)) => {
            let most = max_tokens.map_or(u32::MAX, |most| most / 2).min(*budget.end());
            let tokens = tokens.max(*budget.start()).min(most);
            (tokens >= *budget.start()).then_some(Reasoning::Budget { tokens })
        }
        (nearest, _) => Some(Reasoning::Effort(nearest.copied().unwrap_or(wanted))),
    }
}

/// Returns the source of a medium; `None` for a blob, whose bytes are not there.
fn source(media: &Media) -> Option<DocumentSourceKind> {
    match &media.source {
        MediaSource::Inline(bytes) => Some(DocumentSourceKind::base64(STANDARD.encode(bytes))),
        MediaSource::Uri(uri) => Some(DocumentSourceKind::url(uri)),
        _ => None,
    }
}

fn image(media: &Media) -> Option<Image> {
    let media_type = ImageMediaType::from_mime_type(&media.media_type)?;
    Some(Image { data: source(media)?, media_type: Some(media_type), ..Image::default() })
}

/// Converts a part of a person's message. What rig cannot carry is named in a text.
fn user_part(part: &Part) -> UserContent {
    let carried = match part {
        Part::Image(media) => image(media).map(UserContent::Image),
        Part::Audio(media) => source(media).and_then(|data| {
            let media_type = Some(AudioMediaType::from_mime_type(&media.media_type)?);
            Some(UserContent::Audio(message::Audio { data, media_type }))
        }),
        Part::Video(media) => source(media).and_then(|data| {
            let media_type = Some(VideoMediaType::from_mime_type(&media.media_type)?);
            Some(UserContent::Video(message::Video { data, media_type, additional_params: None }))
        }),
        Part::Resource(media) => source(media).and_then(|data| {
            let media_type = Some(DocumentMediaType::from_mime_type(&media.media_type)?);
            Some(UserContent::Document(message::Document { data, media_type, additional_params: None }))
        }),
        _ => None,
    };
    carried.unwrap_or_else(|| UserContent::text(part.text_view("").unwrap_or_default()))
}

/// Whether it is a text without a word, which some APIs refuse.
fn is_blank(content: &UserContent) -> bool {
    matches!(content, UserContent::Text(text) if text.text.trim().is_empty())
}

fn tool_result(result: &ModelToolResult, tool: &str) -> Result<ToolResult> {
    let mut content = Vec::new();
    // A blank text is refused, beside a picture as well as alone. rig writes a text for a result that is empty.
    if !result.output.trim().is_empty() {
        content.push(ToolResultContent::text(&*result.output));
    }
    for part in &result.content {
        content.push(match part {
            Part::Image(media) if let Some(image) = image(media) => ToolResultContent::Image(image),
            part => ToolResultContent::text(part.text_view("").unwrap_or_default()),
        });
    }
    let (call, name) = (CallId::from_wire(result.call.as_str()), name(tool)?);
    Ok(ToolResult { call, name, content, is_error: result.outcome != ToolOutcome::Ok })
}

/// Converts an answer; `None` if nothing of it can be sent.
fn agent(target: &Target<'_>, answer: &AgentMessage) -> Result<Option<Message>> {
    let mut content = Vec::with_capacity(answer.items.len());
    let mut has_native = false;
    for item in &answer.items {
        let native = item.native.as_ref().filter(|native| native.api == target.origin.api.as_str());
        has_native |= native.is_some();
        content.extend(block(target, item, native)?);
    }
    if content.is_empty() {
        return Ok(None);
    }
    // rig sends a provider's items only to the origin of the answer.
    let origin = has_native.then(|| target.origin.clone());
    Ok(Some(AssistantMessage::new(content).with_origin(origin).into()))
}

/// Converts an item; `None` if it cannot be sent without its native form.
fn block(target: &Target<'_>, item: &AgentItem, native: Option<&Native>) -> Result<Option<AssistantContent>> {
    let native = native.map(|native| stored(target, native)).transpose()?;
    let block = match &item.content {
        ItemContent::Text { text, .. } => AssistantContent::text(&**text),
        ItemContent::Reasoning(_) if native.is_none() => return Ok(None),
        ItemContent::Reasoning(text) => {
            // rig leaves out reasoning that is neither redacted nor has a text, unless its item is current.
            AssistantContent::reasoning(&**text)
        }
        ItemContent::Call(call) => {
            let function = ToolFunction::new(name(&call.name)?, value(&call.input)?);
            AssistantContent::ToolCall(message::ToolCall::from_wire(call.call.as_str(), function))
        }
        ItemContent::Part(Part::Image(media)) => match image(media) {
            Some(image) => AssistantContent::Image(image),
            None => AssistantContent::text(item_text(item)),
        },
        ItemContent::Part(Part::HostedCall(_) | Part::HostedResult(_) | Part::Other(_)) => {
            return Ok(native.map(|item| AssistantContent::Opaque(Opaque { item, replay: true })));
        }
        _ => AssistantContent::text(item_text(item)),
    };
    Ok(Some(match native {
        Some(item) => block.with_native(item),
        None => block,
    }))
}

fn item_text(item: &AgentItem) -> String {
    AgentMessage::from(vec![item.clone()]).text().into_owned()
}

/// Reads a stored item, and checks that rig writes it as it is stored.
fn stored(target: &Target<'_>, native: &Native) -> Result<Value> {
    let item = value(&native.item)?;
    let written = item.to_string();
    if written == native.item.get() {
        return Ok(item);
    }
    let text = format!(
        "provider {}: an item of an earlier answer would be sent otherwise than it is stored",
        target.provider
    );
    Err(ProviderFault::new(FaultKind::ReplayRejected, text).into())
}
