//! Receipt of an erasure.

use agent_core::store::{ErasableKeys, ErasableRow};
use agent_core::{Error, ErrorKind, Result, SessionId, TenantId, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Number of the form of a receipt.
const FORMAT: u32 = 1;

/// Receipt of what an erasure has removed and what it kept: ids, hashes, the place and the time, and no name.
///
/// A receipt of an encrypted store is authenticated by a key that follows from the root key: it convinces whoever holds the root key, and nobody
/// else. That of another store has a checksum, which finds what was changed by accident, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Receipt {
    #[serde(flatten)]
    body: ReceiptContents,
    /// Tag or checksum by which a change is found.
    pub proof: Authenticity,
}

/// Tag or checksum by which a change of a receipt is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Authenticity {
    /// HMAC-SHA-256 by a key that follows from a root key.
    Mac {
        /// Id of the root key.
        root: String,
        /// Tag, in hexadecimal digits.
        tag: String,
    },
    /// SHA-256, in hexadecimal digits: the store has no keys.
    Checksum {
        /// The digits.
        sha256: String,
    },
}

/// Contents of a [`Receipt`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ReceiptContents {
    /// Number of the form.
    format: u32,
    /// Tenant of the data.
    pub tenant: TenantId,
    /// Kind of the subject: `owner`, `creator` or `tenant`.
    pub subject: String,
    /// Random name that stands for the person, in tombstones too.
    pub pseudonym: String,
    /// Store, as the host names it.
    pub place: String,
    /// Time at which the receipt was made.
    pub at: Timestamp,
    /// Sessions of which nothing but a tombstone is left, or nothing.
    pub sessions: Vec<SessionId>,
    /// Workspaces that were deleted with all that was in them.
    pub workspaces: Vec<WorkspaceId>,
    /// Rows of the keys that were dropped.
    pub keys: Vec<ErasableRow>,
    /// Sessions of which something is kept.
    pub kept: Vec<KeptSession>,
    /// Sessions whose tombstones still have the owner's name, since the store cannot change it.
    pub named: Vec<SessionId>,
    /// Places that the erasure could not look at, such as former versions in a bucket whose server does not tell whether it keeps them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
}

/// Session of which an erasure has kept a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct KeptSession {
    /// Id of the session. It is deleted, and its key stays.
    pub session: SessionId,
    /// Living fork of somebody else, which reads the kept part.
    pub fork: SessionId,
}

impl KeptSession {
    pub(super) const fn new(session: SessionId, fork: SessionId) -> Self {
        Self { session, fork }
    }
}

impl std::ops::Deref for Receipt {
    type Target = ReceiptContents;

    fn deref(&self) -> &ReceiptContents {
        &self.body
    }
}

impl ReceiptContents {
    pub(super) fn new(
        tenant: TenantId,
        subject: String,
        pseudonym: String,
        place: String,
        at: Timestamp,
    ) -> Self {
        let (sessions, workspaces, keys) = (Vec::new(), Vec::new(), Vec::new());
        let (kept, named, unseen) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            format: FORMAT,
            tenant,
            subject,
            pseudonym,
            place,
            at,
            sessions,
            workspaces,
            keys,
            kept,
            named,
            unseen,
        }
    }

    /// Returns the receipt, authenticated by the root key if there is one.
    pub(super) fn signed(self, keys: Option<&dyn ErasableKeys>) -> Result<Receipt> {
        let text = self.text()?;
        let proof = match keys {
            Some(keys) => {
                let (root, tag) = keys.authenticate(text.as_bytes());
                Authenticity::Mac { root, tag }
            }
            None => Authenticity::Checksum { sha256: checksum(&text) },
        };
        Ok(Receipt { body: self, proof })
    }

    fn text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|source| {
            Error::invalid(format!("the receipt cannot be written: {source}")).with_source(source)
        })
    }
}

fn checksum(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The form of a text: the members of the body beside the proof.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form<B, P> {
    erasure_receipt: B,
    proof: P,
}

impl Receipt {
    /// Returns the receipt as one line of JSON.
    ///
    /// # Errors
    ///
    /// None in practice.
    pub fn to_text(&self) -> Result<String> {
        let form = Form { erasure_receipt: &self.body, proof: &self.proof };
        let text = serde_json::to_string(&form);
        text.map_err(|source| {
            Error::invalid(format!("the receipt cannot be written: {source}")).with_source(source)
        })
    }

    /// Reads a receipt. Whether it is authentic is found out by [`check`](Self::check).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the text is no receipt; `Unsupported` for another format.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |source: serde_json::Error| {
            let text = format!(
                "this is not the receipt of an erasure ({source}); give the file that the erasure wrote"
            );
            Error::invalid(text).with_source(source)
        };
        let form: Form<serde_json::Value, Authenticity> = serde_json::from_str(text).map_err(wrong)?;
        let format = form.erasure_receipt.get("format").and_then(serde_json::Value::as_u64);
        if format != Some(FORMAT.into()) {
            let format = format.map_or_else(|| "no format".to_owned(), |format| format!("format {format}"));
            return Err(Error::unsupported(format!(
                "the receipt has {format}, and this version reads {FORMAT}; use the version that wrote it"
            )));
        }
        let body = serde_json::from_value(form.erasure_receipt).map_err(wrong)?;
        Ok(Self { body, proof: form.proof })
    }

    /// Checks that the receipt is what the erasure wrote. `keys` are those of the store; `None` if it is not encrypted.
    ///
    /// # Errors
    ///
    /// `Corrupt` if it was changed; `Denied` if the root key that authenticates it is not at hand, or if it has no tag and the store is
    /// encrypted.
    pub fn check(&self, keys: Option<&dyn ErasableKeys>) -> Result<()> {
        let text = self.body.text()?;
        let denied = |why: String| Err(Error::new(ErrorKind::Denied, why));
        let is_authentic = match (&self.proof, keys) {
            (Authenticity::Checksum { sha256 }, None) => *sha256 == checksum(&text),
            (Authenticity::Checksum { .. }, Some(_)) => {
                return denied("the receipt has no tag of a root key, and the store is encrypted; give the receipt of this store".into());
            }
            (Authenticity::Mac { root, .. }, None) => {
                return denied(format!(
                    "the receipt is authenticated by root key {root}; open the store with that key, as an older one if it was replaced"
                ));
            }
            (Authenticity::Mac { root, tag }, Some(keys)) => {
                match keys.is_authentic(root, text.as_bytes(), tag) {
                    Some(is_authentic) => is_authentic,
                    None => {
                        return denied(format!(
                            "the receipt is authenticated by root key {root}, which is not at hand; give it as an older one"
                        ));
                    }
                }
            }
        };
        if is_authentic {
            return Ok(());
        }
        Err(Error::corrupt(
            "the receipt was changed after the erasure wrote it; give the file as it was written",
        ))
    }
}
