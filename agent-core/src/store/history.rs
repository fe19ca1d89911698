//! How histories are read: a session's own log, and through it those of its ancestors.

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::base::{Error, ErrorKind, Result, Seq, SessionId, SessionState};
use crate::event::Event;
use crate::model::Lineage;
use crate::session::Session;
use crate::store::page::PAGE_MAX;
use crate::store::read::{EventPage, ReadEvents};
use crate::store::session::SessionStore;

/// How many events a stream reads at a time, at most, and how many bytes of them.
pub(super) const PAGE: usize = 500;
pub(super) const PAGE_BYTES: usize = 256 << 10;

/// A page of a history, through the ancestors.
pub(crate) async fn history<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    read: ReadEvents,
) -> Result<EventPage> {
    let session = store.load(id).await?;
    part_of(store, id, session.head, session.lineage.clone(), read).await
}

/// A page of the history of a session with this head and these ancestors.
pub(crate) async fn part_of<S: SessionStore + ?Sized>(
    store: &S,
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

/// The next events after `seen`, waited for where there are none yet; and the last of them.
pub(crate) async fn coming<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    seen: Seq,
) -> Result<(Vec<Event>, Seq)> {
    loop {
        if let Some(next) = next_events(store, id, seen).await? {
            return Ok(next);
        }
        store.changed(id, seen).await?;
    }
}

/// The next events after `seen` of the history of `id`, and the number of the last; `None` if there are none yet.
///
/// # Errors
///
/// Those of [`SessionStore::read`]; `Corrupt` where the next one is damaged.
pub async fn next_events<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    seen: Seq,
) -> Result<Option<(Vec<Event>, Seq)>> {
    let page = history(store, id, ReadEvents::first(PAGE).max_bytes(PAGE_BYTES).after(seen)).await?;
    if let Some(last) = page.events.last().map(|event| event.seq) {
        return Ok(Some((page.events, last)));
    }
    match page.damaged.first() {
        Some(damage) => Err(Error::corrupt(format!("session {id}: {damage}"))),
        None => Ok(None),
    }
}

/// A session's own events after `after`, up to `until`.
pub fn own_events<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    after: Seq,
    until: Option<Seq>,
) -> BoxStream<'_, Result<Event>> {
    let mut first = ReadEvents::first(PAGE).max_bytes(PAGE_BYTES).after(after);
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

/// The record of a session as it was after the event `at` of its own log.
async fn fold_own<S: SessionStore + ?Sized>(store: &S, id: SessionId, at: Seq) -> Result<Session> {
    let mut events = own_events(store, id, Seq::ZERO, Some(at));
    let first = events.try_next().await?;
    let first = first.ok_or_else(|| Error::corrupt(format!("session {id} has no first event")))?;
    let mut past = Session::begin(id, &first)?;
    while let Some(event) = events.try_next().await? {
        past.apply(&event)?;
    }
    Ok(past)
}

/// The record of a session as it was after its event `at`, which may lie in an ancestor.
pub(crate) async fn fold_to<S: SessionStore + ?Sized>(store: &S, now: &Session, at: Seq) -> Result<Session> {
    // Every log starts from a record that holds what the history before it came to.
    let (mut owner, _) = now.lineage.locate(now.id, at);
    loop {
        let record = store.load(owner).await?;
        if record.lineage.base() < at {
            break;
        }
        (owner, _) = record.lineage.locate(owner, at);
    }
    match fold_own(store, owner, at).await {
        // What is missing may have been purged meanwhile, and is no damage then.
        Err(error) if *error.kind() == ErrorKind::Corrupt => match store.load(owner).await?.status.state {
            SessionState::Deleted => Err(Error::new(
                ErrorKind::Deleted,
                format!("session {owner} was deleted, and its events purged"),
            )),
            _ => Err(error),
        },
        folded => folded,
    }
}

/// One page of a history that lies in several logs: reads log after log, in the read's direction, until it is full.
async fn history_page<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    head: Seq,
    lineage: Lineage,
    read: ReadEvents,
) -> Result<EventPage> {
    // What is still to be read lies after `rest.after` and before `end`.
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

/// A page of one log. A store that answers with what was not asked for would make paging go round for ever.
async fn read_part<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    read: ReadEvents,
) -> Result<EventPage> {
    let page = store.read(id, read.clone()).await?;
    match page.events.iter().find(|event| !read.wants(event)) {
        Some(event) => Err(Error::corrupt(format!(
            "session {id}: the store gave event {}, which was not asked for; have its backend pass the suite",
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

/// Where an event of a history lies.
struct Place {
    /// In the log of this session.
    session: SessionId,
    /// Whose own events start after this.
    base: Seq,
    /// And belong to the history up to this.
    until: Option<Seq>,
}

/// Where the event `seq` of the history of `id` lies.
async fn owner_of<S: SessionStore + ?Sized>(
    store: &S,
    id: SessionId,
    lineage: &Lineage,
    seq: Seq,
) -> Result<Place> {
    let (mut session, mut lineage) = (id, lineage.clone());
    let (mut until, mut depth) = (None, u32::MAX);
    loop {
        let segments = &lineage.segments;
        let Some(at) = segments.iter().position(|segment| seq <= segment.until) else {
            return Ok(Place { session, base: lineage.base(), until });
        };
        (session, until) = (segments[at].session, Some(segments[at].until));
        if at > 0 || !lineage.deeper {
            let base = if at == 0 { Seq::ZERO } else { segments[at - 1].until };
            return Ok(Place { session, base, until });
        }
        // The chain is deeper than a record tells: the oldest segment's session knows on.
        let record = store.load(session).await?;
        // Each is made from one that is less deep, so that this comes to an end whatever is stored.
        if record.depth >= depth {
            return Err(Error::corrupt(format!("session {session} is made from one that was made from it")));
        }
        (lineage, depth) = (record.lineage.clone(), record.depth);
    }
}
