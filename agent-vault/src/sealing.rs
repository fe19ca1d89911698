//! Keys of one session, as a commit is sealed with them.

use std::sync::Arc;

use agent_core::sealing::{Sealed, SealedBlob, Sealing};
use agent_core::{BlobName, Error, Result, TenantId};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::cipher::{Cipher, Purpose};

/// Number of bytes of the mark of a label: 22 characters of base64url.
const LABEL_BYTES: usize = 16;

/// Keys of a session, and the blobs that the commit names.
#[derive(Clone, Debug)]
pub(crate) struct SessionSealing {
    pub(crate) tenant: TenantId,
    pub(crate) cipher: Arc<Cipher>,
    pub(crate) labels: Arc<Cipher>,
    /// Sorted by their plain names.
    pub(crate) blobs: Vec<SealedBlob>,
    /// True for a key that stands in for a lost one, in the deletion of its session.
    pub(crate) is_stand_in: bool,
}

/// Returns the mark of a label's key, or of its value, in all sessions of a tenant.
pub(crate) fn label(labels: &Cipher, key: &str, value: Option<&str>) -> String {
    let mac = match value {
        None => labels.mac(&[b"label key", key.as_bytes()]),
        Some(value) => labels.mac(&[b"label", key.as_bytes(), value.as_bytes()]),
    };
    let (mark, _) = mac.split_at(LABEL_BYTES);
    URL_SAFE_NO_PAD.encode(mark)
}

/// Returns sealed bytes as text.
pub(crate) fn encoded(sealed: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(sealed)
}

/// Returns the bytes of [`encoded`].
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

impl SessionSealing {
    /// Returns whether both seal alike.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.cipher.key_id(), self.labels.key_id()) == (other.cipher.key_id(), other.labels.key_id())
    }

    fn bound<'b>(&'b self, what: &'b [u8], bound: &[&'b [u8]]) -> Vec<&'b [u8]> {
        [&[what, self.tenant.as_str().as_bytes()], bound].concat()
    }
}

const fn kind(what: Sealed) -> (Purpose, &'static [u8]) {
    match what {
        Sealed::Event => (Purpose::Content, b"event"),
        _ => (Purpose::Word, b"word"),
    }
}

impl Sealing for SessionSealing {
    fn key(&self) -> &str {
        self.cipher.key_id()
    }

    fn seal(&self, what: Sealed, bound: &[&[u8]], plain: &[u8]) -> String {
        let (purpose, what) = kind(what);
        encoded(&self.cipher.seal(purpose, &self.bound(what, bound), plain))
    }

    fn open(&self, what: Sealed, bound: &[&[u8]], sealed: &str) -> Result<Vec<u8>> {
        let (purpose, what) = kind(what);
        let plain =
            decoded(sealed).and_then(|bytes| self.cipher.open(purpose, &self.bound(what, bound), &bytes));
        plain.ok_or_else(|| {
            Error::corrupt(format!(
                "the key {} did not seal this here; somebody changed or moved it",
                self.cipher.key_id()
            ))
        })
    }

    fn label(&self, key: &str, value: Option<&str>) -> String {
        label(&self.labels, key, value)
    }

    fn blob(&self, name: BlobName) -> Option<SealedBlob> {
        let at = self.blobs.binary_search_by_key(&name, |blob| blob.plain.name).ok()?;
        self.blobs.get(at).copied()
    }

    fn is_stand_in(&self) -> bool {
        self.is_stand_in
    }
}
