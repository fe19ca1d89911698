//! Values of rows and their checksums: stored data is returned byte for byte, or reported as damaged.

use agent_core::Seq;

/// Returns the CRC-32C checksum of a row's parts, as the column has it. It covers their lengths, so that bytes cannot move
/// between parts.
pub(crate) fn checksum(parts: &[&str]) -> i32 {
    let bytes = parts.iter().map(|part| part.as_bytes());
    checksum_of_bytes(bytes)
}

pub(crate) fn checksum_of_bytes<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> i32 {
    let sum = parts.into_iter().fold(0, |sum, part| {
        let sum = crc32c::crc32c_append(sum, &(part.len() as u64).to_le_bytes());
        crc32c::crc32c_append(sum, part)
    });
    sum.cast_signed()
}

/// Returns the checksum of an event's row.
pub(crate) fn event_checksum(tenant: &str, session: &str, seq: Seq, json: &str) -> i32 {
    checksum(&[tenant, session, &seq.to_string(), json])
}

/// Converts a number to the form in which it is stored. No counter of this library reaches the limit.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a stored number to a sequence number.
pub(crate) fn seq(number: i64) -> Seq {
    Seq::new(u64::try_from(number).unwrap_or(0))
}

/// Returns the number of a tenant's advisory lock. Two tenants with one number only wait for each other.
pub(crate) fn lock_number(schema: &str, tenant: &str) -> i64 {
    // FNV-1a, which never changes.
    let bytes = schema.bytes().chain([b'/']).chain(tenant.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_distinguish_rows() {
        assert_ne!(checksum(&["ab", "c"]), checksum(&["a", "bc"]));
        assert_ne!(event_checksum("t", "s", Seq::new(1), "{}"), event_checksum("t", "s", Seq::new(2), "{}"));
    }
}
