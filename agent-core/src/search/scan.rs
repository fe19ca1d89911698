//! Search without an index: reads the logs, newest events first, up to a number of bytes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use uuid::Uuid;

use crate::base::{Error, ErrorKind, Result, Seq, SessionId, Timestamp};
use crate::event::Event;
use crate::search::fold::Folded;
use crate::search::hit::{Hit, Place, Search, SearchPage};
use crate::search::query::Query;
use crate::search::snippet::Snippet;
use crate::search::text::{text, types};
use crate::session::SessionSummary;
use crate::store::hidden::HiddenSession;
use crate::store::page::{Damaged, PageQuery};
use crate::store::read::ReadEvents;
use crate::store::session::{SessionQuery, SessionStore};

/// Events and bytes of one read.
const EVENTS: usize = 200;
const BYTES: usize = 1 << 20;

/// Microseconds by which the clocks of those who write one session may differ, so that its events since a time are found all the same.
const CLOCKS: i64 = 24 * 3600 * 1_000_000;

/// Events of a session that are searched as they come, before the place at which a page begins is looked for.
const FEW: u64 = 1000;

/// Session whose events are read from its end. Those that are read first have the latest of these times.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unread {
    /// Time that an event which was not read comes before or at, in the order of the search.
    until: Timestamp,
    session: SessionId,
    /// Events before this one are not read yet.
    before: Reverse<Option<Seq>>,
}

/// Search that is going on.
struct Scan<'a> {
    store: &'a dyn SessionStore,
    search: &'a Search,
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
pub(crate) async fn scan(store: &dyn SessionStore, search: &Search) -> Result<SearchPage> {
    let query = Query::parse(&search.text)?;
    let after = search.cursor.as_ref().map(|cursor| Place::of(cursor, search.fingerprint())).transpose()?;
    let mut scan = Scan {
        store,
        search,
        query,
        after,
        listed: VecDeque::new(),
        next_list: Some(search.sessions()),
        unread: BinaryHeap::new(),
        summaries: BTreeMap::new(),
        found: BTreeMap::new(),
        damaged: Vec::new(),
        bytes_left: search.max_bytes.max(1),
    };
    let stopped_at = scan.run().await?;
    Ok(scan.page(stopped_at))
}

impl Scan<'_> {
    /// Reads until the page is full and nothing newer is left, or all is read. Returns where it stopped if it read as much as it may.
    async fn run(&mut self) -> Result<Option<Timestamp>> {
        if let Some(id) = self.search.session {
            let session = self.store.load(id).await?;
            self.next_list = None;
            self.listed.push_back(SessionSummary::from(&*session));
        }
        loop {
            self.list().await?;
            let Some(next) = self.unread.pop() else { return Ok(None) };
            let is_before_since =
                self.search.since.is_some_and(|since| next.until.plus_micros(CLOCKS) < since);
            if is_before_since || self.floor().is_some_and(|floor| next.until < floor) {
                return Ok(None);
            }
            // Not before it has passed what earlier pages have read.
            let is_further = self.after.as_ref().is_none_or(|after| next.until.plus_micros(1) < after.at);
            if self.bytes_left == 0 && is_further {
                return Ok(Some(next.until));
            }
            match self.read(&next).await {
                Ok(rest) => self.unread.extend(rest),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Deleted) => {}
                Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                    self.damaged.push(Damaged::of(format!("session {}", next.session), &error));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Time before which nothing is looked for, since the page is full of what is newer.
    fn floor(&self) -> Option<Timestamp> {
        let is_full = self.found.len() > self.search.limit;
        self.found.keys().next().filter(|_| is_full).map(|place| place.at)
    }

    /// Lists sessions until those that are not listed are older than what is read next.
    async fn list(&mut self) -> Result<()> {
        // A list may have a session at an earlier place than it belongs.
        let recency = self.store.capabilities().recency.as_micros();
        let recency = i64::try_from(recency).unwrap_or(i64::MAX);
        loop {
            while let Some(first) = self.listed.front() {
                let until = first.last_active_at.plus_micros(recency);
                if self.unread.peek().is_some_and(|next| next.until > until) {
                    return Ok(());
                }
                let Some(first) = self.listed.pop_front() else { break };
                if HiddenSession::of(first.id, first.workspace, &first.attributes).is_none() {
                    // The list may show an earlier activity than the last.
                    let session = first.id;
                    self.unread.push(Unread { until, session, before: Reverse(None) });
                    self.summaries.insert(session, first);
                }
            }
            let Some(list) = self.next_list.take() else { return Ok(()) };
            let page = self.store.list(list.clone()).await?;
            self.next_list = page.next.map(|cursor| list.starting_at(cursor));
            self.damaged.extend(page.damaged);
            self.listed.extend(page.items);
        }
    }

    /// Reads the next events of a session. Returns what is left of it.
    async fn read(&mut self, next: &Unread) -> Result<Option<Unread>> {
        let id = next.session;
        let mut read = ReadEvents::last(EVENTS).with_types(types()).with_max_bytes(BYTES);
        let before = match next.before.0 {
            Some(before) => Some(before),
            None => self.begin(id).await?,
        };
        read.before = before;
        let page = self.store.read(id, read).await?;
        let mut until = next.until;
        for event in page.events.iter().rev() {
            // What was said before something else comes before it, whatever the clocks of the two writers say.
            until = until.min(event.at);
            self.look_at(Place { at: until, session: id, seq: event.seq }, event);
        }
        self.damaged.extend(page.damaged);
        let Some(rest) = page.next else {
            self.summaries.remove(&id);
            return Ok(None);
        };
        // A store that reads the same again would be asked for ever.
        if rest.before.is_none() || before.is_some_and(|before| rest.before >= Some(before)) {
            let text = format!(
                "reading session {id} from its end does not go on; the store has a defect: report it"
            );
            return Err(Error::corrupt(text));
        }
        Ok(Some(Unread { until, session: id, before: Reverse(rest.before) }))
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
