//! Reading of histories: a session's own log, and the logs of its ancestors.

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::base::{Error, ErrorKind, Result, Seq, SessionId, SessionState};
use crate::event::Event;
use crate::model::Lineage;
use crate::session::SessionRecord;
use crate::store::page::PAGE_MAX;
use crate::store::read::{EventPage, ReadEvents};
use crate::store::session::SessionStore;

/// Maximum number of events, and of their bytes, that a stream reads at a time.
pub(super) const PAGE: usize = 500;
pub(super) const PAGE_BYTES: usize = 256 << 10;

/// Returns a page of a history, including the events in ancestors.
pub(crate) async fn history(store: &dyn SessionStore, id: SessionId, read: ReadEvents) -> Result<EventPage> {
    let session = store.load(id).await?;
    part_of(store, id, session.head, session.lineage.clone(), read).await
}

/// Returns a page of the history of a session with this head and these ancestors.
pub(crate) async fn part_of(
    store: &dyn SessionStore,
    id: SessionId,
    head: Seq,
    lineage: Lineage,
    read: ReadEvents,
) -> Result<EventPage> {
    if lineage.segments.is_empty() {
        return read_part(store, id, read).await;
    }
    history_page(store, id, head, lineage, read).await
}

/// Returns the next events after `seen` of the history of `id`, and the number of the last. Waits if there are none yet.
///
/// A caller that has read up to `seen` needs this alone to follow a session: a store that polls a server is asked
/// for nothing that it has seen itself.
///
/// # Cancel safety
///
/// Dropping the future has no effect.
///
/// # Errors
///
/// Those of [`SessionStore::changed`] and [`SessionStore::read`]; `Corrupt` if the next event is damaged; `Deleted` if the
/// events after `seen` were purged.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::store::coming_events;
///
/// # let (store, effects, session) = session().await?;
/// let (coming, appended) = tokio::join!(
///     coming_events(&*store, session.id, session.head),
///     store.append(session.id, session.head, vec![NewEvent::user_message("Hello")]),
/// );
/// assert_eq!(coming?.1, appended?.last);
/// # Ok(()) }
/// ```
pub async fn coming_events(store: &dyn SessionStore, id: SessionId, seen: Seq) -> Result<(Vec<Event>, Seq)> {
    loop {
        let head = store.changed(id, seen).await?;
        let read = ReadEvents::first(PAGE).with_max_bytes(PAGE_BYTES).with_after(seen).with_known_head(head);
        let page = read_part(store, id, read).await?;
        if let (Some(first), Some(last)) = (page.events.first(), page.events.last())
            && first.seq == seen.next()
        {
            let last = last.seq;
            return Ok((page.events, last));
        }
        // The next event is in the log of an ancestor, or damaged, or gone.
        if let Some(next) = next_events(store, id, seen).await? {
            return Ok(next);
        }
        if store.load(id).await?.status.state == SessionState::Deleted {
            return Err(purged(id));
        }
    }
}

/// Returns the next events after `seen` of the history of `id`, and the number of the last; `None` if there are none
/// yet.
///
/// # Errors
///
/// Those of [`SessionStore::read`]; `Corrupt` if the next event is damaged.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::store::next_events;
///
/// # let (store, effects, session) = session().await?;
/// let (events, last) = next_events(&*store, session.id, agent_core::Seq::ZERO).await?.unwrap();
/// assert_eq!((events.len(), last), (1, session.head));
/// assert_eq!(next_events(&*store, session.id, last).await?, None);
/// # Ok(()) }
/// ```
pub async fn next_events(
    store: &dyn SessionStore,
    id: SessionId,
    seen: Seq,
) -> Result<Option<(Vec<Event>, Seq)>> {
    let page =
        history(store, id, ReadEvents::first(PAGE).with_max_bytes(PAGE_BYTES).with_after(seen)).await?;
    if let Some(last) = page.events.last().map(|event| event.seq) {
        return Ok(Some((page.events, last)));
    }
    match page.damaged.first() {
        Some(damage) => Err(Error::corrupt(format!("session {id}: {damage}"))),
        None => Ok(None),
    }
}

/// Refuses a reader that has the events up to and including `after` and is ahead of the session, for which it would wait for
/// ever: of a session that was restored from a backup, or of another store.
///
/// # Errors
///
/// `InvalidInput`, with both numbers, if `after` is greater than the number of the session's last event.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::store::check_position;
///
/// # let (store, effects, session) = session().await?;
/// check_position(&session, session.head)?;
/// let error = check_position(&session, agent_core::Seq::new(9)).unwrap_err();
/// assert!(error.to_string().contains("event 9 is beyond the last one, which is event 1"));
/// # Ok(()) }
/// ```
pub fn check_position(session: &SessionRecord, after: Seq) -> Result<()> {
    let (id, head) = (session.id, session.head);
    if after <= head {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "session {id}: event {after} is beyond the last one, which is event {head}; the events that were read before are of \
         another state of the session, so read it from the beginning, or follow it from event {head}"
    )))
}

