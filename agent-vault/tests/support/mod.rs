//! The factory of an encrypted store around that of another one.

use std::sync::Arc;

use agent_core::{Backend, Result, Storage, TenantId, async_trait};
use agent_storage_conformance::{Damage, DamageKind, Factory, FailingCall};
use agent_vault::{KeyRing, Vault};

/// Factory of encrypted stores around those of `F`.
pub(crate) struct Sealed<F>(pub(crate) F);

impl<F: Factory> Sealed<F> {
    async fn vault(&self, site: &F::Site) -> Result<Option<Arc<Vault>>> {
        let Some(inner) = self.0.tenants(site).await? else { return Ok(None) };
        Ok(Some(Arc::new(Vault::open(inner, KeyRing::from_bytes([7; 32])).await?)))
    }
}

#[async_trait]
impl<F: Factory> Factory for Sealed<F> {
    type Site = F::Site;

    async fn fresh(&self) -> Result<F::Site> {
        self.0.fresh().await
    }

    async fn fresh_for_rounds(&self) -> Result<F::Site> {
        self.0.fresh_for_rounds().await
    }

    async fn open(&self, site: &F::Site, tenant: &TenantId) -> Result<Storage> {
        match self.vault(site).await? {
            Some(vault) => Ok(vault.tenant(tenant)),
            None => Err(agent_core::Error::invalid("the store has no tenants")),
        }
    }

    async fn tenants(&self, site: &F::Site) -> Result<Option<Arc<dyn Backend>>> {
        Ok(self.vault(site).await?.map(|vault| vault as Arc<dyn Backend>))
    }

    /// A header, and for each chunk a nonce and a tag.
    fn stored_bytes(&self, bytes: u64) -> u64 {
        self.0.stored_bytes(80 + bytes + 40 * bytes.div_ceil(256 << 10))
    }

    fn address(&self, site: &F::Site) -> Option<String> {
        self.0.address(site)
    }

    async fn attach(&self, address: &str) -> Result<F::Site> {
        self.0.attach(address).await
    }

    async fn fresh_for_faults(&self) -> Result<F::Site> {
        self.0.fresh_for_faults().await
    }

    async fn lose_power(&self, site: &F::Site) -> Result<F::Site> {
        self.0.lose_power(site).await
    }

    async fn fail(&self, site: &F::Site, call: Option<FailingCall>) -> Result<bool> {
        self.0.fail(site, call).await
    }

    fn damages(&self) -> &[DamageKind] {
        self.0.damages()
    }

    async fn damage(&self, site: &F::Site, damage: Damage) -> Result<()> {
        self.0.damage(site, damage).await
    }
}
