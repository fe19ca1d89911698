//! One tenant's part of a bucket.

use std::sync::Arc;

use crate::heads::Heads;
use crate::keys::Keys;
use crate::object::Bucket;

/// One tenant's part of a bucket.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) keys: Keys,
    pub(crate) heads: Heads,
}
