//! From an address to a store: which kinds of stores there are, and how each is written.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
//! use agent_core::store::{Registry, WorkspaceQuery};
//!
//! // A host adds the backends that it is built with: `SqliteConfig::register(&mut registry)`.
//! let registry = Registry::new();
//! let storage = registry.open("memory:").await?;
//! assert!(storage.workspaces.list(WorkspaceQuery::new()).await?.items.is_empty());
//!
//! let error = registry.open("tape:reel-7").await.unwrap_err();
//! assert_eq!(error.to_string(), "there is no store \"tape\"; known are memory:");
//! # Ok(()) }
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::base::{Error, Result, TenantId, quoted};
use crate::store::memory::MemoryStore;
use crate::store::storage::{Storage, Tenants};

/// Where a store lies and how it behaves, checked, and not opened yet. The options of each backend are one.
///
/// Its `Display` says where the data is, for a person: never a secret that the address holds.
#[async_trait]
pub trait StoreAddress: fmt::Display + fmt::Debug + Send + Sync + 'static {
    /// Opens the store.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    async fn open(&self) -> Result<Arc<dyn Tenants>>;
}

type Parse = Arc<dyn Fn(&str) -> Result<Arc<dyn StoreAddress>> + Send + Sync>;

/// A kind of store.
#[derive(Clone)]
struct Scheme {
    /// How an address of it is written, for people.
    form: Box<str>,
    parse: Parse,
}

/// The kinds of stores that a host knows, each by the scheme of its addresses. A value, not a global.
#[derive(Clone)]
pub struct Registry(BTreeMap<Box<str>, Scheme>);

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// Knows `memory:` alone: each address opens a store of its own, which is gone with its last handle.
    pub fn new() -> Self {
        let mut registry = Self(BTreeMap::new());
        registry.register("memory", "memory:", Memory::parse);
        registry
    }

    /// Makes addresses known that begin with `scheme` and a colon. `form` says how one is written; `parse` checks the
    /// whole address, scheme included, without looking at what is there, and refuses options that it does not know. A
    /// scheme that is known already is replaced.
    pub fn register<A: StoreAddress>(
        &mut self,
        scheme: &str,
        form: &str,
        parse: impl Fn(&str) -> Result<A> + Send + Sync + 'static,
    ) {
        let parse: Parse = Arc::new(move |url| Ok(Arc::new(parse(url)?)));
        self.0.insert(scheme.into(), Scheme { form: form.into(), parse });
    }

    /// How the addresses of each kind are written.
    pub fn forms(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|scheme| &*scheme.form)
    }

    /// Checks an address, without looking at what is there.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it has no scheme or one that is not known, with those that are; where it is no address of its
    /// backend or names an option that there is not, with those that there are. Nothing of the address but the scheme and
    /// the option is quoted: it may hold a secret.
    pub fn address(&self, url: &str) -> Result<Arc<dyn StoreAddress>> {
        let known = || self.forms().collect::<Vec<_>>().join(", ");
        let Some((name, _)) = url.split_once(':') else {
            return Err(Error::invalid(format!(
                "the address of a store begins with its kind and a colon; known are {}",
                known()
            )));
        };
        match self.0.get(name) {
            Some(scheme) => (scheme.parse)(url),
            None => Err(Error::invalid(format!("there is no store {}; known are {}", quoted(name), known()))),
        }
    }

    /// Opens the store at an address, for the tenant `default`. For other tenants open its
    /// [`address`](Self::address).
    ///
    /// # Errors
    ///
    /// Those of [`address`](Self::address) and of the backend.
    pub async fn open(&self, url: &str) -> Result<Storage> {
        Ok(self.address(url)?.open().await?.storage(&TenantId::default()))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.forms()).finish()
    }
}

/// For backends: the parts of an address behind its scheme: the place, and the options as names and values. In both,
/// `%` and two hexadecimal digits stand for a byte; the place is given as it was written.
///
/// ```
/// use agent_core::store::{decoded, parts};
///
/// let (place, options) = parts("/srv/a%20b?sync=full&readers=8")?;
/// assert_eq!((decoded(place)?.as_str(), options.len()), ("/srv/a b", 2));
/// assert_eq!(options[1], ("readers".to_owned(), "8".to_owned()));
/// # Ok::<(), agent_core::Error>(())
/// ```
///
/// # Errors
///
/// `InvalidInput` where an option is no text.
pub fn parts(rest: &str) -> Result<(&str, Vec<(String, String)>)> {
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let option = |option: &str| {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        Ok((decoded(name)?, decoded(value)?))
    };
    let options = options.split('&').filter(|text| !text.is_empty()).map(option).collect::<Result<_>>()?;
    Ok((place, options))
}

/// For backends: a part of an address, with `%` and two hexadecimal digits as the byte that they stand for.
///
/// # Errors
///
/// `InvalidInput` where it is no text, or holds NUL.
pub fn decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|pair| pair.iter().all(u8::is_ascii_hexdigit));
        let hex = hex.and_then(|pair| std::str::from_utf8(pair).ok());
        let byte = hex.filter(|_| *first == b'%').and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| Error::invalid("a part of the address is no text without NUL"))
}

/// The address of a store in memory.
#[derive(Debug)]
struct Memory;

impl Memory {
    fn parse(url: &str) -> Result<Self> {
        match url {
            "memory:" => Ok(Self),
            _ => Err(Error::invalid("a store in memory has neither a name nor options; write memory:")),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory, until the end")
    }
}

#[async_trait]
impl StoreAddress for Memory {
    async fn open(&self) -> Result<Arc<dyn Tenants>> {
        Ok(Arc::new(MemoryStore::new()))
    }
}
