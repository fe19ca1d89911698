//! Store: implements the three traits. Each method starts a task, which runs a step on a connection.

mod places;
mod sessions;

use std::sync::Arc;

use agent_core::store::{BackendConfig, Damaged, DeletedTenant, Page, check_no_live_run, observed};
use agent_core::{
    Backend, OpenState, OwnerId, Result, Seq, SessionId, Storage, TenantId, Timestamp, async_trait,
};
use tokio::runtime::Handle;
use tracing::field::Empty;
use tracing::info_span;

use crate::config::PostgresConfig;
use crate::error::gone;
use crate::medium::attempts::{MARGIN, Mode, Site, run};
use crate::medium::connections::Connections;
use crate::medium::known::{Key, Known};
use crate::medium::rows::lock_number;
use crate::medium::scope::Scope;
use crate::medium::sql::Names;
use crate::places::tenants;
use crate::schema::{self, Opened};
use crate::shared::hints::{self, Hints};
use crate::shared::listener::{self, Listener, Live};

/// Store of workspaces, sessions and bindings in one schema, for one tenant. Clones share their connections. Other handles
/// on the same schema, in any process on any machine, work on the same data.
///
/// It needs the runtime of tokio on which it was opened.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    shared: Arc<Shared>,
    site: Site,
}

#[derive(Debug)]
struct Shared {
    config: PostgresConfig,
    runtime: Handle,
    known: Known,
    live: Arc<Live>,
    hints: Arc<Hints>,
    listener: Listener,
    open: OpenState,
    opened: Opened,
}

impl PostgresConfig {
    /// Opens the store for the tenant `default`. Creates the tables only [if it may](Self::with_migrate).
    ///
    /// # Errors
    ///
    /// `NotFound` if there are no tables; `Unsupported` if another version of this library wrote them; `Denied`,
    /// `Unavailable`.
    pub async fn open(self) -> Result<PostgresStore> {
        let runtime = Handle::try_current().map_err(|error| {
            agent_core::Error::unsupported("the store is opened on a runtime of tokio; start one")
                .with_source(error)
        })?;
        let tenant: Arc<str> = TenantId::default().as_str().into();
        let site = Site {
            connections: Arc::new(Connections::new(self.clone())),
            names: Arc::new(Names::new(&self.schema)),
            effects: self.effects.clone(),
            lock: lock_number(&self.schema, &tenant),
            scope: Scope { tenant, owner: None },
            limit: self.statement_timeout.saturating_add(MARGIN),
            long: self.long_timeout.max(self.statement_timeout).saturating_add(MARGIN),
            keeps: !self.is_pooled,
        };
        let (at, config) = (site.clone(), self.clone());
        let opened = runtime.spawn(async move {
            let opened = schema::open(&at, &config).await?;
            listener::check(&at, &config).await.map(|()| opened)
        });
        let opened = opened.await.map_err(|_| gone())??;
        let open = OpenState::new(format!("the store in {}", self.place()));
        let shared = Shared {
            config: self,
            runtime,
            known: Known::default(),
            live: Arc::default(),
            hints: Arc::new(Hints::new()?),
            listener: Listener::default(),
            open,
            opened,
        };
        Ok(PostgresStore { shared: Arc::new(shared), site })
    }
}

impl PostgresStore {
    /// Returns the same store for another tenant. Does no I/O: a tenant that was never written to is empty.
    #[must_use]
    pub fn for_tenant(&self, tenant: &TenantId) -> Self {
        let lock = lock_number(&self.shared.config.schema, tenant.as_str());
        let scope = Scope { tenant: tenant.as_str().into(), owner: None };
        Self { shared: self.shared.clone(), site: Site { scope, lock, ..self.site.clone() } }
    }

    /// Returns whether the opening of this store has created its tables. Of several that open an empty schema at once, one does.
    pub fn has_created_tables(&self) -> bool {
        self.shared.opened.has_created
    }

    /// Returns the same store, in which only those rows are seen that one owner of the tenant may use.
    fn narrowed(&self, owner: &OwnerId) -> Self {
        let scope = Scope { owner: Some(owner.clone()), ..self.site.scope.clone() };
        Self { shared: self.shared.clone(), site: Site { scope, ..self.site.clone() } }
    }

    /// Returns the same store for all owners of the tenant.
    fn whole(&self) -> Self {
        Self { shared: self.shared.clone(), site: self.site.whole() }
    }

