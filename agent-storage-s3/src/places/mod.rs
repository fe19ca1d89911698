//! Workspaces, device bindings and tenants.

pub(crate) mod bindings;
pub(crate) mod delete_tenant;
pub(crate) mod generations;
pub(crate) mod indexed;
pub(crate) mod replaced;
pub(crate) mod tenant;
pub(crate) mod workspaces;
