//! Name and value of a secret.

use std::fmt;
use std::str::FromStr;

use agent_core::text::quoted;
use agent_core::{Error, Result, text_serde};
use secrecy::{ExposeSecret, SecretString};

/// Prefix of the mount of a secret.
const MOUNT: &str = "secret:";

/// Name of a secret: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`. Sessions store this name, never the value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(Box<str>);

impl SecretName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the resource by which a session mounts the secret: `secret:NAME`.
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

    /// Returns the name of the secret that is mounted as this resource; `None` if the resource is not a secret.
    ///
    /// ```
    /// use agent_runtime::secrets::SecretName;
    ///
    /// assert_eq!(SecretName::of_resource("secret:github").as_ref().map(SecretName::as_str), Some("github"));
    /// assert_eq!(SecretName::of_resource("kb:style-guide"), None);
    /// ```
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

text_serde!(SecretName);

/// Value of a secret, without a text form: `Debug` shows only `(secret)`, and it cannot be serialized.
///
/// Its memory is overwritten when it is dropped.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Minimum bytes of a value.
    pub const MIN_BYTES: usize = 8;
    /// Maximum bytes of a value.
    pub const MAX_BYTES: usize = 64 << 10;

    /// Creates a secret value.
    ///
    /// ```
    /// use agent_runtime::secrets::Secret;
    ///
    /// let token = Secret::new("ghp_0123456789")?;
    /// assert_eq!(format!("{token:?}"), "(secret)");
    /// assert!(Secret::new("1234").is_err());
    /// # Ok::<(), agent_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a value of more than 64 KiB, and for one of fewer than 8 bytes without surrounding white space,
    /// which could not be distinguished from ordinary text. The error does not quote the value.
    pub fn new(value: impl Into<String>) -> Result<Self> {
        let value = value.into();
        if value.trim().len() < Self::MIN_BYTES || value.len() > Self::MAX_BYTES {
            return Err(Error::invalid(format!(
                "a secret of {} bytes cannot be distinguished from ordinary text or is too long; use {} to {} bytes",
                value.trim().len(),
                Self::MIN_BYTES,
                Self::MAX_BYTES
            )));
        }
        Ok(Self(value.into()))
    }

    /// Returns the secret value. Do not log or store it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
