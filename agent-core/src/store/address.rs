//! Addresses of stores: the known kinds of stores, and the syntax of each.
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
//! assert_eq!(error.to_string(), "unknown kind of store \"tape\"; supported: memory:");
//! # Ok(()) }
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::base::percent::percent_decode;
use crate::base::{Error, Result, TenantId, quoted};
use crate::store::memory::MemoryStore;
use crate::store::storage::{Backend, Storage};

/// Address and options of a store, checked but not opened. Each backend implements the trait for its options.
///
/// `Display` prints the location of the data for a person, never a secret that the address contains.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::fmt;
/// use std::sync::Arc;
/// use agent_core::store::{BackendConfig, Registry};
/// use agent_core::{Backend, MemoryStore, Result, async_trait};
///
/// #[derive(Debug)]
/// struct Scratch;
///
/// impl fmt::Display for Scratch {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str("scratch space in memory")
///     }
/// }
///
/// #[async_trait]
/// impl BackendConfig for Scratch {
///     async fn open(&self) -> Result<Arc<dyn Backend>> {
///         Ok(Arc::new(MemoryStore::new()))
///     }
/// }
///
/// let mut registry = Registry::new();
/// registry.register("scratch", "scratch:", |_address: &str| Ok(Scratch));
/// assert_eq!(registry.syntaxes().collect::<Vec<_>>(), ["memory:", "scratch:"]);
/// registry.open("scratch:").await?;
/// # Ok(()) }
/// ```
#[async_trait]
#[doc(alias = "StoreAddress")]
pub trait BackendConfig: fmt::Display + fmt::Debug + Send + Sync + 'static {
    /// Opens the store.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    async fn open(&self) -> Result<Arc<dyn Backend>>;
}

type Parse = Arc<dyn Fn(&str) -> Result<Arc<dyn BackendConfig>> + Send + Sync>;

/// Kind of store.
#[derive(Clone)]
struct Scheme {
    /// Syntax of its addresses, for people. `None` if the program was built without the backend.
    form: Option<Box<str>>,
    parse: Parse,
}

/// Registry of the kinds of stores that a host knows, each by the scheme of its addresses. A value, not a global.
#[derive(Clone)]
pub struct Registry(BTreeMap<Box<str>, Scheme>);

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// Creates a registry that knows only `memory:`.
    ///
    /// Each such address opens a separate store, whose data is lost with its last handle.
    pub fn new() -> Self {
        let mut registry = Self(BTreeMap::new());
        registry.register("memory", "memory:", Memory::parse);
        registry
    }

    /// Registers the addresses that begin with `scheme` and a colon.
    ///
    /// `form` is their syntax, for people. `parse` checks the whole address, scheme included, without I/O, and
    /// refuses options that it does not know. A scheme that is registered already is replaced.
    pub fn register<A: BackendConfig>(
        &mut self,
        scheme: &str,
        form: &str,
        parse: impl Fn(&str) -> Result<A> + Send + Sync + 'static,
    ) {
        let parse: Parse = Arc::new(move |url| Ok(Arc::new(parse(url)?)));
        self.0.insert(scheme.into(), Scheme { form: Some(form.into()), parse });
    }

    /// Registers a scheme whose backend the program was built without. Its addresses are refused with `Unsupported`;
    /// `remedy` is the text of that error.
    ///
    /// ```
    /// use agent_core::ErrorKind;
    /// use agent_core::store::Registry;
    ///
    /// let mut registry = Registry::new();
    /// registry.register_missing("tape", "this program was built without tapes; enable the feature tape");
    /// let error = registry.parse("tape:reel-7").unwrap_err();
    /// assert_eq!(*error.kind(), ErrorKind::Unsupported);
    /// assert!(error.to_string().ends_with("enable the feature tape"));
    /// ```
    pub fn register_missing(&mut self, scheme: &str, remedy: impl Into<String>) {
        let remedy = remedy.into();
        let parse: Parse = Arc::new(move |_| Err(Error::unsupported(remedy.clone())));
        self.0.insert(scheme.into(), Scheme { form: None, parse });
    }

    /// Returns the address syntax of each kind that the program can open.
    #[doc(alias = "forms")]
    pub fn syntaxes(&self) -> impl Iterator<Item = &str> {
        self.0.values().filter_map(|scheme| scheme.form.as_deref())
    }

    /// Checks an address, without I/O.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the address has no scheme or an unknown one (the text lists the known ones), or if the
    /// backend refuses it as malformed or for an unknown option (the text lists the known ones). `Unsupported` if the
    /// program was [built without](Self::register_missing) the backend. The text quotes only the scheme and the option,
    /// since the address may contain a secret.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::store::Registry;
    ///
    /// let backend = Registry::new().parse("memory:")?.open().await?;
    /// let (acme, umbrella) = (backend.tenant(&"acme".parse()?), backend.tenant(&"umbrella".parse()?));
    /// # let _ = (acme, umbrella);
    /// assert!(backend.tenants(None).await?.items.is_empty(), "nothing was written yet");
    /// assert!(Registry::new().parse("/srv/agent.db").is_err(), "no scheme");
    /// # Ok(()) }
    /// ```
    #[doc(alias = "address")]
    pub fn parse(&self, url: &str) -> Result<Arc<dyn BackendConfig>> {
        let known = || self.syntaxes().collect::<Vec<_>>().join(", ");
        let Some((name, _)) = url.split_once(':') else {
            return Err(Error::invalid(format!(
                "the address of a store begins with its kind and a colon; supported: {}",
                known()
            )));
        };
        match self.0.get(name) {
            Some(scheme) => (scheme.parse)(url),
            None => {
                Err(Error::invalid(format!("unknown kind of store {}; supported: {}", quoted(name), known())))
            }
        }
    }

    /// Opens the store at an address, for the tenant `default`. For other tenants, open its
    /// [`parse`](Self::parse).
    ///
    /// # Errors
    ///
    /// Those of [`parse`](Self::parse) and of the backend.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// use agent_core::store::{Registry, SessionQuery};
    ///
    /// let storage = Registry::new().open("memory:").await?;
    /// assert!(storage.sessions.list(SessionQuery::new()).await?.items.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn open(&self, url: &str) -> Result<Storage> {
        Ok(self.parse(url)?.open().await?.tenant(&TenantId::default()))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.syntaxes()).finish()
    }
}

/// For backends: splits the part of an address after its scheme into the place and the options, as names and values.
///
/// In both, `%` and two hexadecimal digits stand for a byte. Options are returned decoded, the place as it was
/// written.
///
/// ```
/// use agent_core::store::{percent_decode, split_address};
///
/// let (place, options) = split_address("/srv/a%20b?sync=full&readers=8")?;
/// assert_eq!((percent_decode(place)?.as_str(), options.len()), ("/srv/a b", 2));
/// assert_eq!(options[1], ("readers".to_owned(), "8".to_owned()));
/// # Ok::<(), agent_core::Error>(())
/// ```
///
/// # Errors
///
/// `InvalidInput` if an option is not text.
pub fn split_address(rest: &str) -> Result<(&str, Vec<(String, String)>)> {
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let option = |option: &str| {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        Ok((percent_decode(name)?, percent_decode(value)?))
    };
    let options = options.split('&').filter(|text| !text.is_empty()).map(option).collect::<Result<_>>()?;
    Ok((place, options))
}

/// Address of a store in memory.
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
        f.write_str("memory; the data is lost with the process")
    }
}

#[async_trait]
impl BackendConfig for Memory {
    async fn open(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(MemoryStore::new()))
    }
}
