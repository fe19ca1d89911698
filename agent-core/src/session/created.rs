//! How a session begins, and what lists show of it.

use serde::{Deserialize, Serialize};

use crate::base::id::{Seq, SessionId, WorkspaceId};
use crate::base::timestamp::Timestamp;
use crate::session::attributes::{Attributes, Patch};
use crate::session::document::DocumentHead;
use crate::session::event::Actor;
use crate::session::lineage::Lineage;
use crate::session::parts::{Counts, Origin, Status};
use crate::session::record::{Session, is_default};

/// The payload of a session's first event: everything that its record starts from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Created {
    /// The workspace that it belongs to.
    pub workspace: WorkspaceId,
    /// How it came to be.
    #[serde(default, skip_serializing_if = "is_default")]
    pub origin: Origin,
    /// How many sessions there are between it and one that came from nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub depth: u32,
    /// Where the older part of its history lies.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lineage: Lineage,
    /// Title, labels, metadata, references, resources.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attributes: Attributes,
    /// What it takes over from the session that it was forked from.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inherited: Inherited,
}

/// What a fork takes over: the cursors, counts and documents at the point of the fork.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Inherited {
    /// How many events of each kind are visible.
    pub counts: Counts,
    /// The last input.
    pub last_input: Seq,
    /// The last input that is done with.
    pub handled: Seq,
    /// How many inputs are not done with.
    pub pending: u64,
    /// What is visible lies after this.
    pub visible_from: Seq,
    /// The event with the custom system prompt in force.
    pub system_prompt: Seq,
    /// The event with the outcome that was defined last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outcome: Seq,
    /// The documents; their texts stay in the ancestor's log.
    #[serde(default, skip_serializing_if = "is_default")]
    pub documents: Vec<DocumentHead>,
    /// The event with the summary in force.
    #[serde(default, skip_serializing_if = "is_default")]
    pub summary: Seq,
    /// What the summary does not stand for lies after this.
    #[serde(default, skip_serializing_if = "is_default")]
    pub context_from: Seq,
}

/// Request for a fork: the point at which the history is shared, and what is taken along beside it.
///
/// A fork takes no open inputs along unless it is asked to: they are the original's to answer, and would be answered
/// twice. They stay in the history that both share.
///
/// ```
/// use agent_core::{Fork, Seq};
///
/// let early = Fork::at(Seq::new(7));
/// let with_work = Fork::new().with_open_inputs();
/// # assert!(!early.open_inputs && with_work.open_inputs);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fork {
    /// The last event that both sessions share; `None` for the last point at which no tool call is open.
    pub at: Option<Seq>,
    /// Whether inputs that were not answered at that point wait in the fork, too.
    pub open_inputs: bool,
}

impl Fork {
    /// A fork at the last point at which no tool call is open, without open inputs.
    pub const fn new() -> Self {
        Self { at: None, open_inputs: false }
    }

    /// A fork at event `at`, without open inputs.
    pub const fn at(at: Seq) -> Self {
        Self { at: Some(at), open_inputs: false }
    }

    /// Takes the inputs that were not answered along: the fork is queued, and the next run of it answers them.
    #[must_use]
    pub const fn with_open_inputs(mut self) -> Self {
        self.open_inputs = true;
        self
    }
}

impl From<Option<Seq>> for Fork {
    fn from(at: Option<Seq>) -> Self {
        Self { at, open_inputs: false }
    }
}

impl From<Seq> for Fork {
    fn from(at: Seq) -> Self {
        Self::at(at)
    }
}

/// A session that is to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewSession {
    /// Its id, minted by the caller.
    pub id: SessionId,
    /// What its first event will say.
    pub created: Created,
}

impl NewSession {
    /// A session with nothing in it.
    pub fn new(id: SessionId, workspace: WorkspaceId) -> Self {
        Self {
            id,
            created: Created {
                workspace,
                origin: Origin::New,
                depth: 0,
                lineage: Lineage::default(),
                attributes: Attributes::default(),
                inherited: Inherited::default(),
            },
        }
    }

    /// A copy of `parent` up to and including its event `at`, for which `parent` must be the record (as it was at
    /// `at`, that is: the fold of the events up to there). Open inputs stay with `parent`, see
    /// [`with_open_inputs`](Self::with_open_inputs).
    pub fn fork(id: SessionId, parent: &Session) -> Self {
        let mut new = Self::new(id, parent.workspace);
        new.created.origin = Origin::Fork { parent: parent.id, at: parent.head };
        new.created.depth = parent.depth.saturating_add(1);
        new.created.lineage = parent.lineage.forked(parent.id, parent.head);
        new.created.attributes = parent.attributes.clone();
        // What is of use in one process only belongs to the session that took it.
        new.created.attributes.handles.retain(|_, handle| handle.process.is_none());
        new.created.inherited = Inherited {
            counts: parent.counts,
            last_input: parent.last_input,
            handled: parent.last_input.max(parent.handled),
            pending: 0,
            visible_from: parent.visible_from,
            system_prompt: parent.system_prompt,
            outcome: parent.outcome,
            documents: parent.documents.clone(),
            summary: parent.summary,
            context_from: parent.context_from,
        };
        new
    }

    /// Takes along the inputs of `parent` that are not answered: a fork of it then answers them, too.
    #[must_use]
    pub fn with_open_inputs(mut self, parent: &Session) -> Self {
        self.created.inherited.handled = parent.handled;
        self.created.inherited.pending = parent.pending;
        self
    }

    /// A helper of `parent`, in its workspace, with a history of its own.
    pub fn child(id: SessionId, parent: &Session) -> Self {
        let mut new = Self::new(id, parent.workspace);
        new.created.origin = Origin::Child { parent: parent.id, at: parent.head };
        new.created.depth = parent.depth.saturating_add(1);
        new
    }

    /// Applies a patch to what is said of it.
    #[must_use]
    pub fn with(mut self, patch: &Patch) -> Self {
        self.created.attributes.apply(patch);
        self
    }
}

/// What lists show of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionSummary {
    /// Its id.
    pub id: SessionId,
    /// The workspace that it belongs to.
    pub workspace: WorkspaceId,
    /// Its last event.
    pub head: Seq,
    /// Its state, and why.
    pub status: Status,
    /// How it came to be.
    pub origin: Origin,
    /// How many sessions there are between it and one that came from nothing.
    pub depth: u32,
    /// Who created it.
    pub creator: Actor,
    /// Title, labels, metadata, references, resources.
    pub attributes: Attributes,
    /// When it was created.
    pub created_at: Timestamp,
    /// The latest time of any of its events.
    pub last_active_at: Timestamp,
    /// How many events of each kind it shows.
    pub counts: Counts,
    /// How many inputs are not done with.
    pub pending: u64,
    /// When it wants somebody to come; see [`Session::due_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

impl From<&Session> for SessionSummary {
    fn from(session: &Session) -> Self {
        Self {
            id: session.id,
            workspace: session.workspace,
            head: session.head,
            status: session.status,
            origin: session.origin,
            depth: session.depth,
            creator: session.creator.clone(),
            attributes: session.attributes.clone(),
            created_at: session.created_at,
            last_active_at: session.last_active_at,
            counts: session.counts,
            pending: session.pending,
            due_at: session.due_at(),
        }
    }
}
