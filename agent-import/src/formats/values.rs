//! Values that several formats have in common. Each is of any type, since a source is not trusted.

use agent_core::Seq;
use agent_core::event::{
    AgentResponse, EventPayload, Media, Message, ModelOrigin, Native, Part, SystemMessage,
};
use agent_core::json::{RawFields, RawJson};
use agent_core::model::{RunUsage, Usage};
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};

use crate::ids;
use crate::source::{Item, Notes};
use crate::text::clip;

/// Maximum number of elements of a list that are read.
const LIST_MAX: usize = 4096;

/// Depth from which on a call's input is kept as text.
const INPUT_DEPTH_MAX: usize = 90;

/// Base64 with or without its padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the members of an object, or none.
pub(crate) fn object(json: Option<&RawJson>) -> RawFields {
    json.and_then(|json| json.to().ok()).unwrap_or_default()
}

/// Returns the members of a text that is a JSON object.
pub(crate) fn parse(text: &str) -> Option<RawFields> {
    RawJson::parse(text).ok()?.to().ok()
}

/// Returns the first member that is there, of several spellings.
pub(crate) fn get<'f>(fields: &'f RawFields, names: &[&str]) -> Option<&'f RawJson> {
    names.iter().find_map(|name| fields.get(name)).filter(|json| json.get() != "null")
}

/// Returns a member that is a text.
pub(crate) fn text(fields: &RawFields, names: &[&str]) -> Option<String> {
    get(fields, names)?.to().ok()
}

/// Returns a member that is a number, or 0.
pub(crate) fn number(fields: &RawFields, names: &[&str]) -> u64 {
    get(fields, names).and_then(|json| json.to().ok()).unwrap_or_default()
}

pub(crate) fn is_true(fields: &RawFields, names: &[&str]) -> bool {
    get(fields, names).is_some_and(|json| json.get() == "true")
}

/// Returns the elements of a list, at most 4,096. What is no list has none.
pub(crate) fn list(json: Option<&RawJson>, notes: &mut Notes) -> Vec<RawJson> {
    let Some(Capped(list, more)) = json.and_then(|json| json.to().ok()) else { return Vec::new() };
    if more > 0 {
        notes.add("elements beyond 4096 of one list", more);
    }
    list
}

/// Beginning of a list, and the number of elements behind it.
struct Capped(Vec<RawJson>, u64);

impl<'de> Deserialize<'de> for Capped {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;
        impl<'de> Visitor<'de> for Elements {
            type Value = Capped;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Capped, A::Error> {
                let (mut list, mut more) = (Vec::new(), 0);
                while list.len() < LIST_MAX {
                    match seq.next_element()? {
                        Some(element) => list.push(element),
                        None => return Ok(Capped(list, 0)),
                    }
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    more += 1;
                }
                Ok(Capped(list, more))
            }
        }
        deserializer.deserialize_seq(Elements)
    }
}

/// Returns the input of a call: an object, or the text that it is instead.
pub(crate) fn input(json: Option<&RawJson>) -> Result<RawJson, String> {
    match json {
        None => Ok(RawJson::empty_object()),
        Some(json) if json.get() == "null" => Ok(RawJson::empty_object()),
        Some(json) if json.get().starts_with('{') && json.depth() <= INPUT_DEPTH_MAX => Ok(json.clone()),
        Some(json) => Err(json.to::<String>().unwrap_or_else(|_| json.get().to_owned())),
    }
}

/// Returns a media type that providers accept.
fn media_type(text: &str) -> String {
    let text = clip(text, 255);
    let mut halves = text.split(';').next().unwrap_or_default().split('/');
    let is_plain = |half: Option<&str>| half.is_some_and(|half| !half.trim().is_empty());
    if text.is_ascii() && is_plain(halves.next()) && is_plain(halves.next()) && halves.next().is_none() {
        return text;
    }
    "application/octet-stream".to_owned()
}

/// Returns bytes in base64, of either alphabet, as a medium.
pub(crate) fn inline(kind: &str, data: &str) -> Option<Media> {
    let bytes = BASE64.decode(data.replace('-', "+").replace('_', "/")).ok()?;
    (!bytes.is_empty()).then(|| Media::inline(media_type(kind), bytes))
}

