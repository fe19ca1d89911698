//! Objects that are replaced: read, changed, and written back only if no other writer has written meanwhile.
//!
//! The header of each contains the ids of its last writes, so that a write of unknown outcome is recognised, and no
//! two writes produce equal bytes (a tag is a hash of the bytes).

use std::fmt;
use std::str::FromStr;

use agent_core::json::to_text;
use agent_core::store::Damaged;
use agent_core::{Error, Result, WriteOutcome, text_serde};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::try_join_all;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::error::{corrupt, is_damage};
use crate::layout::keys::last;
use crate::layout::line::{FORMAT, Line, Tag, lines, push};
use crate::log::slot::other_format;
use crate::medium::object::{AT_ONCE, Bucket, Condition, Object, Put};

/// Number of earlier writes whose ids an object contains.
const REMEMBERED: usize = 16;

/// Contents of such an object.
pub(crate) trait Content: Sized {
    /// Kind of the object, as stored in the header.
    const KIND: &'static str;

    /// Writes the lines after the header.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads the lines after the header; the error is a description of the damage.
    fn read(lines: &[Line]) -> Result<Self, &'static str>;

    /// Returns the folders, below that of the index, of the keys of an object with these contents; none if no list shows
    /// it. `now` has the folders of the keys in force, which stay if they are returned.
    fn folders(&self, _now: &[&str]) -> Vec<String> {
        Vec::new()
    }
}

/// Place in the index of a key in force of an object. Headers name it as `<folder>/<writes>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexPlace {
    folder: String,
    /// Number of the write that brought the key into force.
    writes: u64,
}

impl IndexPlace {
    /// Returns the name of the key of the object with this name.
    pub(crate) fn name(&self, index: &str, object: &str) -> String {
        format!("{index}{}/{object}.{}", self.folder, self.writes)
    }
}

impl fmt::Display for IndexPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.folder, self.writes)
    }
}

impl FromStr for IndexPlace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let parts = text.rsplit_once('/').filter(|(folder, _)| !folder.is_empty());
        let (folder, writes) = parts.ok_or("no key of an index")?;
        let writes = writes.parse().map_err(|_| "no key of an index")?;
        Ok(Self { folder: folder.to_owned(), writes })
    }
}

text_serde!(IndexPlace);

/// Object as it was read.
#[derive(Debug)]
pub(crate) struct Loaded<C> {
    pub(crate) content: C,
    /// Number of times that the object was written.
    pub(crate) writes: u64,
    /// Places of its keys in force.
    pub(crate) places: Vec<IndexPlace>,
}

/// Answer of a replacement, and the keys of the index that it left behind.
#[derive(Debug)]
pub(crate) struct Replaced<T> {
    pub(crate) answer: T,
    /// Keys that are not in force, and never will be.
    pub(crate) superseded: Vec<String>,
}

/// Writes contents that are a single record.
pub(crate) fn write_record<C: Serialize>(content: &C, out: &mut Vec<u8>) {
    // Text and numbers always have a JSON form; an empty line would be found as damage.
    push(out, Tag::Record, &to_text(content));
}

/// Reads contents that are a single record; the error is a description of the damage.
pub(crate) fn read_record<C: DeserializeOwned>(lines: &[Line]) -> Result<C, &'static str> {
    let [line] = lines else { return Err("has a wrong number of lines") };
    let json = line.json(Tag::Record).ok_or("is damaged")?;
    serde_json::from_str(json).map_err(|_| "cannot be read")
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: u32,
    kind: String,
    /// Last part of the object's key, by which an object that was copied to another key is detected.
    name: String,
    /// Number of times that the object was written.
    writes: u64,
    /// Ids of the last writes, the newest last.
    recent: Vec<String>,
    /// Places of the keys of the index that are in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    keys: Vec<IndexPlace>,
    /// Number of lines that follow.
    lines: usize,
}

impl Header {
    /// Returns the header of the next write of an object, whose newest id and lines [`encode`] adds. Each key stays
    /// while the contents stay in its folder.
    fn after<C: Content>(before: Option<&Self>, key: &str, content: &C) -> Self {
        let writes = before.map_or(0, |before| before.writes).saturating_add(1);
        let places = before.map_or(&[][..], |before| &before.keys);
        let keys = content.folders(&folders(places)).into_iter().map(|folder| {
            let now = places.iter().find(|place| place.folder == folder);
            now.cloned().unwrap_or(IndexPlace { folder, writes })
        });
        Self {
            format: FORMAT,
            kind: C::KIND.to_owned(),
            name: last(key).to_owned(),
            writes,
            recent: before.map_or_else(Vec::new, |before| before.recent.clone()),
            keys: keys.collect(),
            lines: 0,
        }
    }
}

