//! Tenants that have due or running work, from the keys of all tenants.

use std::collections::BTreeSet;

use agent_core::{Result, TenantId};

use crate::layout::keys::{self, Minute};
use crate::medium::object::{Bucket, KEYS};

/// Returns the tenants with keys of work up to a minute, in order. Some of the keys may not be in force any more, or
/// belong to a tenant that was deleted.
pub(crate) async fn busy(bucket: &Bucket, prefix: &str, until: Minute) -> Result<BTreeSet<TenantId>> {
    let (folder, mut busy, mut after) = (keys::work(prefix), BTreeSet::new(), None::<String>);
    loop {
        let page = bucket.list(&folder, after.as_deref(), None, KEYS, false, bucket.deadline()).await?;
        after = page.next.and(page.keys.last().cloned());
        for key in &page.keys {
            let Some((minute, tenant)) = keys::work_of(prefix, key) else { continue };
            if minute > until {
                return Ok(busy);
            }
            busy.extend(tenant.parse::<TenantId>());
        }
        if let Some(last) = &mut after
            && let Some((minute, tenant)) = keys::work_of(prefix, last)
        {
            // The tenant is known; however much more work it has in this minute, it takes no more requests.
            *last = keys::work_after(prefix, minute, tenant);
        }
        if after.is_none() {
            return Ok(busy);
        }
    }
}
