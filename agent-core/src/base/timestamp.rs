//! Points in time.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};

use crate::base::text::{ParseError, quoted, text_serde};

/// Point in time in UTC, in whole microseconds, between the years 0 and 9999.
///
/// Times are data; nothing is ordered by them (events are ordered by [`Seq`](crate::base::id::Seq)). Prints and
/// parses as RFC 3339, and converts from and to [`SystemTime`].
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use agent_core::Timestamp;
///
/// let at: Timestamp = "2026-02-15T10:30:00Z".parse()?;
/// assert_eq!(at.to_string(), "2026-02-15T10:30:00.000000Z");
///
/// let in_an_hour = SystemTime::from(at) + Duration::from_secs(3_600);
/// assert_eq!(Timestamp::try_from(in_an_hour)?, at.plus_micros(3_600_000_000));
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
        if let Some(at) = printed(text.as_bytes()) {
            return Ok(at);
        }
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

impl From<Timestamp> for SystemTime {
    /// Returns the same time. A `SystemTime` of Linux holds every timestamp.
    fn from(at: Timestamp) -> Self {
        let distance = Duration::from_micros(at.0.unsigned_abs());
        if at.0 < 0 { Self::UNIX_EPOCH - distance } else { Self::UNIX_EPOCH + distance }
    }
}

impl TryFrom<SystemTime> for Timestamp {
    type Error = ParseError;

    /// Converts a time; drops digits beyond the microsecond, like the parser. Fails outside the years 0 to 9999.
    fn try_from(time: SystemTime) -> Result<Self, ParseError> {
        let micros = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()),
            // Rounded to the past on both sides of 1970, so that an earlier time never becomes a later timestamp.
            Err(before) => i64::try_from(before.duration().as_nanos().div_ceil(1_000)).map(|micros| -micros),
        };
        match micros {
            Ok(micros) if Self::from_micros(micros).0 == micros => Ok(Self(micros)),
            _ => Err(ParseError::new(format!("time {time:?} is outside the years 0 to 9999"))),
        }
    }
}

/// Parses the form in which times are printed, several of which are in each event: `2026-02-15T10:30:00.000000Z`.
/// Returns `None` for every other form.
fn printed(text: &[u8]) -> Option<Timestamp> {
    const FORM: &[u8; 27] = b"0000-00-00T00:00:00.000000Z";
    let text: &[u8; 27] = text.try_into().ok()?;
    let has_form =
        |(byte, form): (&u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form };
    if !text.iter().zip(FORM).all(has_form) {
        return None;
    }
    let number = |digits: &[u8]| digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let [year, month, day] = [number(&text[..4]), number(&text[5..7]), number(&text[8..10])];
    let [hour, minute, second] = [number(&text[11..13]), number(&text[14..16]), number(&text[17..19])];
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    // A leap second is left to the other parser.
    if !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Days since 1970, with years that begin in March, so that a leap day is the last of its year.
    let (shifted, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * months + 2) / 5 + day - 1;
    let leap_days = shifted.div_euclid(4) - shifted.div_euclid(100) + shifted.div_euclid(400);
    let days = shifted * 365 + leap_days + of_year - 719_468;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(Timestamp(seconds * 1_000_000 + number(&text[20..26])))
}

text_serde!(Timestamp);

#[cfg(test)]
mod tests {
    use super::*;

    /// What is printed is parsed as by the parser of all forms: each day of four centuries, their ends, and what is no
    /// time at all.
    #[test]
    fn printed_times_parse_like_all_others() {
        let other = |text: &str| {
            DateTime::parse_from_rfc3339(text).ok().map(|time| Timestamp(time.timestamp_micros()))
        };
        for day in 0..146_097 {
            let at = Timestamp::from_micros((day * 86_400 + day % 86_400) * 1_000_000 + day);
            let text = at.to_string();
            assert_eq!((printed(text.as_bytes()), other(&text)), (Some(at), Some(at)), "{text}");
        }
        for text in [
            "0000-01-01T00:00:00.000000Z",
            "0000-02-29T23:59:59.999999Z",
            "1900-02-28T23:59:59.000001Z",
            "1969-12-31T23:59:59.999999Z",
            "9999-12-31T23:59:59.999999Z",
        ] {
            assert!(printed(text.as_bytes()).is_some(), "{text}");
            assert_eq!(printed(text.as_bytes()), other(text), "{text}");
        }
        for text in [
            "1900-02-29T00:00:00.000000Z",
            "2026-04-31T00:00:00.000000Z",
            "2026-13-01T00:00:00.000000Z",
            "2026-00-01T00:00:00.000000Z",
            "2026-01-00T00:00:00.000000Z",
            "2026-01-01T24:00:00.000000Z",
            "2026-01-01T00:60:00.000000Z",
            "2026-01-01T00:00:00,000000Z",
            "2026-01-01T00:00:00.00000Z",
            "2026-01-01t00:00:00.000000z",
            "2026-01-01T00:00:00.00000aZ",
        ] {
            assert_eq!(printed(text.as_bytes()), None, "{text}");
        }
        assert!("2026-06-30T23:59:60.000000Z".parse::<Timestamp>().is_ok(), "a leap second");
    }

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
    /// A timestamp becomes the same `SystemTime` and back, also at the ends of its range; a time beyond them is refused,
    /// and a part of a microsecond is dropped.
    #[test]
    fn system_time_of_each_timestamp_converts_back() {
        let from = |time: SystemTime| Timestamp::try_from(time);
        let day = Timestamp::from_micros(1_771_151_400_000_001);
        for at in [Timestamp::MIN, Timestamp::from_micros(-1), Timestamp::UNIX_EPOCH, day, Timestamp::MAX] {
            let time = SystemTime::from(at);
            assert_eq!(from(time).unwrap(), at);
            assert_eq!(from(time + Duration::from_nanos(999)).unwrap(), at, "{at}");
        }
        assert_eq!(SystemTime::from(Timestamp::UNIX_EPOCH), SystemTime::UNIX_EPOCH);
        let (first, last) = (SystemTime::from(Timestamp::MIN), SystemTime::from(Timestamp::MAX));
        for outside in [
            first - Duration::from_nanos(1),
            last + Duration::from_micros(1),
            last + Duration::from_secs(1 << 50),
            first - Duration::from_secs(1 << 50),
        ] {
            let error = from(outside).unwrap_err().to_string();
            assert!(error.contains("outside the years 0 to 9999"), "{error}");
        }
    }
}
