//! History of a session's calls and answers, and a check that they are consistent.
//!
//! A session is a log, and the effect of a commit on it is the pure function [`plan`]. So the final log gives the
//! order in which the commits took effect, and the rest follows. Each commit must be the result of `plan` on the log
//! before it. Every answer must be one that the log gave at some point between the call and its answer. These points
//! must be in an order that agrees with real time. That is linearizability; for a log the check needs no search.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_core::commit::{Commit, Committed};
use agent_core::event::Event;
use agent_core::session::SessionRecord;
use agent_core::state::SessionState;
use agent_core::store::{EventPage, Purge, Purged, ReadEvents};
use agent_core::{CommitId, Error, ErrorKind, Plan, Result, SessionId, SessionStore, WriteOutcome, plan};

use crate::failure::{brief, shown};

/// Call, and its answer.
#[derive(Debug)]
enum Answer {
    Commit(CommitId, Result<Box<Committed>>),
    Load(Result<Arc<SessionRecord>>),
    /// Read of the newest events.
    Read(Result<EventPage>),
    Purge(Result<Purged>),
}

#[derive(Debug)]
struct Call {
    client: String,
    session: SessionId,
    asked: u64,
    answered: u64,
    answer: Answer,
}

/// Recorder of calls and their answers. Clones share one history.
#[derive(Clone, Debug, Default)]
pub struct History {
    steps: Arc<AtomicU64>,
    commits: Arc<Mutex<BTreeMap<CommitId, Commit>>>,
    calls: Arc<Mutex<Vec<Call>>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl History {
    /// Returns a time that is after all earlier ones.
    fn moment(&self) -> u64 {
        self.steps.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn note(&self, client: &str, session: SessionId, asked: u64, answer: Answer) {
        let answered = self.moment();
        held(&self.calls).push(Call { client: client.to_owned(), session, asked, answered, answer });
    }

    /// Sends a commit, and records the call of `client` and its answer.
    ///
    /// # Errors
    ///
    /// The errors of [`SessionStore::commit`].
    pub async fn commit(&self, client: &str, store: &dyn SessionStore, commit: Commit) -> Result<Committed> {
        let (id, session) = (commit.id, commit.session);
        held(&self.commits).insert(id, commit.clone());
        let asked = self.moment();
        let done = store.commit(commit).await;
        self.note(client, session, asked, Answer::Commit(id, done.clone().map(Box::new)));
        done
    }

    /// Loads a session, and records the call and its answer.
    ///
    /// # Errors
    ///
    /// The errors of [`SessionStore::load`].
    pub async fn load(
        &self,
        client: &str,
        store: &dyn SessionStore,
        id: SessionId,
    ) -> Result<Arc<SessionRecord>> {
        let asked = self.moment();
        let done = store.load(id).await;
        self.note(client, id, asked, Answer::Load(done.clone()));
        done
    }

    /// Reads a session's newest events, and records the call and its answer.
    ///
    /// # Errors
    ///
    /// The errors of [`SessionStore::read`].
    pub async fn read(&self, client: &str, store: &dyn SessionStore, id: SessionId) -> Result<EventPage> {
        let asked = self.moment();
        let done = store.read(id, ReadEvents::last(50)).await;
        self.note(client, id, asked, Answer::Read(done.clone()));
        done
    }

    /// Purges a deleted session, and records the call and its answer.
    ///
    /// # Errors
    ///
    /// The errors of [`SessionStore::purge`].
    pub async fn purge(&self, client: &str, store: &dyn SessionStore, purge: Purge) -> Result<Purged> {
        let (session, asked) = (purge.session, self.moment());
        let done = store.purge(purge).await;
        self.note(client, session, asked, Answer::Purge(done.clone()));
        done
    }

    /// Returns the number of recorded calls.
    pub fn calls(&self) -> usize {
        held(&self.calls).len()
    }

    /// Returns the number of answers with an unknown outcome.
    pub fn unknown(&self) -> usize {
        let in_doubt = |call: &&Call| matches!(&call.answer, Answer::Commit(_, Err(error)) if error.write_outcome() == WriteOutcome::Unknown);
        held(&self.calls).iter().filter(in_doubt).count()
    }

    /// Checks all recorded calls on a session against its final log, which must have all of the session's own events: those
    /// before the purge, if it is purged.
    ///
    /// # Errors
    ///
    /// A description of the first inconsistency.
    pub fn judge(&self, session: SessionId, log: &[Event]) -> Result<(), String> {
        let commits = held(&self.commits);
        let calls = held(&self.calls);
        let calls: Vec<_> = calls.iter().filter(|call| call.session == session).collect();
        Judge::new(&commits, log)?.judge(&calls)
    }
}

/// Position in the order: `2 k` is the `k`th commit, `2 k + 1` is everything that saw the log after it.
type Place = usize;

/// Call with a known position in the order, made between two times.
#[derive(Clone, Copy, Debug)]
struct Mark {
    place: Place,
    asked: u64,
    answered: u64,
}

struct Judge<'a> {
    commits: &'a BTreeMap<CommitId, Commit>,
    log: &'a [Event],
    /// Records after each commit, from the first on, and behind them the tombstone of a deleted session, which a purge leaves.
    states: Vec<Arc<SessionRecord>>,
    ids: Vec<CommitId>,
}

impl<'a> Judge<'a> {
    /// Replays the log. Fails unless every commit in it is the result of `plan` on the log before it.
    fn new(commits: &'a BTreeMap<CommitId, Commit>, log: &'a [Event]) -> Result<Self, String> {
        let (mut states, mut ids) = (Vec::<Arc<SessionRecord>>::new(), Vec::new());
        for events in log.chunk_by(|a, b| a.commit == b.commit) {
            let Some(id) = events.first().map(|event| event.commit) else { continue };
            if ids.contains(&id) {
                return Err(format!("commit {id} is in the log twice"));
            }
            let commit = commits.get(&id).ok_or_else(|| format!("commit {id} is nobody's"))?;
            match plan(states.last().map(|last| &**last), commit) {
                Ok(Plan::Write { events: planned, after, .. }) if planned == events => states.push(after),
                other => {
                    return Err(format!(
                        "commit {id} has no business after commit {}: {}",
                        ids.len(),
                        shown(&other)
                    ));
                }
            }
            ids.push(id);
        }
        if let Some(deleted) =
            states.last().filter(|last| last.status.state == SessionState::Deleted).cloned()
        {
            let tombstone = deleted.tombstone();
            states.extend((*deleted != tombstone).then(|| Arc::new(tombstone)));
        }
        Ok(Self { commits, log, states, ids })
    }

