//! Where the store lies and how it behaves.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_core::clock::Effects;
use agent_core::store::{Registry, decoded, parts};
use agent_core::{Error, ErrorKind, Result};
use etcetera::BaseStrategy;

use crate::io::{Io, RealIo};

/// When a write counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sync {
    /// When the disk has it. What was acknowledged survives `kill -9` and the loss of power.
    #[default]
    Full,
    /// When the operating system has it. What was acknowledged survives `kill -9`; the loss of power, or a crash of
    /// the system, may take the last half minute or so, and may leave a session's log damaged in its middle
    /// (reported, never hidden). For tests, and for what can be made again.
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
    pub(crate) create: bool,
}

impl FsConfig {
    /// The name of the data directory on each platform, unless another is asked for.
    pub const DEFAULT_APP: &'static str = "agent-sessions";
    /// How long a write waits for other processes, unless set.
    pub const DEFAULT_LOCK_WAIT: Duration = Duration::from_secs(30);
    /// How many sessions are kept open for writing, unless set. Each takes two open files.
    pub const DEFAULT_OPEN_SESSIONS: usize = 128;

    const OPTIONS: &'static str = "sync=full|off, lock_wait_ms=NUMBER, open_sessions=NUMBER, transcripts=true|false, create=true|false, app=NAME";

