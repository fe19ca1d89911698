//! Tenants of which a store has state in memory, so that all handles of a tenant share it. That of tenants that nobody uses
//! any more is dropped, so that its amount does not depend on how many names were ever asked for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use agent_core::TenantId;

use crate::medium::env::Env;
use crate::shared::tenant::{Closing, Tenant};

/// Number of tenants from which on those are dropped that nobody uses.
const KEPT: usize = 256;

/// Tenants by their names, each with the time of its last use.
#[derive(Debug)]
pub(crate) struct OpenTenants {
    tenants: HashMap<TenantId, (Arc<Tenant>, u64)>,
    /// Counter of uses, for finding the least recently used tenants.
    uses: u64,
    /// Number of tenants at which unused ones are looked for next.
    full: usize,
    closing: Closing,
}

impl OpenTenants {
    /// Returns an empty set. `closing` is done with a tenant that is closed.
    pub(crate) fn new(closing: Closing) -> Self {
        Self { tenants: HashMap::new(), uses: 0, full: KEPT, closing }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Tenant>> {
        self.tenants.values().map(|(tenant, _)| tenant.clone()).collect()
    }

    /// Returns a tenant, and those that were dropped for it. The caller drops these on a thread that may write files.
    pub(crate) fn get(&mut self, env: &Arc<Env>, id: &TenantId) -> (Arc<Tenant>, Vec<Arc<Tenant>>) {
        self.uses += 1;
        if let Some((tenant, used)) = self.tenants.get_mut(id) {
            *used = self.uses;
            return (tenant.clone(), Vec::new());
        }
        let gone = if self.tenants.len() >= self.full { self.drop_unused(env) } else { Vec::new() };
        let tenant = Arc::new(Tenant::new(env.clone(), id, self.closing));
        self.tenants.insert(id.clone(), (tenant.clone(), self.uses));
        (tenant, gone)
    }

    /// Takes out the tenants that nobody uses, the least recently used first, until half of [`KEPT`] are left. What holds a
    /// lease stays: closing it would say that its holder is dead.
    fn drop_unused(&mut self, env: &Env) -> Vec<Arc<Tenant>> {
        let unused = self.tenants.iter().filter(|(_, (tenant, _))| tenant.is_unused());
        let mut unused: Vec<_> = unused.map(|(id, (_, used))| (*used, id.clone())).collect();
        unused.sort_unstable();
        let surplus = self.tenants.len() - KEPT / 2;
        let ids = unused.into_iter().take(surplus);
        let gone: Vec<_> =
            ids.filter_map(|(_, id)| self.tenants.remove(&id)).map(|(tenant, _)| tenant).collect();
        // Those that are in use are not looked at again for each new name.
        self.full = KEPT.max(2 * self.tenants.len());
        let roots: HashSet<_> = gone.iter().map(|tenant| tenant.layout.root()).collect();
        env.forget_folders(&roots);
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FsConfig;

    fn name(n: usize) -> TenantId {
        format!("user-{n}").parse().unwrap()
    }

    fn open() -> (tempfile::TempDir, Arc<Env>, OpenTenants) {
        let folder = tempfile::tempdir().unwrap();
        let env = Arc::new(Env::new(FsConfig::new(folder.path())));
        (folder, env, OpenTenants::new(Closing { each_session: |_, _, _| {}, tenant: |_| {} }))
    }

    /// Ten thousand names that were asked for leave a bounded number of tenants, and of folders that were made for them.
    #[test]
    fn names_asked_for_take_bounded_memory() {
        let (_folder, env, mut tenants) = open();
        for n in 0..10_000 {
            let (tenant, gone) = tenants.get(&env, &name(n));
            assert!(tenants.tenants.len() <= KEPT && gone.len() <= KEPT, "{n}");
            if n % 50 == 0 {
                env.ensure_dir(tenant.layout.root()).unwrap();
                env.sweep(tenant.layout.root());
            }
        }
        assert!(env.known_folders() <= 2 * KEPT, "{}", env.known_folders());
        assert!(tenants.all().len() <= KEPT);
    }

    /// Handles of one tenant share its state as long as one of them is alive, however many other names are asked for; and so
    /// do those that come while it is kept.
    #[test]
    fn used_tenants_are_shared_and_kept() {
        let (_folder, env, mut tenants) = open();
        let used: Vec<_> = (0..2 * KEPT).map(|n| tenants.get(&env, &name(n)).0).collect();
        for n in 0..10_000 {
            tenants.get(&env, &name(n + 10_000));
        }
        for (n, tenant) in used.iter().enumerate() {
            assert!(Arc::ptr_eq(tenant, &tenants.get(&env, &name(n)).0), "{n}");
        }
        assert!(tenants.tenants.len() <= 4 * KEPT + 1, "{}", tenants.tenants.len());
        drop(used);
        for n in 0..10_000 {
            tenants.get(&env, &name(n + 10_000));
        }
        assert!(tenants.tenants.len() <= 4 * KEPT, "{}", tenants.tenants.len());
        let (one, _) = tenants.get(&env, &name(20_000));
        let again = Arc::downgrade(&one);
        drop(one);
        assert!(again.ptr_eq(&Arc::downgrade(&tenants.get(&env, &name(20_000)).0)));
    }
}
