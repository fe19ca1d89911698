//! Settings of a prefix, which all stores that use it share.

use std::fmt;

use agent_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::layout::fields::IndexedField;
use crate::layout::watch::Watch;

/// Settings of a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) watch: Watch,
    /// Fields of sessions that have an index of their own. A query goes by the first one that it names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) index: Vec<IndexedField>,
}

/// Settings that a store is opened with. What is `None` is as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) watch: Option<Watch>,
    pub(crate) index: Option<Vec<IndexedField>>,
}

impl Wanted {
    /// Returns the settings of a prefix whose first store is opened with these.
    pub(crate) fn of_new(&self) -> Settings {
        Settings { watch: self.watch.unwrap_or_default(), index: self.index.clone().unwrap_or_default() }
    }

    /// Refuses a store that is opened with other settings than the stored ones.
    pub(crate) fn check(&self, store: &impl fmt::Display, stored: &Settings) -> Result<()> {
        let refused = |has: String, wanted: String, remedy: &str| {
            let text = format!("{store} has the setting {has}, and is opened with {wanted}; {remedy}");
            Err(Error::new(ErrorKind::InvalidInput, text))
        };
        if let Some(wanted) = self.watch.filter(|wanted| *wanted != stored.watch) {
            let remedy = "leave the option out, or change the setting with S3Store::change_watch";
            return refused(format!("watch={}", stored.watch), format!("watch={wanted}"), remedy);
        }
        if let Some(wanted) = self.index.as_ref().filter(|wanted| **wanted != stored.index) {
            let format = |fields: &[IndexedField]| format!("index={}", IndexedField::format_all(fields));
            let remedy = "leave the option out, or copy the data to another prefix that has the wanted index";
            return refused(format(&stored.index), format(wanted), remedy);
        }
        Ok(())
    }
}
