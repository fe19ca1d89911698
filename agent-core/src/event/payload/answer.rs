//! Parts of a model's answer that an event keeps beside the text: the provider's items, citations, and the origin.

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::text::check_text;
use crate::base::{BlobName, Error, RawFields, RawJson, Result, Seq, is_default};
use crate::event::payload::content::{NAME_MAX_BYTES, Part, check_parts, repeats};
use crate::event::payload::media::on_a_line;
use crate::setters;

/// Maximum number of citations of one message.
pub const CITATIONS_MAX: usize = 4096;

/// Item of a provider's answer as the provider gave it, which goes back to that provider unchanged.
///
/// Signed reasoning, for example, is valid only as it came. Stored byte for byte but for white space: the members keep
/// their order, and numbers are untouched. Left out if rebuilding the item from the event gives the same value.
///
/// ```
/// use agent_core::event::{Message, Native};
/// use agent_core::json::RawJson;
///
/// let item = RawJson::parse(r#"{"type":"thinking","thinking":"A cat.","signature":"EqQB"}"#)?;
/// let thinking = Message::new("A cat.").with_native(Native::new("anthropic.messages", item.clone()));
/// assert_eq!(thinking.native.unwrap().item, item);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Native {
    /// Name of the API whose item it is, like `anthropic.messages`: 1 to 256 bytes.
    pub api: String,
    /// Item.
    pub item: RawJson,
}

impl Native {
    /// Creates the item of an API.
    pub fn new(api: impl Into<String>, item: RawJson) -> Self {
        Self { api: api.into(), item }
    }

    pub(super) fn check(&self) -> Result<()> {
        Ok(check_text("API of a native item", &self.api, NAME_MAX_BYTES)?)
    }
}

/// Origin of an answer: API, provider, model and account that gave it.
///
/// ```
/// use agent_core::event::ModelOrigin;
///
/// let origin = ModelOrigin::new("anthropic.messages", "anthropic", "claude-opus-5").with_account("team-a");
/// assert_eq!(origin.account.as_deref(), Some("team-a"));
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[doc(alias = "Origin")]
pub struct ModelOrigin {
    /// Name of the API, like `anthropic.messages`.
    pub api: String,
    /// Name of the provider.
    pub provider: String,
    /// Name of the model.
    pub model: String,
    /// Name that the host gives to the account; never derived from a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

impl ModelOrigin {
    /// Creates an origin without an account.
    pub fn new(api: impl Into<String>, provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { api: api.into(), provider: provider.into(), model: model.into(), account: None }
    }

    /// Sets the name that the host gives to the account.
    pub fn with_account(mut self, account: impl Into<String>) -> Self {
        self.account = Some(account.into());
        self
    }

    fn check(&self) -> Result<()> {
        let account = self.account.as_ref().map(|account| ("account of an answer", account));
        let names = [
            ("API of an answer", &self.api),
            ("provider of an answer", &self.provider),
            ("model of an answer", &self.model),
        ];
        names
            .into_iter()
            .chain(account)
            .try_for_each(|(noun, name)| Ok(check_text(noun, name, NAME_MAX_BYTES)?))
    }
}

/// Source that a message cites, and the range of its text that the source supports.
///
/// Members that this version does not know are kept, also a known one of another type.
///
/// ```
/// use agent_core::event::{Citation, Message};
///
/// let cited = Citation::new("https://cats.example").with_title("Cats").with_range(2, 7);
/// let message = Message::new("A tabby.").with_citation(cited);
/// assert_eq!(message.text_view(), "A tabby.\n[1] Cats, https://cats.example");
/// ```
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Citation {
    /// Address of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Title of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// First byte of the range, in the UTF-8 form of the message's `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// End of the range, exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
    /// Members that this version does not know, in order.
    #[serde(flatten)]
    pub extra: RawFields,
}

impl Citation {
    /// Creates a citation of the source at an address.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::default() }
    }

