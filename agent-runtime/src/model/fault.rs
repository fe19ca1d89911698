//! Faults of model providers: their kinds, and the pause before a model call is repeated.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use agent_core::{Error, ErrorKind};

/// Fault of a model provider: its kind, the time after which a retry is useful, and a text for a person.
///
/// A provider returns it as an [`Error`] of the kind [`Provider`](ErrorKind::Provider), from
/// [`generate`](crate::LlmProvider::generate) or as an item of the stream. Another error counts as
/// [`FaultKind::Other`].
///
/// ```
/// use std::time::Duration;
/// use agent_core::{Error, ErrorKind};
/// use agent_runtime::{FaultKind, ProviderFault};
///
/// /// Fault of a response with this status.
/// fn fault(status: u16, retry_after: Option<Duration>) -> Error {
///     let kind = match status {
///         401 | 403 => FaultKind::Auth,
///         429 => FaultKind::RateLimited,
///         500..=599 => FaultKind::Overloaded,
///         _ => FaultKind::InvalidRequest,
///     };
///     ProviderFault::new(kind, format!("the model's server answered {status}")).with_retry_after(retry_after).into()
/// }
///
/// let error = fault(429, Some(Duration::from_secs(7)));
/// assert_eq!(*error.kind(), ErrorKind::Provider);
/// let found = ProviderFault::of(&error).ok_or(error.clone())?;
/// assert_eq!((found.kind, found.retry_after), (FaultKind::RateLimited, Some(Duration::from_secs(7))));
/// # Ok::<(), Error>(())
/// ```
///
/// As JSON it is `{"kind":"rate_limited","retry_after_ms":7000,"text":"…"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProviderFault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Time after which the provider expects a retry, if the provider names one.
    #[serde(default, rename = "retry_after_ms", with = "optional", skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
    /// Text for a person, without payloads.
    pub text: String,
    /// The provider's own words; see [`said`](Self::said).
    #[serde(skip)]
    pub(crate) said: Option<Words>,
}

/// Words of a provider, which may quote what it was sent: they are shown to the person who asked, and are in no log.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Words(String);

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Maximum number of bytes of the provider's own words.
const WORDS_MAX_BYTES: usize = 300;

/// Kind of a [`ProviderFault`]. Says what a run does about it.
///
/// A run repeats a model call after the first four kinds, before the first event of the answer, as often as
/// [`Limits::model_retries`](crate::Limits) allows. After `ContextTooLong` it asks with a summary in place of the older half
/// of the history, again and again until one exchange is left. After `ReplayRejected` it asks without the items of earlier
/// answers and with [`Effort::Off`](crate::Effort), until it ends. After `InvalidRequest` it asks with a line of text in
/// place of the media that the provider has not accepted before, then, if it has answered in the session before, with half
/// of the history, and at last without all media. What the provider has accepted is recorded in the log, so that later requests begin with it: a summary
/// as `session.compacted`, media in [`AgentResponse::left_out`](field@agent_core::event::AgentResponse::left_out). After the
/// other kinds, and if that does not help, the run fails, and the log has no trace of the attempts.
///
/// ```
/// use agent_runtime::FaultKind;
///
/// assert!(FaultKind::Overloaded.is_retryable() && !FaultKind::Auth.is_retryable());
/// assert_eq!(FaultKind::ContextTooLong.name(), "context_too_long");
/// assert_eq!(FaultKind::of_name("context_too_long"), FaultKind::ContextTooLong);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// The account has sent too many requests or tokens for the moment.
    RateLimited,
    /// The server is overloaded or failed internally.
    Overloaded,
    /// The server did not answer in time.
    Timeout,
    /// The connection could not be made, or was lost.
    Network,
    /// The credentials are missing, wrong or not sufficient.
    Auth,
    /// The account has no quota or credit left: asking again does not help before a person has seen to it.
    Quota,
    /// The request is larger than the model's context.
    ContextTooLong,
    /// The provider refused an item of an earlier answer that was sent back, for example a signature of reasoning.
    ReplayRejected,
    /// A content filter refused the request or the answer.
    Filtered,
    /// The provider refused the request for another reason; the same request is refused again.
    InvalidRequest,
    /// Another fault, or one whose kind the provider does not know.
    #[default]
    #[serde(other)]
    Other,
}

