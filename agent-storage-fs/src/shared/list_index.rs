//! Sessions of a tenant in memory, in the order of every list. Does no I/O.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::Range;
use std::sync::Arc;

use agent_core::model::Actor;
use agent_core::session::SessionSummary;
use agent_core::state::SessionState;
use agent_core::store::{Page, SessionQuery};
use agent_core::{OwnerId, Result, SessionId, Timestamp, WorkspaceId};

use crate::io::Stat;

/// Session, by the workspace in whose folder it is, and its id.
pub(crate) type Place = (WorkspaceId, SessionId);

/// Field by which sessions are found. A list reads the sessions of the rarest field of its query, latest first.
#[derive(Clone, Copy, Debug)]
enum Field<'a> {
    All,
    /// Sessions that lists show unless they ask for certain states.
    Shown,
    Workspace(WorkspaceId),
    Owner(&'a OwnerId),
    State(SessionState),
    Creator(&'a Actor),
    Parent(SessionId),
    Label(&'a str, &'a str),
}

impl Field<'_> {
    /// Returns the number that stands for the field, which is stored too: it is the same in each program. Two fields with one number
    /// only cost time, since what a query finds is compared with it.
    fn number(&self) -> u64 {
        // FNV-1a; text ends with a byte that is in none.
        let hash = |kind: u8, parts: &[&[u8]]| {
            let ended = parts.iter().flat_map(|part| part.iter().chain(&[0xff]));
            let bytes = [kind].into_iter().chain(ended.copied());
            bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            })
        };
        let number = match self {
            Self::All => hash(b'a', &[]),
            Self::Shown => hash(b's', &[]),
            Self::Workspace(id) => hash(b'w', &[id.as_uuid().as_bytes()]),
            Self::Owner(owner) => hash(b'o', &[owner.as_str().as_bytes()]),
            Self::State(state) => hash(b't', &[state.as_str().as_bytes()]),
            Self::Creator(actor) => hash(b'c', &[actor.to_string().as_bytes()]),
            Self::Parent(id) => hash(b'p', &[id.as_uuid().as_bytes()]),
            Self::Label(key, value) => hash(b'l', &[key.as_bytes(), value.as_bytes()]),
        };
        // The next number exists for each of these.
        number >> 1
    }
}

/// Position in a list: time, then id, then folder.
type Position = (Timestamp, SessionId, WorkspaceId);

/// Files that a summary was read from, as they were when they were read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) log: Stat,
    /// Metadata of the tombstone, if the summary comes from one.
    pub(crate) tombstone: Option<Stat>,
    /// True if each later change of these files gives them other metadata: their last one was clearly before they were read.
    pub(crate) is_settled: bool,
}

/// What a session is found by.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) last_active_at: Timestamp,
    pub(crate) due: Option<Timestamp>,
    /// Numbers of its fields.
    pub(crate) numbers: Vec<u64>,
}

impl Keys {
    /// Returns the keys of a session. Its workspace is the one in whose folder it is.
    fn of((workspace, _): Place, summary: &SessionSummary) -> Self {
        let state = summary.status.state;
        let mut fields = vec![
            Field::All,
            Field::Workspace(workspace),
            Field::State(state),
            Field::Creator(&summary.creator),
        ];
        if !state.is_hidden() {
            fields.push(Field::Shown);
        }
        fields.extend(summary.owner.as_ref().map(Field::Owner));
        fields.extend(summary.origin.parent().map(Field::Parent));
        fields.extend(summary.attributes.labels.iter().map(|(key, value)| Field::Label(key, value)));
        let numbers = fields.iter().map(Field::number).collect();
        Self { last_active_at: summary.last_active_at, due: summary.next_due_at, numbers }
    }

    fn position(&self, (workspace, id): Place) -> Position {
        (self.last_active_at, id, workspace)
    }

    fn due_position(&self, (workspace, id): Place) -> Option<Position> {
        self.due.map(|at| (at, id, workspace))
    }
}

/// Text of a summary, in a file that was read.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) file: Arc<[u8]>,
    pub(crate) range: Range<usize>,
}

impl Text {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.file.get(self.range.clone()).unwrap_or_default()
    }
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) source: Source,
    /// True if what the summary was read from is about to be replaced, or was, though the metadata may still be the same.
    is_doubtful: bool,
    pub(crate) keys: Keys,
    /// Text that the summary is parsed from when it is first needed.
    pub(crate) text: Option<Text>,
    summary: OnceCell<Option<Box<SessionSummary>>>,
}

