//! One backend of several, each of which has some of the tenants.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::{join_all, try_join_all};

use crate::base::{Error, Result, TenantId, Timestamp};
use crate::store::erasable::ErasableKeys;
use crate::store::maintenance::Pending;
use crate::store::page::{Damaged, Page};
use crate::store::storage::{Backend, DeletedTenant, Storage};

/// Function that names the shard of a tenant by its number.
type Route = dyn Fn(&TenantId) -> usize + Send + Sync;

/// Several backends as one: each tenant is in one of them, the shard that a function of the host names. For more tenants than
/// one database or bucket carries.
///
/// The function returns the number of a shard, counted from 0, or any hash of the tenant: the number is taken modulo the number
/// of shards. It must always name the same shard for a tenant that has data. A host that moves tenants, or that adds shards
/// later, keeps a table of them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::collections::HashMap;
/// use std::sync::{Arc, RwLock};
///
/// use agent_core::store::Shards;
/// use agent_core::{Backend, MemoryStore, TenantId};
///
/// let table: Arc<RwLock<HashMap<TenantId, usize>>> = Arc::default();
/// let acme: TenantId = "acme".parse()?;
/// table.write().unwrap().insert(acme.clone(), 1);
///
/// let places = table.clone();
/// let shards: Vec<Arc<dyn Backend>> = vec![Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new())];
/// let backend = Shards::new(shards, move |tenant| places.read().unwrap().get(tenant).copied().unwrap_or(0))?;
/// assert_eq!(backend.shard_of(&acme), 1);
/// assert!(backend.tenants(None).await?.items.is_empty());
/// # Ok(()) }
/// ```
///
/// # Moving a tenant
///
/// 1. Stop the runs of the tenant, and keep its users away: nothing keeps writes to the old shard out of the copy.
/// 2. Copy the tenant from the old shard to the new one, with `agent-admin` or `chat copy`, and verify the copy there. Until
///    the switch, the lists of tenants do not show the copy.
/// 3. Switch the table, and make the handles of the tenant again: one that was made before keeps its shard.
/// 4. Delete the tenant [in the old shard](Self::shards).
#[derive(Clone)]
pub struct Shards {
    shards: Arc<[Arc<dyn Backend>]>,
    route: Arc<Route>,
}

impl Shards {
    /// Creates a backend of these, with the function that names the number of a tenant's shard.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is no shard.
    pub fn new(
        shards: Vec<Arc<dyn Backend>>,
        route: impl Fn(&TenantId) -> usize + Send + Sync + 'static,
    ) -> Result<Self> {
        if shards.is_empty() {
            return Err(Error::invalid("there is no shard; give at least one backend"));
        }
        Ok(Self { shards: shards.into(), route: Arc::new(route) })
    }

    /// Returns the number of the shard in which a tenant is.
    pub fn shard_of(&self, tenant: &TenantId) -> usize {
        (self.route)(tenant) % self.shards.len()
    }

    /// Returns the shards.
    pub fn shards(&self) -> &[Arc<dyn Backend>] {
        &self.shards
    }

    fn of(&self, tenant: &TenantId) -> &Arc<dyn Backend> {
        &self.shards[self.shard_of(tenant)]
    }

    /// Merges pages of the shards up to the first place after which one of them has another page. Returns that place, too.
    fn merge(&self, pages: Vec<Page<TenantId>>) -> (Page<TenantId>, Option<TenantId>) {
        let ends = pages.iter().filter_map(|page| Some((page.items.last()?.clone(), page.next.clone()?)));
        let end = ends.min_by(|one, other| one.0.cmp(&other.0));
        let mut merged = Page::default();
        for (shard, page) in pages.into_iter().enumerate() {
            let is_here = |tenant: &TenantId| {
                self.shard_of(tenant) == shard && end.as_ref().is_none_or(|(last, _)| tenant <= last)
            };
            merged.items.extend(page.items.into_iter().filter(is_here));
            merged.damaged.extend(page.damaged);
        }
        merged.items.sort_unstable();
        let (end, next) = end.unzip();
        (merged.with_next(next), end)
    }
}

