//! Configuration of servers: read from layers or JSON, checked, and resolved with the values of secrets.

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use agent_core::setters;
use agent_core::text::quoted;
use agent_core::{BlobName, Error, Result};
use agent_runtime::SessionContext;
use agent_runtime::configuration::{ConfigLayers, LayeredConfig};
use agent_runtime::secrets::{SecretName, Secrets};
use http::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use crate::resolved::{Limits, Resolved, ResolvedTarget};
use crate::value::{Hidden, SECRET, Seconds, TIMEOUT_MAX, pieces};

/// Minimum bytes of the value of an environment variable that is hidden in last words; shorter ones are words like `warn`.
const HIDDEN_MIN_BYTES: usize = 8;
/// Table of the configuration that holds the servers.
const TABLE: &str = "mcp";
/// Maximum bytes of a server's name: half of what a provider takes as the name of a tool.
const NAME_MAX_BYTES: usize = 32;
/// Maximum of `message_max_bytes`: with what base64 adds, an event holds it.
const MESSAGE_MAX_BYTES: usize = 12 << 20;

/// MCP servers by name.
///
/// ```
/// use agent_mcp::McpServers;
/// use agent_runtime::configuration::ConfigLayers;
///
/// // As an editor writes it.
/// let servers = McpServers::from_json(r#"{"mcpServers":{"files":{"command":"npx","args":["-y","server"]}}}"#)?;
/// assert_eq!(servers.names().collect::<Vec<_>>(), ["files"]);
///
/// // As layers: the workspace disables a server of the host.
/// let layers = ConfigLayers::new()
///     .with_global("[mcp.files]\ncommand = 'npx'\n[mcp.web]\nurl = 'http://127.0.0.1:8000/mcp'")?
///     .with_workspace("[mcp.web]\ndisabled = true")?;
/// let servers = McpServers::from_config(&McpServers::protect(layers)?.merge(|_| None)?)?;
/// assert_eq!(servers.names().collect::<Vec<_>>(), ["files"]);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug, Default)]
pub struct McpServers(BTreeMap<String, McpServer>);

impl McpServers {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds a server. It replaces one with the same name.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name that is empty, longer than 32 bytes, or has other characters than letters, digits, `-`,
    /// and `_` between two of them; for a server that can be neither started nor contacted; for a time limit that is zero
    /// or longer than a day.
    pub fn with_server(mut self, name: impl Into<String>, server: McpServer) -> Result<Self> {
        let name = name.into();
        check_name(&name)?;
        server.check(&name)?;
        self.0.insert(name, server);
        Ok(self)
    }

