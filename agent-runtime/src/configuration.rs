//! Configuration in layers: the host's own, the workspace's over it, the environment over both.
//!
//! ```
//! use agent_runtime::configuration::{ConfigLayer, ConfigLayers};
//!
//! let config = ConfigLayers::new()
//!     .global("provider = 'claude'\n[providers.claude]\nmodel = 'opus'\nbase_url = 'https://a'")?
//!     .protect("providers.*.base_url")?
//!     .workspace("[providers.claude]\nmodel = 'haiku'")?
//!     .secret_variable("ANTHROPIC_API_KEY", "providers.claude.api_key")?
//!     .merge(|name| (name == "ANTHROPIC_API_KEY").then(|| "sk-1".to_owned()))?;
//! assert_eq!(config.text("provider"), Some("claude"));
//! assert_eq!(config.text("providers.claude.model"), Some("haiku"));
//! assert_eq!(config.layer("providers.claude.model"), Some(ConfigLayer::Workspace));
//! assert_eq!(config.text("providers.claude.api_key"), Some("sk-1"));
//! assert!(!config.explain().contains("sk-1"));
//! # Ok::<(), agent_core::Error>(())
//! ```
//!
//! Tables are merged field by field, to any depth; whatever else a higher layer says replaces what a lower one says, arrays
//! as a whole. A workspace may be in the hands of somebody who is not the host, so the host names what only it may set:
//! such a key is refused from the workspace's layer, in whatever way it is spelled, and so is a value that would take the
//! place of a table with such keys.

use std::collections::BTreeMap;
use std::fmt;

use toml::{Table, Value};

use agent_core::{Error, Result};

/// Where a value comes from. A later one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ConfigLayer {
    /// The host's own file.
    Global,
    /// The workspace's file.
    Workspace,
    /// A variable of the environment.
    Environment,
}

impl fmt::Display for ConfigLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Global => "global",
            Self::Workspace => "workspace",
            Self::Environment => "environment",
        })
    }
}

/// A key path, or a pattern of one: names with dots between, in which `*` is any one name. Names with dots or quotes
/// cannot be written as a pattern; `*` finds them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern(Vec<String>);

impl Pattern {
    fn parse(text: &str) -> Result<Self> {
        let names: Vec<String> = text.split('.').map(str::to_owned).collect();
        if names.iter().any(String::is_empty) {
            return Err(Error::invalid("a key is names with dots between, none of them empty"));
        }
        Ok(Self(names))
    }

    /// Whether a path is what the pattern names, or lies below that.
    fn covers(&self, path: &[String]) -> bool {
        path.len() >= self.0.len() && self.0.iter().zip(path).all(|(want, name)| want == "*" || want == name)
    }

    /// Whether what the pattern names may lie below a path.
    fn reaches_below(&self, path: &[String]) -> bool {
        path.len() < self.0.len() && self.0.iter().zip(path).all(|(want, name)| want == "*" || want == name)
    }
}

/// A variable of the environment, and what it sets.
#[derive(Clone, Debug)]
struct Variable {
    name: String,
    path: Vec<String>,
}

/// The layers, before they are merged.
#[derive(Clone, Debug, Default)]
pub struct ConfigLayers {
    global: Table,
    workspace: Table,
    variables: Vec<Variable>,
    protected: Vec<Pattern>,
    secret: Vec<Pattern>,
}

impl ConfigLayers {
    /// No layers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the host's own configuration, TOML text.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, with the line, where it is no TOML.
    pub fn global(mut self, text: &str) -> Result<Self> {
        self.global = parse(ConfigLayer::Global, text)?;
        Ok(self)
    }

    /// Sets the workspace's configuration, TOML text, as
    /// [`WorkspaceStore::load_config`](agent_core::WorkspaceStore::load_config) gives it.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, with the line, where it is no TOML.
    pub fn workspace(mut self, text: &str) -> Result<Self> {
        self.workspace = parse(ConfigLayer::Workspace, text)?;
        Ok(self)
    }

