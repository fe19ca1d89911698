//! Layered configuration: the host's configuration, overridden by the workspace's, overridden by the environment.
//!
//! ```
//! use agent_runtime::configuration::{ConfigLayer, ConfigLayers};
//!
//! let config = ConfigLayers::new()
//!     .with_global("provider = 'claude'\n[providers.claude]\nmodel = 'opus'\nbase_url = 'https://a'")?
//!     .with_protected("providers.*.base_url")?
//!     .with_workspace("[providers.claude]\nmodel = 'haiku'")?
//!     .with_secret_variable("ANTHROPIC_API_KEY", "providers.claude.api_key")?
//!     .merge(|name| (name == "ANTHROPIC_API_KEY").then(|| "sk-1".to_owned()))?;
//! assert_eq!(config.text("provider"), Some("claude"));
//! assert_eq!(config.text("providers.claude.model"), Some("haiku"));
//! assert_eq!(config.layer("providers.claude.model"), Some(ConfigLayer::Workspace));
//! assert_eq!(config.text("providers.claude.api_key"), Some("sk-1"));
//! assert!(!config.explain().contains("sk-1"));
//! # Ok::<(), agent_core::Error>(())
//! ```
//!
//! Tables are merged field by field, to any depth. Any other value of a higher layer replaces the value of a lower one;
//! arrays are replaced as a whole. A workspace may be controlled by someone other than the host, so the host declares
//! the keys that only it may set: such a key is refused from the workspace's layer, in any spelling, and so is a value
//! that would replace a table with such keys.

use std::collections::BTreeMap;
use std::fmt;

use toml::{Table, Value};

use agent_core::{Error, Result};

/// Layer that a value comes from. A later layer overrides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ConfigLayer {
    /// File of the host.
    Global,
    /// File of the workspace.
    Workspace,
    /// Environment variable.
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

/// Key path, or a pattern for key paths: names separated by dots, in which `*` matches any one name. Names with dots or
/// quotes cannot be written in a pattern; `*` matches them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern(Vec<String>);

impl Pattern {
    fn parse(text: &str) -> Result<Self> {
        let names: Vec<String> = text.split('.').map(str::to_owned).collect();
        if names.iter().any(String::is_empty) {
            return Err(Error::invalid(format!(
                "{text:?} is not a valid key; write names separated by dots, none of them empty"
            )));
        }
        Ok(Self(names))
    }

    /// Returns whether the pattern matches a path or one of its parents.
    fn covers(&self, path: &[String]) -> bool {
        path.len() >= self.0.len() && self.0.iter().zip(path).all(|(want, name)| want == "*" || want == name)
    }

    /// Returns whether the pattern can match something below a path.
    fn reaches_below(&self, path: &[String]) -> bool {
        path.len() < self.0.len() && self.0.iter().zip(path).all(|(want, name)| want == "*" || want == name)
    }
}

/// Environment variable, and the key that it sets.
#[derive(Clone, Debug)]
struct Variable {
    name: String,
    path: Vec<String>,
}

/// Parsed TOML text, and its name in errors.
#[derive(Clone, Debug, Default)]
struct Source {
    name: String,
    values: Table,
}

/// Configuration layers before they are merged.
///
/// ```
/// use agent_runtime::configuration::ConfigLayers;
///
/// let config = ConfigLayers::new()
///     .with_global_from("/etc/chat.toml", "model = 'opus'\nurl = 'https://a'\n[db]\npassword = 'x'")?
///     .with_workspace_from("notes/config.toml", "model = 'haiku'\n[ui]\ncolor = true")?
///     .with_protected("url")?
///     .with_secret("db.password")?
///     .with_variable("CHAT_MODEL", "model")?
///     .merge(|name| (name == "CHAT_MODEL").then(|| "sonnet".to_owned()))?;
/// assert_eq!(config.text("model"), Some("sonnet"));
/// assert_eq!(config.text("url"), Some("https://a"));
///
/// // A key that only the host may set.
/// let layers = ConfigLayers::new().with_workspace("url = 'https://b'")?.with_protected("url")?;
/// let error = layers.merge(|_| None).unwrap_err().to_string();
/// assert!(error.contains("may be set only in the host's configuration"), "{error}");
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ConfigLayers {
    global: Source,
    workspace: Source,
    variables: Vec<Variable>,
    protected: Vec<Pattern>,
    secret: Vec<Pattern>,
}

