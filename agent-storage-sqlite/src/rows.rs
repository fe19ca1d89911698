//! Rows and their checksums: what is stored is handed back byte for byte, or found to be damaged.

use agent_core::Seq;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params, Result, Row};

use crate::error::Step;

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

/// A column of text, where SQLite has it; `None` where it holds none, or bytes that are no text.
pub(crate) fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r str>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    })
}

/// A column with a number.
pub(crate) fn number(row: &Row<'_>, column: usize) -> Result<i64> {
    row.get(column)
}

/// A column with a number or nothing.
pub(crate) fn optional(row: &Row<'_>, column: usize) -> Result<Option<i64>> {
    row.get(column)
}

/// Runs a statement that gives no rows, and returns how many rows it changed. It is prepared once on each connection.
pub(crate) fn execute(conn: &Connection, sql: &str, values: impl Params) -> Result<usize> {
    conn.prepare_cached(sql)?.execute(values)
}

/// What `read` makes of a query's first row; `None` where there is no row.
pub(crate) fn first<T>(
    conn: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> Step<T>,
) -> Step<Option<T>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    rows.next()?.map(read).transpose()
}

/// Shows each of a query's rows to `take`.
pub(crate) fn each(
    conn: &Connection,
    sql: &str,
    values: impl Params,
    mut take: impl FnMut(&Row<'_>) -> Step<()>,
) -> Step<()> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}

/// The number that is a query's first column; `None` where there is no row.
pub(crate) fn first_number(conn: &Connection, sql: &str, values: impl Params) -> Result<Option<i64>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    rows.next()?.map(|row| number(row, 0)).transpose()
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
