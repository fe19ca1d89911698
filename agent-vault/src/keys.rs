//! Keys of one tenant.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::clock::Effects;
use agent_core::store::{KnownSessions, pages};
use agent_core::{Backend, Error, ErrorKind, Result, SessionId, SessionStore, TenantId};
use futures::TryStreamExt;

use crate::cipher::{Cipher, Secret};
use crate::lost::{Missing, lost};
use crate::place::{KeyEntry, KeyPlace, KeyQuery, KeyRow};
use crate::ring::KeyRing;
use crate::tenant_row::TenantRow;
use crate::wrapped::{Bound, Wrapped, damaged, wrap};

/// Number of attempts of a call whose rows others change meanwhile.
const ATTEMPTS: usize = 16;

/// Kinds of rows. They are part of the stored form.
const TENANT: &str = "tenant";
const SESSION: &str = "session";

/// Number of rows on a page of a rotation.
const PAGE: usize = 1000;

/// Keys of one tenant: made, wrapped and kept in a [`KeyPlace`], opened by the root keys of a [`KeyRing`]. Cloning is cheap.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use std::sync::Arc;
/// use agent_core::{MemoryStore, TenantId};
/// use agent_vault::{KeyRing, Keys, StorePlace};
///
/// let (tenant, place): (TenantId, _) = ("acme".parse()?, Arc::new(StorePlace::new(Arc::new(MemoryStore::new()))));
/// let keys = Keys::new(KeyRing::from_bytes([7; 32]), place.clone(), tenant.clone());
/// # let session = agent_core::clock::Effects::default().new_session_id();
/// assert!(!keys.drop_session(session).await?);
///
/// // Under another root key, which opens what the former one wrapped.
/// let ring = KeyRing::from_bytes([8; 32]).with_older(KeyRing::from_bytes([7; 32]));
/// Keys::new(ring, place, tenant).rotate().await?;
/// # Ok(()) }
/// ```
///
/// # Rows
///
/// `tenant/<tenant>` holds the secret of the tenant and the keys that wrap its sessions' keys, wrapped by a root key.
/// `session/<tenant>/<session id>` holds the key of a session. Each row is bound to its tenant and session.
///
/// # Keys in memory
///
/// The keys of the sessions that were used last are kept: 512 for certain, and at most twice as many. A process that has a key in
/// memory can use it until it ends, also after another process has dropped it.
///
/// # Errors
///
/// `Denied` if no root key of the ring opens the row of the tenant; the error names the key that is needed and those of the ring,
/// and nothing is written. `Corrupt` for a damaged row, which is never overwritten, and for a row of a tenant that is missing although
/// something needs it. Otherwise those of the [`KeyPlace`].
#[derive(Clone)]
pub struct Keys {
    effects: Effects,
    /// Backend of the place, which says whether what is dropped is gone for good.
    backend: Option<Arc<dyn Backend>>,
    shared: Arc<Shared>,
}

struct Shared {
    ring: KeyRing,
    place: Arc<dyn KeyPlace>,
    tenant: TenantId,
    /// Sessions that the keys have sealed, if they are known.
    stored: Option<Arc<dyn SessionStore>>,
    /// The tenant among known sessions.
    known_as: Arc<str>,
    /// The row of the tenant, as it was read last.
    row: Mutex<Option<Kept>>,
    sessions: KnownSessions<Known>,
}

/// Key of a session in memory.
#[derive(Clone)]
struct Known {
    cipher: Arc<Cipher>,
    /// False if the row was only read: whoever put it may have ended before it was durable.
    is_durable: bool,
}

/// Row of the tenant in memory.
#[derive(Clone)]
struct Kept {
    row: Arc<TenantRow>,
    /// As for the key of a session. Nothing is wrapped by the keys of a row that is not durable.
    is_durable: bool,
}

impl Keys {
    /// Creates the keys of a tenant. No I/O.
    pub fn new(ring: KeyRing, place: Arc<dyn KeyPlace>, tenant: TenantId) -> Self {
        Self::of_stored(ring, place, tenant, None)
    }