/// Returns a session's own events after `after`, up to and including `until`.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/setup.rs"));
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_core::Seq;
/// use agent_core::store::own_events;
/// use futures::TryStreamExt;
///
/// # let (store, effects, session) = session().await?;
/// let fork = store.fork(session.id, None).await?;
/// let own: Vec<_> = own_events(&*store, fork.id, Seq::ZERO, None).try_collect().await?;
/// assert_eq!(own[0].seq, fork.lineage.base().next());
/// # Ok(()) }
/// ```
pub fn own_events(
    store: &dyn SessionStore,
    id: SessionId,
    after: Seq,
    until: Option<Seq>,
) -> BoxStream<'_, Result<Event>> {
    let mut first = ReadEvents::first(PAGE).with_max_bytes(PAGE_BYTES).with_after(after);
    first.before = until.map(Seq::next);
    let pages = stream::try_unfold(Some(first), move |read| async move {
        let Some(read) = read else { return Ok(None) };
        let page = store.read(id, read).await?;
        if let Some(damage) = page.damaged.first() {
            return Err(Error::corrupt(format!("session {id}: {damage}")));
        }
        Ok(Some((stream::iter(page.events.into_iter().map(Ok)), page.next)))
    });
    pages.try_flatten().boxed()
}

/// Returns the record of a session as it was after the event `at` of its own log.
async fn fold_own(store: &dyn SessionStore, id: SessionId, at: Seq) -> Result<SessionRecord> {
    let mut events = own_events(store, id, Seq::ZERO, Some(at));
    let first = events.try_next().await?;
    let first = first.ok_or_else(|| Error::corrupt(format!("session {id} has no first event")))?;
    let mut past = SessionRecord::begin(id, &first)?;
    while let Some(event) = events.try_next().await? {
        past.apply(&event)?;
    }
    Ok(past)
}

/// Returns the record of a session as it was after its event `at`, which may be stored in an ancestor.
pub(crate) async fn fold_to(store: &dyn SessionStore, now: &SessionRecord, at: Seq) -> Result<SessionRecord> {
    // The first event of each log holds the state at the fork, so that folding needs no earlier log.
    let (mut owner, _) = now.lineage.locate(now.id, at);
    loop {
        let record = store.load(owner).await?;
        if record.lineage.base() < at {
            break;
        }
        (owner, _) = record.lineage.locate(owner, at);
    }
    match fold_own(store, owner, at).await {
        // Missing events may have been purged meanwhile, which is no damage.
        Err(error) if *error.kind() == ErrorKind::Corrupt => match store.load(owner).await?.status.state {
            SessionState::Deleted => Err(purged(owner)),
            _ => Err(error),
        },
        folded => folded,
    }
}

fn purged(id: SessionId) -> Error {
    Error::deleted(format!("session {id} was deleted, and its events purged"))
}

/// Returns the last event before the commit that has the event `seq`, and the last event of that commit.
pub(crate) async fn commit_of(store: &dyn SessionStore, now: &SessionRecord, seq: Seq) -> Result<(Seq, Seq)> {
    let read = ReadEvents::first(1).with_after(Seq::new(seq.get().saturating_sub(1))).with_before(seq.next());
    let page = part_of(store, now.id, now.head, now.lineage.clone(), read).await?;
    let (n, of) = page.events.first().map_or((1, 1), |event| (event.n, event.of.max(event.n)));
    let before = seq.get().saturating_sub(u64::from(n));
    Ok((Seq::new(before), Seq::new(seq.get().saturating_add(u64::from(of - n)))))
}

/// Returns the neighbours of an event at which a history may be divided, if it may not be divided at the event itself:
/// the last event of the commit before, and of its own commit.
pub(crate) async fn inside_commit(
    store: &dyn SessionStore,
    now: &SessionRecord,
    at: Seq,
) -> Result<Option<(Seq, Seq)>> {
    if at == Seq::ZERO || at >= now.head {
        return Ok(None);
    }
    let (before, after) = commit_of(store, now, at).await?;
    Ok((after > at).then_some((before, after)))
}

/// Returns the event, or the last event of the commit before if it is inside a commit.
pub(crate) async fn commit_end_before(store: &dyn SessionStore, now: &SessionRecord, at: Seq) -> Result<Seq> {
    Ok(inside_commit(store, now, at).await?.map_or(at, |(before, _)| before))
}

