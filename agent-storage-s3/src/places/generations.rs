//! Generations of tenants. The deletion of a tenant begins a new generation, whose objects have keys of their own; the
//! objects of the former one are removed. A store that does not know of that yet finds nothing living there: before it
//! relies on the absence of something, or on having created something, it reads the number of the generation again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::{Error, ErrorKind, Result, TenantId, WriteOutcome};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::layout::keys::{self, Keys};
use crate::layout::line::Line;
use crate::medium::background::Background;
use crate::medium::object::Bucket;
use crate::places::replaced::{self, Content, Decision};
use crate::places::tenant::Tenant;

/// Generation of a tenant, as it is stored. A tenant that was never deleted has no such object, and generation 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredGeneration {
    pub(crate) generation: u64,
    /// Number of generations, from the first on, of which everything is removed.
    pub(crate) removed: u64,
}

impl Content for StoredGeneration {
    const KIND: &'static str = "generation";

    fn write(&self, out: &mut Vec<u8>) {
        replaced::write_record(self, out);
    }

    fn read(lines: &[Line]) -> Result<Self, &'static str> {
        replaced::read_record(lines)
    }
}

/// Number of tenants of which a store knows the generation. If there are more, it forgets all, and reads that of each tenant
/// again when it is used.
const KNOWN_MAX: usize = 4096;

/// Generations that a store knows. All of its handles share them.
#[derive(Debug)]
pub(crate) struct Generations {
    bucket: Arc<Bucket>,
    prefix: Arc<str>,
    known: Mutex<HashMap<TenantId, u64>>,
    pub(crate) background: Arc<Background>,
}

impl Generations {
    pub(crate) fn new(bucket: Arc<Bucket>, prefix: Arc<str>) -> Self {
        let background = Arc::new(Background::new(bucket.clone()));
        Self { bucket, prefix, known: Mutex::default(), background }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<TenantId, u64>> {
        // Each change is a single call, so a panic leaves no partial change.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the current generation of a tenant.
    pub(crate) async fn read(&self, tenant: &TenantId, until: Instant) -> Result<StoredGeneration> {
        let stored =
            self.bucket.load::<StoredGeneration>(&keys::generation(&self.prefix, tenant), until).await?;
        let stored = stored.unwrap_or_default();
        self.note(tenant, stored.generation);
        Ok(stored)
    }

    /// Changes the stored generation of a tenant.
    pub(crate) async fn change(
        &self,
        tenant: &TenantId,
        until: Instant,
        change: impl Fn(StoredGeneration) -> StoredGeneration,
    ) -> Result<StoredGeneration> {
        let decide = |stored: Option<&StoredGeneration>| {
            let now = stored.copied().unwrap_or_default();
            let next = change(now);
            Ok(if next == now { Decision::Leave(now) } else { Decision::Write(next, next) })
        };
        let stored = self.bucket.replace(&keys::generation(&self.prefix, tenant), until, decide).await?;
        self.note(tenant, stored.generation);
        Ok(stored)
    }

    fn note(&self, tenant: &TenantId, generation: u64) {
        let mut known = self.known();
        if known.len() >= KNOWN_MAX && !known.contains_key(tenant) {
            known.clear();
        }
        let now = known.entry(tenant.clone()).or_default();
        *now = generation.max(*now);
    }

    /// Returns a part of the bucket: one generation of a tenant.
    pub(crate) fn part(&self, tenant: &TenantId, generation: u64) -> Tenant {
        Tenant::new(&self.bucket, &Keys::new(&self.prefix, tenant, generation), &self.background)
    }
}

/// Current generation of one tenant, shared by the clones of a handle.
#[derive(Debug)]
pub(crate) struct Current {
    tenant: TenantId,
    generations: Arc<Generations>,
    part: Mutex<Option<Part>>,
}

/// One generation of a tenant.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) generation: u64,
    pub(crate) tenant: Arc<Tenant>,
}

impl Current {
    pub(crate) fn new(generations: Arc<Generations>, tenant: TenantId) -> Self {
        Self { tenant, generations, part: Mutex::default() }
    }

    /// Returns the generation that is current as far as this store knows. Sends a request only the first time.
    pub(crate) async fn part(&self, until: Instant) -> Result<Part> {
        let known = self.generations.known().get(&self.tenant).copied();
        let generation = match known {
            Some(generation) => generation,
            None => self.generations.read(&self.tenant, until).await?.generation,
        };
        let mut part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        match &*part {
            Some(part) if part.generation == generation => Ok(part.clone()),
            _ => {
                let tenant = Arc::new(self.generations.part(&self.tenant, generation));
                Ok(part.insert(Part { generation, tenant }).clone())
            }
        }
    }

    /// Reads whether a generation is still the current one.
    async fn is_current(&self, part: &Part, until: Instant) -> Result<bool> {
        Ok(self.generations.read(&self.tenant, until).await?.generation == part.generation)
    }

    /// Runs an operation on the current generation. If the result relies on that, and another generation has begun,
    /// takes back what it created and repeats it there.
    pub(crate) async fn run<T, F: Future<Output = Result<T>>, G: Future<Output = Result<()>>>(
        &self,
        bucket: &Bucket,
        relies: impl Fn(&Result<T>) -> bool,
        work: impl Fn(Arc<Tenant>) -> F,
        take_back: impl Fn(Arc<Tenant>) -> G,
    ) -> Result<T> {
        let until = bucket.deadline();
        loop {
            let part = self.part(until).await?;
            let done = work(part.tenant.clone()).await;
            if !relies(&done) {
                return done;
            }
            // One of many requests may have taken longer than a single one may.
            let until = if Instant::now() < until { until } else { bucket.deadline() };
            let outcome = done.as_ref().map_or_else(Error::write_outcome, |_| WriteOutcome::Unknown);
            let is_current = self.is_current(&part, until).await;
            if is_current.map_err(|error| error.with_outcome(outcome))? {
                return done;
            }
            if done.is_ok()
                && let Err(error) = take_back(part.tenant).await
            {
                // No reader looks there, and the next deletion removes the object.
                tracing::debug!(%error, "an object of a deleted tenant was left behind");
            }
        }
    }
}

/// Returns whether a result reports an object, or a part of one, as absent.
pub(crate) fn is_absence<T>(done: &Result<T>) -> bool {
    done.as_ref().is_err_and(|error| error.is_absent() || *error.kind() == ErrorKind::Corrupt)
}

/// Does nothing, for an operation that creates no object.
pub(crate) async fn nothing(_: Arc<Tenant>) -> Result<()> {
    Ok(())
}
