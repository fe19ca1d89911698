//! Probe of a bucket before it is used: tries once each server feature that the protocol depends on. An object says
//! that a server passed, so that not every opening costs a probe.

use agent_core::json::to_text;
use agent_core::{Error, ErrorKind, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::layout::keys;
use crate::layout::line::{FORMAT, Tag, lines, push};
use crate::layout::settings::{Settings, Wanted};
use crate::medium::object::{Bucket, Condition, Put, Seen, Tags};
use crate::opening::stored_settings;

/// Age of a probe's object after which the probe has ended, however slow the server is.
const ABANDONED_MICROS: i64 = 24 * 3600 * 1_000_000;
/// Limit on the objects of earlier probes that one probe looks at.
const LEFTOVERS_MAX: usize = 100;
/// Number of what the probe tries. A server that passed another one is probed again.
const PROBE: u32 = 1;
/// What a server that passed has shown, for people.
const PROVEN: [&str; 5] =
    ["create once", "replace a version", "read what was written", "list in order", "list from a key on"];
/// Size limit of the marker in bytes.
const MARKER_MAX: u64 = 4096;
/// Time for which a marker is believed, in microseconds: a week. Limits how long a server that took over the name, the
/// files and the times of another one is believed.
const BELIEVED: u64 = 7 * 24 * 3600 * 1_000_000;
/// Longest time between the writes of a probe's object and of the marker, in seconds, by the server's clock. What was
/// copied later has a later time.
const TOGETHER: u64 = 15 * 60;

/// Object that says with what a server passed the probe. It is believed only where it was written: it contains the
/// address, the server's name for itself, and the server's time.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    format: u32,
    kind: String,
    probe: u32,
    /// SHA-256 of the kind of server, its address, the bucket and the prefix.
    place: String,
    /// Name that the server gives itself.
    server: Option<String>,
    tags: Tags,
    /// Copy of the settings of the prefix, so that opening needs no other object.
    #[serde(flatten)]
    settings: Settings,
    /// Time by the clock of the store that probed, in microseconds since 1970.
    probed: i64,
    /// Time of a probe's object by the server's clock, in seconds since 1970.
    modified: i64,
    proven: Vec<String>,
}

/// What the marker of a bucket says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// There is none.
    Absent,
    /// There is one that is not believed: of another server, too old, damaged, or of another version.
    Doubtful,
    /// The server passed, and expects tags of this form. The prefix has these settings.
    Passed(Tags, Settings),
}

/// Reads the marker.
pub(crate) async fn known(bucket: &Bucket, prefix: &str) -> Result<Known> {
    let seen = match bucket.see(&keys::probed(prefix), Some(0..MARKER_MAX), bucket.deadline()).await {
        Ok(Some(seen)) => seen,
        Ok(None) => return Ok(Known::Absent),
        // It is too long.
        Err(error) if *error.kind() == ErrorKind::Corrupt => return Ok(Known::Doubtful),
        Err(error) => return Err(error),
    };
    let checked = read(&seen.object.bytes).and_then(|marker| {
        check(bucket, prefix, &seen, &marker)?;
        Ok((marker.tags, marker.settings))
    });
    Ok(match checked {
        Ok((tags, settings)) => Known::Passed(tags, settings),
        Err(why) => {
            tracing::debug!(why, "the server is probed again");
            Known::Doubtful
        }
    })
}

fn read(bytes: &Bytes) -> Result<Marker, &'static str> {
    let lines = lines(bytes);
    let [line] = lines.as_slice() else { return Err("the marker is damaged") };
    let json = line.json(Tag::Head).filter(|_| bytes.len() as u64 == line.size());
    let json = json.ok_or("the marker is damaged")?;
    serde_json::from_str(json).map_err(|_| "the marker is of another version")
}

/// Checks that the marker was written here, lately, by what answers now.
fn check(bucket: &Bucket, prefix: &str, seen: &Seen, marker: &Marker) -> Result<(), &'static str> {
    if (marker.format, marker.kind.as_str(), marker.probe) != (FORMAT, "probed", PROBE) {
        return Err("the marker is of another version");
    }
    if marker.place != place(bucket, prefix) {
        return Err("the marker is of another address");
    }
    if marker.server != seen.server {
        return Err("the marker is of another server");
    }
    if marker.modified.abs_diff(seen.modified) > TOGETHER {
        return Err("the marker was copied");
    }
    if bucket.effects.now().as_micros().abs_diff(marker.probed) > BELIEVED {
        return Err("the marker is too old");
    }
    Ok(())
}

