//! Parts of which a message consists: texts, media, refusals, and what a provider did itself.
//!
//! The tags follow `ContentBlock` of MCP and ACP (`text image audio resource resource_link`), with `video`, `refusal`,
//! `hosted_call` and `hosted_result` added.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::text::check_text;
use crate::base::{Error, RawFields, RawJson, Result};
use crate::event::payload::media::{Media, on_a_line};
use crate::setters;

/// Maximum number of parts of one event.
pub const PARTS_MAX: usize = 4096;
/// Maximum number of bytes of a name that a provider gives: of a tool, a call, a model, an API.
pub(super) const NAME_MAX_BYTES: usize = 256;

/// Part of a message, of a tool's output, or of an answer.
///
/// The stored form is an object with its tag as `type`. The tags `text`, `image`, `audio`, `resource` and
/// `resource_link` are those of `ContentBlock` in MCP and ACP; `video`, `refusal`, `hosted_call` and `hosted_result` are
/// added. Decoding never fails: a part with another tag, or whose members do not have the shape of its tag, is
/// [`Other`](Self::Other) and is written again byte for byte. Members that this version does not know are kept.
///
/// ```
/// use agent_core::event::{Media, Part};
/// use agent_core::json::RawJson;
///
/// let json = RawJson::parse(r#"{"type":"image","media":"image/png","data":"iVBORw==","name":"cat.png","alt":"A cat"}"#)?;
/// let Part::Image(cat) = json.to::<Part>()? else { panic!("{json:?}") };
/// assert_eq!((cat.name.as_deref(), cat.extra.get("alt").is_some()), (Some("cat.png"), true));
/// assert_eq!(RawJson::of(&Part::Image(cat))?, json);
///
/// let newer = RawJson::parse(r#"{"type":"hologram","depth":1.50}"#)?;
/// assert_eq!(newer.to::<Part>()?, Part::Other(newer));
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// `text`: text.
    #[non_exhaustive]
    Text {
        /// Text; `None` stands for the whole `text` of the event, at most once.
        text: Option<String>,
        /// Members that this version does not know, in order.
        extra: RawFields,
    },
    /// `image`: image.
    Image(Media),
    /// `audio`: audio.
    Audio(Media),
    /// `video`: video.
    Video(Media),
    /// `resource`: document or other data.
    Resource(Media),
    /// `resource_link`: data that is only named, usually by an address.
    ResourceLink(Media),
    /// `refusal`: text with which the model refuses to answer.
    #[non_exhaustive]
    Refusal {
        /// Text of the refusal.
        text: String,
        /// Members that this version does not know, in order.
        extra: RawFields,
    },
    /// `hosted_call`: call of a tool that the provider runs itself.
    HostedCall(HostedCall),
    /// `hosted_result`: result of a tool that the provider ran itself.
    HostedResult(HostedResult),
    /// Part of a tag or shape that this version does not know, unchanged: an object with the text `type`.
    Other(RawJson),
}

/// Call of a tool that the provider runs itself, like a search of the web.
///
/// ```
/// use agent_core::event::{HostedCall, Part};
/// use agent_core::json::RawJson;
///
/// let call = HostedCall::new("web_search").with_call("srvtoolu_1").with_input(RawJson::constant(r#"{"query":"cats"}"#));
/// let part = RawJson::of(&Part::HostedCall(call))?;
/// assert_eq!(
///     part.get(),
///     r#"{"type":"hosted_call","name":"web_search","call":"srvtoolu_1","input":{"query":"cats"}}"#
/// );
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostedCall {
    /// Name of the tool.
    pub name: String,
    /// Provider's id of the call.
    pub call: Option<String>,
    /// Input of the tool.
    pub input: Option<RawJson>,
    /// Members that this version does not know, in order.
    pub extra: RawFields,
}

impl HostedCall {
    /// Creates a call of the tool `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), call: None, input: None, extra: RawFields::new() }
    }

    setters! {
        /// Sets the provider's id of the call.
        pub fn with_call(call: impl Into<String>) => call = Some(call.into());

        /// Sets the input of the tool.
        pub fn with_input(input: RawJson) => input = Some(input);
    }
}

/// Result of a tool that the provider ran itself.
///
/// ```
/// use agent_core::event::{HostedResult, Part};
/// use agent_core::json::RawJson;
///
/// let result = HostedResult::new(RawJson::constant(r#"["cats.example"]"#)).with_call("srvtoolu_1");
/// let part = RawJson::of(&Part::HostedResult(result))?;
/// assert_eq!(part.get(), r#"{"type":"hosted_result","call":"srvtoolu_1","output":["cats.example"]}"#);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostedResult {
    /// Name of the tool, if the provider gives it.
    pub name: Option<String>,
    /// Provider's id of the call.
    pub call: Option<String>,
    /// Output of the tool.
    pub output: Option<RawJson>,
    /// Members that this version does not know, in order.
    pub extra: RawFields,
}

impl HostedResult {
    /// Creates a result with this output.
    pub fn new(output: RawJson) -> Self {
        Self { name: None, call: None, output: Some(output), extra: RawFields::new() }
    }