impl ConfigLayers {
    /// Creates an empty set of layers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the host's own configuration, as TOML text.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, with the line, if the text is not valid TOML.
    pub fn with_global(self, text: &str) -> Result<Self> {
        self.with_global_from("the global configuration", text)
    }

    /// Sets the host's own configuration, like [`with_global`](Self::with_global), and names its source in errors, for
    /// example the path of the file.
    ///
    /// ```
    /// # use agent_runtime::configuration::ConfigLayers;
    /// let error = ConfigLayers::new().with_global_from("/etc/chat.toml", "a = 1\nb c").unwrap_err();
    /// assert_eq!(error.to_string(), "/etc/chat.toml, line 2: invalid TOML: key with no value, expected `=`");
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput`, with the source and the line, if the text is not valid TOML.
    pub fn with_global_from(mut self, source: impl Into<String>, text: &str) -> Result<Self> {
        self.global = parse(source.into(), text)?;
        Ok(self)
    }

    /// Sets the workspace's configuration, as TOML text in the form that
    /// [`WorkspaceStore::load_config`](agent_core::WorkspaceStore::load_config) returns.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, with the line, if the text is not valid TOML.
    pub fn with_workspace(self, text: &str) -> Result<Self> {
        self.with_workspace_from("the workspace configuration", text)
    }

    /// Sets the workspace's configuration, like [`with_workspace`](Self::with_workspace), and names its source in
    /// errors, for example the path of the file.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, with the source and the line, if the text is not valid TOML.
    pub fn with_workspace_from(mut self, source: impl Into<String>, text: &str) -> Result<Self> {
        self.workspace = parse(source.into(), text)?;
        Ok(self)
    }

    /// Maps an environment variable to a key. A variable that is not set, or empty, sets nothing.
    ///
    /// ```
    /// use agent_runtime::configuration::{ConfigLayer, ConfigLayers};
    ///
    /// let layers = ConfigLayers::new().with_global("timeout = 30")?.with_variable("CHAT_TIMEOUT", "timeout")?;
    /// let config = layers.merge(|name| (name == "CHAT_TIMEOUT").then(|| "60".to_owned()))?;
    /// assert_eq!(config.get("timeout").and_then(|value| value.as_integer()), Some(60));
    /// assert_eq!(config.layer("timeout"), Some(ConfigLayer::Environment));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid key.
    pub fn with_variable(mut self, name: impl Into<String>, key: &str) -> Result<Self> {
        self.variables.push(Variable { name: name.into(), path: Pattern::parse(key)?.0 });
        Ok(self)
    }

    /// Maps an environment variable to a key, like [`with_variable`](Self::with_variable), and marks the key as
    /// [secret](Self::with_secret).
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid key.
    pub fn with_secret_variable(self, name: impl Into<String>, key: &str) -> Result<Self> {
        self.with_variable(name, key)?.with_secret(key)
    }

    /// Forbids the workspace to set a key and everything below it; `*` matches any one name.
    ///
    /// ```
    /// use agent_runtime::configuration::ConfigLayers;
    ///
    /// let layers = ConfigLayers::new()
    ///     .with_global("[providers.claude]\nbase_url = 'https://a'")?
    ///     .with_workspace("[providers.claude]\nbase_url = 'https://b'")?
    ///     .with_protected("providers.*.base_url")?;
    /// let error = layers.merge(|_| None).unwrap_err().to_string();
    /// assert!(error.contains("`providers.claude.base_url` may be set only in the host's configuration"), "{error}");
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid key.
    pub fn with_protected(mut self, key: &str) -> Result<Self> {
        self.protected.push(Pattern::parse(key)?);
        Ok(self)
    }

    /// Marks a key and everything below it as secret, so that it is never shown; `*` matches any one name.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid key.
    pub fn with_secret(mut self, key: &str) -> Result<Self> {
        self.secret.push(Pattern::parse(key)?);
        Ok(self)
    }

