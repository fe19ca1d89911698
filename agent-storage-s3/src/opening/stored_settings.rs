//! Object with the settings of a prefix.

use agent_core::json::to_text;
use agent_core::{Error, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::corrupt;
use crate::layout::keys;
use crate::layout::line::{FORMAT, Tag, lines, push};
use crate::layout::settings::{Settings, Wanted};
use crate::log::slot::other_format;
use crate::medium::object::{Bucket, Condition, Put};

/// Settings, as they are stored.
#[derive(Debug, Serialize, Deserialize)]
struct StoredSettings {
    format: u32,
    kind: String,
    #[serde(flatten)]
    settings: Settings,
}

/// Returns the stored settings, and stores some if there are none: `wanted`, if there is no store under the prefix yet.
pub(crate) async fn settle(bucket: &Bucket, prefix: &str, wanted: &Wanted) -> Result<Settings> {
    let (key, until) = (keys::settings(prefix), bucket.deadline());
    if let Some(stored) = bucket.get(&key, until).await? {
        return read(&key, &stored.bytes);
    }
    let mut new = wanted.of_new();
    // Data without settings was written with the default ones.
    if new != Settings::default() && bucket.first(&keys::tenants(prefix), None, until).await?.is_some() {
        new = Settings::default();
    }
    match bucket.put(&key, &encode(new.clone()), &Condition::Absent, until).await? {
        // Another store was opened for the first time as well.
        Put::Refused { now: Some(now), .. } => read(&key, &now.bytes),
        _ => Ok(new),
    }
}

fn encode(settings: Settings) -> Bytes {
    let mut body = Vec::new();
    let stored = StoredSettings { format: FORMAT, kind: "settings".to_owned(), settings };
    push(&mut body, Tag::Head, &to_text(&stored));
    body.into()
}

fn read(key: &str, bytes: &Bytes) -> Result<Settings> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let object = format!("object {key}");
    let lines = lines(bytes);
    let json =
        lines.first().and_then(|line| line.json(Tag::Head)).ok_or_else(|| corrupt(&object, "is damaged"))?;
    let Ok(Format { format }) = serde_json::from_str(json) else {
        return Err(corrupt(&object, "is damaged"));
    };
    if format != FORMAT {
        return Err(other_format(&object, format));
    }
    let stored: StoredSettings = serde_json::from_str(json).map_err(|error| {
        let text = format!(
            "{object} has a setting that this version does not know ({error}); use the version that wrote it, or copy \
             the data to another prefix"
        );
        Error::unsupported(text).with_source(error)
    })?;
    Ok(stored.settings)
}
