//! What a backend's author writes: how to make a fresh store, and how to open it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use agent_core::{
    Error, ErrorKind, Result, Seq, SessionId, Storage, TenantId, Tenants, WorkspaceId, async_trait,
};

/// Makes fresh stores of one backend and opens handles on them.
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
///         Ok(site.tenant(tenant).into())
///     }
/// }
/// ```
#[async_trait]
pub trait Factory: Send + Sync + 'static {
    /// Where one store lies: a temporary folder, the name of a schema, a prefix in a bucket. What it holds is removed
    /// when it is dropped.
    type Site: Send + Sync + 'static;

    /// A site with nothing in it, that no other call returns.
    ///
    /// # Errors
    ///
    /// Those of the backend; every clause fails then.
    async fn fresh(&self) -> Result<Self::Site>;

    /// As [`fresh`](Self::fresh), for hundreds of rounds of a race or of random sequences: handles on it may leave out
    /// what only a loss of power would show, such as waiting for the disk, which no clause can tell apart.
    ///
    /// # Errors
    ///
    /// As for [`fresh`](Self::fresh).
    async fn fresh_for_rounds(&self) -> Result<Self::Site> {
        self.fresh().await
    }

    /// Another handle on the store at `site`, for `tenant`.
    ///
    /// Opened anew each time, and sharing nothing with an earlier handle that one in another process would not share:
    /// the suite races several handles, and reopens a store by dropping all of them and opening another.
    ///
    /// # Errors
    ///
    /// Those of the backend; the clause fails then.
    async fn open(&self, site: &Self::Site, tenant: &TenantId) -> Result<Storage>;

    /// The store at `site` as a server or a scheduler sees it, where the backend lists its tenants.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    async fn tenants(&self, site: &Self::Site) -> Result<Option<Arc<dyn Tenants>>> {
        let _ = site;
        Ok(None)
    }

    /// Where another process finds the store, once this one has closed it; `None` if the store ends with its process.
    ///
    /// A store whose scope is one process is killed too: the suite drops its handles, starts a process that opens the
    /// store, kills it, and opens the store again.
    fn address(&self, site: &Self::Site) -> Option<String> {
        let _ = site;
        None
    }

    /// The site at an [`address`](Self::address) that another process made. Dropping it removes nothing.
    ///
    /// # Errors
    ///
    /// `Unsupported` where there are no addresses.
    async fn attach(&self, address: &str) -> Result<Self::Site> {
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("no store of this backend is found at an address such as {address:?}"),
        ))
    }

    /// A site as [`fresh`](Self::fresh) makes it, on a medium that [`lose_power`](Self::lose_power) and
    /// [`fail`](Self::fail) can make fail: a model of a disk, a server that is part of the test.
    ///
    /// # Errors
    ///
    /// As for [`fresh`](Self::fresh).
    async fn fresh_for_faults(&self) -> Result<Self::Site> {
        self.fresh().await
    }

    /// Cuts the power of a site that [`fresh_for_faults`](Self::fresh_for_faults) made: returns a site with what its
    /// medium holds afterwards, without anything that was not synced.
    ///
    /// Handles are open at that moment, or none has been opened yet. They are dropped later and not used again; nothing
    /// that they still write may reach the new site.
    ///
    /// Without it the report says that nothing has shown a claim of [`Durability::PowerLoss`](agent_core::store::Durability).
    ///
    /// # Errors
    ///
    /// `Unsupported` if the factory has no such medium.
    async fn lose_power(&self, site: &Self::Site) -> Result<Self::Site> {
        let _ = site;
        Err(Error::new(ErrorKind::Unsupported, "this factory cuts no power; implement Factory::lose_power"))
    }

    /// Makes a call fail that a store makes to the medium of a site from
    /// [`fresh_for_faults`](Self::fresh_for_faults): that one of the calls from now on, once. With `None` none fails any
    /// more. Returns whether the call that was to fail before has been made.
    ///
    /// Without it the report says that nothing has shown what failed writes say of themselves.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the factory has no such medium.
    async fn fail(&self, site: &Self::Site, call: Option<FailingCall>) -> Result<bool> {
        let _ = (site, call);
        Err(Error::new(ErrorKind::Unsupported, "this factory fails no calls; implement Factory::fail"))
    }

    /// The kinds of [`Damage`] that [`damage`](Self::damage) can do. Clauses that need others are left out, and listed
    /// as such.
    fn damages(&self) -> &[DamageKind] {
        &[]
    }

    /// Damages what is stored at `site` for the tenant `default`, behind the back of every handle.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a kind that is not among [`damages`](Self::damages).
    async fn damage(&self, site: &Self::Site, damage: Damage) -> Result<()> {
        let _ = site;
        Err(Error::new(ErrorKind::Unsupported, format!("this backend offers no {}", damage.kind())))
    }
}

/// A call of a store to its medium that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailingCall {
    /// How many calls succeed before it.
    pub skip: usize,
    /// Whether it does its work before it fails, as when only the answer of a server is lost.
    pub done: bool,
}

impl FailingCall {
    /// The call after `skip` others, with or without its effect.
    pub const fn new(skip: usize, done: bool) -> Self {
        Self { skip, done }
    }
}

/// What to damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// Flip a byte of a stored event, so that it no longer is what was written.
    Event(SessionId, Seq),
    /// Cut the record of a workspace short.
    Workspace(WorkspaceId),
    /// Cut the bindings short; all of them, where they are stored as one.
    Bindings,
    /// Remove everything that is derived from the logs: records kept beside them, indexes, pointers.
    Derived,
    /// Move the store from where it is found to another place on the same medium, as a person does who renames a file.
    MovedAway,
    /// Move it back.
    MovedBack,
}

/// The kind of a [`Damage`].
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
    /// Its kind.
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

/// A [`Factory`] of any backend, so that clauses need no type parameter.
#[async_trait]
pub(crate) trait AnyFactory: Send + Sync {
    async fn fresh(&self) -> Result<AnySite>;
    async fn fresh_for_rounds(&self) -> Result<AnySite>;
    async fn open(&self, site: &AnySite, tenant: &TenantId) -> Result<Storage>;
    async fn tenants(&self, site: &AnySite) -> Result<Option<Arc<dyn Tenants>>>;
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

    async fn tenants(&self, at: &AnySite) -> Result<Option<Arc<dyn Tenants>>> {
        Factory::tenants(self, site::<F>(at)?).await
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
