//! Change of status that an event carries: the complete decision of `plan`, so that folding decides nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::{Epoch, Reason, Seq, SessionState, Timestamp, TriggerKind, present};
use crate::model::parts::{Failure, Lease, PendingAction, Request, Status};

/// Change of a session's status. Every field but the first four is set only if it changes; `Some(None)`, in JSON
/// `null`, clears it.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Transition {
    /// Trigger of the change; the last one, if an event carries several.
    pub trigger: TriggerKind,
    /// State before the change.
    pub from: SessionState,
    /// State after the change.
    pub to: SessionState,
    /// Reason for the new state.
    pub reason: Reason,
    /// Status before the session was archived.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub state_before_archive: Option<Option<Status>>,
    /// Lease on the session.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub lease: Option<Option<Lease>>,
    /// Number of the newest lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// Request to the run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub stop_request: Option<Option<Request>>,
    /// Last input that the run claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_claimed_through: Option<Seq>,
    /// Last input that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_done_through: Option<Seq>,
    /// Number of inputs that are not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_open: Option<u64>,
    /// Number of inputs that arrived after `inputs_claimed_through`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_new: Option<u64>,
    /// Action that the session waits for.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub action: Option<Option<PendingAction>>,
    /// Time up to which due timers are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timers_done: Option<Timestamp>,
    /// Last event whose timers `timers_done` covers; timers scheduled by later events stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timers_seen: Option<Seq>,
    /// Number of consecutive failed runs of the same input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Earliest time at which the session may run again.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub ready_at: Option<Option<Timestamp>>,
    /// Failure of the last run or of the session.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub failure: Option<Option<Failure>>,
    /// Time at which the session ended.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub ended_at: Option<Option<Timestamp>>,
    /// Fields of a newer version. Their meaning is not known, so a session that has them accepts no commits.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, serde_json::Value>,
}

impl Transition {
    /// Creates a change of state without other changes.
    pub(crate) fn new(trigger: TriggerKind, from: SessionState, to: SessionState, reason: Reason) -> Self {
        Self {
            trigger,
            from,
            to,
            reason,
            state_before_archive: None,
            lease: None,
            epoch: None,
            stop_request: None,
            inputs_claimed_through: None,
            inputs_done_through: None,
            inputs_open: None,
            inputs_new: None,
            action: None,
            timers_done: None,
            timers_seen: None,
            attempts: None,
            ready_at: None,
            failure: None,
            ended_at: None,
            unknown: BTreeMap::new(),
        }
    }

    /// Combines this change and `later`, which follows it, into one change.
    pub(crate) fn then(mut self, later: Self) -> Self {
        self.trigger = later.trigger;
        self.to = later.to;
        self.reason = later.reason;
        if later.timers_done.is_some() {
            self.timers_seen = later.timers_seen;
        }
        macro_rules! later_wins {
            ($($name:ident)*) => { $(if later.$name.is_some() { self.$name = later.$name; })* };
        }
        later_wins!(state_before_archive lease epoch stop_request inputs_claimed_through inputs_done_through inputs_open inputs_new action timers_done attempts);
        later_wins!(ready_at failure ended_at);
        self
    }
}
