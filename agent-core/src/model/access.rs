//! How a resource may be used.

use serde::{Deserialize, Serialize};

/// What a session may do with a [`Resource`](crate::model::attributes::Resource). The library stores it; the host enforces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Access {
    /// Look only.
    #[default]
    Read,
    /// Look and change.
    Write,
}