fn place(bucket: &Bucket, prefix: &str) -> String {
    let place = format!("{} {prefix}", bucket.place);
    Sha256::digest(place.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Tries what the protocol requires, determines the form of tags that the server expects and the settings of the prefix,
/// and writes the marker.
///
/// # Errors
///
/// `Unsupported` if the server lacks a feature; the text names it.
pub(crate) async fn probe(bucket: &mut Bucket, prefix: &str, wanted: &Wanted) -> Result<()> {
    let name = format!("{:016x}{:016x}", bucket.effects.random_u64(), bucket.effects.random_u64());
    let folder = keys::probe(prefix, &name);
    // In the order of bytes the second one is first; servers with folders list it last.
    let (one, two) = (format!("{folder}1/a"), format!("{folder}1-b"));
    let done = try_all(bucket, &folder, &one, &two).await;
    // A leftover takes a few bytes and does no harm.
    for key in [one, two] {
        if bucket.delete(&key, bucket.deadline()).await.is_err() {
            tracing::debug!(key, "a probe's object was left behind");
        }
    }
    let seen = done?;
    remove_leftovers(bucket, prefix).await;
    bucket.settings = stored_settings::settle(bucket, prefix, wanted).await?;
    let marker = Marker {
        format: FORMAT,
        kind: "probed".to_owned(),
        probe: PROBE,
        place: place(bucket, prefix),
        server: seen.server,
        tags: bucket.tags,
        settings: bucket.settings.clone(),
        probed: bucket.effects.now().as_micros(),
        modified: seen.modified,
        proven: PROVEN.map(str::to_owned).into(),
    };
    let mut body = Vec::new();
    push(&mut body, Tag::Head, &to_text(&marker));
    let key = keys::probed(prefix);
    if let Err(error) = bucket.put(&key, &body.into(), &Condition::Any, bucket.deadline()).await {
        // The next opening costs another probe.
        tracing::debug!(%error, "the result of a probe was not written");
    }
    Ok(())
}

/// Deletes what earlier probes left that were cut off.
async fn remove_leftovers(bucket: &Bucket, prefix: &str) {
    let (folder, passed, until) = (keys::probes(prefix), keys::probed(prefix), bucket.deadline());
    let found = match bucket.list(&folder, None, None, LEFTOVERS_MAX, false, until).await {
        Ok(found) => found,
        Err(error) => {
            tracing::debug!(%error, "what earlier probes left was not looked for");
            return;
        }
    };
    for (key, age) in found.keys.into_iter().zip(found.ages) {
        let is_left = key != passed && age.is_over(ABANDONED_MICROS);
        if is_left && let Err(error) = bucket.delete(&key, bucket.deadline()).await {
            tracing::debug!(%error, key, "an earlier probe's object was left behind");
        }
    }
}

/// Returns an object of the probe as the server showed it.
async fn try_all(bucket: &mut Bucket, folder: &str, one: &str, two: &str) -> Result<Seen> {
    let until = bucket.deadline();
    let body = |text: &'static str| Bytes::from_static(text.as_bytes());
    let [create, replace] = bucket.dialect.preconditions();

    let tag = match bucket.put(one, &body("first"), &Condition::Absent, until).await? {
        Put::Stored(tag) => tag,
        // No other writer knows the key: an attempt in doubt was stored, or one was carried out twice.
        Put::Refused { now: Some(now), .. } if now.bytes == body("first") => now.tag,
        Put::Refused { .. } => return Err(lacks("refuses to create an object that does not exist")),
    };
    // Before the second attempt, which reads the object and tries again if there is none.
    let seen = bucket.see(one, None, until).await?;
    let Some(seen) = seen.filter(|seen| seen.object.bytes == body("first")) else {
        return Err(lacks("does not show an object that was just written"));
    };
    if let Put::Stored(_) = bucket.put(one, &body("second"), &Condition::Absent, until).await? {
        return Err(lacks(&format!("ignores {create}: it created an object that existed")));
    }
    let tag = if tag.is_empty() { seen.object.tag.clone() } else { tag };
    if tag.is_empty() {
        return Err(lacks("does not name the versions of objects (ETag, or x-goog-generation)"));
    }

    if !bucket.update(one, &body("third"), &tag, until).await? {
        bucket.tags = Tags::Bare;
        if !bucket.update(one, &body("third"), &tag, until).await? {
            return Err(lacks(&format!("refuses {replace} with the right version, quoted and bare")));
        }
    }
    if bucket.update(one, &body("fourth"), &tag, until).await? {
        return Err(lacks(&format!("ignores {replace}: it replaced another version of an object")));
    }
    let read = bucket.get(one, until).await?;
    if read.is_none_or(|read| read.bytes != body("third")) {
        return Err(lacks("does not show an object that was just replaced"));
    }

    bucket.put(two, &body("other"), &Condition::Absent, until).await?;
    let first = bucket.list(folder, None, None, 1, false, until).await?;
    if first.keys != [two] || first.next.is_none() {
        return Err(lacks(
            "does not list what was just written, or not in the order of keys (Azure: hierarchical namespaces are not \
             supported)",
        ));
    }
    let rest = bucket.first(folder, Some(two), until).await?;
    if rest.as_deref() != Some(one) {
        return Err(lacks("does not list from a key on (start-after)"));
    }
    Ok(seen)
}

fn lacks(what: &str) -> Error {
    Error::unsupported(format!(
        "the server of this bucket {what}; commits would be lost on it, use one that supports preconditions"
    ))
}
