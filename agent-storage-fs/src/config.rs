//! Location and options of a store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::setters;
use agent_core::store::{Registry, percent_decode, split_address};
use agent_core::text::quoted;
use agent_core::{Error, Result};
use etcetera::BaseStrategy;

use crate::io::{Io, RealIo};

/// Durability that a write has when it returns.
///
/// ```
/// use agent_storage_fs::Sync;
///
/// assert_eq!(Sync::default(), Sync::Full);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sync {
    /// Writes return when the disk has the data. Acknowledged writes survive `kill -9` and power loss.
    #[default]
    Full,
    /// Writes return when the operating system has the data. Acknowledged writes survive `kill -9`. Power loss or a
    /// crash of the system may lose about the last half minute of writes, and may leave damage in the middle of a
    /// session's log; such damage is reported, never hidden. For tests, and for data that can be created again.
    Off,
}

/// Options of an [`FsStore`](crate::FsStore).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// use agent_storage_fs::{FsConfig, Sync};
///
/// let store = FsConfig::new(folder.path()).with_sync(Sync::Off).open().await?;
/// assert_eq!(store.root(), folder.path());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct FsConfig {
    pub(crate) root: PathBuf,
    pub(crate) sync: Sync,
    pub(crate) lock_wait: Duration,
    pub(crate) open_sessions: usize,
    pub(crate) effects: Effects,
    pub(crate) io: Arc<dyn Io>,
    pub(crate) transcripts: bool,
    pub(crate) bindings_rewrite_max: u64,
    pub(crate) list_scan_max: usize,
    pub(crate) create: bool,
}

impl FsConfig {
    /// Default name of the data directory on each platform: `agent-sessions`.
    pub const DEFAULT_APP: &'static str = "agent-sessions";
    /// Default limit on how long a write waits for other processes: 30 seconds.
    pub const DEFAULT_LOCK_WAIT: Duration = Duration::from_secs(30);
    /// Longest time that a write waits for other processes: a day.
    pub const MAX_LOCK_WAIT: Duration = Duration::from_secs(24 * 3600);
    /// Default number of sessions that are kept open for writing: 128. Each takes two open files, and a third once it has run.
    pub const DEFAULT_OPEN_SESSIONS: usize = 128;

    /// Default bytes of `bindings.toml` up to which a change writes the whole file: 64 KiB.
    pub const DEFAULT_BINDINGS_REWRITE_MAX_BYTES: u64 = 64 << 10;

    /// Default number of sessions up to which a list looks at each of them: 64.
    pub const DEFAULT_LIST_SCAN_MAX: usize = 64;

    const OPTIONS: &'static str = "sync=full|off, lock_wait_ms=NUMBER, open_sessions=NUMBER, transcripts=true|false, create=true|false, app=NAME";