/// Returns the medium of an address: its bytes if it holds them. Nothing is read from it.
pub(crate) fn address(kind: Option<&str>, address: &str) -> Option<Media> {
    let Some(data) = address.strip_prefix("data:") else {
        let address = clip(address, 8192);
        return (!address.is_empty()).then(|| Media::uri(media_type(kind.unwrap_or("image/*")), address));
    };
    let (about, data) = data.split_once(',')?;
    let own = about.strip_suffix(";base64")?;
    inline(if own.is_empty() { kind.unwrap_or_default() } else { own }, data)
}

/// Returns a medium as a part.
pub(crate) fn media(media: Media) -> Part {
    match media.media_type.split('/').next() {
        Some("image") => Part::Image(media),
        Some("audio") => Part::Audio(media),
        Some("video") => Part::Video(media),
        _ => Part::Resource(media),
    }
}

pub(crate) fn named(media: Media, name: Option<String>) -> Media {
    match name.map(|name| clip(&name, 512)).filter(|name| !name.is_empty()) {
        Some(name) => media.with_name(name),
        None => media,
    }
}

/// Returns a message of a person, if it says anything.
pub(crate) fn user(parts: Vec<Part>) -> Option<Item> {
    let is_empty =
        parts.iter().all(|part| matches!(part, Part::Text { text: Some(text), .. } if text.is_empty()));
    (!is_empty).then(|| Item::Event(EventPayload::UserMessage(Message::of_parts(parts))))
}

/// Returns a text of the agent. Blank ones are counted, since providers refuse them in a history.
pub(crate) fn agent(text: String, native: Option<Native>, notes: &mut Notes) -> Option<Item> {
    if text.trim().is_empty() {
        notes.count("blank texts of the agent");
        return None;
    }
    Some(Item::Event(EventPayload::AgentMessage(with(Message::new(text), native))))
}

pub(crate) fn thinking(text: String, native: Option<Native>) -> Item {
    Item::Event(EventPayload::AgentThinking(with(Message::new(text), native)))
}

fn with(message: Message, native: Option<Native>) -> Message {
    match native {
        Some(native) => message.with_native(native),
        None => message,
    }
}

/// Returns a text that a program put into a conversation, if it says anything.
pub(crate) fn injected(text: String) -> Option<Item> {
    let is_empty = text.trim().is_empty();
    (!is_empty).then(|| Item::Event(EventPayload::SystemMessage(SystemMessage::injected(text))))
}

/// Returns the end of an answer: the API, provider and model that gave it, if they are known, and the reason of its end.
pub(crate) fn response(origin: Option<[&str; 3]>, stop: Option<&str>) -> Item {
    let mut response = AgentResponse::new(Seq::ZERO);
    if let Some(names) = origin {
        let [api, provider, model] = names.map(|name| clip(name, 256));
        if !api.is_empty() && !provider.is_empty() && !model.is_empty() {
            response = response.with_origin(ModelOrigin::new(api, provider, model));
        }
    }
    if let Some(stop) = stop.map(|stop| clip(stop, 128)).filter(|stop| !stop.is_empty()) {
        response = response.with_stop(stop);
    }
    Item::Event(EventPayload::AgentResponse(response))
}

/// Returns the tokens of a request, if it took any.
pub(crate) fn usage(transcript: &str, request: &str, usage: Usage) -> Option<Item> {
    let used = RunUsage::new(ids::run(transcript, request), usage);
    (usage != Usage::default()).then_some(Item::Event(EventPayload::SessionRunUsage(used)))
}

/// Returns an entry of a kind that no model is given.
pub(crate) fn unknown(kind: &str, json: RawJson) -> Item {
    let mut plain = String::new();
    for c in clip(kind, 40).chars() {
        match c {
            'A'..='Z' => plain.extend(['_', c.to_ascii_lowercase()]),
            'a'..='z' | '0'..='9' => plain.push(c),
            _ => plain.push('_'),
        }
    }
    let kind = plain.trim_matches('_').to_owned();
    Item::Unknown { kind, json }
}
