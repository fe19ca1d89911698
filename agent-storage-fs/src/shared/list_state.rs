//! Sessions and changes that a process knows. Does no I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use agent_core::store::Damaged;
use agent_core::{SessionId, WorkspaceId};

use crate::io::{FileId, IoFile, Stat};
use crate::shared::list_index::{Index, Place};
use crate::shared::summaries::Kept;

/// What this process knows of the sessions of a tenant.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) index: Index,
    /// Sessions that could not be read when they were last looked at.
    pub(crate) damaged: BTreeMap<Place, Damaged>,
    /// Folders of which sessions are in the index.
    pub(crate) folders: BTreeMap<WorkspaceId, Folder>,
    /// Workspaces, and the metadata of their folder when its names were read.
    pub(crate) workspaces: Option<(Stat, BTreeSet<WorkspaceId>)>,
    pub(crate) reading: Option<Reading>,
    /// Sessions that may change, or may have changed since they were looked at.
    pub(crate) pending: BTreeMap<Place, Change>,
    /// Last of the sessions, and of the folders, that were looked at in turn.
    pub(crate) turn: (Option<Place>, Option<WorkspaceId>),
    /// Summaries in the file of which the sessions were not looked at yet; `None` if the file was not read.
    pub(crate) kept: Option<HashMap<Place, Kept>>,
    /// Number of sessions that were read and are not in the file as they are now.
    pub(crate) unkept: usize,
}

/// When the file of summaries is written.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// True if this process has changed a session of the tenant. One that only reads writes no file.
    pub(crate) has_written: AtomicBool,
    /// True if so much is not in the file that the next change has it written.
    pub(crate) is_due: AtomicBool,
}

/// Folder of the sessions of a workspace.
#[derive(Debug)]
pub(crate) struct Folder {
    /// Metadata when its names were read; `None` if there was none.
    pub(crate) stat: Option<Stat>,
    /// Creations since then that explain other metadata.
    pub(crate) unread: usize,
    /// False if nothing is known of what happened there since its names were read.
    pub(crate) is_read: bool,
}

/// Ids that sessions of a tenant have, as far as a process knows that creates sessions.
#[derive(Debug, Default)]
pub(crate) struct TakenIds {
    pub(crate) ids: HashSet<SessionId>,
    pub(crate) reading: Option<Reading>,
    /// Folder of workspaces of which each session is among `ids`, or named by a line that was not read yet.
    pub(crate) whole: Option<FileId>,
    /// Number of times after which nothing was known of what had happened before.
    pub(crate) gaps: u64,
    /// Creations that looked into each workspace.
    pub(crate) searches: usize,
}

/// What happens to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A log of so many bytes is about to grow.
    Grows(u64),
    /// The session is about to be created.
    Begins,
    /// The session is about to get other files.
    Renews,
    /// The change is complete, or will not happen: one look shows what there is.
    Ends,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grows(len) => write!(f, "grows {len}"),
            Self::Begins => f.write_str("begins"),
            Self::Renews => f.write_str("renews"),
            Self::Ends => f.write_str("ends"),
        }
    }
}

/// The file as a reader has it open.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) file: Box<dyn IoFile>,
    pub(crate) id: FileId,
    /// Offset of the first line that was not read.
    pub(crate) at: u64,
    /// The last bytes before `at` that were read.
    pub(crate) read: Vec<u8>,
    /// Length of the file when it was looked at.
    pub(crate) len: u64,
}

/// The file as the writers of this process have it open.
#[derive(Debug, Default)]
pub(crate) struct Writing(pub(crate) Mutex<Option<(Box<dyn IoFile>, FileId)>>);