/// Returns the first page with tenants, or the last one: `$list` lists the tenants of a shard after `$after`.
macro_rules! merged {
    ($this:ident, $after:ident, $shard:ident => $list:expr) => {{
        let mut damaged = Vec::new();
        loop {
            let pages = try_join_all($this.shards.iter().map(|$shard| $list)).await?;
            let (mut page, end) = $this.merge(pages);
            damaged.append(&mut page.damaged);
            if end.is_none() || !page.items.is_empty() {
                return Ok(page.with_damaged(damaged));
            }
            $after = end;
        }
    }};
}

#[async_trait]
impl Backend for Shards {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        self.of(tenant).tenant(tenant)
    }

    async fn tenants(&self, mut after: Option<TenantId>) -> Result<Page<TenantId>> {
        merged!(self, after, shard => shard.tenants(after.clone()))
    }

    async fn busy_tenants(&self, until: Timestamp, mut after: Option<TenantId>) -> Result<Page<TenantId>> {
        merged!(self, after, shard => shard.busy_tenants(until, after.clone()))
    }

    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        self.of(tenant).delete_tenant(tenant).await
    }

    async fn erase_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        self.of(tenant).erase_tenant(tenant).await
    }

    fn erasable_keys(&self, tenant: &TenantId) -> Option<Arc<dyn ErasableKeys>> {
        self.of(tenant).erasable_keys(tenant)
    }

    /// Asks all shards.
    async fn check_removal(&self) -> Result<Option<String>> {
        let unknown = try_join_all(self.shards.iter().map(|shard| shard.check_removal())).await?;
        let unknown: Vec<_> = unknown.into_iter().flatten().collect();
        Ok((!unknown.is_empty()).then(|| unknown.join("; ")))
    }

    /// Maintains all shards, and returns the first error when all have ended.
    async fn maintain(&self) -> Result<Vec<Pending>> {
        let done = join_all(self.shards.iter().map(|shard| shard.maintain())).await;
        let done: Result<Vec<_>> = done.into_iter().collect();
        Ok(done?.into_iter().flatten().collect())
    }

    /// Returns `None` if one of the shards does, whose tenants are then checked one by one, with those of the others.
    async fn check_shared(&self) -> Result<Option<Vec<Damaged>>> {
        let found = try_join_all(self.shards.iter().map(|shard| shard.check_shared())).await?;
        Ok(found.into_iter().collect::<Option<Vec<_>>>().map(|found| found.into_iter().flatten().collect()))
    }

    /// Closes all shards, and returns the first error when all have ended.
    async fn close(&self) -> Result<()> {
        let closed = join_all(self.shards.iter().map(|shard| shard.close())).await;
        closed.into_iter().collect()
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("shards", &self.shards).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{ErrorKind, WorkspaceId};
    use crate::commit::Precondition;
    use crate::store::memory::MemoryStore;
    use crate::store::page::Cursor;

    /// Backend whose pages have few tenants, and some faults.
    #[derive(Debug, Default)]
    struct Shard {
        store: MemoryStore,
        /// Tenants of a page; 0 for all.
        size: usize,
        shared: Option<Vec<Damaged>>,
        fails: bool,
    }

    #[async_trait]
    impl Backend for Shard {
        fn tenant(&self, tenant: &TenantId) -> Storage {
            Backend::tenant(&self.store, tenant)
        }

        async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
            let mut page = Backend::tenants(&self.store, after).await?;
            if self.size > 0 && page.items.len() > self.size {
                page.items.truncate(self.size);
                page.next = Some(Cursor::after(0, "next"));
            }
            Ok(page)
        }

        async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
            self.store.delete_tenant(tenant).await
        }

        async fn maintain(&self) -> Result<Vec<Pending>> {
            if self.fails { Err(Error::unavailable("it fails")) } else { Ok(Vec::new()) }
        }

        async fn check_shared(&self) -> Result<Option<Vec<Damaged>>> {
            Ok(self.shared.clone())
        }

        async fn close(&self) -> Result<()> {
            Backend::close(&self.store).await?;
            if self.fails { Err(Error::unavailable("it fails")) } else { Ok(()) }
        }
    }

    fn name(n: usize) -> TenantId {
        format!("t{n:02}").parse().unwrap()
    }

    /// Shard of a tenant: its number modulo 3.
    fn route(tenant: &TenantId) -> usize {
        tenant.as_str()[1..].parse().unwrap()
    }

    async fn fill(storage: &Storage) {
        let device = "laptop".parse().unwrap();
        storage.bindings.bind(&device, WorkspaceId::DEFAULT, Precondition::None).await.unwrap();
    }

    async fn list(backend: &dyn Backend, busy: bool) -> Vec<TenantId> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = match busy {
                true => backend.busy_tenants(Timestamp::from_micros(0), after).await.unwrap(),
                false => backend.tenants(after).await.unwrap(),
            };
            found.extend(page.items.iter().cloned());
            match page.items.last() {
                Some(last) if page.next.is_some() => after = Some(last.clone()),
                _ => return found,
            }
        }
    }

    fn of(shards: Vec<Shard>) -> Shards {
        Shards::new(shards.into_iter().map(|shard| Arc::new(shard) as Arc<dyn Backend>).collect(), route)
            .unwrap()
    }

    #[tokio::test]
    async fn tenants_of_all_shards_are_listed_once_and_in_order() {
        for sizes in [[0, 0, 0], [1, 1, 1], [2, 3, 0], [1, 0, 5], [0, 2, 1]] {
            let backend = of(sizes.map(|size| Shard { size, ..Shard::default() }).into());
            let names: Vec<_> = (0..20).map(name).collect();
            for tenant in &names {
                fill(&backend.tenant(tenant)).await;
            }
            // Copies of tenants that are being moved, in pages of their own, and one of a tenant that is nowhere else.
            for n in [0, 1, 2, 3, 4, 5, 6, 17, 18, 30] {
                fill(&backend.shards()[(n + 1) % 3].tenant(&name(n))).await;
            }
            assert_eq!(list(&backend, false).await, names, "{sizes:?}");
            assert_eq!(list(&backend, true).await, names, "{sizes:?}");
        }
    }

    #[tokio::test]
    async fn a_tenant_is_in_its_shard_only() {
        assert!(Shards::new(Vec::new(), route).is_err());
        let backend = of(vec![Shard::default(), Shard::default(), Shard::default()]);
        fill(&backend.tenant(&name(4))).await;
        let counts = async || {
            let mut counts = Vec::new();
            for shard in backend.shards() {
                counts.push(shard.tenants(None).await.unwrap().items.len());
            }
            counts
        };
        assert_eq!(counts().await, [0, 1, 0]);
        assert_eq!(backend.delete_tenant(&name(4)).await.unwrap().bindings, 1);
        assert_eq!(counts().await, [0, 0, 0]);
    }

    #[tokio::test]
    async fn care_and_closing_go_to_all_shards() {
        let damaged = || Some(vec![Damaged::new("a file", "is damaged")]);
        let shard = |shared, fails| Shard { shared, fails, ..Shard::default() };
        let all = of(vec![shard(damaged(), false), shard(Some(Vec::new()), false), shard(damaged(), false)]);
        assert_eq!(all.check_shared().await.unwrap().map(|found| found.len()), Some(2));
        assert!(all.maintain().await.is_ok());
        let some = of(vec![shard(damaged(), true), shard(None, false)]);
        assert_eq!(
            some.check_shared().await.unwrap(),
            None,
            "the tenants of the second are checked one by one"
        );
        assert_eq!(*some.maintain().await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(some.close().await.is_err());
        for shard in some.shards() {
            assert_eq!(
                *shard.tenants(None).await.unwrap_err().kind(),
                ErrorKind::Unavailable,
                "it is closed"
            );
        }
    }
}
