//! Format number of the file.

use crate::schema::VERSION;
use crate::store::SqliteStore;

impl SqliteStore {
    /// Name and format number of the file that this version writes: `user_version`, the number of the schema.
    ///
    /// A file with another number is refused as [`Unsupported`](agent_core::ErrorKind::Unsupported). `docs/stability.md` in the
    /// repository says what a number promises.
    ///
    /// ```
    /// use agent_storage_sqlite::SqliteStore;
    ///
    /// assert_eq!(SqliteStore::FORMATS, [("user_version", 8)]);
    /// ```
    pub const FORMATS: [(&'static str, u64); 1] = [("user_version", VERSION as u64)];
}
