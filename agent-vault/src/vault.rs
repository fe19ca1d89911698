//! The encrypted backend around another one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::store::{Damaged, DeletedTenant, ErasableKeys, Page, Pending};
use agent_core::{Backend, Error, Result, Storage, TenantId, Timestamp, WriteOutcome, async_trait};
use sha2::{Digest, Sha256};

use crate::erasure::TenantKeys;
use crate::keys::Keys;
use crate::ring::KeyRing;
use crate::sessions::SealedSessions;
use crate::store_place::StorePlace;
use crate::workspaces::SealedWorkspaces;

/// Number of tenants whose keys are remembered.
const TENANTS: usize = 1000;
/// Beginning of the names of the tenants in which the keys of others are.
const PREFIX: &str = "vault_keys-";

/// Encrypted backend around any other one: events, records, blobs, workspaces and configurations are sealed before they reach it.
///
/// Every tenant has a key, every session one of its own, which the tenant's key wraps, which the root key of the [`KeyRing`] wraps. The wrapped keys
/// are in the same backend, in a tenant of their own for each tenant, which no list of this backend shows. A backend is encrypted from its
/// first write on, or it is not: what was written without the keys is `Corrupt`.
///
/// Names of devices, owners and actors, ids, times, sizes, numbers and event types stay readable; see the page on threats.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::sync::Arc;
/// use agent_core::event::NewEvent;
/// use agent_core::session::NewSession;
/// use agent_core::store::ReadEvents;
/// use agent_core::{Backend, MemoryStore, SessionStore, TenantId, WorkspaceId};
/// use agent_vault::{KeyRing, Vault};
///
/// let plain = Arc::new(MemoryStore::new());
/// let vault = Vault::open(plain.clone(), KeyRing::from_bytes([7; 32])).await?;
/// let acme: TenantId = "acme".parse()?;
/// let storage = vault.tenant(&acme);
/// let session = storage.sessions.create(NewSession::new(storage.effects().new_session_id(), WorkspaceId::DEFAULT)).await?;
/// storage.sessions.append(session.id, session.head, vec![NewEvent::user_message("Where is the treasure?")]).await?;
///
/// // Whoever reads the backend itself sees no word of it.
/// let seen = Backend::tenant(&*plain, &acme).sessions.read(session.id, ReadEvents::last(1)).await?;
/// assert!(!seen.events[0].to_json().contains("treasure"));
///
/// // Another root key opens nothing, and is refused at once.
/// assert!(Vault::open(plain, KeyRing::from_bytes([8; 32])).await.is_err());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Vault {
    inner: Arc<dyn Backend>,
    ring: KeyRing,
    tenants: Arc<Mutex<HashMap<TenantId, Keys>>>,
}

impl fmt::Debug for Vault {
    /// Shows the ids of the root keys, and nothing of the backend: a store in memory shows all that it holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("ring", &self.ring).finish_non_exhaustive()
    }
}

impl Vault {
    /// Opens the encrypted backend around `inner`, which must be empty or encrypted by a key of the ring.
    ///
    /// # Errors
    ///
    /// `Denied` if the backend is encrypted by another root key, which the error names; `InvalidInput` if it has data that is not encrypted; the errors
    /// of the backend. Nothing is written then.
    pub async fn open(inner: Arc<dyn Backend>, ring: KeyRing) -> Result<Self> {
        let root = Keys::new(ring.clone(), place_of(&inner, ""), TenantId::default());
        if !root.is_made().await? {
            let there = inner.tenants(None).await?.items;
            if there.iter().any(is_of_keys) {
                return Err(Error::corrupt(
                    "the row by which the store recognizes its root key is missing; restore the tenants vault_keys-… from a backup",
                ));
            }
            if !there.is_empty() {
                return Err(Error::invalid(
                    "the store has data that is not encrypted; copy it into an empty store that is opened with these keys",
                ));
            }
            root.tenant().await?;
        }
        Ok(Self { inner, ring, tenants: Arc::default() })
    }

    /// Returns whether a backend is one around which an encrypted one was opened, for a host that would write to it without the keys.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    pub async fn is_around(inner: &dyn Backend) -> Result<bool> {
        let place = StorePlace::new(inner.tenant(&key_tenant("")).workspaces);
        let root = Keys::new(KeyRing::from_bytes([0; 32]), Arc::new(place), TenantId::default());
        root.has_row().await
    }

    /// Returns whether a tenant has the keys of another one, and is for nothing else.
    pub fn is_of_keys(tenant: &TenantId) -> bool {
        is_of_keys(tenant)
    }

    /// Wraps the key of each tenant by the current root key of the ring, which must have the former one as an older key. Returns the number of
    /// keys that this call wrapped. No event changes.
    ///
    /// Afterwards the former root key is not needed, and does not open the store.
    ///
    /// # Interruptions
    ///
    /// At every moment every key can be opened by the ring. Call this again.
    ///
    /// # Errors
    ///
    /// `Denied` if the ring has not the key by which a row is wrapped; the errors of the backend.
    pub async fn rotate(&self) -> Result<u64> {
        let mut count = 0;
        let (mut after, mut seen) = (None, true);
        while seen {
            let page = self.tenants(after.clone()).await?;
            seen = !page.items.is_empty();
            for tenant in page.items {
                count += self.keys(&tenant).rotate().await?;
                after = Some(tenant);
            }
        }
        // The row by which the store recognizes its root key comes last.
        count += self.root().rotate().await?;
        Ok(count)
    }

    fn root(&self) -> Keys {
        Keys::new(self.ring.clone(), place_of(&self.inner, ""), TenantId::default())
    }

    /// Returns the keys of a tenant, to rotate or drop them. No I/O.
    pub fn keys(&self, tenant: &TenantId) -> Keys {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = tenants.get(tenant) {
            return keys.clone();
        }
        let place = place_of(&self.inner, tenant.as_str());
        let stored = self.inner.tenant(tenant).sessions.store().clone();
        let keys = Keys::of_stored(self.ring.clone(), place, tenant.clone(), Some(stored));
        let keys = keys.with_backend(self.inner.clone());
        // Handles that are in use keep theirs.
        if tenants.len() >= TENANTS {
            tenants.clear();
        }
        tenants.insert(tenant.clone(), keys.clone());
        keys
    }
}