impl Entry {
    /// Returns the summary; `None` if the text is none of this session.
    pub(crate) fn summary(&self, (_, id): Place) -> Option<&SessionSummary> {
        let parse = || {
            let summary: SessionSummary = serde_json::from_slice(self.text.as_ref()?.bytes()).ok()?;
            (summary.id == id).then(|| Box::new(summary))
        };
        self.summary.get_or_init(parse).as_deref()
    }
}

/// Index of sessions.
#[derive(Debug, Default)]
pub(crate) struct Index {
    sessions: BTreeMap<Place, Entry>,
    /// Number of a field, and the sessions that have it, by last activity.
    by_field: BTreeSet<(u64, Position)>,
    /// Number of sessions that have a field.
    counts: HashMap<u64, usize>,
    /// Sessions with a due time, by that.
    by_due: BTreeSet<Position>,
    /// Sessions whose text turned out to be none of theirs.
    unreadable: RefCell<BTreeSet<Place>>,
}

impl Index {
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn len_of(&self, workspace: WorkspaceId) -> usize {
        self.count(Field::Workspace(workspace))
    }

    fn count(&self, field: Field<'_>) -> usize {
        self.counts.get(&field.number()).copied().unwrap_or(0)
    }

    /// Returns the metadata of the log that the summary of a session was read from.
    pub(crate) fn stat(&self, place: Place) -> Option<Stat> {
        self.sessions.get(&place).map(|entry| entry.source.log)
    }

    /// Returns whether the summary of a session is that of a log with this metadata.
    pub(crate) fn is_of(&self, place: Place, stat: Stat) -> bool {
        self.sessions.get(&place).is_some_and(|entry| entry.source.log == stat && !entry.is_doubtful)
    }

    /// Has a session read again, whatever the metadata of its log.
    pub(crate) fn doubt(&mut self, place: Place) {
        if let Some(entry) = self.sessions.get_mut(&place) {
            entry.is_doubtful = true;
        }
    }

