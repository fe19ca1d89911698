//! Search for rows that need the row of their tenant, which is missing.

use agent_core::{Error, ErrorKind, Result, SessionId, SessionStore, TenantId};

use crate::place::{KeyPlace, KeyQuery};

/// Number of rows on a page, but for the first.
const PAGE: usize = 1000;

/// Keys of a tenant whose row is missing, and the sessions that they have sealed, if those are known.
pub(crate) struct Missing<'k> {
    pub(crate) tenant: &'k TenantId,
    pub(crate) place: &'k dyn KeyPlace,
    pub(crate) stored: Option<&'k dyn SessionStore>,
}

impl Missing<'_> {
    /// Returns what needs the row, although it is missing; `None` if nothing does: the tenant is new, or was deleted.
    ///
    /// A row of a session that is not in the store needs nothing: whoever put it has ended, or the tenant was deleted meanwhile.
    ///
    /// Reads one list of one row for a tenant without rows.
    pub(crate) async fn needed_by(&self) -> Result<Option<String>> {
        let mut next = Some(KeyQuery::new().with_limit(1));
        while let Some(query) = next {
            let page = self.place.list(query).await?;
            for entry in &page.items {
                if self.is_in_use(&entry.name).await? {
                    return Ok(Some(format!("key row {}", entry.name)));
                }
            }
            if let Some(damage) = page.damaged.first() {
                return Ok(Some(damage.object.clone()));
            }
            next = page.next.map(|cursor| KeyQuery::new().with_limit(PAGE).with_cursor(Some(cursor)));
        }
        Ok(None)
    }

    /// Returns whether something of the tenant that is stored is opened by the key of a row.
    async fn is_in_use(&self, row: &str) -> Result<bool> {
        let mut parts = row.split('/');
        let (kind, first, second) = (parts.next(), parts.next(), parts.next());
        let is_own = first == Some(self.tenant.as_str());
        let session = match kind {
            // Sealed by the tenant's own key.
            Some("secret") => return Ok(is_own),
            Some("session") if is_own => second,
            Some("blob") if self.stored.is_some() => first,
            _ => return Ok(false),
        };
        let Some(Ok(session)) = session.map(str::parse::<SessionId>) else { return Ok(false) };
        let Some(stored) = self.stored else { return Ok(true) };
        match stored.load(session).await {
            Ok(_) => Ok(true),
            Err(error) if *error.kind() == ErrorKind::Corrupt => Ok(true),
            Err(error) if error.is_absent() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns the error of a row of a tenant that is missing, and is needed.
pub(crate) fn lost(row: &str, needed_by: &str) -> Error {
    Error::corrupt(format!(
        "key row {row} is missing, and {needed_by} needs it; restore it from a backup, or delete the tenant"
    ))
}