    /// Creates the keys of a tenant whose sessions are in a store, as that has them. No I/O.
    pub(crate) fn of_stored(
        ring: KeyRing,
        place: Arc<dyn KeyPlace>,
        tenant: TenantId,
        stored: Option<Arc<dyn SessionStore>>,
    ) -> Self {
        let (known_as, row, sessions) = (tenant.as_str().into(), Mutex::default(), KnownSessions::default());
        let shared = Arc::new(Shared { ring, place, tenant, stored, known_as, row, sessions });
        Self { effects: Effects::default(), backend: None, shared }
    }

    /// Sets the source of the random bytes of which keys are made: the operating system's, unless a test sets another one.
    #[must_use]
    pub fn with_effects(self, effects: Effects) -> Self {
        Self { effects, ..self }
    }

    /// Sets the backend on which the place is, which is asked before a key or a secret is [dropped](Self::drop_session): none is, if the
    /// medium keeps [former versions](Backend::check_removal). [`Vault::keys`](crate::Vault::keys) has set it.
    #[must_use]
    pub fn with_backend(self, backend: Arc<dyn Backend>) -> Self {
        Self { backend: Some(backend), ..self }
    }

    /// Checks that what is dropped is gone for good.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the medium keeps former versions.
    pub(crate) async fn check_removal(&self) -> Result<()> {
        match &self.backend {
            Some(backend) => backend.check_removal().await.map(drop),
            None => Ok(()),
        }
    }

    /// Returns the tenant whose keys they are.
    pub(crate) fn tenant_id(&self) -> &TenantId {
        &self.shared.tenant
    }

    /// Returns the place of the rows.
    pub(crate) fn place(&self) -> &dyn KeyPlace {
        &*self.shared.place
    }

    /// Returns the source of times and randomness.
    pub(crate) fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Returns a cipher that opens nothing that is stored.
    pub(crate) fn of_nobody(&self) -> Arc<Cipher> {
        Arc::new(Cipher::new(&self.random()))
    }

    /// Returns whether the tenant has a key, whether the ring opens it or not.
    pub(crate) async fn has_row(&self) -> Result<bool> {
        Ok(self.shared.place.get(&self.bound().row()).await?.is_some())
    }

    /// Returns whether the tenant has a key that the ring opens.
    pub(crate) async fn is_made(&self) -> Result<bool> {
        Ok(self.kept_row().await?.is_some())
    }

    /// Forgets what was read of the rows of the tenant, and of a session or all: another process may have deleted the tenant.
    pub(crate) fn forget(&self, id: Option<SessionId>) {
        *self.shared.row.lock().unwrap_or_else(PoisonError::into_inner) = None;
        match id {
            Some(id) => self.shared.sessions.remove(&self.known_as(id)),
            None => self.shared.sessions.clear(),
        }
    }

    /// Returns the cipher of the tenant's own secret as it is stored now, for what is written by it: another process may have deleted the
    /// tenant.
    pub(crate) async fn stored_tenant(&self) -> Result<Arc<Cipher>> {
        if self.find_row().await?.is_none() {
            self.forget(None);
        }
        Ok(self.row().await?.cipher().clone())
    }

    /// Returns the cipher of a session that is about to be created, whatever was known of one with its id.
    pub(crate) async fn session_to_create(&self, id: SessionId) -> Result<Arc<Cipher>> {
        let mut attempt = 1;
        loop {
            self.stored_tenant().await?;
            self.shared.sessions.remove(&self.known_as(id));
            match self.session_or_new(id).await {
                // The tenant is deleted meanwhile, and its rows are missing.
                Err(error) if *error.kind() == ErrorKind::Corrupt && attempt < ATTEMPTS => attempt += 1,
                done => return done,
            }
        }
    }

