//! Records of which a part is lost, as by a column that is not written or not read.

use agent_core::Seq;
use agent_core::model::{Counts, Lineage, Origin};
use agent_core::session::SessionRecord;
use agent_core::state::Reason;

/// A part of a session's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Action,
    Attempts,
    Counts,
    Failure,
    Handled,
    Labels,
    Lineage,
    OpenCalls,
    Origin,
    Owner,
    Pending,
    Reason,
    Requested,
    Resources,
    Title,
}

/// The record without that part.
pub(crate) fn without(column: Column, mut session: SessionRecord) -> SessionRecord {
    match column {
        Column::Action => session.action = None,
        Column::Attempts => session.attempts = 0,
        Column::Counts => session.counts = Counts::default(),
        Column::Failure => session.failure = None,
        Column::Handled => session.inputs_done_through = Seq::ZERO,
        Column::Labels => session.attributes.labels.clear(),
        Column::Lineage => session.lineage = Lineage::default(),
        Column::OpenCalls => session.open_calls.clear(),
        Column::Origin => (session.origin, session.depth) = (Origin::New, 0),
        Column::Owner => session.owner = None,
        Column::Pending => session.inputs_open = 0,
        Column::Reason => session.status.reason = Reason::EndTurn,
        Column::Requested => session.stop_request = None,
        Column::Resources => session.attributes.resources.clear(),
        Column::Title => session.attributes.title = None,
    }
    session
}
