//! Interface that a backend's author implements: how to create a fresh store, and how to open it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use agent_core::{
    Backend, Error, ErrorKind, Result, Seq, SessionId, Storage, TenantId, WorkspaceId, async_trait,
};

/// Creates fresh stores of one backend and opens handles on them.
///
/// ```
/// use agent_core::{MemoryStore, Result, Storage, TenantId, async_trait};
/// use agent_storage_conformance::Factory;
///
/// struct Memory;
///
/// #[async_trait]
/// impl Factory for Memory {
///     type Site = MemoryStore;
///
///     async fn fresh(&self) -> Result<MemoryStore> {
///         Ok(MemoryStore::new())
///     }
///
///     async fn open(&self, site: &MemoryStore, tenant: &TenantId) -> Result<Storage> {
///         Ok(site.for_tenant(tenant).into())
///     }
/// }
/// ```
#[async_trait]
pub trait Factory: Send + Sync + 'static {
    /// Location of one store: a temporary folder, the name of a schema, a prefix in a bucket. Dropping it removes the
    /// store's contents.
    type Site: Send + Sync + 'static;

    /// Returns an empty site that no other call returns.
    ///
    /// # Errors
    ///
    /// The errors of the backend; every clause fails then.
    async fn fresh(&self) -> Result<Self::Site>;

    /// Like [`fresh`](Self::fresh), for hundreds of rounds of a race or of random sequences. Handles on the site may
    /// skip work whose absence only power loss would show, such as waiting for the disk. No clause can detect that.
    ///
    /// # Errors
    ///
    /// The errors of [`fresh`](Self::fresh).
    async fn fresh_for_rounds(&self) -> Result<Self::Site> {
        self.fresh().await
    }

    /// Opens another handle on the store at `site`, for `tenant`.
    ///
    /// Each call opens the store again. The handle shares nothing with an earlier one that a handle in another process
    /// would not share: the suite races several handles, and reopens a store by dropping all of them and opening
    /// another.
    ///
    /// # Errors
    ///
    /// The errors of the backend; the clause fails then.
    async fn open(&self, site: &Self::Site, tenant: &TenantId) -> Result<Storage>;

    /// Returns the store at `site` as a server or a scheduler uses it; `None` if the backend does not list its
    /// tenants.
    ///
    /// # Errors
    ///
    /// The errors of the backend.
    async fn tenants(&self, site: &Self::Site) -> Result<Option<Arc<dyn Backend>>> {
        let _ = site;
        Ok(None)
    }

    /// Returns the number of bytes that the store has of a blob of `bytes` bytes, which sweeps count. The same by default; an
    /// encrypted store has more.
    fn stored_bytes(&self, bytes: u64) -> u64 {
        bytes
    }

    /// Returns the address at which another process finds the store, after this process has closed it. Returns `None`
    /// if the store ends with its process.
    ///
    /// A store whose scope is one process is also tested with kills: the suite drops its handles, starts a process
    /// that opens the store, kills it, and opens the store again.
    fn address(&self, site: &Self::Site) -> Option<String> {
        let _ = site;
        None
    }

    /// Returns the site at an [`address`](Self::address) from another process. Dropping it removes nothing.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the factory has no addresses.
    async fn attach(&self, address: &str) -> Result<Self::Site> {
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("no store of this backend is found at an address such as {address:?}"),
        ))
    }

    /// Returns a site like [`fresh`](Self::fresh), on a medium that [`lose_power`](Self::lose_power) and
    /// [`fail`](Self::fail) can make fail: a model of a disk, or a server that is part of the test.
    ///
    /// # Errors
    ///
    /// The errors of [`fresh`](Self::fresh).
    async fn fresh_for_faults(&self) -> Result<Self::Site> {
        self.fresh().await
    }

    /// Cuts the power of a site from [`fresh_for_faults`](Self::fresh_for_faults). Returns a site with what its medium
    /// holds afterwards, without anything that was not synced.
    ///
    /// At that moment handles are open, or none has been opened yet. They are dropped later and not used again;
    /// nothing that they still write may reach the new site.
    ///
    /// Without this method the report states that nothing has tested a claim of
    /// [`Durability::PowerLoss`](agent_core::store::Durability).
    ///
    /// # Errors
    ///
    /// `Unsupported` if the factory has no such medium.
    async fn lose_power(&self, site: &Self::Site) -> Result<Self::Site> {
        let _ = site;
        Err(Error::new(ErrorKind::Unsupported, "this factory cuts no power; implement Factory::lose_power"))
    }

    /// Makes one future call of a store to the medium of a site from [`fresh_for_faults`](Self::fresh_for_faults)
    /// fail, once. `None` clears the planned failure. Returns whether the call that was planned before has been made.
    ///
    /// Without this method the report states that nothing has tested the outcomes that failed writes report.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the factory has no such medium.
    async fn fail(&self, site: &Self::Site, call: Option<FailingCall>) -> Result<bool> {
        let _ = (site, call);
        Err(Error::new(ErrorKind::Unsupported, "this factory fails no calls; implement Factory::fail"))
    }

    /// Returns the kinds of [`Damage`] that [`damage`](Self::damage) supports. Clauses that need other kinds are
    /// skipped, and listed as skipped.
    fn damages(&self) -> &[DamageKind] {
        &[]
    }

    /// Damages the data that is stored at `site` for the tenant `default`, without using a handle.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a kind that is not in [`damages`](Self::damages).
    async fn damage(&self, site: &Self::Site, damage: Damage) -> Result<()> {
        let _ = site;
        Err(Error::new(ErrorKind::Unsupported, format!("this backend offers no {}", damage.kind())))
    }
}

