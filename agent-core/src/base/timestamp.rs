//! Points in time.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, SecondsFormat, Utc};

use crate::base::text::{ParseError, quoted, text_serde};

/// Point in time in UTC, in whole microseconds, between the years 0 and 9999.
///
/// Times are data; nothing is ordered by them (events are ordered by [`Seq`](crate::base::id::Seq)). Prints and
/// parses as RFC 3339.
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
    /// Earliest time: the start of the year 0.
    pub const MIN: Self = Self(-62_167_219_200_000_000);
    /// Latest time: the last microsecond of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// Returns the time `micros` microseconds after 1970, clamped to [`Timestamp::MIN`] and [`Timestamp::MAX`].
    ///
    /// ```
    /// use agent_core::Timestamp;
    ///
    /// let at = Timestamp::from_micros(1_771_151_400_000_000);
    /// assert_eq!(at.to_string(), "2026-02-15T10:30:00.000000Z");
    /// assert_eq!(at.plus_micros(60_000_000).as_micros() - at.as_micros(), 60_000_000);
    /// assert_eq!(Timestamp::from_micros(i64::MAX), Timestamp::MAX);
    /// ```
    pub const fn from_micros(micros: i64) -> Self {
        if micros < Self::MIN.0 {
            Self::MIN
        } else if micros > Self::MAX.0 {
            Self::MAX
        } else {
            Self(micros)
        }
    }

    /// Returns the microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns this time plus `micros` microseconds, clamped to the range of a timestamp.
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

    /// Parses RFC 3339; drops digits beyond the microsecond.
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

    /// Every number is a time, and its printed form parses to the same time.
    #[test]
    fn any_number_is_a_valid_timestamp() {
        for micros in [i64::MIN, -1, 0, 1, 1_771_151_400_000_000, i64::MAX] {
            let at = Timestamp::from_micros(micros);
            assert_eq!(at.to_string().parse::<Timestamp>().unwrap(), at);
        }
        for text in ["", "yesterday", "2026-13-01T00:00:00Z", "2026-02-15"] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }
}