impl FaultKind {
    const ALL: [Self; 11] = [
        Self::RateLimited,
        Self::Overloaded,
        Self::Timeout,
        Self::Network,
        Self::Auth,
        Self::Quota,
        Self::ContextTooLong,
        Self::ReplayRejected,
        Self::Filtered,
        Self::InvalidRequest,
        Self::Other,
    ];

    /// Returns the stable name of the kind, as in JSON, in [`Failure::fault`](agent_core::model::Failure) and in spans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::ContextTooLong => "context_too_long",
            Self::ReplayRejected => "replay_rejected",
            Self::Filtered => "filtered",
            Self::InvalidRequest => "invalid_request",
            Self::Other => "other",
        }
    }

    /// Returns the kind of this name; [`Other`](Self::Other) for a name that this version does not know.
    pub fn of_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|kind| kind.name() == name).unwrap_or_default()
    }

    /// Returns whether the same request may succeed if it is sent again.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Overloaded | Self::Timeout | Self::Network)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ProviderFault {
    /// Creates a fault of this kind, without a time for a retry.
    pub fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self { kind, retry_after: None, text: text.into(), said: None }
    }

    /// Sets the provider's own words on why it refused, which are shown to the person who asked as
    /// [`Update::ProviderMessage`](crate::Update::ProviderMessage). They may quote the request, and are neither part of the
    /// [text](field@Self::text) nor stored, logged or shown by `Debug`.
    ///
    /// ```
    /// use agent_runtime::{FaultKind, ProviderFault};
    ///
    /// let fault = ProviderFault::new(FaultKind::InvalidRequest, "HTTP status 400").with_said("model `gpt-9` is not there");
    /// assert_eq!(fault.said(), Some("model `gpt-9` is not there"));
    /// assert!(!format!("{fault} {fault:?}").contains("gpt-9"));
    /// ```
    #[must_use]
    pub fn with_said(mut self, words: impl Into<String>) -> Self {
        self.said = Some(Words(words.into()));
        self
    }

    /// Returns the provider's own words on why it refused, as they came.
    pub fn said(&self) -> Option<&str> {
        self.said.as_ref().map(|words| &*words.0)
    }

    /// Returns the provider's words in one line for a person: at most 300 bytes, without control characters.
    pub(crate) fn line(words: &str) -> Option<String> {
        let mut line: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if line.len() > WORDS_MAX_BYTES {
            let end = line.floor_char_boundary(WORDS_MAX_BYTES - '…'.len_utf8());
            line.truncate(end);
            line.push('…');
        }
        let line = line.trim();
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// Sets the time after which the provider expects a retry; the default is none.
    #[must_use]
    pub fn with_retry_after(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.retry_after = time.into();
        self
    }

    /// Returns the fault that an error carries, itself or in its sources.
    pub fn of(error: &Error) -> Option<&Self> {
        let mut source = error.source();
        while let Some(found) = source {
            if let Some(fault) = found.downcast_ref() {
                return Some(fault);
            }
            source = found.source();
        }
        None
    }
}

impl fmt::Display for ProviderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ProviderFault {}

impl From<ProviderFault> for Error {
    fn from(fault: ProviderFault) -> Self {
        Self::new(ErrorKind::Provider, fault.text.clone()).with_source(fault)
    }
}

/// JSON form of a duration: whole milliseconds, rounded up.
pub(crate) mod millis {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

/// JSON form of a duration that may be absent.
mod optional {
    use super::{Deserialize, Deserializer, Duration, Serializer, millis};

    pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => millis::serialize(time, to),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_one_name_everywhere() {
        for kind in FaultKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(FaultKind::of_name(kind.name()), kind);
        }
        assert_eq!(FaultKind::of_name("of a newer version"), FaultKind::Other);
        assert_eq!(serde_json::from_str::<FaultKind>("\"of a newer version\"").unwrap(), FaultKind::Other);
    }
}