    /// A store in the directory `root`, which is made, for its owner only, by the first write.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            sync: Sync::Full,
            lock_wait: Self::DEFAULT_LOCK_WAIT,
            open_sessions: Self::DEFAULT_OPEN_SESSIONS,
            effects: Effects::default(),
            io: Arc::new(RealIo),
            transcripts: true,
            create: true,
        }
    }

    /// A store in the platform's data directory, under the name `app`: `~/.local/share/<app>` (or
    /// `$XDG_DATA_HOME/<app>`) on Linux, `~/Library/Application Support/<app>` on macOS, `%LOCALAPPDATA%\<app>` on
    /// Windows. `Aptove` opens the directory of that program.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where `app` is no plain file name; `Unavailable` where the platform tells no home directory.
    pub fn platform(app: &str) -> Result<Self> {
        let plain = !app.is_empty()
            && app.len() <= 64
            && !app.starts_with('.')
            && app.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_. ".contains(&b));
        if !plain {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the application's name must be 1 to 64 letters, digits, blanks, -, _ and dots, and start with no dot",
            ));
        }
        let base = etcetera::base_strategy::choose_native_strategy().map_err(|source| {
            Error::new(
                ErrorKind::Unavailable,
                "the home directory is not known; set HOME, or name a directory",
            )
            .with_source(source)
        })?;
        let data = if cfg!(windows) { base.cache_dir() } else { base.data_dir() };
        Ok(Self::new(data.join(app)))
    }

    /// Options from a URL: `files:PATH?sync=full|off&lock_wait_ms=NUMBER&open_sessions=NUMBER&transcripts=true|false&create=true|false`.
    /// In the path, `%` and two hexadecimal digits stand for a byte. Without a path it is the platform's data directory, of
    /// [`DEFAULT_APP`](Self::DEFAULT_APP) or of another program: `files:?app=Aptove`.
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
    /// `InvalidInput` where it is no such URL, or names an option that there is not; those of
    /// [`platform`](Self::platform).
    pub fn from_url(url: &str) -> Result<Self> {
        let rest = url
            .strip_prefix("files:")
            .ok_or_else(|| invalid("this is no address of a store in files; write files:PATH".to_owned()))?;
        let (path, mut options) = parts(rest.strip_prefix("//").unwrap_or(rest))?;
        let app = options.iter().position(|(name, _)| name == "app").map(|at| options.swap_remove(at).1);
        let mut config = match (decoded(path)?, app) {
            (path, None) if path.is_empty() => Self::platform(Self::DEFAULT_APP)?,
            (path, Some(app)) if path.is_empty() => Self::platform(&app)?,
            (_, Some(_)) => {
                return Err(invalid(
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

    /// Makes `files:PATH` known.
    pub fn register(registry: &mut Registry) {
        registry.register("files", "files:PATH", Self::from_url);
    }

    /// Sets an option by its name in a URL.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where there is no such option, or the value is none of its.
    pub fn with_option(self, name: &str, value: &str) -> Result<Self> {
        let bad = || invalid(format!("{value:?} is no value of {name}; known are {}", Self::OPTIONS));
        match (name, value) {
            ("sync", "full") => Ok(self.with_sync(Sync::Full)),
            ("sync", "off") => Ok(self.with_sync(Sync::Off)),
            ("transcripts", _) => Ok(self.with_transcripts(value.parse().map_err(|_| bad())?)),
            ("create", _) => Ok(self.with_create(value.parse().map_err(|_| bad())?)),
            ("lock_wait_ms", _) => {
                let millis = value.parse::<u32>().map_err(|_| bad())?;
                Ok(self.with_lock_wait(Duration::from_millis(u64::from(millis))))
            }
            ("open_sessions", _) => {
                let count = value.parse::<u16>().ok().filter(|count| *count > 0).ok_or_else(bad)?;
                Ok(self.with_open_sessions(usize::from(count)))
            }
            ("sync", _) => Err(bad()),
            _ => Err(invalid(format!("there is no option {name:?}; known are {}", Self::OPTIONS))),
        }
    }

    /// Sets when a write counts as done.
    #[must_use]
    pub fn with_sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// Sets how long a write waits for other processes before it fails with `Unavailable`.
    #[must_use]
    pub fn with_lock_wait(mut self, wait: Duration) -> Self {
        self.lock_wait = wait;
        self
    }

    /// Sets how many sessions are kept open for writing; at least one. Each takes two open files.
    #[must_use]
    pub fn with_open_sessions(mut self, count: usize) -> Self {
        self.open_sessions = count.max(1);
        self
    }

    /// Sets where the time and randomness come from.
    #[must_use]
    pub fn with_effects(mut self, effects: Effects) -> Self {
        self.effects = effects;
        self
    }

    /// Sets whether the main sessions' `session.md` are kept; they are, unless set.
    #[must_use]
    pub fn with_transcripts(mut self, kept: bool) -> Self {
        self.transcripts = kept;
        self
    }

    /// Sets whether a store is made if there is none; it is, unless set to `false`. Then [`open`](Self::open) fails with
    /// `NotFound` if the directory holds no store, so that a mistyped path is not taken for an empty store.
    #[must_use]
    pub fn with_create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets through what files are reached; for tests.
    #[must_use]
    pub fn with_io(mut self, io: Arc<dyn Io>) -> Self {
        self.io = io;
        self
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl fmt::Display for FsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.display().fmt(f)
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every option of an address has its effect, and a value that is none of its is refused.
    #[test]
    fn options_of_an_address_have_their_effect() {
        let config =
            FsConfig::from_url("files:/a%20b?sync=off&lock_wait_ms=7&open_sessions=3&transcripts=false");
        let config = config.unwrap();
        assert_eq!(config.to_string(), "/a b");
        assert_eq!((config.sync, config.lock_wait), (Sync::Off, Duration::from_millis(7)));
        assert_eq!((config.open_sessions, config.transcripts), (3, false));
        let config = config.with_option("sync", "full").unwrap().with_option("transcripts", "true").unwrap();
        assert_eq!((config.sync, config.transcripts), (Sync::Full, true));
        assert!(config.create && !config.with_option("create", "false").unwrap().create);
        for (option, said) in [
            ("sync=maybe", "\"maybe\" is no value of sync"),
            ("lock_wait_ms=soon", "\"soon\" is no value of lock_wait_ms"),
            ("open_sessions=0", "\"0\" is no value of open_sessions"),
            ("transcripts=1", "\"1\" is no value of transcripts"),
            ("create=no", "\"no\" is no value of create"),
            ("synch=full", "there is no option \"synch\""),
            ("app=notes", "names a path and a program"),
        ] {
            let error = FsConfig::from_url(&format!("files:/notes?{option}")).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(said), "{error}");
        }
        let platform = FsConfig::platform(FsConfig::DEFAULT_APP).unwrap();
        assert_eq!(FsConfig::from_url("files:").unwrap().root(), platform.root());
        let other = FsConfig::from_url("files:?app=notes").unwrap();
        assert_eq!(other.root(), FsConfig::platform("notes").unwrap().root());
        let mut registry = Registry::new();
        FsConfig::register(&mut registry);
        assert!(registry.address("files:/notes").is_ok());
    }
}
