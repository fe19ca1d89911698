//! Part of a bucket that holds one generation of a tenant.

use std::sync::Arc;

use crate::background::Background;
use crate::bindings::Bindings;
use crate::keys::Keys;
use crate::object::Bucket;
use crate::slots::Slots;
use crate::workspaces::Workspaces;

/// Part of a bucket that holds one generation of a tenant.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) slots: Slots,
    pub(crate) workspaces: Workspaces,
    pub(crate) bindings: Bindings,
}

impl Tenant {
    pub(crate) fn new(bucket: &Arc<Bucket>, keys: &Keys, background: &Arc<Background>) -> Self {
        Self {
            slots: Slots::new(bucket.clone(), keys.clone(), background.clone()),
            workspaces: Workspaces::new(bucket.clone(), keys, background.clone()),
            bindings: Bindings::new(bucket.clone(), keys, background.clone()),
        }
    }
}