/// Decision on an object.
pub(crate) enum Decision<C, T> {
    /// Write these contents, and return this answer.
    Write(C, T),
    /// Leave the object unchanged, and return this answer.
    Leave(T),
}

struct Current<C> {
    header: Header,
    content: C,
    tag: String,
}

impl Bucket {
    /// Returns the contents of an object, if it exists.
    pub(crate) async fn load<C: Content>(&self, key: &str, until: Instant) -> Result<Option<C>> {
        Ok(self.load_counted(key, until).await?.map(|loaded| loaded.content))
    }

    /// Returns the contents of an object, if it exists, and how often it was written.
    pub(crate) async fn load_counted<C: Content>(
        &self,
        key: &str,
        until: Instant,
    ) -> Result<Option<Loaded<C>>> {
        let current = self.current(key, until).await?;
        Ok(current.map(|Current { header, content, .. }| Loaded {
            content,
            writes: header.writes,
            places: header.keys,
        }))
    }

    async fn current<C: Content>(&self, key: &str, until: Instant) -> Result<Option<Current<C>>> {
        self.get(key, until).await?.map(|object| decode(key, &object)).transpose()
    }

    /// Reads many objects concurrently. Returns the results of `pick`, and the damaged objects, each described by
    /// `name`.
    pub(crate) async fn load_each<C: Content, T>(
        &self,
        keys: Vec<String>,
        mut pick: impl FnMut(&str, Loaded<C>) -> Option<T>,
        name: impl Fn(&str) -> String,
    ) -> Result<(Vec<T>, Vec<Damaged>)> {
        let mut found = futures::stream::iter(keys)
            .map(|key| async move { (self.load_counted::<C>(&key, self.deadline()).await, key) })
            .buffer_unordered(AT_ONCE);
        let (mut picked, mut damaged) = (Vec::new(), Vec::new());
        while let Some((loaded, key)) = found.next().await {
            match loaded {
                Ok(loaded) => picked.extend(loaded.and_then(|loaded| pick(&key, loaded))),
                Err(error) if is_damage(&error) => damaged.push(Damaged::of(name(&key), &error)),
                Err(error) => return Err(error),
            }
        }
        damaged.sort();
        Ok((picked, damaged))
    }

    /// Reads an object, calls `decide`, and writes the decision. Repeats this if another writer was faster.
    ///
    /// # Errors
    ///
    /// The errors of `decide`; [`WriteOutcome::Unknown`] if the time ended in doubt.
    pub(crate) async fn replace<C: Content, T>(
        &self,
        key: &str,
        until: Instant,
        decide: impl FnMut(Option<&C>) -> Result<Decision<C, T>>,
    ) -> Result<T> {
        Ok(self.replace_indexed(key, until, decide, "").await?.answer)
    }

    /// Like [`replace`](Self::replace), for an object that has keys in the folder `index` and below. New keys are put
    /// before the contents are, so that none is ever missing.
    pub(crate) async fn replace_indexed<C: Content, T>(
        &self,
        key: &str,
        until: Instant,
        mut decide: impl FnMut(Option<&C>) -> Result<Decision<C, T>>,
        index: &str,
    ) -> Result<Replaced<T>> {
        let names_of =
            |header: &Header| header.keys.iter().map(|place| place.name(index, last(key))).collect();
        let in_force = |now: &Current<C>| -> Vec<String> { names_of(&now.header) };
        let mut now = self.current::<C>(key, until).await?;
        // Keys that were in force or put in this call. Whether or not they came into force, the object was written as often.
        let mut names = Vec::new();
        // Number of times that other writers were faster, and whether `now` was read since.
        let (mut lost, mut rested) = (0, true);
        loop {
            let current = now.as_ref().map(in_force).unwrap_or_default();
            names.extend(current.iter().cloned());
            let (content, answer) = match decide(now.as_ref().map(|now| &now.content))? {
                Decision::Write(content, answer) => (content, answer),
                Decision::Leave(answer) => {
                    return Ok(Replaced { answer, superseded: superseded(names, &current) });
                }
            };
            // A refusal, or an answer without a write, does not wait; nor does the second attempt.
            if lost > 1 && !rested {
                if !self.pause(lost - 2, until).await {
                    return Err(too_slow(key));
                }
                now = self.current::<C>(key, until).await?;
                rested = true;
                continue;
            }
            let write = self.write_id();
            let header = Header::after(now.as_ref().map(|now| &now.header), key, &content);
            let (count, new): (_, Vec<String>) = (header.writes, names_of(&header));
            let missing: Vec<_> = new.iter().filter(|name| !current.contains(name)).collect();
            names.extend(missing.iter().copied().cloned());
            try_join_all(missing.into_iter().map(|name| self.put_key(name, until))).await?;
            let body = encode(header, &write, &content);
            let condition = now.as_ref().map_or(Condition::Absent, |now| Condition::Is(now.tag.clone()));
            let (there, doubt) = match self.put(key, &body, &condition, until).await? {
                Put::Stored(_) => {
                    return Ok(Replaced { answer, superseded: superseded(names, &new) });
                }
                Put::Refused { now, doubt } => (now, doubt),
            };
            let outcome = if doubt { WriteOutcome::Unknown } else { WriteOutcome::NotApplied };
            let there = there.map(|object| decode::<C>(key, &object)).transpose();
            now = there.map_err(|error| error.with_outcome(outcome))?;
            if let Some(now) = &now {
                if now.header.recent.contains(&write) {
                    let superseded = superseded(names, &in_force(now));
                    return Ok(Replaced { answer, superseded });
                }
                if doubt && now.header.writes.saturating_sub(count) >= REMEMBERED as u64 {
                    return Err(replaced_since(key));
                }
            }
            (lost, rested) = (lost + 1, false);
        }
    }