    /// Returns the cipher of the tenant's own secret, which is made if it is absent. No rotation changes it.
    pub(crate) async fn tenant(&self) -> Result<Arc<Cipher>> {
        // To read, the row need not be durable, nor the store writable.
        match self.kept_row().await? {
            Some(row) => Ok(row.cipher().clone()),
            None => Ok(self.row().await?.cipher().clone()),
        }
    }

    /// Returns the cipher of a session; `None` if it has no key.
    ///
    /// # Errors
    ///
    /// `Deleted` if its key was dropped.
    pub(crate) async fn session(&self, id: SessionId) -> Result<Option<Arc<Cipher>>> {
        if let Some(known) = self.shared.sessions.get(&self.known_as(id)) {
            return Ok(Some(known.cipher));
        }
        let session = id.to_string();
        let bound = self.bound_to(&session);
        let Some(row) = self.shared.place.get(&bound.row()).await? else { return Ok(None) };
        let text = present(bound, row)?;
        let row = match self.kept_row().await? {
            Some(row) => row,
            None => self.read_row().await?,
        };
        let (_, secret) = self.unwrap(row, bound, &text).await?;
        let cipher = Arc::new(Cipher::new(&secret));
        self.remember(id, &cipher, false);
        Ok(Some(cipher))
    }

    /// Returns the cipher of a session, whose key is made if it is absent. The key is durable, and every process gets the same.
    ///
    /// # Errors
    ///
    /// `Deleted` if its key was dropped.
    pub(crate) async fn session_or_new(&self, id: SessionId) -> Result<Arc<Cipher>> {
        let known = self.shared.sessions.get(&self.known_as(id));
        if let Some(known) = known.filter(|known| known.is_durable) {
            return Ok(known.cipher);
        }
        let session = id.to_string();
        let bound = self.bound_to(&session);
        let (row, secret) = (self.row().await?, self.random());
        let text = wrap(row.newest(), bound, &*secret);
        let found = present(bound, self.shared.place.put_if_absent(&bound.row(), &text).await?)?;
        let secret = if found == text {
            self.keep_wrapped(bound, row, text, &secret).await?;
            secret
        } else {
            self.unwrap(row, bound, &found).await?.1
        };
        let cipher = Arc::new(Cipher::new(&secret));
        self.remember(id, &cipher, true);
        Ok(cipher)
    }

    /// Wraps a session's key again that was just put, as long as the row of the tenant is another one than that by which it is wrapped:
    /// a rotation that began meanwhile may have passed the row before it was put, and a deletion of the tenant replaces its secret.
    async fn keep_wrapped(
        &self,
        bound: Bound<'_>,
        mut row: Arc<TenantRow>,
        mut text: String,
        secret: &Secret,
    ) -> Result<()> {
        for _ in 0..ATTEMPTS {
            if self.find_row().await?.is_none() {
                self.forget(None);
            }
            let now = self.row().await?;
            if now.newest().key_id() == row.newest().key_id() {
                return Ok(());
            }
            let new = wrap(now.newest(), bound, &**secret);
            if !self.swap(bound, &text, &new).await? {
                // Others wrapped or dropped it, unless the tenant was deleted since it was put.
                let found = self.shared.place.get(&bound.row()).await?;
                return found.map(drop).ok_or_else(|| {
                    Error::corrupt(format!(
                        "key row {} was removed as soon as it was put; put it again",
                        bound.row()
                    ))
                });
            }
            (row, text) = (now, new);
        }
        Err(contended(bound))
    }

    /// Drops the key of a session, so that nothing that it sealed can be read again. Returns whether there was a key.
    ///
    /// Afterwards the session has no key and never gets one, also if it had none. A process that has the key in memory can use it
    /// until it ends.
    ///
    /// # Errors
    ///
    /// As for [`Keys`](Self#errors). `Unsupported` if the medium keeps former versions of the row, by which the key could be opened: the
    /// text says what to do, and nothing is dropped.
    pub async fn drop_session(&self, id: SessionId) -> Result<bool> {
        self.check_removal().await?;
        self.drop_purged(id).await
    }