    setters! {
        /// Sets the provider's id of the call.
        pub fn with_call(call: impl Into<String>) => call = Some(call.into());

        /// Sets the name of the tool.
        pub fn with_name(name: impl Into<String>) => name = Some(name.into());
    }
}

impl Part {
    /// Tags that this version knows.
    const TAGS: [&'static str; 9] = [
        "text",
        "image",
        "audio",
        "video",
        "resource",
        "resource_link",
        "refusal",
        "hosted_call",
        "hosted_result",
    ];

    /// Creates a part with this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: Some(text.into()), extra: RawFields::new() }
    }

    /// Creates the part that stands for the whole `text` of its event.
    pub fn whole_text() -> Self {
        Self::Text { text: None, extra: RawFields::new() }
    }

    /// Creates a refusal with this text.
    pub fn refusal(text: impl Into<String>) -> Self {
        Self::Refusal { text: text.into(), extra: RawFields::new() }
    }

    /// Returns the tag that is stored as `type`.
    pub fn tag(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Text { .. } => "text",
            Self::Image(_) => "image",
            Self::Audio(_) => "audio",
            Self::Video(_) => "video",
            Self::Resource(_) => "resource",
            Self::ResourceLink(_) => "resource_link",
            Self::Refusal { .. } => "refusal",
            Self::HostedCall(_) => "hosted_call",
            Self::HostedResult(_) => "hosted_result",
            Self::Other(raw) => return Cow::Owned(tag_of(raw).unwrap_or_default()),
        })
    }

    /// Returns the medium of an image, audio, video, resource or link.
    pub fn media(&self) -> Option<&Media> {
        match self {
            Self::Image(media)
            | Self::Audio(media)
            | Self::Video(media)
            | Self::Resource(media)
            | Self::ResourceLink(media) => Some(media),
            _ => None,
        }
    }

    /// Returns what the part adds to a text view; `whole` is the text of its event.
    ///
    /// Texts and refusals are shown as they are. A medium is shown as one line with its kind, name, type and size, a
    /// hosted call as one line with its name. Hosted results and parts that this version does not know are not shown.
    ///
    /// ```
    /// use agent_core::event::{Media, Part};
    ///
    /// let cat = Part::Image(Media::inline("image/png", vec![0; 48_213]).with_name("cat.png"));
    /// assert_eq!(cat.text_view("").as_deref(), Some("[image cat.png, image/png, 47 KiB]"));
    /// assert_eq!(Part::whole_text().text_view("A cat").as_deref(), Some("A cat"));
    /// ```
    pub fn text_view<'a>(&'a self, whole: &'a str) -> Option<Cow<'a, str>> {
        match self {
            Self::HostedCall(call) => {
                Some(format!("[{}, run by the provider]", on_a_line(&call.name)).into())
            }
            Self::Text { text: None, .. } => Some(whole.into()),
            part => match part.own_text() {
                Some(text) => Some(text.into()),
                None => Some(part.media()?.line(&part.tag()).into()),
            },
        }
    }

    /// Returns the text that the part spells out: that of a text or a refusal.
    pub(super) fn own_text(&self) -> Option<&str> {
        match self {
            Self::Text { text: Some(text), .. } | Self::Refusal { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Returns whether the part stands for the whole text of its event.
    pub(super) const fn is_whole_text(&self) -> bool {
        matches!(self, Self::Text { text: None, .. })
    }

    /// Decodes a part; anything that does not have the shape of its tag is [`Other`](Self::Other).
    pub(super) fn of_json(raw: RawJson) -> Self {
        Self::known(&raw).unwrap_or(Self::Other(raw))
    }

    /// Decodes a part of a known tag and its shape.
    fn known(raw: &RawJson) -> Option<Self> {
        let mut fields: RawFields = raw.to().ok()?;
        if repeats(&fields) {
            return None;
        }
        let tag: String = fields.remove("type")?.to().ok()?;
        Some(match &*tag {
            "text" => Self::Text { text: text_of(&mut fields, "text")?, extra: fields },
            "refusal" => Self::Refusal { text: text_of(&mut fields, "text")??, extra: fields },
            "image" => Self::Image(Media::take(&mut fields)?),
            "audio" => Self::Audio(Media::take(&mut fields)?),
            "video" => Self::Video(Media::take(&mut fields)?),
            "resource" => Self::Resource(Media::take(&mut fields)?),
            "resource_link" => Self::ResourceLink(Media::take(&mut fields)?),
            "hosted_call" => Self::HostedCall(HostedCall {
                name: text_of(&mut fields, "name")??,
                call: text_of(&mut fields, "call")?,
                input: fields.remove("input"),
                extra: fields,
            }),
            "hosted_result" => Self::HostedResult(HostedResult {
                name: text_of(&mut fields, "name")?,
                call: text_of(&mut fields, "call")?,
                output: fields.remove("output"),
                extra: fields,
            }),
            _ => return None,
        })
    }

    /// Writes the members of a part into an object; nothing for a part that is no object.
    pub(super) fn put<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        if let Self::Other(raw) = self {
            let fields: RawFields = raw.to().unwrap_or_default();
            return fields.iter().try_for_each(|(name, value)| map.serialize_entry(name, value));
        }
        map.serialize_entry("type", &self.tag())?;
        if let Some(media) = self.media() {
            return media.put(map);
        }
        let extra = match self {
            Self::Text { extra, .. } | Self::Refusal { extra, .. } => {
                put_some(map, "text", self.own_text())?;
                extra
            }
            Self::HostedCall(HostedCall { name, call, input, extra }) => {
                map.serialize_entry("name", name)?;
                put_some(map, "call", call.as_ref())?;
                put_some(map, "input", input.as_ref())?;
                extra
            }
            Self::HostedResult(HostedResult { name, call, output, extra }) => {
                put_some(map, "name", name.as_ref())?;
                put_some(map, "call", call.as_ref())?;
                put_some(map, "output", output.as_ref())?;
                extra
            }
            _ => return Ok(()),
        };
        extra.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))
    }

    /// Checks the shape and the lengths, for a commit.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::HostedCall(call) => {
                check_text("name of a hosted tool", &call.name, NAME_MAX_BYTES)?;
                check_call(call.call.as_deref())
            }
            Self::HostedResult(result) => check_call(result.call.as_deref()),
            Self::Other(raw) => match tag_of(raw) {
                Some(tag) if Self::TAGS.contains(&&*tag) => Err(Error::invalid(format!(
                    "a part has the type {tag} and members that do not fit it; give each of its members once, and in its type"
                ))),
                Some(tag) => Ok(check_text("type of a part", &tag, NAME_MAX_BYTES)?),
                None => Err(Error::invalid("a part is no object with a type; give it one, like \"text\"")),
            },
            part => part.media().map_or(Ok(()), Media::check),
        }
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Self::Other(raw) = self {
            return raw.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        self.put(&mut map)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawJson::deserialize(deserializer).map(Self::of_json)
    }
}

