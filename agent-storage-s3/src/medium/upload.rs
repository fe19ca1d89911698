//! Upload of a large object in parts. The object is not visible before all parts are there.

use std::sync::Arc;

use agent_core::{Error, Result};
use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{MultipartId, PutPayload};

use crate::error::Fate;
use crate::medium::object::{Bucket, DENIED_MAX};

/// Upload in parts. Dropping it before it is complete removes the parts in the background.
#[derive(Debug)]
pub(crate) struct Upload {
    bucket: Arc<Bucket>,
    key: String,
    id: MultipartId,
    parts: Vec<PartId>,
    has_ended: bool,
}

impl Upload {
    /// Begins an upload. What is begun and not known to the caller, since the answer got lost, has no parts.
    pub(crate) async fn begin(bucket: &Arc<Bucket>, key: String) -> Result<Self> {
        let (path, until) = (Path::from(key.as_str()), bucket.deadline());
        let begun = bucket.read(until, || {
            let path = path.clone();
            Box::pin(async move {
                let work = bucket.client.create_multipart(&path);
                bucket.request("begin an upload", 1, until, &bucket.counters.put, work).await
            })
        });
        let id = begun.await?.ok_or_else(|| lost(&key))?;
        Ok(Self { bucket: bucket.clone(), key, id, parts: Vec::new(), has_ended: false })
    }

    /// Puts the next part. All but the last one have the same number of bytes, 5 MiB or more.
    pub(crate) async fn put(&mut self, part: Bytes) -> Result<()> {
        let Self { bucket, key, id, parts, .. } = self;
        let (bucket, path, until, number) =
            (&*bucket, Path::from(key.as_str()), bucket.deadline(), parts.len());
        let mebibytes = 1 + u32::try_from(part.len() >> 20).unwrap_or(u32::MAX >> 8);
        // The same part again replaces that of an earlier attempt.
        let put = bucket.read(until, || {
            let (path, id, part) = (path.clone(), id.clone(), PutPayload::from_bytes(part.clone()));
            Box::pin(async move {
                let work = bucket.client.put_part(&path, &id, number, part);
                bucket
                    .request("write a part of an object", mebibytes, until, &bucket.counters.put, work)
                    .await
            })
        });
        let part = put.await?.ok_or_else(|| lost(key))?;
        parts.push(part);
        Ok(())
    }

    /// Makes the object visible.
    pub(crate) async fn complete(mut self) -> Result<()> {
        let (path, until) = (Path::from(self.key.as_str()), self.bucket.deadline());
        let (mut n, mut denied) = (0, 0);
        loop {
            let bucket = &*self.bucket;
            let work = bucket.client.complete_multipart(&path, &self.id, self.parts.clone());
            let done = bucket.request("complete an upload", 1, until, &bucket.counters.put, work).await;
            let Err(failed) = done else { break };
            // An earlier attempt, or this one if it was carried out twice, may have completed it. No other request
            // writes to this key.
            let may_be_there = n > 0 || failed.fate == Fate::Absent;
            if may_be_there && bucket.get_range(&self.key, 0..1, until).await?.is_some() {
                break;
            }
            denied += u32::from(failed.fate == Fate::Denied);
            match failed.fate {
                Fate::Absent => return Err(lost(&self.key)),
                Fate::Wrong => return Err(failed.error),
                Fate::Denied if denied >= DENIED_MAX => return Err(failed.error),
                _ if !bucket.pause(n, until).await => return Err(failed.error.timed_out()),
                _ => n += 1,
            }
        }
        self.has_ended = true;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (bucket, path, id) = (self.bucket.clone(), Path::from(self.key.as_str()), self.id.clone());
        runtime.spawn(async move {
            let until = bucket.deadline();
            let work = bucket.client.abort_multipart(&path, &id);
            let counter = &bucket.counters.delete;
            if let Err(failed) = bucket.request("remove an upload", 1, until, counter, work).await {
                tracing::debug!(error = %failed.error, "the parts of an upload were left behind");
            }
        });
    }
}

fn lost(key: &str) -> Error {
    Error::unavailable(format!("the parts of object {key} were removed while it was uploaded; try again"))
}
