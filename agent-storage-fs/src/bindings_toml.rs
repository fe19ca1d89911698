//! Contents of `bindings.toml`, and a cache of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use agent_core::{DeviceId, Result, WorkspaceId};
use toml_edit::{DocumentMut, Item, TableLike};

use crate::error::corrupt;

/// Cache of the file's contents. The file is always read, but parsed only if its bytes changed.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    /// Bytes that were read last, and the bindings parsed from them.
    pub(crate) parsed: Option<(Vec<u8>, Arc<Bindings>)>,
    /// Bytes that this process last knew to be durable.
    pub(crate) durable: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
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
