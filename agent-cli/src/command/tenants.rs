//! Of whose data a command speaks, and of whose it does not.

use agent_core::store::Damaged;
use agent_core::{TenantId, Tenants};

use super::output::Out;
use crate::failure::Failure;

/// The option of a command that may work on every tenant.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AllTenants {
    /// For every tenant of the store, one after the other
    #[arg(long, conflicts_with = "tenant")]
    pub(crate) all_tenants: bool,
}

/// The tenants that a command works on.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) tenants: Vec<TenantId>,
    /// Whether all were asked for.
    pub(crate) is_all: bool,
    /// How many hold something and are not looked at; `None` if the command is of one tenant alone.
    pub(crate) others: Option<usize>,
    /// What of the list of tenants is damaged, if all were asked for.
    pub(crate) damaged: Vec<Damaged>,
}

/// Chooses by the options. A tenant that is named must be there.
pub(crate) async fn choose(
    store: &dyn Tenants,
    named: Option<&TenantId>,
    all_tenants: Option<&AllTenants>,
) -> Result<Chosen, Failure> {
    let one = named.cloned().unwrap_or_default();
    if named.is_none() && all_tenants.is_none() {
        return Ok(Chosen { tenants: vec![one], is_all: false, others: None, damaged: Vec::new() });
    }
    let (there, damaged) = all(store).await?;
    if all_tenants.is_some_and(|all| all.all_tenants) {
        return Ok(Chosen { tenants: there, is_all: true, others: Some(0), damaged });
    }
    if named.is_some() && !there.contains(&one) {
        let names = there.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let text = format!("tenant {one} has nothing in this store; those that have are: {names}");
        return Err(Failure::absent(text));
    }
    let others = there.iter().filter(|tenant| **tenant != one).count();
    let others = all_tenants.map(|_| others);
    Ok(Chosen { tenants: vec![one], is_all: false, others, damaged: Vec::new() })
}

impl Chosen {
    /// Says what was not looked at.
    pub(crate) fn told(&self, out: &Out) {
        match self.others {
            None | Some(0) => {}
            Some(1) => out.note("(1 other tenant was not looked at; --all-tenants)"),
            Some(more) => out.note(&format!("({more} other tenants were not looked at; --all-tenants)")),
        }
    }
}

/// The tenants that hold anything, and what of their list is damaged.
async fn all(store: &dyn Tenants) -> Result<(Vec<TenantId>, Vec<Damaged>), Failure> {
    let (mut all, mut damaged): (Vec<TenantId>, _) = (Vec::new(), Vec::new());
    loop {
        let page = store.list(all.last().cloned()).await?;
        damaged.extend(page.damaged);
        if page.items.is_empty() {
            return Ok((all, damaged));
        }
        all.extend(page.items);
    }
}
