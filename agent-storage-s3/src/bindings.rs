//! Bindings: one object for each device that was ever bound, under the hash of its id.

use std::sync::Arc;

use agent_core::commit::Expect;
use agent_core::json::to_text;
use agent_core::store::{Binding, BindingQuery, Page, decide_bind};
use agent_core::{DeviceId, Result, WorkspaceId, WriteOutcome};
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use crate::keys::Keys;
use crate::line::{Line, Tag, push};
use crate::object::{AT_ONCE, Bucket};
use crate::replaced::{Content, Decision};

/// A device as it is stored. It stays when the device is unbound, so that no late write binds it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) device: DeviceId,
    pub(crate) workspace: Option<WorkspaceId>,
}

impl Content for Stored {
    const KIND: &'static str = "binding";

    fn write(&self, out: &mut Vec<u8>) {
        // Text always has a JSON form.
        push(out, Tag::Record, &to_text(self));
    }

    fn read(lines: &[Line]) -> Result<Self, &'static str> {
        let [line] = lines else { return Err("has another number of lines than it should") };
        let json = line.json(Tag::Record).ok_or("is damaged")?;
        serde_json::from_str(json).map_err(|_| "cannot be read")
    }
}

/// One tenant's bindings.
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
        let stored = self.bucket.load::<Stored>(&key, self.bucket.deadline()).await?;
        Ok(stored.and_then(|stored| stored.workspace))
    }

    pub(crate) async fn bind(
        &self,
        device: &DeviceId,
        to: WorkspaceId,
        expect: Expect<WorkspaceId>,
    ) -> Result<WorkspaceId> {
        let decide = |stored: Option<&Stored>| {
            let now = stored.and_then(|stored| stored.workspace);
            let bound = decide_bind(device, now, to, expect)?;
            if now == Some(bound) {
                return Ok(Decision::Leave(bound));
            }
            Ok(Decision::Write(Stored { device: device.clone(), workspace: Some(bound) }, bound))
        };
        self.bucket.replace(&self.keys.binding(device), self.bucket.deadline(), decide).await
    }

    pub(crate) async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        self.unbind_from(&self.keys.binding(device), None).await
    }

    /// Unbinds a device, where `from` says so only from that workspace; whether it was bound.
    async fn unbind_from(&self, key: &str, from: Option<WorkspaceId>) -> Result<bool> {
        let decide = |stored: Option<&Stored>| {
            let bound =
                stored.filter(|stored| stored.workspace.is_some_and(|to| from.is_none_or(|from| from == to)));
            Ok(match bound {
                Some(stored) => Decision::Write(Stored { workspace: None, ..stored.clone() }, true),
                None => Decision::Leave(false),
            })
        };
        self.bucket.replace(key, self.bucket.deadline(), decide).await
    }

    /// Device by device: each is unbound or not at every moment, and all are when this returns. Where it fails, some may
    /// be; the same again unbinds the rest.
    pub(crate) async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let keys = self.bucket.list_all(&self.keys.bindings(), false, self.bucket.deadline()).await?;
        let unbind = |key: String| async move { self.unbind_from(&key, Some(id)).await };
        let done = futures::stream::iter(keys).map(unbind).buffer_unordered(AT_ONCE);
        let count = done.try_fold(0, |count, was| async move { Ok(count + u64::from(was)) }).await;
        // What is known of the one that failed says nothing of the others.
        count.map_err(|error| error.with_outcome(WriteOutcome::Unknown))
    }

    pub(crate) async fn list(&self, query: &BindingQuery) -> Result<Page<Binding>> {
        let keys = self.bucket.list_all(&self.keys.bindings(), false, self.bucket.deadline()).await?;
        let bound = |stored: Stored| Some(Binding::new(stored.device, stored.workspace?));
        let (bindings, damaged) = self.bucket.load_each(keys, bound, str::to_owned).await?;
        Ok(query.page(bindings)?.with_damaged(damaged))
    }
}
