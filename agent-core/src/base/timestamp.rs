//! Moments in time.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, SecondsFormat, Utc};

use crate::base::text::{ParseError, quoted, text_serde};

/// A moment in UTC, in whole microseconds, between the years 0 and 9999.
///
/// Times are data; they never order anything (a [`Seq`](crate::base::id::Seq) does). Prints and parses as RFC 3339.
///
/// ```
/// use agent_core::Timestamp;
///
/// let at: Timestamp = "2026-02-15T10:30:00Z".parse()?;
/// assert_eq!(at.to_string(), "2026-02-15T10:30:00.000000Z");
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const UNIX_EPOCH: Self = Self(0);
    /// The earliest moment: the start of the year 0.
    pub const MIN: Self = Self(-62_167_219_200_000_000);
    /// The latest moment: the last microsecond of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// The moment `micros` microseconds after 1970, clamped to [`Timestamp::MIN`] and [`Timestamp::MAX`].
    pub const fn from_micros(micros: i64) -> Self {
        if micros < Self::MIN.0 {
            Self::MIN
        } else if micros > Self::MAX.0 {
            Self::MAX
        } else {
            Self(micros)
        }
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This moment moved by `micros` microseconds, clamped to what a timestamp can hold.
    pub const fn plus_micros(self, micros: i64) -> Self {
        Self::from_micros(self.0.saturating_add(micros))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = DateTime::<Utc>::from_timestamp_micros(self.0).unwrap_or_default();
        f.pad(&time.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({self})")
    }
}

impl FromStr for Timestamp {
    type Err = ParseError;

    /// Parses RFC 3339; digits beyond the microsecond are dropped.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let time = DateTime::parse_from_rfc3339(text).map_err(|source| {
            ParseError::new(format!("{} is not an RFC 3339 time", quoted(text))).with_source(source)
        })?;
        let micros = time.timestamp_micros();
        if Self::from_micros(micros).0 != micros {
            return Err(ParseError::new(format!("time {} is outside the years 0 to 9999", quoted(text))));
        }
        Ok(Self(micros))
    }
}

text_serde!(Timestamp);

#[cfg(test)]
mod tests {
    use super::*;

    /// Any number is a time, and any time prints as one that parses to the same.
    #[test]
    fn any_number_is_a_time() {
        for micros in [i64::MIN, -1, 0, 1, 1_771_151_400_000_000, i64::MAX] {
            let at = Timestamp::from_micros(micros);
            assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
        }
        for text in ["", "yesterday", "2026-13-01T00:00:00Z", "2026-02-15"] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }
}
