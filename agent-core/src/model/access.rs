//! Access to a resource.

use serde::{Deserialize, Serialize};

/// Access of a session to a [`Resource`](crate::model::attributes::Resource). The library stores it; the host
/// enforces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Access {
    /// Read only.
    #[default]
    Read,
    /// Read and write.
    Write,
}
