//! Addresses of encrypted stores: that of another store, with the options `key_file` and `older_key_file`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use agent_core::store::{BackendConfig, percent_decode, split_address};
use agent_core::{Backend, Error, Result, async_trait};

use crate::ring::KeyRing;
use crate::vault::Vault;

/// Options of an address that name files with root keys.
const KEY_FILE: &str = "key_file";
const OLDER: &str = "older_key_file";

/// Address of an encrypted store.
///
/// It is the address of any other store, with the option `key_file=PATH`: the [file](KeyRing::from_file) with the root key. A store whose
/// [root key is being replaced](Vault::rotate) has the former one in `older_key_file=PATH`, which is given once for each former key: after a
/// replacement that was begun before the former one had ended, keys of three wrap something.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use agent_core::store::Registry;
/// use agent_vault::VaultConfig;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("root.key");
/// # agent_vault::KeyRing::generate_file(&path)?;
/// # let url = format!("memory:?key_file={}", path.display());
/// let parse = |url: &str| Registry::new().parse(url);
/// let Some(config) = VaultConfig::from_url(&url, parse)? else { panic!("the address has a key file") };
/// let vault = config.open_vault().await?;
/// # let _ = vault;
/// assert!(VaultConfig::from_url("memory:", parse)?.is_none(), "an address of a store that is not encrypted");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct VaultConfig {
    inner: Arc<dyn BackendConfig>,
    key_file: PathBuf,
    older: Vec<PathBuf>,
}

impl VaultConfig {
    /// Parses an address; `None` if it names no key file. `parse` parses that of the store around which the encrypted one is. No I/O.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an older key file without a newer one, and for two newer ones; those of `parse`.
    pub fn from_url(
        url: &str,
        parse: impl FnOnce(&str) -> Result<Arc<dyn BackendConfig>>,
    ) -> Result<Option<Self>> {
        let (inner, key_file, older) = split(url)?;
        let Some(key_file) = key_file else {
            return match older.is_empty() {
                false => Err(Error::invalid(format!(
                    "the option {OLDER} needs {KEY_FILE}, the file with the key in force"
                ))),
                true => Ok(None),
            };
        };
        Ok(Some(Self { inner: parse(&inner)?, key_file, older }))
    }

    /// Returns the address of the store around which the encrypted one is, without the options of this one.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an option that is given twice.
    pub fn inner_url(url: &str) -> Result<String> {
        Ok(split(url)?.0)
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// Those of [`KeyRing::from_file`], of the other store, and of [`Vault::open`].
    pub async fn open_vault(&self) -> Result<Vault> {
        let mut ring = KeyRing::from_file(&self.key_file)?;
        for older in &self.older {
            ring = ring.with_older(KeyRing::from_file(older)?);
        }
        Vault::open(self.inner.open().await?, ring).await
    }
}

/// Returns the address without the options of this crate, the key file, and the older ones.
fn split(url: &str) -> Result<(String, Option<PathBuf>, Vec<PathBuf>)> {
    let (mut key_file, mut older) = (None, Vec::new());
    let Some((place, options)) = url.split_once('?') else { return Ok((url.to_owned(), key_file, older)) };
    split_address(url)?;
    let mut rest = Vec::new();
    for option in options.split('&') {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if ![KEY_FILE, OLDER].contains(&name) {
            rest.push(option);
            continue;
        }
        let path = PathBuf::from(percent_decode(value)?);
        if path.as_os_str().is_empty() {
            return Err(Error::invalid(format!("the option {name} names no file")));
        }
        if name == OLDER {
            older.push(path);
        } else if key_file.replace(path).is_some() {
            return Err(Error::invalid(format!(
                "the option {name} is given twice; one key is in force, and {OLDER} names the others"
            )));
        }
    }
    let inner = if rest.is_empty() { place.to_owned() } else { format!("{place}?{}", rest.join("&")) };
    Ok((inner, key_file, older))
}

impl fmt::Display for VaultConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (encrypted)", self.inner)
    }
}

#[async_trait]
impl BackendConfig for VaultConfig {
    async fn open(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(self.open_vault().await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_files_are_taken_from_an_address_and_nothing_else() {
        for (url, inner, key_file, older) in [
            ("sqlite:a.db", "sqlite:a.db", None, &[][..]),
            ("sqlite:a.db?sync=off", "sqlite:a.db?sync=off", None, &[]),
            ("files:/a?key_file=/k", "files:/a", Some("/k"), &[]),
            ("s3:b?x=1&key_file=/a%20b&y=%26", "s3:b?x=1&y=%26", Some("/a b"), &[]),
            ("files:/a?older_key_file=/o&key_file=/k", "files:/a", Some("/k"), &["/o"]),
            (
                "files:/a?older_key_file=/o&key_file=/k&older_key_file=/p",
                "files:/a",
                Some("/k"),
                &["/o", "/p"],
            ),
        ] {
            let older = older.iter().map(PathBuf::from).collect();
            assert_eq!(split(url).unwrap(), (inner.to_owned(), key_file.map(PathBuf::from), older), "{url}");
        }
        for url in ["files:/a?key_file=", "files:/a?key_file=/k&key_file=/l", "files:/a?key_file"] {
            assert!(split(url).is_err(), "{url}");
        }
        let parse = |_: &str| -> Result<Arc<dyn BackendConfig>> { Err(Error::invalid("none")) };
        assert!(VaultConfig::from_url("files:/a?older_key_file=/o", parse).is_err());
    }
}
