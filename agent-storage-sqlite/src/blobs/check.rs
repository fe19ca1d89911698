//! Check of the rows of blobs without their bytes, which a reader checks.

use std::fmt;

use agent_core::BlobName;
use agent_core::model::BlobInfo;
use rusqlite::{Connection, params};

use crate::blobs::chunks::{REMEDY, row_checksum};
use crate::error::Step;
use crate::medium::rows::{each, first, int, number, optional, text};
use crate::medium::stored;

/// Reads the rows of all blobs, each session's by state and name, with the chunks that each has, and how many of them have
/// the length that they should have. The length of a chunk is read without the chunk.
const ROWS: &str = "SELECT b.tenant, b.session, b.state, b.name, b.bytes, b.crc, b.named, count(c.n), \
    ifnull(sum(octet_length(c.data) = min(?, b.bytes - c.n * ?)), 0) \
    FROM blobs b LEFT JOIN blob_chunks c ON c.blob = b.blob \
    WHERE b.state <> 'removed' AND b.tenant NOT IN (SELECT tenant FROM deletions) \
    GROUP BY b.tenant, b.session, b.state, b.name, b.blob ORDER BY b.tenant, b.session, b.state, b.name, b.blob";

/// Finds the chunks that belong to no blob.
const LOST: &str =
    "SELECT DISTINCT blob FROM blob_chunks c WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.blob = c.blob)";

/// Reports damaged rows of blobs, at most `most`, and at most as many chunks that belong to no blob.
pub(crate) fn check(conn: &Connection, most: usize, found: &mut Vec<String>) -> Step<()> {
    let (limit, size, mut before) =
        (found.len() + most, int(agent_core::model::BLOB_CHUNK_BYTES as u64), None);
    each(conn, ROWS, params![size, size], |row| {
        let (tenant, session) = (text(row, 0)?.unwrap_or("?"), text(row, 1)?.unwrap_or("?"));
        let (state, name) = (text(row, 2)?.unwrap_or("?"), text(row, 3)?.unwrap_or("?"));
        let (bytes, crc, named) = (number(row, 4)?, number(row, 5)?, optional(row, 6)?);
        let (chunks, sound) = (number(row, 7)?, number(row, 8)?);
        let this = Some([tenant, session, state, name].map(str::to_owned));
        let is_second = state == "whole" && before == this;
        before = this;
        let mut report = |what: fmt::Arguments<'_>| {
            if found.len() < limit {
                found.push(format!("blob {name} of session {session} of tenant {tenant} {what}"));
            }
        };
        let fits =
            u64::try_from(bytes).ok().filter(|bytes| row_checksum(tenant, session, name, *bytes) == crc);
        let info = fits.and_then(|bytes| Some(BlobInfo::new(name.parse::<BlobName>().ok()?, bytes)));
        let Some(info) = info else {
            report(format_args!("has a row that does not fit its checksum; {REMEDY}"));
            return Ok(());
        };
        match state {
            "whole" => {
                let due = int(info.chunks());
                if chunks < due {
                    report(format_args!("has {chunks} of {due} chunks; {REMEDY}"));
                } else if (chunks, sound) != (due, due) {
                    report(format_args!(
                        "has chunks of another number or length than its row says; {REMEDY}"
                    ));
                }
                if is_second {
                    report(format_args!("has two rows; {REMEDY}"));
                }
            }
            "unfinished" => {}
            _ => report(format_args!("has the unknown state {state}; {REMEDY}")),
        }
        if let Some(named) = named
            && (state != "whole" || !is_named(conn, tenant, session, info.name, named)?)
        {
            let what = "is not named by the event that its row says";
            report(format_args!("{what}, which is event {named}; run `chat rebuild` to restore the row"));
        }
        Ok(())
    })?;
    each(conn, &format!("{LOST} LIMIT {most}"), [], |row| {
        let blob = number(row, 0)?;
        found.push(format!(
            "the table blob_chunks has chunks of blob number {blob}, and the table blobs has no such row; restore the file \
             from a backup, or remove them with DELETE FROM blob_chunks WHERE blob = {blob}"
        ));
        Ok(())
    })
}

/// Returns whether an event names a blob. An event that is damaged may do so; it is reported when it is read.
fn is_named(conn: &Connection, tenant: &str, session: &str, name: BlobName, seq: i64) -> Step<bool> {
    let sql = "SELECT seq, crc, json FROM logs JOIN events USING (log) WHERE tenant = ? AND session = ? AND seq = ?";
    let found = first(conn, sql, params![tenant, session, seq], |row| {
        let event = stored::event(row, 0, tenant, session)?;
        Ok(event.map_or(true, |event| event.blobs.contains(&name)))
    })?;
    Ok(found.unwrap_or(false))
}