    /// Returns the position of the commit, or of the purge, that led to this record.
    fn place_of(&self, seen: &SessionRecord) -> Result<Place, String> {
        let at = self.states.iter().position(|state| **state == *seen);
        let at = at.ok_or_else(|| format!("a record at event {} that the log does not give", seen.head))?;
        Ok(2 * (at + 1) + 1)
    }

    /// Returns the time of the purge, and its position: it is asked once, and maybe again. None is needed if the log has none, or
    /// nobody saw its tombstone.
    fn purge(&self, calls: &[&Call], marks: &[Mark]) -> Result<Option<Mark>, String> {
        if self.states.len() == self.ids.len() {
            return Ok(None);
        }
        let purges = || calls.iter().filter(|call| matches!(call.answer, Answer::Purge(_)));
        let place = 2 * self.states.len();
        let Some(asked) = purges().map(|call| call.asked).min() else {
            return match marks.iter().any(|mark| mark.place > place) {
                true => Err("the tombstone of a purge was seen, and nothing was purged".to_owned()),
                false => Ok(None),
            };
        };
        let done = purges().filter(|call| matches!(call.answer, Answer::Purge(Ok(_))));
        let answered = done.map(|call| call.answered).min().unwrap_or(u64::MAX);
        Ok(Some(Mark { place, asked, answered }))
    }

    /// Checks the answer to a commit. Returns the position of the record in it, and the number of the commit in the log,
    /// which has none if it changed nothing.
    fn acknowledged(&self, id: CommitId, done: &Committed) -> Result<(Place, Option<usize>), String> {
        let seen = self.place_of(&done.session)?;
        let at = self.ids.iter().position(|known| *known == id);
        match at {
            Some(at) if done.last != self.states[at].head || seen < 2 * (at + 1) => {
                Err(format!("it ends at event {}", self.states[at].head))
            }
            None if done.first <= done.last => Err("acknowledged, and not in the log".to_owned()),
            _ => Ok((seen, at)),
        }
    }

    /// Returns the position of the commit that a page of events ends with; `None` for an empty page.
    fn place_of_page(&self, page: &EventPage) -> Result<Option<Place>, String> {
        let known = |event: &Event| self.log.get(event.seq.get() as usize - 1) == Some(event);
        if !page.damaged.is_empty() || !page.events.iter().all(known) {
            return Err("not what is in the log".to_owned());
        }
        let Some(last) = page.events.last() else { return Ok(None) };
        let at = self.states.iter().position(|state| state.head == last.seq);
        Ok(Some(2 * (at.ok_or("half a commit")? + 1) + 1))
    }

