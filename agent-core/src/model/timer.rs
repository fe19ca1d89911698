//! Timers: scheduled runs of a session.

use serde::{Deserialize, Serialize};

use crate::base::{Seq, Timestamp, is_default};
use crate::setters;

/// Time at which a scheduler must run the session.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::event::NewEvent;
/// use agent_core::model::Timer;
///
/// # let (store, effects, session) = session().await?;
/// let monday = "2126-02-18T08:00:00Z".parse()?;
/// let timer = Timer::new("weekly-report", monday).with_note("write the weekly report").with_priority(1);
/// let events = vec![NewEvent::timer_scheduled(timer)];
/// let session = store.append(session.id, session.head, events).await?.session;
/// assert_eq!(session.next_due_at(), Some(monday));
///
/// let events = vec![NewEvent::timer_cancelled("weekly-report")];
/// let session = store.append(session.id, session.head, events).await?.session;
/// assert!(session.timers.is_empty());
/// # Ok(()) }
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[doc(alias = "Wake")]
pub struct Timer {
    /// Key of the timer; a later timer with the same key replaces this one.
    pub key: String,
    /// Time at which the timer is due.
    pub at: Timestamp,
    /// Purpose, as text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Priority: of the timers that one run serves, the model is given those with a higher priority first. 0 by
    /// default.
    #[serde(default)]
    pub priority: i32,
    /// Event that scheduled the timer. Set in a session's record only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub seq: Seq,
}

impl Timer {
    /// Creates a timer at `at`.
    pub fn new(key: impl Into<String>, at: Timestamp) -> Self {
        Self { key: key.into(), at, note: String::new(), priority: 0, seq: Seq::ZERO }
    }

    setters! {
        /// Sets the purpose: at most 512 bytes.
        pub fn with_note(note: impl Into<String>) => note = note.into();

        /// Sets the priority among the timers that one run serves; 0 by default.
        pub fn with_priority(priority: i32) => priority = priority;
    }
}

/// Cancellation of a timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[doc(alias = "WakeCancelled")]
pub struct TimerCancelled {
    /// Key of the timer.
    pub key: String,
}

impl TimerCancelled {
    /// Creates the cancellation of the timer with this key.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into() }
    }
}
