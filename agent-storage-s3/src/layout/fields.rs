//! Fields of sessions that have an index of their own.

use std::fmt;
use std::str::FromStr;

use agent_core::model::Actor;
use agent_core::session::SessionRecord;
use agent_core::store::SessionQuery;
use agent_core::text::{check_text, quoted};
use agent_core::{Error, Result, text_serde};

use crate::layout::keys::hash;

/// Folder of the lists by value, below that of the index.
pub(crate) const VALUES: &str = "l/";

/// Field of sessions that has an index of its own, so that a page of the sessions with one value of it costs what it
/// shows, at any number of sessions.
///
/// All stores of a prefix have the same ones: see [`S3Config::with_index`](crate::S3Config::with_index).
///
/// ```
/// use agent_storage_s3::IndexedField;
///
/// let field: IndexedField = "label.project".parse()?;
/// assert_eq!(field, IndexedField::Label("project".to_owned()));
/// assert_eq!(IndexedField::Creator.to_string(), "creator");
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexedField {
    /// Creator of the session.
    Creator,
    /// Label with this key.
    Label(String),
}

impl IndexedField {
    /// Largest number of fields of a prefix.
    pub(crate) const MOST: usize = 8;

    /// Checks the fields of a prefix.
    pub(crate) fn check(fields: &[Self]) -> Result<()> {
        for (n, field) in fields.iter().enumerate() {
            if fields[..n].contains(field) {
                return Err(Error::invalid(format!("the index names {field} twice")));
            }
            if let Self::Label(key) = field {
                check_text("label key", key, 64)
                    .map_err(|error| Error::invalid(format!("the index names no label: {error}")))?;
                if key.contains(',') {
                    return Err(Error::invalid(format!(
                        "the index names the label {key:?}; a label with a comma in its key cannot be indexed"
                    )));
                }
            }
        }
        if fields.len() > Self::MOST {
            return Err(Error::invalid(format!(
                "the index names {} fields; at most {} can be indexed",
                fields.len(),
                Self::MOST
            )));
        }
        Ok(())
    }

    /// Parses fields as they are written in an address.
    pub(crate) fn parse_all(text: &str) -> Result<Vec<Self>> {
        text.split(',').filter(|field| !field.is_empty()).map(str::parse).collect()
    }

    /// Formats fields as they are written in an address.
    pub(crate) fn format_all(fields: &[Self]) -> String {
        fields.iter().map(Self::to_string).collect::<Vec<_>>().join(",")
    }

    /// Returns the list, without the class, of the sessions with a session's value.
    pub(crate) fn scope(&self, record: &SessionRecord) -> Option<String> {
        match self {
            Self::Creator => Some(self.scope_of(&record.creator.to_string())),
            Self::Label(key) => record.attributes.labels.get(key).map(|value| self.scope_of(value)),
        }
    }

    /// Returns the list, without the class, of the sessions with the value that a query names.
    pub(crate) fn queried(&self, query: &SessionQuery) -> Option<String> {
        match self {
            Self::Creator => query.creator.as_ref().map(Actor::to_string).map(|value| self.scope_of(&value)),
            Self::Label(key) => query.labels.get(key).map(|value| self.scope_of(value)),
        }
    }

    /// Keys hold no text. Values with equal hashes would share a list, in which each session is read and compared.
    fn scope_of(&self, value: &str) -> String {
        // Neither part has a line break.
        format!("{VALUES}{}", &hash(&format!("{self}\n{value}"))[..32])
    }
}

impl fmt::Display for IndexedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Creator => f.write_str("creator"),
            Self::Label(key) => write!(f, "label.{key}"),
        }
    }
}

impl FromStr for IndexedField {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.strip_prefix("label.") {
            Some(key) => Ok(Self::Label(key.to_owned())),
            None if text == "creator" => Ok(Self::Creator),
            None => Err(Error::invalid(format!(
                "the index names {}; write creator, or label. and the key of a label",
                quoted(text)
            ))),
        }
    }
}

text_serde!(IndexedField);
