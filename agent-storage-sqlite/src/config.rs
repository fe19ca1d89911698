//! Location and options of a store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::setters;
use agent_core::store::{Registry, percent_decode, split_address};
use agent_core::text::quoted;
use agent_core::{Error, Result};

/// Durability that a write has when it returns.
///
/// ```
/// use agent_storage_sqlite::Sync;
///
/// assert_eq!(Sync::default(), Sync::Full);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sync {
    /// Writes return when the disk has the data. Acknowledged writes survive `kill -9` and power loss.
    #[default]
    Full,
    /// Writes return when the operating system has the data; the disk is synced only now and then. Acknowledged writes
    /// survive `kill -9`. Power loss may lose the last commits, but damages nothing.
    Normal,
    /// Writes return when the operating system has the data; the disk is never synced. Acknowledged writes survive
    /// `kill -9`. Power loss may damage the whole file. For tests, and for data that can be created again.
    Off,
}

/// Options of a [`SqliteStore`](crate::SqliteStore).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("agent.db");
/// use agent_storage_sqlite::{SqliteConfig, Sync};
///
/// let store = SqliteConfig::new(&path).with_sync(Sync::Normal).open().await?;
/// assert_eq!(store.path(), path);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SqliteConfig {
    pub(crate) path: PathBuf,
    pub(crate) sync: Sync,
    pub(crate) busy_timeout: Duration,
    pub(crate) readers: usize,
    pub(crate) reader_cache_kib: u32,
    pub(crate) writer_cache_kib: u32,
    pub(crate) max_pages: Option<u32>,
    pub(crate) effects: Effects,
    pub(crate) create: bool,
    /// Access to the file; known once it is open.
    pub(crate) access: Access,
}

/// Access that the store has to the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    #[default]
    Write,
    /// Read only, with the write-ahead log and its index that exist beside the file.
    Read,
    /// Read only, with nothing beside the file that must be read too. SQLite neither looks for a log nor creates one.
    Still,
}

impl SqliteConfig {
    /// Default limit on how long an operation waits for other processes: 30 seconds.
    pub const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(30);
    /// Default limit on the reads that run on threads at the same time: 4. Each takes a thread and a page cache.
    pub const DEFAULT_READERS: usize = 4;
    /// Default cache size of a reading connection: 1,024 KiB. There is one connection for each reader thread and one
    /// for reads on the caller's thread. A larger cache would only duplicate the system's.
    pub const DEFAULT_READER_CACHE_KIB: u32 = 1 << 10;
    /// Default cache size of the writing connection: 16,384 KiB. It holds the pages that a group of commits changes, so
    /// that each is written once.
    pub const DEFAULT_WRITER_CACHE_KIB: u32 = 16 << 10;

    /// Longest time that a write waits for other processes: a day.
    pub const MAX_BUSY_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

    const OPTIONS: &'static str =
        "sync=full|normal|off, busy_timeout_ms=NUMBER, readers=NUMBER, cache_kib=NUMBER, create=true|false";