    /// Creates a citation from members of the provider's own.
    ///
    /// ```
    /// use agent_core::event::Citation;
    /// use agent_core::json::{RawFields, RawJson};
    ///
    /// let page = RawFields::from_iter([("file", RawJson::constant(r#""f-1""#)), ("page", RawJson::constant("3"))]);
    /// assert_eq!(RawJson::of(&Citation::of(page))?.get(), r#"{"file":"f-1","page":3}"#);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn of(mut fields: RawFields) -> Self {
        Self {
            url: known(&mut fields, "url"),
            title: known(&mut fields, "title"),
            start: known(&mut fields, "start"),
            end: known(&mut fields, "end"),
            extra: fields,
        }
    }

    /// Sets the title of the source.
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the range of the text, in bytes of its UTF-8 form; `end` is exclusive.
    pub const fn with_range(mut self, start: u64, end: u64) -> Self {
        (self.start, self.end) = (Some(start), Some(end));
        self
    }

    /// Returns the citation as a line of a text view.
    pub(super) fn line(&self, number: usize) -> String {
        let named = [&self.title, &self.url].into_iter().flatten().map(|text| on_a_line(text));
        let named: Vec<_> = named.collect();
        if named.is_empty() { format!("[{number}]") } else { format!("[{number}] {}", named.join(", ")) }
    }

    /// Checks that the range is one of the text.
    fn check(&self, text: &str) -> Result<()> {
        let place = |offset: Option<u64>, otherwise: usize| {
            match offset {
            Some(offset) => {
                usize::try_from(offset).ok().filter(|at| text.is_char_boundary(*at)).ok_or_else(|| {
                    Error::invalid(format!(
                        "a citation names byte {offset} of a text of {} bytes; give offsets between its characters",
                        text.len()
                    ))
                })
            }
            None => Ok(otherwise),
        }
        };
        let (start, end) = (place(self.start, 0)?, place(self.end, text.len())?);
        if start > end {
            return Err(Error::invalid(format!(
                "a citation ends at byte {end}, before its start at byte {start}"
            )));
        }
        for known in ["url", "title", "start", "end"] {
            if self.extra.get(known).is_some_and(|value| value.get() != "null") {
                return Err(Error::invalid(format!(
                    "a citation has a {known} of another type, or has it twice"
                )));
            }
        }
        Ok(())
    }
}

/// Takes a member out of an object if it has its type.
fn known<T: serde::de::DeserializeOwned>(fields: &mut RawFields, name: &str) -> Option<T> {
    let value = fields.get(name)?.to::<Option<T>>().ok()??;
    fields.remove(name);
    Some(value)
}

impl<'de> Deserialize<'de> for Citation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawFields::deserialize(deserializer).map(Self::of)
    }
}

/// Checks the citations of a text, for a commit.
pub(super) fn check_citations(citations: &[Citation], text: &str) -> Result<()> {
    if citations.len() > CITATIONS_MAX {
        return Err(Error::limit(format!(
            "a message of {} citations; at most {CITATIONS_MAX} are kept, leave some out",
            citations.len()
        )));
    }
    citations.iter().try_for_each(|citation| citation.check(text))
}

/// Payload of `agent.part`: an item of an answer that is no text, no reasoning and no tool call.
///
/// Examples are a refusal, an image that the model made, and a search that the provider ran. The stored form is that of
/// the part, with `native` and the index `part` added.
///
/// ```
/// use agent_core::event::{AgentPart, EventPayload, NewEvent, Part};
///
/// let refused = AgentPart::new(Part::refusal("I cannot help with that.")).with_index(1);
/// let event = NewEvent::of(&EventPayload::AgentPart(refused));
/// assert_eq!(event.payload.get(), r#"{"type":"refusal","text":"I cannot help with that.","part":1}"#);
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentPart {
    /// Item.
    pub content: Part,
    /// Item as the provider gave it, if it must go back unchanged.
    pub native: Option<Native>,
    /// Provider's index of the item, if it differs from the item's place in the answer.
    pub part: Option<u32>,
}

impl AgentPart {
    /// Creates the payload for an item.
    pub const fn new(content: Part) -> Self {
        Self { content, native: None, part: None }
    }

    setters! {
        /// Sets the item as the provider gave it.
        pub fn with_native(native: Native) => native = Some(native);

        /// Sets the provider's index of the item.
        pub const fn with_index(index: u32) => part = Some(index);
    }

