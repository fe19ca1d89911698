//! Workspaces, device bindings and tenants.

pub(crate) mod binding_changes;
pub(crate) mod bindings;
pub(crate) mod delete_tenant;
pub(crate) mod tenants;
pub(crate) mod workspace_toml;
pub(crate) mod workspaces;
