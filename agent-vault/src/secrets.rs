//! Secrets of workspaces, sealed by the key of their tenant.

use std::fmt;

use agent_core::event::{AuditedOperation, EventPayload, NewEvent, Operation, OperationOutcome};
use agent_core::model::Actor;
use agent_core::store::{HiddenSession, pages};
use agent_core::{Error, ErrorKind, Result, Sessions, Storage, Timestamp, WorkspaceId};
use agent_workspace::secrets::{Secret, SecretName, SecretSource};
use async_trait::async_trait;
use futures::TryStreamExt;

use crate::cipher::Cipher;
use crate::keys::Keys;
use crate::place::{KeyPlace, KeyQuery, KeyRow};
use crate::secret_row::{Head, Place, Row, Version};

/// Number of attempts of a call whose row others change meanwhile.
const ATTEMPTS: usize = 16;
/// Number of rows on a page of a list.
const PAGE: usize = 200;
/// Number of times that a secret can be removed and set again.
const REMOVALS: u32 = 1000;

/// Secrets of a tenant's workspaces, sealed by the tenant's key in rows of its [`KeyPlace`]. Cloning is cheap.
///
/// It is a [`SecretSource`]: with [`Secrets::new`](agent_workspace::secrets::Secrets::new), sessions that mount a secret are given
/// its value, and it is redacted.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::sync::Arc;
///
/// use agent_core::{Backend, MemoryStore, TenantId, WorkspaceId};
/// use agent_vault::{KeyRing, Keys, StorePlace, WorkspaceSecrets};
/// use agent_workspace::secrets::Secret;
///
/// let (backend, acme): (_, TenantId) = (MemoryStore::new(), "acme".parse()?);
/// let place = Arc::new(StorePlace::new(backend.tenant(&"keys-of-acme".parse()?).workspaces));
/// let keys = Keys::new(KeyRing::from_bytes([7; 32]), place, acme.clone());
/// let secrets = WorkspaceSecrets::new(keys, &backend.tenant(&acme), "user:alice".parse()?);
///
/// let (workspace, github) = (WorkspaceId::DEFAULT, "github".parse()?);
/// assert_eq!(secrets.set(workspace, &github, &Secret::new("ghp_0123456789")?, None).await?, 1);
/// assert_eq!(secrets.names(workspace).await?[0].name, github);
/// assert_eq!(secrets.value(workspace, &github).await?.expose(), "ghp_0123456789");
/// # Ok(()) }
/// ```
///
/// # Audit
///
/// Each value that is returned was recorded before in the audit log of the tenant, as `secret.read` with the actor, the workspace,
/// the name and the version, and never the value. If the entry cannot be written, no value is returned. A call that is dropped may
/// leave an entry without a value. The audit log holds the name of the secret as its store holds texts: sealed, with the storage of a [`Vault`](crate::Vault).
///
/// # What the place shows
///
/// `secret/<tenant>/<workspace id>/<HMAC of the name>`: the number of secrets and of their versions, and the length of each value. Names
/// and values are sealed, each bound to tenant, workspace, row and version. That a former text of a row was put in place of the
/// present one is not found out.
///
/// # Cancel safety
///
/// Every method may be dropped at any point. A dropped change was made completely or not at all, or is still being made.
///
/// # Errors
///
/// Each names the secret, and none a value. `Corrupt` for a row that was not sealed for its place, `Unsupported` for one of a newer
/// version, `Unavailable` if others change a secret all the time; otherwise as for [`Keys`](Keys#errors).
#[derive(Clone)]
pub struct WorkspaceSecrets {
    keys: Keys,
    audit: Sessions,
    actor: Actor,
}

impl fmt::Debug for WorkspaceSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenant = self.keys.tenant_id().as_str();
        f.debug_struct("WorkspaceSecrets")
            .field("tenant", &tenant)
            .field("actor", &self.actor)
            .finish_non_exhaustive()
    }
}

