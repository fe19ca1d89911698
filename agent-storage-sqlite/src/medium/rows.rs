//! Rows and their checksums: stored data is returned byte for byte, or reported as damaged.

use agent_core::Seq;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params, Result, Row};

use crate::error::Step;

/// Returns the CRC-32C checksum of a row's parts. It covers their lengths, so that bytes cannot move between parts.
pub(crate) fn checksum(parts: &[&str]) -> i64 {
    let sum = parts.iter().fold(0, |sum, part| {
        let sum = crc32c::crc32c_append(sum, &(part.len() as u64).to_le_bytes());
        crc32c::crc32c_append(sum, part.as_bytes())
    });
    i64::from(sum)
}

/// Returns the checksum of an event's row.
pub(crate) fn event_checksum(tenant: &str, session: &str, seq: Seq, json: &str) -> i64 {
    let mut buffer = [0; 20];
    checksum(&[tenant, session, digits(seq, &mut buffer), json])
}

/// Returns a number in decimal digits, without an allocation.
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

/// Converts a number to the form in which SQLite stores it. No counter of this library reaches the limit.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a stored number to a sequence number.
pub(crate) fn seq(number: i64) -> Seq {
    Seq::new(u64::try_from(number).unwrap_or(0))
}

/// Returns a text column, borrowed from SQLite; `None` if it is NULL or not text.
pub(crate) fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r str>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    })
}

/// Returns a column with a number.
pub(crate) fn number(row: &Row<'_>, column: usize) -> Result<i64> {
    row.get(column)
}

/// Returns a column with a number or NULL.
pub(crate) fn optional(row: &Row<'_>, column: usize) -> Result<Option<i64>> {
    row.get(column)
}

/// Runs a statement that returns no rows, and returns how many rows it changed. It is prepared once on each
/// connection.
pub(crate) fn execute(conn: &Connection, sql: &str, values: impl Params) -> Result<usize> {
    conn.prepare_cached(sql)?.execute(values)
}

/// Returns the result of `read` for a query's first row; `None` if there is no row.
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

/// Open read transaction. Dropping it ends it.
struct Snapshot<'c>(&'c Connection);

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // Nothing was written.
        if execute(self.0, "COMMIT", []).is_err() {
            let _ = execute(self.0, "ROLLBACK", []);
        }
    }
}

/// Runs `work`, all statements of which see one snapshot. The locks of the file are taken once for all of them.
pub(crate) fn in_snapshot<T>(conn: &Connection, work: impl FnOnce() -> Step<T>) -> Step<T> {
    execute(conn, "BEGIN", [])?;
    let _snapshot = Snapshot(conn);
    work()
}

/// Calls `take` with each of a query's rows.
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

/// Returns the number in a query's first column; `None` if there is no row.
pub(crate) fn first_number(conn: &Connection, sql: &str, values: impl Params) -> Result<Option<i64>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    rows.next()?.map(|row| number(row, 0)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_distinguish_rows() {
        for number in [0, 1, 9, 10, u64::MAX] {
            assert_eq!(digits(Seq::new(number), &mut [0; 20]), number.to_string());
        }
        assert_ne!(checksum(&["ab", "c"]), checksum(&["a", "bc"]));
        assert_ne!(event_checksum("t", "s", Seq::new(1), "{}"), event_checksum("t", "s", Seq::new(2), "{}"));
    }
}
