//! Owner of the lines in a log.

use agent_core::{SessionId, TenantId};

/// Format of lines, in a log and in the files that are derived from it.
pub(crate) const FORMAT: i64 = 6;
/// Newest format that is recognised in a line that this version cannot read.
const NEWEST: i64 = 64;

/// Owner of a line: a session of a tenant. Checksums start with it and the format, so that a line of another session,
/// of a session with the same id in another tenant, or of another format is not accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) id: SessionId,
    /// Checksum over the owner and the format, with which the checksums of its lines begin.
    pub(crate) seed: u32,
    /// Checksum over the owner alone.
    plain: u32,
}

impl Owner {
    /// Returns the checksum with which all owners of a tenant begin.
    pub(crate) fn seed(tenant: &TenantId) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(tenant.as_str().as_bytes()), b"/")
    }

    pub(crate) fn new(tenant_seed: u32, id: SessionId) -> Self {
        let mut text = uuid::Uuid::encode_buffer();
        let text = id.as_uuid().hyphenated().encode_lower(&mut text);
        let plain = crc32c::crc32c_append(tenant_seed, text.as_bytes());
        Self { id, seed: with_format(plain, FORMAT), plain }
    }

    /// Returns the other formats, each with the checksum with which those of its lines begin. The checksums of format
    /// 2 cover the owner alone, and those of format 1 not even that.
    pub(crate) fn other_formats(self) -> impl Iterator<Item = (i64, u32)> {
        let named = (3..=NEWEST).filter(|format| *format != FORMAT);
        [(1, 0), (2, self.plain)]
            .into_iter()
            .chain(named.map(move |format| (format, with_format(self.plain, format))))
    }

    pub(crate) fn checksum(self, body: &[u8]) -> u32 {
        crc32c::crc32c_append(self.seed, body)
    }
}

fn with_format(plain: u32, format: i64) -> u32 {
    crc32c::crc32c_append(plain, format!("/{format}").as_bytes())
}