    /// Drops the key of a session that was purged, without a question to the medium: an ordinary command takes no request more.
    pub(crate) async fn drop_purged(&self, id: SessionId) -> Result<bool> {
        // Whoever has not the root key drops nothing.
        self.kept_row().await?;
        let session = id.to_string();
        let dropped = self.shared.place.drop_key(&self.bound_to(&session).row()).await;
        self.shared.sessions.remove(&self.known_as(id));
        dropped
    }

    /// Wraps the row of the tenant by the current root key, unless it is. Returns the number of rows that this call wrapped: 1 or 0.
    ///
    /// The ring must have the former root key as an older one. Afterwards it is not needed for this tenant. No other row changes.
    ///
    /// # Interruptions
    ///
    /// At every moment the row is wrapped by the former or by the current root key. Call this again.
    ///
    /// # Errors
    ///
    /// As for [`Keys`](Self#errors).
    pub async fn rotate(&self) -> Result<u64> {
        let (current, bound) = (self.shared.ring.current(), self.bound());
        for _ in 0..ATTEMPTS {
            let Some(row) = self.find_row().await? else {
                self.check_unneeded().await?;
                return Ok(0);
            };
            if row.by() == current.key_id() {
                return Ok(0);
            }
            if self.replace_row(&row, &row.again(current, bound)).await? {
                return Ok(1);
            }
        }
        Err(contended(bound))
    }

    /// Makes a new key that wraps the sessions' keys, and wraps each of them by it. Returns the number of rows that this call
    /// wrapped.
    ///
    /// For a key of the tenant that others may know. What is sealed does not change, nor does the tenant's own secret. The last 16
    /// such keys are kept, for rows that another process puts meanwhile.
    ///
    /// # Cost
    ///
    /// Reads every row of the [`KeyPlace`], and writes one for each session of the tenant. Memory is bounded.
    ///
    /// # Interruptions
    ///
    /// At every moment every key can be opened. Call this again: it goes on with the key that was made.
    ///
    /// # Errors
    ///
    /// As for [`Keys`](Self#errors). `Corrupt` or `Unsupported` if a row could not be read: the others are wrapped, and the rotation
    /// has not ended.
    pub async fn rotate_tenant_key(&self) -> Result<u64> {
        let Some(row) = self.start_rotation().await? else { return Ok(0) };
        let (mut count, mut fault) = (0, None);
        let query = KeyQuery::new()
            .with_prefix(format!("{SESSION}/{}/", self.shared.tenant.as_str()))
            .with_limit(PAGE);
        let mut pages = pages(query, |query| self.shared.place.list(query));
        while let Some(page) = pages.try_next().await? {
            let found = page.damaged.into_iter().next().map(|it| Error::corrupt(it.to_string()));
            fault = fault.or(found);
            for entry in page.items {
                match self.wrap_entry(&row, entry).await {
                    Ok(wrapped) => count += u64::from(wrapped),
                    Err(error) if is_fault(&error) => fault = fault.or(Some(error)),
                    Err(error) => return Err(error),
                }
            }
        }
        if let Some(fault) = fault {
            return Err(fault);
        }
        self.end_rotation(row.newest().key_id()).await?;
        Ok(count)
    }

    /// Returns the row of the tenant with a rotation that has started; `None` if there is no row.
    async fn start_rotation(&self) -> Result<Option<Arc<TenantRow>>> {
        let bound = self.bound();
        for _ in 0..ATTEMPTS {
            let Some(row) = self.find_row().await? else { return Ok(None) };
            if !row.is_rotating() {
                let started = row.started(self.root_of(&row), bound, &self.random());
                self.replace_row(&row, &started).await?;
            }
            let row = self.row().await?;
            if row.is_rotating() {
                return Ok(Some(row));
            }
        }
        Err(contended(bound))
    }