    /// Merges the layers; `lookup` returns the value of an environment variable, if it is set.
    ///
    /// ```
    /// use agent_runtime::configuration::ConfigLayers;
    ///
    /// let config = ConfigLayers::new()
    ///     .with_global("model = 'opus'\n[ui]\ncolor = true")?
    ///     .with_workspace("[ui]\nwidth = 80")?
    ///     .merge(|name| std::env::var(name).ok())?;
    /// assert_eq!(config.text("model"), Some("opus"));
    /// assert_eq!(config.values()["ui"].as_table().map(|ui| ui.len()), Some(2));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput`, which names the source and the key and never a value: if the workspace sets a protected key, if
    /// a table and another value conflict, or if a variable's value does not have the type that the files use.
    pub fn merge(self, lookup: impl Fn(&str) -> Option<String>) -> Result<LayeredConfig> {
        let mut merged =
            LayeredConfig { values: Table::new(), layers: BTreeMap::new(), secret: self.secret.clone() };
        let Self { global, workspace, protected, .. } = &self;
        merged.overlay(ConfigLayer::Global, &global.name, &global.values, &[])?;
        merged.overlay(ConfigLayer::Workspace, &workspace.name, &workspace.values, protected)?;
        for variable in &self.variables {
            let Some(text) = lookup(&variable.name).filter(|text| !text.is_empty()) else { continue };
            merged.set_variable(variable, text)?;
        }
        Ok(merged)
    }
}

fn parse(name: String, text: &str) -> Result<Source> {
    match text.parse() {
        Ok(values) => Ok(Source { name, values }),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
            // The message alone: the full text of the error quotes the line, which may contain a secret.
            Err(Error::invalid(format!("{name}, line {line}: invalid TOML: {}", error.message())))
        }
    }
}

/// Value of a [`LayeredConfig`], with its key and its layer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConfigEntry<'a> {
    /// Key: names separated by dots.
    pub key: String,
    /// Value; `None` for a secret.
    pub value: Option<&'a Value>,
    /// Layer that the value comes from.
    pub layer: ConfigLayer,
}

/// Merged configuration, with the layer of each value.
///
/// ```
/// use agent_runtime::configuration::{ConfigLayer, ConfigLayers};
///
/// let config = ConfigLayers::new()
///     .with_global("model = 'opus'\ntimeout = 30\n[db]\npassword = 'x'")?
///     .with_workspace("model = 'haiku'")?
///     .with_secret("db.password")?
///     .merge(|name| std::env::var(name).ok())?;
/// assert_eq!(config.text("model"), Some("haiku"));
/// assert_eq!(config.get("timeout").and_then(|value| value.as_integer()), Some(30));
/// assert_eq!(config.layer("timeout"), Some(ConfigLayer::Global));
/// assert_eq!(config.values().len(), 3);
///
/// let shown: Vec<_> = config.entries().map(|entry| (entry.key, entry.value.is_some())).collect();
/// assert_eq!(shown[0], ("db.password".to_owned(), false));
/// assert!(config.explain().contains("model = \"haiku\"  # workspace"));
/// # Ok::<(), agent_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LayeredConfig {
    values: Table,
    /// Layer of each value that is not a table, and of each empty table.
    layers: BTreeMap<Vec<String>, ConfigLayer>,
    secret: Vec<Pattern>,
}

impl LayeredConfig {
    /// Returns all values, secrets included, as one table.
    pub const fn values(&self) -> &Table {
        &self.values
    }

