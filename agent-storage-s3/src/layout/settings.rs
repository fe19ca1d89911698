//! Settings of a prefix, which all stores that use it share.

use std::fmt;

use agent_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::layout::fields::IndexedField;

/// When the keys of due and running work are put. Others are not known, so that a store that would not find them is
/// not opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Watch {
    /// Before the commit: each session that is due or runs is found as soon as its commit is acknowledged.
    #[default]
    Before,
}

/// Settings of a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    watch: Watch,
    /// Fields of sessions that have an index of their own. A query goes by the first one that it names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) index: Vec<IndexedField>,
}

/// Settings that a store is opened with. What is `None` is as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) index: Option<Vec<IndexedField>>,
}

impl Wanted {
    /// Returns the settings of a prefix whose first store is opened with these.
    pub(crate) fn of_new(&self) -> Settings {
        Settings { watch: Watch::Before, index: self.index.clone().unwrap_or_default() }
    }

    /// Refuses a store that is opened with other settings than the stored ones.
    pub(crate) fn check(&self, store: &impl fmt::Display, stored: &Settings) -> Result<()> {
        let Some(wanted) = self.index.as_ref().filter(|wanted| **wanted != stored.index) else {
            return Ok(());
        };
        let text = format!(
            "{store} has the setting index={}, and is opened with index={}; leave the option out, or copy the data to \
             another prefix that has the wanted index",
            IndexedField::format_all(&stored.index),
            IndexedField::format_all(wanted)
        );
        Err(Error::invalid(text))
    }
}
