//! Blobs that the events of a log name.

use std::collections::HashSet;
use std::path::Path;

use agent_core::event::EventType;
use agent_core::{BlobName, Result};

use crate::error::failed;
use crate::io::OpenMode;
use crate::medium::env::Env;
use crate::medium::layout;
use crate::medium::log::Forward;
use crate::medium::record::Bad;
use crate::owner::Owner;

/// Returns the blobs that the events of a log name. The log ends with the event `head`; a purged one ends anywhere.
pub(crate) fn named(env: &Env, session: &Path, owner: Owner, head: Option<u64>) -> Result<HashSet<BlobName>> {
    let path = session.join(layout::LOG);
    let file = env.io.open(&path, OpenMode::Read).map_err(|e| failed("open", &path, e))?;
    let len = file.stat().map_err(|e| failed("look at", &path, e))?.len;
    let (mut names, mut before, mut end) = (HashSet::new(), None, 0);
    let bad = |offset, before: Option<u64>| {
        Bad { offset, event: before.map_or(1, |seq| seq.saturating_add(1)), middle: true }.error(&path)
    };
    let mut lines = Forward::new(owner, &*file, 0, len);
    while let Some(line) = lines.next().map_err(|e| failed("read", &path, e))? {
        let next = line.named().filter(|next| match before {
            Some(seq) => seq + 1 == next.seq,
            None => next.kind == EventType::SESSION_CREATED,
        });
        let Some(next) = next else { return Err(bad(line.offset, before)) };
        names.extend(next.blobs);
        (before, end) = (Some(next.seq), line.end);
    }
    if head.is_some() && before != head {
        return Err(bad(end, before));
    }
    Ok(names)
}