    /// Reads servers from JSON: the object `mcpServers` that editors use, or an object with that member.
    ///
    /// ```
    /// use agent_mcp::McpServers;
    ///
    /// let error = McpServers::from_json(r#"{"files":{"command":"npx","args":"-y"}}"#).unwrap_err();
    /// assert_eq!(error.to_string(), "mcp.files.args: the value has the wrong type");
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput`, which names the key and never a value.
    pub fn from_json(text: &str) -> Result<Self> {
        let wrong = |error: serde_json::Error| {
            Error::invalid(format!("the MCP servers are no JSON, at line {}; correct it", error.line()))
        };
        let mut value: Value = serde_json::from_str(text).map_err(wrong)?;
        Self::from_value(match value.get_mut("mcpServers") {
            Some(servers) => servers.take(),
            None => value,
        })
    }

    /// Reads the servers of a merged configuration, from its table `mcp`. Without the table there are none.
    ///
    /// ```
    /// use agent_mcp::McpServers;
    /// use agent_runtime::configuration::ConfigLayers;
    ///
    /// // The key of editors is not the one of this table.
    /// let layers = ConfigLayers::new().with_global("[mcpServers.files]\ncommand = 'npx'")?;
    /// let error = McpServers::from_config(&layers.merge(|_| None)?).unwrap_err().to_string();
    /// assert!(error.contains("write [mcp.NAME] instead of [mcpServers.NAME]"), "{error}");
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput`, which names the key and never a value; also for a table `mcpServers` or the like, which would
    /// otherwise be ignored.
    pub fn from_config(config: &LayeredConfig) -> Result<Self> {
        if let Some(key) = config.values().keys().find(|key| is_like_table(key)) {
            let text = format!(
                "{key}: MCP servers are not read from here; write [{TABLE}.NAME] instead of [{key}.NAME]"
            );
            return Err(Error::invalid(text));
        }
        // JSON has no such numbers.
        let below = format!("{TABLE}.");
        let wrong = config.entries().filter(|entry| entry.key.starts_with(&below)).find(|entry| {
            let Some(value) = entry.value else { return false };
            value.as_float().is_some_and(|number| !number.is_finite())
        });
        if let Some(entry) = wrong {
            return Err(Error::invalid(format!("{}: the value must be a finite number", entry.key)));
        }
        match config.get(TABLE).map(serde_json::to_value) {
            None => Ok(Self::new()),
            Some(Ok(servers)) => Self::from_value(servers),
            Some(Err(_)) => Err(Error::invalid("mcp: the servers have a value that JSON has not; use text")),
        }
    }

    fn from_value(value: Value) -> Result<Self> {
        let raw: BTreeMap<String, RawServer> = serde_path_to_error::deserialize(value).map_err(|error| {
            let (path, text) = (error.path().to_string(), error.inner().to_string());
            let key = if path == "." { TABLE.to_owned() } else { format!("{TABLE}.{path}") };
            // The text of a wrong type quotes the value.
            let is_safe = ["unknown field", "unknown variant", Hidden::WRONG, Seconds::WRONG]
                .iter()
                .any(|start| text.starts_with(start));
            let text = if is_safe { text.as_str() } else { "the value has the wrong type" };
            Error::invalid(format!("{}: {}", shortened(&key), shortened(text)))
        })?;
        let mut servers = Self::new();
        for (name, raw) in raw {
            check_name(&name)?;
            servers = servers.with_server(name.clone(), raw.server(&name)?)?;
        }
        Ok(servers)
    }

    /// Forbids the workspace's layer to set what is started and contacted, and what nobody is asked about; hides
    /// environment variables and headers when the configuration is shown.
    ///
    /// A workspace can still disable servers of the host, and set their limits.
    ///
    /// ```
    /// use agent_mcp::McpServers;
    /// use agent_runtime::configuration::ConfigLayers;
    ///
    /// let layers = ConfigLayers::new().with_workspace("[mcp.evil]\ncommand = 'sh'")?;
    /// let error = McpServers::protect(layers)?.merge(|_| None).unwrap_err().to_string();
    /// assert!(error.contains("`mcp.evil.command` may be set only in the host's configuration"), "{error}");
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// None in this version.
    pub fn protect(mut layers: ConfigLayers) -> Result<ConfigLayers> {
        for key in ["type", "command", "args", "cwd", "env", "url", "headers", "always"] {
            layers = layers.with_protected(&format!("{TABLE}.*.{key}"))?;
        }
        Self::hide(layers)
    }

    /// Hides environment variables and headers when the configuration is shown.
    ///
    /// # Errors
    ///
    /// None in this version.
    pub fn hide(layers: ConfigLayers) -> Result<ConfigLayers> {
        layers.with_secret(&format!("{TABLE}.*.env"))?.with_secret(&format!("{TABLE}.*.headers"))
    }

