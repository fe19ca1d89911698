//! Former versions of objects: whether the bucket keeps them.

use agent_core::{Error, ErrorKind, Result};
use object_store::path::Path;
use object_store::{PutOptions, PutPayload};

use crate::dialect::Dialect;
use crate::layout::keys;
use crate::medium::object::Bucket;

/// Name of the versions of a bucket whose versioning is suspended.
const SUSPENDED: &str = "null";

/// What a bucket keeps of objects that are replaced or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Versions {
    /// Nothing.
    None,
    /// Nothing new; there may be versions of the time before.
    Suspended,
    /// Every version.
    Kept,
    /// The server does not tell.
    Unknown,
}

impl Versions {
    /// Reads the name that the server gives the version of an object that was just written.
    fn of(dialect: Dialect, version: Option<&str>) -> Self {
        match (dialect, version) {
            // Each object has a number there, whether or not the former ones are kept.
            (Dialect::Gcs, _) => Self::Unknown,
            (_, None) => Self::None,
            (_, Some(SUSPENDED)) => Self::Suspended,
            (_, Some(_)) => Self::Kept,
        }
    }
}

/// Checks that the bucket keeps no former versions. Returns what could not be found out. Asks once: by an object that it writes and
/// deletes, whose version the server names if there are versions.
///
/// # Errors
///
/// `Unsupported` if versions are kept.
pub(crate) async fn check(bucket: &Bucket, prefix: &str) -> Result<Option<String>> {
    let found = bucket.version.get_or_try_init(|| find(bucket, prefix)).await;
    let found = found.map(|version| Versions::of(bucket.dialect, version.as_deref()));
    let place = &bucket.place;
    let unknown = |what: &str| {
        format!(
            "former versions of the objects in {place}: {what}; look at the versioning and the soft delete of the bucket"
        )
    };
    match found {
        // Soft delete is not to be seen in the protocol.
        Ok(Versions::None) if bucket.dialect == Dialect::Azure => {
            Ok(Some(unknown("the bucket has no versions, and may keep what is deleted for a time")))
        }
        Ok(Versions::None) => Ok(None),
        Ok(Versions::Suspended) => {
            Ok(Some(unknown("versioning is suspended, and versions of the time before were not looked at")))
        }
        Ok(Versions::Unknown) => Ok(Some(unknown("the server does not tell whether it keeps any"))),
        Ok(Versions::Kept) => Err(Error::unsupported(format!(
            "the bucket keeps former versions of what is removed ({place}); suspend its versioning, remove the versions that are not \
             current by a lifecycle rule (NoncurrentVersionExpiration), and try again"
        ))),
        Err(error) if *error.kind() == ErrorKind::Denied => {
            Ok(Some(unknown("the server could not be asked, since writing is denied")))
        }
        Err(error) => Err(error),
    }
}

/// Returns the name of the version of an object that is written for this.
async fn find(bucket: &Bucket, prefix: &str) -> Result<Option<String>> {
    if bucket.dialect == Dialect::Gcs {
        return Ok(None);
    }
    let name = format!("{:016x}{:016x}", bucket.effects.random_u64(), bucket.effects.random_u64());
    let (key, until) = (format!("{}versions", keys::probe(prefix, &name)), bucket.deadline());
    let path = &Path::from(key.as_str());
    let put = bucket.read(until, || {
        Box::pin(async move {
            let work = bucket.client.put_opts(path, PutPayload::new(), PutOptions::default());
            bucket.request("write an object", 1, until, &bucket.counters.put, work).await
        })
    });
    let done =
        put.await?.ok_or_else(|| Error::unavailable(format!("{} does not take an object", bucket.place)))?;
    if let Err(error) = bucket.delete(&key, bucket.deadline()).await {
        // It is empty, and the next probe of a bucket removes it.
        tracing::debug!(%error, key, "an object by which the server was asked for versions was left behind");
    }
    Ok(done.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_version_says_whether_versions_are_kept() {
        for (dialect, version, expected) in [
            (Dialect::S3, None, Versions::None),
            (Dialect::S3, Some("null"), Versions::Suspended),
            (Dialect::S3, Some("3sL4kqtJlcpXroDTDmJ"), Versions::Kept),
            (Dialect::Azure, None, Versions::None),
            (Dialect::Azure, Some("2026-02-15T10:30:00.0000000Z"), Versions::Kept),
            (Dialect::Gcs, Some("1771000000000001"), Versions::Unknown),
        ] {
            assert_eq!(Versions::of(dialect, version), expected, "{dialect:?} {version:?}");
        }
    }
}
