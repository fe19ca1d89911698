//! Settings of a prefix, which all stores that use it share.

use std::fmt;

use agent_core::json::to_text;
use agent_core::{Error, ErrorKind, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::corrupt;
use crate::keys;
use crate::line::{FORMAT, Tag, lines, push};
use crate::object::{Bucket, Condition, Put};
use crate::slot::other_format;
use crate::watch::Watch;

/// Settings, as they are stored.
#[derive(Debug, Serialize, Deserialize)]
struct Settings {
    format: u32,
    kind: String,
    watch: Watch,
}

/// Returns the stored setting, and stores one if there is none: `wanted`, if there is no store under the prefix yet.
pub(crate) async fn settle(bucket: &Bucket, prefix: &str, wanted: Option<Watch>) -> Result<Watch> {
    let (key, until) = (keys::settings(prefix), bucket.deadline());
    if let Some(stored) = bucket.get(&key, until).await? {
        return read(&key, &stored.bytes);
    }
    // Data without settings was written before there were any.
    let is_default = wanted.is_none_or(|wanted| wanted == Watch::default());
    let watch = match wanted {
        Some(wanted) if !is_default && bucket.first(&keys::tenants(prefix), None, until).await?.is_none() => {
            wanted
        }
        _ => Watch::default(),
    };
    match bucket.put(&key, &encode(watch), &Condition::Absent, until).await? {
        // Another store was opened for the first time as well.
        Put::Refused { now: Some(now), .. } => read(&key, &now.bytes),
        _ => Ok(watch),
    }
}

/// Replaces the stored setting.
pub(crate) async fn change(bucket: &Bucket, prefix: &str, watch: Watch) -> Result<()> {
    // The result of the probe has a copy.
    bucket.delete(&keys::probed(prefix), bucket.deadline()).await?;
    bucket.put(&keys::settings(prefix), &encode(watch), &Condition::Any, bucket.deadline()).await.map(drop)
}

/// Refuses a store that is opened with another setting than the stored one.
pub(crate) fn check(store: &impl fmt::Display, stored: Watch, wanted: Option<Watch>) -> Result<()> {
    let Some(wanted) = wanted.filter(|wanted| *wanted != stored) else { return Ok(()) };
    let text = format!(
        "{store} has the setting watch={stored}, and is opened with watch={wanted}; leave the option out, or change the \
         setting with S3Store::change_watch"
    );
    Err(Error::new(ErrorKind::InvalidInput, text))
}

fn encode(watch: Watch) -> Bytes {
    let mut body = Vec::new();
    push(&mut body, Tag::Head, &to_text(&Settings { format: FORMAT, kind: "settings".to_owned(), watch }));
    body.into()
}

fn read(key: &str, bytes: &Bytes) -> Result<Watch> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let object = format!("object {key}");
    let lines = lines(bytes);
    let json =
        lines.first().and_then(|line| line.json(Tag::Head)).ok_or_else(|| corrupt(&object, "is damaged"))?;
    if let Ok(Format { format }) = serde_json::from_str(json)
        && format != FORMAT
    {
        return Err(other_format(&object, format));
    }
    let settings: Settings = serde_json::from_str(json).map_err(|error| {
        corrupt(&object, "has settings that this version does not know").with_source(error)
    })?;
    Ok(settings.watch)
}