/// Secret in a list: what may be known without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecretInfo {
    /// Name.
    pub name: SecretName,
    /// Number of its newest version.
    pub version: u64,
    /// Time at which that was set.
    pub set_at: Timestamp,
    /// Time from which on its value is refused.
    pub expires_at: Option<Timestamp>,
}

/// Row of a secret as it was found.
enum Found {
    /// The secret is absent, and this is the name of its row.
    Absent(String),
    Present(Row),
}

impl WorkspaceSecrets {
    /// Maximum number of versions that are kept of a secret.
    pub const VERSIONS_MAX: usize = 8;

    /// Creates the secrets of the tenant whose keys these are. No I/O.
    ///
    /// `storage` is that of the tenant, without a wrapper that records operations itself: its audit log records what `actor` reads,
    /// and its clock gives the time. With a [`Vault`](crate::Vault), give its [keys](crate::Vault::keys) and its storage.
    pub fn new(keys: Keys, storage: &Storage, actor: Actor) -> Self {
        Self { keys, audit: storage.sessions.clone(), actor }
    }

    /// Returns the same secrets, as read by another actor.
    #[must_use]
    pub fn with_actor(self, actor: Actor) -> Self {
        Self { actor, ..self }
    }

    /// Sets a secret: a new one, or a new version of one that exists. Returns the number of the version: 1, 2 and so on.
    ///
    /// From `expires_at` on, the value of this version is refused. The former version stays [readable](Self::value_of_version) by its
    /// number until it is removed, or until [`VERSIONS_MAX`](Self::VERSIONS_MAX) newer ones were set. Numbers begin again after the
    /// secret was [removed](Self::remove).
    ///
    /// # Errors
    ///
    /// As for [`WorkspaceSecrets`](Self#errors). `LimitExceeded` if the secret was removed 1,000 times.
    pub async fn set(
        &self,
        workspace: WorkspaceId,
        name: &SecretName,
        value: &Secret,
        expires_at: Option<Timestamp>,
    ) -> Result<u64> {
        let cipher = self.keys.stored_tenant().await?;
        let at = self.at(workspace);
        for _ in 0..ATTEMPTS {
            let (row, old, mut head, mut values) = match self.find(&cipher, at, name).await? {
                Found::Absent(row) => {
                    (row, None, Head { name: name.clone(), versions: Vec::new() }, Vec::new())
                }
                Found::Present(row) => (row.name, Some(row.text), row.head, row.values),
            };
            let version = head.versions.last().map_or(0, |last| last.version) + 1;
            values.push(at.seal_value(&cipher, &row, name, version, value));
            head.versions.push(Version { version, set_at: self.audit.effects().now(), expires_at });
            let surplus = values.len().saturating_sub(Self::VERSIONS_MAX);
            values.drain(..surplus);
            head.versions.drain(..surplus);
            let text = at.seal(&cipher, &row, &head, &values)?;
            let is_set = match old {
                Some(old) => self.swap(&row, &old, &text).await?,
                None => self.place().put_if_absent(&row, &text).await? == KeyRow::Present(text),
            };
            if is_set {
                return Ok(version);
            }
        }
        Err(contended(workspace, name))
    }

