//! The change of status that an event carries: what `plan` decided, spelled out, so that folding decides nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::{Epoch, Reason, Seq, SessionState, Timestamp, TriggerKind, present};
use crate::model::parts::{Failure, Lease, PendingAction, Request, Status};

/// A change of status. Every field but the first four is there only where it changes; `Some(None)`, in JSON `null`,
/// clears it.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Transition {
    /// What was asked; the last one, where an event carries several.
    pub trigger: TriggerKind,
    /// The state before.
    pub from: SessionState,
    /// The state after.
    pub to: SessionState,
    /// Why.
    pub reason: Reason,
    /// What it was before it was archived.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub before: Option<Option<Status>>,
    /// Who runs it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub lease: Option<Option<Lease>>,
    /// The number of the newest lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// What the run was asked to do.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub requested: Option<Option<Request>>,
    /// The last input that the run took up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Seq>,
    /// The last input that is done with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled: Option<Seq>,
    /// How many inputs are not done with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<u64>,
    /// How many inputs came after `taken`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<u64>,
    /// What the session waits for.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub action: Option<Option<PendingAction>>,
    /// Wakes due at or before this are done with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes_done: Option<Timestamp>,
    /// Of these only the ones that were scheduled by this event or before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes_seen: Option<Seq>,
    /// How often in a row a run of the same input failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// When it may run again.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub ready_at: Option<Option<Timestamp>>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub failure: Option<Option<Failure>>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub ended_at: Option<Option<Timestamp>>,
    /// Fields of a newer version. Their meaning is not known, so a session that has them takes no commits.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, serde_json::Value>,
}

impl Transition {
    /// A change of state and nothing else.
    pub(crate) fn new(trigger: TriggerKind, from: SessionState, to: SessionState, reason: Reason) -> Self {
        Self {
            trigger,
            from,
            to,
            reason,
            before: None,
            lease: None,
            epoch: None,
            requested: None,
            taken: None,
            handled: None,
            pending: None,
            arrived: None,
            action: None,
            wakes_done: None,
            wakes_seen: None,
            attempts: None,
            ready_at: None,
            failure: None,
            ended_at: None,
            unknown: BTreeMap::new(),
        }
    }

    /// This, followed by `later`, as one change.
    pub(crate) fn then(mut self, later: Self) -> Self {
        self.trigger = later.trigger;
        self.to = later.to;
        self.reason = later.reason;
        if later.wakes_done.is_some() {
            self.wakes_seen = later.wakes_seen;
        }
        macro_rules! later_wins {
            ($($name:ident)*) => { $(if later.$name.is_some() { self.$name = later.$name; })* };
        }
        later_wins!(before lease epoch requested taken handled pending arrived action wakes_done attempts);
        later_wins!(ready_at failure ended_at);
        self
    }
}
