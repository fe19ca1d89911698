//! Device bindings: one object for each device that was ever bound, named by the hash of its id.

use std::sync::Arc;

use agent_core::commit::Precondition;
use agent_core::store::{Binding, BindingQuery, Page, decide_bind};
use agent_core::{DeviceId, Result, WorkspaceId, WriteOutcome};
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use crate::keys::Keys;
use crate::line::Line;
use crate::object::{AT_ONCE, Bucket};
use crate::replaced::{self, Content, Decision};

/// Device as it is stored. The object stays when the device is unbound, so that no late write binds it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredBinding {
    pub(crate) device: DeviceId,
    pub(crate) workspace: Option<WorkspaceId>,
}

impl Content for StoredBinding {
    const KIND: &'static str = "binding";

    fn write(&self, out: &mut Vec<u8>) {
        replaced::write_record(self, out);
    }

    fn read(lines: &[Line]) -> Result<Self, &'static str> {
        replaced::read_record(lines)
    }
}

/// Bindings of one tenant.
#[derive(Debug)]
pub(crate) struct Bindings {
    bucket: Arc<Bucket>,
    keys: Keys,
}

impl Bindings {
    pub(crate) fn new(bucket: Arc<Bucket>, keys: Keys) -> Self {
        Self { bucket, keys }
    }

    pub(crate) async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        let key = self.keys.binding(device);
        let stored = self.bucket.load::<StoredBinding>(&key, self.bucket.deadline()).await?;
        Ok(stored.and_then(|stored| stored.workspace))
    }

    /// Binds a device. Also returns whether that created its object.
    pub(crate) async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Precondition<WorkspaceId>,
    ) -> Result<(WorkspaceId, bool)> {
        let decide = |stored: Option<&StoredBinding>| {
            let now = stored.and_then(|stored| stored.workspace);
            let bound = decide_bind(device, now, to, expect)?;
            if now == Some(bound) {
                return Ok(Decision::Leave((bound, false)));
            }
            let new = StoredBinding { device: device.clone(), workspace: Some(bound) };
            Ok(Decision::Write(new, (bound, stored.is_none())))
        };
        self.bucket.replace(&self.keys.binding(device), self.bucket.deadline(), decide).await
    }

    /// Removes the object of a device, in a generation that is not current any more.
    pub(crate) async fn remove(&self, device: &DeviceId) -> Result<()> {
        self.bucket.delete(&self.keys.binding(device), self.bucket.deadline()).await
    }

    pub(crate) async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        self.unbind_from(&self.keys.binding(device), None).await
    }

    /// Unbinds a device; if `from` is given, only from that workspace. Returns whether it was bound.
    async fn unbind_from(&self, key: &str, from: Option<WorkspaceId>) -> Result<bool> {
        let decide = |stored: Option<&StoredBinding>| {
            let bound =
                stored.filter(|stored| stored.workspace.is_some_and(|to| from.is_none_or(|from| from == to)));
            Ok(match bound {
                Some(stored) => Decision::Write(StoredBinding { workspace: None, ..stored.clone() }, true),
                None => Decision::Leave(false),
            })
        };
        self.bucket.replace(key, self.bucket.deadline(), decide).await
    }

    /// Unbinds the devices of a workspace one by one, and returns their number. Each is bound or unbound at every
    /// moment, and all are unbound when this returns. After a failure some may be unbound; the same call again unbinds
    /// the rest.
    pub(crate) async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let keys = self.bucket.list_all(&self.keys.bindings(), false, self.bucket.deadline()).await?;
        let unbind = |key: String| async move { self.unbind_from(&key, Some(id)).await };
        let done = futures::stream::iter(keys).map(unbind).buffer_unordered(AT_ONCE);
        let count = done.try_fold(0, |count, was| async move { Ok(count + u64::from(was)) }).await;
        // The outcome of the failed one says nothing about the others.
        count.map_err(|error| error.with_outcome(WriteOutcome::Unknown))
    }

    pub(crate) async fn list(&self, query: &BindingQuery) -> Result<Page<Binding>> {
        let keys = self.bucket.list_all(&self.keys.bindings(), false, self.bucket.deadline()).await?;
        let bound = |stored: StoredBinding| Some(Binding::new(stored.device, stored.workspace?));
        let (bindings, damaged) = self.bucket.load_each(keys, bound, str::to_owned).await?;
        Ok(query.page(bindings)?.with_damaged(damaged))
    }
}
