//! Workspaces, device bindings and tenants.

pub(crate) mod bindings;
pub(crate) mod tenants;
pub(crate) mod workspaces;