    /// Returns the text view of the item, like [`Part::text_view`].
    pub fn text_view(&self) -> Option<String> {
        self.content.text_view("").map(std::borrow::Cow::into_owned)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if matches!(self.content, Part::Text { .. }) {
            return Err(Error::invalid("a text is no agent.part; write it as an agent.message"));
        }
        check_parts(std::slice::from_ref(&self.content))?;
        self.native.as_ref().map_or(Ok(()), Native::check)
    }
}

impl Serialize for AgentPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.content.put(&mut map)?;
        if let Some(native) = &self.native {
            map.serialize_entry("native", native)?;
        }
        if let Some(part) = &self.part {
            map.serialize_entry("part", part)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for AgentPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = RawJson::deserialize(deserializer)?;
        let mut fields: RawFields = raw.to().map_err(|_| D::Error::custom("a part is no object"))?;
        if repeats(&fields) {
            return Err(D::Error::custom("a part has two members of one name"));
        }
        let native: Option<Native> = fields.take("native").map_err(D::Error::custom)?;
        let part: Option<u32> = fields.take("part").map_err(D::Error::custom)?;
        let content = match native.is_none() && part.is_none() {
            true => raw,
            false => RawJson::sure(&fields),
        };
        Ok(Self { content: Part::of_json(content), native, part })
    }
}

/// Payload of `agent.response`, the last event of an answer: its origin, and what the request was built on.
///
/// Written only if the provider names an origin, or if an item of the answer has a [`Native`] form.
///
/// ```
/// use agent_core::Seq;
/// use agent_core::event::{AgentResponse, EventPayload, ModelOrigin, NewEvent};
///
/// let origin = ModelOrigin::new("openai.responses", "openai", "gpt-6");
/// let response = AgentResponse::new(Seq::new(7)).with_origin(origin).with_stop("end_turn");
/// let event = NewEvent::of(&EventPayload::AgentResponse(response));
/// assert_eq!(
///     event.payload.get(),
///     r#"{"origin":{"api":"openai.responses","provider":"openai","model":"gpt-6"},"stop":"end_turn","after":7}"#
/// );
/// ```
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AgentResponse {
    /// Origin of the answer, if the provider names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<ModelOrigin>,
    /// Provider's reason for the end of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// SHA-256 of what the model was given, in lower-case hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<String>,
    /// Last event on which the request was built.
    #[serde(default, skip_serializing_if = "is_default")]
    pub after: Seq,
    /// Form in which later requests give this answer and those before it, if it is not the provider's own: `canonical`,
    /// text and calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// Media in whose place the model was given a line of text, because the provider refused a request with them. Later
    /// requests to the same origin do likewise. Each is named by the SHA-256 of its bytes, one at an address by that of
    /// the address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<BlobName>,
}

impl AgentResponse {
    /// Creates the end of an answer whose request was built on the events up to `after`.
    pub fn new(after: Seq) -> Self {
        Self { after, ..Self::default() }
    }

    setters! {
        /// Sets the origin of the answer.
        pub fn with_origin(origin: ModelOrigin) => origin = Some(origin);

        /// Sets the provider's reason for the end of the answer.
        pub fn with_stop(stop: impl Into<String>) => stop = Some(stop.into());

        /// Sets the SHA-256 of what the model was given, in lower-case hexadecimal.
        pub fn with_given(sha256: impl Into<String>) => given = Some(sha256.into());

        /// Sets the form in which later requests give this answer.
        pub fn with_replay(replay: impl Into<String>) => replay = Some(replay.into());
    }

    /// Adds media in whose place the model was given a line of text.
    pub fn with_left_out(mut self, media: impl IntoIterator<Item = BlobName>) -> Self {
        self.left_out.extend(media);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.origin.as_ref().map_or(Ok(()), ModelOrigin::check)?;
        let words = [("reason for the end of an answer", &self.stop), ("form of a replay", &self.replay)];
        for (noun, word) in words {
            word.as_ref().map_or(Ok(()), |word| check_text(noun, word, NAME_MAX_BYTES))?;
        }
        let is_hash =
            |hash: &String| hash.len() == 64 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if self.given.as_ref().is_some_and(|hash| !is_hash(hash)) {
            return Err(Error::invalid(
                "the hash of what a model was given is no SHA-256; give 64 digits in lower-case hexadecimal",
            ));
        }
        Ok(())
    }
}
