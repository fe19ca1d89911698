//! Probe of a bucket before it is used: tries once each server feature that the protocol depends on.

use agent_core::{Error, ErrorKind, Result};
use bytes::Bytes;

use crate::keys;
use crate::object::{Bucket, Condition, Put, Tags};

/// Tries what the protocol requires, and determines the form of tags that the server expects.
///
/// # Errors
///
/// `Unsupported` if the server lacks a feature; the text names it.
pub(crate) async fn probe(bucket: &mut Bucket, prefix: &str) -> Result<()> {
    let name = format!("{:016x}{:016x}", bucket.effects.random_u64(), bucket.effects.random_u64());
    let folder = keys::probe(prefix, &name);
    let done = try_all(bucket, &folder).await;
    // A leftover takes a few bytes and does no harm. Apart from this, only the deletion of a tenant needs the right
    // to delete.
    for key in ["1", "2"] {
        if bucket.delete(&format!("{folder}{key}"), bucket.deadline()).await.is_err() {
            tracing::debug!(key, "a probe's object was left behind");
        }
    }
    done
}

async fn try_all(bucket: &mut Bucket, folder: &str) -> Result<()> {
    let until = bucket.deadline();
    let (one, two) = (format!("{folder}1"), format!("{folder}2"));
    let body = |text: &'static str| Bytes::from_static(text.as_bytes());

    let tag = match bucket.put(&one, &body("first"), &Condition::Absent, until).await? {
        Put::Stored(tag) => tag,
        // No other writer knows the key: an attempt in doubt was stored, or one was carried out twice.
        Put::Refused { now: Some(now), .. } if now.bytes == body("first") => now.tag,
        Put::Refused { .. } => return Err(lacks("refuses to create an object that does not exist")),
    };
    // Before the second attempt, which reads the object and tries again if there is none.
    let read = bucket.get(&one, until).await?;
    let Some(read) = read.filter(|read| read.bytes == body("first")) else {
        return Err(lacks("does not show an object that was just written"));
    };
    if let Put::Stored(_) = bucket.put(&one, &body("second"), &Condition::Absent, until).await? {
        return Err(lacks("ignores If-None-Match: it created an object that existed"));
    }
    let tag = if tag.is_empty() { read.tag } else { tag };
    if tag.is_empty() {
        return Err(lacks("gives objects no ETag"));
    }

    if !bucket.update(&one, &body("third"), &tag, until).await? {
        bucket.tags = Tags::Bare;
        if !bucket.update(&one, &body("third"), &tag, until).await? {
            return Err(lacks("refuses If-Match with the right ETag, quoted and bare"));
        }
    }
    if bucket.update(&one, &body("fourth"), &tag, until).await? {
        return Err(lacks("ignores If-Match: it replaced an object with another ETag"));
    }
    let read = bucket.get(&one, until).await?;
    if read.is_none_or(|read| read.bytes != body("third")) {
        return Err(lacks("does not show an object that was just replaced"));
    }

    bucket.put(&two, &body("other"), &Condition::Absent, until).await?;
    let first = bucket.list(folder, None, None, 1, false, until).await?;
    if first.keys != [one.clone()] || first.next.is_none() {
        return Err(lacks("does not list what was just written, or not in the order of keys"));
    }
    let rest = bucket.list(folder, Some(&one), None, 1, false, until).await?;
    if rest.keys != [two] {
        return Err(lacks("does not list from a key on (start-after)"));
    }
    Ok(())
}

fn lacks(what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "the server of this bucket {what}; commits would be lost on it, use one that supports preconditions"
        ),
    )
}