    fn judge(&self, calls: &[&Call]) -> Result<(), String> {
        let mut marks = Vec::new();
        let mut refusals = Vec::new();
        let mut writes = BTreeMap::<CommitId, Write>::new();
        for call in calls {
            let Call { asked, answered, .. } = **call;
            let wrong = |what: String| format!("{what}; told to {}: {:?}", call.client, call.answer);
            match &call.answer {
                Answer::Commit(id, done) => {
                    let write = writes.entry(*id).or_insert(Write { asked, ..Write::NEW });
                    match done {
                        Ok(done) => {
                            let (seen, at) = self.acknowledged(*id, done).map_err(wrong)?;
                            if at.is_some() {
                                write.answered = write.answered.min(answered);
                            }
                            // The record may be that right after the commit, however long ago that was.
                            if at.is_none_or(|at| seen != 2 * (at + 1) + 1) {
                                marks.push(Mark { place: seen, asked, answered });
                            }
                        }
                        Err(error) if error.write_outcome() == WriteOutcome::Unknown => write.open = true,
                        // The way to the store failed, before anything was asked of it.
                        Err(error) if is_trouble(error) => {}
                        Err(error) => refusals.push((*call, *id, error)),
                    }
                }
                Answer::Load(Ok(seen)) => {
                    let place = self.place_of(seen).map_err(wrong)?;
                    marks.push(Mark { place, asked, answered });
                }
                Answer::Read(Ok(page)) => {
                    let place = self.place_of_page(page).map_err(wrong)?;
                    marks.extend(place.map(|place| Mark { place, asked, answered }));
                }
                Answer::Load(Err(error)) | Answer::Read(Err(error)) if is_trouble(error) => {}
                Answer::Purge(_) => {}
                Answer::Load(Err(_)) | Answer::Read(Err(_)) => {
                    return Err(wrong("no reason to fail".to_owned()));
                }
            }
        }
        for (at, id) in self.ids.iter().enumerate() {
            let write = writes.get(id).ok_or_else(|| format!("commit {id} was never sent"))?;
            if !write.open && write.answered == u64::MAX {
                return Err(format!("commit {id} is in the log, though it was never said that it may be"));
            }
            marks.push(Mark { place: 2 * (at + 1), asked: write.asked, answered: write.answered });
        }
        marks.extend(self.purge(calls, &marks)?);
        in_real_time(&marks)?;
        refusals.iter().try_for_each(|(call, id, error)| {
            let is_later = |other: &&Call| {
                matches!(&other.answer, Answer::Commit(sent, _) if sent == id) && other.asked > call.answered
            };
            self.refused(call, *id, error, &marks, calls.iter().any(is_later))
        })
    }

    /// Checks a refusal: `plan` must refuse the commit on the log of some point between call and answer. For a commit
    /// that is in the log, that point must be after it, unless it was sent again later.
    fn refused(
        &self,
        call: &Call,
        id: CommitId,
        error: &Error,
        marks: &[Mark],
        sent_later: bool,
    ) -> Result<(), String> {
        let after = marks.iter().filter(|mark| mark.answered < call.asked).map(|mark| mark.place).max();
        let before = marks.iter().filter(|mark| mark.asked > call.answered).map(|mark| mark.place).min();
        let landed = if sent_later { None } else { self.ids.iter().position(|known| *known == id) };
        let landed = landed.map_or(0, |at| at + 1);
        let right = (landed.max(1)..=self.states.len()).any(|k| {
            let place = 2 * k + 1;
            let in_time =
                after.is_none_or(|after| after <= place) && before.is_none_or(|before| place <= before);
            let planned = plan(self.states.get(k - 1).map(|before| &**before), &self.commits[&id]);
            in_time && planned.is_err_and(|planned| planned.kind() == error.kind())
        });
        if right {
            return Ok(());
        }
        Err(format!(
            "{} was refused without reason, between {after:?} and {before:?}: {}",
            call.client,
            brief(error)
        ))
    }
}

#[derive(Clone, Copy, Debug)]
struct Write {
    /// Time at which it was first sent.
    asked: u64,
    /// Time at which it was first acknowledged.
    answered: u64,
    /// True if an answer had an unknown outcome.
    open: bool,
}

impl Write {
    const NEW: Self = Self { asked: 0, answered: u64::MAX, open: false };
}

/// Returns whether an error is unrelated to the session's state.
fn is_trouble(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Denied)
}

/// Checks that no call which ended before another began comes after it in the order.
fn in_real_time(marks: &[Mark]) -> Result<(), String> {
    let mut marks = marks.to_vec();
    marks.sort_by_key(|mark| mark.place);
    let mut latest: Option<Mark> = None;
    for same in marks.chunk_by(|a, b| a.place == b.place) {
        for mark in same {
            if let Some(earlier) = latest.filter(|earlier| mark.answered < earlier.asked) {
                return Err(format!("{mark:?} was over before {earlier:?} began, and comes after it"));
            }
        }
        latest = same.iter().copied().chain(latest).max_by_key(|mark| mark.asked);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Small correct histories are accepted, and the same histories with one error are not.
    #[test]
    fn checker_rejects_histories_with_one_error() {
        let mark = |place, asked, answered| Mark { place, asked, answered };
        // A write, a read of it that overlaps, a second write of which nobody knows, a read of that.
        let fine = [mark(2, 1, 4), mark(3, 2, 3), mark(4, 5, u64::MAX), mark(5, 8, 9), mark(3, 6, 7)];
        in_real_time(&fine).unwrap();
        // A read that began after that of the second write ended, and still sees the first.
        let stale: Vec<_> = fine.into_iter().chain([mark(3, 10, 11)]).collect();
        assert!(in_real_time(&stale).is_err());
        // A read of a write that had not begun.
        assert!(in_real_time(&[mark(2, 5, 6), mark(3, 1, 2)]).is_err());
        // Two reads of the same, in whichever order.
        in_real_time(&[mark(3, 5, 6), mark(3, 1, 2)]).unwrap();
        let places: BTreeSet<_> = fine.iter().map(|mark| mark.place).collect();
        assert_eq!(places.len(), 4);
    }
}
