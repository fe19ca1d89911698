//! Format number of the objects.

use crate::layout::line::FORMAT;
use crate::store::S3Store;

impl S3Store {
    /// Name and format number of the objects that this version writes.
    ///
    /// An object with another number is refused as [`Unsupported`](agent_core::ErrorKind::Unsupported). `docs/stability.md` in the
    /// repository says what a number promises.
    ///
    /// ```
    /// use agent_storage_s3::S3Store;
    ///
    /// assert_eq!(S3Store::FORMATS, [("objects", 7)]);
    /// ```
    pub const FORMATS: [(&'static str, u64); 1] = [("objects", FORMAT as u64)];
}
