//! Times as people read and write them: in the local time zone, which `TZ` names. JSON has times in UTC.

use std::str::FromStr;

use agent_core::Timestamp;
use agent_core::clock::Effects;
use chrono::{DateTime, FixedOffset, Local, NaiveDate, NaiveDateTime, Offset, TimeZone, Utc};

/// Present time and its offset from UTC, for the lines of one output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zone {
    pub(crate) now: Timestamp,
    offset: FixedOffset,
}

impl Zone {
    pub(crate) fn now() -> Self {
        let now = Effects::default().now();
        Self { now, offset: local(now).offset().fix() }
    }

    /// Returns the heading of a column of times, with the offset: `LAST USED (+01:00)`.
    pub(crate) fn heading(&self, name: &str) -> String {
        format!("{name} ({})", shown(self.offset))
    }

    /// Returns a time to the minute. One at which the clocks had another offset than now has its own offset behind it.
    pub(crate) fn minute(&self, at: Timestamp) -> String {
        let at = local(at);
        let text = at.format("%Y-%m-%d %H:%M");
        match at.offset().fix() {
            offset if offset == self.offset => text.to_string(),
            offset => format!("{text} {}", shown(offset)),
        }
    }
}

/// Returns a time to the second with its offset: `2026-11-28 10:30:00 +01:00`.
pub(crate) fn second(at: Timestamp) -> String {
    let at = local(at);
    format!("{} {}", at.format("%Y-%m-%d %H:%M:%S"), shown(at.offset().fix()))
}

fn local(at: Timestamp) -> DateTime<Local> {
    Local.from_utc_datetime(
        &DateTime::<Utc>::from_timestamp_micros(at.as_micros()).unwrap_or_default().naive_utc(),
    )
}

fn shown(offset: FixedOffset) -> String {
    if offset.local_minus_utc() == 0 { "UTC".to_owned() } else { offset.to_string() }
}

/// Time as a person gives it: a day, a local time, a time with an offset, or an age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenTime {
    Day(NaiveDate),
    Local(NaiveDateTime),
    At(Timestamp),
    /// Number of microseconds before now.
    Age(i64),
}

impl FromStr for GivenTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(day) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
            return Ok(Self::Day(day));
        }
        for form in ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"] {
            if let Ok(local) = NaiveDateTime::parse_from_str(text, form) {
                return Ok(Self::Local(local));
            }
        }
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        let minutes = [("min", 1), ("h", 60), ("d", 24 * 60), ("w", 7 * 24 * 60)];
        let age = minutes.iter().find_map(|(unit, minutes)| {
            let count: i64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            count.checked_mul(minutes * 60_000_000).filter(|micros| *micros >= 0)
        });
        age.map(Self::Age).ok_or_else(|| {
            "use a day (2026-11-28), a local time (2026-11-28T10:00), one with an offset (2026-11-28T10:00:00+01:00), or an \
             age (30min, 2h, 3d, 4w)"
                .to_owned()
        })
    }
}

impl GivenTime {
    /// Returns the time; of a day its beginning, or its end if `is_end` is true.
    pub(crate) fn at(self, now: Timestamp, is_end: bool) -> Timestamp {
        match self {
            Self::Day(day) if is_end => utc(day.succ_opt().unwrap_or(day).into()),
            Self::Day(day) => utc(day.into()),
            Self::Local(local) => utc(local),
            Self::At(at) => at,
            Self::Age(micros) => now.plus_micros(-micros),
        }
    }
}

/// Returns a local time in UTC: the first of two if the clocks were set back over it, and one close to it if they were set
/// forward over it.
fn utc(local: NaiveDateTime) -> Timestamp {
    let close = || Local.from_utc_datetime(&(local - Local.offset_from_utc_datetime(&local).fix()));
    let at = Local.from_local_datetime(&local).earliest().unwrap_or_else(close);
    Timestamp::from_micros(at.timestamp_micros())
}
