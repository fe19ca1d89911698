//! Row of a tenant: its own secret, and the keys that wrap the keys of its sessions.

use std::sync::Arc;

use agent_core::{Error, ErrorKind, Result};
use zeroize::Zeroizing;

use crate::cipher::{Cipher, SECRET_BYTES, Secret};
use crate::ring::KeyRing;
use crate::wrapped::{Bound, Wrapped, damaged, wrap};

/// Number of wrapping keys that are kept.
const KEPT: usize = 16;

/// Row of a tenant, opened. What is wrapped is a byte that is 1 during a rotation, the tenant's own secret, and the wrapping keys,
/// newest first.
pub(crate) struct TenantRow {
    text: String,
    /// Id of the root key that wraps it.
    by: String,
    is_rotating: bool,
    own: Opened,
    wrapping: Vec<Opened>,
}

struct Opened {
    secret: Secret,
    cipher: Arc<Cipher>,
}

impl Opened {
    fn new(secret: [u8; SECRET_BYTES]) -> Self {
        let secret = Zeroizing::new(secret);
        Self { cipher: Arc::new(Cipher::new(&secret)), secret }
    }
}

impl TenantRow {
    /// Returns the text of a new row.
    pub(crate) fn wrap_new(by: &Cipher, bound: Bound<'_>, own: &Secret, wrapping: &Secret) -> String {
        wrap_parts(by, bound, false, own, [wrapping].into_iter())
    }

    /// Opens the text of a row.
    ///
    /// # Errors
    ///
    /// `Denied` if the ring does not have the root key; `Corrupt` and `Unsupported` for the row.
    pub(crate) fn open(ring: &KeyRing, bound: Bound<'_>, text: &str) -> Result<Self> {
        let wrapped = Wrapped::parse(text, bound)?;
        let Some(root) = ring.find(wrapped.by) else { return Err(denied(ring, bound, wrapped.by)) };
        let plain = wrapped.open(root)?;
        let (flag, secrets) = plain.split_first().ok_or_else(|| damaged(bound))?;
        let (secrets, rest) = secrets.as_chunks::<SECRET_BYTES>();
        let mut secrets = secrets.iter().map(|secret| Opened::new(*secret));
        match (secrets.next(), rest.is_empty() && *flag <= 1) {
            (Some(own), true) if secrets.len() > 0 => Ok(Self {
                by: wrapped.by.to_owned(),
                is_rotating: *flag == 1,
                own,
                wrapping: secrets.collect(),
                text: text.to_owned(),
            }),
            _ => Err(damaged(bound)),
        }
    }

    /// Returns the text from which it was opened.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the id of the root key that wraps it.
    pub(crate) fn by(&self) -> &str {
        &self.by
    }

    /// Returns whether a rotation of the wrapping keys has begun and not ended.
    pub(crate) fn is_rotating(&self) -> bool {
        self.is_rotating
    }

    /// Returns the cipher of the tenant's own secret.
    pub(crate) fn cipher(&self) -> &Arc<Cipher> {
        &self.own.cipher
    }

    /// Returns the cipher of the key that wraps new keys of sessions.
    pub(crate) fn newest(&self) -> &Cipher {
        // There is one, or the row is not opened.
        &self.wrapping.first().unwrap_or(&self.own).cipher
    }

    /// Returns the cipher of the wrapping key with this id.
    pub(crate) fn find(&self, id: &str) -> Option<&Cipher> {
        self.wrapping.iter().map(|key| &*key.cipher).find(|key| key.key_id() == id)
    }

    /// Returns the text of the same row, wrapped by another root key.
    pub(crate) fn again(&self, by: &Cipher, bound: Bound<'_>) -> String {
        wrap_parts(by, bound, self.is_rotating, &self.own.secret, self.wrapping.iter().map(|it| &it.secret))
    }

    /// Returns the text of the row with a new wrapping key, at the start of a rotation.
    pub(crate) fn started(&self, by: &Cipher, bound: Bound<'_>, new: &Secret) -> String {
        let former = self.wrapping.iter().map(|it| &it.secret);
        wrap_parts(by, bound, true, &self.own.secret, [new].into_iter().chain(former))
    }

    /// Returns the text of the row at the end of a rotation.
    pub(crate) fn ended(&self, by: &Cipher, bound: Bound<'_>) -> String {
        let kept = self.wrapping.iter().map(|it| &it.secret).take(KEPT);
        wrap_parts(by, bound, false, &self.own.secret, kept)
    }
}

fn wrap_parts<'a>(
    by: &Cipher,
    bound: Bound<'_>,
    is_rotating: bool,
    own: &Secret,
    wrapping: impl Iterator<Item = &'a Secret>,
) -> String {
    let mut plain = Zeroizing::new(Vec::with_capacity(1 + (2 + KEPT) * SECRET_BYTES));
    plain.push(u8::from(is_rotating));
    plain.extend_from_slice(&**own);
    wrapping.for_each(|key| plain.extend_from_slice(&**key));
    wrap(by, bound, &plain)
}

fn denied(ring: &KeyRing, bound: Bound<'_>, needed: &str) -> Error {
    let given: Vec<_> = ring.ids().iter().map(ToString::to_string).collect();
    let text = format!(
        "key row {} is wrapped by root key {needed}, and the ring has {}; give root key {needed}, as an older one if it was \
         replaced",
        bound.row(),
        given.join(", ")
    );
    Error::new(ErrorKind::Denied, text)
}
