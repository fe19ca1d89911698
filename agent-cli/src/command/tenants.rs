//! Selection of the tenants that a command processes.

use agent_core::store::Damaged;
use agent_core::{Backend, TenantId};

use crate::failure::{Failure, Result};
use crate::output::{Out, line};

/// Option of the commands that can process all tenants.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AllTenants {
    /// Process all tenants of the store, one after another
    #[arg(long, conflicts_with = "tenant")]
    pub(crate) all_tenants: bool,
}

/// Tenants that a command processes.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) tenants: Vec<TenantId>,
    /// Whether all tenants were requested.
    pub(crate) is_all: bool,
    /// Number of other tenants with data; `None` if the command always processes one tenant.
    pub(crate) others: Option<usize>,
    /// Damage of the list of tenants, if all were requested.
    pub(crate) damaged: Vec<Damaged>,
}

/// Selects the tenants by the options. A named tenant must exist. With `with_audit`, the audit of tenants is one of all.
pub(crate) async fn choose(
    store: &dyn Backend,
    named: Option<&TenantId>,
    all_tenants: Option<&AllTenants>,
    with_audit: bool,
) -> Result<Chosen> {
    let one = named.cloned().unwrap_or_default();
    if named.is_none() && all_tenants.is_none() {
        return Ok(Chosen { tenants: vec![one], is_all: false, others: None, damaged: Vec::new() });
    }
    let is_all = all_tenants.is_some_and(|all| all.all_tenants);
    let (there, damaged) = if is_all && with_audit { every(store).await? } else { all(store).await? };
    if is_all {
        return Ok(Chosen { tenants: there, is_all: true, others: Some(0), damaged });
    }
    if named.is_some() && !there.contains(&one) && one != TenantId::audit_of_tenants() {
        return Err(absent(&one, &there));
    }
    let others = there.iter().filter(|tenant| **tenant != one).count();
    let others = all_tenants.map(|_| others);
    Ok(Chosen { tenants: vec![one], is_all: false, others, damaged: Vec::new() })
}

/// Returns the failure for a tenant without data.
pub(super) fn absent(name: &TenantId, there: &[TenantId]) -> Failure {
    let names = there.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Failure::absent(match there.is_empty() {
        true => format!("tenant {name} has no data in this store, and no other tenant has any"),
        false => format!("tenant {name} has no data in this store; tenants with data: {names}"),
    })
}

impl Chosen {
    /// Prints how many tenants were not processed, or that there is none.
    pub(crate) fn print_omitted(&self, out: &Out) {
        if self.is_all && self.tenants.is_empty() && self.damaged.is_empty() && !out.is_json() {
            line("no tenant has data in this store");
        }
        match self.others {
            None | Some(0) => {}
            Some(1) => out.note("(1 other tenant was not processed; add --all-tenants)"),
            Some(more) => out.note(&format!("({more} other tenants were not processed; add --all-tenants)")),
        }
    }
}

/// Returns the tenants with data, without the audit of tenants, and the damage of their list.
pub(super) async fn all(store: &dyn Backend) -> Result<(Vec<TenantId>, Vec<Damaged>)> {
    let (mut all, damaged) = every(store).await?;
    all.retain(|tenant| *tenant != TenantId::audit_of_tenants());
    Ok((all, damaged))
}

/// Returns all tenants with data, the one with the audit of tenants among them.
async fn every(store: &dyn Backend) -> Result<(Vec<TenantId>, Vec<Damaged>)> {
    let (mut all, mut damaged): (Vec<TenantId>, _) = (Vec::new(), Vec::new());
    loop {
        let page = store.tenants(all.last().cloned()).await?;
        damaged.extend(page.damaged);
        if page.items.is_empty() {
            return Ok((all, damaged));
        }
        all.extend(page.items);
    }
}