    /// Ends the rotation to the wrapping key with this id, unless somebody else has.
    async fn end_rotation(&self, newest: &str) -> Result<()> {
        let bound = self.bound();
        for _ in 0..ATTEMPTS {
            let row = self.read_row().await?;
            let is_over = !row.is_rotating() || row.newest().key_id() != newest;
            if is_over || self.replace_row(&row, &row.ended(self.root_of(&row), bound)).await? {
                return Ok(());
            }
        }
        Err(contended(bound))
    }

    /// Wraps the key of a listed row by the newest wrapping key. Returns whether this call did.
    async fn wrap_entry(&self, row: &Arc<TenantRow>, entry: KeyEntry) -> Result<bool> {
        let id = entry.name.rsplit('/').next().unwrap_or_default();
        let session: SessionId = id.parse().map_err(|error| {
            let text =
                format!("key row {} is that of no session; remove it if no key is missing", entry.name);
            Error::corrupt(text).with_source(error)
        })?;
        self.wrap_again(row, self.bound_to(&session.to_string()), entry.text).await
    }

    /// Wraps the key of a session by the newest wrapping key of `row`, unless it is. Returns whether this call did.
    async fn wrap_again(&self, row: &Arc<TenantRow>, bound: Bound<'_>, mut text: String) -> Result<bool> {
        for _ in 0..ATTEMPTS {
            let (opened_by, secret) = self.unwrap(row.clone(), bound, &text).await?;
            let new = wrap(row.newest(), bound, &*secret);
            // If it is wrapped by a key that the row does not have, a later rotation has done so.
            if new == text || !Arc::ptr_eq(&opened_by, row) {
                return Ok(false);
            }
            if self.swap(bound, &text, &new).await? {
                return Ok(true);
            }
            match self.shared.place.get(&bound.row()).await? {
                Some(KeyRow::Present(now)) => text = now,
                Some(KeyRow::Dropped) | None => return Ok(false),
            }
        }
        Err(contended(bound))
    }

    /// Returns the key of a session, and the row of the tenant by which it was opened: `row`, unless another process has begun a
    /// rotation since it was read.
    async fn unwrap(
        &self,
        mut row: Arc<TenantRow>,
        bound: Bound<'_>,
        text: &str,
    ) -> Result<(Arc<TenantRow>, Secret)> {
        let wrapped = Wrapped::parse(text, bound)?;
        if row.find(wrapped.by).is_none() {
            row = self.read_row().await?;
        }
        let plain = wrapped.open(row.find(wrapped.by).ok_or_else(|| damaged(bound))?)?;
        let secret = Secret::new(plain.as_slice().try_into().map_err(|_| damaged(bound))?);
        Ok((row, secret))
    }

    // --- row of the tenant -------------------------------------------------------------------------------------------

    /// Returns the row of the tenant, which is made if it is absent, and durable.
    async fn row(&self) -> Result<Arc<TenantRow>> {
        if let Some(kept) = self.kept().filter(|kept| kept.is_durable) {
            return Ok(kept.row);
        }
        let (bound, root) = (self.bound(), self.shared.ring.current());
        for _ in 0..ATTEMPTS {
            let Some(row) = self.find_row().await? else {
                self.check_unneeded().await?;
                let text = TenantRow::wrap_new(root, bound, &self.random(), &self.random());
                let found = present(bound, self.shared.place.put_if_absent(&bound.row(), &text).await?)?;
                return self.keep_row(&found, true);
            };
            // Whoever put it may have ended before it was durable. A row of a tenant that is deleted meanwhile does not come back.
            if self.swap(bound, row.text(), row.text()).await? {
                return self.keep_row(row.text(), true);
            }
        }
        Err(contended(bound))
    }

    /// Returns the row of the tenant, as it was read last; `None` if it is absent.
    async fn kept_row(&self) -> Result<Option<Arc<TenantRow>>> {
        match self.kept() {
            Some(kept) => Ok(Some(kept.row)),
            None => self.find_row().await,
        }
    }