/// Returns one page of a history that spans several logs: reads log after log, in the read's direction, until the
/// page is full.
async fn history_page(
    store: &dyn SessionStore,
    id: SessionId,
    head: Seq,
    lineage: Lineage,
    read: ReadEvents,
) -> Result<EventPage> {
    // The events still to be read are after `rest.after` and before `end`.
    let mut rest = read.clone();
    rest.limit = read.limit.min(PAGE_MAX);
    if rest.limit == 0 {
        return Ok(EventPage::default());
    }
    let mut end = read.before.unwrap_or(Seq::new(u64::MAX)).min(head.next());
    let mut out = EventPage::default();
    let mut parts: Vec<Vec<Event>> = Vec::new();
    while rest.after.next() < end {
        let seq = if read.newest { Seq::new(end.get() - 1) } else { rest.after.next() };
        let place = owner_of(store, id, &lineage, seq).await?;
        let mut part = rest.clone();
        part.after = rest.after.max(place.base);
        part.before = Some(place.until.map_or(end, |until| until.next().min(end)));
        // Of an ancestor's log, the events up to the fork are known.
        part.known_head = place.until.map_or(rest.known_head, |until| rest.known_head.min(until));
        let page = read_part(store, place.session, part.clone()).await?;
        let bytes: usize = page.events.iter().map(Event::size_bytes).sum();
        let rest_if_full = Some(rest.clone().before_if(read.newest, end));
        if bytes > rest.max_bytes && !parts.is_empty() {
            // A single event that is larger than what the page has left starts the next one.
            out.next = rest_if_full;
            break;
        }
        rest.limit -= page.events.len();
        rest.max_bytes = rest.max_bytes.saturating_sub(bytes);
        parts.push(page.events);
        if !page.damaged.is_empty() {
            out.damaged = page.damaged;
            break;
        }
        match (page.next, read.newest) {
            (Some(next), true) => end = next.before.unwrap_or(end),
            (Some(next), false) => rest.after = next.after,
            (None, true) => end = part.after.next(),
            (None, false) => rest.after = Seq::new(part.before.unwrap_or(end).get() - 1),
        }
        let full = rest.limit == 0 || rest.max_bytes == 0;
        if full && rest.after.next() < end {
            out.next = Some(rest.before_if(read.newest, end));
            break;
        }
    }
    if let Some(next) = &mut out.next {
        (next.limit, next.max_bytes) = (read.limit, read.max_bytes);
        next.before = if read.newest { next.before } else { read.before };
    }
    if read.newest {
        parts.reverse();
    }
    out.events = parts.into_iter().flatten().collect();
    Ok(out)
}

/// Reads a page of one log. Refuses events that were not requested, since they could make paging endless.
async fn read_part(store: &dyn SessionStore, id: SessionId, read: ReadEvents) -> Result<EventPage> {
    let page = store.read(id, read.clone()).await?;
    match page.events.iter().find(|event| !read.matches(event)) {
        Some(event) => Err(Error::corrupt(format!(
            "session {id}: the store returned event {}, which was not requested; run the conformance suite on its backend",
            event.seq
        ))),
        None => Ok(page),
    }
}

impl ReadEvents {
    fn before_if(mut self, newest: bool, end: Seq) -> Self {
        if newest {
            self.before = Some(end);
        }
        self
    }
}

/// Location of an event of a history.
struct EventLocation {
    /// Session whose log holds the event.
    session: SessionId,
    /// Last event before that session's own events.
    base: Seq,
    /// Last event of that log that belongs to the history; `None` for no limit.
    until: Option<Seq>,
}

/// Returns the location of the event `seq` of the history of `id`.
async fn owner_of(
    store: &dyn SessionStore,
    id: SessionId,
    lineage: &Lineage,
    seq: Seq,
) -> Result<EventLocation> {
    let (mut session, mut lineage) = (id, lineage.clone());
    let (mut until, mut depth) = (None, u32::MAX);
    loop {
        let segments = &lineage.segments;
        let Some(at) = segments.iter().position(|segment| seq <= segment.until) else {
            return Ok(EventLocation { session, base: lineage.base(), until });
        };
        (session, until) = (segments[at].session, Some(segments[at].until));
        if at > 0 || !lineage.deeper {
            let base = if at == 0 { Seq::ZERO } else { segments[at - 1].until };
            return Ok(EventLocation { session, base, until });
        }
        // A record holds the newest segments only; the session of the oldest one holds those before.
        let record = store.load(session).await?;
        // Each parent must have a smaller depth, so that the loop ends whatever is stored.
        if record.depth >= depth {
            return Err(Error::corrupt(format!("session {session} is an ancestor of itself; run `verify`")));
        }
        (lineage, depth) = (record.lineage.clone(), record.depth);
    }
}
