//! How a session is asked for: as a new one, as a fork, as a child.

use crate::base::{Seq, SessionId, WorkspaceId};
use crate::event::{Created, Inherited};
use crate::model::{Attributes, Lineage, Origin, Patch};
use crate::session::record::Session;

/// Request for a fork: the point at which the history is shared, and what is taken along beside it.
///
/// A fork takes no open inputs along unless it is asked to: they are the original's to answer, and would be answered
/// twice. They stay in the history that both share.
///
/// ```
/// use agent_core::Seq;
/// use agent_core::session::Fork;
///
/// let early = Fork::at(Seq::new(7));
/// let with_work = Fork::new().with_open_inputs();
/// # assert!(!early.open_inputs && with_work.open_inputs);
/// ```
#[must_use]
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
#[must_use]
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
    pub fn with(mut self, patch: &Patch) -> Self {
        self.created.attributes.apply(patch);
        self
    }
}
