//! Format number of the tables.

use crate::schema::FORMAT;
use crate::store::PostgresStore;

impl PostgresStore {
    /// Name and format number of the tables that this version writes: `meta.format`.
    ///
    /// Tables with another number are refused as [`Unsupported`](agent_core::ErrorKind::Unsupported).
    /// `docs/stability.md` in the repository says what a number promises.
    ///
    /// ```
    /// use agent_storage_postgres::PostgresStore;
    ///
    /// assert_eq!(PostgresStore::FORMATS, [("meta.format", 1)]);
    /// ```
    pub const FORMATS: [(&'static str, u64); 1] = [("meta.format", FORMAT as u64)];
}