    /// Names what a variable of the environment sets. One that is not set, or empty, sets nothing.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a key that is none.
    pub fn variable(mut self, name: impl Into<String>, key: &str) -> Result<Self> {
        self.variables.push(Variable { name: name.into(), path: Pattern::parse(key)?.0 });
        Ok(self)
    }

    /// As [`variable`](Self::variable), for a [secret](Self::secret).
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a key that is none.
    pub fn secret_variable(self, name: impl Into<String>, key: &str) -> Result<Self> {
        self.variable(name, key)?.secret(key)
    }

    /// Names what a workspace must not set: a key, and all below it; `*` stands for any one name.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a key that is none.
    pub fn protect(mut self, key: &str) -> Result<Self> {
        self.protected.push(Pattern::parse(key)?);
        Ok(self)
    }

    /// Names what is never shown: a key, and all below it; `*` stands for any one name.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a key that is none.
    pub fn secret(mut self, key: &str) -> Result<Self> {
        self.secret.push(Pattern::parse(key)?);
        Ok(self)
    }

    /// Merges the layers; `lookup` gives the value of a variable, where it is set.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, naming the layer and the key and never a value: where the workspace sets what it must not, where a
    /// table and something else meet, where a variable has no value of the type that the files have.
    pub fn merge(self, lookup: impl Fn(&str) -> Option<String>) -> Result<LayeredConfig> {
        let mut merged =
            LayeredConfig { values: Table::new(), layers: BTreeMap::new(), secret: self.secret.clone() };
        merged.overlay(ConfigLayer::Global, &self.global, &[])?;
        merged.overlay(ConfigLayer::Workspace, &self.workspace, &self.protected)?;
        for variable in &self.variables {
            let Some(text) = lookup(&variable.name).filter(|text| !text.is_empty()) else { continue };
            merged.set_variable(variable, text)?;
        }
        Ok(merged)
    }
}

fn parse(layer: ConfigLayer, text: &str) -> Result<Table> {
    text.parse::<Table>().map_err(|error| {
        // The parser's own words quote the text.
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
        Error::invalid(format!("line {line} of the {layer} configuration is no TOML"))
    })
}

/// One value of a [`LayeredConfig`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConfigEntry<'a> {
    /// Its key: names with dots between.
    pub key: String,
    /// The value; `None` for a secret.
    pub value: Option<&'a Value>,
    /// The layer that it comes from.
    pub layer: ConfigLayer,
}

/// What the layers come to, and which of them says what.
#[derive(Clone, Debug)]
pub struct LayeredConfig {
    values: Table,
    /// Of each value that is no table, and of each empty table.
    layers: BTreeMap<Vec<String>, ConfigLayer>,
    secret: Vec<Pattern>,
}

impl LayeredConfig {
    /// All values.
    pub const fn values(&self) -> &Table {
        &self.values
    }

