//! Root keys of the host.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use agent_core::clock::Effects;
use agent_core::{Error, ErrorKind, Result};
use zeroize::Zeroizing;

use crate::cipher::{Cipher, SECRET_BYTES, Secret};

/// Root keys of the host: the current one, by which keys of tenants are wrapped, and older ones, which open what was wrapped
/// before a rotation. Cloning is cheap.
///
/// Keep a copy of the root key apart from the store and its backups: without it nothing that is sealed can be read.
///
/// ```
/// use agent_vault::KeyRing;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let (path, next) = (folder.path().join("root.key"), folder.path().join("next.key"));
/// let ring = KeyRing::generate_file(&path)?;
/// assert_eq!(KeyRing::from_file(&path)?.current_id(), ring.current_id());
///
/// // For a rotation: the new key is the current one, and the former one opens what it wrapped.
/// let rotated = KeyRing::generate_file(&next)?.with_older(ring);
/// assert_eq!(rotated.ids().len(), 2);
/// # Ok::<(), agent_core::Error>(())
/// ```
#[must_use]
#[derive(Clone, Debug)]
pub struct KeyRing {
    current: Arc<Cipher>,
    older: Vec<Arc<Cipher>>,
}

/// Id of a root key: 16 hexadecimal digits, which are derived from the key and reveal nothing of it.
///
/// ```
/// use agent_vault::KeyRing;
///
/// let id = KeyRing::from_bytes([7; 32]).current_id();
/// assert_eq!(id.as_str().len(), 16);
/// assert_ne!(id, KeyRing::from_bytes([8; 32]).current_id());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(Box<str>);

impl KeyId {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

impl KeyRing {
    /// Creates a ring of one root key, which must be random.
    pub fn from_bytes(key: [u8; 32]) -> Self {
        Self::of(&Zeroizing::new(key))
    }

    fn of(key: &Secret) -> Self {
        Self { current: Arc::new(Cipher::new(key)), older: Vec::new() }
    }

    /// Makes a random root key, and a new file of it that only its owner may read; durable on return.
    ///
    /// The file is one line of 64 hexadecimal digits. It is there completely or not at all. Blocks.
    ///
    /// # Errors
    ///
    /// `Conflict` if the path exists; `Denied`, `Full` or `Unavailable` from the file system.
    pub fn generate_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut key = Secret::default();
        Effects::default().fill(&mut *key);
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = Zeroizing::new(format!("{digits}\n"));
        drop(Zeroizing::new(digits));
        put_new(path, line.as_bytes()).map_err(|error| failed("made", path, error))?;
        Ok(Self::of(&key))
    }