    /// Puts a key of the index, before the contents are sent. One that is left is not in force.
    async fn put_key(&self, name: &str, until: Instant) -> Result<()> {
        let put = self.put(name, &Bytes::new(), &Condition::Any, until).await;
        put.map(drop).map_err(|error| error.with_outcome(WriteOutcome::NotApplied))
    }

    /// Returns a new id for a write.
    fn write_id(&self) -> String {
        format!("{:016x}{:016x}", self.effects.random_u64(), self.effects.random_u64())
    }
}

fn folders(places: &[IndexPlace]) -> Vec<&str> {
    places.iter().map(|place| place.folder.as_str()).collect()
}

fn too_slow(key: &str) -> Error {
    let text = format!("cannot write {key}: other writers were faster each time; try again");
    Error::unavailable(text).timed_out()
}

fn replaced_since(key: &str) -> Error {
    let text =
        format!("cannot tell whether {key} was written: other writers have replaced it since; read it again");
    Error::unavailable(text).with_outcome(WriteOutcome::Unknown)
}

/// Returns those of `names` that are not in force.
fn superseded(mut names: Vec<String>, in_force: &[String]) -> Vec<String> {
    names.retain(|name| !in_force.contains(name));
    names.sort();
    names.dedup();
    names
}

fn encode<C: Content>(mut header: Header, write: &str, content: &C) -> Bytes {
    header.recent.push(write.to_owned());
    let surplus = header.recent.len().saturating_sub(REMEMBERED);
    header.recent.drain(..surplus);
    let (mut out, mut rest) = (Vec::new(), Vec::new());
    content.write(&mut rest);
    header.lines = rest.iter().filter(|byte| **byte == b'\n').count();
    // Text and numbers always have a JSON form; an empty line would be found as damage.
    push(&mut out, Tag::Head, &to_text(&header));
    out.extend(rest);
    out.into()
}

fn decode<C: Content>(key: &str, object: &Object) -> Result<Current<C>> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let bad = |what: &str| corrupt(&format!("object {key}"), what);
    let lines = lines(&object.bytes);
    let json = lines.first().and_then(|line| line.json(Tag::Head));
    let json = json.ok_or_else(|| bad("has a damaged header"))?;
    if let Ok(Format { format }) = serde_json::from_str(json)
        && format != FORMAT
    {
        return Err(other_format(&format!("object {key}"), format));
    }
    let header: Header = serde_json::from_str(json)
        .map_err(|error| bad("has a header that cannot be read").with_source(error))?;
    if header.kind != C::KIND || header.name != last(key) {
        return Err(bad("holds another object's bytes"));
    }
    if header.lines != lines.len() - 1 || object.bytes.last() != Some(&b'\n') {
        return Err(bad("is cut short"));
    }
    let content = C::read(&lines[1..]).map_err(bad)?;
    let named = folders(&header.keys);
    if content.folders(&named) != named || header.keys.iter().any(|key| key.writes > header.writes) {
        return Err(bad("names a key of the index that its contents do not have"));
    }
    Ok(Current { header, content, tag: object.tag.clone() })
}

#[cfg(test)]
#[path = "replaced_tests.rs"]
mod tests;