    /// Returns all sessions but those that have to be read again.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Place, &Entry)> {
        let sure = self.sessions.iter().filter(|(_, entry)| !entry.is_doubtful);
        sure.map(|(place, entry)| (*place, entry))
    }

    /// Returns the sessions whose text turned out to be none of theirs, which no page has.
    pub(crate) fn take_unreadable(&mut self) -> BTreeSet<Place> {
        std::mem::take(self.unreadable.get_mut())
    }

    fn summary(&self, place: Place) -> Option<&SessionSummary> {
        let summary = self.sessions.get(&place)?.summary(place);
        if summary.is_none() {
            self.unreadable.borrow_mut().insert(place);
        }
        summary
    }

    /// Returns the sessions in the folder of a workspace.
    pub(crate) fn of(&self, workspace: WorkspaceId) -> impl Iterator<Item = SessionId> {
        let first = (workspace, SessionId::from_uuid(uuid::Uuid::nil()));
        let all = self.sessions.range(first..).take_while(move |((of, _), _)| *of == workspace);
        all.map(|((_, id), _)| *id)
    }

    /// Returns some sessions after a place, in the order of places.
    pub(crate) fn after(&self, place: Option<Place>, count: usize) -> Vec<Place> {
        let from = place.map_or(Unbounded, Excluded);
        self.sessions.range((from, Unbounded)).take(count).map(|(place, _)| *place).collect()
    }

    pub(crate) fn insert(&mut self, place: Place, source: Source, summary: SessionSummary) {
        let keys = Keys::of(place, &summary);
        let summary = OnceCell::from(Some(Box::new(summary)));
        self.insert_entry(place, Entry { source, is_doubtful: false, keys, text: None, summary });
    }

    /// Inserts a session of which the text was read with its keys.
    pub(crate) fn insert_text(&mut self, place: Place, source: Source, keys: Keys, text: Text) {
        let entry = Entry { source, is_doubtful: false, keys, text: Some(text), summary: OnceCell::new() };
        self.insert_entry(place, entry);
    }

    fn insert_entry(&mut self, place: Place, entry: Entry) {
        if self.sessions.contains_key(&place) {
            self.remove(place);
        }
        let position = entry.keys.position(place);
        for number in &entry.keys.numbers {
            if self.by_field.insert((*number, position)) {
                *self.counts.entry(*number).or_default() += 1;
            }
        }
        self.by_due.extend(entry.keys.due_position(place));
        self.sessions.insert(place, entry);
    }

    pub(crate) fn remove(&mut self, place: Place) {
        let Some(Entry { keys, .. }) = self.sessions.remove(&place) else { return };
        let position = keys.position(place);
        for number in &keys.numbers {
            if self.by_field.remove(&(*number, position))
                && let Some(count) = self.counts.get_mut(number)
            {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(number);
                }
            }
        }
        if let Some(due) = keys.due_position(place) {
            self.by_due.remove(&due);
        }
    }

    /// Returns the places of the sessions on a page, and of the one after it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub(crate) fn places(&self, query: &SessionQuery) -> Result<Vec<Place>> {
        let after = query.cursor.as_ref().map(|cursor| cursor.recent_key(query.fingerprint())).transpose()?;
        Ok(self.matching(query, after).take(query.limit.saturating_add(1)).collect())
    }

    /// Returns the places of all sessions that match, in the order of the list, after a position.
    fn matching(
        &self,
        query: &SessionQuery,
        after: Option<(Timestamp, SessionId)>,
    ) -> impl Iterator<Item = Place> {
        let positions: Box<dyn Iterator<Item = Position>> = match query.due {
            Some(until) => Box::new(self.due(after, until)),
            None => Box::new(self.latest(self.rarest(query), after)),
        };
        let places = positions.map(|(_, id, workspace)| (workspace, id));
        // A session in the folder of another workspace is on no list of its own.
        let is_in_place = |(folder, _): &Place| query.workspace.is_none_or(|workspace| workspace == *folder);
        places.filter(move |place| {
            is_in_place(place) && self.summary(*place).is_some_and(|summary| query.matches(summary))
        })
    }

    /// Returns the page of sessions that begins at these places, or counts all if the query asks for that.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a cursor of another query.
    pub(crate) fn page(&self, query: &SessionQuery, places: &[Place]) -> Result<Page<SessionSummary>> {
        let summaries = places.iter().filter_map(|place| self.summary(*place));
        let mut page = query.page(summaries.cloned())?;
        page.total = query.with_total.then(|| self.matching(query, None).count() as u64);
        Ok(page)
    }

    /// Returns the numbers of fields that together have all sessions that match, and as few others as possible.
    fn rarest(&self, query: &SessionQuery) -> Vec<u64> {
        let mut choices = vec![vec![Field::All]];
        if query.states.is_empty() {
            choices.push(vec![Field::Shown]);
        } else {
            let mut states = query.states.clone();
            states.sort_unstable();
            states.dedup();
            choices.push(states.into_iter().map(Field::State).collect());
        }
        choices.extend(query.workspace.map(|id| vec![Field::Workspace(id)]));
        choices.extend(query.owner.as_ref().map(|owner| vec![Field::Owner(owner)]));
        choices.extend(query.creator.as_ref().map(|creator| vec![Field::Creator(creator)]));
        choices.extend(query.parent.map(|id| vec![Field::Parent(id)]));
        choices.extend(query.labels.iter().map(|(key, value)| vec![Field::Label(key, value)]));
        let size = |fields: &Vec<Field<'_>>| {
            let sessions: usize = fields.iter().map(|field| self.count(*field)).sum();
            (sessions, fields.len())
        };
        let rarest = choices.into_iter().min_by_key(size).unwrap_or_default();
        rarest.iter().map(Field::number).collect()
    }

    /// Returns the positions of sessions that have one of these fields, latest first, after a position.
    fn latest(
        &self,
        numbers: Vec<u64>,
        after: Option<(Timestamp, SessionId)>,
    ) -> impl Iterator<Item = Position> {
        let mut each: Vec<_> = numbers
            .into_iter()
            .map(|number| {
                let end = match after {
                    Some((at, id)) => (number, (at, id, WorkspaceId::from_uuid(uuid::Uuid::nil()))),
                    None => (number + 1, FIRST),
                };
                self.by_field.range((number, FIRST)..end).rev().map(|(_, position)| *position).peekable()
            })
            .collect();
        std::iter::from_fn(move || {
            let next = each.iter_mut().filter_map(|of| Some((*of.peek()?, of)));
            next.max_by_key(|(position, _)| *position)?.1.next()
        })
    }

    /// Returns the positions of sessions that are due by `until`, earliest first, after a position.
    fn due(&self, after: Option<(Timestamp, SessionId)>, until: Timestamp) -> impl Iterator<Item = Position> {
        let last = |(at, id)| (at, id, WorkspaceId::from_uuid(uuid::Uuid::max()));
        let start = after.map_or(Included(FIRST), |after| Excluded(last(after)));
        self.by_due.range((start, Unbounded)).copied().take_while(move |(at, ..)| *at <= until)
    }
}

/// Position before all others.
const FIRST: Position =
    (Timestamp::MIN, SessionId::from_uuid(uuid::Uuid::nil()), WorkspaceId::from_uuid(uuid::Uuid::nil()));
