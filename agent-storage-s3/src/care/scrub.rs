//! Check of all slots of a session, also of those whose events later commits carry, so that reading does not need them.

use agent_core::store::Damaged;
use agent_core::{Result, Seq, SessionId};
use futures::StreamExt;

use crate::error::is_damage;
use crate::layout::keys::Slot;
use crate::log::slot::{Entry, Kind};
use crate::log::slots::Slots;
use crate::medium::object::AT_ONCE;

/// Returns the slots that are missing or damaged. Reads each slot once.
///
/// A process that last saw the session at the slot before a missing one would commit into it, and nobody else would see
/// that commit.
pub(crate) async fn faults(slots: &Slots, id: SessionId) -> Result<Vec<Damaged>> {
    let listed = slots.bucket.list_all(&slots.keys.slots(id), false, slots.bucket.deadline()).await?;
    // The newest are listed first.
    let all: Vec<_> = listed.keys.iter().rev().filter_map(|key| slots.keys.slot_of(id, key)).collect();
    let read = |slot: Slot| async move { (slot, slots.get(id, slot, slots.bucket.deadline()).await) };
    let mut entries = futures::stream::iter(all).map(read).buffered(AT_ONCE);
    let (mut due, mut faults) = (Some(Slot::FIRST), Vec::new());
    let fault = |text: String| Damaged::new(format!("session {id}"), text);
    while let Some((slot, entry)) = entries.next().await {
        let entry = match entry {
            Ok(Some(entry)) => entry,
            // It was removed since it was listed; so were all, if the tenant was deleted.
            Ok(None) => continue,
            Err(error) if is_damage(&error) => {
                faults.push(Damaged::of(format!("session {id}"), &error));
                due = None;
                continue;
            }
            Err(error) => return Err(error),
        };
        // The tombstone of a damaged session may have left slots out.
        if let Some(due) = due.filter(|due| *due != slot && entry.head.kind != Kind::Purged) {
            let key = slots.keys.slot(id, due);
            faults.push(fault(format!("slot {} is missing; restore the object {key} from a copy", due.0)));
        }
        faults.extend(damaged_line(&entry).map(fault));
        // A stub may be that of a damaged object, of which nobody knows where it ended.
        due = (entry.head.kind == Kind::Commit).then(|| entry.next());
    }
    Ok(faults)
}

/// Returns what is wrong with the first damaged line of an object's events.
fn damaged_line(entry: &Entry) -> Option<String> {
    let numbers = (entry.head.window.get()..=entry.head.last.get()).map(Seq::new);
    // Of the others no events, or not all, are left.
    let mut numbers = numbers.filter(|_| entry.head.kind == Kind::Commit);
    numbers.find_map(|seq| entry.event(seq).err()).map(|error| error.to_string())
}