    /// Returns the value of a key, which is names separated by dots; `None` if there is none.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let mut names = key.split('.');
        let first = self.values.get(names.next()?)?;
        names.try_fold(first, |value, name| value.as_table()?.get(name))
    }

    /// Returns the value of a key, if it is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// Returns the layer that a value comes from; `None` if there is no value, or if it is a table with several layers.
    pub fn layer(&self, key: &str) -> Option<ConfigLayer> {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        self.layers.get(&path).copied()
    }

    /// Returns one line for each value: its key, the value, and its layer, for example `model = "haiku"  # workspace`.
    ///
    /// Secrets are listed without their values.
    pub fn explain(&self) -> String {
        let line = |entry: ConfigEntry<'_>| {
            let shown = entry.value.map_or_else(|| "(secret)".to_owned(), ToString::to_string);
            format!("{} = {shown}  # {}\n", entry.key, entry.layer)
        };
        self.entries().map(line).collect()
    }

    fn is_secret(&self, path: &[String]) -> bool {
        // An array below the path may hold secrets too.
        self.secret.iter().any(|pattern| pattern.covers(path) || pattern.reaches_below(path))
    }

    fn at(&self, path: &[String]) -> Option<&Value> {
        let mut value = None;
        for name in path {
            value = value.map_or(Some(&self.values), Value::as_table).and_then(|table| table.get(name));
        }
        value
    }

    /// Returns all values, each with its key in TOML spelling and its layer; secrets without their values.
    pub fn entries(&self) -> impl Iterator<Item = ConfigEntry<'_>> {
        self.layers.iter().filter_map(|(path, layer)| {
            let value = self.at(path)?;
            let value = (!self.is_secret(path)).then_some(value);
            Some(ConfigEntry { key: shown_path(path), value, layer: *layer })
        })
    }

    fn overlay(
        &mut self,
        layer: ConfigLayer,
        source: &str,
        table: &Table,
        protected: &[Pattern],
    ) -> Result<()> {
        let Self { values, layers, .. } = self;
        merge_table(values, table, &mut Vec::new(), &mut Merge { layer, source, protected, layers })
    }

    fn set_variable(&mut self, variable: &Variable, text: String) -> Result<()> {
        let source = format!("environment variable {}", variable.name);
        let wrong = |expected: &str| {
            let key = shown_path(&variable.path);
            Error::invalid(format!("{source}: invalid value for `{key}`, expected {expected}"))
        };
        let now = self.get(&variable.path.join("."));
        let value = match now {
            None | Some(Value::String(_)) => Value::String(text),
            Some(Value::Integer(_)) => text.parse().map(Value::Integer).map_err(|_| wrong("an integer"))?,
            Some(Value::Float(_)) => text.parse().map(Value::Float).map_err(|_| wrong("a number"))?,
            Some(Value::Boolean(_)) => {
                text.parse().map(Value::Boolean).map_err(|_| wrong("true or false"))?
            }
            Some(_) => return Err(wrong("the type that the files use, which a variable cannot set")),
        };
        match nested(&variable.path, value) {
            Value::Table(table) => self.overlay(ConfigLayer::Environment, &source, &table, &[]),
            _ => Ok(()),
        }
    }
}

/// Returns a value nested in tables below its path.
fn nested(path: &[String], value: Value) -> Value {
    let below = |value, name: &String| Value::Table(Table::from_iter([(name.clone(), value)]));
    path.iter().rev().fold(value, below)
}

/// Returns a key path in TOML spelling.
fn shown_path(path: &[String]) -> String {
    let bare = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    let names = path.iter().map(|name| if bare(name) { name.clone() } else { format!("{name:?}") });
    names.collect::<Vec<_>>().join(".")
}

/// State of a merge of one layer.
struct Merge<'a> {
    layer: ConfigLayer,
    /// Name of the layer's source in errors.
    source: &'a str,
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
    let refuse = |why: &str| Err(Error::invalid(format!("{}: `{}` {why}", merge.source, shown_path(path))));
    let is_table = value.is_table();
    if merge.protected.iter().any(|pattern| pattern.covers(path)) {
        return refuse("may be set only in the host's configuration; remove it");
    }
    if !is_table && merge.protected.iter().any(|pattern| pattern.reaches_below(path)) {
        return refuse("would replace a table in which only the host may set values; remove it");
    }
    if into.get(name).is_some_and(|now| now.is_table() != is_table) {
        let why = match is_table {
            true => "is a table, but a single value in a lower layer; use the same type in both",
            false => "is a single value, but a table in a lower layer; use the same type in both",
        };
        return refuse(why);
    }
    match value {
        Value::Table(from) => {
            // An empty table has a layer of its own; in any other table, each value has one.
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
