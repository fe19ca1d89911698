//! A secret: its name, and its value.

use std::fmt;
use std::str::FromStr;

use agent_core::text::quoted;
use agent_core::{Error, Result};
use secrecy::{ExposeSecret, SecretString};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the mount of a secret begins with.
const MOUNT: &str = "secret:";

/// Names a secret: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(Box<str>);

impl SecretName {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The resource by which a session mounts the secret: `secret:NAME`.
    ///
    /// ```
    /// use agent_core::model::{Access, Patch};
    /// use agent_runtime::secrets::SecretName;
    ///
    /// let github: SecretName = "github".parse()?;
    /// assert_eq!(github.resource(), "secret:github");
    /// let patch = Patch::new().mount(github.resource(), Access::Read);
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    pub fn resource(&self) -> String {
        format!("{MOUNT}{self}")
    }

    /// The name of the secret that is mounted as this resource, where it is one.
    pub fn of_resource(resource: &str) -> Option<Self> {
        resource.strip_prefix(MOUNT)?.parse().ok()
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretName({:?})", &self.0)
    }
}

impl FromStr for SecretName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let fits =
            |(at, b): (usize, u8)| b.is_ascii_alphanumeric() || (at > 0 && matches!(b, b'.' | b'_' | b'-'));
        if text.is_empty() || text.len() > 64 || !text.bytes().enumerate().all(fits) {
            return Err(Error::invalid(format!(
                "the name of a secret {} must be 1 to 64 of a-z, A-Z, 0-9, ., _ and -, and start with a letter or digit",
                quoted(text)
            )));
        }
        Ok(Self(text.into()))
    }
}

impl Serialize for SecretName {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SecretName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The value of a secret. It has no text form: `Debug` shows that it is one, and nothing of it; it cannot be serialized. Its
/// memory is overwritten when it is dropped.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// The fewest bytes of a value.
    pub const MIN_BYTES: usize = 8;
    /// The most bytes of a value.
    pub const MAX_BYTES: usize = 64 << 10;

    /// A value.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for one of fewer than 8 bytes without the white space around it, which could not be told from ordinary
    /// text and so not be hidden, and for one of more than 64 KiB. The value is not quoted.
    pub fn new(value: impl Into<String>) -> Result<Self> {
        let value = value.into();
        if value.trim().len() < Self::MIN_BYTES || value.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "a secret of {} bytes; give {} to {}, so that it is told from ordinary text",
                value.trim().len(),
                Self::MIN_BYTES,
                Self::MAX_BYTES
            )));
        }
        Ok(Self(value.into()))
    }

    /// The value. Give it to whom it is for, and to nothing that writes it down.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
