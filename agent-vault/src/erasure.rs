//! Keys of a tenant, as an erasure finds and drops them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use agent_core::store::{ErasableKeys, ErasableRow, pages};
use agent_core::{Error, Result, SessionId, SessionStore, WorkspaceId, async_trait};
use futures::TryStreamExt;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::cipher::Cipher;
use crate::keys::Keys;
use crate::place::{KeyEntry, KeyQuery};
use crate::ring::KeyRing;

/// Number of rows on a page.
const PAGE: usize = 1000;

/// Keys of one tenant, and the sessions that hold what they sealed.
#[derive(Clone)]
pub(crate) struct TenantKeys {
    pub(crate) keys: Keys,
    pub(crate) ring: KeyRing,
    pub(crate) stored: Arc<dyn SessionStore>,
}

impl fmt::Debug for TenantKeys {
    /// Shows ids alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantKeys").field("keys", &self.keys).finish_non_exhaustive()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tag(root: &Cipher, text: &[u8]) -> String {
    hex(&root.mac(&[b"erasure receipt", text]))
}

/// Returns the session whose key or blob a row is of: `session/<tenant>/<session>`, `blob/<session>/<mac>`.
fn session_of(row: &str) -> Option<SessionId> {
    let mut parts = row.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("session"), Some(_), Some(id)) | (Some("blob"), Some(id), Some(_)) => id.parse().ok(),
        _ => None,
    }
}

/// Returns whether a row is that of a key, and not of a blob or a secret.
fn is_key(row: &str) -> bool {
    row.starts_with("session/") || row.starts_with("tenant/")
}

impl TenantKeys {
    async fn described(&self, entry: KeyEntry) -> Result<ErasableRow> {
        let KeyEntry { name, text, .. } = entry;
        let session = session_of(&name);
        let row = ErasableRow::new(session, name.clone(), hex(&Sha256::digest(text.as_bytes())), text.len());
        let Some((start, _)) = text.rsplit_once('.').filter(|_| is_key(&name)) else {
            return Ok(row);
        };
        let key = match session {
            Some(id) => self.keys.session(id).await.ok().flatten(),
            None => None,
        };
        Ok(row.with_key(key.map(|key| key.key_id().to_owned()), format!("{start}.")))
    }
}

#[async_trait]
impl ErasableKeys for TenantKeys {
    fn stored(&self) -> Arc<dyn SessionStore> {
        self.stored.clone()
    }

    async fn find(&self, of: Option<&BTreeSet<SessionId>>) -> Result<Vec<ErasableRow>> {
        let mut found = Vec::new();
        let mut pages = pages(KeyQuery::new().with_limit(PAGE), |query| self.keys.place().list(query));
        while let Some(page) = pages.try_next().await? {
            if let Some(damage) = page.damaged.first() {
                return Err(Error::corrupt(format!(
                    "the keys cannot be listed: {damage}; restore that row from a backup, or delete the tenant"
                )));
            }
            for entry in page.items {
                let is_wanted = |of: &BTreeSet<SessionId>| {
                    session_of(&entry.name).is_some_and(|session| of.contains(&session))
                };
                if of.is_none_or(is_wanted) {
                    found.push(self.described(entry).await?);
                }
            }
        }
        Ok(found)
    }

    async fn drop_session(&self, session: SessionId, rows: &[ErasableRow]) -> Result<()> {
        self.keys.check_removal().await?;
        for row in rows.iter().filter(|row| row.session == Some(session) && !row.is_key()) {
            self.keys.place().drop_key(&row.row).await?;
        }
        self.keys.drop_purged(session).await.map(drop)
    }

    async fn drop_workspace(&self, workspace: WorkspaceId) -> Result<()> {
        self.keys.check_removal().await?;
        let prefix = format!("secret/{}/{workspace}/", self.keys.tenant_id().as_str());
        let query = KeyQuery::new().with_prefix(prefix).with_limit(PAGE);
        let found: Vec<_> = pages(query, |query| self.keys.place().list(query)).try_collect().await?;
        for entry in found.into_iter().flat_map(|page| page.items) {
            self.keys.place().drop_key(&entry.name).await?;
        }
        Ok(())
    }

    fn authenticate(&self, text: &[u8]) -> (String, String) {
        let root = self.ring.current();
        (root.key_id().to_owned(), tag(root, text))
    }

    fn is_authentic(&self, root: &str, text: &[u8], given: &str) -> Option<bool> {
        let root = self.ring.find(root)?;
        Some(tag(root, text).as_bytes().ct_eq(given.as_bytes()).into())
    }
}
