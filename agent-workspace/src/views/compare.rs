//! Comparison of two histories: what they share, and how each goes on.

use agent_core::event::Event;
use agent_core::session::SessionRecord;
use agent_core::store::{EventPage, ReadEvents};
use agent_core::{CommitId, Result, Seq, SessionId, SessionStore, SessionStoreExt};

/// Result of the comparison of two sessions: what they share, and how each goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Comparison {
    /// Last event that both histories have; zero if they share none.
    pub shared_until: Seq,
    /// First events after it in the one session.
    pub left: EventPage,
    /// First events after it in the other session.
    pub right: EventPage,
}

/// Compares the histories of two sessions, such as two forks of one, and returns the first events of each after those that they share, at most
/// `limit`.
///
/// The last shared event is found by reading single events of both, whose number grows with the logarithm of the length of the
/// histories. Sessions with equal texts that are no forks share nothing.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-runtime/doc/echo.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// # let (agent, chat) = echo().await?;
/// use agent_runtime::views::compare;
///
/// chat.prompt("Write about rivers").await?.finish().await?;
/// let point = chat.record().head;
/// let other = chat.fork(point).await?;
/// chat.prompt("Make it formal").await?.finish().await?;
/// other.prompt("Make it funny").await?.finish().await?;
///
/// let found = compare(&*agent.storage().sessions, chat.id(), other.id(), 100).await?;
/// assert_eq!(found.shared_until, point);
/// let first = |events: &[agent_core::event::Event]| events.iter().find_map(|event| event.text().map(String::from));
/// assert_eq!(first(&found.left.events).as_deref(), Some("Make it formal"));
/// assert_eq!(first(&found.right.events).as_deref(), Some("Make it funny"));
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// `NotFound`; `Deleted` if events that must be read were purged; `Corrupt` for damage there; errors of the store.
pub async fn compare(
    sessions: &dyn SessionStore,
    left: SessionId,
    right: SessionId,
    limit: usize,
) -> Result<Comparison> {
    let (left, right) = (sessions.load(left).await?, sessions.load(right).await?);
    // What is shared is a beginning of both.
    let (mut shared, mut most) = (Seq::ZERO, left.head.min(right.head));
    while shared < most {
        let middle = Seq::new(shared.get() + (most.get() - shared.get()).div_ceil(2));
        let (one, other) = (event(sessions, &left, middle).await?, event(sessions, &right, middle).await?);
        match one.is_some() && one == other {
            true => shared = middle,
            false => most = Seq::new(middle.get() - 1),
        }
    }
    let rest = ReadEvents::first(limit).with_after(shared);
    Ok(Comparison {
        shared_until: shared,
        left: sessions.history_of(&left, rest.clone()).await?,
        right: sessions.history_of(&right, rest).await?,
    })
}

/// Returns the commit of an event of a session's history, and its place there.
async fn event(
    sessions: &dyn SessionStore,
    session: &SessionRecord,
    seq: Seq,
) -> Result<Option<(CommitId, u32)>> {
    let read = ReadEvents::first(1).with_after(Seq::new(seq.get().saturating_sub(1)));
    let page = sessions.history_of(session, read.with_before(seq.next())).await?;
    Ok(page.events.first().map(|event: &Event| (event.commit, event.n)))
}
