//! Heartbeats of lease holders.

use agent_core::store::LeaseStatus;
use agent_core::{Epoch, Result, SessionId};
use bytes::Bytes;

use crate::object::Condition;
use crate::slots::Slots;

/// Writes a heartbeat for the lease `epoch`, if it is live.
pub(crate) async fn heartbeat(slots: &Slots, id: SessionId, epoch: Epoch) -> Result<()> {
    let until = slots.bucket.deadline();
    let session = slots.load(id, until).await?;
    if session.lease.as_ref().is_none_or(|lease| lease.epoch != epoch) {
        return Ok(());
    }
    // Any other number than before. If it is the same by chance, that is like one lost heartbeat.
    let body = Bytes::from(format!("{epoch} {}\n", slots.bucket.effects.random_u64()));
    slots.bucket.put(&slots.keys.heartbeat(id), &body, &Condition::Any, until).await.map(drop)
}

/// Returns the last heartbeat of the lease `epoch`.
pub(crate) async fn lease_status(slots: &Slots, id: SessionId, epoch: Epoch) -> Result<LeaseStatus> {
    let until = slots.bucket.deadline();
    slots.load(id, until).await?;
    let found = slots.bucket.get(&slots.keys.heartbeat(id), until).await?;
    let heartbeat = found.and_then(|object| {
        let text = String::from_utf8_lossy(&object.bytes).into_owned();
        let (of, heartbeat) = text.trim_end().split_once(' ')?;
        (of == epoch.to_string()).then(|| heartbeat.parse::<u64>().ok()).flatten()
    });
    Ok(LeaseStatus::new(heartbeat.unwrap_or(0), false))
}
