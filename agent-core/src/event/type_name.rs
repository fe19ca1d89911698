//! Types of events: `user.message`, `agent.tool_use` …

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::base::text::{quoted, text_serde};
use crate::base::{Error, Result};
use crate::event::types::event_types;
use crate::model::Actor;

/// Type of an event. The set is open: a type that this version does not know is stored and returned byte for byte.
///
/// The families are `user.*`, `agent.*`, `system.*`, `span.*` and `session.*`; hosts add `x.<app>.*`.
///
/// ```
/// use agent_core::event::EventType;
///
/// let rated: EventType = "x.shop.rated".parse()?;
/// assert!(rated.is_of("x"));
/// assert_eq!(EventType::USER_MESSAGE.as_str(), "user.message");
/// assert!("no dots".parse::<EventType>().is_err());
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Cow<'static, str>);

macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident $body:ident($payload:ty) $text:literal,)*) => {
        $($(#[$doc])* pub const $name: Self = Self::known($text);)*

        /// Returns whether this version knows the type.
        pub(crate) fn is_known(&self) -> bool {
            matches!(self.as_str(), $($text)|*)
        }
    };
}

impl EventType {
    /// Maximum number of bytes of an event type.
    pub const MAX_BYTES: usize = 128;

    event_types!(constants);

    const fn known(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// Returns the type's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the type belongs to the family `family` (`user`, `agent` …).
    pub fn is_of(&self, family: &str) -> bool {
        self.0.split_once('.').is_some_and(|(first, _)| first == family)
    }

    /// Returns the actor that usually writes events of this type.
    pub(crate) fn usual_actor(&self) -> Actor {
        if self.is_of("user") {
            Actor::USER
        } else if self.is_of("agent") {
            Actor::AGENT
        } else {
            Actor::SYSTEM
        }
    }
}

impl FromStr for EventType {
    type Err = Error;

    /// Accepts 1 to 128 bytes of `a-z 0-9 _ . -` with at least one dot inside.
    fn from_str(text: &str) -> Result<Self> {
        let dotted =
            text.split_once('.').is_some_and(|(family, rest)| !family.is_empty() && !rest.is_empty());
        let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b));
        if !dotted || !plain || text.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "event type {} must be family.name of a-z, 0-9, _, . and -, at most {} bytes",
                quoted(text),
                Self::MAX_BYTES
            )));
        }
        Ok(Self(Cow::Owned(text.to_owned())))
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_serde!(EventType);
