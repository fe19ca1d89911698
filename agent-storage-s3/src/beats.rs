//! Signs of life of those who hold a lease.

use agent_core::store::Pulse;
use agent_core::{Epoch, Result, SessionId};
use bytes::Bytes;

use crate::object::Condition;
use crate::slots::Slots;

/// Leaves a sign of life of the lease `epoch`, where that lives.
pub(crate) async fn beat(slots: &Slots, id: SessionId, epoch: Epoch) -> Result<()> {
    let until = slots.bucket.deadline();
    let session = slots.load(id, until).await?;
    if session.lease.as_ref().is_none_or(|lease| lease.epoch != epoch) {
        return Ok(());
    }
    // Any other number than before; the chance of the same twice in a row does no more than a lost beat.
    let body = Bytes::from(format!("{epoch} {}\n", slots.bucket.effects.random_u64()));
    slots.bucket.put(&slots.keys.beat(id), &body, &Condition::Any, until).await.map(drop)
}

/// The last sign of life of the lease `epoch`.
pub(crate) async fn pulse(slots: &Slots, id: SessionId, epoch: Epoch) -> Result<Pulse> {
    let until = slots.bucket.deadline();
    slots.load(id, until).await?;
    let found = slots.bucket.get(&slots.keys.beat(id), until).await?;
    let beat = found.and_then(|object| {
        let text = String::from_utf8_lossy(&object.bytes).into_owned();
        let (of, beat) = text.trim_end().split_once(' ')?;
        (of == epoch.to_string()).then(|| beat.parse::<u64>().ok()).flatten()
    });
    Ok(Pulse::new(beat.unwrap_or(0), false))
}
