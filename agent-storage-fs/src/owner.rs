//! Whose lines are in a log.

use agent_core::{SessionId, TenantId};

/// Whose lines they are. Checksums begin with it, so that a line of another session, or of another tenant's session of the
/// same id, is none of this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) id: SessionId,
    /// The checksum of what stands for the owner.
    pub(crate) seed: u32,
}

impl Owner {
    /// Where the checksums of all owners of a tenant begin.
    pub(crate) fn seed(tenant: &TenantId) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(tenant.as_str().as_bytes()), b"/")
    }

    pub(crate) fn new(tenant_seed: u32, id: SessionId) -> Self {
        let mut text = uuid::Uuid::encode_buffer();
        let text = id.as_uuid().hyphenated().encode_lower(&mut text);
        Self { id, seed: crc32c::crc32c_append(tenant_seed, text.as_bytes()) }
    }

    /// For a look at lines that are not believed.
    pub(crate) fn nobody() -> Self {
        Self { id: SessionId::from_uuid(uuid::Uuid::nil()), seed: 0 }
    }

    pub(crate) fn checksum(self, body: &[u8]) -> u32 {
        crc32c::crc32c_append(self.seed, body)
    }
}
