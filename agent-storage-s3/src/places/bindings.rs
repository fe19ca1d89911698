//! Device bindings: one object for each device that was ever bound, named by the hash of its id. A key in the index of
//! its workspace lists the device.

use std::sync::Arc;

use agent_core::commit::Precondition;
use agent_core::store::{Binding, BindingQuery, Page, decide_bind};
use agent_core::{DeviceId, Result, SessionId, WorkspaceId, WriteOutcome};
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use crate::layout::keys::{self, Keys, is_hash};
use crate::layout::line::Line;
use crate::medium::background::Background;
use crate::medium::index_pages::{Folder, Request};
use crate::medium::object::{AT_ONCE, Bucket};
use crate::places::indexed::{Indexed, Objects};
use crate::places::replaced::{self, Content, Decision};

/// Device as it is stored. The object stays when the device is unbound, so that no late write binds it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredBinding {
    /// Device; `None` if it was never bound, and only the key of an attempt was found.
    pub(crate) device: Option<DeviceId>,
    pub(crate) workspace: Option<WorkspaceId>,
    /// Session that the device has used last in that workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<SessionId>,
}

impl Content for StoredBinding {
    const KIND: &'static str = "binding";

    fn write(&self, out: &mut Vec<u8>) {
        replaced::write_record(self, out);
    }

    fn read(lines: &[Line]) -> Result<Self, &'static str> {
        replaced::read_record(lines)
    }

    fn folders(&self, _: &[&str]) -> Vec<String> {
        self.workspace.iter().map(|workspace| format!("{}/{workspace}", Self::LIST)).collect()
    }
}

impl Indexed for StoredBinding {
    const LIST: &'static str = "bound";
    const NEVER: Self = Self { device: None, workspace: None, session: None };

    fn describe(hash: &str) -> String {
        format!("the binding of the device with the hash {hash}")
    }

    fn is_name(name: &str) -> bool {
        is_hash(name)
    }
}

/// Bindings of one tenant.
#[derive(Debug)]
pub(crate) struct Bindings {
    objects: Objects<StoredBinding>,
}

impl Bindings {
    pub(crate) fn new(bucket: Arc<Bucket>, keys: &Keys, background: Arc<Background>) -> Self {
        Self { objects: Objects::new(bucket, keys, keys.bindings(), background) }
    }

    pub(crate) fn objects(&self) -> &Objects<StoredBinding> {
        &self.objects
    }

    pub(crate) async fn resolve(&self, device: &DeviceId) -> Result<Option<WorkspaceId>> {
        Ok(self.objects.load(&keys::hash(device.as_str())).await?.and_then(|stored| stored.workspace))
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
            let new = StoredBinding { device: Some(device.clone()), workspace: Some(bound), session: None };
            Ok(Decision::Write(new, (bound, stored.is_none())))
        };
        self.objects.change(&keys::hash(device.as_str()), decide).await
    }

    pub(crate) async fn last_session(&self, device: &DeviceId) -> Result<Option<SessionId>> {
        Ok(self.objects.load(&keys::hash(device.as_str())).await?.and_then(|stored| stored.session))
    }

    pub(crate) async fn set_last_session(&self, device: &DeviceId, session: SessionId) -> Result<()> {
        let decide = |stored: Option<&StoredBinding>| {
            let bound = stored.filter(|stored| stored.workspace.is_some() && stored.session != Some(session));
            Ok(match bound {
                Some(stored) => {
                    Decision::Write(StoredBinding { session: Some(session), ..stored.clone() }, ())
                }
                None => Decision::Leave(()),
            })
        };
        self.objects.change(&keys::hash(device.as_str()), decide).await
    }

    /// Removes the object of a device that was just bound, in a generation that is not current any more.
    pub(crate) async fn remove(&self, device: &DeviceId) -> Result<()> {
        self.objects.remove(&keys::hash(device.as_str())).await
    }

    pub(crate) async fn unbind(&self, device: &DeviceId) -> Result<bool> {
        self.unbind_from(&keys::hash(device.as_str()), None).await
    }

    /// Unbinds a device; if `from` is given, only from that workspace. Returns whether it was bound.
    async fn unbind_from(&self, hash: &str, from: Option<WorkspaceId>) -> Result<bool> {
        let decide = |stored: Option<&StoredBinding>| {
            let bound =
                stored.filter(|stored| stored.workspace.is_some_and(|to| from.is_none_or(|from| from == to)));
            Ok(match bound {
                Some(stored) => {
                    Decision::Write(StoredBinding { workspace: None, session: None, ..stored.clone() }, true)
                }
                None => Decision::Leave(false),
            })
        };
        self.objects.change(hash, decide).await
    }

    /// Unbinds the devices of a workspace one by one, and returns their number. Each is bound or unbound at every
    /// moment, and all are unbound when this returns. After a failure some may be unbound; the same call again unbinds
    /// the rest.
    pub(crate) async fn unbind_workspace(&self, id: WorkspaceId) -> Result<u64> {
        let hashes = self.objects.names(&self.folder(Some(id))).await?;
        let unbind = |hash: String| async move { self.unbind_from(&hash, Some(id)).await };
        let done = futures::stream::iter(hashes).map(unbind).buffer_unordered(AT_ONCE);
        let count = done.try_fold(0, |count, was| async move { Ok(count + u64::from(was)) }).await;
        // The outcome of the failed one says nothing about the others.
        count.map_err(|error| error.with_outcome(WriteOutcome::Unknown))
    }

    /// Returns the folder of the keys of a workspace's devices, or of all; ends with a slash.
    fn folder(&self, workspace: Option<WorkspaceId>) -> String {
        let all = self.objects.all();
        workspace.map_or_else(|| all.clone(), |workspace| format!("{all}{workspace}/"))
    }

    /// Returns a page of bindings, ordered by workspace, then by the hash of the device. Unbound devices have no key, so
    /// that a page looks at none of them.
    pub(crate) async fn list(&self, query: &BindingQuery) -> Result<Page<Binding>> {
        let folder = self.folder(query.workspace);
        let request = Request::new(
            vec![Folder::whole(folder)],
            query.fingerprint(),
            query.cursor.as_ref(),
            query.limit,
        )?;
        let bound = |stored: StoredBinding| Some(Binding::new(stored.device?, stored.workspace?));
        self.objects.page(request, bound, |_| {}).await
    }
}
