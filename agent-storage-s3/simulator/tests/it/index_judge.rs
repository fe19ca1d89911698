//! Judge of lists while sessions change: the logs of the sessions decide what a list may and must show.
//!
//! All calls are numbered by one counter, when they are asked and when they are answered. The log of a session gives its
//! states, one after each commit. A state may be the newest one from the moment at which its commit was asked for, and
//! until there was a sign of the next one: an answer that shows it. It is the newest one for certain from the first sign
//! of it until the next commit was asked for.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_core::commit::Commit;
use agent_core::event::Event;
use agent_core::session::{SessionRecord, SessionSummary};
use agent_core::state::SessionState;
use agent_core::store::SessionQuery;
use agent_core::{CommitId, Plan, SessionId, Timestamp, plan};

/// Moment of the counter.
type Moment = u64;

/// Page that was answered.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) asked: Moment,
    pub(crate) answered: Moment,
    pub(crate) items: Vec<SessionSummary>,
    pub(crate) total: Option<u64>,
}

/// Pages of one query, each after the other.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) query: SessionQuery,
    pub(crate) pages: Vec<Shown>,
    /// True if the last page has no next one.
    pub(crate) is_whole: bool,
}

/// Look for tenants with work that found none.
#[derive(Debug)]
struct Idle {
    asked: Moment,
    answered: Moment,
    until: Timestamp,
}

/// Calls and answers of one course.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    moment: Cell<Moment>,
    /// Commits, with the moments at which they were first asked for.
    commits: RefCell<BTreeMap<CommitId, (Commit, Moment)>>,
    /// Records that an answer showed, with its moment.
    signs: RefCell<Vec<(Arc<SessionRecord>, Moment)>>,
    walks: RefCell<Vec<Walk>>,
    idle: RefCell<Vec<Idle>>,
}

impl Tape {
    /// Returns a moment that is after all earlier ones.
    pub(crate) fn moment(&self) -> Moment {
        self.moment.set(self.moment.get() + 1);
        self.moment.get()
    }

    pub(crate) fn ask(&self, commit: &Commit) {
        let moment = self.moment();
        self.commits.borrow_mut().entry(commit.id).or_insert_with(|| (commit.clone(), moment));
    }

    pub(crate) fn sign(&self, record: &Arc<SessionRecord>) {
        let moment = self.moment();
        self.signs.borrow_mut().push((record.clone(), moment));
    }

    pub(crate) fn listed(&self, walk: Walk) {
        self.walks.borrow_mut().push(walk);
    }

    pub(crate) fn found_no_work(&self, asked: Moment, until: Timestamp) {
        let answered = self.moment();
        self.idle.borrow_mut().push(Idle { asked, answered, until });
    }

    /// Number of pages, and of the items on them.
    pub(crate) fn pages(&self) -> (usize, usize) {
        let walks = self.walks.borrow();
        let pages = walks.iter().flat_map(|walk| &walk.pages);
        pages.fold((0, 0), |(pages, items), page| (pages + 1, items + page.items.len()))
    }

    /// Judges all answers by the final logs, which have the own events of each session that exists.
    pub(crate) fn judge(&self, logs: &BTreeMap<SessionId, Vec<Event>>) -> Result<Judged, String> {
        let commits = self.commits.borrow();
        let mut sessions = BTreeMap::new();
        for (id, log) in logs {
            let course = States::replay(&commits, log).map_err(|what| format!("session {id}: {what}"))?;
            sessions.insert(*id, course);
        }
        for (record, moment) in self.signs.borrow().iter() {
            let states = sessions.get_mut(&record.id);
            let states = states.ok_or_else(|| format!("{} was acknowledged and is not there", record.id))?;
            states.note(record, *moment)?;
        }
        let walks = self.walks.borrow();
        for page in walks.iter().flat_map(|walk| &walk.pages) {
            for item in &page.items {
                let states = sessions.get_mut(&item.id);
                let states = states.ok_or_else(|| format!("{} is listed and not there", item.id))?;
                states.note_summary(item, page.answered)?;
            }
        }
        sessions.values_mut().for_each(States::close);
        let mut judged = Judged::default();
        for walk in walks.iter() {
            walk.judge(&sessions, &mut judged).map_err(|what| {
                let pages: Vec<_> = walk.pages.iter().map(|page| (page.asked, page.answered)).collect();
                format!("{what}; pages at {pages:?} of {:?}", walk.query)
            })?;
        }
        for Idle { asked, answered, until } in self.idle.borrow().iter() {
            let has_work = |state: &State| {
                let is_due = state.summary.next_due_at.is_some_and(|at| at <= *until);
                is_due || state.summary.status.state.may_hold_lease()
            };
            if let Some((id, _)) =
                sessions.iter().find(|(_, states)| states.all(*asked, *answered, &has_work) == Some(true))
            {
                return Err(format!(
                    "session {id} had work from {asked} to {answered}, and its tenant had none"
                ));
            }
        }
        Ok(judged)
    }
}