/// Returns whether an object has two members of one name.
pub(super) fn repeats(fields: &RawFields) -> bool {
    let mut names: Vec<_> = fields.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

/// Takes a text out of an object: `None` if it is of another type, `Some(None)` if there is none.
fn text_of(fields: &mut RawFields, name: &str) -> Option<Option<String>> {
    fields.remove(name).map_or(Some(None), |raw| raw.to().ok().map(Some))
}

fn put_some<M: SerializeMap>(map: &mut M, name: &str, value: Option<impl Serialize>) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(name, &value))
}

fn tag_of(raw: &RawJson) -> Option<String> {
    raw.to::<RawFields>().ok()?.get("type")?.to().ok()
}

fn check_call(call: Option<&str>) -> Result<()> {
    call.map_or(Ok(()), |call| Ok(check_text("id of a hosted call", call, NAME_MAX_BYTES)?))
}

/// Checks a list of parts, for a commit.
pub(super) fn check_parts(parts: &[Part]) -> Result<()> {
    if parts.len() > PARTS_MAX {
        return Err(Error::limit(format!(
            "an event of {} parts; at most {PARTS_MAX} are kept, divide it into several messages",
            parts.len()
        )));
    }
    let wholes = parts.iter().filter(|part| part.is_whole_text()).count();
    if wholes > 1 || (wholes == 1 && parts.iter().any(|part| part.own_text().is_some())) {
        return Err(Error::invalid(
            "a part stands for the whole text beside another text; give the text of each of them, or leave one out",
        ));
    }
    for (index, part) in parts.iter().enumerate() {
        part.check()
            .map_err(|fault| fault.about(format_args!("part {} ({})", index + 1, on_a_line(&part.tag()))))?;
    }
    Ok(())
}

/// Returns the text of a list of parts, and the parts as they are stored beside it.
///
/// The text consists of the texts and refusals, joined by line breaks. A text that equals the whole is stored as
/// [`Part::whole_text`]; content that is one plain text has no parts.
pub(super) fn compose(mut parts: Vec<Part>) -> (String, Vec<Part>) {
    let text = parts.iter().filter_map(Part::own_text).collect::<Vec<_>>().join("\n");
    let spelled = |part: &&mut Part| matches!(part, Part::Text { text: Some(own), .. } if *own == text);
    if !parts.iter().any(Part::is_whole_text)
        && let Some(Part::Text { text: own, .. }) = parts.iter_mut().find(spelled)
    {
        *own = None;
    }
    match &*parts {
        [part] if *part == Part::whole_text() => (text, Vec::new()),
        _ => (text, parts),
    }
}

/// Returns the parts with their texts spelled out, so that others can be added.
pub(super) fn spelled_out(text: &str, mut parts: Vec<Part>) -> Vec<Part> {
    let mut has_text = false;
    for part in &mut parts {
        if let Part::Text { text: own @ None, .. } = part {
            *own = Some(text.to_owned());
        }
        has_text |= part.own_text().is_some();
    }
    if !has_text && !text.is_empty() {
        parts.insert(0, Part::text(text));
    }
    parts
}
