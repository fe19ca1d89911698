//! Search in the logs, newest events first, up to a number of bytes; of what is indexed, only what the index proposes.

mod proposed;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use uuid::Uuid;

use crate::base::{Error, ErrorKind, Result, Seq, SessionId, Timestamp};
use crate::event::Event;
use crate::search::fold::Folded;
use crate::search::hit::{Hit, Place, Search, SearchPage};
use crate::search::index::{self, Index};
use crate::search::query::Query;
use crate::search::snippet::Snippet;
use crate::search::text::{text, types};
use crate::session::SessionSummary;
use crate::store::page::{Damaged, PageQuery};
use crate::store::read::{EventPage, ReadEvents};
use crate::store::session::{Consistency, SessionQuery, SessionStore};
use crate::store::sessions::Sessions;

/// Events and bytes of one read.
const EVENTS: usize = 200;
const BYTES: usize = 1 << 20;

/// Microseconds by which the clocks of those who write one session may differ, so that its events since a time are found all the same.
const CLOCKS: i64 = 24 * 3600 * 1_000_000;

/// Events of a session that are searched as they come, before the place at which a page begins is looked for.
const FEW: u64 = 1000;

/// Events of a session that are read from their end. Those that are read first have the latest of these times.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unread {
    /// Time that an event which was not read comes before or at, in the order of the search.
    until: Timestamp,
    session: SessionId,
    /// Events before this one are not read yet.
    before: Reverse<Option<Seq>>,
    /// Events up to this one are not read.
    after: Seq,
    from: Source,
}

/// Where it is known from that events are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// From the list of sessions: they are the end of a session.
    List,
    /// From an index, of which what comes after them was looked at.
    Index,
    /// From this segment of an index, which may have more at this time. They have places between these two.
    Segment { number: usize, until: Timestamp, since: Timestamp },
}

/// End of a session that is not indexed.
#[derive(Debug)]
enum Tail {
    /// It is not read yet. Then these proposals come after it.
    Unread(Vec<Unread>),
    /// It was read; its first event has this time, in the order of the search.
    Read(Timestamp),
}

/// Search that is going on.
struct Scan<'a> {
    store: &'a dyn SessionStore,
    search: &'a Search,
    index: Option<Index>,
    /// Time since which sessions may have events that are not indexed.
    horizon: Option<Timestamp>,
    tails: HashMap<SessionId, Tail>,
    is_index_broken: bool,
    /// Most microseconds by which the time of an event is later than its place in the order of the search.
    skew: i64,
    query: Query,
    after: Option<Place>,
    /// Sessions of the list that are not read yet, as it has them.
    listed: VecDeque<SessionSummary>,
    next_list: Option<SessionQuery>,
    unread: BinaryHeap<Unread>,
    summaries: BTreeMap<SessionId, SessionSummary>,
    found: BTreeMap<Place, Hit>,
    damaged: Vec<Damaged>,
    bytes_left: usize,
}

/// Searches the logs of a store.
pub(crate) async fn scan(sessions: &Sessions, search: &Search) -> Result<SearchPage> {
    let query = Query::parse(&search.text)?;
    let after = search.cursor.as_ref().map(|cursor| Place::of(cursor, search.fingerprint())).transpose()?;
    // An index may be replaced while it is read, and is then read once more.
    for _ in 0..2 {
        let index = match Index::open(sessions, &query).await {
            Ok(Some(index)) => index,
            Ok(None) => break,
            Err(error) if index::is_broken(&error) => continue,
            Err(error) => return Err(error),
        };
        let mut scan = Scan::new(sessions, search, query.clone(), after.clone(), Some(index));
        match scan.run().await {
            Err(_) if scan.is_index_broken => {}
            stopped_at => return Ok(scan.page(stopped_at?)),
        }
    }
    let mut scan = Scan::new(sessions, search, query, after, None);
    let stopped_at = scan.run().await?;
    Ok(scan.page(stopped_at))
}

impl<'a> Scan<'a> {
    fn new(
        sessions: &'a Sessions,
        search: &'a Search,
        query: Query,
        after: Option<Place>,
        index: Option<Index>,
    ) -> Self {
        // A handle of an owner shows more sessions in a workspace of the owner than in the list of all.
        let is_narrow = sessions.owner().is_some() && search.workspace.is_some();
        let updated_at = index.as_ref().and_then(|index| index.updated_at).filter(|_| !is_narrow);
        Self {
            store: &**sessions,
            search,
            skew: index.as_ref().map_or(CLOCKS, |index| index.skew().max(CLOCKS)),
            index,
            horizon: updated_at.map(|at| at.plus_micros(-CLOCKS)),
            tails: HashMap::new(),
            is_index_broken: false,
            query,
            after,
            listed: VecDeque::new(),
            next_list: Some(search.sessions()),
            unread: BinaryHeap::new(),
            summaries: BTreeMap::new(),
            found: BTreeMap::new(),
            damaged: Vec::new(),
            bytes_left: search.max_bytes.max(1),
        }
    }
}