/// Returns the name of the tenant in which the keys of another one are; of the root's own for an empty name.
fn key_tenant(of: &str) -> TenantId {
    let hash = Sha256::digest(of.as_bytes());
    let name: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    #[allow(clippy::expect_used, reason = "the name has 43 characters of those that are allowed")]
    format!("{PREFIX}{name}").parse().expect("the name is one of a tenant")
}

fn place_of(inner: &Arc<dyn Backend>, of: &str) -> Arc<StorePlace> {
    Arc::new(StorePlace::new(inner.tenant(&key_tenant(of)).workspaces))
}

fn is_of_keys(tenant: &TenantId) -> bool {
    tenant.as_str().starts_with(PREFIX)
}

/// Lists tenants without those of keys. A page is empty only if there are no more.
async fn listed<F: Future<Output = Result<Page<TenantId>>>>(
    mut after: Option<TenantId>,
    list: impl Fn(Option<TenantId>) -> F,
) -> Result<Page<TenantId>> {
    loop {
        let mut page = list(after).await?;
        let Some(last) = page.items.last().cloned() else { return Ok(page) };
        page.items.retain(|tenant| !is_of_keys(tenant));
        if !page.items.is_empty() || !page.damaged.is_empty() {
            return Ok(page);
        }
        after = Some(last);
    }
}

#[async_trait]
impl Backend for Vault {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        let (plain, keys) = (self.inner.tenant(tenant), self.keys(tenant));
        let workspaces = SealedWorkspaces { inner: plain.workspaces.clone(), keys: keys.clone() };
        let sessions = SealedSessions { inner: plain.sessions.store().clone(), keys };
        let bindings = plain.bindings.clone();
        plain.with_stores(Arc::new(workspaces), Arc::new(sessions), bindings)
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        listed(after, |after| self.inner.tenants(after)).await
    }

    async fn busy_tenants(&self, until: Timestamp, after: Option<TenantId>) -> Result<Page<TenantId>> {
        listed(after, |after| self.inner.busy_tenants(until, after)).await
    }

    /// Deletes the data of the tenant, then its keys, then what others wrote by these keys meanwhile.
    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        if is_of_keys(tenant) {
            return Err(Error::invalid(format!(
                "{tenant} has the keys of another tenant, and is deleted with that one"
            )));
        }
        let mut deleted = self.inner.delete_tenant(tenant).await?;
        // A part is removed; the same call again removes the rest.
        let unsure = |error: Error| error.with_outcome(WriteOutcome::Unknown);
        let keys = self.inner.delete_tenant(&key_tenant(tenant.as_str())).await.map_err(unsure)?;
        self.keys(tenant).forget(None);
        let late = self.inner.delete_tenant(tenant).await.map_err(unsure)?;
        deleted.workspaces += late.workspaces;
        deleted.sessions += late.sessions;
        deleted.bindings += late.bindings;
        Ok(deleted
            .with_rewrite_pending(deleted.rewrite_pending || keys.rewrite_pending || late.rewrite_pending))
    }

    async fn check_removal(&self) -> Result<Option<String>> {
        self.inner.check_removal().await
    }

    async fn maintain(&self) -> Result<Vec<Pending>> {
        self.inner.maintain().await
    }

    async fn check_shared(&self) -> Result<Option<Vec<Damaged>>> {
        self.inner.check_shared().await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }

    fn erasable_keys(&self, tenant: &TenantId) -> Option<Arc<dyn ErasableKeys>> {
        let (keys, ring) = (self.keys(tenant), self.ring.clone());
        Some(Arc::new(TenantKeys { keys, ring, stored: self.inner.tenant(tenant).sessions.store().clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::MemoryStore;

    #[tokio::test]
    async fn many_tenants_are_forgotten() -> Result<()> {
        let vault = Vault::open(Arc::new(MemoryStore::new()), KeyRing::from_bytes([7; 32])).await?;
        for n in 0..3 * TENANTS {
            vault.keys(&format!("tenant-{n}").parse()?);
        }
        let known = vault.tenants.lock().unwrap_or_else(PoisonError::into_inner).len();
        assert!((1..=TENANTS).contains(&known), "{known}");
        Ok(())
    }
}
