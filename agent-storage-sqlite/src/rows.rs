//! Rows and their checksums: what is stored is handed back byte for byte, or found to be damaged.

use agent_core::Seq;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

/// The checksum of a row's parts, CRC-32C. Their lengths are part of it, so that bytes cannot move between them.
pub(crate) fn checksum(parts: &[&str]) -> i64 {
    let sum = parts.iter().fold(0, |sum, part| {
        let sum = crc32c::crc32c_append(sum, &(part.len() as u64).to_le_bytes());
        crc32c::crc32c_append(sum, part.as_bytes())
    });
    i64::from(sum)
}

/// The checksum of an event's row.
pub(crate) fn event_checksum(tenant: &str, session: &str, seq: Seq, json: &str) -> i64 {
    let mut buffer = [0; 20];
    checksum(&[tenant, session, digits(seq, &mut buffer), json])
}

/// A number in decimal digits, without an allocation.
fn digits(seq: Seq, buffer: &mut [u8; 20]) -> &str {
    let (mut rest, mut start) = (seq.get(), buffer.len());
    loop {
        start -= 1;
        buffer[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return std::str::from_utf8(&buffer[start..]).unwrap_or_default();
        }
    }
}

/// A number as SQLite keeps it. No counter of this library reaches the end.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A sequence number that SQLite kept.
pub(crate) fn seq(number: i64) -> Seq {
    Seq::new(u64::try_from(number).unwrap_or(0))
}

/// A column of text; `None` where it holds none, or bytes that are no text.
pub(crate) fn text(row: &SqliteRow, column: usize) -> sqlx::Result<Option<&str>> {
    let bytes: Option<&[u8]> = row.try_get_unchecked(column)?;
    Ok(bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()))
}

/// A column with a number.
pub(crate) fn number(row: &SqliteRow, column: usize) -> sqlx::Result<i64> {
    row.try_get_unchecked(column)
}

/// A column with a number or nothing.
pub(crate) fn optional(row: &SqliteRow, column: usize) -> sqlx::Result<Option<i64>> {
    row.try_get_unchecked(column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_tells_rows_apart() {
        for number in [0, 1, 9, 10, u64::MAX] {
            assert_eq!(digits(Seq::new(number), &mut [0; 20]), number.to_string());
        }
        assert_ne!(checksum(&["ab", "c"]), checksum(&["a", "bc"]));
        assert_ne!(event_checksum("t", "s", Seq::new(1), "{}"), event_checksum("t", "s", Seq::new(2), "{}"));
    }
}
