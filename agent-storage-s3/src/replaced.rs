//! Objects that are replaced: read, decided on, and written back only where nobody else has written meanwhile.
//!
//! Each says in its header who wrote it and who did before, so that a write of unknown outcome is recognised, and no two
//! writes make equal bytes (a tag is a hash of the bytes).

use agent_core::json::to_text;
use agent_core::store::Damaged;
use agent_core::{Error, ErrorKind, Result, WriteOutcome};
use bytes::Bytes;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::error::{corrupt, is_damage};
use crate::keys::last;
use crate::line::{Line, Tag, lines, push};
use crate::object::{AT_ONCE, Bucket, Condition, Object, Put};
use crate::slot::newer;

const FORMAT: u32 = 1;
/// How many earlier writes an object remembers.
const REMEMBERED: usize = 16;

/// What such an object holds.
pub(crate) trait Content: Sized {
    /// What the header says that it is.
    const KIND: &'static str;

    /// The lines after the header.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads the lines after the header; what is wrong with them otherwise.
    fn read(lines: &[Line]) -> Result<Self, &'static str>;
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: u32,
    kind: String,
    /// Where it belongs: an object that was copied elsewhere is found out.
    name: String,
    /// How often it was written.
    writes: u64,
    /// The last writes, the newest last.
    recent: Vec<String>,
    /// How many lines follow.
    lines: usize,
}

/// What to do with an object.
pub(crate) enum Decision<C, T> {
    /// Write this, and answer so.
    Write(C, T),
    /// Leave it, and answer so.
    Leave(T),
}

struct Current<C> {
    header: Header,
    content: C,
    tag: String,
}

impl Bucket {
    /// The content of an object, if it is there.
    pub(crate) async fn load<C: Content>(&self, key: &str, until: Instant) -> Result<Option<C>> {
        Ok(self.current(key, until).await?.map(|current| current.content))
    }

    async fn current<C: Content>(&self, key: &str, until: Instant) -> Result<Option<Current<C>>> {
        self.get(key, until).await?.map(|object| decode(key, &object)).transpose()
    }

    /// Reads many objects at once: what `pick` makes of each, and those that are damaged, as `name` calls them.
    pub(crate) async fn load_each<C: Content, T>(
        &self,
        keys: Vec<String>,
        pick: impl Fn(C) -> Option<T>,
        name: impl Fn(&str) -> String,
    ) -> Result<(Vec<T>, Vec<Damaged>)> {
        let mut found = futures::stream::iter(keys)
            .map(|key| async move { (self.load::<C>(&key, self.deadline()).await, key) })
            .buffer_unordered(AT_ONCE);
        let (mut picked, mut damaged) = (Vec::new(), Vec::new());
        while let Some((loaded, key)) = found.next().await {
            match loaded {
                Ok(content) => picked.extend(content.and_then(&pick)),
                Err(error) if is_damage(&error) => damaged.push(Damaged::new(name(&key), error.to_string())),
                Err(error) => return Err(error),
            }
        }
        damaged.sort();
        Ok((picked, damaged))
    }

    /// Reads an object, decides, and writes what was decided; decides again where somebody else was faster.
    ///
    /// # Errors
    ///
    /// Those of `decide`; with [`WriteOutcome::Unknown`] where the time ended in doubt.
    pub(crate) async fn replace<C: Content, T>(
        &self,
        key: &str,
        until: Instant,
        mut decide: impl FnMut(Option<&C>) -> Result<Decision<C, T>>,
    ) -> Result<T> {
        let mut now = self.current::<C>(key, until).await?;
        // How often others were faster, and whether `now` was read since.
        let (mut lost, mut rested) = (0, true);
        loop {
            let (content, answer) = match decide(now.as_ref().map(|now| &now.content))? {
                Decision::Write(content, answer) => (content, answer),
                Decision::Leave(answer) => return Ok(answer),
            };
            // A refusal, or an answer without a write, waits for nothing; nor does the second attempt.
            if lost > 1 && !rested {
                if !self.pause(lost - 2, until).await {
                    let text = format!("cannot write {key}: others were faster each time; try again");
                    return Err(Error::new(ErrorKind::Unavailable, text).timed_out());
                }
                now = self.current::<C>(key, until).await?;
                rested = true;
                continue;
            }
            let write = self.write_id();
            let header = Header {
                format: FORMAT,
                kind: C::KIND.to_owned(),
                name: last(key).to_owned(),
                writes: now.as_ref().map_or(0, |now| now.header.writes).saturating_add(1),
                recent: now.as_ref().map_or_else(Vec::new, |now| now.header.recent.clone()),
                lines: 0,
            };
            let count = header.writes;
            let body = encode(header, &write, &content);
            let condition = match &now {
                None => Condition::Absent,
                Some(now) => Condition::Is(now.tag.clone()),
            };
            let (there, doubt) = match self.put(key, &body, &condition, until).await? {
                Put::Stored(_) => return Ok(answer),
                Put::Refused { now, doubt } => (now, doubt),
            };
            let outcome = if doubt { WriteOutcome::Unknown } else { WriteOutcome::NotApplied };
            let there = there.map(|object| decode::<C>(key, &object)).transpose();
            now = there.map_err(|error| error.with_outcome(outcome))?;
            if let Some(now) = &now {
                if now.header.recent.contains(&write) {
                    return Ok(answer);
                }
                let since = now.header.writes.saturating_sub(count);
                if doubt && since >= REMEMBERED as u64 {
                    let text = format!(
                        "cannot tell whether {key} was written: others wrote often since; look again"
                    );
                    return Err(Error::new(ErrorKind::Unavailable, text).with_outcome(outcome));
                }
            }
            (lost, rested) = (lost + 1, false);
        }
    }

    /// A new name for a write.
    fn write_id(&self) -> String {
        format!("{:016x}{:016x}", self.effects.random_u64(), self.effects.random_u64())
    }
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
        && format > FORMAT
    {
        return Err(newer(&format!("object {key}"), format));
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
    Ok(Current { header, content, tag: object.tag.clone() })
}

#[cfg(test)]
#[path = "replaced_tests.rs"]
mod tests;
