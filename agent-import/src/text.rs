//! Texts and times of a source, in the forms that events have.

use agent_core::Timestamp;
use agent_core::json::RawJson;

/// Beginning of words that only encrypted stores write, which others refuse.
pub(crate) const SEALED: &str = "~1.";

/// Returns a text without control characters, cut to this number of bytes.
pub(crate) fn clip(text: &str, max: usize) -> String {
    let text = text.trim_start();
    let text = if text.starts_with(SEALED) { &text[1..] } else { text };
    let mut clipped = String::new();
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
        if clipped.len() + c.len_utf8() > max {
            break;
        }
        clipped.push(c);
    }
    clipped.trim().to_owned()
}

/// Returns the time of a member that holds an RFC 3339 time, or seconds, milliseconds, microseconds or nanoseconds since 1970.
pub(crate) fn time(value: &RawJson) -> Option<Timestamp> {
    match value.to::<String>() {
        // Python writes times without an offset.
        Ok(text) => text.parse().or_else(|_| format!("{}Z", text.replace(' ', "T")).parse()).ok(),
        Err(_) => value.to::<f64>().ok().and_then(time_of_number),
    }
}

/// Returns the time that a number states: its size tells the unit, for the years 1973 to 5138.
pub(crate) fn time_of_number(number: f64) -> Option<Timestamp> {
    let micros = match number.abs() {
        n if !n.is_finite() || n == 0.0 => return None,
        n if n < 1e11 => number * 1e6,
        n if n < 1e14 => number * 1e3,
        n if n < 1e17 => number,
        _ => number / 1e3,
    };
    // Out of range is cut to the first or last time.
    #[allow(clippy::cast_possible_truncation, reason = "a cast from a float saturates")]
    Some(Timestamp::from_micros(micros.round() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_any_usual_form() -> agent_core::Result<()> {
        let at: Timestamp = "2026-02-03T04:05:06Z".parse()?;
        for form in [
            r#""2026-02-03T04:05:06Z""#,
            r#""2026-02-03 04:05:06""#,
            r#""2026-02-03T05:05:06+01:00""#,
            "1770091506",
            "1770091506.0",
            "1770091506000",
            "1770091506000000",
            "1770091506000000000",
        ] {
            assert_eq!(time(&RawJson::parse(form)?), Some(at), "{form}");
        }
        assert_eq!(time(&RawJson::parse(r#""yesterday""#)?), None);
        assert_eq!(time(&RawJson::parse("1e300")?), Some(Timestamp::MAX));
        assert_eq!(time(&RawJson::parse("null")?), None);
        Ok(())
    }

    #[test]
    fn clipped_texts_have_no_control_characters() {
        assert_eq!(clip(" a\nb\u{7}c ", 10), "a b c");
        assert_eq!(clip("ééé", 5), "éé");
    }
}