impl Scan<'_> {
    /// Reads until the page is full and nothing newer is left, or all is read. Returns where it stopped if it read as much as it may.
    async fn run(&mut self) -> Result<Option<Timestamp>> {
        if let Some(id) = self.search.session {
            let session = SessionSummary::from(&*self.store.load(id).await?);
            self.next_list = None;
            self.listed.push_back(session);
            self.horizon = None;
        }
        for segment in self.index.as_ref().map(Index::segments).into_iter().flatten() {
            self.propose(segment).await?;
        }
        loop {
            self.list().await?;
            let Some(next) = self.unread.pop() else { return Ok(None) };
            if self.floor().is_some_and(|floor| next.until < floor) {
                return Ok(None);
            }
            // What an index has proposed may be later than its place.
            if next.from != Source::Index && self.is_before_since(next.until) {
                self.end_tail(next.session, next.until);
                continue;
            }
            // Not before it has passed what earlier pages have read.
            let is_further = self.after.as_ref().is_none_or(|after| next.until.plus_micros(1) < after.at);
            if self.bytes_left == 0 && is_further {
                return Ok(Some(next.until));
            }
            let Some(next) = self.ready(next).await? else { continue };
            match next.from {
                Source::List => {
                    let read = self.read(&next).await;
                    let rest = self.noted(next.session, read)?;
                    self.unread.extend(rest.flatten());
                }
                _ => {
                    let proposed = self.with_more(next).await?;
                    self.read_proposed(proposed).await?;
                }
            }
        }
    }

    /// Notes that a session cannot be read; one that is gone is passed over.
    fn noted<T>(&mut self, session: SessionId, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Deleted) => Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                self.damaged.push(Damaged::of(format!("session {session}"), &error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Time before which nothing is looked for, since the page is full of what is newer.
    fn floor(&self) -> Option<Timestamp> {
        let is_full = self.found.len() > self.search.limit;
        self.found.keys().next().filter(|_| is_full).map(|place| place.at)
    }

    /// Returns whether nothing at this place or later ones is looked for.
    fn is_before_since(&self, at: Timestamp) -> bool {
        self.search.since.is_some_and(|since| at.plus_micros(self.skew) < since)
    }

    /// Lists sessions until those that are not listed are older than what is read next.
    async fn list(&mut self) -> Result<()> {
        // A list may have a session at an earlier place than it belongs.
        let capabilities = self.store.capabilities();
        let recency = i64::try_from(capabilities.recency.as_micros()).unwrap_or(i64::MAX);
        let is_sure = capabilities.listing == Consistency::Immediate;
        loop {
            while let Some(first) = self.listed.front() {
                let until = first.last_active_at.plus_micros(recency);
                if self.unread.peek().is_some_and(|next| next.until > until) {
                    return Ok(());
                }
                let Some(first) = self.listed.pop_front() else { break };
                if self.horizon.is_some_and(|horizon| until < horizon) || self.is_before_since(until) {
                    // The index has these and all that come after, or nobody looks for them.
                    self.listed.clear();
                    self.next_list = None;
                    return Ok(());
                }
                if !first.is_of_search_index() && self.search.covers(&first) {
                    self.begin_session(first, until, is_sure);
                }
            }
            let Some(list) = self.next_list.take() else { return Ok(()) };
            let page = self.store.list(list.clone()).await?;
            self.next_list = page.next.map(|cursor| list.starting_at(cursor));
            self.damaged.extend(page.damaged);
            self.listed.extend(page.items);
        }
    }

    /// Plans to read the end of a listed session that is not indexed. The list may show an earlier activity than the last.
    fn begin_session(&mut self, summary: SessionSummary, until: Timestamp, is_sure: bool) {
        let (session, head) = (summary.id, summary.head);
        let indexed = self.index.as_ref().and_then(|index| index.through(session, head));
        self.summaries.insert(session, summary);
        if is_sure && indexed.is_some_and(|through| through >= head) {
            return;
        }
        let after = indexed.unwrap_or_default();
        self.unread.push(Unread { until, session, before: Reverse(None), after, from: Source::List });
        if indexed.is_some() {
            self.tails.insert(session, Tail::Unread(Vec::new()));
        }
    }

    /// Returns the request for the last events between these two.
    fn reads(after: Seq, before: Option<Seq>) -> ReadEvents {
        let mut read = ReadEvents::last(EVENTS).with_types(types()).with_max_bytes(BYTES).with_after(after);
        read.before = before;
        read
    }

    /// Reads the next events of a listed session. Returns what is left of it.
    async fn read(&mut self, next: &Unread) -> Result<Option<Unread>> {
        let id = next.session;
        let before = match next.before.0 {
            Some(before) => Some(before),
            None => self.begin(id).await?,
        };
        let page = self.store.read(id, Self::reads(next.after, before)).await?;
        self.take(next, before, page)
    }

    /// Looks at events that were read. Returns what is left to be read.
    fn take(&mut self, next: &Unread, before: Option<Seq>, page: EventPage) -> Result<Option<Unread>> {
        let id = next.session;
        let mut until = next.until;
        if let Some(Tail::Read(tail)) = self.tails.get(&id).filter(|_| next.from == Source::Index) {
            until = until.min(*tail);
        }
        for event in page.events.iter().rev() {
            // What was said before something else comes before it, whatever the clocks of the two writers say.
            until = until.min(event.at);
            self.look_at(Place { at: until, session: id, seq: event.seq }, event);
        }
        self.damaged.extend(page.damaged);
        let Some(rest) = page.next else {
            if next.from == Source::List {
                self.end_tail(id, until);
            }
            if self.index.is_none() {
                self.summaries.remove(&id);
            }
            return Ok(None);
        };
        // A store that reads the same again would be asked for ever.
        if rest.before.is_none() || before.is_some_and(|before| rest.before >= Some(before)) {
            let text = format!(
                "reading session {id} from its end does not go on; the store has a defect: report it"
            );
            return Err(Error::corrupt(text));
        }
        let (after, from) = (next.after, next.from);
        Ok(Some(Unread { until, session: id, before: Reverse(rest.before), after, from }))
    }

    /// Returns the event of a session before which a later page begins to read; `None` for its end.
    async fn begin(&self, id: SessionId) -> Result<Option<Seq>> {
        let (Some(after), Some(session)) = (&self.after, self.summaries.get(&id)) else { return Ok(None) };
        let end = after.at.plus_micros(CLOCKS);
        let (mut low, mut high) = (Seq::ZERO, session.head);
        if session.last_active_at <= end || high.get() < FEW {
            return Ok(None);
        }
        // The first event later than that.
        while low < high {
            let middle = Seq::new(low.get() + (high.get() - low.get()) / 2);
            let page = self.store.read(id, ReadEvents::first(1).with_after(middle)).await?;
            match page.events.first() {
                Some(event) if event.at <= end => low = event.seq,
                _ => high = middle,
            }
        }
        Ok(Some(high.next()))
    }

    fn look_at(&mut self, place: Place, event: &Event) {
        if self.after.as_ref().is_some_and(|after| place >= *after) {
            return;
        }
        self.bytes_left = self.bytes_left.saturating_sub(event.size_bytes());
        let is_in_time = self.search.since.is_none_or(|since| event.at >= since)
            && self.search.until.is_none_or(|until| event.at < until);
        if !is_in_time || self.floor().is_some_and(|floor| place.at < floor) {
            return;
        }
        let Some(text) = text(event) else { return };
        let folded = Folded::new(&text);
        let Some(found) = self.query.find(&folded) else { return };
        let Some(summary) = self.summaries.get(&place.session) else { return };
        let hit = Hit {
            session: place.session,
            workspace: summary.workspace,
            seq: event.seq,
            at: event.at,
            kind: event.kind.clone(),
            actor: event.actor.clone(),
            title: summary.attributes.title.as_ref().map(|title| title.text.clone()),
            snippet: Snippet::around(&text, Folded::places(&text, found)),
        };
        self.found.insert(place, hit);
        if self.found.len() > self.search.limit + 1 {
            self.found.pop_first();
        }
    }

    /// Returns the page. If the search stopped early, it has what is certain: the hits that nothing unread can come before.
    fn page(mut self, stopped_at: Option<Timestamp>) -> SearchPage {
        let mut page = SearchPage { damaged: self.damaged, ..SearchPage::default() };
        let print = self.search.fingerprint();
        let mut last = None;
        while let Some((place, hit)) = self.found.pop_last() {
            if stopped_at.is_some_and(|stopped| place.at <= stopped) {
                break;
            }
            if page.hits.len() == self.search.limit {
                page.next = last.map(|last: Place| last.cursor(print));
                page.is_complete = true;
                return page;
            }
            page.hits.push(hit);
            last = Some(place);
        }
        if let Some(stopped) = stopped_at {
            // The next page begins with the events of that time.
            let place = Place {
                at: stopped.plus_micros(1),
                session: SessionId::from_uuid(Uuid::nil()),
                seq: Seq::ZERO,
            };
            page.next = Some(place.cursor(print));
            page.searched_through = Some(stopped);
        }
        page.is_complete = stopped_at.is_none();
        page
    }
}