/// Call of a store to its medium that is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailingCall {
    /// Number of calls that succeed before it.
    pub skip: usize,
    /// True if the call does its work before it fails, as when only the answer of a server is lost.
    pub done: bool,
}

impl FailingCall {
    /// Returns the call after `skip` others, with or without its effect.
    pub const fn new(skip: usize, done: bool) -> Self {
        Self { skip, done }
    }
}

/// Damage to stored data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// Flips a byte of a stored event, so that it differs from what was written.
    Event(SessionId, Seq),
    /// Truncates the record of a workspace.
    Workspace(WorkspaceId),
    /// Truncates the bindings; all of them, if they are stored as one object.
    Bindings,
    /// Removes everything that is derived from the logs: records beside them, indexes, pointers.
    Derived,
    /// Moves the store from its location to another one on the same medium, like a person who renames a file.
    MovedAway,
    /// Moves the store back to its location.
    MovedBack,
}

/// Kind of a [`Damage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// [`Damage::Event`]
    Event,
    /// [`Damage::Workspace`]
    Workspace,
    /// [`Damage::Bindings`]
    Bindings,
    /// [`Damage::Derived`]
    Derived,
    /// [`Damage::MovedAway`] and [`Damage::MovedBack`]
    Moved,
}

impl Damage {
    /// Returns the kind of this damage.
    pub const fn kind(&self) -> DamageKind {
        match self {
            Self::Event(..) => DamageKind::Event,
            Self::Workspace(_) => DamageKind::Workspace,
            Self::Bindings => DamageKind::Bindings,
            Self::Derived => DamageKind::Derived,
            Self::MovedAway | Self::MovedBack => DamageKind::Moved,
        }
    }
}

impl fmt::Display for DamageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Event => "damage to an event",
            Self::Workspace => "damage to a workspace",
            Self::Bindings => "damage to the bindings",
            Self::Derived => "removal of what is derived",
            Self::Moved => "move of the store to another place",
        })
    }
}

pub(crate) type AnySite = Box<dyn Any + Send + Sync>;

/// Object-safe [`Factory`] of any backend, so that clauses need no type parameter.
#[async_trait]
pub(crate) trait AnyFactory: Send + Sync {
    async fn fresh(&self) -> Result<AnySite>;
    async fn fresh_for_rounds(&self) -> Result<AnySite>;
    async fn open(&self, site: &AnySite, tenant: &TenantId) -> Result<Storage>;
    async fn tenants(&self, site: &AnySite) -> Result<Option<Arc<dyn Backend>>>;
    fn stored_bytes(&self, bytes: u64) -> u64;
    fn address(&self, site: &AnySite) -> Option<String>;
    async fn attach(&self, address: &str) -> Result<AnySite>;
    async fn fresh_for_faults(&self) -> Result<AnySite>;
    async fn lose_power(&self, site: &AnySite) -> Result<AnySite>;
    async fn fail(&self, site: &AnySite, call: Option<FailingCall>) -> Result<bool>;
    fn damages(&self) -> &[DamageKind];
    async fn damage(&self, site: &AnySite, damage: Damage) -> Result<()>;
}

fn site<F: Factory>(site: &AnySite) -> Result<&F::Site> {
    site.downcast_ref().ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, "a site of another factory; use the one that made it")
    })
}

#[async_trait]
impl<F: Factory> AnyFactory for F {
    async fn fresh(&self) -> Result<AnySite> {
        Ok(Box::new(Factory::fresh(self).await?))
    }

    async fn fresh_for_rounds(&self) -> Result<AnySite> {
        Ok(Box::new(Factory::fresh_for_rounds(self).await?))
    }

    async fn open(&self, at: &AnySite, tenant: &TenantId) -> Result<Storage> {
        Factory::open(self, site::<F>(at)?, tenant).await
    }

    async fn tenants(&self, at: &AnySite) -> Result<Option<Arc<dyn Backend>>> {
        Factory::tenants(self, site::<F>(at)?).await
    }

    fn stored_bytes(&self, bytes: u64) -> u64 {
        Factory::stored_bytes(self, bytes)
    }

    fn address(&self, at: &AnySite) -> Option<String> {
        Factory::address(self, site::<F>(at).ok()?)
    }

    async fn attach(&self, address: &str) -> Result<AnySite> {
        Ok(Box::new(Factory::attach(self, address).await?))
    }

    async fn fresh_for_faults(&self) -> Result<AnySite> {
        Ok(Box::new(Factory::fresh_for_faults(self).await?))
    }

    async fn lose_power(&self, at: &AnySite) -> Result<AnySite> {
        Ok(Box::new(Factory::lose_power(self, site::<F>(at)?).await?))
    }

    async fn fail(&self, at: &AnySite, call: Option<FailingCall>) -> Result<bool> {
        Factory::fail(self, site::<F>(at)?, call).await
    }

    fn damages(&self) -> &[DamageKind] {
        Factory::damages(self)
    }

    async fn damage(&self, at: &AnySite, damage: Damage) -> Result<()> {
        Factory::damage(self, site::<F>(at)?, damage).await
    }
}