/// What the answers said, so that a course which proves nothing is noticed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Judged {
    /// Number of times that a page, or a walk, had to show a session, and did.
    pub(crate) needed: u64,
    /// Number of pages while a session that they may show changed.
    pub(crate) changing: u64,
}

/// State of a session after a commit.
#[derive(Debug)]
struct State {
    summary: SessionSummary,
    record: Arc<SessionRecord>,
    /// Moment at which its commit was first asked for, or a later one.
    asked: Moment,
    /// Moment of the first sign of it.
    answered: Moment,
}

impl State {
    fn is_deleted(&self) -> bool {
        self.summary.status.state == SessionState::Deleted
    }

    /// Returns whether this is the summary of the state, which lacks what people wrote once the session is purged.
    fn is(&self, item: &SessionSummary) -> bool {
        let is_tombstone = self.is_deleted() && self.summary.head == item.head;
        self.summary == *item || (is_tombstone && item.status == self.summary.status)
    }
}

/// States of a session, in their order.
#[derive(Debug)]
struct States(Vec<State>);

impl States {
    fn replay(commits: &BTreeMap<CommitId, (Commit, Moment)>, log: &[Event]) -> Result<Self, String> {
        let mut states: Vec<State> = Vec::new();
        for events in log.chunk_by(|a, b| a.commit == b.commit) {
            let id = events[0].commit;
            let (commit, asked) = commits.get(&id).ok_or_else(|| format!("commit {id} is nobody's"))?;
            let before = states.last().map(|last| &*last.record);
            match plan(before, commit) {
                Ok(Plan::Write { events: planned, after, .. }) if planned == events => {
                    let asked = states.last().map_or(*asked, |last| last.asked.max(*asked));
                    let summary = SessionSummary::from(&*after);
                    states.push(State { summary, record: after, asked, answered: Moment::MAX });
                }
                other => return Err(format!("commit {id} has no business there: {other:?}")),
            }
        }
        Ok(Self(states))
    }

    fn note(&mut self, record: &SessionRecord, answered: Moment) -> Result<(), String> {
        let found = self.0.iter_mut().find(|state| state.summary.head == record.head);
        let state =
            found.ok_or_else(|| format!("{} at event {} is no commit's end", record.id, record.head))?;
        // A purge takes what people wrote out of a tombstone.
        if *state.record != *record && !state.is_deleted() {
            return Err(format!("{} is another one at event {} than its log gives", record.id, record.head));
        }
        state.answered = state.answered.min(answered);
        Ok(())
    }

    fn note_summary(&mut self, item: &SessionSummary, answered: Moment) -> Result<(), String> {
        let found = self.0.iter_mut().find(|state| state.is(item));
        let state = found.ok_or_else(|| format!("{} is listed as it never was: {item:?}", item.id))?;
        state.answered = state.answered.min(answered);
        Ok(())
    }

    /// A sign of a later state is one that the earlier ones are over, or were there.
    fn close(&mut self) {
        let mut answered = Moment::MAX;
        for state in self.0.iter_mut().rev() {
            answered = answered.min(state.answered);
            state.answered = answered;
        }
    }

    /// Returns the states that may have been the newest one at some moment of a call, and whether there may have been no session.
    fn possible(&self, asked: Moment, answered: Moment) -> (impl Iterator<Item = &State>, bool) {
        let next = self.0.iter().skip(1).map(|state| state.answered).chain([Moment::MAX]);
        let all = self.0.iter().zip(next);
        let possible =
            all.filter(move |(state, over)| state.asked < answered && *over > asked).map(|(state, _)| state);
        (possible, self.0.first().is_none_or(|first| first.answered > asked))
    }