    /// Returns the names of the servers that are not disabled.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.enabled().map(|(name, _)| name)
    }

    /// Adds servers whose names are free, and returns these names. A server that is disabled keeps its name.
    pub(crate) fn add(&mut self, added: Option<&Self>) -> Vec<String> {
        let mut names = Vec::new();
        for (name, server) in added.into_iter().flat_map(|added| &added.0) {
            if let Entry::Vacant(free) = self.0.entry(name.clone()) {
                free.insert(server.clone());
                names.push(name.clone());
            }
        }
        names
    }

    /// Checks that no value refers to a secret of the host: what is to be checked of servers that somebody else names.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, which names the key.
    pub fn check_no_secrets(&self) -> Result<()> {
        for (name, server) in &self.0 {
            let (table, values) = server.hidden();
            if let Some((key, _)) = values.iter().find(|(_, value)| value.0.contains(SECRET)) {
                return Err(fault(
                    name,
                    table,
                    key,
                    "secrets are given only to servers of the host's configuration",
                ));
            }
        }
        Ok(())
    }

    /// Returns the secrets that the servers refer to, each with the key of the value that does. Servers that are disabled are
    /// left out.
    ///
    /// ```
    /// use agent_mcp::McpServers;
    ///
    /// let servers = r#"{"issues":{"command":"x","env":{"TOKEN":"Bearer ${secret:github}"}}}"#;
    /// let secrets = McpServers::from_json(servers)?.secrets();
    /// assert_eq!(secrets, [("mcp.issues.env.TOKEN".to_owned(), "github".parse()?)]);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn secrets(&self) -> Vec<(String, SecretName)> {
        let of = |(server, it): (&str, &McpServer)| {
            let (table, values) = it.hidden();
            let named = values.iter().flat_map(|(key, value)| value.secrets().map(move |name| (key, name)));
            named.map(|(key, name)| (format!("{TABLE}.{server}.{table}.{key}"), name)).collect::<Vec<_>>()
        };
        self.enabled().flat_map(of).collect()
    }

    pub(crate) fn enabled(&self) -> impl Iterator<Item = (&str, &McpServer)> {
        self.0.iter().filter(|(_, server)| !server.disabled).map(|(name, server)| (name.as_str(), server))
    }
}

/// MCP server: a program that is started, or an address.
///
/// ```
/// use std::time::Duration;
/// use agent_mcp::McpServer;
///
/// let server = McpServer::command("npx")
///     .with_args(["-y", "@modelcontextprotocol/server-everything"])
///     .with_env("API_KEY", "${secret:everything}")
///     .with_call_timeout(Duration::from_secs(20));
/// assert!(!format!("{server:?}").contains("secret:"));
/// ```
#[must_use]
#[derive(Clone)]
pub struct McpServer {
    target: Target,
    disabled: bool,
    limits: Limits,
    always: BTreeMap<String, String>,
}

/// What is started or contacted. Values are as they were written.
#[derive(Clone)]
enum Target {
    Command { command: String, args: Vec<String>, cwd: Option<PathBuf>, env: BTreeMap<String, Hidden> },
    Url { url: String, headers: BTreeMap<String, Hidden> },
}

impl McpServer {
    /// Time in which a server must be ready, if no other is set.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
    /// Time in which a server must list its tools, if no other is set.
    pub const LIST_TIMEOUT: Duration = Duration::from_secs(30);
    /// Time in which a server must make a call, if no other is set: less than a tool of the runtime has.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(100);
    /// Maximum bytes of one message, if no other is set.
    pub const MESSAGE_BYTES: usize = 8 << 20;
    /// Maximum number of a server's tools, if no other is set.
    pub const TOOLS_MAX: usize = 128;

    /// Creates a server that is a program, to which the agent speaks over its standard input and output.
    pub fn command(program: impl Into<String>) -> Self {
        let (command, args) = (program.into(), Vec::new());
        Self::of(Target::Command { command, args, cwd: None, env: BTreeMap::new() })
    }

    /// Creates a server at an address, to which the agent speaks over streamable HTTP.
    pub fn url(url: impl Into<String>) -> Self {
        Self::of(Target::Url { url: url.into(), headers: BTreeMap::new() })
    }

    const fn of(target: Target) -> Self {
        let limits = Limits {
            connect: Self::CONNECT_TIMEOUT,
            list: Self::LIST_TIMEOUT,
            call: Self::CALL_TIMEOUT,
            message_bytes: Self::MESSAGE_BYTES,
            tools: Self::TOOLS_MAX,
        };
        Self { target, disabled: false, limits, always: BTreeMap::new() }
    }

