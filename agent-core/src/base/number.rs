//! Numbers of a JSON text: whether a reader of 64-bit numbers keeps their values.

/// Returns whether every number of a JSON text is kept, in its value, by a reader of 64-bit integers and doubles.
pub(crate) fn are_kept(json: &str) -> bool {
    numbers(json).all(is_kept)
}

/// Returns the numbers of a JSON text, as they are spelled.
fn numbers(json: &str) -> impl Iterator<Item = &str> {
    let (bytes, mut at) = (json.as_bytes(), 0);
    std::iter::from_fn(move || {
        let mut is_text = false;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'\\' if is_text => at += 1,
                b'"' => is_text = !is_text,
                b'-' | b'0'..=b'9' if !is_text => {
                    let is_digit =
                        |byte: &&u8| matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E' | b'0'..=b'9');
                    let end = at + bytes.iter().skip(at).take_while(is_digit).count();
                    let number = json.get(at..end);
                    at = end;
                    return number;
                }
                _ => {}
            }
            at += 1;
        }
        None
    })
}

fn is_kept(number: &str) -> bool {
    match number.parse::<serde_json::Number>() {
        Ok(read) => value(number) == value(&read.to_string()),
        Err(_) => false,
    }
}

/// Returns the value of a decimal number: its sign, its digits without zeros at both ends, and the exponent behind the
/// last of them.
fn value(number: &str) -> (bool, String, i64) {
    let (number, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let is_negative = number.starts_with('-');
    let (whole, part) =
        number.trim_start_matches('-').split_once('.').unwrap_or((number.trim_start_matches('-'), ""));
    let digits = format!("{whole}{part}");
    let trimmed = digits.trim_end_matches('0');
    let zeros = i64::try_from(digits.len() - trimmed.len()).unwrap_or(i64::MAX);
    let places = i64::try_from(part.len()).unwrap_or(i64::MAX);
    let exponent = exponent.parse::<i64>().unwrap_or(i64::MAX);
    let digits = trimmed.trim_start_matches('0');
    if digits.is_empty() {
        return (false, String::new(), 0);
    }
    (is_negative, digits.to_owned(), exponent.saturating_sub(places).saturating_add(zeros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_64_bits_are_found() {
        for kept in [
            "{}",
            r#"{"a":1,"b":-0,"c":[1e5,1.50,0.1,2E-3,18446744073709551615]}"#,
            r#"{"a":"99999999999999999999.5 and \"1e999","b":12.25}"#,
            "-9223372036854775808",
        ] {
            assert!(are_kept(kept), "{kept}");
        }
        for changed in [
            "18446744073709551616",
            r#"{"text":"1","id":12345678901234567890123}"#,
            "[0.12345678901234567890123]",
            "1e999",
        ] {
            assert!(!are_kept(changed), "{changed}");
        }
    }
}