    /// Returns options for a store in the file `path`. Opening the store creates the file, accessible to its owner
    /// only.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("agent.db");
    /// use std::time::Duration;
    /// use agent_core::ErrorKind;
    /// use agent_storage_sqlite::{SqliteConfig, Sync};
    ///
    /// let config = SqliteConfig::new(&path)
    ///     .with_sync(Sync::Normal)
    ///     .with_busy_timeout(Duration::from_secs(5))
    ///     .with_readers(8)
    ///     .with_cache_kib(4096)
    ///     .with_max_pages(262_144) // 1 GiB
    ///     .with_create(false);
    /// let error = config.clone().open().await.unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::NotFound, "there is no store, and none is created");
    ///
    /// let store = config.with_create(true).open().await?;
    /// assert_eq!(store.path(), path);
    /// # Ok(()) }
    /// ```
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            sync: Sync::Full,
            busy_timeout: Self::DEFAULT_BUSY_TIMEOUT,
            readers: Self::DEFAULT_READERS,
            reader_cache_kib: Self::DEFAULT_READER_CACHE_KIB,
            writer_cache_kib: Self::DEFAULT_WRITER_CACHE_KIB,
            max_pages: None,
            effects: Effects::default(),
            create: true,
            access: Access::Write,
        }
    }

    /// Parses options from a URL:
    /// `sqlite:PATH?sync=full|normal|off&busy_timeout_ms=NUMBER&readers=NUMBER&cache_kib=NUMBER&create=true|false`. In
    /// the path, `%` and two hexadecimal digits stand for a byte.
    ///
    /// ```
    /// use agent_storage_sqlite::SqliteConfig;
    ///
    /// let config = SqliteConfig::from_url("sqlite:/var/lib/agent/agent.db?sync=normal&readers=8")?;
    /// assert_eq!(config.path().to_str(), Some("/var/lib/agent/agent.db"));
    /// let error = SqliteConfig::from_url("sqlite:agent.db?synch=full").unwrap_err();
    /// assert!(error.to_string().contains("busy_timeout_ms"));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the text is not such a URL, or names an unknown option.
    pub fn from_url(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("sqlite:").ok_or_else(|| {
            Error::invalid("this is no address of a SQLite store; write sqlite:PATH".to_owned())
        })?;
        let (path, options) = split_address(rest.strip_prefix("//").unwrap_or(rest))?;
        let path = percent_decode(path)?;
        if path.is_empty() {
            return Err(Error::invalid("the address names no file; write sqlite:PATH".to_owned()));
        }
        let mut config = Self::new(path);
        for (name, value) in options {
            config = config.with_option(&name, &value)?;
        }
        Ok(config)
    }

    /// Registers the addresses `sqlite:PATH` in the registry.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("agent.db");
    /// # let address = format!("sqlite:{}", path.display());
    /// use agent_core::store::{Registry, SessionQuery};
    /// use agent_storage_sqlite::SqliteConfig;
    ///
    /// let mut registry = Registry::new();
    /// SqliteConfig::register(&mut registry);
    /// let storage = registry.open(&address).await?;
    /// assert!(storage.sessions.list(SessionQuery::new()).await?.items.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn register(registry: &mut Registry) {
        registry.register("sqlite", "sqlite:PATH", Self::from_url);
    }

    /// Sets an option by its name in a URL.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the option is unknown or its value is invalid.
    ///
    /// ```
    /// use agent_storage_sqlite::SqliteConfig;
    ///
    /// let config = SqliteConfig::new("agent.db").with_option("busy_timeout_ms", "5000")?;
    /// let error = config.with_option("readers", "many").unwrap_err();
    /// assert!(error.to_string().starts_with("invalid value \"many\" for option readers"));
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn with_option(self, name: &str, value: &str) -> Result<Self> {
        let bad = || {
            let value = quoted(value);
            Error::invalid(format!("invalid value {value} for option {name}; supported: {}", Self::OPTIONS))
        };
        match name {
            "sync" => Ok(self.with_sync(match value {
                "full" => Sync::Full,
                "normal" => Sync::Normal,
                "off" => Sync::Off,
                _ => return Err(bad()),
            })),
            "busy_timeout_ms" => {
                let timeout = Duration::from_millis(value.parse().map_err(|_| bad())?);
                if timeout > Self::MAX_BUSY_TIMEOUT {
                    return Err(beyond(name, value, 0, Self::MAX_BUSY_TIMEOUT.as_millis()));
                }
                Ok(self.with_busy_timeout(timeout))
            }
            "readers" => {
                let readers = value.parse::<u16>().ok().filter(|readers| *readers > 0).ok_or_else(bad)?;
                Ok(self.with_readers(usize::from(readers)))
            }
            "create" => Ok(self.with_create(value.parse().map_err(|_| bad())?)),
            "cache_kib" => {
                let kib = value.parse::<u32>().ok().filter(|kib| *kib > 0).ok_or_else(bad)?;
                if kib > MAX_CACHE_KIB {
                    return Err(beyond(name, value, 1, u128::from(MAX_CACHE_KIB)));
                }
                Ok(self.with_cache_kib(kib))
            }
            _ => {
                Err(Error::invalid(format!("unknown option {}; supported: {}", quoted(name), Self::OPTIONS)))
            }
        }
    }

    setters! {
        /// Sets the durability that a write has when it returns. Default: [`Sync::Full`].
        pub fn with_sync(sync: Sync) => sync = sync;

        /// Sets how long an operation waits for other processes before it fails with `Unavailable`. Default: 30 seconds. At
        /// most [`MAX_BUSY_TIMEOUT`](Self::MAX_BUSY_TIMEOUT), to which a longer time is reduced.
        pub fn with_busy_timeout(timeout: Duration) => busy_timeout = timeout.min(Self::MAX_BUSY_TIMEOUT);

        /// Sets how many reads may run on threads at the same time; at least one. Each takes a thread and a page cache.
        /// Default: 4.
        pub fn with_readers(readers: usize) => readers = readers.max(1);
    }

    /// Sets the cache size of each connection, in KiB: 1 to 2,147,483,647, into which other values are moved. Pages
    /// that are not cached are read again, usually from the system's cache. Default: 1,024 for reading connections,
    /// 16,384 for the writing one.
    #[must_use]
    pub fn with_cache_kib(mut self, kib: u32) -> Self {
        let kib = kib.clamp(1, MAX_CACHE_KIB);
        (self.reader_cache_kib, self.writer_cache_kib) = (kib, kib);
        self
    }

    setters! {
        /// Sets the size limit of the file, in pages of 4 KiB. A write beyond it fails with `Full`. Default: no limit but
        /// that of SQLite.
        pub fn with_max_pages(pages: u32) => max_pages = Some(pages);

        /// Sets whether the store is created if it does not exist. Default: `true`. With `false`, [`open`](Self::open)
        /// fails with `NotFound` if there is no file or an empty one, so that a mistyped path is not mistaken for an empty
        /// store.
        pub fn with_create(create: bool) => create = create;

        /// Sets the source of randomness of the store itself. Default: that of the system.
        /// Those of sessions, their times and ids, are set by [`Storage::with_effects`](agent_core::Storage::with_effects).
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
        /// # let folder = tempfile::tempdir().unwrap();
        /// # let path = folder.path().join("agent.db");
        /// use agent_core::Timestamp;
        /// use agent_core::clock::Effects;
        /// use agent_storage_sqlite::SqliteConfig;
        ///
        /// // A test gives the store the same randomness each time.
        /// let effects = Effects::seeded(7, Timestamp::UNIX_EPOCH);
        /// let store = SqliteConfig::new(&path).with_effects(effects).open().await?;
        /// # store.close().await?;
        /// # Ok(()) }
        /// ```
        pub fn with_effects(effects: Effects) => effects = effects;
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for SqliteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// Largest cache size that SQLite takes.
const MAX_CACHE_KIB: u32 = i32::MAX as u32;

/// Error for a value of an option that is out of its range.
fn beyond(name: &str, value: &str, least: u32, most: u128) -> Error {
    Error::invalid(format!("{value} is out of the range of option {name}; give {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::ErrorKind;

    /// A value of an address that is out of its range is refused by name, and the largest one is taken. The setters
    /// reduce it, as documented.
    #[test]
    fn values_out_of_range_are_refused() {
        for (option, expected) in [
            (
                "busy_timeout_ms=86400001",
                "86400001 is out of the range of option busy_timeout_ms; give 0 to 86400000",
            ),
            ("busy_timeout_ms=9999999999999", "out of the range of option busy_timeout_ms"),
            (
                "cache_kib=2147483648",
                "2147483648 is out of the range of option cache_kib; give 1 to 2147483647",
            ),
        ] {
            let error = SqliteConfig::from_url(&format!("sqlite:a.db?{option}")).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{option}");
            assert!(error.to_string().contains(expected), "{error}");
        }
        let most =
            SqliteConfig::from_url("sqlite:a.db?busy_timeout_ms=86400000&cache_kib=2147483647").unwrap();
        assert_eq!(most.busy_timeout, SqliteConfig::MAX_BUSY_TIMEOUT);
        let more = SqliteConfig::new("a.db").with_busy_timeout(Duration::MAX);
        assert_eq!(more.busy_timeout, SqliteConfig::MAX_BUSY_TIMEOUT);
    }

    /// An address may be long, or that of another program with a secret in it.
    #[test]
    fn errors_do_not_repeat_the_address() {
        for option in [format!("sync={}", "x".repeat(5000)), "x".repeat(5000)] {
            let error = SqliteConfig::from_url(&format!("sqlite:a.db?{option}")).unwrap_err().to_string();
            assert!(error.len() < 400 && error.contains("supported: "), "a quotation is cut: {error}");
        }
        let error = SqliteConfig::from_url("postgres://ada:hidden@db/agent").unwrap_err().to_string();
        assert!(error.contains("write sqlite:PATH") && !error.contains("hidden"), "{error}");
    }
}