    /// Adds arguments of the program; no effect on an address.
    pub fn with_args(mut self, added: impl IntoIterator<Item = impl Into<String>>) -> Self {
        if let Target::Command { args, .. } = &mut self.target {
            args.extend(added.into_iter().map(Into::into));
        }
        self
    }

    /// Sets the directory of the program; the default is that of the host. No effect on an address.
    pub fn with_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        if let Target::Command { cwd, .. } = &mut self.target {
            *cwd = Some(directory.into());
        }
        self
    }

    /// Sets an environment variable of the program, in which `${secret:NAME}` stands for a secret; no effect on an
    /// address.
    pub fn with_env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Target::Command { env, .. } = &mut self.target {
            env.insert(name.into(), Hidden(value.into()));
        }
        self
    }

    /// Sets a header of every request, in which `${secret:NAME}` stands for a secret; no effect on a program.
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Target::Url { headers, .. } = &mut self.target {
            headers.insert(name.into(), Hidden(value.into()));
        }
        self
    }

    setters! {
        /// Sets whether the server is not used; the default is false.
        pub const fn with_disabled(disabled: bool) => disabled = disabled;

        /// Sets the time in which the server must start and be ready; the default is 30 seconds, the maximum a day.
        pub const fn with_connect_timeout(time: Duration) => limits.connect = time;

        /// Sets the time in which the server must list its tools; the default is 30 seconds, the maximum a day.
        pub const fn with_list_timeout(time: Duration) => limits.list = time;

        /// Sets the time in which the server must make a call; the default is 100 seconds, the maximum a day.
        ///
        /// The runtime's [limit](field@agent_runtime::Limits::tool_timeout) holds as well.
        pub const fn with_call_timeout(time: Duration) => limits.call = time;

        /// Sets the maximum bytes of one message of the server, at most 12 MiB; the default is 8 MiB.
        pub const fn with_message_max_bytes(bytes: usize) => limits.message_bytes = bytes;

        /// Sets the maximum number of tools; the default is 128. Others are left out.
        pub const fn with_tools_max(tools: usize) => limits.tools = tools;
    }

    /// Sets a tool, by the name that the server gives it, whose calls nobody is asked about while it has this
    /// [digest](field@crate::McpTool::digest).
    pub fn with_always(mut self, tool: impl Into<String>, digest: impl Into<String>) -> Self {
        self.always.insert(tool.into(), digest.into());
        self
    }

    fn check(&self, name: &str) -> Result<()> {
        let wrong = |what: &str| Err(Error::invalid(format!("mcp.{name}: {what}")));
        for (key, time) in [
            ("connect_timeout", self.limits.connect),
            ("list_timeout", self.limits.list),
            ("call_timeout", self.limits.call),
        ] {
            if time.is_zero() || time > TIMEOUT_MAX {
                return wrong(&format!(
                    "{key}: a time limit is zero or longer than a day; set 1 to 86400 seconds"
                ));
            }
        }
        if !(1..=MESSAGE_MAX_BYTES).contains(&self.limits.message_bytes) {
            return wrong("message_max_bytes is zero or more than 12 MiB; set 1 to 12582912 bytes");
        }
        match &self.target {
            Target::Command { command, args, cwd, env } => {
                let cwd = cwd.iter().map(|cwd| cwd.to_string_lossy().into_owned());
                let shown: Vec<String> = args.iter().cloned().chain([command.clone()]).chain(cwd).collect();
                if command.is_empty() || shown.iter().any(|text| text.contains('\0')) {
                    return wrong("command is empty, or a text has a zero byte");
                }
                if shown.iter().any(|text| text.contains(SECRET)) {
                    return wrong(
                        "a secret stands in command, args or cwd, which other users can see; use env",
                    );
                }
                for (variable, value) in env {
                    if variable.is_empty() || variable.contains(['=', '\0']) || value.0.contains('\0') {
                        return wrong("env has a name that is empty or has =, or a zero byte");
                    }
                    pieces(&value.0).map_err(|why| fault(name, "env", variable, why))?;
                }
            }
            Target::Url { url, headers } => {
                if url.contains(SECRET) {
                    return wrong("a secret stands in url, which logs of servers show; use headers");
                }
                // The error of the parser names no part of the address.
                let parsed = match Url::parse(url) {
                    Ok(parsed) if matches!(parsed.scheme(), "http" | "https") => parsed,
                    _ => return wrong("url is no address; use one like https://HOST/mcp"),
                };
                if !parsed.username().is_empty() || parsed.password().is_some() {
                    return wrong("url holds a password; use headers");
                }
                for (header, value) in headers {
                    let known =
                        HeaderName::try_from(header).ok().filter(|known| !RESERVED.contains(&known.as_str()));
                    if known.is_none() {
                        return wrong("headers has a name that is none, or that the protocol sets itself");
                    }
                    pieces(&value.0).map_err(|why| fault(name, "headers", header, why))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the values that are not shown, and the name of their table.
    const fn hidden(&self) -> (&'static str, &BTreeMap<String, Hidden>) {
        match &self.target {
            Target::Command { env, .. } => ("env", env),
            Target::Url { headers, .. } => ("headers", headers),
        }
    }

    /// Returns the server with the values of its secrets: those of the host, or without these the ones that the session mounts.
    pub(crate) async fn resolve(
        &self,
        name: &str,
        context: &SessionContext,
        host: Option<&Secrets>,
    ) -> Result<Resolved> {
        let (mut hidden, mut given) = (Vec::new(), Vec::new());
        let (target, shown) = match &self.target {
            Target::Command { command, args, cwd, env } => {
                let mut values = Vec::with_capacity(env.len());
                for (variable, value) in env {
                    let value = value.resolve(context, host, &mut hidden).await?;
                    given.push((variable, value.clone()));
                    if value.expose_secret().len() >= HIDDEN_MIN_BYTES {
                        hidden.push((format!("(value of {variable})"), value.clone()));
                    }
                    values.push((variable.clone(), value));
                }
                // A value may hold another.
                hidden.sort_by_key(|(_, value)| std::cmp::Reverse(value.expose_secret().len()));
                let shown = serde_json::json!(["stdio", command, args, cwd]);
                let (command, args, cwd) = (command.clone(), args.clone(), cwd.clone());
                (ResolvedTarget::Command { command, args, cwd, env: values }, shown)
            }
            Target::Url { url, headers } => {
                let mut values = HashMap::with_capacity(headers.len());
                for (header, value) in headers {
                    let value = value.resolve(context, host, &mut hidden).await?;
                    given.push((header, value.clone()));
                    let value = HeaderValue::try_from(value.expose_secret());
                    let (Ok(known), Ok(mut value)) = (HeaderName::try_from(header), value) else {
                        let why = "the value has characters that no header has";
                        return Err(fault(name, "headers", header, why));
                    };
                    value.set_sensitive(true);
                    values.insert(known, value);
                }
                let shown = serde_json::json!(["http", url]);
                (ResolvedTarget::Url { url: url.clone(), headers: values }, shown)
            }
        };
        let identity = shown.to_string();
        let given: Vec<_> = given.iter().map(|(name, value)| (name, value.expose_secret())).collect();
        let settings = serde_json::json!([identity, format!("{:?}", self.limits), given, self.always]);
        let settings = SecretString::from(settings.to_string());
        let settings = BlobName::of(settings.expose_secret().as_bytes());
        let (name, limits, always) = (name.to_owned(), self.limits, self.always.clone());
        Ok(Resolved { name, target, identity, hidden, settings, limits, always })
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("McpServer");
        match &self.target {
            Target::Command { command, args, env, .. } => {
                let names: Vec<_> = env.keys().collect();
                shown.field("command", command).field("args", &args.len()).field("env", &names)
            }
            Target::Url { url, headers } => {
                let host = Url::parse(url).ok().and_then(|url| Some(url.host_str()?.to_owned()));
                let names: Vec<_> = headers.keys().collect();
                shown.field("host", &host).field("headers", &names)
            }
        };
        shown.field("disabled", &self.disabled).finish_non_exhaustive()
    }
}

/// Headers that the transport sets.
const RESERVED: [&str; 8] = [
    "accept",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

fn fault(server: &str, table: &str, key: &str, why: &str) -> Error {
    Error::invalid(format!("mcp.{server}.{table}.{}: {why}", quoted(key)))
}

/// Returns whether a key seems to be meant as the table of the servers.
fn is_like_table(key: &str) -> bool {
    let plain: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
    matches!(plain.to_ascii_lowercase().as_str(), "mcpserver" | "mcpservers")
        || (key != TABLE && plain.eq_ignore_ascii_case(TABLE))
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_bad = name.is_empty()
        || name.len() > NAME_MAX_BYTES
        || !name.chars().all(is_plain)
        || name.contains("__")
        || name.starts_with('_')
        || name.ends_with('_');
    if is_bad {
        return Err(Error::invalid(format!(
            "MCP server {}: give it a name of 1 to {NAME_MAX_BYTES} ASCII letters, digits and -, with _ only between two of them",
            quoted(name)
        )));
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Kind {
    #[serde(rename = "stdio")]
    Stdio,
    #[serde(rename = "http", alias = "streamable-http", alias = "streamableHttp")]
    Http,
}

/// Server as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    #[serde(rename = "type")]
    kind: Option<Kind>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, Hidden>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, Hidden>,
    #[serde(default)]
    disabled: bool,
    connect_timeout: Option<Seconds>,
    list_timeout: Option<Seconds>,
    call_timeout: Option<Seconds>,
    message_max_bytes: Option<usize>,
    tools_max: Option<usize>,
    #[serde(default)]
    always: BTreeMap<String, String>,
}

impl RawServer {
    fn server(self, name: &str) -> Result<McpServer> {
        let wrong = |what: &str| Err(Error::invalid(format!("mcp.{name}: {what}")));
        let target = match (self.command, self.url) {
            (Some(command), None) if self.headers.is_empty() && self.kind != Some(Kind::Http) => {
                Target::Command { command, args: self.args, cwd: self.cwd, env: self.env }
            }
            (None, Some(url))
                if self.args.is_empty() && self.env.is_empty() && self.kind != Some(Kind::Stdio) =>
            {
                Target::Url { url, headers: self.headers }
            }
            // A layer may disable a server that no other layer has.
            (None, None) if self.disabled => return Ok(McpServer::command("disabled").with_disabled(true)),
            (None, None) => return wrong("it has neither command nor url; set one of them"),
            (Some(_), Some(_)) => return wrong("it has command and url; set one of them"),
            _ => {
                return wrong("command goes with args, cwd and env, and url with headers; remove the others");
            }
        };
        let mut server = McpServer { disabled: self.disabled, always: self.always, ..McpServer::of(target) };
        let limits = &mut server.limits;
        limits.connect = self.connect_timeout.map_or(limits.connect, |time| time.0);
        limits.list = self.list_timeout.map_or(limits.list, |time| time.0);
        limits.call = self.call_timeout.map_or(limits.call, |time| time.0);
        limits.message_bytes = self.message_max_bytes.unwrap_or(limits.message_bytes);
        limits.tools = self.tools_max.unwrap_or(limits.tools);
        Ok(server)
    }
}

/// Returns a text with a name of any length in it, which stands before what else is said, cut in its middle.
fn shortened(text: &str) -> Cow<'_, str> {
    const HEAD: usize = 80;
    const TAIL: usize = 220;
    if text.len() <= HEAD + TAIL {
        return Cow::Borrowed(text);
    }
    let (head, tail) = (text.floor_char_boundary(HEAD), text.ceil_char_boundary(text.len() - TAIL));
    Cow::Owned(format!("{}…{}", &text[..head], &text[tail..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_servers_are_named_without_their_values() {
        for (json, want) in [
            (r#"{"a":{}}"#, "mcp.a: it has neither command nor url; set one of them"),
            (r#"{"a":{"command":"x","url":"http://h"}}"#, "mcp.a: it has command and url"),
            (r#"{"a":{"command":"x","headers":{"A":"hunter22"}}}"#, "mcp.a: command goes with"),
            (r#"{"a":{"command":"x","env":{"K":77665544}}}"#, "mcp.a.env.K: the value must be a text"),
            (r#"{"a":{"command":77665544}}"#, "mcp.a.command: the value has the wrong type"),
            (r#"{"a":{"command":"x","comand":"hunter22"}}"#, "unknown field `comand`"),
            (r#"{"a":{"command":"x","env":{"K":"${secret:hunter22"}}}"#, "a secret is not closed"),
            (r#"{"a":{"command":"x","env":{"K":"${secret:hunt er22}"}}}"#, "the name of a secret is none"),
            (r#"{"a":{"command":"x","args":["${secret:hunter22}"]}}"#, "use env"),
            (r#"{"a":{"url":"https://h/${secret:hunter22}"}}"#, "use headers"),
            (r#"{"a":{"url":"https://me:hunter22@h/mcp"}}"#, "url holds a password"),
            (r#"{"a":{"url":"ftp://hunter22"}}"#, "url is no address"),
            (
                r#"{"a":{"url":"http://h","headers":{"Mcp-Session-Id":"hunter22"}}}"#,
                "that the protocol sets itself",
            ),
            (r#"{"a":{"command":"x","call_timeout":"hunter22"}}"#, "the value must be a number of seconds"),
            (r#"{"a":{"command":"x","call_timeout":0}}"#, "mcp.a: call_timeout: a time limit is zero"),
            (
                r#"{"a":{"command":"x","list_timeout":1e19}}"#,
                "mcp.a.list_timeout: the value must be a number",
            ),
            (r#"{"a":{"command":"x","list_timeout":1e300}}"#, "more than 0 and at most 86400"),
            (
                r#"{"a":{"command":"x","connect_timeout":-1}}"#,
                "mcp.a.connect_timeout: the value must be a number",
            ),
            (r#"{"a":{"command":"x","connect_timeout":86401}}"#, "at most 86400"),
            (r#"{"a":{"command":"x","message_max_bytes":99999999}}"#, "set 1 to 12582912 bytes"),
            (r#"{"a":{"command":"x","type":"http"}}"#, "command goes with"),
            (r#"{"a__b":{"command":"x"}}"#, "MCP server \"a__b\""),
            (r#"{"a_":{"command":"x"}}"#, "MCP server \"a_\""),
            (r#"{"":{"command":"x"}}"#, "MCP server \"\""),
            ("{", "at line 1"),
        ] {
            let error = McpServers::from_json(json).unwrap_err().to_string();
            assert!(error.contains(want), "{json}: {error}");
            assert!(!error.contains("hunter22") && !error.contains("77665544"), "{json}: {error}");
        }
    }

    #[test]
    fn errors_about_long_names_are_short() {
        let name = "é".repeat(2000);
        for json in [
            format!(r#"{{"a":{{"command":"x","{name}":1}}}}"#),
            format!(r#"{{"a":{{"command":"x","type":"{name}"}}}}"#),
            format!(r#"{{"a":{{"command":"x","env":{{"{name}":1}}}}}}"#),
            format!(r#"{{"{name}":{{"command":"x"}}}}"#),
        ] {
            let error = McpServers::from_json(&json).unwrap_err().to_string();
            assert!(error.len() < 700, "{} bytes: {error}", error.len());
        }
        let error = McpServers::from_json(&format!(r#"{{"a":{{"{name}":1}}}}"#)).unwrap_err().to_string();
        assert!(error.starts_with("mcp.a.éé") && error.ends_with("`always`"), "{error}");
    }

    #[test]
    fn values_are_not_shown() {
        let servers = McpServers::from_json(
            r#"{"mcpServers":{
                "a":{"command":"x","args":["--key=hunter22"],"env":{"K":"hunter22"}},
                "b":{"type":"http","url":"https://h/mcp?key=hunter22","headers":{"Authorization":"Bearer hunter22"}},
                "c":{"disabled":true}}}"#,
        )
        .unwrap();
        assert_eq!(servers.names().collect::<Vec<_>>(), ["a", "b"]);
        let shown = format!("{servers:?}");
        assert!(!shown.contains("hunter22") && shown.contains("Authorization"), "{shown}");
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        for (value, why) in [
            ("nan", "mcp.a.call_timeout: the value must be a finite number"),
            ("inf", "mcp.a.call_timeout: the value must be a finite number"),
            ("-inf", "mcp.a.call_timeout: the value must be a finite number"),
            (
                "1e19",
                "mcp.a.call_timeout: the value must be a number of seconds, more than 0 and at most 86400",
            ),
            ("9223372036854775807", "at most 86400"),
            ("-0.5", "more than 0"),
        ] {
            let text = format!("[mcp.a]\ncommand = 'x'\ncall_timeout = {value}");
            let config = ConfigLayers::new().with_global(&text).unwrap().merge(|_| None).unwrap();
            let error = McpServers::from_config(&config).unwrap_err().to_string();
            assert!(error.contains(why), "{value}: {error}");
        }
        for server in [
            McpServer::command("x").with_call_timeout(Duration::MAX),
            McpServer::command("x").with_list_timeout(TIMEOUT_MAX + Duration::from_nanos(1)),
            McpServer::url("http://h").with_connect_timeout(Duration::ZERO),
        ] {
            let error = McpServers::new().with_server("a", server).unwrap_err().to_string();
            assert!(error.contains("set 1 to 86400 seconds"), "{error}");
        }
        let longest = McpServer::command("x").with_call_timeout(TIMEOUT_MAX);
        assert!(McpServers::new().with_server("a", longest).is_ok());
    }

    #[test]
    fn servers_below_another_key_are_named() {
        for key in ["mcpServers", "mcp_servers", "mcp-servers", "MCP", "mcpServer"] {
            let config = ConfigLayers::new().with_global(&format!("[{key}.a]\ncommand = 'x'")).unwrap();
            let error = McpServers::from_config(&config.merge(|_| None).unwrap()).unwrap_err().to_string();
            assert!(error.contains(&format!("write [mcp.NAME] instead of [{key}.NAME]")), "{error}");
        }
    }

    #[test]
    fn layers_merge_and_are_protected() {
        let global =
            "[mcp.a]\ncommand = 'x'\nenv = { K = 'hunter22' }\ncall_timeout = 1.5\n[mcp.b]\nurl = 'http://h'";
        let merged = |workspace: &str| {
            let layers = ConfigLayers::new().with_global(global).unwrap().with_workspace(workspace).unwrap();
            McpServers::protect(layers).unwrap().merge(|_| None)
        };
        let config = merged("[mcp.a]\ncall_timeout = 7\n[mcp.b]\ndisabled = true").unwrap();
        assert!(!config.explain().contains("hunter22"));
        let servers = McpServers::from_config(&config).unwrap();
        assert_eq!(servers.names().collect::<Vec<_>>(), ["a"]);
        assert_eq!(servers.0["a"].limits.call, Duration::from_secs(7));
        for key in
            ["command = 'sh'", "args = ['-c']", "cwd = '/'", "url = 'http://evil'", "always = { t = '0' }"]
        {
            assert!(merged(&format!("[mcp.a]\n{key}")).is_err(), "{key}");
        }
        assert!(merged("[mcp.a.env]\nLD_PRELOAD = 'evil.so'").is_err());
        assert!(merged("[mcp.b.headers]\nHost = 'evil'").is_err());
        assert!(merged("mcp = 'none'").is_err());
    }
}
