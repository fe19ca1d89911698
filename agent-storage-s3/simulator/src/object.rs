//! An object, and in which ways a store is not what it should be.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};

/// Protocol that the store speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// S3: preconditions on ETags, which follow from the body.
    #[default]
    S3,
    /// The XML API of Google Cloud Storage: preconditions on generations, of which each write has another one.
    Gcs,
}

/// In which ways a store is not what it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// `If-None-Match: *` is ignored: a PUT always overwrites.
    pub ignores_if_none_match: bool,
    /// `If-Match` is ignored: a PUT always overwrites.
    pub ignores_if_match: bool,
    /// For so long after a write, a GET answers as before it.
    pub stale_reads: Option<Duration>,
    /// LIST answers a page's keys in no order.
    pub unordered_list: bool,
    /// `If-Match` is compared literally with the ETag without quotes, as Ceph 16 does.
    pub wants_bare_etags: bool,
    /// `If-Match` on a missing key is 412, as with Ceph, and not 404, as with AWS.
    pub missing_is_precondition: bool,
    /// LIST answers at most so many keys; 1,000 unless set.
    pub page_limit: Option<usize>,
    /// Name of the server in the header `Server` of each answer.
    pub server: Option<&'static str>,
    /// Versions in the bucket: none unless set. The simulator names them, and does not keep the former ones.
    pub versioning: Option<Versioning>,
    /// Answers have no header `Date`.
    pub omits_date: bool,
}

/// State of a bucket that has, or had, versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versioning {
    /// Each write makes a version with a name of its own.
    Enabled,
    /// No more: the name of each is `null`.
    Suspended,
}

/// What is stored under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) body: Bytes,
    /// With its quotes. Follows from the body alone, as in S3.
    pub(crate) etag: String,
    /// Number of the write, in the dialect of Google.
    pub(crate) generation: Option<u64>,
    /// Name of the version, in a bucket that has versions.
    pub(crate) version: Option<String>,
    pub(crate) modified: DateTime<Utc>,
}
