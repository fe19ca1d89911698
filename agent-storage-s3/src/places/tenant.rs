//! Part of a bucket that holds one generation of a tenant.

use std::sync::Arc;

use crate::layout::keys::Keys;
use crate::log::slots::Slots;
use crate::medium::background::Background;
use crate::medium::object::Bucket;
use crate::places::bindings::Bindings;
use crate::places::workspaces::Workspaces;

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