    /// Lists the secrets of a workspace by name, without opening a value.
    ///
    /// # Cost
    ///
    /// Lists the rows of the [`KeyPlace`].
    ///
    /// # Errors
    ///
    /// As for [`WorkspaceSecrets`](Self#errors). One row that is damaged fails the list.
    pub async fn names(&self, workspace: WorkspaceId) -> Result<Vec<SecretInfo>> {
        let (cipher, at) = (self.keys.tenant().await?, self.at(workspace));
        let query = KeyQuery::new().with_prefix(at.prefix()).with_limit(PAGE);
        let (mut pages, mut found) = (pages(query, |query| self.place().list(query)), Vec::new());
        while let Some(page) = pages.try_next().await? {
            if let Some(damaged) = page.damaged.first() {
                return Err(Error::corrupt(format!("a secret of workspace {workspace}: {damaged}")));
            }
            for entry in page.items {
                let head = at.open(&cipher, entry.name, entry.text)?.head;
                let Some(newest) = head.versions.into_iter().next_back() else { continue };
                let Version { version, set_at, expires_at } = newest;
                found.push(SecretInfo { name: head.name, version, set_at, expires_at });
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Returns the newest value of a secret, after the [audit](Self#audit) has recorded it.
    ///
    /// # Errors
    ///
    /// As for [`WorkspaceSecrets`](Self#errors). `NotFound` if there is no such secret; `Denied` if it has expired, or if the audit
    /// refuses the entry.
    pub async fn value(&self, workspace: WorkspaceId, name: &SecretName) -> Result<Secret> {
        self.read(workspace, name, None).await?.ok_or_else(|| absent(workspace, name))
    }

    /// Returns the value of one version of a secret, like [`value`](Self::value).
    ///
    /// # Errors
    ///
    /// As for [`value`](Self::value). `NotFound` if there is no such version.
    pub async fn value_of_version(
        &self,
        workspace: WorkspaceId,
        name: &SecretName,
        version: u64,
    ) -> Result<Secret> {
        self.read(workspace, name, Some(version)).await?.ok_or_else(|| absent(workspace, name))
    }

    /// Removes a secret with all its versions. Returns whether there was one.
    ///
    /// Its row is dropped: the place leaves no bytes of a value or a name, as it documents for
    /// [`drop_key`](KeyPlace::drop_key).
    ///
    /// # Errors
    ///
    /// As for [`WorkspaceSecrets`](Self#errors). `Unsupported` if the medium keeps former versions of the row; nothing is removed then.
    pub async fn remove(&self, workspace: WorkspaceId, name: &SecretName) -> Result<bool> {
        self.keys.check_removal().await?;
        let cipher = self.keys.tenant().await?;
        match self.find(&cipher, self.at(workspace), name).await? {
            Found::Absent(_) => Ok(false),
            Found::Present(row) => self.place().drop_key(&row.name).await,
        }
    }

    /// Removes one version of a secret; the last one with the secret. Returns whether there was this version.
    ///
    /// The row is replaced by one without the value, whose bytes go as the place documents it for a swapped text.
    ///
    /// # Errors
    ///
    /// As for [`WorkspaceSecrets`](Self#errors). `Unsupported` if the medium keeps former versions of the row; nothing is removed then.
    pub async fn remove_version(
        &self,
        workspace: WorkspaceId,
        name: &SecretName,
        version: u64,
    ) -> Result<bool> {
        self.keys.check_removal().await?;
        let (cipher, at) = (self.keys.tenant().await?, self.at(workspace));
        for _ in 0..ATTEMPTS {
            let Found::Present(mut row) = self.find(&cipher, at, name).await? else { return Ok(false) };
            let Some(index) = row.head.versions.iter().position(|it| it.version == version) else {
                return Ok(false);
            };
            if row.values.len() == 1 {
                return self.place().drop_key(&row.name).await;
            }
            row.head.versions.remove(index);
            row.values.remove(index);
            let text = at.seal(&cipher, &row.name, &row.head, &row.values)?;
            if self.swap(&row.name, &row.text, &text).await? {
                return Ok(true);
            }
        }
        Err(contended(workspace, name))
    }
}

impl WorkspaceSecrets {
    /// Opens a value, the newest one without a version, and records that before it is returned. `None` if it is absent.
    async fn read(
        &self,
        workspace: WorkspaceId,
        name: &SecretName,
        version: Option<u64>,
    ) -> Result<Option<Secret>> {
        let (cipher, at) = (self.keys.tenant().await?, self.at(workspace));
        let Found::Present(row) = self.find(&cipher, at, name).await? else { return Ok(None) };
        let versions = row.head.versions.iter().zip(&row.values);
        let mut versions =
            versions.rev().filter(|(it, _)| version.is_none_or(|version| it.version == version));
        let Some((found, sealed)) = versions.next() else { return Ok(None) };
        if let Some(expired) = found.expires_at.filter(|expires| *expires <= self.audit.effects().now()) {
            let text = format!(
                "version {} of secret {name} of workspace {workspace} expired at {expired}; set a new version",
                found.version
            );
            return Err(Error::new(ErrorKind::Denied, text));
        }
        let secret = at.open_value(&cipher, &row.name, name, found.version, sealed)?;
        self.record(workspace, name, found.version).await?;
        Ok(Some(secret))
    }

    /// Records in the audit log that a value is read.
    async fn record(&self, workspace: WorkspaceId, name: &SecretName, version: u64) -> Result<()> {
        let read = AuditedOperation::new(Operation::ReadSecret)
            .with_workspace(workspace)
            .with_secret(name.as_str(), version)
            .with_outcome(OperationOutcome::Done);
        let event = NewEvent::of(&EventPayload::SessionOperationAudited(read)).with_actor(self.actor.clone());
        let written = async {
            let log = HiddenSession::Audit.open(&self.audit).await?;
            self.audit.append(log.id, log.head, vec![event]).await
        };
        written.await.map(|_| ()).map_err(|error| {
            // An error of the audit is not one of the secret: it is not absent, and not damaged.
            let kind = match error.kind() {
                kind @ (ErrorKind::Unavailable | ErrorKind::Full | ErrorKind::Poisoned) => kind.clone(),
                _ => ErrorKind::Denied,
            };
            let text = format!(
                "the value of secret {name} of workspace {workspace} was not read, since the audit log took no entry; do what the \
                 cause says, then try again"
            );
            Error::new(kind, text).with_source(error)
        })
    }

    /// Finds the row of a secret. A row that was dropped never comes back, so that each removal is followed by another row.
    async fn find(&self, cipher: &Cipher, at: Place<'_>, name: &SecretName) -> Result<Found> {
        for removals in 0..=REMOVALS {
            let row = at.row(cipher, name, removals);
            match self.place().get(&row).await? {
                None => return Ok(Found::Absent(row)),
                Some(KeyRow::Dropped) => {}
                Some(KeyRow::Present(text)) => {
                    let opened = at.open(cipher, row, text);
                    return opened
                        .map(Found::Present)
                        .map_err(|error| error.about(format_args!("secret {name}")));
                }
            }
        }
        let workspace = at.workspace;
        Err(Error::limit(format!(
            "secret {name} of workspace {workspace} was removed {REMOVALS} times; use another name"
        )))
    }

    /// Replaces the text of a row. `false` if it is another one now.
    async fn swap(&self, row: &str, old: &str, new: &str) -> Result<bool> {
        match self.place().swap(row, old, new).await {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn place(&self) -> &dyn KeyPlace {
        self.keys.place()
    }

    fn at(&self, workspace: WorkspaceId) -> Place<'_> {
        Place { tenant: self.keys.tenant_id().as_str(), workspace }
    }
}

/// The values of a tenant's secrets for the sessions of each workspace, read by the actor of these secrets. An expired one is an
/// error.
#[async_trait]
impl SecretSource for WorkspaceSecrets {
    async fn secret(&self, workspace: WorkspaceId, name: &SecretName) -> Result<Option<Secret>> {
        self.read(workspace, name, None).await
    }
}

fn absent(workspace: WorkspaceId, name: &SecretName) -> Error {
    Error::not_found(format!("workspace {workspace} has no such version of secret {name}; set it"))
}

fn contended(workspace: WorkspaceId, name: &SecretName) -> Error {
    Error::unavailable(format!(
        "secret {name} of workspace {workspace} was changed by others {ATTEMPTS} times; try again"
    ))
}
