//! Where the file lies and how the store behaves.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::store::{Registry, decoded, parts};
use agent_core::{Error, ErrorKind, Result};

/// When a write counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sync {
    /// When the disk has it. What was acknowledged survives `kill -9` and the loss of power.
    #[default]
    Full,
    /// When the operating system has it; the disk is waited for only now and then. What was acknowledged survives
    /// `kill -9`; the loss of power may take the last commits, and damages nothing.
    Normal,
    /// When the operating system has it; the disk is never waited for. What was acknowledged survives `kill -9`; the
    /// loss of power may damage the whole file. For tests, and for what can be made again.
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
    /// How the file is opened; known once it is open.
    pub(crate) access: Access,
}

/// What may be done with the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    #[default]
    Write,
    /// Read only, over the log and its index that are beside it.
    Read,
    /// Read only, and nothing is beside it that would have to be read, too: SQLite looks for no log, and makes none.
    Still,
}

impl SqliteConfig {
    /// How long a write waits for other processes, unless set.
    pub const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(30);
    /// How many reads may go on at once on threads, unless set. Each takes a thread and a page cache.
    pub const DEFAULT_READERS: usize = 4;
    /// How much of the file a connection that reads keeps in memory at the most, unless set. There is one for each thread
    /// that reads, and one for what is read at once. More would be a second copy of what the system keeps.
    pub const DEFAULT_READER_CACHE_KIB: u32 = 1 << 10;
    /// How much of the file the connection that writes keeps in memory at the most, unless set: what a group of commits
    /// changes, so that it is written once.
    pub const DEFAULT_WRITER_CACHE_KIB: u32 = 16 << 10;

    const OPTIONS: &'static str =
        "sync=full|normal|off, busy_timeout_ms=NUMBER, readers=NUMBER, cache_kib=NUMBER, create=true|false";

    /// A store in the file `path`, which is made, for its owner only, when the store is opened.
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

    /// Options from a URL: `sqlite:PATH?sync=full|normal|off&busy_timeout_ms=NUMBER&readers=NUMBER&cache_kib=NUMBER&create=true|false`.
    /// In the path, `%` and two hexadecimal digits stand for a byte.
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
    /// `InvalidInput` where it is no such URL, or names an option that there is not.
    pub fn from_url(url: &str) -> Result<Self> {
        let rest = url
            .strip_prefix("sqlite:")
            .ok_or_else(|| invalid(format!("{url:?} is no address of a SQLite store; write sqlite:PATH")))?;
        let (path, options) = parts(rest.strip_prefix("//").unwrap_or(rest))?;
        let path = decoded(path)?;
        if path.is_empty() {
            return Err(invalid("the address names no file; write sqlite:PATH".to_owned()));
        }
        let mut config = Self::new(path);
        for (name, value) in options {
            config = config.with_option(&name, &value)?;
        }
        Ok(config)
    }

    /// Makes `sqlite:PATH` known.
    pub fn register(registry: &mut Registry) {
        registry.register("sqlite", "sqlite:PATH", Self::from_url);
    }

    /// Sets an option by its name in a URL.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where there is no such option, or the value is none of its.
    pub fn with_option(self, name: &str, value: &str) -> Result<Self> {
        let bad = || invalid(format!("{value:?} is no value of {name}; known are {}", Self::OPTIONS));
        match name {
            "sync" => Ok(self.with_sync(match value {
                "full" => Sync::Full,
                "normal" => Sync::Normal,
                "off" => Sync::Off,
                _ => return Err(bad()),
            })),
            "busy_timeout_ms" => {
                let millis = value.parse::<u32>().map_err(|_| bad())?;
                Ok(self.with_busy_timeout(Duration::from_millis(u64::from(millis))))
            }
            "readers" => {
                let readers = value.parse::<u16>().ok().filter(|readers| *readers > 0).ok_or_else(bad)?;
                Ok(self.with_readers(usize::from(readers)))
            }
            "create" => Ok(self.with_create(value.parse().map_err(|_| bad())?)),
            "cache_kib" => {
                let kib = value.parse::<u32>().ok().filter(|kib| *kib > 0).ok_or_else(bad)?;
                Ok(self.with_cache_kib(kib))
            }
            _ => Err(invalid(format!("there is no option {name:?}; known are {}", Self::OPTIONS))),
        }
    }

    /// Sets when a write counts as done.
    #[must_use]
    pub fn with_sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// Sets how long an operation waits for other processes before it fails with `Unavailable`.
    #[must_use]
    pub fn with_busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout.min(Duration::from_secs(24 * 3600));
        self
    }

    /// Sets how many reads may go on at once on threads; at least one. Each takes a thread and a page cache.
    #[must_use]
    pub fn with_readers(mut self, readers: usize) -> Self {
        self.readers = readers.max(1);
        self
    }

    /// Sets how much of the file each connection keeps in memory at the most; at least 1 KiB. What is not there is read
    /// anew, most often from the system's own cache.
    #[must_use]
    pub fn with_cache_kib(mut self, kib: u32) -> Self {
        let kib = kib.clamp(1, i32::MAX as u32);
        (self.reader_cache_kib, self.writer_cache_kib) = (kib, kib);
        self
    }

    /// Sets the most pages of 4 KiB that the file may have; a write beyond fails with `Full`.
    #[must_use]
    pub fn with_max_pages(mut self, pages: u32) -> Self {
        self.max_pages = Some(pages);
        self
    }

    /// Sets whether a store is made if there is none; it is, unless set to `false`. Then [`open`](Self::open) fails with
    /// `NotFound` if there is no file or an empty one, so that a mistyped path is not taken for an empty store.
    #[must_use]
    pub fn with_create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets where randomness comes from.
    #[must_use]
    pub fn with_effects(mut self, effects: Effects) -> Self {
        self.effects = effects;
        self
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for SqliteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}