    /// Closes the store for all of its tenants and clones: finishes the calls that have begun, and closes the connections.
    /// Later calls fail with `Unavailable`.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, call `close` again to wait for the end.
    ///
    /// # Errors
    ///
    /// None at present.
    pub async fn close(&self) -> Result<()> {
        let span = info_span!("store.close", store = "postgres", outcome = Empty);
        let work = async {
            // Whoever waits for a change finds the store closed.
            self.shared.live.heads.wake_all();
            self.shared.listener.stop().await;
            self.send_hints().await;
            self.site.connections.close().await;
            Ok(())
        };
        observed(span, self.shared.open.close(work)).await
    }

    /// Tells the callers that wait for a change of a session, here at once and in the other stores a moment later.
    fn notify(&self, key: Key, head: Seq) {
        self.shared.live.heads.notify(&key.0, key.1, head);
        if !self.shared.hints.add(key) {
            return;
        }
        let store = self.clone();
        self.shared.runtime.spawn(async move {
            loop {
                tokio::time::sleep(store.shared.config.hint_interval).await;
                // If the store is closing, that sends them.
                let Ok(_operating) = store.shared.open.begin() else { return };
                if !store.send_hints().await {
                    return;
                }
            }
        });
    }

    /// Sends the hints that wait, as far as possible. Returns false if there are none.
    async fn send_hints(&self) -> bool {
        let (site, payloads) = (&self.site, self.shared.hints.take());
        if payloads.is_empty() {
            return false;
        }
        let sent = async {
            run!(@ site.attempts(Mode::Write, "tell others of changes").unset(), db => hints::send(db, &self.shared.config.schema, &payloads).await)
        };
        if let Err(error) = sent.await {
            tracing::debug!(%error, "others find some changes later");
        }
        true
    }

    /// Starts to listen for changes by other stores.
    fn listen(&self) {
        let Shared { runtime, config, live, hints, listener, .. } = &*self.shared;
        listener.start(runtime, config, live, hints);
    }

    /// Runs work in a task of the store, which ends also if the caller is dropped.
    async fn task<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let operating = self.shared.open.begin()?;
        let task = self.shared.runtime.spawn(async move {
            let done = work.await;
            drop(operating);
            done
        });
        task.await.map_err(|_| gone())?
    }

    fn key(&self, id: SessionId) -> Key {
        (self.site.scope.tenant.clone(), id)
    }

    fn now(&self) -> Timestamp {
        self.site.effects.now()
    }
}

#[async_trait]
impl BackendConfig for PostgresConfig {
    async fn open(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(self.clone().open().await?))
    }
}

#[async_trait]
impl Backend for PostgresStore {
    fn tenant(&self, tenant: &TenantId) -> Storage {
        self.for_tenant(tenant).into()
    }

    async fn tenants(&self, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let span = info_span!("store.list_tenants", store = "postgres", outcome = Empty);
        let (site, after) =
            (self.site.clone(), after.map_or_else(String::new, |after| after.as_str().to_owned()));
        let list = async move {
            run!(@ site.attempts(Mode::Read, "list tenants").unset(), db => tenants::list(db, &after).await)
        };
        observed(span, async { self.task(list).await.map(Page::new) }).await
    }

    async fn busy_tenants(&self, until: Timestamp, after: Option<TenantId>) -> Result<Page<TenantId>> {
        let span = info_span!("store.list_busy_tenants", store = "postgres", outcome = Empty);
        let (site, after) =
            (self.site.clone(), after.map_or_else(String::new, |after| after.as_str().to_owned()));
        let busy = async move {
            run!(@ site.attempts(Mode::Read, "list tenants").unset(), db => tenants::busy(db, &after, until).await)
        };
        observed(span, async { self.task(busy).await.map(Page::new) }).await
    }

    /// Deletes the tenant in one transaction, for which its other writers wait up to their lock timeout.
    async fn delete_tenant(&self, tenant: &TenantId) -> Result<DeletedTenant> {
        let span = info_span!("store.delete_tenant", store = "postgres", outcome = Empty);
        let store = self.for_tenant(tenant);
        let work = async {
            check_no_live_run(&store).await?;
            let site = store.site.clone();
            let delete = async move {
                let attempts = site.attempts(Mode::Alone, "delete a tenant").long();
                run!(@ attempts, db => tenants::delete(db).await)
            };
            let deleted = store.task(delete).await;
            self.shared.known.remove_tenant(&store.site.scope.tenant);
            deleted
        };
        observed(span, work).await
    }

    async fn check_shared(&self) -> Result<Option<Vec<Damaged>>> {
        Ok(None)
    }

    async fn close(&self) -> Result<()> {
        self.close().await
    }
}