    /// Returns options for a store in the directory `root`. The first write creates the directory, accessible to its
    /// owner only.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// use std::time::Duration;
    /// use agent_core::ErrorKind;
    /// use agent_storage_fs::{FsConfig, Sync};
    ///
    /// let config = FsConfig::new(folder.path().join("agents"))
    ///     .with_sync(Sync::Off)
    ///     .with_lock_wait(Duration::from_secs(5))
    ///     .with_open_sessions(16)
    ///     .with_transcripts(false)
    ///     .with_create(false);
    /// let error = config.clone().open().await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::NotFound, "there is no store, and none is created");
    ///
    /// let store = config.with_create(true).open().await?;
    /// assert!(store.root().ends_with("agents"));
    /// # Ok(()) }
    /// ```
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            sync: Sync::Full,
            lock_wait: Self::DEFAULT_LOCK_WAIT,
            open_sessions: Self::DEFAULT_OPEN_SESSIONS,
            effects: Effects::default(),
            io: Arc::new(RealIo),
            transcripts: true,
            bindings_rewrite_max: Self::DEFAULT_BINDINGS_REWRITE_MAX_BYTES,
            list_scan_max: Self::DEFAULT_LIST_SCAN_MAX,
            create: true,
        }
    }

    /// Returns options for a store in the platform's data directory, under the name `app`: `~/.local/share/<app>` (or
    /// `$XDG_DATA_HOME/<app>`) on Linux, `~/Library/Application Support/<app>` on macOS, `%LOCALAPPDATA%\<app>` on
    /// Windows. The name `Aptove` opens the directory of the Aptove agent.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `app` is not a plain file name; `Unavailable` if the platform reports no home directory.
    ///
    /// ```
    /// use agent_storage_fs::FsConfig;
    ///
    /// let config = FsConfig::platform("my-agent")?;
    /// assert!(config.root().ends_with("my-agent"));
    /// assert!(FsConfig::platform("../my-agent").is_err());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn platform(app: &str) -> Result<Self> {
        let plain = !app.is_empty()
            && app.len() <= 64
            && !app.starts_with('.')
            && app.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_. ".contains(&b));
        if !plain {
            return Err(Error::invalid(
                "the application's name must be 1 to 64 letters, digits, blanks, -, _ and dots, and start with no dot",
            ));
        }
        let base = etcetera::base_strategy::choose_native_strategy().map_err(|source| {
            Error::unavailable("the home directory is not known; set HOME, or name a directory")
                .with_source(source)
        })?;
        let data = if cfg!(windows) { base.cache_dir() } else { base.data_dir() };
        Ok(Self::new(data.join(app)))
    }

    /// Parses options from a URL:
    /// `files:PATH?sync=full|off&lock_wait_ms=NUMBER&open_sessions=NUMBER&transcripts=true|false&create=true|false`.
    /// In the path, `%` and two hexadecimal digits stand for a byte. `files:?app=NAME` is the store in the
    /// platform's data directory, under that name; see [`platform`](Self::platform).
    ///
    /// ```
    /// use agent_storage_fs::FsConfig;
    ///
    /// let config = FsConfig::from_url("files:/var/lib/agent?sync=off")?;
    /// assert_eq!(config.root().to_str(), Some("/var/lib/agent"));
    /// let error = FsConfig::from_url("files:notes?synch=full").unwrap_err();
    /// assert!(error.to_string().contains("lock_wait_ms"));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the text is not such a URL, has neither a path nor `app`, or names an unknown option; the errors of
    /// [`platform`](Self::platform).
    pub fn from_url(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("files:").ok_or_else(|| {
            Error::invalid("this is no address of a store in files; write files:PATH".to_owned())
        })?;
        let (path, mut options) = split_address(rest.strip_prefix("//").unwrap_or(rest))?;
        let app = options.iter().position(|(name, _)| name == "app").map(|at| options.swap_remove(at).1);
        let mut config = match (percent_decode(path)?, app) {
            (path, None) if path.is_empty() => {
                return Err(Error::invalid(
                    "the address files: names no folder; write files:PATH, or files:?app=NAME for the data folder of the user"
                        .to_owned(),
                ));
            }
            (path, Some(app)) if path.is_empty() => Self::platform(&app)?,
            (_, Some(_)) => {
                return Err(Error::invalid(
                    "the address names a path and a program; leave one of the two out".to_owned(),
                ));
            }
            (path, None) => Self::new(path),
        };
        for (name, value) in options {
            config = config.with_option(&name, &value)?;
        }
        Ok(config)
    }

    /// Registers the addresses `files:PATH` in the registry.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let address = format!("files:{}", folder.path().display());
    /// use agent_core::store::{Registry, SessionQuery};
    /// use agent_storage_fs::FsConfig;
    ///
    /// let mut registry = Registry::new();
    /// FsConfig::register(&mut registry);
    /// let storage = registry.open(&address).await?;
    /// assert!(storage.sessions.list(SessionQuery::new()).await?.items.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn register(registry: &mut Registry) {
        registry.register("files", "files:PATH", Self::from_url);
    }

    /// Sets an option by its name in a URL.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the option is unknown or its value is invalid.
    ///
    /// ```
    /// use agent_storage_fs::FsConfig;
    ///
    /// let config = FsConfig::new("/var/lib/agent").with_option("lock_wait_ms", "5000")?;
    /// let error = config.with_option("lock_wait_ms", "soon").unwrap_err();
    /// assert!(error.to_string().starts_with("invalid value \"soon\" for option lock_wait_ms"));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn with_option(self, name: &str, value: &str) -> Result<Self> {
        let bad = || {
            let value = quoted(value);
            Error::invalid(format!("invalid value {value} for option {name}; supported: {}", Self::OPTIONS))
        };
        match (name, value) {
            ("sync", "full") => Ok(self.with_sync(Sync::Full)),
            ("sync", "off") => Ok(self.with_sync(Sync::Off)),
            ("transcripts", _) => Ok(self.with_transcripts(value.parse().map_err(|_| bad())?)),
            ("create", _) => Ok(self.with_create(value.parse().map_err(|_| bad())?)),
            ("lock_wait_ms", _) => {
                let wait = Duration::from_millis(value.parse().map_err(|_| bad())?);
                if wait > Self::MAX_LOCK_WAIT {
                    let most = Self::MAX_LOCK_WAIT.as_millis();
                    return Err(Error::invalid(format!(
                        "{value} is out of the range of option {name}; give 0 to {most}"
                    )));
                }
                Ok(self.with_lock_wait(wait))
            }
            ("open_sessions", _) => {
                let count = value.parse::<u16>().ok().filter(|count| *count > 0).ok_or_else(bad)?;
                Ok(self.with_open_sessions(usize::from(count)))
            }
            ("sync", _) => Err(bad()),
            _ => {
                Err(Error::invalid(format!("unknown option {}; supported: {}", quoted(name), Self::OPTIONS)))
            }
        }
    }

    setters! {
        /// Sets the durability that a write has when it returns. Default: [`Sync::Full`].
        pub fn with_sync(sync: Sync) => sync = sync;

        /// Sets how long a write waits for other processes before it fails with `Unavailable`. Default: 30 seconds. At most
        /// [`MAX_LOCK_WAIT`](Self::MAX_LOCK_WAIT), to which a longer time is reduced.
        pub fn with_lock_wait(wait: Duration) => lock_wait = wait.min(Self::MAX_LOCK_WAIT);

        /// Sets how many sessions are kept open for writing; at least one. Each takes two open files, and a third once it has run. Default: 128.
        pub fn with_open_sessions(count: usize) => open_sessions = count.max(1);

        /// Sets the source of time and randomness of the store itself. Default: the system clock and the system's randomness.
        /// Those of sessions, their times and ids, are set by [`Storage::with_effects`](agent_core::Storage::with_effects).
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
        /// # let folder = tempfile::tempdir().unwrap();
        /// use agent_core::Timestamp;
        /// use agent_core::clock::Effects;
        /// use agent_storage_fs::FsConfig;
        ///
        /// // A test gives the store the same clock and randomness each time.
        /// let effects = Effects::seeded(7, Timestamp::UNIX_EPOCH);
        /// let store = FsConfig::new(folder.path()).with_effects(effects).open().await?;
        /// # store.close().await?;
        /// # Ok(()) }
        /// ```
        pub fn with_effects(effects: Effects) => effects = effects;

        /// Sets up to how many bytes `bindings.toml` is written as a whole with each change of a binding; the default is 64 KiB,
        /// some 900 devices. Of a larger file, changes are appended to `bindings.changes`, until these are as large as the file.
        pub const fn with_bindings_rewrite_max_bytes(bytes: u64) => bindings_rewrite_max = bytes;

        /// Sets up to how many sessions a list looks at the log of each. Default: 64.
        ///
        /// Among more sessions, a process looks at each of them with its first list only. Later lists look at what processes
        /// that use this library have changed since, and at the sessions on the page: their cost does not grow with the number
        /// of sessions. What another program did to files of other sessions (a log that was damaged, a folder that was moved
        /// away) is seen after some lists, or at once by a list with [`with_hidden`] or [`with_total`], by
        /// [`check`](agent_core::store::Maintenance::check), and by a store that is opened.
        ///
        /// [`with_hidden`]: agent_core::store::SessionQuery::with_hidden
        /// [`with_total`]: agent_core::store::SessionQuery::with_total
        pub const fn with_list_scan_max(sessions: usize) => list_scan_max = sessions;

        /// Sets whether the store keeps a `session.md` for each main session. Default: `true`.
        pub fn with_transcripts(kept: bool) => transcripts = kept;

        /// Sets whether the store is created if it does not exist. Default: `true`. With `false`, [`open`](Self::open)
        /// fails with `NotFound` if the directory holds no store, so that a mistyped path is not mistaken for an empty
        /// store.
        pub fn with_create(create: bool) => create = create;

        /// Sets the I/O implementation that all file operations go through; for tests. Default:
        /// [`RealIo`](crate::io::RealIo).
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
        /// # let folder = tempfile::tempdir().unwrap();
        /// use std::sync::Arc;
        /// use agent_storage_fs::FsConfig;
        /// use agent_storage_fs::io::RealIo;
        ///
        /// let store = FsConfig::new(folder.path()).with_io(Arc::new(RealIo)).open().await?;
        /// # store.close().await?;
        /// # Ok(()) }
        /// ```
        pub fn with_io(io: Arc<dyn Io>) => io = io;
    }

    /// Returns the directory of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl fmt::Display for FsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::ErrorKind;

    /// Every option of an address has an effect, and an invalid value is refused.
    #[test]
    fn address_options_take_effect() {
        let config =
            FsConfig::from_url("files:/a%20b?sync=off&lock_wait_ms=7&open_sessions=3&transcripts=false");
        let config = config.unwrap();
        assert_eq!(config.to_string(), "/a b");
        assert_eq!((config.sync, config.lock_wait), (Sync::Off, Duration::from_millis(7)));
        assert_eq!((config.open_sessions, config.transcripts), (3, false));
        let config = config.with_option("sync", "full").unwrap().with_option("transcripts", "true").unwrap();
        assert_eq!((config.sync, config.transcripts), (Sync::Full, true));
        assert!(config.create && !config.with_option("create", "false").unwrap().create);
        for (option, expected) in [
            ("sync=maybe", "invalid value \"maybe\" for option sync"),
            ("lock_wait_ms=soon", "invalid value \"soon\" for option lock_wait_ms"),
            (
                "lock_wait_ms=86400001",
                "86400001 is out of the range of option lock_wait_ms; give 0 to 86400000",
            ),
            ("open_sessions=0", "invalid value \"0\" for option open_sessions"),
            ("transcripts=1", "invalid value \"1\" for option transcripts"),
            ("create=no", "invalid value \"no\" for option create"),
            ("synch=full", "unknown option \"synch\""),
            ("app=notes", "names a path and a program"),
        ] {
            let error = FsConfig::from_url(&format!("files:/notes?{option}")).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(expected), "{error}");
        }
        for option in [format!("sync={}", "x".repeat(5000)), "x".repeat(5000)] {
            let error = FsConfig::from_url(&format!("files:/notes?{option}")).unwrap_err().to_string();
            assert!(error.len() < 400 && error.contains("supported: "), "a quotation is cut: {error}");
        }
        assert_eq!(FsConfig::new("a").with_lock_wait(Duration::MAX).lock_wait, FsConfig::MAX_LOCK_WAIT);
        for nowhere in ["files:", "files://", "files:?sync=off"] {
            let error = FsConfig::from_url(nowhere).unwrap_err();
            assert!(error.to_string().contains("names no folder"), "{error}");
        }
        let other = FsConfig::from_url("files:?app=notes").unwrap();
        assert_eq!(other.root(), FsConfig::platform("notes").unwrap().root());
        let mut registry = Registry::new();
        FsConfig::register(&mut registry);
        assert!(registry.parse("files:/notes").is_ok());
    }
}