    /// Returns whether a condition holds for all states that may have been the newest one; `None` if there may have been no
    /// session.
    fn all(&self, asked: Moment, answered: Moment, holds: &dyn Fn(&State) -> bool) -> Option<bool> {
        let (mut possible, may_be_absent) = self.possible(asked, answered);
        (!may_be_absent).then(|| possible.all(holds))
    }
}

impl Walk {
    fn judge(&self, sessions: &BTreeMap<SessionId, States>, judged: &mut Judged) -> Result<(), String> {
        let matches = |state: &State| self.query.matches(&state.summary);
        let mut seen: BTreeMap<SessionId, Vec<&SessionSummary>> = BTreeMap::new();
        for page in &self.pages {
            let mut sorted = page.items.clone();
            self.query.sort(&mut sorted);
            if sorted != page.items {
                return Err("the page is in another order".to_owned());
            }
            let mut on_page = BTreeSet::new();
            for item in &page.items {
                if !on_page.insert(item.id) {
                    return Err(format!("{} is twice on a page", item.id));
                }
                if !self.query.matches(item) {
                    return Err(format!("{} does not match", item.id));
                }
                let mut possible = sessions[&item.id].possible(page.asked, page.answered).0;
                if !possible.any(|state| state.is(item)) {
                    return Err(format!(
                        "{} is listed at event {}, which it was at before, or later",
                        item.id, item.head
                    ));
                }
                seen.entry(item.id).or_default().push(item);
            }
            for states in sessions.values() {
                let (possible, _) = states.possible(page.asked, page.answered);
                let (count, fit) =
                    possible.fold((0, 0), |(all, fit), state| (all + 1, fit + u64::from(matches(state))));
                judged.changing += u64::from(count > 1 && fit > 0);
            }
        }
        for (id, items) in &seen {
            // One that is due later than it was may come again.
            let is_again = |pair: &[&SessionSummary]| pair[0].next_due_at == pair[1].next_due_at;
            // One that gets or loses a time of its own moves between two lists; a purge takes it, too.
            let (first, last) = (&self.pages[0], &self.pages[self.pages.len() - 1]);
            let possible: Vec<_> = sessions[id].possible(first.asked, last.answered).0.collect();
            let is_same = possible.len() == 1 && !possible[0].is_deleted();
            let may_move = self.query.inactive_since.is_some() && !is_same;
            let is_wrong = self.query.due.is_none() || items.windows(2).any(is_again);
            if items.len() > 1 && is_wrong && !may_move {
                return Err(format!("{id} is listed {} times", items.len()));
            }
        }
        let (Some(first), Some(last)) = (self.pages.first(), self.pages.last()) else { return Ok(()) };
        if !self.is_whole {
            return Ok(());
        }
        let (mut least, mut most) = (0, 0);
        for (id, states) in sessions {
            let (possible, may_be_absent) = states.possible(first.asked, last.answered);
            let possible: Vec<_> = possible.collect();
            let fits = possible.iter().filter(|state| matches(state)).count();
            most += u64::from(fits > 0);
            // It may be purged, and have no labels any more.
            let is_unlabelled = (!self.query.labels.is_empty() || self.query.inactive_since.is_some())
                && possible.iter().any(|state| state.is_deleted());
            if may_be_absent || is_unlabelled || possible.is_empty() || fits < possible.len() {
                continue;
            }
            least += 1;
            // A session that changes may go to a page that was shown.
            if self.pages.len() > 1 && possible.len() > 1 {
                continue;
            }
            judged.needed += 1;
            if !seen.contains_key(id) {
                let heads: Vec<_> = possible.iter().map(|state| state.summary.head).collect();
                return Err(format!("{id}, at events {heads:?}, is not listed"));
            }
        }
        let of_page = |page: &Shown| page.total.is_some_and(|total| total < least || total > most);
        if self.pages.len() == 1 && of_page(first) {
            return Err(format!("a total of {:?}, of {least} to {most}", first.total));
        }
        Ok(())
    }
}