    fn kept(&self) -> Option<Kept> {
        self.shared.row.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the row of the tenant as it is now; `None` if it is absent.
    async fn find_row(&self) -> Result<Option<Arc<TenantRow>>> {
        let bound = self.bound();
        let Some(row) = self.shared.place.get(&bound.row()).await? else { return Ok(None) };
        self.keep_row(&present(bound, row)?, false).map(Some)
    }

    /// Returns the row of the tenant as it is now, which must be there.
    async fn read_row(&self) -> Result<Arc<TenantRow>> {
        self.find_row().await?.ok_or_else(|| lost(&self.bound().row(), "a session"))
    }

    /// Checks that nothing needs the row of the tenant, which was missing: another one in its place would open nothing of it.
    ///
    /// # Errors
    ///
    /// `Corrupt` if something does, and the row is still missing.
    async fn check_unneeded(&self) -> Result<()> {
        let Shared { tenant, place, stored, .. } = &*self.shared;
        let missing = Missing { tenant, place: &**place, stored: stored.as_deref() };
        match missing.needed_by().await? {
            // Another process may have made it meanwhile.
            Some(needed_by) if self.find_row().await?.is_none() => Err(lost(&self.bound().row(), &needed_by)),
            _ => Ok(()),
        }
    }

    fn keep_row(&self, text: &str, is_durable: bool) -> Result<Arc<TenantRow>> {
        let mut kept = self.shared.row.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.as_mut().filter(|kept| kept.row.text() == text) {
            kept.is_durable |= is_durable;
            return Ok(kept.row.clone());
        }
        let row = Arc::new(TenantRow::open(&self.shared.ring, self.bound(), text)?);
        *kept = Some(Kept { row: row.clone(), is_durable });
        Ok(row)
    }

    /// Replaces the row of the tenant. `false` if it is another one now.
    async fn replace_row(&self, from: &TenantRow, to: &str) -> Result<bool> {
        let swapped = self.swap(self.bound(), from.text(), to).await?;
        if swapped {
            self.keep_row(to, true)?;
        }
        Ok(swapped)
    }

    /// Returns the root key that wraps the row, which opened it.
    fn root_of(&self, row: &TenantRow) -> &Cipher {
        self.shared.ring.find(row.by()).unwrap_or(self.shared.ring.current())
    }

    /// Replaces the text of a row. `false` if it is another one now.
    async fn swap(&self, bound: Bound<'_>, from: &str, to: &str) -> Result<bool> {
        match self.shared.place.swap(&bound.row(), from, to).await {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn random(&self) -> Secret {
        let mut secret = Secret::default();
        self.effects.fill(&mut *secret);
        secret
    }

    fn bound(&self) -> Bound<'_> {
        Bound { tenant: self.shared.tenant.as_str(), kind: TENANT, session: "" }
    }

    fn bound_to<'a>(&'a self, session: &'a str) -> Bound<'a> {
        Bound { tenant: self.shared.tenant.as_str(), kind: SESSION, session }
    }

    fn known_as(&self, id: SessionId) -> (Arc<str>, SessionId) {
        (self.shared.known_as.clone(), id)
    }

    fn remember(&self, id: SessionId, cipher: &Arc<Cipher>, is_durable: bool) {
        self.shared.sessions.insert(self.known_as(id), Known { cipher: cipher.clone(), is_durable });
    }
}

impl fmt::Debug for Keys {
    /// Shows ids alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { ring, tenant, .. } = &*self.shared;
        f.debug_struct("Keys").field("tenant", tenant).field("ring", ring).finish_non_exhaustive()
    }
}

fn present(bound: Bound<'_>, row: KeyRow) -> Result<String> {
    match row {
        KeyRow::Present(text) => Ok(text),
        KeyRow::Dropped => Err(Error::deleted(format!(
            "key row {} was dropped; what the key sealed cannot be read, and a new key is not made",
            bound.row()
        ))),
    }
}

fn contended(bound: Bound<'_>) -> Error {
    Error::unavailable(format!("key row {} was changed by others {ATTEMPTS} times; try again", bound.row()))
}

fn is_fault(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}