    /// The value of a key: names with dots between.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let mut names = key.split('.');
        let first = self.values.get(names.next()?)?;
        names.try_fold(first, |value, name| value.as_table()?.get(name))
    }

    /// The value of a key, where it is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// The layer that a value comes from; `None` where there is none, or a table with several.
    pub fn layer(&self, key: &str) -> Option<ConfigLayer> {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        self.layers.get(&path).copied()
    }

    /// One line for each value: its key, the value, and the layer that it comes from. Secrets are named, and not shown.
    pub fn explain(&self) -> String {
        let line = |entry: ConfigEntry<'_>| {
            let shown = entry.value.map_or_else(|| "(secret)".to_owned(), ToString::to_string);
            format!("{} = {shown}  # {}\n", entry.key, entry.layer)
        };
        self.entries().map(line).collect()
    }

    fn is_secret(&self, path: &[String]) -> bool {
        // In an array, too, there may be secrets.
        self.secret.iter().any(|pattern| pattern.covers(path) || pattern.reaches_below(path))
    }

    fn at(&self, path: &[String]) -> Option<&Value> {
        let mut value = None;
        for name in path {
            value = value.map_or(Some(&self.values), Value::as_table).and_then(|table| table.get(name));
        }
        value
    }

    /// All values, each with its key as TOML spells it and the layer that it comes from; secrets without their values.
    pub fn entries(&self) -> impl Iterator<Item = ConfigEntry<'_>> {
        self.layers.iter().filter_map(|(path, layer)| {
            let value = self.at(path)?;
            let value = (!self.is_secret(path)).then_some(value);
            Some(ConfigEntry { key: shown_path(path), value, layer: *layer })
        })
    }

    fn overlay(&mut self, layer: ConfigLayer, table: &Table, protected: &[Pattern]) -> Result<()> {
        let Self { values, layers, .. } = self;
        merge_table(values, table, &mut Vec::new(), &mut Merge { layer, protected, layers })
    }

    fn set_variable(&mut self, variable: &Variable, text: String) -> Result<()> {
        let wrong = |what: &str| {
            Error::invalid(format!(
                "the variable {} sets {}, which {what}",
                variable.name,
                shown_path(&variable.path)
            ))
        };
        let now = self.get(&variable.path.join("."));
        let value = match now {
            None | Some(Value::String(_)) => Value::String(text),
            Some(Value::Integer(_)) => text.parse().map(Value::Integer).map_err(|_| wrong("is a number"))?,
            Some(Value::Float(_)) => text.parse().map(Value::Float).map_err(|_| wrong("is a number"))?,
            Some(Value::Boolean(_)) => {
                text.parse().map(Value::Boolean).map_err(|_| wrong("is true or false"))?
            }
            Some(_) => return Err(wrong("is neither text, a number nor true or false")),
        };
        match nested(&variable.path, value) {
            Value::Table(table) => self.overlay(ConfigLayer::Environment, &table, &[]),
            _ => Ok(()),
        }
    }
}

/// A value below its path.
fn nested(path: &[String], value: Value) -> Value {
    let below = |value, name: &String| Value::Table(Table::from_iter([(name.clone(), value)]));
    path.iter().rev().fold(value, below)
}

/// A key path as TOML spells it.
fn shown_path(path: &[String]) -> String {
    let bare = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    let names = path.iter().map(|name| if bare(name) { name.clone() } else { format!("{name:?}") });
    names.collect::<Vec<_>>().join(".")
}

/// What a layer is merged with.
struct Merge<'a> {
    layer: ConfigLayer,
    protected: &'a [Pattern],
    layers: &'a mut BTreeMap<Vec<String>, ConfigLayer>,
}

fn merge_table(into: &mut Table, from: &Table, path: &mut Vec<String>, merge: &mut Merge<'_>) -> Result<()> {
    if !path.is_empty() && into.is_empty() && from.is_empty() {
        merge.layers.insert(path.clone(), merge.layer);
    }
    for (name, value) in from {
        path.push(name.clone());
        merge_value(into, name, value, path, merge)?;
        path.pop();
    }
    Ok(())
}

fn merge_value(
    into: &mut Table,
    name: &str,
    value: &Value,
    path: &mut Vec<String>,
    merge: &mut Merge<'_>,
) -> Result<()> {
    let refuse = |what: &str| {
        Err(Error::invalid(format!("the {} configuration sets {}, {what}", merge.layer, shown_path(path))))
    };
    let is_table = value.is_table();
    if merge.protected.iter().any(|pattern| pattern.covers(path)) {
        return refuse("which only the host may set; remove it there");
    }
    if !is_table && merge.protected.iter().any(|pattern| pattern.reaches_below(path)) {
        return refuse("in the place of a table of which the host sets a part; remove it there");
    }
    if into.get(name).is_some_and(|now| now.is_table() != is_table) {
        return refuse("as another kind of value than the layer below; one of them is a table");
    }
    match value {
        Value::Table(from) => {
            // It held nothing, and said so; now its fields speak for it.
            if !from.is_empty() {
                merge.layers.remove(path.as_slice());
            }
            let slot = into.entry(name.to_owned()).or_insert_with(|| Value::Table(Table::new()));
            match slot {
                Value::Table(below) => merge_table(below, from, path, merge)?,
                other => *other = value.clone(),
            }
        }
        other => {
            into.insert(name.to_owned(), other.clone());
            merge.layers.insert(path.clone(), merge.layer);
        }
    }
    Ok(())
}
