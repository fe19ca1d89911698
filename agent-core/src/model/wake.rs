//! Wakes: what a session is to be woken for, and when.

use serde::{Deserialize, Serialize};

use crate::base::{Seq, Timestamp, is_default};

/// A time at which the session wants to run.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wake {
    /// A later wake of the same key replaces this one.
    pub key: String,
    /// When it is due.
    pub at: Timestamp,
    /// What for, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Among those that one run is for, a higher one is told first.
    #[serde(default)]
    pub priority: i32,
    /// The event that scheduled it. Known in a session's record only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub seq: Seq,
}

impl Wake {
    /// A wake at `at`.
    pub fn new(key: impl Into<String>, at: Timestamp) -> Self {
        Self { key: key.into(), at, note: String::new(), priority: 0, seq: Seq::ZERO }
    }

    /// Says what for: at most 512 bytes.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Sets its rank among those that one run is for; 0 unless set.
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }
}

/// A wake is wanted no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WakeCancelled {
    /// The wake's key.
    pub key: String,
}

impl WakeCancelled {
    /// Names the wake.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into() }
    }
}
