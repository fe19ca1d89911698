//! Names of blobs.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::base::text::{ParseError, quoted, text_serde};

/// Name of a blob: the SHA-256 of its bytes.
///
/// As text it has 64 digits, in lower-case hexadecimal.
///
/// ```
/// use agent_core::BlobName;
///
/// let name = BlobName::of(b"hello");
/// assert_eq!(name.to_string(), "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
/// assert_eq!(name.to_string().parse::<BlobName>()?, name);
/// assert!("2CF24DBA".parse::<BlobName>().is_err());
/// # Ok::<(), agent_core::ParseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobName([u8; 32]);

impl BlobName {
    /// Returns the name of a blob with these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Wraps a SHA-256 that was computed elsewhere.
    pub const fn from_sha256(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    /// Returns the SHA-256.
    pub const fn as_sha256(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobName({self})")
    }
}

impl FromStr for BlobName {
    type Err = ParseError;

    /// Parses the one spelling of a name, so that no name has two.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let digit = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut hash = [0; 32];
        let parsed = text.len() == 64
            && hash.iter_mut().zip(text.as_bytes().chunks_exact(2)).all(|(byte, pair)| {
                match (digit(pair[0]), digit(pair[1])) {
                    (Some(high), Some(low)) => {
                        *byte = high << 4 | low;
                        true
                    }
                    _ => false,
                }
            });
        if parsed {
            return Ok(Self(hash));
        }
        Err(ParseError::new(format!(
            "{} is no name of a blob; give the SHA-256 of its bytes as 64 lower-case hexadecimal digits",
            quoted(text)
        )))
    }
}

text_serde!(BlobName);
