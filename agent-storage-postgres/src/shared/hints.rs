//! Hints that sessions have changed, for the other stores of the schema. They are sent outside of commits, several at once:
//! NOTIFY takes a lock that all commits of a database would wait for.

use std::collections::HashSet;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_core::{Result, TenantId};

use crate::error::Step;
use crate::medium::db::Db;
use crate::medium::known::Key;
use crate::medium::session_rows::new_version;

/// Most sessions whose hints wait to be sent. Changes of others are found by those who look.
const MOST: usize = 4096;

/// Hints of one store. They name the session alone: whoever gets one reads the session, so that a forged one costs a look.
#[derive(Debug)]
pub(crate) struct Hints {
    /// Number by which the store knows its own hints.
    origin: i64,
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    sessions: HashSet<Key>,
    /// True while a task is to send them.
    is_scheduled: bool,
}

impl Hints {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { origin: new_version()?, pending: Mutex::default() })
    }

    /// Adds a session that has changed. Returns whether the caller has to start a task that sends the hints.
    pub(crate) fn add(&self, key: Key) -> bool {
        let mut pending = self.lock();
        if pending.sessions.len() < MOST {
            pending.sessions.insert(key);
        }
        !mem::replace(&mut pending.is_scheduled, true)
    }

    /// Returns the payloads of the hints that wait. If there are none, the task that sends them ends.
    pub(crate) fn take(&self) -> Vec<String> {
        let mut pending = self.lock();
        pending.is_scheduled = !pending.sessions.is_empty();
        let sessions = mem::take(&mut pending.sessions);
        sessions.iter().map(|(tenant, id)| format!("{} {id} {tenant}", self.origin)).collect()
    }

    /// Returns the session of a hint that another store has sent; `None` if it is no hint.
    pub(crate) fn read(&self, payload: &str) -> Option<Key> {
        let (origin, rest) = payload.split_once(' ')?;
        let (id, tenant) = rest.split_once(' ')?;
        let tenant: TenantId = tenant.parse().ok()?;
        (origin.parse() != Ok(self.origin)).then_some((tenant.as_str().into(), id.parse().ok()?))
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends hints in one transaction.
pub(crate) async fn send(db: &mut Db, channel: &str, payloads: &[String]) -> Step<()> {
    // The server waits for no disk and no standby when a transaction does nothing else.
    let sql = "SELECT count(pg_notify($1, p)) FROM unnest($2::text[]) AS p";
    db.first(db.of_all(sql).bind(channel.to_owned()).bind(payloads.to_vec())).await.map(drop)
}

#[cfg(test)]
mod tests {
    use agent_core::SessionId;

    use super::*;

    #[test]
    fn hints_are_read_by_others_only() {
        let (one, other) = (Hints::new().unwrap(), Hints::new().unwrap());
        let key: Key = ("t".repeat(63).into(), SessionId::from_uuid(Default::default()));
        assert!(one.add(key.clone()));
        assert!(!one.add(key.clone()), "a task was started before");
        let payloads = one.take();
        assert_eq!(payloads.len(), 1);
        assert!(payloads[0].len() < 8000);
        assert_eq!(one.read(&payloads[0]), None);
        assert_eq!(other.read(&payloads[0]), Some(key.clone()));
        assert!(!one.add(key.clone()), "the task takes them, too");
        assert_eq!((one.take().len(), one.take().len()), (1, 0));
        assert!(one.add(key), "the task has ended");
    }

    #[test]
    fn forged_hints_are_no_hints() {
        let hints = Hints::new().unwrap();
        let long = "1 ".repeat(4000);
        let id = SessionId::from_uuid(Default::default());
        for payload in
            ["", " ", "1", "1 2", "1 2 acme", "1  acme", "\u{0}", &long, &format!("1 {id} No Tenant")]
        {
            assert_eq!(hints.read(payload), None, "{payload:?}");
        }
        assert!(hints.read(&format!("x {id} acme")).is_some());
    }

    #[test]
    fn hints_that_wait_are_bounded() {
        let hints = Hints::new().unwrap();
        for n in 0..2 * MOST {
            hints.add((n.to_string().into(), SessionId::from_uuid(Default::default())));
        }
        assert_eq!(hints.take().len(), MOST);
    }
}