    /// Reads the root key of a file that [`generate_file`](Self::generate_file) has made. A link is followed. Blocks.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such file; `Denied` if others than its owner may read or change it, or this process may not;
    /// `InvalidInput` if it is no regular file, or not one line of 64 hexadecimal digits. No error shows what the file holds.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        // Before it is opened: to open a pipe waits for whoever writes to it.
        let found = fs::metadata(path).map_err(|error| failed("read", path, error))?;
        check_file(path, &found)?;
        let file = File::open(path).map_err(|error| failed("read", path, error))?;
        check_file(path, &file.metadata().map_err(|error| failed("read", path, error))?)?;
        let mut text = Zeroizing::new(Vec::with_capacity(LONGEST));
        file.take(LONGEST as u64).read_to_end(&mut text).map_err(|error| failed("read", path, error))?;
        Self::from_hex(&text, &format_args!("root key file {}", path.display()))
    }

    /// Reads the root key of an environment variable: 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is not set; `InvalidInput` if it is not 64 hexadecimal digits. No error shows its value.
    pub fn from_env(name: &str) -> Result<Self> {
        let object = format_args!("environment variable {name}");
        let Some(value) = std::env::var_os(name) else {
            return Err(Error::not_found(format!(
                "{object} is not set; set it to a root key of 64 hexadecimal digits"
            )));
        };
        let value = Zeroizing::new(value.into_encoded_bytes());
        Self::from_hex(&value, &object)
    }

    /// Derives a root key from a passphrase by Argon2id, with 64 MiB of memory, 3 passes and 4 lanes (the second choice of
    /// [RFC 9106](https://www.rfc-editor.org/rfc/rfc9106#section-4)). These parameters never change. Blocks for some tenths of a
    /// second.
    ///
    /// The salt is not secret: random bytes, made once and kept beside the store. The key is as hard to guess as the passphrase.
    ///
    /// ```
    /// use agent_vault::KeyRing;
    ///
    /// let ring = KeyRing::from_passphrase(&"correct horse battery staple".into(), b"16 random bytes.")?;
    /// # let _ = ring;
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an empty passphrase, and for a salt of less than 16 or more than 64 bytes.
    #[cfg(feature = "passphrase")]
    pub fn from_passphrase(passphrase: &secrecy::SecretString, salt: &[u8]) -> Result<Self> {
        use secrecy::ExposeSecret;

        let passphrase = passphrase.expose_secret().as_bytes();
        if passphrase.is_empty() {
            return Err(Error::invalid(
                "the passphrase of the root key is empty; give one that is hard to guess",
            ));
        }
        if !(16..=64).contains(&salt.len()) {
            let text =
                format!("the salt of the root key has {} bytes; give 16 to 64 random ones", salt.len());
            return Err(Error::invalid(text));
        }
        let wrong = |error| Error::invalid(format!("the root key cannot be derived: {error}"));
        let parameters = argon2::Params::new(64 << 10, 3, 4, Some(SECRET_BYTES)).map_err(wrong)?;
        let argon = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, parameters);
        let mut key = Secret::default();
        argon.hash_password_into(passphrase, salt, &mut *key).map_err(wrong)?;
        Ok(Self::of(&key))
    }

    /// Adds the root keys of another ring as older ones, which only open.
    pub fn with_older(mut self, older: Self) -> Self {
        for key in [older.current].into_iter().chain(older.older) {
            if self.find(key.key_id()).is_none() {
                self.older.push(key);
            }
        }
        self
    }

    /// Returns the id of the current root key.
    pub fn current_id(&self) -> KeyId {
        KeyId(self.current.key_id().into())
    }

    /// Returns the ids of all root keys, the current one first.
    pub fn ids(&self) -> Vec<KeyId> {
        self.all().map(|key| KeyId(key.key_id().into())).collect()
    }

    /// Returns the cipher of the current root key.
    pub(crate) fn current(&self) -> &Cipher {
        &self.current
    }

    /// Returns the cipher of the root key with this id.
    pub(crate) fn find(&self, id: &str) -> Option<&Cipher> {
        self.all().find(|key| key.key_id() == id)
    }

    fn all(&self) -> impl Iterator<Item = &Cipher> {
        [&self.current].into_iter().chain(&self.older).map(|key| &**key)
    }

    fn from_hex(text: &[u8], object: &dyn fmt::Display) -> Result<Self> {
        let line = text.strip_suffix(b"\n").unwrap_or(text);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut key = Secret::default();
        let (pairs, rest) = line.as_chunks::<2>();
        let mut is_key = pairs.len() == SECRET_BYTES && rest.is_empty();
        for (byte, [high, low]) in key.iter_mut().zip(pairs) {
            match (digit(high), digit(low)) {
                (Some(high), Some(low)) => *byte = high << 4 | low,
                _ => is_key = false,
            }
        }
        if !is_key {
            return Err(Error::invalid(format!(
                "{object} is not a root key, which is one line of 64 hexadecimal digits; give the one that was made"
            )));
        }
        Ok(Self::of(&key))
    }
}

/// Number of bytes after which a file is too long.
const LONGEST: usize = 2 * SECRET_BYTES + 3;

/// Puts a file that was not there, completely or not at all.
fn put_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Only its owner may read it, and it is removed unless it gets its name.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    #[cfg(unix)]
    File::open(folder)?.sync_all()?;
    Ok(())
}

fn check_file(path: &Path, file: &Metadata) -> Result<()> {
    if !file.is_file() {
        return Err(Error::invalid(format!(
            "root key file {} is not a regular file; name the file that was made",
            path.display()
        )));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = file.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let text = format!(
                "root key file {0} has mode {mode:03o}, so that others than its owner may use it; run chmod 600 {0}",
                path.display()
            );
            return Err(Error::new(ErrorKind::Denied, text));
        }
    }
    Ok(())
}

fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    let (kind, remedy) = match error.kind() {
        io::ErrorKind::NotFound => (ErrorKind::NotFound, "name a path that exists"),
        io::ErrorKind::AlreadyExists => {
            (ErrorKind::Conflict { head: None }, "it is never overwritten; name another path")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "give this process access to it")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (ErrorKind::Full, "free some space"),
        _ => (ErrorKind::Unavailable, "try again"),
    };
    let text = format!("root key file {} cannot be {what}; {remedy}", path.display());
    Error::new(kind, text).with_source(error)
}
