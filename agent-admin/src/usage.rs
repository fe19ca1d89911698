//! Usage: how many bytes the sessions of a tenant store, by session, by workspace and by kind of content.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use futures::TryStreamExt;
use serde::Serialize;

use crate::blobs;
use crate::source::is_read_error;
use agent_core::session::SessionSummary;
use agent_core::state::SessionState;
use agent_core::store::{Damaged, PAGE_MAX, SessionQuery, pages};
use agent_core::{ErrorKind, OwnerId, Result, SessionId, Storage, Timestamp, WorkspaceId};

/// Bytes that sessions store, by kind of content.
///
/// Each session counts what its own events store ([`SessionSummary::content_bytes`]): a fork counts nothing of the history that
/// it shares. Records, lists, the frames of events and the free space of a database are not counted, so that the disk holds more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UsageBytes {
    /// Messages of people, of the agent and of the system.
    pub texts: u64,
    /// Results of tools.
    pub tool_results: u64,
    /// Reasoning of models.
    pub reasoning: u64,
    /// Blobs, each as often as an event names it.
    pub blobs: u64,
    /// Blobs of [search indexes](SessionSummary::is_of_search_index), whose events name them without their sizes.
    pub search_index: u64,
    /// Sum of all kinds.
    pub total: u64,
}

impl UsageBytes {
    fn of(session: &SessionSummary, search_index: u64) -> Self {
        let bytes = session.content_bytes;
        Self {
            texts: bytes.texts,
            tool_results: bytes.tool_results,
            reasoning: bytes.reasoning,
            blobs: bytes.blobs,
            search_index,
            total: bytes.total().saturating_add(search_index),
        }
    }

    fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.texts, other.texts),
            (&mut self.tool_results, other.tool_results),
            (&mut self.reasoning, other.reasoning),
            (&mut self.blobs, other.blobs),
            (&mut self.search_index, other.search_index),
            (&mut self.total, other.total),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Bytes that one session stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SessionUsage {
    /// Id of the session.
    pub session: SessionId,
    /// Workspace that the session belongs to.
    pub workspace: WorkspaceId,
    /// Owner of the session; `None` for a session of the whole tenant.
    pub owner: Option<OwnerId>,
    /// State of the session.
    pub state: SessionState,
    /// Title of the session, or the first words said in it.
    pub title: Option<String>,
    /// Latest time of any of the session's events.
    pub last_active_at: Timestamp,
    /// Bytes that its own events store.
    pub bytes: UsageBytes,
}

/// Bytes that the sessions of one workspace store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkspaceUsage {
    /// Id of the workspace.
    pub workspace: WorkspaceId,
    /// Number of its sessions that store anything.
    pub sessions: u64,
    /// Sum of the bytes of these sessions.
    pub bytes: UsageBytes,
}

/// Bytes that the sessions of a tenant, or of one owner or workspace of it, store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// Number of sessions that store anything: also archived and deleted ones, until they are purged.
    pub sessions: u64,
    /// Sum of the bytes of these sessions.
    pub bytes: UsageBytes,
    /// Workspaces of these sessions, the largest first.
    pub workspaces: Vec<WorkspaceUsage>,
    /// Largest of these sessions, the largest first.
    pub largest: Vec<SessionUsage>,
    /// Sessions that could not be read, and are not counted.
    pub damaged: Vec<Damaged>,
}

/// Sums up what the sessions that `storage` lists store, of all workspaces or of one, and names the `most` largest ones.
///
/// Reads the lists of sessions once, page by page, and of search indexes the lists of their blobs, but no events. It keeps the `most` largest sessions and a line for each
/// workspace in memory. A session that is used while the pages are read may be missing.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_admin::usage::usage;
/// use agent_core::{MemoryStore, Storage};
/// use agent_runtime::{AgentBuilder, EchoProvider};
///
/// let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
/// let chat = agent.conversation("support/4711").await?;
/// chat.prompt("Hello").await?.finish().await?;
/// let before = usage(agent.storage(), None, 10).await?;
///
/// // What a fork shares is counted once.
/// let fork = chat.fork(None).await?;
/// assert_eq!(usage(agent.storage(), None, 10).await?, before);
/// fork.prompt("Hello again").await?.finish().await?;
/// let after = usage(agent.storage(), None, 10).await?;
/// assert_eq!((before.sessions, after.sessions), (1, 2));
/// assert_eq!(after.largest[0].session, fork.id());
/// assert_eq!(after.bytes.total, before.bytes.total + after.largest[0].bytes.total);
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Those of the lists of sessions. A session that cannot be read is no error; [`Usage::damaged`] names it.
///
/// # Cancel safety
///
/// Nothing is written, so it can be dropped at any time.
pub async fn usage(storage: &Storage, workspace: Option<WorkspaceId>, most: usize) -> Result<Usage> {
    let mut query = SessionQuery::new().with_hidden().with_limit(PAGE_MAX);
    query.workspace = workspace;
    let mut read = pages(query, |query| storage.sessions.list(query));
    let (mut usage, mut workspaces, mut largest) = (Usage::default(), HashMap::new(), Largest::new(most));
    while let Some(page) = read.try_next().await? {
        usage.damaged.extend(page.damaged);
        for session in page.items {
            let mut search_index = 0;
            if session.is_of_search_index() {
                match blobs::sizes(&*storage.sessions, session.id).await {
                    Ok(sizes) => search_index = sizes.into_values().fold(0, u64::saturating_add),
                    Err(error) if *error.kind() == ErrorKind::Corrupt || is_read_error(&error) => {
                        let object = format!("session {}", session.id);
                        usage.damaged.push(Damaged::new(object, error.to_string()));
                    }
                    Err(error) => return Err(error),
                }
            }
            let bytes = UsageBytes::of(&session, search_index);
            if bytes.total == 0 {
                continue;
            }
            usage.sessions += 1;
            usage.bytes.add(&bytes);
            let (sessions, sum) = workspaces.entry(session.workspace).or_insert((0, UsageBytes::default()));
            *sessions += 1;
            sum.add(&bytes);
            largest.offer(session, bytes);
        }
    }
    usage.largest = largest.into_vec();
    let each = |(workspace, (sessions, bytes))| WorkspaceUsage { workspace, sessions, bytes };
    usage.workspaces = workspaces.into_iter().map(each).collect();
    usage.workspaces.sort_by_key(|it| (Reverse(it.bytes.total), it.workspace));
    Ok(usage)
}

/// Largest sessions so far. The first place is that of the smallest of them.
struct Largest {
    most: usize,
    places: BTreeSet<(u64, Reverse<SessionId>)>,
    sessions: HashMap<SessionId, SessionUsage>,
}

impl Largest {
    fn new(most: usize) -> Self {
        Self { most, places: BTreeSet::new(), sessions: HashMap::new() }
    }

    fn offer(&mut self, session: SessionSummary, bytes: UsageBytes) {
        self.places.insert((bytes.total, Reverse(session.id)));
        let usage = SessionUsage {
            session: session.id,
            workspace: session.workspace,
            title: session.display_title().map(ToOwned::to_owned),
            owner: session.owner,
            state: session.status.state,
            last_active_at: session.last_active_at,
            bytes,
        };
        self.sessions.insert(usage.session, usage);
        if self.places.len() > self.most
            && let Some((_, Reverse(id))) = self.places.pop_first()
        {
            self.sessions.remove(&id);
        }
    }

    fn into_vec(mut self) -> Vec<SessionUsage> {
        self.places.into_iter().rev().filter_map(|(_, Reverse(id))| self.sessions.remove(&id)).collect()
    }
}
