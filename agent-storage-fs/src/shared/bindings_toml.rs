//! Contents of `bindings.toml` and of `bindings.changes`, and a cache of them.

use std::collections::BTreeMap;
use std::path::Path;

use agent_core::{DeviceId, Result, WorkspaceId};
use serde::{Deserialize, Serialize};
use toml_edit::{DocumentMut, Item, TableLike};

use crate::error::corrupt;
use crate::io::{FileId, Stat};
use crate::medium::env::Env;

/// Time after its last write from which a file that looks the same is the same, in nanoseconds. File systems stamp writes by
/// a clock that stands still for some milliseconds.
const SETTLED: i128 = 1_000_000_000;

/// Cache of the bindings. The files are always looked at, and read only where they changed.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// What `bindings.toml` was when it was read last; `None` before that.
    pub(crate) toml: Option<Toml>,
    /// Changes that were applied to what it contains.
    pub(crate) changes: Option<Changes>,
    pub(crate) bindings: Bindings,
    /// The `bindings.toml` whose name this process knows to be durable.
    pub(crate) durable: Option<FileId>,
}

impl Cache {
    /// Drops everything, so that the files are read again.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    pub(crate) bound: BTreeMap<DeviceId, WorkspaceId>,
    /// Unreadable entries, by their keys.
    pub(crate) damaged: BTreeMap<String, &'static str>,
}

impl Bindings {
    pub(crate) fn of(text: &DocumentMut) -> Self {
        let mut bindings = Self::default();
        let Some(table) = table(text) else { return bindings };
        for (key, item) in table.iter() {
            let workspace = item.as_str().and_then(|id| id.parse().ok());
            match (key.parse::<DeviceId>(), workspace) {
                (Ok(device), Some(workspace)) => drop(bindings.bound.insert(device, workspace)),
                (Ok(_), None) => drop(bindings.damaged.insert(key.to_owned(), "is bound to no workspace id")),
                (Err(_), _) => drop(bindings.damaged.insert(key.to_owned(), "is no device id")),
            }
        }
        bindings
    }

    /// Returns the workspace that a device is bound to. An unreadable entry is an error, not a missing binding.
    pub(crate) fn get(&self, device: &DeviceId, path: &Path) -> Result<Option<WorkspaceId>> {
        if self.damaged.contains_key(device.as_str()) {
            return Err(corrupt(path, &format!("binds device {device} to what is no workspace id")));
        }
        Ok(self.bound.get(device).copied())
    }
}

pub(crate) fn table(text: &DocumentMut) -> Option<&dyn TableLike> {
    text.get("bindings").and_then(Item::as_table_like)
}

/// Change of one binding.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) device: DeviceId,
    /// Workspace that the device is bound to from now on; `None` if it is unbound.
    pub(crate) workspace: Option<WorkspaceId>,
}

impl Change {
    pub(crate) const fn new(device: DeviceId, workspace: Option<WorkspaceId>) -> Self {
        Self { device, workspace }
    }
}

impl Bindings {
    pub(crate) fn apply(&mut self, change: Change) {
        match change.workspace {
            Some(workspace) => drop(self.bound.insert(change.device, workspace)),
            None => drop(self.bound.remove(&change.device)),
        }
    }
}

/// Changes that were read.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    pub(crate) id: FileId,
    /// Offset after the last whole line.
    pub(crate) end: u64,
    /// Length of the file when it was read; larger than `end` if the last line was not whole.
    pub(crate) len: u64,
    /// The last whole line, with its offset. A line whose sync failed is taken back, and another may follow.
    pub(crate) last: Option<(u64, Vec<u8>)>,
    /// Length that this process knows to be durable, with the name of the file.
    pub(crate) durable: u64,
}

/// `bindings.toml` as it was read.
#[derive(Debug)]
pub(crate) struct Toml {
    pub(crate) stat: Stat,
    pub(crate) bytes: Vec<u8>,
    /// Whether the bytes are compared, because the file is small.
    is_small: bool,
    /// Checksum of the bytes.
    sum: u32,
    /// Whether a later write would show in the metadata.
    is_settled: bool,
}

impl Toml {
    /// Reads the file; `None` if it does not exist.
    pub(crate) fn read(env: &Env, path: &Path) -> Result<Option<Self>> {
        let Some((stat, bytes)) = env.read_file_with_stat(path)? else { return Ok(None) };
        let sum = crc32c::crc32c(&bytes);
        Ok(Some(Self { stat, bytes, is_small: true, sum, is_settled: is_settled(env, stat) }))
    }

    /// Returns what stands for a missing file.
    pub(crate) fn missing() -> Self {
        let stat =
            Stat { kind: crate::io::Kind::Other, len: 0, modified: 0, changed: 0, id: FileId::default() };
        Self { stat, bytes: Vec::new(), is_small: true, sum: 0, is_settled: true }
    }

    /// Returns the file that was just written with these bytes; `None` if it has to be read again.
    pub(crate) fn written(env: &Env, path: &Path, bytes: Vec<u8>) -> Option<Self> {
        let stat = env.io.stat(path).ok()?;
        let sum = crc32c::crc32c(&bytes);
        Some(Self { stat, bytes, is_small: true, sum, is_settled: false })
    }

    /// Returns whether the bytes are kept.
    pub(crate) fn is_small(&self) -> bool {
        self.is_small
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.stat.kind == crate::io::Kind::Other
    }

    pub(crate) fn len(&self) -> u64 {
        self.stat.len
    }

    /// Drops the bytes, unless the file has at most `small` bytes.
    pub(crate) fn for_cache(mut self, small: u64) -> Self {
        self.is_small = self.stat.len <= small;
        if !self.is_small {
            self.bytes = Vec::new();
        }
        self
    }

    /// Returns whether the file is still what was read. A small file is read again; a large one only while it is so new
    /// that a write could leave its metadata as they are.
    pub(crate) fn is_current(&mut self, env: &Env, path: &Path) -> bool {
        if self.is_small {
            return match env.read_file(path) {
                Ok(Some(bytes)) => !self.is_missing() && bytes == self.bytes,
                Ok(None) => self.is_missing(),
                // Reading it says what is wrong.
                Err(_) => false,
            };
        }
        if self.is_settled {
            return env.io.stat(path).is_ok_and(|stat| stat == self.stat);
        }
        let Ok(Some((stat, bytes))) = env.read_file_with_stat(path) else { return false };
        self.is_settled = is_settled(env, stat);
        stat == self.stat && crc32c::crc32c(&bytes) == self.sum
    }
}

fn is_settled(env: &Env, stat: Stat) -> bool {
    i128::from(env.effects.now().as_micros()) * 1000 - stat.modified > SETTLED
}
