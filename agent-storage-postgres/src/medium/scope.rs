//! Scope of a call: the rows of a tenant, or of one of its owners. Row security compares both with settings.

use std::sync::Arc;

use agent_core::OwnerId;

/// Tenant, and the owner if not all of the tenant's rows may be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) tenant: Arc<str>,
    pub(crate) owner: Option<OwnerId>,
}

impl Scope {
    /// Value of the setting `agent.owner`.
    pub(crate) fn owners(&self) -> String {
        self.owner.as_ref().map_or_else(|| "*".to_owned(), |owner| format!("={}", owner.as_str()))
    }

    /// Returns the statement that sets both, for the transaction or for the connection. Its values are in hexadecimal digits,
    /// so that nothing has to be quoted, and no name is in the server's log.
    pub(crate) fn set(&self, is_local: bool) -> String {
        let set = |name: &str, value: &str| {
            let value: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
            format!("set_config('{name}', convert_from(decode('{value}', 'hex'), 'UTF8'), {is_local})")
        };
        format!("SELECT {}, {}", set("agent.tenant", &self.tenant), set("agent.owner", &self.owners()))
    }
}
